/* test_containers.c: processes in containers: PID namespaces with one host_dir, a /dev/shm of their
 * own, folders that can't be written, a leader that is throttled, and one that is killed for its
 * memory. Skips what the kernel, or the user's rights, don't allow here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/container_kit.h"
#include "support/fork_kit.h"
#include "support/history_room.h"
#include "support/redis_server.h"

enum { LEASE_MS = 60000, SHORT_LEASE_MS = 400 };
enum { GATE, ANSWERED, BURNT, GREEDY, INVALIDATED }; /* lab marks */

static redis_server *server;
static container_group group;
static int has_group;

static int begin(void **state) {
  if (server != NULL) redis_server_ask(server, "FLUSHALL");
  return history_room_open(state);
}

static int end(void **state) {
  history_room_close(state);
  if (has_group) container_group_remove(&group);
  has_group = 0;
  return 0;
}

/* Skips the test where a process can't enter such a container. */
static void need(int (*enter)(void), const char *what) {
  int status = 0;
  if (server == NULL) skip();
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(enter() ? 0 : 77);
  }
  assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  print_message("SKIPPED: %s: not allowed here\n", what);
  skip();
}

static void spawn(int (*enter)(void), const corral_options *options, void (*body)(lab_seat *seat)) {
  lab_spawn(current, &(lab_plan){.uri = redis_server_uri(server),
                                 .processes = 1,
                                 .threads = 1,
                                 .options = *options,
                                 .enter = enter,
                                 .body = body});
}

static void ask_by(lab_seat *seat, int64_t lease_ms) {
  history_call call = {.history = entries, .seat = seat, .gate = &seat->lab->marks[GATE]};
  const corral_policy *policy =
      CORRAL_POLICY(.wait_ms = 30000, .lease_ms = lease_ms, .lease_min_ms = lease_ms);
  int status = history_ask(&call, policy);
  if (status != CORRAL_OK) lab_wrong(seat->lab, "%s", corral_status_name(status));
  lab_add(&seat->lab->marks[ANSWERED], 1);
}

static void ask(lab_seat *seat) { ask_by(seat, LEASE_MS); }

/* Opens the gate, waits for all, and judges what they did. */
static void open_gate(void) {
  lab_add(&current->marks[GATE], 1);
  lab_end(current);
  history_verdict seen = history_judge(entries, &(history_rules){0});
  if (seen.wrong > 0) fail_msg("%zu wrong: %s", seen.wrong, seen.first);
}

/* ---- PID namespaces ------------------------------------------------------------------------ */

/* The process is process 1 of its namespace, as in a container. */
static int be_first(void) { return container_unshare(CLONE_NEWPID) && getpid() == 1; }

static void processes_of_two_pid_namespaces_hold_one_election_by_a_shared_host_dir(void **state) {
  (void)state;
  need(be_first, "a PID namespace");
  const corral_options host = {.host_lock = 1, .host_dir = current->folder};
  spawn(be_first, &host, ask);
  lab_await(current, &current->keys[0].computes, 1);
  spawn(be_first, &host, ask);
  lab_await(current, &current->events[1][CORRAL_EVENT_HOST_WAIT], 1);
  open_gate();
  assert_int_equal(current->keys[0].computes, 1);
  assert_int_equal(current->events[1][CORRAL_EVENT_CLAIM], 0);
}

/* Its note of the lease token, not its number, shows that it is dead: the other one has the same
 * number. */
static void a_dead_leader_of_another_pid_namespace_is_replaced_before_its_lease_ends(void **state) {
  (void)state;
  need(be_first, "a PID namespace");
  const corral_options host = {.host_lock = 1, .host_dir = current->folder};
  spawn(be_first, &host, ask);
  lab_await(current, &current->keys[0].computes, 1);
  spawn(be_first, &host, ask);
  lab_await(current, &current->events[1][CORRAL_EVENT_HOST_WAIT], 1);
  lab_kill(current, 0);
  lab_await(current, &current->keys[0].computes, 2);
  open_gate();
  assert_int_equal(current->events[1][CORRAL_EVENT_FILL], 1);
}

/* ---- folders ------------------------------------------------------------------------------- */

/* Two processes with the host lock switched on, each in such a container: the second one finds the
 * lease of the first in the store. */
static void elect_by_the_store(int (*enter)(void)) {
  need(enter, "a mount namespace");
  const corral_options host = {.host_lock = 1};
  spawn(enter, &host, ask);
  lab_await(current, &current->keys[0].computes, 1);
  spawn(enter, &host, ask);
  lab_await(current, &current->events[1][CORRAL_EVENT_WAIT], 1);
  open_gate();
  assert_int_equal(current->keys[0].computes, 1);
}

static int have_own_shm(void) {
  return container_unshare(CLONE_NEWNS) && container_mount_empty("/dev/shm", 0) &&
         unsetenv("CORRAL_HOST_DIR") == 0;
}

static void containers_with_a_shm_of_their_own_are_hosts_of_their_own(void **state) {
  (void)state;
  elect_by_the_store(have_own_shm);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(current->events[i][CORRAL_EVENT_HOST_WAIT], 0);
    assert_int_equal(current->events[i][CORRAL_EVENT_HOST_ERROR], 0);
  }
}

static int have_nothing_to_write_to(void) {
  return container_unshare(CLONE_NEWNS) && container_mount_empty("/dev/shm", 1) &&
         container_mount_empty("/tmp", 1) && unsetenv("CORRAL_HOST_DIR") == 0;
}

static void where_no_folder_can_be_written_the_host_lock_is_left_out_and_that_is_told(void **s) {
  (void)s;
  elect_by_the_store(have_nothing_to_write_to);
  assert_true(current->events[0][CORRAL_EVENT_HOST_ERROR] > 0);
  assert_non_null(strstr(current->detail[CORRAL_EVENT_HOST_ERROR], "/tmp"));
}

/* ---- throttling ---------------------------------------------------------------------------- */

enum { QUOTA_US = 1000, WORK_US = 2500 }; /* of the CPU, in each second; of the compute */

static int64_t cpu_us(void) {
  struct timespec ts;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* A leader whose quota ends in the middle of its work. */
static int work_hard(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  const history_call *call = arg;
  int status = history_compute(fill, key, key_len, arg);
  for (int64_t until = cpu_us() + WORK_US; cpu_us() < until;) continue;
  lab_add(&call->seat->lab->marks[BURNT], 1);
  return status;
}

static void ask_with_hard_work(lab_seat *seat) {
  corral_value *value = NULL;
  history_call call = {.history = entries, .seat = seat, .gate = &seat->lab->marks[GATE]};
  const corral_policy *policy = CORRAL_POLICY(.wait_ms = 30000, .lease_ms = SHORT_LEASE_MS);
  int status = corral_get_or_compute(seat->corral, "key-0", 5, CORRAL_CALL(.policy = policy),
                                     work_hard, &call, &value);
  if (status != CORRAL_OK || corral_value_how(value) != CORRAL_COMPUTED)
    lab_wrong(seat->lab, "%s, not its own value", corral_status_name(status));
  corral_value_unref(value);
  lab_add(&seat->lab->marks[ANSWERED], 1);
}

static void invalidate_and_ask(lab_seat *seat) {
  if (history_invalidate(entries, seat, 0) != CORRAL_OK) lab_wrong(seat->lab, "not invalidated");
  lab_add(&seat->lab->marks[GATE], 1);
  ask_by(seat, SHORT_LEASE_MS);
  lab_add(&seat->lab->marks[INVALIDATED], 1);
}

static void ask_briefly(lab_seat *seat) { ask_by(seat, SHORT_LEASE_MS); }

/* Without a group the leader is stopped instead. */
static int throttle(void) {
  has_group = container_group_make(&group, "cpu");
  if (has_group && container_group_set(&group, "cpu.max", QUOTA_US) &&
      container_group_add(&group, current->pids[0]))
    return 1;
  print_message("           no cpu group may be made here: the leader is stopped instead\n");
  return 0;
}

/* A throttled leader is late, and loses its lease perhaps. Its caller has its value, the others
 * have a newer one, and what it had read before the invalidation is never served. */
static void a_leader_that_is_throttled_for_a_second_breaks_no_promise(void **state) {
  (void)state;
  if (server == NULL) skip();
  spawn(NULL, &(corral_options){0}, ask_with_hard_work);
  lab_await(current, &current->keys[0].computes, 1);
  int throttled = throttle();
  if (!throttled) lab_stop(current, 0);
  spawn(NULL, &(corral_options){0}, invalidate_and_ask);
  lab_await(current, &current->marks[INVALIDATED], 1);
  if (!throttled) lab_sleep_ms(1000);
  if (!throttled) lab_continue(current, 0);
  lab_await(current, &current->marks[ANSWERED], 2);
  spawn(NULL, &(corral_options){0}, ask_briefly);
  lab_await(current, &current->marks[ANSWERED], 3);
  if (throttled) assert_true(container_group_count(&group, "cpu.stat", "nr_throttled") > 0);
  open_gate();
}

/* ---- memory -------------------------------------------------------------------------------- */

enum { LIMIT = 256 << 20, TOO_MUCH = 1 << 30 };

static int take_too_much(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  const history_call *call = arg;
  (void)key, (void)key_len;
  lab_add(&call->seat->lab->keys[0].computes, 1);
  lab_await(call->seat->lab, &call->seat->lab->marks[GREEDY], 1);
  char *room = mmap(NULL, TOO_MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t at = 0; room != MAP_FAILED && at < TOO_MUCH; at += 4096) room[at] = 1;
  return corral_fill_bytes(fill, "survived", 8);
}

static void ask_greedily(lab_seat *seat) {
  corral_value *value = NULL;
  history_call call = {.history = entries, .seat = seat};
  int status = corral_get_or_compute(
      seat->corral, "key-0", 5,
      CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 30000, .lease_ms = LEASE_MS)), take_too_much,
      &call, &value);
  lab_wrong(seat->lab, "a leader above its limit has lived on: %s", corral_status_name(status));
}

/* The kernel ends its lock on the host; the next process leads at once. */
static void a_leader_that_is_killed_for_its_memory_is_replaced(void **state) {
  (void)state;
  if (server == NULL) skip();
  has_group = container_group_make(&group, "memory");
  if (!has_group || !container_group_set(&group, "memory.max", LIMIT)) {
    print_message("SKIPPED: no memory group may be made here\n");
    skip();
  }
  const corral_options host = {.host_lock = 1, .host_dir = current->folder};
  spawn(NULL, &host, ask_greedily);
  lab_await(current, &current->keys[0].computes, 1);
  int limited = container_group_add(&group, current->pids[0]);
  spawn(NULL, &host, ask);
  lab_await(current, &current->events[1][CORRAL_EVENT_HOST_WAIT], 1);
  lab_add(&current->marks[GREEDY], 1);
  if (!limited) lab_kill(current, 0);
  lab_await(current, &current->keys[0].computes, 2);
  lab_kill(current, 0);
  open_gate();
  assert_int_equal(current->events[1][CORRAL_EVENT_FILL], 1);
}

#define WITH_LAB(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_LAB(processes_of_two_pid_namespaces_hold_one_election_by_a_shared_host_dir),
      WITH_LAB(a_dead_leader_of_another_pid_namespace_is_replaced_before_its_lease_ends),
      WITH_LAB(containers_with_a_shm_of_their_own_are_hosts_of_their_own),
      WITH_LAB(where_no_folder_can_be_written_the_host_lock_is_left_out_and_that_is_told),
      WITH_LAB(a_leader_that_is_throttled_for_a_second_breaks_no_promise),
      WITH_LAB(a_leader_that_is_killed_for_its_memory_is_replaced),
  };
  redis_server_start(&server, NULL);
  int failed = cmocka_run_group_tests_name("containers", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
