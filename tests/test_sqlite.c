/* test_sqlite.c: locks in a table of an SQLite file, with real processes. */
#include "support/hold_kit.h"

#include "support/folder_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { LIMIT_MS = 4000 };

static char file[128], uri[160];

static int set_up(void **state) {
  if (make_folder(state) != 0) return -1;
  snprintf(file, sizeof file, "%s/locks.db", folder);
  snprintf(uri, sizeof uri, "sqlite:%s", file);
  return 0;
}

/* ---- SQL on a separate connection ---------------------------------------------------------- */

static sqlite3 *database(void) {
  sqlite3 *db = NULL;
  assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
  sqlite3_busy_timeout(db, HOLD_PATIENCE_MS);
  return db;
}

static void run_sql(const char *sql) {
  sqlite3 *db = database();
  char *text = NULL;
  if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK) fail_msg("%s: %s", sql, text);
  sqlite3_close(db);
}

static int64_t number_of(const char *sql) {
  sqlite3 *db = database();
  sqlite3_stmt *s = NULL;
  assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(s), SQLITE_ROW);
  int64_t number = sqlite3_column_int64(s, 0);
  sqlite3_finalize(s);
  sqlite3_close(db);
  return number;
}

static int refused(const char *text, corral_error *error) {
  kit k = {0};
  int status = kit_open(&k, text, error);
  if (status == CORRAL_OK)
    closed(&k);
  else if (k.store != NULL)
    k.plugin->close(k.store);
  return status;
}

static void is_refused(const char *text, int status, const char *why) {
  corral_error error = {0};
  int got = refused(text, &error);
  if (got != status || strstr(error.text, why) == NULL)
    fail_msg("%s: %d '%s' instead of %d '%s'", text, got, error.text, status, why);
}

/* ---- verbs --------------------------------------------------------------------------------- */

static void a_lock_is_taken_extended_shown_and_released(void **state) {
  (void)state;
  char note[CORRAL_LOCK_NOTE + 1] = "";
  uint64_t fence = 0;
  kit a = opened(uri), b = opened(uri);
  corral_op op = hold_op(CORRAL_VERB_LOCK, "one", 1, 60000);
  op_notes(&op, "here/1/2 a note");
  assert_int_equal(by(&a, &op, HOLD_PATIENCE_MS), CORRAL_OK);
  assert_int_equal(op.lock_state.left_ms, 60000);
  assert_true(op.lock_state.fence >= (uint64_t)a.host->wall_ms() * 1000 - 60000000);
  corral_op busy = hold_op(CORRAL_VERB_LOCK, "one", 2, 60000);
  assert_int_equal(by(&b, &busy, HOLD_PATIENCE_MS), CORRAL_EBUSY);
  assert_in_range(busy.lock_state.left_ms, 1, 60000);
  assert_int_equal(shown(&b, "one", note, &fence), 1);
  assert_string_equal(note, "here/1/2 a note");
  assert_int_equal(fence, op.lock_state.fence);
  assert_int_equal(extend(&a, "one", 1, 90000), CORRAL_OK);
  busy = hold_op(CORRAL_VERB_LOCK, "one", 2, 60000);
  assert_int_equal(by(&b, &busy, HOLD_PATIENCE_MS), CORRAL_EBUSY);
  assert_in_range(busy.lock_state.left_ms, 60001, 90000);
  is_lost(&b, CORRAL_VERB_UNLOCK, "one", 2, 1);
  is_lost(&b, CORRAL_VERB_LOCK_EXTEND, "one", 2, 1);
  assert_int_equal(unlock(&b, "one", 1), CORRAL_OK);
  is_lost(&b, CORRAL_VERB_UNLOCK, "one", 1, 0);
  assert_int_equal(shown(&b, "one", note, NULL), 0);
  assert_int_equal(shown(&b, "never taken", note, NULL), 0);
  assert_int_equal(take(&b, "one", 2, 60000), CORRAL_OK);
  closed(&a);
  closed(&b);
}

static void readers_hold_together_and_a_writer_alone(void **state) {
  (void)state;
  char note[CORRAL_LOCK_NOTE + 1];
  kit k = opened(uri);
  assert_int_equal(take_shared(&k, "rw", 1, 5000, CORRAL_OP_SHARED), CORRAL_OK);
  assert_int_equal(take_shared(&k, "rw", 2, 5000, CORRAL_OP_SHARED), CORRAL_OK);
  assert_int_equal(shown(&k, "rw", note, NULL), 2);
  assert_int_equal(take(&k, "rw", 3, 5000), CORRAL_EBUSY);
  assert_int_equal(unlock(&k, "rw", 1), CORRAL_OK);
  assert_int_equal(take(&k, "rw", 3, 5000), CORRAL_EBUSY);
  assert_int_equal(unlock(&k, "rw", 2), CORRAL_OK);
  assert_int_equal(take(&k, "rw", 3, 5000), CORRAL_OK);
  assert_int_equal(take_shared(&k, "rw", 1, 5000, CORRAL_OP_SHARED), CORRAL_EBUSY);
  closed(&k);
}

static void a_hold_ends_by_the_clock_and_its_loss_says_whether_it_was_taken(void **state) {
  (void)state;
  kit k = opened(uri);
  assert_int_equal(take(&k, "short", 1, 60), CORRAL_OK);
  assert_int_equal(take(&k, "short and alone", 1, 60), CORRAL_OK);
  take_when_free(&k, "short", 2, 60000);
  is_lost(&k, CORRAL_VERB_LOCK_EXTEND, "short", 1, 1);
  char note[CORRAL_LOCK_NOTE + 1];
  while (shown(&k, "short and alone", note, NULL) > 0) poll(NULL, 0, 1);
  is_lost(&k, CORRAL_VERB_UNLOCK, "short and alone", 1, 0);
  closed(&k);
}

static void names_are_bytes_of_any_value(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t len;
  } names[] = {{"a", 1},       {"a\0", 2}, {"a\0b", 3},
               {"\0", 1},      {"A", 1},   {"'; DROP TABLE corral_lock; --", 29},
               {"\xff\xfe", 2}};
  kit k = opened(uri);
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    corral_op op = hold_op(CORRAL_VERB_LOCK, "", 100 + i, 5000);
    op.key = names[i].bytes;
    op.key_len = names[i].len;
    assert_int_equal(by(&k, &op, HOLD_PATIENCE_MS), CORRAL_OK);
  }
  assert_int_equal(number_of("SELECT count(*) FROM corral_lock WHERE name <> x''"),
                   sizeof names / sizeof *names);
  closed(&k);
}

static void values_and_repair_are_refused_with_a_text(void **state) {
  (void)state;
  corral_error error = {0};
  kit k = opened(uri);
  corral_op ops[2] = {hold_op(CORRAL_VERB_GET, "k", 1, 0), hold_op(CORRAL_VERB_LOCK, "k", 1, 1000)};
  ops[0].error = &error;
  assert_int_equal(perform_ops(k.plugin, k.handle, ops, 2, INT64_MAX, NULL), CORRAL_OK);
  assert_int_equal(ops[0].status, CORRAL_EUNSUPPORTED);
  assert_string_equal(error.text, "sqlite has locks only, no values");
  assert_int_equal(ops[1].status, CORRAL_OK);
  run_sql("INSERT INTO corral_lock VALUES(CAST('foreign' AS BLOB), CAST('what?' AS BLOB), 1, 0, "
          "9223372036854775807, NULL)");
  run_sql("INSERT INTO corral_lock VALUES(CAST('empty' AS BLOB), x'', 1, 0, 9223372036854775807, "
          "NULL)");
  ops[1] = hold_op(CORRAL_VERB_LOCK, "foreign", 1, 1000);
  ops[1].error = &error;
  assert_int_equal(by(&k, &ops[1], HOLD_PATIENCE_MS), CORRAL_EFOREIGN);
  assert_int_equal(ops[1].lock_state.left_ms, -1);
  assert_non_null(strstr(error.text, "deleting it frees the lock"));
  assert_int_equal(take(&k, "empty", 1, 1000), CORRAL_EFOREIGN);
  closed(&k);
}

static void people_with_an_sql_prompt_can_read_who_holds_what(void **state) {
  (void)state;
  kit k = opened(uri);
  corral_op op = hold_op(CORRAL_VERB_LOCK, "nightly", 1, 5000);
  op_notes(&op, "host/12/13 backup");
  assert_int_equal(by(&k, &op, HOLD_PATIENCE_MS), CORRAL_OK);
  assert_int_equal(number_of("SELECT count(*) FROM corral_lock WHERE CAST(name AS TEXT) = "
                             "'nightly' AND holds = 1 AND who = 'host/12/13 backup'"),
                   1);
  assert_int_equal(number_of("SELECT fence FROM corral_lock WHERE CAST(name AS TEXT) = 'nightly'"),
                   op.lock_state.fence);
  assert_int_equal(unlock(&k, "nightly", 1), CORRAL_OK);
  assert_int_equal(
      number_of("SELECT count(*) FROM corral_lock WHERE holds = 0 AND who IS NULL AND name <> x''"),
      1);
  closed(&k);
}

static int waits(const kit *k, const char *name, unsigned holder, const char *note) {
  corral_op op = hold_op(CORRAL_VERB_LOCK, name, holder, 5000);
  op.flags = CORRAL_OP_FAIR;
  op.lock.wish_ms = CORRAL_LOCK_WISH_MS;
  op_notes(&op, note);
  return by(k, &op, HOLD_PATIENCE_MS);
}

static void who_waits_in_turn_is_no_holder_in_the_table(void **state) {
  (void)state;
  kit k = opened(uri);
  assert_int_equal(take(&k, "n", 1, 5000), CORRAL_OK);
  assert_int_equal(waits(&k, "n", 2, "second"), CORRAL_EBUSY);
  assert_int_equal(waits(&k, "n", 3, "third"), CORRAL_EBUSY);
  assert_int_equal(unlock(&k, "n", 1), CORRAL_OK);
  assert_int_equal(number_of("SELECT count(*) FROM corral_lock WHERE CAST(name AS TEXT) = 'n' AND "
                             "holds = 0 AND who IS NULL"),
                   1);
  assert_int_equal(waits(&k, "n", 2, "second"), CORRAL_OK);
  assert_int_equal(number_of("SELECT count(*) FROM corral_lock WHERE CAST(name AS TEXT) = 'n' AND "
                             "holds = 1 AND who = 'second'"),
                   1);
  closed(&k);
}

/* ---- fencing ------------------------------------------------------------------------------- */

static void fencing_tokens_grow_for_ever(void **state) {
  (void)state;
  kit k = opened(uri);
  fences_grow(&k, "n");
  closed(&k);
}

static corral_host shifted;
static const corral_host *whole;
static int64_t boot_shift, wall_shift;
static int64_t shifted_boot(void) { return whole->boot_ms() + boot_shift; }
static int64_t shifted_wall(void) { return whole->wall_ms() + wall_shift; }

/* Opens a store whose host's clocks are shifted by boot_shift and wall_shift. */
static kit opened_shifted(void) {
  kit k = opened(uri);
  crl_uri parsed;
  corral_store_info info = {.size = sizeof info};
  closed(&k);
  whole = k.host;
  shifted = *whole;
  shifted.boot_ms = shifted_boot;
  shifted.wall_ms = shifted_wall;
  assert_int_equal(crl_uri_parse(&parsed, uri, NULL), CORRAL_OK);
  assert_int_equal(k.plugin->open(&shifted, &parsed.view, &k.store, &info, NULL), CORRAL_OK);
  crl_uri_free(&parsed);
  assert_int_equal(info.locks_only, 1);
  assert_int_equal(info.reach, CORRAL_REACH_HOST);
  assert_int_equal(k.plugin->connect(k.store, INT64_MAX, &k.handle, NULL), CORRAL_OK);
  return k;
}

static void
a_wall_clock_that_is_set_back_lowers_no_fencing_token_also_of_forgotten_rows(void **state) {
  (void)state;
  boot_shift = 0, wall_shift = INT64_C(86400000);
  kit k = opened_shifted();
  uint64_t high = take_fence(&k, "old", 1), next;
  assert_int_equal(unlock(&k, "old", 1), CORRAL_OK);
  wall_shift = -INT64_C(86400000);
  next = take_fence(&k, "old", 2);
  assert_true(next > high);
  assert_int_equal(unlock(&k, "old", 2), CORRAL_OK);
  boot_shift = 3 * CORRAL_LOCK_MEMORY_MS; /* the next grant of another lock deletes the row */
  assert_int_equal(take(&k, "other", 3, 60000), CORRAL_OK);
  assert_int_equal(number_of("SELECT count(*) FROM corral_lock WHERE CAST(name AS TEXT) = 'old'"),
                   0);
  assert_true(take_fence(&k, "old", 4) > next);
  closed(&k);
}

static void rows_that_are_over_are_swept_and_those_in_use_are_not(void **state) {
  (void)state;
  char name[32];
  boot_shift = wall_shift = 0;
  kit k = opened_shifted();
  assert_int_equal(take(&k, "kept", 1, 100 * CORRAL_LOCK_MEMORY_MS), CORRAL_OK);
  for (unsigned i = 0; i < 100; i++)
    assert_int_equal(take(&k, numbered(name, "gone ", i), 2 + i, 50), CORRAL_OK);
  boot_shift = 2 * CORRAL_LOCK_MEMORY_MS;
  for (unsigned i = 0; i < 20; i++)
    assert_int_equal(take(&k, numbered(name, "new ", i), 2 + i, 50), CORRAL_OK);
  assert_int_equal(number_of("SELECT count(*) FROM corral_lock"), 1 + 1 + 20);
  assert_int_equal(take(&k, "kept", 2, 1000), CORRAL_EBUSY);
  closed(&k);
}

/* ---- a reboot, another host ---------------------------------------------------------------- */

static void a_reboot_ends_all_holds_but_no_fencing_token_sinks(void **state) {
  (void)state;
  kit k = opened(uri);
  uint64_t fence = take_fence(&k, "n", 1);
  closed(&k);
  run_sql("UPDATE corral_lock SET record = CAST('00000000-0000-0000-0000-000000000000' AS BLOB) "
          "WHERE name = x''");
  run_sql("UPDATE corral_lock SET fence = fence + 86400000000 WHERE name <> x''");
  k = opened(uri);
  corral_op op = hold_op(CORRAL_VERB_LOCK, "n", 2, 5000);
  assert_int_equal(by(&k, &op, HOLD_PATIENCE_MS), CORRAL_OK);
  assert_true(op.lock_state.fence > fence + UINT64_C(86400000000));
  closed(&k);
}

static void a_file_that_another_host_opened_is_left_with_a_text(void **state) {
  (void)state;
  corral_error error = {0};
  kit k = opened(uri);
  assert_int_equal(take(&k, "n", 1, 5000), CORRAL_OK);
  run_sql("UPDATE corral_lock SET record = CAST('00000000-0000-0000-0000-000000000000' AS BLOB) "
          "WHERE name = x''");
  corral_op ops[2] = {hold_op(CORRAL_VERB_LOCK_EXTEND, "n", 1, 5000),
                      hold_op(CORRAL_VERB_LOCK, "m", 1, 5000)};
  assert_int_equal(perform_ops(k.plugin, k.handle, ops, 2, INT64_MAX, &error), CORRAL_EREFUSED);
  assert_non_null(strstr(error.text, "another host"));
  assert_int_equal(ops[0].status, CORRAL_EREFUSED);
  assert_int_equal(ops[1].status, CORRAL_EUNAVAILABLE);
  closed(&k);
}

/* ---- other processes ----------------------------------------------------------------------- */

static void a_killed_holder_is_replaced_when_its_hold_ends(void **state) {
  (void)state;
  atomic_int *shared = common();
  pid_t pid = holder(uri, shared, 300);
  kit k = opened(uri);
  gone(pid, SIGKILL);
  take_when_free(&k, "held", 2, 5000);
  is_lost(&k, CORRAL_VERB_LOCK_EXTEND, "held", 77, 1);
  closed(&k);
  munmap(shared, 4096);
}

static void lock_the_file(const char *unused, atomic_int *shared) {
  (void)unused;
  sqlite3 *db = NULL;
  while (atomic_load(&shared[1]) == 0) poll(NULL, 0, 1);
  if (sqlite3_open(file, &db) != SQLITE_OK ||
      sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
    _exit(2);
  atomic_store(&shared[0], 1);
  while (atomic_load(&shared[2]) == 0) poll(NULL, 0, 1);
  sqlite3_close(db);
}

static void
a_file_that_another_process_keeps_locked_is_left_by_the_deadline_unchanged(void **state) {
  (void)state;
  atomic_int *shared = common();
  char note[CORRAL_LOCK_NOTE + 1];
  corral_error error = {0};
  pid_t pid = other(lock_the_file, uri, shared);
  kit k = opened(uri);
  assert_int_equal(take(&k, "mine", 1, 60000), CORRAL_OK);
  atomic_store(&shared[1], 1);
  await_at_least(&shared[0], 1);
  corral_op op = hold_op(CORRAL_VERB_LOCK, "n", 1, 5000);
  op.error = &error;
  int64_t begun = k.host->now_ms(); /* it is tried before its time is over */
  assert_int_equal(perform_ops(k.plugin, k.handle, &op, 1, begun + LIMIT_MS, NULL), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  assert_true(k.host->now_ms() - begun >= LIMIT_MS);
  assert_non_null(strstr(error.text, "nothing was changed"));
  assert_int_equal(shown(&k, "mine", note, NULL), 1); /* reading still works */
  assert_int_equal(take(&k, "mine", 2, 1000), CORRAL_EBUSY);
  op = hold_op(CORRAL_VERB_LOCK, "n", 1, 5000);
  assert_int_equal(by(&k, &op, -1), CORRAL_EUNAVAILABLE);
  atomic_store(&shared[2], 1);
  gone(pid, 0);
  assert_int_equal(take(&k, "n", 2, 5000), CORRAL_OK);
  closed(&k);
  munmap(shared, 4096);
}

static void open_again(const char *text, atomic_int *shared) {
  corral_error error = {0};
  kit k;
  (void)shared;
  int status = kit_open(&k, text, &error);
  if (status != CORRAL_EFORKED) fprintf(stderr, "%d: %s\n", status, error.text);
  _exit(status == CORRAL_EFORKED && strstr(error.text, "fork before opening") != NULL ? 0 : 1);
}

static void a_child_that_was_forked_while_the_file_was_open_is_refused_it(void **state) {
  (void)state;
  kit k = opened(uri);
  gone(other(open_again, uri, NULL), 0);
  assert_int_equal(take(&k, "n", 1, 5000), CORRAL_OK);
  closed(&k);
}

static void processes_that_race_for_a_lock_never_overlap(void **state) {
  (void)state;
  race_for(uri, 60);
}

static void processes_that_race_for_a_lock_in_a_file_without_wal_never_overlap(void **state) {
  (void)state;
  run_sql("PRAGMA journal_mode = DELETE; CREATE TABLE theirs(x)");
  race_for(uri, 15);
  sqlite3 *db = database();
  assert_int_equal(
      number_of("SELECT count(*) FROM pragma_journal_mode() WHERE journal_mode = 'delete'"), 1);
  sqlite3_close(db);
}

/* ---- unusable files ------------------------------------------------------------------------ */

static void a_file_that_is_removed_or_emptied_is_opened_again(void **state) {
  (void)state;
  corral_error error = {0};
  kit k = opened(uri);
  assert_int_equal(take(&k, "n", 1, 5000), CORRAL_OK);
  run_sql("DELETE FROM corral_lock");
  corral_op op = hold_op(CORRAL_VERB_LOCK, "n", 2, 5000);
  assert_int_equal(perform_ops(k.plugin, k.handle, &op, 1, INT64_MAX, &error), CORRAL_EUNAVAILABLE);
  closed(&k);
  k = opened(uri);
  assert_int_equal(take(&k, "n", 1, 5000), CORRAL_OK);
  run_sql("DROP TABLE corral_lock");
  assert_int_equal(perform_ops(k.plugin, k.handle, &op, 1, INT64_MAX, &error), CORRAL_EUNAVAILABLE);
  closed(&k);
  k = opened(uri);
  assert_int_equal(unlink(file), 0);
  assert_int_equal(perform_ops(k.plugin, k.handle, &op, 1, INT64_MAX, &error), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(error.text, "removed or replaced"));
  closed(&k);
}

static void write_file(const char *text) {
  int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
}

static void what_is_no_database_or_not_corrals_table_is_refused(void **state) {
  (void)state;
  write_file("This is a text of more than one hundred bytes, so that SQLite has a whole header to "
             "look at, and sees that it isn't one.");
  is_refused(uri, CORRAL_EIO, "something else than an SQLite database");
  assert_int_equal(unlink(file), 0);
  run_sql("CREATE TABLE corral_lock(name TEXT, thing TEXT)");
  is_refused(uri, CORRAL_EIO, "the table corral_lock is not one of corral: no such column");
  snprintf(uri, sizeof uri, "sqlite:%s?table=locks_2", file);
  kit k = opened(uri);
  assert_int_equal(take(&k, "n", 1, 60000), CORRAL_OK);
  assert_int_equal(number_of("SELECT count(*) FROM locks_2 WHERE holds = 1"), 1);
  closed(&k);
}

static void wrong_uris_say_what_is_accepted(void **state) {
  (void)state;
  is_refused("sqlite:", CORRAL_EURI, "a path is missing");
  is_refused("sqlite::memory:", CORRAL_EURI, "memory:");
  is_refused("sqlite:/tmp/", CORRAL_EURI, "folder");
  is_refused("sqlite://host/file", CORRAL_EURI, "without a host");
  is_refused("sqlite:/tmp/x?table=a%22b", CORRAL_EURI, "letters, digits");
  is_refused("sqlite:/tmp/x?table=1a", CORRAL_EURI, "digit");
  is_refused("sqlite:/tmp/x?table=sqlite_a", CORRAL_EURI, "sqlite_");
  is_refused("sqlite:/tmp/x?tabel=a", CORRAL_EURI, "table");
  snprintf(uri, sizeof uri, "sqlite:%s/no/such/folder.db", folder);
  is_refused(uri, CORRAL_EIO, "No such file");
  snprintf(uri, sizeof uri, "sqlite:%s", folder);
  is_refused(uri, CORRAL_EIO, "can't be opened");
}

/* Exit statuses of the children: 0: correct, 77: can't be tested here, else the number of the
 * failed check. */
static void as_somebody_who_cant_write(const char *text, atomic_int *shared) {
  corral_error error = {0};
  (void)shared;
  if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(77);
  kit k;
  int status = kit_open(&k, text, &error);
  if (status == CORRAL_OK) {
    corral_op op = hold_op(CORRAL_VERB_LOCK, "m", 9, 5000);
    status = perform_ops(k.plugin, k.handle, &op, 1, INT64_MAX, &error);
  }
  if (strstr(error.text, "must be able to write") == NULL)
    fprintf(stderr, "%d: %s\n", status, error.text);
  _exit(status == CORRAL_EREFUSED && strstr(error.text, "must be able to write") != NULL ? 0 : 1);
}

static void a_file_that_cant_be_written_is_refused_with_a_text(void **state) {
  (void)state;
  kit k = opened(uri);
  assert_int_equal(take(&k, "n", 1, 5000), CORRAL_OK);
  closed(&k);
  assert_int_equal(chmod(file, 0444), 0);
  assert_int_equal(chmod(folder, 0755), 0);
  gone(other(as_somebody_who_cant_write, uri, NULL), 0);
}

/* Takes locks until the store is full. Holds must still be readable then. Returns 0, or the number
 * of the failed check. */
static int fills_up(const char *text, int wanted, const char *why) {
  char name[64], note[CORRAL_LOCK_NOTE + 1];
  corral_error error = {0};
  kit k = opened(text);
  int status = CORRAL_OK;
  unsigned i = 0;
  for (; i < 20000 && status == CORRAL_OK; i++) {
    corral_op op = hold_op(CORRAL_VERB_LOCK, numbered(name, "lock ", i), i, 3600000);
    op.error = &error;
    status = by(&k, &op, 5000);
  }
  if (status != wanted || strstr(error.text, why) == NULL)
    fprintf(stderr, "%u: %d %s\n", i, status, error.text);
  if (status != wanted || strstr(error.text, why) == NULL) return 1;
  if (wanted == CORRAL_EREFUSED && shown(&k, "lock 0", note, NULL) != 1) return 2;
  if (wanted == CORRAL_EREFUSED && shown(&k, numbered(name, "lock ", i - 1), note, NULL) != 0)
    return 3;
  closed(&k);
  return 0;
}

static void with_a_limit_of_file_size(const char *text, atomic_int *shared) {
  struct rlimit small = {.rlim_cur = 200000, .rlim_max = 200000};
  (void)shared;
  signal(SIGXFSZ, SIG_IGN);
  if (setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(77);
  _exit(fills_up(text, CORRAL_EINDOUBT, "may not grow"));
}

static void on_a_small_disk(const char *text, atomic_int *shared) {
  char inside[160];
  (void)text;
  (void)shared;
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("tmpfs", folder, "tmpfs", 0, "size=256k") != 0) {
    fprintf(stderr, "SKIPPED: a small tmpfs can't be mounted here: %s\n", strerror(errno));
    _exit(0);
  }
  snprintf(inside, sizeof inside, "sqlite:%s", file);
  _exit(fills_up(inside, CORRAL_EREFUSED, "the disk is full"));
}

static void a_full_disk_is_told(void **state) {
  (void)state;
  gone(other(on_a_small_disk, uri, NULL), 0);
}

static void a_file_that_may_not_grow_is_told(void **state) {
  (void)state;
  gone(other(with_a_limit_of_file_size, uri, NULL), 0);
}

static int no_key(void *arg, const void *key, size_t len) {
  (void)arg, (void)key, (void)len;
  return 0;
}

static void a_file_that_cannot_be_looked_at_is_no_empty_list(void **state) {
  (void)state;
  corral_error error = {0};
  kit k = opened(uri);
  corral_listing listing = {
      .size = sizeof listing, .op_ms = 20000, .prefix = "n", .prefix_len = 1, .tell = no_key};
  k.plugin->disconnect(k.handle);
  (void)unlink(file);
  assert_int_equal(k.plugin->list(k.store, &listing, &error), CORRAL_OK);
  assert_int_equal(symlink(file, file), 0); /* ELOOP */
  assert_int_not_equal(k.plugin->list(k.store, &listing, &error), CORRAL_OK);
  assert_true(error.text[0] != '\0');
  k.plugin->close(k.store);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(a_lock_is_taken_extended_shown_and_released),
      CASE(readers_hold_together_and_a_writer_alone),
      CASE(a_hold_ends_by_the_clock_and_its_loss_says_whether_it_was_taken),
      CASE(names_are_bytes_of_any_value),
      CASE(a_file_that_cannot_be_looked_at_is_no_empty_list),
      CASE(values_and_repair_are_refused_with_a_text),
      CASE(people_with_an_sql_prompt_can_read_who_holds_what),
      CASE(who_waits_in_turn_is_no_holder_in_the_table),
      CASE(fencing_tokens_grow_for_ever),
      CASE(a_wall_clock_that_is_set_back_lowers_no_fencing_token_also_of_forgotten_rows),
      CASE(rows_that_are_over_are_swept_and_those_in_use_are_not),
      CASE(a_reboot_ends_all_holds_but_no_fencing_token_sinks),
      CASE(a_file_that_another_host_opened_is_left_with_a_text),
      CASE(a_killed_holder_is_replaced_when_its_hold_ends),
      CASE(a_file_that_another_process_keeps_locked_is_left_by_the_deadline_unchanged),
      CASE(a_child_that_was_forked_while_the_file_was_open_is_refused_it),
      CASE(processes_that_race_for_a_lock_never_overlap),
      CASE(processes_that_race_for_a_lock_in_a_file_without_wal_never_overlap),
      CASE(a_file_that_is_removed_or_emptied_is_opened_again),
      CASE(what_is_no_database_or_not_corrals_table_is_refused),
      CASE(wrong_uris_say_what_is_accepted),
      CASE(a_file_that_cant_be_written_is_refused_with_a_text),
      CASE(a_full_disk_is_told),
      CASE(a_file_that_may_not_grow_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
