/* test_lmdb_ties.c: holds of an lmdb: store, through its table, that are tied to their process, and
 * that are not. */
#include <sys/stat.h>

#include "support/lmdb_kit.h"

enum { READERS = 300, MOST_TRIES = 10000 };

static int lock_as(const kit *k, unsigned holder, uint32_t flags) {
  corral_op op = op_of(CORRAL_VERB_LOCK, "l", holder);
  op_lasts(&op, 3600000);
  op.flags = flags;
  return run(k, &op);
}

static int extends(const kit *k, unsigned holder, uint32_t flags) {
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "l", holder);
  op_lasts(&op, 3600000);
  op.flags = flags;
  return run(k, &op);
}

/* Performs LOCKs in a process, for `count` holders from `first` on, and has it killed then. */
static void held_by_a_dead_process(const char *uri, unsigned first, unsigned count,
                                   uint32_t flags) {
  pid_t pid = child();
  if (pid == 0) {
    kit k;
    if (kit_open(&k, uri, NULL) != CORRAL_OK) _exit(1);
    for (unsigned i = 0; i < count; i++)
      if (lock_as(&k, first + i, flags) != CORRAL_OK) _exit(1);
    kill(getpid(), SIGKILL);
  }
  int end = ended(pid);
  assert_true(WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL);
}

static int asked_elsewhere(const char *uri) {
  pid_t pid = child();
  if (pid == 0) {
    kit k;
    _exit(kit_open(&k, uri, NULL) == CORRAL_OK ? lock_as(&k, 999, 0) : 99);
  }
  int end = ended(pid);
  assert_true(WIFEXITED(end));
  return (int8_t)WEXITSTATUS(end);
}

/* So is that of an older version. */
static void a_hold_that_is_not_tied_outlasts_its_process(void **state) {
  (void)state;
  char uri[256];
  snprintf(uri, sizeof uri, "%s", address("untied", ""));
  held_by_a_dead_process(uri, 1, 1, 0);
  kit k = opened(uri);
  for (int i = 0; i < 20; i++) assert_int_equal(lock_as(&k, 2, CORRAL_OP_TIED), CORRAL_EBUSY);
  assert_int_equal(verb(&k, CORRAL_VERB_UNLOCK, "l", 1), CORRAL_OK);
  held_by_a_dead_process(uri, 1, 1, CORRAL_OP_TIED);
  assert_int_equal(lock_as(&k, 2, CORRAL_OP_TIED), CORRAL_OK);
  closed(&k);
}

/* A refused LOCK looks at a part of many holds. */
static void the_dead_among_many_living_readers_are_found(void **state) {
  (void)state;
  char uri[256];
  int tries = 0;
  snprintf(uri, sizeof uri, "%s", address("readers", ""));
  kit k = opened(uri);
  for (unsigned i = 0; i < READERS / 2; i++)
    assert_int_equal(lock_as(&k, 1 + i, CORRAL_OP_SHARED | CORRAL_OP_TIED), CORRAL_OK);
  held_by_a_dead_process(uri, 5001, READERS, CORRAL_OP_SHARED | CORRAL_OP_TIED);
  for (unsigned i = READERS / 2; i < READERS; i++)
    assert_int_equal(lock_as(&k, 1 + i, CORRAL_OP_SHARED | CORRAL_OP_TIED), CORRAL_OK);
  assert_int_equal(lock_as(&k, 4999, CORRAL_OP_TIED), CORRAL_EBUSY);
  for (unsigned i = 0; i < READERS; i++)
    assert_int_equal(verb(&k, CORRAL_VERB_UNLOCK, "l", 1 + i), CORRAL_OK);
  while (lock_as(&k, 4999, CORRAL_OP_TIED) != CORRAL_OK) {
    assert_true(++tries < MOST_TRIES);
    usleep(1000);
  }
  closed(&k);
}

/* The core does so after a fault; the store itself stays open. */
static void connect_anew(kit *k) {
  k->plugin->disconnect(k->handle);
  assert_int_equal(k->plugin->connect(k->store, INT64_MAX, &k->handle, NULL), CORRAL_OK);
}

/* A store breaks, and its files are opened anew, while its process has holds. */
static void a_hold_stays_when_its_process_opens_the_files_anew(void **state) {
  (void)state;
  char uri[256];
  snprintf(uri, sizeof uri, "%s", address("anew", ""));
  int first = open_descriptors();
  kit k = opened(uri);
  assert_int_equal(lock_as(&k, 1, CORRAL_OP_TIED), CORRAL_OK);
  k.plugin->disconnect(k.handle);
  assert_int_equal(asked_elsewhere(uri), CORRAL_EBUSY);
  assert_int_equal(k.plugin->connect(k.store, INT64_MAX, &k.handle, NULL), CORRAL_OK);
  assert_int_equal(asked_elsewhere(uri), CORRAL_EBUSY);
  assert_int_equal(extends(&k, 1, 0), CORRAL_OK);
  assert_int_equal(lock_as(&k, 2, CORRAL_OP_TIED), CORRAL_EBUSY);
  assert_int_equal(verb(&k, CORRAL_VERB_UNLOCK, "l", 1), CORRAL_OK);
  int before = open_descriptors();
  for (int i = 0; i < 3; i++) {
    assert_int_equal(lock_as(&k, 2, CORRAL_OP_TIED), CORRAL_OK);
    assert_int_equal(verb(&k, CORRAL_VERB_UNLOCK, "l", 2), CORRAL_OK);
    connect_anew(&k);
  }
  assert_int_equal(open_descriptors(), before);
  closed(&k);
  assert_int_equal(open_descriptors(), first);
}

/* Nobody believes in a hold when its corral is closed. */
static void holds_that_were_not_given_back_leave_no_descriptor(void **state) {
  (void)state;
  char uri[256];
  snprintf(uri, sizeof uri, "%s", address("left", ""));
  int first = open_descriptors();
  kit k = opened(uri);
  for (unsigned i = 0; i < 3; i++) {
    assert_int_equal(lock_as(&k, 1 + i, CORRAL_OP_SHARED | CORRAL_OP_TIED), CORRAL_OK);
    connect_anew(&k);
  }
  assert_true(open_descriptors() > first);
  closed(&k);
  assert_int_equal(open_descriptors(), first);
}

/* Holds a lock, closes its files, and is killed when a child of it has begun, which lives until the
 * last writing end of `lives` is closed. */
static void hold_close_and_fork(const char *uri, const int *lives) {
  int begun[2];
  char byte;
  kit k = opened(uri);
  if (lock_as(&k, 1, CORRAL_OP_TIED) != CORRAL_OK || pipe(begun) != 0) _exit(1);
  k.plugin->disconnect(k.handle);
  pid_t pid = fork();
  if (pid == 0) {
    close(lives[1]);
    _exit(write(begun[1], "", 1) != 1 || read(lives[0], &byte, 1) != 0);
  }
  if (read(begun[0], &byte, 1) != 1) _exit(1);
  kill(getpid(), SIGKILL);
}

static void a_child_keeps_no_hold_of_files_that_its_dead_parent_had_closed(void **state) {
  (void)state;
  char uri[256];
  int lives[2];
  snprintf(uri, sizeof uri, "%s", address("orphan", ""));
  kit k = opened(uri);
  assert_int_equal(pipe(lives), 0);
  pid_t pid = child();
  if (pid == 0) hold_close_and_fork(uri, lives);
  int end = ended(pid);
  assert_true(WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL);
  assert_int_equal(lock_as(&k, 2, CORRAL_OP_TIED), CORRAL_OK);
  close(lives[0]);
  close(lives[1]);
  closed(&k);
}

/* Has another file under each number that was a regular file's, and a child. 0: the child has all
 * of them. */
static int reuse_and_fork(void) {
  int numbers[64], count = 0, null = open("/dev/null", O_RDONLY);
  for (int fd = STDERR_FILENO + 1; fd < 1024 && count < 64; fd++) {
    struct stat it;
    if (fstat(fd, &it) == 0 && S_ISREG(it.st_mode) && dup2(null, fd) == fd) numbers[count++] = fd;
  }
  pid_t pid = fork();
  if (pid == 0) {
    for (int i = 0; i < count; i++)
      if (fcntl(numbers[i], F_GETFD) < 0) _exit(1);
    _exit(0);
  }
  return count == 0 || ended(pid) != 0;
}

static void a_child_has_the_files_that_took_the_numbers_of_the_stores(void **state) {
  (void)state;
  char uri[256];
  snprintf(uri, sizeof uri, "%s", address("reused", ""));
  pid_t pid = child();
  if (pid == 0) {
    kit k = opened(uri);
    _exit(lock_as(&k, 1, CORRAL_OP_TIED) != CORRAL_OK || reuse_and_fork());
  }
  assert_int_equal(ended(pid), 0);
}

static void a_hold_that_was_untied_outlasts_its_process(void **state) {
  (void)state;
  char uri[256];
  snprintf(uri, sizeof uri, "%s", address("loose", ""));
  pid_t pid = child();
  if (pid == 0) {
    kit k;
    int is_done = kit_open(&k, uri, NULL) == CORRAL_OK &&
                  lock_as(&k, 1, CORRAL_OP_TIED) == CORRAL_OK &&
                  extends(&k, 1, CORRAL_OP_LOOSE) == CORRAL_OK && extends(&k, 1, 0) == CORRAL_OK;
    _exit(!is_done);
  }
  assert_int_equal(ended(pid), 0);
  assert_int_equal(asked_elsewhere(uri), CORRAL_EBUSY);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hold_that_is_not_tied_outlasts_its_process),
      cmocka_unit_test(the_dead_among_many_living_readers_are_found),
      cmocka_unit_test(a_hold_stays_when_its_process_opens_the_files_anew),
      cmocka_unit_test(holds_that_were_not_given_back_leave_no_descriptor),
      cmocka_unit_test(a_child_keeps_no_hold_of_files_that_its_dead_parent_had_closed),
      cmocka_unit_test(a_child_has_the_files_that_took_the_numbers_of_the_stores),
      cmocka_unit_test(a_hold_that_was_untied_outlasts_its_process),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
