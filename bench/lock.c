/* lock.c: the cost of a lock on Redis. Uncontended: corral_lock_take and corral_lock_release, with
 * scripts and without, against two raw round trips of hiredis to the same server, in turns within
 * one run (a GET of a small key; and EVALSHA of "return 1", because every correct lock needs a
 * script on this server); and the server's own time for each. Contended: from just before the
 * release to the return of the next holder's take, among processes that all wait: woken, polling,
 * and in turn (`fair`). Greedy processes take the lock again at once: how often the last holder
 * gets it, the longest wait, and the fewest and most holds of a process.
 *
 *   bench_lock [PROCESSES]     contenders, 8. It starts its own redis-server and connects by TCP
 *                              and by a unix socket. */
#include <corral/lock.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit.h"
#include "support/redis_server.h"

enum { ROUNDS = 15, PAIRS = 1500, HANDOVERS = 1500, PROCESSES = 64 };

static redis_server *server;

static redisContext *raw_connect(int tcp) {
  redisContext *r = tcp ? redisConnect("127.0.0.1", redis_server_port(server))
                        : redisConnectUnix(redis_server_socket(server));
  if (r == NULL || r->err != 0) die("can't connect to the redis-server");
  return r;
}

static corral *open_at(const char *uri, int watch) {
  corral *c;
  corral_error error = {0};
  if (corral_open(
          CORRAL_OPTIONS(.store = uri, .name_space = "bench", .watch = watch, .op_ms = 10000), &c,
          &error) != CORRAL_OK)
    die(error.text);
  return c;
}

/* ---- uncontended --------------------------------------------------------------------------- */

static void raw_pairs(redisContext *r, const char *command, int count) {
  for (int i = 0; i < 2 * count; i++) {
    redisReply *reply = redisCommand(r, command);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) die("a raw command failed");
    freeReplyObject(reply);
  }
}

static void lock_pairs(corral *c, int count) {
  corral_error error = {0};
  for (int i = 0; i < count; i++) {
    corral_lock *lock;
    if (corral_lock_take(c, "uncontended", 11, NULL, &lock, &error) != CORRAL_OK) die(error.text);
    if (corral_lock_release(lock, &error) != CORRAL_OK) die(error.text);
  }
}

/* The server's own time for each GET, and for each script of a lock. */
static void server_time(redisContext *r, corral *c) {
  freeReplyObject(redisCommand(r, "CONFIG RESETSTAT"));
  raw_pairs(r, "GET bench:raw", PAIRS);
  lock_pairs(c, PAIRS);
  redisReply *reply = redisCommand(r, "INFO commandstats");
  char *save = NULL;
  if (reply == NULL || reply->type != REDIS_REPLY_STRING) die("no INFO");
  for (char *line = strtok_r(reply->str, "\r\n", &save); line != NULL;
       line = strtok_r(NULL, "\r\n", &save))
    if (strstr(line, "evalsha") != NULL || strstr(line, "cmdstat_get:") != NULL)
      printf("%s\n", line);
  freeReplyObject(reply);
}

static void uncontended(const char *name, int tcp) {
  double ours[ROUNDS], without[ROUNDS], get[ROUNDS], script[ROUNDS];
  char evalsha[80], uri[160];
  const char *place = tcp ? redis_server_uri(server) : redis_server_unix_uri(server);
  snprintf(uri, sizeof uri, "%s?scripts=no", place);
  corral *c = open_at(place, 0), *no = open_at(uri, 0);
  redisContext *r = raw_connect(tcp);
  redisReply *sha = redisCommand(r, "SCRIPT LOAD %s", "return 1");
  if (sha == NULL || sha->type != REDIS_REPLY_STRING) die("SCRIPT LOAD failed");
  snprintf(evalsha, sizeof evalsha, "EVALSHA %s 1 bench:raw", sha->str);
  freeReplyObject(sha);
  freeReplyObject(redisCommand(r, "SET bench:raw x"));
  lock_pairs(c, PAIRS);
  lock_pairs(no, PAIRS);
  for (int i = 0; i < ROUNDS; i++) {
    double begin = now_us();
    raw_pairs(r, "GET bench:raw", PAIRS);
    get[i] = (now_us() - begin) / PAIRS;
    begin = now_us();
    lock_pairs(c, PAIRS);
    ours[i] = (now_us() - begin) / PAIRS;
    begin = now_us();
    lock_pairs(no, PAIRS);
    without[i] = (now_us() - begin) / PAIRS;
    begin = now_us();
    raw_pairs(r, evalsha, PAIRS);
    script[i] = (now_us() - begin) / PAIRS;
  }
  double a = median(ours, ROUNDS), n = median(without, ROUNDS), b = median(get, ROUNDS),
         s = median(script, ROUNDS);
  printf("uncontended, %s: two GETs %.1f us   take + release %.1f us   without scripts %.1f us   "
         "two empty scripts %.1f us   ratio to two GETs %.2f, of scripts=no %.2f, to two empty "
         "scripts %.2f\n",
         name, b, a, n, s, a / b, n / b, a / s);
  server_time(r, c);
  redisFree(r);
  corral_close(no);
  corral_close(c);
}

/* ---- contended ----------------------------------------------------------------------------- */

typedef struct board {
  atomic_int count, ready;
  _Atomic double released; /* time of the last release; 0: none yet */
  double us[HANDOVERS];
  /* under the lock that is contended for */
  int last, to_last, holds[PROCESSES];
  double longest_us;
} board;

/* A way to contend for the lock. */
typedef struct way {
  const char *name;
  int watch, fair;
  int greedy; /* takes it again at once */
} way;

static void note_hold(board *b, int number, double waited_us) {
  b->to_last += b->last == number;
  b->last = number;
  b->holds[number]++;
  if (waited_us > b->longest_us) b->longest_us = waited_us;
}

static void contend(board *b, const way *w, int number, int processes) {
  corral *c = open_at(redis_server_uri(server), w->watch);
  corral_lock *lock;
  corral_error error = {0};
  atomic_fetch_add(&b->ready, 1);
  while (atomic_load(&b->ready) < processes) usleep(100);
  while (atomic_load(&b->count) < HANDOVERS) {
    double asked = now_us();
    if (corral_lock_take(c, "contended", 9, CORRAL_LOCK(.wait_ms = 60000, .fair = w->fair), &lock,
                         &error) != CORRAL_OK)
      die(error.text);
    double came = now_us(), released = atomic_exchange(&b->released, 0);
    int at = released != 0 ? atomic_fetch_add(&b->count, 1) : HANDOVERS;
    if (at < HANDOVERS) b->us[at] = came - released;
    if (at < HANDOVERS) note_hold(b, number, came - asked);
    usleep(1000); /* gives the other processes time to wait for the lock */
    atomic_store(&b->released, now_us());
    corral_lock_release(lock, NULL);
    if (!w->greedy) usleep(200); /* another process takes the lock first */
  }
  corral_close(c);
}

static void contended(way w, int processes) {
  board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (b == MAP_FAILED) die("no memory");
  b->last = -1;
  for (int i = 0; i < processes; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      contend(b, &w, i, processes);
      _exit(0);
    }
  }
  for (int i = 0, status; i < processes; i++)
    if (wait(&status) > 0 && status != 0) die("a contender failed");
  int least = HANDOVERS, most = 0;
  for (int i = 0; i < processes; i++) {
    least = b->holds[i] < least ? b->holds[i] : least;
    most = b->holds[i] > most ? b->holds[i] : most;
  }
  printf(
      "contended, %d processes, %s: %d %% of the grants to the last holder, longest wait %.0f ms, "
      "%d to %d holds each\n",
      processes, w.name, 100 * b->to_last / HANDOVERS, b->longest_us / 1000, least, most);
  printf("contended, %d processes, %s: hand-over median %.2f ms, p90 %.2f, p99 %.2f\n", processes,
         w.name, median(b->us, HANDOVERS) / 1000, quantile(b->us, HANDOVERS, 0.9) / 1000,
         quantile(b->us, HANDOVERS, 0.99) / 1000);
  munmap(b, sizeof *b);
}

int main(int argc, char **argv) {
  char *end = NULL;
  long processes = argc > 1 ? strtol(argv[1], &end, 10) : 8;
  if (argc > 2 || (end != NULL && *end != '\0') || processes < 2 || processes > PROCESSES)
    die("usage: bench_lock [PROCESSES], 2 to 64");
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!redis_server_start(&server, NULL)) return 1;
  contended((way){.name = "woken", .watch = 1}, (int)processes);
  contended((way){.name = "polling", .watch = CORRAL_OFF}, (int)processes);
  contended((way){.name = "in turn", .watch = 1, .fair = 1}, (int)processes);
  contended((way){.name = "in turn, polling", .watch = CORRAL_OFF, .fair = 1}, (int)processes);
  contended((way){.name = "greedy", .watch = 1, .greedy = 1}, (int)processes);
  contended((way){.name = "greedy, in turn", .watch = 1, .fair = 1, .greedy = 1}, (int)processes);
  uncontended("TCP", 1);
  uncontended("unix socket", 0);
  redis_server_stop(server);
  return 0;
}
