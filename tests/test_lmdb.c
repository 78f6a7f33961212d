/* test_lmdb.c: the lmdb: store through its table, with real processes that are killed. */
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "support/lmdb_kit.h"

/* ---- the verbs ----------------------------------------------------------------------------- */

static void a_settled_value_is_found_again(void **state) {
  (void)state;
  static const size_t sizes[] = {8, 1024, 1025, 65519, 65520 + 8, 3000000};
  kit k = opened(address("verbs", "?size=64m"));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    put(&k, "a", (char)('a' + i), sizes[i]);
    corral_op op = op_of(CORRAL_VERB_GET, "a", 1);
    assert_int_equal(run(&k, &op), CORRAL_OK);
    assert_int_equal(body_of(&op), sizes[i]);
    for (size_t at = 0; at < sizes[i]; at++)
      if (op.found.record[CORRAL_HEAD + at] != 'a' + i)
        fail_msg("size %zu: byte %zu", sizes[i], at);
    assert_true(op.state.life_ms > 0 && op.state.life_ms <= 600000);
    done(&op);
  }
  put(&k, "a", 'z', 10);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "a", 1);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(body_of(&op), 10);
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
  assert_true(op.state.left_ms > 0);
  assert_non_null(op.found.record);
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

static void a_lease_that_ran_out_goes_to_the_next_and_the_first_is_fenced(void **state) {
  (void)state;
  kit k = opened(address("ran-out", ""));
  corral_op op = op_of(CORRAL_VERB_CLAIM, "a", 1);
  op.claim.lease_ms = 1;
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
  uint8_t mine[CORRAL_TOKEN] = {1};
  size_t len;
  uint8_t *record = record_make((corral_header){0}, 8, 'x', &len);
  corral_op ops[6] = {op_of(CORRAL_VERB_CLAIM, "a", 0),      op_of(CORRAL_VERB_SETTLE, "a", 0),
                      op_of(CORRAL_VERB_GET, "a", 0),        op_of(CORRAL_VERB_CLAIM, "b", 0),
                      op_of(CORRAL_VERB_INVALIDATE, "a", 0), op_of(CORRAL_VERB_GET, "a", 0)};
  static const int expected[6] = {CORRAL_OK, CORRAL_OK, CORRAL_OK,
                                  CORRAL_OK, CORRAL_OK, CORRAL_EMISS};
  for (size_t i = 0; i < 6; i++) ops[i].token = mine;
  ops[1].settle.record = record;
  ops[1].settle.record_len = len;
  assert_int_equal(perform_ops(k.plugin, k.handle, ops, 6, INT64_MAX, NULL), CORRAL_OK);
  free(record);
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
  int before = open_descriptors();
  kit b = opened(address("shared", "?size=64m"));
  assert_int_equal(open_descriptors(), before);
  assert_int_equal(verb(&b, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  put(&b, "big", 'x', 5000000);
  closed(&a);
  assert_int_equal(verb(&b, CORRAL_VERB_GET, "big", 0), CORRAL_OK);
  closed(&b);
}

/* ---- processes ----------------------------------------------------------------------------- */

static void a_killed_leader_is_replaced_at_once(void **state) {
  (void)state;
  char uri[256];
  snprintf(uri, sizeof uri, "%s", address("killed", ""));
  pid_t leader = stuck_leader(uri, "k", 0, NULL);
  kit k = opened(uri);
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_true(op.state.left_ms > 30000);
  done(&op);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EBUSY);
  kill(leader, SIGKILL);
  ended(leader);
  op = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(op.state.left_ms, 0);
  done(&op);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  assert_int_equal(settle(&k, "k", 99, 'x', 8, NULL), CORRAL_ELOST);
  assert_int_equal(settle(&k, "k", 1, 'x', 8, NULL), CORRAL_OK);
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
    int status = i % 3 == 0 ? verb(&k, CORRAL_VERB_RELEASE, "k", holder)
                            : settle(&k, "k", holder, 'x', i % 4000 + 8, NULL);
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

/* ---- room ---------------------------------------------------------------------------------- */

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
  for (unsigned i = 0; i < 3000; i++)
    present += verb(&k, CORRAL_VERB_GET, numbered(key, "k", i), 0) == CORRAL_OK;
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
  for (unsigned i = 0; i < 4000; i++)
    assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, numbered(key, "k", i), i + 1), CORRAL_OK);
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
  assert_int_equal(op.found.record[CORRAL_HEAD], 'o');
  done(&op);
  closed(&k);
}

static void a_reader_that_hangs_is_named_and_a_dead_one_is_cleared(void **state) {
  (void)state;
  kit k = opened(address("hanging", "?size=1m"));
  corral_error error = {0};
  char key[32];
  int status = CORRAL_OK;
  unsigned stored = 0;
  pid_t reader = stuck_process(file("hanging"), MDB_RDONLY);
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
  corral_op absent = op_of(CORRAL_VERB_INVALIDATE, "nothing", 0);
  assert_int_equal(run(&k, &absent), CORRAL_OK);
  unsigned left = 0; /* some records were evicted, without freeing space */
  for (unsigned i = 0; i < stored; i++)
    left += verb(&k, CORRAL_VERB_GET, numbered(key, "k", i), 0) == CORRAL_OK;
  assert_true(left > 0);
  kill(reader, SIGKILL);
  ended(reader);
  (void)verb(&k, CORRAL_VERB_INVALIDATE, "k", 0);
  put(&k, "after", 'x', 3000);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "after", 0), CORRAL_OK);
  closed(&k);
}

/* Returns 0: correct, 1: wrong, 2: can't be tested here. Runs in a process of its own, because it
 * changes mounts. */
static int fill_a_disk(void) {
  kit k;
  char key[32], path[160];
  corral_error error = {0};
  snprintf(path, sizeof path, "%s", file("disk"));
  if (mkdir(path, 0700) != 0 || unshare(CLONE_NEWNS) != 0 ||
      mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
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

/* ---- threads ------------------------------------------------------------------------------- */

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
    if (settle(c->k, key, holder, 'x', 500 + i % 3000, NULL) != CORRAL_OK)
      atomic_fetch_add(c->wrong, 1);
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

/* ---- users' locks -------------------------------------------------------------------------- */

static corral_host later_host;
static int64_t later_ms;

static int64_t later_boot_ms(void) { return crl_registry_host()->boot_ms() + later_ms; }

/* Number of rows in a table of a file that no process has open. */
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
  for (unsigned i = 0; i < LOCKS / 8 + 1; i++)
    assert_int_equal(verb(&k, CORRAL_VERB_EXPIRE, "value", 1), CORRAL_OK);
  closed(&k);
  assert_int_equal(rows_of(file("swept"), NULL), 1 + 3); /* and the other tables' */
  assert_int_equal(rows_of(file("swept"), "~table:index"), 1);
}

static void a_key_like_the_name_of_a_table_is_refused(void **state) {
  (void)state;
  kit k = opened(address("named", ""));
  put(&k, "value", 'x', 10);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "~table:index", 1), CORRAL_EINVAL);
  assert_int_equal(verb(&k, CORRAL_VERB_INVALIDATE, "~table:index", 1), CORRAL_EINVAL);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "~tag:index", 1), CORRAL_EMISS);
  assert_int_equal(verb(&k, CORRAL_VERB_INVALIDATE, "value", 1), CORRAL_OK);
  closed(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_settled_value_is_found_again),
      cmocka_unit_test(one_claim_wins_and_the_other_is_told_what_is_left),
      cmocka_unit_test(a_lease_that_ran_out_goes_to_the_next_and_the_first_is_fenced),
      cmocka_unit_test(operations_of_a_batch_see_each_other),
      cmocka_unit_test(two_corrals_of_a_process_share_one_file),
      cmocka_unit_test(a_killed_leader_is_replaced_at_once),
      cmocka_unit_test(a_child_that_a_dead_leader_forked_does_not_keep_its_lease),
      cmocka_unit_test(of_many_processes_one_leads_at_a_time),
      cmocka_unit_test(processes_killed_at_any_moment_leave_a_store_that_works),
      cmocka_unit_test(a_process_with_a_larger_map_is_followed),
      cmocka_unit_test(a_full_map_evicts_and_goes_on),
      cmocka_unit_test(a_full_map_of_large_values_evicts_too),
      cmocka_unit_test(a_map_full_of_live_leases_still_takes_new_ones),
      cmocka_unit_test(a_value_too_big_is_refused_and_the_old_one_stays),
      cmocka_unit_test(a_reader_that_hangs_is_named_and_a_dead_one_is_cleared),
      cmocka_unit_test(a_full_disk_is_an_error_and_not_a_signal),
      cmocka_unit_test(threads_have_one_leader_too),
      cmocka_unit_test(locks_that_nobody_held_for_a_while_are_swept),
      cmocka_unit_test(a_key_like_the_name_of_a_table_is_refused),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
