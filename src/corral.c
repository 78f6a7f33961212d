/* corral.c: corral_open and corral_close, and the checks with which public calls begin. */
#include <corral/plugin.h>
#include <stdlib.h>

#include "env.h"
#include "handle.h"
#include "pilot.h"
#include "registry.h"
#include "secret.h"
#include "source.h"
#include "status.h"
#include "uri.h"

#define MAGIC UINT32_C(0xc0881a11)
#define CLOSING UINT32_C(0xc0881a00)

enum { VERDICT_BYTES = 1 << 20, VERDICT_MS = 86400000 };

struct corral {
  _Atomic uint32_t magic; /* MAGIC, then CLOSING */
  _Atomic unsigned home;  /* crl_env_forks() + 1 at the first use; 0: not used yet */
  crl_station station;
  corral_compute *compute;
  void *compute_arg;
  crl_source source; /* in place of `compute`; source.plugin is NULL when there is none */
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
  crl_station *station = arg;
  if (station->near == NULL) return;
  if (hash != 0)
    crl_near_drop(station->near, hash);
  else
    atomic_store(&station->near_since, crl_env_now_ms());
}

/* Makes the near tier and the watch. A store of several servers has no watch yet. */
static int make_near(crl_station *station, const crl_pool_options *pool,
                     const corral_options *options) {
  crl_watch_options watch = {.plugin = pool->plugin,
                             .store = pool->store,
                             .op_ms = options->op_ms,
                             .on_change = on_change,
                             .arg = station};
  if (options->near_bytes > 0 && (station->near = crl_near_new(options->near_bytes)) == NULL)
    return CORRAL_ENOMEM;
  if (options->watch <= 0 || pool->plugin->watch == NULL || pool->info.servers > 1)
    return CORRAL_OK;
  station->watch = crl_watch_new(&watch);
  return station->watch == NULL ? CORRAL_ENOMEM : CORRAL_OK;
}

static int open_store(corral *c, const corral_options *options, corral_error *error) {
  crl_uri uri;
  crl_station *station = &c->station;
  crl_pool_options pool = {.handles = options->handles,
                           .op_ms = options->op_ms,
                           .breaker_failures = options->breaker_failures,
                           .breaker_rest_ms = options->breaker_rest_ms,
                           .events = &station->events,
                           .on_return = crl_offer_all,
                           .return_arg = &station->offer};
  pool.info = (corral_store_info){.size = sizeof pool.info,
                                  .max_key = CRL_KEY_MOST,
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
  if (status == CORRAL_OK) station->scope = scope_of(uri.view.text, station->space.prefix);
  crl_uri_free(&uri);
  if (status != CORRAL_OK) return status;
  station->space.max_key = pool.info.max_key;
  pool.probe_key = probe_key_of(&station->space);
  station->pool = crl_pool_new(&pool);
  if (station->pool != NULL) return make_near(station, &pool, options);
  pool.plugin->close(pool.store);
  return crl_status_plain(error, CORRAL_ENOMEM);
}

/* Makes the parts of elections: the keeper of leases, the limiter, the host lock. */
static int make_rungs(crl_station *station, const corral_options *options,
                      const char *origin_name) {
  crl_origin_options origin = {.name = origin_name,
                               .most = options->max_computes,
                               .fleet_most = options->fleet_max_computes,
                               .lease_ms = station->policy.lease_ms,
                               .op_ms = options->op_ms,
                               .poll_ms = station->policy.poll_ms,
                               .poll_max_ms = station->policy.poll_max_ms,
                               .pool = station->pool};
  station->keeper = origin.keeper = crl_keeper_new(station->pool, &station->events);
  station->origin = crl_origin_new(&origin);
  if (station->scope == NULL || station->keeper == NULL || station->origin == NULL)
    return CORRAL_ENOMEM;
  /* A store whose reach is this host or process elects leaders without a host lock. */
  if (options->host_lock <= 0 || crl_pool_info(station->pool)->reach != CORRAL_REACH_FLEET)
    return CORRAL_OK;
  station->hostlock = crl_hostlock_new(options->host_dir, station->scope);
  return station->hostlock == NULL ? CORRAL_ENOMEM : CORRAL_OK;
}

static const char *origin_name(const corral *c, const corral_options *options) {
  if (c->source.plugin != NULL) return c->source.name;
  return options->origin == NULL ? "origin" : options->origin;
}

static int make_station(corral *c, const corral_options *options, corral_error *error) {
  crl_station *station = &c->station;
  uint64_t seed;
  if (crl_env_random(&seed, sizeof seed) != CORRAL_OK)
    return crl_status_fail(error, CORRAL_EIO, "no randomness from the kernel");
  atomic_init(&station->dice, seed);
  station->events.hook = options->on_event;
  station->events.arg = options->event_arg;
  station->max_value = (uint64_t)options->max_value;
  station->op_ms = options->op_ms;
  station->held_ms = options->held_ms;
  station->compress_min = options->compress_min;
  station->generation = options->generation > 0;
  crl_quota_init(&station->negatives, options->negative_max);
  if (crl_key_space_make(&station->space, options->name_space) != CORRAL_OK)
    return crl_status_plain(error, CORRAL_ENOMEM);
  int status = open_store(c, options, error);
  if (status != CORRAL_OK) return status;
  station->herd = crl_herd_new();
  station->locks = crl_lock_table_new();
  station->workers = crl_workers_new(options->workers);
  station->events.notifier = crl_notifier_new();
  station->held = crl_held_new(options->held_bytes, options->held_ms);
  station->verdicts = crl_held_new(VERDICT_BYTES, VERDICT_MS);
  station->offer = (crl_offer){
      .held = station->held, .events = &station->events, .lease_ms = station->policy.lease_ms};
  station->pilot = crl_pilot_new(station);
  if (station->herd == NULL || station->locks == NULL || station->workers == NULL ||
      station->held == NULL || station->verdicts == NULL || station->pilot == NULL ||
      station->events.notifier == NULL ||
      make_rungs(station, options, origin_name(c, options)) != CORRAL_OK)
    return crl_status_plain(error, CORRAL_ENOMEM);
  return CORRAL_OK;
}

/* Checks the options that are texts, which the table of numeric ranges doesn't cover. */
static int check_names(const corral_options *options, corral_error *error) {
  if (options->name_space != NULL && strlen(options->name_space) > 1024)
    return crl_status_fail(error, CORRAL_EINVAL, "name_space: longer than 1024 bytes");
  size_t len = options->origin == NULL ? 1 : strlen(options->origin);
  int is_url = crl_source_is_url(options->origin);
  if (!is_url && (len < 1 || len > 100))
    return crl_status_fail(error, CORRAL_EINVAL,
                           "origin: %zu bytes; accepted: a name of 1 to 100, or a URL", len);
  if (is_url && options->compute != NULL)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "a compute and an origin with a URL; accepted: one of them");
  if (options->host_dir != NULL && options->host_dir[0] != '/')
    return crl_status_fail(error, CORRAL_EINVAL, "host_dir: '%.100s'; accepted: an absolute path",
                           options->host_dir);
  return CORRAL_OK;
}

int corral_open(corral **ret, const corral_options *user, corral_error *error) {
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
  policy.error = NULL;
  policy.ticket = NULL;
  policy.variant = NULL;
  policy.variant_len = 0;
  if ((status = check_names(&options, error)) != CORRAL_OK) return status;
  corral *c = crl_alloc(sizeof *c);
  if (c == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  atomic_init(&c->magic, MAGIC);
  c->compute = options.compute;
  c->compute_arg = options.compute_arg;
  c->station.policy = policy;
  if (crl_source_is_url(options.origin))
    status = crl_source_open(&c->source, options.origin, (uint64_t)options.max_value, error);
  if (status == CORRAL_OK) status = make_station(c, &options, error);
  if (status != CORRAL_OK) {
    corral_close(c);
    return status;
  }
  *ret = c;
  return CORRAL_OK;
}

/* False in a forked child of the process that used the corral: threads and connections are the
 * parent's and are left alone. */
static int is_home(const corral *c) {
  unsigned home = atomic_load(&((corral *)(uintptr_t)c)->home);
  return home == 0 || home == crl_env_forks() + 1;
}

void corral_close(corral *c) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  uint32_t open = MAGIC;
  if (c == NULL || crl_frame_within(&c->station) || crl_frame_within(&c->station.events)) return;
  if (!atomic_compare_exchange_strong(&c->magic, &open, CLOSING)) return;
  crl_station *station = &c->station;
  if (!is_home(c)) return;
  /* The order matters: running computes end before the parts that they need for it are freed. */
  if (station->pilot != NULL) crl_pilot_close(station->pilot);
  crl_source_close(&c->source);
  if (station->workers != NULL) crl_workers_free(station->workers);
  if (station->pilot != NULL) crl_pilot_free(station->pilot);
  if (station->origin != NULL) crl_origin_free(station->origin);
  if (station->keeper != NULL) crl_keeper_free(station->keeper);
  if (station->events.notifier != NULL) crl_notifier_free(station->events.notifier);
  if (station->herd != NULL) crl_herd_free(station->herd);
  if (station->locks != NULL) crl_lock_table_free(station->locks);
  if (station->watch != NULL) crl_watch_free(station->watch);
  if (station->near != NULL) crl_near_free(station->near);
  if (station->pool != NULL) crl_pool_free(station->pool);
  if (station->held != NULL) crl_held_free(station->held);
  if (station->verdicts != NULL) crl_held_free(station->verdicts);
  if (station->hostlock != NULL) crl_hostlock_free(station->hostlock);
  crl_quota_clean(&station->negatives);
  free(station->scope);
  free(station->space.prefix);
  free(c);
}

/* ---- the first steps of each call ---------------------------------------------------------- */

static int check_callback(const crl_station *station, corral_error *error) {
  if (!crl_frame_within(&station->events)) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EINVAL,
                         "within on_event of this corral; accepted there: corral_counter");
}

static int check_open(const corral *c, corral_error *error) {
  uint32_t magic = c == NULL ? 0 : atomic_load(&((corral *)(uintptr_t)c)->magic);
  /* a call by a compute for which corral_close waits */
  if (magic == CLOSING) return crl_status_plain(error, CORRAL_ECLOSED);
  if (magic != MAGIC) return crl_status_fail(error, CORRAL_EINVAL, "not an open corral");
  return check_callback(&c->station, error);
}

int crl_handle_check_key(const void *key, size_t key_len, corral_error *error) {
  if (key == NULL || key_len == 0)
    return crl_status_fail(error, CORRAL_EINVAL, "the key is empty; accepted: 1 to %d bytes",
                           CRL_KEY_MOST);
  if (key_len > CRL_KEY_MOST)
    return crl_status_fail(error, CORRAL_EINVAL, "the key has %zu bytes; accepted: 1 to %d",
                           key_len, CRL_KEY_MOST);
  return CORRAL_OK;
}

static int check_home(corral *c, corral_error *error) {
  unsigned here = crl_env_forks() + 1, home = atomic_load(&c->home);
  if (home == 0 && atomic_compare_exchange_strong(&c->home, &home, here)) home = here;
  return home == here ? CORRAL_OK : crl_status_plain(error, CORRAL_EFORKED);
}

int crl_handle_open(corral *c, crl_station **ret, corral_error *error) {
  int status = check_open(c, error);
  if (status == CORRAL_OK) *ret = &c->station;
  return status;
}

int crl_handle_enter(corral *c, crl_station **ret, corral_error *error) {
  int status = crl_handle_open(c, ret, error);
  return status == CORRAL_OK ? check_home(c, error) : status;
}

int crl_handle_check(const crl_station *station, corral_error *error) {
  return crl_handle_is_home(station) ? check_callback(station, error)
                                     : crl_status_plain(error, CORRAL_EFORKED);
}

int crl_handle_is_home(const crl_station *station) {
  return is_home((const corral *)(const void *)((const char *)station - offsetof(corral, station)));
}

/* Refuses calls about values on a store that has locks only. */
static int check_values(const corral *c, corral_error *error) {
  const corral_store_info *info = crl_pool_info(c->station.pool);
  if (!info->locks_only) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EUNSUPPORTED, "%s has locks only, no values", info->name);
}

int crl_handle_values(corral *c, crl_station **ret, corral_error *error) {
  int status = crl_handle_enter(c, ret, error);
  return status == CORRAL_OK ? check_values(c, error) : status;
}

int crl_handle_key(corral *c, const void *key, size_t key_len, crl_station **ret,
                   corral_error *error) {
  int status = crl_handle_values(c, ret, error);
  return status == CORRAL_OK ? crl_handle_check_key(key, key_len, error) : status;
}

corral_error *crl_handle_error(const corral_policy *policy) {
  size_t end = offsetof(corral_policy, error) + sizeof(corral_error *);
  return policy != NULL && policy->size >= end ? policy->error : NULL;
}

int crl_handle_call(corral *c, const void *key, size_t key_len, const corral_policy *policy,
                    crl_station **ret, crl_call *call) {
  corral_error *error = crl_handle_error(policy);
  int status = crl_handle_key(c, key, key_len, ret, error);
  if (status == CORRAL_OK)
    status = crl_policy_resolve(&call->policy, policy, &c->station.policy, error);
  memset(call, 0, offsetof(crl_call, policy));
  call->key = key;
  call->key_len = key_len;
  return status;
}

void crl_handle_bind(corral *c, crl_call *call) {
  call->compute = c->compute;
  call->arg = c->compute_arg;
  if (c->source.plugin != NULL) {
    call->start = crl_source_fetch;
    call->arg = &c->source;
  }
  call->bound = crl_call_computes(call);
}

uint64_t corral_counter(const corral *c, corral_event event) {
  if (c == NULL || (unsigned)event >= CORRAL_EVENT_COUNT) return 0;
  return atomic_load_explicit(&((corral *)(uintptr_t)c)->station.events.count[event],
                              memory_order_relaxed);
}
