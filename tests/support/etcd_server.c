/* etcd_server.c: a real etcd for a test. */
#include "etcd_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_process.h"

enum { ROOM = 1 << 20 };

struct etcd_server {
  server_process process;
  int port, has_tls;
  char uri[64];
  char *text;
};

static void die(const char *what) { server_process_die("etcd_server", what); }

/* Returns the body of the reply to an HTTP/1.0 request; NULL without a reply. */
static const char *request(etcd_server *server, const char *head, const char *body) {
  int len = snprintf(server->text, ROOM,
                     "%s HTTP/1.0\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", head,
                     strlen(body), body);
  server_process_exchange(server->port, server->text, (size_t)len, server->text, ROOM);
  const char *found = strstr(server->text, "\r\n\r\n");
  return found != NULL ? found + 4 : NULL;
}

static int listens(int port) {
  int fd = server_process_dial(port);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

static int serves(void *arg) {
  etcd_server *server = arg;
  const char *health = server->has_tls ? NULL : request(server, "GET /health", "");
  return server->has_tls ? listens(server->port)
                         : health != NULL && strstr(health, "\"true\"") != NULL;
}

static void wait_until_up(etcd_server *server) {
  server_process_await(&server->process, serves, server);
}

int etcd_server_start(etcd_server **ret, const char *const *args) {
  char program[SERVER_PROCESS_PATH], url[64], peer[64], cluster[80];
  if (!server_process_find("etcd", "etcd-server", program)) return 0;
  etcd_server *server = calloc(1, sizeof *server);
  if (server == NULL || (server->text = malloc(ROOM)) == NULL) die("calloc");
  server_process *process = &server->process;
  /* etcd syncs each change to disk; in memory a sync costs nothing. */
  server_process_init(process, "etcd", room_in_memory());
  for (int i = 0; args != NULL && args[i] != NULL; i++)
    server->has_tls |= strcmp(args[i], "--cert-file") == 0;
  server->port = server_process_free_port();
  snprintf(server->uri, sizeof server->uri, "etcd://127.0.0.1:%d", server->port);
  snprintf(url, sizeof url, "http%s://127.0.0.1:%d", server->has_tls ? "s" : "", server->port);
  snprintf(peer, sizeof peer, "http://127.0.0.1:%d", server_process_free_port());
  snprintf(cluster, sizeof cluster, "default=%s", peer);
  server_process_add_args(process, (const char *[]){program, "--data-dir",
                                                    "data",  "--listen-client-urls",
                                                    url,     "--advertise-client-urls",
                                                    url,     "--listen-peer-urls",
                                                    peer,    "--initial-advertise-peer-urls",
                                                    peer,    "--initial-cluster",
                                                    cluster, "--log-level",
                                                    "error", "--heartbeat-interval",
                                                    "20",    "--election-timeout",
                                                    "200",   NULL});
  server_process_add_args(process, args);
  server_process_launch(process);
  wait_until_up(server);
  *ret = server;
  return 1;
}

void etcd_server_kill(etcd_server *server) { server_process_kill(&server->process); }

void etcd_server_restart(etcd_server *server) {
  etcd_server_kill(server);
  server_process_launch(&server->process);
  wait_until_up(server);
}

void etcd_server_stop(etcd_server *server) {
  if (server == NULL) return;
  server_process_clean(&server->process);
  free(server->text);
  free(server);
}

void etcd_server_pause(etcd_server *server) { server_process_pause(&server->process); }
void etcd_server_resume(etcd_server *server) { server_process_resume(&server->process); }

const char *etcd_server_uri(const etcd_server *server) { return server->uri; }
int etcd_server_port(const etcd_server *server) { return server->port; }
const char *etcd_server_folder(const etcd_server *server) { return server->process.folder; }

const char *etcd_server_ask(etcd_server *server, const char *path, const char *body) {
  char head[128];
  snprintf(head, sizeof head, "POST %s", path);
  const char *reply = request(server, head, body);
  if (reply == NULL) die("a request got no reply");
  return reply;
}
