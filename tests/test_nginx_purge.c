/* test_nginx_purge.c: what a purge reaches, as the request names it: keys, tags, levels of a path,
 * all pages; the method PURGE; soft purges; corral_refresh and corral_min_uses. */
#include <time.h>

#include "support/nginx_kit.h"

#define LOCATIONS                                                                                  \
  "corral pages; corral_valid 1m; corral_key $request_uri; corral_tag Surrogate-Key Cache-Tag; "   \
  "corral_path_tags 3; corral_refresh $http_pragma; corral_stale_if_error 1h;"                     \
  "location = /purge { corral_purge pages; } location = /purge_soft { corral_purge pages soft; }"  \
  "location = /purge_all { corral_purge pages all; }"                                              \
  "location = /purge_all_closed { corral_purge closed all; }"                                      \
  "location / { proxy_pass %ORIGIN%; proxy_hide_header Surrogate-Key; }"                           \
  "location /method/ { corral_purge_method on; proxy_pass %ORIGIN%; }"                             \
  "location /uses/ { corral_min_uses 3; proxy_pass %ORIGIN%; }"

static nginx_server *server;

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){
      .locations = LOCATIONS,
      .zone = "near=8m near_ttl=1h generation=on jitter=0 op=10s away_after=20s",
      .http = "large_client_header_buffers 4 32k; corral_zone closed store=memory:;"});
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

/* A page whose body tells how often the origin was asked for it. One that has a tag for the first
 * time isn't stored within 2 ms of that tag's purge, for which this waits. */
static void page(const char *path, const char *headers) {
  nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  http_origin_answer(nginx_kit_origin, path,
                     HTTP_ANSWER(.body = "page", .numbered = 1, .headers = headers));
}

static void expect_page(const char *path, int number) {
  char body[32];
  snprintf(body, sizeof body, "page %d", number);
  nginx_kit_expect(server, path, NULL, 200, body, NULL);
}

/* Stores the page, unless it is. */
static void stored(const char *path, int number) {
  for (int i = 0; i < 2; i++) expect_page(path, number);
}

typedef struct asked {
  const char *method, *path, *headers, *body;
} asked;

static void expect_purge(const asked *what, int status, const char *body) {
  http_client *client = http_client_new(nginx_server_address(server));
  http_request request = {.method = what->method != NULL ? what->method : "PURGE",
                          .path = what->path,
                          .headers = what->headers,
                          .body = what->body,
                          .size = what->body != NULL ? strlen(what->body) : 0};
  http_reply reply = http_client_ask(client, &request);
  if (reply.status != status || (body != NULL && strcmp(reply.body, body) != 0))
    fail_msg("%s %s: %d %s\n%s", request.method, what->path, reply.status, reply.body,
             nginx_server_log(server));
  http_reply_free(&reply);
  http_client_free(client);
}

#define ONE(zone, soft) "{\"zone\":\"pages\",\"kind\":\"" zone "\",\"soft\":" soft ",\"purged\":1"
#define KEY_FOUND ONE("key", "false") ",\"found\":1}\n"

static void a_key_is_given_as_an_argument_a_field_or_a_body(void **state) {
  (void)state;
  static const asked forms[] = {
      {.path = "/purge?key=/whole%3fa=1%26b=%2520x%2cy"},
      {.path = "/purge", .headers = "Corral-Key: /whole?a=1&b=%20x,y\r\n"},
      {.method = "POST", .path = "/purge", .body = "/whole?a=1&b=%20x,y"},
      {.method = "POST", .path = "/purge", .body = "\n/whole?a=1&b=%20x,y\r\n"},
      {.path = "/purge", .body = "/whole?a=1&b=%20x,y\n\n"},
  };
  page("/whole", NULL);
  int number = 1;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    stored("/whole?a=1&b=%20x,y", number);
    expect_purge(&forms[i], 200, KEY_FOUND);
    stored("/whole?a=1&b=%20x,y", ++number);
  }
}

static void what_nobody_had_is_404_and_what_cannot_be_understood_400(void **state) {
  (void)state;
  static const struct {
    asked what;
    int status;
    const char *body;
  } rows[] = {
      {{.path = "/purge?key=/nobody"}, 404, ONE("key", "false") ",\"found\":0}\n"},
      {{.path = "/purge"}, 400, "{\"error\":\"no key, tag, prefix or all\"}\n"},
      {{.path = "/purge?key="}, 400, "{\"error\":\"no key\"}\n"},
      {{.path = "/purge?tag=,%20"}, 400, "{\"error\":\"no tag\"}\n"},
      {{.path = "/purge?key=/a&tag=b"}, 400, NULL},
      {{.path = "/purge?prefix=/a/b"}, 400, NULL},
      {{.path = "/purge?prefix=/a/b/c/d/"},
       400,
       "{\"error\":\"the prefix has more levels than corral_path_tags\"}\n"},
      {{.path = "/purge?all=0"}, 400, NULL},
      {{.path = "/purge_all_closed"}, 501, "{\"error\":\"the zone needs generation=on\"}\n"},
      {{.method = "GET", .path = "/purge?key=/a"}, 405, NULL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    expect_purge(&rows[i].what, rows[i].status, rows[i].body);
}

static void a_body_purges_many_keys_and_tells_how_many_were_there(void **state) {
  (void)state;
  char body[4000] = "", expected[100];
  for (int i = 0; i < 100; i++) {
    char path[24];
    snprintf(path, sizeof path, "/many%d", i);
    if (i < 30) page(path, NULL), stored(path, 1);
    snprintf(body + strlen(body), sizeof body - strlen(body), "%s\n", path);
  }
  snprintf(expected, sizeof expected,
           "{\"zone\":\"pages\",\"kind\":\"key\",\"soft\":false,\"purged\":100,\"found\":30}\n");
  expect_purge(&(asked){.method = "POST", .path = "/purge", .body = body}, 200, expected);
  for (int i = 0; i < 30; i++) {
    char path[24];
    snprintf(path, sizeof path, "/many%d", i);
    expect_page(path, 2);
  }
}

static void the_method_purge_purges_the_page_itself_with_its_variants(void **state) {
  (void)state;
  page("/method/page", "Vary: X-Kind\r\n");
  for (int round = 0; round < 2; round++)
    for (int kind = 0; kind < 2; kind++) {
      char body[24], header[32];
      snprintf(body, sizeof body, "page %d", 2 * round + kind + 1);
      snprintf(header, sizeof header, "X-Kind: %d\r\n", kind);
      for (int i = 0; i < 2; i++) nginx_kit_expect(server, "/method/page", header, 200, body, NULL);
      if (kind == 1) expect_purge(&(asked){.path = "/method/page"}, 200, KEY_FOUND);
    }
  expect_purge(&(asked){.path = "/method/page"}, 404, NULL);
  expect_purge(&(asked){.path = "/method/page", .headers = "Via: 1.1 proxy\r\n"}, 403, NULL);
  page("/plain", NULL);
  stored("/plain", 1);
  expect_purge(&(asked){.path = "/plain"}, 200, "page 2"); /* the origin's own PURGE */
  expect_page("/plain", 3);                                /* an unsafe method like any other */
}

static void a_tag_is_found_in_each_field_also_in_one_that_clients_do_not_see(void **state) {
  (void)state;
  page("/tagged", "Surrogate-Key: one two\r\nCache-Tag: three,four\r\n");
  assert_string_equal(nginx_kit_expect(server, "/tagged", NULL, 200, "page 1", "surrogate-key"),
                      "");
  static const char *const tags[] = {"one", "two", "three", "four"};
  for (int i = 0; i < 4; i++) {
    char path[32];
    stored("/tagged", i + 1);
    snprintf(path, sizeof path, "/purge?tag=other,%s", tags[i]);
    expect_purge(&(asked){.path = path}, 200, NULL);
    stored("/tagged", i + 2);
  }
  expect_purge(&(asked){.path = "/purge", .headers = "Corral-Tag: x two\r\n"}, 200,
               "{\"zone\":\"pages\",\"kind\":\"tag\",\"soft\":false,\"purged\":2}\n");
  stored("/tagged", 6);
}

static void answer_tagged(const char *path, const char *headers) {
  nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  http_origin_answer(
      nginx_kit_origin, path,
      HTTP_ANSWER(.body = "page", .numbered = 1, .headers = headers, .etag = "\"one\""));
}

static void expect_renewed(const char *path, const char *headers, int number, int seen) {
  answer_tagged(path, headers);
  stored(path, number);
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), seen);
}

/* The 304 has no field of tags. Where the page's header changes, and has no such field either, the
 * page is asked for as a whole. */
static void a_page_that_is_renewed_keeps_its_tags(void **state) {
  (void)state;
  static const char brief[] = "Cache-Control: max-age=4\r\nSurrogate-Key: hidden\r\n";
  static const char *const paths[] = {"/same", "/method/changed", "/changed"};
  for (int i = 0; i < 3; i++) answer_tagged(paths[i], brief), expect_page(paths[i], 1);
  /* a life begins when the page is stored, which may be after its answer */
  nanosleep(&(struct timespec){.tv_sec = 7, .tv_nsec = 100000000}, NULL);
  expect_renewed("/same", "Cache-Control: max-age=4\r\n", 1, 2);
  expect_renewed("/method/changed", "Cache-Control: max-age=60\r\n", 1, 2);
  expect_renewed("/changed", "Cache-Control: max-age=60\r\n", 3, 3);
  expect_purge(&(asked){.path = "/purge?tag=hidden"}, 200, NULL);
  expect_page("/same", 3);
  expect_page("/method/changed", 3);
  expect_page("/changed", 3);
}

/* Fifteen tags are kept, and each is found; a page with more is never stored. */
static void a_page_with_more_tags_than_can_be_kept_is_not_stored(void **state) {
  (void)state;
  char headers[300] = "Surrogate-Key:", large[600], path[600];
  page("/levels", NULL);
  for (int i = 0; i < 14; i++) /* and one for the level "/" */
    snprintf(headers + strlen(headers), sizeof headers - strlen(headers), " tag%d", i);
  snprintf(large, sizeof large, "%s tag0 tag1\r\n", headers);
  page("/fifteen", large);
  stored("/fifteen", 1);
  expect_purge(&(asked){.path = "/purge?tag=tag13"}, 200, NULL);
  stored("/fifteen", 2);
  snprintf(large, sizeof large, "%s tag14\r\n", headers);
  page("/sixteen", large);
  assert_non_null(strstr(nginx_kit_expect(server, "/sixteen", NULL, 200, "page 1", "cache-status"),
                         "detail=tags"));
  for (int i = 2; i < 5; i++) expect_page("/sixteen", i);
  snprintf(large, sizeof large, "Cache-Tag: %0300d\r\n", 7);
  page("/long", large);
  stored("/long", 1);
  snprintf(path, sizeof path, "/purge?tag=%0300d", 7);
  expect_purge(&(asked){.path = path}, 200, NULL);
  stored("/long", 2);
}

static void a_prefix_purges_what_is_below_it(void **state) {
  (void)state;
  static const char *const paths[] = {"/p/a/1?x=/y/", "/p/a/b/2", "/p/c/3", "/q/a/4"};
  for (int i = 0; i < 4; i++) page(paths[i], NULL), stored(paths[i], 1);
  expect_purge(&(asked){.path = "/purge?prefix=/p/a/"}, 200, ONE("prefix", "false") "}\n");
  for (int i = 0; i < 4; i++) stored(paths[i], i < 2 ? 2 : 1);
  expect_purge(&(asked){.path = "/purge?prefix=/p/"}, 200, NULL);
  for (int i = 0; i < 4; i++) stored(paths[i], i < 2 ? 3 : i == 2 ? 2 : 1);
  expect_purge(&(asked){.path = "/purge", .headers = "Corral-Prefix: /\r\n"}, 200, NULL);
  stored("/q/a/4", 2);
}

static void all_pages_of_a_zone_are_purged_at_once(void **state) {
  (void)state;
  static const asked forms[] = {{.path = "/purge_all"},
                                {.path = "/purge?all=1"},
                                {.path = "/purge", .headers = "Corral-All: 1\r\n"}};
  page("/all1", NULL);
  page("/all2", NULL);
  for (int i = 0; i < 3; i++) {
    stored("/all1", i + 1);
    stored("/all2", i + 1);
    expect_purge(&forms[i], 200, ONE("all", "false") "}\n");
  }
  stored("/all1", 4);
  stored("/all2", 4);
}

static void a_soft_purge_leaves_the_page_to_serve_when_the_origin_fails(void **state) {
  (void)state;
  static const asked forms[] = {
      {.path = "/purge_soft?key=/soft"},
      {.path = "/purge?tag=softly", .headers = "Corral-Soft: 1\r\n"},
      {.path = "/purge_soft?all=1"},
      {.path = "/purge_soft?prefix=/"},
  };
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    http_origin_answer(nginx_kit_origin, "/soft",
                       HTTP_ANSWER(.body = "old", .headers = "Cache-Tag: softly\r\n"));
    nginx_kit_expect(server, "/soft", NULL, 200, "old", NULL);
    http_origin_answer(nginx_kit_origin, "/soft", HTTP_ANSWER(.status = 503));
    int before = http_origin_seen(nginx_kit_origin, "/soft");
    expect_purge(&forms[i], 200, NULL);
    nginx_kit_expect(server, "/soft", NULL, 200, "old", NULL);
    assert_int_equal(http_origin_seen(nginx_kit_origin, "/soft"), before + 1);
    expect_purge(&(asked){.path = "/purge?key=/soft"}, 200, NULL);
  }
}

static void a_refresh_replaces_the_page(void **state) {
  (void)state;
  page("/refreshed", NULL);
  stored("/refreshed", 1);
  for (int i = 2; i < 5; i++) {
    char body[24];
    snprintf(body, sizeof body, "page %d", i);
    assert_string_equal(
        nginx_kit_expect(server, "/refreshed", "Pragma: no-cache\r\n", 200, body, "cache-status"),
        "pages; fwd=request; fwd-status=200; stored; ttl=60");
    stored("/refreshed", i);
  }
}

static void a_page_is_stored_when_it_was_asked_for_often_enough(void **state) {
  (void)state;
  page("/uses/a", NULL);
  page("/uses/b", NULL);
  for (int i = 1; i < 3; i++) expect_page("/uses/a", i);
  expect_page("/uses/b", 1);
  stored("/uses/a", 3);
  expect_page("/uses/b", 2);
  stored("/uses/b", 3);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      T(a_key_is_given_as_an_argument_a_field_or_a_body),
      T(what_nobody_had_is_404_and_what_cannot_be_understood_400),
      T(a_body_purges_many_keys_and_tells_how_many_were_there),
      T(the_method_purge_purges_the_page_itself_with_its_variants),
      T(a_tag_is_found_in_each_field_also_in_one_that_clients_do_not_see),
      T(a_page_that_is_renewed_keeps_its_tags),
      T(a_page_with_more_tags_than_can_be_kept_is_not_stored),
      T(a_prefix_purges_what_is_below_it),
      T(all_pages_of_a_zone_are_purged_at_once),
      T(a_soft_purge_leaves_the_page_to_serve_when_the_origin_fails),
      T(a_refresh_replaces_the_page),
      T(a_page_is_stored_when_it_was_asked_for_often_enough),
  };
  int failed = cmocka_run_group_tests_name("nginx_purge", tests, start, stop);
  return failed + nginx_kit_close();
}
