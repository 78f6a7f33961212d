/* test_redis_watch.c: the watch on a real Redis: reports of every kind of change. */
#include "support/redis_watch_kit.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/server_process.h"
#include "support/fork_kit.h"

/* ---- reports ------------------------------------------------------------------------------- */

static void by_settle(client *c) { assert_int_equal(fills(c, "k", 1, 10), CORRAL_OK); }
static void by_large_settle(client *c) { assert_int_equal(fills(c, "k", 1, 100000), CORRAL_OK); }
static void by_release(client *c) {
  assert_int_equal(does(c, CORRAL_VERB_RELEASE, "k", 1), CORRAL_OK);
}
static void by_verdict(client *c) { assert_int_equal(verdict(c, "k", 1, -42, HOUR), CORRAL_OK); }
static void by_extend(client *c) {
  assert_int_equal(does(c, CORRAL_VERB_EXTEND, "k", 1), CORRAL_OK);
}
static void by_renew(client *c) { assert_int_equal(does(c, CORRAL_VERB_RENEW, "k", 1), CORRAL_OK); }
static void by_claim(client *c) { assert_int_equal(does(c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_OK); }
static void by_expire(client *c) {
  assert_int_equal(does(c, CORRAL_VERB_EXPIRE, "k", 0), CORRAL_OK);
}
static void by_invalidate(client *c) { assert_int_equal(invalidates(c, "k"), CORRAL_OK); }
static void by_del(client *c) { (void)c, redis_server_ask(server, "DEL k"); }
static void by_set(client *c) { (void)c, redis_server_ask(server, "SET k x"); }
static void by_rename(client *c) {
  (void)c, redis_server_ask(server, "SET other x"), redis_server_ask(server, "RENAME other k");
}

enum { MISSING, LEASED, STALE, FILLED };

static const struct change {
  const char *name;
  void (*make)(client *c);
  int from, to; /* range of states of the key before the change */
} changes[] = {
    {"settle", by_settle, LEASED, STALE},   {"large settle", by_large_settle, LEASED, STALE},
    {"release", by_release, LEASED, STALE}, {"release with a verdict", by_verdict, LEASED, STALE},
    {"extend", by_extend, LEASED, STALE},   {"renew", by_renew, STALE, STALE},
    {"claim", by_claim, MISSING, MISSING},  {"claim of a stale one", by_claim, FILLED, FILLED},
    {"expire", by_expire, LEASED, FILLED},  {"invalidate", by_invalidate, LEASED, FILLED},
    {"del", by_del, LEASED, FILLED},        {"set", by_set, MISSING, FILLED},
    {"rename", by_rename, MISSING, FILLED},
};

/* Brings key k into a state: missing, leased, body and lease, body. */
static void prepare(client *c, int what) {
  redis_server_ask(server, "DEL k");
  if (what == MISSING) return;
  does(c, CORRAL_VERB_CLAIM, "k", 1);
  if (what == LEASED) return;
  fills(c, "k", 1, 10);
  if (what == STALE) does(c, CORRAL_VERB_CLAIM, "k", 1);
}

static void all_changes_are_told(const char *uri) {
  client c = opened(uri), other = opened(uri);
  void *watch = watching(&c);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
    for (int what = changes[i].from; what <= changes[i].to; what++)
      for (int own = 0; own < 2; own++) {
        prepare(&other, what);
        if (!follows(&c, watch, "k")) fail_msg("%s, %d: not registered", changes[i].name, what);
        changes[i].make(own ? &c : &other);
        if (!told_of(&c, watch, "k"))
          fail_msg("%s, %d, own %d: not told", changes[i].name, what, own);
      }
  crl_plugin_redis.unwatch(watch);
  closed(&c);
  closed(&other);
}

static void each_change_of_a_registered_key_is_told(void **state) {
  (void)state;
  start(NULL);
  all_changes_are_told(redis_server_uri(server));
}

static void also_over_a_unix_socket(void **state) {
  (void)state;
  start(NULL);
  all_changes_are_told(redis_server_unix_uri(server));
}

static int runs(const char *script, const char *arg) {
  pid_t pid = fork_at_rest();
  int status = -1;
  if (pid == 0) {
    execlp("sh", "sh", "-c", script, "sh", arg, (char *)NULL);
    _exit(127);
  }
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Starts a server with TLS in place of the kit's server. */
static void also_over_tls(void **state) {
  (void)state;
  char folder[ROOM_PATH], crt[64], key[64], port[12], uri[64];
  room_folder(folder, "watch");
  int made = runs("cd \"$1\" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
                  "-nodes -keyout key -out crt -days 2 "
                  "-subj /CN=test >log 2>&1",
                  folder);
  snprintf(crt, sizeof crt, "%s/crt", folder);
  snprintf(key, sizeof key, "%s/key", folder);
  snprintf(port, sizeof port, "%d", server_process_free_port());
  snprintf(uri, sizeof uri, "rediss://127.0.0.1:%s?tls_verify=no", port);
  const char *const args[] = {"--tls-port",
                              port,
                              "--tls-cert-file",
                              crt,
                              "--tls-key-file",
                              key,
                              "--tls-ca-cert-file",
                              crt,
                              "--tls-auth-clients",
                              "no",
                              NULL};
  redis_server *plain = server, *tls = NULL;
  if (made == 0 && redis_server_start(&tls, args)) {
    server = tls;
    all_changes_are_told(uri);
    server = plain;
    redis_server_stop(tls);
  }
  runs("rm -rf \"$1\"", folder);
  if (tls == NULL) skip();
}

static void a_flush_is_told_as_any(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  static const char *const flushes[] = {"FLUSHALL", "FLUSHDB"};
  for (size_t i = 0; i < 2; i++) {
    prepare(&c, FILLED);
    assert_true(follows(&c, watch, "k"));
    redis_server_ask(server, flushes[i]);
    notes n = {.count = 0};
    assert_true(told(&c, watch, 0, &n));
  }
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_key_that_was_not_registered_is_not_told(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  assert_true(follows(&c, watch, "k"));
  looks(&c, "a");
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "b", 1), CORRAL_OK);
  redis_server_ask(server, "MSET a 1 b 1 c 1");
  notes n = told_so_far(&c, watch);
  assert_int_equal(n.count, 1);
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_registration_is_told_once(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  assert_true(follows(&c, watch, "k"));
  redis_server_ask(server, "SET k 1");
  redis_server_ask(server, "SET k 2");
  notes n = told_so_far(&c, watch);
  assert_int_equal(n.count, 2); /* the keys k and fence */
  assert_true(has(&n, hash_of("k")));
  redis_server_ask(server, "SET k 3");
  n = told_so_far(&c, watch);
  assert_int_equal(n.count, 1);
  redis_server_ask(server, "DEL k");
  assert_true(follows(&c, watch, "k"));
  redis_server_ask(server, "SET k 4");
  assert_true(told_of(&c, watch, "k"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void any_bytes_of_a_key_are_told(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  static char key[65536];
  for (size_t i = 0; i < sizeof key; i++) key[i] = (char)(i % 251);
  static const size_t sizes[] = {1, 2, 255, 65536};
  for (size_t i = 0; i < 4; i++) {
    notes n = {.count = 0};
    assert_int_equal(follows_bytes(&c, watch, key, sizes[i]), CORRAL_EMISS);
    redis_server_ask(server, "SET %b x", key, sizes[i]);
    assert_true(told(&c, watch, c.host->hash64(key, sizes[i]), &n));
  }
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void many_keys_are_registered_in_one_round_trip(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  corral_registration keys[100];
  static char names[100][16];
  for (int i = 0; i < 100; i++) {
    snprintf(names[i], sizeof names[i], "k%d", i);
    keys[i] = (corral_registration){.key = names[i], .key_len = strlen(names[i])};
  }
  long long before = redis_server_info(server, "total_reads_processed");
  assert_int_equal(registers(&c, watch, keys, 100), CORRAL_OK);
  /* including one for INFO */
  assert_int_equal(redis_server_info(server, "total_reads_processed") - before, 2);
  redis_server_ask(server, "MSET k0 1 k99 1");
  notes n = told_so_far(&c, watch);
  assert_true(has(&n, hash_of("k0")) && has(&n, hash_of("k99")));
  assert_int_equal(n.count, 3);
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_registration_reads_what_the_key_holds(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  prepare(&c, FILLED);
  redis_server_ask(server, "SET short abc");
  redis_server_ask(server, "DEL list");
  redis_server_ask(server, "RPUSH list x");
  corral_registration keys[] = {{.key = "k", .key_len = 1},
                                {.key = "none", .key_len = 4},
                                {.key = "short", .key_len = 5},
                                {.key = "list", .key_len = 4}};
  assert_int_equal(registers(&c, watch, keys, 4), CORRAL_OK);
  assert_int_equal(keys[0].status, CORRAL_OK);
  assert_int_equal(keys[0].head_len, CORRAL_HEAD);
  assert_memory_equal(keys[0].head, "crl2", 4);
  assert_int_equal(keys[1].status, CORRAL_EMISS);
  assert_int_equal(keys[2].head_len, 3);
  assert_int_equal(keys[3].status, CORRAL_EFOREIGN);
  redis_server_ask(server, "DEL list");
  assert_true(told_of(&c, watch, "list"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_change_that_comes_during_a_registration_is_told_next(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  assert_true(follows(&c, watch, "early"));
  redis_server_ask(server, "SET early 1");
  assert_true(follows(&c, watch, "k")); /* the push of `early` comes before the reply */
  notes n = {.count = 0};
  assert_int_equal(hears(&c, watch, 0, &n), CORRAL_OK);
  assert_int_equal(n.count, 1);
  assert_true(has(&n, hash_of("early")));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void the_end_of_other_connections_ends_no_registration(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  looks(&c, "k");
  assert_true(follows(&c, watch, "k"));
  kill_handles();
  redis_server_ask(server, "SET k 1");
  assert_true(told_of(&c, watch, "k"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

/* ---- waiting ------------------------------------------------------------------------------- */

typedef struct waiter {
  client *c;
  void *watch;
  int stop_fd, status;
  int64_t limit;
  notes heard;
  corral_error error;
  pthread_t thread;
} waiter;

static void *waits(void *arg) {
  waiter *w = arg;
  w->status = crl_plugin_redis.changes(w->watch, w->stop_fd, w->limit, note, &w->heard, &w->error);
  return NULL;
}

/* Starts a thread in `changes`, and waits until its PING shows that it is there. */
static void begin_waiting(waiter *w) {
  long long pings = calls("ping");
  int64_t until = w->c->host->now_ms() + LIMIT;
  w->limit = until + LIMIT;
  assert_int_equal(pthread_create(&w->thread, NULL, waits, w), 0);
  while (calls("ping") == pings)
    if (w->c->host->now_ms() > until) fail_msg("a silent connection isn't asked whether it lives");
}

/* Waits for the thread; it must return before its own limit. */
static void end_waiting(waiter *w) {
  pthread_join(w->thread, NULL);
  assert_true(w->c->host->now_ms() < w->limit);
}

static void a_thread_that_waits_is_woken_by_a_change_and_by_stop_fd(void **state) {
  (void)state;
  client c = begin();
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  waiter w = {.c = &c, .watch = watching(&c), .stop_fd = fds[0]};
  assert_true(follows(&c, w.watch, "k"));
  begin_waiting(&w);
  redis_server_ask(server, "SET k 1");
  end_waiting(&w);
  assert_int_equal(w.status, CORRAL_OK);
  assert_int_equal(w.heard.count, 1);
  assert_int_equal(w.heard.hashes[0], hash_of("k"));
  begin_waiting(&w);
  assert_int_equal(write(fds[1], "", 1), 1);
  end_waiting(&w);
  assert_int_equal(w.status, CORRAL_OK);
  assert_int_equal(w.heard.count, 1);
  crl_plugin_redis.unwatch(w.watch);
  close(fds[0]);
  close(fds[1]);
  closed(&c);
}

static void a_watch_that_is_told_nothing_lives_on(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  notes n = {.count = 0};
  int64_t before = c.host->now_ms();
  long long pings = calls("ping");
  do assert_int_equal(hears(&c, watch, 2600, &n), CORRAL_OK);
  while (calls("ping") - pings < 2 && c.host->now_ms() - before < LIMIT);
  assert_true(c.host->now_ms() - before >= 2600);
  assert_int_equal(n.count, 0);
  assert_true(calls("ping") - pings >= 2);
  assert_true(follows(&c, watch, "k"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_killed_connection_is_noticed(void **state) {
  (void)state;
  client c = begin();
  waiter w = {.c = &c, .watch = watching(&c), .stop_fd = -1};
  assert_true(follows(&c, w.watch, "k"));
  begin_waiting(&w);
  kill_watches();
  end_waiting(&w);
  assert_int_equal(w.status, CORRAL_EUNAVAILABLE);
  assert_null(strstr(w.error.text, "sign of life")); /* not by its silence */
  crl_plugin_redis.unwatch(w.watch);
  closed(&c);
}

static void a_stopped_server_is_noticed_by_its_silence(void **state) {
  (void)state;
  client c = begin();
  notes n = {.count = 0};
  int64_t before = c.host->now_ms();
  void *watch = watching(&c);
  redis_server_pause(server);
  int status = hears(&c, watch, LIMIT, &n);
  int64_t took = c.host->now_ms() - before;
  redis_server_resume(server);
  assert_int_equal(status, CORRAL_EUNAVAILABLE);
  if (took < 1500) fail_msg("noticed after %lld ms", (long long)took);
  assert_non_null(strstr(c.error.text, "sign of life"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_new_watch_registers_anew(void **state) {
  (void)state;
  client c = begin();
  for (int round = 0; round < 3; round++) {
    void *watch = watching(&c);
    notes n = {.count = 0};
    assert_true(follows(&c, watch, "k"));
    redis_server_ask(server, "SET k 1");
    assert_true(told_of(&c, watch, "k"));
    redis_server_ask(server, "DEL k");
    if (round == 1) {
      kill_watches();
      assert_int_equal(hears(&c, watch, LIMIT, &n), CORRAL_EUNAVAILABLE);
    }
    crl_plugin_redis.unwatch(watch);
  }
  closed(&c);
}

/* ---- missing permissions ------------------------------------------------------------------- */

/* A user with all permissions, changed by `rules`. */
static client user_with(const char *rules) {
  char uri[64], command[400];
  start(NULL);
  redis_server_ask(server, "ACL DELUSER somebody");
  snprintf(command, sizeof command, "ACL SETUSER somebody on >secret ~* &* +@all %s", rules);
  assert_string_equal(redis_server_ask(server, command), "OK");
  snprintf(uri, sizeof uri, "redis://somebody:secret@127.0.0.1:%d", redis_server_port(server));
  return opened(uri);
}

static void a_user_who_may_not_is_told_that_it_is_unsupported(void **state) {
  (void)state;
  static const char *const rules[] = {"-client", "-client|tracking"};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    client c = user_with(rules[i]);
    void *watch = NULL;
    if (watches(&c, &watch) != CORRAL_EUNSUPPORTED) fail_msg("%s: %s", rules[i], c.error.text);
    assert_null(watch);
    assert_non_null(strstr(c.error.text, "it refuses CLIENT TRACKING: NOPERM"));
    closed(&c);
  }
}

/* A key that this user may not read, or not by this command, leaves the other ones registered. */
static void a_refused_key_is_not_registered(void **state) {
  (void)state;
  static const char *const rules[] = {"resetkeys ~k*", "-getrange"};
  for (size_t i = 0; i < 2; i++) {
    client c = user_with(rules[i]);
    void *watch = watching(&c);
    corral_registration keys[] = {{.key = "other", .key_len = 5}, {.key = "k", .key_len = 1}};
    assert_int_equal(registers(&c, watch, keys, 2), CORRAL_OK);
    assert_int_equal(keys[0].status, CORRAL_EAUTH);
    assert_int_equal(keys[1].status, i == 0 ? CORRAL_EMISS : CORRAL_EAUTH);
    redis_server_ask(server, "SET k 1");
    if (i == 0) assert_true(told_of(&c, watch, "k"));
    crl_plugin_redis.unwatch(watch);
    closed(&c);
  }
}

static void only_what_the_readme_says_is_needed(void **state) {
  (void)state;
  client c = user_with("-@all resetchannels +get +set +pttl +getrange +setrange +pexpire +rename "
                       "+unlink +time +eval +evalsha +client|tracking");
  void *watch = watching(&c);
  notes n = {.count = 0};
  assert_int_equal(hears(&c, watch, 2600, &n), CORRAL_OK); /* this user may not PING */
  assert_true(follows(&c, watch, "k"));
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_true(told_of(&c, watch, "k"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_change_of_a_registered_key_is_told),
      cmocka_unit_test(also_over_a_unix_socket),
      cmocka_unit_test(also_over_tls),
      cmocka_unit_test(a_flush_is_told_as_any),
      cmocka_unit_test(a_key_that_was_not_registered_is_not_told),
      cmocka_unit_test(a_registration_is_told_once),
      cmocka_unit_test(any_bytes_of_a_key_are_told),
      cmocka_unit_test(many_keys_are_registered_in_one_round_trip),
      cmocka_unit_test(a_registration_reads_what_the_key_holds),
      cmocka_unit_test(a_change_that_comes_during_a_registration_is_told_next),
      cmocka_unit_test(the_end_of_other_connections_ends_no_registration),
      cmocka_unit_test(a_thread_that_waits_is_woken_by_a_change_and_by_stop_fd),
      cmocka_unit_test(a_watch_that_is_told_nothing_lives_on),
      cmocka_unit_test(a_killed_connection_is_noticed),
      cmocka_unit_test(a_stopped_server_is_noticed_by_its_silence),
      cmocka_unit_test(a_new_watch_registers_anew),
      cmocka_unit_test(a_user_who_may_not_is_told_that_it_is_unsupported),
      cmocka_unit_test(a_refused_key_is_not_registered),
      cmocka_unit_test(only_what_the_readme_says_is_needed),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
