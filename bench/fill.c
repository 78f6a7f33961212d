/* fill.c: the cost of a miss on lmdb: alone, and while others fill, too: threads of one process,
 * and processes. All writers of a file take turns. Prints, for each miss: the time from the
 * caller's side, and its ratio to that of one alone, in turns within one run; the processor time of
 * all, which others' load disturbs less; and how often somebody slept.
 *
 *   bench_fill */
#include <corral.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "folder.h"

enum { ROUNDS = 9, MISSES = 600, SIZE = 100, MOST = 4 };

static const struct way {
  const char *name;
  int processes, threads;
} ways[] = {{"alone", 1, 1},
            {"2 threads", 1, 2},
            {"4 threads", 1, 4},
            {"2 processes", 2, 1},
            {"4 processes", 4, 1}};
enum { WAYS = sizeof ways / sizeof *ways };

/* Shared by all processes. */
static struct shared {
  atomic_int ready, go;
  double us[MOST * MOST]; /* of each miss, by filler */
} * shared;

static char uri[80];

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key, (void)key_len, (void)arg;
  void *room = corral_fill_reserve(fill, SIZE);
  if (room == NULL) return CORRAL_ENOMEM;
  memset(room, 'x', SIZE);
  return CORRAL_OK;
}

typedef struct filler {
  pthread_t thread;
  corral *c;
  int round, number; /* among all fillers of a way */
} filler;

static void miss(const filler *me, int way, int i) {
  char key[48];
  corral_value *value;
  size_t len = (size_t)snprintf(key, sizeof key, "%d %d %d %d", way, me->round, me->number, i);
  if (corral_get_or_compute(me->c, key, len, NULL, compute, NULL, &value) != CORRAL_OK)
    die("a call failed");
  if (corral_value_how(value) != CORRAL_COMPUTED) die("a miss was none");
  corral_value_unref(value);
}

static int way_now;

static void *fill_all(void *arg) {
  filler *me = arg;
  miss(me, way_now, -1);
  atomic_fetch_add(&shared->ready, 1);
  while (!atomic_load(&shared->go)) usleep(100);
  double began = now_us();
  for (int i = 0; i < MISSES; i++) miss(me, way_now, i);
  shared->us[me->number] = (now_us() - began) / MISSES;
  return NULL;
}

/* The fillers of one process. */
static void process(int round, int first, int threads) {
  filler fillers[MOST];
  corral *c;
  corral_error error;
  if (corral_open(CORRAL_OPTIONS(.store = uri), &c, &error) != CORRAL_OK) die(error.text);
  for (int i = 0; i < threads; i++) {
    fillers[i] = (filler){.c = c, .round = round, .number = first + i};
    if (pthread_create(&fillers[i].thread, NULL, fill_all, &fillers[i]) != 0) die("no thread");
  }
  for (int i = 0; i < threads; i++) pthread_join(fillers[i].thread, NULL);
  corral_close(c);
}

typedef struct cost {
  double us, cpu_us, sleeps; /* of each miss; the time is that of the middle filler */
} cost;

static void add(cost *sum, const struct rusage *used) {
  sum->cpu_us += (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1e6 +
                 (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
  sum->sleeps += (double)used->ru_nvcsw;
}

static cost measure(int way, int round) {
  cost sum = {0};
  const struct way *w = &ways[way];
  pid_t pids[MOST];
  int all = w->processes * w->threads;
  way_now = way;
  atomic_store(&shared->ready, 0);
  atomic_store(&shared->go, 0);
  for (int i = 0; i < w->processes; i++) {
    if ((pids[i] = fork()) < 0) die("no process");
    if (pids[i] > 0) continue;
    process(round, i * w->threads, w->threads);
    _exit(0);
  }
  while (atomic_load(&shared->ready) < all) usleep(100);
  atomic_store(&shared->go, 1);
  for (int i = 0; i < w->processes; i++) {
    int status;
    struct rusage used;
    if (wait4(pids[i], &status, 0, &used) != pids[i] || status != 0) die("a process failed");
    add(&sum, &used);
  }
  return (cost){.us = median(shared->us, (size_t)all),
                .cpu_us = sum.cpu_us / (all * MISSES),
                .sleeps = sum.sleeps / (all * MISSES)};
}

static double middle(const cost *of, size_t offset) {
  double all[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) memcpy(&all[i], (const char *)&of[i] + offset, sizeof all[i]);
  return median(all, ROUNDS);
}

int main(void) {
  cost costs[WAYS][ROUNDS];
  make_folder();
  snprintf(uri, sizeof uri, "lmdb:%s/store", folder);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("no memory");
  for (int round = 0; round < ROUNDS; round++)
    for (int way = 0; way < WAYS; way++) costs[way][round] = measure(way, round);
  double alone = middle(costs[0], offsetof(cost, us));
  for (int way = 0; way < WAYS; way++) {
    double us = middle(costs[way], offsetof(cost, us));
    printf("%-12s %7.1f us a miss, ratio %5.2f   %6.1f us of CPU   %5.2f sleeps\n", ways[way].name,
           us, us / alone, middle(costs[way], offsetof(cost, cpu_us)),
           middle(costs[way], offsetof(cost, sleeps)));
  }
  return 0;
}
