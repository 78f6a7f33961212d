/* redis_cluster.h: a real Redis Cluster of three primaries with a replica each, for one test.
 *
 *   static redis_cluster *cluster;
 *   if (!redis_cluster_start(&cluster)) skip();
 *   ... redis_cluster_uri(cluster) ... redis_cluster_move(cluster, slot, 2) ...
 *   redis_cluster_stop(cluster);
 *
 * Shard n is node n and node 3 + n: at first the primary and its replica. One more node may come
 * and go. A node that is silent for 3 s has failed. */
#ifndef TESTS_REDIS_CLUSTER_H
#define TESTS_REDIS_CLUSTER_H

#include "support/redis_server.h"

enum { REDIS_CLUSTER_PRIMARIES = 3, REDIS_CLUSTER_NODES = 6, REDIS_CLUSTER_SPARE = 6 };

typedef struct redis_cluster redis_cluster;

/* Starts the servers, joins them, and waits until each has seen the whole cluster well. 0:
 * redis-server, of version 7 or later, isn't installed. */
int redis_cluster_start(redis_cluster **ret);
/* NULL is allowed. */
void redis_cluster_stop(redis_cluster *cluster);
/* "redis+cluster://127.0.0.1:PORT,127.0.0.1:PORT/", of nodes 0 and 1; owned by the cluster. */
const char *redis_cluster_uri(const redis_cluster *cluster);
redis_server *redis_cluster_node(const redis_cluster *cluster, int node);
/* The slot of a key; the node that has a slot, as the nodes that run see it. */
int redis_cluster_slot(redis_cluster *cluster, const char *key);
int redis_cluster_owner(redis_cluster *cluster, int slot);
/* The primary of a shard; the primary of the shard behind that which has a slot. */
int redis_cluster_primary(redis_cluster *cluster, int shard);
int redis_cluster_next(redis_cluster *cluster, int slot);
/* Moves a slot to another primary, with its keys: all of it, or in steps. After `begin` the slot is
 * on its way; `carry` takes up to `most` keys along and returns how many it took. */
void redis_cluster_move(redis_cluster *cluster, int slot, int to);
void redis_cluster_begin(redis_cluster *cluster, int slot, int to);
int redis_cluster_carry(redis_cluster *cluster, int slot, int to, int most);
void redis_cluster_end(redis_cluster *cluster, int slot, int to);
/* Gives a slot to another primary without its keys, and without a word to its former one's
 * clients. */
void redis_cluster_seize(redis_cluster *cluster, int slot, int to);
/* Kills a node. Starts it again; it comes back with what it knew of the cluster, and no keys. */
void redis_cluster_kill(redis_cluster *cluster, int node);
void redis_cluster_restart(redis_cluster *cluster, int node);
/* SIGSTOP; SIGCONT. */
void redis_cluster_pause(redis_cluster *cluster, int node);
void redis_cluster_resume(redis_cluster *cluster, int node);
/* Makes the replica of a shard its primary, as planned; returns its number. */
int redis_cluster_fail_over(redis_cluster *cluster, int shard);
/* The same with an option of CLUSTER FAILOVER: "FORCE", which asks the primary nothing. */
int redis_cluster_fail_over_by(redis_cluster *cluster, int shard, const char *option);
/* Gives a node another port, as it runs: clients of the former one are cut off. */
void redis_cluster_readdress(redis_cluster *cluster, int node);
/* Starts one more node, REDIS_CLUSTER_SPARE, as a primary without slots. Makes all others forget
 * it, which is to have no slots by then, and ends it. */
void redis_cluster_add(redis_cluster *cluster);
void redis_cluster_remove(redis_cluster *cluster);
/* Waits until a node is a primary, and until all that run have seen the cluster well. */
void redis_cluster_await_primary(redis_cluster *cluster, int node);
void redis_cluster_await_well(redis_cluster *cluster);
/* Removes all keys. */
void redis_cluster_empty(redis_cluster *cluster);
/* Nobody writes, and each node has no keys any more: a replica that follows late and is promoted
 * would have them yet. */
void redis_cluster_await_empty(redis_cluster *cluster);

#endif
