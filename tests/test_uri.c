/* test_uri.c: tables of good and bad store URIs, their text in messages, numbers with units, and a
 * small fuzzer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "store/uri.h"

#define SCHEME_63 "a23456789b123456789c123456789d123456789e123456789f123456789g123"

/* The parts of a URI as one line. */
static void line_of(const corral_uri *u, char *line, size_t size) {
  int n = snprintf(line, size, "%s|%s|%s|%s|%s|%d|%s|", u->scheme, u->user == NULL ? "-" : u->user,
                   u->password == NULL ? "-" : u->password, u->hosts == NULL ? "-" : u->hosts,
                   u->host, u->port, u->path);
  for (size_t i = 0; i < u->param_count && (size_t)n < size; i++)
    n += snprintf(line + n, size - (size_t)n, "%s%s=%s", i > 0 ? "," : "", u->params[i].name,
                  u->params[i].value);
}

static void good_uris_are_taken_apart(void **state) {
  (void)state;
  static const struct {
    const char *text, *line; /* scheme|user|password|hosts|host|port|path|params */
  } rows[] = {
      {"memory:", "memory|-|-|-||0||"},
      {"memory:name?size=4m", "memory|-|-|-||0|name|size=4m"},
      {"LMDB:/var/Cache", "lmdb|-|-|-||0|/var/Cache|"},
      {"lmdb:a%20b%3fc", "lmdb|-|-|-||0|a b?c|"},
      {"redis://h", "redis|-|-|h|h|0||"},
      {"redis://h:6379/2", "redis|-|-|h:6379|h|6379|/2|"},
      {"redis+unix:///run/r.sock?db=1", "redis+unix|-|-|||0|/run/r.sock|db=1"},
      {"redis://u:p%40%3a@h:1/", "redis|u|p@:|h:1|h|1|/|"},
      {"redis://:p@h", "redis|-|p|h|h|0||"},
      {"redis://u@h", "redis|u|-|h|h|0||"},
      {"redis://u:@h", "redis|u||h|h|0||"},
      {"redis://u:p@ss@h", "redis|u|p@ss|h|h|0||"},
      {"redis://[::1]:65535/0", "redis|-|-|[::1]:65535|::1|65535|/0|"},
      {"redis://[fe80::1%25eth0]", "redis|-|-|[fe80::1%25eth0]|fe80::1%eth0|0||"},
      {"redis://a:1,b:2,c", "redis|-|-|a:1,b:2,c|a|1||"},
      {"redis://h?a=b=c&d=%26&e=", "redis|-|-|h|h|0||a=b=c,d=&,e="},
      {"redis://?x=1", "redis|-|-|||0||x=1"},
      {"a1+-.:", "a1+-.|-|-|-||0||"},
      {SCHEME_63 ":", SCHEME_63 "|-|-|-||0||"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char line[512];
    crl_uri uri;
    corral_error error = {0};
    if (crl_uri_parse(&uri, rows[i].text, &error) != CORRAL_OK)
      fail_msg("%s: %s", rows[i].text, error.text);
    line_of(&uri.view, line, sizeof line);
    crl_uri_free(&uri);
    assert_string_equal(line, rows[i].line);
  }
}

static void bad_uris_are_refused_by_name_of_their_fault(void **state) {
  (void)state;
  static const struct {
    const char *text, *fault;
  } rows[] = {
      {NULL, "no store URI"},
      {"", "no scheme"},
      {"memory", "no scheme"},
      {":x", "no scheme"},
      {"re dis://h", "scheme has a character"},
      {"m\xc3\xa9m:", "scheme has a character"},
      {SCHEME_63 "x:", "at most 63 characters"},
      {SCHEME_63 "x+y:", "at most 63 characters"},
      {"redis://h:", "port"},
      {"redis://h:0", "port"},
      {"redis://h:65536", "port"},
      {"redis://h:99999999999999999999", "port"},
      {"redis://h:+1", "port"},
      {"redis://h: 1", "port"},
      {"redis://h:1x", "port"},
      {"redis://::1", "port"},
      {"redis://[::1", "']'"},
      {"redis://[::1]x", "']'"},
      {"lmdb:%", "'%'"},
      {"lmdb:%4", "'%'"},
      {"lmdb:%zz", "'%'"},
      {"lmdb:a%00b", "'%'"},
      {"redis://u%:p@h", "'%'"},
      {"redis://u:%p@h", "'%'"},
      {"redis://h%/", "'%'"},
      {"memory:?a=%0", "'%'"},
      {"memory:?%g=1", "'%'"},
      {"memory:?a", "name=value"},
      {"memory:?=a", "name=value"},
      {"memory:?a=1&a=2", "twice"},
      {"memory:?a=1&%61=2", "twice"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    crl_uri uri;
    corral_error error = {0};
    const char *shown = rows[i].text == NULL ? "NULL" : rows[i].text;
    if (crl_uri_parse(&uri, rows[i].text, &error) != CORRAL_EURI) fail_msg("accepted: %s", shown);
    if (error.status != CORRAL_EURI || strstr(error.text, rows[i].fault) == NULL)
      fail_msg("%s: %s", shown, error.text);
    assert_null(uri.memory);
    assert_int_equal(crl_uri_parse(&uri, rows[i].text, NULL), CORRAL_EURI);
  }
}

static void there_is_room_for_32_parameters(void **state) {
  (void)state;
  char text[512] = "memory:?a0=1";
  crl_uri uri;
  corral_error error;
  for (int i = 1; i < CRL_URI_PARAMS; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "&a%d=1", i);
  assert_int_equal(crl_uri_parse(&uri, text, NULL), CORRAL_OK);
  assert_int_equal(uri.view.param_count, CRL_URI_PARAMS);
  crl_uri_free(&uri);
  snprintf(text + strlen(text), sizeof text - strlen(text), "&one=more");
  assert_int_equal(crl_uri_parse(&uri, text, &error), CORRAL_EURI);
  assert_non_null(strstr(error.text, "32"));
}

/* ---- passwords ----------------------------------------------------------------------------- */

static void no_message_shows_a_password(void **state) {
  (void)state;
  static const char *const rows[] = {
      "redis://u:secret@h:99999",  "redis://:secret@h:x",       "redis://u:secret@h/0?bad",
      "redis://u:%secret@h",       "redis://u:x@secret@h:0",    "redis://u:se:secret@h:0",
      "redis://u:secret@[::1",     "redis://:secret@h?a=1&a=2", "re_dis://u:secret@h",
      "redis://u:secret@h,h2:1/%", "redis://:x/secret@h:1",     "redis://u:x?secret@h",
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    crl_uri uri;
    corral_error error = {0};
    assert_int_equal(crl_uri_parse(&uri, rows[i], &error), CORRAL_EURI);
    if (strstr(error.text, "secret") != NULL) fail_msg("shown: %s", error.text);
    assert_non_null(strstr(error.text, "***"));
  }
}

static void what_is_no_uri_is_shown_without_what_may_be_a_password(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"u:secret@h", "u:***@h"},
      {"secret@h", "***@h"},
      {"//u:secret@h", "//u:***@h"},
      {"redis:/u:secret@h", "redis:***@h"},
      {"redis//u:secret@h", "redis//u:***@h"},
      {"u:s3://secret@h", "u:***@h"},
      {"redis://u:secret", "redis://u:***"},
      {"redis://u:secret%40h:6379/0", "redis://u:***"},
      {"redis://h:1,u:secret:2", "redis://h:1,u:***"},
      {"redis://u:1secret/more", "redis://u:***"},
      {"redis://secret@h", "redis://***@h"},
      {"redis://h?password", "redis://h?***"},
      {"redis://h?pass%77ord=secret&x", "redis://h?pass%77ord=***&x"},
      {"", ""},
      {"@", "***@"},
      {":@", ":***@"},
      {"?pw=", "?pw=***"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[100], little[5];
    corral_uri_show(rows[i][0], text, sizeof text);
    assert_string_equal(text, rows[i][1]);
    corral_uri_show(rows[i][0], little, sizeof little);
    assert_int_equal(strncmp(little, text, 4), 0);
    assert_true(strlen(little) <= 4);
  }
}

static void the_text_of_a_good_uri_hides_the_password_alone(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"redis://u:p@h:1/0?x=1", "redis://u:***@h:1/0?x=1"},
      {"redis://:@h", "redis://:***@h"},
      {"redis://u:a-very-long-password@h", "redis://u:***@h"},
      {"redis://u@h:1", "redis://***@h:1"},
      {"redis://h:1/0", "redis://h:1/0"},
      {"redis://h:1,[::1]:2/0", "redis://h:1,[::1]:2/0"},
      {"lmdb:/a/b", "lmdb:/a/b"},
      {"lmdb:a:b@c", "lmdb:***@c"},
      {"redis://h?password_file=/run/p&db=1", "redis://h?password_file=***&db=1"},
      {"redis://h?a=1&passWORD=p#token=q", "redis://h?a=1&passWORD=***#token=***"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    crl_uri uri;
    assert_int_equal(crl_uri_parse(&uri, rows[i][0], NULL), CORRAL_OK);
    assert_string_equal(uri.view.text, rows[i][1]);
    crl_uri_free(&uri);
  }
}

/* ---- parameters ---------------------------------------------------------------------------- */

static void unknown_parameters_are_refused_with_the_list_of_those_accepted(void **state) {
  (void)state;
  crl_uri uri;
  corral_error error = {0};
  assert_int_equal(crl_uri_parse(&uri, "memory:?size=1&si=2", NULL), CORRAL_OK);
  assert_int_equal(crl_uri_check(&uri.view, "a size b si", &error), CORRAL_OK);
  assert_int_equal(crl_uri_check(&uri.view, "size sizes", &error), CORRAL_EURI);
  assert_non_null(strstr(error.text, "'si'"));
  assert_non_null(strstr(error.text, "size sizes"));
  assert_int_equal(crl_uri_check(&uri.view, "", &error), CORRAL_EURI);
  assert_non_null(strstr(error.text, "none"));
  assert_string_equal(crl_uri_get(&uri.view, "si"), "2");
  assert_null(crl_uri_get(&uri.view, "s"));
  crl_uri_free(&uri);
}

static void numbers_have_units_and_ranges(void **state) {
  (void)state;
  static const struct {
    const char *unit, *text;
    int64_t least, most, value; /* value -1: must be refused */
  } rows[] = {
      {"", "7", 0, 10, 7},
      {"", "11", 0, 10, -1},
      {"", "7s", 0, 10, -1},
      {"", "-1", -5, 10, -1},
      {"", "", 0, 10, -1},
      {"", " 1", 0, 10, -1},
      {"", "1 ", 0, 10, -1},
      {"", "0x1", 0, 10, -1},
      {"ms", "500ms", 0, 9000, 500},
      {"ms", "2s", 0, 9000, 2000},
      {"ms", "1m", 0, 60000, 60000},
      {"ms", "1h", 0, 3600000, 3600000},
      {"ms", "1d", 0, 86400000, 86400000},
      {"ms", "2S", 0, 9000, -1},
      {"ms", "1h30m", 0, 86400000, 5400000},
      {"ms", "0.2s", 0, 9000, 200},
      {"ms", "5", 0, 9000, 5000},
      {"ms", "5k", 0, 9000, -1},
      {"bytes", "64", 0, 99, 64},
      {"bytes", "64k", 0, 1 << 20, 65536},
      {"bytes", "1M", 0, 1 << 20, 1 << 20},
      {"bytes", "2g", 0, INT64_MAX, INT64_C(2) << 30},
      {"bytes", "1t", 0, INT64_MAX, INT64_C(1) << 40},
      {"bytes", "99999999t", 0, INT64_MAX, -1},
      {"bytes", "99999999999999999999", 0, INT64_MAX, -1},
      {"bytes", "1kb", 0, 9000, -1},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    corral_uri_param param = {"n", rows[i].text};
    corral_uri uri = {.text = "x:", .params = &param, .param_count = 1};
    corral_error error = {0};
    int64_t value = -1;
    int status =
        crl_uri_number(&uri, "n", rows[i].unit, rows[i].least, rows[i].most, &value, &error);
    if (value != rows[i].value || status != (value == -1 ? CORRAL_EURI : CORRAL_OK))
      fail_msg("'%s' as '%s': %d, %lld", rows[i].text, rows[i].unit, status, (long long)value);
    if (status != CORRAL_OK) assert_non_null(strstr(error.text, "accepted"));
  }
}

static void a_bare_duration_is_in_seconds_unless_its_name_says_ms(void **state) {
  (void)state;
  static const struct {
    const char *name, *text;
    int64_t ms;
  } rows[] = {
      {"wait", "5", 5000}, {"wait", "0.2", 200},    {"wait", "5ms", 5},
      {"wait_ms", "5", 5}, {"wait_ms", "2s", 2000}, {"wait_ms", "0.2", 1},
      {"ms", "5", 5000},   {"_ms", "5", 5000},      {"wait_msec", "5", 5000},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    corral_uri_param param = {rows[i].name, rows[i].text};
    corral_uri uri = {.text = "x:", .params = &param, .param_count = 1};
    corral_error error = {0};
    int64_t value = -1;
    (void)crl_uri_number(&uri, rows[i].name, "ms", 0, 9000, &value, &error);
    if (value != rows[i].ms)
      fail_msg("%s=%s: %lld, %s", rows[i].name, rows[i].text, (long long)value, error.text);
  }
}

static void a_number_that_is_not_given_keeps_its_default(void **state) {
  (void)state;
  corral_uri uri = {.text = "x:"};
  int64_t value = 42;
  assert_int_equal(crl_uri_number(&uri, "n", "ms", 0, 1, &value, NULL), CORRAL_OK);
  assert_int_equal(value, 42);
}

/* ---- the fuzzer ---------------------------------------------------------------------------- */

static uint32_t dice = 1;

static uint32_t roll(uint32_t below) {
  dice = dice * 1664525u + 1013904223u;
  return (dice >> 8) % below;
}

static void mutate(char *text, size_t room) {
  static const char alphabet[] = ":/@?&=%[],.+-*0159azAZ \x7f\xff";
  size_t len = strlen(text);
  for (uint32_t n = 1 + roll(6); n > 0; n--) {
    size_t at = roll((uint32_t)len + 1);
    char c = alphabet[roll(sizeof alphabet - 1)];
    if (roll(3) == 0 && len + 1 < room) {
      memmove(text + at + 1, text + at, len - at + 1);
      text[at] = c;
      len++;
    } else if (roll(2) == 0 && at < len) {
      memmove(text + at, text + at + 1, len - at);
      len--;
    } else if (at < len) {
      text[at] = c;
    }
  }
}

/* An accepted URI must be complete: all texts are set, and the port is in range. The sanitizer
 * checks the rest. */
static void no_mutation_of_a_uri_breaks_the_parser(void **state) {
  (void)state;
  static const char *const seeds[] = {"redis://user:pass%20word@[::1]:6379,b:2/0?op=1s&x=%41",
                                      "lmdb:/var/cache?size=2g&a=b", "memory:x",
                                      "redis+unix:///a/b?c=d"};
  int good = 0;
  for (int i = 0; i < 100000; i++) {
    char text[128], line[1024];
    crl_uri uri;
    corral_error error;
    snprintf(text, sizeof text, "%s", seeds[roll(4)]);
    mutate(text, sizeof text);
    int status = crl_uri_parse(&uri, text, &error);
    if (status != CORRAL_OK) {
      assert_int_equal(status, CORRAL_EURI);
      continue;
    }
    good++;
    line_of(&uri.view, line, sizeof line);
    if (uri.view.port < 0 || uri.view.port > 65535 || uri.view.path == NULL ||
        uri.view.host == NULL)
      fail_msg("%s", text);
    if (uri.view.param_count > CRL_URI_PARAMS) fail_msg("%s", text);
    crl_uri_free(&uri);
  }
  assert_true(good > 10000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(good_uris_are_taken_apart),
      cmocka_unit_test(bad_uris_are_refused_by_name_of_their_fault),
      cmocka_unit_test(there_is_room_for_32_parameters),
      cmocka_unit_test(no_message_shows_a_password),
      cmocka_unit_test(what_is_no_uri_is_shown_without_what_may_be_a_password),
      cmocka_unit_test(the_text_of_a_good_uri_hides_the_password_alone),
      cmocka_unit_test(unknown_parameters_are_refused_with_the_list_of_those_accepted),
      cmocka_unit_test(numbers_have_units_and_ranges),
      cmocka_unit_test(a_bare_duration_is_in_seconds_unless_its_name_says_ms),
      cmocka_unit_test(a_number_that_is_not_given_keeps_its_default),
      cmocka_unit_test(no_mutation_of_a_uri_breaks_the_parser),
  };
  return cmocka_run_group_tests_name("uri", tests, NULL, NULL);
}
