/* near.c: what a hit in the near tier costs, against the bare table lookup (no lock, no reference), and against the same table under one global
 * mutex; and the whole call, as a user makes it.
 *
 *   bench_near [ROUNDS]     interleaved rounds, 9; medians, in ns, 100-byte values, 10,000 keys. */
#include "../src/near.c"

#include <corral.h>
#include <stdio.h>
#include <time.h>

enum { KEYS = 10000, SIZE = 100, HITS = 400000, THREADS_MOST = 2, ROUNDS_MOST = 99 };

typedef enum way { BARE, GLOBAL, NEAR, WAYS } way;

static const char *const names[WAYS] = {"bare table lookup", "one global mutex", "near tier"};

static crl_near *tier;
static pthread_mutex_t global = PTHREAD_MUTEX_INITIALIZER;
static uint64_t hashes[KEYS];
static char keys[KEYS][16];
static int rounds = 9;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void give_up(const char *what) {
  fprintf(stderr, "bench_near: %s\n", what);
  exit(1);
}

/* ---- one hit --------------------------------------------------------------------------------------------- */

static const entry *look(size_t key) {
  shard *s = shard_of(tier, hashes[key]);
  return *find(tier, s, hashes[key], keys[key], sizeof keys[key]);
}

static uint64_t hit_bare(size_t key) { return look(key)->copy.bytes->data[0]; }

static uint64_t hit_global(size_t key) {
  pthread_mutex_lock(&global);
  crl_near_copy copy = look(key)->copy;
  crl_bytes_ref(copy.bytes);
  pthread_mutex_unlock(&global);
  uint64_t letter = copy.bytes->data[0];
  crl_near_copy_clean(&copy);
  return letter;
}

static uint64_t hit_near(size_t key) {
  crl_near_copy copy;
  if (!crl_near_get(tier, hashes[key], keys[key], sizeof keys[key], 1, &copy)) give_up("a key is missing");
  uint64_t letter = copy.bytes->data[0];
  crl_near_copy_clean(&copy);
  return letter;
}

/* ---- threads --------------------------------------------------------------------------------------------- */

typedef struct task {
  way way;
  int hot; /* one key for all */
  uint64_t seed, sum;
  double ns;
} task;

static void *hit_on(void *arg) {
  task *t = arg;
  uint64_t dice = t->seed, sum = 0;
  double before = now_ns();
  for (int i = 0; i < HITS; i++) {
    dice = dice * UINT64_C(6364136223846793005) + 1;
    size_t key = t->hot ? 0 : (dice >> 33) % KEYS;
    sum += t->way == BARE ? hit_bare(key) : t->way == GLOBAL ? hit_global(key) : hit_near(key);
  }
  t->ns = (now_ns() - before) / HITS;
  t->sum = sum;
  return NULL;
}

static double measure(way w, int hot, int threads) {
  pthread_t handles[THREADS_MOST];
  task tasks[THREADS_MOST];
  double most = 0;
  for (int i = 0; i < threads; i++) {
    tasks[i] = (task){.way = w, .hot = hot, .seed = (uint64_t)i + 1};
    if (pthread_create(&handles[i], NULL, hit_on, &tasks[i]) != 0) give_up("no thread to be had");
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(handles[i], NULL);
    if (tasks[i].ns > most) most = tasks[i].ns;
  }
  return most;
}

static int by_number(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

static double median(double *numbers) {
  qsort(numbers, (size_t)rounds, sizeof *numbers, by_number);
  return numbers[rounds / 2];
}

static void compare(int hot, int threads) {
  double ns[WAYS][ROUNDS_MOST], medians[WAYS];
  for (int round = 0; round < rounds; round++)
    for (way w = 0; w < WAYS; w++) ns[w][round] = measure(w, hot, threads);
  for (way w = 0; w < WAYS; w++) medians[w] = median(ns[w]);
  for (way w = 0; w < WAYS; w++)
    printf("%-12s %d thread%s %-20s %8.1f ns %8.2f\n", hot ? "one hot key" : "uniform", threads, threads > 1 ? "s" : " ", names[w], medians[w],
           medians[w] / medians[BARE]);
}

/* ---- the whole call -------------------------------------------------------------------------------------- */

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  static const char value[SIZE];
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, value, sizeof value);
}

static void call(corral *c, size_t key) {
  corral_value *value = NULL;
  if (corral_get(c, keys[key], sizeof keys[key], NULL, &value) != CORRAL_OK) give_up("corral_get failed");
  corral_value_unref(value);
}

static void compare_calls(void) {
  static const char *const what[] = {"corral_get, memory:", "corral_get, near tier"};
  corral *c[2] = {NULL, NULL};
  double ns[2][ROUNDS_MOST];
  for (int near_too = 0; near_too < 2; near_too++)
    if (corral_open(&c[near_too], CORRAL_OPTIONS(.store = "memory:", .policy = CORRAL_POLICY(.near_ms = 600000, .ttl_ms = 3600000), .compute = compute,
                                                 .watch = CORRAL_OFF, .near_bytes = near_too ? 64 << 20 : CORRAL_OFF), NULL) != CORRAL_OK)
      give_up("corral_open failed");
  for (size_t key = 0; key < 2 * KEYS; key++)
    for (int i = 0; i < 2; i++) call(c[i], key % KEYS);
  for (int round = 0; round < rounds; round++)
    for (int i = 0; i < 2; i++) {
      double before = now_ns();
      for (size_t hit = 0; hit < HITS; hit++) call(c[i], hit * 7919 % KEYS);
      ns[i][round] = (now_ns() - before) / HITS;
    }
  double floor = median(ns[0]);
  for (int i = 0; i < 2; i++) printf("%-34s 1 thread  %8.1f ns %8.2f\n", what[i], i == 0 ? floor : median(ns[1]), (i == 0 ? floor : median(ns[1])) / floor);
  for (int i = 0; i < 2; i++) corral_close(c[i]);
}

int main(int argc, char **argv) {
  if (argc > 1) rounds = atoi(argv[1]);
  if (rounds < 1 || rounds > ROUNDS_MOST) give_up("the number of rounds: 1 to 99");
  tier = crl_near_new(64 << 20, 1);
  if (tier == NULL) give_up("no memory");
  for (size_t key = 0; key < KEYS; key++) {
    uint8_t *data = calloc(1, SIZE);
    crl_near_copy copy = {.bytes = data == NULL ? NULL : crl_bytes_wrap(data, SIZE, free, data), .size = SIZE, .kind = CRL_KIND_VALUE, .fresh_until = INT64_MAX};
    if (copy.bytes == NULL) give_up("no memory");
    snprintf(keys[key], sizeof keys[key], "key %zu", key);
    hashes[key] = key * UINT64_C(0x9e3779b97f4a7c15);
    crl_near_put(tier, hashes[key], keys[key], sizeof keys[key], &copy, crl_near_ticket(tier, hashes[key]));
    crl_near_copy_clean(&copy);
  }
  for (int hot = 0; hot < 2; hot++)
    for (int threads = 1; threads <= THREADS_MOST; threads++) compare(hot, threads);
  compare_calls();
  crl_near_free(tier);
  return 0;
}
