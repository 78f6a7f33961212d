/* test_alarms.c: each alarm rings once, at its time and not before, in the order of the times; an
 * alarm that was cleared or moved doesn't ring at its old time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "os/timers.h"
#include "os/env.h"

enum { ALARMS = 500, PATIENCE_MS = 20000 };

typedef struct bell {
  crl_timer alarm;
  int64_t at; /* its current time; 0: cleared */
  int rings;
  int64_t rang;
} bell;

static bell bells[ALARMS];
static atomic_int rings;
static int64_t latest; /* guarded by the alarms' mutex, like all of `ring` */
static int disorder;

static void ring(crl_timer *alarm) {
  bell *b = (bell *)(void *)alarm;
  b->rang = crl_env_now_ms();
  b->rings++;
  disorder |= alarm->at < latest;
  latest = alarm->at;
  atomic_fetch_add(&rings, 1);
}

static void await_rings(int count) {
  int64_t until = crl_env_now_ms() + PATIENCE_MS;
  while (atomic_load(&rings) < count) {
    if (crl_env_now_ms() > until) fail_msg("%d of %d alarms rang", rings, count);
    crl_env_pause_us(500);
  }
}

static void reset(crl_timers *alarms) {
  for (int i = 0; i < ALARMS; i++) crl_timers_clear(alarms, &bells[i].alarm);
  for (int i = 0; i < ALARMS; i++) bells[i] = (bell){.alarm = {.ring = ring}};
  rings = 0;
  latest = 0;
  disorder = 0;
}

/* Many alarms are set, moved and cleared before the first one is due. */
static void alarms_ring_in_order_however_they_were_set_and_cleared(void **state) {
  (void)state;
  uint64_t dice = (uint64_t)crl_env_now_us(), seed = dice;
  crl_timers *alarms = crl_timers_new();
  for (int round = 0; round < 5; round++) {
    int expected = 0;
    reset(alarms);
    int64_t base = crl_env_now_ms() + 120;
    for (int i = 0; i < 6 * ALARMS; i++) {
      dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      bell *b = &bells[(dice >> 33) % ALARMS];
      b->at = (dice >> 20) % 3 == 0 ? 0 : base + (int64_t)((dice >> 40) % 60);
      if (b->at == 0)
        crl_timers_clear(alarms, &b->alarm);
      else
        assert_int_equal(crl_timers_set(alarms, &b->alarm, b->at), 0);
    }
    if (crl_env_now_ms() >= base) continue; /* the machine was too busy */
    for (int i = 0; i < ALARMS; i++) expected += bells[i].at != 0;
    await_rings(expected);
    for (int i = 0; i < ALARMS; i++) {
      crl_timers_clear(alarms, &bells[i].alarm);
      if (bells[i].rings != (bells[i].at != 0))
        fail_msg("seed %llu: an alarm rang %d times", (unsigned long long)seed, bells[i].rings);
      if (bells[i].rang < bells[i].at)
        fail_msg("seed %llu: an alarm rang early", (unsigned long long)seed);
    }
    if (disorder) fail_msg("seed %llu: not in order", (unsigned long long)seed);
  }
  reset(alarms);
  crl_timers_free(alarms);
}

static void an_earlier_alarm_rings_though_the_thread_sleeps_towards_a_later_one(void **state) {
  (void)state;
  crl_timers *alarms = crl_timers_new();
  reset(alarms);
  crl_timers_set(alarms, &bells[0].alarm, crl_env_now_ms() + 3600000);
  crl_env_pause_us(5000); /* until the thread sleeps */
  crl_timers_set(alarms, &bells[1].alarm, crl_env_now_ms() + 5);
  await_rings(1);
  assert_int_equal(bells[1].rings, 1);
  crl_timers_set(alarms, &bells[0].alarm, crl_env_now_ms());
  await_rings(2);
  crl_timers_free(alarms);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alarms_ring_in_order_however_they_were_set_and_cleared),
      cmocka_unit_test(an_earlier_alarm_rings_though_the_thread_sleeps_towards_a_later_one),
  };
  return cmocka_run_group_tests_name("alarms", tests, NULL, NULL);
}
