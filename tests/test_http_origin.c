/* test_http_origin.c: values from an HTTP server: URLs, statuses, lives, validators, variants. */
#include "support/http_kit.h"

/* ---- keys and URLs ------------------------------------------------------------------------- */

static void the_key_takes_its_place_in_the_url(void **state) {
  (void)state;
  static const struct {
    const char *template, *key, *target;
  } rows[] = {
      {"/base/{key}?fixed=1", "a", "/base/a?fixed=1"},
      {"/base/{key}", "a/b/c.html", "/base/a/b/c.html"},
      {"/{key}", "a b?c=d&e#f%2e+\"<>\\", "/a%20b%3Fc%3Dd%26e%23f%252e%2B%22%3C%3E%5C"},
      {"/{key}", "\303\244\001~-_.", "/%C3%A4%01~-_."},
      {"/{key}.json", "..a", "/..a.json"},
      {"/{key}", "...", "/..."},
      {"/{key:raw}", "a;v=..;b/..a;/...;x", "/a;v=..;b/..a;/...;x"},
      {"/{key:raw}", "a%3b..%25/%252", "/a%3b..%25/%252"},
      {"/{key}", "a;../b", "/a%3B../b"},
      {"?id={key}&x=1", "a/b&c", "/?id=a/b%26c&x=1"},
      {"/p?id={key}", "../..", "/p?id=../.."},
      {"/{key:raw}", "p?a=1&b=%20", "/p?a=1&b=%20"},
      {"/{key:raw}", "a:b@c;d,e!$'()*+", "/a:b@c;d,e!$'()*+"},
      {"/{key}", "/x", "//x"},
      {"/a{key}", "\n", "/a"},
  };
  http_origin_answer(server, "*", HTTP_ANSWER(.body = "ok"));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    void *origin = opened("%s%s", http_origin_url(server), rows[i].template);
    expect_bytes(fetched(origin, rows[i].key), "ok");
    assert_string_equal(http_origin_header(server, "*", ":target"), rows[i].target);
    closed(origin);
  }
}

static void a_key_that_makes_no_url_fails_without_a_request(void **state) {
  (void)state;
  static const struct {
    const char *template, *key, *why;
  } rows[] = {
      {"/base/{key}", "..", "'.' or '..'"},
      {"/base/{key}", "a/../../b", "'.' or '..'"},
      {"/base/{key}", "./a", "'.' or '..'"},
      {"/base/.{key}", ".", "'.' or '..'"},
      {"/{key:raw}", "%2e%2E/a", "'.' or '..'"},
      {"/{key:raw}", "a%2f..%5Cb", "'.' or '..'"},
      {"/{key:raw}", "..?a", "'.' or '..'"},
      {"/base/{key}", "a/..;/b", "'.' or '..'"},
      {"/base/{key}", "..;jsessionid=1/b", "'.' or '..'"},
      {"/base/{key}", ".;/b", "'.' or '..'"},
      {"/base/{key:raw}", "..;/b", "'.' or '..'"},
      {"/base/{key:raw}", "..%3b/b", "'.' or '..'"},
      {"/base/{key:raw}", "%2E.%3Bx=1", "'.' or '..'"},
      {"/base/{key:raw}", "a%5c..;b%2fc", "'.' or '..'"},
      {"/base/{key:raw}", "..%00", "'.' or '..'"},
      {"/base/{key:raw}", "%252e%252e/b", "'.' or '..'"},
      {"/base/{key:raw}", "a%25252f..;", "'.' or '..'"},
      {"/base/{key}", "%2e%2e", "'.' or '..'"},
      {"/{key:raw}", "a b", "bytes that a URL can't have"},
      {"/{key:raw}", "a#b", "bytes that a URL can't have"},
      {"/{key:raw}", "a%2", "bytes that a URL can't have"},
      {"/{key:raw}", "a\\b", "bytes that a URL can't have"},
      {"/{key}", "a\nAccept-Language: de", "isn't among vary="},
      {"/{key}#vary=accept-language", "a\nAccept-Language", "'Name: value'"},
      {"/{key}#vary=accept-language", "a\nAccept-Language: de\naccept-language: en", "twice"},
      {"/{key}#vary=accept-language", "a\nAccept-Language: de\r", "control character"},
      {"/{key}#vary=accept-language", "a\nCookie: x", "isn't among vary="},
      {"/{key}#vary=accept-language", "a\n\nAccept-Language: de", "'Name: value'"},
  };
  int before = http_origin_seen(server, "*");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    void *origin = opened("%s%s", http_origin_url(server), rows[i].template);
    expect_failure(fetched(origin, rows[i].key), CORRAL_EINVAL, rows[i].why);
    closed(origin);
  }
  void *origin = opened("%s/{key}", http_origin_url(server));
  char *long_key = malloc(9001);
  memset(long_key, 'x', 9000);
  long_key[9000] = '\0';
  expect_failure(fetched(origin, long_key), CORRAL_EINVAL, "too long");
  long_key[3000] = '\0';
  memset(long_key, ' ', 3000);
  expect_failure(fetched(origin, long_key), CORRAL_EINVAL, "longer than 8192");
  free(long_key);
  closed(origin);
  assert_int_equal(http_origin_seen(server, "*"), before);
}

static void lines_of_the_key_are_header_fields(void **state) {
  (void)state;
  http_origin_answer(
      server, "/v",
      HTTP_ANSWER(.headers =
                      "Vary: Accept-Language, Accept-Encoding\r\nCache-Control: max-age=5\r\n",
                  .body = "ok"));
  void *origin = opened("%s/{key}#vary=Accept-Language,x-kind&header=X-Fixed:%%20one%%26two",
                        http_origin_url(server));
  corral_fill *f = fetched(origin, "v\naccept-language: de, en;q=0.5\nX-Kind:\n");
  assert_false(f->is_passed);
  expect_bytes(f, "ok");
  assert_string_equal(http_origin_header(server, "/v", "Accept-Language"), "de, en;q=0.5");
  assert_string_equal(http_origin_header(server, "/v", "X-Kind"), "");
  assert_string_equal(http_origin_header(server, "/v", "X-Fixed"), "one&two");
  assert_string_equal(http_origin_header(server, "/v", "User-Agent"), "corral/" CORRAL_VERSION);
  assert_string_equal(http_origin_header(server, "/v", "Accept-Encoding"), "identity");
  assert_null(http_origin_header(server, "/v", "Cookie"));
  fill_free(fetched(origin, "v"));
  assert_null(http_origin_header(server, "/v", "Accept-Language"));
  closed(origin);
}

/* ---- statuses ------------------------------------------------------------------------------ */

static void statuses_are_kept_negative_or_failures(void **state) {
  (void)state;
  static const struct {
    const char *options;
    int status;
    fill_kind kind;
    const char *text;
  } rows[] = {
      {"", 200, FILLED_BYTES, NULL},
      {"", 203, FILLED_BYTES, NULL},
      {"", 204, FILLED_BYTES, NULL},
      {"", 404, FILLED_NEGATIVE, NULL},
      {"", 410, FILLED_NEGATIVE, NULL},
      {"", 201, FILLED_NOTHING, "HTTP 201 Scripted"},
      {"", 300, FILLED_NOTHING, "HTTP 300 Scripted"},
      {"", 304, FILLED_NOTHING, "HTTP 304"},
      {"", 403, FILLED_NOTHING, "HTTP 403"},
      {"", 500, FILLED_NOTHING, "HTTP 500 Scripted"},
      {"", 503, FILLED_NOTHING, "HTTP 503 Scripted"},
      {"#keep=404&negative=", 404, FILLED_BYTES, NULL},
      {"#keep=404&negative=", 200, FILLED_NOTHING, "HTTP 200"},
      {"#negative=500,501", 501, FILLED_NEGATIVE, NULL},
      {"#negative=500", 404, FILLED_NOTHING, "HTTP 404"},
      {"#keep=200,302", 302, FILLED_BYTES, NULL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    void *origin = opened("%s/{key}%s", http_origin_url(server), rows[i].options);
    http_origin_answer(server, "/s", HTTP_ANSWER(.status = rows[i].status, .body = "body"));
    corral_fill *f = fetched(origin, "s");
    if (f->kind != rows[i].kind)
      fail_msg("%d%s: kind %d %s", rows[i].status, rows[i].options, f->kind, f->text);
    if (rows[i].text != NULL)
      expect_failure(f, rows[i].status, rows[i].text);
    else if (f->kind == FILLED_BYTES)
      expect_bytes(f, rows[i].status == 204 ? "" : "body");
    else
      fill_free(f);
    closed(origin);
  }
}

static void a_failure_tells_when_to_try_again(void **state) {
  (void)state;
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/s", HTTP_ANSWER(.status = 503, .headers = "Retry-After: 7\r\n"));
  expect_failure(fetched(origin, "s"), 503, "HTTP 503 Scripted, retry after 7 s");
  closed(origin);
}

static void bodies_come_in_every_framing(void **state) {
  (void)state;
  void *origin = opened("%s/{key}", http_origin_url(server));
  static const http_answer answers[] = {{.body = "0123456789"},
                                        {.body = "0123456789", .chunked = 1},
                                        {.body = "0123456789", .unsized = 1},
                                        {.body = "0123456789", .closes = 1}};
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    http_origin_answer(server, "/b", &answers[i]);
    expect_bytes(fetched(origin, "b"), "0123456789");
  }
  http_origin_answer(server, "/b", HTTP_ANSWER(.body = "a\0b", .body_len = 3));
  corral_fill *f = fetched(origin, "b");
  assert_int_equal(f->size, 3);
  assert_memory_equal(f->bytes, "a\0b", 3);
  fill_free(f);
  http_origin_answer(server, "/b", HTTP_ANSWER(.status = 200));
  expect_bytes(fetched(origin, "b"), "");
  closed(origin);
}

/* Requires a page with this status, fields (each "Name: value\n") and body. */
static void expect_page(const corral_fill *f, unsigned status, const char *fields,
                        const char *body) {
  char text[1024] = "";
  corral_page page;
  corral_page_field field;
  if (f->end != FILL_DONE) fail_msg("ended %d: %d %s", f->end, f->code, f->text);
  assert_int_equal(corral_page_read(f->bytes, f->size, &page), CORRAL_OK);
  for (corral_page_cursor at = 0; corral_page_next(&page, &at, &field);)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s: %.*s\n", (int)field.name_len,
             (const char *)field.name, (int)field.value_len, (const char *)field.value);
  assert_int_equal(page.status, status);
  assert_string_equal(text, fields);
  assert_int_equal(page.body_len, strlen(body));
  assert_memory_equal(page.body, body, strlen(body));
}

static void page_keeps_status_header_and_tags(void **state) {
  (void)state;
  void *origin = opened("%s{uri}#page=1&tags=Surrogate-Key,Cache-Tag&path_tags=2&keep=200,404&"
                        "negative=410",
                        http_origin_url(server));
  http_origin_answer(
      server, "/dir/p?x=1",
      HTTP_ANSWER(.headers = "Content-Type: text/plain\r\nKeep-Alive: timeout=5\r\nX-A: 1\r\n"
                             "X-A: 2 \r\n and 3\r\nConnection: x-own\r\nX-Own: gone\r\n"
                             "Set-Cookie: gone\r\nSurrogate-Key: red blue\r\nCache-Tag: a,red\r\n"
                             "X-Accel-Limit-Rate: 9\r\nCorral-Location: /gone\r\n"
                             "Cache-Control: max-age=60\r\n",
                  .body = "body", .chunked = 1));
  corral_fill *f = fetched(origin, "httphost/dir/p?x=1");
  expect_page(f, 200,
              "Content-Type: text/plain\nX-A: 1\nX-A: 2    and 3\nSurrogate-Key: red blue\n"
              "Cache-Tag: a,red\nCache-Control: max-age=60\n",
              "body");
  assert_non_null(strstr(f->tags, "red;blue;a;red;"));
  assert_string_equal(strchr(strstr(f->tags, "prefix "), ';'), strstr(f->tags, ";prefix "));
  fill_free(f);
  http_origin_answer(server, "/none", HTTP_ANSWER(.status = 404, .body = "no page"));
  f = fetched(origin, "/none");
  expect_page(f, 404, "", "no page");
  corral_page page;
  (void)corral_page_read(f->bytes, f->size, &page);
  assert_int_equal(page.ttl_ms, 300000);
  assert_int_equal(page.swr_ms, -1);
  assert_int_equal(page.sie_ms, 20000);
  fill_free(f);
  expect_failure(fetched(origin, "no slash"), CORRAL_EINVAL, "{uri}");
  http_origin_answer(server, "/elsewhere",
                     HTTP_ANSWER(.headers = "Cache-Control: max-age=60\r\n"
                                            "x-accel-redirect: /inside\r\n"));
  f = fetched(origin, "/elsewhere");
  assert_int_equal(f->end, FILL_DONE);
  assert_int_equal(f->ttl, CORRAL_OFF);
  assert_int_equal(f->sie, CORRAL_OFF);
  fill_free(f);
  closed(origin);
}

static void a_page_says_for_which_requests_it_is(void **state) {
  (void)state;
  unsigned char hash[CORRAL_PAGE_HASH];
  corral_page page;
  corral_page_field sent[] = {
      {(const unsigned char *)"X-Set", (const unsigned char *)"1", 5, 1},
      {(const unsigned char *)"accept", (const unsigned char *)"*/*", 6, 3}};
  void *origin = opened("%s/{key}#page=1&header=X-Set:1", http_origin_url(server));
  http_origin_answer(
      server, "/v",
      HTTP_ANSWER(.headers = "Vary: Accept-Encoding, Accept, X-Set, X-Never\r\n", .body = "x"));
  corral_fill *f = fetched(origin, "v");
  assert_false(f->is_passed);
  assert_int_equal(corral_page_read(f->bytes, f->size, &page), CORRAL_OK);
  assert_int_equal(page.vary_len, strlen("accept x-set x-never"));
  assert_memory_equal(page.vary, "accept x-set x-never", page.vary_len);
  corral_page_vary(page.vary, page.vary_len, sent, 2, hash);
  assert_memory_equal(page.hash, hash, sizeof hash);
  fill_free(f);
  closed(origin);
}

static void a_304_renews_the_header_of_a_page(void **state) {
  (void)state;
  void *origin = opened("%s/{key}#page=1", http_origin_url(server));
  http_origin_answer(
      server, "/r",
      HTTP_ANSWER(.etag = "\"v1\"", .headers = "X-A: 1\r\nX-B: 1\r\n", .body = "one"));
  corral_fill *first = fetched(origin, "r");
  http_origin_answer(server, "/r",
                     HTTP_ANSWER(.etag = "\"v1\"", .headers = "X-A: 2\r\n", .body = "one"));
  corral_fill *f = calloc(1, sizeof *f);
  f->old = first->bytes;
  f->old_size = first->size;
  f->old_validator = first->validator;
  begin_with(f, origin, "r", HTTP_PATIENCE_MS);
  awaited(f);
  assert_string_equal(http_origin_header(server, "/r", "If-None-Match"), "\"v1\"");
  corral_page page;
  assert_int_equal(corral_page_read(f->bytes, f->size, &page), CORRAL_OK);
  assert_int_equal(page.status, 200);
  assert_int_equal(page.body_len, 3);
  assert_memory_equal(page.body, "one", 3);
  corral_page_field field;
  int seen = 0;
  for (corral_page_cursor at = 0; corral_page_next(&page, &at, &field);) {
    if (field.name_len == 3 && memcmp(field.name, "X-A", 3) == 0) seen += *field.value == '2';
    if (field.name_len == 3 && memcmp(field.name, "X-B", 3) == 0) seen += *field.value == '1';
  }
  assert_int_equal(seen, 2);
  fill_free(f);
  fill_free(first);
  closed(origin);
}

/* ---- lives --------------------------------------------------------------------------------- */

static void lives_are_those_of_the_response(void **state) {
  (void)state;
  static const struct {
    const char *headers;
    int status;
    int64_t ttl, swr, sie;
    int is_passed;
  } rows[] = {
      {"", 200, 0, 0, 0, 0},
      {"Cache-Control: max-age=60\r\n", 200, 60000, 0, 0, 0},
      {"Cache-Control: max-age=60, s-maxage=30, stale-while-revalidate=5\r\n", 200, 30000, 5000,
       CORRAL_OFF, 0},
      {"Cache-Control: max-age=60, stale-while-revalidate=5, stale-if-error=6\r\nAge: 10\r\n", 200,
       50000, 5000, 6000, 0},
      /* a header field folded over two lines */
      {"Cache-Control: max-age=60,\r\n must-revalidate\r\n", 200, 60000, CORRAL_OFF, CORRAL_OFF, 0},
      {"Cache-Control: max-age=0\r\n", 200, CORRAL_OFF, 0, 0, 0},
      {"Cache-Control: max-age=0, stale-if-error=9\r\n", 200, 1, 0, 9000, 0},
      {"Expires: 0\r\n", 200, CORRAL_OFF, 0, 0, 0},
      {"Cache-Control: private\r\n", 200, 0, 0, 0, 1},
      {"Cache-Control: no-store\r\n", 200, 0, 0, 0, 1},
      {"Cache-Control: no-cache\r\n", 200, CORRAL_OFF, CORRAL_OFF, CORRAL_OFF, 1},
      {"Set-Cookie: a=b\r\nCache-Control: max-age=60\r\n", 200, 60000, 0, 0, 1},
      {"Vary: *\r\n", 200, 0, 0, 0, 1},
      {"Vary: accept-encoding, Accept\r\n", 200, 0, 0, 0, 0},
      {"Vary: Accept-Encoding\r\nVary: Cookie\r\n", 200, 0, 0, 0, 1},
      {"Vary: X-Listed, X-Set\r\n", 200, 0, 0, 0, 0},
      {"Cache-Control: max-age=60\r\n", 404, 60000, 0, 0, 0},
      {"Cache-Control: no-store\r\n", 404, CORRAL_OFF, CORRAL_OFF, CORRAL_OFF, 0},
      {"X-Accel-Expires: 5\r\n", 200, 0, 0, 0, 0},
  };
  void *origin = opened("%s/{key}#vary=x-listed&header=X-Set:1", http_origin_url(server));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    http_origin_answer(
        server, "/l",
        HTTP_ANSWER(.status = rows[i].status, .headers = rows[i].headers, .body = "x"));
    corral_fill *f = fetched(origin, "l");
    if (f->end != FILL_DONE || !f->has_lives || f->ttl != rows[i].ttl || f->swr != rows[i].swr ||
        f->sie != rows[i].sie || f->is_passed != rows[i].is_passed)
      fail_msg("%d %s: end %d, %lld %lld %lld, passed %d", rows[i].status, rows[i].headers, f->end,
               (long long)f->ttl, (long long)f->swr, (long long)f->sie, f->is_passed);
    fill_free(f);
  }
  closed(origin);
}

static void an_authorized_answer_is_passed_unless_it_is_public(void **state) {
  (void)state;
  char port[64];
  snprintf(port, sizeof port, "127.0.0.1:%d", http_origin_port(server));
  void *const origins[] = {opened("http://me:secret@%s/{key}", port),
                           opened("http://%s/{key}#header=Authorization:Bearer%%20x", port),
                           opened("http://%s/{key}#vary=authorization", port)};
  static const char *const sent[] = {"Basic bWU6c2VjcmV0", "Bearer x", NULL};
  for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
    http_origin_answer(server, "/a",
                       HTTP_ANSWER(.headers = "Cache-Control: max-age=60\r\n", .body = "x"));
    corral_fill *f = fetched(origins[i], "a");
    assert_true(f->is_passed);
    if (sent[i] != NULL)
      assert_string_equal(http_origin_header(server, "/a", "Authorization"), sent[i]);
    fill_free(f);
    http_origin_answer(
        server, "/a", HTTP_ANSWER(.headers = "Cache-Control: public, max-age=60\r\n", .body = "x"));
    f = fetched(origins[i], "a");
    assert_false(f->is_passed);
    assert_int_equal(f->ttl, 60000);
    fill_free(f);
    closed(origins[i]);
  }
}

/* ---- validators ---------------------------------------------------------------------------- */

static void an_unchanged_answer_renews_the_old_value(void **state) {
  (void)state;
  char kept[1025];
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(
      server, "/e",
      HTTP_ANSWER(
              .etag = "\"v1\"",
              .headers =
                  "Cache-Control: max-age=60\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
              .body = "one"));
  corral_fill *f = fetched(origin, "e");
  snprintf(kept, sizeof kept, "%s", f->validator);
  expect_bytes(f, "one");
  assert_null(http_origin_header(server, "/e", "If-None-Match"));
  f = refetched(origin, "e", "one", kept);
  assert_int_equal(f->kind, FILLED_UNMODIFIED);
  assert_int_equal(f->ttl, 60000);
  assert_string_equal(f->validator, ""); /* not set: the old one stays */
  fill_free(f);
  assert_string_equal(http_origin_header(server, "/e", "If-None-Match"), "\"v1\"");
  assert_string_equal(http_origin_header(server, "/e", "If-Modified-Since"),
                      "Sun, 06 Nov 1994 08:49:37 GMT");
  http_origin_answer(server, "/e", HTTP_ANSWER(.etag = "\"v2\"", .body = "two"));
  f = refetched(origin, "e", "one", kept);
  assert_non_null(strstr(f->validator, "\"v2\""));
  expect_bytes(f, "two");
  closed(origin);
}

static void a_date_without_an_etag_is_asked_with_as_a_date(void **state) {
  (void)state;
  char kept[1025];
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/date",
                     HTTP_ANSWER(.headers = "Cache-Control: max-age=60\r\n"
                                            "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
                                 .body = "one"));
  corral_fill *f = fetched(origin, "date");
  snprintf(kept, sizeof kept, "%s", f->validator);
  expect_bytes(f, "one");
  fill_free(refetched(origin, "date", "one", kept));
  assert_null(http_origin_header(server, "/date", "If-None-Match"));
  assert_string_equal(http_origin_header(server, "/date", "If-Modified-Since"),
                      "Sun, 06 Nov 1994 08:49:37 GMT");
  closed(origin);
}

static void the_lives_of_an_unchanged_answer_are_new_where_it_names_them(void **state) {
  (void)state;
  static const struct {
    const char *headers;
    int64_t ttl, swr;
    int is_passed, is_remembered;
  } rows[] = {
      {"Cache-Control: max-age=60, stale-while-revalidate=7\r\n", 60000, 7000, 0, 0},
      {"", 60000, 7000, 0, 0}, /* RFC 9111 4.3.4: the lives of the stored response stay */
      {"Cache-Control: max-age=5\r\n", 5000, 0, 0, 1},
      {"Cache-Control: private\r\n", 60000, 7000, 1, 0},
  };
  char kept[1025];
  void *origin = opened("%s/{key}", http_origin_url(server));
  http_origin_answer(server, "/n",
                     HTTP_ANSWER(.etag = "W/\"v1\"", .headers = rows[0].headers, .body = "one"));
  corral_fill *f = fetched(origin, "n");
  snprintf(kept, sizeof kept, "%s", f->validator);
  fill_free(f);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    http_origin_answer(server, "/n", HTTP_ANSWER(.etag = "W/\"v1\"", .headers = rows[i].headers));
    f = refetched(origin, "n", "one", kept);
    assert_int_equal(f->kind, FILLED_UNMODIFIED);
    assert_int_equal(f->ttl, rows[i].ttl);
    assert_int_equal(f->swr, rows[i].swr);
    assert_int_equal(f->is_passed, rows[i].is_passed);
    assert_int_equal(f->validator[0] != '\0', rows[i].is_remembered);
    fill_free(f);
  }
  closed(origin);
}

static void a_validator_of_something_else_is_not_sent(void **state) {
  (void)state;
  char kept[1025];
  void *origin = opened("%s/{key}", http_origin_url(server)),
       *other = opened("%s/{key}?other", http_origin_url(server)),
       *whole = opened("%s/{key}#page=1", http_origin_url(server));
  http_origin_answer(server, "/e", HTTP_ANSWER(.etag = "\"v1\"", .body = "one"));
  corral_fill *f = fetched(origin, "e");
  snprintf(kept, sizeof kept, "%s", f->validator);
  fill_free(f);
  expect_bytes(refetched(other, "e", "one", kept), "one");
  /* a validator without an old value isn't sent */
  expect_bytes(refetched(origin, "e", NULL, kept), "one");
  static const char *const strange[] = {"", "\"v1\"", "http1 ", "http1 0 0 0 0\n\"v1\"\n",
                                        "http1 zz 1 2 3\n\"v1\"\n"};
  for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
    expect_bytes(refetched(origin, "e", "one", strange[i]), "one");
  size_t end = strlen(kept);
  snprintf(kept + end, sizeof kept - end, "x\r\nX-Injected: 1");
  expect_bytes(refetched(origin, "e", "one", kept), "one");
  f = refetched(whole, "e", "one", kept);
  assert_int_equal(f->kind, FILLED_BYTES);
  fill_free(f);
  assert_null(http_origin_header(server, "/e", "If-None-Match"));
  closed(origin);
  closed(other);
  closed(whole);
}

/* ---- opening ------------------------------------------------------------------------------- */

static void a_bad_url_or_parameter_is_refused_by_name(void **state) {
  (void)state;
  static const struct {
    const char *url, *why;
  } rows[] = {
      {"http://h/", "no {key}"},
      {"http://h/{id}", "{key}, {key:raw} or {uri}, once"},
      {"http://h/{key}{key}", "once"},
      {"http://{key}/", "behind the host"},
      {"http://h{key}/", "behind the host"},
      {"ftp://h/{key}", "http://HOST"},
      {"file:///{key}", "http"},
      {"http:///{key}", "host"},
      {"http://h:x/{key}", "ort"},
      {"http://h/a b/{key}", "percent-encoded"},
      {"http://h/../{key}", "'.' or '..'"},
      {"http://h/a/%2e/{key}", "'.' or '..'"},
      {"http://h/{key}#", NULL},
      {"http://h/{key}#total", "name=value"},
      {"http://h/{key}#total=1y", "with a unit"},
      {"http://h/{key}#total=1", NULL},
      {"http://h/{key}#total=1ms", NULL},
      {"http://h/{key}#total=x", "total=x"},
      {"http://h/{key}#totals=1s", "unknown parameter 'totals'"},
      {"http://h/{key}#total=1s&total=2s", "given twice"},
      {"http://h/{key}#ca=%zz", "hex digits"},
      {"http://h/{key}#max=0", "max=0"},
      {"http://h/{key}#redirects=21", "redirects=21"},
      {"http://h/{key}#page=yes", "accepted: 0, 1"},
      {"http://h/{key}#keep=20", "statuses from 200"},
      {"http://h/{key}#keep=304", "not 304"},
      {"http://h/{key}#keep=404", "in keep= and in negative="},
      {"http://h/{key}#allow=10.0.0.0/33", "'10.0.0.0/33'"},
      {"http://h/{key}#allow=all", "'all'"},
      {"http://h/{key}#deny=::1/129", "'::1/129'"},
      {"http://h/{key}#allow=private,10.1.2.3,::1,fc00::/7", NULL},
      {"http://h/{key}#vary=accept encoding", "vary="},
      {"http://h/{key}#vary=Range", "vary="},
      {"http://h/{key}#vary=host", "vary="},
      {"http://h/{key}#header=X", "Name:value"},
      {"http://h/{key}#header=X:", "Name:value"},
      {"http://h/{key}#header=If-None-Match:x", "Name:value"},
      {"http://h/{key}#header=X:a%0d%0aY:b", "Name:value"},
      {"http://h/{key}#vary=x&header=X:1", "in header= and in vary="},
      {"http://me:secret@h/{id}", "***@h"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    void *origin = NULL;
    corral_error error = {0};
    int status = crl_origin_http.open(&kit_host, rows[i].url, HTTP_MAX_VALUE, &origin, &error);
    if (status != (rows[i].why == NULL ? CORRAL_OK : CORRAL_EURI))
      fail_msg("%s: %d %s", rows[i].url, status, error.text);
    if (rows[i].why != NULL && strstr(error.text, rows[i].why) == NULL)
      fail_msg("%s: %s", rows[i].url, error.text);
    assert_null(strstr(error.text, "secret"));
    if (status == CORRAL_OK) closed(origin);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_key_takes_its_place_in_the_url),
      cmocka_unit_test(a_key_that_makes_no_url_fails_without_a_request),
      cmocka_unit_test(lines_of_the_key_are_header_fields),
      cmocka_unit_test(statuses_are_kept_negative_or_failures),
      cmocka_unit_test(a_failure_tells_when_to_try_again),
      cmocka_unit_test(bodies_come_in_every_framing),
      cmocka_unit_test(page_keeps_status_header_and_tags),
      cmocka_unit_test(a_page_says_for_which_requests_it_is),
      cmocka_unit_test(a_304_renews_the_header_of_a_page),
      cmocka_unit_test(lives_are_those_of_the_response),
      cmocka_unit_test(an_authorized_answer_is_passed_unless_it_is_public),
      cmocka_unit_test(an_unchanged_answer_renews_the_old_value),
      cmocka_unit_test(a_date_without_an_etag_is_asked_with_as_a_date),
      cmocka_unit_test(the_lives_of_an_unchanged_answer_are_new_where_it_names_them),
      cmocka_unit_test(a_validator_of_something_else_is_not_sent),
      cmocka_unit_test(a_bad_url_or_parameter_is_refused_by_name),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
