/* lookout.c: looks without waiting, on a handle of their own. */
#include "store/lookout.h"

#include <stdlib.h>

#include "base/status.h"
#include "base/value.h"
#include "os/env.h"
#include "store/op_times.h"
#include "store/server_batch.h"

int crl_lookout_is_offered(const crl_pool *pool) {
  const crl_pool_options *options = crl_pool_options_of(pool);
  const corral_store *plugin = options->plugin;
  return plugin->threads == CORRAL_THREADS_HANDLE && options->info.servers == 1 &&
         !options->info.locks_only && plugin->descriptor != NULL && plugin->begin != NULL &&
         plugin->finish != NULL;
}

/* The ops of a plugin may be longer than ours. */
static int make_batch(crl_lookout *lookout) {
  size_t size = lookout->plugin->op_size;
  if (size < sizeof(corral_op)) size = sizeof(corral_op);
  lookout->batch = (corral_batch){.ops = crl_alloc(CRL_LOOKOUT_OPS * size), .op_size = size};
  return lookout->batch.ops != NULL;
}

int crl_lookout_open(crl_lookout *lookout, const crl_pool *pool) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  const crl_pool_options *options = crl_pool_options_of(pool);
  int64_t deadline = crl_env_now_ms() + options->op_ms;
  corral_error why = {0};
  *lookout = (crl_lookout){.plugin = options->plugin, .options = options};
  if (!make_batch(lookout)) return CORRAL_ENOMEM;
  int status = options->plugin->connect(options->store, deadline, &lookout->handle, &why);
  if (status == CORRAL_OK) crl_server_batch_report_notice(options, 0, &why);
  if (status != CORRAL_OK)
    lookout->handle = NULL;
  else if ((lookout->fd = options->plugin->descriptor(lookout->handle)) < 0)
    status = CORRAL_EUNSUPPORTED;
  if (status != CORRAL_OK) crl_lookout_close(lookout);
  return status;
}

static void copy_back(corral_op *to, const corral_op *from) {
  to->status =
      from->status == CORRAL_OK || from->status == CORRAL_EMISS ? from->status : CORRAL_EINDOUBT;
  to->found = from->found;
  to->state = from->state;
  if (to->status != CORRAL_EINDOUBT || to->found.drop == NULL) return;
  to->found.drop(to->found.owner);
  to->found = (corral_found){.record = NULL};
}

/* `knows`: the results are good. */
static void end_all(crl_lookout *lookout, int knows) {
  if (knows && lookout->count > 0 && lookout->began_us != 0)
    crl_op_looked(lookout->options, lookout->count, lookout->began_us);
  for (size_t i = 0; i < lookout->count; i++) {
    corral_op *op = corral_batch_op(&lookout->batch, i);
    if (!knows) op->status = CORRAL_EINDOUBT;
    copy_back(lookout->own[i], op);
  }
  lookout->count = 0;
}

void crl_lookout_close(crl_lookout *lookout) {
  end_all(lookout, 0);
  if (lookout->handle != NULL) lookout->plugin->disconnect(lookout->handle);
  lookout->handle = NULL;
  free(lookout->batch.ops);
  lookout->batch.ops = NULL;
}

int crl_lookout_begin(crl_lookout *lookout, corral_op *const *ops, size_t count, int64_t now) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  corral_error unused;
  unused.status = CORRAL_OK;
  unused.text[0] = '\0';
  for (size_t i = 0; i < count; i++) {
    corral_op *op = corral_batch_op(&lookout->batch, i);
    memset(op, 0, lookout->batch.op_size);
    memcpy(op, ops[i], sizeof *op);
    op->flags = CORRAL_OP_LESS;
    op->error = NULL;
    lookout->own[i] = ops[i];
  }
  lookout->count = lookout->batch.count = count;
  lookout->batch.now = now;
  lookout->began_us = crl_op_clock(lookout->options);
  return lookout->plugin->begin(lookout->handle, &lookout->batch, &unused);
}

int crl_lookout_finish(crl_lookout *lookout) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  corral_error unused;
  int done = 0;
  unused.status = CORRAL_OK;
  unused.text[0] = '\0';
  int status = lookout->plugin->finish(lookout->handle, &done, &unused);
  if (status == CORRAL_OK && !done) return 0;
  end_all(lookout, status == CORRAL_OK);
  return status == CORRAL_OK ? 1 : -1;
}
