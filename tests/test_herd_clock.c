/* test_herd_clock.c: when a wait in the herd ends, to the millisecond: the clock is the test's, and
 * moves only when the waiter sleeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "herd/herd.h"
#include "os/env.h"

enum { NOW = 1000, SOFT = 5000, DEADLINE = 9000 };

static int64_t now;
static crl_entry *lands; /* an entry whose flight lands during the next sleep, or NULL */

int64_t __wrap_crl_env_now_ms(void);
int64_t __wrap_crl_env_now_ms(void) { return now; }

static const crl_outcome made = {.status = CORRAL_ENOTFOUND, .how = CORRAL_COMPUTED},
                         stale = {.status = CORRAL_ENOTFOUND, .how = CORRAL_STALE};

/* A sleep lasts until its limit, or a moment where something wakes it. */
void __wrap_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until);
void __wrap_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until) {
  (void)bits;
  if (*word != seen) return;
  assert_true(until > now && until < INT64_MAX); /* else it would sleep for ever, or not at all */
  if (lands == NULL) {
    now = until;
    return;
  }
  now++;
  crl_herd_land(lands, &made, CRL_GOOD_FOR_ALL);
  lands = NULL;
}

typedef struct room {
  crl_herd *herd;
  crl_entry *entry;
  crl_outcome outcome;
} room;

static const crl_name name = {.key = "k", .key_len = 1};

static room entered(void) {
  uint64_t tick;
  crl_entrance entrance = {.name = &name, .hash = crl_name_hash(&name)};
  room r = {.herd = crl_herd_new()};
  now = NOW;
  lands = NULL;
  assert_non_null(r.herd);
  assert_int_equal(crl_herd_enter(r.herd, &entrance, &r.entry, &tick), CRL_ENTER_LEADS);
  crl_herd_confirm(r.entry, CRL_GOOD_FOR_ALL);
  return r;
}

static void left(room *r) {
  crl_herd_give_up(r->entry);
  crl_entry_unref(r->entry);
  crl_herd_free(r->herd);
}

static void a_wait_ends_at_its_deadline(void **state) {
  (void)state;
  room r = entered();
  crl_patience patience = {.deadline = DEADLINE};
  assert_int_equal(crl_herd_wait(r.entry, &patience, &r.outcome), CRL_WAIT_DEADLINE);
  assert_int_equal(now, DEADLINE);
  left(&r);
}

static void a_deadline_that_has_come_ends_it_without_a_sleep(void **state) {
  (void)state;
  room r = entered();
  crl_patience patience = {.deadline = NOW};
  assert_int_equal(crl_herd_wait(r.entry, &patience, &r.outcome), CRL_WAIT_DEADLINE);
  assert_int_equal(now, NOW);
  left(&r);
}

static void the_stale_answer_is_taken_at_the_soft_end_or_without_one_at_the_deadline(void **state) {
  (void)state;
  static const int64_t softs[] = {SOFT, 0, DEADLINE + 1};
  for (int i = 0; i < 3; i++) {
    room r = entered();
    crl_patience patience = {.deadline = DEADLINE, .soft_until = softs[i]};
    crl_herd_interim(r.entry, &stale, 0, DEADLINE + 1);
    assert_int_equal(crl_herd_wait(r.entry, &patience, &r.outcome), CRL_WAIT_LANDED);
    assert_int_equal(r.outcome.how, CORRAL_STALE);
    assert_int_equal(now, i == 0 ? SOFT : DEADLINE);
    left(&r);
  }
}

static void a_soft_end_without_a_stale_answer_is_passed(void **state) {
  (void)state;
  room r = entered();
  crl_patience patience = {.deadline = DEADLINE, .soft_until = SOFT};
  assert_int_equal(crl_herd_wait(r.entry, &patience, &r.outcome), CRL_WAIT_DEADLINE);
  assert_int_equal(now, DEADLINE);
  left(&r);
}

static void a_stale_answer_s_last_moment_is_kept_too(void **state) {
  (void)state;
  for (int64_t last = DEADLINE; last <= DEADLINE + 1; last++) {
    room r = entered();
    crl_patience patience = {.deadline = DEADLINE};
    crl_herd_interim(r.entry, &stale, 0, last);
    assert_int_equal(crl_herd_wait(r.entry, &patience, &r.outcome),
                     last > DEADLINE ? CRL_WAIT_LANDED : CRL_WAIT_DEADLINE);
    left(&r);
  }
}

static void a_landing_ends_it_when_it_comes(void **state) {
  (void)state;
  room r = entered();
  crl_patience patience = {.deadline = DEADLINE};
  lands = r.entry;
  assert_int_equal(crl_herd_wait(r.entry, &patience, &r.outcome), CRL_WAIT_LANDED);
  assert_int_equal(r.outcome.how, CORRAL_COMPUTED);
  assert_int_equal(now, NOW + 1);
  left(&r);
}

static void who_looks_without_sleeping_learns_it_at_the_same_moment(void **state) {
  (void)state;
  room r = entered();
  crl_listener listener;
  crl_waiter waiter = {0};
  crl_patience patience = {.deadline = DEADLINE, .soft_until = SOFT};
  crl_herd_listen(r.entry, &listener, &waiter, 0);
  for (now = NOW; now < DEADLINE; now += SOFT - 1)
    assert_int_equal(crl_herd_look(r.entry, &patience, &r.outcome), 0);
  now = DEADLINE - 1;
  assert_int_equal(crl_herd_look(r.entry, &patience, &r.outcome), 0);
  now = DEADLINE;
  assert_int_equal(crl_herd_look(r.entry, &patience, &r.outcome), CRL_WAIT_DEADLINE);
  crl_herd_unlisten(r.entry, &listener, CRL_WAIT_DEADLINE);
  left(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_wait_ends_at_its_deadline),
      cmocka_unit_test(a_deadline_that_has_come_ends_it_without_a_sleep),
      cmocka_unit_test(the_stale_answer_is_taken_at_the_soft_end_or_without_one_at_the_deadline),
      cmocka_unit_test(a_soft_end_without_a_stale_answer_is_passed),
      cmocka_unit_test(a_stale_answer_s_last_moment_is_kept_too),
      cmocka_unit_test(a_landing_ends_it_when_it_comes),
      cmocka_unit_test(who_looks_without_sleeping_learns_it_at_the_same_moment),
  };
  return cmocka_run_group_tests_name("herd_clock", tests, NULL, NULL);
}
