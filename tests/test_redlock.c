/* test_redlock.c: locks granted by the majority of five real Redis servers. */
#include <pthread.h>
#include <stdatomic.h>

#include "support/redlock_kit.h"

/* ---- all servers up ------------------------------------------------------------------------ */

static void five_servers_give_one_lock(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  assert_int_equal(c.info.locks_only, 1);
  corral_op op = does(&c, CORRAL_VERB_LOCK, "k", 1, LEASE);
  IS(op, CORRAL_OK);
  assert_in_range(op.lock_state.left_ms, LEASE - LEASE / 100 - 2 - SLACK, LEASE - LEASE / 100 - 2);
  uint64_t fence = op.lock_state.fence;
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  op = does(&c, CORRAL_VERB_LOCK, "k", 2, LEASE);
  IS(op, CORRAL_EBUSY);
  assert_in_range(op.lock_state.left_ms, LEASE - SLACK, LEASE);
  op = does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 2, LEASE);
  IS(op, CORRAL_ELOST);
  assert_in_range(op.lock_state.left_ms, 1, LEASE);
  op = op_of(CORRAL_VERB_LOCK_EXTEND, "k", 1, 2 * LEASE);
  op.lock_extend.fence = fence;
  performed(&c, &op, 1);
  IS(op, CORRAL_OK);
  assert_in_range(op.lock_state.left_ms, 2 * LEASE - 2 * LEASE / 100 - 2 - SLACK,
                  2 * LEASE - 2 * LEASE / 100 - 2);
  assert_true(op.lock_state.fence == fence);
  op = does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, 1000); /* must not shorten the hold */
  IS(op, CORRAL_OK);
  assert_in_range(op.lock_state.left_ms, LEASE, 2 * LEASE - 2 * LEASE / 100 - 2);
  unlocks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_freedom(i, "k");
  op = does(&c, CORRAL_VERB_UNLOCK, "k", 1, 0);
  IS(op, CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms, 0);
  assert_true(locks(&c, "k", 2) > fence);
  op = does(&c, CORRAL_VERB_UNLOCK, "k", 1, 0);
  IS(op, CORRAL_ELOST);
  assert_in_range(op.lock_state.left_ms, 1, LEASE);
  closed(&c);
}

static void the_holder_that_a_majority_agrees_on_is_shown(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 0, 0), CORRAL_EMISS);
  uint64_t fence = locks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1); /* none gets LOCK later */
  corral_op op = does(&c, CORRAL_VERB_LOCK_SHOW, "k", 0, 0);
  IS(op, CORRAL_OK);
  assert_int_equal(op.found.len, CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD);
  const char *hold = (const char *)op.found.record + CORRAL_LOCK_HEAD;
  assert_memory_equal(op.found.record, "crk1\1", 5);
  assert_memory_equal(hold, token(1), CORRAL_TOKEN);
  assert_memory_equal(hold + 48, "a note", 7);
  assert_in_range((int64_t)number_at(hold + 24, 8) - op.lock_state.now, LEASE - SLACK, LEASE);
  assert_in_range(op.lock_state.now - (int64_t)number_at(hold + 32, 8), 0, SLACK);
  assert_true(number_at(hold + 40, 8) <= fence);
  op.found.drop(op.found.owner);
  unlocks(&c, "k", 1);
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 0, 0), CORRAL_EMISS);
  /* A hold on two of five servers isn't a hold of the lock. */
  client minority = redlock(0, 2, "");
  for (size_t i = 0; i < 2; i++) awaits_freedom(i, "k"); /* three had unlocked by then */
  locks(&minority, "k", 7);
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 0, 0), CORRAL_EMISS);
  closed(&minority);
  closed(&c);
}

static void operations_of_one_batch_keep_their_order(void **state) {
  (void)state;
  client c = redlock(0, 3, "");
  corral_op ops[] = {
      op_of(CORRAL_VERB_LOCK, "a", 1, LEASE), op_of(CORRAL_VERB_LOCK, "b", 2, LEASE),
      op_of(CORRAL_VERB_LOCK, "a", 3, LEASE), op_of(CORRAL_VERB_UNLOCK, "a", 1, LEASE),
      op_of(CORRAL_VERB_LOCK, "a", 3, LEASE), op_of(CORRAL_VERB_GET, "a", 3, LEASE)};
  int expected[] = {CORRAL_OK, CORRAL_OK, CORRAL_EBUSY, CORRAL_OK, CORRAL_OK, CORRAL_EUNSUPPORTED};
  performed(&c, ops, 6);
  for (size_t i = 0; i < 6; i++) IS(ops[i], expected[i]);
  closed(&c);
}

static void many_operations_go_at_once(void **state) {
  (void)state;
  enum { MANY = 150 };
  static corral_op ops[MANY];
  char keys[MANY][16];
  client c = redlock(0, 5, "server_ms=5s");
  for (unsigned i = 0; i < MANY; i++) {
    snprintf(keys[i], sizeof keys[i], "many%u", i);
    ops[i] = op_of(CORRAL_VERB_LOCK, keys[i], i, LEASE);
  }
  performed(&c, ops, MANY);
  for (size_t i = 0; i < MANY; i++) IS(ops[i], CORRAL_OK);
  for (unsigned i = 0; i < MANY; i++) ops[i] = op_of(CORRAL_VERB_UNLOCK, keys[i], i, 0);
  performed(&c, ops, MANY);
  for (size_t i = 0; i < MANY; i++) IS(ops[i], CORRAL_OK);
  closed(&c);
  for (size_t i = 0; i < SERVERS; i++) assert_int_equal(holds_on(i, "many149"), 0);
}

static void what_redlock_has_not_is_told(void **state) {
  (void)state;
  client c = redlock(0, 3, "");
  corral_op op = op_of(CORRAL_VERB_LOCK, "k", 1, LEASE);
  op.flags = CORRAL_OP_SHARED;
  performed(&c, &op, 1);
  IS(op, CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(c.error.text, "exclusive locks only"));
  IS(does(&c, CORRAL_VERB_CLAIM, "k", 1, LEASE), CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(c.error.text, "locks only, no values"));
  assert_null(crl_plugin_redlock.watch);
  closed(&c);
}

static void a_wrong_uri_is_refused_with_what_is_accepted(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"redlock:", "accepted are 1 to 15 servers"},
      {"redlock://", "accepted are 1 to 15 servers"},
      {"redlock://a,,b", "accepted are 1 to 15 servers"},
      {"redlock://a,b,", "accepted are 1 to 15 servers"},
      {"redlock://a,b:99999", "accepted are 1 to 15 servers"},
      {"redlock://a,[::1", "accepted are 1 to 15 servers"},
      {"redlock://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p", "accepted are 1 to 15 servers"},
      {"redlock://a,b:6379,b", "named twice"},
      {"redlock://a,b,c/x", "only /DB may follow"},
      {"redlock://a,b,c?grant=some", "grant accepts majority"},
      {"redlock://a,b,c?server_ms=0", "accepted: 1 to 10000"},
      {"redlock://a,b,c?server_ms=11s", "accepted: 1 to 10000"},
      {"redlock://a,b,c?scripts=maybe", "scripts"},
      {"redlock://a,b,c?tls_ca=x", "accepted: server_ms grant db client_name scripts"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    client c;
    assert_int_equal(try_open(&c, rows[i][0]), CORRAL_EURI);
    if (strstr(c.error.text, rows[i][1]) == NULL) fail_msg("%s: %s", rows[i][0], c.error.text);
  }
}

static void user_password_and_db_are_those_of_each_server(void **state) {
  (void)state;
  char text[240];
  int ports[3];
  for (size_t i = 0; i < 3; i++) {
    ports[i] = redis_server_port(servers[i]);
    redis_server_ask(servers[i], "CONFIG SET requirepass s3cret");
    redis_server_ask(servers[i], "AUTH s3cret");
  }
  snprintf(text, sizeof text,
           "redlock://:s3cret@127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/3?server_ms=5s", ports[0],
           ports[1], ports[2]);
  client c = opened(text);
  locks(&c, "k", 1);
  closed(&c);
  snprintf(text, sizeof text,
           "redlock://:wrong@127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/3?server_ms=5s", ports[0],
           ports[1], ports[2]);
  c = opened(text);
  IS(does(&c, CORRAL_VERB_LOCK, "k", 2, LEASE), CORRAL_EAUTH);
  closed(&c);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(holds_on(i, "k"), -1);
    redis_server_ask(servers[i], "SELECT 3");
    assert_int_equal(holds_on(i, "k"), 1);
    redis_server_ask(servers[i], "SELECT 0");
    redis_server_ask(servers[i], "CONFIG SET requirepass %s", "");
  }
}

/* ---- holds --------------------------------------------------------------------------------- */

static void a_hold_of_which_nothing_is_left_is_not_granted(void **state) {
  (void)state;
  client c = redlock(0, 3, "server_ms=5s");
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, 2), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "nothing is left of a hold of 2 ms"));
  for (size_t i = 0; i < 3; i++) awaits_freedom(i, "k");
  closed(&c);
}

static void all_of_two_must_grant_where_it_is_asked_for(void **state) {
  (void)state;
  client both = redlock(0, 2, "grant=all&server_ms=5s"), left = redlock(0, 1, ""),
         right = redlock(1, 2, "");
  locks(&both, "k", 1);
  is_busy(&left, "k", 2);
  is_busy(&right, "k", 2);
  unlocks(&both, "k", 1);
  locks(&left, "k", 2);
  is_busy(&both, "k", 1);
  unlocks(&left, "k", 2);
  closed(&both); /* a LOCK that the other server was still to get is sent, or never will be */
  both = redlock(0, 2, "grant=all&server_ms=5s");
  awaits_freedom(1, "k");
  locks(&right, "k", 2);
  is_busy(&both, "k", 1);
  unlocks(&right, "k", 2);
  awaits_freedom(0, "k");
  locks(&both, "k", 1);
  unlocks(&both, "k", 1);
  kill_server(1);
  IS(does(&both, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EUNAVAILABLE);
  awaits_freedom(0, "k");
  closed(&both);
  closed(&left);
  closed(&right);
  client three = redlock(2, 5, "grant=all&server_ms=5s");
  kill_server(4);
  IS(does(&three, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EUNAVAILABLE);
  closed(&three);
}

static void what_others_left_at_the_key_is_told_by_a_majority_only(void **state) {
  (void)state;
  client c = redlock(0, 3, "");
  redis_server_ask(servers[0], "SET k foreign");
  locks(&c, "k", 1);
  unlocks(&c, "k", 1);
  awaits_freedom(2, "k");
  redis_server_ask(servers[1], "SET k foreign");
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EFOREIGN);
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 1, LEASE), CORRAL_EFOREIGN);
  closed(&c);
}

/* ---- contenders ---------------------------------------------------------------------------- */

enum { CONTENDERS = 8, ACQUISITIONS = 2000 };

static atomic_int holders, doubles, backwards, acquired, odd;
static uint64_t last_fence; /* guarded by the lock */

typedef struct contender {
  client *store;
  unsigned number;
  pthread_t thread;
} contender;

/* Without assertions, which would leave the thread by longjmp. */
static void *contends(void *arg) {
  contender *own = arg;
  void *handle;
  unsigned random = own->number * 2654435761u + 1;
  if (crl_plugin_redlock.connect(own->store->store, now_ms() + LIMIT, &handle, NULL) != CORRAL_OK)
    return NULL;
  while (atomic_load(&acquired) < ACQUISITIONS) {
    corral_op op = op_of(CORRAL_VERB_LOCK, "contended", own->number, LEASE);
    op.status = CORRAL_EINDOUBT;
    perform_ops(&crl_plugin_redlock, handle, &op, 1, now_ms() + LIMIT, NULL);
    if (op.status == CORRAL_OK) {
      if (atomic_fetch_add(&holders, 1) != 0) atomic_fetch_add(&doubles, 1);
      if (op.lock_state.fence <= last_fence) atomic_fetch_add(&backwards, 1);
      last_fence = op.lock_state.fence;
      atomic_fetch_sub(&holders, 1);
      op = op_of(CORRAL_VERB_UNLOCK, "contended", own->number, 0);
      perform_ops(&crl_plugin_redlock, handle, &op, 1, now_ms() + LIMIT, NULL);
      if (op.status == CORRAL_OK) atomic_fetch_add(&acquired, 1);
    }
    if (op.status != CORRAL_OK && op.status != CORRAL_EBUSY) atomic_fetch_add(&odd, 1);
    random = random * 1103515245u + 12345u;
    poll(NULL, 0, (int)(random >> 16) % 8);
  }
  crl_plugin_redlock.disconnect(handle);
  return NULL;
}

static void contenders_never_have_the_lock_together(void **state) {
  (void)state;
  client stores[2] = {redlock(0, 5, "server_ms=5s"), redlock(0, 5, "server_ms=5s")};
  contender all[CONTENDERS];
  int64_t before = now_ms();
  for (unsigned i = 0; i < CONTENDERS; i++) {
    all[i] = (contender){.store = &stores[i % 2], .number = i + 1};
    assert_int_equal(pthread_create(&all[i].thread, NULL, contends, &all[i]), 0);
  }
  for (unsigned i = 0; i < CONTENDERS; i++) pthread_join(all[i].thread, NULL);
  print_message("%d acquisitions in %lld ms\n", acquired, (long long)(now_ms() - before));
  assert_int_equal(doubles, 0);
  assert_int_equal(backwards, 0);
  assert_int_equal(odd, 0);
  assert_true(acquired >= ACQUISITIONS);
  closed(&stores[0]);
  closed(&stores[1]);
  for (size_t i = 0; i < SERVERS; i++) awaits_freedom(i, "contended");
}

#define TEST(name) cmocka_unit_test_teardown(name, repair)

#define TEST(name) cmocka_unit_test_teardown(name, repair)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(five_servers_give_one_lock),
      TEST(the_holder_that_a_majority_agrees_on_is_shown),
      TEST(operations_of_one_batch_keep_their_order),
      TEST(many_operations_go_at_once),
      TEST(what_redlock_has_not_is_told),
      TEST(a_wrong_uri_is_refused_with_what_is_accepted),
      TEST(user_password_and_db_are_those_of_each_server),
      TEST(a_hold_of_which_nothing_is_left_is_not_granted),
      TEST(all_of_two_must_grant_where_it_is_asked_for),
      TEST(what_others_left_at_the_key_is_told_by_a_majority_only),
      TEST(contenders_never_have_the_lock_together),
  };
  return cmocka_run_group_tests(tests, start_servers, stop_servers);
}
