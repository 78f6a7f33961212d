/* test_loop_leaving.c: event loops: calls cancelled, computes abandoned, loops closed. */
#include "support/loop_kit.h"

static loop_desk opened(const corral_policy *policy) {
  return desk_open(CORRAL_OPTIONS(.store = store, .policy = policy));
}

static void a_cancelled_call_is_told_nothing_but_that_it_is_gone(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  request leader = {0}, waiter = {0}, flying = {0};
  ask(d.loop, "a", NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  ask(d.loop, "a", NULL, &waiter);
  corral_async_call_cancel(waiter.call);
  ask(d.loop, "b", NULL, &flying);
  corral_async_call_cancel(flying.call);
  RUN_UNTIL(d.loop, waiter.gones + flying.gones, 2);
  assert_int_equal(waiter.dones + waiter.starts + flying.dones + flying.starts, 0);
  corral_async_call_cancel(leader.call);
  make(&leader, "all the same");
  RUN_UNTIL(d.loop, leader.gones, 1);
  assert_int_equal(leader.dones, 0);
  request next = {0};
  ask(d.loop, "a", NULL, &next);
  RUN_UNTIL(d.loop, next.gones, 1);
  assert_string_equal(next.text, "all the same");
  closed(&d);
}

static void who_joined_a_call_that_is_cancelled_before_it_computes_leads_on(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  for (int i = 0; i < 50; i++) {
    char key[16];
    request first = {0}, second = {.makes = "mine"};
    snprintf(key, sizeof key, "k%d", i);
    ask(d.loop, key, NULL, &first);
    ask(d.loop, key, NULL, &second);
    corral_async_call_cancel(first.call);
    RUN_UNTIL(d.loop, first.gones + second.gones, 2);
    assert_int_equal(first.starts + first.dones, 0);
    assert_string_equal(second.text, "mine");
  }
  closed(&d);
}

static void an_abandoned_compute_is_begun_anew_by_one_who_waits(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  request first = {0}, second = {.makes = "the second's"}, third = {.makes = "the third's"};
  ask(d.loop, "a", NULL, &first);
  RUN_UNTIL(d.loop, first.starts, 1);
  ask(d.loop, "a", NULL, &second);
  ask(d.loop, "a", NULL, &third);
  corral_async_call_cancel(first.call);
  corral_fill_abandon(first.fill);
  RUN_UNTIL(d.loop, first.gones + second.gones + third.gones, 3);
  assert_int_equal(second.starts + third.starts, 1);
  assert_string_equal(second.text, third.text);
  assert_int_equal(corral_counter(d.c, CORRAL_EVENT_FAILURE), 0);
  closed(&d);
}

static void a_cancel_token_ends_calls_that_fly_and_calls_that_wait(void **state) {
  (void)state;
  loop_desk d = opened(CORRAL_POLICY(.lease_ms = 60000, .lease_min_ms = 60000)),
            other = opened(NULL);
  corral_cancel_token *cancel_token = corral_cancel_token_new();
  request leader = {0}, waiter = {0}, abroad = {0};
  ask(d.loop, "a", NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  ask_by(d.loop, "a", CORRAL_CALL(.cancel_token = cancel_token), &waiter);
  ask_by(other.loop, "a",
         CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 60000), .cancel_token = cancel_token),
         &abroad);
  await_counter(other.c, CORRAL_EVENT_WAIT, 1);
  corral_cancel_token_cancel(cancel_token);
  RUN_UNTIL(d.loop, waiter.gones, 1);
  RUN_UNTIL(other.loop, abroad.gones, 1);
  assert_int_equal(waiter.status, CORRAL_ECANCELLED);
  assert_int_equal(abroad.status, CORRAL_ECANCELLED);
  make(&leader, "x");
  RUN_UNTIL(d.loop, leader.gones, 1);
  corral_cancel_token_free(cancel_token);
  closed(&other);
  closed(&d);
}

static void with_stop_alone_a_compute_is_told_to_stop_when_the_last_one_left(void **state) {
  (void)state;
  loop_desk d = opened(CORRAL_POLICY(.stop_alone = 1));
  request leader = {0}, waiter = {0};
  ask(d.loop, "a", NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  ask(d.loop, "a", NULL, &waiter);
  corral_async_call_cancel(leader.call);
  assert_false(corral_fill_should_stop(leader.fill));
  corral_async_call_cancel(waiter.call);
  assert_true(corral_fill_should_stop(leader.fill));
  corral_fill_abandon(leader.fill);
  RUN_UNTIL(d.loop, leader.gones, 1);
  closed(&d);
}

static void closing_a_loop_lets_others_lead_and_leaves_the_fills_valid(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  corral_loop *other = loop_of(d.c);
  request leader = {0}, waiter = {.makes = "the other's"};
  ask(d.loop, "a", NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  ask(other, "a", NULL, &waiter);
  corral_loop_close(d.loop);
  assert_int_equal(leader.gones, 1);
  assert_int_equal(leader.dones, 0);
  RUN_UNTIL(other, waiter.gones, 1);
  assert_string_equal(waiter.text, "the other's");
  assert_true(corral_fill_should_stop(leader.fill));
  corral_loop_close(other);
  corral_close(d.c);
  make(&leader, "to nobody");
}

static void a_loop_may_be_closed_at_any_time(void **state) {
  (void)state;
  for (int turns = 0; turns < 60; turns++) {
    request r[6] = {{0}};
    loop_desk d = opened(CORRAL_POLICY(.swr_ms = 600000));
    corral_set(d.c, "stale", 5, NULL, "old", 3);
    corral_expire(d.c, "stale", 5, NULL);
    static const char *const keys[] = {"a", "a", "stale", "b", "stale", "c"};
    for (int i = 0; i < 6; i++) ask(d.loop, keys[i], NULL, &r[i]);
    corral_async_call_cancel(r[3].call);
    for (int i = 0; i < turns % 6; i++) turn(d.loop, crl_env_now_ms() + 2);
    closed(&d);
    for (int i = 0; i < 6; i++) {
      assert_int_equal(r[i].gones, 1);
      if (r[i].fill != NULL) make(&r[i], "nothing");
    }
  }
}

#define TEST(name) cmocka_unit_test_setup(name, fresh_store)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_cancelled_call_is_told_nothing_but_that_it_is_gone),
      TEST(who_joined_a_call_that_is_cancelled_before_it_computes_leads_on),
      TEST(an_abandoned_compute_is_begun_anew_by_one_who_waits),
      TEST(a_cancel_token_ends_calls_that_fly_and_calls_that_wait),
      TEST(with_stop_alone_a_compute_is_told_to_stop_when_the_last_one_left),
      TEST(closing_a_loop_lets_others_lead_and_leaves_the_fills_valid),
      TEST(a_loop_may_be_closed_at_any_time),
  };
  return cmocka_run_group_tests_name("loop_leaving", tests, NULL, NULL);
}
