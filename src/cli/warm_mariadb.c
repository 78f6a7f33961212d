/* warm_mariadb.c: values from a MariaDB or MySQL database: the first column of the first row. No
 * row, or NULL, is "no such thing".
 *
 * libmariadb is loaded here, not linked, so that other subcommands don't pay for it. Its
 * non-blocking functions are driven by poll. A statement is ended on the server by KILL QUERY. */
#include "run.h"
#include "warm.h"

#ifdef CORRAL_MARIADB

#include <dlfcn.h>
#include <errmsg.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FUNCTIONS(X)                                                                               \
  X(close)                                                                                         \
  X(errno)                                                                                         \
  X(error)                                                                                         \
  X(fetch_lengths)                                                                                 \
  X(fetch_row_cont)                                                                                \
  X(fetch_row_start)                                                                               \
  X(free_result)                                                                                   \
  X(get_socket)                                                                                    \
  X(init)                                                                                          \
  X(options)                                                                                       \
  X(options4)                                                                                      \
  X(query)                                                                                         \
  X(real_connect)                                                                                  \
  X(real_query_cont)                                                                               \
  X(real_query_start)                                                                              \
  X(server_init)                                                                                   \
  X(stmt_bind_param)                                                                               \
  X(stmt_bind_result)                                                                              \
  X(stmt_close)                                                                                    \
  X(stmt_errno)                                                                                    \
  X(stmt_error)                                                                                    \
  X(stmt_execute_cont)                                                                             \
  X(stmt_execute_start)                                                                            \
  X(stmt_fetch)                                                                                    \
  X(stmt_fetch_column)                                                                             \
  X(stmt_field_count)                                                                              \
  X(stmt_free_result)                                                                              \
  X(stmt_init)                                                                                     \
  X(stmt_param_count)                                                                              \
  X(stmt_prepare)                                                                                  \
  X(stmt_store_result_cont)                                                                        \
  X(stmt_store_result_start)                                                                       \
  X(thread_id)                                                                                     \
  X(use_result)

static struct {
#define FIELD(name) __typeof__(mysql_##name) *name##_;
  FUNCTIONS(FIELD)
#undef FIELD
} my;

enum { TICK_MS = 50, MERCY_MS = 2000, UNWIND_MOST = 1000, CELL = 512 };

static const unsigned connect_seconds = 10;

typedef enum stage { READY, QUERYING, FETCHING, EXECUTING, STORING } stage;

typedef struct session {
  const warm_options *o;
  MYSQL *mysql;
  MYSQL_STMT *stmt; /* NULL: none is prepared */
  /* call of the library under way: what it waits for, MYSQL_WAIT_..., and its result */
  stage stage;
  int wait, code;
  MYSQL_RES *result; /* of the keys' statement */
  MYSQL_ROW row;
  bool is_broken;
} session;

/* When the statement under way is to end: for a value, or for the keys. */
typedef struct limit {
  const warm_seat *seat; /* NULL: for the keys */
  int64_t until_ms;
  const warm_reading *reading;
  bool has_ended;
} limit;

bool warm_mariadb_load(void) {
  void *library = dlopen("libmariadb.so.3", RTLD_NOW | RTLD_LOCAL);
  /* the path known at build time */
  if (library == NULL) library = dlopen(CORRAL_MARIADB, RTLD_NOW | RTLD_LOCAL);
  bool ok = library != NULL;
#define LOAD(name) ok = ok && (*(void **)&my.name##_ = dlsym(library, "mysql_" #name)) != NULL;
  FUNCTIONS(LOAD)
#undef LOAD
  if (!ok)
    cli_say("warm: --mariadb needs MariaDB's client library (Debian has it in libmariadb3): %s",
            dlerror());
  return ok && my.server_init_(0, NULL, NULL) == 0;
}

/* ---- a connection -------------------------------------------------------------------------- */

static void go_on(session *s, int events) {
  switch (s->stage) {
    case QUERYING: s->wait = my.real_query_cont_(&s->code, s->mysql, events); break;
    case FETCHING: s->wait = my.fetch_row_cont_(&s->row, s->result, events); break;
    case EXECUTING: s->wait = my.stmt_execute_cont_(&s->code, s->stmt, events); break;
    case STORING: s->wait = my.stmt_store_result_cont_(&s->code, s->stmt, events); break;
    default: break;
  }
}

/* Ends the call under way: on a socket that is shut down the library ends at once. */
static void cut(session *s) {
  s->is_broken = true;
  (void)shutdown(my.get_socket_(s->mysql), SHUT_RDWR);
  for (int i = 0; s->wait != 0 && i < UNWIND_MOST; i++) go_on(s, s->wait & ~MYSQL_WAIT_TIMEOUT);
  s->wait = 0;
}

static void disconnect(void *connection) {
  session *s = connection;
  if (s->stmt != NULL) (void)my.stmt_close_(s->stmt);
  my.close_(s->mysql);
  free(s);
}

static bool is_broken(const void *connection) {
  const session *s = connection;
  return s->is_broken;
}

static bool set_options(MYSQL *mysql) {
  unsigned off = 0;
  return my.options_(mysql, MYSQL_OPT_NONBLOCK, NULL) == 0 &&
         my.options_(mysql, MYSQL_READ_DEFAULT_GROUP, "client") == 0 &&
         my.options_(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &connect_seconds) == 0 &&
         my.options_(mysql, MYSQL_OPT_LOCAL_INFILE, &off) == 0 &&
         my.options_(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4") == 0 &&
         my.options4_(mysql, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "corral warm") == 0;
}

/* The fields of a conninfo: host=h;port=3306;user=u;password=p;database=d;socket=/path. A field
 * that it leaves out is NULL, and comes from the user's own file; libmariadb's parser lets the file
 * go first. */
typedef struct place {
  char *copy; /* to be freed */
  const char *values[6];
} place;

enum { HOST, PORT, USER, PASSWORD, DATABASE, SOCKET };

/* False with the reason in `text`, which quotes no value. */
static bool parse(const char *conninfo, place *ret, char *text, size_t size) {
  static const char *const names[] = {"host", "port", "user", "password", "database", "socket"};
  char *save = NULL;
  *ret = (place){.copy = strdup(conninfo)};
  if (ret->copy == NULL) return (void)snprintf(text, size, "out of memory"), false;
  for (char *pair = strtok_r(ret->copy, ";", &save); pair != NULL;
       pair = strtok_r(NULL, ";", &save)) {
    size_t n = 0, len = strcspn(pair, "=");
    while (n < 6 &&
           (pair[len] == '\0' || strlen(names[n]) != len || strncmp(names[n], pair, len) != 0))
      n++;
    if (n == 6) {
      (void)snprintf(text, size,
                     "'%.*s' is not accepted: host=, port=, user=, password=, database= and "
                     "socket= are, with semicolons between",
                     pair[len] == '\0' ? 0 : (int)len, pair);
      return false;
    }
    ret->values[n] = pair + len + 1;
  }
  return true;
}

static bool connect_by(MYSQL *mysql, const char *conninfo, char *text, size_t size) {
  place at;
  bool ok = parse(conninfo, &at, text, size);
  const char *const *v = at.values;
  unsigned port = ok && v[PORT] != NULL ? (unsigned)strtoul(v[PORT], NULL, 10) : 0;
  if (ok) {
    ok = my.real_connect_(mysql, v[HOST], v[USER], v[PASSWORD], v[DATABASE], port, v[SOCKET], 0) !=
         NULL;
    if (!ok) (void)snprintf(text, size, "%s", my.error_(mysql));
  }
  free(at.copy);
  return ok;
}

/* NULL with the reason in `text`. Waits 10 s at most. `sql` is prepared, unless it is NULL. */
static void *connect_to(const warm_options *o, const char *sql, char *text, size_t size) {
  (void)snprintf(text, size, "out of memory");
  session *s = calloc(1, sizeof *s);
  MYSQL *mysql = s != NULL ? my.init_(NULL) : NULL;
  if (mysql == NULL) return free(s), NULL;
  *s = (session){.o = o, .mysql = mysql};
  bool ok = set_options(mysql) && connect_by(mysql, o->mariadb, text, size);
  if (ok && sql == NULL) return s;
  if (ok) s->stmt = my.stmt_init_(mysql);
  if (s->stmt != NULL && my.stmt_prepare_(s->stmt, sql, strlen(sql)) == 0) return s;
  if (s->stmt != NULL) (void)snprintf(text, size, "%s", my.stmt_error_(s->stmt));
  disconnect(s);
  return NULL;
}

/* Ends the session's statement on the server, by another connection. */
static void kill_statement(const session *s) {
  char text[WARM_REASON], sql[64];
  session *other = connect_to(s->o, NULL, text, sizeof text);
  if (other == NULL) return;
  (void)snprintf(sql, sizeof sql, "KILL QUERY %lu", my.thread_id_(s->mysql));
  (void)my.query_(other->mysql, sql);
  disconnect(other);
}

static bool should_stop(const limit *l) {
  return l->seat != NULL ? warm_should_stop(l->seat, l->until_ms)
                         : warm_reading_is_stopped(l->reading);
}

/* Waits a moment for the socket. Returns the events that came, as MYSQL_WAIT_...; 0: none. */
static int await(const session *s) {
  struct pollfd fd = {.fd = my.get_socket_(s->mysql)};
  if (s->wait & MYSQL_WAIT_READ) fd.events |= POLLIN;
  if (s->wait & MYSQL_WAIT_WRITE) fd.events |= POLLOUT;
  if (poll(&fd, 1, TICK_MS) <= 0) return 0;
  int events = fd.revents & POLLOUT ? MYSQL_WAIT_WRITE : 0;
  if (fd.revents & ~POLLOUT) events |= MYSQL_WAIT_READ;
  return events & s->wait ? events & s->wait : s->wait & ~MYSQL_WAIT_TIMEOUT;
}

/* Goes on until the call is over. At the limit the statement is ended; its connection isn't used
 * again, and is cut off where the server doesn't answer. */
static void finish(session *s, limit *l) {
  int64_t give_up_ms = 0;
  while (s->wait != 0) {
    int events = await(s);
    if (events != 0) go_on(s, events);
    if (s->wait == 0) break;
    if (give_up_ms != 0 && cli_now_ms() >= give_up_ms) cut(s);
    if (give_up_ms != 0 || !should_stop(l)) continue;
    l->has_ended = s->is_broken = true;
    kill_statement(s);
    give_up_ms = cli_now_ms() + MERCY_MS;
  }
  s->stage = READY;
}

/* ---- values -------------------------------------------------------------------------------- */

/* The name of the database that the connection reads from; to be freed. NULL: no memory. */
static char *database_of(const MYSQL *mysql) {
  char *text = NULL;
  const char *socket = mysql->unix_socket != NULL ? mysql->unix_socket : "";
  int n = asprintf(&text, "%s\n%s\n%u\n%s\n%s", mysql->host != NULL ? mysql->host : "", socket,
                   mysql->port, mysql->db != NULL ? mysql->db : "",
                   mysql->user != NULL ? mysql->user : "");
  return n >= 0 ? text : NULL;
}

static bool check(warm *w) {
  char text[WARM_REASON];
  if (!warm_mariadb_load()) return false;
  session *s = connect_to(&w->o, w->o.query, text, sizeof text);
  if (s == NULL) return cli_say("warm: --mariadb: %s", text), false;
  w->database = database_of(s->mysql);
  unsigned long parameters = my.stmt_param_count_(s->stmt);
  unsigned long columns = my.stmt_field_count_(s->stmt);
  disconnect(s);
  if (w->database == NULL) return cli_say("warm: out of memory"), false;
  return warm_server_accepts(parameters, columns, "?");
}

/* Gives the fill the first column of the present row. */
static int give_cell(session *s, corral_fill *fill, const MYSQL_BIND *cell) {
  size_t len = *cell->length;
  if (*cell->is_null) return corral_fill_negative(fill), CORRAL_OK;
  if (len <= cell->buffer_length) return corral_fill_bytes(fill, cell->buffer, len);
  char *bytes = malloc(len);
  MYSQL_BIND whole = *cell;
  whole.buffer = bytes;
  whole.buffer_length = len;
  int status = CORRAL_ENOMEM;
  if (bytes != NULL && my.stmt_fetch_column_(s->stmt, &whole, 0, 0) == 0)
    status = corral_fill_bytes(fill, bytes, len);
  free(bytes);
  return status;
}

static int answer(session *s, corral_fill *fill) {
  char room[CELL];
  unsigned long len = 0;
  my_bool is_null = 0;
  unsigned columns = my.stmt_field_count_(s->stmt);
  MYSQL_BIND *cells = calloc(columns + 1, sizeof *cells);
  if (cells == NULL) return CORRAL_ENOMEM;
  for (unsigned i = 0; i < columns; i++) cells[i].buffer_type = MYSQL_TYPE_STRING;
  cells[0].buffer = room;
  cells[0].buffer_length = sizeof room;
  cells[0].length = &len;
  cells[0].is_null = &is_null;
  int status = CORRAL_ENOMEM;
  int code = my.stmt_bind_result_(s->stmt, cells) == 0 ? my.stmt_fetch_(s->stmt) : 1;
  if (code == MYSQL_NO_DATA) {
    corral_fill_negative(fill);
    status = CORRAL_OK;
  } else if (code == 0 || code == MYSQL_DATA_TRUNCATED) {
    status = give_cell(s, fill, &cells[0]);
  }
  free(cells);
  return status;
}

static bool ends_connection(unsigned code) {
  return (code >= CR_MIN_ERROR && code <= CR_MAX_ERROR) || code == ER_CONNECTION_KILLED ||
         code == ER_SERVER_SHUTDOWN;
}

static bool query(warm_seat *seat, corral_fill *fill, void *connection, const void *key,
                  size_t key_len, char *text, size_t size) {
  session *s = connection;
  limit l = {.seat = seat, .until_ms = cli_now_ms() + seat->w->o.limit_ms};
  MYSQL_BIND parameter = {
      .buffer_type = MYSQL_TYPE_STRING, .buffer = (void *)(uintptr_t)key, .buffer_length = key_len};
  (void)my.stmt_bind_param_(s->stmt, &parameter);
  s->stage = EXECUTING;
  s->wait = my.stmt_execute_start_(&s->code, s->stmt);
  finish(s, &l);
  if (s->code == 0 && !l.has_ended) {
    s->stage = STORING;
    s->wait = my.stmt_store_result_start_(&s->code, s->stmt);
    finish(s, &l);
  }
  if (l.has_ended) return cut(s), warm_server_ended(seat, fill), true;
  int status = s->code == 0 ? answer(s, fill) : CORRAL_EUNAVAILABLE;
  if (status != CORRAL_OK) {
    unsigned code = my.stmt_errno_(s->stmt);
    (void)snprintf(text, size, "%s",
                   code != 0 ? my.stmt_error_(s->stmt) : corral_status_text(status));
    s->is_broken = ends_connection(code);
    if (s->is_broken) return false;
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "%s", text);
  }
  (void)my.stmt_free_result_(s->stmt);
  return true;
}

static void compute(warm_seat *seat, corral_fill *fill, const void *key, size_t key_len) {
  static const warm_server mariadb = {connect_to, query, is_broken, disconnect};
  warm_server_compute(&mariadb, seat, fill, key, key_len);
}

const warm_source warm_mariadb = {check, compute, warm_server_close};

/* ---- keys ---------------------------------------------------------------------------------- */

/* Row by row: the answer isn't kept as a whole. */
static bool read_rows(warm_reading *r, session *s, limit *l) {
  for (;;) {
    s->stage = FETCHING;
    s->wait = my.fetch_row_start_(&s->row, s->result);
    finish(s, l);
    if (l->has_ended || s->row == NULL) break;
    size_t size = my.fetch_lengths_(s->result)[0];
    if (s->row[0] != NULL && !warm_reading_add(r, s->row[0], size)) break;
  }
  return !l->has_ended && s->row == NULL && my.errno_(s->mysql) == 0;
}

bool warm_mariadb_keys(warm_reading *r, const char *sql) {
  char text[WARM_REASON] = "";
  limit l = {.reading = r};
  session *s = connect_to(warm_reading_options(r), NULL, text, sizeof text);
  if (s == NULL) return warm_say("warm: --keys: %s", text), false;
  s->stage = QUERYING;
  s->wait = my.real_query_start_(&s->code, s->mysql, sql, strlen(sql));
  finish(s, &l);
  bool ok = s->code == 0 && !l.has_ended;
  if (ok) s->result = my.use_result_(s->mysql);
  bool is_silent = ok && s->result == NULL && my.errno_(s->mysql) == 0;
  ok = s->result != NULL && read_rows(r, s, &l);
  if (is_silent)
    warm_say("warm: --keys: the statement answers no rows");
  else if (!ok && my.errno_(s->mysql) != 0 && !l.has_ended)
    warm_say("warm: --keys: %s", my.error_(s->mysql));
  if (!ok) cut(s); /* the rest of the answer isn't read */
  if (s->result != NULL) my.free_result_(s->result);
  disconnect(s);
  return ok;
}

#else

bool warm_mariadb_keys(warm_reading *r, const char *sql) {
  (void)r;
  (void)sql;
  return false;
}

bool warm_mariadb_load(void) {
  cli_say("warm: --mariadb: this corral was built without MariaDB's client library "
          "(libmariadb-dev)");
  return false;
}

static bool check(warm *w) {
  (void)w;
  return warm_mariadb_load();
}

const warm_source warm_mariadb = {check, NULL, NULL};

#endif
