/* uncounted.h: for tests that count what each call does, or have dice of their own: one call of 64
 * is counted for the hot keys (stats/hot.h), and takes a hash and a throw of dice more. */
#ifndef UNCOUNTED_H
#define UNCOUNTED_H

#include <limits.h>

#include "os/readers.h"

/* From now on no call of this thread is. */
static inline void count_no_call(void) {
  crl_readers_begin();
  assert_true(crl_readers_enter());
  crl_readers_leave();
  crl_reader_mine->distance = INT_MAX;
}

#endif
