/* near.c: the cost of a hit in the near tier: entering, crl_near_look, leaving, and the value
 * copied out or, if it is large, its reference counted; against the bare lookup in the same table
 * without protection, mark and value, against that with the value copied, too, and against the same
 * table under one pthread mutex. 10,000 keys, values of 100 bytes; in turns within one run. And the
 * whole call: corral_get with the near tier in front of memory:, against memory: alone, with 1 and
 * 2 threads.
 *
 *   bench_near [SIZE]    values of SIZE bytes (100) */
#include "../src/near/near.c"
#include "../src/os/hash.h"

#include <corral.h>
#include <pthread.h>

#include "kit.h"

enum { ROUNDS = 15, HITS = 400000, KEYS = 10000, KEY_SIZE = 24, THREADS_MOST = 2, ORDER = 1 << 16 };

typedef struct key {
  uint64_t hash;
  char text[KEY_SIZE];
} key;

static crl_near *near;
static key keys[KEYS];
static uint16_t order[ORDER]; /* sequence of requested keys, uniform */
static pthread_mutex_t one_for_all = PTHREAD_MUTEX_INITIALIZER;
static size_t value_size = 100;

static double now_ns(void) { return now_us() * 1e3; }

/* ---- the three ways, for one key each ------------------------------------------------------ */

/* Each way reads where the value is and until when it is fresh. The result depends on both, so the
 * compiler can't drop the reads. */
/* As a caller of the tier does. */
static inline int64_t hand_out(const crl_near_copy *copy, uint8_t *room) {
  if (copy->bytes == NULL) {
    memcpy(room, copy->data, copy->size);
    return room[0];
  }
  crl_bytes *bytes = crl_bytes_ref(copy->bytes);
  int64_t seen = bytes->data[copy->offset];
  crl_bytes_unref(bytes);
  return seen;
}

static inline int64_t through_near(const key *k) {
  uint8_t room[CRL_NEAR_SMALL];
  if (!crl_readers_enter()) die("no memory");
  const crl_near_copy *copy = crl_near_look(near, k->hash, k->text, KEY_SIZE, 0);
  if (copy == NULL) die("a hit failed");
  int64_t seen = copy->fresh_until + (int64_t)copy->size + hand_out(copy, room);
  crl_readers_leave();
  return seen;
}

static inline const crl_copied *must_find(const key *k) {
  const crl_copied *e = crl_shard_find(shard_of(near, k->hash), k->hash, k->text, KEY_SIZE);
  if (e == NULL || e->over <= 0) die("a look failed");
  return e;
}

static inline int64_t bare(const key *k) {
  const crl_copied *e = must_find(k);
  return e->copy.fresh_until + (int64_t)e->copy.size;
}

static inline int64_t bare_with_value(const key *k) {
  uint8_t room[CRL_NEAR_SMALL];
  const crl_copied *e = must_find(k);
  return e->copy.fresh_until + (int64_t)e->copy.size + hand_out(&e->copy, room);
}

static inline int64_t through_one_mutex(const key *k) {
  pthread_mutex_lock(&one_for_all);
  int64_t seen = bare_with_value(k);
  pthread_mutex_unlock(&one_for_all);
  return seen;
}

typedef enum way { NEAR, BARE, VALUE, MUTEX, WAYS } way;

static volatile int64_t sink;

static void hits(way by, int uniform, size_t from) {
  int64_t seen = 0;
  for (size_t i = from; i < from + HITS; i++) {
    const key *k = &keys[uniform ? order[i % ORDER] : 0];
    if (by == NEAR)
      seen += through_near(k);
    else if (by == BARE)
      seen += bare(k);
    else if (by == VALUE)
      seen += bare_with_value(k);
    else
      seen += through_one_mutex(k);
  }
  sink = seen;
}

/* ---- rounds -------------------------------------------------------------------------------- */

typedef struct crowd {
  way by;
  int uniform;
  size_t from;
  pthread_barrier_t *go;
  double took;
} crowd;

static void *crowd_run(void *arg) {
  crowd *me = arg;
  pthread_barrier_wait(me->go);
  double begin = now_ns();
  hits(me->by, me->uniform, me->from);
  me->took = now_ns() - begin;
  return NULL;
}

/* Nanoseconds per hit on each thread. */
static double measure(way by, int uniform, size_t threads) {
  pthread_t ids[THREADS_MOST];
  crowd crowds[THREADS_MOST];
  pthread_barrier_t go;
  double took = 0;
  pthread_barrier_init(&go, NULL, (unsigned)threads);
  for (size_t i = 0; i < threads; i++) {
    crowds[i] = (crowd){.by = by, .uniform = uniform, .from = i * ORDER / 2, .go = &go};
    if (pthread_create(&ids[i], NULL, crowd_run, &crowds[i]) != 0) die("no thread");
  }
  for (size_t i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    took += crowds[i].took;
  }
  pthread_barrier_destroy(&go);
  return took / (double)(threads * HITS);
}

static void compare(int uniform, size_t threads) {
  double ns[WAYS][ROUNDS];
  for (size_t round = 0; round < ROUNDS; round++)
    for (int by = 0; by < WAYS; by++) ns[by][round] = measure((way)by, uniform, threads);
  double hit = median(ns[NEAR], ROUNDS), look = median(ns[BARE], ROUNDS),
         value = median(ns[VALUE], ROUNDS), mutex = median(ns[MUTEX], ROUNDS);
  printf("%-12s %7zu %9.1f %11.1f %11.1f %11.1f %11.2f %11.2f %11.2f\n",
         uniform ? "10,000 keys" : "one hot key", threads, hit, look, value, mutex, hit / look,
         hit / value, hit / mutex);
}

static void fill(void) {
  uint64_t dice = 1;
  near = crl_near_new(INT64_C(64) << 20);
  if (near == NULL) die("no memory");
  for (size_t i = 0; i < KEYS; i++) {
    uint8_t *data = calloc(1, value_size + 1);
    crl_near_copy copy = {.bytes = crl_bytes_wrap(data, value_size, free, data),
                          .size = value_size,
                          .kind = CRL_KIND_VALUE,
                          .fresh_until = 1000};
    snprintf(keys[i].text, KEY_SIZE, "user:%018zu", i);
    keys[i].hash = crl_hash(keys[i].text, KEY_SIZE);
    if (copy.bytes == NULL || !crl_near_put(near, keys[i].hash, keys[i].text, KEY_SIZE, &copy,
                                            crl_near_epoch(near, keys[i].hash)))
      die("a put failed");
    crl_bytes_unref(copy.bytes);
  }
  for (size_t i = 0; i < ORDER; i++) {
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    order[i] = (uint16_t)((dice >> 33) % KEYS);
  }
}

/* ---- the whole call ------------------------------------------------------------------------ */

static int compute(corral_fill *fill, const void *text, size_t size, void *arg) {
  (void)text;
  (void)size;
  (void)arg;
  return corral_fill_reserve(fill, value_size) == NULL ? CORRAL_ENOMEM : CORRAL_OK;
}

typedef struct caller {
  corral *c;
  int uniform;
  size_t from;
  pthread_barrier_t *go;
  double took;
} caller;

static void *call_on(void *arg) {
  caller *me = arg;
  pthread_barrier_wait(me->go);
  double before = now_ns();
  for (size_t i = me->from; i < me->from + HITS; i++) {
    corral_value *value = NULL;
    const key *k = &keys[me->uniform ? order[i % ORDER] : 0];
    if (corral_get(me->c, k->text, KEY_SIZE, NULL, &value) != CORRAL_OK) die("corral_get failed");
    corral_value_unref(value);
  }
  me->took = now_ns() - before;
  return NULL;
}

static double ns_per_call(corral *c, int uniform, size_t threads) {
  pthread_t ids[THREADS_MOST];
  caller callers[THREADS_MOST];
  pthread_barrier_t go;
  double took = 0;
  pthread_barrier_init(&go, NULL, (unsigned)threads);
  for (size_t i = 0; i < threads; i++) {
    callers[i] = (caller){.c = c, .uniform = uniform, .from = i * ORDER / 2, .go = &go};
    if (pthread_create(&ids[i], NULL, call_on, &callers[i]) != 0) die("no thread");
  }
  for (size_t i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    took += callers[i].took;
  }
  pthread_barrier_destroy(&go);
  return took / (double)(threads * HITS);
}

static void compare_calls(int uniform, size_t threads) {
  corral *c[2] = {NULL, NULL};
  double ns[2][ROUNDS];
  for (int i = 0; i < 2; i++)
    if (corral_open(CORRAL_OPTIONS(.store = "memory:", .compute = compute, .watch = CORRAL_OFF,
                                   .near_bytes = i == 1 ? 64 << 20 : CORRAL_OFF,
                                   .policy = CORRAL_POLICY(.ttl_ms = 3600000, .near_ms = 3600000)),
                    &c[i], NULL) != CORRAL_OK)
      die("corral_open failed");
  for (int warm = 0; warm < 2; warm++)
    for (int i = 0; i < 2; i++) ns_per_call(c[i], uniform, 1);
  for (size_t round = 0; round < ROUNDS; round++)
    for (int i = 0; i < 2; i++) ns[i][round] = ns_per_call(c[i], uniform, threads);
  for (int i = 0; i < 2; i++) corral_close(c[i]);
  double alone = median(ns[0], ROUNDS), near_too = median(ns[1], ROUNDS);
  printf("corral_get, %s, %zu thread%s: memory: %.0f ns, with the near tier %.0f ns, %.2f of it\n",
         uniform ? "10,000 keys" : "one hot key", threads, threads == 1 ? "" : "s", alone, near_too,
         near_too / alone);
}

int main(int argc, char **argv) {
  if (argc > 1) value_size = strtoul(argv[1], NULL, 10);
  fill();
  printf("%-12s %7s %9s %11s %11s %11s %11s %11s %11s\n", "ns per hit", "threads", "near",
         "bare look", "with value", "one mutex", "near/bare", "near/value", "near/mutex");
  for (int uniform = 1; uniform >= 0; uniform--)
    for (size_t threads = 1; threads <= THREADS_MOST; threads++) compare(uniform, threads);
  for (int uniform = 1; uniform >= 0; uniform--)
    for (size_t threads = 1; threads <= THREADS_MOST; threads++) compare_calls(uniform, threads);
  crl_near_free(near);
  return 0;
}
