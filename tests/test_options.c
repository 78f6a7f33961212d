/* test_options.c: every option of the tables by name and text: its range, its default, its errors,
 * and the way back to a text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "policy/options.h"
#include "policy/text.h"

/* A struct of options, and the function that sets them. */
typedef struct kind {
  const char *name;
  const crl_option *(*rows)(size_t *ret_count, size_t *ret_at);
  int (*set)(void *user, const char *name, const char *text, corral_error *error);
  size_t size;
} kind;

static int set_policy(void *user, const char *name, const char *text, corral_error *error) {
  return corral_policy_set(user, name, text, error);
}

static int set_options(void *user, const char *name, const char *text, corral_error *error) {
  return corral_options_set(user, name, text, error);
}

static int set_lock(void *user, const char *name, const char *text, corral_error *error) {
  return corral_lock_options_set(user, name, text, error);
}

static const kind kinds[] = {
    {"policy", crl_options_of_policy, set_policy, sizeof(corral_policy)},
    {"options", crl_options_of_corral, set_options, sizeof(corral_options)},
    {"lock", crl_options_of_lock, set_lock, sizeof(corral_lock_options)},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef union any {
  size_t size;
  corral_policy policy;
  corral_options options;
  corral_lock_options lock;
} any;

/* One row, and a struct in which it can be set. */
typedef struct place {
  const kind *kind;
  const crl_option *row;
  any user;
  int64_t *field;
} place;

/* Calls `check` for each row of each table. */
static void each(void (*check)(place *p)) {
  for (size_t k = 0; k < KINDS; k++) {
    size_t count, at;
    const crl_option *rows = kinds[k].rows(&count, &at);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
      place p = {.kind = &kinds[k], .row = &rows[i], .user.size = kinds[k].size};
      p.field = (int64_t *)(void *)((char *)&p.user + at) + i;
      check(&p);
    }
  }
}

static int unit_is(const place *p, const char *unit) { return strcmp(p->row->unit, unit) == 0; }
static int is_word(const place *p) {
  return unit_is(p, "flag") || strchr(p->row->unit, '|') != NULL;
}

static void accepts(place *p, const char *name, const char *text, int64_t number) {
  corral_error error = {0};
  *p->field = 0;
  if (p->kind->set(&p->user, name, text, &error) != CORRAL_OK)
    fail_msg("%s: %s=%s: %s", p->kind->name, name, text, error.text);
  if (*p->field != number)
    fail_msg("%s: %s=%s is %lld, not %lld", p->kind->name, name, text, (long long)*p->field,
             (long long)number);
}

/* The error names the option, its value and, by `says`, what is accepted; the field stays. */
static void refuses(place *p, const char *text, const char *says) {
  corral_error error = {0};
  char begin[96];
  *p->field = 77;
  if (p->kind->set(&p->user, p->row->name, text, &error) != CORRAL_EINVAL)
    fail_msg("%s: %s=%s was accepted", p->kind->name, p->row->name, text);
  assert_int_equal(*p->field, 77);
  assert_int_equal(error.status, CORRAL_EINVAL);
  snprintf(begin, sizeof begin, "%s: '%s' is ", p->row->name, text);
  if (strncmp(error.text, begin, strlen(begin)) != 0 ||
      strstr(error.text, "; accepted: ") == NULL || strstr(error.text, says) == NULL ||
      strlen(error.text) + 1 == sizeof error.text)
    fail_msg("%s=%s: '%s' does not name '%s'", p->row->name, text, error.text, says);
}

/* ---- all rows ------------------------------------------------------------------------------ */

static void check_round_trip(place *p) {
  const crl_option *o = p->row;
  const int64_t numbers[] = {o->least, o->most, o->def, o->least < 0 ? 1 : o->least + 1};
  for (size_t i = 0; i < 4; i++) {
    char text[32];
    int64_t number = numbers[i] == 0 && o->least < 0 ? CORRAL_OFF : numbers[i];
    if (number > o->most || (number == 0 && o->least != 0)) continue;
    crl_option_show(o, number, text);
    accepts(p, o->name, text, number);
    accepts(p, o->field, text, number);
  }
}

static void every_option_is_set_by_name_and_by_field_to_what_is_shown(void **state) {
  (void)state;
  each(check_round_trip);
}

static void check_beyond(place *p) {
  char text[32], high[32];
  crl_option_show(p->row, p->row->most, high);
  if (is_word(p)) {
    refuses(p, "2x", unit_is(p, "flag") ? "on, off" : p->row->unit);
  } else {
    snprintf(text, sizeof text, "%lld%s", (long long)p->row->most + 1,
             unit_is(p, "ms") ? "ms" : "");
    refuses(p, text, high);
    refuses(p, "99999999999999999999", high);
  }
}

static void check_below(place *p) {
  char text[32], low[32];
  if (is_word(p) || p->row->least < 0 || p->row->least == 0) return;
  snprintf(text, sizeof text, "%lld%s", (long long)p->row->least - 1, unit_is(p, "ms") ? "ms" : "");
  refuses(p, text, crl_option_show(p->row, p->row->least, low));
  refuses(p, "off", crl_option_show(p->row, p->row->most, low));
}

static void a_value_outside_of_the_range_is_refused_with_the_range(void **state) {
  (void)state;
  each(check_beyond);
  each(check_below);
}

static void check_junk(place *p) {
  static const char *const junk[] = {"",    " ",    "-1",  "+1",   "1 ",   " 1",
                                     "1e3", "0x10", "nan", "1,5",  "OFF",  "defaul",
                                     "5y",  "1.",   ".5s", "1m1h", "1h1h", "1h30"};
  for (size_t i = 0; i < sizeof junk / sizeof *junk; i++) refuses(p, junk[i], "accepted");
}

static void what_is_no_value_is_refused_by_every_option(void **state) {
  (void)state;
  each(check_junk);
}

static void check_off_and_default(place *p) {
  const crl_option *o = p->row;
  accepts(p, o->name, "default", 0);
  if (o->least < 0) accepts(p, o->name, "off", CORRAL_OFF);
  if (o->least < 0 && !is_word(p) && !unit_is(p, "count")) accepts(p, o->name, "0", CORRAL_OFF);
  if (o->least < 0 && unit_is(p, "count")) refuses(p, "0", "off, ");
}

static void off_and_default_are_values_where_the_table_allows(void **state) {
  (void)state;
  each(check_off_and_default);
}

static void check_name(place *p) {
  char name[40];
  size_t len = strlen(p->row->name);
  corral_error error = {0};
  snprintf(name, sizeof name, "%s", p->row->name);
  for (char *at = name; *at != '\0'; at++)
    if (*at == '_') *at = '-';
  accepts(p, name, "default", 0);
  name[len - 1] = '\0'; /* the last letter is missing */
  int status = p->kind->set(&p->user, name, "default", &error);
  if (status != CORRAL_EOPTION || strstr(error.text, "did you mean '") == NULL)
    fail_msg("%s: %d '%s'", name, status, error.text);
}

static void a_name_may_have_dashes_and_a_misspelt_one_is_corrected(void **state) {
  (void)state;
  each(check_name);
}

static void check_unit(place *p) {
  if (!unit_is(p, "ms") || p->row->most < 60000) return;
  accepts(p, p->row->name, "60", 60000);
  if (strcmp(p->row->name, p->row->field) != 0) accepts(p, p->row->field, "60000", 60000);
}

static void a_bare_number_is_in_seconds_but_for_a_field_in_milliseconds(void **state) {
  (void)state;
  each(check_unit);
}

/* The names of one struct are unique; those of a corral and of its policy as well, for
 * corral_options_set takes both. */
static void no_two_options_of_a_struct_have_one_name(void **state) {
  (void)state;
  static const char *const names[] = {
#define NAME(field, name, group, unit, def, least, most, command, nginx, text) name, #field,
#define TEXT(field, name, group, command, nginx, text) name,
      CORRAL_POLICY_MAP(NAME) CORRAL_OPTION_MAP(NAME) CORRAL_TEXT_MAP(TEXT)
#undef NAME
  };
  size_t count = sizeof names / sizeof *names;
  for (size_t i = 0; i < count; i++)
    for (size_t j = i + 1; j < count; j++)
      if (crl_text_same_name(names[i], names[j]) && j != i + 1) fail_msg("%s twice", names[i]);
}

static void check_explained(place *p) {
  char value[32], said[96], text[4096];
  if (p->kind->set != set_policy) return;
  for (int i = 0; i < 2; i++) {
    int64_t number = i == 0 ? p->row->least : p->row->most;
    if (number == p->row->def) continue;
    crl_option_show(p->row, number, value);
    accepts(p, p->row->name, value, number);
    assert_int_equal(corral_policy_explain(&p->user.policy, text, sizeof text, NULL), CORRAL_OK);
    snprintf(said, sizeof said, "\nSet: %s=%s.\n", p->row->name, value);
    if (strstr(text, said) == NULL) fail_msg("'%s' is not in:\n%s", said, text);
  }
}

static void explain_shows_what_was_set_as_it_can_be_set(void **state) {
  (void)state;
  each(check_explained);
}

/* ---- texts, and one row or the other ------------------------------------------------------- */

static void durations_and_sizes_are_read_as_people_write_them(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t ms;
  } rows[] = {{"500ms", 500},          {"2s", 2000},
              {"1m", 60000},           {"1h30m", 5400000},
              {"1d12h", 129600000},    {"2w", 1209600000},
              {"1h2m3s4ms", 3723004},  {"0.2", 200},
              {"0.2s", 200},           {"1.5h", 5400000},
              {"300", 300000},         {"0.0001", 1},
              {"1.0000000001s", 1000}, {"9223372036854775807w", INT64_MAX}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int64_t ms = -1;
    char shown[32];
    assert_int_equal(corral_duration_parse("x", rows[i].text, 0, INT64_MAX, &ms, NULL), CORRAL_OK);
    if (ms != rows[i].ms) fail_msg("%s is %lld", rows[i].text, (long long)ms);
    assert_int_equal(corral_duration_parse("x", corral_duration_show(ms, shown, sizeof shown), 0,
                                           INT64_MAX, &ms, NULL),
                     CORRAL_OK);
    assert_int_equal(ms, rows[i].ms);
  }
  corral_policy p = {.size = sizeof p};
  corral_options o = {.size = sizeof o};
  assert_int_equal(corral_options_set(&o, "near", "64M", NULL), CORRAL_OK);
  assert_int_equal(o.near_bytes, 64 << 20);
  assert_int_equal(corral_policy_set(&p, "early", "10%", NULL), CORRAL_OK);
  assert_int_equal(p.early_pct, 10);
  assert_int_equal(corral_policy_set(&p, "at-deadline", "compute", NULL), CORRAL_OK);
  assert_int_equal(p.at_deadline, CORRAL_DEADLINE_COMPUTE);
  assert_int_equal(corral_policy_set(&p, "when_away", "stale", NULL), CORRAL_OK);
  assert_int_equal(p.when_away, CORRAL_AWAY_STALE);
}

static void shares_are_percentages_or_parts_of_one(void **state) {
  (void)state;
  static const struct {
    const char *text, *shown;
    int64_t ppm;
  } rows[] = {{"0.1%", "0.1%", 1000},     {"0.001", "0.1%", 1000},
              {"1", "100%", 1000000},     {"100%", "100%", 1000000},
              {"1%", "1%", 10000},        {"12.5%", "12.5%", 125000},
              {"0.0001%", "0.0001%", 1},  {"0.00001%", "0.0001%", 1},
              {"0.000001", "0.0001%", 1}, {"0.999999", "99.9999%", 999999}};
  corral_policy p = {.size = sizeof p};
  corral_error error = {0};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char shown[32];
    assert_int_equal(corral_policy_set(&p, "verify", rows[i].text, NULL), CORRAL_OK);
    if (p.verify_ppm != rows[i].ppm) fail_msg("%s is %lld", rows[i].text, (long long)p.verify_ppm);
    assert_string_equal(crl_text_show_share(shown, p.verify_ppm), rows[i].shown);
  }
  assert_int_equal(corral_policy_set(&p, "verify_ppm", "500", NULL), CORRAL_OK);
  assert_int_equal(p.verify_ppm, 500);
  static const char *const none[] = {"2", "50", "101%", "1%%", "%", "1 %", "0.1.1%", "-1%"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    if (corral_policy_set(&p, "verify", none[i], &error) != CORRAL_EINVAL)
      fail_msg("%s was accepted", none[i]);
  assert_non_null(strstr(error.text, "; accepted: off, 0.0001% to 100%, as in 0.1% or 0.001"));
}

static void flags_have_many_words(void **state) {
  (void)state;
  static const char *const on[] = {"on", "yes", "true", "1"}, *const off[] = {"off", "no", "false",
                                                                              "0"};
  corral_options o = {.size = sizeof o};
  for (size_t i = 0; i < 4; i++) {
    assert_int_equal(corral_options_set(&o, "host_lock", on[i], NULL), CORRAL_OK);
    assert_int_equal(o.host_lock, 1);
    assert_int_equal(corral_options_set(&o, "host_lock", off[i], NULL), CORRAL_OK);
    assert_int_equal(o.host_lock, CORRAL_OFF);
  }
}

static void a_corral_s_options_are_texts_and_its_policy_s_too(void **state) {
  (void)state;
  corral_policy policy = {.size = sizeof policy};
  corral_options o = {.size = sizeof o};
  corral_lock_options lock = {.size = sizeof lock};
  corral_error error = {0};
  static const char uri[] = "memory:";
  assert_int_equal(corral_options_set(&o, "store", uri, NULL), CORRAL_OK);
  assert_ptr_equal(o.store, uri);
  assert_int_equal(corral_options_set(&o, "namespace", "a", NULL), CORRAL_OK);
  assert_int_equal(corral_options_set(&o, "host_dir", "/b", NULL), CORRAL_OK);
  assert_int_equal(corral_options_set(&o, "origin", "c", NULL), CORRAL_OK);
  assert_string_equal(o.name_space, "a");
  assert_string_equal(o.host_dir, "/b");
  assert_string_equal(o.origin, "c");
  assert_int_equal(corral_options_set(&o, "ttl", "5m", &error), CORRAL_EINVAL);
  assert_non_null(strstr(error.text, "'ttl' is an option of the policy"));
  o.policy = &policy;
  assert_int_equal(corral_options_set(&o, "ttl", "5m", &error), CORRAL_OK);
  assert_int_equal(policy.ttl_ms, 300000);
  assert_int_equal(corral_lock_options_set(&lock, "note", "n", NULL), CORRAL_OK);
  assert_int_equal(corral_lock_options_set(&lock, "owner", "o", NULL), CORRAL_OK);
  assert_string_equal(lock.note, "n");
  assert_string_equal(lock.owner, "o");
}

static void an_unknown_name_is_told_with_the_one_that_is_meant(void **state) {
  (void)state;
  static const struct {
    const char *name, *said;
  } rows[] = {{"tlt", "no option is called 'tlt': did you mean 'ttl'?"},
              {"stale-if-eror", "did you mean 'stale_if_error'?"},
              {"stroe", "did you mean 'store'?"},
              {"swr", "did you mean 'swr_ms'?"},
              {"workerz", "did you mean 'workers'?"},
              {"", "no option is called ''"},
              {"x\ny", "no option is called 'x?y'"},
              {"an_option_that_has_a_name_of_very_many_letters", "no option is called 'an_option"}};
  corral_options o = {.size = sizeof o};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    corral_error error = {0};
    assert_int_equal(corral_options_set(&o, rows[i].name, "1", &error), CORRAL_EOPTION);
    if (strstr(error.text, rows[i].said) == NULL) fail_msg("%s: %s", rows[i].name, error.text);
  }
}

static void a_struct_of_an_older_header_lacks_the_option(void **state) {
  (void)state;
  corral_policy p = {.size = offsetof(corral_policy, swr_ms)}, unset = {0};
  corral_error error = {0};
  assert_int_equal(corral_policy_set(&p, "ttl", "1", NULL), CORRAL_OK);
  assert_int_equal(corral_policy_set(&p, "stale", "1", &error), CORRAL_EOPTION);
  assert_non_null(strstr(error.text, "header"));
  assert_int_equal(p.swr_ms, 0);
  assert_int_equal(corral_policy_set(&unset, "ttl", "1", NULL), CORRAL_EINVAL);
  assert_int_equal(corral_policy_set(NULL, "ttl", "1", NULL), CORRAL_EINVAL);
  assert_int_equal(corral_policy_set(&p, NULL, "1", NULL), CORRAL_EINVAL);
  assert_int_equal(corral_policy_set(&p, "ttl", NULL, NULL), CORRAL_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_option_is_set_by_name_and_by_field_to_what_is_shown),
      cmocka_unit_test(a_value_outside_of_the_range_is_refused_with_the_range),
      cmocka_unit_test(what_is_no_value_is_refused_by_every_option),
      cmocka_unit_test(off_and_default_are_values_where_the_table_allows),
      cmocka_unit_test(a_name_may_have_dashes_and_a_misspelt_one_is_corrected),
      cmocka_unit_test(a_bare_number_is_in_seconds_but_for_a_field_in_milliseconds),
      cmocka_unit_test(no_two_options_of_a_struct_have_one_name),
      cmocka_unit_test(explain_shows_what_was_set_as_it_can_be_set),
      cmocka_unit_test(durations_and_sizes_are_read_as_people_write_them),
      cmocka_unit_test(shares_are_percentages_or_parts_of_one),
      cmocka_unit_test(flags_have_many_words),
      cmocka_unit_test(a_corral_s_options_are_texts_and_its_policy_s_too),
      cmocka_unit_test(an_unknown_name_is_told_with_the_one_that_is_meant),
      cmocka_unit_test(a_struct_of_an_older_header_lacks_the_option),
  };
  return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
