/* test_mariadb.c: session locks of a real MariaDB through the plugin's table. */
#include "support/hold_kit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "support/mariadb_server.h"

static mariadb_server *server;
static const char *uri;

/* The URI of the server with `user` before its address (user and password, or "") and `rest` behind
 * it. */
static const char *uri_with(const char *user, const char *rest) {
  static char text[200];
  snprintf(text, sizeof text, "mariadb://%s127.0.0.1:%d/%s", user, mariadb_server_port(server),
           rest);
  return text;
}

static void is_refused(const char *text, int status, const char *why) {
  corral_error error = {0};
  kit k = {0};
  int got = kit_open(&k, text, &error);
  if (got == CORRAL_OK) k.plugin->disconnect(k.handle);
  if (k.store != NULL) k.plugin->close(k.store);
  if (got != status || strstr(error.text, why) == NULL)
    fail_msg("%s: %d '%s' instead of %d '%s'", text, got, error.text, status, why);
}

static int connections(void) {
  return (int)strtol(
      mariadb_server_ask(
          server, "SELECT count(*) FROM information_schema.PROCESSLIST WHERE USER = 'lock user'"),
      NULL, 10);
}

static void await_connections(int wanted) {
  for (int i = 0; i < HOLD_PATIENCE_MS && connections() != wanted; i++) poll(NULL, 0, 1);
  assert_int_equal(connections(), wanted);
}

/* ---- verbs --------------------------------------------------------------------------------- */

static void a_lock_is_taken_extended_shown_and_released(void **state) {
  (void)state;
  char note[CORRAL_LOCK_NOTE + 1] = "";
  uint64_t fence = 0;
  kit a = opened(uri), b = opened(uri);
  corral_op op = hold_op(CORRAL_VERB_LOCK, "one", 1, 5000);
  op_notes(&op, "here/1/2 a note");
  assert_int_equal(by(&a, &op, 5000), CORRAL_OK);
  assert_int_equal(op.lock_state.left_ms, 5000);
  assert_true(op.lock_state.fence > (uint64_t)a.host->wall_ms() * 1000);
  corral_op busy = hold_op(CORRAL_VERB_LOCK, "one", 2, 5000);
  assert_int_equal(by(&b, &busy, 5000), CORRAL_EBUSY);
  assert_int_equal(busy.lock_state.left_ms, -1);
  assert_int_equal(take(&a, "one", 2, 5000), CORRAL_EBUSY);
  assert_int_equal(shown(&a, "one", note, &fence), 1);
  assert_string_equal(note, "here/1/2 a note");
  assert_int_equal(fence, op.lock_state.fence);
  assert_int_equal(shown(&b, "one", note, &fence), 1);
  assert_non_null(strstr(note, " of lock user from 127.0.0.1:"));
  assert_int_equal(fence, 0);
  assert_int_equal(extend(&a, "one", 1, 9000), CORRAL_OK);
  /* an extension never shortens the hold */
  corral_op again = hold_op(CORRAL_VERB_LOCK_EXTEND, "one", 1, 1000);
  assert_int_equal(by(&a, &again, 5000), CORRAL_OK);
  assert_in_range(again.lock_state.left_ms, 1, 9000);
  assert_int_equal(again.lock_state.fence, op.lock_state.fence);
  /* the same token again: its hold begins anew */
  again = hold_op(CORRAL_VERB_LOCK, "one", 1, 9000);
  assert_int_equal(by(&a, &again, 5000), CORRAL_OK);
  assert_int_equal(again.lock_state.fence, op.lock_state.fence);
  is_lost(&b, CORRAL_VERB_UNLOCK, "one", 2, 1);
  is_lost(&b, CORRAL_VERB_LOCK_EXTEND, "one", 1, 1); /* the hold belongs to another process */
  assert_int_equal(unlock(&a, "one", 1), CORRAL_OK);
  is_lost(&a, CORRAL_VERB_UNLOCK, "one", 1, 0);
  assert_int_equal(shown(&b, "one", note, NULL), 0);
  assert_int_equal(take(&b, "one", 2, 3600000), CORRAL_OK);
  closed(&b);
  /* closing the store ends its connections, and so its holds */
  take_when_free(&a, "one", 3, 5000);
  closed(&a);
}

static void what_it_has_not_is_refused_with_a_text(void **state) {
  (void)state;
  corral_error error = {0};
  kit k = opened(uri);
  corral_op ops[3] = {hold_op(CORRAL_VERB_GET, "k", 1, 0), hold_op(CORRAL_VERB_LOCK, "k", 1, 1000),
                      hold_op(CORRAL_VERB_LOCK, "k", 1, 1000)};
  ops[0].error = &error;
  ops[1].flags = CORRAL_OP_SHARED;
  assert_int_equal(perform_ops(k.plugin, k.handle, ops, 3, INT64_MAX, NULL), CORRAL_OK);
  assert_int_equal(ops[0].status, CORRAL_EUNSUPPORTED);
  assert_string_equal(error.text, "mariadb has locks only, no values");
  assert_int_equal(ops[1].status, CORRAL_EUNSUPPORTED);
  assert_int_equal(ops[2].status, CORRAL_OK);
  corral_op raise = hold_op(CORRAL_VERB_LOCK_EXTEND, "k", 1, 1000);
  raise.lock_extend.fence = ops[2].lock_state.fence + 1;
  assert_int_equal(by(&k, &raise, 5000), CORRAL_EUNSUPPORTED);
  raise.lock_extend.fence = ops[2].lock_state.fence;
  assert_int_equal(by(&k, &raise, 5000), CORRAL_OK);
  closed(&k);
}

static void names_are_bytes_of_any_value(void **state) {
  (void)state;
  static char long_name[5000];
  static const struct {
    const char *bytes;
    size_t len;
  } names[] = {{"a", 1},       {"A", 1},        {"a ", 2},         {"a\0", 2},       {"\0", 1},
               {"'; DROP", 7}, {"\xff\xfe", 2}, {long_name, 5000}, {long_name, 4999}};
  memset(long_name, 'x', sizeof long_name);
  kit k = opened(uri);
  for (int round = 0; round < 2; round++) {
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
      corral_op op = hold_op(CORRAL_VERB_LOCK, "", 100 * (unsigned)(round + 1) + i, 5000);
      op.key = names[i].bytes;
      op.key_len = names[i].len;
      assert_int_equal(by(&k, &op, 5000), round == 0 ? CORRAL_OK : CORRAL_EBUSY);
    }
  }
  closed(&k);
}

static void fencing_tokens_grow_over_a_thousand_grants_and_a_restart(void **state) {
  (void)state;
  kit k = opened(uri);
  uint64_t last = fences_grow(&k, "n");
  assert_int_equal(connections(), 1); /* one connection for all these holds */
  closed(&k);
  mariadb_server_kill(server);
  mariadb_server_restart(server);
  mariadb_server_settle(server);
  k = opened(uri);
  assert_true(take_fence(&k, "n", 1) > last);
  closed(&k);
}

static void nothing_is_granted_in_the_second_in_which_the_server_started(void **state) {
  (void)state;
  const corral_host *host = crl_registry_host();
  mariadb_server_kill(server);
  /* restarts at the start of a second, so that the server is up before that second ends */
  while (host->wall_ms() % 1000 > 20) poll(NULL, 0, 1);
  mariadb_server_restart(server);
  kit k = opened(uri);
  corral_op op;
  do {
    op = hold_op(CORRAL_VERB_LOCK, "n", 1, 10000);
    if (by(&k, &op, HOLD_PATIENCE_MS) == CORRAL_EBUSY)
      assert_int_equal(op.lock_state.left_ms, 1000);
  } while (op.status == CORRAL_EBUSY);
  assert_int_equal(op.status, CORRAL_OK);
  assert_true((int64_t)(op.lock_state.fence >> 24 & 0xffffffff) < host->wall_ms() / 1000);
  closed(&k);
}

/* ---- ends of holds ------------------------------------------------------------------------- */

static void a_killed_holder_is_replaced_before_its_lease_ends(void **state) {
  (void)state;
  atomic_int *shared = common();
  pid_t pid = holder(uri, shared, 3600000);
  kit k = opened(uri);
  assert_int_equal(take(&k, "held", 1, 1000), CORRAL_EBUSY);
  gone(pid, SIGKILL);
  take_when_free(&k, "held", 1, 1000);
  closed(&k);
  munmap(shared, 4096);
}

static void a_stopped_holder_loses_when_its_lease_is_over_and_is_told(void **state) {
  (void)state;
  atomic_int *shared = common();
  int64_t begun = crl_registry_host()->now_ms();
  pid_t pid = holder(uri, shared, 3500);
  kit k = opened(uri);
  kill(pid, SIGSTOP);
  take_when_free(&k, "held", 1, 60000);
  assert_true(k.host->now_ms() - begun >= 4000); /* leases are rounded up to seconds */
  kill(pid, SIGCONT);
  atomic_store(&shared[2], 1);
  gone(pid, 0);
  assert_int_equal(atomic_load(&shared[3]), 2);
  closed(&k);
  munmap(shared, 4096);
}

static void a_hold_that_is_extended_outlives_its_first_lease(void **state) {
  (void)state;
  kit a = opened(uri), b = opened(uri);
  /* the same connection, with another lease */
  assert_int_equal(take(&a, "n", 1, 60000), CORRAL_OK);
  assert_int_equal(unlock(&a, "n", 1), CORRAL_OK);
  assert_int_equal(take(&a, "n", 1, 4000), CORRAL_OK);
  int64_t begun = a.host->now_ms(), last = begun;
  while (a.host->now_ms() - begun < 6000) {
    last = a.host->now_ms(); /* taken before the extension */
    assert_int_equal(extend(&a, "n", 1, 4000), CORRAL_OK);
    assert_int_equal(take(&b, "n", 2, 1000), CORRAL_EBUSY);
    poll(NULL, 0, 50);
  }
  take_when_free(&b, "n", 2, 60000);
  assert_true(a.host->now_ms() - last >= 3900);
  is_lost(&a, CORRAL_VERB_UNLOCK, "n", 1, 1);
  closed(&a);
  closed(&b);
}

static void a_connection_that_is_killed_is_a_lost_hold(void **state) {
  (void)state;
  kit k = opened(uri);
  static const corral_verb verbs[] = {CORRAL_VERB_LOCK_EXTEND, CORRAL_VERB_UNLOCK};
  for (unsigned i = 0; i < 2; i++) {
    assert_int_equal(take(&k, "n", 1, 60000), CORRAL_OK);
    const char *id = mariadb_server_ask(
        server, "SELECT max(ID) FROM information_schema.PROCESSLIST WHERE USER = 'lock user'");
    mariadb_server_ask(server, "KILL %ld", strtol(id, NULL, 10));
    await_connections(0);
    is_lost(&k, verbs[i], "n", 1, 0);
  }
  assert_int_equal(take(&k, "n", 1, 60000), CORRAL_OK);
  closed(&k);
}

static void holds_of_before_a_restart_are_lost(void **state) {
  (void)state;
  kit k = opened(uri);
  corral_error error = {0};
  for (unsigned i = 1; i <= 3; i++)
    assert_int_equal(take(&k, i == 1 ? "a" : i == 2 ? "b" : "c", i, 60000), CORRAL_OK);
  mariadb_server_kill(server);
  /* no server to ask, and no other holder is known */
  is_lost(&k, CORRAL_VERB_LOCK_EXTEND, "a", 1, 0);
  corral_op op = hold_op(CORRAL_VERB_LOCK, "a", 1, 60000);
  op.error = &error;
  assert_int_not_equal(
      perform_ops(k.plugin, k.handle, &op, 1, k.host->now_ms() + HOLD_PATIENCE_MS, NULL),
      CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(error.text, "Can't connect"));
  mariadb_server_restart(server);
  mariadb_server_settle(server);
  assert_int_equal(take(&k, "b", 4, 60000), CORRAL_OK);
  is_lost(&k, CORRAL_VERB_UNLOCK, "b", 2, 1);
  is_lost(&k, CORRAL_VERB_UNLOCK, "c", 3, 0);
  closed(&k);
}

static void connections_that_the_server_ended_while_idle_are_replaced(void **state) {
  (void)state;
  kit k = opened(uri);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(take(&k, "n", 1, 4000), CORRAL_OK);
    assert_int_equal(unlock(&k, "n", 1), CORRAL_OK);
    if (i == 1) mariadb_server_kill(server);
    if (i == 1) mariadb_server_restart(server);
    if (i == 1)
      mariadb_server_settle(server);
    else
      await_connections(0);
  }
  closed(&k);
}

static void what_a_holder_execs_doesnt_inherit_its_connections(void **state) {
  (void)state;
  kit k = opened(uri);
  int sockets = 0;
  assert_int_equal(take(&k, "a", 1, 60000), CORRAL_OK);
  assert_int_equal(take(&k, "b", 2, 60000), CORRAL_OK);
  for (int fd = 3; fd < 100; fd++) {
    struct sockaddr_in peer = {0};
    socklen_t len = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &len) != 0 ||
        ntohs(peer.sin_port) != mariadb_server_port(server))
      continue;
    sockets++;
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  }
  assert_int_equal(sockets, 2);
  closed(&k);
}

/* ---- time limits --------------------------------------------------------------------------- */

/* Where a second passes before the operation is sent, it is tried again. */
static void in_time(const kit *k, corral_op *op, int status) {
  const corral_op asked = *op;
  int64_t begun;
  int got, tries = 0;
  do {
    *op = asked;
    begun = k->host->now_ms();
    got = perform_ops(k->plugin, k->handle, op, 1, begun + 1000, NULL);
  } while (op->status == CORRAL_EUNAVAILABLE && ++tries < 10);
  assert_true(k->host->now_ms() - begun >= 990);
  assert_int_equal(op->status, status);
  assert_int_not_equal(got, CORRAL_OK);
}

static void a_server_that_hangs_is_left_by_the_deadline(void **state) {
  (void)state;
  kit k = opened(uri);
  void *handle = NULL;
  corral_error error = {0};
  assert_int_equal(take(&k, "a", 1, 60000), CORRAL_OK);
  assert_int_equal(take(&k, "b", 2, 60000), CORRAL_OK);
  assert_int_equal(take(&k, "c", 3, 60000), CORRAL_OK);
  assert_int_equal(unlock(&k, "c", 3), CORRAL_OK); /* leaves an idle connection for the next LOCK */
  mariadb_server_pause(server);
  corral_op op = hold_op(CORRAL_VERB_LOCK, "c", 4, 60000);
  in_time(&k, &op, CORRAL_EINDOUBT);
  op = hold_op(CORRAL_VERB_LOCK_EXTEND, "a", 1, 60000);
  in_time(&k, &op, CORRAL_EINDOUBT);
  op = hold_op(CORRAL_VERB_UNLOCK, "b", 2, 60000);
  in_time(&k, &op, CORRAL_EINDOUBT);
  int64_t begun = k.host->now_ms();
  assert_int_equal(k.plugin->connect(k.store, begun + 1000, &handle, &error), CORRAL_EUNAVAILABLE);
  assert_true(k.host->now_ms() - begun >= 990);
  assert_non_null(strstr(error.text, "time allowed is over"));
  mariadb_server_resume(server);
  assert_int_equal(extend(&k, "a", 1, 60000), CORRAL_OK); /* the hold outlived the pause */
  take_when_free(&k, "b", 5, 60000);
  take_when_free(&k, "c", 6, 60000);
  is_lost(&k, CORRAL_VERB_UNLOCK, "b", 2, 1);
  is_lost(&k, CORRAL_VERB_UNLOCK, "c", 4, 1);
  closed(&k);
}

static void a_store_of_a_server_that_hangs_is_closed_at_once(void **state) {
  (void)state;
  kit k = opened(uri);
  assert_int_equal(take(&k, "a", 1, 60000), CORRAL_OK);
  assert_int_equal(take(&k, "b", 2, 60000), CORRAL_OK);
  mariadb_server_pause(server);
  corral_op op = hold_op(CORRAL_VERB_LOCK_EXTEND, "a", 1, 1000);
  in_time(&k, &op, CORRAL_EINDOUBT);
  int64_t begun = k.host->now_ms();
  const corral_host *host = k.host;
  closed(&k);
  assert_true(host->now_ms() - begun < 20000);
  mariadb_server_resume(server);
}

static void a_passed_deadline_asks_nothing(void **state) {
  (void)state;
  kit k = opened(uri);
  corral_op op = hold_op(CORRAL_VERB_LOCK, "a", 1, 1000);
  assert_int_equal(by(&k, &op, -1), CORRAL_EUNAVAILABLE);
  assert_int_equal(take(&k, "a", 2, 60000), CORRAL_OK);
  closed(&k);
}

/* ---- limits -------------------------------------------------------------------------------- */

static void more_holds_than_connections_are_refused_with_a_text(void **state) {
  (void)state;
  corral_error error = {0};
  char note[CORRAL_LOCK_NOTE + 1];
  kit k = opened(uri_with("lock%20user:p%40ss%3Aword%2F@", "?connections=2"));
  assert_int_equal(take(&k, "a", 1, 60000), CORRAL_OK);
  assert_int_equal(take(&k, "b", 2, 60000), CORRAL_OK);
  corral_op op = hold_op(CORRAL_VERB_LOCK, "c", 3, 60000);
  op.error = &error;
  assert_int_equal(by(&k, &op, 5000), CORRAL_EREFUSED);
  assert_non_null(strstr(error.text, "connections="));
  assert_int_equal(shown(&k, "a", note, NULL), 1); /* LOCK_SHOW has a connection besides these */
  assert_int_equal(unlock(&k, "a", 1), CORRAL_OK);
  assert_int_equal(take(&k, "c", 3, 60000), CORRAL_OK);
  closed(&k);
}

static void a_server_without_room_for_more_is_unavailable(void **state) {
  (void)state;
  corral_error error = {0};
  kit k = opened(uri);
  unsigned i = 0;
  char name[32];
  corral_op op;
  mariadb_server_ask(server, "SET GLOBAL max_connections = 10");
  do {
    i++;
    op = hold_op(CORRAL_VERB_LOCK, numbered(name, "n", i), i, 60000);
    op.error = &error;
  } while (by(&k, &op, 5000) == CORRAL_OK && i < 60);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  assert_in_range(i, 8, 12);
  assert_non_null(strstr(error.text, "Too many connections"));
  closed(&k);
  mariadb_server_ask(server, "SET GLOBAL max_connections = 60");
}

/* ---- URIs and users ------------------------------------------------------------------------ */

static void wrong_uris_and_users_say_what_is_wrong(void **state) {
  (void)state;
  is_refused("mariadb:", CORRAL_EURI, "accepted is mariadb://");
  is_refused("mariadb://a,b/", CORRAL_EURI, "more than one host");
  is_refused("mariadb://a/b/c", CORRAL_EURI, "no more than /DB");
  is_refused("mariadb://a/?socket=/x", CORRAL_EURI, "exclude each other");
  is_refused("mariadb:///?socket=x", CORRAL_EURI, "absolute path");
  is_refused("mariadb://a/?connections=0", CORRAL_EURI, "connections");
  is_refused("mariadb://a/?sokket=/x", CORRAL_EURI, "socket");
  is_refused(uri_with("lock%20user:wrong@", ""), CORRAL_EAUTH, "Access denied");
  is_refused(uri_with("lock%20user@", ""), CORRAL_EAUTH, "Access denied");
  is_refused(uri_with("root@", "nowhere"), CORRAL_EURI, "Unknown database");
  is_refused(uri_with("lock%20user:p%40ss%3Aword%2F@", "mysql"), CORRAL_EAUTH, "Access denied");
  is_refused("mariadb://127.0.0.1:1/", CORRAL_EUNAVAILABLE, "127.0.0.1:1: ");
  is_refused("mariadb:///?socket=/no/such/socket", CORRAL_EUNAVAILABLE, "/no/such/socket");
  is_refused("mariadb://no-such-name.invalid/", CORRAL_EUNAVAILABLE, "looked up");
}

static void a_unix_socket_a_database_and_a_hosts_name_are_as_good(void **state) {
  (void)state;
  char text[200];
  snprintf(text, sizeof text, "mariadb://root@/mysql?socket=%s", mariadb_server_socket(server));
  kit a = opened(text);
  snprintf(text, sizeof text, "mariadb://lock%%20user:p%%40ss%%3Aword%%2F@localhost:%d/",
           mariadb_server_port(server));
  kit b = opened(text); /* a host name; one of its addresses may have no listener */
  assert_int_equal(take(&a, "n", 1, 60000), CORRAL_OK);
  assert_int_equal(take(&b, "n", 2, 1000), CORRAL_EBUSY);
  closed(&a);
  closed(&b);
}

/* ---- many locks ---------------------------------------------------------------------------- */

static void processes_that_race_for_a_lock_never_overlap(void **state) {
  (void)state;
  race_for(uri, 60);
}

typedef struct pusher {
  kit k;
  atomic_int ended, wrong;
} pusher;

static void *keep_extending(void *arg) {
  pusher *p = arg;
  while (!atomic_load(&p->ended)) {
    int status = extend(&p->k, "kept", 1, 5000);
    if (status != CORRAL_OK && status != CORRAL_ELOST) atomic_store(&p->wrong, status);
    char note[CORRAL_LOCK_NOTE + 1];
    (void)shown(&p->k, "kept", note, NULL);
  }
  return NULL;
}

static void a_keeper_and_a_releaser_share_a_hold_by_turns(void **state) {
  (void)state;
  pusher p = {.k = opened(uri)};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, keep_extending, &p), 0);
  for (int i = 0; i < 300; i++) {
    assert_int_equal(take(&p.k, "kept", 1, 5000), CORRAL_OK);
    assert_int_equal(extend(&p.k, "kept", 1, 5000), CORRAL_OK);
    assert_int_equal(unlock(&p.k, "kept", 1), CORRAL_OK);
  }
  atomic_store(&p.ended, 1);
  pthread_join(thread, NULL);
  assert_int_equal(atomic_load(&p.wrong), 0);
  closed(&p.k);
}

/* Teardown: waits until all connections of the test are closed. */
static int settle_down(void **state) {
  mariadb_server_resume(server); /* after a failed test the server may be paused */
  (void)state;
  await_connections(0);
  return 0;
}

#define CASE(name) cmocka_unit_test_teardown(name, settle_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(a_lock_is_taken_extended_shown_and_released),
      CASE(what_it_has_not_is_refused_with_a_text),
      CASE(names_are_bytes_of_any_value),
      CASE(fencing_tokens_grow_over_a_thousand_grants_and_a_restart),
      CASE(nothing_is_granted_in_the_second_in_which_the_server_started),
      CASE(a_killed_holder_is_replaced_before_its_lease_ends),
      CASE(a_stopped_holder_loses_when_its_lease_is_over_and_is_told),
      CASE(a_hold_that_is_extended_outlives_its_first_lease),
      CASE(a_connection_that_is_killed_is_a_lost_hold),
      CASE(holds_of_before_a_restart_are_lost),
      CASE(connections_that_the_server_ended_while_idle_are_replaced),
      CASE(what_a_holder_execs_doesnt_inherit_its_connections),
      CASE(a_server_that_hangs_is_left_by_the_deadline),
      CASE(a_store_of_a_server_that_hangs_is_closed_at_once),
      CASE(a_passed_deadline_asks_nothing),
      CASE(more_holds_than_connections_are_refused_with_a_text),
      CASE(a_server_without_room_for_more_is_unavailable),
      CASE(wrong_uris_and_users_say_what_is_wrong),
      CASE(a_unix_socket_a_database_and_a_hosts_name_are_as_good),
      CASE(processes_that_race_for_a_lock_never_overlap),
      CASE(a_keeper_and_a_releaser_share_a_hold_by_turns),
  };
  if (!mariadb_server_start(&server)) return 77;
  uri = mariadb_server_uri(server);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  mariadb_server_stop(server);
  return failed;
}
