/* ring.h: the last events of a process, in memory that other processes read.
 *
 * Each event has a number, from 1 on, and takes the place of the one CRL_RING before it. Any number
 * of threads write at once, and none waits: a place in which another one still writes is left to
 * it, and the event is lost; readers see that by the numbers. The events of calls that are answered
 * at once, and of repeated looks, are not written: there are too many. */
#ifndef CRL_RING_H
#define CRL_RING_H

#include "stats/sealed.h"
#include "stats/stats.h"

enum { CRL_RING = 128, CRL_RING_BODY = 30 /* words */, CRL_RING_TEXT = 184 /* key, detail */ };

typedef struct crl_ring_row {
  _Atomic uint64_t words[CRL_SEALED_HEAD + CRL_RING_BODY]; /* twice the event's number; one less:
                                                              it is being written */
} crl_ring_row;

typedef struct crl_ring {
  _Atomic uint64_t last;  /* number of the last event */
  _Atomic uint64_t owner; /* pid */
  uint64_t none[30];
  crl_ring_row rows[CRL_RING];
} crl_ring;

_Static_assert(sizeof(crl_ring) == 256 + 256 * CRL_RING, "the head is as long as a row");

/* Of a corral; NULL: it has no stats file. */
static inline crl_ring *crl_ring_of(const crl_stats *stats) {
  return stats->times == NULL ? NULL : (crl_ring *)(void *)stats->block->parts.RING;
}
/* After a process has taken over the ring of one that has ended: its events stay, and the numbers
 * go on. */
void crl_ring_reset(crl_ring *ring, int64_t pid);
/* No effect for an event that isn't logged. Any thread. */
void crl_ring_write(crl_ring *ring, const corral_event_info *info);
/* An event that was read, with room for its text. */
typedef struct crl_ring_event {
  corral_logged logged;
  char detail[CRL_RING_TEXT + 1];
} crl_ring_event;

/* Reads the first event with a larger number than *at from a ring, or a copy of one; what it says
 * is bounded, but for `event`, which is the writer's number for it. Ends before one that is just
 * being written, for up to a second. 1: *at is its number. 0: there is none. */
int crl_ring_next(const crl_ring *ring, uint64_t *at, crl_ring_event *ret);

#endif
