/* record.c: status, life and lease of a record in Redis, by its front, the key's TTL and the
 * server's time. */
#include <stdlib.h>

#include "redis.h"

enum { STEP_MS = 2000 /* most that the server's time, as known here, may be off */ };

void crl_redis_record_refuse(const crl_redis_handle *h, corral_op *op) {
  static const char foreign[] =
      "the key holds data that corral did not write: give corral a name space of its own";
  static const char newer[] =
      "the key holds a record of a later version of corral, which is left alone";
  crl_redis_result_fail(h, op, op->status, op->status == CORRAL_EFOREIGN ? foreign : newer);
}

/* A CLAIM is judged as if it were repeated. */
void crl_redis_record_judge(const crl_redis_handle *h, corral_op *op, const uint8_t *front,
                            size_t len, int64_t now) {
  corral_op look = {.verb = op->verb, .token = op->token};
  corral_change change;
  if (op->verb == CORRAL_VERB_CLAIM) look.claim.lease_ms = op->claim.lease_ms;
  h->store->host->decide(&look, front, len, now, &change);
  op->status = look.status;
  op->state.life_ms = look.state.life_ms;
  op->state.left_ms = look.state.left_ms;
}

/* When the key of a lease or verdict ends, body or not. */
static int64_t end_of(const corral_header *header) {
  int64_t end = header->until;
  int kept = header->state == CORRAL_LEASED ? CORRAL_LEASE_KEPT_MS : 0;
  return __builtin_add_overflow(end, kept, &end) ? INT64_MAX : end;
}

/* Time left of the lease or verdict as far as the key's TTL tells it; -1: unknown. */
static int64_t left_by_ttl(const corral_header *header, int64_t pttl) {
  if (header->state != CORRAL_LEASED || header->body > 0 || pttl < 0) return -1;
  return pttl > CORRAL_LEASE_KEPT_MS ? pttl - CORRAL_LEASE_KEPT_MS : 0;
}

/* The key's TTL is that of the body, or of a lease that outlasts it: so it gives the life to the
 * millisecond, without a clock of this host. If another program has changed the TTL, the record's
 * own end counts, by the server's time as far as that is known. */
void crl_redis_record_found(const crl_redis_handle *h, corral_op *op, const void *record,
                            size_t size, int64_t pttl) {
  uint8_t front[CORRAL_FRONT];
  corral_header header;
  size_t len = h->store->host->front(record, size, front);
  crl_redis_record_judge(h, op, front, len, h->store->host->now_ms() + h->ahead);
  if (op->status == CORRAL_EFOREIGN || op->status == CORRAL_ENEWER) crl_redis_record_refuse(h, op);
  if (op->status != CORRAL_OK || h->store->host->header_read(front, len, &header) != CORRAL_OK)
    return;
  if (header.state != CORRAL_FREE && !h->clock_known)
    op->state.left_ms = left_by_ttl(&header, pttl);
  if (header.body == 0) return;
  int64_t outlasts = 0;
  if (header.state != CORRAL_FREE &&
      __builtin_sub_overflow(end_of(&header), header.life_end, &outlasts))
    outlasts = INT64_MAX;
  if (outlasts < 0) outlasts = 0;
  int64_t life = pttl > outlasts ? pttl - outlasts : 0;
  if (!h->clock_known)
    op->state.life_ms = pttl >= 0 ? life : -1;
  else if (pttl >= 0 && llabs(life - op->state.life_ms) < STEP_MS)
    op->state.life_ms = life;
}
