/* test_nginx_crowd.c: many clients ask for pages that come in parts, through locations with
 * features of nginx that hold an answer back or change it. Each gets each byte, and nobody waits
 * for ever. */
#include <pthread.h>
#include <stdatomic.h>

#include "support/nginx_kit.h"

#define LOCATIONS                                                                                  \
  "listen unix:%SOCKET% sndbuf=8k; proxy_http_version 1.1; proxy_set_header Connection '';"        \
  "corral pages; corral_key http://localhost/page$arg_page; corral_valid 200 1s;"                  \
  "corral_max_size 200k;"                                                                          \
  "location / { proxy_pass %ORIGIN%; }"                                                            \
  "location /limited/ { rewrite ^/limited(/.*) $1 break; limit_rate 100k; proxy_pass %ORIGIN%; }"  \
  "location /later/ { rewrite ^/later(/.*) $1 break; limit_rate_after 20k; limit_rate 100k; "      \
  "  sendfile_max_chunk 10k; proxy_pass %ORIGIN%; }"                                               \
  "location /small/ { rewrite ^/small(/.*) $1 break; proxy_buffer_size 4k; proxy_buffers 4 4k; "   \
  "  proxy_pass %ORIGIN%; }"                                                                       \
  "location /ssi/ { rewrite ^/ssi(/.*) $1 break; ssi on; limit_rate 200k; proxy_pass %ORIGIN%; }"  \
  "location /postponed/ { rewrite ^/postponed(/.*) $1 break; postpone_output 64k; "                \
  "  proxy_pass %ORIGIN%; }"

enum { PAGES = 40, CLIENTS = 12, ASKS = 40 };

static nginx_server *server;
static atomic_int wrong;

static size_t size_of(int page) {
  static const size_t sizes[] = {1, 100, 5000, 40000, 90000, 300000};
  return sizes[page % 6];
}

/* Pages differ in how their end is told, in their pauses, and in whether they may be kept. */
static void make_page(int page) {
  char path[32], body[16];
  snprintf(path, sizeof path, "/%d", page);
  snprintf(body, sizeof body, "%c", 'a' + page % 26);
  http_origin_answer(nginx_kit_origin, path,
                     HTTP_ANSWER(.body = body, .repeat = size_of(page), .chunked = page % 5 == 1,
                                 .unsized = page % 5 == 2, .pause_ms = page % 4 * 5,
                                 .headers = page % 7 == 0 ? "Cache-Control: no-store\r\n"
                                                          : "Content-Type: text/html\r\n"));
}

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){
      .locations = LOCATIONS, .workers = 2, .zone = "jitter=0 op=10s away_after=20s"});
  for (int page = 0; page < PAGES; page++) make_page(page);
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

static int is_whole(const http_reply *reply, int page) {
  if (reply->status != 200 || reply->size != size_of(page)) return 0;
  for (size_t i = 0; i < reply->size; i++)
    if (reply->body[i] != 'a' + page % 26) return 0;
  return 1;
}

static void *ask_for_all_kinds(void *arg) {
  static const char *const locations[] = {"", "limited/", "later/", "small/", "ssi/", "postponed/"};
  unsigned dice = (unsigned)(uintptr_t)arg * 2654435761u;
  http_client *client = http_client_new(nginx_server_address(server));
  for (int i = 0; i < ASKS; i++) {
    dice = dice * 1664525 + 1013904223;
    int page = (int)(dice >> 16) % PAGES;
    char path[64];
    snprintf(path, sizeof path, "/%s%d?page=%d", locations[(dice >> 8) % 6], page, page);
    http_reply reply = http_client_ask(client, &(http_request){.path = path});
    if (!is_whole(&reply, page)) {
      print_error("%s: status %d, %zu of %zu bytes; %s\n", path, reply.status, reply.size,
                  size_of(page), reply.error);
      atomic_fetch_add(&wrong, 1);
    }
    http_reply_free(&reply);
  }
  http_client_free(client);
  return NULL;
}

static void each_client_gets_each_byte(void **state) {
  (void)state;
  pthread_t clients[CLIENTS];
  for (uintptr_t i = 0; i < CLIENTS; i++)
    assert_int_equal(pthread_create(&clients[i], NULL, ask_for_all_kinds, (void *)(i + 1)), 0);
  for (int i = 0; i < CLIENTS; i++) pthread_join(clients[i], NULL);
  nginx_kit_check(server, 0);
  assert_int_equal(wrong, 0);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_client_gets_each_byte),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
