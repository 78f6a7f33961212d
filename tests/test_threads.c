/* test_threads.c: eight threads call all functions at once on 200 keys, for ThreadSanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, KEYS = 200, ROUNDS = 1500, SET = 1 << 30 };

typedef struct crowd {
  corral *corral;
  atomic_int ids; /* values made so far, over all keys */
  /* raised when an invalidation has returned: smaller numbers must not be served any more */
  atomic_int floor[KEYS];
  atomic_int wrongs;
  atomic_int computes;
  _Atomic uint64_t seen[CORRAL_EVENT_COUNT];
  pthread_mutex_t mutex; /* guards `wrong` */
  char wrong[200];
} crowd;

typedef struct worker {
  crowd *all;
  int number;
  uint64_t dice;
} worker;

static unsigned roll(worker *w, unsigned sides) {
  w->dice = w->dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (unsigned)(w->dice >> 33) % sides;
}

static void wrong(crowd *all, const char *what, int key, long number) {
  pthread_mutex_lock(&all->mutex);
  if (all->wrong[0] == '\0')
    snprintf(all->wrong, sizeof all->wrong, "key %d: %s (%ld)", key, what, number);
  pthread_mutex_unlock(&all->mutex);
  atomic_fetch_add(&all->wrongs, 1);
}

/* Fills "KEY NUMBER"; the number is drawn when the compute begins. */
static int make(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  crowd *all = arg;
  char text[64];
  int id = atomic_fetch_add(&all->ids, 1) + 1;
  atomic_fetch_add(&all->computes, 1);
  if (id % 97 == 0)
    corral_fill_fail(fill, id, "now and then");
  else if (id % 53 == 0)
    corral_fill_negative(fill);
  else
    corral_fill_bytes(
        fill, text,
        (size_t)snprintf(text, sizeof text, "%.*s %d", (int)key_len, (const char *)key, id));
  return CORRAL_OK;
}

static void count_event(const corral_event_info *info, void *arg) {
  crowd *all = arg;
  atomic_fetch_add(&all->seen[info->event], 1);
}

/* `floor`: the key's floor before the call. */
static void check(crowd *all, int key, const char *name, int status, corral_value *value,
                  int floor) {
  char text[64] = "", *end = text;
  if (status == CORRAL_ENOTFOUND || status == CORRAL_EFAILED) return;
  if (status != CORRAL_OK) {
    wrong(all, corral_status_name(status), key, status);
    return;
  }
  size_t size = corral_value_size(value), len = strlen(name);
  memcpy(text, corral_value_data(value), size < sizeof text ? size : sizeof text - 1);
  if (strncmp(text, name, len) != 0 || text[len] != ' ') wrong(all, "another key's value", key, 0);
  long number = strtol(text + len, &end, 10);
  if (number <= floor) wrong(all, "a value from before an invalidate", key, number);
  corral_value_unref(value);
}

static void invalidate(crowd *all, int key, const char *name) {
  int before = atomic_load(&all->ids);
  int status = corral_invalidate(all->corral, name, strlen(name), NULL);
  if (status != CORRAL_OK) wrong(all, "invalidate", key, status);
  int floor = atomic_load(&all->floor[key]);
  while (floor < before && !atomic_compare_exchange_weak(&all->floor[key], &floor, before))
    continue;
}

/* A set value isn't computed, so it is never from before an invalidation: an invalidation and a set
 * at the same time may come in either order. */
static void set(crowd *all, int key, const char *name) {
  char text[64];
  int len = snprintf(text, sizeof text, "%s %d", name, SET);
  int status = corral_set(all->corral, name, strlen(name), NULL, text, (size_t)len);
  if (status != CORRAL_OK && status != CORRAL_ELOST && status != CORRAL_EBUSY)
    wrong(all, "set", key, status);
}

static void do_one(worker *w) {
  crowd *all = w->all;
  char name[16];
  corral_value *value = NULL;
  corral_inspection seen = {.size = sizeof seen};
  int status, key = (int)(roll(w, 2) == 0 ? roll(w, 5) : roll(w, KEYS)); /* some keys are hot */
  size_t len = (size_t)snprintf(name, sizeof name, "key-%d", key);
  int floor = atomic_load(&all->floor[key]);
  const corral_policy *policy =
      CORRAL_POLICY(.swr_ms = 10000, .sie_ms = 20000, .retry_ms = 5, .negative_ttl_ms = 20);
  switch (roll(w, 20)) {
    case 0: invalidate(all, key, name); break;
    case 1: corral_expire(all->corral, name, len, NULL); break;
    case 2: set(all, key, name); break;
    case 3: corral_inspect(all->corral, name, len, NULL, &seen); break;
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
      status = corral_get(all->corral, name, len, CORRAL_CALL(.policy = policy), &value);
      check(all, key, name, status, value, floor);
      break;
    default:
      status = corral_get_or_compute(all->corral, name, len, CORRAL_CALL(.policy = policy), make,
                                     all, &value);
      check(all, key, name, status, value, floor);
  }
}

static void *run(void *arg) {
  worker *w = arg;
  for (int i = 0; i < ROUNDS; i++) do_one(w);
  return NULL;
}

static void eight_threads_do_everything_at_once(void **state) {
  (void)state;
  static crowd all;
  pthread_t threads[THREADS];
  worker workers[THREADS];
  uint64_t seed = (uint64_t)(uintptr_t)&seed ^ UINT64_C(0x9e3779b97f4a7c15);
  pthread_mutex_init(&all.mutex, NULL);
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "memory:", .compute = make, .compute_arg = &all,
                                 .workers = 3, .on_event = count_event, .event_arg = &all),
                  &all.corral, NULL),
      CORRAL_OK);
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.all = &all, .number = i, .dice = seed + (uint64_t)i * 7919};
    assert_int_equal(pthread_create(&threads[i], NULL, run, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  if (all.wrongs > 0)
    fail_msg("seed %llu: %d wrong: %s", (unsigned long long)seed, all.wrongs, all.wrong);
  assert_int_equal(corral_counter(all.corral, CORRAL_EVENT_DEADLINE), 0);
  assert_int_equal(corral_counter(all.corral, CORRAL_EVENT_CORRUPT), 0);
  corral_close(all.corral);
  assert_int_equal(all.seen[CORRAL_EVENT_COMPUTE], all.computes);
  print_message(
      "           %d computes, %llu hits, %llu stale, %llu joined, %llu fenced, %llu refreshed\n",
      all.computes, (unsigned long long)all.seen[CORRAL_EVENT_HIT],
      (unsigned long long)all.seen[CORRAL_EVENT_STALE],
      (unsigned long long)all.seen[CORRAL_EVENT_JOIN],
      (unsigned long long)all.seen[CORRAL_EVENT_FENCED],
      (unsigned long long)all.seen[CORRAL_EVENT_REFRESH]);
  pthread_mutex_destroy(&all.mutex);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eight_threads_do_everything_at_once),
  };
  return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
