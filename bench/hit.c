/* hit.c: what a hit costs. corral_get_or_compute on Redis against a plain hiredis GET of the same bytes on the same server,
 * in turns within one run; with many threads, callers that share corral's handles against a connection per thread. And hits on
 * memory: and lmdb:.
 *
 *   bench_hit [SIZE [SOCKET | HOST:PORT]]    a value of SIZE bytes (100); without a place it starts its own redis-server on a
 *                                            unix socket. On a given server the keys are named bench_hit:..., and are deleted. */
#include <corral.h>
#include <hiredis/hiredis.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 9, ALONE = 4000, MANY = 300, THREADS = 64 };

static char folder[] = "/tmp/corral-bench-XXXXXX";
static char place[PATH_MAX]; /* a socket's path, or a host */
static int port;             /* 0: a socket */
static size_t value_size = 100;

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what) {
  fprintf(stderr, "bench_hit: %s\n", what);
  exit(1);
}

static redisContext *raw_connect(void) {
  redisContext *r = port == 0 ? redisConnectUnix(place) : redisConnect(place, port);
  if (r == NULL || r->err != 0) die("can't connect to the redis-server");
  return r;
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

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  void *room = corral_fill_reserve(fill, value_size);
  if (room == NULL) return CORRAL_ENOMEM;
  memset(room, 'x', value_size);
  return CORRAL_OK;
}

static corral *open_at(const char *uri) {
  corral *c;
  corral_error error = {0};
  if (corral_open(&c, CORRAL_OPTIONS(.store = uri, .name_space = "bench_hit"), &error) != CORRAL_OK) die(error.text);
  return c;
}

static void corral_hits(corral *c, const char *key, int count) {
  for (int i = 0; i < count; i++) {
    corral_value *value;
    if (corral_get_or_compute(c, key, strlen(key), CORRAL_POLICY(.ttl_ms = 3600000), compute, NULL, &value) != CORRAL_OK)
      die("a hit failed");
    corral_value_unref(value);
  }
}

static void raw_hits(redisContext *r, int count) {
  for (int i = 0; i < count; i++) {
    redisReply *reply = redisCommand(r, "GET bench_hit:raw");
    if (reply == NULL || reply->type != REDIS_REPLY_STRING) die("a GET failed");
    freeReplyObject(reply);
  }
}

typedef struct crowd {
  corral *c; /* NULL: hiredis, a connection each */
  pthread_barrier_t *go;
  int number;
} crowd;

static void *crowd_run(void *arg) {
  crowd *me = arg;
  char key[32];
  snprintf(key, sizeof key, "key %d", me->number); /* a key each: joining one flight would be no hit */
  redisContext *r = me->c == NULL ? raw_connect() : NULL;
  if (r != NULL) raw_hits(r, 1);
  else corral_hits(me->c, key, 1);
  pthread_barrier_wait(me->go);
  if (r != NULL) raw_hits(r, MANY);
  else corral_hits(me->c, key, MANY);
  if (r != NULL) redisFree(r);
  return NULL;
}

/* Microseconds per hit of all threads together. */
static double crowd_us(corral *c) {
  pthread_t threads[THREADS];
  crowd crowds[THREADS];
  pthread_barrier_t go;
  pthread_barrier_init(&go, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) {
    crowds[i] = (crowd){.c = c, .go = &go, .number = i};
    if (pthread_create(&threads[i], NULL, crowd_run, &crowds[i]) != 0) die("no thread");
  }
  pthread_barrier_wait(&go);
  double begin = now_us();
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&go);
  return (now_us() - begin) / (THREADS * MANY);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *of) {
  qsort(of, ROUNDS, sizeof *of, by_size);
  return of[ROUNDS / 2];
}

static void embedded(const char *name, const char *uri, double raw) {
  double us[ROUNDS];
  corral *c = open_at(uri);
  corral_hits(c, "key", 1);
  for (int i = 0; i < ROUNDS; i++) {
    double begin = now_us();
    corral_hits(c, "key", ALONE);
    us[i] = (now_us() - begin) / ALONE;
  }
  double a = median(us);
  printf("%-8s one thread      corral %6.2f us   ratio to the raw GET %.2f\n", name, a, a / raw);
  corral_close(c);
}

/* Medians of rounds in which each takes its turn. Returns that of the raw GET, alone. */
static double redis(corral *c, redisContext *r) {
  double raw[ROUNDS], ours[ROUNDS], many_raw[ROUNDS], many_ours[ROUNDS];
  corral_hits(c, "key", ALONE);
  for (int i = 0; i < ROUNDS; i++) {
    double begin = now_us();
    raw_hits(r, ALONE);
    raw[i] = (now_us() - begin) / ALONE;
    begin = now_us();
    corral_hits(c, "key", ALONE);
    ours[i] = (now_us() - begin) / ALONE;
    many_raw[i] = crowd_us(NULL);
    many_ours[i] = crowd_us(c);
  }
  double a = median(ours), b = median(raw), x = median(many_ours), y = median(many_raw);
  printf("redis    one thread      corral %6.2f us   raw GET %6.2f us   ratio %.2f\n", a, b, a / b);
  printf("redis    %d threads      corral %6.2f us   raw GET, a connection each %6.2f us   ratio %.2f\n", THREADS, x, y, x / y);
  return b;
}

/* "HOST:PORT", or a path. The URI is corral's. */
static void take_place(char *text, char *uri, size_t size) {
  char *colon = strrchr(text, ':');
  char *end = NULL;
  long number = 0;
  if (text[0] != '/') {
    if (colon != NULL) number = strtol(colon + 1, &end, 10);
    if (colon == NULL || *end != '\0' || number < 1 || number > 65535) die("accepted are /PATH/OF/SOCKET and HOST:PORT");
    *colon = '\0';
  }
  port = (int)number;
  if (snprintf(place, sizeof place, "%s", text) >= (int)sizeof place) die("the path is too long");
  if (port == 0) snprintf(uri, size, "redis+unix://%s", place);
  else snprintf(uri, size, "redis://%s:%d", place, port);
}

static void clean(corral *c, redisContext *r) {
  char key[32];
  corral_invalidate(c, "key", 3, NULL);
  for (int i = 0; i < THREADS; i++) {
    int len = snprintf(key, sizeof key, "key %d", i);
    corral_invalidate(c, key, (size_t)len, NULL);
  }
  freeReplyObject(redisCommand(r, "DEL bench_hit:raw"));
}

static void remove_folder(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  if (system(command) != 0) fprintf(stderr, "bench_hit: %s stays behind\n", folder);
}

int main(int argc, char **argv) {
  char uri[PATH_MAX + 32];
  pid_t server = 0;
  if (argc > 1) value_size = strtoul(argv[1], NULL, 10);
  if (mkdtemp(folder) == NULL) die("no temporary folder");
  atexit(remove_folder);
  if (argc > 2) {
    take_place(argv[2], uri, sizeof uri);
  } else {
    server = start_server();
    snprintf(uri, sizeof uri, "redis+unix://%s", place);
  }
  corral *c = open_at(uri);
  redisContext *r = raw_connect();
  char *value = calloc(1, value_size + 1);
  if (value == NULL) die("no memory");
  freeReplyObject(redisCommand(r, "SET bench_hit:raw %b", value, value_size));
  free(value);
  double raw = redis(c, r);
  embedded("memory:", "memory:", raw);
  snprintf(uri, sizeof uri, "lmdb:%s/store", folder);
  embedded("lmdb:", uri, raw);
  clean(c, r);
  corral_close(c);
  redisFree(r);
  if (server > 0) {
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
  }
  return 0;
}
