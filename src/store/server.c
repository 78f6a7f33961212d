/* server.c: the handles of one server, the queue for them, and the breaker that lets it rest.
 *
 * server_batch.c performs a batch on a handle; server.c decides whose operations it has, which
 * handle it gets, and what its result means to the breaker. */
#include "store/server.h"

#include <pthread.h>
#include <stdlib.h>

#include "store/health.h"
#include "os/env.h"
#include "os/wait.h"
#include "store/server_batch.h"
#include "store/pace.h"
#include "base/status.h"
#include "base/value.h"

enum {
  BATCH_OPS = 256,        /* operations of a combined batch, at the most */
  BATCH_BYTES = 1 << 20,  /* and their bytes */
  ALONE_BYTES = 64 << 10, /* more bytes go without others' operations */
  LARGE_BYTES = 1 << 20,  /* more bytes go on a handle for large records */
  /* a record adds a ms for so many bytes, where the store doesn't tell of bytes that move */
  BYTES_A_MS = 10000,
  HANDLES = 64
};

typedef enum seat { QUEUED, LEADS, SERVED } seat;

/* A caller's operations and its place in the queue, on that caller's stack. */
typedef struct request {
  struct request *next;
  corral_op *ops;
  size_t count;
  size_t bytes;
  int64_t limit;  /* when it ends if nothing moves */
  int64_t latest; /* its caller's deadline: when it ends whatever moves */
  struct seats *seats;
  int alone; /* no other request goes along */
  /* its caller has less time than op_ms: reaching that limit says nothing of the store */
  int hurried;
  seat seat;
  int opened;        /* its failure opened the breaker, or made a probe due */
  int cut;           /* its batch failed in the middle of a body */
  void *handle;      /* LEADS: the handle that was handed over; NULL: it opens one */
  crl_waiter waiter; /* woken under the mutex, by each change of `seat` */
} request;

/* Handles, and the queue for them. */
typedef struct seats {
  request *head, **tail;
  void *idle[HANDLES];
  size_t idle_count, open_count, most;
} seats;

struct crl_server {
  const crl_pool_options *options;
  size_t number;
  pthread_mutex_t mutex;
  seats usual, large; /* a large body is never in the way of anything else */
  /* CORRAL_THREADS_PARALLEL: the one handle; a broken one, which is disconnected once nobody is
   * inside; how many threads are inside */
  void *_Atomic shared;
  void *retired;
  _Atomic size_t inside;
  crl_health health;
  void *probe_handle; /* the probing thread's */
};

crl_server *crl_server_new(const crl_pool_options *options, size_t number) {
  crl_server *server = crl_alloc(sizeof *server);
  if (server == NULL) return NULL;
  server->options = options;
  server->number = number;
  pthread_mutex_init(&server->mutex, NULL);
  server->usual.tail = &server->usual.head;
  server->large.tail = &server->large.head;
  server->usual.most = (size_t)(options->handles > 0 ? options->handles : options->info.handles);
  if (server->usual.most > HANDLES) server->usual.most = HANDLES;
  server->large.most = server->usual.most;
  crl_health_start(&server->health, options);
  return server;
}

void crl_server_free(crl_server *server) {
  const corral_store *plugin = server->options->plugin;
  for (size_t i = 0; i < server->usual.idle_count; i++) plugin->disconnect(server->usual.idle[i]);
  for (size_t i = 0; i < server->large.idle_count; i++) plugin->disconnect(server->large.idle[i]);
  if (server->retired != NULL) plugin->disconnect(server->retired);
  if (server->shared != NULL) plugin->disconnect(server->shared);
  pthread_mutex_destroy(&server->mutex);
  free(server);
}

/* ---- a store whose handle all threads share ------------------------------------------------ */

/* Opens the one handle, unless another thread has. Under the mutex. */
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
  pthread_mutex_lock(&server->mutex);
  if (atomic_load(&server->shared) == handle) {
    atomic_store(&server->shared, NULL);
    server->retired = handle;
  }
  pthread_mutex_unlock(&server->mutex);
}

static void perform_shared(crl_server *server, corral_op *ops, size_t count, int64_t deadline) {
  corral_error why = {0};
  void *handle;
  int slow;
  while ((handle = enter_shared(server)) == NULL) {
    corral_event event = CORRAL_EVENT_COUNT;
    pthread_mutex_lock(&server->mutex);
    int status = open_shared(server, deadline, &event, &slow, &why);
    pthread_mutex_unlock(&server->mutex);
    crl_server_batch_report(server->options, server->number, event, &why);
    if (status == CORRAL_OK) {
      crl_server_batch_report_notice(server->options, server->number, &why);
      continue;
    }
    crl_server_batch_refuse(ops, count, status, why.text);
    if (slow) crl_server_batch_mark_slow(ops, count);
    return;
  }
  crl_server_batch_preset(ops, count);
  if (crl_server_batch_send(server->options->plugin, handle, ops, count, deadline, &why) !=
      CORRAL_OK) {
    for (size_t i = 0; i < count; i++)
      if (ops[i].status == CORRAL_EINDOUBT)
        crl_status_fail(ops[i].error, CORRAL_EINDOUBT, "%s", why.text);
    if (crl_env_now_ms() >= deadline) crl_server_batch_mark_slow(ops, count);
    retire_shared(server, handle);
  } else {
    crl_server_batch_report_notice(server->options, server->number, &why);
  }
  atomic_fetch_sub(&server->inside, 1);
}

/* ---- handles that one thread at a time uses ------------------------------------------------ */

/* Takes requests that go along with `own` out of the queue into the list *mine, up to the limits of
 * a batch; those that go alone stay queued. Returns the operations of all. */
static size_t gather(request **mine, request *own) {
  size_t count = own->count, bytes = own->bytes;
  request **link = &own->seats->head, **end = mine;
  while (!own->alone && *link != NULL) {
    request *other = *link;
    if (other->alone || count + other->count > BATCH_OPS || bytes + other->bytes > BATCH_BYTES) {
      link = &other->next;
      continue;
    }
    *link = other->next;
    if (other->next == NULL) own->seats->tail = link;
    other->next = NULL;
    *end = other;
    end = &other->next;
    count += other->count;
    bytes += other->bytes;
  }
  return count;
}

/* Hands a handle, or the right to open one (NULL), to the head of the queue. Without a queue the
 * handle is idle, and the right is given back. Under the mutex. */
static void pass_on(seats *all, void *handle) {
  request *next = all->head;
  if (next == NULL) {
    if (handle != NULL)
      all->idle[all->idle_count++] = handle;
    else
      all->open_count--;
    return;
  }
  all->head = next->next;
  if (all->head == NULL) all->tail = &all->head;
  next->next = NULL;
  next->handle = handle;
  next->seat = LEADS;
  crl_waiter_wake(&next->waiter);
}

static void copy_results(request *all, const corral_op *batch) {
  for (request *r = all; r != NULL; r = r->next) {
    memcpy(r->ops, batch, r->count * sizeof *batch);
    batch += r->count;
  }
}

/* The limit of a request with the time that its bytes add. */
static int64_t by_size(const request *r) {
  int64_t limit = r->limit + (int64_t)(r->bytes / BYTES_A_MS);
  return limit < r->latest ? limit : r->latest;
}

/* Adds a request to the pace of a batch. Bytes that move put the batch off to the earliest of its
 * callers' deadlines at most: a caller with less time doesn't wait longer for others' bodies. */
static void join_pace(crl_pace *pace, const request *r) {
  if (r->limit > pace->first) pace->first = r->limit;
  if (by_size(r) > pace->deadline) pace->deadline = by_size(r);
  if (r->latest < pace->latest) pace->latest = r->latest;
}

/* Performs the operations of `own` and of the requests that it leads, on `handle`. Returns the
 * handle, NULL when it broke. */
static void *perform_batch(crl_server *server, request *own, size_t count, void *handle,
                           crl_pace *pace, int *worked, corral_error *why) {
  corral_op batch[BATCH_OPS];
  corral_op *ops = own->ops;
  if (own->next != NULL) {
    size_t at = 0;
    for (request *r = own; r != NULL; r = r->next) {
      memcpy(batch + at, r->ops, r->count * sizeof *batch);
      at += r->count;
    }
    ops = batch;
  }
  *pace = (crl_pace){.latest = INT64_MAX, .quiet_ms = server->options->op_ms};
  for (const request *r = own; r != NULL; r = r->next) join_pace(pace, r);
  *worked = crl_server_batch_perform(server->options, server->number, &handle, ops, count, pace,
                                     why) == CORRAL_OK;
  if (own->next != NULL) copy_results(own, batch);
  return handle;
}

/* The time limit of a batch; bytes that moved put it off. */
static int64_t limit_of(const crl_pace *pace) {
  return pace->limit > pace->first ? pace->limit : pace->first;
}

static int ran_out(const crl_pace *pace) { return crl_env_now_ms() >= limit_of(pace); }

/* True when a plugin had no time left to send anything of the batch, and kept the handle. */
static int is_unsent(const request *own) {
  size_t i = 0;
  while (i < own->count && own->ops[i].status == CORRAL_EUNAVAILABLE) i++;
  return i == own->count;
}

/* Tells the breaker of a batch whose time ran out. Returns as judge_batch. */
static corral_event judge_silence(crl_server *server, request *own, int64_t began, int64_t limit,
                                  int probe, const corral_error *why) {
  corral_event event = CORRAL_EVENT_COUNT;
  if (own->hurried && !probe) {
    own->opened = crl_health_hurried(&server->health);
    return event;
  }
  event = crl_health_silence(&server->health, began, limit, probe, why);
  own->opened = crl_health_doubt(&server->health) || event == CORRAL_EVENT_STORE_DOWN;
  return event;
}

/* Tells the breaker the result of a batch; one that was cut in the middle of a body says nothing of
 * the server. *slow: its operations found the server slow. Returns the event that became due, or
 * CORRAL_EVENT_COUNT. Under the mutex. */
static corral_event judge_batch(crl_server *server, request *own, const crl_pace *pace, int worked,
                                int64_t began, int probe, const corral_error *why, int *slow) {
  corral_event event = CORRAL_EVENT_COUNT;
  int in_body = !worked && crl_pace_in_body(pace);
  int is_silent = (!worked || is_unsent(own)) && ran_out(pace);
  own->cut = in_body && own->next != NULL;
  *slow = in_body && crl_breaker_is_slow(&server->health.breaker);
  if (in_body && !probe) return event;
  if (is_silent) {
    event = judge_silence(server, own, began, limit_of(pace), probe, why);
    *slow = !server->health.breaker.open;
    return event;
  }
  event = crl_health_outcome(&server->health, worked, probe, why);
  own->opened = event == CORRAL_EVENT_STORE_DOWN;
  return event;
}

/* True for looks and claims while those are held back. */
static int is_held_back(const crl_server *server, const request *own) {
  int held = crl_health_holds_back(&server->health);
  for (size_t i = 0; i < own->count && held; i++)
    held = own->ops[i].verb == CORRAL_VERB_GET || own->ops[i].verb == CORRAL_VERB_CLAIM;
  return held;
}

/* Refuses the operations of `own`, and hands its handle on. Entered with the mutex, left
 * without. */
static void refuse(crl_server *server, request *own) {
  corral_error why = server->health.why;
  int slow = !server->health.breaker.open;
  pass_on(own->seats, own->handle);
  pthread_mutex_unlock(&server->mutex);
  crl_server_batch_refuse(own->ops, own->count,
                          why.status == CORRAL_EAUTH ? CORRAL_EAUTH : CORRAL_EUNAVAILABLE,
                          why.text[0] != '\0' ? why.text : "no answer yet");
  if (slow) crl_server_batch_mark_slow(own->ops, own->count);
}

/* Leads a batch on own->handle, then hands the handle on. Entered with the mutex, left without. */
static void serve(crl_server *server, request *own) {
  corral_error why;
  crl_pace pace;
  int worked, probe, slow;
  own->next = NULL;
  if (!crl_health_may_ask(&server->health, &probe) || is_held_back(server, own)) {
    refuse(server, own);
    return;
  }
  size_t count = gather(&own->next, own);
  int64_t began = crl_env_now_ms();
  pthread_mutex_unlock(&server->mutex);
  void *handle = perform_batch(server, own, count, own->handle, &pace, &worked, &why);
  pthread_mutex_lock(&server->mutex);
  corral_event event = judge_batch(server, own, &pace, worked, began, probe, &why, &slow);
  if (slow) crl_server_batch_mark_slow(own->ops, own->count);
  for (request *r = own->next, *next; r != NULL; r = next) {
    next = r->next;
    if (slow) crl_server_batch_mark_slow(r->ops, r->count);
    r->seat = SERVED;
    r->cut = own->cut;
    crl_waiter_wake(&r->waiter);
  }
  pass_on(own->seats, handle);
  pthread_mutex_unlock(&server->mutex);
  crl_server_batch_report(server->options, server->number, event, &why);
}

/* Begins own's op_ms now: the time in the queue is not the server's. */
static void renew_limit(const crl_server *server, request *own) {
  int64_t limit = crl_env_now_ms() + server->options->op_ms;
  own->limit = limit < own->latest ? limit : own->latest;
}

static void leave_queue(const request *own) {
  request **link = &own->seats->head;
  while (*link != own) link = &(*link)->next;
  *link = own->next;
  if (*link == NULL) own->seats->tail = link;
}

static int is_queued(const request *own) {
  const request *r = own->seats->head;
  while (r != NULL && r != own) r = r->next;
  return r != NULL;
}

/* Waits until a handle is handed over, or another caller has performed this request along; 0 when
 * its time ran out in the queue. A request that is being performed is waited for without a limit:
 * its batch has one. Under the mutex. */
static int wait_in_queue(crl_server *server, request *own) {
  /* bodies queued in front of a large request take more than op_ms */
  int64_t until = own->seats == &server->large ? own->latest : own->limit;
  own->seat = QUEUED;
  own->next = NULL;
  *own->seats->tail = own;
  own->seats->tail = &own->next;
  while (own->seat == QUEUED) {
    pthread_mutex_unlock(&server->mutex);
    int woken = crl_waiter_sleep(&own->waiter, until);
    pthread_mutex_lock(&server->mutex);
    if (woken || own->seat != QUEUED) continue;
    if (is_queued(own)) {
      leave_queue(own);
      return 0;
    }
    until = INT64_MAX;
  }
  return 1;
}

static void perform_pooled(crl_server *server, request *own) {
  int in_time = 1;
  seats *all = own->seats;
  pthread_mutex_lock(&server->mutex);
  if (all->idle_count > 0) {
    own->handle = all->idle[--all->idle_count];
  } else if (all->open_count < all->most) {
    all->open_count++;
  } else {
    in_time = wait_in_queue(server, own);
    if (!in_time || own->seat == SERVED) {
      int is_away = server->health.breaker.open;
      pthread_mutex_unlock(&server->mutex);
      if (in_time) return;
      crl_server_batch_refuse(own->ops, own->count, CORRAL_EUNAVAILABLE,
                              "no connection to the store became free in time");
      if (!is_away) crl_server_batch_mark_slow(own->ops, own->count);
      return;
    }
    if (all == &server->large) renew_limit(server, own);
  }
  serve(server, own);
}

/* ---- public -------------------------------------------------------------------------------- */

static size_t weigh(const corral_op *ops, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += crl_server_record_len(&ops[i]) + ops[i].key_len;
  return bytes;
}

/* One attempt; true when its batch was cut in the middle of another caller's body. *opened becomes
 * true where crl_server_perform returns true. */
static int perform_as(crl_server *server, corral_op *ops, size_t count, int64_t deadline,
                      int is_large, int alone, int *opened) {
  request own = {.ops = ops, .count = count, .bytes = weigh(ops, count), .latest = deadline};
  own.seats = is_large ? &server->large : &server->usual;
  own.limit = crl_env_now_ms() + server->options->op_ms;
  /* a caller with less time than op_ms isn't made to wait for others' operations */
  own.hurried = deadline < own.limit;
  if (own.hurried) own.limit = deadline;
  own.alone = alone || own.bytes > ALONE_BYTES || own.hurried || count > BATCH_OPS;
  crl_server_batch_flag(ops, count, !is_large);
  perform_pooled(server, &own);
  *opened |= own.opened;
  return own.cut;
}

/* An operation that another caller's large body cut off is asked once more, alone. A large record
 * is read on a handle for large ones. */
int crl_server_perform(crl_server *server, corral_op *ops, size_t count, int64_t deadline) {
  size_t bytes = weigh(ops, count);
  int opened = 0, is_large = bytes > LARGE_BYTES;
  if (server->options->plugin->threads == CORRAL_THREADS_PARALLEL) {
    int64_t limit = crl_env_now_ms() + server->options->op_ms + (int64_t)(bytes / BYTES_A_MS);
    perform_shared(server, ops, count, deadline < limit ? deadline : limit);
    return 0;
  }
  if (perform_as(server, ops, count, deadline, is_large, 0, &opened) &&
      crl_server_batch_repeatable(ops, count))
    perform_as(server, ops, count, deadline, is_large, 1, &opened);
  for (size_t i = 0; i < count; i++)
    if ((ops[i].flags & CORRAL_OP_LARGE) != 0)
      perform_as(server, &ops[i], 1, deadline, 1, 1, &opened);
  for (size_t i = 0; i < count; i++) ops[i].flags &= ~(uint32_t)(CORRAL_OP_LESS | CORRAL_OP_LARGE);
  return opened;
}

void crl_server_self_probing(crl_server *server, int self_probing) {
  pthread_mutex_lock(&server->mutex);
  crl_health_self_probing(&server->health, self_probing);
  pthread_mutex_unlock(&server->mutex);
}

int64_t crl_server_probe_at(crl_server *server) {
  pthread_mutex_lock(&server->mutex);
  int64_t at = crl_health_probe_at(&server->health);
  pthread_mutex_unlock(&server->mutex);
  return at;
}

int64_t crl_server_failures(crl_server *server) {
  pthread_mutex_lock(&server->mutex);
  int64_t failures = server->health.breaker.failures + crl_breaker_is_slow(&server->health.breaker);
  pthread_mutex_unlock(&server->mutex);
  return failures;
}

/* Performs on the probe's handle, with all of op_ms. */
static int perform_probe(crl_server *server, corral_op *ops, size_t count, crl_findings *ret) {
  ret->began = crl_env_now_ms();
  pthread_mutex_lock(&server->mutex);
  int64_t limit =
      ret->began + crl_breaker_patience(&server->health.breaker, server->options->op_ms);
  pthread_mutex_unlock(&server->mutex);
  crl_pace pace = {.first = limit,
                   .deadline = limit + (int64_t)(weigh(ops, count) / BYTES_A_MS),
                   .latest = INT64_MAX,
                   .quiet_ms = server->options->op_ms};
  ret->works = crl_server_batch_perform(server->options, server->number, &server->probe_handle, ops,
                                        count, &pace, &ret->why) == CORRAL_OK;
  ret->limit = limit_of(&pace);
  ret->is_silent = !ret->works && ran_out(&pace);
  return ret->works;
}

int crl_server_perform_probe(crl_server *server, corral_op *ops, size_t count) {
  crl_findings unused;
  return server->probe_handle != NULL && perform_probe(server, ops, count, &unused);
}

/* Puts a handle that works among the idle ones, if there is room. Returns a handle that the caller
 * is to disconnect, or NULL. Under the mutex. */
static void *take_in(crl_server *server, void *handle) {
  if (handle == NULL || server->usual.open_count >= server->usual.most) return handle;
  server->usual.open_count++;
  pass_on(&server->usual, handle);
  return NULL;
}

static void ask_probe(crl_server *server, crl_findings *ret) {
  const char *key = server->options->probe_key;
  uint32_t verb = server->options->info.locks_only ? CORRAL_VERB_LOCK_SHOW : CORRAL_VERB_GET;
  corral_op op = {.verb = verb, .key = key, .key_len = strlen(key)};
  (void)perform_probe(server, &op, 1, ret);
  if (op.found.drop != NULL) op.found.drop(op.found.owner);
}

/* Before callers are let to it again: a server that was away, or silent, may have missed what
 * callers sent. One that fails now after a silence is silent still. */
static void repeat_unheard(crl_server *server, struct crl_pool *pool, crl_findings *found,
                           int rests) {
  const crl_pool_options *options = server->options;
  if (options->on_return == NULL || options->on_return(options->return_arg, pool, server->number))
    return;
  found->works = 0;
  found->is_silent = !rests;
  found->limit = crl_env_now_ms();
}

void crl_server_probe(crl_server *server, struct crl_pool *pool) {
  const crl_pool_options *options = server->options;
  crl_findings found;
  pthread_mutex_lock(&server->mutex);
  int rests = crl_breaker_probe(&server->health.breaker, crl_env_now_ms()),
      held = server->health.holding, due = rests || server->health.checking;
  pthread_mutex_unlock(&server->mutex);
  if (!due) return;
  ask_probe(server, &found);
  if (found.works && (rests || held)) repeat_unheard(server, pool, &found, rests);
  pthread_mutex_lock(&server->mutex);
  corral_event event = crl_health_probed(&server->health, &found, rests);
  void *left = take_in(server, server->probe_handle);
  server->probe_handle = NULL;
  pthread_mutex_unlock(&server->mutex);
  if (left != NULL) options->plugin->disconnect(left);
  crl_server_batch_report(server->options, server->number, event, &found.why);
}
