/* pool.c: access to a store: each of its servers has its own handles, queue and breaker. */
#include "store/pool.h"

#include <stddef.h>
#include <stdlib.h>

#include "os/env.h"
#include "store/server.h"
#include "store/spread.h"
#include "base/status.h"
#include "base/value.h"

struct crl_pool {
  crl_pool_options options;
  crl_task prober;
  crl_server *list[];
};

static size_t servers(const crl_pool *pool) { return pool->options.info.servers; }

static void free_servers(crl_pool *pool) {
  for (size_t i = 0; i < servers(pool) && pool->list[i] != NULL; i++)
    crl_server_free(pool->list[i]);
}

static int self_probing(const crl_pool *pool) {
  return pool->options.plugin->threads == CORRAL_THREADS_PARALLEL || pool->options.threads == NULL;
}

static int64_t probe(crl_task *task);

crl_pool *crl_pool_new(const crl_pool_options *options) {
  size_t count = options->info.servers > 0 ? options->info.servers : 1;
  crl_pool *pool = crl_alloc(sizeof *pool + count * sizeof(crl_server *));
  if (pool == NULL) return NULL;
  pool->options = *options;
  pool->options.info.servers = count;
  for (size_t i = 0; i < count; i++) {
    if ((pool->list[i] = crl_server_new(&pool->options, i)) == NULL) {
      free_servers(pool);
      free(pool);
      return NULL;
    }
    crl_server_self_probing(pool->list[i], self_probing(pool));
  }
  if (pool->options.threads != NULL) crl_task_init(&pool->prober, pool->options.threads, probe);
  return pool;
}

void crl_pool_free(crl_pool *pool) {
  if (pool->options.threads != NULL) crl_task_stop(&pool->prober);
  free_servers(pool);
  pool->options.plugin->close(pool->options.store);
  free(pool);
}

const corral_store_info *crl_pool_info(const crl_pool *pool) { return &pool->options.info; }

size_t crl_pool_route(const crl_pool *pool, const void *key, size_t key_len) {
  if (servers(pool) == 1) return 0;
  return pool->options.plugin->route(pool->options.store, key, key_len) % servers(pool);
}

int crl_pool_is_well_for(crl_pool *pool, const corral_op *op) {
  return crl_server_is_well_for(pool->list[crl_pool_route(pool, op->key, op->key_len)], op);
}

const crl_pool_options *crl_pool_options_of(const crl_pool *pool) { return &pool->options; }

/* ---- probing ------------------------------------------------------------------------------- */

static crl_server *next_to_probe(crl_pool *pool, int64_t *at) {
  crl_server *next = NULL;
  *at = INT64_MAX;
  for (size_t i = 0; i < servers(pool); i++) {
    int64_t due = crl_server_probe_at(pool->list[i]);
    if (due >= *at) continue;
    *at = due;
    next = pool->list[i];
  }
  return next;
}

static int64_t probe(crl_task *task) {
  crl_pool *pool = (crl_pool *)(void *)((char *)task - offsetof(crl_pool, prober));
  int64_t at;
  for (crl_server *server; (server = next_to_probe(pool, &at)) != NULL && at <= crl_env_now_ms();)
    crl_server_probe(server, pool);
  return at;
}

/* After a server asked for a probe. Without a thread to be had, callers probe. */
static __attribute__((noinline)) void call_prober(crl_pool *pool) {
  int64_t at;
  if (self_probing(pool) || next_to_probe(pool, &at) == NULL) return;
  if (crl_task_at(&pool->prober, at) == CORRAL_OK) return;
  for (size_t i = 0; i < servers(pool); i++) crl_server_self_probing(pool->list[i], 1);
}

int crl_pool_perform_probe(crl_pool *pool, size_t server, corral_op *ops, size_t count) {
  return crl_server_perform_probe(pool->list[server], ops, count);
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

static void look_on(crl_pool *pool, crl_server *server, corral_op *op, int64_t now,
                    int64_t deadline, corral_error *why) {
  if (crl_server_look(server, op, now, deadline, why)) call_prober(pool);
}

/* Apart, since looks at a lone server need none of its room. */
static __attribute__((noinline)) void look_routed(crl_pool *pool, corral_op *op, int64_t now,
                                                  int64_t deadline, corral_error *why) {
  crl_server *server = pool->list[crl_pool_route(pool, op->key, op->key_len)];
  look_on(pool, server, op, now, deadline, why);
}

void crl_pool_look(crl_pool *pool, corral_op *op, int64_t now, int64_t deadline,
                   corral_error *why) {
  if (servers(pool) == 1)
    look_on(pool, pool->list[0], op, now, deadline, why);
  else
    look_routed(pool, op, now, deadline, why);
}

/* One batch per server, one after the other; servers with recent failures come last. */
static void perform_in_turn(crl_pool *pool, crl_spread *all, corral_op *batch) {
  for (size_t pass = 0; pass < 2; pass++)
    for (size_t s = 0; s < servers(pool); s++) {
      size_t n = 0;
      for (size_t i = 0; i < all->count; i++)
        if (all->routes[i] == (int)s) batch[n++] = all->ops[i];
      if (n == 0 || (pass == 0 && crl_server_failures(pool->list[s]) > 0)) continue;
      perform_on(pool, pool->list[s], batch, n, all->deadline);
      n = 0;
      for (size_t i = 0; i < all->count; i++)
        if (all->routes[i] == (int)s) {
          all->ops[i] = batch[n++];
          all->routes[i] = CRL_SPREAD_DONE;
        }
    }
}

/* Looks go to all servers at once, where they can; else, and for what is left, in turn. */
static void perform_spread(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  crl_spread all = {.servers = pool->list,
                    .ops = ops,
                    .routes = crl_alloc(count * sizeof *all.routes),
                    .count = count,
                    .deadline = deadline};
  corral_op *batch = crl_alloc(count * sizeof *batch);
  int has_memory = all.routes != NULL && batch != NULL;
  for (size_t i = 0; i < count; i++) {
    if (has_memory)
      all.routes[i] = (int)crl_pool_route(pool, ops[i].key, ops[i].key_len);
    else
      ops[i].status = crl_status_plain(ops[i].error, CORRAL_ENOMEM);
  }
  if (has_memory && crl_spread_is_offered(&pool->options, ops, count)) crl_spread_look(&all);
  if (all.opened) call_prober(pool);
  if (has_memory) perform_in_turn(pool, &all, batch);
  free(all.routes);
  free(batch);
}

void crl_pool_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  if (too_big(pool, ops, count)) return;
  size_t first = crl_pool_route(pool, ops[0].key, ops[0].key_len), same = 1;
  while (servers(pool) > 1 && same < count &&
         crl_pool_route(pool, ops[same].key, ops[same].key_len) == first)
    same++;
  if (servers(pool) == 1 || same == count)
    perform_on(pool, pool->list[first], ops, count, deadline);
  else
    perform_spread(pool, ops, count, deadline);
}
