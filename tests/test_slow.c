/* test_slow.c: a store that stalls, and one that a thousand processes open at once, make nobody
 * compute beside the leader.
 *
 * Built without sanitizers. CORRAL_PROCESSES=n sets the number of processes at once on a cold key
 * (1000). */
#include "support/fleet_kit.h"
#include "support/folder_kit.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

/* A stall that the busy machine made longer than LATE_MS proves nothing: it is tried again. */
enum { WAITERS = 99, COST_MS = 2000, LATE_MS = 1350, TRIES = 5, COLD = 1000, COLD_COST_MS = 300 };

static redis_server *redis;
static memcached_server *memcached;

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

/* One leader computes for 2 s at least, 99 processes wait for it; the store stalls meanwhile.
 * Returns how long, as the processes saw it. */
static int64_t stall_once(const store *s, int64_t stall_ms) {
  s->empty();
  fleet *f = fleet_new(1 + WAITERS, CORRAL_OPTIONS(.store = s->uri),
                       CORRAL_POLICY(.wait_ms = FLEET_PATIENCE_MS));
  f->cost_ms = COST_MS;
  atomic_store(&f->gate, 0);
  fleet_start(f, 1);
  fleet_await(f, &f->computes, 1);
  fleet_start(f, WAITERS);
  fleet_await(f, &f->waiting, 1 + WAITERS);
  int64_t before = fleet_now_ms();
  s->pause();
  fleet_sleep_ms(stall_ms);
  s->resume();
  int64_t took = fleet_now_ms() - before;
  fleet_sleep_ms(COST_MS / 4);
  atomic_store(&f->gate, 1);
  fleet_end(f);
  print_message(
      "           a stall of %lld ms: %d computes, %d of them without the store; %d of %d "
      "answers good\n",
      (long long)took, f->computes, f->degraded, f->answers - f->wrongs, f->answers);
  if (took < LATE_MS) {
    if (f->wrongs > 0) fail_msg("%d answers are not good: %s", f->wrongs, f->wrong);
    assert_in_range(f->computes, 1, 2);
  }
  fleet_free(f);
  return took;
}

static void stall(const store *s, int64_t stall_ms) {
  for (int i = 0; i < TRIES; i++)
    if (stall_once(s, stall_ms) < LATE_MS) return;
  print_message("           the machine is too busy for this stall\n");
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
  }
STALLS(redis)
STALLS(memcached)

/* ---- all at once --------------------------------------------------------------------------- */

static int cold_processes(void) {
  const char *text = getenv("CORRAL_PROCESSES");
  long count = text == NULL ? COLD : strtol(text, NULL, 10);
  return count < 1 || count > FLEET_MOST ? COLD : (int)count;
}

static void ask_at_once(const char *uri) {
  int count = cold_processes();
  fleet *f =
      fleet_new(count, CORRAL_OPTIONS(.store = uri), CORRAL_POLICY(.wait_ms = FLEET_PATIENCE_MS));
  f->cost_ms = COLD_COST_MS;
  fleet_start(f, count);
  fleet_end(f);
  print_message("           %d processes at once: %d computes, %d of them without the store; %d of "
                "%d answers good\n",
                count, f->computes, f->degraded, f->answers - f->wrongs, f->answers);
  if (f->wrongs > 0) fail_msg("%d answers are not good: %s", f->wrongs, f->wrong);
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
      T(nobody_computes_beside_the_leader_while_memcached_stalls_for_0_3_s),
      T(nobody_computes_beside_the_leader_while_memcached_stalls_for_0_6_s),
      T(nobody_computes_beside_the_leader_while_memcached_stalls_for_1_2_s),
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
