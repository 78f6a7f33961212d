/* test_redis_lock_race.c: many holders at once on a real Redis, with scripts and without, in
 * threads of two processes: holds must never overlap, and the key must always have a TTL. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/env.h"
#include "support/redis_lock_kit.h"
#include "support/fork_kit.h"

enum { PROCESSES = 2, THREADS = 3, RUN_MS = 2500, PATIENCE_MS = 60000, GRANTS = 100 };

/* Counters shared by all processes: at most one writer may be inside, and never together with
 * readers. */
typedef struct oracle {
  atomic_int writers, readers, violations, stop;
  atomic_long grants, refusals;
  atomic_ullong last_fence;
} oracle;

static oracle *seen;

typedef struct holder {
  int number, naive;
  pthread_t thread;
} holder;

static void enter(int shared) {
  if (shared) {
    atomic_fetch_add(&seen->readers, 1);
    if (atomic_load(&seen->writers) > 0) atomic_fetch_add(&seen->violations, 1);
  } else if (atomic_fetch_add(&seen->writers, 1) > 0 || atomic_load(&seen->readers) > 0) {
    atomic_fetch_add(&seen->violations, 1);
  }
  atomic_fetch_add(&seen->grants, 1);
}

static void leave(int shared) { atomic_fetch_sub(shared ? &seen->readers : &seen->writers, 1); }

/* A writer's fencing token must be larger than all earlier ones. */
static void fenced(uint64_t fence) {
  if (atomic_exchange(&seen->last_fence, fence) >= fence) atomic_fetch_add(&seen->violations, 1);
}

static void corral_turn(client *c, uint8_t mine[CORRAL_TOKEN], int shared) {
  corral_op op = lock_op(CORRAL_VERB_LOCK, "lock:race", 0, shared ? CORRAL_OP_SHARED : 0);
  if (c->host->random(mine, CORRAL_TOKEN) != CORRAL_OK) abort();
  op.token = mine;
  op.lock.hold_ms = 60000;
  op.lock.wish_ms = 20;
  if (perform(c, &op, 1) != CORRAL_OK) abort();
  if (op.status != CORRAL_OK) {
    if (op.status != CORRAL_EBUSY) abort();
    atomic_fetch_add(&seen->refusals, 1);
    return;
  }
  enter(shared);
  if (!shared) fenced(op.lock_state.fence);
  sched_yield();
  leave(shared);
  op.verb = CORRAL_VERB_UNLOCK;
  if (perform(c, &op, 1) != CORRAL_OK || op.status != CORRAL_OK) abort();
}

/* The naive lock: SET NX PX; at the end GET, a comparison in the client, DEL. The work is done well
 * within the hold; the hold ends between the comparison and DEL, which then deletes the next
 * holder's lock. */
static void naive_turn(redisContext *r, int number, unsigned turn) {
  redisReply *reply = redisCommand(r, "SET lock:race %d-%u NX PX 20", number, turn);
  if (reply == NULL) abort();
  int granted = reply->type == REDIS_REPLY_STATUS;
  freeReplyObject(reply);
  if (!granted) return;
  enter(0);
  crl_env_sleep_until(crl_env_now_ms() + 2);
  leave(0);
  reply = redisCommand(r, "GET lock:race");
  char mine[32];
  snprintf(mine, sizeof mine, "%d-%u", number, turn);
  int same = reply != NULL && reply->type == REDIS_REPLY_STRING && strcmp(reply->str, mine) == 0;
  if (reply != NULL) freeReplyObject(reply);
  if (!same) return;
  crl_env_sleep_until(crl_env_now_ms() + 16 + (int64_t)(turn % 6));
  reply = redisCommand(r, "DEL lock:race");
  if (reply != NULL) freeReplyObject(reply);
}

static void *run(void *arg) {
  holder *h = arg;
  uint8_t mine[CORRAL_TOKEN];
  client c = {0};
  redisContext *r = NULL;
  if (h->naive)
    r = redisConnect("127.0.0.1", redis_server_port(server));
  else
    c = opened_as(ways[h->number % WAYS]);
  for (unsigned turn = 0; atomic_load(&seen->stop) == 0; turn++) {
    if (h->naive)
      naive_turn(r, h->number, turn);
    else
      corral_turn(&c, mine, turn % 4 == 3);
  }
  if (r != NULL) redisFree(r);
  closed(&c);
  return NULL;
}

static void threads(int process, int naive) {
  holder holders[THREADS];
  for (int i = 0; i < THREADS; i++) {
    holders[i] = (holder){.number = process * THREADS + i, .naive = naive};
    if (pthread_create(&holders[i].thread, NULL, run, &holders[i]) != 0) abort();
  }
  for (int i = 0; i < THREADS; i++) pthread_join(holders[i].thread, NULL);
}

/* Returns how often the lock's key had no TTL, while other threads take and release it: for RUN_MS,
 * and until there were GRANTS grants. */
static int polls_without_end(void) {
  int64_t now = crl_env_now_ms(), until = now + RUN_MS, last = now + PATIENCE_MS;
  int without = 0;
  for (; now < until || (now < last && atomic_load(&seen->grants) <= GRANTS);
       now = crl_env_now_ms())
    without += pttl("lock:race") == -1;
  return without;
}

static int race(int naive) {
  pid_t pids[PROCESSES];
  seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(seen != MAP_FAILED);
  for (int i = 0; i < PROCESSES; i++) {
    pids[i] = fork_at_rest();
    assert_true(pids[i] >= 0);
    if (pids[i] > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    threads(i, naive);
    _exit(0);
  }
  int without = polls_without_end(), failed = 0;
  atomic_store(&seen->stop, 1);
  for (int i = 0; i < PROCESSES; i++) {
    int status = 0;
    waitpid(pids[i], &status, 0);
    failed += status != 0;
  }
  int violations = atomic_load(&seen->violations);
  print_message("%s: %ld grants, %ld refusals, %d violations\n", naive ? "naive" : "corral",
                atomic_load(&seen->grants), atomic_load(&seen->refusals), violations);
  assert_int_equal(failed, 0);
  assert_int_equal(without, 0);
  assert_true(atomic_load(&seen->grants) > GRANTS);
  munmap(seen, sizeof *seen);
  return violations;
}

static void both_ways_at_one_lock_never_let_two_in(void **state) {
  (void)state;
  client c = begin_as("scripts=yes");
  assert_int_equal(race(0), 0);
  assert_int_equal(holds(&c, "lock:race"), 0);
  closed(&c);
}

static void get_compare_del_lets_two_in_so_the_count_can_see_it(void **state) {
  (void)state;
  start(NULL);
  assert_true(race(1) > 0);
}

/* A handle of one store, and the counter guarded by its lock. */
typedef struct worker {
  client c;
  atomic_long *guarded;
  pthread_t thread;
} worker;

enum { TURNS = 400 };

static void *count_up(void *arg) {
  worker *w = arg;
  uint8_t mine[CORRAL_TOKEN];
  for (int turns = 0; turns < TURNS;) {
    corral_op op = lock_op(CORRAL_VERB_LOCK, "lock:count", 0, 0);
    if (w->c.host->random(mine, sizeof mine) != CORRAL_OK) abort();
    op.token = mine;
    if (perform(&w->c, &op, 1) != CORRAL_OK ||
        (op.status != CORRAL_OK && op.status != CORRAL_EBUSY))
      abort();
    if (op.status != CORRAL_OK) continue;
    long was = atomic_load(w->guarded);
    sched_yield();
    atomic_store(w->guarded, was + 1);
    op.verb = CORRAL_VERB_UNLOCK;
    if (perform(&w->c, &op, 1) != CORRAL_OK || op.status != CORRAL_OK) abort();
    turns++;
  }
  return NULL;
}

static void two_handles_of_one_store_without_scripts_do_not_drop_each_others_watch(void **state) {
  (void)state;
  atomic_long guarded = 0;
  worker workers[2] = {{.c = begin_as("scripts=no"), .guarded = &guarded}};
  workers[1] = workers[0];
  assert_int_equal(crl_plugin_redis.connect(workers[1].c.store, workers[1].c.host->now_ms() + LIMIT,
                                            &workers[1].c.handle, NULL),
                   CORRAL_OK);
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&workers[i].thread, NULL, count_up, &workers[i]), 0);
  for (int i = 0; i < 2; i++) pthread_join(workers[i].thread, NULL);
  assert_int_equal(atomic_load(&guarded), 2 * TURNS);
  crl_plugin_redis.disconnect(workers[1].c.handle);
  closed(&workers[0].c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_ways_at_one_lock_never_let_two_in),
      cmocka_unit_test(two_handles_of_one_store_without_scripts_do_not_drop_each_others_watch),
      cmocka_unit_test(get_compare_del_lets_two_in_so_the_count_can_see_it),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
