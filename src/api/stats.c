/* stats.c: a snapshot of what a corral has counted. */
#include "base/status.h"
#include "context/context.h"
#include "stats/snapshot.h"

int corral_stats_read(corral *c, corral_stats **ret, corral_error *error) {
  crl_context *context;
  int status = crl_context_open(c, &context, error);
  if (status != CORRAL_OK) return status;
  if (ret == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_stats_read: no ret");
  if (!crl_context_is_home(context)) return crl_status_plain(error, CORRAL_EFORKED);
  int used = atomic_load(&context->home) != 0;
  status = crl_snapshot_take(&context->events.stats, used, ret);
  return status == CORRAL_OK ? status : crl_status_plain(error, status);
}
