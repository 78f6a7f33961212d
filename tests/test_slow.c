/* test_slow.c: a store that stalls, and one that a thousand processes open at once, make nobody
 * compute beside the leader. One that stalls for longer than away_ms makes each process compute
 * once.
 *
 * Built without sanitizers. CORRAL_PROCESSES=n sets the number of processes at once on a cold key
 * (1000). CORRAL_WIDE=n makes away_ms and the leases n times as long as their defaults, so that a
 * busy machine doesn't reach their ends (1). */
#include "support/fleet_kit.h"
#include "support/folder_kit.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum {
  WAITERS = 99,
  COST_MS = 2000,
  AWAY_MS = 1500, /* the defaults of the library */
  LEASE_MS = 2000,
  LEASE_FIRST_MS = 750,
  TRIES = 5,
  COLD = 1000,
  COLD_COST_MS = 300
};

static redis_server *redis;
static memcached_server *memcached;

static int number_of(const char *variable, int usual, int most) {
  const char *text = getenv(variable);
  long number = text == NULL ? usual : strtol(text, NULL, 10);
  return number < 1 || number > most ? usual : (int)number;
}

static int wide(void) { return number_of("CORRAL_WIDE", 1, 100); }

static fleet *fleet_on(const char *uri, int most, int64_t away_ms) {
  corral_policy policy = {.size = sizeof policy,
                          .wait_ms = FLEET_PATIENCE_MS,
                          .compute_ms = 10 * FLEET_PATIENCE_MS,
                          .lease_ms = LEASE_MS * wide()};
  if (wide() > 1) policy.lease_min_ms = LEASE_FIRST_MS * wide();
  return fleet_new(most, CORRAL_OPTIONS(.store = uri, .away_ms = away_ms), &policy);
}

/* ---- a stall ------------------------------------------------------------------------------- */

typedef struct store {
  const char *uri;
  void (*empty)(void);
  void (*pause)(void);
  void (*resume)(void);
} store;

static void empty_redis(void) { redis_server_ask(redis, "FLUSHALL"); }
static void pause_redis(void) { redis_server_pause(redis); }
static void resume_redis(void) {
  redis_server_resume(redis);
  redis_server_ask(redis, "PING");
}

static void empty_memcached(void) { memcached_server_ask(memcached, "flush_all"); }
static void pause_memcached(void) { memcached_server_pause(memcached); }
static void resume_memcached(void) {
  memcached_server_resume(memcached);
  memcached_server_ask(memcached, "get nothing");
}

static store on_redis(void) {
  if (redis == NULL) skip();
  return (store){redis_server_uri(redis), empty_redis, pause_redis, resume_redis};
}

static store on_memcached(void) {
  if (memcached == NULL) skip();
  return (store){memcached_server_uri(memcached), empty_memcached, pause_memcached,
                 resume_memcached};
}

/* One leader computes for `cost_ms` at least, 99 processes wait for it. */
static fleet *lead_and_wait(fleet *f, int64_t cost_ms) {
  f->cost_ms = cost_ms;
  atomic_store(&f->gate, 0);
  fleet_start(f, 1);
  fleet_await(f, &f->computes, 1);
  fleet_start(f, WAITERS);
  fleet_await(f, &f->waiting, 1 + WAITERS);
  return f;
}

static void print_counts(const fleet *f, const char *what, int64_t number, const char *more) {
  print_message("           %s%lld%s: %d computes, %d of them without the store; %d of %d answers "
                "good\n",
                what, (long long)number, more, f->computes, f->degraded, f->answers - f->wrongs,
                f->answers);
}

static void expect_good(const fleet *f) {
  if (f->wrongs > 0) fail_msg("%d answers are not good: %s", f->wrongs, f->wrong);
}

/* The store stalls meanwhile. A stall that a busy machine made nearly as long as away_ms proves
 * nothing; returns 0 then. */
static int stall_once(const store *s, int64_t stall_ms) {
  s->empty();
  fleet *f = lead_and_wait(fleet_on(s->uri, 1 + WAITERS, AWAY_MS * wide()), COST_MS);
  int64_t before = fleet_now_ms();
  s->pause();
  fleet_sleep_ms(stall_ms);
  s->resume();
  int64_t took = fleet_now_ms() - before;
  fleet_sleep_ms(COST_MS / 4);
  atomic_store(&f->gate, 1);
  fleet_end(f);
  print_counts(f, "a stall of ", took, " ms");
  int proves = took < AWAY_MS * wide() * 9 / 10;
  if (proves) {
    expect_good(f);
    assert_in_range(f->computes, 1, 2);
  }
  fleet_free(f);
  return proves;
}

static void stall(const store *s, int64_t stall_ms) {
  for (int i = 0; i < TRIES; i++)
    if (stall_once(s, stall_ms)) return;
  print_message("           the machine is too busy for this stall: nothing is proved\n");
  skip();
}

/* Each process has several callers, and computes once for all of them, when away_ms is over. Where
 * a busy machine made the store seem away before it was, that proves nothing; returns 0 then. */
static int stall_past_once(const store *s, int64_t away_ms) {
  enum { CALLERS = 3, COST_LEAST_MS = 100 };
  s->empty();
  fleet *f = fleet_on(s->uri, 1 + WAITERS, away_ms);
  f->callers = CALLERS;
  lead_and_wait(f, COST_LEAST_MS);
  fleet_await(f, &f->joined, (1 + WAITERS) * (CALLERS - 1));
  int proves = f->degraded == 0;
  int64_t before = fleet_now_ms();
  s->resume(); /* asks the server, which has answered all earlier ones then */
  s->pause();
  fleet_sleep_ms(2 * away_ms);
  fleet_await(f, &f->degraded, 1);
  s->resume();
  atomic_store(&f->gate, 1);
  fleet_end(f);
  print_counts(f, "a stall of twice ", away_ms, " ms");
  if (proves) {
    expect_good(f);
    assert_in_range(f->computes, 2, 1 + WAITERS);
    assert_in_range(f->degraded, 1, WAITERS);
    /* an ask may have been without an answer for a moment when the store stalled */
    assert_true(f->degraded_ms - before > away_ms / 2);
  }
  fleet_free(f);
  return proves;
}

static void stall_past_away_ms(const store *s) {
  for (int i = 0; i < TRIES; i++)
    if (stall_past_once(s, AWAY_MS * (wide() > 1 ? 2 : 1))) return;
  print_message("           the machine is too busy for this stall: nothing is proved\n");
  skip();
}

#define STALLS(name)                                                                               \
  static void nobody_computes_beside_the_leader_while_##name##_stalls_for_0_3_s(void **state) {    \
    (void)state;                                                                                   \
    store s = on_##name();                                                                         \
    stall(&s, 300);                                                                                \
  }                                                                                                \
  static void nobody_computes_beside_the_leader_while_##name##_stalls_for_0_6_s(void **state) {    \
    (void)state;                                                                                   \
    store s = on_##name();                                                                         \
    stall(&s, 600);                                                                                \
  }                                                                                                \
  static void nobody_computes_beside_the_leader_while_##name##_stalls_for_1_2_s(void **state) {    \
    (void)state;                                                                                   \
    store s = on_##name();                                                                         \
    stall(&s, 1200);                                                                               \
  }                                                                                                \
  static void each_process_computes_once_while_##name##_stalls_past_away_ms(void **state) {        \
    (void)state;                                                                                   \
    store s = on_##name();                                                                         \
    stall_past_away_ms(&s);                                                                        \
  }
STALLS(redis)
STALLS(memcached)

/* ---- all at once --------------------------------------------------------------------------- */

static void ask_at_once(const char *uri) {
  int count = number_of("CORRAL_PROCESSES", COLD, FLEET_MOST);
  fleet *f = fleet_on(uri, count, AWAY_MS * wide());
  f->cost_ms = COLD_COST_MS;
  fleet_start(f, count);
  fleet_end(f);
  print_counts(f, "", count, " processes at once");
  expect_good(f);
  assert_in_range(f->computes, 1, 2);
  fleet_free(f);
}

static void a_thousand_processes_at_once_on_one_cold_key_of_lmdb_compute_it_once(void **state) {
  (void)state;
  char uri[sizeof folder + 16];
  snprintf(uri, sizeof uri, "lmdb:%s/store", folder);
  ask_at_once(uri);
}

static void a_thousand_processes_at_once_on_one_cold_key_of_redis_compute_it_once(void **state) {
  (void)state;
  store s = on_redis();
  s.empty();
  ask_at_once(s.uri);
}

static void
a_thousand_processes_at_once_on_one_cold_key_of_memcached_compute_it_once(void **state) {
  (void)state;
  store s = on_memcached();
  s.empty();
  ask_at_once(s.uri);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(nobody_computes_beside_the_leader_while_redis_stalls_for_0_3_s),
      T(nobody_computes_beside_the_leader_while_redis_stalls_for_0_6_s),
      T(nobody_computes_beside_the_leader_while_redis_stalls_for_1_2_s),
      T(each_process_computes_once_while_redis_stalls_past_away_ms),
      T(nobody_computes_beside_the_leader_while_memcached_stalls_for_0_3_s),
      T(nobody_computes_beside_the_leader_while_memcached_stalls_for_0_6_s),
      T(nobody_computes_beside_the_leader_while_memcached_stalls_for_1_2_s),
      T(each_process_computes_once_while_memcached_stalls_past_away_ms),
      T(a_thousand_processes_at_once_on_one_cold_key_of_lmdb_compute_it_once),
      T(a_thousand_processes_at_once_on_one_cold_key_of_redis_compute_it_once),
      T(a_thousand_processes_at_once_on_one_cold_key_of_memcached_compute_it_once),
  };
  redis_server_start(&redis, NULL);
  memcached_server_start(&memcached, (const char *[]){"-c", "4096", NULL});
  int failed = cmocka_run_group_tests_name("slow", tests, make_folder, remove_folder);
  redis_server_stop(redis);
  memcached_server_stop(memcached);
  return failed;
}
