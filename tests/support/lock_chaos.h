/* lock_chaos.h: many processes want one lock, and change a counter in a real table (SQLite) while
 * they have it.
 *
 * Each holder raises the table's fencing token to its own as it reads, and writes only where the
 * table still has it. The parent kills and stops holders in the second half. What must hold: the
 * counter is the number of writes that were accepted; in the first half, in which nobody is stopped
 * or killed, no two are ever inside at once. */
#ifndef TESTS_LOCK_CHAOS_H
#define TESTS_LOCK_CHAOS_H

#include <stdint.h>

typedef struct lock_chaos {
  const char *uri;
  int processes, acquisitions;
  int kills, stops; /* of holders */
  int64_t ttl_ms;   /* in the second half */
} lock_chaos;

typedef struct lock_chaos_outcome {
  long long counter, accepted; /* in the table */
  int taken;                   /* acquisitions */
  int most;                    /* inside at once, at most, in the first half */
  int refused;                 /* writes that the table refused: by holders whose time was over */
  int lost;                    /* releases that told a loss */
  int errors;                  /* takings that failed */
  char error[240];             /* the first of them */
  int64_t took_ms;
} lock_chaos_outcome;

/* Runs it to its end. Ends the test with a message when it hangs, or when a fencing token was given
 * twice. */
lock_chaos_outcome lock_chaos_run(const lock_chaos *plan);

#endif
