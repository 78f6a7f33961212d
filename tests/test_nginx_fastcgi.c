/* test_nginx_fastcgi.c: the nginx module in front of a handler other than proxy_pass:
 * examples/fastcgi, whose own cache expires at once. */
#include "support/nginx_kit.h"
#include "support/page_kit.h"

#define FASTCGI                                                                                    \
  "include /etc/nginx/fastcgi_params; fastcgi_split_path_info (?s)^(/[a-z]+)(.*)$; fastcgi_param " \
  "PATH_INFO $fastcgi_path_info;"                                                                  \
  "fastcgi_pass unix:%s/socket-0;"

static page_kit *kit;
static nginx_server *server;

static int start(void **state) {
  (void)state;
  kit = page_kit_start(PAGE_FASTCGI,
                       "PAGE_COMMAND=%GATED%\nPAGE_TTL_MS=1\nPAGE_SWR_MS=-1\nPAGE_SIE_MS=-1\n");
  if (kit == NULL) return 0;
  const char *folder = page_kit_folder(kit);
  char locations[2000];
  snprintf(locations, sizeof locations,
           "location /pages { corral pages; corral_valid 1m; corral_ignore_headers Cache-Control; "
           "add_header X-How $corral_status; " FASTCGI " }"
           "location /behind { corral pages; corral_valid 1m; corral_ignore_headers Cache-Control; "
           "add_header X-How $corral_status; corral_pass @fast; }"
           "location @fast { " FASTCGI " }",
           folder, folder);
  server = nginx_kit_start(&(nginx_kit_plan){.locations = locations});
  return 0;
}

static int stop(void **state) {
  (void)state;
  if (kit == NULL) return 0;
  nginx_kit_end(server, 0);
  page_kit_stop(kit);
  return 0;
}

static void is_hit(const char *path, const char *body) {
  assert_string_equal(nginx_kit_expect_alone(server, path, NULL, 200, body, "x-how"), "HIT");
}

static void a_herd_on_fastcgi_pass_is_one_request_and_then_hits(void **state) {
  (void)state;
  if (kit == NULL) skip();
  page_kit_gate(kit, 0);
  http_storm_run *run =
      http_client_storm_start(&(http_storm){.address = nginx_server_address(server),
                                            .path = "/pages/herd?a=b",
                                            .connections = 40,
                                            .requests_each = 1,
                                            .expected = "edition 1\n"});
  page_kit_await(kit, page_kit_computes, 1, 0);
  page_kit_gate(kit, 1);
  http_storm_result storm = http_client_storm_end(run);
  assert_string_equal(storm.error, "");
  assert_int_equal(storm.good, 40);
  http_storm_free(&storm);
  is_hit("/pages/herd?a=b", "edition 1\n");
  assert_int_equal(page_kit_computes(kit), 1);
}

static void a_named_location_may_be_a_fastcgi_one(void **state) {
  (void)state;
  if (kit == NULL) skip();
  int before = page_kit_computes(kit);
  assert_string_equal(nginx_kit_expect(server, "/behind/x", NULL, 200, NULL, "x-how"), "MISS");
  is_hit("/behind/x", NULL);
  assert_int_equal(page_kit_computes(kit), before + 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_herd_on_fastcgi_pass_is_one_request_and_then_hits),
      cmocka_unit_test(a_named_location_may_be_a_fastcgi_one),
  };
  if (!nginx_kit_open()) return 77;
  int failed = cmocka_run_group_tests_name("nginx_fastcgi", tests, start, stop);
  return failed + nginx_kit_close();
}
