/* test_nginx_http.c: the nginx module and HTTP: headers, methods, ranges, conditions, variants, and
 * responses that aren't stored. Real nginx, real Redis. */
#include "support/nginx_kit.h"

#include <corral.h>

#include <corral/page.h>
#include <unistd.h>

#define PAGES                                                                                      \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; proxy_pass %ORIGIN%; gzip on; gzip_types text/plain; "               \
  "gzip_min_length 1; gzip_vary on; }"                                                             \
  "location /grace/ { corral pages; corral_valid 20000d; corral_stale 3650d; "                     \
  "corral_stale_if_error 3650d; proxy_pass %ORIGIN%; }"                                            \
  "location /variable/ { corral pages; corral_valid 1m; corral_key $uri$http_range$http_x_other; " \
  "proxy_set_header X-Range $http_range;"                                                          \
  "  proxy_set_header X-Again $http_x_other; proxy_pass %ORIGIN%; }"                               \
  "location /fields/ { corral pages; proxy_buffer_size 16k; proxy_buffers 4 16k; proxy_pass "      \
  "%ORIGIN%; }"                                                                                    \
  "location /valid/ { corral pages; corral_valid 200 404 503 1m; proxy_pass %ORIGIN%; }"           \
  "location /small/ { corral pages; corral_max_size 1k; corral_valid 1m; proxy_pass %ORIGIN%; }"   \
  "location /ignore/ { corral pages; corral_valid any 1m; corral_ignore_headers Set-Cookie "       \
  "Cache-Control; proxy_pass %ORIGIN%; }"                                                          \
  "location /wish/ { corral pages; corral_valid 1m; corral_bypass $arg_bypass; corral_no_store "   \
  "$arg_nostore $upstream_http_x_dont; proxy_pass %ORIGIN%; }"                                     \
  "location /error/ { corral pages; corral_at_failure error; corral_valid 1m; error_page 500 "     \
  "=200 /sorry; proxy_pass "                                                                       \
  "%ORIGIN%; }"                                                                                    \
  "location = /sorry { return 200 sorry; }"                                                        \
  "location /files/ { corral pages; corral_valid 1m; root %FOLDER%/www; }"                         \
  "location /named/ { corral pages; corral_valid 1m; corral_pass @origin; }"                       \
  "location @origin { proxy_pass %ORIGIN%; }"                                                      \
  "location /uri/ { corral pages; corral_valid 1m; corral_pass /behind$uri?from=$arg_x; }"         \
  "location /try/ { corral pages; corral_valid 1m; root %FOLDER%/www; try_files $uri @origin; }"   \
  "location /fallback/ { corral pages; corral_valid 1m; root %FOLDER%/www; error_page 404 = "      \
  "@origin; }"                                                                                     \
  "location /behind/ { internal; proxy_pass %ORIGIN%; }"                                           \
  "location /buffers/ { corral pages; corral_valid 1m; proxy_buffer_size 4k; proxy_buffers 3 4k; " \
  "proxy_busy_buffers_size 4k; proxy_max_temp_file_size 0; proxy_pass %ORIGIN%; }"                 \
  "location /named_status/ { corral pages; corral_valid 1m; corral_cache_status 'a cache'; "       \
  "proxy_pass %ORIGIN%; }"                                                                         \
  "location /forged { corral pages; corral_valid 1m; corral_key $uri; proxy_pass %ORIGIN%; }"      \
  "location /silent/ { corral pages; corral_valid 1m; corral_cache_status off; proxy_pass "        \
  "%ORIGIN%; }"                                                                                    \
  "location /ssi/ { ssi on; ssi_types text/plain; proxy_pass %ORIGIN%; }"                          \
  "location /fragment { corral pages; corral_valid 1m; proxy_pass %ORIGIN%; }"                     \
  "location /logged/ { corral pages; corral_valid 1m; access_log %FOLDER%/access.log said; "       \
  "proxy_pass %ORIGIN%; }"

enum { SLOW_S = 15 }; /* so much may a busy machine add to an Age */

#define KEPT "Cache-Control: max-age=60\r\n"
#define HTTP "log_format said '$corral_status $corral_age $corral_wait $corral_key $status';"

static nginx_server *server;

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){.locations = PAGES, .http = HTTP});
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

/* Sets the origin's answer for a path and returns the path. */
static const char *page(const char *path, const http_answer *answer) {
  http_origin_answer(nginx_kit_origin, path, answer);
  return path;
}

static void the_second_request_is_answered_from_the_store(void **state) {
  (void)state;
  const char *path = page(
      "/hit",
      HTTP_ANSWER(.headers =
                      "Cache-Control: max-age=60\r\nX-Own: kept\r\nContent-Type: text/x-own\r\n",
                  .body = "hello"));
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "hello", "cache-status"),
                      "pages; fwd=miss; fwd-status=200; stored; ttl=60");
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "hello", "x-own"), "kept");
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "hello", "content-type"),
                      "text/x-own");
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "hello", "cache-control"),
                      "max-age=60");
  assert_in_range(strtol(nginx_kit_expect(server, path, NULL, 200, "hello", "age"), NULL, 10), 0,
                  SLOW_S);
  assert_int_equal(strncmp(nginx_kit_expect(server, path, NULL, 200, "hello", "cache-status"),
                           "pages; hit; ttl=", 16),
                   0);
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
}

static void a_cold_head_asks_the_origin_by_get_and_warms_the_page(void **state) {
  (void)state;
  const char *path = page("/head", HTTP_ANSWER(.headers = KEPT, .body = "hello"));
  for (int i = 0; i < 2; i++) {
    http_reply reply = nginx_kit_ask(server, "HEAD", path, NULL);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.size, 0);
    assert_string_equal(http_reply_header(&reply, "content-length"), "5");
    http_reply_free(&reply);
  }
  assert_string_equal(http_origin_header(nginx_kit_origin, path, ":method"), "GET");
  nginx_kit_expect(server, path, NULL, 200, "hello", NULL);
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
}

static void a_range_is_cut_from_the_whole_page_cold_and_warm(void **state) {
  (void)state;
  const char *path = page("/range", HTTP_ANSWER(.headers = KEPT, .body = "0123456789"));
  assert_string_equal(
      nginx_kit_expect(server, path, "Range: bytes=2-4\r\n", 206, "234", "content-range"),
      "bytes 2-4/10");
  assert_null(http_origin_header(nginx_kit_origin, path, "range"));
  assert_string_equal(
      nginx_kit_expect(server, path, "Range: bytes=-2\r\n", 206, "89", "content-range"),
      "bytes 8-9/10");
  nginx_kit_expect(server, path, "Range: bytes=20-\r\n", 416, NULL, NULL);
  nginx_kit_expect(server, path, NULL, 200, "0123456789", NULL);
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
}

static void a_condition_is_answered_from_the_store(void **state) {
  (void)state;
  const char *path =
      page("/etag", HTTP_ANSWER(.headers = KEPT "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
                                .body = "hello", .etag = "\"one\""));
  /* cold: the origin gets a plain request for the page */
  nginx_kit_expect(server, path, "If-None-Match: \"one\"\r\n", 304, "", NULL);
  assert_null(http_origin_header(nginx_kit_origin, path, "if-none-match"));
  assert_string_equal(nginx_kit_expect(server, path, "If-None-Match: \"one\"\r\n", 304, "", "etag"),
                      "\"one\"");
  nginx_kit_expect(server, path, "If-None-Match: \"two\"\r\n", 200, "hello", NULL);
  nginx_kit_expect(server, path, "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", 304, "",
                   NULL);
  nginx_kit_expect(server, path, "Range: bytes=0-1\r\nIf-Range: \"one\"\r\n", 206, "he", NULL);
  nginx_kit_expect(server, path, "Range: bytes=0-1\r\nIf-Range: \"two\"\r\n", 200, "hello", NULL);
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
}

static void one_stored_page_is_compressed_for_those_who_take_it(void **state) {
  (void)state;
  const char *path = page(
      "/gzip", HTTP_ANSWER(.headers = KEPT "Content-Type: text/plain\r\nVary: Accept-Encoding\r\n",
                           .body = "hello", .repeat = 100));
  for (int i = 0; i < 2; i++) {
    assert_string_equal(
        nginx_kit_expect(server, path, "Accept-Encoding: gzip\r\n", 200, NULL, "content-encoding"),
        "gzip");
    assert_string_equal(nginx_kit_expect(server, path, NULL, 200, NULL, "content-encoding"), "");
    assert_string_equal(nginx_kit_expect(server, path, NULL, 200, NULL, "vary"), "Accept-Encoding");
  }
  assert_null(http_origin_header(nginx_kit_origin, path, "accept-encoding"));
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
}

static void each_variant_of_a_page_is_computed_once(void **state) {
  (void)state;
  const char *path = page("/vary", HTTP_ANSWER(.headers = KEPT "Vary: Accept-Language, X-Kind\r\n",
                                               .body = "page", .numbered = 1));
  for (int i = 0; i < 2; i++) {
    nginx_kit_expect(server, path, "Accept-Language: de\r\n", 200, "page 1", NULL);
    nginx_kit_expect(server, path, "accept-language:   de \r\n", 200, "page 1", NULL);
    nginx_kit_expect(server, path, "Accept-Language: fr\r\n", 200, "page 2", NULL);
    nginx_kit_expect(server, path, "Accept-Language: fr\r\nX-Kind: a\r\n", 200, "page 3", NULL);
    nginx_kit_expect(server, path, NULL, 200, "page 4", NULL);
  }
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 4);
  path =
      page("/vary_all", HTTP_ANSWER(.headers = KEPT "Vary: *\r\n", .body = "page", .numbered = 1));
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "page 1", "cache-status"),
                      "pages; fwd=miss; fwd-status=200; detail=\"Vary: *\"");
  nginx_kit_expect(server, path, NULL, 200, "page 2", NULL);
}

static void what_is_for_one_client_is_never_given_to_another(void **state) {
  (void)state;
  static const char *const headers[] = {
      KEPT "Set-Cookie: id=1\r\n",    "Cache-Control: private, max-age=60\r\n",
      "Cache-Control: no-store\r\n",  "Cache-Control: no-cache\r\n",
      "Cache-Control: max-age=0\r\n", "",
      KEPT "X-Accel-Expires: 0\r\n"};
  char path[32];
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    snprintf(path, sizeof path, "/private%zu", i);
    page(path, HTTP_ANSWER(.headers = headers[i], .body = "mine", .numbered = 1));
    assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "mine 1", "set-cookie"),
                        i == 0 ? "id=1" : "");
    assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "mine 2", "set-cookie"),
                        i == 0 ? "id=1" : "");
    /* the response comes directly from the origin, which supports no ranges */
    nginx_kit_expect(server, path, "Range: bytes=0-3\r\n", 200, "mine 3", NULL);
  }
  const char *secret = page("/secret", HTTP_ANSWER(.headers = KEPT, .body = "mine", .numbered = 1));
  nginx_kit_expect(server, secret, "Authorization: Basic eDp5\r\n", 200, "mine 1", NULL);
  nginx_kit_expect(server, secret, "Authorization: Basic eDp6\r\n", 200, "mine 2", NULL);
}

static void a_status_lives_as_corral_valid_says(void **state) {
  (void)state;
  const char *path = page("/valid/404", HTTP_ANSWER(.status = 404, .body = "gone", .numbered = 1));
  for (int i = 0; i < 2; i++) nginx_kit_expect(server, path, NULL, 404, "gone 1", NULL);
  path = page("/valid/503", HTTP_ANSWER(.status = 503, .body = "busy", .numbered = 1));
  for (int i = 0; i < 2; i++) nginx_kit_expect(server, path, NULL, 503, "busy 1", NULL);
  path = page("/valid/301", HTTP_ANSWER(.status = 301, .headers = KEPT "Location: /elsewhere\r\n",
                                        .body = "", .numbered = 0));
  for (int i = 0; i < 2; i++)
    assert_non_null(
        strstr(nginx_kit_expect(server, path, NULL, 301, NULL, "location"), "/elsewhere"));
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
  path = page("/valid/410", HTTP_ANSWER(.status = 410, .body = "gone", .numbered = 1));
  for (int i = 1; i < 3; i++)
    nginx_kit_expect(server, path, NULL, 410, i == 1 ? "gone 1" : "gone 2", NULL);
}

static void a_body_over_the_limit_is_passed_on_whole(void **state) {
  (void)state;
  char whole[5001];
  memset(whole, 'x', sizeof whole - 1);
  whole[sizeof whole - 1] = '\0';
  const char *known = page("/small/known", HTTP_ANSWER(.body = "x", .repeat = 5000));
  const char *chunked =
      page("/small/chunked", HTTP_ANSWER(.body = "x", .repeat = 5000, .chunked = 1));
  for (int i = 0; i < 2; i++) {
    nginx_kit_expect(server, known, NULL, 200, whole, NULL);
    nginx_kit_expect(server, chunked, NULL, 200, whole, NULL);
  }
  assert_int_equal(http_origin_seen(nginx_kit_origin, known), 2);
  assert_int_equal(http_origin_seen(nginx_kit_origin, chunked), 2);
  const char *fits = page("/small/fits", HTTP_ANSWER(.body = "x", .repeat = 1024));
  whole[1024] = '\0';
  for (int i = 0; i < 2; i++) nginx_kit_expect(server, fits, NULL, 200, whole, NULL);
  assert_int_equal(http_origin_seen(nginx_kit_origin, fits), 1);
}

static void the_rest_of_a_body_over_the_limit_isnt_read_for_nobody(void **state) {
  (void)state;
  const char *path = page("/small/endless", HTTP_ANSWER(.body = "x", .repeat = 50000, .chunked = 1,
                                                        .fate = HTTP_FATE_HANGS_MID_BODY));
  http_client *client = http_client_new(nginx_server_address(server));
  assert_int_equal(http_client_send(client, &(http_request){.path = path}), 0);
  assert_true(http_origin_await_running(nginx_kit_origin, path, 1));
  http_client_hang_up(client);
  http_client_free(client);
  for (int i = 0; i < 3000 && http_origin_running(nginx_kit_origin, path) != 0; i++) {
    nginx_kit_expect(server, "/status", NULL, 200, NULL, NULL);
    usleep(10000);
  }
  assert_int_equal(http_origin_running(nginx_kit_origin, path), 0);
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
}

static void a_header_that_cant_be_kept_is_passed_on_whole(void **state) {
  (void)state;
  char lines[8000] = KEPT;
  for (int i = 0; i < 300; i++)
    snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "X-%d: %d\r\n", i, i);
  const char *path =
      page("/fields/many", HTTP_ANSWER(.headers = lines, .body = "page", .numbered = 1));
  nginx_kit_expect(server, path, NULL, 200, "page 1", NULL);
  nginx_kit_expect(server, path, NULL, 200, "page 2", NULL);
}

static void a_large_body_needs_no_room_among_the_upstreams_buffers(void **state) {
  (void)state;
  size_t size = 600000;
  char *whole = calloc(1, size + 1);
  memset(whole, 'y', size);
  const char *paths[] = {
      page("/buffers/sized", HTTP_ANSWER(.body = "y", .repeat = size)),
      page("/buffers/chunked", HTTP_ANSWER(.body = "y", .repeat = size, .chunked = 1)),
      page("/buffers/unsized", HTTP_ANSWER(.body = "y", .repeat = size, .unsized = 1))};
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 2; k++) nginx_kit_expect(server, paths[i], NULL, 200, whole, NULL);
    assert_int_equal(http_origin_seen(nginx_kit_origin, paths[i]), 1);
  }
  free(whole);
}

static void an_upstream_that_dies_mid_body_leaves_nothing_behind(void **state) {
  (void)state;
  for (int chunked = 0; chunked < 2; chunked++) {
    const char *path = chunked ? "/valid/dies_chunked" : "/valid/dies";
    page(path, HTTP_ANSWER(.headers = KEPT, .body = "hello", .repeat = 20000, .chunked = chunked,
                           .fate = HTTP_FATE_DIES_MID_BODY));
    http_reply reply = nginx_kit_get(server, path, NULL);
    assert_true(reply.status == 502 || reply.cut_status == 200);
    http_reply_free(&reply);
    page(path, HTTP_ANSWER(.headers = KEPT, .body = "hello"));
    /* a failure is remembered for a short time */
    assert_true(nginx_kit_await_status(server, path, 502, 200));
    nginx_kit_expect(server, path, NULL, 200, "hello", NULL);
  }
}

static void a_failure_is_answered_by_its_page(void **state) {
  (void)state;
  const char *path = page("/error/500", HTTP_ANSWER(.status = 500, .body = "trace"));
  nginx_kit_expect(server, path, NULL, 500, "trace", NULL);
  nginx_kit_expect(server, path, NULL, 200, "sorry", NULL); /* it is remembered */
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
  path = page("/valid/down", HTTP_ANSWER(.fate = HTTP_FATE_DIES));
  assert_string_equal(nginx_kit_expect(server, path, NULL, 502, NULL, "cache-status"),
                      "pages; fwd=miss; fwd-status=502; detail=failed");
}

static void wishes_not_to_be_cached_are_heard(void **state) {
  (void)state;
  page("/wish/page", HTTP_ANSWER(.body = "page", .numbered = 1));
  assert_string_equal(
      nginx_kit_expect(server, "/wish/page?bypass=1", NULL, 200, "page 1", "cache-status"),
      "pages; fwd=bypass; fwd-status=200");
  nginx_kit_expect(server, "/wish/page?nostore=1", NULL, 200, "page 2", NULL);
  nginx_kit_expect(server, "/wish/page?nostore=1", NULL, 200, "page 3", NULL);
  page("/wish/dont", HTTP_ANSWER(.body = "page", .numbered = 1, .headers = "X-Dont: 1\r\n"));
  assert_string_equal(nginx_kit_expect(server, "/wish/dont", NULL, 200, "page 1", "cache-status"),
                      "pages; fwd=miss; fwd-status=200; detail=corral_no_store");
  nginx_kit_expect(server, "/wish/dont", NULL, 200, "page 2", NULL);
  page("/ignore/page", HTTP_ANSWER(.body = "page", .numbered = 1,
                                   .headers = "Cache-Control: no-store\r\nSet-Cookie: id=1\r\n"));
  for (int i = 0; i < 2; i++)
    assert_string_equal(nginx_kit_expect(server, "/ignore/page", NULL, 200, "page 1", "set-cookie"),
                        "");
  page("/wish/post", HTTP_ANSWER(.body = "page", .numbered = 1));
  for (int i = 1; i < 3; i++) {
    http_reply reply = nginx_kit_ask(server, "POST", "/wish/post", "Content-Type: text/plain\r\n");
    assert_string_equal(reply.body, i == 1 ? "page 1" : "page 2");
    assert_string_equal(http_reply_header(&reply, "cache-status"),
                        "pages; fwd=method; fwd-status=200");
    http_reply_free(&reply);
  }
}

static void the_origin_may_be_files_or_another_location(void **state) {
  (void)state;
  char file[128];
  snprintf(file, sizeof file, "mkdir -p %s/www/files && printf one >%s/www/files/a.txt",
           nginx_server_folder(server), nginx_server_folder(server));
  assert_int_equal(system(file), 0);
  nginx_kit_expect(server, "/files/a.txt", NULL, 200, "one", NULL);
  snprintf(file, sizeof file, "%s/www/files/a.txt", nginx_server_folder(server));
  assert_int_equal(remove(file), 0);
  nginx_kit_expect(server, "/files/a.txt", "Range: bytes=1-\r\n", 206, "ne", NULL);
  assert_string_not_equal(nginx_kit_expect(server, "/files/a.txt", NULL, 200, "one", "etag"), "");
  nginx_kit_expect(server, "/files/none.txt", NULL, 404, NULL, NULL);

  page("/named/page", HTTP_ANSWER(.body = "page", .numbered = 1));
  for (int i = 0; i < 2; i++) nginx_kit_expect(server, "/named/page", NULL, 200, "page 1", NULL);
  page("/behind/uri/page", HTTP_ANSWER(.body = "page", .numbered = 1));
  for (int i = 0; i < 2; i++) nginx_kit_expect(server, "/uri/page?x=7", NULL, 200, "page 1", NULL);
  assert_string_equal(http_origin_header(nginx_kit_origin, "/behind/uri/page", ":target"),
                      "/behind/uri/page?from=7");
  page("/behind/uri/cookie",
       HTTP_ANSWER(.body = "page", .numbered = 1, .headers = "Set-Cookie: a=b\r\n"));
  for (int i = 1; i < 3; i++)
    nginx_kit_expect(server, "/uri/cookie", NULL, 200, i == 1 ? "page 1" : "page 2", NULL);
  page("/named/cookie",
       HTTP_ANSWER(.body = "page", .numbered = 1, .headers = "Set-Cookie: a=b\r\n"));
  for (int i = 1; i < 3; i++)
    assert_string_equal(nginx_kit_expect(server, "/named/cookie", NULL, 200,
                                         i == 1 ? "page 1" : "page 2", "cache-status"),
                        i == 1 ? "pages; fwd=miss; fwd-status=200; detail=Set-Cookie"
                               : "pages; fwd=miss; fwd-status=200");
}

static void what_a_location_falls_back_to_is_kept(void **state) {
  (void)state;
  static const char *const paths[] = {"/try/page", "/fallback/page", "/try/cookie",
                                      "/fallback/cookie"};
  for (int i = 0; i < 4; i++) {
    page(paths[i],
         HTTP_ANSWER(.body = "page", .numbered = 1, .headers = i < 2 ? "" : "Set-Cookie: a=b\r\n"));
    nginx_kit_expect(server, paths[i], NULL, 200, "page 1", NULL);
    nginx_kit_expect(server, paths[i], NULL, 200, i < 2 ? "page 1" : "page 2", NULL);
  }
}

static void a_life_has_an_upper_bound(void **state) {
  (void)state;
  const char *path =
      page("/ages", HTTP_ANSWER(.body = "page", .numbered = 1,
                                .headers = "Cache-Control: max-age=99999999999999999999, "
                                           "stale-while-revalidate=99999999999\r\n"));
  for (int i = 0; i < 2; i++) nginx_kit_expect(server, path, NULL, 200, "page 1", NULL);
  const char *grace = page("/grace/page", HTTP_ANSWER(.body = "page", .numbered = 1));
  for (int i = 0; i < 2; i++) nginx_kit_expect(server, grace, NULL, 200, "page 1", NULL);
}

static void an_answers_age_goes_on_where_another_cache_left_off(void **state) {
  (void)state;
  const char *path = page("/aged", HTTP_ANSWER(.body = "page", .headers = KEPT "Age: 20\r\n"));
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "page", "cache-status"),
                      "pages; fwd=miss; fwd-status=200; stored; ttl=40");
  assert_in_range(strtol(nginx_kit_expect(server, path, NULL, 200, "page", "age"), NULL, 10), 20,
                  20 + SLOW_S);
}

static void a_variable_of_a_dropped_field_is_empty_at_the_origin(void **state) {
  (void)state;
  const char *path = page("/variable/a", HTTP_ANSWER(.body = "0123456789"));
  nginx_kit_expect(server, path, "Range: bytes=2-4\r\nX-Other: kept\r\n", 206, "234", NULL);
  assert_null(http_origin_header(nginx_kit_origin, path, "x-range"));
  assert_string_equal(http_origin_header(nginx_kit_origin, path, "x-again"), "kept");
}

static void a_fragment_of_a_page_is_cached_by_itself(void **state) {
  (void)state;
  page("/ssi/page", HTTP_ANSWER(.headers = "Content-Type: text/plain\r\n",
                                .body = "<<!--# include virtual=\"/fragment?a\" -->|<!--# include "
                                        "virtual=\"/fragment?b\" -->>"));
  page("/fragment", HTTP_ANSWER(.body = "part", .numbered = 1, .delay_ms = 20));
  http_reply first = nginx_kit_get(server, "/ssi/page", NULL);
  assert_true(strcmp(first.body, "<part 1|part 2>") == 0 ||
              strcmp(first.body, "<part 2|part 1>") == 0);
  nginx_kit_expect(server, "/ssi/page", NULL, 200, first.body, NULL);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/fragment"), 2);
  http_reply_free(&first);
}

static void the_cache_status_has_the_name_that_is_given(void **state) {
  (void)state;
  page("/named_status/", HTTP_ANSWER(.body = "x"));
  page("/silent/", HTTP_ANSWER(.body = "x"));
  assert_string_equal(nginx_kit_expect(server, "/named_status/", NULL, 200, "x", "cache-status"),
                      "\"a cache\"; fwd=miss; fwd-status=200; stored; ttl=60");
  assert_string_equal(nginx_kit_expect(server, "/silent/", NULL, 200, "x", "cache-status"), "");
}

/* Of the first line of a hit; -1: there is none. */
static long hit_age_of(const char *text) {
  const char *at = strstr(text, "HIT ");
  return at != NULL ? strtol(at + 4, NULL, 10) : -1;
}

static void the_access_log_says_how_a_request_was_answered(void **state) {
  (void)state;
  char path[128], text[512] = "";
  page("/logged/a", HTTP_ANSWER(.body = "x"));
  for (int i = 0; i < 2; i++) nginx_kit_expect(server, "/logged/a", NULL, 200, "x", NULL);
  snprintf(path, sizeof path, "%s/access.log", nginx_server_folder(server));
  /* each line is written after its answer, so the second may be there first; a request that comes
   * before the page is stored is no hit yet */
  for (int i = 0; i < 200 && (strstr(text, "MISS 0 ") == NULL || hit_age_of(text) < 0); i++) {
    nginx_kit_expect(server, "/logged/a", NULL, 200, NULL, NULL);
    FILE *file = fopen(path, "re");
    if (file != NULL) text[fread(text, 1, sizeof text - 1, file)] = '\0', fclose(file);
  }
  if (strstr(text, "MISS 0 ") == NULL) fail_msg("%s", text);
  assert_in_range(hit_age_of(text), 0, SLOW_S);
  if (strstr(text, " httplocalhost/logged/a 200\n") == NULL) fail_msg("%s", text);
}

/* Stores a record made by corral_page_write under this key. */
static void forge(const char *key, const corral_page *record, const corral_page_field *field) {
  unsigned char bytes[600];
  corral *c;
  unsigned char *end = corral_page_write(bytes, record, field, 1);
  memcpy(end, "forged", 6);
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = redis_server_uri(nginx_kit_redis), .op_ms = 5000), &c,
                  NULL),
      CORRAL_OK);
  assert_int_equal(corral_set(c, key, strlen(key),
                              CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 60000)), bytes,
                              (size_t)(end + 6 - bytes)),
                   CORRAL_OK);
  corral_close(c);
}

#define FIELD(name, value)                                                                         \
  {                                                                                                \
    (const unsigned char *)(name), (const unsigned char *)(value), sizeof(name) - 1,               \
        sizeof(value) - 1                                                                          \
  }

static void a_forged_page_is_never_sent_and_made_anew_once(void **state) {
  (void)state;
  static const corral_page_field good = FIELD("X-Own", "forged");
  static const struct {
    corral_page record;
    corral_page_field field;
  } rows[] = {
      {{.status = 200}, FIELD("X", "a\r\nSet-Cookie: session=1")},
      {{.status = 200}, FIELD("X", "a\r\n\r\nHTTP/1.1 200 OK")},
      {{.status = 200}, FIELD("X\r\nSet-Cookie", "session=1")},
      {{.status = 200}, FIELD("X", "a\0b")},
      {{.status = 200}, FIELD("Content-Length", "0")},
      {{.status = 200}, FIELD("Transfer-Encoding", "chunked")},
      {{.status = 200}, FIELD("Content-Type", "text/html\nX: y")},
      {{.status = 101}, FIELD("X-Own", "forged")},
      {{.status = 999}, FIELD("X-Own", "forged")},
      {{.status = 200, .ttl_ms = INT64_MAX, .swr_ms = INT64_MAX}, FIELD("X-Own", "forged")},
  };
  http_origin_answer(nginx_kit_origin, "/forged", HTTP_ANSWER(.body = "page", .numbered = 1));
  forge("/forged", &(corral_page){.status = 203}, &good); /* a valid record is served */
  assert_string_equal(nginx_kit_expect(server, "/forged", NULL, 203, "forged", "x-own"), "forged");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char body[16];
    snprintf(body, sizeof body, "page %zu", i + 1);
    long counted = nginx_kit_counter(server, "foreign");
    forge("/forged", &rows[i].record, &rows[i].field);
    assert_string_equal(nginx_kit_expect(server, "/forged", NULL, 200, body, "cache-status"),
                        "pages; fwd=miss; fwd-status=200; stored; ttl=60");
    assert_string_equal(nginx_kit_expect(server, "/forged", NULL, 200, body, "set-cookie"), "");
    assert_int_equal(nginx_kit_counter(server, "foreign"), counted + 1);
  }
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/forged"), sizeof rows / sizeof *rows);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_second_request_is_answered_from_the_store),
      cmocka_unit_test(a_cold_head_asks_the_origin_by_get_and_warms_the_page),
      cmocka_unit_test(a_range_is_cut_from_the_whole_page_cold_and_warm),
      cmocka_unit_test(a_condition_is_answered_from_the_store),
      cmocka_unit_test(one_stored_page_is_compressed_for_those_who_take_it),
      cmocka_unit_test(each_variant_of_a_page_is_computed_once),
      cmocka_unit_test(what_is_for_one_client_is_never_given_to_another),
      cmocka_unit_test(a_status_lives_as_corral_valid_says),
      cmocka_unit_test(a_body_over_the_limit_is_passed_on_whole),
      cmocka_unit_test(the_rest_of_a_body_over_the_limit_isnt_read_for_nobody),
      cmocka_unit_test(a_header_that_cant_be_kept_is_passed_on_whole),
      cmocka_unit_test(a_large_body_needs_no_room_among_the_upstreams_buffers),
      cmocka_unit_test(an_upstream_that_dies_mid_body_leaves_nothing_behind),
      cmocka_unit_test(a_failure_is_answered_by_its_page),
      cmocka_unit_test(wishes_not_to_be_cached_are_heard),
      cmocka_unit_test(the_origin_may_be_files_or_another_location),
      cmocka_unit_test(what_a_location_falls_back_to_is_kept),
      cmocka_unit_test(a_life_has_an_upper_bound),
      cmocka_unit_test(an_answers_age_goes_on_where_another_cache_left_off),
      cmocka_unit_test(a_variable_of_a_dropped_field_is_empty_at_the_origin),
      cmocka_unit_test(a_fragment_of_a_page_is_cached_by_itself),
      cmocka_unit_test(the_cache_status_has_the_name_that_is_given),
      cmocka_unit_test(the_access_log_says_how_a_request_was_answered),
      cmocka_unit_test(a_forged_page_is_never_sent_and_made_anew_once),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
