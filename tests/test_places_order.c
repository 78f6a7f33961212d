/* test_places_order.c: threads, calls of several keys and calls of event loops wait for places in
 * one order, are woken, and give back what they don't need any more. */
#include <sys/resource.h>

#include "support/places_kit.h"

enum { LOOP_CALLS = 19, BUSY = 3, ROUNDS = 8 };

/* ---- loops --------------------------------------------------------------------------------- */

/* request.arg: the site. */
static void start_noted(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  request *r = arg;
  site *s = r->arg;
  r->starts++;
  site_enter(s, key, key_len);
  corral_fill_bytes(fill, key, key_len);
  site_leave(s);
  corral_fill_done(fill);
}

/* Begins a call of a loop that is to wait for a place, as the `nth` one of its corral. */
static void ask_queued(corral_loop *loop, request *r, site *s, const char *key,
                       const corral_policy *policy, int nth) {
  *r = (request){.arg = s};
  assert_int_equal(corral_loop_get(loop, key, strlen(key), CORRAL_CALL(.policy = policy),
                                   CORRAL_ASYNC(.done = request_done, .start = start_noted,
                                                .gone = request_gone, .arg = r),
                                   &r->call),
                   CORRAL_OK);
  await_counter(s->c, CORRAL_EVENT_LIMITED, (uint64_t)nth);
}

static void run_to_the_end(corral_loop *loop, request *r, int count) {
  for (int i = 0; i < count; i++) {
    RUN_UNTIL(loop, r[i].gones, 1);
    assert_int_equal(r[i].status, CORRAL_OK);
  }
}

/* Opens a site with one place, which the compute of "G" has. */
static void open_full(site *s, caller *holder) {
  site_open(s, next_store(), (corral_options){.max_computes = 1});
  call(holder, s, "G");
  site_await(s, 1);
}

/* ---- the order ----------------------------------------------------------------------------- */

static void threads_and_loops_get_places_by_rank_then_as_they_came(void **state) {
  (void)state;
  caller holder, a[3];
  request r[3];
  site s = {0};
  const corral_policy *warm = CORRAL_POLICY(.warm = 1);
  open_full(&s, &holder);
  corral_loop *loop = loop_of(s.c);
  call_as(&a[0], &s, "w1", warm);
  await_counter(s.c, CORRAL_EVENT_LIMITED, 1);
  ask_queued(loop, &r[0], &s, "w2", warm, 2);
  ask_queued(loop, &r[1], &s, "1", NULL, 3);
  call_queued(&a[1], &s, "2", 4);
  ask_queued(loop, &r[2], &s, "3", NULL, 5);
  call_queued(&a[2], &s, "4", 6);
  lab_add(&s.gate, 1);
  run_to_the_end(loop, r, 3);
  all_end(a, 3);
  ends(&holder, CORRAL_OK);
  assert_string_equal(s.order, " G 1 2 3 4 w1 w2");
  assert_int_equal(s.most, 1);
  corral_loop_close(loop);
  site_close(&s);
}

typedef struct busy {
  pthread_t thread;
  site *site;
  int number, failed;
  atomic_int *stop;
} busy;

/* Asks one key after the other, so that it waits for a place most of the time. */
static void *ask_on_and_on(void *arg) {
  busy *b = arg;
  for (int i = 0; !atomic_load(b->stop); i++) {
    char key[24];
    snprintf(key, sizeof key, "t%d-%d", b->number, i);
    b->failed += site_get(b->site, key, NULL) != CORRAL_OK;
  }
  return NULL;
}

/* Number of computes of busy threads before the last one of a loop's call. */
static int thread_computes_before_the_last_call(const site *s) {
  int count = 0, before = 0;
  for (const char *at = s->order; (at = strchr(at, ' ')) != NULL; at++) {
    count += at[1] == 't';
    if (at[1] == 'l') before = count;
  }
  return before;
}

/* A thread's next call queues behind the calls of the loop. */
static void a_loop_s_calls_do_not_starve_beside_busy_threads(void **state) {
  (void)state;
  caller holder;
  busy b[BUSY];
  request r[LOOP_CALLS];
  atomic_int stop = 0;
  site s = {0};
  open_full(&s, &holder);
  corral_loop *loop = loop_of(s.c);
  for (int i = 0; i < BUSY; i++) {
    b[i] = (busy){.site = &s, .number = i, .stop = &stop};
    assert_int_equal(pthread_create(&b[i].thread, NULL, ask_on_and_on, &b[i]), 0);
  }
  await_counter(s.c, CORRAL_EVENT_LIMITED, BUSY);
  for (int i = 0; i < LOOP_CALLS; i++) {
    char key[24];
    snprintf(key, sizeof key, "l%d", i);
    ask_queued(loop, &r[i], &s, key, NULL, BUSY + i + 1);
  }
  lab_add(&s.gate, 1);
  run_to_the_end(loop, r, LOOP_CALLS);
  atomic_store(&stop, 1);
  for (int i = 0; i < BUSY; i++) {
    pthread_join(b[i].thread, NULL);
    assert_int_equal(b[i].failed, 0);
  }
  ends(&holder, CORRAL_OK);
  assert_int_equal(thread_computes_before_the_last_call(&s), BUSY);
  assert_int_equal(s.most, 1);
  corral_loop_close(loop);
  site_close(&s);
}

static void who_leaves_the_queue_keeps_nobody_back(void **state) {
  (void)state;
  caller holder, hasty, last;
  request r[2];
  site s = {0};
  open_full(&s, &holder);
  corral_loop *loop = loop_of(s.c);
  call_as(&hasty, &s, "hasty", CORRAL_POLICY(.wait_ms = 20));
  await_counter(s.c, CORRAL_EVENT_LIMITED, 1);
  ask_queued(loop, &r[0], &s, "cancelled", NULL, 2);
  ask_queued(loop, &r[1], &s, "l", NULL, 3);
  call_queued(&last, &s, "t", 4);
  corral_async_call_cancel(r[0].call);
  RUN_UNTIL(loop, r[0].gones, 1);
  ends(&hasty, CORRAL_EDEADLINE);
  lab_add(&s.gate, 1);
  RUN_UNTIL(loop, r[1].gones, 1);
  ends(&last, CORRAL_OK);
  ends(&holder, CORRAL_OK);
  assert_int_equal(r[0].dones, 0);
  assert_int_equal(r[1].status, CORRAL_OK);
  assert_string_equal(s.order, " G l t");
  corral_loop_close(loop);
  site_close(&s);
}

/* ---- calls of several keys ----------------------------------------------------------------- */

/* A call of several keys in a thread; its keys are separated by spaces. */
typedef struct batch {
  pthread_t thread;
  site *site;
  const corral_call *call;
  corral_item items[4];
  size_t count;
  char keys[40];
  long sleeps; /* times that its thread slept, or gave up the processor */
} batch;

static int compute_batch(corral_fill *const *fills, size_t count, void *arg) {
  site *s = arg;
  for (size_t i = 0; i < count; i++) {
    size_t len;
    const char *key = corral_fill_key(fills[i], &len);
    if (i == 0) site_enter(s, key, len);
    if (i > 0) site_note(s, key, len);
    corral_fill_bytes(fills[i], key, len);
  }
  site_leave(s);
  return CORRAL_OK;
}

static long sleeps_of_this_thread(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

static void *batch_run(void *arg) {
  batch *b = arg;
  long before = sleeps_of_this_thread();
  if (corral_get_many(b->site->c, b->items, b->count, b->call, compute_batch, b->site) != CORRAL_OK)
    b->site->wrongs++;
  b->sleeps = sleeps_of_this_thread() - before;
  return NULL;
}

static void batch_begin(batch *b, site *s, const char *keys, const corral_call *call) {
  char *rest;
  *b = (batch){.site = s, .call = call};
  snprintf(b->keys, sizeof b->keys, "%s", keys);
  for (char *key = strtok_r(b->keys, " ", &rest); key; key = strtok_r(NULL, " ", &rest))
    b->items[b->count++] = (corral_item){.key = key, .key_len = strlen(key)};
  assert_int_equal(pthread_create(&b->thread, NULL, batch_run, b), 0);
}

static void batch_ends(batch *b, int status) {
  pthread_join(b->thread, NULL);
  for (size_t i = 0; i < b->count; i++) {
    assert_string_equal(corral_status_name(b->items[i].status), corral_status_name(status));
    corral_value_unref(b->items[i].value);
  }
}

/* Its keys have one turn together. */
static void a_call_of_several_keys_has_its_turn_in_the_same_order(void **state) {
  (void)state;
  caller holder, a, z;
  request r;
  batch b;
  site s = {0};
  open_full(&s, &holder);
  corral_loop *loop = loop_of(s.c);
  call_queued(&a, &s, "a", 1);
  batch_begin(&b, &s, "x y", NULL);
  await_counter(s.c, CORRAL_EVENT_LIMITED, 3);
  ask_queued(loop, &r, &s, "l", NULL, 4);
  call_queued(&z, &s, "z", 5);
  lab_add(&s.gate, 1);
  run_to_the_end(loop, &r, 1);
  ends(&a, CORRAL_OK);
  ends(&z, CORRAL_OK);
  batch_ends(&b, CORRAL_OK);
  ends(&holder, CORRAL_OK);
  assert_string_equal(s.order, " G a x y l z");
  assert_int_equal(s.most, 1);
  corral_loop_close(loop);
  site_close(&s);
}

/* "k" is computed by another process, longer than the other two keys take. */
static void a_shared_place_is_given_back_when_no_key_needs_it_any_more(void **state) {
  (void)state;
  caller leader, other;
  batch b;
  const char *uri = next_store();
  site one = {0}, two = {0};
  site_open(&one, uri, (corral_options){.max_computes = 1});
  /* a leader that is late to extend its lease keeps it */
  const corral_policy *patient = CORRAL_POLICY(.lease_ms = 60000, .lease_min_ms = 60000);
  site_open(&two, uri, (corral_options){.policy = patient});
  call(&leader, &two, "Gk");
  site_await(&two, 1);
  batch_begin(&b, &one, "x y Gk", NULL);
  site_await(&one, 1);
  call(&other, &one, "other");
  ends(&other, CORRAL_OK);
  assert_int_equal(two.now, 1);
  lab_add(&two.gate, 1);
  batch_ends(&b, CORRAL_OK);
  ends(&leader, CORRAL_OK);
  assert_int_equal(one.most, 1);
  assert_string_equal(one.order, " x y other");
  site_close(&one);
  site_close(&two);
}

static void a_call_of_several_keys_that_leaves_the_queue_keeps_nobody_back(void **state) {
  (void)state;
  caller holder, last;
  batch hasty, cancelled;
  site s = {0};
  corral_cancel_token *token = corral_cancel_token_new();
  open_full(&s, &holder);
  batch_begin(&hasty, &s, "a b", CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 20)));
  await_counter(s.c, CORRAL_EVENT_LIMITED, 2);
  batch_begin(&cancelled, &s, "c d", CORRAL_CALL(.cancel_token = token));
  await_counter(s.c, CORRAL_EVENT_LIMITED, 4);
  call_queued(&last, &s, "t", 5);
  corral_cancel_token_cancel(token);
  batch_ends(&cancelled, CORRAL_ECANCELLED);
  batch_ends(&hasty, CORRAL_EDEADLINE);
  lab_add(&s.gate, 1);
  ends(&last, CORRAL_OK);
  ends(&holder, CORRAL_OK);
  assert_string_equal(s.order, " G t");
  corral_cancel_token_free(token);
  site_close(&s);
}

/* ---- waking -------------------------------------------------------------------------------- */

typedef struct sleeper {
  caller caller;
  long sleeps;
} sleeper;

static void *sleeper_run(void *arg) {
  sleeper *a = arg;
  long before = sleeps_of_this_thread();
  caller_run(&a->caller);
  a->sleeps = sleeps_of_this_thread() - before;
  return NULL;
}

/* The least pause of anybody who polled would be poll_max_ms, 1 ms here. */
static void who_waits_for_a_place_sleeps_until_it_is_woken(void **state) {
  (void)state;
  enum { WAIT_MS = 300, SLEEPS_MOST = WAIT_MS / 6 };
  caller holder;
  batch b;
  sleeper a = {.caller = {.key = "a"}};
  site s = {0};
  site_open(&s, next_store(),
            (corral_options){.max_computes = 1,
                             .policy = CORRAL_POLICY(.poll_ms = 1, .poll_max_ms = 1,
                                                     .wait_ms = PLACES_PATIENCE_MS)});
  call(&holder, &s, "G");
  site_await(&s, 1);
  a.caller.site = &s;
  assert_int_equal(pthread_create(&a.caller.thread, NULL, sleeper_run, &a), 0);
  await_counter(s.c, CORRAL_EVENT_LIMITED, 1);
  batch_begin(&b, &s, "x y", NULL);
  await_counter(s.c, CORRAL_EVENT_LIMITED, 3);
  lab_sleep_ms(WAIT_MS);
  lab_add(&s.gate, 1);
  ends(&a.caller, CORRAL_OK);
  batch_ends(&b, CORRAL_OK);
  ends(&holder, CORRAL_OK);
  print_message("           %ld and %ld sleeps\n", a.sleeps, b.sleeps);
  assert_in_range(a.sleeps, 0, SLEEPS_MOST);
  assert_in_range(b.sleeps, 0, SLEEPS_MOST);
  assert_int_equal(counted(&s, CORRAL_EVENT_LIMITED), 3);
  site_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_and_loops_get_places_by_rank_then_as_they_came),
      cmocka_unit_test(a_loop_s_calls_do_not_starve_beside_busy_threads),
      cmocka_unit_test(who_leaves_the_queue_keeps_nobody_back),
      cmocka_unit_test(a_call_of_several_keys_has_its_turn_in_the_same_order),
      cmocka_unit_test(a_shared_place_is_given_back_when_no_key_needs_it_any_more),
      cmocka_unit_test(a_call_of_several_keys_that_leaves_the_queue_keeps_nobody_back),
      cmocka_unit_test(who_waits_for_a_place_sleeps_until_it_is_woken),
  };
  return cmocka_run_group_tests_name("places order", tests, NULL, NULL);
}
