/* due.c: an event loop's calls that were answered as they began. */
#include "api/due.h"

#include <stdlib.h>

/* Answers told by a dispatch beyond those that were due before. A chain of calls, each begun by the
 * last one's `done`, so needs few system calls, and keeps no other descriptor waiting for long. */
enum { BURST = 64 };

/* ---- the beginning ------------------------------------------------------------------------- */

static void look_near(crl_first *first, crl_context *context, const crl_call *asked,
                      const void *key, size_t key_len) {
  crl_join join;
  crl_join_init(&join, context, asked, key, key_len);
  join.outcome = &first->outcome;
  first->is_answered = crl_run_near(&join, 0);
  first->early = join.early;
}

static void look(crl_first *first, crl_context *context, const crl_call *asked, const void *key,
                 size_t key_len) {
  corral_value *value;
  int how = crl_hit_look(context, asked, key, key_len, &value);
  first->is_answered = how == 1;
  first->has_looked = how == 0;
  if (how == 0) first->hit = crl_hit_mine();
  if (how == 1) first->outcome = (crl_outcome){.status = CORRAL_OK, .value = value};
}

void crl_due_look(crl_first *first, crl_context *context, const crl_call *asked, const void *key,
                  size_t key_len) {
  first->is_answered = first->has_looked = first->early = 0;
  if (context->near != NULL) look_near(first, context, asked, key, key_len);
  if (!first->is_answered && context->looks_first && crl_hit_is_of(context))
    look(first, context, asked, key, key_len);
}

#ifdef CORRAL_CHECKS
static void check(const corral_loop *loop) {
  size_t count = 0;
  corral_async_call *const *link = &loop->due;
  for (; *link != NULL && count < CRL_CHECK_MOST; link = &(*link)->next, count++)
    CRL_MUST((*link)->state == CRL_ASYNC_DUE || (*link)->state == CRL_ASYNC_ENDED,
             "due: a call in the queue is due, or cancelled");
  CRL_MUST(*link != NULL || loop->due_tail == link, "due: the queue knows its end");
  CRL_MUST(*link != NULL || loop->due_count == count, "due: the calls are counted");
}
#endif

/* ---- the calls ----------------------------------------------------------------------------- */

static void put(corral_async_call *call) {
  corral_loop *loop = call->loop;
  int is_first = loop->due == NULL;
  CRL_CHECK(loop);
  call->next = NULL;
  *loop->due_tail = call;
  loop->due_tail = &call->next;
  loop->due_count++;
  CRL_CHECK(loop);
  if (is_first && !loop->is_dispatched) crl_inbox_ring(loop);
}

static corral_async_call *take(corral_loop *loop) {
  CRL_CHECK(loop);
  corral_async_call *call = loop->due;
  loop->due = call->next;
  if (loop->due == NULL) loop->due_tail = &loop->due;
  loop->due_count--;
  CRL_CHECK(loop);
  return call;
}

/* Only what is set here is used of a call that is due. */
int crl_due_new(corral_loop *loop, const corral_async *async, crl_outcome *outcome,
                corral_async_call **ret) {
  corral_value *value = NULL;
  corral_error error, *kept = NULL;
  int status = crl_outcome_deliver(loop->context, outcome, &error, &value);
  corral_async_call *call = crl_alloc_more(NULL, sizeof *call);
  if (status != CORRAL_OK && (kept = crl_alloc(sizeof *kept)) != NULL) *kept = error;
  if (call == NULL || (value == NULL && kept == NULL)) {
    corral_value_unref(value);
    free(kept);
    free(call);
    return CORRAL_ENOMEM;
  }
  call->loop = loop;
  call->async = *async;
  call->state = CRL_ASYNC_DUE;
  call->value = value;
  call->error = kept;
  put(call);
  *ret = call;
  return CORRAL_OK;
}

/* ---- the end ------------------------------------------------------------------------------- */

static void end(corral_async_call *call) {
  static const corral_error none;
  if (call->state == CRL_ASYNC_DUE) {
    const corral_error *error = call->error == NULL ? &none : call->error;
    call->state = CRL_ASYNC_ENDED;
    call->async.done(call->async.arg, error->status, call->value, error);
  }
  if (call->async.gone != NULL) call->async.gone(call->async.arg);
  free(call->error);
  free(call);
}

int crl_due_tell(corral_loop *loop) {
  int count = 0;
  for (size_t most = loop->due_count + BURST; loop->due != NULL && most > 0; most--, count++)
    end(take(loop));
  if (loop->due != NULL) crl_inbox_ring(loop);
  return count;
}

void crl_due_cancel(corral_async_call *call) {
  corral_value_unref(call->value);
  call->state = CRL_ASYNC_ENDED;
}

void crl_due_close(corral_loop *loop) {
  for (corral_async_call *call = loop->due; call != NULL; call = call->next)
    corral_async_call_cancel(call);
  while (loop->due != NULL) end(take(loop));
}
