/* slots.c: what looks (gets.c) and all other verbs (ops.c) have in common: keys and their items,
 * asking, judging by the clock, and giving results.
 *
 * Between requests the server must be silent. That is checked before a batch that begins with a
 * write. One that begins with a read may be repeated after it, and a value that is read names its
 * key, so there a check of CHECKED_MS ago is good enough. */
#include "memcached.h"

enum { CHECKED_MS = 100 };

typedef crl_memcached_slot slot;

/* ---- asking -------------------------------------------------------------------------------- */

int crl_memcached_check(crl_memcached_handle *h, int reads, int64_t now, corral_error *error) {
  if (reads && now - h->checked < CHECKED_MS) return CORRAL_OK;
  int status = crl_memcached_wire_silent(&h->wire, error);
  if (status == CORRAL_OK) h->checked = now;
  return status;
}

int crl_memcached_ask(crl_memcached_handle *h, const crl_memcached_request *request,
                      int64_t deadline, int *sent, corral_error *error) {
  *sent = 0;
  if (h->wire.start < h->wire.end)
    return h->host->fail(error, CORRAL_EPROTOCOL, "%s: the server says more than was asked",
                         h->server->name);
  return crl_memcached_send(h, request, deadline, sent, error);
}

/* ---- statuses ------------------------------------------------------------------------------ */

int crl_memcached_fail(const crl_memcached_handle *h, corral_op *op, int status, const char *what) {
  return op->status = h->host->fail(op->error, status, "%s: %s", h->server->name, what);
}

int crl_memcached_cut(int sent) { return sent ? CORRAL_EINDOUBT : CORRAL_EUNAVAILABLE; }

void crl_memcached_refuse(const crl_memcached_handle *h, corral_op *op,
                          const crl_memcached_refusal *refusal) {
  int status = refusal->status;
  if (status == CORRAL_EINDOUBT && op->verb == CORRAL_VERB_GET) status = CORRAL_EUNAVAILABLE;
  if (status == CORRAL_ETOOBIG && crl_memcached_is_lock(op)) status = CORRAL_EREFUSED;
  crl_memcached_fail(h, op, status, refusal->text);
}

/* ---- a record, by the clock ---------------------------------------------------------------- */

/* 1: a record that the server still has is over: free or leased, with all its ends passed, that of
 * the lease CORRAL_LEASE_KEPT_MS ago. A record with a verdict is not over, since it counts the
 * failures in a row. */
static int is_over(const crl_memcached_handle *h, const crl_memcached_item *item, int64_t now) {
  corral_header header;
  uint8_t front[CORRAL_FRONT];
  if (h->host->header_read(front, h->host->front(item->bytes, item->size, front), &header) !=
      CORRAL_OK)
    return 0;
  if (header.state == CORRAL_FREE) return header.life_end != 0 && header.life_end <= now;
  return header.state == CORRAL_LEASED && header.life_end <= now &&
         header.until <= now - CORRAL_LEASE_KEPT_MS;
}

/* Calls host->decide; an invalidation also removes a record that is over by this clock only. */
void crl_memcached_decide(const crl_memcached_handle *h, corral_op *op,
                          const crl_memcached_item *item, int64_t now, corral_change *change) {
  int removes = op->verb == CORRAL_VERB_INVALIDATE || op->verb == CORRAL_VERB_EXPIRE;
  int seen = item->exists && (removes || !is_over(h, item, now));
  uint8_t front[CORRAL_FRONT];
  size_t len = seen ? h->host->front(item->bytes, item->size, front) : 0;
  h->host->decide(op, seen ? front : NULL, len, now, change);
}

/* ---- slots --------------------------------------------------------------------------------- */

void crl_memcached_forget(const crl_memcached_handle *h, slot *s) {
  h->host->record_drop(s->item.bytes);
  memset(&s->item, 0, sizeof s->item);
  s->read = 0;
}

void crl_memcached_hand_over(const crl_memcached_handle *h, corral_op *op, uint8_t *bytes,
                             size_t size) {
  if (op->verb == CORRAL_VERB_CLAIM) op->state.same = 0; /* the whole record is here anyway */
  op->found =
      (corral_found){.record = bytes, .len = size, .drop = h->host->record_drop, .owner = bytes};
}

size_t crl_memcached_slots(const crl_memcached_handle *h, const corral_batch *batch, slot *slots,
                           size_t *of) {
  size_t used = 0;
  for (size_t i = 0; i < batch->count; i++) {
    const corral_op *op = corral_batch_op(batch, i);
    slot *s = &slots[used];
    memset(s, 0, sizeof *s);
    crl_memcached_encode(h->host, op->key, op->key_len, &s->key);
    size_t at = 0;
    while (slots[at].key.len != s->key.len ||
           memcmp(slots[at].key.text, s->key.text, s->key.len) != 0)
      at++;
    of[i] = at;
    used += at == used;
  }
  return used;
}
