/* redis_server.c: a real redis-server for a test. */
#include "redis_server.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_process.h"

struct redis_server {
  server_process process;
  int port;
  char socket[80], uri[64], unix_uri[112];
  redisContext *context;
  int may_hang_up;
  char *text;
  size_t text_len;
};

static void die(const char *what) { server_process_die("redis_server", what); }

static void hang_up(redis_server *server) {
  if (server->context != NULL) redisFree(server->context);
  server->context = NULL;
}

/* A server that a failed test left paused ends the next one, which says so. */
static const struct timeval patience = {.tv_sec = 120};

/* Tries once to get an answer. An error is an answer too: a server that wants a password is up. */
static int answers(void *arg) {
  redis_server *server = arg;
  server->context = redisConnectUnix(server->socket);
  redisReply *reply = NULL;
  if (server->context != NULL && server->context->err == 0 &&
      redisSetTimeout(server->context, patience) == REDIS_OK)
    reply = redisCommand(server->context, "PING");
  int up = reply != NULL;
  if (reply != NULL) freeReplyObject(reply);
  if (!up) hang_up(server);
  return up;
}

static void wait_until_up(redis_server *server) {
  server_process_await(&server->process, answers, server);
}

/* Writes the configuration file that a sentinel must have, and will change. */
static const char *write_config(const redis_server *server, const char *config) {
  static char path[96];
  snprintf(path, sizeof path, "%s/sentinel.conf", server->process.folder);
  FILE *to = fopen(path, "w");
  if (to == NULL || fputs(config, to) == EOF || fclose(to) != 0) die("sentinel.conf");
  return path;
}

/* `config` NULL: no sentinel. */
static int start(redis_server **ret, const char *config, const char *const *args) {
  char program[SERVER_PROCESS_PATH], port[12];
  const char *name = getenv("CORRAL_REDIS_SERVER");
  if (name == NULL) name = "redis-server";
  if (!server_process_find(name, name, program)) return 0;
  redis_server *server = calloc(1, sizeof *server);
  if (server == NULL) die("calloc");
  server_process *process = &server->process;
  server_process_init(process, "redis", room_on_disk());
  server->port = server_process_free_port();
  snprintf(server->socket, sizeof server->socket, "%s/socket", process->folder);
  snprintf(server->uri, sizeof server->uri, "redis://127.0.0.1:%d", server->port);
  snprintf(server->unix_uri, sizeof server->unix_uri, "redis+unix://%s", server->socket);
  snprintf(port, sizeof port, "%d", server->port);
  server_process_add_arg(process, program);
  if (config != NULL) server_process_add_arg(process, write_config(server, config));
  if (config != NULL) server_process_add_arg(process, "--sentinel");
  server_process_add_args(process,
                          (const char *[]){"--port", port, "--bind", "127.0.0.1", "--unixsocket",
                                           server->socket, "--save", "", "--appendonly", "no",
                                           "--dir", process->folder, "--daemonize", "no", NULL});
  server_process_add_args(process, args);
  server_process_launch(process);
  wait_until_up(server);
  *ret = server;
  return 1;
}

int redis_server_start(redis_server **ret, const char *const *args) {
  return start(ret, NULL, args);
}

int redis_server_start_sentinel(redis_server **ret, const char *config) {
  return start(ret, config, NULL);
}

void redis_server_may_hang_up(redis_server *server) {
  signal(SIGPIPE, SIG_IGN); /* hiredis raises it */
  server->may_hang_up = 1;
}

void redis_server_kill(redis_server *server) {
  hang_up(server);
  server_process_kill(&server->process);
}

void redis_server_restart(redis_server *server) {
  redis_server_kill(server);
  unlink(server->socket);
  server_process_launch(&server->process);
  wait_until_up(server);
}

void redis_server_stop(redis_server *server) {
  if (server == NULL) return;
  hang_up(server);
  server_process_clean(&server->process);
  free(server->text);
  free(server);
}

void redis_server_pause(redis_server *server) { server_process_pause(&server->process); }
void redis_server_resume(redis_server *server) { server_process_resume(&server->process); }

const char *redis_server_uri(const redis_server *server) { return server->uri; }
const char *redis_server_unix_uri(const redis_server *server) { return server->unix_uri; }
const char *redis_server_socket(const redis_server *server) { return server->socket; }
int redis_server_port(const redis_server *server) { return server->port; }
const char *redis_server_folder(const redis_server *server) { return server->process.folder; }

static redisReply *command(redis_server *server, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  if (server->context == NULL) wait_until_up(server);
  redisReply *reply = redisvCommand(server->context, format, args);
  if (reply == NULL && server->may_hang_up) {
    hang_up(server);
    wait_until_up(server);
    reply = redisvCommand(server->context, format, again);
  }
  va_end(again);
  if (reply == NULL) die("a command got no reply; is the server paused?");
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
