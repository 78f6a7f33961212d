/* watching.c: tells each change of a lock's holders, to who watches it. */
#include <stdlib.h>

#include "locks/lock.h"

#include "os/env.h"
#include "store/put.h"
#include "base/status.h"
#include "base/value.h"

enum {
  POLL_MS = 250, /* longest pause between two looks */
  NAP_MS = 1000  /* the same where the next change is told: a watch may break unnoticed */
};

typedef struct watching {
  crl_context *context;
  crl_hold *at;                /* has the lock's key; never held */
  corral_lock_holder *holders; /* room for CORRAL_LOCK_HOLDS */
  size_t count;
  uint64_t seen; /* print of the holders that were told; has_seen 0: none were */
  int has_seen;
  crl_waiter waiter;
  crl_canceller canceller;
  crl_watcher watcher;
  int watches;    /* the watcher is joined */
  int told;       /* the store will tell the next change after the last look */
  int64_t end_ms; /* until the first of the holds ends, unless it is extended; -1: unknown */
} watching;

static int64_t first_end(const watching *w) {
  int64_t end = -1;
  for (size_t i = 0; i < w->count; i++) {
    int64_t left = w->holders[i].left_ms;
    if (left >= 0 && (end < 0 || left < end)) end = left;
  }
  return end;
}

/* Joins the store's watch, if there is one, before a look. */
static void join(watching *w) {
  crl_watch *watch = w->context->watch;
  if (w->watches || watch == NULL || !crl_watch_up(watch)) return;
  crl_watch_join(watch, &w->watcher, w->at->entry.hash, &w->waiter);
  w->watches = 1;
}

/* Has the key registered, where the watch needs that: only then each change is told. */
static int is_registered(watching *w, const corral_op *op) {
  crl_watch_key key = {.data = op->key, .len = op->key_len, .hash = w->at->entry.hash};
  return w->watches && crl_watch_is_up(w->context->watch) &&
         crl_watch_registers(w->context->watch) &&
         crl_watch_register(w->context->watch, &w->watcher, &key,
                            crl_watch_print(op->found.record, op->found.len));
}

/* Looks at the lock; a status of the store that isn't away for long is CORRAL_OK. */
static int look(watching *w, int *is_new, corral_error *error) {
  corral_error detail;
  join(w);
  corral_op op = crl_lock_op(w->at, CORRAL_VERB_LOCK_SHOW, &detail);
  crl_pool_perform(w->context->pool, &op, 1, crl_env_now_ms() + w->context->op_ms);
  int is_known = op.status == CORRAL_OK || op.status == CORRAL_EMISS,
      is_away = op.status == CORRAL_EUNAVAILABLE || op.status == CORRAL_EINDOUBT;
  *is_new = 0;
  w->told = 0;
  w->end_ms = -1;
  if (is_known) {
    w->told = is_registered(w, &op);
    w->count = crl_lock_holders(&op, w->context, w->at->entry.hash, w->holders, CORRAL_LOCK_HOLDS);
    if (w->count > CORRAL_LOCK_HOLDS) w->count = CORRAL_LOCK_HOLDS;
    w->end_ms = first_end(w);
    uint64_t print = crl_lock_print(&op);
    *is_new = !w->has_seen || print != w->seen;
    w->seen = print;
    w->has_seen = 1;
  }
  int status = is_known || (is_away && w->has_seen) ? CORRAL_OK : crl_put_say(&op, error);
  crl_lock_op_drop(&op);
  return status;
}

static void sleep_on(watching *w) {
  int64_t ms = w->told ? NAP_MS : POLL_MS;
  if (w->end_ms >= 0 && w->end_ms < ms) ms = w->end_ms + 1;
  crl_waiter_sleep(&w->waiter, crl_env_now_ms() + ms);
}

static int go_on(watching *w, corral_cancel_token *cancel_token, corral_lock_tell_fn *to, void *arg,
                 corral_error *error) {
  const crl_key *key = &w->at->key;
  int is_new, status;
  while ((status = look(w, &is_new, error)) == CORRAL_OK) {
    if (is_new && to(key->user, key->user_len, w->holders, w->count, arg) != 0) return CORRAL_OK;
    if (!crl_cancelled(cancel_token)) sleep_on(w);
    if (crl_cancelled(cancel_token)) return crl_status_plain(error, CORRAL_ECANCELLED);
  }
  return status;
}

int corral_lock_watch(corral *c, const void *name, size_t name_len,
                      corral_cancel_token *cancel_token, corral_lock_tell_fn *to, void *arg,
                      corral_error *error) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  watching w = {.told = 0};
  int status = crl_context_enter(c, &w.context, error);
  if (status == CORRAL_OK && to == NULL)
    status = crl_status_fail(error, CORRAL_EINVAL, "corral_lock_watch: no function");
  if (status == CORRAL_OK) status = crl_lock_new(w.context, name, name_len, &w.at, error);
  if (status != CORRAL_OK) return status;
  w.holders = crl_alloc(CORRAL_LOCK_HOLDS * sizeof *w.holders);
  crl_cancel_join_waiter(cancel_token, &w.canceller, &w.waiter);
  status = w.holders != NULL ? go_on(&w, cancel_token, to, arg, error)
                             : crl_status_plain(error, CORRAL_ENOMEM);
  crl_cancel_leave(cancel_token, &w.canceller);
  if (w.watches) crl_watch_leave(w.context->watch, &w.watcher);
  free(w.holders);
  crl_lock_free(w.at);
  return status;
}
