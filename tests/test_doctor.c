/* test_doctor.c: corral doctor on real servers of Redis and memcached, and on files: what is fit,
 * what isn't, and why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../plugins/lmdb/lmdb.h"
#include "support/doctor_kit.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"
#include "support/room.h"

static redis_server *server;

static int start(void **state) {
  (void)state;
  const char *const args[] = {"--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru", NULL};
  if (!redis_server_start(&server, args)) skip();
  return 0;
}

static int stop(void **state) {
  (void)state;
  redis_server_stop(server);
  server = NULL;
  return 0;
}

static const char *uri(void) { return redis_server_uri(server); }

/* ---- redis --------------------------------------------------------------------------------- */

static void a_redis_that_evicts_is_fit(void **state) {
  (void)state;
  assert_int_equal(doctor("%s", uri()), 0);
  tells("role", "primary");
  tells("rights", "all");
  tells("wake", "push");
  tells("maxmemory", "67108864");
  tells("maxmemory_policy", "allkeys-lru");
  tells("appendonly", "no");
  tells("replicas", "0");
  has(": fit\n");
  lacks("warning");
}

static void the_same_by_a_socket(void **state) {
  (void)state;
  assert_int_equal(doctor("%s?db=3", redis_server_unix_uri(server)), 0);
  has("redis /");
  tells("rights", "all");
}

static void nothing_is_written(void **state) {
  (void)state;
  char before[64];
  redis_server_ask(server, "SET mine value");
  long long changes = redis_server_info(server, "rdb_changes_since_last_save");
  (void)snprintf(before, sizeof before, "%s", redis_server_ask(server, "DBSIZE"));
  assert_int_equal(doctor("%s", uri()), 0);
  assert_int_equal(corral_run("doctor --locks '%s'", uri()), 1);
  assert_int_equal(corral_run("doctor --locks '%s?scripts=no'", uri()), 1);
  assert_int_equal(redis_server_info(server, "rdb_changes_since_last_save"), changes);
  assert_string_equal(redis_server_ask(server, "DBSIZE"), before);
}

static void a_redis_that_refuses_when_full_is_fit_for_locks_alone(void **state) {
  (void)state;
  assert_int_equal(corral_run("doctor --locks '%s'", uri()), 1);
  has(": maxmemory_policy allkeys-lru. Set maxmemory-policy noeviction, or give locks a server");
  redis_server_ask(server, "CONFIG SET maxmemory-policy noeviction");
  assert_int_equal(doctor("%s", uri()), 1);
  has("\nnot fit: redis 127.0.0.1:");
  has(": maxmemory_policy noeviction. Set maxmemory-policy allkeys-lru: ");
  has(": not fit\n");
  assert_int_equal(corral_run("doctor --locks '%s'", uri()), 0);
  has(": fit for locks");
}

static void memory_without_a_limit_is_a_warning(void **state) {
  (void)state;
  redis_server_ask(server, "CONFIG SET maxmemory 0");
  assert_int_equal(doctor("%s", uri()), 0);
  has("\nwarning: redis 127.0.0.1:");
  has(": maxmemory 0. Set maxmemory below");
  has(": fit, 1 warning\n");
}

/* "redis://NAME:secret@127.0.0.1:PORT" */
static const char *uri_of(const char *name) {
  static char text[128];
  (void)snprintf(text, sizeof text, "redis://%s:secret@127.0.0.1:%d", name,
                 redis_server_port(server));
  return text;
}

static void rights_that_are_missing_come_with_the_command_that_gives_them(void **state) {
  (void)state;
  redis_server_ask(server,
                   "ACL SETUSER poor on >secret ~* &* +@all -getrange -evalsha -client|tracking");
  assert_int_equal(doctor("%s", uri_of("poor")), 1);
  tells("rights", "missing: +getrange +evalsha");
  has(". ACL SETUSER poor +getrange +evalsha.\n");
  has("  wake                   poll: can't tell of changes: it refuses CLIENT TRACKING: NOPERM");
  has(". ACL SETUSER poor +client|tracking: now waiters poll.\n");
  lacks("secret");
  redis_server_ask(server, "ACL SETUSER poor +getrange +evalsha +client|tracking");
  assert_int_equal(doctor("%s", uri_of("poor")), 0);
  tells("rights", "all");
  tells("wake", "push");
}

static void a_user_whom_redis_7_tells_the_time_by_keys_is_fit(void **state) {
  (void)state;
  redis_server_ask(server, "ACL SETUSER odd on >secret ~* &* +@all -time");
  assert_int_equal(doctor("%s", uri_of("odd")), 0);
  tells("rights", "all");
  tells("time", "refused");
  has(". ACL SETUSER odd +time: now each look asks for the TTL, too.\n");
  redis_server_ask(server, "ACL SETUSER odd -pexpiretime");
  assert_int_equal(doctor("%s", uri_of("odd")), 1);
  tells("rights", "missing: +time");
}

static void without_resp3_waiters_are_woken_by_a_second_connection(void **state) {
  (void)state;
  redis_server *old;
  assert_int_equal(
      redis_server_start(&old, (const char *[]){"--rename-command", "HELLO", "", NULL}), 1);
  assert_int_equal(doctor("%s", redis_server_uri(old)), 0);
  tells("wake", "redirect");
  redis_server_stop(old);
}

/* The list of docs/stores.md. */
static void a_user_with_the_rights_that_the_manual_names_is_fit(void **state) {
  (void)state;
  redis_server_ask(server, "ACL SETUSER least on >secret ~* +get +set +pttl +getrange +setrange "
                           "+pexpire +rename +unlink +time +eval +evalsha +client|tracking");
  assert_int_equal(doctor("%s", uri_of("least")), 0);
  tells("rights", "all");
  tells("role", "primary");
  tells("info", "refused");
  has("warning: redis 127.0.0.1:");
  redis_server_ask(server, "ACL SETUSER locker on >secret ~* +get +set +pttl +pexpire +time +watch "
                           "+unwatch +multi +exec +discard");
  assert_int_equal(corral_run("doctor --locks '%s?scripts=no'", uri_of("locker")), 0);
  tells("rights", "all");
  assert_int_equal(corral_run("doctor --locks '%s?scripts=no&wait_replicas=1'", uri_of("locker")),
                   1);
  tells("rights", "missing: +wait");
  assert_int_equal(corral_run("doctor --locks '%s'", uri_of("locker")), 1);
  tells("rights", "missing: +eval +evalsha");
}

static void patterns_of_keys_are_rights_too(void **state) {
  (void)state;
  redis_server_ask(server, "ACL SETUSER narrow on >secret ~users:* &* +@all");
  assert_int_equal(corral_run("--namespace users doctor '%s'", uri_of("narrow")), 0);
  tells("rights", "all");
  assert_int_equal(corral_run("--namespace pages doctor '%s'", uri_of("narrow")), 1);
  tells("rights", "missing: keys of this namespace");
  has("ACL SETUSER narrow ~PATTERN..., with the patterns of the namespace (docs/keys.md).");
}

/* ---- replicas ------------------------------------------------------------------------------ */

static void a_replica_without_min_replicas_is_a_warning(void **state) {
  (void)state;
  redis_server *replica;
  char port[16], confirmed[120];
  (void)snprintf(port, sizeof port, "%d", redis_server_port(server));
  assert_int_equal(
      redis_server_start(&replica, (const char *[]){"--replicaof", "127.0.0.1", port, NULL}), 1);
  await_doctor(uri(), 0, "  replica_lag_s          0\n");
  tells("replicas", "1");
  has(": min_replicas_to_write 0. Set min-replicas-to-write 1: ");
  has(": appendonly no. Set appendonly yes: a primary that comes back empty");
  redis_server_ask(server, "CONFIG SET min-replicas-to-write 1");
  (void)snprintf(confirmed, sizeof confirmed, "%s?confirm_replicas=1", uri());
  await_doctor(confirmed, 0, ": fit");
  lacks(": min_replicas_to_write");
  assert_int_equal(doctor("%s?confirm_replicas=2", uri()), 1);
  has("not fit: ");
  has(": replicas 1. Attach replicas, or lower confirm_replicas");
  assert_int_equal(doctor("%s", redis_server_uri(replica)), 1);
  has(": role replica. Write redis://127.0.0.1:");
  redis_server_stop(replica);
}

/* ---- what can't be reached ------------------------------------------------------------------ */

static void a_server_that_is_down_is_no_finding_but_a_failure(void **state) {
  (void)state;
  redis_server_kill(server);
  assert_int_equal(doctor("%s", uri()), 125);
  assert_int_equal(strncmp(out, "corral: doctor: redis 127.0.0.1:", 32), 0);
  has("Connection refused");
  assert_int_equal(count_of("\n"), 1);
  assert_int_equal(corral_run("--json doctor '%s'", uri()), 125);
  has("\"exit_status\":125}");
  redis_server_restart(server);
  assert_int_equal(doctor("%s", uri_of("nobody")), 125);
  lacks("secret");
}

static void a_wrong_use_says_what_is_accepted(void **state) {
  (void)state;
  assert_int_equal(corral_run("doctor --locks"), 125);
  has("doctor: --locks is about a store: its URI is missing");
  assert_int_equal(corral_run("doctor memory: redis://:hidden@other"), 125);
  has("doctor: 'redis://:***@other' is one argument too many");
  assert_int_equal(corral_run("doctor nothing:"), 125);
  has("no store plugin for 'nothing:'");
  assert_int_equal(corral_run("doctor 'redis://host?no_such=1'"), 125);
  assert_int_equal(corral_run("doctor --lock memory:"), 0);
  assert_int_equal(corral_run("doctor --values memory:"), 125);
}

/* ---- memcached ----------------------------------------------------------------------------- */

static memcached_server *cache;

static int cached(const char *const *args) {
  memcached_server_stop(cache);
  cache = NULL;
  if (!memcached_server_start(&cache, args)) skip();
  return doctor("%s", memcached_server_uri(cache));
}

static int stop_cache(void **state) {
  (void)state;
  memcached_server_stop(cache);
  cache = NULL;
  return 0;
}

static void memcached_as_it_comes_is_fit(void **state) {
  (void)state;
  assert_int_equal(cached(NULL), 0);
  tells("cas", "yes");
  tells("item_size_max", "1048576");
  tells("memory_limit", "67108864");
  tells("evicts", "on");
  has(": fit\n");
  assert_int_equal(memcached_server_stat(cache, "cmd_set"), 0);
  assert_int_equal(memcached_server_stat(cache, "cmd_get"), 1); /* for an operator's order */
}

static void memcached_is_unfit_by_its_settings(void **state) {
  (void)state;
  assert_int_equal(cached((const char *[]){"-I", "512k", NULL}), 1);
  has(": item_size_max 524288. Start it with a larger -I, or write max_item= in the URI");
  assert_int_equal(doctor("%s?max_item=512k", memcached_server_uri(cache)), 0);
  assert_int_equal(cached((const char *[]){"-C", NULL}), 1);
  has(": cas no. Start it without -C");
  assert_int_equal(cached((const char *[]){"-M", NULL}), 1);
  has(": evicts off. Start it without -M");
  assert_int_equal(corral_run("doctor --locks '%s'", memcached_server_uri(cache)), 0);
}

static void one_of_two_servers_that_is_down_is_named(void **state) {
  (void)state;
  (void)cached(NULL);
  assert_int_equal(doctor("%s,127.0.0.1:1", memcached_server_uri(cache)), 1);
  has("not fit: memcached 127.0.0.1:1: reached no: can't connect: Connection refused. Start it");
  tells("cas", "yes");
  assert_int_equal(doctor("%s", "memcached://127.0.0.1:1,127.0.0.1:2"), 125);
}

/* ---- files and memory ---------------------------------------------------------------------- */

static void a_file_that_is_not_there_is_not_made(void **state) {
  (void)state;
  char path[ROOM_PATH + 8], folder[ROOM_PATH];
  (void)snprintf(folder, sizeof folder, "%sdoctor", room_on_disk());
  (void)snprintf(path, sizeof path, "%s/store", folder);
  assert_int_equal(doctor("lmdb:%s", path), 0);
  tells("file", "absent");
  assert_int_not_equal(access(folder, F_OK), 0);
  assert_int_equal(corral_run("--store 'lmdb:%s' set k v", path), 0);
  assert_int_equal(doctor("lmdb:%s", path), 0);
  tells("file", "there");
  tells("mode", "600");
  tells("size", "268435456");
  tells("wake", "push");
  assert_int_equal(corral_run("--store 'lmdb:%s' get k", path), 0);
  assert_string_equal(out, "v");
}

static void a_folder_where_others_may_rename_is_not_fit(void **state) {
  (void)state;
  char folder[ROOM_PATH];
  (void)snprintf(folder, sizeof folder, "%sopen", room_on_disk());
  assert_int_equal(mkdir(folder, 0700), 0);
  assert_int_equal(chmod(folder, 0777), 0);
  assert_int_equal(doctor("lmdb:%s/store", folder), 1);
  has("Choose a folder that nobody else may write, or say shared=yes in the URI");
  assert_int_equal(doctor("lmdb:%s/store?shared=yes", folder), 0);
  assert_int_equal(doctor("lmdb:%s/sub/store", folder), 0);
}

static void no_text_is_told_that_a_terminal_obeys(void **state) {
  (void)state;
  assert_int_equal(doctor("lmdb:%sdoctor/red\033[31m", room_on_disk()), 0);
  lacks("\033");
  has("red\\x1b[31m: fit\n");
}

static void a_network_file_system_is_known(void **state) {
  (void)state;
  int is_network;
  assert_string_equal(crl_lmdb_file_system(0x6969, &is_network), "nfs");
  assert_true(is_network);
  assert_string_equal(crl_lmdb_file_system(UINT64_MAX << 32 | 0xff534d42, &is_network), "cifs");
  assert_true(is_network);
  assert_string_equal(crl_lmdb_file_system(0xef53, &is_network), "ext");
  assert_false(is_network);
  assert_null(crl_lmdb_file_system(1, &is_network));
  assert_false(is_network);
}

static void memory_is_of_this_process(void **state) {
  (void)state;
  assert_int_equal(corral_run("doctor memory:"), 0);
  tells("shared_by", "this process");
  assert_int_equal(corral_run("-q doctor memory:"), 0);
  assert_string_equal(out, "memory:: fit\n");
}

#define OF_REDIS(test) cmocka_unit_test_setup_teardown(test, start, stop)
#define OF_MEMCACHED(test) cmocka_unit_test_teardown(test, stop_cache)

int main(void) {
  const struct CMUnitTest tests[] = {
      OF_REDIS(a_redis_that_evicts_is_fit),
      OF_REDIS(the_same_by_a_socket),
      OF_REDIS(nothing_is_written),
      OF_REDIS(a_redis_that_refuses_when_full_is_fit_for_locks_alone),
      OF_REDIS(memory_without_a_limit_is_a_warning),
      OF_REDIS(rights_that_are_missing_come_with_the_command_that_gives_them),
      OF_REDIS(a_user_whom_redis_7_tells_the_time_by_keys_is_fit),
      OF_REDIS(without_resp3_waiters_are_woken_by_a_second_connection),
      OF_REDIS(a_user_with_the_rights_that_the_manual_names_is_fit),
      OF_REDIS(patterns_of_keys_are_rights_too),
      OF_REDIS(a_replica_without_min_replicas_is_a_warning),
      OF_REDIS(a_server_that_is_down_is_no_finding_but_a_failure),
      cmocka_unit_test(a_wrong_use_says_what_is_accepted),
      OF_MEMCACHED(memcached_as_it_comes_is_fit),
      OF_MEMCACHED(memcached_is_unfit_by_its_settings),
      OF_MEMCACHED(one_of_two_servers_that_is_down_is_named),
      cmocka_unit_test(a_file_that_is_not_there_is_not_made),
      cmocka_unit_test(a_folder_where_others_may_rename_is_not_fit),
      cmocka_unit_test(no_text_is_told_that_a_terminal_obeys),
      cmocka_unit_test(a_network_file_system_is_known),
      cmocka_unit_test(memory_is_of_this_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
