/* test_fault.c: each store, while every Nth of its writes, reads, descriptors and allocations
 * fails, in turn. Each call returns a known status, the process goes on, nothing leaks (under
 * ASan), stored values stay, and the store works again afterwards. */
#undef _FORTIFY_SOURCE /* its read() and open() would bypass the functions that fail here */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <corral/lock.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "os/env.h"
#include "support/descriptors_kit.h"
#include "support/fault_kit.h"
#include "support/folder_kit.h"
#include "support/http_origin.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"
#if CORRAL_HAVE_postgresql
#include "support/postgresql_server.h"
#endif
#if CORRAL_HAVE_mariadb
#include "support/mariadb_server.h"
#endif
#if CORRAL_HAVE_etcd
#include "support/etcd_server.h"
#endif
#if CORRAL_HAVE_zookeeper
#include "support/zookeeper_server.h"
#include "support/fork_kit.h"
#endif

/* HEAL_MS: longer than LOCK_TTL_MS, for a hold whose taker got no answer. */
enum { MOST = 60, LOCK_TTL_MS = 30000, HEAL_MS = 60000, SIZE = 3000, STATUSES = 27 };

static const char *const kind_names[FAULT_KINDS] = {
    "",       "ENOSPC", "EIO of writes",          "short writes", "EIO of reads",
    "EMFILE", "ENOMEM", "ENOMEM of our own calls"};

/* The store under test. */
typedef struct place {
  const char *uri;
  const char *origin; /* NULL: the test's own compute is used */
  int locks_only;
  /* the client library crashes without memory; the reason is given at each test that sets this */
  int fragile;
} place;

static const place *at;
static char label[160]; /* name of the current round, for messages */

/* ---- calls --------------------------------------------------------------------------------- */

static int is_status(int status) { return status <= 0 && status >= -STATUSES; }

static void must_be_status(int status) {
  if (!is_status(status)) fail_msg("%s: %d is no status", label, status);
}

static corral_options *options(void) {
  static corral_options room;
  room = *CORRAL_OPTIONS(.store = at->uri, .origin = at->origin, .op_ms = 2000,
                         .breaker_failures = 1000, .breaker_rest_ms = 1);
  return &room;
}

/* Opens a corral while no fault is armed. */
static corral *opened(void) {
  corral *c = NULL;
  corral_error error = {0};
  if (corral_open(options(), &c, &error) != CORRAL_OK) fail_msg("%s: %s", label, error.text);
  return c;
}

static int give(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  void *body = corral_fill_reserve(fill, SIZE);
  (void)key, (void)key_len, (void)arg;
  if (body == NULL) return CORRAL_ENOMEM;
  memset(body, 'c', SIZE);
  return CORRAL_OK;
}

static const char *filled(char with) {
  static char body[SIZE];
  memset(body, with, sizeof body);
  return body;
}

/* The byte that fills a value; '?' for a cut or mixed value. */
static char byte_of(corral_value *value) {
  const char *bytes = corral_value_data(value);
  size_t size = corral_value_size(value);
  char first = size == SIZE ? bytes[0] : '?';
  for (size_t i = 0; i < size; i++)
    if (bytes[i] != first) first = '?';
  corral_value_unref(value);
  return first;
}

static char seen(corral *c, const char *key) {
  corral_value *value = NULL;
  int status = corral_get(c, key, strlen(key), NULL, &value);
  must_be_status(status);
  return status == CORRAL_OK ? byte_of(value) : ' ';
}

static int computed(corral *c, const char *key, char expected) {
  corral_value *value = NULL;
  corral_compute *compute = at->origin == NULL ? give : NULL;
  int status = compute == NULL
                   ? corral_get(c, key, strlen(key), NULL, &value)
                   : corral_get_or_compute(c, key, strlen(key), NULL, compute, NULL, &value);
  must_be_status(status);
  if (status != CORRAL_OK) return status;
  char byte = byte_of(value);
  if (byte != expected) fail_msg("%s: %s: %c", label, key, byte);
  return CORRAL_OK;
}

static int set(corral *c, const char *key, char with) {
  corral_error error = {0};
  int status = corral_set(c, key, strlen(key),
                          CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 60000), .error = &error),
                          filled(with), SIZE);
  must_be_status(status);
  return status;
}

static int lock_once(corral *c, const char *name) {
  corral_lock *lock = NULL;
  int status =
      corral_lock_take(c, name, strlen(name),
                       CORRAL_LOCK(.ttl_ms = LOCK_TTL_MS, .wait_ms = CORRAL_OFF), &lock, NULL);
  must_be_status(status);
  if (status != CORRAL_OK) return status;
  must_be_status(corral_lock_left_ms(lock) > 0 ? CORRAL_OK : CORRAL_ELOST);
  must_be_status(corral_lock_release(lock, NULL));
  return CORRAL_OK;
}

static void numbered(char room[32], const char *stem, unsigned round) {
  snprintf(room, 32, "%s%u", stem, round);
}

/* A mixture of all calls. */
static void tour(corral *c, unsigned round) {
  char key[32];
  corral_error error = {0};
  corral_inspection inspection = {.size = sizeof inspection};
  numbered(key, "lock", round);
  (void)lock_once(c, key);
  if (at->locks_only) return;
  char kept = at->origin == NULL ? seen(c, "kept") : 'o';
  if (kept != ' ' && kept != 'o') fail_msg("%s: kept: %c", label, kept);
  numbered(key, "cold", round);
  (void)computed(c, key, 'c');
  if (at->origin != NULL) return;
  (void)set(c, "swap", 'n');
  must_be_status(corral_expire(c, key, strlen(key), CORRAL_CALL(.error = &error)));
  (void)computed(c, key, 'c');
  must_be_status(corral_inspect(c, key, strlen(key), CORRAL_CALL(.error = &error), &inspection));
  must_be_status(corral_invalidate(c, key, strlen(key), CORRAL_CALL(.error = &error)));
}

/* ---- rounds -------------------------------------------------------------------------------- */

static void prepare(void) {
  if (at->locks_only || at->origin != NULL) return;
  corral *c = opened();
  for (int i = 0; i < 2; i++) {
    const char *key = i == 0 ? "kept" : "swap";
    int status = set(c, key, 'o');
    if (status != CORRAL_OK || seen(c, key) != 'o')
      fail_msg("%s: preparing %s: %s", label, key, corral_status_name(status));
  }
  corral_close(c);
}

static int works(corral *c, unsigned round) {
  char key[32];
  numbered(key, "after", round);
  int status = lock_once(c, key);
  if (status != CORRAL_OK || at->locks_only) return status;
  status = computed(c, key, 'c');
  return status == CORRAL_OK && seen(c, key) != 'c' ? CORRAL_EMISS : status;
}

static void must_heal(corral *c, unsigned round) {
  int64_t end = crl_env_now_ms() + HEAL_MS;
  for (int status; (status = works(c, round)) != CORRAL_OK; crl_env_pause_us(1000))
    if (crl_env_now_ms() > end)
      fail_msg("%s: the store doesn't work again: %s", label, corral_status_name(status));
}

/* "kept" has its old value; "swap" has its old value, its new one, or none, but never a mixture. */
static void must_be_kept(void) {
  if (at->locks_only || at->origin != NULL) return;
  corral *c = opened();
  char kept = seen(c, "kept"), swap = seen(c, "swap");
  if (kept != 'o') fail_msg("%s: what was stored: %c", label, kept);
  if (swap != 'o' && swap != 'n' && swap != ' ')
    fail_msg("%s: what was being stored: %c", label, swap);
  corral_close(c);
}

static void round_with(fault_kind kind, int64_t countdown, unsigned round) {
  corral *c = NULL;
  corral_error error = {0};
  snprintf(label, sizeof label, "%.80s: %s number %lld", at->uri, kind_names[kind],
           (long long)countdown);
  prepare();
  fault_arm(kind, countdown, 1);
  int status = corral_open(options(), &c, &error);
  must_be_status(status);
  if (status == CORRAL_OK) tour(c, round);
  fault_disarm();
  if (countdown == FAULT_NEVER && status != CORRAL_OK) fail_msg("%s: %s", label, error.text);
  if (status == CORRAL_OK) must_heal(c, round);
  corral_close(c);
  must_be_kept();
}

static unsigned rounds;

static void fail_each(fault_kind kind) {
  round_with(kind, FAULT_NEVER, rounds++);
  int64_t count = fault_count(), step = count / MOST + 1;
  for (int64_t i = 0; i < count; i += step) round_with(kind, i, rounds++);
  printf("%-28s %s: %lld of %lld calls failed\n", at->uri, kind_names[kind],
         (long long)((count + step - 1) / step), (long long)count);
}

static void fail_all(const place *p) {
  at = p;
  round_with(FAULT_FULL, FAULT_NEVER,
             rounds++); /* the client libraries keep some descriptors open */
  int before = open_descriptors();
  for (fault_kind kind = FAULT_FULL; kind < FAULT_MEMORY; kind++) fail_each(kind);
  fail_each(p->fragile ? FAULT_OWN_MEMORY : FAULT_MEMORY);
  assert_int_equal(open_descriptors(), before);
}

/* ---- stores -------------------------------------------------------------------------------- */

static void skipped(const char *name, const char *why) {
  print_message("SKIPPED: %s: %s\n", name, why);
  skip();
}

static void memory_survives_every_fault(void **state) {
  (void)state;
  place p = {.uri = "memory:faults"};
  at = &p;
  corral *anchor = opened(); /* the store's data lives as long as a corral has it open */
  assert_int_equal(set(anchor, "anchor", 'a'), CORRAL_OK);
  fail_all(&p);
  corral_close(anchor);
}

static void lmdb_survives_every_fault(void **state) {
  (void)state;
  char uri[128];
  snprintf(uri, sizeof uri, "lmdb:%s/faults", folder);
  fail_all(&(place){.uri = uri});
}

#if CORRAL_HAVE_sqlite
static void sqlite_survives_every_fault(void **state) {
  (void)state;
  char uri[128];
  snprintf(uri, sizeof uri, "sqlite:%s/faults.db", folder);
  fail_all(&(place){.uri = uri, .locks_only = 1});
}
#endif

/* fragile: of 29 failing allocations in the reader and formatter of hiredis 0.14, three crash
 * it. */
static void redis_survives_every_fault(void **state) {
  redis_server *server = NULL;
  (void)state;
  if (!redis_server_start(&server, NULL)) skipped(__func__, "there is no redis-server");
  fail_all(&(place){.uri = redis_server_uri(server), .fragile = 1});
  redis_server_stop(server);
}

static void redlock_survives_every_fault(void **state) {
  redis_server *servers[3] = {NULL};
  char uri[160];
  (void)state;
  for (size_t i = 0; i < 3; i++)
    if (!redis_server_start(&servers[i], NULL)) skipped(__func__, "there is no redis-server");
  snprintf(uri, sizeof uri, "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
           redis_server_port(servers[0]), redis_server_port(servers[1]),
           redis_server_port(servers[2]));
  fail_all(&(place){.uri = uri, .locks_only = 1, .fragile = 1});
  for (size_t i = 0; i < 3; i++) redis_server_stop(servers[i]);
}

/* fragile: libmemcached asserts, and uses memory that it couldn't allocate. */
static void memcached_survives_every_fault(void **state) {
  memcached_server *server = NULL;
  (void)state;
  if (!memcached_server_start(&server, NULL)) skipped(__func__, "there is no memcached");
  fail_all(&(place){.uri = memcached_server_uri(server), .fragile = 1});
  memcached_server_stop(server);
}

#if CORRAL_HAVE_postgresql
static void postgresql_survives_every_fault(void **state) {
  postgresql_server *server = NULL;
  (void)state;
  if (!postgresql_server_start(&server, NULL)) skipped(__func__, "there is no PostgreSQL");
  fail_all(&(place){.uri = postgresql_server_uri(server, ""), .locks_only = 1});
  postgresql_server_stop(server);
}
#endif

/* fragile: libmariadb reads a server version that it couldn't copy, and leaves its coroutine half
 * done. */
#if CORRAL_HAVE_mariadb
static void mariadb_survives_every_fault(void **state) {
  mariadb_server *server = NULL;
  (void)state;
  if (!mariadb_server_start(&server)) skipped(__func__, "there is no MariaDB");
  fail_all(&(place){.uri = mariadb_server_uri(server), .locks_only = 1, .fragile = 1});
  mariadb_server_stop(server);
}
#endif

#if CORRAL_HAVE_etcd
static void etcd_survives_every_fault(void **state) {
  etcd_server *server = NULL;
  (void)state;
  if (!etcd_server_start(&server, NULL)) skipped(__func__, "there is no etcd");
  fail_all(&(place){.uri = etcd_server_uri(server), .locks_only = 1});
  etcd_server_stop(server);
}
#endif

/* fragile: libzookeeper writes to memory that it couldn't allocate. */
#if CORRAL_HAVE_zookeeper
static void zookeeper_survives_every_fault(void **state) {
  zookeeper_server *server = NULL;
  char uri[80];
  (void)state;
  if (!zookeeper_server_start(&server, NULL)) skipped(__func__, "there is no ZooKeeper");
  snprintf(uri, sizeof uri, "zookeeper://127.0.0.1:%d", zookeeper_server_port(server));
  fail_all(&(place){.uri = uri, .locks_only = 1, .fragile = 1});
  zookeeper_server_stop(server);
}
#endif

/* Runs the origin in another process, so that its calls don't fail. */
#if CORRAL_HAVE_http
static pid_t start_origin(char url[80]) {
  int say[2];
  assert_int_equal(pipe(say), 0);
  pid_t pid = fork_at_rest();
  assert_true(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    http_origin *origin = http_origin_start();
    http_origin_answer(
        origin, "*",
        HTTP_ANSWER(.headers = "Cache-Control: max-age=60\r\n", .body = "c", .repeat = SIZE));
    const char *text = http_origin_url(origin);
    if (write(say[1], text, strlen(text) + 1) < 0) _exit(1);
    for (;;) pause();
  }
  close(say[1]);
  assert_true(read(say[0], url, 80) > 0);
  close(say[0]);
  return pid;
}

static void an_http_origin_survives_every_fault(void **state) {
  char url[80], pages[96];
  (void)state;
  pid_t pid = start_origin(url);
  snprintf(pages, sizeof pages, "%s/{key}", url);
  fail_all(&(place){.uri = "memory:", .origin = pages});
  assert_int_equal(kill(pid, SIGKILL), 0);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
#if CORRAL_HAVE_http
    cmocka_unit_test(an_http_origin_survives_every_fault),
#endif
    cmocka_unit_test(memory_survives_every_fault),
    cmocka_unit_test(lmdb_survives_every_fault),
#if CORRAL_HAVE_sqlite
    cmocka_unit_test(sqlite_survives_every_fault),
#endif
    cmocka_unit_test(redis_survives_every_fault),
    cmocka_unit_test(redlock_survives_every_fault),
    cmocka_unit_test(memcached_survives_every_fault),
#if CORRAL_HAVE_postgresql
    cmocka_unit_test(postgresql_survives_every_fault),
#endif
#if CORRAL_HAVE_mariadb
    cmocka_unit_test(mariadb_survives_every_fault),
#endif
#if CORRAL_HAVE_etcd
    cmocka_unit_test(etcd_survives_every_fault),
#endif
#if CORRAL_HAVE_zookeeper
    cmocka_unit_test(zookeeper_survives_every_fault),
#endif
  };
  /* part of a test's name; runs only the matching tests */
  const char *only = getenv("CORRAL_FAULT");
  if (only != NULL) cmocka_set_test_filter(only);
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
