/* test_freshness.c: many callers in several processes when a value's life ends: no call waits, no
 * call fails, one computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/emptied.h"
#include "support/herd_lab.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum {
  PROCESSES = 4,
  THREADS = 50,
  CALLERS = PROCESSES * THREADS,
  COST_MS = 100,
  PACE_US = 100000,
  LEASE_MS = 10000,
  GRACE_MS = 60000
};
enum { MEETING, STOP, BROKEN, RENEWED, WAITED, GATE, ANSWERED }; /* lab marks */

static redis_server *server;

static memcached_server *cached;

/* The lab of the running test; the teardown ends its processes. */
static lab *current;

static lab *new_lab(void) { return current = lab_new(); }

static int clean(void **state) {
  (void)state;
  if (current != NULL) lab_free(current);
  current = NULL;
  return 0;
}

static int sum(lab *l, corral_event event) {
  int all = 0;
  for (int i = 0; i < l->count; i++) all += l->events[i][event];
  return all;
}

/* ---- callers at a constant pace ------------------------------------------------------------ */

typedef struct load {
  corral_policy policy;
  int bound; /* 1: corral_get with the bound compute; 0: corral_get_or_compute */
} load;

static lab_answer call(lab_seat *seat) {
  const load *how = seat->arg;
  lab_work work = {.key = 0,
                   .cost_ms = COST_MS,
                   .failure = "the origin is away",
                   .broken = &seat->lab->marks[BROKEN]};
  lab_answer answer =
      how->bound ? lab_get(seat, &how->policy, 0) : lab_ask(seat, &how->policy, &work);
  if (answer.status != CORRAL_OK)
    lab_wrong(seat->lab, "%s: %s", corral_status_name(answer.status), answer.error.text);
  return answer;
}

/* A caller that doesn't run while a whole compute does finds its value when it wakes. If callers
 * waited, most would in each life. */
enum { HELD_UP = CALLERS / 10 };

/* Each caller has its own phase; after a delay it skips the missed ticks. RENEWED counts callers
 * that have seen a second value, WAITED calls that waited for somebody's compute. */
static void call_at_a_constant_pace(lab_seat *seat) {
  lab *l = seat->lab;
  int renewed = 0, first = call(seat).number;
  lab_meet(l, &l->marks[MEETING], CALLERS, 1);
  int64_t next = lab_now_us() + (int64_t)((unsigned)(seat->process * THREADS + seat->thread) *
                                          2654435761u % PACE_US);
  while (l->marks[STOP] == 0) {
    lab_sleep_until_us(next);
    lab_answer answer = call(seat);
    if (answer.how == CORRAL_JOINED) lab_add(&l->marks[WAITED], 1);
    if (!renewed && answer.number > 0 && answer.number != first) {
      renewed = 1;
      lab_add(&l->marks[RENEWED], 1);
    }
    for (int64_t now = lab_now_us(); next <= now;) next += PACE_US;
  }
}

static void spawn(lab *l, lab_plan plan, const load *how) {
  lab_work bound = {
      .key = 0, .cost_ms = COST_MS, .failure = "the origin is away", .broken = &l->marks[BROKEN]};
  plan.bound = how->bound ? &bound : NULL;
  plan.arg = (void *)(uintptr_t)how;
  lab_spawn(l, &plan);
}

static void spawn_callers(lab *l, const char *uri, const load *how) {
  spawn(
      l,
      (lab_plan){
          .uri = uri, .processes = PROCESSES, .threads = THREADS, .body = call_at_a_constant_pace},
      how);
  lab_await(l, &l->marks[MEETING], CALLERS);
}

static void call_alone(lab_seat *seat) { (void)call(seat); }

/* The origin breaks when it has made one value, before the others call: its life is short. */
static void make_one_and_break(lab *l, const char *uri, const load *how) {
  spawn(l, (lab_plan){.uri = uri, .processes = 1, .threads = 1, .body = call_alone}, how);
  lab_end(l);
  assert_int_equal(l->keys[0].computes, 1);
  lab_add(&l->marks[BROKEN], 1);
}

/* Pause between two computes in ms, from the end of one to the start of the next. */
static double pause_ms(const lab_key *key, int after) {
  return (double)(key->log[after + 1].begun_us - key->log[after].ended_us) / 1000;
}

/* ---- a life ends under load ---------------------------------------------------------------- */

/* Jitter takes up to a tenth of the life. A connection knows the server's clock within bounds of
 * 100 ms at most; by these a life may be shorter when it is stored, and when it is looked at. */
enum { TTL_MS = 1000, TTL_LEAST_MS = 900 - 2 * 100, LIVES = 4 };

static void check_expiry(const char *uri, const load *how) {
  lab *l = new_lab();
  spawn_callers(l, uri, how);
  int waits = sum(l, CORRAL_EVENT_WAIT), misses = sum(l, CORRAL_EVENT_MISS);
  lab_await(l, &l->keys[0].computes, getenv("CORRAL_LONG") != NULL ? 3 * LIVES : LIVES);
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  for (int i = 0; i + 1 < l->keys[0].computes; i++)
    if (pause_ms(&l->keys[0], i) < TTL_LEAST_MS - 2)
      fail_msg("compute %d began %.1f ms after the end of the one before", i + 1,
               pause_ms(&l->keys[0], i));
  assert_int_equal(l->keys[0].most, 1);
  assert_int_equal(sum(l, CORRAL_EVENT_WAIT), waits);
  assert_int_equal(sum(l, CORRAL_EVENT_MISS), misses);
  assert_in_range(l->marks[WAITED], 0, HELD_UP);
}

static void
a_life_that_ends_under_load_costs_one_compute_in_the_background_and_nobody_waits(void **state) {
  (void)state;
  load how = {.policy = {.size = sizeof how.policy,
                         .lease_ms = LEASE_MS,
                         .lease_min_ms = LEASE_MS,
                         .ttl_ms = TTL_MS,
                         .swr_ms = GRACE_MS},
              .bound = 1};
  check_expiry(emptied_redis(server), &how);
}

static void
a_life_that_ends_under_load_costs_one_caller_its_compute_and_nobody_else_waits(void **state) {
  (void)state;
  load how = {.policy = {.size = sizeof how.policy,
                         .lease_ms = LEASE_MS,
                         .lease_min_ms = LEASE_MS,
                         .ttl_ms = TTL_MS,
                         .swr_ms = GRACE_MS}};
  check_expiry(emptied_redis(server), &how);
}

/* ---- origin away for three tries ----------------------------------------------------------- */

enum { TRIES = 3, RETRY_MS = 500, LIFE_MS = 500 };

/* The first two pauses are equally long, then they double; each is drawn from 75 to 100 % of its
 * maximum. */
static void check_tries(lab *l) {
  for (int i = 1, least = RETRY_MS * 3 / 4; i<TRIES; i++, least *= i> 2 ? 2 : 1)
    if (pause_ms(&l->keys[0], i) < least - 2)
      fail_msg("try %d came %.1f ms after the one before", i + 1, pause_ms(&l->keys[0], i));
}

static void check_outage(lab *l, const char *uri) {
  corral *c = NULL;
  corral_error error;
  corral_inspection seen = {.size = sizeof seen};
  load how = {.policy = {.size = sizeof how.policy,
                         .lease_ms = LEASE_MS,
                         .lease_min_ms = LEASE_MS,
                         .ttl_ms = LIFE_MS,
                         .sie_ms = GRACE_MS}};
  if (corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 30000), &c, &error) != CORRAL_OK)
    fail_msg("%s: %s", uri, error.text);
  make_one_and_break(l, uri, &how);
  spawn_callers(l, uri, &how);
  lab_await(l, &l->keys[0].computes, 1 + TRIES);
  assert_int_equal(corral_inspect(c, "key-0", 5, NULL, &seen), CORRAL_OK);
  assert_int_equal(l->marks[RENEWED], 0);
  lab_add(&l->marks[BROKEN], -1);
  lab_await(l, &l->marks[RENEWED], CALLERS);
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  check_tries(l);
  if (seen.retry_left_ms > 0) assert_string_equal(seen.failure, "the origin is away");
  assert_int_equal(l->keys[0].most, 1);
  corral_close(c);
}

static void
an_origin_that_is_away_is_tried_behind_the_backs_of_callers_who_have_grace(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  lab *l = new_lab();
  load how = {.policy = {.size = sizeof how.policy,
                         .lease_ms = LEASE_MS,
                         .lease_min_ms = LEASE_MS,
                         .ttl_ms = LIFE_MS,
                         .swr_ms = GRACE_MS,
                         .sie_ms = GRACE_MS},
              .bound = 1};
  make_one_and_break(l, uri, &how);
  spawn_callers(l, uri, &how);
  int waits = sum(l, CORRAL_EVENT_WAIT);
  lab_await(l, &l->keys[0].computes, 1 + TRIES);
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  check_tries(l);
  assert_int_equal(l->marks[RENEWED], 0);
  assert_int_equal(sum(l, CORRAL_EVENT_WAIT), waits);
  assert_in_range(l->marks[WAITED], 0, HELD_UP);
}

static void
an_origin_that_is_away_is_tried_at_growing_pauses_and_nobody_sees_an_error_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_outage(new_lab(), uri);
}

static void an_origin_that_is_away_is_tried_at_growing_pauses_and_nobody_sees_an_error_on_memcached(
    void **state) {
  (void)state;
  const char *uri = emptied_memcached(cached);
  check_outage(new_lab(), uri);
}

static void
an_origin_that_is_away_is_tried_at_growing_pauses_and_nobody_sees_an_error_on_lmdb(void **state) {
  (void)state;
  lab *l = new_lab();
  check_outage(l, lab_lmdb(l, "store"));
}

/* ---- no grace ------------------------------------------------------------------------------ */

enum { ROUNDS = 6, LONG_RETRY_MS = 60000 };

static void ask_for_what_fails(lab_seat *seat, int round) {
  lab *l = seat->lab;
  lab_work work = {.key = round, .cost_ms = COST_MS, .failure = "the origin is away"};
  lab_meet(l, &l->marks[MEETING], CALLERS, round + 1);
  lab_answer answer = lab_ask(seat,
                              CORRAL_POLICY(.sie_ms = GRACE_MS, .retry_ms = LONG_RETRY_MS,
                                            .lease_ms = LEASE_MS, .lease_min_ms = LEASE_MS),
                              &work);
  if (answer.status != CORRAL_EFAILED || answer.error.status != CORRAL_EFAILED)
    lab_wrong(l, "a failing compute gave %s: %s", corral_status_name(answer.status),
              answer.error.text);
  else if (strcmp(answer.error.text, "the origin is away") != 0 || answer.error.code != 7)
    lab_wrong(l, "a caller was told '%s', code %d", answer.error.text, answer.error.code);
  else if (answer.error.retry_after_ms < 1 || answer.error.retry_after_ms > LONG_RETRY_MS)
    lab_wrong(l, "retry_after_ms is %lld", (long long)answer.error.retry_after_ms);
}

static void ask_for_what_fails_round_by_round(lab_seat *seat) {
  for (int round = 0; round < ROUNDS; round++) ask_for_what_fails(seat, round);
}

static void check_failure(lab *l, const char *uri) {
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = PROCESSES,
                           .threads = THREADS,
                           .body = ask_for_what_fails_round_by_round});
  lab_end(l);
  for (int round = 0; round < ROUNDS; round++) assert_int_equal(l->keys[round].computes, 1);
}

static void two_hundred_callers_of_what_fails_share_one_failure_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_failure(new_lab(), uri);
}

static void two_hundred_callers_of_what_fails_share_one_failure_on_memcached(void **state) {
  (void)state;
  const char *uri = emptied_memcached(cached);
  check_failure(new_lab(), uri);
}

static void two_hundred_callers_of_what_fails_share_one_failure_on_lmdb(void **state) {
  (void)state;
  lab *l = new_lab();
  check_failure(l, lab_lmdb(l, "store"));
}

/* ---- kill -9 ------------------------------------------------------------------------------- */

/* The first compute waits for the gate, so it runs when its process is killed; for the next one the
 * gate is open. */
static void ask_once(lab_seat *seat) {
  lab *l = seat->lab;
  lab_work work = {.key = 0, .cost_ms = COST_MS, .gate = &l->marks[GATE]};
  lab_meet(l, &l->marks[MEETING], CALLERS, 1);
  lab_answer answer =
      lab_ask(seat, CORRAL_POLICY(.lease_ms = LEASE_MS / 2, .lease_min_ms = LEASE_MS / 2), &work);
  lab_agree(l, 0, &answer);
  lab_add(&l->marks[ANSWERED], 1);
}

static int leader_of(const lab *l) {
  for (int i = 0; i < l->count; i++)
    if (l->keys[0].process_now[i] > 0) return i;
  fail_msg("nobody computes");
  return 0;
}

static void await_herds(lab *l, int leader) {
  for (int i = 0; i < PROCESSES; i++) {
    lab_await(l, &l->events[i][CORRAL_EVENT_JOIN], THREADS - 1);
    if (i != leader) lab_await(l, &l->events[i][CORRAL_EVENT_WAIT], 1);
  }
}

static void a_killed_leader_s_herd_has_the_value_of_one_more_compute(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  lab *l = new_lab();
  lab_spawn(l,
            &(lab_plan){.uri = uri, .processes = PROCESSES, .threads = THREADS, .body = ask_once});
  lab_await(l, &l->keys[0].computes, 1);
  int leader = leader_of(l);
  await_herds(l, leader);
  lab_kill(l, leader);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  assert_int_equal(l->marks[ANSWERED], CALLERS - THREADS);
  assert_int_equal(l->keys[0].computes, 2);
}

/* ---- after the grace ----------------------------------------------------------------------- */

enum { SHORT_MS = 100, PAST_SWR_MS = 2 * SHORT_MS };

static void ask_the_long_forgotten(lab_seat *seat) {
  lab *l = seat->lab;
  lab_work work = {.key = 0, .cost_ms = COST_MS};
  lab_meet(l, &l->marks[MEETING], CALLERS, 1);
  lab_answer answer = lab_ask(seat,
                              CORRAL_POLICY(.swr_ms = SHORT_MS, .sie_ms = GRACE_MS,
                                            .lease_ms = LEASE_MS, .lease_min_ms = LEASE_MS),
                              &work);
  lab_agree(l, 0, &answer);
  if (answer.how == CORRAL_STALE || answer.number != 2)
    lab_wrong(l, "a caller was given value %d, %s", answer.number, corral_how_name(answer.how));
}

static void warm(lab_seat *seat) {
  corral_policy policy = {
      .size = sizeof policy, .ttl_ms = SHORT_MS, .swr_ms = SHORT_MS, .sie_ms = GRACE_MS};
  lab_work work = {.key = 0, .cost_ms = COST_MS};
  if (lab_ask(seat, &policy, &work).how != CORRAL_COMPUTED)
    lab_wrong(seat->lab, "it was there before");
}

static void check_long_forgotten(lab *l, const char *uri) {
  corral *c = NULL;
  corral_error error;
  corral_inspection seen = {.size = sizeof seen};
  if (corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 30000), &c, &error) != CORRAL_OK)
    fail_msg("%s: %s", uri, error.text);
  lab_spawn(l, &(lab_plan){.uri = uri, .processes = 1, .threads = 1, .body = warm});
  lab_end(l);
  do {
    assert_int_equal(corral_inspect(c, "key-0", 5, NULL, &seen), CORRAL_OK);
    lab_sleep_ms(5);
  } while (seen.age_ms <= PAST_SWR_MS);
  assert_string_equal(seen.state, "stale");
  assert_true(seen.left_ms > 0);
  corral_close(c);
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = PROCESSES,
                           .threads = THREADS,
                           .body = ask_the_long_forgotten});
  lab_end(l);
  assert_int_equal(l->keys[0].computes, 2);
  assert_int_equal(sum(l, CORRAL_EVENT_STALE), 0);
}

static void
what_is_beyond_swr_is_computed_once_and_nobody_is_given_the_old_value_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_long_forgotten(new_lab(), uri);
}

static void
what_is_beyond_swr_is_computed_once_and_nobody_is_given_the_old_value_on_memcached(void **state) {
  (void)state;
  const char *uri = emptied_memcached(cached);
  check_long_forgotten(new_lab(), uri);
}

static void
what_is_beyond_swr_is_computed_once_and_nobody_is_given_the_old_value_on_lmdb(void **state) {
  (void)state;
  lab *l = new_lab();
  check_long_forgotten(l, lab_lmdb(l, "store"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(
          a_life_that_ends_under_load_costs_one_compute_in_the_background_and_nobody_waits, clean),
      cmocka_unit_test_teardown(
          a_life_that_ends_under_load_costs_one_caller_its_compute_and_nobody_else_waits, clean),
      cmocka_unit_test_teardown(
          an_origin_that_is_away_is_tried_behind_the_backs_of_callers_who_have_grace, clean),
      cmocka_unit_test_teardown(
          an_origin_that_is_away_is_tried_at_growing_pauses_and_nobody_sees_an_error_on_redis,
          clean),
      cmocka_unit_test_teardown(
          an_origin_that_is_away_is_tried_at_growing_pauses_and_nobody_sees_an_error_on_memcached,
          clean),
      cmocka_unit_test_teardown(
          an_origin_that_is_away_is_tried_at_growing_pauses_and_nobody_sees_an_error_on_lmdb,
          clean),
      cmocka_unit_test_teardown(two_hundred_callers_of_what_fails_share_one_failure_on_redis,
                                clean),
      cmocka_unit_test_teardown(two_hundred_callers_of_what_fails_share_one_failure_on_memcached,
                                clean),
      cmocka_unit_test_teardown(two_hundred_callers_of_what_fails_share_one_failure_on_lmdb, clean),
      cmocka_unit_test_teardown(a_killed_leader_s_herd_has_the_value_of_one_more_compute, clean),
      cmocka_unit_test_teardown(
          what_is_beyond_swr_is_computed_once_and_nobody_is_given_the_old_value_on_redis, clean),
      cmocka_unit_test_teardown(
          what_is_beyond_swr_is_computed_once_and_nobody_is_given_the_old_value_on_memcached,
          clean),
      cmocka_unit_test_teardown(
          what_is_beyond_swr_is_computed_once_and_nobody_is_given_the_old_value_on_lmdb, clean),
  };
  redis_server_start(&server, NULL);
  memcached_server_start(&cached, NULL);
  int failed = cmocka_run_group_tests_name("freshness", tests, NULL, NULL);
  redis_server_stop(server);
  memcached_server_stop(cached);
  return failed;
}
