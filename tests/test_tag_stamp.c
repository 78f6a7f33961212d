/* test_tag_stamp.c: a tag that was changed after a compute began voids what was computed, however
 * long the store takes to tell so; a tag that another process is about to make is waited for. The
 * store and the clock follow a script. */
#define crl_tag_versions_find own_tag_versions_find
#define crl_tag_versions_want own_tag_versions_want
#define crl_tag_versions_want_all own_tag_versions_want_all
#define crl_tag_versions_forget own_tag_versions_forget
#define crl_tag_versions_clean own_tag_versions_clean
#define crl_tag_versions_judge own_tag_versions_judge
#define crl_tag_versions_perform own_tag_versions_perform
#define crl_tag_versions_retry own_tag_versions_retry
#define crl_tag_versions_fetch own_tag_versions_fetch
#define crl_tag_versions_standing own_tag_versions_standing
#define crl_tag_versions_stamp own_tag_versions_stamp
#define crl_tag_versions_change own_tag_versions_change
#define crl_pool_perform scripted_perform
#define crl_pool_info scripted_info
#define crl_env_now_ms scripted_now
#define crl_env_pause_us scripted_pause
#include "tags/tag_versions.c" /* NOLINT(bugprone-suspicious-include) */

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { BEGAN = 1000, WAIT = 50, OP_MS = 600 };

static int64_t now, changed_at, look_ms;
static int64_t busy_until; /* another process has the tag's lease */
static int claims;
static uint8_t *record;

int64_t scripted_now(void) { return now; }

void scripted_pause(int64_t us) { now += (us + 999) / 1000; }

const corral_store_info *scripted_info(const crl_pool *pool) {
  static const corral_store_info info = {.size = sizeof info};
  (void)pool;
  return &info;
}

/* The tag has no version at the first look, and one that was changed at `changed_at` when its lease
 * is claimed. Each request takes `look_ms`. */
void scripted_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  static crl_tag_version version = {.hard = 7, .soft = 7, .changed = 1};
  crl_key key;
  crl_name name = {.key = "t", .key_len = 1};
  crl_key_space space = {.max_key = 250};
  (void)pool;
  (void)deadline;
  assert_int_equal(count, 1);
  now += look_ms;
  ops->status = ops->verb == CORRAL_VERB_GET ? CORRAL_EMISS : CORRAL_OK;
  if (ops->verb != CORRAL_VERB_CLAIM) return;
  claims++;
  if (now < busy_until) {
    ops->status = CORRAL_EBUSY;
    return;
  }
  assert_int_equal(crl_key_make(&key, CRL_KEY_TAG, &space, &name), CORRAL_OK);
  free(record);
  ops->found.record = record = write_record(&key, &version, &ops->found.len);
  ops->state.life_ms = life - (now - changed_at);
}

static int stamped(int64_t at) {
  crl_context *context = calloc(1, sizeof *context);
  crl_tags *tags = calloc(1, sizeof *tags);
  crl_tag_versions none = {0};
  corral_error error;
  assert_non_null(context);
  assert_non_null(tags);
  context->space.max_key = 250;
  context->op_ms = OP_MS;
  assert_non_null(crl_tags_add(tags, "t", 1));
  now = BEGAN + WAIT;
  changed_at = at;
  claims = 0;
  int status = own_tag_versions_stamp(context, tags, &none, BEGAN, &error);
  if (status == CORRAL_OK) assert_true(tags->tag[0].hard == 7);
  free(record);
  record = NULL;
  free(context);
  free(tags);
  return status;
}

static void a_change_after_the_beginning_voids_the_value(void **state) {
  (void)state;
  for (look_ms = 0; look_ms < 2 * WAIT; look_ms += 20) {
    assert_int_equal(stamped(BEGAN), CORRAL_ELOST);
    assert_int_equal(stamped(BEGAN + 1), CORRAL_ELOST);
    assert_int_equal(stamped(BEGAN + WAIT), CORRAL_ELOST);
  }
}

static void one_before_it_does_not(void **state) {
  (void)state;
  for (look_ms = 0; look_ms < 2 * WAIT; look_ms += 20)
    assert_int_equal(stamped(BEGAN - TICK_MS - 1), CORRAL_OK);
}

/* Its process was stopped between its claim and its word; the lease tells nothing of the tag. */
static void the_tags_maker_is_waited_for_as_long_as_an_operation_may_take(void **state) {
  (void)state;
  look_ms = 0;
  busy_until = BEGAN + WAIT + OP_MS;
  assert_int_equal(stamped(BEGAN - TICK_MS - 1), CORRAL_OK);
  busy_until = INT64_MAX;
  assert_int_equal(stamped(BEGAN - TICK_MS - 1), CORRAL_ELOST);
  assert_in_range(now, BEGAN + WAIT + OP_MS, BEGAN + WAIT + OP_MS + 16);
  assert_in_range(claims, 2, 50); /* pauses grow */
  busy_until = 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_change_after_the_beginning_voids_the_value),
      cmocka_unit_test(one_before_it_does_not),
      cmocka_unit_test(the_tags_maker_is_waited_for_as_long_as_an_operation_may_take),
  };
  return cmocka_run_group_tests_name("tag_stamp", tests, NULL, NULL);
}
