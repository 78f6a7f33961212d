/* test_nginx_stream_store.c: the store while an answer comes through the nginx module: it is silent
 * at the end, and requests of another nginx wait by it. */
#include <signal.h>

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location = /purge { corral_purge pages http://localhost$arg_path; }"                            \
  "location / { corral pages; corral_key http://localhost$uri; corral_valid 200 1m; "              \
  "  corral_max_size 100k; proxy_pass http://127.0.0.1:%d; }"
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
  nginx_server *usual = server;
  server = begin(0, ZONE " op=1m away_after=1m");
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
  nginx_kit_end(server, 0);
  server = usual;
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_silent_store_withholds_no_end),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
