/* cluster.c: Redis Cluster as a store.
 *
 *   redis+cluster://[user:password@]host1[:port],host2[:port]/
 *   rediss+cluster://...   the same with TLS
 *
 * The hosts are some nodes of the cluster, or a name that leads to some; the others are learnt from
 * them, and asked at the addresses under which the cluster announces them. Parameters as in
 * redis.c; tls_name, if it is given, is in the certificate of every node, else each node's own name
 * must be. There is database 0 only.
 *
 * Each primary is a server of the host, with its handles; a handle is one of redis.c. Replicas are
 * not asked: leases need the primary, and a replica sends each key to its primary (MOVED), so a
 * node that is none any more is noticed by the next operation. The greeting asks for the node's id:
 * where another node, perhaps of another cluster, has taken over an address, nothing is sent to it.
 *
 * A user (ACL) needs in addition to what redis.c says: asking, cluster|slots, cluster|myid. */
#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

#include "inspect.h"
#include "redlock.h"

enum {
  PORT = 6379,
  SEEDS = 100,
  /* Each process has as many to each node, and a message carries what has queued for a node: fewer
   * connections make it carry more. */
  NODE_HANDLES = 2
};

/* ---- the URI ------------------------------------------------------------------------------- */

/* Reads "host", "host:port", "[v6]" or "[v6]:port", up to `end`; 0: it is none of them. */
static int read_seed(const char *text, const char *end, int otherwise, crl_redis_place *ret) {
  const char *stop = memchr(text, ':', (size_t)(end - text));
  size_t len;
  memset(ret, 0, sizeof *ret);
  if (*text == '[') {
    const char *close = memchr(text, ']', (size_t)(end - text));
    if (close == NULL || (close + 1 != end && close[1] != ':')) return 0;
    stop = close + 1 == end ? NULL : close + 1;
    len = (size_t)(close - ++text);
  } else {
    len = (size_t)((stop == NULL ? end : stop) - text);
  }
  if (len == 0 || len >= sizeof ret->host) return 0;
  memcpy(ret->host, text, len);
  ret->port = otherwise;
  if (stop == NULL) return 1;
  char *after;
  long port = strtol(stop + 1, &after, 10);
  ret->port = (int)port;
  return isdigit((unsigned char)stop[1]) && after == end && port >= 1 && port <= 65535;
}

static int bad_uri(const crl_redis_cluster *c, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return c->base.host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

int crl_redis_cluster_seeds(crl_redis_cluster *c, crl_redis_store *base, int port,
                            const corral_uri *uri, corral_error *error) {
  const char *text = uri->hosts != NULL && uri->hosts[0] != '\0' ? uri->hosts : "127.0.0.1";
  size_t count = 1;
  for (const char *at = text; *at != '\0'; at++) count += *at == ',';
  if (count > SEEDS) return bad_uri(c, uri, error, "more than 100 hosts");
  c->seeds = calloc(count, sizeof(crl_redis_node *));
  if (c->seeds == NULL) return c->base.host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  for (; c->seed_count < count; c->seed_count++) {
    crl_redis_place place;
    const char *end = text + strcspn(text, ",");
    if (!read_seed(text, end, port, &place))
      return bad_uri(c, uri, error,
                     "accepted are host, host:port, [address]:port, separated by commas");
    c->seeds[c->seed_count] = crl_redis_node_new(base, &place, CRL_REDIS_FRONT_DOOR);
    if (c->seeds[c->seed_count] == NULL)
      return c->base.host->fail(error, CORRAL_ENOMEM, "no memory for a store");
    text = *end == ',' ? end + 1 : end;
  }
  return CORRAL_OK;
}

void crl_redis_cluster_close(void *store) {
  crl_redis_cluster *c = store;
  for (size_t i = 0; i < c->seed_count; i++) crl_redis_node_let_go(&c->seeds[i]->store);
  for (size_t i = 0; i < CRL_REDIS_NODES; i++)
    if (c->nodes[i] != NULL) crl_redis_node_let_go(&c->nodes[i]->store);
  if (c->moved_fd >= 0) close(c->moved_fd);
  free(c->seeds);
  free(c->ids);
  free(c->told);
  pthread_mutex_destroy(&c->mutex);
  crl_redis_close(&c->base); /* frees the cluster, whose first member it is */
}

int crl_redis_cluster_begin(crl_redis_cluster *c, const crl_redis_ways *ways,
                            const corral_host *host, const corral_uri *uri, corral_error *error) {
  pthread_mutex_init(&c->mutex, NULL);
  atomic_init(&c->moved_fd, -1);
  c->ways = ways;
  return crl_redis_store_begin(&c->base, host, uri, error);
}

void crl_redis_cluster_describe(crl_redis_cluster *c, corral_store_info *info) {
  info->max_key = 65536;
  info->max_record = CRL_REDIS_LARGEST;
  info->handles = 4; /* of each node, as in redis.c */
  info->name = c->base.name;
  info->servers = CRL_REDIS_NODES;
  info->confirms = c->base.confirm_replicas > 0;
  info->permits = 1;
  info->turns = 1;
  info->adopts = 1;
}

static int cluster_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                        corral_store_info *info, corral_error *error) {
  void *memory = calloc(1, sizeof(crl_redis_cluster));
  crl_redis_cluster *c = memory;
  if (c == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  int status = crl_redis_cluster_begin(c, &crl_redis_cluster_ways, host, uri, error);
  c->base.kind = CRL_REDIS_NODE;
  if (status == CORRAL_OK) status = crl_redis_cluster_seeds(c, &c->base, PORT, uri, error);
  if (status != CORRAL_OK) {
    crl_redis_cluster_close(c);
    return status;
  }
  snprintf(c->base.name, sizeof c->base.name, "%.140s", c->seeds[0]->store.name);
  crl_redis_cluster_describe(c, info);
  info->handles = NODE_HANDLES;
  *ret_store = c;
  return CORRAL_OK;
}

/* ---- connecting ---------------------------------------------------------------------------- */

int crl_redis_cluster_connect_server(void *store, size_t server, int64_t deadline,
                                     void **ret_handle, corral_error *error) {
  crl_redis_cluster *c = store;
  if (server == CRL_REDIS_FRONT_DOOR)
    return crl_redis_cluster_connect(store, deadline, ret_handle, error);
  crl_redis_node *node = crl_redis_node_hold(c, server);
  if (node == NULL)
    return c->base.host->fail(error, CORRAL_EUNAVAILABLE, "%s: the cluster has no such node",
                              c->base.name);
  if (crl_redis_node_is_known(c, node))
    return crl_redis_connect_telling(&node->store, deadline, ret_handle, error);
  int status =
      c->base.host->fail(error, CORRAL_EUNAVAILABLE, "%s: has no keys any more", node->store.name);
  crl_redis_node_let_go(&node->store);
  return status;
}

int crl_redis_cluster_connect(void *store, int64_t deadline, void **ret_handle,
                              corral_error *error) {
  crl_redis_cluster *c = store;
  int status = c->ways->enter(c, deadline, ret_handle, error);
  if (status == CORRAL_OK) crl_redis_tell_warnings(*ret_handle, error);
  return status;
}

size_t crl_redis_cluster_route(void *store, const void *key, size_t key_len) {
  const crl_redis_cluster *c = store;
  return crl_redis_slot_number(crl_redis_slot_entry(c, c->ways->slot_of(key, key_len)));
}

int crl_redis_cluster_refresh(void *store, int64_t deadline, corral_error *error) {
  crl_redis_cluster *c = store;
  int changed = 0, status = c->ways->learn(c, deadline, &changed, error);
  if (status != CORRAL_OK) return status;
  return c->base.host->fail(error, CORRAL_OK, "%s",
                            changed ? "other nodes have some of the keys" : "");
}

/* ---- batches ------------------------------------------------------------------------------- */

/* 1: the number of this handle's node is another node's by now, or its name leads elsewhere, or it
 * has said that it is a replica. Where there is one slot, only the node that has it is of use. */
static int is_past(const crl_redis_handle *h) {
  crl_redis_node *node = (crl_redis_node *)(void *)h->store;
  crl_redis_cluster *c = crl_redis_cluster_of(h->store);
  if (h->elsewhere || h->demoted != atomic_load_explicit(&h->store->demoted, memory_order_relaxed))
    return 1;
  if (c->ways->listen != NULL && crl_redis_slot_number(crl_redis_slot_entry(c, 0)) != node->number)
    return 1;
  return node->number != CRL_REDIS_FRONT_DOOR &&
         atomic_load_explicit(&c->nodes[node->number], memory_order_relaxed) != node;
}

static int refuse(const crl_redis_handle *h, const corral_batch *batch, corral_error *error) {
  static const char why[] = "the node is elsewhere by now; nothing was sent";
  crl_redis_result_none_sent(h, batch, CORRAL_EUNAVAILABLE, why);
  return h->store->host->fail(error, CORRAL_EUNAVAILABLE, "%s: %s", h->store->name, why);
}

int crl_redis_cluster_perform(void *handle, const corral_batch *batch, int64_t deadline,
                              corral_error *error) {
  if (is_past(handle)) return refuse(handle, batch, error);
  return crl_redis_perform(handle, batch, deadline, error);
}

int crl_redis_cluster_begin_looks(void *handle, const corral_batch *batch, corral_error *error) {
  if (is_past(handle)) return refuse(handle, batch, error);
  return crl_redis_begin(handle, batch, error);
}

const corral_store crl_plugin_redis_cluster = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .op_size = sizeof(corral_op),
    .name = "redis+cluster",
    .schemes = "redis+cluster rediss+cluster",
    .summary = "Redis Cluster: as redis, each key on the node that has its slot",
    .open = cluster_open,
    .close = crl_redis_cluster_close,
    .connect = crl_redis_cluster_connect,
    .disconnect = crl_redis_disconnect,
    .perform = crl_redis_cluster_perform,
    .route = crl_redis_cluster_route,
    .connect_server = crl_redis_cluster_connect_server,
    .watch = crl_redis_cluster_watch,
    .changes = crl_redis_cluster_changes,
    .unwatch = crl_redis_cluster_unwatch,
    .register_keys = crl_redis_cluster_register_keys,
    .descriptor = crl_redis_descriptor,
    .begin = crl_redis_cluster_begin_looks,
    .finish = crl_redis_finish,
    .next = &crl_plugin_redlock,
    .refresh = crl_redis_cluster_refresh,
    .inspect = crl_redis_cluster_inspect,
    .list = crl_redis_cluster_list,
    .map = crl_redis_slots_show,
    .take_map = crl_redis_slots_take,
};
