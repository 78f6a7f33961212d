/* test_nginx_away.c: the nginx module while its store is away: requests of the origin are counted,
 * with a Redis that is killed, and with the origin down as well. */
#include <time.h>

#include "support/nginx_kit.h"

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; corral_retry 50ms; corral_refresh $http_pragma; proxy_pass "         \
  "%ORIGIN%; }"

/* A store that is busy isn't away; one that is killed is at once. */
#define PATIENT "op=10s away_after=20s"
#define NEAR "near=8m near_ttl=10ms " PATIENT

enum { REQUESTS = 20 };

static nginx_server *begin(const char *zone, int workers) {
  return nginx_kit_start(&(nginx_kit_plan){.locations = LOCATIONS,
                                           .zone = zone,
                                           .workers = workers,
                                           .http = "keepalive_requests 1000000;"});
}

static void end(nginx_server *server) {
  redis_server_restart(nginx_kit_redis);
  nginx_kit_end(server, 0);
}

static void page(const char *path, const char *control) {
  char headers[200];
  snprintf(headers, sizeof headers, "Cache-Control: %s\r\n", control);
  http_origin_answer(nginx_kit_origin, path,
                     HTTP_ANSWER(.body = "page", .numbered = 1, .headers = headers));
}

static void pause_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static int seen(const char *path) { return http_origin_seen(nginx_kit_origin, path); }

static void a_fresh_page_costs_the_origin_nothing(void **state) {
  (void)state;
  nginx_server *server = begin(NEAR, 1);
  page("/fresh", "max-age=600");
  nginx_kit_expect(server, "/fresh", NULL, 200, "page 1", NULL);
  redis_server_kill(nginx_kit_redis);
  pause_ms(50); /* the copy doesn't answer alone any more */
  for (int i = 0; i < REQUESTS; i++) nginx_kit_expect(server, "/fresh", NULL, 200, "page 1", NULL);
  assert_int_equal(seen("/fresh"), 1);
  end(server);
}

/* A store that hangs is slow for away_after, and requests wait for it; then it is away. */
static void a_store_that_hangs_costs_the_origin_nothing_either(void **state) {
  (void)state;
  nginx_server *server = begin("near=8m near_ttl=10ms op=50ms away_after=300ms", 1);
  page("/hung", "max-age=600");
  nginx_kit_expect(server, "/hung", NULL, 200, "page 1", NULL);
  redis_server_pause(nginx_kit_redis);
  pause_ms(50);
  for (int i = 0; i < REQUESTS; i++) nginx_kit_expect(server, "/hung", NULL, 200, "page 1", NULL);
  assert_int_equal(seen("/hung"), 1);
  redis_server_resume(nginx_kit_redis);
  nginx_kit_end(server, 0);
}

static void
a_page_that_nobody_had_is_fetched_once_by_a_worker_with_and_without_a_near_tier(void **state) {
  (void)state;
  static const char *const zones[] = {"near=off " PATIENT, NEAR};
  for (size_t i = 0; i < sizeof zones / sizeof *zones; i++) {
    char path[16];
    nginx_server *server = begin(zones[i], 1);
    snprintf(path, sizeof path, "/cold%zu", i);
    page(path, "max-age=600");
    redis_server_kill(nginx_kit_redis);
    for (int n = 0; n < REQUESTS; n++) {
      nginx_kit_expect(server, path, NULL, 200, "page 1", NULL);
    }
    assert_int_equal(seen(path), 1);
    end(server);
  }
}

static void a_page_that_may_be_stale_is_served_at_once_and_fetched_behind_that(void **state) {
  (void)state;
  nginx_server *server = begin(NEAR " jitter=0", 1);
  page("/behind", "max-age=1, stale-while-revalidate=600");
  nginx_kit_expect(server, "/behind", NULL, 200, "page 1", NULL);
  redis_server_kill(nginx_kit_redis);
  pause_ms(4200); /* a life begins when the page is stored, which may be after its answer */
  page("/behind", "max-age=600");
  const char *status = nginx_kit_expect(server, "/behind", NULL, 200, "page 1", "cache-status");
  if (strstr(status, "pages; hit") == NULL) fail_msg("%s", status);
  assert_true(http_origin_await_seen(nginx_kit_origin, "/behind", 2));
  char body[16] = "";
  for (int i = 0; i < 6000 && strcmp(body, "page 2") != 0; i++) {
    http_reply reply = nginx_kit_get(server, "/behind", NULL);
    snprintf(body, sizeof body, "%s", reply.body);
    http_reply_free(&reply);
    pause_ms(5);
  }
  assert_string_equal(body, "page 2");
  for (int i = 0; i < REQUESTS; i++) nginx_kit_expect(server, "/behind", NULL, 200, "page 2", NULL);
  assert_int_equal(seen("/behind"), 2);
  end(server);
}

static void without_its_origin_too_a_site_serves_what_it_may(void **state) {
  (void)state;
  nginx_server *server = begin(NEAR " jitter=0", 1);
  page("/fresh2", "max-age=600");
  page("/stale", "max-age=1, stale-if-error=600");
  page("/over", "max-age=1, must-revalidate");
  page("/kept", "max-age=1, must-revalidate\r\nETag: \"a\"");
  nginx_kit_expect(server, "/fresh2", NULL, 200, "page 1", NULL);
  nginx_kit_expect(server, "/stale", NULL, 200, "page 1", NULL);
  nginx_kit_expect(server, "/over", NULL, 200, "page 1", NULL);
  nginx_kit_expect(server, "/kept", NULL, 200, "page 1", NULL);
  redis_server_kill(nginx_kit_redis);
  pause_ms(4200); /* a life begins when the page is stored, which may be after its answer */
  http_origin_down(nginx_kit_origin);
  for (int i = 0; i < REQUESTS; i++) {
    nginx_kit_expect(server, "/fresh2", NULL, 200, "page 1", NULL);
    nginx_kit_expect(server, "/stale", NULL, 200, "page 1", NULL);
    nginx_kit_expect(server, "/over", NULL, 502, NULL, NULL);
    http_reply kept = nginx_kit_get(server, "/kept", NULL); /* only to be revalidated */
    assert_in_range(kept.status, 502, 504);
    http_reply_free(&kept);
  }
  http_origin_up(nginx_kit_origin);
  assert_true(nginx_kit_await_status(server, "/over", 502, 200));
  assert_int_equal(seen("/fresh2"), 1);
  end(server);
}

static void a_page_is_refreshed_and_stays_when_that_fails(void **state) {
  (void)state;
  static const char refresh[] = "Pragma: no-cache\r\n";
  nginx_server *server = begin(NEAR, 1);
  page("/refresh", "max-age=600");
  nginx_kit_expect(server, "/refresh", NULL, 200, "page 1", NULL);
  redis_server_kill(nginx_kit_redis);
  pause_ms(50);
  nginx_kit_expect(server, "/refresh", refresh, 200, "page 2", NULL);
  nginx_kit_expect(server, "/refresh", NULL, 200, "page 2", NULL);
  nginx_kit_expect(server, "/nobody", refresh, 404, NULL, NULL);
  http_origin_down(nginx_kit_origin);
  for (int i = 0; i < REQUESTS; i++) {
    nginx_kit_expect(server, "/refresh", refresh, 200, "page 2", NULL);
    nginx_kit_expect(server, "/refresh", NULL, 200, "page 2", NULL);
  }
  http_origin_up(nginx_kit_origin);
  assert_int_equal(seen("/refresh"), 2);
  end(server);
}

/* ---- under load ---------------------------------------------------------------------------- */

enum { FRESH = 6, LIFE_S = 4, RATE = 300, CONNECTIONS = 8 };
static const char *const paths[] = {"/load0", "/load1", "/load2", "/load3",
                                    "/load4", "/load5", "/brief", NULL};
static int asked[FRESH]; /* requests of the origin before the load */

/* The store is dead for at least so long, and for RATE requests in each second of it. */
static int dead_s(void) {
  const char *text = getenv("CORRAL_SECONDS");
  return text != NULL ? (int)strtol(text, NULL, 10) : 5;
}

/* Six pages live for long, one for LIFE_S seconds. Both workers have them all when the store
 * dies. */
static http_storm_run *begin_load(nginx_server *server) {
  for (int i = 0; i < FRESH; i++) {
    page(paths[i], "max-age=600");
    asked[i] = seen(paths[i]);
  }
  page(paths[FRESH], "max-age=4, stale-if-error=600");
  http_storm_run *run = http_client_storm_start(&(http_storm){
      .address = nginx_server_address(server), .connections = CONNECTIONS, .paths = paths});
  while (http_client_storm_answered(run) < 4000) pause_ms(10);
  return run;
}

static int die_under_load(http_storm_run *run) {
  redis_server_kill(nginx_kit_redis);
  time_t killed = time(NULL);
  int before = http_client_storm_answered(run), seconds = dead_s();
  while (http_client_storm_answered(run) < before + RATE * seconds ||
         time(NULL) <= killed + seconds)
    pause_ms(10);
  int count = http_client_storm_answered(run) - before;
  print_message("           the store is dead for %ld s: %d requests\n",
                (long)(time(NULL) - killed), count);
  return count;
}

static void end_load(http_storm_run *run, nginx_server *server) {
  http_storm_result storm = http_client_storm_end(run);
  if (storm.errors != 0 || storm.good != storm.count)
    fail_msg("%d of %d: %s\n%s", storm.good, storm.count, storm.error, nginx_server_log(server));
  for (int i = 0; i < FRESH; i++) assert_int_equal(seen(paths[i]), asked[i] + 1);
  http_storm_free(&storm);
  end(server);
}

/* Each of the two workers fetches what has expired once, and nothing else. A Date of whole seconds
 * takes up to a second from each life. */
static void the_death_of_the_store_under_load_costs_only_what_expired(void **state) {
  (void)state;
  nginx_server *server = begin(NEAR " jitter=0", 2);
  time_t from = time(NULL);
  http_storm_run *run = begin_load(server);
  (void)die_under_load(run);
  long lives = (long)(time(NULL) - from) / (LIFE_S - 1) + 2;
  print_message("           %d requests of the origin for the page that expires\n", seen("/brief"));
  assert_in_range(seen("/brief"), 2, 2 * lives);
  end_load(run, server);
}

/* An expired page is served stale, and the origin is tried once in each pause after a failure. */
static void with_the_origin_down_as_well_no_client_sees_an_error(void **state) {
  (void)state;
  nginx_server *server = begin(NEAR " jitter=0", 2);
  http_storm_run *run = begin_load(server);
  int before = http_origin_seen(nginx_kit_origin, "*");
  http_origin_down(nginx_kit_origin);
  int count = die_under_load(run);
  long failures = nginx_kit_counter(server, "failure");
  assert_in_range(http_origin_seen(nginx_kit_origin, "*"), before, before + CONNECTIONS);
  assert_true(failures > 0 && count > 20 * failures); /* it is tried by few */
  end_load(run, server);
  http_origin_up(nginx_kit_origin);
}

static void the_zone_says_what_requests_get(void **state) {
  (void)state;
  static const struct {
    const char *zone;
    int asked;
  } rows[] = {{NEAR " away=error", REQUESTS}, {NEAR " when_away=stale", 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char path[16];
    nginx_server *server = begin(rows[i].zone, 1);
    snprintf(path, sizeof path, "/zone%zu", i);
    page(path, "max-age=600");
    nginx_kit_expect(server, path, NULL, 200, "page 1", NULL);
    redis_server_kill(nginx_kit_redis);
    pause_ms(50);
    for (int n = 0; n < REQUESTS; n++) nginx_kit_expect(server, path, NULL, 200, NULL, NULL);
    assert_int_equal(seen(path), 1 + rows[i].asked);
    end(server);
  }
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_fresh_page_costs_the_origin_nothing),
      T(a_store_that_hangs_costs_the_origin_nothing_either),
      T(a_page_that_nobody_had_is_fetched_once_by_a_worker_with_and_without_a_near_tier),
      T(a_page_that_may_be_stale_is_served_at_once_and_fetched_behind_that),
      T(without_its_origin_too_a_site_serves_what_it_may),
      T(a_page_is_refreshed_and_stays_when_that_fails),
      T(the_death_of_the_store_under_load_costs_only_what_expired),
      T(with_the_origin_down_as_well_no_client_sees_an_error),
      T(the_zone_says_what_requests_get),
  };
  if (!nginx_kit_open()) return 77;
  int failed = cmocka_run_group_tests_name("nginx_away", tests, NULL, NULL);
  return failed + nginx_kit_close();
}
