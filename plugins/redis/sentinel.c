/* sentinel.c: a primary that Redis Sentinel names, as a store.
 *
 *   redis+sentinel://[user:password@]host1[:port],host2[:port]/NAME[/DB]
 *   rediss+sentinel://...   the same with TLS
 *
 * The hosts are sentinels (port 26379); NAME is that of the primary among them. User, password and
 * parameters are those of the servers, as in redis.c. The sentinels have their own: sentinel_user,
 * sentinel_password, sentinel_tls (yes, no; as the servers if it isn't given), sentinel_tls_ca,
 * sentinel_tls_cert, sentinel_tls_key, sentinel_tls_verify, sentinel_tls_name (of the first four
 * what isn't given is as for the servers).
 *
 * A new connection is used only if the server says that it is the primary (ROLE): so one that came
 * back as a replica is never written to, whoever names it. Once another server is the primary, all
 * handles of the former one are refused, with nothing sent.
 *
 * A user (ACL) needs in addition to what redis.c says: role; and on the sentinels
 * sentinel|get-master-addr-by-name, subscribe and the channel +switch-master. Without the last two
 * changes are noticed when the former primary fails, and once in ASK_MS. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "inspect.h"

enum {
  PORT = 26379,
  HEAR_MS = 100,  /* the bell is listened to at most so often by those who perform */
  DEAF_MS = 1000, /* how often sentinels are asked where there is no bell */
  ASK_MS = 60000  /* and where there is one */
};

/* ---- the URI ------------------------------------------------------------------------------- */

static int bad_uri(const corral_host *host, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

/* Reads "/NAME" or "/NAME/DB". */
static int read_path(crl_redis_sentinel *s, const corral_uri *uri, corral_error *error) {
  const corral_host *host = s->cluster.base.host;
  static const char accepted[] = "accepted is redis+sentinel://SENTINEL,SENTINEL/NAME/DB";
  if (uri->hosts == NULL || uri->hosts[0] == '\0' || uri->path[0] != '/')
    return bad_uri(host, uri, error, accepted);
  const char *name = uri->path + 1, *stop = name + strcspn(name, "/");
  size_t len = (size_t)(stop - name);
  if (len == 0) return bad_uri(host, uri, error, accepted);
  if (len >= sizeof s->master) return bad_uri(host, uri, error, "NAME has 127 bytes at most");
  for (size_t i = 0; i < len; i++)
    if (name[i] <= ' ' || name[i] > '~')
      return bad_uri(host, uri, error, "NAME has printable letters only, no space");
  memcpy(s->master, name, len);
  if (*stop == '\0' || stop[1] == '\0') return CORRAL_OK;
  char *end;
  errno = 0;
  long db = strtol(stop + 1, &end, 10);
  if (!isdigit((unsigned char)stop[1]) || *end != '\0' || errno != 0 || db > INT_MAX)
    return bad_uri(host, uri, error, "behind the name only /DB may follow, a number");
  s->cluster.base.db = db;
  return CORRAL_OK;
}

static void sentinel_close(void *store) {
  crl_redis_sentinel *s = store;
  crl_redis_store *guards = s->guards;
  crl_redis_sentinel_unhang(s);
  pthread_mutex_destroy(&s->mutex);
  crl_redis_cluster_close(s);
  if (guards != NULL) crl_redis_close(guards);
}

static int begin_guards(crl_redis_sentinel *s, const corral_uri *uri, corral_error *error) {
  s->guards = calloc(1, sizeof *s->guards);
  if (s->guards == NULL)
    return s->cluster.base.host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  int status = crl_redis_store_begin_sentinels(s->guards, &s->cluster.base, uri, error);
  if (status != CORRAL_OK) return status;
  return crl_redis_cluster_seeds(&s->cluster, s->guards, PORT, uri, error);
}

static int sentinel_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                         corral_store_info *info, corral_error *error) {
  crl_redis_sentinel *s = calloc(1, sizeof *s);
  if (s == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  crl_redis_cluster *c = &s->cluster;
  pthread_mutex_init(&s->mutex, NULL);
  atomic_init(&s->bell_fd, -1);
  int status = crl_redis_cluster_begin(c, &crl_redis_sentinel_ways, host, uri, error);
  c->base.kind = CRL_REDIS_PRIMARY;
  if (status == CORRAL_OK) status = read_path(s, uri, error);
  if (status == CORRAL_OK) status = begin_guards(s, uri, error);
  if (status != CORRAL_OK) {
    sentinel_close(s);
    return status;
  }
  snprintf(c->base.name, sizeof c->base.name, "redis %s", s->master);
  crl_redis_cluster_describe(c, info);
  *ret_store = s;
  return CORRAL_OK;
}

/* ---- the refresh --------------------------------------------------------------------------- */

/* A switch that the bell told of is told by the next refresh. */
static int sentinel_refresh(void *store, int64_t deadline, corral_error *error) {
  crl_redis_sentinel *s = store;
  int changed, status = crl_redis_sentinel_ways.learn(&s->cluster, deadline, &changed, error);
  if (status != CORRAL_OK && !atomic_load(&s->untold)) return status;
  return s->cluster.base.host->fail(error, CORRAL_OK, "%s",
                                    atomic_exchange(&s->untold, 0) ? "another primary" : "");
}

/* ---- batches ------------------------------------------------------------------------------- */

static crl_redis_sentinel *sentinel_of(const crl_redis_handle *h) {
  return (crl_redis_sentinel *)(void *)crl_redis_cluster_of(h->store);
}

/* 1: at most once in `pause` ms, on one thread. */
static int is_turn(_Atomic int64_t *at, int64_t now, int64_t pause) {
  int64_t was = atomic_load_explicit(at, memory_order_relaxed);
  return now - was >= pause && atomic_compare_exchange_strong(at, &was, now);
}

static int64_t listen_to_bell(const crl_redis_handle *h, const corral_batch *batch) {
  crl_redis_sentinel *s = sentinel_of(h);
  int64_t now = batch->now > 0 ? batch->now : h->store->host->now_ms();
  if (is_turn(&s->heard_at, now, HEAR_MS)) (void)crl_redis_sentinel_ways.listen(&s->cluster);
  return now;
}

/* Sends all operations to the server that they came to, with nothing done: so the host learns that
 * the sentinels are to be asked, which it does behind its callers. */
static int send_back(const crl_redis_handle *h, const corral_batch *batch) {
  for (size_t i = 0; i < batch->count; i++) {
    corral_op *op = corral_batch_op(batch, i);
    op->status = CORRAL_EMOVED;
    op->server = (uint32_t)((const crl_redis_node *)(const void *)h->store)->number;
  }
  return CORRAL_OK;
}

static int perform(void *handle, const corral_batch *batch, int64_t deadline, corral_error *error) {
  crl_redis_sentinel *s = sentinel_of(handle);
  int64_t now = listen_to_bell(handle, batch);
  if (is_turn(&s->asked_at, now, atomic_load(&s->bell_fd) < 0 ? DEAF_MS : ASK_MS))
    return send_back(handle, batch);
  return crl_redis_cluster_perform(handle, batch, deadline, error);
}

static int begin(void *handle, const corral_batch *batch, corral_error *error) {
  (void)listen_to_bell(handle, batch);
  return crl_redis_cluster_begin_looks(handle, batch, error);
}

const corral_store crl_plugin_redis_sentinel = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .op_size = sizeof(corral_op),
    .name = "redis+sentinel",
    .schemes = "redis+sentinel rediss+sentinel",
    .summary = "Redis Sentinel: as redis, on the primary that sentinels name",
    .open = sentinel_open,
    .close = sentinel_close,
    .connect = crl_redis_cluster_connect,
    .disconnect = crl_redis_disconnect,
    .perform = perform,
    .route = crl_redis_cluster_route,
    .connect_server = crl_redis_cluster_connect_server,
    .watch = crl_redis_cluster_watch,
    .changes = crl_redis_cluster_changes,
    .unwatch = crl_redis_cluster_unwatch,
    .register_keys = crl_redis_cluster_register_keys,
    .descriptor = crl_redis_descriptor,
    .begin = begin,
    .finish = crl_redis_finish,
    .next = &crl_plugin_redis_cluster,
    .refresh = sentinel_refresh,
    .inspect = crl_redis_sentinel_inspect,
    .list = crl_redis_cluster_list,
};
