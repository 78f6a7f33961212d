/* watch.c: broken invariants of a watch. */
#include "store/watch.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_watch(int which) {
  static const corral_store plugin;
  static crl_watcher watchers[3];
  crl_waiter waiter = {0};
  crl_watch_options options = {.plugin = &plugin};
  crl_watch *watch = crl_watch_new(&options);
  for (int i = 0; i < 3; i++) crl_watch_join(watch, &watchers[i], 7, &waiter);
  switch (which) {
    case 0: watchers[1].stands = 1; break;
    case 1: watch->queue.used = 1; break;
    default: watch->queue.room = watch->queue.used = 1;
  }
  crl_watch_leave(watch, &watchers[0]);
}

void of_the_watch(void **unused) {
  (void)unused;
  breaks(break_the_watch, 0, "watch: only a registered key stands");
  breaks(break_the_watch, 1, "watch: the queue is within its room");
  breaks(break_the_watch, 2, "watch: keys are queued while the watch is up");
}
