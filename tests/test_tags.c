/* test_tags.c: after an invalidation by tag, or of the whole namespace, has returned, no value
 * computed from older data may be served: several processes read and compute while one invalidates
 * continuously. On Redis, memcached with two servers, and lmdb. Each process has one thread,
 * because callers of one process share a flight, which may have looked before the latest of them
 * came. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/herd_lab.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum { PROCESSES = 4, THREADS = 1, KEYS = 3, TURNS = 300, COLD_TURNS = 40, COLD_ROUNDS = 4 };
enum { TRUTH, TOLD, STOP, READS, COMPUTES, FROM_STORE }; /* lab marks */

static redis_server *server;
static memcached_server *pair[2];

typedef struct plan_of {
  int all;  /* invalidates the namespace instead of a tag */
  int many; /* also reads by corral_get_many */
  int cold; /* begins without values and marks */
} plan_of;

/* Fills the current TRUTH; the compute takes some time, during which TRUTH may change. */
static void compute_one(lab *l, corral_fill *fill, const plan_of *plan) {
  int truth = atomic_load(&l->marks[TRUTH]);
  size_t len;
  const char *key = corral_fill_key(fill, &len);
  lab_add(&l->marks[COMPUTES], 1);
  if (truth % 3 == 0) lab_sleep_ms(1);
  /* keys other than "a" have only the tag "t"; "a" has a second one */
  if (!plan->all && (corral_fill_tag(fill, "t", 1) != CORRAL_OK ||
                     (key[0] == 'a' && corral_fill_tag(fill, "other", 5) != CORRAL_OK)))
    lab_wrong(l, "corral_fill_tag failed");
  if (corral_fill_bytes(fill, &truth, sizeof truth) != CORRAL_OK)
    lab_wrong(l, "corral_fill_bytes failed");
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  lab_seat *seat = arg;
  (void)key;
  (void)key_len;
  compute_one(seat->lab, fill, seat->arg);
  return CORRAL_OK;
}

static int compute_many(corral_fill *const *fills, size_t count, void *arg) {
  lab_seat *seat = arg;
  for (size_t i = 0; i < count; i++) compute_one(seat->lab, fills[i], seat->arg);
  return CORRAL_OK;
}

static void check(lab_seat *seat, int told, int status, const corral_value *value) {
  int number = -1;
  if (status != CORRAL_OK) {
    lab_wrong(seat->lab, "%s", corral_status_name(status));
    return;
  }
  memcpy(&number, corral_value_data(value), sizeof number);
  if (number < told)
    lab_wrong(seat->lab, "a value of turn %d was served (%s) after turn %d had been told", number,
              corral_how_name(corral_value_how(value)), told);
  lab_add(&seat->lab->marks[READS], 1);
  if (corral_value_how(value) == CORRAL_FRESH) lab_add(&seat->lab->marks[FROM_STORE], 1);
}

static const char *const names[KEYS] = {"a", "b", "c"};

static void read_one(lab_seat *seat, int turn) {
  corral_value *value = NULL;
  int told = atomic_load(&seat->lab->marks[TOLD]);
  int status = corral_get_or_compute(
      seat->corral, names[turn % KEYS], 1,
      CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 20000, .near_ms = CORRAL_OFF)), compute, seat,
      &value);
  check(seat, told, status, value);
  corral_value_unref(value);
}

static void read_all(lab_seat *seat) {
  corral_item items[KEYS];
  memset(items, 0, sizeof items);
  for (int i = 0; i < KEYS; i++) items[i] = (corral_item){.key = names[i], .key_len = 1};
  int told = atomic_load(&seat->lab->marks[TOLD]);
  int status =
      corral_get_many(seat->corral, items, KEYS,
                      CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 20000, .near_ms = CORRAL_OFF)),
                      compute_many, seat);
  for (int i = 0; i < KEYS; i++) {
    check(seat, told, status == CORRAL_OK ? items[i].status : status, items[i].value);
    corral_value_unref(items[i].value);
  }
}

static void read_on(lab_seat *seat) {
  const plan_of *plan = seat->arg;
  for (int turn = 0; atomic_load(&seat->lab->marks[STOP]) == 0; turn++) {
    if (plan->many && turn % 2 == 0)
      read_all(seat);
    else
      read_one(seat, turn + seat->thread);
  }
}

/* Invalidates in a loop; every fourth turn waits for reads, so that values get stored. */
static void invalidate_on(lab_seat *seat) {
  lab *l = seat->lab;
  const plan_of *plan = seat->arg;
  corral_error error;
  if (!plan->cold) lab_await(l, &l->marks[READS], 60);
  for (int turn = 1; turn <= (plan->cold ? COLD_TURNS : TURNS); turn++) {
    int reads = atomic_load(&l->marks[READS]);
    atomic_store(&l->marks[TRUTH], turn);
    int status = plan->all ? corral_invalidate_all(seat->corral, &error)
                           : corral_invalidate_tag(seat->corral, "t", 1, &error);
    if (status != CORRAL_OK)
      lab_wrong(l, "turn %d: %s: %s", turn, corral_status_name(status), error.text);
    else
      atomic_store(&l->marks[TOLD], turn);
    if (turn % 4 == 0) lab_await(l, &l->marks[READS], reads + 40);
  }
  lab_add(&l->marks[STOP], 1);
}

static void take_part(lab_seat *seat) {
  if (seat->process == 0 && seat->thread == 0)
    invalidate_on(seat);
  else
    read_on(seat);
}

static void nothing_old_is_served(lab *l, const char *uri, const plan_of *plan) {
  int64_t before = lab_now_us();
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = PROCESSES,
                           .threads = THREADS,
                           .body = take_part,
                           .arg = (void *)(uintptr_t)plan,
                           .options = {.generation = plan->all ? 1 : 0, .op_ms = 20000}});
  lab_end(l);
  if (!plan->cold)
    print_message("           %d invalidations, %d reads, %d of them from the store at once, %d "
                  "computes: %lld ms\n",
                  TURNS, (int)l->marks[READS], (int)l->marks[FROM_STORE], (int)l->marks[COMPUTES],
                  (long long)(lab_now_us() - before) / 1000);
  assert_true(plan->cold || l->marks[FROM_STORE] > 0);
  lab_free(l);
}

static const char *redis_uri(lab *l) {
  (void)l;
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  return redis_server_unix_uri(server);
}

static const char *memcached_uri(lab *l) {
  (void)l;
  const char *uri = memcached_server_pair_uri(pair);
  if (uri == NULL) skip();
  return uri;
}

/* One warm round, and several cold ones that begin with the first value. */
static void check_on(const char *(*uri)(lab *l), int all, int many) {
  const plan_of warm = {.all = all, .many = many}, cold = {.all = all, .many = many, .cold = 1};
  for (int round = 0; round <= COLD_ROUNDS; round++) {
    lab *l = lab_new();
    nothing_old_is_served(l, uri(l), round == 0 ? &warm : &cold);
  }
}

static const char *lmdb_uri(lab *l) { return lab_lmdb(l, "store"); }

static void by_tag_on_redis(void **state) {
  (void)state;
  check_on(redis_uri, 0, 0);
}

static void of_all_on_redis(void **state) {
  (void)state;
  check_on(redis_uri, 1, 0);
}

static void by_tag_for_batches_on_redis(void **state) {
  (void)state;
  check_on(redis_uri, 0, 1);
}

static void by_tag_on_memcached(void **state) {
  (void)state;
  check_on(memcached_uri, 0, 0);
}

static void of_all_on_memcached(void **state) {
  (void)state;
  check_on(memcached_uri, 1, 0);
}

static void by_tag_on_lmdb(void **state) {
  (void)state;
  check_on(lmdb_uri, 0, 0);
}

static void of_all_on_lmdb(void **state) {
  (void)state;
  check_on(lmdb_uri, 1, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_tag_on_redis),
      cmocka_unit_test(of_all_on_redis),
      cmocka_unit_test(by_tag_for_batches_on_redis),
      cmocka_unit_test(by_tag_on_memcached),
      cmocka_unit_test(of_all_on_memcached),
      cmocka_unit_test(by_tag_on_lmdb),
      cmocka_unit_test(of_all_on_lmdb),
  };
  redis_server_start(&server, NULL);
  for (int i = 0; i < 2; i++) memcached_server_start(&pair[i], NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  redis_server_stop(server);
  for (int i = 0; i < 2; i++) memcached_server_stop(pair[i]);
  return failed;
}
