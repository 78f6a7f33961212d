/* kit.h: shared helpers of the benchmarks: a clock, an exit with a message, quantiles. */
#ifndef BENCH_KIT_H
#define BENCH_KIT_H

#include <errno.h>
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

#endif
