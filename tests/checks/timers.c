/* timers.c: broken invariants of the timers. */
#include "os/timers.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static int64_t never_again(crl_timer *timer) { return (void)timer, INT64_MAX; }

static void break_the_timers(int which) {
  static crl_timer bells[3];
  crl_timers *timers = crl_timers_new();
  for (int i = 0; i < 3; i++) {
    bells[i].ring = never_again;
    crl_timers_set(timers, &bells[i], crl_env_now_ms() + 3600000 + i);
  }
  if (which == 0)
    timers->started = 0;
  else
    bells[0].ring = NULL;
  crl_timers_clear(timers, &bells[1]);
}

void of_the_timers(void **state) {
  (void)state;
  breaks(break_the_timers, 0, "timers: a thread waits for the first");
  breaks(break_the_timers, 1, "timers: a timer can ring");
}
