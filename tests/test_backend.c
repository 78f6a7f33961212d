/* test_backend.c: examples/backend in front of a real PostgreSQL: the number of executions of its
 * report, and that no answer is older than the data. */
#include <corral.h>
#include <dirent.h>
#include <pthread.h>

#include "support/backend_kit.h"

enum { CHANGES = 5 };

/* ---- one execution ------------------------------------------------------------------------- */

static void five_hundred_requests_for_a_cold_report_cost_one_execution(void **state) {
  (void)state;
  backend b = backend_start("--pause", "100", NULL);
  forget_executions();
  http_storm_result storm = http_client_storm(&(http_storm){.address = b.address,
                                                            .path = "/report?region=north",
                                                            .connections = 50,
                                                            .requests_each = 10});
  if (storm.statuses[200] != 500)
    fail_msg("%d of 500 answered: %s", storm.statuses[200], storm.error);
  assert_true(storm.same_bodies);
  assert_int_equal(member(storm.body, "revenue"), revenue_in_database("north"));
  assert_int_equal(executions(), 1);
  http_storm_free(&storm);
  backend_stop(&b);
}

static void two_processes_share_an_execution_and_follow_one_notification(void **state) {
  (void)state;
  const char *store = redis_server_uri(redis);
  backend a = backend_start("--store", store, "--namespace", "two", "--pause", "100", NULL);
  backend b = backend_start("--store", store, "--namespace", "two", "--pause", "100", NULL);
  const char *addresses[] = {a.address, b.address, NULL};
  forget_executions();
  http_storm_result storm = http_client_storm(&(http_storm){.addresses = addresses,
                                                            .path = "/report?region=east",
                                                            .connections = 50,
                                                            .requests_each = 10});
  if (storm.statuses[200] != 500)
    fail_msg("%d of 500 answered: %s", storm.statuses[200], storm.error);
  assert_true(storm.same_bodies);
  assert_int_equal(executions(), 1);
  change("east");
  long long after = revenue_in_database("east");
  assert_int_equal(after, member(storm.body, "revenue") + 1);
  AWAIT(revenue_of(&a, "east") == after);
  AWAIT(revenue_of(&b, "east") == after);
  for (int i = 0; i < 20; i++) assert_int_equal(revenue_of(i % 2 ? &a : &b, "east"), after);
  assert_int_equal(executions(), 2);
  http_storm_free(&storm);
  backend_stop(&b);
  backend_stop(&a);
}

/* ---- changes ------------------------------------------------------------------------------- */

static void each_change_is_seen(const backend *b, const char *region) {
  long long before = revenue_of(b, region);
  change(region);
  AWAIT(revenue_of(b, region) != before);
  assert_int_equal(revenue_of(b, region), before + 1);
}

static void a_change_is_seen_after_its_commit(void **state) {
  (void)state;
  const char *stores[] = {"memory:", redis_server_uri(redis)};
  for (int s = 0; s < 2; s++) {
    backend b = backend_start("--store", stores[s], "--namespace", "soon", "--pace", "1", NULL);
    for (int i = 0; i < CHANGES; i++) each_change_is_seen(&b, "south");
    assert_int_equal(revenue_of(&b, "south"), revenue_in_database("south"));
    backend_stop(&b);
  }
}

static void a_change_of_one_region_leaves_the_others_alone(void **state) {
  (void)state;
  backend b = backend_start(NULL, NULL);
  long long north = revenue_of(&b, "north"), south = revenue_of(&b, "south");
  forget_executions();
  change("north");
  AWAIT(revenue_of(&b, "north") == north + 1);
  assert_int_equal(revenue_of(&b, "south"), south);
  assert_int_equal(executions(), 1);
  backend_stop(&b);
}

static void *ask_for_west(void *arg) { return (void *)(intptr_t)revenue_apart(arg, "west"); }

/* The snapshot of the running query is older than the change. Only requests from before the change
 * may get its answer. */
static void a_change_while_a_report_is_being_computed_is_not_lost(void **state) {
  (void)state;
  const char *stores[] = {"memory:", redis_server_uri(redis)};
  for (int s = 0; s < 2; s++) {
    backend b = backend_start("--store", stores[s], "--namespace", "race", "--pause", "4000", NULL);
    long long before = revenue_in_database("west");
    pthread_t thread;
    void *early;
    forget_executions();
    assert_int_equal(pthread_create(&thread, NULL, ask_for_west, &b), 0);
    AWAIT(running() == 1);
    change("west");
    AWAIT(count_of(&b, "heard") > 0);
    assert_int_equal(running(), 1);
    pthread_join(thread, &early);
    assert_int_equal((intptr_t)early, before);
    assert_int_equal(revenue_of(&b, "west"), before + 1);
    assert_int_equal(revenue_of(&b, "west"), before + 1);
    assert_int_equal(executions(), 2);
    backend_stop(&b);
  }
}

/* A request made after the change was received must not wait for a query that began before it. Both
 * queries together take less than a request waits. */
static void who_asks_after_a_change_does_not_get_what_was_begun_before(void **state) {
  (void)state;
  backend b = backend_start("--pause", "3400", NULL);
  pthread_t thread;
  void *early;
  assert_int_equal(pthread_create(&thread, NULL, ask_for_west, &b), 0);
  AWAIT(running() == 1);
  long long before = revenue_in_database("west");
  change("west");
  AWAIT(count_of(&b, "heard") > 0);
  assert_int_equal(running(), 1);
  assert_int_equal(revenue_of(&b, "west"), before + 1);
  pthread_join(thread, &early);
  assert_int_equal((intptr_t)early, before);
  assert_int_equal(revenue_of(&b, "west"), before + 1);
  backend_stop(&b);
}

static long long snapshot_end(void) {
  return ask_number("SELECT pg_snapshot_xmax(pg_current_snapshot())::text WHERE '%s' = ''", "");
}

/* The version keeps an older report from replacing a later one when fills are replayed to the
 * store. */
static void a_report_bears_the_end_of_its_snapshot_as_its_version(void **state) {
  (void)state;
  corral *c;
  corral_inspection seen = {.size = sizeof seen};
  backend b = backend_start("--store", redis_server_uri(redis), "--namespace", "version", "--pace",
                            "1", NULL);
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = redis_server_uri(redis), .name_space = "version",
                                 .generation = 1, .op_ms = PATIENCE_MS),
                  &c, NULL),
      CORRAL_OK);
  for (int i = 0; i < 2; i++) {
    long long least = snapshot_end(); /* autovacuum's transactions move it, too */
    assert_true(revenue_of(&b, "north") >= 0);
    assert_int_equal(corral_inspect(c, "north", 5, NULL, &seen), CORRAL_OK);
    assert_string_equal(seen.state, "fresh");
    assert_in_range(seen.version, least, snapshot_end());
    change("north");
    AWAIT(count_of(&b, "heard") > i);
  }
  corral_close(c);
  backend_stop(&b);
}

static void no_such_region_is_remembered_until_it_has_its_first_customer(void **state) {
  (void)state;
  backend b = backend_start(NULL, NULL);
  forget_executions();
  for (int i = 0; i < 5; i++) {
    http_reply reply = report(&b, "atlantis");
    assert_int_equal(reply.status, 404);
    http_reply_free(&reply);
  }
  assert_int_equal(executions(), 1);
  assert_string_equal(
      postgresql_server_ask(database,
                            "INSERT INTO customers (name, region) VALUES ('first', 'atlantis')"),
      "");
  AWAIT(revenue_of(&b, "atlantis") == 0);
  assert_string_equal(
      postgresql_server_ask(database, "DELETE FROM customers WHERE region = 'atlantis'"), "");
  AWAIT(revenue_of(&b, "atlantis") == -1);
  backend_stop(&b);
}

/* ---- database or store away ---------------------------------------------------------------- */

static void a_change_that_nobody_listened_to_is_seen(void **state) {
  (void)state;
  backend b = backend_start("--store", redis_server_uri(redis), "--namespace", "missed", NULL);
  long long before = revenue_of(&b, "south");
  assert_string_equal(postgresql_server_ask(database, "ALTER ROLE shop NOLOGIN"), "");
  (void)postgresql_server_ask(
      database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'");
  AWAIT(listeners() == 0);
  change("south");
  AWAIT(!hears(&b));
  assert_int_equal(revenue_of(&b, "south"), before);
  assert_string_equal(postgresql_server_ask(database, "ALTER ROLE shop LOGIN"), "");
  AWAIT(hears(&b));
  assert_int_equal(revenue_of(&b, "south"), before + 1);
  backend_stop(&b);
}

/* A change while no backend runs ends the life of the values that the store has kept. */
static void a_change_from_before_the_start_is_seen(void **state) {
  (void)state;
  backend b = backend_start("--store", redis_server_uri(redis), "--namespace", "start", NULL);
  long long before = revenue_of(&b, "south");
  backend_stop(&b);
  AWAIT(listeners() == 0); /* else the new one stands by, and hears no change */
  change("south");
  b = backend_start("--store", redis_server_uri(redis), "--namespace", "start", NULL);
  assert_int_equal(revenue_of(&b, "south"), before + 1);
  backend_stop(&b);
}

static int is_answered(const backend *b, const char *region, int status, const char *header,
                       const char *part) {
  http_reply reply = report(b, region);
  const char *value = http_reply_header(&reply, header);
  int is_so = reply.status == status && value != NULL && strstr(value, part) != NULL;
  http_reply_free(&reply);
  return is_so;
}

static void while_the_database_is_away_the_last_reports_are_served(void **state) {
  (void)state;
  backend b = backend_start("--ttl", "100", NULL);
  long long before = revenue_of(&b, "north");
  postgresql_server_kill(database);
  AWAIT(is_answered(&b, "north", 200, "Cache-Status", "stale"));
  AWAIT(is_answered(&b, "east", 503, "Retry-After", ""));
  http_storm_result storm = http_client_storm(&(http_storm){.address = b.address,
                                                            .path = "/report?region=north",
                                                            .connections = 20,
                                                            .requests_each = 20});
  assert_int_equal(storm.statuses[200], 400);
  assert_int_equal(member(storm.body, "revenue"), before);
  http_storm_free(&storm);
  postgresql_server_restart(database);
  change("north");
  AWAIT(hears(&b));
  AWAIT(revenue_of(&b, "north") == before + 1);
  AWAIT(revenue_of(&b, "east") == revenue_in_database("east"));
  backend_stop(&b);
}

/* It is back for long enough to be heard, with a change, and falls again. */
static void a_database_that_is_back_for_a_moment_takes_no_report_away(void **state) {
  (void)state;
  enum { ASKS = 20 };
  backend b = backend_start("--store", redis_server_uri(redis), "--namespace", "moment", NULL);
  long long north = revenue_of(&b, "north"), east = revenue_of(&b, "east");
  postgresql_server_kill(database);
  AWAIT(!hears(&b));
  postgresql_server_restart(database);
  long long heard = count_of(&b, "heard");
  change("north");
  AWAIT(hears(&b) && count_of(&b, "heard") > heard);
  postgresql_server_kill(database);
  for (int i = 0; i < ASKS; i++) {
    assert_int_equal(revenue_of(&b, "north"), north);
    assert_int_equal(revenue_of(&b, "east"), east);
  }
  assert_true(is_answered(&b, "north", 200, "Cache-Status", "stale"));
  postgresql_server_restart(database);
  AWAIT(revenue_of(&b, "north") == north + 1);
  backend_stop(&b);
}

static void while_the_store_is_away_a_process_computes_for_itself_and_still_follows(void **state) {
  (void)state;
  backend b = backend_start("--store", redis_server_uri(redis), "--namespace", "away", NULL);
  redis_server_kill(redis);
  long long before = revenue_in_database("west");
  forget_executions();
  http_storm_result storm = http_client_storm(&(http_storm){
      .address = b.address, .path = "/report?region=west", .connections = 20, .requests_each = 20});
  if (storm.statuses[200] != 400)
    fail_msg("%d of 400 answered: %s", storm.statuses[200], storm.error);
  assert_true(storm.same_bodies);
  assert_int_equal(member(storm.body, "revenue"), before);
  print_message("400 requests without the store: %lld executions\n", executions());
  http_storm_free(&storm);
  change("west");
  AWAIT(revenue_of(&b, "west") == before + 1);
  redis_server_restart(redis);
  AWAIT(count_of(&b, "store_up") > 0);
  AWAIT(hears(&b));
  for (int i = 0; i < 20; i++) assert_int_equal(revenue_of(&b, "west"), before + 1);
  backend_stop(&b);
}

/* ---- HTTP ---------------------------------------------------------------------------------- */

static void bad_input_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *method, *path;
    int status;
  } rows[] = {
      {"GET", "/report", 400},
      {"GET", "/report?region=", 400},
      {"GET", "/report?region", 400},
      {"GET", "/report?region=North", 400},
      {"GET", "/report?region=north%00x", 400},
      {"GET", "/report?region=north'%20OR%20'1'='1", 400},
      {"GET", "/report?region=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 400},
      {"GET", "/report?region=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 404},
      {"GET", "/", 404},
      {"POST", "/report?region=north", 405},
      {"DELETE", "/status", 405},
  };
  backend b = backend_start(NULL, NULL);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    http_request request = {.method = rows[i].method,
                            .path = rows[i].path,
                            .body = rows[i].method[0] == 'P' ? "abc" : NULL,
                            .size = 3};
    if (request.body == NULL) request.size = 0;
    http_reply reply = http_client_ask(b.client, &request);
    if (reply.status != rows[i].status)
      fail_msg("%s %s: %d %s", rows[i].method, rows[i].path, reply.status, reply.error);
    assert_non_null(strstr(reply.body, "\"error\": \""));
    http_reply_free(&reply);
  }
  backend_stop(&b);
}

static void answers_say_how_they_came(void **state) {
  (void)state;
  backend b = backend_start(NULL, NULL);
  char condition[64];
  long long computes = count_of(&b, "compute");
  int64_t began = crl_env_now_ms();
  http_reply cold = report(&b, "north"), warm = report(&b, "north");
  assert_string_equal(http_reply_header(&cold, "Cache-Status"), "corral; fwd=miss; stored");
  assert_string_equal(http_reply_header(&warm, "Cache-Status"), "corral; hit");
  assert_string_equal(http_reply_header(&warm, "Content-Type"), "application/json");
  assert_non_null(http_reply_header(&warm, "Age"));
  assert_in_range(strtoll(http_reply_header(&warm, "Age"), NULL, 10), 0,
                  (crl_env_now_ms() - began) / 1000);
  assert_string_equal(http_reply_header(&warm, "ETag"), http_reply_header(&cold, "ETag"));
  snprintf(condition, sizeof condition, "If-None-Match: \"x\", %s\r\n",
           http_reply_header(&warm, "ETag"));
  http_reply same = get(&b, "/report?region=north", condition),
             other = get(&b, "/report?region=east", condition);
  assert_int_equal(same.status, 304);
  assert_int_equal(same.size, 0);
  assert_int_equal(other.status, 200);
  http_reply head =
      http_client_ask(b.client, &(http_request){.method = "HEAD", .path = "/report?region=north"});
  assert_int_equal(head.status, 200);
  assert_int_equal(head.size, 0);
  assert_string_equal(http_reply_header(&head, "ETag"), http_reply_header(&warm, "ETag"));
  assert_int_equal(count_of(&b, "compute") - computes, 2);
  http_reply_free(&cold), http_reply_free(&warm), http_reply_free(&same), http_reply_free(&other),
      http_reply_free(&head);
  backend_stop(&b);
}

/* Waiting requests are answered, and their query is ended in the database before it has a
 * result. */
static void a_stop_answers_those_who_wait_and_ends_their_query(void **state) {
  (void)state;
  backend b = backend_start("--pause", "10000", NULL);
  forget_executions();
  http_storm_run *run = http_client_storm_start(&(http_storm){.address = b.address,
                                                              .path = "/report?region=north",
                                                              .connections = 10,
                                                              .requests_each = 1,
                                                              .closes = 1});
  AWAIT(running() == 1);
  AWAIT(count_of(&b, "join") >= 9);
  backend_stop(&b);
  http_storm_result storm = http_client_storm_end(run);
  if (storm.statuses[503] != 10) fail_msg("%d of 10 got 503: %s", storm.statuses[503], storm.error);
  AWAIT(running() == 0);
  assert_int_equal(executions(), 0);
  http_storm_free(&storm);
}

static int threads_of(pid_t pid) {
  char folder[48];
  int count = 0;
  snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(folder);
  assert_non_null(tasks);
  for (struct dirent *task; (task = readdir(tasks)) != NULL;) count += task->d_name[0] != '.';
  closedir(tasks);
  return count;
}

/* 200 waiting requests, and some that hang up before the answer, which must not affect the
 * others. */
static void who_waits_holds_no_thread_and_may_leave(void **state) {
  (void)state;
  enum { STAY = 200, LEAVE = 20, THREADS = 16 };
  backend b = backend_start("--pause", "6000", NULL);
  http_client *cancellers[LEAVE];
  forget_executions();
  for (int i = 0; i < LEAVE; i++) {
    cancellers[i] = http_client_new(b.address);
    assert_int_equal(
        http_client_send(cancellers[i], &(http_request){.path = "/report?region=north"}), 0);
  }
  http_storm_run *run = http_client_storm_start(&(http_storm){.address = b.address,
                                                              .path = "/report?region=north",
                                                              .connections = STAY,
                                                              .requests_each = 1});
  AWAIT(count_of(&b, "join") >= LEAVE + STAY - 1);
  int threads = threads_of(b.pid);
  for (int i = 0; i < LEAVE; i++) http_client_free(cancellers[i]);
  http_storm_result storm = http_client_storm_end(run);
  print_message("%d requests waited in %d threads\n", LEAVE + STAY, threads);
  assert_in_range(threads, 1, THREADS);
  if (storm.statuses[200] != STAY) fail_msg("%d answered: %s", storm.statuses[200], storm.error);
  assert_int_equal(executions(), 1);
  http_storm_free(&storm);
  backend_stop(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(five_hundred_requests_for_a_cold_report_cost_one_execution),
      cmocka_unit_test(two_processes_share_an_execution_and_follow_one_notification),
      cmocka_unit_test(a_change_is_seen_after_its_commit),
      cmocka_unit_test(a_change_of_one_region_leaves_the_others_alone),
      cmocka_unit_test(a_change_while_a_report_is_being_computed_is_not_lost),
      cmocka_unit_test(who_asks_after_a_change_does_not_get_what_was_begun_before),
      cmocka_unit_test(a_report_bears_the_end_of_its_snapshot_as_its_version),
      cmocka_unit_test(no_such_region_is_remembered_until_it_has_its_first_customer),
      cmocka_unit_test(a_change_that_nobody_listened_to_is_seen),
      cmocka_unit_test(a_change_from_before_the_start_is_seen),
      cmocka_unit_test(while_the_database_is_away_the_last_reports_are_served),
      cmocka_unit_test(a_database_that_is_back_for_a_moment_takes_no_report_away),
      cmocka_unit_test(while_the_store_is_away_a_process_computes_for_itself_and_still_follows),
      cmocka_unit_test(bad_input_is_refused),
      cmocka_unit_test(answers_say_how_they_came),
      cmocka_unit_test(a_stop_answers_those_who_wait_and_ends_their_query),
      cmocka_unit_test(who_waits_holds_no_thread_and_may_leave),
  };
  int failed = kit_start();
  if (failed == 0) failed = cmocka_run_group_tests(tests, NULL, NULL);
  kit_stop();
  return failed;
}
