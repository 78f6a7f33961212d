/* lock_rows_kit.h: two corrals on a real Redis, a holder in another process, and a waiting
 * thread. */
#ifndef LOCK_ROWS_KIT_H
#define LOCK_ROWS_KIT_H

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork_kit.h"
#include "support/lock_kit.h"
#include "support/redis_server.h"

static redis_server *server;

static inline corral *open_one(void *arg) {
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = 10000,
                                 .on_event = on_event, .event_arg = arg),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static inline int start_server(void **state) {
  (void)state;
  if (!redis_server_start(&server, NULL)) exit(77);
  return 0;
}

static inline int stop_server(void **state) {
  (void)state;
  redis_server_stop(server);
  return 0;
}

static inline int setup(void **state) {
  (void)state;
  redis_server_ask(server, "FLUSHALL");
  atomic_store(&a_lost, 0);
  a = open_one(&a_lost);
  b = open_one(NULL);
  return 0;
}

/* A process that takes lock "n" and holds it until it is killed. */
static inline pid_t hold_elsewhere(corral_lock_options options) {
  int pipes[2];
  char ready;
  if (pipe(pipes) != 0) abort();
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    corral *c = open_one(NULL);
    take(c, "n", &options);
    if (write(pipes[1], "!", 1) != 1) _exit(1);
    for (;;) pause();
  }
  assert_int_equal(read(pipes[0], &ready, 1), 1);
  close(pipes[0]);
  close(pipes[1]);
  return pid;
}

static inline void kill_it(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

typedef struct waiter {
  corral *c;
  pthread_t thread;
  corral_lock_options options;
  int status;
  int64_t hold_us;
} waiter;

static inline void *wait_for_it(void *arg) {
  waiter *w = arg;
  corral_lock *lock;
  w->status = corral_lock_take(w->c, "n", 1, &w->options, &lock, NULL);
  if (w->status != CORRAL_OK) return NULL;
  if (w->hold_us > 0) crl_env_pause_us(w->hold_us);
  w->status = corral_lock_release(lock, NULL);
  return NULL;
}

static inline void start(waiter *w, corral *c, const corral_lock_options *options) {
  w->c = c;
  w->options = *options;
  if (pthread_create(&w->thread, NULL, wait_for_it, w) != 0) abort();
}

#endif
