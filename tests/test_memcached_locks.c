/* test_memcached_locks.c: users' locks on a real memcached, through the plugin's table: cases that
 * corral-conformance can't test. */
#include "support/hold_kit.h"

#include "support/memcached_server.h"

enum { SHARED = CORRAL_OP_SHARED, HOUR = 3600000 };

static memcached_server *server;
static char uri[256];

static int stop(void **state) {
  (void)state;
  memcached_server_stop(server);
  return 0;
}

static kit memcached_open(const char *params) {
  if (server == NULL && !memcached_server_start(&server, NULL)) skip();
  memcached_server_ask(server, "flush_all");
  snprintf(uri, sizeof uri, "%s%s", memcached_server_uri(server), params);
  return opened(uri);
}

static long long ttl_s(const char *key) {
  const char *text = memcached_server_ask(server, "mg %s t", key);
  return strncmp(text, "HD t", 4) == 0 ? strtoll(text + 4, NULL, 10) : -1;
}

static int64_t took_s(const kit *k, int64_t begun) { return (k->host->now_ms() - begun) / 1000; }

static void the_server_keeps_a_lock_beyond_its_last_hold(void **state) {
  (void)state;
  kit k = memcached_open("");
  corral_op op = take_op("k", 1, 0);
  op.lock.hold_ms = HOUR;
  int64_t begun = k.host->now_ms();
  assert_int_equal(run(&k, &op), CORRAL_OK);
  long long left = ttl_s("k");
  assert_in_range(left, HOUR / 1000 + 60 - 2 - took_s(&k, begun), HOUR / 1000 + 60 + 3);
  begun = k.host->now_ms();
  assert_int_equal(unlocks(&k, "k", 1), CORRAL_OK);
  left = ttl_s("k");
  assert_in_range(left, 60 - 2 - took_s(&k, begun), 60 + 3);
  closed(&k);
}

static void what_others_left_at_a_locks_key_is_foreign_and_left_alone(void **state) {
  (void)state;
  kit k = memcached_open("");
  memcached_server_ask(server, "set k 0 0 5\r\nhello");
  for (int verb_ = CORRAL_VERB_LOCK; verb_ <= CORRAL_VERB_LOCK_SHOW; verb_++) {
    corral_op op = op_of((corral_verb)verb_, "k", 1);
    assert_int_equal(run(&k, &op), CORRAL_EFOREIGN);
    assert_int_equal(op.lock_state.left_ms, -1);
    assert_null(op.found.record);
  }
  assert_non_null(strstr(memcached_server_ask(server, "get k"), "hello"));
  closed(&k);
}

static void a_hold_that_the_server_lost_is_lost(void **state) {
  (void)state;
  kit k = memcached_open("");
  uint64_t first = fence_of(&k, "k", 1);
  memcached_server_ask(server, "delete k");
  assert_int_equal(verb(&k, CORRAL_VERB_LOCK_EXTEND, "k", 1), CORRAL_ELOST);
  assert_true(fence_of(&k, "k", 2) >= first);
  assert_int_equal(unlocks(&k, "k", 1), CORRAL_ELOST);
  closed(&k);
}

static void a_lock_that_is_larger_than_an_item_may_be_takes_no_more_holds(void **state) {
  (void)state;
  kit k = memcached_open("?max_item=2k");
  corral_error error = {0};
  unsigned held = 0;
  corral_op op = take_op("k", 1, SHARED);
  for (; held < 100 && run(&k, &op) == CORRAL_OK; held++) {
    op = take_op("k", held + 2, SHARED);
    op.error = &error;
  }
  assert_in_range(held, 5, 20);
  assert_int_equal(op.status, CORRAL_EREFUSED);
  assert_non_null(strstr(error.text, "max_item"));
  assert_int_equal(unlocks(&k, "k", 1), CORRAL_OK);
  assert_int_equal(takes(&k, "k", 99, SHARED), CORRAL_OK);
  closed(&k);
}

typedef struct crowd {
  pthread_t thread;
  unsigned holder;
  int status;
} crowd;

static void *read_it(void *arg) {
  crowd *c = arg;
  kit k = opened(uri);
  c->status = takes(&k, "crowd", c->holder, SHARED);
  closed(&k);
  return NULL;
}

/* Each write makes concurrent ones fail; every call must still return its own true result. */
static void readers_that_come_at_once_are_all_let_in(void **state) {
  (void)state;
  enum { READERS = 24 };
  kit k = memcached_open("");
  crowd all[READERS];
  for (unsigned i = 0; i < READERS; i++) {
    all[i] = (crowd){.holder = i + 1};
    assert_int_equal(pthread_create(&all[i].thread, NULL, read_it, &all[i]), 0);
  }
  for (unsigned i = 0; i < READERS; i++) pthread_join(all[i].thread, NULL);
  for (unsigned i = 0; i < READERS; i++) assert_int_equal(all[i].status, CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_LOCK_SHOW, "crowd", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(op.found.len, CORRAL_LOCK_HEAD + READERS * CORRAL_LOCK_HOLD);
  done(&op);
  closed(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_server_keeps_a_lock_beyond_its_last_hold),
      cmocka_unit_test(what_others_left_at_a_locks_key_is_foreign_and_left_alone),
      cmocka_unit_test(a_hold_that_the_server_lost_is_lost),
      cmocka_unit_test(a_lock_that_is_larger_than_an_item_may_be_takes_no_more_holds),
      cmocka_unit_test(readers_that_come_at_once_are_all_let_in),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
