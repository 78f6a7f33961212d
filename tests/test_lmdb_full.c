/* test_lmdb_full.c: the lmdb: store on a full disk: each call ends, nothing is freed twice, and
 * stored values stay. */
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <corral/lock.h>

#include "support/lmdb_kit.h"

enum { FINE = 0, WRONG = 1, NOT_HERE = 2 };

static char why[512];

static int wrong(const char *what, int status, const corral_error *error) {
  snprintf(why, sizeof why, "%s: %s: %s\n", what, corral_status_name(status), error->text);
  fputs(why, stderr);
  return WRONG;
}

/* Mounts a disk of 2 MiB at folder/disk, visible only to this process and its children. */
static int small_disk(void) {
  const char *path = file("disk");
  (void)mkdir(path, 0700);
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
         mount("none", path, "tmpfs", 0, "size=2m") == 0;
}

static void fill_disk(void) {
  static char bytes[4096];
  int fd = open(file("disk/ballast"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  while (write(fd, bytes, sizeof bytes) > 0) continue;
  close(fd);
}

enum { KEYS = 100, SIZE = 8000 };

static int give_new(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  static char body[SIZE];
  (void)key, (void)key_len, (void)arg;
  memset(body, 'n', sizeof body);
  return corral_fill_bytes(fill, body, sizeof body);
}

/* The byte that fills a value of SIZE bytes; 0 for any other value. */
static char seen(corral_value *value) {
  const char *bytes = corral_value_data(value);
  char first = corral_value_size(value) == SIZE ? bytes[0] : '\0';
  for (size_t i = 1; i < SIZE && first != '\0'; i++)
    if (bytes[i] != first) first = '\0';
  corral_value_unref(value);
  return first;
}

static const corral_call *long_life(corral_error *error) {
  static const corral_policy policy = {.size = sizeof policy, .ttl_ms = 60000, .sie_ms = 60000};
  static corral_call call;
  call = *CORRAL_CALL(.policy = &policy, .error = error);
  return &call;
}

static int prepare(corral *c, corral_error *error) {
  static char old[SIZE];
  char key[32];
  memset(old, 'o', sizeof old);
  int status = corral_set(c, "kept", 4, long_life(error), old, SIZE);
  for (unsigned i = 0; i < KEYS && status == CORRAL_OK; i++) {
    numbered(key, "k", i);
    status = corral_set(c, key, strlen(key), long_life(error), old, SIZE);
    if (status == CORRAL_OK)
      status = corral_expire(c, key, strlen(key), CORRAL_CALL(.error = error));
  }
  return status;
}

/* The claim finds the stale record, and its commit fails without space. */
static int compute_all(corral *c, corral_error *error) {
  char key[32];
  for (unsigned i = 0; i < KEYS; i++) {
    corral_value *value = NULL;
    numbered(key, "k", i);
    int status =
        corral_get_or_compute(c, key, strlen(key), long_life(error), give_new, NULL, &value);
    if (status != CORRAL_OK || seen(value) != 'n') return wrong("compute", status, error);
  }
  return FINE;
}

/* Each call must end; it may store the value or be refused. */
static void set_all(corral *c, corral_error *error) {
  static char body[SIZE];
  char key[32];
  for (unsigned i = 0; i < KEYS; i++) {
    numbered(key, "set", i);
    (void)corral_set(c, key, strlen(key), long_life(error), body, SIZE);
  }
}

static int is_seen(corral *c, const char *key, char expected, corral_error *error) {
  corral_value *value = NULL;
  int status = corral_get(c, key, strlen(key), long_life(error), &value);
  return status != CORRAL_OK || seen(value) != expected ? wrong(key, status, error) : FINE;
}

static int full_disk_story(void) {
  corral *c = NULL;
  corral_error error = {0};
  corral_lock *lock = NULL;
  if (!small_disk()) return NOT_HERE;
  int status =
      corral_open(CORRAL_OPTIONS(.store = address("disk/x", "?size=16m"), .breaker_failures = 1000),
                  &c, &error);
  if (status == CORRAL_OK) status = prepare(c, &error);
  if (status != CORRAL_OK) return wrong("prepare", status, &error);
  fill_disk();
  if (compute_all(c, &error) != FINE) return WRONG;
  if (corral_counter(c, CORRAL_EVENT_STORE_ERROR) == 0) return wrong("nothing failed", 0, &error);
  set_all(c, &error);
  (void)corral_invalidate(c, "k0", 2, CORRAL_CALL(.error = &error));
  status = corral_lock_take(c, "l", 1, CORRAL_LOCK(.wait_ms = CORRAL_OFF), &lock, &error);
  if (status == CORRAL_OK) corral_lock_release(lock, NULL);
  if (is_seen(c, "kept", 'o', &error) != FINE) return WRONG;
  (void)unlink(file("disk/ballast"));
  if (compute_all(c, &error) != FINE || is_seen(c, "k7", 'n', &error) != FINE) return WRONG;
  corral_close(c);
  return FINE;
}

static void a_full_disk_costs_no_call_its_end_and_no_value_its_life(void **state) {
  (void)state;
  pid_t pid = child();
  if (pid == 0) exit(full_disk_story());
  int end = ended(pid);
  if (WIFEXITED(end) && WEXITSTATUS(end) == NOT_HERE) {
    print_message("SKIPPED: %s: no disk can be mounted here\n", __func__);
    skip();
  }
  assert_int_equal(end, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_full_disk_costs_no_call_its_end_and_no_value_its_life),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
