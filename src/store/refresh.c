/* refresh.c: when a store is asked anew which server has which keys. */
#include "store/refresh.h"

int crl_refresh_want(crl_refresh *refresh, int64_t now, int64_t *ret_at) {
  if (atomic_load_explicit(&refresh->wanted, memory_order_relaxed)) return 0;
  if (atomic_exchange(&refresh->wanted, 1)) return 0;
  int64_t next = atomic_load(&refresh->next);
  *ret_at = next > now ? next : now;
  return 1;
}

int crl_refresh_begin(crl_refresh *refresh, int64_t now) {
  if (!atomic_load(&refresh->wanted) || now < atomic_load(&refresh->next)) return 0;
  atomic_store(&refresh->wanted, 0);
  return 1;
}

/* Up to half as much again, so that the processes of a fleet don't ask together. */
void crl_refresh_end(crl_refresh *refresh, int64_t now, int changed, uint64_t dice) {
  int64_t pause = 2 * refresh->pause_ms;
  if (changed || pause < CRL_REFRESH_LEAST_MS) pause = CRL_REFRESH_LEAST_MS;
  refresh->pause_ms = pause < CRL_REFRESH_MOST_MS ? pause : CRL_REFRESH_MOST_MS;
  atomic_store(&refresh->next,
               now + refresh->pause_ms + (int64_t)(dice % (uint64_t)(refresh->pause_ms / 2)));
}

int64_t crl_refresh_at(const crl_refresh *refresh) {
  crl_refresh *r = (crl_refresh *)(uintptr_t)refresh;
  return atomic_load(&r->wanted) ? atomic_load(&r->next) : INT64_MAX;
}
