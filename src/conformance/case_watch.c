/* case_watch.c: changes that a watch tells as they happen. A watch that registers keys may tell
 * changes of those alone, once for each registration; it may also tell more. */
#include "conformance.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

enum { OWNER = 1, OTHER = 2, TOLD_MS = 1000, QUIET_MS = 30, ASLEEP_MS = 50, MANY = 200 };

/* A client that looks, a client that changes the key, and a watch. */
typedef struct scene {
  client *c, *other;
  watch *w;
  const key *k;
} scene;

static scene scene_new(void) {
  scene s = {.k = key_new("k")};
  s.c = client_new();
  s.w = watch_new(s.k);
  s.other = client_new();
  return s;
}

/* Listens until nothing more is told: a change made before a registration may be told after it. */
static void settle_down(const scene *s) {
  for (int64_t until = now_ms() + LIMIT_MS; watch_listen(s->w, -1, now_ms() + QUIET_MS);)
    check(now_ms() < until, "for %d ms one change after another is told, and nothing changes",
          LIMIT_MS);
  watch_forget(s->w);
}

static void follow_in_silence(const scene *s) {
  settle_down(s);
  (void)watch_follow(s->w, s->k);
  settle_down(s); /* what was told meanwhile may have used up the registration */
  (void)watch_follow(s->w, s->k);
}

static void wants_told(const char *what, const scene *s, const key *k) {
  int64_t until = now_ms() + TOLD_MS;
  while (!watch_told(s->w, k) && now_ms() < until) (void)watch_listen(s->w, -1, until);
  check(watch_told(s->w, k), "%s was not told within %d ms", what, TOLD_MS);
}

void case_a_settle_is_told(void) {
  scene s = scene_new();
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 1), LONG_MS);
  wants("a claim", claim(s.other, s.k, OTHER, LONG_MS).status, CORRAL_OK);
  follow_in_silence(&s);
  wants("a settle", settle(s.other, s.k, OTHER, record_new(s.k, 100, 2), LONG_MS), CORRAL_OK);
  wants_told("a settle", &s, s.k);
}

void case_a_release_is_told(void) {
  scene s = scene_new();
  wants("a claim", claim(s.other, s.k, OTHER, LONG_MS).status, CORRAL_OK);
  follow_in_silence(&s);
  wants("a release", release(s.other, s.k, OTHER), CORRAL_OK);
  wants_told("a release of a bare lease", &s, s.k);
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 1), LONG_MS);
  wants("a claim", claim(s.other, s.k, OTHER, LONG_MS).status, CORRAL_OK);
  follow_in_silence(&s);
  wants("a release", release(s.other, s.k, OTHER), CORRAL_OK);
  wants_told("a release of a lease over a value", &s, s.k);
}

void case_a_verdict_is_told(void) {
  scene s = scene_new();
  wants("a claim", claim(s.other, s.k, OTHER, LONG_MS).status, CORRAL_OK);
  follow_in_silence(&s);
  wants("a release with a verdict",
        leave_verdict(s.other, s.k, OTHER, 7, "broken", LONG_MS, LONG_MS), CORRAL_OK);
  wants_told("a verdict", &s, s.k);
}

void case_an_invalidate_is_told(void) {
  scene s = scene_new();
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 1), LONG_MS);
  follow_in_silence(&s);
  wants("an invalidate", invalidate(s.other, s.k), CORRAL_OK);
  wants_told("an invalidate", &s, s.k);
}

void case_an_expire_is_told(void) {
  scene s = scene_new();
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 1), LONG_MS);
  follow_in_silence(&s);
  wants("an expire", expire(s.other, s.k), CORRAL_OK);
  wants_told("an expire", &s, s.k);
}

void case_a_renew_is_told(void) {
  scene s = scene_new();
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 1), LONG_MS);
  wants("a claim", claim(s.other, s.k, OTHER, LONG_MS).status, CORRAL_OK);
  follow_in_silence(&s);
  wants("a renew", renew(s.other, s.k, OTHER, LONG_MS), CORRAL_OK);
  wants_told("a renew", &s, s.k);
}

void case_a_missing_key_is_told_when_it_is_filled(void) {
  scene s = scene_new();
  follow_in_silence(&s);
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 1), LONG_MS);
  wants_told("the fill of a missing key", &s, s.k);
}

void case_a_key_is_told_again_after_another_look(void) {
  scene s = scene_new();
  for (unsigned i = 0; i < 20; i++) {
    fill(s.other, s.k, OTHER, record_new(s.k, 100, i), LONG_MS);
    follow_in_silence(&s);
    wants("an expire", expire(s.other, s.k), CORRAL_OK);
    wants_told("one of several changes, each after a look,", &s, s.k);
  }
}

void case_many_keys_are_told(void) {
  scene s = scene_new();
  const key *keys[MANY];
  for (unsigned i = 0; i < MANY; i++) {
    keys[i] = key_near(s.k, "many");
    fill(s.other, keys[i], OTHER, record_new(keys[i], 100, i), LONG_MS);
  }
  settle_down(&s);
  for (unsigned i = 0; i < MANY; i++) (void)watch_follow(s.w, keys[i]);
  settle_down(&s);
  for (unsigned i = 0; i < MANY; i++) (void)watch_follow(s.w, keys[i]);
  for (unsigned i = 0; i < MANY; i++)
    wants("an invalidate", invalidate(s.other, keys[i]), CORRAL_OK);
  for (unsigned i = 0; i < MANY; i++) wants_told("one of many changes", &s, keys[i]);
}

/* ---- registrations ------------------------------------------------------------------------- */

static scene registering(void) {
  scene s = scene_new();
  if (!watch_registers()) cant("the store's watch tells changes of all keys");
  return s;
}

/* True if a GET finds a record that begins with these bytes. */
static bool begins_with(const scene *s, const corral_registration *r) {
  corral_op op = op_of(CORRAL_VERB_GET, s->k, 0);
  check(client_perform(s->c, &op, 1, now_ms() + LIMIT_MS) == CORRAL_OK, "GET: the handle broke");
  bool same = op.status == CORRAL_OK && r->status == CORRAL_OK && r->head_len == CORRAL_HEAD &&
              op.found.len >= CORRAL_HEAD && memcmp(op.found.record, r->head, CORRAL_HEAD) == 0;
  op_drop(&op);
  return same;
}

void case_a_registration_reads_the_head(void) {
  scene s = registering();
  wants("a registration of a missing key", watch_follow(s.w, s.k).status, CORRAL_EMISS);
  fill(s.other, s.k, OTHER, record_new(s.k, 100000, 1), LONG_MS);
  corral_registration r = watch_follow(s.w, s.k);
  check(begins_with(&s, &r), "a registration read another head than a GET");
  wants("a claim", claim(s.other, s.k, OTHER, LONG_MS).status, CORRAL_OK);
  r = watch_follow(s.w, s.k);
  check(begins_with(&s, &r), "a registration of a leased key read another head than a GET");
}

void case_a_registration_shows_a_change_since_a_look(void) {
  scene s = registering();
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 1), LONG_MS);
  corral_registration before = watch_follow(s.w, s.k);
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 2), LONG_MS);
  corral_registration after = watch_follow(s.w, s.k);
  check(memcmp(before.head, after.head, CORRAL_HEAD) != 0,
        "a registration after a fill read the head of before");
  wants("an invalidate", invalidate(s.other, s.k), CORRAL_OK);
  wants("a registration after an invalidate", watch_follow(s.w, s.k).status, CORRAL_EMISS);
}

void case_a_registration_of_the_same_keys_again(void) {
  scene s = registering();
  corral_registration keys[MANY];
  const key *second = key_near(s.k, "second");
  fill(s.other, second, OTHER, record_new(second, 100, 1), LONG_MS);
  settle_down(&s);
  for (unsigned i = 0; i < MANY; i++) {
    const key *k = i % 2 ? second : s.k;
    keys[i] = (corral_registration){.key = k->bytes, .key_len = k->len};
  }
  watch_register(s.w, keys, MANY);
  for (unsigned i = 0; i < MANY; i++)
    wants("a registration", keys[i].status, i % 2 ? CORRAL_OK : CORRAL_EMISS);
  wants("an invalidate", invalidate(s.other, second), CORRAL_OK);
  wants_told("a change of a key that was registered often", &s, second);
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 1), LONG_MS);
  wants_told("a fill of a key that was registered often", &s, s.k);
}

/* ---- a watch that waits -------------------------------------------------------------------- */

typedef struct changer {
  const scene *s;
  int status;
} changer;

static void *change_soon(void *arg) {
  changer *ch = arg;
  corral_op op = op_of(CORRAL_VERB_EXPIRE, ch->s->k, OTHER);
  pause_ms(ASLEEP_MS);
  int status = client_perform(ch->s->other, &op, 1, now_ms() + LIMIT_MS);
  ch->status = status != CORRAL_OK ? status : op.status;
  return NULL;
}

void case_a_change_wakes_a_watch_that_waits(void) {
  scene s = scene_new();
  pthread_t thread;
  fill(s.other, s.k, OTHER, record_new(s.k, 100, 1), LONG_MS);
  for (int i = 0; i < 3; i++) {
    changer ch = {.s = &s};
    follow_in_silence(&s);
    check(pthread_create(&thread, NULL, change_soon, &ch) == 0, "this system starts no thread");
    for (int64_t until = now_ms() + ASLEEP_MS + TOLD_MS; !watch_told(s.w, s.k) && now_ms() < until;)
      (void)watch_listen(s.w, -1, until);
    pthread_join(thread, NULL);
    wants("an expire in another thread", ch.status, CORRAL_OK);
    check(watch_told(s.w, s.k), "an expire while the watch waited was not told within %d ms",
          TOLD_MS);
  }
}

/* ---- another process ----------------------------------------------------------------------- */

typedef struct board {
  const key *key;
  atomic_uint looked;
} board;

static void change_twice(void *arg) {
  board *b = arg;
  client *c = client_new();
  wait_for(&b->looked, 1, "to look");
  fill(c, b->key, OTHER, record_new(b->key, 100, 1), LONG_MS);
  wait_for(&b->looked, 2, "to look again");
  wants("an invalidate", invalidate(c, b->key), CORRAL_OK);
}

void case_a_change_by_another_process_is_told(void) {
  board *b = shared_room(sizeof *b);
  b->key = key_new("k");
  pid_t pid = process_start(change_twice, b);
  scene s = {.k = b->key, .c = client_new()};
  s.w = watch_new(s.k);
  for (unsigned i = 1; i <= 2; i++) {
    follow_in_silence(&s);
    atomic_store(&b->looked, i);
    wants_told(i == 1 ? "a fill by another process" : "an invalidate by another process", &s, s.k);
  }
  process_join(pid);
}

/* ---- the end of a watch -------------------------------------------------------------------- */

typedef struct stopper {
  int fds[2];
  _Atomic int64_t stopped;
} stopper;

static void *stop_soon(void *arg) {
  stopper *st = arg;
  pause_ms(100);
  atomic_store(&st->stopped, now_ms());
  return write(st->fds[1], "", 1) == 1 ? NULL : arg;
}

static void close_stopper(void *arg) {
  stopper *st = arg;
  close(st->fds[0]);
  close(st->fds[1]);
}

void case_a_watch_ends_when_it_is_stopped(void) {
  stopper *st = room(sizeof *st);
  pthread_t thread;
  void *wrong = NULL;
  check(pipe(st->fds) == 0, "this system makes no pipe");
  undo_later(close_stopper, st);
  scene s = scene_new();
  settle_down(&s);
  check(pthread_create(&thread, NULL, stop_soon, st) == 0, "this system starts no thread");
  while (atomic_load(&st->stopped) == 0) (void)watch_listen(s.w, st->fds[0], now_ms() + LIMIT_MS);
  int64_t after = now_ms() - atomic_load(&st->stopped);
  pthread_join(thread, &wrong);
  check(wrong == NULL, "this system writes to no pipe");
  check(after < TOLD_MS, "a watch that was stopped ended %lld ms later", (long long)after);
  int64_t from = now_ms();
  (void)watch_listen(s.w, st->fds[0], from + LIMIT_MS);
  check(now_ms() - from < TOLD_MS, "a watch that was stopped before ended %lld ms later",
        (long long)(now_ms() - from));
}

void case_a_watch_ends_by_its_time(void) {
  scene s = scene_new();
  settle_down(&s);
  for (int64_t ms = 0; ms <= 200; ms += 100) {
    int64_t from = now_ms();
    while (watch_listen(s.w, -1, from + ms)) continue;
    int64_t after = now_ms() - from;
    check(after >= ms - EARLY_MS && after <= ms + TOLD_MS,
          "a watch that was to end after %lld ms ended after %lld", (long long)ms,
          (long long)after);
  }
}
