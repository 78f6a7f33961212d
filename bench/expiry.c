/* expiry.c: latency of calls when a value's life ends under load. 4 processes x 50 threads ask for
 * one key at a constant pace, each every 25 ms with a phase of its own; the value lives for 1 s and
 * takes 100 ms to compute. Measured with a compute bound at open (corral_get) and with a compute
 * per call (corral_get_or_compute); there the calls that compute are left out. The baseline, in the
 * same run: as many processes and threads at the same pace, each with a GET of a value of the same
 * size on its own hiredis connection.
 *
 *   bench_expiry [SECONDS [ROUNDS]]    10 s for each of the three, in turns, 3 rounds; medians of
 *                                      the rounds last. It starts its own redis-server on a unix
 *                                      socket. */
#include <corral.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit.h"
#include "support/redis_server.h"

enum {
  PROCESSES = 4,
  THREADS = 50,
  PACE_US = 25000,
  TTL_MS = 1000,
  COST_US = 100000,
  SIZE = 100,
  ROUNDS = 16,
  SAMPLES = 1 << 22
};

typedef enum way { RAW, BOUND, PER_CALL, WAYS } way;

static const char *const names[WAYS] = {"raw GET", "corral_get", "corral_get_or_compute"};

/* Shared by all processes. */
typedef struct board {
  atomic_int ready, computes;
  atomic_llong go_us; /* common start; 0: not set yet */
  atomic_int count;
  double ms[SAMPLES];
} board;

typedef struct figures {
  double p50, p99, most;
} figures;

static board *shared;
static redis_server *server;
static long seconds = 10;
static pid_t owner;

static int64_t clock_us(void) { return (int64_t)now_us(); }

static void sleep_until_us(int64_t until) {
  struct timespec t = {.tv_sec = (time_t)(until / 1000000),
                       .tv_nsec = (long)(until % 1000000) * 1000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) continue;
}

/* Exit handlers also run in forked processes; only the owner stops the server. */
static void stop_server(void) {
  if (getpid() == owner) redis_server_stop(server);
}

/* ---- one process --------------------------------------------------------------------------- */

static corral *c;
static way how;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  static const char value[SIZE];
  int *computed = arg;
  (void)key;
  (void)key_len;
  if (computed != NULL) *computed = 1;
  atomic_fetch_add(&shared->computes, 1);
  sleep_until_us(clock_us() + COST_US);
  return corral_fill_bytes(fill, value, sizeof value);
}

/* True when the call ran the compute itself. */
static int ask(redisContext *r) {
  int computed = 0, status;
  corral_value *value = NULL;
  if (r != NULL) {
    redisReply *reply = redisCommand(r, "GET bench_expiry:raw");
    if (reply == NULL || reply->type != REDIS_REPLY_STRING) die("a GET failed");
    freeReplyObject(reply);
    return 0;
  }
  if (how == BOUND)
    status = corral_get(c, "key", 3, NULL, &value);
  else
    status = corral_get_or_compute(c, "key", 3, NULL, compute, &computed, &value);
  if (status != CORRAL_OK) die(corral_status_text(status));
  corral_value_unref(value);
  return computed;
}

static void *caller(void *number) {
  redisContext *r = how == RAW ? redisConnectUnix(redis_server_socket(server)) : NULL;
  if (how == RAW && (r == NULL || r->err != 0)) die("can't connect to the redis-server");
  ask(r);
  atomic_fetch_add(&shared->ready, 1);
  while (shared->go_us == 0) sleep_until_us(clock_us() + 5000);
  int64_t begin = shared->go_us;
  int64_t next = begin + (int64_t)((unsigned)(uintptr_t)number * 2654435761u % PACE_US);
  while (next < begin + seconds * 1000000) {
    sleep_until_us(next);
    double before = now_us();
    int computed = ask(r);
    double took = (now_us() - before) / 1000;
    int at = computed ? SAMPLES : atomic_fetch_add(&shared->count, 1);
    if (at < SAMPLES) shared->ms[at] = took;
    for (int64_t now = clock_us(); next <= now;) next += PACE_US;
  }
  if (r != NULL) redisFree(r);
  return NULL;
}

static void process(int number) {
  pthread_t threads[THREADS];
  corral_error error;
  if (how != RAW &&
      corral_open(CORRAL_OPTIONS(.store = redis_server_unix_uri(server),
                                 .name_space = "bench_expiry",
                                 .compute = how == BOUND ? compute : NULL,
                                 .policy = CORRAL_POLICY(.ttl_ms = TTL_MS, .swr_ms = 60000)),
                  &c, &error) != CORRAL_OK)
    die(error.text);
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, caller, (void *)(uintptr_t)(number * THREADS + i)) != 0)
      die("no thread");
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  corral_close(c);
}

/* ---- all processes ------------------------------------------------------------------------- */

static figures measure(way what) {
  pid_t pids[PROCESSES];
  how = what;
  shared->ready = shared->computes = shared->count = 0;
  shared->go_us = 0;
  for (int i = 0; i < PROCESSES; i++) {
    pids[i] = fork();
    if (pids[i] < 0) die("no process");
    if (pids[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      process(i);
      _exit(0);
    }
  }
  while (shared->ready < PROCESSES * THREADS) {
    if (waitpid(-1, NULL, WNOHANG) > 0) die("a process failed");
    sleep_until_us(clock_us() + 5000);
  }
  int before = shared->computes;
  shared->go_us = clock_us() + 20000;
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    if (waitpid(pids[i], &status, 0) < 0 || status != 0) die("a process failed");
  }
  int count = shared->count < SAMPLES ? shared->count : SAMPLES;
  if (count == 0) die("no call was made");
  qsort(shared->ms, (size_t)count, sizeof *shared->ms, by_size);
  figures f = {shared->ms[count / 2], shared->ms[(long)count * 99 / 100], shared->ms[count - 1]};
  printf("%-22s %6d calls   p50 %.3f ms   p99 %.3f ms   max %6.2f ms   %d computes\n", names[what],
         count, f.p50, f.p99, f.most, shared->computes - before);
  fflush(stdout);
  return f;
}

static double median_of(const figures *of, long rounds, size_t field) {
  double all[ROUNDS];
  for (long i = 0; i < rounds; i++) all[i] = ((const double *)&of[i])[field];
  return median(all, (size_t)rounds);
}

static void report(figures of[WAYS][ROUNDS], long rounds) {
  figures floor = {0};
  for (way w = RAW; w < WAYS; w++) {
    figures f = {median_of(of[w], rounds, 0), median_of(of[w], rounds, 1),
                 median_of(of[w], rounds, 2)};
    if (w == RAW) floor = f;
    printf("median of %ld: %-22s p50 %.3f ms (%.2f)   p99 %.3f ms (%.2f)   max %6.2f ms (%.2f)   "
           "(ratio to the raw GET)\n",
           rounds, names[w], f.p50, f.p50 / floor.p50, f.p99, f.p99 / floor.p99, f.most,
           f.most / floor.most);
  }
}

int main(int argc, char **argv) {
  static figures of[WAYS][ROUNDS];
  static const char value[SIZE];
  long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 3;
  if (argc > 1) seconds = strtol(argv[1], NULL, 10);
  if (seconds < 1 || seconds > 60 || rounds < 1 || rounds > ROUNDS)
    die("accepted are 1 to 60 seconds and 1 to 16 rounds");
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("no memory");
  if (!redis_server_start(&server, NULL)) return 1;
  owner = getpid();
  atexit(stop_server);
  redisContext *r = redisConnectUnix(redis_server_socket(server));
  if (r == NULL || r->err != 0) die("can't connect to the redis-server");
  freeReplyObject(redisCommand(r, "SET bench_expiry:raw %b", value, (size_t)SIZE));
  for (long i = 0; i < rounds; i++)
    for (way w = RAW; w < WAYS; w++) {
      freeReplyObject(redisCommand(r, "DEL bench_expiry:key"));
      of[w][i] = measure(w);
    }
  report(of, rounds);
  redisFree(r);
  return 0;
}
