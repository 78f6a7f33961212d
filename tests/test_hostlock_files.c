/* test_hostlock_files.c: the lock file of the host lock and its folder: their modes, and no lock
 * where the file is deleted, the folder is unusable, or descriptors or memory are lacking. */
#include "support/hostlock_kit.h"

#include <sys/resource.h>

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

int main(void) {
  const struct CMUnitTest tests[] = {
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
  return cmocka_run_group_tests_name("hostlock_files", tests, NULL, NULL);
}
