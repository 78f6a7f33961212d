/* cluster.c: hits on a Redis Cluster of three nodes against hits on one Redis, in turns within one
 * run: the time of one thread, and of 64 threads; the servers' CPU time; and for one Redis and the
 * cluster the commands of each hit, which are its round trips.
 *
 *   bench_cluster [-r ROUNDS] [-o OPS] [-h HANDLES]
 *
 *   9 rounds of 4000 hits by one thread, and of 12800 by 64; HANDLES: to each node, as by default.
 *
 * It starts its own servers, which listen on TCP. CPU time is less what they take idle. Ratios are
 * medians of the rounds' ratios. */
#include <corral.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "kit.h"
#include "support/redis_cluster.h"

enum { ROUNDS = 31, THREADS = 64, KEYS = 3 * THREADS, VALUE = 100, IDLE_S = 3 };

static redis_server *alone;
static redis_cluster *cluster;
static int rounds = 9, ops = 4000, handles;

/* One way: the store, and the servers that have its keys. */
typedef struct way {
  corral *c;
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

static void hit(corral *c, int number) {
  char key[32];
  corral_value *value;
  int len = snprintf(key, sizeof key, "key:%d", number % KEYS);
  if (corral_get_or_compute(c, key, (size_t)len,
                            CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 3600000)), compute, NULL,
                            &value) != CORRAL_OK)
    die("a hit failed");
  corral_value_unref(value);
}

static void open_way(way *w, const char *uri, int most) {
  corral_error error = {0};
  if (corral_open(CORRAL_OPTIONS(.store = uri, .name_space = "bench_cluster", .handles = most),
                  &w->c, &error) != CORRAL_OK)
    die(error.text);
  for (int i = 0; i < 3 * KEYS; i++) hit(w->c, i);
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
  corral *c;
  pthread_barrier_t *go;
  int number;
} member;

/* A thread has keys of its own: a call that joins another's flight is no hit. */
static void *member_run(void *arg) {
  const member *me = arg;
  pthread_barrier_wait(me->go);
  for (int i = 0; i < ops * 16 / 5 / THREADS; i++) hit(me->c, me->number + i % 3 * THREADS);
  return NULL;
}

static double many_us(corral *c) {
  static member members[THREADS];
  pthread_barrier_t go;
  pthread_barrier_init(&go, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) {
    members[i] = (member){.c = c, .go = &go, .number = i};
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
  for (int i = 0; i < ops; i++) hit(w->c, i);
  f.one_us = (now_us() - begun) / ops;
  f.one_cpu_us = (cpu_us(w) - cpu) / ops - w->idle * f.one_us;
  f.commands = (info(w, "commandstats", "cmdstat_getrange:calls=") - gets) / ops;
  double reads = info(w, "stats", "total_reads_processed:");
  cpu = cpu_us(w);
  f.many_us = many_us(w->c);
  f.many_cpu_us = (cpu_us(w) - cpu) / (ops * 16 / 5) - w->idle * f.many_us;
  f.many_reads = (info(w, "stats", "total_reads_processed:") - reads) / (ops * 16 / 5);
  return f;
}

static double of(const figures *f, size_t at) {
  return *(const double *)(const void *)((const char *)f + at);
}

/* Prints medians of a figure, and of its ratio. */
static void show(const char *what, const figures *all, const figures *one, size_t at) {
  double a[ROUNDS], b[ROUNDS], ratio[ROUNDS];
  for (int i = 0; i < rounds; i++) {
    a[i] = of(&all[i], at);
    b[i] = of(&one[i], at);
    ratio[i] = a[i] / b[i];
  }
  size_t count = (size_t)rounds;
  printf("%-34s cluster %7.2f   one %7.2f   ratio %.2f   inverse %.2f\n", what, median(a, count),
         median(b, count), median(ratio, count), 1 / median(ratio, count));
}

static int number(const char *text) {
  char *end;
  long value = strtol(text, &end, 10);
  if (*end != '\0' || value < 1 || value > 1 << 20) die("no such number");
  return (int)value;
}

int main(int argc, char **argv) {
  static figures one[ROUNDS], all[ROUNDS];
  way single = {.count = 1}, several = {.count = REDIS_CLUSTER_PRIMARIES};
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
  open_way(&single, redis_server_uri(alone), 0);
  open_way(&several, redis_cluster_uri(cluster), handles);
  learn_idle(&single);
  learn_idle(&several);
  for (int i = 0; i < rounds; i++) {
    one[i] = measure(&single);
    all[i] = measure(&several);
  }
  show("hit, 1 thread, us", all, one, offsetof(figures, one_us));
  show("hit, 1 thread, servers' CPU, us", all, one, offsetof(figures, one_cpu_us));
  show("hit, 64 threads, us", all, one, offsetof(figures, many_us));
  show("hit, 64 threads, servers' CPU, us", all, one, offsetof(figures, many_cpu_us));
  show("hit, 64 threads, messages", all, one, offsetof(figures, many_reads));
  show("hit, commands", all, one, offsetof(figures, commands));
  corral_close(single.c);
  corral_close(several.c);
  redis_cluster_stop(cluster);
  redis_server_stop(alone);
  return 0;
}
