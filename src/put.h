/* put.h: stores a record whatever is there, and voids any compute of its key that is under way. */
#ifndef CRL_PUT_H
#define CRL_PUT_H

#include "pool.h"

typedef struct crl_put {
  const void *key; /* as the store has it */
  size_t key_len;
  const uint8_t *record;
  size_t record_len;
  int64_t hard_ttl, lease_ms;
  int64_t op_ms;
  /* 0: what is there is voided first. 1: it stays until this takes its place, so that the key is
   * never without a record */
  int replaces;
} crl_put;

/* The front that a claim brings: the key's digest, the holder, what the rebuild is expected to cost
 * (0: unknown). Returns its size. */
size_t crl_put_wish(const uint8_t *digest, uint32_t cost_ms, uint8_t front[CORRAL_FRONT]);
/* CORRAL_OK once it is stored, by `deadline`. */
int crl_put_record(crl_pool *pool, const crl_put *put, int64_t deadline, corral_error *error);
/* The status of a single operation with its text, or the status's own. */
int crl_put_say(const corral_op *op, corral_error *error);

#endif
