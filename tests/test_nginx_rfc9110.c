/* test_nginx_rfc9110.c: the nginx module keeps the rules of RFC 9110 (HTTP semantics) that concern
 * a shared cache; each test names the section. Real nginx, real Redis. */
#include <unistd.h>

#define LOCATIONS                                                                                  \
  "location / { corral pages; proxy_pass %ORIGIN%; }"                                              \
  "location /sliced/ { slice 4; corral pages; corral_key $uri$slice_range; corral_valid 206 1m; "  \
  "  proxy_set_header Range $slice_range; proxy_pass http://127.0.0.1:%PORT%/plain/; "             \
  "  add_header X-How $corral_status; } "                                                          \
  "location /plain/ { root %FOLDER%/www; access_log %FOLDER%/plain.log; } "                        \
  "location /files/ { corral pages; corral_valid 1m; root %FOLDER%/www; }"

#include "support/nginx_story.h"

#define THAT_DATE "Date: Wed, 01 Jan 2025 00:00:30 GMT"
#define DATE THAT_DATE "\r\n"

static void section_6_6_1_the_origins_date_stays(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"6.6.1",
       "/date",
       {{.answer = ANSWER(.headers = KEPT DATE), .has = THAT_DATE, .seen = 1},
        {.seen = 1, .expires = 1},
        {.has = THAT_DATE, .seen = 1}}},
      {"6.6.1",
       "/date-invalid",
       {{.answer = ANSWER(.headers = KEPT "Date: today\r\n"), .has = "Date: ", .seen = 1},
        {.has = "Date: ", .seen = 1}}},
  };
  NGINX_STORIES(stories);
  /* without one, the moment when the answer came counts */
  char first[64];
  http_origin_answer(nginx_kit_origin, "/dateless", ANSWER(.headers = KEPT));
  snprintf(first, sizeof first, "%s",
           nginx_kit_expect(server, "/dateless", NULL, 200, NULL, "date"));
  usleep(1200000);
  const char *second = nginx_kit_expect(server, "/dateless", NULL, 200, NULL, "date");
  struct tm a = {0}, b = {0};
  assert_non_null(strptime(first, "%a, %d %b %Y %H:%M:%S GMT", &a));
  assert_non_null(strptime(second, "%a, %d %b %Y %H:%M:%S GMT", &b));
  assert_true(timegm(&b) - timegm(&a) <= 1 && timegm(&a) - timegm(&b) <= 1);
}

static void section_8_6_an_empty_page_is_a_page(void **state) {
  (void)state;
  char command[256];
  snprintf(command, sizeof command, "mkdir -p %s/www/files && : >%s/www/files/empty.txt",
           nginx_server_folder(server), nginx_server_folder(server));
  assert_int_equal(system(command), 0);
  for (int i = 0; i < 2; i++)
    assert_string_equal(
        nginx_kit_expect(server, "/files/empty.txt", NULL, 200, "", "content-length"), "0");
  const nginx_story stories[] = {
      {"8.6",
       "/empty",
       {{.answer = HTTP_ANSWER(.headers = KEPT), .page = "", .seen = 1}, {.page = "", .seen = 1}}},
      {"15.3.5",
       "/no-content",
       {{.answer = HTTP_ANSWER(.status = 204, .headers = KEPT), .status = 204, .seen = 1},
        {.status = 204, .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

static void section_9_only_get_and_head_are_answered_from_the_store(void **state) {
  (void)state;
#define OTHER(path, verb, code)                                                                    \
  {                                                                                                \
    "9.2.3", path, {                                                                               \
      {.answer = ANSWER(.headers = KEPT), .seen = 1}, {                                            \
        .method = verb, .status = code, .asked = ": " verb, .page = "page 2", .seen = 2            \
      }                                                                                            \
    }                                                                                              \
  }
  const nginx_story stories[] = {
      OTHER("/options", "OPTIONS", 200),
      OTHER("/foo", "FOO", 200),
      OTHER("/report", "REPORT", 200),
      OTHER("/post", "POST", 200),
      {"9.3.2",
       "/head",
       {{.answer = ANSWER(.headers = KEPT), .seen = 1},
        {.method = "HEAD", .has = "Content-Length: 6", .page = "", .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

static void section_9_3_1_a_get_with_a_body_goes_its_own_way(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"9.3.1",
       "/query",
       {{.answer = ANSWER(.headers = KEPT), .page = "page 1", .seen = 1},
        {.body = "query",
         .page = "page 2",
         .asked = "Content-Length: 5",
         .seen = 2,
         .has = "Cache-Status: pages; fwd=bypass"},
        {.page = "page 1", .seen = 2}}},
  };
  NGINX_STORIES(stories);
}

#define TAGGED ANSWER(.headers = KEPT MODIFIED, .etag = "\"one\"")
#define SINCE "If-Modified-Since: Wed, 01 Jan 2020 00:00:00 GMT\r\n"
#define BEFORE "If-Modified-Since: Tue, 01 Jan 2019 00:00:00 GMT\r\n"
#define UNCHANGED_SINCE "If-Unmodified-Since: Tue, 01 Jan 2019 00:00:00 GMT\r\n"

static void section_13_2_2_conditions_by_entity_tag_come_first(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"13.1.3",
       "/conditions",
       {{.answer = TAGGED,
         .headers = "If-None-Match: \"one\"\r\n" BEFORE,
         .status = 304,
         .seen = 1},
        {.headers = "If-None-Match: \"one\"\r\n" BEFORE, .status = 304, .seen = 1},
        {.headers = "If-None-Match: \"two\"\r\n" SINCE, .page = "page 1", .seen = 1},
        {.headers = SINCE, .status = 304, .seen = 1},
        {.headers = BEFORE, .page = "page 1", .seen = 1},
        {.headers = "If-None-Match: \"two\", W/\"one\"\r\n", .status = 304, .seen = 1}}},
      {"13.1.4",
       "/preconditions",
       {{.answer = TAGGED,
         .headers = "If-Match: \"one\"\r\n" UNCHANGED_SINCE,
         .page = "page 1",
         .seen = 1},
        {.headers = "If-Match: \"two\"\r\n", .status = 412, .seen = 1},
        {.headers = UNCHANGED_SINCE, .status = 412, .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

static void section_14_a_range_is_cut_from_the_whole_page(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"14.2",
       "/range",
       {{.answer = TAGGED,
         .headers = "Range: bytes=0-3\r\n",
         .status = 206,
         .page = "page",
         .unasked = "range",
         .seen = 1},
        {.headers = "Range: bytes=-1\r\n",
         .status = 206,
         .page = "1",
         .has = "Content-Range: bytes 5-5/6",
         .seen = 1},
        {.headers = "Range: bytes=9-\r\n", .status = 416, .seen = 1},
        {.headers = "Range: bytes=0-3\r\nIf-Range: \"one\"\r\n",
         .status = 206,
         .page = "page",
         .seen = 1},
        {.headers = "Range: bytes=0-3\r\nIf-Range: \"two\"\r\n", .page = "page 1", .seen = 1},
        {.headers = "Range: pages=1\r\n", .page = "page 1", .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

static void section_14_a_page_is_made_of_slices(void **state) {
  (void)state;
  char command[512];
  const char *folder = nginx_server_folder(server);
  snprintf(command, sizeof command,
           "mkdir -p %s/www/plain && printf 0123456789 >%s/www/plain/a.txt", folder, folder);
  assert_int_equal(system(command), 0);
  assert_string_equal(
      nginx_kit_expect(server, "/sliced/a.txt", NULL, 200, "0123456789", "content-length"), "10");
  snprintf(command, sizeof command, "%s/www/plain/a.txt", folder);
  assert_int_equal(unlink(command), 0);
  /* nobody but the store has it */
  assert_string_equal(nginx_kit_expect(server, "/sliced/a.txt", NULL, 200, "0123456789", "x-how"),
                      "HIT");
  assert_string_equal(nginx_kit_expect(server, "/sliced/a.txt", "Range: bytes=5-8\r\n", 206, "5678",
                                       "content-range"),
                      "bytes 5-8/10");
  nginx_kit_expect(server, "/sliced/a.txt", "Range: bytes=-1\r\n", 206, "9", NULL);
}

/* A range alone reads its slices alone. */
static void section_14_a_range_asks_for_its_slices_alone(void **state) {
  (void)state;
  char command[512];
  const char *folder = nginx_server_folder(server);
  snprintf(command, sizeof command, "printf 0123456789 >%s/www/plain/b.txt", folder);
  assert_int_equal(system(command), 0);
  nginx_kit_expect(server, "/sliced/b.txt", "Range: bytes=4-5\r\n", 206, "45", NULL);
  snprintf(command, sizeof command, "%s/www/plain/b.txt", folder);
  assert_int_equal(unlink(command), 0);
  nginx_kit_expect(server, "/sliced/b.txt", "Range: bytes=6-7\r\n", 206, "67", NULL);
  nginx_kit_expect(server, "/sliced/b.txt", "Range: bytes=0-1\r\n", 404, NULL, NULL);
}

static int lines_with(const char *file, const char *word) {
  char line[1024];
  int count = 0;
  FILE *in = fopen(file, "r");
  assert_non_null(in);
  while (fgets(line, sizeof line, in) != NULL) count += strstr(line, word) != NULL;
  fclose(in);
  return count;
}

static void section_14_slices_for_many_clients_are_one_request_each(void **state) {
  (void)state;
  char text[512];
  const char *folder = nginx_server_folder(server);
  snprintf(text, sizeof text, "printf 0123456789 >%s/www/plain/c.txt", folder);
  assert_int_equal(system(text), 0);
  http_storm_result storm = http_client_storm(&(http_storm){.address = nginx_server_address(server),
                                                            .path = "/sliced/c.txt",
                                                            .connections = 20,
                                                            .requests_each = 2,
                                                            .expected = "0123456789"});
  if (storm.good != 40) fail_msg("%d of 40 are good: %s", storm.good, storm.error);
  http_storm_free(&storm);
  snprintf(text, sizeof text, "%s/plain.log", folder);
  assert_int_equal(lines_with(text, "/plain/c.txt"), 3);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(section_6_6_1_the_origins_date_stays),
      cmocka_unit_test(section_8_6_an_empty_page_is_a_page),
      cmocka_unit_test(section_9_only_get_and_head_are_answered_from_the_store),
      cmocka_unit_test(section_9_3_1_a_get_with_a_body_goes_its_own_way),
      cmocka_unit_test(section_13_2_2_conditions_by_entity_tag_come_first),
      cmocka_unit_test(section_14_a_range_is_cut_from_the_whole_page),
      cmocka_unit_test(section_14_a_page_is_made_of_slices),
      cmocka_unit_test(section_14_a_range_asks_for_its_slices_alone),
      cmocka_unit_test(section_14_slices_for_many_clients_are_one_request_each),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
