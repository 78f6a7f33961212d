/* test_hostlock.c: the host lock: an election among processes and threads by one byte of a lock
 * file. Processes synchronize by pipes.
 *
 * The source of the lock is included under other names, so that a test can set the parents of
 * default folders, and act just before a lock is set and during a wait. */
#include <fcntl.h>

#include "env.h"

static int hooked_fcntl(int fd, int command, void *lock);
static void hooked_sleep(int64_t us);

#define crl_env_pause_us(us) hooked_sleep(us)
#define fcntl(fd, command, lock) hooked_fcntl(fd, command, lock)
#define crl_hostlock_new own_hostlock_new
#define crl_hostlock_free own_hostlock_free
#define crl_hostlock_take own_hostlock_take
#define crl_hostlock_give own_hostlock_give
#define crl_hostlock_wait own_hostlock_wait
#define crl_hostlock_is_held own_hostlock_is_held
#define crl_hostlock_note own_hostlock_note
#define crl_hostlock_noted own_hostlock_noted
#define crl_hostlock_erase own_hostlock_erase
#include "hostlock.c" /* NOLINT(bugprone-suspicious-include) */
#undef fcntl
#undef crl_env_pause_us

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FAR = 60000, SOON_US = 100000, CROWD = 6, ROUNDS = 100 };

static void (*before_lock)(void);

static int hooked_fcntl(int fd, int command, void *lock) {
  if (command == F_OFD_SETLK && before_lock != NULL) before_lock();
  return fcntl(fd, command, lock);
}

static int64_t naps[16];
static int nap_count = -1, nap_hold; /* recorded naps; nap_count -1: naps are real */

/* Records the nap; the last one that fits into `naps` gives back the hold. */
static void hooked_sleep(int64_t us) {
  if (nap_count < 0) {
    crl_env_pause_us(us);
    return;
  }
  naps[nap_count++] = us;
  if (nap_count == sizeof naps / sizeof *naps) crl_hostlock_give(nap_hold);
}

static int64_t later(int64_t ms) { return crl_env_now_ms() + ms; }

/* ---- folders ------------------------------------------------------------------------------- */

static char named[32], base[32]; /* a folder named by the user; the parent of default folders */

static int make_folders(void **state) {
  (void)state;
  snprintf(named, sizeof named, "hostlock_named_XXXXXX");
  snprintf(base, sizeof base, "hostlock_base_XXXXXX");
  unsetenv("CORRAL_HOST_DIR");
  return mkdtemp(named) == NULL || mkdtemp(base) == NULL;
}

/* The path of a file in a folder; the last four returned paths are valid. */
static const char *in(const char *folder, const char *name) {
  static char paths[4][128];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static const char *own_folder(void) {
  char name[32];
  snprintf(name, sizeof name, "corral-%lu", (unsigned long)geteuid());
  return in(base, name);
}

static void clear(const char *path) {
  assert_true(unlink(path) == 0 || rmdir(path) == 0 || errno == ENOENT);
}

/* Teardown: removes the lock files; fails if other files are left. */
static int remove_folders(void **state) {
  (void)state;
  clear(in(named, LOCK_FILE));
  clear(in(own_folder(), LOCK_FILE));
  clear(own_folder());
  return rmdir(named) != 0 || rmdir(base) != 0;
}

static mode_t mode_of(const char *path) {
  struct stat st;
  assert_int_equal(lstat(path, &st), 0);
  return st.st_mode & 0777;
}

static int exists(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0;
}

static void make_file(const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  assert_true(fd >= 0);
  close(fd);
}

/* ---- error texts --------------------------------------------------------------------------- */

static crl_hostlock *lock_of(const char *folder, const char *scope) {
  crl_hostlock *lock = crl_hostlock_new(folder, scope);
  assert_non_null(lock);
  lock->bases[0] = base;
  lock->bases[1] = "/proc/self/no such folder";
  return lock;
}

static int take(crl_hostlock *lock, const char *key, int *hold) {
  return crl_hostlock_take(lock, key, strlen(key), hold, NULL);
}

static void wait_until(crl_hostlock *lock, const char *key, int64_t until) {
  crl_hostlock_wait(lock, key, strlen(key), until, NULL);
}

static void assert_held(crl_hostlock *lock, const char *key) {
  int hold = -1;
  assert_int_equal(take(lock, key, &hold), CORRAL_EBUSY);
  assert_int_equal(hold, -1);
}

static void assert_free(crl_hostlock *lock, const char *key) {
  int hold = -1;
  assert_int_equal(take(lock, key, &hold), CORRAL_OK);
  crl_hostlock_give(hold);
}

static void assert_no_rung(crl_hostlock *lock, const char *where, const char *why) {
  int hold = -1;
  corral_error error = {0};
  assert_int_equal(crl_hostlock_take(lock, "k", 1, &hold, &error), CORRAL_EIO);
  assert_int_equal(error.status, CORRAL_EIO);
  if (strstr(error.text, where) == NULL || strstr(error.text, why) == NULL)
    fail_msg("'%s' and '%s' in: %s", where, why, error.text);
  assert_int_equal(hold, -1);
  wait_until(lock, "k", later(FAR)); /* must return at once */
}

/* ---- processes ----------------------------------------------------------------------------- */

typedef struct process {
  pid_t pid;
  int out, in; /* this side's ends of two pipes */
  crl_hostlock *lock;
} process;

static void say(const process *p) {
  if (write(p->out, "x", 1) != 1) abort();
}

/* Waits for a byte; 0: the other side has closed the pipe. */
static int hear(const process *p) {
  char c;
  return read(p->in, &c, 1) == 1;
}

static void start(process *p, crl_hostlock *lock, int (*act)(process *p)) {
  int there[2], back[2];
  assert_int_equal(pipe2(there, O_CLOEXEC), 0);
  assert_int_equal(pipe2(back, O_CLOEXEC), 0);
  p->lock = lock;
  p->pid = fork();
  assert_true(p->pid >= 0);
  p->out = p->pid == 0 ? back[1] : there[1];
  p->in = p->pid == 0 ? there[0] : back[0];
  close(p->pid == 0 ? back[0] : back[1]);
  close(p->pid == 0 ? there[1] : there[0]);
  if (p->pid != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  _exit(act(p));
}

/* Waits for the end of the process. Returns its exit status, or 128 + signal. */
static int end(process *p) {
  int status;
  close(p->out);
  assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
  close(p->in);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Takes the lock, reports it, waits for a byte, gives the lock back, and reports that. */
static int holder(process *p) {
  int hold;
  if (take(p->lock, "k", &hold) != CORRAL_OK) return 1;
  say(p);
  if (!hear(p)) return 2;
  crl_hostlock_give(hold);
  say(p);
  return hear(p) ? 3 : 0; /* until the parent closes the pipe */
}

/* ---- holders ------------------------------------------------------------------------------- */

static void two_holds_of_one_process_exclude_each_other(void **state) {
  (void)state;
  int hold;
  crl_hostlock *lock = lock_of(named, "s"), *same = lock_of(named, "s");
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  assert_held(lock, "k");
  assert_held(same, "k");
  crl_hostlock_give(hold);
  assert_free(same, "k");
  assert_free(lock, "k");
  crl_hostlock_free(lock);
  crl_hostlock_free(same);
}

static void another_key_and_another_scope_are_free(void **state) {
  (void)state;
  int hold, other_key, other_scope;
  crl_hostlock *lock = lock_of(named, "store"), *other = lock_of(named, "storek");
  assert_int_equal(take(lock, "kk", &hold), CORRAL_OK);
  assert_int_equal(take(lock, "k", &other_key), CORRAL_OK);
  /* its scope and key, joined, are the same bytes as those of the first hold */
  assert_int_equal(take(other, "k", &other_scope), CORRAL_OK);
  assert_free(lock, "");
  assert_free(other, "kk");
  crl_hostlock_give(other_key);
  assert_held(lock, "kk");
  assert_held(other, "k");
  crl_hostlock_give(hold);
  crl_hostlock_give(other_scope);
  crl_hostlock_free(lock);
  crl_hostlock_free(other);
}

static void every_key_has_a_byte_that_can_be_locked(void **state) {
  (void)state;
  crl_hostlock *lock = lock_of(named, "s");
  for (int key = 0; key < 10000; key++) {
    struct flock byte = byte_of(lock, &key, sizeof key);
    assert_true(byte.l_start >= 0 && byte.l_start < INT64_MAX && byte.l_len == 1);
  }
  crl_hostlock_free(lock);
}

static void two_processes_exclude_each_other(void **state) {
  (void)state;
  process p;
  crl_hostlock *lock = lock_of(named, "s");
  start(&p, lock, holder);
  assert_true(hear(&p));
  assert_held(lock, "k");
  assert_free(lock, "other");
  say(&p);
  assert_true(hear(&p));
  assert_free(lock, "k");
  assert_int_equal(end(&p), 0);
  crl_hostlock_free(lock);
}

/* ---- crowds -------------------------------------------------------------------------------- */

typedef struct shared {
  _Atomic int inside, rounds, wrong;
  _Atomic int64_t taken_us;
} shared;

static shared *board;

static int make_board(void **state) {
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return board == MAP_FAILED || make_folders(state) != 0;
}

static int remove_board(void **state) {
  return munmap(board, sizeof *board) != 0 || remove_folders(state) != 0;
}

static void take_often(crl_hostlock *lock) {
  for (int i = 0; i < ROUNDS;) {
    int hold, status = take(lock, "k", &hold);
    if (status == CORRAL_EBUSY) wait_until(lock, "k", later(FAR));
    if (status == CORRAL_EBUSY) continue;
    if (status != CORRAL_OK || atomic_fetch_add(&board->inside, 1) != 0)
      atomic_fetch_add(&board->wrong, 1);
    i++;
    atomic_fetch_add(&board->rounds, 1);
    sched_yield();
    if (status != CORRAL_OK) continue;
    atomic_fetch_sub(&board->inside, 1);
    crl_hostlock_give(hold);
  }
}

static void *crowd_thread(void *arg) {
  take_often(arg);
  return NULL;
}

static int crowd_process(process *p) {
  take_often(p->lock);
  return 0;
}

static void of_a_crowd_of_threads_one_at_a_time_has_it(void **state) {
  (void)state;
  pthread_t threads[CROWD];
  crl_hostlock *lock = lock_of(named, "s");
  for (int i = 0; i < CROWD; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, crowd_thread, lock), 0);
  for (int i = 0; i < CROWD; i++) pthread_join(threads[i], NULL);
  assert_int_equal(board->wrong, 0);
  assert_int_equal(board->rounds, CROWD * ROUNDS);
  crl_hostlock_free(lock);
}

static void of_a_crowd_of_processes_one_at_a_time_has_it(void **state) {
  (void)state;
  process crowd[CROWD];
  /* the processes also create the folder at the same time */
  crl_hostlock *lock = lock_of(NULL, "s");
  for (int i = 0; i < CROWD; i++) start(&crowd[i], lock, crowd_process);
  for (int i = 0; i < CROWD; i++) assert_int_equal(end(&crowd[i]), 0);
  assert_int_equal(board->wrong, 0);
  assert_int_equal(board->rounds, CROWD * ROUNDS);
  crl_hostlock_free(lock);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Reports, waits for the lock, takes it, and records the time. */
static int successor(process *p) {
  int hold;
  say(p);
  wait_until(p->lock, "k", later(FAR));
  if (take(p->lock, "k", &hold) != CORRAL_OK) return 1;
  board->taken_us = crl_env_now_us();
  crl_hostlock_give(hold);
  return 0;
}

static void
a_wait_ends_at_once_when_nobody_has_it_and_in_time_when_somebody_keeps_it(void **state) {
  (void)state;
  int hold;
  crl_hostlock *lock = lock_of(named, "s");
  wait_until(lock, "k", INT64_MAX);
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  wait_until(lock, "other", INT64_MAX);
  wait_until(lock, "k", 0);
  int64_t until = later(15);
  wait_until(lock, "k", until);
  assert_true(crl_env_now_ms() >= until);
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
}

static void who_waits_looks_less_and_less_often_down_to_every_4_ms(void **state) {
  (void)state;
  crl_hostlock *lock = lock_of(named, "s");
  assert_int_equal(take(lock, "k", &nap_hold), CORRAL_OK);
  nap_count = 0;
  wait_until(lock, "k", later(FAR));
  assert_int_equal(nap_count, sizeof naps / sizeof *naps);
  nap_count = -1;
  for (int i = 0; i < (int)(sizeof naps / sizeof *naps); i++)
    assert_int_equal(naps[i], i < 6 ? 100 << i : 4000);
  crl_hostlock_free(lock);
}

static void who_waits_notices_that_it_was_given(void **state) {
  (void)state;
  process p;
  int hold;
  crl_hostlock *lock = lock_of(named, "s");
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  start(&p, lock, successor);
  assert_true(hear(&p));
  crl_hostlock_give(hold);
  assert_int_equal(end(&p), 0);
  crl_hostlock_free(lock);
}

static void a_killed_holder_is_replaced_at_once(void **state) {
  (void)state;
  process first, next;
  crl_hostlock *lock = lock_of(named, "s");
  start(&first, lock, holder);
  assert_true(hear(&first));
  start(&next, lock, successor);
  assert_true(hear(&next));
  wait_until(lock, "k", later(20)); /* until the other process looks at its longest interval */
  int64_t killed_us = crl_env_now_us();
  kill(first.pid, SIGKILL);
  assert_int_equal(end(&next), 0);
  assert_int_equal(end(&first), 128 + SIGKILL);
  int64_t took_us = board->taken_us - killed_us;
  printf("a killed holder was replaced after %.1f ms\n", (double)took_us / 1000);
  assert_in_range(took_us, 0, SOON_US);
  crl_hostlock_free(lock);
}

/* ---- children of a holder ------------------------------------------------------------------ */

/* Takes the lock and starts another program as its child. */
static int holder_with_command(process *p) {
  int hold;
  pid_t pid;
  char *command[] = {"cat", NULL};
  posix_spawn_file_actions_t actions;
  if (take(p->lock, "k", &hold) != CORRAL_OK || posix_spawn_file_actions_init(&actions) != 0)
    return 1;
  if (posix_spawn_file_actions_adddup2(&actions, p->in, 0) != 0) return 2;
  if (posix_spawn_file_actions_adddup2(&actions, p->out, 1) != 0) return 2;
  if (posix_spawnp(&pid, "cat", &actions, NULL, command, environ) != 0) return 3;
  for (;;) pause();
}

static void a_command_that_a_killed_holder_had_started_does_not_keep_it(void **state) {
  (void)state;
  process p;
  crl_hostlock *lock = lock_of(named, "s");
  start(&p, lock, holder_with_command);
  say(&p);
  assert_true(hear(&p)); /* the command runs */
  assert_held(lock, "k");
  kill(p.pid, SIGKILL);
  int64_t limit = later(FAR);
  wait_until(lock, "k", limit);
  assert_true(crl_env_now_ms() < limit);
  assert_free(lock, "k");
  say(&p);
  assert_true(hear(&p)); /* the command still runs */
  assert_int_equal(end(&p), 128 + SIGKILL);
  crl_hostlock_free(lock);
}

static void what_was_given_is_free_even_if_a_bare_clone_kept_the_descriptor(void **state) {
  (void)state;
  int hold, status;
  crl_hostlock *lock = lock_of(named, "s");
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* bypasses fork handlers */
  if (pid == 0) {
    for (;;) syscall(SYS_ppoll, 0, 0, 0, 0, 0);
  }
  assert_true(pid > 0);
  crl_hostlock_give(hold);
  assert_free(lock, "k");
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  crl_hostlock_free(lock);
}

/* ---- a file that is deleted ---------------------------------------------------------------- */

static int deletions;

static void delete_file(void) {
  if (deletions-- > 0) unlink(in(named, LOCK_FILE));
}

static void a_file_that_is_deleted_before_it_is_locked_is_made_anew(void **state) {
  (void)state;
  int hold;
  crl_hostlock *lock = lock_of(named, "s");
  deletions = 3;
  before_lock = delete_file;
  int status = take(lock, "k", &hold);
  before_lock = NULL;
  assert_int_equal(status, CORRAL_OK);
  assert_held(lock, "k"); /* later holders use the new file */
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
}

static void where_it_is_deleted_again_and_again_there_is_no_rung(void **state) {
  (void)state;
  crl_hostlock *lock = lock_of(named, "s");
  deletions = INT_MAX;
  before_lock = delete_file;
  assert_no_rung(lock, named, "again and again");
  before_lock = NULL;
  assert_free(lock, "k");
  crl_hostlock_free(lock);
}

static void a_folder_that_is_deleted_is_made_anew(void **state) {
  (void)state;
  int old, hold;
  crl_hostlock *lock = lock_of(NULL, "s");
  assert_int_equal(take(lock, "k", &old), CORRAL_OK);
  assert_int_equal(unlink(in(own_folder(), LOCK_FILE)), 0);
  assert_int_equal(rmdir(own_folder()), 0);
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  crl_hostlock_give(old); /* this hold is on the old file */
  assert_held(lock, "k");
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
}

/* ---- unusable folders ---------------------------------------------------------------------- */

static void a_default_folder_is_this_user_s_alone(void **state) {
  (void)state;
  mode_t old = umask(022);
  crl_hostlock *lock = lock_of(NULL, "s");
  assert_false(exists(own_folder())); /* no I/O before the first use */
  assert_free(lock, "k");
  assert_int_equal(mode_of(own_folder()), 0700);
  assert_int_equal(mode_of(in(own_folder(), LOCK_FILE)), 0600);
  umask(old);
  crl_hostlock_free(lock);
}

static void a_named_folder_s_file_is_everybody_s_as_far_as_the_umask_lets_it(void **state) {
  (void)state;
  crl_hostlock *lock = lock_of(named, "s");
  mode_t old = umask(0);
  assert_int_equal(chmod(named, 0777), 0); /* a named folder is used whatever its mode */
  assert_free(lock, "k");
  umask(old);
  assert_int_equal(mode_of(in(named, LOCK_FILE)), 0666);
  crl_hostlock_free(lock);
}

static void where_the_first_place_is_missing_the_second_is_used(void **state) {
  (void)state;
  crl_hostlock *lock = lock_of(NULL, "s");
  lock->bases[0] = "/proc/self/no such folder";
  lock->bases[1] = base;
  assert_free(lock, "k");
  assert_true(exists(in(own_folder(), LOCK_FILE)));
  lock->bases[1] = "/proc/self/nor this";
  assert_no_rung(lock, "/proc/self/nor this/corral-", strerror(ENOENT));
  crl_hostlock_free(lock);
}

static void a_default_folder_that_others_can_touch_is_refused(void **state) {
  (void)state;
  crl_hostlock *lock = lock_of(NULL, "s");
  lock->bases[1] = named; /* must not be tried after an unusable first folder */
  assert_int_equal(symlink("..", own_folder()), 0);
  assert_no_rung(lock, own_folder(), "symbolic link");
  clear(own_folder());
  make_file(own_folder());
  assert_no_rung(lock, own_folder(), "not a folder");
  clear(own_folder());
  assert_int_equal(mkdir(own_folder(), 0700), 0);
  assert_int_equal(chmod(own_folder(), 0720), 0);
  assert_no_rung(lock, own_folder(), "others may write");
  assert_int_equal(chmod(own_folder(), 0702), 0);
  assert_no_rung(lock, own_folder(), "others may write");
  assert_int_equal(chmod(own_folder(), 0755), 0);
  assert_free(lock, "k");
  if (geteuid() == 0) {
    assert_int_equal(chown(own_folder(), 1, 1), 0);
    assert_no_rung(lock, own_folder(), "another user's");
  }
  crl_hostlock_free(lock);
}

static void where_no_file_can_be_made_there_is_no_rung(void **state) {
  (void)state;
  char path[128];
  snprintf(path, sizeof path, "%s/a", named);
  crl_hostlock *lock = lock_of(path, "s");
  assert_no_rung(lock, path, strerror(ENOENT)); /* a named folder must exist */
  assert_false(exists(path));
  make_file(path);
  assert_no_rung(lock, path, strerror(ENOTDIR));
  clear(path);
  assert_int_equal(symlink("nowhere", path), 0);
  assert_no_rung(lock, path, strerror(ENOENT));
  clear(path);
  crl_hostlock_free(lock);
  lock = lock_of("/proc", "s");
  assert_no_rung(lock, "/proc", ": ");
  crl_hostlock_free(lock);
}

static void a_lock_file_that_is_something_else_is_not_touched(void **state) {
  (void)state;
  crl_hostlock *lock = lock_of(named, "s");
  assert_int_equal(symlink("elsewhere", in(named, LOCK_FILE)), 0);
  assert_no_rung(lock, named, strerror(ELOOP));
  assert_false(exists(in(named, "elsewhere")));
  clear(in(named, LOCK_FILE));
  assert_int_equal(mkdir(in(named, LOCK_FILE), 0700), 0);
  assert_no_rung(lock, named, strerror(EISDIR));
  crl_hostlock_free(lock);
}

static void the_environment_names_a_folder_too(void **state) {
  (void)state;
  setenv("CORRAL_HOST_DIR", named, 1);
  crl_hostlock *by_name = lock_of(base, "s"), *by_environment = lock_of(NULL, "s");
  setenv("CORRAL_HOST_DIR", "", 1);
  crl_hostlock *by_default = lock_of(NULL, "s");
  assert_free(by_environment, "k");
  assert_true(exists(in(named, LOCK_FILE)));
  assert_false(exists(own_folder()));
  assert_free(by_default, "k");
  assert_true(exists(own_folder()));
  assert_free(by_name, "k");
  clear(in(base, LOCK_FILE));
  crl_hostlock_free(by_name);
  crl_hostlock_free(by_environment);
  crl_hostlock_free(by_default);
}

static void without_descriptors_there_is_no_rung(void **state) {
  (void)state;
  struct rlimit old, none;
  crl_hostlock *lock = lock_of(named, "s"), *own = lock_of(NULL, "s");
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  assert_no_rung(lock, named, strerror(EMFILE));
  assert_no_rung(own, own_folder(), strerror(EMFILE));
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
  assert_free(lock, "k");
  assert_free(own, "k");
  crl_hostlock_free(lock);
  crl_hostlock_free(own);
}

static void without_memory_there_is_no_lock(void **state) {
  (void)state;
  crl_alloc_countdown = 0;
  assert_null(crl_hostlock_new(named, "s"));
  crl_alloc_countdown = -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folders, remove_folders)
#define CROWD_TEST(name) cmocka_unit_test_setup_teardown(name, make_board, remove_board)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(two_holds_of_one_process_exclude_each_other),
      TEST(another_key_and_another_scope_are_free),
      TEST(every_key_has_a_byte_that_can_be_locked),
      TEST(two_processes_exclude_each_other),
      CROWD_TEST(of_a_crowd_of_threads_one_at_a_time_has_it),
      CROWD_TEST(of_a_crowd_of_processes_one_at_a_time_has_it),
      TEST(a_wait_ends_at_once_when_nobody_has_it_and_in_time_when_somebody_keeps_it),
      TEST(who_waits_looks_less_and_less_often_down_to_every_4_ms),
      CROWD_TEST(who_waits_notices_that_it_was_given),
      CROWD_TEST(a_killed_holder_is_replaced_at_once),
      TEST(a_command_that_a_killed_holder_had_started_does_not_keep_it),
      TEST(what_was_given_is_free_even_if_a_bare_clone_kept_the_descriptor),
      TEST(a_file_that_is_deleted_before_it_is_locked_is_made_anew),
      TEST(where_it_is_deleted_again_and_again_there_is_no_rung),
      TEST(a_folder_that_is_deleted_is_made_anew),
      TEST(a_default_folder_is_this_user_s_alone),
      TEST(a_named_folder_s_file_is_everybody_s_as_far_as_the_umask_lets_it),
      TEST(where_the_first_place_is_missing_the_second_is_used),
      TEST(a_default_folder_that_others_can_touch_is_refused),
      TEST(where_no_file_can_be_made_there_is_no_rung),
      TEST(a_lock_file_that_is_something_else_is_not_touched),
      TEST(the_environment_names_a_folder_too),
      TEST(without_descriptors_there_is_no_rung),
      TEST(without_memory_there_is_no_lock),
  };
  return cmocka_run_group_tests_name("hostlock", tests, NULL, NULL);
}
