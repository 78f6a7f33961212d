/* warm_pass.h: the record of a pass that several warmers share: which keys are taken next, and
 * which are taken and not done, by whom. Pure: a text in the store, and the steps on it.
 *
 * Keys are numbered from 0. A warmer takes a range of them; ranges of a warmer that left or died
 * become free, and are taken again before later keys. A warmer that lives changes its beat.
 *
 *   corral-warm 1
 *   pass ID TOTAL NEXT
 *   free 40-60
 *   warmer ID BEAT 60-80 100-120
 */
#ifndef CORRAL_CLI_WARM_PASS_H
#define CORRAL_CLI_WARM_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  WARM_PASS_WARMERS = 64,
  WARM_PASS_OWN = 32, /* ranges of one warmer */
  WARM_PASS_RANGES = 2 * WARM_PASS_WARMERS * WARM_PASS_OWN,
  WARM_PASS_LARGEST = 256,                      /* keys in a range that is taken */
  WARM_PASS_TEXT = WARM_PASS_RANGES * 42 + 8192 /* bytes of the longest record */
};

typedef struct warm_range {
  uint64_t begin, end; /* without `end` */
  uint64_t owner;      /* 0: free */
} warm_range;

typedef struct warm_pass {
  uint64_t id; /* random; 0: there is no pass */
  uint64_t total, next;
  size_t warmer_count, range_count;
  struct {
    uint64_t id, beat;
  } warmers[WARM_PASS_WARMERS];
  warm_range ranges[WARM_PASS_RANGES]; /* no two overlap; all end at `next` or before */
} warm_pass;

/* Reads a record, which is foreign. What isn't one gives a pass with the id 0. */
void warm_pass_read(warm_pass *p, const char *text, size_t size);
/* Writes the record; returns its length. `text` has room for WARM_PASS_TEXT bytes. */
size_t warm_pass_write(const warm_pass *p, char *text);
/* True when all keys are taken and done. */
bool warm_pass_is_done(const warm_pass *p);
bool warm_pass_has(const warm_pass *p, uint64_t warmer);
/* Adds a warmer, or sets its beat; false: there are too many. */
bool warm_pass_beat(warm_pass *p, uint64_t warmer, uint64_t beat);
/* Takes the keys to do next, for one of `threads`: free ones first. The more keys are left, the
 * more are taken, so that the warmers end together: guided self-scheduling (Polychronopoulos, Kuck,
 * "Guided Self-Scheduling: A Practical Scheduling Scheme for Parallel Supercomputers", IEEE
 * Transactions on Computers, 1987). False: none is left. */
bool warm_pass_take(warm_pass *p, uint64_t warmer, size_t threads, warm_range *ret);
/* The range is done. */
void warm_pass_done(warm_pass *p, warm_range range);
/* A warmer left, or died: its ranges are free. */
void warm_pass_leave(warm_pass *p, uint64_t warmer);

#endif
