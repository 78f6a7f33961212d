/* redis_server.c: a real redis-server for a test. */
#include "redis_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGS = 48, TRIES = 2000, STEP_MS = 5 };

struct redis_server {
  pid_t pid;
  int port;
  char folder[40], socket[64], uri[64], unix_uri[96];
  char *args[ARGS];
  int arg_count;
  redisContext *context;
  char *text;
  size_t text_len;
};

static void die(const char *what) {
  fprintf(stderr, "redis_server: %s: %s\n", what, strerror(errno));
  abort();
}

int redis_server_free_port(void) {
  for (int i = 0; i < 200; i++) {
    uint16_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0) die("getrandom");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint16_t port = (uint16_t)(20000 + random % 12000);
    at.sin_port = htons(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bound = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) close(fd);
    if (bound) return port;
  }
  die("no free port");
  return 0;
}

static int is_installed(void) {
  const char *path = getenv("PATH");
  char *folders = strdup(path != NULL ? path : "/usr/bin"), *save = NULL, file[4200];
  int found = 0;
  for (char *folder = strtok_r(folders, ":", &save); folder != NULL && !found; folder = strtok_r(NULL, ":", &save)) {
    snprintf(file, sizeof file, "%s/redis-server", folder);
    found = access(file, X_OK) == 0;
  }
  free(folders);
  return found;
}

static void add_arg(redis_server *server, const char *arg) {
  if (server->arg_count >= ARGS - 1) die("too many arguments");
  server->args[server->arg_count++] = strdup(arg);
}

static void launch(redis_server *server) {
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
  execvp("redis-server", server->args);
  _exit(127);
}

static void hang_up(redis_server *server) {
  if (server->context != NULL) redisFree(server->context);
  server->context = NULL;
}

/* One try to get an answer, whichever: a server that wants a password is up, too. */
static int answers(redis_server *server) {
  server->context = redisConnectUnix(server->socket);
  redisReply *reply = NULL;
  if (server->context != NULL && server->context->err == 0) reply = redisCommand(server->context, "PING");
  int up = reply != NULL;
  if (reply != NULL) freeReplyObject(reply);
  if (!up) hang_up(server);
  return up;
}

static void wait_until_up(redis_server *server) {
  for (int i = 0; i < TRIES; i++) {
    if (answers(server)) return;
    if (waitpid(server->pid, NULL, WNOHANG) == server->pid) die("redis-server ended at once: wrong arguments?");
    poll(NULL, 0, STEP_MS);
  }
  die("redis-server doesn't answer");
}

int redis_server_start(redis_server **ret, const char *const *args) {
  if (!is_installed()) {
    fprintf(stderr, "SKIPPED: there is no redis-server in PATH (apt-get install redis-server)\n");
    return 0;
  }
  redis_server *server = calloc(1, sizeof *server);
  if (server == NULL) die("calloc");
  snprintf(server->folder, sizeof server->folder, "/tmp/corral-redis-XXXXXX");
  if (mkdtemp(server->folder) == NULL) die("mkdtemp");
  server->port = redis_server_free_port();
  snprintf(server->socket, sizeof server->socket, "%s/socket", server->folder);
  snprintf(server->uri, sizeof server->uri, "redis://127.0.0.1:%d", server->port);
  snprintf(server->unix_uri, sizeof server->unix_uri, "redis+unix://%s", server->socket);
  char port[12];
  snprintf(port, sizeof port, "%d", server->port);
  const char *fixed[] = {"redis-server", "--port",       port, "--bind", "127.0.0.1",    "--unixsocket", server->socket,
                         "--save",       "",             "--appendonly", "no",           "--dir",        server->folder,
                         "--logfile",    "log",          "--daemonize",  "no"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) add_arg(server, fixed[i]);
  for (; args != NULL && *args != NULL; args++) add_arg(server, *args);
  launch(server);
  wait_until_up(server);
  *ret = server;
  return 1;
}

void redis_server_kill(redis_server *server) {
  hang_up(server);
  if (server->pid > 0) {
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
  }
  server->pid = 0;
}

void redis_server_restart(redis_server *server) {
  redis_server_kill(server);
  unlink(server->socket);
  launch(server);
  wait_until_up(server);
}

static void remove_folder(const char *folder) {
  pid_t pid = fork();
  if (pid == 0) {
    execlp("rm", "rm", "-rf", folder, (char *)NULL);
    _exit(127);
  }
  if (pid > 0) waitpid(pid, NULL, 0);
}

void redis_server_stop(redis_server *server) {
  if (server == NULL) return;
  redis_server_kill(server);
  remove_folder(server->folder);
  for (int i = 0; i < server->arg_count; i++) free(server->args[i]);
  free(server->text);
  free(server);
}

void redis_server_pause(redis_server *server) {
  kill(server->pid, SIGSTOP);
  waitpid(server->pid, NULL, WUNTRACED);
}

void redis_server_resume(redis_server *server) { kill(server->pid, SIGCONT); }

const char *redis_server_uri(const redis_server *server) { return server->uri; }
const char *redis_server_unix_uri(const redis_server *server) { return server->unix_uri; }
int redis_server_port(const redis_server *server) { return server->port; }
const char *redis_server_folder(const redis_server *server) { return server->folder; }

static redisReply *command(redis_server *server, const char *format, va_list args) {
  if (server->context == NULL) wait_until_up(server);
  redisReply *reply = redisvCommand(server->context, format, args);
  if (reply == NULL) die("a command got no reply");
  return reply;
}

redisReply *redis_server_command(redis_server *server, const char *format, ...) {
  va_list args;
  va_start(args, format);
  redisReply *reply = command(server, format, args);
  va_end(args);
  return reply;
}

static void print(FILE *to, const redisReply *reply) {
  switch (reply->type) {
    case REDIS_REPLY_INTEGER: fprintf(to, "%lld", reply->integer); break;
    case REDIS_REPLY_NIL: fputs("(nil)", to); break;
    case REDIS_REPLY_ARRAY:
      for (size_t i = 0; i < reply->elements; i++) {
        if (i > 0) fputc('\n', to);
        print(to, reply->element[i]);
      }
      break;
    default: fwrite(reply->str, 1, (size_t)reply->len, to);
  }
}

const char *redis_server_ask(redis_server *server, const char *format, ...) {
  va_list args;
  va_start(args, format);
  redisReply *reply = command(server, format, args);
  va_end(args);
  free(server->text);
  server->text = NULL;
  FILE *to = open_memstream(&server->text, &server->text_len);
  if (to == NULL) die("open_memstream");
  print(to, reply);
  fclose(to);
  freeReplyObject(reply);
  return server->text;
}

long long redis_server_info(redis_server *server, const char *name) {
  size_t len = strlen(name);
  const char *at = redis_server_ask(server, "INFO everything");
  for (; at != NULL; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (strncmp(at, name, len) == 0 && at[len] == ':') return strtoll(at + len + 1, NULL, 10);
  }
  return -1;
}
