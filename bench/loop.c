/* loop.c: what an event loop's calls cost. A hit by corral_get_async, from the call to `done`, with 1, 64 and 1000 calls in flight on one thread, against
 * corral_get of the same keys in the same run, on memory:, lmdb: and redis: (a server of its own, on a unix socket). And a crowd of waiters on one
 * key: bytes each, threads, and how long it is from the fill to the last `done`.
 *
 *   bench_loop [WAITERS]    10000 */
#include <corral/loop.h>
#include <dirent.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 7, HITS = 20000, KEYS = 1000, WAYS = 4 };

static const int in_flight[WAYS] = {0, 1, 64, 1000}; /* 0: corral_get */
static char folder[] = "/tmp/corral-bench-XXXXXX";
static char keys[KEYS][24];

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what) {
  fprintf(stderr, "bench_loop: %s\n", what);
  exit(1);
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  static const char value[100];
  (void)key, (void)key_len, (void)arg;
  return corral_fill_bytes(fill, value, sizeof value);
}

static void turn(corral_loop *loop) {
  struct pollfd fd = {.fd = corral_fd(loop), .events = POLLIN};
  if (poll(&fd, 1, 10000) <= 0) die("a call hangs");
  corral_dispatch(loop);
}

/* ---- hits ---------------------------------------------------------------------------------------------------------- */

typedef struct desk {
  corral_loop *loop;
  int begun, done;
} desk;

static void begin(desk *d);

static void on_hit(void *arg, int status, corral_value *value, const corral_error *error) {
  desk *d = arg;
  if (status != CORRAL_OK) die(error->text);
  corral_value_unref(value);
  d->done++;
  if (d->begun < HITS) begin(d);
}

static void begin(desk *d) {
  const char *key = keys[d->begun++ % KEYS];
  if (corral_get_async(d->loop, key, strlen(key), NULL, CORRAL_ASYNC(.done = on_hit, .arg = d), NULL) != CORRAL_OK) die("a call was refused");
}

/* Microseconds per hit. */
static double measure(corral *c, int most) {
  desk d = {0};
  double began = now_us();
  if (most == 0) {
    for (int i = 0; i < HITS; i++) {
      corral_value *value;
      if (corral_get(c, keys[i % KEYS], strlen(keys[i % KEYS]), NULL, &value) != CORRAL_OK) die("a hit failed");
      corral_value_unref(value);
    }
    return (now_us() - began) / HITS;
  }
  if (corral_loop_open(&d.loop, c, NULL) != CORRAL_OK) die("no loop");
  while (d.begun < most) begin(&d);
  while (d.done < HITS) turn(d.loop);
  double took = (now_us() - began) / HITS;
  corral_loop_close(d.loop);
  return took;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void hits(const char *name, const char *uri) {
  corral *c;
  corral_error error;
  double us[WAYS][ROUNDS];
  if (corral_open(&c, CORRAL_OPTIONS(.store = uri, .compute = compute, .policy = CORRAL_POLICY(.ttl_ms = 3600000)), &error) != CORRAL_OK) die(error.text);
  for (int way = 0; way < WAYS; way++) measure(c, in_flight[way]);
  for (int round = 0; round < ROUNDS; round++)
    for (int way = 0; way < WAYS; way++) us[way][round] = measure(c, in_flight[way]);
  for (int way = 0; way < WAYS; way++) qsort(us[way], ROUNDS, sizeof(double), by_size);
  double floor = us[0][ROUNDS / 2];
  printf("%-8s corral_get %7.2f us", name, floor);
  for (int way = 1; way < WAYS; way++) printf("   %d in flight %7.2f us, ratio %.2f", in_flight[way], us[way][ROUNDS / 2], us[way][ROUNDS / 2] / floor);
  printf("\n");
  fflush(stdout);
  corral_close(c);
}

/* ---- waiters ------------------------------------------------------------------------------------------------------- */

static corral_fill *open_fill;
static int answered;

static void on_answer(void *arg, int status, corral_value *value, const corral_error *error) {
  (void)arg;
  if (status != CORRAL_OK) die(error->text);
  corral_value_unref(value);
  answered++;
}

static void on_start(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  (void)arg, (void)key, (void)key_len;
  open_fill = fill;
}

static int count_threads(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/task");
  if (dir == NULL) die("no /proc");
  while (readdir(dir) != NULL) count++;
  closedir(dir);
  return count - 2;
}

static void wait_for_one(int waiters) {
  corral *c;
  corral_loop *loop;
  const corral_async *async = CORRAL_ASYNC(.done = on_answer, .start = on_start);
  const corral_policy *patient = CORRAL_POLICY(.wait_ms = 60000);
  if (corral_open(&c, CORRAL_OPTIONS(.store = "memory:crowd"), NULL) != CORRAL_OK || corral_loop_open(&loop, c, NULL) != CORRAL_OK) die("no corral");
  corral_get_async(loop, "a", 1, patient, async, NULL);
  while (open_fill == NULL) turn(loop);
  size_t before = mallinfo2().uordblks;
  for (int i = 0; i < waiters; i++)
    if (corral_get_async(loop, "a", 1, patient, async, NULL) != CORRAL_OK) die("a call was refused");
  corral_dispatch(loop);
  size_t bytes = mallinfo2().uordblks - before;
  int threads = count_threads();
  double filled = now_us();
  corral_fill_bytes(open_fill, "x", 1);
  corral_fill_done(open_fill);
  while (answered < waiters + 1) turn(loop);
  printf("%d waiters on one key: %zu bytes each, %d threads, %.1f ms from the fill to the last answer\n", waiters, bytes / (size_t)waiters, threads,
         (now_us() - filled) / 1000);
  corral_loop_close(loop);
  corral_close(c);
}

/* ---- the server ---------------------------------------------------------------------------------------------------- */

/* 0: there is no redis-server. */
static pid_t start_redis(const char *path) {
  struct sockaddr_un there = {.sun_family = AF_UNIX};
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stdout) == NULL) _exit(1);
    execlp("redis-server", "redis-server", "--port", "0", "--save", "", "--unixsocket", path, (char *)NULL);
    _exit(127);
  }
  snprintf(there.sun_path, sizeof there.sun_path, "%s", path);
  for (int i = 0; i < 5000 && waitpid(pid, &status, WNOHANG) == 0; i++) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int up = connect(fd, (struct sockaddr *)&there, sizeof there) == 0;
    close(fd);
    if (up) return pid;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return 0;
}

int main(int argc, char **argv) {
  char path[64], uri[96], command[64];
  int waiters = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 10000;
  if (waiters < 1 || waiters > 1000000) die("accepted: 1 to 1000000 waiters");
  if (mkdtemp(folder) == NULL) die("no folder");
  for (int i = 0; i < KEYS; i++) snprintf(keys[i], sizeof keys[i], "key %d", i);
  wait_for_one(waiters);
  hits("memory:", "memory:bench");
  snprintf(uri, sizeof uri, "lmdb:%s/db", folder);
  hits("lmdb:", uri);
  snprintf(path, sizeof path, "%s/sock", folder);
  pid_t server = start_redis(path);
  snprintf(uri, sizeof uri, "redis+unix://%s", path);
  if (server > 0) hits("redis:", uri);
  else fprintf(stderr, "SKIPPED: redis:, for there is no redis-server\n");
  if (server > 0) kill(server, SIGKILL);
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) == 0 ? 0 : 1;
}
