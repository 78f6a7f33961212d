/* test_http_live.c: corral_get with values from an HTTP origin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <corral/loop.h>
#include <poll.h>
#include <pthread.h>

#include "os/env.h"
#include "support/http_origin.h"

enum { CALLERS = 50 };

static http_origin *server;

static int start(void **state) {
  (void)state;
  server = http_origin_start();
  return 0;
}

static int stop(void **state) {
  (void)state;
  http_origin_stop(server);
  return 0;
}

static corral *opened(const char *template, const corral_policy *policy) {
  char url[200];
  corral *c = NULL;
  corral_error error = {0};
  snprintf(url, sizeof url, "%s%s", http_origin_url(server), template);
  if (corral_open(CORRAL_OPTIONS(.store = "memory:", .origin = url, .policy = policy), &c,
                  &error) != CORRAL_OK)
    fail_msg("%s: %s", url, error.text);
  return c;
}

/* Text of the last value of this thread's gets, which returns the status of corral_get. */
static _Thread_local char got[256];
static int gets(corral *c, const char *key, corral_error *error) {
  corral_value *value = NULL;
  int status = corral_get(c, key, strlen(key), CORRAL_CALL(.error = error), &value);
  got[0] = '\0';
  if (status == CORRAL_OK)
    snprintf(got, sizeof got, "%.*s", (int)corral_value_size(value),
             (const char *)corral_value_data(value));
  corral_value_unref(value);
  return status;
}

static void *get_page(void *arg) {
  int is_right = gets(arg, "page", NULL) == CORRAL_OK && strcmp(got, "hello 1") == 0;
  return is_right ? arg : NULL;
}

static void fifty_callers_of_a_cold_key_are_one_request(void **state) {
  (void)state;
  pthread_t threads[CALLERS];
  corral *c = opened("/{key}", NULL);
  http_origin_answer(server, "/page", HTTP_ANSWER(.body = "hello", .numbered = 1, .delay_ms = 50));
  for (int i = 0; i < CALLERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, get_page, c), 0);
  for (int i = 0; i < CALLERS; i++) {
    void *is_right = NULL;
    pthread_join(threads[i], &is_right);
    assert_non_null(is_right);
  }
  assert_int_equal(http_origin_seen(server, "/page"), 1);
  corral_close(c);
}

static void await_verdict(corral *c, const char *page, corral_event event) {
  int64_t until = crl_env_now_ms() + 30000;
  while (corral_counter(c, event) == 0 && crl_env_now_ms() < until) {
    assert_int_equal(gets(c, "verified", NULL), CORRAL_OK);
    assert_string_equal(got, page);
    crl_env_pause_us(1000);
  }
  assert_true(corral_counter(c, event) > 0);
}

static void a_page_is_fetched_again_to_verify_it(void **state) {
  (void)state;
  corral *c = opened("/{key}", CORRAL_POLICY(.verify_ppm = 1000000, .ttl_ms = 600000));
  http_origin_answer(server, "/verified", HTTP_ANSWER(.headers = "ETag: \"1\"\r\n", .body = "one"));
  await_verdict(c, "one", CORRAL_EVENT_VERIFIED);
  assert_null(http_origin_header(server, "/verified", "If-None-Match"));
  http_origin_answer(server, "/verified", HTTP_ANSWER(.body = "two"));
  await_verdict(c, "one", CORRAL_EVENT_DIFFERS);
  http_origin_answer(server, "/verified", HTTP_ANSWER(.status = 500, .body = "oops"));
  await_verdict(c, "one", CORRAL_EVENT_UNVERIFIED);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_COMPUTE), 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_FILL), 1);
  corral_close(c);
}

static int async_right;
static void on_value(void *arg, int status, corral_value *value, const corral_error *error) {
  (void)arg;
  (void)error;
  async_right += status == CORRAL_OK && corral_value_size(value) == 5;
  corral_value_unref(value);
}

static void a_thousand_calls_of_a_loop_are_one_request(void **state) {
  (void)state;
  corral *c = opened("/{key}", NULL);
  corral_loop *loop = NULL;
  assert_int_equal(corral_loop_open(c, &loop, NULL), CORRAL_OK);
  http_origin_answer(server, "/async", HTTP_ANSWER(.body = "hello", .held = 1));
  for (int i = 0; i < 1000; i++)
    assert_int_equal(corral_loop_get(loop, "async", 5, NULL, CORRAL_ASYNC(.done = on_value), NULL),
                     CORRAL_OK);
  int64_t until = crl_env_now_ms() + 30000;
  while (async_right < 1000 && crl_env_now_ms() < until) {
    struct pollfd ready = {.fd = corral_loop_fd(loop), .events = POLLIN};
    poll(&ready, 1, 20);
    corral_loop_dispatch(loop);
    if (http_origin_running(server, "/async") > 0) http_origin_let(server, "/async");
  }
  assert_int_equal(async_right, 1000);
  assert_int_equal(http_origin_seen(server, "/async"), 1);
  corral_loop_close(loop);
  corral_close(c);
}

static void an_expired_value_is_validated_instead_of_fetched(void **state) {
  (void)state;
  corral *c = opened("/{key}", CORRAL_POLICY(.sie_ms = 60000));
  http_origin_answer(server, "/etag", HTTP_ANSWER(.body = "body", .etag = "\"v1\""));
  assert_int_equal(gets(c, "etag", NULL), CORRAL_OK);
  for (int i = 2; i < 5; i++) {
    assert_int_equal(corral_expire(c, "etag", 4, NULL), CORRAL_OK);
    assert_int_equal(gets(c, "etag", NULL), CORRAL_OK);
    assert_string_equal(got, "body");
    assert_int_equal(http_origin_seen(server, "/etag"), i);
    assert_string_equal(http_origin_header(server, "/etag", "If-None-Match"), "\"v1\"");
  }
  http_origin_answer(server, "/etag", HTTP_ANSWER(.body = "other", .etag = "\"v2\""));
  assert_int_equal(corral_expire(c, "etag", 4, NULL), CORRAL_OK);
  assert_int_equal(gets(c, "etag", NULL), CORRAL_OK);
  assert_string_equal(got, "other");
  corral_close(c);
}

static void a_private_answer_goes_to_nobody_else(void **state) {
  (void)state;
  corral *c = opened("/{key}", NULL);
  http_origin_answer(server, "/private",
                     HTTP_ANSWER(.body = "for", .numbered = 1,
                                 .headers = "Cache-Control: private, max-age=60\r\n"));
  for (int i = 1; i < 4; i++) {
    char want[16];
    snprintf(want, sizeof want, "for %d", i);
    assert_int_equal(gets(c, "private", NULL), CORRAL_OK);
    assert_string_equal(got, want);
  }
  corral_close(c);
}

static void what_is_not_there_and_what_fails_is_remembered(void **state) {
  (void)state;
  corral_error error = {0};
  corral *c = opened("/{key}", CORRAL_POLICY(.retry_ms = 60000, .retry_max_ms = 60000));
  http_origin_answer(server, "/none", HTTP_ANSWER(.status = 404));
  http_origin_answer(server, "/fails", HTTP_ANSWER(.status = 503));
  for (int i = 0; i < 3; i++) {
    assert_int_equal(gets(c, "none", NULL), CORRAL_ENOTFOUND);
    assert_int_equal(gets(c, "fails", &error), CORRAL_EFAILED);
    assert_int_equal(error.code, 503);
    assert_string_equal(error.text, "HTTP 503 Scripted");
  }
  assert_int_equal(http_origin_seen(server, "/none"), 1);
  assert_int_equal(http_origin_seen(server, "/fails"), 1);
  corral_close(c);
}

static void while_the_origin_is_down_stale_is_served_as_long_as_it_said(void **state) {
  (void)state;
  corral_error error = {0};
  corral *c = opened("/{key}", NULL);
  http_origin_answer(
      server, "/stale",
      HTTP_ANSWER(.body = "body", .headers = "Cache-Control: max-age=60, stale-if-error=60\r\n"));
  http_origin_answer(
      server, "/strict",
      HTTP_ANSWER(.body = "body", .headers = "Cache-Control: max-age=60, must-revalidate\r\n"));
  assert_int_equal(gets(c, "stale", NULL), CORRAL_OK);
  assert_int_equal(gets(c, "strict", NULL), CORRAL_OK);
  http_origin_down(server);
  assert_int_equal(corral_expire(c, "stale", 5, NULL), CORRAL_OK);
  assert_int_equal(corral_expire(c, "strict", 6, NULL), CORRAL_OK);
  assert_int_equal(gets(c, "stale", NULL), CORRAL_OK);
  assert_string_equal(got, "body");
  assert_int_equal(gets(c, "strict", &error), CORRAL_EFAILED);
  assert_int_equal(error.code, 502);
  http_origin_up(server);
  corral_close(c);
}

static void variants_are_keys_of_their_own(void **state) {
  (void)state;
  corral *c = opened("/{key}#vary=accept-language", NULL);
  http_origin_answer(
      server, "/v",
      HTTP_ANSWER(.body = "v", .numbered = 1, .headers = "Vary: Accept-Language\r\n"));
  static const char *const keys[] = {"v", "v\nAccept-Language: de", "v\nAccept-Language: en"};
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 3; i++) {
      char want[16];
      snprintf(want, sizeof want, "v %d", i + 1);
      assert_int_equal(gets(c, keys[i], NULL), CORRAL_OK);
      assert_string_equal(got, want);
    }
  }
  corral_close(c);
}

/* A short call may end before its compute begins, on a busy machine: it is repeated. */
static void *get_hanging(void *arg) {
  int64_t until = crl_env_now_ms() + 30000;
  do gets(arg, "hang", NULL);
  while (http_origin_running(server, "/hang") == 0 && crl_env_now_ms() < until);
  return NULL;
}

static void close_does_not_wait_for_a_server_that_hangs(void **state) {
  (void)state;
  pthread_t thread;
  corral *c = opened("/{key}", CORRAL_POLICY(.wait_ms = 50));
  http_origin_answer(server, "/hang", HTTP_ANSWER(.fate = HTTP_FATE_HANGS));
  assert_int_equal(pthread_create(&thread, NULL, get_hanging, c), 0);
  assert_true(http_origin_await_running(server, "/hang", 1));
  pthread_join(thread, NULL);
  int64_t began = crl_env_now_ms();
  corral_close(c);
  assert_true(crl_env_now_ms() - began < 20000); /* the fetch may take 30 s */
}

static void a_bad_url_is_refused_at_open(void **state) {
  (void)state;
  corral *c = NULL;
  corral_error error = {0};
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "memory:", .origin = "http://host/"), &c, &error),
      CORRAL_EURI);
  assert_non_null(strstr(error.text, "{key}"));
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "memory:", .origin = "HTTPS://host/{key}"), &c, &error),
      CORRAL_OK);
  corral_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_page_is_fetched_again_to_verify_it),
      cmocka_unit_test(fifty_callers_of_a_cold_key_are_one_request),
      cmocka_unit_test(a_thousand_calls_of_a_loop_are_one_request),
      cmocka_unit_test(an_expired_value_is_validated_instead_of_fetched),
      cmocka_unit_test(a_private_answer_goes_to_nobody_else),
      cmocka_unit_test(what_is_not_there_and_what_fails_is_remembered),
      cmocka_unit_test(while_the_origin_is_down_stale_is_served_as_long_as_it_said),
      cmocka_unit_test(variants_are_keys_of_their_own),
      cmocka_unit_test(close_does_not_wait_for_a_server_that_hangs),
      cmocka_unit_test(a_bad_url_is_refused_at_open),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
