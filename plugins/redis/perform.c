/* perform.c: a batch on a handle: by one pipeline (ops.c); locks without scripts where the server
 * forbids them (lock_exec.c).
 *
 * Between batches the server must be silent. A batch that can't be repeated is sent only after a
 * check whether it is, and whether the connection is still open. Looks at values can be repeated,
 * and so can locks be taken and released: on a connection in use they are sent unchecked. If it
 * turns out closed, or a reply out of place, the host asks once more on a new connection.
 *
 * A reply that came unasked would shift all later ones by one. A record tells its key; whatever
 * else a look is told is asked again, or leads to a claim, which is checked. And once in a second a
 * reply to TIME must stand in its place (clock.c). */
#include "redis.h"

enum { IDLE_MS = 100, CLOCK_OLD_MS = 2000 };

/* A server that has become a replica refuses writes on this connection for good; by the same name
 * another server may be reached now. */
static int is_demoted(const crl_redis_handle *h) {
  return h->demoted != atomic_load_explicit(&h->store->demoted, memory_order_relaxed);
}

/* True for a batch that needs no check. A token may ask twice for the same hold; a release whose
 * reply is lost is asked for once more by the host. The server's clock, which must be known, tells
 * whether the reply to a taking is in its place. */
static int is_unchecked(const crl_redis_handle *h, const corral_batch *batch, int64_t idle) {
  int has_locks = 0;
  for (size_t i = 0; i < batch->count; i++) {
    uint32_t verb = corral_batch_op(batch, i)->verb;
    if (verb != CORRAL_VERB_GET && verb != CORRAL_VERB_LOCK && verb != CORRAL_VERB_UNLOCK) return 0;
    has_locks |= verb != CORRAL_VERB_GET;
  }
  return h->used && idle < IDLE_MS &&
         (!has_locks || (!h->store->scriptless && !is_demoted(h) && crl_redis_clock_good(h) &&
                         h->now - h->time.asked <= CLOCK_OLD_MS));
}

static int has_only_looks(const corral_batch *batch) {
  for (size_t i = 0; i < batch->count; i++)
    if (corral_batch_op(batch, i)->verb != CORRAL_VERB_GET) return 0;
  return 1;
}

static int check(crl_redis_handle *h, corral_error *error) {
  if (!is_demoted(h)) return crl_redis_wire_silent(&h->wire, error);
  return h->store->host->fail(error, CORRAL_EUNAVAILABLE, "%s: has become a replica",
                              h->store->name);
}

/* Takes back all replies to a batch that was sent unchecked, if one of them was out of place: the
 * others may be, too. */
static int check_late(const corral_batch *batch, int status) {
  if (status != CORRAL_EPROTOCOL) return status;
  for (size_t i = 0; i < batch->count; i++) {
    corral_op *op = corral_batch_op(batch, i);
    crl_redis_result_take_back(op);
    op->status = CORRAL_EINDOUBT;
  }
  return status;
}

int crl_redis_perform(void *handle, const corral_batch *batch, int64_t deadline,
                      corral_error *error) {
  crl_redis_handle *h = handle;
  int status = CORRAL_OK;
  int64_t idle = -h->now;
  h->now = batch->now > 0 ? batch->now : h->store->host->now_ms();
  idle += h->now;
  if (h->now >= deadline) {
    crl_redis_result_none_sent(h, batch, CORRAL_EUNAVAILABLE,
                               "the time allowed was over before anything was sent");
    return CORRAL_OK;
  }
  h->only_looks = has_only_looks(batch);
  h->unchecked = is_unchecked(h, batch, idle);
  if (!h->unchecked) status = check(h, error);
  if (status != CORRAL_OK) {
    crl_redis_result_none_sent(h, batch, CORRAL_EUNAVAILABLE,
                               "the connection was of no more use; nothing was sent");
    return status;
  }
  h->used = 1;
  crl_redis_wire_arm(&h->wire, h->now);
  h->refused_scripts = 0;
  status = h->store->scriptless ? crl_redis_exec_perform(h, batch, deadline, error)
                                : crl_redis_ops_run(h, batch, deadline, error);
  if (h->unchecked) return check_late(batch, status);
  return status == CORRAL_OK && h->refused_scripts
             ? crl_redis_exec_refused(h, batch, deadline, error)
             : status;
}
