/* test_cgi.c: examples/cgi behind a real nginx and fcgiwrap: one process per request, an lmdb:
 * store. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/page_kit.h"

#define START_AS(way, variables)                                                                   \
  page_kit *kit = page_kit_start((way), (variables));                                              \
  if (kit == NULL) skip();
#define START(variables) START_AS(PAGE_CGI, variables)

static void a_hundred_requests_for_a_cold_page_make_it_once(void **state) {
  (void)state;
  START_AS(PAGE_CGI_HERD, "PAGE_COMMAND=%GATED%\n")
  long long longest = page_kit_hundred_make_it_once(kit);
  print_message("100 processes: the last was answered after %lld ms\n", longest / 1000);
}

static void a_stale_page_is_answered_first_and_made_anew_after(void **state) {
  (void)state;
  START("PAGE_COMMAND=%GATED%\nPAGE_TTL_MS=100\n")
  assert_string_equal(page_kit_show(kit, "/page/herd"), "200 corral; fwd=miss; stored|edition 1\n");
  page_kit_gate(kit, 0);
  /* the request that finds the stale value refreshes it, and can't end before the gate is open */
  while (strstr(page_kit_show(kit, "/page/herd"), "hit|") != NULL) continue;
  page_kit_await(kit, page_kit_computes, 2, 0);
  assert_string_equal(page_kit_show(kit, "/page/herd"),
                      "200 corral; hit; detail=stale|edition 1\n");
  http_storm_result storm = http_client_storm_end(page_kit_herd(kit, 20, "edition 1\n"));
  assert_int_equal(storm.good, 20);
  /* all CGI processes but the refreshing one have ended */
  page_kit_await(kit, page_kit_requests, 1, 1);
  assert_int_equal(page_kit_computes(kit), 2);
  page_kit_gate(kit, 1);
  page_kit_await(kit, page_kit_requests, 0, 1);
  assert_non_null(strstr(page_kit_show(kit, "/page/herd"), "|edition 2\n"));
  http_storm_free(&storm);
  page_kit_stop(kit);
}

static int commands(const page_kit *kit) {
  return strchr(page_kit_text(kit, "commands"), '\n') != NULL;
}

static int living_commands(const page_kit *kit) {
  pid_t pid = (pid_t)strtol(page_kit_text(kit, "commands"), NULL, 10);
  return kill(pid, 0) == 0;
}

static void a_killed_maker_does_not_stop_the_others(void **state) {
  (void)state;
  START("PAGE_COMMAND=%GATED%\n")
  page_kit_gate(kit, 0);
  http_storm_run *run = page_kit_herd(kit, 20, NULL);
  page_kit_await(kit, page_kit_requests, 20, 0);
  page_kit_await(kit, page_kit_computes, 1, 0);
  assert_int_equal(kill(page_kit_maker(kit), SIGKILL), 0);
  page_kit_await(kit, page_kit_computes, 2, 0);
  page_kit_gate(kit, 1);
  http_storm_result storm = http_client_storm_end(run);
  assert_int_equal(storm.good, 19); /* the request whose process was killed gets no page */
  assert_string_equal(storm.body, "edition 2\n");
  assert_true(storm.same_bodies);
  assert_int_equal(page_kit_computes(kit), 2);
  http_storm_free(&storm);
  page_kit_stop(kit);
}

/* The command has left the group of the CGI process, and the session. */
static void a_killed_process_leaves_nothing_of_its_command(void **state) {
  (void)state;
  START("PAGE_COMMAND=setsid sh -c 'echo $$ >>%FOLDER%/commands; exec sleep 600'\n"
        "PAGE_LIMIT_MS=600000\n")
  assert_int_equal(http_client_abort(kit->client, &(http_request){.path = "/page/a"}, 0), 0);
  page_kit_await(kit, commands, 1, 1);
  pid_t command = (pid_t)strtol(page_kit_text(kit, "commands"), NULL, 10);
  assert_int_equal(kill(command, 0), 0);
  assert_int_equal(kill(page_kit_maker(kit), SIGKILL), 0);
  page_kit_await(kit, living_commands, 0, 1);
  page_kit_stop(kit);
}

static void each_path_and_query_is_a_page_of_its_own(void **state) {
  (void)state;
  START("PAGE_COMMAND=echo path $PAGE_PATH query $PAGE_QUERY\n")
  assert_string_equal(page_kit_show(kit, "/page/a?b=c"),
                      "200 corral; fwd=miss; stored|path /a query b=c\n");
  assert_string_equal(page_kit_show(kit, "/page/a?b=c"), "200 corral; hit|path /a query b=c\n");
  assert_string_equal(page_kit_show(kit, "/page/a%3Fb=c"),
                      "200 corral; fwd=miss; stored|path /a?b=c query\n");
  assert_string_equal(page_kit_show(kit, "/page/a"),
                      "200 corral; fwd=miss; stored|path /a query\n");
  assert_string_equal(page_kit_show(kit, "/page"), "200 corral; fwd=miss; stored|path / query\n");
  assert_string_equal(page_kit_show(kit, "/page/"), "200 corral; hit|path / query\n");
  assert_string_equal(page_kit_show(kit, "/page/$(id)?`id`;id"),
                      "200 corral; fwd=miss; stored|path /$(id) query `id`;id\n");
  page_kit_stop(kit);
}

static int status_of(page_kit *kit, const char *method, const char *path, const char *header,
                     const char *expected) {
  http_reply reply = http_client_ask(kit->client, &(http_request){.method = method, .path = path});
  const char *value = header != NULL ? http_reply_header(&reply, header) : NULL;
  if (header != NULL && (value == NULL || strcmp(value, expected) != 0))
    fail_msg("%s is '%s', not '%s'", header, value != NULL ? value : "", expected);
  int status = reply.status;
  if (strcmp(method, "HEAD") == 0) assert_int_equal(reply.size, 0);
  http_reply_free(&reply);
  return status;
}

static void what_is_no_request_for_a_page_makes_none(void **state) {
  (void)state;
  START("PAGE_COMMAND=echo a page\n")
  char path[2200];
  assert_int_equal(status_of(kit, "POST", "/page/a", "Allow", "GET, HEAD"), 405);
  assert_int_equal(status_of(kit, "DELETE", "/page/a", "Cache-Control", "no-store"), 405);
  assert_int_equal(status_of(kit, "GET", "/pages", NULL, NULL), 400);
  assert_int_equal(status_of(kit, "GET", "/page/a%0Ab", NULL, NULL), 400);
  assert_int_equal(status_of(kit, "GET", "/page/a%7F", NULL, NULL), 400);
  snprintf(path, sizeof path, "/page/%02100d", 0);
  assert_int_equal(status_of(kit, "GET", path, NULL, NULL), 414);
  snprintf(path, sizeof path, "/page/?%02045d", 0);
  assert_int_equal(page_kit_computes(kit), 0);
  assert_int_equal(status_of(kit, "GET", path, NULL, NULL), 200);
  snprintf(path, sizeof path, "/page/?%02046d", 0);
  assert_int_equal(status_of(kit, "GET", path, NULL, NULL), 414);
  assert_int_equal(page_kit_computes(kit), 1);
  assert_int_equal(status_of(kit, "HEAD", "/page/a", "Content-Length", "7"), 200);
  assert_string_equal(page_kit_show(kit, "/page/a"), "200 corral; hit|a page\n");
  page_kit_stop(kit);
}

/* For half a second: of several pages one is asked for again before that is over. */
static int failures_are_remembered(page_kit *kit) {
  for (int i = 0; i < 20; i++) {
    char path[32];
    int before = page_kit_computes(kit);
    snprintf(path, sizeof path, "/page/bad%d", i);
    assert_int_equal(status_of(kit, "GET", path, "Retry-After", "1"), 502);
    assert_int_equal(status_of(kit, "GET", path, NULL, NULL), 502);
    if (page_kit_computes(kit) == before + 1) return 1;
  }
  return 0;
}

static void a_failure_is_an_answer_and_is_remembered(void **state) {
  (void)state;
  START("PAGE_COMMAND=case $PAGE_PATH in /none) exit 4 ;; /large) exec head -c 20000 /dev/zero ;; "
        "/slow) exec sleep 60 ;; *) exit 7 ;; esac\n"
        "PAGE_MAX=10000\nPAGE_LIMIT_MS=5000\n")
  assert_true(failures_are_remembered(kit));
  int before = page_kit_computes(kit);
  assert_int_equal(status_of(kit, "GET", "/page/none", NULL, NULL), 404);
  assert_int_equal(status_of(kit, "GET", "/page/none", NULL, NULL), 404);
  assert_int_equal(page_kit_computes(kit), before + 1);
  assert_int_equal(status_of(kit, "GET", "/page/large", NULL, NULL), 500);
  assert_int_equal(status_of(kit, "GET", "/page/slow", NULL, NULL), 504);
  assert_int_equal(page_kit_computes(kit), before + 3);
  page_kit_stop(kit);
}

/* Its time limit is ten minutes, and what it has left behind has its output open. */
static void a_failing_command_is_told_when_it_ends(void **state) {
  (void)state;
  START("PAGE_COMMAND=[ $PAGE_PATH != /killed ] || kill -9 $$; sleep 600 & exit 7\n"
        "PAGE_LIMIT_MS=600000\nPAGE_WAIT_MS=600000\n")
  assert_int_equal(status_of(kit, "GET", "/page/a", "Retry-After", "1"), 502);
  assert_non_null(
      strstr(page_kit_text(kit, "log"), "/a?: making the page failed: exit status 7\n"));
  assert_int_equal(status_of(kit, "GET", "/page/killed", NULL, NULL), 502);
  assert_non_null(
      strstr(page_kit_text(kit, "log"), "/killed?: making the page failed: signal 9\n"));
  page_kit_await(kit, page_kit_requests, 0, 1);
  page_kit_stop(kit);
}

static void a_page_that_can_not_be_made_anew_stays(void **state) {
  (void)state;
  START("PAGE_COMMAND=[ -e %FOLDER%/open ] && echo a page || { echo closed >&2; false; }\n"
        "PAGE_TTL_MS=50\nPAGE_LOG=%FOLDER%/failures\n")
  assert_string_equal(page_kit_show(kit, "/page/a"), "200 corral; fwd=miss; stored|a page\n");
  page_kit_gate(kit, 0);
  while (page_kit_computes(kit) < 2)
    assert_non_null(strstr(page_kit_show(kit, "/page/a"), "|a page\n"));
  page_kit_await(kit, page_kit_requests, 0, 1);
  assert_string_equal(page_kit_show(kit, "/page/a"), "200 corral; hit; detail=stale|a page\n");
  /* the failure is told when it happens, though nobody waits for the page */
  assert_non_null(strstr(page_kit_text(kit, "failures"), "closed\n"));
  assert_non_null(
      strstr(page_kit_text(kit, "failures"), "/a?: making the page failed: exit status 1\n"));
  page_kit_stop(kit);
}

static void without_its_store_it_makes_pages_for_each(void **state) {
  (void)state;
  START("CORRAL_STORE=lmdb:/proc/none/pages\nPAGE_COMMAND=echo a page\n")
  assert_string_equal(page_kit_show(kit, "/page/a"), "200 corral; fwd=miss|a page\n");
  assert_string_equal(page_kit_show(kit, "/page/a"), "200 corral; fwd=miss|a page\n");
  assert_int_equal(page_kit_computes(kit), 2);
  page_kit_stop(kit);
}

/* For as long as PAGE_STORE_MS says, here longer than its default. */
static void a_store_that_is_being_opened_is_waited_for(void **state) {
  (void)state;
  START("PAGE_COMMAND=echo a page\n")
  char path[SERVER_PROCESS_PATH];
  struct flock gate = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  snprintf(path, sizeof path, "%s/pages-lease", page_kit_folder(kit));
  int opening = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  assert_int_equal(fcntl(opening, F_OFD_SETLK, &gate), 0);
  http_storm_run *run = page_kit_herd(kit, 10, "a page\n");
  page_kit_await(kit, page_kit_requests, 10, 0);
  poll(NULL, 0, 7000);
  assert_int_equal(page_kit_computes(kit), 0);
  close(opening);
  http_storm_result storm = http_client_storm_end(run);
  assert_int_equal(storm.good, 10);
  assert_int_equal(page_kit_computes(kit), 1);
  http_storm_free(&storm);
  page_kit_stop(kit);
}

static void a_page_that_the_store_has_no_room_for_is_answered(void **state) {
  (void)state;
  START("CORRAL_STORE=lmdb:%FOLDER%/pages?size=1m\nPAGE_COMMAND=head -c 2000000 "
        "/dev/zero\nPAGE_MAX=3000000\n")
  for (int i = 1; i <= 2; i++) {
    http_reply reply = page_kit_get(kit, "/page/a");
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.size, 2000000);
    assert_string_equal(http_reply_header(&reply, "cache-status"), "corral; fwd=miss");
    assert_int_equal(page_kit_computes(kit), i);
    http_reply_free(&reply);
  }
  page_kit_stop(kit);
}

static void what_is_set_up_wrongly_is_told_to_the_log_alone(void **state) {
  (void)state;
  static const char *const stores[] = {"CORRAL_STORE=nothing:here\n", "CORRAL_STORE=\n"},
                           *const told[] = {"nothing", "CORRAL_STORE isn't set"};
  for (int i = 0; i < 2; i++) {
    START(stores[i])
    assert_string_equal(page_kit_show(kit, "/page/a"),
                        "500 |500 Internal Server Error: see the server's log\n");
    assert_non_null(strstr(page_kit_text(kit, "log"), told[i]));
    page_kit_stop(kit);
  }
}

static void a_client_that_leaves_leaves_the_page_behind(void **state) {
  (void)state;
  START("PAGE_COMMAND=%GATED%\n")
  page_kit_gate(kit, 0);
  assert_int_equal(http_client_abort(kit->client, &(http_request){.path = "/page/a"}, 0), 0);
  page_kit_await(kit, page_kit_computes, 1, 0);
  page_kit_gate(kit, 1);
  page_kit_await(kit, page_kit_requests, 0, 1);
  assert_string_equal(page_kit_show(kit, "/page/a"), "200 corral; hit|edition 1\n");
  page_kit_stop(kit);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hundred_requests_for_a_cold_page_make_it_once),
      cmocka_unit_test(a_stale_page_is_answered_first_and_made_anew_after),
      cmocka_unit_test(a_killed_maker_does_not_stop_the_others),
      cmocka_unit_test(a_killed_process_leaves_nothing_of_its_command),
      cmocka_unit_test(a_failing_command_is_told_when_it_ends),
      cmocka_unit_test(each_path_and_query_is_a_page_of_its_own),
      cmocka_unit_test(what_is_no_request_for_a_page_makes_none),
      cmocka_unit_test(a_failure_is_an_answer_and_is_remembered),
      cmocka_unit_test(a_page_that_can_not_be_made_anew_stays),
      cmocka_unit_test(without_its_store_it_makes_pages_for_each),
      cmocka_unit_test(a_store_that_is_being_opened_is_waited_for),
      cmocka_unit_test(a_page_that_the_store_has_no_room_for_is_answered),
      cmocka_unit_test(what_is_set_up_wrongly_is_told_to_the_log_alone),
      cmocka_unit_test(a_client_that_leaves_leaves_the_page_behind),
  };
  char path[SERVER_PROCESS_PATH];
  if (!server_process_find("nginx", "nginx", path) ||
      !server_process_find("fcgiwrap", "fcgiwrap", path))
    return 77;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
