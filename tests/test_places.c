/* test_places.c: a place to compute comes before the lease: what waits for a place holds nothing
 * that others wait for, and a nested compute borrows. */
#include "support/places_kit.h"

#include <dirent.h>

enum { FORTY = 40, TWELVE = 12, HUNDRED = 100, WORKERS = 4, LEASE_MS = 6000 };
/* A compute that a busy machine holds up for long lasts less than COMPUTE_MS. */
enum { COST_MS = 450, COMPUTE_MS = 5000 };

/* ---- leases and limits begin with the compute ---------------------------------------------- */

/* Two corrals on one store stand for two processes: the second one would take over the lease of a
 * job that only queues in the first one. */
static void a_lease_begins_with_its_compute_and_not_in_the_queue(void **state) {
  (void)state;
  static caller a[FORTY], b[FORTY];
  const corral_policy *policy =
      CORRAL_POLICY(.lease_ms = LEASE_MS, .lease_min_ms = LEASE_MS, .wait_ms = PLACES_PATIENCE_MS);
  const char *uri = next_store();
  site one = {.bound = 1}, two = {.bound = 1};
  site_open(&one, uri, (corral_options){.policy = policy});
  site_open(&two, uri, (corral_options){.policy = policy});
  call_all(a, FORTY, &one, "Gk");
  await_counter(one.c, CORRAL_EVENT_LIMITED, FORTY - WORKERS);
  site_await(&one, WORKERS);
  assert_int_equal(counted(&one, CORRAL_EVENT_CLAIM), WORKERS);
  call_all(b, FORTY, &two, "Gk");
  /* Each lease is extended every third of it: the queue stands for longer than a lease. */
  await_counter(one.c, CORRAL_EVENT_EXTEND, 4 * WORKERS);
  lab_add(&one.gate, 1);
  lab_add(&two.gate, 1);
  all_end(a, FORTY);
  all_end(b, FORTY);
  assert_int_equal(one.entered + two.entered, FORTY);
  assert_in_range(one.most, 1, WORKERS);
  assert_in_range(two.most, 1, WORKERS);
  const site *sites[] = {&one, &two};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(counted(sites[i], CORRAL_EVENT_LEASE_LOST), 0);
    assert_int_equal(counted(sites[i], CORRAL_EVENT_ABANDONED), 0);
    assert_int_equal(counted(sites[i], CORRAL_EVENT_FENCED), 0);
  }
  site_close(&one);
  site_close(&two);
}

static corral_options one_worker(const corral_policy *policy) {
  return (corral_options){.workers = 1, .policy = policy};
}

/* Twelve computes one after the other take longer than compute_ms, each takes much less. */
static void check_twelve(site *s) {
  assert_int_equal(counted(s, CORRAL_EVENT_COMPUTE), TWELVE);
  assert_int_equal(counted(s, CORRAL_EVENT_ABANDONED), 0);
  assert_int_equal(s->most, 1);
}

static void compute_ms_begins_with_the_compute_and_not_in_the_queue(void **state) {
  (void)state;
  static caller a[TWELVE];
  site s = {.bound = 1, .cost_ms = COST_MS};
  const corral_policy *policy =
      CORRAL_POLICY(.compute_ms = COMPUTE_MS, .wait_ms = PLACES_PATIENCE_MS);
  site_open(&s, next_store(), one_worker(policy));
  call_all(a, TWELVE, &s, "k");
  all_end(a, TWELVE);
  check_twelve(&s);
  site_close(&s);
}

static void so_it_does_for_the_calls_of_an_event_loop(void **state) {
  (void)state;
  request r[TWELVE] = {{0}};
  site s = {.bound = 1, .cost_ms = COST_MS};
  const corral_policy *policy =
      CORRAL_POLICY(.compute_ms = COMPUTE_MS, .wait_ms = PLACES_PATIENCE_MS);
  site_open(&s, next_store(), one_worker(policy));
  corral_loop *loop = loop_of(s.c);
  for (int i = 0; i < TWELVE; i++) {
    char key[24];
    snprintf(key, sizeof key, "k%d", i);
    assert_int_equal(ask_as(loop, key, NULL, &r[i], 0), CORRAL_OK);
  }
  for (int i = 0; i < TWELVE; i++) {
    RUN_UNTIL(loop, r[i].gones, 1);
    assert_int_equal(r[i].status, CORRAL_OK);
  }
  check_twelve(&s);
  corral_loop_close(loop);
  site_close(&s);
}

/* ---- two processes ------------------------------------------------------------------------- */

/* In each process the compute that runs gets the key that queues in the other one. */
static void two_processes_do_not_wait_for_each_other_s_queues(void **state) {
  (void)state;
  caller a, b, c, d;
  const char *uri = next_store();
  site one = {.bound = 1}, two = {.bound = 1};
  site_open(&one, uri, (corral_options){.workers = 1});
  site_open(&two, uri, (corral_options){.workers = 1});
  call(&a, &one, "Ga>b");
  call(&d, &two, "Gd>c");
  site_await(&one, 1);
  site_await(&two, 1);
  call_queued(&c, &one, "c", 1);
  call_queued(&b, &two, "b", 1);
  lab_add(&one.gate, 1);
  lab_add(&two.gate, 1);
  ends(&a, CORRAL_OK);
  ends(&b, CORRAL_OK);
  ends(&c, CORRAL_OK);
  ends(&d, CORRAL_OK);
  assert_int_equal(counted(&one, CORRAL_EVENT_DEADLINE) + counted(&two, CORRAL_EVENT_DEADLINE), 0);
  assert_int_equal(one.entered + two.entered, 4);
  site_close(&one);
  site_close(&two);
}

/* ---- borrowing ----------------------------------------------------------------------------- */

/* Called within a compute that has the only place: "b" queues for it in a thread, and this caller
 * joins that flight. */
static int joins_what_queues(site *s) {
  caller b;
  call_queued(&b, s, "b", 1);
  int status = site_get(s, "b", NULL);
  ends(&b, CORRAL_OK);
  assert_int_equal(counted(s, CORRAL_EVENT_JOIN), 1);
  assert_int_equal(s->entered, 1);
  return status;
}

static int nests(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  int status = joins_what_queues(arg);
  return status == CORRAL_OK ? corral_fill_bytes(fill, key, key_len) : status;
}

static void a_nested_get_lends_its_parent_s_place_to_the_flight_that_it_joins(void **state) {
  (void)state;
  corral_value *value = NULL;
  site s = {0};
  site_open(&s, next_store(), (corral_options){.max_computes = 1});
  assert_int_equal(corral_get_or_compute(s.c, "a", 1, NULL, nests, &s, &value), CORRAL_OK);
  corral_value_unref(value);
  site_close(&s);
}

static int nests_many(corral_fill *const *fills, size_t count, void *arg) {
  int status = joins_what_queues(arg);
  for (size_t i = 0; i < count; i++) corral_fill_bytes(fills[i], "x", 1);
  return status;
}

static void so_does_one_in_a_compute_of_several_keys(void **state) {
  (void)state;
  corral_item items[] = {{.key = "a1", .key_len = 2}, {.key = "a2", .key_len = 2}};
  site s = {0};
  site_open(&s, next_store(), (corral_options){.max_computes = 1});
  assert_int_equal(corral_get_many(s.c, items, 2, NULL, nests_many, &s), CORRAL_OK);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(items[i].status, CORRAL_OK);
    corral_value_unref(items[i].value);
  }
  site_close(&s);
}

/* The flight that is joined is that of a call of several keys, whose computes share one place. */
static int ask_two(corral_fill *const *fills, size_t count, void *arg) {
  site *s = arg;
  site_enter(s, "many", 4);
  for (size_t i = 0; i < count; i++) corral_fill_bytes(fills[i], "x", 1);
  site_leave(s);
  return CORRAL_OK;
}

static void *get_two(void *arg) {
  site *s = arg;
  corral_item items[] = {{.key = "b", .key_len = 1}, {.key = "c", .key_len = 1}};
  if (corral_get_many(s->c, items, 2, NULL, ask_two, s) != CORRAL_OK) s->wrongs++;
  for (int i = 0; i < 2; i++) {
    if (items[i].status != CORRAL_OK) s->wrongs++;
    corral_value_unref(items[i].value);
  }
  return NULL;
}

static void a_call_of_several_keys_borrows_for_all_of_them(void **state) {
  (void)state;
  caller a;
  pthread_t many;
  site s = {0};
  site_open(&s, next_store(), (corral_options){.max_computes = 1});
  call(&a, &s, "Ga>b");
  site_await(&s, 1);
  assert_int_equal(pthread_create(&many, NULL, get_two, &s), 0);
  await_counter(s.c, CORRAL_EVENT_LIMITED, 2);
  lab_add(&s.gate, 1);
  ends(&a, CORRAL_OK);
  pthread_join(many, NULL);
  assert_string_equal(s.order, " Ga>b many");
  site_close(&s);
}

static void start_nests(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  request *r = arg;
  r->starts++;
  r->inner = joins_what_queues(r->arg);
  corral_fill_bytes(fill, key, key_len);
  corral_fill_done(fill);
}

static void so_does_one_in_the_start_of_an_event_loop_s_call(void **state) {
  (void)state;
  site s = {0};
  request r = {.arg = &s, .inner = 1};
  site_open(&s, next_store(), (corral_options){.max_computes = 1});
  corral_loop *loop = loop_of(s.c);
  assert_int_equal(corral_loop_get(loop, "a", 1, NULL,
                                   CORRAL_ASYNC(.done = request_done, .start = start_nests,
                                                .gone = request_gone, .arg = &r),
                                   NULL),
                   CORRAL_OK);
  RUN_UNTIL(loop, r.gones, 1);
  assert_int_equal(r.inner, CORRAL_OK);
  assert_int_equal(r.status, CORRAL_OK);
  corral_loop_close(loop);
  site_close(&s);
}

static int function_nests(corral *c, void *arg, corral_error *error) {
  request *r = arg;
  (void)c;
  (void)error;
  return r->inner = joins_what_queues(r->arg);
}

/* The function has the only thread. */
static void so_does_one_in_a_function_on_the_library_s_thread(void **state) {
  (void)state;
  site s = {.bound = 1};
  request r = {.arg = &s, .inner = 1, .is_work = 1};
  site_open(&s, next_store(), (corral_options){.max_computes = 1, .workers = 1});
  corral_loop *loop = loop_of(s.c);
  assert_int_equal(
      corral_loop_run(loop, function_nests,
                      CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &r), NULL,
                      NULL),
      CORRAL_OK);
  RUN_UNTIL(loop, r.gones, 1);
  assert_int_equal(r.inner, CORRAL_OK);
  assert_int_equal(r.status, CORRAL_OK);
  corral_loop_close(loop);
  site_close(&s);
}

static int function_gets(corral *c, void *arg, corral_error *error) {
  request *r = arg;
  (void)c;
  (void)error;
  return r->inner = site_get(r->arg, "b", NULL);
}

/* A function has a thread, but no place to compute that it could lend. */
static void a_function_waits_for_a_place_to_compute_like_any_caller(void **state) {
  (void)state;
  for (int bound = 0; bound < 2; bound++) {
    caller a;
    site s = {.bound = bound};
    request r = {.arg = &s, .inner = 1, .is_work = 1};
    site_open(&s, next_store(), (corral_options){.max_computes = 1, .workers = 3});
    corral_loop *loop = loop_of(s.c);
    call(&a, &s, "Ga");
    site_await(&s, 1);
    assert_int_equal(
        corral_loop_run(loop, function_gets,
                        CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &r), NULL,
                        NULL),
        CORRAL_OK);
    await_counter(s.c, CORRAL_EVENT_LIMITED, 1);
    lab_add(&s.gate, 1);
    RUN_UNTIL(loop, r.gones, 1);
    ends(&a, CORRAL_OK);
    assert_int_equal(r.inner, CORRAL_OK);
    assert_int_equal(s.most, 1);
    corral_loop_close(loop);
    site_close(&s);
  }
}

/* ---- the bound is real --------------------------------------------------------------------- */

static int is_of_the_library(const char *task) {
  char path[300], name[32] = "";
  snprintf(path, sizeof path, "/proc/self/task/%s/comm", task);
  FILE *f = fopen(path, "r");
  if (f == NULL) return 0;
  if (fgets(name, sizeof name, f) == NULL) name[0] = '\0';
  fclose(f);
  return strncmp(name, "corral-", 7) == 0;
}

/* Number of the library's threads in this process. They never end before corral_close. */
static int threads_of_the_library(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (struct dirent *d; (d = readdir(tasks)) != NULL;)
    count += d->d_name[0] != '.' && is_of_the_library(d->d_name);
  closedir(tasks);
  return count;
}

/* One compute and at most 8 couriers; the timers and the watch; tasks of renewals, probes and
 * notices; and a compute's thread may still be on its way back to its pool when the next compute
 * begins on another one. */
enum { COURIERS = 8, SERVICES = 2, TASKS = 3, LATE = 6 };
enum { THREADS_MOST = 1 + COURIERS + SERVICES + TASKS + LATE };

static void one_worker_computes_one_key_at_a_time_on_few_threads(void **state) {
  (void)state;
  static caller a[HUNDRED];
  site s = {.bound = 1};
  site_open(&s, next_store(), (corral_options){.workers = 1});
  call_all(a, HUNDRED - 1, &s, "k");
  call(&a[HUNDRED - 1], &s, "Gk");
  await_counter(s.c, CORRAL_EVENT_COMPUTE, 1);
  lab_add(&s.gate, 1);
  all_end(a, HUNDRED);
  int threads = threads_of_the_library();
  print_message("           %d threads of the library\n", threads);
  assert_int_equal(s.entered, HUNDRED);
  assert_int_equal(s.most, 1);
  assert_in_range(threads, 1, THREADS_MOST);
  site_close(&s);
}

/* Refreshes behind stale answers wait for the place of a compute in a caller's thread. */
static void refreshes_that_queue_have_no_threads(void **state) {
  (void)state;
  static caller a[HUNDRED];
  caller holder;
  site s = {.bound = 1}, here = {0};
  const corral_policy *policy = CORRAL_POLICY(.swr_ms = 600000, .wait_ms = PLACES_PATIENCE_MS);
  site_open(&s, next_store(), (corral_options){.workers = 1, .max_computes = 1, .policy = policy});
  call_all(a, HUNDRED, &s, "k");
  all_end(a, HUNDRED);
  for (int i = 0; i < HUNDRED; i++)
    assert_int_equal(corral_expire(s.c, a[i].key, strlen(a[i].key), NULL), CORRAL_OK);
  here.c = s.c;
  pthread_mutex_init(&here.mutex, NULL);
  call(&holder, &here, "G");
  site_await(&here, 1);
  int before = counted(&s, CORRAL_EVENT_LIMITED);
  for (int i = 0; i < HUNDRED; i++) assert_int_equal(site_get(&s, a[i].key, NULL), CORRAL_OK);
  assert_int_equal(counted(&s, CORRAL_EVENT_STALE), HUNDRED);
  await_counter(s.c, CORRAL_EVENT_LIMITED, (uint64_t)(before + HUNDRED));
  int threads = threads_of_the_library();
  print_message("           %d threads of the library\n", threads);
  assert_in_range(threads, 1, THREADS_MOST);
  assert_int_equal(counted(&s, CORRAL_EVENT_CLAIM), HUNDRED + 1);
  lab_add(&here.gate, 1);
  await_counter(s.c, CORRAL_EVENT_REFRESH, HUNDRED);
  ends(&holder, CORRAL_OK);
  assert_int_equal(s.most, 1);
  site_close(&s);
  pthread_mutex_destroy(&here.mutex);
}

/* ---- the leaders of other processes -------------------------------------------------------- */

/* A leader that is late to extend it keeps it. */
#define LASTING_LEASE .lease_ms = 60000, .lease_min_ms = 60000

/* Waiters for another process' leader have no place. */
static void who_waits_for_another_process_keeps_no_place(void **state) {
  (void)state;
  caller leader, waiter, other;
  const char *uri = next_store();
  site one = {.bound = 1}, two = {.bound = 1};
  const corral_policy *policy = CORRAL_POLICY(LASTING_LEASE, .wait_ms = PLACES_PATIENCE_MS);
  site_open(&one, uri, (corral_options){.workers = 1, .max_computes = 1, .policy = policy});
  site_open(&two, uri, (corral_options){.workers = 1, .max_computes = 1, .policy = policy});
  call(&leader, &two, "Gk");
  site_await(&two, 1);
  call(&waiter, &one, "Gk");
  await_counter(one.c, CORRAL_EVENT_WAIT, 1);
  call(&other, &one, "other");
  ends(&other, CORRAL_OK);
  assert_int_equal(two.now, 1);
  lab_add(&two.gate, 1);
  ends(&waiter, CORRAL_OK);
  ends(&leader, CORRAL_OK);
  assert_int_equal(one.entered + two.entered, 2);
  site_close(&one);
  site_close(&two);
}

/* Likewise behind a stale answer, for threads and for a loop. */
static void a_refresh_that_another_process_does_keeps_no_place(void **state) {
  (void)state;
  caller first, other;
  const corral_policy *policy =
      CORRAL_POLICY(LASTING_LEASE, .swr_ms = 600000, .wait_ms = PLACES_PATIENCE_MS);
  const char *uri = next_store();
  request r[3] = {{0}};
  site one = {.bound = 1}, two = {.bound = 1};
  site_open(&one, uri, (corral_options){.workers = 1, .max_computes = 1, .policy = policy});
  site_open(&two, uri, (corral_options){.workers = 1, .max_computes = 1, .policy = policy});
  lab_add(&two.gate, 1);
  call(&first, &two, "Gk");
  ends(&first, CORRAL_OK);
  two.gate = 0;
  assert_int_equal(corral_expire(one.c, "Gk", 2, NULL), CORRAL_OK);
  assert_int_equal(site_get(&two, "Gk", NULL), CORRAL_OK);
  site_await(&two, 2);
  corral_loop *loop = loop_of(one.c);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(site_get(&one, "Gk", NULL), CORRAL_OK);
    assert_int_equal(ask_as(loop, "Gk", NULL, &r[i], 0), CORRAL_OK);
    RUN_UNTIL(loop, r[i].dones, 1);
  }
  call(&other, &one, "other");
  ends(&other, CORRAL_OK);
  assert_int_equal(counted(&one, CORRAL_EVENT_STALE), 6);
  assert_int_equal(two.now, 1);
  lab_add(&two.gate, 1);
  corral_loop_close(loop);
  site_close(&one);
  site_close(&two);
  assert_int_equal(one.entered, 1);
  assert_int_equal(two.entered, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lease_begins_with_its_compute_and_not_in_the_queue),
      cmocka_unit_test(compute_ms_begins_with_the_compute_and_not_in_the_queue),
      cmocka_unit_test(so_it_does_for_the_calls_of_an_event_loop),
      cmocka_unit_test(two_processes_do_not_wait_for_each_other_s_queues),
      cmocka_unit_test(a_nested_get_lends_its_parent_s_place_to_the_flight_that_it_joins),
      cmocka_unit_test(so_does_one_in_a_compute_of_several_keys),
      cmocka_unit_test(so_does_one_in_the_start_of_an_event_loop_s_call),
      cmocka_unit_test(so_does_one_in_a_function_on_the_library_s_thread),
      cmocka_unit_test(a_call_of_several_keys_borrows_for_all_of_them),
      cmocka_unit_test(a_function_waits_for_a_place_to_compute_like_any_caller),
      cmocka_unit_test(one_worker_computes_one_key_at_a_time_on_few_threads),
      cmocka_unit_test(refreshes_that_queue_have_no_threads),
      cmocka_unit_test(who_waits_for_another_process_keeps_no_place),
      cmocka_unit_test(a_refresh_that_another_process_does_keeps_no_place),
  };
  return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
