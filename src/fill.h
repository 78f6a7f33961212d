/* fill.h: what a compute made: the record that will be stored, "no such thing", or a failure. */
#ifndef CRL_FILL_H
#define CRL_FILL_H

#include <stdatomic.h>

#include "envelope.h"
#include "flight.h"
#include "value.h"

typedef enum crl_filled { CRL_FILLED_NOT = 0, CRL_FILLED_BYTES, CRL_FILLED_NEGATIVE, CRL_FILLED_FAILURE } crl_filled;

struct corral_fill {
  crl_filled filled;
  const void *key; /* whole, as the envelope keeps it */
  size_t key_len;
  uint64_t max_value;
  uint8_t *record; /* room for header, envelope and payload; malloc'ed */
  size_t size;     /* of the payload */
  int32_t code;
  char text[240];
  int64_t ttl_ms, swr_ms, sie_ms; /* as given to corral_fill_lives */
  int has_stale;
  _Atomic int stop;
};

/* Completes the record under a policy; *hard_ttl is what the store shall keep it for. CRL_MADE_FAILURE when nothing was filled. */
crl_made crl_fill_finish(corral_fill *fill, const corral_policy *policy, int64_t cost_us, int64_t wall_ms, uint64_t dice,
                         int64_t *hard_ttl);
/* The finished record as counted bytes; takes over the record. NULL without memory. */
crl_bytes *crl_fill_take(corral_fill *fill);
size_t crl_fill_record_size(const corral_fill *fill);
void crl_fill_clean(corral_fill *fill);

#endif
