/* test_nginx_control.c: the nginx module follows an operator's orders, and shows them. */
#include <corral/control.h>
#include <time.h>

#include "support/nginx_kit.h"

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location /brief { corral pages; corral_valid 1s; corral_stale_if_error 1h; "                    \
  "proxy_pass %ORIGIN%; }"                                                                         \
  "location / { corral pages; corral_valid 1h; proxy_pass %ORIGIN%; }"

enum { PATIENCE = 6000 }; /* pauses of 5 ms */

static nginx_server *server;
static corral *desk;

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(
      &(nginx_kit_plan){.locations = LOCATIONS, .zone = "control=on op=10s namespace=shop"});
  return corral_open(CORRAL_OPTIONS(.store = redis_server_unix_uri(nginx_kit_redis),
                                    .name_space = "shop", .op_ms = 10000),
                     &desk, NULL);
}

static int stop(void **state) {
  (void)state;
  corral_close(desk);
  nginx_kit_end(server, 0);
  return 0;
}

static double row(const char *name) { return nginx_kit_row(server, name); }

/* In use, until so many workers follow that order. */
static void await_order(const char *order, double workers) {
  char name[100];
  snprintf(name, sizeof name, "corral_order{zone=\"pages\",order=\"%s\"}", order);
  for (int i = 0; i < PATIENCE && row(name) != workers; i++) {
    http_reply reply = nginx_kit_get(server, "/used", NULL);
    http_reply_free(&reply);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  if (row(name) != workers) fail_msg("%s is not followed", order);
}

static void give(corral_control verb) {
  corral_error error = {0};
  if (corral_control_set(desk, verb, 0, 0, &error) != CORRAL_OK) fail_msg("%s", error.text);
}

static int seen(const char *path) { return http_origin_seen(nginx_kit_origin, path); }

static void gets(const char *path, int status, const char *body) {
  nginx_kit_expect(server, path, NULL, status, body, NULL);
}

static void a_worker_freezes_goes_around_the_cache_and_comes_back(void **state) {
  (void)state;
  static const char *const paths[] = {"/page", "/brief", "/missing", "/used"};
  for (int i = 0; i < 4; i++)
    http_origin_answer(nginx_kit_origin, paths[i], HTTP_ANSWER(.body = paths[i]));
  gets("/page", 200, "/page");
  gets("/brief", 200, "/brief");

  give(CORRAL_CONTROL_FREEZE);
  await_order("freeze", 1);
  nanosleep(&(struct timespec){.tv_sec = 2}, NULL); /* longer than /brief is fresh */
  for (int i = 0; i < 5; i++) gets("/brief", 200, "/brief");
  gets("/page", 200, "/page");
  for (int i = 0; i < 5; i++) gets("/missing", 503, NULL);
  assert_int_equal(seen("/brief"), 1);
  assert_int_equal(seen("/missing"), 0);
  http_reply reply = nginx_kit_get(server, "/status", NULL);
  assert_non_null(strstr(reply.body, "\"orders\":{\"freeze\":1,\"bypass\":0,\"limit\":0}"));
  http_reply_free(&reply);

  give(CORRAL_CONTROL_BYPASS);
  await_order("bypass", 1);
  for (int i = 0; i < 5; i++) gets("/page", 200, "/page");
  assert_int_equal(seen("/page"), 6);

  give(CORRAL_CONTROL_NORMAL);
  await_order("bypass", 0);
  gets("/page", 200, "/page");
  gets("/missing", 200, "/missing");
  gets("/missing", 200, "/missing");
  assert_int_equal(seen("/page"), 6);
  assert_int_equal(seen("/missing"), 1);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_worker_freezes_goes_around_the_cache_and_comes_back),
  };
  int failed = cmocka_run_group_tests_name("nginx_control", tests, start, stop);
  return failed + nginx_kit_close();
}
