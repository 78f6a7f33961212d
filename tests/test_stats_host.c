/* test_stats_host.c: many processes of one host, half of which are killed: the sums of their stats
 * files are exactly what they have done.
 *
 * A process makes calls when it is told to, and says when it has made them. It is killed only while
 * it waits to be told, so that the number of its calls is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <corral.h>
#include <poll.h>
#include <signal.h>

#include "stats/folder.h"
#include "support/stats_kit.h"

enum {
  PROCESSES = 200,
  ROUNDS = 600,
  CALLS_MOST = 12,
  SHORT_EACH = 40, /* rounds between two short processes */
  SHORT_CALLS = 3,
  PATIENCE_MS = 60000,
  NEAR_BYTES = 1 << 20
};

/* The calls that were acknowledged. */
typedef struct load {
  uint64_t computed, hits, misses; /* hits: near or, until the watch of the store is up, fresh */
} load;

typedef struct process {
  pid_t pid;
  int asks, says;
} process;

static load wanted;

/* ---- a process ----------------------------------------------------------------------------- */

/* Its call number `n`: every third one computes a value that the next one finds, and the one behind
 * that looks for what isn't there. */
static int call(corral *c, int n) {
  corral_value *value = NULL;
  if (n % 3 != 2) return get_number(c, n / 3) != CORRAL_OK;
  return corral_get(c, "none", 4, NULL, &value) != CORRAL_EMISS;
}

static void acknowledge(int first, int count) {
  for (int n = first; n < first + count; n++) {
    wanted.computed += n % 3 == 0;
    wanted.hits += n % 3 == 1;
    wanted.misses += n % 3 == 2;
  }
}

/* `asks`: bytes, each is a number of calls. `says`: one byte when they are made. */
static _Noreturn void work(int asks, int says) {
  uint8_t count;
  int made = 0;
  corral *c = open_counting(folder, NEAR_BYTES, 0);
  while (read(asks, &count, 1) == 1) {
    for (int i = 0; i < count; i++)
      if (call(c, made++) != 0) _exit(1);
    if (write(says, "", 1) != 1) _exit(2);
  }
  _exit(0); /* without corral_close: as a process ends that doesn't know of it */
}

static void start(process *p) {
  int asks[2], says[2];
  assert_int_equal(pipe2(asks, O_CLOEXEC), 0);
  assert_int_equal(pipe2(says, O_CLOEXEC), 0);
  p->pid = fork();
  assert_true(p->pid >= 0);
  if (p->pid == 0) {
    close(asks[1]);
    close(says[0]);
    work(asks[0], says[1]);
  }
  close(asks[0]);
  close(says[1]);
  p->asks = asks[1];
  p->says = says[0];
}

static void await_byte(int fd) {
  char byte;
  struct pollfd come = {.fd = fd, .events = POLLIN};
  assert_int_equal(poll(&come, 1, PATIENCE_MS), 1);
  assert_int_equal(read(fd, &byte, 1), 1);
}

static void kill_process(process *p) {
  assert_int_equal(kill(p->pid, SIGKILL), 0);
  assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
  close(p->asks);
  close(p->says);
  p->pid = 0;
}

/* A program that is started, makes a few calls and ends, as one of CGI does. */
static int run_short(void) {
  corral *c = open_counting(getenv("STATS_HOST_FOLDER"), NEAR_BYTES, 0);
  for (int n = 0; n < SHORT_CALLS; n++)
    if (call(c, n) != 0) return 1;
  if (getpid() % 2 == 0) corral_close(c);
  return 0;
}

static void start_short(void) {
  int status;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    setenv("STATS_HOST_FOLDER", folder, 1);
    execl("/proc/self/exe", "short", "short", (char *)NULL);
    _exit(127);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  acknowledge(0, SHORT_CALLS);
}

/* ---- all of them --------------------------------------------------------------------------- */

static process all[PROCESSES];
static int made[PROCESSES];

static int living(void) {
  int count = 0;
  for (int i = 0; i < PROCESSES; i++) count += all[i].pid != 0;
  return count;
}

/* Some processes make calls at the same time. */
static void one_round(unsigned *dice) {
  enum { AT_ONCE = 5 };
  int chosen[AT_ONCE];
  uint8_t counts[AT_ONCE];
  for (int k = 0; k < AT_ONCE; k++) {
    chosen[k] = rand_r(dice) % PROCESSES;
    counts[k] = (uint8_t)(1 + rand_r(dice) % CALLS_MOST);
    for (int other = 0; other < k; other++)
      if (chosen[other] == chosen[k]) counts[k] = 0;
    if (all[chosen[k]].pid == 0 || counts[k] == 0)
      counts[k] = 0;
    else
      assert_int_equal(write(all[chosen[k]].asks, &counts[k], 1), 1);
  }
  for (int k = 0; k < AT_ONCE; k++) {
    if (counts[k] == 0) continue;
    await_byte(all[chosen[k]].says);
    acknowledge(made[chosen[k]], counts[k]);
    made[chosen[k]] += counts[k];
  }
}

static void agrees(int processes_now) {
  seen s = see_host(folder);
  assert_int_equal(corral_stats_results(s.sum, CORRAL_RESULT_COMPUTED), wanted.computed);
  assert_int_equal(corral_stats_results(s.sum, CORRAL_RESULT_NEAR) +
                       corral_stats_results(s.sum, CORRAL_RESULT_FRESH),
                   wanted.hits);
  assert_int_equal(corral_stats_results(s.sum, CORRAL_RESULT_MISS), wanted.misses);
  assert_int_equal(all_results(s.sum), wanted.computed + wanted.hits + wanted.misses);
  assert_int_equal(corral_stats_events(s.sum, CORRAL_EVENT_COMPUTE), wanted.computed);
  assert_in_range(s.files, 1, CRL_STATS_FOLDER_MOST);
  assert_in_range(s.living, 0, processes_now);
  corral_histogram times;
  corral_stats_times(s.sum, CORRAL_TIME_COMPUTE, &times);
  assert_int_equal(times.count, wanted.computed);
  corral_stats_free(s.sum);
}

static void the_sums_of_a_host_are_exact_when_half_of_its_processes_are_killed(void **state) {
  unsigned dice = 21;
  int killed = 0;
  (void)state;
  for (int i = 0; i < PROCESSES; i++) start(&all[i]);
  for (int round = 0; round < ROUNDS; round++) {
    one_round(&dice);
    int i = rand_r(&dice) % PROCESSES;
    if (killed < PROCESSES / 2 && round % (ROUNDS / PROCESSES) == 0 && all[i].pid != 0) {
      kill_process(&all[i]);
      killed++;
    }
    if (round % SHORT_EACH == 0) start_short();
    if (round % (ROUNDS / 4) == 0) agrees(living());
  }
  for (int i = 0; killed < PROCESSES / 2; i++)
    if (all[i].pid != 0) kill_process(&all[i]), killed++;
  agrees(PROCESSES / 2);
  for (int i = 0; i < PROCESSES; i++) { /* others in the place of those that were killed */
    if (all[i].pid != 0) continue;
    start(&all[i]);
    made[i] = 0;
  }
  for (int round = 0; round < ROUNDS / 4; round++) one_round(&dice);
  agrees(PROCESSES);
  for (int i = 0; i < PROCESSES; i++) kill_process(&all[i]);
  agrees(0);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(
          the_sums_of_a_host_are_exact_when_half_of_its_processes_are_killed, make_folder,
          remove_folder),
  };
  if (argc > 1 && strcmp(argv[1], "short") == 0) return run_short();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
