/* refresh.c: when a store is asked anew which server has which keys. */
#include "store/refresh.h"

int crl_refresh_want(crl_refresh *refresh, int64_t now, int64_t *ret_at) {
  if (atomic_load_explicit(&refresh->wanted, memory_order_relaxed)) return 0;
  atomic_store(&refresh->wished, now);
  if (atomic_exchange(&refresh->wanted, 1)) return 0;
  int64_t next = atomic_load(&refresh->next);
  *ret_at = next > now ? next : now;
  return 1;
}

int crl_refresh_begin(crl_refresh *refresh, int64_t now) {
  if (now < crl_refresh_at(refresh)) return 0;
  refresh->alone = atomic_exchange(&refresh->wanted, 0) ? 0 : refresh->alone + 1;
  return 1;
}

/* A pause is up to half as long again, so that the processes of a fleet don't ask together. */
static int64_t stretch(int64_t pause_ms, uint64_t dice) {
  return pause_ms + (int64_t)(dice % (uint64_t)(pause_ms / 2));
}

void crl_refresh_end(crl_refresh *refresh, int64_t now, int changed, uint64_t dice) {
  int64_t pause = 2 * refresh->pause_ms, alone = CRL_REFRESH_ALONE_MS << refresh->alone;
  if (changed || pause < CRL_REFRESH_LEAST_MS) pause = CRL_REFRESH_LEAST_MS;
  refresh->pause_ms = pause < CRL_REFRESH_MOST_MS ? pause : CRL_REFRESH_MOST_MS;
  atomic_store(&refresh->next, now + stretch(refresh->pause_ms, dice));
  if (alone > CRL_REFRESH_ALONE_MOST_MS) alone = CRL_REFRESH_ALONE_MOST_MS;
  int is_over = changed || refresh->alone >= CRL_REFRESH_ALONE;
  refresh->again = is_over ? 0 : now + stretch(alone, dice);
}

int64_t crl_refresh_at(const crl_refresh *refresh) {
  crl_refresh *r = (crl_refresh *)(uintptr_t)refresh;
  int64_t next = atomic_load(&r->next);
  if (atomic_load(&r->wanted)) return next;
  if (r->again == 0) return INT64_MAX;
  return r->again > next ? r->again : next;
}

int64_t crl_refresh_since(const crl_refresh *refresh) {
  crl_refresh *r = (crl_refresh *)(uintptr_t)refresh;
  return atomic_load(&r->wanted) ? atomic_load(&r->wished) : r->again;
}
