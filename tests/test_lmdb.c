/* test_lmdb.c: the store of all processes of one host, through its table; with real processes, really killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/folder_kit.h"
#include "support/store_kit.h"
#include "support/watch_kit.h"

/* ---- files and processes --------------------------------------------------------------------------------- */

/* A file in the test's folder; of the last four. */
static const char *file(const char *name) {
  static char rooms[4][160];
  static unsigned next;
  char *room = rooms[next++ % 4];
  snprintf(room, 160, "%s/%s", folder, name);
  return room;
}

static const char *address(const char *name, const char *params) {
  static char room[256];
  snprintf(room, sizeof room, "lmdb:%s%s", file(name), params);
  return room;
}

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

static pid_t child(void) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  return pid;
}

static int ended(pid_t pid) {
  int end = -1;
  assert_int_equal(waitpid(pid, &end, 0), pid);
  return end;
}

/* A process that claims `key`, says so, and never does anything again. With `heir` it forks a child, *heir_pid, which
 * lives on until the test's own process ends. */
static pid_t stuck_leader(const char *uri, const char *key, int heir, pid_t *heir_pid) {
  int ready[2], life[2];
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(pipe(life), 0);
  pid_t pid = child();
  if (pid == 0) {
    kit k;
    close(life[1]);
    if (kit_open(&k, uri, NULL) != CORRAL_OK || verb(&k, CORRAL_VERB_CLAIM, key, 99) != CORRAL_OK) _exit(1);
    pid_t other = heir ? fork() : 0;
    if (heir && other == 0) { /* speaks itself: its own first steps have closed what it inherited */
      other = getpid();
      if (write(ready[1], &other, sizeof other) != (ssize_t)sizeof other) _exit(1);
      _exit(read(life[0], &other, 1) == 0 ? 0 : 1); /* it may outlive the leader, and not the test */
    }
    if (!heir && write(ready[1], &other, sizeof other) != (ssize_t)sizeof other) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  pid_t other;
  assert_int_equal(read(ready[0], &other, sizeof other), sizeof other);
  close(ready[0]);
  close(life[0]); /* the other end stays open as long as this process lives */
  if (heir_pid != NULL) *heir_pid = other;
  return pid;
}

static void refused(const char *uri, int status, const char *word) {
  kit k;
  corral_error error = {0};
  int got = kit_open(&k, uri, &error);
  if (got != status || strstr(error.text, word) == NULL) fail_msg("%s: %d: %s", uri, got, error.text);
  if (k.store != NULL) k.plugin->close(k.store);
}

/* ---- the verbs ------------------------------------------------------------------------------------------- */

static void a_settled_value_is_found_again(void **state) {
  (void)state;
  static const size_t sizes[] = {8, 1024, 1025, 65519, 65520 + 8, 3000000};
  kit k = opened(address("verbs", "?size=64m"));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    put(&k, "a", (char)('a' + i), sizes[i]);
    corral_op op = op_of(CORRAL_VERB_GET, "a", 1);
    assert_int_equal(run(&k, &op), CORRAL_OK);
    assert_int_equal(op.found_len, CORRAL_HEADER + sizes[i]);
    for (size_t at = 0; at < sizes[i]; at++)
      if (op.found[CORRAL_HEADER + at] != 'a' + i) fail_msg("size %zu: byte %zu", sizes[i], at);
    assert_true(op.life_ms > 0 && op.life_ms <= 600000);
    done(&op);
  }
  put(&k, "a", 'z', 10);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "a", 1);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(op.found_len, CORRAL_HEADER + 10);
  done(&op);
  closed(&k);
}

static void one_claim_wins_and_the_other_is_told_what_is_left(void **state) {
  (void)state;
  kit k = opened(address("claims", ""));
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 1), CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "a", 2);
  assert_int_equal(run(&k, &op), CORRAL_EBUSY);
  assert_true(op.until_ms > 0);
  assert_non_null(op.found);
  done(&op);
  assert_int_equal(settle(&k, "a", 2, 'x', 8, NULL), CORRAL_ELOST);
  assert_int_equal(verb(&k, CORRAL_VERB_EXTEND, "a", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_RELEASE, "a", 2), CORRAL_ELOST);
  assert_int_equal(verb(&k, CORRAL_VERB_RELEASE, "a", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "a", 1), CORRAL_EMISS);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 2), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_INVALIDATE, "a", 0), CORRAL_OK);
  assert_int_equal(settle(&k, "a", 2, 'x', 8, NULL), CORRAL_ELOST);
  closed(&k);
}

static void an_invalidation_is_remembered_until_a_fill(void **state) {
  (void)state;
  kit k = opened(address("marks", "?size=64m"));
  put(&k, "a", 'x', 3000000);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 1), CORRAL_OK);
  assert_int_equal(invalidate(&k, "a", 60000), CORRAL_OK);
  assert_int_equal(settle(&k, "a", 1, 'x', 8, NULL), CORRAL_ELOST);
  is_marked(&k, CORRAL_VERB_GET, "a", 0, CORRAL_FREE);
  is_marked(&k, CORRAL_VERB_CLAIM, "a", 2, CORRAL_LEASED);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 3), CORRAL_EBUSY);
  assert_int_equal(verb(&k, CORRAL_VERB_RELEASE, "a", 2), CORRAL_OK);
  is_marked(&k, CORRAL_VERB_CLAIM, "a", 3, CORRAL_LEASED);
  assert_int_equal(settle(&k, "a", 3, 'x', 8, NULL), CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_GET, "a", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_true(op.life_ms > 0);
  done(&op);
  assert_int_equal(invalidate(&k, "nothing", 60000), CORRAL_OK);
  is_marked(&k, CORRAL_VERB_GET, "nothing", 0, CORRAL_FREE);
  assert_int_equal(invalidate(&k, "soon", 1), CORRAL_OK);
  for (int64_t from = k.host->boot_ms(); k.host->boot_ms() < from + 2;) sched_yield();
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "soon", 0), CORRAL_EMISS);
  closed(&k);
}

static void a_lease_that_ran_out_goes_to_the_next_and_the_first_is_fenced(void **state) {
  (void)state;
  kit k = opened(address("ran-out", ""));
  corral_op op = op_of(CORRAL_VERB_CLAIM, "a", 1);
  op.lease_ms = 1;
  assert_int_equal(run(&k, &op), CORRAL_OK);
  done(&op);
  for (int64_t from = k.host->boot_ms(); k.host->boot_ms() < from + 2;) sched_yield();
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 2), CORRAL_OK);
  assert_int_equal(settle(&k, "a", 1, 'x', 8, NULL), CORRAL_ELOST);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 3), CORRAL_EBUSY);
  assert_int_equal(settle(&k, "a", 2, 'y', 8, NULL), CORRAL_OK);
  closed(&k);
}

static void operations_of_a_batch_see_each_other(void **state) {
  (void)state;
  kit k = opened(address("batch", ""));
  uint8_t mine[CORRAL_TOKEN] = {1}, record[CORRAL_HEADER + 8] = {0};
  corral_header header = {.state = CORRAL_FREE};
  k.host->header_write(&header, record);
  corral_op ops[6] = {op_of(CORRAL_VERB_CLAIM, "a", 0), op_of(CORRAL_VERB_SETTLE, "a", 0), op_of(CORRAL_VERB_GET, "a", 0),
                      op_of(CORRAL_VERB_CLAIM, "b", 0), op_of(CORRAL_VERB_INVALIDATE, "a", 0), op_of(CORRAL_VERB_GET, "a", 0)};
  static const int expected[6] = {CORRAL_OK, CORRAL_OK, CORRAL_OK, CORRAL_OK, CORRAL_OK, CORRAL_EMISS};
  for (size_t i = 0; i < 6; i++) ops[i].token = mine;
  ops[1].record = record;
  ops[1].record_len = sizeof record;
  assert_int_equal(k.plugin->perform(k.handle, ops, 6, INT64_MAX, NULL), CORRAL_OK);
  for (size_t i = 0; i < 6; i++) {
    assert_int_equal(ops[i].status, expected[i]);
    done(&ops[i]);
  }
  closed(&k);
}

static void two_corrals_of_a_process_share_one_file(void **state) {
  (void)state;
  kit a = opened(address("shared", "?size=1m"));
  put(&a, "k", 'x', 10);
  kit b = opened(address("shared", "?size=64m"));
  assert_ptr_equal(a.handle, b.handle);
  assert_int_equal(verb(&b, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  put(&b, "big", 'x', 5000000);
  closed(&a);
  assert_int_equal(verb(&b, CORRAL_VERB_GET, "big", 0), CORRAL_OK);
  closed(&b);
}

/* ---- processes ------------------------------------------------------------------------------------------- */

static void a_killed_leader_is_replaced_at_once(void **state) {
  (void)state;
  char uri[256];
  snprintf(uri, sizeof uri, "%s", address("killed", ""));
  pid_t leader = stuck_leader(uri, "k", 0, NULL);
  kit k = opened(uri);
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_true(op.until_ms > 30000);
  done(&op);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EBUSY);
  kill(leader, SIGKILL);
  ended(leader);
  op = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(op.until_ms, 0);
  done(&op);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  assert_int_equal(settle(&k, "k", 99, 'x', 8, NULL), CORRAL_ELOST);
  assert_int_equal(settle(&k, "k", 1, 'x', 8, NULL), CORRAL_OK);
  closed(&k);
}

static void a_mark_survives_the_leader_that_died_over_it(void **state) {
  (void)state;
  const char *uri = address("killed-marked", "");
  kit k = opened(uri);
  assert_int_equal(invalidate(&k, "k", 60000), CORRAL_OK);
  pid_t pid = stuck_leader(uri, "k", 0, NULL);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EBUSY);
  kill(pid, SIGKILL);
  ended(pid);
  is_marked(&k, CORRAL_VERB_CLAIM, "k", 1, CORRAL_LEASED);
  closed(&k);
}

static void a_child_that_a_dead_leader_forked_does_not_keep_its_lease(void **state) {
  (void)state;
  char uri[256];
  pid_t heir = 0;
  snprintf(uri, sizeof uri, "%s", address("heir", ""));
  pid_t leader = stuck_leader(uri, "k", 1, &heir);
  kit k = opened(uri);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EBUSY);
  kill(leader, SIGKILL);
  ended(leader);
  assert_int_equal(kill(heir, 0), 0);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  kill(heir, SIGKILL);
  closed(&k);
}

typedef struct board {
  atomic_uint inside, wrong, led;
} board;

static board *new_board(void) {
  board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(b, MAP_FAILED);
  return b;
}

static void lead_often(const char *uri, unsigned number, unsigned rounds, board *b) {
  kit k;
  if (kit_open(&k, uri, NULL) != CORRAL_OK) _exit(1);
  for (unsigned i = 0; i < rounds; i++) {
    unsigned holder = number * 100000 + i + 1;
    if (verb(&k, CORRAL_VERB_CLAIM, "k", holder) != CORRAL_OK) {
      (void)verb(&k, CORRAL_VERB_GET, "k", 0);
      continue;
    }
    if (atomic_fetch_add(&b->inside, 1) != 0) atomic_fetch_add(&b->wrong, 1);
    sched_yield();
    atomic_fetch_add(&b->led, 1);
    atomic_fetch_sub(&b->inside, 1);
    int status = i % 3 == 0 ? verb(&k, CORRAL_VERB_RELEASE, "k", holder) : settle(&k, "k", holder, 'x', i % 4000 + 8, NULL);
    if (status != CORRAL_OK) atomic_fetch_add(&b->wrong, 1);
  }
  closed(&k);
  _exit(0);
}

static void of_many_processes_one_leads_at_a_time(void **state) {
  (void)state;
  enum { PROCESSES = 6 };
  board *b = new_board();
  char uri[256];
  pid_t pids[PROCESSES];
  snprintf(uri, sizeof uri, "%s", address("many", "?size=4m"));
  for (unsigned i = 0; i < PROCESSES; i++)
    if ((pids[i] = child()) == 0) lead_often(uri, i, 2000, b);
  for (unsigned i = 0; i < PROCESSES; i++) assert_int_equal(ended(pids[i]), 0);
  assert_int_equal(atomic_load(&b->wrong), 0);
  assert_true(atomic_load(&b->led) > 0);
  munmap(b, sizeof *b);
}

static void processes_killed_at_any_moment_leave_a_store_that_works(void **state) {
  (void)state;
  board *b = new_board();
  char uri[256];
  snprintf(uri, sizeof uri, "%s", address("storm", "?size=2m"));
  kit k = opened(uri);
  for (unsigned round = 0; round < 60; round++) {
    unsigned before = atomic_load(&b->led);
    pid_t pid = child();
    if (pid == 0) lead_often(uri, round + 1, 1000000, b);
    while (atomic_load(&b->led) < before + 1 + round * 3) sched_yield();
    kill(pid, SIGKILL);
    ended(pid);
    atomic_store(&b->inside, 0);
    assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 5), CORRAL_OK);
    assert_int_equal(settle(&k, "k", 5, 'x', 100, NULL), CORRAL_OK);
  }
  closed(&k);
  munmap(b, sizeof *b);
}

static void a_process_with_a_larger_map_is_followed(void **state) {
  (void)state;
  char large[256];
  snprintf(large, sizeof large, "%s", address("larger", "?size=64m"));
  kit k = opened(address("larger", "?size=1m"));
  put(&k, "small", 'x', 100);
  pid_t pid = child();
  if (pid == 0) {
    kit other;
    if (kit_open(&other, large, NULL) != CORRAL_OK) _exit(1);
    (void)verb(&other, CORRAL_VERB_CLAIM, "big", 9);
    for (char i = 'a'; i < 'e'; i++) put(&other, (char[]){'f', i, 0}, 'f', 5000000);
    _exit(settle(&other, "big", 9, 'b', 5000000, NULL) == CORRAL_OK ? 0 : 2);
  }
  assert_int_equal(ended(pid), 0);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "big", 0), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "small", 0), CORRAL_OK);
  put(&k, "more", 'x', 100);
  closed(&k);
}

/* ---- room ------------------------------------------------------------------------------------------------ */

static void a_full_map_evicts_and_goes_on(void **state) {
  (void)state;
  kit k = opened(address("full", "?size=1m"));
  char key[32];
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "lease", 1), CORRAL_OK);
  for (unsigned i = 0; i < 3000; i++) {
    put(&k, numbered(key, "k", i), 'x', 200 + i % 5 * 700);
    assert_int_equal(verb(&k, CORRAL_VERB_GET, key, 0), CORRAL_OK);
  }
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k0", 0), CORRAL_EMISS);
  assert_int_equal(verb(&k, CORRAL_VERB_EXTEND, "lease", 1), CORRAL_OK);
  unsigned present = 0;
  for (unsigned i = 0; i < 3000; i++) present += verb(&k, CORRAL_VERB_GET, numbered(key, "k", i), 0) == CORRAL_OK;
  assert_in_range(present, 50, 1000);
  put(&k, "big", 'b', 200000);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "big", 0), CORRAL_OK);
  closed(&k);
}

static void a_full_map_of_large_values_evicts_too(void **state) {
  (void)state;
  kit k = opened(address("full-large", "?size=16m"));
  char key[32];
  for (unsigned i = 0; i < 100; i++) {
    put(&k, numbered(key, "k", i), 'x', 1000000 + i % 7 * 333333);
    assert_int_equal(verb(&k, CORRAL_VERB_GET, key, 0), CORRAL_OK);
  }
  closed(&k);
}

static void a_map_full_of_live_leases_still_takes_new_ones(void **state) {
  (void)state;
  kit k = opened(address("full-leases", "?size=1m"));
  char key[32];
  for (unsigned i = 0; i < 4000; i++) assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, numbered(key, "k", i), i + 1), CORRAL_OK);
  closed(&k);
}

static void a_map_full_of_marks_still_takes_values(void **state) {
  (void)state;
  kit k = opened(address("full-marks", "?size=1m"));
  char key[32];
  for (unsigned i = 0; i < 8000; i++) assert_int_equal(invalidate(&k, numbered(key, "k", i), 600000), CORRAL_OK);
  is_marked(&k, CORRAL_VERB_GET, key, 0, CORRAL_FREE);
  put(&k, "value", 'x', 100000);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "value", 0), CORRAL_OK);
  closed(&k);
}

static void a_value_too_big_is_refused_and_the_old_one_stays(void **state) {
  (void)state;
  kit k = opened(address("too-big", "?size=1m"));
  corral_error error = {0};
  put(&k, "k", 'o', 1000);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(settle(&k, "k", 1, 'n', 400000, &error), CORRAL_ETOOBIG);
  assert_non_null(strstr(error.text, "too-big"));
  assert_int_equal(verb(&k, CORRAL_VERB_RELEASE, "k", 1), CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(op.found[CORRAL_HEADER], 'o');
  done(&op);
  closed(&k);
}

/* Holds what it sees for ever. */
static pid_t stuck_reader(const char *path) {
  int ready[2];
  char byte = 0;
  assert_int_equal(pipe(ready), 0);
  pid_t pid = child();
  if (pid == 0) {
    MDB_env *env;
    MDB_txn *txn;
    if (mdb_env_create(&env) != 0 || mdb_env_open(env, path, MDB_NOSUBDIR, 0600) != 0 ||
        mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) != 0 || write(ready[1], &byte, 1) != 1)
      _exit(1);
    for (;;) pause();
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

static void a_reader_that_hangs_is_named_and_a_dead_one_is_cleared(void **state) {
  (void)state;
  kit k = opened(address("hanging", "?size=1m"));
  corral_error error = {0};
  char key[32];
  int status = CORRAL_OK;
  unsigned stored = 0;
  pid_t reader = stuck_reader(file("hanging"));
  while (status == CORRAL_OK && stored < 5000) {
    corral_op op = op_of(CORRAL_VERB_CLAIM, numbered(key, "k", stored), 1);
    op.error = &error;
    status = run(&k, &op);
    done(&op);
    if (status == CORRAL_OK) status = settle(&k, key, 1, 'x', 3000, &error);
    if (status == CORRAL_OK) stored++;
  }
  assert_int_equal(status, CORRAL_EREFUSED);
  assert_non_null(strstr(error.text, "hangs"));
  corral_op absent = op_of(CORRAL_VERB_INVALIDATE, "nothing", 0); /* no room to remember it, mostly */
  absent.ttl_ms = 600000;
  assert_int_equal(run(&k, &absent), CORRAL_OK);
  corral_op look = op_of(CORRAL_VERB_GET, "nothing", 0);
  int seen = run(&k, &look);
  assert_true(seen == CORRAL_EMISS || (seen == CORRAL_OK && look.found_len == CORRAL_HEADER));
  done(&look);
  unsigned left = 0; /* some of it was evicted, in vain */
  for (unsigned i = 0; i < stored; i++) left += verb(&k, CORRAL_VERB_GET, numbered(key, "k", i), 0) == CORRAL_OK;
  assert_true(left > 0);
  kill(reader, SIGKILL);
  ended(reader);
  (void)verb(&k, CORRAL_VERB_INVALIDATE, "k", 0);
  put(&k, "after", 'x', 3000);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "after", 0), CORRAL_OK);
  closed(&k);
}

/* 0 fine, 1 wrong, 2 can't be tried here. Alone in a process, for it changes what is mounted. */
static int fill_a_disk(void) {
  kit k;
  char key[32], path[160];
  corral_error error = {0};
  snprintf(path, sizeof path, "%s", file("disk"));
  if (mkdir(path, 0700) != 0 || unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("none", path, "tmpfs", 0, "size=2m") != 0)
    return 2;
  if (kit_open(&k, address("disk/x", "?size=64m"), &error) != CORRAL_OK) return 1;
  int status = CORRAL_OK;
  for (unsigned i = 0; i < 100 && status == CORRAL_OK; i++) {
    status = verb(&k, CORRAL_VERB_CLAIM, numbered(key, "k", i), 1);
    if (status == CORRAL_OK) status = settle(&k, key, 1, 'x', 100000, &error);
  }
  if (status != CORRAL_EIO || strstr(error.text, "full") == NULL) return 1;
  return verb(&k, CORRAL_VERB_GET, "k0", 0) == CORRAL_OK ? 0 : 1;
}

static void a_full_disk_is_an_error_and_not_a_signal(void **state) {
  (void)state;
  pid_t pid = child();
  if (pid == 0) _exit(fill_a_disk());
  int end = ended(pid);
  if (WIFEXITED(end) && WEXITSTATUS(end) == 2) {
    print_message("SKIPPED: a_full_disk_is_an_error_and_not_a_signal needs the right to mount\n");
    skip();
  }
  assert_int_equal(end, 0);
}

/* ---- files ----------------------------------------------------------------------------------------------- */

static void what_another_boot_left_is_dropped(void **state) {
  (void)state;
  kit k = opened(address("boot", ""));
  put(&k, "k", 'x', 10);
  closed(&k);
  k = opened(address("boot", ""));
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  closed(&k);
  write_file(file("boot-lease"), "corral-lmdb 1 00000000-0000-0000-0000-000000000000\n");
  k = opened(address("boot", ""));
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
  put(&k, "k", 'x', 10);
  closed(&k);
}

static void a_truncated_file_is_refused(void **state) {
  (void)state;
  kit k = opened(address("cut", ""));
  put(&k, "k", 'x', 100000);
  closed(&k);
  assert_int_equal(truncate(file("cut"), 3 * 4096), 0);
  refused(address("cut", ""), CORRAL_ECORRUPT, "cut");
  assert_int_equal(truncate(file("cut"), 100), 0);
  refused(address("cut", ""), CORRAL_EFOREIGN, "cut");
  assert_int_equal(truncate(file("cut"), 0), 0);
  k = opened(address("cut", ""));
  put(&k, "k", 'x', 10);
  closed(&k);
}

static void somebody_elses_file_is_refused_and_left_alone(void **state) {
  (void)state;
  struct stat st;
  write_file(file("letter"), "Dear Sir or Madam, this is no database at all.\n");
  refused(address("letter", ""), CORRAL_EFOREIGN, "letter");
  assert_int_equal(stat(file("letter"), &st), 0);
  assert_int_equal(st.st_size, 47);
  assert_int_equal(stat(file("letter-lease"), &st), -1);
}

static void make_other_database(const char *path) {
  MDB_env *env;
  MDB_txn *txn;
  MDB_dbi dbi;
  MDB_val value = {.mv_size = 1, .mv_data = (void *)(uintptr_t)"v"};
  assert_int_equal(mdb_env_create(&env), 0);
  assert_int_equal(mdb_env_open(env, path, MDB_NOSUBDIR, 0600), 0);
  assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
  assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
  assert_int_equal(mdb_put(txn, dbi, &value, &value, 0), 0);
  assert_int_equal(mdb_txn_commit(txn), 0);
  mdb_env_close(env);
}

static void somebody_elses_database_is_refused(void **state) {
  (void)state;
  make_other_database(file("other"));
  refused(address("other", ""), CORRAL_EFOREIGN, "other");
  kit k = opened(address("swapped", ""));
  closed(&k);
  assert_int_equal(unlink(file("swapped")), 0);
  make_other_database(file("swapped"));
  refused(address("swapped", ""), CORRAL_EFOREIGN, "swapped");
}

static void missing_folders_are_made_for_this_user_alone(void **state) {
  (void)state;
  struct stat st;
  kit k = opened(address("a/b/c", ""));
  assert_int_equal(stat(file("a/b"), &st), 0);
  assert_int_equal(st.st_mode & 0777, 0700);
  assert_int_equal(stat(file("a/b/c"), &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  closed(&k);
}

static void a_link_leads_to_the_same_store(void **state) {
  (void)state;
  kit a = opened(address("target", ""));
  put(&a, "k", 'x', 10);
  assert_int_equal(symlink(file("target"), file("link")), 0);
  kit b = opened(address("link", ""));
  assert_ptr_equal(a.handle, b.handle);
  closed(&a);
  closed(&b);
}

static void places_where_no_file_can_be_are_named(void **state) {
  (void)state;
  write_file(file("plain"), "");
  assert_int_equal(mkdir(file("folder"), 0700), 0);
  refused(address("folder", ""), CORRAL_EIO, "folder");
  refused(address("plain/x", ""), CORRAL_EIO, "plain");
  refused("lmdb:/proc/nowhere/x", CORRAL_EIO, "/proc/nowhere");
  refused("lmdb:", CORRAL_EURI, "lmdb:/path");
  refused("lmdb:/tmp/", CORRAL_EURI, "lmdb:/path");
  refused("lmdb://host/x", CORRAL_EURI, "host");
  refused("lmdb:/tmp/x?size=1", CORRAL_EURI, "size");
}

static void a_folder_without_write_permission_is_named(void **state) {
  (void)state;
  if (geteuid() == 0) {
    print_message("SKIPPED: a_folder_without_write_permission_is_named: root may write everywhere\n");
    skip();
  }
  assert_int_equal(mkdir(file("sealed"), 0500), 0);
  refused(address("sealed/x", ""), CORRAL_EIO, "must be able to write");
}

/* ---- threads --------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 1500, KEYS = 8 };

typedef struct crowd {
  const kit *k;
  unsigned number;
  atomic_uint *inside;
  atomic_uint *wrong;
} crowd;

static void *member(void *arg) {
  const crowd *c = arg;
  char key[32];
  for (unsigned i = 0; i < ROUNDS; i++) {
    unsigned n = (i * 7 + c->number * 3) % KEYS, holder = c->number * ROUNDS + i + 1;
    numbered(key, "k", n);
    (void)verb(c->k, CORRAL_VERB_GET, key, 0);
    if (verb(c->k, CORRAL_VERB_CLAIM, key, holder) != CORRAL_OK) continue;
    if (atomic_fetch_add(&c->inside[n], 1) != 0) atomic_fetch_add(c->wrong, 1);
    atomic_fetch_sub(&c->inside[n], 1);
    if (settle(c->k, key, holder, 'x', 500 + i % 3000, NULL) != CORRAL_OK) atomic_fetch_add(c->wrong, 1);
  }
  return NULL;
}

static void threads_have_one_leader_too(void **state) {
  (void)state;
  kit k = opened(address("threads", "?size=1m"));
  pthread_t threads[THREADS];
  crowd crowds[THREADS];
  atomic_uint inside[KEYS], wrong;
  atomic_init(&wrong, 0);
  for (unsigned i = 0; i < KEYS; i++) atomic_init(&inside[i], 0);
  for (unsigned i = 0; i < THREADS; i++) {
    crowds[i] = (crowd){.k = &k, .number = i, .inside = inside, .wrong = &wrong};
    assert_int_equal(pthread_create(&threads[i], NULL, member, &crowds[i]), 0);
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&wrong), 0);
  closed(&k);
}

/* ---- watches --------------------------------------------------------------------------------------------- */

static void each_change_is_told(void **state) {
  (void)state;
  kit a = opened(address("told", "")), b = opened(address("told", ""));
  ear *first = ear_open(&a), *second = ear_open(&b);
  check_verbs(&a, first);
  check_verbs(&b, second);
  ear_close(first);
  forget(second);
  put(&a, "k", 'x', 10);
  catch_up(second);
  assert_int_equal(times_told(second, "k"), 2);
  ear_close(second);
  closed(&a);
  closed(&b);
}

static void a_look_is_watched_while_a_watch_is_open(void **state) {
  (void)state;
  kit k = opened(address("looks", ""));
  check_looks(&k);
  closed(&k);
}

static void a_watch_keeps_the_file_open_by_itself(void **state) {
  (void)state;
  const char *uri = address("alone", "");
  kit k = opened(uri), other;
  ear *e = ear_open(&k);
  k.plugin->disconnect(k.handle);
  pid_t pid = child();
  if (pid == 0) {
    other = opened(uri);
    put(&other, "k", 'x', 10);
    closed(&other);
    _exit(0);
  }
  assert_int_equal(ended(pid), 0);
  is_told(e, "k");
  ear_close(e);
  k.plugin->close(k.store);
}

static void a_watch_ends_when_it_is_stopped_and_by_its_time(void **state) {
  (void)state;
  kit k = opened(address("ends", ""));
  check_end(&k);
  closed(&k);
}

static void a_watch_rests_while_nothing_happens(void **state) {
  (void)state;
  kit k = opened(address("rests", ""));
  check_rest(&k);
  closed(&k);
}

static void an_eviction_is_told_and_the_end_of_a_life_is_not(void **state) {
  (void)state;
  kit k = opened(address("evicts", "?size=1m"));
  ear *e = ear_open(&k);
  char key[32];
  for (unsigned i = 0; i < 600; i++) {
    put(&k, numbered(key, "k", i), 'x', 3000);
    catch_up(e);
  }
  unsigned gone = 0;
  for (unsigned i = 0; i < 600; i++) {
    int present = verb(&k, CORRAL_VERB_GET, numbered(key, "k", i), 0) == CORRAL_OK;
    assert_int_equal(times_told(e, key), present ? 2 : 3);
    gone += !present;
  }
  assert_true(gone > 100);
  assert_int_equal(invalidate(&k, "soon", 1), CORRAL_OK);
  for (int64_t from = k.host->boot_ms(); k.host->boot_ms() < from + 2;) sched_yield();
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "sweeps", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "soon", 0), CORRAL_EMISS);
  catch_up(e);
  assert_int_equal(times_told(e, "soon"), 1);
  ear_close(e);
  closed(&k);
}

static void a_batch_of_many_is_told(void **state) {
  (void)state;
  enum { MANY = 200 };
  kit k = opened(address("told-batch", ""));
  ear *e = ear_open(&k);
  static char keys[MANY][32];
  static corral_op ops[2 * MANY];
  for (unsigned i = 0; i < 2 * MANY; i++) {
    ops[i] = op_of(CORRAL_VERB_INVALIDATE, numbered(keys[i % MANY], "k", i % MANY), 0);
    ops[i].ttl_ms = 60000;
  }
  assert_int_equal(k.plugin->perform(k.handle, ops, MANY, INT64_MAX, NULL), CORRAL_OK);
  catch_up(e);
  assert_int_equal(e->count, MANY);
  for (unsigned i = 0; i < MANY; i++) assert_int_equal(times_told(e, keys[i]), 1);
  for (unsigned i = 0; i < 2 * MANY; i++) ops[i].status = CORRAL_EUNKNOWN;
  e->count = 0;
  assert_int_equal(k.plugin->perform(k.handle, ops, 2 * MANY, INT64_MAX, NULL), CORRAL_OK);
  catch_up(e);
  assert_true(any_told(e));
  ear_close(e);
  closed(&k);
}

static void a_renewed_lease_frees_its_byte(void **state) {
  (void)state;
  kit k = opened(address("renewed", ""));
  put(&k, "k", 'x', 3000);
  int fd = open(file("renewed-lease"), O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1};
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
  assert_int_equal(lock.l_type, F_WRLCK);
  corral_op op = op_of(CORRAL_VERB_RENEW, "k", 1);
  op.ttl_ms = 6000000;
  assert_int_equal(run(&k, &op), CORRAL_OK);
  lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1};
  assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
  assert_int_equal(lock.l_type, F_UNLCK);
  op = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_true(op.life_ms > 600000 && op.found_len == CORRAL_HEADER + 3000);
  done(&op);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "bare", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_RENEW, "bare", 1), CORRAL_EMISS);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "bare", 2), CORRAL_EBUSY);
  close(fd);
  closed(&k);
}

static void where_no_file_can_be_mapped_there_is_no_watch(void **state) {
  (void)state;
  corral_error error = {0};
  void *watch;
  assert_int_equal(mkdir(file("mapless-watch"), 0700), 0);
  kit k = opened(address("mapless", ""));
  assert_int_equal(k.plugin->watch(k.store, 0, INT64_MAX, &watch, &error), CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "mapless-watch"));
  assert_int_equal(look_flags(&k, "k", CORRAL_OP_WATCH), CORRAL_OP_WATCH);
  put(&k, "k", 'x', 10);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  closed(&k);
  write_file(file("mine-watch"), "a diary");
  k = opened(address("mine", ""));
  assert_int_equal(k.plugin->watch(k.store, 0, INT64_MAX, &watch, &error), CORRAL_EUNSUPPORTED);
  closed(&k);
  struct stat st;
  assert_int_equal(stat(file("mine-watch"), &st), 0);
  assert_int_equal(st.st_size, 7);
  assert_int_equal(rmdir(file("mapless-watch")), 0);
  k = opened(address("mapless", ""));
  ear_close(ear_open(&k));
  assert_int_equal(stat(file("mapless-watch"), &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_int_equal(stat(file("mapless-watch.new"), &st), -1);
  closed(&k);
}

/* What watch.c keeps in PATH-watch, as far as a killed writer leaves traces in it. */
typedef struct ring {
  _Atomic uint32_t head, waiting, bell;
} ring;

static ring *ring_of(const char *path) {
  int fd = open(path, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  ring *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(r, MAP_FAILED);
  close(fd);
  return r;
}

static void a_change_whose_teller_was_killed_halfway_is_told_as_any(void **state) {
  (void)state;
  kit k = opened(address("halfway", ""));
  ring *r = ring_of(file("halfway-watch"));
  ear *e = ear_open(&k);
  for (unsigned round = 0; round < 3; round++) { /* the second time around the ring the slot has old contents */
    e->count = 0;
    atomic_fetch_add(&r->head, 1);
    put(&k, "k", 'x', 10);
    catch_up(e);
    assert_true(any_told(e));
    e->count = 0;
    put(&k, "after", 'x', 10);
    catch_up(e);
    assert_int_equal(times_told(e, "after"), 2);
    assert_false(any_told(e));
    for (unsigned i = 0; i < 4096 - 10; i++) (void)invalidate(&k, "fill", 60000 + i);
    forget(e);
  }
  munmap(r, sizeof *r);
  ear_close(e);
  closed(&k);
}

static void a_watch_that_falls_behind_is_told_any(void **state) {
  (void)state;
  kit k = opened(address("behind", ""));
  ring *r = ring_of(file("behind-watch"));
  ear *e = ear_open(&k);
  assert_int_equal(listen_until(e, -1, 0), 0);
  for (unsigned i = 0; i < 4096; i++) (void)invalidate(&k, "full", 60000);
  catch_up(e);
  assert_int_equal(times_told(e, "full"), 4096);
  assert_false(any_told(e));
  for (unsigned i = 0; i < 4097; i++) (void)invalidate(&k, "more", 60000);
  catch_up(e);
  assert_int_equal(times_told(e, "more"), 0);
  assert_true(any_told(e));
  ear_close(e);
  atomic_store(&r->head, UINT32_MAX - 1); /* numbers begin again at zero */
  e = ear_open(&k);
  for (unsigned i = 0; i < 5; i++) (void)invalidate(&k, "around", 60000);
  catch_up(e);
  assert_int_equal(times_told(e, "around"), 5);
  assert_false(any_told(e));
  munmap(r, sizeof *r);
  ear_close(e);
  closed(&k);
}

static void a_child_of_a_fork_ends_a_watch_without_harm(void **state) {
  (void)state;
  kit k = opened(address("watched-fork", ""));
  ear *e = ear_open(&k);
  pid_t pid = child();
  if (pid == 0) {
    k.plugin->unwatch(e->watch);
    _exit(0);
  }
  assert_int_equal(ended(pid), 0);
  put(&k, "k", 'x', 10);
  is_told(e, "k");
  ear_close(e);
  closed(&k);
}

/* Says in `led` that it listens; ends well when it is told of `key`. */
static pid_t listener(const char *uri, const char *key, board *b) {
  pid_t pid = child();
  if (pid == 0) {
    kit k;
    if (kit_open(&k, uri, NULL) != CORRAL_OK) _exit(1);
    ear *e = ear_open(&k);
    atomic_fetch_add(&b->led, 1);
    int heard = hears_of(e, key);
    ear_close(e);
    closed(&k);
    _exit(heard ? 0 : 1);
  }
  return pid;
}

static void watches_of_many_processes_are_told_also_when_some_are_killed(void **state) {
  (void)state;
  enum { LISTENERS = 4 };
  board *b = new_board();
  char uri[256];
  pid_t pids[LISTENERS];
  snprintf(uri, sizeof uri, "%s", address("listeners", ""));
  kit k = opened(uri);
  for (unsigned i = 0; i < LISTENERS; i++) pids[i] = listener(uri, i == 0 ? "never" : "k", b);
  while (atomic_load(&b->led) < LISTENERS) sched_yield();
  kill(pids[0], SIGKILL);
  ended(pids[0]);
  put(&k, "k", 'x', 10);
  for (unsigned i = 1; i < LISTENERS; i++) assert_int_equal(ended(pids[i]), 0);
  ear *e = ear_open(&k);
  put(&k, "l", 'x', 10);
  is_told(e, "l");
  ear_close(e);
  closed(&k);
  munmap(b, sizeof *b);
}

static void change_for_ever(const char *uri, board *b) {
  kit k;
  if (kit_open(&k, uri, NULL) != CORRAL_OK) _exit(1);
  for (;; atomic_fetch_add(&b->led, 1)) (void)invalidate(&k, "other", 60000);
}

static void writers_killed_at_any_moment_leave_a_watch_that_works(void **state) {
  (void)state;
  board *b = new_board();
  char uri[256], key[32];
  snprintf(uri, sizeof uri, "%s", address("killed-tellers", ""));
  kit k = opened(uri);
  ear *e = ear_open(&k);
  for (unsigned round = 0; round < 40; round++) {
    unsigned before = atomic_load(&b->led);
    pid_t pid = child();
    if (pid == 0) change_for_ever(uri, b);
    while (atomic_load(&b->led) < before + 10 + round * 7) (void)listen_until(e, -1, k.host->now_ms() + 1);
    kill(pid, SIGKILL);
    ended(pid);
    forget(e);
    put(&k, numbered(key, "k", round), 'x', 100);
    is_told(e, key);
    assert_int_equal(times_told(e, "other"), 0);
  }
  ear_close(e);
  closed(&k);
  munmap(b, sizeof *b);
}

enum { CALLS = 500 };

typedef struct call {
  _Atomic int64_t called_us;
  atomic_uint ready, heard;
} call;

static void call_often(const char *uri, call *c) {
  kit k;
  if (kit_open(&k, uri, NULL) != CORRAL_OK) _exit(1);
  while (atomic_load(&c->ready) == 0) sched_yield();
  for (unsigned i = 0; i < CALLS; i++) {
    crl_env_sleep_until(crl_env_now_ms() + 1); /* the watch is asleep by then, mostly */
    atomic_store(&c->called_us, crl_env_now_us());
    (void)invalidate(&k, "call", 60000);
    while (atomic_load(&c->heard) <= i) sched_yield();
  }
  closed(&k);
  _exit(0);
}

static void a_change_wakes_a_watch_of_another_process_soon(void **state) {
  (void)state;
  static int64_t us[CALLS];
  char uri[256];
  call *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(c, MAP_FAILED);
  snprintf(uri, sizeof uri, "%s", address("calls", ""));
  pid_t pid = child();
  if (pid == 0) call_often(uri, c);
  kit k = opened(uri);
  ear *e = ear_open(&k);
  atomic_store(&c->ready, 1);
  for (unsigned i = 0; i < CALLS; i++) {
    assert_int_equal(listen_until(e, -1, soon(&k)), 1);
    us[i] = crl_env_now_us() - atomic_load(&c->called_us);
    atomic_store(&c->heard, i + 1);
  }
  assert_int_equal(times_told(e, "call"), CALLS);
  assert_int_equal(ended(pid), 0);
  check_times("lmdb: from a change in another process to its being told", us, CALLS);
  ear_close(e);
  closed(&k);
  munmap(c, sizeof *c);
}

/* Each of a thread's own changes is told, or "any" is, whatever the others do. */
static void what_many_processes_change_at_once_is_told(void **state) {
  (void)state;
  enum { WRITERS = 3 };
  board *b = new_board();
  char uri[256], key[32];
  pid_t pids[WRITERS];
  snprintf(uri, sizeof uri, "%s", address("tellers", ""));
  kit k = opened(uri);
  ear *e = ear_open(&k);
  for (unsigned i = 0; i < WRITERS; i++)
    if ((pids[i] = child()) == 0) change_for_ever(uri, b);
  while (atomic_load(&b->led) < 100) sched_yield();
  for (unsigned i = 0; i < 200; i++) {
    e->count = 0;
    (void)invalidate(&k, numbered(key, "k", i), 60000);
    int64_t until = soon(&k);
    while (times_told(e, key) == 0 && !any_told(e) && k.host->now_ms() < until) (void)listen_until(e, -1, until);
    assert_true(times_told(e, key) > 0 || any_told(e));
  }
  for (unsigned i = 0; i < WRITERS; i++) {
    kill(pids[i], SIGKILL);
    ended(pids[i]);
  }
  ear_close(e);
  closed(&k);
  munmap(b, sizeof *b);
}

/* ---- users' locks ---------------------------------------------------------------------------------------- */

static corral_host later_host;
static int64_t later_ms;

static int64_t later_boot_ms(void) { return crl_registry_host()->boot_ms() + later_ms; }

/* Rows of a table of a file that nobody has open. */
static size_t rows_of(const char *path, const char *table) {
  MDB_env *env;
  MDB_txn *txn;
  MDB_dbi dbi;
  MDB_stat st = {0};
  assert_int_equal(mdb_env_create(&env), 0);
  assert_int_equal(mdb_env_set_maxdbs(env, 8), 0);
  assert_int_equal(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY, 0600), 0);
  assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
  assert_int_equal(mdb_dbi_open(txn, table, 0, &dbi), 0);
  assert_int_equal(mdb_stat(txn, dbi, &st), 0);
  mdb_txn_abort(txn);
  mdb_env_close(env);
  return st.ms_entries;
}

static void locks_that_nobody_held_for_a_while_are_swept(void **state) {
  (void)state;
  enum { LOCKS = 40 };
  kit k = {.host = &later_host};
  crl_uri parsed;
  corral_store_info info = {.size = sizeof info};
  char key[32];
  later_host = *crl_registry_host();
  later_host.boot_ms = later_boot_ms;
  later_ms = 0;
  assert_int_equal(crl_uri_parse(&parsed, address("swept", ""), NULL), CORRAL_OK);
  assert_int_equal(crl_registry_find("lmdb", &k.plugin, NULL), CORRAL_OK);
  assert_int_equal(k.plugin->open(&later_host, &parsed.view, &k.store, &info, NULL), CORRAL_OK);
  crl_uri_free(&parsed);
  assert_int_equal(k.plugin->connect(k.store, INT64_MAX, &k.handle, NULL), CORRAL_OK);
  for (unsigned i = 0; i < LOCKS; i++) {
    assert_int_equal(verb(&k, CORRAL_VERB_LOCK, numbered(key, "lock", i), 1), CORRAL_OK);
    assert_int_equal(verb(&k, CORRAL_VERB_LOCK_EXTEND, key, 1), CORRAL_OK);
  }
  later_ms = 60000 + CORRAL_LOCK_MEMORY_MS + 1000;
  put(&k, "value", 'x', 10);
  for (unsigned i = 0; i < LOCKS / 8 + 1; i++) assert_int_equal(verb(&k, CORRAL_VERB_EXPIRE, "value", 1), CORRAL_OK);
  closed(&k);
  assert_int_equal(rows_of(file("swept"), "corral.heads"), 1);
  assert_int_equal(rows_of(file("swept"), "corral.index"), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_settled_value_is_found_again),
      cmocka_unit_test(one_claim_wins_and_the_other_is_told_what_is_left),
      cmocka_unit_test(an_invalidation_is_remembered_until_a_fill),
      cmocka_unit_test(a_lease_that_ran_out_goes_to_the_next_and_the_first_is_fenced),
      cmocka_unit_test(operations_of_a_batch_see_each_other),
      cmocka_unit_test(two_corrals_of_a_process_share_one_file),
      cmocka_unit_test(a_killed_leader_is_replaced_at_once),
      cmocka_unit_test(a_mark_survives_the_leader_that_died_over_it),
      cmocka_unit_test(a_child_that_a_dead_leader_forked_does_not_keep_its_lease),
      cmocka_unit_test(of_many_processes_one_leads_at_a_time),
      cmocka_unit_test(processes_killed_at_any_moment_leave_a_store_that_works),
      cmocka_unit_test(a_process_with_a_larger_map_is_followed),
      cmocka_unit_test(a_full_map_evicts_and_goes_on),
      cmocka_unit_test(a_full_map_of_large_values_evicts_too),
      cmocka_unit_test(a_map_full_of_marks_still_takes_values),
      cmocka_unit_test(a_map_full_of_live_leases_still_takes_new_ones),
      cmocka_unit_test(a_value_too_big_is_refused_and_the_old_one_stays),
      cmocka_unit_test(a_reader_that_hangs_is_named_and_a_dead_one_is_cleared),
      cmocka_unit_test(a_full_disk_is_an_error_and_not_a_signal),
      cmocka_unit_test(what_another_boot_left_is_dropped),
      cmocka_unit_test(a_truncated_file_is_refused),
      cmocka_unit_test(somebody_elses_file_is_refused_and_left_alone),
      cmocka_unit_test(somebody_elses_database_is_refused),
      cmocka_unit_test(missing_folders_are_made_for_this_user_alone),
      cmocka_unit_test(a_link_leads_to_the_same_store),
      cmocka_unit_test(places_where_no_file_can_be_are_named),
      cmocka_unit_test(a_folder_without_write_permission_is_named),
      cmocka_unit_test(threads_have_one_leader_too),
      cmocka_unit_test(each_change_is_told),
      cmocka_unit_test(a_look_is_watched_while_a_watch_is_open),
      cmocka_unit_test(a_watch_keeps_the_file_open_by_itself),
      cmocka_unit_test(a_watch_ends_when_it_is_stopped_and_by_its_time),
      cmocka_unit_test(a_watch_rests_while_nothing_happens),
      cmocka_unit_test(an_eviction_is_told_and_the_end_of_a_life_is_not),
      cmocka_unit_test(a_batch_of_many_is_told),
      cmocka_unit_test(a_renewed_lease_frees_its_byte),
      cmocka_unit_test(where_no_file_can_be_mapped_there_is_no_watch),
      cmocka_unit_test(a_change_whose_teller_was_killed_halfway_is_told_as_any),
      cmocka_unit_test(a_watch_that_falls_behind_is_told_any),
      cmocka_unit_test(a_child_of_a_fork_ends_a_watch_without_harm),
      cmocka_unit_test(watches_of_many_processes_are_told_also_when_some_are_killed),
      cmocka_unit_test(writers_killed_at_any_moment_leave_a_watch_that_works),
      cmocka_unit_test(a_change_wakes_a_watch_of_another_process_soon),
      cmocka_unit_test(what_many_processes_change_at_once_is_told),
      cmocka_unit_test(locks_that_nobody_held_for_a_while_are_swept),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
