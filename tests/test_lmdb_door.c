/* test_lmdb_door.c: who may be inside of an lmdb: store's files at once, without a file. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lmdb/lmdb.h"

enum { READERS = 4, CHANGERS = 2, READS = 20000, CHANGES = 300 };

/* Changed by one who is alone, in two steps. */
static struct {
  crl_lmdb_door door;
  int first, second;
  _Atomic long torn, left;
} room;

static void *reads(void *arg) {
  for (int i = 0; i < READS; i++) {
    crl_lmdb_door_enter(&room.door);
    if (room.first != room.second) room.torn++;
    crl_lmdb_door_leave(&room.door);
  }
  return arg;
}

static void *changes(void *arg) {
  for (int i = 0; i < CHANGES; i++) {
    crl_lmdb_door_close(&room.door);
    room.first++;
    sched_yield();
    room.second++;
    crl_lmdb_door_open(&room.door);
  }
  return arg;
}

static void those_inside_never_see_a_change(void **state) {
  (void)state;
  pthread_t threads[READERS + CHANGERS];
  assert_int_equal(crl_lmdb_door_init(&room.door), 0);
  for (int i = 0; i < READERS + CHANGERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, i < READERS ? reads : changes, NULL), 0);
  for (int i = 0; i < READERS + CHANGERS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(room.torn, 0);
  assert_int_equal(room.first, CHANGERS * CHANGES);
  assert_int_equal(room.second, CHANGERS * CHANGES);
  assert_int_equal(room.door.inside, 0);
  crl_lmdb_door_free(&room.door);
}

static void *closes(void *arg) {
  crl_lmdb_door_close(&room.door);
  room.left += 10; /* with one who has left before: 11 */
  crl_lmdb_door_open(&room.door);
  return arg;
}

static void *enters(void *arg) {
  crl_lmdb_door_enter(&room.door);
  *(long *)arg = room.left;
  crl_lmdb_door_leave(&room.door);
  return arg;
}

static void a_closer_waits_for_those_inside_and_before_those_who_come(void **state) {
  (void)state;
  pthread_t closer, late;
  long seen = 0;
  assert_int_equal(crl_lmdb_door_init(&room.door), 0);
  crl_lmdb_door_enter(&room.door);
  assert_int_equal(pthread_create(&closer, NULL, closes, NULL), 0);
  while (atomic_load(&room.door.inside) < CRL_LMDB_CLOSED) sched_yield();
  assert_int_equal(pthread_create(&late, NULL, enters, &seen), 0);
  room.left++;
  crl_lmdb_door_leave(&room.door);
  pthread_join(closer, NULL);
  pthread_join(late, NULL);
  assert_int_equal(seen, 11);
  crl_lmdb_door_free(&room.door);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(those_inside_never_see_a_change),
      cmocka_unit_test(a_closer_waits_for_those_inside_and_before_those_who_come),
  };
  return cmocka_run_group_tests_name("lmdb_door", tests, NULL, NULL);
}
