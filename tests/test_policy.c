/* test_policy.c: the options and their table, and all calculations of lives, pauses and retries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy/policy.h"
#include "record/envelope.h"

static const uint64_t dice[] = {
    0, 1, 2, 49, 50, 99, 12345, UINT64_C(0x9e3779b97f4a7c15), UINT64_MAX - 1, UINT64_MAX};
enum { DICE = sizeof dice / sizeof *dice };

/* ---- options ------------------------------------------------------------------------------- */

static void what_is_not_said_comes_from_the_table(void **state) {
  (void)state;
  corral_policy p;
  assert_int_equal(crl_policy_resolve(&p, NULL, NULL, NULL), CORRAL_OK);
#define ROW(field, name, group, unit, def, least, most, command, nginx, sentence)                  \
  assert_int_equal(p.field, def);
  CORRAL_POLICY_MAP(ROW)
#undef ROW
  assert_int_equal(p.size, sizeof p);
  corral_options o;
  assert_int_equal(crl_policy_options(&o, CORRAL_OPTIONS(.store = "memory:"), NULL), CORRAL_OK);
#define ROW(field, name, group, unit, def, least, most, command, nginx, sentence)                  \
  assert_int_equal(o.field, def);
  CORRAL_OPTION_MAP(ROW)
#undef ROW
  assert_string_equal(o.store, "memory:");
}

static void a_call_s_policy_stands_over_the_corral_s(void **state) {
  (void)state;
  corral_policy base, p;
  assert_int_equal(
      crl_policy_resolve(&base, CORRAL_POLICY(.ttl_ms = 7, .swr_ms = 8, .jitter_pct = CORRAL_OFF),
                         NULL, NULL),
      CORRAL_OK);
  assert_int_equal(crl_policy_resolve(&p, CORRAL_POLICY(.swr_ms = 9), &base, NULL), CORRAL_OK);
  assert_int_equal(p.ttl_ms, 7);
  assert_int_equal(p.swr_ms, 9);
  assert_int_equal(p.jitter_pct, CORRAL_OFF);
  assert_int_equal(p.lease_ms, 2000);
}

/* `least` and `most` must be accepted, values beyond them refused with the option's name. */
static void check_range(int64_t *field, corral_policy *user, const char *name, int64_t least,
                        int64_t most) {
  corral_policy p;
  corral_error error;
  const int64_t good[] = {least, most}, bad[] = {least - 1, most + 1, INT64_MIN, INT64_MAX};
  for (size_t i = 0; i < 2; i++) {
    *field = good[i];
    if (crl_policy_resolve(&p, user, NULL, &error) != CORRAL_OK)
      fail_msg("%s = %lld refused", name, (long long)good[i]);
  }
  for (size_t i = 0; i < 4; i++) {
    *field = bad[i];
    if (bad[i] == 0) continue; /* 0 is the default */
    if (crl_policy_resolve(&p, user, NULL, &error) != CORRAL_EINVAL)
      fail_msg("%s = %lld accepted", name, (long long)bad[i]);
    assert_int_equal(error.status, CORRAL_EINVAL);
    assert_non_null(strstr(error.text, name));
  }
  *field = 0;
}

static void every_option_keeps_to_its_range(void **state) {
  (void)state;
  corral_policy user = {.size = sizeof user};
#define ROW(field, name, group, unit, def, least, most, command, nginx, sentence)                  \
  check_range(&user.field, &user, #field, least, most);
  CORRAL_POLICY_MAP(ROW)
#undef ROW
  corral_options o;
  corral_error error;
#define ROW(field, name, group, unit, def, least, most, command, nginx, sentence)                  \
  assert_int_equal(crl_policy_options(&o, CORRAL_OPTIONS(.field = (most) + 1), &error),            \
                   CORRAL_EINVAL);                                                                 \
  assert_non_null(strstr(error.text, #field));                                                     \
  assert_int_equal(crl_policy_options(&o, CORRAL_OPTIONS(.field = most), &error), CORRAL_OK);
  CORRAL_OPTION_MAP(ROW)
#undef ROW
}

/* ---- sized structs: older and newer headers ------------------------------------------------ */

static void a_shorter_policy_lacks_what_it_does_not_know(void **state) {
  (void)state;
  size_t size = offsetof(corral_policy, sie_ms);
  corral_policy *user = malloc(size), p; /* exact size, so that a read beyond the end is detected */
  assert_non_null(user);
  memset(user, 0, size);
  user->size = size;
  user->ttl_ms = 5;
  user->swr_ms = 6;
  int status = crl_policy_resolve(&p, user, NULL, NULL);
  free(user);
  assert_int_equal(status, CORRAL_OK);
  assert_int_equal(p.ttl_ms, 5);
  assert_int_equal(p.swr_ms, 6);
  assert_int_equal(p.sie_ms, 0);
  assert_int_equal(p.poll_max_ms, 250);
}

static void a_longer_policy_must_not_use_what_is_not_known_here(void **state) {
  (void)state;
  struct {
    corral_policy policy;
    int64_t of_the_future[2];
  } user = {.policy = {.size = sizeof user, .ttl_ms = 5}};
  corral_policy p;
  corral_error error;
  assert_int_equal(crl_policy_resolve(&p, &user.policy, NULL, &error), CORRAL_OK);
  assert_int_equal(p.ttl_ms, 5);
  assert_int_equal(p.size, sizeof p);
  user.of_the_future[1] = INT64_C(1) << 56;
  assert_int_equal(crl_policy_resolve(&p, &user.policy, NULL, &error), CORRAL_EOPTION);
  assert_int_equal(error.status, CORRAL_EOPTION);
}

static void a_size_that_was_not_set_is_told(void **state) {
  (void)state;
  corral_policy user = {.ttl_ms = 5}, p;
  corral_options options = {.store = "memory:"}, o;
  assert_int_equal(crl_policy_resolve(&p, &user, NULL, NULL), CORRAL_EINVAL);
  assert_int_equal(crl_policy_options(&o, &options, NULL), CORRAL_EINVAL);
}

/* ---- lives --------------------------------------------------------------------------------- */

static crl_envelope value_of(int64_t ttl, int64_t swr, int64_t sie) {
  return (crl_envelope){
      .kind = CRL_KIND_VALUE, .ttl_ms = ttl, .swr_ms = swr, .sie_ms = sie, .created_ms = 1000};
}

static void check_lives(crl_lives lives, int64_t fresh, int64_t swr, int64_t sie, int64_t age) {
  assert_int_equal(lives.fresh, fresh);
  assert_int_equal(lives.swr, swr);
  assert_int_equal(lives.sie, sie);
  assert_int_equal(lives.age, age);
}

static void lives_end_to_the_millisecond(void **state) {
  (void)state;
  crl_envelope v = value_of(100, 50, 200); /* the store keeps this value for 300 ms */
  check_lives(crl_envelope_judge(&v, 0, 300, 0), 100, 150, 300, 0);
  check_lives(crl_envelope_judge(&v, 0, 201, 0), 1, 51, 201, 99);
  check_lives(crl_envelope_judge(&v, 0, 200, 0), 0, 50, 200, 100);
  check_lives(crl_envelope_judge(&v, 0, 151, 0), 0, 1, 151, 149);
  check_lives(crl_envelope_judge(&v, 0, 150, 0), 0, 0, 150, 150);
  check_lives(crl_envelope_judge(&v, 0, 1, 0), 0, 0, 1, 299);
  check_lives(crl_envelope_judge(&v, 0, 0, 0), 0, 0, 0, 300);
  check_lives(crl_envelope_judge(&v, 0, 310, 0), 100, 150, 300,
              0); /* the store's clock runs ahead */
}

static void without_a_remaining_life_the_wall_clock_tells_the_age(void **state) {
  (void)state;
  crl_envelope v = value_of(100, 50, 0);
  check_lives(crl_envelope_judge(&v, 0, -1, 1030), 70, 120, 0, 30);
  check_lives(crl_envelope_judge(&v, 0, -1, 900), 100, 150, 0, 0);
  check_lives(crl_envelope_judge(&v, 0, -1, 5000), 0, 0, 0, 4000);
}

static void what_was_expired_by_decree_is_stale_at_once(void **state) {
  (void)state;
  crl_envelope v = value_of(100, 50, 200);
  check_lives(crl_envelope_judge(&v, 1, 290, 0), 0, 140, 290, 10);
}

static void without_grace_there_is_no_stale_life(void **state) {
  (void)state;
  crl_envelope v = value_of(100, 0, 0);
  check_lives(crl_envelope_judge(&v, 0, 60, 0), 60, 0, 0, 40);
  v.swr_ms = v.sie_ms = CORRAL_OFF;
  check_lives(crl_envelope_judge(&v, 0, 60, 0), 60, 0, 0, 40);
  v = value_of(100, 50, 50);
  v.kind = CRL_KIND_NEGATIVE;
  check_lives(crl_envelope_judge(&v, 0, 140, 0), 90, 0, 0, 10);
}

static void the_store_keeps_a_record_for_its_longest_grace(void **state) {
  (void)state;
  assert_int_equal(crl_policy_hard_ttl(10, 5, 7), 17);
  assert_int_equal(crl_policy_hard_ttl(10, 7, 5), 17);
  assert_int_equal(crl_policy_hard_ttl(10, 0, CORRAL_OFF), 10);
}

/* ---- pauses -------------------------------------------------------------------------------- */

static void jitter_makes_a_life_shorter_only(void **state) {
  (void)state;
  static const int64_t lives[] = {1, 2, 10, 99, 100, 101, 60000, 315360000000};
  corral_policy p = {.jitter_pct = 10};
  int64_t least = 60000;
  for (size_t l = 0; l < sizeof lives / sizeof *lives; l++)
    for (size_t i = 0; i < DICE; i++) {
      int64_t got = crl_policy_jitter(&p, lives[l], dice[i]);
      assert_true(got >= 1 && got <= lives[l] && got >= lives[l] - lives[l] / 10);
    }
  for (uint64_t i = 0; i < 10000; i++) {
    int64_t got = crl_policy_jitter(&p, 60000, i);
    if (got < least) least = got;
  }
  assert_int_equal(least, 54000);
  p.jitter_pct = CORRAL_OFF;
  assert_int_equal(crl_policy_jitter(&p, 60000, 12345), 60000);
  p.jitter_pct = 90;
  assert_in_range(crl_policy_jitter(&p, 1, UINT64_MAX), 1, 1);
}

static void a_waiter_s_pauses_double_up_to_their_limit_with_full_jitter(void **state) {
  (void)state;
  static const int64_t cap[] = {5, 10, 20, 40, 80, 160, 250, 250};
  for (unsigned n = 0; n < 8; n++) {
    int64_t least = 1000, most = 0;
    for (uint64_t d = 0; d < 1000; d++) {
      int64_t got = crl_policy_backoff(5, 250, n, d);
      if (got < least) least = got;
      if (got > most) most = got;
    }
    assert_int_equal(least, 1);
    assert_int_equal(most, cap[n]);
  }
  for (size_t i = 0; i < DICE; i++) {
    assert_in_range(crl_policy_backoff(60000, 60000, UINT32_MAX, dice[i]), 1, 60000);
    assert_in_range(crl_policy_backoff(50, 10, 3, dice[i]), 1, 10);
    assert_int_equal(crl_policy_backoff(1, 1, 9, dice[i]), 1);
  }
}

static void
the_pause_after_failures_is_flat_then_doubles_and_is_drawn_from_a_narrow_range(void **state) {
  (void)state;
  static const int64_t full[] = {1600, 1600, 1600, 1600, 6400, 12800, 25600, 30400, 30400};
  corral_policy p = {.retry_ms = 1600, .retry_max_ms = 30400};
  for (uint32_t n = 0; n < 9; n++) {
    int64_t least = 100000, most = 0;
    for (uint64_t d = 0; d < 20000; d++) {
      int64_t got = crl_policy_retry(&p, n, d);
      if (got < least) least = got;
      if (got > most) most = got;
    }
    assert_int_equal(most, n <= CRL_RETRY_FLAT ? full[n] - full[n] / 16 : full[n]);
    assert_int_equal(least, full[n] - full[n] / 8);
  }
  assert_in_range(crl_policy_retry(&p, UINT32_MAX, 7), 26600, 30400);
  p.retry_max_ms = 10; /* the first pause may exceed retry_max_ms */
  assert_in_range(crl_policy_retry(&p, 5, UINT64_MAX), 1400, 1600);
  p.retry_ms = CORRAL_OFF;
  assert_int_equal(crl_policy_retry(&p, 3, 7), 0);
}

/* With the defaults, whatever the dice: at most 4 tries in the first 3 s of an outage; and one that
 * ends within YOUNG_MS is over for the key within 500 ms, of which 30 are left for the tries. */
static void an_origin_that_is_back_soon_is_tried_soon_and_seldom(void **state) {
  (void)state;
  enum { YOUNG_MS = 1300 };
  corral_policy p;
  assert_int_equal(crl_policy_resolve(&p, NULL, NULL, NULL), CORRAL_OK);
  for (uint64_t world = 0; world < 20000; world++) {
    int64_t at = 0;
    int tries = 0;
    for (uint32_t n = 1; at < 3000; n++, tries++) {
      int64_t pause = crl_policy_retry(&p, n, crl_policy_mix(world * 64 + n));
      assert_true(at >= YOUNG_MS || pause <= 470);
      at += pause;
    }
    assert_in_range(tries, 1, 4);
  }
}

static void a_key_computed_without_the_store_pauses_by_its_cost_longer_each_time(void **state) {
  (void)state;
  static const int64_t full[] = {100, 200, 400, 800, 1250, 1250};
  corral_policy p = {.wait_ms = 5000};
  for (uint32_t n = 1; n <= 6; n++) {
    int64_t least = 100000, most = 0;
    for (uint64_t d = 0; d < 20000; d++) {
      int64_t got = crl_policy_away(&p, 100, n, d);
      if (got < least) least = got;
      if (got > most) most = got;
    }
    assert_int_equal(most, full[n - 1]);
    assert_int_equal(least, full[n - 1] - full[n - 1] / 2);
  }
  assert_int_equal(crl_policy_away(&p, 0, 9, 7), 0); /* what costs nothing doesn't pause */
  assert_in_range(crl_policy_away(&p, 3, UINT32_MAX, 7), 24, 48);
  assert_in_range(crl_policy_away(&p, INT64_MAX, 9, 7), 625, 1250);
}

static void a_part_of_a_call_leaves_half_of_its_time(void **state) {
  (void)state;
  assert_int_equal(crl_policy_part(100, 50, 1000), 150);
  assert_int_equal(crl_policy_part(100, 5000, 1000), 550);
  assert_int_equal(crl_policy_part(1000, 50, 1000), 1000);
  assert_int_equal(crl_policy_part(1200, 50, 1000), 1200);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_not_said_comes_from_the_table),
      cmocka_unit_test(a_call_s_policy_stands_over_the_corral_s),
      cmocka_unit_test(every_option_keeps_to_its_range),
      cmocka_unit_test(a_shorter_policy_lacks_what_it_does_not_know),
      cmocka_unit_test(a_longer_policy_must_not_use_what_is_not_known_here),
      cmocka_unit_test(a_size_that_was_not_set_is_told),
      cmocka_unit_test(lives_end_to_the_millisecond),
      cmocka_unit_test(without_a_remaining_life_the_wall_clock_tells_the_age),
      cmocka_unit_test(what_was_expired_by_decree_is_stale_at_once),
      cmocka_unit_test(without_grace_there_is_no_stale_life),
      cmocka_unit_test(the_store_keeps_a_record_for_its_longest_grace),
      cmocka_unit_test(jitter_makes_a_life_shorter_only),
      cmocka_unit_test(a_waiter_s_pauses_double_up_to_their_limit_with_full_jitter),
      cmocka_unit_test(
          the_pause_after_failures_is_flat_then_doubles_and_is_drawn_from_a_narrow_range),
      cmocka_unit_test(an_origin_that_is_back_soon_is_tried_soon_and_seldom),
      cmocka_unit_test(a_key_computed_without_the_store_pauses_by_its_cost_longer_each_time),
      cmocka_unit_test(a_part_of_a_call_leaves_half_of_its_time),
  };
  return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
