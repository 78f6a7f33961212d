/* notifier.c: broken invariants of a notifier. */
#include "os/notifier.c" /* NOLINT(bugprone-suspicious-include) */

#include <unistd.h>

#include "checks/checks.h"

static void tell_without_end(crl_notice *notice) {
  (void)notice;
  for (;;) pause();
}

static void break_the_notifier(int which) {
  static crl_notice notices[4];
  crl_notifier *notifier = crl_notifier_new(crl_workers_new());
  for (int i = 0; i < 3; i++) {
    notices[i].tell = tell_without_end;
    crl_notifier_post(notifier, &notices[i], 9);
  }
  switch (which) {
    case 0: notices[2].link = &notices[2].next; break;
    case 1: notices[2].queued = 0; break;
    case 2: notifier->tail = &notices[1].next; break;
    default: notifier->queued++;
  }
  crl_notifier_post(notifier, &notices[3], 9);
}

void of_the_notifier(void **state) {
  (void)state;
  breaks(break_the_notifier, 0, "notifier: a notice knows the link to it");
  breaks(break_the_notifier, 1, "notifier: a notice in the queue is queued");
  breaks(break_the_notifier, 2, "notifier: the queue knows its end");
  breaks(break_the_notifier, 3, "notifier: the notices are counted");
}
