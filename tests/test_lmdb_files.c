/* test_lmdb_files.c: what the lmdb: store makes of the files and folders that it finds. */
#include <sys/stat.h>

#include "support/lmdb_kit.h"

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_another_boot_left_is_dropped),
      cmocka_unit_test(a_truncated_file_is_refused),
      cmocka_unit_test(somebody_elses_file_is_refused_and_left_alone),
      cmocka_unit_test(somebody_elses_database_is_refused),
      cmocka_unit_test(missing_folders_are_made_for_this_user_alone),
      cmocka_unit_test(a_link_leads_to_the_same_store),
      cmocka_unit_test(places_where_no_file_can_be_are_named),
      cmocka_unit_test(a_folder_without_write_permission_is_named),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
