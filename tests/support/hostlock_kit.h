/* hostlock_kit.h: the host lock in folders of the test. For tests of hostlock.c.
 *
 * The source of the lock is included under other names, so that a test can set the parents of
 * default folders, and act just before a lock is set and during a wait. */
#ifndef HOSTLOCK_KIT_H
#define HOSTLOCK_KIT_H

#include <fcntl.h>

#include "os/env.h"

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
#define crl_hostlock_pass own_hostlock_pass
#define crl_hostlock_passed own_hostlock_passed
#include "election/hostlock.c" /* NOLINT(bugprone-suspicious-include) */
#undef fcntl
#undef crl_env_pause_us

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { FAR = 60000 };

static void (*before_lock)(void);

static int hooked_fcntl(int fd, int command, void *lock) {
  if (command == F_OFD_SETLK && before_lock != NULL) before_lock();
  return fcntl(fd, command, lock);
}

static int64_t waiters[16];
static int nap_count = -1, nap_hold; /* recorded waiters; nap_count -1: waiters are real */

/* Records the waiter; the last one that fits into `waiters` gives back the hold. */
static void hooked_sleep(int64_t us) {
  if (nap_count < 0) {
    crl_env_pause_us(us);
    return;
  }
  waiters[nap_count++] = us;
  if (nap_count == sizeof waiters / sizeof *waiters) crl_hostlock_give(nap_hold);
}

static inline int64_t later(int64_t ms) { return crl_env_now_ms() + ms; }

/* ---- folders ------------------------------------------------------------------------------- */

static char named[32], base[32]; /* a folder named by the user; the parent of default folders */

static inline int make_folders(void **state) {
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

static inline const char *own_folder(void) {
  char name[32];
  snprintf(name, sizeof name, "corral-%lu", (unsigned long)geteuid());
  return in(base, name);
}

static inline void clear(const char *path) {
  assert_true(unlink(path) == 0 || rmdir(path) == 0 || errno == ENOENT);
}

/* Teardown: removes the lock files; fails if other files are left. */
static inline int remove_folders(void **state) {
  (void)state;
  clear(in(named, LOCK_FILE));
  clear(in(own_folder(), LOCK_FILE));
  clear(own_folder());
  return rmdir(named) != 0 || rmdir(base) != 0;
}

/* ---- the lock ------------------------------------------------------------------------------ */

static inline crl_hostlock *lock_of(const char *folder, const char *scope) {
  crl_hostlock *lock = crl_hostlock_new(folder, scope);
  assert_non_null(lock);
  lock->bases[0] = base;
  lock->bases[1] = "/proc/self/no such folder";
  return lock;
}

static inline int take(crl_hostlock *lock, const char *key, int *hold) {
  return crl_hostlock_take(lock, key, strlen(key), hold, NULL);
}

static inline void wait_until(crl_hostlock *lock, const char *key, int64_t until) {
  crl_hostlock_wait(lock, key, strlen(key), until, NULL);
}

static inline void assert_held(crl_hostlock *lock, const char *key) {
  int hold = -1;
  assert_int_equal(take(lock, key, &hold), CORRAL_EBUSY);
  assert_int_equal(hold, -1);
}

static inline void assert_free(crl_hostlock *lock, const char *key) {
  int hold = -1;
  assert_int_equal(take(lock, key, &hold), CORRAL_OK);
  crl_hostlock_give(hold);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folders, remove_folders)

#endif
