/* server_batch.h: one batch on one handle of a server: connecting, sending, and repeating once.
 * Used by server.c; knows nothing of its latch, queue and breaker.
 *
 * `options` and `server` name the server: options->plugin, options->store and its number. */
#ifndef CRL_SERVER_BATCH_H
#define CRL_SERVER_BATCH_H

#include "store/pace.h"
#include "store/pool_options.h"

/* Gives all operations this status, with this text, without asking the store. */
void crl_server_batch_refuse(corral_op *ops, size_t count, int status, const char *text);
/* Makes the results of operations empty, and their status CORRAL_EINDOUBT. */
void crl_server_batch_preset(corral_op *ops, size_t count);
/* Clears the flags of an earlier try, and sets whether the looks among the operations may leave a
 * large record unread. */
void crl_server_batch_flag(corral_op *ops, size_t count, int less);
/* Sets CRL_OP_SLOW on the operations that got no answer. */
void crl_server_batch_mark_slow(corral_op *ops, size_t count);
/* True when every operation was not sent, or is harmless to send again. */
int crl_server_batch_repeatable(const corral_op *ops, size_t count);
/* Opens a handle: CORRAL_OK, or why there is none. */
int crl_server_batch_connect(const crl_pool_options *options, size_t server, int64_t deadline,
                             void **handle, corral_error *why);
/* For a plugin of a later corral, whose operations are longer than ours: it gets copies that end in
 * zeros. */
int crl_server_batch_send_wide(const corral_store *plugin, void *handle, const corral_batch *batch,
                               int64_t deadline, corral_error *error);
/* Performs operations on a handle by the plugin's `perform`, and returns its status. */
static inline int crl_server_batch_send(const corral_store *plugin, void *handle,
                                        const corral_batch *batch, int64_t deadline,
                                        corral_error *error) {
  if (plugin->op_size > batch->op_size)
    return crl_server_batch_send_wide(plugin, handle, batch, deadline, error);
  return plugin->perform(handle, batch, deadline, error);
}
/* Performs a batch on *handle; NULL: opens one first. A handle that breaks is closed, and *handle
 * is NULL then. A connection that the server had closed while it was idle is replaced once, within
 * the time of `pace`. */
int crl_server_batch_perform(const crl_pool_options *options, size_t server, void **handle,
                             corral_op *ops, size_t count, crl_pace *pace, corral_error *why);
/* Operations that got no answer get this text, and CRL_OP_UNANSWERED. */
void crl_server_batch_break(corral_op *ops, size_t count, const char *text);
/* The handle broke under these operations: closes it, and says why. */
void crl_server_batch_close(const crl_pool_options *options, void **handle, corral_op *ops,
                            size_t count, const corral_error *why);
/* After that: performs them on another handle, where they may be repeated and there is time. Else
 * returns `status`, the first attempt's. */
int crl_server_batch_repeat(const crl_pool_options *options, size_t server, void **handle,
                            corral_op *ops, size_t count, crl_pace *pace, corral_error *why,
                            int status);
/* Emits an event of the server, with the text of `why` and, for CORRAL_EVENT_STORE_DOWN, its
 * status; CORRAL_EVENT_COUNT: none. */
void crl_server_batch_report(const crl_pool_options *options, size_t server, corral_event event,
                             const corral_error *why);
/* Emits CORRAL_EVENT_STORE_ANEW when `why` is CORRAL_OK with a text, CORRAL_EVENT_WARNING when it
 * is CORRAL_WARNING, and empties it. */
void crl_server_batch_report_notice(const crl_pool_options *options, size_t server,
                                    corral_error *why);

#endif
