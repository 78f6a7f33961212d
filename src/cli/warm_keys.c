/* warm_keys.c: the keys of corral warm, from files, standard input, a database and sitemaps.
 *
 * They are kept in memory: the bytes of the input, and 32 more for each key. One thread reads them,
 * so that a slow input delays nothing else. */
#include "warm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, KEYS_FIRST = 1024, BAD_SAID = 20 };

typedef struct chunk {
  struct chunk *next;
  size_t used, room;
  char bytes[];
} chunk;

struct warm_input {
  const char *path; /* or an SQL statement, or a URL */
  /* NULL: a file of lines */
  bool (*read)(warm_reading *r, const char *path);
  int64_t read_ms; /* when it was read, by cli_now_ms */
  bool is_stdin;
  bool was_read;
  struct stat st;    /* of the file as it was read */
  chunk *chunks;     /* the newest first */
  warm_key **tables; /* table n has KEYS_FIRST << n keys, so none is ever moved */
  size_t count;
};

/* The line that the reader is putting together. */
typedef struct warm_reading {
  warm_keys *k;
  warm_input *input;
  size_t number;
  size_t size;              /* may exceed WARM_KEY: then the rest was dropped */
  char bytes[WARM_KEY + 1]; /* with room for a carriage return after the longest key */
} line;

enum { TABLES = 40 };

/* ---- memory -------------------------------------------------------------------------------- */

static void input_clear(warm_input *input) {
  while (input->chunks != NULL) {
    chunk *next = input->chunks->next;
    free(input->chunks);
    input->chunks = next;
  }
  for (size_t i = 0; input->tables != NULL && i < TABLES; i++) free(input->tables[i]);
  free(input->tables);
  input->tables = NULL;
  input->count = 0;
}

static size_t table_of(size_t i, size_t *at) {
  size_t n = i / KEYS_FIRST + 1;
  size_t table = (size_t)(63 - __builtin_clzll(n));
  *at = i - KEYS_FIRST * (((size_t)1 << table) - 1);
  return table;
}

static warm_key *input_key(const warm_input *input, size_t i) {
  size_t at = 0;
  size_t table = table_of(i, &at);
  return &input->tables[table][at];
}

static char *input_room(warm_input *input, size_t size) {
  chunk *c = input->chunks;
  if (c == NULL || c->room - c->used < size) {
    size_t room = size > CHUNK ? size : CHUNK;
    c = malloc(sizeof *c + room);
    if (c == NULL) return NULL;
    *c = (chunk){.next = input->chunks, .room = room};
    input->chunks = c;
  }
  c->used += size;
  return c->bytes + c->used - size;
}

/* Under the mutex. */
static bool input_add(warm_input *input, const char *bytes, size_t size) {
  size_t at = 0;
  size_t table = table_of(input->count, &at);
  if (input->tables == NULL) input->tables = calloc(TABLES, sizeof *input->tables);
  if (input->tables == NULL) return false;
  if (input->tables[table] == NULL)
    input->tables[table] = calloc((size_t)KEYS_FIRST << table, sizeof(warm_key));
  char *room = input->tables[table] != NULL ? input_room(input, size) : NULL;
  if (room == NULL) return false;
  memcpy(room, bytes, size);
  input->tables[table][at] = (warm_key){.bytes = room, .size = (uint32_t)size};
  input->count++;
  return true;
}

/* ---- lines --------------------------------------------------------------------------------- */

static const char *name_of(const warm_input *input) {
  return input->is_stdin ? "standard input" : input->path;
}

static bool may_say_bad(line *l) {
  unsigned long long before = atomic_fetch_add(&l->k->bad_lines, 1);
  if (before == BAD_SAID) warm_note("warm: further bad lines are only counted");
  return before < BAD_SAID;
}

static void bad_line(line *l) {
  if (!may_say_bad(l)) return;
  if (l->input->read != NULL)
    warm_say("warm: a key of %zu bytes is not accepted: 1 to %d are", l->size, WARM_KEY);
  else
    warm_say("warm: %s:%zu: a key of %zu bytes is not accepted: 1 to %d are", name_of(l->input),
             l->number, l->size, WARM_KEY);
}

/* False without memory. */
static bool add_key(line *l, const char *bytes, size_t size) {
  (void)pthread_mutex_lock(&l->k->mutex);
  bool ok = input_add(l->input, bytes, size);
  l->k->count += ok;
  (void)pthread_cond_broadcast(&l->k->more);
  (void)pthread_mutex_unlock(&l->k->mutex);
  if (!ok) warm_say("warm: out of memory after %zu keys", l->k->count);
  return ok;
}

/* False without memory. */
static bool end_line(line *l) {
  const warm_options *o = l->k->o;
  bool ok = true;
  l->number++;
  if (!o->nul && l->size > 0 && l->size <= sizeof l->bytes && l->bytes[l->size - 1] == '\r')
    l->size--;
  bool is_none = l->size == 0 || (o->comments && l->bytes[0] == '#');
  if (!is_none && l->size > WARM_KEY)
    bad_line(l);
  else if (!is_none)
    ok = add_key(l, l->bytes, l->size);
  l->size = 0;
  return ok;
}

static void add_bytes(line *l, const char *bytes, size_t size) {
  if (l->size < sizeof l->bytes) {
    size_t room = sizeof l->bytes - l->size;
    memcpy(l->bytes + l->size, bytes, size < room ? size : room);
  }
  l->size += size;
}

static bool add_text(line *l, const char *text, size_t size) {
  int end = l->k->o->nul ? '\0' : '\n';
  while (size > 0) {
    const char *at = memchr(text, end, size);
    size_t part = at != NULL ? (size_t)(at - text) : size;
    add_bytes(l, text, part);
    if (at == NULL) return true;
    if (!end_line(l)) return false;
    text += part + 1;
    size -= part + 1;
  }
  return true;
}

/* ---- other inputs -------------------------------------------------------------------------- */

bool warm_reading_add(warm_reading *r, const char *bytes, size_t size) {
  r->size = size;
  bool ok = true;
  if (size > WARM_KEY)
    bad_line(r);
  else if (size > 0)
    ok = add_key(r, bytes, size);
  r->size = 0;
  return ok && !warm_reading_is_stopped(r);
}

void warm_reading_bad(warm_reading *r, const char *why, const char *text) {
  if (may_say_bad(r)) warm_say("warm: %s: %s", why, text);
}

bool warm_reading_is_stopped(const warm_reading *r) {
  struct pollfd fd = {r->k->stop, POLLIN, 0};
  return poll(&fd, 1, 0) > 0;
}

const warm_options *warm_reading_options(const warm_reading *r) { return r->k->o; }

corral_cancel_token *warm_reading_token(const warm_reading *r) { return r->k->cancel_token; }

/* ---- reading ------------------------------------------------------------------------------- */

/* Waits for bytes, or for warm_keys_stop: ECANCELED. */
static ssize_t read_some(const warm_keys *k, int fd, char *buffer, size_t size) {
  struct pollfd fds[2] = {{fd, POLLIN, 0}, {k->stop, POLLIN, 0}};
  if (poll(fds, 2, -1) < 0) return -1;
  if (fds[1].revents == 0) return read(fd, buffer, size);
  errno = ECANCELED;
  return -1;
}

static bool read_fd(line *l, int fd) {
  char buffer[65536];
  for (;;) {
    ssize_t n = read_some(l->k, fd, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0 && errno == ECANCELED) return false;
    if (n < 0) {
      warm_say("warm: %s: %s", name_of(l->input), strerror(errno));
      return false;
    }
    bool ok = n > 0 ? add_text(l, buffer, (size_t)n) : l->size == 0 || end_line(l);
    if (!ok || n == 0) return ok;
  }
}

/* Doesn't wait for the writer of a named pipe: poll does that. */
static int open_input(const warm_input *input) {
  if (input->is_stdin) return STDIN_FILENO;
  int fd = open(input->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) warm_say("warm: %s: %s", input->path, strerror(errno));
  return fd;
}

static bool read_input(warm_keys *k, warm_input *input, line *l) {
  l->k = k;
  l->input = input;
  l->number = l->size = 0;
  input->read_ms = cli_now_ms();
  if (input->read != NULL) return input->read(l, input->path);
  int fd = open_input(input);
  if (fd < 0) return false;
  if (fstat(fd, &input->st) != 0) input->st = (struct stat){0};
  input->was_read = true;
  bool ok = read_fd(l, fd);
  if (!input->is_stdin) (void)close(fd);
  return ok;
}

static void *read_all(void *arg) {
  warm_keys *k = arg;
  static line l; /* there is one reader at a time */
  for (size_t i = 0; i < k->input_count; i++)
    if (!read_input(k, &k->inputs[i], &l)) atomic_store(&k->is_broken, true);
  (void)pthread_mutex_lock(&k->mutex);
  k->is_complete = true;
  (void)pthread_cond_broadcast(&k->more);
  (void)pthread_mutex_unlock(&k->mutex);
  return NULL;
}

/* ---- all keys ------------------------------------------------------------------------------ */

/* Reports a file that can't be one of keys. */
static bool check_file(warm_keys *k, const warm_input *input) {
  struct stat st = {0};
  int got = input->is_stdin ? fstat(STDIN_FILENO, &st) : stat(input->path, &st);
  if (got != 0) return cli_say("warm: %s: %s", name_of(input), strerror(errno)), false;
  if (S_ISDIR(st.st_mode)) return cli_say("warm: %s: %s", name_of(input), strerror(EISDIR)), false;
  if (!S_ISREG(st.st_mode)) k->is_whole = false;
  return true;
}

static bool list_inputs(warm_keys *k, const warm_options *o) {
  k->inputs = calloc(o->file_count + o->sitemap_count + 1, sizeof *k->inputs);
  if (k->inputs == NULL) return cli_say("warm: out of memory"), false;
  for (size_t i = 0; i < o->file_count; i++) {
    warm_input *input = &k->inputs[k->input_count++];
    input->path = o->files[i];
    input->is_stdin = strcmp(input->path, "-") == 0;
    if (!check_file(k, input)) return false;
  }
  if (o->keys_query != NULL) {
    warm_input *input = &k->inputs[k->input_count++];
    input->path = o->keys_query;
    input->read = o->mariadb != NULL ? warm_mariadb_keys : warm_sqlite_keys;
    if (o->pg != NULL) input->read = warm_pg_keys;
  }
  for (size_t i = 0; i < o->sitemap_count; i++)
    k->inputs[k->input_count++] = (warm_input){.path = o->sitemaps[i], .read = warm_sitemap_keys};
  return true;
}

bool warm_keys_start(warm_keys *k, const warm_options *o) {
  pthread_condattr_t attr;
  k->o = o;
  k->is_whole = true;
  (void)pthread_mutex_init(&k->mutex, NULL);
  (void)pthread_condattr_init(&attr);
  (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&k->more, &attr);
  (void)pthread_condattr_destroy(&attr);
  if (!list_inputs(k, o)) return false;
  k->stop = eventfd(0, EFD_CLOEXEC);
  int code = k->stop >= 0 ? pthread_create(&k->reader, NULL, read_all, k) : errno;
  k->is_reading = code == 0;
  if (code != 0) cli_say("warm: no thread: %s", strerror(code));
  return code == 0;
}

void warm_keys_stop(warm_keys *k) {
  if (!k->is_reading) return;
  uint64_t one = 1;
  (void)!write(k->stop, &one, sizeof one);
  (void)pthread_join(k->reader, NULL);
  k->is_reading = false;
  (void)close(k->stop);
}

void warm_keys_free(warm_keys *k) {
  warm_keys_stop(k);
  for (size_t i = 0; i < k->input_count; i++) input_clear(&k->inputs[i]);
  free(k->inputs);
  k->inputs = NULL;
  k->input_count = 0;
}

static warm_key *key_at(const warm_keys *k, size_t i) {
  for (size_t n = 0; n < k->input_count; n++) {
    if (i < k->inputs[n].count) return input_key(&k->inputs[n], i);
    i -= k->inputs[n].count;
  }
  return NULL;
}

warm_key *warm_keys_get(warm_keys *k, size_t i, bool (*should_stop)(void *arg), void *arg) {
  (void)pthread_mutex_lock(&k->mutex);
  while (!should_stop(arg) && !k->is_complete && (i >= k->count || k->is_whole)) {
    int64_t until = cli_now_ns() + 100000000; /* should_stop is called that often */
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = (long)(until % 1000000000)};
    (void)pthread_cond_timedwait(&k->more, &k->mutex, &t);
  }
  warm_key *key = should_stop(arg) ? NULL : key_at(k, i);
  (void)pthread_mutex_unlock(&k->mutex);
  return key;
}

static bool has_changed(const warm_keys *k, const warm_input *input) {
  struct stat st;
  if (input->read != NULL) return cli_now_ms() - input->read_ms >= k->o->watch_ms;
  if (input->is_stdin || !input->was_read || !S_ISREG(input->st.st_mode) ||
      stat(input->path, &st) != 0)
    return false;
  return st.st_ino != input->st.st_ino || st.st_size != input->st.st_size ||
         st.st_mtim.tv_sec != input->st.st_mtim.tv_sec ||
         st.st_mtim.tv_nsec != input->st.st_mtim.tv_nsec;
}

void warm_keys_refresh(warm_keys *k) {
  static line l;
  for (size_t i = 0; i < k->input_count; i++) {
    warm_input *input = &k->inputs[i];
    if (!has_changed(k, input)) continue;
    warm_input fresh = {.path = input->path, .read = input->read};
    size_t before = k->count;
    k->count -= input->count;
    if (read_input(k, &fresh, &l)) {
      input_clear(input);
      *input = fresh;
    } else {
      input_clear(&fresh);
      k->count = before;
    }
  }
}
