/* lock_chaos.h: many processes take one lock in turn, and under it change a counter in a SQLite
 * table.
 *
 * Each holder raises the table's fencing token to its own as it reads, and writes only if the table
 * still has that token. The parent kills and stops holders in the second half. Invariants: the
 * counter equals the number of accepted writes; in the first half, without kills and stops, no two
 * processes are inside at once. */
#ifndef TESTS_LOCK_CHAOS_H
#define TESTS_LOCK_CHAOS_H

#include <stdint.h>

typedef struct lock_chaos {
  const char *uri;
  int processes, acquisitions;
  int kills, stops; /* number of holders to kill, to stop */
  int64_t ttl_ms;   /* ttl_ms of holds in the second half */
  int fair;         /* they wait in turn */
} lock_chaos;

typedef struct lock_chaos_outcome {
  long long counter, accepted; /* read from the table at the end; writes that the table accepted */
  int taken;                   /* acquisitions */
  int most;                    /* most processes inside at once in the first half */
  int refused;                 /* writes refused by the table, from holders whose hold was over */
  int lost;                    /* releases that returned CORRAL_ELOST */
  int errors;                  /* failed takings */
  /* in the first half: grants to the holder before; fewest and most of a process; longest wait */
  int to_last, fewest, most_of_one;
  int64_t longest_ms;
  char error[240]; /* text of the first error */
  int64_t took_ms;
} lock_chaos_outcome;

/* Runs to the end. A hang, or a fencing token granted twice, ends the test with a message. */
lock_chaos_outcome lock_chaos_run(const lock_chaos *plan);

#endif
