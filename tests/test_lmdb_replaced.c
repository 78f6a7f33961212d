/* test_lmdb_replaced.c: an lmdb: store whose files are removed or replaced while processes use it:
 * all processes end up on the same new files. */
#include <corral/lock.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "support/lmdb_kit.h"
#include "support/watch_kit.h"

/* ---- files that vanish while liblmdb opens them --------------------------------------------- */

/* Files that are unlinked before the next mdb_env_open. `kept` holds the first one open, so that no
 * new file has its inode number. */
static const char *const *vanishing;
static int kept = -1;

int __real_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode);
int __wrap_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode);
int __wrap_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode) {
  if (vanishing != NULL) kept = open(file(*vanishing), O_RDONLY | O_CLOEXEC);
  for (; vanishing != NULL && *vanishing != NULL; vanishing++)
    assert_int_equal(unlink(file(*vanishing)), 0);
  vanishing = NULL;
  return __real_mdb_env_open(env, path, flags, mode);
}

/* ---- a clock set by the test --------------------------------------------------------------- */

static corral_host odd_host;
static int64_t odd_now_ms;

static int64_t odd_boot_ms(void) { return odd_now_ms; }

/* Opens a store whose clock the test sets. */
static kit odd_opened(const char *text) {
  kit k = {.host = &odd_host};
  crl_uri uri;
  corral_store_info info = {.size = sizeof info, .max_key = 65536};
  odd_host = *crl_registry_host();
  odd_host.boot_ms = odd_boot_ms;
  odd_now_ms = crl_registry_host()->boot_ms();
  assert_int_equal(crl_uri_parse(&uri, text, NULL), CORRAL_OK);
  assert_int_equal(crl_registry_find("lmdb", &k.plugin, NULL), CORRAL_OK);
  assert_int_equal(k.plugin->open(&odd_host, &uri.view, &k.store, &info, NULL), CORRAL_OK);
  crl_uri_free(&uri);
  assert_int_equal(k.plugin->connect(k.store, INT64_MAX, &k.handle, NULL), CORRAL_OK);
  return k;
}

/* ---- other processes ----------------------------------------------------------------------- */

/* Opens the store in another process and performs one verb (CLAIM of holder 7 is followed by
 * SETTLE). Returns the status. */
static int elsewhere(const char *name, corral_verb what, const char *key, unsigned holder) {
  pid_t pid = child();
  if (pid == 0) {
    kit k;
    if (kit_open(&k, address(name, ""), NULL) != CORRAL_OK) _exit(99);
    int status = verb(&k, what, key, holder);
    if (what == CORRAL_VERB_CLAIM && holder == 7 && status == CORRAL_OK)
      status = settle(&k, key, 7, 'e', 10, NULL);
    closed(&k);
    _exit(-status);
  }
  int end = ended(pid);
  assert_true(WIFEXITED(end));
  return -WEXITSTATUS(end);
}

static int is_there(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0;
}

/* ---- removed ------------------------------------------------------------------------------- */

static void a_claim_after_the_file_was_removed_is_made_in_the_new_one(void **state) {
  (void)state;
  kit k = opened(address("claimed", ""));
  put(&k, "k", 'x', 10);
  assert_int_equal(unlink(file("claimed")), 0);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(elsewhere("claimed", CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  closed(&k);
}

static void an_invalidation_reaches_the_file_that_others_look_at(void **state) {
  (void)state;
  kit k = opened(address("reached", ""));
  put(&k, "k", 'x', 10);
  assert_int_equal(unlink(file("reached")), 0);
  /* and stores a value */
  assert_int_equal(elsewhere("reached", CORRAL_VERB_CLAIM, "k", 7), CORRAL_OK);
  assert_int_equal(elsewhere("reached", CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  assert_int_equal(invalidate(&k, "k"), CORRAL_OK);
  assert_int_equal(elsewhere("reached", CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
  closed(&k);
}

static void a_lock_after_the_file_was_replaced_is_everybodys(void **state) {
  (void)state;
  kit k = opened(address("locked", "")), donor = opened(address("locked-donor", ""));
  closed(&donor);
  corral_op op = op_of(CORRAL_VERB_LOCK, "l", 1);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(rename(file("locked-donor"), file("locked")), 0);
  op = op_of(CORRAL_VERB_LOCK, "l", 2);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(elsewhere("locked", CORRAL_VERB_LOCK, "l", 3), CORRAL_EBUSY);
  assert_true(
      /* the donor's data file beside the first store's lock file */
      is_there(file("locked.damaged-1")));
  assert_true(is_there(file("locked.damaged-1-lock")));
  closed(&k);
}

static void looks_go_to_the_new_file_within_a_second(void **state) {
  (void)state;
  kit k = odd_opened(address("looked", ""));
  put(&k, "k", 'x', 10);
  assert_int_equal(unlink(file("looked")), 0);
  odd_now_ms += 1000;
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
  closed(&k);
}

static void looks_within_the_same_second_do_not_ask_for_the_file(void **state) {
  (void)state;
  kit k = odd_opened(address("cheap", ""));
  put(&k, "k", 'x', 10);
  assert_int_equal(rename(file("cheap"), file("cheap-away")), 0);
  odd_now_ms += 999;
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  assert_false(is_there(file("cheap")));
  odd_now_ms += 1;
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
  assert_true(is_there(file("cheap")));
  closed(&k);
}

/* Removes each of the files that belong to the data file. */
static void without_a_companion_all_begin_anew(void **state) {
  (void)state;
  static const char *const companions[] = {"-lock", "-lease", "-watch"};
  for (size_t i = 0; i < 3; i++) {
    char name[32], companion[64];
    kit k = odd_opened(address(numbered(name, "parted", (unsigned)i), ""));
    put(&k, "k", 'x', 10);
    snprintf(companion, sizeof companion, "%s%s", name, companions[i]);
    assert_int_equal(unlink(file(companion)), 0);
    odd_now_ms += 1000;
    assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
    assert_int_equal(elsewhere(name, CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
    closed(&k);
  }
}

static void a_removed_folder_is_made_again(void **state) {
  (void)state;
  char command[128];
  kit k = opened(address("gone/x", ""));
  snprintf(command, sizeof command, "rm -rf '%s'", file("gone"));
  assert_int_equal(system(command), 0);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(elsewhere("gone/x", CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  closed(&k);
}

static void a_link_that_leads_elsewhere_takes_the_calls_along(void **state) {
  (void)state;
  kit one = opened(address("one", "")), two = opened(address("two", ""));
  assert_int_equal(symlink(file("one"), file("current")), 0);
  kit k = opened(address("current", ""));
  put(&two, "k", 'x', 10);
  assert_int_equal(symlink(file("two"), file("next")), 0);
  assert_int_equal(rename(file("next"), file("current")), 0);
  assert_int_equal(invalidate(&k, "k"), CORRAL_OK);
  assert_int_equal(verb(&two, CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
  closed(&k);
  closed(&one);
  closed(&two);
}

static void where_the_process_goes_its_store_stays(void **state) {
  (void)state;
  char before[PATH_MAX];
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(folder), 0);
  kit k = opened("lmdb:relative");
  assert_int_equal(chdir("/"), 0);
  put(&k, "k", 'x', 10);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  assert_int_equal(elsewhere("relative", CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  assert_int_equal(chdir(before), 0);
  closed(&k);
}

/* ---- calls under way ----------------------------------------------------------------------- */

static void the_old_files_are_closed_with_the_last_call_on_them(void **state) {
  (void)state;
  kit a = opened(address("closing", "")), b = opened(address("closing", ""));
  int before = open_descriptors();
  for (unsigned i = 0; i < 20; i++) {
    put(&a, "k", 'x', 10);
    assert_int_equal(unlink(file("closing")), 0);
    put(&a, "k", 'x', 10);
    put(&b, "k", 'x', 10);
    assert_int_equal(open_descriptors(), before);
  }
  closed(&a);
  closed(&b);
}

static void *claim_in_vain(void *arg) {
  (void)verb(arg, CORRAL_VERB_CLAIM, "stuck", 1);
  return NULL;
}

static void calls_on_the_new_file_do_not_wait_for_one_on_the_old(void **state) {
  (void)state;
  pthread_t waits;
  kit k = opened(address("stuck", ""));
  pid_t pid = stuck_process(file("stuck"), 0);
  assert_int_equal(pthread_create(&waits, NULL, claim_in_vain, &k), 0);
  assert_int_equal(unlink(file("stuck")), 0);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(kill(pid, SIGKILL), 0);
  (void)ended(pid);
  assert_int_equal(pthread_join(waits, NULL), 0);
  closed(&k);
}

static void what_vanishes_while_it_is_opened_is_made_anew(void **state) {
  (void)state;
  static const char *const sets[][3] = {{"vanishes"},
                                        {"vanishes-lease"},
                                        {"vanishes-lock"},
                                        {"vanishes", "vanishes-lease"},
                                        {"vanishes-lock", "vanishes-lease"}};
  kit k = opened(address("vanishes", ""));
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    const char *const names[] = {sets[i][0], sets[i][1], NULL};
    assert_int_equal(unlink(file("vanishes")), 0);
    vanishing = names;
    assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
    assert_null(vanishing);
    assert_int_equal(close(kept), 0);
    assert_int_equal(elsewhere("vanishes", CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  }
  closed(&k);
}

enum { ROUNDS = 60, CALLERS = 4 };

typedef struct crowd {
  kit k;
  atomic_uint count, calls;
  atomic_int stop, wrong;
} crowd;

/* Uses a handle while the files are removed and replaced. */
static void *call_on(void *arg) {
  crowd *c = arg;
  char key[32];
  unsigned own = atomic_fetch_add(&c->count, 1);
  for (unsigned i = 0; !atomic_load(&c->stop); i++) {
    corral_error error = {0}, detail = {0};
    corral_op op = op_of(i % 4 == 0 ? CORRAL_VERB_CLAIM : CORRAL_VERB_GET,
                         numbered(key, "k", i % 10), i * CALLERS + own);
    op.error = &detail;
    int status = perform_ops(c->k.plugin, c->k.handle, &op, 1, INT64_MAX, &error);
    done(&op);
    atomic_fetch_add(&c->calls, 1);
    if (status == CORRAL_OK &&
        (op.status == CORRAL_OK || op.status == CORRAL_EMISS || op.status == CORRAL_EBUSY))
      continue;
    fprintf(stderr, "%s: %s: %s\n", corral_status_name(op.status), error.text, detail.text);
    atomic_fetch_add(&c->wrong, 1);
  }
  return NULL;
}

static void callers_and_replacements_cross_without_harm(void **state) {
  (void)state;
  crowd c = {.k = opened(address("crowd", ""))};
  pthread_t threads[CALLERS];
  int before = open_descriptors();
  for (size_t i = 0; i < CALLERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, call_on, &c), 0);
  for (unsigned i = 0; i < ROUNDS; i++) {
    static const char *const names[] = {"crowd", "crowd-lock", "crowd-lease"};
    (void)unlink(file(i % 7 == 0 ? names[1 + i / 7 % 2] : names[0]));
    unsigned calls = atomic_load(&c.calls);
    while (!is_there(file("crowd")) || atomic_load(&c.calls) - calls < 2 * CALLERS) sched_yield();
  }
  atomic_store(&c.stop, 1);
  for (size_t i = 0; i < CALLERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(atomic_load(&c.wrong), 0);
  assert_int_equal(verb(&c.k, CORRAL_VERB_GET, "none", 0), CORRAL_EMISS);
  assert_int_equal(open_descriptors(), before);
  closed(&c.k);
}

/* ---- watches ------------------------------------------------------------------------------- */

static void watches_of_all_processes_are_told_that_any_key_may_have_changed(void **state) {
  (void)state;
  kit k = opened(address("told", ""));
  ear *e = ear_open(&k);
  put(&k, "k", 'x', 10);
  catch_up(e);
  forget(e);
  assert_int_equal(unlink(file("told")), 0);
  int status = CORRAL_OK;
  for (int i = 0; i < 100 && status == CORRAL_OK; i++)
    status = k.plugin->changes(e->watch, -1, k.host->now_ms() + 60000, ear_hears, e, NULL);
  assert_int_equal(status, CORRAL_EIO); /* the library then opens another watch */
  assert_true(any_told(e));
  ear_close(e);
  closed(&k);
}

static char anew[400];

static void note(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event == CORRAL_EVENT_STORE_ANEW) snprintf(anew, sizeof anew, "%s", info->detail);
}

static void the_user_is_told_what_became_of_the_files(void **state) {
  (void)state;
  corral *c = NULL;
  corral_error error = {0};
  kit k = opened(address("event", ""));
  closed(&k);
  assert_int_equal(truncate(file("event"), 5000), 0);
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = address("event", ""), .on_event = note), &c, &error),
      CORRAL_OK);
  assert_int_equal(corral_set(c, "k", 1, NULL, "v", 1), CORRAL_OK);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_STORE_ANEW), 1);
  assert_non_null(strstr(anew, "event: damaged: put aside as "));
  assert_non_null(strstr(anew, "event.damaged-1, and begun anew"));
  assert_int_equal(unlink(file("event")), 0);
  assert_int_equal(corral_set(c, "k", 1, NULL, "v", 1), CORRAL_OK);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_STORE_ANEW), 2);
  assert_non_null(strstr(anew, "event: removed or replaced"));
  assert_int_equal(corral_counter(c, CORRAL_EVENT_STORE_ERROR), 0);
  corral_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_claim_after_the_file_was_removed_is_made_in_the_new_one),
      cmocka_unit_test(an_invalidation_reaches_the_file_that_others_look_at),
      cmocka_unit_test(a_lock_after_the_file_was_replaced_is_everybodys),
      cmocka_unit_test(looks_go_to_the_new_file_within_a_second),
      cmocka_unit_test(looks_within_the_same_second_do_not_ask_for_the_file),
      cmocka_unit_test(without_a_companion_all_begin_anew),
      cmocka_unit_test(a_removed_folder_is_made_again),
      cmocka_unit_test(a_link_that_leads_elsewhere_takes_the_calls_along),
      cmocka_unit_test(where_the_process_goes_its_store_stays),
      cmocka_unit_test(the_old_files_are_closed_with_the_last_call_on_them),
      cmocka_unit_test(calls_on_the_new_file_do_not_wait_for_one_on_the_old),
      cmocka_unit_test(what_vanishes_while_it_is_opened_is_made_anew),
      cmocka_unit_test(callers_and_replacements_cross_without_harm),
      cmocka_unit_test(watches_of_all_processes_are_told_that_any_key_may_have_changed),
      cmocka_unit_test(the_user_is_told_what_became_of_the_files),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
