/* test_ladder.c: the host lock: eight processes of one host with one Redis, which runs, is away, or
 * whose leader dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/history_kit.h"
#include "support/redis_server.h"

enum { PROCESSES = 8, THREADS = 25, ROUNDS = 20, KEYS = 2, AWAY_OP_MS = 1000, LEASE_MS = 60000 };
enum { MEETING, GATE, STOP, ANSWERED }; /* lab marks */

static redis_server *server;

static lab *fresh_lab(void) {
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  return lab_new_recorded();
}

/* Starts this many processes with host_lock. */
static void climb_with(lab *l, int64_t op_ms, int processes, int threads,
                       void (*body)(lab_seat *seat)) {
  lab_spawn(l, &(lab_plan){.uri = redis_server_uri(server),
                           .processes = processes,
                           .threads = threads,
                           .body = body,
                           .options = {.host_lock = 1,
                                       .host_dir = l->folder,
                                       .op_ms = op_ms,
                                       .breaker_rest_ms = 100,
                                       .away_ms = op_ms}});
}

/* The store is to be there; a busy machine must not look like one that is away. */
static void climb(lab *l, int processes, int threads, void (*body)(lab_seat *seat)) {
  climb_with(l, 30000, processes, threads, body);
}

/* ---- one claim per host -------------------------------------------------------------------- */

static long long calls_of(const char *command) {
  char name[64];
  snprintf(name, sizeof name, "cmdstat_%s:calls=", command);
  const char *at = strstr(redis_server_ask(server, "INFO commandstats"), name);
  return at == NULL ? 0 : strtoll(at + strlen(name), NULL, 10);
}

/* A lease that nobody needs to extend, on a busy machine either: that would be one more script. */
static const corral_policy patient = {
    .size = sizeof patient, .wait_ms = 30000, .lease_ms = LEASE_MS, .lease_min_ms = LEASE_MS};

static void ask_each_round(lab_seat *seat) {
  for (int round = 0; round < ROUNDS; round++) {
    lab_work work = {.key = round, .cost_ms = 10};
    lab_meet(seat->lab, &seat->lab->marks[MEETING], PROCESSES * THREADS, round + 1);
    lab_answer answer = lab_ask(seat, &patient, &work);
    lab_agree(seat->lab, round, &answer);
  }
}

static void ask_once(lab_seat *seat) {
  lab_work work = {.key = LAB_KEYS - 1};
  lab_ask(seat, &patient, &work);
}

/* Per round one CLAIM, which is one SET and no script, and one SETTLE, which is a script with one
 * SET. */
static void eight_processes_of_a_host_send_one_claim_per_miss(void **state) {
  (void)state;
  lab *l = fresh_lab();
  climb(l, 1, 1, ask_once); /* loads the scripts into the server */
  lab_end(l);
  lab_free(l);
  l = lab_new_recorded();
  long long scripts = calls_of("evalsha") + calls_of("eval"), looks = calls_of("getrange"),
            sets = calls_of("set");
  climb(l, PROCESSES, THREADS, ask_each_round);
  lab_end(l);
  scripts = calls_of("evalsha") + calls_of("eval") - scripts;
  sets = calls_of("set") - sets;
  looks = calls_of("getrange") - looks - scripts; /* each script reads the record once */
  print_message("           %d rounds of %d callers: %lld scripts, %lld looks\n", ROUNDS,
                PROCESSES * THREADS, scripts, looks);
  for (int round = 0; round < ROUNDS; round++) assert_int_equal(l->keys[round].computes, 1);
  assert_int_equal(scripts, ROUNDS);
  assert_int_equal(sets, 2 * ROUNDS);
  lab_free(l);
}

/* ---- Redis is away ------------------------------------------------------------------------- */

static void keep_asking(lab_seat *seat) {
  lab *l = seat->lab;
  for (int i = 0; l->marks[STOP] == 0; i++) {
    lab_work work = {.key = (seat->thread + i) % KEYS, .cost_ms = 3};
    lab_answer answer = lab_ask(seat, CORRAL_POLICY(.ttl_ms = 50, .wait_ms = 400), &work);
    if (answer.status != CORRAL_OK && answer.status != CORRAL_EDEADLINE)
      lab_wrong(l, "key-%d: %s: %s", work.key, corral_status_name(answer.status),
                answer.error.text);
  }
}

static void with_redis_stopped_one_process_of_a_host_computes_a_key_at_a_time(void **state) {
  (void)state;
  lab *l = fresh_lab();
  redis_server_pause(server);
  climb_with(l, AWAY_OP_MS, PROCESSES, THREADS, keep_asking);
  for (int i = 0; i < PROCESSES; i++) lab_await(l, &l->events[i][CORRAL_EVENT_DEGRADED], 3);
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  redis_server_resume(server);
  for (int k = 0; k < KEYS; k++) {
    print_message("           key-%d: %d computes without the store, %d at a time\n", k,
                  l->keys[k].computes, l->keys[k].most);
    assert_int_equal(l->keys[k].most, 1);
  }
  lab_free(l);
}

/* ---- the leader dies ----------------------------------------------------------------------- */

static void ask_with_a_lease(lab_seat *seat, int64_t lease_ms) {
  lab_work work = {.key = 0, .gate = &seat->lab->marks[GATE]};
  lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 20000, .lease_ms = lease_ms), &work);
  if (answer.status != CORRAL_OK)
    lab_wrong(seat->lab, "%s: %s", corral_status_name(answer.status), answer.error.text);
  lab_add(&seat->lab->marks[ANSWERED], 1);
}

static void ask_with_a_short_lease(lab_seat *seat) { ask_with_a_lease(seat, 400); }
static void ask_with_a_long_lease(lab_seat *seat) { ask_with_a_lease(seat, 60000); }

/* A process that waits for the host lock sees that its holder is gone, without waiting for the end
 * of a lease, which is longer than the test's patience. */
static void a_dead_leader_of_the_host_is_replaced_at_once_while_the_store_is_away(void **state) {
  (void)state;
  lab *l = fresh_lab();
  redis_server_kill(server);
  climb_with(l, AWAY_OP_MS, 1, 1, ask_with_a_long_lease);
  lab_await(l, &l->keys[0].computes, 1);
  climb_with(l, AWAY_OP_MS, 1, 1, ask_with_a_long_lease);
  lab_await(l, &l->events[1][CORRAL_EVENT_HOST_WAIT], 1);
  lab_kill(l, 0);
  lab_await(l, &l->keys[0].computes, 2);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  redis_server_restart(server);
  lab_free(l);
}

static void a_stopped_leader_of_the_host_is_passed_by_when_its_lease_is_over(void **state) {
  (void)state;
  lab *l = fresh_lab();
  climb(l, 1, 1, ask_with_a_short_lease);
  lab_await(l, &l->keys[0].computes, 1);
  lab_stop(l, 0);
  climb(l, 1, 1, ask_with_a_short_lease);
  lab_await(l, &l->keys[0].computes, 2);
  lab_add(&l->marks[GATE], 1);
  lab_await(l, &l->marks[ANSWERED], 1);
  lab_continue(l, 0);
  lab_end(l);
  assert_int_equal(l->marks[ANSWERED], 2);
  assert_int_equal(l->events[0][CORRAL_EVENT_FENCED] + l->events[0][CORRAL_EVENT_LEASE_LOST] > 0,
                   1);
  lab_free(l);
}

static void ask_twice(lab_seat *seat) {
  ask_with_a_short_lease(seat);
  if (seat->process == 0) return;
  (void)lab_invalidate(seat->lab, seat->corral, seat->process, 0);
  ask_with_a_short_lease(seat);
}

/* The second call doesn't wait at the host. */
static void a_stopped_leader_of_the_host_is_passed_by_once_for_all_calls(void **state) {
  (void)state;
  lab *l = fresh_lab();
  climb(l, 1, 1, ask_twice);
  lab_await(l, &l->keys[0].computes, 1);
  lab_stop(l, 0);
  lab_add(&l->marks[GATE], 1);
  climb(l, 1, 1, ask_twice);
  lab_await(l, &l->marks[ANSWERED], 2);
  lab_continue(l, 0);
  lab_end(l);
  assert_int_equal(l->events[1][CORRAL_EVENT_HOST_WAIT], 1);
  assert_int_equal(l->keys[0].computes, 3);
  lab_free(l);
}

/* ---- computes within computes -------------------------------------------------------------- */

static int ask_the_other(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  lab_seat *seat = arg;
  corral_value *value = NULL;
  const char *other = *(const char *)key == 'x' ? "y" : "x";
  lab_meet(seat->lab, &seat->lab->marks[MEETING], 2, 1);
  int status = corral_get_or_compute(seat->corral, other, 1,
                                     CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 300)),
                                     ask_the_other, seat, &value);
  corral_value_unref(value);
  if (status != CORRAL_EDEADLINE && status != CORRAL_OK)
    lab_wrong(seat->lab, "the other key: %s", corral_status_name(status));
  return corral_fill_bytes(fill, key, key_len);
}

static void ask_x_or_y(lab_seat *seat) {
  corral_value *value = NULL;
  int status = corral_get_or_compute(seat->corral, seat->process == 0 ? "x" : "y", 1,
                                     CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 20000)),
                                     ask_the_other, seat, &value);
  if (status != CORRAL_OK) lab_wrong(seat->lab, "%s", corral_status_name(status));
  corral_value_unref(value);
}

static void
two_processes_whose_computes_ask_for_each_other_s_key_end_by_their_deadlines(void **state) {
  (void)state;
  lab *l = fresh_lab();
  climb(l, 2, 1, ask_x_or_y);
  lab_end(l);
  lab_free(l);
}

/* ---- no host lock -------------------------------------------------------------------------- */

static void ask_without_a_folder(lab_seat *seat) {
  lab_work work = {.key = 0, .cost_ms = 5};
  lab_answer answer = lab_ask(seat, &patient, &work);
  if (answer.status != CORRAL_OK) lab_wrong(seat->lab, "%s", answer.error.text);
}

static void a_folder_that_can_t_be_used_is_told_and_the_store_elects(void **state) {
  (void)state;
  lab *l = fresh_lab();
  lab_spawn(l, &(lab_plan){.uri = redis_server_uri(server),
                           .processes = 2,
                           .threads = 3,
                           .body = ask_without_a_folder,
                           .options = {.host_lock = 1, .host_dir = "/dev/null/nowhere"}});
  lab_end(l);
  assert_int_equal(l->keys[0].computes, 1);
  assert_true(l->events[0][CORRAL_EVENT_HOST_ERROR] + l->events[1][CORRAL_EVENT_HOST_ERROR] > 0);
  assert_non_null(strstr(l->detail[CORRAL_EVENT_HOST_ERROR], "/dev/null/nowhere"));
  lab_free(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eight_processes_of_a_host_send_one_claim_per_miss),
      cmocka_unit_test(with_redis_stopped_one_process_of_a_host_computes_a_key_at_a_time),
      cmocka_unit_test(a_dead_leader_of_the_host_is_replaced_at_once_while_the_store_is_away),
      cmocka_unit_test(a_stopped_leader_of_the_host_is_passed_by_when_its_lease_is_over),
      cmocka_unit_test(a_stopped_leader_of_the_host_is_passed_by_once_for_all_calls),
      cmocka_unit_test(
          two_processes_whose_computes_ask_for_each_other_s_key_end_by_their_deadlines),
      cmocka_unit_test(a_folder_that_can_t_be_used_is_told_and_the_store_elects),
  };
  redis_server_start(&server, NULL);
  int failed = cmocka_run_group_tests_name("ladder", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
