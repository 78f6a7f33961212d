/* get.c: the public calls that get values: of one key, or of several. */
#include "driver/block.h"
#include "driver/verify.h"
#include "api/handle.h"
#include "policy/policy.h"
#include "base/status.h"

#include <string.h>

/* A call of one key; `compute` NULL: the bound one. A part of its callers, which are the public
 * functions: most of what they are given stays in registers. */
static inline __attribute__((always_inline)) int get_in(corral *c, const void *key, size_t key_len,
                                                        const corral_call *user,
                                                        corral_compute *compute, void *arg,
                                                        corral_value **ret, corral_policy *room) {
  crl_call call;
  crl_context *context;
  int status = crl_handle_call(c, key, key_len, user, room, &context, &call);
  if (status != CORRAL_OK) return status;
  call.compute = compute;
  call.arg = arg;
  if (compute == NULL) crl_handle_bind(c, &call);
  if (room != NULL) crl_handle_obey(context, room, &call, 1);
  crl_run_count(context, &call, key, key_len);
  status = crl_block_call(context, &call, key, key_len, ret);
  if (compute == NULL && status == CORRAL_OK) crl_verify_served(context, &call, key, key_len, *ret);
  return status;
}

/* A function of its own: a call whose policy the corral keeps has no room for it on its stack. */
static __attribute__((noinline)) int get_with_room(corral *c, const void *key, size_t key_len,
                                                   const corral_call *user, corral_compute *compute,
                                                   void *arg, corral_value **ret) {
  corral_policy room;
  return get_in(c, key, key_len, user, compute, arg, ret, &room);
}

static inline __attribute__((always_inline)) int get(corral *c, const void *key, size_t key_len,
                                                     const corral_call *user,
                                                     corral_compute *compute, void *arg,
                                                     corral_value **ret) {
  int status = get_in(c, key, key_len, user, compute, arg, ret, NULL);
  return status == CRL_HANDLE_ROOM ? get_with_room(c, key, key_len, user, compute, arg, ret)
                                   : status;
}

int corral_get_or_compute(corral *c, const void *key, size_t key_len, const corral_call *user,
                          corral_compute *compute, void *arg, corral_value **ret) {
  if (compute == NULL || ret == NULL)
    return crl_status_fail(crl_handle_error(user), CORRAL_EINVAL, "corral_get_or_compute: no %s",
                           ret == NULL ? "ret" : "compute");
  return get(c, key, key_len, user, compute, arg, ret);
}

int corral_get(corral *c, const void *key, size_t key_len, const corral_call *user,
               corral_value **ret) {
  if (ret == NULL)
    return crl_status_fail(crl_handle_error(user), CORRAL_EINVAL, "corral_get: no ret");
  return get(c, key, key_len, user, NULL, NULL, ret);
}

static int check_many(corral *c, const corral_item *items, size_t count, const corral_call *user,
                      corral_policy *room, crl_context **ret, crl_call *call) {
  corral_error *error = crl_handle_error(user);
  int status = crl_handle_values(c, ret, error);
  if (status == CORRAL_OK) status = crl_handle_user(user, *ret, room, call, NULL);
  if (status == CORRAL_OK && items == NULL && count > 0)
    status = crl_status_fail(error, CORRAL_EINVAL, "corral_get_many: no items");
  return status;
}

int corral_get_many(corral *c, corral_item *items, size_t count, const corral_call *user,
                    corral_compute_many *compute, void *arg) {
  crl_call call;
  corral_policy room;
  crl_context *context;
  int status = check_many(c, items, count, user, &room, &context, &call);
  call.compute_many = compute;
  call.arg = arg;
  if (status == CORRAL_OK) crl_handle_obey(context, &room, &call, 1);
  for (size_t i = 0; items != NULL && i < count; i++) {
    corral_item *item = &items[i];
    memset(&item->error, 0, sizeof item->error);
    item->value = NULL;
    item->status = crl_handle_check_key(item->key, item->key_len, &item->error);
    if (status != CORRAL_OK) item->status = crl_status_plain(&item->error, status);
  }
  if (status != CORRAL_OK || count == 0) return status;
  status = crl_many_call(context, &call, items, count);
  for (size_t i = 0; status != CORRAL_OK && i < count; i++)
    items[i].status = crl_status_plain(&items[i].error, status);
  return status == CORRAL_OK ? status : crl_status_plain(crl_handle_error(user), status);
}
