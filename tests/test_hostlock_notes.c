/* test_hostlock_notes.c: notes of lease tokens in the host lock's file. The tests let a holder
 * "die" by closing its descriptor, at which the kernel frees the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "os/env.h"
#include "election/hostlock.h"

enum { SLOT = 2 * CORRAL_TOKEN, TRIES = 200000 };

static char folder[32];
static crl_hostlock *lock;
static uint8_t first[CORRAL_TOKEN], second[CORRAL_TOKEN], third[CORRAL_TOKEN];

static int set_up(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "hostlock_notes_XXXXXX");
  if (mkdtemp(folder) == NULL) return 1;
  crl_env_random(first, sizeof first);
  crl_env_random(second, sizeof second);
  crl_env_random(third, sizeof third);
  lock = crl_hostlock_new(folder, "scope");
  return lock == NULL;
}

static const char *path(void) {
  static char text[64];
  snprintf(text, sizeof text, "%s/corral.lock", folder);
  return text;
}

static int tear_down(void **state) {
  (void)state;
  crl_hostlock_free(lock);
  unlink(path());
  return rmdir(folder);
}

static int take(const char *key) {
  int hold = -1;
  assert_int_equal(crl_hostlock_take(lock, key, strlen(key), &hold, NULL), CORRAL_OK);
  return hold;
}

static void note(int hold, const char *key, const uint8_t *token, const uint8_t *over) {
  crl_hostlock_note(lock, hold, key, strlen(key), token, over);
}

static int noted(int hold, const char *key, const uint8_t *token) {
  return crl_hostlock_noted(lock, hold, key, strlen(key), token);
}

static void erase(int hold, const char *key, const uint8_t *token) {
  crl_hostlock_erase(lock, hold, key, strlen(key), token);
}

/* End of the slot of a key: the file's size after a note for that key alone. */
static off_t end_of_slot(const char *key) {
  int hold = take(key);
  assert_int_equal(truncate(path(), 0), 0);
  note(hold, key, first, NULL);
  off_t end = lseek(hold, 0, SEEK_END);
  crl_hostlock_give(hold);
  return end;
}

/* ---- holders that were passed by ----------------------------------------------------------- */

static int passed(const char *key) { return crl_hostlock_passed(lock, key, strlen(key)); }

static void a_holder_that_was_passed_by_is_remembered_until_the_lock_is_had_again(void **state) {
  (void)state;
  int hold = take("k");
  note(hold, "k", first, NULL);
  assert_false(passed("k"));
  crl_hostlock_pass(lock, "k", 1);
  assert_true(passed("k"));
  assert_false(passed("other"));
  crl_hostlock_give(hold);
  hold = take("k");
  assert_false(passed("k"));
  crl_hostlock_give(hold);
}

/* Another process may have had the lock meanwhile: who claims a lease notes its token. */
static void a_holder_that_notes_a_token_is_not_the_one_that_was_passed_by(void **state) {
  (void)state;
  int hold = take("k");
  crl_hostlock_pass(lock, "k", 1);
  note(hold, "k", first, NULL);
  assert_false(passed("k"));
  erase(hold, "k", first);
  assert_true(passed("k"));
  crl_hostlock_give(hold);
}

/* ---- notes that are found ------------------------------------------------------------------ */

static void the_token_of_a_dead_holder_is_found_and_no_other(void **state) {
  (void)state;
  int hold = take("k");
  assert_false(noted(hold, "k", first));
  note(hold, "k", first, NULL);
  close(hold);
  hold = take("k");
  assert_true(noted(hold, "k", first));
  assert_false(noted(hold, "k", second));
  assert_false(noted(hold, "other", first));
  crl_hostlock_give(hold);
}

static void a_holder_that_ends_erases_its_note_and_only_its_own(void **state) {
  (void)state;
  int hold = take("k");
  note(hold, "k", first, NULL);
  erase(hold, "k", second);
  assert_true(noted(hold, "k", first));
  erase(hold, "k", first);
  crl_hostlock_give(hold);
  hold = take("k");
  assert_false(noted(hold, "k", first));
  crl_hostlock_give(hold);
}

/* A process that dies before its claim arrives has not replaced the lease, so both tokens must be
 * noted. */
static void the_lease_that_a_claim_takes_over_stays_noted_beside_the_new_one(void **state) {
  (void)state;
  int hold = take("k");
  note(hold, "k", second, first);
  close(hold);
  hold = take("k");
  assert_true(noted(hold, "k", first));
  assert_true(noted(hold, "k", second));
  note(hold, "k", third, second);
  assert_false(noted(hold, "k", first));
  crl_hostlock_give(hold);
}

/* ---- notes that are not found -------------------------------------------------------------- */

static void a_lease_without_a_token_is_nobody_s(void **state) {
  (void)state;
  static const uint8_t none[CORRAL_TOKEN];
  int hold = take("k");
  assert_false(noted(hold, "k", none));
  note(hold, "k", first, NULL);
  assert_false(noted(hold, "k", none));
  crl_hostlock_give(hold);
}

static void two_keys_on_one_slot_forget_each_other_and_believe_nothing_of_each_other(void **state) {
  (void)state;
  char other[24] = "";
  off_t end = end_of_slot("k");
  for (int i = 0; i < TRIES; i++) {
    snprintf(other, sizeof other, "other-%d", i);
    if (end_of_slot(other) == end) break;
  }
  assert_int_equal(end_of_slot(other), end);
  int one = take("k"), two = take(other);
  note(one, "k", first, NULL);
  note(two, other, second, NULL);
  assert_false(noted(one, "k", first));
  erase(one, "k", first);
  assert_true(noted(two, other, second));
  crl_hostlock_give(one);
  crl_hostlock_give(two);
}

static void a_file_that_was_cut_or_half_written_says_nothing(void **state) {
  (void)state;
  off_t end = end_of_slot("k");
  int hold = take("k");
  note(hold, "k", first, second);
  assert_int_equal(truncate(path(), end - 1), 0);
  assert_false(noted(hold, "k", first));
  note(hold, "k", first, second);
  assert_int_equal(pwrite(hold, third, CORRAL_TOKEN / 2, end - SLOT), CORRAL_TOKEN / 2);
  assert_false(noted(hold, "k", first));
  assert_false(noted(hold, "k", third));
  assert_int_equal(truncate(path(), 0), 0);
  assert_false(noted(hold, "k", second));
  crl_hostlock_give(hold);
}

static void the_table_is_no_larger_than_128_KiB_whatever_the_keys(void **state) {
  (void)state;
  char key[16];
  for (int i = 0; i < 2000; i++) {
    snprintf(key, sizeof key, "key-%d", i);
    int hold = take(key);
    note(hold, key, first, NULL);
    assert_in_range(lseek(hold, 0, SEEK_END), SLOT, 4096 * SLOT);
    crl_hostlock_give(hold);
  }
}

/* A write beyond RLIMIT_FSIZE would kill the process by SIGXFSZ. */
static void a_process_that_may_not_write_so_large_a_file_notes_nothing(void **state) {
  (void)state;
  struct rlimit old, small;
  int hold = take("k");
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = (struct rlimit){.rlim_cur = SLOT - 1, .rlim_max = old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  note(hold, "k", first, NULL);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_false(noted(hold, "k", first));
  crl_hostlock_give(hold);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_holder_that_was_passed_by_is_remembered_until_the_lock_is_had_again),
      TEST(a_holder_that_notes_a_token_is_not_the_one_that_was_passed_by),
      TEST(the_token_of_a_dead_holder_is_found_and_no_other),
      TEST(a_holder_that_ends_erases_its_note_and_only_its_own),
      TEST(the_lease_that_a_claim_takes_over_stays_noted_beside_the_new_one),
      TEST(a_lease_without_a_token_is_nobody_s),
      TEST(two_keys_on_one_slot_forget_each_other_and_believe_nothing_of_each_other),
      TEST(a_file_that_was_cut_or_half_written_says_nothing),
      TEST(the_table_is_no_larger_than_128_KiB_whatever_the_keys),
      TEST(a_process_that_may_not_write_so_large_a_file_notes_nothing),
  };
  return cmocka_run_group_tests_name("hostlock_notes", tests, NULL, NULL);
}
