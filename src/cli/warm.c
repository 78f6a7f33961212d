/* warm.c: corral warm: computes the values of many keys before they are asked for.
 *
 * Warmers of the same keys share the work by a cursor in the store; where they can't, each key's
 * lease tells who computes it, and what the other warmer has done counts as fresh. All state is in
 * the store: an interrupted run is simply started again, and skips what is fresh at the price of a
 * look. */
#include "warm.h"

#include "sqlite.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { WATCH_LEAST_MS = 100 /* least pause between two passes */ };

/* The threads of a run, and the events that the main thread waits for. */
typedef struct warm_stage {
  warm *w;
  warm_seat seats[WARM_THREADS];
  pthread_t threads[WARM_THREADS];
  atomic_size_t running;
  int signals; /* signalfd */
  int done;    /* eventfd: the last thread of a part of a pass has ended */
} stage;

/* ---- stop ---------------------------------------------------------------------------------- */

bool warm_sleep_until(warm *w, int64_t at_ns) {
  struct timespec t = {.tv_sec = at_ns / 1000000000, .tv_nsec = (long)(at_ns % 1000000000)};
  (void)pthread_mutex_lock(&w->mutex);
  while (!warm_is_stopping(w) && cli_now_ns() < at_ns)
    (void)pthread_cond_timedwait(&w->changed, &w->mutex, &t);
  (void)pthread_mutex_unlock(&w->mutex);
  return !warm_is_stopping(w);
}

/* Wakes all threads that sleep or wait for another caller. */
static void stop(warm *w) {
  (void)pthread_mutex_lock(&w->mutex);
  (void)pthread_cond_broadcast(&w->changed);
  (void)pthread_mutex_unlock(&w->mutex);
  corral_cancel_token_cancel(w->cancel_token);
}

void warm_give_up(warm *w, const char *format, ...) {
  char text[sizeof w->fatal];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  (void)pthread_mutex_lock(&w->mutex);
  if (!atomic_load(&w->is_fatal)) memcpy(w->fatal, text, sizeof text);
  atomic_store(&w->is_fatal, true);
  (void)pthread_mutex_unlock(&w->mutex);
  stop(w);
}

/* The first signal lets running computes end. The second one ends this process: the guards of its
 * commands end those, and leases run out. */
static void take_signal(stage *s) {
  struct signalfd_siginfo info;
  warm *w = s->w;
  if (read(s->signals, &info, sizeof info) != (ssize_t)sizeof info) return;
  int none = 0;
  if (atomic_compare_exchange_strong(&w->signal, &none, (int)info.ssi_signo)) {
    if (!w->cli->quiet && atomic_load(&s->running) > 0)
      warm_note("warm: ending: what is being computed is waited for; once more to kill it");
    stop(w);
    return;
  }
  warm_show_end(w);
  (void)cli_finish(CLI_OK);
  cli_die_of((int)info.ssi_signo);
}

/* ---- a pass -------------------------------------------------------------------------------- */

static bool is_stopping(void *arg) { return warm_is_stopping(arg); }

static bool next_index(warm_seat *seat, size_t *ret) {
  warm *w = seat->w;
  if (w->part == WARM_FIRST && w->cursor != NULL) return warm_cursor_take(seat, ret);
  (void)pthread_mutex_lock(&w->mutex);
  size_t i = w->taken++;
  bool is_over = w->part == WARM_SECOND && i >= w->later_count;
  *ret = w->part == WARM_SECOND && !is_over ? w->later[i] : i;
  (void)pthread_mutex_unlock(&w->mutex);
  return !is_over;
}

/* The next key of this part of a pass; NULL at its end. */
static warm_key *take(warm_seat *seat, size_t *ret_index) {
  warm *w = seat->w;
  while (next_index(seat, ret_index)) {
    warm_key *key = warm_keys_get(&w->keys, *ret_index, is_stopping, w);
    if (key == NULL || w->part == WARM_SECOND) return key;
    if (w->part == WARM_OTHERS ? !key->is_done : key->due_ms <= cli_now_ms()) return key;
  }
  return NULL;
}

static void put_later(warm *w, size_t i) {
  (void)pthread_mutex_lock(&w->mutex);
  if (w->later_count == w->later_room) {
    size_t room = w->later_room * 2 + 64;
    size_t *more = realloc(w->later, room * sizeof *more);
    if (more != NULL) w->later = more;
    if (more != NULL) w->later_room = room;
  }
  bool ok = w->later_count < w->later_room;
  if (ok) w->later[w->later_count++] = i;
  (void)pthread_mutex_unlock(&w->mutex);
  if (!ok) warm_give_up(w, "out of memory");
}

/* One thread's share of a part of a pass. */
static void work(warm_seat *seat) {
  warm *w = seat->w;
  size_t i = 0;
  for (warm_key *key = NULL; (key = take(seat, &i)) != NULL;) {
    int64_t begin = cli_now_ms();
    warm_outcome outcome =
        w->part == WARM_OTHERS ? warm_look(seat, key) : warm_one(seat, key, w->part == WARM_SECOND);
    if (outcome == WARM_STOPPED) break;
    key->due_ms = seat->due_ms;
    key->ends_ms = seat->ends_ms;
    key->is_done = true;
    if (outcome == WARM_BUSY && w->part == WARM_FIRST)
      put_later(w, i);
    else
      warm_show_key(seat, key, outcome, cli_now_ms() - begin);
    if (w->part == WARM_FIRST) warm_cursor_done(w, i);
  }
}

static void *run_thread(void *arg) {
  warm_seat *seat = arg;
  stage *s = seat->stage;
  uint64_t one = 1;
  work(seat);
  if (atomic_fetch_sub(&s->running, 1) == 1) (void)!write(s->done, &one, sizeof one);
  return NULL;
}

/* Handles signals and progress until `until_ms`; 0: until all threads have ended. */
static void attend(stage *s, int64_t until_ms) {
  bool is_pass = until_ms == 0;
  while (is_pass ? atomic_load(&s->running) > 0
                 : !warm_is_stopping(s->w) && cli_now_ms() < until_ms) {
    struct pollfd fds[2] = {{s->signals, POLLIN, 0}, {s->done, POLLIN, 0}};
    int64_t pause = warm_show_progress(s->w);
    if (!is_pass && until_ms - cli_now_ms() < pause) pause = until_ms - cli_now_ms();
    if (is_pass) warm_cursor_beat(s->w);
    (void)poll(fds, 2, pause > 0 ? (int)pause : 0);
    if (fds[0].revents != 0) take_signal(s);
    uint64_t n = 0;
    if (fds[1].revents != 0) (void)!read(s->done, &n, sizeof n);
  }
}

/* A part of a pass: runs all threads until there are no more keys. */
static void do_part(stage *s, warm_part part) {
  warm *w = s->w;
  size_t wanted = (size_t)w->o.threads;
  w->part = part;
  w->taken = 0;
  if (part == WARM_SECOND && w->later_count < wanted) wanted = w->later_count;
  size_t begun = 0;
  int code = 0;
  for (; begun < wanted && code == 0; begun += code == 0) {
    (void)atomic_fetch_add(&s->running, 1);
    code = pthread_create(&s->threads[begun], NULL, run_thread, &s->seats[begun]);
    if (code != 0) (void)atomic_fetch_sub(&s->running, 1);
  }
  if (begun == 0 && code != 0) warm_give_up(w, "no thread: %s", strerror(code));
  attend(s, 0);
  for (size_t i = 0; i < begun; i++) (void)pthread_join(s->threads[i], NULL);
}

static bool has_others(warm *w) {
  const warm_key *key = NULL;
  for (size_t i = 0; (key = warm_keys_get(&w->keys, i, is_stopping, w)) != NULL; i++)
    if (!key->is_done) return true;
  return false;
}

/* Counts the values that this pass found or made, and that have ended. */
static void count_ended(warm *w, int64_t begin) {
  size_t ended = 0, count = 0;
  int64_t now = cli_now_ms();
  const warm_key *key = NULL;
  for (; (key = warm_keys_get(&w->keys, count, is_stopping, w)) != NULL; count++)
    ended += key->ends_ms != 0 && key->ends_ms <= now;
  w->ended += ended;
  if (ended > 0) warm_show_ended(w, ended, count, now - begin);
}

static void pass(stage *s) {
  warm *w = s->w;
  int64_t begin = cli_now_ms();
  w->passes++;
  w->later_count = 0;
  do_part(s, WARM_FIRST);
  if (w->later_count > 0 && !warm_is_stopping(w)) do_part(s, WARM_SECOND);
  if (w->cursor != NULL && !warm_is_stopping(w) && has_others(w)) do_part(s, WARM_OTHERS);
  count_ended(w, begin);
}

/* ---- a run --------------------------------------------------------------------------------- */

/* When the next key is due, at least WATCH_LEAST_MS from now, so that the passes never spin. */
static int64_t next_due(warm *w, int64_t now) {
  int64_t next = now + w->o.watch_ms;
  const warm_key *key = NULL;
  for (size_t i = 0; (key = warm_keys_get(&w->keys, i, is_stopping, w)) != NULL; i++)
    if (key->due_ms < next) next = key->due_ms;
  return next > now + WATCH_LEAST_MS ? next : now + WATCH_LEAST_MS;
}

static void passes(stage *s) {
  warm *w = s->w;
  pass(s);
  while (w->o.watch && !warm_is_stopping(w)) {
    attend(s, next_due(w, cli_now_ms()));
    if (warm_is_stopping(w)) break;
    warm_keys_refresh(&w->keys);
    pass(s);
  }
}

static int end(warm *w) {
  warm_show_end(w);
  int signo = atomic_load(&w->signal);
  bool is_partly = atomic_load(&w->counts[WARM_FAILED]) + atomic_load(&w->counts[WARM_BUSY]) +
                       atomic_load(&w->keys.bad_lines) + w->ended >
                   0;
  int exit_status = is_partly ? CLI_PARTLY : CLI_OK;
  if (atomic_load(&w->keys.is_broken)) exit_status = CLI_FAILED;
  if (atomic_load(&w->is_fatal)) exit_status = cli_fail("warm: %s", w->fatal);
  exit_status = cli_finish(exit_status);
  if (signo != 0) cli_die_of(signo);
  return exit_status;
}

static bool make_ready(stage *s) {
  warm *w = s->w;
  pthread_condattr_t attr;
  (void)pthread_mutex_init(&w->mutex, NULL);
  (void)pthread_mutex_init(&w->order.mutex, NULL);
  (void)pthread_condattr_init(&attr);
  (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&w->changed, &attr);
  (void)pthread_condattr_destroy(&attr);
  for (size_t i = 0; i < WARM_THREADS; i++) s->seats[i] = (warm_seat){.w = w, .stage = s};
  srandom((unsigned)cli_now_ns() ^ (unsigned)getpid());
  s->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  s->signals = cli_take_signals(&w->mask);
  w->cancel_token = corral_cancel_token_new();
  if (s->done >= 0 && s->signals >= 0 && w->cancel_token != NULL) return true;
  cli_say("warm: %s", strerror(errno));
  return false;
}

static void clean(stage *s) {
  warm *w = s->w;
  for (size_t i = 0; i < WARM_THREADS; i++)
    if (s->seats[i].own != NULL) w->source->close(&s->seats[i]);
  warm_cursor_close(w);
  warm_keys_free(&w->keys);
  corral_close(w->corral);
  corral_cancel_token_free(w->cancel_token);
  for (size_t i = 0; i < w->failure_count; i++) free(w->failures[i].key);
  free(w->later);
  free(w->database);
  if (s->done >= 0) (void)close(s->done);
  if (s->signals >= 0) (void)close(s->signals);
}

/* Loads what the keys need. */
static bool load(const warm_options *o) {
  if (o->keys_query != NULL && o->pg != NULL && !warm_pg_load()) return false;
  if (o->keys_query != NULL && o->mariadb != NULL && !warm_mariadb_load()) return false;
  if (o->keys_query != NULL && o->sqlite != NULL && !cli_sqlite_load("warm")) return false;
  return o->sitemap_count == 0 || warm_sitemap_load();
}

static const warm_source *source_of(const warm_options *o) {
  if (o->query != NULL && o->mariadb != NULL) return &warm_mariadb;
  if (o->query != NULL) return o->pg != NULL ? &warm_pg : &warm_sqlite;
  return o->command != NULL || o->shell != NULL ? &warm_exec : NULL;
}

/* Prepares source, store and keys, then does the passes. -1: done; else the exit status. */
static int run(stage *s) {
  warm *w = s->w;
  cli_globals quiet = *w->cli;
  quiet.verbose = false; /* events would be a line for each key here */
  corral_options options = {
      .size = sizeof options, .origin = w->o.url, .workers = w->o.threads, .op_ms = WARM_OP_MS};
  w->follows = w->cli->control || w->o.options.control > 0;
  if (w->follows) options.control = 1;
  if (w->o.options.ramp > 0) options.ramp = 1;
  if (w->o.options.ramp > 0) options.max_computes = w->o.threads;
  if (!load(&w->o) || (w->source != NULL && !w->source->check(w))) return CLI_FAILED;
  if (!make_ready(s) || !cli_open(&quiet, false, &options, &w->corral)) return CLI_FAILED;
  w->begun_ms = cli_now_ms();
  w->keys.cancel_token = w->cancel_token;
  if (!warm_keys_start(&w->keys, &w->o) || !warm_cursor_open(w)) return CLI_FAILED;
  passes(s);
  warm_keys_stop(&w->keys);
  return -1;
}

int cli_warm(const cli_globals *cli, int argc, char **argv) {
  static warm w;
  static stage s;
  w = (warm){.cli = cli};
  s = (stage){.w = &w, .signals = -1, .done = -1};
  int exit_status = warm_options_parse(&w.o, argc, argv);
  if (exit_status < 0) {
    w.source = source_of(&w.o);
    exit_status = run(&s);
    if (exit_status < 0) exit_status = end(&w);
    clean(&s);
  }
  free(w.o.files);
  return exit_status;
}
