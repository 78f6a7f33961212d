/* test_nginx_stream_store.c: the store while an answer comes through the nginx module: it is silent
 * at the end, and requests of another nginx wait by it. */
#include <signal.h>

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location = /purge { corral_purge pages http://localhost$arg_path; }"                            \
  "location / { corral pages; corral_key http://localhost$uri; corral_valid 200 1m; "              \
  "  corral_max_size 100k; proxy_pass http://127.0.0.1:%d; }"
#define ZONE "near=off jitter=0 op=1m away_after=1m lease=5s lease_min=5s"
#include "support/nginx_stream_kit.h"

/* ---- silent -------------------------------------------------------------------------------- */

/* The last part comes while the store answers nothing, and all have it and the end before the store
 * says a word. */
static void all_get_the_end_though_the_store_is_silent(const char *path, const char *header,
                                                       const char *first, const char *last) {
  int clients[4], upstream;
  herd(path, clients, 3, &upstream);
  hand_send(upstream, header);
  if (*first != '\0') {
    hand_send(upstream, first);
    for (int i = 0; i < 4; i++) hand_client_await(clients[i], "first");
  }
  redis_server_pause(nginx_kit_redis);
  hand_send(upstream, last);
  for (int i = 0; i < 4; i++) hand_client_await(clients[i], "last");
  for (int i = 0; i < 4; i++) assert_true(hand_is_hung_up(clients[i]));
  redis_server_resume(nginx_kit_redis);
  for (int i = 0; i < 4; i++) close(clients[i]);
  close(upstream);
}

static void a_silent_store_withholds_no_end(void **state) {
  (void)state;
  all_get_the_end_though_the_store_is_silent("/silent", CHUNKED "\r\n", "5\r\nfirst\r\n",
                                             "4\r\nlast\r\n0\r\n\r\n");
  all_get_the_end_though_the_store_is_silent(
      "/silent_sized", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "first", "last");
  /* all of it at once */
  all_get_the_end_though_the_store_is_silent("/silent_short", "", "",
                                             "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast");
  is_stored("/silent", "firstlast");
  is_stored("/silent_sized", "firstlast");
  is_stored("/silent_short", "last");
}

/* ---- two nginx ----------------------------------------------------------------------------- */

enum { THERE = 3 };

static nginx_server *other;

/* An answer that this nginx leads, and clients of the other nginx that wait for it. */
typedef struct sides {
  int here, upstream, there[THERE];
} sides;

/* The answer's header and first part have come. */
static sides wait_apart(const char *path) {
  sides made;
  long before = waiting(other);
  made.here = ask(path);
  made.upstream = hand_origin_take(&origin, path);
  for (int i = 0; i < THERE; i++) made.there[i] = ask_of(other, path);
  await_waiting(other, before, THERE);
  hand_send(made.upstream, CHUNKED "\r\n5\r\nfirst\r\n");
  hand_client_await(made.here, "first");
  return made;
}

static void end_apart(const sides *apart, const char *body) {
  for (int i = 0; i < THERE; i++) {
    if (body != NULL) hand_client_await(apart->there[i], body);
    ends(apart->there[i]);
  }
  ends(apart->here);
  close(apart->upstream);
  assert_true(hand_origin_is_idle(&origin));
}

static void who_waits_in_another_nginx_gets_the_page_that_is_stored(void **state) {
  (void)state;
  sides apart = wait_apart("/apart");
  hand_send(apart.upstream, "4\r\nlast\r\n0\r\n\r\n");
  end_apart(&apart, "firstlast");
  is_stored("/apart", "firstlast");
}

static void an_origin_that_breaks_off_is_asked_once_more_for_those_elsewhere(void **state) {
  (void)state;
  sides apart = wait_apart("/breaks");
  close(apart.upstream);
  assert_true(hand_is_hung_up(apart.here));
  apart.upstream = hand_origin_take(&origin, "/breaks");
  hand_send(apart.upstream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole");
  end_apart(&apart, "whole");
  is_stored("/breaks", "whole");
}

/* They have answers of their own, in parallel, before that one ends. */
static void go_their_own_way(sides *apart, const char *path) {
  int own[THERE];
  for (int i = 0; i < THERE; i++) own[i] = hand_origin_take(&origin, path);
  for (int i = 0; i < THERE; i++) {
    hand_send(own[i], "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown");
    close(own[i]);
  }
  for (int i = 0; i < THERE; i++) hand_client_await(apart->there[i], "own");
}

static void who_waits_elsewhere_for_what_is_too_large_is_told_to_pass(void **state) {
  (void)state;
  enum { SIZE = 120000 };
  sides apart = wait_apart("/large");
  char *part = malloc(SIZE + 32);
  int at = snprintf(part, 32, "%x\r\n", SIZE);
  memset(part + at, 'x', SIZE);
  snprintf(part + at + SIZE, 8, "\r\n");
  hand_send(apart.upstream, part);
  free(part);
  go_their_own_way(&apart, "/large");
  hand_send(apart.upstream, "4\r\nlast\r\n0\r\n\r\n");
  hand_client_await(apart.here, "last");
  end_apart(&apart, NULL);
}

/* Asks until one joins the answer under way no more, and has the origin asked: a purge elsewhere is
 * known with the lease's next renewal. Those that joined get that answer to its end. */
static int ask_until_anew(const char *path, int *joined, int most, int *count) {
  for (*count = 0; *count < most; (*count)++) {
    struct pollfd either[] = {{.fd = origin.fd, .events = POLLIN}, {.events = POLLIN}};
    int client = either[1].fd = ask(path);
    assert_true(poll(either, 2, HAND_PATIENCE_MS) > 0);
    if (either[0].revents & POLLIN) return client;
    hand_client_await(client, "first");
    joined[*count] = client;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  fail_msg("%s: all joined", path);
  return -1;
}

/* A client that comes behind what `invalidates` has an answer of its own, which is stored. */
static void ends_joining(const char *path, void (*invalidates)(const char *path), int at_once) {
  enum { MOST = 500 };
  int joined[MOST], count;
  int first = ask(path), upstream = hand_origin_take(&origin, path);
  hand_send(upstream, CHUNKED "\r\n5\r\nfirst\r\n");
  hand_client_await(first, "first");
  invalidates(path);
  int later = ask_until_anew(path, joined, MOST, &count);
  if (at_once) assert_int_equal(count, 0);
  int anew = hand_origin_take(&origin, path);
  hand_send(anew, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew");
  hand_client_await(later, "new");
  hand_send(upstream, "3\r\nend\r\n0\r\n\r\n");
  hand_client_await(first, "end");
  for (int i = 0; i < count; i++) {
    hand_client_await(joined[i], "end");
    ends(joined[i]);
  }
  ends(first);
  ends(later);
  close(upstream);
  close(anew);
  is_stored(path, "new");
}

static void purge_elsewhere(const char *path) {
  char target[64];
  snprintf(target, sizeof target, "/purge?path=%s", path);
  http_reply reply = nginx_kit_ask(other, "PURGE", target, NULL);
  assert_int_equal(reply.status, 200);
  http_reply_free(&reply);
}

static void post_to(nginx_server *asked, const char *path) {
  int client = hand_client_ask(nginx_server_port(asked), "POST", path, "Content-Length: 0\r\n");
  int upstream = hand_origin_take_as(&origin, "POST", path);
  hand_send(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
  hand_client_await(client, "done");
  ends(client);
  close(upstream);
}

static void post_here(const char *path) { post_to(server, path); }
static void post_elsewhere(const char *path) { post_to(other, path); }

static void a_purge_by_another_nginx_ends_joining(void **state) {
  (void)state;
  ends_joining("/purged", purge_elsewhere, 0);
}

static void an_unsafe_method_ends_joining(void **state) {
  (void)state;
  ends_joining("/posted", post_here, 1);
  ends_joining("/posted_elsewhere", post_elsewhere, 0);
}

static int start_two(void **state) {
  (void)start(state);
  other = another();
  return 0;
}

static int stop_two(void **state) {
  nginx_kit_end(other, 0);
  return stop(state);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_silent_store_withholds_no_end),
      cmocka_unit_test(who_waits_in_another_nginx_gets_the_page_that_is_stored),
      cmocka_unit_test(an_origin_that_breaks_off_is_asked_once_more_for_those_elsewhere),
      cmocka_unit_test(who_waits_elsewhere_for_what_is_too_large_is_told_to_pass),
      cmocka_unit_test(a_purge_by_another_nginx_ends_joining),
      cmocka_unit_test(an_unsafe_method_ends_joining),
  };
  int failed = cmocka_run_group_tests(tests, start_two, stop_two);
  return failed + nginx_kit_close();
}
