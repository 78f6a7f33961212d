/* event.h: counts events and tells the user's hook. */
#ifndef CRL_EVENT_H
#define CRL_EVENT_H

#include <corral/event.h>
#include <stdatomic.h>

typedef struct crl_events {
  _Atomic uint64_t count[CORRAL_EVENT_COUNT];
  corral_event_fn *hook; /* NULL for none */
  void *arg;
} crl_events;

/* Counts and tells. Call it with no lock held. */
void crl_event_emit(crl_events *events, corral_event event, const void *key, size_t key_len, const char *detail);

#endif
