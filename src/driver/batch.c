/* batch.c: the store operations of several runs, performed together. */
#include "driver/batch.h"

#include <stdlib.h>

#include "os/env.h"

enum {
  BATCH_OPS = 256,      /* operations of one batch, at most */
  BATCH_BYTES = 1 << 20 /* bytes of its records, at most */
};

int crl_batch_make(crl_batch *batch, crl_context *context, size_t runs) {
  *batch = (crl_batch){.context = context, .most = runs < BATCH_OPS ? runs : BATCH_OPS};
  batch->requests = crl_alloc(batch->most * sizeof *batch->requests);
  batch->ops = crl_alloc(batch->most * sizeof *batch->ops);
  batch->found = crl_alloc(batch->most * sizeof *batch->found);
  return batch->requests != NULL && batch->ops != NULL && batch->found != NULL;
}

void crl_batch_clean(crl_batch *batch) {
  free(batch->requests);
  free(batch->ops);
  free(batch->found);
  free(batch->looks);
  batch->requests = NULL;
  batch->ops = NULL;
  batch->found = NULL;
  batch->looks = NULL;
}

static size_t weigh(const crl_run *r) {
  return r->ask == CRL_ASK_SETTLE && r->product.renew_ttl <= 0 ? r->product.record->size : 0;
}

/* Returns how many of the first runs make one batch, at least 1. A record larger than the store
 * accepts goes alone, because it would fail the others. */
static size_t cut(const crl_batch *batch, crl_run *const *runs, size_t count) {
  const crl_context *context = batch->context;
  uint64_t most = crl_pool_info(context->pool)->max_record < BATCH_BYTES
                      ? crl_pool_info(context->pool)->max_record
                      : BATCH_BYTES;
  size_t n = 1, bytes = weigh(runs[0]);
  while (n < count && n < batch->most && bytes + weigh(runs[n]) <= most) bytes += weigh(runs[n++]);
  return n;
}

/* ---- versions of tags ---------------------------------------------------------------------- */

/* Copies the tag versions that one run wants from `all`. CORRAL_OK, or why one was not read;
 * `status`: the result of fetching `all`. */
static int take_tag_versions(crl_tag_versions *own, const crl_tag_versions *all, int status) {
  int first = CORRAL_OK;
  for (size_t i = 0; i < own->count; i++) {
    crl_tag_version *tag_version = &own->tag_version[i];
    if (tag_version->status != CRL_TAG_WANTED) continue;
    const crl_tag_version *found = crl_tag_versions_find(all, tag_version->name, tag_version->len);
    if (found == NULL || found->status == CRL_TAG_WANTED)
      return status == CORRAL_OK ? CORRAL_ENOMEM : status;
    *tag_version = *found;
    if (first == CORRAL_OK && found->status != CORRAL_OK && found->status != CORRAL_EMISS)
      first = found->status;
  }
  return first;
}

static int want_tag_versions(crl_tag_versions *all, const crl_tag_versions *own) {
  for (size_t i = 0; i < own->count; i++)
    if (own->tag_version[i].status == CRL_TAG_WANTED &&
        !crl_tag_versions_want(all, own->tag_version[i].name, own->tag_version[i].len))
      return CORRAL_ENOMEM;
  return CORRAL_OK;
}

/* Wants the tag versions that the requests want, each once; *near_ms: the smallest of these calls.
 * `looked`: only for the tags of the records that were found. */
static int want_all(const crl_batch *batch, size_t count, int looked, crl_tag_versions *all,
                    int64_t *near_ms) {
  int status = CORRAL_OK;
  *near_ms = INT64_MAX;
  for (size_t i = 0; i < count && status == CORRAL_OK; i++) {
    const crl_found *found = batch->found[i];
    const crl_request *e = &batch->requests[i];
    if (looked ? !e->has_payload : !crl_request_asks_tags(e)) continue;
    int64_t ms = crl_found_near_ms(found);
    if (ms < *near_ms) *near_ms = ms;
    status = want_tag_versions(all, &found->tag_versions);
  }
  return status;
}

static void fetch_tag_versions(crl_batch *batch, size_t count, int64_t limit) {
  crl_tag_versions all = {0};
  corral_error error = {0};
  int64_t near_ms;
  int status = want_all(batch, count, 1, &all, &near_ms);
  if (status == CORRAL_OK)
    status = crl_tag_versions_fetch(batch->context, &all, near_ms, limit, &error);
  for (size_t i = 0; i < count; i++) {
    crl_request *e = &batch->requests[i];
    if (!e->has_payload) continue;
    e->fetched = take_tag_versions(&batch->found[i]->tag_versions, &all, status);
    if (e->fetched != CORRAL_OK) batch->found[i]->error = error;
  }
  crl_tag_versions_clean(&all);
}

/* ---- a batch ------------------------------------------------------------------------------- */

/* Sends the prepared requests together, with the tag versions that are wanted already; *limit: by
 * when. */
static void send(crl_batch *batch, size_t count, int64_t *limit) {
  crl_tag_versions known = {0};
  int64_t near_ms;
  size_t ops = 0, op = 0;
  *limit = 0;
  for (size_t i = 0; i < count; i++) {
    const crl_request *e = &batch->requests[i];
    if (e->count > 0) batch->ops[ops++] = e->op[0];
    if (e->limit > *limit) *limit = e->limit;
  }
  (void)want_all(batch, count, 0, &known, &near_ms);
  if (ops > 0) crl_tag_versions_perform(batch->context, &known, near_ms, batch->ops, ops, *limit);
  for (size_t i = 0; i < count; i++) {
    if (batch->requests[i].count == 0) continue;
    batch->requests[i].op[0] = batch->ops[op++];
    if (crl_request_asks_tags(&batch->requests[i]))
      (void)take_tag_versions(&batch->found[i]->tag_versions, &known, CORRAL_OK);
  }
  crl_tag_versions_clean(&known);
}

static void perform(crl_batch *batch, crl_run *const *runs, size_t count) {
  int64_t limit;
  for (size_t i = 0; i < count; i++) {
    batch->found[i] = &runs[i]->found;
    crl_run_prepare(runs[i], &batch->requests[i]);
  }
  send(batch, count, &limit);
  for (size_t i = 0; i < count; i++) crl_run_complete(runs[i], &batch->requests[i]);
  fetch_tag_versions(batch, count, limit);
  for (size_t i = 0; i < count; i++) {
    crl_told told;
    memset(&told, 0, sizeof told);
    if (crl_run_interpret(runs[i], &batch->requests[i], &told)) crl_run_step(runs[i], &told);
  }
}

void crl_batch_perform(crl_batch *batch, crl_run *const *runs, size_t count) {
  for (size_t done = 0, n; done < count; done += n) {
    n = cut(batch, runs + done, count - done);
    perform(batch, runs + done, n);
  }
}

/* ---- first looks --------------------------------------------------------------------------- */

static size_t begin_looks(crl_batch *batch, crl_join *const *joins, size_t count) {
  if (batch->looks == NULL) batch->looks = crl_alloc(batch->most * sizeof *batch->looks);
  if (batch->looks == NULL) return 0;
  if (count > batch->most) count = batch->most;
  for (size_t i = 0; i < count; i++) {
    crl_request *e = &batch->requests[i];
    batch->found[i] = &batch->looks[i];
    memset(e, 0, sizeof *e);
    if (!crl_join_begin_look(joins[i], batch->found[i])) continue;
    crl_request_begin(batch->found[i], e, joins[i]->deadline);
    crl_found_prepare(batch->found[i], e, 0);
  }
  return count;
}

size_t crl_batch_look(crl_batch *batch, crl_join *const *joins, size_t count, crl_told *told) {
  int64_t limit;
  count = begin_looks(batch, joins, count);
  send(batch, count, &limit);
  for (size_t i = 0; i < count; i++)
    if (joins[i]->state == CRL_JOIN_LOOKS) crl_found_complete(batch->found[i], &batch->requests[i]);
  fetch_tag_versions(batch, count, limit);
  for (size_t i = 0; i < count; i++) {
    memset(&told[i], 0, sizeof told[i]);
    if (joins[i]->state == CRL_JOIN_LOOKS)
      crl_found_interpret(batch->found[i], &batch->requests[i], NULL, &told[i]);
  }
  return count;
}
