/* growth.c: what a hit and the wake of a herd cost as the load grows: by keys, threads, processes,
 * value size, tags and waiters; on memory:, lmdb: and in the near tier.
 *
 *   bench_growth [--svg FILE] [--most-keys N]    N: 1000000
 *
 * A hit's cost is processor time, of all its threads and processes, so that other load on the
 * machine counts little. A wake's is the time from the end of the compute until the last waiter has
 * the value. Each is the median of several samples, and is printed as a ratio to the first point of
 * its row. */
#include <corral.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"
#include "kit.h"
#include "svg.h"

enum {
  POINTS = 7,
  SAMPLES = 5,
  HITS = 20000,
  ROUNDS = 15,
  THREADS_MOST = 400,
  SIZE = 100, /* of a value, in bytes */
  BATCH = 250,
  HOUR_MS = 3600000
};

typedef enum kind { MEMORY, LMDB, NEAR, KINDS } kind;
static const char *const kinds[KINDS] = {"memory:", "lmdb:", "near"};
static const char *const colours[KINDS] = {"#1a6fb5", "#1e8449", "#d68910"};

/* A dimension of the load, with a cost for each kind and point; 0: not measured. */
typedef struct dimension {
  const char *name, *title;
  int count;
  long points[POINTS];
  double cost[KINDS][POINTS]; /* ns */
} dimension;

static dimension dimensions[] = {
    {"keys", "A hit, by keys", 5, {100, 1000, 10000, 100000, 1000000}, {{0}}},
    {"threads", "A hit, by threads", 7, {1, 2, 4, 8, 16, 32, 64}, {{0}}},
    {"processes", "A hit, by processes", 5, {1, 2, 4, 8, 16}, {{0}}},
    {"bytes", "A hit, by bytes of the value", 6, {10, 100, 1000, 10000, 100000, 1000000}, {{0}}},
    {"tags", "A hit, by tags of the value", 6, {0, 1, 2, 4, 8, 16}, {{0}}},
    {"waiters", "The wake of a herd, by waiters", 6, {1, 3, 10, 30, 100, 400}, {{0}}},
};
enum { KEYS, THREADS, PROCESSES, BYTES, TAGS, WAITERS, DIMENSIONS };

/* ---- values -------------------------------------------------------------------------------- */

/* Bytes and number of tags of each computed value. */
static size_t size = SIZE;
static long tags;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  for (long i = 0; i < tags; i++) {
    char name[24];
    if (corral_fill_tag(fill, name, (size_t)snprintf(name, sizeof name, "tag %ld", i)) != CORRAL_OK)
      die("corral_fill_tag");
  }
  void *room = corral_fill_reserve(fill, size);
  if (room == NULL) die("no memory");
  memset(room, 'x', size);
  return CORRAL_OK;
}

static int compute_many(corral_fill *const *fills, size_t count, void *arg) {
  for (size_t i = 0; i < count; i++) compute(fills[i], NULL, 0, arg);
  return CORRAL_OK;
}

static corral *open_kind(kind k, corral_event_fn *on_event) {
  corral *c;
  corral_error error;
  char lmdb[128];
  snprintf(lmdb, sizeof lmdb, "lmdb:%s/store?size=4g", folder);
  corral_options options = {.size = sizeof options,
                            .store = k == LMDB ? lmdb : "memory:?size=4g",
                            .near_bytes = k == NEAR ? INT64_C(4) << 30 : 0,
                            .on_event = on_event};
  if (corral_open(&options, &c, &error) != CORRAL_OK) die(error.text);
  return c;
}

static const corral_policy *policy_of(kind k) {
  static const corral_policy plain = {.size = sizeof plain, .ttl_ms = HOUR_MS},
                             near = {.size = sizeof near, .ttl_ms = HOUR_MS, .near_ms = HOUR_MS};
  return k == NEAR ? &near : &plain;
}

static void get(corral *c, kind k, const char *key, size_t len, int hits) {
  corral_value *value;
  if (corral_get_or_compute(c, key, len, CORRAL_CALL(.policy = policy_of(k)), compute, NULL,
                            &value) != CORRAL_OK)
    die("a call failed");
  if (hits && corral_value_how(value) == CORRAL_COMPUTED) die("a hit was none");
  corral_value_unref(value);
}

static size_t name_key(char key[24], long number) {
  return (size_t)snprintf(key, 24, "key %ld", number);
}

/* Fills the store with these keys. */
static void fill_keys(corral *c, kind k, long from, long to) {
  static corral_item items[BATCH];
  static char names[BATCH][24];
  for (long at = from; at < to; at += BATCH) {
    size_t count = to - at < BATCH ? (size_t)(to - at) : BATCH;
    memset(items, 0, sizeof items);
    for (size_t i = 0; i < count; i++) {
      items[i].key = names[i];
      items[i].key_len = name_key(names[i], at + (long)i);
    }
    if (corral_get_many(c, items, count, CORRAL_CALL(.policy = policy_of(k)), compute_many, NULL) !=
        CORRAL_OK)
      die("corral_get_many failed");
    for (size_t i = 0; i < count; i++) {
      if (items[i].status != CORRAL_OK) die("a fill failed");
      corral_value_unref(items[i].value);
    }
  }
}

/* Hits of random keys; the near tier gets its copies by them. */
static void hit(corral *c, kind k, long keys, long count, uint64_t seed) {
  for (long i = 0; i < count; i++) {
    char key[24];
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    get(c, k, key, name_key(key, (long)((seed >> 33) % (uint64_t)keys)), 1);
  }
}

/* ---- samples ------------------------------------------------------------------------------- */

static double cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Processor time of a hit, in ns. */
static double cost_of_hits(corral *c, kind k, long keys, long count) {
  double of[SAMPLES];
  hit(c, k, keys, count, 1);
  for (int i = 0; i < SAMPLES; i++) {
    double began = cpu_ns();
    hit(c, k, keys, count, (uint64_t)i + 2);
    of[i] = (cpu_ns() - began) / (double)count;
  }
  return median(of, SAMPLES);
}

static void measure_keys(dimension *d, kind k) {
  corral *c = open_kind(k, NULL);
  long filled = 0;
  for (int i = 0; i < d->count; i++) {
    fill_keys(c, k, filled, d->points[i]);
    filled = d->points[i];
    if (k == NEAR)
      for (long n = 0; n < filled; n++) {
        char key[24];
        get(c, k, key, name_key(key, n), 1);
      }
    d->cost[k][i] = cost_of_hits(c, k, filled, HITS);
  }
  corral_close(c);
}

typedef struct hitter {
  corral *c;
  kind kind;
  long count;
  uint64_t seed;
  pthread_barrier_t *all;
} hitter;

static void *run_hitter(void *arg) {
  hitter *h = arg;
  pthread_barrier_wait(h->all);
  hit(h->c, h->kind, 1000, h->count, h->seed);
  return NULL;
}

static double cost_of_threads(corral *c, kind k, int threads) {
  pthread_t ids[THREADS_MOST];
  hitter hitters[THREADS_MOST];
  pthread_barrier_t all;
  pthread_barrier_init(&all, NULL, (unsigned)threads);
  double began = cpu_ns();
  for (int i = 0; i < threads; i++) {
    hitters[i] = (hitter){c, k, 8 * HITS / threads, (uint64_t)i, &all};
    if (pthread_create(&ids[i], NULL, run_hitter, &hitters[i]) != 0) die("no thread");
  }
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  pthread_barrier_destroy(&all);
  return (cpu_ns() - began) / (double)(8 * HITS / threads * threads);
}

static void measure_threads(dimension *d, kind k) {
  corral *c = open_kind(k, NULL);
  double of[POINTS][SAMPLES];
  fill_keys(c, k, 0, 1000);
  for (int s = 0; s < SAMPLES; s++)
    for (int i = 0; i < d->count; i++) of[i][s] = cost_of_threads(c, k, (int)d->points[i]);
  for (int i = 0; i < d->count; i++) d->cost[k][i] = median(of[i], SAMPLES);
  corral_close(c);
}

/* One process of several: reports that it is ready, waits for the others, reports its cost. */
static void run_process(kind k, int ready, int go, int report) {
  char byte = 0;
  corral *c = open_kind(k, NULL);
  hit(c, k, 1000, HITS, 1);
  if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 0) _exit(1);
  double began = cpu_ns();
  hit(c, k, 1000, HITS, 2);
  double cost = (cpu_ns() - began) / HITS;
  _exit(write(report, &cost, sizeof cost) == (ssize_t)sizeof cost ? 0 : 1);
}

static double cost_of_processes(kind k, int processes) {
  int ready[2], go[2], report[2];
  double sum = 0, one;
  char byte;
  if (pipe(ready) != 0 || pipe(go) != 0 || pipe(report) != 0) die("no pipe");
  for (int i = 0; i < processes; i++) {
    pid_t pid = fork();
    if (pid < 0) die("no process");
    if (pid > 0) continue;
    close(go[1]);
    run_process(k, ready[1], go[0], report[1]);
  }
  for (int i = 0; i < processes; i++)
    if (read(ready[0], &byte, 1) != 1) die("a process failed");
  close(go[1]);
  for (int i = 0; i < processes; i++, sum += one)
    if (read(report[0], &one, sizeof one) != (ssize_t)sizeof one) die("a process failed");
  while (wait(NULL) > 0) continue;
  close(go[0]);
  for (int i = 0; i < 2; i++) {
    close(ready[i]);
    close(report[i]);
  }
  return sum / processes;
}

/* Processes share nothing but a file. */
static void measure_processes(dimension *d, kind k) {
  double of[POINTS][SAMPLES];
  if (k != LMDB) return;
  corral *c = open_kind(k, NULL);
  fill_keys(c, k, 0, 1000);
  corral_close(c);
  for (int s = 0; s < SAMPLES; s++)
    for (int i = 0; i < d->count; i++) of[i][s] = cost_of_processes(k, (int)d->points[i]);
  for (int i = 0; i < d->count; i++) d->cost[k][i] = median(of[i], SAMPLES);
}

/* Large values are copied by some: fewer hits. */
static double cost_of_one(corral *c, kind k, const char *stem, long number) {
  char key[24];
  double of[SAMPLES];
  size_t len = (size_t)snprintf(key, sizeof key, "%s %ld", stem, number);
  long count = HITS / (1 + (long)size / 10000);
  get(c, k, key, len, 0);
  for (int s = 0; s < SAMPLES; s++) {
    double began = cpu_ns();
    for (long i = 0; i < count; i++) get(c, k, key, len, 1);
    of[s] = (cpu_ns() - began) / (double)count;
  }
  return median(of, SAMPLES);
}

static void measure_bytes(dimension *d, kind k) {
  corral *c = open_kind(k, NULL);
  for (int i = 0; i < d->count; i++) {
    size = (size_t)d->points[i];
    d->cost[k][i] = cost_of_one(c, k, "bytes", d->points[i]);
  }
  size = SIZE;
  corral_close(c);
}

static void measure_tags(dimension *d, kind k) {
  corral *c = open_kind(k, NULL);
  for (int i = 0; i < d->count; i++) {
    tags = d->points[i];
    d->cost[k][i] = cost_of_one(c, k, "tags", d->points[i]);
  }
  tags = 0;
  corral_close(c);
}

/* ---- the wake of a herd -------------------------------------------------------------------- */

static atomic_int joined, computing;
static double ended_us;

static void count_joins(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event == CORRAL_EVENT_JOIN) atomic_fetch_add(&joined, 1);
}

typedef struct herd {
  corral *c;
  kind kind;
  int waiters;
  char key[24];
  size_t key_len;
} herd;

typedef struct waiter {
  herd *herd;
  double got_us;
} waiter;

/* Ends when all waiters sleep. */
static int compute_long(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  const herd *h = arg;
  (void)key;
  (void)key_len;
  atomic_store(&computing, 1);
  while (atomic_load(&joined) < h->waiters) usleep(200);
  usleep(5000);
  ended_us = now_us();
  return corral_fill_bytes(fill, "42", 2);
}

static void *wait_for_value(void *arg) {
  waiter *w = arg;
  corral_value *value;
  const herd *h = w->herd;
  if (corral_get_or_compute(h->c, h->key, h->key_len, CORRAL_CALL(.policy = policy_of(h->kind)),
                            compute_long, w->herd, &value) != CORRAL_OK)
    die("a waiter failed");
  w->got_us = now_us();
  corral_value_unref(value);
  return NULL;
}

static double wake_once(herd *h) {
  static waiter waiters[THREADS_MOST + 1];
  static pthread_t ids[THREADS_MOST + 1];
  double last = 0;
  atomic_store(&joined, 0);
  atomic_store(&computing, 0);
  for (int i = 0; i <= h->waiters; i++) {
    waiters[i].herd = h;
    if (pthread_create(&ids[i], NULL, wait_for_value, &waiters[i]) != 0) die("no thread");
    while (!atomic_load(&computing)) usleep(100);
  }
  for (int i = 0; i <= h->waiters; i++) pthread_join(ids[i], NULL);
  for (int i = 1; i <= h->waiters; i++)
    if (waiters[i].got_us > last) last = waiters[i].got_us;
  return 1000 * (last - ended_us);
}

/* The near tier has no part in it. */
static void measure_waiters(dimension *d, kind k) {
  static long number;
  double of[POINTS][ROUNDS];
  if (k == NEAR) return;
  corral *c = open_kind(k, count_joins);
  for (int r = 0; r < ROUNDS; r++)
    for (int i = 0; i < d->count; i++) {
      herd h = {.c = c, .kind = k, .waiters = (int)d->points[i]};
      h.key_len = name_key(h.key, -(++number));
      of[i][r] = wake_once(&h);
    }
  for (int i = 0; i < d->count; i++) d->cost[k][i] = median(of[i], ROUNDS);
  corral_close(c);
}

/* ---- table and chart ----------------------------------------------------------------------- */

static void name_point(char *text, size_t room, long point) {
  if (point >= 1000000)
    snprintf(text, room, "%ld M", point / 1000000);
  else if (point >= 1000)
    snprintf(text, room, "%ld k", point / 1000);
  else
    snprintf(text, room, "%ld", point);
}

static void print(const dimension *d) {
  char text[24];
  printf("%-12s %12s", d->name, "the first");
  for (int i = 0; i < d->count; i++) {
    name_point(text, sizeof text, d->points[i]);
    printf(" %7s", text);
  }
  for (kind k = 0; k < KINDS; k++) {
    if (d->cost[k][0] <= 0) continue;
    printf("\n  %-10s %9.0f ns", kinds[k], d->cost[k][0]);
    for (int i = 0; i < d->count; i++) printf(" %7.2f", d->cost[k][i] / d->cost[k][0]);
  }
  printf("\n\n");
  fflush(stdout);
}

/* Ratios beyond these are cut off. */
static const double least = 0.5, most = 128;

static double across(const dimension *d, int i) {
  return SVG_LEFT + SVG_PLOT * (i + 0.5) / d->count;
}

static double down(double ratio) {
  double within = ratio < least ? least : ratio > most ? most : ratio;
  return SVG_HEIGHT * (1 - log2(within / least) / log2(most / least));
}

static void draw_frame(svg *s, const dimension *d) {
  char text[24];
  svg_panel(s, d->title);
  for (double ratio = 1; ratio <= most; ratio *= 4) {
    snprintf(text, sizeof text, "x %.0f", ratio);
    svg_text(s, SVG_LEFT - 6, down(ratio) + 4, "end", text);
    fprintf(svg_out(s), "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n",
            SVG_LEFT, SVG_LEFT + SVG_PLOT, down(ratio), down(ratio));
  }
  for (int i = 0; i < d->count; i++) {
    name_point(text, sizeof text, d->points[i]);
    svg_text(s, across(d, i), SVG_HEIGHT + 14, "middle", text);
  }
}

static void draw(svg *s, const dimension *d) {
  int row = 0;
  draw_frame(s, d);
  for (kind k = 0; k < KINDS; k++) {
    char words[96];
    double x[POINTS], y[POINTS];
    if (d->cost[k][0] <= 0) continue;
    for (int i = 0; i < d->count; i++) {
      x[i] = across(d, i);
      y[i] = down(d->cost[k][i] / d->cost[k][0]);
    }
    svg_line(s, colours[k], x, y, d->count);
    snprintf(words, sizeof words, "%s: %.0f ns, at the end x %.2f", kinds[k], d->cost[k][0],
             d->cost[k][d->count - 1] / d->cost[k][0]);
    svg_words(s, row++, colours[k], words);
  }
}

static void draw_all(const char *path) {
  svg *s = svg_begin(path, "Growth: the cost at each load, as a ratio to the first",
                     "A hit's cost is processor time; a wake's, the time from the compute's end "
                     "to the last waiter. Both scales are logarithmic.",
                     ".grid{stroke:#ddd}");
  for (int i = 0; i < DIMENSIONS; i++) draw(s, &dimensions[i]);
  if (!svg_end(s)) die("the chart can't be written");
}

int main(int argc, char **argv) {
  static void (*const measures[DIMENSIONS])(dimension * d, kind k) = {
      measure_keys,  measure_threads, measure_processes,
      measure_bytes, measure_tags,    measure_waiters};
  const char *path = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--svg") == 0)
      path = argv[i + 1];
    else if (strcmp(argv[i], "--most-keys") == 0)
      while (dimensions[KEYS].count > 1 &&
             dimensions[KEYS].points[dimensions[KEYS].count - 1] > strtol(argv[i + 1], NULL, 10))
        dimensions[KEYS].count--;
  }
  make_folder();
  for (int i = 0; i < DIMENSIONS; i++) {
    for (kind k = 0; k < KINDS; k++) measures[i](&dimensions[i], k);
    print(&dimensions[i]);
  }
  if (path != NULL) draw_all(path);
  return 0;
}
