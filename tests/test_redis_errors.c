/* test_redis_errors.c: errors of the Redis plugin: wrong addresses, users without permissions,
 * servers that refuse. */
#include "support/redis_kit.h"
#include "support/server_process.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- addresses ----------------------------------------------------------------------------- */

static void a_unix_socket_and_a_db_work_as_well(void **state) {
  (void)state;
  start(NULL);
  char uri[160];
  snprintf(uri, sizeof uri, "%s?db=3&client_name=mine", redis_server_unix_uri(server));
  client c = opened(uri);
  assert_int_equal(c.info.handles, 4);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_string_equal(redis_server_ask(server, "DBSIZE"), "0");
  assert_non_null(strstr(redis_server_ask(server, "CLIENT LIST"), "name=mine"));
  closed(&c);
  snprintf(uri, sizeof uri, "%s/3", redis_server_uri(server));
  c = opened(uri);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  closed(&c);
  snprintf(uri, sizeof uri, "redis://localhost:%d/99", redis_server_port(server));
  assert_int_equal(try_open(&c, uri), CORRAL_EURI);
  closed(&c);
}

static void a_wrong_uri_is_refused_with_what_is_accepted(void **state) {
  (void)state;
  static const char *const wrong[] = {"redis://h/x",
                                      "redis://h/1/2",
                                      "redis://h/1?db=2",
                                      "redis://h?db=-1",
                                      "redis://h?tls_ca=x",
                                      "redis://h?nonsense=1",
                                      "redis://a,b",
                                      "redis+unix://host/path",
                                      "redis+unix://",
                                      "redis+unix:relative",
                                      "rediss://h?tls_verify=maybe",
                                      "rediss://h?tls_key=k",
                                      "redis://user@h",
                                      "redis://h?client_name=a%20b"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    client c;
    if (try_open(&c, wrong[i]) != CORRAL_EURI || c.error.text[0] == '\0')
      fail_msg("%s was not refused", wrong[i]);
  }
}

static void nobody_listening_is_said_at_once(void **state) {
  (void)state;
  client c;
  char uri[64];
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", server_process_free_port());
  assert_int_equal(try_open(&c, uri), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "refused"));
  closed(&c);
  assert_int_equal(try_open(&c, "redis+unix:///nowhere/at/all"), CORRAL_EUNAVAILABLE);
  closed(&c);
  assert_int_equal(try_open(&c, "redis://name.invalid"), CORRAL_EUNAVAILABLE);
  closed(&c);
}

/* A lookup's thread ends 300 ms after its answer here: its destructor of `at_end` pauses. */
static pthread_key_t at_end;
static int ends_late; /* at_end is there */
static atomic_int lookups, ended;

static void end_late(void *arg) {
  struct timespec pause = {.tv_nsec = 300000000};
  nanosleep(&pause, NULL);
  atomic_fetch_add((atomic_int *)arg, 1);
}

/* The plugin calls this function in place of glibc's. */
__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **found) {
  int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = NULL;
  *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
  if (ends_late && hints != NULL && (hints->ai_flags & AI_NUMERICHOST) == 0 &&
      pthread_getspecific(at_end) == NULL) {
    atomic_fetch_add(&lookups, 1);
    pthread_setspecific(at_end, &ended);
  }
  return real(name, service, hints, found);
}

static void the_thread_of_a_lookup_is_over_with_it(void **state) {
  (void)state;
  client c;
  char uri[64];
  assert_int_equal(pthread_key_create(&at_end, end_late), 0);
  ends_late = 1;
  snprintf(uri, sizeof uri, "redis://localhost:%d", server_process_free_port());
  assert_int_equal(try_open(&c, uri), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "refused"));
  assert_int_equal(atomic_load(&lookups), 1);
  assert_int_equal(atomic_load(&ended), 1);
  closed(&c);
}

/* ---- users --------------------------------------------------------------------------------- */

static int opens(const char *user_part, client *c) {
  char uri[160];
  snprintf(uri, sizeof uri, "redis://%s127.0.0.1:%d", user_part, redis_server_port(server));
  return try_open(c, uri);
}

static void users_are_known_by_name_and_password(void **state) {
  (void)state;
  start(NULL);
  client c;
  redis_server_ask(server, "ACL SETUSER ann on >se/cret ~* +@all");
  assert_int_equal(opens("ann:se%2Fcret@", &c), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  closed(&c);
  assert_int_equal(opens("ann:wrong@", &c), CORRAL_EAUTH);
  assert_non_null(strstr(c.error.text, "WRONGPASS"));
  closed(&c);
  redis_server_ask(server, "CONFIG SET requirepass open");
  assert_int_equal(opens("", &c), CORRAL_EAUTH);
  assert_non_null(strstr(c.error.text, "NOAUTH"));
  closed(&c);
  assert_int_equal(opens(":open@", &c), CORRAL_OK);
  closed(&c);
  redis_server_ask(server, "CONFIG SET requirepass %b", "", (size_t)0);
}

static void a_user_who_may_not_do_it_is_told_so(void **state) {
  (void)state;
  start(NULL);
  client c;
  redis_server_ask(server, "ACL SETUSER reader on >x ~* +getrange +pttl");
  assert_int_equal(opens("reader:x@", &c), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_GET, "k", 1), CORRAL_EMISS);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EAUTH);
  assert_non_null(strstr(c.error.text, "NOPERM: evalsha refused; corral needs +get "));
  assert_string_equal(strrchr(c.error.text, ' '), " +wait"); /* it is not cut */
  /* without the server's time, what is left of a lease is known by the key's TTL */
  client whole = opened(redis_server_uri(server));
  corral_op op = op_of(CORRAL_VERB_CLAIM, "left", 1);
  op.claim.lease_ms = HOUR;
  assert_int_equal(perform(&whole, &op, 1), CORRAL_OK);
  dropped(&op);
  op = op_of(CORRAL_VERB_GET, "left", 1);
  assert_int_equal(perform(&c, &op, 1), CORRAL_OK);
  assert_in_range(op.state.left_ms, HOUR - LIMIT, HOUR);
  dropped(&op);
  redis_server_ask(server, "PEXPIRE left %d", CORRAL_LEASE_KEPT_MS);
  op = op_of(CORRAL_VERB_GET, "left", 1); /* a slow machine finds no key any more */
  assert_int_equal(perform(&c, &op, 1), CORRAL_OK);
  assert_int_equal(op.state.left_ms, 0);
  dropped(&op);
  closed(&whole);
  closed(&c);
  redis_server_ask(server, "ACL SETUSER runner on >x ~* +getrange +pttl +evalsha +eval +time");
  assert_int_equal(opens("runner:x@", &c), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EAUTH);
  closed(&c);
  redis_server_ask(server, "ACL SETUSER elsewhere on >x ~mine:* +@all");
  assert_int_equal(opens("elsewhere:x@", &c), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EAUTH);
  closed(&c);
}

/* Both users find the same lease, verdict and life. */
static void a_user_without_the_time_learns_it_from_the_keys(void **state) {
  (void)state;
  start(NULL);
  client c, whole = opened(redis_server_uri(server));
  redis_server_ask(server, "ACL SETUSER timeless on >x ~* +@all -time");
  assert_int_equal(opens("timeless:x@", &c), CORRAL_OK);
  for (int i = 0; i < 2; i++) {
    client *one = i == 0 ? &c : &whole, *other = i == 0 ? &whole : &c;
    corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1); /* of no key, by the script */
    op.claim.lease_ms = HOUR / 2;
    assert_int_equal(perform(one, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, CORRAL_OK);
    assert_in_range(op.state.left_ms, HOUR / 2 - LIMIT, HOUR / 2);
    dropped(&op);
    op = op_of(CORRAL_VERB_CLAIM, "k", 2);
    assert_int_equal(perform(other, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, CORRAL_EBUSY);
    assert_in_range(op.state.left_ms, HOUR / 2 - LIMIT, HOUR / 2);
    dropped(&op);
    op = op_of(CORRAL_VERB_EXTEND, "k", 1);
    op.extend.lease_ms = HOUR;
    assert_int_equal(done(one, &op), CORRAL_OK);
    assert_in_range(looks(other, "k").until_ms, HOUR - LIMIT, HOUR);
    assert_int_equal(verdict(one, "k", 1, 7, HOUR), CORRAL_OK);
    assert_int_equal(does(other, CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
    assert_int_equal(invalidates(one, "k"), CORRAL_OK);
    assert_int_equal(does(one, CORRAL_VERB_CLAIM, "k", 3), CORRAL_OK);
    assert_int_equal(fills(one, "k", 3, 100), CORRAL_OK);
    assert_in_range(looks(other, "k").life_ms, HOUR - LIMIT, HOUR);
    assert_in_range(looks(one, "k").life_ms, HOUR - LIMIT, HOUR);
    assert_int_equal(does(one, CORRAL_VERB_CLAIM, "k", 4), CORRAL_OK); /* beside the body */
    assert_int_equal(looks(other, "k").header.state, CORRAL_LEASED);
    op = op_of(CORRAL_VERB_RENEW, "k", 4);
    op.renew.ttl_ms = 2 * HOUR;
    assert_int_equal(done(one, &op), CORRAL_OK);
    assert_in_range(looks(other, "k").life_ms, 2 * HOUR - LIMIT, 2 * HOUR);
    assert_int_equal(invalidates(one, "k"), CORRAL_OK);
  }
  /* a key without an end tells no time, and isn't taken for one of long ago */
  redis_server_ask(server, "SET k foreign");
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EFOREIGN);
  assert_int_equal(does(&whole, CORRAL_VERB_CLAIM, "mine", 1), CORRAL_OK);
  redis_server_ask(server, "PERSIST mine");
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "mine", 2), CORRAL_EAUTH);
  assert_non_null(strstr(c.error.text, "+time"));
  closed(&whole);
  closed(&c);
}

static void a_user_bound_to_a_prefix_may_fill_large_records(void **state) {
  (void)state;
  start(NULL);
  client c;
  redis_server_ask(
      server,
      "ACL SETUSER bound on >x ~mine:* -@all +get +set +pttl +getrange +setrange +pexpire +rename "
      "+unlink +time +eval +evalsha");
  assert_int_equal(opens("bound:x@", &c), CORRAL_OK);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "mine:k", 1), CORRAL_OK);
    assert_int_equal(fills(&c, "mine:k", 1, 100000), CORRAL_OK);
  }
  assert_int_equal(does(&c, CORRAL_VERB_EXPIRE, "mine:k", 1), CORRAL_OK);
  assert_int_equal(invalidates(&c, "mine:k"), CORRAL_OK);
  assert_int_equal(looks(&c, "mine:k").status, CORRAL_EMISS);
  closed(&c);
}

static void a_user_who_may_only_remove_invalidates_without_a_mark(void **state) {
  (void)state;
  client all = begin(), c;
  does(&all, CORRAL_VERB_CLAIM, "k", 1);
  redis_server_ask(server,
                   "ACL SETUSER remover on >x ~* -@all +get +pttl +getrange +time +eval +evalsha");
  assert_int_equal(opens("remover:x@", &c), CORRAL_OK);
  assert_int_equal(invalidates(&c, "k"), CORRAL_EAUTH);
  redis_server_ask(server, "ACL SETUSER remover +unlink");
  assert_int_equal(invalidates(&c, "k"), CORRAL_OK);
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  closed(&c);
  closed(&all);
}

/* ---- servers that refuse ------------------------------------------------------------------- */

static void a_full_server_serves_hits_extends_and_takes_leases_back(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  does(&c, CORRAL_VERB_CLAIM, "k", 2);
  does(&c, CORRAL_VERB_CLAIM, "cold", 3);
  does(&c, CORRAL_VERB_CLAIM, "colder", 4);
  redis_server_ask(server, "CONFIG SET maxmemory 1");
  assert_int_equal(looks(&c, "k").status, CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "new", 1), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "OOM"));
  assert_int_equal(fills(&c, "cold", 3, 10), CORRAL_EREFUSED);
  assert_int_equal(fills(&c, "cold", 3, 100000), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "OOM"));
  for (int i = 0; i < 50; i++) { /* several within one ms, which leave the TTL as it is */
    assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "k", 2), CORRAL_OK);
    assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "cold", 3), CORRAL_OK);
  }
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 2), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "cold", 3), CORRAL_OK);
  assert_int_equal(verdict(&c, "colder", 4, 1, HOUR), CORRAL_OK);
  assert_int_equal(looks(&c, "k").header.state, CORRAL_FREE);
  redis_server_ask(server, "CONFIG SET maxmemory 0");
  closed(&c);
}

static void a_full_server_invalidates_all_the_same(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 100000);
  does(&c, CORRAL_VERB_CLAIM, "k", 2);
  redis_server_ask(server, "CONFIG SET maxmemory 1");
  assert_int_equal(invalidates(&c, "nothing"), CORRAL_OK);
  assert_int_equal(looks(&c, "nothing").status, CORRAL_EMISS);
  assert_int_equal(invalidates(&c, "k"), CORRAL_OK);
  assert_int_equal(fills(&c, "k", 2, 10), CORRAL_ELOST);
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  redis_server_ask(server, "CONFIG SET maxmemory 0");
  closed(&c);
}

static void a_replica_is_read_and_refuses_to_be_written(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  redis_server_ask(server, "REPLICAOF 127.0.0.1 1");
  assert_int_equal(looks(&c, "k").status, CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "READONLY"));
  assert_non_null(strstr(c.error.text, "primary"));
  corral_op op = op_of(CORRAL_VERB_INVALIDATE, "k", 0);
  assert_int_equal(perform(&c, &op, 1), CORRAL_EUNAVAILABLE); /* a handle is done with, then */
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  crl_plugin_redis.disconnect(c.handle);
  c.handle = NULL;
  assert_int_equal(client_connect(&c, LIMIT), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "is a replica: write redis://127.0.0.1:1"));
  redis_server_ask(server, "REPLICAOF NO ONE");
  assert_int_equal(client_connect(&c, LIMIT), CORRAL_OK);
  assert_int_equal(invalidates(&c, "k"), CORRAL_OK);
  closed(&c);
}

static void a_server_without_enough_replicas_refuses(void **state) {
  (void)state;
  client c = begin();
  redis_server_ask(server, "CONFIG SET min-replicas-to-write 1");
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "NOREPLICAS"));
  assert_int_equal(invalidates(&c, "k"), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "NOREPLICAS"));
  redis_server_ask(server, "CONFIG SET min-replicas-to-write 0");
  closed(&c);
}

static void a_server_with_all_its_clients_says_so(void **state) {
  (void)state;
  start(NULL);
  client c;
  redis_server_ask(server, "CONFIG SET maxclients 1");
  assert_int_equal(opens("", &c), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "max number of clients"));
  redis_server_ask(server, "CONFIG SET maxclients 1000");
  closed(&c);
}

/* Runs an endless script on a connection of its own. */
static void *keep_busy(void *arg) {
  redisContext *context = redisConnectUnix(arg);
  redisReply *reply = redisCommand(context, "EVAL %s 0", "while true do end");
  if (reply != NULL) freeReplyObject(reply);
  redisFree(context);
  return NULL;
}

static void a_server_kept_busy_by_a_script_says_so(void **state) {
  (void)state;
  client c = begin();
  pthread_t thread;
  char path[128];
  snprintf(path, sizeof path, "%s/socket", redis_server_folder(server));
  redis_server_ask(server, "CONFIG SET busy-reply-threshold 1");
  pthread_create(&thread, NULL, keep_busy, path);
  int64_t until = c.host->now_ms() + LIMIT;
  int status;
  while ((status = does(&c, CORRAL_VERB_GET, "k", 0)) == CORRAL_EMISS && c.host->now_ms() < until)
    continue;
  assert_int_equal(status, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "BUSY"));
  while (strstr(redis_server_ask(server, "SCRIPT KILL"), "NOTBUSY") != NULL) continue;
  pthread_join(thread, NULL);
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  closed(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_unix_socket_and_a_db_work_as_well),
      cmocka_unit_test(users_are_known_by_name_and_password),
      cmocka_unit_test(a_user_who_may_not_do_it_is_told_so),
      cmocka_unit_test(a_user_without_the_time_learns_it_from_the_keys),
      cmocka_unit_test(a_user_bound_to_a_prefix_may_fill_large_records),
      cmocka_unit_test(a_user_who_may_only_remove_invalidates_without_a_mark),
      cmocka_unit_test(a_full_server_serves_hits_extends_and_takes_leases_back),
      cmocka_unit_test(a_full_server_invalidates_all_the_same),
      cmocka_unit_test(a_replica_is_read_and_refuses_to_be_written),
      cmocka_unit_test(a_server_without_enough_replicas_refuses),
      cmocka_unit_test(a_server_with_all_its_clients_says_so),
      cmocka_unit_test(a_server_kept_busy_by_a_script_says_so),
      cmocka_unit_test(a_wrong_uri_is_refused_with_what_is_accepted),
      cmocka_unit_test(nobody_listening_is_said_at_once),
      cmocka_unit_test(the_thread_of_a_lookup_is_over_with_it),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
