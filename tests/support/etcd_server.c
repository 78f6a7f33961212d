/* etcd_server.c: a real etcd for a test. */
#include "etcd_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGS = 48, TRIES = 1500, STEP_MS = 10, ROOM = 1 << 20, PATIENCE_MS = 10000 };

struct etcd_server {
  pid_t pid;
  int port, has_tls;
  char folder[48], uri[64];
  char *args[ARGS];
  int arg_count;
  char *text;
};

static void die(const char *what) {
  fprintf(stderr, "etcd_server: %s: %s\n", what, strerror(errno));
  abort();
}

static struct sockaddr_in loopback(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  at.sin_port = htons((uint16_t)port);
  return at;
}

int etcd_server_free_port(void) {
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
    snprintf(file, sizeof file, "%s/etcd", folder);
    found = access(file, X_OK) == 0;
  }
  free(folders);
  return found;
}

static void add_arg(etcd_server *server, const char *arg) {
  if (server->arg_count >= ARGS - 1) die("too many arguments");
  server->args[server->arg_count++] = strdup(arg);
}

static void launch(etcd_server *server) {
  pid_t parent = getpid();
  server->pid = fork();
  if (server->pid < 0) die("fork");
  if (server->pid > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  if (chdir(server->folder) != 0) _exit(1);
  int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600), null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(log, 1);
  dup2(log, 2);
  execvp("etcd", server->args);
  _exit(127);
}

/* The reply to an HTTP/1.0 request; NULL when there is none. */
static const char *request(etcd_server *server, const char *head, const char *body) {
  struct sockaddr_in at = loopback(server->port);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  size_t got = 0;
  ssize_t n = 1;
  if (fd < 0) die("socket");
  int len = snprintf(server->text, ROOM, "%s HTTP/1.0\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", head, strlen(body), body);
  int is_sent = connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && send(fd, server->text, (size_t)len, MSG_NOSIGNAL) == len;
  for (; is_sent && n > 0 && got < ROOM - 1; got += (size_t)n) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    n = poll(&ready, 1, PATIENCE_MS) > 0 ? recv(fd, server->text + got, ROOM - 1 - got, 0) : -1;
    if (n <= 0) break;
  }
  close(fd);
  server->text[got] = '\0';
  const char *found = strstr(server->text, "\r\n\r\n");
  return found != NULL ? found + 4 : NULL;
}

static int connects(const etcd_server *server) {
  struct sockaddr_in at = loopback(server->port);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int is_there = fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
  if (fd >= 0) close(fd);
  return is_there;
}

static void wait_until_up(etcd_server *server) {
  for (int i = 0; i < TRIES; i++) {
    const char *health = server->has_tls ? NULL : request(server, "GET /health", "");
    if (server->has_tls ? connects(server) : health != NULL && strstr(health, "\"true\"") != NULL) return;
    if (waitpid(server->pid, NULL, WNOHANG) == server->pid) die("etcd ended at once: wrong arguments?");
    poll(NULL, 0, STEP_MS);
  }
  die("etcd doesn't serve");
}

int etcd_server_start(etcd_server **ret, const char *const *args) {
  char url[64], peer[64], cluster[80];
  if (!is_installed()) {
    fprintf(stderr, "SKIPPED: there is no etcd in PATH (apt-get install etcd-server)\n");
    return 0;
  }
  etcd_server *server = calloc(1, sizeof *server);
  if (server == NULL || (server->text = malloc(ROOM)) == NULL) die("calloc");
  /* It syncs each change to its disk; there, that costs nothing. */
  snprintf(server->folder, sizeof server->folder, "%s/corral-etcd-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (mkdtemp(server->folder) == NULL) die("mkdtemp");
  for (int i = 0; args != NULL && args[i] != NULL; i++) server->has_tls |= strcmp(args[i], "--cert-file") == 0;
  server->port = etcd_server_free_port();
  snprintf(server->uri, sizeof server->uri, "etcd://127.0.0.1:%d", server->port);
  snprintf(url, sizeof url, "http%s://127.0.0.1:%d", server->has_tls ? "s" : "", server->port);
  snprintf(peer, sizeof peer, "http://127.0.0.1:%d", etcd_server_free_port());
  snprintf(cluster, sizeof cluster, "default=%s", peer);
  const char *const fixed[] = {"etcd", "--data-dir", "data", "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
                               "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, "--log-level", "error",
                               "--heartbeat-interval", "20", "--election-timeout", "200"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) add_arg(server, fixed[i]);
  for (; args != NULL && *args != NULL; args++) add_arg(server, *args);
  launch(server);
  wait_until_up(server);
  *ret = server;
  return 1;
}

void etcd_server_kill(etcd_server *server) {
  if (server->pid > 0) {
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
  }
  server->pid = 0;
}

void etcd_server_restart(etcd_server *server) {
  etcd_server_kill(server);
  launch(server);
  wait_until_up(server);
}

void etcd_server_stop(etcd_server *server) {
  if (server == NULL) return;
  etcd_server_kill(server);
  pid_t pid = fork();
  if (pid == 0) {
    execlp("rm", "rm", "-rf", server->folder, (char *)NULL);
    _exit(127);
  }
  if (pid > 0) waitpid(pid, NULL, 0);
  for (int i = 0; i < server->arg_count; i++) free(server->args[i]);
  free(server->text);
  free(server);
}

void etcd_server_pause(etcd_server *server) {
  kill(server->pid, SIGSTOP);
  waitpid(server->pid, NULL, WUNTRACED);
}

void etcd_server_resume(etcd_server *server) { kill(server->pid, SIGCONT); }

const char *etcd_server_uri(const etcd_server *server) { return server->uri; }
int etcd_server_port(const etcd_server *server) { return server->port; }
const char *etcd_server_folder(const etcd_server *server) { return server->folder; }

const char *etcd_server_ask(etcd_server *server, const char *path, const char *body) {
  char head[128];
  snprintf(head, sizeof head, "POST %s", path);
  const char *reply = request(server, head, body);
  if (reply == NULL) die("a request got no reply");
  return reply;
}
