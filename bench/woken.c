/* woken.c: the time from a fill until the last of 4 processes x 50 threads has the value, on Redis:
 * woken by the store, and polling. The baseline, in the same run: as many processes and threads
 * without any cache; each process is woken through a word of shared memory, its threads through a
 * word of their own (futex(2)). Also the number of commands sent to the server per caller.
 *
 *   bench_woken [ROUNDS]     20 rounds of each kind, in turns, each with a 100 ms compute; medians.
 *                            Starts its own redis-server on a unix socket. */
#include <corral.h>
#include <hiredis/hiredis.h>
#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit.h"
#include "support/redis_server.h"

enum {
  PROCESSES = 4,
  THREADS = 50,
  CALLERS = PROCESSES * THREADS,
  COST_MS = 100,
  COUNTED = 5, /* rounds whose commands are counted */
  ROUNDS_MOST = 1000
};

typedef enum kind { FLOOR, WOKEN, POLLING, KINDS } kind;

static const char *const names[KINDS] = {"floor: two words", "woken", "polling"};

/* Shared by all processes. */
typedef struct board {
  pthread_barrier_t all;
  atomic_int word;
  atomic_llong ended, last;
  double late_ms[KINDS][ROUNDS_MOST + COUNTED];
  double commands[KINDS];
} board;

typedef struct seat {
  int process, thread;
} seat;

static board *shared;
static int rounds = 20;
static redis_server *server;
static corral *corrals[KINDS];
static atomic_int heard;

static void rest(long ms) {
  struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&t, NULL);
}

/* ---- one round ----------------------------------------------------------------------------- */

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  rest(COST_MS);
  atomic_store(&shared->ended, (long long)now_us());
  return corral_fill_bytes(fill, "v", 1);
}

static void ask(corral *c) {
  corral_value *value = NULL;
  corral_error error;
  if (corral_get_or_compute(c, "k", 1, CORRAL_CALL(.error = &error), compute, NULL, &value) !=
      CORRAL_OK)
    die(error.text);
  corral_value_unref(value);
}

/* The first thread of each process waits for the shared word, the others for that thread. */
static void hear(const seat *s, int round) {
  if (s->thread == 0 && s->process == 0) {
    rest(COST_MS);
    atomic_store(&shared->ended, (long long)now_us());
    atomic_store(&shared->word, round);
    syscall(SYS_futex, &shared->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  }
  for (int seen; s->thread == 0 && (seen = atomic_load(&shared->word)) != round;)
    syscall(SYS_futex, &shared->word, FUTEX_WAIT, seen, NULL, NULL, 0);
  if (s->thread == 0) {
    atomic_store(&heard, round);
    syscall(SYS_futex, &heard, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  }
  for (int seen; (seen = atomic_load(&heard)) != round;)
    syscall(SYS_futex, &heard, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void note_last(void) {
  long long now = (long long)now_us();
  for (long long seen = atomic_load(&shared->last);
       now > seen && !atomic_compare_exchange_weak(&shared->last, &seen, now);)
    continue;
}

static void run_round(const seat *s, kind k, int round) {
  int first = s->process == 0 && s->thread == 0;
  pthread_barrier_wait(&shared->all);
  if (first) {
    atomic_store(&shared->last, 0);
    if (k != FLOOR) corral_invalidate(corrals[k], "k", 1, NULL);
  }
  pthread_barrier_wait(&shared->all);
  if (k == FLOOR)
    hear(s, round);
  else
    ask(corrals[k]);
  note_last();
  pthread_barrier_wait(&shared->all);
  if (first) shared->late_ms[k][round - 1] = (double)(shared->last - shared->ended) / 1000;
}

/* Commands that clients sent for the key of each kind, out of what the server tells a monitor:
 * without what scripts call, and the invalidation of each round. */
static void count_commands(redisContext *monitor, redisContext *other) {
  const char *const keys[KINDS] = {NULL, "\"w:k\"", "\"p:k\""};
  redisReply *reply = redisCommand(other, "ECHO counted");
  for (int last = 0; !last;) {
    freeReplyObject(reply);
    if (redisGetReply(monitor, (void **)&reply) != REDIS_OK) die("no answer from the server");
    last = strstr(reply->str, "\"counted\"") != NULL;
    if (strstr(reply->str, " lua]") != NULL) continue;
    for (kind k = WOKEN; k < KINDS; k++) shared->commands[k] += strstr(reply->str, keys[k]) != NULL;
  }
  freeReplyObject(reply);
  for (kind k = WOKEN; k < KINDS; k++) shared->commands[k] -= COUNTED;
}

/* The first round of each kind isn't timed: it opens connections and begins the watch. Nor are the
 * last ones, whose commands are counted. */
static void *sit(void *arg) {
  const seat *s = arg;
  int first = s->process + s->thread == 0;
  redisContext *monitor = first ? redisConnectUnix(redis_server_socket(server)) : NULL;
  redisContext *other = first ? redisConnectUnix(redis_server_socket(server)) : NULL;
  for (int round = 1; round <= rounds + COUNTED; round++) {
    if (first && round == rounds + 1) freeReplyObject(redisCommand(monitor, "MONITOR"));
    for (kind k = 0; k < KINDS; k++) run_round(s, k, round);
  }
  if (!first) return NULL;
  count_commands(monitor, other);
  redisFree(monitor);
  redisFree(other);
  return NULL;
}

/* ---- processes ----------------------------------------------------------------------------- */

static void open_all(void) {
  for (kind k = WOKEN; k < KINDS; k++) {
    corral_error error;
    if (corral_open(CORRAL_OPTIONS(.store = redis_server_unix_uri(server),
                                   .name_space = k == WOKEN ? "w" : "p",
                                   .watch = k == WOKEN ? 1 : CORRAL_OFF),
                    &corrals[k], &error) != CORRAL_OK)
      die(error.text);
  }
}

static void be_process(int number) {
  pthread_t threads[THREADS];
  seat seats[THREADS];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  open_all();
  for (int i = 0; i < THREADS; i++) {
    seats[i] = (seat){number, i};
    if (pthread_create(&threads[i], NULL, sit, &seats[i]) != 0) die("no thread to be had");
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (kind k = WOKEN; k < KINDS; k++) corral_close(corrals[k]);
  exit(0);
}

static void report(void) {
  double floor = 0;
  printf("%d processes x %d threads, a compute of %d ms, %d rounds: from its end until the last "
         "caller has the value\n",
         PROCESSES, THREADS, COST_MS, rounds - 1);
  printf("%-32s %10s %10s %10s %10s %18s\n", "", "median ms", "best", "worst", "ratio",
         "commands a caller");
  for (kind k = 0; k < KINDS; k++) {
    double *late = shared->late_ms[k] + 1;
    double middle = median(late, (size_t)rounds - 1);
    if (k == FLOOR) floor = middle;
    printf("%-32s %10.2f %10.2f %10.2f %10.2f %18.3f\n", names[k], middle, late[0],
           late[rounds - 2], middle / floor, shared->commands[k] / COUNTED / CALLERS);
  }
}

int main(int argc, char **argv) {
  pthread_barrierattr_t attr;
  if (argc > 1)
    rounds = (int)strtol(argv[1], NULL, 10) + 1;
  else
    rounds++;
  if (rounds < 2 || rounds > ROUNDS_MOST) die("the number of rounds: 1 to 999");
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("no memory");
  pthread_barrierattr_init(&attr);
  pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->all, &attr, CALLERS);
  if (!redis_server_start(&server, NULL)) return 1;
  pid_t processes[PROCESSES];
  int failed = 0;
  for (int i = 0; i < PROCESSES; i++)
    if ((processes[i] = fork()) == 0) be_process(i);
  for (int i = 0, status; i < PROCESSES; i++)
    failed |= waitpid(processes[i], &status, 0) < 0 || status != 0;
  if (!failed) report();
  redis_server_stop(server);
  return failed;
}
