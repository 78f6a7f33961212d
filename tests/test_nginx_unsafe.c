/* test_nginx_unsafe.c: the nginx module invalidates what unsafe methods have changed (RFC 9111,
 * section 4.4). Real nginx, real Redis. */
#define LOCATIONS                                                                                  \
  "location / { corral pages; proxy_pass %ORIGIN%; }"                                              \
  "location /keyed/ { corral pages; corral_key $uri; proxy_pass %ORIGIN%; }"

#include "support/nginx_story.h"

#define FOO KEPT "Vary: Foo\r\n"

#define CHANGES(path, verb, code, number)                                                          \
  {                                                                                                \
    "4.4", path, {                                                                                 \
      {.answer = ANSWER(.headers = KEPT), .page = "page 1", .seen = 1},                            \
          {.answer = ANSWER(.status = code, .headers = KEPT),                                      \
           .method = verb,                                                                         \
           .body = "x",                                                                            \
           .status = code,                                                                         \
           .asked = ": " verb,                                                                     \
           .seen = 2},                                                                             \
      {                                                                                            \
        .answer = ANSWER(.headers = KEPT), .page = "page " #number, .seen = number == 1 ? 2 : 3    \
      }                                                                                            \
    }                                                                                              \
  }

static void section_4_4_unsafe_methods_invalidate(void **state) {
  (void)state;
  const nginx_story stories[] = {
      CHANGES("/posted", "POST", 200, 3),
      CHANGES("/put", "PUT", 201, 3),
      CHANGES("/deleted", "DELETE", 204, 3),
      CHANGES("/patched", "PATCH", 303, 3),
      CHANGES("/unknown", "M-SEARCH", 200, 3),
      CHANGES("/refused", "POST", 403, 1),
      CHANGES("/failed", "POST", 500, 1),
      CHANGES("/reported", "REPORT", 200, 1),
      CHANGES("/keyed/posted", "POST", 200, 3),
      {"4.4",
       "/posted-variant",
       {{.answer = ANSWER(.headers = FOO), .headers = "Foo: 1\r\n", .seen = 1},
        {.headers = "Foo: 2\r\n", .seen = 2},
        {.method = "POST", .body = "x", .seen = 3},
        {.headers = "Foo: 1\r\n", .page = "page 4", .seen = 4},
        {.headers = "Foo: 2\r\n", .page = "page 5", .seen = 5}}},
  };
  NGINX_STORIES(stories);
}

static void section_4_4_locations_of_the_same_origin_are_invalidated_too(void **state) {
  (void)state;
  static const char *const fields[] = {"Location: /dir/target\r\n",
                                       "Content-Location: target?\r\n",
                                       "Content-Location: target\r\n",
                                       "Location: http://localhost/dir/target#part\r\n",
                                       "Location: http://elsewhere/dir/target\r\n",
                                       "Location: //localhost/dir/target\r\n"};
  static const int seen[] = {2, 2, 3, 4, 4, 4};
  http_origin_answer(nginx_kit_origin, "/dir/target", ANSWER(.headers = KEPT));
  nginx_kit_expect(server, "/dir/target", NULL, 200, NULL, NULL);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    http_origin_answer(nginx_kit_origin, "/dir/form", ANSWER(.headers = fields[i]));
    http_reply reply = nginx_kit_ask(server, "POST", "/dir/form?a=/b", NULL);
    assert_int_equal(reply.status, 200);
    http_reply_free(&reply);
    nginx_kit_expect(server, "/dir/target", NULL, 200, NULL, NULL);
    assert_int_equal(http_origin_seen(nginx_kit_origin, "/dir/target"), seen[i]);
  }
}

static void section_4_4_a_large_answer_to_an_unsafe_method_comes_whole(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/large",
                     HTTP_ANSWER(.body = "0123456789", .repeat = 50000));
  http_client *client = http_client_new(nginx_server_address(server));
  for (int i = 0; i < 3; i++) { /* over one connection */
    http_reply reply = http_client_ask(
        client, &(http_request){
                    .method = i == 1 ? "PUT" : "POST", .path = "/large", .body = "x", .size = 1});
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.size, 500000);
    assert_int_equal(reply.is_reused, i > 0);
    http_reply_free(&reply);
  }
  /* clients that leave, and one more that doesn't */
  for (size_t after = 0; after < 2; after++) {
    http_client *leaving = http_client_new(nginx_server_address(server));
    (void)http_client_abort(leaving, &(http_request){.method = "POST", .path = "/large"}, after);
    http_client_free(leaving);
  }
  http_reply last = http_client_ask(client, &(http_request){.method = "POST", .path = "/large"});
  assert_int_equal(last.size, 500000);
  http_reply_free(&last);
  http_client_free(client);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(section_4_4_unsafe_methods_invalidate),
      cmocka_unit_test(section_4_4_locations_of_the_same_origin_are_invalidated_too),
      cmocka_unit_test(section_4_4_a_large_answer_to_an_unsafe_method_comes_whole),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
