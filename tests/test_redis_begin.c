/* test_redis_begin.c: looks without waiting, answered by a scripted server in pieces, by errors and
 * by nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>

#include "store/registry.h"
#include "support/fake_server.h"
#include "store/uri.h"

extern const corral_store crl_plugin_redis;

enum { LIMIT = 20000, MOST = 4 };

/* Without TIME each look has its PTTL: two replies. */
#define GREETED "EXPECT TIME\\r\\n\nSEND +OK\\r\\n@INFO-NOPERM no\\r\\n\n"
#define ASKED "EXPECT PTTL\\r\\n$1\\r\\nk\\r\\n\n"

typedef struct dialogue {
  const corral_host *host;
  fake_server *server;
  void *store, *handle;
  corral_error error;
  corral_op ops[MOST];
  corral_batch batch;
} dialogue;

static void begun(dialogue *d, const char *script, size_t count) {
  char text[64];
  crl_uri uri;
  corral_store_info info = {.size = sizeof info};
  memset(d, 0, sizeof *d);
  d->host = crl_registry_host();
  d->server = fake_server_start(script);
  snprintf(text, sizeof text, "redis://127.0.0.1:%d", fake_server_port(d->server));
  assert_int_equal(crl_uri_parse(&uri, text, &d->error), CORRAL_OK);
  assert_int_equal(crl_plugin_redis.open(d->host, &uri.view, &d->store, &info, &d->error), 0);
  crl_uri_free(&uri);
  if (crl_plugin_redis.connect(d->store, d->host->now_ms() + LIMIT, &d->handle, &d->error) != 0)
    fail_msg("%s", d->error.text);
  d->batch = (corral_batch){.ops = d->ops, .count = count, .op_size = sizeof(corral_op)};
  for (size_t i = 0; i < count; i++)
    d->ops[i] = (corral_op){.verb = CORRAL_VERB_GET,
                            .key = "k",
                            .key_len = 1,
                            .flags = CORRAL_OP_LESS,
                            .status = CORRAL_EINDOUBT};
  if (count > 0)
    assert_int_equal(crl_plugin_redis.begin(d->handle, &d->batch, &d->error), CORRAL_OK);
}

/* Finishes as the descriptor becomes readable; returns the last status. */
static int heard(dialogue *d, int *times) {
  struct pollfd fd = {.fd = crl_plugin_redis.descriptor(d->handle), .events = POLLIN};
  int done = 0, status = CORRAL_OK;
  for (*times = 0; !done && status == CORRAL_OK; ++*times) {
    if (poll(&fd, 1, LIMIT) != 1) fail_msg("nothing comes");
    status = crl_plugin_redis.finish(d->handle, &done, &d->error);
  }
  return status;
}

static void ended(dialogue *d) {
  crl_plugin_redis.disconnect(d->handle);
  crl_plugin_redis.close(d->store);
  assert_true(fake_server_stop(d->server));
}

static void replies_in_pieces_are_put_together(void **state) {
  (void)state;
  dialogue d;
  int times;
  begun(&d, GREETED ASKED ASKED "SEND $-1\\r\\n:-2\\r\\n\nTRICKLE 400 $-1\\r\\n:-2\\r\\n\n", 2);
  assert_int_equal(heard(&d, &times), CORRAL_OK);
  assert_true(times > 1);
  for (int i = 0; i < 2; i++) assert_int_equal(d.ops[i].status, CORRAL_EMISS);
  ended(&d);
}

static void a_handle_serves_batch_after_batch(void **state) {
  (void)state;
  dialogue d;
  int times;
  begun(&d,
        GREETED ASKED "SEND $-1\\r\\n:-2\\r\\n\n" ASKED ASKED
                      "SEND $-1\\r\\n:-2\\r\\n$-1\\r\\n:-2\\r\\n\n",
        1);
  assert_int_equal(heard(&d, &times), CORRAL_OK);
  d.ops[1] = d.ops[0];
  d.ops[0].status = d.ops[1].status = CORRAL_EINDOUBT;
  d.batch.count = 2;
  assert_int_equal(crl_plugin_redis.begin(d.handle, &d.batch, &d.error), CORRAL_OK);
  assert_int_equal(heard(&d, &times), CORRAL_OK);
  for (int i = 0; i < 2; i++) assert_int_equal(d.ops[i].status, CORRAL_EMISS);
  ended(&d);
}

/* Two looks, answered by `sent`: the status of the handle. */
static int answered(dialogue *d, const char *sent) {
  char script[512];
  int times;
  snprintf(script, sizeof script, GREETED ASKED ASKED "SEND %s\n", sent);
  begun(d, script, 2);
  return heard(d, &times);
}

/* An answer that leaves a doubt tells nothing; the handle goes on. */
static void errors_and_foreign_bytes_leave_the_look_in_doubt(void **state) {
  static const char *const answers[] = {"-LOADING not yet\\r\\n:-2\\r\\n$-1\\r\\n:-2\\r\\n",
                                        "-WRONGTYPE no\\r\\n:100\\r\\n$-1\\r\\n:-2\\r\\n",
                                        "$5\\r\\nhello\\r\\n:-1\\r\\n$-1\\r\\n:-2\\r\\n",
                                        "$0\\r\\n\\r\\n:-1\\r\\n$-1\\r\\n:-2\\r\\n",
                                        "$-1\\r\\n-NOPERM no\\r\\n$-1\\r\\n:-2\\r\\n"};
  (void)state;
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    dialogue d;
    assert_int_equal(answered(&d, answers[i]), CORRAL_OK);
    assert_int_equal(d.ops[0].status, CORRAL_EINDOUBT);
    assert_null(d.ops[0].found.record);
    assert_int_equal(d.ops[1].status, CORRAL_EMISS);
    ended(&d);
  }
}

/* Then no earlier reply of the batch counts either. */
static void nonsense_breaks_the_handle_and_nothing_was_found(void **state) {
  static const char *const answers[] = {"$-1\\r\\n:-2\\r\\nHTTP/1.1 400 Bad Request\\r\\n",
                                        "$-1\\r\\n:-2\\r\\n:5\\r\\n:-2\\r\\n",
                                        "$-1\\r\\n:-2\\r\\n$-1\\r\\n$-1\\r\\n",
                                        "$-1\\r\\n:-2\\r\\n$-1\\r\\n:-2\\r\\n+more\\r\\n",
                                        "$-1\\r\\n:-2\\r\\n*1000000\\r\\n",
                                        "$-1\\r\\n:-2\\r\\n$99999999999\\r\\n\nCLOSE"};
  (void)state;
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    dialogue d;
    if (answered(&d, answers[i]) == CORRAL_OK) fail_msg("taken: %s", answers[i]);
    for (int k = 0; k < 2; k++) {
      assert_int_equal(d.ops[k].status, CORRAL_EINDOUBT);
      assert_null(d.ops[k].found.record);
    }
    ended(&d);
  }
}

static void a_server_that_hangs_up_breaks_the_handle(void **state) {
  (void)state;
  dialogue d;
  int times;
  begun(&d, GREETED ASKED ASKED "SEND $-1\\r\\n:-2\\r\\n$-1\nCLOSE\n", 2);
  assert_int_equal(heard(&d, &times), CORRAL_EUNAVAILABLE);
  assert_int_equal(d.ops[0].status, CORRAL_EINDOUBT);
  ended(&d);
}

static void a_handle_at_rest_notices_what_it_did_not_ask_for(void **state) {
  static const char *const scripts[] = {GREETED ASKED "SEND $-1\\r\\n:-2\\r\\n\nCLOSE\n",
                                        GREETED ASKED
                                        "SEND $-1\\r\\n:-2\\r\\n\nSEND +hello\\r\\n\n"};
  (void)state;
  for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
    dialogue d;
    int times;
    begun(&d, scripts[i], 1);
    int status = heard(&d, &times);
    if (status == CORRAL_OK) status = heard(&d, &times);
    assert_int_not_equal(status, CORRAL_OK);
    ended(&d);
  }
}

static void disconnecting_forgets_a_batch_half_heard(void **state) {
  (void)state;
  dialogue d;
  int done = 0;
  begun(&d, GREETED ASKED ASKED "SEND $-1\\r\\n:-2\\r\\n$3\\r\\nabc\\r\\n\nHANG\n", 2);
  struct pollfd fd = {.fd = crl_plugin_redis.descriptor(d.handle), .events = POLLIN};
  assert_int_equal(poll(&fd, 1, LIMIT), 1);
  assert_int_equal(crl_plugin_redis.finish(d.handle, &done, &d.error), CORRAL_OK);
  assert_int_equal(done, 0);
  ended(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(replies_in_pieces_are_put_together),
      cmocka_unit_test(a_handle_serves_batch_after_batch),
      cmocka_unit_test(errors_and_foreign_bytes_leave_the_look_in_doubt),
      cmocka_unit_test(nonsense_breaks_the_handle_and_nothing_was_found),
      cmocka_unit_test(a_server_that_hangs_up_breaks_the_handle),
      cmocka_unit_test(a_handle_at_rest_notices_what_it_did_not_ask_for),
      cmocka_unit_test(disconnecting_forgets_a_batch_half_heard),
  };
  return cmocka_run_group_tests_name("redis_begin", tests, NULL, NULL);
}
