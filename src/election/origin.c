/* origin.c: limits the computes that burden one origin: so many at once in this process, and so
 * many in the whole fleet. */
#include "election/origin.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "os/env.h"
#include "policy/policy.h"
#include "store/put.h"
#include "base/value.h"

enum { FLEET_MOST = 256 };

struct crl_origin {
  crl_origin_options options;
  crl_gate *gate;
  _Atomic unsigned last; /* the slot of the fleet held last: probably free again */
  char name[];
};

crl_origin *crl_origin_new(const crl_origin_options *options) {
  size_t len = strlen(options->name);
  crl_origin *origin = crl_alloc(sizeof *origin + len + 1);
  if (origin == NULL) return NULL;
  origin->options = *options;
  memcpy(origin->name, options->name, len);
  origin->options.name = origin->name;
  if (origin->options.fleet_most > FLEET_MOST) origin->options.fleet_most = FLEET_MOST;
  int64_t most = options->most, fleet = options->fleet_most;
  if (fleet > 0 && (most <= 0 || most > fleet)) most = fleet;
  if (most > 0 && (origin->gate = crl_gate_new(most)) == NULL) {
    free(origin);
    return NULL;
  }
  crl_env_random(&most, sizeof most);
  atomic_init(&origin->last, (unsigned)most);
  return origin;
}

void crl_origin_free(crl_origin *origin) {
  if (origin->gate != NULL) crl_gate_free(origin->gate);
  free(origin);
}

int crl_origin_limits(const crl_origin *origin) { return origin->gate != NULL; }

/* ---- the fleet's slots --------------------------------------------------------------------- */

/* On CORRAL_OK *key is to be given to crl_key_clean. The key is in no namespace: all corrals that
 * name the origin share its slots. */
static int make_key(const crl_origin *origin, unsigned number, crl_key *key) {
  crl_key_space none = {.max_key = crl_pool_info(origin->options.pool)->max_key};
  char text[16];
  crl_name name = {.key = origin->name, .key_len = strlen(origin->name), .variant = text};
  name.variant_len = (size_t)snprintf(text, sizeof text, "%u", number);
  return crl_key_make(key, CRL_KEY_SLOT, &none, &name);
}

/* A lost slot: this process was away for longer than the lease, and the slot has another holder.
 * The compute goes on. */
static void ignore(crl_kept_lease *lease) { (void)lease; }

static int claim_key(crl_origin *origin, crl_slot *slot) {
  uint8_t wish[CORRAL_FRONT];
  size_t wish_len = crl_put_wish(crl_key_digest(&slot->key), 0, wish);
  if (crl_env_random(slot->token, sizeof slot->token) != CORRAL_OK) return CORRAL_EIO;
  corral_op op = {.verb = CORRAL_VERB_CLAIM,
                  .key = slot->key.stored,
                  .key_len = slot->key.stored_len,
                  .token = slot->token,
                  .lease_ms = origin->options.lease_ms,
                  .record = wish,
                  .record_len = wish_len};
  int64_t sent = crl_env_now_ms();
  crl_pool_perform(origin->options.pool, &op, 1, sent + origin->options.op_ms);
  if (op.found_free != NULL) op.found_free(op.found_owner);
  if (op.status != CORRAL_OK) return op.status;
  slot->fleet = 1;
  slot->lease = (crl_kept_lease){.key = op.key,
                                 .key_len = op.key_len,
                                 .user_key = op.key,
                                 .user_key_len = op.key_len,
                                 .token = slot->token,
                                 .lease_ms = origin->options.lease_ms,
                                 .limit = INT64_MAX,
                                 .on_lost = ignore,
                                 .on_limit = ignore};
  crl_keeper_hold(origin->options.keeper, &slot->lease, sent);
  return CORRAL_OK;
}

static int claim(crl_origin *origin, unsigned number, crl_slot *slot) {
  int status = make_key(origin, number, &slot->key);
  if (status == CORRAL_OK) status = claim_key(origin, slot);
  if (status == CORRAL_OK)
    atomic_store(&origin->last, number);
  else
    crl_key_clean(&slot->key);
  return status;
}

/* Writes the numbers of the slots that look free; returns how many, or a negative status. One round
 * trip where the store has batches. */
static int list_free(crl_origin *origin, unsigned *numbers) {
  unsigned most = (unsigned)origin->options.fleet_most;
  corral_op *ops = crl_alloc(most * sizeof *ops);
  crl_key *keys = crl_alloc(most * sizeof *keys);
  int count = 0, answers = 0, status = ops == NULL || keys == NULL ? CORRAL_ENOMEM : CORRAL_OK;
  for (unsigned i = 0; status == CORRAL_OK && i < most; i++) {
    status = make_key(origin, i, &keys[i]);
    ops[i] =
        (corral_op){.verb = CORRAL_VERB_GET, .key = keys[i].stored, .key_len = keys[i].stored_len};
  }
  int asked = status == CORRAL_OK;
  if (asked)
    crl_pool_perform(origin->options.pool, ops, most, crl_env_now_ms() + origin->options.op_ms);
  for (unsigned i = 0; asked && i < most; i++) {
    status = ops[i].status;
    if (status == CORRAL_OK || status == CORRAL_EMISS) answers++;
    if (status == CORRAL_EMISS || (status == CORRAL_OK && ops[i].until_ms == 0))
      numbers[count++] = i;
    if (ops[i].found_free != NULL) ops[i].found_free(ops[i].found_owner);
  }
  for (unsigned i = 0; keys != NULL && i < most; i++) crl_key_clean(&keys[i]);
  free(ops);
  free(keys);
  return answers > 0 ? count : status;
}

/* CORRAL_OK, CORRAL_EBUSY, or an error of the store. */
static int take_slot(crl_origin *origin, crl_slot *slot) {
  unsigned numbers[FLEET_MOST], most = (unsigned)origin->options.fleet_most, dice = 0;
  int status = claim(origin, atomic_load(&origin->last) % most, slot);
  if (status != CORRAL_EBUSY || most == 1) return status;
  int count = list_free(origin, numbers);
  if (count < 0) return count;
  crl_env_random(&dice, sizeof dice);
  for (int i = 0; i < count; i++) {
    status = claim(origin, numbers[((unsigned)i + dice) % (unsigned)count], slot);
    if (status != CORRAL_EBUSY) return status;
  }
  return CORRAL_EBUSY;
}

/* Errors of the store don't keep a compute back. A claim whose reply was lost may have been
 * granted: that slot ends by its lease. */
static int enter_fleet(crl_origin *origin, crl_slot *slot) {
  return origin->options.fleet_most > 0 && take_slot(origin, slot) == CORRAL_EBUSY ? CORRAL_EBUSY
                                                                                   : CORRAL_OK;
}

/* ---- public -------------------------------------------------------------------------------- */

/* When to look again for a slot of the fleet; lower ranks look less often. Until then the slot in
 * this process is free for others. */
static int64_t next_look(const crl_origin *origin, crl_rank rank, unsigned looks) {
  uint64_t dice = 0;
  crl_env_random(&dice, sizeof dice);
  return crl_env_now_ms() +
         (crl_policy_backoff(origin->options.poll_ms, origin->options.poll_max_ms, looks, dice)
          << rank);
}

static void sleep_until(int64_t until, corral_ticket *ticket) {
  crl_nap nap;
  crl_leaver leaver;
  crl_nap_init(&nap);
  crl_ticket_join_nap(ticket, &leaver, &nap);
  if (!crl_ticket_cancelled(ticket)) crl_nap_until(&nap, until);
  crl_ticket_leave(ticket, &leaver);
  crl_nap_clean(&nap);
}

int crl_origin_enter(crl_origin *origin, crl_rank rank, int64_t until, corral_ticket *ticket,
                     crl_slot *slot, int *waited) {
  slot->fleet = 0;
  *waited = !crl_gate_enter(origin->gate, rank, 0, NULL);
  if (*waited && !crl_gate_enter(origin->gate, rank, until, ticket)) return CORRAL_EBUSY;
  for (unsigned looks = 0; enter_fleet(origin, slot) != CORRAL_OK; looks++) {
    crl_gate_leave(origin->gate);
    *waited = 1;
    int64_t next = next_look(origin, rank, looks);
    if (crl_env_now_ms() >= until || crl_ticket_cancelled(ticket)) return CORRAL_EBUSY;
    sleep_until(next < until ? next : until, ticket);
    if (!crl_gate_enter(origin->gate, rank, until, ticket)) return CORRAL_EBUSY;
  }
  return CORRAL_OK;
}

void crl_origin_leave(crl_origin *origin, crl_slot *slot) {
  if (slot->fleet) {
    crl_keeper_drop(origin->options.keeper, &slot->lease);
    corral_op op = {.verb = CORRAL_VERB_RELEASE,
                    .key = slot->key.stored,
                    .key_len = slot->key.stored_len,
                    .token = slot->token};
    crl_pool_perform(origin->options.pool, &op, 1, crl_env_now_ms() + origin->options.op_ms);
    crl_key_clean(&slot->key);
  }
  crl_gate_leave(origin->gate);
}
