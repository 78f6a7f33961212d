/* test_etcd_turns.c: turns in order on a real etcd, through the plugin's table: order, waiters that
 * leave or die, callers without a turn, foreign keys among the places. */
#include "etcd/etcd.h"
#include "support/etcd_live_kit.h"

enum { HOLD_MS = 60000, WISH = 2000, LONG_MS = 30000, CROWD = 4, ROUNDS = 3 };

/* ---- one line for each verb ---------------------------------------------------------------- */

static crl_etcd_store *store_of(const client *c) { return c->k.store; }

static corral_op waits(client *c, const char *key, unsigned holder, int64_t wish_ms) {
  corral_op op = lock_op(CORRAL_VERB_LOCK, key, holder, HOLD_MS);
  op.flags = CORRAL_OP_FAIR;
  op.lock.wish_ms = wish_ms;
  (void)perform(c, &op, PATIENCE);
  if (c->performed != CORRAL_OK) fail_msg("perform: %s", c->error.text);
  return op;
}

static void waits_at(client *c, const char *key, unsigned holder, uint64_t place) {
  corral_op op = waits(c, key, holder, WISH);
  if (op.status != CORRAL_EBUSY) fail_msg("%s: %s", corral_status_name(op.status), c->error.text);
  assert_int_equal(op.lock_state.fence, place);
}

static int asks(client *c, const char *key, unsigned holder) {
  return waits(c, key, holder, WISH).status;
}

/* All turns that this process has seen begin anew with its next look, or are over with that. */
static void forget_turns(client *c) { memset(store_of(c)->turns, 0, sizeof store_of(c)->turns); }
static void end_turns(client *c) {
  for (size_t i = 0; i < CRL_ETCD_WAITING; i++) store_of(c)->turns[i].since -= CORRAL_LOCK_TURN_MS;
}

/* Holder 1 has the lock, and 2 to `last` wait, in this order. */
static client crowded(const char *key, unsigned last) {
  client c = fresh();
  assert_int_equal(asks(&c, key, 1), CORRAL_OK);
  for (unsigned i = 2; i <= last; i++) waits_at(&c, key, i, i - 1);
  return c;
}

static void has_left(client *c, const char *key, unsigned holder) {
  assert_int_equal(unlocks(c, key, holder), CORRAL_OK);
}

/* Base64 of the key of a place of lock `key`, whose token is this text. */
static const char *place_key(const client *c, const char *key, const char *token_hex) {
  static char text64[2 * CRL_ETCD_PLACE64];
  uint8_t digest[CORRAL_DIGEST];
  char text[2 * CRL_ETCD_PLACE];
  c->k.host->digest(key, strlen(key), digest);
  size_t len = (size_t)snprintf(text, sizeof text, "corral/~turn:");
  for (int i = 0; i < CORRAL_DIGEST; i++) len += (size_t)snprintf(text + len, 3, "%02x", digest[i]);
  len += (size_t)snprintf(text + len, sizeof text - len, ":%s", token_hex);
  crl_etcd_base64((uint8_t *)text, len, text64);
  return text64;
}

static const char *lock_key(const char *key) {
  static char text64[200];
  char text[100];
  int len = snprintf(text, sizeof text, "corral/%s", key);
  crl_etcd_base64((uint8_t *)text, (size_t)len, text64);
  return text64;
}

/* Puts a key by hand, under this lease; 0: none. */
static void put_key(const char *key64, const char *value64, int64_t lease) {
  char body[1000];
  snprintf(body, sizeof body, "{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%lld\"}", key64,
           value64, (long long)lease);
  assert_null(strstr(etcd_server_ask(server, "/v3/kv/put", body), "error"));
}

static void remove_key(const char *key64) {
  char body[1000];
  snprintf(body, sizeof body, "{\"key\":\"%s\"}", key64);
  assert_non_null(strstr(etcd_server_ask(server, "/v3/kv/deleterange", body), "\"deleted\":\"1\""));
}

static int64_t granted_by_hand(void) {
  const char *reply = etcd_server_ask(server, "/v3/lease/grant", "{\"TTL\":\"600\"}"),
             *id = strstr(reply, "\"ID\":\"");
  assert_non_null(id);
  return strtoll(id + 6, NULL, 10);
}

/* Number of places that LOCK_SHOW tells. */
static size_t places_shown(client *c, const char *key) {
  corral_op op = ask(c, CORRAL_VERB_LOCK_SHOW, key, 0, 0);
  crl_lock_head head = {0};
  corral_hold hold;
  size_t count = 0;
  if (op.status == CORRAL_EMISS) return 0;
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(crl_lock_record_read(op.found.record, op.found.len, &head), CORRAL_OK);
  for (size_t i = 0; i < head.count; i++) {
    crl_lock_record_hold(op.found.record, i, &hold);
    count += crl_lock_record_waits(&hold) != 0;
  }
  done(&op);
  return count;
}

/* ---- order --------------------------------------------------------------------------------- */

static void turns_go_round_in_the_order_of_arrival(void **state) {
  (void)state;
  client c = crowded("round", CROWD);
  uint64_t fence = 0;
  for (unsigned turn = 0; turn < CROWD * ROUNDS; turn++) {
    unsigned holder = turn + 1, next = turn + 2, back = turn + CROWD + 1;
    has_left(&c, "round", holder);
    forget_turns(&c);
    waits_at(&c, "round", back, CROWD); /* the last holder's next taking is at the end */
    for (unsigned other = next + 1; other <= back; other++) {
      forget_turns(&c);
      waits_at(&c, "round", other, other - holder);
    }
    corral_op op = waits(&c, "round", next, WISH);
    assert_int_equal(op.status, CORRAL_OK);
    assert_true(op.lock_state.fence > fence);
    fence = op.lock_state.fence;
    assert_int_equal(places_shown(&c, "round"), CROWD - 1);
  }
  gone(&c);
}

static void who_asks_again_keeps_its_place(void **state) {
  (void)state;
  client c = crowded("again", 3), other = fresh();
  for (int i = 0; i < 3; i++) waits_at(&c, "again", 2, 1);
  waits_at(&other, "again", 4, 3); /* of another process */
  waits_at(&c, "again", 3, 2);
  waits_at(&other, "again", 4, 3);
  assert_int_equal(places_shown(&c, "again"), 3);
  gone(&other);
  gone(&c);
}

static void hold_and_queue_are_shown_in_order(void **state) {
  (void)state;
  client c = crowded("show", 1);
  static const char *const notes[] = {"host/1/1 first", "host/2/2 second"};
  corral_hold hold;
  for (unsigned i = 0; i < 2; i++) {
    corral_op op = lock_op(CORRAL_VERB_LOCK, "show", i + 2, HOLD_MS);
    op.flags = CORRAL_OP_FAIR;
    op.lock.wish_ms = WISH;
    op_notes(&op, notes[i]);
    assert_int_equal(perform(&c, &op, PATIENCE), CORRAL_EBUSY);
  }
  for (unsigned free = 0; free < 2; free++) { /* with a hold, and without */
    corral_op op = ask(&c, CORRAL_VERB_LOCK_SHOW, "show", 0, 0);
    assert_int_equal(op.status, CORRAL_OK);
    assert_int_equal(op.found.len, CORRAL_LOCK_HEAD + (3 - free) * CORRAL_LOCK_HOLD);
    crl_lock_record_hold(op.found.record, 0, &hold);
    assert_int_equal(hold.mode == CORRAL_LOCK_EXCLUSIVE, !free);
    for (unsigned i = 0; i < 2; i++) {
      crl_lock_record_hold(op.found.record, i + 1 - free, &hold);
      assert_int_equal(hold.mode, CORRAL_LOCK_WAITING + CORRAL_LOCK_EXCLUSIVE);
      assert_memory_equal(hold.token, token(i + 2), CORRAL_TOKEN);
      assert_string_equal(hold.note, notes[i]);
      assert_true(hold.until > op.lock_state.now && hold.since > 0 &&
                  hold.since <= op.lock_state.now);
    }
    done(&op);
    if (!free) has_left(&c, "show", 1);
  }
  gone(&c);
}

/* ---- turns that aren't taken --------------------------------------------------------------- */

static void dead_waiters_cost_one_turn_each(void **state) {
  (void)state;
  client c = crowded("dead", 4);
  has_left(&c, "dead", 1);
  int refused[5] = {0}; /* by the place that was told */
  int64_t end = c.k.host->now_ms() + LONG_MS;
  corral_op op = waits(&c, "dead", 4, WISH);
  for (; op.status == CORRAL_EBUSY && c.k.host->now_ms() < end; waiter()) {
    assert_in_range(op.lock_state.fence, 1, 4);
    refused[op.lock_state.fence]++;
    op = waits(&c, "dead", 4, WISH);
  }
  assert_int_equal(op.status, CORRAL_OK);
  assert_true(refused[3] > 0 && refused[2] > 0); /* by the turn of each of the two dead */
  assert_int_equal(places_shown(&c, "dead"), 0);
  waits_at(&c, "dead", 2, 1); /* a late one is at the end */
  gone(&c);
}

static void a_turn_that_is_over_is_still_taken_when_nobody_else_came(void **state) {
  (void)state;
  client c = crowded("late", 3);
  has_left(&c, "late", 1);
  forget_turns(&c);
  waits_at(&c, "late", 3, 2);
  end_turns(&c);
  assert_int_equal(asks(&c, "late", 2), CORRAL_OK);
  waits_at(&c, "late", 3, 1);
  gone(&c);
}

/* By its process: the lease of its places. */
static void a_place_ends_with_the_lease_of_its_process(void **state) {
  (void)state;
  client c = crowded("lease", 3), other = fresh();
  char body[80];
  waits_at(&other, "lease", 4, 3);
  snprintf(body, sizeof body, "{\"ID\":\"%lld\"}", (long long)store_of(&c)->places);
  assert_null(strstr(etcd_server_ask(server, "/v3/lease/revoke", body), "error"));
  waits_at(&other, "lease", 4, 1);
  waits_at(&c, "lease", 3, 2); /* whose process lives after all */
  has_left(&c, "lease", 1);
  assert_int_equal(asks(&other, "lease", 4), CORRAL_OK);
  gone(&other);
  gone(&c);
}

static void who_gives_up_leaves_the_queue_at_once(void **state) {
  (void)state;
  client c = crowded("leave", 4);
  has_left(&c, "leave", 3);
  waits_at(&c, "leave", 4, 2);
  assert_int_equal(unlocks(&c, "leave", 3), CORRAL_ELOST);
  has_left(&c, "leave", 1);
  has_left(&c, "leave", 2); /* in its own turn */
  assert_int_equal(asks(&c, "leave", 4), CORRAL_OK);
  has_left(&c, "leave", 4);
  assert_int_equal(places_shown(&c, "leave"), 0);
  gone(&c);
}

/* ---- callers without a turn ---------------------------------------------------------------- */

static void nobody_without_a_turn_overtakes_the_queue(void **state) {
  (void)state;
  client c = crowded("plain", 2);
  corral_op op = waits(&c, "plain", 8, 0); /* one try */
  assert_true(op.status == CORRAL_EBUSY && op.lock_state.fence == 0);
  has_left(&c, "plain", 1);
  for (unsigned i = 0; i < 3; i++) { /* by a look and without one */
    forget_turns(&c);
    ((crl_etcd_handle *)c.k.handle)->contended = (int)i % 2;
    op = i == 2 ? waits(&c, "plain", 8, 0) : ask(&c, CORRAL_VERB_LOCK, "plain", 9, HOLD_MS);
    assert_int_equal(op.status, CORRAL_EBUSY);
    assert_int_equal(op.lock_state.left_ms, CORRAL_LOCK_TURN_MS); /* a turn that has just begun */
    assert_int_equal(op.lock_state.fence, 0);
  }
  assert_int_equal(places_shown(&c, "plain"), 1);
  assert_int_equal(asks(&c, "plain", 2), CORRAL_OK);
  has_left(&c, "plain", 2);
  assert_int_equal(locks(&c, "plain", 9), CORRAL_OK);
  gone(&c);
}

static void a_caller_without_a_turn_passes_dead_waiters_too(void **state) {
  (void)state;
  client c = crowded("pass", 3);
  has_left(&c, "pass", 1);
  for (unsigned dead = 0; dead < 2; dead++) {
    assert_int_equal(locks(&c, "pass", 9), CORRAL_EBUSY);
    end_turns(&c);
  }
  assert_int_equal(locks(&c, "pass", 9), CORRAL_OK);
  assert_int_equal(places_shown(&c, "pass"), 0);
  gone(&c);
}

/* A version without turns puts the lock's key whenever there is none; here by hand. */
static void put_hold(const char *key) {
  static const char value[] =
      "eyJ0b2tlbiI6IjAxMDAwMDAwMDEwMDAwMDAwMTAwMDAwMDAxMDAwMDAwIiwic2luY2UiOiIxIn0=";
  put_key(lock_key(key), value, granted_by_hand());
}

static void a_hold_of_a_corral_without_turns_is_waited_for_in_the_queue(void **state) {
  (void)state;
  client c = crowded("older", 3);
  has_left(&c, "older", 1);
  put_hold("older");
  waits_at(&c, "older", 2, 1);
  waits_at(&c, "older", 3, 2);
  remove_key(lock_key("older"));
  assert_int_equal(asks(&c, "older", 2), CORRAL_OK);
  gone(&c);
}

static void a_turn_that_such_a_hold_came_into_begins_anew(void **state) {
  (void)state;
  client c = crowded("between", 3);
  has_left(&c, "between", 1);
  waits_at(&c, "between", 3, 2);
  put_hold("between");
  waits_at(&c, "between", 3, 2);
  end_turns(&c);
  remove_key(lock_key("between"));
  waits_at(&c, "between", 3, 2);
  gone(&c);
}

/* ---- foreign keys, many places ------------------------------------------------------------- */

/* One without a lease, and others with names that are no token's. */
static void foreign_keys_among_the_places_count_as_none_and_stay(void **state) {
  (void)state;
  static const char *const names[] = {"00000000000000000000000000000001", "",
                                      "0000000000000000000000000000000g",
                                      "000000000000000000000000000000011", "short"};
  client c = fresh();
  int64_t lease = granted_by_hand();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    put_key(place_key(&c, "foreign", names[i]), "eA==", i == 0 ? 0 : lease);
  assert_int_equal(locks(&c, "foreign", 1), CORRAL_OK);
  waits_at(&c, "foreign", 2, 1);
  waits_at(&c, "foreign", 3, 2);
  assert_int_equal(places_shown(&c, "foreign"), 2);
  has_left(&c, "foreign", 1);
  assert_int_equal(asks(&c, "foreign", 2), CORRAL_OK);
  has_left(&c, "foreign", 2);
  assert_int_equal(asks(&c, "foreign", 3), CORRAL_OK);
  has_left(&c, "foreign", 3);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    remove_key(place_key(&c, "foreign", names[i]));
  gone(&c);
}

/* A place that somebody else wrote, under a lease. */
static void a_place_of_a_stranger_holds_nobody_up_for_longer_than_its_turn(void **state) {
  (void)state;
  client c = fresh();
  put_key(place_key(&c, "strange", "00000000000000000000000000000001"), "eA==", granted_by_hand());
  waits_at(&c, "strange", 2, 2);
  assert_int_equal(places_shown(&c, "strange"), 2);
  end_turns(&c);
  assert_int_equal(asks(&c, "strange", 2), CORRAL_OK);
  assert_int_equal(places_shown(&c, "strange"), 0);
  gone(&c);
}

enum { MORE = CORRAL_LOCK_PLACES - 1, AT_ONCE = MORE / 3 };

/* MORE places by hand. */
static void fill(const client *c, const char *key, int64_t lease) {
  static char body[AT_ONCE * (CRL_ETCD_PLACE64 + 100)];
  for (unsigned i = 1; i <= MORE; i += AT_ONCE) {
    size_t used = (size_t)snprintf(body, sizeof body, "{\"success\":[");
    for (unsigned j = i; j < i + AT_ONCE; j++) {
      char hex[40];
      snprintf(hex, sizeof hex, "%032x", j);
      used += (size_t)snprintf(body + used, sizeof body - used,
                               "%s{\"request_put\":{\"key\":\"%s\",\"lease\":\"%lld\"}}",
                               j > i ? "," : "", place_key(c, key, hex), (long long)lease);
    }
    snprintf(body + used, sizeof body - used, "]}");
    assert_non_null(strstr(etcd_server_ask(server, "/v3/kv/txn", body), "\"succeeded\":true"));
  }
}

static void a_queue_has_so_many_places(void **state) {
  (void)state;
  client c = crowded("full", 2);
  fill(&c, "full", granted_by_hand());
  waits_at(&c, "full", 9000, 0);
  assert_int_equal(places_shown(&c, "full"), CORRAL_LOCK_PLACES);
  has_left(&c, "full", 2);
  waits_at(&c, "full", 9000, CORRAL_LOCK_PLACES);
  gone(&c);
}

/* Locks whose keys begin alike, and other prefixes, have queues of their own. */
static void queues_of_other_locks_and_prefixes_are_others(void **state) {
  (void)state;
  char text[100];
  static const char *const names[] = {"a", "ab", "a:", "a\xff"};
  snprintf(text, sizeof text, "%s?prefix=corral%%2f%%7e", etcd_server_uri(server));
  client c = fresh(), other = connected(text);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    assert_int_equal(asks(&c, names[i], 1), CORRAL_OK);
    waits_at(&c, names[i], 2, 1);
  }
  assert_int_equal(asks(&other, "a", 1), CORRAL_OK);
  waits_at(&other, "a", 2, 1);
  assert_int_equal(places_shown(&c, "a"), 1);
  gone(&other);
  gone(&c);
}

/* The last LOCK compares and removes its own place and the first one. */
static void the_longest_names_and_notes_have_turns_too(void **state) {
  (void)state;
  if (server == NULL) skip();
  char prefix[CRL_ETCD_PREFIX + 1] = "", text[CRL_ETCD_PREFIX + 100], note[CORRAL_LOCK_NOTE];
  static char key[CRL_ETCD_KEY + 1];
  memset(prefix, 'p', CRL_ETCD_PREFIX);
  memset(key, 'k', CRL_ETCD_KEY);
  memset(note, '\x01', sizeof note); /* six bytes each in JSON */
  snprintf(text, sizeof text, "%s?prefix=%s", etcd_server_uri(server), prefix);
  client c = connected(text);
  for (unsigned i = 1; i <= 4; i++) {
    corral_op op = lock_op(CORRAL_VERB_LOCK, key, i < 4 ? i : 3, HOLD_MS);
    op.flags = CORRAL_OP_FAIR;
    op.lock = (corral_lock_args){
        .hold_ms = HOLD_MS, .wish_ms = WISH, .note = note, .note_len = sizeof note};
    if (i == 4) has_left(&c, key, 1);
    if (i == 4) waits_at(&c, key, 3, 2);
    if (i == 4) end_turns(&c);
    assert_int_equal(perform(&c, &op, PATIENCE), i == 2 || i == 3 ? CORRAL_EBUSY : CORRAL_OK);
    assert_int_equal(places_shown(&c, key), i == 4 ? 0 : i - 1);
  }
  has_left(&c, key, 3);
  gone(&c);
}

/* ---- the conformance suite ----------------------------------------------------------------- */

static int conforms(const char *name) {
  char command[600];
  snprintf(command, sizeof command, "'%s' --case %s '%s'", getenv("CORRAL_CONFORMANCE"), name,
           etcd_server_uri(server));
  return system(command);
}

/* A machine that stands still for a turn passes it on in the first case. */
static void the_conformance_suite_finds_its_turns_in_order(void **state) {
  (void)state;
  int status = 1;
  if (getenv("CORRAL_CONFORMANCE") == NULL) skip();
  for (int i = 0; i < 5 && status != 0; i++) status = conforms("turns-go-in-the-order-of-arrival");
  assert_int_equal(status, 0);
  assert_int_equal(conforms("a-turn-that-isnt-taken-passes-on"), 0);
  assert_int_equal(conforms("who-gives-up-leaves-the-queue"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(turns_go_round_in_the_order_of_arrival),
      cmocka_unit_test(who_asks_again_keeps_its_place),
      cmocka_unit_test(hold_and_queue_are_shown_in_order),
      cmocka_unit_test(dead_waiters_cost_one_turn_each),
      cmocka_unit_test(a_turn_that_is_over_is_still_taken_when_nobody_else_came),
      cmocka_unit_test(a_place_ends_with_the_lease_of_its_process),
      cmocka_unit_test(who_gives_up_leaves_the_queue_at_once),
      cmocka_unit_test(nobody_without_a_turn_overtakes_the_queue),
      cmocka_unit_test(a_caller_without_a_turn_passes_dead_waiters_too),
      cmocka_unit_test(a_hold_of_a_corral_without_turns_is_waited_for_in_the_queue),
      cmocka_unit_test(a_turn_that_such_a_hold_came_into_begins_anew),
      cmocka_unit_test(foreign_keys_among_the_places_count_as_none_and_stay),
      cmocka_unit_test(a_place_of_a_stranger_holds_nobody_up_for_longer_than_its_turn),
      cmocka_unit_test(a_queue_has_so_many_places),
      cmocka_unit_test(queues_of_other_locks_and_prefixes_are_others),
      cmocka_unit_test(the_longest_names_and_notes_have_turns_too),
      cmocka_unit_test(the_conformance_suite_finds_its_turns_in_order),
  };
  if (!etcd_server_start(&server, NULL)) return 77;
  return cmocka_run_group_tests(tests, begin_all, end_all);
}
