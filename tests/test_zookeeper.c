/* test_zookeeper.c: the ZooKeeper plugin, through its table, on a real server: the verbs, queues,
 * and refusals. */
#include "support/zookeeper_kit.h"

static kit forgetful; /* has a place in a queue, left by one test for a later one */

/* ---- each verb ----------------------------------------------------------------------------- */

static void a_lock_is_taken_shown_extended_and_released_by_its_token_alone(void **state) {
  (void)state;
  kit k = begin();
  corral_hold hold;
  int64_t wall = 0;
  assert_int_equal(shown(&k, "verbs", NULL, NULL), 0);
  corral_op op = ask(&k, CORRAL_VERB_LOCK, "verbs", 1, 0, 0);
  assert_int_equal(op.status, CORRAL_OK);
  assert_in_range(op.lock_state.left_ms, 1, LONG_MS); /* not LEASE_MS: the server grants less */
  assert_true(op.lock_state.fence > 0);
  assert_int_equal(shown(&k, "verbs", &hold, &wall), 1);
  assert_memory_equal(hold.token, token(1), CORRAL_TOKEN);
  assert_memory_equal(hold.note, "who\0", 4);
  assert_int_equal(hold.mode, CORRAL_LOCK_EXCLUSIVE);
  assert_int_equal(hold.fence, op.lock_state.fence);
  assert_in_range(wall - hold.since + 1000, 0, 20000);
  assert_in_range(hold.until - wall, LEASE_MS - 20000, LEASE_MS);
  assert_int_equal(tries(&k, "verbs", 2, 0), CORRAL_EBUSY);
  assert_int_equal(tries(&k, "verbs", 2, CORRAL_OP_SHARED), CORRAL_EBUSY);
  corral_op other = ask(&k, CORRAL_VERB_LOCK_EXTEND, "verbs", 2, 0, 0);
  assert_int_equal(other.status, CORRAL_ELOST);
  assert_int_equal(other.lock_state.left_ms, -1);
  other = ask(&k, CORRAL_VERB_UNLOCK, "verbs", 2, 0, 0);
  assert_int_equal(other.status, CORRAL_ELOST);
  assert_int_equal(other.lock_state.left_ms, -1);
  other = ask(&k, CORRAL_VERB_LOCK_EXTEND, "verbs", 1, 0, 0);
  assert_int_equal(other.status, CORRAL_OK);
  assert_int_equal(other.lock_state.fence, op.lock_state.fence);
  other = ask(&k, CORRAL_VERB_LOCK, "verbs", 1, 0, 0);
  assert_int_equal(other.status, CORRAL_OK);
  assert_int_equal(other.lock_state.fence, op.lock_state.fence);
  assert_int_equal(unlocks(&k, "verbs", 1), CORRAL_OK);
  other = ask(&k, CORRAL_VERB_UNLOCK, "verbs", 1, 0, 0);
  assert_int_equal(other.status, CORRAL_ELOST);
  assert_int_equal(other.lock_state.left_ms, 0);
  assert_int_equal(extends(&k, "verbs", 1), CORRAL_ELOST);
  assert_int_equal(shown(&k, "verbs", NULL, NULL), 0);
  closed(&k);
}

static void what_is_no_lock_is_refused(void **state) {
  (void)state;
  kit k = begin();
  corral_error error = {0};
  for (uint32_t what = CORRAL_VERB_GET; what < CORRAL_VERB_LOCK; what++) {
    corral_op op = op_of((corral_verb)what, "k", 1);
    op.error = &error;
    assert_int_equal(run(&k, &op), CORRAL_EUNSUPPORTED);
    assert_non_null(strstr(error.text, "locks only"));
  }
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "fence", 1);
  assert_int_equal(tries(&k, "fence", 1, 0), CORRAL_OK);
  op.lock_extend.fence = UINT64_MAX;
  assert_int_equal(run(&k, &op), CORRAL_EUNSUPPORTED);
  closed(&k);
}

static void a_hold_is_over_when_its_life_has_passed_without_an_extension(void **state) {
  (void)state;
  kit a = begin(), b = begin();
  int64_t from = a.host->now_ms();
  corral_op op = ask_within(&a, CORRAL_VERB_LOCK, "life", 1, 0, 6000, 0, PATIENT_MS);
  assert_int_equal(op.status, CORRAL_OK);
  assert_in_range(op.lock_state.left_ms, 1, 6000);
  while (a.host->now_ms() < from + 1000) nap_ms(10);
  from = a.host->now_ms();
  assert_int_equal(
      ask_within(&a, CORRAL_VERB_LOCK_EXTEND, "life", 1, 0, 6500, 0, PATIENT_MS).status, CORRAL_OK);
  gets_within(&b, "life", 2, 6500 + SLACK_MS);
  assert_true(b.host->now_ms() - from >= 6450);
  assert_int_equal(extends(&a, "life", 1), CORRAL_ELOST);
  op = ask(&a, CORRAL_VERB_UNLOCK, "life", 1, 0, 0);
  assert_int_equal(op.status, CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms, -1);
  closed(&a);
  closed(&b);
}

static void names_are_bytes(void **state) {
  (void)state;
  static char big[60000];
  kit k = begin();
  const struct {
    const void *name;
    size_t len;
  } names[] = {{"a/b", 3},        {"a", 1},
               {".", 1},          {"..", 2},
               {"%2E", 3},        {"\0", 1},
               {"\0\0", 2},       {"\xff\xc3\x28", 3},
               {big, sizeof big}, {big, sizeof big - 1},
               {"%h", 2}};
  memset(big, '/', sizeof big);
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
      corral_op op = op_of(CORRAL_VERB_LOCK, "", 1 + (unsigned)pass);
      op.key = names[i].name;
      op.key_len = names[i].len;
      if (run(&k, &op) != (pass == 0 ? CORRAL_OK : CORRAL_EBUSY))
        fail_msg("name %zu: %s", i, corral_status_name(op.status));
    }
  closed(&k);
}

/* ---- queues -------------------------------------------------------------------------------- */

static void five_waiters_come_in_order_and_a_release_wakes_the_next_alone(void **state) {
  (void)state;
  enum { ALL = 6 };
  kit k[ALL];
  ear *ears[ALL];
  for (unsigned i = 0; i < ALL; i++) {
    k[i] = begin();
    ears[i] = ear_open(&k[i]);
    assert_int_equal(waits(&k[i], "five", 10 + i, 0), i == 0 ? CORRAL_OK : CORRAL_EBUSY);
  }
  for (int round = 0; round < 3; round++) assert_int_equal(extends(&k[0], "five", 10), CORRAL_OK);
  assert_int_equal(shown(&k[0], "five", NULL, NULL), 1);
  uint64_t fence = 0;
  for (unsigned i = 0; i + 1 < ALL; i++) {
    for (unsigned j = i + 1; j < ALL; j++)
      assert_int_equal(waits(&k[j], "five", 10 + j, 0), CORRAL_EBUSY);
    assert_int_equal(unlocks(&k[i], "five", 10 + i), CORRAL_OK);
    is_told(ears[i + 1], "five");
    corral_op op = ask(&k[i + 1], CORRAL_VERB_LOCK, "five", 11 + i, 0, WISH_MS);
    assert_int_equal(op.status, CORRAL_OK);
    assert_true(op.lock_state.fence > fence);
    fence = op.lock_state.fence;
  }
  for (unsigned i = 0; i < ALL; i++) {
    catch_up(ears[i]);
    assert_int_equal(ears[i]->count, i == 0 ? 0 : 1);
    ear_close(ears[i]);
    closed(&k[i]);
  }
}

static void a_waiter_that_leaves_lets_the_one_behind_it_move_up(void **state) {
  (void)state;
  kit a = begin(), b = begin(), c = begin();
  ear *e = ear_open(&c);
  assert_int_equal(waits(&a, "leave", 1, 0), CORRAL_OK);
  assert_int_equal(waits(&b, "leave", 2, 0), CORRAL_EBUSY);
  assert_int_equal(waits(&c, "leave", 3, 0), CORRAL_EBUSY);
  assert_int_equal(unlocks(&b, "leave", 2), CORRAL_OK);
  is_told(e, "leave");
  e->count = 0;
  assert_int_equal(waits(&c, "leave", 3, 0), CORRAL_EBUSY);
  assert_int_equal(unlocks(&a, "leave", 1), CORRAL_OK);
  is_told(e, "leave");
  assert_int_equal(waits(&c, "leave", 3, 0), CORRAL_OK);
  ear_close(e);
  closed(&a);
  closed(&b);
  closed(&c);
}

static void a_try_leaves_nothing_behind(void **state) {
  (void)state;
  kit a = begin(), b = begin();
  zhandle_t *zh = outsider();
  assert_int_equal(tries(&a, "try", 1, 0), CORRAL_OK);
  for (unsigned i = 0; i < 20; i++)
    assert_int_equal(tries(&b, "try", 2 + i, i % 2 == 0 ? 0 : CORRAL_OP_SHARED), CORRAL_EBUSY);
  assert_int_equal(nodes_in(zh, "/corral-locks/try"), 1);
  zookeeper_close(zh);
  closed(&a);
  closed(&b);
}

static void readers_share_and_a_writer_keeps_its_place_among_them(void **state) {
  (void)state;
  kit k = begin();
  ear *e = ear_open(&k);
  for (unsigned i = 1; i <= 3; i++)
    assert_int_equal(waits(&k, "rw", i, CORRAL_OP_SHARED), CORRAL_OK);
  assert_int_equal(shown(&k, "rw", NULL, NULL), 3);
  assert_int_equal(waits(&k, "rw", 4, 0), CORRAL_EBUSY);
  assert_int_equal(waits(&k, "rw", 5, CORRAL_OP_SHARED), CORRAL_EBUSY);
  assert_int_equal(tries(&k, "rw", 6, CORRAL_OP_SHARED), CORRAL_EBUSY);
  assert_int_equal(shown(&k, "rw", NULL, NULL), 3);
  for (unsigned i = 1; i <= 3; i++) {
    assert_int_equal(waits(&k, "rw", 4, 0), CORRAL_EBUSY);
    assert_int_equal(unlocks(&k, "rw", i), CORRAL_OK);
  }
  is_told(e, "rw");
  assert_int_equal(waits(&k, "rw", 5, CORRAL_OP_SHARED), CORRAL_EBUSY);
  assert_int_equal(waits(&k, "rw", 4, 0), CORRAL_OK);
  forget(e);
  assert_int_equal(unlocks(&k, "rw", 4), CORRAL_OK);
  is_told(e, "rw");
  assert_int_equal(waits(&k, "rw", 5, CORRAL_OP_SHARED), CORRAL_OK);
  ear_close(e);
  closed(&k);
}

static void a_writer_that_becomes_a_reader_lets_readers_in_and_no_writer(void **state) {
  (void)state;
  kit a = begin(), b = begin(), c = begin();
  ear *writer = ear_open(&a), *reader = ear_open(&b), *late = ear_open(&c);
  corral_hold hold;
  corral_op op = ask(&a, CORRAL_VERB_LOCK, "down", 1, 0, WISH_MS);
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(waits(&b, "down", 2, CORRAL_OP_SHARED), CORRAL_EBUSY);
  assert_int_equal(waits(&a, "down", 3, 0), CORRAL_EBUSY);
  assert_int_equal(waits(&c, "down", 4, CORRAL_OP_SHARED), CORRAL_EBUSY);
  assert_int_equal(extends(&a, "down", 1), CORRAL_OK);
  assert_int_equal(waits(&c, "down", 4, CORRAL_OP_SHARED), CORRAL_EBUSY);
  assert_int_equal(listen_until(reader, -1, b.host->now_ms() + 50), 0);
  corral_op down = ask(&a, CORRAL_VERB_LOCK_EXTEND, "down", 1, CORRAL_OP_SHARED, 0);
  assert_int_equal(down.status, CORRAL_OK);
  assert_int_equal(down.lock_state.fence, op.lock_state.fence);
  is_told(reader, "down");
  assert_int_equal(waits(&b, "down", 2, CORRAL_OP_SHARED), CORRAL_OK);
  assert_int_equal(extends(&a, "down", 1), CORRAL_OK);
  assert_int_equal(shown(&b, "down", &hold, NULL), 2);
  assert_int_equal(hold.mode, CORRAL_LOCK_SHARED);
  assert_int_equal(waits(&a, "down", 3, 0), CORRAL_EBUSY);
  assert_int_equal(waits(&c, "down", 4, CORRAL_OP_SHARED), CORRAL_EBUSY);
  catch_up(writer);
  catch_up(late);
  assert_int_equal(writer->count + late->count, 0);
  assert_int_equal(unlocks(&a, "down", 3), CORRAL_OK);
  is_told(late, "down");
  assert_int_equal(waits(&c, "down", 4, CORRAL_OP_SHARED), CORRAL_OK);
  assert_int_equal(tries(&c, "down", 5, CORRAL_OP_SHARED), CORRAL_OK);
  assert_int_equal(tries(&c, "down", 6, 0), CORRAL_EBUSY);
  ear_close(writer);
  ear_close(reader);
  ear_close(late);
  closed(&a);
  closed(&b);
  closed(&c);
}

static void a_queue_has_an_end_and_foreign_nodes_are_no_part_of_it(void **state) {
  (void)state;
  kit k = begin();
  zhandle_t *zh = outsider();
  assert_int_equal(tries(&k, "full", 1, CORRAL_OP_SHARED), CORRAL_OK);
  assert_int_equal(zoo_create(zh, "/corral-locks/full/a-foreign-node", "", 0, &ZOO_OPEN_ACL_UNSAFE,
                              ZOO_EPHEMERAL, NULL, 0),
                   ZOK);
  for (int i = 1; i < CORRAL_LOCK_HOLDS; i++) {
    char path[80];
    snprintf(path, sizeof path, "/corral-locks/full/s-%032x-", i);
    int rc = zoo_acreate(zh, path, "s", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, dropped,
                         NULL);
    if (rc != ZOK) fail_msg("%s: %s", path, zerror(rc));
  }
  come_to(zh, "/corral-locks/full", CORRAL_LOCK_HOLDS + 1);
  assert_int_equal(waits(&k, "full", 7, CORRAL_OP_SHARED), CORRAL_EREFUSED);
  assert_int_equal(nodes_in(zh, "/corral-locks/full"), CORRAL_LOCK_HOLDS + 1);
  assert_int_equal(shown(&k, "full", NULL, NULL), CORRAL_LOCK_HOLDS);
  zookeeper_close(zh);
  closed(&k);
}

static void a_waiter_is_forgotten_here(void **state) {
  (void)state;
  forgetful = begin();
  assert_int_equal(tries(&forgetful, "forgotten", 1, 0), CORRAL_OK);
  assert_int_equal(
      ask_within(&forgetful, CORRAL_VERB_LOCK, "forgotten", 2, 0, LEASE_MS, 50, PATIENT_MS).status,
      CORRAL_EBUSY);
}

static void a_waiter_that_nobody_asks_for_any_more_loses_its_place(void **state) {
  (void)state;
  zhandle_t *zh = outsider();
  come_to(zh, "/corral-locks/forgotten", 1);
  assert_int_equal(extends(&forgetful, "forgotten", 1), CORRAL_OK);
  zookeeper_close(zh);
  closed(&forgetful);
}

/* ---- fencing tokens ------------------------------------------------------------------------ */

static void fencing_tokens_grow_also_when_the_queue_is_made_anew(void **state) {
  (void)state;
  kit k[2] = {begin(), begin()};
  zhandle_t *zh = outsider();
  uint64_t fence = 0;
  for (unsigned i = 0; i < 200; i++) {
    corral_op op =
        ask(&k[i % 2], CORRAL_VERB_LOCK, "grow", i, i % 5 == 0 ? CORRAL_OP_SHARED : 0, 0);
    assert_int_equal(op.status, CORRAL_OK);
    if (op.lock_state.fence <= fence)
      fail_msg("acquisition %u: %llu after %llu", i, (unsigned long long)op.lock_state.fence,
               (unsigned long long)fence);
    fence = op.lock_state.fence;
    assert_int_equal(unlocks(&k[i % 2], "grow", i), CORRAL_OK);
    if (i % 20 == 19) assert_int_equal(zoo_delete(zh, "/corral-locks/grow", -1), ZOK);
  }
  zookeeper_close(zh);
  closed(&k[0]);
  closed(&k[1]);
}

static void empty_queues_are_removed_by_the_server_whenever_it_likes(void **state) {
  (void)state;
  zookeeper_server *tidy;
  if (!zookeeper_server_start(&tidy, "-Dznode.container.checkIntervalMs=20")) skip();
  kit k = opened(uri_of(zookeeper_server_port(tidy), ""));
  zhandle_t *zh = outsider_of(zookeeper_server_port(tidy));
  uint64_t fence = 0;
  int64_t until = k.host->now_ms() + 1000;
  unsigned i = 0;
  for (; k.host->now_ms() < until; i++) {
    corral_op op = ask(&k, CORRAL_VERB_LOCK, "empty", i, 0, 0);
    assert_int_equal(op.status, CORRAL_OK);
    if (op.lock_state.fence <= fence)
      fail_msg("acquisition %u: %llu after %llu", i, (unsigned long long)op.lock_state.fence,
               (unsigned long long)fence);
    fence = op.lock_state.fence;
    assert_int_equal(unlocks(&k, "empty", i), CORRAL_OK);
  }
  print_message("%u times locked and unlocked in 1 s\n", i);
  come_to(zh, "/corral-locks", 0);
  zookeeper_close(zh);
  closed(&k);
  zookeeper_server_stop(tidy);
}

static void a_hold_whose_node_somebody_removed_is_lost(void **state) {
  (void)state;
  kit k = begin();
  zhandle_t *zh = outsider();
  struct String_vector names = {0};
  char path[120];
  assert_int_equal(tries(&k, "removed", 1, 0), CORRAL_OK);
  assert_int_equal(zoo_get_children(zh, "/corral-locks/removed", 0, &names), ZOK);
  snprintf(path, sizeof path, "/corral-locks/removed/%s", names.data[0]);
  deallocate_String_vector(&names);
  assert_int_equal(zoo_delete(zh, path, -1), ZOK);
  assert_int_equal(extends(&k, "removed", 1), CORRAL_ELOST);
  assert_int_equal(tries(&k, "removed", 2, 0), CORRAL_OK);
  zookeeper_close(zh);
  closed(&k);
}

/* ---- URIs and users ------------------------------------------------------------------------ */

static void a_wrong_uri_is_refused_with_what_is_accepted(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {"zookeeper://h:0", "65535"},
      {"zookeeper://a,h:65536", "host:port"},
      {"zookeeper://a,h:", "host:port"},
      {"zookeeper://a,,b", "host:port"},
      {"zookeeper://a,b:x", "host:port"},
      {"zookeeper://a,[::1", "host"},
      {"zookeeper://a b", "host:port"},
      {"zookeeper://h/a//b", "empty"},
      {"zookeeper://h/a/../b", ".."},
      {"zookeeper://a,[]", "host:port"},
      {"zookeeper://h/.", "chroot"},
      {"zookeeper://h/a%01", "printable"},
      {"zookeeper://u@h", "user:password"},
      {"zookeeper://:p@h", "user:password"},
      {"zookeeper://h?session=0", "session"},
      {"zookeeper://h?session=100ms", "session"},
      {"zookeeper://h?session=1h", "session"},
      {"zookeeper://h?sesion=1s", "session"},
      {"zookeeper://h//", "empty"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    kit k;
    corral_error error = {0};
    assert_int_equal(kit_open(&k, wrong[i][0], &error), CORRAL_EURI);
    if (strstr(error.text, wrong[i][1]) == NULL) fail_msg("%s: %s", wrong[i][0], error.text);
  }
  char many[200] = "zookeeper://a", deep[260] = "zookeeper://h";
  for (size_t len = strlen(many); len < 150; len += 2) memcpy(many + len, ",a", 3);
  for (size_t len = strlen(deep); len < 250; len += 2) memcpy(deep + len, "/a", 3);
  kit k;
  corral_error error = {0};
  assert_int_equal(kit_open(&k, many, &error), CORRAL_EURI);
  assert_non_null(strstr(error.text, "64"));
  assert_int_equal(kit_open(&k, deep, &error), CORRAL_EURI);
  assert_non_null(strstr(error.text, "200"));
}

static int connects(const char *text, int64_t limit_ms, corral_error *error) {
  crl_uri uri;
  kit k = {.host = crl_registry_host()};
  corral_store_info info = {.size = sizeof info, .max_key = 65536};
  assert_int_equal(crl_uri_parse(&uri, text, error), CORRAL_OK);
  assert_int_equal(crl_registry_find("zookeeper", &k.plugin, error), CORRAL_OK);
  assert_int_equal(k.plugin->open(k.host, &uri.view, &k.store, &info, error), CORRAL_OK);
  assert_int_equal(info.locks_only, 1);
  int status = k.plugin->connect(k.store, k.host->now_ms() + limit_ms, &k.handle, error);
  if (status == CORRAL_OK) k.plugin->disconnect(k.handle);
  k.plugin->close(k.store);
  crl_uri_free(&uri);
  return status;
}

static void who_cannot_be_reached_is_told_of_in_time(void **state) {
  (void)state;
  corral_error error = {0};
  int64_t from = crl_env_now_ms();
  assert_int_equal(connects("zookeeper://127.0.0.1:1", 200, &error), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(error.text, "127.0.0.1:1"));
  assert_int_equal(connects("zookeeper://no..host", 2000, &error), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(error.text, "resolved"));
  assert_true(crl_env_now_ms() - from < 2200 + SLACK_MS);
  char two[100];
  snprintf(two, sizeof two, "zookeeper://127.0.0.1:1,127.0.0.1:%d/", zookeeper_server_port(server));
  assert_int_equal(connects(two, PATIENT_MS, &error), CORRAL_OK);
  snprintf(two, sizeof two, "zookeeper://[::ffff:127.0.0.1]:%d", zookeeper_server_port(server));
  assert_int_equal(connects(two, PATIENT_MS, &error), CORRAL_OK);
}

static kit user(const char *name, const char *rest) {
  static char uri[200];
  snprintf(uri, sizeof uri, "zookeeper://%s:secret@127.0.0.1:%d%s", name,
           zookeeper_server_port(server), rest);
  return opened(uri);
}

static void a_users_locks_are_for_that_user_and_a_chroot_is_another_tree(void **state) {
  (void)state;
  kit a = user("a", "/users/locks/"), also_a = user("a", "/users/locks"),
      b = user("b", "/users/locks"), c = user("b", "/elsewhere");
  assert_int_equal(tries(&a, "k", 1, 0), CORRAL_OK);
  assert_int_equal(tries(&also_a, "k", 2, 0), CORRAL_EBUSY);
  assert_int_equal(tries(&b, "k", 3, 0), CORRAL_EAUTH);
  assert_int_equal(tries(&b, "new", 3, 0), CORRAL_EAUTH);
  assert_int_equal(ask(&b, CORRAL_VERB_LOCK_SHOW, "k", 0, 0, 0).status, CORRAL_EAUTH);
  assert_int_equal(tries(&c, "k", 4, 0), CORRAL_OK);
  closed(&a);
  closed(&also_a);
  closed(&b);
  closed(&c);
}

/* ---- malformed nodes ----------------------------------------------------------------------- */

static void names_and_data_of_any_kind_are_read_safely(void **state) {
  (void)state;
  static const char *const names[] = {
      "",
      "x",
      "x-",
      "x-0-1",
      "y-00000000000000000000000000000001-0000000001",
      "x-0000000000000000000000000000000g-1",
      "x-00000000000000000000000000000001-",
      "x-00000000000000000000000000000001-1z",
      "x-00000000000000000000000000000001-00000000000000000000000000000000001"};
  static const char *const data[] = {"",
                                     "x",
                                     "s ",
                                     "x -5 -5 ",
                                     "x 99999999999999999999 99999999999999999999 n",
                                     "junk",
                                     "x 1000 0 note",
                                     "   ",
                                     "x\n"};
  zk_child a, b;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    assert_int_equal(crl_zk_read_node(names[i], &a), 0);
  assert_int_equal(crl_zk_read_node("x-00000000000000000000000000000001-2147483647", &a), 1);
  assert_int_equal(crl_zk_read_node("x-00000000000000000000000000000001--2147483648", &b), 1);
  assert_true(crl_zk_by_number(&a, &b) < 0 && crl_zk_by_number(&b, &a) > 0 &&
              crl_zk_by_number(&a, &a) == 0);
  for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
    zk_reply got = {.len = strlen(data[i]), .stat = {.mtime = 1000000, .czxid = 7}};
    corral_hold hold;
    memcpy(got.text, data[i], got.len);
    for (int64_t wall = 0; wall < 3000000; wall += 999999) {
      crl_zk_read_hold(&a, &got, wall, &hold);
      assert_true(hold.until > wall);
      assert_int_equal(hold.fence, 7);
    }
  }
}

static _Atomic int losses;

static void count_loss(corral_lock *lock, const char *why, void *arg) {
  (void)lock, (void)why, (void)arg;
  atomic_fetch_add(&losses, 1);
}

/* Nobody extends it: signs of the session are what tells that it lasts. */
static void
a_hold_that_is_longer_than_a_session_lasts_as_long_as_signs_of_the_session_come(void **state) {
  (void)state;
  corral *c;
  corral_lock *heard, *unheard;
  corral_error error = {0};
  atomic_store(&losses, 0);
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = uri_of(zookeeper_server_port(server), "?session=4s"),
                                 .op_ms = 5000),
                  &c, &error),
      CORRAL_OK);
  if (corral_lock_take(c, "long", 4, CORRAL_LOCK(.ttl_ms = 60000, .on_lost = count_loss), &heard,
                       &error) != CORRAL_OK ||
      corral_lock_take(c, "more", 4, CORRAL_LOCK(.ttl_ms = 60000), &unheard, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  assert_true(corral_lock_left_ms(heard) <= 4000);
  nap_ms(9000);
  assert_true(corral_lock_left_ms(heard) > 0 && corral_lock_left_ms(unheard) > 0);
  assert_int_equal(atomic_load(&losses), 0);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_LOCK_EXTENDED), 0);
  corral_lock_holder who;
  size_t count;
  assert_int_equal(corral_lock_show(c, "long", 4, &who, 1, &count, &error), CORRAL_OK);
  assert_in_range(who.left_ms, 20000, 56000); /* its end has not moved */
  /* without a sign it is over by the session's end, long before its own */
  zookeeper_server_pause(server);
  for (int64_t end = crl_env_now_ms() + 40000; atomic_load(&losses) == 0; nap_ms(10))
    if (crl_env_now_ms() > end) fail_msg("the loss isn't told");
  assert_int_equal(corral_lock_left_ms(heard), 0);
  zookeeper_server_resume(server);
  assert_int_equal(corral_lock_release(heard, &error), CORRAL_ELOST);
  (void)corral_lock_release(unheard, &error);
  corral_close(c);
}

/* A session of a second grants at most a second, whatever ttl_ms was requested. */
static void a_kept_lock_is_extended_as_often_as_what_was_granted_asks_for(void **state) {
  (void)state;
  corral *c;
  corral_lock *lock;
  corral_error error = {0};
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = uri_of(zookeeper_server_port(server), "?session=5s"),
                                 .op_ms = 5000),
                  &c, &error),
      CORRAL_OK);
  if (corral_lock_take(c, "kept", 4, CORRAL_LOCK(.ttl_ms = 60000, .keep = 1), &lock, &error) !=
      CORRAL_OK)
    fail_msg("%s", error.text);
  assert_true(corral_lock_left_ms(lock) <= 5000);
  for (int64_t end = crl_env_now_ms() + 30000; corral_counter(c, CORRAL_EVENT_LOCK_EXTENDED) < 3;
       nap_ms(10))
    if (crl_env_now_ms() > end) fail_msg("it isn't extended");
  assert_true(corral_lock_left_ms(lock) > 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  corral_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_kept_lock_is_extended_as_often_as_what_was_granted_asks_for),
      cmocka_unit_test(
          a_hold_that_is_longer_than_a_session_lasts_as_long_as_signs_of_the_session_come),
      cmocka_unit_test(names_and_data_of_any_kind_are_read_safely),
      cmocka_unit_test(a_wrong_uri_is_refused_with_what_is_accepted),
      cmocka_unit_test(a_waiter_is_forgotten_here),
      cmocka_unit_test(a_lock_is_taken_shown_extended_and_released_by_its_token_alone),
      cmocka_unit_test(what_is_no_lock_is_refused),
      cmocka_unit_test(a_hold_is_over_when_its_life_has_passed_without_an_extension),
      cmocka_unit_test(names_are_bytes),
      cmocka_unit_test(five_waiters_come_in_order_and_a_release_wakes_the_next_alone),
      cmocka_unit_test(a_waiter_that_leaves_lets_the_one_behind_it_move_up),
      cmocka_unit_test(a_try_leaves_nothing_behind),
      cmocka_unit_test(readers_share_and_a_writer_keeps_its_place_among_them),
      cmocka_unit_test(a_writer_that_becomes_a_reader_lets_readers_in_and_no_writer),
      cmocka_unit_test(a_queue_has_an_end_and_foreign_nodes_are_no_part_of_it),
      cmocka_unit_test(fencing_tokens_grow_also_when_the_queue_is_made_anew),
      cmocka_unit_test(empty_queues_are_removed_by_the_server_whenever_it_likes),
      cmocka_unit_test(a_hold_whose_node_somebody_removed_is_lost),
      cmocka_unit_test(a_waiter_that_nobody_asks_for_any_more_loses_its_place),
      cmocka_unit_test(who_cannot_be_reached_is_told_of_in_time),
      cmocka_unit_test(a_users_locks_are_for_that_user_and_a_chroot_is_another_tree),
  };
  void *state = NULL;
  if (setup(&state) != 0) return 77;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  teardown(&state);
  return failed;
}
