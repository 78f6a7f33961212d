/* pool.c: the handles of one store: combines callers' operations into batches, closes broken handles, rests a failing store. */
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "env.h"
#include "status.h"
#include "value.h"

enum {
  BATCH_OPS = 256,          /* operations of a combined batch, at the most */
  BATCH_BYTES = 1 << 20,    /* and their bytes */
  ALONE_BYTES = 64 << 10,   /* larger ones take a handle alone */
  HANDLES = 64
};

typedef enum seat { QUEUED, LEADS, SERVED } seat;

/* One caller with its operations, on that caller's stack. */
typedef struct request {
  struct request *next;
  corral_op *ops;
  size_t count;
  size_t bytes;
  int64_t deadline;
  int alone;
  int hurried; /* its caller has less time than op_ms: reaching that limit says nothing of the store */
  seat seat;
  void *handle; /* LEADS: the one that was handed over; NULL: open one */
  pthread_cond_t cond;
} request;

struct crl_pool {
  crl_pool_options options;
  pthread_mutex_t mutex;
  request *head, **tail;
  void *idle[HANDLES];
  size_t idle_count, open_count, most;
  /* CORRAL_THREADS_PARALLEL: the one handle; one that broke, to be disconnected when nobody is inside; who is inside */
  void *_Atomic shared;
  void *retired;
  _Atomic size_t inside;
  /* the breaker */
  int64_t failures, rest_until;
  int probing, down;
  corral_error why;
};

crl_pool *crl_pool_new(const crl_pool_options *options) {
  crl_pool *pool = crl_alloc(sizeof *pool);
  if (pool == NULL) return NULL;
  pool->options = *options;
  pthread_mutex_init(&pool->mutex, NULL);
  pool->tail = &pool->head;
  pool->most = (size_t)(options->handles > 0 ? options->handles : options->info.handles);
  if (pool->most > HANDLES) pool->most = HANDLES;
  return pool;
}

void crl_pool_free(crl_pool *pool) {
  const corral_store *plugin = pool->options.plugin;
  for (size_t i = 0; i < pool->idle_count; i++) plugin->disconnect(pool->idle[i]);
  if (pool->retired != NULL) plugin->disconnect(pool->retired);
  if (pool->shared != NULL) plugin->disconnect(pool->shared);
  plugin->close(pool->options.store);
  pthread_mutex_destroy(&pool->mutex);
  free(pool);
}

const corral_store_info *crl_pool_info(const crl_pool *pool) { return &pool->options.info; }

/* ---- the breaker: under the mutex ------------------------------------------------------------------------ */

/* True when the store may be asked; the one call that probes a resting store is marked. */
static int may_ask(crl_pool *pool, int *probe) {
  *probe = 0;
  if (!pool->down) return 1;
  if (pool->probing || crl_env_now_ms() < pool->rest_until) return 0;
  pool->probing = *probe = 1;
  return 1;
}

/* Tells which event became due, or CORRAL_EVENT_COUNT. */
static corral_event note_outcome(crl_pool *pool, int worked, int probe, const corral_error *why) {
  if (worked) {
    int was_down = pool->down;
    pool->failures = 0;
    pool->down = 0;
    return was_down ? CORRAL_EVENT_STORE_UP : CORRAL_EVENT_COUNT;
  }
  pool->why = *why;
  pool->failures++;
  if (pool->down) {
    if (probe) pool->rest_until = crl_env_now_ms() + pool->options.breaker_rest_ms;
    return CORRAL_EVENT_COUNT;
  }
  if (pool->failures < pool->options.breaker_failures) return CORRAL_EVENT_COUNT;
  pool->down = 1;
  pool->rest_until = crl_env_now_ms() + pool->options.breaker_rest_ms;
  return CORRAL_EVENT_STORE_DOWN;
}

/* ---- one batch on one handle: without the mutex ---------------------------------------------------------- */

static void refuse(corral_op *ops, size_t count, int status, const char *text) {
  for (size_t i = 0; i < count; i++) {
    ops[i].status = status;
    crl_status_fail(ops[i].error, status, "%s", text);
  }
}

static void preset(corral_op *op) {
  op->status = CORRAL_EUNKNOWN;
  op->same = 0;
  op->found = NULL;
  op->found_len = 0;
  op->found_free = NULL;
  op->found_owner = NULL;
  op->life_ms = op->until_ms = 0;
}

/* Not sent, or sent and harmless to send again. */
static int repeatable(const corral_op *op) {
  return op->status == CORRAL_EUNAVAILABLE || (op->status == CORRAL_EUNKNOWN && op->verb == CORRAL_VERB_GET);
}

static int all_repeatable(const corral_op *ops, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!repeatable(&ops[i])) return 0;
  return 1;
}

/* Performs a batch; a connection that the server had closed while it was idle is replaced once. */
static int perform(crl_pool *pool, void **handle, corral_op *ops, size_t count, int64_t deadline, corral_error *why) {
  const corral_store *plugin = pool->options.plugin;
  for (int fresh = 0;;) {
    int status = CORRAL_OK;
    memset(why, 0, sizeof *why);
    if (*handle == NULL) {
      fresh = 1;
      status = plugin->connect(pool->options.store, deadline, handle, why);
      if (status != CORRAL_OK) {
        *handle = NULL;
        refuse(ops, count, status, why->text);
        return status;
      }
    }
    for (size_t i = 0; i < count; i++) preset(&ops[i]);
    status = plugin->perform(*handle, ops, count, deadline, why);
    if (status == CORRAL_OK) return CORRAL_OK;
    plugin->disconnect(*handle);
    *handle = NULL;
    for (size_t i = 0; i < count; i++)
      if (ops[i].status == CORRAL_EUNKNOWN || ops[i].status == CORRAL_EUNAVAILABLE) crl_status_fail(ops[i].error, ops[i].status, "%s", why->text);
    if (fresh || crl_env_now_ms() >= deadline || !all_repeatable(ops, count)) return status;
  }
}

/* ---- a store whose handle all threads share -------------------------------------------------------------- */

static void report(crl_pool *pool, corral_event event, const char *text) {
  if (event != CORRAL_EVENT_COUNT) crl_event_emit(pool->options.events, event, NULL, 0, text);
}

/* Opens the one handle, unless somebody has. Under the mutex. */
static int open_shared(crl_pool *pool, int64_t deadline, corral_event *event, corral_error *why) {
  const corral_store *plugin = pool->options.plugin;
  void *handle = NULL;
  int probe;
  if (atomic_load(&pool->shared) != NULL) return CORRAL_OK;
  if (!may_ask(pool, &probe)) {
    *why = pool->why;
    return why->status == CORRAL_OK ? CORRAL_EUNAVAILABLE : why->status;
  }
  int status = CORRAL_OK;
  if (pool->retired != NULL && atomic_load(&pool->inside) > 0) {
    status = crl_status_fail(why, CORRAL_EUNAVAILABLE, "the store broke, and is about to be opened anew");
  } else {
    if (pool->retired != NULL) plugin->disconnect(pool->retired);
    pool->retired = NULL;
    status = plugin->connect(pool->options.store, deadline, &handle, why);
    if (status == CORRAL_OK) atomic_store(&pool->shared, handle);
    *event = note_outcome(pool, status == CORRAL_OK, probe, why);
  }
  if (probe) pool->probing = 0;
  return status;
}

/* The handle, with the caller counted inside; NULL when there is none. Whoever is counted before `shared` was taken away
 * may still use it, whoever comes later finds NULL: so with nobody inside a retired handle is nobody's. */
static void *enter_shared(crl_pool *pool) {
  atomic_fetch_add(&pool->inside, 1);
  void *handle = atomic_load(&pool->shared);
  if (handle == NULL) atomic_fetch_sub(&pool->inside, 1);
  return handle;
}

static void retire_shared(crl_pool *pool, void *handle) {
  pthread_mutex_lock(&pool->mutex);
  if (atomic_load(&pool->shared) == handle) {
    atomic_store(&pool->shared, NULL);
    pool->retired = handle;
  }
  pthread_mutex_unlock(&pool->mutex);
}

static void perform_shared(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  corral_error why = {0};
  void *handle;
  while ((handle = enter_shared(pool)) == NULL) {
    corral_event event = CORRAL_EVENT_COUNT;
    pthread_mutex_lock(&pool->mutex);
    int status = open_shared(pool, deadline, &event, &why);
    pthread_mutex_unlock(&pool->mutex);
    report(pool, event, why.text);
    if (status == CORRAL_OK) continue;
    refuse(ops, count, status, why.text);
    return;
  }
  for (size_t i = 0; i < count; i++) preset(&ops[i]);
  if (pool->options.plugin->perform(handle, ops, count, deadline, &why) != CORRAL_OK) {
    for (size_t i = 0; i < count; i++)
      if (ops[i].status == CORRAL_EUNKNOWN) crl_status_fail(ops[i].error, CORRAL_EUNKNOWN, "%s", why.text);
    retire_shared(pool, handle);
  }
  atomic_fetch_sub(&pool->inside, 1);
}

/* ---- handles that one thread at a time uses -------------------------------------------------------------- */

/* Takes from the queue what goes along with `mine`: cut by count and bytes; those who want a handle alone stay. */
static size_t gather(crl_pool *pool, request **mine, request *own) {
  size_t count = own->count, bytes = own->bytes;
  request **link = &pool->head, **end = mine;
  while (!own->alone && *link != NULL) {
    request *other = *link;
    if (other->alone || count + other->count > BATCH_OPS || bytes + other->bytes > BATCH_BYTES) {
      link = &other->next;
      continue;
    }
    *link = other->next;
    if (other->next == NULL) pool->tail = link;
    other->next = NULL;
    *end = other;
    end = &other->next;
    count += other->count;
    bytes += other->bytes;
  }
  return count;
}

/* Hands a handle (or the right to open one) to the head of the queue, or puts it to rest. Under the mutex. */
static void pass_on(crl_pool *pool, void *handle) {
  request *next = pool->head;
  if (next == NULL) {
    if (handle != NULL) pool->idle[pool->idle_count++] = handle;
    else pool->open_count--;
    return;
  }
  pool->head = next->next;
  if (pool->head == NULL) pool->tail = &pool->head;
  next->next = NULL;
  next->handle = handle;
  next->seat = LEADS;
  pthread_cond_signal(&next->cond);
}

static void copy_results(request *all, const corral_op *batch) {
  for (request *r = all; r != NULL; r = r->next) {
    memcpy(r->ops, batch, r->count * sizeof *batch);
    batch += r->count;
  }
}

/* Performs own's operations and those of `others`, on `handle`; returns the handle, NULL when it broke. */
static void *perform_batch(crl_pool *pool, request *own, size_t count, void *handle, int *worked, corral_error *why) {
  corral_op batch[BATCH_OPS];
  corral_op *ops = own->ops;
  int64_t deadline = own->deadline;
  if (own->next != NULL) {
    size_t at = 0;
    for (request *r = own; r != NULL; r = r->next) {
      memcpy(batch + at, r->ops, r->count * sizeof *batch);
      at += r->count;
      if (r->deadline > deadline) deadline = r->deadline;
    }
    ops = batch;
  }
  *worked = perform(pool, &handle, ops, count, deadline, why) == CORRAL_OK;
  if (own->next != NULL) copy_results(own, batch);
  return handle;
}

static void serve(crl_pool *pool, request *own) {
  corral_error why;
  int worked, probe;
  own->next = NULL;
  if (!may_ask(pool, &probe)) {
    why = pool->why;
    pass_on(pool, own->handle);
    pthread_mutex_unlock(&pool->mutex);
    refuse(own->ops, own->count, why.status == CORRAL_EAUTH ? CORRAL_EAUTH : CORRAL_EUNAVAILABLE, why.text);
    return;
  }
  size_t count = gather(pool, &own->next, own);
  pthread_mutex_unlock(&pool->mutex);
  void *handle = perform_batch(pool, own, count, own->handle, &worked, &why);
  pthread_mutex_lock(&pool->mutex);
  corral_event event = CORRAL_EVENT_COUNT;
  if (probe) pool->probing = 0;
  if (worked || !own->hurried || crl_env_now_ms() < own->deadline) event = note_outcome(pool, worked, probe, &why);
  for (request *r = own->next, *next; r != NULL; r = next) {
    next = r->next;
    r->seat = SERVED;
    pthread_cond_signal(&r->cond);
  }
  pass_on(pool, handle);
  pthread_mutex_unlock(&pool->mutex);
  report(pool, event, why.text);
}

static void leave_queue(crl_pool *pool, const request *own) {
  request **link = &pool->head;
  while (*link != own) link = &(*link)->next;
  *link = own->next;
  if (*link == NULL) pool->tail = link;
}

/* Waits for a handle, or for somebody who performs this request along; 0 when its time ran out first. Once somebody
 * performs it, it is waited for: the batch ends by the latest of its requests' deadlines. Under the mutex. */
static int wait_in_queue(crl_pool *pool, request *own) {
  int queued = 1;
  own->seat = QUEUED;
  own->next = NULL;
  *pool->tail = own;
  pool->tail = &own->next;
  while (own->seat == QUEUED) {
    if (crl_env_cond_wait(&own->cond, &pool->mutex, own->deadline) || own->seat != QUEUED) continue;
    queued = 0;
    for (const request *r = pool->head; r != NULL; r = r->next)
      if (r == own) queued = 1;
    if (queued) {
      leave_queue(pool, own);
      return 0;
    }
    while (own->seat == QUEUED) pthread_cond_wait(&own->cond, &pool->mutex);
  }
  return 1;
}

static void perform_pooled(crl_pool *pool, request *own) {
  int in_time = 1;
  pthread_mutex_lock(&pool->mutex);
  if (pool->idle_count > 0) {
    own->handle = pool->idle[--pool->idle_count];
  } else if (pool->open_count < pool->most) {
    pool->open_count++;
  } else {
    crl_env_cond_init(&own->cond);
    in_time = wait_in_queue(pool, own);
    pthread_cond_destroy(&own->cond);
    if (!in_time || own->seat == SERVED) {
      pthread_mutex_unlock(&pool->mutex);
      if (!in_time) refuse(own->ops, own->count, CORRAL_EUNAVAILABLE, "no connection to the store became free in time");
      return;
    }
  }
  serve(pool, own);
}

static size_t weigh(const corral_op *ops, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += ops[i].record_len + ops[i].key_len;
  return bytes;
}

void crl_pool_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  int64_t now = crl_env_now_ms(), own_limit = now + pool->options.op_ms;
  request own = {.ops = ops, .count = count};
  for (size_t i = 0; i < count; i++)
    if (ops[i].record_len > pool->options.info.max_record) {
      refuse(ops, count, CORRAL_ETOOBIG, "the record is larger than this store accepts");
      return;
    }
  /* Large records get the time that they need at 10 MB/s. */
  own.bytes = weigh(ops, count);
  own_limit += (int64_t)(own.bytes / 10000);
  own.deadline = deadline < own_limit ? deadline : own_limit;
  /* One with less time than others isn't made to wait for theirs. */
  own.hurried = own.deadline < own_limit;
  own.alone = own.bytes > ALONE_BYTES || own.hurried || count > BATCH_OPS;
  if (pool->options.plugin->threads == CORRAL_THREADS_PARALLEL) perform_shared(pool, ops, count, own.deadline);
  else perform_pooled(pool, &own);
}
