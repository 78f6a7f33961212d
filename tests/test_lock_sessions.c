/* test_lock_sessions.c: holds that belong to a connection, of advisory locks in a real PostgreSQL
 * and of GET_LOCK in a real MariaDB: a connection that ends ends its holder's belief. */
#include <pthread.h>
#include <sys/wait.h>

#include "locks/lock.h"
#include "support/lock_kit.h"

enum { PATIENCE_MS = 30000, HOUR = 3600000 };

static corral *open_at(const char *uri) {
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 10000), &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

/* ---- the stores ---------------------------------------------------------------------------- */

typedef struct a_store {
  const char *name;
  int (*start)(void); /* 0: the server isn't installed */
  const char *(*uri)(void);
  /* returns when the server has ended the sessions that have a lock */
  void (*cut)(void);
  void (*kill)(void), (*restart)(void), (*stop)(void);
  int is_there;
} a_store;

#if CORRAL_HAVE_postgresql
#include "support/postgresql_server.h"

static postgresql_server *postgresql;

static int start_postgresql(void) { return postgresql_server_start(&postgresql, NULL); }
static const char *uri_of_postgresql(void) {
  return postgresql_server_uri(postgresql, "?locks=advisory");
}
static void cut_postgresql(void) {
  postgresql_server_ask(postgresql, "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_locks "
                                    "WHERE locktype = 'advisory' AND granted");
}
static void kill_postgresql(void) { postgresql_server_kill(postgresql); }
static void restart_postgresql(void) { postgresql_server_restart(postgresql); }
static void stop_postgresql(void) { postgresql_server_stop(postgresql); }
#endif

#if CORRAL_HAVE_mariadb
#include "support/mariadb_server.h"

static mariadb_server *mariadb;

static int start_mariadb(void) { return mariadb_server_start(&mariadb); }
static const char *uri_of_mariadb(void) { return mariadb_server_uri(mariadb); }
static void cut_mariadb(void) {
  char all[1000];
  snprintf(all, sizeof all, "%s",
           mariadb_server_ask(mariadb, "SELECT GROUP_CONCAT(ID) FROM information_schema.PROCESSLIST"
                                       " WHERE USER = 'lock user'"));
  mariadb_server_ask(mariadb, "KILL USER 'lock user'"); /* by name: one may have just ended */
  while (all[0] != '\0' &&
         strcmp(mariadb_server_ask(
                    mariadb, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID IN (%s)",
                    all),
                "0") != 0)
    crl_env_pause_us(1000);
}
static void kill_mariadb(void) { mariadb_server_kill(mariadb); }
static void restart_mariadb(void) {
  mariadb_server_restart(mariadb);
  mariadb_server_settle(mariadb);
}
static void stop_mariadb(void) { mariadb_server_stop(mariadb); }
#endif

static a_store stores[] = {
#if CORRAL_HAVE_postgresql
    {"advisory", start_postgresql, uri_of_postgresql, cut_postgresql, kill_postgresql,
     restart_postgresql, stop_postgresql, 0},
#endif
#if CORRAL_HAVE_mariadb
    {"mariadb", start_mariadb, uri_of_mariadb, cut_mariadb, kill_mariadb, restart_mariadb,
     stop_mariadb, 0},
#endif
    {.name = NULL}};

static void each(void (*story)(const a_store *store)) {
  for (const a_store *store = stores; store->name != NULL; store++) {
    if (!store->is_there) continue;
    print_message("%s\n", store->name);
    a = open_at(store->uri());
    b = open_at(store->uri());
    story(store);
    close_both(NULL);
  }
}

/* ---- the stories --------------------------------------------------------------------------- */

static char why[200];

static void on_lost(corral_lock *lock, const char *text, void *arg) {
  (void)lock, (void)arg;
  snprintf(why, sizeof why, "%s", text);
  atomic_fetch_add(&a_lost, 1);
}

static void until_told(int times) {
  for (int64_t end = crl_env_now_ms() + PATIENCE_MS; atomic_load(&a_lost) < times;
       crl_env_pause_us(200))
    if (crl_env_now_ms() > end) fail_msg("on_lost was called %d times", atomic_load(&a_lost));
}

static void until_over(const corral_lock *lock) {
  for (int64_t end = crl_env_now_ms() + PATIENCE_MS; corral_lock_left_ms(lock) > 0;
       crl_env_pause_us(200))
    if (crl_env_now_ms() > end) fail_msg("%lld ms are left", (long long)corral_lock_left_ms(lock));
}

static void is_cut(corral_lock *lock) {
  assert_int_equal(corral_lock_left_ms(lock), 0);
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_CUT);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_CUT);
  assert_non_null(strstr(error.text, "connection"));
}

static void told_once(const a_store *store) {
  atomic_store(&a_lost, 0);
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR, .on_lost = on_lost));
  store->cut();
  until_told(1);
  assert_non_null(strstr(why, "the connection that it belonged to has ended"));
  corral_lock *next = take(b, "n", CORRAL_LOCK(.wait_ms = PATIENCE_MS));
  assert_int_equal(corral_lock_release(next, &error), CORRAL_OK);
  is_cut(lock);
  assert_int_equal(atomic_load(&a_lost), 1);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_LOST), 1);
}

static void a_connection_that_the_server_ends_is_told_at_once_as_a_loss(void **state) {
  (void)state;
  each(told_once);
}

/* Nobody extends this hold, and nothing is called: its holder looks at what is left. */
static void left_is_nothing(const a_store *store) {
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR));
  corral_lock *other = take(b, "other", CORRAL_LOCK(.ttl_ms = HOUR));
  assert_true(corral_lock_left_ms(lock) > 0);
  store->cut();
  until_over(lock);
  until_over(other);
  is_cut(lock);
  is_cut(other);
}

static void nothing_is_left_of_a_hold_whose_connection_was_cut(void **state) {
  (void)state;
  each(left_is_nothing);
}

static void told_without_a_server(const a_store *store) {
  atomic_store(&a_lost, 0);
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR, .keep = 1, .on_lost = on_lost));
  store->kill();
  until_told(1);
  is_cut(lock);
  store->restart();
}

static void the_loss_is_told_also_when_there_is_no_server_any_more(void **state) {
  (void)state;
  each(told_without_a_server);
}

/* The connection of a hold that was released serves the next one, of another name. */
static void only_present_holds(const a_store *store) {
  atomic_store(&a_lost, 0);
  for (int i = 0; i < 20; i++)
    assert_int_equal(try(a, "before", CORRAL_LOCK(.ttl_ms = HOUR, .on_lost = on_lost)), CORRAL_OK);
  store->cut();
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR, .on_lost = on_lost));
  assert_int_equal(try(a, "beside", CORRAL_LOCK(.ttl_ms = HOUR, .on_lost = on_lost)), CORRAL_OK);
  assert_true(corral_lock_left_ms(lock) > 0);
  assert_int_equal(atomic_load(&a_lost), 0);
  store->cut();
  until_told(1);
  is_cut(lock);
  assert_int_equal(atomic_load(&a_lost), 1);
}

static void
a_connection_that_serves_one_hold_after_another_is_watched_for_the_present_one(void **state) {
  (void)state;
  each(only_present_holds);
}

static void again_and_again(const a_store *store) {
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR, .reentrant = 1)), *none = NULL;
  corral_lock *again = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR, .reentrant = 1));
  store->cut();
  until_over(lock);
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.reentrant = 1), &none, &error),
                   CORRAL_ELOST);
  assert_int_equal(corral_lock_release(again, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
}

static void a_nested_take_after_the_cut_is_told_the_loss(void **state) {
  (void)state;
  each(again_and_again);
}

/* The command under the lock has an hour to live; the next one takes the lock after its end. */
static void its_command_ends(const a_store *store) {
  char line[600], ready[8] = "";
  snprintf(line, sizeof line,
           "$CORRAL_COMMAND --store '%s' lock --ttl 1h n -- sh -c 'echo on; exec sleep 3600'",
           store->uri());
  FILE *command = popen(line, "r");
  assert_non_null(command);
  assert_non_null(fgets(ready, sizeof ready, command));
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  store->cut();
  assert_null(fgets(ready, sizeof ready, command)); /* nobody has its stdout any more */
  int status = pclose(command);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 76);
}

static void a_command_whose_lock_was_cut_is_ended(void **state) {
  (void)state;
  each(its_command_ends);
}

/* ---- what others see ----------------------------------------------------------------------- */

static void only_known_times(const a_store *store) {
  (void)store;
  corral_lock_holder who;
  size_t count = 0;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR, .note = "nightly"));
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_null(strstr(error.text, "-1"));
  assert_non_null(strstr(error.text, "held by "));
  assert_int_equal(corral_lock_show(b, "n", 1, &who, 1, &count, &error), CORRAL_OK);
  assert_int_equal(count, 1);
  assert_true(who.left_ms == -1 || who.left_ms > HOUR / 2);
  if (strcmp(store->name, "advisory") == 0) {
    char host[64];
    size_t len = crl_env_holder(host, sizeof host);
    assert_true(len > 0);
    assert_memory_equal(who.who, host, len);
    assert_int_equal(who.fence, corral_lock_fence(lock));
    assert_in_range(who.held_ms, 0, HOUR / 2);
    assert_non_null(strstr(error.text, " ms so far"));
  }
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void a_refusal_and_a_look_tell_what_is_known_and_no_more(void **state) {
  (void)state;
  each(only_known_times);
}

/* ---- a writer among readers ---------------------------------------------------------------- */

static _Atomic int over, reading;

/* Two of these overlap: each releases only when the other one has the lock, as long as that can be
 * had. */
static void *read_all_the_time(void *arg) {
  const int *number = arg;
  corral_lock *lock = NULL;
  char owner[8];
  corral_error detail = {0};
  snprintf(owner, sizeof owner, "r%d", *number);
  while (atomic_load(&over) == 0) {
    if (corral_lock_take(b, "n", 1, CORRAL_LOCK(.shared = 1, .owner = owner, .wait_ms = 60000),
                         &lock, &detail) != CORRAL_OK)
      continue;
    atomic_fetch_add(&reading, 1);
    for (int i = 0; i < 1000 && atomic_load(&reading) < 2; i++) crl_env_pause_us(1000);
    atomic_fetch_sub(&reading, 1);
    (void)corral_lock_release(lock, &detail);
  }
  return NULL;
}

static void a_writer_has_its_turn_among_overlapping_readers(void **state) {
  (void)state;
  const a_store *store = stores;
  if (store->name == NULL || strcmp(store->name, "advisory") != 0 || !store->is_there) skip();
  pthread_t readers[3];
  int numbers[3] = {0, 1, 2};
  a = open_at(store->uri());
  b = open_at(store->uri());
  atomic_store(&over, 0);
  for (int i = 0; i < 3; i++)
    assert_int_equal(pthread_create(&readers[i], NULL, read_all_the_time, &numbers[i]), 0);
  while (atomic_load(&reading) == 0) crl_env_pause_us(1000);
  for (int i = 0; i < 5; i++) {
    corral_lock *lock = take(a, "n", CORRAL_LOCK(.wait_ms = PATIENCE_MS));
    assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  }
  /* a writer that gives up bars nobody */
  atomic_store(&over, 1);
  for (int i = 0; i < 3; i++) pthread_join(readers[i], NULL);
  corral_lock *reader = take(b, "n", CORRAL_LOCK(.shared = 1)), *none = NULL;
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.wait_ms = 300), &none, &error),
                   CORRAL_EDEADLINE);
  corral_lock *second =
      take(a, "n", CORRAL_LOCK(.shared = 1, .owner = "second", .wait_ms = PATIENCE_MS));
  assert_int_equal(corral_lock_release(second, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(reader, &error), CORRAL_OK);
  close_both(NULL);
}

/* ---- fencing tokens that can't be raised --------------------------------------------------- */

/* This process has seen a larger token than the server gives now, as after a restart with the
 * server's clock set back. */
static void it_is_told(const a_store *store) {
  (void)store;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(0));
  uint64_t fence = corral_lock_fence(lock), hash = lock->hold->entry.hash;
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_FENCE), 0);
  crl_lock_table_fence(((crl_context *)(void *)a)->locks, hash, fence + (UINT64_C(1) << 40));
  lock = take(a, "n", CORRAL_LOCK(0));
  assert_in_range(corral_lock_fence(lock), fence + 1, fence + 1000);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_FENCE), 1);
}

static void a_fencing_token_that_went_back_and_cant_be_raised_is_told(void **state) {
  (void)state;
  each(it_is_told);
}

/* ---- cuts at any moment -------------------------------------------------------------------- */

enum { TAKERS = 4, ROUNDS = 15 };

typedef struct taker {
  pthread_t thread;
  const a_store *store;
  int number, lost;
} taker;

static void *take_and_wait_for_the_cut(void *arg) {
  taker *t = arg;
  corral_error detail = {0};
  char name[8];
  snprintf(name, sizeof name, "n%d", t->number);
  for (int i = 0; i < ROUNDS; i++) {
    corral_lock *lock;
    if (corral_lock_take(a, name, strlen(name), CORRAL_LOCK(.ttl_ms = HOUR, .wait_ms = 20000),
                         &lock, &detail) != CORRAL_OK)
      continue;
    until_over(lock);
    t->lost += corral_lock_release(lock, &detail) == CORRAL_ELOST;
  }
  return NULL;
}

static void *cut_all_the_time(void *arg) {
  const a_store *store = arg;
  while (!atomic_load(&over)) store->cut();
  return NULL;
}

/* Each hold ends by a cut, wherever that comes: between the grant and the return of the take
 * too. */
static void any_moment(const a_store *store) {
  taker takers[TAKERS];
  pthread_t cutter;
  int lost = 0;
  atomic_store(&over, 0);
  assert_int_equal(pthread_create(&cutter, NULL, cut_all_the_time, (void *)(uintptr_t)store), 0);
  for (int i = 0; i < TAKERS; i++) {
    takers[i] = (taker){.store = store, .number = i};
    assert_int_equal(pthread_create(&takers[i].thread, NULL, take_and_wait_for_the_cut, &takers[i]),
                     0);
  }
  for (int i = 0; i < TAKERS; i++) {
    pthread_join(takers[i].thread, NULL);
    lost += takers[i].lost;
  }
  atomic_store(&over, 1);
  pthread_join(cutter, NULL);
  print_message("%d holds were cut\n", lost);
  assert_true(lost > 0);
}

static void no_cut_is_missed_wherever_it_comes(void **state) {
  (void)state;
  each(any_moment);
}

static void no_ticket(const a_store *store) {
  (void)store;
  char ticket[CORRAL_LOCK_TICKET];
  corral_lock *lock = take(a, "n", CORRAL_LOCK(0)), *none;
  assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "can't be handed over"));
  assert_int_equal(corral_lock_detach(lock, &error), CORRAL_EUNSUPPORTED);
  assert_int_equal(corral_lock_take(b, "n", 1, CORRAL_LOCK(.adopt = "lock1"), &none, &error),
                   CORRAL_EUNSUPPORTED);
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void a_hold_that_belongs_to_a_connection_has_no_ticket(void **state) {
  (void)state;
  each(no_ticket);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_connection_that_the_server_ends_is_told_at_once_as_a_loss),
      cmocka_unit_test(nothing_is_left_of_a_hold_whose_connection_was_cut),
      cmocka_unit_test(the_loss_is_told_also_when_there_is_no_server_any_more),
      cmocka_unit_test(
          a_connection_that_serves_one_hold_after_another_is_watched_for_the_present_one),
      cmocka_unit_test(a_nested_take_after_the_cut_is_told_the_loss),
      cmocka_unit_test(a_command_whose_lock_was_cut_is_ended),
      cmocka_unit_test(a_refusal_and_a_look_tell_what_is_known_and_no_more),
      cmocka_unit_test(a_fencing_token_that_went_back_and_cant_be_raised_is_told),
      cmocka_unit_test(a_writer_has_its_turn_among_overlapping_readers),
      cmocka_unit_test(no_cut_is_missed_wherever_it_comes),
      cmocka_unit_test(a_hold_that_belongs_to_a_connection_has_no_ticket),
  };
  int there = 0;
  for (a_store *store = stores; store->name != NULL; store++)
    there += store->is_there = store->start();
  if (there == 0) return 77;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (a_store *store = stores; store->name != NULL; store++)
    if (store->is_there) store->stop();
  return failed;
}
