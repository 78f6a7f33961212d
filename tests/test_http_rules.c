/* test_http_rules.c: rules for a shared cache in response headers, row by row, each with the
 * section that defines the rule. "9111 5.2" is RFC 9111, section 5.2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http/rules.h"

enum { U = CRL_HTTP_UNSAID, N = CRL_HTTP_NONE };
#define NOW_MS 784111777000 /* Sun, 06 Nov 1994 08:49:37 GMT */
#define DATE "Date: Sun, 06 Nov 1994 08:49:37 GMT\n"
#define IN_A_MINUTE "Sun, 06 Nov 1994 08:50:37 GMT"
#define BOUND ((int64_t)1 << 31) * 1000 /* 2^31 seconds */

static void read_head(crl_http_rules *rules, const char *head) {
  crl_http_rules_begin(rules, NOW_MS);
  for (const char *line = head; *line != '\0';) {
    size_t len = strcspn(line, "\n"), name = strcspn(line, ":");
    assert_true(name < len);
    crl_http_rules_field(rules, line, name, line + name + 1, len - name - 1);
    line += len + (line[len] == '\n');
  }
}

static crl_http_verdict judge(const char *head, const crl_http_terms *terms) {
  crl_http_rules rules;
  read_head(&rules, head);
  return crl_http_rules_judge(&rules, terms);
}

typedef struct life_row {
  const char *section, *head;
  int64_t fresh_ms, swr_ms, sie_ms;
} life_row;

static void check_lives(const life_row *rows, size_t count, const crl_http_terms *terms) {
  for (size_t i = 0; i < count; i++) {
    crl_http_verdict v = judge(rows[i].head, terms);
    if (v.fresh_ms != rows[i].fresh_ms || v.swr_ms != rows[i].swr_ms || v.sie_ms != rows[i].sie_ms)
      fail_msg("%s: %s: %lld %lld %lld", rows[i].section, rows[i].head, (long long)v.fresh_ms,
               (long long)v.swr_ms, (long long)v.sie_ms);
  }
}
#define CHECK_LIVES(rows, terms) check_lives(rows, sizeof rows / sizeof *rows, terms)

static void the_fresh_life_comes_from_the_strongest_source(void **state) {
  (void)state;
  static const life_row rows[] = {
      {"9111 4.2.2", "", U, U, U},
      {"9111 4.2.2", "Content-Type: text/html", U, U, U},
      {"9111 5.2.2.1", "Cache-Control: max-age=60", 60000, U, U},
      {"9111 5.2.2.1", "cache-control: MAX-AGE=60", 60000, U, U},
      {"9111 5.2.2.10", "Cache-Control: max-age=60, s-maxage=10", 10000, N, N},
      {"9111 5.2.2.10", "Cache-Control: s-maxage=100, max-age=60", 100000, N, N},
      {"9111 5.3", "Expires: " IN_A_MINUTE, 60000, U, U},
      {"9111 4.2.1", DATE "Expires: " IN_A_MINUTE, 60000, U, U},
      {"9111 4.2.1", "Expires: " IN_A_MINUTE "\n" DATE "Date: Sun, 06 Nov 1994 08:49:00 GMT", 60000,
       U, U},
      {"9111 4.2.1", "Date: Sun, 06 Nov 1994 08:49:07 GMT\nExpires: " IN_A_MINUTE, 90000, U, U},
      {"9110 6.6.1", "Date: yesterday\nExpires: " IN_A_MINUTE, 60000, U, U},
      {"9111 5.3", "Expires: " IN_A_MINUTE "\nCache-Control: max-age=5", 5000, U, U},
      {"9111 5.3", "Expires: " IN_A_MINUTE "\nCache-Control: s-maxage=5", 5000, N, N},
      {"9111 5.3", "Expires: " IN_A_MINUTE "\nCache-Control: public", 60000, U, U},
      {"9111 5.3", "Expires: 0", N, U, U},
      {"9111 5.3", "Expires: -1", N, U, U},
      {"9111 5.3", "Expires: soon", N, U, U},
      {"9111 5.3", DATE "Expires: Sun, 06 Nov 1994 08:49:37 GMT", N, U, U},
      {"9111 5.3", DATE "Expires: Sat, 05 Nov 1994 08:49:37 GMT", N, U, U},
      {"9111 5.3", "Expires: Thu, 01 Jan 1801 00:00:00 GMT", N, U, U},
      {"9111 5.2.2.1", "Cache-Control: max-age=0", N, U, U},
      {"9111 5.4", "Pragma: no-cache\nCache-Control: max-age=60", 60000, U, U},
      {"9111 5.2.3", "Cache-Control: community=\"UCI\", max-age=60, immutable", 60000, U, U},
  };
  CHECK_LIVES(rows, &(crl_http_terms){0});
}

static void lists_and_quotes_are_read_as_the_grammar_has_them(void **state) {
  (void)state;
  static const life_row rows[] = {
      {"9110 5.6.1", "Cache-Control: public,max-age=60", 60000, U, U},
      {"9110 5.6.1", "Cache-Control: , ,\t public ,, max-age=60 , ", 60000, U, U},
      {"9110 5.3", "Cache-Control: public\nCache-Control: max-age=60", 60000, U, U},
      {"9111 5.2", "Cache-Control: max-age=\"60\"", 60000, U, U},
      {"9110 5.6.4", "Cache-Control: max-age=\"\\6\\0\"", 60000, U, U},
      {"9110 5.6.4", "Cache-Control: a=\"x, max-age=5\", max-age=60", 60000, U, U},
      {"9110 5.6.4", "Cache-Control: a=\"\\\", max-age=5\", max-age=60", 60000, U, U},
      /* an unterminated quote hides nothing */
      {"9110 5.6.4", "Cache-Control: a=\"x, max-age=60", 60000, U, U},
      {"9110 5.6.4", "Cache-Control: max-age=\"60", N, U, U},
      {"9111 5.2", "Cache-Control: x-max-age=60", U, U, U},
      {"9111 5.2", "Cache-Control: max-age-x=60", U, U, U},
      {"9110 5.5", "Cache-Control:\t max-age=60 \t", 60000, U, U},
      {"9110 5.1", "CACHE-control: max-age=60", 60000, U, U},
      {"9110 5.1", "Cache-Controls: max-age=60", U, U, U},
  };
  CHECK_LIVES(rows, &(crl_http_terms){0});
}

static void what_is_invalid_or_given_twice_makes_a_life_shorter(void **state) {
  (void)state;
  static const life_row rows[] = {
      {"9111 4.2.1", "Cache-Control: max-age", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=\"\"", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=-1", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=+60", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=60.5", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=60s", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age= 60", N, U, U},
      {"9111 5.2", "Cache-Control: max-age =60", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=60 max-age=70", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=60; public", N, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=60, s-maxage=x", N, N, N},
      {"9111 4.2.1", "Cache-Control: max-age=60, max-age=5", 5000, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=5\nCache-Control: max-age=60", 5000, U, U},
      {"9111 4.2.1", "Cache-Control: max-age=60, max-age=x", N, U, U},
      {"9111 4.2.1", "Expires: " IN_A_MINUTE "\nExpires: 0", N, U, U},
      {"9111 4.2.1", "Expires: Sun, 06 Nov 1994 08:51:37 GMT\nExpires: " IN_A_MINUTE, 60000, U, U},
      {"9111 1.2.2", "Cache-Control: max-age=2147483647", BOUND - 1000, U, U},
      {"9111 1.2.2", "Cache-Control: max-age=2147483648", BOUND, U, U},
      {"9111 1.2.2", "Cache-Control: max-age=2147483649", BOUND, U, U},
      {"9111 1.2.2", "Cache-Control: max-age=99999999999999999999999999999999999", BOUND, U, U},
      {"9111 1.2.2", "Cache-Control: max-age=00000000000000000000000000000000060", 60000, U, U},
      {"9111 1.2.2", "Cache-Control: max-age=9999999999999999999999999999999999x", N, U, U},
      {"5861 3", "Cache-Control: max-age=1, stale-while-revalidate=99999999999999999999", 1000,
       BOUND, U},
  };
  CHECK_LIVES(rows, &(crl_http_terms){0});
}

static void graces_are_given_by_the_response_and_taken_by_it(void **state) {
  (void)state;
  static const life_row rows[] = {
      {"5861 3", "Cache-Control: max-age=60, stale-while-revalidate=30", 60000, 30000, U},
      {"5861 4", "Cache-Control: max-age=60, stale-if-error=90", 60000, U, 90000},
      {"5861 3", "Cache-Control: stale-while-revalidate=30", U, 30000, U},
      {"5861 3", "Cache-Control: max-age=0, stale-while-revalidate=30", N, 30000, U},
      {"5861 3", "Cache-Control: max-age=60, stale-while-revalidate=0", 60000, N, U},
      {"5861 3", "Cache-Control: max-age=60, stale-while-revalidate", 60000, N, U},
      {"5861 4", "Cache-Control: max-age=60, stale-if-error=x", 60000, U, N},
      {"5861 3", "Cache-Control: max-age=60, stale-while-revalidate=30, stale-while-revalidate=10",
       60000, 10000, U},
      {"9111 5.2.2.2", "Cache-Control: max-age=60, must-revalidate", 60000, N, N},
      {"9111 5.2.2.8", "Cache-Control: max-age=60, proxy-revalidate", 60000, N, N},
      {"9111 5.2.2.2",
       "Cache-Control: max-age=60, stale-while-revalidate=30, stale-if-error=30, must-revalidate",
       60000, N, N},
      {"9111 5.2.2.8", "Cache-Control: proxy-revalidate\nCache-Control: stale-if-error=30", U, N,
       N},
      {"9111 5.2.2.2", "Cache-Control: must-revalidate=no, max-age=60", 60000, N, N},
      {"9111 5.2.2.10", "Cache-Control: s-maxage=60", 60000, N, N},
      {"9111 4.2.4", "Cache-Control: s-maxage=60, stale-while-revalidate=30", 60000, 30000, N},
      {"9111 5.2.2.4", "Cache-Control: no-cache, max-age=60, stale-while-revalidate=30", N, N, N},
      {"9111 5.2.2.4", "Cache-Control: max-age=60, no-cache=\"Set-Cookie\"", N, N, N},
  };
  CHECK_LIVES(rows, &(crl_http_terms){0});
}

static void age_is_taken_off(void **state) {
  (void)state;
  static const life_row rows[] = {
      {"9111 4.2.3", "Cache-Control: max-age=60\nAge: 20", 40000, U, U},
      {"9111 4.2.3", "Age: 59\nCache-Control: max-age=60", 1000, U, U},
      {"9111 4.2.3", "Age: 60\nCache-Control: max-age=60", N, U, U},
      {"9111 4.2.3", DATE "Expires: " IN_A_MINUTE "\nAge: 20", 40000, U, U},
      {"9111 4.2.3", "Age: 20", U, U, U},
      {"9111 5.1", "Cache-Control: max-age=60\nAge: 20, 40", 40000, U, U},
      {"9111 5.1", "Cache-Control: max-age=60\nAge: 20\nAge: 40", 40000, U, U},
      {"9111 5.1", "Cache-Control: max-age=60\nAge: -20", 60000, U, U},
      {"9111 5.1", "Cache-Control: max-age=60\nAge: old", 60000, U, U},
      {"9111 5.1", "Cache-Control: max-age=60\nAge:", 60000, U, U},
      {"9111 1.2.2", "Cache-Control: max-age=60\nAge: 99999999999999999999", N, U, U},
      {"5861 3", "Cache-Control: max-age=60, stale-while-revalidate=30\nAge: 80", N, 10000, U},
      {"5861 3", "Cache-Control: max-age=60, stale-while-revalidate=30\nAge: 90", N, N, U},
      {"5861 3", "Cache-Control: max-age=60, stale-while-revalidate=30\nAge: 60", N, 30000, U},
      {"5861 4", "Cache-Control: max-age=60, stale-if-error=30\nAge: 61", N, U, 29000},
  };
  CHECK_LIVES(rows, &(crl_http_terms){0});
}

static void the_time_the_request_took_counts_in_whole_seconds(void **state) {
  (void)state;
  static const struct {
    int64_t delay_ms, fresh_ms;
    /* 9111 4.2.3: response_delay */
  } rows[] = {{0, 50000}, {999, 50000}, {1000, 49000}, {2500, 48000}, {50000, N}, {-5000, 50000}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_int_equal(
        judge("Cache-Control: max-age=60\nAge: 10", &(crl_http_terms){.delay_ms = rows[i].delay_ms})
            .fresh_ms,
        rows[i].fresh_ms);
}

static void some_responses_are_not_kept(void **state) {
  (void)state;
  static const struct {
    const char *section, *head, *why_not;
  } rows[] = {
      {"9111 3", "", NULL},
      {"9111 3", "Cache-Control: max-age=0", NULL},
      {"9111 5.2.2.5", "Cache-Control: no-store", "Cache-Control: no-store"},
      {"9111 5.2.2.5", "Cache-Control: No-Store, max-age=60", "Cache-Control: no-store"},
      {"9111 5.2.2.5", "Cache-Control: no-store=1", "Cache-Control: no-store"},
      {"9111 5.2.2.5", "Cache-Control: no-store; max-age=60", "Cache-Control: no-store"},
      {"9111 5.2.2.5", "Cache-Control: max-age=60\nCache-Control: no-store",
       "Cache-Control: no-store"},
      {"9111 5.2.2.3", "Cache-Control: must-understand, no-store", "Cache-Control: no-store"},
      {"9110 5.6.4", "Cache-Control: a=\"b, no-store", "Cache-Control: no-store"},
      {"9110 5.6.4", "Cache-Control: a=\"b, no-store\"", NULL},
      {"9111 5.2.2.7", "Cache-Control: private", "Cache-Control: private"},
      {"9111 5.2.2.7", "Cache-Control: private, public, max-age=60", "Cache-Control: private"},
      {"9111 5.2.2.7", "Cache-Control: private=\"Set-Cookie\", max-age=60",
       "Cache-Control: private"},
      {"9111 5.2.2.7", "Cache-Control: privately", NULL},
      {"9110 12.5.5", "Vary: *", "Vary: *"},
      {"9110 12.5.5", "Vary: Accept, *", "Vary: *"},
      {"9110 12.5.5", "Vary: Accept\nVary: *", "Vary: *"},
      {"9110 12.5.5", "Vary: Accept", NULL},
      {"6265 3", "Set-Cookie: a=b", "Set-Cookie"},
      {"9112 5.1", "Set-Cookie : a=b", "Set-Cookie"},
      {"9112 5.1", "Cache-Control\t : no-store", "Cache-Control: no-store"},
      {"9112 5.1", " Vary: *", "Vary: *"},
      {"9111 5.2.2.4", "Cache-Control: no-cache", NULL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    crl_http_verdict v = judge(rows[i].head, &(crl_http_terms){0});
    const char *why = v.why_not != NULL ? v.why_not : "kept",
               *want = rows[i].why_not != NULL ? rows[i].why_not : "kept";
    if (strcmp(why, want) != 0 || v.is_storable != (rows[i].why_not == NULL))
      fail_msg("%s: %s: %s", rows[i].section, rows[i].head, why);
  }
  assert_true(judge("Set-Cookie: a=b", &(crl_http_terms){.with_cookies = 1}).is_storable);
  assert_true(judge("Cache-Control: no-cache", &(crl_http_terms){0}).must_ask);
  assert_true(judge("Cache-Control: no-cache=\"a\"", &(crl_http_terms){0}).must_ask);
  assert_false(judge("Cache-Control: max-age=0", &(crl_http_terms){0}).must_ask);
}

static void must_understand_takes_the_place_of_no_store(void **state) {
  (void)state;
#define UNDERSTAND "Cache-Control: no-store, must-understand, max-age=60"
  static const struct {
    int status;
    const char *why_not;
  } rows[] = {{200, NULL},
              {404, NULL},
              {503, NULL},
              {299, "Cache-Control: no-store"},
              {599, "Cache-Control: no-store"},
              {206, "Cache-Control: no-store"},
              {0, "Cache-Control: no-store"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    crl_http_verdict v = judge(UNDERSTAND, &(crl_http_terms){.status = rows[i].status});
    if (rows[i].why_not == NULL)
      assert_null(v.why_not);
    else
      assert_string_equal(v.why_not, rows[i].why_not);
  }
  const crl_http_terms unknown = {.status = 599};
  assert_string_equal(judge("Cache-Control: must-understand, max-age=60", &unknown).why_not,
                      "Cache-Control: must-understand");
  assert_string_equal(judge(UNDERSTAND ", private", &(crl_http_terms){.status = 200}).why_not,
                      "Cache-Control: private");
}

/* A thousand seconds after NOW_MS's Last-Modified. */
#define OLD "Last-Modified: Sun, 06 Nov 1994 08:32:57 GMT"

static void a_life_can_be_guessed_from_last_modified(void **state) {
  (void)state;
  static const struct {
    const char *head;
    int status, guess_pct;
    int64_t guess_ms;
  } rows[] = {{OLD, 200, 10, 100000},
              {OLD "\nDate: Sun, 06 Nov 1994 08:49:27 GMT", 200, 10, 99000},
              {OLD "\nAge: 40", 200, 10, 60000},
              {OLD "\nAge: 100", 200, 10, 0},
              {OLD, 200, 0, 0},
              {OLD, 501, 10, 100000},
              {OLD, 201, 10, 0},
              {OLD, 302, 10, 0},
              {OLD, 503, 10, 0},
              {OLD "\nCache-Control: public", 599, 10, 100000},
              {OLD "\nCache-Control: max-age=60", 200, 10, 0},
              {OLD "\nExpires: 0", 200, 10, 0},
              {OLD "\nCache-Control: no-cache", 200, 10, 0},
              {"Last-Modified: yesterday", 200, 10, 0},
              {"Last-Modified: Sun, 06 Nov 1994 08:49:47 GMT", 200, 10, 0},
              {"Last-Modified: Sun, 06 Nov 1983 08:49:37 GMT", 200, 10, INT64_C(86400000)},
              {"", 200, 10, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const crl_http_terms terms = {.status = rows[i].status, .guess_pct = rows[i].guess_pct};
    crl_http_verdict v = judge(rows[i].head, &terms);
    if (v.guess_ms != rows[i].guess_ms)
      fail_msg("9111 4.2.2: row %zu: %s: %lld", i, rows[i].head, (long long)v.guess_ms);
  }
}

static void answers_to_an_authorized_request_are_kept_only_when_they_say_so(void **state) {
  (void)state;
  static const struct {
    const char *head;
    int is_storable;
  } rows[] = {/* 9111 3.5 */
              {"", 0},
              {"Cache-Control: max-age=60", 0},
              {"Cache-Control: proxy-revalidate", 0},
              {"Cache-Control: s-maxage=x", 0},
              {"Cache-Control: public", 1},
              {"Cache-Control: must-revalidate", 1},
              {"Cache-Control: s-maxage=60", 1},
              {"Cache-Control: s-maxage=0", 1},
              {"Cache-Control: public, private", 0},
              {"Cache-Control: public x", 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (judge(rows[i].head, &(crl_http_terms){.is_authorized = 1}).is_storable !=
        rows[i].is_storable)
      fail_msg("%s", rows[i].head);
}

static void x_accel_expires_comes_before_all_where_it_is_asked_for(void **state) {
  (void)state;
  static const life_row with[] = {
      {"nginx", "X-Accel-Expires: 30\nCache-Control: max-age=60", 30000, U, U},
      {"nginx", "Cache-Control: no-cache, s-maxage=5\nX-Accel-Expires: 30", 30000, U, U},
      {"nginx", "X-Accel-Expires: @784111837", 60000, U, U},
      {"nginx", "X-Accel-Expires: @784111700", N, U, U},
      {"nginx", "X-Accel-Expires: @2147483700", 1363371923000, U, U}, /* beyond 32 bits */
      {"nginx", "X-Accel-Expires: @\nCache-Control: max-age=60", 60000, U, U},
      {"nginx", "X-Accel-Expires: 30\nAge: 20", 30000, U, U},
      {"nginx", "X-Accel-Expires: off\nCache-Control: max-age=60", 60000, U, U},
      {"nginx", "X-Accel-Expires: 30\nCache-Control: max-age=60, stale-while-revalidate=7", 30000,
       7000, U},
  };
  static const life_row without[] = {
      {"9111", "X-Accel-Expires: 30\nCache-Control: max-age=60", 60000, U, U}};
  CHECK_LIVES(with, &(crl_http_terms){.with_accel = 1});
  CHECK_LIVES(without, &(crl_http_terms){0});
  assert_string_equal(judge("X-Accel-Expires: 0", &(crl_http_terms){.with_accel = 1}).why_not,
                      "X-Accel-Expires: 0");
  assert_true(judge("X-Accel-Expires: 9\nCache-Control: private, no-store",
                    &(crl_http_terms){.with_accel = 1})
                  .is_storable);
  assert_int_equal(judge("X-Accel-Expires: 9\nX-Accel-Expires: 5\nX-Accel-Expires: 7",
                         &(crl_http_terms){.with_accel = 1})
                       .fresh_ms,
                   5000);
  assert_int_equal(
      judge("X-Accel-Expires: 0\nX-Accel-Expires: @784111837", &(crl_http_terms){.with_accel = 1})
          .is_storable,
      0);
  assert_int_equal(
      judge("X-Accel-Expires: @784111837\nX-Accel-Expires: 9", &(crl_http_terms){.with_accel = 1})
          .fresh_ms,
      9000);
  assert_false(
      judge("X-Accel-Expires: 9\nVary: *", &(crl_http_terms){.with_accel = 1}).is_storable);
  assert_false(
      judge("X-Accel-Expires: 9\nSet-Cookie: a", &(crl_http_terms){.with_accel = 1}).is_storable);
}

static void dates_come_in_three_forms(void **state) {
  (void)state;
  static const struct {
    const char *section, *text;
    int64_t seconds; /* -1: not a date */
  } rows[] = {
      {"9110 5.6.7", "Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
      {"9110 5.6.7", "Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
      {"9110 5.6.7", "Sun Nov  6 08:49:37 1994", 784111777},
      {"9110 5.6.7", "Wed Nov 16 08:49:37 1994", 784975777},
      {"9111 4.2", "SUN, 06 nov 1994 08:49:37 gmt", 784111777},
      {"9111 4.2", "Sun, 06 Nov 1994 08:49:37 EST", -1},
      {"9111 4.2", "Sun, 06 Nov 1994 08:49:37 UTC", -1},
      {"9111 4.2", "Sun, 06 Nov 1994 08:49:37 +0100", -1},
      {"9110 5.6.7", "Sun, 06 Nov 1994 08:49:37", -1},
      {"9110 5.6.7", "Sun, 6 Nov 1994 08:49:37 GMT", -1},
      {"9110 5.6.7", "06 Nov 1994 08:49:37 GMT", -1},
      {"9110 5.6.7", "1994-11-06T08:49:37Z", -1},
      {"9110 5.6.7", "Sun, 06 Nov 1994 08:49:37 GMT GMT", -1},
      {"9110 5.6.7", "Sun, 31 Feb 1994 08:49:37 GMT", -1},
      {"9110 5.6.7", "Sun, 29 Feb 1900 08:49:37 GMT", -1},
      {"9110 5.6.7", "Tue, 29 Feb 2000 00:00:00 GMT", 951782400},
      {"9110 5.6.7", "Sun, 00 Nov 1994 08:49:37 GMT", -1},
      {"9110 5.6.7", "Sun, 06 Nox 1994 08:49:37 GMT", -1},
      {"9110 5.6.7", "Xyz, 06 Nov 1994 08:49:37 GMT", -1},
      {"9110 5.6.7", "Sun, 06 Nov 1994 24:00:00 GMT", -1},
      {"9110 5.6.7", "Sun, 06 Nov 1994 23:60:00 GMT", -1},
      {"9110 5.6.7", "Sat, 31 Dec 2016 23:59:60 GMT", 1483228800}, /* a leap second */
      {"9110 5.6.7", "Sat, 31 Dec 2016 23:59:61 GMT", -1},
      {"9110 5.6.7", "Thu, 01 Jan 1970 00:00:00 GMT", 0},
      {"9110 5.6.7", "Fri, 31 Dec 9999 23:59:59 GMT", 253402300799},
      {"9110 5.6.7", "Monday, 01-Jan-44 00:00:00 GMT", 2335219200}, /* 50 years after 1994 */
      /* 51 years after 1994: the last century */
      {"9110 5.6.7", "Sunday, 01-Jan-45 00:00:00 GMT", -788918400},
      {"9110 5.6.7", "", -1},
      {"9110 5.6.7", "0", -1},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int64_t seconds = -1;
    int is_date = crl_http_date(rows[i].text, strlen(rows[i].text), NOW_MS, &seconds);
    if (seconds != rows[i].seconds || is_date != (rows[i].seconds != -1))
      fail_msg("%s: %s: %lld", rows[i].section, rows[i].text, (long long)seconds);
  }
}

static void validators_are_kept_as_they_were_sent(void **state) {
  (void)state;
  static const struct {
    const char *section, *head, *etag, *last_modified;
  } rows[] = {
      {"9110 8.8.3", "ETag: \"abc\"", "\"abc\"", ""},
      {"9110 8.8.3", "ETag: W/\"abc\"", "W/\"abc\"", ""},
      {"9110 8.8.3", "ETag: \"\"", "\"\"", ""},
      {"9110 8.8.3", "etag:  \"a!#b\"  ", "\"a!#b\"", ""},
      {"9110 8.8.3", "ETag: abc", "", ""},
      {"9110 8.8.3", "ETag: w/\"abc\"", "", ""},
      {"9110 8.8.3", "ETag: \"", "", ""},
      {"9110 8.8.3", "ETag: W/\"", "", ""},
      {"9110 8.8.3", "ETag: \"a b\"", "", ""},
      {"9110 8.8.3", "ETag: \"a\", \"b\"", "", ""},
      {"9110 8.8.3", "ETag: \"a\"\nETag: \"b\"", "\"a\"", ""},
      {"9110 8.8.2", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT", "",
       "Sun, 06 Nov 1994 08:49:37 GMT"},
      {"9110 8.8.2", "Last-Modified: Sun Nov  6 08:49:37 1994", "", "Sun Nov  6 08:49:37 1994"},
      {"9110 8.8.2", "Last-Modified: long ago", "", ""},
  };
  crl_http_rules rules;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    read_head(&rules, rows[i].head);
    if (strcmp(rules.etag, rows[i].etag) != 0 ||
        strcmp(rules.last_modified, rows[i].last_modified) != 0)
      fail_msg("%s: %s: %s", rows[i].section, rows[i].head, rules.etag);
  }
  char longest[CRL_HTTP_ETAG + 2];
  memset(longest, 'x', sizeof longest);
  for (size_t len = CRL_HTTP_ETAG - 1; len <= CRL_HTTP_ETAG; len++) {
    longest[0] = longest[len - 1] = '"';
    crl_http_rules_begin(&rules, NOW_MS);
    crl_http_rules_field(&rules, "ETag", 4, longest, len);
    assert_int_equal(strlen(rules.etag), len < CRL_HTTP_ETAG ? len : 0);
    longest[len - 1] = 'x';
  }
}

static void vary_is_a_list_of_names(void **state) {
  (void)state;
  static const struct {
    const char *head, *names;
  } rows[] = {/* 9110 12.5.5 */
              {"", ""},
              {"Vary: Accept", "accept"},
              {"Vary: Accept-Encoding, ACCEPT", "accept-encoding accept"},
              {"Vary: a\nVary: b ,c", "a b c"},
              {"Vary: a, A, a", "a"},
              {"Vary: ,", ""},
              {"Vary:", ""},
              {"Vary: a, *, b", "*"},
              {"Vary: *\nVary: b", "*"},
              {"Vary: a b", "*"},
              {"Vary: \"a\"", "*"},
              {"Vary: a*", "*"}};
  crl_http_rules rules;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    read_head(&rules, rows[i].head);
    if (strcmp(rules.vary, rows[i].names) != 0) fail_msg("%s: %s", rows[i].head, rules.vary);
  }
  crl_http_rules_begin(&rules, NOW_MS);
  for (int i = 0; i < 200; i++) {
    char name[16];
    crl_http_rules_field(&rules, "vary", 4, name,
                         (size_t)snprintf(name, sizeof name, "name-%d", i));
  }
  assert_string_equal(rules.vary, "*"); /* more names than fit */
  assert_true(crl_http_names_have("a bc d", "BC", 2));
  assert_false(crl_http_names_have("a bc d", "b", 1));
  assert_false(crl_http_names_have("", "", 0));
}

static void retry_after_is_a_number_or_a_date(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t ms;
    /* 9110 10.2.3 */
  } rows[] = {{"Retry-After: 120", 120000},
              {"Retry-After: " IN_A_MINUTE, 60000},
              {"Retry-After: Sat, 05 Nov 1994 08:49:37 GMT", 0},
              {"Retry-After: -5", 0},
              {"Retry-After: soon", 0},
              {"Retry-After: 99999999999999", BOUND},
              {"", 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_int_equal(judge(rows[i].text, &(crl_http_terms){0}).retry_after_ms, rows[i].ms);
}

/* Any bytes must be read without a fault; meant for the sanitizers. */
static void any_bytes_do_no_harm(void **state) {
  (void)state;
  static const char *const names[] = {
      "Cache-Control", "Expires",         "Date",       "Age", "Vary", "ETag",
      "Last-Modified", "X-Accel-Expires", "Retry-After"};
  static const char letters[] =
      "max-age=stale-while-revalidate,\"\\ *0123456789 GMTSun,06 Nov 1994 08:49:37@W/";
  uint32_t dice = 1;
  for (int round = 0; round < 20000; round++) {
    crl_http_rules rules;
    crl_http_rules_begin(&rules, NOW_MS);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
      size_t len = (dice = dice * 1664525 + 1013904223) >> 16 & 31;
      char *text = malloc(len); /* exact size, so that a read beyond the end is detected */
      for (size_t j = 0; j < len; j++) {
        dice = dice * 1664525 + 1013904223;
        text[j] =
            dice >> 30 == 0 ? (char)(dice >> 8) : letters[(dice >> 16) % (sizeof letters - 1)];
      }
      crl_http_rules_field(&rules, names[i], strlen(names[i]), text, len);
      free(text);
    }
    crl_http_verdict v = crl_http_rules_judge(&rules, &(crl_http_terms){.with_accel = round & 1});
    assert_true(v.fresh_ms >= N && v.swr_ms >= N && v.sie_ms >= N &&
                v.fresh_ms <= (int64_t)1 << 48);
  }
}

static void a_targeted_field_takes_the_place_of_the_others(void **state) {
  (void)state;
#define CDN "CDN-Cache-Control: "
  static const life_row with[] = {
      {"9213 2.1", CDN "max-age=60", 60000, U, U},
      {"9213 2.1", CDN "max-age=60\nCache-Control: max-age=10\nExpires: 0", 60000, U, U},
      {"9213 2.1", CDN "s-maxage=60, max-age=10", 60000, N, N},
      {"9213 2.1", CDN "stale-if-error=5\nCache-Control: max-age=10", U, U, 5000},
      {"9213 2.1", CDN "no-cache, max-age=60", N, N, N},
      {"9213 2.1", CDN "max-age=60, must-revalidate", 60000, N, N},
      {"8941 3.2", CDN "max-age=10, max-age=60", 60000, U, U},
      {"8941 3.2", CDN "a=1, b=?1, c=\"x,\\\"y\", d=tok/en:*, e;f=1;g, max-age=60", 60000, U, U},
      {"8941 3.3.1", CDN "max-age=-60", N, U, U},
      {"8941 3.2", CDN "max-age=60,\nCache-Control: max-age=10", 10000, U, U},
      {"8941 3.2", CDN "max-age =60\nCache-Control: max-age=10", 10000, U, U},
      {"8941 3.2", CDN "max-age= 60\nCache-Control: max-age=10", 10000, U, U},
      {"8941 3.2", CDN "Max-Age=60\nCache-Control: max-age=10", 10000, U, U},
      {"8941 3.2", CDN "max-age\nCache-Control: max-age=10", 10000, U, U},
      {"8941 3.2", CDN "max-age=6.5\nCache-Control: max-age=10", 10000, U, U},
      {"8941 3.2", CDN "max-age=\"60\"\nCache-Control: max-age=10", 10000, U, U},
      {"8941 3.2", CDN "max-age=60, a=\"b\nCache-Control: max-age=10", 10000, U, U},
      {"8941 3.2", CDN "max-age=60\n" CDN "&\nCache-Control: max-age=10", 10000, U, U},
      {"9213 2.1", CDN "\nCache-Control: max-age=10", 10000, U, U},
  };
  static const life_row without[] = {
      {"9213 2.1", CDN "max-age=60\nCache-Control: max-age=10", 10000, U, U}};
  const crl_http_terms terms = {.with_cdn = 1};
  CHECK_LIVES(with, &terms);
  CHECK_LIVES(without, &(crl_http_terms){0});
  assert_true(judge(CDN "max-age=60\nCache-Control: no-store", &terms).is_storable);
  assert_false(judge(CDN "no-store\nCache-Control: max-age=60", &terms).is_storable);
  assert_false(judge(CDN "private=\"x\"\nCache-Control: max-age=60", &terms).is_storable);
  const crl_http_terms authorized = {.with_cdn = 1, .is_authorized = 1};
  assert_true(judge(CDN "max-age=60, public", &authorized).is_storable);
  assert_false(judge(CDN "max-age=60, public=?0", &authorized).is_storable);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_fresh_life_comes_from_the_strongest_source),
      cmocka_unit_test(lists_and_quotes_are_read_as_the_grammar_has_them),
      cmocka_unit_test(what_is_invalid_or_given_twice_makes_a_life_shorter),
      cmocka_unit_test(graces_are_given_by_the_response_and_taken_by_it),
      cmocka_unit_test(age_is_taken_off),
      cmocka_unit_test(the_time_the_request_took_counts_in_whole_seconds),
      cmocka_unit_test(some_responses_are_not_kept),
      cmocka_unit_test(must_understand_takes_the_place_of_no_store),
      cmocka_unit_test(a_life_can_be_guessed_from_last_modified),
      cmocka_unit_test(answers_to_an_authorized_request_are_kept_only_when_they_say_so),
      cmocka_unit_test(x_accel_expires_comes_before_all_where_it_is_asked_for),
      cmocka_unit_test(dates_come_in_three_forms),
      cmocka_unit_test(validators_are_kept_as_they_were_sent),
      cmocka_unit_test(vary_is_a_list_of_names),
      cmocka_unit_test(retry_after_is_a_number_or_a_date),
      cmocka_unit_test(a_targeted_field_takes_the_place_of_the_others),
      cmocka_unit_test(any_bytes_do_no_harm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
