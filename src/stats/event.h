/* event.h: counts events and tells the user's hook. */
#ifndef CRL_EVENT_H
#define CRL_EVENT_H

#include "os/notifier.h"
#include "stats/stats.h"

typedef struct crl_events {
  crl_stats stats;       /* counts the events, and all else */
  corral_event_fn *hook; /* NULL for none */
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
  crl_stats_count(&events->stats, CRL_COUNTER_EVENT + (size_t)event, 1);
}
/* crl_event_tell for an event of which no more is known than this. */
void crl_event_emit(crl_events *events, corral_event event, const void *key, size_t key_len,
                    const char *detail);
uint64_t crl_event_counted(const crl_events *events, corral_event event);
/* 1: from now on the notifier calls the hook for events of this thread. While 1024 of them wait for
 * the hook, further ones are only counted. 0 ends that. Returns what was before. */
int crl_event_defer(int defers);

#endif
