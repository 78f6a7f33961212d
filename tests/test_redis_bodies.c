/* test_redis_bodies.c: large records on a real Redis: read in pieces, replaced during the read,
 * stalled, trickled, stored slowly. */
#include <pthread.h>
#include <stdatomic.h>

#include "support/body_proxy.h"
#include "support/redis_kit.h"

enum { LARGE = 4 * MIB, KEYS = 5, OP_MS = 4000, WAIT_MS = 60000, LEASE_MS = 5000 };

/* ---- plugin -------------------------------------------------------------------------------- */

/* A record with a different byte pattern at each place, and a stamp of its own. */
static uint8_t *patterned(size_t size, unsigned seed) {
  uint8_t *record = record_of(size, (uint8_t)(seed + 1));
  for (size_t i = 0; i < size; i++)
    record[CORRAL_HEAD + i] = (uint8_t)((i * 2654435761u >> 7) + i / MIB + seed);
  return record;
}

static void store(client *c, const char *key, const uint8_t *record, size_t size) {
  assert_int_equal(does(c, CORRAL_VERB_INVALIDATE, key, 1), CORRAL_OK);
  assert_int_equal(does(c, CORRAL_VERB_CLAIM, key, 1), CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_SETTLE, key, 1);
  op.settle.record = record;
  op.settle.record_len = CORRAL_HEAD + size;
  assert_int_equal(done(c, &op), CORRAL_OK);
}

/* Compares all but the head, which the store has changed. */
static void assert_found(client *c, corral_op *op, const uint8_t *record, size_t size) {
  assert_int_equal(perform(c, op, 1), CORRAL_OK);
  assert_int_equal(op->status, CORRAL_OK);
  assert_int_equal(op->found.len, CORRAL_HEAD + size);
  assert_memory_equal(op->found.record + CORRAL_HEAD, record + CORRAL_HEAD, size);
  assert_in_range(op->state.life_ms, HOUR - LIMIT, HOUR);
  dropped(op);
}

static void records_around_the_size_of_a_piece_come_back_whole(void **state) {
  (void)state;
  static const size_t sizes[] = {MIB - 1, MIB,         MIB + 1,        2 * MIB - 1,
                                 2 * MIB, 2 * MIB + 1, 7 * MIB + 12345};
  client c = opened(redis_server_uri(server));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t size = sizes[i] - CORRAL_HEAD;
    uint8_t *record = patterned(size, (unsigned)i);
    corral_op get = op_of(CORRAL_VERB_GET, "k", 0);
    store(&c, "k", record, size);
    assert_found(&c, &get, record, size);
    free(record);
  }
  closed(&c);
}

static void a_large_record_may_be_left_alone(void **state) {
  (void)state;
  client c = opened(redis_server_uri(server));
  uint8_t *record = patterned(LARGE, 0);
  store(&c, "large", record, LARGE);
  store(&c, "small", record, 100);
  corral_op ops[] = {op_of(CORRAL_VERB_GET, "large", 0), op_of(CORRAL_VERB_GET, "small", 0),
                     op_of(CORRAL_VERB_GET, "none", 0)};
  for (int i = 0; i < 3; i++) ops[i].flags = CORRAL_OP_LESS;
  assert_int_equal(perform(&c, ops, 3), CORRAL_OK);
  assert_int_equal(ops[0].status, CORRAL_EINDOUBT);
  assert_int_equal(ops[0].flags, CORRAL_OP_LESS | CORRAL_OP_LARGE);
  assert_null(ops[0].found.record);
  assert_int_equal(ops[1].status, CORRAL_OK);
  assert_int_equal(ops[1].flags, CORRAL_OP_LESS);
  assert_int_equal(ops[2].status, CORRAL_EMISS);
  dropped(&ops[1]);
  free(record);
  closed(&c);
}

static void replace(void *arg) { redis_server_ask(server, "RENAME %s k", (const char *)arg); }
static void drop(void *arg) { redis_server_ask(server, "DEL %s", (const char *)arg); }

/* A client behind a proxy that calls `then` once 2 MiB of replies have passed. */
static client behind(body_proxy **proxy, void (*then)(void *arg), const char *arg) {
  char uri[64];
  *proxy = body_proxy_start(redis_server_port(server), BODY_TELLS, 2 * MIB + 500, then,
                            (void *)(uintptr_t)arg);
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", body_proxy_port(*proxy));
  return opened(uri);
}

static void a_record_that_is_replaced_while_it_is_read_is_read_anew(void **state) {
  (void)state;
  body_proxy *proxy;
  client c = opened(redis_server_uri(server)), slow = behind(&proxy, replace, "next");
  uint8_t *old = patterned(LARGE, 1), *next = patterned(LARGE + 5, 2);
  corral_op get = op_of(CORRAL_VERB_GET, "k", 0);
  store(&c, "k", old, LARGE);
  store(&c, "next", next, LARGE + 5);
  assert_found(&slow, &get, next, LARGE + 5);
  assert_int_equal(body_proxy_strikes(proxy), 1);
  free(old);
  free(next);
  closed(&slow);
  closed(&c);
  body_proxy_stop(proxy);
}

static void a_record_that_goes_while_it_is_read_is_a_miss(void **state) {
  (void)state;
  body_proxy *proxy;
  client c = opened(redis_server_uri(server)), slow = behind(&proxy, drop, "k");
  uint8_t *record = patterned(LARGE, 1);
  store(&c, "k", record, LARGE);
  assert_int_equal(looks(&slow, "k").status, CORRAL_EMISS);
  assert_int_equal(body_proxy_strikes(proxy), 1);
  free(record);
  closed(&slow);
  closed(&c);
  body_proxy_stop(proxy);
}

static void the_lease_behind_a_large_body_is_found_with_it(void **state) {
  (void)state;
  client c = opened(redis_server_uri(server));
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(fills(&c, "k", 1, LARGE), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_OK);
  sight s = looks(&c, "k");
  assert_int_equal(s.header.state, CORRAL_LEASED);
  assert_memory_equal(s.header.token, token(2), CORRAL_TOKEN);
  assert_int_equal(s.size, LARGE);
  assert_in_range(s.until_ms, HOUR - LIMIT, HOUR);
  assert_in_range(s.life_ms, HOUR - LIMIT, HOUR);
  closed(&c);
}

/* Sets the flag EXPIRED: the flags are byte 5 of the head. */
static void expire(void *arg) { redis_server_ask(server, "SETRANGE %s 5 \x01", (const char *)arg); }

static void a_record_that_expires_while_it_is_read_is_found_expired(void **state) {
  (void)state;
  body_proxy *proxy;
  client c = opened(redis_server_uri(server)), slow = behind(&proxy, expire, "k");
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(fills(&c, "k", 1, LARGE), CORRAL_OK);
  sight s = looks(&slow, "k");
  assert_int_equal(s.status, CORRAL_OK);
  assert_int_equal(s.header.flags, CORRAL_FLAG_EXPIRED);
  assert_int_equal(s.size, LARGE);
  assert_int_equal(body_proxy_strikes(proxy), 1);
  closed(&slow);
  closed(&c);
  body_proxy_stop(proxy);
}

/* ---- library ------------------------------------------------------------------------------- */

static atomic_int computes;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key, (void)key_len;
  size_t size = *(const size_t *)arg;
  atomic_fetch_add(&computes, 1);
  void *room = corral_fill_reserve(fill, size);
  if (room == NULL) return CORRAL_ENOMEM;
  memset(room, 'v', size);
  return CORRAL_OK;
}

/* A corral whose breaker opens at the first failure that counts. */
static corral *corral_within(int port, int64_t op_ms) {
  char uri[64];
  corral *c = NULL;
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", port);
  int status = corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = op_ms, .breaker_failures = 1,
                                          .breaker_rest_ms = WAIT_MS, .host_lock = CORRAL_OFF),
                           &c, NULL);
  assert_int_equal(status, CORRAL_OK);
  return c;
}

static corral *corral_at(int port) { return corral_within(port, OP_MS); }

static corral_how ask(corral *c, const char *key, size_t size) {
  corral_value *value = NULL;
  corral_error error = {0};
  int status = corral_get_or_compute(
      c, key, strlen(key),
      CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = WAIT_MS, .ttl_ms = HOUR, .lease_ms = LEASE_MS,
                                          .lease_min_ms = LEASE_MS),
                  .error = &error),
      compute, &size, &value);
  if (status != CORRAL_OK) fail_msg("%s: %s", key, error.text);
  corral_how how = corral_value_how(value);
  assert_int_equal(corral_value_size(value), size);
  corral_value_unref(value);
  return how;
}

/* Gets a large value and small ones through a proxy that strikes in the middle of the large one. */
static void check_struck(body_way way) {
  char key[16];
  body_proxy *proxy = body_proxy_start(redis_server_port(server), way, 2 * MIB, NULL, NULL);
  corral *direct = corral_at(redis_server_port(server)),
         *struck = corral_at(body_proxy_port(proxy));
  ask(direct, "large", LARGE);
  for (int i = 0; i < KEYS; i++) {
    snprintf(key, sizeof key, "k%d", i);
    ask(direct, key, 10);
  }
  atomic_store(&computes, 0);
  assert_int_equal(ask(struck, "large", LARGE), CORRAL_COMPUTED);
  assert_int_equal(atomic_load(&computes), 1);
  assert_int_equal(corral_counter(struck, CORRAL_EVENT_DEGRADED), 1);
  for (int i = 0; i < KEYS; i++) {
    snprintf(key, sizeof key, "k%d", i);
    assert_int_equal(ask(struck, key, 10), CORRAL_FRESH);
  }
  assert_int_equal(corral_counter(struck, CORRAL_EVENT_STORE_DOWN), 0);
  assert_int_equal(corral_counter(struck, CORRAL_EVENT_DEGRADED), 1);
  assert_true(body_proxy_strikes(proxy) > 0);
  corral_close(struck);
  corral_close(direct);
  body_proxy_stop(proxy);
}

static void a_server_that_stalls_in_a_body_costs_that_key_alone(void **state) {
  (void)state;
  check_struck(BODY_STALLS);
}

static void a_server_that_trickles_a_body_costs_that_key_alone(void **state) {
  (void)state;
  check_struck(BODY_TRICKLES);
}

static void *lead(void *arg) {
  ask(arg, "slow", 6 * LARGE);
  return NULL;
}

/* Storing takes 6 s, which is more than a lease; callers wait for it meanwhile. */
static void a_lease_outlasts_the_storing_of_its_value(void **state) {
  (void)state;
  pthread_t leader;
  body_proxy *proxy = body_proxy_start(redis_server_port(server), BODY_GOES_SLOWLY, 0, NULL, NULL);
  corral *slow = corral_within(body_proxy_port(proxy), WAIT_MS),
         *direct = corral_at(redis_server_port(server));
  atomic_store(&computes, 0);
  assert_int_equal(pthread_create(&leader, NULL, lead, slow), 0);
  while (corral_counter(slow, CORRAL_EVENT_CLAIM) == 0) sched_yield();
  assert_int_equal(ask(direct, "slow", 6 * LARGE), CORRAL_JOINED);
  pthread_join(leader, NULL);
  assert_int_equal(atomic_load(&computes), 1);
  assert_true(corral_counter(slow, CORRAL_EVENT_EXTEND) > 0);
  assert_int_equal(corral_counter(slow, CORRAL_EVENT_LEASE_LOST), 0);
  corral_close(direct);
  corral_close(slow);
  body_proxy_stop(proxy);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(records_around_the_size_of_a_piece_come_back_whole, start),
      cmocka_unit_test_setup(a_large_record_may_be_left_alone, start),
      cmocka_unit_test_setup(a_record_that_is_replaced_while_it_is_read_is_read_anew, start),
      cmocka_unit_test_setup(a_record_that_goes_while_it_is_read_is_a_miss, start),
      cmocka_unit_test_setup(the_lease_behind_a_large_body_is_found_with_it, start),
      cmocka_unit_test_setup(a_record_that_expires_while_it_is_read_is_found_expired, start),
      cmocka_unit_test_setup(a_server_that_stalls_in_a_body_costs_that_key_alone, start),
      cmocka_unit_test_setup(a_server_that_trickles_a_body_costs_that_key_alone, start),
      cmocka_unit_test_setup(a_lease_outlasts_the_storing_of_its_value, start),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
