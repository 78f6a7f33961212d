/* scale.c: what one process costs a primary of a Redis Cluster, in exact units: bytes of memory and
 * of messages, round trips, connections; and what a fleet of such processes costs it.
 *
 *   bench_scale [HOSTS [PROCESSES]]      1000 hosts, with 200 processes each
 *
 * It starts its own cluster of three primaries with a replica each. The units don't depend on the
 * load of the machine; docs/scale.md reckons with them. */
#include <corral.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kit.h"
#include "support/redis_cluster.h"

enum { CORRALS = 100, TRACKED = 20000, READERS = 5, CALLS = 600, WAITS = 30, SETTLED_S = 12 };
enum { ANSWER = 1 << 16, NAME = 40 };

static redis_cluster *cluster;
static redis_server *primaries[REDIS_CLUSTER_PRIMARIES];
static redis_server *server; /* the first of them */

static double info(redis_server *of, const char *name) {
  redisReply *reply = redis_server_command(of, "INFO everything");
  const char *at = reply->type == REDIS_REPLY_STRING ? strstr(reply->str, name) : NULL;
  double value = at != NULL ? strtod(at + strlen(name), NULL) : 0;
  freeReplyObject(reply);
  return value;
}

static double of_all(const char *name) {
  double sum = 0;
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++) sum += info(primaries[i], name);
  return sum;
}

static void show(const char *what, double value, const char *unit) {
  printf("%-52s %10.*f %s\n", what, value == (double)(long)value ? 0 : 2, value, unit);
}

/* ---- bytes of messages --------------------------------------------------------------------- */

static redisContext *connected(void) {
  redisContext *r = redisConnect("127.0.0.1", redis_server_port(server));
  if (r == NULL || r->err != 0) die("can't connect to a node");
  return r;
}

/* Sends commands of the inline form, and reads what comes until its end. */
static size_t talk(const redisContext *r, const char *commands, const char *end, char *answer) {
  size_t size = 0, len = strlen(commands);
  if (send(r->fd, commands, len, MSG_NOSIGNAL) != (ssize_t)len) die("send");
  while (size < strlen(end) || memcmp(answer + size - strlen(end), end, strlen(end)) != 0) {
    ssize_t got = recv(r->fd, answer + size, ANSWER - 1 - size, 0);
    if (got <= 0) die("recv");
    size += (size_t)got;
  }
  answer[size] = '\0';
  return size;
}

static void messages(const char *key) {
  static char answer[ANSWER];
  char text[200];
  redisContext *r = connected(), *other = connected();
  size_t pong = strlen("+PONG\r\n");
  size_t map = talk(r, "CLUSTER SLOTS\r\nPING\r\n", "+PONG\r\n", answer) - pong;
  show("CLUSTER SLOTS, reply, 3 ranges, a replica each", (double)map, "bytes");
  snprintf(text, sizeof text, "HELLO 3\r\nCLIENT TRACKING ON\r\nGET %s\r\nPING\r\n", key);
  (void)talk(r, text, "+PONG\r\n", answer);
  redisReply *reply = redisCommand(other, "DEL %s", key);
  if (reply == NULL || reply->integer != 1) die("DEL");
  freeReplyObject(reply);
  size_t push = talk(r, "PING\r\n", "+PONG\r\n", answer) - pong;
  snprintf(text, sizeof text, "push of a changed key, its name has %zu bytes", strlen(key));
  show(text, (double)push, "bytes");
  redisFree(other);
  redisFree(r);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Names of keys whose slot is primary 0's, so that each corral asks it. */
static void name_of(char name[NAME], int number) {
  static int tag = -1;
  char probe[NAME];
  while (tag < 0) {
    static int next;
    snprintf(probe, sizeof probe, "{t%d}", next);
    if (redis_cluster_owner(cluster, redis_cluster_slot(cluster, probe)) ==
        redis_cluster_primary(cluster, 0))
      tag = next;
    next++;
  }
  int len = snprintf(name, NAME, "{t%d}", tag);
  snprintf(name + len, (size_t)(NAME - len), ":%0*d", 30 - len - 1, number);
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  atomic_int *gate = arg;
  (void)key, (void)key_len;
  while (gate != NULL && atomic_load(gate) == 0) usleep(1000);
  return corral_fill_bytes(fill, "value", 5);
}

static void get(corral *c, const char *key, void *gate) {
  corral_value *value;
  const corral_policy *policy = CORRAL_POLICY(.ttl_ms = 3600000, .near_ms = 3600000);
  if (corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.policy = policy), compute, gate,
                            &value) != CORRAL_OK)
    die("a call failed");
  corral_value_unref(value);
}

static corral *opened(int64_t near, corral_event_fn *hook, void *arg) {
  corral *c;
  corral_error error = {0};
  if (corral_open(CORRAL_OPTIONS(.store = redis_cluster_uri(cluster), .near_bytes = near,
                                 .op_ms = 10000, .on_event = hook, .event_arg = arg),
                  &c, &error) != CORRAL_OK)
    die(error.text);
  return c;
}

static int connections(void) { return (int)info(server, "connected_clients:"); }

/* Buffers of idle connections shrink within some seconds. */
static double settled_memory(void) {
  sleep(SETTLED_S);
  return info(server, "used_memory:");
}

/* Waits until each corral has a watched copy: its connection tracks. */
static void await_tracking(void) {
  for (int i = 0; i < 600 && info(server, "tracking_clients:") < CORRALS; i++) usleep(100000);
  if (info(server, "tracking_clients:") < CORRALS) die("not all watch");
}

static void connection_memory(void) {
  static corral *all[CORRALS];
  char key[NAME];
  double before = settled_memory(), bytes[2];
  int had = connections(), counts[2];
  for (int with = 0; with < 2; with++) {
    for (int i = 0; i < CORRALS; i++) {
      all[i] = opened(with ? 1 << 20 : CORRAL_OFF, NULL, NULL);
      for (int j = 0; j < 3; j++) {
        name_of(key, j);
        get(all[i], key, NULL);
      }
    }
    if (with) await_tracking();
    counts[with] = connections() - had;
    bytes[with] = settled_memory() - before;
    for (int i = 0; i < CORRALS; i++) corral_close(all[i]);
  }
  double plain = bytes[0] / counts[0];
  show("connections of a thread to the URI's first node", (double)counts[0] / CORRALS, "");
  show("the same, with a watch", (double)counts[1] / CORRALS, "");
  show("memory of an idle connection", plain, "bytes");
  show("memory of one that watches (RESP3, tracking)",
       (bytes[1] - plain * counts[0]) / (counts[1] - counts[0]), "bytes");
}

/* Each reader reads all keys; the first of them puts the names into the table. */
static void tracking_memory(void) {
  redisContext *readers[READERS];
  double bytes[READERS + 1];
  char key[NAME];
  for (int i = 0; i < TRACKED; i++) {
    name_of(key, i);
    freeReplyObject(redis_server_command(server, "SET %s x", key));
  }
  for (int r = 0; r < READERS; r++) {
    readers[r] = connected();
    freeReplyObject(redisCommand(readers[r], "CLIENT TRACKING ON"));
  }
  for (int r = 0; r < READERS; r++) {
    bytes[r] = info(server, "used_memory:");
    for (int i = 0; i < TRACKED; i++) {
      name_of(key, i);
      freeReplyObject(redisCommand(readers[r], "GET %s", key));
    }
  }
  bytes[READERS] = info(server, "used_memory:");
  show("a tracked key, by its first process", (bytes[1] - bytes[0]) / TRACKED, "bytes");
  show("by each further process", (bytes[READERS] - bytes[1]) / TRACKED / (READERS - 1), "bytes");
  for (int r = 0; r < READERS; r++) redisFree(readers[r]);
}

/* ---- round trips --------------------------------------------------------------------------- */

/* Messages read by all primaries, less the questions of this program. */
static double reads(void) { return of_all("total_reads_processed:"); }

static double reads_each(corral *c, int turn, int kind) {
  char key[NAME];
  double before = reads();
  for (int i = 0; i < CALLS; i++) {
    snprintf(key, sizeof key, "call %d %d", turn, i);
    if (kind < 2)
      get(c, key, NULL);
    else
      corral_invalidate(c, key, strlen(key), NULL);
  }
  return (reads() - before - REDIS_CLUSTER_PRIMARIES) / CALLS;
}

typedef struct call {
  pthread_t thread;
  corral *c;
  const char *key;
  atomic_int *gate;
} call;

static void *call_run(void *arg) {
  const call *me = arg;
  get(me->c, me->key, me->gate);
  return NULL;
}

static void hear(const corral_event_info *info, void *arg) {
  atomic_int *events = arg;
  if (info->event == CORRAL_EVENT_COMPUTE || info->event == CORRAL_EVENT_WAIT)
    atomic_fetch_add(events, 1);
}

/* Two processes want a key: one computes, the other waits and is woken. */
static double reads_of_wait(void) {
  atomic_int computes = 0, waits = 0;
  corral *leader = opened(CORRAL_OFF, hear, &computes), *waiter = opened(CORRAL_OFF, hear, &waits);
  double spent = 0;
  for (int i = -3; i < WAITS; i++) { /* the first waits open connections */
    char key[NAME];
    atomic_int gate = 0;
    snprintf(key, sizeof key, "wait %d", i);
    call calls[2] = {{.c = leader, .key = key, .gate = &gate}, {.c = waiter, .key = key}};
    double before = reads();
    for (int j = 0; j < 2; j++) {
      atomic_int *told = j == 0 ? &computes : &waits;
      int was = atomic_load(told);
      if (pthread_create(&calls[j].thread, NULL, call_run, &calls[j]) != 0) die("no thread");
      while (atomic_load(told) == was) usleep(500);
    }
    usleep(50000); /* its key is registered */
    atomic_store(&gate, 1);
    for (int j = 0; j < 2; j++) pthread_join(calls[j].thread, NULL);
    if (i >= 0) spent += reads() - before - REDIS_CLUSTER_PRIMARIES;
  }
  corral_close(leader);
  corral_close(waiter);
  return spent / WAITS;
}

static void round_trips(void) {
  static const char *const what[] = {"round trips of a miss", "of a hit", "of an invalidation"};
  corral *c = opened(CORRAL_OFF, NULL, NULL);
  for (int kind = 0; kind < 3; kind++) (void)reads_each(c, 0, kind); /* connections, scripts */
  for (int kind = 0; kind < 3; kind++) show(what[kind], reads_each(c, 1, kind), "");
  corral_close(c);
  show("of a miss with a waiter in another process, both", reads_of_wait(), "");
}

static void signs_of_life(void) {
  enum { SECONDS = 10 };
  char key[NAME];
  corral *c = opened(1 << 20, NULL, NULL);
  name_of(key, 0);
  for (int i = 0; i < 3; i++) get(c, key, NULL);
  while (info(server, "tracking_clients:") < 1) usleep(1000);
  double before = info(server, "cmdstat_ping:calls="), begun = now_us();
  sleep(SECONDS);
  double seconds = (now_us() - begun) / 1e6;
  show("PINGs of a silent watch to a node, a second",
       (info(server, "cmdstat_ping:calls=") - before) / seconds, "");
  corral_close(c);
}

int main(int argc, char **argv) {
  long hosts = argc > 1 ? strtol(argv[1], NULL, 10) : 1000,
       processes = argc > 2 ? strtol(argv[2], NULL, 10) : 200;
  char key[NAME];
  if (hosts < 1 || processes < 1) die("accepted are numbers: HOSTS PROCESSES");
  if (!redis_cluster_start(&cluster)) return 1;
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++)
    primaries[i] = redis_cluster_node(cluster, redis_cluster_primary(cluster, i));
  server = primaries[0];
  connection_memory();
  tracking_memory();
  round_trips();
  signs_of_life();
  name_of(key, 1);
  freeReplyObject(redis_server_command(server, "SET %s x", key));
  messages(key);
  printf("%ld hosts x %ld processes: %ld\n", hosts, processes, hosts * processes);
  redis_cluster_stop(cluster);
  return 0;
}
