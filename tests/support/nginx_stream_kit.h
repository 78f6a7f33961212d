/* nginx_stream_kit.h: shared support for tests of answers that come slowly through the nginx
 * module: an origin and clients that the test moves by hand, so that orders are exact.
 *
 * LOCATIONS, defined before the inclusion, are those of all servers, with %d for the origin's port;
 * ZONE the parameters of their zone, where these aren't right. With IS_DAEMON 1 they can be
 * upgraded. */
#ifndef TESTS_NGINX_STREAM_KIT_H
#define TESTS_NGINX_STREAM_KIT_H

#include <time.h>

#include "support/nginx_kit.h"

#include "support/hand_origin.h"

#ifndef ZONE
#define ZONE "near=off jitter=0"
#endif
#ifndef IS_DAEMON
#define IS_DAEMON 0
#endif

#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"

static nginx_server *server;
static hand_origin origin;

/* The text with the origin's port in place of each %d. To be freed. */
static inline char *with_origin(const char *text) {
  char *made = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&made, &size);
  for (; *text != '\0'; text++)
    if (strncmp(text, "%d", 2) == 0)
      text++, fprintf(to, "%d", origin.port);
    else
      fputc(*text, to);
  fclose(to);
  return made;
}

static inline nginx_server *begin(int first, const char *zone) {
  char *text = with_origin(LOCATIONS);
  nginx_kit_plan plan = {.locations = text, .zone = zone, .is_daemon = IS_DAEMON};
  nginx_server *made = first ? nginx_kit_start(&plan) : nginx_kit_another(&plan);
  free(text);
  return made;
}

/* One more nginx on the same store. */
static inline nginx_server *another(void) { return begin(0, ZONE); }

static inline int start(void **state) {
  (void)state;
  hand_origin_open(&origin);
  server = begin(1, ZONE);
  return 0;
}

static inline int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  hand_origin_close(&origin);
  return 0;
}

static inline int ask_of(nginx_server *asked, const char *path) {
  return hand_client_ask(nginx_server_port(asked), "GET", path, NULL);
}

static inline int ask(const char *path) { return ask_of(server, path); }

static inline void ends(int client) {
  (void)hand_client_drain(client);
  close(client);
}

/* Waits until `count` more calls wait in this nginx than `before`. */
static inline long waiting(nginx_server *of) {
  return nginx_kit_counter(of, "join") + nginx_kit_counter(of, "wait");
}

static inline void await_waiting(nginx_server *of, long before, int count) {
  for (int i = 0; i < 2000 && waiting(of) < before + count; i++)
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  assert_true(waiting(of) >= before + count);
}

static inline void await_joined(long before, int count) {
  for (int i = 0; i < 2000 && nginx_kit_counter(server, "join") < before + count; i++)
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  assert_int_equal(nginx_kit_counter(server, "join"), before + count);
}

/* A leading request, whose request of the origin is *upstream, and `count` that wait for it. */
static inline void herd(const char *path, int *clients, int count, int *upstream) {
  long before = nginx_kit_counter(server, "join");
  clients[0] = ask(path);
  *upstream = hand_origin_take(&origin, path);
  for (int i = 1; i <= count; i++) clients[i] = ask(path);
  await_joined(before, count);
}

static inline void is_stored(const char *path, const char *body) {
  nginx_kit_expect(server, path, NULL, 200, body, NULL);
  assert_true(hand_origin_is_idle(&origin));
}

#endif
