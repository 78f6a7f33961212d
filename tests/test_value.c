/* test_value.c: counted bytes and values, what a compute fills, and the tables of statuses and events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "event.h"
#include "fill.h"
#include "status.h"

/* ---- bytes and values -------------------------------------------------------------------------------------------- */

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
  corral_value *value = crl_value_new(bytes, 2, 3, CORRAL_STALE, 77, CORRAL_KEPT_FENCED);
  crl_bytes_unref(bytes);
  assert_ptr_equal(corral_value_ref(value), value);
  assert_int_equal(corral_value_size(value), 3);
  assert_memory_equal(corral_value_data(value), "cde", 3);
  assert_int_equal(corral_value_how(value), CORRAL_STALE);
  assert_int_equal(corral_value_age_ms(value), 77);
  assert_int_equal(corral_value_kept(value), CORRAL_KEPT_FENCED);
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
  corral_value *value = crl_value_new(bytes, 0, 0, CORRAL_FRESH, 0, CORRAL_KEPT);
  assert_non_null(corral_value_data(value));
  assert_int_equal(corral_value_size(value), 0);
  corral_value_unref(value);
  crl_bytes_unref(bytes);
}

static void without_memory_the_owner_keeps_what_is_his(void **state) {
  (void)state;
  uint8_t data[1] = {0};
  freed = 0;
  crl_alloc_countdown = 0;
  assert_null(crl_bytes_wrap(data, 1, count_free, data));
  crl_bytes *bytes = crl_bytes_wrap(data, 1, count_free, data);
  crl_alloc_countdown = 0;
  assert_null(crl_value_new(bytes, 0, 1, CORRAL_FRESH, 0, CORRAL_KEPT));
  assert_int_equal(crl_alloc_countdown, -1);
  assert_int_equal(freed, 0);
  crl_bytes_unref(bytes);
  assert_int_equal(freed, 1);
}

/* ---- fills ---------------------------------------------------------------------------------------------------------- */

static const corral_policy usual = {.ttl_ms = 1000, .swr_ms = 200, .sie_ms = 300, .negative_ttl_ms = 50, .jitter_pct = CORRAL_OFF};

static corral_fill empty(void) { return (corral_fill){.key = "key", .key_len = 3, .max_value = 100}; }

static crl_made finish(corral_fill *fill, crl_envelope *envelope, int64_t *hard) {
  crl_made made = crl_fill_finish(fill, &usual, 4000, 123456, 9, hard);
  if (made == CRL_MADE_VALUE) assert_int_equal(crl_envelope_read(fill->record, crl_fill_record_size(fill), "key", 3, envelope), CORRAL_OK);
  return made;
}

static void bytes_become_a_record_under_the_policy(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard = 0;
  assert_int_equal(corral_fill_bytes(&fill, "first", 5), CORRAL_OK);
  assert_int_equal(corral_fill_bytes(&fill, "second", 6), CORRAL_OK); /* the last call counts */
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_int_equal(hard, 1300);
  assert_true(e.ttl_ms == 1000 && e.swr_ms == 200 && e.sie_ms == 300 && e.created_ms == 123456 && e.cost_us == 4000);
  assert_int_equal(e.payload_len, 6);
  crl_bytes *bytes = crl_fill_take(&fill);
  assert_null(fill.record);
  assert_memory_equal(bytes->data + e.payload_at, "second", 6);
  crl_bytes_unref(bytes);
  crl_fill_clean(&fill);
}

static void reserved_room_is_filled_in_place(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  char *room = corral_fill_reserve(&fill, 100);
  assert_non_null(room);
  memset(room, 'r', 100);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_ptr_equal(fill.record + e.payload_at, room);
  crl_fill_clean(&fill);
}

static void too_much_is_refused_and_nothing_filled(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  assert_null(corral_fill_reserve(&fill, 101));
  assert_null(corral_fill_reserve(&fill, SIZE_MAX));
  assert_int_equal(corral_fill_bytes(&fill, NULL, 101), CORRAL_ETOOBIG);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_FAILURE);
  assert_string_equal(fill.text, "compute returned without a value");
  crl_alloc_countdown = 0;
  assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_ENOMEM);
  crl_fill_clean(&fill);
}

static void a_negative_has_its_own_life_and_no_grace(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_OK);
  corral_fill_negative(&fill);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_int_equal(e.kind, CRL_KIND_NEGATIVE);
  assert_int_equal(fill.filled, CRL_FILLED_NEGATIVE);
  assert_true(e.ttl_ms == 50 && e.swr_ms == 0 && e.sie_ms == 0 && e.payload_len == 0 && hard == 50);
  crl_fill_clean(&fill);
}

static void a_failure_keeps_its_number_and_its_text(void **state) {
  (void)state;
  corral_fill fill = empty();
  int64_t hard;
  char text[400];
  memset(text, 't', sizeof text);
  text[399] = '\0';
  corral_fill_fail(&fill, -42, text);
  assert_int_equal(crl_fill_finish(&fill, &usual, 1, 1, 1, &hard), CRL_MADE_FAILURE);
  assert_int_equal(fill.code, -42);
  assert_int_equal(strlen(fill.text), 239);
  corral_fill_fail(&fill, 1, NULL);
  assert_string_equal(fill.text, "computing failed");
  assert_int_equal(corral_fill_bytes(&fill, "better", 6), CORRAL_OK);
  assert_int_equal(crl_fill_finish(&fill, &usual, 1, 1, 1, &hard), CRL_MADE_VALUE);
  crl_fill_clean(&fill);
}

static void a_value_s_own_lives_stand_over_the_policy_s(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_OK);
  corral_fill_lives(&fill, 10, CORRAL_OFF, 0);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_true(e.ttl_ms == 10 && e.swr_ms == 0 && e.sie_ms == 300 && hard == 310);
  corral_fill_lives(&fill, CORRAL_OFF, 0, 0);
  assert_int_equal(crl_fill_finish(&fill, &usual, 1, 1, 1, &hard), CRL_MADE_UNKEPT);
  crl_fill_clean(&fill);
}

/* A user may say "for ever". The store adds this to its clock. */
static void lives_without_measure_do_not_overflow(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard = 0;
  assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_OK);
  corral_fill_lives(&fill, INT64_MAX, INT64_MAX, INT64_MAX);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  crl_fill_clean(&fill);
  assert_true(hard > 0 && hard < INT64_MAX / 4);
}

static void a_compute_can_ask_whether_it_is_still_wanted(void **state) {
  (void)state;
  corral_fill fill = empty();
  assert_false(corral_should_stop(&fill));
  assert_false(corral_fill_has_stale(&fill));
  fill.stop = 1;
  fill.has_stale = 1;
  assert_true(corral_should_stop(&fill));
  assert_true(corral_fill_has_stale(&fill));
}

/* ---- tables ---------------------------------------------------------------------------------------------------------- */

static void every_status_has_its_number_name_and_text(void **state) {
  (void)state;
  int last = 0;
#define ROW(name, number, text)                                    \
  assert_int_equal(CORRAL_##name, number);                         \
  assert_int_equal(number, last - 1);                              \
  last = number;                                                   \
  assert_string_equal(corral_status_name(CORRAL_##name), #name);   \
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
#define ROW(id, name, text)                                             \
  assert_string_equal(corral_event_name(CORRAL_EVENT_##id), name);      \
  assert_string_equal(corral_event_text(CORRAL_EVENT_##id), text);
  CORRAL_EVENT_MAP(ROW)
#undef ROW
  /* in their order, which is for ever */
  static const char *const names[] = {"hit", "stale", "miss", "negative", "join", "wait", "poll", "claim", "compute", "fill",
                                      "fenced", "unstored", "failure", "verdict", "abandoned", "extend", "lease_lost", "deadline",
                                      "refresh", "store_error", "store_down", "store_up", "degraded", "corrupt", "foreign"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_string_equal(corral_event_name((corral_event)i), names[i]);
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

static int told;
static void hook(corral_event event, const void *key, size_t key_len, const char *detail, void *arg) {
  assert_int_equal(event, CORRAL_EVENT_FILL);
  assert_memory_equal(key, "k", key_len);
  assert_string_equal(detail, "d");
  assert_ptr_equal(arg, &told);
  told++;
}

static void events_are_counted_and_told(void **state) {
  (void)state;
  crl_events events = {.hook = hook, .arg = &told};
  crl_event_emit(&events, CORRAL_EVENT_FILL, "k", 1, "d");
  events.hook = NULL;
  crl_event_emit(&events, CORRAL_EVENT_FILL, NULL, 0, NULL);
  assert_int_equal(events.count[CORRAL_EVENT_FILL], 2);
  assert_int_equal(events.count[CORRAL_EVENT_HIT], 0);
  assert_int_equal(told, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_are_freed_with_their_last_owner),
      cmocka_unit_test(an_empty_value_still_has_a_place),
      cmocka_unit_test(without_memory_the_owner_keeps_what_is_his),
      cmocka_unit_test(bytes_become_a_record_under_the_policy),
      cmocka_unit_test(reserved_room_is_filled_in_place),
      cmocka_unit_test(too_much_is_refused_and_nothing_filled),
      cmocka_unit_test(a_negative_has_its_own_life_and_no_grace),
      cmocka_unit_test(a_failure_keeps_its_number_and_its_text),
      cmocka_unit_test(a_value_s_own_lives_stand_over_the_policy_s),
      cmocka_unit_test(lives_without_measure_do_not_overflow),
      cmocka_unit_test(a_compute_can_ask_whether_it_is_still_wanted),
      cmocka_unit_test(every_status_has_its_number_name_and_text),
      cmocka_unit_test(every_event_has_its_name_and_text),
      cmocka_unit_test(every_way_of_coming_has_a_name),
      cmocka_unit_test(an_error_is_filled_whole_and_terminated),
      cmocka_unit_test(events_are_counted_and_told),
  };
  return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
