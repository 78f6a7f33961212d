/* test_redis_hot.c: hot keys on a real Redis: how many commands a key with 30 % of a load costs the
 * server, counted by MONITOR, and that its copies are told of changes. */
#include "support/answers_kit.h"
#include "support/redis_server.h"
#include "support/zipf_kit.h"

enum { CROWD = 4, WARM = 6000, MEASURED = 4000, SHARE = 5, LIMIT_US = 30000000, LONG_MS = 600000 };
enum { OP_MS = 10000 }; /* on a busy machine as much is stored */
enum { IS_WARM, GO };   /* lab marks */

static redis_server *redis;

/* ---- a load -------------------------------------------------------------------------------- */

static int compute(corral_fill *fill, const void *key, size_t len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, len);
}

static void ask_for(lab_seat *seat, int number) {
  char key[16];
  corral_value *value = NULL;
  size_t len = (size_t)snprintf(key, sizeof key, "zipf %d", number);
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = LONG_MS, .wait_ms = 60000, .near_ms = LONG_MS);
  int status = corral_get_or_compute(seat->corral, key, len, CORRAL_CALL(.policy = policy), compute,
                                     NULL, &value);
  if (status != CORRAL_OK)
    lab_wrong(seat->lab, "%s: %s", key, corral_status_name(status));
  else if (corral_value_size(value) != len || memcmp(corral_value_data(value), key, len) != 0)
    lab_wrong(seat->lab, "%s has another key's value", key);
  corral_value_unref(value);
}

/* The watch takes a moment to learn of a copy, which doesn't answer before. */
static void await_copy(lab_seat *seat) {
  int64_t until = lab_now_us() + LIMIT_US;
  while (corral_counter(seat->corral, CORRAL_EVENT_NEAR) < 50) {
    ask_for(seat, 0);
    if (lab_now_us() < until) continue;
    lab_wrong(seat->lab, "the first key is never hot");
    return;
  }
}

static void ask_by_zipf(lab_seat *seat) {
  zipf *z = malloc(sizeof *z);
  if (z == NULL) abort();
  zipf_init(z, (uint64_t)seat->process + 1);
  for (int i = 0; i < WARM; i++) ask_for(seat, zipf_next(z));
  if (seat->arg != NULL) await_copy(seat);
  lab_add(&seat->lab->marks[IS_WARM], 1);
  lab_await(seat->lab, &seat->lab->marks[GO], 1);
  for (int i = 0; i < MEASURED; i++) ask_for(seat, zipf_next(z));
  free(z);
}

/* Lines of MONITOR with the key, up to that of the command ECHO with this text. A stall of the
 * machine may leave the server's clock unknown, and costs a PTTL of each look for a second. */
static int lines_with(redisContext *monitor, const char *key, const char *until) {
  void *reply = NULL;
  int count = 0;
  while (redisGetReply(monitor, &reply) == REDIS_OK) {
    const char *line = ((redisReply *)reply)->str;
    int ends = strstr(line, until) != NULL;
    count += strstr(line, key) != NULL && strstr(line, "\"PTTL\"") == NULL;
    freeReplyObject(reply);
    if (ends) return count;
  }
  fail_msg("MONITOR ended: %s", monitor->errstr);
  return 0;
}

/* Commands about the first key, while each process makes MEASURED gets. */
static int commands_with(int64_t hot_pct) {
  lab *l = lab_new();
  redis_server_ask(redis, "FLUSHALL");
  lab_spawn(l, &(lab_plan){.uri = redis_server_unix_uri(redis),
                           .processes = CROWD,
                           .threads = 1,
                           .options = {.hot_pct = hot_pct, .op_ms = OP_MS},
                           .body = ask_by_zipf,
                           .arg = hot_pct > 0 ? &hot_pct : NULL});
  for (int turn = 0; turn < 10 && !lab_await_ms(&l->marks[IS_WARM], CROWD, LAB_PATIENCE_MS); turn++)
    continue;
  redisContext *monitor = redisConnectUnix(redis_server_socket(redis));
  assert_true(monitor != NULL && monitor->err == 0);
  freeReplyObject(redisCommand(monitor, "MONITOR"));
  lab_add(&l->marks[GO], 1);
  lab_end(l);
  redis_server_ask(redis, "ECHO that-is-all");
  int count = lines_with(monitor, "\"zipf 0\"", "that-is-all");
  redisFree(monitor);
  lab_free(l);
  return count;
}

static void a_hot_key_costs_the_server_a_tenth_at_most(void **state) {
  (void)state;
  if (redis == NULL) skip();
  int without = commands_with(CORRAL_OFF), with = commands_with(SHARE);
  print_message(
      "           %d gets of %d processes: %d commands about the first key, with hot=%d%% "
      "%d\n",
      CROWD * MEASURED, CROWD, without, SHARE, with);
  assert_in_range(without, CROWD * MEASURED * 28 / 100, CROWD * MEASURED * 33 / 100);
  assert_true(with * 10 <= without);
}

/* ---- changes ------------------------------------------------------------------------------- */

static void a_hot_copy_is_told_of_changes(void **state) {
  (void)state;
  if (redis == NULL) skip();
  redis_server_ask(redis, "FLUSHALL");
  const char *uri = redis_server_unix_uri(redis);
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .hot_pct = SHARE, .op_ms = OP_MS)),
         *other = opened(CORRAL_OPTIONS(.store = uri, .op_ms = OP_MS));
  corral_policy policy = usual();
  say s = {.text = "v"};
  policy.near_ms = FAR;
  int64_t until = lab_now_us() + LIMIT_US;
  for (uint64_t near = 0; near < 100; near = corral_counter(c, CORRAL_EVENT_NEAR)) {
    assert_int_equal(asks_by(c, "k", &policy, &s).status, CORRAL_OK);
    if (lab_now_us() > until) fail_msg("the key is never hot");
  }
  for (int i = 0; i < 20; i++) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    assert_int_equal(corral_set(other, "k", 1, CORRAL_CALL(.policy = &policy), text, strlen(text)),
                     CORRAL_OK);
    until = lab_now_us() + LIMIT_US;
    while (strcmp(asks_by(c, "k", &policy, &s).text, text) != 0)
      if (lab_now_us() > until) fail_msg("%s was not told", text);
  }
  assert_int_equal(s.ran, 1);
  corral_close(other);
  corral_close(c);
}

/* Cold keys are not registered, and need no connection that would be told of them. */
static void while_no_key_is_hot_there_is_no_watch(void **state) {
  (void)state;
  if (redis == NULL) skip();
  redis_server_ask(redis, "FLUSHALL");
  corral *c = opened(
      CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .hot_pct = SHARE, .op_ms = OP_MS));
  say s = {.text = "v"};
  for (int i = 0; i < 100; i++) {
    char key[20];
    snprintf(key, sizeof key, "cold %d", i);
    assert_int_equal(asks(c, key, &s).status, CORRAL_OK);
    assert_int_equal(asks(c, key, &s).how, CORRAL_FRESH);
    /* a variant, which is no plain hit */
    corral_value *value = NULL;
    assert_int_equal(corral_get_or_compute(c, key, strlen(key),
                                           CORRAL_CALL(.variant = "de", .variant_len = 2), answer,
                                           &s, &value),
                     CORRAL_OK);
    corral_value_unref(value);
  }
  assert_null(strstr(redis_server_ask(redis, "CLIENT LIST"), " flags=t"));
  assert_int_equal(corral_counter(c, CORRAL_EVENT_WATCH), 0);
  assert_int_equal(corral_near_used(c), 0);
  corral_close(c);
}

#define T(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_hot_key_costs_the_server_a_tenth_at_most),
      T(a_hot_copy_is_told_of_changes),
      T(while_no_key_is_hot_there_is_no_watch),
  };
  redis_server_start(&redis, NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  redis_server_stop(redis);
  return failed;
}
