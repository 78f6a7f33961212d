/* wait.c: the primitives that somebody sleeps on and is woken by. */
#include "os/wait.h"

#include <limits.h>
#include <stddef.h>

#include "os/env.h"

/* The word of a waiter. Only a wake of one that sleeps is a system call. */
enum { NEITHER, WOKEN, ASLEEP };

/* The sleeper may free the waiter once it has seen the word, so that the wake itself may name
 * memory that is gone or somebody else's: the kernel takes that for a spurious wake. */
void crl_waiter_wake(crl_waiter *waiter) {
  void (*hook)(crl_waiter *) = atomic_load_explicit(&waiter->hook, memory_order_acquire);
  if (hook != NULL)
    hook(waiter);
  else if (atomic_exchange(&waiter->word, WOKEN) == ASLEEP)
    crl_env_word_wake(&waiter->word, 1);
}

int crl_waiter_sleep(crl_waiter *waiter, int64_t until) {
  while (atomic_exchange(&waiter->word, NEITHER) != WOKEN) {
    uint32_t seen = NEITHER;
    if (until != INT64_MAX && crl_env_now_ms() >= until) return 0;
    if (atomic_compare_exchange_strong(&waiter->word, &seen, ASLEEP))
      crl_env_word_wait(&waiter->word, ASLEEP, until);
  }
  return 1;
}

/* ---- bells --------------------------------------------------------------------------------- */

enum { SLEPT_AT = 1 };

void crl_bell_ring(crl_bell *bell, uint32_t bits) {
  uint32_t old = atomic_load(&bell->word), kept = bits == CRL_BELL_ALL ? 0 : SLEPT_AT;
  while (!atomic_compare_exchange_weak(&bell->word, &old,
                                       ((old & ~(uint32_t)SLEPT_AT) | (old & kept)) + 2)) {
  }
  if ((old & SLEPT_AT) != 0) crl_env_word_wake_bits(&bell->word, INT_MAX, bits);
}

uint32_t crl_bell_listen(crl_bell *bell) { return atomic_load(&bell->word) | SLEPT_AT; }

void crl_bell_sleep(crl_bell *bell, uint32_t heard, uint32_t bits, int64_t until) {
  uint32_t seen = heard & ~(uint32_t)SLEPT_AT;
  if (atomic_compare_exchange_strong(&bell->word, &seen, heard) || seen == heard)
    crl_env_word_wait_bits(&bell->word, heard, bits, until);
}

/* ---- latches ------------------------------------------------------------------------------- */

void crl_latch_wait(crl_latch *latch) {
  while (atomic_exchange_explicit(&latch->word, 2, memory_order_acquire) != 0)
    crl_env_word_wait(&latch->word, 2, INT64_MAX);
}

void crl_latch_wake(crl_latch *latch) { crl_env_word_wake(&latch->word, 1); }
