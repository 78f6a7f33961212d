/* test_redis_tls.c: rediss: on a real server, with certificates made by the openssl command. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/registry.h"
#include "support/redis_server.h"
#include "support/server_process.h"
#include "support/op_kit.h"
#include "store/uri.h"

extern const corral_store crl_plugin_redis, crl_plugin_redis_sentinel;

enum { LIMIT = 20000, LARGE = 3 << 20 };

static redis_server *server;
static char folder[ROOM_PATH];
static int port;
static int64_t limit = LIMIT; /* time limit for connecting, ms */

/* ---- certificates -------------------------------------------------------------------------- */

/* Makes a CA, another CA, and a certificate for localhost and 127.0.0.1. */
static const char make_certificates[] =
    "set -e; cd \"$1\"; exec >log 2>&1\n"
    "for ca in ca other; do\n"
    "  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $ca.key -out "
    "$ca.crt -days 2 "
    "-subj /CN=test-$ca\n"
    "done\n"
    "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out "
    "server.csr -subj /CN=server\n"
    "echo 'subjectAltName=DNS:localhost,DNS:cache.example,IP:127.0.0.1' >server.ext\n"
    "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt "
    "-days 2 -extfile server.ext\n"
    "cat server.key >>server.crt\n";

static int run(const char *script, const char *arg) {
  pid_t pid = fork();
  int status = -1;
  if (pid == 0) {
    execlp("sh", "sh", "-c", script, "sh", arg, (char *)NULL);
    _exit(127);
  }
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int start(void **state) {
  (void)state;
  char text[16], ca[64], crt[64], key[64];
  signal(SIGPIPE, SIG_DFL); /* the default action ends this program */
  room_folder(folder, "tls");
  if (run(make_certificates, folder) != 0) {
    fprintf(stderr, "SKIPPED: the openssl command is missing, or made no certificates\n");
    return 0;
  }
  port = server_process_free_port();
  snprintf(text, sizeof text, "%d", port);
  snprintf(ca, sizeof ca, "%s/ca.crt", folder);
  snprintf(crt, sizeof crt, "%s/server.crt", folder);
  snprintf(key, sizeof key, "%s/server.key", folder);
  const char *const args[] = {"--tls-port",
                              text,
                              "--tls-ca-cert-file",
                              ca,
                              "--tls-cert-file",
                              crt,
                              "--tls-key-file",
                              key,
                              "--tls-auth-clients",
                              "optional",
                              NULL};
  redis_server_start(&server, args);
  return 0;
}

static int stop(void **state) {
  (void)state;
  redis_server_stop(server);
  return run("rm -rf \"$1\"", folder);
}

/* ---- a client ------------------------------------------------------------------------------ */

typedef struct client {
  const corral_host *host;
  void *store, *handle;
  corral_error error;
} client;

/* Opens `begin` and the parameters, each '#' in which is replaced by the folder of the
 * certificates. */
static int try_open_store(client *c, const corral_store *plugin, const char *begin,
                          const char *params) {
  char text[512];
  crl_uri uri;
  corral_store_info info = {.size = sizeof info};
  if (server == NULL) skip();
  memset(c, 0, sizeof *c);
  c->host = crl_registry_host();
  int used = snprintf(text, sizeof text, "%s?", begin);
  for (; *params != '\0'; params++)
    used += *params == '#' ? snprintf(text + used, sizeof text - (size_t)used, "%s", folder)
                           : snprintf(text + used, sizeof text - (size_t)used, "%c", *params);
  if (text[used - 1] == '?') text[used - 1] = '\0';
  assert_int_equal(crl_uri_parse(&uri, text, &c->error), CORRAL_OK);
  int status = plugin->open(c->host, &uri.view, &c->store, &info, &c->error);
  crl_uri_free(&uri);
  if (status != CORRAL_OK) return status;
  return plugin->connect(c->store, c->host->now_ms() + limit, &c->handle, &c->error);
}

static int try_open(client *c, const char *place, int at_port, const char *params) {
  char begin[128];
  snprintf(begin, sizeof begin, "rediss://%s:%d", place, at_port);
  return try_open_store(c, &crl_plugin_redis, begin, params);
}

static client opened(const char *place, const char *params) {
  client c;
  if (try_open(&c, place, port, params) != CORRAL_OK) fail_msg("%s: %s", place, c.error.text);
  return c;
}

static void closed(client *c) {
  if (c->handle != NULL) crl_plugin_redis.disconnect(c->handle);
  if (c->store != NULL) crl_plugin_redis.close(c->store);
}

static int perform(client *c, corral_op *op) {
  op->status = CORRAL_EINDOUBT;
  op->error = &c->error;
  return perform_ops(&crl_plugin_redis, c->handle, op, 1, c->host->now_ms() + LIMIT, &c->error);
}

static corral_op op_of(corral_verb verb) {
  static const uint8_t token[CORRAL_TOKEN] = {1, 2, 3};
  corral_op op = {.verb = (uint32_t)verb, .key = "k", .key_len = 1, .token = token};
  op_lasts(&op, 60000);
  op_keeps(&op, 60000);
  return op;
}

static int does(client *c, corral_verb verb) {
  corral_op op = op_of(verb);
  assert_int_equal(perform(c, &op), CORRAL_OK);
  if (op.found.record != NULL) op.found.drop(op.found.owner);
  return op.status;
}

static void refused(const char *place, const char *params, const char *why) {
  client c;
  if (try_open(&c, place, port, params) != CORRAL_EUNAVAILABLE || strstr(c.error.text, why) == NULL)
    fail_msg("%s?%s: %s", place, params, c.error.text);
  closed(&c);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void a_key_is_claimed_filled_and_read_over_tls(void **state) {
  (void)state;
  client c = opened("localhost", "tls_ca=#/ca.crt");
  uint8_t *record = malloc(LARGE);
  corral_header header = {.stamp = 1, .body = LARGE - CORRAL_HEAD};
  assert_non_null(record);
  memset(record, 0x5a, LARGE);
  c.host->header_write(&header, record);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(does(&c, CORRAL_VERB_INVALIDATE), CORRAL_OK);
    assert_int_equal(does(&c, CORRAL_VERB_CLAIM), CORRAL_OK);
    corral_op op = op_of(CORRAL_VERB_SETTLE);
    op.settle.record = record;
    op.settle.record_len = LARGE;
    assert_int_equal(perform(&c, &op), CORRAL_OK);
    assert_int_equal(op.status, CORRAL_OK);
    op = op_of(CORRAL_VERB_GET);
    assert_int_equal(perform(&c, &op), CORRAL_OK);
    assert_int_equal(op.found.len, LARGE);
    assert_memory_equal(op.found.record + CORRAL_HEAD, record + CORRAL_HEAD, LARGE - CORRAL_HEAD);
    op.found.drop(op.found.owner);
  }
  free(record);
  closed(&c);
}

static void an_address_is_verified_as_an_address(void **state) {
  (void)state;
  client c = opened("127.0.0.1", "tls_ca=#/ca.crt");
  closed(&c);
  refused("127.0.0.1", "tls_ca=#/ca.crt&tls_name=127.0.0.2", "IP address mismatch");
}

static void a_wrong_host_name_is_refused(void **state) {
  (void)state;
  client c = opened("127.0.0.1", "tls_ca=#/ca.crt&tls_name=cache.example");
  closed(&c);
  refused("localhost", "tls_ca=#/ca.crt&tls_name=bank.example", "hostname mismatch");
}

static void an_unknown_ca_is_refused(void **state) {
  (void)state;
  refused("localhost", "tls_ca=#/other.crt", "certificate is refused");
  refused("localhost", "", "certificate is refused");
}

static void verification_ends_only_when_asked_to(void **state) {
  (void)state;
  client c = opened("localhost", "tls_verify=no&tls_name=bank.example");
  closed(&c);
  refused("localhost", "tls_verify=yes", "certificate is refused");
}

static void a_client_certificate_is_shown(void **state) {
  (void)state;
  client c;
  if (server == NULL) skip();
  redis_server_ask(server, "CONFIG SET tls-auth-clients yes");
  assert_int_equal(try_open(&c, "localhost", port, "tls_ca=#/ca.crt"), CORRAL_EUNAVAILABLE);
  closed(&c);
  c = opened("localhost", "tls_ca=#/ca.crt&tls_cert=#/server.crt&tls_key=#/server.key");
  closed(&c);
  c = opened("localhost", "tls_ca=#/ca.crt&tls_cert=#/server.crt");
  closed(&c);
  redis_server_ask(server, "CONFIG SET tls-auth-clients optional");
}

static void a_missing_file_is_named(void **state) {
  (void)state;
  client c;
  assert_int_equal(try_open(&c, "localhost", port, "tls_ca=#/nothing.crt"), CORRAL_EIO);
  assert_non_null(strstr(c.error.text, "nothing.crt"));
  closed(&c);
}

static void a_server_without_tls_is_no_riddle(void **state) {
  (void)state;
  client c;
  if (server == NULL) skip();
  limit = 4000; /* a server without TLS waits for the rest of a command */
  assert_int_equal(try_open(&c, "localhost", redis_server_port(server), "tls_ca=#/ca.crt"),
                   CORRAL_EUNAVAILABLE);
  limit = LIMIT;
  assert_non_null(strstr(c.error.text, "TLS"));
  closed(&c);
}

static void a_killed_server_raises_no_signal(void **state) {
  (void)state;
  client c = opened("localhost", "tls_ca=#/ca.crt");
  redis_server_restart(server);
  for (int i = 0; i < 3; i++) {
    corral_op op = op_of(CORRAL_VERB_CLAIM);
    assert_int_not_equal(perform(&c, &op), CORRAL_OK);
    assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  }
  closed(&c);
}

static void a_stopped_server_is_given_up_at_the_deadline(void **state) {
  (void)state;
  client c = opened("localhost", "tls_ca=#/ca.crt");
  redis_server_pause(server);
  corral_op op = op_of(CORRAL_VERB_CLAIM);
  op.status = CORRAL_EINDOUBT;
  assert_int_not_equal(
      perform_ops(&crl_plugin_redis, c.handle, &op, 1, c.host->now_ms() + 4000, &c.error),
      CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EINDOUBT);
  crl_plugin_redis.disconnect(c.handle);
  c.handle = NULL;
  assert_int_equal(crl_plugin_redis.connect(c.store, c.host->now_ms() + 50, &c.handle, &c.error),
                   CORRAL_EUNAVAILABLE);
  redis_server_resume(server);
  closed(&c);
}

/* Starts a sentinel that speaks TLS at `ret_port`, plainly at the port of its URI, and that names
 * the TLS port of the server. */
static redis_server *start_sentinel(int *ret_port) {
  char config[800];
  redis_server *sentinel;
  *ret_port = server_process_free_port();
  snprintf(config, sizeof config,
           "tls-port %d\ntls-ca-cert-file %s/ca.crt\ntls-cert-file %s/server.crt\n"
           "tls-key-file %s/server.key\ntls-auth-clients no\ntls-replication yes\n"
           "sentinel monitor main 127.0.0.1 %d 1\n",
           *ret_port, folder, folder, folder, port);
  assert_true(redis_server_start_sentinel(&sentinel, config));
  return sentinel;
}

static int try_sentinel(int at_port, const char *params, corral_error *ret_error) {
  client c;
  char begin[80];
  snprintf(begin, sizeof begin, "rediss+sentinel://127.0.0.1:%d/main", at_port);
  int status = try_open_store(&c, &crl_plugin_redis_sentinel, begin, params);
  *ret_error = c.error;
  if (c.handle != NULL) crl_plugin_redis_sentinel.disconnect(c.handle);
  if (c.store != NULL) crl_plugin_redis_sentinel.close(c.store);
  return status;
}

static void sentinels_and_servers_are_verified_each_by_their_own(void **state) {
  (void)state;
  if (server == NULL) skip();
  corral_error error;
  int tls_port;
  redis_server *sentinel = start_sentinel(&tls_port);
  if (try_sentinel(tls_port, "tls_ca=#/ca.crt", &error) != CORRAL_OK) fail_msg("%s", error.text);
  assert_int_equal(try_sentinel(tls_port, "tls_ca=#/ca.crt&sentinel_tls_ca=#/other.crt", &error),
                   CORRAL_EUNAVAILABLE);
  if (strstr(error.text, "sentinel 127.0.0.1") == NULL || strstr(error.text, "verify") == NULL)
    fail_msg("%s", error.text);
  assert_int_equal(try_sentinel(tls_port, "tls_ca=#/other.crt&sentinel_tls_ca=#/ca.crt", &error),
                   CORRAL_EUNAVAILABLE);
  if (strstr(error.text, "redis 127.0.0.1") == NULL || strstr(error.text, "verify") == NULL)
    fail_msg("%s", error.text);
  if (try_sentinel(redis_server_port(sentinel), "tls_ca=#/ca.crt&sentinel_tls=no", &error) !=
      CORRAL_OK)
    fail_msg("%s", error.text);
  redis_server_stop(sentinel);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_key_is_claimed_filled_and_read_over_tls),
      cmocka_unit_test(an_address_is_verified_as_an_address),
      cmocka_unit_test(a_wrong_host_name_is_refused),
      cmocka_unit_test(an_unknown_ca_is_refused),
      cmocka_unit_test(verification_ends_only_when_asked_to),
      cmocka_unit_test(a_client_certificate_is_shown),
      cmocka_unit_test(a_missing_file_is_named),
      cmocka_unit_test(a_server_without_tls_is_no_riddle),
      cmocka_unit_test(a_killed_server_raises_no_signal),
      cmocka_unit_test(sentinels_and_servers_are_verified_each_by_their_own),
      cmocka_unit_test(a_stopped_server_is_given_up_at_the_deadline),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
