/* cluster.h: Redis Cluster, shared by the cluster_ files. Internal to plugins/redis.
 *
 *   cluster.c         the table of redis+cluster:; handles
 *   cluster_map.c     which node has which slot; the numbers of nodes
 *   cluster_slots.c   CLUSTER SLOTS: asking for it, reading it, the refresh
 *   cluster_moved.c   replies that name another node
 *   cluster_watch.c   one watch for all nodes
 *   sentinel.h        a primary that sentinels name: a cluster of one slot
 *
 * A node is an address; its number is its `server` for the host. Number 0 is the front door: any of
 * the hosts that the URI names. It has the keys of slots that nobody is known to have, so it is
 * asked first, and says whom to ask. */
#ifndef CRL_REDIS_CLUSTER_H
#define CRL_REDIS_CLUSTER_H

#include "redis.h"

enum {
  CRL_REDIS_SLOTS = 16384,
  CRL_REDIS_NODES = CORRAL_SERVERS, /* numbers of nodes, 0 included */
  CRL_REDIS_ID = 40,                /* bytes of a node's id */
  CRL_REDIS_HOST = 256,
  CRL_REDIS_FRONT_DOOR = 0
};

typedef struct crl_redis_cluster crl_redis_cluster;

/* One node. Its store has an address of its own, and borrows all else from the cluster's; it comes
 * first, so that a handle's store is its node. Freed when nobody holds it any more. */
typedef struct crl_redis_node {
  crl_redis_store store;
  _Atomic size_t holders;
  size_t number;
  char host[CRL_REDIS_HOST], tls_name[CRL_REDIS_HOST];
  /* guarded by the cluster's mutex: "" when it isn't known; whether it has slots by the last map;
   * when a reply last named it, host->now_ms */
  char id[CRL_REDIS_ID + 1];
  int has_slots;
  int64_t named_at;
} crl_redis_node;

/* A node as a map or a reply names it. */
typedef struct crl_redis_place {
  char host[CRL_REDIS_HOST], tls_name[CRL_REDIS_HOST]; /* tls_name "": the host */
  int port;
  char id[CRL_REDIS_ID + 1]; /* "": unknown */
} crl_redis_place;

/* The way by which it is known which node has which key. */
typedef struct crl_redis_ways {
  unsigned (*slot_of)(const void *key, size_t len);
  /* Connects to a node, and learns the map if there is none. */
  int (*enter)(crl_redis_cluster *c, int64_t deadline, void **ret_handle, corral_error *error);
  /* Learns the map anew. */
  int (*learn)(crl_redis_cluster *c, int64_t deadline, int *changed, corral_error *error);
  /* NULL: nobody tells of moves unasked. Else takes what was told, without waiting; returns the
   * descriptor on which more is told; -1: there is none at the moment. */
  int (*listen)(crl_redis_cluster *c);
} crl_redis_ways;

struct crl_redis_cluster {
  crl_redis_store base; /* what all nodes have in common */
  const crl_redis_ways *ways;
  crl_redis_node **seeds;
  size_t seed_count;
  pthread_mutex_t mutex; /* guards what isn't atomic */
  crl_redis_node *_Atomic nodes[CRL_REDIS_NODES];
  /* Of each slot the number of its node, and above it how often that has changed. Slots are
   * independent of each other, so each is replaced by itself. */
  _Atomic uint32_t slots[CRL_REDIS_SLOTS];
  _Atomic int has_map;
  char (*ids)[CRL_REDIS_ID + 1]; /* of the nodes of the last map, replicas too */
  size_t id_count;
  /* The last map as it came, behind the host that was asked and a NUL: for the other processes of
   * this host. NULL: none. */
  char *told;
  size_t told_len;
  _Atomic uint32_t hint;  /* number of the node that was named last */
  _Atomic int refreshing; /* 1: somebody asks for the map */
  _Atomic int moved_fd;   /* the watch's: readable when a slot has moved; -1: there is no watch */
};

/* The cluster of a node's store. */
static inline crl_redis_cluster *crl_redis_cluster_of(const crl_redis_store *store) {
  return (crl_redis_cluster *)(void *)store->base;
}

/* ---- cluster_map.c ------------------------------------------------------------------------- */

/* The slot of a key: CRC16 of its hash tag, or of all of it. */
unsigned crl_redis_slot_of(const void *key, size_t len);
static inline uint32_t crl_redis_slot_entry(const crl_redis_cluster *c, unsigned slot) {
  crl_redis_cluster *own = (crl_redis_cluster *)(uintptr_t)c;
  return atomic_load_explicit(&own->slots[slot], memory_order_relaxed);
}
static inline size_t crl_redis_slot_number(uint32_t entry) { return entry & 0xffff; }
/* Makes a node that the caller holds, which has the rest from `base`. NULL without memory. */
crl_redis_node *crl_redis_node_new(crl_redis_store *base, const crl_redis_place *place,
                                   size_t number);
/* The node of this number, held for the caller; NULL: there is none. */
crl_redis_node *crl_redis_node_hold(crl_redis_cluster *c, size_t number);
void crl_redis_node_let_go(crl_redis_store *store);
/* The number of the node at this place, which it gets now if it has none; 0: there is no room. */
size_t crl_redis_node_meet(crl_redis_cluster *c, const crl_redis_place *place);
/* The same with the mutex held. */
size_t crl_redis_node_meet_locked(crl_redis_cluster *c, const crl_redis_place *place);
/* From now on this node has the slot. 1: it was another one. */
int crl_redis_slot_give(crl_redis_cluster *c, unsigned slot, size_t number);
/* Tells the watch that slots have moved. */
void crl_redis_slots_moved(crl_redis_cluster *c);
/* 1: a connection to this node may be of use. */
int crl_redis_node_is_known(crl_redis_cluster *c, const crl_redis_node *node);

/* ---- cluster_slots.c ----------------------------------------------------------------------- */

/* Asks a connected node for the map, and takes it over. *changed: slots have moved. */
int crl_redis_slots_ask(crl_redis_cluster *c, crl_redis_handle *h, int64_t deadline, int *changed,
                        corral_error *error);
/* Reads a reply to CLUSTER SLOTS that came from `asked`, and takes it over, whole or not at all. */
int crl_redis_slots_read(crl_redis_cluster *c, const crl_redis_node *asked,
                         crl_redis_message message, int *changed, corral_error *error);
/* See corral_store. */
size_t crl_redis_slots_show(void *store, void *room, size_t size);
int crl_redis_slots_take(void *store, const void *map, size_t len, corral_error *error);
/* Reads one message from a handle, by a reader of its own. */
int crl_redis_message_hear(crl_redis_handle *h, crl_redis_resp *in, int64_t deadline,
                           crl_redis_message *m, corral_error *error);
/* The status and text of a message that is an error. */
int crl_redis_message_refused(const crl_redis_handle *h, crl_redis_message m, corral_error *error);
/* Copies a text of printable letters; 0: it is none, or has no room. */
int crl_redis_token_copy(const crl_redis_token *t, char *ret, size_t size);
/* The ways of a Redis Cluster. `learn` asks the node that was named last, others that are known,
 * and the hosts of the URI. */
extern const crl_redis_ways crl_redis_cluster_ways;

/* ---- cluster.c ----------------------------------------------------------------------------- */

/* Begins a store of several nodes, cluster or sentinel. Nothing is freed on failure. */
int crl_redis_cluster_begin(crl_redis_cluster *c, const crl_redis_ways *ways,
                            const corral_host *host, const corral_uri *uri, corral_error *error);
/* Reads the hosts of the URI, which have the rest from `base`. */
int crl_redis_cluster_seeds(crl_redis_cluster *c, crl_redis_store *base, int port,
                            const corral_uri *uri, corral_error *error);
void crl_redis_cluster_describe(crl_redis_cluster *c, corral_store_info *info);
/* See corral_store. */
void crl_redis_cluster_close(void *store);
int crl_redis_cluster_connect(void *store, int64_t deadline, void **ret_handle,
                              corral_error *error);
int crl_redis_cluster_connect_server(void *store, size_t server, int64_t deadline,
                                     void **ret_handle, corral_error *error);
size_t crl_redis_cluster_route(void *store, const void *key, size_t key_len);
int crl_redis_cluster_perform(void *handle, const corral_batch *batch, int64_t deadline,
                              corral_error *error);
int crl_redis_cluster_begin_looks(void *handle, const corral_batch *batch, corral_error *error);
int crl_redis_cluster_refresh(void *store, int64_t deadline, corral_error *error);

/* ---- cluster_watch.c ----------------------------------------------------------------------- */

/* See corral_store. */
int crl_redis_cluster_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                            corral_error *error);
int crl_redis_cluster_changes(void *watch, int stop_fd, int64_t until,
                              void (*told)(void *arg, uint64_t hash), void *arg,
                              corral_error *error);
int crl_redis_cluster_register_keys(void *watch, corral_registration *keys, size_t count,
                                    int stop_fd, int64_t deadline, corral_error *error);
void crl_redis_cluster_unwatch(void *watch);

extern const corral_store crl_plugin_redis_cluster;

#endif
