/* pool_kit.h: a pool with a scripted store, and callers of it. Threads synchronize by counts, not
 * by times. For tests of the pool.
 *
 * The sources of the pool and of its servers are included under other names, so that a test can
 * read the number of queued callers. */
#ifndef POOL_KIT_H
#define POOL_KIT_H

#define crl_pool_new own_pool_new
#define crl_pool_free own_pool_free
#define crl_pool_perform own_pool_perform
#define crl_pool_look own_pool_look
#define crl_pool_is_well_for own_pool_is_well_for
#define crl_pool_options_of own_pool_options_of
#define crl_pool_info own_pool_info
#define crl_pool_route own_pool_route
#define crl_pool_fails own_pool_fails
#define crl_pool_share own_pool_share
#define crl_pool_doubt own_pool_doubt
#define crl_pool_perform_probe own_pool_perform_probe
#include "support/events_kit.h"
#include "support/own_server.h"
#include "store/pool.c" /* NOLINT(bugprone-suspicious-include) */

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <sched.h>

enum { CALLERS = 6, FAR = 60000, AWAY = 60000, LOG = 64, MOST = 4 << 20, LARGE = 2 << 20 };

static const char PROBE[] = "probe";
static int64_t op_ms = FAR, away_ms = AWAY; /* of the pools that are made */

/* ---- fake store ---------------------------------------------------------------------------- */

typedef struct fake {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  /* 1: all batches wait; 2: only batches whose first operation has a large record; 3: only
   * probes; 4: only batches of several operations */
  int gate;
  int late;         /* a batch that breaks does so after its time */
  size_t large_len; /* keys of this length have a large record */
  int reads_whole;  /* large records read completely */
  int body_next;    /* number of batches to break in the middle of a body */
  int at_gate;
  int refuse;        /* connecting fails */
  int refuse_server; /* connecting to this server fails; -1: none */
  int refuse_next;   /* number of times that connecting fails */
  int break_next;    /* number of batches that break the handle... */
  int broken_status; /* ...with this status */
  int doubt_next;    /* number of batches that have this status on a handle that works */
  int connects, disconnects, open, most_open, inside, most_inside, closed;
  int asked[LOG];        /* the servers that were connected to, or refused */
  int64_t probe_time_ms; /* what the last probe was given */
  size_t batches[LOG];   /* sizes of the batches */
  int batch_count;
} fake;

static fake the_fake;

static inline int fake_open(const corral_host *host, const corral_uri *uri, void **ret,
                            corral_store_info *info, corral_error *error) {
  (void)host, (void)uri, (void)ret, (void)info, (void)error;
  return CORRAL_OK;
}

static inline void fake_close(void *store) { ((fake *)store)->closed++; }

static inline int fake_connect_server(void *store, size_t server, int64_t deadline, void **ret,
                                      corral_error *error) {
  fake *f = store;
  (void)deadline;
  pthread_mutex_lock(&f->mutex);
  if (f->connects < LOG) f->asked[f->connects] = (int)server;
  f->connects++;
  pthread_cond_broadcast(&f->changed);
  int refused = f->refuse || f->refuse_server == (int)server || f->refuse_next > 0;
  f->refuse_next -= f->refuse_next > 0;
  if (!refused && ++f->open > f->most_open) f->most_open = f->open;
  pthread_mutex_unlock(&f->mutex);
  if (refused) return crl_status_fail(error, CORRAL_EUNAVAILABLE, "refused");
  *ret = f;
  return CORRAL_OK;
}

static inline int fake_connect(void *store, int64_t deadline, void **ret, corral_error *error) {
  return fake_connect_server(store, 0, deadline, ret, error);
}

/* Keys of an odd length belong to server 1. */
static inline size_t fake_route(void *store, const void *key, size_t key_len) {
  (void)store, (void)key;
  return key_len % 2;
}

static inline void fake_disconnect(void *handle) {
  fake *f = handle;
  pthread_mutex_lock(&f->mutex);
  f->disconnects++;
  f->open--;
  pthread_mutex_unlock(&f->mutex);
}

/* A large record is skipped when LESS allows it, else it must be alone in its batch. */
static inline void look_at_large(fake *f, corral_op *op, size_t count) {
  if ((op->flags & CORRAL_OP_LESS) != 0) {
    op->flags |= CORRAL_OP_LARGE;
    op->status = CORRAL_EINDOUBT;
    return;
  }
  assert_int_equal(count, 1);
  f->reads_whole++;
  op->found.len = LARGE;
}

static inline int fake_perform(void *handle, const corral_batch *batch, int64_t deadline,
                               corral_error *error) {
  corral_op *ops = batch->ops;
  size_t count = batch->count;
  fake *f = handle;
  pthread_mutex_lock(&f->mutex);
  assert_true(f->batch_count < LOG);
  f->batches[f->batch_count++] = count;
  if (ops[0].key_len == sizeof PROBE - 1) f->probe_time_ms = deadline - crl_env_now_ms();
  if (++f->inside > f->most_inside) f->most_inside = f->inside;
  f->at_gate++;
  pthread_cond_broadcast(&f->changed);
  while (f->gate == 1 || (f->gate == 2 && crl_server_record_len(&ops[0]) >= LARGE) ||
         (f->gate == 3 && ops[0].key_len == sizeof PROBE - 1) || (f->gate == 4 && count > 1))
    pthread_cond_wait(&f->changed, &f->mutex);
  f->at_gate--;
  f->inside--;
  int stalls = f->body_next > 0, breaks = stalls || f->break_next > 0;
  f->body_next -= stalls;
  f->break_next -= breaks && !stalls;
  int doubts = f->doubt_next > 0;
  f->doubt_next -= doubts;
  if (stalls) crl_pace_moved(LARGE, deadline);
  while (breaks && f->late && crl_env_now_ms() <= deadline) sched_yield();
  for (size_t i = 0; i < count; i++) {
    ops[i].status = breaks || doubts ? f->broken_status : CORRAL_OK;
    ops[i].state.life_ms = (int64_t)ops[i].key_len; /* a result that differs by operation */
    if (!breaks && ops[i].verb == CORRAL_VERB_GET && ops[i].key_len == f->large_len)
      look_at_large(f, &ops[i], count);
  }
  pthread_mutex_unlock(&f->mutex);
  return breaks ? crl_status_fail(error, CORRAL_EUNAVAILABLE, "broke") : CORRAL_OK;
}

/* A store with handles, and what it has besides. */
#define FAKE_STORE(...)                                                                            \
  {                                                                                                \
    .size = sizeof(corral_store), .abi = CORRAL_PLUGIN_ABI, .threads = CORRAL_THREADS_HANDLE,      \
    .op_size = sizeof(corral_op), .name = "fake", .schemes = "fake", .open = fake_open,            \
    .close = fake_close, .connect = fake_connect, .disconnect = fake_disconnect,                   \
    .perform = fake_perform, __VA_ARGS__                                                           \
  }

static const corral_store handled = FAKE_STORE(.begin = NULL);

static inline int fake_begin(void *handle, const corral_batch *batch, corral_error *error) {
  (void)handle, (void)batch;
  return crl_status_fail(error, CORRAL_EUNAVAILABLE, "not begun");
}

/* The operations of a batch go in one go. */
static const corral_store pipelined = FAKE_STORE(.begin = fake_begin);

static const corral_store spread =
    FAKE_STORE(.route = fake_route, .connect_server = fake_connect_server);

static inline int fake_refresh(void *store, int64_t deadline, corral_error *error) {
  (void)store, (void)deadline, (void)error;
  return CORRAL_OK;
}

/* Its servers come and go. */
static const corral_store moving =
    FAKE_STORE(.route = fake_route, .connect_server = fake_connect_server, .refresh = fake_refresh);

static crl_events events;
static crl_threads threads;
static _Atomic int returns, return_works;

/* Sends one operation to a server that is back. */
static inline int on_return(void *arg, crl_pool *pool, size_t server) {
  corral_op op = {.verb = CORRAL_VERB_INVALIDATE, .key = "back", .key_len = 4};
  (void)arg;
  returns++;
  assert_int_equal(crl_pool_perform_probe(pool, server, &op, 1), 1);
  return return_works;
}

static inline crl_pool *pool_with(const corral_store *plugin, size_t servers, int64_t handles,
                                  int64_t rest_ms) {
  memset(&the_fake, 0, sizeof the_fake);
  events = events_anew();
  pthread_mutex_init(&the_fake.mutex, NULL);
  pthread_cond_init(&the_fake.changed, NULL);
  the_fake.broken_status = CORRAL_EINDOUBT;
  the_fake.refuse_server = -1;
  returns = 0;
  return_works = 1;
  crl_pool_options options = {.plugin = plugin,
                              .store = &the_fake,
                              .info = {.size = sizeof options.info,
                                       .max_record = MOST,
                                       .handles = 2,
                                       .servers = servers,
                                       .reach = CORRAL_REACH_FLEET},
                              .probe_key = PROBE,
                              .on_return = on_return,
                              .handles = handles,
                              .op_ms = op_ms,
                              .breaker_failures = 3,
                              .breaker_rest_ms = rest_ms,
                              .away_ms = away_ms,
                              .events = &events,
                              .threads = &threads};
  threads = (crl_threads){.timers = crl_timers_new(), .workers = crl_workers_new()};
  crl_pool *pool = crl_pool_new(&options);
  assert_non_null(pool);
  return pool;
}

static inline crl_pool *pool_of(int64_t handles, int64_t rest_ms) {
  return pool_with(&handled, 1, handles, rest_ms);
}

static inline void pool_end(crl_pool *pool) {
  crl_pool_free(pool);
  crl_timers_free(threads.timers);
  crl_workers_free(threads.workers);
  assert_int_equal(the_fake.open, 0);
  assert_int_equal(the_fake.closed, 1);
  pthread_mutex_destroy(&the_fake.mutex);
  pthread_cond_destroy(&the_fake.changed);
}

static inline void set_gate(int closed) {
  pthread_mutex_lock(&the_fake.mutex);
  the_fake.gate = closed;
  pthread_cond_broadcast(&the_fake.changed);
  pthread_mutex_unlock(&the_fake.mutex);
}

static inline void until_at_gate(int count) {
  pthread_mutex_lock(&the_fake.mutex);
  while (the_fake.at_gate != count) pthread_cond_wait(&the_fake.changed, &the_fake.mutex);
  pthread_mutex_unlock(&the_fake.mutex);
}

static inline void until_queued(crl_pool *pool, int count) {
  for (int queued = -1; queued != count; sched_yield()) {
    crl_server *server = pool->list[0];
    crl_latch_take(&server->latch);
    queued = 0;
    for (const crl_seat *s = server->usual.head; s != NULL; s = s->next) queued++;
    crl_latch_give(&server->latch);
  }
}

/* ---- callers ------------------------------------------------------------------------------- */

static const char keys[] = "abcdefghij";

static inline corral_op op_of(corral_verb verb, size_t key_len) {
  return (corral_op){.verb = verb, .key = keys, .key_len = key_len};
}

static inline int one(crl_pool *pool, corral_verb verb) {
  corral_op op = op_of(verb, 1);
  crl_pool_perform(pool, &op, 1, INT64_MAX);
  return op.status;
}

typedef struct caller {
  pthread_t thread;
  crl_pool *pool;
  corral_op op;
} caller;

static inline void *call(void *arg) {
  caller *c = arg;
  crl_pool_perform(c->pool, &c->op, 1, INT64_MAX);
  return NULL;
}

static inline void start(caller *c, crl_pool *pool, corral_op op) {
  c->pool = pool;
  c->op = op;
  assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
}

#endif
