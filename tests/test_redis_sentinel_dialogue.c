/* test_redis_sentinel_dialogue.c: what sentinels and their servers don't say on demand, by scripted
 * ones: the plugin, and a pool that follows it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <poll.h>

#include "../plugins/redis/sentinel.h"
#include "store/pool.h"
#include "support/client_kit.h"
#include "support/fake_server.h"
#include "support/scripted_pool.h"

enum { LIMIT = 20000 };

/* Without TIME each look has its PTTL. */
#define GREETED_BY(role) "EXPECT TIME\\r\\n\nSEND +OK\\r\\n" role "@INFO-NOPERM no\\r\\n\n"
#define MASTER "*3\\r\\n$6\\r\\nmaster\\r\\n:0\\r\\n*0\\r\\n"
#define SLAVE                                                                                      \
  "*5\\r\\n$5\\r\\nslave\\r\\n$9\\r\\n127.0.0.1\\r\\n:1\\r\\n$9\\r\\nconnected\\r\\n:0\\r\\n"
#define GREETED GREETED_BY(MASTER)
#define GET_K "EXPECT PTTL\\r\\n$1\\r\\nk\\r\\n\n"
#define NONE "SEND $0\\r\\n\\r\\n:-2\\r\\n\n"
#define LOOK GET_K NONE
/* The first look is that of the call which finds the primary; then it is known by its number. */
#define SERVES GREETED LOOK "ACCEPT\n" GREETED LOOK
#define INVALIDATED "EXPECT EVALSHA\nSEND *2\\r\\n:0\\r\\n:0\\r\\n\n"
/* A sentinel: its greeting, the question, the answer, and the bell. %d: a port. */
#define CALLED                                                                                     \
  "EXPECT SETNAME\nSEND +OK\\r\\n\nEXPECT get-master-addr-by-name\\r\\n$4\\r\\nmain\\r\\n\n"       \
  "EXPECT +switch-master\\r\\n\n"
#define SUBSCRIBED "*3\\r\\n$9\\r\\nsubscribe\\r\\n$14\\r\\n+switch-master\\r\\n:1\\r\\n\n"
#define NAMES_AT(nine) "SEND *2\\r\\n$9\\r\\n" nine "\\r\\n$5\\r\\n%05d\\r\\n" SUBSCRIBED
#define NAMES NAMES_AT("127.0.0.1")
#define NAMES_NONE "SEND *-1\\r\\n" SUBSCRIBED
#define SWITCH(four, five)                                                                         \
  "SEND *3\\r\\n$7\\r\\nmessage\\r\\n$14\\r\\n+switch-master\\r\\n$36\\r\\n" four                  \
  " 127.0.0.1 11111 127.0.0.1 " five "\\r\\n\n"

/* ---- words of sentinels -------------------------------------------------------------------- */

static crl_redis_message message(const char *text) {
  return (crl_redis_message){.at = text, .size = strlen(text)};
}

static void a_primary_has_an_address_of_either_family_or_a_name(void **state) {
  (void)state;
  static const struct {
    const char *reply, *host;
    int known;
  } replies[] = {
      {"*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n", "10.0.0.1", 1},
      {"*2\r\n$9\r\nnode.test\r\n$4\r\n6379\r\n", "node.test", 1},
      {"*2\r\n$3\r\n::1\r\n$4\r\n6379\r\n", "::1", 1},
      {"*-1\r\n", "", 0},
      {"$-1\r\n", "", 0},
      {"*2\r\n$0\r\n\r\n$4\r\n6379\r\n", "", -1},
      {"*2\r\n$3\r\na b\r\n$4\r\n6379\r\n", "", -1},
      {"*2\r\n$1\r\na\r\n$1\r\n0\r\n", "", -1},
      {"*2\r\n$1\r\na\r\n$5\r\n65536\r\n", "", -1},
      {"*2\r\n$1\r\na\r\n$2\r\n-1\r\n", "", -1},
      {"*2\r\n$1\r\na\r\n$0\r\n\r\n", "", -1},
      {"*1\r\n$1\r\na\r\n", "", -1},
      {"+OK\r\n", "", -1},
      {":6379\r\n", "", -1},
  };
  for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
    crl_redis_place place;
    int known = crl_redis_sentinel_place(message(replies[i].reply), &place);
    if (known != replies[i].known) fail_msg("reply %zu: %d", i, known);
    if (known == 1) assert_string_equal(place.host, replies[i].host);
    if (known == 1) assert_int_equal(place.port, 6379);
  }
}

static void a_switch_of_this_primary_is_told_from_others(void **state) {
  (void)state;
#define TOLD(channel, text, len)                                                                   \
  "*3\r\n$7\r\nmessage\r\n$14\r\n" channel "\r\n$" len "\r\n" text "\r\n"
  static const struct {
    const char *told, *host;
  } all[] = {
      {TOLD("+switch-master", "main 10.0.0.1 1 10.0.0.2 7", "24"), NULL}, /* cut short */
      {TOLD("+switch-master", "main 10.0.0.1 1 10.0.0.2 7", "26"), "10.0.0.2"},
      {TOLD("+switch-master", "main a 1 ::1 7", "14"), "::1"},
      {TOLD("+switch-master", "main a 1 node.test 7", "20"), "node.test"},
      {TOLD("+switch-master", "mains a 1 b 7", "13"), NULL},
      {TOLD("+switch-master", "mai a 1 b 7", "11"), NULL},
      {TOLD("+switch-master", "main a 1 b", "10"), NULL},
      {TOLD("+switch-master", "main a 1 b 0", "12"), NULL},
      {TOLD("+switch-master", "main a 1 b 7x", "13"), NULL},
      {TOLD("+switch-slave.", "main a 1 b 7", "12"), NULL},
      {"*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n", NULL},
      {"+PONG\r\n", NULL},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    crl_redis_place place;
    int told = crl_redis_sentinel_told(message(all[i].told), "main", &place);
    if (told != (all[i].host != NULL)) fail_msg("message %zu: %d", i, told);
    if (told) assert_string_equal(place.host, all[i].host);
    if (told) assert_int_equal(place.port, 7);
  }
}

/* ---- the URI ------------------------------------------------------------------------------- */

static void a_uri_names_sentinels_a_primary_and_a_database(void **state) {
  (void)state;
  client c;
  static const char *const bad[] = {"redis+sentinel://",
                                    "redis+sentinel://h",
                                    "redis+sentinel://h/",
                                    "redis+sentinel:///main",
                                    "redis+sentinel://h/main/x",
                                    "redis+sentinel://h/main/1/2",
                                    "redis+sentinel://h/main/-1",
                                    "redis+sentinel://h/a%20b",
                                    "redis+sentinel://h:0/main",
                                    "redis+sentinel://h,/main",
                                    "redis+sentinel://h/main?db=1",
                                    "redis+sentinel://h/main?sentinel_user=u",
                                    "redis+sentinel://h/main?sentinel_tls=maybe",
                                    "redis+sentinel://h/main?sentinel_tls_ca=f",
                                    "redis+sentinel://h/main?tls_ca=f"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int status = client_open(&c, &crl_plugin_redis_sentinel, bad[i]);
    if (status != CORRAL_EURI) fail_msg("%s: %s", bad[i], corral_status_name(status));
  }
  assert_int_equal(client_open(&c, &crl_plugin_redis_sentinel,
                               "rediss+sentinel://u:p@a,[::1]:7,b:8/main/5?tls_ca=/ca&tls_cert=/c"
                               "&tls_key=/k&sentinel_password=q&sentinel_tls_cert=/sc"),
                   CORRAL_OK);
  crl_redis_sentinel *s = c.store;
  assert_string_equal(s->master, "main");
  assert_string_equal(c.info.name, "redis main");
  assert_int_equal(s->cluster.base.db, 5);
  assert_int_equal(s->cluster.seed_count, 3);
  assert_int_equal(s->cluster.seeds[0]->store.port, 26379);
  assert_string_equal(s->cluster.seeds[1]->store.name, "sentinel [::1]:7");
  assert_string_equal(s->cluster.base.password, "p");
  assert_string_equal(s->guards->password, "q");
  assert_null(s->guards->user);
  assert_true(s->guards->tls);
  assert_string_equal(s->guards->tls_ca, "/ca");
  assert_string_equal(s->guards->tls_cert, "/sc");
  assert_null(s->guards->tls_key);
  client_end(&c);
  assert_int_equal(
      client_open(&c, &crl_plugin_redis_sentinel, "rediss+sentinel://a/main?sentinel_tls=no"),
      CORRAL_OK);
  s = c.store;
  assert_false(s->guards->tls);
  assert_true(s->cluster.base.tls);
  client_end(&c);
}

/* ---- a pool on scripted servers ------------------------------------------------------------ */

typedef struct dialogue {
  client c;
  fake_server *sentinels[2];
  crl_pool *pool;
  corral_error error;
} dialogue;

/* A pool on scripted sentinels; `second` NULL: there is one. */
static dialogue with(const char *first, const char *second, const char *more) {
  dialogue d = {
      .sentinels = {fake_server_start(first), second != NULL ? fake_server_start(second) : NULL}};
  char uri[200], other[40] = "";
  if (second != NULL)
    snprintf(other, sizeof other, ",127.0.0.1:%d", fake_server_port(d.sentinels[1]));
  snprintf(uri, sizeof uri, "redis+sentinel://127.0.0.1:%d%s/main%s",
           fake_server_port(d.sentinels[0]), other, more);
  if (client_open(&d.c, &crl_plugin_redis_sentinel, uri) != CORRAL_OK)
    fail_msg("%s", d.c.error.text);
  d.pool = scripted_pool(&d.c, LIMIT);
  return d;
}

static void ended(dialogue *d) {
  crl_pool_free(d->pool);
  for (int i = 0; i < 2; i++)
    if (d->sentinels[i] != NULL) assert_true(fake_server_stop(d->sentinels[i]));
}

static int looks(dialogue *d) {
  corral_op op = {.verb = CORRAL_VERB_GET, .key = "k", .key_len = 1, .error = &d->error};
  crl_pool_perform(d->pool, &op, 1, INT64_MAX);
  if (op.found.drop != NULL) op.found.drop(op.found.owner);
  return op.status;
}

static int invalidates(dialogue *d) {
  corral_op op = {.verb = CORRAL_VERB_INVALIDATE, .key = "k", .key_len = 1, .error = &d->error};
  crl_pool_perform(d->pool, &op, 1, INT64_MAX);
  return op.status;
}

static const char *naming(const fake_server *server, const char *script) {
  static char texts[4][2000];
  static unsigned turn;
  char *text = texts[turn++ % 4];
  snprintf(text, sizeof texts[0], script, fake_server_port(server), fake_server_port(server));
  return text;
}

/* Until the sentinel that was asked has told something, or hung up, and a batch listens again. */
static void await_bell(const dialogue *d) {
  crl_redis_sentinel *s = d->c.store;
  struct pollfd bell = {.fd = s->bell_fd, .events = POLLIN};
  assert_true(bell.fd >= 0);
  assert_int_equal(poll(&bell, 1, LIMIT), 1);
  poll(NULL, 0, 150);
}

static void the_primary_that_a_sentinel_names_is_asked(void **state) {
  (void)state;
  fake_server *primary = fake_server_start(SERVES);
  dialogue d = with(naming(primary, CALLED NAMES), NULL, "");
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
  assert_true(fake_server_stop(primary));
}

static void a_primary_may_be_named_by_its_name(void **state) {
  (void)state;
  fake_server *primary = fake_server_start(SERVES);
  dialogue d = with(naming(primary, CALLED NAMES_AT("localhost")), NULL, "");
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
  assert_true(fake_server_stop(primary));
}

static void a_sentinel_that_names_a_replica_is_not_believed(void **state) {
  (void)state;
  fake_server *replica = fake_server_start(GREETED_BY(SLAVE)), *primary = fake_server_start(SERVES);
  dialogue d = with(naming(replica, CALLED NAMES), naming(primary, CALLED NAMES), "");
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
  assert_true(fake_server_stop(replica));
  assert_true(fake_server_stop(primary));
}

static void a_server_that_all_name_and_that_is_a_replica_is_sent_nothing(void **state) {
  (void)state;
  fake_server *replica = fake_server_start(GREETED_BY(SLAVE));
  dialogue d = with(naming(replica, CALLED NAMES), naming(replica, CALLED NAMES), "");
  assert_int_equal(looks(&d), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(d.error.text, "is no primary: its role is slave"));
  ended(&d);
  assert_true(fake_server_stop(replica));
}

static void sentinels_that_are_down_or_know_nothing_are_passed_over(void **state) {
  (void)state;
  static const char *const useless[] = {"CLOSE\n", CALLED NAMES_NONE,
                                        CALLED "SEND -ERR I don't know\\r\\n-ERR\\r\\n\n",
                                        CALLED "SEND +OK\\r\\n+OK\\r\\n\n"};
  for (size_t i = 0; i < sizeof useless / sizeof *useless; i++) {
    fake_server *primary = fake_server_start(GREETED LOOK);
    dialogue d = with(useless[i], naming(primary, CALLED NAMES), "");
    if (looks(&d) != CORRAL_EMISS) fail_msg("%zu: %s", i, d.error.text);
    ended(&d);
    assert_true(fake_server_stop(primary));
  }
}

static void what_is_wrong_with_sentinels_is_told(void **state) {
  (void)state;
  static const struct {
    const char *script, *text;
    int status;
  } all[] = {
      {CALLED NAMES_NONE, "knows no primary named 'main'", CORRAL_EUNAVAILABLE},
      {CALLED "SEND -ERR unknown command 'SENTINEL'\\r\\n-ERR\\r\\n\n",
       "write redis://127.0.0.1:", CORRAL_EUNSUPPORTED},
      {CALLED "SEND -NOAUTH Authentication required.\\r\\n-NOAUTH\\r\\n\n", "NOAUTH", CORRAL_EAUTH},
      {CALLED "SEND +OK\\r\\n+OK\\r\\n\n", "is it a sentinel?", CORRAL_EPROTOCOL},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    dialogue d = with(all[i].script, "CLOSE\n", "");
    assert_int_equal(looks(&d), all[i].status);
    if (strstr(d.error.text, all[i].text) == NULL) fail_msg("%s", d.error.text);
    ended(&d);
  }
}

static void a_sentinel_that_starts_is_asked_again_by_the_next_call(void **state) {
  (void)state;
  fake_server *primary = fake_server_start(GREETED LOOK);
  dialogue d = with(naming(primary, CALLED NAMES_NONE "ACCEPT\n" CALLED NAMES), NULL, "");
  assert_int_equal(looks(&d), CORRAL_EUNAVAILABLE);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
  assert_true(fake_server_stop(primary));
}

static void a_primary_that_starts_is_asked_again_by_the_next_call(void **state) {
  (void)state;
  static const char *const says[] = {"LOADING Redis is loading the dataset in memory",
                                     "MASTERDOWN Link with MASTER is down"};
  for (size_t i = 0; i < 2; i++) {
    char script[800];
    snprintf(script, sizeof script,
             "EXPECT TIME\\r\\n\nSEND -%s\\r\\n-%s\\r\\n-%s\\r\\n\nACCEPT\n" GREETED LOOK, says[i],
             says[i], says[i]);
    fake_server *primary = fake_server_start(script);
    dialogue d = with(naming(primary, CALLED NAMES "ACCEPT\n" CALLED NAMES), NULL, "");
    assert_int_equal(looks(&d), CORRAL_EUNAVAILABLE);
    if (looks(&d) != CORRAL_EMISS) fail_msg("%s: %s", says[i], d.error.text);
    ended(&d);
    assert_true(fake_server_stop(primary));
  }
}

/* Its first connection is silent for the share of the first sentinel. */
static void a_primary_that_is_slow_to_answer_is_tried_for_all_of_the_time(void **state) {
  (void)state;
  char uri[120];
  client c;
  fake_server *primary = fake_server_start("HANG\nACCEPT\n" GREETED);
  fake_server *sentinels[2] = {fake_server_start(naming(primary, CALLED NAMES)),
                               fake_server_start(naming(primary, CALLED NAMES))};
  snprintf(uri, sizeof uri, "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/main",
           fake_server_port(sentinels[0]), fake_server_port(sentinels[1]));
  if (client_begin(&c, &crl_plugin_redis_sentinel, uri, 14000) != CORRAL_OK)
    fail_msg("%s", c.error.text);
  client_end(&c);
  for (int i = 0; i < 2; i++) assert_true(fake_server_stop(sentinels[i]));
  assert_true(fake_server_stop(primary));
}

static void sentinels_have_a_user_and_a_password_of_their_own(void **state) {
  (void)state;
  fake_server *primary = fake_server_start(SERVES);
  dialogue d = with(naming(primary, "EXPECT AUTH\\r\\n$1\\r\\nu\\r\\n$1\\r\\ns\\r\\n\n"
                                    "SEND +OK\\r\\n\n" CALLED NAMES),
                    NULL, "?sentinel_user=u&sentinel_password=s");
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
  assert_true(fake_server_stop(primary));
}

/* ---- another primary ----------------------------------------------------------------------- */

/* An invalidation that the former primary got would stay without an answer. */
static void a_switch_that_a_sentinel_tells_sends_nothing_more_to_the_former_primary(void **state) {
  (void)state;
  char script[2000];
  fake_server *former = fake_server_start(SERVES "MEET 2\n"),
              *primary = fake_server_start(GREETED INVALIDATED LOOK);
  snprintf(script, sizeof script, CALLED NAMES "MEET 2\n" SWITCH("main", "%05d"),
           fake_server_port(former), fake_server_port(primary));
  dialogue d = with(script, NULL, "");
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  await_bell(&d);
  if (invalidates(&d) != CORRAL_OK) fail_msg("%s", d.error.text);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  corral_error why = {0};
  (void)crl_plugin_redis_sentinel.refresh(d.c.store, 0, &why);
  assert_string_equal(why.text, "another primary");
  ended(&d);
  assert_true(fake_server_stop(former));
  assert_true(fake_server_stop(primary));
}

static void a_switch_of_another_name_is_none_of_this_stores_business(void **state) {
  (void)state;
  fake_server *primary = fake_server_start(SERVES "MEET 2\n" LOOK);
  dialogue d = with(naming(primary, CALLED NAMES "MEET 2\n" SWITCH("mail", "11112")), NULL, "");
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  await_bell(&d);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
  assert_true(fake_server_stop(primary));
}

/* Callers go on; the refresh, which is behind them, asks again. */
static void a_sentinel_that_hangs_up_costs_no_call_and_is_asked_again(void **state) {
  (void)state;
  fake_server *primary = fake_server_start(SERVES "MEET 2\n" LOOK "ACCEPT\n" GREETED);
  dialogue d = with(naming(primary, CALLED NAMES "MEET 2\nCLOSE\nACCEPT\n" CALLED NAMES), NULL, "");
  crl_redis_sentinel *s = d.c.store;
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  await_bell(&d);
  poll(NULL, 0, 1000);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(s->bell_fd, -1);
  corral_error why = {0};
  int64_t deadline = d.c.host->now_ms() + LIMIT;
  assert_int_equal(crl_plugin_redis_sentinel.refresh(s, deadline, &why), CORRAL_OK);
  assert_string_equal(why.text, "");
  assert_true(s->bell_fd >= 0);
  ended(&d);
  assert_true(fake_server_stop(primary));
}

static void a_primary_that_says_that_it_is_a_replica_is_left(void **state) {
  (void)state;
  fake_server *primary = fake_server_start(
      SERVES "EXPECT EVALSHA\nSEND -READONLY You can't write against a read only replica.\\r\\n\n"
             "HANG\nACCEPT\n" GREETED_BY(SLAVE));
  dialogue d = with(naming(primary, CALLED NAMES), NULL, "");
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(invalidates(&d), CORRAL_EUNAVAILABLE);
  assert_int_equal(looks(&d), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(d.error.text, "is no primary: its role is slave"));
  ended(&d);
  assert_true(fake_server_stop(primary));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_primary_has_an_address_of_either_family_or_a_name),
      cmocka_unit_test(a_switch_of_this_primary_is_told_from_others),
      cmocka_unit_test(a_uri_names_sentinels_a_primary_and_a_database),
      cmocka_unit_test(the_primary_that_a_sentinel_names_is_asked),
      cmocka_unit_test(a_primary_may_be_named_by_its_name),
      cmocka_unit_test(a_sentinel_that_names_a_replica_is_not_believed),
      cmocka_unit_test(a_server_that_all_name_and_that_is_a_replica_is_sent_nothing),
      cmocka_unit_test(sentinels_that_are_down_or_know_nothing_are_passed_over),
      cmocka_unit_test(what_is_wrong_with_sentinels_is_told),
      cmocka_unit_test(a_sentinel_that_starts_is_asked_again_by_the_next_call),
      cmocka_unit_test(a_primary_that_starts_is_asked_again_by_the_next_call),
      cmocka_unit_test(a_primary_that_is_slow_to_answer_is_tried_for_all_of_the_time),
      cmocka_unit_test(sentinels_have_a_user_and_a_password_of_their_own),
      cmocka_unit_test(a_switch_that_a_sentinel_tells_sends_nothing_more_to_the_former_primary),
      cmocka_unit_test(a_switch_of_another_name_is_none_of_this_stores_business),
      cmocka_unit_test(a_sentinel_that_hangs_up_costs_no_call_and_is_asked_again),
      cmocka_unit_test(a_primary_that_says_that_it_is_a_replica_is_left),
  };
  return cmocka_run_group_tests_name("redis_sentinel_dialogue", tests, default_signals, NULL);
}
