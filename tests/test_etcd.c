/* test_etcd.c: locks on a real etcd, through the plugin's table: the verbs, users, refusals. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/etcd_live_kit.h"
#include "support/watch_kit.h"
#include "support/fork_kit.h"
#include "support/room.h"

/* ---- the verbs ----------------------------------------------------------------------------- */

static void a_lock_is_held_by_one_until_it_is_released(void **state) {
  (void)state;
  client c = fresh();
  corral_op op = ask(&c, CORRAL_VERB_LOCK, "one", 1, 20000);
  assert_int_equal(op.status, CORRAL_OK);
  assert_true(op.lock_state.left_ms > 10000 && op.lock_state.left_ms <= 20000);
  op = ask(&c, CORRAL_VERB_LOCK, "one", 2, 20000);
  assert_int_equal(op.status, CORRAL_EBUSY);
  assert_true(op.lock_state.left_ms >= 10000 && op.lock_state.left_ms <= 21000);
  assert_int_equal(locks(&c, "two", 2), CORRAL_OK);
  assert_int_equal(unlocks(&c, "one", 2), CORRAL_ELOST);
  assert_int_equal(locks(&c, "one", 2), CORRAL_EBUSY);
  assert_int_equal(unlocks(&c, "one", 1), CORRAL_OK);
  assert_int_equal(locks(&c, "one", 2), CORRAL_OK);
  assert_int_equal(unlocks(&c, "one", 2), CORRAL_OK);
  assert_int_equal(unlocks(&c, "two", 2), CORRAL_OK);
  gone(&c);
}

static void a_lock_that_is_mine_already_is_granted_again(void **state) {
  (void)state;
  client c = fresh();
  corral_op first = ask(&c, CORRAL_VERB_LOCK, "again", 1, 5000),
            second = ask(&c, CORRAL_VERB_LOCK, "again", 1, 20000);
  assert_int_equal(second.status, CORRAL_OK);
  assert_true(second.lock_state.fence == first.lock_state.fence);
  assert_true(second.lock_state.left_ms > 10000);
  assert_int_equal(unlocks(&c, "again", 1), CORRAL_OK);
  corral_op third = ask(&c, CORRAL_VERB_LOCK_SHOW, "again", 1, 0);
  assert_int_equal(third.status, CORRAL_EMISS);
  gone(&c);
}

/* Grants a lease without a key, as left by a LOCK whose second request was never sent. */
static void lease_half(client *c) {
  char body[80];
  uint8_t number[CORRAL_TOKEN + sizeof "corral/half" - 1];
  memcpy(number, token(1), CORRAL_TOKEN);
  memcpy(number + CORRAL_TOKEN, "corral/half", sizeof "corral/half" - 1);
  unsigned long long id = corral_digest_number(c->k.host, number, sizeof number) & INT64_MAX;
  snprintf(body, sizeof body, "{\"ID\":\"%llu\",\"TTL\":\"2\"}", id);
  assert_non_null(strstr(etcd_server_ask(server, "/v3/lease/grant", body), "\"TTL\":\"2\""));
}

static void a_lock_that_was_lost_half_way_is_repeated_with_its_whole_life(void **state) {
  (void)state;
  client c = fresh();
  lease_half(&c);
  corral_op op = ask(&c, CORRAL_VERB_LOCK, "half", 1, 20000);
  assert_int_equal(op.status, CORRAL_OK);
  assert_true(op.lock_state.left_ms > 10000);
  assert_int_equal(unlocks(&c, "half", 1), CORRAL_OK);
  assert_null(strstr(etcd_server_ask(server, "/v3/lease/leases", "{}"), "\"ID\""));
  gone(&c);
}

/* UNLOCK revokes the lease of its token, so that a LOCK still under way can't make a key. */
static void an_unlock_of_what_is_not_held_ends_its_lease_too(void **state) {
  (void)state;
  client c = fresh();
  lease_half(&c);
  corral_op op = ask(&c, CORRAL_VERB_UNLOCK, "half", 1, 0);
  assert_true(op.status == CORRAL_ELOST && op.lock_state.left_ms == 0);
  assert_null(strstr(etcd_server_ask(server, "/v3/lease/leases", "{}"), "\"ID\""));
  gone(&c);
}

static void an_unlock_leaves_no_lease_behind(void **state) {
  (void)state;
  client c = fresh();
  assert_int_equal(locks(&c, "tidy", 1), CORRAL_OK);
  assert_int_equal(locks(&c, "tidy", 2), CORRAL_EBUSY);
  assert_int_equal(extends(&c, "tidy", 1), CORRAL_OK);
  assert_int_equal(ask(&c, CORRAL_VERB_LOCK_EXTEND, "tidy", 1, 30000).status, CORRAL_OK);
  assert_int_equal(unlocks(&c, "tidy", 1), CORRAL_OK);
  assert_null(strstr(etcd_server_ask(server, "/v3/lease/leases", "{}"), "\"ID\""));
  gone(&c);
}

static void a_hold_is_extended_by_its_holder_only_also_beyond_its_first_life(void **state) {
  (void)state;
  client c = fresh();
  corral_op first = ask(&c, CORRAL_VERB_LOCK, "long", 1, 5000),
            op = ask(&c, CORRAL_VERB_LOCK_EXTEND, "long", 2, 20000);
  assert_int_equal(op.status, CORRAL_ELOST);
  assert_true(op.lock_state.left_ms > 0);
  op = ask(&c, CORRAL_VERB_LOCK_EXTEND, "long", 1, 5000);
  assert_int_equal(op.status, CORRAL_OK);
  assert_true(op.lock_state.left_ms > 0 && op.lock_state.left_ms <= 5000);
  op = ask(&c, CORRAL_VERB_LOCK_EXTEND, "long", 1, 60000);
  assert_int_equal(op.status, CORRAL_OK);
  assert_true(op.lock_state.left_ms > 30000 && op.lock_state.fence == first.lock_state.fence);
  op = ask(&c, CORRAL_VERB_LOCK_EXTEND, "long", 1, 2000); /* an extension never shortens the hold */
  assert_true(op.lock_state.left_ms > 30000 && op.lock_state.fence == first.lock_state.fence);
  int64_t now;
  corral_hold hold = shown(&c, "long", &now);
  assert_true(hold.until - now > 50000);
  op = ask(&c, CORRAL_VERB_LOCK, "long", 1, 2000);
  assert_true(op.status == CORRAL_OK && op.lock_state.fence == first.lock_state.fence &&
              op.lock_state.left_ms > 30000);
  assert_int_equal(locks(&c, "long", 2), CORRAL_EBUSY);
  assert_int_equal(unlocks(&c, "long", 1), CORRAL_OK);
  assert_int_equal(extends(&c, "long", 1), CORRAL_ELOST);
  op = ask(&c, CORRAL_VERB_UNLOCK, "long", 1, 0);
  assert_true(op.status == CORRAL_ELOST && op.lock_state.left_ms == 0);
  gone(&c);
}

static corral_op takes_over(client *c, const char *name, unsigned holder, unsigned from) {
  static uint8_t of[CORRAL_TOKEN];
  memcpy(of, token(from), sizeof of);
  corral_op op = lock_op(CORRAL_VERB_LOCK_EXTEND, name, holder, 20000);
  op.lock_extend.from = of;
  op.lock_extend.note = "heir";
  op.lock_extend.note_len = 4;
  (void)perform(c, &op, PATIENCE);
  if (c->performed != CORRAL_OK) fail_msg("perform: %s", c->error.text);
  return op;
}

/* The leases tell that nothing is left of the earlier holder's. */
static void a_hold_is_taken_over_with_a_lease_and_a_larger_token(void **state) {
  (void)state;
  client c = fresh();
  int64_t now;
  corral_op first = ask(&c, CORRAL_VERB_LOCK, "over", 1, 60000), op = takes_over(&c, "over", 2, 1);
  assert_int_equal(op.status, CORRAL_OK);
  assert_true(op.lock_state.fence > first.lock_state.fence);
  assert_true(op.lock_state.left_ms > 30000); /* never shortened */
  corral_hold hold = shown(&c, "over", &now);
  assert_string_equal(hold.note, "heir");
  assert_true(hold.fence == op.lock_state.fence);
  assert_true(takes_over(&c, "over", 2, 1).lock_state.fence == hold.fence);
  assert_int_equal(takes_over(&c, "over", 3, 1).status, CORRAL_ELOST);
  assert_int_equal(unlocks(&c, "over", 1), CORRAL_ELOST);
  assert_int_equal(extends(&c, "over", 2), CORRAL_OK);
  op = takes_over(&c, "over", 3, 2);
  assert_true(op.status == CORRAL_OK && op.lock_state.fence > hold.fence);
  assert_int_equal(unlocks(&c, "over", 3), CORRAL_OK);
  first = ask(&c, CORRAL_VERB_LOCK, "over", 4, 20000);
  assert_true(first.status == CORRAL_OK && first.lock_state.fence > op.lock_state.fence);
  assert_int_equal(unlocks(&c, "over", 4), CORRAL_OK);
  assert_null(strstr(etcd_server_ask(server, "/v3/lease/leases", "{}"), "\"ID\""));
  gone(&c);
}

static void a_key_that_somebody_removed_is_told_as_lost(void **state) {
  (void)state;
  client c = fresh();
  for (int taken = 0; taken < 2; taken++) {
    assert_int_equal(locks(&c, "k", 1), CORRAL_OK);
    /* key: corral/k */
    (void)etcd_server_ask(server, "/v3/kv/deleterange", "{\"key\":\"Y29ycmFsL2s=\"}");
    if (taken) assert_int_equal(locks(&c, "k", 2), CORRAL_OK);
    assert_int_equal(extends(&c, "k", 1), CORRAL_ELOST);
    corral_op op = ask(&c, CORRAL_VERB_UNLOCK, "k", 1, 0);
    assert_int_equal(op.status, CORRAL_ELOST);
    assert_int_equal(op.lock_state.left_ms > 0, taken);
  }
  assert_int_equal(unlocks(&c, "k", 2), CORRAL_OK);
  gone(&c);
}

static void show_tells_who_since_when_and_for_how_long(void **state) {
  (void)state;
  client c = fresh();
  static const char note[] = "host \"quoted\" \\ 1/2 \xff\x01\ttab";
  int64_t now, before = c.k.host->wall_ms();
  assert_int_equal(ask(&c, CORRAL_VERB_LOCK_SHOW, "who", 0, 0).status, CORRAL_EMISS);
  corral_op op = lock_op(CORRAL_VERB_LOCK, "who", 7, 20000);
  op_notes(&op, note);
  assert_int_equal(perform(&c, &op, PATIENCE), CORRAL_OK);
  corral_hold hold = shown(&c, "who", &now);
  assert_memory_equal(hold.token, token(7), CORRAL_TOKEN);
  assert_string_equal(hold.note, note);
  assert_int_equal(hold.mode, CORRAL_LOCK_EXCLUSIVE);
  assert_true(hold.fence == op.lock_state.fence);
  assert_true(hold.since >= before && hold.since <= now);
  assert_true(hold.until - now >= 10000 && hold.until - now <= 21000);
  assert_int_equal(unlocks(&c, "who", 7), CORRAL_OK);
  gone(&c);
}

static void names_of_any_bytes_are_different_locks(void **state) {
  (void)state;
  client c = fresh();
  char longest[4096];
  memset(longest, 0xff, sizeof longest);
  const struct name {
    const char *bytes;
    size_t len;
  } names[] = {{"a", 1},
               {"a\0", 2},
               {"a\0b", 3},
               {"\xff", 1},
               {"\xff\xff", 2},
               {"\"\\\n", 3},
               {longest, sizeof longest},
               {longest, sizeof longest - 1}};
  for (int round = 0; round < 3; round++)
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
      corral_op op = lock_op(round < 2 ? CORRAL_VERB_LOCK : CORRAL_VERB_UNLOCK, "",
                             round == 1 ? 99 : i + 1, 20000);
      op.key = names[i].bytes;
      op.key_len = names[i].len;
      assert_int_equal(perform(&c, &op, PATIENCE), round == 1 ? CORRAL_EBUSY : CORRAL_OK);
    }
  assert_int_equal(c.info.max_key, sizeof longest);
  gone(&c);
}

/* A reply with all of them would have 9 MB. */
enum { KEYS = 2600, AT_ONCE = 100, ZEROS = 3600, LENGTH = (8 + ZEROS) / 4 * 3 + 2 };

typedef struct counted {
  int count;
  uint8_t last[LENGTH];
} counted;

static int count_it(void *arg, const void *key, size_t len) {
  counted *c = arg;
  assert_int_equal(len, LENGTH);
  assert_true(memcmp(key, c->last, LENGTH) > 0);
  memcpy(c->last, key, LENGTH);
  c->count++;
  return 0;
}

/* Puts the keys: "corral/nn" and more, which is a number as digits of base64. */
static void put_many(void) {
  static char body[AT_ONCE * (ZEROS + 80)];
  for (int i = 0; i < KEYS; i += AT_ONCE) {
    size_t used = (size_t)snprintf(body, sizeof body, "{\"success\":[");
    for (int j = i; j < i + AT_ONCE; j++)
      used += (size_t)snprintf(body + used, sizeof body - used,
                               "%s{\"request_put\":{\"key\":\"Y29ycmFsL25u%08d%0*d\"}}",
                               j > i ? "," : "", j, ZEROS, 0);
    snprintf(body + used, sizeof body - used, "]}");
    assert_non_null(strstr(etcd_server_ask(server, "/v3/kv/txn", body), "\"succeeded\":true"));
  }
}

static void more_keys_than_one_reply_has_room_for_are_listed_in_order(void **state) {
  (void)state;
  counted found = {.count = 0};
  client c = fresh();
  corral_listing listing = {.size = sizeof listing,
                            .op_ms = 20000,
                            .prefix = "n",
                            .prefix_len = 1,
                            .tell = count_it,
                            .arg = &found};
  put_many();
  if (c.k.plugin->list(c.k.store, &listing, &c.error) != CORRAL_OK)
    fail_msg("%d of them: %s", found.count, c.error.text);
  assert_int_equal(found.count, KEYS);
  etcd_server_ask(server, "/v3/kv/deleterange",
                  "{\"key\":\"Y29ycmFsL24=\",\"range_end\":\"Y29ycmFsL28=\"}");
  gone(&c);
}

static void what_it_cannot_do_it_says(void **state) {
  (void)state;
  client c = fresh();
  for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_RENEW; verb++) {
    assert_int_equal(ask(&c, (corral_verb)verb, "k", 1, 1000).status, CORRAL_EUNSUPPORTED);
    assert_non_null(strstr(c.error.text, "has locks only, no values"));
    assert_int_equal(c.error.status, CORRAL_EUNSUPPORTED);
  }
  for (int verb = CORRAL_VERB_LOCK; verb <= CORRAL_VERB_LOCK_EXTEND; verb++) {
    corral_op op = lock_op((corral_verb)verb, "k", 1, 1000);
    op.flags = CORRAL_OP_SHARED;
    assert_int_equal(perform(&c, &op, PATIENCE), CORRAL_EUNSUPPORTED);
    assert_non_null(strstr(c.error.text, "no shared locks"));
  }
  assert_int_equal(c.info.locks_only, 1);
  gone(&c);
}

static void a_batch_is_done_in_order(void **state) {
  (void)state;
  client c = fresh();
  uint8_t tokens[2][CORRAL_TOKEN];
  corral_op ops[5] = {{0}};
  static const int verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK, CORRAL_VERB_UNLOCK,
                              CORRAL_VERB_LOCK, CORRAL_VERB_UNLOCK};
  static const int holders[] = {0, 1, 0, 1, 1},
                   statuses[] = {CORRAL_OK, CORRAL_EBUSY, CORRAL_OK, CORRAL_OK, CORRAL_OK};
  for (unsigned i = 0; i < 2; i++) memcpy(tokens[i], token(i + 1), CORRAL_TOKEN);
  for (int i = 0; i < 5; i++) {
    ops[i] = lock_op((corral_verb)verbs[i], "batch", 0, 20000);
    ops[i].token = tokens[holders[i]];
  }
  assert_int_equal(perform_ops(c.k.plugin, c.k.handle, ops, 5, soon(&c.k), NULL), CORRAL_OK);
  for (int i = 0; i < 5; i++) assert_int_equal(ops[i].status, statuses[i]);
  gone(&c);
}

/* ---- foreign keys -------------------------------------------------------------------------- */

static void foreign_keys_are_left_alone_and_repaired_on_request_only(void **state) {
  (void)state;
  client c = fresh();
  /* key: corral/f. Values: "x"; corral's own value, but without a lease */
  static const char *const values[] = {
      "eA==", "eyJ0b2tlbiI6IjAxMDAwMDAwMDEwMDAwMDAwMTAwMDAwMDAxMDAwMDAwIiwic2luY2UiOiIxIn0="};
  for (size_t i = 0; i < 2; i++) {
    char body[200];
    snprintf(body, sizeof body, "{\"key\":\"Y29ycmFsL2Y=\",\"value\":\"%s\"}", values[i]);
    (void)etcd_server_ask(server, "/v3/kv/put", body);
    corral_op op = ask(&c, CORRAL_VERB_LOCK, "f", 1, 20000);
    assert_true(op.status == CORRAL_EFOREIGN && op.lock_state.left_ms == -1);
    assert_int_equal(extends(&c, "f", 1), CORRAL_ELOST);
    op = ask(&c, CORRAL_VERB_UNLOCK, "f", 1, 0);
    assert_true(op.status == CORRAL_ELOST && op.lock_state.left_ms == -1);
    op = ask(&c, CORRAL_VERB_LOCK_SHOW, "f", 1, 60000);
    assert_true(op.status == CORRAL_EFOREIGN && op.lock_state.left_ms == -1);
    op.flags = CORRAL_OP_REPAIR;
    assert_int_equal(perform(&c, &op, PATIENCE), CORRAL_EFOREIGN);
    assert_true(op.lock_state.left_ms == 60000);
    op.lock_show.foreign_ms =
        1000; /* the first end stays; with a lease, corral's own value is a hold */
    assert_int_equal(perform(&c, &op, PATIENCE), i == 0 ? CORRAL_EFOREIGN : CORRAL_OK);
    assert_true(op.lock_state.left_ms > 30000);
    done(&op);
    assert_non_null(
        strstr(etcd_server_ask(server, "/v3/kv/range", "{\"key\":\"Y29ycmFsL2Y=\"}"), values[i]));
    (void)etcd_server_ask(server, "/v3/kv/deleterange", "{\"key\":\"Y29ycmFsL2Y=\"}");
  }
  gone(&c);
}

static void two_prefixes_are_two_worlds(void **state) {
  (void)state;
  char text[100];
  client c = fresh();
  snprintf(text, sizeof text, "%s?prefix=%%ff%%ff", etcd_server_uri(server));
  client other = connected(text);
  assert_int_equal(locks(&c, "k", 1), CORRAL_OK);
  assert_int_equal(locks(&other, "k", 2), CORRAL_OK);
  ear *e = ear_open(&other.k);
  assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
  assert_int_equal(unlocks(&other, "k", 2), CORRAL_OK);
  is_told(e, "k");
  assert_int_equal(e->count, 1);
  ear_close(e);
  gone(&c);
  gone(&other);
}

/* ---- users --------------------------------------------------------------------------------- */

static void ask_ok(etcd_server *at, const char *path, const char *body) {
  const char *reply = etcd_server_ask(at, path, body);
  if (strstr(reply, "error") != NULL) fail_msg("%s: %s", path, reply);
}

static void add_users(etcd_server *at) {
  ask_ok(at, "/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"r\"}");
  ask_ok(at, "/v3/auth/role/add", "{\"name\":\"root\"}");
  ask_ok(at, "/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
  ask_ok(at, "/v3/auth/user/add", "{\"name\":\"ann\",\"password\":\"a\\\"b:c\"}");
  ask_ok(at, "/v3/auth/role/add", "{\"name\":\"locks\"}");
  /* range: corral/ to corral0 */
  ask_ok(at, "/v3/auth/role/grant",
         "{\"name\":\"locks\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"Y29ycmFsLw==\","
         "\"range_end\":\"Y29ycmFsMA==\"}}");
  ask_ok(at, "/v3/auth/user/grant", "{\"user\":\"ann\",\"role\":\"locks\"}");
  ask_ok(at, "/v3/auth/enable", "{}");
}

static void is_turned_away(const char *format, int port, const char *says) {
  char text[120];
  client c;
  snprintf(text, sizeof text, format, port);
  assert_int_equal(open_only(&c, text), CORRAL_OK);
  int status = connects(&c, PATIENCE);
  if (status == CORRAL_OK) status = locks(&c, "k", 1);
  assert_int_equal(status, CORRAL_EAUTH);
  assert_int_equal(c.error.status, CORRAL_EAUTH);
  if (strstr(c.error.text, says) == NULL) fail_msg("%s", c.error.text);
  gone(&c);
}

static void users_are_known_by_their_password_also_after_the_server_forgot_them(void **state) {
  (void)state;
  etcd_server *other = NULL;
  char text[120];
  if (server == NULL || !etcd_server_start(&other, NULL)) skip();
  int port = etcd_server_port(other);
  is_turned_away("etcd://ann:b@127.0.0.1:%d", port, "authentication is not enabled");
  add_users(other);
  is_turned_away("etcd://ann:b@127.0.0.1:%d", port, "authentication failed");
  is_turned_away("etcd://127.0.0.1:%d", port, "user name is empty");
  is_turned_away("etcd://ann:a%%22b%%3ac@127.0.0.1:%d?prefix=x", port, "permission denied");
  snprintf(text, sizeof text, "etcd://ann:a%%22b%%3ac@127.0.0.1:%d", port);
  client c = connected(text);
  assert_int_equal(locks(&c, "k", 1), CORRAL_OK);
  ear *e = ear_open(&c.k);
  assert_int_equal(listen_until(e, -1, c.k.host->now_ms() + 3000), 0);
  assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
  is_told(e, "k");
  ear_close(e);
  assert_int_equal(locks(&c, "k", 1), CORRAL_OK);
  etcd_server_restart(other);
  assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
  gone(&c);
  etcd_server_stop(other);
}

static const char make_certificates[] =
    "set -e; cd \"$1\"; exec >log 2>&1\n"
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out "
    "ca.crt -days 2 -subj /CN=test-ca\n"
    "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out "
    "server.csr -subj /CN=server\n"
    "echo 'subjectAltName=IP:127.0.0.1' >server.ext\n"
    "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt "
    "-days 2 -extfile server.ext\n";

static int shell(const char *script, const char *arg) {
  int status = -1;
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    execlp("sh", "sh", "-c", script, "sh", arg, (char *)NULL);
    _exit(127);
  }
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void tls_names_the_server(void **state) {
  (void)state;
  char folder[ROOM_PATH], crt[64], key[64], text[160];
  etcd_server *other;
  if (server == NULL) skip();
  room_folder(folder, "etcd-tls");
  if (shell(make_certificates, folder) != 0) {
    fprintf(stderr, "SKIPPED: the openssl command is missing, or made no certificates\n");
    skip();
  }
  snprintf(crt, sizeof crt, "%s/server.crt", folder);
  snprintf(key, sizeof key, "%s/server.key", folder);
  const char *const args[] = {"--cert-file", crt, "--key-file", key, NULL};
  assert_true(etcd_server_start(&other, args));
  snprintf(text, sizeof text, "%s?tls=yes&tls_ca=%s/ca.crt", etcd_server_uri(other), folder);
  client c = connected(text);
  assert_int_equal(locks(&c, "k", 1), CORRAL_OK);
  ear *e = ear_open(&c.k);
  assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
  is_told(e, "k");
  ear_close(e);
  gone(&c);
  snprintf(text, sizeof text, "%s?tls=yes", etcd_server_uri(other));
  assert_int_equal(open_only(&c, text), CORRAL_OK);
  assert_int_equal(connects(&c, PATIENCE), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "certificate"));
  gone(&c);
  snprintf(text, sizeof text, "%s?tls=yes&tls_verify=no", etcd_server_uri(other));
  c = connected(text);
  gone(&c);
  etcd_server_stop(other);
  assert_int_equal(shell("rm -rf \"$1\"", folder), 0);
}

/* ---- the URI ------------------------------------------------------------------------------- */

static void wrong_uris_are_told_what_is_accepted(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
  } rows[] = {
      {"etcd://h/x", "nothing but parameters"},
      {"etcd://h,,g", "a host is empty"},
      {"etcd://h,", "a host is empty"},
      {"etcd://,h", "a host is empty"},
      {"etcd://h,g:0", "host:port"},
      {"etcd://h,g:99999", "host:port"},
      {"etcd://h,g:1x", "host:port"},
      {"etcd://h,a b", "host:port"},
      {"etcd://h,[::1", "[address]:port"},
      {"etcd://h,[::1]x", "[address]:port"},
      {"etcd://h,[]", "[address]:port"},
      {"etcd://h,g#x", "host:port"},
      {"etcd://h?tls=1", "tls accepts yes and no"},
      {"etcd://h?tls_ca=/x", "need tls=yes"},
      {"etcd://h?tls=no&tls_verify=no", "need tls=yes"},
      {"etcd://h?tls=yes&tls_key=/x", "tls_cert"},
      {"etcd://h?prefix=", "1 to 200 bytes"},
      {"etcd://h?db=1", "accepted: prefix tls"},
      {"etcd://u@h", "user:password@"},
      {"etcd://:p@h", "user:password@"},
      {"etcd://h?tls=yes&tls_verify=x", "tls_verify accepts"},
  };
  client c;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(open_only(&c, rows[i].text), CORRAL_EURI);
    if (strstr(c.error.text, rows[i].says) == NULL) fail_msg("%s: %s", rows[i].text, c.error.text);
  }
  static const char *const right[][2] = {{"etcd:", "etcd 127.0.0.1:2379"},
                                         {"etcd://", "etcd 127.0.0.1:2379"},
                                         {"etcd://[::1]", "etcd [::1]:2379"},
                                         {"etcd://[fe80::1]:99/", "etcd [fe80::1]:99"},
                                         {"etcd://a.b-c,d:1,e", "etcd a.b-c:2379 and 2 more"}};
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    assert_int_equal(open_only(&c, right[i][0]), CORRAL_OK);
    assert_string_equal(c.info.name, right[i][1]);
    gone(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lock_is_held_by_one_until_it_is_released),
      cmocka_unit_test(a_lock_that_is_mine_already_is_granted_again),
      cmocka_unit_test(a_lock_that_was_lost_half_way_is_repeated_with_its_whole_life),
      cmocka_unit_test(an_unlock_of_what_is_not_held_ends_its_lease_too),
      cmocka_unit_test(an_unlock_leaves_no_lease_behind),
      cmocka_unit_test(a_hold_is_extended_by_its_holder_only_also_beyond_its_first_life),
      cmocka_unit_test(a_hold_is_taken_over_with_a_lease_and_a_larger_token),
      cmocka_unit_test(a_key_that_somebody_removed_is_told_as_lost),
      cmocka_unit_test(show_tells_who_since_when_and_for_how_long),
      cmocka_unit_test(names_of_any_bytes_are_different_locks),
      cmocka_unit_test(more_keys_than_one_reply_has_room_for_are_listed_in_order),
      cmocka_unit_test(what_it_cannot_do_it_says),
      cmocka_unit_test(a_batch_is_done_in_order),
      cmocka_unit_test(foreign_keys_are_left_alone_and_repaired_on_request_only),
      cmocka_unit_test(two_prefixes_are_two_worlds),
      cmocka_unit_test(users_are_known_by_their_password_also_after_the_server_forgot_them),
      cmocka_unit_test(tls_names_the_server),
      cmocka_unit_test(wrong_uris_are_told_what_is_accepted),
  };
  if (!etcd_server_start(&server, NULL)) return 77;
  return cmocka_run_group_tests(tests, begin_all, end_all);
}
