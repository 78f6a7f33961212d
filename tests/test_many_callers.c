/* test_many_callers.c: corral_get_many beside other calls: it joins their flights, and they join
 * its flights. */
#include "support/many_kit.h"

/* ---- with other calls ---------------------------------------------------------------------- */

static void a_batch_computes_its_own_while_another_computes_the_rest_and_joins_that(void **state) {
  room *r = *state;
  single other;
  batch b;
  atomic_store(&r->held, 1);
  start_single(&other, r, "theirs", hold_still);
  until(atomic_load(&r->inside) == 1);
  start_batch(&b, r, (const char *const[]){"theirs", "mine", "mine too", NULL}, by_letter);
  until(atomic_load(&r->calls) == 1);
  nap_ms(20);
  atomic_store(&r->held, 0);
  end_batch(&b);
  end_single(&other, CORRAL_COMPUTED);
  is_own(&b.items[0], CORRAL_JOINED);
  is_own(&b.items[1], CORRAL_COMPUTED);
  is_own(&b.items[2], CORRAL_COMPUTED);
  drop(b.items, b.count);
  assert_int_equal(r->computes, 2);
  assert_int_equal(corral_counter(r->c, CORRAL_EVENT_JOIN), 1);
}

static int hold_all(corral_fill *const *fills, size_t count, void *arg) {
  room *r = arg;
  atomic_fetch_add(&r->inside, 1);
  while (atomic_load(&r->held) && !corral_fill_should_stop(fills[0])) nap_ms(1);
  for (size_t i = 0; i < count; i++) give_key(fills[i]);
  atomic_fetch_sub(&r->inside, 1);
  return CORRAL_OK;
}

static void single_calls_join_a_batch(void **state) {
  room *r = *state;
  single a, b;
  batch leader;
  atomic_store(&r->held, 1);
  start_batch(&leader, r, (const char *const[]){"a", "b", NULL}, hold_all);
  until(atomic_load(&r->inside) == 1);
  start_single(&a, r, "a", give);
  start_single(&b, r, "b", give);
  until(corral_counter(r->c, CORRAL_EVENT_JOIN) == 2);
  atomic_store(&r->held, 0);
  end_single(&a, CORRAL_JOINED);
  end_single(&b, CORRAL_JOINED);
  end_batch(&leader);
  drop(leader.items, leader.count);
}

/* Each compute waits until the other one runs. */
static int both_at_once(corral_fill *const *fills, size_t count, void *arg) {
  room *r = arg;
  atomic_fetch_add(&r->calls, 1);
  for (int i = 0; i < 4000 && atomic_load(&r->calls) < 2; i++) nap_ms(1);
  for (size_t i = 0; i < count; i++) give_key(fills[i]);
  return CORRAL_OK;
}

/* Two calls that join "x" meet there, while they enter their keys. */
static pthread_barrier_t meeting;

static void meet_at_x(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event == CORRAL_EVENT_JOIN && info->key_len == 1 && memcmp(info->key, "x", 1) == 0)
    pthread_barrier_wait(&meeting);
}

static void two_batches_that_each_lead_what_the_other_wants_compute_before_they_wait(void **state) {
  (void)state;
  room r;
  single x;
  batch a, b;
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .on_event = meet_at_x));
  pthread_barrier_init(&meeting, NULL, 2);
  atomic_store(&r.held, 1);
  start_single(&x, &r, "x", hold_still);
  until(atomic_load(&r.inside) == 1);
  start_batch(&a, &r, (const char *const[]){"k1", "x", "k2", NULL}, both_at_once);
  start_batch(&b, &r, (const char *const[]){"k2", "x", "k1", NULL}, both_at_once);
  until(atomic_load(&r.calls) == 2);
  assert_int_equal(corral_counter(r.c, CORRAL_EVENT_JOIN), 4);
  atomic_store(&r.held, 0);
  end_batch(&a);
  end_batch(&b);
  end_single(&x, CORRAL_COMPUTED);
  is_own(&a.items[0], CORRAL_COMPUTED);
  is_own(&b.items[0], CORRAL_COMPUTED);
  is_own(&a.items[1], CORRAL_JOINED);
  is_own(&a.items[2], CORRAL_JOINED);
  is_own(&b.items[2], CORRAL_JOINED);
  drop(a.items, a.count);
  drop(b.items, b.count);
  pthread_barrier_destroy(&meeting);
  corral_close(r.c);
}

/* Goes on when it is told to stop. */
static int hold_on(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  room *r = arg;
  atomic_fetch_add(&r->inside, 1);
  while (atomic_load(&r->held)) nap_ms(1);
  return corral_fill_bytes(fill, key, key_len);
}

/* 0: the batch came when the leader was given up already. */
static int is_replaced_after(int64_t compute_ms) {
  room r;
  single other = {.r = &r, .key = "theirs", .compute = hold_on, .policy = *usual()};
  batch b;
  other.policy.compute_ms = compute_ms;
  other.policy.retry_ms = CORRAL_OFF;
  open_room(&r, CORRAL_OPTIONS(.store = "memory:"));
  atomic_store(&r.held, 1);
  assert_int_equal(pthread_create(&other.thread, NULL, call_single, &other), 0);
  until(atomic_load(&r.inside) == 1);
  start_batch(&b, &r, (const char *const[]){"theirs", "mine", NULL}, by_letter);
  end_batch(&b);
  is_own(&b.items[0], CORRAL_COMPUTED);
  is_own(&b.items[1], CORRAL_COMPUTED);
  drop(b.items, b.count);
  int has_joined = corral_counter(r.c, CORRAL_EVENT_JOIN) == 1;
  if (has_joined) assert_int_equal(r.calls, 2);
  atomic_store(&r.held, 0);
  end_single(&other, CORRAL_COMPUTED);
  corral_close(r.c);
  return has_joined;
}

static void a_leader_that_is_given_up_is_replaced_by_the_batch(void **state) {
  (void)state;
  int64_t compute_ms = 100;
  while (!is_replaced_after(compute_ms) && compute_ms < 60000) compute_ms *= 2;
  assert_in_range(compute_ms, 100, 59999);
}

static int is_kept(const corral_item *item) {
  return item->value != NULL && corral_value_kept(item->value) == CORRAL_KEPT;
}

/* Calls corral_get_many while another call computes "theirs" without end. A call that has lost its
 * core has no time left for its own key: the next one has more. */
static void while_held(room *r, const corral_policy *policy,
                       void (*check)(const corral_item *items)) {
  single other;
  corral_item items[KEYS];
  corral_policy own = *policy;
  size_t n = 0;
  atomic_store(&r->held, 1);
  start_single(&other, r, "theirs", hold_still);
  until(atomic_load(&r->inside) == 1);
  for (int is_late = 1; is_late; own.wait_ms *= 2) {
    n = ITEMS("theirs", "mine");
    atomic_store(&r->calls, 0);
    assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = &own), by_letter, r),
                     CORRAL_OK);
    is_late = !is_kept(&items[1]) && own.wait_ms < 60000;
    if (is_late) drop(items, n);
  }
  check(items);
  is_own(&items[1], CORRAL_COMPUTED);
  drop(items, n);
  atomic_store(&r->held, 0);
  end_single(&other, CORRAL_COMPUTED);
}

static void is_late(const corral_item *items) { is_error(&items[0], CORRAL_EDEADLINE); }
static void is_stale(const corral_item *items) { is_own(&items[0], CORRAL_STALE); }
static void is_computed(const corral_item *items) {
  is_own(&items[0], CORRAL_COMPUTED);
  assert_int_equal(corral_value_kept(items[0].value), CORRAL_KEPT_NOT);
}

static void a_deadline_is_the_end_of_those_that_wait_alone(void **state) {
  while_held(*state, CORRAL_POLICY(.wait_ms = 50), is_late);
}

static void a_deadline_may_be_followed_by_an_own_compute(void **state) {
  room *r = *state;
  while_held(r, CORRAL_POLICY(.wait_ms = 50, .at_deadline = CORRAL_DEADLINE_COMPUTE), is_computed);
  assert_int_equal(r->calls, 2);
}

static void after_soft_ms_a_stale_value_will_do(void **state) {
  room *r = *state;
  const corral_policy *policy = CORRAL_POLICY(.swr_ms = CORRAL_OFF, .sie_ms = 60000);
  corral_set(r->c, "theirs", 6, CORRAL_CALL(.policy = policy), "theirs", 6);
  corral_expire(r->c, "theirs", 6, NULL);
  while_held(r, CORRAL_POLICY(.soft_ms = 30, .wait_ms = 20000), is_stale);
}

static void who_leaves_keeps_what_was_computed(void **state) {
  room *r = *state;
  single other;
  batch b;
  corral_cancel_token *cancel_token = corral_cancel_token_new();
  atomic_store(&r->held, 1);
  start_single(&other, r, "theirs", hold_still);
  until(atomic_load(&r->inside) == 1);
  b.policy = *usual();
  b.r = r;
  b.compute = by_letter;
  b.cancel_token = cancel_token;
  b.count = name_items(b.items, (const char *const[]){"theirs", "mine", NULL});
  assert_int_equal(pthread_create(&b.thread, NULL, call_batch, &b), 0);
  until(corral_counter(r->c, CORRAL_EVENT_FILL) == 1);
  corral_cancel_token_cancel(cancel_token);
  end_batch(&b);
  is_error(&b.items[0], CORRAL_ECANCELLED);
  is_own(&b.items[1], CORRAL_COMPUTED);
  drop(b.items, b.count);
  b.count = name_items(b.items, (const char *const[]){"theirs", "new", NULL});
  call_batch(&b);
  is_error(&b.items[1], CORRAL_ECANCELLED);
  atomic_store(&r->held, 0);
  end_single(&other, CORRAL_COMPUTED);
  corral_cancel_token_free(cancel_token);
}

static int take_a_while(corral_fill *const *fills, size_t count, void *arg) {
  room *r = arg;
  int inside = atomic_fetch_add(&r->inside, 1) + 1;
  if (inside > atomic_load(&r->most_inside)) atomic_store(&r->most_inside, inside);
  nap_ms(20);
  for (size_t i = 0; i < count; i++) give_key(fills[i]);
  atomic_fetch_add(&r->calls, 1);
  atomic_fetch_sub(&r->inside, 1);
  return CORRAL_OK;
}

static void a_call_takes_one_place_among_the_computes(void **state) {
  (void)state;
  room r;
  batch b[4];
  static const char *const keys[4][4] = {{"a1", "a2", "a3", NULL},
                                         {"b1", "b2", "b3", NULL},
                                         {"c1", "a1", "c3", NULL},
                                         {"d1", "b2", "c3", NULL}};
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .max_computes = 1));
  for (int i = 0; i < 4; i++) start_batch(&b[i], &r, keys[i], take_a_while);
  for (int i = 0; i < 4; i++) end_batch(&b[i]);
  for (int i = 0; i < 4; i++)
    for (size_t k = 0; k < b[i].count; k++) assert_int_equal(b[i].items[k].status, CORRAL_OK);
  for (int i = 0; i < 4; i++) drop(b[i].items, b[i].count);
  assert_int_equal(r.most_inside, 1);
  assert_in_range(r.calls, 2, 4);
  assert_int_equal(corral_counter(r.c, CORRAL_EVENT_COMPUTE), 9);
  corral_close(r.c);
}

/* ---- a crowd ------------------------------------------------------------------------------- */

enum { CROWD_KEYS = 20, CROWD_WANTS = 12 };

typedef struct crowd {
  corral *c;
  pthread_barrier_t barrier;
  atomic_int computes[ROUNDS][CROWD_KEYS], wanted[ROUNDS][CROWD_KEYS], wrongs, seat;
} crowd;

static int count_computes(corral_fill *const *fills, size_t count, void *arg) {
  crowd *all = arg;
  for (size_t i = 0; i < count; i++) {
    size_t len;
    const char *key = corral_fill_key(fills[i], &len);
    char text[32] = "";
    memcpy(text, key, len);
    char *second;
    long round = strtol(text, &second, 10);
    atomic_fetch_add(&all->computes[round][strtol(second + 1, NULL, 10)], 1);
    give_key(fills[i]);
  }
  nap_ms(1);
  return CORRAL_OK;
}

static void crowd_round(crowd *all, int round, unsigned *dice) {
  corral_item items[CROWD_WANTS];
  char names[CROWD_WANTS][32];
  for (int i = 0; i < CROWD_WANTS; i++) {
    *dice = *dice * 1664525u + 1013904223u;
    int key = (int)((*dice >> 16) % CROWD_KEYS);
    atomic_fetch_add(&all->wanted[round][key], 1);
    items[i] = (corral_item){
        .key = names[i], .key_len = (size_t)snprintf(names[i], sizeof *names, "%d-%d", round, key)};
  }
  if (corral_get_many(all->c, items, CROWD_WANTS, NULL, count_computes, all) != CORRAL_OK)
    atomic_fetch_add(&all->wrongs, 1);
  for (int i = 0; i < CROWD_WANTS; i++) {
    int good = items[i].status == CORRAL_OK &&
               corral_value_size(items[i].value) == items[i].key_len &&
               memcmp(corral_value_data(items[i].value), items[i].key, items[i].key_len) == 0;
    if (!good) atomic_fetch_add(&all->wrongs, 1);
    corral_value_unref(items[i].value);
  }
}

static void *crowd_member(void *arg) {
  crowd *all = arg;
  unsigned dice = (unsigned)atomic_fetch_add(&all->seat, 1) * 7919u + 1;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_wait(&all->barrier);
    crowd_round(all, round, &dice);
  }
  return NULL;
}

static void eight_threads_with_overlapping_batches_compute_each_key_once(void **state) {
  (void)state;
  static crowd all;
  pthread_t threads[THREADS];
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), &all.c, NULL), CORRAL_OK);
  pthread_barrier_init(&all.barrier, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, crowd_member, &all), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(all.wrongs, 0);
  for (int round = 0; round < ROUNDS; round++)
    for (int key = 0; key < CROWD_KEYS; key++)
      if (all.computes[round][key] != (all.wanted[round][key] > 0))
        fail_msg("round %d, key %d: %d computes", round, key, all.computes[round][key]);
  print_message("           %llu joins\n",
                (unsigned long long)corral_counter(all.c, CORRAL_EVENT_JOIN));
  assert_true(corral_counter(all.c, CORRAL_EVENT_JOIN) > ROUNDS);
  pthread_barrier_destroy(&all.barrier);
  corral_close(all.c);
}

#define IN_ROOM(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_ROOM(a_batch_computes_its_own_while_another_computes_the_rest_and_joins_that),
      IN_ROOM(single_calls_join_a_batch),
      cmocka_unit_test(two_batches_that_each_lead_what_the_other_wants_compute_before_they_wait),
      cmocka_unit_test(a_leader_that_is_given_up_is_replaced_by_the_batch),
      IN_ROOM(a_deadline_is_the_end_of_those_that_wait_alone),
      IN_ROOM(a_deadline_may_be_followed_by_an_own_compute),
      IN_ROOM(after_soft_ms_a_stale_value_will_do),
      IN_ROOM(who_leaves_keeps_what_was_computed),
      cmocka_unit_test(a_call_takes_one_place_among_the_computes),
      cmocka_unit_test(eight_threads_with_overlapping_batches_compute_each_key_once),
  };
  return cmocka_run_group_tests_name("many_callers", tests, NULL, NULL);
}
