/* test_fastcgi.c: examples/fastcgi behind a real nginx, started by spawn-fcgi. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/page_kit.h"

#define START(way, variables)                                                                      \
  page_kit *kit = page_kit_start((way), (variables));                                              \
  if (kit == NULL) skip();

static void a_hundred_requests_make_a_cold_page_once(const char *variables) {
  START(PAGE_FASTCGI, variables)
  (void)page_kit_hundred_make_it_once(kit);
}

static void a_hundred_threads_with_a_cold_page_make_it_once(void **state) {
  (void)state;
  a_hundred_requests_make_a_cold_page_once("PAGE_COMMAND=%GATED%\nPAGE_THREADS=100\n");
}

static void four_threads_with_a_hundred_requests_for_a_cold_page_make_it_once(void **state) {
  (void)state;
  a_hundred_requests_make_a_cold_page_once("PAGE_COMMAND=%GATED%\nPAGE_THREADS=4\n");
}

static void a_stale_page_is_answered_while_it_is_made_anew(void **state) {
  (void)state;
  START(PAGE_FASTCGI, "PAGE_COMMAND=%GATED%\nPAGE_TTL_MS=100\nPAGE_THREADS=2\n")
  assert_string_equal(page_kit_show(kit, "/page/herd"), "200 corral; fwd=miss; stored|edition 1\n");
  page_kit_gate(kit, 0);
  while (strstr(page_kit_show(kit, "/page/herd"), "hit|") != NULL) continue;
  page_kit_await(kit, page_kit_computes, 2, 0);
  /* Two threads are enough: neither is blocked by the refresh. */
  http_storm_result storm = http_client_storm_end(page_kit_herd(kit, 20, "edition 1\n"));
  assert_int_equal(storm.good, 20);
  assert_int_equal(page_kit_computes(kit), 2);
  assert_string_equal(page_kit_show(kit, "/page/herd"),
                      "200 corral; hit; detail=stale|edition 1\n");
  page_kit_gate(kit, 1);
  while (strstr(page_kit_show(kit, "/page/herd"), "|edition 1\n") != NULL) continue;
  page_kit_terminate(kit, 0);
  assert_int_equal(page_kit_end(kit, 0), 0);
  http_storm_free(&storm);
  page_kit_stop(kit);
}

static void at_its_end_it_answers_what_has_come(void **state) {
  (void)state;
  START(PAGE_FASTCGI, "PAGE_COMMAND=%GATED%\nPAGE_THREADS=8\n")
  page_kit_gate(kit, 0);
  http_storm_run *run = page_kit_herd(kit, 100, "edition 1\n");
  /* 8 requests have a thread, the others wait in the socket's queue */
  page_kit_await(kit, page_kit_requests, 100, 0);
  page_kit_await(kit, page_kit_computes, 1, 0);
  page_kit_terminate(kit, 0);
  page_kit_gate(kit, 1);
  http_storm_result storm = http_client_storm_end(run);
  assert_string_equal(storm.error, "");
  assert_int_equal(storm.good, 100);
  assert_int_equal(page_kit_end(kit, 0), 0);
  assert_int_equal(page_kit_computes(kit), 1);
  assert_int_equal(http_client_abort(kit->client, &(http_request){.path = "/page/a"}, 0), 0);
  http_storm_free(&storm);
  page_kit_stop(kit);
}

static void of_two_one_can_end_under_load_and_nobody_sees_it(void **state) {
  (void)state;
  START(PAGE_FASTCGI_2, "PAGE_COMMAND=%GATED%\n")
  http_storm_run *run =
      http_client_storm_start(&(http_storm){.address = nginx_server_address(kit->nginx),
                                            .path = "/page/herd",
                                            .connections = 20,
                                            .expected = "edition 1\n"});
  while (http_client_storm_answered(run) < 500) page_kit_await(kit, page_kit_computes, 1, 1);
  page_kit_terminate(kit, 0);
  assert_int_equal(page_kit_end(kit, 0), 0);
  int before = http_client_storm_answered(run);
  while (http_client_storm_answered(run) < before + 500)
    page_kit_await(kit, page_kit_computes, 1, 1);
  http_storm_result storm = http_client_storm_end(run);
  print_message("%d requests, %d answered well\n", storm.count, storm.good);
  assert_string_equal(storm.error, "");
  assert_int_equal(storm.good, storm.count);
  assert_int_equal(page_kit_computes(kit), 1);
  http_storm_free(&storm);
  page_kit_stop(kit);
}

static void it_ends_at_once_when_nothing_is_under_way(void **state) {
  (void)state;
  START(PAGE_FASTCGI, "PAGE_THREADS=64\nPAGE_COMMAND=echo page\n")
  /* The socket exists before the program runs; only an answer shows that the SIGTERM handler is
   * installed. */
  assert_string_equal(page_kit_show(kit, "/page/one"), "200 corral; fwd=miss; stored|page\n");
  page_kit_terminate(kit, 0);
  assert_int_equal(page_kit_end(kit, 0), 0);
  page_kit_stop(kit);
}

/* A failure is remembered for half a second: of several pages one is asked for again before that is
 * over. */
static int failures_are_remembered(page_kit *kit) {
  for (int i = 0; i < 20; i++) {
    char path[32];
    int before = page_kit_computes(kit);
    snprintf(path, sizeof path, "/page/bad%d", i);
    for (int j = 0; j < 2; j++)
      assert_string_equal(page_kit_show(kit, path), "502 |502 Bad Gateway: computing failed\n");
    if (page_kit_computes(kit) == before + 1) return 1;
  }
  return 0;
}

static void errors_and_heads_are_as_with_cgi(void **state) {
  (void)state;
  START(PAGE_FASTCGI, "PAGE_COMMAND=case $PAGE_PATH in /none) exit 4 ;; /bad*) exit 7 ;; esac; "
                      "echo path $PAGE_PATH query $PAGE_QUERY\n")
  assert_string_equal(page_kit_show(kit, "/page/a?b=c"),
                      "200 corral; fwd=miss; stored|path /a query b=c\n");
  assert_string_equal(
      page_kit_show(kit, "/page/none"),
      "404 |404 Not Found: no such thing, said the origin; the answer is remembered\n");
  assert_int_equal(page_kit_computes(kit), 2);
  assert_true(failures_are_remembered(kit));
  http_reply reply =
      http_client_ask(kit->client, &(http_request){.method = "HEAD", .path = "/page/a?b=c"});
  assert_int_equal(reply.status, 200);
  assert_int_equal(reply.size, 0);
  assert_string_equal(http_reply_header(&reply, "content-length"), "18");
  http_reply_free(&reply);
  reply = http_client_ask(
      kit->client, &(http_request){.method = "PUT", .path = "/page/a?b=c", .body = "x", .size = 1});
  assert_int_equal(reply.status, 405);
  http_reply_free(&reply);
  page_kit_await(kit, page_kit_requests, 0, 1); /* each connection was closed */
  page_kit_stop(kit);
}

static void a_large_page_comes_whole_and_a_client_that_leaves_harms_nobody(void **state) {
  (void)state;
  START(PAGE_FASTCGI, "PAGE_COMMAND=head -c 3000000 /dev/zero\nPAGE_MAX=4000000\nPAGE_THREADS=2\n")
  for (int i = 0; i < 10; i++)
    assert_true(http_client_abort(kit->client, &(http_request){.path = "/page/a"},
                                  i % 2 == 0 ? 0 : 100000) >= 0);
  http_reply reply = page_kit_get(kit, "/page/a");
  assert_int_equal(reply.status, 200);
  assert_int_equal(reply.size, 3000000);
  assert_int_equal(page_kit_computes(kit), 1);
  http_reply_free(&reply);
  page_kit_terminate(kit, 0);
  assert_int_equal(page_kit_end(kit, 0), 0);
  page_kit_stop(kit);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hundred_threads_with_a_cold_page_make_it_once),
      cmocka_unit_test(four_threads_with_a_hundred_requests_for_a_cold_page_make_it_once),
      cmocka_unit_test(a_stale_page_is_answered_while_it_is_made_anew),
      cmocka_unit_test(at_its_end_it_answers_what_has_come),
      cmocka_unit_test(of_two_one_can_end_under_load_and_nobody_sees_it),
      cmocka_unit_test(it_ends_at_once_when_nothing_is_under_way),
      cmocka_unit_test(errors_and_heads_are_as_with_cgi),
      cmocka_unit_test(a_large_page_comes_whole_and_a_client_that_leaves_harms_nobody),
  };
  char path[SERVER_PROCESS_PATH];
  if (!server_process_find("nginx", "nginx", path) ||
      !server_process_find("spawn-fcgi", "spawn-fcgi", path))
    return 77;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
