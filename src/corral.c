/* corral.c: the public functions: glue. */
#include <corral/plugin.h>
#include <stdlib.h>

#include "drive.h"
#include "env.h"
#include "envelope.h"
#include "fill.h"
#include "handle.h"
#include "marks.h"
#include "pilot.h"
#include "put.h"
#include "record.h"
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
  _Atomic unsigned home; /* crl_env_forks() + 1 at the first use; 0 unused */
  crl_station station;
  corral_compute *compute;
  void *compute_arg;
  crl_source source; /* instead; its plugin is NULL when there is none */
};

/* ---- open, close ----------------------------------------------------------------------------------------- */

/* What a resting server is asked for: a key of length 0, which is no user's, in the namespace: a server may allow no other keys. */
static const char *probe_key_of(const crl_key_space *space) {
  return space->prefix_len > 0 && space->prefix_len <= space->max_key ? space->prefix : ":";
}

/* What all who share the host's elections have in common; NULL without memory. */
static char *scope_of(const char *uri, const char *prefix) {
  size_t len = strlen(uri), more = strlen(prefix);
  char *scope = crl_alloc(len + more + 2);
  if (scope == NULL) return NULL;
  memcpy(scope, uri, len);
  scope[len] = ' ';
  memcpy(scope + len + 1, prefix, more);
  return scope;
}

/* A plugin of the user's, or of an older header: what it says of its servers must fit its table. */
static int check_store(const crl_pool_options *pool, corral_error *error) {
  size_t servers = pool->info.servers;
  if (servers >= 1 && servers <= CORRAL_SERVERS && (servers == 1 || pool->plugin->route != NULL)) return CORRAL_OK;
  pool->plugin->close(pool->store);
  return crl_status_fail(error, CORRAL_ENOPLUGIN, "the plugin '%.40s' declares %zu servers%s; accepted: 1 to %d, more than 1 with a route",
                         pool->plugin->name, servers, pool->plugin->route == NULL ? " and has no route" : "", CORRAL_SERVERS);
}

/* Told by the store's watch. What began to be looked at before all changes were known may be outdated; while the store is away it will do. */
static void on_change(void *arg, uint64_t hash) {
  crl_station *station = arg;
  if (station->near == NULL) return;
  if (hash != 0) crl_near_drop(station->near, hash);
  else atomic_store(&station->near_since, crl_env_now_ms());
}

/* The near tier and the watch; a store of several servers has none yet. */
static int make_near(crl_station *station, const crl_pool_options *pool, const corral_options *options) {
  crl_watch_options watch = {.plugin = pool->plugin, .store = pool->store, .op_ms = options->op_ms, .on_change = on_change, .arg = station};
  if (options->near_bytes > 0 && (station->near = crl_near_new(options->near_bytes)) == NULL) return CORRAL_ENOMEM;
  if (options->watch <= 0 || pool->plugin->watch == NULL || pool->info.servers > 1) return CORRAL_OK;
  station->watch = crl_watch_new(&watch);
  return station->watch == NULL ? CORRAL_ENOMEM : CORRAL_OK;
}

static int open_store(corral *c, const corral_options *options, corral_error *error) {
  crl_uri uri;
  crl_station *station = &c->station;
  crl_pool_options pool = {.handles = options->handles, .op_ms = options->op_ms, .breaker_failures = options->breaker_failures,
                           .breaker_rest_ms = options->breaker_rest_ms, .events = &station->events, .on_return = crl_offer_all,
                           .return_arg = &station->offer};
  pool.info = (corral_store_info){.size = sizeof pool.info, .max_key = CRL_KEY_MOST, .max_record = UINT64_C(600) << 20,
                                  .handles = 2, .name = "", .reach = CORRAL_REACH_FLEET, .servers = 1};
  int status = crl_uri_parse(&uri, options->store, error);
  if (status != CORRAL_OK) return status;
  status = crl_secret_resolve(&uri, error);
  if (status == CORRAL_OK) status = crl_registry_find(uri.view.scheme, &pool.plugin, error);
  if (status == CORRAL_OK) status = pool.plugin->open(crl_registry_host(), &uri.view, &pool.store, &pool.info, error);
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

/* What makes an election: the rungs, the keeper of leases, the slots. */
static int make_rungs(crl_station *station, const corral_options *options, const char *origin_name) {
  crl_origin_options origin = {.name = origin_name, .most = options->max_computes,
                               .fleet_most = options->fleet_max_computes, .lease_ms = station->policy.lease_ms,
                               .op_ms = options->op_ms, .poll_ms = station->policy.poll_ms,
                               .poll_max_ms = station->policy.poll_max_ms, .pool = station->pool};
  station->keeper = origin.keeper = crl_keeper_new(station->pool, &station->events);
  station->origin = crl_origin_new(&origin);
  if (station->scope == NULL || station->keeper == NULL || station->origin == NULL) return CORRAL_ENOMEM;
  /* A store that only this host shares holds its own elections there. */
  if (options->host_lock <= 0 || crl_pool_info(station->pool)->reach != CORRAL_REACH_FLEET) return CORRAL_OK;
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
  if (crl_env_random(&seed, sizeof seed) != CORRAL_OK) return crl_status_fail(error, CORRAL_EIO, "no randomness from the kernel");
  atomic_init(&station->dice, seed);
  station->events.hook = options->on_event;
  station->events.arg = options->event_arg;
  station->max_value = (uint64_t)options->max_value;
  station->op_ms = options->op_ms;
  station->held_ms = options->held_ms;
  station->compress_min = options->compress_min;
  station->generation = options->generation > 0;
  crl_quota_init(&station->negatives, options->negative_max);
  if (crl_key_space_make(&station->space, options->name_space) != CORRAL_OK) return crl_status_plain(error, CORRAL_ENOMEM);
  int status = open_store(c, options, error);
  if (status != CORRAL_OK) return status;
  station->herd = crl_herd_new();
  station->locks = crl_lock_table_new();
  station->workers = crl_workers_new(options->workers);
  station->events.notifier = crl_notifier_new();
  station->held = crl_held_new(options->held_bytes, options->held_ms);
  station->verdicts = crl_held_new(VERDICT_BYTES, VERDICT_MS);
  station->offer = (crl_offer){.held = station->held, .events = &station->events, .lease_ms = station->policy.lease_ms};
  station->pilot = crl_pilot_new(station);
  if (station->herd == NULL || station->locks == NULL || station->workers == NULL ||
      station->held == NULL || station->verdicts == NULL || station->pilot == NULL ||
      station->events.notifier == NULL ||
      make_rungs(station, options, origin_name(c, options)) != CORRAL_OK)
    return crl_status_plain(error, CORRAL_ENOMEM);
  return CORRAL_OK;
}

/* What no table of numbers can say. */
static int check_names(const corral_options *options, corral_error *error) {
  if (options->name_space != NULL && strlen(options->name_space) > 1024)
    return crl_status_fail(error, CORRAL_EINVAL, "name_space: longer than 1024 bytes");
  size_t len = options->origin == NULL ? 1 : strlen(options->origin);
  int is_url = crl_source_is_url(options->origin);
  if (!is_url && (len < 1 || len > 100)) return crl_status_fail(error, CORRAL_EINVAL, "origin: %zu bytes; accepted: a name of 1 to 100, or a URL", len);
  if (is_url && options->compute != NULL) return crl_status_fail(error, CORRAL_EINVAL, "a compute and an origin with a URL; accepted: one of them");
  if (options->host_dir != NULL && options->host_dir[0] != '/')
    return crl_status_fail(error, CORRAL_EINVAL, "host_dir: '%.100s'; accepted: an absolute path", options->host_dir);
  return CORRAL_OK;
}

int corral_open(corral **ret, const corral_options *user, corral_error *error) {
  corral_options options;
  corral_error unused;
  corral_policy policy;
  if (error == NULL) error = &unused;
  if (ret == NULL || user == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_open: no %s", ret == NULL ? "ret" : "options");
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
  crl_env_forks();
  if (crl_source_is_url(options.origin)) status = crl_source_open(&c->source, options.origin, (uint64_t)options.max_value, error);
  if (status == CORRAL_OK) status = make_station(c, &options, error);
  if (status != CORRAL_OK) {
    corral_close(c);
    return status;
  }
  *ret = c;
  return CORRAL_OK;
}

/* In a child of the process that used it, threads and connections are the parent's: they are left alone. */
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
  /* In this order the computes that run end before what they end by. */
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

/* ---- every call's first steps ---------------------------------------------------------------------------- */

static int check_callback(const crl_station *station, corral_error *error) {
  if (!crl_frame_within(&station->events)) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EINVAL,
                         "within on_event of this corral; accepted there: corral_counter");
}

static int check_open(const corral *c, corral_error *error) {
  uint32_t magic = c == NULL ? 0 : atomic_load(&((corral *)(uintptr_t)c)->magic);
  if (magic == CLOSING) return crl_status_plain(error, CORRAL_ECLOSED); /* a compute that close waits for */
  if (magic != MAGIC) return crl_status_fail(error, CORRAL_EINVAL, "not an open corral");
  return check_callback(&c->station, error);
}

static int check_key(const void *key, size_t key_len, corral_error *error) {
  if (key == NULL || key_len == 0) return crl_status_fail(error, CORRAL_EINVAL, "the key is empty; accepted: 1 to %d bytes", CRL_KEY_MOST);
  if (key_len > CRL_KEY_MOST)
    return crl_status_fail(error, CORRAL_EINVAL, "the key has %zu bytes; accepted: 1 to %d", key_len, CRL_KEY_MOST);
  return CORRAL_OK;
}

static int check_home(corral *c, corral_error *error) {
  unsigned here = crl_env_forks() + 1, home = atomic_load(&c->home);
  if (home == 0 && atomic_compare_exchange_strong(&c->home, &home, here)) home = here;
  return home == here ? CORRAL_OK : crl_status_plain(error, CORRAL_EFORKED);
}

int crl_handle_enter(corral *c, crl_station **ret, corral_error *error) {
  int status = check_open(c, error);
  if (status == CORRAL_OK) status = check_home(c, error);
  if (status == CORRAL_OK) *ret = &c->station;
  return status;
}

int crl_handle_check(const crl_station *station, corral_error *error) {
  return crl_handle_is_home(station) ? check_callback(station, error)
                                     : crl_status_plain(error, CORRAL_EFORKED);
}

int crl_handle_is_home(const crl_station *station) {
  return is_home((const corral *)(const void *)((const char *)station - offsetof(corral, station)));
}

/* A store of locks alone. */
static int check_values(const corral *c, corral_error *error) {
  const corral_store_info *info = crl_pool_info(c->station.pool);
  if (!info->locks_only) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EUNSUPPORTED, "%s has locks only, no values", info->name);
}

/* All that doesn't depend on the key. */
static int check_handle(corral *c, corral_error *error) {
  int status = check_open(c, error);
  if (status == CORRAL_OK) status = check_home(c, error);
  return status == CORRAL_OK ? check_values(c, error) : status;
}

static int check(corral *c, const void *key, size_t key_len, corral_error *error) {
  int status = check_handle(c, error);
  return status == CORRAL_OK ? check_key(key, key_len, error) : status;
}

corral_error *crl_handle_error(const corral_policy *policy) {
  size_t end = offsetof(corral_policy, error) + sizeof(corral_error *);
  return policy != NULL && policy->size >= end ? policy->error : NULL;
}

int crl_handle_call(corral *c, const void *key, size_t key_len, const corral_policy *policy, crl_call *call) {
  corral_error *error = crl_handle_error(policy);
  int status = check(c, key, key_len, error);
  if (status == CORRAL_OK) status = crl_policy_resolve(&call->policy, policy, &c->station.policy, error);
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

/* ---- ask ------------------------------------------------------------------------------------------------- */

int corral_get_or_compute(corral *c, const void *key, size_t key_len, const corral_policy *policy,
                          corral_compute *compute, void *arg, corral_value **ret) {
  crl_call call;
  if (compute == NULL || ret == NULL)
    return crl_status_fail(crl_handle_error(policy), CORRAL_EINVAL, "corral_get_or_compute: no %s", ret == NULL ? "ret" : "compute");
  int status = crl_handle_call(c, key, key_len, policy, &call);
  call.compute = compute;
  call.arg = arg;
  return status == CORRAL_OK ? crl_drive_call(&c->station, &call, ret) : status;
}

int corral_get(corral *c, const void *key, size_t key_len, const corral_policy *policy, corral_value **ret) {
  crl_call call;
  if (ret == NULL) return crl_status_fail(crl_handle_error(policy), CORRAL_EINVAL, "corral_get: no ret");
  int status = crl_handle_call(c, key, key_len, policy, &call);
  if (status != CORRAL_OK) return status;
  crl_handle_bind(c, &call);
  return crl_drive_call(&c->station, &call, ret);
}

static int check_many(corral *c, const corral_item *items, size_t count, const corral_policy *policy, crl_call *call) {
  corral_error *error = crl_handle_error(policy);
  int status = check_handle(c, error);
  if (status == CORRAL_OK) status = crl_policy_resolve(&call->policy, policy, &c->station.policy, error);
  if (status == CORRAL_OK && items == NULL && count > 0) status = crl_status_fail(error, CORRAL_EINVAL, "corral_get_many: no items");
  return status;
}

int corral_get_many(corral *c, corral_item *items, size_t count, const corral_policy *policy, corral_compute_many *compute, void *arg) {
  crl_call call = {.compute_many = compute, .arg = arg};
  int status = check_many(c, items, count, policy, &call);
  for (size_t i = 0; items != NULL && i < count; i++) {
    corral_item *item = &items[i];
    memset(&item->error, 0, sizeof item->error);
    item->value = NULL;
    item->status = status == CORRAL_OK ? check_key(item->key, item->key_len, &item->error) : crl_status_plain(&item->error, status);
  }
  if (status != CORRAL_OK || count == 0) return status;
  status = crl_drive_many(&c->station, &call, items, count);
  for (size_t i = 0; status != CORRAL_OK && i < count; i++) items[i].status = crl_status_plain(&items[i].error, status);
  return status == CORRAL_OK ? status : crl_status_plain(crl_handle_error(policy), status);
}

/* ---- single operations ----------------------------------------------------------------------------------- */

/* What this process holds of a key for the store's return is void; where the store could not be told, it will be. */
static void void_held(crl_station *station, const corral_op *op, const crl_name *name) {
  int away = op->status == CORRAL_EUNAVAILABLE || op->status == CORRAL_EUNKNOWN;
  int64_t now = crl_env_now_ms();
  crl_held_drop(station->verdicts, op->key, op->key_len);
  if (op->verb == CORRAL_VERB_INVALIDATE && op->status == CORRAL_OK) crl_held_invalidated(station->held, op->key, op->key_len, now);
  else crl_held_drop_fill(station->held, op->key, op->key_len);
  if (!away || op->verb != CORRAL_VERB_INVALIDATE) return;
  crl_held_invalidate(station->held, op->key, op->key_len, NULL, now);
  crl_event_emit(&station->events, CORRAL_EVENT_HELD, name->key, name->key_len, NULL);
}

static void forget_near(crl_station *station, const crl_key *key) {
  if (station->near != NULL) crl_near_drop(station->near, crl_key_hash(key));
}

static int run_verb(corral *c, corral_verb verb, const crl_name *name, corral_error *error) {
  crl_key key;
  corral_error detail = {0};
  int status = check(c, name->key, name->key_len, error);
  if (status == CORRAL_OK && crl_key_make(&key, CRL_KEY_VALUE, &c->station.space, name) != CORRAL_OK)
    status = crl_status_plain(error, CORRAL_ENOMEM);
  if (status != CORRAL_OK) return status;
  corral_op op = {.verb = verb, .key = key.stored, .key_len = key.stored_len, .error = &detail};
  crl_pool_perform(c->station.pool, &op, 1, crl_env_now_ms() + c->station.op_ms);
  void_held(&c->station, &op, name);
  forget_near(&c->station, &key);
  /* After the store: a flight that begins between the two has seen the store as it is now. */
  crl_herd_detach_key(c->station.herd, name);
  crl_key_clean(&key);
  return op.status == CORRAL_OK ? CORRAL_OK : crl_put_say(&op, error);
}

int corral_invalidate(corral *c, const void *key, size_t key_len, corral_error *error) {
  return run_verb(c, CORRAL_VERB_INVALIDATE, &(crl_name){.key = key, .key_len = key_len}, error);
}

int corral_invalidate_variant(corral *c, const void *key, size_t key_len, const void *variant, size_t variant_len, corral_error *error) {
  int status = crl_policy_variant(variant, variant_len, error);
  if (status != CORRAL_OK) return status;
  return run_verb(c, CORRAL_VERB_INVALIDATE, &(crl_name){.key = key, .key_len = key_len, .variant = variant, .variant_len = variant_len}, error);
}

int corral_expire(corral *c, const void *key, size_t key_len, corral_error *error) {
  return run_verb(c, CORRAL_VERB_EXPIRE, &(crl_name){.key = key, .key_len = key_len}, error);
}

/* Which flights will give the tag to their values nobody knows yet: nobody joins any of them from now on. */
static int change_tag(corral *c, const void *tag, size_t len, int only_expire, corral_error *error) {
  int status = check_handle(c, error);
  if (status != CORRAL_OK) return status;
  status = crl_marks_change(&c->station, tag, len, only_expire, error);
  crl_offer_void(&c->station.offer, tag, len);
  crl_herd_detach_all(c->station.herd);
  return status;
}

static int check_tag(const void *tag, size_t len, corral_error *error) {
  if (tag != NULL && len >= 1 && len <= CRL_TAG_MOST) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EINVAL, "the tag has %zu bytes; accepted: 1 to %d", tag == NULL ? 0 : len, CRL_TAG_MOST);
}

int corral_invalidate_tag(corral *c, const void *tag, size_t len, corral_error *error) {
  int status = check_tag(tag, len, error);
  return status == CORRAL_OK ? change_tag(c, tag, len, 0, error) : status;
}

int corral_expire_tag(corral *c, const void *tag, size_t len, corral_error *error) {
  int status = check_tag(tag, len, error);
  return status == CORRAL_OK ? change_tag(c, tag, len, 1, error) : status;
}

static int change_all(corral *c, int only_expire, corral_error *error) {
  if (c != NULL && atomic_load(&c->magic) == MAGIC && !c->station.generation)
    return crl_status_fail(error, CORRAL_EUNSUPPORTED, "not without the option generation = 1, here and in all who share this namespace");
  return change_tag(c, "", 0, only_expire, error);
}

int corral_invalidate_all(corral *c, corral_error *error) { return change_all(c, 0, error); }
int corral_expire_all(corral *c, corral_error *error) { return change_all(c, 1, error); }

/* A value of the namespace carries its tag, as it stands before the value is stored. */
static int tag_of_all(crl_station *station, corral_fill *fill, corral_error *error) {
  crl_marks none = {0};
  if (!station->generation) return CORRAL_OK;
  if (!crl_fill_tag_of_all(fill)) return crl_status_plain(error, CORRAL_ENOMEM);
  return crl_marks_stamp(station, fill->tags, &none, CRL_SINCE_NOW, error);
}

static int set_fill(crl_station *station, const crl_key *key, const corral_policy *policy, corral_fill *fill, corral_error *error) {
  crl_finish finish = {.policy = policy, .wall_ms = crl_env_wall_ms(), .compress_min = station->compress_min};
  crl_product product;
  int status = tag_of_all(station, fill, error);
  if (status != CORRAL_OK) return status;
  crl_env_random(&finish.dice, sizeof finish.dice);
  if (crl_fill_finish(fill, &finish, &product) == CRL_MADE_FAILURE) return crl_status_plain(error, CORRAL_ENOMEM);
  crl_put put = {.key = key->stored, .key_len = key->stored_len, .record = product.record->data, .record_len = product.record->size,
                 .hard_ttl = product.hard_ttl, .lease_ms = policy->lease_ms, .op_ms = station->op_ms};
  status = crl_put_record(station->pool, &put, crl_env_now_ms() + policy->wait_ms, error);
  crl_product_clean(&product);
  if (status == CORRAL_OK) crl_held_invalidated(station->held, key->stored, key->stored_len, crl_env_now_ms());
  else crl_held_drop_fill(station->held, key->stored, key->stored_len);
  forget_near(station, key);
  return status;
}

int corral_set(corral *c, const void *user_key, size_t key_len, const corral_policy *policy, const void *data,
               size_t size) {
  crl_call call = {0};
  crl_key key;
  corral_error *error = crl_handle_error(policy);
  int status = crl_handle_call(c, user_key, key_len, policy, &call);
  if (status != CORRAL_OK) return status;
  crl_name name = crl_call_name(&call);
  if (data == NULL && size > 0) return crl_status_fail(error, CORRAL_EINVAL, "corral_set: no data");
  if (crl_key_make(&key, CRL_KEY_VALUE, &c->station.space, &name) != CORRAL_OK) return crl_status_plain(error, CORRAL_ENOMEM);
  corral_fill fill = {.key = key.whole, .key_len = key.whole_len, .digest = crl_key_digest(&key), .max_value = c->station.max_value};
  status = corral_fill_bytes(&fill, data, size);
  if (status != CORRAL_OK) crl_status_plain(error, status);
  else status = set_fill(&c->station, &key, &call.policy, &fill, error);
  if (status == CORRAL_OK) crl_herd_detach_key(c->station.herd, &name);
  crl_fill_clean(&fill);
  crl_key_clean(&key);
  return status;
}

/* ---- look inside ----------------------------------------------------------------------------------------- */

static void copy_note(char to[64], const char from[CORRAL_NOTE]) {
  memcpy(to, from, CORRAL_NOTE);
  to[CORRAL_NOTE - 1] = '\0';
}

static void inspect_header(const corral_header *header, const corral_op *op, corral_inspection *ret) {
  ret->failures = header->failures;
  if (header->state == CORRAL_LEASED && op->until_ms != 0) {
    ret->lease_left_ms = op->until_ms;
    copy_note(ret->holder, header->note);
  } else if (header->state == CORRAL_VERDICT && op->until_ms != 0) {
    ret->retry_left_ms = op->until_ms;
    ret->failure_code = header->code;
    copy_note(ret->failure, header->note);
  }
}

static void inspect_envelope(const crl_envelope *envelope, int expired, const corral_op *op, corral_inspection *ret) {
  crl_lives lives = crl_policy_judge(envelope, expired, op->life_ms, crl_env_wall_ms());
  ret->size = envelope->plain_len;
  ret->age_ms = lives.age;
  ret->ttl_ms = envelope->ttl_ms;
  ret->swr_ms = envelope->swr_ms;
  ret->sie_ms = envelope->sie_ms;
  ret->left_ms = op->life_ms;
  ret->cost_ms = (int64_t)(envelope->cost_us / 1000);
  ret->created_ms = envelope->created_ms;
  ret->version = envelope->version;
  if (envelope->kind == CRL_KIND_NEGATIVE) ret->state = "negative";
  else if (envelope->kind == CRL_KIND_PASS) ret->state = "pass";
  else ret->state = lives.fresh > 0 ? "fresh" : lives.swr > 0 || lives.sie > 0 ? "stale" : "expired";
}

static int inspect_record(crl_station *station, crl_key *key, const corral_op *op, corral_inspection *ret, corral_error *error) {
  corral_header header;
  crl_envelope envelope;
  int read = crl_record_read_whole(op->found, op->found_len, &header);
  if (read != CORRAL_OK) return crl_status_plain(error, read);
  ret->stored_size = op->found_len;
  inspect_header(&header, op, ret);
  int status = crl_envelope_read(op->found, op->found_len, crl_key_digest(key), &envelope);
  if (status == CORRAL_OK && op->life_ms != 0) {
    crl_marks_source source = {.deadline = crl_env_now_ms() + station->op_ms};
    crl_standing standing = crl_marks_standing(station, op->found + envelope.metadata_at, envelope.tag_count > 0 ? envelope.metadata_len : 0, &source);
    inspect_envelope(&envelope, (header.flags & CORRAL_FLAG_EXPIRED) || standing == CRL_STANDS_EXPIRED, op, ret);
    if (standing == CRL_STANDS_VOID) ret->state = "void";
  }
  return status == CORRAL_ECORRUPT ? crl_status_plain(error, status) : CORRAL_OK;
}

int corral_inspect(corral *c, const void *user_key, size_t key_len, corral_inspection *ret, size_t ret_size,
                   corral_error *error) {
  crl_key key;
  crl_name name = {.key = user_key, .key_len = key_len};
  corral_error detail = {0};
  corral_inspection found = {.state = "none", .age_ms = -1, .left_ms = -1};
  int status = check(c, user_key, key_len, error);
  if (status != CORRAL_OK) return status;
  if (ret == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_inspect: no ret");
  if (crl_key_make(&key, CRL_KEY_VALUE, &c->station.space, &name) != CORRAL_OK) return crl_status_plain(error, CORRAL_ENOMEM);
  corral_op op = {.verb = CORRAL_VERB_GET, .key = key.stored, .key_len = key.stored_len, .error = &detail};
  crl_pool_perform(c->station.pool, &op, 1, crl_env_now_ms() + c->station.policy.wait_ms);
  if (op.status == CORRAL_OK) status = inspect_record(&c->station, &key, &op, &found, error);
  else if (op.status != CORRAL_EMISS) status = crl_put_say(&op, error);
  if (op.found_free != NULL) op.found_free(op.found_owner);
  crl_key_clean(&key);
  if (status == CORRAL_OK) memcpy(ret, &found, ret_size < sizeof found ? ret_size : sizeof found);
  return status;
}

/* Of a kind of corral.h. */
static crl_key_kind kind_of(corral_key_kind kind) { return kind == CORRAL_KEY_TAG ? CRL_KEY_TAG : kind == CORRAL_KEY_LOCK ? CRL_KEY_LOCK : CRL_KEY_VALUE; }

static int copy_key(const crl_key *key, void *room, size_t size, size_t *ret_len, corral_error *error) {
  if (key->stored_len > size) return crl_status_fail(error, CORRAL_ETOOBIG, "the stored key has %zu bytes; room for %zu", key->stored_len, size);
  memcpy(room, key->stored, key->stored_len);
  *ret_len = key->stored_len;
  return CORRAL_OK;
}

int corral_stored_key(corral *c, corral_key_kind kind, const void *user_key, size_t key_len, const corral_policy *policy, void *room, size_t size,
                      size_t *ret_len) {
  crl_call call = {0};
  crl_key key;
  corral_error *error = crl_handle_error(policy);
  int status = check_open(c, error);
  if (status == CORRAL_OK) status = check_key(user_key, key_len, error);
  if (status == CORRAL_OK) status = crl_policy_resolve(&call.policy, policy, &c->station.policy, error);
  if (status != CORRAL_OK) return status;
  call.key = user_key;
  call.key_len = key_len;
  crl_name name = crl_call_name(&call);
  if ((unsigned)kind > CORRAL_KEY_LOCK || (kind != CORRAL_KEY_VALUE && name.variant_len > 0) || room == NULL || ret_len == NULL)
    return crl_status_fail(error, CORRAL_EINVAL, "corral_stored_key: accepted: a value with or without a variant, a tag, a lock; room and ret_len");
  if (crl_key_make(&key, kind_of(kind), &c->station.space, &name) != CORRAL_OK) return crl_status_plain(error, CORRAL_ENOMEM);
  status = copy_key(&key, room, size, ret_len, error);
  crl_key_clean(&key);
  return status;
}

uint64_t corral_counter(const corral *c, corral_event event) {
  if (c == NULL || (unsigned)event >= CORRAL_EVENT_COUNT) return 0;
  return atomic_load_explicit(&((corral *)(uintptr_t)c)->station.events.count[event], memory_order_relaxed);
}
