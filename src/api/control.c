/* control.c: an operator's orders: giving and reading them, and how a call obeys. */
#include <corral/control.h>

#include "api/handle.h"
#include "base/sized.h"
#include "base/status.h"
#include "control/desk.h"
#include "os/env.h"

enum { FOR_LEAST = 1000 };

/* ---- obeying ------------------------------------------------------------------------------- */

/* The call's policy, to be changed. */
static corral_policy *own_policy(crl_call *call, corral_policy *room) {
  if (call->policy != room) *room = *call->policy;
  call->policy = room;
  return room;
}

static int64_t less(int64_t ms, int64_t took) { return ms > took ? ms - took : 1; }

/* Waits for a look, within the call's own time: it has so much less for the rest. */
static void await_order(crl_context *context, corral_policy *room, crl_call *call) {
  int64_t began = crl_env_now_ms();
  crl_follower_use(context->follower, began + call->policy->wait_ms, call->cancel_token);
  int64_t took = crl_env_now_ms() - began;
  if (took <= 0) return;
  corral_policy *policy = own_policy(call, room);
  policy->wait_ms = less(policy->wait_ms, took);
  if (policy->soft_ms > 0) policy->soft_ms = less(policy->soft_ms, took);
}

void crl_handle_ordered(crl_context *context, corral_policy *room, crl_call *call, int may_wait) {
  unsigned orders = atomic_load(&context->orders);
  int waits = may_wait && (orders & CRL_ORDERS_LOOK);
  if (waits)
    await_order(context, room, call);
  else
    crl_follower_use(context->follower, 0, NULL);
  orders = atomic_load(&context->orders);
  if (orders & CRL_ORDERS_FREEZE) {
    call->compute = NULL;
    call->compute_many = NULL;
    call->start = NULL;
    call->lasts = 0;
    call->frozen = 1;
  }
  if (!(orders & CRL_ORDERS_BYPASS)) return;
  own_policy(call, room)->anew = 1; /* takes it past all copies, looks and flights */
  call->bypasses = 1;
}

/* ---- giving, reading ----------------------------------------------------------------------- */

static int check_order(corral_control verb, int64_t number, int64_t for_ms, corral_error *error) {
  int is_limit = verb == CORRAL_CONTROL_LIMIT;
  if ((unsigned)verb >= CORRAL_CONTROL_COUNT)
    return crl_status_fail(error, CORRAL_EINVAL, "control: %d is no verb", (int)verb);
  if (is_limit && (number < 1 || number > CORRAL_CONTROL_NUMBER_MOST))
    return crl_status_fail(error, CORRAL_EINVAL, "control: limit %lld; accepted: 1 to %d",
                           (long long)number, CORRAL_CONTROL_NUMBER_MOST);
  if (!is_limit && number != 0)
    return crl_status_fail(error, CORRAL_EINVAL, "control: %s takes no number",
                           corral_control_name(verb));
  if (for_ms < FOR_LEAST || for_ms > CORRAL_CONTROL_FOR_MOST)
    return crl_status_fail(error, CORRAL_EINVAL, "control: for %lld ms; accepted: %d to %d",
                           (long long)for_ms, FOR_LEAST, CORRAL_CONTROL_FOR_MOST);
  return CORRAL_OK;
}

int corral_control_set(corral *c, corral_control verb, int64_t number, int64_t for_ms,
                       corral_error *error) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  crl_context *context;
  if (for_ms == 0 || verb == CORRAL_CONTROL_NORMAL) for_ms = CORRAL_CONTROL_FOR_MS;
  int status = crl_handle_values(c, &context, error);
  if (status == CORRAL_OK) status = check_order(verb, number, for_ms, error);
  if (status != CORRAL_OK) return status;
  status = crl_desk_give(context, verb, number, for_ms, error);
  if (context->follower != NULL) crl_follower_changed(context->follower, 0);
  return status;
}

static int check_state(const corral_control_state *ret, const char *name, corral_error *error) {
  if (ret != NULL && ret->size >= sizeof ret->size) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EINVAL, "%s: no ret, or no ret->size", name);
}

static void take_state(corral_control_state *ret, const crl_order *order, int64_t left_ms) {
  corral_control_state state = {.size = sizeof state, .verb = order->verb};
  if (order->verb != CORRAL_CONTROL_NORMAL) {
    state.number = order->number;
    state.left_ms = left_ms;
  }
  crl_sized_write(ret, &state, sizeof state);
}

int corral_control_read(corral *c, corral_control_state *ret, corral_error *error) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  crl_context *context;
  crl_key key;
  crl_desk_found found;
  int status = check_state(ret, "corral_control_read", error);
  if (status == CORRAL_OK) status = crl_handle_values(c, &context, error);
  if (status == CORRAL_OK && crl_desk_key(context, &key) != CORRAL_OK)
    status = crl_status_plain(error, CORRAL_ENOMEM);
  if (status != CORRAL_OK) return status;
  status = crl_desk_look(context, &key, crl_env_now_ms() + context->op_ms, &found, error);
  crl_key_clean(&key);
  if (status != CORRAL_OK) return status;
  if (context->follower != NULL) crl_follower_take(context->follower, &found);
  take_state(ret, &found.order, found.left_ms);
  return CORRAL_OK;
}

int corral_control_followed(const corral *c, corral_control_state *ret) {
  const crl_context *context = (const crl_context *)(const void *)c;
  crl_order order = {.verb = CORRAL_CONTROL_NORMAL};
  int64_t left_ms = 0;
  if (context == NULL || check_state(ret, "", NULL) != CORRAL_OK) return CORRAL_EINVAL;
  if (context->follower != NULL) order = crl_follower_order(context->follower, &left_ms);
  take_state(ret, &order, left_ms);
  return CORRAL_OK;
}
