/* absence.h: since when a server has been of no use, in a store whose servers come and go: its keys
 * may have another server soon. Pure: time is an argument.
 *
 * A lone server that refuses connections is away. One of several may be replaced, and then all that
 * it had is there again: it counts as slow for as long as a silent one. */
#ifndef CRL_ABSENCE_H
#define CRL_ABSENCE_H

#include <stdatomic.h>
#include <stdint.h>

/* All zero: the server is there. Any thread. */
typedef struct crl_absence {
  _Atomic int64_t since, last; /* of its failures; 0: none */
} crl_absence;

/* An operation failed at `now`. Returns how long this has gone on. After a pause of more than
 * `pause_ms` in which nobody asked, it begins anew. */
int64_t crl_absence_note(crl_absence *absence, int64_t now, int64_t pause_ms);
/* 1: the last operation failed. */
static inline int crl_absence_is(const crl_absence *absence) {
  crl_absence *own = (crl_absence *)(uintptr_t)absence;
  return atomic_load_explicit(&own->since, memory_order_relaxed) != 0;
}
/* An operation was answered. */
static inline void crl_absence_end(crl_absence *absence) {
  if (atomic_load_explicit(&absence->since, memory_order_relaxed) != 0)
    atomic_store_explicit(&absence->since, 0, memory_order_relaxed);
}

#endif
