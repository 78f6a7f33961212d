/* test_backend_feed.c: the changes that examples/backend follows: what the schema's triggers tell,
 * and how the processes that share a store read it: once, all of it, and one of them at a time. */
#include <corral.h>
#include <pthread.h>

#include "support/backend_kit.h"

/* ---- the feed ------------------------------------------------------------------------------ */

static const char *const regions[] = {"north", "east", "south", "west"};
enum { REGIONS = sizeof regions / sizeof *regions };

static void a_start_costs_no_query_when_nothing_has_changed(void **state) {
  (void)state;
  const char *store = redis_server_uri(redis);
  backend a = backend_start("--store", store, "--namespace", "restart", NULL);
  for (int i = 0; i < REGIONS; i++) assert_true(revenue_of(&a, regions[i]) >= 0);
  backend_stop(&a);
  forget_executions();
  a = backend_start("--store", store, "--namespace", "restart", NULL);
  AWAIT(leads(&a));
  backend b = backend_start("--store", store, "--namespace", "restart", NULL);
  assert_false(leads(&b));
  for (int i = 0; i < REGIONS; i++) {
    long long revenue = revenue_in_database(regions[i]);
    assert_int_equal(revenue_of(&a, regions[i]), revenue);
    assert_int_equal(revenue_of(&b, regions[i]), revenue);
  }
  assert_int_equal(executions(), 0);
  backend_stop(&b);
  backend_stop(&a);
}

/* Changes go on while the listening process is killed: some come before, some after. */
static void when_the_listening_process_is_killed_another_goes_on_where_it_was(void **state) {
  (void)state;
  enum { ROUNDS = 3 };
  const char *store = redis_server_uri(redis);
  backend leader = backend_start("--store", store, "--namespace", "takeover", NULL);
  for (int round = 0; round < ROUNDS; round++) {
    backend next = backend_start("--store", store, "--namespace", "takeover", NULL);
    assert_true(leads(&leader) && !leads(&next));
    for (int i = 0; i < REGIONS; i++) assert_true(revenue_of(&next, regions[i]) >= 0);
    for (int i = 0; i < REGIONS; i++) {
      if (i == REGIONS / 2) backend_kill(&leader);
      change(regions[i]);
    }
    AWAIT(leads(&next) && hears(&next));
    for (int i = 0; i < REGIONS; i++)
      AWAIT(revenue_of(&next, regions[i]) == revenue_in_database(regions[i]));
    leader = next;
  }
  backend_stop(&leader);
}

static void *ask_for_south(void *arg) { return (void *)(intptr_t)revenue_apart(arg, "south"); }

/* The standing-by process computes, and another one follows the changes. */
static void who_asks_a_process_that_stands_by_gets_nothing_begun_before_the_change(void **state) {
  (void)state;
  const char *store = redis_server_uri(redis);
  backend leader = backend_start("--store", store, "--namespace", "by", "--pause", "3000", NULL);
  backend b = backend_start("--store", store, "--namespace", "by", "--pause", "3000", NULL);
  pthread_t thread;
  void *early;
  assert_true(leads(&leader));
  assert_int_equal(pthread_create(&thread, NULL, ask_for_south, &b), 0);
  AWAIT(running() == 1);
  long long before = revenue_in_database("south");
  change("south");
  AWAIT(count_of(&leader, "heard") > 0);
  assert_int_equal(running(), 1);
  assert_int_equal(revenue_of(&b, "south"), before + 1);
  pthread_join(thread, &early);
  assert_int_equal((intptr_t)early, before);
  assert_int_equal(revenue_of(&b, "south"), before + 1);
  backend_stop(&b);
  backend_stop(&leader);
}

/* The transaction began before a change that has been read, and commits after it. */
static void a_transaction_that_commits_late_is_not_overtaken(void **state) {
  (void)state;
  backend b = backend_start("--store", redis_server_uri(redis), "--namespace", "late", NULL);
  PGconn *late = PQconnectdb(postgresql_server_conninfo(database));
  long long west = revenue_of(&b, "west"), north = revenue_of(&b, "north");
  PQclear(PQexec(late, "BEGIN"));
  PQclear(PQexec(late, "UPDATE orders SET amount = amount + 1 WHERE id = (SELECT min(o.id) FROM "
                       "orders o JOIN customers c ON c.id = o.customer WHERE region = 'west')"));
  change("north");
  AWAIT(revenue_of(&b, "north") == north + 1);
  assert_int_equal(revenue_of(&b, "west"), west);
  forget_executions();
  PQclear(PQexec(late, "COMMIT"));
  AWAIT(revenue_of(&b, "west") == west + 1);
  assert_int_equal(revenue_of(&b, "north"), north + 1);
  assert_int_equal(executions(), 1);
  PQfinish(late);
  backend_stop(&b);
}

static void changes_are_deleted_behind_the_slowest_position(void **state) {
  (void)state;
  assert_string_equal(postgresql_server_ask(database,
                                            "DELETE FROM positions; DELETE FROM changes; INSERT "
                                            "INTO positions VALUES ('another', "
                                            "pg_current_snapshot(), '', now())"),
                      "");
  backend b = backend_start("--store", redis_server_uri(redis), "--namespace", "swept", NULL);
  change("north");
  AWAIT(count_of(&b, "heard") > 0);
  assert_int_equal(ask_number("SELECT count(*) FROM changes WHERE region = '%s'", "north"), 1);
  (void)postgresql_server_ask(database, "DELETE FROM positions WHERE store = 'another'");
  change("east");
  AWAIT(ask_number("SELECT count(*) FROM changes WHERE '%s' = ''", "") == 0);
  backend_stop(&b);
}

/* A store in memory ends with its process, and so does its position. */
static void a_store_in_memory_leaves_no_position(void **state) {
  (void)state;
  const char *count = "SELECT count(*) FROM positions WHERE '%s' = ''";
  long long before = ask_number(count, "");
  backend b = backend_start(NULL, NULL);
  assert_int_equal(ask_number(count, ""), before + 1);
  backend_stop(&b);
  assert_int_equal(ask_number(count, ""), before);
}

/* A region changes all the time, faster than its report is computed. */
static void a_report_that_changes_all_the_time_is_served_with_its_age(void **state) {
  (void)state;
  enum { PACE_MS = 1500, PACES = 4 };
  backend b = backend_start("--store", redis_server_uri(redis), "--namespace", "hot", "--pace",
                            "1500", "--pause", "400", NULL);
  long long hits = 0, asks = 0, first = revenue_of(&b, "north");
  forget_executions();
  int64_t began = crl_env_now_ms(), until = began + (int64_t)PACES * PACE_MS;
  for (long long last = first; crl_env_now_ms() < until || (hits == 0 && asks < 100); asks++) {
    change("north");
    http_reply reply = report(&b, "north");
    assert_int_equal(reply.status, 200);
    assert_true(member(reply.body, "revenue") >= last);
    last = member(reply.body, "revenue");
    assert_non_null(http_reply_header(&reply, "Age"));
    hits += strcmp(http_reply_header(&reply, "Cache-Status"), "corral; hit") == 0;
    http_reply_free(&reply);
  }
  long long ran = executions(), most = (crl_env_now_ms() - began) / PACE_MS + 2;
  print_message("%lld changes and requests: %lld executions, %lld served\n", asks, ran, hits);
  assert_in_range(ran, 1, most);
  assert_in_range(hits, 1, asks);
  AWAIT(revenue_of(&b, "north") == revenue_in_database("north"));
  backend_stop(&b);
}

/* ---- the schema's triggers ----------------------------------------------------------------- */

/* Regions told since the last call, in order, separated by spaces; and whether a notification came,
 * which must be so if there are any. */
static const char *told(PGconn *conn) {
  PGnotify *note;
  int notes = 0;
  /* notifications of earlier commits arrive with the answer or before it */
  PQclear(PQexec(conn, "SELECT 1"));
  for (; (note = PQnotifies(conn)) != NULL; notes++) PQfreemem(note);
  const char *text = postgresql_server_ask(
      database, "WITH gone AS (DELETE FROM changes RETURNING xid, region) SELECT "
                "string_agg(region, ' ' ORDER BY region) FROM gone");
  assert_int_equal(notes, text[0] == '\0' ? 0 : 1);
  return text;
}

static void a_statement_tells_each_region_that_it_changes_once(void **state) {
  (void)state;
  static const struct {
    const char *sql, *told;
  } rows[] = {
      {"UPDATE orders SET amount = amount + 1 WHERE customer IN (SELECT id FROM customers WHERE "
       "region = 'north')",
       "north"},
      {"UPDATE orders SET amount = amount + 1 WHERE false", ""},
      {"BEGIN; UPDATE orders SET amount = 0; ROLLBACK", ""},
      {"BEGIN; UPDATE orders SET amount = amount + 1 WHERE customer = 4; UPDATE orders SET amount "
       "= amount - 1 WHERE customer = 4; COMMIT",
       "north"},
      {"UPDATE orders SET customer = 5 WHERE id = (SELECT min(id) FROM orders WHERE customer = 4)",
       "east north"},
      {"UPDATE customers SET name = 'x' WHERE id = 6", "south"},
      {"UPDATE customers SET region = 'west' WHERE id = 6", "south west"},
      {"INSERT INTO orders (customer, placed, amount) VALUES (6, '2026-01-01', 5)", "west"},
      {"DELETE FROM orders WHERE customer = 6", "west"},
      {"DELETE FROM customers WHERE id = 7", "west"},
      {"BEGIN; TRUNCATE orders; COMMIT", "*"},
  };
  postgresql_server_ask(database, "CREATE TABLE kept AS SELECT * FROM orders");
  PGconn *conn = PQconnectdb(postgresql_server_conninfo(database));
  PQclear(PQexec(conn, "LISTEN corral"));
  (void)postgresql_server_ask(database, "DELETE FROM changes");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_string_equal(postgresql_server_ask(database, "%s", rows[i].sql), "");
    assert_string_equal(told(conn), rows[i].told);
  }
  PQfinish(conn);
  assert_string_equal(
      postgresql_server_ask(database, "INSERT INTO orders SELECT k.* FROM kept k JOIN customers c "
                                      "ON c.id = k.customer; DROP TABLE kept"),
      "");
}

/* An order that waits for the commit of its customer's move must tell the new region. */
static void an_order_of_a_customer_who_moves_tells_his_new_region(void **state) {
  (void)state;
  PGconn *mover = PQconnectdb(postgresql_server_conninfo(database)),
         *buyer = PQconnectdb(postgresql_server_conninfo(database));
  PGresult *r;
  PQclear(PQexec(mover, "BEGIN"));
  PQclear(PQexec(mover, "UPDATE customers SET region = 'nowhere' WHERE id = 9"));
  assert_int_equal(
      PQsendQuery(buyer,
                  "INSERT INTO orders (customer, placed, amount) VALUES (9, '2026-01-01', 5)"),
      1);
  AWAIT(ask_number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query "
                   "LIKE 'INSERT%%' AND '%s' = ''",
                   "") == 1);
  PQclear(PQexec(mover, "COMMIT"));
  while ((r = PQgetResult(buyer)) != NULL) PQclear(r);
  PQfinish(mover), PQfinish(buyer);
  assert_int_equal(ask_number("SELECT count(*) FROM changes WHERE region = '%s'", "nowhere"), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_start_costs_no_query_when_nothing_has_changed),
      cmocka_unit_test(when_the_listening_process_is_killed_another_goes_on_where_it_was),
      cmocka_unit_test(who_asks_a_process_that_stands_by_gets_nothing_begun_before_the_change),
      cmocka_unit_test(a_transaction_that_commits_late_is_not_overtaken),
      cmocka_unit_test(changes_are_deleted_behind_the_slowest_position),
      cmocka_unit_test(a_store_in_memory_leaves_no_position),
      cmocka_unit_test(a_report_that_changes_all_the_time_is_served_with_its_age),
      cmocka_unit_test(a_statement_tells_each_region_that_it_changes_once),
      cmocka_unit_test(an_order_of_a_customer_who_moves_tells_his_new_region),
  };
  int failed = kit_start();
  if (failed == 0) failed = cmocka_run_group_tests(tests, NULL, NULL);
  kit_stop();
  return failed;
}
