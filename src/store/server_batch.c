/* server_batch.c: one batch on one handle of a server: connecting, sending, and repeating once. */
#include "store/server_batch.h"

#include <stdlib.h>

#include "os/env.h"
#include "base/status.h"
#include "base/value.h"

void crl_server_batch_refuse(corral_op *ops, size_t count, int status, const char *text) {
  for (size_t i = 0; i < count; i++) {
    ops[i].status = status;
    crl_status_fail(ops[i].error, status, "%s", text);
  }
}

void crl_server_batch_break(corral_op *ops, size_t count, const char *text) {
  for (size_t i = 0; i < count; i++) {
    if (ops[i].status != CORRAL_EINDOUBT && ops[i].status != CORRAL_EUNAVAILABLE) continue;
    ops[i].flags |= CRL_OP_UNANSWERED;
    crl_status_fail(ops[i].error, ops[i].status, "%s", text);
  }
}

static void preset(corral_op *op) {
  op->status = CORRAL_EINDOUBT;
  op->found = (corral_found){.record = NULL};
  op->state = (corral_record_state){.life_ms = 0}; /* and so op->lock_state */
}

void crl_server_batch_preset(corral_op *ops, size_t count) {
  for (size_t i = 0; i < count; i++) preset(&ops[i]);
}

void crl_server_batch_flag(corral_op *ops, size_t count, int less) {
  for (size_t i = 0; i < count; i++) {
    ops[i].flags &= ~(CORRAL_OP_LESS | CORRAL_OP_LARGE | CRL_OP_SLOW | CRL_OP_UNANSWERED);
    if (less && ops[i].verb == CORRAL_VERB_GET) ops[i].flags |= CORRAL_OP_LESS;
  }
}

void crl_server_batch_mark_slow(corral_op *ops, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (ops[i].status == CORRAL_EUNAVAILABLE || ops[i].status == CORRAL_EINDOUBT)
      ops[i].flags |= CRL_OP_SLOW;
}

/* A look changes nothing, and a token may ask twice for the same hold. */
static int harmless(uint32_t verb) {
  return verb == CORRAL_VERB_GET || verb == CORRAL_VERB_LOCK || verb == CORRAL_VERB_LOCK_EXTEND ||
         verb == CORRAL_VERB_LOCK_SHOW;
}

/* CORRAL_EUNAVAILABLE says that an operation was not sent, CORRAL_EMOVED that it was refused. */
static int repeatable(const corral_op *op) {
  return op->status == CORRAL_EUNAVAILABLE || op->status == CORRAL_EMOVED ||
         (op->status == CORRAL_EINDOUBT && harmless(op->verb));
}

int crl_server_batch_repeatable(const corral_op *ops, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!repeatable(&ops[i])) return 0;
  return 1;
}

int crl_server_batch_connect(const crl_pool_options *options, size_t server, int64_t deadline,
                             void **handle, corral_error *why) {
  if (options->info.servers > 1)
    return options->plugin->connect_server(options->store, server, deadline, handle, why);
  return options->plugin->connect(options->store, deadline, handle, why);
}

/* CORRAL_OK without memory: nothing was sent, and the handle is whole. */
int crl_server_batch_send_wide(const corral_store *plugin, void *handle, const corral_batch *batch,
                               int64_t deadline, corral_error *error) {
  size_t count = batch->count, size = batch->op_size;
  corral_batch wide = {.ops = crl_alloc(count * plugin->op_size),
                       .count = count,
                       .op_size = plugin->op_size,
                       .now = batch->now};
  if (wide.ops == NULL) {
    crl_server_batch_refuse(batch->ops, count, CORRAL_ENOMEM, "no memory to ask the store");
    return CORRAL_OK;
  }
  for (size_t i = 0; i < count; i++)
    memcpy(corral_batch_op(&wide, i), corral_batch_op(batch, i), size);
  int status = plugin->perform(handle, &wide, deadline, error);
  for (size_t i = 0; i < count; i++)
    memcpy(corral_batch_op(batch, i), corral_batch_op(&wide, i), size);
  free(wide.ops);
  return status;
}

static int perform_paced(const corral_store *plugin, void *handle, const corral_batch *batch,
                         crl_pace *pace, corral_error *why) {
  crl_pace_begin(pace);
  int status = crl_server_batch_send(plugin, handle, batch, pace->deadline, why);
  crl_pace_end();
  return status;
}

/* Performs on a whole handle; a text that comes with CORRAL_OK is told. A handle that breaks is
 * closed, and *handle is NULL then. */
static int perform_on(const crl_pool_options *options, size_t server, void **handle,
                      const corral_batch *batch, crl_pace *pace, corral_error *why) {
  why->status = CORRAL_OK; /* all of it only where it is needed, to save time */
  why->text[0] = '\0';
  crl_server_batch_preset(batch->ops, batch->count);
  int status = perform_paced(options->plugin, *handle, batch, pace, why);
  if (status != CORRAL_OK)
    crl_server_batch_close(options, handle, batch->ops, batch->count, why);
  else if (why->text[0] != '\0')
    crl_server_batch_report_notice(options, server, why);
  return status;
}

static int perform_anew(const crl_pool_options *options, size_t server, void **handle,
                        corral_op *ops, size_t count, crl_pace *pace, corral_error *why) {
  corral_batch batch = {.ops = ops, .count = count, .op_size = sizeof *ops};
  memset(why, 0, sizeof *why);
  int status = crl_server_batch_connect(options, server, pace->first, handle, why);
  if (status != CORRAL_OK) {
    *handle = NULL;
    crl_server_batch_refuse(ops, count, status, why->text);
    return status;
  }
  if (options->sweeper != NULL) /* without a thread to be had, the handle stays open */
    (void)crl_task_at(options->sweeper, crl_env_now_ms() + CRL_SWEEP_MS);
  crl_server_batch_report_notice(options, server, why);
  return perform_on(options, server, handle, &batch, pace, why);
}

void crl_server_batch_close(const crl_pool_options *options, void **handle, corral_op *ops,
                            size_t count, const corral_error *why) {
  options->plugin->disconnect(*handle);
  *handle = NULL;
  crl_server_batch_break(ops, count, why->text);
}

int crl_server_batch_repeat(const crl_pool_options *options, size_t server, void **handle,
                            corral_op *ops, size_t count, crl_pace *pace, corral_error *why,
                            int status) {
  if (crl_env_now_ms() >= pace->first || !crl_server_batch_repeatable(ops, count)) return status;
  return perform_anew(options, server, handle, ops, count, pace, why);
}

int crl_server_batch_perform(const crl_pool_options *options, size_t server, void **handle,
                             corral_op *ops, size_t count, crl_pace *pace, corral_error *why) {
  corral_batch batch = {.ops = ops, .count = count, .op_size = sizeof *ops, .now = pace->began};
  if (*handle == NULL) return perform_anew(options, server, handle, ops, count, pace, why);
  int status = perform_on(options, server, handle, &batch, pace, why);
  return status == CORRAL_OK
             ? status
             : crl_server_batch_repeat(options, server, handle, ops, count, pace, why, status);
}

void crl_server_batch_report(const crl_pool_options *options, size_t server, corral_event event,
                             const corral_error *why) {
  if (event == CORRAL_EVENT_COUNT) return;
  corral_event_info info = crl_event_info(event, NULL, 0);
  info.detail = why->text;
  info.server = (int)server;
  if (event == CORRAL_EVENT_STORE_DOWN) info.status = why->status;
  if (event == CORRAL_EVENT_STORE_DOWN || event == CORRAL_EVENT_STORE_UP)
    crl_stats_move_gauge(&options->events->stats, CORRAL_GAUGE_BREAKERS_OPEN,
                         event == CORRAL_EVENT_STORE_DOWN ? 1 : -1);
  crl_event_tell(options->events, &info);
}

/* A text that comes with CORRAL_OK says that the store began anew, or is a warning. */
void crl_server_batch_report_notice(const crl_pool_options *options, size_t server,
                                    corral_error *why) {
  if (why->status == CORRAL_OK && why->text[0] == '\0') return;
  if (why->status == CORRAL_OK || why->status == CORRAL_WARNING)
    crl_server_batch_report(
        options, server, why->status == CORRAL_OK ? CORRAL_EVENT_STORE_ANEW : CORRAL_EVENT_WARNING,
        why);
  memset(why, 0, sizeof *why);
}
