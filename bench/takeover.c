/* takeover.c: the time from the SIGKILL of a leader until another process computes, on Redis with
 * default options: killed in its first lease, and when it has computed for 3 s, with a waiter on
 * another host; and with one on the same host (host_lock). The floor, in the same run: a process
 * that the kernel tells of the death, by the end of a pipe.
 *
 *   bench_takeover [ROUNDS]     20 rounds of each kind, in turns; medians. Starts its own
 *                               redis-server on a unix socket. */
#include <corral.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit.h"
#include "support/redis_server.h"

enum { ROUNDS_MOST = 1000, LATE_MS = 3000, SETTLED_MS = 30 };

typedef enum kind { FLOOR, FIRST, LATE, HOST, KINDS } kind;

static const char *const names[KINDS] = {"floor: a pipe ends", "killed in its first lease",
                                         "killed after 3 s", "first lease, same host"};

/* Shared by all processes. */
typedef struct board {
  atomic_int leads, waits; /* 1: the leader computes; the waiter is about to ask */
  atomic_llong replaced;   /* when the waiter's compute began */
} board;

static board *shared;
static redis_server *server;
static char key[32];

static void rest(long ms) {
  struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&t, NULL);
}

static void await(atomic_int *flag) {
  while (atomic_load(flag) == 0) rest(1);
}

/* ---- the processes ------------------------------------------------------------------------- */

static int compute_for_ever(corral_fill *fill, const void *k, size_t key_len, void *arg) {
  (void)fill;
  (void)k;
  (void)key_len;
  (void)arg;
  atomic_store(&shared->leads, 1);
  while (pause() != 0) continue;
  return 0;
}

static int compute(corral_fill *fill, const void *k, size_t key_len, void *arg) {
  (void)k;
  (void)key_len;
  (void)arg;
  atomic_store(&shared->replaced, (long long)now_us());
  return corral_fill_bytes(fill, "v", 1);
}

static void ask(kind k, corral_compute *function) {
  corral *c = NULL;
  corral_value *value = NULL;
  corral_error error;
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_unix_uri(server),
                                 .host_dir = redis_server_folder(server),
                                 .host_lock = k == HOST ? 1 : CORRAL_OFF),
                  &c, &error) != CORRAL_OK)
    die(error.text);
  const corral_policy *policy = CORRAL_POLICY(.wait_ms = 60000);
  if (corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.policy = policy, .error = &error),
                            function, NULL, &value) != CORRAL_OK)
    die(error.text);
  corral_value_unref(value);
  corral_close(c);
}

static void lead(kind k, const int pipe_ends[2]) {
  close(pipe_ends[0]);
  if (k != FLOOR) ask(k, compute_for_ever);
  atomic_store(&shared->leads, 1);
  for (;;) pause();
}

static void wait_beside(kind k, const int pipe_ends[2]) {
  char byte;
  close(pipe_ends[1]);
  await(&shared->leads);
  atomic_store(&shared->waits, 1);
  if (k != FLOOR) {
    ask(k, compute);
  } else if (read(pipe_ends[0], &byte, 1) == 0) {
    atomic_store(&shared->replaced, (long long)now_us());
  }
}

static pid_t start(kind k, void (*body)(kind, const int[2]), const int pipe_ends[2]) {
  pid_t pid = fork();
  if (pid < 0) die("no process to be had");
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body(k, pipe_ends);
  exit(0);
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* Negative when a busy machine let the lease end before the kill. */
static double run_once(kind k) {
  static int number;
  int pipe_ends[2], status;
  snprintf(key, sizeof key, "k-%d", ++number);
  atomic_store(&shared->leads, 0);
  atomic_store(&shared->waits, 0);
  if (pipe(pipe_ends) != 0) die("no pipe to be had");
  pid_t leader = start(k, lead, pipe_ends), waiter = start(k, wait_beside, pipe_ends);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  await(&shared->waits);
  rest(k == LATE ? LATE_MS : SETTLED_MS);
  double killed = now_us();
  kill(leader, SIGKILL);
  waitpid(leader, NULL, 0);
  if (waitpid(waiter, &status, 0) < 0 || status != 0) die("a waiter failed");
  return ((double)shared->replaced - killed) / 1000;
}

static double run_round(kind k) {
  double took;
  do took = run_once(k);
  while (took < 0);
  return took;
}

int main(int argc, char **argv) {
  static double took[KINDS][ROUNDS_MOST];
  int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 20;
  if (rounds < 1 || rounds > ROUNDS_MOST) die("the number of rounds: 1 to 1000");
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("no memory");
  if (!redis_server_start(&server, NULL)) return 1;
  for (int i = 0; i < rounds; i++)
    for (kind k = 0; k < KINDS; k++) took[k][i] = run_round(k);
  printf("from the SIGKILL of a leader until another process computes, %d rounds\n", rounds);
  printf("%-28s %10s %10s %10s %10s\n", "", "median ms", "best", "worst", "ratio");
  double floor = 0;
  for (kind k = 0; k < KINDS; k++) {
    double middle = median(took[k], (size_t)rounds);
    if (k == FLOOR) floor = middle;
    printf("%-28s %10.2f %10.2f %10.2f %10.1f\n", names[k], middle, took[k][0], took[k][rounds - 1],
           middle / floor);
  }
  redis_server_stop(server);
  return 0;
}
