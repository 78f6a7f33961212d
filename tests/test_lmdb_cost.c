/* test_lmdb_cost.c: write transactions on an lmdb: store, counted by LMDB itself. Each waits for
 * the writers of all other processes. And what is done within one. */
#include "support/lmdb_kit.h"

#include <fcntl.h>

enum { MANY = 30, LEASE_MS = 600000 };

static corral *cache;

/* The number of the file's last write transaction, as another process reads it: LMDB forbids to
 * open a file twice in one process. */
static size_t transactions(void) {
  int ends[2];
  size_t number = 0;
  assert_int_equal(pipe(ends), 0);
  pid_t pid = child();
  if (pid == 0) {
    MDB_env *env;
    MDB_envinfo info;
    if (mdb_env_create(&env) != 0 ||
        mdb_env_open(env, file("db"), MDB_NOSUBDIR | MDB_RDONLY, 0600) != 0 ||
        mdb_env_info(env, &info) != 0)
      _exit(1);
    number = info.me_last_txnid;
    _exit(write(ends[1], &number, sizeof number) == (ssize_t)sizeof number ? 0 : 1);
  }
  close(ends[1]);
  assert_int_equal(read(ends[0], &number, sizeof number), sizeof number);
  close(ends[0]);
  assert_int_equal(ended(pid), 0);
  return number;
}

/* ---- within a write transaction ------------------------------------------------------------ */

static int is_writing, byte_locks, locks_within;

int __real_mdb_txn_begin(MDB_env *env, MDB_txn *parent, unsigned flags, MDB_txn **ret);
int __wrap_mdb_txn_begin(MDB_env *env, MDB_txn *parent, unsigned flags, MDB_txn **ret);
int __wrap_mdb_txn_begin(MDB_env *env, MDB_txn *parent, unsigned flags, MDB_txn **ret) {
  is_writing = (flags & MDB_RDONLY) == 0;
  return __real_mdb_txn_begin(env, parent, flags, ret);
}

int __real_mdb_txn_commit(MDB_txn *txn);
int __wrap_mdb_txn_commit(MDB_txn *txn);
int __wrap_mdb_txn_commit(MDB_txn *txn) {
  is_writing = 0;
  return __real_mdb_txn_commit(txn);
}

int __real_fcntl(int fd, int command, void *arg);
int __wrap_fcntl(int fd, int command, void *arg);
int __wrap_fcntl(int fd, int command, void *arg) {
  byte_locks += command == F_OFD_SETLK;
  locks_within += command == F_OFD_SETLK && is_writing;
  return __real_fcntl(fd, command, arg);
}

/* By the key's first letter: 'f' fails, 'n' is negative, 't' has a tag. */
static int by_letter(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  const char *text = key;
  (void)key_len;
  (void)arg;
  if (text[0] == 'f') corral_fill_fail(fill, 7, "broken");
  if (text[0] == 'n') corral_fill_negative(fill);
  if (text[0] == 't') assert_int_equal(corral_fill_tag(fill, "tag", 3), CORRAL_OK);
  return text[0] == 'f' || text[0] == 'n' ? CORRAL_OK : corral_fill_bytes(fill, "42", 2);
}

static int fill_all(corral_fill *const *fills, size_t count, void *arg) {
  (void)arg;
  for (size_t i = 0; i < count; i++) corral_fill_bytes(fills[i], "42", 2);
  return CORRAL_OK;
}

static void ask(const char *key, int status) {
  corral_value *value = NULL;
  assert_int_equal(corral_get_or_compute(cache, key, strlen(key),
                                         CORRAL_CALL(.policy = CORRAL_POLICY(.retry_ms = 60000)),
                                         by_letter, NULL, &value),
                   status);
  corral_value_unref(value);
}

static size_t cost_of(const char *key, int status) {
  size_t before = transactions();
  ask(key, status);
  return transactions() - before;
}

static int begin(void **state) {
  corral_error error;
  if (make_folder(state) != 0) return -1;
  /* a lease that was extended would take one more */
  const corral_policy *policy = CORRAL_POLICY(.lease_ms = LEASE_MS, .lease_min_ms = LEASE_MS);
  if (corral_open(CORRAL_OPTIONS(.store = address("db", ""), .policy = policy), &cache, &error) !=
      CORRAL_OK)
    fail_msg("%s", error.text);
  ask("warm", CORRAL_OK); /* makes the file */
  return 0;
}

static int end(void **state) {
  corral_close(cache);
  return remove_folder(state);
}

static void a_cold_miss_takes_two_and_a_hit_none(void **state) {
  (void)state;
  assert_int_equal(cost_of("k", CORRAL_OK), 2);
  for (int i = 0; i < 10; i++) assert_int_equal(cost_of("k", CORRAL_OK), 0);
}

static void the_bytes_of_leases_are_locked_and_unlocked_outside(void **state) {
  (void)state;
  byte_locks = locks_within = 0;
  ask("k", CORRAL_OK);
  assert_int_equal(byte_locks, 2);
  assert_int_equal(locks_within, 0);
}

static void a_failure_and_no_such_thing_take_as_many(void **state) {
  (void)state;
  assert_int_equal(cost_of("f", CORRAL_EFAILED), 2);
  assert_int_equal(cost_of("f", CORRAL_EFAILED), 0);
  assert_int_equal(cost_of("n", CORRAL_ENOTFOUND), 2);
  assert_int_equal(cost_of("n", CORRAL_ENOTFOUND), 0);
}

static void a_set_an_expire_and_an_invalidate_take_one_each(void **state) {
  (void)state;
  size_t before = transactions();
  assert_int_equal(corral_set(cache, "k", 1, NULL, "v", 1), CORRAL_OK);
  assert_int_equal(transactions() - before, 1);
  assert_int_equal(corral_expire(cache, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(transactions() - before, 2);
  assert_int_equal(corral_invalidate(cache, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(transactions() - before, 3);
}

static void many_cold_keys_take_two_together(void **state) {
  (void)state;
  corral_item items[MANY];
  char keys[MANY][16];
  memset(items, 0, sizeof items);
  for (int i = 0; i < MANY; i++) {
    items[i].key_len = (size_t)snprintf(keys[i], sizeof keys[i], "many %d", i);
    items[i].key = keys[i];
  }
  size_t before = transactions();
  assert_int_equal(corral_get_many(cache, items, MANY, NULL, fill_all, NULL), CORRAL_OK);
  assert_int_equal(transactions() - before, 2);
  for (int i = 0; i < MANY; i++) {
    assert_int_equal(items[i].status, CORRAL_OK);
    corral_value_unref(items[i].value);
  }
}

/* The first value of a tag makes the tag's version. */
static void a_tag_that_is_there_takes_none(void **state) {
  (void)state;
  assert_int_equal(cost_of("t1", CORRAL_OK), 4);
  assert_int_equal(cost_of("t2", CORRAL_OK), 2);
  assert_int_equal(cost_of("t1", CORRAL_OK), 0);
}

#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_cold_miss_takes_two_and_a_hit_none),
      T(the_bytes_of_leases_are_locked_and_unlocked_outside),
      T(a_failure_and_no_such_thing_take_as_many),
      T(a_set_an_expire_and_an_invalidate_take_one_each),
      T(many_cold_keys_take_two_together),
      T(a_tag_that_is_there_takes_none),
  };
  return cmocka_run_group_tests_name("lmdb's cost", tests, NULL, NULL);
}
