/* test_redis_watch.c: being told of changes by Redis: by a real server whatever it is that changes a key, and by a scripted one whatever
 * a real one doesn't say. */
#include "support/redis_kit.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../plugins/redis/redis.h"
#include "support/fake_server.h"
#include "support/server_process.h"

enum { SOON = 1000, NOTED = 256 };

/* ---- a watch, and what it was told --------------------------------------------------------------------------- */

typedef struct notes {
  uint64_t hashes[NOTED];
  size_t count;
} notes;

static void note(void *arg, uint64_t hash) {
  notes *n = arg;
  n->hashes[n->count++ % NOTED] = hash;
}

static int has(const notes *n, uint64_t hash) {
  for (size_t i = 0; i < n->count && i < NOTED; i++)
    if (n->hashes[i] == hash) return 1;
  return 0;
}

static uint64_t hash_of(const char *key) { return crl_registry_host()->hash64(key, strlen(key)); }

static int watches(client *c, void **ret) {
  return crl_plugin_redis.watch(c->store, 0, c->host->now_ms() + LIMIT, ret, &c->error);
}

static void *watching(client *c) {
  void *watch = NULL;
  if (watches(c, &watch) != CORRAL_OK) fail_msg("%s", c->error.text);
  return watch;
}

/* Like changes, for `ms`, adding to `n`. */
static int hears(client *c, void *watch, int64_t ms, notes *n) {
  return crl_plugin_redis.changes(watch, -1, c->host->now_ms() + ms, note, n, &c->error);
}

/* Whether it is told of `hash` soon; with whatever is told before it. */
static int told(client *c, void *watch, uint64_t hash, notes *n) {
  int64_t until = c->host->now_ms() + SOON;
  while (!has(n, hash) && c->host->now_ms() < until)
    if (hears(c, watch, until - c->host->now_ms(), n) != CORRAL_OK) fail_msg("%s", c->error.text);
  return has(n, hash);
}

static int told_of(client *c, void *watch, const char *key) {
  notes n = {.count = 0};
  return told(c, watch, hash_of(key), &n);
}

static corral_op look_of(const char *key) {
  corral_op op = op_of(CORRAL_VERB_GET, key, 0);
  op.flags = CORRAL_OP_WATCH;
  return op;
}

/* Looks with WATCH: whether the change will be told. */
static int watched(client *c, const char *key) {
  corral_op op = look_of(key);
  int status = done(c, &op);
  if (status != CORRAL_OK && status != CORRAL_EMISS) fail_msg("%s: %s", key, c->error.text);
  return op.flags == (CORRAL_OP_WATCH | CORRAL_OP_WATCHED);
}

/* All that was told until now: looks at a key of its own and changes it. */
static notes told_so_far(client *c, void *watch) {
  notes n = {.count = 0};
  redis_server_ask(server, "DEL fence");
  assert_true(watched(c, "fence"));
  redis_server_ask(server, "SET fence x");
  assert_true(told(c, watch, hash_of("fence"), &n));
  return n;
}

/* Executions of a command, or of "client|caching" and the like, rejected ones too. */
static long long calls(const char *command) {
  char name[64];
  snprintf(name, sizeof name, "cmdstat_%s:", command);
  const char *line = strstr(redis_server_ask(server, "INFO commandstats"), name);
  if (line == NULL) return 0;
  const char *rejected = strstr(line, "rejected_calls=");
  return strtoll(strstr(line, "calls=") + 6, NULL, 10) + (rejected != NULL ? strtoll(rejected + 15, NULL, 10) : 0);
}

/* ---- what is told -------------------------------------------------------------------------------------------- */

static void by_settle(client *c) { assert_int_equal(fills(c, "k", 1, 10), CORRAL_OK); }
static void by_large_settle(client *c) { assert_int_equal(fills(c, "k", 1, 100000), CORRAL_OK); }
static void by_release(client *c) { assert_int_equal(does(c, CORRAL_VERB_RELEASE, "k", 1), CORRAL_OK); }
static void by_verdict(client *c) { assert_int_equal(verdict(c, "k", 1, -42, HOUR), CORRAL_OK); }
static void by_extend(client *c) { assert_int_equal(does(c, CORRAL_VERB_EXTEND, "k", 1), CORRAL_OK); }
static void by_renew(client *c) { assert_int_equal(does(c, CORRAL_VERB_RENEW, "k", 1), CORRAL_OK); }
static void by_claim(client *c) { assert_int_equal(does(c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_OK); }
static void by_expire(client *c) { assert_int_equal(does(c, CORRAL_VERB_EXPIRE, "k", 0), CORRAL_OK); }
static void by_invalidate(client *c) { assert_int_equal(invalidates(c, "k", 0), CORRAL_OK); }
static void by_remembered_invalidate(client *c) { assert_int_equal(invalidates(c, "k", HOUR), CORRAL_OK); }
static void by_del(client *c) { (void)c, redis_server_ask(server, "DEL k"); }
static void by_set(client *c) { (void)c, redis_server_ask(server, "SET k x"); }
static void by_rename(client *c) { (void)c, redis_server_ask(server, "SET other x"), redis_server_ask(server, "RENAME other k"); }

enum { MISSING, LEASED, STALE, FILLED };

static const struct change {
  const char *name;
  void (*make)(client *c);
  int from, to; /* of what there is under the key */
} changes[] = {
    {"settle", by_settle, LEASED, STALE},
    {"large settle", by_large_settle, LEASED, STALE},
    {"release", by_release, LEASED, STALE},
    {"release with a verdict", by_verdict, LEASED, STALE},
    {"extend", by_extend, LEASED, STALE},
    {"renew", by_renew, STALE, STALE},
    {"claim", by_claim, MISSING, MISSING},
    {"claim of a stale one", by_claim, FILLED, FILLED},
    {"expire", by_expire, LEASED, FILLED},
    {"invalidate", by_invalidate, LEASED, FILLED},
    {"remembered invalidate", by_remembered_invalidate, MISSING, FILLED},
    {"del", by_del, LEASED, FILLED},
    {"set", by_set, MISSING, FILLED},
    {"rename", by_rename, MISSING, FILLED},
};

/* Under k: nothing; a lease; a payload and a lease; a payload. */
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
        if (!watched(&c, "k")) fail_msg("%s, %d: not watched", changes[i].name, what);
        changes[i].make(own ? &c : &other);
        if (!told_of(&c, watch, "k")) fail_msg("%s, %d, own %d: not told", changes[i].name, what, own);
      }
  crl_plugin_redis.unwatch(watch);
  closed(&c);
  closed(&other);
}

static void each_change_of_a_key_that_was_looked_at_is_told(void **state) {
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
  pid_t pid = fork();
  int status = -1;
  if (pid == 0) {
    execlp("sh", "sh", "-c", script, "sh", arg, (char *)NULL);
    _exit(127);
  }
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The kit's server speaks no TLS: one that does takes its place. */
static void also_over_tls(void **state) {
  (void)state;
  char folder[] = "/tmp/corral-watch-XXXXXX", crt[64], key[64], port[12], uri[64];
  assert_non_null(mkdtemp(folder));
  int made = runs("cd \"$1\" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out crt -days 2 "
                  "-subj /CN=test >log 2>&1", folder);
  snprintf(crt, sizeof crt, "%s/crt", folder);
  snprintf(key, sizeof key, "%s/key", folder);
  snprintf(port, sizeof port, "%d", server_process_free_port());
  snprintf(uri, sizeof uri, "rediss://127.0.0.1:%s?tls_verify=no", port);
  const char *const args[] = {"--tls-port", port, "--tls-cert-file", crt, "--tls-key-file", key, "--tls-ca-cert-file", crt,
                              "--tls-auth-clients", "no", NULL};
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
    assert_true(watched(&c, "k"));
    redis_server_ask(server, flushes[i]);
    notes n = {.count = 0};
    assert_true(told(&c, watch, 0, &n));
  }
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_key_that_was_not_looked_at_is_not_told(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  assert_true(watched(&c, "k"));
  looks(&c, "a");
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "b", 1), CORRAL_OK);
  redis_server_ask(server, "MSET a 1 b 1 c 1");
  notes n = told_so_far(&c, watch);
  assert_int_equal(n.count, 1);
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_look_is_told_once(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  assert_true(watched(&c, "k"));
  redis_server_ask(server, "SET k 1");
  redis_server_ask(server, "SET k 2");
  notes n = told_so_far(&c, watch);
  assert_int_equal(n.count, 2); /* k and the fence */
  assert_true(has(&n, hash_of("k")));
  redis_server_ask(server, "SET k 3");
  n = told_so_far(&c, watch);
  assert_int_equal(n.count, 1);
  redis_server_ask(server, "DEL k");
  assert_true(watched(&c, "k"));
  redis_server_ask(server, "SET k 4");
  assert_true(told_of(&c, watch, "k"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_batch_of_looks_and_other_verbs_watches_the_looks_alone(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  redis_server_ask(server, "SCRIPT FLUSH");
  corral_op ops[] = {op_of(CORRAL_VERB_GET, "plain", 0), look_of("one"), op_of(CORRAL_VERB_GET, "plain", 0),
                     op_of(CORRAL_VERB_CLAIM, "two", 1), look_of("two"), op_of(CORRAL_VERB_CLAIM, "claimed", 1), look_of("one")};
  assert_int_equal(perform(&c, ops, 7), CORRAL_OK);
  for (size_t i = 0; i < 7; i++) {
    int is_look = i == 1 || i == 4 || i == 6;
    int expected = i == 3 || i == 4 || i == 5 ? CORRAL_OK : CORRAL_EMISS;
    if (ops[i].status != expected) fail_msg("op %zu: %s", i, corral_status_name(ops[i].status));
    if (ops[i].flags != (is_look ? CORRAL_OP_WATCH | CORRAL_OP_WATCHED : 0u)) fail_msg("op %zu: flags %u", i, ops[i].flags);
    dropped(&ops[i]);
  }
  redis_server_ask(server, "MSET plain 1 claimed 1 one 1 two 1");
  notes n = told_so_far(&c, watch);
  assert_true(has(&n, hash_of("one")) && has(&n, hash_of("two")));
  assert_false(has(&n, hash_of("plain")) || has(&n, hash_of("claimed")));
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
    corral_op op = look_of("");
    notes n = {.count = 0};
    op.key = key;
    op.key_len = sizes[i];
    assert_int_equal(done(&c, &op), CORRAL_EMISS);
    redis_server_ask(server, "SET %b x", key, sizes[i]);
    assert_true(told(&c, watch, c.host->hash64(key, sizes[i]), &n));
  }
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_watched_look_is_one_round_trip_and_a_plain_one_asks_nothing_more(void **state) {
  (void)state;
  client c = begin();
  redis_server_ask(server, "CONFIG RESETSTAT");
  void *watch = watching(&c);
  assert_true(watched(&c, "k"));
  long long before = redis_server_info(server, "total_reads_processed");
  assert_true(watched(&c, "k"));
  assert_int_equal(redis_server_info(server, "total_reads_processed") - before, 2); /* with INFO's own */
  assert_int_equal(calls("client|tracking"), 2);                                     /* the watch's, and the first look's */
  long long caching = calls("client|caching");
  looks(&c, "k");
  crl_plugin_redis.unwatch(watch);
  assert_false(watched(&c, "k")); /* there is none any more */
  assert_int_equal(calls("client|caching"), caching);
  assert_int_equal(calls("client|tracking"), 2);
  closed(&c);
}

static void a_message_that_some_client_publishes_does_no_harm(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  assert_true(watched(&c, "k"));
  redis_server_ask(server, "PUBLISH __redis__:invalidate hello");
  redis_server_ask(server, "SET k 1");
  assert_true(told_of(&c, watch, "k"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

/* ---- waiting ------------------------------------------------------------------------------------------------- */

typedef struct waiter {
  client *c;
  void *watch;
  int stop_fd, status;
  notes heard;
  pthread_t thread;
} waiter;

static void *waits(void *arg) {
  waiter *w = arg;
  w->status = crl_plugin_redis.changes(w->watch, w->stop_fd, w->c->host->now_ms() + LIMIT, note, &w->heard, NULL);
  return NULL;
}

/* A thread in `changes`, for certain: it has asked for a sign of life. */
static void begin_waiting(waiter *w) {
  long long pings = calls("ping");
  int64_t until = w->c->host->now_ms() + LIMIT;
  assert_int_equal(pthread_create(&w->thread, NULL, waits, w), 0);
  while (calls("ping") == pings)
    if (w->c->host->now_ms() > until) fail_msg("a silent connection isn't asked whether it lives");
}

/* How long the waiter needed from here to return. */
static int64_t end_waiting(waiter *w) {
  int64_t before = w->c->host->now_ms();
  pthread_join(w->thread, NULL);
  return w->c->host->now_ms() - before;
}

static void a_thread_that_waits_is_woken_by_a_change_and_by_stop_fd(void **state) {
  (void)state;
  client c = begin();
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  waiter w = {.c = &c, .watch = watching(&c), .stop_fd = fds[0]};
  assert_true(watched(&c, "k"));
  begin_waiting(&w);
  redis_server_ask(server, "SET k 1");
  assert_true(end_waiting(&w) < SOON);
  assert_int_equal(w.status, CORRAL_OK);
  assert_int_equal(w.heard.count, 1);
  assert_int_equal(w.heard.hashes[0], hash_of("k"));
  begin_waiting(&w);
  assert_int_equal(write(fds[1], "", 1), 1);
  assert_true(end_waiting(&w) < SOON);
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
  assert_int_equal(hears(&c, watch, 2600, &n), CORRAL_OK);
  assert_true(c.host->now_ms() - before >= 2600);
  assert_int_equal(n.count, 0);
  assert_true(calls("ping") - pings >= 2);
  assert_true(watched(&c, "k"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_killed_connection_is_noticed_at_once(void **state) {
  (void)state;
  client c = begin();
  waiter w = {.c = &c, .watch = watching(&c), .stop_fd = -1};
  assert_true(watched(&c, "k"));
  begin_waiting(&w);
  redis_server_ask(server, "CLIENT KILL TYPE pubsub");
  assert_true(end_waiting(&w) < SOON);
  assert_int_equal(w.status, CORRAL_EUNAVAILABLE);
  assert_false(watched(&c, "k")); /* also before it is closed */
  crl_plugin_redis.unwatch(w.watch);
  closed(&c);
}

static void a_stopped_server_is_noticed_in_two_seconds(void **state) {
  (void)state;
  client c = begin();
  notes n = {.count = 0};
  void *watch = watching(&c);
  redis_server_pause(server);
  int64_t before = c.host->now_ms();
  int status = hears(&c, watch, LIMIT, &n);
  int64_t took = c.host->now_ms() - before;
  redis_server_resume(server);
  assert_int_equal(status, CORRAL_EUNAVAILABLE);
  if (took < 1500 || took > 3000) fail_msg("noticed after %lld ms", (long long)took);
  assert_non_null(strstr(c.error.text, "sign of life"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

static void a_look_is_told_to_the_watch_that_is_open_now(void **state) {
  (void)state;
  client c = begin();
  for (int round = 0; round < 3; round++) {
    assert_false(watched(&c, "k"));
    void *watch = watching(&c);
    notes n = {.count = 0};
    assert_true(watched(&c, "k"));
    redis_server_ask(server, "SET k 1");
    assert_true(told_of(&c, watch, "k"));
    redis_server_ask(server, "DEL k");
    if (round == 1) {
      redis_server_ask(server, "CLIENT KILL TYPE pubsub");
      assert_int_equal(hears(&c, watch, LIMIT, &n), CORRAL_EUNAVAILABLE);
    }
    crl_plugin_redis.unwatch(watch);
  }
  closed(&c);
}

static void a_watch_of_another_server_is_of_no_use_and_no_harm(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  assert_true(watched(&c, "k"));
  redis_server_ask(server, "CLIENT KILL TYPE pubsub"); /* of which `changes` hasn't been told */
  client fresh = c;
  assert_int_equal(crl_plugin_redis.connect(c.store, c.host->now_ms() + LIMIT, &fresh.handle, &c.error), CORRAL_OK);
  for (int i = 0; i < 3; i++) assert_false(watched(&fresh, "k"));
  assert_int_equal(does(&fresh, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  crl_plugin_redis.disconnect(fresh.handle);
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

/* ---- who may not --------------------------------------------------------------------------------------------- */

/* A user who may do all but what `rules` say. */
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
  static const char *const rules[] = {"-client",          "-client|id", "-client|tracking", "-client|caching",
                                      "-subscribe",       "resetchannels"};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    client c = user_with(rules[i]);
    void *watch = NULL;
    if (watches(&c, &watch) != CORRAL_EUNSUPPORTED) fail_msg("%s: %s", rules[i], c.error.text);
    assert_null(watch);
    assert_non_null(strstr(c.error.text, "NOPERM"));
    assert_false(watched(&c, "k"));
    closed(&c);
  }
}

static void a_handle_that_may_not_is_served_all_the_same(void **state) {
  (void)state;
  static const char *const rules[] = {"-client", "-client|tracking", "-client|caching"};
  static const char *const asked[] = {"client|tracking", "client|tracking", "client|caching"};
  for (size_t i = 0; i < 3; i++) {
    client c = user_with("");
    char command[96];
    void *watch = watching(&c);
    snprintf(command, sizeof command, "ACL SETUSER somebody %s", rules[i]);
    assert_string_equal(redis_server_ask(server, command), "OK");
    does(&c, CORRAL_VERB_CLAIM, "k", 1);
    fills(&c, "k", 1, 10);
    corral_op ops[] = {look_of("k"), look_of("k"), look_of("missing")};
    assert_int_equal(perform(&c, ops, 3), CORRAL_OK);
    for (size_t j = 0; j < 3; j++) {
      assert_int_equal(ops[j].flags, CORRAL_OP_WATCH);
      assert_int_equal(ops[j].status, j < 2 ? CORRAL_OK : CORRAL_EMISS);
      assert_int_equal(ops[j].found_len, j < 2 ? CORRAL_HEADER + 10 : 0);
      dropped(&ops[j]);
    }
    long long before = calls(asked[i]);
    assert_false(watched(&c, "k"));
    assert_int_equal(does(&c, CORRAL_VERB_INVALIDATE, "k", 0), CORRAL_OK);
    assert_int_equal(calls(asked[i]), before); /* once is enough */
    crl_plugin_redis.unwatch(watch);
    closed(&c);
  }
}

static void only_what_the_readme_says_is_needed(void **state) {
  (void)state;
  client c = user_with("-@all resetchannels &__redis__:invalidate +get +set +pttl +getrange +setrange +pexpire +rename +unlink +time "
                       "+eval +evalsha +subscribe +client|id +client|tracking +client|caching");
  void *watch = watching(&c);
  notes n = {.count = 0};
  assert_int_equal(hears(&c, watch, 2600, &n), CORRAL_OK); /* it may not PING */
  assert_true(watched(&c, "k"));
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_true(told_of(&c, watch, "k"));
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

/* ---- a scripted server --------------------------------------------------------------------------------------- */

#define GREETED "EXPECT TIME\\r\\n\nSEND +OK\\r\\n*2\\r\\n$10\\r\\n1700000000\\r\\n$1\\r\\n0\\r\\n\n"
#define MAY "SEND :7\\r\\n+OK\\r\\n-ERR only in tracking mode\\r\\n\n"
#define SUBSCRIBED "EXPECT SUBSCRIBE\n" MAY "SEND *3\\r\\n$9\\r\\nsubscribe\\r\\n$20\\r\\n__redis__:invalidate\\r\\n:1\\r\\n\n"
#define MESSAGE "*3\\r\\n$7\\r\\nmessage\\r\\n$20\\r\\n__redis__:invalidate\\r\\n"

/* A store on a scripted server, without a handle. */
static client scripted(const char *script, fake_server **ret) {
  client c = {.host = crl_registry_host(), .info = {.size = sizeof(corral_store_info)}};
  crl_uri uri;
  char text[64];
  *ret = fake_server_start(script);
  snprintf(text, sizeof text, "redis://127.0.0.1:%d", fake_server_port(*ret));
  assert_int_equal(crl_uri_parse(&uri, text, &c.error), CORRAL_OK);
  assert_int_equal(crl_plugin_redis.open(c.host, &uri.view, &c.store, &c.info, &c.error), CORRAL_OK);
  crl_uri_free(&uri);
  return c;
}

/* The status of a watch on a server that follows the script, `changes` being called until it isn't OK. */
static int follows(const char *script, notes *n, char text[240]) {
  fake_server *fake;
  client c = scripted(script, &fake);
  void *watch = NULL;
  int status = watches(&c, &watch);
  int64_t until = c.host->now_ms() + LIMIT;
  while (status == CORRAL_OK && c.host->now_ms() < until) status = hears(&c, watch, until - c.host->now_ms(), n);
  memcpy(text, c.error.text, sizeof c.error.text);
  if (watch != NULL) crl_plugin_redis.unwatch(watch);
  closed(&c);
  assert_true(fake_server_stop(fake));
  return status;
}

static void a_server_that_does_not_know_it_is_unsupported(void **state) {
  (void)state;
  static const struct {
    const char *steps;
    int status;
  } servers[] = {
      {"SEND -ERR unknown command 'CLIENT', with args\\r\\n\n", CORRAL_EUNSUPPORTED},
      {"SEND -ERR Unknown subcommand or wrong number of arguments for 'ID'\\r\\n\n", CORRAL_EUNSUPPORTED},
      {"SEND :7\\r\\n-ERR Unknown subcommand or wrong number of arguments for 'TRACKING'\\r\\n\n", CORRAL_EUNSUPPORTED},
      {"SEND :7\\r\\n-NOPERM no\\r\\n\n", CORRAL_EUNSUPPORTED},
      {"SEND :7\\r\\n+OK\\r\\n-NOPERM no\\r\\n\n", CORRAL_EUNSUPPORTED},
      {MAY "SEND -ERR unknown command `SUBSCRIBE`\\r\\n\n", CORRAL_EUNSUPPORTED},
      {"SEND -BUSY Redis is busy\\r\\n\n", CORRAL_EUNAVAILABLE},
      {"CLOSE\n", CORRAL_EUNAVAILABLE},
      {"SEND +OK\\r\\n\n", CORRAL_EPROTOCOL},
      {"SEND :0\\r\\n\n", CORRAL_EPROTOCOL},
      {"SEND :7\\r\\n:7\\r\\n\n", CORRAL_EPROTOCOL},
      {"SEND :7\\r\\n+OK\\r\\n:7\\r\\n\n", CORRAL_EPROTOCOL},
      {MAY "SEND +OK\\r\\n\n", CORRAL_EPROTOCOL},
      {MAY "SEND *3\\r\\n:1\\r\\n:1\\r\\n:1\\r\\n\n", CORRAL_EPROTOCOL},
      {MAY "SEND *99999999\\r\\n\n", CORRAL_EPROTOCOL},
  };
  for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
    char script[1024], text[240];
    notes n = {.count = 0};
    snprintf(script, sizeof script, GREETED "EXPECT SUBSCRIBE\n%s", servers[i].steps);
    int status = follows(script, &n, text);
    if (status != servers[i].status) fail_msg("%s: %s: %s", servers[i].steps, corral_status_name(status), text);
    assert_true(text[0] != '\0');
  }
}

static void a_strange_push_breaks_the_watch(void **state) {
  (void)state;
  static const char *const pushes[] = {
      "+OK\\r\\n",
      "+PONG\\r\\n",
      ":1\\r\\n",
      "$-1\\r\\n",
      "*0\\r\\n",
      "*-1\\r\\n",
      "-ERR who asked\\r\\n",
      "HTTP/1.1 400 Bad Request\\r\\n\\r\\n",
      "*2\\r\\n$4\\r\\npong\\r\\n$0\\r\\n\\r\\n",
      "*3\\r\\n$4\\r\\npong\\r\\n$0\\r\\n\\r\\n:1\\r\\n",
      "*3\\r\\n:1\\r\\n:1\\r\\n:1\\r\\n",
      "*3\\r\\n$7\\r\\nmessage\\r\\n$5\\r\\nother\\r\\n*1\\r\\n$1\\r\\nk\\r\\n",
      "*3\\r\\n$7\\r\\nmessage\\r\\n:1\\r\\n*1\\r\\n$1\\r\\nk\\r\\n",
      "*3\\r\\n$11\\r\\nunsubscribe\\r\\n$20\\r\\n__redis__:invalidate\\r\\n:0\\r\\n",
      "*2\\r\\n$7\\r\\nmessage\\r\\n$20\\r\\n__redis__:invalidate\\r\\n",
      MESSAGE ":1\\r\\n",
      MESSAGE "*1\\r\\n:1\\r\\n",
      MESSAGE "*1\\r\\n+k\\r\\n",
      MESSAGE "*1\\r\\n*1\\r\\n$1\\r\\nk\\r\\n",
      MESSAGE "*2\\r\\n$1\\r\\nk\\r\\n$-1\\r\\n",
      MESSAGE "*1048577\\r\\n",
      MESSAGE "*2147483647\\r\\n",
      MESSAGE "*1\\r\\n$99999999999999999999\\r\\n",
  };
  for (size_t i = 0; i < sizeof pushes / sizeof *pushes; i++) {
    char script[1024], text[240];
    notes n = {.count = 0};
    snprintf(script, sizeof script, GREETED SUBSCRIBED "SEND %s\n", pushes[i]);
    int status = follows(script, &n, text);
    if (status != CORRAL_EPROTOCOL) fail_msg("%s: %s: %s", pushes[i], corral_status_name(status), text);
    assert_true(text[0] != '\0');
  }
}

static void a_push_of_many_keys_tells_of_each(void **state) {
  (void)state;
  char *script = malloc(1 << 20), text[240];
  notes n = {.count = 0};
  assert_non_null(script);
  int used = snprintf(script, 1 << 20, GREETED SUBSCRIBED "SEND " MESSAGE "*200\\r\\n");
  for (int i = 0; i < 200; i++) used += snprintf(script + used, 64, "$4\\r\\nk%03d\\r\\n", i);
  snprintf(script + used, 64, "\nCLOSE\n");
  assert_int_equal(follows(script, &n, text), CORRAL_EUNAVAILABLE);
  assert_int_equal(n.count, 200);
  for (int i = 0; i < 200; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%03d", i);
    assert_true(has(&n, hash_of(key)));
  }
  free(script);
}

static void a_server_that_never_says_a_whole_reply_is_given_up(void **state) {
  (void)state;
  char text[240];
  notes n = {.count = 0};
  int64_t before = crl_registry_host()->now_ms();
  int status = follows(GREETED SUBSCRIBED "TRICKLE 40 $9999\\r\\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                                          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n", &n, text);
  assert_int_equal(status, CORRAL_EUNAVAILABLE);
  assert_true(crl_registry_host()->now_ms() - before < 3000);
}

/* A store with a handle on a scripted server, and a watch that is nowhere. */
static client looking(const char *script, fake_server **ret) {
  client c = scripted(script, ret);
  assert_int_equal(crl_plugin_redis.connect(c.store, c.host->now_ms() + LIMIT, &c.handle, &c.error), CORRAL_OK);
  ((crl_redis_store *)c.store)->watch = 7;
  return c;
}

#define LOOK "EXPECT PTTL\\r\\n$1\\r\\nk\\r\\n\n"

static void a_refusal_of_a_moment_is_asked_again(void **state) {
  (void)state;
  fake_server *fake;
  client c = looking(GREETED LOOK LOOK
                     "SEND -BUSY a script\\r\\n-ERR only in tracking mode\\r\\n$-1\\r\\n:-2\\r\\n\n"
                     "SEND -ERR only in tracking mode\\r\\n$-1\\r\\n:-2\\r\\n\n"
                     "EXPECT TRACKING\n" LOOK "SEND +OK\\r\\n+OK\\r\\n$-1\\r\\n:-2\\r\\n\n",
                     &fake);
  corral_op ops[] = {look_of("k"), look_of("k")};
  assert_int_equal(perform(&c, ops, 2), CORRAL_OK);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(ops[i].status, CORRAL_EMISS);
    assert_int_equal(ops[i].flags, CORRAL_OP_WATCH);
  }
  assert_true(watched(&c, "k"));
  closed(&c);
  assert_true(fake_server_stop(fake));
}

static void a_look_that_fails_is_not_watched(void **state) {
  (void)state;
  static const struct {
    const char *steps;
    int broken, status;
  } answers[] = {
      {"SEND +OK\\r\\n+OK\\r\\n-LOADING wait\\r\\n:-2\\r\\n\n", CORRAL_OK, CORRAL_EUNAVAILABLE},
      {"SEND +OK\\r\\n+OK\\r\\n$5\\r\\nhello\\r\\n:-1\\r\\n\n", CORRAL_OK, CORRAL_EFOREIGN},
      {"SEND +QUEUED\\r\\n+OK\\r\\n$-1\\r\\n:-2\\r\\n\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL},
      {"SEND +OK\\r\\n:1\\r\\n$-1\\r\\n:-2\\r\\n\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL},
      {"SEND +OK\\r\\n+OK\\r\\n+OK\\r\\n:-2\\r\\n\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL},
      {"SEND +OK\\r\\n-ERR Protocol error\\r\\n\nCLOSE\n", CORRAL_EUNAVAILABLE, CORRAL_EPROTOCOL},
      {"SEND +OK\\r\\n+OK\\r\\n\nCLOSE\n", CORRAL_EUNAVAILABLE, CORRAL_EUNKNOWN},
  };
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    char script[1024];
    fake_server *fake;
    snprintf(script, sizeof script, GREETED LOOK "%s", answers[i].steps);
    client c = looking(script, &fake);
    corral_op op = look_of("k");
    int broken = perform(&c, &op, 1);
    if (broken != answers[i].broken || op.status != answers[i].status || op.flags != CORRAL_OP_WATCH)
      fail_msg("%s: %s, %s, flags %u", answers[i].steps, corral_status_name(broken), corral_status_name(op.status), op.flags);
    closed(&c);
    assert_true(fake_server_stop(fake));
  }
}

static client *losing; /* whose watch ends while a look is under way: at the second question for the time */
static int questions;

static int64_t now_and_then(void) {
  if (++questions == 2) ((crl_redis_store *)losing->store)->watch = 0;
  return crl_registry_host()->now_ms();
}

static void a_watch_that_ends_while_a_look_is_under_way_is_not_promised(void **state) {
  (void)state;
  client c = begin();
  void *watch = watching(&c);
  corral_host host = *c.host;
  crl_redis_store *store = c.store;
  host.now_ms = now_and_then;
  store->host = &host;
  losing = &c;
  questions = 0;
  long long before = calls("client|caching");
  assert_false(watched(&c, "k"));
  assert_int_equal(calls("client|caching"), before + 1); /* it was under way */
  store->host = c.host;
  crl_plugin_redis.unwatch(watch);
  closed(&c);
}

/* ---- random bytes -------------------------------------------------------------------------------------------- */

static uint32_t seed;

static uint32_t pick(uint32_t below) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % below;
}

/* Pushes as they are, with bytes changed, doubled, left out, and cut off; as a SEND. */
static void garbage(char *script, size_t size) {
  static const char *const seeds[] = {"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*2\r\n$1\r\nk\r\n$3\r\nkey\r\n",
                                      "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n$-1\r\n",
                                      "*2\r\n$4\r\npong\r\n$0\r\n\r\n", "-ERR no\r\n", ":12\r\n"};
  static const char likely[] = "*$:+-_,#(>~%|!=0123456789\r\n\0";
  size_t used = (size_t)snprintf(script, size, GREETED SUBSCRIBED "SEND ");
  for (uint32_t parts = 1 + pick(4); parts > 0; parts--) {
    const char *from = seeds[pick(pick(3) == 0 ? 5 : 2)];
    size_t len = pick(4) == 0 ? pick((uint32_t)strlen(from)) + 1 : strlen(from);
    for (size_t i = 0; i < len; i++) {
      int what = (int)pick(250);
      unsigned byte = (unsigned char)from[i];
      if (what == 0) continue;
      if (what == 1) byte = pick(256);
      if (what == 2) byte = (unsigned char)likely[pick(sizeof likely)];
      for (int times = what == 3 ? 2 : 1; times > 0; times--) used += (size_t)snprintf(script + used, size - used, "\\x%02x", byte);
    }
  }
  snprintf(script + used, size - used, "\nCLOSE\n");
}

static void random_pushes_end_the_watch_and_nothing_else(void **state) {
  (void)state;
  uint32_t first = seed = (uint32_t)crl_registry_host()->now_ms();
  int strange = 0, fine = 0;
  for (int i = 0; i < 400; i++) {
    char script[8192], text[240];
    notes n = {.count = 0};
    garbage(script, sizeof script);
    int status = follows(script, &n, text);
    if (status != CORRAL_EPROTOCOL && status != CORRAL_EUNAVAILABLE)
      fail_msg("seed %u, number %d: %s: %s: %s", first, i, corral_status_name(status), text, script);
    strange += status == CORRAL_EPROTOCOL;
    fine += n.count > 0;
  }
  assert_true(strange > 40);
  assert_true(fine > 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_change_of_a_key_that_was_looked_at_is_told),
      cmocka_unit_test(also_over_a_unix_socket),
      cmocka_unit_test(also_over_tls),
      cmocka_unit_test(a_flush_is_told_as_any),
      cmocka_unit_test(a_key_that_was_not_looked_at_is_not_told),
      cmocka_unit_test(a_look_is_told_once),
      cmocka_unit_test(a_batch_of_looks_and_other_verbs_watches_the_looks_alone),
      cmocka_unit_test(any_bytes_of_a_key_are_told),
      cmocka_unit_test(a_watched_look_is_one_round_trip_and_a_plain_one_asks_nothing_more),
      cmocka_unit_test(a_message_that_some_client_publishes_does_no_harm),
      cmocka_unit_test(a_thread_that_waits_is_woken_by_a_change_and_by_stop_fd),
      cmocka_unit_test(a_watch_that_is_told_nothing_lives_on),
      cmocka_unit_test(a_killed_connection_is_noticed_at_once),
      cmocka_unit_test(a_stopped_server_is_noticed_in_two_seconds),
      cmocka_unit_test(a_look_is_told_to_the_watch_that_is_open_now),
      cmocka_unit_test(a_watch_of_another_server_is_of_no_use_and_no_harm),
      cmocka_unit_test(a_user_who_may_not_is_told_that_it_is_unsupported),
      cmocka_unit_test(a_handle_that_may_not_is_served_all_the_same),
      cmocka_unit_test(only_what_the_readme_says_is_needed),
      cmocka_unit_test(a_server_that_does_not_know_it_is_unsupported),
      cmocka_unit_test(a_strange_push_breaks_the_watch),
      cmocka_unit_test(a_push_of_many_keys_tells_of_each),
      cmocka_unit_test(a_server_that_never_says_a_whole_reply_is_given_up),
      cmocka_unit_test(a_refusal_of_a_moment_is_asked_again),
      cmocka_unit_test(a_look_that_fails_is_not_watched),
      cmocka_unit_test(a_watch_that_ends_while_a_look_is_under_way_is_not_promised),
      cmocka_unit_test(random_pushes_end_the_watch_and_nothing_else),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
