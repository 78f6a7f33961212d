/* test_redis_claim.c: a claim where no key is: SET NX GET in place of the script. The end of the
 * lease is that of its key. */
#include "support/fake_server.h"
#include "support/redis_kit.h"

#include <corral.h>
#include <pthread.h>
#include <unistd.h>

#include "../plugins/redis/redis.h"

enum { RACES = 100, ATTEMPTS = 50, PAUSE_US = 100000, LEASE = 60000 };

/* Calls of a command since the last CONFIG RESETSTAT, those of scripts included. */
static long long calls(const char *command) {
  char name[64];
  snprintf(name, sizeof name, "cmdstat_%s:calls=", command);
  const char *at = strstr(redis_server_ask(server, "INFO commandstats"), name);
  return at == NULL ? 0 : strtoll(at + strlen(name), NULL, 10);
}

static void reset_counts(void) {
  assert_string_equal(redis_server_ask(server, "CONFIG RESETSTAT"), "OK");
}

static void set_config(const char *name, const char *value) {
  assert_string_equal(redis_server_ask(server, "CONFIG SET %s %s", name, value), "OK");
}

/* A claim that expects no key. */
static corral_op cold(const char *key, unsigned holder) {
  corral_op op = op_of(CORRAL_VERB_CLAIM, key, holder);
  op.flags = CORRAL_OP_ABSENT;
  return op;
}

static int claims(client *c, const char *key, unsigned holder) {
  corral_op op = cold(key, holder);
  return done(c, &op);
}

/* The lease's end, as its record in the server says it. */
static uint64_t stored_end(const char *key) {
  redisReply *reply = redis_server_command(server, "GET %s", key);
  assert_true(reply->type == REDIS_REPLY_STRING && reply->len >= CORRAL_HEAD + CORRAL_LEASE);
  uint64_t end = crl_record_take((const uint8_t *)reply->str + CORRAL_HEAD + 8, 8);
  freeReplyObject(reply);
  return end;
}

static int64_t expires_at(const char *key) {
  return strtoll(redis_server_ask(server, "PEXPIRETIME %s", key), NULL, 10);
}

static void a_cold_claim_is_one_command_and_no_script(void **state) {
  (void)state;
  client c = begin();
  int64_t before = server_now();
  reset_counts();
  corral_op op = cold("k", 1);
  corral_header wish = {.state = CORRAL_LEASED, .cost_ms = 77, .note = "holder"};
  uint8_t front[CORRAL_FRONT];
  memset(wish.digest, 'd', sizeof wish.digest);
  op_brings(&op, front, crl_record_write(&wish, front));
  sight s = sees(&c, op);
  assert_int_equal(s.status, CORRAL_OK);
  assert_int_equal(calls("set"), 1);
  assert_int_equal(calls("evalsha") + calls("eval") + calls("getrange") + calls("time"), 0);
  assert_in_range(expires_at("k"), before + HOUR + CORRAL_LEASE_KEPT_MS,
                  server_now() + HOUR + CORRAL_LEASE_KEPT_MS);
  assert_int_equal(s.until_ms, HOUR);
  assert_int_equal(stored_end("k"), 0);

  /* another one's look, and his claim, tell holder, cost and time left */
  for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_CLAIM; verb++) {
    s = sees(&c, op_of((corral_verb)verb, "k", 2));
    assert_int_equal(s.status, verb == CORRAL_VERB_GET ? CORRAL_OK : CORRAL_EBUSY);
    assert_near(s.until_ms, HOUR);
    assert_near(s.header.until, server_now() + HOUR);
    assert_near(s.header.since, server_now());
    assert_int_equal(s.header.cost_ms, 77);
    assert_string_equal(s.header.note, "holder");
    assert_memory_equal(s.header.token, token(1), CORRAL_TOKEN);
    assert_memory_equal(s.header.digest, wish.digest, CORRAL_DIGEST);
  }
  assert_int_equal(fills(&c, "k", 2, 10), CORRAL_ELOST);
  assert_int_equal(fills(&c, "k", 1, 10), CORRAL_OK);
  assert_int_equal(looks(&c, "k").size, 10);
  closed(&c);
}

/* One of two processes that race for the same keys. */
typedef struct racer {
  client c;
  unsigned holder;
  pthread_barrier_t *line;
  sight saw[RACES];
} racer;

static void *race(void *arg) {
  racer *r = arg;
  char key[16];
  for (int i = 0; i < RACES; i++) {
    snprintf(key, sizeof key, "k%d", i);
    pthread_barrier_wait(r->line);
    r->saw[i] = sees(&r->c, cold(key, r->holder));
  }
  return NULL;
}

static void of_two_claims_at_once_one_is_granted(void **state) {
  (void)state;
  static racer racers[2];
  pthread_barrier_t line;
  pthread_t threads[2];
  pthread_barrier_init(&line, NULL, 2);
  for (unsigned i = 0; i < 2; i++) {
    racers[i] = (racer){
        .c = i == 0 ? begin() : opened(redis_server_uri(server)), .holder = i + 1, .line = &line};
    (void)token(i + 1);
  }
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < RACES; i++) {
    int won = racers[0].saw[i].status == CORRAL_OK ? 0 : 1;
    const sight *other = &racers[1 - won].saw[i];
    assert_int_equal(racers[won].saw[i].status, CORRAL_OK);
    assert_int_equal(other->status, CORRAL_EBUSY);
    assert_near(other->until_ms, HOUR);
    assert_memory_equal(other->header.token, token(racers[won].holder), CORRAL_TOKEN);
  }
  pthread_barrier_destroy(&line);
  for (int i = 0; i < 2; i++) closed(&racers[i].c);
}

/* The script decides: there is a value, without a lease or with one. */
static void a_claim_that_finds_a_record_is_the_scripts(void **state) {
  (void)state;
  client c = begin();
  claims(&c, "k", 1);
  assert_int_equal(fills(&c, "k", 1, 300), CORRAL_OK);
  sight s = sees(&c, cold("k", 2));
  assert_int_equal(s.status, CORRAL_OK);
  assert_int_equal(s.size, 300);
  assert_true(stored_end("k") != 0 || s.header.until != 0);
  s = sees(&c, cold("k", 3));
  assert_int_equal(s.status, CORRAL_EBUSY);
  assert_memory_equal(s.header.token, token(2), CORRAL_TOKEN);
  assert_int_equal(claims(&c, "k", 2), CORRAL_OK); /* mine already */
  closed(&c);
}

/* Such a claim has its answer by the record that is there: a value, or a lease that the server's
 * clock judges. The record stays as it is. */
static void a_first_look_leaves_a_record_alone(void **state) {
  (void)state;
  client c = begin();
  claims(&c, "k", 1);
  assert_int_equal(fills(&c, "k", 1, 300), CORRAL_OK);
  corral_op op = cold("k", 2);
  op.flags |= CORRAL_OP_LOOKS;
  sight s = {0};
  /* a slow machine may make the clock useless, and then a script takes the lease */
  for (int i = 0; i == 0 || (i < ATTEMPTS && calls("evalsha") > 0); i++) {
    if (i > 0) (void)does(&c, CORRAL_VERB_RELEASE, "k", 2);
    looks(&c, "k"); /* the clock is known from now on */
    reset_counts();
    s = sees(&c, op);
  }
  assert_int_equal(s.status, CORRAL_EBUSY);
  assert_int_equal(s.size, 300);
  assert_int_equal(s.header.state, CORRAL_FREE);
  assert_int_equal(calls("set"), 1);
  assert_int_equal(calls("evalsha"), 0);
  assert_int_equal(looks(&c, "k").header.state, CORRAL_FREE);
  assert_int_equal(sees(&c, op_of(CORRAL_VERB_CLAIM, "k", 3)).status, CORRAL_OK);
  s = sees(&c, op);
  assert_int_equal(s.status, CORRAL_EBUSY);
  assert_memory_equal(s.header.token, token(3), CORRAL_TOKEN);
  assert_near(s.until_ms, HOUR);
  closed(&c);
}

/* INVALIDATE, CLAIM, SETTLE of a value that is set: the claim needs no script. With every script
 * missing on the server each comes out as it should. */
static void a_value_is_set_whatever_scripts_are_missing(void **state) {
  (void)state;
  client c = begin();
  uint8_t *record = record_of(40, 1);
  for (int i = 0; i < 3; i++) {
    corral_op ops[] = {op_of(CORRAL_VERB_INVALIDATE, "k", 0), cold("k", 1),
                       op_of(CORRAL_VERB_SETTLE, "k", 1)};
    op_brings(&ops[2], record, CORRAL_HEAD + 40);
    if (i < 2) redis_server_ask(server, "SCRIPT FLUSH");
    reset_counts();
    assert_int_equal(perform(&c, ops, 3), CORRAL_OK);
    for (size_t k = 0; k < 3; k++) {
      assert_int_equal(ops[k].status, CORRAL_OK);
      dropped(&ops[k]);
    }
    if (i == 2) assert_int_equal(calls("evalsha"), 2);
    assert_int_equal(looks(&c, "k").size, 40);
  }
  free(record);
  closed(&c);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void a_refused_claim_is_answered_by_the_script(void **state) {
  (void)state;
  client c = begin();
  assert_int_equal(claims(&c, "warm", 1), CORRAL_OK);
  set_config("maxmemory", "1");
  reset_counts();
  assert_int_equal(claims(&c, "full", 1), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "OOM"));
  assert_int_equal(calls("evalsha"), 1);
  set_config("maxmemory", "0");
  set_config("min-replicas-to-write", "1");
  assert_int_equal(claims(&c, "alone", 1), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "NOREPLICAS"));
  set_config("min-replicas-to-write", "0");
  redis_server_ask(server, "RPUSH list 1");
  assert_int_equal(claims(&c, "list", 1), CORRAL_EFOREIGN);
  assert_string_equal(redis_server_ask(server, "LLEN list"), "1");
  redis_server_ask(server, "SET empty %s", "");
  assert_int_equal(claims(&c, "empty", 1), CORRAL_EFOREIGN);
  redis_server_ask(server, "SET text foreign");
  assert_int_equal(claims(&c, "text", 1), CORRAL_EFOREIGN);
  assert_string_equal(redis_server_ask(server, "GET text"), "foreign");
  /* none of these is for good */
  reset_counts();
  assert_int_equal(claims(&c, "k", 1), CORRAL_OK);
  assert_int_equal(calls("set"), 1);
  assert_int_equal(calls("evalsha"), 0);
  closed(&c);
}

static void a_replica_is_named_as_one(void **state) {
  (void)state;
  client c = begin();
  redis_server_ask(server, "REPLICAOF 127.0.0.1 1");
  assert_int_equal(claims(&c, "k", 1), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "READONLY"));
  redis_server_ask(server, "REPLICAOF NO ONE");
  closed(&c);
  c = opened(redis_server_uri(server));
  assert_int_equal(claims(&c, "k", 1), CORRAL_OK);
  closed(&c);
}

#define GREETED "EXPECT TIME\\r\\n\nSEND +OK\\r\\n@INFO-NOPERM no\\r\\n\n"
#define BY_SET "EXPECT $3\\r\\nSET\\r\\n$1\\r\\nk\\r\\n\nEXPECT $2\\r\\nNX\\r\\n$3\\r\\nGET\\r\\n\n"
#define BY_SCRIPT "EXPECT EVALSHA\nEXPECT $1\\r\\nk\\r\\n\n"

/* A server before Redis 7 is asked once on a connection. */
static void an_older_server_is_asked_once(void **state) {
  (void)state;
  static const char *const refusals[] = {"-ERR syntax error", "-NOPERM no", "+OK"};
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    char script[1024], uri[64];
    snprintf(script, sizeof script,
             GREETED BY_SET "SEND %s\\r\\n\n" BY_SCRIPT "SEND -OOM full\\r\\n\n" BY_SCRIPT
                            "SEND -OOM full\\r\\n\n",
             refusals[i]);
    fake_server *old = fake_server_start(script);
    snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", fake_server_port(old));
    client c = opened(uri);
    for (int n = 0; n < 2; n++) {
      assert_int_equal(claims(&c, "k", 1), CORRAL_EREFUSED);
      assert_non_null(strstr(c.error.text, "OOM"));
    }
    closed(&c);
    assert_true(fake_server_stop(old));
  }
}

/* The reply is lost: the claim is in doubt, and isn't repeated. */
static void a_lost_reply_is_in_doubt(void **state) {
  (void)state;
  char uri[64];
  fake_server *lossy = fake_server_start(GREETED BY_SET "CLOSE\n");
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", fake_server_port(lossy));
  client c = opened(uri);
  corral_op op = cold("k", 1);
  assert_int_not_equal(perform(&c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EINDOUBT);
  closed(&c);
  assert_true(fake_server_stop(lossy));
}

/* A look that knows the server's time finds such a lease, and asks for the TTL alone. */
static void a_look_asks_for_the_ttl_alone(void **state) {
  (void)state;
  static const struct {
    const char *reply;
    int broken, status;
    int64_t left_ms;
  } cases[] = {{"SEND :2500\\r\\n\n", 0, CORRAL_OK, 500},
               {"SEND :1\\r\\n\n", 0, CORRAL_OK, 0},
               {"SEND :-2\\r\\n\n", 0, CORRAL_OK, 0},
               {"SEND -NOPERM no\\r\\n\n", 0, CORRAL_EAUTH, 0},
               {"SEND +text\\r\\n\n", 1, CORRAL_EPROTOCOL, 0},
               {"CLOSE\n", 1, CORRAL_EINDOUBT, 0}};
  uint8_t front[CORRAL_FRONT];
  corral_header lease = {.state = CORRAL_LEASED, .length_ms = 750};
  memcpy(lease.token, token(1), CORRAL_TOKEN);
  size_t len = crl_record_write(&lease, front);
  char bytes[4 * CORRAL_FRONT + 1], script[2048], uri[64];
  for (size_t i = 0; i < len; i++) snprintf(bytes + 4 * i, 5, "\\x%02x", front[i]);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(
        script, sizeof script,
        "EXPECT TIME\\r\\n\nSEND +OK\\r\\n@INFO*2\\r\\n$10\\r\\n1700000000\\r\\n$1\\r\\n0\\r\\n\n"
        "EXPECT 1048575\\r\\n\nSEND $%zu\\r\\n%s\\r\\n\n"
        "EXPECT *2\\r\\n$4\\r\\nPTTL\\r\\n$1\\r\\nk\\r\\n\n%s",
        len, bytes, cases[i].reply);
    fake_server *fake = fake_server_start(script);
    snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", fake_server_port(fake));
    client c = opened(uri);
    crl_redis_time *time = &((crl_redis_handle *)c.handle)->time;
    time->asked += LIMIT, time->most = time->least; /* however slow this machine is */
    corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
    assert_int_equal(perform(&c, &op, 1) != CORRAL_OK, cases[i].broken);
    assert_int_equal(op.status, cases[i].status);
    assert_int_equal(op.state.left_ms, cases[i].left_ms);
    assert_int_equal(op.found.record != NULL, cases[i].status == CORRAL_OK);
    dropped(&op);
    closed(&c);
    assert_true(fake_server_stop(fake));
  }
}

/* ---- the end of such a lease --------------------------------------------------------------- */

static void the_keys_ttl_is_its_end(void **state) {
  (void)state;
  client c = begin();
  claims(&c, "k", 1);
  redis_server_ask(server, "PEXPIRE k %d", HOUR / 2 + CORRAL_LEASE_KEPT_MS);
  assert_near(looks(&c, "k").until_ms, HOUR / 2);
  assert_near(sees(&c, op_of(CORRAL_VERB_CLAIM, "k", 2)).until_ms, HOUR / 2);

  /* in the 2 s by which the key outlives it, it is over for others, but not for its holder, who
   * may come later on a slow machine */
  int extended = CORRAL_ELOST;
  for (int i = 0; i < ATTEMPTS && extended == CORRAL_ELOST; i++) {
    claims(&c, "k", 1);
    redis_server_ask(server, "PEXPIRE k %d", CORRAL_LEASE_KEPT_MS);
    assert_int_equal(looks(&c, "k").until_ms, 0);
    extended = does(&c, CORRAL_VERB_EXTEND, "k", 1);
  }
  assert_int_equal(extended, CORRAL_OK);
  assert_true(stored_end("k") > 0);
  sight s = looks(&c, "k");
  assert_near(s.until_ms, HOUR);
  assert_true(s.header.since <= server_now() && s.header.since > server_now() - 2 * HOUR);
  redis_server_ask(server, "DEL k");
  claims(&c, "k", 1);
  redis_server_ask(server, "PEXPIRE k %d", CORRAL_LEASE_KEPT_MS);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_OK);
  assert_int_equal(fills(&c, "k", 1, 10), CORRAL_ELOST);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 2), CORRAL_OK);
  assert_string_equal(redis_server_ask(server, "EXISTS k"), "0");
  closed(&c);
}

/* Somebody took the TTL away, or made it longer than the lease ever was: nobody believes that. The
 * next claim dates the lease, which ends then. */
static void a_lease_without_an_end_is_not_believed(void **state) {
  (void)state;
  client c = begin();
  for (int longer = 0; longer < 2; longer++) {
    redis_server_ask(server, "DEL k");
    claims(&c, "k", 1);
    redis_server_ask(server, longer ? "PEXPIRE k 36000000" : "PERSIST k");
    assert_int_equal(looks(&c, "k").until_ms, 0);
    sight s = sees(&c, cold("k", 2));
    assert_int_equal(s.status, CORRAL_EBUSY);
    assert_near(s.until_ms, HOUR);
    assert_near(pttl("k"), HOUR + CORRAL_LEASE_KEPT_MS);
    assert_true(stored_end("k") > 0);
    assert_near(looks(&c, "k").until_ms, HOUR);
    assert_int_equal(fills(&c, "k", 1, 10), CORRAL_OK);
  }
  redis_server_ask(server, "DEL k"); /* its holder gives it an end, too */
  claims(&c, "k", 1);
  redis_server_ask(server, "PERSIST k");
  assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "k", 1), CORRAL_OK);
  assert_near(pttl("k"), HOUR + CORRAL_LEASE_KEPT_MS);
  assert_near(looks(&c, "k").until_ms, HOUR);
  closed(&c);
}

/* ---- the settle ---------------------------------------------------------------------------- */

/* A body ends by the server's clock, as the connection knows it, never later than its key. A tag's
 * version has its end from the server itself. A slow machine may make the clock useless for a
 * second. */
static void a_settle_asks_for_the_time_only_where_it_must(void **state) {
  (void)state;
  client c = begin();
  size_t len;
  static const struct {
    uint8_t kind;
    size_t size;
    long long times;
  } cases[] = {{1, 40, 0}, {4, 40, 1}, {1, 6000, 0}, {4, 6000, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint8_t *record = record_make((corral_header){0}, cases[i].size, 1, &len);
    record[6] = cases[i].kind;
    corral_op settle = op_of(CORRAL_VERB_SETTLE, "k", 1);
    op_brings(&settle, record, len);
    for (int n = 0; n == 0 || (n < ATTEMPTS && calls("time") != cases[i].times); n++) {
      if (n > 0) usleep(PAUSE_US);
      redis_server_ask(server, "DEL k");
      looks(&c, "k"); /* the clock is known from now on */
      assert_int_equal(claims(&c, "k", 1), CORRAL_OK);
      reset_counts();
      assert_int_equal(done(&c, &settle), CORRAL_OK);
    }
    assert_int_equal(calls("time"), cases[i].times);
    int64_t end = looks(&c, "k").header.life_end;
    assert_true(end <= expires_at("k"));
    assert_near(end, expires_at("k"));
    free(record);
  }
  closed(&c);
}

/* ---- a whole miss -------------------------------------------------------------------------- */

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, key_len);
}

static void gets(corral *c, const char *key, corral_how how) {
  corral_value *value;
  assert_int_equal(corral_get_or_compute(c, key, strlen(key), NULL, compute, NULL, &value),
                   CORRAL_OK);
  assert_int_equal(corral_value_how(value), how);
  assert_int_equal(corral_value_kept(value), CORRAL_KEPT);
  corral_value_unref(value);
}

/* On a busy machine as much is stored, and no lease is extended. */
static corral *opens(int64_t near_bytes) {
  corral *c;
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = LIMIT,
                                 .near_bytes = near_bytes, .watch = CORRAL_OFF,
                                 .policy = CORRAL_POLICY(.lease_ms = LEASE, .lease_min_ms = LEASE)),
                  &c, NULL),
      CORRAL_OK);
  return c;
}

/* On the emptied server. */
static corral *corral_begin(void) {
  start(NULL);
  return opens(0);
}

/* A look, SET NX GET, the settle's script. A slow machine may make the clock useless for a second:
 * then the look asks for the TTL, and the settle for the time. */
static void the_commands_of_a_cold_miss(void **state) {
  (void)state;
  corral *c = corral_begin();
  gets(c, "warm", CORRAL_COMPUTED);
  gets(c, "warm", CORRAL_FRESH);
  for (int i = 0; i == 0 || (i < ATTEMPTS && (calls("pttl") > 0 || calls("time") > 1)); i++) {
    char key[16];
    if (i > 0) usleep(PAUSE_US);
    snprintf(key, sizeof key, "k%d", i);
    reset_counts();
    long long before = redis_server_info(server, "total_reads_processed");
    gets(c, key, CORRAL_COMPUTED);
    assert_int_equal(redis_server_info(server, "total_reads_processed") - before - 1, 3);
    assert_int_equal(calls("evalsha"), 1);
    assert_int_equal(calls("eval"), 0);
    assert_int_equal(calls("getrange"), 2); /* the look's and the settle's */
    assert_int_equal(calls("set"), 2);      /* the claim, and the settle's */
    assert_int_equal(calls("pexpire") + calls("setrange"), 0);
  }
  assert_int_equal(calls("pttl"), 0);
  assert_true(calls("time") <= 1); /* the look's, once in a second */
  corral_close(c);
}

/* After this process has removed the value: SET NX GET, which is the look, too, and the settle. */
static void the_commands_of_an_expected_miss(void **state) {
  (void)state;
  corral *c = corral_begin();
  gets(c, "k", CORRAL_COMPUTED);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
    reset_counts();
    long long before = redis_server_info(server, "total_reads_processed");
    gets(c, "k", CORRAL_COMPUTED);
    assert_int_equal(redis_server_info(server, "total_reads_processed") - before - 1, 2);
    assert_int_equal(calls("evalsha"), 1);
    assert_int_equal(calls("getrange"), 1); /* the settle's */
    assert_int_equal(calls("set"), 2);
    gets(c, "k", CORRAL_FRESH);
  }
  assert_int_equal(corral_counter(c, CORRAL_EVENT_MISS), 3);
  corral_close(c);
}

/* True when the value that another one has filled meanwhile was had by that one command. */
static int costs_one_command(corral *c, corral *other) {
  corral_value *value;
  assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
  gets(other, "k", CORRAL_COMPUTED);
  reset_counts();
  long long before = redis_server_info(server, "total_reads_processed");
  assert_int_equal(corral_get_or_compute(c, "k", 1, NULL, compute, NULL, &value), CORRAL_OK);
  long long sent = redis_server_info(server, "total_reads_processed") - before - 1;
  int is_his = corral_value_how(value) == CORRAL_FRESH && corral_value_kept(value) == CORRAL_KEPT;
  corral_value_unref(value);
  return is_his && sent == 1 && calls("set") == 1 && calls("evalsha") + calls("getrange") == 0;
}

/* Somebody else has filled the key meanwhile: his value costs that one command. A slow machine may
 * make the clock useless for a second, and then a script decides. */
static void an_expected_miss_that_is_none_costs_one_command(void **state) {
  (void)state;
  corral *c = corral_begin(), *other = opens(0);
  gets(c, "k", CORRAL_COMPUTED);
  gets(c, "k", CORRAL_FRESH); /* the clock is known from now on */
  int attempts = 0;
  for (; attempts < ATTEMPTS && !costs_one_command(c, other); attempts++) usleep(PAUSE_US);
  assert_true(attempts < ATTEMPTS);
  gets(c, "k", CORRAL_FRESH); /* a look again */
  assert_int_equal(calls("getrange"), 1);
  corral_close(other);
  corral_close(c);
}

/* A copy whose value has ended tells that there is none any more. */
static void a_copy_that_has_ended_makes_a_miss_expected(void **state) {
  (void)state;
  corral_policy brief = {
      .size = sizeof brief, .ttl_ms = 3000, .near_ms = 60000, .jitter_pct = CORRAL_OFF};
  corral_call briefly = {.size = sizeof briefly, .policy = &brief};
  start(NULL);
  corral *c = opens(1 << 20);
  for (int i = 0; i < 2; i++) {
    corral_value *value;
    reset_counts();
    assert_int_equal(corral_get_or_compute(c, "k", 1, &briefly, compute, NULL, &value), CORRAL_OK);
    assert_int_equal(corral_value_how(value), CORRAL_COMPUTED);
    corral_value_unref(value);
    assert_int_equal(calls("getrange"), i == 0 ? 2 : 1); /* the settle's, and a first look */
    usleep(3200 * 1000);
  }
  corral_close(c);
}

/* The invalidation and the settle are scripts; the claim between them is none. */
static void the_commands_of_a_set(void **state) {
  (void)state;
  corral *c = corral_begin();
  for (int i = 0; i < 2; i++) { /* the second one knows the scripts */
    reset_counts();
    assert_int_equal(corral_set(c, "k", 1, NULL, "value", 5), CORRAL_OK);
  }
  assert_int_equal(calls("evalsha"), 2);
  assert_int_equal(calls("eval"), 0);
  assert_int_equal(calls("set"), 2);
  gets(c, "k", CORRAL_FRESH);
  corral_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cold_claim_is_one_command_and_no_script),
      cmocka_unit_test(of_two_claims_at_once_one_is_granted),
      cmocka_unit_test(a_claim_that_finds_a_record_is_the_scripts),
      cmocka_unit_test(a_first_look_leaves_a_record_alone),
      cmocka_unit_test(a_value_is_set_whatever_scripts_are_missing),
      cmocka_unit_test(a_refused_claim_is_answered_by_the_script),
      cmocka_unit_test(a_replica_is_named_as_one),
      cmocka_unit_test(an_older_server_is_asked_once),
      cmocka_unit_test(a_lost_reply_is_in_doubt),
      cmocka_unit_test(a_look_asks_for_the_ttl_alone),
      cmocka_unit_test(the_keys_ttl_is_its_end),
      cmocka_unit_test(a_lease_without_an_end_is_not_believed),
      cmocka_unit_test(a_settle_asks_for_the_time_only_where_it_must),
      cmocka_unit_test(the_commands_of_a_cold_miss),
      cmocka_unit_test(the_commands_of_an_expected_miss),
      cmocka_unit_test(an_expected_miss_that_is_none_costs_one_command),
      cmocka_unit_test(a_copy_that_has_ended_makes_a_miss_expected),
      cmocka_unit_test(the_commands_of_a_set),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
