/* test_away.c: life without the store: what calls get, and what the store gets when it is back.
 *
 * A process is cut off from a store that lives, for others, by a symbolic link to the server's socket that is taken away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "support/herd_lab.h"
#include "support/redis_server.h"

enum { KEYS = 30, THREADS = 10, CALLS = 300 };
enum { STEP, DONE, SEEN }; /* marks */

static redis_server *server;

static const corral_options quick = {.op_ms = 150, .breaker_failures = 1, .breaker_rest_ms = 50};

static lab *fresh_lab(void) {
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  return lab_new();
}

static void begin(lab *l, const char *uri, int threads, void (*body)(lab_seat *seat)) {
  lab_spawn(l, &(lab_plan){.uri = uri, .processes = 1, .threads = threads, .body = body, .options = quick});
}

/* What another process finds under key 0: 0 nothing. */
static void look(lab_seat *seat) {
  lab_answer answer = lab_look(seat->lab, seat->corral, 0);
  lab_add(&seat->lab->marks[SEEN], answer.number + 1);
}

static int found_by_another(lab *l) {
  l->marks[SEEN] = -1;
  begin(l, redis_server_uri(server), 1, look);
  lab_await(l, &l->marks[SEEN], 0);
  return l->marks[SEEN];
}

static lab_answer ask(lab_seat *seat, int key, int64_t when_away) {
  lab_work work = {.key = key};
  return lab_ask(seat, CORRAL_POLICY(.wait_ms = 3000, .ttl_ms = 600000, .when_away = when_away), &work);
}

static void expect_unkept(lab_seat *seat, const lab_answer *answer) {
  if (answer->status != CORRAL_OK || answer->how != CORRAL_COMPUTED || answer->kept != CORRAL_KEPT_NOT)
    lab_wrong(seat->lab, "%s, %s, kept %d", corral_status_name(answer->status), corral_how_name(answer->how), (int)answer->kept);
}

static void step(lab *l) {
  int next = l->marks[DONE] + 1;
  lab_add(&l->marks[STEP], 1);
  lab_await(l, &l->marks[DONE], next);
}

static void stepped(lab_seat *seat) { lab_add(&seat->lab->marks[DONE], 1); }

/* ---- what is offered ------------------------------------------------------------------------------------------ */

static void compute_twice_and_wait(lab_seat *seat) {
  lab_await(seat->lab, &seat->lab->marks[STEP], 1);
  for (int i = 0; i < 2; i++) {
    lab_answer answer = ask(seat, 0, CORRAL_AWAY_COMPUTE);
    expect_unkept(seat, &answer);
  }
  stepped(seat);
  lab_await(seat->lab, &seat->lab->marks[STEP], 2);
}

static void what_was_computed_meanwhile_is_offered_once_the_newest_of_each_key(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), 1, compute_twice_and_wait);
  redis_server_kill(server);
  step(l);
  assert_int_equal(l->events[0][CORRAL_EVENT_HELD], 2);
  redis_server_restart(server);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
  assert_int_equal(l->events[0][CORRAL_EVENT_OFFERED], 1);
  assert_int_equal(found_by_another(l), 2);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  lab_free(l);
}

static void invalidate(lab_seat *seat, int status) {
  int got = corral_invalidate(seat->corral, "key-0", 5, NULL);
  int fits = status == CORRAL_OK ? got == CORRAL_OK : got == CORRAL_EUNAVAILABLE || got == CORRAL_EUNKNOWN;
  if (!fits) lab_wrong(seat->lab, "invalidate: %s", corral_status_name(got));
}

static void compute_and_invalidate(lab_seat *seat) {
  lab_await(seat->lab, &seat->lab->marks[STEP], 1);
  lab_answer answer = ask(seat, 0, CORRAL_AWAY_COMPUTE);
  expect_unkept(seat, &answer);
  invalidate(seat, CORRAL_EUNAVAILABLE);
  stepped(seat);
  lab_await(seat->lab, &seat->lab->marks[STEP], 2);
}

static void what_was_invalidated_meanwhile_is_not_offered(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), 1, compute_and_invalidate);
  redis_server_kill(server);
  step(l);
  redis_server_restart(server);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
  assert_int_equal(found_by_another(l), 0);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  lab_free(l);
}

static void store_and_invalidate_in_vain(lab_seat *seat) {
  lab_answer answer = ask(seat, 0, CORRAL_AWAY_COMPUTE);
  if (answer.kept != CORRAL_KEPT) lab_wrong(seat->lab, "not kept");
  stepped(seat);
  lab_await(seat->lab, &seat->lab->marks[STEP], 1);
  invalidate(seat, CORRAL_EUNAVAILABLE);
  stepped(seat);
  lab_await(seat->lab, &seat->lab->marks[STEP], 2);
}

static void an_invalidation_that_the_store_did_not_hear_is_repeated(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), 1, store_and_invalidate_in_vain);
  lab_await(l, &l->marks[DONE], 1);
  assert_int_equal(found_by_another(l), 1);
  redis_server_pause(server);
  step(l);
  redis_server_resume(server);
  lab_await(l, &l->events[0][CORRAL_EVENT_OFFERED], 1);
  assert_int_equal(found_by_another(l), 0);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  lab_free(l);
}

/* ---- cut off from a store that lives for others ------------------------------------------------------------------ */

static char link_path[128];

/* A URI by way of a link that can be taken away. */
static const char *by_link(lab *l) {
  static char uri[160];
  snprintf(link_path, sizeof link_path, "%s/link", l->folder);
  const char *path = strchr(redis_server_unix_uri(server), '/') + 2;
  if (symlink(path, link_path) != 0) fail_msg("symlink to %s", path);
  snprintf(uri, sizeof uri, "redis+unix://%s", link_path);
  return uri;
}

static void cut_off(void) {
  char path[128];
  snprintf(path, sizeof path, "%.120s.away", link_path);
  assert_int_equal(rename(link_path, path), 0);
  redis_server_ask(server, "CLIENT KILL TYPE normal SKIPME yes");
}

static void join_again(void) {
  char path[128];
  snprintf(path, sizeof path, "%.120s.away", link_path);
  assert_int_equal(rename(path, link_path), 0);
}

static void compute_cut_off(lab_seat *seat) {
  lab_await(seat->lab, &seat->lab->marks[STEP], 1);
  lab_answer answer = ask(seat, 0, CORRAL_AWAY_COMPUTE);
  expect_unkept(seat, &answer);
  stepped(seat);
  lab_await(seat->lab, &seat->lab->marks[STEP], 2);
}

static void store_one(lab_seat *seat) {
  lab_answer answer = ask(seat, 0, CORRAL_AWAY_COMPUTE);
  if (answer.kept != CORRAL_KEPT) lab_wrong(seat->lab, "not kept");
  stepped(seat);
}

static void store_one_and_invalidate_it(lab_seat *seat) {
  ask(seat, 0, CORRAL_AWAY_COMPUTE);
  invalidate(seat, CORRAL_OK);
  stepped(seat);
}

/* One is cut off and computes; meanwhile `other` runs in a process that is not. Tells what is found in the end. */
static int with_one_cut_off(void (*other)(lab_seat *seat)) {
  lab *l = fresh_lab();
  begin(l, by_link(l), 1, compute_cut_off);
  cut_off();
  step(l);
  begin(l, redis_server_uri(server), 1, other);
  lab_await(l, &l->marks[DONE], 2);
  join_again();
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
  assert_int_equal(l->events[0][CORRAL_EVENT_OFFERED], 0);
  int found = found_by_another(l);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  lab_free(l);
  return found;
}

static void what_others_stored_later_stays(void **state) {
  (void)state;
  assert_int_equal(with_one_cut_off(store_one), 2);
}

static void what_others_invalidated_later_stays_invalidated(void **state) {
  (void)state;
  assert_int_equal(with_one_cut_off(store_one_and_invalidate_it), 0);
}

/* ---- what calls get ------------------------------------------------------------------------------------------ */

static void ask_under_each_policy(lab_seat *seat) {
  lab *l = seat->lab;
  lab_await(l, &l->marks[STEP], 1);
  lab_answer first = ask(seat, 0, CORRAL_AWAY_STALE), again = ask(seat, 0, CORRAL_AWAY_STALE);
  expect_unkept(seat, &first);
  if (again.how != CORRAL_HELD || again.number != first.number) lab_wrong(l, "held: %s, value %d", corral_how_name(again.how), again.number);
  lab_answer error = ask(seat, 1, CORRAL_AWAY_ERROR), computed = ask(seat, 0, CORRAL_AWAY_COMPUTE);
  if (error.status != CORRAL_EUNAVAILABLE || error.error.text[0] == '\0') lab_wrong(l, "error: %s", corral_status_name(error.status));
  expect_unkept(seat, &computed);
  lab_answer looked = lab_look(l, seat->corral, 0);
  if (looked.status != CORRAL_EUNAVAILABLE) lab_wrong(l, "a look: %s", corral_status_name(looked.status));
}

static void the_policy_says_what_calls_get_while_the_store_is_away(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), 1, ask_under_each_policy);
  redis_server_kill(server);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  redis_server_restart(server);
  assert_int_equal(l->events[0][CORRAL_EVENT_HELD_HIT], 1);
  assert_int_equal(l->keys[0].computes, 2);
  assert_int_equal(l->keys[1].computes, 0);
  lab_free(l);
}

static int by_size(const void *a, const void *b) { return (*(const int64_t *)a > *(const int64_t *)b) - (*(const int64_t *)a < *(const int64_t *)b); }

static void ask_while_it_rests(lab_seat *seat) {
  lab *l = seat->lab;
  static int64_t took[CALLS];
  ask(seat, 0, CORRAL_AWAY_COMPUTE);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_DOWN], 1);
  for (int i = 0; i < CALLS; i++) {
    int64_t before = lab_now_us();
    ask(seat, i % KEYS, CORRAL_AWAY_COMPUTE);
    took[i] = lab_now_us() - before;
  }
  qsort(took, CALLS, sizeof *took, by_size);
  print_message("           %d calls, computes included: median %lld us, p99 %lld us, the longest %lld us\n", CALLS,
                (long long)took[CALLS / 2], (long long)took[CALLS * 99 / 100], (long long)took[CALLS - 1]);
  if (took[CALLS * 99 / 100] > 20000) lab_wrong(l, "p99 is %lld us", (long long)took[CALLS * 99 / 100]);
}

static void calls_pay_no_time_limit_while_a_hung_store_rests(void **state) {
  (void)state;
  lab *l = fresh_lab();
  redis_server_pause(server);
  begin(l, redis_server_uri(server), 1, ask_while_it_rests);
  lab_end(l);
  redis_server_resume(server);
  lab_free(l);
}

static void ask_a_dead_origin(lab_seat *seat) {
  lab_await(seat->lab, &seat->lab->marks[STEP], 1);
  for (int i = 0; i < 50; i++) {
    lab_work work = {.key = 0, .cost_ms = 2, .failure = "dead as well"};
    lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 3000, .retry_ms = 60000, .retry_max_ms = 60000), &work);
    if (answer.status != CORRAL_EFAILED || strcmp(answer.error.text, "dead as well") != 0 || answer.error.retry_after_ms < 20000)
      lab_wrong(seat->lab, "%s: %s, retry after %lld ms", corral_status_name(answer.status), answer.error.text,
                (long long)answer.error.retry_after_ms);
  }
}

static void an_origin_that_fails_while_the_store_is_away_is_left_alone_as_well(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), THREADS, ask_a_dead_origin);
  redis_server_kill(server);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  redis_server_restart(server);
  assert_int_equal(l->keys[0].computes, 1);
  lab_free(l);
}

/* ---- no avalanche --------------------------------------------------------------------------------------------- */

static void ask_all_keys_all_the_time(lab_seat *seat) {
  lab *l = seat->lab;
  lab_await(l, &l->marks[STEP], 1);
  for (int i = seat->thread; l->marks[STEP] < 2; i++) {
    lab_answer answer = ask(seat, i % KEYS, CORRAL_AWAY_STALE);
    if (answer.status != CORRAL_OK) lab_wrong(l, "%s: %s", corral_status_name(answer.status), answer.error.text);
  }
}

static void the_return_of_the_store_causes_no_computes(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), THREADS, ask_all_keys_all_the_time);
  redis_server_kill(server);
  lab_add(&l->marks[STEP], 1);
  lab_await(l, &l->events[0][CORRAL_EVENT_HELD_HIT], 20 * KEYS);
  int computes = l->events[0][CORRAL_EVENT_COMPUTE];
  redis_server_restart(server);
  lab_await(l, &l->events[0][CORRAL_EVENT_HIT], 20 * KEYS);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  print_message("           %d keys: %d computes while the store was away, %d at its return\n", KEYS, computes,
                l->events[0][CORRAL_EVENT_COMPUTE] - computes);
  assert_int_equal(l->events[0][CORRAL_EVENT_COMPUTE], computes);
  assert_int_equal(l->events[0][CORRAL_EVENT_OFFERED], KEYS);
  lab_free(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_computed_meanwhile_is_offered_once_the_newest_of_each_key),
      cmocka_unit_test(what_was_invalidated_meanwhile_is_not_offered),
      cmocka_unit_test(an_invalidation_that_the_store_did_not_hear_is_repeated),
      cmocka_unit_test(what_others_stored_later_stays),
      cmocka_unit_test(what_others_invalidated_later_stays_invalidated),
      cmocka_unit_test(the_policy_says_what_calls_get_while_the_store_is_away),
      cmocka_unit_test(calls_pay_no_time_limit_while_a_hung_store_rests),
      cmocka_unit_test(an_origin_that_fails_while_the_store_is_away_is_left_alone_as_well),
      cmocka_unit_test(the_return_of_the_store_causes_no_computes),
  };
  redis_server_start(&server, NULL);
  int failed = cmocka_run_group_tests_name("away", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
