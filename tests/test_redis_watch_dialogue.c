/* test_redis_watch_dialogue.c: a watch of the Redis plugin on a scripted server: replies that a
 * real server doesn't give. */
#include "support/redis_watch_kit.h"

#include "../plugins/redis/redis.h"
#include "support/fake_server.h"

/* ---- a scripted server --------------------------------------------------------------------- */

#define GREETED                                                                                    \
  "EXPECT TIME\\r\\n\nSEND +OK\\r\\n*2\\r\\n$10\\r\\n1700000000\\r\\n$1\\r\\n0\\r\\n\n"
#define MAY "SEND :7\\r\\n+OK\\r\\n-ERR only in tracking mode\\r\\n\n"
#define SUBSCRIBED                                                                                 \
  "EXPECT SUBSCRIBE\n" MAY                                                                         \
  "SEND *3\\r\\n$9\\r\\nsubscribe\\r\\n$20\\r\\n__redis__:invalidate\\r\\n:1\\r\\n\n"
#define MESSAGE "*3\\r\\n$7\\r\\nmessage\\r\\n$20\\r\\n__redis__:invalidate\\r\\n"

/* Opens a store on a scripted server, without a handle. */
static client scripted(const char *script, fake_server **ret) {
  client c;
  char text[64];
  *ret = fake_server_start(script);
  snprintf(text, sizeof text, "redis://127.0.0.1:%d", fake_server_port(*ret));
  assert_int_equal(client_open(&c, &crl_plugin_redis, text), CORRAL_OK);
  return c;
}

/* Opens a watch on a scripted server and calls `changes` until it fails. Returns the last
 * status. */
static int follows(const char *script, notes *n, char text[240]) {
  fake_server *fake;
  client c = scripted(script, &fake);
  void *watch = NULL;
  int status = watches(&c, &watch);
  int64_t until = c.host->now_ms() + LIMIT;
  while (status == CORRAL_OK && c.host->now_ms() < until)
    status = hears(&c, watch, until - c.host->now_ms(), n);
  memcpy(text, c.error.text, sizeof c.error.text);
  if (watch != NULL) crl_plugin_redis.unwatch(watch);
  closed(&c);
  assert_true(fake_server_stop(fake));
  return status;
}

static void a_server_that_does_not_know_it_is_unsupported(void **state) {
  (void)state;
  static const struct {
    const char *steps;
    int status;
  } servers[] = {
      {"SEND -ERR unknown command 'CLIENT', with args\\r\\n\n", CORRAL_EUNSUPPORTED},
      {"SEND -ERR Unknown subcommand or wrong number of arguments for 'ID'\\r\\n\n",
       CORRAL_EUNSUPPORTED},
      {"SEND :7\\r\\n-ERR Unknown subcommand or wrong number of arguments for 'TRACKING'\\r\\n\n",
       CORRAL_EUNSUPPORTED},
      {"SEND :7\\r\\n-NOPERM no\\r\\n\n", CORRAL_EUNSUPPORTED},
      {"SEND :7\\r\\n+OK\\r\\n-NOPERM no\\r\\n\n", CORRAL_EUNSUPPORTED},
      {MAY "SEND -ERR unknown command `SUBSCRIBE`\\r\\n\n", CORRAL_EUNSUPPORTED},
      {"SEND -BUSY Redis is busy\\r\\n\n", CORRAL_EUNAVAILABLE},
      {"CLOSE\n", CORRAL_EUNAVAILABLE},
      {"SEND +OK\\r\\n\n", CORRAL_EPROTOCOL},
      {"SEND :0\\r\\n\n", CORRAL_EPROTOCOL},
      {"SEND :7\\r\\n:7\\r\\n\n", CORRAL_EPROTOCOL},
      {"SEND :7\\r\\n+OK\\r\\n:7\\r\\n\n", CORRAL_EPROTOCOL},
      {MAY "SEND +OK\\r\\n\n", CORRAL_EPROTOCOL},
      {MAY "SEND *3\\r\\n:1\\r\\n:1\\r\\n:1\\r\\n\n", CORRAL_EPROTOCOL},
      {MAY "SEND *99999999\\r\\n\n", CORRAL_EPROTOCOL},
  };
  for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
    char script[1024], text[240];
    notes n = {.count = 0};
    snprintf(script, sizeof script, GREETED "EXPECT SUBSCRIBE\n%s", servers[i].steps);
    int status = follows(script, &n, text);
    if (status != servers[i].status)
      fail_msg("%s: %s: %s", servers[i].steps, corral_status_name(status), text);
    assert_true(text[0] != '\0');
  }
}

static void a_strange_push_breaks_the_watch(void **state) {
  (void)state;
  static const char *const pushes[] = {
      "+OK\\r\\n",
      "+PONG\\r\\n",
      ":1\\r\\n",
      "$-1\\r\\n",
      "*0\\r\\n",
      "*-1\\r\\n",
      "-ERR who asked\\r\\n",
      "HTTP/1.1 400 Bad Request\\r\\n\\r\\n",
      "*2\\r\\n$4\\r\\npong\\r\\n$0\\r\\n\\r\\n",
      "*3\\r\\n$4\\r\\npong\\r\\n$0\\r\\n\\r\\n:1\\r\\n",
      "*3\\r\\n:1\\r\\n:1\\r\\n:1\\r\\n",
      "*3\\r\\n$7\\r\\nmessage\\r\\n$5\\r\\nother\\r\\n*1\\r\\n$1\\r\\nk\\r\\n",
      "*3\\r\\n$7\\r\\nmessage\\r\\n:1\\r\\n*1\\r\\n$1\\r\\nk\\r\\n",
      "*3\\r\\n$11\\r\\nunsubscribe\\r\\n$20\\r\\n__redis__:invalidate\\r\\n:0\\r\\n",
      "*2\\r\\n$7\\r\\nmessage\\r\\n$20\\r\\n__redis__:invalidate\\r\\n",
      MESSAGE ":1\\r\\n",
      MESSAGE "*1\\r\\n:1\\r\\n",
      MESSAGE "*1\\r\\n+k\\r\\n",
      MESSAGE "*1\\r\\n*1\\r\\n$1\\r\\nk\\r\\n",
      MESSAGE "*2\\r\\n$1\\r\\nk\\r\\n$-1\\r\\n",
      MESSAGE "*1048577\\r\\n",
      MESSAGE "*2147483647\\r\\n",
      MESSAGE "*1\\r\\n$99999999999999999999\\r\\n",
  };
  for (size_t i = 0; i < sizeof pushes / sizeof *pushes; i++) {
    char script[1024], text[240];
    notes n = {.count = 0};
    snprintf(script, sizeof script, GREETED SUBSCRIBED "SEND %s\n", pushes[i]);
    int status = follows(script, &n, text);
    if (status != CORRAL_EPROTOCOL)
      fail_msg("%s: %s: %s", pushes[i], corral_status_name(status), text);
    assert_true(text[0] != '\0');
  }
}

static void a_push_of_many_keys_tells_of_each(void **state) {
  (void)state;
  char *script = malloc(1 << 20), text[240];
  notes n = {.count = 0};
  assert_non_null(script);
  int used = snprintf(script, 1 << 20, GREETED SUBSCRIBED "SEND " MESSAGE "*200\\r\\n");
  for (int i = 0; i < 200; i++) used += snprintf(script + used, 64, "$4\\r\\nk%03d\\r\\n", i);
  snprintf(script + used, 64, "\nCLOSE\n");
  assert_int_equal(follows(script, &n, text), CORRAL_EUNAVAILABLE);
  assert_int_equal(n.count, 200);
  for (int i = 0; i < 200; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%03d", i);
    assert_true(has(&n, hash_of(key)));
  }
  free(script);
}

static void a_server_that_never_says_a_whole_reply_is_given_up(void **state) {
  (void)state;
  char text[240];
  notes n = {.count = 0};
  int64_t before = crl_registry_host()->now_ms();
  int status = follows(GREETED SUBSCRIBED "TRICKLE 40 "
                                          "$9999\\r\\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                                          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                                          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                                          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
                       &n, text);
  assert_int_equal(status, CORRAL_EUNAVAILABLE);
  assert_true(crl_registry_host()->now_ms() - before < 3000);
}

/* Opens a store with a handle on a scripted server, with the id of a watch that doesn't exist. */
static client looking(const char *script, fake_server **ret) {
  client c = scripted(script, ret);
  assert_int_equal(crl_plugin_redis.connect(c.store, c.host->now_ms() + LIMIT, &c.handle, &c.error),
                   CORRAL_OK);
  ((crl_redis_store *)c.store)->watch = 7;
  return c;
}

#define LOOK "EXPECT PTTL\\r\\n$1\\r\\nk\\r\\n\n"

static void a_refusal_of_a_moment_is_asked_again(void **state) {
  (void)state;
  fake_server *fake;
  client c = looking(GREETED LOOK LOOK
                     "SEND -BUSY a script\\r\\n-ERR only in tracking mode\\r\\n$-1\\r\\n:-2\\r\\n\n"
                     "SEND -ERR only in tracking mode\\r\\n$-1\\r\\n:-2\\r\\n\n"
                     "EXPECT TRACKING\n" LOOK "SEND +OK\\r\\n+OK\\r\\n$-1\\r\\n:-2\\r\\n\n",
                     &fake);
  corral_op ops[] = {look_of("k"), look_of("k")};
  assert_int_equal(perform(&c, ops, 2), CORRAL_OK);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(ops[i].status, CORRAL_EMISS);
    assert_int_equal(ops[i].flags, CORRAL_OP_WATCH);
  }
  assert_true(watched(&c, "k"));
  closed(&c);
  assert_true(fake_server_stop(fake));
}

static void a_look_that_fails_is_not_watched(void **state) {
  (void)state;
  static const struct {
    const char *steps;
    int broken, status;
  } answers[] = {
      {"SEND +OK\\r\\n+OK\\r\\n-LOADING wait\\r\\n:-2\\r\\n\n", CORRAL_OK, CORRAL_EUNAVAILABLE},
      {"SEND +OK\\r\\n+OK\\r\\n$5\\r\\nhello\\r\\n:-1\\r\\n\n", CORRAL_OK, CORRAL_EFOREIGN},
      {"SEND +QUEUED\\r\\n+OK\\r\\n$-1\\r\\n:-2\\r\\n\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL},
      {"SEND +OK\\r\\n:1\\r\\n$-1\\r\\n:-2\\r\\n\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL},
      {"SEND +OK\\r\\n+OK\\r\\n+OK\\r\\n:-2\\r\\n\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL},
      {"SEND +OK\\r\\n-ERR Protocol error\\r\\n\nCLOSE\n", CORRAL_EUNAVAILABLE, CORRAL_EPROTOCOL},
      {"SEND +OK\\r\\n+OK\\r\\n\nCLOSE\n", CORRAL_EUNAVAILABLE, CORRAL_EINDOUBT},
  };
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    char script[1024];
    fake_server *fake;
    snprintf(script, sizeof script, GREETED LOOK "%s", answers[i].steps);
    client c = looking(script, &fake);
    corral_op op = look_of("k");
    int broken = perform(&c, &op, 1);
    if (broken != answers[i].broken || op.status != answers[i].status ||
        op.flags != CORRAL_OP_WATCH)
      fail_msg("%s: %s, %s, flags %u", answers[i].steps, corral_status_name(broken),
               corral_status_name(op.status), op.flags);
    closed(&c);
    assert_true(fake_server_stop(fake));
  }
}

/* the client whose watch ends during a look: at the second call for the time */
static client *losing;
static int questions;

static int64_t now_and_then(void) {
  if (++questions == 2) ((crl_redis_store *)losing->store)->watch = 0;
  return crl_registry_host()->now_ms();
}

static void a_watch_that_ends_while_a_look_is_under_way_is_not_promised(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  corral_host host = *c.host;
  crl_redis_store *store = c.store;
  host.now_ms = now_and_then;
  store->host = &host;
  losing = &c;
  questions = 0;
  long long before = calls("client|caching");
  assert_false(watched(&c, "k"));
  assert_int_equal(calls("client|caching"), before + 1); /* the request was sent already */
  store->host = c.host;
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

/* ---- random bytes -------------------------------------------------------------------------- */

static uint32_t seed;

static uint32_t pick(uint32_t below) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % below;
}

/* Makes a SEND of random pushes: unchanged, with bytes changed, doubled or left out, cut off. */
static void garbage(char *script, size_t size) {
  static const char *const seeds[] = {
      "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*2\r\n$1\r\nk\r\n$3\r\nkey\r\n",
      "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n$-1\r\n",
      "*2\r\n$4\r\npong\r\n$0\r\n\r\n", "-ERR no\r\n", ":12\r\n"};
  static const char likely[] = "*$:+-_,#(>~%|!=0123456789\r\n\0";
  size_t used = (size_t)snprintf(script, size, GREETED SUBSCRIBED "SEND ");
  for (uint32_t parts = 1 + pick(4); parts > 0; parts--) {
    const char *from = seeds[pick(pick(3) == 0 ? 5 : 2)];
    size_t len = pick(4) == 0 ? pick((uint32_t)strlen(from)) + 1 : strlen(from);
    for (size_t i = 0; i < len; i++) {
      int what = (int)pick(250);
      unsigned byte = (unsigned char)from[i];
      if (what == 0) continue;
      if (what == 1) byte = pick(256);
      if (what == 2) byte = (unsigned char)likely[pick(sizeof likely)];
      for (int times = what == 3 ? 2 : 1; times > 0; times--)
        used += (size_t)snprintf(script + used, size - used, "\\x%02x", byte);
    }
  }
  snprintf(script + used, size - used, "\nCLOSE\n");
}

static void random_pushes_end_the_watch_and_nothing_else(void **state) {
  (void)state;
  uint32_t first = seed = (uint32_t)crl_registry_host()->now_ms();
  int strange = 0, fine = 0;
  for (int i = 0; i < 400; i++) {
    char script[8192], text[240];
    notes n = {.count = 0};
    garbage(script, sizeof script);
    int status = follows(script, &n, text);
    if (status != CORRAL_EPROTOCOL && status != CORRAL_EUNAVAILABLE)
      fail_msg("seed %u, number %d: %s: %s: %s", first, i, corral_status_name(status), text,
               script);
    strange += status == CORRAL_EPROTOCOL;
    fine += n.count > 0;
  }
  assert_true(strange > 40);
  assert_true(fine > 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_server_that_does_not_know_it_is_unsupported),
      cmocka_unit_test(a_strange_push_breaks_the_watch),
      cmocka_unit_test(a_push_of_many_keys_tells_of_each),
      cmocka_unit_test(a_server_that_never_says_a_whole_reply_is_given_up),
      cmocka_unit_test(a_refusal_of_a_moment_is_asked_again),
      cmocka_unit_test(a_look_that_fails_is_not_watched),
      cmocka_unit_test(a_watch_that_ends_while_a_look_is_under_way_is_not_promised),
      cmocka_unit_test(random_pushes_end_the_watch_and_nothing_else),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
