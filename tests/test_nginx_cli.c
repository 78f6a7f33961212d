/* test_nginx_cli.c: pages of the nginx module and the command: what one of them stores, the other
 * takes. Real nginx, real Redis, the command's own program and its http: plugin. */
#include "support/nginx_kit.h"

#include <time.h>

#include "support/shell_kit.h"

#define PAGES                                                                                      \
  "corral_path_tags 3;"                                                                            \
  "location / { corral pages; corral_valid 1m; corral_stale 10m; corral_tag Surrogate-Key; "       \
  "proxy_pass %ORIGIN%; }"                                                                         \
  "location /inside/ { internal; proxy_pass %ORIGIN%; }"                                           \
  "location = /purge { corral_purge pages; }"
#define KEPT "Cache-Control: max-age=600\r\n"

static nginx_server *server;
static const char *input = "";

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){
      .locations = PAGES, .zone = "near=off namespace=site op=10s away_after=20s"});
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

/* The command on nginx's store and namespace, with `input`. */
static const char *command(void) {
  static char text[SHELL_COMMAND / 2];
  (void)snprintf(text, sizeof text,
                 "echo '%s' | CORRAL_PLUGIN_PATH='%s' \"$CORRAL_COMMAND\" --op 10s --store "
                 "'%s' --namespace site ",
                 input, getenv("CORRAL_PLUGINS"), redis_server_uri(nginx_kit_redis));
  return text;
}

#define corral_run(...) shell(command(), __VA_ARGS__)

/* Warms this key by the origin that nginx itself asks. */
static int warm_by(const char *key, const char *parameters) {
  input = key;
  return corral_run("warm --origin '%s{uri}#page=1&header=Host:localhost%s'",
                    http_origin_url(nginx_kit_origin), parameters);
}

static void warm(const char *key, const char *parameters) {
  int status = warm_by(key, parameters);
  if (status != 0) fail_msg("warm %s: %d %s", key, status, out);
}

static const char *status_of(const char *path, const char *headers, const char *body) {
  return nginx_kit_expect_alone(server, path, headers, 200, body, "cache-status");
}

static int is_hit(const char *cache_status) {
  return strncmp(cache_status, "pages; hit", strlen("pages; hit")) == 0;
}

static int seen(const char *path) { return http_origin_seen(nginx_kit_origin, path); }

static void a_page_that_was_warmed_is_a_hit_of_nginx(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/warm/page?x=1",
                     HTTP_ANSWER(.headers = KEPT "Content-Type: text/plain\r\nX-Own: kept\r\n",
                                 .etag = "\"v1\"", .body = "warmed"));
  warm("httplocalhost/warm/page?x=1", "");
  assert_int_equal(seen("/warm/page?x=1"), 1);
  assert_true(is_hit(status_of("/warm/page?x=1", NULL, "warmed")));
  assert_string_equal(nginx_kit_expect(server, "/warm/page?x=1", NULL, 200, "warmed", "x-own"),
                      "kept");
  assert_string_equal(
      nginx_kit_expect(server, "/warm/page?x=1", NULL, 200, "warmed", "content-type"),
      "text/plain");
  nginx_kit_expect(server, "/warm/page?x=1", "If-None-Match: \"v1\"\r\n", 304, NULL, "etag");
  assert_int_equal(seen("/warm/page?x=1"), 1);
}

static void a_warmed_page_varies_and_is_purged_as_nginxs_own(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/tags/vary",
                     HTTP_ANSWER(.headers = KEPT "Vary: Accept-Language\r\nSurrogate-Key: red\r\n",
                                 .body = "page", .numbered = 1));
  static const char *const purges[] = {"tag=red", "prefix=httplocalhost/tags/"};
  for (size_t i = 0; i < sizeof purges / sizeof *purges; i++) {
    char query[100];
    int before = seen("/tags/vary");
    warm("httplocalhost/tags/vary", "&tags=Surrogate-Key&path_tags=3");
    assert_true(is_hit(status_of("/tags/vary", NULL, NULL)));
    assert_int_equal(seen("/tags/vary"), before + 1);
    assert_false(is_hit(status_of("/tags/vary", "Accept-Language: de\r\n", NULL)));
    assert_true(is_hit(status_of("/tags/vary", "Accept-Language: de\r\n", NULL)));
    assert_int_equal(seen("/tags/vary"), before + 2);
    (void)snprintf(query, sizeof query, "/purge?%s", purges[i]);
    http_reply reply = nginx_kit_ask(server, "POST", query, NULL);
    assert_int_equal(reply.status, 200);
    http_reply_free(&reply);
    assert_false(is_hit(status_of("/tags/vary", NULL, NULL)));
    assert_false(is_hit(status_of("/tags/vary", "Accept-Language: de\r\n", NULL)));
    assert_int_equal(corral_run("invalidate httplocalhost/tags/vary"), 0);
  }
}

/* An application may name another location, whose page nginx sends: the warmer can't ask for it,
 * and stores nothing instead. What nginx then makes is purged as any page. */
static void a_page_of_another_location_is_left_to_nginx(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/moved/page",
                     HTTP_ANSWER(.headers = KEPT "X-Accel-Redirect: /inside/page\r\n"));
  http_origin_answer(nginx_kit_origin, "/inside/page",
                     HTTP_ANSWER(.headers = KEPT, .body = "inside", .numbered = 1));
  assert_int_equal(warm_by("httplocalhost/moved/page", "&path_tags=3"), 1);
  has("the store did not keep it");
  assert_false(is_hit(status_of("/moved/page", NULL, "inside 1")));
  assert_true(is_hit(status_of("/moved/page", NULL, "inside 1")));
  http_reply reply = nginx_kit_ask(server, "POST", "/purge?prefix=httplocalhost/moved/", NULL);
  assert_int_equal(reply.status, 200);
  http_reply_free(&reply);
  assert_false(is_hit(status_of("/moved/page", NULL, "inside 2")));
}

static void the_pages_of_a_sitemap_are_hits_of_nginx(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/map/a?b=1", HTTP_ANSWER(.headers = KEPT, .body = "a"));
  http_origin_answer(nginx_kit_origin, "/map.xml",
                     HTTP_ANSWER(.body = "<urlset><url><loc>http://me@LocalHost:8080/map/a?b=1#part"
                                         "</loc></url></urlset>"));
  int status = corral_run("warm --sitemap %s/map.xml --origin '%s{uri}#page=1'",
                          http_origin_url(nginx_kit_origin), http_origin_url(nginx_kit_origin));
  if (status != 0) fail_msg("%d %s", status, out);
  assert_true(is_hit(status_of("/map/a?b=1", NULL, "a")));
  assert_int_equal(seen("/map/a?b=1"), 1);
}

static void corral_get_prints_the_body_of_nginxs_page(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/get",
                     HTTP_ANSWER(.headers = KEPT "X-Own: kept\r\n", .body = "the body"));
  assert_int_equal(corral_run("get httplocalhost/get"), 1);
  assert_false(is_hit(status_of("/get", NULL, "the body")));
  assert_true(is_hit(status_of("/get", NULL, "the body"))); /* it is stored */
  assert_int_equal(corral_run("get httplocalhost/get"), 0);
  assert_string_equal(out, "the body");
  assert_int_equal(corral_run("get --header httplocalhost/get"), 0);
  assert_non_null(strstr(out, "\r\nX-Own: kept\r\n"));
  assert_memory_equal(out, "HTTP/1.1 200\r\n", 14);
  assert_string_equal(strstr(out, "\r\n\r\n"), "\r\n\r\nthe body");
  assert_int_equal(corral_run("inspect httplocalhost/get"), 0);
  assert_non_null(strstr(out, "\nstatus     200\nfields     "));
  assert_non_null(strstr(out, "\nbody       8 bytes\nvary       none\n"));
  assert_int_equal(corral_run("--json inspect httplocalhost/get"), 0);
  assert_non_null(strstr(out, ",\"status\":200,\"fields\":"));
  assert_non_null(strstr(out, ",\"body_bytes\":8,\"vary\":\"\""));
}

/* Fills the page's variants for two languages. */
static void fill_variants(const char *path, const char *before) {
  char body[2][32];
  for (int i = 0; i < 2; i++) (void)snprintf(body[i], sizeof body[i], "%s %d", before, i + 1);
  http_origin_answer(
      nginx_kit_origin, path,
      HTTP_ANSWER(.headers = KEPT "Vary: Accept-Language\r\n", .body = before, .numbered = 1));
  assert_false(is_hit(status_of(path, "Accept-Language: en\r\n", body[0])));
  assert_false(is_hit(status_of(path, "Accept-Language: de\r\n", body[1])));
  assert_true(is_hit(status_of(path, "Accept-Language: en\r\n", body[0])));
  assert_true(is_hit(status_of(path, "Accept-Language: de\r\n", body[1])));
}

static void the_command_finds_the_variant_of_a_request(void **state) {
  (void)state;
  fill_variants("/variant", "page");
  assert_int_equal(corral_run("get httplocalhost/variant"), 0);
  assert_string_equal(out, "page 1");
  assert_int_equal(corral_run("get --field 'Accept-Language: EN' httplocalhost/variant"), 0);
  assert_string_equal(out, "page 1");
  assert_int_equal(corral_run("get --field 'Accept-Language: de' httplocalhost/variant"), 0);
  assert_string_equal(out, "page 2");
  assert_int_equal(corral_run("get --field 'Accept-Language: fr' httplocalhost/variant"), 1);
  assert_int_equal(corral_run("inspect --field 'Accept-Language: de' httplocalhost/variant"), 0);
  assert_non_null(strstr(out, "\nvary       accept-language\n"));
  assert_int_equal(corral_run("inspect --field 'Accept-Language: fr' httplocalhost/variant"), 0);
  assert_non_null(strstr(out, "\nstate      none\n"));
  assert_int_equal(corral_run("get --field nonsense httplocalhost/variant"), 125);
}

static void invalidating_a_key_takes_its_variants_along(void **state) {
  (void)state;
  fill_variants("/gone", "page");
  assert_int_equal(corral_run("invalidate httplocalhost/gone"), 0);
  /* in this order: the first one takes the key itself, and the other one asks for its variant */
  assert_false(is_hit(status_of("/gone", "Accept-Language: en\r\n", "page 3")));
  assert_false(is_hit(status_of("/gone", "Accept-Language: de\r\n", "page 4")));
  assert_int_equal(seen("/gone"), 4);
}

static void await_seen(const char *path, int count) {
  for (int i = 0; i < 3000 && seen(path) < count; i++)
    (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  assert_int_equal(seen(path), count);
}

static void expiring_a_key_leaves_its_variants_stale(void **state) {
  (void)state;
  fill_variants("/stale", "page");
  assert_int_equal(corral_run("expire httplocalhost/stale"), 0);
  /* each is sent once more, while the new one is fetched behind it */
  nginx_kit_expect(server, "/stale", "Accept-Language: en\r\n", 200, "page 1", "age");
  await_seen("/stale", 3);
  nginx_kit_expect(server, "/stale", "Accept-Language: de\r\n", 200, "page 2", "age");
  await_seen("/stale", 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_page_that_was_warmed_is_a_hit_of_nginx),
      cmocka_unit_test(a_warmed_page_varies_and_is_purged_as_nginxs_own),
      cmocka_unit_test(a_page_of_another_location_is_left_to_nginx),
      cmocka_unit_test(the_pages_of_a_sitemap_are_hits_of_nginx),
      cmocka_unit_test(corral_get_prints_the_body_of_nginxs_page),
      cmocka_unit_test(the_command_finds_the_variant_of_a_request),
      cmocka_unit_test(invalidating_a_key_takes_its_variants_along),
      cmocka_unit_test(expiring_a_key_leaves_its_variants_stale)};
  if (getenv("CORRAL_PLUGINS") == NULL || getenv("CORRAL_COMMAND") == NULL) {
    fprintf(stderr, "SKIPPED: built without the command or its http: plugin\n");
    return 77;
  }
  if (!nginx_kit_open()) return 77;
  return cmocka_run_group_tests(tests, start, stop) + nginx_kit_close();
}
