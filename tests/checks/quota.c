/* quota.c: the broken invariant of a quota. */
#include "election/quota.h"
#include "checks/checks.h"

static void break_the_quota(int which) {
  crl_quota quota;
  crl_quota_init(&quota, 5);
  switch (which) {
    case 0: quota.now = 6; break;
    case 1: quota.now = -1; break;
    default: quota.last = -1;
  }
  crl_quota_take(&quota, 10, 1);
}

void of_the_quota(void **state) {
  (void)state;
  for (int which = 0; which < 3; which++)
    breaks(break_the_quota, which, "quota: no more events in two spans than `most`");
}
