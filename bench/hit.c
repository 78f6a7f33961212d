/* hit.c: the cost of a hit. corral_get_or_compute on Redis against a plain hiredis GET of the same
 * bytes on the same server, in turns within one run; with many threads, callers that share corral's
 * handles against one connection per thread. And hits on memory: and lmdb:.
 *
 *   bench_hit [SIZE [SOCKET | HOST:PORT]]    a value of SIZE bytes (100); without a server given it
 *                                            starts its own redis-server on a unix socket. On a
 *                                            given server the keys are named bench_hit:..., and are
 *                                            deleted. */
#include <corral.h>
#include <hiredis/hiredis.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"
#include "support/redis_server.h"

enum { ROUNDS = 9, ALONE = 4000, MANY = 300, THREADS = 64 };

static char place[PATH_MAX]; /* path of a socket, or a host */
static int port;             /* 0: `place` is a socket */
static size_t value_size = 100;

static redisContext *raw_connect(void) {
  redisContext *r = port == 0 ? redisConnectUnix(place) : redisConnect(place, port);
  if (r == NULL || r->err != 0) die("can't connect to the redis-server");
  return r;
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
  if (corral_open(CORRAL_OPTIONS(.store = uri, .name_space = "bench_hit"), &c, &error) != CORRAL_OK)
    die(error.text);
  return c;
}

static void corral_hits(corral *c, const char *key, int count) {
  for (int i = 0; i < count; i++) {
    corral_value *value;
    if (corral_get_or_compute(c, key, strlen(key),
                              CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 3600000)), compute,
                              NULL, &value) != CORRAL_OK)
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
  corral *c; /* NULL: hiredis, one connection per thread */
  pthread_barrier_t *go;
  int number;
} crowd;

static void *crowd_run(void *arg) {
  crowd *me = arg;
  char key[32];
  /* one key per thread: a call that joins another's flight is no hit */
  snprintf(key, sizeof key, "key %d", me->number);
  redisContext *r = me->c == NULL ? raw_connect() : NULL;
  if (r != NULL)
    raw_hits(r, 1);
  else
    corral_hits(me->c, key, 1);
  pthread_barrier_wait(me->go);
  if (r != NULL)
    raw_hits(r, MANY);
  else
    corral_hits(me->c, key, MANY);
  if (r != NULL) redisFree(r);
  return NULL;
}

/* Microseconds per hit, over all threads. */
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

static void embedded(const char *name, const char *uri, double raw) {
  double us[ROUNDS];
  corral *c = open_at(uri);
  corral_hits(c, "key", 1);
  for (int i = 0; i < ROUNDS; i++) {
    double begin = now_us();
    corral_hits(c, "key", ALONE);
    us[i] = (now_us() - begin) / ALONE;
  }
  double a = median(us, ROUNDS);
  printf("%-8s one thread      corral %6.2f us   ratio to the raw GET %.2f\n", name, a, a / raw);
  corral_close(c);
}

/* Medians of rounds; in each round all ways are measured in turn. Returns the median of the raw GET
 * on one thread. */
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
  double a = median(ours, ROUNDS), b = median(raw, ROUNDS), x = median(many_ours, ROUNDS),
         y = median(many_raw, ROUNDS);
  printf("redis    one thread      corral %6.2f us   raw GET %6.2f us   ratio %.2f\n", a, b, a / b);
  printf("redis    %d threads      corral %6.2f us   raw GET, a connection each %6.2f us   ratio "
         "%.2f\n",
         THREADS, x, y, x / y);
  return b;
}

/* Parses "HOST:PORT" or a path. `uri` becomes the corral's store. */
static void take_place(char *text, char *uri, size_t size) {
  char *colon = strrchr(text, ':');
  char *end = NULL;
  long number = 0;
  if (text[0] != '/') {
    if (colon != NULL) number = strtol(colon + 1, &end, 10);
    if (colon == NULL || *end != '\0' || number < 1 || number > 65535)
      die("accepted are /PATH/OF/SOCKET and HOST:PORT");
    *colon = '\0';
  }
  port = (int)number;
  if (snprintf(place, sizeof place, "%s", text) >= (int)sizeof place) die("the path is too long");
  if (port == 0)
    snprintf(uri, size, "redis+unix://%s", place);
  else
    snprintf(uri, size, "redis://%s:%d", place, port);
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

int main(int argc, char **argv) {
  char uri[PATH_MAX + 32];
  redis_server *server = NULL;
  if (argc > 1) value_size = strtoul(argv[1], NULL, 10);
  make_folder();
  if (argc > 2) {
    take_place(argv[2], uri, sizeof uri);
  } else {
    if (!redis_server_start(&server, NULL)) return 1;
    snprintf(uri, sizeof uri, "%s", redis_server_unix_uri(server));
    snprintf(place, sizeof place, "%s", redis_server_socket(server));
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
  redis_server_stop(server);
  return 0;
}
