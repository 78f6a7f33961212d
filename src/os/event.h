/* event.h: counts events and tells the user's hook. */
#ifndef CRL_EVENT_H
#define CRL_EVENT_H

#include <corral/event.h>
#include <stdatomic.h>

#include "os/notifier.h"

/* Counted by one thread alone, on a line that it shares with nobody. */
typedef struct crl_own_count {
  _Atomic uint64_t near;
  uint64_t none[7];
} crl_own_count;

enum { CRL_OWN_COUNTS = 32 };

typedef struct crl_events {
  _Atomic uint64_t count[CORRAL_EVENT_COUNT];
  crl_own_count own[CRL_OWN_COUNTS]; /* of the readers (os/readers.h) with these numbers */
  corral_event_fn *hook;             /* NULL for none */
  void *arg;
  crl_notifier *notifier; /* calls the hook for threads that defer */
} crl_events;

/* An event of which no more is known. */
static inline corral_event_info crl_event_info(corral_event event, const void *key,
                                               size_t key_len) {
  return (corral_event_info){.size = sizeof(corral_event_info),
                             .event = event,
                             .key = key,
                             .key_len = key_len,
                             .duration_us = -1,
                             .bytes = -1,
                             .server = -1,
                             .wake = -1};
}

/* Counts an event and calls the hook, within which crl_frame_within(events) is true. Call it with
 * no lock held. */
void crl_event_tell(crl_events *events, const corral_event_info *info);
/* Counts an event of which a hook isn't told. */
static inline void crl_event_count(crl_events *events, corral_event event) {
  atomic_fetch_add_explicit(&events->count[event], 1, memory_order_relaxed);
}
/* crl_event_tell for an event of which no more is known than this. */
void crl_event_emit(crl_events *events, corral_event event, const void *key, size_t key_len,
                    const char *detail);
/* Counts CORRAL_EVENT_NEAR, where there is no hook: as a rule in a counter of this thread alone. */
void crl_event_count_near(crl_events *events);
uint64_t crl_event_counted(const crl_events *events, corral_event event);
/* 1: from now on the notifier calls the hook for events of this thread. While 1024 of them wait for
 * the hook, further ones are only counted. 0 ends that. Returns what was before. */
int crl_event_defer(int defers);

#endif
