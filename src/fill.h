/* fill.h: what a compute made: the record that will be stored, "no such thing", "can't be cached",
 * or a failure. */
#ifndef CRL_FILL_H
#define CRL_FILL_H

#include <stdatomic.h>

#include "envelope.h"
#include "flight.h"
#include "value.h"

typedef enum crl_filled {
  CRL_FILLED_NOT = 0,
  CRL_FILLED_BYTES,
  CRL_FILLED_NEGATIVE,
  CRL_FILLED_FAILURE,
  CRL_FILLED_UNMODIFIED
} crl_filled;

/* The value that is to be rebuilt. */
typedef struct crl_old {
  const uint8_t *data; /* NULL: there is none */
  size_t size;
  const void *validator;
  size_t validator_len;
  const crl_tags *tags; /* NULL: none */
  uint64_t version;
  int64_t ttl_ms, swr_ms, sie_ms;
} crl_old;

struct corral_fill {
  crl_filled filled;
  const void *key;            /* whole, as the envelope keeps it */
  size_t key_len, prefix_len; /* the user's key begins behind the prefix */
  const void *variant;
  size_t variant_len;
  const uint8_t *digest; /* of the key, as the record has it */
  uint64_t max_value;
  uint8_t *record; /* room for the head, and the payload; malloc'ed */
  size_t size;     /* of the payload */
  int32_t code;
  char text[240];
  int64_t ttl_ms, swr_ms, sie_ms; /* as given to corral_fill_lives */
  int64_t not_after;
  int pass;
  uint64_t version;
  crl_tags *tags;     /* NULL: none. Their versions are set between compute and crl_fill_finish */
  uint8_t *validator; /* NULL: none */
  size_t validator_len;
  crl_old old;
  int has_stale;
  int is_alone;
  int64_t limit; /* crl_env_now_ms: when it has taken too long */
  /* Of a compute that goes on after it was begun: called at its end, on any thread. NULL: it ends
   * when it returns. */
  void (*ended)(corral_fill *fill, int abandoned);
  _Atomic int stop;
};

/* What is known when compute has returned. */
typedef struct crl_finish {
  const corral_policy *policy;
  int64_t cost_us, wall_ms;
  uint64_t dice;
  int64_t compress_min; /* bytes; 0 or less: never */
} crl_finish;

/* The answer of a compute, finished. */
typedef struct crl_product {
  crl_bytes *record; /* as it will be stored */
  crl_bytes *plain;  /* where the callers' bytes are */
  size_t at, size;   /* of them within */
  int64_t hard_ttl;  /* what the store shall keep it for */
  int64_t renew_ttl; /* not 0: it will do to renew the old record, for so long */
} crl_product;

/* CRL_MADE_FAILURE when nothing was filled, or no memory was left; else *ret has references of the
 * caller's. */
crl_made crl_fill_finish(corral_fill *fill, const crl_finish *finish, crl_product *ret);
void crl_product_clean(crl_product *product);
void crl_fill_clean(corral_fill *fill);
/* What is not modified carries on the old tags, validator and version, unless it was given others.
 * Before their versions are set. 0 without memory. */
int crl_fill_inherit(corral_fill *fill);
/* Adds the tag of the whole namespace. 0 without memory. */
int crl_fill_tag_of_all(corral_fill *fill);

#endif
