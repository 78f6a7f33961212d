/* memcached_server.c: a real memcached for a test. */
#include "memcached_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGS = 48, TRIES = 2000, STEP_MS = 5, ROOM = 4 << 20, PATIENCE_MS = 20000 };

struct memcached_server {
  pid_t pid;
  int port; /* 0: a unix socket */
  char folder[48], socket[64], uri[96];
  char *args[ARGS];
  int arg_count;
  int fd; /* of our own questions; -1: none */
  char *text;
};

static void die(const char *what) {
  fprintf(stderr, "memcached_server: %s: %s\n", what, strerror(errno));
  abort();
}

static struct sockaddr_in loopback(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  at.sin_port = htons((uint16_t)port);
  return at;
}

static int free_port(void) {
  for (int i = 0; i < 200; i++) {
    uint16_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0) die("getrandom");
    struct sockaddr_in at = loopback(20000 + random % 12000);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bound = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) close(fd);
    if (bound) return ntohs(at.sin_port);
  }
  die("no free port");
  return 0;
}

static int is_installed(void) {
  const char *path = getenv("PATH");
  char *folders = strdup(path != NULL ? path : "/usr/bin"), *save = NULL, file[4200];
  int found = 0;
  for (char *folder = strtok_r(folders, ":", &save); folder != NULL && !found; folder = strtok_r(NULL, ":", &save)) {
    snprintf(file, sizeof file, "%s/memcached", folder);
    found = access(file, X_OK) == 0;
  }
  free(folders);
  return found;
}

static void add_arg(memcached_server *server, const char *arg) {
  if (server->arg_count >= ARGS - 1) die("too many arguments");
  server->args[server->arg_count++] = strdup(arg);
}

static void launch(memcached_server *server) {
  pid_t parent = getpid();
  server->pid = fork();
  if (server->pid < 0) die("fork");
  if (server->pid > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(null, 1);
  dup2(null, 2);
  execvp("memcached", server->args);
  _exit(127);
}

static void hang_up(memcached_server *server) {
  if (server->fd >= 0) close(server->fd);
  server->fd = -1;
}

static int connects(memcached_server *server) {
  struct sockaddr_in in = loopback(server->port);
  struct sockaddr_un un = {.sun_family = AF_UNIX};
  memcpy(un.sun_path, server->socket, strlen(server->socket) + 1);
  int is_unix = server->port == 0;
  const struct sockaddr *at = is_unix ? (const struct sockaddr *)&un : (const struct sockaddr *)&in;
  server->fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (server->fd < 0) die("socket");
  if (connect(server->fd, at, is_unix ? sizeof un : sizeof in) == 0) return 1;
  hang_up(server);
  return 0;
}

static void wait_until_up(memcached_server *server) {
  for (int i = 0; i < TRIES; i++) {
    if (connects(server)) return;
    if (waitpid(server->pid, NULL, WNOHANG) == server->pid) die("memcached ended at once: wrong arguments?");
    poll(NULL, 0, STEP_MS);
  }
  die("memcached doesn't answer");
}

static int start(memcached_server **ret, const char *const *args, int is_unix) {
  if (!is_installed()) {
    fprintf(stderr, "SKIPPED: there is no memcached in PATH (apt-get install memcached)\n");
    return 0;
  }
  memcached_server *server = calloc(1, sizeof *server);
  if (server == NULL || (server->text = malloc(ROOM)) == NULL) die("calloc");
  server->fd = -1;
  snprintf(server->folder, sizeof server->folder, "/tmp/corral-memcached-XXXXXX");
  if (mkdtemp(server->folder) == NULL) die("mkdtemp");
  snprintf(server->socket, sizeof server->socket, "%s/socket", server->folder);
  server->port = is_unix ? 0 : free_port();
  if (is_unix) snprintf(server->uri, sizeof server->uri, "memcached+unix://%s", server->socket);
  else snprintf(server->uri, sizeof server->uri, "memcached://127.0.0.1:%d", server->port);
  char port[12];
  snprintf(port, sizeof port, "%d", server->port);
  add_arg(server, "memcached");
  add_arg(server, is_unix ? "-s" : "-p");
  add_arg(server, is_unix ? server->socket : port);
  const char *fixed[] = {is_unix ? "-a" : "-l", is_unix ? "0700" : "127.0.0.1", "-U", "0", "-t", "2"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) add_arg(server, fixed[i]);
  if (geteuid() == 0) {
    add_arg(server, "-u");
    add_arg(server, "root");
  }
  for (; args != NULL && *args != NULL; args++) add_arg(server, *args);
  launch(server);
  wait_until_up(server);
  *ret = server;
  return 1;
}

int memcached_server_start(memcached_server **ret, const char *const *args) { return start(ret, args, 0); }
int memcached_server_start_unix(memcached_server **ret, const char *const *args) { return start(ret, args, 1); }

void memcached_server_kill(memcached_server *server) {
  hang_up(server);
  if (server->pid > 0) {
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
  }
  server->pid = 0;
}

void memcached_server_restart(memcached_server *server) {
  memcached_server_kill(server);
  unlink(server->socket);
  launch(server);
  wait_until_up(server);
}

void memcached_server_stop(memcached_server *server) {
  if (server == NULL) return;
  memcached_server_kill(server);
  unlink(server->socket);
  rmdir(server->folder);
  for (int i = 0; i < server->arg_count; i++) free(server->args[i]);
  free(server->text);
  free(server);
}

void memcached_server_pause(memcached_server *server) {
  kill(server->pid, SIGSTOP);
  waitpid(server->pid, NULL, WUNTRACED);
}

void memcached_server_resume(memcached_server *server) { kill(server->pid, SIGCONT); }

const char *memcached_server_uri(const memcached_server *server) { return server->uri; }
int memcached_server_tcp_port(const memcached_server *server) { return server->port; }
const char *memcached_server_folder(const memcached_server *server) { return server->folder; }

/* True when the text ends as replies do. */
static int is_whole(const char *text, size_t len) {
  static const char *const ends[] = {"END", "STORED", "NOT_STORED", "EXISTS", "NOT_FOUND", "DELETED", "TOUCHED", "OK", "RESET"};
  if (len < 2 || memcmp(text + len - 2, "\r\n", 2) != 0) return 0;
  size_t begin = len - 2;
  while (begin > 0 && text[begin - 1] != '\n') begin--;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (strlen(ends[i]) == len - 2 - begin && memcmp(text + begin, ends[i], len - 2 - begin) == 0) return 1;
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
    ssize_t n = poll(&ready, 1, PATIENCE_MS) > 0 ? recv(server->fd, server->text + got, ROOM - 1 - got, 0) : 0;
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
  snprintf(uri, sizeof uri, "memcached://127.0.0.1:%d,127.0.0.1:%d", memcached_server_tcp_port(pair[0]), memcached_server_tcp_port(pair[1]));
  return uri;
}
