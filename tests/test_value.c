/* test_value.c: counted bytes and values, fills, and the tables of statuses and events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/events_kit.h"
#include "record/fill.h"
#include "base/status.h"

/* ---- bytes and values ---------------------------------------------------------------------- */

static int freed;
static void count_free(void *owner) {
  (void)owner;
  freed++;
}

static void bytes_are_freed_with_their_last_owner(void **state) {
  (void)state;
  uint8_t data[] = "abcdef";
  freed = 0;
  crl_bytes *bytes = crl_bytes_wrap(data, 6, count_free, data);
  corral_value *value = crl_value_new(bytes, &(crl_about){.offset = 2,
                                                          .size = 3,
                                                          .how = CORRAL_STALE,
                                                          .kept = CORRAL_KEPT_FENCED,
                                                          .age_ms = 77,
                                                          .failure = 503});
  crl_bytes_unref(bytes);
  assert_ptr_equal(corral_value_ref(value), value);
  assert_int_equal(corral_value_size(value), 3);
  assert_memory_equal(corral_value_data(value), "cde", 3);
  assert_int_equal(corral_value_how(value), CORRAL_STALE);
  assert_int_equal(corral_value_age_ms(value), 77);
  assert_int_equal(corral_value_kept(value), CORRAL_KEPT_FENCED);
  assert_int_equal(corral_value_failure(value), 503);
  corral_value_unref(value);
  assert_int_equal(freed, 0);
  corral_value_unref(value);
  assert_int_equal(freed, 1);
  corral_value_unref(NULL);
  crl_bytes_unref(NULL);
}

static void an_empty_value_still_has_a_place(void **state) {
  (void)state;
  uint8_t data[1] = {0};
  crl_bytes *bytes = crl_bytes_wrap(data, 0, NULL, NULL);
  corral_value *value = crl_value_new(bytes, &(crl_about){.how = CORRAL_FRESH});
  assert_non_null(corral_value_data(value));
  assert_int_equal(corral_value_size(value), 0);
  corral_value_unref(value);
  crl_bytes_unref(bytes);
}

static void a_value_of_a_room_needs_no_other_memory(void **state) {
  (void)state;
  size_t offset;
  uint8_t *room = crl_room_new(6);
  memcpy(room, "abcdef", 6);
  crl_alloc_countdown = 0;
  corral_value *value = crl_value_wrap(room, 6, crl_room_drop, room,
                                       &(crl_about){.offset = 1, .size = 4, .how = CORRAL_FRESH});
  assert_int_equal(crl_alloc_countdown, 0);
  crl_alloc_countdown = -1;
  assert_memory_equal(corral_value_data(value), "bcde", 4);
  crl_bytes *bytes = crl_bytes_ref(crl_value_bytes(value, &offset));
  assert_int_equal(offset, 1);
  assert_ptr_equal(bytes->data, room);
  corral_value_unref(corral_value_ref(value));
  corral_value_unref(value);
  assert_memory_equal(bytes->data, "abcdef", 6); /* other callers may still have them */
  crl_bytes_unref(bytes);
  bytes = crl_bytes_wrap(crl_room_new(3), 0, NULL, NULL);
  crl_room_drop((uint8_t *)(uintptr_t)bytes->data);
  crl_bytes_unref(bytes);
  crl_room_drop(NULL);
}

static void a_value_of_a_store_s_memory_drops_it_once(void **state) {
  (void)state;
  uint8_t data[] = "abcdef";
  freed = 0;
  crl_alloc_countdown = 0;
  assert_null(crl_value_wrap(data, 6, count_free, data, &(crl_about){.size = 6}));
  assert_int_equal(freed, 0);
  corral_value *value = crl_value_wrap(data, 6, count_free, data, &(crl_about){.size = 6});
  assert_ptr_equal(corral_value_data(value), data);
  corral_value_unref(value);
  assert_int_equal(freed, 1);
}

static void without_memory_the_owner_keeps_what_is_his(void **state) {
  (void)state;
  uint8_t data[1] = {0};
  freed = 0;
  crl_alloc_countdown = 0;
  assert_null(crl_bytes_wrap(data, 1, count_free, data));
  crl_bytes *bytes = crl_bytes_wrap(data, 1, count_free, data);
  crl_alloc_countdown = 0;
  assert_null(crl_value_new(bytes, &(crl_about){.size = 1, .how = CORRAL_FRESH}));
  assert_int_equal(crl_alloc_countdown, -1);
  assert_int_equal(freed, 0);
  crl_bytes_unref(bytes);
  assert_int_equal(freed, 1);
}

/* ---- tables -------------------------------------------------------------------------------- */

static void every_status_has_its_number_name_and_text(void **state) {
  (void)state;
  int last = 0;
#define ROW(name, number, text)                                                                    \
  assert_int_equal(CORRAL_##name, number);                                                         \
  assert_int_equal(number, last - 1);                                                              \
  last = number;                                                                                   \
  assert_string_equal(corral_status_name(CORRAL_##name), #name);                                   \
  assert_string_equal(corral_status_text(CORRAL_##name), text);
  CORRAL_STATUS_MAP(ROW)
#undef ROW
  assert_string_equal(corral_status_name(CORRAL_OK), "OK");
  for (int status = -1000; status < 1000; status += 7) {
    assert_non_null(corral_status_name(status));
    assert_non_null(corral_status_text(status));
  }
}

static void every_event_has_its_name_and_text(void **state) {
  (void)state;
#define ROW(id, name, text)                                                                        \
  assert_string_equal(corral_event_name(CORRAL_EVENT_##id), name);                                 \
  assert_string_equal(corral_event_text(CORRAL_EVENT_##id), text);
  CORRAL_EVENT_MAP(ROW)
#undef ROW
  /* this order must never change */
  static const char *const names[] = {
      "hit",       "stale",    "miss",       "negative", "join",     "wait",        "poll",
      "claim",     "compute",  "fill",       "fenced",   "unstored", "failure",     "verdict",
      "abandoned", "extend",   "lease_lost", "deadline", "refresh",  "store_error", "store_down",
      "store_up",  "degraded", "corrupt",    "foreign"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    assert_string_equal(corral_event_name((corral_event)i), names[i]);
  assert_string_equal(corral_event_name(CORRAL_EVENT_COUNT), "?");
  assert_string_equal(corral_event_text((corral_event)-1), "?");
}

static void every_way_of_coming_has_a_name(void **state) {
  (void)state;
  assert_string_equal(corral_how_name(CORRAL_FRESH), "fresh");
  assert_string_equal(corral_how_name(CORRAL_STALE), "stale");
  assert_string_equal(corral_how_name(CORRAL_COMPUTED), "computed");
  assert_string_equal(corral_how_name(CORRAL_JOINED), "joined");
  assert_string_equal(corral_how_name((corral_how)0), "?");
  assert_string_equal(corral_version(), CORRAL_VERSION);
}

static void an_error_is_filled_whole_and_terminated(void **state) {
  (void)state;
  corral_error error;
  char text[500];
  memset(&error, 0xff, sizeof error);
  memset(text, 'e', sizeof text);
  text[499] = '\0';
  assert_int_equal(crl_status_fail(&error, CORRAL_EIO, "%s", text), CORRAL_EIO);
  assert_true(error.status == CORRAL_EIO && error.code == 0 && error.retry_after_ms == 0);
  assert_int_equal(strlen(error.text), sizeof error.text - 1);
  assert_int_equal(crl_status_plain(&error, CORRAL_EMISS), CORRAL_EMISS);
  assert_string_equal(error.text, corral_status_text(CORRAL_EMISS));
  assert_int_equal(crl_status_fail(NULL, CORRAL_EIO, "%s", text), CORRAL_EIO);
}

static void what_an_error_quotes_moves_no_cursor_and_forges_no_line(void **state) {
  (void)state;
  corral_error error;
  assert_int_equal(
      crl_status_fail(&error, CORRAL_EIO, "a%cb: %s", 127, "-ERR \x1b[2J\r\nroot: \t\xc3\xa9"),
      CORRAL_EIO);
  assert_string_equal(error.text, "a?b: -ERR ?[2J??root: ?\xc3\xa9");
}

static int told;
static void hook(const corral_event_info *info, void *arg) {
  assert_int_equal(info->event, CORRAL_EVENT_FILL);
  assert_memory_equal(info->key, "k", info->key_len);
  assert_string_equal(info->detail, "d");
  assert_ptr_equal(arg, &told);
  told++;
}

static void events_are_counted_and_told(void **state) {
  (void)state;
  crl_events events = events_anew();
  events.hook = hook;
  events.arg = &told;
  crl_event_emit(&events, CORRAL_EVENT_FILL, "k", 1, "d");
  events.hook = NULL;
  crl_event_emit(&events, CORRAL_EVENT_FILL, NULL, 0, NULL);
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_FILL), 2);
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_HIT), 0);
  assert_int_equal(told, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_are_freed_with_their_last_owner),
      cmocka_unit_test(an_empty_value_still_has_a_place),
      cmocka_unit_test(a_value_of_a_room_needs_no_other_memory),
      cmocka_unit_test(a_value_of_a_store_s_memory_drops_it_once),
      cmocka_unit_test(without_memory_the_owner_keeps_what_is_his),
      cmocka_unit_test(every_status_has_its_number_name_and_text),
      cmocka_unit_test(every_event_has_its_name_and_text),
      cmocka_unit_test(every_way_of_coming_has_a_name),
      cmocka_unit_test(an_error_is_filled_whole_and_terminated),
      cmocka_unit_test(what_an_error_quotes_moves_no_cursor_and_forges_no_line),
      cmocka_unit_test(events_are_counted_and_told),
  };
  return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
