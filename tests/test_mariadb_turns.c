/* test_mariadb_turns.c: LOCKs in turn through the plugin's table, in the queue of a real MariaDB:
 * waiters that are stopped, late, killed or cut off, and what they cost. The order of grants and
 * what is told of the queue is in test_lock_fair.c, too. */
#include "support/hold_kit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "support/mariadb_server.h"

enum { WISH_MS = 2000, STATEMENT_S = 1, HOUR = 3600000, PATIENCE_MS = 40000 };

static mariadb_server *server;
static const char *uri;

static int64_t later(void) { return crl_registry_host()->now_ms() + PATIENCE_MS; }

/* ---- asking in turn ------------------------------------------------------------------------ */

static corral_op fair_op(const char *name, unsigned holder, int64_t hold_ms) {
  corral_op op = hold_op(CORRAL_VERB_LOCK, name, holder, hold_ms);
  op.flags = CORRAL_OP_FAIR;
  op.lock.wish_ms = WISH_MS;
  return op;
}

/* Asks for "n", is refused, and has this place. */
static void waits_at(const kit *k, unsigned holder, uint64_t place) {
  corral_op op = fair_op("n", holder, HOUR);
  assert_int_equal(by(k, &op, HOLD_PATIENCE_MS), CORRAL_EBUSY);
  assert_true(op.flags & CORRAL_OP_QUEUED);
  assert_int_equal(op.lock_state.left_ms, -1);
  assert_int_equal(op.lock_state.fence, place);
}

static int asks(const kit *k, unsigned holder) {
  corral_op op = fair_op("n", holder, HOUR);
  return by(k, &op, HOLD_PATIENCE_MS);
}

/* Asks until it is granted; returns the fencing token. */
static uint64_t gets(const kit *k, const char *name, unsigned holder) {
  int64_t end = later();
  for (;;) {
    corral_op op = fair_op(name, holder, HOUR);
    if (by(k, &op, HOLD_PATIENCE_MS) == CORRAL_OK) return op.lock_state.fence;
    if (k->host->now_ms() > end)
      fail_msg("holder %u isn't granted '%s': status %d", holder, name, op.status);
    poll(NULL, 0, 2);
  }
}

/* The holder gives the lock up, and the next one gets it. */
static void passes_on(const kit *k, unsigned holder, const kit *to, unsigned next) {
  assert_int_equal(unlock(k, "n", holder), CORRAL_OK);
  (void)gets(to, "n", next);
}

/* Asks until its place is this one. */
static void comes_to(const kit *k, unsigned holder, uint64_t place) {
  int64_t end = later();
  for (;;) {
    corral_op op = fair_op("n", holder, HOUR);
    int status = by(k, &op, HOLD_PATIENCE_MS);
    if (status == CORRAL_EBUSY && op.lock_state.fence == place) return;
    if (status == CORRAL_OK || k->host->now_ms() > end)
      fail_msg("holder %u: status %d, place %d, not %d", holder, status, (int)op.lock_state.fence,
               (int)place);
    poll(NULL, 0, 2);
  }
}

/* ---- the server's view --------------------------------------------------------------------- */

/* Connections that wait for a lock, as "3,7", in the order of their numbers. */
static const char *waiting(void) {
  return mariadb_server_ask(server, "SELECT GROUP_CONCAT(ID ORDER BY ID) FROM "
                                    "information_schema.PROCESSLIST WHERE STATE = 'User lock'");
}

static void await_waiting(const char *wanted) {
  char now[200] = "";
  for (int64_t end = later(); crl_registry_host()->now_ms() < end; poll(NULL, 0, 5)) {
    snprintf(now, sizeof now, "%s", waiting());
    if (strcmp(now, wanted) == 0) return;
  }
  fail_msg("'%s' wait, not '%s'", now, wanted);
}

static int connections(void) {
  return (int)strtol(
      mariadb_server_ask(
          server, "SELECT count(*) FROM information_schema.PROCESSLIST WHERE USER = 'lock user'"),
      NULL, 10);
}

static int settle_down(void **state) {
  (void)state;
  for (int64_t end = later(); crl_registry_host()->now_ms() < end && connections() != 0;)
    poll(NULL, 0, 5);
  assert_int_equal(connections(), 0);
  return 0;
}

/* ---- order --------------------------------------------------------------------------------- */

static void the_cases_of_the_conformance_suite_about_turns_are_met(void **state) {
  (void)state;
  const char *program = getenv("CORRAL_CONFORMANCE");
  char command[1024], line[600];
  int met = 0;
  assert_non_null(program);
  snprintf(command, sizeof command,
           "'%s' --case turns-go-in-the-order-of-arrival --case a-turn-that-isnt-taken-passes-on "
           "--case who-gives-up-leaves-the-queue '%s'",
           program, uri);
  FILE *lines = popen(command, "r");
  assert_non_null(lines);
  while (fgets(line, sizeof line, lines) != NULL) {
    printf("%s", line);
    met += strncmp(line, "  ok ", 5) == 0;
  }
  assert_int_equal(pclose(lines), 0);
  assert_int_equal(met, 3);
}

enum { CROWD = 5, ROUNDS = 4, GAMES = 8 };

/* The holder releases, and comes last. The lock goes to the next in the queue, and to nobody else.
 * 1: in its turn; a waiter that slept through that has it later. */
static int is_a_round(const kit k[CROWD], unsigned holder, uint64_t *last) {
  unsigned next = (holder + 1) % CROWD;
  assert_int_equal(unlock(&k[holder], "n", holder), CORRAL_OK);
  int passed = take(&k[holder], "n", 99, 1000) == CORRAL_OK, came = asks(&k[holder], holder);
  corral_op op = fair_op("n", next, HOUR);
  int in_turn = by(&k[next], &op, HOLD_PATIENCE_MS) == CORRAL_OK;
  uint64_t fence = in_turn ? op.lock_state.fence : gets(&k[next], "n", next);
  assert_false(passed);
  assert_int_equal(came, CORRAL_EBUSY);
  assert_true(fence > *last);
  *last = fence;
  return in_turn;
}

static void turns_go_round_and_nobody_passes_those_that_wait(void **state) {
  (void)state;
  uint64_t last = 0;
  int sorted = 0;
  for (int game = 0; game < GAMES && !sorted; game++) {
    kit k[CROWD];
    for (unsigned i = 0; i < CROWD; i++) k[i] = opened(uri);
    (void)gets(&k[0], "n", 0);
    for (unsigned i = 1; i < CROWD; i++) waits_at(&k[i], i, i);
    sorted = 1;
    for (unsigned turn = 0; turn < CROWD * ROUNDS; turn++)
      sorted &= is_a_round(k, turn % CROWD, &last);
    for (unsigned i = 0; i < CROWD; i++) closed(&k[i]);
  }
  assert_true(sorted);
}

static void a_waiter_keeps_its_session_and_its_place_however_long_it_waits(void **state) {
  (void)state;
  char before[64];
  mariadb_server_ask(server, "SET GLOBAL max_statement_time = %d", STATEMENT_S);
  kit a = opened(uri), b = opened(uri);
  assert_int_equal(take(&a, "n", 1, HOUR), CORRAL_OK);
  waits_at(&b, 2, 1);
  snprintf(before, sizeof before, "%s", waiting());
  int64_t end = b.host->now_ms() + 1000 * (2 * STATEMENT_S + 1);
  while (b.host->now_ms() < end) waits_at(&b, 2, 1);
  assert_string_equal(waiting(), before);
  mariadb_server_ask(server, "SET GLOBAL max_statement_time = 0");
  passes_on(&a, 1, &b, 2);
  closed(&a);
  closed(&b);
}

/* ---- waiters that leave, die or hang ------------------------------------------------------- */

static void a_waiter_that_leaves_gives_its_place_and_its_connection_back(void **state) {
  (void)state;
  kit a = opened(uri), b = opened(uri);
  assert_int_equal(take(&a, "n", 1, HOUR), CORRAL_OK);
  waits_at(&b, 2, 1);
  is_lost(&b, CORRAL_VERB_LOCK_EXTEND, "n", 2, 1); /* a place is no hold */
  waits_at(&b, 3, 2);
  assert_int_equal(unlock(&b, "n", 2), CORRAL_OK);
  is_lost(&b, CORRAL_VERB_UNLOCK, "n", 2, 1);
  comes_to(&b, 3, 1);
  assert_int_equal(unlock(&b, "n", 3), CORRAL_OK);
  await_waiting("");
  /* one that has its turn, and doesn't know */
  waits_at(&b, 4, 1);
  assert_int_equal(unlock(&a, "n", 1), CORRAL_OK);
  await_waiting("");
  assert_int_equal(unlock(&b, "n", 4), CORRAL_OK);
  take_when_free(&a, "n", 5, HOUR);
  closed(&a);
  closed(&b);
}

/* Waits for "n" as holder 77, which it tells by shared[0]: 1 it has a place, 2 it has the lock. */
static void wait_in_turn(const char *at, atomic_int *shared) {
  kit k = opened(at);
  corral_op op = fair_op("n", 77, HOUR);
  while (by(&k, &op, HOLD_PATIENCE_MS) != CORRAL_OK) {
    if (op.flags & CORRAL_OP_QUEUED) atomic_store(&shared[0], 1);
    poll(NULL, 0, 2);
    op = fair_op("n", 77, HOUR);
  }
  atomic_store(&shared[0], 2);
  while (atomic_load(&shared[1]) == 0) poll(NULL, 0, 1);
  closed(&k);
}

static void a_waiter_that_is_stopped_loses_its_turn_and_waits_again(void **state) {
  (void)state;
  atomic_int *shared = common();
  kit k = opened(uri);
  assert_int_equal(take(&k, "n", 1, HOUR), CORRAL_OK);
  pid_t pid = other(wait_in_turn, uri, shared);
  await_at_least(&shared[0], 1);
  waits_at(&k, 2, 2);
  kill(pid, SIGSTOP);
  assert_int_equal(unlock(&k, "n", 1), CORRAL_OK);
  uint64_t fence = gets(&k, "n", 2);
  kill(pid, SIGCONT);
  for (int i = 0; i < 50; i++, poll(NULL, 0, 2)) assert_int_equal(atomic_load(&shared[0]), 1);
  assert_int_equal(unlock(&k, "n", 2), CORRAL_OK);
  await_at_least(&shared[0], 2);
  atomic_store(&shared[1], 1);
  gone(pid, 0);
  assert_true(gets(&k, "n", 3) > fence);
  closed(&k);
  munmap(shared, 4096);
}

static void a_waiter_that_is_killed_passes_its_turn_on(void **state) {
  (void)state;
  atomic_int *shared = common();
  kit k = opened(uri);
  assert_int_equal(take(&k, "n", 1, HOUR), CORRAL_OK);
  pid_t pid = other(wait_in_turn, uri, shared);
  await_at_least(&shared[0], 1);
  waits_at(&k, 2, 2);
  gone(pid, SIGKILL);
  comes_to(&k, 2, 1); /* before its turn, too */
  passes_on(&k, 1, &k, 2);
  atomic_store(&shared[0], 0);
  pid = other(wait_in_turn, uri, shared);
  await_at_least(&shared[0], 1);
  waits_at(&k, 3, 2);
  gone(pid, SIGKILL);
  passes_on(&k, 2, &k, 3);
  closed(&k);
  munmap(shared, 4096);
}

/* The hold of a second is as long as a turn. */
static void a_waiter_that_comes_too_late_has_no_hold_and_goes_to_the_end(void **state) {
  (void)state;
  kit a = opened(uri), b = opened(uri);
  assert_int_equal(take(&a, "n", 1, HOUR), CORRAL_OK);
  corral_op late = fair_op("n", 2, 1000);
  assert_int_equal(by(&b, &late, HOLD_PATIENCE_MS), CORRAL_EBUSY);
  waits_at(&a, 3, 2);
  passes_on(&a, 1, &a, 3);
  late = fair_op("n", 2, 1000);
  assert_int_equal(by(&b, &late, HOLD_PATIENCE_MS), CORRAL_EBUSY);
  assert_int_equal(late.lock_state.fence, 1);
  passes_on(&a, 3, &b, 2);
  closed(&a);
  closed(&b);
}

static void a_waiter_whose_connection_is_killed_waits_again_at_the_end(void **state) {
  (void)state;
  kit a = opened(uri), b = opened(uri);
  assert_int_equal(take(&a, "n", 1, HOUR), CORRAL_OK);
  waits_at(&b, 2, 1);
  long id = strtol(waiting(), NULL, 10);
  waits_at(&a, 3, 2);
  mariadb_server_ask(server, "KILL %ld", id);
  comes_to(&a, 3, 1);
  comes_to(&b, 2, 2);
  passes_on(&a, 1, &a, 3);
  passes_on(&a, 3, &b, 2);
  closed(&a);
  closed(&b);
}

static void waiters_wait_on_over_a_restart_of_the_server(void **state) {
  (void)state;
  kit a = opened(uri), b = opened(uri);
  uint64_t before = gets(&a, "n", 1);
  waits_at(&b, 2, 1);
  waits_at(&b, 3, 2);
  mariadb_server_kill(server);
  mariadb_server_restart(server);
  mariadb_server_settle(server);
  is_lost(&a, CORRAL_VERB_LOCK_EXTEND, "n", 1, 0);
  assert_true(gets(&b, "n", 2) > before);
  comes_to(&b, 3, 1);
  passes_on(&b, 2, &b, 3);
  closed(&a);
  closed(&b);
}

#define CONNECTIONS_OF "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %ld"

static long next_id(void) {
  return strtol(mariadb_server_ask(server, "SELECT CONNECTION_ID()"), NULL, 10) + 1;
}

/* The server is told to end a waiter's connection by its number. Since the restart that is
 * another's. */
static void a_waiter_of_before_a_restart_leaves_without_ending_anothers_connection(void **state) {
  (void)state;
  while (next_id() < 60) {
  }
  kit a = opened(uri), b = opened(uri);
  assert_int_equal(take(&a, "n", 1, HOUR), CORRAL_OK);
  waits_at(&b, 2, 1);
  long id = strtol(waiting(), NULL, 10);
  mariadb_server_kill(server);
  mariadb_server_restart(server);
  while (next_id() < id) {
  }
  kit c = opened(uri);
  assert_string_equal(mariadb_server_ask(server, CONNECTIONS_OF, id), "1");
  assert_int_equal(unlock(&b, "n", 2), CORRAL_OK);
  assert_string_equal(mariadb_server_ask(server, CONNECTIONS_OF, id), "1");
  mariadb_server_settle(server);
  closed(&a);
  closed(&b);
  closed(&c);
}

/* ---- a waiter that is cut off -------------------------------------------------------------- */

/* Passes on what comes between a client and the server, one thread for all connections. When `cut`
 * is set the first connection ends at the server's side, and the client isn't told; when `swallow`
 * is, the next one that would wait for a lock does, before it waits. */
typedef struct relay {
  int listener, port, ends[8][2];
  size_t count;
  atomic_int cut, swallow, over;
  pthread_t thread;
} relay;

static int connected(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr = {htonl(INADDR_LOOPBACK)}};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) abort();
  return fd;
}

static void pass_on(relay *r, int *from, int *to) {
  char bytes[4096];
  ssize_t n = recv(*from, bytes, sizeof bytes, MSG_DONTWAIT);
  if (n < 0) return;
  int waits = n > 0 && memmem(bytes, (size_t)n, "', 31536000)", 12) != NULL;
  if (waits && atomic_exchange(&r->swallow, 0)) {
    close(*to);
    *to = -1;
  }
  if (n > 0 && *to >= 0) (void)!send(*to, bytes, (size_t)n, MSG_NOSIGNAL);
  if (n > 0) return;
  close(*from);
  if (*to >= 0) close(*to);
  *from = *to = -1;
}

static void *relay_all(void *arg) {
  relay *r = arg;
  while (!atomic_load(&r->over)) {
    struct pollfd fds[17] = {{.fd = r->listener, .events = POLLIN}};
    for (size_t i = 0; i < 2 * r->count; i++)
      fds[1 + i] = (struct pollfd){.fd = r->ends[i / 2][i % 2], .events = POLLIN};
    if (poll(fds, (nfds_t)(1 + 2 * r->count), 10) > 0 && fds[0].revents != 0 && r->count < 8) {
      r->ends[r->count][0] = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
      r->ends[r->count++][1] = connected(mariadb_server_port(server));
    }
    if (atomic_load(&r->cut) && r->ends[0][1] >= 0) {
      close(r->ends[0][1]);
      r->ends[0][1] = -1;
    }
    for (size_t i = 0; i < 2 * r->count; i++)
      if (r->ends[i / 2][i % 2] >= 0)
        pass_on(r, &r->ends[i / 2][i % 2], &r->ends[i / 2][1 - i % 2]);
  }
  return NULL;
}

static void relay_start(relay *r) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t len = sizeof at;
  r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(r->listener, (struct sockaddr *)&at, len), 0);
  assert_int_equal(listen(r->listener, 8), 0);
  assert_int_equal(getsockname(r->listener, (struct sockaddr *)&at, &len), 0);
  r->port = ntohs(at.sin_port);
  assert_int_equal(pthread_create(&r->thread, NULL, relay_all, r), 0);
}

static void relay_stop(relay *r) {
  atomic_store(&r->over, 1);
  pthread_join(r->thread, NULL);
  for (size_t i = 0; i < 2 * r->count; i++)
    if (r->ends[i / 2][i % 2] >= 0) close(r->ends[i / 2][i % 2]);
  close(r->listener);
}

static void a_waiter_that_the_server_has_lost_finds_out_and_waits_again(void **state) {
  (void)state;
  static relay r; /* its thread outlives a test that fails */
  char text[200], before[64];
  relay_start(&r);
  snprintf(text, sizeof text, "mariadb://lock%%20user:p%%40ss%%3Aword%%2F@127.0.0.1:%d/", r.port);
  kit a = opened(uri), b = opened(text);
  assert_int_equal(take(&a, "n", 1, HOUR), CORRAL_OK);
  waits_at(&b, 2, 1); /* by the connection that was made first */
  snprintf(before, sizeof before, "%s", waiting());
  atomic_store(&r.cut, 1);
  await_waiting("");
  for (int64_t end = later(); a.host->now_ms() < end && waiting()[0] == '\0'; poll(NULL, 0, 5)) {
    corral_op op = fair_op("n", 2, HOUR);
    assert_int_equal(by(&b, &op, 8000), CORRAL_EBUSY);
  }
  assert_string_not_equal(waiting(), "");
  assert_string_not_equal(waiting(), before);
  passes_on(&a, 1, &b, 2);
  closed(&a);
  closed(&b);
  relay_stop(&r);
}

static void a_waiter_that_never_reached_the_queue_finds_out_and_waits_again(void **state) {
  (void)state;
  static relay r;
  char text[200];
  relay_start(&r);
  snprintf(text, sizeof text, "mariadb://lock%%20user:p%%40ss%%3Aword%%2F@127.0.0.1:%d/", r.port);
  kit a = opened(uri), b = opened(text);
  assert_int_equal(take(&a, "n", 1, HOUR), CORRAL_OK);
  atomic_store(&r.swallow, 1);
  for (int64_t end = later(); a.host->now_ms() < end && waiting()[0] == '\0'; poll(NULL, 0, 5)) {
    corral_op op = fair_op("n", 2, HOUR);
    assert_int_equal(by(&b, &op, 8000), CORRAL_EBUSY);
  }
  assert_int_equal(atomic_load(&r.swallow), 0);
  assert_string_not_equal(waiting(), "");
  passes_on(&a, 1, &b, 2);
  closed(&a);
  closed(&b);
  relay_stop(&r);
}

/* ---- limits -------------------------------------------------------------------------------- */

static void waiters_on_all_connections_keep_no_hold_from_its_release(void **state) {
  (void)state;
  char text[200], note[CORRAL_LOCK_NOTE + 1];
  corral_error error = {0};
  snprintf(text, sizeof text, "%s?connections=3", uri);
  kit a = opened(text), b = opened(uri);
  assert_int_equal(take(&a, "n", 1, HOUR), CORRAL_OK);
  assert_int_equal(take(&b, "m", 2, HOUR), CORRAL_OK);
  waits_at(&a, 3, 1);
  corral_op op = fair_op("m", 4, HOUR);
  assert_int_equal(by(&a, &op, HOLD_PATIENCE_MS), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.fence, 1);
  op = fair_op("l", 5, HOUR);
  op.error = &error;
  assert_int_equal(by(&a, &op, HOLD_PATIENCE_MS), CORRAL_EREFUSED);
  assert_non_null(strstr(error.text, "or wait for their turn; connections="));
  assert_int_equal(shown(&a, "m", note, NULL), 1 + 1); /* the holder, and who waits */
  assert_int_equal(extend(&a, "n", 1, HOUR), CORRAL_OK);
  passes_on(&a, 1, &a, 3);
  assert_int_equal(unlock(&a, "n", 3), CORRAL_OK);
  assert_int_equal(unlock(&a, "m", 4), CORRAL_OK);
  (void)gets(&a, "l", 5);
  assert_true(connections() <= 3 + 1 + 2);
  closed(&a);
  closed(&b);
}

#define CASE(name) cmocka_unit_test_teardown(name, settle_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(the_cases_of_the_conformance_suite_about_turns_are_met),
      CASE(turns_go_round_and_nobody_passes_those_that_wait),
      CASE(a_waiter_keeps_its_session_and_its_place_however_long_it_waits),
      CASE(a_waiter_that_leaves_gives_its_place_and_its_connection_back),
      CASE(a_waiter_that_is_stopped_loses_its_turn_and_waits_again),
      CASE(a_waiter_that_is_killed_passes_its_turn_on),
      CASE(a_waiter_that_comes_too_late_has_no_hold_and_goes_to_the_end),
      CASE(a_waiter_whose_connection_is_killed_waits_again_at_the_end),
      CASE(waiters_wait_on_over_a_restart_of_the_server),
      CASE(a_waiter_of_before_a_restart_leaves_without_ending_anothers_connection),
      CASE(a_waiter_that_the_server_has_lost_finds_out_and_waits_again),
      CASE(a_waiter_that_never_reached_the_queue_finds_out_and_waits_again),
      CASE(waiters_on_all_connections_keep_no_hold_from_its_release),
  };
  if (!mariadb_server_start(&server)) return 77;
  uri = mariadb_server_uri(server);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  mariadb_server_stop(server);
  return failed;
}
