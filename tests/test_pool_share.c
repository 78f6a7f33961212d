/* test_pool_share.c: a pool whose refreshes are shared with other processes. */
#include "support/pool_kit.h"

static const char foreign[] = "a map of another version";

/* The questions of the pool, and the answers of the board that processes share. */
static struct board {
  _Atomic int refreshes, taken, told;
  crl_turn turn;
  int understood;
} board;

static int board_refresh(void *store, int64_t deadline, corral_error *error) {
  (void)store, (void)deadline, (void)error;
  board.refreshes++;
  return CORRAL_OK;
}

static size_t board_map(void *store, void *into, size_t size) {
  (void)store;
  assert_true(size >= sizeof foreign);
  memcpy(into, foreign, sizeof foreign);
  return sizeof foreign;
}

static int board_take_map(void *store, const void *map, size_t len, corral_error *error) {
  (void)store, (void)error;
  assert_int_equal(len, sizeof foreign);
  assert_memory_equal(map, foreign, len);
  board.taken++;
  return board.understood ? CORRAL_OK : CORRAL_EPROTOCOL;
}

static crl_turn turn(void *arg, int64_t age_ms, void *into, size_t size, size_t *len) {
  assert_ptr_equal(arg, &board);
  assert_true(age_ms >= 0 && size >= sizeof foreign);
  if (board.turn != CRL_TURN_HAVE) return board.turn;
  memcpy(into, foreign, *len = sizeof foreign);
  return CRL_TURN_HAVE;
}

static void tell(void *arg, const void *map, size_t len) {
  assert_ptr_equal(arg, &board);
  assert_memory_equal(map, foreign, len);
  board.told++;
}

/* A pool that wants to know where keys are. */
static crl_pool *astray(crl_turn next, int understood) {
  static corral_store plugin;
  plugin = spread;
  plugin.refresh = board_refresh;
  plugin.map = board_map;
  plugin.take_map = board_take_map;
  crl_pool *pool = pool_with(&plugin, 2, 1, FAR);
  memset(&board, 0, sizeof board);
  board.turn = next;
  board.understood = understood;
  crl_pool_share(pool, &(crl_sharing){.arg = &board, .take = turn, .tell = tell});
  the_fake.break_next = 1;
  assert_int_equal(one(pool, CORRAL_VERB_INVALIDATE), CORRAL_EINDOUBT);
  return pool;
}

static void the_process_whose_turn_it_is_asks_and_tells_the_others(void **state) {
  (void)state;
  crl_pool *pool = astray(CRL_TURN_ASK, 1);
  while (board.told == 0) sched_yield();
  assert_int_equal(board.taken, 0);
  assert_true(board.refreshes > 0);
  pool_end(pool);
}

static void another_ones_map_is_taken_and_the_store_is_not_asked(void **state) {
  (void)state;
  crl_pool *pool = astray(CRL_TURN_HAVE, 1);
  while (board.taken == 0) sched_yield();
  pool_end(pool);
  assert_int_equal(board.refreshes, 0);
  assert_int_equal(board.told, 0);
}

static void a_map_that_is_not_understood_is_no_reason_not_to_ask(void **state) {
  (void)state;
  crl_pool *pool = astray(CRL_TURN_HAVE, 0);
  while (board.taken == 0) sched_yield();
  pool_end(pool);
  assert_int_equal(board.refreshes, board.taken);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_process_whose_turn_it_is_asks_and_tells_the_others),
      cmocka_unit_test(another_ones_map_is_taken_and_the_store_is_not_asked),
      cmocka_unit_test(a_map_that_is_not_understood_is_no_reason_not_to_ask),
  };
  return cmocka_run_group_tests_name("pool_share", tests, NULL, NULL);
}
