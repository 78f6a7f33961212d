/* test_seats.c: who takes a handle of a server, and for whom a queue grows instead. No threads; a
 * model counts the batches of many callers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "os/env.h"
#include "store/seats.h"

enum { SEATS = 64, YOUNG_MS = 3600000 };

static crl_seats all;
static crl_seat seats[SEATS];
static int64_t young; /* when all seats of a test were taken */

static void begin(int64_t handles, int grows) {
  memset(&all, 0, sizeof all);
  memset(seats, 0, sizeof seats);
  crl_seats_start(&all, handles, grows);
  young = crl_env_now_ms() + YOUNG_MS;
}

/* A seat that is too young to go by itself. */
static int take(int number) {
  seats[number] = (crl_seat){.count = 1, .began = young};
  return crl_seats_take(&all, &seats[number]);
}

static void take_each(int first, int last, int leads) {
  for (int i = first; i <= last; i++) assert_int_equal(take(i), leads);
}

/* The handles are numbered by their first users. */
static void *handle_of(int number) { return &seats[number]; }

/* A leader sends; returns how many it takes along. */
static size_t send(int number) {
  seats[number].handle = handle_of(number);
  return crl_seats_gather(&seats[number]) - 1;
}

static crl_seat *comes_back(int number) { return crl_seats_pass_on(&all, seats[number].handle); }

/* The batch of `number` comes back, and the head of the queue sends `along` others. */
static crl_seat *goes_on(int number, size_t along) {
  crl_seat *next = comes_back(number);
  assert_non_null(next);
  crl_seats_begin(next);
  assert_int_equal(crl_seats_gather(next), 1 + along);
  return next;
}

/* Two handles: one with a batch of seats 2 to 6, the other is idle. Batches have `of_late` callers,
 * times CRL_SEATS_RECENT. */
static crl_seat *batch_of_five(int grows, size_t of_late) {
  begin(2, grows);
  take_each(0, 1, 1);
  assert_int_equal(send(0) + send(1), 0);
  take_each(2, 6, 0);
  crl_seat *five = goes_on(0, 4);
  assert_null(comes_back(1));
  assert_int_equal(crl_seats_idle(&all), 1);
  all.recent = of_late;
  return five;
}

static crl_seat *one_batch_of_five(void) { return batch_of_five(1, 5 * CRL_SEATS_RECENT); }

/* ---- a handle for each --------------------------------------------------------------------- */

static void few_callers_take_a_handle_each(void **state) {
  (void)state;
  begin(4, 1);
  for (int turn = 0; turn < 100; turn++) {
    for (int i = 0; i < 4; i++) {
      assert_int_equal(take(i), 1);
      assert_int_equal(send(i), 0);
    }
    for (int i = 0; i < 4; i++) assert_null(comes_back(i));
  }
  assert_int_equal(crl_seats_idle(&all), 4);
}

static void where_batches_have_few_callers_a_further_one_goes_at_once(void **state) {
  (void)state;
  (void)batch_of_five(1, CRL_SEATS_MANY - 1);
  void *handle = crl_seats_take_idle(&all, 0);
  assert_non_null(handle);
  assert_null(crl_seats_pass_on(&all, handle));
  take_each(7, 7, 1);
}

static void a_store_whose_batches_take_longer_has_no_queue_that_grows(void **state) {
  (void)state;
  (void)batch_of_five(0, 5 * CRL_SEATS_RECENT);
  take_each(7, 7, 1);
}

static void callers_without_seats_take_a_handle_where_nobody_has_a_reason_to_wait(void **state) {
  (void)state;
  crl_seat *five = one_batch_of_five();
  assert_null(crl_seats_take_idle(&all, 0));
  void *handle = crl_seats_take_idle(&all, 1);
  assert_non_null(handle);
  assert_null(crl_seats_pass_on(&all, handle));
  assert_null(crl_seats_pass_on(&all, five->handle));
  /* nothing is under way */
  all.recent = 20 * CRL_SEATS_RECENT;
  int turns = 0;
  for (; all.recent >= CRL_SEATS_MANY; turns++) {
    handle = crl_seats_take_idle(&all, 0);
    assert_non_null(handle);
    assert_null(crl_seats_pass_on(&all, handle));
  }
  assert_in_range(turns, 2, 20);
}

/* ---- a queue that grows -------------------------------------------------------------------- */

static void where_batches_have_many_a_queue_grows_until_it_is_as_long(void **state) {
  (void)state;
  (void)one_batch_of_five();
  take_each(7, 10, 0);
  take_each(11, 11, 1);
  assert_int_equal(send(11), 4);
  /* two batches of five: the next one of five has no handle */
  take_each(12, 16, 0);
}

static void a_batch_that_comes_back_last_lets_the_queue_go(void **state) {
  (void)state;
  crl_seat *five = one_batch_of_five();
  take_each(7, 8, 0);
  crl_seat *next = crl_seats_pass_on(&all, five->handle);
  assert_ptr_equal(next, &seats[7]);
  crl_seats_begin(next);
  assert_int_equal(crl_seats_gather(next), 2);
}

static void beside_another_batch_one_that_comes_back_lets_the_queue_grow(void **state) {
  (void)state;
  crl_seat *five = one_batch_of_five();
  take_each(7, 10, 0);
  take_each(11, 11, 1);
  assert_int_equal(send(11), 4);
  take_each(12, 15, 0);
  assert_null(crl_seats_pass_on(&all, five->handle));
  assert_int_equal(crl_seats_idle(&all), 1);
  take_each(16, 16, 1);
  assert_int_equal(send(16), 4);
}

static void a_leader_that_is_about_to_send_takes_along_what_comes_meanwhile(void **state) {
  (void)state;
  begin(3, 1);
  take_each(0, 2, 1);
  assert_int_equal(send(0) + send(1) + send(2), 0);
  take_each(3, 4, 0);
  crl_seat *next = comes_back(0);
  assert_ptr_equal(next, &seats[3]);
  assert_null(comes_back(1));
  take_each(5, 5, 0);
  crl_seats_begin(next);
  assert_int_equal(crl_seats_gather(next), 3);
  assert_int_equal(all.called, 0);
}

static void a_seat_that_goes_alone_takes_an_idle_handle_at_once(void **state) {
  (void)state;
  crl_seat *five = one_batch_of_five();
  crl_seat alone = {.count = 1, .alone = 1, .began = crl_env_now_ms()}, other = alone;
  take_each(7, 7, 0);
  assert_int_equal(crl_seats_take(&all, &alone), 1);
  assert_int_equal(crl_seats_gather(&alone), 1);
  assert_int_equal(crl_seats_take(&all, &other), 0);
  /* five are under way, and one is queued: the other one doesn't wait for more */
  assert_ptr_equal(crl_seats_pass_on(&all, alone.handle), &other);
  assert_int_equal(all.called, 0);
  crl_seats_begin(&other);
  assert_int_equal(crl_seats_gather(&other), 1);
  assert_null(crl_seats_pass_on(&all, other.handle));
  assert_ptr_equal(crl_seats_pass_on(&all, five->handle), &seats[7]);
}

/* ---- not for long -------------------------------------------------------------------------- */

static void a_seat_whose_time_is_over_goes_with_those_that_are_queued(void **state) {
  (void)state;
  (void)one_batch_of_five();
  take_each(7, 9, 0);
  int64_t now = seats[8].go_at;
  assert_int_equal(crl_seats_go(&seats[8], now), 1);
  assert_int_equal(seats[8].state, CRL_SEAT_LEADS);
  crl_seats_begin(&seats[8]);
  assert_int_equal(crl_seats_gather(&seats[8]), 3);
  assert_int_equal(all.queued, 0);
  assert_int_equal(crl_seats_go(&seats[9], now), 0); /* it was taken along */
}

static void after_that_nobody_waits_while_a_handle_is_idle(void **state) {
  (void)state;
  (void)one_batch_of_five();
  take_each(7, 7, 0);
  assert_int_equal(crl_seats_go(&seats[7], seats[7].go_at), 1);
  crl_seats_begin(&seats[7]);
  assert_int_equal(crl_seats_gather(&seats[7]), 1);
  take_each(8, 8, 0);
  assert_int_equal(seats[8].go_at, 0);
  assert_ptr_equal(comes_back(7), &seats[8]);
  crl_seats_begin(&seats[8]);
  assert_int_equal(crl_seats_gather(&seats[8]), 1);
  assert_null(comes_back(8));
  take_each(9, 9, 1);
  assert_int_equal(send(9), 0);
  assert_null(comes_back(9));
  all.rests_until = 0;
  all.recent = 5 * CRL_SEATS_RECENT;
  take_each(10, 10, 0);
}

static void without_an_idle_handle_it_goes_with_the_next_one(void **state) {
  (void)state;
  begin(2, 1);
  take_each(0, 1, 1);
  assert_int_equal(send(0) + send(1), 0);
  take_each(2, 6, 0);
  (void)goes_on(0, 4);
  take_each(7, 7, 0);
  seats[7].go_at = 1; /* over */
  assert_int_equal(crl_seats_go(&seats[7], 1), 0);
  assert_int_equal(all.rests_until, 0);
  assert_ptr_equal(comes_back(1), &seats[7]);
}

static void one_that_leaves_the_queue_is_not_counted_any_more(void **state) {
  (void)state;
  (void)one_batch_of_five();
  take_each(7, 8, 0);
  assert_int_equal(crl_seats_leave(&seats[7]), 1);
  assert_int_equal(crl_seats_leave(&seats[7]), 0);
  assert_int_equal(all.queued, 1);
  take_each(9, 11, 0);
  take_each(12, 12, 1);
  assert_int_equal(send(12), 4);
}

/* ---- many callers -------------------------------------------------------------------------- */

/* Each caller asks again when it has its answer. Times in us: of a round trip, of an operation in
 * it, of a wake, of each further one by the same call, and between two calls. */
enum { TRIP = 34, OP = 1, WAKE = 20, WAKE_NEXT = 2, PAUSE = 5, CALLS = 20000 };

typedef enum due { ASKS, LEADS, ANSWERED, NOTHING } due;

static struct {
  due what;
  int at;
} next_of[SEATS];

static void set(const crl_seat *seat, due what, int at) {
  next_of[seat - seats].what = what;
  next_of[seat - seats].at = at;
}

static int earliest(int count) {
  int first = -1;
  for (int i = 0; i < count; i++)
    if (next_of[i].what != NOTHING && (first < 0 || next_of[i].at < next_of[first].at)) first = i;
  return first;
}

/* Seats of a batch wait for its leader. */
static void set_under_way(crl_seat *leader, int now) {
  if (leader->handle == NULL) leader->handle = leader;
  int count = (int)crl_seats_gather(leader);
  for (const crl_seat *s = leader->next; s != NULL; s = s->next) set(s, NOTHING, 0);
  set(leader, ANSWERED, now + TRIP + count * OP);
}

/* Returns how many calls it answered. */
static int answer(const crl_seat *leader, int now) {
  int count = 0;
  crl_seat *next = crl_seats_pass_on(&all, leader->handle);
  if (next != NULL) set(next, LEADS, now + WAKE);
  for (const crl_seat *s = leader; s != NULL; s = s->next, count++)
    set(s, ASKS, now + PAUSE + (count == 0 ? 0 : WAKE + count * WAKE_NEXT));
  return count;
}

/* Batches for each 1,000 calls of `count` callers. */
static int batches(int handles, int count, int grows) {
  int sent = 0, answers = 0;
  begin(handles, grows);
  for (int i = 0; i < count; i++) set(&seats[i], ASKS, i * WAKE_NEXT);
  while (answers < CALLS) {
    int i = earliest(count), now = next_of[i].at, leads = 1;
    assert_true(i >= 0);
    if (next_of[i].what == ANSWERED) {
      answers += answer(&seats[i], now);
      continue;
    }
    if (next_of[i].what == LEADS)
      crl_seats_begin(&seats[i]);
    else
      leads = take(i);
    set(&seats[i], NOTHING, 0);
    if (!leads) continue;
    set_under_way(&seats[i], now);
    sent++;
  }
  return (int)((int64_t)sent * 1000 / answers);
}

static void show(int handles, int callers, int before, int now) {
  print_message("           %d callers, %d handles: %d batches for 1,000 calls, %d else\n", callers,
                handles, now, before);
}

static void many_callers_send_fewer_batches(void **state) {
  (void)state;
  static const int some[][2] = {{2, 16}, {2, 21}, {2, 64}, {4, 21}, {4, 64}};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    int handles = some[i][0], callers = some[i][1], before = batches(handles, callers, 0),
        now = batches(handles, callers, 1);
    show(handles, callers, before, now);
    assert_true(now * 5 < before * 4);
  }
}

static void callers_of_whom_each_has_a_handle_send_as_many_as_before(void **state) {
  (void)state;
  for (int callers = 1; callers <= 4; callers++) {
    assert_int_equal(batches(4, callers, 0), 1000);
    assert_int_equal(batches(4, callers, 1), 1000);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(few_callers_take_a_handle_each),
      cmocka_unit_test(where_batches_have_few_callers_a_further_one_goes_at_once),
      cmocka_unit_test(a_store_whose_batches_take_longer_has_no_queue_that_grows),
      cmocka_unit_test(callers_without_seats_take_a_handle_where_nobody_has_a_reason_to_wait),
      cmocka_unit_test(where_batches_have_many_a_queue_grows_until_it_is_as_long),
      cmocka_unit_test(a_batch_that_comes_back_last_lets_the_queue_go),
      cmocka_unit_test(beside_another_batch_one_that_comes_back_lets_the_queue_grow),
      cmocka_unit_test(a_leader_that_is_about_to_send_takes_along_what_comes_meanwhile),
      cmocka_unit_test(a_seat_that_goes_alone_takes_an_idle_handle_at_once),
      cmocka_unit_test(a_seat_whose_time_is_over_goes_with_those_that_are_queued),
      cmocka_unit_test(after_that_nobody_waits_while_a_handle_is_idle),
      cmocka_unit_test(without_an_idle_handle_it_goes_with_the_next_one),
      cmocka_unit_test(one_that_leaves_the_queue_is_not_counted_any_more),
      cmocka_unit_test(many_callers_send_fewer_batches),
      cmocka_unit_test(callers_of_whom_each_has_a_handle_send_as_many_as_before),
  };
  return cmocka_run_group_tests_name("seats", tests, NULL, NULL);
}
