/* memcached_server.c: a real memcached for a test. */
#include "memcached_server.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server_process.h"

enum { ROOM = 4 << 20, PATIENCE_MS = 20000 };

struct memcached_server {
  server_process process;
  int port; /* 0: listens on a unix socket */
  char socket[80], uri[104];
  int fd; /* connection of memcached_server_ask; -1: none */
  char *text;
};

static void die(const char *what) { server_process_die("memcached_server", what); }

static void hang_up(memcached_server *server) {
  if (server->fd >= 0) close(server->fd);
  server->fd = -1;
}

static int dial_unix(const char *path) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  memcpy(at.sun_path, path, strlen(path) + 1);
  if (fd < 0) die("socket");
  if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
  close(fd);
  return -1;
}

static int connects(void *arg) {
  memcached_server *server = arg;
  server->fd = server->port == 0 ? dial_unix(server->socket) : server_process_dial(server->port);
  return server->fd >= 0;
}

static void wait_until_up(memcached_server *server) {
  server_process_await(&server->process, connects, server);
}

static int start(memcached_server **ret, const char *const *args, int is_unix) {
  char program[SERVER_PROCESS_PATH], port[12];
  if (!server_process_find("memcached", "memcached", program)) return 0;
  memcached_server *server = calloc(1, sizeof *server);
  if (server == NULL || (server->text = malloc(ROOM)) == NULL) die("calloc");
  server->fd = -1;
  server_process *process = &server->process;
  server_process_init(process, "memcached", room_on_disk());
  snprintf(server->socket, sizeof server->socket, "%s/socket", process->folder);
  server->port = is_unix ? 0 : server_process_free_port();
  if (is_unix)
    snprintf(server->uri, sizeof server->uri, "memcached+unix://%s", server->socket);
  else
    snprintf(server->uri, sizeof server->uri, "memcached://127.0.0.1:%d", server->port);
  snprintf(port, sizeof port, "%d", server->port);
  if (is_unix)
    server_process_add_args(process,
                            (const char *[]){program, "-s", server->socket, "-a", "0700", NULL});
  else
    server_process_add_args(process,
                            (const char *[]){program, "-p", port, "-l", "127.0.0.1", NULL});
  server_process_add_args(process, (const char *[]){"-U", "0", "-t", "2", NULL});
  if (geteuid() == 0) server_process_add_args(process, (const char *[]){"-u", "root", NULL});
  server_process_add_args(process, args);
  server_process_launch(process);
  wait_until_up(server);
  *ret = server;
  return 1;
}

int memcached_server_start(memcached_server **ret, const char *const *args) {
  return start(ret, args, 0);
}
int memcached_server_start_unix(memcached_server **ret, const char *const *args) {
  return start(ret, args, 1);
}

void memcached_server_kill(memcached_server *server) {
  hang_up(server);
  server_process_kill(&server->process);
}

void memcached_server_restart(memcached_server *server) {
  memcached_server_kill(server);
  unlink(server->socket);
  server_process_launch(&server->process);
  wait_until_up(server);
}

void memcached_server_stop(memcached_server *server) {
  if (server == NULL) return;
  hang_up(server);
  server_process_clean(&server->process);
  free(server->text);
  free(server);
}

void memcached_server_pause(memcached_server *server) { server_process_pause(&server->process); }
void memcached_server_resume(memcached_server *server) { server_process_resume(&server->process); }

const char *memcached_server_uri(const memcached_server *server) { return server->uri; }
int memcached_server_tcp_port(const memcached_server *server) { return server->port; }
const char *memcached_server_folder(const memcached_server *server) {
  return server->process.folder;
}

/* True when the text ends with a complete reply. */
static int is_whole(const char *text, size_t len) {
  static const char *const ends[] = {"END",     "STORED",  "NOT_STORED", "EXISTS", "NOT_FOUND",
                                     "DELETED", "TOUCHED", "OK",         "RESET"};
  if (len < 2 || memcmp(text + len - 2, "\r\n", 2) != 0) return 0;
  size_t begin = len - 2;
  while (begin > 0 && text[begin - 1] != '\n') begin--;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (strlen(ends[i]) == len - 2 - begin && memcmp(text + begin, ends[i], len - 2 - begin) == 0)
      return 1;
  if (memcmp(text + begin, "HD", 2) == 0 || memcmp(text + begin, "EN\r", 3) == 0) return 1;
  return strstr(text + begin, "ERROR") != NULL || (text[0] >= '0' && text[0] <= '9');
}

const char *memcached_server_ask(memcached_server *server, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int len = vsnprintf(server->text, ROOM - 4, format, args);
  va_end(args);
  if (len < 0 || len >= ROOM - 4) die("the command is too long");
  memcpy(server->text + len, "\r\n", 3);
  if (server->fd < 0) wait_until_up(server);
  if (send(server->fd, server->text, (size_t)len + 2, MSG_NOSIGNAL) != len + 2) die("send");
  size_t got = 0;
  do {
    struct pollfd ready = {.fd = server->fd, .events = POLLIN};
    ssize_t n = poll(&ready, 1, PATIENCE_MS) > 0
                    ? recv(server->fd, server->text + got, ROOM - 1 - got, 0)
                    : 0;
    if (n <= 0) die("a command got no reply");
    got += (size_t)n;
    server->text[got] = '\0';
  } while (!is_whole(server->text, got));
  server->text[got - 2] = '\0';
  return server->text;
}

long long memcached_server_stat(memcached_server *server, const char *name) {
  char wanted[80];
  snprintf(wanted, sizeof wanted, "STAT %s ", name);
  const char *found = strstr(memcached_server_ask(server, "stats"), wanted);
  return found == NULL ? -1 : strtoll(found + strlen(wanted), NULL, 10);
}

const char *memcached_server_pair_uri(memcached_server *const pair[2]) {
  static char uri[96];
  if (pair[0] == NULL || pair[1] == NULL) return NULL;
  for (int i = 0; i < 2; i++) memcached_server_ask(pair[i], "flush_all");
  snprintf(uri, sizeof uri, "memcached://127.0.0.1:%d,127.0.0.1:%d",
           memcached_server_tcp_port(pair[0]), memcached_server_tcp_port(pair[1]));
  return uri;
}
