/* event.h: counts events and tells the user's hook. */
#ifndef CRL_EVENT_H
#define CRL_EVENT_H

#include <corral/event.h>
#include <stdatomic.h>

#include "notifier.h"

typedef struct crl_events {
  _Atomic uint64_t count[CORRAL_EVENT_COUNT];
  corral_event_fn *hook; /* NULL for none */
  void *arg;
  crl_notifier *notifier; /* for threads that defer */
} crl_events;

/* Counts and tells: by crl_frame_within(events) its hook is known. Call it with no lock held. */
void crl_event_emit(crl_events *events, corral_event event, const void *key, size_t key_len,
                    const char *detail);
/* From now on the hook is called by the notifier for what happens on this thread. Of more than 1024
 * events that wait for it the hook isn't told. */
void crl_event_defer(void);

#endif
