/* fake_server.c: a server that plays a script. */
#include "fake_server.h"

#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "server_process.h"

enum { GIVE_UP_MS = 20000, ROOM = 1 << 20 };

struct fake_server {
  int listener, fd, port, failed;
  char *script;
  char *in; /* received bytes that no EXPECT has consumed yet */
  size_t in_len;
  int was_info; /* the last EXPECT met an INFO */
  pthread_t thread;
};

static void die(const char *what) {
  perror(what);
  abort();
}

static void listen_somewhere(fake_server *server) {
  server->listener = server_process_bind(&server->port);
  if (listen(server->listener, 8) != 0) die("listen");
}

/* True when `fd` becomes readable or reaches its end within GIVE_UP_MS. */
static int readable(int fd) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  return poll(&p, 1, GIVE_UP_MS) > 0;
}

static int hex(char c) { return c >= 'a' ? c - 'a' + 10 : c >= 'A' ? c - 'A' + 10 : c - '0'; }

/* Replaces escapes in place; returns the length. */
static size_t unescape(char *text) {
  char *to = text;
  for (const char *from = text; *from != '\0'; from++) {
    if (*from != '\\') {
      *to++ = *from;
      continue;
    }
    from++;
    switch (*from) {
      case 'r': *to++ = '\r'; break;
      case 'n': *to++ = '\n'; break;
      case '0': *to++ = '\0'; break;
      case 'x':
        *to++ = (char)(hex(from[1]) * 16 + hex(from[2]));
        from += 2;
        break;
      default: *to++ = *from;
    }
  }
  return (size_t)(to - text);
}

static void hang_up(fake_server *server) {
  if (server->fd >= 0) close(server->fd);
  server->fd = -1;
}

static int take_connection(fake_server *server) {
  hang_up(server);
  server->in_len = 0;
  server->fd = readable(server->listener) ? accept(server->listener, NULL, NULL) : -1;
  return server->fd >= 0;
}

static int expect(fake_server *server, const char *bytes, size_t len) {
  for (;;) {
    char *found = memmem(server->in, server->in_len, bytes, len);
    if (found != NULL) {
      size_t used = (size_t)(found + len - server->in);
      server->was_info = memmem(server->in, used, "INFO", 4) != NULL;
      memmove(server->in, server->in + used, server->in_len - used);
      server->in_len -= used;
      return 1;
    }
    if (server->in_len == ROOM || !readable(server->fd)) return 0;
    ssize_t n = recv(server->fd, server->in + server->in_len, ROOM - server->in_len, 0);
    if (n <= 0) return 0;
    server->in_len += (size_t)n;
  }
}

static void send_all(fake_server *server, const char *bytes, size_t len) {
  for (ssize_t n; len > 0; bytes += n, len -= (size_t)n)
    if ((n = send(server->fd, bytes, len, MSG_NOSIGNAL)) <= 0) return;
}

/* Writes the refusal of an INFO where @INFO stands. */
static void send_line(fake_server *server, char *line) {
  char *mark = strstr(line, "@INFO");
  if (mark != NULL) *mark = '\0';
  send_all(server, line, unescape(line));
  if (mark == NULL) return;
  if (server->was_info) send_all(server, "-NOPERM no\r\n", 12);
  send_all(server, mark + 5, unescape(mark + 5));
}

static void trickle(fake_server *server, char *text) {
  char *bytes;
  long ms = strtol(text, &bytes, 10);
  size_t len = unescape(++bytes);
  for (size_t i = 0; i < len; i++) {
    if (send(server->fd, bytes + i, 1, MSG_NOSIGNAL) <= 0) return;
    poll(NULL, 0, (int)ms);
  }
}

static void hang(fake_server *server) {
  char bytes[4096];
  while (server->fd >= 0 && readable(server->fd) && recv(server->fd, bytes, sizeof bytes, 0) > 0)
    continue;
}

/* 0: the others don't come. */
static int meet(long count) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  static long came; /* since the start of the process */
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += GIVE_UP_MS / 1000;
  pthread_mutex_lock(&mutex);
  long all = (came++ / count + 1) * count;
  pthread_cond_broadcast(&changed);
  while (came < all && pthread_cond_timedwait(&changed, &mutex, &until) == 0) continue;
  int met = came >= all;
  pthread_mutex_unlock(&mutex);
  return met;
}

static int step(fake_server *server, char *line) {
  char *rest = line + strcspn(line, " ");
  if (*rest == ' ') *rest++ = '\0';
  if (strcmp(line, "TRICKLE") == 0)
    trickle(server, rest);
  else if (strcmp(line, "EXPECT") == 0)
    return expect(server, rest, unescape(rest));
  else if (strcmp(line, "SEND") == 0)
    send_line(server, rest);
  else if (strcmp(line, "HANG") == 0)
    hang(server);
  else if (strcmp(line, "CLOSE") == 0)
    hang_up(server);
  else if (strcmp(line, "ACCEPT") == 0)
    return take_connection(server);
  else if (strcmp(line, "MEET") == 0)
    return meet(strtol(rest, NULL, 10));
  else
    return 0;
  return 1;
}

static void *run(void *arg) {
  fake_server *server = arg;
  char *save = NULL;
  server->failed = !take_connection(server);
  for (char *line = strtok_r(server->script, "\n", &save); line != NULL && !server->failed;
       line = strtok_r(NULL, "\n", &save)) {
    char *shown = strdup(line);
    server->failed = !step(server, line);
    if (server->failed) fprintf(stderr, "fake_server: failed at: %s\n", shown);
    free(shown);
  }
  if (!server->failed) hang(server);
  hang_up(server);
  return NULL;
}

/* Writes the port in its place; like the word, it has five letters. */
static void name_port(fake_server *server) {
  char port[6];
  snprintf(port, sizeof port, "%05d", server->port);
  for (char *at = server->script; (at = strstr(at, "@PORT")) != NULL;) memcpy(at, port, 5);
}

fake_server *fake_server_start(const char *script) {
  fake_server *server = calloc(1, sizeof *server);
  if (server == NULL || (server->script = strdup(script)) == NULL ||
      (server->in = malloc(ROOM)) == NULL)
    die("malloc");
  server->fd = -1;
  listen_somewhere(server);
  name_port(server);
  if (pthread_create(&server->thread, NULL, run, server) != 0) die("pthread_create");
  return server;
}

int fake_server_port(const fake_server *server) { return server->port; }

int fake_server_stop(fake_server *server) {
  pthread_join(server->thread, NULL);
  int well = !server->failed;
  close(server->listener);
  free(server->script);
  free(server->in);
  free(server);
  return well;
}
