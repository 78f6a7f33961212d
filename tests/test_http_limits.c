/* test_http_limits.c: an HTTP origin under stress: limits of time and size, failing servers,
 * redirects, addresses, stop and close. */
#include "support/http_kit.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/http.h"

/* ---- size ---------------------------------------------------------------------------------- */

static void a_body_is_cut_off_at_the_limit_in_every_framing(void **state) {
  (void)state;
  static const http_answer framings[] = {{.status = 200}, {.chunked = 1}, {.unsized = 1}};
  void *origin = opened("%s/{key}#max=10k", http_origin_url(server)),
       *to_the_top = opened("%s/{key}", http_origin_url(server));
  for (size_t i = 0; i < sizeof framings / sizeof *framings; i++) {
    http_answer answer = framings[i];
    answer.body = "0123456789abcdef";
    answer.repeat = 640; /* 10 KiB */
    http_origin_answer(server, "/big", &answer);
    corral_fill *f = fetched(origin, "big");
    assert_int_equal(f->size, 10240);
    fill_free(f);
    answer.numbered = 1;
    http_origin_answer(server, "/big", &answer);
    expect_failure(fetched(origin, "big"), 502, "larger than 10240 bytes");
    answer.repeat = HTTP_MAX_VALUE / 16;
    http_origin_answer(server, "/big", &answer);
    expect_failure(fetched(to_the_top, "big"), 502, "larger than 1048576 bytes");
  }
  closed(origin);
  closed(to_the_top);
}

static void of_a_page_the_header_counts_as_well(void **state) {
  (void)state;
  void *origin = opened("%s/{key}#page=1&max=40", http_origin_url(server));
  http_origin_answer(server, "/h", HTTP_ANSWER(.body = "0123456789"));
  fill_free(fetched(origin, "h"));
  http_origin_answer(server, "/h",
                     HTTP_ANSWER(.body = "0123456789", .headers = "X-Long: 0123456789\r\n"));
  expect_failure(fetched(origin, "h"), 502, "larger than 40 bytes");
  closed(origin);
}

static void a_header_without_end_is_cut_off(void **state) {
  (void)state;
  static char lines[80000];
  for (size_t at = 0; at + 100 < sizeof lines; at += 50)
    snprintf(lines + at, 51, "X-%04zu: %.*s\r\n", at / 50 % 10000, 40,
             "0123456789012345678901234567890123456789");
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/h", HTTP_ANSWER(.body = "x", .headers = lines));
  expect_failure(fetched(origin, "h"), 502, "header is larger than 65536");
  closed(origin);
}

/* A space before the colon, or a line within a line: another reader may understand such a header
 * differently, so the response must not be stored. */
static void a_header_that_isnt_valid_fails_the_fetch(void **state) {
  (void)state;
#define BYTES(text) text, sizeof(text) - 1
  static const char line[] = "a line that isn't \"Name: value\"",
                    control[] = "a NUL or a carriage return";
  static const struct {
    const char *headers;
    size_t len;
    const char *why;
  } rows[] = {
      {BYTES("Cache-Control : no-store\r\n"), line},
      {BYTES("Set-Cookie\t: a=b\r\n"), line},
      {BYTES("Cache-Control : no-store\n"), line},
      {BYTES(": no-store\r\n"), line},
      {BYTES("no-store\r\n"), ""},
      {BYTES("Set(Cookie): a\r\n"), line},
      {BYTES("X-\303\244: a\r\n"), line},
      {BYTES("A: b\r\nCache Control: no-store\r\n"), line},
      {BYTES("HTTP/1.1 200 OK\r\n"), ""},
      {BYTES("Cache-Control: no-store\r\nHTTP/1.1 200 OK: a\r\nA: b\r\n"), line},
      {BYTES("A: b\rCache-Control: no-store\r\n"), control},
      {BYTES("A: b\r\r\n"), control},
      {BYTES("\rSet-Cookie: a=b\r\n"), control},
      {BYTES("Cache-Control: no-store\0\r\n"), ""},
      {BYTES("A\0: b\r\n"), ""},
      {BYTES("X-Long-Name-Of-More-Than-Thirty-Two-Bytes : b\r\n"), line},
      {BYTES("Content-Length: 7\r\n"), "two fields Content-Length that differ"},
      {BYTES("Content-Length: 5, 5\r\n"), "Content-Length"},
      {BYTES("Content-Length: +5\r\n"), "Content-Length"},
  };
  void *origin = opened("%s/{key}", http_origin_url(server));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    http_origin_answer(
        server, "/h",
        HTTP_ANSWER(.body = "12345", .headers = rows[i].headers, .headers_len = rows[i].len));
    corral_fill *f = fetched(origin, "h");
    if (f->code != 502 || strstr(f->text, rows[i].why) == NULL)
      fail_msg("%zu: %s: %d %s", i, rows[i].headers, (int)f->code, f->text);
    fill_free(f);
  }
  http_origin_answer(server, "/h",
                     HTTP_ANSWER(.status = 204, .headers = " Cache-Control: no-store\r\n"));
  expect_failure(fetched(origin, "h"), 502, "");
  http_origin_answer(
      server, "/h",
      HTTP_ANSWER(.body = "12345",
                  .headers =
                      "Content-Length: 5\r\nX-Empty:\r\nX-Tab:\t1\t\r\nX-Text: \303\244\r\n"));
  expect_bytes(fetched(origin, "h"), "12345");
  closed(origin);
#undef BYTES
}

static void a_body_nobody_wants_is_not_read_to_its_end(void **state) {
  (void)state;
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/n",
                     HTTP_ANSWER(.status = 404, .body = "0123456789abcdef", .repeat = 1 << 18,
                                 .fate = HTTP_FATE_HANGS_MID_BODY));
  corral_fill *f = fetched(origin, "n");
  assert_int_equal(f->kind, FILLED_NEGATIVE);
  fill_free(f);
  closed(origin);
}

/* A gzip text longer than the limit after decompression, made by `gzip` because it is too long for
 * this file. */
static void a_compressed_body_is_counted_as_it_unfolds(void **state) {
  (void)state;
  static char body[65536];
  FILE *gzip = popen("head -c 600000 /dev/zero | gzip -9", "r");
  assert_non_null(gzip);
  size_t len = fread(body, 1, sizeof body, gzip);
  assert_int_equal(pclose(gzip), 0);
  void *plain = opened("%s/{key}", http_origin_url(server)),
       *origin = opened("%s/{key}#compressed=1", http_origin_url(server)),
       *small = opened("%s/{key}#compressed=1&max=500000", http_origin_url(server)),
       *whole = opened("%s/{key}#compressed=1&page=1", http_origin_url(server));
  http_origin_answer(server, "/z",
                     HTTP_ANSWER(.body = body, .body_len = len,
                                 .headers = "Content-Encoding: gzip\r\nX-A: 1\r\n"));
  corral_fill *f = fetched(origin, "z");
  assert_int_equal(f->size, 600000);
  fill_free(f);
  assert_non_null(strstr(http_origin_header(server, "/z", "Accept-Encoding"), "gzip"));
  expect_failure(fetched(small, "z"), 502, "larger than 500000 bytes");
  expect_failure(fetched(plain, "z"), 502, "Content-Encoding that wasn't asked for");
  f = fetched(whole, "z");
  corral_page page;
  corral_page_field field;
  corral_page_cursor at = 0;
  assert_int_equal(corral_page_read(f->bytes, f->size, &page), CORRAL_OK);
  assert_int_equal(page.body_len, 600000);
  assert_int_equal(corral_page_next(&page, &at, &field), 1);
  assert_memory_equal(field.name, "X-A", 3);
  assert_int_equal(corral_page_next(&page, &at, &field), 0);
  fill_free(f);
  closed(plain);
  closed(origin);
  closed(small);
  closed(whole);
}

/* ---- time limits and failing servers ------------------------------------------------------- */

static void a_server_that_dies_is_a_failure(void **state) {
  (void)state;
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/d",
                     HTTP_ANSWER(.body = "0123456789", .fate = HTTP_FATE_DIES_MID_BODY));
  expect_failure(fetched(origin, "d"), 502, "hung up after 5 bytes");
  http_origin_answer(
      server, "/d",
      HTTP_ANSWER(.body = "0123456789", .chunked = 1, .fate = HTTP_FATE_DIES_MID_BODY));
  expect_failure(fetched(origin, "d"), 502, "hung up after");
  http_origin_answer(server, "/d", HTTP_ANSWER(.fate = HTTP_FATE_DIES));
  expect_failure(fetched(origin, "d"), 502, "Empty reply");
  http_origin_down(server);
  expect_failure(fetched(origin, "d"), 502, "connect");
  http_origin_up(server);
  http_origin_answer(server, "/d", HTTP_ANSWER(.body = "back"));
  expect_bytes(fetched(origin, "d"), "back");
  closed(origin);
}

/* On a busy machine the time may be over before the request is sent: that is tried again. */
static void expect_time_out(void *origin, int64_t limit_ms) {
  for (int i = 0;; i++) {
    corral_fill *f = calloc(1, sizeof *f);
    begin_with(f, origin, "t", limit_ms);
    awaited(f);
    assert_in_range(f->ended_ms - f->began_ms, 90, HTTP_PATIENCE_MS);
    if (i == 20 || strstr(f->text, "timed out") != NULL) {
      expect_failure(f, 504, "timed out");
      return;
    }
    fill_free(f);
  }
}

static void nothing_takes_longer_than_total_or_the_deadline(void **state) {
  (void)state;
  void *origin = opened("%s/{key}#total=100ms", http_origin_url(server)),
       *patient = opened("%s/{key}", http_origin_url(server));
  static const http_fate fates[] = {HTTP_FATE_HANGS, HTTP_FATE_HANGS_MID_BODY};
  for (size_t i = 0; i < 2; i++) {
    http_origin_answer(server, "/t", HTTP_ANSWER(.body = "0123456789", .fate = fates[i]));
    expect_time_out(origin, HTTP_PATIENCE_MS);
    expect_time_out(patient, 100);
  }
  corral_fill *late = calloc(1, sizeof *late);
  begin_with(late, patient, "t", -5);
  awaited(late);
  expect_failure(late, 504, "no time was left");
  closed(origin);
  closed(patient);
}

/* A listener with a full queue accepts no connection. */
static void connecting_has_a_limit_of_its_own(void **state) {
  (void)state;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM, 0), fillers[4];
  assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
  assert_int_equal(listen(listener, 0), 0);
  getsockname(listener, (struct sockaddr *)&at, &len);
  for (size_t i = 0; i < 4; i++) {
    fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    (void)!connect(fillers[i], (struct sockaddr *)&at, sizeof at);
  }
  void *origin = opened("http://127.0.0.1:%d/{key}#connect=100ms", ntohs(at.sin_port));
  corral_fill *f = fetched(origin, "c");
  assert_in_range(f->ended_ms - f->began_ms, 90, HTTP_PATIENCE_MS);
  expect_failure(f, 504, "");
  closed(origin);
  for (size_t i = 0; i < 4; i++) close(fillers[i]);
  close(listener);
}

static void one_that_is_told_to_stop_is_abandoned_alone(void **state) {
  (void)state;
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/one", HTTP_ANSWER(.body = "1", .held = 1));
  http_origin_answer(server, "/two", HTTP_ANSWER(.body = "2", .held = 1));
  corral_fill *one = begun(origin, "one"), *two = begun(origin, "two");
  assert_true(http_origin_await_running(server, "/one", 1) &&
              http_origin_await_running(server, "/two", 1));
  one->stop = 1;
  awaited(one);
  assert_int_equal(one->end, FILL_ABANDONED);
  fill_free(one);
  assert_true(http_origin_await_running(server, "/one", 0)); /* the client hung up */
  http_origin_let(server, "/two");
  awaited(two);
  expect_bytes(two, "2");
  closed(origin);
}

static void close_abandons_what_is_under_way(void **state) {
  (void)state;
  enum { MANY = 40 };
  corral_fill *fills[MANY];
  void *origin = opened("%s/{key}#connections=10", http_origin_url(server)),
       *unused = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/hang", HTTP_ANSWER(.fate = HTTP_FATE_HANGS));
  for (int i = 0; i < MANY; i++) fills[i] = begun(origin, "hang");
  assert_true(http_origin_await_running(server, "/hang", 10));
  closed(origin);
  closed(unused);
  for (int i = 0; i < MANY; i++) {
    assert_int_equal(fills[i]->end, FILL_ABANDONED);
    assert_int_equal(fills[i]->ends, 1);
    fill_free(fills[i]);
  }
  /* at most 10 connections were open */
  assert_int_equal(http_origin_most_running(server, "/hang"), 10);
}

static void connections_are_used_again_and_transfers_run_beside_each_other(void **state) {
  (void)state;
  enum { MANY = 20 };
  corral_fill *fills[MANY];
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/r", HTTP_ANSWER(.body = "x"));
  int before = http_origin_connections(server);
  for (int i = 0; i < MANY; i++) expect_bytes(fetched(origin, "r"), "x");
  assert_int_equal(http_origin_connections(server), before + 1);
  http_origin_answer(server, "/r", HTTP_ANSWER(.body = "x", .held = 1));
  for (int i = 0; i < MANY; i++) fills[i] = begun(origin, "r");
  assert_true(http_origin_await_running(server, "/r", MANY));
  http_origin_let(server, "/r");
  for (int i = 0; i < MANY; i++) {
    awaited(fills[i]);
    expect_bytes(fills[i], "x");
  }
  assert_int_equal(http_origin_connections(server), before + MANY);
  closed(origin);
}

typedef struct swarm {
  void *origin;
  int fetched;
} swarm;

static void *fetch_often(void *arg) {
  swarm *s = arg;
  for (int i = 0; i < 50; i++) {
    corral_fill *f = fetched(s->origin, "r");
    s->fetched += f->kind == FILLED_BYTES;
    fill_free(f);
  }
  return NULL;
}

static void any_thread_may_fetch(void **state) {
  (void)state;
  pthread_t threads[8];
  swarm swarms[8];
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/r", HTTP_ANSWER(.body = "x"));
  for (int i = 0; i < 8; i++) {
    swarms[i] = (swarm){.origin = origin};
    assert_int_equal(pthread_create(&threads[i], NULL, fetch_often, &swarms[i]), 0);
  }
  for (int i = 0; i < 8; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(swarms[i].fetched, 50);
  }
  closed(origin);
}

/* ---- redirects ----------------------------------------------------------------------------- */

static void redirects_to(const char *path, int status, const char *headers, const char *to) {
  char lines[600];
  snprintf(lines, sizeof lines, "Location: %s\r\n%s", to, headers);
  http_origin_answer(server, path,
                     HTTP_ANSWER(.status = status, .headers = lines, .body = "moved"));
}

static void redirects_are_followed_within_their_limit(void **state) {
  (void)state;
  static const int statuses[] = {301, 302, 303, 307, 308};
  void *origin = opened("%s/{key}#redirects=2", http_origin_url(server)),
       *none = opened("%s/{key}#redirects=0", http_origin_url(server));
  http_origin_answer(
      server, "/end",
      HTTP_ANSWER(.body = "end", .etag = "\"v1\"", .headers = "Cache-Control: max-age=60\r\n"));
  for (size_t i = 0; i < 5; i++) {
    redirects_to("/a", statuses[i], "", "/end");
    corral_fill *f = fetched(origin, "a");
    assert_string_equal(f->validator, ""); /* the validator would belong to another URL */
    assert_int_equal(f->ttl, 60000);
    expect_bytes(f, "end");
    expect_failure(fetched(none, "a"), statuses[i], "HTTP 3");
  }
  redirects_to("/b", 302, "", "a");
  expect_bytes(fetched(origin, "b"), "end");
  /* Validators belong to the URL of the first request. */
  char kept[1025];
  http_origin_answer(server, "/was-here", HTTP_ANSWER(.body = "old", .etag = "\"v1\""));
  corral_fill *old = fetched(origin, "was-here");
  snprintf(kept, sizeof kept, "%s", old->validator);
  fill_free(old);
  redirects_to("/was-here", 302, "", "/end");
  expect_bytes(refetched(origin, "was-here", "old", kept), "end");
  assert_string_equal(http_origin_header(server, "/was-here", "If-None-Match"), "\"v1\"");
  assert_null(http_origin_header(server, "/end", "If-None-Match"));
  redirects_to("/c", 302, "", "b");
  expect_failure(fetched(origin, "c"), 502, "more than 2 redirects");
  redirects_to("/loop", 302, "", "loop");
  expect_failure(fetched(origin, "loop"), 502, "more than 2 redirects");
  http_origin_answer(server, "/nowhere", HTTP_ANSWER(.status = 302));
  expect_failure(fetched(origin, "nowhere"), 302, "HTTP 302");
  closed(origin);
  closed(none);
}

static void a_redirect_counts_for_the_lives(void **state) {
  (void)state;
  static const struct {
    const char *headers;
    int64_t ttl;
    int is_passed;
  } rows[] = {{"", 60000, 0},
              {"Cache-Control: max-age=5\r\n", 5000, 0},
              {"Cache-Control: max-age=500\r\n", 60000, 0},
              {"Cache-Control: max-age=0\r\n", CORRAL_OFF, 0},
              {"Cache-Control: no-store\r\n", 60000, 1},
              {"Set-Cookie: a=b\r\n", 60000, 1}};
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/end",
                     HTTP_ANSWER(.body = "end", .headers = "Cache-Control: max-age=60\r\n"));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    redirects_to("/a", 302, rows[i].headers, "/end");
    corral_fill *f = fetched(origin, "a");
    if (f->ttl != rows[i].ttl || f->is_passed != rows[i].is_passed)
      fail_msg("%s: %lld, passed %d", rows[i].headers, (long long)f->ttl, f->is_passed);
    expect_bytes(f, "end");
  }
  closed(origin);
}

static void redirects_lead_to_http_alone(void **state) {
  (void)state;
  static const char *const targets[] = {
      "ftp://127.0.0.1/x", "file:///etc/passwd",     "gopher://127.0.0.1/x", "dict://127.0.0.1/x",
      "http://",           "http://127.0.0.1:99999/"};
  void *origin = opened("%s/{key}#allow=loopback", http_origin_url(server));
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
    redirects_to("/a", 302, "", targets[i]);
    expect_failure(fetched(origin, "a"), 502,
                   "HTTP 302: it redirects to something else than a URL of http or https");
  }
  closed(origin);
}

static void another_server_at_a_private_address_is_refused_unless_allowed(void **state) {
  (void)state;
  char to[64];
  http_origin *other = http_origin_start();
  http_origin_answer(other, "/x", HTTP_ANSWER(.body = "other"));
  snprintf(to, sizeof to, "%s/x", http_origin_url(other));
  redirects_to("/a", 302, "", to);
  char port[64];
  snprintf(port, sizeof port, "127.0.0.1:%d", http_origin_port(server));
  void *origin = opened("http://%s/{key}", port),
       *allowed = opened(
           "http://me:pw@%s/{key}#allow=loopback&vary=authorization,x-v&header=X-Secret:1", port),
       *denied = opened("http://%s/{key}#allow=loopback&deny=127.0.0.1", port);
  expect_failure(fetched(origin, "a"), 502,
                 "the address 127.0.0.1 of where it redirects to is not allowed");
  assert_int_equal(http_origin_connections(other), 0);
  expect_failure(fetched(denied, "a"), 502, "the address 127.0.0.1 of the origin is not allowed");
  expect_bytes(fetched(allowed, "a\nX-V: 1"), "other");
  assert_null(http_origin_header(other, "/x", "X-Secret"));
  assert_null(http_origin_header(other, "/x", "Authorization"));
  assert_string_equal(http_origin_header(server, "/a", "X-Secret"), "1");
  expect_bytes(fetched(allowed, "a\nAuthorization: key"), "other");
  assert_null(http_origin_header(other, "/x", "Authorization"));
  /* A redirect back to the first server counts as foreign. */
  snprintf(to, sizeof to, "%s/end", http_origin_url(server));
  char lines[100];
  snprintf(lines, sizeof lines, "Location: %s\r\n", to);
  http_origin_answer(other, "/x", HTTP_ANSWER(.status = 302, .headers = lines));
  http_origin_answer(server, "/end", HTTP_ANSWER(.body = "end"));
  expect_bytes(fetched(allowed, "a"), "end");
  assert_null(http_origin_header(server, "/end", "X-Secret"));
  closed(origin);
  closed(allowed);
  closed(denied);
  http_origin_stop(other);
}

/* ---- addresses ----------------------------------------------------------------------------- */

static void link_local_addresses_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *host, *options, *address;
  } rows[] = {{"169.254.169.254", "", "169.254.169.254"},
              {"[fe80::1]", "", "fe80::1"},
              {"[::ffff:169.254.169.254]", "", "::ffff:169.254.169.254"},
              {"[64:ff9b::a9fe:a9fe]", "", "64:ff9b::a9fe:a9fe"},
              {"2852039166", "", "169.254.169.254"},
              {"127.0.0.1", "#deny=127.0.0.0/8", "127.0.0.1"},
              {"[::1]", "#deny=::/0", "::1"},
              {"[::ffff:127.0.0.1]", "#deny=loopback", "::ffff:127.0.0.1"},
              {"169.254.1.1", "#allow=private", "169.254.1.1"},
              {"0.0.0.0", "#deny=loopback", "0.0.0.0"},
              {"127.128.0.1", "#deny=127.128.0.0/9", "127.128.0.1"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char why[100];
    void *origin = opened("http://%s:1/{key}%s", rows[i].host, rows[i].options);
    snprintf(why, sizeof why, "the address %s of the origin is not allowed", rows[i].address);
    expect_failure(fetched(origin, "a"), 502, why);
    closed(origin);
  }
}

/* Checks the address filter directly: no packet is sent. */
static const struct {
  const char *options, *address;
  int own, foreign; /* allowed for the configured server; for the target of a redirect */
} addresses[] = {
    {"", "93.184.216.34", 1, 1},
    {"", "2606:2800::1", 1, 1},
    {"", "127.0.0.1", 1, 0},
    {"", "::1", 1, 0},
    {"", "0.0.0.0", 1, 0},
    {"", "::", 1, 0},
    {"", "10.0.0.1", 1, 0},
    {"", "172.16.0.1", 1, 0},
    {"", "172.31.255.255", 1, 0},
    {"", "172.32.0.1", 1, 1},
    {"", "192.168.1.1", 1, 0},
    {"", "100.64.0.1", 1, 0},
    {"", "fd00::1", 1, 0},
    {"", "fec0::1", 1, 0},
    {"", "::ffff:10.0.0.1", 1, 0},
    {"", "::10.0.0.1", 1, 0},
    {"", "64:ff9b::10.0.0.1", 1, 0},
    {"", "::ffff:8.8.8.8", 1, 1},
    /* IPv4 addresses inside 6to4, NAT64 (well-known and local prefix), Teredo, ISATAP, and
     * compatible and translated addresses. */
    {"", "2002:7f00:1::", 1, 0},
    {"", "2002:a00:1::1", 1, 0},
    {"", "2002:a9fe:a9fe::1", 0, 0},
    {"", "2002:808:808::1", 1, 1},
    {"#deny=8.8.8.8", "2002:808:808::1", 0, 0},
    {"#allow=10.0.0.0/8", "2002:a00:1::1", 1, 1},
    {"#allow=2002::/16", "2002:a00:1::1", 1, 1},
    {"#allow=10.0.0.0/8", "2002:c0a8:1::1", 1, 0},
    {"", "64:ff9b::127.0.0.1", 1, 0},
    {"", "64:ff9b::8.8.8.8", 1, 1},
    {"", "64:ff9b:1::1", 1, 0},
    {"", "64:ff9b:1::169.254.169.254", 0, 0},
    {"", "64:ff9b:1:a9fe:a9:fe00::", 0, 0},
    {"", "64:ff9b:1:a9:fe:a9fe::", 0, 0},
    {"", "64:ff9b:1:a900::", 1, 0},
    {"", "64:ff9b:1:ffa9:fe:a9fe::", 0, 0},
    {"", "64:ff9b:1:ffff:a9:fea9:fe00:0", 0, 0},
    {"#deny=8.8.8.8", "64:ff9b:1::8.8.8.8", 0, 0},
    {"#allow=8.8.8.8", "64:ff9b:1::8.8.8.8", 1, 0},
    {"#allow=64:ff9b:1::/48", "64:ff9b:1::10.0.0.1", 1, 1},
    {"", "2001:0:7f00:1::ffff:ffff", 1, 0},
    {"", "2001:0:808:808::f5ff:fffe", 1, 0},
    {"", "2001:0:808:808::f7f7:f7f7", 1, 1},
    {"", "2001:1::f5ff:fffe", 1, 1},
    {"", "2606::5efe:10.0.0.1", 1, 0},
    {"", "2606::200:5efe:169.254.0.1", 0, 0},
    {"", "2606::5efe:8.8.8.8", 1, 1},
    {"", "::127.0.0.1", 1, 0},
    {"", "::2", 1, 0},
    {"", "::8.8.8.8", 1, 1},
    {"", "::ffff:0:10.0.0.1", 1, 0},
    {"", "::ffff:0:169.254.0.1", 0, 0},
    {"", "169.254.0.1", 0, 0},
    {"", "fe80::1", 0, 0},
    {"", "febf::1", 0, 0},
    {"", "::ffff:169.254.0.1", 0, 0},
    {"#allow=private", "10.0.0.1", 1, 1},
    {"#allow=private", "127.0.0.1", 1, 0},
    {"#allow=link-local", "169.254.169.254", 1, 1},
    {"#allow=10.1.0.0/16", "10.1.2.3", 1, 1},
    {"#allow=10.1.0.0/16", "10.2.0.1", 1, 0},
    {"#allow=10.0.0.0/8&deny=10.1.0.0/16", "10.1.0.1", 0, 0},
    {"#deny=0.0.0.0/0", "8.8.8.8", 0, 0},
    {"#deny=0.0.0.0/0", "2606::1", 1, 1},
    {"#deny=2606::/16,8.8.8.8", "2606:1::1", 0, 0},
    {"#deny=2606::/16,8.8.8.8", "8.8.8.9", 1, 1},
};

static void the_filter_judges_addresses(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    char text[64];
    int is_v4 = inet_pton(AF_INET, addresses[i].address, &v4.sin_addr) == 1;
    if (!is_v4) assert_int_equal(inet_pton(AF_INET6, addresses[i].address, &v6.sin6_addr), 1);
    const struct sockaddr *at = is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    void *origin = opened("http://h/{key}%s", addresses[i].options);
    int own = crl_http_may_connect(origin, 0, at, text, sizeof text),
        foreign = crl_http_may_connect(origin, 1, at, text, sizeof text);
    if (own != addresses[i].own || foreign != addresses[i].foreign)
      fail_msg("%s %s: %d %d", addresses[i].address, addresses[i].options, own, foreign);
    closed(origin);
  }
}

static void proxies_of_the_environment_are_not_used(void **state) {
  (void)state;
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  setenv("all_proxy", "http://127.0.0.1:1", 1);
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/p", HTTP_ANSWER(.body = "x"));
  expect_bytes(fetched(origin, "p"), "x");
  closed(origin);
  unsetenv("http_proxy");
  unsetenv("all_proxy");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_body_is_cut_off_at_the_limit_in_every_framing),
      cmocka_unit_test(of_a_page_the_header_counts_as_well),
      cmocka_unit_test(a_header_without_end_is_cut_off),
      cmocka_unit_test(a_header_that_isnt_valid_fails_the_fetch),
      cmocka_unit_test(a_body_nobody_wants_is_not_read_to_its_end),
      cmocka_unit_test(a_compressed_body_is_counted_as_it_unfolds),
      cmocka_unit_test(a_server_that_dies_is_a_failure),
      cmocka_unit_test(nothing_takes_longer_than_total_or_the_deadline),
      cmocka_unit_test(connecting_has_a_limit_of_its_own),
      cmocka_unit_test(one_that_is_told_to_stop_is_abandoned_alone),
      cmocka_unit_test(close_abandons_what_is_under_way),
      cmocka_unit_test(connections_are_used_again_and_transfers_run_beside_each_other),
      cmocka_unit_test(any_thread_may_fetch),
      cmocka_unit_test(redirects_are_followed_within_their_limit),
      cmocka_unit_test(a_redirect_counts_for_the_lives),
      cmocka_unit_test(redirects_lead_to_http_alone),
      cmocka_unit_test(another_server_at_a_private_address_is_refused_unless_allowed),
      cmocka_unit_test(link_local_addresses_are_refused),
      cmocka_unit_test(the_filter_judges_addresses),
      cmocka_unit_test(proxies_of_the_environment_are_not_used),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
