/* semaphore.c: limits the computes that burden one origin: so many at once in this process, and so
 * many in the whole fleet. */
#include "election/semaphore.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "os/env.h"
#include "policy/policy.h"
#include "record/key.h"
#include "store/put.h"
#include "base/value.h"

enum { FLEET_MOST = 256 };

/* A slot of the fleet, held under a lease. */
typedef struct crl_fleet_slot {
  crl_renewed_lease lease;
  uint8_t token[CORRAL_TOKEN];
  crl_key key;
} crl_fleet_slot;

struct crl_semaphore {
  crl_semaphore_options options;
  crl_limiter *limiter;
  _Atomic unsigned last; /* the slot of the fleet held last: probably free again */
  char name[];
};

crl_semaphore *crl_semaphore_new(const crl_semaphore_options *options) {
  size_t len = strlen(options->name);
  crl_semaphore *semaphore = crl_alloc(sizeof *semaphore + len + 1);
  if (semaphore == NULL) return NULL;
  semaphore->options = *options;
  memcpy(semaphore->name, options->name, len);
  semaphore->options.name = semaphore->name;
  if (semaphore->options.fleet_most > FLEET_MOST) semaphore->options.fleet_most = FLEET_MOST;
  int64_t most = options->most, fleet = options->fleet_most;
  if (fleet > 0 && (most <= 0 || most > fleet)) most = fleet;
  if ((semaphore->limiter = crl_limiter_new(most, options->threads, options->ramps)) == NULL) {
    free(semaphore);
    return NULL;
  }
  crl_env_random(&most, sizeof most);
  atomic_init(&semaphore->last, (unsigned)most);
  return semaphore;
}

void crl_semaphore_free(crl_semaphore *semaphore) {
  crl_limiter_free(semaphore->limiter);
  free(semaphore);
}

int crl_semaphore_limits(const crl_semaphore *semaphore, unsigned needs) {
  return crl_limiter_limits(semaphore->limiter, needs);
}

crl_limiter *crl_semaphore_limiter(crl_semaphore *semaphore) { return semaphore->limiter; }

void crl_slot_init(crl_slot *slot) { memset(slot, 0, sizeof *slot); }

/* ---- the fleet's slots --------------------------------------------------------------------- */

/* On CORRAL_OK *key is to be given to crl_key_clean. The key is in no namespace: all corrals that
 * name the origin share its slots. */
static int make_key(const crl_semaphore *semaphore, unsigned number, crl_key *key) {
  crl_key_space none = {.max_key = crl_pool_info(semaphore->options.pool)->max_key};
  char text[16];
  crl_name name = {.key = semaphore->name, .key_len = strlen(semaphore->name), .variant = text};
  name.variant_len = (size_t)snprintf(text, sizeof text, "%u", number);
  return crl_key_make(key, CRL_KEY_SLOT, &none, &name);
}

/* A lost slot: this process was away for longer than the lease, and the slot has another holder.
 * The compute goes on. */
static void ignore(crl_renewed_lease *lease) { (void)lease; }

static int claim_key(crl_semaphore *semaphore, crl_fleet_slot *slot) {
  uint8_t wish[CORRAL_FRONT];
  size_t wish_len = crl_put_wish(crl_key_digest(&slot->key), 0, wish);
  if (crl_env_random(slot->token, sizeof slot->token) != CORRAL_OK) return CORRAL_EIO;
  corral_op op = {
      .verb = CORRAL_VERB_CLAIM,
      .key = slot->key.stored,
      .key_len = slot->key.stored_len,
      .token = slot->token,
      .claim = {.lease_ms = semaphore->options.lease_ms, .front = wish, .front_len = wish_len}};
  int64_t sent = crl_env_now_ms();
  crl_pool_perform(semaphore->options.pool, &op, 1, sent + semaphore->options.op_ms);
  if (op.found.drop != NULL) op.found.drop(op.found.owner);
  if (op.status != CORRAL_OK) return op.status;
  slot->lease = (crl_renewed_lease){.key = op.key,
                                    .key_len = op.key_len,
                                    .user_key = op.key,
                                    .user_key_len = op.key_len,
                                    .token = slot->token,
                                    .lease_ms = semaphore->options.lease_ms,
                                    .limit = INT64_MAX,
                                    .on_lost = ignore,
                                    .on_limit = ignore};
  crl_renewer_hold(semaphore->options.renewer, &slot->lease, sent);
  return CORRAL_OK;
}

static int claim(crl_semaphore *semaphore, unsigned number, crl_slot *slot) {
  crl_fleet_slot *fleet = crl_alloc(sizeof *fleet);
  if (fleet == NULL) return CORRAL_ENOMEM;
  int status = make_key(semaphore, number, &fleet->key);
  if (status == CORRAL_OK) status = claim_key(semaphore, fleet);
  if (status == CORRAL_OK) {
    slot->fleet = fleet;
    atomic_store(&semaphore->last, number);
  } else {
    crl_key_clean(&fleet->key);
    free(fleet);
  }
  return status;
}

/* Writes the numbers of the slots that look free; returns how many, or a negative status. One round
 * trip where the store has batches. */
static int list_free(crl_semaphore *semaphore, unsigned *numbers) {
  unsigned most = (unsigned)semaphore->options.fleet_most;
  corral_op *ops = crl_alloc(most * sizeof *ops);
  crl_key *keys = crl_alloc(most * sizeof *keys);
  int count = 0, answers = 0, status = ops == NULL || keys == NULL ? CORRAL_ENOMEM : CORRAL_OK;
  for (unsigned i = 0; status == CORRAL_OK && i < most; i++) {
    status = make_key(semaphore, i, &keys[i]);
    ops[i] =
        (corral_op){.verb = CORRAL_VERB_GET, .key = keys[i].stored, .key_len = keys[i].stored_len};
  }
  int asked = status == CORRAL_OK;
  if (asked)
    crl_pool_perform(semaphore->options.pool, ops, most,
                     crl_env_now_ms() + semaphore->options.op_ms);
  for (unsigned i = 0; asked && i < most; i++) {
    status = ops[i].status;
    if (status == CORRAL_OK || status == CORRAL_EMISS) answers++;
    if (status == CORRAL_EMISS || (status == CORRAL_OK && ops[i].state.left_ms == 0))
      numbers[count++] = i;
    if (ops[i].found.drop != NULL) ops[i].found.drop(ops[i].found.owner);
  }
  for (unsigned i = 0; keys != NULL && i < most; i++) crl_key_clean(&keys[i]);
  free(ops);
  free(keys);
  return answers > 0 ? count : status;
}

/* CORRAL_OK, CORRAL_EBUSY, or an error of the store. */
static int take_slot(crl_semaphore *semaphore, crl_slot *slot) {
  unsigned numbers[FLEET_MOST], most = (unsigned)semaphore->options.fleet_most, dice = 0;
  int status = claim(semaphore, atomic_load(&semaphore->last) % most, slot);
  if (status != CORRAL_EBUSY || most == 1) return status;
  int count = list_free(semaphore, numbers);
  if (count < 0) return count;
  crl_env_random(&dice, sizeof dice);
  for (int i = 0; i < count; i++) {
    status = claim(semaphore, numbers[((unsigned)i + dice) % (unsigned)count], slot);
    if (status != CORRAL_EBUSY) return status;
  }
  return CORRAL_EBUSY;
}

/* Errors of the store don't keep a compute back. A claim whose reply was lost may have been
 * granted: that slot ends by its lease. */
static int fleet_is_full(crl_semaphore *semaphore, crl_slot *slot) {
  return semaphore->options.fleet_most > 0 && take_slot(semaphore, slot) == CORRAL_EBUSY;
}

/* ---- public -------------------------------------------------------------------------------- */

/* When to look again for a slot of the fleet; lower ranks look less often. Until then the place in
 * this process is free for others. */
static int64_t next_look(const crl_semaphore *semaphore, crl_rank rank, unsigned looks) {
  uint64_t dice = 0;
  crl_env_random(&dice, sizeof dice);
  return crl_env_now_ms() + (crl_policy_backoff(semaphore->options.poll_ms,
                                                semaphore->options.poll_max_ms, looks, dice)
                             << rank);
}

int crl_semaphore_ask(crl_semaphore *semaphore, crl_slot *slot, crl_rank rank, unsigned needs,
                      crl_waiter *waiter, int64_t *next) {
  crl_limiter *limiter = semaphore->limiter;
  *next = INT64_MAX;
  if (slot->users > 0 || slot->place.state == CRL_PLACE_BORROWED) {
    slot->users++;
    return CORRAL_OK;
  }
  if (slot->place.state == CRL_PLACE_NONE) {
    *next = slot->next_at;
    if (crl_env_now_ms() < slot->next_at) return CORRAL_EBUSY;
    *next = INT64_MAX;
    crl_limiter_ask(limiter, &slot->place, rank, needs, waiter);
  } else if (slot->place.needs != needs) {
    crl_limiter_change(limiter, &slot->place, needs);
  }
  if (!crl_limiter_has(&slot->place)) return CORRAL_EBUSY;
  if (fleet_is_full(semaphore, slot)) {
    crl_limiter_leave(limiter, &slot->place);
    *next = slot->next_at = next_look(semaphore, rank, slot->looks++);
    return CORRAL_EBUSY;
  }
  slot->users = 1;
  return CORRAL_OK;
}

void crl_semaphore_borrow(crl_semaphore *semaphore, crl_slot *slot) {
  crl_limiter_borrow(semaphore->limiter, &slot->place);
}

static void leave_fleet(crl_semaphore *semaphore, crl_fleet_slot *slot) {
  crl_renewer_drop(semaphore->options.renewer, &slot->lease);
  corral_op op = {.verb = CORRAL_VERB_RELEASE,
                  .key = slot->key.stored,
                  .key_len = slot->key.stored_len,
                  .token = slot->token};
  crl_pool_perform(semaphore->options.pool, &op, 1, crl_env_now_ms() + semaphore->options.op_ms);
  crl_key_clean(&slot->key);
  free(slot);
}

void crl_semaphore_leave(crl_semaphore *semaphore, crl_slot *slot) {
  if (slot->users > 0 && --slot->users > 0) return;
  if (slot->fleet != NULL) leave_fleet(semaphore, slot->fleet);
  crl_limiter_leave(semaphore->limiter, &slot->place);
  crl_slot_init(slot);
}
