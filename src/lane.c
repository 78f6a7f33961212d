/* lane.c: the handles of one server: combines callers' operations into batches, closes broken
 * handles, rests a failing server. */
#include "lane.h"

#include <pthread.h>
#include <stdlib.h>

#include "breaker.h"
#include "env.h"
#include "pace.h"
#include "status.h"
#include "value.h"

enum {
  BATCH_OPS = 256,        /* operations of a combined batch, at the most */
  BATCH_BYTES = 1 << 20,  /* and their bytes */
  ALONE_BYTES = 64 << 10, /* larger ones take a handle alone */
  LARGE_BYTES = 1 << 20,  /* larger ones a handle for large ones */
  /* the time that records get where the store doesn't tell of bytes that move */
  BYTES_A_MS = 10000,
  HANDLES = 64
};

typedef enum seat { QUEUED, LEADS, SERVED } seat;

/* One caller with its operations, on that caller's stack. */
typedef struct request {
  struct request *next;
  corral_op *ops;
  size_t count;
  size_t bytes;
  int64_t limit;  /* when it ends if nothing moves */
  int64_t latest; /* its caller's deadline: when it ends whatever moves */
  struct seats *seats;
  int alone;
  /* its caller has less time than op_ms: reaching that limit says nothing of the store */
  int hurried;
  seat seat;
  int opened;   /* its failure opened the breaker, or made a probe due */
  int cut;      /* the batch that it was in failed in the middle of a body */
  void *handle; /* LEADS: the one that was handed over; NULL: open one */
  pthread_cond_t cond;
} request;

/* Handles, and the queue for them. */
typedef struct seats {
  request *head, **tail;
  void *idle[HANDLES];
  size_t idle_count, open_count, most;
} seats;

struct crl_lane {
  const crl_pool_options *options;
  size_t server;
  pthread_mutex_t mutex;
  seats usual, large; /* a large body is never in the way of anything else */
  /* CORRAL_THREADS_PARALLEL: the one handle; one that broke, to be disconnected when nobody is
   * inside; who is inside */
  void *_Atomic shared;
  void *retired;
  _Atomic size_t inside;
  crl_breaker breaker;
  int64_t doubts; /* hurried callers in a row whose time ran out */
  /* so many that a probe shall tell whether the server or their haste is to blame */
  int checking;
  int self_probing;
  void *probe_handle; /* the probing thread's */
  corral_error why;   /* the last failure */
};

crl_lane *crl_lane_new(const crl_pool_options *options, size_t server) {
  crl_lane *lane = crl_alloc(sizeof *lane);
  if (lane == NULL) return NULL;
  lane->options = options;
  lane->server = server;
  pthread_mutex_init(&lane->mutex, NULL);
  lane->usual.tail = &lane->usual.head;
  lane->large.tail = &lane->large.head;
  lane->usual.most = (size_t)(options->handles > 0 ? options->handles : options->info.handles);
  if (lane->usual.most > HANDLES) lane->usual.most = HANDLES;
  lane->large.most = lane->usual.most;
  crl_breaker_start(&lane->breaker, options->breaker_failures, options->breaker_rest_ms);
  return lane;
}

void crl_lane_free(crl_lane *lane) {
  const corral_store *plugin = lane->options->plugin;
  for (size_t i = 0; i < lane->usual.idle_count; i++) plugin->disconnect(lane->usual.idle[i]);
  for (size_t i = 0; i < lane->large.idle_count; i++) plugin->disconnect(lane->large.idle[i]);
  if (lane->retired != NULL) plugin->disconnect(lane->retired);
  if (lane->shared != NULL) plugin->disconnect(lane->shared);
  pthread_mutex_destroy(&lane->mutex);
  free(lane);
}

/* ---- the breaker: under the mutex ---------------------------------------------------------- */

/* True when the server may be asked; *probe: by this call, to see whether it is back. */
static int may_ask(crl_lane *lane, int *probe) {
  *probe = lane->self_probing && crl_breaker_probe(&lane->breaker, crl_env_now_ms());
  return *probe || crl_breaker_lets(&lane->breaker);
}

/* Tells which event became due, or CORRAL_EVENT_COUNT. */
static corral_event note_outcome(crl_lane *lane, int worked, int probe, const corral_error *why) {
  if (worked)
    lane->doubts = 0;
  else
    lane->why = *why;
  switch (crl_breaker_note(&lane->breaker, worked, probe, crl_env_now_ms())) {
    case CRL_BREAKER_OPENED: return CORRAL_EVENT_STORE_DOWN;
    case CRL_BREAKER_CLOSED: return CORRAL_EVENT_STORE_UP;
    case CRL_BREAKER_SAME: break;
  }
  return CORRAL_EVENT_COUNT;
}

/* One with less time than others says nothing of the server, many in a row do raise a doubt; true
 * when it is to be checked. */
static int note_doubt(crl_lane *lane) {
  if (lane->self_probing || lane->checking || ++lane->doubts < lane->breaker.most) return 0;
  lane->checking = 1;
  return 1;
}

/* ---- one batch on one handle: without the mutex -------------------------------------------- */

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

/* Looks, and what a token may ask for twice. */
static int harmless(uint32_t verb) {
  return verb == CORRAL_VERB_GET || verb == CORRAL_VERB_LOCK || verb == CORRAL_VERB_LOCK_EXTEND ||
         verb == CORRAL_VERB_LOCK_SHOW;
}

/* Not sent, or sent and harmless to send again. */
static int repeatable(const corral_op *op) {
  return op->status == CORRAL_EUNAVAILABLE || (op->status == CORRAL_EUNKNOWN && harmless(op->verb));
}

static int all_repeatable(const corral_op *ops, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!repeatable(&ops[i])) return 0;
  return 1;
}

static int connect_to(crl_lane *lane, int64_t deadline, void **handle, corral_error *why) {
  const corral_store *plugin = lane->options->plugin;
  void *store = lane->options->store;
  if (lane->options->info.servers > 1)
    return plugin->connect_server(store, lane->server, deadline, handle, why);
  return plugin->connect(store, deadline, handle, why);
}

static int perform_paced(crl_lane *lane, void *handle, corral_op *ops, size_t count, crl_pace *pace,
                         corral_error *why) {
  crl_pace_begin(pace);
  int status = lane->options->plugin->perform(handle, ops, count, pace->deadline, why);
  crl_pace_end();
  return status;
}

static void report(const crl_lane *lane, corral_event event, const char *text) {
  if (event != CORRAL_EVENT_COUNT) crl_event_emit(lane->options->events, event, NULL, 0, text);
}

/* A text that came with CORRAL_OK: the store began anew. */
static void report_notice(const crl_lane *lane, corral_error *why) {
  if (why->status == CORRAL_OK && why->text[0] != '\0')
    report(lane, CORRAL_EVENT_STORE_ANEW, why->text);
  memset(why, 0, sizeof *why);
}

/* Performs a batch; a connection that the server had closed while it was idle is replaced once. */
static int perform_once(crl_lane *lane, void **handle, corral_op *ops, size_t count, crl_pace *pace,
                        corral_error *why) {
  const corral_store *plugin = lane->options->plugin;
  for (int fresh = 0;;) {
    int status = CORRAL_OK;
    memset(why, 0, sizeof *why);
    if (*handle == NULL) {
      fresh = 1;
      status = connect_to(lane, pace->first, handle, why);
      if (status != CORRAL_OK) {
        *handle = NULL;
        refuse(ops, count, status, why->text);
        return status;
      }
      report_notice(lane, why);
    }
    for (size_t i = 0; i < count; i++) preset(&ops[i]);
    status = perform_paced(lane, *handle, ops, count, pace, why);
    if (status == CORRAL_OK) {
      report_notice(lane, why);
      return CORRAL_OK;
    }
    plugin->disconnect(*handle);
    *handle = NULL;
    for (size_t i = 0; i < count; i++)
      if (ops[i].status == CORRAL_EUNKNOWN || ops[i].status == CORRAL_EUNAVAILABLE)
        crl_status_fail(ops[i].error, ops[i].status, "%s", why->text);
    if (fresh || crl_env_now_ms() >= pace->first || !all_repeatable(ops, count)) return status;
  }
}

/* ---- a store whose handle all threads share ------------------------------------------------ */

/* Opens the one handle, unless somebody has. Under the mutex. */
static int open_shared(crl_lane *lane, int64_t deadline, corral_event *event, corral_error *why) {
  void *handle = NULL;
  int probe;
  if (atomic_load(&lane->shared) != NULL) return CORRAL_OK;
  if (lane->retired != NULL && atomic_load(&lane->inside) > 0)
    return crl_status_fail(why, CORRAL_EUNAVAILABLE,
                           "the store broke, and is about to be opened anew");
  if (!may_ask(lane, &probe)) {
    *why = lane->why;
    return why->status == CORRAL_OK ? CORRAL_EUNAVAILABLE : why->status;
  }
  if (lane->retired != NULL) lane->options->plugin->disconnect(lane->retired);
  lane->retired = NULL;
  int status = connect_to(lane, deadline, &handle, why);
  if (status == CORRAL_OK) atomic_store(&lane->shared, handle);
  *event = note_outcome(lane, status == CORRAL_OK, probe, why);
  return status;
}

/* The handle, with the caller counted inside; NULL when there is none. Whoever is counted before
 * `shared` was taken away may still use it, whoever comes later finds NULL: so with nobody inside a
 * retired handle is nobody's. */
static void *enter_shared(crl_lane *lane) {
  atomic_fetch_add(&lane->inside, 1);
  void *handle = atomic_load(&lane->shared);
  if (handle == NULL) atomic_fetch_sub(&lane->inside, 1);
  return handle;
}

static void retire_shared(crl_lane *lane, void *handle) {
  pthread_mutex_lock(&lane->mutex);
  if (atomic_load(&lane->shared) == handle) {
    atomic_store(&lane->shared, NULL);
    lane->retired = handle;
  }
  pthread_mutex_unlock(&lane->mutex);
}

static void perform_shared(crl_lane *lane, corral_op *ops, size_t count, int64_t deadline) {
  corral_error why = {0};
  void *handle;
  while ((handle = enter_shared(lane)) == NULL) {
    corral_event event = CORRAL_EVENT_COUNT;
    pthread_mutex_lock(&lane->mutex);
    int status = open_shared(lane, deadline, &event, &why);
    pthread_mutex_unlock(&lane->mutex);
    report(lane, event, why.text);
    if (status == CORRAL_OK) {
      report_notice(lane, &why);
      continue;
    }
    refuse(ops, count, status, why.text);
    return;
  }
  for (size_t i = 0; i < count; i++) preset(&ops[i]);
  if (lane->options->plugin->perform(handle, ops, count, deadline, &why) != CORRAL_OK) {
    for (size_t i = 0; i < count; i++)
      if (ops[i].status == CORRAL_EUNKNOWN)
        crl_status_fail(ops[i].error, CORRAL_EUNKNOWN, "%s", why.text);
    retire_shared(lane, handle);
  } else {
    report_notice(lane, &why);
  }
  atomic_fetch_sub(&lane->inside, 1);
}

/* ---- handles that one thread at a time uses ------------------------------------------------ */

/* Takes from the queue what goes along with `mine`: cut by count and bytes; those who want a handle
 * alone stay. */
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

/* Hands a handle (or the right to open one) to the head of the queue, or puts it to rest. Under the
 * mutex. */
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
  pthread_cond_signal(&next->cond);
}

static void copy_results(request *all, const corral_op *batch) {
  for (request *r = all; r != NULL; r = r->next) {
    memcpy(r->ops, batch, r->count * sizeof *batch);
    batch += r->count;
  }
}

static int64_t by_size(const request *r) {
  int64_t limit = r->limit + (int64_t)(r->bytes / BYTES_A_MS);
  return limit < r->latest ? limit : r->latest;
}

/* The pace of one more request in a batch: those who have less time are not made to wait longer for
 * others' bodies. */
static void join_pace(crl_pace *pace, const request *r) {
  if (r->limit > pace->first) pace->first = r->limit;
  if (by_size(r) > pace->deadline) pace->deadline = by_size(r);
  if (r->latest < pace->latest) pace->latest = r->latest;
}

/* Performs own's operations and those of `others`, on `handle`; returns the handle, NULL when it
 * broke. */
static void *perform_batch(crl_lane *lane, request *own, size_t count, void *handle, crl_pace *pace,
                           int *worked, corral_error *why) {
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
  *pace = (crl_pace){.latest = INT64_MAX, .quiet_ms = lane->options->op_ms};
  for (const request *r = own; r != NULL; r = r->next) join_pace(pace, r);
  *worked = perform_once(lane, &handle, ops, count, pace, why) == CORRAL_OK;
  if (own->next != NULL) copy_results(own, batch);
  return handle;
}

/* What a batch came to, for the breaker: CORRAL_EVENT_COUNT, or the event that became due. One that
 * was cut in the middle of a body says nothing. */
static corral_event judge_batch(crl_lane *lane, request *own, const crl_pace *pace, int worked,
                                int probe, const corral_error *why) {
  corral_event event = CORRAL_EVENT_COUNT;
  int in_body = !worked && crl_pace_in_body(pace);
  own->cut = in_body && own->next != NULL;
  if (in_body && !probe) return event;
  if (probe || worked || !own->hurried || crl_env_now_ms() < own->limit) {
    event = note_outcome(lane, worked, probe, why);
    own->opened = event == CORRAL_EVENT_STORE_DOWN;
  } else {
    own->opened = note_doubt(lane);
  }
  return event;
}

static void serve(crl_lane *lane, request *own) {
  corral_error why;
  crl_pace pace;
  int worked, probe;
  own->next = NULL;
  if (!may_ask(lane, &probe)) {
    why = lane->why;
    pass_on(own->seats, own->handle);
    pthread_mutex_unlock(&lane->mutex);
    refuse(own->ops, own->count, why.status == CORRAL_EAUTH ? CORRAL_EAUTH : CORRAL_EUNAVAILABLE,
           why.text);
    return;
  }
  size_t count = gather(&own->next, own);
  pthread_mutex_unlock(&lane->mutex);
  void *handle = perform_batch(lane, own, count, own->handle, &pace, &worked, &why);
  pthread_mutex_lock(&lane->mutex);
  corral_event event = judge_batch(lane, own, &pace, worked, probe, &why);
  for (request *r = own->next, *next; r != NULL; r = next) {
    next = r->next;
    r->seat = SERVED;
    r->cut = own->cut;
    pthread_cond_signal(&r->cond);
  }
  pass_on(own->seats, handle);
  pthread_mutex_unlock(&lane->mutex);
  report(lane, event, why.text);
}

/* The time in the queue is not the server's. */
static void renew_limit(const crl_lane *lane, request *own) {
  int64_t limit = crl_env_now_ms() + lane->options->op_ms;
  own->limit = limit < own->latest ? limit : own->latest;
}

static void leave_queue(const request *own) {
  request **link = &own->seats->head;
  while (*link != own) link = &(*link)->next;
  *link = own->next;
  if (*link == NULL) own->seats->tail = link;
}

/* Waits for a handle, or for somebody who performs this request along; 0 when its time ran out
 * first. Once somebody performs it, it is waited for: the batch ends by the latest of its requests'
 * deadlines. Under the mutex. */
static int wait_in_queue(crl_lane *lane, request *own) {
  int queued = 1;
  /* the bodies in front of it take their time */
  int64_t until = own->seats == &lane->large ? own->latest : own->limit;
  own->seat = QUEUED;
  own->next = NULL;
  *own->seats->tail = own;
  own->seats->tail = &own->next;
  while (own->seat == QUEUED) {
    if (crl_env_cond_wait(&own->cond, &lane->mutex, until) || own->seat != QUEUED) continue;
    queued = 0;
    for (const request *r = own->seats->head; r != NULL; r = r->next)
      if (r == own) queued = 1;
    if (queued) {
      leave_queue(own);
      return 0;
    }
    while (own->seat == QUEUED) pthread_cond_wait(&own->cond, &lane->mutex);
  }
  return 1;
}

static void perform_pooled(crl_lane *lane, request *own) {
  int in_time = 1;
  seats *all = own->seats;
  pthread_mutex_lock(&lane->mutex);
  if (all->idle_count > 0) {
    own->handle = all->idle[--all->idle_count];
  } else if (all->open_count < all->most) {
    all->open_count++;
  } else {
    crl_env_cond_init(&own->cond);
    in_time = wait_in_queue(lane, own);
    pthread_cond_destroy(&own->cond);
    if (!in_time || own->seat == SERVED) {
      pthread_mutex_unlock(&lane->mutex);
      if (!in_time)
        refuse(own->ops, own->count, CORRAL_EUNAVAILABLE,
               "no connection to the store became free in time");
      return;
    }
    if (all == &lane->large) renew_limit(lane, own);
  }
  serve(lane, own);
}

/* ---- public -------------------------------------------------------------------------------- */

static size_t weigh(const corral_op *ops, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += ops[i].record_len + ops[i].key_len;
  return bytes;
}

/* The looks among them may leave a large record alone. */
static void allow_less(corral_op *ops, size_t count, int less) {
  for (size_t i = 0; i < count; i++) {
    ops[i].flags &= ~(uint32_t)(CORRAL_OP_LESS | CORRAL_OP_LARGE);
    if (less && ops[i].verb == CORRAL_VERB_GET) ops[i].flags |= CORRAL_OP_LESS;
  }
}

/* One attempt; true when it was cut in the middle of another's body. *opened as
 * crl_lane_perform. */
static int perform_as(crl_lane *lane, corral_op *ops, size_t count, int64_t deadline, int is_large,
                      int alone, int *opened) {
  request own = {.ops = ops, .count = count, .bytes = weigh(ops, count), .latest = deadline};
  own.seats = is_large ? &lane->large : &lane->usual;
  own.limit = crl_env_now_ms() + lane->options->op_ms;
  /* One with less time than others isn't made to wait for theirs. */
  own.hurried = deadline < own.limit;
  if (own.hurried) own.limit = deadline;
  own.alone = alone || own.bytes > ALONE_BYTES || own.hurried || count > BATCH_OPS;
  allow_less(ops, count, !is_large);
  perform_pooled(lane, &own);
  *opened |= own.opened;
  return own.cut;
}

/* An op that another's large body cut off is asked once more, alone;
 * a large record is read on a handle of its own kind. */
int crl_lane_perform(crl_lane *lane, corral_op *ops, size_t count, int64_t deadline) {
  size_t bytes = weigh(ops, count);
  int opened = 0, is_large = bytes > LARGE_BYTES;
  if (lane->options->plugin->threads == CORRAL_THREADS_PARALLEL) {
    int64_t limit = crl_env_now_ms() + lane->options->op_ms + (int64_t)(bytes / BYTES_A_MS);
    perform_shared(lane, ops, count, deadline < limit ? deadline : limit);
    return 0;
  }
  if (perform_as(lane, ops, count, deadline, is_large, 0, &opened) && all_repeatable(ops, count))
    perform_as(lane, ops, count, deadline, is_large, 1, &opened);
  for (size_t i = 0; i < count; i++)
    if ((ops[i].flags & CORRAL_OP_LARGE) != 0)
      perform_as(lane, &ops[i], 1, deadline, 1, 1, &opened);
  allow_less(ops, count, 0);
  return opened;
}

void crl_lane_self_probing(crl_lane *lane, int self_probing) {
  pthread_mutex_lock(&lane->mutex);
  lane->self_probing = self_probing;
  pthread_mutex_unlock(&lane->mutex);
}

int64_t crl_lane_probe_at(crl_lane *lane) {
  pthread_mutex_lock(&lane->mutex);
  int64_t at = lane->breaker.open && !lane->self_probing ? lane->breaker.rest_until
               : lane->checking                          ? 0
                                                         : INT64_MAX;
  pthread_mutex_unlock(&lane->mutex);
  return at;
}

int64_t crl_lane_failures(crl_lane *lane) {
  pthread_mutex_lock(&lane->mutex);
  int64_t failures = lane->breaker.failures;
  pthread_mutex_unlock(&lane->mutex);
  return failures;
}

/* In full time, over the probe's handle. */
static int perform_probe(crl_lane *lane, corral_op *ops, size_t count, corral_error *why) {
  int64_t limit = crl_env_now_ms() + lane->options->op_ms;
  crl_pace pace = {.first = limit,
                   .deadline = limit + (int64_t)(weigh(ops, count) / BYTES_A_MS),
                   .latest = INT64_MAX,
                   .quiet_ms = lane->options->op_ms};
  return perform_once(lane, &lane->probe_handle, ops, count, &pace, why) == CORRAL_OK;
}

int crl_lane_perform_probe(crl_lane *lane, corral_op *ops, size_t count) {
  corral_error why;
  return lane->probe_handle != NULL && perform_probe(lane, ops, count, &why);
}

/* Puts a handle that works among the idle ones, if there is room. Under the mutex; returns what is
 * to be disconnected. */
static void *take_in(crl_lane *lane, void *handle) {
  if (handle == NULL || lane->usual.open_count >= lane->usual.most) return handle;
  lane->usual.open_count++;
  pass_on(&lane->usual, handle);
  return NULL;
}

static int ask_probe(crl_lane *lane, corral_error *why) {
  const char *key = lane->options->probe_key;
  uint32_t verb = lane->options->info.locks_only ? CORRAL_VERB_LOCK_SHOW : CORRAL_VERB_GET;
  corral_op op = {.verb = verb, .key = key, .key_len = strlen(key)};
  int works = perform_probe(lane, &op, 1, why);
  if (op.found_free != NULL) op.found_free(op.found_owner);
  return works;
}

/* A probe of a server that isn't resting and didn't answer in full time is as good as all the
 * failures that open the breaker. */
static corral_event note_probe(crl_lane *lane, int works, int rests, const corral_error *why) {
  corral_event event = CORRAL_EVENT_COUNT;
  int64_t times = works || rests ? 1 : lane->breaker.most;
  lane->checking = 0;
  for (int64_t i = 0; i < times && event == CORRAL_EVENT_COUNT; i++)
    event = note_outcome(lane, works, rests, why);
  lane->doubts = 0;
  return event;
}

void crl_lane_probe(crl_lane *lane, crl_pool *pool) {
  const crl_pool_options *options = lane->options;
  corral_error why;
  pthread_mutex_lock(&lane->mutex);
  int rests = crl_breaker_probe(&lane->breaker, crl_env_now_ms()), due = rests || lane->checking;
  pthread_mutex_unlock(&lane->mutex);
  if (!due) return;
  int works = ask_probe(lane, &why);
  if (works && rests && options->on_return != NULL)
    works = options->on_return(options->return_arg, pool, lane->server);
  pthread_mutex_lock(&lane->mutex);
  corral_event event = note_probe(lane, works, rests, &why);
  void *left = take_in(lane, lane->probe_handle);
  lane->probe_handle = NULL;
  pthread_mutex_unlock(&lane->mutex);
  if (left != NULL) options->plugin->disconnect(left);
  report(lane, event, why.text);
}
