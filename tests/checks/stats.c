/* stats.c: broken invariants of the stats files of a process. */
#include "stats/owner.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_files(int which) {
  static crl_stats_owned a, b;
  const struct stat st = {0};
  crl_stats_files_lock();
  crl_stats_own_file(&a, NULL, 1000, &st);
  crl_stats_own_file(&b, NULL, 1001, &st);
  crl_stats_files_unlock();
  if (which == 0)
    a.link = &a.next;
  else
    b.fd = -1;
  crl_stats_files_lock();
}

void of_stats_files(void **state) {
  (void)state;
  breaks(break_the_files, 0, "stats: a file knows the link to it");
  breaks(break_the_files, 1, "stats: a file of this process is open");
}
