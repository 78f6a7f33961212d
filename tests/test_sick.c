/* test_sick.c: Redis is killed, restarted, stopped and emptied during a storm of two processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/herd_lab.h"
#include "support/redis_server.h"
#include "support/server_process.h"

enum { PROCESSES = 2, THREADS = 20, KEYS = 4, WAIT_MS = 500, PATIENCE_MS = 20000 };
enum { STOP, MEETING }; /* lab marks */

static redis_server *server;
static int64_t wait_ms = WAIT_MS;

/* ---- the storm ----------------------------------------------------------------------------- */

/* Values live for 200 ms, so there is always one to compute. */
static void storm(lab_seat *seat) {
  lab *l = seat->lab;
  unsigned dice = (unsigned)(seat->process * THREADS + seat->thread);
  lab_meet(l, &l->marks[MEETING], PROCESSES * THREADS, 1);
  while (l->marks[STOP] == 0) {
    dice = dice * 1103515245u + 12345u;
    lab_work work = {.key = (int)(dice >> 16) % KEYS, .cost_ms = 5};
    lab_answer answer = lab_ask(
        seat, CORRAL_POLICY(.ttl_ms = 200, .wait_ms = wait_ms, .lease_ms = 300, .poll_max_ms = 20),
        &work);
    if (answer.status != CORRAL_OK && answer.status != CORRAL_EDEADLINE)
      lab_wrong(l, "key-%d: %s: %s", work.key, corral_status_name(answer.status),
                answer.error.text);
    lab_sleep_ms(1);
  }
}

static lab *begin(const char *uri, int64_t op_ms) {
  lab *l = lab_new();
  redis_server_ask(server, "FLUSHALL");
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = PROCESSES,
                           .threads = THREADS,
                           .body = storm,
                           .options = {.op_ms = op_ms, .breaker_rest_ms = 100, .away_ms = 300}});
  for (int i = 0; i < PROCESSES; i++) lab_await(l, &l->events[i][CORRAL_EVENT_HIT], 50);
  return l;
}

/* Waits until each process has computed without the store several times. */
static void await_degraded(lab *l) {
  for (int i = 0; i < PROCESSES; i++)
    lab_await(l, &l->events[i][CORRAL_EVENT_DEGRADED], l->events[i][CORRAL_EVENT_DEGRADED] + 20);
}

/* Waits until the store's elections work again, and fills are found. */
static void await_hits(lab *l) {
  int hits[PROCESSES], fills[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) {
    hits[i] = l->events[i][CORRAL_EVENT_HIT];
    fills[i] = l->events[i][CORRAL_EVENT_FILL];
  }
  for (int i = 0; i < PROCESSES; i++) {
    if (!lab_await_ms(&l->events[i][CORRAL_EVENT_HIT], hits[i] + 50, PATIENCE_MS) ||
        !lab_await_ms(&l->events[i][CORRAL_EVENT_FILL], fills[i] + 2, PATIENCE_MS))
      fail_msg("process %d: only %d hits and %d fills; %s", i,
               l->events[i][CORRAL_EVENT_HIT] - hits[i], l->events[i][CORRAL_EVENT_FILL] - fills[i],
               l->detail[CORRAL_EVENT_STORE_ERROR]);
  }
}

static void end(lab *l) {
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  assert_true(l->longest_ms <= WAIT_MS + PATIENCE_MS);
  for (int k = 0; k < KEYS; k++)
    for (int i = 0; i < PROCESSES; i++) assert_in_range(l->keys[k].process_most[i], 0, 1);
  lab_free(l);
}

/* ---- faults -------------------------------------------------------------------------------- */

static void a_killed_server_is_done_without_and_used_again_once_it_is_back(void **state) {
  (void)state;
  lab *l = begin(redis_server_uri(server), 100);
  for (int i = 0; i < 2; i++) {
    redis_server_kill(server);
    await_degraded(l);
    redis_server_restart(server);
    await_hits(l);
  }
  for (int i = 0; i < PROCESSES; i++) {
    lab_await(l, &l->events[i][CORRAL_EVENT_STORE_DOWN], 1);
    lab_await(l, &l->events[i][CORRAL_EVENT_STORE_UP], 1);
  }
  end(l);
}

static void a_server_on_a_unix_socket_may_be_killed_as_well(void **state) {
  (void)state;
  lab *l = begin(redis_server_unix_uri(server), 100);
  redis_server_kill(server);
  await_degraded(l);
  redis_server_restart(server);
  await_hits(l);
  end(l);
}

static void a_hung_server_holds_up_nobody_beyond_the_deadline(void **state) {
  (void)state;
  lab *l = begin(redis_server_uri(server), 100);
  for (int i = 0; i < 2; i++) {
    redis_server_pause(server);
    await_degraded(l);
    redis_server_resume(server);
    await_hits(l);
  }
  end(l);
}

static void an_emptied_server_is_filled_again(void **state) {
  (void)state;
  lab *l = begin(redis_server_uri(server), 100);
  for (int i = 0; i < 5; i++) {
    redis_server_ask(server, "FLUSHALL");
    await_hits(l);
  }
  end(l);
}

static void a_server_that_forgot_the_scripts_is_told_them_again(void **state) {
  (void)state;
  wait_ms = PATIENCE_MS; /* an operation ends with its call */
  lab *l = begin(redis_server_uri(server), PATIENCE_MS);
  wait_ms = WAIT_MS;
  for (int i = 0; i < 5; i++) {
    redis_server_ask(server, "SCRIPT FLUSH");
    await_hits(l);
  }
  for (int i = 0; i < PROCESSES; i++)
    if (l->events[i][CORRAL_EVENT_STORE_ERROR] > 0)
      fail_msg("store_error: %s", l->detail[CORRAL_EVENT_STORE_ERROR]);
  end(l);
}

/* ---- a store that never existed ------------------------------------------------------------ */

static void ask_without_a_store(lab_seat *seat) {
  lab_work work = {.key = 0, .cost_ms = 20};
  lab_meet(seat->lab, &seat->lab->marks[MEETING], THREADS, 1);
  lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = PATIENCE_MS), &work);
  if (answer.status != CORRAL_OK)
    lab_wrong(seat->lab, "%s: %s", corral_status_name(answer.status), answer.error.text);
  if (answer.how == CORRAL_COMPUTED && answer.kept != CORRAL_KEPT_NOT)
    lab_wrong(seat->lab, "kept is %d", (int)answer.kept);
  lab_answer look = lab_look(seat->lab, seat->corral, 0);
  if (look.status != CORRAL_EUNAVAILABLE || look.error.text[0] == '\0')
    lab_wrong(seat->lab, "a look gave %s, '%s'", corral_status_name(look.status), look.error.text);
}

static void a_store_that_was_never_there_is_done_without_and_the_event_tells_why(void **state) {
  (void)state;
  lab *l = lab_new();
  char uri[64], port[12];
  snprintf(port, sizeof port, "%d", server_process_free_port());
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%s", port);
  lab_spawn(
      l, &(lab_plan){.uri = uri, .processes = 1, .threads = THREADS, .body = ask_without_a_store});
  lab_end(l);
  print_message("           store_error: %s\n", l->detail[CORRAL_EVENT_STORE_ERROR]);
  assert_non_null(strstr(l->detail[CORRAL_EVENT_STORE_ERROR], port));
  assert_non_null(strstr(l->detail[CORRAL_EVENT_STORE_ERROR], "refused"));
  assert_int_equal(l->keys[0].most, 1);
  assert_int_equal(l->events[0][CORRAL_EVENT_STORE_DOWN], 1);
  assert_true(l->events[0][CORRAL_EVENT_DEGRADED] > 0);
  lab_free(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_killed_server_is_done_without_and_used_again_once_it_is_back),
      cmocka_unit_test(a_server_on_a_unix_socket_may_be_killed_as_well),
      cmocka_unit_test(a_hung_server_holds_up_nobody_beyond_the_deadline),
      cmocka_unit_test(an_emptied_server_is_filled_again),
      cmocka_unit_test(a_server_that_forgot_the_scripts_is_told_them_again),
      cmocka_unit_test(a_store_that_was_never_there_is_done_without_and_the_event_tells_why),
  };
  if (!redis_server_start(&server, NULL)) return 77;
  int failed = cmocka_run_group_tests_name("sick", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
