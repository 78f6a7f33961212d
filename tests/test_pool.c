/* test_pool.c: handles, batches and the breaker, with a scripted store. Threads synchronize by
 * counts, not by times.
 *
 * The pool's source is included under other names, so that a test can read the number of queued
 * callers. */
#define crl_pool_new own_pool_new
#define crl_pool_free own_pool_free
#define crl_pool_perform own_pool_perform
#define crl_pool_info own_pool_info
#define crl_pool_route own_pool_route
#define crl_pool_perform_probe own_pool_perform_probe
#define crl_lane_new own_lane_new
#define crl_lane_free own_lane_free
#define crl_lane_perform own_lane_perform
#define crl_lane_self_probing own_lane_self_probing
#define crl_lane_probe_at own_lane_probe_at
#define crl_lane_failures own_lane_failures
#define crl_lane_probe own_lane_probe
#define crl_lane_perform_probe own_lane_perform_probe
#include "lane.c" /* NOLINT(bugprone-suspicious-include) */
#include "pool.c" /* NOLINT(bugprone-suspicious-include) */

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <sched.h>

enum { CALLERS = 6, FAR = 60000, LOG = 64, MOST = 4 << 20, LARGE = 2 << 20 };

/* ---- fake store ---------------------------------------------------------------------------- */

typedef struct fake {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  /* 1: all batches wait; 2: only batches whose first operation has a large record */
  int gate;
  size_t large_len; /* keys of this length have a large record */
  int reads_whole;  /* large records read completely */
  int body_next;    /* number of batches to break in the middle of a body */
  int at_gate;
  int refuse;        /* connecting fails */
  int refuse_server; /* connecting to this server fails; -1: none */
  int break_next;    /* number of batches that break the handle... */
  int broken_status; /* ...with this status */
  int connects, disconnects, open, most_open, inside, most_inside, closed;
  size_t batches[LOG]; /* sizes of the batches */
  int batch_count;
} fake;

static fake the_fake;

static int fake_open(const corral_host *host, const corral_uri *uri, void **ret,
                     corral_store_info *info, corral_error *error) {
  (void)host, (void)uri, (void)ret, (void)info, (void)error;
  return CORRAL_OK;
}

static void fake_close(void *store) { ((fake *)store)->closed++; }

static int fake_connect_server(void *store, size_t server, int64_t deadline, void **ret,
                               corral_error *error) {
  fake *f = store;
  (void)deadline;
  pthread_mutex_lock(&f->mutex);
  f->connects++;
  pthread_cond_broadcast(&f->changed);
  int refused = f->refuse || f->refuse_server == (int)server;
  if (!refused && ++f->open > f->most_open) f->most_open = f->open;
  pthread_mutex_unlock(&f->mutex);
  if (refused) return crl_status_fail(error, CORRAL_EUNAVAILABLE, "refused");
  *ret = f;
  return CORRAL_OK;
}

static int fake_connect(void *store, int64_t deadline, void **ret, corral_error *error) {
  return fake_connect_server(store, 0, deadline, ret, error);
}

/* Keys of an odd length belong to server 1. */
static size_t fake_route(void *store, const void *key, size_t key_len) {
  (void)store, (void)key;
  return key_len % 2;
}

static void fake_disconnect(void *handle) {
  fake *f = handle;
  pthread_mutex_lock(&f->mutex);
  f->disconnects++;
  f->open--;
  pthread_mutex_unlock(&f->mutex);
}

/* A large record is skipped when LESS allows it, else it must be alone in its batch. */
static void look_at_large(fake *f, corral_op *op, size_t count) {
  if ((op->flags & CORRAL_OP_LESS) != 0) {
    op->flags |= CORRAL_OP_LARGE;
    op->status = CORRAL_EUNKNOWN;
    return;
  }
  assert_int_equal(count, 1);
  f->reads_whole++;
}

static int fake_perform(void *handle, corral_op *ops, size_t count, int64_t deadline,
                        corral_error *error) {
  fake *f = handle;
  pthread_mutex_lock(&f->mutex);
  assert_true(f->batch_count < LOG);
  f->batches[f->batch_count++] = count;
  if (++f->inside > f->most_inside) f->most_inside = f->inside;
  f->at_gate++;
  pthread_cond_broadcast(&f->changed);
  while (f->gate == 1 || (f->gate == 2 && ops[0].record_len >= LARGE))
    pthread_cond_wait(&f->changed, &f->mutex);
  f->at_gate--;
  f->inside--;
  int stalls = f->body_next > 0, breaks = stalls || f->break_next > 0;
  f->body_next -= stalls;
  f->break_next -= breaks && !stalls;
  if (stalls) crl_pace_moved(LARGE, deadline);
  for (size_t i = 0; i < count; i++) {
    ops[i].status = breaks ? f->broken_status : CORRAL_OK;
    ops[i].life_ms = (int64_t)ops[i].key_len; /* a result that differs by operation */
    if (!breaks && ops[i].verb == CORRAL_VERB_GET && ops[i].key_len == f->large_len)
      look_at_large(f, &ops[i], count);
  }
  pthread_mutex_unlock(&f->mutex);
  return breaks ? crl_status_fail(error, CORRAL_EUNAVAILABLE, "broke") : CORRAL_OK;
}

static const corral_store handled = {.size = sizeof handled,
                                     .abi = CORRAL_PLUGIN_ABI,
                                     .threads = CORRAL_THREADS_HANDLE,
                                     .name = "fake",
                                     .schemes = "fake",
                                     .open = fake_open,
                                     .close = fake_close,
                                     .connect = fake_connect,
                                     .disconnect = fake_disconnect,
                                     .perform = fake_perform};

static const corral_store spread = {.size = sizeof spread,
                                    .abi = CORRAL_PLUGIN_ABI,
                                    .threads = CORRAL_THREADS_HANDLE,
                                    .name = "fake",
                                    .schemes = "fake",
                                    .open = fake_open,
                                    .close = fake_close,
                                    .connect = fake_connect,
                                    .disconnect = fake_disconnect,
                                    .perform = fake_perform,
                                    .route = fake_route,
                                    .connect_server = fake_connect_server};

static crl_events events;
static _Atomic int returns, return_works;

/* Sends one operation to a server that is back. */
static int on_return(void *arg, crl_pool *pool, size_t server) {
  corral_op op = {.verb = CORRAL_VERB_INVALIDATE, .key = "back", .key_len = 4};
  (void)arg;
  returns++;
  assert_int_equal(crl_pool_perform_probe(pool, server, &op, 1), 1);
  return return_works;
}

static crl_pool *pool_with(const corral_store *plugin, size_t servers, int64_t handles,
                           int64_t rest_ms) {
  memset(&the_fake, 0, sizeof the_fake);
  memset(&events, 0, sizeof events);
  pthread_mutex_init(&the_fake.mutex, NULL);
  pthread_cond_init(&the_fake.changed, NULL);
  the_fake.broken_status = CORRAL_EUNKNOWN;
  the_fake.refuse_server = -1;
  returns = 0;
  return_works = 1;
  crl_pool_options options = {
      .plugin = plugin,
      .store = &the_fake,
      .info = {.size = sizeof options.info, .max_record = MOST, .handles = 2, .servers = servers},
      .probe_key = "probe",
      .on_return = on_return,
      .handles = handles,
      .op_ms = FAR,
      .breaker_failures = 3,
      .breaker_rest_ms = rest_ms,
      .events = &events};
  crl_pool *pool = crl_pool_new(&options);
  assert_non_null(pool);
  return pool;
}

static crl_pool *pool_of(int64_t handles, int64_t rest_ms) {
  return pool_with(&handled, 1, handles, rest_ms);
}

static void pool_end(crl_pool *pool) {
  crl_pool_free(pool);
  assert_int_equal(the_fake.open, 0);
  assert_int_equal(the_fake.closed, 1);
  pthread_mutex_destroy(&the_fake.mutex);
  pthread_cond_destroy(&the_fake.changed);
}

static void set_gate(int closed) {
  pthread_mutex_lock(&the_fake.mutex);
  the_fake.gate = closed;
  pthread_cond_broadcast(&the_fake.changed);
  pthread_mutex_unlock(&the_fake.mutex);
}

static void until_at_gate(int count) {
  pthread_mutex_lock(&the_fake.mutex);
  while (the_fake.at_gate != count) pthread_cond_wait(&the_fake.changed, &the_fake.mutex);
  pthread_mutex_unlock(&the_fake.mutex);
}

static void until_queued(crl_pool *pool, int count) {
  for (int queued = -1; queued != count; sched_yield()) {
    crl_lane *lane = pool->lanes[0];
    pthread_mutex_lock(&lane->mutex);
    queued = 0;
    for (const request *r = lane->usual.head; r != NULL; r = r->next) queued++;
    pthread_mutex_unlock(&lane->mutex);
  }
}

/* ---- callers ------------------------------------------------------------------------------- */

static const char keys[] = "abcdefghij";

static corral_op op_of(corral_verb verb, size_t key_len) {
  return (corral_op){.verb = verb, .key = keys, .key_len = key_len};
}

static int one(crl_pool *pool, corral_verb verb) {
  corral_op op = op_of(verb, 1);
  crl_pool_perform(pool, &op, 1, INT64_MAX);
  return op.status;
}

typedef struct caller {
  pthread_t thread;
  crl_pool *pool;
  corral_op op;
} caller;

static void *call(void *arg) {
  caller *c = arg;
  crl_pool_perform(c->pool, &c->op, 1, INT64_MAX);
  return NULL;
}

static void start(caller *c, crl_pool *pool, corral_op op) {
  c->pool = pool;
  c->op = op;
  assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
}

/* ---- batches ------------------------------------------------------------------------------- */

static void one_caller_alone_uses_one_handle_again_and_again(void **state) {
  (void)state;
  crl_pool *pool = pool_of(2, FAR);
  for (int i = 0; i < 5; i++) assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_int_equal(the_fake.connects, 1);
  assert_int_equal(the_fake.batch_count, 5);
  pool_end(pool);
}

static void whoever_queued_meanwhile_goes_as_one_batch(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  caller first, others[CALLERS];
  set_gate(1);
  start(&first, pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(1);
  for (int i = 0; i < CALLERS; i++) start(&others[i], pool, op_of(CORRAL_VERB_GET, (size_t)i + 2));
  until_queued(pool, CALLERS);
  set_gate(0);
  pthread_join(first.thread, NULL);
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(others[i].thread, NULL);
    assert_int_equal(others[i].op.status, CORRAL_OK);
    assert_int_equal(others[i].op.life_ms, i + 2);
  }
  assert_int_equal(the_fake.batch_count, 2);
  assert_int_equal(the_fake.batches[0], 1);
  assert_int_equal(the_fake.batches[1], CALLERS);
  assert_int_equal(the_fake.connects, 1);
  pool_end(pool);
}

static void a_large_record_goes_alone(void **state) {
  (void)state;
  static const uint8_t large[100 << 10];
  crl_pool *pool = pool_of(1, FAR);
  caller first, others[3];
  corral_op big = op_of(CORRAL_VERB_SETTLE, 3);
  big.record = large;
  big.record_len = sizeof large;
  set_gate(1);
  start(&first, pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(1);
  for (int i = 0; i < 3; i++) {
    start(&others[i], pool, i == 1 ? big : op_of(CORRAL_VERB_GET, 2));
    until_queued(pool, i + 1);
  }
  set_gate(0);
  pthread_join(first.thread, NULL);
  for (int i = 0; i < 3; i++) pthread_join(others[i].thread, NULL);
  assert_int_equal(the_fake.batch_count, 3);
  /* the head of the queue took the other small operation along, past the large one */
  assert_int_equal(the_fake.batches[1], 2);
  assert_int_equal(the_fake.batches[2], 1);
  pool_end(pool);
}

static void there_are_never_more_handles_than_the_limit(void **state) {
  (void)state;
  crl_pool *pool = pool_of(3, FAR);
  caller callers[CALLERS];
  set_gate(1);
  for (int i = 0; i < CALLERS; i++) start(&callers[i], pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(3);
  until_queued(pool, CALLERS - 3);
  set_gate(0);
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i].thread, NULL);
  assert_int_equal(the_fake.most_open, 3);
  assert_int_equal(the_fake.most_inside, 3);
  pool_end(pool);
}

static void who_is_still_queued_at_the_deadline_is_told_so(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  caller first;
  corral_error error = {0};
  corral_op op = op_of(CORRAL_VERB_GET, 2);
  op.error = &error;
  set_gate(1);
  start(&first, pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(1);
  crl_pool_perform(pool, &op, 1, crl_env_now_ms());
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(error.text, "in time"));
  until_queued(pool, 0);
  set_gate(0);
  pthread_join(first.thread, NULL);
  assert_int_equal(first.op.status, CORRAL_OK);
  assert_int_equal(the_fake.batch_count, 1);
  pool_end(pool);
}

static void a_record_that_the_store_would_not_take_is_not_sent(void **state) {
  (void)state;
  static const uint8_t byte[1];
  crl_pool *pool = pool_of(1, FAR);
  corral_op op = op_of(CORRAL_VERB_SETTLE, 1);
  op.record = byte;
  op.record_len = MOST + 1;
  crl_pool_perform(pool, &op, 1, INT64_MAX);
  assert_int_equal(op.status, CORRAL_ETOOBIG);
  assert_int_equal(the_fake.connects, 0);
  pool_end(pool);
}

/* ---- bodies -------------------------------------------------------------------------------- */

static void a_large_record_is_in_nobodys_way(void **state) {
  (void)state;
  static const uint8_t large[LARGE];
  crl_pool *pool = pool_of(1, FAR);
  caller first;
  corral_op big = op_of(CORRAL_VERB_SETTLE, 3);
  big.record = large;
  big.record_len = sizeof large;
  set_gate(2);
  start(&first, pool, big);
  until_at_gate(1);
  for (int i = 0; i < 3; i++) assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_int_equal(the_fake.most_open, 2);
  set_gate(0);
  pthread_join(first.thread, NULL);
  assert_int_equal(first.op.status, CORRAL_OK);
  pool_end(pool);
}

static void a_look_that_meets_a_large_record_is_repeated_alone(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  corral_op ops[] = {op_of(CORRAL_VERB_GET, 1), op_of(CORRAL_VERB_GET, 2),
                     op_of(CORRAL_VERB_GET, 3)};
  the_fake.large_len = 2;
  crl_pool_perform(pool, ops, 3, INT64_MAX);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(ops[i].status, CORRAL_OK);
    assert_int_equal(ops[i].flags, 0);
    assert_int_equal(ops[i].life_ms, i + 1);
  }
  assert_int_equal(the_fake.reads_whole, 1);
  assert_int_equal(the_fake.batch_count, 2);
  assert_int_equal(the_fake.connects, 2);
  pool_end(pool);
}

static void what_was_cut_in_the_middle_of_anothers_body_is_asked_again(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  caller first, others[CALLERS];
  set_gate(1);
  start(&first, pool, op_of(CORRAL_VERB_CLAIM, 1));
  until_at_gate(1);
  for (int i = 0; i < CALLERS; i++) start(&others[i], pool, op_of(CORRAL_VERB_GET, (size_t)i + 2));
  until_queued(pool, CALLERS);
  the_fake.body_next = 2; /* the first caller's batch, and that of the others */
  set_gate(0);
  pthread_join(first.thread, NULL);
  assert_int_equal(first.op.status, CORRAL_EUNKNOWN); /* the claim may have been granted */
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(others[i].thread, NULL);
    assert_int_equal(others[i].op.status, CORRAL_OK);
  }
  assert_int_equal(the_fake.batches[1], CALLERS);
  pool_end(pool);
}

static void failures_in_the_middle_of_bodies_do_not_open_the_breaker(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.body_next = 10;
  for (int i = 0; i < 10; i++) assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_EUNKNOWN);
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  assert_int_equal(events.count[CORRAL_EVENT_STORE_DOWN], 0);
  pool_end(pool);
}

/* ---- broken handles ------------------------------------------------------------------------ */

static void a_broken_handle_is_closed_and_replaced(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.break_next = 1;
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_EUNKNOWN);
  assert_int_equal(the_fake.disconnects, 1);
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  assert_int_equal(the_fake.connects, 2);
  assert_int_equal(the_fake.most_open, 1);
  pool_end(pool);
}

/* Number of times a verb is sent when the idle handle breaks with the status `left`. */
static int sent_times(corral_verb verb, int left, int breaks) {
  crl_pool *pool = pool_of(1, FAR);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  the_fake.break_next = breaks;
  the_fake.broken_status = left;
  assert_int_equal(one(pool, verb),
                   breaks > 1 || (left == CORRAL_EUNKNOWN && verb != CORRAL_VERB_GET) ? left
                                                                                      : CORRAL_OK);
  int sent = the_fake.batch_count - 1;
  pool_end(pool);
  return sent;
}

static void what_was_not_sent_or_does_no_harm_is_sent_again_once(void **state) {
  (void)state;
  assert_int_equal(sent_times(CORRAL_VERB_CLAIM, CORRAL_EUNAVAILABLE, 1), 2);
  assert_int_equal(sent_times(CORRAL_VERB_GET, CORRAL_EUNKNOWN, 1), 2);
  assert_int_equal(sent_times(CORRAL_VERB_SETTLE, CORRAL_EUNKNOWN, 1), 1);
  assert_int_equal(sent_times(CORRAL_VERB_GET, CORRAL_EUNAVAILABLE, 9), 2);
}

static void a_fresh_handle_that_breaks_is_not_tried_again(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.break_next = 1;
  the_fake.broken_status = CORRAL_EUNAVAILABLE;
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  assert_int_equal(the_fake.batch_count, 1);
  pool_end(pool);
}

/* ---- the breaker --------------------------------------------------------------------------- */

static void after_failures_in_a_row_the_store_is_left_to_rest(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.refuse = 1;
  for (int i = 0; i < 10; i++) assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  assert_int_equal(the_fake.connects, 3);
  assert_int_equal(events.count[CORRAL_EVENT_STORE_DOWN], 1);
  pool_end(pool);
}

static void a_success_between_keeps_the_breaker_closed(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  for (int i = 0; i < 5; i++) {
    the_fake.break_next = 2;
    one(pool, CORRAL_VERB_CLAIM);
    one(pool, CORRAL_VERB_CLAIM);
    assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  }
  assert_int_equal(events.count[CORRAL_EVENT_STORE_DOWN], 0);
  pool_end(pool);
}

/* Ends the rest of a server and wakes the prober. */
static void let_rest_end(crl_pool *pool, size_t server) {
  crl_lane *lane = pool->lanes[server];
  pthread_mutex_lock(&lane->mutex);
  lane->breaker.rest_until = 0;
  pthread_mutex_unlock(&lane->mutex);
  pthread_mutex_lock(&pool->mutex);
  pthread_cond_signal(&pool->wake);
  pthread_mutex_unlock(&pool->mutex);
}

static void until_connects(int count) {
  pthread_mutex_lock(&the_fake.mutex);
  while (the_fake.connects < count) pthread_cond_wait(&the_fake.changed, &the_fake.mutex);
  pthread_mutex_unlock(&the_fake.mutex);
}

static void until_event(corral_event event, unsigned count) {
  while (atomic_load(&events.count[event]) < count) sched_yield();
}

static void until_resting(crl_pool *pool) {
  for (int probing = 1; probing; sched_yield()) {
    pthread_mutex_lock(&pool->lanes[0]->mutex);
    probing = pool->lanes[0]->breaker.probing;
    pthread_mutex_unlock(&pool->lanes[0]->mutex);
  }
}

static void after_the_rest_a_thread_probes_and_no_caller_waits_for_it(void **state) {
  (void)state;
  crl_pool *pool = pool_of(2, FAR);
  the_fake.refuse = 1;
  for (int i = 0; i < 3; i++) one(pool, CORRAL_VERB_GET);
  let_rest_end(pool, 0);
  until_connects(4);
  until_resting(pool); /* the probe failed, so the server rests again */
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  assert_int_equal(the_fake.connects, 4);
  set_gate(1);
  pthread_mutex_lock(&the_fake.mutex);
  the_fake.refuse = 0;
  pthread_mutex_unlock(&the_fake.mutex);
  let_rest_end(pool, 0);
  until_at_gate(1);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE); /* the breaker is half open */
  assert_int_equal(events.count[CORRAL_EVENT_STORE_UP], 0);
  set_gate(0);
  until_event(CORRAL_EVENT_STORE_UP, 1);
  assert_int_equal(returns, 1);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_int_equal(the_fake.connects, 5); /* uses the probe's handle */
  assert_int_equal(events.count[CORRAL_EVENT_STORE_DOWN], 1);
  pool_end(pool);
}

static void a_server_that_fails_what_is_offered_to_it_rests_again(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.refuse = 1;
  return_works = 0;
  for (int i = 0; i < 3; i++) one(pool, CORRAL_VERB_GET);
  pthread_mutex_lock(&the_fake.mutex);
  the_fake.refuse = 0;
  pthread_mutex_unlock(&the_fake.mutex);
  let_rest_end(pool, 0);
  until_connects(4);
  until_resting(pool);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  return_works = 1;
  let_rest_end(pool, 0);
  until_event(CORRAL_EVENT_STORE_UP, 1);
  assert_int_equal(returns, 2);
  pool_end(pool);
}

static int hurried(crl_pool *pool) {
  corral_op op = op_of(CORRAL_VERB_CLAIM, 1);
  crl_pool_perform(pool, &op, 1, crl_env_now_ms());
  return op.status;
}

static void callers_in_a_hurry_raise_a_doubt_that_a_probe_settles(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.refuse = 1;
  for (int i = 0; i < 2; i++) assert_int_equal(hurried(pool), CORRAL_EUNAVAILABLE);
  the_fake.refuse = 0;
  assert_int_equal(hurried(pool), CORRAL_OK); /* the success ends the doubt */
  pthread_mutex_lock(&pool->lanes[0]->mutex);
  assert_int_equal(pool->lanes[0]->doubts, 0);
  pthread_mutex_unlock(&pool->lanes[0]->mutex);
  the_fake.break_next = 1;
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_EUNKNOWN);
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  assert_int_equal(atomic_load(&pool->started), 0);
  the_fake.break_next = 1;
  one(pool, CORRAL_VERB_CLAIM);
  the_fake.refuse = 1;
  for (int i = 0; i < 3; i++) hurried(pool);
  until_event(CORRAL_EVENT_STORE_DOWN, 1);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  pool_end(pool);
}

/* ---- several servers ----------------------------------------------------------------------- */

static void a_sick_server_costs_the_keys_of_the_others_nothing(void **state) {
  (void)state;
  crl_pool *pool = pool_with(&spread, 2, 1, FAR);
  the_fake.refuse_server = 1;
  corral_op odd = op_of(CORRAL_VERB_GET, 1), even = op_of(CORRAL_VERB_GET, 2);
  for (int i = 0; i < 5; i++) {
    crl_pool_perform(pool, &odd, 1, INT64_MAX);
    crl_pool_perform(pool, &even, 1, INT64_MAX);
    assert_int_equal(odd.status, CORRAL_EUNAVAILABLE);
    assert_int_equal(even.status, CORRAL_OK);
  }
  assert_int_equal(the_fake.connects, 3 + 1);
  assert_int_equal(events.count[CORRAL_EVENT_STORE_DOWN], 1);
  pool_end(pool);
}

static void a_batch_is_split_by_server_and_each_operation_gets_its_own_result(void **state) {
  (void)state;
  crl_pool *pool = pool_with(&spread, 2, 1, FAR);
  corral_op ops[6];
  the_fake.refuse_server = 1;
  for (size_t i = 0; i < 6; i++) ops[i] = op_of(CORRAL_VERB_GET, i + 1);
  crl_pool_perform(pool, ops, 6, INT64_MAX);
  for (size_t i = 0; i < 6; i++) {
    assert_int_equal(ops[i].status, i % 2 == 0 ? CORRAL_EUNAVAILABLE : CORRAL_OK);
    if (i % 2 == 1) assert_int_equal(ops[i].life_ms, i + 1);
  }
  assert_int_equal(the_fake.batch_count, 1);
  assert_int_equal(the_fake.batches[0], 3);
  pool_end(pool);
}

static void a_server_that_is_back_is_told_apart_from_one_that_is_not(void **state) {
  (void)state;
  crl_pool *pool = pool_with(&spread, 2, 1, FAR);
  corral_op odd = op_of(CORRAL_VERB_GET, 1), even = op_of(CORRAL_VERB_GET, 2);
  the_fake.refuse = 1;
  for (int i = 0; i < 3; i++) {
    crl_pool_perform(pool, &odd, 1, INT64_MAX);
    crl_pool_perform(pool, &even, 1, INT64_MAX);
  }
  pthread_mutex_lock(&the_fake.mutex);
  the_fake.refuse = 0;
  pthread_mutex_unlock(&the_fake.mutex);
  let_rest_end(pool, 1);
  until_event(CORRAL_EVENT_STORE_UP, 1);
  crl_pool_perform(pool, &odd, 1, INT64_MAX);
  crl_pool_perform(pool, &even, 1, INT64_MAX);
  assert_int_equal(odd.status, CORRAL_OK);
  assert_int_equal(even.status, CORRAL_EUNAVAILABLE);
  pool_end(pool);
}

static void without_memory_the_store_stays_its_caller_s(void **state) {
  (void)state;
  crl_pool_options options = {
      .plugin = &handled, .store = &the_fake, .events = &events, .info = {.servers = 1}};
  the_fake.closed = 0;
  crl_alloc_countdown = 0;
  assert_null(crl_pool_new(&options));
  crl_alloc_countdown = 1; /* the lane's allocation fails */
  assert_null(crl_pool_new(&options));
  assert_int_equal(the_fake.closed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_caller_alone_uses_one_handle_again_and_again),
      cmocka_unit_test(whoever_queued_meanwhile_goes_as_one_batch),
      cmocka_unit_test(a_large_record_goes_alone),
      cmocka_unit_test(there_are_never_more_handles_than_the_limit),
      cmocka_unit_test(who_is_still_queued_at_the_deadline_is_told_so),
      cmocka_unit_test(a_record_that_the_store_would_not_take_is_not_sent),
      cmocka_unit_test(a_large_record_is_in_nobodys_way),
      cmocka_unit_test(a_look_that_meets_a_large_record_is_repeated_alone),
      cmocka_unit_test(what_was_cut_in_the_middle_of_anothers_body_is_asked_again),
      cmocka_unit_test(failures_in_the_middle_of_bodies_do_not_open_the_breaker),
      cmocka_unit_test(a_broken_handle_is_closed_and_replaced),
      cmocka_unit_test(what_was_not_sent_or_does_no_harm_is_sent_again_once),
      cmocka_unit_test(a_fresh_handle_that_breaks_is_not_tried_again),
      cmocka_unit_test(after_failures_in_a_row_the_store_is_left_to_rest),
      cmocka_unit_test(a_success_between_keeps_the_breaker_closed),
      cmocka_unit_test(after_the_rest_a_thread_probes_and_no_caller_waits_for_it),
      cmocka_unit_test(a_server_that_fails_what_is_offered_to_it_rests_again),
      cmocka_unit_test(callers_in_a_hurry_raise_a_doubt_that_a_probe_settles),
      cmocka_unit_test(a_sick_server_costs_the_keys_of_the_others_nothing),
      cmocka_unit_test(a_batch_is_split_by_server_and_each_operation_gets_its_own_result),
      cmocka_unit_test(a_server_that_is_back_is_told_apart_from_one_that_is_not),
      cmocka_unit_test(without_memory_the_store_stays_its_caller_s),
  };
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
