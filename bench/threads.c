/* threads.c: many threads on one store. Hits of corral_get_or_compute by the threads of a process,
 * which share corral's handles, against the same threads with a hiredis connection each and a plain
 * GET, on the same server, in turns within one run.
 *
 *   bench_threads [-h HANDLES] [-r ROUNDS] [-o OPS] [-v BYTES] [-u | -t]
 *                 [PROCESSESxTHREADS]...
 *
 *   HANDLES: the option `handles` of corral (0: the default). ROUNDS: 7. OPS: hits of all threads
 *   in a round, 12000. BYTES: of a value, 100. -u, -t: only by the unix socket, or TCP. Without
 *   PROCESSESxTHREADS: 1x1 1x4 1x16 1x64 4x16.
 *
 * It starts its own redis-server. A ratio is the median of the rounds' ratios, corral's figure by
 * hiredis': throughput (more is better), p99, and the CPU time of the server and of the clients. */
#include <corral.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit.h"
#include "support/redis_server.h"

enum { ROUNDS = 31, MOST = 1 << 17, PROCESSES = 64, THREADS = 256 };

static redis_server *server;
static int rounds = 7, ops = 12000, bytes = 100, handles;

/* Memory shared by the processes of a round. */
typedef struct board {
  pthread_barrier_t ready, go, done, judged;
  _Atomic int at;
  _Atomic int64_t cpu_us, switches;
  double us[MOST]; /* of each hit */
} board;

static board *shared;

/* The figures of one way in one round. */
typedef struct figures {
  double us, p99, server_us, client_us, cpu_us, switches; /* each per hit, except p99 */
  double connections;
} figures;

typedef struct task {
  const char *uri; /* the store */
  int tcp, ours;
  int processes, threads;
} task;

typedef struct member {
  pthread_t thread;
  const task *task;
  corral *c; /* NULL: hiredis */
  int number;
} member;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key, (void)key_len, (void)arg;
  void *room = corral_fill_reserve(fill, (size_t)bytes);
  if (room == NULL) return CORRAL_ENOMEM;
  memset(room, 'x', (size_t)bytes);
  return CORRAL_OK;
}

static void hit_ours(corral *c, const char *key) {
  corral_value *value;
  if (corral_get_or_compute(c, key, strlen(key),
                            CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 3600000)), compute, NULL,
                            &value) != CORRAL_OK)
    die("a hit failed");
  corral_value_unref(value);
}

static void hit_raw(redisContext *r) {
  redisReply *reply = redisCommand(r, "GET bench_threads:raw");
  if (reply == NULL || reply->type != REDIS_REPLY_STRING) die("a GET failed");
  freeReplyObject(reply);
}

static redisContext *raw_connect(int tcp) {
  redisContext *r = tcp ? redisConnect("127.0.0.1", redis_server_port(server))
                        : redisConnectUnix(redis_server_socket(server));
  if (r == NULL || r->err != 0) die("can't connect to the redis-server");
  return r;
}

static void *member_run(void *arg) {
  member *me = arg;
  const task *t = me->task;
  int count = ops / (t->processes * t->threads), warm = count / 10 + 5;
  char key[32];
  /* one key per thread: a call that joins another's flight is no hit */
  snprintf(key, sizeof key, "key %d", me->number);
  redisContext *r = me->c == NULL ? raw_connect(t->tcp) : NULL;
  for (int i = 0; i < warm; i++) r != NULL ? hit_raw(r) : hit_ours(me->c, key);
  double *us = &shared->us[atomic_fetch_add(&shared->at, count)];
  pthread_barrier_wait(&shared->ready);
  pthread_barrier_wait(&shared->go);
  for (int i = 0; i < count; i++) {
    double begin = now_us();
    r != NULL ? hit_raw(r) : hit_ours(me->c, key);
    us[i] = now_us() - begin;
  }
  pthread_barrier_wait(&shared->done);
  pthread_barrier_wait(&shared->judged);
  if (r != NULL) redisFree(r);
  return NULL;
}

static int64_t cpu_us(const struct rusage *u) {
  return (int64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000000 + u->ru_utime.tv_usec +
         u->ru_stime.tv_usec;
}

static _Noreturn void process_run(const task *t, int number) {
  static member members[THREADS];
  struct rusage before, after;
  corral *c = NULL;
  corral_error error = {0};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (t->ours && corral_open(CORRAL_OPTIONS(.store = t->uri, .name_space = "bench_threads",
                                            .handles = handles),
                             &c, &error) != CORRAL_OK)
    die(error.text);
  for (int i = 0; i < t->threads; i++) {
    members[i] = (member){.task = t, .c = c, .number = number * t->threads + i};
    if (pthread_create(&members[i].thread, NULL, member_run, &members[i]) != 0) die("no thread");
  }
  pthread_barrier_wait(&shared->ready);
  getrusage(RUSAGE_SELF, &before);
  pthread_barrier_wait(&shared->go);
  pthread_barrier_wait(&shared->done);
  getrusage(RUSAGE_SELF, &after);
  atomic_fetch_add(&shared->cpu_us, cpu_us(&after) - cpu_us(&before));
  atomic_fetch_add(&shared->switches, after.ru_nvcsw - before.ru_nvcsw);
  pthread_barrier_wait(&shared->judged);
  for (int i = 0; i < t->threads; i++) pthread_join(members[i].thread, NULL);
  if (c != NULL) corral_close(c);
  _exit(0);
}

/* A number of INFO, with its fraction. */
static double info(const char *name) {
  redisReply *reply = redis_server_command(server, "INFO");
  const char *at = reply->type == REDIS_REPLY_STRING ? strstr(reply->str, name) : NULL;
  if (at == NULL || at[strlen(name)] != ':') die("no such number in INFO");
  double value = strtod(at + strlen(name) + 1, NULL);
  freeReplyObject(reply);
  return value;
}

static double server_cpu_us(void) { return (info("used_cpu_sys") + info("used_cpu_user")) * 1e6; }

static void barrier(pthread_barrier_t *b, int count) {
  pthread_barrierattr_t attr;
  pthread_barrierattr_init(&attr);
  pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  if (pthread_barrier_init(b, &attr, (unsigned)count) != 0) die("no barrier");
  pthread_barrierattr_destroy(&attr);
}

static figures measure(const task *t) {
  figures f;
  pid_t pids[PROCESSES];
  int all = t->processes * (t->threads + 1) + 1;
  barrier(&shared->ready, all);
  barrier(&shared->go, all);
  barrier(&shared->done, all);
  barrier(&shared->judged, all);
  atomic_store(&shared->at, 0);
  atomic_store(&shared->cpu_us, 0);
  atomic_store(&shared->switches, 0);
  for (int i = 0; i < t->processes; i++) {
    pids[i] = fork();
    if (pids[i] < 0) die("no process");
    if (pids[i] == 0) process_run(t, i);
  }
  pthread_barrier_wait(&shared->ready);
  f.connections = info("connected_clients") - 1;
  double cpu = server_cpu_us(), begin = now_us();
  pthread_barrier_wait(&shared->go);
  pthread_barrier_wait(&shared->done);
  double us = now_us() - begin;
  cpu = server_cpu_us() - cpu;
  pthread_barrier_wait(&shared->judged);
  for (int i = 0, status; i < t->processes; i++)
    if (waitpid(pids[i], &status, 0) != pids[i] || status != 0) die("a process failed");
  double count = atomic_load(&shared->at);
  f.us = us / count;
  f.p99 = quantile(shared->us, (size_t)count, .99);
  f.server_us = cpu / count;
  f.client_us = (double)atomic_load(&shared->cpu_us) / count;
  f.cpu_us = f.server_us + f.client_us;
  f.switches = (double)atomic_load(&shared->switches) / count;
  return f;
}

/* The median of a figure; `of`: offset of the figure, by which `ours` is divided by `raw`. */
static double ratio(const figures *ours, const figures *raw, size_t of) {
  double all[ROUNDS];
  for (int i = 0; i < rounds; i++) {
    double a = *(const double *)(const void *)((const char *)&ours[i] + of),
           b = raw != NULL ? *(const double *)(const void *)((const char *)&raw[i] + of) : 1;
    all[i] = a / b;
  }
  return median(all, (size_t)rounds);
}

#define RATIO(field) ratio(ours, raw, offsetof(figures, field))
#define OURS(field) ratio(ours, NULL, offsetof(figures, field))
#define RAW(field) ratio(raw, NULL, offsetof(figures, field))

static void compare(int tcp, int processes, int threads) {
  figures ours[ROUNDS], raw[ROUNDS];
  task t = {.uri = tcp ? redis_server_uri(server) : redis_server_unix_uri(server),
            .tcp = tcp,
            .processes = processes,
            .threads = threads};
  for (int i = 0; i < rounds; i++) {
    t.ours = 0;
    raw[i] = measure(&t);
    t.ours = 1;
    ours[i] = measure(&t);
  }
  printf(
      "%-4s %3d x %-3d %7.1f %7.1f %10.2f %8.0f %7.0f %7.2f %8.2f %8.2f %6.2f %7.0f %8.2f %8.2f\n",
      tcp ? "tcp" : "unix", processes, threads, RAW(us), OURS(us), 1 / RATIO(us), RAW(p99),
      OURS(p99), RATIO(p99), RATIO(server_us), RATIO(client_us), RATIO(cpu_us), OURS(connections),
      RAW(switches), OURS(switches));
  fflush(stdout);
}

static void compare_by(int tcp, int argc, char **argv) {
  static const char *const usual[] = {"1x1", "1x4", "1x16", "1x64", "4x16"};
  int count = argc > 0 ? argc : (int)(sizeof usual / sizeof *usual);
  for (int i = 0; i < count; i++) {
    int processes, threads;
    if (sscanf(argc > 0 ? argv[i] : usual[i], "%dx%d", &processes, &threads) != 2 ||
        processes < 1 || processes > PROCESSES || threads < 1 || threads > THREADS)
      die("accepted are PROCESSESxTHREADS, as 4x16");
    compare(tcp, processes, threads);
  }
}

static int number(const char *text) {
  char *end;
  long value = strtol(text, &end, 10);
  if (*end != '\0' || value < 0 || value > 64 << 20) die("no such number");
  return (int)value;
}

int main(int argc, char **argv) {
  int unix_too = 1, tcp_too = 1;
  for (int c; (c = getopt(argc, argv, "h:r:o:v:ut")) != -1;) switch (c) {
      case 'h': handles = number(optarg); break;
      case 'r': rounds = number(optarg); break;
      case 'o': ops = number(optarg); break;
      case 'v': bytes = number(optarg); break;
      case 'u': tcp_too = 0; break;
      case 't': unix_too = 0; break;
      default: return 2;
    }
  if (rounds < 1 || rounds > ROUNDS || ops < 1 || ops > MOST) die("too many rounds, or hits");
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("no shared memory");
  if (!redis_server_start(&server, NULL)) return 1;
  char *value = calloc(1, (size_t)bytes + 1);
  if (value == NULL) die("no memory");
  freeReplyObject(redis_server_command(server, "SET bench_threads:raw %b", value, (size_t)bytes));
  free(value);
  puts(
      "     processes    us a hit       throughput    p99, us                  CPU: ratios         "
      "connec-  waits a hit\n"
      "     x threads     raw  corral      ratio      raw  corral   ratio   server  clients   both "
      "  "
      "tions     raw   corral");
  if (unix_too) compare_by(0, argc - optind, argv + optind);
  if (tcp_too) compare_by(1, argc - optind, argv + optind);
  redis_server_stop(server);
  return 0;
}
