/* offer.h: offers what was held to a store that is back. */
#ifndef CRL_OFFER_H
#define CRL_OFFER_H

#include "event.h"
#include "held.h"
#include "pool.h"

typedef struct crl_offer {
  crl_held *held;
  crl_events *events;
  int64_t lease_ms, held_ms;
} crl_offer;

/* For crl_pool_options.on_return; `offer` is a crl_offer. Sends what is held for keys of this server, in batches, each once: a record only
 * where the store has neither a lease, nor a verdict, nor the mark of an invalidation, nor a value that was stored after this one's
 * compute began. 0 when the server failed again: what was not sent is held still. */
int crl_offer_all(void *offer, crl_pool *pool, size_t server);
/* Forgets what is held and carries a tag. */
void crl_offer_void(crl_offer *offer, const void *tag, size_t len);
/* For crl_pool_options.on_up: what was offered need not be held any more. */
void crl_offer_done(void *offer, crl_pool *pool, size_t server);

#endif
