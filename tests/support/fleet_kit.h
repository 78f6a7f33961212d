/* fleet_kit.h: many processes with one corral each, all on one key, and their counts in shared
 * memory. For tests that are built without sanitizers, so that a thousand processes fit.
 *
 *   fleet *f = fleet_new(100, CORRAL_OPTIONS(.store = uri), CORRAL_POLICY(.wait_ms = 30000));
 *   fleet_start(f, 1);                one process asks
 *   fleet_await(f, &f->computes, 1);  waits for a count, never for a time
 *   fleet_start(f, 99);               99 more
 *   fleet_end(f);                     waits for all
 *   assert_int_equal(f->computes, 1);
 *   fleet_free(f); */
#ifndef TESTS_FLEET_KIT_H
#define TESTS_FLEET_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FLEET_MOST = 1000, FLEET_PATIENCE_MS = 60000, FLEET_CALLERS = 8 };

typedef struct fleet {
  corral_options options;
  corral_policy policy;
  int64_t cost_ms;
  int most;
  int callers; /* threads that ask, in each process; 1 */
  pid_t pids[FLEET_MOST];
  atomic_int count;   /* processes started */
  atomic_int opened;  /* of them with an open corral */
  atomic_int go;      /* processes with a smaller number ask */
  atomic_int waiting; /* processes that compute, or wait for one that does */
  atomic_int joined;  /* callers that wait for another caller of their process */
  atomic_int computes, degraded, answers, wrongs;
  _Atomic int64_t degraded_ms; /* when the first compute without the store began; 0: none did */
  atomic_int gate;             /* a compute doesn't end before this is 1 */
  char wrong[300];
} fleet;

static inline void fleet_sleep_ms(int64_t ms) {
  struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
}

static inline int64_t fleet_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline fleet *fleet_new(int most, const corral_options *options,
                               const corral_policy *policy) {
  fleet *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(f != MAP_FAILED && most <= FLEET_MOST);
  f->options = *options;
  f->policy = *policy;
  f->most = most;
  f->callers = 1;
  atomic_store(&f->gate, 1);
  return f;
}

static inline void fleet_free(fleet *f) { munmap(f, sizeof *f); }

/* ---- within a process ---------------------------------------------------------------------- */

static inline void fleet_on_event(const corral_event_info *info, void *arg) {
  static atomic_int is_counted;
  fleet *f = arg;
  int waits = info->event == CORRAL_EVENT_WAIT || info->event == CORRAL_EVENT_COMPUTE;
  if (waits && !atomic_exchange(&is_counted, 1)) atomic_fetch_add(&f->waiting, 1);
  if (info->event == CORRAL_EVENT_JOIN) atomic_fetch_add(&f->joined, 1);
  if (info->event != CORRAL_EVENT_DEGRADED) return;
  int64_t none = 0;
  atomic_fetch_add(&f->degraded, 1);
  atomic_compare_exchange_strong(&f->degraded_ms, &none, fleet_now_ms());
}

static inline int fleet_compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  fleet *f = arg;
  (void)key, (void)key_len;
  atomic_fetch_add(&f->computes, 1);
  fleet_sleep_ms(f->cost_ms);
  while (f->gate == 0) fleet_sleep_ms(5);
  return corral_fill_bytes(fill, "answer", 6);
}

static inline void fleet_wrong(fleet *f, const char *what, const char *more) {
  if (atomic_fetch_add(&f->wrongs, 1) == 0)
    snprintf(f->wrong, sizeof f->wrong, "%s %s", what, more);
}

typedef struct fleet_caller {
  fleet *fleet;
  corral *corral;
} fleet_caller;

static inline void *fleet_ask(void *arg) {
  const fleet_caller *who = arg;
  fleet *f = who->fleet;
  corral_error error;
  corral_value *value = NULL;
  corral_call call = {.size = sizeof call, .policy = &f->policy, .error = &error};
  int status = corral_get_or_compute(who->corral, "the key", 7, &call, fleet_compute, f, &value);
  if (status != CORRAL_OK)
    fleet_wrong(f, corral_status_name(status), error.text);
  else if (corral_value_size(value) != 6 || memcmp(corral_value_data(value), "answer", 6) != 0)
    fleet_wrong(f, "other bytes than those that were computed", "");
  corral_value_unref(value);
  atomic_fetch_add(&f->answers, 1);
  return NULL;
}

static inline void fleet_ask_all(fleet *f, corral *c) {
  pthread_t threads[FLEET_CALLERS];
  fleet_caller who = {f, c};
  for (int i = 1; i < f->callers; i++)
    if (pthread_create(&threads[i], NULL, fleet_ask, &who) != 0) abort();
  fleet_ask(&who);
  for (int i = 1; i < f->callers; i++) pthread_join(threads[i], NULL);
}

_Noreturn static inline void fleet_live(fleet *f, int number) {
  corral *c = NULL;
  corral_error error;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  corral_options options = f->options;
  options.on_event = fleet_on_event;
  options.event_arg = f;
  if (corral_open(&options, &c, &error) != CORRAL_OK) {
    fleet_wrong(f, error.text, "");
    _exit(1);
  }
  atomic_fetch_add(&f->opened, 1);
  while (f->go <= number) fleet_sleep_ms(5);
  fleet_ask_all(f, c);
  corral_close(c);
  _exit(0);
}

/* ---- the test's side ----------------------------------------------------------------------- */

static inline void fleet_kill(const fleet *f) {
  for (int i = 0; i < f->count; i++) kill(f->pids[i], SIGKILL);
  for (int i = 0; i < f->count; i++) waitpid(f->pids[i], NULL, 0);
}

static inline void fleet_await(const fleet *f, const atomic_int *count, int least) {
  int64_t until = fleet_now_ms() + FLEET_PATIENCE_MS;
  while (*count < least && fleet_now_ms() < until) fleet_sleep_ms(2);
  if (*count >= least) return;
  fleet_kill(f);
  fail_msg("%d of %d; %d computes, %d answers; %s", *count, least, f->computes, f->answers,
           f->wrong);
}

/* Starts `count` more processes, which ask at the same moment. */
static inline void fleet_start(fleet *f, int count) {
  assert_true(f->count + count <= f->most);
  for (int i = 0; i < count; i++) {
    int number = f->count;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) fleet_live(f, number);
    f->pids[number] = pid;
    f->count++;
  }
  fleet_await(f, &f->opened, f->count);
  f->go = f->count;
}

static inline void fleet_end(fleet *f) {
  fleet_await(f, &f->answers, f->count * f->callers);
  for (int i = 0; i < f->count; i++) {
    int status;
    assert_int_equal(waitpid(f->pids[i], &status, 0), f->pids[i]);
    if (status != 0) fail_msg("process %d ended with %d", i, status);
  }
}

#endif
