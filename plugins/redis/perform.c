/* perform.c: a batch on a handle: by one pipeline (ops.c); locks without scripts where the server
 * forbids them (lock_exec.c). */
#include "redis.h"

int crl_redis_perform(void *handle, const corral_batch *batch, int64_t deadline,
                      corral_error *error) {
  crl_redis_handle *h = handle;
  if (h->store->host->now_ms() >= deadline) {
    crl_redis_result_none_sent(h, batch, CORRAL_EUNAVAILABLE,
                               "the time allowed was over before anything was sent");
    return CORRAL_OK;
  }
  int status = crl_redis_wire_silent(&h->wire, error);
  if (status != CORRAL_OK) {
    crl_redis_result_none_sent(h, batch, CORRAL_EUNAVAILABLE,
                               "the connection was of no more use; nothing was sent");
    return status;
  }
  if (h->store->scriptless) return crl_redis_exec_perform(h, batch, deadline, error);
  h->refused_scripts = 0;
  status = crl_redis_ops_run(h, batch, deadline, error);
  return status == CORRAL_OK && h->refused_scripts
             ? crl_redis_exec_refused(h, batch, deadline, error)
             : status;
}
