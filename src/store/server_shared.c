/* server_shared.c: a server of a store whose one handle all threads share. */
#include "store/server_own.h"

#include "os/env.h"
#include "store/server_batch.h"
#include "base/status.h"

/* Opens the one handle, unless another thread has. Under the latch. */
static int open_shared(crl_server *server, int64_t deadline, corral_event *event, int *slow,
                       corral_error *why) {
  void *handle = NULL;
  int probe;
  *slow = 1;
  if (atomic_load(&server->shared) != NULL) return CORRAL_OK;
  if (server->retired != NULL && atomic_load(&server->inside) > 0)
    return crl_status_fail(why, CORRAL_EUNAVAILABLE,
                           "the store broke, and is about to be opened anew");
  *slow = 0;
  if (!crl_health_may_ask(&server->health, &probe)) {
    *why = server->health.why;
    return why->status == CORRAL_OK ? CORRAL_EUNAVAILABLE : why->status;
  }
  int64_t began = crl_env_now_ms();
  if (server->retired != NULL) server->options->plugin->disconnect(server->retired);
  server->retired = NULL;
  int status = crl_server_batch_connect(server->options, server->number, deadline, &handle, why);
  if (status == CORRAL_OK) atomic_store(&server->shared, handle);
  int is_busy = status == CORRAL_EBUSY,
      is_silent = status != CORRAL_OK && !is_busy && crl_env_now_ms() >= deadline;
  *event = is_silent
               ? crl_health_silence(&server->health, began, deadline, probe, why)
               : crl_health_outcome(&server->health, status == CORRAL_OK || is_busy, probe, why);
  *slow = (is_silent || is_busy) && !server->health.breaker.open;
  return is_busy ? CORRAL_EUNAVAILABLE : status;
}

/* Tells a copy: whoever hears of it may use another corral on this thread. */
static __attribute__((noinline)) void tell_notice(const crl_server *server,
                                                  const corral_error *notice) {
  corral_error why = *notice;
  crl_server_batch_report_notice(server->options, server->number, &why);
}

/* The handle, with the caller counted inside; NULL when there is none. A thread that is counted
 * before `shared` was taken away may still use it, a later one finds NULL: so with nobody inside no
 * thread uses a retired handle. */
static void *enter_shared(crl_server *server) {
  atomic_fetch_add(&server->inside, 1);
  void *handle = atomic_load(&server->shared);
  if (handle == NULL) atomic_fetch_sub(&server->inside, 1);
  return handle;
}

static void retire_shared(crl_server *server, void *handle) {
  crl_server_lock(server);
  if (atomic_load(&server->shared) == handle) {
    atomic_store(&server->shared, NULL);
    server->retired = handle;
  }
  crl_server_unlock(server);
}

/* Opens the handle, if it can be, and enters it; NULL: the operations were refused. */
static __attribute__((noinline)) void *enter_anew(crl_server *server, corral_op *ops, size_t count,
                                                  int64_t deadline) {
  corral_error why = {0};
  void *handle;
  int slow;
  while ((handle = enter_shared(server)) == NULL) {
    corral_event event = CORRAL_EVENT_COUNT;
    crl_server_lock(server);
    int status = open_shared(server, deadline, &event, &slow, &why);
    crl_server_unlock(server);
    crl_server_batch_report(server->options, server->number, event, &why);
    if (status == CORRAL_OK) {
      crl_server_batch_report_notice(server->options, server->number, &why);
      continue;
    }
    crl_server_batch_refuse(ops, count, status, why.text);
    if (slow) crl_server_batch_mark_slow(ops, count);
    return NULL;
  }
  return handle;
}

/* The handle broke under these operations. */
static __attribute__((noinline)) void break_shared(crl_server *server, void *handle, corral_op *ops,
                                                   size_t count, int64_t deadline,
                                                   const corral_error *why) {
  crl_server_batch_break(ops, count, why->text);
  if (crl_env_now_ms() >= deadline) crl_server_batch_mark_slow(ops, count);
  retire_shared(server, handle);
}

static inline __attribute__((always_inline)) void perform_in(crl_server *server, void *handle,
                                                             corral_op *ops, size_t count,
                                                             int64_t now, int64_t deadline,
                                                             corral_error *why) {
  corral_batch batch = {.ops = ops, .count = count, .op_size = sizeof *ops, .now = now};
  why->status = CORRAL_OK;
  why->text[0] = '\0';
  if (crl_server_batch_send(server->options->plugin, handle, &batch, deadline, why) != CORRAL_OK)
    break_shared(server, handle, ops, count, deadline, why);
  else if (why->text[0] != '\0')
    tell_notice(server, why);
  atomic_fetch_sub(&server->inside, 1);
}

/* Apart, as one that is open needs less room. */
static __attribute__((noinline)) void perform_anew(crl_server *server, corral_op *ops, size_t count,
                                                   int64_t now, int64_t deadline,
                                                   corral_error *why) {
  void *handle = enter_anew(server, ops, count, deadline);
  if (handle != NULL) perform_in(server, handle, ops, count, now, deadline, why);
}

void crl_server_perform_shared(crl_server *server, corral_op *ops, size_t count, int64_t now,
                               int64_t deadline, corral_error *why) {
  void *handle = enter_shared(server);
  if (handle == NULL)
    perform_anew(server, ops, count, now, deadline, why);
  else
    perform_in(server, handle, ops, count, now, deadline, why);
}
