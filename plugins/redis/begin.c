/* begin.c: a batch of looks without waiting: sent at once, and heard piece by piece as its replies
 * come.
 *
 * All of it is looks, so nothing is checked before it is sent, as by perform.c for a connection in
 * use, and errors tell nothing: the host asks again. Whatever one answer doesn't tell for sure is
 * left to it, too. */
#include "redis.h"

int crl_redis_descriptor(void *handle) {
  const crl_redis_handle *h = handle;
  return h->wire.ssl != NULL ? -1 : h->wire.fd; /* TLS may hold bytes that poll doesn't see */
}

static void drop_replies(crl_redis_begun *begun) {
  for (int i = 0; i < begun->heard; i++)
    if (begun->replies[i] != NULL) freeReplyObject(begun->replies[i]);
  begun->heard = 0;
}

void crl_redis_begin_drop(crl_redis_handle *h) {
  drop_replies(&h->begun);
  h->begun.count = h->begun.at = 0;
}

/* Goes to the next slot that is to be heard. */
static void skip(crl_redis_handle *h) {
  crl_redis_begun *begun = &h->begun;
  while (begun->at < begun->count && h->slots[begun->at].replies == 0) begun->at++;
}

int crl_redis_begin(void *handle, const corral_batch *batch, corral_error *error) {
  crl_redis_handle *h = handle;
  const corral_host *host = h->store->host;
  size_t sent;
  h->now = batch->now > 0 ? batch->now : host->now_ms();
  h->used = h->only_looks = h->unchecked = 1;
  if (crl_redis_ops_put_looks(h, batch) != CORRAL_OK)
    return host->fail(error, CORRAL_ENOMEM, "%s: no memory for a batch", h->store->name);
  h->begun = (crl_redis_begun){.count = batch->count,
                               .alone = batch->count == 1 && !h->asks_time,
                               .before = h->asks_time ? host->boot_ms() : 0};
  skip(h);
  /* the kernel takes little at once, or the server has stopped reading */
  return h->out.total == 0 ? CORRAL_OK
                           : crl_redis_out_send(&h->out, &h->wire, CRL_NET_AT_ONCE, &sent, error);
}

/* Takes one reply. */
static int hear(crl_redis_handle *h, redisReply *reply, corral_error *error) {
  crl_redis_begun *begun = &h->begun;
  int status = CORRAL_OK;
  if (begun->at == begun->count || h->asks_time) {
    status = begun->at < begun->count
                 ? crl_redis_clock_hear(h, reply, begun->before, error)
                 : h->store->host->fail(error, CORRAL_EPROTOCOL, "%s: more replies than commands",
                                        h->store->name);
    h->asks_time = 0;
    freeReplyObject(reply);
    return status;
  }
  crl_redis_slot *slot = &h->slots[begun->at];
  begun->replies[begun->heard++] = reply;
  if (begun->heard < slot->replies) return CORRAL_OK;
  status = crl_redis_ops_judge_look(h, slot, begun->replies);
  if (status != CORRAL_OK)
    h->store->host->fail(error, status, "%s: a reply that doesn't fit the command", h->store->name);
  drop_replies(begun);
  begun->at++;
  skip(h);
  return status;
}

/* Takes the replies that the first `got` bytes of h->in complete. */
static int hear_bytes(crl_redis_handle *h, size_t got, corral_error *error) {
  crl_redis_begun *begun = &h->begun;
  redisReply *reply;
  int is_first = begun->alone && begun->at < begun->count && h->slots[begun->at].replies == 1;
  begun->alone = 0;
  if (is_first && crl_redis_look_take(h, h->slots[begun->at].op, got)) {
    begun->at++;
    return CORRAL_OK;
  }
  int status = crl_redis_reply_feed(h, got, error);
  do {
    if (status == CORRAL_OK) status = crl_redis_reply_ready(h, &reply, error);
    if (status != CORRAL_OK || reply == NULL) return status;
    status = hear(h, reply, error);
  } while (status == CORRAL_OK);
  return status;
}

/* After the handle broke: one reply was out of place, so the others may be, too. */
static void take_back(crl_redis_handle *h) {
  for (size_t i = 0; i < h->begun.count; i++) {
    crl_redis_result_take_back(h->slots[i].op);
    h->slots[i].op->status = CORRAL_EINDOUBT;
  }
  crl_redis_begin_drop(h);
}

int crl_redis_finish(void *handle, int *done, corral_error *error) {
  crl_redis_handle *h = handle;
  int status;
  size_t got;
  short want;
  do {
    status = crl_redis_wire_take(&h->wire, h->in, sizeof h->in, &got, &want, error);
    if (status == CORRAL_OK && got > 0) status = hear_bytes(h, got, error);
  } while (status == CORRAL_OK && got == sizeof h->in);
  *done = h->begun.at == h->begun.count;
  if (status == CORRAL_OK && *done) status = crl_redis_reply_none(h, error);
  if (status != CORRAL_OK)
    take_back(h);
  else if (*done)
    crl_redis_begin_drop(h);
  return status;
}
