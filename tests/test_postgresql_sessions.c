/* test_postgresql_sessions.c: locks in a real PostgreSQL, through the plugin's table: holders,
 * their connections, and a server that goes away. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/postgresql_kit.h"
#include "support/watch_kit.h"
#include "support/fork_kit.h"

/* ---- processes ----------------------------------------------------------------------------- */

/* A child that locks `key` and waits; on request it extends the lock and reports the result. */
typedef struct child {
  pid_t pid;
  int to, from;
} child;

static void be_child(const char *params, const char *key, int64_t lease_ms, int from, int to) {
  char byte;
  kit k = open_at(params);
  answer a = lock(&k, key, 77, lease_ms);
  if (write(to, &a.status, sizeof a.status) != sizeof a.status || read(from, &byte, 1) != 1)
    _exit(1);
  a = extend(&k, key, 77, 60000);
  if (write(to, &a.status, sizeof a.status) != sizeof a.status) _exit(1);
  _exit(0);
}

static int hear(const child *c) {
  int status = 1;
  assert_int_equal(read(c->from, &status, sizeof status), sizeof status);
  return status;
}

static child a_holder(const char *params, const char *key, int64_t lease_ms) {
  int to[2], from[2];
  child c;
  assert_true(pipe(to) == 0 && pipe(from) == 0);
  pid_t parent = getpid();
  c.pid = fork_at_rest();
  assert_true(c.pid >= 0);
  if (c.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    be_child(params, key, lease_ms, to[0], from[1]);
  }
  close(to[0]);
  close(from[1]);
  c.to = to[1];
  c.from = from[0];
  assert_int_equal(hear(&c), CORRAL_OK);
  return c;
}

static void ended(child *c) {
  kill(c->pid, SIGKILL);
  waitpid(c->pid, NULL, 0);
  close(c->to);
  close(c->from);
}

static void
a_dead_holder_is_replaced_when_its_hold_ends_or_at_once_when_its_session_does(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer got;
    int64_t hold_ms = is_advisory(modes[i]) ? 10 * 60000 : 4000, from = crl_env_now_ms();
    child c = a_holder(modes[i], "dead", hold_ms);
    expect("held", lock(&k, "dead", 1, 1000), CORRAL_EBUSY);
    ended(&c);
    (void)lock_at_last(&k, "dead", 1, &got); /* with less patience than the session's hold has */
    if (!is_advisory(modes[i])) assert_true(crl_env_now_ms() - from >= hold_ms);
    expect("unlock", unlock(&k, "dead", 1), CORRAL_OK);
    closed(&k);
  }
}

static void a_stopped_holder_is_replaced_and_told_so(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer got;
    int64_t from = crl_env_now_ms();
    child c = a_holder(modes[i], "stopped", 600);
    kill(c.pid, SIGSTOP);
    (void)lock_at_last(&k, "stopped", 1, &got);
    assert_true(crl_env_now_ms() - from >= 600);
    kill(c.pid, SIGCONT);
    assert_int_equal(write(c.to, "x", 1), 1);
    assert_int_equal(hear(&c), CORRAL_ELOST);
    ended(&c);
    expect("unlock", unlock(&k, "stopped", 1), CORRAL_OK);
    closed(&k);
  }
}

/* ---- a race -------------------------------------------------------------------------------- */

enum { PROCESSES = 2, THREADS = 4, ROUNDS = 60 };

typedef struct arena {
  atomic_int inside, overlaps, wrong, readers;
  _Atomic uint64_t fence;
  long counter; /* not atomic: guarded by the lock */
} arena;

typedef struct racer {
  const kit *k;
  arena *a;
  unsigned number;
} racer;

static void race_once(const racer *me, const kit *k, unsigned holder) {
  answer got;
  while ((got = lock(k, "race", holder, 30000)).status == CORRAL_EBUSY) sched_yield();
  if (got.status != CORRAL_OK) {
    print_message("racer %u: %s: %s\n", me->number, corral_status_name(got.status), got.error.text);
    atomic_fetch_add(&me->a->wrong, 1);
    return;
  }
  if (atomic_fetch_add(&me->a->inside, 1) != 0) atomic_fetch_add(&me->a->overlaps, 1);
  if (atomic_load(&me->a->fence) >= got.seen) atomic_fetch_add(&me->a->wrong, 1);
  atomic_store(&me->a->fence, got.seen);
  long before = *(volatile long *)&me->a->counter;
  sched_yield();
  *(volatile long *)&me->a->counter = before + 1;
  atomic_fetch_sub(&me->a->inside, 1);
  if (unlock(k, "race", holder).status != CORRAL_OK) atomic_fetch_add(&me->a->wrong, 1);
}

static void *race(void *arg) {
  const racer *me = arg;
  kit k = *me->k;
  corral_error error = {0};
  if (k.plugin->connect(k.store, INT64_MAX, &k.handle, &error) != CORRAL_OK) {
    print_message("%s\n", error.text);
    atomic_fetch_add(&me->a->wrong, 1);
    return NULL;
  }
  for (unsigned i = 0; i < ROUNDS; i++) race_once(me, &k, me->number * 1000 + i);
  k.plugin->disconnect(k.handle);
  return NULL;
}

static void race_threads(const char *params, arena *a, unsigned process) {
  kit k = open_at(params);
  pthread_t threads[THREADS];
  racer racers[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    racers[i] = (racer){.k = &k, .a = a, .number = process * THREADS + i + 1};
    if (pthread_create(&threads[i], NULL, race, &racers[i]) != 0) abort();
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  closed(&k);
}

static void race_processes(const char *params) {
  arena *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t pids[PROCESSES], parent = getpid();
  assert_true(a != MAP_FAILED);
  int64_t from = crl_env_now_ms();
  for (unsigned i = 0; i < PROCESSES; i++)
    if ((pids[i] = fork_at_rest()) == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      race_threads(params, a, i);
      _exit(0);
    }
  for (unsigned i = 0; i < PROCESSES; i++) {
    int status = -1;
    waitpid(pids[i], &status, 0);
    assert_int_equal(status, 0);
  }
  print_message("%s: %d acquisitions by %d processes of %d threads in %lld ms\n", params,
                PROCESSES * THREADS * ROUNDS, PROCESSES, THREADS,
                (long long)(crl_env_now_ms() - from));
  assert_int_equal(atomic_load(&a->overlaps), 0);
  assert_int_equal(atomic_load(&a->wrong), 0);
  assert_int_equal(a->counter, PROCESSES * THREADS * ROUNDS);
  munmap(a, sizeof *a);
}

static void no_two_hold_at_once(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) race_processes(modes[i]);
  race_processes("?locks=table&notify=no");
}

static void a_database_that_defaults_to_serializable_and_no_sync_locks_as_well(void **state) {
  (void)state;
  postgresql_server_ask(server,
                        "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'");
  postgresql_server_ask(server, "ALTER ROLE postgres SET synchronous_commit = off");
  kit k = open_at(TABLE);
  expect("lock", lock(&k, "serial", 1, 60000), CORRAL_OK);
  expect("unlock", unlock(&k, "serial", 1), CORRAL_OK);
  race_processes(TABLE);
  postgresql_server_ask(server, "ALTER ROLE postgres RESET ALL");
  closed(&k);
}

/* Extends the lock while other threads unlock it, through a handle of its own. */
static void *extend_all_the_time(void *arg) {
  const racer *me = arg;
  kit k = *me->k;
  corral_error error = {0};
  if (k.plugin->connect(k.store, INT64_MAX, &k.handle, &error) != CORRAL_OK) abort();
  for (unsigned i = 0; i < 200; i++) {
    answer a =
        extend(&k, "kept",
               atomic_load(&me->a->inside) % 100 == 0 ? 100 : (unsigned)atomic_load(&me->a->inside),
               30000);
    if (a.status != CORRAL_OK && a.status != CORRAL_ELOST) atomic_fetch_add(&me->a->wrong, 1);
  }
  k.plugin->disconnect(k.handle);
  return NULL;
}

static void extending_and_unlocking_at_once_is_orderly(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    arena a = {0};
    kit k = open_at(modes[i]);
    racer me = {.k = &k, .a = &a};
    pthread_t threads[2];
    for (int j = 0; j < 2; j++)
      assert_int_equal(pthread_create(&threads[j], NULL, extend_all_the_time, &me), 0);
    for (int n = 1; n < 60; n++) {
      atomic_store(&a.inside, n);
      expect("lock", lock(&k, "kept", (unsigned)n, 30000), CORRAL_OK);
      expect("unlock", unlock(&k, "kept", (unsigned)n), CORRAL_OK);
    }
    for (int j = 0; j < 2; j++) pthread_join(threads[j], NULL);
    assert_int_equal(atomic_load(&a.wrong), 0);
    closed(&k);
  }
}

/* ---- the server goes away ------------------------------------------------------------------ */

static answer extend_at_last(kit *k, const char *key, unsigned holder) {
  answer a = extend(k, key, holder, 60000);
  if (a.performed != CORRAL_OK) {
    k->plugin->disconnect(k->handle);
    corral_error error = {0};
    if (k->plugin->connect(k->store, INT64_MAX, &k->handle, &error) != CORRAL_OK)
      fail_msg("%s", error.text);
    if (a.status != CORRAL_EUNAVAILABLE && a.status != CORRAL_EINDOUBT) return a;
    a = extend(k, key, holder, 60000);
  }
  return a;
}

static void holds_of_a_table_outlive_the_server_and_advisory_ones_are_lost(void **state) {
  (void)state;
  for (int in_order = 0; in_order < 2; in_order++) {
    kit table = open_at(TABLE), advisory = open_at(ADVISORY);
    answer first = lock(&table, "outlives", 1, 60000);
    expect("lock", first, CORRAL_OK);
    expect("lock", lock(&advisory, "outlives", 1, 60000), CORRAL_OK);
    if (in_order) postgresql_server_shut(server);
    postgresql_server_restart(server);
    answer a = extend_at_last(&table, "outlives", 1);
    expect("table", a, CORRAL_OK);
    assert_true(a.seen == first.seen);
    expect("others", lock(&table, "outlives", 2, 1000), CORRAL_EBUSY);
    a = extend_at_last(&advisory, "outlives", 1);
    expect("advisory", a, CORRAL_ELOST);
    assert_int_equal(a.until_ms, 0);
    expect("advisory", unlock(&advisory, "outlives", 1), CORRAL_ELOST);
    expect("advisory", lock(&advisory, "outlives", 2, 1000), CORRAL_OK);
    expect("unlock", unlock(&advisory, "outlives", 2), CORRAL_OK);
    expect("unlock", unlock(&table, "outlives", 1), CORRAL_OK);
    closed(&table);
    closed(&advisory);
  }
}

static void a_session_that_an_administrator_ended_is_noticed_before_anything_is_sent(void **state) {
  (void)state;
  kit k = open_at(TABLE), advisory = open_at(ADVISORY);
  expect("lock", lock(&k, "admin", 1, 60000), CORRAL_OK);
  expect("lock", lock(&advisory, "admin", 1, 60000), CORRAL_OK);
  postgresql_server_ask(server,
                        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE "
                        "backend_type = 'client backend' AND pid <> pg_backend_pid()");
  answer a = extend(&k, "admin", 1, 60000);
  expect("extend", a, CORRAL_EUNAVAILABLE);
  assert_int_not_equal(a.performed, CORRAL_OK);
  a = extend(&advisory, "admin", 1, 60000);
  expect("extend", a, CORRAL_ELOST);
  assert_int_equal(a.until_ms, 0);
  closed(&k);
  closed(&advisory);
}

static void
a_server_that_is_slow_loses_no_advisory_hold_and_an_unlock_may_be_asked_twice(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  expect("lock", lock(&k, "slow", 1, 60000), CORRAL_OK);
  expect("warm", extend(&k, "slow", 1, 60000), CORRAL_OK);
  pid_t backend = (pid_t)strtol(
      postgresql_server_ask(server, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"), NULL,
      10);
  assert_true(backend > 1);
  kill(backend, SIGSTOP);
  int64_t from = crl_env_now_ms();
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "slow", 1);
  expect("extend", act(&k, op, from + 1000), CORRAL_EINDOUBT);
  op = op_of(CORRAL_VERB_UNLOCK, "slow", 1);
  assert_true(crl_env_now_ms() - from >= 999);
  kill(backend, SIGCONT);
  expect("extend", extend(&k, "slow", 1, 60000), CORRAL_OK);
  expect("warm", unlock(&k, "slow", 1), CORRAL_OK);
  expect("lock", lock(&k, "slow", 1, 60000), CORRAL_OK);
  expect("unlock", unlock(&k, "slow", 1), CORRAL_OK);
  expect("lock", lock(&k, "slow", 1, 60000), CORRAL_OK);
  backend = (pid_t)strtol(
      postgresql_server_ask(server, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"), NULL,
      10);
  kill(backend, SIGSTOP);
  op = op_of(CORRAL_VERB_UNLOCK, "slow", 1);
  expect("unlock", act(&k, op, crl_env_now_ms() + 1000), CORRAL_EINDOUBT);
  kill(backend, SIGCONT);
  expect("asked again", unlock(&k, "slow", 1), CORRAL_OK);
  expect("lock", lock(&k, "slow", 2, 60000), CORRAL_OK);
  backend = (pid_t)strtol(
      postgresql_server_ask(server, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"), NULL,
      10);
  kill(backend, SIGSTOP);
  op = op_of(CORRAL_VERB_UNLOCK, "slow", 2);
  expect("unlock", act(&k, op, crl_env_now_ms() + 1000), CORRAL_EINDOUBT);
  expect("asked again", act(&k, op, crl_env_now_ms() + 1000), CORRAL_EINDOUBT);
  kill(backend, SIGCONT);
  eventually("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", "0");
  closed(&k);
}

/* ---- connections --------------------------------------------------------------------------- */

#define OURS                                                                                       \
  "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> "        \
  "pg_backend_pid()"

static void each_advisory_hold_has_a_connection_and_their_number_is_bounded(void **state) {
  (void)state;
  kit k = open_at(ADVISORY "&max_holds=3");
  eventually(OURS, "1");
  for (unsigned i = 1; i <= 3; i++) {
    char key[8];
    snprintf(key, sizeof key, "max%u", i);
    expect("lock", lock(&k, key, i, 60000), CORRAL_OK);
  }
  answer a = lock(&k, "max4", 4, 60000);
  expect("one too many", a, CORRAL_EREFUSED);
  assert_non_null(strstr(a.error.text, "max_holds"));
  eventually(OURS, "3");
  expect("refused", lock(&k, "max1", 1, 60000), CORRAL_OK);
  for (unsigned i = 1; i <= 3; i++) {
    char key[8];
    snprintf(key, sizeof key, "max%u", i);
    expect("unlock", unlock(&k, key, i), CORRAL_OK);
  }
  for (unsigned i = 0; i < 50; i++) {
    expect("lock", lock(&k, "max1", i, 60000), CORRAL_OK);
    expect("held", lock(&k, "max1", i + 100, 60000), CORRAL_EBUSY);
    expect("unlock", unlock(&k, "max1", i), CORRAL_OK);
  }
  eventually(OURS, "3");
  eventually("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'corral'", "3");
  closed(&k);
  eventually(OURS, "0");
}

/* A connection whose hold had a short lease isn't ended while it is idle. */
static void an_idle_connection_stays(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  expect("lock", lock(&k, "idle", 1, 5000), CORRAL_OK);
  expect("unlock", unlock(&k, "idle", 1), CORRAL_OK);
  const char *rested = "SELECT clock_timestamp() - state_change > '5500 ms' FROM pg_stat_activity "
                       "WHERE application_name = 'corral'";
  eventually(rested, "t");
  eventually(OURS, "1");
  expect("lock", lock(&k, "idle", 2, 5000), CORRAL_OK);
  expect("unlock", unlock(&k, "idle", 2), CORRAL_OK);
  closed(&k);
}

static answer connected(const char *uri) {
  kit k;
  answer a = {0};
  corral_error error = {0};
  a.status = kit_open(&k, uri, &error);
  a.error = error;
  if (a.status == CORRAL_OK)
    closed(&k);
  else if (k.store != NULL)
    k.plugin->close(k.store);
  return a;
}

static void refuses(const char *uri, int status, const char *text) {
  answer a = connected(uri);
  expect(uri, a, status);
  if (strstr(a.error.text, text) == NULL) fail_msg("%s: %s", uri, a.error.text);
}

static void what_is_wrong_with_a_uri_is_said(void **state) {
  static const char *const wrong[][2] = {
      {"postgresql:db", "accepted is postgresql://"},
      {"postgresql://a,b/db", "one host"},
      {"postgresql://a/db/more", "after the host nothing but /DATABASE"},
      {"postgresql://a/db?host=/tmp", "named twice"},
      {"postgresql:///db?host=tmp", "begins with '/'"},
      {"postgresql://a/db?locks=none", "table or advisory"},
      {"postgresql://a/db?create=1", "create accepts yes or no"},
      {"postgresql://a/db?notify=maybe", "notify accepts yes or no"},
      {"postgresql://a/db?table=Name", "table accepts"},
      {"postgresql://a/db?table=a.b.c", "table accepts"},
      {"postgresql://a/db?table=.b", "table accepts"},
      {"postgresql://a/db?table=a.", "table accepts"},
      {"postgresql://a/db?table=", "table accepts"},
      {"postgresql://a/db?table=x%22y", "table accepts"},
      {"postgresql://a/db?table=1a", "table accepts"},
      {"postgresql://a/db?max_holds=0", "accepted: 1 to 10000"},
      {"postgresql://a/db?sslmode=on", "sslmode accepts"},
      {"postgresql://a/db?sslmode=disable%20allow", "sslmode accepts"},
      {"postgresql://a/db?timeout=3", "unknown parameter 'timeout'; accepted: locks table"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    refuses(wrong[i][0], CORRAL_EURI, wrong[i][1]);
}

static void why_no_connection_came_is_said(void **state) {
  char uri[256];
  (void)state;
  int port = postgresql_server_port(server);
  snprintf(uri, sizeof uri, "postgresql://postgres@127.0.0.1:%d/none", port);
  refuses(uri, CORRAL_EAUTH, "database \"none\" does not exist");
  refuses("postgresql://127.0.0.1:1/db", CORRAL_EUNAVAILABLE, "refused");
  snprintf(uri, sizeof uri, "postgresql:///postgres?host=%s", "/tmp");
  refuses(uri, CORRAL_EUNAVAILABLE, "No such file");
  snprintf(uri, sizeof uri, "postgresql://postgres@127.0.0.1:%d/postgres?sslmode=require", port);
  refuses(uri, CORRAL_EUNAVAILABLE, "SSL");
  snprintf(uri, sizeof uri, "postgresql://postgres@:%d/postgres?host=%s&sslmode=disable", port,
           postgresql_server_folder(server));
  expect("by its socket", connected(uri), CORRAL_OK);
  postgresql_server_ask(server, "CREATE ROLE ann LOGIN PASSWORD 'p%%ss @1'");
  postgresql_server_hba(
      server, "host all ann 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust");
  snprintf(uri, sizeof uri, "postgresql://ann:p%%25ss%%20%%401@127.0.0.1:%d/postgres", port);
  expect("with a password", connected(uri), CORRAL_OK);
  snprintf(uri, sizeof uri, "postgresql://ann:wrong@127.0.0.1:%d/postgres", port);
  refuses(uri, CORRAL_EAUTH, "password authentication failed");
  snprintf(uri, sizeof uri, "postgresql://ann@127.0.0.1:%d/postgres", port);
  refuses(uri, CORRAL_EAUTH, "password");
  snprintf(uri, sizeof uri, "postgresql://bob@127.0.0.1:%d/postgres", port);
  refuses(uri, CORRAL_EAUTH, "no pg_hba.conf entry");
  postgresql_server_hba(server, "host all all 127.0.0.1/32 trust");
}

/* 2130706433 is 127.0.0.1 in a form that isn't recognized as this host. */
static void a_host_that_is_not_this_one_is_verified_unless_the_uri_says_otherwise(void **state) {
  char uri[256];
  (void)state;
  int port = postgresql_server_port(server);
  snprintf(uri, sizeof uri, "postgresql://postgres@2130706433:%d/postgres", port);
  refuses(uri, CORRAL_EUNAVAILABLE, "SSL");
  snprintf(uri, sizeof uri, "postgresql://postgres@2130706433:%d/postgres?sslmode=prefer", port);
  expect("with sslmode=prefer", connected(uri), CORRAL_OK);
  snprintf(uri, sizeof uri, "postgresql://postgres@localhost:%d/postgres", port);
  expect("of this host", connected(uri), CORRAL_OK);
}

/* The stopped server accepts connections but sends nothing. */
static void a_server_that_says_nothing_costs_no_more_than_the_deadline(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  void *handle = NULL;
  corral_error error = {0};
  kill(postgresql_server_pid(server), SIGSTOP);
  int64_t from = crl_env_now_ms();
  assert_int_equal(k.plugin->connect(k.store, from + 200, &handle, &error), CORRAL_EUNAVAILABLE);
  assert_true(crl_env_now_ms() - from >= 199);
  kill(postgresql_server_pid(server), SIGCONT);
  assert_non_null(strstr(error.text, "the time allowed is over"));
  closed(&k);
}

/* ---- the watch ----------------------------------------------------------------------------- */

static void an_unlock_is_told(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]), other = open_at(modes[i]);
    ear *e = ear_open(&k);
    int64_t us[40];
    for (unsigned n = 0; n < 40; n++) {
      expect("lock", lock(&other, "told", n, 60000), CORRAL_OK);
      expect("refused unlock", unlock(&other, "told", n + 1000), CORRAL_ELOST);
      catch_up(e);
      assert_int_equal(e->count, 0);
      us[n] = crl_env_now_us();
      expect("unlock", unlock(&other, "told", n), CORRAL_OK);
      is_told(e, "told");
      us[n] = crl_env_now_us() - us[n];
      e->count = 0;
    }
    check_times("unlocked and told", us, 40);
    ear_close(e);
    check_end(&k);
    check_rest(&k);
    closed(&k);
    closed(&other);
  }
  kit quiet = open_at("?notify=no");
  void *watch;
  corral_error error = {0};
  assert_int_equal(quiet.plugin->watch(quiet.store, 0, INT64_MAX, &watch, &error),
                   CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "notify=no"));
  closed(&quiet);
}

static void ignore(void *arg, uint64_t hash) { (void)arg, (void)hash; }

static void a_watch_that_broke_is_reported(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  ear *e = ear_open(&k);
  corral_error error = {0};
  postgresql_server_ask(server, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                                "WHERE query = 'LISTEN corral_lock'");
  assert_int_equal(k.plugin->changes(e->watch, -1, crl_env_now_ms() + 30000, ignore, NULL, &error),
                   CORRAL_EUNAVAILABLE);
  ear_close(e);
  /* The server stops responding, and the connection stays open. */
  e = ear_open(&k);
  pid_t backend = (pid_t)strtol(
      postgresql_server_ask(server,
                            "SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN corral_lock'"),
      NULL, 10);
  assert_true(backend > 1);
  kill(backend, SIGSTOP);
  int64_t from = crl_env_now_ms();
  assert_int_equal(k.plugin->changes(e->watch, -1, from + 60000, ignore, NULL, &error),
                   CORRAL_EUNAVAILABLE);
  assert_true(crl_env_now_ms() - from >= 1000);
  ear_close(e);
  kill(backend, SIGCONT);
  /* A silent but working connection is kept; a payload that isn't a number is reported as "any". */
  e = ear_open(&k);
  (void)listen_until(e, -1, crl_env_now_ms() + 2500);
  postgresql_server_ask(server, "NOTIFY corral_lock, 'strange'");
  assert_int_equal(listen_until(e, -1, crl_env_now_ms() + 30000), 1);
  assert_true(any_told(e));
  ear_close(e);
  closed(&k);
}

/* ---- a standby ----------------------------------------------------------------------------- */

static void a_standby_is_refused_and_so_is_a_database_for_reading(void **state) {
  char file[160];
  (void)state;
  kit k = open_at(TABLE);
  postgresql_server_ask(server, "ALTER ROLE postgres SET default_transaction_read_only = on");
  kit reader = open_at(TABLE);
  answer a = lock(&reader, "k", 1, 60000);
  expect("read only", a, CORRAL_EREFUSED);
  assert_non_null(strstr(a.error.text, "a standby can't lock"));
  closed(&reader);
  postgresql_server_ask(server, "SET default_transaction_read_only = off");
  postgresql_server_ask(server, "ALTER ROLE postgres RESET ALL");
  closed(&k);
  postgresql_server_shut(server);
  snprintf(file, sizeof file, "%s/standby.signal", postgresql_server_data(server));
  FILE *f = fopen(file, "w");
  assert_non_null(f);
  fclose(f);
  postgresql_server_restart(server);
  for (int i = 0; i < 2; i++)
    refuses(postgresql_server_uri(server, modes[i]), CORRAL_EREFUSED, "a standby can't lock");
  postgresql_server_shut(server);
  unlink(file);
  postgresql_server_restart(server);
}

int main(void) {
  if (!postgresql_server_start(&server, NULL)) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(
          a_dead_holder_is_replaced_when_its_hold_ends_or_at_once_when_its_session_does),
      cmocka_unit_test(a_stopped_holder_is_replaced_and_told_so),
      cmocka_unit_test(no_two_hold_at_once),
      cmocka_unit_test(a_database_that_defaults_to_serializable_and_no_sync_locks_as_well),
      cmocka_unit_test(extending_and_unlocking_at_once_is_orderly),
      cmocka_unit_test(holds_of_a_table_outlive_the_server_and_advisory_ones_are_lost),
      cmocka_unit_test(a_session_that_an_administrator_ended_is_noticed_before_anything_is_sent),
      cmocka_unit_test(
          a_server_that_is_slow_loses_no_advisory_hold_and_an_unlock_may_be_asked_twice),
      cmocka_unit_test(each_advisory_hold_has_a_connection_and_their_number_is_bounded),
      cmocka_unit_test(an_idle_connection_stays),
      cmocka_unit_test(what_is_wrong_with_a_uri_is_said),
      cmocka_unit_test(why_no_connection_came_is_said),
      cmocka_unit_test(a_host_that_is_not_this_one_is_verified_unless_the_uri_says_otherwise),
      cmocka_unit_test(a_server_that_says_nothing_costs_no_more_than_the_deadline),
      cmocka_unit_test(an_unlock_is_told),
      cmocka_unit_test(a_watch_that_broke_is_reported),
      cmocka_unit_test(a_standby_is_refused_and_so_is_a_database_for_reading),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  postgresql_server_stop(server);
  return failures;
}
