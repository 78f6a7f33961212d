/* test_nginx_rfc9111.c: the nginx module keeps the rules of RFC 9111 (HTTP caching) that concern a
 * shared cache, of RFC 5861 (stale content) and of RFC 9213 (CDN-Cache-Control); each test names
 * the section. Section 4.4 is in test_nginx_unsafe.c. Real nginx, real Redis. */
#define LOCATIONS                                                                                  \
  "location / { corral pages; add_header X-How $corral_status; proxy_pass %ORIGIN%; }"             \
  "location /valid/ { corral pages; corral_valid any 1m; proxy_pass %ORIGIN%; }"                   \
  "location /plain/ { corral pages; corral_stale_if_error off; corral_revalidate off; "            \
  "proxy_pass %ORIGIN%; }"                                                                         \
  "location /hidden/ { corral pages; proxy_hide_header Cache-Control; proxy_pass %ORIGIN%; }"      \
  "location /soft/ { corral pages; corral_soft 10ms; proxy_pass %ORIGIN%; }"                       \
  "location /at-once/ { corral pages; corral_at_failure error; corral_retry 1m; proxy_pass "       \
  "%ORIGIN%; }"                                                                                    \
  "location /guess/ { corral pages; corral_heuristic 10%; proxy_pass %ORIGIN%; }"                  \
  "location /guess/not/ { corral pages; corral_heuristic 10%; corral_valid 404 0; "                \
  "proxy_pass %ORIGIN%; }"                                                                         \
  "location /brief/ { corral pages; corral_retry_max 2s; proxy_pass %ORIGIN%; }"                   \
  "location /no-cdn/ { corral pages; corral_ignore_headers CDN-Cache-Control; "                    \
  "proxy_pass %ORIGIN%; }"

#include "support/nginx_story.h"

#define BRIEF "Cache-Control: max-age=2\r\n"
#define LATER "Expires: Fri, 01 Jan 2038 01:01:01 GMT\r\n"
#define EARLIER "Expires: Thu, 01 Jan 2015 01:01:01 GMT\r\n"
/* An origin that says `fields`, twice asked: the second answer comes from the store, or not. */
#define STORED(section, path, fields)                                                              \
  {                                                                                                \
    section, path, {                                                                               \
      {.answer = ANSWER(.headers = fields), .page = "page 1", .seen = 1}, {                        \
        .page = "page 1", .seen = 1                                                                \
      }                                                                                            \
    }                                                                                              \
  }
#define UNSTORED(section, path, fields)                                                            \
  {                                                                                                \
    section, path, {                                                                               \
      {.answer = ANSWER(.headers = fields), .page = "page 1", .seen = 1}, {                        \
        .page = "page 2", .seen = 2                                                                \
      }                                                                                            \
    }                                                                                              \
  }

static void section_3_what_may_be_stored(void **state) {
  (void)state;
  const nginx_story stories[] = {
      STORED("3", "/max-age", KEPT),
      STORED("5.3", "/expires", LATER),
      STORED("5.2.2.10", "/s-maxage", "Cache-Control: max-age=0, s-maxage=60\r\n"),
      UNSTORED("3", "/nothing", ""),
      UNSTORED("5.2.2.5", "/no-store", "Cache-Control: max-age=60\r\nCache-Control: no-store\r\n"),
      UNSTORED("5.2.2.5", "/NO-STORE", "Cache-Control: max-age=60, No-Store\r\n"),
      UNSTORED("5.2.2.7", "/private", "Cache-Control: private, max-age=60\r\n"),
      UNSTORED("5.2.2.4", "/no-cache", "Cache-Control: no-cache, max-age=60\r\n"),
      {"3",
       "/post",
       {{.answer = ANSWER(.headers = KEPT), .method = "POST", .body = "x", .seen = 1},
        {.page = "page 2", .seen = 2}}},
      /* 206 without the client's own range can't be used */
      {"3.3",
       "/valid/206",
       {{.answer = ANSWER(.status = 206, .headers = KEPT "Content-Range: bytes 0-5/99\r\n"),
         .status = 206,
         .seen = 1},
        {.status = 206, .seen = 2}}},
      /* a final status that is unknown here is stored by its own fields */
      {"3",
       "/299",
       {{.answer = ANSWER(.status = 299, .headers = KEPT), .status = 299, .seen = 1},
        {.status = 299, .page = "page 1", .seen = 1}}},
      {"3",
       "/404",
       {{.answer = ANSWER(.status = 404, .headers = KEPT), .status = 404, .seen = 1},
        {.status = 404, .page = "page 1", .seen = 1}}},
      /* a 5xx that says how long it lives, as long as there is no older page */
      {"3",
       "/brief/500",
       {{.answer = ANSWER(.status = 500, .headers = KEPT), .status = 500, .seen = 1},
        {.status = 500, .page = "page 1", .seen = 1, .expires = 1},
        {.answer = ANSWER(.headers = KEPT), .page = "page 2", .seen = 2}}},
      {"3",
       "/500",
       {{.answer = ANSWER(.status = 500, .headers = BRIEF),
         .status = 500,
         .page = "page 1",
         .seen = 1},
        {.status = 500, .page = "page 1", .seen = 1, .expires = 1},
        {.answer = ANSWER(.headers = KEPT), .page = "page 2", .seen = 2}}},
  };
  NGINX_STORIES(stories);
}

static void section_3_a_failure_answers_no_later_request(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"3",
       "/fails",
       {{.answer = ANSWER(.status = 503), .status = 503, .page = "page 1", .seen = 1},
        {.status = 503, .page = "page 2", .seen = 2, .anew = 1},
        {.answer = ANSWER(.headers = KEPT), .page = "page 3", .seen = 3, .anew = 1}}},
      {"3",
       "/at-once/fails",
       {{.answer = ANSWER(.status = 503), .status = 503, .page = "page 1", .seen = 1},
        {.status = 503, .has = "Cache-Status: pages; fwd=miss", .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

static void section_5_2_2_3_must_understand(void **state) {
  (void)state;
#define UNDERSTAND "Cache-Control: no-store, must-understand, max-age=60\r\n"
  const nginx_story stories[] = {
      STORED("5.2.2.3", "/understood", UNDERSTAND),
      {"5.2.2.3",
       "/not-understood",
       {{.answer = ANSWER(.status = 299, .headers = UNDERSTAND), .status = 299, .seen = 1},
        {.status = 299, .page = "page 2", .seen = 2}}},
      {"5.2.2.3",
       "/not-understood-alone",
       {{.answer = ANSWER(.status = 299, .headers = KEPT "Cache-Control: must-understand\r\n"),
         .status = 299,
         .seen = 1},
        {.status = 299, .page = "page 2", .seen = 2}}},
  };
  NGINX_STORIES(stories);
}

static void section_4_2_2_a_life_is_guessed_where_that_is_wanted(void **state) {
  (void)state;
  const nginx_story stories[] = {
      STORED("4.2.2", "/guess/old", MODIFIED),
      UNSTORED("4.2.2", "/unguessed", MODIFIED),
      UNSTORED("4.2.2", "/guess/nothing", ""),
      UNSTORED("4.2.2", "/guess/private", MODIFIED "Cache-Control: private\r\n"),
      UNSTORED("4.2.2", "/guess/stale", MODIFIED "Cache-Control: max-age=0\r\n"),
      {"4.2.2",
       "/guess/404",
       {{.answer = ANSWER(.status = 404, .headers = MODIFIED), .status = 404, .seen = 1},
        {.status = 404, .page = "page 1", .seen = 1}}},
      {"4.2.2",
       "/guess/not/404",
       {{.answer = ANSWER(.status = 404, .headers = MODIFIED), .status = 404, .seen = 1},
        {.status = 404, .page = "page 2", .seen = 2}}},
      {"4.2.2",
       "/guess/201",
       {{.answer = ANSWER(.status = 201, .headers = MODIFIED), .status = 201, .seen = 1},
        {.status = 201, .page = "page 2", .seen = 2}}},
      {"4.2.2",
       "/guess/501",
       {{.answer = ANSWER(.status = 501, .headers = MODIFIED), .status = 501, .seen = 1},
        {.status = 501, .page = "page 1", .seen = 1}}},
      {"4.2.2",
       "/guess/public",
       {{.answer = ANSWER(.status = 599, .headers = MODIFIED "Cache-Control: public\r\n"),
         .status = 599,
         .seen = 1},
        {.status = 599, .page = "page 1", .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

static void section_3_1_fields_of_one_connection_arent_stored(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"3.1",
       "/connection",
       {{.answer = ANSWER(.headers = KEPT "Connection: a, X-B,keep-alive\r\nA: 1\r\nx-b: 2\r\n"
                                          "C: 3\r\n"),
         .has = "C: 3",
         .lacks = "a",
         .seen = 1},
        {.has = "C: 3", .lacks = "A", .seen = 1},
        {.has = "C: 3", .lacks = "X-B", .seen = 1}}},
      {"3.1",
       "/connections",
       {{.answer = ANSWER(.headers = KEPT "Connection: a\r\nConnection: b\r\nA: 1\r\nB: 2\r\n"),
         .lacks = "a",
         .seen = 1},
        {.lacks = "b", .seen = 1}}},
      {"3.1",
       "/hop",
       {{.answer = ANSWER(.headers = KEPT "Keep-Alive: 5\r\nTE: x\r\nProxy-Authenticate: x\r\n"),
         .seen = 1},
        {.lacks = "TE", .seen = 1},
        {.lacks = "Proxy-Authenticate", .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

static void section_3_5_answers_to_authorized_requests(void **state) {
  (void)state;
#define AUTHORIZED(path, fields, is_kept)                                                          \
  {                                                                                                \
    "3.5", path, {                                                                                 \
      {.answer = ANSWER(.headers = fields), .headers = "Authorization: a\r\n", .seen = 1}, {       \
        .headers = "Authorization: b\r\n", .seen = (is_kept) ? 1 : 2                               \
      }                                                                                            \
    }                                                                                              \
  }
  const nginx_story stories[] = {
      AUTHORIZED("/auth", KEPT, 0),
      AUTHORIZED("/auth-public", "Cache-Control: public, max-age=60\r\n", 1),
      AUTHORIZED("/auth-must", "Cache-Control: must-revalidate, max-age=60\r\n", 1),
      AUTHORIZED("/auth-shared", "Cache-Control: s-maxage=60\r\n", 1),
      AUTHORIZED("/auth-not-public",
                 "Cache-Control: max-age=60\r\nCDN-Cache-Control: "
                 "max-age=60, public=?0\r\n",
                 0),
  };
  NGINX_STORIES(stories);
}

#define LANGUAGE KEPT "Vary: Accept-Language\r\n"
#define FOO KEPT "Vary: Foo\r\n"
#define ASKS(name, value, number)                                                                  \
  { .headers = name ": " value "\r\n", .seen = number }

static void section_4_1_a_request_selects_its_variant(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"4.1",
       "/vary",
       {{.answer = ANSWER(.headers = FOO), .headers = "Foo: 1\r\n", .page = "page 1", .seen = 1},
        {.headers = "Foo: 2\r\n", .page = "page 2", .seen = 2},
        {.page = "page 3", .seen = 3},
        {.headers = "Foo: 1\r\nOther: 1\r\n", .page = "page 1", .seen = 3},
        {.headers = "Foo:\r\n", .page = "page 4", .seen = 4},
        {.page = "page 3", .seen = 4}}},
      {"4.1",
       "/vary-lines",
       {{.answer = ANSWER(.headers = FOO), .headers = "Foo: 1, 2\r\n", .seen = 1},
        ASKS("Foo", "1\r\nFoo: 2", 1),
        ASKS("Foo", "1,2", 1),
        ASKS("Foo", "  1 ,\t2  ", 1),
        ASKS("Foo", "1 2", 2),
        ASKS("Foo", "12", 3)}},
      {"4.1",
       "/vary-quoted",
       {{.answer = ANSWER(.headers = FOO), .headers = "Foo: \"1, 2\"\r\n", .seen = 1},
        ASKS("Foo", "\"1,2\"", 2),
        ASKS("Foo", "\"1\\\", 2\"", 3),
        ASKS("Foo", "\"1\\\",2\"", 4),
        ASKS("Foo", "\"1, 2\"", 4),
        ASKS("foo", "A", 5)}},
      {"4.1",
       "/vary-case",
       {{.answer = ANSWER(.headers = FOO), .headers = "Foo: a\r\n", .seen = 1},
        ASKS("Foo", "A", 2)}},
      {"4.1",
       "/vary-language",
       {{.answer = ANSWER(.headers = LANGUAGE),
         .headers = "Accept-Language: en, de\r\n",
         .seen = 1},
        ASKS("Accept-Language", "EN,de", 1),
        ASKS("Accept-Language", "  en ,  De ", 1),
        ASKS("Accept-Language", "de, en", 2),
        ASKS("Accept-Language", "en", 3)}},
      UNSTORED("4.1", "/vary-star", KEPT "Vary: Foo, *\r\n"),
      UNSTORED("4.1", "/vary-stars", KEPT "Vary: Foo\r\nVary: *\r\n"),
  };
  NGINX_STORIES(stories);
}

static void section_4_1_a_vary_that_changes_elects_anew(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"4.1",
       "/varies-anew",
       {{.answer = ANSWER(.headers = FOO), .headers = "Foo: 1\r\n", .seen = 1},
        {.answer = ANSWER(.headers = KEPT "Vary: Foo, Bar\r\n"),
         .headers = "Foo: 2\r\nBar: 1\r\n",
         .page = "page 2",
         .seen = 2},
        {.headers = "Foo: 2\r\nBar: 2\r\n", .page = "page 3", .seen = 3},
        {.headers = "Foo: 2\r\nBar: 2\r\n", .page = "page 3", .seen = 3},
        {.headers = "Foo: 2\r\nBar: 1\r\n", .page = "page 2", .seen = 3},
        {.headers = "Foo: 1\r\nBar: 1\r\n", .page = "page 1", .seen = 3}}},
  };
  NGINX_STORIES(stories);
  /* a herd for one variant behind such a change */
  http_origin_answer(nginx_kit_origin, "/varies-anew",
                     ANSWER(.headers = KEPT "Vary: Foo, Bar\r\n", .delay_ms = 100));
  http_storm_result storm = http_client_storm(&(http_storm){.address = nginx_server_address(server),
                                                            .path = "/varies-anew",
                                                            .headers = "Foo: 2\r\nBar: 3\r\n",
                                                            .connections = 50,
                                                            .requests_each = 1,
                                                            .expected = "page 4"});
  assert_int_equal(storm.good, 50);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/varies-anew"), 4);
  http_storm_free(&storm);
}

/* 200 clients at once, 50 for each value of Bar. Returns how many got a page. */
static int herd_of_four(const char *path) {
  static const char *const fields[] = {"Foo: 1\r\nBar: 1\r\n", "Foo: 1\r\nBar: 2\r\n",
                                       "Foo: 1\r\nBar: 3\r\n", "Foo: 1\r\nBar: 4\r\n"};
  http_storm_run *runs[4];
  int good = 0;
  for (int i = 0; i < 4; i++)
    runs[i] = http_client_storm_start(&(http_storm){.address = nginx_server_address(server),
                                                    .path = path,
                                                    .headers = fields[i],
                                                    .connections = 50,
                                                    .requests_each = 1});
  for (int i = 0; i < 4; i++) {
    http_storm_result storm = http_client_storm_end(runs[i]);
    good += storm.good;
    if (!storm.same_bodies) fail_msg("%s, variant %d: several pages", path, i);
    http_storm_free(&storm);
  }
  return good;
}

/* A page that nobody had, one whose Vary changes when it has expired, and one that had no Vary. */
static void section_4_1_a_herd_for_four_variants_is_four_requests(void **state) {
  (void)state;
  static const struct {
    const char *path, *before;
  } rows[] = {{"/herd-cold", NULL},
              {"/herd-changed", "Cache-Control: max-age=1\r\nVary: Foo\r\n"},
              {"/herd-more", "Cache-Control: max-age=1\r\nVary: Foo, Bar, Baz\r\n"},
              {"/herd-plain", "Cache-Control: max-age=1\r\n"}};
  for (size_t i = 0; i < 4; i++) {
    const char *path = rows[i].path;
    if (rows[i].before != NULL) {
      http_origin_answer(nginx_kit_origin, path, ANSWER(.headers = rows[i].before));
      nginx_kit_expect(server, path, "Foo: 1\r\nBar: 1\r\n", 200, "page 1", NULL);
    }
  }
  /* a life begins when the page is stored, which may be after its answer */
  nanosleep(&(struct timespec){.tv_sec = 4, .tv_nsec = 200000000}, NULL);
  for (size_t i = 0; i < 4; i++) {
    const char *path = rows[i].path;
    int before = rows[i].before != NULL;
    http_origin_answer(nginx_kit_origin, path,
                       ANSWER(.headers = KEPT "Vary: Bar\r\n", .delay_ms = 200));
    assert_int_equal(herd_of_four(path), 200);
    print_message("           %s: %d requests of the origin for 200 clients\n", path,
                  http_origin_seen(nginx_kit_origin, path) - before);
    assert_int_equal(http_origin_seen(nginx_kit_origin, path), before + 4);
  }
}

static void section_4_2_freshness(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"4.2",
       "/ends",
       {{.answer = ANSWER(.headers = BRIEF LATER), .page = "page 1", .seen = 1},
        {.page = "page 1", .seen = 1, .expires = 1},
        {.page = "page 2", .seen = 2}}},
      UNSTORED("4.2.1", "/past", EARLIER),
      UNSTORED("5.3", "/invalid-expires", "Expires: 0\r\n"),
      UNSTORED("5.3", "/expires-twice", LATER EARLIER),
      UNSTORED("4.2.1", "/max-age-0", "Cache-Control: max-age=0\r\n" LATER),
      UNSTORED("4.2.1", "/max-age-twice",
               "Cache-Control: max-age=60\r\nCache-Control: "
               "max-age=0\r\n"),
      UNSTORED("4.2.1", "/max-age-spaced", "Cache-Control: max-age = 60\r\n"),
      STORED("4.2.1", "/max-age-quoted", "Cache-Control: a=\"b, max-age=0\", max-age=60\r\n"),
      UNSTORED("4.2.3", "/aged", KEPT "Age: 60\r\n"),
      {"4.2.3",
       "/aged-in-part",
       {{.answer = ANSWER(.headers = KEPT "Age: 58\r\n"), .seen = 1},
        {.seen = 1, .has = "Age: 58", .expires = 1},
        {.seen = 2}}},
  };
  NGINX_STORIES(stories);
}

#define FAILS HTTP_ANSWER(.fate = HTTP_FATE_DIES)
#define STALE_STORY(section, path, fields, final)                                                  \
  {                                                                                                \
    section, path, {                                                                               \
      {.answer = ANSWER(.headers = fields), .page = "page 1", .seen = 1, .expires = 1}, {          \
        .answer = FAILS, .seen = 2, final                                                          \
      }                                                                                            \
    }                                                                                              \
  }
#define SERVED .page = "page 1", .has = "Age: 2"
#define REFUSED .status = 504, .lacks = "Age"

static void section_4_2_4_stale_answers(void **state) {
  (void)state;
  const nginx_story stories[] = {
      STALE_STORY("4.2.4", "/stale", BRIEF, SERVED),
      STALE_STORY("4.2.4", "/stale-etag", BRIEF MODIFIED, SERVED),
      STALE_STORY("5.2.2.2", "/stale-must", "Cache-Control: max-age=2, must-revalidate\r\n",
                  .status = 502),
      /* the page is still there, to be revalidated */
      STALE_STORY("5.2.2.2", "/stale-must-etag",
                  "Cache-Control: max-age=2, must-revalidate\r\n" MODIFIED, .status = 502),
      STALE_STORY("5.2.2.8", "/stale-proxy",
                  "Cache-Control: max-age=2, proxy-revalidate\r\n" MODIFIED, .status = 502),
      STALE_STORY("5.2.2.10", "/stale-shared", "Cache-Control: s-maxage=2\r\n" MODIFIED,
                  .status = 502),
      STALE_STORY("5861 4", "/stale-sie", "Cache-Control: max-age=2, stale-if-error=60\r\n",
                  SERVED),
      STALE_STORY("5861 4", "/plain/stale-sie", "Cache-Control: max-age=2, stale-if-error=60\r\n",
                  SERVED),
      STALE_STORY("5861 4", "/stale-sie-0", "Cache-Control: max-age=2, stale-if-error=0\r\n",
                  .status = 502),
      STALE_STORY("4.2.4", "/plain/stale", BRIEF, .status = 502),
      {"5861 3",
       "/stale-swr",
       {{.answer = ANSWER(.headers = "Cache-Control: max-age=2, stale-while-revalidate=60\r\n"),
         .seen = 1,
         .expires = 1},
        {.page = "page 1", .has = "Cache-Status: pages; hit; ttl=", .seen = -1}}},
      {"4.2.4",
       "/stale-503",
       {{.answer = ANSWER(.headers = BRIEF), .seen = 1, .expires = 1},
        {.answer = ANSWER(.status = 503, .headers = KEPT),
         .page = "page 1",
         .has = "Cache-Status: pages; hit; ttl=-1",
         .seen = 2}}},
      {"5861 3",
       "/plain/stale-while",
       {{.answer = ANSWER(.headers = "Cache-Control: max-age=2, stale-while-revalidate=60\r\n"),
         .seen = 1,
         .expires = 1},
        {.page = "page 1", .has = "Cache-Status: pages; hit; ttl=-1", .seen = -1}}},
  };
  NGINX_STORIES(stories);
}

static void section_4_2_4_corral_soft_gives_no_page_that_forbids_it(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"5.2.2.2",
       "/soft/must",
       {{.answer = ANSWER(.headers = "Cache-Control: max-age=2, must-revalidate\r\n" MODIFIED),
         .seen = 1,
         .expires = 1}}}};
  NGINX_STORIES(stories);
  http_origin_answer(nginx_kit_origin, "/soft/must", ANSWER(.headers = KEPT, .delay_ms = 300));
  http_storm_result storm = http_client_storm(&(http_storm){.address = nginx_server_address(server),
                                                            .path = "/soft/must",
                                                            .connections = 10,
                                                            .requests_each = 1,
                                                            .expected = "page 2"});
  assert_int_equal(storm.good, 10);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/soft/must"), 2);
  http_storm_free(&storm);
}

#define TAGGED(...) ANSWER(.etag = "\"one\"", __VA_ARGS__)

static void section_4_3_the_origin_is_asked_whether_a_page_changed(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"4.3.1",
       "/renewed",
       {{.answer = TAGGED(.headers = BRIEF MODIFIED),
         .page = "page 1",
         .unasked = "if-none-match",
         .seen = 1,
         .expires = 1},
        {.answer = TAGGED(.headers = KEPT),
         .page = "page 1",
         .asked = "If-None-Match: \"one\"",
         .has = "Cache-Control: max-age=60",
         .seen = 2},
        {.page = "page 1", .has = "ETag: \"one\"", .seen = 2}}},
      {"4.3.1",
       "/renewed-by-date",
       {{.answer = ANSWER(.headers = BRIEF MODIFIED), .seen = 1, .expires = 1},
        {.answer = HTTP_ANSWER(.status = 304, .headers = KEPT),
         .page = "page 1",
         .asked = "If-Modified-Since: Wed, 01 Jan 2020 00:00:00 GMT",
         .seen = 2},
        {.page = "page 1", .seen = 2}}},
      {"4.3.3",
       "/replaced",
       {{.answer = TAGGED(.headers = BRIEF), .seen = 1, .expires = 1},
        {.answer = ANSWER(.headers = KEPT, .etag = "\"two\""),
         .page = "page 2",
         .has = "X-How: EXPIRED",
         .seen = 2},
        {.page = "page 2", .has = "ETag: \"two\"", .seen = 2}}},
      {"4.3.1",
       "/renewed-variant",
       {{.answer = TAGGED(.headers = BRIEF "Vary: Foo\r\n"), .headers = "Foo: 1\r\n", .seen = 1},
        {.headers = "Foo: 2\r\n", .page = "page 2", .seen = 2, .expires = 1},
        {.headers = "Foo: 2\r\n", .page = "page 2", .asked = "Foo: 2", .seen = 3},
        {.headers = "Foo: 2\r\n", .page = "page 2", .seen = 3}}},
      {"4.3.1",
       "/plain/unconditional",
       {{.answer = TAGGED(.headers = BRIEF), .seen = 1, .expires = 1},
        {.page = "page 2", .unasked = "if-none-match", .seen = 2}}},
      {"4.3.3",
       "/renewal-fails",
       {{.answer = TAGGED(.headers = BRIEF), .seen = 1, .expires = 1},
        {.answer = FAILS, .page = "page 1", .seen = 2}}},
  };
  NGINX_STORIES(stories);
}

static void section_4_3_2_the_clients_own_conditions_stay_here(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"4.3.2",
       "/client",
       {{.answer = TAGGED(.headers = BRIEF),
         .headers = "If-None-Match: \"x\"\r\n",
         .unasked = "if-none-match",
         .seen = 1,
         .expires = 1},
        {.headers = "If-None-Match: \"one\"\r\n", .status = 304, .seen = 2},
        {.headers = "If-None-Match: \"x\"\r\n", .page = "page 1", .seen = 2}}},
      /* without Last-Modified the answer's Date counts */
      {"4.3.2",
       "/client-date",
       {{.answer = ANSWER(.headers = KEPT), .seen = 1},
        {.headers = "If-Modified-Since: Fri, 01 Jan 2038 01:01:01 GMT\r\n",
         .status = 304,
         .page = "",
         .lacks = "Last-Modified",
         .seen = 1},
        {.headers = "If-Modified-Since: Thu, 01 Jan 2015 01:01:01 GMT\r\n",
         .page = "page 1",
         .seen = 1},
        {.headers = "If-Modified-Since: Fri, 01 Jan 2038 01:01:01 GMT\r\nIf-None-Match: \"a\"\r\n",
         .page = "page 1",
         .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

static void section_4_3_4_a_304_that_changes_nothing_gives_a_new_life(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"4.3.4",
       "/renewed-in-place",
       {{.answer = TAGGED(.headers = BRIEF), .seen = 1, .expires = 1},
        {.page = "page 1",
         .has = "Cache-Status: pages; fwd=stale; fwd-status=304; stored",
         .seen = 2},
        {.page = "page 1", .lacks = "nothing", .seen = 2, .expires = 1},
        {.page = "page 1", .has = "X-How: REVALIDATED", .seen = 3},
        {.page = "page 1", .has = "Age: 0", .seen = 3}}},
      /* a life by a field that clients don't get lasts through a 304 without it */
      {"4.3.4",
       "/hidden/life",
       {{.answer = TAGGED(.headers = BRIEF), .lacks = "cache-control", .seen = 1, .expires = 1},
        {.answer = TAGGED(.headers = ""), .page = "page 1", .seen = 2},
        {.page = "page 1", .seen = 2}}},
  };
  NGINX_STORIES(stories);
}

static void section_4_3_4_a_304_updates_the_stored_header(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"4.3.4",
       "/updated",
       {{.answer = TAGGED(.headers = BRIEF "X-A: 1\r\nX-B: 1\r\nContent-Type: text/x\r\n"),
         .seen = 1,
         .expires = 1},
        {.answer = TAGGED(.headers = KEPT "X-A: 2\r\nX-A: 3\r\nContent-Type: text/y\r\n"),
         .has = "X-A: 2",
         .seen = 2},
        {.has = "X-B: 1", .page = "page 1", .seen = 2},
        {.has = "Content-Type: text/x", .seen = 2},
        {.has = "Cache-Control: max-age=60", .seen = 2}}},
      {"4.3.4",
       "/kept-life",
       {{.answer = TAGGED(.headers = BRIEF), .seen = 1, .expires = 1},
        {.answer = TAGGED(.headers = ""), .has = "Cache-Control: max-age=2", .seen = 2},
        {.page = "page 1", .seen = 2, .expires = 1},
        {.page = "page 1", .seen = 3}}},
      /* a 304 about another page than the stored one: the page is asked for without conditions */
      {"4.3.4",
       "/other-page",
       {{.answer = TAGGED(.headers = BRIEF), .seen = 1, .expires = 1},
        {.answer = HTTP_ANSWER(.status = 304, .headers = KEPT "ETag: \"two\"\r\n"),
         .status = 304,
         .unasked = "if-none-match",
         .seen = 3},
        {.answer = ANSWER(.headers = KEPT), .page = "page 4", .seen = 4}}},
      {"4.3.4",
       "/weak",
       {{.answer = ANSWER(.headers = BRIEF, .etag = "W/\"one\""), .seen = 1, .expires = 1},
        {.answer = HTTP_ANSWER(.status = 304, .headers = KEPT "ETag: \"one\"\r\n"),
         .asked = "If-None-Match: W/\"one\"",
         .page = "page 1",
         .seen = 2}}},
      /* what a 304 makes private isn't stored any more */
      {"4.3.4",
       "/now-private",
       {{.answer = TAGGED(.headers = BRIEF), .seen = 1, .expires = 1},
        {.answer = TAGGED(.headers = "Cache-Control: private\r\n"), .page = "page 1", .seen = 2},
        {.page = "page 3", .seen = 3}}},
  };
  NGINX_STORIES(stories);
}

static void section_5_1_age(void **state) {
  (void)state;
  const nginx_story stories[] = {
      {"5.1",
       "/age",
       {{.answer = ANSWER(.headers = KEPT), .has = "Age: 0", .seen = 1},
        {.has = "Age: 0", .seen = 1, .expires = 1},
        {.has = "Age: 2", .seen = 1}}},
      {"5.1",
       "/age-given",
       {{.answer = ANSWER(.headers = KEPT "Age: 7\r\n"), .has = "Age: 7", .seen = 1},
        {.has = "Age: 7", .seen = 1, .expires = 1},
        {.has = "Age: 9", .seen = 1}}},
      {"5.1",
       "/age-unstored",
       {{.answer = ANSWER(.headers = KEPT "Age: 100\r\n"), .has = "Age: 100", .seen = 1},
        {.has = "Age: 100", .seen = 2}}},
      {"5.1",
       "/age-twice",
       {{.answer = ANSWER(.headers = KEPT "Age: 7\r\nAge: 0\r\n"), .has = "Age: 7", .seen = 1}}},
      {"5.1",
       "/age-invalid",
       {{.answer = ANSWER(.headers = KEPT "Age: x\r\n"), .has = "Age: 0", .seen = 1},
        {.has = "Age: 0", .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

static void rfc_9213_a_targeted_field_comes_first(void **state) {
  (void)state;
#define CDN "CDN-Cache-Control: "
#define SHUT "Cache-Control: no-store\r\n"
  const nginx_story stories[] = {
      STORED("9213 2.1", "/cdn", CDN "max-age=60\r\n"),
      STORED("9213 2.1", "/cdn-opens", CDN "max-age=60\r\n" SHUT EARLIER),
      STORED("9213 2.1", "/cdn-lines", SHUT CDN "a, b;c=1;d\r\n" CDN "max-age=60\r\n"),
      STORED("9213 2.1", "/cdn-last", SHUT CDN "max-age=0, max-age=60\r\n"),
      UNSTORED("9213 2.1", "/cdn-0", CDN "max-age=0\r\n" KEPT LATER),
      UNSTORED("9213 2.1", "/cdn-private", CDN "private\r\n" KEPT),
      UNSTORED("9213 2.1", "/cdn-no-store", CDN "no-store, max-age=60\r\n" KEPT),
      UNSTORED("9213 2.1", "/cdn-no-cache", CDN "no-cache=\"x\"\r\n" KEPT),
      /* an invalid or empty field doesn't count */
      UNSTORED("9213 2.1", "/cdn-invalid", CDN "max-age=60, &&&\r\n" SHUT),
      UNSTORED("9213 2.1", "/cdn-type", CDN "max-age=\"60\"\r\n" SHUT),
      UNSTORED("9213 2.1", "/cdn-comma", CDN "max-age=60,\r\n" SHUT),
      UNSTORED("9213 2.1", "/cdn-case", CDN "Max-Age=60\r\n" SHUT),
      UNSTORED("9213 2.1", "/cdn-empty", CDN "\r\n" SHUT),
      UNSTORED("9213 2.1", "/no-cdn/a", CDN "max-age=60\r\n" SHUT),
      /* it goes on to the next cache */
      {"9213 2.3",
       "/cdn-kept",
       {{.answer = ANSWER(.headers = CDN "max-age=60\r\n"), .has = CDN "max-age=60", .seen = 1},
        {.has = CDN "max-age=60", .seen = 1}}},
  };
  NGINX_STORIES(stories);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(section_3_what_may_be_stored),
      cmocka_unit_test(section_3_a_failure_answers_no_later_request),
      cmocka_unit_test(section_5_2_2_3_must_understand),
      cmocka_unit_test(section_4_2_2_a_life_is_guessed_where_that_is_wanted),
      cmocka_unit_test(section_3_1_fields_of_one_connection_arent_stored),
      cmocka_unit_test(section_3_5_answers_to_authorized_requests),
      cmocka_unit_test(section_4_1_a_request_selects_its_variant),
      cmocka_unit_test(section_4_1_a_vary_that_changes_elects_anew),
      cmocka_unit_test(section_4_1_a_herd_for_four_variants_is_four_requests),
      cmocka_unit_test(section_4_2_freshness),
      cmocka_unit_test(section_4_2_4_stale_answers),
      cmocka_unit_test(section_4_2_4_corral_soft_gives_no_page_that_forbids_it),
      cmocka_unit_test(section_4_3_the_origin_is_asked_whether_a_page_changed),
      cmocka_unit_test(section_4_3_2_the_clients_own_conditions_stay_here),
      cmocka_unit_test(section_4_3_4_a_304_that_changes_nothing_gives_a_new_life),
      cmocka_unit_test(section_4_3_4_a_304_updates_the_stored_header),
      cmocka_unit_test(section_5_1_age),
      cmocka_unit_test(rfc_9213_a_targeted_field_comes_first),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
