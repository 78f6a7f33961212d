/* hand_origin.h: an HTTP origin, and clients, that the test's own thread moves by hand: a client
 * has read the first part of an answer before the origin sends the second.
 *
 *   hand_origin origin;
 *   hand_origin_open(&origin);
 *   int client = hand_client_ask(port, "GET", "/page", NULL);
 *   int upstream = hand_origin_take(&origin, "/page");        the request, whose answer is open
 *   hand_send(upstream, "HTTP/1.1 200 OK\r\n\r\none");
 *   hand_client_await(client, "one");                         fails the test after 10 s
 *   hand_origin_close(&origin);
 */
#ifndef TESTS_HAND_ORIGIN_H
#define TESTS_HAND_ORIGIN_H

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/server_process.h"

typedef struct hand_origin {
  int fd, port;
  int seen; /* requests taken */
} hand_origin;

enum { HAND_PATIENCE_MS = 10000, HAND_ROOM = 1 << 16 };

static inline void hand_origin_open(hand_origin *origin) {
  *origin = (hand_origin){0};
  origin->fd = server_process_bind(&origin->port);
  if (listen(origin->fd, 512) != 0) abort();
}

static inline void hand_origin_close(hand_origin *origin) { close(origin->fd); }

static inline int hand_is_readable(int fd, int ms) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  return poll(&p, 1, ms) == 1;
}

/* Reads until the bytes end with `text`; returns them (of many, the last ones), terminated, in a
 * buffer that the next call overwrites. NULL: the peer hung up before, or nothing came for 10 s. */
static inline const char *hand_read(int fd, const char *text) {
  static char room[HAND_ROOM + 1];
  size_t size = 0;
  room[0] = '\0';
  while (hand_is_readable(fd, HAND_PATIENCE_MS)) {
    if (size == HAND_ROOM) size /= 2, memmove(room, room + size, size);
    ssize_t n = recv(fd, room + size, 1, 0); /* no byte behind the text */
    if (n <= 0) return NULL;
    size += (size_t)n;
    room[size] = '\0';
    size_t len = strlen(text);
    if (size >= len && memcmp(room + size - len, text, len) == 0) return room;
  }
  return NULL;
}

static inline void hand_send(int fd, const char *text) {
  size_t len = strlen(text);
  if (send(fd, text, len, MSG_NOSIGNAL) != (ssize_t)len) fail_msg("the peer hung up: %s", text);
}

/* Takes the next request, which must be this one. Its body isn't read. */
static inline int hand_origin_take_as(hand_origin *origin, const char *method, const char *path) {
  char expected[256];
  if (!hand_is_readable(origin->fd, HAND_PATIENCE_MS)) fail_msg("no request for %s", path);
  int fd = accept(origin->fd, NULL, NULL);
  snprintf(expected, sizeof expected, "%s %s ", method, path);
  const char *head = hand_read(fd, "\r\n\r\n");
  if (head == NULL || strncmp(head, expected, strlen(expected)) != 0)
    fail_msg("not a %s of %s: %s", method, path, head != NULL ? head : "");
  origin->seen++;
  return fd;
}

static inline int hand_origin_take(hand_origin *origin, const char *path) {
  return hand_origin_take_as(origin, "GET", path);
}

/* True when no further request waits to be taken. */
static inline int hand_origin_is_idle(const hand_origin *origin) {
  return !hand_is_readable(origin->fd, 0);
}

static inline int hand_client_ask(int port, const char *method, const char *path,
                                  const char *headers) {
  char request[512];
  int fd = server_process_dial(port);
  if (fd < 0) fail_msg("nobody listens on %d", port);
  snprintf(request, sizeof request,
           "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", method, path,
           headers != NULL ? headers : "");
  hand_send(fd, request);
  return fd;
}

/* Reads until the answer contains the text. Returns what was read. */
static inline const char *hand_client_await(int fd, const char *text) {
  const char *read = hand_read(fd, text);
  if (read == NULL) fail_msg("\"%s\" didn't come", text);
  return read;
}

/* Reads to the end; returns the number of bytes. */
static inline size_t hand_client_drain(int fd) {
  char room[4096];
  size_t size = 0;
  ssize_t n;
  while (hand_is_readable(fd, HAND_PATIENCE_MS) && (n = recv(fd, room, sizeof room, 0)) > 0)
    size += (size_t)n;
  return size;
}

/* True once the peer has hung up; reads what still comes. */
static inline int hand_is_hung_up(int fd) {
  char room[4096];
  while (hand_is_readable(fd, HAND_PATIENCE_MS))
    if (recv(fd, room, sizeof room, 0) <= 0) return 1;
  return 0;
}

#endif
