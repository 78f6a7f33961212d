/* listen.c: the changes of the data, from a table, and the expiries that follow from them.
 *
 * The triggers of schema.sql write each transaction's regions into the table `changes`, and NOTIFY
 * is only the wake-up. How far the table has been read is a row of the table `positions`: the
 * snapshot of the last reading. A change is new if that snapshot doesn't see its transaction, so a
 * transaction that commits late is neither overtaken nor read twice.
 *
 * One process listens for all that share a store: the one whose session has an advisory lock. The
 * others stand by: when the listening process ends, or its connection does, one of them goes on
 * from the recorded position. Callers who joined a query that began before a change look again, in
 * every process, because its answer is voided. A start voids nothing: what changed while no process
 * ran is read then, once. The position is recorded after the expiries: after an accident some are
 * repeated, none is missed.
 *
 * The store has a name, which is a random value in it: processes know by it whether they share a
 * store, whatever they call it, and a store that was emptied has no position. Then all that it may
 * have is expired, once.
 *
 * Reports are expired, not invalidated: who asks after that waits for the new report, and gets the
 * old one in its grace when the database doesn't answer. A region is expired at most once per
 * pause (pace.h), which is --pace, and no less than twice the time that its report takes: so a
 * report that changes faster than it computes is served all the same, and is no older than that
 * pause and one query. While no process listens, or the listening one is stopped without being
 * dead, a report lives as long as --ttl says. */
#include "listen.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "pace.h"
#include "report.h"

/* ASK_MS: longest question, and connecting. TOUCH_MS: the position is recorded at least so often.
 * AGAIN_MS: pause after an expiry that failed. */
enum {
  ASK_MS = 5000,
  STANDBY_MS = 500,
  TOUCH_MS = 60000,
  AGAIN_MS = 200,
  REST_MS = 100,
  REST_MOST_MS = 2000,
  NAME = 16 /* bytes of the store's name */
};

struct listener {
  listener_options options;
  char name[NAME + 1];
  pace *pace;
  char *seen; /* snapshot of the last reading, to be recorded */
  atomic_int hears, leads;
  atomic_ullong heard;
  pthread_t thread;
};

static int is_stopped(const listener *l, int64_t wait_ms) {
  struct pollfd fd = {.fd = l->options.stop_fd, .events = POLLIN};
  return poll(&fd, 1, (int)wait_ms) > 0;
}

/* ---- the store's name ---------------------------------------------------------------------- */

static int make_name(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  uint64_t number;
  char name[NAME + 1];
  size_t old_size;
  (void)key, (void)key_len, (void)arg;
  if (corral_fill_old(fill, &old_size) != NULL) return corral_fill_not_modified(fill);
  if (getrandom(&number, sizeof number, 0) != sizeof number) return CORRAL_EIO;
  snprintf(name, sizeof name, "%016llx", (unsigned long long)number);
  return corral_fill_bytes(fill, name, NAME);
}

/* Reads the store's name, which is no region's key. 0: the store can't be asked now. A name that is
 * new counts when the store gives it back. */
static int read_name(const listener *l, char name[NAME + 1]) {
  static const char key[] = "store:name";
  const corral_call *call =
      CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = INT64_C(315360000000), .wait_ms = ASK_MS,
                                          .when_away = CORRAL_AWAY_ERROR));
  int is_stored = 0;
  for (int i = 0; i < 2 && !is_stored; i++) {
    corral_value *value = NULL;
    if (corral_get_or_compute(l->options.reports, key, sizeof key - 1, call, make_name, NULL,
                              &value) != CORRAL_OK)
      return 0;
    corral_how how = corral_value_how(value);
    is_stored = (how == CORRAL_FRESH || how == CORRAL_STALE) && corral_value_size(value) == NAME;
    if (is_stored) memcpy(name, corral_value_data(value), NAME);
    name[NAME] = '\0';
    corral_value_unref(value);
  }
  return is_stored;
}

/* ---- questions ----------------------------------------------------------------------------- */

static PGresult *ask(const listener *l, PGconn *conn, const char *sql, const char *const *values,
                     int count) {
  db_limit limit = {.until = db_now_ms() + ASK_MS, .stop_fd = l->options.stop_fd};
  return db_ask(conn, sql, values, count, &limit);
}

/* 1: done. */
static int run(const listener *l, PGconn *conn, const char *sql, const char *const *values,
               int count) {
  PGresult *r = ask(l, conn, sql, values, count);
  int done = PQresultStatus(r) == PGRES_COMMAND_OK;
  PQclear(r);
  return done;
}

/* 1: this session has the lock now; 0: another one has it; -1: no answer. */
static int try_lock(const listener *l, PGconn *conn) {
  PGresult *r =
      ask(l, conn, "SELECT pg_try_advisory_lock(hashtextextended('corral changes ' || $1, 0))",
          (const char *const[]){l->name}, 1);
  int locked = PQresultStatus(r) == PGRES_TUPLES_OK ? PQgetvalue(r, 0, 0)[0] == 't' : -1;
  PQclear(r);
  return locked;
}

/* Notes the regions of a reading; the first row is there also when nothing is new. */
static int note_rows(listener *l, const PGresult *r, int is_first) {
  int is_known = !PQgetisnull(r, 0, 1), ok = 1;
  free(l->seen);
  l->seen = strdup(PQgetvalue(r, 0, 0));
  if (!is_known) ok = pace_note(l->pace, PACE_ALL);
  if (is_known && is_first) ok = pace_note_text(l->pace, PQgetvalue(r, 0, 1));
  for (int i = 0; ok && i < PQntuples(r); i++)
    if (!PQgetisnull(r, i, 2)) ok = pace_note(l->pace, PQgetvalue(r, i, 2));
  return ok && l->seen != NULL;
}

/* Reads what is new, and returns the number of its regions; -1: no answer. On the first reading of
 * a session, also what its predecessor had noted and not yet expired. */
static int read_changes(listener *l, PGconn *conn, int is_first) {
  static const char sql[] =
      "SELECT pg_current_snapshot()::text, p.noted, c.region"
      " FROM (SELECT) one LEFT JOIN positions p ON p.store = $1"
      " LEFT JOIN LATERAL (SELECT DISTINCT region FROM changes"
      "  WHERE xid >= pg_snapshot_xmin(p.seen) AND NOT pg_visible_in_snapshot(xid, p.seen)) c"
      " ON true";
  int count = -1;
  PGresult *r = ask(l, conn, sql, (const char *const[]){l->name}, 1);
  if (PQresultStatus(r) == PGRES_TUPLES_OK && note_rows(l, r, is_first))
    count = PQgetisnull(r, 0, 2) ? 0 : PQntuples(r);
  PQclear(r);
  return count;
}

/* Records how far this is, and deletes the changes that all positions have passed. A position that
 * nobody has touched for a day is given up: its store starts anew. */
static int record(const listener *l, PGconn *conn) {
  char *noted = pace_text(l->pace);
  int ok = noted != NULL &&
           run(l, conn,
               "INSERT INTO positions VALUES ($1, $2::pg_snapshot, $3, now()) ON CONFLICT (store) "
               "DO UPDATE SET seen = excluded.seen, noted = excluded.noted, touched = now()",
               (const char *const[]){l->name, l->seen, noted}, 3) &&
           run(l, conn,
               "DELETE FROM changes WHERE xid < (SELECT min(pg_snapshot_xmin(seen)) FROM positions "
               "WHERE touched > now() - interval '1 day')",
               NULL, 0);
  free(noted);
  return ok;
}

static int give_up_old_positions(const listener *l, PGconn *conn) {
  return run(l, conn, "DELETE FROM positions WHERE touched <= now() - interval '1 day'", NULL, 0);
}

/* ---- expiries ------------------------------------------------------------------------------ */

/* Pause until the region's next expiry: a report must get done, and serve for a while. */
static int64_t pause_of(const listener *l, const char *region) {
  corral_inspection seen = {.size = sizeof seen};
  int64_t pause = l->options.pace_ms;
  if (strcmp(region, PACE_ALL) != 0 &&
      corral_inspect(l->options.reports, region, strlen(region), NULL, &seen) == CORRAL_OK &&
      2 * seen.cost_ms > pause)
    pause = 2 * seen.cost_ms;
  return pause;
}

static int expire(const listener *l, const char *region) {
  char tag[REPORT_TAG_ROOM];
  corral_error error;
  int status = strcmp(region, PACE_ALL) == 0
                   ? corral_expire_all(l->options.reports, &error)
                   : corral_expire_tag(l->options.reports, tag,
                                       report_tag(tag, region, strlen(region)), &error);
  if (status != CORRAL_OK)
    fprintf(stderr, "backend: outdated reports can't be expired yet: %s\n", error.text);
  return status == CORRAL_OK;
}

/* Expires all that is due, and returns the number; -1: the store could not be told of all. */
static int expire_due(listener *l) {
  const char *region;
  int count = 0;
  while ((region = pace_due(l->pace, db_now_ms())) != NULL) {
    if (!expire(l, region)) return -1;
    pace_expired(l->pace, region, db_now_ms(), pause_of(l, region));
    count++;
  }
  return count;
}

/* ---- listening ----------------------------------------------------------------------------- */

/* 1: a notification has come; 0: `until` has; -1: the connection is lost, or the program ends. */
static int await_change(const listener *l, PGconn *conn, int64_t until) {
  for (;;) {
    int came = 0;
    for (PGnotify *note; (note = PQnotifies(conn)) != NULL; came = 1) PQfreemem(note);
    if (came) return 1;
    int64_t left = until - db_now_ms();
    if (left <= 0) return 0;
    struct pollfd fds[] = {{.fd = PQsocket(conn), .events = POLLIN},
                           {.fd = l->options.stop_fd, .events = POLLIN}};
    poll(fds, 2, (int)left);
    if (fds[1].revents != 0 || (fds[0].revents != 0 && !PQconsumeInput(conn))) return -1;
  }
}

/* Forgets what the last session had noted: the position has it, too. */
static int start_anew(listener *l) {
  pace_free(l->pace);
  l->pace = pace_new();
  return l->pace != NULL;
}

/* The name is another one when the store was emptied meanwhile. */
static int is_same_store(const listener *l) {
  char name[NAME + 1];
  return read_name(l, name) && strcmp(name, l->name) == 0;
}

/* Follows the changes, until the connection or the store is lost, or the program ends. */
static void lead(listener *l, PGconn *conn) {
  int came = 1, is_first = 1;
  int64_t touch_at = db_now_ms() + TOUCH_MS;
  if (!start_anew(l)) return;
  while (came >= 0) {
    int64_t now = db_now_ms(), until = touch_at;
    int is_touch = now >= touch_at, read = 0, expired;
    if (is_touch) touch_at = until = now + TOUCH_MS;
    if (is_touch && (!is_same_store(l) || !give_up_old_positions(l, conn))) return;
    if ((came > 0 || is_touch) && (read = read_changes(l, conn, is_first)) < 0) return;
    expired = expire_due(l);
    if ((read > 0 || expired > 0 || is_first || is_touch) && !record(l, conn)) return;
    is_first = 0;
    atomic_fetch_add(&l->heard, (unsigned long long)read);
    atomic_store(&l->hears, expired >= 0);
    int64_t due = expired < 0 ? db_now_ms() + AGAIN_MS : pace_next(l->pace);
    came = await_change(l, conn, due < until ? due : until);
  }
}

/* Position and changes of a store that ends with this process are nobody's. */
static void leave(const listener *l, PGconn *conn) {
  db_limit limit = {.until = db_now_ms() + REST_MOST_MS, .stop_fd = -1};
  if (!l->options.is_private || PQstatus(conn) != CONNECTION_OK ||
      PQtransactionStatus(conn) != PQTRANS_IDLE)
    return;
  PQclear(db_ask(conn, "DELETE FROM positions WHERE store = $1", (const char *const[]){l->name}, 1,
                 &limit));
}

/* Stands by until the lock can be had, and follows the changes then. 0: no answer at all. */
static int attend(listener *l, PGconn *conn) {
  int came = 0, locked;
  if (!run(l, conn, "LISTEN corral", NULL, 0)) return 0;
  while ((locked = try_lock(l, conn)) == 0 && came >= 0) {
    atomic_store(&l->hears, 1);
    came = await_change(l, conn, db_now_ms() + STANDBY_MS);
  }
  if (locked != 1) return 1;
  atomic_store(&l->leads, 1);
  lead(l, conn);
  if (is_stopped(l, 0)) leave(l, conn);
  return 1;
}

/* One connection, from beginning to end; 0: none that works. */
static int connect_and_attend(listener *l) {
  db_limit limit = {.until = db_now_ms() + ASK_MS, .stop_fd = l->options.stop_fd};
  char text[200];
  if (!read_name(l, l->name)) return 0;
  PGconn *conn = db_connect(l->options.conninfo, &limit, text, sizeof text);
  if (conn == NULL) {
    if (!is_stopped(l, 0)) fprintf(stderr, "backend: can't listen: %s\n", text);
    return 0;
  }
  int attended = attend(l, conn);
  atomic_store(&l->hears, 0);
  atomic_store(&l->leads, 0);
  PQfinish(conn);
  return attended;
}

static void *work(void *arg) {
  listener *l = arg;
  int64_t rest = 0;
  while (!is_stopped(l, rest))
    if (connect_and_attend(l))
      rest = REST_MS;
    else
      rest = rest == 0 ? REST_MS : rest * 2 < REST_MOST_MS ? rest * 2 : REST_MOST_MS;
  return NULL;
}

listener *listener_start(const listener_options *options) {
  listener *l = calloc(1, sizeof *l);
  if (l == NULL) return NULL;
  l->options = *options;
  if (pthread_create(&l->thread, NULL, work, l) == 0) return l;
  free(l);
  return NULL;
}

void listener_join(listener *l) {
  if (l == NULL) return;
  pthread_join(l->thread, NULL);
  pace_free(l->pace);
  free(l->seen);
  free(l);
}

int listener_hears(const listener *l) { return atomic_load(&l->hears); }
int listener_leads(const listener *l) { return atomic_load(&l->leads); }
unsigned long long listener_heard(const listener *l) { return atomic_load(&l->heard); }
