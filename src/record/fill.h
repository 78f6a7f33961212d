/* fill.h: the result of a compute: the record to store, "no such thing", "can't be cached", or a
 * failure. */
#ifndef CRL_FILL_H
#define CRL_FILL_H

#include <stdatomic.h>

#include "record/envelope.h"
#include "base/value.h"

typedef enum crl_filled {
  CRL_FILLED_NOT = 0,
  CRL_FILLED_BYTES,
  CRL_FILLED_NEGATIVE,
  CRL_FILLED_FAILURE,
  CRL_FILLED_UNMODIFIED
} crl_filled;

/* Starts a compute; at its end fill->ended is called. */
typedef void crl_start(void *arg, corral_fill *fill, const void *key, size_t key_len);

/* The stored value that the compute rebuilds. */
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
  const void *key;            /* the whole encoded key */
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
  const corral_policy *policy; /* of the compute; NULL: a value that is set */
  int64_t limit;               /* end of the time that the compute may take (crl_env_now_ms) */
  /* Called at the end of an asynchronous compute, on any thread. NULL: the compute ends when it
   * returns. */
  void (*ended)(corral_fill *fill, int abandoned);
  _Atomic int stop;
};

/* Input of crl_fill_finish: what is known when compute has ended. */
typedef struct crl_finish {
  const corral_policy *policy;
  int64_t cost_us, wall_ms;
  uint64_t dice;
  int64_t compress_min; /* bytes; 0 or less: never */
} crl_finish;

/* The finished result of a compute. */
typedef struct crl_product {
  crl_bytes *record; /* as it will be stored */
  crl_bytes *plain;  /* holds the bytes that callers get */
  size_t at, size;   /* where those bytes are in `plain` */
  int64_t hard_ttl;  /* how long the store keeps the record, ms */
  int64_t renew_ttl; /* not 0: renewing the stored record for so many ms is enough */
} crl_product;

/* CRL_MADE_FAILURE when compute failed or filled nothing, or without memory; else *ret has
 * references, to be given to crl_product_clean. */
crl_made crl_fill_finish(corral_fill *fill, const crl_finish *finish, crl_product *ret);
/* The lives that hold where corral_fill_lives gives none; a grace of -1 is off. */
void crl_fill_policy_lives(const corral_fill *fill, int64_t *ttl_ms, int64_t *swr_ms,
                           int64_t *sie_ms);
void crl_product_clean(crl_product *product);
void crl_fill_clean(corral_fill *fill);
/* Gives a fill that is "not modified" the old tags, validator and version where compute set no
 * others. Called before the tags' versions are set. 0 without memory. */
int crl_fill_inherit(corral_fill *fill);
/* Adds the tag of the whole namespace. 0 without memory. */
int crl_fill_tag_of_all(corral_fill *fill);

#endif
