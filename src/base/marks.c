/* marks.c: hashes that are marked. */
#include "base/marks.h"

/* Never 0. */
static uint64_t mark_of(uint64_t hash) { return hash | 1 << 8; }

static _Atomic uint64_t *place_of(const crl_marks *marks, uint64_t hash) {
  return &((crl_marks *)(uintptr_t)marks)->places[hash % CRL_MARKS];
}

int crl_marks_has(const crl_marks *marks, uint64_t hash) {
  return crl_marks_any(marks) &&
         atomic_load_explicit(place_of(marks, hash), memory_order_relaxed) == mark_of(hash);
}

void crl_marks_set(crl_marks *marks, uint64_t hash) {
  if (crl_marks_has(marks, hash)) return;
  if (atomic_exchange(place_of(marks, hash), mark_of(hash)) == 0)
    atomic_fetch_add(&marks->known, 1);
}

int crl_marks_clear(crl_marks *marks, uint64_t hash) {
  uint64_t mark = mark_of(hash);
  if (!crl_marks_has(marks, hash) ||
      !atomic_compare_exchange_strong(place_of(marks, hash), &mark, 0))
    return 0;
  atomic_fetch_sub(&marks->known, 1);
  return 1;
}
