/* queue.c: the places of a lock's queue, and their turns.
 *
 * A place is under a lease of its process (lease.c), and ends with that. New places come at the end
 * alone. So a token that was seen to be the first stays the first as long as its own place is
 * there, and the lock is given by a transaction that compares just that.
 *
 * The end of a turn: a process that has seen the lock free, and the same place the first, for
 * CORRAL_LOCK_TURN_MS by its own monotonic clock, removes that place. No clocks are compared. A
 * holder between two such looks would have had that very place, which is gone then; only a corral
 * without turns can come between. */
#include <inttypes.h>

#include "etcd.h"

enum { TURN_MOST_MS = 2 * CORRAL_LOCK_TURN_MS };

size_t crl_etcd_ahead(const crl_etcd_queue *queue) {
  return queue->own > 0 ? queue->own - 1 : queue->places;
}

/* Puts the place under this lease. ELOST: there is no such lease. */
static int put_place(crl_etcd_handle *h, const char *value, int64_t lease, crl_etcd_view *ret) {
  int64_t revision;
  crl_etcd_say(h,
               "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"create_"
               "revision\":\"0\"}],\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\","
               "\"lease\":\"%" PRId64 "\"}},",
               h->place, h->place, value, lease);
  crl_etcd_add_view(h);
  crl_etcd_add(h, "],\"failure\":[");
  crl_etcd_add_view(h);
  crl_etcd_add(h, "]}");
  return crl_etcd_transact_view(h, 1, &revision, ret);
}

int crl_etcd_join(crl_etcd_handle *h, const corral_op *op, crl_etcd_view *ret) {
  char value[CRL_ETCD_VALUE64];
  corral_hold place = {.since = h->store->host->wall_ms()};
  int64_t lease;
  crl_etcd_set_holder(&place, op, op->lock.note, op->lock.note_len);
  crl_etcd_make_value(&place, value);
  int status = crl_etcd_places_lease(h, 0, &lease);
  if (status == CORRAL_OK) status = put_place(h, value, lease, ret);
  if (status != CORRAL_ELOST) return status;
  memset(&h->error, 0, sizeof h->error);
  status = crl_etcd_places_lease(h, lease, &lease);
  return status == CORRAL_OK ? put_place(h, value, lease, ret) : status;
}

/* ---- turns --------------------------------------------------------------------------------- */

/* An entry in use by another lock is left alone until that turn is over for certain. */
int64_t crl_etcd_turn_left(crl_etcd_handle *h, const crl_etcd_view *seen) {
  crl_etcd_store *s = h->store;
  int is_turn = !seen->hold.found && seen->queue.places > 0;
  int64_t left = CORRAL_LOCK_TURN_MS, now = s->host->now_ms();
  pthread_mutex_lock(&s->mutex);
  crl_etcd_turn *at = &s->turns[h->hash % CRL_ETCD_WAITING];
  int is_own = at->lock == h->hash;
  if (is_own && !is_turn)
    *at = (crl_etcd_turn){.lock = 0};
  else if (is_own && at->created == seen->queue.first)
    left -= seen->asked > at->since ? seen->asked - at->since : 0;
  else if (is_turn && (is_own || now - at->since >= TURN_MOST_MS))
    *at = (crl_etcd_turn){.lock = h->hash, .created = seen->queue.first, .since = now};
  pthread_mutex_unlock(&s->mutex);
  return left > 0 ? left : 0;
}

/* Appends that the first place is as it was seen. */
static void add_first(crl_etcd_handle *h, const crl_etcd_queue *queue) {
  crl_etcd_add(h,
               ",{\"key\":\"%s\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"create_revision\":"
               "\"%" PRId64 "\"}",
               queue->first_key, queue->first);
}

int crl_etcd_pass_on(crl_etcd_handle *h, crl_etcd_view *seen) {
  int64_t revision;
  crl_etcd_say(h,
               "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"create_"
               "revision\":\"0\"}",
               h->key);
  add_first(h, &seen->queue);
  crl_etcd_add(h, "],\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}},",
               seen->queue.first_key);
  crl_etcd_add_view(h);
  crl_etcd_add(h, "],\"failure\":[");
  crl_etcd_add_view(h);
  crl_etcd_add(h, "]}");
  return crl_etcd_transact_view(h, 1, &revision, seen);
}

/* A token without a place: none may have come since the queue was seen. Foreign keys there stay. */
void crl_etcd_add_turn(crl_etcd_handle *h, const crl_etcd_view *seen) {
  const crl_etcd_queue *queue = &seen->queue;
  if (queue->own > 0)
    crl_etcd_add(h,
                 ",{\"key\":\"%s\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"create_revision\":"
                 "\"%" PRId64 "\"}",
                 h->place, queue->created);
  else
    crl_etcd_add(h,
                 ",{\"key\":\"%s\",\"range_end\":\"%s\",\"target\":\"MOD\",\"result\":\"LESS\","
                 "\"mod_revision\":\"%" PRId64 "\"}",
                 h->queue, h->queue_end, seen->revision + 1);
  if (crl_etcd_ahead(queue) > 0) add_first(h, queue);
}

void crl_etcd_add_leaving(crl_etcd_handle *h, const crl_etcd_view *seen) {
  if (seen->queue.own > 0)
    crl_etcd_add(h, ",{\"request_delete_range\":{\"key\":\"%s\"}}", h->place);
  if (crl_etcd_ahead(&seen->queue) > 0)
    crl_etcd_add(h, ",{\"request_delete_range\":{\"key\":\"%s\"}}", seen->queue.first_key);
}
