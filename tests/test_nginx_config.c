/* test_nginx_config.c: the nginx module's directives: refused values, inheritance; purging, tags,
 * and the counters. */
#include <time.h>

#include "support/nginx_kit.h"

#define ZONE "corral_zone pages store=%REDIS%;"

static void a_wrong_directive_is_named_with_what_is_accepted(void **state) {
  (void)state;
  static const struct {
    const char *http, *said;
  } rows[] = {
      {"corral_zone pages near=1m;", "corral_zone \"pages\": store=URI is missing"},
      {"corral_zone pages store=nowhere:;", "no store plugin for 'nowhere:'"},
      {"corral_zone pages store=redis://h:99999/;", "corral_zone \"pages\": "},
      {"corral_zone pages store=%REDIS% near=much;",
       "corral_zone: near: 'much' is no size; accepted: off, 1 to 1t"},
      {"corral_zone pages store=%REDIS% op=0;", "corral_zone: op: '0' is out of range; accepted"},
      {"corral_zone pages store=%REDIS% handles=65;",
       "handles: '65' is out of range; accepted: 0 to 64"},
      {"corral_zone pages store=%REDIS% size=3;",
       "\"size=3\" isn't valid; accepted: NAME=VALUE, with one of store, namespace"},
      {"corral_zone pages store=%REDIS% ttl=3;", "\"ttl=3\" isn't valid"},
      {"corral_zone pages store=%REDIS% jitter=91;", "accepted: off, 1% to 90%"},
      {"corral_zone pages store=%REDIS% host_lock=maybe;", "accepted: on, off"},
      {"corral_zone pages store=%REDIS% away=maybe;", "accepted: compute|stale|error"},
      {"corral_zone off store=%REDIS%;", "a name of 1 to 100 bytes other than \"off\""},
      {ZONE ZONE, "there is a zone \"pages\" already"},
      {"server { corral other; }",
       "corral: there is no zone \"other\"; corral_zone in http{} makes one"},
      {ZONE "server { location / { corral pages; corral pages; } }", "is duplicate"},
      {ZONE "corral_stale sometimes;", "corral_stale: 'sometimes' is no duration; accepted: off,"},
      {ZONE "corral_stale 1m 2m;", "invalid number of arguments"},
      {ZONE "corral_stale 1m; corral_stale 2m;", "is duplicate"},
      {ZONE "corral_stale_if_error soon;", "corral_stale_if_error: 'soon' is no duration"},
      {ZONE "corral_revalidate soon;", "\"corral_revalidate\" directive invalid value"},
      {ZONE "corral_revalidate off; corral_revalidate 1m;", "is duplicate"},
      {ZONE "corral_wait 0;", "corral_wait: '0' is out of range; accepted: 1ms to 1d"},
      {ZONE "corral_heuristic 101%;", "accepts off, or 1% to 100%"},
      {ZONE "corral_heuristic half;", "accepts off, or 1% to 100%"},
      {ZONE "corral_at_deadline maybe;",
       "corral_at_deadline: 'maybe' is not accepted; accepted: error|compute"},
      {ZONE "corral_early 91%;", "corral_early: '91%' is out of range; accepted: off, 1% to 90%"},
      {ZONE "corral_methods GET POST;", "invalid value \"POST\""},
      {ZONE "corral_valid 1000 1m;", "invalid status \"1000\""},
      {ZONE "corral_cache_status 'a\"b';", "corral_cache_status: \"a\"b\" isn't valid"},
      {ZONE "server { location / { corral pages; corral_pass http://x/; } }",
       "corral_pass: \"http://x/\" isn't valid; accepted: a named location"},
      {ZONE "server { location / { corral_pass @x; } }", "corral_pass: needs \"corral ZONE\""},
      {ZONE "server { location / { corral_purge pages $uri all; } }",
       "corral_purge: \"all\" isn't valid; accepted: tag or prefix"},
      {ZONE "server { location / { corral_purge other $uri; } }",
       "corral_purge: there is no zone \"other\""},
      {ZONE "server { location / { corral_purge pages all tag; } }",
       "corral_purge: \"tag\" isn't valid; accepted: tag or prefix"},
      {ZONE "corral_min_uses 0;", "value must be between 1 and 1000000"},
      {ZONE "corral_deadline_max 0;", "value must be between 1 and 1000000"},
      {ZONE "corral_path_tags 9;", "value must be between 0 and 8"},
      {ZONE "corral_tag a; corral_tag b;", "is duplicate"},
      {ZONE "corral_purge_from everywhere;", "invalid value \"everywhere\""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int status;
    const char *said = nginx_kit_config(rows[i].http, &status);
    if (status == 0 || strstr(said, rows[i].said) == NULL || strstr(said, "Sanitizer") != NULL)
      fail_msg("%s\nsaid: %s", rows[i].http, said);
  }
}

static void every_directive_is_accepted_where_it_belongs(void **state) {
  (void)state;
  int status;
  const char *said = nginx_kit_config(
      "server { location / { corral pages; } location /off { corral off; } }\n"
      "corral_zone pages store=%REDIS% near=64m near_ttl=2s namespace=a handles=4 op=100ms "
      "max_computes=100 fleet_max=10 ramp=on\n"
      "  host_lock=on jitter=0 compute=1m;\n"
      "corral_zone more store=memory: near=off host_lock=off;\n"
      "corral_zone others store=memory: generation=on compress=4k max_value=8m watch=off "
      "away=stale breaker_failures=2 breaker_rest=2s outbox=1m outbox_ttl=30s lease=3s "
      "lease_min=100ms pass_ttl=5s poll=10ms poll_max=100ms host_dir=/tmp origin=pages;\n"
      "corral_zone fields store=memory: when_away=compute near_ms=500 name_space=b;\n"
      "corral more; corral_key $host$uri; corral_valid 200 1m; corral_valid any 10s; "
      "corral_ignore_headers Vary X-Accel-Expires;\n"
      "corral_stale 1m; corral_stale_if_error 1h; corral_wait 3; corral_at_deadline compute; "
      "corral_deadline_max 4; "
      "corral_early 10; corral_early_beta 50; corral_soft 1s; corral_retry 2s; corral_retry_max "
      "1m; corral_at_failure error; corral_heuristic 20%; "
      "corral_settle_behind on; corral_methods GET HEAD; corral_revalidate 1h;\n"
      "corral_bypass $arg_a; corral_no_store $arg_b; corral_max_size 4m; corral_tag Surrogate-Key "
      "Cache-Tag; "
      "corral_cache_status edge;\n"
      "server { corral_stale off; corral_early off; corral_revalidate off; location / { "
      "corral_pass @x; } location @x { "
      "return 200; }\n"
      "  corral_purge_from local; corral_purge_method on; corral_path_tags 4; corral_min_uses 3; "
      "corral_refresh $http_pragma;\n"
      "  location /a { corral_purge others all soft; } location /b { corral_purge pages; }\n"
      "  location /c { corral_purge pages soft; } location /d { corral_purge pages $arg_p prefix "
      "soft; corral_tag off; }\n"
      "  location /p { corral_purge pages $arg_key; } location /t { corral_purge pages $arg_tag "
      "tag; corral_purge_from any; } location /s { corral_status; } }",
      &status);
  if (status != 0) fail_msg("%s", said);
}

/* ---- on a server --------------------------------------------------------------------------- */

#define LOCATIONS                                                                                  \
  "corral pages; corral_valid 1m; corral_key $uri; corral_tag Surrogate-Key;"                      \
  "location = /status { corral_status; }"                                                          \
  "location /purge/ { corral_purge pages $arg_key; }"                                              \
  "location /purge_tag/ { corral_purge pages $arg_tag tag; }"                                      \
  "location /purge_any/ { corral_purge pages $arg_key; corral_purge_from any; }"                   \
  "location / { proxy_pass %ORIGIN%; }"                                                            \
  "location /off/ { corral off; proxy_pass %ORIGIN%; }"

static nginx_server *server;

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){.locations = LOCATIONS,
                                             .zone = "near=8m near_ttl=1h",
                                             .workers = 1,
                                             .http = "corral_zone quiet store=memory:;"});
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

static void a_location_inherits_corral_and_may_switch_it_off(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/inherits", HTTP_ANSWER(.body = "page", .numbered = 1));
  for (int i = 0; i < 2; i++)
    nginx_kit_expect(server, "/inherits?ignored=1", NULL, 200, "page 1", NULL);
  http_origin_answer(nginx_kit_origin, "/off/page", HTTP_ANSWER(.body = "page", .numbered = 1));
  for (int i = 1; i < 3; i++)
    assert_string_equal(nginx_kit_expect(server, "/off/page", NULL, 200,
                                         i == 1 ? "page 1" : "page 2", "cache-status"),
                        "");
}

/* Sends a request with any method; status and body must be as given. */
static void expect_asked(const char *method, const char *path, const char *headers, int status,
                         const char *body) {
  http_reply reply = nginx_kit_ask(server, method, path, headers);
  if (reply.status != status || (body != NULL && strcmp(reply.body, body) != 0))
    fail_msg("%s %s %s: %d %s", method, path, headers != NULL ? headers : "", reply.status,
             reply.body);
  http_reply_free(&reply);
}

static void a_purged_page_is_gone_with_all_its_variants(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/purged",
                     HTTP_ANSWER(.body = "page", .numbered = 1, .headers = "Vary: X-Kind\r\n"));
  for (int round = 0; round < 2; round++) {
    char a[16], b[16];
    snprintf(a, sizeof a, "page %d", round * 2 + 1);
    snprintf(b, sizeof b, "page %d", round * 2 + 2);
    for (int i = 0; i < 2; i++) nginx_kit_expect(server, "/purged", "X-Kind: a\r\n", 200, a, NULL);
    for (int i = 0; i < 2; i++) nginx_kit_expect(server, "/purged", "X-Kind: b\r\n", 200, b, NULL);
    expect_asked(round == 0 ? "POST" : "PURGE", "/purge/?key=/purged", NULL, 200, NULL);
  }
  expect_asked("PURGE", "/purge/?key=/never_seen", NULL, 404, NULL);
  expect_asked("PURGE", "/purge/", NULL, 400, NULL);
}

/* The 32 hex digits of a variant's hash, taken from the name of its key. */
static void variant_hash(char hash[33]) {
  redisReply *keys = redis_server_command(nginx_kit_redis, "KEYS *");
  hash[0] = '\0';
  for (size_t i = 0; i < keys->elements; i++) {
    const char *key = keys->element[i]->str;
    for (const char *at = key; strstr(key, "/own") != NULL && *at != '\0'; at++)
      if (strspn(at, "0123456789abcdef") == 32) snprintf(hash, 33, "%.32s", at);
  }
  freeReplyObject(keys);
  assert_int_equal(strlen(hash), 32);
}

/* The key is the decoded URL, so it may contain a line end. */
static void a_client_cannot_put_a_page_where_a_variant_of_another_is_looked_for(void **state) {
  (void)state;
  static const char *const forms[] = {"/victim%%0avary%%20%s", "/~variant::%s:/victim"};
  char hash[33], forged[128];
  redis_server_ask(nginx_kit_redis, "FLUSHALL");
  http_origin_answer(nginx_kit_origin, "/own",
                     HTTP_ANSWER(.body = "own", .headers = "Vary: X-Kind\r\n"));
  nginx_kit_expect(server, "/own", "X-Kind: a\r\n", 200, "own", NULL);
  nginx_kit_expect(server, "/own", "X-Kind: b\r\n", 200, "own", NULL);
  variant_hash(hash);
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    snprintf(forged, sizeof forged, forms[i], hash);
    http_origin_answer(nginx_kit_origin, forged, HTTP_ANSWER(.body = "forged"));
    nginx_kit_expect(server, forged, NULL, 200, "forged", NULL);
  }
  http_origin_answer(nginx_kit_origin, "/victim",
                     HTTP_ANSWER(.body = "page", .numbered = 1, .headers = "Vary: X-Kind\r\n"));
  nginx_kit_expect(server, "/victim", "X-Kind: a\r\n", 200, "page 1", NULL);
  nginx_kit_expect(server, "/victim", "X-Kind: b\r\n", 200, "page 2", NULL);
}

static void only_post_and_purge_purge(void **state) {
  (void)state;
  static const char *const methods[] = {"GET",     "HEAD",   "PUT", "DELETE",
                                        "OPTIONS", "PURGED", "PURG"};
  http_origin_answer(nginx_kit_origin, "/stays", HTTP_ANSWER(.body = "page", .numbered = 1));
  nginx_kit_expect(server, "/stays", NULL, 200, "page 1", NULL);
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    http_reply reply = nginx_kit_ask(server, methods[i], "/purge_any/?key=/stays", NULL);
    if (reply.status != 405 || strcmp(http_reply_header(&reply, "allow"), "POST, PURGE") != 0)
      fail_msg("%s: %d", methods[i], reply.status);
    http_reply_free(&reply);
  }
  nginx_kit_expect(server, "/stays", NULL, 200, "page 1", NULL);
}

static void only_who_is_on_this_host_purges_unless_the_location_says_otherwise(void **state) {
  (void)state;
  static const char *const headers[] = {"Via: 1.1 proxy\r\n", "Forwarded: for=192.0.2.1\r\n",
                                        "X-Forwarded-For: 127.0.0.1\r\n",
                                        "x-real-ip: 192.0.2.1\r\n", "X-Forwarded-For:\r\n"};
  http_origin_answer(nginx_kit_origin, "/guarded", HTTP_ANSWER(.body = "page", .numbered = 1));
  nginx_kit_expect(server, "/guarded", NULL, 200, "page 1", NULL);
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
    expect_asked("PURGE", "/purge/?key=/guarded", headers[i], 403, NULL);
  nginx_kit_expect(server, "/guarded", NULL, 200, "page 1", NULL);
  assert_non_null(strstr(nginx_server_log(server),
                         "corral_purge: refused: it came through a proxy, which sent Via; "
                         "\"corral_purge_from any\" in this location accepts it"));
  expect_asked("PURGE", "/purge_any/?key=/guarded", headers[2], 200, NULL);
  nginx_kit_expect(server, "/guarded", NULL, 200, "page 2", NULL);
}

/* A unix socket has no address. Addresses of other hosts are set by the realip module, as behind a
 * load balancer. */
static void who_has_no_address_of_this_host_is_refused(void **state) {
  (void)state;
  static const char *const refused[] = {"192.0.2.1", "10.0.0.1", "::ffff:192.0.2.1", "2001:db8::1",
                                        "128.0.0.1"},
                           *const accepted[] = {"127.3.2.1", "::1", "::ffff:127.0.0.1"};
  nginx_server *other = nginx_kit_another(&(nginx_kit_plan){
      .locations = "set_real_ip_from 127.0.0.1; real_ip_header X-Client; location /purge/ { "
                   "corral_purge pages $arg_key; }",
      .http = "server { listen unix:%SOCKET%; location /purge/ { corral_purge pages $arg_key; } "
              "location /any/ { corral_purge pages $arg_key; corral_purge_from any; } }"});
  char header[80], socket[200];
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    snprintf(header, sizeof header, "X-Client: %s\r\n", refused[i]);
    http_reply reply = nginx_kit_ask(other, "PURGE", "/purge/?key=x", header);
    if (reply.status != 403) fail_msg("%s: %d", refused[i], reply.status);
    http_reply_free(&reply);
  }
  for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
    snprintf(header, sizeof header, "X-Client: %s\r\n", accepted[i]);
    http_reply reply = nginx_kit_ask(other, "PURGE", "/purge/?key=x", header);
    if (reply.status != 404) fail_msg("%s: %d", accepted[i], reply.status);
    http_reply_free(&reply);
  }
  assert_non_null(
      strstr(nginx_server_log(other),
             "corral_purge: refused: the client isn't on this host; \"corral_purge_from any\""));
  snprintf(socket, sizeof socket, "unix:%s/socket", nginx_server_folder(other));
  http_client *client = http_client_new(socket);
  http_reply reply =
      http_client_ask(client, &(http_request){.method = "PURGE", .path = "/purge/?key=x"});
  assert_int_equal(reply.status, 403);
  http_reply_free(&reply);
  reply = http_client_ask(client, &(http_request){.method = "PURGE", .path = "/any/?key=x"});
  assert_int_equal(reply.status, 404);
  http_reply_free(&reply);
  http_client_free(client);
  assert_non_null(strstr(
      nginx_server_log(other),
      "corral_purge: refused: a unix socket doesn't tell who asks; \"corral_purge_from any\""));
  nginx_kit_end(other, 0);
}

static void a_tag_purges_all_pages_that_carry_it(void **state) {
  (void)state;
  http_origin_answer(
      nginx_kit_origin, "/tag1",
      HTTP_ANSWER(.body = "page", .numbered = 1, .headers = "Surrogate-Key: orders  all, x\r\n"));
  http_origin_answer(nginx_kit_origin, "/tag2",
                     HTTP_ANSWER(.body = "page", .numbered = 1,
                                 .headers = "Surrogate-Key: users\r\nSurrogate-Key: all\r\n"));
  for (int i = 0; i < 2; i++) {
    nginx_kit_expect(server, "/tag1", NULL, 200, "page 1", NULL);
    nginx_kit_expect(server, "/tag2", NULL, 200, "page 1", NULL);
  }
  expect_asked("POST", "/purge_tag/?tag=orders", NULL, 200, NULL);
  nginx_kit_expect(server, "/tag1", NULL, 200, "page 2", NULL);
  nginx_kit_expect(server, "/tag2", NULL, 200, "page 1", NULL);
  expect_asked("PURGE", "/purge_tag/?tag=all", NULL, 200, NULL);
  nginx_kit_expect(server, "/tag1", NULL, 200, "page 3", NULL);
  nginx_kit_expect(server, "/tag2", NULL, 200, "page 2", NULL);
}

static void counters_are_of_all_zones_and_outlive_a_reload(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/near", HTTP_ANSWER(.body = "page"));
  http_origin_answer(nginx_kit_origin, "/counted", HTTP_ANSWER(.body = "page"));
  long near_hits = nginx_kit_counter(server, "near");
  for (int i = 0; i < 5000 && nginx_kit_counter(server, "near") == near_hits; i++)
    nginx_kit_expect(server, "/near", NULL, 200, "page", NULL);
  assert_true(nginx_kit_counter(server, "near") > near_hits);
  long hits = nginx_kit_counter(server, "HIT"), computes = nginx_kit_counter(server, "compute"),
       fills = nginx_kit_counter(server, "fill");
  nginx_kit_expect(server, "/counted", NULL, 200, "page", NULL);
  /* a request that comes before the page is stored is no hit */
  assert_true(nginx_kit_await_counter(server, "fill", fills + 1));
  for (int i = 0; i < 2; i++) nginx_kit_expect(server, "/counted", NULL, 200, "page", NULL);
  assert_int_equal(nginx_kit_counter(server, "HIT"), hits + 2);
  assert_int_equal(nginx_kit_counter(server, "compute"), computes + 1);
  nginx_server_reload(server, NULL);
  nginx_server_await_children(server, 1);
  assert_int_equal(nginx_kit_counter(server, "HIT"), hits + 2);
  http_reply json = nginx_kit_get(server, "/status", NULL),
             text = nginx_kit_get(server, "/status?format=prometheus", NULL);
  assert_string_equal(http_reply_header(&json, "content-type"), "application/json");
  assert_non_null(strstr(json.body, "\"quiet\":{\"requests\":{\"HIT\":0,"));
  assert_non_null(strstr(text.body, "# TYPE corral_requests_total counter\n"));
  assert_non_null(strstr(text.body, "\ncorral_events_total{zone=\"quiet\",event=\"hit\"} 0\n"));
  http_reply_free(&json);
  http_reply_free(&text);
}

static void a_connection_is_kept_alive_over_every_kind_of_answer(void **state) {
  (void)state;
  static const char *const paths[] = {"/kept",         "/kept",     "/kept",     "/kept_not",
                                      "/kept_not",     "/kept_404", "/kept_503", "/kept_503",
                                      "/purge/?key=x", "/status",   "/kept"};
  http_client *client = http_client_new(nginx_server_address(server));
  http_origin_answer(nginx_kit_origin, "/kept", HTTP_ANSWER(.body = "page"));
  http_origin_answer(nginx_kit_origin, "/kept_not",
                     HTTP_ANSWER(.body = "page", .headers = "Set-Cookie: a=b\r\n"));
  http_origin_answer(nginx_kit_origin, "/kept_404", HTTP_ANSWER(.status = 404));
  http_origin_answer(nginx_kit_origin, "/kept_503", HTTP_ANSWER(.status = 503));
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    http_reply reply = http_client_ask(client, &(http_request){.path = paths[i]});
    if (reply.status == 0 || reply.is_repeated || reply.is_reused != (i > 0))
      fail_msg("%s, request %zu: %s", paths[i], i, reply.error);
    http_reply_free(&reply);
  }
  http_client_free(client);
}

/* Requests pages until the log contains the line. */
static void await_line(const char *line) {
  for (int i = 0; i < 3000; i++) {
    char path[32];
    snprintf(path, sizeof path, "/away?%d", i);
    nginx_kit_expect(server, path, NULL, 200, "page", NULL);
    if (strstr(nginx_server_log(server), line) != NULL) return;
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  fail_msg("the log has no line with: %s", line);
}

/* The line that is in the log was logged at that level, "[warn]". */
static void expect_level(const char *line, const char *level) {
  const char *log = nginx_server_log(server), *at = strstr(log, line);
  assert_non_null(at);
  const char *begin = at, *found;
  while (begin > log && begin[-1] != '\n') begin--;
  found = strstr(begin, level);
  if (found == NULL || found > at) fail_msg("not at %s: %.*s", level, (int)(at - begin), begin);
}

static void a_store_that_goes_away_is_told_in_the_log_and_costs_no_answer(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/away", HTTP_ANSWER(.body = "page"));
  redis_server_kill(nginx_kit_redis);
  await_line("corral_zone \"pages\": the store doesn't answer: requests go on without it");
  expect_level("corral_zone \"pages\": the store doesn't answer", "[warn]");
  redis_server_restart(nginx_kit_redis);
  await_line("corral_zone \"pages\": the store answers again");
  expect_level("corral_zone \"pages\": the store answers again", "[notice]");
}

static void a_purge_that_the_store_didnt_hear_says_so(void **state) {
  (void)state;
  redis_server_kill(nginx_kit_redis);
  expect_asked("PURGE", "/purge/?key=/purged", NULL, 503, NULL);
  http_origin_answer(nginx_kit_origin, "/away", HTTP_ANSWER(.body = "page"));
  nginx_kit_expect(server, "/away", NULL, 200, "page", NULL);
  redis_server_restart(nginx_kit_redis);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest words[] = {
      cmocka_unit_test(a_wrong_directive_is_named_with_what_is_accepted),
      cmocka_unit_test(every_directive_is_accepted_where_it_belongs)};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_location_inherits_corral_and_may_switch_it_off),
      cmocka_unit_test(a_purged_page_is_gone_with_all_its_variants),
      cmocka_unit_test(a_client_cannot_put_a_page_where_a_variant_of_another_is_looked_for),
      cmocka_unit_test(only_post_and_purge_purge),
      cmocka_unit_test(only_who_is_on_this_host_purges_unless_the_location_says_otherwise),
      cmocka_unit_test(who_has_no_address_of_this_host_is_refused),
      cmocka_unit_test(a_tag_purges_all_pages_that_carry_it),
      cmocka_unit_test(counters_are_of_all_zones_and_outlive_a_reload),
      cmocka_unit_test(a_connection_is_kept_alive_over_every_kind_of_answer),
      cmocka_unit_test(a_store_that_goes_away_is_told_in_the_log_and_costs_no_answer),
      cmocka_unit_test(a_purge_that_the_store_didnt_hear_says_so),
  };
  int failed = cmocka_run_group_tests(words, NULL, NULL);
  failed += cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
