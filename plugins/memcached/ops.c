/* ops.c: a batch of operations.
 *
 * One item holds value and lease. GET is a get (gets.c); consecutive ones go in one request. Each
 * other verb reads the item with its cas id (consecutive ones together), lets host->decide make the
 * change, and stores the result by `add` if there was no item, else by `cas`: if another client
 * changed or deleted the item meanwhile, the server refuses, and the item is read and decided
 * again. Nothing is ever stored unconditionally, and a removal is a cas whose item vanishes at
 * once. A claim without `seen` tries its `add` first: on a cold key that is one round trip.
 *
 * The exptime is for garbage collection only, in whole seconds and late; lives and leases are
 * judged by store time (greet.c), in slots.c and decide.
 *
 * A user's lock is one item too, with the record that host->lock_decide makes of it. */
#include <stdlib.h>

#include "memcached.h"

enum { RACES = 16, RELATIVE_MOST = 2592000, EXPTIME_LEAST = 2, CLOCK_SLACK_MS = 2000 };

typedef crl_memcached_slot slot;

/* Reads slots, with their cas ids, by one request. */
static int read_slots(crl_memcached_handle *h, slot *const *slots, size_t count, int64_t deadline,
                      crl_memcached_refusal *refusal, corral_error *error) {
  const crl_memcached_key *keys[CRL_MEMCACHED_KEYS];
  crl_memcached_item items[CRL_MEMCACHED_KEYS];
  int sent;
  for (size_t i = 0; i < count; i++) keys[i] = &slots[i]->key;
  crl_memcached_request request = {.command = CRL_MEMCACHED_GETS, .keys = keys, .count = count};
  int status = crl_memcached_ask(h, &request, deadline, &sent, error);
  if (status == CORRAL_OK)
    status = crl_memcached_hear_items(h, &request, items, deadline, refusal, error);
  for (size_t i = 0; i < count && status == CORRAL_OK && refusal->status == CORRAL_OK; i++) {
    slots[i]->item = items[i];
    slots[i]->read = 1;
  }
  return status;
}

int64_t crl_memcached_exptime(int64_t now, int64_t expires) {
  int64_t seconds = (expires > now ? (expires - now + 999) / 1000 : 0) + 1;
  if (seconds < EXPTIME_LEAST) seconds = EXPTIME_LEAST;
  if (seconds <= RELATIVE_MOST) return seconds;
  int64_t date = (now + CLOCK_SLACK_MS) / 1000 + seconds;
  /* servers read 31 bits: a later date becomes an early end */
  return date <= INT32_MAX ? date : RELATIVE_MOST;
}

/* ---- the other verbs ----------------------------------------------------------------------- */

/* The bytes to store; *owned: they are the caller's to free. NULL: no memory. */
static uint8_t *make_value(const corral_host *host, slot *s, corral_change *change, size_t *size,
                           int *owned) {
  *owned = 0;
  switch (change->action) {
    case CORRAL_ACTION_EDIT:
    case CORRAL_ACTION_REPLACE: {
      *size = change->front_len + change->body_len;
      uint8_t *value = host->record_new(*size);
      if (value == NULL) return NULL;
      host->join(change,
                 change->action == CORRAL_ACTION_EDIT ? s->item.bytes + CORRAL_HEAD : change->body,
                 value);
      *owned = 1;
      return value;
    }
    default: *size = 0; return change->front; /* REMOVE */
  }
}

/* Stores these bytes if the item is still as it was read. *word: STORED: done; REFUSED: op has its
 * error. */
static int put(crl_memcached_handle *h, corral_op *op, const slot *s, const uint8_t *value,
               size_t size, int64_t exptime, int64_t deadline, crl_memcached_word *word,
               corral_error *error) {
  const crl_memcached_key *key = &s->key;
  crl_memcached_refusal refusal = {0};
  int sent = 0;
  crl_memcached_request request = {.command =
                                       s->item.exists ? CRL_MEMCACHED_CAS : CRL_MEMCACHED_ADD,
                                   .keys = &key,
                                   .count = 1,
                                   .value = value,
                                   .size = size,
                                   .exptime = exptime,
                                   .cas = s->item.cas};
  *word = CRL_MEMCACHED_REFUSED;
  int status = crl_memcached_ask(h, &request, deadline, &sent, error);
  if (status == CORRAL_OK)
    status = crl_memcached_hear_word(h, &request, deadline, word, &refusal, error);
  if (status != CORRAL_OK) {
    op->status = crl_memcached_cut(sent);
    if (sent && (status == CORRAL_EAUTH || status == CORRAL_EUNSUPPORTED))
      crl_memcached_fail(h, op, status, refusal.text);
  } else if (*word == CRL_MEMCACHED_REFUSED) {
    crl_memcached_refuse(h, op, &refusal);
  }
  return status;
}

/* Tries once to carry out the change; *word as in put. */
static int apply(crl_memcached_handle *h, corral_op *op, slot *s, corral_change *change,
                 int64_t now, int64_t deadline, crl_memcached_word *word, corral_error *error) {
  int owned;
  size_t size;
  *word = CRL_MEMCACHED_REFUSED;
  if (change->action == CORRAL_ACTION_REPLACE &&
      change->front_len + change->body_len > h->largest) {
    crl_memcached_fail(h, op, CORRAL_ETOOBIG,
                       "the record is larger than this server accepts (max_item= and its -I)");
    return CORRAL_OK;
  }
  uint8_t *value = make_value(h->host, s, change, &size, &owned);
  if (value == NULL) {
    crl_memcached_fail(h, op, CORRAL_ENOMEM, "no memory to send a record");
    return CORRAL_OK;
  }
  int64_t exptime = change->action == CORRAL_ACTION_REMOVE
                        ? CRL_MEMCACHED_GONE
                        : crl_memcached_exptime(now, change->expires);
  int status = put(h, op, s, value, size, exptime, deadline, word, error);
  if (owned && status == CORRAL_OK && *word == CRL_MEMCACHED_STORED &&
      op->verb == CORRAL_VERB_CLAIM)
    crl_memcached_hand_over(h, op, value, size);
  else if (owned)
    h->host->record_drop(value);
  return status;
}

/* Hands out the item for CLAIM, unless apply handed out a new one. */
static void hand_out(const crl_memcached_handle *h, corral_op *op, slot *s) {
  int granted = op->status == CORRAL_OK || op->status == CORRAL_EBUSY;
  if (op->verb != CORRAL_VERB_CLAIM || !granted || op->found.record != NULL || !s->item.exists)
    return;
  crl_memcached_hand_over(h, op, s->item.bytes, s->item.size);
  s->item.bytes = NULL;
}

static int reread(crl_memcached_handle *h, corral_op *op, slot *s, int64_t deadline, int *usable,
                  corral_error *error) {
  crl_memcached_refusal refusal = {0};
  int status = read_slots(h, &s, 1, deadline, &refusal, error);
  *usable = status == CORRAL_OK && refusal.status == CORRAL_OK;
  if (status != CORRAL_OK)
    op->status = crl_memcached_cut(0); /* EUNAVAILABLE, since nothing was written */
  else if (refusal.status != CORRAL_OK)
    crl_memcached_fail(h, op,
                       refusal.status == CORRAL_EINDOUBT ? CORRAL_EUNAVAILABLE : refusal.status,
                       refusal.text);
  return status;
}

static void lost_all_races(const crl_memcached_handle *h, corral_op *op) {
  crl_memcached_fail(h, op, op->verb == CORRAL_VERB_CLAIM ? CORRAL_EBUSY : CORRAL_EREFUSED,
                     "others changed the key between each read and write of sixteen; given up");
  op->state = (corral_record_state){.life_ms = 0};
}

static int claims_blindly(const corral_op *op) {
  return op->verb == CORRAL_VERB_CLAIM && op->claim.seen == 0;
}

static int change_one(crl_memcached_handle *h, corral_op *op, slot *s, int64_t deadline,
                      corral_error *error) {
  for (int race = 0; race < RACES; race++) {
    corral_change change;
    crl_memcached_word word;
    int usable = 1, status = CORRAL_OK;
    if (!s->read && (race > 0 || !claims_blindly(op)))
      status = reread(h, op, s, deadline, &usable, error);
    if (!usable) return status;
    int64_t now = crl_memcached_now(h);
    crl_memcached_decide(h, op, &s->item, now, &change);
    if (change.action == CORRAL_ACTION_KEEP ||
        (change.action == CORRAL_ACTION_REMOVE && !s->item.exists)) {
      hand_out(h, op, s);
      if (s->item.bytes == NULL) crl_memcached_forget(h, s);
      return CORRAL_OK;
    }
    status = apply(h, op, s, &change, now, deadline, &word, error);
    if (status == CORRAL_OK && word == CRL_MEMCACHED_STORED &&
        change.action != CORRAL_ACTION_REMOVE)
      hand_out(h, op, s);
    crl_memcached_forget(h, s);
    if (status != CORRAL_OK || word == CRL_MEMCACHED_STORED || word == CRL_MEMCACHED_REFUSED)
      return status;
  }
  lost_all_races(h, op);
  return CORRAL_OK;
}

/* ---- users' locks -------------------------------------------------------------------------- */

/* Sets the results of an operation that ran out of time before it wrote. */
static void out_of_time(const crl_memcached_handle *h, corral_op *op) {
  int is_take = op->verb == CORRAL_VERB_LOCK;
  crl_memcached_fail(
      h, op, is_take ? CORRAL_EBUSY : CORRAL_EUNAVAILABLE,
      "others changed the lock between each read and write until the time allowed was over");
  op->lock_state = (corral_lock_state){.left_ms = is_take ? -1 : 0};
}

static void show(const crl_memcached_handle *h, corral_op *op, slot *s) {
  if (op->verb != CORRAL_VERB_LOCK_SHOW || op->status != CORRAL_OK) return;
  crl_memcached_hand_over(h, op, s->item.bytes, s->item.size);
  s->item.bytes = NULL;
  crl_memcached_forget(h, s);
}

/* Tries a lock verb once; *word is STORED also if there was nothing to store. */
static int try_lock_verb(crl_memcached_handle *h, corral_op *op, slot *s, int64_t deadline,
                         crl_memcached_word *word, corral_error *error) {
  corral_lock_change change;
  size_t len = s->item.exists ? s->item.size : 0;
  uint8_t *room = malloc(len + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD);
  *word = CRL_MEMCACHED_REFUSED;
  if (room == NULL) {
    crl_memcached_fail(h, op, CORRAL_ENOMEM, "no memory for a lock");
    return CORRAL_OK;
  }
  int status = CORRAL_OK;
  int64_t now = crl_memcached_now(h);
  h->host->lock_decide(op, s->item.exists ? s->item.bytes : NULL, len, now, (uint64_t)now * 1000,
                       room, &change);
  if (change.action == CORRAL_ACTION_KEEP) {
    *word = CRL_MEMCACHED_STORED;
    show(h, op, s);
  } else if (change.size > h->largest) {
    crl_memcached_fail(
        h, op, CORRAL_EREFUSED,
        "with one more hold the lock is larger than this server accepts (max_item= and its -I)");
  } else {
    status = put(h, op, s, room, change.size, crl_memcached_exptime(now, change.expires), deadline,
                 word, error);
    crl_memcached_forget(h, s);
  }
  free(room);
  return status;
}

/* Performs a lock verb. It isn't limited to sixteen tries, as a value's verb is, because each lost
 * try is another client's success. A hold that a full server evicts, or that is lost with its
 * server, is lost: its holder learns that when it extends. The next fencing token is still larger,
 * as far as the clients' clocks agree. */
static int lock_one(crl_memcached_handle *h, corral_op *op, slot *s, int64_t deadline,
                    corral_error *error) {
  for (;;) {
    crl_memcached_word word;
    int usable = 1, status = CORRAL_OK;
    if (!s->read) status = reread(h, op, s, deadline, &usable, error);
    if (!usable) return status;
    status = try_lock_verb(h, op, s, deadline, &word, error);
    if (status != CORRAL_OK || word == CRL_MEMCACHED_STORED || word == CRL_MEMCACHED_REFUSED)
      return status;
    if (h->host->now_ms() < deadline) continue;
    out_of_time(h, op);
    return CORRAL_OK;
  }
}

/* ---- a run of changes ---------------------------------------------------------------------- */

/* Reads at once the items that the first operations on their keys need. */
static int read_ahead(crl_memcached_handle *h, const corral_batch *batch, slot *slots,
                      const size_t *of, int64_t deadline, corral_error *error) {
  slot *wanted[CRL_MEMCACHED_KEYS];
  size_t used = 0;
  crl_memcached_refusal refusal = {0};
  for (size_t i = 0; i < batch->count; i++) {
    int first = 1;
    for (size_t j = 0; j < i; j++) first = first && of[j] != of[i];
    if (first && !claims_blindly(corral_batch_op(batch, i))) wanted[used++] = &slots[of[i]];
  }
  return used < 2 ? CORRAL_OK : read_slots(h, wanted, used, deadline, &refusal, error);
}

static int perform_changes(crl_memcached_handle *h, const corral_batch *batch, size_t *done,
                           int64_t deadline, corral_error *error) {
  slot slots[CRL_MEMCACHED_KEYS];
  size_t of[CRL_MEMCACHED_KEYS];
  size_t used = crl_memcached_slots(h, batch, slots, of);
  int status = read_ahead(h, batch, slots, of, deadline, error);
  for (*done = 0; *done < batch->count && status == CORRAL_OK; ++*done) {
    corral_op *op = corral_batch_op(batch, *done);
    status = (crl_memcached_is_lock(op) ? lock_one : change_one)(h, op, &slots[of[*done]], deadline,
                                                                 error);
  }
  for (size_t i = 0; i < used; i++) crl_memcached_forget(h, &slots[i]);
  return status;
}

/* ---- a batch ------------------------------------------------------------------------------- */

static void none_sent(crl_memcached_handle *h, const corral_batch *batch, const char *why) {
  for (size_t i = 0; i < batch->count; i++)
    crl_memcached_fail(h, corral_batch_op(batch, i), CORRAL_EUNAVAILABLE, why);
}

/* Number of the operations from `first` on that can be performed together. */
static size_t run_of(const corral_batch *batch, size_t first) {
  int gets = corral_batch_op(batch, first)->verb == CORRAL_VERB_GET;
  size_t n = 1;
  for (; first + n < batch->count && n < CRL_MEMCACHED_KEYS; n++) {
    const corral_op *op = corral_batch_op(batch, first + n);
    if (op->key_len == 0 || (op->verb == CORRAL_VERB_GET) != gets) break;
  }
  return n;
}

static int perform_all(crl_memcached_handle *h, const corral_batch *batch, int64_t deadline,
                       corral_error *error) {
  int status = CORRAL_OK;
  for (size_t i = 0, done; i < batch->count; i += done) {
    corral_op *op = corral_batch_op(batch, i);
    corral_batch rest = corral_batch_part(batch, i, batch->count - i);
    if (status != CORRAL_OK) {
      none_sent(h, &rest, "the connection broke before this was sent");
      return status;
    }
    done = rest.count = run_of(batch, i);
    if (op->key_len == 0) {
      done = 1;
      crl_memcached_fail(h, op, CORRAL_EINVAL, "an empty key");
    } else if (op->verb == CORRAL_VERB_GET) {
      status = crl_memcached_gets(h, &rest, deadline, error);
    } else {
      status = perform_changes(h, &rest, &done, deadline, error);
    }
  }
  return status;
}

int crl_memcached_perform(void *handle, const corral_batch *batch, int64_t deadline,
                          corral_error *error) {
  crl_memcached_handle *h = handle;
  int64_t now = batch->now > 0 ? batch->now : h->host->now_ms();
  if (now >= deadline) {
    none_sent(h, batch, "the time allowed was over before anything was sent");
    return CORRAL_OK;
  }
  int status = crl_memcached_check(h, !claims_blindly(batch->ops), now, error);
  if (status != CORRAL_OK) {
    none_sent(h, batch, "the connection was of no more use; nothing was sent");
    return status;
  }
  status = perform_all(h, batch, deadline, error);
  if (status == CORRAL_OK && h->wire.start < h->wire.end)
    status = h->host->fail(error, CORRAL_EPROTOCOL, "%s: the server says more than was asked",
                           h->server->name);
  return status;
}
