/* redis_cluster.c: a real Redis Cluster of three primaries with a replica each. */
#include "redis_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_process.h"

enum { SLOTS = 16384, ID = 41, STEP_US = 20000, STEPS = 3000, AGAIN = 300 };
enum { ROOM = REDIS_CLUSTER_SPARE + 1 };

struct redis_cluster {
  redis_server *nodes[ROOM];
  int ports[ROOM], buses[ROOM];
  int runs[ROOM];
  char ids[ROOM][ID];
  char uri[80];
};

_Noreturn static void die(const char *what) { server_process_die("redis_cluster", what); }

redis_server *redis_cluster_node(const redis_cluster *c, int node) { return c->nodes[node]; }
const char *redis_cluster_uri(const redis_cluster *c) { return c->uri; }

static void expect_ok(const char *reply, const char *what) {
  if (strcmp(reply, "OK") == 0) return;
  fprintf(stderr, "redis_cluster: %s: %s\n", what, reply);
  abort();
}

/* For whoever reads why a test failed. */
static void print_views(const redis_cluster *c) {
  for (int i = 0; i < ROOM; i++) {
    if (!c->runs[i]) continue;
    fprintf(stderr, "node %d:\n%s", i, redis_server_ask(c->nodes[i], "CLUSTER NODES"));
    fprintf(stderr, "%s\n", redis_server_ask(c->nodes[i], "INFO replication"));
  }
}

/* Waits for a condition of the whole cluster. */
static void await(redis_cluster *c, int (*holds)(redis_cluster *c, int arg), int arg,
                  const char *what) {
  for (int i = 0; i < STEPS; i++) {
    if (holds(c, arg)) return;
    usleep(STEP_US);
  }
  print_views(c);
  die(what);
}

/* ---- starting ------------------------------------------------------------------------------ */

static int start_node(redis_cluster *c, int node) {
  char bus[12];
  c->buses[node] = server_process_free_port();
  snprintf(bus, sizeof bus, "%d", c->buses[node]);
  const char *const args[] = {"--cluster-enabled",
                              "yes",
                              "--cluster-port",
                              bus,
                              "--cluster-node-timeout",
                              "3000",
                              "--cluster-replica-validity-factor",
                              "0",
                              "--repl-diskless-sync-delay",
                              "0",
                              NULL};
  if (!redis_server_start(&c->nodes[node], args)) return 0;
  c->ports[node] = redis_server_port(c->nodes[node]);
  c->runs[node] = 1;
  snprintf(c->ids[node], ID, "%s", redis_server_ask(c->nodes[node], "CLUSTER MYID"));
  return 1;
}

static void give_slots(redis_cluster *c, int node) {
  int first = SLOTS * node / REDIS_CLUSTER_PRIMARIES,
      last = SLOTS * (node + 1) / REDIS_CLUSTER_PRIMARIES - 1;
  expect_ok(redis_server_ask(c->nodes[node], "CLUSTER SET-CONFIG-EPOCH %d", node + 1), "epoch");
  expect_ok(redis_server_ask(c->nodes[node], "CLUSTER ADDSLOTSRANGE %d %d", first, last), "slots");
}

static int all_know_all(redis_cluster *c, int unused) {
  (void)unused;
  for (int i = 0; i < ROOM; i++) {
    if (!c->runs[i]) continue;
    const char *text = redis_server_ask(c->nodes[i], "CLUSTER NODES");
    if (strstr(text, "handshake") != NULL) return 0;
    for (int j = 0; j < ROOM; j++)
      if (c->runs[j] && strstr(text, c->ids[j]) == NULL) return 0;
  }
  return 1;
}

/* True when the line of a node in the reply to CLUSTER NODES says that it fails, or isn't there. */
static int fails(const char *nodes, const char *id) {
  char line[256];
  const char *at = strstr(nodes, id);
  if (at == NULL) return 1;
  snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
  return strstr(line, "fail") != NULL;
}

static int sees_all_well(redis_cluster *c, int node) {
  redis_server *server = c->nodes[node];
  if (strstr(redis_server_ask(server, "CLUSTER INFO"), "cluster_state:ok") == NULL ||
      strstr(redis_server_ask(server, "INFO replication"), "master_link_status:down") != NULL)
    return 0;
  const char *nodes = redis_server_ask(server, "CLUSTER NODES");
  for (int i = 0; i < ROOM; i++)
    if (c->runs[i] && fails(nodes, c->ids[i])) return 0;
  return 1;
}

static int is_well(redis_cluster *c, int unused) {
  (void)unused;
  for (int i = 0; i < ROOM; i++)
    if (c->runs[i] && !sees_all_well(c, i)) return 0;
  return 1;
}

static void write_uri(redis_cluster *c) {
  snprintf(c->uri, sizeof c->uri, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d/", c->ports[0],
           c->ports[1]);
}

void redis_cluster_await_well(redis_cluster *c) { await(c, is_well, 0, "the cluster is not well"); }

int redis_cluster_start(redis_cluster **ret) {
  redis_cluster *c = calloc(1, sizeof *c);
  if (c == NULL) die("calloc");
  for (int i = 0; i < REDIS_CLUSTER_NODES; i++)
    if (!start_node(c, i)) {
      free(c);
      return 0;
    }
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++) give_slots(c, i);
  for (int i = 1; i < REDIS_CLUSTER_NODES; i++)
    expect_ok(
        redis_server_ask(c->nodes[0], "CLUSTER MEET 127.0.0.1 %d %d", c->ports[i], c->buses[i]),
        "meet");
  await(c, all_know_all, 0, "the nodes don't know each other");
  for (int i = REDIS_CLUSTER_PRIMARIES; i < REDIS_CLUSTER_NODES; i++)
    expect_ok(
        redis_server_ask(c->nodes[i], "CLUSTER REPLICATE %s", c->ids[i - REDIS_CLUSTER_PRIMARIES]),
        "replicate");
  redis_cluster_await_well(c);
  write_uri(c);
  *ret = c;
  return 1;
}

void redis_cluster_stop(redis_cluster *c) {
  if (c == NULL) return;
  for (int i = 0; i < ROOM; i++) redis_server_stop(c->nodes[i]);
  free(c);
}

/* ---- slots --------------------------------------------------------------------------------- */

static redis_server *anybody(redis_cluster *c) {
  int i = 0;
  while (!c->runs[i]) i++;
  return c->nodes[i];
}

int redis_cluster_slot(redis_cluster *c, const char *key) {
  return (int)strtol(redis_server_ask(anybody(c), "CLUSTER KEYSLOT %s", key), NULL, 10);
}

static int is_primary(redis_cluster *c, int node) {
  return c->runs[node] && strncmp(redis_server_ask(c->nodes[node], "ROLE"), "master", 6) == 0;
}

/* True when a node says that it has a slot. */
static int has_slot(redis_cluster *c, int node, int slot) {
  if (!is_primary(c, node)) return 0;
  char text[4096];
  snprintf(text, sizeof text, "%s", redis_server_ask(c->nodes[node], "CLUSTER NODES"));
  char *line = strstr(text, "myself"), *save = NULL;
  if (line == NULL) return 0;
  line[strcspn(line, "\n")] = '\0';
  for (char *word = strtok_r(line, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
    int first, last, read = sscanf(word, "%d-%d", &first, &last);
    if (strspn(word, "0123456789-") != strlen(word) || read < 1) continue;
    if (read == 1 ? first == slot && strchr(word, '-') == NULL : first <= slot && slot <= last)
      return 1;
  }
  return 0;
}

int redis_cluster_owner(redis_cluster *c, int slot) {
  for (int i = 0; i < ROOM * STEPS; i++) {
    if (has_slot(c, i % ROOM, slot)) return i % ROOM;
    if (i % ROOM == ROOM - 1) usleep(STEP_US);
  }
  die("a slot has no owner");
}

int redis_cluster_primary(redis_cluster *c, int shard) {
  for (int i = 0; i < STEPS; i++) {
    if (is_primary(c, shard)) return shard;
    if (is_primary(c, shard + REDIS_CLUSTER_PRIMARIES)) return shard + REDIS_CLUSTER_PRIMARIES;
    usleep(STEP_US);
  }
  die("a shard has no primary");
}

int redis_cluster_next(redis_cluster *c, int slot) {
  int shard = redis_cluster_owner(c, slot) % REDIS_CLUSTER_PRIMARIES;
  return redis_cluster_primary(c, (shard + 1) % REDIS_CLUSTER_PRIMARIES);
}

/* Valkey wants the replicas of the node that is told to answer, and refuses while one is late. */
static void set_slot(redis_cluster *c, int node, int slot, const char *what, int other) {
  const char *reply = "";
  for (int i = 0; i < STEPS; i++) {
    reply = redis_server_ask(c->nodes[node], "CLUSTER SETSLOT %d %s %s", slot, what, c->ids[other]);
    if (strncmp(reply, "NOREPLICAS", 10) != 0) break;
    usleep(STEP_US);
  }
  expect_ok(reply, what);
}

void redis_cluster_begin(redis_cluster *c, int slot, int to) {
  int from = redis_cluster_owner(c, slot);
  set_slot(c, to, slot, "IMPORTING", from);
  set_slot(c, from, slot, "MIGRATING", to);
}

int redis_cluster_carry(redis_cluster *c, int slot, int to, int most) {
  redis_server *from = c->nodes[redis_cluster_owner(c, slot)];
  redisReply *keys = redis_server_command(from, "CLUSTER GETKEYSINSLOT %d %d", slot, most);
  int count = (int)keys->elements;
  for (int i = 0; i < count; i++) {
    redisReply *key = keys->element[i];
    redisReply *moved = redis_server_command(from, "MIGRATE 127.0.0.1 %d %b 0 5000", c->ports[to],
                                             key->str, (size_t)key->len);
    if (moved->type == REDIS_REPLY_ERROR) expect_ok(moved->str, "migrate");
    freeReplyObject(moved);
  }
  freeReplyObject(keys);
  return count;
}

static long long epoch_of(redis_cluster *c, int node, const char *which) {
  const char *found = strstr(redis_server_ask(c->nodes[node], "CLUSTER INFO"), which);
  return found != NULL ? strtoll(found + strlen(which), NULL, 10) : -1;
}

/* A node that takes a slot takes the epoch behind the largest that it has heard of. Two nodes of
 * one epoch would not believe each other, and each say for good that the other has the slot. */
static void await_epoch(redis_cluster *c, int of, int but) {
  long long epoch = epoch_of(c, of, "cluster_my_epoch:");
  for (int i = 0; i < ROOM; i++)
    for (int step = 0; step < STEPS && i != but && is_primary(c, i) &&
                       epoch_of(c, i, "cluster_current_epoch:") < epoch;
         step++)
      usleep(STEP_US);
}

/* `but`: a node that isn't told, but hears of it from the others; -1: none. */
static void end_move(redis_cluster *c, int slot, int to, int but) {
  set_slot(c, to, slot, "NODE", to);
  for (int i = 0; i < ROOM; i++)
    if (i != to && i != but && is_primary(c, i)) set_slot(c, i, slot, "NODE", to);
  await_epoch(c, to, but);
}

void redis_cluster_end(redis_cluster *c, int slot, int to) { end_move(c, slot, to, -1); }

/* Keys that are made on the way go to the new node, so the old one has fewer and fewer. */
void redis_cluster_move(redis_cluster *c, int slot, int to) {
  redis_cluster_begin(c, slot, to);
  while (redis_cluster_carry(c, slot, to, 100) > 0) continue;
  redis_cluster_end(c, slot, to);
}

/* The former one keeps the keys until it hears of it, and removes them then. */
void redis_cluster_seize(redis_cluster *c, int slot, int to) {
  int from = redis_cluster_owner(c, slot);
  set_slot(c, to, slot, "IMPORTING", from);
  end_move(c, slot, to, from);
  for (int i = 0; i < STEPS && has_slot(c, from, slot); i++) usleep(STEP_US);
}

void redis_cluster_empty(redis_cluster *c) {
  for (int i = 0; i < ROOM; i++)
    if (is_primary(c, i)) redis_server_ask(c->nodes[i], "FLUSHALL");
}

void redis_cluster_await_empty(redis_cluster *c) {
  for (int i = 0; i < ROOM; i++)
    for (int step = 0;
         step < STEPS && c->runs[i] && strcmp(redis_server_ask(c->nodes[i], "DBSIZE"), "0") != 0;
         step++)
      usleep(STEP_US);
}

/* ---- failures ------------------------------------------------------------------------------ */

void redis_cluster_kill(redis_cluster *c, int node) {
  redis_server_kill(c->nodes[node]);
  c->runs[node] = 0;
}

void redis_cluster_restart(redis_cluster *c, int node) {
  redis_server_restart(c->nodes[node]);
  c->runs[node] = 1;
  c->ports[node] = redis_server_port(c->nodes[node]);
  write_uri(c);
}

void redis_cluster_pause(redis_cluster *c, int node) {
  redis_server_pause(c->nodes[node]);
  c->runs[node] = 0; /* it isn't asked meanwhile */
}

void redis_cluster_resume(redis_cluster *c, int node) {
  redis_server_resume(c->nodes[node]);
  c->runs[node] = 1;
}

void redis_cluster_await_primary(redis_cluster *c, int node) {
  await(c, is_primary, node, "the node is not promoted");
}

/* The server forgets the command after 5 s, where the votes didn't come. */
static int fail_over(redis_cluster *c, int shard, const char *command) {
  int to = (redis_cluster_primary(c, shard) + REDIS_CLUSTER_PRIMARIES) % REDIS_CLUSTER_NODES;
  for (int i = 0; i < STEPS && !is_primary(c, to); i++) {
    if (i % AGAIN == 0) expect_ok(redis_server_ask(c->nodes[to], command), "failover");
    usleep(STEP_US);
  }
  redis_cluster_await_primary(c, to);
  return to;
}

int redis_cluster_fail_over(redis_cluster *c, int shard) {
  return fail_over(c, shard, "CLUSTER FAILOVER");
}

int redis_cluster_fail_over_by(redis_cluster *c, int shard, const char *option) {
  char command[40];
  snprintf(command, sizeof command, "CLUSTER FAILOVER %s", option);
  return fail_over(c, shard, command);
}

/* ---- nodes that move, come and go ----------------------------------------------------------- */

/* True when all name this node by its port. */
static int all_name(redis_cluster *c, int node) {
  char place[32];
  snprintf(place, sizeof place, "127.0.0.1:%d@", c->ports[node]);
  for (int i = 0; i < ROOM; i++)
    if (c->runs[i] && strstr(redis_server_ask(c->nodes[i], "CLUSTER NODES"), place) == NULL)
      return 0;
  return 1;
}

/* A slot's owner is asked for over the nodes' sockets, and so is this. */
void redis_cluster_readdress(redis_cluster *c, int node) {
  redis_server *server = c->nodes[node];
  c->ports[node] = server_process_free_port();
  expect_ok(redis_server_ask(server, "CONFIG SET port %d", c->ports[node]), "port");
  expect_ok(redis_server_ask(server, "CONFIG SET cluster-announce-port %d", c->ports[node]),
            "announce");
  redis_server_ask(server, "CLIENT KILL TYPE normal SKIPME yes");
  write_uri(c);
  await(c, all_name, node, "the node's port is not known to all");
}

void redis_cluster_add(redis_cluster *c) {
  int node = REDIS_CLUSTER_SPARE;
  if (!start_node(c, node)) die("no redis-server");
  expect_ok(
      redis_server_ask(anybody(c), "CLUSTER MEET 127.0.0.1 %d %d", c->ports[node], c->buses[node]),
      "meet");
  await(c, all_know_all, 0, "the nodes don't know each other");
  redis_cluster_await_well(c);
}

/* A node that wasn't told yet would introduce it to the others again; they don't listen for a
 * minute. */
void redis_cluster_remove(redis_cluster *c) {
  int node = REDIS_CLUSTER_SPARE;
  c->runs[node] = 0;
  for (int i = 0; i < ROOM; i++)
    if (c->runs[i])
      expect_ok(redis_server_ask(c->nodes[i], "CLUSTER FORGET %s", c->ids[node]), "forget");
  redis_server_stop(c->nodes[node]);
  c->nodes[node] = NULL;
}
