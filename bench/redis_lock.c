/* redis_lock.c: what an uncontended lock costs on Redis: LOCK and UNLOCK through the plugin's table, by scripts and without, against two hiredis GETs of
 * 100 bytes on the same server; in turns within one run, medians of the rounds. And the time that the server itself spends on a script.
 *
 *   cmake --preset release -DCORRAL_BENCH=ON && cmake --build --preset release && build/release/bench/bench_redis_lock
 *
 * It starts its own redis-server, on a unix socket and a port of 127.0.0.1. */
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "registry.h"
#include "uri.h"

extern const corral_store crl_plugin_redis;

enum { ROUNDS = 21, PAIRS = 2000, PORT = 29217 };

static char folder[] = "/tmp/corral-bench-XXXXXX", place[80];

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what) {
  fprintf(stderr, "bench_redis_lock: %s\n", what);
  exit(1);
}

static pid_t start_server(void) {
  char port[8];
  snprintf(place, sizeof place, "%s/sock", folder);
  snprintf(port, sizeof port, "%d", PORT);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stdout) == NULL) _exit(1);
    execlp("redis-server", "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--unixsocket", place, (char *)NULL);
    _exit(127);
  }
  for (int i = 0; i < 5000; i++) {
    redisContext *r = redisConnectUnix(place);
    int up = r != NULL && r->err == 0;
    if (r != NULL) redisFree(r);
    if (up) return pid;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  die("redis-server doesn't start");
  return 0;
}

static void *connected(const char *text) {
  crl_uri uri;
  corral_error error = {0};
  corral_store_info info = {.size = sizeof info};
  void *store, *handle;
  if (crl_uri_parse(&uri, text, &error) != CORRAL_OK || crl_plugin_redis.open(crl_registry_host(), &uri.view, &store, &info, &error) != CORRAL_OK ||
      crl_plugin_redis.connect(store, INT64_MAX, &handle, &error) != CORRAL_OK)
    die(error.text);
  crl_uri_free(&uri);
  return handle;
}

static void does(void *handle, corral_verb verb) {
  static const uint8_t token[CORRAL_TOKEN] = {1, 2, 3};
  static const char note[] = "host.example/12345/67890 nightly";
  corral_op op = {.verb = (uint32_t)verb, .key = "lock:nightly", .key_len = 12, .token = token, .lease_ms = 10000,
                  .record = (const uint8_t *)note, .record_len = sizeof note - 1, .status = CORRAL_EUNKNOWN};
  if (crl_plugin_redis.perform(handle, &op, 1, crl_registry_host()->now_ms() + 5000, NULL) != CORRAL_OK || op.status != CORRAL_OK) die("a lock failed");
}

static double lock_pairs(void *handle) {
  double from = now_us();
  for (int i = 0; i < PAIRS; i++) {
    does(handle, CORRAL_VERB_LOCK);
    does(handle, CORRAL_VERB_UNLOCK);
  }
  return (now_us() - from) / PAIRS;
}

static double get_pairs(redisContext *r) {
  double from = now_us();
  for (int i = 0; i < 2 * PAIRS; i++) {
    redisReply *reply = redisCommand(r, "GET %s", "floor");
    if (reply == NULL || reply->len != 100) die("a GET failed");
    freeReplyObject(reply);
  }
  return (now_us() - from) / PAIRS;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *of) {
  qsort(of, ROUNDS, sizeof *of, by_size);
  return of[ROUNDS / 2];
}

static void compare(const char *what, redisContext *r, const char *uri) {
  char text[160];
  double floor[ROUNDS], scripts[ROUNDS], without[ROUNDS];
  void *with = connected(uri);
  snprintf(text, sizeof text, "%s?scripts=no", uri);
  void *no = connected(text);
  for (int i = 0; i < ROUNDS; i++) {
    floor[i] = get_pairs(r);
    scripts[i] = lock_pairs(with);
    without[i] = lock_pairs(no);
  }
  double two = median(floor), one = median(scripts);
  printf("%-12s two GETs %6.1f us   lock + unlock %6.1f us, ratio %.2f   without scripts %6.1f us\n", what, two, one, one / two, median(without));
}

static void server_time(redisContext *r) {
  redisReply *reply = redisCommand(r, "INFO commandstats");
  char *save = NULL;
  if (reply == NULL || reply->type != REDIS_REPLY_STRING) die("no INFO");
  for (char *line = strtok_r(reply->str, "\r\n", &save); line != NULL; line = strtok_r(NULL, "\r\n", &save))
    if (strstr(line, "evalsha") != NULL || strstr(line, "cmdstat_get:") != NULL) printf("%s\n", line);
  freeReplyObject(reply);
}

int main(void) {
  char unix_uri[120], tcp_uri[64], value[101];
  if (mkdtemp(folder) == NULL) die("mkdtemp");
  pid_t pid = start_server();
  redisContext *local = redisConnectUnix(place), *tcp = redisConnect("127.0.0.1", PORT);
  if (local == NULL || local->err != 0 || tcp == NULL || tcp->err != 0) die("can't connect to the redis-server");
  snprintf(unix_uri, sizeof unix_uri, "redis+unix://%s", place);
  snprintf(tcp_uri, sizeof tcp_uri, "redis://127.0.0.1:%d", PORT);
  memset(value, 'x', 100);
  freeReplyObject(redisCommand(local, "SET floor %b", value, (size_t)100));
  freeReplyObject(redisCommand(local, "CONFIG RESETSTAT"));
  compare("unix socket", local, unix_uri);
  compare("TCP", tcp, tcp_uri);
  server_time(local);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  unlink(place);
  rmdir(folder);
  return 0;
}
