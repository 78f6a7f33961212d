/* test_loop_ends.c: the end of an event loop's calls after something is given up: computes,
 * functions, tickets, timers. */
#include "support/loop_kit.h"

#include "api/async.h"
#include "api/inbox.h"
#include "support/herd_lab.h"

enum { WAITERS = 3 };

/* ---- computes ------------------------------------------------------------------------------ */

static void a_compute_of_ones_own_that_is_abandoned_ends_the_call_by_its_deadline(void **state) {
  (void)state;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = store));
  corral_loop *loop = loop_of(c);
  request leader = {0}, waiter = {0};
  ask(loop, "a", NULL, &leader);
  RUN_UNTIL(loop, leader.starts, 1);
  ask(loop, "a", CORRAL_POLICY(.wait_ms = 20, .at_deadline = CORRAL_DEADLINE_COMPUTE), &waiter);
  RUN_UNTIL(loop, waiter.starts, 1);
  assert_true(waiter.is_alone);
  corral_fill_abandon(waiter.fill);
  RUN_UNTIL(loop, waiter.gones, 1);
  assert_int_equal(waiter.dones, 1);
  assert_int_equal(waiter.status, CORRAL_EDEADLINE);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_DEADLINE), 1);
  make(&leader, "x");
  RUN_UNTIL(loop, leader.gones, 1);
  corral_loop_close(loop);
  corral_close(c);
}

static void abandon_twice(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  request *r = arg;
  (void)key;
  (void)key_len;
  if (r->starts++ < 2) {
    corral_fill_abandon(fill);
    return;
  }
  corral_fill_bytes(fill, "third", 5);
  corral_fill_done(fill);
}

static void a_call_whose_compute_is_abandoned_may_be_told_to_start_again(void **state) {
  (void)state;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = store));
  corral_loop *loop = loop_of(c);
  request r = {0};
  assert_int_equal(corral_loop_get(loop, "a", 1, NULL,
                                   CORRAL_ASYNC(.done = request_done, .start = abandon_twice,
                                                .gone = request_gone, .arg = &r),
                                   NULL),
                   CORRAL_OK);
  RUN_UNTIL(loop, r.gones, 1);
  assert_int_equal(r.starts, 3);
  assert_int_equal(r.dones, 1);
  assert_string_equal(r.text, "third");
  corral_loop_close(loop);
  corral_close(c);
}

static void gone_comes_after_the_compute_that_a_cancelled_call_began(void **state) {
  (void)state;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = store));
  corral_loop *loop = loop_of(c);
  request r = {0}, other = {.makes = "y"};
  ask(loop, "a", NULL, &r);
  RUN_UNTIL(loop, r.starts, 1);
  corral_async_call_cancel(r.call);
  ask(loop, "b", NULL, &other);
  RUN_UNTIL(loop, other.gones, 1);
  assert_int_equal(r.gones, 0);
  make(&r, "x");
  RUN_UNTIL(loop, r.gones, 1);
  assert_int_equal(r.dones, 0);
  corral_loop_close(loop);
  corral_close(c);
}

typedef struct joiner {
  request leader;
  corral *c;
} joiner;

/* Lets the flight land while another call is about to join it. */
static void land_at_join(const corral_event_info *info, void *arg) {
  joiner *j = arg;
  if (info->event != CORRAL_EVENT_JOIN) return;
  make(&j->leader, "x");
  await_counter(j->c, CORRAL_EVENT_FILL, 1);
  crl_env_pause_us(20000); /* the landing follows the event */
}

static void a_flight_that_lands_while_it_is_being_joined_answers_all_the_same(void **state) {
  (void)state;
  joiner j = {{0}, NULL};
  request late = {0};
  j.c = loop_corral(CORRAL_OPTIONS(.store = store, .on_event = land_at_join, .event_arg = &j));
  corral_loop *loop = loop_of(j.c);
  ask(loop, "a", NULL, &j.leader);
  RUN_UNTIL(loop, j.leader.starts, 1);
  ask(loop, "a", CORRAL_POLICY(.wait_ms = 3600000), &late);
  RUN_UNTIL(loop, late.gones, 1);
  assert_string_equal(late.text, "x");
  assert_int_equal(late.starts, 0);
  RUN_UNTIL(loop, j.leader.gones, 1);
  corral_loop_close(loop);
  corral_close(j.c);
}

/* ---- leaving a wait ------------------------------------------------------------------------ */

/* A waiter's looks are a minute apart unless it is woken. */
#define DROWSY .wait_ms = 3600000, .poll_ms = 60000, .poll_max_ms = 60000
/* A leader's lease, after the end of which a waiter would look, too. */
#define LASTS .lease_ms = 3600000, .lease_min_ms = 3600000

/* A leader, and a call in another corral that waits for it. */
typedef struct pair {
  corral *c, *other;
  corral_loop *loop, *there;
  request leader, waiter;
  int wakes; /* number of the waiter's looks that are still to be interrupted by a wake */
} pair;

/* POLL comes before the look. */
static void wake_at_look(const corral_event_info *info, void *arg) {
  pair *p = arg;
  if (info->event != CORRAL_EVENT_POLL || p->wakes == 0) return;
  p->wakes--;
  crl_scheduler_wake(p->waiter.call->flying);
}

static void begin_pair(pair *p) {
  p->c = loop_corral(CORRAL_OPTIONS(.store = store));
  p->other = loop_corral(CORRAL_OPTIONS(.store = store, .watch = CORRAL_OFF,
                                        .on_event = wake_at_look, .event_arg = p));
  p->loop = loop_of(p->c);
  p->there = loop_of(p->other);
  ask(p->loop, "a", CORRAL_POLICY(LASTS), &p->leader);
  RUN_UNTIL(p->loop, p->leader.starts, 1);
  ask(p->there, "a", CORRAL_POLICY(DROWSY), &p->waiter);
  await_counter(p->other, CORRAL_EVENT_WAIT, 1);
}

/* The waiter is cancelled. */
static void end_pair(pair *p) {
  corral_async_call_cancel(p->waiter.call);
  RUN_UNTIL(p->there, p->waiter.gones, 1);
  assert_int_equal(p->waiter.dones + p->waiter.starts, 0);
  make(&p->leader, "x");
  RUN_UNTIL(p->loop, p->leader.gones, 1);
  corral_loop_close(p->there);
  corral_loop_close(p->loop);
  corral_close(p->other);
  corral_close(p->c);
}

static void a_cancelled_call_that_waits_for_another_process_is_gone_at_once(void **state) {
  (void)state;
  pair p = {.wakes = 0};
  begin_pair(&p);
  end_pair(&p);
}

/* Wakes twice: the second time while the run isn't parked. */
static void a_waiter_that_is_woken_for_nothing_waits_on(void **state) {
  (void)state;
  pair p = {.wakes = 0};
  begin_pair(&p);
  for (uint64_t i = 1; i <= 20; i++) {
    crl_scheduler_wake(p.waiter.call->flying);
    crl_scheduler_wake(p.waiter.call->flying);
    await_counter(p.other, CORRAL_EVENT_POLL, i);
  }
  crl_env_pause_us(20000); /* a longer pause would show more looks of a run that doesn't wait */
  assert_in_range(corral_counter(p.other, CORRAL_EVENT_POLL), 20, 41);
  end_pair(&p);
}

static void a_waiter_that_is_woken_during_its_look_looks_again(void **state) {
  (void)state;
  pair p = {.wakes = 3};
  begin_pair(&p);
  crl_scheduler_wake(p.waiter.call->flying);
  await_counter(p.other, CORRAL_EVENT_POLL, 4);
  end_pair(&p);
}

static void
calls_that_wait_for_a_place_end_at_once_when_they_are_left_and_by_their_deadline(void **state) {
  (void)state;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = store, .max_computes = 1));
  corral_loop *loop = loop_of(c);
  corral_cancel_token *cancel_token = corral_cancel_token_new();
  request leader = {0}, cancelled = {0}, ticketed = {0}, late = {0};
  ask(loop, "a", CORRAL_POLICY(DROWSY), &leader);
  RUN_UNTIL(loop, leader.starts, 1);
  ask(loop, "b", CORRAL_POLICY(DROWSY), &cancelled);
  ask_by(loop, "c", CORRAL_CALL(.policy = CORRAL_POLICY(DROWSY), .cancel_token = cancel_token),
         &ticketed);
  ask(loop, "d", CORRAL_POLICY(.wait_ms = 50, .poll_ms = 60000, .poll_max_ms = 60000), &late);
  await_counter(c, CORRAL_EVENT_LIMITED, 3);
  corral_async_call_cancel(cancelled.call);
  corral_cancel_token_cancel(cancel_token);
  RUN_UNTIL(loop, cancelled.gones + ticketed.gones + late.gones, 3);
  assert_int_equal(cancelled.dones, 0);
  assert_int_equal(ticketed.status, CORRAL_ECANCELLED);
  assert_int_equal(late.status, CORRAL_EDEADLINE);
  make(&leader, "x");
  RUN_UNTIL(loop, leader.gones, 1);
  corral_cancel_token_free(cancel_token);
  corral_loop_close(loop);
  corral_close(c);
}

/* ---- functions ----------------------------------------------------------------------------- */

typedef struct chore {
  atomic_int began, ended, gone_early;
  atomic_int *gate;
} chore;

static int wait_at_gate(corral *c, void *arg, corral_error *error) {
  chore *e = arg;
  (void)c;
  (void)error;
  lab_add(&e->began, 1);
  lab_await_ms(e->gate, 1, LOOP_PATIENCE_MS);
  atomic_store(&e->ended, 1);
  return CORRAL_OK;
}

static void errand_done(void *arg, int status, corral_value *value, const corral_error *error) {
  (void)arg;
  (void)status;
  (void)value;
  (void)error;
}

static void errand_gone(void *arg) {
  chore *e = arg;
  if (atomic_load(&e->began) && !atomic_load(&e->ended)) atomic_store(&e->gone_early, 1);
  lab_add(&e->began, 100);
}

typedef struct closing {
  corral_loop *loop;
  atomic_int *gate;
} closing;

static int is_being_closed(corral_loop *loop) {
  crl_inbox_lock(loop);
  int is_closed = loop->is_closed;
  crl_inbox_unlock(loop);
  return is_closed;
}

/* The close, which waits for the first function, drops the second one before the gate opens. */
static void *open_gate(void *arg) {
  const closing *e = arg;
  while (!is_being_closed(e->loop)) crl_env_pause_us(200);
  crl_env_pause_us(20000); /* a longer pause catches a close that doesn't wait more surely */
  lab_add(e->gate, 1);
  return NULL;
}

static void closing_a_loop_waits_for_functions_that_run_and_drops_those_that_dont(void **state) {
  (void)state;
  atomic_int gate = 0;
  chore first = {.gate = &gate}, second = {.gate = &gate};
  pthread_t thread;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = store, .workers = 1));
  corral_loop *loop = loop_of(c);
  closing closes = {.loop = loop, .gate = &gate};
  assert_int_equal(
      corral_loop_run(loop, wait_at_gate,
                      CORRAL_ASYNC(.done = errand_done, .gone = errand_gone, .arg = &first), NULL,
                      NULL),
      CORRAL_OK);
  assert_int_equal(
      corral_loop_run(loop, wait_at_gate,
                      CORRAL_ASYNC(.done = errand_done, .gone = errand_gone, .arg = &second), NULL,
                      NULL),
      CORRAL_OK);
  assert_true(lab_await_ms(&first.began, 1, LOOP_PATIENCE_MS));
  pthread_create(&thread, NULL, open_gate, &closes);
  corral_loop_close(loop);
  assert_int_equal(first.began, 101);
  assert_false(first.gone_early);
  assert_int_equal(second.began, 100);
  pthread_join(thread, NULL);
  corral_close(c);
  assert_int_equal(second.began, 100);
}

/* ---- tickets ------------------------------------------------------------------------------- */

static void free_ticket(request *r) { corral_cancel_token_free(r->arg); }

static void a_ticket_isnt_needed_any_more_when_its_call_is_done(void **state) {
  (void)state;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = store));
  corral_loop *loop = loop_of(c);
  corral_set(c, "stale", 5, NULL, "old", 3);
  for (int i = 0; i < 300; i++) {
    corral_cancel_token *cancel_token = corral_cancel_token_new();
    request r = {.makes = "x", .arg = cancel_token, .on_done = free_ticket};
    corral_expire(c, "stale", 5, NULL);
    ask_by(loop, "stale",
           CORRAL_CALL(.policy = CORRAL_POLICY(.swr_ms = 600000), .cancel_token = cancel_token),
           &r);
    RUN_UNTIL(loop, r.gones, 1);
  }
  corral_loop_close(loop);
  corral_close(c);
}

static void nor_is_it_when_the_call_is_done_and_its_compute_still_runs(void **state) {
  (void)state;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = store));
  corral_loop *loop = loop_of(c);
  request r = {.arg = corral_cancel_token_new(), .on_done = free_ticket};
  ask_by(loop, "a", CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 30), .cancel_token = r.arg), &r);
  RUN_UNTIL(loop, r.dones, 1);
  RUN_UNTIL(loop, r.starts, 1);
  assert_int_equal(r.status, CORRAL_EDEADLINE);
  make(&r, "x");
  RUN_UNTIL(loop, r.gones, 1);
  corral_loop_close(loop);
  corral_close(c);
}

/* ---- timers -------------------------------------------------------------------------------- */

/* 1: this thread gets no timer. */
static _Thread_local int refuses;

int __real_crl_timers_set(crl_timers *timers, crl_timer *timer, int64_t at);
int __wrap_crl_timers_set(crl_timers *timers, crl_timer *timer, int64_t at);

int __wrap_crl_timers_set(crl_timers *timers, crl_timer *timer, int64_t at) {
  return refuses ? CORRAL_EIO : __real_crl_timers_set(timers, timer, at);
}

static int bound(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "bound", 5);
}

static const corral_policy patient = {.size = sizeof patient, .wait_ms = 3600000};

/* A leader whose compute is open, and `count` waiters; each call has a timer. */
static void crowd(corral_loop *loop, request *leader, request *waiters, int count) {
  ask(loop, "a", &patient, leader);
  RUN_UNTIL(loop, leader->starts, 1);
  for (int i = 0; i < count; i++) ask(loop, "a", &patient, &waiters[i]);
}

static void a_call_that_cant_be_given_a_timer_is_refused_or_ends(void **state) {
  (void)state;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = store, .compute = bound));
  corral_loop *loop = loop_of(c);
  static request leader, waiters[WAITERS];
  request refused = {0}, ended = {0};
  crowd(loop, &leader, waiters, WAITERS);
  refuses = 1;
  assert_int_equal(ask_as(loop, "a", &patient, &refused, 1), CORRAL_EIO);
  refuses = 0;
  assert_int_equal(ask_as(loop, "b", &patient, &ended, 0), CORRAL_OK);
  await_counter(c, CORRAL_EVENT_FILL, 1);
  crl_env_pause_us(20000); /* until its run is freed, so that nothing else keeps the call */
  refuses = 1;
  RUN_UNTIL(loop, ended.gones, 1);
  refuses = 0;
  assert_int_equal(ended.status, CORRAL_EIO);
  assert_int_equal(refused.dones + refused.gones, 0);
  make(&leader, "x");
  for (int i = 0; i < WAITERS; i++) RUN_UNTIL(loop, waiters[i].gones, 1);
  RUN_UNTIL(loop, leader.gones, 1);
  corral_loop_close(loop);
  corral_close(c);
}

static void await_mail(corral_loop *loop) {
  struct pollfd fd = {.fd = corral_loop_fd(loop), .events = POLLIN};
  assert_int_equal(poll(&fd, 1, LOOP_PATIENCE_MS), 1);
}

static void a_call_that_cant_be_given_its_second_timer_ends(void **state) {
  (void)state;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = store));
  corral_loop *loop = loop_of(c);
  static request leader, waiters[WAITERS];
  request soft = {0}, last = {0};
  crowd(loop, &leader, waiters, WAITERS);
  corral_loop_dispatch(loop);
  ask(loop, "a", CORRAL_POLICY(.wait_ms = 3600000, .soft_ms = 4000), &soft);
  corral_loop_dispatch(loop); /* before its timer rings */
  await_mail(loop);           /* its timer rang */
  ask(loop, "a", &patient, &last);
  refuses = 1;
  RUN_UNTIL(loop, soft.gones, 1);
  refuses = 0;
  assert_int_equal(soft.status, CORRAL_EIO);
  make(&leader, "x");
  for (int i = 0; i < WAITERS; i++) RUN_UNTIL(loop, waiters[i].gones, 1);
  RUN_UNTIL(loop, leader.gones + last.gones, 2);
  corral_loop_close(loop);
  corral_close(c);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh_store)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_compute_of_ones_own_that_is_abandoned_ends_the_call_by_its_deadline),
      TEST(a_call_whose_compute_is_abandoned_may_be_told_to_start_again),
      TEST(gone_comes_after_the_compute_that_a_cancelled_call_began),
      TEST(a_flight_that_lands_while_it_is_being_joined_answers_all_the_same),
      TEST(a_cancelled_call_that_waits_for_another_process_is_gone_at_once),
      TEST(a_waiter_that_is_woken_for_nothing_waits_on),
      TEST(a_waiter_that_is_woken_during_its_look_looks_again),
      TEST(calls_that_wait_for_a_place_end_at_once_when_they_are_left_and_by_their_deadline),
      TEST(closing_a_loop_waits_for_functions_that_run_and_drops_those_that_dont),
      TEST(a_ticket_isnt_needed_any_more_when_its_call_is_done),
      TEST(nor_is_it_when_the_call_is_done_and_its_compute_still_runs),
      TEST(a_call_that_cant_be_given_a_timer_is_refused_or_ends),
      TEST(a_call_that_cant_be_given_its_second_timer_ends),
  };
  return cmocka_run_group_tests_name("loop_ends", tests, NULL, NULL);
}
