/* test_leader.c: leaders that die, sleep past the end of their lease, are overtaken by an
 * invalidation, or take too long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/emptied.h"
#include "support/history_kit.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum { GATE, GO, FIRST_DONE, LATER_DONE, INVALIDATED, JOINED_DONE }; /* lab marks */
/* Where a lease begins with its whole length, it outlasts a pause of the machine. */
enum { KILLS = 3, LEASE_MS = 1000, KILLED_MS = 6000, KEPT_MS = 8000, SLACK_MS = 200 };

static redis_server *server;

static memcached_server *pair[2];

static const char *memcached_uri(void) {
  const char *uri = memcached_server_pair_uri(pair);
  if (uri == NULL) skip();
  return uri;
}

/* Behaviour of the processes in one test. */
typedef struct script {
  corral_policy policy;
  int gated; /* the compute waits for GATE */
  int done;  /* mark to increment at the end */
  int expect_status;
  corral_kept expect_kept;
} script;

static void ask_as_told(lab_seat *seat) {
  const script *s = seat->arg;
  lab_work work = {.key = 0, .gate = s->gated ? &seat->lab->marks[GATE] : NULL};
  lab_answer answer = lab_ask(seat, &s->policy, &work);
  if (answer.status != s->expect_status)
    lab_wrong(seat->lab, "process %d: %s (%s) instead of %s", seat->process,
              corral_status_name(answer.status), answer.error.text,
              corral_status_name(s->expect_status));
  else if (answer.status == CORRAL_OK && answer.kept != s->expect_kept)
    lab_wrong(seat->lab, "process %d: kept is %d instead of %d", seat->process, (int)answer.kept,
              (int)s->expect_kept);
  lab_add(&seat->lab->marks[s->done], 1);
}

static void spawn(lab *l, const char *uri, const script *s, int threads) {
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = 1,
                           .threads = threads,
                           .body = ask_as_told,
                           .arg = (void *)(uintptr_t)s});
}

static corral *opened(const char *uri) {
  corral *c = NULL;
  corral_error error;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 30000), &c, &error) != CORRAL_OK)
    fail_msg("%s: %s", uri, error.text);
  return c;
}

/* Number of the stored value of key 0; 0: none. */
static int stored_number(lab *l, const char *uri) {
  corral *c = opened(uri);
  lab_answer answer = lab_look(l, c, 0);
  corral_close(c);
  if (answer.status != CORRAL_OK && answer.status != CORRAL_EMISS)
    fail_msg("%s: %s", corral_status_name(answer.status), answer.error.text);
  return answer.number;
}

/* ---- kill -9 ------------------------------------------------------------------------------- */

/* Kills a leader for whom another process waits, and returns when that one has computed. *ret_left:
 * ms left of the dead leader's lease, *ret_took: ms to the start of the next compute, both from a
 * moment before the kill. */
static void replaced(const char *uri, int64_t lease_ms, int64_t *ret_left, int64_t *ret_took) {
  lab *l = lab_new_recorded();
  script leader = {
      .policy = {.size = sizeof(corral_policy), .lease_ms = lease_ms, .lease_min_ms = lease_ms},
      .gated = 1};
  script waiter = {
      .policy = {.size = sizeof(corral_policy), .lease_ms = lease_ms, .wait_ms = 60000},
      .done = LATER_DONE};
  corral_inspection seen = {.size = sizeof seen};
  corral *c = opened(uri);
  assert_int_equal(lab_invalidate(l, c, -1, 0), CORRAL_OK);
  spawn(l, uri, &leader, 1);
  lab_await(l, &l->keys[0].computes, 1);
  spawn(l, uri, &waiter, 1);
  lab_await(l, &l->events[1][CORRAL_EVENT_POLL], 8);
  int64_t before = lab_now_us();
  assert_int_equal(corral_inspect(c, "key-0", 5, NULL, &seen), CORRAL_OK);
  lab_kill(l, 0);
  lab_await(l, &l->keys[0].computes, 2);
  *ret_took = (l->keys[0].begun_us - before) / 1000;
  *ret_left = seen.lease_left_ms;
  lab_end(l);
  assert_int_equal(l->marks[LATER_DONE], 1);
  assert_int_equal(l->keys[0].computes, 2);
  corral_close(c);
  lab_free(l);
}

/* The lease is longer than the test's patience. */
static void a_killed_leader_is_replaced_before_its_lease_ends_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new_recorded();
  for (int i = 0; i < KILLS; i++) {
    int64_t left, took;
    replaced(lab_lmdb(l, "store"), 120000, &left, &took);
    assert_in_range(left, took + 1, 120000);
  }
  lab_free(l);
}

static void check_killed_leader(const char *uri) {
  for (int i = 0; i < 2; i++) {
    int64_t left, took;
    replaced(uri, KILLED_MS, &left, &took);
    assert_in_range(left, 1, KILLED_MS);
    assert_true(took >= left - SLACK_MS);
  }
}

static void a_killed_leader_is_replaced_when_its_lease_ends_on_redis(void **state) {
  (void)state;
  check_killed_leader(emptied_redis(server));
}

static void a_killed_leader_is_replaced_when_its_lease_ends_on_memcached(void **state) {
  (void)state;
  check_killed_leader(memcached_uri());
}

static const corral_policy defaults = {.size = sizeof(corral_policy), .wait_ms = 60000};

static void compute_in_no_time_then_for_ever(lab_seat *seat) {
  lab_work quick = {.key = 0}, endless = {.key = 0, .gate = &seat->lab->marks[GATE]};
  lab_ask(seat, &defaults, &quick);
  if (lab_invalidate(seat->lab, seat->corral, seat->process, 0) != CORRAL_OK)
    lab_wrong(seat->lab, "the invalidation failed");
  lab_ask(seat, &defaults, &endless);
}

/* Returns the ms that were left of the leader's lease when it was killed. */
static int64_t kill_leader_of_a_cheap_key(const char *uri) {
  lab *l = lab_new_recorded();
  script waiter = {.policy = defaults, .done = LATER_DONE};
  corral *c = opened(uri);
  corral_inspection seen = {.size = sizeof seen};
  lab_spawn(
      l, &(lab_plan){
             .uri = uri, .processes = 1, .threads = 1, .body = compute_in_no_time_then_for_ever});
  lab_await(l, &l->keys[0].computes, 2);
  spawn(l, uri, &waiter, 1);
  /* it waits, or has taken over from a leader that this machine held up */
  for (int ms = 0; l->events[1][CORRAL_EVENT_WAIT] == 0 && l->keys[0].computes < 3; ms++) {
    if (ms == LAB_PATIENCE_MS) fail_msg("nobody waits");
    lab_sleep_ms(1);
  }
  assert_int_equal(corral_inspect(c, "key-0", 5, NULL, &seen), CORRAL_OK);
  lab_kill(l, 0);
  lab_await(l, &l->keys[0].computes, 3);
  lab_end(l);
  corral_close(c);
  lab_free(l);
  return seen.lease_left_ms;
}

/* Default options: the lease of a cheap key is lease_min_ms, not the 2 s of lease_ms. On a busy
 * machine it may have been extended before it is looked at. */
static void the_killed_leader_of_a_cheap_key_has_a_short_lease_and_is_replaced(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    int64_t left = kill_leader_of_a_cheap_key(emptied_redis(server));
    if (left > 0 && left <= 500) return;
  }
  fail_msg("the lease is never short");
}

/* ---- SIGSTOP beyond the lease -------------------------------------------------------------- */

static void check_late_leader(lab *l, const char *uri) {
  script first = {.policy = {.size = sizeof(corral_policy), .lease_ms = LEASE_MS},
                  .gated = 1,
                  .done = FIRST_DONE,
                  .expect_kept = CORRAL_KEPT_FENCED};
  script second = {
      .policy = {.size = sizeof(corral_policy), .lease_ms = LEASE_MS, .wait_ms = 60000},
      .done = LATER_DONE};
  spawn(l, uri, &first, 1);
  /* Stops the process right after an extension, so not inside the store's own mutex. */
  lab_await(l, &l->events[0][CORRAL_EVENT_EXTEND], 1);
  lab_stop(l, 0);
  spawn(l, uri, &second, 1);
  lab_await(l, &l->marks[LATER_DONE], 1);
  assert_int_equal(stored_number(l, uri), 2);
  lab_add(&l->marks[GATE], 1);
  lab_continue(l, 0);
  lab_await(l, &l->marks[FIRST_DONE], 1);
  assert_int_equal(stored_number(l, uri), 2);
  lab_end(l);
  assert_int_equal(l->events[0][CORRAL_EVENT_FENCED], 1);
  assert_int_equal(l->events[0][CORRAL_EVENT_FILL], 0);
  assert_int_equal(l->events[1][CORRAL_EVENT_FILL], 1);
  assert_int_equal(l->keys[0].computes, 2);
  lab_free(l);
}

static void a_leader_stopped_beyond_its_lease_is_fenced_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new_recorded();
  check_late_leader(l, lab_lmdb(l, "store"));
}

static void a_leader_stopped_beyond_its_lease_is_fenced_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_late_leader(lab_new_recorded(), uri);
}

static void a_leader_stopped_beyond_its_lease_is_fenced_on_memcached(void **state) {
  (void)state;
  const char *uri = memcached_uri();
  check_late_leader(lab_new_recorded(), uri);
}

/* ---- invalidate during a compute ----------------------------------------------------------- */

/* Thread 0 computes. With *own, thread 1 invalidates and asks again; each thread must get the value
 * of its own compute. */
static void invalidate_under_a_compute(lab_seat *seat) {
  lab *l = seat->lab;
  const int *own = seat->arg;
  lab_work first = {.key = 0, .gate = &l->marks[GATE]}, second = {.key = 0};
  if (seat->thread == 0) {
    lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 60000), &first);
    if (answer.status != CORRAL_OK || answer.number != 1 || answer.kept != CORRAL_KEPT_FENCED)
      lab_wrong(l, "the voided compute's caller has %s, value %d, kept %d",
                corral_status_name(answer.status), answer.number, (int)answer.kept);
    lab_add(&l->marks[FIRST_DONE], 1);
    return;
  }
  lab_await(l, &l->keys[0].computes, 1);
  if (*own) {
    int status = lab_invalidate(l, seat->corral, seat->process, 0);
    if (status != CORRAL_OK) lab_wrong(l, "corral_invalidate: %s", corral_status_name(status));
    lab_add(&l->marks[INVALIDATED], 1);
    lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 60000), &second);
    if (answer.status != CORRAL_OK || answer.number != 2 || answer.kept != CORRAL_KEPT)
      lab_wrong(l, "after invalidate a caller has %s, value %d, kept %d",
                corral_status_name(answer.status), answer.number, (int)answer.kept);
  }
}

static void check_invalidate_by_itself(lab *l, const char *uri) {
  int own = 1;
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = 1,
                           .threads = 2,
                           .body = invalidate_under_a_compute,
                           .arg = &own});
  lab_await(l, &l->marks[INVALIDATED], 1);
  lab_await(l, &l->events[0][CORRAL_EVENT_FILL], 1);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  assert_int_equal(stored_number(l, uri), 2);
  assert_int_equal(l->events[0][CORRAL_EVENT_FENCED], 1);
  lab_free(l);
}

static void delete_on_the_server(const char *uri) {
  if (strncmp(uri, "redis", 5) == 0) {
    assert_string_equal(redis_server_ask(server, "DEL key-0"), "1");
    return;
  }
  int deleted = 0;
  for (int i = 0; i < 2; i++)
    deleted += strcmp(memcached_server_ask(pair[i], "delete key-0"), "DELETED") == 0;
  assert_int_equal(deleted, 1);
}

/* by_del: deletes the key with the server's own command. */
static void check_invalidate_by_another(lab *l, const char *uri, int by_del) {
  int own = 0;
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = 1,
                           .threads = 2,
                           .body = invalidate_under_a_compute,
                           .arg = &own});
  lab_await(l, &l->keys[0].computes, 1);
  corral *c = opened(uri);
  if (by_del)
    delete_on_the_server(uri);
  else
    assert_int_equal(lab_invalidate(l, c, -1, 0), CORRAL_OK);
  lab_add(&l->marks[GATE], 1);
  lab_await(l, &l->marks[FIRST_DONE], 1);
  assert_int_equal(lab_look(l, c, 0).status, CORRAL_EMISS);
  corral_close(c);
  lab_end(l);
  assert_int_equal(l->events[0][CORRAL_EVENT_FENCED], 1);
  assert_int_equal(l->events[0][CORRAL_EVENT_FILL], 0);
  lab_free(l);
}

static void an_invalidate_by_the_same_process_voids_its_compute_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new_recorded();
  check_invalidate_by_itself(l, lab_lmdb(l, "store"));
}

static void an_invalidate_by_the_same_process_voids_its_compute_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_invalidate_by_itself(lab_new_recorded(), uri);
}

static void an_invalidate_by_another_process_voids_the_compute_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new_recorded();
  check_invalidate_by_another(l, lab_lmdb(l, "store"), 0);
}

static void an_invalidate_by_another_process_voids_the_compute_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_invalidate_by_another(lab_new_recorded(), uri, 0);
}

static void a_plain_del_by_any_client_voids_the_compute_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_invalidate_by_another(lab_new_recorded(), uri, 1);
}

static void an_invalidate_by_the_same_process_voids_its_compute_on_memcached(void **state) {
  (void)state;
  const char *uri = memcached_uri();
  check_invalidate_by_itself(lab_new_recorded(), uri);
}

static void an_invalidate_by_another_process_voids_the_compute_on_memcached(void **state) {
  (void)state;
  const char *uri = memcached_uri();
  check_invalidate_by_another(lab_new_recorded(), uri, 0);
}

static void a_plain_delete_by_any_client_voids_the_compute_on_memcached(void **state) {
  (void)state;
  const char *uri = memcached_uri();
  check_invalidate_by_another(lab_new_recorded(), uri, 1);
}

/* ---- the renewer --------------------------------------------------------------------------- */

static void compute_for_longer_than_a_lease(lab_seat *seat) {
  lab_work work = {.key = 0, .cost_ms = KEPT_MS + 2000};
  const corral_policy *policy =
      CORRAL_POLICY(.lease_ms = KEPT_MS, .lease_min_ms = KEPT_MS, .wait_ms = 60000);
  lab_answer answer = lab_ask(seat, policy, &work);
  lab_agree(seat->lab, 0, &answer);
  /* joiners have the value before the store's word about it */
  int unknown = answer.how == CORRAL_JOINED && answer.kept == CORRAL_KEPT_UNKNOWN;
  if (answer.kept != CORRAL_KEPT && !unknown) lab_wrong(seat->lab, "kept is %d", (int)answer.kept);
}

static void check_renewer(lab *l, const char *uri) {
  lab_spawn(l,
            &(lab_plan){
                .uri = uri, .processes = 3, .threads = 4, .body = compute_for_longer_than_a_lease});
  lab_end(l);
  int extends = 0;
  for (int i = 0; i < l->count; i++) extends += l->events[i][CORRAL_EVENT_EXTEND];
  assert_int_equal(l->keys[0].computes, 1);
  assert_in_range(extends, 2, 16);
  lab_free(l);
}

static void a_compute_longer_than_its_lease_keeps_it_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new_recorded();
  check_renewer(l, lab_lmdb(l, "store"));
}

static void a_compute_longer_than_its_lease_keeps_it_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_renewer(lab_new_recorded(), uri);
}

static void a_compute_longer_than_its_lease_keeps_it_on_memcached(void **state) {
  (void)state;
  const char *uri = memcached_uri();
  check_renewer(lab_new_recorded(), uri);
}

/* ---- compute_ms ---------------------------------------------------------------------------- */

/* Thread 0 of process 0 computes longer than compute_ms. The other threads wait for it; with *stale
 * they get the stale value, else the verdict. */
static void wait_for_an_endless_compute(lab_seat *seat) {
  lab *l = seat->lab;
  const int *stale = seat->arg;
  lab_work work = {.key = 0, .gate = &l->marks[GATE]};
  corral_policy policy = {.size = sizeof policy,
                          .lease_ms = 60000,
                          .lease_min_ms = 60000,
                          .compute_ms = 500,
                          .wait_ms = 60000,
                          .retry_ms = 20000,
                          .sie_ms = 60000,
                          .poll_max_ms = 50};
  int leads = seat->process == 0 && seat->thread == 0;
  if (!leads) lab_await(l, &l->keys[0].computes, 1);
  lab_answer answer = lab_ask(seat, &policy, &work);
  if (leads) {
    if (answer.status != CORRAL_OK || answer.kept != CORRAL_KEPT_FENCED ||
        answer.how != CORRAL_COMPUTED)
      lab_wrong(l, "the abandoned compute's caller: %s, kept %d", corral_status_name(answer.status),
                (int)answer.kept);
  } else if (*stale && (answer.status != CORRAL_OK || answer.how != CORRAL_STALE)) {
    lab_wrong(l, "a waiter got %s, %s", corral_status_name(answer.status), answer.error.text);
  } else if (!*stale &&
             (answer.status != CORRAL_EFAILED || answer.error.code != CORRAL_EABANDONED ||
              strstr(answer.error.text, "compute_ms") == NULL)) {
    lab_wrong(l, "a waiter got %s, %s", corral_status_name(answer.status), answer.error.text);
  }
  lab_add(&l->marks[leads ? FIRST_DONE : LATER_DONE], 1);
}

static void lay_stale(lab *l, corral *c) {
  char value[300];
  int len = snprintf(value, sizeof value, "key-0 99 ");
  memset(value + len, '9', sizeof value - (size_t)len);
  assert_int_equal(corral_set(c, "key-0", 5, CORRAL_CALL(.policy = CORRAL_POLICY(.sie_ms = 60000)),
                              value, sizeof value),
                   CORRAL_OK);
  assert_int_equal(lab_look(l, c, 0).number, 99);
  assert_int_equal(corral_expire(c, "key-0", 5, NULL), CORRAL_OK);
}

static void check_abandoned(lab *l, const char *uri, int stale) {
  corral *c = opened(uri);
  corral_inspection seen = {.size = sizeof seen};
  if (stale) lay_stale(l, c);
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = 2,
                           .threads = 3,
                           .body = wait_for_an_endless_compute,
                           .arg = &stale});
  lab_await(l, &l->marks[LATER_DONE], 5);
  /* the event comes after the waiters' answers */
  lab_await(l, &l->events[0][CORRAL_EVENT_ABANDONED], 1);
  assert_int_equal(corral_inspect(c, "key-0", 5, NULL, &seen), CORRAL_OK);
  assert_int_equal(seen.lease_left_ms, 0);
  assert_int_equal(seen.failure_code, CORRAL_EABANDONED);
  assert_true(seen.retry_left_ms > 0);
  lab_add(&l->marks[GATE], 1);
  lab_await(l, &l->marks[FIRST_DONE], 1);
  lab_end(l);
  assert_int_equal(l->events[0][CORRAL_EVENT_FENCED], 1);
  assert_int_equal(l->keys[0].computes, 1);
  assert_int_equal(corral_inspect(c, "key-0", 5, NULL, &seen), CORRAL_OK);
  assert_string_equal(seen.state, stale ? "stale" : "none");
  assert_int_equal(seen.failure_code, CORRAL_EABANDONED);
  corral_close(c);
  lab_free(l);
}

static void waiters_of_an_abandoned_compute_get_its_verdict_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new();
  check_abandoned(l, lab_lmdb(l, "store"), 0);
}

static void waiters_of_an_abandoned_compute_get_the_stale_value_on_lmdb(void **state) {
  (void)state;
  lab *l = lab_new();
  check_abandoned(l, lab_lmdb(l, "store"), 1);
}

static void waiters_of_an_abandoned_compute_get_its_verdict_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_abandoned(lab_new(), uri, 0);
}

static void waiters_of_an_abandoned_compute_get_the_stale_value_on_redis(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  check_abandoned(lab_new(), uri, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_killed_leader_is_replaced_before_its_lease_ends_on_lmdb),
      cmocka_unit_test(a_killed_leader_is_replaced_when_its_lease_ends_on_redis),
      cmocka_unit_test(a_killed_leader_is_replaced_when_its_lease_ends_on_memcached),
      cmocka_unit_test(the_killed_leader_of_a_cheap_key_has_a_short_lease_and_is_replaced),
      cmocka_unit_test(a_leader_stopped_beyond_its_lease_is_fenced_on_memcached),
      cmocka_unit_test(an_invalidate_by_the_same_process_voids_its_compute_on_memcached),
      cmocka_unit_test(an_invalidate_by_another_process_voids_the_compute_on_memcached),
      cmocka_unit_test(a_plain_delete_by_any_client_voids_the_compute_on_memcached),
      cmocka_unit_test(a_compute_longer_than_its_lease_keeps_it_on_memcached),
      cmocka_unit_test(a_leader_stopped_beyond_its_lease_is_fenced_on_lmdb),
      cmocka_unit_test(a_leader_stopped_beyond_its_lease_is_fenced_on_redis),
      cmocka_unit_test(an_invalidate_by_the_same_process_voids_its_compute_on_lmdb),
      cmocka_unit_test(an_invalidate_by_the_same_process_voids_its_compute_on_redis),
      cmocka_unit_test(an_invalidate_by_another_process_voids_the_compute_on_lmdb),
      cmocka_unit_test(an_invalidate_by_another_process_voids_the_compute_on_redis),
      cmocka_unit_test(a_plain_del_by_any_client_voids_the_compute_on_redis),
      cmocka_unit_test(a_compute_longer_than_its_lease_keeps_it_on_lmdb),
      cmocka_unit_test(a_compute_longer_than_its_lease_keeps_it_on_redis),
      cmocka_unit_test(waiters_of_an_abandoned_compute_get_its_verdict_on_lmdb),
      cmocka_unit_test(waiters_of_an_abandoned_compute_get_the_stale_value_on_lmdb),
      cmocka_unit_test(waiters_of_an_abandoned_compute_get_its_verdict_on_redis),
      cmocka_unit_test(waiters_of_an_abandoned_compute_get_the_stale_value_on_redis),
  };
  redis_server_start(&server, NULL);
  for (int i = 0; i < 2; i++) memcached_server_start(&pair[i], NULL);
  int failed = cmocka_run_group_tests_name("leader", tests, NULL, NULL);
  redis_server_stop(server);
  for (int i = 0; i < 2; i++) memcached_server_stop(pair[i]);
  return failed;
}
