/* test_put.c: a record is stored however many claims of others come between, until the deadline.
 * The store and the clock follow a script. */
#define crl_put_record own_put_record
#define crl_put_wish own_put_wish
#define crl_put_say own_put_say
#define crl_pool_perform scripted_perform
#define crl_env_now_ms scripted_now
#define crl_env_pause_us scripted_pause
#include "store/put.c" /* NOLINT(bugprone-suspicious-include) */

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { DEADLINE = 5000, FOR_EVER = 1 << 30 };

static int64_t now, paused_us;
static int batches, losses, raced; /* the status of the first `losses` batches */
static uint8_t tokens[2][CORRAL_TOKEN];

int64_t scripted_now(void) { return now; }

void scripted_pause(int64_t us) {
  paused_us += us;
  now = paused_us / 1000;
}

/* A batch voids, claims and settles; another process may take the lease before it settles. */
void scripted_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  (void)pool;
  for (size_t i = 0; i < count; i++) ops[i].status = CORRAL_OK;
  if (ops[0].verb == CORRAL_VERB_RELEASE) return;
  assert_int_equal(count, 3);
  assert_int_equal(deadline, DEADLINE);
  memcpy(tokens[batches % 2], ops[1].token, CORRAL_TOKEN);
  if (batches++ < losses) ops[2].status = raced;
}

static int put_after(int count, int status) {
  uint8_t record[CORRAL_FRONT] = {0};
  corral_error error;
  crl_put put = {.key = "k",
                 .key_len = 1,
                 .record = record,
                 .record_len = sizeof record,
                 .hard_ttl = 1000,
                 .lease_ms = 750,
                 .op_ms = 250};
  now = paused_us = batches = 0;
  losses = count;
  raced = status;
  return own_put_record(NULL, &put, DEADLINE, &error);
}

static void it_is_stored_at_once_where_nobody_else_claims(void **state) {
  (void)state;
  assert_int_equal(put_after(0, CORRAL_OK), CORRAL_OK);
  assert_int_equal(batches, 1);
}

static void each_lost_race_is_run_again_with_a_token_of_its_own(void **state) {
  (void)state;
  for (int i = 1; i <= 40; i++) {
    assert_int_equal(put_after(i, i % 2 ? CORRAL_ELOST : CORRAL_EBUSY), CORRAL_OK);
    assert_int_equal(batches, i + 1);
    assert_memory_not_equal(tokens[0], tokens[1], CORRAL_TOKEN);
  }
}

static void it_gives_up_at_the_deadline_after_few_requests(void **state) {
  (void)state;
  assert_int_equal(put_after(FOR_EVER, CORRAL_ELOST), CORRAL_ELOST);
  assert_in_range(now, DEADLINE, DEADLINE + 16);
  assert_in_range(batches, DEADLINE / 16, DEADLINE); /* a pause of 8 ms, on average */
}

static void a_failure_that_is_no_race_ends_it(void **state) {
  (void)state;
  assert_int_equal(put_after(FOR_EVER, CORRAL_EREFUSED), CORRAL_EREFUSED);
  assert_int_equal(batches, 1);
  assert_int_equal(put_after(FOR_EVER, CORRAL_EINDOUBT), CORRAL_EINDOUBT);
  assert_int_equal(batches, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_stored_at_once_where_nobody_else_claims),
      cmocka_unit_test(each_lost_race_is_run_again_with_a_token_of_its_own),
      cmocka_unit_test(it_gives_up_at_the_deadline_after_few_requests),
      cmocka_unit_test(a_failure_that_is_no_race_ends_it),
  };
  return cmocka_run_group_tests_name("put", tests, NULL, NULL);
}
