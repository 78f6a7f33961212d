/* test_doctor_dialogue.c: corral doctor and servers that say what real ones don't: by scripts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/doctor_kit.h"
#include "support/fake_server.h"

#define TIME "SEND *2\\r\\n$10\\r\\n1000000000\\r\\n$1\\r\\n0\\r\\n\n"
#define ASKED_TIME "EXPECT TIME\\r\\n\n" TIME
#define ROUNDS                                                                                     \
  ASKED_TIME ASKED_TIME ASKED_TIME ASKED_TIME ASKED_TIME ASKED_TIME ASKED_TIME ASKED_TIME ASKED_TIME
#define GREETED "EXPECT TIME\\r\\n\nSEND +OK\\r\\n$0\\r\\n\\r\\n\n" TIME
#define GREETED_AGAIN "EXPECT TIME\\r\\n\nSEND +OK\\r\\n\n" TIME /* INFO is asked for once */
#define INFO "EXPECT INFO\\r\\n\n"
#define HELLO "EXPECT HELLO\\r\\n\n"
#define NO_HELLO HELLO "SEND -ERR unknown command `HELLO`\\r\\n\n"
#define RIGHTS "EXPECT EVALSHA\n"
#define NO_CONFIG "EXPECT CONFIG\nSEND -NOPERM no\\r\\n\n"
#define NO_WATCH                                                                                   \
  "ACCEPT\n" GREETED_AGAIN "EXPECT HELLO\nSEND -ERR unknown command\\r\\n\nACCEPT\n" GREETED_AGAIN \
  "EXPECT ID\nSEND -ERR unknown command\\r\\n\nHANG\n"

static int doctor_of(const char *script) {
  fake_server *server = fake_server_start(script);
  int status = doctor("redis://127.0.0.1:%d", fake_server_port(server));
  if (!fake_server_stop(server)) fail_msg("the dialogue went otherwise: %s", out);
  return status;
}

static void what_a_server_says_is_shown_harmless(void **state) {
  (void)state;
  int status = doctor_of(
      GREETED INFO "SEND $57\\r\\nmaxmemory:1\\r\\nmaxmemory_policy:\\x1b]0;title\\x07 "
                   "\\xff\\r\\nused_memory:\\x1b\\r\\n\n" HELLO
                   "SEND *2\\r\\n$7\\r\\nversion\\r\\n$6\\r\\n7\\x1b[31m\\r\\n\n" ROUNDS RIGHTS
                   "SEND $-1\\r\\n$-1\\r\\n:-2\\r\\n$0\\r\\n\\r\\n:0\\r\\n:0\\r\\n-ERR no such "
                   "key\\r\\n:0\\r\\n-NOPERM no 'time'\\r\\n-ERR unknown "
                   "command\\r\\n:1\\r\\n-NOSCRIPT\\r\\n\n" NO_WATCH);
  assert_int_equal(status, 1);
  tells("version", "7\\x1b[31m");
  tells("maxmemory_policy", "\\x1b]0;title\\x07 \\xff");
  tells("rights", "missing: +time");
  has(": clock_offset_ms -");
  has("warning: redis 127.0.0.1:");
  for (const char *at = out; *at != '\0'; at++)
    if ((*at >= '\0' && *at < ' ' && *at != '\n') || *at == '\177') fail_msg("%d in %s", *at, out);
}

static void a_server_that_is_too_old_is_not_fit(void **state) {
  (void)state;
  int status = doctor_of(
      GREETED INFO "SEND $19\\r\\nredis_version:4.0.9\\r\\n\n" NO_HELLO ROUNDS RIGHTS
                   "SEND $-1\\r\\n$-1\\r\\n:-2\\r\\n$0\\r\\n\\r\\n:0\\r\\n:0\\r\\n-ERR no such "
                   "key\\r\\n-ERR unknown command 'UNLINK'\\r\\n*0\\r\\n-ERR unknown "
                   "command\\r\\n:1\\r\\n-NOSCRIPT\\r\\n\n" NO_WATCH);
  assert_int_equal(status, 1);
  has(": version 4.0.9. Use Redis 5 or later.");
  has(": commands missing: unlink. Use a server that has these commands");
  has(": wake poll: can't tell of changes: it refuses HELLO, and CLIENT ID");
}

static void a_server_that_breaks_off_was_reached(void **state) {
  (void)state;
  assert_int_equal(doctor_of(GREETED INFO "CLOSE\n"), 1);
  has(": answers connection: closed by the server. Look at the server's log");
  assert_int_equal(doctor_of(GREETED INFO "SEND $-1\\r\\n\n" HELLO "SEND *100000\\r\\n\nHANG\n"),
                   1);
  has(": answers the reply is not one of a Redis server: an array longer than any that was asked");
}

static int doctor_of_cache(const char *script) {
  fake_server *server = fake_server_start(script);
  int status = doctor("memcached://127.0.0.1:%d", fake_server_port(server));
  if (!fake_server_stop(server)) fail_msg("the dialogue went otherwise: %s", out);
  return status;
}

#define VERSION "EXPECT version\\r\\n\nSEND VERSION 1.6\\r\\n\n"
#define VERSIONS VERSION VERSION VERSION VERSION VERSION VERSION VERSION VERSION VERSION

static void a_proxy_without_stats_is_no_memcached(void **state) {
  (void)state;
  assert_int_equal(doctor_of_cache(VERSIONS "EXPECT stats\nCLOSE\n"), 1);
  has(": answers connection: closed by the server. Name a memcached server");
  assert_int_equal(doctor_of_cache("EXPECT version\nSEND -ERR\\r\\n\nHANG\n"), 1);
  has(": answers not as memcached answers: is it one?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_server_says_is_shown_harmless),
      cmocka_unit_test(a_server_that_is_too_old_is_not_fit),
      cmocka_unit_test(a_server_that_breaks_off_was_reached),
      cmocka_unit_test(a_proxy_without_stats_is_no_memcached),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
