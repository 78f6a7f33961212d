/* run.c: the life of a run: making, stepping, freeing it; its caller; and computes asked for from
 * within computes. */
#include "run/run.h"

#include <stdlib.h>

#include "os/env.h"

/* The innermost compute of this thread. */
static _Thread_local const crl_computing *computing;

void crl_run_emit(crl_run *r, corral_event event, const char *detail) {
  crl_event_emit(&r->context->events, event, r->key.user, r->key.user_len, detail);
}

static corral_event_info info_of(const crl_run *r, corral_event event, const crl_run_fact *fact) {
  corral_event_info info = crl_event_info(event, r->key.user, r->key.user_len);
  info.status = fact->status;
  info.duration_us = fact->duration_us;
  info.bytes = fact->bytes;
  info.detail = fact->detail;
  return info;
}

void crl_run_tell(crl_run *r, corral_event event, const crl_run_fact *fact) {
  if (r->context->events.hook == NULL) {
    crl_run_emit(r, event, NULL);
    return;
  }
  corral_event_info info = info_of(r, event, fact);
  crl_event_tell(&r->context->events, &info);
}

void crl_run_tell_op(crl_run *r, corral_event event, const crl_run_fact *fact) {
  if (r->context->events.hook == NULL) {
    crl_run_emit(r, event, NULL);
    return;
  }
  corral_event_info info = info_of(r, event, fact);
  info.server = (int)crl_pool_route(r->context->pool, r->key.stored, r->key.stored_len);
  crl_event_tell(&r->context->events, &info);
}

void crl_run_tell_deadline(crl_context *context, const crl_call *call, int64_t deadline) {
  corral_event_info info = crl_event_info(CORRAL_EVENT_DEADLINE, call->key, call->key_len);
  info.status = CORRAL_EDEADLINE;
  info.duration_us = (crl_env_now_ms() - deadline + call->policy.wait_ms) * 1000;
  crl_event_tell(&context->events, &info);
}

/* ---- nested computes ----------------------------------------------------------------------- */

const crl_computing *crl_run_inside(const crl_computing *inner) {
  const crl_computing *outer = computing;
  computing = inner;
  return outer;
}

/* A hash of the key in this context. */
static uint64_t self_of(const crl_context *context, const crl_name *name) {
  return crl_name_hash(name) ^ (uint64_t)(uintptr_t)context;
}

/* Copies the chain of computes that this run was asked for from, which is needed on a worker, and
 * after the caller has left. Runs that compute together have the same ancestors. 0 without
 * memory. */
static int descend(crl_run *r, const crl_name *name) {
  r->self = self_of(r->context, name);
  if (computing == NULL) return 1;
  const crl_run *first = computing->runs[0];
  r->ancestors = crl_alloc((computing->count + first->depth) * sizeof *r->ancestors);
  if (r->ancestors == NULL) return 0;
  for (size_t i = 0; i < computing->count; i++) r->ancestors[r->depth++] = computing->runs[i]->self;
  for (size_t i = 0; i < first->depth; i++) r->ancestors[r->depth++] = first->ancestors[i];
  return 1;
}

int crl_run_recurses(const crl_context *context, const crl_call *call) {
  int found = 0;
  if (computing == NULL) return 0;
  const crl_run *first = computing->runs[0];
  crl_name name = crl_call_name(call);
  uint64_t self = self_of(context, &name);
  for (size_t i = 0; i < computing->count; i++) found |= computing->runs[i]->self == self;
  for (size_t i = 0; i < first->depth; i++) found |= first->ancestors[i] == self;
  return found;
}

/* ---- the caller ---------------------------------------------------------------------------- */

void crl_run_stop(void *arg) {
  crl_run *r = arg;
  atomic_store(&r->fill.stop, 1);
}

/* The cancel token was cancelled: ends the waiter, and also a compute inside of the call, if
 * stop_alone is set and no other caller waits for it. */
static void on_leave(void *arg) {
  crl_run *r = arg;
  crl_waiter_wake(r->waiter);
  if (!atomic_load(&r->inside) || r->policy.stop_alone <= 0) return;
  if (r->entry == NULL)
    crl_run_stop(r);
  else
    crl_herd_if_alone(r->entry, crl_run_stop, r);
}

void crl_run_make_waiter(crl_run *r) {
  if (r->waiter != NULL) return;
  crl_waiter_init(&r->own_waiter);
  r->waiter = &r->own_waiter;
}

void crl_run_meet_caller(crl_run *r, corral_cancel_token *cancel_token) {
  if (cancel_token == NULL) return;
  crl_run_make_waiter(r);
  r->cancel_token = cancel_token;
  crl_cancel_join(cancel_token, &r->canceller, on_leave, r);
}

void crl_run_forget_caller(crl_run *r) {
  crl_cancel_leave(r->cancel_token, &r->canceller);
  r->cancel_token = NULL;
}

crl_patience crl_run_patience(const crl_call *call, int64_t deadline) {
  int64_t soft = call->policy.soft_ms;
  return (crl_patience){.deadline = deadline,
                        .soft_until = soft > 0 ? deadline - call->policy.wait_ms + soft : 0,
                        .cancel_token = call->cancel_token};
}

crl_turn crl_run_turn(crl_context *context, const crl_call *call, crl_wait came,
                      const crl_patience *patience, crl_outcome *outcome) {
  switch (came) {
    case CRL_WAIT_LANDED:
      if (outcome->how == CORRAL_COMPUTED && !patience->owns) outcome->how = CORRAL_JOINED;
      return CRL_TURN_ENDED;
    case CRL_WAIT_PASS: return CRL_TURN_ALONE;
    case CRL_WAIT_LEFT: *outcome = crl_outcome_plain(CORRAL_ECANCELLED); return CRL_TURN_ENDED;
    case CRL_WAIT_GIVEN_UP:
      if (crl_env_now_ms() < patience->deadline) return CRL_TURN_ENTER;
      break;
    case CRL_WAIT_DEADLINE: break;
  }
  if (call->policy.at_deadline == CORRAL_DEADLINE_COMPUTE) return CRL_TURN_ALONE_HERE;
  crl_run_tell_deadline(context, call, patience->deadline);
  *outcome = crl_outcome_plain(CORRAL_EDEADLINE);
  return CRL_TURN_ENDED;
}

/* ---- from new to free ---------------------------------------------------------------------- */

static crl_ask start(crl_run *r, const crl_call *call, int64_t deadline, crl_alone alone) {
  crl_context *context = r->context;
  /* A compute within another one has the outer one's slot: waiting for a second could be waiting
   * for itself. */
  crl_flight_plan plan = {.deadline = deadline,
                          .can_compute = crl_call_computes(call) != 0,
                          .background = call->bound != 0,
                          .limited = crl_semaphore_limits(context->origin) && computing == NULL,
                          .ladder = context->hostlock != NULL,
                          .early = call->early != 0,
                          .alone = (uint8_t)alone,
                          .soft_until = crl_run_patience(call, deadline).soft_until};
  plan.dice =
      atomic_fetch_add_explicit(&context->dice, UINT64_C(0xd1342543de82ef95), memory_order_relaxed);
  return crl_flight_start(&r->flight, &r->policy, &plan);
}

static crl_run *allocate(void) {
  crl_run *r = crl_alloc_more(NULL, sizeof *r);
  if (r == NULL) return NULL;
  memset(r, 0, offsetof(crl_run, policy));
  r->error.text[0] = '\0';
  r->answer.bytes = NULL;
  return r;
}

crl_run *crl_run_new(crl_context *context, const crl_call *call, int64_t deadline,
                     crl_alone alone) {
  crl_name name = crl_call_name(call);
  crl_run *r = allocate();
  if (r == NULL) return NULL;
  r->context = context;
  if (crl_key_make(&r->key, CRL_KEY_VALUE, &context->space, &name) != CORRAL_OK ||
      !descend(r, &name)) {
    crl_run_free(r);
    return NULL;
  }
  r->hash = crl_key_hash(&r->key);
  atomic_init(&r->hold, -1);
  r->policy = call->policy;
  int64_t advised = crl_pool_info(context->pool)->poll_max_ms;
  if (advised > 0 && advised < r->policy.poll_max_ms) r->policy.poll_max_ms = advised;
  r->compute = call->compute;
  r->start = call->start;
  r->arg = call->arg;
  r->bound = call->bound;
  r->cancel = call->cancel;
  r->fill.key = r->key.whole;
  r->fill.key_len = r->key.whole_len;
  r->fill.prefix_len = (size_t)(r->key.user - r->key.whole);
  r->fill.variant = r->key.variant;
  r->fill.variant_len = r->key.variant_len;
  r->fill.digest = crl_key_digest(&r->key);
  r->fill.max_value = context->max_value;
  r->lease_ms = r->policy.lease_ms;
  r->ask = start(r, call, deadline, alone);
  return r;
}

void crl_run_part(crl_run *r) {
  crl_run_drop_lease(r);
  crl_run_forget_caller(r);
  if (r->watches) crl_watch_leave(r->context->watch, &r->watcher);
  r->watches = 0;
  if (r->entry != NULL) crl_entry_unref(r->entry);
  r->entry = NULL;
}

void crl_run_abandon(crl_run *r) {
  crl_told unused;
  if (r->flight.leased) {
    r->flight.retry_ms = 0;
    r->ask = CRL_ASK_RELEASE;
    crl_run_perform(r, &unused);
    r->flight.leased = 0;
  }
  r->flight.has_slot = r->flight.on_host = 0;
  crl_run_let_go(r);
  if (r->entry != NULL) crl_herd_give_up(r->entry);
}

void crl_run_free(crl_run *r) {
  crl_run_part(r);
  if (r->waiter == &r->own_waiter) crl_waiter_clean(&r->own_waiter);
  crl_bytes_unref(r->found);
  crl_bytes_unref(r->plain);
  crl_product_clean(&r->product);
  crl_tag_versions_clean(&r->tag_versions);
  free(r->tags);
  free(r->ancestors);
  crl_bytes_unref(r->answer.bytes);
  crl_fill_clean(&r->fill);
  crl_key_clean(&r->key);
  free(r);
}

/* ---- the host's lock, the slot ------------------------------------------------------------- */

void crl_run_take_host(crl_run *r, crl_told *told) {
  int hold = -1;
  told->status =
      crl_hostlock_take(r->context->hostlock, r->key.whole, r->key.whole_len, &hold, &r->error);
  if (told->status == CORRAL_OK)
    atomic_store(&r->hold, hold);
  else if (told->status != CORRAL_EBUSY)
    crl_run_emit(r, CORRAL_EVENT_HOST_ERROR, r->error.text);
}

void crl_run_give_host(crl_run *r) {
  int hold = atomic_exchange(&r->hold, -1);
  if (hold < 0) return;
  if (r->noted)
    crl_hostlock_erase(r->context->hostlock, hold, r->key.whole, r->key.whole_len, r->token);
  crl_hostlock_give(hold);
}

void crl_run_note_token(crl_run *r) {
  int hold = atomic_load(&r->hold);
  if (hold < 0) return;
  crl_hostlock_note(r->context->hostlock, hold, r->key.whole, r->key.whole_len, r->token,
                    r->has_over ? r->over : NULL);
  r->noted = 1;
}

int crl_run_finds_dead(crl_run *r) {
  int hold = atomic_load(&r->hold);
  r->has_over = hold >= 0 && crl_hostlock_noted(r->context->hostlock, hold, r->key.whole,
                                                r->key.whole_len, r->header.token);
  if (r->has_over) memcpy(r->over, r->header.token, CORRAL_TOKEN);
  return r->has_over;
}

void crl_run_let_go(crl_run *r) {
  if (r->has_slot && !r->flight.has_slot) {
    crl_semaphore_leave(r->context->origin, &r->slot);
    r->has_slot = 0;
  }
  if (!r->flight.on_host) crl_run_give_host(r);
}

/* ---- under way ----------------------------------------------------------------------------- */

void crl_run_step(crl_run *r, crl_told *told) {
  int computed = r->ask == CRL_ASK_COMPUTE;
  if (r->ask == CRL_ASK_GET || r->ask == CRL_ASK_CLAIM) r->last = told->look;
  told->now = crl_env_now_ms();
  told->left = (uint8_t)(crl_cancelled(r->cancel_token) || atomic_load(&r->left));
  r->ask = crl_flight_step(&r->flight, told);
  if (computed && told->made == CRL_MADE_FAILURE && r->flight.degraded) crl_run_keep_verdict(r);
  crl_run_let_go(r);
}

int crl_run_begin_wait(crl_run *r) {
  if (r->flight.looks == 1)
    crl_run_emit(r, r->flight.at_host ? CORRAL_EVENT_HOST_WAIT : CORRAL_EVENT_WAIT, NULL);
  if (r->flight.at_host) return 0;
  crl_run_make_waiter(r);
  if (r->watches || r->context->watch == NULL) return 0;
  int up = crl_watch_up(r->context->watch);
  crl_watch_join(r->context->watch, &r->watcher, r->hash, r->waiter);
  r->watches = 1;
  return up;
}
