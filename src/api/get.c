/* get.c: the public calls that get values: of one key, or of several. */
#include "driver/block.h"
#include "api/handle.h"
#include "policy/policy.h"
#include "base/status.h"

#include <string.h>

int corral_get_or_compute(corral *c, const void *key, size_t key_len, const corral_call *user,
                          corral_compute *compute, void *arg, corral_value **ret) {
  crl_call call;
  crl_context *context;
  if (compute == NULL || ret == NULL)
    return crl_status_fail(crl_handle_error(user), CORRAL_EINVAL, "corral_get_or_compute: no %s",
                           ret == NULL ? "ret" : "compute");
  int status = crl_handle_call(c, key, key_len, user, &context, &call);
  call.compute = compute;
  call.arg = arg;
  return status == CORRAL_OK ? crl_block_call(context, &call, key, key_len, ret) : status;
}

int corral_get(corral *c, const void *key, size_t key_len, const corral_call *user,
               corral_value **ret) {
  crl_call call;
  crl_context *context;
  if (ret == NULL)
    return crl_status_fail(crl_handle_error(user), CORRAL_EINVAL, "corral_get: no ret");
  int status = crl_handle_call(c, key, key_len, user, &context, &call);
  if (status != CORRAL_OK) return status;
  crl_handle_bind(c, &call);
  return crl_block_call(context, &call, key, key_len, ret);
}

static int check_many(corral *c, const corral_item *items, size_t count, const corral_call *user,
                      crl_context **ret, crl_call *call) {
  corral_error *error = crl_handle_error(user);
  int status = crl_handle_values(c, ret, error);
  if (status == CORRAL_OK) status = crl_handle_user(user, *ret, call, NULL);
  if (status == CORRAL_OK && items == NULL && count > 0)
    status = crl_status_fail(error, CORRAL_EINVAL, "corral_get_many: no items");
  return status;
}

int corral_get_many(corral *c, corral_item *items, size_t count, const corral_call *user,
                    corral_compute_many *compute, void *arg) {
  crl_call call;
  crl_context *context;
  int status = check_many(c, items, count, user, &context, &call);
  call.compute_many = compute;
  call.arg = arg;
  for (size_t i = 0; items != NULL && i < count; i++) {
    corral_item *item = &items[i];
    memset(&item->error, 0, sizeof item->error);
    item->value = NULL;
    item->status = status == CORRAL_OK
                       ? crl_handle_check_key(item->key, item->key_len, &item->error)
                       : crl_status_plain(&item->error, status);
  }
  if (status != CORRAL_OK || count == 0) return status;
  status = crl_many_call(context, &call, items, count);
  for (size_t i = 0; status != CORRAL_OK && i < count; i++)
    items[i].status = crl_status_plain(&items[i].error, status);
  return status == CORRAL_OK ? status : crl_status_plain(crl_handle_error(user), status);
}
