/* expiry.c: what callers feel when a value's life ends under load. 4 processes x 50 threads ask for one key at a constant pace, each
 * every 25 ms with a phase of its own; the value lives for 1 s and takes 100 ms to compute. With the compute bound at open
 * (corral_get), and with one per call (corral_get_or_compute), whose winner's call is left out. The floor, in the same run: the same
 * processes and threads at the same pace, each with a hiredis connection and a GET of a value of the same size.
 *
 *   bench_expiry [SECONDS [ROUNDS]]    10 s for each of the three, in turns, 3 rounds; medians of the rounds last. It starts its own
 *                                      redis-server on a unix socket. */
#include <corral.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 4, THREADS = 50, PACE_US = 25000, TTL_MS = 1000, COST_US = 100000, SIZE = 100, ROUNDS = 16, SAMPLES = 1 << 22 };

typedef enum way { RAW, BOUND, PER_CALL, WAYS } way;

static const char *const names[WAYS] = {"raw GET", "corral_get", "corral_get_or_compute"};

/* Shared by all processes. */
typedef struct board {
  atomic_int ready, computes;
  atomic_llong go_us; /* when all begin; 0: not yet */
  atomic_int count;
  double ms[SAMPLES];
} board;

typedef struct figures {
  double p50, p99, most;
} figures;

static board *shared;
static char folder[] = "/tmp/corral-bench-XXXXXX";
static char place[64];
static long seconds = 10;
static pid_t owner;

static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void sleep_until_us(int64_t until) {
  struct timespec t = {.tv_sec = (time_t)(until / 1000000), .tv_nsec = (long)(until % 1000000) * 1000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) continue;
}

static void remove_folder(void) {
  unlink(place);
  rmdir(folder);
}

static void die(const char *what) {
  fprintf(stderr, "bench_expiry: %s\n", what);
  if (getpid() == owner && place[0] != '\0') remove_folder();
  _exit(1);
}

/* ---- one process --------------------------------------------------------------------------------------------- */

static corral *c;
static way how;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  static const char value[SIZE];
  int *computed = arg;
  (void)key;
  (void)key_len;
  if (computed != NULL) *computed = 1;
  atomic_fetch_add(&shared->computes, 1);
  sleep_until_us(now_us() + COST_US);
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
  if (how == BOUND) status = corral_get(c, "key", 3, NULL, &value);
  else status = corral_get_or_compute(c, "key", 3, NULL, compute, &computed, &value);
  if (status != CORRAL_OK) die(corral_status_text(status));
  corral_value_unref(value);
  return computed;
}

static void *caller(void *number) {
  redisContext *r = how == RAW ? redisConnectUnix(place) : NULL;
  if (how == RAW && (r == NULL || r->err != 0)) die("can't connect to the redis-server");
  ask(r);
  atomic_fetch_add(&shared->ready, 1);
  while (shared->go_us == 0) sleep_until_us(now_us() + 5000);
  int64_t begin = shared->go_us;
  int64_t next = begin + (int64_t)((unsigned)(uintptr_t)number * 2654435761u % PACE_US);
  while (next < begin + seconds * 1000000) {
    sleep_until_us(next);
    double before = now_ms();
    int computed = ask(r);
    double took = now_ms() - before;
    int at = computed ? SAMPLES : atomic_fetch_add(&shared->count, 1);
    if (at < SAMPLES) shared->ms[at] = took;
    for (int64_t now = now_us(); next <= now;) next += PACE_US;
  }
  if (r != NULL) redisFree(r);
  return NULL;
}

static void process(int number) {
  pthread_t threads[THREADS];
  char uri[96];
  corral_error error;
  snprintf(uri, sizeof uri, "redis+unix://%s", place);
  if (how != RAW && corral_open(&c, CORRAL_OPTIONS(.store = uri, .name_space = "bench_expiry", .compute = how == BOUND ? compute : NULL,
                                                   .policy = CORRAL_POLICY(.ttl_ms = TTL_MS, .swr_ms = 60000)),
                                &error) != CORRAL_OK)
    die(error.text);
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, caller, (void *)(uintptr_t)(number * THREADS + i)) != 0) die("no thread");
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  corral_close(c);
}

/* ---- all of them --------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

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
    sleep_until_us(now_us() + 5000);
  }
  int before = shared->computes;
  shared->go_us = now_us() + 20000;
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    if (waitpid(pids[i], &status, 0) < 0 || status != 0) die("a process failed");
  }
  int count = shared->count < SAMPLES ? shared->count : SAMPLES;
  if (count == 0) die("no call was made");
  qsort(shared->ms, (size_t)count, sizeof *shared->ms, by_size);
  figures f = {shared->ms[count / 2], shared->ms[(long)count * 99 / 100], shared->ms[count - 1]};
  printf("%-22s %6d calls   p50 %.3f ms   p99 %.3f ms   max %6.2f ms   %d computes\n", names[what], count, f.p50, f.p99, f.most,
         shared->computes - before);
  fflush(stdout);
  return f;
}

static double median(const figures *of, long rounds, size_t field) {
  double all[ROUNDS];
  for (long i = 0; i < rounds; i++) all[i] = ((const double *)&of[i])[field];
  qsort(all, (size_t)rounds, sizeof *all, by_size);
  return all[rounds / 2];
}

static void report(figures of[WAYS][ROUNDS], long rounds) {
  figures floor = {0};
  for (way w = RAW; w < WAYS; w++) {
    figures f = {median(of[w], rounds, 0), median(of[w], rounds, 1), median(of[w], rounds, 2)};
    if (w == RAW) floor = f;
    printf("median of %ld: %-22s p50 %.3f ms (%.2f)   p99 %.3f ms (%.2f)   max %6.2f ms (%.2f)   (ratio to the raw GET)\n", rounds, names[w],
           f.p50, f.p50 / floor.p50, f.p99, f.p99 / floor.p99, f.most, f.most / floor.most);
  }
}

static redisContext *await_server(void) {
  for (int i = 0; i < 5000; i++) {
    redisContext *r = redisConnectUnix(place);
    if (r != NULL && r->err == 0) return r;
    if (r != NULL) redisFree(r);
    sleep_until_us(now_us() + 1000);
  }
  die("redis-server doesn't start");
  return NULL;
}

static pid_t start_server(void) {
  snprintf(place, sizeof place, "%s/sock", folder);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stdout) == NULL) _exit(1);
    execlp("redis-server", "redis-server", "--port", "0", "--save", "", "--unixsocket", place, (char *)NULL);
    _exit(127);
  }
  return pid;
}

int main(int argc, char **argv) {
  static figures of[WAYS][ROUNDS];
  static const char value[SIZE];
  long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 3;
  if (argc > 1) seconds = strtol(argv[1], NULL, 10);
  if (seconds < 1 || seconds > 60 || rounds < 1 || rounds > ROUNDS) die("accepted are 1 to 60 seconds and 1 to 16 rounds");
  owner = getpid();
  if (mkdtemp(folder) == NULL) die("no temporary folder");
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("no memory");
  pid_t server = start_server();
  redisContext *r = await_server();
  freeReplyObject(redisCommand(r, "SET bench_expiry:raw %b", value, (size_t)SIZE));
  for (long i = 0; i < rounds; i++)
    for (way w = RAW; w < WAYS; w++) {
      freeReplyObject(redisCommand(r, "DEL bench_expiry:key"));
      of[w][i] = measure(w);
    }
  report(of, rounds);
  redisFree(r);
  kill(server, SIGKILL);
  waitpid(server, NULL, 0);
  remove_folder();
  return 0;
}
