/* test_sick_memcached.c: one of two memcached servers is stopped, killed and restarted under
 * load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/herd_lab.h"
#include "support/memcached_server.h"

enum { THREADS = 4, RESTED = 2000 };
enum { STOP, READY, GO, VERSION }; /* marks */

static memcached_server *pair[2];

static lab *begin(void (*body)(lab_seat *seat)) {
  static char uri[96];
  if (pair[0] == NULL || pair[1] == NULL) skip();
  lab *l = lab_new();
  lab_add(&l->marks[VERSION], 1);
  for (int i = 0; i < 2; i++) memcached_server_ask(pair[i], "flush_all");
  snprintf(uri, sizeof uri, "memcached://127.0.0.1:%d,127.0.0.1:%d",
           memcached_server_tcp_port(pair[0]), memcached_server_tcp_port(pair[1]));
  lab_spawn(l, &(lab_plan){.uri = uri, .processes = 1, .threads = THREADS, .body = body});
  lab_await(l, &l->events[0][CORRAL_EVENT_HIT], 200);
  return l;
}

static void ask_any(lab_seat *seat, unsigned *dice) {
  *dice = *dice * 1103515245u + 12345u;
  lab_work work = {.key = (int)(*dice >> 16) % LAB_KEYS,
                   .version = (uint64_t)seat->lab->marks[VERSION]};
  lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 20000), &work);
  if (answer.status != CORRAL_OK)
    lab_wrong(seat->lab, "%s: %s", corral_status_name(answer.status), answer.error.text);
}

static void ask_until_stopped(lab_seat *seat) {
  unsigned dice = (unsigned)seat->thread + 1;
  while (seat->lab->marks[STOP] == 0) ask_any(seat, &dice);
}

static void a_hung_server_is_done_without_and_used_again_when_it_goes_on(void **state) {
  (void)state;
  lab *l = begin(ask_until_stopped);
  memcached_server_pause(pair[0]);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_DOWN], 1);
  lab_await(l, &l->events[0][CORRAL_EVENT_DEGRADED], RESTED);
  int hits = l->events[0][CORRAL_EVENT_HIT];
  lab_await(l, &l->events[0][CORRAL_EVENT_HIT], hits + 500); /* hits of the other server's keys */
  memcached_server_resume(pair[0]);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  assert_int_equal(l->events[0][CORRAL_EVENT_STORE_DOWN], 1);
  for (int k = 0; k < LAB_KEYS; k++) assert_in_range(l->keys[k].most, 0, 1);
  lab_free(l);
}

static void ask_behind_the_gate(lab_seat *seat) {
  lab *l = seat->lab;
  unsigned dice = (unsigned)seat->thread + 1;
  for (int i = 0; i < 200; i++) ask_any(seat, &dice);
  lab_add(&l->marks[READY], 1);
  lab_await(l, &l->marks[GO], 1);
  ask_until_stopped(seat);
}

/* A server that goes on reads what its callers have left, and closes their connections. */
static void await_left(memcached_server *server, long long connections) {
  enum { LOOK_MS = 5 };
  for (int looks = 0; looks < LAB_PATIENCE_MS / LOOK_MS; looks++, lab_sleep_ms(LOOK_MS))
    if (memcached_server_stat(server, "cmd_get") > 0 &&
        memcached_server_stat(server, "curr_connections") <= connections)
      return;
}

/* By the server's own count, read when all callers are gone: what came while it hung. */
static void a_resting_server_is_sent_no_more_than_opens_the_breaker_and_probes(void **state) {
  (void)state;
  if (pair[0] == NULL) skip();
  long long connections = memcached_server_stat(pair[0], "curr_connections");
  lab *l = begin(ask_behind_the_gate);
  lab_await(l, &l->marks[READY], THREADS);
  memcached_server_ask(pair[0], "stats reset");
  memcached_server_pause(pair[0]);
  lab_add(&l->marks[GO], 1);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_DOWN], 1);
  lab_await(l, &l->events[0][CORRAL_EVENT_DEGRADED], RESTED);
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  memcached_server_resume(pair[0]);
  await_left(pair[0], connections);
  assert_in_range(memcached_server_stat(pair[0], "cmd_get"), 1, RESTED / 10);
  lab_free(l);
}

static int all_computes(const lab *l) {
  int all = 0;
  for (int k = 0; k < LAB_KEYS; k++) all += l->keys[k].computes;
  return all;
}

/* The keys of the killed server aren't moved to the other one. When it is back, calls that found it
 * away may still compute. */
static void the_keys_of_a_killed_server_are_elected_anew_once_when_it_is_back(void **state) {
  (void)state;
  lab *l = begin(ask_until_stopped);
  memcached_server_kill(pair[1]);
  lab_await(l, &l->events[0][CORRAL_EVENT_OUTBOX], 20);
  memcached_server_restart(pair[1]);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
  int computes = all_computes(l), hits = l->events[0][CORRAL_EVENT_HIT];
  lab_await(l, &l->events[0][CORRAL_EVENT_HIT], hits + 500);
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  assert_int_equal(l->events[0][CORRAL_EVENT_REPLAYED], 0);
  assert_in_range(memcached_server_stat(pair[1], "curr_items"), 1, LAB_KEYS);
  assert_in_range(all_computes(l) - computes, 0, LAB_KEYS + THREADS);
  for (int k = 0; k < LAB_KEYS; k++) assert_in_range(l->keys[k].most, 0, 1);
  lab_free(l);
}

static void a_hung_server_that_has_its_values_still_is_given_the_later_versions(void **state) {
  (void)state;
  lab *l = begin(ask_until_stopped);
  memcached_server_pause(pair[1]);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_DOWN], 1);
  int held = l->events[0][CORRAL_EVENT_OUTBOX];
  lab_add(&l->marks[VERSION], 1);
  lab_await(l, &l->events[0][CORRAL_EVENT_OUTBOX], held + 20 * LAB_KEYS);
  memcached_server_resume(pair[1]);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
  assert_in_range(l->events[0][CORRAL_EVENT_REPLAYED], 1, LAB_KEYS);
  lab_add(&l->marks[STOP], 1);
  lab_end(l);
  lab_free(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hung_server_is_done_without_and_used_again_when_it_goes_on),
      cmocka_unit_test(a_resting_server_is_sent_no_more_than_opens_the_breaker_and_probes),
      cmocka_unit_test(the_keys_of_a_killed_server_are_elected_anew_once_when_it_is_back),
      cmocka_unit_test(a_hung_server_that_has_its_values_still_is_given_the_later_versions),
  };
  for (int i = 0; i < 2; i++) memcached_server_start(&pair[i], NULL);
  int failed = cmocka_run_group_tests_name("sick_memcached", tests, NULL, NULL);
  for (int i = 0; i < 2; i++) memcached_server_stop(pair[i]);
  return failed;
}
