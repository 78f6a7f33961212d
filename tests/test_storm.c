/* test_storm.c: many processes and threads on one key: one compute, and every call gets its
 * value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "support/emptied.h"
#include "support/herd_lab.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum { PROCESSES = 4, THREADS = 50, ROUNDS = 20, HOT = 10, FAILING = 16, WAITERS = 50 };
enum { MEETING, GATE, ANSWERED, STOP }; /* lab marks */

static redis_server *server;

static memcached_server *pair[2];

static const char *memcached_uri(void) {
  const char *uri = memcached_server_pair_uri(pair);
  if (uri == NULL) skip();
  return uri;
}

/* No lease ends while its leader waits for a processor. */
#define LONG_LEASE .lease_ms = 60000, .lease_min_ms = 60000

/* ---- 4 x 50 callers, cold key -------------------------------------------------------------- */

static void twenty_cold_keys(lab_seat *seat) {
  for (int round = 0; round < ROUNDS; round++) {
    lab_work work = {.key = round, .cost_ms = 10};
    lab_meet(seat->lab, &seat->lab->marks[MEETING], PROCESSES * THREADS, round + 1);
    lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 10000, LONG_LEASE), &work);
    lab_agree(seat->lab, round, &answer);
    if (answer.status == CORRAL_OK && answer.how == CORRAL_COMPUTED && answer.kept != CORRAL_KEPT)
      lab_wrong(seat->lab, "round %d: the value was not kept (%d)", round, (int)answer.kept);
  }
}

static void check_one_compute_per_round(lab *l, const char *uri) {
  int64_t before = lab_now_us();
  lab_spawn(l,
            &(lab_plan){
                .uri = uri, .processes = PROCESSES, .threads = THREADS, .body = twenty_cold_keys});
  lab_end(l);
  for (int round = 0; round < ROUNDS; round++)
    if (l->keys[round].computes != 1)
      fail_msg("round %d: %d computes", round, l->keys[round].computes);
  print_message("           %d rounds of %d callers: %lld ms, the longest call %lld ms\n", ROUNDS,
                PROCESSES * THREADS, (long long)(lab_now_us() - before) / 1000, l->longest_ms);
  lab_free(l);
}

static void two_hundred_callers_in_four_processes_cost_one_compute_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new();
  check_one_compute_per_round(l, lab_lmdb(l, "store"));
}

static void two_hundred_callers_in_four_processes_cost_one_compute_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_one_compute_per_round(lab_new(), uri);
}

static void two_hundred_callers_in_four_processes_cost_one_compute_on_redis_by_tcp(void **state) {
  (void)state;
  emptied_redis(server);
  check_one_compute_per_round(lab_new(), redis_server_uri(server));
}

static void
two_hundred_callers_in_four_processes_cost_one_compute_on_two_memcached_servers(void **state) {
  (void)state;
  const char *uri = memcached_uri();
  check_one_compute_per_round(lab_new(), uri);
}

/* ---- a hot key, rebuilt early -------------------------------------------------------------- */

/* A value lives on for seconds when its rebuild is due. */
static void ask_a_hot_key(lab_seat *seat) {
  for (int calls = 0; seat->lab->marks[STOP] == 0; calls++) {
    lab_work work = {.key = 0, .cost_ms = 20};
    lab_answer answer = lab_ask(
        seat, CORRAL_POLICY(.ttl_ms = 8000, .early_pct = 90, .wait_ms = 20000, LONG_LEASE), &work);
    if (answer.status != CORRAL_OK)
      lab_wrong(seat->lab, "%s: %s", corral_status_name(answer.status), answer.error.text);
    if (calls == 0) lab_add(&seat->lab->marks[ANSWERED], 1);
    lab_sleep_ms(1);
  }
}

static int sum(lab *l, corral_event event) {
  int all = 0;
  for (int i = 0; i < l->count; i++) all += l->events[i][event];
  return all;
}

static void check_hot_key(lab *l, const char *uri) {
  lab_spawn(l,
            &(lab_plan){.uri = uri, .processes = PROCESSES, .threads = HOT, .body = ask_a_hot_key});
  lab_await(l, &l->marks[ANSWERED], PROCESSES * HOT); /* no call is left that found no value */
  for (int i = 0; i < PROCESSES; i++) lab_await(l, &l->events[i][CORRAL_EVENT_HIT], 20);
  int misses = sum(l, CORRAL_EVENT_MISS), waits = sum(l, CORRAL_EVENT_WAIT);
  lab_await(l, &l->keys[0].computes, 4);
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  print_message("           %d computes, %d of them ahead of time; %d hits\n", l->keys[0].computes,
                sum(l, CORRAL_EVENT_EARLY), sum(l, CORRAL_EVENT_HIT));
  assert_int_equal(sum(l, CORRAL_EVENT_MISS), misses); /* no miss after the first */
  assert_int_equal(sum(l, CORRAL_EVENT_WAIT), waits);
  assert_int_equal(sum(l, CORRAL_EVENT_EARLY), l->keys[0].computes - 1);
  assert_int_equal(l->keys[0].most, 1);
  lab_free(l);
}

static void a_hot_key_is_rebuilt_ahead_of_time_by_one_and_nobody_waits_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_hot_key(lab_new(), uri);
}

static void a_hot_key_is_rebuilt_ahead_of_time_by_one_and_nobody_waits_on_memcached(void **state) {
  (void)state;
  const char *uri = memcached_uri();
  check_hot_key(lab_new(), uri);
}

static void a_hot_key_is_rebuilt_ahead_of_time_by_one_and_nobody_waits_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new();
  check_hot_key(l, lab_lmdb(l, "store"));
}

/* ---- what a wait costs the server ---------------------------------------------------------- */

enum { AWAITED = 6, COST_MS = 100 };

static void ask_rounds(lab_seat *seat) {
  lab *l = seat->lab;
  for (int round = 0; round < AWAITED; round++) {
    lab_work work = {.key = round, .cost_ms = COST_MS};
    lab_meet(l, &l->marks[MEETING], PROCESSES * THREADS, round + 1);
    lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 20000, LONG_LEASE), &work);
    lab_agree(l, round, &answer);
  }
}

static long long calls_of(const char *command) {
  char name[64];
  snprintf(name, sizeof name, "cmdstat_%s:calls=", command);
  const char *at = strstr(redis_server_ask(server, "INFO commandstats"), name);
  return at == NULL ? 0 : strtoll(at + strlen(name), NULL, 10);
}

static long long scripts_sent(void) { return calls_of("evalsha") + calls_of("eval"); }

/* A look is a GETRANGE. Each script calls that too, and the server counts those calls. */
static long long looks_sent(void) { return calls_of("getrange") - scripts_sent(); }

/* A few too many: SET and PTTL within scripts count as sent, too. */
static long long commands_sent(void) {
  return looks_sent() + scripts_sent() + calls_of("set") + calls_of("pttl") +
         calls_of("client|caching");
}

static void waiters_are_woken_and_ask_little(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  lab *l = lab_new();
  long long before = commands_sent();
  lab_spawn(
      l, &(lab_plan){.uri = uri, .processes = PROCESSES, .threads = THREADS, .body = ask_rounds});
  lab_end(l);
  double commands = (double)(commands_sent() - before) / AWAITED / (PROCESSES * THREADS);
  print_message("           commands sent to the server for each caller: %.3f\n", commands);
  /* includes the first round, in which the watch opens; without it about 0.2 */
  assert_true(commands < 0.3);
  for (int round = 0; round < AWAITED; round++) assert_int_equal(l->keys[round].computes, 1);
  lab_free(l);
}

/* ---- a failing origin ---------------------------------------------------------------------- */

static void ask_a_dead_origin(lab_seat *seat) {
  lab_work work = {.key = 0, .cost_ms = 100, .failure = "the origin is on fire"};
  lab_meet(seat->lab, &seat->lab->marks[MEETING], 4 * FAILING, 1);
  lab_answer answer =
      lab_ask(seat, CORRAL_POLICY(.retry_ms = 20000, .wait_ms = 10000, LONG_LEASE), &work);
  if (answer.status != CORRAL_EFAILED || answer.error.status != CORRAL_EFAILED)
    lab_wrong(seat->lab, "a failing compute gave %s", corral_status_name(answer.status));
  else if (strcmp(answer.error.text, "the origin is on fire") != 0 || answer.error.code != 7)
    lab_wrong(seat->lab, "a caller was told '%s', code %d", answer.error.text, answer.error.code);
  else if (answer.error.retry_after_ms < 5000 || answer.error.retry_after_ms > 20000)
    lab_wrong(seat->lab, "retry_after_ms is %lld", (long long)answer.error.retry_after_ms);
}

static void check_one_failing_compute(lab *l, const char *uri) {
  lab_spawn(l,
            &(lab_plan){.uri = uri, .processes = 4, .threads = FAILING, .body = ask_a_dead_origin});
  lab_end(l);
  assert_int_equal(l->keys[0].computes, 1);
  int failures = 0;
  for (int i = 0; i < l->count; i++) failures += l->events[i][CORRAL_EVENT_FAILURE];
  assert_int_equal(failures, 1);
  lab_free(l);
}

static void sixty_four_callers_of_a_failing_compute_share_its_one_failure_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new();
  check_one_failing_compute(l, lab_lmdb(l, "store"));
}

static void sixty_four_callers_of_a_failing_compute_share_its_one_failure_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_one_failing_compute(lab_new(), uri);
}

static void
sixty_four_callers_of_a_failing_compute_share_its_one_failure_on_memcached(void **state) {
  (void)state;
  const char *uri = memcached_uri();
  check_one_failing_compute(lab_new(), uri);
}

/* ---- pauses between looks ------------------------------------------------------------------ */

static void ask_key_0(lab_seat *seat) {
  lab_work work = {.key = 0, .gate = &seat->lab->marks[GATE]};
  lab_answer answer = lab_ask(
      seat, CORRAL_POLICY(.wait_ms = 10000, .poll_ms = 5, .poll_max_ms = 40, LONG_LEASE), &work);
  lab_agree(seat->lab, 0, &answer);
  lab_add(&seat->lab->marks[ANSWERED], 1);
}

/* Looks sent by a process with this number of waiting threads, for 20 looks of its poller. */
static long long count_gets(int threads) {
  const char *uri = emptied_redis(server);
  lab *l = lab_new();
  lab_spawn(l, &(lab_plan){.uri = uri, .processes = 1, .threads = 1, .body = ask_key_0});
  lab_await(l, &l->keys[0].computes, 1);
  long long before = looks_sent();
  lab_spawn(l, &(lab_plan){.uri = uri, .processes = 1, .threads = threads, .body = ask_key_0});
  lab_await(l, &l->events[1][CORRAL_EVENT_JOIN], threads - 1);
  lab_await(l, &l->events[1][CORRAL_EVENT_POLL], 20);
  long long gets;
  int polls;
  do { /* until no poll comes in between */
    polls = l->events[1][CORRAL_EVENT_POLL];
    gets = looks_sent() - before;
  } while (l->events[1][CORRAL_EVENT_POLL] != polls);
  /* the watch reads the key once, and again after each change of its lease */
  int reads = 1 + l->events[0][CORRAL_EVENT_EXTEND];
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  assert_int_equal(l->marks[ANSWERED], threads + 1);
  assert_int_equal(l->keys[0].computes, 1);
  assert_int_equal(l->events[1][CORRAL_EVENT_WAIT], 1);
  assert_in_range(gets, 20, polls + 1 + reads);
  lab_free(l);
  return gets * 20 / polls;
}

static void fifty_waiting_threads_cost_the_server_the_polls_of_one(void **state) {
  (void)state;
  long long one = count_gets(1), fifty = count_gets(WAITERS);
  print_message(
      "           GETs until the 20th poll: 1 waiting thread %lld, %d waiting threads %lld\n", one,
      WAITERS, fifty);
  assert_true(fifty < 2 * one);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_hundred_callers_in_four_processes_cost_one_compute_on_lmdb),
      cmocka_unit_test(two_hundred_callers_in_four_processes_cost_one_compute_on_redis),
      cmocka_unit_test(two_hundred_callers_in_four_processes_cost_one_compute_on_redis_by_tcp),
      cmocka_unit_test(
          two_hundred_callers_in_four_processes_cost_one_compute_on_two_memcached_servers),
      cmocka_unit_test(waiters_are_woken_and_ask_little),
      cmocka_unit_test(a_hot_key_is_rebuilt_ahead_of_time_by_one_and_nobody_waits_on_redis),
      cmocka_unit_test(a_hot_key_is_rebuilt_ahead_of_time_by_one_and_nobody_waits_on_memcached),
      cmocka_unit_test(a_hot_key_is_rebuilt_ahead_of_time_by_one_and_nobody_waits_on_lmdb),
      cmocka_unit_test(sixty_four_callers_of_a_failing_compute_share_its_one_failure_on_memcached),
      cmocka_unit_test(sixty_four_callers_of_a_failing_compute_share_its_one_failure_on_lmdb),
      cmocka_unit_test(sixty_four_callers_of_a_failing_compute_share_its_one_failure_on_redis),
      cmocka_unit_test(fifty_waiting_threads_cost_the_server_the_polls_of_one),
  };
  redis_server_start(&server, NULL);
  for (int i = 0; i < 2; i++) memcached_server_start(&pair[i], NULL);
  int failed = cmocka_run_group_tests_name("storm", tests, NULL, NULL);
  redis_server_stop(server);
  for (int i = 0; i < 2; i++) memcached_server_stop(pair[i]);
  return failed;
}
