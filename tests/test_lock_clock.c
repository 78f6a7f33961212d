/* test_lock_clock.c: a client whose wall clock jumps by an hour neither loses nor extends a lock,
 * on each store. This program's clock_gettime, gettimeofday and time are wrapped. The servers'
 * clocks stay; setting one back is simulated by moving all times in the lock's record forward. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <corral/lock.h>
#include <corral/plugin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

#include "os/env.h"
#include "support/herd_lab.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum { HOUR = 3600 };

static _Atomic long jump_s;

int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts) {
  int status = __real_clock_gettime(clock, ts);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI)
    ts->tv_sec += atomic_load(&jump_s);
  return status;
}

int __real_gettimeofday(struct timeval *tv, void *zone);
int __wrap_gettimeofday(struct timeval *tv, void *zone);
int __wrap_gettimeofday(struct timeval *tv, void *zone) {
  int status = __real_gettimeofday(tv, zone);
  tv->tv_sec += atomic_load(&jump_s);
  return status;
}

time_t __real_time(time_t *t);
time_t __wrap_time(time_t *t);
time_t __wrap_time(time_t *t) {
  time_t now = __real_time(NULL) + atomic_load(&jump_s);
  if (t != NULL) *t = now;
  return now;
}

static corral_error error;

static corral *open_one(const char *uri) {
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 10000), &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static corral_lock *take(corral *c, const char *name, corral_lock_options *options) {
  corral_lock *lock = NULL;
  if (corral_lock_take(c, name, strlen(name), options, &lock, &error) != CORRAL_OK)
    fail_msg("%s: %s", name, error.text);
  return lock;
}

static int try(corral *c, const char *name) {
  corral_lock *lock = NULL;
  int status =
      corral_lock_take(c, name, strlen(name), CORRAL_LOCK(.wait_ms = CORRAL_OFF), &lock, &error);
  if (status == CORRAL_OK) corral_lock_release(lock, NULL);
  return status;
}

static void until_extended(corral *c, uint64_t more) {
  uint64_t least = corral_counter(c, CORRAL_EVENT_LOCK_EXTENDED) + more;
  for (int64_t end = crl_env_now_ms() + 30000;
       corral_counter(c, CORRAL_EVENT_LOCK_EXTENDED) < least; crl_env_pause_us(500))
    if (crl_env_now_ms() > end) fail_msg("the hold isn't extended any more");
}

/* ---- all stores at once, because their waits take long ------------------------------------- */

enum { STORES = 8 };

typedef struct place {
  char uri[160];
  corral *a, *b;
  corral_lock *lock;
  uint64_t fence;
  int64_t begun;
} place;

static place places[STORES];
static int count;
static redis_server *redis;
static memcached_server *memcached;

static void add(const char *uri, const char *more) {
  place *p = &places[count++];
  snprintf(p->uri, sizeof p->uri, "%s%s", uri, more);
  p->a = open_one(p->uri);
  p->b = open_one(p->uri);
}

static int open_all(void **state) {
  lab_make_room(state);
  count = 0;
  atomic_store(&jump_s, 0);
  add("memory:clock", "");
  add(lab_lmdb(lab_room, "clock"), "");
#if CORRAL_HAVE_sqlite
  char sqlite[120];
  snprintf(sqlite, sizeof sqlite, "sqlite:%s/clock.db", lab_room->folder);
  add(sqlite, "");
#endif
  if (redis_server_start(&redis, NULL)) {
    add(redis_server_uri(redis), "");
    add(redis_server_uri(redis), "/1?scripts=no");
  }
  if (memcached_server_start(&memcached, NULL)) add(memcached_server_uri(memcached), "");
  return 0;
}

static int close_all(void **state) {
  for (int i = 0; i < count; i++) {
    corral_close(places[i].a);
    corral_close(places[i].b);
  }
  redis_server_stop(redis);
  memcached_server_stop(memcached);
  redis = NULL;
  memcached = NULL;
  return lab_leave_room(state);
}

static void must_be(const place *p, int status, int expected) {
  if (status != expected)
    fail_msg("%s: %s, not %s: %s", p->uri, corral_status_name(status), corral_status_name(expected),
             error.text);
}

/* A client that connects after the jump is refused too. */
static void a_kept_lock_stays_kept_and_nobody_else_gets_it(void **state) {
  (void)state;
  static const long jumps[] = {HOUR, -HOUR, 0};
  for (place *p = places; p < places + count; p++)
    p->lock = take(p->a, "kept", CORRAL_LOCK(.ttl_ms = 6000, .keep = 1));
  for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
    atomic_store(&jump_s, jumps[i]);
    for (place *p = places; p < places + count; p++) {
      corral *late = open_one(p->uri);
      must_be(p, try(p->b, "kept"), CORRAL_EBUSY);
      must_be(p, try(late, "kept"), CORRAL_EBUSY);
      corral_close(late);
    }
    for (place *p = places; p < places + count; p++) until_extended(p->a, 2);
    for (place *p = places; p < places + count; p++)
      must_be(p, corral_lock_left_ms(p->lock) > 0, 1);
  }
  for (place *p = places; p < places + count; p++)
    must_be(p, corral_lock_release(p->lock, &error), CORRAL_OK);
}

static void fencing_tokens_grow_all_the_same(void **state) {
  (void)state;
  static const long jumps[] = {0, HOUR, -HOUR, 0};
  for (place *p = places; p < places + count; p++) p->fence = 0;
  for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
    atomic_store(&jump_s, jumps[i]);
    for (place *p = places; p < places + count; p++) {
      p->lock = take(i % 2 ? p->a : p->b, "fence", CORRAL_LOCK(0));
      if (corral_lock_fence(p->lock) <= p->fence) fail_msg("%s: a token that isn't larger", p->uri);
      p->fence = corral_lock_fence(p->lock);
      must_be(p, corral_lock_release(p->lock, &error), CORRAL_OK);
    }
  }
}

static void holds_and_waits_last(long jump) {
  corral_lock *none = NULL;
  for (place *p = places; p < places + count; p++) {
    p->begun = crl_env_now_ms();
    p->lock = take(p->a, "ends", CORRAL_LOCK(.ttl_ms = 10000));
  }
  atomic_store(&jump_s, jump);
  for (place *p = places; p < places + count; p++) {
    must_be(p, try(p->b, "ends"), CORRAL_EBUSY);
    int64_t asked = crl_env_now_ms();
    must_be(p, corral_lock_take(p->b, "ends", 4, CORRAL_LOCK(.wait_ms = 200), &none, &error),
            CORRAL_EDEADLINE);
    assert_true(crl_env_now_ms() - asked >= 200);
  }
  for (place *p = places; p < places + count; p++) {
    corral_lock *next = take(p->b, "ends", CORRAL_LOCK(.wait_ms = 60000));
    assert_true(crl_env_now_ms() - p->begun >= 9900);
    must_be(p, corral_lock_left_ms(p->lock) > 0, 0);
    must_be(p, corral_lock_release(p->lock, &error), CORRAL_ELOST);
    must_be(p, corral_lock_release(next, &error), CORRAL_OK);
  }
}

static void a_hold_and_a_wait_last_as_long_as_they_should_when_an_hour_is_skipped(void **state) {
  (void)state;
  holds_and_waits_last(HOUR);
}

static void a_hold_and_a_wait_last_as_long_as_they_should_when_an_hour_comes_twice(void **state) {
  (void)state;
  holds_and_waits_last(-HOUR);
}

/* ---- the server's clock -------------------------------------------------------------------- */

static void set_forth(uint8_t *at, int64_t ms) {
  int64_t time;
  memcpy(&time, at, sizeof time);
  time += ms;
  memcpy(at, &time, sizeof time);
}

/* Moves the times of the database's only lock forward by an hour, as if the server's clock had been
 * set back. */
static void set_server_back(int database) {
  redis_server_ask(redis, "SELECT %d", database);
  redisReply *keys = redis_server_command(redis, "KEYS *");
  assert_int_equal(keys->elements, 1);
  redisReply *record =
      redis_server_command(redis, "GET %b", keys->element[0]->str, keys->element[0]->len);
  assert_int_equal(record->len, CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD);
  set_forth((uint8_t *)record->str + CORRAL_LOCK_HEAD + 24, HOUR * 1000);
  set_forth((uint8_t *)record->str + CORRAL_LOCK_HEAD + 32, HOUR * 1000);
  redis_server_ask(redis, "SET %b %b PX %lld", keys->element[0]->str, keys->element[0]->len,
                   record->str, record->len, HOUR * 1000LL);
  freeReplyObject(record);
  freeReplyObject(keys);
}

static int is_redis(const place *p) { return strncmp(p->uri, "redis", 5) == 0; }

static void
a_dead_holder_is_gone_after_one_length_when_the_servers_clock_was_set_back(void **state) {
  (void)state;
  int database = 0;
  for (place *p = places; p < places + count; p++) {
    if (!is_redis(p)) continue;
    p->lock = take(p->a, "dead", CORRAL_LOCK(.ttl_ms = 300));
    set_server_back(database++);
    corral_lock *next = take(p->b, "dead", CORRAL_LOCK(.wait_ms = 20000));
    must_be(p, corral_lock_release(p->lock, &error), CORRAL_ELOST);
    must_be(p, corral_lock_release(next, &error), CORRAL_OK);
  }
  if (database == 0) skip();
}

static void a_living_holder_keeps_its_lock_when_the_servers_clock_was_set_back(void **state) {
  (void)state;
  int database = 0;
  for (place *p = places; p < places + count; p++) {
    if (!is_redis(p)) continue;
    p->lock = take(p->a, "alive", CORRAL_LOCK(.ttl_ms = 6000, .keep = 1));
    set_server_back(database++);
    must_be(p, try(p->b, "alive"), CORRAL_EBUSY);
    until_extended(p->a, 4);
    must_be(p, try(p->b, "alive"), CORRAL_EBUSY);
    must_be(p, corral_lock_left_ms(p->lock) > 0, 1);
    must_be(p, corral_lock_release(p->lock, &error), CORRAL_OK);
  }
  if (database == 0) skip();
}

/* The server's last fencing token of the name is an hour ahead, then the server forgets the lock,
 * as one that is promoted, or restarted empty, with a clock that is an hour behind. */
static uint64_t fence_of_next(corral *c) {
  corral_lock *lock = take(c, "fence", CORRAL_LOCK(0));
  uint64_t fence = corral_lock_fence(lock);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  return fence;
}

static void raise_the_record(uint64_t by) {
  redisReply *record = redis_server_command(redis, "GET ~lock::fence");
  uint64_t fence;
  assert_int_equal(record->len, CORRAL_LOCK_HEAD);
  memcpy(&fence, record->str + 8, sizeof fence);
  fence += by;
  memcpy(record->str + 8, &fence, sizeof fence);
  redis_server_ask(redis, "SET ~lock::fence %b PX 60000", record->str, record->len);
  freeReplyObject(record);
}

static void
a_server_that_forgot_and_is_behind_gives_no_smaller_token_to_those_who_saw(void **state) {
  (void)state;
  int database = 0;
  for (place *p = places; p < places + count; p++) {
    if (!is_redis(p)) continue;
    redis_server_ask(redis, "SELECT %d", database++);
    (void)fence_of_next(p->a);
    raise_the_record((uint64_t)HOUR * 1000000);
    uint64_t seen = fence_of_next(p->a);
    assert_int_equal(try(p->b, "other"), CORRAL_OK);
    redis_server_ask(redis, "DEL ~lock::fence");
    uint64_t next = fence_of_next(p->a);
    if (next <= seen)
      fail_msg("%s: %llu after %llu", p->uri, (unsigned long long)next, (unsigned long long)seen);
    /* those who saw nothing follow, as the record has it now */
    uint64_t others = fence_of_next(p->b);
    assert_true(others > next);
    /* one who saw it while he waited */
    corral *late = open_one(p->uri);
    corral_lock *lock = take(p->a, "fence", CORRAL_LOCK(0));
    assert_int_equal(try(late, "fence"), CORRAL_EBUSY);
    next = corral_lock_fence(lock);
    redis_server_ask(redis, "DEL ~lock::fence");
    assert_true(fence_of_next(late) > next);
    assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
    corral_close(late);
  }
  if (database == 0) skip();
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)
  const struct CMUnitTest tests[] = {
      T(a_kept_lock_stays_kept_and_nobody_else_gets_it),
      T(fencing_tokens_grow_all_the_same),
      T(a_hold_and_a_wait_last_as_long_as_they_should_when_an_hour_is_skipped),
      T(a_hold_and_a_wait_last_as_long_as_they_should_when_an_hour_comes_twice),
      T(a_dead_holder_is_gone_after_one_length_when_the_servers_clock_was_set_back),
      T(a_server_that_forgot_and_is_behind_gives_no_smaller_token_to_those_who_saw),
      T(a_living_holder_keeps_its_lock_when_the_servers_clock_was_set_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
