/* locks.c: the lock verbs as requests to etcd.
 *
 * The number of a lease is made from token and name. So a repeated LOCK finds its lease, nothing is
 * remembered here between LOCK and UNLOCK, and a request that arrives after an UNLOCK, which
 * revokes the lease, finds no lease to put a key under. A lease can't grow: a hold that must last
 * longer than its lease was granted for gets another one, whose number stands in the key. */
#include <inttypes.h>
#include <stdlib.h>

#include "etcd.h"

enum {
  CONTENDED = 3, /* looks before a LOCK writes: cheaper than a LOCK in vain */
  TRIES = 8
};

/* Puts the key under a new lease of *ret_ttl seconds, if it is still as it was seen. ELOST: it
 * isn't. */
static int relet(crl_etcd_handle *h, const crl_etcd_key *hold, int64_t lease_ms, int64_t *ret_ttl) {
  int64_t id = 0, revision;
  crl_etcd_key now;
  int status = crl_etcd_grant(h, lease_ms, &id, ret_ttl);
  if (status != CORRAL_OK) return status;
  crl_etcd_say(
      h,
      "{\"compare\":[{\"key\":\"%s\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":"
      "\"%" PRId64 "\"}],"
      "\"success\":[{\"request_put\":{\"key\":\"%s\",\"ignore_value\":true,\"lease\":\"%" PRId64
      "\"}}],"
      "\"failure\":[{\"request_range\":{\"key\":\"%s\"}}]}",
      h->key, hold->modified, h->key, id, h->key);
  status = crl_etcd_change(h, &revision, &now);
  if (status == CORRAL_OK && revision == 0) status = CORRAL_ELOST;
  if (status != CORRAL_OK)
    crl_etcd_revoke(h, id);
  else if (hold->lease != 0)
    crl_etcd_revoke(h, hold->lease);
  return status;
}

/* ---- the verbs ----------------------------------------------------------------------------- */

static int is_mine(const crl_etcd_key *hold, const corral_op *op) {
  return hold->ours && memcmp(hold->told.token, op->token, CORRAL_TOKEN) == 0;
}

/* Results of a hold whose lease of `ttl` seconds began after `sent` (host->now_ms). */
static int granted(const crl_etcd_handle *h, corral_op *op, uint64_t fence, int64_t ttl,
                   int64_t sent) {
  int64_t left = ttl * 1000 - (h->store->host->now_ms() - sent);
  op->lock_state.fence = fence;
  op->lock_state.left_ms = left > 0 ? left : 0;
  return CORRAL_OK;
}

/* Begins this token's hold anew. */
static int renew(crl_etcd_handle *h, corral_op *op, const crl_etcd_key *hold) {
  int64_t ttl, sent = h->store->host->now_ms();
  int status = crl_etcd_keep_alive(h, hold->lease, &ttl);
  if (status == CORRAL_OK && ttl * 1000 < corral_op_hold_ms(op)) {
    sent = h->store->host->now_ms();
    status = relet(h, hold, corral_op_hold_ms(op), &ttl);
  }
  return status == CORRAL_OK ? granted(h, op, hold->told.fence, ttl, sent) : status;
}

/* Refuses a LOCK, which may come again in `turn_ms` where the lock is free. A waiter with a watch
 * learns of the key's end, so left_ms isn't asked for then. */
static int busy(crl_etcd_handle *h, corral_op *op, const crl_etcd_key *hold, int64_t turn_ms) {
  h->busy = h->hash;
  h->contended = CONTENDED;
  op->lock_state.left_ms = hold->found ? -1 : turn_ms;
  if (!hold->found) return CORRAL_EBUSY;
  if (!hold->ours || !(op->flags & CORRAL_OP_WATCH) || atomic_load(&h->store->watches) == 0)
    (void)crl_etcd_ends_in(h, hold->lease, &op->lock_state.left_ms);
  return hold->ours
             ? CORRAL_EBUSY
             : crl_etcd_fail(h, CORRAL_EFOREIGN, "the key holds what corral did not write", "");
}

static _Atomic int64_t *waiting(crl_etcd_handle *h) {
  return &h->store->waiting[(uint64_t)h->lease % CRL_ETCD_WAITING];
}

/* ---- LOCK ---------------------------------------------------------------------------------- */

/* A LOCK under way. */
typedef struct attempt {
  /* the token's lease. NEW: granted by this LOCK, at `sent` (host->now_ms) for `ttl` seconds; KEPT:
   * by an earlier one that was refused; FOUND: by one whose reply was lost */
  enum { NONE, NEW, KEPT, FOUND } lease;
  int64_t ttl, sent;
  crl_etcd_view now; /* the lock as it was seen last */
} attempt;

static int is_in_turn(const corral_op *op) {
  return op->flags & CORRAL_OP_FAIR && op->lock.wish_ms > 0;
}

/* Puts the key under this token's lease, if there is no such key and the queue lets it. Else
 * *ret_revision is 0, and a->now the lock as it is. */
static int put(crl_etcd_handle *h, const corral_op *op, attempt *a, int64_t *ret_revision) {
  char value[CRL_ETCD_VALUE64];
  corral_hold new = {.since = h->store->host->wall_ms()};
  crl_etcd_set_holder(&new, op, op->lock.note, op->lock.note_len);
  crl_etcd_make_value(&new, value);
  crl_etcd_say(h,
               "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"create_"
               "revision\":\"0\"}",
               h->key);
  crl_etcd_add_turn(h, &a->now);
  crl_etcd_add(h,
               "],\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\",\"lease\":"
               "\"%" PRId64 "\"}}",
               h->key, value, h->lease);
  crl_etcd_add_leaving(h, &a->now);
  crl_etcd_add(h, "],\"failure\":[");
  crl_etcd_add_view(h);
  crl_etcd_add(h, "]}");
  return crl_etcd_transact_view(h, -1, ret_revision, &a->now);
}

static int new_lease(crl_etcd_handle *h, const corral_op *op, attempt *a) {
  int64_t id = h->lease;
  a->sent = h->store->host->now_ms();
  int status = crl_etcd_grant(h, op->lock.hold_ms, &id, &a->ttl);
  if (status == CORRAL_OK && id != h->lease) return crl_etcd_strange(h, "another lease");
  if (status != CORRAL_OK && status != CORRAL_EBUSY) return status;
  a->lease = status == CORRAL_OK ? NEW : FOUND;
  return CORRAL_OK;
}

static int take(crl_etcd_handle *h, const corral_op *op, attempt *a, int64_t *ret_revision) {
  int status = CORRAL_OK;
  if (a->lease == NONE && atomic_exchange(waiting(h), 0) == h->lease) a->lease = KEPT;
  if (a->lease == NONE) status = new_lease(h, op, a);
  if (status == CORRAL_OK) status = put(h, op, a, ret_revision);
  if (status != CORRAL_ELOST || a->lease != KEPT) return status;
  status = new_lease(h, op, a);
  return status == CORRAL_OK ? put(h, op, a, ret_revision) : status;
}

static int told_over(crl_etcd_handle *h, int status) {
  return status == CORRAL_ELOST ? crl_etcd_fail(h, CORRAL_EUNAVAILABLE,
                                                "the lease was over before the lock was there", "")
                                : status;
}

/* The key was put at this revision. The remaining time of a lease that isn't new is unknown. */
static int taken(crl_etcd_handle *h, corral_op *op, const attempt *a, int64_t revision) {
  crl_etcd_key hold = {.modified = revision, .lease = h->lease};
  hold.told.fence = (uint64_t)revision;
  if (a->lease == NEW) return granted(h, op, hold.told.fence, a->ttl, a->sent);
  return told_over(h, renew(h, op, &hold));
}

/* The token has the lock already. */
static int again(crl_etcd_handle *h, corral_op *op, const attempt *a) {
  int status = renew(h, op, &a->now.hold);
  if (status == CORRAL_OK && a->lease != NONE && a->now.hold.lease != h->lease)
    crl_etcd_revoke(h, h->lease);
  return told_over(h, status);
}

/* A token that will ask again keeps its lease until it is granted or UNLOCK, since a new one would
 * cost two writes per request; and its place, whose lease lives as long as it asks. */
static int refuse(crl_etcd_handle *h, corral_op *op, const attempt *a, int64_t turn_ms) {
  const crl_etcd_view *now = &a->now;
  int is_kept = op->lock.wish_ms > 0 && (now->hold.ours || !now->hold.found);
  if (a->lease != NONE && is_kept) atomic_store(waiting(h), h->lease);
  if (a->lease != NONE && !is_kept) crl_etcd_revoke(h, h->lease);
  if (now->queue.own > 0) (void)crl_etcd_keep_place(h, now->queue.lease);
  if ((a->lease != NONE && is_kept) || now->queue.own > 0) op->flags |= CORRAL_OP_QUEUED;
  op->lock_state.fence = now->queue.own;
  return busy(h, op, &now->hold, turn_ms);
}

typedef enum step { TAKE, HAS_IT, JOIN, PASS_ON, REFUSE } step;

/* The next step of a LOCK, by the view. *ret_turn_ms: the time left of the first place's turn. */
static step next_step(crl_etcd_handle *h, const corral_op *op, const crl_etcd_view *now, int tries,
                      int64_t *ret_turn_ms) {
  size_t ahead = crl_etcd_ahead(&now->queue);
  if (now->revision == 0) return TAKE;
  if (is_mine(&now->hold, op)) return HAS_IT;
  *ret_turn_ms = crl_etcd_turn_left(h, now);
  int is_free = !now->hold.found, is_over = is_free && *ret_turn_ms == 0;
  if (tries >= TRIES) return REFUSE;
  if (is_free && (ahead == 0 || (ahead == 1 && is_over))) return TAKE;
  if (is_over) return PASS_ON;
  return is_in_turn(op) && now->queue.own == 0 && now->queue.places < CORRAL_LOCK_PLACES &&
                 (is_free || now->hold.ours)
             ? JOIN
             : REFUSE;
}

/* A wait in turn begins by a look, as does a LOCK of a key that was refused lately. */
static int look_first(crl_etcd_handle *h, const corral_op *op, crl_etcd_view *ret) {
  int was_busy = h->contended > 0 && h->busy == h->hash;
  if (was_busy) h->contended--;
  return was_busy || is_in_turn(op) ? crl_etcd_see(h, ret) : CORRAL_OK;
}

static int lock(crl_etcd_handle *h, corral_op *op) {
  attempt a = {.lease = NONE};
  int64_t revision = 0, turn_ms = 0;
  if (op->flags & CORRAL_OP_SHARED)
    return crl_etcd_fail(h, CORRAL_EUNSUPPORTED, "no shared locks", "");
  int status = look_first(h, op, &a.now);
  for (int tries = 0; status == CORRAL_OK; tries++) {
    switch (next_step(h, op, &a.now, tries, &turn_ms)) {
      case HAS_IT: return again(h, op, &a);
      case REFUSE: return refuse(h, op, &a, turn_ms);
      case JOIN: status = crl_etcd_join(h, op, &a.now); break;
      case PASS_ON: status = crl_etcd_pass_on(h, &a.now); break;
      case TAKE:
        status = take(h, op, &a, &revision);
        if (status == CORRAL_OK && revision > 0) return taken(h, op, &a, revision);
        break;
    }
  }
  if (status != CORRAL_EINDOUBT && a.lease != NONE) crl_etcd_revoke(h, h->lease);
  return told_over(h, status);
}

/* ---- LOCK_EXTEND, UNLOCK, LOCK_SHOW -------------------------------------------------------- */

static int lost(crl_etcd_handle *h, corral_op *op, const crl_etcd_key *hold) {
  op->lock_state.left_ms = 0;
  if (hold->found && !is_mine(hold, op))
    (void)crl_etcd_ends_in(h, hold->lease, &op->lock_state.left_ms);
  return CORRAL_ELOST;
}

static int is_from(const crl_etcd_key *hold, const corral_op *op) {
  const uint8_t *from = op->lock_extend.from;
  return from != NULL && hold->ours && memcmp(hold->told.token, from, CORRAL_TOKEN) == 0;
}

/* Puts the key with this token under its lease, if it is still as it was seen; else *ret_revision
 * is 0, and *hold as it is now. The fencing token: larger than the one before, and smaller than the
 * revision at which the next key is created. */
static int put_over(crl_etcd_handle *h, const corral_op *op, int64_t *ret_revision,
                    crl_etcd_key *hold) {
  char value[CRL_ETCD_VALUE64];
  hold->told.fence = (uint64_t)hold->modified + 1;
  crl_etcd_set_holder(&hold->told, op, op->lock_extend.note, op->lock_extend.note_len);
  crl_etcd_make_value(&hold->told, value);
  crl_etcd_say(
      h,
      "{\"compare\":[{\"key\":\"%s\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":"
      "\"%" PRId64 "\"}],"
      "\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%" PRId64 "\"}}],"
      "\"failure\":[{\"request_range\":{\"key\":\"%s\"}}]}",
      h->key, hold->modified, h->key, value, h->lease, h->key);
  return crl_etcd_change(h, ret_revision, hold);
}

/* The hold of op->lock_extend.from becomes this token's. ELOST: it was over, or another's first. */
static int take_over(crl_etcd_handle *h, corral_op *op, crl_etcd_key *hold) {
  int64_t id = h->lease, ttl, left, revision = 0, before = 0;
  int status = crl_etcd_ends_in(h, hold->lease, &left);
  if (status != CORRAL_OK) return status;
  status =
      crl_etcd_grant(h, left > op->lock_extend.hold_ms ? left : op->lock_extend.hold_ms, &id, &ttl);
  if (status != CORRAL_OK && status != CORRAL_EBUSY) return status; /* EBUSY: of an earlier try */
  do {
    before = hold->lease;
    status = put_over(h, op, &revision, hold);
  } while (status == CORRAL_OK && revision == 0 && is_from(hold, op));
  if (status == CORRAL_EINDOUBT) return status;
  if (status == CORRAL_OK && revision == 0 && is_mine(hold, op)) return renew(h, op, hold);
  crl_etcd_revoke(h, status == CORRAL_OK && revision != 0 ? before : h->lease);
  if (status != CORRAL_OK || revision == 0) return status != CORRAL_OK ? status : CORRAL_ELOST;
  hold->lease = h->lease;
  hold->modified = revision;
  return renew(h, op, hold);
}

static int extend(crl_etcd_handle *h, corral_op *op) {
  crl_etcd_key hold = {0};
  if (op->flags & CORRAL_OP_SHARED)
    return crl_etcd_fail(h, CORRAL_EUNSUPPORTED, "no shared locks", "");
  int status = crl_etcd_look(h, &hold);
  if (status == CORRAL_OK && is_from(&hold, op))
    status = take_over(h, op, &hold);
  else if (status == CORRAL_OK)
    status = is_mine(&hold, op) ? renew(h, op, &hold) : CORRAL_ELOST;
  return status == CORRAL_ELOST ? lost(h, op, &hold) : status;
}

/* Removes the token's place, and the key if its `target` equals `value`. *had_place is set where
 * there was one and the key stays. */
static int drop(crl_etcd_handle *h, const char *target, const char *field, int64_t value,
                int64_t *ret_revision, crl_etcd_key *hold, int *had_place) {
  int64_t deleted = 0;
  crl_etcd_say(
      h,
      "{\"compare\":[{\"key\":\"%s\",\"target\":\"%s\",\"result\":\"EQUAL\",\"%s\":\"%" PRId64
      "\"}],"
      "\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}},{\"request_delete_range\":{\"key\":"
      "\"%s\"}}],"
      "\"failure\":[{\"request_range\":{\"key\":\"%s\"}},{\"request_delete_range\":{\"key\":"
      "\"%s\"}}]}",
      h->key, target, field, value, h->key, h->place, h->key, h->place);
  int status = crl_etcd_change(h, ret_revision, hold);
  if (status != CORRAL_OK || *ret_revision != 0) return status;
  const cJSON *places = crl_etcd_answer(h, 1, "response_delete_range");
  if (!crl_etcd_number(places, "deleted", &deleted)) return crl_etcd_strange(h, "no number");
  *had_place |= deleted > 0;
  return CORRAL_OK;
}

/* The key may be under another lease than the token's first. That first lease is revoked even when
 * there is no key, so that no LOCK still on its way can put one. */
static int unlock(crl_etcd_handle *h, corral_op *op) {
  crl_etcd_key hold = {0};
  int64_t revision = 0, own = h->lease;
  int had_place = 0;
  atomic_compare_exchange_strong(waiting(h), &own, 0);
  int status = drop(h, "LEASE", "lease", h->lease, &revision, &hold, &had_place);
  if (status == CORRAL_OK && revision == 0 && is_mine(&hold, op)) {
    int64_t other = hold.lease;
    status = drop(h, "MOD", "mod_revision", hold.modified, &revision, &hold, &had_place);
    if (status == CORRAL_OK) crl_etcd_revoke(h, other);
  } else {
    crl_etcd_revoke(h, h->lease);
  }
  return status == CORRAL_OK && revision == 0 && !had_place ? lost(h, op, &hold) : status;
}

/* Gives foreign data at the key an end, if it has none. */
static int repair(crl_etcd_handle *h, corral_op *op, const crl_etcd_key *hold) {
  int64_t ttl;
  int status = relet(h, hold, op->lock_show.foreign_ms, &ttl);
  if (status != CORRAL_OK && status != CORRAL_ELOST) return status;
  op->lock_state.left_ms = status == CORRAL_OK ? ttl * 1000 : -1;
  return crl_etcd_fail(h, CORRAL_EFOREIGN, "the key holds what corral did not write", "");
}

/* Makes the record of these holds and places. */
static int tell(crl_etcd_handle *h, corral_op *op, const corral_hold *holds, size_t count) {
  uint8_t *record = malloc(CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD);
  if (record == NULL) return crl_etcd_fail(h, CORRAL_ENOMEM, "no memory for a record", "");
  h->store->host->lock_write(holds[0].fence, holds, count, record);
  op->found.record = record;
  op->found.len = CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD;
  op->found.drop = free;
  op->found.owner = record;
  return CORRAL_OK;
}

static int show(crl_etcd_handle *h, corral_op *op) {
  crl_etcd_view now;
  corral_hold *holds;
  size_t count;
  int64_t left = 0;
  int status = crl_etcd_see_all(h, &now, &holds, &count);
  if (status != CORRAL_OK) return status;
  const crl_etcd_key *hold = &now.hold;
  op->lock_state.now = h->store->host->wall_ms();
  if (count == 0)
    status = CORRAL_EMISS;
  else if (hold->found && !hold->ours && hold->lease == 0 && op->flags & CORRAL_OP_REPAIR)
    status = repair(h, op, hold);
  else if (hold->found && !hold->ours)
    status = busy(h, op, hold, 0);
  else if (hold->found)
    status = crl_etcd_ends_in(h, hold->lease, &left);
  if (status == CORRAL_OK && hold->found) {
    op->lock_state.left_ms = left;
    holds[0].until = op->lock_state.now + left;
    if (holds[0].since < 1 || holds[0].since > op->lock_state.now)
      holds[0].since = op->lock_state.now;
  }
  if (status == CORRAL_OK) status = tell(h, op, holds, count);
  free(holds);
  return status;
}

static int one(crl_etcd_handle *h, corral_op *op) {
  op->lock_state.left_ms = op->lock_state.now = 0;
  if (op->key_len == 0 || op->key_len > CRL_ETCD_KEY)
    return crl_etcd_fail(h, CORRAL_ETOOBIG, "a name has 1 to 4096 bytes", "");
  crl_etcd_set_names(h, op);
  switch (op->verb) {
    case CORRAL_VERB_LOCK: return lock(h, op);
    case CORRAL_VERB_LOCK_EXTEND: return extend(h, op);
    case CORRAL_VERB_UNLOCK: return unlock(h, op);
    case CORRAL_VERB_LOCK_SHOW: return show(h, op);
    default: return crl_etcd_fail(h, CORRAL_EUNSUPPORTED, "etcd has locks only, no values", "");
  }
}

int crl_etcd_perform(void *handle, const corral_batch *batch, int64_t deadline,
                     corral_error *error) {
  crl_etcd_handle *h = handle;
  h->deadline = deadline;
  for (size_t i = 0; i < batch->count; i++) {
    corral_op *op = corral_batch_op(batch, i);
    if (h->broken != CORRAL_OK) {
      op->status = CORRAL_EUNAVAILABLE;
      if (op->error != NULL) *op->error = h->error;
      continue;
    }
    memset(&h->error, 0, sizeof h->error);
    op->status = one(h, op);
    if (op->status < 0 && h->error.text[0] != '\0' && op->error != NULL) *op->error = h->error;
    if (op->error != NULL && op->error->text[0] != '\0') op->error->status = op->status;
  }
  if (h->broken == CORRAL_OK) return CORRAL_OK;
  if (error != NULL) *error = h->error;
  if (error != NULL) error->status = h->broken;
  return h->broken;
}
