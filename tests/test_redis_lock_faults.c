/* test_redis_lock_faults.c: locks on Redis when the connection closes within a request or a reply,
 * and when the server sends wrong replies. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "redis/redis.h"
#include "support/fake_server.h"
#include "support/redis_lock_kit.h"
#include "support/server_process.h"

/* ---- proxy --------------------------------------------------------------------------------- */

/* Forwards one connection until a limit is reached, then closes both sides. */
typedef struct proxy {
  int listener, port;
  pthread_t thread;
  atomic_int left; /* bytes of requests still to be forwarded; -1: all */
  /* a reply with these bytes isn't forwarded, and ends the connection; NULL: all are. Set before
   * the first reply */
  const char *last;
} proxy;

/* Forwards what is there to read. Returns 0 when the connection must end. */
static int forwards(proxy *p, int from, int to, int is_request) {
  char bytes[65536];
  ssize_t got = recv(from, bytes, sizeof bytes, 0);
  if (got <= 0) return 0;
  int left = atomic_load(&p->left);
  if (is_request && left >= 0) {
    if (got > left) got = left;
    atomic_store(&p->left, left - (int)got);
  }
  if (!is_request && p->last != NULL &&
      memmem(bytes, (size_t)got, p->last, strlen(p->last)) != NULL)
    return 0;
  if (got > 0 && send(to, bytes, (size_t)got, MSG_NOSIGNAL) != got) return 0;
  return !is_request || left < 0 || left > got;
}

static void *proxy_run(void *arg) {
  proxy *p = arg;
  int client_fd = accept(p->listener, NULL, NULL),
      server_fd = server_process_dial(redis_server_port(server));
  if (client_fd < 0 || server_fd < 0) abort();
  for (;;) {
    struct pollfd fds[2] = {{.fd = client_fd, .events = POLLIN},
                            {.fd = server_fd, .events = POLLIN}};
    if (poll(fds, 2, 20000) <= 0) break;
    if (fds[0].revents != 0 && !forwards(p, client_fd, server_fd, 1)) break;
    if (fds[1].revents != 0 && !forwards(p, server_fd, client_fd, 0)) break;
  }
  close(client_fd);
  close(server_fd);
  return NULL;
}

static void proxy_open(proxy *p) {
  p->listener = server_process_bind(&p->port);
  p->last = NULL;
  atomic_init(&p->left, -1);
  assert_int_equal(listen(p->listener, 1), 0);
  assert_int_equal(pthread_create(&p->thread, NULL, proxy_run, p), 0);
}

static void proxy_close(proxy *p) {
  pthread_join(p->thread, NULL);
  close(p->listener);
}

static client opened_through(proxy *p, const char *params) {
  char uri[120];
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d?%s", p->port, params);
  return opened(uri);
}

/* Waits until the server has processed all that came over closed connections. */
static void settle_down(void) {
  int64_t until = crl_registry_host()->now_ms() + LIMIT;
  while (redis_server_info(server, "connected_clients") > 1)
    if (crl_registry_host()->now_ms() > until) fail_msg("a connection stays");
}

/* ---- cut requests -------------------------------------------------------------------------- */

/* Sends LOCK over a connection that ends after `n` bytes. Returns its status. In every case no key
 * without TTL may be left. */
static int cut_lock(const char *way, int n) {
  proxy p;
  proxy_open(&p);
  client c = opened_through(&p, way);
  corral_op op = lock_op(CORRAL_VERB_LOCK, "k", 1, 0);
  op.status = CORRAL_EINDOUBT;
  atomic_store(&p.left, n);
  int usable = perform_ops(&crl_plugin_redis, c.handle, &op, 1, c.host->now_ms() + LIMIT, &c.error);
  assert_true((op.status == CORRAL_OK) == (usable == CORRAL_OK));
  closed(&c);
  proxy_close(&p);
  settle_down();
  long long left = pttl("k");
  if (left == -1 || left == 0) fail_msg("%s, cut after %d bytes: TTL %lld", way, n, left);
  if (op.status == CORRAL_EUNAVAILABLE && left != -2)
    fail_msg("%s, cut after %d bytes: unavailable, yet it is there", way, n);
  if (op.status != CORRAL_OK && op.status != CORRAL_EINDOUBT && op.status != CORRAL_EUNAVAILABLE)
    fail_msg("%s, cut after %d bytes: %s", way, n, corral_status_name(op.status));
  return op.status;
}

static void a_request_cut_after_any_byte_leaves_no_lock_without_end(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; way++) {
    client c = begin_as(ways[way]);
    /* loads the script, so that EVALSHA is sent */
    assert_int_equal(locks(&c, "warm", 1, 0), CORRAL_OK);
    closed(&c);
    int n = 0, held = 0;
    for (; n < 1000; n++) {
      redis_server_ask(server, "DEL k");
      if (cut_lock(ways[way], n) == CORRAL_OK) break;
      held += pttl("k") > 0;
    }
    print_message("%s: %d bytes, %d of the cut ones were granted\n", ways[way], n, held);
    assert_in_range(n, 150, 900);
  }
}

static void a_script_cut_while_it_is_sent_whole_leaves_no_lock_without_end(void **state) {
  (void)state;
  start(NULL);
  int n = 1;
  for (; n < 20000; n += 61) {
    redis_server_ask(server, "DEL k");
    redis_server_ask(server, "SCRIPT FLUSH");
    if (cut_lock("scripts=yes", n) == CORRAL_OK) break;
  }
  assert_in_range(n, 1000, 10000);
}

/* ---- lost replies -------------------------------------------------------------------------- */

static void a_release_whose_reply_is_lost_is_unknown_and_never_lost(void **state) {
  (void)state;
  static const char *const last[WAYS] = {"$32", "QUEUED"};
  for (int way = 0; way < WAYS; way++) {
    client before = begin_as(ways[way]);
    assert_int_equal(locks(&before, "k", 1, 0), CORRAL_OK);
    assert_int_equal(locks(&before, "warm", 1, 0), CORRAL_OK);
    assert_int_equal(unlocks(&before, "warm", 1), CORRAL_OK);
    proxy p;
    proxy_open(&p);
    p.last = last[way];
    client c = opened_through(&p, ways[way]);
    corral_op op = lock_op(CORRAL_VERB_UNLOCK, "k", 1, 0);
    assert_int_not_equal(perform(&c, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, CORRAL_EINDOUBT);
    closed(&c);
    proxy_close(&p);
    assert_int_equal(holds(&before, "k"), 0);
    closed(&before);
  }
}

/* ---- unexpected replies -------------------------------------------------------------------- */

#define GREETED                                                                                    \
  "EXPECT TIME\\r\\n\nSEND +OK\\r\\n@INFO*2\\r\\n$10\\r\\n1700000000\\r\\n$1\\r\\n0\\r\\n\n"
#define NUMBER(first) first "\\x00\\x00\\x00\\x00\\x00\\x00\\x00"
#define FOUR "\\x00\\x00\\x00\\x00"
#define MINUS(first) first "\\xff\\xff\\xff\\xff\\xff\\xff\\xff"
#define LARGEST "\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x7f"
#define SMALLEST "\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80"
#define ANSWER(status) "$32\\r\\n" status NUMBER("\\x07") NUMBER("\\x08") NUMBER("\\x09") "\\r\\n"

static const struct reply {
  const char *bytes;
  int lock, unlock; /* expected statuses */
  int usable;
} script_replies[] = {
    {ANSWER(NUMBER("\\x00")), CORRAL_OK, CORRAL_OK, 1},
    {ANSWER(MINUS("\\xf8")), CORRAL_EBUSY, CORRAL_EPROTOCOL, -1},
    {ANSWER(MINUS("\\xf7")), CORRAL_EPROTOCOL, CORRAL_ELOST, -1},
    {ANSWER(MINUS("\\xf4")), CORRAL_EFOREIGN, CORRAL_EFOREIGN, 1},
    {ANSWER(MINUS("\\xf0")), CORRAL_EREFUSED, CORRAL_EPROTOCOL, -1},
    {ANSWER(NUMBER("\\x01")), CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"$32\\r\\n" NUMBER("\\x00") LARGEST NUMBER("\\x08") NUMBER("\\x09") "\\r\\n", CORRAL_EPROTOCOL,
     CORRAL_EPROTOCOL, 0},
    {"$32\\r\\n" NUMBER("\\x00") SMALLEST NUMBER("\\x08") NUMBER("\\x09") "\\r\\n",
     CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"$32\\r\\n" NUMBER("\\x00") NUMBER("\\x07") LARGEST NUMBER("\\x09") "\\r\\n", CORRAL_OK,
     CORRAL_OK, 1},
    {"$32\\r\\n" NUMBER("\\x00") NUMBER("\\x07") NUMBER("\\x08") LARGEST "\\r\\n", CORRAL_EPROTOCOL,
     CORRAL_EPROTOCOL, 0},
    {"$32\\r\\n" NUMBER("\\x00") NUMBER("\\x07") NUMBER("\\x08") SMALLEST "\\r\\n",
     CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {":1700000000000000\\r\\n", CORRAL_OK, CORRAL_EPROTOCOL, -1},
    {":9007199254740992\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {":17000000000000000\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {":-1700000000000000\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {":\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"$32\\r\\ncrk1" FOUR NUMBER("\\x00") NUMBER("\\x00") NUMBER("\\x00") "\\r\\n",
     CORRAL_EPROTOCOL, CORRAL_OK, -1},
    {"$32\\r\\ncrk1" FOUR NUMBER("\\x01") NUMBER("\\x00") NUMBER("\\x00") "\\r\\n",
     CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"$31\\r\\n1234567890123456789012345678901\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"$0\\r\\n\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"$-1\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"+OK\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {":1\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"*0\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"*-1\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"*4\\r\\n:0\\r\\n:1\\r\\n:2\\r\\n:3\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"*99999\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {"rubbish\\r\\n", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 0},
    {ANSWER(NUMBER("\\x00")) ":1\\r\\n", CORRAL_OK, CORRAL_OK, 0},
    {"-OOM command not allowed\\r\\n", CORRAL_EREFUSED, CORRAL_EREFUSED, 1},
    {"-READONLY You can't write against a read only replica.\\r\\n", CORRAL_EREFUSED,
     CORRAL_EREFUSED, 1},
    {"-WRONGTYPE Operation against a key\\r\\n", CORRAL_EFOREIGN, CORRAL_EFOREIGN, 1},
    {"-LOADING Redis is loading\\r\\n", CORRAL_EUNAVAILABLE, CORRAL_EUNAVAILABLE, 1},
    {"-NOPERM this user has no permissions to run the 'evalsha' command\\r\\n", CORRAL_EAUTH,
     CORRAL_EAUTH, 1},
    {"-ERR unknown command 'EVALSHA'\\r\\n", CORRAL_EUNSUPPORTED, CORRAL_EUNSUPPORTED, 1},
    {"-ERR something new\\r\\n", CORRAL_EREFUSED, CORRAL_EREFUSED, 1},
    {"-NOREPLICAS Not enough good replicas to write.\\r\\n", CORRAL_EREFUSED, CORRAL_EREFUSED, 1},
};

static client connected_to(fake_server *fake, const char *params) {
  char uri[100];
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d?%s", fake_server_port(fake), params);
  return opened(uri);
}

static void each_reply_to_a_script_has_its_status(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof script_replies / sizeof *script_replies; i++) {
    for (int unlock = 0; unlock < 2; unlock++) {
      const struct reply *reply = &script_replies[i];
      char script[2048];
      snprintf(script, sizeof script, GREETED "EXPECT EVALSHA\nEXPECT $1\\r\\nk\\r\\n\nSEND %s\n",
               reply->bytes);
      fake_server *fake = fake_server_start(script);
      client c = connected_to(fake, "scripts=yes");
      corral_op op = lock_op(unlock ? CORRAL_VERB_UNLOCK : CORRAL_VERB_LOCK, "k", 1, 0);
      int usable = perform(&c, &op, 1) == CORRAL_OK, wanted = unlock ? reply->unlock : reply->lock;
      if (op.status != wanted) fail_msg("%s: %s", reply->bytes, corral_status_name(op.status));
      /* a clock can be added to it without overflow */
      assert_true(op.lock_state.left_ms <= INT64_C(1) << 53);
      assert_int_equal(usable, reply->usable < 0 ? wanted != CORRAL_EPROTOCOL : reply->usable);
      closed(&c);
      assert_true(fake_server_stop(fake));
    }
  }
}

#define ASKED "EXPECT EVALSHA\nEXPECT $1\\r\\nk\\r\\n\n"

/* A lock is taken, or released, without a check of the connection, and its reply is that to an
 * earlier command: of an earlier time, or of another token. */
static void an_answer_in_the_place_of_anothers_is_not_believed(void **state) {
  (void)state;
  static const struct {
    corral_verb verb;
    const char *reply;
  } others[] = {
      {CORRAL_VERB_LOCK, ":1699999990000000\\r\\n"},
      {CORRAL_VERB_LOCK, ANSWER(NUMBER("\\x00"))},
      {CORRAL_VERB_LOCK, ANSWER(MINUS("\\xf8"))},
      {CORRAL_VERB_UNLOCK, ":1700000000000000\\r\\n"},
      {CORRAL_VERB_UNLOCK, ANSWER(NUMBER("\\x00"))},
      {CORRAL_VERB_UNLOCK, ANSWER(MINUS("\\xf7"))},
      {CORRAL_VERB_UNLOCK,
       "$32\\r\\ncrk1" FOUR NUMBER("\\x01") NUMBER("\\x00") NUMBER("\\x00") "\\r\\n"},
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char script[1024];
    snprintf(script, sizeof script,
             GREETED ASKED "SEND :1700000000000000\\r\\n\n" ASKED "SEND %s\n", others[i].reply);
    fake_server *fake = fake_server_start(script);
    client c = connected_to(fake, "scripts=yes");
    crl_redis_handle *h = c.handle;
    assert_int_equal(locks(&c, "k", 1, 0), CORRAL_OK);
    /* the connection wasn't idle, and its clock is known, however slow this machine is */
    h->now += LIMIT;
    h->time.asked += LIMIT;
    h->time.most = h->time.least;
    corral_op op = lock_op(others[i].verb, "k", 2, 0);
    assert_int_equal(perform(&c, &op, 1), CORRAL_EPROTOCOL);
    assert_true(h->unchecked);
    if (op.status != CORRAL_EINDOUBT)
      fail_msg("%s: %s", others[i].reply, corral_status_name(op.status));
    closed(&c);
    assert_true(fake_server_stop(fake));
  }
}

/* An error doesn't tell whom it answers: the next command is sent after a check. */
static void after_an_error_the_connection_is_checked(void **state) {
  (void)state;
  fake_server *fake = fake_server_start(GREETED ASKED "SEND -ERR no\\r\\n\n" ASKED
                                                      "SEND :1700000000000000\\r\\n\n");
  client c = connected_to(fake, "scripts=yes");
  crl_redis_handle *h = c.handle;
  assert_int_equal(locks(&c, "k", 1, 0), CORRAL_EREFUSED);
  h->now += LIMIT;
  h->time.asked += LIMIT;
  h->time.most = h->time.least;
  assert_int_equal(locks(&c, "k", 2, 0), CORRAL_OK);
  assert_false(h->unchecked);
  closed(&c);
  assert_true(fake_server_stop(fake));
}

#define LOOKED "EXPECT MULTI\\r\\n\n"
#define LOOK(get)                                                                                  \
  "SEND +OK\\r\\n" get ":-2\\r\\n*2\\r\\n$10\\r\\n1700000000\\r\\n$1\\r\\n0\\r\\n+OK\\r\\n\n"
#define EXECUTED "EXPECT EXEC\\r\\n\n"

static const struct talk {
  const char *steps;
  int status, usable;
} talks[] = {
    {LOOKED LOOK("$-1\\r\\n") EXECUTED "SEND +QUEUED\\r\\n*1\\r\\n+OK\\r\\n\n", CORRAL_OK, 1},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED "SEND +QUEUED\\r\\n*-1\\r\\n\n" LOOKED LOOK("$-1\\r\\n")
         EXECUTED "SEND +QUEUED\\r\\n*1\\r\\n+OK\\r\\n\n",
     CORRAL_OK, 1},
    {LOOKED LOOK("$3\\r\\nabc\\r\\n") "EXPECT DISCARD\\r\\n\nSEND +OK\\r\\n\n", CORRAL_EFOREIGN, 1},
    {LOOKED LOOK("$3\\r\\nabc\\r\\n") "EXPECT DISCARD\\r\\n\nSEND -ERR no\\r\\n\n", CORRAL_EFOREIGN,
     0},
    {LOOKED LOOK("-WRONGTYPE Operation\\r\\n") "EXPECT DISCARD\\r\\n\nSEND +OK\\r\\n\n",
     CORRAL_EFOREIGN, 1},
    {LOOKED LOOK("-LOADING it\\r\\n") "EXPECT DISCARD\\r\\n\nSEND +OK\\r\\n\n", CORRAL_EUNAVAILABLE,
     1},
    {LOOKED LOOK(":1\\r\\n"), CORRAL_EPROTOCOL, 0},
    {LOOKED
     "SEND +OK\\r\\n$-1\\r\\n:-2\\r\\n*2\\r\\n$10\\r\\n1700000000\\r\\n$1\\r\\n0\\r\\n-NOPERM "
     "no\\r\\n\nEXPECT UNWATCH\\r\\n\nSEND +OK\\r\\n\n",
     CORRAL_EAUTH, 1},
    {LOOKED
     "SEND -NOPERM "
     "no\\r\\n$-1\\r\\n:-2\\r\\n*2\\r\\n$10\\r\\n1700000000\\r\\n$1\\r\\n0\\r\\n-NOPERM no\\r\\n\n",
     CORRAL_EAUTH, 1},
    {LOOKED "SEND +OK\\r\\n$-1\\r\\n:-2\\r\\n*1\\r\\n$10\\r\\n1700000000\\r\\n+OK\\r\\n\n",
     CORRAL_EPROTOCOL, 0},
    {LOOKED "SEND +OK\\r\\n$-1\\r\\n\nCLOSE\n", CORRAL_EUNAVAILABLE, 0},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED
     "SEND -OOM full\\r\\n-EXECABORT Transaction discarded because of previous errors.\\r\\n\n",
     CORRAL_EREFUSED, 1},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED
     "SEND +QUEUED\\r\\n-EXECABORT Transaction discarded because of: READONLY a replica\\r\\n\n",
     CORRAL_EREFUSED, 1},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED "SEND +QUEUED\\r\\n-NOPERM no exec\\r\\n\n", CORRAL_EAUTH,
     0},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED "SEND +QUEUED\\r\\n*1\\r\\n-OOM full\\r\\n\n",
     CORRAL_EREFUSED, 1},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED "SEND +OK\\r\\n*1\\r\\n+OK\\r\\n\n", CORRAL_EPROTOCOL, 0},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED "SEND +QUEUED\\r\\n*0\\r\\n\n", CORRAL_EPROTOCOL, 0},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED "SEND +QUEUED\\r\\n:1\\r\\n\n", CORRAL_EPROTOCOL, 0},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED "SEND +QUEUED\\r\\n\nCLOSE\n", CORRAL_EINDOUBT, 0},
    {LOOKED LOOK("$-1\\r\\n") EXECUTED "CLOSE\n", CORRAL_EINDOUBT, 0},
};

static void each_dialogue_without_scripts_has_its_status(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof talks / sizeof *talks; i++) {
    char script[4096];
    snprintf(script, sizeof script, GREETED "%s", talks[i].steps);
    fake_server *fake = fake_server_start(script);
    client c = connected_to(fake, "scripts=no");
    corral_op op = lock_op(CORRAL_VERB_LOCK, "k", 1, 0);
    int usable = perform(&c, &op, 1) == CORRAL_OK;
    if (op.status != talks[i].status || usable != talks[i].usable)
      fail_msg("%zu: %s, %d", i, corral_status_name(op.status), usable);
    closed(&c);
    if (!fake_server_stop(fake)) fail_msg("%zu: something was not said", i);
  }
}

/* A reply with the record of one exclusive hold, in the script's notation. */
static void said_record(char *room, size_t size, unsigned holder) {
  uint8_t record[CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD];
  corral_hold hold = {
      .mode = CORRAL_LOCK_EXCLUSIVE, .until = INT64_C(1700000000000) + HOUR, .fence = 5};
  memcpy(hold.token, token(holder), CORRAL_TOKEN);
  crl_lock_record_write(5, &hold, 1, record);
  size_t used = (size_t)snprintf(room, size, "$%zu\\r\\n", sizeof record);
  for (size_t i = 0; i < sizeof record; i++)
    used += (size_t)snprintf(room + used, size - used, "\\x%02x", record[i]);
  snprintf(room + used, size - used, "\\r\\n");
}

static void a_lock_that_changes_hands_between_look_and_release_is_not_ended(void **state) {
  (void)state;
  char mine[1024], theirs[1024], script[8192];
  said_record(mine, sizeof mine, 1);
  said_record(theirs, sizeof theirs, 2);
  static const char time_and_multi[] =
      ":9\\r\\n*2\\r\\n$10\\r\\n1700000000\\r\\n$1\\r\\n0\\r\\n+OK\\r\\n\n";
  snprintf(script, sizeof script,
           GREETED LOOKED "SEND +OK\\r\\n%s%s" EXECUTED "SEND +QUEUED\\r\\n*-1\\r\\n\n" LOOKED
                          "SEND +OK\\r\\n%s%sEXPECT DISCARD\\r\\n\nSEND +OK\\r\\n\n",
           mine, time_and_multi, theirs, time_and_multi);
  fake_server *fake = fake_server_start(script);
  client c = connected_to(fake, "scripts=no");
  corral_op op = lock_op(CORRAL_VERB_UNLOCK, "k", 1, 0);
  assert_int_equal(done(&c, &op), CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms, HOUR);
  closed(&c);
  assert_true(fake_server_stop(fake));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_request_cut_after_any_byte_leaves_no_lock_without_end),
      cmocka_unit_test(a_script_cut_while_it_is_sent_whole_leaves_no_lock_without_end),
      cmocka_unit_test(a_release_whose_reply_is_lost_is_unknown_and_never_lost),
      cmocka_unit_test(each_reply_to_a_script_has_its_status),
      cmocka_unit_test(an_answer_in_the_place_of_anothers_is_not_believed),
      cmocka_unit_test(after_an_error_the_connection_is_checked),
      cmocka_unit_test(each_dialogue_without_scripts_has_its_status),
      cmocka_unit_test(a_lock_that_changes_hands_between_look_and_release_is_not_ended),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
