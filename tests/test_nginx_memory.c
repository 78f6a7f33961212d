/* test_nginx_memory.c: the memory of a worker of nginx with the module: over many answers that come
 * through it, and for pages that are large, or many at once. */
#include <time.h>

#include "support/nginx_kit.h"

#include "support/hand_origin.h"

#define LOCATIONS                                                                                  \
  "proxy_buffer_size 64k; proxy_buffers 8 64k; "                                                   \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; corral_valid 1m; corral_max_size 100k; proxy_pass %ORIGIN%; }"       \
  "location /page/ { corral pages; corral_valid 1m; corral_max_size 128m; proxy_pass %ORIGIN%; }"  \
  "location /many/ { corral pages; corral_valid 1m; corral_max_size 16m; proxy_pass %ORIGIN%; }"

enum { MB = 1024 };

static nginx_server *server;

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){
      .locations = LOCATIONS, .zone = "near=off jitter=0 op=1m away_after=1m", .is_weighed = 1});
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

/* A line of the worker's /proc/PID/status, in KB. */
static long memory_of_worker(const char *name) {
  char path[64], line[256];
  long size = -1;
  pid_t worker;
  assert_int_equal(nginx_server_workers(server, &worker, 1), 1);
  snprintf(path, sizeof path, "/proc/%d/status", (int)worker);
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, name, strlen(name)) == 0) size = strtol(line + strlen(name) + 1, NULL, 10);
  fclose(file);
  assert_true(size > 0);
  return size;
}

/* ---- flat ---------------------------------------------------------------------------------- */

/* Answers of four kinds, each for a URL of its own. */
static void stream_some(int from, int to) {
  static const char *const kinds[] = {"/kept", "/too_large", "/forwarded", "/left"};
  char path[64];
  http_client *client = http_client_new(nginx_server_address(server));
  for (int i = from; i < to; i++) {
    const char *kind = kinds[i % 4];
    snprintf(path, sizeof path, "%s?%d", kind, i);
    if (i % 4 == 3) {
      assert_true(http_client_abort(client, &(http_request){.path = path}, 10000) > 0);
      continue;
    }
    http_reply reply = http_client_ask(client, &(http_request){.path = path});
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.size, i % 4 == 1 ? 300000 : 50000);
    http_reply_free(&reply);
  }
  http_client_free(client);
}

static void memory_is_flat_over_a_thousand_streams(void **state) {
  (void)state;
  http_answer kept = {.body = "0123456789", .repeat = 5000, .chunked = 1};
  http_answer large = {.body = "0123456789", .repeat = 30000, .chunked = 1};
  http_answer own = {.body = "0123456789", .repeat = 5000, .headers = "Set-Cookie: a=b\r\n"};
  http_origin_answer(nginx_kit_origin, "/kept", &kept);
  http_origin_answer(nginx_kit_origin, "/too_large", &large);
  http_origin_answer(nginx_kit_origin, "/forwarded", &own);
  http_origin_answer(nginx_kit_origin, "/left", &large);
  stream_some(0, 1200); /* libasan of gcc 14 takes 8 MB more in the first thousand, then no more */
  long before = memory_of_worker("VmRSS");
  stream_some(1200, 2200);
  long after = memory_of_worker("VmRSS");
  printf("%ld KB after 1200 streams, %ld KB after 2200\n", before, after);
  assert_true(after <= before + 2 * MB);
}

/* ---- large --------------------------------------------------------------------------------- */

static int ask(const char *path) {
  return hand_client_ask(nginx_server_port(server), "GET", path, NULL);
}

static void gets(int client, size_t size) {
  hand_client_await(client, "\r\n\r\n");
  assert_int_equal(hand_client_drain(client), size);
  close(client);
}

static void a_page_of_100_mb_is_kept_and_joined(void **state) {
  (void)state;
  static char part[1 << 20];
  const size_t size = 100 * sizeof part;
  memset(part, 'x', sizeof part);
  http_origin_answer(nginx_kit_origin, "/page/large",
                     HTTP_ANSWER(.body = part, .body_len = sizeof part, .repeat = 100, .held = 1));
  long usual = memory_of_worker("VmHWM"), joined = nginx_kit_counter(server, "join");
  int first = ask("/page/large");
  assert_true(http_origin_await_running(nginx_kit_origin, "/page/large", 1));
  int second = ask("/page/large");
  assert_true(nginx_kit_await_counter(server, "join", joined + 1));
  http_origin_let(nginx_kit_origin, "/page/large");
  gets(first, size);
  gets(second, size);
  gets(ask("/page/large"), size);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/page/large"), 1);
  long most = memory_of_worker("VmHWM");
  printf("%ld KB at most, %ld KB before\n", most, usual);
  assert_true(most <= usual + 280 * MB); /* it is there twice for a moment */
}

/* ---- many ---------------------------------------------------------------------------------- */

static void answers_that_find_no_room_are_sent_and_not_kept(void **state) {
  (void)state;
  enum { COUNT = 20, SIZE = 10 << 20 }; /* together more than a worker keeps */
  static char part[1 << 20];
  int clients[COUNT], again[COUNT], asked_again = 0;
  char path[COUNT][32];
  memset(part, 'x', sizeof part);
  for (int i = 0; i < COUNT; i++) { /* all of each but its end comes */
    snprintf(path[i], sizeof path[i], "/many/%d", i);
    http_origin_answer(nginx_kit_origin, path[i],
                       HTTP_ANSWER(.body = part, .body_len = sizeof part, .repeat = 20,
                                   .fate = HTTP_FATE_HANGS_MID_BODY, .chunked = 1));
    clients[i] = ask(path[i]);
    char room[65536];
    for (size_t got = 0; got < (size_t)SIZE;) {
      assert_true(hand_is_readable(clients[i], HAND_PATIENCE_MS));
      ssize_t n = recv(clients[i], room, sizeof room, 0);
      assert_true(n > 0);
      got += (size_t)n;
    }
  }
  long most = memory_of_worker("VmRSS");
  printf("%ld KB with %d MB under way\n", most, COUNT * 10);
  /* those that aren't kept are for all who ask their own */
  for (int i = 0; i < COUNT; i++) again[i] = ask(path[i]);
  for (int i = 0; i < COUNT; i++) hand_client_await(again[i], "\r\n\r\n");
  for (int i = 0; i < COUNT; i++) asked_again += http_origin_seen(nginx_kit_origin, path[i]) > 1;
  assert_in_range(asked_again, 6, 10); /* 128 MB keep twelve, and a part */
  for (int i = 0; i < COUNT; i++) close(clients[i]), close(again[i]);
  http_origin_down(nginx_kit_origin); /* ends what it sends */
  http_origin_up(nginx_kit_origin);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_flat_over_a_thousand_streams),
      cmocka_unit_test(a_page_of_100_mb_is_kept_and_joined),
      cmocka_unit_test(answers_that_find_no_room_are_sent_and_not_kept),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
