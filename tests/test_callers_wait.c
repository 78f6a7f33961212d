/* test_callers_wait.c: a wait that isn't set is as long as the compute may be, whether the corral's
 * policy or the caller's says how long that is. How long a caller is ready to wait is noted where
 * it falls asleep. */
#include <poll.h>
#include <pthread.h>

#include "support/answers_kit.h"

#include "os/env.h"

enum { CALLERS = 10, SHORT_MS = 40, COMPUTE_MS = 300000, DEFAULT_WAIT_MS = 30000 };

static _Atomic int64_t least; /* the shortest time that one was ready to sleep */

void __real_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until);
void __wrap_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until);
void __wrap_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until) {
  int64_t most = until - crl_env_now_ms(), before = atomic_load(&least);
  while (most < before && !atomic_compare_exchange_weak(&least, &before, most)) continue;
  __real_crl_env_word_wait_bits(word, seen, bits, until);
}

typedef struct herd {
  corral *c;
  const corral_policy *policy; /* the callers' own, or NULL */
  _Atomic int computes, in_time;
} herd;

/* Ends when all others wait, and a wait of SHORT_MS would be over. */
static int outlast(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  herd *h = arg;
  (void)key;
  (void)key_len;
  atomic_fetch_add(&h->computes, 1);
  wait_for_event(h->c, CORRAL_EVENT_JOIN, CALLERS - 1);
  (void)poll(NULL, 0, 3 * SHORT_MS);
  return corral_fill_bytes(fill, "late", 4);
}

static void *call(void *arg) {
  herd *h = arg;
  corral_value *value = NULL;
  int status =
      corral_get_or_compute(h->c, "k", 1, CORRAL_CALL(.policy = h->policy), outlast, h, &value);
  if (status == CORRAL_OK) atomic_fetch_add(&h->in_time, 1);
  corral_value_unref(value);
  return NULL;
}

static void all_wait(const corral_policy *base, const corral_policy *policy) {
  herd h = {.c = opened(CORRAL_OPTIONS(.store = "memory:", .policy = base)), .policy = policy};
  pthread_t threads[CALLERS];
  atomic_store(&least, INT64_MAX);
  for (int i = 0; i < CALLERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, call, &h), 0);
  for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&h.in_time), CALLERS); /* nobody has EDEADLINE */
  assert_int_equal(atomic_load(&h.computes), 1);
  assert_true(atomic_load(&least) > DEFAULT_WAIT_MS); /* nor would have, of a slower compute */
  corral_close(h.c);
}

static void ten_callers_wait_for_a_compute_that_the_corral_s_policy_lets_be_long(void **state) {
  (void)state;
  all_wait(CORRAL_POLICY(.compute_ms = COMPUTE_MS), NULL);
}

static void ten_callers_wait_for_a_compute_that_their_own_policy_lets_be_long(void **state) {
  (void)state;
  all_wait(CORRAL_POLICY(.compute_ms = SHORT_MS, .wait_ms = SHORT_MS),
           CORRAL_POLICY(.compute_ms = COMPUTE_MS));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ten_callers_wait_for_a_compute_that_the_corral_s_policy_lets_be_long),
      cmocka_unit_test(ten_callers_wait_for_a_compute_that_their_own_policy_lets_be_long),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
