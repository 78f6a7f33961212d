/* pool.c: access to a store: each of its servers has its own handles, queue and breaker. */
#include "store/pool.h"

#include <stddef.h>
#include <stdlib.h>

#include "os/env.h"
#include "store/op_times.h"
#include "store/refresh.h"
#include "store/server.h"
#include "store/server_batch.h"
#include "store/spread.h"
#include "base/status.h"
#include "base/value.h"

enum {
  HOPS = 5,
  REFRESH_LIMITS = 4, /* of op_ms, for a refresh */
  MAP_MOST = 256 << 10,
  LATER_MS = 20 /* until a turn is tried again, and up to as long again */
};

struct crl_pool {
  crl_pool_options options;
  crl_task prober, refresher, sweeper;
  _Atomic size_t probed; /* the number of the server that was probed last */
  crl_refresh refresh;
  crl_sharing sharing; /* all NULL: refreshes are this process's own */
  /* Of a store whose servers come and go, those that were ever needed; else all. */
  crl_server *_Atomic list[];
};

static size_t servers(const crl_pool *pool) { return pool->options.info.servers; }
static int moves(const crl_pool *pool) { return pool->options.plugin->refresh != NULL; }

static void free_servers(crl_pool *pool) {
  for (size_t i = 0; i < servers(pool); i++)
    if (pool->list[i] != NULL) crl_server_free(pool->list[i]);
}

static int self_probing(const crl_pool *pool) {
  return pool->options.plugin->threads == CORRAL_THREADS_PARALLEL || pool->options.threads == NULL;
}

static int64_t probe(crl_task *task);
static int64_t refresh_due(crl_task *task);
static int64_t sweep(crl_task *task);

/* Makes server `number`, unless another thread does. NULL without memory. */
static __attribute__((noinline)) crl_server *make_server(crl_pool *pool, size_t number) {
  crl_server *none = NULL, *server = crl_server_new(&pool->options, number);
  if (server == NULL) return NULL;
  crl_server_self_probing(server, self_probing(pool));
  if (atomic_compare_exchange_strong(&pool->list[number], &none, server)) return server;
  crl_server_free(server);
  return none;
}

static crl_server *server_at(crl_pool *pool, size_t number) {
  crl_server *server = atomic_load_explicit(&pool->list[number], memory_order_acquire);
  return server != NULL ? server : make_server(pool, number);
}

crl_pool *crl_pool_new(const crl_pool_options *options) {
  size_t count = options->info.servers > 0 ? options->info.servers : 1;
  crl_pool *pool = crl_alloc(sizeof *pool + count * sizeof(crl_server *));
  if (pool == NULL) return NULL;
  pool->options = *options;
  pool->options.info.servers = count;
  for (size_t i = 0; i < (moves(pool) ? 1 : count); i++)
    if (make_server(pool, i) == NULL) {
      free_servers(pool);
      free(pool);
      return NULL;
    }
  if (pool->options.threads == NULL) return pool;
  crl_task_init(&pool->prober, pool->options.threads, probe);
  crl_task_init(&pool->refresher, pool->options.threads, refresh_due);
  crl_task_init(&pool->sweeper, pool->options.threads, sweep);
  if (options->info.reach == CORRAL_REACH_FLEET) pool->options.sweeper = &pool->sweeper;
  return pool;
}

void crl_pool_free(crl_pool *pool) {
  if (pool->options.threads != NULL) {
    crl_task_stop(&pool->refresher);
    crl_task_stop(&pool->prober);
    crl_task_stop(&pool->sweeper); /* the others open handles */
  }
  free_servers(pool);
  pool->options.plugin->close(pool->options.store);
  free(pool);
}

const corral_store_info *crl_pool_info(const crl_pool *pool) { return &pool->options.info; }

size_t crl_pool_route(const crl_pool *pool, const void *key, size_t key_len) {
  if (servers(pool) == 1) return 0;
  size_t server = pool->options.plugin->route(pool->options.store, key, key_len);
  return server < servers(pool) ? server : server % servers(pool); /* a division takes long */
}

int crl_pool_fails(crl_pool *pool, const void *key, size_t key_len) {
  crl_server *server = server_at(pool, crl_pool_route(pool, key, key_len));
  return server != NULL && crl_server_failures(server) > 0;
}

int crl_pool_is_well_for(crl_pool *pool, const corral_op *op) {
  crl_server *server = server_at(pool, crl_pool_route(pool, op->key, op->key_len));
  return server != NULL && crl_server_is_well_for(server, op);
}

const crl_pool_options *crl_pool_options_of(const crl_pool *pool) { return &pool->options; }

/* ---- probing ------------------------------------------------------------------------------- */

/* Of several that are due, the first behind the one that was probed last: a server that hangs for
 * long keeps no other one from its turn. */
static crl_server *next_to_probe(crl_pool *pool, int64_t *at) {
  crl_server *next = NULL;
  size_t last = atomic_load(&pool->probed);
  int64_t now = crl_env_now_ms();
  *at = INT64_MAX;
  for (size_t i = 1; i <= servers(pool); i++) {
    crl_server *server = pool->list[(last + i) % servers(pool)];
    int64_t due = server != NULL ? crl_server_probe_at(server) : INT64_MAX;
    if (due < now) due = now;
    if (due >= *at) continue;
    *at = due;
    next = server;
  }
  return next;
}

static int64_t probe(crl_task *task) {
  crl_pool *pool = (crl_pool *)(void *)((char *)task - offsetof(crl_pool, prober));
  int64_t at;
  for (crl_server *server; (server = next_to_probe(pool, &at)) != NULL && at <= crl_env_now_ms();) {
    atomic_store(&pool->probed, crl_server_number(server));
    crl_server_probe(server, pool);
  }
  return at;
}

/* After a server asked for a probe. Without a thread to be had, callers probe. */
static __attribute__((noinline)) void call_prober(crl_pool *pool) {
  int64_t at;
  if (self_probing(pool) || next_to_probe(pool, &at) == NULL) return;
  if (crl_task_at(&pool->prober, at) == CORRAL_OK) return;
  for (size_t i = 0; i < servers(pool); i++)
    if (pool->list[i] != NULL) crl_server_self_probing(pool->list[i], 1);
}

void crl_pool_doubt(crl_pool *pool, size_t server) {
  crl_server *doubted = server_at(pool, server);
  if (doubted == NULL) return;
  crl_server_doubt(doubted);
  call_prober(pool);
}

/* ---- idle handles -------------------------------------------------------------------------- */

static int64_t sweep(crl_task *task) {
  crl_pool *pool = (crl_pool *)(void *)((char *)task - offsetof(crl_pool, sweeper));
  int are_left = 0;
  for (size_t i = 0; i < servers(pool); i++) {
    crl_server *server = atomic_load_explicit(&pool->list[i], memory_order_acquire);
    if (server != NULL) are_left |= crl_server_sweep(server);
  }
  return are_left ? crl_env_now_ms() + CRL_SWEEP_MS : INT64_MAX;
}

/* ---- which server has which keys ----------------------------------------------------------- */

static int ask_for_map(crl_pool *pool, uint8_t *room, corral_error *why) {
  const crl_pool_options *options = &pool->options;
  int64_t limit = crl_env_now_ms() + REFRESH_LIMITS * options->op_ms;
  int status = options->plugin->refresh(options->store, limit, why);
  size_t len = status == CORRAL_OK && room != NULL
                   ? options->plugin->map(options->store, room, MAP_MOST)
                   : 0;
  if (len > 0) pool->sharing.tell(pool->sharing.arg, room, len);
  return status;
}

/* `room`: NULL, or for a map; `len`: of the one in it that another process has learnt. One that
 * isn't understood, such as another version's, is no reason not to ask. */
static void refresh_now(crl_pool *pool, uint8_t *room, size_t len) {
  corral_error why = {0};
  int status = CORRAL_EUNAVAILABLE;
  if (len > 0) status = pool->options.plugin->take_map(pool->options.store, room, len, &why);
  if (status != CORRAL_OK) status = ask_for_map(pool, room, &why);
  int changed = status == CORRAL_OK && why.text[0] != '\0';
  crl_refresh_end(&pool->refresh, crl_env_now_ms(), changed, crl_env_dice());
  if (changed && pool->options.on_moved != NULL)
    pool->options.on_moved(pool->options.return_arg, pool);
}

static int64_t refresh_due(crl_task *task) {
  crl_pool *pool = (crl_pool *)(void *)((char *)task - offsetof(crl_pool, refresher));
  int64_t now = crl_env_now_ms();
  size_t len = 0;
  if (now < crl_refresh_at(&pool->refresh)) return crl_refresh_at(&pool->refresh);
  uint8_t *room = pool->sharing.take != NULL ? malloc(MAP_MOST) : NULL;
  crl_turn turn =
      room != NULL ? pool->sharing.take(pool->sharing.arg, now - crl_refresh_since(&pool->refresh),
                                        room, MAP_MOST, &len)
                   : CRL_TURN_ASK;
  if (turn != CRL_TURN_LATER && crl_refresh_begin(&pool->refresh, now))
    refresh_now(pool, room, len);
  free(room);
  return turn != CRL_TURN_LATER ? crl_refresh_at(&pool->refresh)
                                : now + LATER_MS + (int64_t)(crl_env_dice() % LATER_MS);
}

void crl_pool_share(crl_pool *pool, const crl_sharing *sharing) {
  const corral_store *plugin = pool->options.plugin;
  if (plugin->map != NULL && plugin->take_map != NULL) pool->sharing = *sharing;
}

/* Without a thread to be had, nothing but operations that are sent on tells where keys are. */
static __attribute__((noinline)) void want_refresh(crl_pool *pool) {
  int64_t at;
  if (!crl_refresh_want(&pool->refresh, crl_env_now_ms(), &at)) return;
  if (pool->options.threads != NULL) (void)crl_task_at(&pool->refresher, at);
}

/* ---- performing ---------------------------------------------------------------------------- */

static int too_big(const crl_pool *pool, corral_op *ops, size_t count) {
  size_t big = 0;
  while (big < count && crl_server_record_len(&ops[big]) <= pool->options.info.max_record) big++;
  for (size_t i = 0; big < count && i < count; i++)
    ops[i].status = crl_status_fail(
        ops[i].error, CORRAL_ETOOBIG, "the record has %zu bytes; this store accepts up to %llu",
        crl_server_record_len(&ops[big]), (unsigned long long)pool->options.info.max_record);
  return big < count;
}

static void perform_on(crl_pool *pool, crl_server *server, corral_op *ops, size_t count,
                       int64_t deadline) {
  if (crl_server_perform(server, ops, count, deadline)) call_prober(pool);
}

static void refuse_one(corral_op *op, int status) {
  op->status = crl_status_plain(op->error, status);
}

/* ---- operations that are sent from one server to another ------------------------------------ */

/* True when an operation is to be asked elsewhere: its server said so, or wasn't reached while
 * another one is known to have the key by now. */
static int goes_on(const crl_pool *pool, corral_op *op) {
  if (op->status == CORRAL_EMOVED) {
    op->server %= (uint32_t)servers(pool);
    op->flags &= ~(uint32_t)CORRAL_OP_MAPPED;
    return 1;
  }
  size_t route = op->server;
  if (crl_server_batch_repeatable(op, 1)) route = crl_pool_route(pool, op->key, op->key_len);
  if (route == op->server) return 0;
  op->server = (uint32_t)route;
  op->flags &= ~(uint32_t)CORRAL_OP_ASKING;
  return 1;
}

/* A key on its way is as it should be, and so is one that went to a server before the map was
 * known: nothing is to be learnt from that. */
static int is_astray(const corral_op *op) {
  return op->status == CORRAL_EUNAVAILABLE || op->status == CORRAL_EINDOUBT ||
         (op->status == CORRAL_EMOVED && (op->flags & (CORRAL_OP_ASKING | CORRAL_OP_MAPPED)) == 0);
}

/* Asks the servers of those operations that go on, each once. `batch`: room for all. */
static void hop(crl_pool *pool, corral_op *ops, uint8_t *goes, size_t count, corral_op *batch,
                int64_t deadline) {
  for (size_t i = 0; i < count; i++) {
    size_t n = 0;
    uint32_t number = ops[i].server;
    crl_server *server = goes[i] ? server_at(pool, number) : NULL;
    if (goes[i] && server == NULL) refuse_one(&ops[i], CORRAL_ENOMEM);
    if (server == NULL) continue;
    for (size_t j = i; j < count; j++)
      if (goes[j] && ops[j].server == number) batch[n++] = ops[j];
    perform_on(pool, server, batch, n, deadline);
    n = 0;
    for (size_t j = i; j < count; j++)
      if (goes[j] && ops[j].server == number) {
        goes[j] = 0;
        ops[j] = batch[n++];
      }
  }
}

/* True when an operation was answered by the server that has its key. */
static int is_answered(const corral_op *op) {
  return op->status != CORRAL_EMOVED && op->status != CORRAL_EUNAVAILABLE &&
         op->status != CORRAL_EINDOUBT;
}

/* A server that is of no use may have a successor soon: it is slow for a while, not away. */
static void end_follow(crl_pool *pool, corral_op *ops, size_t count) {
  int64_t now = crl_env_now_ms();
  for (size_t i = 0; i < count; i++) {
    crl_server *server = server_at(pool, ops[i].server);
    ops[i].flags &= ~(uint32_t)CORRAL_OP_ASKING;
    if (ops[i].status == CORRAL_EMOVED)
      ops[i].status = crl_status_fail(ops[i].error, CORRAL_EUNAVAILABLE,
                                      "the store's servers send this key to one another");
    if (server == NULL) continue;
    if (is_answered(&ops[i]))
      crl_server_answered(server);
    else if (crl_server_failed(server, now))
      crl_server_batch_mark_slow(&ops[i], 1);
  }
}

/* Marks the operations that go on; returns how many. */
static size_t mark(crl_pool *pool, corral_op *ops, uint8_t *goes, size_t count) {
  size_t marked = 0;
  int astray = 0;
  for (size_t i = 0; i < count; i++) {
    astray |= is_astray(&ops[i]);
    goes[i] = (uint8_t)goes_on(pool, &ops[i]);
    marked += goes[i];
  }
  if (astray) want_refresh(pool);
  return marked;
}

/* After operations of a store whose servers come and go. They follow as long as one operation may
 * last, and end within that time after it at the latest. */
static __attribute__((noinline)) void follow(crl_pool *pool, corral_op *ops, size_t count,
                                             int64_t began, int64_t deadline) {
  corral_op one, *batch = count == 1 ? &one : crl_alloc(count * sizeof *batch);
  uint8_t goes_one, *goes = count == 1 ? &goes_one : crl_alloc(count);
  int hops = batch != NULL && goes != NULL ? HOPS : 0;
  while (hops >= 0 && goes != NULL && mark(pool, ops, goes, count) > 0 && hops-- > 0 &&
         crl_env_now_ms() < began + pool->options.op_ms)
    hop(pool, ops, goes, count, batch, deadline);
  end_follow(pool, ops, count);
  if (count == 1) return;
  free(batch);
  free(goes);
}

/* True when all were answered, each by its first server. */
static int is_at_an_end(crl_pool *pool, const corral_op *ops, size_t count) {
  size_t i = 0;
  for (; i < count && is_answered(&ops[i]); i++) {
    crl_server *server = atomic_load_explicit(&pool->list[ops[i].server], memory_order_acquire);
    if (server != NULL) crl_server_answered(server);
  }
  return i == count;
}

int crl_pool_perform_probe(crl_pool *pool, size_t server, corral_op *ops, size_t count) {
  int64_t began = crl_env_now_ms();
  for (size_t i = 0; i < count; i++) ops[i].server = (uint32_t)server;
  int works = crl_server_perform_probe(server_at(pool, server), ops, count);
  if (works && moves(pool) && !is_at_an_end(pool, ops, count))
    follow(pool, ops, count, began, INT64_MAX);
  return works;
}

/* ---- looks --------------------------------------------------------------------------------- */

static void look_on(crl_pool *pool, crl_server *server, corral_op *op, int64_t now,
                    int64_t deadline, corral_error *why) {
  if (crl_server_look(server, op, now, deadline, why)) call_prober(pool);
}

/* Apart, since looks at a lone server need none of its room. */
static __attribute__((noinline)) void look_routed(crl_pool *pool, corral_op *op, int64_t now,
                                                  int64_t deadline, corral_error *why) {
  op->server = (uint32_t)crl_pool_route(pool, op->key, op->key_len);
  crl_server *server = server_at(pool, op->server);
  if (server == NULL) {
    refuse_one(op, CORRAL_ENOMEM);
    return;
  }
  look_on(pool, server, op, now, deadline, why);
  if (!moves(pool)) return;
  if (is_answered(op))
    crl_server_answered(server);
  else
    follow(pool, op, 1, now, deadline);
}

void crl_pool_look(crl_pool *pool, corral_op *op, int64_t now, int64_t deadline,
                   corral_error *why) {
  if (servers(pool) == 1)
    look_on(pool, pool->list[0], op, now, deadline, why);
  else
    look_routed(pool, op, now, deadline, why);
}

/* ---- batches ------------------------------------------------------------------------------- */

/* One batch per server, one after the other; servers with recent failures come last. */
static void perform_in_turn(crl_pool *pool, crl_spread *all, corral_op *batch) {
  for (size_t pass = 0; pass < 2; pass++)
    for (size_t first = 0; first < all->count; first++) {
      int s = all->routes[first];
      size_t n = 0;
      if (s == CRL_SPREAD_DONE) continue;
      crl_server *server = pool->list[s];
      if (pass == 0 && crl_server_failures(server) > 0) continue;
      for (size_t i = first; i < all->count; i++)
        if (all->routes[i] == s) batch[n++] = all->ops[i];
      perform_on(pool, server, batch, n, all->deadline);
      n = 0;
      for (size_t i = first; i < all->count; i++)
        if (all->routes[i] == s) {
          all->ops[i] = batch[n++];
          all->routes[i] = CRL_SPREAD_DONE;
        }
    }
}

/* Sets the route of each operation, whose server is there then. 0 without memory. */
static int route_all(crl_pool *pool, crl_spread *all) {
  int has_memory = all->routes != NULL;
  for (size_t i = 0; i < all->count && has_memory; i++) {
    corral_op *op = &all->ops[i];
    op->server = (uint32_t)crl_pool_route(pool, op->key, op->key_len);
    all->routes[i] = (int)op->server;
    has_memory = server_at(pool, op->server) != NULL;
  }
  for (size_t i = 0; i < all->count && !has_memory; i++) refuse_one(&all->ops[i], CORRAL_ENOMEM);
  return has_memory;
}

/* Looks go to all servers at once, where they can; else, and for what is left, in turn. */
static void perform_spread(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  corral_op *batch = crl_alloc(count * sizeof *batch);
  crl_spread all = {.servers = pool->list,
                    .ops = ops,
                    .routes = batch != NULL ? crl_alloc(count * sizeof *all.routes) : NULL,
                    .count = count,
                    .deadline = deadline};
  int has_memory = route_all(pool, &all);
  if (has_memory && crl_spread_is_offered(&pool->options, ops, count)) crl_spread_look(&all);
  if (all.opened) call_prober(pool);
  if (has_memory) perform_in_turn(pool, &all, batch);
  free(all.routes);
  free(batch);
}

/* The server of all these operations, or NULL: they have several, or there is no memory. */
static crl_server *lone_server(crl_pool *pool, corral_op *ops, size_t count) {
  if (servers(pool) == 1) return pool->list[0];
  size_t first = crl_pool_route(pool, ops[0].key, ops[0].key_len), same = 1;
  while (same < count && crl_pool_route(pool, ops[same].key, ops[same].key_len) == first) same++;
  for (size_t i = 0; i < same; i++) ops[i].server = (uint32_t)first;
  return same == count ? server_at(pool, first) : NULL;
}

void crl_pool_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  if (too_big(pool, ops, count)) return;
  int64_t began_us = crl_op_clock(&pool->options);
  int64_t began = moves(pool) ? crl_env_now_ms() : 0;
  crl_server *server = lone_server(pool, ops, count);
  if (server != NULL)
    perform_on(pool, server, ops, count, deadline);
  else
    perform_spread(pool, ops, count, deadline);
  if (moves(pool) && !is_at_an_end(pool, ops, count)) follow(pool, ops, count, began, deadline);
  crl_op_took(&pool->options, ops, count, began_us);
}
