/* test_redis_dialogue.c: replies that a real Redis doesn't give on demand, from a scripted
 * server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "store/registry.h"
#include "support/fake_server.h"
#include "support/op_kit.h"
#include "support/scripted_pool.h"
#include "store/uri.h"

extern const corral_store crl_plugin_redis;

enum { LIMIT = 20000, SHORT = 3500 };

/* Without TIME each look has its PTTL; test_redis_look.c has the others. */
#define GREETED "EXPECT TIME\\r\\n\nSEND +OK\\r\\n@INFO-NOPERM no\\r\\n\n"
#define GET_K "EXPECT PTTL\\r\\n$1\\r\\nk\\r\\n\n"
#define EVALSHA_K "EXPECT EVALSHA\nEXPECT $1\\r\\nk\\r\\n\n"

typedef struct dialogue {
  const corral_host *host;
  fake_server *server;
  void *store, *handle;
  corral_error error;
} dialogue;

static int connects(dialogue *d, int64_t limit) {
  return crl_plugin_redis.connect(d->store, d->host->now_ms() + limit, &d->handle, &d->error);
}

/* Starts the server with its script and opens the store. */
static dialogue with(const char *script) {
  dialogue d = {.host = crl_registry_host(), .server = fake_server_start(script)};
  corral_store_info info = {.size = sizeof info};
  char text[64];
  crl_uri uri;
  snprintf(text, sizeof text, "redis://127.0.0.1:%d", fake_server_port(d.server));
  assert_int_equal(crl_uri_parse(&uri, text, &d.error), CORRAL_OK);
  assert_int_equal(crl_plugin_redis.open(d.host, &uri.view, &d.store, &info, &d.error), CORRAL_OK);
  crl_uri_free(&uri);
  return d;
}

static dialogue connected(const char *script) {
  dialogue d = with(script);
  if (connects(&d, LIMIT) != CORRAL_OK) fail_msg("%s", d.error.text);
  return d;
}

static void ended(dialogue *d) {
  if (d->handle != NULL) crl_plugin_redis.disconnect(d->handle);
  crl_plugin_redis.close(d->store);
  assert_true(fake_server_stop(d->server));
}

static corral_op op_of(corral_verb verb) {
  static const uint8_t token[CORRAL_TOKEN] = {1, 2, 3};
  corral_op op = {
      .verb = (uint32_t)verb, .key = "k", .key_len = 1, .token = token, .status = CORRAL_EINDOUBT};
  op_lasts(&op, 1000);
  op_keeps(&op, 1000);
  return op;
}

static int perform(dialogue *d, corral_op *ops, size_t count, int64_t limit) {
  for (size_t i = 0; i < count; i++) ops[i].error = &d->error;
  int status =
      perform_ops(&crl_plugin_redis, d->handle, ops, count, d->host->now_ms() + limit, &d->error);
  for (size_t i = 0; i < count; i++)
    if (ops[i].found.record != NULL) ops[i].found.drop(ops[i].found.owner);
  return status;
}

/* Performs one operation that the server answers with `steps`. Returns the status of `perform`;
 * *ret_status is the operation's. */
static int answers(const char *before, const char *steps, corral_verb verb, int *ret_status,
                   char text[240]) {
  char script[4096];
  snprintf(script, sizeof script, "%s%s%s", GREETED, before, steps);
  dialogue d = connected(script);
  corral_op op = op_of(verb);
  int status = perform(&d, &op, 1, LIMIT);
  *ret_status = op.status;
  memcpy(text, d.error.text, sizeof d.error.text);
  ended(&d);
  return status;
}

/* ---- errors that leave the connection usable ----------------------------------------------- */

static const struct refusal {
  const char *line;
  int status;
} refusals[] = {
    {"LOADING Redis is loading the dataset in memory", CORRAL_EUNAVAILABLE},
    {"BUSY Redis is busy running a script.", CORRAL_EUNAVAILABLE},
    {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
     CORRAL_EUNAVAILABLE},
    {"CLUSTERDOWN Hash slot not served", CORRAL_EUNAVAILABLE},
    {"MOVED 3999 127.0.0.1:6381", CORRAL_EUNAVAILABLE},
    {"MISCONF Redis is configured to save RDB snapshots", CORRAL_EREFUSED},
    {"NOREPLICAS Not enough good replicas to write.", CORRAL_EREFUSED},
    {"OOM command not allowed when used memory > 'maxmemory'.", CORRAL_EREFUSED},
    {"@user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.", CORRAL_EREFUSED},
    {"NOAUTH Authentication required.", CORRAL_EAUTH},
    {"NOPERM this user has no permissions", CORRAL_EAUTH},
    {"@user_script: 1: The user executing the script can't run this command", CORRAL_EAUTH},
    {"WRONGTYPE Operation against a key holding the wrong kind of value", CORRAL_EFOREIGN},
    {"ERR something new about LOADING and OOM", CORRAL_EREFUSED},
    {"LOADINGX is no word of ours", CORRAL_EREFUSED},
    {"ERR unknown command 'EVALSHA'", CORRAL_EUNSUPPORTED},
};

static void each_error_has_its_status_and_leaves_the_connection_usable(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    char script[2048];
    snprintf(script, sizeof script,
             GREETED GET_K "SEND -%s\\r\\n:-2\\r\\n\n" EVALSHA_K "SEND -%s\\r\\n\n" GET_K
                           "SEND $-1\\r\\n:-2\\r\\n\n",
             refusals[i].line, refusals[i].line);
    dialogue d = connected(script);
    corral_op claim = op_of(CORRAL_VERB_CLAIM), get = op_of(CORRAL_VERB_GET),
              again = op_of(CORRAL_VERB_GET);
    assert_int_equal(perform(&d, &get, 1, LIMIT), CORRAL_OK);
    assert_int_equal(get.status, refusals[i].status);
    assert_int_equal(perform(&d, &claim, 1, LIMIT), CORRAL_OK);
    if (claim.status != refusals[i].status)
      fail_msg("%s: %s", refusals[i].line, corral_status_name(claim.status));
    assert_non_null(strstr(d.error.text, "127.0.0.1"));
    assert_int_equal(perform(&d, &again, 1, LIMIT), CORRAL_OK);
    assert_int_equal(again.status, CORRAL_EMISS);
    ended(&d);
  }
}

static void a_moved_says_what_to_write(void **state) {
  (void)state;
  int status;
  char text[240];
  assert_int_equal(
      answers(GET_K, "SEND -MOVED 1 a:1\\r\\n-MOVED 1 a:1\\r\\n\n", CORRAL_VERB_GET, &status, text),
      CORRAL_OK);
  assert_non_null(strstr(text, "write redis+cluster://"));
}

static void a_server_that_lost_its_scripts_gets_them_whole_and_once(void **state) {
  (void)state;
  dialogue d = connected(
      GREETED EVALSHA_K
      "SEND -NOSCRIPT No matching script.\\r\\n\n"
      "EXPECT EVAL\\r\\n\nEXPECT $1\\r\\nk\\r\\n\nSEND *2\\r\\n:0\\r\\n:1700000000000\\r\\n\n");
  corral_op op = op_of(CORRAL_VERB_EXPIRE);
  assert_int_equal(perform(&d, &op, 1, LIMIT), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_OK);
  assert_string_equal(d.error.text, "");
  ended(&d);
  d = connected(GREETED EVALSHA_K
                "SEND -NOSCRIPT No matching script.\\r\\n\n"
                "EXPECT EVAL\\r\\n\nEXPECT $1\\r\\nk\\r\\n\nSEND -NOSCRIPT Still not.\\r\\n\n");
  op = op_of(CORRAL_VERB_EXPIRE);
  assert_int_equal(perform(&d, &op, 1, LIMIT), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  ended(&d);
}

/* ---- malformed replies --------------------------------------------------------------------- */

static void rubbish_breaks_the_handle(void **state) {
  (void)state;
  static const char *const rubbish[] = {
      "SEND HTTP/1.1 400 Bad Request\\r\\n\\r\\n\n",
      "SEND +OK\\r\\n:1\\r\\n\n",
      "SEND :1\\r\\n:1\\r\\n\n",
      "SEND $1\\r\\nx\\r\\n+OK\\r\\n\n",
      "SEND $-5\\r\\n:1\\r\\n\n",
      "SEND *1\\r\\n:1\\r\\n:1\\r\\n\n",
      "SEND *-1\\r\\n*-1\\r\\n\n",
      "SEND *2147483647\\r\\n\n",
      "SEND *99999999999999999999\\r\\n\n",
      "SEND $99999999999999999999\\r\\n\n",
      "SEND "
      "*1\\r\\n*1\\r\\n*1\\r\\n*1\\r\\n*1\\r\\n*1\\r\\n*1\\r\\n*1\\r\\n*1\\r\\n*1\\r\\n*1\\r\\n*"
      "1\\r\\n*1\\r\\n*1\\r\\n\n",
      "SEND \\0\\0\\0\\0\\r\\n\n",
      "SEND -ERR Protocol error: unauthenticated multibulk length\\r\\n:1\\r\\n\n",
  };
  for (size_t i = 0; i < sizeof rubbish / sizeof *rubbish; i++) {
    int status;
    char text[240];
    int broken = answers(GET_K, rubbish[i], CORRAL_VERB_GET, &status, text);
    if (broken != CORRAL_EPROTOCOL || status != CORRAL_EPROTOCOL)
      fail_msg("%s gave %s and %s", rubbish[i], corral_status_name(broken),
               corral_status_name(status));
    assert_true(text[0] != '\0');
  }
}

static void a_script_answering_nonsense_breaks_the_handle(void **state) {
  (void)state;
  static const char *const rubbish[] = {
      "SEND +OK\\r\\n\n",
      "SEND *0\\r\\n\n",
      "SEND *1\\r\\n:0\\r\\n\n",
      "SEND *2\\r\\n:0\\r\\n$1\\r\\nx\\r\\n\n",
      "SEND *2\\r\\n:7\\r\\n:1700000000000\\r\\n\n",
      "SEND *2\\r\\n:1\\r\\n:1700000000000\\r\\n\n",
      "SEND *2\\r\\n:0\\r\\n:1700000000000\\r\\n\n",
      "SEND *5\\r\\n:0\\r\\n:1700000000000\\r\\n:5\\r\\n$3\\r\\nabc\\r\\n:0\\r\\n\n",
      "SEND *5\\r\\n:0\\r\\n:1700000000000\\r\\n:5\\r\\n$-1\\r\\n:0\\r\\n\n",
      "SEND *5\\r\\n$1\\r\\n0\\r\\n:1700000000000\\r\\n:5\\r\\n$-1\\r\\n:0\\r\\n\n",
  };
  for (size_t i = 0; i < sizeof rubbish / sizeof *rubbish; i++) {
    int status;
    char text[240];
    int broken = answers(EVALSHA_K, rubbish[i], CORRAL_VERB_CLAIM, &status, text);
    if (broken != CORRAL_EPROTOCOL || status != CORRAL_EPROTOCOL)
      fail_msg("%s gave %s and %s", rubbish[i], corral_status_name(broken),
               corral_status_name(status));
  }
}

static void a_value_that_is_no_record_is_foreign_and_harmless(void **state) {
  (void)state;
  int status;
  char text[240];
  assert_int_equal(
      answers(GET_K, "SEND $5\\r\\nhello\\r\\n:-1\\r\\n\n", CORRAL_VERB_GET, &status, text),
      CORRAL_OK);
  assert_int_equal(status, CORRAL_EFOREIGN);
}

static void a_surplus_reply_breaks_the_handle(void **state) {
  (void)state;
  int status;
  char text[240];
  assert_int_equal(
      answers(GET_K, "SEND $-1\\r\\n:-2\\r\\n+SURPLUS\\r\\n\n", CORRAL_VERB_GET, &status, text),
      CORRAL_EPROTOCOL);
}

static void a_surplus_reply_between_batches_is_seen_before_the_next(void **state) {
  (void)state;
  /* The server continues when the first batch has been answered; the client waits for that through
   * its third connection. */
  dialogue d =
      connected(GREETED GET_K "SEND $-1\\r\\n:-2\\r\\n\nSEND $3\\r\\nbad\\r\\n\nACCEPT\n" GREETED);
  corral_op first = op_of(CORRAL_VERB_GET), second = op_of(CORRAL_VERB_CLAIM);
  /* the surplus bytes may arrive with the replies or later */
  int status = perform(&d, &first, 1, LIMIT);
  assert_int_equal(first.status, CORRAL_EMISS);
  if (status == CORRAL_OK) {
    void *handle = d.handle;
    assert_int_equal(connects(&d, LIMIT), CORRAL_OK);
    void *other = d.handle;
    d.handle = handle;
    assert_int_not_equal(perform(&d, &second, 1, LIMIT), CORRAL_OK);
    assert_int_equal(second.status, CORRAL_EUNAVAILABLE);
    crl_plugin_redis.disconnect(other);
  } else {
    crl_plugin_redis.disconnect(d.handle);
    d.handle = NULL;
    assert_int_equal(connects(&d, LIMIT), CORRAL_OK);
  }
  ended(&d);
}

/* ---- closed connections -------------------------------------------------------------------- */

static void a_reply_cut_in_the_middle_leaves_the_fate_unknown(void **state) {
  (void)state;
  static const char *const cuts[] = {"CLOSE\n", "SEND *2\\r\\n:0\nCLOSE\n",
                                     "SEND *2\\r\\n:0\\r\\n:170000\nCLOSE\n"};
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    int status;
    char text[240];
    assert_int_equal(answers(EVALSHA_K, cuts[i], CORRAL_VERB_RELEASE, &status, text),
                     CORRAL_EUNAVAILABLE);
    assert_int_equal(status, CORRAL_EINDOUBT);
  }
}

static void what_was_answered_before_the_cut_counts(void **state) {
  (void)state;
  dialogue d = connected(GREETED GET_K GET_K "SEND $-1\\r\\n:-2\\r\\n$10\\r\\nab\nCLOSE\n");
  corral_op ops[] = {op_of(CORRAL_VERB_GET), op_of(CORRAL_VERB_GET)};
  assert_int_equal(perform(&d, ops, 2, LIMIT), CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[0].status, CORRAL_EMISS);
  assert_int_equal(ops[1].status, CORRAL_EINDOUBT);
  ended(&d);
}

static void a_connection_closed_while_idle_is_seen_before_sending(void **state) {
  (void)state;
  /* The second connection is accepted after the first one was closed. */
  dialogue d = connected(GREETED "CLOSE\nACCEPT\n" GREETED);
  void *first = d.handle;
  assert_int_equal(connects(&d, LIMIT), CORRAL_OK);
  void *second = d.handle;
  corral_op op = op_of(CORRAL_VERB_INVALIDATE);
  d.handle = first;
  assert_int_equal(perform(&d, &op, 1, LIMIT), CORRAL_EUNAVAILABLE);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  crl_plugin_redis.disconnect(second);
  ended(&d);
}

static void a_silent_server_is_given_up_at_the_deadline(void **state) {
  (void)state;
  dialogue d = connected(GREETED "HANG\n");
  corral_op op = op_of(CORRAL_VERB_CLAIM);
  int64_t before = d.host->now_ms();
  assert_int_equal(perform(&d, &op, 1, SHORT), CORRAL_EUNAVAILABLE);
  assert_int_equal(op.status, CORRAL_EINDOUBT);
  assert_true(d.host->now_ms() - before >= SHORT);
  ended(&d);
}

/* The reply is complete after 20 s: whoever waits for it has an answer. */
static void a_trickle_does_not_stretch_the_deadline(void **state) {
  (void)state;
  dialogue d = connected(GREETED GET_K "TRICKLE 400 "
                                       "$-00000000000000000000000000000000000000000000001\\r\\n\n");
  corral_op op = op_of(CORRAL_VERB_GET);
  assert_int_equal(perform(&d, &op, 1, SHORT), CORRAL_EUNAVAILABLE);
  ended(&d);
}

static void a_reply_byte_by_byte_is_read_when_there_is_time(void **state) {
  (void)state;
  int status;
  char text[240];
  assert_int_equal(answers(EVALSHA_K, "TRICKLE 1 *2\\r\\n:0\\r\\n:1700000000000\\r\\n\n",
                           CORRAL_VERB_EXPIRE, &status, text),
                   CORRAL_OK);
  assert_int_equal(status, CORRAL_OK);
}

static void a_server_that_reads_nothing_takes_no_longer_than_the_deadline(void **state) {
  (void)state;
  enum { SIZE = 64 << 20 };
  dialogue d = connected(GREETED "EXPECT EVALSHA\nEXPECT never sent\n");
  uint8_t *record = calloc(1, SIZE);
  corral_header header = {.body = SIZE - CORRAL_HEAD};
  assert_non_null(record);
  d.host->header_write(&header, record);
  corral_op ops[] = {op_of(CORRAL_VERB_EXTEND), op_of(CORRAL_VERB_SETTLE),
                     op_of(CORRAL_VERB_EXTEND)};
  ops[1].settle.record = record;
  ops[1].settle.record_len = SIZE;
  assert_int_equal(perform(&d, ops, 3, SHORT), CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[0].status, CORRAL_EINDOUBT);
  assert_int_equal(ops[1].status, CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[2].status, CORRAL_EUNAVAILABLE);
  crl_plugin_redis.disconnect(d.handle);
  crl_plugin_redis.close(d.store);
  assert_false(fake_server_stop(d.server));
  free(record);
}

static void a_deadline_that_has_passed_sends_nothing(void **state) {
  (void)state;
  dialogue d = connected(GREETED GET_K "SEND $-1\\r\\n:-2\\r\\n\n");
  corral_op late = op_of(CORRAL_VERB_INVALIDATE), get = op_of(CORRAL_VERB_GET);
  assert_int_equal(perform(&d, &late, 1, -1), CORRAL_OK);
  assert_int_equal(late.status, CORRAL_EUNAVAILABLE);
  assert_int_equal(perform(&d, &get, 1, LIMIT), CORRAL_OK);
  assert_int_equal(get.status, CORRAL_EMISS);
  ended(&d);
}

/* ---- greetings ----------------------------------------------------------------------------- */

static void a_bad_greeting_is_told_for_what_it_is(void **state) {
  (void)state;
  static const struct {
    const char *script, *text;
    int status;
  } greetings[] = {
      {"EXPECT TIME\nSEND -ERR max number of clients reached\\r\\n\nCLOSE\n",
       "max number of clients", CORRAL_EUNAVAILABLE},
      {"EXPECT TIME\nSEND -DENIED Redis is running in protected mode\\r\\n\nCLOSE\n",
       "protected mode", CORRAL_EAUTH},
      {"EXPECT TIME\nSEND +OK\\r\\n@INFO-LOADING Redis is loading\\r\\n\n", "LOADING",
       CORRAL_EUNAVAILABLE},
      {"EXPECT TIME\nSEND -NOAUTH Authentication required.\\r\\n@INFO-NOAUTH Authentication "
       "required.\\r\\n\n",
       "NOAUTH", CORRAL_EAUTH},
      {"EXPECT TIME\nSEND SSH-2.0-OpenSSH_9.2\\r\\n\n", "not one of a Redis server",
       CORRAL_EPROTOCOL},
      {"EXPECT TIME\nSEND +OK\\r\\n@INFO+OK\\r\\n\n", "TIME", CORRAL_EPROTOCOL},
      {"EXPECT TIME\nSEND "
       "+OK\\r\\n@INFO*2\\r\\n$19\\r\\n9223372036854775807\\r\\n$1\\r\\n0\\r\\n\n",
       "TIME", CORRAL_EPROTOCOL},
      {"EXPECT TIME\nSEND "
       "+OK\\r\\n@INFO*2\\r\\n$20\\r\\n-9223372036854775808\\r\\n$1\\r\\n0\\r\\n\n",
       "TIME", CORRAL_EPROTOCOL},
      {"EXPECT TIME\nSEND "
       "+OK\\r\\n@INFO*2\\r\\n$10\\r\\n1700000000\\r\\n$19\\r\\n9223372036854775807\\r\\n\n",
       "TIME", CORRAL_EPROTOCOL},
      {"EXPECT TIME\nCLOSE\nACCEPT\nEXPECT PING\nCLOSE\n", "closed", CORRAL_EUNAVAILABLE},
      {"HANG\n", "time allowed", CORRAL_EUNAVAILABLE},
  };
  for (size_t i = 0; i < sizeof greetings / sizeof *greetings; i++) {
    dialogue d = with(greetings[i].script);
    int hangs = strcmp(greetings[i].script, "HANG\n") == 0;
    int status = connects(&d, hangs ? SHORT : LIMIT);
    if (status != greetings[i].status || strstr(d.error.text, greetings[i].text) == NULL)
      fail_msg("%s gave %s: %s", greetings[i].script, corral_status_name(status), d.error.text);
    ended(&d);
  }
}

static void a_name_that_is_refused_is_done_without(void **state) {
  (void)state;
  dialogue d = connected("EXPECT TIME\\r\\n\nSEND -NOPERM no\\r\\n@INFO-NOPERM no\\r\\n\n" GET_K
                         "SEND $-1\\r\\n:-2\\r\\n\n");
  corral_op op = op_of(CORRAL_VERB_GET);
  assert_int_equal(perform(&d, &op, 1, LIMIT), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EMISS);
  ended(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_error_has_its_status_and_leaves_the_connection_usable),
      cmocka_unit_test(a_moved_says_what_to_write),
      cmocka_unit_test(a_server_that_lost_its_scripts_gets_them_whole_and_once),
      cmocka_unit_test(rubbish_breaks_the_handle),
      cmocka_unit_test(a_script_answering_nonsense_breaks_the_handle),
      cmocka_unit_test(a_value_that_is_no_record_is_foreign_and_harmless),
      cmocka_unit_test(a_surplus_reply_breaks_the_handle),
      cmocka_unit_test(a_surplus_reply_between_batches_is_seen_before_the_next),
      cmocka_unit_test(a_reply_cut_in_the_middle_leaves_the_fate_unknown),
      cmocka_unit_test(what_was_answered_before_the_cut_counts),
      cmocka_unit_test(a_connection_closed_while_idle_is_seen_before_sending),
      cmocka_unit_test(a_silent_server_is_given_up_at_the_deadline),
      cmocka_unit_test(a_trickle_does_not_stretch_the_deadline),
      cmocka_unit_test(a_reply_byte_by_byte_is_read_when_there_is_time),
      cmocka_unit_test(a_server_that_reads_nothing_takes_no_longer_than_the_deadline),
      cmocka_unit_test(a_deadline_that_has_passed_sends_nothing),
      cmocka_unit_test(a_bad_greeting_is_told_for_what_it_is),
      cmocka_unit_test(a_name_that_is_refused_is_done_without),
  };
  return cmocka_run_group_tests(tests, default_signals, NULL);
}
