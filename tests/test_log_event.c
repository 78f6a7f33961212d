/* test_log_event.c: the ready hook for events: levels, lines, and how many of a kind are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stats/log.h"

enum { LINES = 64 };

/* The lines that a sink was given. */
typedef struct told {
  char lines[LINES][CORRAL_EVENT_LINE];
  corral_level levels[LINES];
  size_t count;
  int wrong;
} told;

static void keep(corral_level level, const char *line, size_t len, void *arg) {
  told *t = arg;
  if (strlen(line) != len || t->count == LINES) {
    t->wrong++;
    return;
  }
  t->levels[t->count] = level;
  snprintf(t->lines[t->count++], sizeof t->lines[0], "%s", line);
}

static corral_event_info event_of(corral_event event, const char *key) {
  return (corral_event_info){.size = sizeof(corral_event_info),
                             .event = event,
                             .key = key,
                             .key_len = key == NULL ? 0 : strlen(key),
                             .duration_us = -1,
                             .bytes = -1,
                             .server = -1,
                             .wake = -1};
}

static void tell(corral_log *log, corral_event event, uint32_t second, int times) {
  corral_event_info info = event_of(event, "k");
  for (int i = 0; i < times; i++) crl_log_tell(log, &info, second);
}

/* ---- levels -------------------------------------------------------------------------------- */

static void each_event_has_the_level_of_what_it_means_to_an_operator(void **state) {
  (void)state;
  size_t counts[CORRAL_LEVEL_DEBUG + 1] = {0};
  for (int e = 0; e < CORRAL_EVENT_COUNT; e++) counts[corral_event_level((corral_event)e)]++;
  assert_int_equal(counts[CORRAL_LEVEL_ERROR], 4);
  assert_true(counts[CORRAL_LEVEL_DEBUG] > 10);
  assert_int_equal(corral_event_level(CORRAL_EVENT_LOCK_LOST), CORRAL_LEVEL_ERROR);
  assert_int_equal(corral_event_level(CORRAL_EVENT_CORRUPT), CORRAL_LEVEL_ERROR);
  assert_int_equal(corral_event_level(CORRAL_EVENT_STORE_DOWN), CORRAL_LEVEL_WARNING);
  assert_int_equal(corral_event_level(CORRAL_EVENT_WARNING), CORRAL_LEVEL_WARNING);
  assert_int_equal(corral_event_level(CORRAL_EVENT_STORE_UP), CORRAL_LEVEL_NOTICE);
  assert_int_equal(corral_event_level(CORRAL_EVENT_CONTROL), CORRAL_LEVEL_NOTICE);
  assert_int_equal(corral_event_level(CORRAL_EVENT_COMPUTED), CORRAL_LEVEL_INFO);
  assert_int_equal(corral_event_level(CORRAL_EVENT_HIT), CORRAL_LEVEL_DEBUG);
  assert_int_equal(corral_event_level(CORRAL_EVENT_COUNT), CORRAL_LEVEL_DEBUG);
}

static void levels_have_the_numbers_and_names_of_syslog(void **state) {
  (void)state;
  const char *names[] = {"?", "?", "?", "error", "warning", "notice", "info", "debug", "?"};
  for (int i = 0; i < 9; i++) assert_string_equal(corral_level_name((corral_level)i), names[i]);
}

static void events_beyond_the_level_are_not_told(void **state) {
  (void)state;
  const corral_event events[] = {CORRAL_EVENT_LOCK_LOST, CORRAL_EVENT_STORE_ERROR,
                                 CORRAL_EVENT_STORE_UP, CORRAL_EVENT_FILL, CORRAL_EVENT_HIT};
  const struct {
    int level;
    size_t lines;
  } cases[] = {{CORRAL_LEVEL_ERROR, 1},  {CORRAL_LEVEL_WARNING, 2}, {0, 3},
               {CORRAL_LEVEL_NOTICE, 3}, {CORRAL_LEVEL_INFO, 4},    {CORRAL_LEVEL_DEBUG, 5}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    told t = {0};
    corral_log log =
        CORRAL_LOG(.level = (corral_level)cases[i].level, .write = keep, .write_arg = &t);
    for (size_t e = 0; e < 5; e++) tell(&log, events[e], 1, 1);
    assert_int_equal(t.count, cases[i].lines);
    for (size_t e = 0; e < t.count; e++)
      assert_int_equal(t.levels[e], corral_event_level(events[e]));
    assert_int_equal(t.wrong, 0);
  }
}

/* ---- lines --------------------------------------------------------------------------------- */

static void shows(const corral_event_info *info, const char *expected) {
  char text[CORRAL_EVENT_LINE];
  assert_int_equal(corral_event_show(info, text, sizeof text), strlen(expected));
  assert_string_equal(text, expected);
}

static void a_line_has_what_the_event_has_in_one_order(void **state) {
  (void)state;
  corral_event_info info = event_of(CORRAL_EVENT_STORE_ERROR, "user:42");
  shows(&info, "store_error user:42");
  info.duration_us = 201000;
  info.bytes = 0;
  info.server = 0;
  info.status = CORRAL_EIO;
  info.detail = "connection\nrefused";
  shows(&info, "store_error user:42, 201ms, 0 bytes, server 0, EIO: connection\\x0arefused");
  info = event_of(CORRAL_EVENT_WATCH, NULL);
  info.detail = "";
  info.duration_us = 999;
  shows(&info, "watch, 999us");
}

static void a_key_is_escaped_and_cut(void **state) {
  (void)state;
  char key[80], expected[100];
  corral_event_info info = event_of(CORRAL_EVENT_FILL, "a\r\n\x1b[2J\x7f");
  shows(&info, "fill a\\x0d\\x0a\\x1b[2J\\x7f");
  info = event_of(CORRAL_EVENT_FILL, "\xc3\xbc\xff\xc2\x85\xe2\x80\xae\xed\xa0\x80");
  shows(&info, "fill \xc3\xbc\\xff\\xc2\\x85\\xe2\\x80\\xae\\xed\\xa0\\x80");
  memset(key, 'k', sizeof key);
  info.key = key;
  info.key_len = 63;
  snprintf(expected, sizeof expected, "fill %.63s", key);
  shows(&info, expected);
  info.key_len = 64;
  snprintf(expected, sizeof expected, "fill %.63s...", key);
  shows(&info, expected);
}

static void a_line_fits_any_room(void **state) {
  (void)state;
  char detail[2000], text[CORRAL_EVENT_LINE];
  corral_event_info info = event_of(CORRAL_EVENT_STORE_ERROR, "\x01\x02\x03");
  memset(detail, 1, sizeof detail - 1);
  detail[sizeof detail - 1] = '\0';
  info.detail = detail;
  for (size_t size = 0; size <= sizeof text; size++) {
    char *room = malloc(size == 0 ? 1 : size);
    size_t len = corral_event_show(&info, room, size);
    assert_true(size == 0 ? len == 0 : len < size && strlen(room) == len);
    free(room);
    room = malloc(size == 0 ? 1 : size);
    len = corral_text_show(detail, 100, room, size);
    assert_true(size == 0 ? len == 0 : len < size && strlen(room) == len);
    free(room);
  }
  size_t len = corral_event_show(&info, text, sizeof text);
  assert_string_equal(text + len - 7, "\\x01...");
}

static void a_character_says_whether_it_may_be_shown(void **state) {
  (void)state;
  const struct {
    const char *bytes;
    size_t len, read;
    uint32_t code;
    int is_shown;
  } cases[] = {{"a", 1, 1, 'a', 1},
               {"\n", 1, 1, '\n', 0},
               {"\xe2\x82\xac", 3, 3, 0x20ac, 1},
               {"\xe2\x82\xac", 2, 1, 0xe2, 0},
               {"\xf0\x9f\x90\x8e", 4, 4, 0x1f40e, 1},
               {"\xf3\xa0\x80\x81", 4, 4, 0xe0001, 0},
               {"\xc0\x80", 2, 1, 0xc0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    size_t read = 0;
    uint32_t code = 0;
    int is_shown = corral_character_read(cases[i].bytes, cases[i].len, &read, &code);
    assert_int_equal(!!is_shown, cases[i].is_shown);
    assert_int_equal(read, cases[i].read);
    assert_int_equal(code, cases[i].code);
  }
}

/* ---- how many ------------------------------------------------------------------------------ */

static void a_kind_has_so_many_lines_in_a_second_and_then_their_rest_in_one(void **state) {
  (void)state;
  told t = {0};
  corral_log log = CORRAL_LOG(.write = keep, .write_arg = &t);
  tell(&log, CORRAL_EVENT_STORE_ERROR, 1, 37);
  assert_int_equal(t.count, 5);
  tell(&log, CORRAL_EVENT_FAILURE, 1, 1);
  assert_string_equal(t.lines[5], "failure k");
  tell(&log, CORRAL_EVENT_STORE_ERROR, 2, 1);
  assert_int_equal(t.count, 8);
  assert_string_equal(t.lines[6], "32 more of store_error within a second");
  assert_int_equal(t.levels[6], CORRAL_LEVEL_WARNING);
  assert_string_equal(t.lines[7], "store_error k");
  tell(&log, CORRAL_EVENT_FAILURE, 2, 1);
  assert_string_equal(t.lines[8], "failure k");
  assert_int_equal(t.count, 9);
}

static void the_number_of_lines_is_an_option(void **state) {
  (void)state;
  told t = {0};
  corral_log one = CORRAL_LOG(.per_s = 1, .write = keep, .write_arg = &t);
  corral_log all = CORRAL_LOG(.per_s = CORRAL_OFF, .write = keep, .write_arg = &t);
  tell(&one, CORRAL_EVENT_FAILURE, 1, 40);
  assert_int_equal(t.count, 1);
  tell(&all, CORRAL_EVENT_FAILURE, 1, 40);
  assert_int_equal(t.count, 41);
  assert_int_equal(t.wrong, 0);
}

static void a_thread_that_read_the_clock_before_another_counts_where_that_does(void **state) {
  (void)state;
  told t = {0};
  corral_log log = CORRAL_LOG(.per_s = 1, .write = keep, .write_arg = &t);
  tell(&log, CORRAL_EVENT_FAILURE, 8, 2);
  tell(&log, CORRAL_EVENT_FAILURE, 7, 2);
  assert_int_equal(t.count, 1);
  tell(&log, CORRAL_EVENT_FAILURE, 9, 1);
  assert_string_equal(t.lines[1], "3 more of failure within a second");
}

static void a_flush_tells_what_is_left_once(void **state) {
  (void)state;
  told t = {0};
  corral_log log = CORRAL_LOG(.per_s = 2, .write = keep, .write_arg = &t);
  tell(&log, CORRAL_EVENT_FAILURE, 3, 2);
  corral_log_flush(&log);
  assert_int_equal(t.count, 2);
  tell(&log, CORRAL_EVENT_FAILURE, 3, 3);
  tell(&log, CORRAL_EVENT_CONTROL, 3, 9);
  corral_log_flush(&log);
  corral_log_flush(&log);
  assert_int_equal(t.count, 6);
  assert_string_equal(t.lines[4], "3 more of failure within a second");
  assert_string_equal(t.lines[5], "7 more of control within a second");
  tell(&log, CORRAL_EVENT_FAILURE, 3, 1);
  assert_int_equal(t.count, 6);
  corral_log_flush(&log);
  assert_string_equal(t.lines[6], "1 more of failure within a second");
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { THREADS = 8, EVENTS = 5000, SECONDS = 50 };

static _Atomic unsigned long lines, more;

static void add_up(corral_level level, const char *line, size_t len, void *arg) {
  char *end;
  unsigned long n = strtoul(line, &end, 10);
  (void)level;
  (void)len;
  (void)arg;
  if (end != line)
    more += n;
  else
    lines++;
}

static void *tell_many(void *arg) {
  for (int i = 0; i < EVENTS; i++)
    tell(arg, CORRAL_EVENT_STORE_ERROR, (uint32_t)(i / (EVENTS / SECONDS) + 1), 1);
  return NULL;
}

static void no_event_of_many_threads_is_lost_from_lines_and_rests(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  corral_log log = CORRAL_LOG(.per_s = 3, .write = add_up);
  lines = more = 0;
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, tell_many, &log), 0);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  corral_log_flush(&log);
  assert_true(lines >= 3 && lines <= 3 * SECONDS);
  assert_int_equal(lines + more, THREADS * EVENTS);
}

/* ---- standard error ------------------------------------------------------------------------ */

/* Makes standard error a socket, whose messages are the writes. Returns the former one. */
static int capture(int *ret_end) {
  int ends[2], before = dup(STDERR_FILENO);
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
  close(ends[1]);
  *ret_end = ends[0];
  return before;
}

static void restore(int before) {
  (void)dup2(before, STDERR_FILENO);
  close(before);
}

static void without_a_sink_a_line_is_one_write_to_standard_error(void **state) {
  (void)state;
  char text[2][200] = {"", ""};
  int end, before = capture(&end);
  corral_log log = CORRAL_LOG(.level = CORRAL_LEVEL_INFO);
  tell(&log, CORRAL_EVENT_LOCK_LOST, 1, 1);
  tell(&log, CORRAL_EVENT_FILL, 1, 1);
  restore(before);
  for (int i = 0; i < 2; i++) assert_true(read(end, text[i], sizeof text[i] - 1) > 0);
  assert_int_equal(read(end, text[0] + 100, 1), 0);
  close(end);
  assert_string_equal(text[0], "corral: error: lock_lost k\n");
  assert_string_equal(text[1], "corral: info: fill k\n");
}

static void a_line_that_cannot_be_written_leaves_errno_as_it_was(void **state) {
  (void)state;
  int full = open("/dev/full", O_WRONLY | O_CLOEXEC), before = dup(STDERR_FILENO);
  corral_log log = CORRAL_LOG();
  assert_true(full >= 0 && dup2(full, STDERR_FILENO) >= 0);
  errno = EDOM;
  tell(&log, CORRAL_EVENT_LOCK_LOST, 1, 1);
  int after = errno;
  restore(before);
  close(full);
  assert_int_equal(after, EDOM);
}

/* By the real clock: the lines of a burst, and their rests, are all of its events. */
static void without_a_log_that_of_the_process_is_used(void **state) {
  (void)state;
  char text[200];
  unsigned long sum = 0;
  int end, before = capture(&end);
  corral_log unmade = {0};
  corral_event_info info = event_of(CORRAL_EVENT_FAILURE, "k");
  for (int i = 0; i < 40; i++) corral_log_event(&info, i % 2 == 0 ? NULL : &unmade);
  corral_log_flush(NULL);
  restore(before);
  for (ssize_t n; (n = read(end, text, sizeof text - 1)) > 0;) {
    text[n] = '\0';
    unsigned long rest = strtoul(text + strlen("corral: warning: "), NULL, 10);
    sum += rest > 0 ? rest : 1;
  }
  close(end);
  assert_int_equal(sum, 40);
}

/* ---- a corral ------------------------------------------------------------------------------ */

static int fails(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  corral_fill_fail(fill, 7, "no luck");
  return CORRAL_OK;
}

static void a_corral_tells_its_events_to_the_log(void **state) {
  (void)state;
  told t = {0};
  corral *c = NULL;
  corral_value *value = NULL;
  corral_log log = CORRAL_LOG(.write = keep, .write_arg = &t);
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:", .on_event = corral_log_event,
                                              .event_arg = &log, .stats_dir = "off"),
                               &c, NULL),
                   CORRAL_OK);
  assert_int_equal(corral_get_or_compute(c, "k", 1, NULL, fails, NULL, &value), CORRAL_EFAILED);
  corral_close(c);
  size_t found = 0;
  for (size_t i = 0; i < t.count; i++)
    found += strncmp(t.lines[i], "failure k, ", 11) == 0 && strstr(t.lines[i], "no luck") != NULL &&
             t.levels[i] == CORRAL_LEVEL_WARNING;
  assert_int_equal(found, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_event_has_the_level_of_what_it_means_to_an_operator),
      cmocka_unit_test(levels_have_the_numbers_and_names_of_syslog),
      cmocka_unit_test(events_beyond_the_level_are_not_told),
      cmocka_unit_test(a_line_has_what_the_event_has_in_one_order),
      cmocka_unit_test(a_key_is_escaped_and_cut),
      cmocka_unit_test(a_line_fits_any_room),
      cmocka_unit_test(a_character_says_whether_it_may_be_shown),
      cmocka_unit_test(a_kind_has_so_many_lines_in_a_second_and_then_their_rest_in_one),
      cmocka_unit_test(the_number_of_lines_is_an_option),
      cmocka_unit_test(a_thread_that_read_the_clock_before_another_counts_where_that_does),
      cmocka_unit_test(a_flush_tells_what_is_left_once),
      cmocka_unit_test(no_event_of_many_threads_is_lost_from_lines_and_rests),
      cmocka_unit_test(without_a_sink_a_line_is_one_write_to_standard_error),
      cmocka_unit_test(a_line_that_cannot_be_written_leaves_errno_as_it_was),
      cmocka_unit_test(without_a_log_that_of_the_process_is_used),
      cmocka_unit_test(a_corral_tells_its_events_to_the_log)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
