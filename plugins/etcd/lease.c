/* lease.c: leases: that of a hold, and those of the places that this process has in queues.
 *
 * Places that were made within CORRAL_LOCK_PLACE_MS of each other share a lease, which lives as
 * long as a token asks that has one of them. So a place that nobody asks for any more, because the
 * UNLOCK of its token was lost, ends although its process lives. */
#include <inttypes.h>

#include "etcd.h"

enum {
  SWEEP_MS = 500, /* interval at which the server looks for ended leases */
  KEEP_MS = CORRAL_LOCK_PLACE_MS / 3
};

int crl_etcd_grant(crl_etcd_handle *h, int64_t lease_ms, int64_t *id, int64_t *ret_ttl) {
  int64_t seconds = lease_ms / 1000 + (lease_ms % 1000 > 0);
  crl_etcd_say(h, "{\"TTL\":\"%" PRId64 "\",\"ID\":\"%" PRId64 "\"}", seconds < 1 ? 1 : seconds,
               *id);
  int status = crl_etcd_call(h, "/v3/lease/grant");
  if (status != CORRAL_OK) return status;
  int is_right = crl_etcd_number(h->reply, "ID", id) && crl_etcd_number(h->reply, "TTL", ret_ttl);
  return is_right && *id != 0 && *ret_ttl > 0 && *ret_ttl < INT32_MAX
             ? CORRAL_OK
             : crl_etcd_strange(h, "no lease");
}

void crl_etcd_revoke(crl_etcd_handle *h, int64_t id) {
  if (h->broken != CORRAL_OK) return;
  corral_error before = h->error;
  crl_etcd_say(h, "{\"ID\":\"%" PRId64 "\"}", id);
  (void)crl_etcd_call(h, "/v3/lease/revoke");
  if (h->broken == CORRAL_OK) h->error = before;
}

int crl_etcd_keep_alive(crl_etcd_handle *h, int64_t id, int64_t *ret_ttl) {
  crl_etcd_say(h, "{\"ID\":\"%" PRId64 "\"}", id);
  int status = crl_etcd_call(h, "/v3/lease/keepalive");
  if (status != CORRAL_OK) return status;
  if (!crl_etcd_number(crl_etcd_part(h->reply, "result"), "TTL", ret_ttl) || *ret_ttl >= INT32_MAX)
    return crl_etcd_strange(h, "no TTL");
  return *ret_ttl > 0 ? CORRAL_OK : CORRAL_ELOST;
}

int crl_etcd_ends_in(crl_etcd_handle *h, int64_t id, int64_t *ret_ms) {
  int64_t ttl;
  *ret_ms = -1;
  if (id == 0 || h->broken != CORRAL_OK) return CORRAL_OK;
  crl_etcd_say(h, "{\"ID\":\"%" PRId64 "\"}", id);
  int status = crl_etcd_call(h, "/v3/lease/timetolive");
  if (status != CORRAL_OK) return status;
  if (!crl_etcd_number(h->reply, "TTL", &ttl) || ttl >= INT32_MAX)
    return crl_etcd_strange(h, "no TTL");
  *ret_ms = ttl < 0 ? SWEEP_MS : (ttl + 1) * 1000;
  return CORRAL_OK;
}

/* ---- leases of places ---------------------------------------------------------------------- */

static crl_etcd_life *life_of(crl_etcd_store *s, int64_t id) {
  return &s->lives[(uint64_t)id % CRL_ETCD_LIVES];
}

static int is_fresh(crl_etcd_store *s, int64_t id, int64_t now) {
  pthread_mutex_lock(&s->mutex);
  const crl_etcd_life *life = life_of(s, id);
  int fresh = life->lease == id && now - life->kept < KEEP_MS;
  pthread_mutex_unlock(&s->mutex);
  return fresh;
}

int crl_etcd_keep_place(crl_etcd_handle *h, int64_t id) {
  crl_etcd_store *s = h->store;
  int64_t now = s->host->now_ms(), ttl;
  if (is_fresh(s, id, now)) return CORRAL_OK;
  int status = crl_etcd_keep_alive(h, id, &ttl);
  if (status != CORRAL_OK) return status;
  pthread_mutex_lock(&s->mutex);
  *life_of(s, id) = (crl_etcd_life){.lease = id, .kept = now};
  pthread_mutex_unlock(&s->mutex);
  return CORRAL_OK;
}

/* The lease that new places are under now. 0: there is none, or it is `over`, or too old. */
static int64_t places_now(crl_etcd_store *s, int64_t over, int64_t now) {
  pthread_mutex_lock(&s->mutex);
  if (s->places == over || now - s->places_made >= CORRAL_LOCK_PLACE_MS) s->places = 0;
  int64_t id = s->places;
  pthread_mutex_unlock(&s->mutex);
  return id;
}

/* Notes lease `id`, made at `now`, in place of `before`. Returns the lease that there is then:
 * another thread may have been first. */
static int64_t note_places(crl_etcd_store *s, int64_t before, int64_t id, int64_t now) {
  pthread_mutex_lock(&s->mutex);
  if (s->places == before) {
    s->places = id;
    s->places_made = now;
    *life_of(s, id) = (crl_etcd_life){.lease = id, .kept = now};
  }
  int64_t there = s->places;
  pthread_mutex_unlock(&s->mutex);
  return there;
}

int crl_etcd_places_lease(crl_etcd_handle *h, int64_t over, int64_t *ret_id) {
  crl_etcd_store *s = h->store;
  int64_t now = s->host->now_ms(), before = places_now(s, over, now), id = 0, ttl;
  int status = before != 0 ? crl_etcd_keep_place(h, before) : CORRAL_ELOST;
  *ret_id = before;
  if (status != CORRAL_ELOST) return status;
  status = crl_etcd_grant(h, CORRAL_LOCK_PLACE_MS, &id, &ttl);
  if (status != CORRAL_OK) return status;
  *ret_id = note_places(s, before, id, now);
  if (*ret_id != id) crl_etcd_revoke(h, id);
  return CORRAL_OK;
}
