/* test_semaphore.c: max_computes and fleet_max_computes, and the answers of calls beyond the
 * limit. */
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
#include "support/redis_server.h"

enum { MOST = 3, THREADS = 24, FLEET = 3, FLEET_THREADS = 6 };
enum { MEETING, GATE, ANSWERED }; /* lab marks */

static redis_server *server;

static void ask_own_key(lab_seat *seat) {
  lab_work work = {.key = seat->process * FLEET_THREADS % LAB_KEYS + seat->thread,
                   .gate = &seat->lab->marks[GATE]};
  lab_meet(seat->lab, &seat->lab->marks[MEETING], *(int *)seat->arg, 1);
  lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 30000), &work);
  if (answer.status != CORRAL_OK)
    lab_wrong(seat->lab, "%s: %s", corral_status_name(answer.status), answer.error.text);
}

static int events_of(lab *l, corral_event event) {
  int count = 0;
  for (int i = 0; i < l->count; i++) count += l->events[i][event];
  return count;
}

/* ---- one process --------------------------------------------------------------------------- */

static void a_process_computes_at_most_so_many_keys_at_once(void **state) {
  (void)state;
  lab *l = lab_new();
  int all = THREADS;
  lab_spawn(l, &(lab_plan){.uri = "memory:",
                           .processes = 1,
                           .threads = THREADS,
                           .body = ask_own_key,
                           .arg = &all,
                           .options = {.max_computes = MOST}});
  lab_await(l, &l->computing, MOST);
  lab_await(l, &l->events[0][CORRAL_EVENT_LIMITED], 1);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  print_message("           %d keys, %d computes at a time\n", THREADS, l->most_computing);
  assert_int_equal(l->most_computing, MOST);
  assert_int_equal(l->events[0][CORRAL_EVENT_COMPUTE], THREADS);
  lab_free(l);
}

/* Thread 0 computes key 0 until the gate opens, and has less patience than wait_ms; the other
 * thread gets no slot. */
static void stale_or_nothing(lab_seat *seat) {
  lab *l = seat->lab;
  if (seat->thread == 0) {
    lab_work stale = {.key = 1}, busy = {.key = 0, .gate = &l->marks[GATE]};
    lab_ask(seat, CORRAL_POLICY(.ttl_ms = 1, .sie_ms = 60000), &stale);
    lab_sleep_ms(3);
    lab_ask(seat, CORRAL_POLICY(.wait_ms = 60000), &busy);
    return;
  }
  lab_await(l, &l->keys[0].computes, 1);
  lab_work stale = {.key = 1}, cold = {.key = 2};
  lab_answer answer =
      lab_ask(seat, CORRAL_POLICY(.ttl_ms = 1, .sie_ms = 60000, .wait_ms = 60000), &stale);
  if (answer.status != CORRAL_OK || answer.how != CORRAL_STALE)
    lab_wrong(l, "with a stale value at hand: %s, %s", corral_status_name(answer.status),
              corral_how_name(answer.how));
  answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 60), &cold);
  if (answer.status != CORRAL_EDEADLINE)
    lab_wrong(l, "without any value: %s", corral_status_name(answer.status));
  lab_add(&l->marks[GATE], 1);
  answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 8000), &cold);
  if (answer.status != CORRAL_OK)
    lab_wrong(l, "with the slot free: %s", corral_status_name(answer.status));
}

static void past_the_limit_stale_is_taken_and_who_has_none_waits_within_its_deadline(void **state) {
  (void)state;
  lab *l = lab_new();
  lab_spawn(l, &(lab_plan){.uri = "memory:",
                           .processes = 1,
                           .threads = 2,
                           .body = stale_or_nothing,
                           .options = {.max_computes = 1}});
  lab_end(l);
  assert_int_equal(l->most_computing, 1);
  assert_int_equal(l->keys[1].computes, 1);
  lab_free(l);
}

static int compute_inner(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, key_len);
}

static int compute_outer(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  lab_seat *seat = arg;
  corral_value *value = NULL;
  int status = corral_get_or_compute(seat->corral, "inner", 5,
                                     CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 10000)),
                                     compute_inner, NULL, &value);
  if (status != CORRAL_OK) lab_wrong(seat->lab, "the inner key: %s", corral_status_name(status));
  corral_value_unref(value);
  return corral_fill_bytes(fill, key, key_len);
}

static void ask_outer(lab_seat *seat) {
  corral_value *value = NULL;
  int status = corral_get_or_compute(seat->corral, "outer", 5, NULL, compute_outer, seat, &value);
  if (status != CORRAL_OK) lab_wrong(seat->lab, "the outer key: %s", corral_status_name(status));
  corral_value_unref(value);
}

static void a_compute_within_a_compute_needs_no_second_slot(void **state) {
  (void)state;
  lab *l = lab_new();
  lab_spawn(l, &(lab_plan){.uri = "memory:",
                           .processes = 1,
                           .threads = 1,
                           .body = ask_outer,
                           .options = {.max_computes = 1, .fleet_max_computes = 1}});
  lab_end(l);
  lab_free(l);
}

/* ---- the fleet ----------------------------------------------------------------------------- */

static void check_fleet(lab *l, const char *uri) {
  static const corral_policy long_lease = {.size = sizeof long_lease, .lease_ms = 60000};
  int all = 4 * FLEET_THREADS;
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = 4,
                           .threads = FLEET_THREADS,
                           .body = ask_own_key,
                           .arg = &all,
                           .options = {.fleet_max_computes = FLEET,
                                       .origin = "the database",
                                       .policy = &long_lease}});
  lab_await(l, &l->computing, FLEET);
  lab_await(l, &l->events[0][CORRAL_EVENT_LIMITED], 1);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  print_message("           4 processes, %d keys: %d computes at a time\n", all, l->most_computing);
  assert_int_equal(l->most_computing, FLEET);
  assert_int_equal(events_of(l, CORRAL_EVENT_COMPUTE), all);
  lab_free(l);
}

static void a_fleet_computes_at_most_so_many_keys_at_once_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_fleet(lab_new(), uri);
}

static void a_fleet_computes_at_most_so_many_keys_at_once_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new();
  check_fleet(l, lab_lmdb(l, "store"));
}

static void ask_at_the_gate(lab_seat *seat) {
  lab_work work = {.key = seat->process, .gate = &seat->lab->marks[GATE]};
  lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 60000), &work);
  if (answer.status != CORRAL_OK)
    lab_wrong(seat->lab, "%s: %s", corral_status_name(answer.status), answer.error.text);
}

static void one_more(lab *l, const char *uri, const char *origin) {
  static const corral_policy policy = {
      .size = sizeof policy, .lease_ms = 6000, .lease_min_ms = 6000};
  lab_spawn(l,
            &(lab_plan){.uri = uri,
                        .processes = 1,
                        .threads = 1,
                        .body = ask_at_the_gate,
                        .options = {.fleet_max_computes = 1, .origin = origin, .policy = &policy}});
}

static void the_slot_of_a_killed_process_is_free_when_its_lease_ends(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  lab *l = lab_new();
  one_more(l, uri, NULL);
  lab_await(l, &l->keys[0].computes, 1);
  one_more(l, uri, NULL);
  /* Longer than the lease: the extended slot stays with its holder. The key's lease is extended,
   * too, every 2 s. */
  lab_await(l, &l->events[0][CORRAL_EVENT_EXTEND], 8);
  assert_int_equal(l->keys[1].computes, 0);
  lab_kill(l, 0);
  lab_await(l, &l->keys[1].computes, 1);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  lab_free(l);
}

static void origins_of_other_names_don_t_share_slots(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  lab *l = lab_new();
  one_more(l, uri, "a");
  one_more(l, uri, "b");
  lab_await(l, &l->keys[0].computes, 1);
  lab_await(l, &l->keys[1].computes, 1);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  lab_free(l);
}

static void without_the_store_the_process_s_own_limit_remains(void **state) {
  (void)state;
  emptied_redis(server);
  lab *l = lab_new();
  int all = FLEET_THREADS;
  redis_server_kill(server);
  lab_spawn(l, &(lab_plan){.uri = redis_server_uri(server),
                           .processes = 1,
                           .threads = FLEET_THREADS,
                           .body = ask_own_key,
                           .arg = &all,
                           .options = {.max_computes = 2, .fleet_max_computes = 4}});
  lab_await(l, &l->computing, 2);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  redis_server_restart(server);
  assert_int_equal(l->most_computing, 2);
  assert_int_equal(l->events[0][CORRAL_EVENT_DEGRADED], FLEET_THREADS);
  lab_free(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_computes_at_most_so_many_keys_at_once),
      cmocka_unit_test(past_the_limit_stale_is_taken_and_who_has_none_waits_within_its_deadline),
      cmocka_unit_test(a_compute_within_a_compute_needs_no_second_slot),
      cmocka_unit_test(a_fleet_computes_at_most_so_many_keys_at_once_on_redis),
      cmocka_unit_test(a_fleet_computes_at_most_so_many_keys_at_once_on_lmdb),
      cmocka_unit_test(the_slot_of_a_killed_process_is_free_when_its_lease_ends),
      cmocka_unit_test(origins_of_other_names_don_t_share_slots),
      cmocka_unit_test(without_the_store_the_process_s_own_limit_remains),
  };
  redis_server_start(&server, NULL);
  int failed = cmocka_run_group_tests_name("origin", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
