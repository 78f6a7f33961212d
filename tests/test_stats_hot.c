/* test_stats_hot.c: the heaviest keys, as they are read: of one corral, and of all of a host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <corral.h>

#include "os/env.h"
#include "stats/hot.h"
#include "stats/layout.h"
#include "support/stats_kit.h"

enum { PATH = 256 + ROOM_PATH, GETS = 64000, TENTH = 10, PROCESSES = 3 };

/* ---- what is told -------------------------------------------------------------------------- */

typedef struct told {
  corral_hot_key keys[CRL_HOT_KEYS];
  size_t count;
} told;

static int note(const corral_hot_key *hot, void *arg) {
  told *t = arg;
  assert_int_equal(hot->size, sizeof *hot);
  assert_true(t->count < CRL_HOT_KEYS);
  assert_true(hot->error <= hot->count);
  assert_true(t->count == 0 || t->keys[t->count - 1].count >= hot->count);
  t->keys[t->count++] = *hot;
  return 0;
}

static told told_by(const corral_stats *stats) {
  told t = {.count = 0};
  size_t count = corral_stats_hot(stats, note, &t);
  assert_int_equal(count, t.count);
  return t;
}

static told told_by_host(void) {
  seen s = see_host(folder);
  told t = told_by(s.sum);
  corral_stats_free(s.sum);
  return t;
}

static const corral_hot_key *find(const told *t, const char *key) {
  size_t i = 0;
  while (i < t->count && strcmp(t->keys[i].key, key) != 0) i++;
  return i < t->count ? &t->keys[i] : NULL;
}

/* The key is told, with ten of eleven calls. Counts are halved while the test goes on; shares stay
 * as they are. */
static void has_most(const told *t, const char *key) {
  uint64_t all = 0;
  const corral_hot_key *hot = find(t, key);
  if (hot == NULL) fail_msg("%s isn't told", key);
  for (size_t i = 0; i < t->count; i++) all += t->keys[i].count;
  assert_ptr_equal(hot, t->keys);
  assert_int_equal(hot->key_len, strlen(key));
  assert_int_equal(hot->key_kept, strlen(key));
  assert_in_range(hot->count * 100 / all, 80, 97);
  assert_true(hot->count - hot->error < GETS * 12 / 10); /* 6 standard deviations more */
}

/* One key has ten calls for one of others, which differ. */
static void load(corral *c, int hot, int cold) {
  for (int i = 0; i < GETS; i++) {
    assert_int_equal(get_number(c, hot), CORRAL_OK);
    if (i % TENTH == 0) assert_int_equal(get_number(c, cold + i), CORRAL_OK);
  }
}

/* ---- of one corral ------------------------------------------------------------------------- */

static void the_key_with_most_calls_is_told_first(void **state) {
  (void)state;
  corral *c = open_counting(folder, 1 << 20, 0);
  load(c, 7, 1000);
  corral_stats *own = read_of(c);
  told by_own = told_by(own), by_host = told_by_host();
  for (int i = 0; i < 2; i++) {
    const told *t = i == 0 ? &by_own : &by_host;
    has_most(t, "7");
    assert_true(t->count > 10);
  }
  assert_int_equal(by_own.keys[0].key_hash, by_host.keys[0].key_hash);
  corral_stats_free(own);
  corral_close(c);
}

static int end_of_telling(const corral_hot_key *hot, void *arg) {
  (void)hot;
  return ++*(int *)arg == 2;
}

static void telling_ends_when_the_callback_says_so(void **state) {
  (void)state;
  int calls = 0;
  corral *c = open_counting(folder, 1 << 20, 0);
  load(c, 7, 1000);
  corral_stats *own = read_of(c);
  assert_int_equal(corral_stats_hot(own, end_of_telling, &calls), 2);
  assert_int_equal(calls, 2);
  corral_stats_free(own);
  corral_close(c);
}

static void long_keys_are_cut_and_told_apart(void **state) {
  (void)state;
  char keys[2][201];
  corral *c = open_counting(folder, 1 << 20, 0);
  for (int k = 0; k < 2; k++) {
    memset(keys[k], 'x', 200);
    keys[k][150] = (char)('a' + k);
    keys[k][200] = '\0';
  }
  for (int i = 0; i < GETS; i++) {
    corral_value *value = NULL;
    assert_int_equal(corral_get_or_compute(c, keys[i % 2], 200, NULL, compute_one, NULL, &value),
                     CORRAL_OK);
    corral_value_unref(value);
  }
  told t = told_by_host();
  assert_int_equal(t.count, 2);
  assert_string_equal(t.keys[0].key, t.keys[1].key);
  assert_true(t.keys[0].key_hash != t.keys[1].key_hash);
  for (int k = 0; k < 2; k++) {
    assert_int_equal(t.keys[k].key_kept, CORRAL_STATS_KEY);
    assert_int_equal(strlen(t.keys[k].key), CORRAL_STATS_KEY);
    assert_int_equal(t.keys[k].key_len, 200);
  }
  corral_close(c);
}

/* Nobody would read it; but for the option, which needs it. */
static void without_a_stats_file_calls_are_counted_for_the_option_alone(void **state) {
  (void)state;
  for (int with = 0; with < 2; with++) {
    corral *c;
    assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:", .stats_dir = "off",
                                                .hot_pct = with ? 5 : CORRAL_OFF),
                                 &c, NULL),
                     CORRAL_OK);
    load(c, 7, 1000);
    corral_stats *own = read_of(c);
    told t = told_by(own);
    assert_int_equal(t.count > 0, with);
    if (with) has_most(&t, "7");
    corral_stats_free(own);
    corral_close(c);
  }
}

/* ---- of a host ----------------------------------------------------------------------------- */

/* Has a file, and counts once all others have one: a process that ends leaves its file to the next
 * one. */
static void count_in_child(int number, const int ready[2], const int go[2]) {
  char any;
  corral *c = open_counting(folder, 1 << 20, 0);
  close(go[1]);
  if (get_number(c, 7) != CORRAL_OK || write(ready[1], "x", 1) != 1) _exit(1);
  if (read(go[0], &any, 1) != 0) _exit(1);
  load(c, 7, 100000 * (number + 1));
  _exit(0);
}

static void load_in_processes(void) {
  pid_t children[PROCESSES];
  int ready[2], go[2];
  char any;
  assert_true(pipe(ready) == 0 && pipe(go) == 0);
  for (int i = 0; i < PROCESSES; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) count_in_child(i, ready, go);
  }
  close(ready[1]);
  for (int i = 0; i < PROCESSES; i++) assert_int_equal(read(ready[0], &any, 1), 1);
  close(go[1]);
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_int_equal(status, 0);
  }
  close(ready[0]);
  close(go[0]);
}

/* The counts of the key that all have asked for, by file. */
typedef struct sums {
  corral_stats *sum;
  uint64_t count, error;
  int files;
} sums;

static int add_file(const corral_stats *stats, void *arg) {
  sums *s = arg;
  told t = told_by(stats);
  has_most(&t, "7");
  s->count += t.keys[0].count;
  s->error += t.keys[0].error;
  s->files++;
  return corral_stats_add(s->sum, stats);
}

static void the_calls_of_a_host_are_the_sum_of_its_processes(void **state) {
  (void)state;
  corral_error error;
  load_in_processes();
  sums s = {.sum = corral_stats_new()};
  assert_int_equal(corral_stats_host(folder, add_file, &s, &error), CORRAL_OK);
  told t = told_by(s.sum);
  assert_int_equal(s.files, PROCESSES);
  assert_string_equal(t.keys[0].key, "7");
  assert_int_equal(t.keys[0].count, s.count);
  assert_int_equal(t.keys[0].error, s.error);
  assert_int_equal(t.count, CRL_HOT_KEYS);
  corral_stats_free(s.sum);
}

/* ---- files --------------------------------------------------------------------------------- */

/* Changes the word of the table of the file, whose process has ended. */
static void change(size_t at, uint64_t to) {
  char path[PATH];
  size_t size;
  find_file(folder, path);
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0);
  off_t where = (off_t)(crl_layout_part(CRL_PART_HOT, &size) + at);
  assert_int_equal(pwrite(fd, &to, sizeof to, where), sizeof to);
  close(fd);
}

static void load_and_end(void) {
  corral *c = open_counting(folder, 1 << 20, 0);
  load(c, 7, 1000);
  corral_close(c);
}

static void heat_passes_while_nobody_counts(void **state) {
  (void)state;
  load_and_end();
  uint64_t before = told_by_host().keys[0].count;
  change(offsetof(crl_hot_table, halved), (uint64_t)(crl_env_now_ms() - 3 * CRL_HOT_HALF_MS - 1));
  assert_in_range(told_by_host().keys[0].count, before / 8 - 1, before / 2);
  change(offsetof(crl_hot_table, halved), (uint64_t)(crl_env_now_ms() - 100 * CRL_HOT_HALF_MS));
  assert_int_equal(told_by_host().count, 0);
  change(offsetof(crl_hot_table, halved), UINT64_MAX / 4); /* by another clock */
  assert_int_equal(told_by_host().count, 0);
}

static void what_was_being_changed_is_not_told(void **state) {
  (void)state;
  load_and_end();
  change(offsetof(crl_hot_table, begun), UINT64_MAX);
  seen s = see_host(folder);
  assert_int_equal(told_by(s.sum).count, 0);
  assert_true(corral_stats_results(s.sum, CORRAL_RESULT_NEAR) > 0);
  corral_stats_free(s.sum);
}

static void an_error_is_never_more_than_its_count(void **state) {
  (void)state;
  load_and_end();
  for (size_t i = 0; i < CRL_HOT_KEYS; i++)
    change(offsetof(crl_hot_table, errors) + i * sizeof(uint64_t), UINT64_MAX);
  told t = told_by_host(); /* notes it */
  assert_true(t.count > 0);
}

/* A later process begins with none of what an earlier one counted. */
static void a_later_process_begins_anew(void **state) {
  (void)state;
  load_and_end();
  assert_true(told_by_host().count > 0);
  corral *c = open_counting(folder, 1 << 20, 0);
  assert_int_equal(get_number(c, 7), CORRAL_OK);
  assert_in_range(told_by_host().count, 0, 1);
  corral_close(c);
}

#define T(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(the_key_with_most_calls_is_told_first),
      T(telling_ends_when_the_callback_says_so),
      T(long_keys_are_cut_and_told_apart),
      T(without_a_stats_file_calls_are_counted_for_the_option_alone),
      T(the_calls_of_a_host_are_the_sum_of_its_processes),
      T(heat_passes_while_nobody_counts),
      T(what_was_being_changed_is_not_told),
      T(an_error_is_never_more_than_its_count),
      T(a_later_process_begins_anew),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
