/* test_timers.c: each timer rings once, at its time and not before, in the order of the times; an
 * timer that was cleared or moved doesn't ring at its old time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <corral.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "os/timers.h"
#include "os/env.h"

enum { TIMERS = 500, PATIENCE_MS = 20000 };

typedef struct bell {
  crl_timer timer;
  int64_t at; /* its current time; 0: cleared */
  int rings;
  int64_t rang;
} bell;

static bell bells[TIMERS];
static atomic_int rings;
static int64_t latest; /* guarded by the timers' mutex, like all of `ring` */
static int disorder;

static int64_t ring(crl_timer *timer) {
  bell *b = (bell *)(void *)timer;
  b->rang = crl_env_now_ms();
  b->rings++;
  disorder |= timer->node.at < latest;
  latest = timer->node.at;
  atomic_fetch_add(&rings, 1);
  return INT64_MAX;
}

static void await_rings(int count) {
  int64_t until = crl_env_now_ms() + PATIENCE_MS;
  while (atomic_load(&rings) < count) {
    if (crl_env_now_ms() > until) fail_msg("%d of %d timers rang", rings, count);
    crl_env_pause_us(500);
  }
}

static void reset(crl_timers *timers) {
  for (int i = 0; i < TIMERS; i++) crl_timers_clear(timers, &bells[i].timer);
  for (int i = 0; i < TIMERS; i++) bells[i] = (bell){.timer = {.ring = ring}};
  rings = 0;
  latest = 0;
  disorder = 0;
}

/* Many timers are set, moved and cleared before the first one is due. */
static void alarms_ring_in_order_however_they_were_set_and_cleared(void **state) {
  (void)state;
  uint64_t dice = (uint64_t)crl_env_now_us(), seed = dice;
  crl_timers *timers = crl_timers_new();
  for (int round = 0; round < 5; round++) {
    int expected = 0;
    reset(timers);
    int64_t base = crl_env_now_ms() + 120;
    for (int i = 0; i < 6 * TIMERS; i++) {
      dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      bell *b = &bells[(dice >> 33) % TIMERS];
      b->at = (dice >> 20) % 3 == 0 ? 0 : base + (int64_t)((dice >> 40) % 60);
      if (b->at == 0)
        crl_timers_clear(timers, &b->timer);
      else
        assert_int_equal(crl_timers_set(timers, &b->timer, b->at), 0);
    }
    if (crl_env_now_ms() >= base) continue; /* the machine was too busy */
    for (int i = 0; i < TIMERS; i++) expected += bells[i].at != 0;
    await_rings(expected);
    for (int i = 0; i < TIMERS; i++) {
      crl_timers_clear(timers, &bells[i].timer);
      if (bells[i].rings != (bells[i].at != 0))
        fail_msg("seed %llu: an timer rang %d times", (unsigned long long)seed, bells[i].rings);
      if (bells[i].rang < bells[i].at)
        fail_msg("seed %llu: an timer rang early", (unsigned long long)seed);
    }
    if (disorder) fail_msg("seed %llu: not in order", (unsigned long long)seed);
  }
  reset(timers);
  crl_timers_free(timers);
}

static void an_earlier_alarm_rings_though_the_thread_sleeps_towards_a_later_one(void **state) {
  (void)state;
  crl_timers *timers = crl_timers_new();
  reset(timers);
  crl_timers_set(timers, &bells[0].timer, crl_env_now_ms() + 3600000);
  crl_env_pause_us(5000); /* until the thread sleeps */
  crl_timers_set(timers, &bells[1].timer, crl_env_now_ms() + 5);
  await_rings(1);
  assert_int_equal(bells[1].rings, 1);
  crl_timers_set(timers, &bells[0].timer, crl_env_now_ms());
  await_rings(2);
  crl_timers_free(timers);
}

/* The number of times that the timers' thread went to sleep; -1: there is none. */
static long sleeps_of_the_thread(void) {
  long found = -1;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
    char path[300], line[128], name[64] = "";
    long sleeps = -1;
    snprintf(path, sizeof path, "/proc/self/task/%.200s/status", task->d_name);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
      (void)sscanf(line, "Name: %63s", name);
      (void)sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps);
    }
    if (file != NULL) fclose(file);
    if (strcmp(name, "corral-timers") == 0) found = sleeps;
  }
  closedir(tasks);
  return found;
}

static void a_later_alarm_wakes_nobody(void **state) {
  (void)state;
  enum { SETS = 1000, FAR = 600000 };
  crl_timers *timers = crl_timers_new();
  reset(timers);
  int64_t now = crl_env_now_ms();
  assert_int_equal(crl_timers_set(timers, &bells[0].timer, now + FAR), CORRAL_OK);
  while (sleeps_of_the_thread() < 1 && crl_env_now_ms() < now + PATIENCE_MS) crl_env_pause_us(500);
  long before = sleeps_of_the_thread();
  for (int i = 1; i < SETS; i++) {
    crl_timers_clear(timers, &bells[0].timer); /* the thread sleeps towards it nevertheless */
    assert_int_equal(crl_timers_set(timers, &bells[0].timer, now + FAR + i), CORRAL_OK);
    crl_env_pause_us(20); /* it could run */
  }
  assert_in_range(sleeps_of_the_thread() - before, 0, SETS / 20);
  crl_timers_clear(timers, &bells[0].timer);
  crl_timers_free(timers);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alarms_ring_in_order_however_they_were_set_and_cleared),
      cmocka_unit_test(a_later_alarm_wakes_nobody),
      cmocka_unit_test(an_earlier_alarm_rings_though_the_thread_sleeps_towards_a_later_one),
  };
  return cmocka_run_group_tests_name("timers", tests, NULL, NULL);
}
