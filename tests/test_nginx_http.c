/* test_nginx_http.c: the nginx module as HTTP sees it: headers, methods, ranges, conditions, variants, and what isn't kept. Real nginx, real Redis. */
#include "support/nginx_kit.h"

#define PAGES "location = /status { corral_status; } location / { corral pages; proxy_pass %ORIGIN%; }"

static nginx_server *server;

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){.locations = PAGES});
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server);
  return 0;
}

/* A path of this test's own, answered so. */
static const char *page(const char *path, const http_answer *answer) {
  http_origin_answer(nginx_kit_origin, path, answer);
  return path;
}

static void the_second_request_is_answered_from_the_store(void **state) {
  (void)state;
  const char *path = page("/hit", HTTP_ANSWER(.headers = "Cache-Control: max-age=60\r\nX-Own: kept\r\nContent-Type: text/x-own\r\n", .body = "hello"));
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "hello", "cache-status"), "pages; fwd=miss; fwd-status=200; stored; ttl=60");
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "hello", "x-own"), "kept");
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "hello", "content-type"), "text/x-own");
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "hello", "cache-control"), "max-age=60");
  assert_string_equal(nginx_kit_expect(server, path, NULL, 200, "hello", "age"), "0");
  assert_int_equal(strncmp(nginx_kit_expect(server, path, NULL, 200, "hello", "cache-status"), "pages; hit; ttl=", 16), 0);
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_second_request_is_answered_from_the_store)};
  int failed = cmocka_run_group_tests(tests, start, stop);
  nginx_kit_close();
  return failed;
}
