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
  batch->ops = crl_alloc(2 * batch->most * sizeof *batch->ops);
  return batch->requests != NULL && batch->ops != NULL;
}

void crl_batch_clean(crl_batch *batch) {
  free(batch->requests);
  free(batch->ops);
  batch->requests = NULL;
  batch->ops = NULL;
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
  size_t n = 1, bytes = weigh(runs[0]),
         keys = context->generation && batch->most > BATCH_OPS / 2 ? BATCH_OPS / 2 : batch->most;
  while (n < count && n < keys && bytes + weigh(runs[n]) <= most) bytes += weigh(runs[n++]);
  return n;
}

/* ---- versions of tags ---------------------------------------------------------------------- */

/* Copies the tag versions that one run wants from `all`. CORRAL_OK, or why one was not read;
 * `status`: the result of fetching `all`. */
static int take_tag_versions(crl_tag_versions *own, const crl_tag_versions *all, int status) {
  for (size_t i = 0; i < own->count; i++) {
    crl_tag_version *tag_version = &own->tag_version[i];
    if (tag_version->status != CRL_TAG_WANTED) continue;
    const crl_tag_version *found = crl_tag_versions_find(all, tag_version->name, tag_version->len);
    if (found == NULL || found->status == CRL_TAG_WANTED)
      return status == CORRAL_OK ? CORRAL_ENOMEM : status;
    tag_version->slow = found->slow;
    if (found->status != CORRAL_OK && found->status != CORRAL_EMISS) return found->status;
    *tag_version = *found;
  }
  return CORRAL_OK;
}

static int want_tag_versions(crl_tag_versions *all, const crl_tag_versions *own) {
  for (size_t i = 0; i < own->count; i++)
    if (own->tag_version[i].status == CRL_TAG_WANTED &&
        !crl_tag_versions_want(all, own->tag_version[i].name, own->tag_version[i].len))
      return CORRAL_ENOMEM;
  return CORRAL_OK;
}

/* Fetches the tag versions that the runs want for the tags of their records: each tag version once,
 * none older than the smallest near_ms of these runs. */
static void fetch_tag_versions(crl_batch *batch, crl_run *const *runs, size_t count,
                               int64_t limit) {
  crl_tag_versions all = {0};
  corral_error error = {0};
  int64_t near_ms = INT64_MAX;
  int status = CORRAL_OK;
  for (size_t i = 0; i < count && status == CORRAL_OK; i++) {
    if (!batch->requests[i].has_payload) continue;
    if (runs[i]->policy.near_ms < near_ms) near_ms = runs[i]->policy.near_ms;
    status = want_tag_versions(&all, &runs[i]->found.tag_versions);
  }
  if (status == CORRAL_OK)
    status = crl_tag_versions_fetch(batch->context, &all, near_ms, limit, &error);
  for (size_t i = 0; i < count; i++) {
    crl_request *e = &batch->requests[i];
    if (!e->has_payload) continue;
    e->fetched = take_tag_versions(&runs[i]->found.tag_versions, &all, status);
    if (e->fetched != CORRAL_OK) runs[i]->found.error = error;
  }
  crl_tag_versions_clean(&all);
}

/* ---- a batch ------------------------------------------------------------------------------- */

static int64_t make_ops(crl_batch *batch, crl_run *const *runs, size_t count, size_t *ops) {
  int64_t limit = 0;
  *ops = 0;
  for (size_t i = 0; i < count; i++) {
    crl_request *e = &batch->requests[i];
    crl_run_prepare(runs[i], e);
    for (size_t o = 0; o < e->count; o++) batch->ops[(*ops)++] = e->op[o];
    if (e->limit > limit) limit = e->limit;
  }
  return limit;
}

static void perform(crl_batch *batch, crl_run *const *runs, size_t count) {
  size_t ops, op = 0;
  int64_t limit = make_ops(batch, runs, count, &ops);
  if (ops > 0) crl_pool_perform(batch->context->pool, batch->ops, ops, limit);
  for (size_t i = 0; i < count; i++) {
    for (size_t o = 0; o < batch->requests[i].count; o++)
      batch->requests[i].op[o] = batch->ops[op++];
    crl_run_complete(runs[i], &batch->requests[i]);
  }
  fetch_tag_versions(batch, runs, count, limit);
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
