/* corral.c: corral_open and corral_close, and the checks with which public calls begin. */
#include <corral/plugin.h>
#include <stdlib.h>

#include "os/env.h"
#include "api/handle.h"
#include "driver/async.h"
#include "driver/verify.h"
#include "store/registry.h"
#include "store/secret.h"
#include "http/origin.h"
#include "locks/lock.h"
#include "locks/steps.h"
#include "base/sized.h"
#include "base/status.h"
#include "stats/file.h"
#include "store/uri.h"
#include "tags/tag_memory.h"

enum { VERDICT_BYTES = 1 << 20, VERDICT_MS = 86400000, STORE_SHOWN = 1024 };

struct corral {
  crl_context context;
  corral_compute *compute;
  void *compute_arg;
  crl_origin origin; /* in place of `compute`; origin.plugin is NULL when there is none */
};

/* ---- open, close --------------------------------------------------------------------------- */

/* The key by which a resting server is probed: a key of length 0, which no user has, in the
 * namespace, because a server may allow only keys of the namespace. */
static const char *probe_key_of(const crl_key_space *space) {
  return space->prefix_len > 0 && space->prefix_len <= space->max_key ? space->prefix : ":";
}

/* The name of the host's elections: processes with the same URI and namespace share them. NULL
 * without memory. */
static char *scope_of(const char *uri, const char *prefix) {
  size_t len = strlen(uri), more = strlen(prefix);
  char *scope = crl_alloc(len + more + 2);
  if (scope == NULL) return NULL;
  memcpy(scope, uri, len);
  scope[len] = ' ';
  memcpy(scope + len + 1, prefix, more);
  return scope;
}

/* Checks what a foreign plugin declares: a valid number of servers, and `route` if more than one.
 * Closes the store on failure. */
static int check_store(const crl_pool_options *pool, corral_error *error) {
  size_t servers = pool->info.servers;
  if (servers >= 1 && servers <= CORRAL_SERVERS && (servers == 1 || pool->plugin->route != NULL))
    return CORRAL_OK;
  pool->plugin->close(pool->store);
  return crl_status_fail(
      error, CORRAL_ENOPLUGIN,
      "the plugin '%.40s' declares %zu servers%s; accepted: 1 to %d, more than 1 with a route",
      pool->plugin->name, servers, pool->plugin->route == NULL ? " and has no route" : "",
      CORRAL_SERVERS);
}

/* Callback of the store's watch. Hash 0: changes may have been missed, so copies of earlier looks
 * no longer answer by themselves; they still serve while the store is away. */
static void on_change(void *arg, uint64_t hash) {
  crl_context *context = arg;
  if (context->follower != NULL) crl_follower_changed(context->follower, hash);
  if (context->near == NULL) return;
  if (hash != 0) {
    crl_near_drop(context->near, hash);
    crl_context_weigh_near(context);
  } else {
    atomic_store(&context->near_since, crl_env_now_ms());
  }
}

/* Callback of the store's watch: changes of a key may have been missed. */
static void on_missed(void *arg, uint64_t hash) {
  crl_context *context = arg;
  if (context->follower != NULL) crl_follower_changed(context->follower, hash);
  if (context->near != NULL) crl_near_doubt(context->near, hash);
}

/* Callback of the store's watch: a key's next change will be told. */
static void on_registered(void *arg, uint64_t hash, uint64_t print) {
  crl_context *context = arg;
  if (context->follower != NULL) crl_follower_registered(context->follower, hash, print);
  if (context->near != NULL) crl_near_confirm(context->near, hash, print);
}

/* With hot keys alone the near tier has a small room. 0 without memory. */
static int make_copies(crl_context *context, const corral_options *options) {
  enum { HOT_BYTES = 8 << 20 };
  context->hot.percent = options->hot_pct;
  context->near_hot_only = options->near_bytes <= 0 && options->hot_pct > 0;
  if (options->near_bytes <= 0 && options->hot_pct <= 0) return 1;
  context->near = crl_near_new(context->near_hot_only ? HOT_BYTES : options->near_bytes);
  return context->near != NULL;
}

/* Makes the near tier and the watch. A store of several servers has none, unless it has
 * one for all of them. */
static int make_near(crl_context *context, const crl_pool_options *pool,
                     const corral_options *options) {
  crl_watch_options watch = {.plugin = pool->plugin,
                             .store = pool->store,
                             .op_ms = options->op_ms,
                             .events = &context->events,
                             .on_change = on_change,
                             .on_missed = on_missed,
                             .on_registered = on_registered,
                             .arg = context};
  if (!make_copies(context, options)) return CORRAL_ENOMEM;
  if (context->near != NULL && !context->looks_first)
    crl_near_mark_over(context->near, &context->gone);
  if (options->watch <= 0 || pool->plugin->watch == NULL ||
      (pool->info.servers > 1 && pool->plugin->refresh == NULL))
    return CORRAL_OK;
  context->watch = crl_watch_new(&watch);
  return context->watch == NULL ? CORRAL_ENOMEM : CORRAL_OK;
}

/* Makes what listens to the store, which is closed with the pool. */
static int make_listeners(crl_context *context, const crl_pool_options *pool,
                          const corral_options *options) {
  crl_ends_options ends = {
      .plugin = pool->plugin, .store = pool->store, .ended = crl_lock_cut, .arg = context};
  if (pool->plugin->attend != NULL && pool->plugin->ends != NULL &&
      (context->ends = crl_ends_new(&ends)) == NULL)
    return CORRAL_ENOMEM;
  return make_near(context, pool, options);
}

static int open_store(corral *c, const corral_options *options, corral_error *error) {
  crl_uri uri;
  crl_context *context = &c->context;
  crl_pool_options pool = {.handles = options->handles,
                           .op_ms = options->op_ms,
                           .breaker_failures = options->breaker_failures,
                           .breaker_rest_ms = options->breaker_rest_ms,
                           .away_ms = options->away_ms,
                           .events = &context->events,
                           .threads = &context->threads,
                           .on_return = crl_replay_all,
                           .return_arg = &context->replay,
                           .on_moved = crl_replay_moved};
  pool.info = (corral_store_info){.size = sizeof pool.info,
                                  .max_key = CORRAL_KEY_MAX,
                                  .max_record = UINT64_C(600) << 20,
                                  .handles = 2,
                                  .name = "",
                                  .reach = CORRAL_REACH_FLEET,
                                  .servers = 1};
  int status = crl_uri_parse(&uri, options->store, error);
  if (status != CORRAL_OK) return status;
  status = crl_secret_resolve(&uri, error);
  if (status == CORRAL_OK) status = crl_registry_find(uri.view.scheme, &pool.plugin, error);
  if (status == CORRAL_OK)
    status = pool.plugin->open(crl_registry_host(), &uri.view, &pool.store, &pool.info, error);
  if (status == CORRAL_OK) status = check_store(&pool, error);
  if (status == CORRAL_OK) context->scope = scope_of(uri.view.text, context->space.prefix);
  crl_uri_free(&uri);
  if (status != CORRAL_OK) return status;
  context->space.max_key = pool.info.max_key;
  context->locks_only = pool.info.locks_only != 0;
  context->looks_first =
      pool.info.reach != CORRAL_REACH_FLEET && pool.plugin->threads == CORRAL_THREADS_PARALLEL;
  pool.probe_key = probe_key_of(&context->space);
  crl_stats_set_gauge(&context->events.stats, CORRAL_GAUGE_SERVERS, (int64_t)pool.info.servers);
  context->pool = crl_pool_new(&pool);
  if (context->pool != NULL) return make_listeners(context, &pool, options);
  pool.plugin->close(pool.store);
  return crl_status_plain(error, CORRAL_ENOMEM);
}

/* Makes the parts of elections: the renewer of leases, the limiter, the host lock. */
static int make_rungs(crl_context *context, const corral_options *options,
                      const char *origin_name) {
  crl_semaphore_options limiter = {.name = origin_name,
                                   .most = options->max_computes,
                                   .threads = options->workers,
                                   .fleet_most = options->fleet_max_computes,
                                   .ramps = options->ramp > 0,
                                   .lease_ms = context->policy.lease_ms,
                                   .op_ms = options->op_ms,
                                   .poll_ms = context->policy.poll_ms,
                                   .poll_max_ms = context->policy.poll_max_ms,
                                   .pool = context->pool};
  context->renewer = limiter.renewer =
      crl_renewer_new(context->pool, &context->events, &context->threads);
  context->limiter = crl_semaphore_new(&limiter);
  if (context->scope == NULL || context->renewer == NULL || context->limiter == NULL)
    return CORRAL_ENOMEM;
  /* A store whose reach is this host or process elects leaders without a host lock. */
  if (options->host_lock <= 0 || crl_pool_info(context->pool)->reach != CORRAL_REACH_FLEET)
    return CORRAL_OK;
  context->hostlock = crl_hostlock_new(options->host_dir, context->scope);
  if (context->hostlock == NULL) return CORRAL_ENOMEM;
  crl_hostmap_init(&context->hostmap, context->hostlock, context->scope);
  crl_pool_share(
      context->pool,
      &(crl_sharing){.arg = &context->hostmap, .take = crl_hostmap_take, .tell = crl_hostmap_tell});
  return CORRAL_OK;
}

static const char *origin_name(const corral *c, const corral_options *options) {
  if (c->origin.plugin != NULL) return c->origin.name;
  return options->origin == NULL ? "origin" : options->origin;
}

/* The threads: none is started before it is needed. */
static int make_threads(crl_context *context) {
  context->threads.workers = crl_workers_new();
  context->threads.timers = crl_timers_new();
  if (context->threads.workers == NULL || context->threads.timers == NULL) return CORRAL_ENOMEM;
  context->events.notifier = crl_notifier_new(context->threads.workers);
  return context->events.notifier == NULL ? CORRAL_ENOMEM : CORRAL_OK;
}

/* The namespace and the store, without secrets, name what is counted. */
static int make_stats(crl_context *context, const corral_options *options) {
  char store[STORE_SHOWN];
  if (options->store != NULL)
    corral_uri_show(options->store, store, sizeof store);
  else
    store[0] = '\0';
  const char *cache = options->name_space == NULL ? "" : options->name_space;
  int status = crl_stats_open(&context->events.stats);
  if (status != CORRAL_OK) return status;
  return crl_stats_file_open(
      &context->events.stats,
      &(crl_stats_options){.dir = options->stats_dir, .cache = cache, .store = store});
}

static int make_context(corral *c, const corral_options *options, corral_error *error) {
  crl_context *context = &c->context;
  if (make_stats(context, options) != CORRAL_OK) return crl_status_plain(error, CORRAL_ENOMEM);
  context->events.hook = options->on_event;
  context->events.arg = options->event_arg;
  context->max_value = (uint64_t)options->max_value;
  context->op_ms = options->op_ms;
  context->outbox_ms = options->outbox_ms;
  context->compress_min = options->compress_min;
  context->generation = options->generation > 0;
  crl_quota_init(&context->negatives, options->negative_max);
  if (crl_key_space_make(&context->space, options->name_space) != CORRAL_OK)
    return crl_status_plain(error, CORRAL_ENOMEM);
  if (make_threads(context) != CORRAL_OK) return crl_status_plain(error, CORRAL_ENOMEM);
  int status = open_store(c, options, error);
  if (status != CORRAL_OK) return status;
  context->herd = crl_herd_new();
  context->locks = crl_lock_table_new();
  context->lock_steps = crl_lock_steps_new(context->threads.workers);
  context->outbox = crl_outbox_new(options->outbox_bytes, options->outbox_ms);
  context->verdicts = crl_outbox_new(VERDICT_BYTES, VERDICT_MS);
  if (context->outbox != NULL)
    crl_outbox_show(context->outbox,
                    crl_stats_gauge(&context->events.stats, CORRAL_GAUGE_OUTBOX_BYTES));
  context->replay = (crl_replay){
      .outbox = context->outbox, .events = &context->events, .lease_ms = context->policy.lease_ms};
  context->scheduler = crl_scheduler_new(context);
  context->verifier = crl_verifier_new(context, options);
  if (!context->looks_first) context->tag_memory = crl_tag_memory_new();
  if (context->herd == NULL || context->locks == NULL || context->lock_steps == NULL ||
      context->outbox == NULL || context->verdicts == NULL || context->scheduler == NULL ||
      context->verifier == NULL || (context->tag_memory == NULL && !context->looks_first) ||
      make_rungs(context, options, origin_name(c, options)) != CORRAL_OK)
    return crl_status_plain(error, CORRAL_ENOMEM);
  if (options->control > 0 && !context->locks_only &&
      (context->follower = crl_follower_new(context)) == NULL)
    return crl_status_plain(error, CORRAL_ENOMEM);
  return CORRAL_OK;
}

/* Checks the options that are texts, which the table of numeric ranges doesn't cover. */
static int check_names(const corral_options *options, corral_error *error) {
  if (options->name_space != NULL && strlen(options->name_space) > CORRAL_NAME_SPACE_MAX)
    return crl_status_fail(error, CORRAL_EINVAL, "name_space: longer than %d bytes",
                           CORRAL_NAME_SPACE_MAX);
  size_t len = options->origin == NULL ? 1 : strlen(options->origin);
  int is_url = crl_origin_is_url(options->origin);
  if (!is_url && (len < 1 || len > CORRAL_ORIGIN_MAX))
    return crl_status_fail(error, CORRAL_EINVAL,
                           "origin: %zu bytes; accepted: a name of 1 to %d, or a URL", len,
                           CORRAL_ORIGIN_MAX);
  if (is_url && options->compute != NULL)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "a compute and an origin with a URL; accepted: one of them");
  if (options->host_dir != NULL && options->host_dir[0] != '/')
    return crl_status_fail(error, CORRAL_EINVAL, "host_dir: '%.100s'; accepted: an absolute path",
                           options->host_dir);
  const char *dir = options->stats_dir;
  if (dir != NULL && dir[0] != '/' && strcmp(dir, "off") != 0)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "stats_dir: '%.100s'; accepted: an absolute path, or off", dir);
  return CORRAL_OK;
}

int corral_open(const corral_options *user, corral **ret, corral_error *error) {
  corral_options options;
  corral_error unused;
  corral_policy policy;
  if (error == NULL) error = &unused;
  if (ret == NULL || user == NULL)
    return crl_status_fail(error, CORRAL_EINVAL, "corral_open: no %s",
                           ret == NULL ? "ret" : "options");
  int status = crl_policy_options(&options, user, error);
  if (status == CORRAL_OK) status = crl_policy_resolve(&policy, options.policy, NULL, error);
  if (status != CORRAL_OK) return status;
  if ((status = check_names(&options, error)) != CORRAL_OK) return status;
  corral *c = crl_alloc(sizeof *c);
  if (c == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  atomic_init(&c->context.magic, CRL_CONTEXT_OPEN);
  c->compute = options.compute;
  c->compute_arg = options.compute_arg;
  c->context.policy = policy;
  if (crl_origin_is_url(options.origin))
    status = crl_origin_open(&c->origin, options.origin, (uint64_t)options.max_value, error);
  if (status == CORRAL_OK) status = make_context(c, &options, error);
  if (status != CORRAL_OK) {
    corral_close(c);
    return status;
  }
  *ret = c;
  return CORRAL_OK;
}

static void free_threads(crl_context *context) {
  if (context->threads.timers != NULL) crl_timers_free(context->threads.timers);
  if (context->threads.workers != NULL) crl_workers_free(context->threads.workers);
}

void corral_close(corral *c) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  uint32_t open = CRL_CONTEXT_OPEN;
  if (c == NULL || crl_frame_within(&c->context) || crl_frame_within(&c->context.events)) return;
  if (!atomic_compare_exchange_strong(&c->context.magic, &open, CRL_CONTEXT_CLOSING)) return;
  crl_context *context = &c->context;
  if (!crl_context_is_home(&c->context)) return;
  /* The order matters: running computes end before the parts that they need for it are freed. */
  if (context->verifier != NULL) crl_verifier_close(context->verifier);
  if (context->scheduler != NULL) crl_scheduler_close(context->scheduler);
  crl_origin_close(&c->origin);
  if (context->verifier != NULL) crl_verifier_free(context->verifier);
  if (context->scheduler != NULL) crl_scheduler_drain(context->scheduler);
  /* what a closed loop was granted is still being released */
  if (context->lock_steps != NULL) crl_lock_steps_free(context->lock_steps);
  if (context->renewer != NULL) crl_renewer_free(context->renewer);
  if (context->herd != NULL) crl_herd_free(context->herd);
  if (context->ends != NULL) crl_ends_free(context->ends);
  if (context->locks != NULL) crl_lock_table_free(context->locks);
  if (context->follower != NULL) crl_follower_deafen(context->follower);
  if (context->watch != NULL) crl_watch_free(context->watch);
  if (context->follower != NULL) crl_follower_free(context->follower);
  if (context->near != NULL) crl_near_free(context->near);
  if (context->pool != NULL) crl_pool_free(context->pool);
  free_threads(context);
  /* a function of corral_loop_run gives its place back after its loop was closed */
  if (context->limiter != NULL) crl_semaphore_free(context->limiter);
  if (context->scheduler != NULL) crl_scheduler_free(context->scheduler);
  if (context->events.notifier != NULL) crl_notifier_free(context->events.notifier);
  if (context->outbox != NULL) crl_outbox_free(context->outbox);
  if (context->verdicts != NULL) crl_outbox_free(context->verdicts);
  if (context->tag_memory != NULL) crl_tag_memory_free(context->tag_memory);
  if (context->hostlock != NULL) crl_hostlock_free(context->hostlock);
  crl_quota_clean(&context->negatives);
  crl_context_free_policies(context);
  crl_stats_file_close(&context->events.stats);
  crl_stats_close(&context->events.stats);
  free(context->scope);
  free(context->space.prefix);
  free(c);
}

/* ---- the first steps of each call ---------------------------------------------------------- */

int crl_handle_check_key(const void *key, size_t key_len, corral_error *error) {
  if (key == NULL || key_len == 0)
    return crl_status_fail(error, CORRAL_EINVAL, "the key is empty; accepted: 1 to %d bytes",
                           CORRAL_KEY_MAX);
  if (key_len > CORRAL_KEY_MAX)
    return crl_status_fail(error, CORRAL_EINVAL, "the key has %zu bytes; accepted: 1 to %d",
                           key_len, CORRAL_KEY_MAX);
  return CORRAL_OK;
}

/* Refuses calls about values on a store that has locks only. */
static int check_values(const corral *c, corral_error *error) {
  if (!c->context.locks_only) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EUNSUPPORTED, "%s has locks only, no values",
                         crl_pool_info(c->context.pool)->name);
}

int crl_handle_values(corral *c, crl_context **ret, corral_error *error) {
  int status = crl_context_enter(c, ret, error);
  return status == CORRAL_OK ? check_values(c, error) : status;
}

int crl_handle_key(corral *c, const void *key, size_t key_len, crl_context **ret,
                   corral_error *error) {
  int status = crl_handle_values(c, ret, error);
  return status == CORRAL_OK ? crl_handle_check_key(key, key_len, error) : status;
}

corral_error *crl_handle_error(const corral_call *user) {
  size_t end = offsetof(corral_call, error) + sizeof(corral_error *);
  return user != NULL && user->size >= end ? user->error : NULL;
}

static int check_variant(const corral_call *user) {
  if (user->variant_len <= CORRAL_VARIANT_MAX && (user->variant != NULL || user->variant_len == 0))
    return CORRAL_OK;
  return crl_status_fail(
      user->error, CORRAL_EINVAL, "the variant has %zu bytes%s; accepted: 1 to %d, or 0 and none",
      user->variant_len, user->variant == NULL ? " and is NULL" : "", CORRAL_VARIANT_MAX);
}

static int check_not_set(const corral_call *user) {
  if (user->tags == NULL && user->tag_count == 0 && user->version == 0 && user->validator == NULL &&
      user->validator_len == 0)
    return CORRAL_OK;
  return crl_status_fail(user->error, CORRAL_EINVAL,
                         "call: tags, version and validator are for corral_set alone");
}

static inline __attribute__((always_inline)) int
take_policy(const corral_policy *user, crl_context *context, corral_policy *room, crl_call *call) {
  int status = CORRAL_OK;
  call->policy = crl_context_kept(context, user);
  if (call->policy != NULL) return CORRAL_OK;
  if (room == NULL) return CRL_HANDLE_ROOM;
  call->policy = crl_context_policy(context, user, room, &status, call->error);
  return status;
}

static inline __attribute__((always_inline)) int take_whole(const corral_call *whole,
                                                            crl_context *context,
                                                            corral_policy *room, crl_call *call,
                                                            corral_call *set) {
  int status = check_variant(whole);
  if (status == CORRAL_OK && set == NULL) status = check_not_set(whole);
  if (status != CORRAL_OK) return status;
  call->error = whole->error;
  call->cancel_token = whole->cancel_token;
  call->variant = whole->variant;
  call->variant_len = whole->variant_len;
  if (set != NULL) *set = *whole;
  return whole->policy == NULL ? CORRAL_OK : take_policy(whole->policy, context, room, call);
}

/* A struct of another size than this library's. Apart, so that others have no room for one on their
 * stack. */
__attribute__((noinline)) static int take_other(const corral_call *user, crl_context *context,
                                                corral_policy *room, crl_call *call,
                                                corral_call *set) {
  corral_call whole;
  int status = crl_sized_read(&whole, user, sizeof whole, "call", crl_handle_error(user));
  return status == CORRAL_OK ? take_whole(&whole, context, room, call, set) : status;
}

static inline __attribute__((always_inline)) int take_user(const corral_call *user,
                                                           crl_context *context,
                                                           corral_policy *room, crl_call *call,
                                                           corral_call *set) {
  memset(call, 0, sizeof *call);
  call->policy = &context->policy;
  if (user == NULL) return CORRAL_OK;
  if (user->size != sizeof *user) return take_other(user, context, room, call, set);
  return take_whole(user, context, room, call, set);
}

int crl_handle_user(const corral_call *user, crl_context *context, corral_policy *room,
                    crl_call *call, corral_call *set) {
  return take_user(user, context, room, call, set);
}

/* Each call of a key begins here; so what is above is a part of it. */
int crl_handle_call(corral *c, const void *key, size_t key_len, const corral_call *user,
                    corral_policy *room, crl_context **ret, crl_call *call) {
  int status = crl_handle_key(c, key, key_len, ret, crl_handle_error(user));
  if (status != CORRAL_OK) return status;
  if (crl_handle_has_orders(&c->context) && room == NULL) return CRL_HANDLE_ROOM;
  return take_user(user, &c->context, room, call, NULL);
}

void crl_handle_bind(corral *c, crl_call *call) {
  call->compute = c->compute;
  call->arg = c->compute_arg;
  if (c->origin.plugin != NULL) {
    call->start = crl_origin_fetch;
    call->arg = &c->origin;
  }
  call->bound = call->lasts = crl_call_computes(call) != 0;
}

uint64_t corral_near_used(const corral *c) {
  return c == NULL || c->context.near == NULL ? 0 : crl_near_weight(c->context.near);
}

uint64_t corral_counter(const corral *c, corral_event event) {
  if (c == NULL || (unsigned)event >= CORRAL_EVENT_COUNT) return 0;
  return crl_event_counted(&c->context.events, event);
}
