/* locks.c: broken invariants of the table of a process's locks. */
#include "locks/table.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_locks(int which) {
  static crl_lock_taking takings[2];
  static crl_lock_entry holds[2] = {{.hash = 7, .takings = &takings[0]},
                                    {.hash = 7, .takings = &takings[1]}};
  static crl_lock_waiter waiters[2];
  crl_waiter wake = {0};
  crl_lock_table *table = crl_lock_table_new();
  for (int i = 0; i < 2; i++) {
    crl_lock_table_add(table, &holds[i]);
    crl_lock_table_queue(table, &waiters[i], 7, &wake);
  }
  switch (which) {
    case 0: holds[0].link = &holds[0].next; break;
    case 1: holds[0].hash = 8; break;
    case 2: holds[0].takings = NULL; break;
    case 3: waiters[1].hash = 8; break;
    case 4: waiters[1].first = 1; break;
    default: waiters[0].first = 0;
  }
  crl_lock_table_wake(table, 7);
}

void of_the_locks(void **state) {
  static const char first[] = "locks: the first waiter of a name, and no other, asks the store";
  (void)state;
  breaks(break_the_locks, 0, "locks: a hold knows the link to it");
  breaks(break_the_locks, 1, "locks: a hold is in the bucket of its hash");
  breaks(break_the_locks, 2, "locks: a hold was taken");
  breaks(break_the_locks, 3, "locks: a waiter is in the bucket of its hash");
  breaks(break_the_locks, 4, first);
  breaks(break_the_locks, 5, first);
}
