/* test_redis_rights.c: servers that lack something: users with few rights, a proxy that hangs up on
 * what it doesn't know, primaries that go on without their replicas. What can be had is served, and
 * what can't be is said once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral/lock.h>
#include <pthread.h>

#include "support/herd_lab.h"
#include "support/redis_server.h"
#include "support/twemproxy.h"

enum { LIMIT_US = 20000000, LIFE_MS = 600000, LARGE = 300000 };
enum { OP_MS = 5000 }; /* on a busy machine as much is stored */

static redis_server *redis;

/* ---- a corral that notes what it is told ---------------------------------------------------- */

typedef struct notes {
  char warning[4][240], watch[4][240];
  _Atomic int warnings, watches;
} notes;

static void note(char room[4][240], _Atomic int *count, const char *detail) {
  snprintf(room[atomic_load(count) % 4], 240, "%s", detail);
  atomic_fetch_add(count, 1);
}

static void on_event(const corral_event_info *info, void *arg) {
  notes *n = arg;
  if (info->event == CORRAL_EVENT_WARNING) note(n->warning, &n->warnings, info->detail);
  if (info->event == CORRAL_EVENT_WATCH) note(n->watch, &n->watches, info->detail);
}

static corral *opened(const char *uri, notes *n) {
  corral *c = NULL;
  corral_error error = {0};
  memset(n, 0, sizeof *n);
  if (corral_open(CORRAL_OPTIONS(.store = uri, .host_lock = CORRAL_OFF, .op_ms = OP_MS,
                                 .on_event = on_event, .event_arg = n),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static _Atomic int computes;

static int compute(corral_fill *fill, const void *key, size_t len, void *size) {
  atomic_fetch_add(&computes, 1);
  if (size == NULL) return corral_fill_bytes(fill, key, len);
  void *room = corral_fill_reserve(fill, *(size_t *)size);
  assert_non_null(room);
  memset(room, 'x', *(size_t *)size);
  return CORRAL_OK;
}

/* Gets or computes a value of `size` bytes, NULL: that of its key. */
static corral_how gets(corral *c, const char *key, size_t *size) {
  corral_value *value = NULL;
  corral_error error = {0};
  corral_policy policy = *CORRAL_POLICY(.ttl_ms = LIFE_MS, .sie_ms = LIFE_MS, .wait_ms = 20000);
  if (corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.policy = &policy, .error = &error),
                            compute, size, &value) != CORRAL_OK)
    fail_msg("%s: %s", key, error.text);
  corral_how how = corral_value_how(value);
  assert_int_equal(corral_value_size(value), size == NULL ? strlen(key) : *size);
  if (how == CORRAL_COMPUTED) assert_int_equal(corral_value_kept(value), CORRAL_KEPT);
  corral_value_unref(value);
  return how;
}

static int invalidates(corral *c, const char *key) {
  return corral_invalidate(c, key, strlen(key), NULL);
}

/* Every change of a value's life. */
static void values_are_served(corral *c) {
  size_t large = LARGE;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(gets(c, "k", NULL), CORRAL_COMPUTED);
    assert_int_equal(gets(c, "k", NULL), CORRAL_FRESH);
    assert_int_equal(gets(c, "large", &large), CORRAL_COMPUTED);
    assert_int_equal(gets(c, "large", &large), CORRAL_FRESH);
    assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
    assert_int_equal(gets(c, "k", NULL), CORRAL_COMPUTED);
    assert_int_equal(gets(c, "k", NULL), CORRAL_FRESH);
    assert_int_equal(invalidates(c, "k"), CORRAL_OK);
    assert_int_equal(invalidates(c, "large"), CORRAL_OK);
  }
}

static void a_lock_is_held_and_shown(corral *c) {
  corral_lock *lock = NULL;
  corral_error error = {0};
  corral_lock_holder holders[2];
  size_t count = 0;
  if (corral_lock_take(c, "lock", 4, NULL, &lock, &error) != CORRAL_OK) fail_msg("%s", error.text);
  if (corral_lock_show(c, "lock", 4, holders, 2, &count, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  assert_int_equal(count, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

/* All connections of corral to the server are new ones. */
static void hang_up(void) {
  char *list = strdup(redis_server_ask(redis, "CLIENT LIST")), *rest = NULL;
  for (char *line = strtok_r(list, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (strstr(line, " name=corral ") != NULL)
      redis_server_ask(redis, "CLIENT KILL ID %lld", strtoll(line + 3, NULL, 10));
  free(list);
}

static const char *uri_of(const char *user) {
  static char uri[120];
  snprintf(uri, sizeof uri, "redis://%s:x@127.0.0.1:%d", user, redis_server_port(redis));
  return uri;
}

static int start(void **state) {
  lab_make_room(state);
  atomic_store(&computes, 0);
  return redis_server_start(&redis, NULL) ? 0 : -1;
}

static int stop(void **state) {
  redis_server_stop(redis);
  redis = NULL;
  return lab_leave_room(state);
}

/* ---- replicas ------------------------------------------------------------------------------ */

static void await(const char *wanted) {
  int64_t until = lab_now_us() + LIMIT_US;
  while (strstr(redis_server_ask(redis, "INFO replication"), wanted) == NULL)
    if (lab_now_us() > until) fail_msg("INFO never says %s", wanted);
}

static void a_primary_that_goes_on_without_its_replicas_is_warned_of_once(void **state) {
  (void)state;
  static notes n;
  redis_server *replica;
  assert_true(redis_server_start(&replica, NULL));
  corral *c = opened(redis_server_uri(redis), &n);
  gets(c, "k", NULL);
  assert_int_equal(n.warnings, 0);
  redis_server_ask(replica, "REPLICAOF 127.0.0.1 %d", redis_server_port(redis));
  await("connected_slaves:1");
  for (int i = 0; i < 3; i++) {
    hang_up();
    gets(c, "k", NULL);
  }
  assert_int_equal(n.warnings, 1);
  assert_non_null(strstr(n.warning[0], redis_server_uri(redis) + strlen("redis://")));
  assert_non_null(strstr(n.warning[0], "min-replicas-to-write isn't set"));
  assert_int_equal(corral_counter(c, CORRAL_EVENT_WARNING), 1);
  corral_close(c);
  redis_server_stop(replica);
}

static void a_primary_that_wants_its_replicas_is_not_warned_of(void **state) {
  (void)state;
  static notes n;
  redis_server *replica;
  assert_true(redis_server_start(&replica, NULL));
  redis_server_ask(replica, "REPLICAOF 127.0.0.1 %d", redis_server_port(redis));
  redis_server_ask(redis, "CONFIG SET min-replicas-to-write 1");
  await("min_slaves_good_slaves:1");
  corral *c = opened(redis_server_uri(redis), &n);
  gets(c, "k", NULL);
  assert_int_equal(n.warnings, 0);
  corral_close(c);
  /* nor one whose user may not know it */
  redis_server_ask(redis, "CONFIG SET min-replicas-to-write 0");
  redis_server_ask(redis, "ACL SETUSER blind on >x ~* &* +@all -info -config");
  c = opened(uri_of("blind"), &n);
  gets(c, "other", NULL);
  assert_int_equal(n.warnings, 0);
  corral_close(c);
  redis_server_stop(replica);
}

/* A greeting asks at most once for what is known. */
static void a_server_is_asked_for_its_replicas_until_that_is_known(void **state) {
  (void)state;
  static notes n;
  redis_server_ask(redis, "ACL SETUSER blind on >x ~* &* +@all -info");
  corral *c = opened(uri_of("blind"), &n);
  for (int i = 0; i < 3; i++) {
    gets(c, "k", NULL);
    hang_up();
  }
  assert_int_equal(strtoll(redis_server_ask(redis, "ACL LOG") + strlen("count\n"), NULL, 10), 1);
  corral_close(c);
}

/* ---- rights -------------------------------------------------------------------------------- */

static void a_user_without_the_time_and_a_name_is_served_and_it_is_said_once(void **state) {
  (void)state;
  static notes n;
  redis_server_ask(redis, "ACL SETUSER few on >x ~* -@all +get +set +pttl +getrange +setrange "
                          "+pexpire +rename +unlink +eval +evalsha +pexpiretime");
  corral *c = opened(uri_of("few"), &n);
  values_are_served(c);
  assert_int_equal(n.warnings, 1);
  assert_non_null(strstr(n.warning[0], "refused: CLIENT SETNAME (no name), TIME (each look"));
  corral_close(c);
  /* what one process has stored is a hit for the next, whose connection knows no time */
  c = opened(redis_server_uri(redis), &n);
  assert_int_equal(gets(c, "k", NULL), CORRAL_COMPUTED);
  corral_close(c);
  c = opened(uri_of("few"), &n);
  assert_int_equal(gets(c, "k", NULL), CORRAL_FRESH);
  corral_close(c);
}

static void lives_without_the_time_are_as_long_as_with_it(void **state) {
  (void)state;
  static notes n;
  redis_server_ask(redis, "ACL SETUSER few on >x ~* +@all -time");
  corral *c = opened(uri_of("few"), &n), *other = opened(redis_server_uri(redis), &n);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(gets(c, "k", NULL), CORRAL_COMPUTED);
    assert_int_equal(gets(other, "k", NULL), CORRAL_FRESH);
    const char *left =
        redis_server_ask(redis, "EVAL %s 0", "return redis.call('PTTL', redis.call('RANDOMKEY'))");
    assert_in_range(strtoll(left, NULL, 10), LIFE_MS, 2 * LIFE_MS);
    assert_int_equal(corral_expire(other, "k", 1, NULL), CORRAL_OK);
    assert_int_equal(gets(c, "k", NULL), CORRAL_COMPUTED);
    assert_int_equal(invalidates(c, "k"), CORRAL_OK);
  }
  corral_close(other);
  corral_close(c);
}

static void a_server_without_the_time_serves_values_and_it_is_said_once(void **state) {
  (void)state;
  static notes n, m;
  redis_server *timeless;
  corral_lock *lock = NULL;
  corral_error error = {0};
  assert_true(
      redis_server_start(&timeless, (const char *const[]){"--rename-command", "TIME", "", NULL}));
  corral *c = opened(redis_server_uri(timeless), &n), *other;
  values_are_served(c);
  assert_int_equal(n.warnings, 1);
  assert_non_null(strstr(n.warning[0], "refused: TIME (each look asks for the TTL, too)"));
  other = opened(redis_server_uri(timeless), &m);
  assert_int_equal(gets(c, "shared", NULL), CORRAL_COMPUTED);
  assert_int_equal(gets(other, "shared", NULL), CORRAL_FRESH);
  /* the end of a hold, and its fencing token, are the server's time */
  assert_int_equal(corral_lock_take(c, "lock", 4, NULL, &lock, &error), CORRAL_EUNSUPPORTED);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_STORE_DOWN), 0);
  corral_close(other);
  corral_close(c);
  redis_server_stop(timeless);
}

static void a_database_that_may_not_be_selected_is_refused(void **state) {
  (void)state;
  static notes n;
  corral_value *value = NULL;
  corral_error error = {0};
  char uri[140];
  redis_server_ask(redis, "ACL SETUSER fixed on >x ~* &* +@all -select");
  corral *c = opened(uri_of("fixed"), &n);
  values_are_served(c);
  assert_int_equal(n.warnings, 0);
  corral_close(c);
  snprintf(uri, sizeof uri, "%s/3", uri_of("fixed"));
  c = opened(uri, &n);
  assert_int_equal(corral_get(c, "k", 1, CORRAL_CALL(.error = &error), &value), CORRAL_EAUTH);
  assert_non_null(strstr(error.text, "+select"));
  assert_string_equal(redis_server_ask(redis, "DBSIZE"), "0");
  corral_close(c);
}

/* ---- a proxy ------------------------------------------------------------------------------- */

typedef struct crowd {
  corral *c;
  pthread_t thread;
} crowd;

static void *joins(void *arg) {
  crowd *one = arg;
  (void)gets(one->c, "crowded", NULL);
  return NULL;
}

static void twemproxy_serves_values_and_locks_and_it_is_said_once(void **state) {
  (void)state;
  static notes n, m;
  redis_server *second;
  twemproxy *proxy;
  assert_true(redis_server_start(&second, NULL));
  int ports[] = {redis_server_port(redis), redis_server_port(second)};
  if (!twemproxy_start(&proxy, ports, 2)) skip();
  corral *c = opened(twemproxy_uri(proxy), &n), *other = opened(twemproxy_uri(proxy), &m);
  values_are_served(c);
  a_lock_is_held_and_shown(c);
  size_t size = LARGE;
  for (int i = 0; i < 20; i++) { /* on both servers, and too large to be staged there */
    char key[16];
    snprintf(key, sizeof key, "l%d", i);
    assert_int_equal(gets(c, key, &size), CORRAL_COMPUTED);
    assert_int_equal(gets(other, key, &size), CORRAL_FRESH);
  }
  assert_true(strtol(redis_server_ask(redis, "DBSIZE"), NULL, 10) > 0);
  assert_true(strtol(redis_server_ask(second, "DBSIZE"), NULL, 10) > 0);
  assert_int_equal(n.warnings, 1);
  assert_non_null(strstr(n.warning[0], "hangs up on CLIENT and TIME, as proxies do"));
  /* two processes, one compute: waiters poll */
  crowd all[8];
  atomic_store(&computes, 0);
  for (int i = 0; i < 8; i++) {
    all[i].c = i % 2 == 0 ? c : other;
    assert_int_equal(pthread_create(&all[i].thread, NULL, joins, &all[i]), 0);
  }
  for (int i = 0; i < 8; i++) pthread_join(all[i].thread, NULL);
  assert_int_equal(atomic_load(&computes), 1);
  corral_close(other);
  corral_close(c);
  twemproxy_stop(proxy);
  redis_server_stop(second);
}

static void what_a_proxy_cannot_keep_is_refused(void **state) {
  (void)state;
  static notes n;
  static const char *const parts[] = {"?confirm_replicas=1", "?wait_replicas=1", "?scripts=no"};
  twemproxy *proxy;
  int port = redis_server_port(redis);
  if (!twemproxy_start(&proxy, &port, 1)) skip();
  for (size_t i = 0; i < 3; i++) {
    char uri[120];
    corral_value *value = NULL;
    corral_error error = {0};
    snprintf(uri, sizeof uri, "%s%s", twemproxy_uri(proxy), parts[i]);
    corral *c = opened(uri, &n);
    assert_int_equal(corral_get(c, "k", 1, CORRAL_CALL(.error = &error), &value),
                     CORRAL_EUNSUPPORTED);
    assert_non_null(strstr(error.text, "as proxies do: confirm_replicas, wait_replicas"));
    corral_close(c);
  }
  /* a key that is too long for it doesn't look like a server that is away */
  static char key[10000];
  corral_value *of_long = NULL;
  memset(key, 'k', sizeof key);
  corral *long_keys = opened(twemproxy_uri(proxy), &n);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(
        corral_get_or_compute(long_keys, key, sizeof key, NULL, compute, NULL, &of_long),
        CORRAL_OK);
    assert_int_equal(corral_value_kept(of_long), CORRAL_KEPT_NOT);
    corral_value_unref(of_long);
  }
  assert_int_equal(corral_counter(long_keys, CORRAL_EVENT_STORE_DOWN), 0);
  corral_close(long_keys);
  /* a database that can't be selected isn't another one */
  char uri[120];
  corral_value *value = NULL;
  snprintf(uri, sizeof uri, "%s/3", twemproxy_uri(proxy));
  corral *c = opened(uri, &n);
  assert_int_equal(corral_get(c, "k", 1, NULL, &value), CORRAL_EUNAVAILABLE);
  assert_string_equal(redis_server_ask(redis, "DBSIZE"), "0");
  corral_close(c);
  twemproxy_stop(proxy);
}

/* It greets, and is killed: no proxy. */
static void a_server_that_was_restarted_is_no_proxy(void **state) {
  (void)state;
  static notes n;
  corral *c = opened(redis_server_uri(redis), &n);
  gets(c, "k", NULL);
  for (int i = 0; i < 3; i++) {
    redis_server_restart(redis);
    gets(c, "k", NULL);
  }
  assert_int_equal(n.warnings, 0);
  assert_non_null(strstr(redis_server_ask(redis, "CLIENT LIST"), "name=corral"));
  corral_close(c);
}

#define T(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_primary_that_goes_on_without_its_replicas_is_warned_of_once),
      T(a_primary_that_wants_its_replicas_is_not_warned_of),
      T(a_server_is_asked_for_its_replicas_until_that_is_known),
      T(a_user_without_the_time_and_a_name_is_served_and_it_is_said_once),
      T(lives_without_the_time_are_as_long_as_with_it),
      T(a_server_without_the_time_serves_values_and_it_is_said_once),
      T(a_database_that_may_not_be_selected_is_refused),
      T(twemproxy_serves_values_and_locks_and_it_is_said_once),
      T(what_a_proxy_cannot_keep_is_refused),
      T(a_server_that_was_restarted_is_no_proxy),
  };
  return cmocka_run_group_tests_name("redis_rights", tests, NULL, NULL);
}
