/* test_herd_wakes.c: who wakes the callers that wait in a herd: where there are many processors,
 * two by the thread that has something to tell, two by each of those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "herd/herd.h"
#include "os/env.h"
#include "support/fork_kit.h"
#include "support/wrapped_words.h"

enum { CALLERS = 24, LATE_ONES = 8, FAR_MS = 600000 };

enum { MANY = 8 };

static int processors;
static _Atomic int sleeps, most_woken, wakes, answered;

void __wrap_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until) {
  sleeps++;
  __real_crl_env_word_wait_bits(word, seen, bits, until);
}

int __wrap_crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits) {
  if (count > most_woken) most_woken = count;
  wakes++;
  return __real_crl_env_word_wake_bits(word, count, bits);
}

int __wrap_crl_env_processors(void);
int __wrap_crl_env_processors(void) { return processors; }

static const crl_name name = {.key = "k", .key_len = 1};
static const crl_outcome made = {.status = CORRAL_ENOTFOUND, .how = CORRAL_COMPUTED};

static int64_t far(void) { return crl_env_now_ms() + FAR_MS; }

static void until_there_are(_Atomic int *count, int least) {
  for (int64_t end = far(); *count < least && crl_env_now_ms() < end;) sched_yield();
  assert_int_equal(*count, least);
}

typedef struct caller {
  pthread_t thread;
  crl_entry *entry;
  uint64_t since;
  crl_wait result;
} caller;

static void *wait_for_it(void *arg) {
  caller *c = arg;
  crl_outcome outcome;
  crl_patience patience = {.since = c->since, .deadline = far()};
  c->result = crl_herd_wait(c->entry, &patience, &outcome);
  answered++;
  return NULL;
}

/* Starts callers that began at `since`, and waits until they sleep. */
static void start(caller *callers, int count, crl_entry *entry, uint64_t since) {
  int before = sleeps;
  for (int i = 0; i < count; i++) {
    callers[i] = (caller){.entry = entry, .since = since};
    assert_int_equal(pthread_create(&callers[i].thread, NULL, wait_for_it, &callers[i]), 0);
  }
  until_there_are(&sleeps, before + count);
  /* one that was counted, and is not asleep yet, would begin again after the next change */
  for (int64_t end = far(); !others_sleep() && crl_env_now_ms() < end;) sched_yield();
}

static void join(caller *callers, int count) {
  for (int i = 0; i < count; i++) {
    pthread_join(callers[i].thread, NULL);
    assert_int_equal(callers[i].result, CRL_WAIT_LANDED);
  }
}

/* An entry whose flight has asked the store, and was answered: it is good for those who began
 * before `asked`. */
static crl_entry *lead(crl_herd *herd, uint64_t *asked) {
  processors = MANY;
  crl_entry *entry;
  uint64_t tick;
  crl_entrance entrance = {.name = &name, .hash = crl_name_hash(&name)};
  sleeps = most_woken = wakes = answered = 0;
  assert_int_equal(crl_herd_enter(herd, &entrance, &entry, &tick), CRL_ENTER_LEADS);
  *asked = crl_herd_tick(entry);
  crl_herd_confirm(entry, *asked);
  return entry;
}

static void leave(crl_herd *herd, crl_entry *entry) {
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

static void a_published_value_wakes_two_and_each_of_them_two_more(void **state) {
  (void)state;
  caller callers[CALLERS];
  uint64_t asked;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, &asked);
  start(callers, CALLERS, entry, asked - 1);
  crl_herd_publish(entry, &made, 0);
  join(callers, CALLERS);
  assert_int_equal(most_woken, 2);
  assert_true(wakes <= CALLERS / 2);
  crl_herd_land(entry, &made, CRL_GOOD_FOR_ALL);
  assert_true(wakes <= CALLERS / 2);
  leave(herd, entry);
}

static void those_whom_it_does_not_answer_sleep_on_until_the_landing(void **state) {
  (void)state;
  caller late[LATE_ONES], callers[CALLERS];
  uint64_t asked;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, &asked);
  start(late, LATE_ONES, entry, asked + 1); /* a wake of any would be theirs first */
  start(callers, CALLERS, entry, asked - 1);
  int before = sleeps;
  crl_herd_publish(entry, &made, 0);
  join(callers, CALLERS);
  assert_int_equal(answered, CALLERS);
  assert_int_equal(sleeps, before);
  crl_herd_land(entry, &made, CRL_GOOD_FOR_ALL);
  join(late, LATE_ONES);
  assert_int_equal(most_woken, 2);
  leave(herd, entry);
}

static void on_two_processors_one_thread_wakes_all(void **state) {
  (void)state;
  caller callers[CALLERS];
  uint64_t asked;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, &asked);
  processors = 2;
  start(callers, CALLERS, entry, asked - 1);
  crl_herd_publish(entry, &made, 0);
  join(callers, CALLERS);
  assert_int_equal(wakes, 1);
  crl_herd_land(entry, &made, CRL_GOOD_FOR_ALL);
  assert_int_equal(wakes, 1);
  leave(herd, entry);
}

static void once_nobody_is_left_to_wake_no_further_one_tries(void **state) {
  (void)state;
  caller late, early;
  uint64_t asked;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, &asked);
  start(&late, 1, entry, asked + 1);
  start(&early, 1, entry, asked - 1);
  int before = wakes;
  crl_herd_publish(entry, &made, 0); /* wakes one, where two might be left */
  join(&early, 1);
  assert_int_equal(wakes - before, 1);
  crl_herd_land(entry, &made, CRL_GOOD_FOR_ALL);
  join(&late, 1);
  assert_int_equal(wakes - before, 2);
  leave(herd, entry);
}

/* As when the lease is extended. */
static void an_ask_that_is_answered_while_they_sleep_makes_it_theirs_too(void **state) {
  (void)state;
  caller late[LATE_ONES], last;
  uint64_t asked;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, &asked);
  start(&last, 1, entry, asked + 9);
  start(late, LATE_ONES, entry, asked + 1);
  crl_herd_confirm(entry, asked + 5);
  crl_herd_publish(entry, &made, 0);
  join(late, LATE_ONES);
  assert_int_equal(answered, LATE_ONES);
  crl_herd_land(entry, &made, CRL_GOOD_FOR_ALL);
  join(&last, 1);
  leave(herd, entry);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_published_value_wakes_two_and_each_of_them_two_more),
      cmocka_unit_test(those_whom_it_does_not_answer_sleep_on_until_the_landing),
      cmocka_unit_test(on_two_processors_one_thread_wakes_all),
      cmocka_unit_test(once_nobody_is_left_to_wake_no_further_one_tries),
      cmocka_unit_test(an_ask_that_is_answered_while_they_sleep_makes_it_theirs_too),
  };
  return cmocka_run_group_tests_name("herd wakes", tests, NULL, NULL);
}
