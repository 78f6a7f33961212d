/* gets.c: looks, of up to CRL_MEMCACHED_KEYS keys by one request: in one go for perform, or begun
 * and finished for who must not wait. */
#include <stdlib.h>

#include "memcached.h"

/* A request, and the operations that it is for. Not zeroed. */
typedef struct group {
  corral_batch batch;
  size_t used; /* slots */
  crl_memcached_slot slots[CRL_MEMCACHED_KEYS];
  size_t of[CRL_MEMCACHED_KEYS]; /* of[i] is the slot of operation i */
  const crl_memcached_key *keys[CRL_MEMCACHED_KEYS];
  crl_memcached_item items[CRL_MEMCACHED_KEYS];
  crl_memcached_request request;
  crl_memcached_hearing hearing;
} group;

typedef struct crl_memcached_begun {
  size_t count, at; /* groups, and the one whose reply is being heard */
  group groups[];
} begun;

static void prepare(const crl_memcached_handle *h, group *g, const corral_batch *batch) {
  g->batch = *batch;
  g->used = crl_memcached_slots(h, batch, g->slots, g->of);
  for (size_t i = 0; i < g->used; i++) g->keys[i] = &g->slots[i].key;
  g->request =
      (crl_memcached_request){.command = CRL_MEMCACHED_GET, .keys = g->keys, .count = g->used};
}

/* ---- judging ------------------------------------------------------------------------------- */

/* True when a later operation needs this one's item, too. */
static int is_shared(const group *g, size_t at) {
  size_t i = at + 1;
  while (i < g->batch.count && g->of[i] != g->of[at]) i++;
  return i < g->batch.count;
}

/* Sets the status; a record that is over by this clock is none. */
static void judge(const crl_memcached_handle *h, corral_op *op, const crl_memcached_item *item,
                  int64_t now) {
  corral_change change;
  if (item->exists && h->host->look(op, item->bytes, item->size, now) == CORRAL_OK &&
      op->state.life_ms > 0)
    return;
  op->status = CORRAL_EINDOUBT;
  op->state = (corral_record_state){.life_ms = 0};
  crl_memcached_decide(h, op, item, now, &change);
}

static void give(const crl_memcached_handle *h, group *g, size_t at, int64_t now) {
  corral_op *op = corral_batch_op(&g->batch, at);
  crl_memcached_item *item = &g->items[g->of[at]];
  uint8_t *bytes = item->bytes;
  judge(h, op, item, now);
  if (op->status != CORRAL_OK) return;
  if (!is_shared(g, at)) {
    item->bytes = NULL;
  } else if ((bytes = h->host->record_new(item->size)) != NULL) {
    memcpy(bytes, item->bytes, item->size);
  } else {
    op->state = (corral_record_state){.life_ms = 0};
    crl_memcached_fail(h, op, CORRAL_ENOMEM, "no memory for a record");
    return;
  }
  crl_memcached_hand_over(h, op, bytes, item->size);
}

/* The reply is there: gives each operation what was found. */
static void give_all(const crl_memcached_handle *h, group *g,
                     const crl_memcached_refusal *refusal) {
  int64_t now = crl_memcached_now(h);
  for (size_t i = 0; i < g->batch.count; i++) {
    if (refusal->status == CORRAL_OK)
      give(h, g, i, now);
    else
      crl_memcached_refuse(h, corral_batch_op(&g->batch, i), refusal);
  }
  for (size_t i = 0; i < g->used; i++) h->host->record_drop(g->items[i].bytes);
}

int crl_memcached_gets(crl_memcached_handle *h, const corral_batch *batch, int64_t deadline,
                       corral_error *error) {
  group g;
  crl_memcached_refusal refusal;
  int sent;
  prepare(h, &g, batch);
  int status = crl_memcached_ask(h, &g.request, deadline, &sent, error);
  if (status == CORRAL_OK)
    status = crl_memcached_hear_items(h, &g.request, g.items, deadline, &refusal, error);
  for (size_t i = 0; i < batch->count && status != CORRAL_OK; i++)
    corral_batch_op(batch, i)->status = crl_memcached_cut(sent);
  if (status == CORRAL_OK) give_all(h, &g, &refusal);
  return status;
}

/* ---- without waiting ----------------------------------------------------------------------- */

int crl_memcached_descriptor(void *handle) { return ((crl_memcached_handle *)handle)->wire.fd; }

void crl_memcached_begun_drop(crl_memcached_handle *h) {
  begun *b = h->begun;
  if (b != NULL && b->at < b->count) crl_memcached_hearing_drop(h, &b->groups[b->at].hearing);
  free(b);
  h->begun = NULL;
}

static void hear_next(begun *b) {
  if (b->at == b->count) return;
  group *g = &b->groups[b->at];
  crl_memcached_hearing_begin(&g->hearing, &g->request, g->items);
}

int crl_memcached_begin(void *handle, const corral_batch *batch, corral_error *error) {
  crl_memcached_handle *h = handle;
  size_t count = (batch->count + CRL_MEMCACHED_KEYS - 1) / CRL_MEMCACHED_KEYS;
  int64_t now = batch->now > 0 ? batch->now : h->host->now_ms();
  int status = crl_memcached_check(h, 1, now, error), sent;
  if (status != CORRAL_OK) return status;
  begun *b = malloc(sizeof *b + count * sizeof *b->groups);
  if (b == NULL)
    return h->host->fail(error, CORRAL_ENOMEM, "%s: no memory for a batch", h->server->name);
  h->begun = b;
  b->count = b->at = 0;
  for (size_t first = 0; first < batch->count && status == CORRAL_OK; b->count++) {
    size_t left = batch->count - first, n = left < CRL_MEMCACHED_KEYS ? left : CRL_MEMCACHED_KEYS;
    const corral_batch part = corral_batch_part(batch, first, n);
    group *g = &b->groups[b->count];
    prepare(h, g, &part);
    /* the kernel takes little at once, or the server has stopped reading */
    status = crl_memcached_send(h, &g->request, CRL_NET_AT_ONCE, &sent, error);
    first += n;
  }
  hear_next(b);
  return status;
}

/* Takes what was read; gives what is whole. */
static int hear(crl_memcached_handle *h, corral_error *error) {
  begun *b = h->begun;
  while (b->at < b->count) {
    group *g = &b->groups[b->at];
    int status = crl_memcached_hearing_there(h, &g->hearing, error);
    if (status != CORRAL_OK || !g->hearing.done) return status;
    if (g->hearing.refusal.status != CORRAL_OK) crl_memcached_hearing_drop(h, &g->hearing);
    give_all(h, g, &g->hearing.refusal);
    b->at++;
    hear_next(b);
  }
  return h->wire.start == h->wire.end
             ? CORRAL_OK
             : h->host->fail(error, CORRAL_EPROTOCOL, "%s: the server says more than was asked",
                             h->server->name);
}

/* After the handle broke: one reply was out of place, so the others may be, too. */
static void take_back(crl_memcached_handle *h) {
  begun *b = h->begun;
  for (size_t i = 0; i < b->count; i++)
    for (size_t j = 0; j < b->groups[i].batch.count; j++) {
      corral_op *op = corral_batch_op(&b->groups[i].batch, j);
      h->host->record_drop(op->found.record);
      op->found = (corral_found){.record = NULL};
      op->state = (corral_record_state){.life_ms = 0};
      op->status = CORRAL_EINDOUBT;
    }
}

int crl_memcached_finish(void *handle, int *done, corral_error *error) {
  crl_memcached_handle *h = handle;
  begun *b = h->begun;
  size_t got = 1;
  int status = CORRAL_OK;
  *done = b == NULL;
  if (b == NULL) return crl_memcached_wire_silent(&h->wire, error);
  while (status == CORRAL_OK && got > 0 && b->at < b->count) {
    status = crl_memcached_hearing_take(h, &b->groups[b->at].hearing, &got, error);
    if (status == CORRAL_OK && got > 0) status = hear(h, error);
  }
  *done = b->at == b->count;
  if (status != CORRAL_OK) take_back(h);
  if (status != CORRAL_OK || *done) crl_memcached_begun_drop(h);
  return status;
}
