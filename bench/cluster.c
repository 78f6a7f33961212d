/* cluster.c: hits on a Redis Cluster of three nodes against hits on one Redis, in turns within one
 * run: the time of one thread, and of 64 threads; the servers' CPU time and the messages that they
 * read; and the commands of each hit, which are its round trips.
 *
 *   bench_cluster [-r ROUNDS] [-o OPS] [-h HANDLES]
 *
 *   9 rounds of 4000 hits by one thread, and of 12800 by 64; HANDLES: to each node, as by default.
 *
 * The keys of a hit are those of all nodes, or of one: then one server answers all, as the one
 * Redis does, and what is left of a difference is corral's own.
 *
 * It starts its own servers, which listen on TCP. CPU time is less what they take idle. Ratios are
 * medians of the rounds' ratios. */
#include <corral.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "kit.h"
#include "support/redis_cluster.h"

enum {
  ROUNDS = 31,
  THREADS = 64,
  KEYS = 3 * THREADS,
  VALUE = 100,
  IDLE_S = 3,
  ANY = -1,
  WIDTH = 54
};

static const char NAME_SPACE[] = "bench_cluster";

static redis_server *alone;
static redis_cluster *cluster;
static int rounds = 9, ops = 4000, handles;

/* One way: the store, its keys, and the servers that have them. */
typedef struct way {
  corral *c;
  char keys[KEYS][16];
  redis_server *servers[REDIS_CLUSTER_PRIMARIES];
  size_t count;
  double idle; /* CPU time that the servers take with nobody asking, as a share of the time */
} way;

/* The figures of one way in one round, each per hit. */
typedef struct figures {
  double one_us, many_us, one_cpu_us, many_cpu_us, commands, many_reads;
} figures;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key, (void)key_len, (void)arg;
  void *room = corral_fill_reserve(fill, VALUE);
  if (room == NULL) return CORRAL_ENOMEM;
  memset(room, 'x', VALUE);
  return CORRAL_OK;
}

static void hit(const way *w, int number) {
  const char *key = w->keys[number % KEYS];
  corral_value *value;
  if (corral_get_or_compute(w->c, key, strlen(key),
                            CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 3600000)), compute, NULL,
                            &value) != CORRAL_OK)
    die("a hit failed");
  corral_value_unref(value);
}

/* True where the node has the key as it is stored. */
static int has(int node, const char *key) {
  char stored[48];
  snprintf(stored, sizeof stored, "%s:%s", NAME_SPACE, key);
  return redis_cluster_owner(cluster, redis_cluster_slot(cluster, stored)) == node;
}

/* `node`: the one that has all keys, or ANY. */
static void open_way(way *w, const char *uri, int most, int node) {
  corral_error error = {0};
  for (int number = 0, count = 0; count < KEYS; number++) {
    snprintf(w->keys[count], sizeof w->keys[count], "key:%06d", number);
    count += node == ANY || has(node, w->keys[count]);
  }
  if (corral_open(CORRAL_OPTIONS(.store = uri, .name_space = NAME_SPACE, .handles = most), &w->c,
                  &error) != CORRAL_OK)
    die(error.text);
  for (int i = 0; i < 3 * KEYS; i++) hit(w, i);
}

/* Sums a number of INFO over the servers, with its fraction. */
static double info(const way *w, const char *section, const char *name) {
  double sum = 0;
  for (size_t i = 0; i < w->count; i++) {
    redisReply *reply = redis_server_command(w->servers[i], "INFO %s", section);
    const char *at = reply->type == REDIS_REPLY_STRING ? strstr(reply->str, name) : NULL;
    if (at == NULL) die("no such number in INFO");
    sum += strtod(at + strlen(name), NULL);
    freeReplyObject(reply);
  }
  return sum;
}

static double cpu_us(const way *w) {
  return (info(w, "cpu", "used_cpu_sys:") + info(w, "cpu", "used_cpu_user:")) * 1e6;
}

/* Nodes of a cluster talk to each other, and to their replicas. */
static void learn_idle(way *w) {
  double cpu = cpu_us(w), begun = now_us();
  sleep(IDLE_S);
  w->idle = (cpu_us(w) - cpu) / (now_us() - begun);
}

/* ---- many threads -------------------------------------------------------------------------- */

typedef struct member {
  pthread_t thread;
  const way *w;
  pthread_barrier_t *go;
  int number;
} member;

/* A thread has keys of its own: a call that joins another's flight is no hit. */
static void *member_run(void *arg) {
  const member *me = arg;
  pthread_barrier_wait(me->go);
  for (int i = 0; i < ops * 16 / 5 / THREADS; i++) hit(me->w, me->number + i % 3 * THREADS);
  return NULL;
}

static double many_us(const way *w) {
  static member members[THREADS];
  pthread_barrier_t go;
  pthread_barrier_init(&go, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) {
    members[i] = (member){.w = w, .go = &go, .number = i};
    if (pthread_create(&members[i].thread, NULL, member_run, &members[i]) != 0) die("no thread");
  }
  pthread_barrier_wait(&go);
  double begun = now_us();
  for (int i = 0; i < THREADS; i++) pthread_join(members[i].thread, NULL);
  pthread_barrier_destroy(&go);
  return (now_us() - begun) / (ops * 16 / 5 / THREADS * THREADS);
}

/* ---- rounds -------------------------------------------------------------------------------- */

static figures measure(const way *w) {
  figures f;
  double gets = info(w, "commandstats", "cmdstat_getrange:calls="), cpu = cpu_us(w),
         begun = now_us();
  for (int i = 0; i < ops; i++) hit(w, i);
  f.one_us = (now_us() - begun) / ops;
  f.one_cpu_us = (cpu_us(w) - cpu) / ops - w->idle * f.one_us;
  f.commands = (info(w, "commandstats", "cmdstat_getrange:calls=") - gets) / ops;
  double reads = info(w, "stats", "total_reads_processed:");
  cpu = cpu_us(w);
  f.many_us = many_us(w);
  f.many_cpu_us = (cpu_us(w) - cpu) / (ops * 16 / 5) - w->idle * f.many_us;
  f.many_reads = (info(w, "stats", "total_reads_processed:") - reads) / (ops * 16 / 5);
  return f;
}

static double of(const figures *f, size_t at) {
  return *(const double *)(const void *)((const char *)f + at);
}

/* Prints medians of a figure, and of its ratio. */
static void show_one(const char *whose, const char *what, const figures *some, const figures *one,
                     size_t at) {
  double a[ROUNDS], b[ROUNDS], ratio[ROUNDS];
  for (int i = 0; i < rounds; i++) {
    a[i] = of(&some[i], at);
    b[i] = of(&one[i], at);
    ratio[i] = a[i] / b[i];
  }
  size_t count = (size_t)rounds;
  printf("%s%-*s cluster %7.2f   one %7.2f   ratio %.2f   inverse %.2f\n", whose,
         WIDTH - (int)strlen(whose), what, median(a, count), median(b, count), median(ratio, count),
         1 / median(ratio, count));
}

static void show(const char *whose, const figures *some, const figures *one) {
  show_one(whose, "1 thread, us", some, one, offsetof(figures, one_us));
  show_one(whose, "1 thread, servers' CPU, us", some, one, offsetof(figures, one_cpu_us));
  show_one(whose, "64 threads, us", some, one, offsetof(figures, many_us));
  show_one(whose, "64 threads, servers' CPU, us", some, one, offsetof(figures, many_cpu_us));
  show_one(whose, "64 threads, messages", some, one, offsetof(figures, many_reads));
  show_one(whose, "commands", some, one, offsetof(figures, commands));
}

static int number(const char *text) {
  char *end;
  long value = strtol(text, &end, 10);
  if (*end != '\0' || value < 1 || value > 1 << 20) die("no such number");
  return (int)value;
}

int main(int argc, char **argv) {
  static figures one[ROUNDS], all[ROUNDS], some[ROUNDS];
  static way single = {.count = 1}, several = {.count = REDIS_CLUSTER_PRIMARIES},
             lone = {.count = 1};
  for (int c; (c = getopt(argc, argv, "r:o:h:")) != -1;) switch (c) {
      case 'r': rounds = number(optarg); break;
      case 'h': handles = number(optarg); break;
      case 'o': ops = number(optarg); break;
      default: return 2;
    }
  if (rounds > ROUNDS || ops < THREADS) die("too many rounds, or too few hits");
  if (!redis_cluster_start(&cluster) || !redis_server_start(&alone, NULL)) return 1;
  single.servers[0] = alone;
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++)
    several.servers[i] = redis_cluster_node(cluster, redis_cluster_primary(cluster, i));
  lone.servers[0] = several.servers[0];
  open_way(&single, redis_server_uri(alone), 0, ANY);
  open_way(&several, redis_cluster_uri(cluster), handles, ANY);
  open_way(&lone, redis_cluster_uri(cluster), handles, redis_cluster_primary(cluster, 0));
  learn_idle(&single);
  learn_idle(&several);
  learn_idle(&lone);
  for (int i = 0; i < rounds; i++) {
    one[i] = measure(&single);
    all[i] = measure(&several);
    some[i] = measure(&lone);
  }
  show("hit, ", all, one);
  show("hit on keys of one node, ", some, one);
  corral_close(single.c);
  corral_close(several.c);
  corral_close(lone.c);
  redis_cluster_stop(cluster);
  redis_server_stop(alone);
  return 0;
}
