/* control.c: an operator's orders: giving and reading them, and how a call obeys. */
#include <corral/control.h>

#include "api/handle.h"
#include "base/sized.h"
#include "base/status.h"
#include "control/desk.h"
#include "os/env.h"

enum { FOR_LEAST = 1000 };

/* ---- obeying ------------------------------------------------------------------------------- */

int crl_handle_ordered(crl_context *context, corral_policy *room, crl_call *call, int may_wait) {
  crl_follower_use(context->follower, may_wait);
  unsigned orders = atomic_load(&context->orders);
  if (orders & CRL_ORDERS_FREEZE) {
    call->compute = NULL;
    call->compute_many = NULL;
    call->start = NULL;
    call->frozen = 1;
  }
  if (!(orders & CRL_ORDERS_BYPASS)) return CORRAL_OK;
  if (!crl_call_computes(call))
    return crl_status_fail(call->error, CORRAL_EMISS,
                           "the cache is bypassed by an operator (corral control), and there is "
                           "nothing to compute it with");
  if (room == NULL) return CRL_HANDLE_ROOM;
  if (call->policy != room) *room = *call->policy;
  room->anew = 1; /* takes it past all copies, looks and flights */
  call->policy = room;
  call->bypasses = 1;
  return CORRAL_OK;
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
  if (status == CORRAL_OK) take_state(ret, &found.order, found.left_ms);
  return status;
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
