/* marks.h: hashes that are marked, in a table of fixed size: of those that share a place, the last
 * one is known. So a mark is a guess. Any thread, without a lock. */
#ifndef CRL_MARKS_H
#define CRL_MARKS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { CRL_MARKS = 256 };

/* Zero before its first use. */
typedef struct crl_marks {
  _Atomic size_t known;               /* 0: no place is looked at */
  _Atomic uint64_t places[CRL_MARKS]; /* hashes, by their last byte; 0: none */
} crl_marks;

/* 0: nothing is marked, so nobody needs a hash. */
static inline int crl_marks_any(const crl_marks *marks) {
  return atomic_load_explicit(&((crl_marks *)(uintptr_t)marks)->known, memory_order_relaxed) != 0;
}
int crl_marks_has(const crl_marks *marks, uint64_t hash);
void crl_marks_set(crl_marks *marks, uint64_t hash);
/* 1: it was marked, and isn't any more. */
int crl_marks_clear(crl_marks *marks, uint64_t hash);

#endif
