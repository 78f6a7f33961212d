/* put.h: stores a record whatever the key has, and voids a compute of the key that is under way. */
#ifndef CRL_PUT_H
#define CRL_PUT_H

#include "store/pool.h"

typedef struct crl_put {
  const void *key; /* as the store has it */
  size_t key_len;
  const uint8_t *record;
  size_t record_len;
  int64_t hard_ttl, lease_ms;
  int64_t op_ms;
  /* 0: the present record is voided first. 1: it stays until the new one replaces it, so that the
   * key is never without a record */
  int replaces;
  /* not NULL: it voids what was stored before (CORRAL_OP_CONFIRM); set to 1 when the server may not
   * have heard of it (crl_op_is_unheard), else to 0 */
  int *unheard;
  /* of the record's value; not 0: nothing is stored over a value with a later one, and the present
   * record stays until the new one replaces it */
  uint64_t version;
} crl_put;

/* Writes the front that a CLAIM brings: the key's digest, the holder, the expected cost of the
 * rebuild (0: unknown). Returns its size. */
size_t crl_put_wish(const uint8_t *digest, uint32_t cost_ms, uint8_t front[CORRAL_FRONT]);
/* CORRAL_OK once the record is stored; CORRAL_EOLDER: see `version`. Gives up at `deadline`. */
int crl_put_record(crl_pool *pool, const crl_put *put, int64_t deadline, corral_error *error);
/* Fills *error with the status of a single operation and its text, or else the status's own text;
 * returns the status. */
int crl_put_say(const corral_op *op, corral_error *error);

#endif
