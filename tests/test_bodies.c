/* test_bodies.c: the time limit of a batch, on a store whose bodies move, stall and trickle. The
 * tests require batches to end or to go on, and never a duration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "os/env.h"
#include "store/pace.h"
#include "store/pool.h"
#include "base/status.h"
#include "support/events_kit.h"

enum { OP_MS = 100, FAR = 600000, STEP = 64 << 10 };

/* Behaviours of the store while a body is sent. */
typedef enum way { IN_TIME, MOVES_LONG, MOVES_ON, LINGERS, STALLS, TRICKLES, SILENT } way;

typedef struct slow {
  way way;
  const corral_host *host;
  int performs;
} slow;

static slow the_store;
static crl_events events;

static int slow_open(const corral_host *host, const corral_uri *uri, void **ret,
                     corral_store_info *info, corral_error *error) {
  (void)host, (void)uri, (void)ret, (void)info, (void)error;
  return CORRAL_OK;
}

static void slow_close(void *store) { (void)store; }

static int slow_connect(void *store, int64_t deadline, void **ret, corral_error *error) {
  (void)deadline, (void)error;
  *ret = store;
  return CORRAL_OK;
}

static void slow_disconnect(void *handle) { (void)handle; }

/* Reports `bytes` moved at once, then every ms. Returns 1 when `until` comes; 0 when the batch's
 * limit comes first. */
static int move_until(int64_t until, size_t bytes, int64_t deadline) {
  if (bytes > 0) crl_pace_moved(bytes, deadline);
  for (int64_t now; (now = crl_env_now_ms()) < until;) {
    if (crl_pace_moved(0, deadline) <= now) return 0;
    crl_env_sleep_until(now + 1);
    if (bytes > 0) crl_pace_moved(bytes, deadline);
  }
  return 1;
}

/* The plugin's own time after bytes have moved doesn't count as the server's silence. */
static int linger_until(int64_t until, int64_t deadline) {
  crl_pace_moved(STEP, deadline);
  crl_env_sleep_until(until);
  return crl_pace_moved(0, deadline) > crl_env_now_ms();
}

static int behave(way how, int64_t deadline) {
  int64_t now = crl_env_now_ms();
  switch (how) {
    case IN_TIME: return 1;
    case MOVES_LONG: return move_until(deadline + OP_MS, STEP, deadline);
    case MOVES_ON: return move_until(INT64_MAX, STEP, deadline);
    case LINGERS: return linger_until(deadline + OP_MS, deadline);
    case STALLS:
      return move_until(now + OP_MS / 10, STEP, deadline) && move_until(INT64_MAX, 0, deadline);
    case TRICKLES: return move_until(INT64_MAX, 1, deadline);
    case SILENT: return move_until(INT64_MAX, 0, deadline);
  }
  return 0;
}

static int slow_perform(void *handle, const corral_batch *batch, int64_t deadline,
                        corral_error *error) {
  slow *s = handle;
  int whole = behave(s->way, deadline);
  s->performs++;
  for (size_t i = 0; i < batch->count; i++)
    corral_batch_op(batch, i)->status = whole ? CORRAL_OK : CORRAL_EINDOUBT;
  return whole ? CORRAL_OK : crl_status_fail(error, CORRAL_EUNAVAILABLE, "cut");
}

static const corral_store plugin = {.size = sizeof plugin,
                                    .abi = CORRAL_PLUGIN_ABI,
                                    .threads = CORRAL_THREADS_HANDLE,
                                    .op_size = sizeof(corral_op),
                                    .name = "slow",
                                    .schemes = "slow",
                                    .open = slow_open,
                                    .close = slow_close,
                                    .connect = slow_connect,
                                    .disconnect = slow_disconnect,
                                    .perform = slow_perform};

static crl_pool *pool_that(way how) {
  events = events_anew();
  the_store = (slow){.way = how};
  crl_pool *pool = crl_pool_new(&(crl_pool_options){
      .plugin = &plugin,
      .store = &the_store,
      .probe_key = "probe",
      .handles = 1,
      .op_ms = OP_MS,
      .info = {.size = sizeof(corral_store_info), .max_record = UINT64_MAX, .servers = 1},
      .breaker_failures = 3,
      .breaker_rest_ms = FAR,
      .away_ms = 3 * OP_MS,
      .events = &events});
  assert_non_null(pool);
  return pool;
}

static int ask(crl_pool *pool, int64_t deadline) {
  corral_op op = {.verb = CORRAL_VERB_CLAIM, .key = "k", .key_len = 1};
  crl_pool_perform(pool, &op, 1, deadline);
  return op.status;
}

/* Asks until the server counts as away; returns how often. A machine that is busy elsewhere takes
 * time from the silence. */
static int asks_until_away(crl_pool *pool) {
  int asks = 0;
  while (asks < 20 && crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN) == 0) {
    assert_int_equal(ask(pool, INT64_MAX), CORRAL_EINDOUBT);
    asks++;
  }
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 1);
  return asks;
}

static void a_body_that_moves_is_not_cut_at_op_ms(void **state) {
  (void)state;
  crl_pool *pool = pool_that(MOVES_LONG);
  assert_int_equal(ask(pool, INT64_MAX), CORRAL_OK);
  crl_pool_free(pool);
}

static void the_time_of_the_plugin_itself_is_no_silence(void **state) {
  (void)state;
  crl_pool *pool = pool_that(LINGERS);
  assert_int_equal(ask(pool, INT64_MAX), CORRAL_OK);
  crl_pool_free(pool);
}

static void a_body_that_moves_ends_by_the_callers_deadline(void **state) {
  (void)state;
  crl_pool *pool = pool_that(MOVES_ON);
  assert_int_equal(ask(pool, crl_env_now_ms() + 3 * OP_MS), CORRAL_EINDOUBT);
  assert_int_equal(ask(pool, crl_env_now_ms() + OP_MS / 2), CORRAL_EINDOUBT);
  crl_pool_free(pool);
}

static void a_body_that_stalls_is_cut_and_says_nothing_of_the_server(void **state) {
  (void)state;
  crl_pool *pool = pool_that(STALLS);
  for (int i = 0; i < 5; i++) assert_int_equal(ask(pool, INT64_MAX), CORRAL_EINDOUBT);
  the_store.way = IN_TIME;
  assert_int_equal(ask(pool, INT64_MAX), CORRAL_OK);
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 0);
  assert_int_equal(the_store.performs, 6);
  crl_pool_free(pool);
}

static void what_trickles_is_cut_and_counts_as_silence(void **state) {
  (void)state;
  crl_pool *pool = pool_that(TRICKLES);
  int asks = asks_until_away(pool);
  assert_in_range(asks, 3, 20);
  assert_int_equal(ask(pool, INT64_MAX), CORRAL_EUNAVAILABLE);
  assert_int_equal(the_store.performs, asks);
  crl_pool_free(pool);
}

static void a_silent_server_opens_the_breaker(void **state) {
  (void)state;
  crl_pool *pool = pool_that(SILENT);
  assert_in_range(asks_until_away(pool), 3, 20);
  crl_pool_free(pool);
}

static void another_deadline_than_the_batchs_is_kept(void **state) {
  (void)state;
  crl_pace pace = {.deadline = 1000, .first = 900, .latest = 5000, .quiet_ms = OP_MS};
  crl_pace_begin(&pace);
  assert_int_equal(crl_pace_moved(0, 1000), 900);
  assert_int_equal(crl_pace_moved(1 << 20, 700), 700);
  assert_int_equal(crl_pace_in_body(&pace), 0);
  crl_pace_end();
  assert_int_equal(crl_pace_moved(1 << 20, 1000), 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_body_that_moves_is_not_cut_at_op_ms),
      cmocka_unit_test(the_time_of_the_plugin_itself_is_no_silence),
      cmocka_unit_test(a_body_that_moves_ends_by_the_callers_deadline),
      cmocka_unit_test(a_body_that_stalls_is_cut_and_says_nothing_of_the_server),
      cmocka_unit_test(what_trickles_is_cut_and_counts_as_silence),
      cmocka_unit_test(a_silent_server_opens_the_breaker),
      cmocka_unit_test(another_deadline_than_the_batchs_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
