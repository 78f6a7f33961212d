/* test_takeover.c: a leader that dies is replaced at once by its own host, and by no other one: on
 * Redis and memcached, with leases of a minute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "support/emptied.h"
#include "support/history_kit.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum { LEASE_MS = 60000, LOOKS = 8 };
enum { GATE, ANSWERED }; /* lab marks */

static redis_server *redis;
static memcached_server *memcached;

/* Starts one more process of the host that uses this folder. */
static void join(lab *l, const char *uri, const char *folder, void (*body)(lab_seat *seat)) {
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = 1,
                           .threads = 1,
                           .body = body,
                           .options = {.host_lock = 1, .host_dir = folder}});
}

static lab_answer ask(lab_seat *seat, int64_t wait_ms) {
  lab_work work = {.key = 0, .gate = &seat->lab->marks[GATE]};
  const corral_policy *policy = CORRAL_POLICY(.wait_ms = wait_ms, .lease_ms = LEASE_MS,
                                              .lease_min_ms = LEASE_MS, .poll_max_ms = 20);
  return lab_ask(seat, policy, &work);
}

static void ask_patiently(lab_seat *seat) {
  lab_answer answer = ask(seat, 50000);
  if (answer.status != CORRAL_OK)
    lab_wrong(seat->lab, "%s: %s", corral_status_name(answer.status), answer.error.text);
  lab_add(&seat->lab->marks[ANSWERED], 1);
}

/* ---- the same host ------------------------------------------------------------------------- */

static void replace_the_dead(const char *uri, int times) {
  lab *l = lab_new_recorded();
  join(l, uri, l->folder, ask_patiently);
  for (int i = 1; i <= times; i++) {
    lab_await(l, &l->keys[0].computes, i);
    join(l, uri, l->folder, ask_patiently);
    lab_await(l, &l->events[i][CORRAL_EVENT_HOST_WAIT], 1);
    lab_kill(l, i - 1);
  }
  lab_await(l, &l->keys[0].computes, times + 1);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  assert_int_equal(l->keys[0].computes, times + 1);
  assert_int_equal(l->events[times][CORRAL_EVENT_FILL], 1);
  assert_int_equal(l->marks[ANSWERED], 1);
  lab_free(l);
}

static void
a_dead_leader_is_replaced_by_its_host_long_before_its_lease_ends_on_redis(void **state) {
  (void)state;
  replace_the_dead(emptied_redis(redis), 1);
}

static void
a_dead_leader_is_replaced_by_its_host_long_before_its_lease_ends_on_memcached(void **state) {
  (void)state;
  replace_the_dead(emptied_memcached(memcached), 1);
}

static void who_replaced_a_dead_leader_and_dies_is_replaced_in_turn(void **state) {
  (void)state;
  replace_the_dead(emptied_redis(redis), 3);
}

/* No process waited at the death; a later one finds the host lock free. */
static void who_comes_after_the_death_of_a_leader_leads_at_once(void **state) {
  (void)state;
  const char *uri = emptied_redis(redis);
  lab *l = lab_new_recorded();
  join(l, uri, l->folder, ask_patiently);
  lab_await(l, &l->keys[0].computes, 1);
  lab_kill(l, 0);
  join(l, uri, l->folder, ask_patiently);
  lab_await(l, &l->keys[0].computes, 2);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  assert_int_equal(l->events[1][CORRAL_EVENT_FILL], 1);
  lab_free(l);
}

/* ---- another host -------------------------------------------------------------------------- */

/* The folder of a second host that shares only the store. */
static const char *other_folder(const lab *l) {
  static char other[64];
  snprintf(other, sizeof other, "%s/other", l->folder);
  assert_int_equal(mkdir(other, 0700), 0);
  return other;
}

/* The second host's lock is free; its holder sees a lease of another host. */
static void leave_the_living(const char *uri) {
  lab *l = lab_new_recorded();
  const char *other = other_folder(l);
  join(l, uri, l->folder, ask_patiently);
  lab_await(l, &l->keys[0].computes, 1);
  join(l, uri, other, ask_patiently);
  lab_await(l, &l->events[1][CORRAL_EVENT_POLL], LOOKS);
  assert_int_equal(l->keys[0].computes, 1);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  assert_int_equal(l->keys[0].computes, 1);
  assert_int_equal(l->events[0][CORRAL_EVENT_FILL], 1);
  assert_int_equal(l->events[0][CORRAL_EVENT_FENCED], 0);
  assert_int_equal(l->marks[ANSWERED], 2);
  lab_free(l);
}

static void
a_leader_of_another_host_is_never_replaced_before_its_lease_ends_on_redis(void **state) {
  (void)state;
  leave_the_living(emptied_redis(redis));
}

static void
a_leader_of_another_host_is_never_replaced_before_its_lease_ends_on_memcached(void **state) {
  (void)state;
  leave_the_living(emptied_memcached(memcached));
}

/* The host's last leader died; the lease that is now in the store belongs to another host. */
static void a_note_of_the_dead_proves_nothing_against_the_lease_of_another(void **state) {
  (void)state;
  const char *uri = emptied_redis(redis);
  lab *l = lab_new_recorded();
  const char *other = other_folder(l);
  join(l, uri, other, ask_patiently);
  lab_await(l, &l->keys[0].computes, 1);
  lab_kill(l, 0);
  redis_server_ask(redis, "FLUSHALL");
  join(l, uri, l->folder, ask_patiently);
  lab_await(l, &l->keys[0].computes, 2);
  join(l, uri, other, ask_patiently);
  lab_await(l, &l->events[2][CORRAL_EVENT_POLL], LOOKS);
  assert_int_equal(l->keys[0].computes, 2);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  assert_int_equal(l->keys[0].computes, 2);
  assert_int_equal(l->events[1][CORRAL_EVENT_FILL], 1);
  assert_int_equal(l->marks[ANSWERED], 2);
  lab_free(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_dead_leader_is_replaced_by_its_host_long_before_its_lease_ends_on_redis),
      cmocka_unit_test(
          a_dead_leader_is_replaced_by_its_host_long_before_its_lease_ends_on_memcached),
      cmocka_unit_test(who_replaced_a_dead_leader_and_dies_is_replaced_in_turn),
      cmocka_unit_test(who_comes_after_the_death_of_a_leader_leads_at_once),
      cmocka_unit_test(a_leader_of_another_host_is_never_replaced_before_its_lease_ends_on_redis),
      cmocka_unit_test(
          a_leader_of_another_host_is_never_replaced_before_its_lease_ends_on_memcached),
      cmocka_unit_test(a_note_of_the_dead_proves_nothing_against_the_lease_of_another),
  };
  redis_server_start(&redis, NULL);
  memcached_server_start(&memcached, NULL);
  int failed = cmocka_run_group_tests_name("takeover", tests, NULL, NULL);
  redis_server_stop(redis);
  memcached_server_stop(memcached);
  return failed;
}
