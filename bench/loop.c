/* loop.c: the cost of an event loop's calls. A hit by corral_loop_get, from the call to `done`,
 * with 1, 64 and 1000 calls in flight on one thread, each begun by the `done` of another, and alone
 * with each begun between two dispatches; against corral_get of the same keys in the same run, on
 * memory:, lmdb:, the near tier and redis: (its own server, on a unix socket). Also a hit by
 * corral_peek, but for redis:, where it answers nothing. And a crowd of waiters on one key: bytes
 * for each, number of threads, and the time from the fill to the last `done`.
 *
 *   bench_loop [WAITERS]    10000 */
#include <corral/loop.h>
#include <dirent.h>
#include <malloc.h>
#include <poll.h>
#include <string.h>

#include "folder.h"
#include "support/redis_server.h"

/* A round in this process takes so little that a busy machine spoils many. */
enum { ROUNDS = 7, MANY_ROUNDS = 41, HITS = 20000, KEYS = 1000, WAYS = 6, PEEKED = 4 };

/* 0: corral_get; -1: one, begun between dispatches; -2: corral_peek */
static const int in_flight[WAYS] = {0, 1, 64, 1000, [PEEKED] = -2, -1};
static char keys[KEYS][24];

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  static const char value[100];
  (void)key, (void)key_len, (void)arg;
  return corral_fill_bytes(fill, value, sizeof value);
}

static void turn(corral_loop *loop) {
  struct pollfd fd = {.fd = corral_loop_fd(loop), .events = POLLIN};
  if (poll(&fd, 1, 10000) <= 0) die("a call hangs");
  corral_loop_dispatch(loop);
}

/* ---- hits ---------------------------------------------------------------------------------- */

typedef struct desk {
  corral_loop *loop;
  int begun, done, most;
} desk;

static void begin(desk *d);

static void on_hit(void *arg, int status, corral_value *value, const corral_error *error) {
  desk *d = arg;
  if (status != CORRAL_OK) die(error->text);
  corral_value_unref(value);
  d->done++;
  if (d->begun < HITS && d->most > 0) begin(d);
}

static void begin(desk *d) {
  const char *key = keys[d->begun++ % KEYS];
  if (corral_loop_get(d->loop, key, strlen(key), NULL, CORRAL_ASYNC(.done = on_hit, .arg = d),
                      NULL) != CORRAL_OK)
    die("a call was refused");
}

typedef int getter(corral *c, const void *key, size_t len, const corral_call *call,
                   corral_value **ret);

static double measure_calls(corral *c, getter *get) {
  double began = now_us();
  for (int i = 0; i < HITS; i++) {
    corral_value *value;
    if (get(c, keys[i % KEYS], strlen(keys[i % KEYS]), NULL, &value) != CORRAL_OK)
      die("a hit failed");
    corral_value_unref(value);
  }
  return (now_us() - began) / HITS;
}

/* Microseconds per hit. */
static double measure(corral *c, int most) {
  if (most == 0) return measure_calls(c, corral_get);
  if (most == in_flight[PEEKED]) return measure_calls(c, corral_peek);
  desk d = {.most = most};
  double began = now_us();
  if (corral_loop_open(c, &d.loop, NULL) != CORRAL_OK) die("no loop");
  while (d.begun < most) begin(&d);
  while (d.done < HITS) {
    if (most < 0 && d.begun == d.done) begin(&d);
    turn(d.loop);
  }
  double took = (now_us() - began) / HITS;
  corral_loop_close(d.loop);
  return took;
}

static void tell(const char *name, double us[WAYS][MANY_ROUNDS], size_t rounds, int peeks) {
  double floor = median(us[0], rounds);
  printf("%-8s corral_get %7.2f us", name, floor);
  for (int way = 1; way < WAYS; way++) {
    double own = way != PEEKED || peeks ? median(us[way], rounds) : 0;
    if (in_flight[way] > 0)
      printf("   %d in flight %7.2f us, ratio %.2f", in_flight[way], own, own / floor);
    else if (way != PEEKED)
      printf("   1 begun between dispatches %7.2f us, ratio %.2f", own, own / floor);
    else if (peeks)
      printf("   corral_peek %.2f", own / floor);
  }
  printf("\n");
  fflush(stdout);
}

static void hits(const char *name, const char *uri, int64_t near_bytes, size_t rounds, int peeks) {
  corral *c;
  corral_error error;
  double us[WAYS][MANY_ROUNDS];
  if (corral_open(CORRAL_OPTIONS(.store = uri, .compute = compute, .near_bytes = near_bytes,
                                 .policy = CORRAL_POLICY(.ttl_ms = 3600000, .near_ms = 3600000)),
                  &c, &error) != CORRAL_OK)
    die(error.text);
  for (int way = 0; way < WAYS; way++)
    if (way != PEEKED || peeks) measure(c, in_flight[way]);
  for (size_t round = 0; round < rounds; round++)
    for (int way = 0; way < WAYS; way++)
      if (way != PEEKED || peeks) us[way][round] = measure(c, in_flight[way]);
  tell(name, us, rounds, peeks);
  corral_close(c);
}

/* ---- waiters ------------------------------------------------------------------------------- */

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
  if (corral_open(CORRAL_OPTIONS(.store = "memory:crowd"), &c, NULL) != CORRAL_OK ||
      corral_loop_open(c, &loop, NULL) != CORRAL_OK)
    die("no corral");
  corral_loop_get(loop, "a", 1, CORRAL_CALL(.policy = patient), async, NULL);
  while (open_fill == NULL) turn(loop);
  size_t before = mallinfo2().uordblks;
  for (int i = 0; i < waiters; i++)
    if (corral_loop_get(loop, "a", 1, CORRAL_CALL(.policy = patient), async, NULL) != CORRAL_OK)
      die("a call was refused");
  corral_loop_dispatch(loop);
  size_t bytes = mallinfo2().uordblks - before;
  int threads = count_threads();
  double filled = now_us();
  corral_fill_bytes(open_fill, "x", 1);
  corral_fill_done(open_fill);
  while (answered < waiters + 1) turn(loop);
  printf("%d waiters on one key: %zu bytes each, %d threads, %.1f ms from the fill to the last "
         "answer\n",
         waiters, bytes / (size_t)waiters, threads, (now_us() - filled) / 1000);
  corral_loop_close(loop);
  corral_close(c);
}

int main(int argc, char **argv) {
  char uri[96];
  redis_server *server;
  int waiters = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 10000;
  if (waiters < 1 || waiters > 1000000) die("accepted: 1 to 1000000 waiters");
  make_folder();
  for (int i = 0; i < KEYS; i++) snprintf(keys[i], sizeof keys[i], "key %d", i);
  wait_for_one(waiters);
  hits("memory:", "memory:bench", 0, MANY_ROUNDS, 1);
  hits("near", "memory:near", 1 << 24, MANY_ROUNDS, 1);
  snprintf(uri, sizeof uri, "lmdb:%s/db", folder);
  hits("lmdb:", uri, 0, MANY_ROUNDS, 1);
  if (!redis_server_start(&server, NULL)) return 0; /* the reason is on stderr */
  hits("redis:", redis_server_unix_uri(server), 0, ROUNDS, 0);
  redis_server_stop(server);
  return 0;
}
