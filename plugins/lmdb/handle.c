/* handle.c: the files that a call of an LMDB store goes to: those that its path leads to now.
 *
 * A file that was removed, or replaced by another one, lives on in the processes that have it open,
 * as a store of their own. So writes check the path first, and reads check it each second, by the
 * clock that they read anyway. Then the new files are opened, and the old ones closed when the last
 * call on them has ended. Waiters and near copies learn of it through the old files' ring: any key
 * may have changed. */
#include "lmdb.h"

#include <stdlib.h>
#include <unistd.h>

int crl_lmdb_handle_open(const crl_lmdb_wanted *wanted, int64_t deadline, crl_lmdb_handle **ret,
                         corral_error *error) {
  crl_lmdb_handle *h = calloc(1, sizeof *h);
  if (h == NULL) return CORRAL_ENOMEM;
  h->wanted = wanted;
  h->pid = getpid();
  int status = crl_lmdb_env_take(wanted, deadline, &h->env, error);
  if (status == CORRAL_OK && crl_lmdb_door_init(&h->door) != 0) {
    crl_lmdb_env_drop(h->env);
    status = CORRAL_ENOMEM;
  }
  if (status != CORRAL_OK) {
    free(h);
    return status;
  }
  atomic_init(&h->checked, wanted->host->boot_ms());
  *ret = h;
  return CORRAL_OK;
}

void crl_lmdb_handle_close(crl_lmdb_handle *h) {
  crl_lmdb_env_drop(h->env);
  if (h->pid == getpid()) crl_lmdb_door_free(&h->door);
  free(h);
}

static crl_lmdb_env *current(crl_lmdb_handle *h) {
  crl_lmdb_door_enter(&h->door);
  crl_lmdb_env *e = h->env;
  atomic_fetch_add(&e->refs, 1);
  crl_lmdb_door_leave(&h->door);
  return e;
}

/* Takes the files that are there now, in place of `old`. */
static int renew(crl_lmdb_handle *h, crl_lmdb_env *old, int64_t deadline, crl_lmdb_env **ret,
                 corral_error *error) {
  crl_lmdb_env *e = NULL;
  int status = crl_lmdb_env_take(h->wanted, deadline, &e, error);
  if (status != CORRAL_OK) return status;
  atomic_fetch_add(&e->refs, 1);
  crl_lmdb_door_close(&h->door);
  crl_lmdb_env *left = h->env;
  h->env = e;
  crl_lmdb_door_open(&h->door);
  crl_lmdb_tell_any(old);
  if (e != old)
    crl_lmdb_leases_drop(
        &old->leases); /* the lease file may be the same, and a token be claimed again */
  if (left == old && e != old && !atomic_load(&e->has_notice))
    h->wanted->host->fail(error, CORRAL_OK,
                          "%.150s: removed or replaced: what is there now is used from here on",
                          e->path);
  crl_lmdb_env_drop(left);
  *ret = e;
  return CORRAL_OK;
}

static int is_check_due(const crl_lmdb_handle *h, int64_t now) {
  return now - atomic_load_explicit(&h->checked, memory_order_relaxed) >= CRL_LMDB_STALE_MS;
}

crl_lmdb_env *crl_lmdb_handle_glance(crl_lmdb_handle *h, int64_t now) {
  if (is_check_due(h, now)) return NULL;
  crl_lmdb_door_enter(&h->door);
  crl_lmdb_env *e = h->env;
  if (!atomic_load(&e->damaged) && !atomic_load_explicit(&e->has_notice, memory_order_relaxed))
    return e;
  crl_lmdb_door_leave(&h->door);
  return NULL;
}

int crl_lmdb_handle_enter(crl_lmdb_handle *h, int writes, int64_t now, int64_t deadline,
                          crl_lmdb_env **ret, corral_error *error) {
  crl_lmdb_env *e = current(h);
  int is_due = is_check_due(h, now), status = CORRAL_OK;
  int is_stale = ((writes || is_due) && !crl_lmdb_env_leads(e, h->wanted->path)) ||
                 (is_due && !crl_lmdb_env_whole(e)) || atomic_load(&e->damaged);
  if (is_stale) {
    crl_lmdb_env *old = e;
    status = renew(h, old, deadline, &e, error);
    crl_lmdb_env_drop(old);
  }
  if (status != CORRAL_OK) return status;
  if (is_due || is_stale) atomic_store_explicit(&h->checked, now, memory_order_relaxed);
  if (atomic_load_explicit(&e->has_notice, memory_order_relaxed) &&
      atomic_exchange(&e->has_notice, 0))
    h->wanted->host->fail(error, CORRAL_OK, "%s", e->notice);
  *ret = e;
  return CORRAL_OK;
}
