/* kit.h: shared helpers of the benchmarks: a clock, an exit with a message, quantiles, processors
 * chosen. */
#ifndef BENCH_KIT_H
#define BENCH_KIT_H

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static inline _Noreturn void die(const char *what) {
  fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
  exit(1);
}

static inline int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the array. `q`: 0 (minimum) to 1 (maximum). */
static inline double quantile(double *of, size_t count, double q) {
  qsort(of, count, sizeof *of, by_size);
  return of[(size_t)(q * (double)(count - 1))];
}

/* Sorts the array. */
static inline double median(double *of, size_t count) {
  qsort(of, count, sizeof *of, by_size);
  return of[count / 2];
}

/* Keeps the calling thread, and those that it will start, on one of the processors that it may use:
 * 0 is the first of them; beyond the last, the last. */
static inline void stay_on(const cpu_set_t *all, int number) {
  cpu_set_t one;
  for (size_t i = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET(i, all)) continue;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    if (number-- == 0) break;
  }
  if (sched_setaffinity(0, sizeof one, &one) != 0) die("sched_setaffinity");
}

#endif
