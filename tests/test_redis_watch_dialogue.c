/* test_redis_watch_dialogue.c: a watch of the Redis plugin on a scripted server: replies that a
 * real server doesn't give. */
#include "support/redis_watch_kit.h"

#include <unistd.h>

#include "support/fake_server.h"

/* ---- a scripted server --------------------------------------------------------------------- */

#define GREETED                                                                                    \
  "EXPECT TIME\\r\\n\nSEND +OK\\r\\n@INFO*2\\r\\n$10\\r\\n1700000000\\r\\n$1\\r\\n0\\r\\n\n"
#define HELLO "EXPECT HELLO\\r\\n$1\\r\\n3\\r\\n\n"
#define WELCOME "SEND \\x252\\r\\n$6\\r\\nserver\\r\\n$5\\r\\nredis\\r\\n+modules\\r\\n*0\\r\\n\n"
#define ASKED HELLO WELCOME "EXPECT TRACKING\n"
#define NO_HELLO HELLO "SEND -NOPROTO unsupported protocol version\\r\\n\nACCEPT\n" GREETED
#define TRACKED ASKED "SEND +OK\\r\\n\n"
#define PUSH ">2\\r\\n$10\\r\\ninvalidate\\r\\n"

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
static int follows_until_its_end(const char *script, notes *n, char text[240]) {
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
      {NO_HELLO "EXPECT ID\\r\\n\nSEND -ERR unknown command 'CLIENT', with args\\r\\n\n",
       CORRAL_EUNSUPPORTED},
      {NO_HELLO "EXPECT ID\\r\\n\nSEND +OK\\r\\n\n", CORRAL_EPROTOCOL},
      {NO_HELLO "EXPECT ID\\r\\n\nSEND :0\\r\\n\n", CORRAL_EPROTOCOL},
      {NO_HELLO "EXPECT ID\\r\\n\nSEND :7\\r\\n\nEXPECT invalidate\nSEND -NOPERM no\\r\\n\n",
       CORRAL_EUNSUPPORTED},
      {NO_HELLO "EXPECT ID\\r\\n\nSEND :7\\r\\n\nEXPECT invalidate\nSEND +OK\\r\\n\n",
       CORRAL_EPROTOCOL},
      {NO_HELLO "CLOSE\n", CORRAL_EUNAVAILABLE},
      {ASKED "SEND -ERR Unknown subcommand or wrong number of arguments\\r\\n\n",
       CORRAL_EUNSUPPORTED},
      {ASKED "SEND -NOPERM no\\r\\n\n", CORRAL_EUNSUPPORTED},
      {ASKED "SEND !9\\r\\nNOPERM no\\r\\n\n", CORRAL_EUNSUPPORTED},
      {HELLO "SEND -BUSY Redis is busy\\r\\n\n", CORRAL_EUNAVAILABLE},
      {HELLO "CLOSE\n", CORRAL_EUNAVAILABLE},
      {HELLO "SEND +OK\\r\\n\n", CORRAL_EPROTOCOL},
      {HELLO "SEND *2\\r\\n$6\\r\\nserver\\r\\n$5\\r\\nredis\\r\\n\n", CORRAL_EPROTOCOL},
      {HELLO "SEND *99999999\\r\\n\n", CORRAL_EPROTOCOL},
      {ASKED "SEND :7\\r\\n\n", CORRAL_EPROTOCOL},
      {ASKED "SEND +KO\\r\\n\n", CORRAL_EPROTOCOL},
      {ASKED "SEND _\\r\\n\n", CORRAL_EPROTOCOL},
  };
  for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
    char script[1024], text[240];
    notes n = {.count = 0};
    snprintf(script, sizeof script, GREETED "%s", servers[i].steps);
    int status = follows_until_its_end(script, &n, text);
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
      "|1\\r\\n+a\\r\\n+b\\r\\n",
      "+OK\\n",
      "$2\\r\\nabc\\r\\n",
      "$-2\\r\\n",
      "_x\\r\\n",
      ":-\\r\\n",
      ">0\\r\\n",
      ">-1\\r\\n",
      ">1\\r\\n$10\\r\\ninvalidate\\r\\n",
      ">3\\r\\n$10\\r\\ninvalidate\\r\\n*1\\r\\n$1\\r\\nk\\r\\n_\\r\\n",
      PUSH ":1\\r\\n",
      PUSH "*1\\r\\n:1\\r\\n",
      PUSH "*1\\r\\n+k\\r\\n",
      PUSH "*1\\r\\n*1\\r\\n$1\\r\\nk\\r\\n",
      PUSH "*2\\r\\n$1\\r\\nk\\r\\n$-1\\r\\n",
      PUSH "*1048577\\r\\n",
      PUSH "*2147483647\\r\\n",
      PUSH "*1\\r\\n$99999999999999999999\\r\\n",
      PUSH "*1\\r\\n$1048577\\r\\n",
  };
  for (size_t i = 0; i < sizeof pushes / sizeof *pushes; i++) {
    char script[1024], text[240];
    notes n = {.count = 0};
    snprintf(script, sizeof script, GREETED TRACKED "SEND %s\n", pushes[i]);
    int status = follows_until_its_end(script, &n, text);
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
  int used = snprintf(script, 1 << 20, GREETED TRACKED "SEND " PUSH "*200\\r\\n");
  for (int i = 0; i < 200; i++) used += snprintf(script + used, 64, "$4\\r\\nk%03d\\r\\n", i);
  snprintf(script + used, 64, "\nCLOSE\n");
  assert_int_equal(follows_until_its_end(script, &n, text), CORRAL_EUNAVAILABLE);
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
  int status = follows_until_its_end(GREETED TRACKED
                                     "TRICKLE 400 "
                                     "$9999\\r\\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                                     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                                     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                                     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
                                     &n, text);
  assert_int_equal(status, CORRAL_EUNAVAILABLE);
}

static void a_null_push_tells_of_any_key_and_pushes_of_other_kinds_of_none(void **state) {
  (void)state;
  char text[240];
  static const char *const nulls[] = {"_\\r\\n", "*-1\\r\\n", "$-1\\r\\n"};
  for (size_t i = 0; i < 3; i++) {
    char script[1024];
    notes n = {.count = 0};
    snprintf(script, sizeof script,
             GREETED TRACKED "SEND >3\\r\\n+message\\r\\n+channel\\r\\n%%1\\r\\n+a\\r\\n:1\\r\\n\n"
                             "SEND " PUSH "%s\nCLOSE\n",
             nulls[i]);
    assert_int_equal(follows_until_its_end(script, &n, text), CORRAL_EUNAVAILABLE);
    assert_int_equal(n.count, 1);
    assert_true(has(&n, 0));
  }
}

/* ---- registering --------------------------------------------------------------------------- */

#define LOOKS "EXPECT $2\\r\\nk2\\r\\n$1\\r\\n0\\r\\n$2\\r\\n47\\r\\n\n"
#define PUSHED PUSH "*1\\r\\n$5\\r\\nother\\r\\n"

static void replies_to_a_registration(void **state) {
  (void)state;
  static const struct {
    const char *steps;
    int status, one, two;
  } answers[] = {
      {"SEND $0\\r\\n\\r\\n$3\\r\\nabc\\r\\n\n", CORRAL_OK, CORRAL_EMISS, CORRAL_OK},
      {"SEND " PUSHED "$0\\r\\n\\r\\n" PUSHED "$3\\r\\nabc\\r\\n\n", CORRAL_OK, CORRAL_EMISS,
       CORRAL_OK},
      {"SEND -WRONGTYPE no\\r\\n-LOADING wait\\r\\n\n", CORRAL_OK, CORRAL_EFOREIGN,
       CORRAL_EUNAVAILABLE},
      {"SEND -NOPERM no\\r\\n-ERR what\\r\\n\n", CORRAL_OK, CORRAL_EAUTH, CORRAL_EREFUSED},
      {"SEND $0\\r\\n\\r\\n:1\\r\\n\n", CORRAL_EPROTOCOL, CORRAL_EMISS, CORRAL_EINDOUBT},
      {"SEND $0\\r\\n\\r\\n_\\r\\n\n", CORRAL_EPROTOCOL, CORRAL_EMISS, CORRAL_EINDOUBT},
      {"SEND $49\\r\\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\\r\\n\n", CORRAL_EPROTOCOL,
       CORRAL_EINDOUBT, CORRAL_EINDOUBT},
      {"SEND $0\\r\\n\\r\\n$3\\r\\nab\nCLOSE\n", CORRAL_EUNAVAILABLE, CORRAL_EMISS,
       CORRAL_EINDOUBT},
      {"CLOSE\n", CORRAL_EUNAVAILABLE, CORRAL_EINDOUBT, CORRAL_EINDOUBT},
  };
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    char script[1024];
    fake_server *fake;
    corral_registration keys[] = {{.key = "k1", .key_len = 2}, {.key = "k2", .key_len = 2}};
    snprintf(script, sizeof script, GREETED TRACKED LOOKS "%s", answers[i].steps);
    client c = scripted(script, &fake);
    void *watch = watching(&c);
    int status = registers(&c, watch, keys, 2);
    if (status != answers[i].status || keys[0].status != answers[i].one ||
        keys[1].status != answers[i].two)
      fail_msg("%s: %s, %s, %s", answers[i].steps, corral_status_name(status),
               corral_status_name(keys[0].status), corral_status_name(keys[1].status));
    crl_plugin_redis.unwatch(watch);
    closed(&c);
    assert_true(fake_server_stop(fake));
  }
}

static void a_registration_without_a_reply_ends_by_its_deadline_and_by_stop_fd(void **state) {
  (void)state;
  for (int stops = 0; stops < 2; stops++) {
    fake_server *fake;
    int fds[2];
    corral_registration key = {.key = "k2", .key_len = 2, .status = CORRAL_EINDOUBT};
    client c = scripted(GREETED TRACKED LOOKS "HANG\n", &fake);
    void *watch = watching(&c);
    assert_int_equal(pipe(fds), 0);
    if (stops) assert_int_equal(write(fds[1], "", 1), 1);
    int64_t limit = c.host->now_ms() + (stops ? HOUR : 50);
    int status = crl_plugin_redis.register_keys(watch, &key, 1, fds[0], limit, &c.error);
    assert_int_equal(status, stops ? CORRAL_ECANCELLED : CORRAL_EUNAVAILABLE);
    assert_int_equal(key.status, CORRAL_EINDOUBT);
    close(fds[0]);
    close(fds[1]);
    crl_plugin_redis.unwatch(watch);
    closed(&c);
    fake_server_stop(fake);
  }
}

/* ---- the limit of a silence ----------------------------------------------------------------- */

enum { STEP_MS = 10, TICK_MS = 250 };

/* The plugin's clock; each time that it is read it goes on by `tick`. */
static struct test_clock { int64_t now, tick; } test_clock;

static int64_t read_clock(void) { return test_clock.now += test_clock.tick; }

/* A watch on a server that says nothing after the greeting. The clock stands. */
static void *silent_watch(client *c, fake_server **ret) {
  static corral_host host;
  char text[64];
  crl_uri uri;
  host = *crl_registry_host();
  host.now_ms = read_clock;
  test_clock.now = HOUR;
  test_clock.tick = 0;
  *ret = fake_server_start(GREETED TRACKED "HANG\n");
  memset(c, 0, sizeof *c);
  c->host = &host;
  c->plugin = &crl_plugin_redis;
  c->info.size = sizeof c->info;
  snprintf(text, sizeof text, "redis://127.0.0.1:%d", fake_server_port(*ret));
  assert_int_equal(crl_uri_parse(&uri, text, &c->error), CORRAL_OK);
  assert_int_equal(crl_plugin_redis.open(&host, &uri.view, &c->store, &c->info, &c->error),
                   CORRAL_OK);
  crl_uri_free(&uri);
  return watching(c);
}

/* Listens until `until`, in steps, without waiting; returns the last status. */
static int hears_until(client *c, void *watch, int64_t until) {
  notes n = {.count = 0};
  int ready[2], status = CORRAL_OK;
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(write(ready[1], "", 1), 1);
  while (status == CORRAL_OK && test_clock.now < until) {
    test_clock.now += STEP_MS;
    status = crl_plugin_redis.changes(watch, ready[0], INT64_MAX, note, &n, &c->error);
  }
  close(ready[0]);
  close(ready[1]);
  return status;
}

static void a_silent_watch_is_given_up_within_the_public_limit(void **state) {
  (void)state;
  client c;
  fake_server *fake;
  void *watch = silent_watch(&c, &fake);
  int64_t began = test_clock.now;
  assert_int_equal(hears_until(&c, watch, began + HOUR), CORRAL_EUNAVAILABLE);
  assert_in_range(test_clock.now - began, CORRAL_SILENCE_MS / 4, CORRAL_SILENCE_MS);
  assert_non_null(strstr(c.error.text, "sign of life"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
  fake_server_stop(fake);
}

/* Whenever in the silence it begins: before a PING is due, and after. */
static void a_registration_does_not_prolong_a_silence(void **state) {
  (void)state;
  static const int64_t begins[] = {0, CORRAL_SILENCE_MS / 2 - STEP_MS, CORRAL_SILENCE_MS * 3 / 4};
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
    client c;
    fake_server *fake;
    corral_registration key = {.key = "k2", .key_len = 2, .status = CORRAL_EINDOUBT};
    void *watch = silent_watch(&c, &fake);
    int64_t began = test_clock.now;
    assert_int_equal(hears_until(&c, watch, began + begins[i]), CORRAL_OK);
    int64_t limit = test_clock.now + CORRAL_SILENCE_MS;
    test_clock.tick = TICK_MS;
    assert_int_equal(crl_plugin_redis.register_keys(watch, &key, 1, -1, limit, &c.error),
                     CORRAL_EUNAVAILABLE);
    assert_in_range(test_clock.now - began, begins[i], CORRAL_SILENCE_MS + TICK_MS);
    test_clock.tick = 0;
    crl_plugin_redis.unwatch(watch);
    closed(&c);
    fake_server_stop(fake);
  }
}

/* ---- random bytes -------------------------------------------------------------------------- */

static uint32_t seed;

static uint32_t pick(uint32_t below) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % below;
}

/* Makes a SEND of random pushes: unchanged, with bytes changed, doubled or left out, cut off. */
static void garbage(char *script, size_t size) {
  static const char *const seeds[] = {">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\nk\r\n$3\r\nkey\r\n",
                                      ">2\r\n$10\r\ninvalidate\r\n_\r\n", "+PONG\r\n",
                                      "-ERR no\r\n", ":12\r\n"};
  static const char likely[] = "*$:+-_,#(>~%|!=0123456789\r\n\0";
  size_t used = (size_t)snprintf(script, size, GREETED TRACKED "SEND ");
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
    int status = follows_until_its_end(script, &n, text);
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
      cmocka_unit_test(a_null_push_tells_of_any_key_and_pushes_of_other_kinds_of_none),
      cmocka_unit_test(replies_to_a_registration),
      cmocka_unit_test(a_registration_without_a_reply_ends_by_its_deadline_and_by_stop_fd),
      cmocka_unit_test(a_silent_watch_is_given_up_within_the_public_limit),
      cmocka_unit_test(a_registration_does_not_prolong_a_silence),
      cmocka_unit_test(random_pushes_end_the_watch_and_nothing_else),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
