/* test_lmdb_files.c: existing files and folders at the path of an lmdb: store. */
#include <corral.h>
#include <corral/lock.h>
#include <sys/stat.h>

#include "os/env.h"
#include "support/lmdb_kit.h"

/* ---- files --------------------------------------------------------------------------------- */

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

static int is_there(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0;
}

/* Opens the store; the damaged files must be renamed with number N, and the store must begin
 * empty. */
static void begun_anew(const char *name, int number) {
  char aside[64];
  snprintf(aside, sizeof aside, "%s.damaged-%d", name, number);
  kit k = opened(address(name, ""));
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
  put(&k, "k", 'x', 100000);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  closed(&k);
  if (!is_there(file(aside))) fail_msg("%s isn't there", aside);
}

static void a_truncated_file_is_put_aside_and_begun_anew(void **state) {
  (void)state;
  kit k = opened(address("cut", ""));
  put(&k, "k", 'x', 100000);
  closed(&k);
  assert_int_equal(truncate(file("cut"), 3 * 4096), 0);
  begun_anew("cut", 1);
  assert_int_equal(truncate(file("cut"), 100), 0);
  begun_anew("cut", 2);
  assert_int_equal(truncate(file("cut"), 0), 0);
  k = opened(address("cut", ""));
  put(&k, "k", 'x', 10);
  closed(&k);
}

static void somebody_elses_file_is_refused_and_left_alone(void **state) {
  (void)state;
  struct stat st;
  write_file(file("letter"), "Dear Sir or Madam, this is no database at all.\n");
  refused(address("letter", ""), CORRAL_EIO, "letter");
  assert_int_equal(stat(file("letter"), &st), 0);
  assert_int_equal(st.st_size, 47);
  assert_int_equal(stat(file("letter-lease"), &st), -1);
}

static void make_other_database(const char *path) {
  MDB_env *env;
  MDB_txn *txn;
  MDB_dbi dbi;
  MDB_val value = {.mv_size = 1, .mv_data = (void *)(uintptr_t) "v"};
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
  refused(address("other", ""), CORRAL_EIO, "other");
}

static void a_database_in_the_place_of_the_stores_own_is_put_aside(void **state) {
  (void)state;
  kit k = opened(address("swapped", ""));
  closed(&k);
  assert_int_equal(unlink(file("swapped")), 0);
  make_other_database(file("swapped"));
  begun_anew("swapped", 1);
  k = opened(address("donor", ""));
  put(&k, "k", 'x', 10);
  closed(&k);
  assert_int_equal(rename(file("donor"), file("swapped")), 0);
  begun_anew("swapped", 2);
}

static void damage(const char *name, off_t at, size_t size, uint64_t value) {
  int fd = open(file(name), O_RDWR | O_CLOEXEC);
  assert_int_equal(pwrite(fd, &value, size, at), (ssize_t)size);
  close(fd);
}

enum {
  META = 4096
}; /* offset of the second meta page, which is the newer one after three commits */

static void make_small(const char *name) {
  kit k = opened(address(name, ""));
  put(&k, "k", 'x', 10);
  closed(&k);
}

typedef struct wound {
  off_t at;
  size_t size;
  uint64_t value;
} wound;

/* Damages every number of a meta page that liblmdb would trust. The offsets are those of a 64-bit
 * machine. */
static void a_meta_page_that_makes_no_sense_is_not_mapped(void **state) {
  (void)state;
  static const wound wounds[] = {{0, 8, 7},         {10, 2, 0},      {16, 4, 1},
                                 {20, 4, 2},        {32, 8, 4096},   {40, 4, 3000},
                                 {40, 4, 1 << 20},  {44, 2, 0},      {136, 8, 0},
                                 {136, 8, 1 << 30}, {136, 8, ~0ULL}, {144, 8, 1001}};
  for (size_t i = 0; i < 2 * sizeof wounds / sizeof *wounds; i++) {
    char name[32];
    const wound *w = &wounds[i / 2];
    off_t page = i % 2 == 0 ? 0 : META;
    make_small(numbered(name, "meta", (unsigned)i));
    damage(name, page + w->at, w->size, w->value + (w->at == 144 && page == META));
    begun_anew(name, 1);
  }
}

static void a_root_that_is_no_page_is_not_followed(void **state) {
  (void)state;
  static const wound wounds[] = {{46, 2, 99},       {80, 8, 1 << 30},  {94, 2, 99},
                                 {104, 8, 1 << 30}, {128, 8, 1 << 30}, {128, 8, 1}};
  for (size_t i = 0; i < sizeof wounds / sizeof *wounds; i++) {
    char name[32];
    make_small(numbered(name, "root", (unsigned)i));
    /* the older meta page's root isn't used */
    damage(name, wounds[i].at, wounds[i].size, wounds[i].value);
    kit k = opened(address(name, ""));
    assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
    closed(&k);
    make_small(numbered(name, "last-root", (unsigned)i));
    damage(name, META + wounds[i].at, wounds[i].size, wounds[i].value);
    begun_anew(name, 1);
  }
}

static void a_copy_with_its_companions_is_another_store(void **state) {
  (void)state;
  char command[400];
  kit k = opened(address("first", ""));
  put(&k, "k", 'x', 10);
  closed(&k);
  snprintf(command, sizeof command,
           "cd '%s' && for f in '' -lock -lease -watch; do cp -p first$f second$f; done", folder);
  assert_int_equal(system(command), 0);
  begun_anew("second", 1);
  assert_true(is_there(file("second.damaged-1-lock")));
  k = opened(address("first", ""));
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  closed(&k);
}

static void what_was_put_aside_does_not_pile_up(void **state) {
  (void)state;
  for (int i = 0; i < 12; i++) {
    kit k = opened(address("pile", ""));
    closed(&k);
    assert_int_equal(truncate(file("pile"), 10000), 0);
  }
  kit k = opened(address("pile", ""));
  closed(&k);
  assert_true(is_there(file("pile.damaged-9")));
  assert_false(is_there(file("pile.damaged-10")));
}

/* ---- owners and modes ---------------------------------------------------------------------- */

static void a_file_that_others_may_write_is_refused_unless_it_is_shared(void **state) {
  (void)state;
  static const char *const companions[] = {"mode", "mode-lock", "mode-lease", "mode-watch"};
  struct stat st;
  kit k = opened(address("mode", ""));
  closed(&k);
  for (size_t i = 0; i < 4; i++) {
    assert_int_equal(chmod(file(companions[i]), 0620), 0);
    refused(address("mode", ""), CORRAL_EIO, "shared=yes");
    assert_int_equal(chmod(file(companions[i]), 0602), 0);
    refused(address("mode", "?shared=no"), CORRAL_EIO, "others may write it");
    k = opened(address("mode", "?shared=yes"));
    closed(&k);
    assert_int_equal(chmod(file(companions[i]), 0600), 0);
  }
  k = opened(address("mode", ""));
  closed(&k);
  k = opened(address("group", "?shared=yes"));
  for (size_t i = 0; i < 4; i++) {
    static const char *const made[] = {"group", "group-lock", "group-lease", "group-watch"};
    assert_int_equal(stat(file(made[i]), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
  }
  closed(&k);
  refused(address("mode", "?shared=maybe"), CORRAL_EURI, "yes or no");
}

static void another_users_file_is_refused_unless_it_is_shared(void **state) {
  (void)state;
  if (geteuid() != 0) {
    print_message("SKIPPED: %s: only root can give a file away\n", __func__);
    skip();
  }
  kit k = opened(address("given", ""));
  closed(&k);
  assert_int_equal(chown(file("given"), 65534, 65534), 0);
  refused(address("given", ""), CORRAL_EIO, "belongs to user 65534");
  k = opened(address("given", "?shared=yes"));
  closed(&k);
}

static void a_folder_where_everybody_may_rename_is_refused_unless_it_is_shared(void **state) {
  (void)state;
  assert_int_equal(mkdir(file("open"), 0700), 0);
  assert_int_equal(chmod(file("open"), 0777), 0);
  refused(address("open/x", ""), CORRAL_EIO, "others may rename files");
  assert_false(is_there(file("open/x-lease")));
  kit k = opened(address("open/y", "?shared=yes"));
  closed(&k);
  assert_int_equal(chmod(file("open"), 01777), 0);
  k = opened(address("open/x", ""));
  closed(&k);
}

/* A refusal of the files is no foreign content of the lock's key, whose end a taking awaits. */
static void a_lock_of_refused_files_is_refused_at_once(void **state) {
  (void)state;
  corral *c;
  corral_lock *lock;
  corral_error error = {0};
  assert_int_equal(mkdir(file("door"), 0700), 0);
  assert_int_equal(chmod(file("door"), 0777), 0);
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = address("door/x", "")), &c, &error), 0);
  assert_int_equal(corral_lock_take(c, "l", 1, CORRAL_LOCK(.wait_ms = 3000), &lock, &error),
                   CORRAL_EIO);
  assert_non_null(strstr(error.text, "others may rename files"));
  assert_int_equal(corral_counter(c, CORRAL_EVENT_LOCK_ASKED), 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_LOCK_FOREIGN), 0);
  corral_close(c);
}

static void only_the_data_file_may_be_a_link_and_that_must_lead_to_one(void **state) {
  (void)state;
  static const char *const companions[] = {"planted-lock", "planted-lease"};
  for (size_t i = 0; i < 2; i++) {
    write_file(file("elsewhere"), "a diary");
    assert_int_equal(symlink(file("elsewhere"), file(companions[i])), 0);
    refused(address("planted", ""), CORRAL_EIO, "planted");
    assert_int_equal(unlink(file(companions[i])), 0);
  }
  assert_int_equal(symlink(file("nowhere"), file("dangling")), 0);
  refused(address("dangling", ""), CORRAL_EIO, "dangling");
  assert_false(is_there(file("nowhere")));
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
  int before = open_descriptors();
  kit b = opened(address("link", ""));
  assert_int_equal(open_descriptors(), before);
  assert_int_equal(verb(&b, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
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

static int fill_next_number(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  int next = atomic_fetch_add((_Atomic int *)arg, 1) + 1;
  return corral_fill_bytes(fill, &next, sizeof next);
}

static int number_of(corral *c, const corral_policy *policy) {
  corral_value *value;
  int number;
  assert_int_equal(corral_get(c, "k", 1, CORRAL_CALL(.policy = policy), &value), CORRAL_OK);
  memcpy(&number, corral_value_data(value), sizeof number);
  corral_value_unref(value);
  return number;
}

/* It is rebuilt behind the answer, as for any store. */
static void where_no_file_can_be_a_stale_value_of_this_process_is_rebuilt(void **state) {
  (void)state;
  _Atomic int made = 0;
  corral *c;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = 1, .swr_ms = 3600000, .when_away = CORRAL_AWAY_STALE);
  assert_int_equal(mkdir(file("none"), 0700), 0);
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = address("none", ""),
                                              .compute = fill_next_number, .compute_arg = &made),
                               &c, NULL),
                   CORRAL_OK);
  int first = number_of(c, policy), number = first;
  for (int64_t until = crl_env_now_ms() + 30000; number == first && crl_env_now_ms() < until;) {
    crl_env_pause_us(5000);
    number = number_of(c, policy);
  }
  assert_int_not_equal(number, first);
  corral_close(c);
}

static void a_folder_without_write_permission_is_named(void **state) {
  (void)state;
  if (geteuid() == 0) {
    print_message(
        "SKIPPED: a_folder_without_write_permission_is_named: root may write everywhere\n");
    skip();
  }
  assert_int_equal(mkdir(file("sealed"), 0500), 0);
  refused(address("sealed/x", ""), CORRAL_EIO, "must be able to write");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_another_boot_left_is_dropped),
      cmocka_unit_test(a_truncated_file_is_put_aside_and_begun_anew),
      cmocka_unit_test(somebody_elses_file_is_refused_and_left_alone),
      cmocka_unit_test(somebody_elses_database_is_refused),
      cmocka_unit_test(a_database_in_the_place_of_the_stores_own_is_put_aside),
      cmocka_unit_test(a_meta_page_that_makes_no_sense_is_not_mapped),
      cmocka_unit_test(a_root_that_is_no_page_is_not_followed),
      cmocka_unit_test(a_copy_with_its_companions_is_another_store),
      cmocka_unit_test(what_was_put_aside_does_not_pile_up),
      cmocka_unit_test(a_file_that_others_may_write_is_refused_unless_it_is_shared),
      cmocka_unit_test(another_users_file_is_refused_unless_it_is_shared),
      cmocka_unit_test(a_folder_where_everybody_may_rename_is_refused_unless_it_is_shared),
      cmocka_unit_test(a_lock_of_refused_files_is_refused_at_once),
      cmocka_unit_test(only_the_data_file_may_be_a_link_and_that_must_lead_to_one),
      cmocka_unit_test(missing_folders_are_made_for_this_user_alone),
      cmocka_unit_test(a_link_leads_to_the_same_store),
      cmocka_unit_test(places_where_no_file_can_be_are_named),
      cmocka_unit_test(where_no_file_can_be_a_stale_value_of_this_process_is_rebuilt),
      cmocka_unit_test(a_folder_without_write_permission_is_named),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
