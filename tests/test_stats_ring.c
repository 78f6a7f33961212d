/* test_stats_ring.c: the last events of a process, written by its threads and read by others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/env.h"
#include "stats/event.h"
#include "stats/ring.h"
#include "support/room.h"

enum { WRITERS = 4, EVENTS = 10000, PID = 4711 };

static crl_ring *fresh_ring(void) {
  crl_ring *ring = calloc(1, sizeof *ring);
  assert_non_null(ring);
  crl_ring_reset(ring, PID);
  return ring;
}

static void write_event(crl_ring *ring, corral_event event, const char *key) {
  corral_event_info info = crl_event_info(event, key, key == NULL ? 0 : strlen(key));
  crl_ring_write(ring, &info);
}

/* Reads all events after `at`, as "number:event:key " each. */
static void read_all(const crl_ring *ring, uint64_t at, char *text, size_t size) {
  crl_ring_event event;
  size_t used = 0;
  text[0] = '\0';
  while (crl_ring_next(ring, &at, &event) && used < size)
    used += (size_t)snprintf(text + used, size - used, "%llu:%s:%s ",
                             (unsigned long long)event.logged.number, event.logged.name,
                             event.logged.key);
}

static void events_are_read_in_their_order_with_their_numbers(void **state) {
  (void)state;
  char text[200];
  crl_ring *ring = fresh_ring();
  write_event(ring, CORRAL_EVENT_MISS, "a");
  write_event(ring, CORRAL_EVENT_COMPUTE, "a");
  write_event(ring, CORRAL_EVENT_STORE_UP, NULL);
  read_all(ring, 0, text, sizeof text);
  assert_string_equal(text, "1:miss:a 2:compute:a 3:store_up: ");
  read_all(ring, 2, text, sizeof text);
  assert_string_equal(text, "3:store_up: ");
  read_all(ring, 3, text, sizeof text);
  assert_string_equal(text, "");
  free(ring);
}

static void what_calls_do_that_are_answered_at_once_is_not_written(void **state) {
  (void)state;
  static const corral_event hot[] = {
      CORRAL_EVENT_HIT,      CORRAL_EVENT_NEAR,    CORRAL_EVENT_STALE,
      CORRAL_EVENT_NEGATIVE, CORRAL_EVENT_VERDICT, CORRAL_EVENT_OUTBOX_HIT,
      CORRAL_EVENT_JOIN,     CORRAL_EVENT_POLL,    CORRAL_EVENT_LOCK_ASKED};
  char text[100];
  crl_ring *ring = fresh_ring();
  int logged = 0;
  for (size_t i = 0; i < sizeof hot / sizeof hot[0]; i++) {
    assert_false(corral_event_is_logged(hot[i]));
    write_event(ring, hot[i], "k");
  }
  for (int e = 0; e < CORRAL_EVENT_COUNT; e++) logged += corral_event_is_logged((corral_event)e);
  assert_int_equal(logged, CORRAL_EVENT_COUNT - (int)(sizeof hot / sizeof hot[0]));
  assert_false(corral_event_is_logged((corral_event)CORRAL_EVENT_COUNT));
  read_all(ring, 0, text, sizeof text);
  assert_string_equal(text, "");
  free(ring);
}

static void an_event_is_read_with_all_that_it_was_told_with(void **state) {
  (void)state;
  crl_ring_event event;
  uint64_t at = 0;
  crl_ring *ring = fresh_ring();
  int64_t before = crl_env_wall_us();
  corral_event_info info = {.size = sizeof info,
                            .event = CORRAL_EVENT_UNSTORED,
                            .status = CORRAL_EUNAVAILABLE,
                            .key = "a\0b",
                            .key_len = 3,
                            .detail = "refused",
                            .duration_us = INT64_C(5000000000),
                            .bytes = INT64_C(6000000000),
                            .server = 3,
                            .wake = CORRAL_WAKE_POLL};
  crl_ring_write(ring, &info);
  assert_int_equal(crl_ring_next(ring, &at, &event), 1);
  const corral_logged *e = &event.logged;
  assert_int_equal(e->size, sizeof *e);
  assert_int_equal(e->event, CORRAL_EVENT_UNSTORED);
  assert_string_equal(e->name, "unstored");
  assert_true(e->at_us >= before && e->at_us <= crl_env_wall_us());
  assert_int_equal(e->status, CORRAL_EUNAVAILABLE);
  assert_int_equal(e->key_len, 3);
  assert_int_equal(e->key_kept, 3);
  assert_memory_equal(e->key, "a\0b", 4);
  assert_string_equal(e->detail, "refused");
  assert_true(e->duration_us == INT64_C(5000000000));
  assert_true(e->bytes == INT64_C(6000000000));
  assert_int_equal(e->server, 3);
  assert_int_equal(e->wake, CORRAL_WAKE_POLL);
  assert_int_equal(e->pid, PID);
  free(ring);
}

static void what_an_event_does_not_have_is_read_as_such(void **state) {
  (void)state;
  crl_ring_event event;
  uint64_t at = 0;
  crl_ring *ring = fresh_ring();
  write_event(ring, CORRAL_EVENT_STORE_UP, NULL);
  assert_int_equal(crl_ring_next(ring, &at, &event), 1);
  assert_int_equal(event.logged.key_len, 0);
  assert_string_equal(event.logged.key, "");
  assert_null(event.logged.detail);
  assert_int_equal(event.logged.duration_us, -1);
  assert_int_equal(event.logged.bytes, -1);
  assert_int_equal(event.logged.server, -1);
  assert_int_equal(event.logged.wake, -1);
  free(ring);
}

static void long_texts_are_cut_and_long_keys_told_apart(void **state) {
  (void)state;
  char key[2][400], detail[400];
  crl_ring_event events[2];
  uint64_t at = 0;
  crl_ring *ring = fresh_ring();
  memset(detail, 'd', sizeof detail);
  detail[sizeof detail - 1] = '\0';
  for (int i = 0; i < 2; i++) {
    memset(key[i], 'k', sizeof key[i]);
    key[i][399] = (char)('0' + i);
    corral_event_info info = crl_event_info(CORRAL_EVENT_FAILURE, key[i], sizeof key[i]);
    info.detail = detail;
    crl_ring_write(ring, &info);
    assert_int_equal(crl_ring_next(ring, &at, &events[i]), 1);
    assert_int_equal(events[i].logged.key_len, 400);
    assert_int_equal(events[i].logged.key_kept, CORRAL_STATS_KEY);
    assert_int_equal(strlen(events[i].logged.key), CORRAL_STATS_KEY);
    assert_int_equal(strlen(events[i].logged.detail), CRL_RING_TEXT - CORRAL_STATS_KEY);
  }
  assert_true(events[0].logged.key_hash != events[1].logged.key_hash);
  free(ring);
}

static void what_was_written_over_is_seen_by_the_numbers(void **state) {
  (void)state;
  crl_ring_event event;
  uint64_t at = 0, count = 0;
  crl_ring *ring = fresh_ring();
  for (int i = 0; i < CRL_RING + 10; i++) write_event(ring, CORRAL_EVENT_MISS, "k");
  assert_int_equal(crl_ring_next(ring, &at, &event), 1);
  assert_int_equal(at, 11);
  for (count = 1; crl_ring_next(ring, &at, &event); count++) assert_int_equal(at, 11 + count);
  assert_int_equal(count, CRL_RING);
  free(ring);
}

static void another_process_goes_on_with_the_numbers_and_leaves_the_last_events(void **state) {
  (void)state;
  char text[200];
  crl_ring *ring = fresh_ring();
  write_event(ring, CORRAL_EVENT_COMPUTE, "last");
  write_event(ring, CORRAL_EVENT_MISS, "cut off");
  atomic_store(&ring->rows[2].words[0], 2 * 2 - 1); /* its writer was killed there */
  crl_ring_reset(ring, PID + 1);
  write_event(ring, CORRAL_EVENT_MISS, "first");
  read_all(ring, 0, text, sizeof text);
  assert_string_equal(text, "1:compute:last 3:miss:first ");
  free(ring);
}

/* ---- events that are being written --------------------------------------------------------- */

/* Makes an event so many seconds older, or younger. */
static void make_older(crl_ring *ring, uint64_t number, int seconds) {
  uint64_t body[CRL_RING_BODY];
  crl_ring_row *row = &ring->rows[number % CRL_RING];
  assert_int_equal(crl_sealed_read(row->words, body, CRL_RING_BODY), 2 * number);
  body[0] -= (uint64_t)(seconds * INT64_C(1000000));
  crl_sealed_write(row->words, 2 * number, body, CRL_RING_BODY);
}

static void a_reader_ends_before_an_event_that_is_being_written(void **state) {
  (void)state;
  char text[200];
  crl_ring *ring = fresh_ring();
  for (int i = 0; i < 3; i++) write_event(ring, CORRAL_EVENT_MISS, "k");
  atomic_store(&ring->rows[2].words[0], 2 * 2 - 1);
  make_older(ring, 3, -600); /* it stays a later one of this moment */
  read_all(ring, 0, text, sizeof text);
  assert_string_equal(text, "1:miss:k ");
  atomic_store(&ring->rows[2].words[0], 2 * 2);
  read_all(ring, 1, text, sizeof text);
  assert_string_equal(text, "2:miss:k 3:miss:k ");
  free(ring);
}

static void a_row_with_parts_of_two_events_is_not_read(void **state) {
  (void)state;
  char text[200];
  crl_ring *ring = fresh_ring();
  write_event(ring, CORRAL_EVENT_MISS, "k");
  for (size_t i = 1; i < CRL_SEALED_HEAD + CRL_RING_BODY; i++) {
    uint64_t word = atomic_fetch_add(&ring->rows[1].words[i], 1);
    read_all(ring, 0, text, sizeof text);
    assert_string_equal(text, "");
    atomic_store(&ring->rows[1].words[i], word);
  }
  read_all(ring, 0, text, sizeof text);
  assert_string_equal(text, "1:miss:k ");
  free(ring);
}

static void an_event_that_is_never_written_is_not_waited_for(void **state) {
  (void)state;
  char text[200];
  crl_ring *ring = fresh_ring();
  for (int i = 0; i < 3; i++) write_event(ring, CORRAL_EVENT_MISS, "k");
  atomic_store(&ring->rows[2].words[0], 2 * 2 - 1);
  make_older(ring, 3, 2);
  read_all(ring, 0, text, sizeof text);
  assert_string_equal(text, "1:miss:k 3:miss:k ");
  free(ring);
}

static void a_place_in_which_another_thread_writes_is_left_to_it(void **state) {
  (void)state;
  crl_ring *ring = fresh_ring();
  write_event(ring, CORRAL_EVENT_MISS, "slow");
  atomic_store(&ring->rows[1].words[0], 2 * 1 - 1);
  for (int i = 0; i < CRL_RING; i++) write_event(ring, CORRAL_EVENT_COMPUTE, "fast");
  assert_int_equal(atomic_load(&ring->rows[1].words[0]), 2 * 1 - 1);
  assert_int_equal(ring->last, CRL_RING + 1);
  free(ring);
}

/* ---- threads ------------------------------------------------------------------------------- */

typedef struct crowd {
  crl_ring *ring;
  atomic_int writing;
} crowd;

/* All members of such an event follow from its duration. */
static void *write_many(void *arg) {
  crowd *c = arg;
  char text[64];
  for (int i = 0; i < EVENTS; i++) {
    int n = (int)(crl_env_dice() % 1000000);
    (void)snprintf(text, sizeof text, "%d-%d-%d", n, n, n);
    corral_event_info info = crl_event_info(CORRAL_EVENT_COMPUTED, text, strlen(text));
    info.detail = text;
    info.duration_us = info.bytes = n;
    crl_ring_write(c->ring, &info);
  }
  atomic_fetch_sub(&c->writing, 1);
  return NULL;
}

static void expect_whole(const crl_ring_event *event) {
  char text[64];
  const corral_logged *e = &event->logged;
  (void)snprintf(text, sizeof text, "%lld-%lld-%lld", (long long)e->duration_us,
                 (long long)e->duration_us, (long long)e->duration_us);
  assert_string_equal(e->key, text);
  assert_string_equal(e->detail, text);
  assert_int_equal(e->bytes, e->duration_us);
}

/* Reads what is new, from the ring or from a copy; returns how many events. */
static size_t read_new(const crl_ring *ring, uint64_t *at) {
  crl_ring_event event;
  size_t count = 0;
  for (uint64_t before = *at; crl_ring_next(ring, at, &event); before = *at, count++) {
    assert_true(*at > before);
    expect_whole(&event);
  }
  return count;
}

/* The ring lies in a file, as other processes see it. */
static crl_ring *map_ring(int fd) {
  assert_int_equal(ftruncate(fd, sizeof(crl_ring)), 0);
  crl_ring *ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_true(ring != MAP_FAILED);
  return ring;
}

static void readers_never_see_parts_of_two_events(void **state) {
  (void)state;
  static crl_ring copy;
  pthread_t threads[WRITERS];
  int fd = memfd_create("ring", MFD_CLOEXEC);
  crowd c = {.ring = map_ring(fd), .writing = WRITERS};
  uint64_t at = 0, at_copy = 0;
  size_t count = 0, count_copy = 0;
  for (int i = 0; i < WRITERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, write_many, &c), 0);
  while (atomic_load(&c.writing) > 0) {
    count += read_new(c.ring, &at);
    assert_int_equal(pread(fd, &copy, sizeof copy, 0), sizeof copy);
    count_copy += read_new(&copy, &at_copy);
  }
  for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
  count += read_new(c.ring, &at);
  assert_int_equal(pread(fd, &copy, sizeof copy, 0), sizeof copy);
  count_copy += read_new(&copy, &at_copy);
  assert_int_equal(c.ring->last, WRITERS * EVENTS);
  assert_true(count > 0 && count_copy > 0);
  munmap(c.ring, sizeof *c.ring);
  close(fd);
}

static void foreign_bytes_are_bounded(void **state) {
  (void)state;
  static crl_ring ring;
  crl_ring_event event;
  uint64_t body[CRL_RING_BODY];
  for (int round = 0; round < 2000; round++) {
    uint64_t at = 0;
    for (size_t i = 0; i < CRL_RING_BODY; i++) body[i] = crl_env_dice();
    atomic_store(&ring.last, 5);
    crl_sealed_write(ring.rows[5].words, 2 * 5, body, CRL_RING_BODY);
    assert_int_equal(crl_ring_next(&ring, &at, &event), 1);
    assert_true(event.logged.key_kept <= CORRAL_STATS_KEY);
    assert_true(strlen(event.detail) <= CRL_RING_TEXT);
    assert_true(event.logged.key_len >= event.logged.key_kept);
  }
  uint64_t at = 0;
  atomic_store(&ring.last, UINT64_MAX);
  assert_int_equal(crl_ring_next(&ring, &at, &event), 0);
}

static void numbers_that_no_event_has_end_the_reading(void **state) {
  const uint64_t lasts[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63};
  static crl_ring ring;
  crl_ring_event event;
  (void)state;
  for (size_t i = 0; i < sizeof lasts / sizeof lasts[0]; i++) {
    uint64_t at = 0;
    atomic_store(&ring.last, lasts[i]);
    assert_int_equal(crl_ring_next(&ring, &at, &event), 0);
    at = UINT64_MAX;
    assert_int_equal(crl_ring_next(&ring, &at, &event), 0);
  }
}

/* ---- of corrals ---------------------------------------------------------------------------- */

typedef struct book {
  char text[600]; /* "number:event:key " each */
  size_t used;
  int timed; /* events with a duration */
} book;

static int note(const corral_logged *e, void *arg) {
  book *b = arg;
  b->used += (size_t)snprintf(b->text + b->used, sizeof b->text - b->used, "%d:%s:%s ",
                              (int)e->number, e->name, e->key);
  b->timed += e->duration_us >= 0;
  return 0;
}

static int make(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, key_len);
}

/* A corral of its own computes the key, asks for it again, and is closed; reads its log after
 * `after`. No lease is extended meanwhile. */
static book log_of(const char *folder, const char *key, uint64_t after) {
  corral *c = NULL;
  corral_value *value = NULL;
  corral_stats *stats = NULL;
  book b = {.used = 0};
  const corral_policy *policy = CORRAL_POLICY(.lease_ms = 600000, .lease_min_ms = 600000);
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "memory:", .stats_dir = folder, .policy = policy), &c,
                  NULL),
      CORRAL_OK);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(corral_get_or_compute(c, key, strlen(key), NULL, make, NULL, &value),
                     CORRAL_OK);
    corral_value_unref(value);
  }
  assert_int_equal(corral_stats_read(c, &stats, NULL), CORRAL_OK);
  (void)corral_stats_log(stats, after, note, &b);
  corral_stats_free(stats);
  corral_close(c);
  return b;
}

static void a_later_corral_goes_on_with_the_log_of_its_file(void **state) {
  (void)state;
  char folder[ROOM_PATH];
  room_folder(folder, "stats");
  book b = log_of(folder, "a", 0);
  assert_string_equal(b.text, "1:miss:a 2:claim:a 3:compute:a 4:computed:a 5:fill:a ");
  assert_int_equal(b.timed, 3);
  b = log_of(folder, "b", 3);
  assert_string_equal(b.text, "4:computed:a 5:fill:a 6:miss:b 7:claim:b 8:compute:b "
                              "9:computed:b 10:fill:b ");
}

static void without_a_stats_file_nothing_is_logged(void **state) {
  (void)state;
  assert_string_equal(log_of("off", "a", 0).text, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(events_are_read_in_their_order_with_their_numbers),
      cmocka_unit_test(what_calls_do_that_are_answered_at_once_is_not_written),
      cmocka_unit_test(an_event_is_read_with_all_that_it_was_told_with),
      cmocka_unit_test(what_an_event_does_not_have_is_read_as_such),
      cmocka_unit_test(long_texts_are_cut_and_long_keys_told_apart),
      cmocka_unit_test(what_was_written_over_is_seen_by_the_numbers),
      cmocka_unit_test(another_process_goes_on_with_the_numbers_and_leaves_the_last_events),
      cmocka_unit_test(a_reader_ends_before_an_event_that_is_being_written),
      cmocka_unit_test(a_row_with_parts_of_two_events_is_not_read),
      cmocka_unit_test(an_event_that_is_never_written_is_not_waited_for),
      cmocka_unit_test(a_place_in_which_another_thread_writes_is_left_to_it),
      cmocka_unit_test(readers_never_see_parts_of_two_events),
      cmocka_unit_test(foreign_bytes_are_bounded),
      cmocka_unit_test(numbers_that_no_event_has_end_the_reading),
      cmocka_unit_test(a_later_corral_goes_on_with_the_log_of_its_file),
      cmocka_unit_test(without_a_stats_file_nothing_is_logged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
