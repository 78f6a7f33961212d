/* at_exit.c: what a process finishes before it ends by exit(). One function is registered with
 * atexit(3), at the first begin: it stands before all that was registered later, and before the
 * libraries' own ends. Where the library is unloaded, it runs then. */
#include "os/at_exit.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "os/env.h"

/* Upper half: crl_env_forks() + 1 of the process whose count the lower half is. */
static _Atomic uint64_t under_way;
static _Atomic int64_t longest_ms;
static _Atomic uint32_t ends; /* the word on which exit() sleeps */
static _Atomic int leaves, is_registered;

static uint64_t none_here(void) { return (uint64_t)(crl_env_forks() + 1) << 32; }

/* Of this process; after a fork nothing is. */
static uint64_t count_of(uint64_t seen) {
  uint64_t none = none_here();
  return seen >> 32 == none >> 32 ? seen - none : 0;
}

static void finish(void) {
  int64_t until = crl_env_now_ms() + atomic_load(&longest_ms);
  atomic_store(&leaves, 1);
  for (;;) {
    uint32_t seen = atomic_load(&ends);
    if (count_of(atomic_load(&under_way)) == 0 || crl_env_now_ms() >= until) break;
    crl_env_word_wait(&ends, seen, until);
  }
}

void crl_at_exit_begin(int64_t most_ms) {
  uint64_t seen = atomic_load(&under_way);
  int64_t longest = atomic_load(&longest_ms);
  while (longest < most_ms && !atomic_compare_exchange_weak(&longest_ms, &longest, most_ms)) {
  }
  while (!atomic_compare_exchange_weak(&under_way, &seen, none_here() + count_of(seen) + 1)) {
  }
  if (!atomic_load(&is_registered) && !atomic_exchange(&is_registered, 1)) (void)atexit(finish);
}

void crl_at_exit_end(void) {
  uint64_t seen = atomic_load(&under_way);
  while (count_of(seen) > 0 && !atomic_compare_exchange_weak(&under_way, &seen, seen - 1)) {
  }
  if (!atomic_load(&leaves)) return;
  atomic_fetch_add(&ends, 1);
  crl_env_word_wake(&ends, 1);
}
