/* wait.c: the one primitive that somebody sleeps on and is woken by: a word, or a callback. */
#include "os/wait.h"

#include <stddef.h>

#include "os/env.h"

/* The sleeper may free the waiter once it has seen the word, so that the wake itself may name
 * memory that is gone or somebody else's: the kernel takes that for a spurious wake. */
void crl_waiter_wake(crl_waiter *waiter) {
  if (waiter->hook != NULL)
    waiter->hook(waiter);
  else if (atomic_exchange(&waiter->woken, 1) == 0)
    crl_env_word_wake(&waiter->woken, 1);
}

int crl_waiter_sleep(crl_waiter *waiter, int64_t until) {
  while (atomic_exchange(&waiter->woken, 0) == 0) {
    if (until != INT64_MAX && crl_env_now_ms() >= until) return 0;
    crl_env_word_wait(&waiter->woken, 0, until);
  }
  return 1;
}
