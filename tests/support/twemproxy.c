/* twemproxy.c: a real twemproxy for a test. */
#include "twemproxy.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server_process.h"

struct twemproxy {
  server_process process;
  int port;
  char uri[64];
};

static void die(const char *what) { server_process_die("twemproxy", what); }

static void write_config(const twemproxy *proxy, const int *ports, size_t count, const char *path) {
  FILE *to = fopen(path, "w");
  if (to == NULL) die(path);
  fprintf(to,
          "all:\n  listen: 127.0.0.1:%d\n  hash: md5\n  distribution: ketama\n"
          "  redis: true\n  servers:\n",
          proxy->port);
  for (size_t i = 0; i < count; i++) fprintf(to, "   - 127.0.0.1:%d:1\n", ports[i]);
  if (fclose(to) != 0) die(path);
}

static int is_up(void *arg) {
  const twemproxy *proxy = arg;
  int fd = server_process_dial(proxy->port);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

int twemproxy_start(twemproxy **ret, const int *ports, size_t count) {
  char program[SERVER_PROCESS_PATH], config[96], stats[12];
  if (!server_process_find("nutcracker", "nutcracker", program)) return 0;
  twemproxy *proxy = calloc(1, sizeof *proxy);
  if (proxy == NULL) die("calloc");
  server_process_init(&proxy->process, "twemproxy", room_on_disk());
  proxy->port = server_process_free_port();
  snprintf(proxy->uri, sizeof proxy->uri, "redis://127.0.0.1:%d", proxy->port);
  snprintf(config, sizeof config, "%s/nutcracker.yml", proxy->process.folder);
  snprintf(stats, sizeof stats, "%d", server_process_free_port());
  write_config(proxy, ports, count, config);
  server_process_add_args(&proxy->process,
                          (const char *[]){program, "-c", config, "-o", "nutcracker.log", "-p",
                                           "nutcracker.pid", "-a", "127.0.0.1", "-s", stats, NULL});
  server_process_launch(&proxy->process);
  server_process_await(&proxy->process, is_up, proxy);
  *ret = proxy;
  return 1;
}

const char *twemproxy_uri(const twemproxy *proxy) { return proxy->uri; }

void twemproxy_stop(twemproxy *proxy) {
  if (proxy == NULL) return;
  server_process_clean(&proxy->process);
  free(proxy);
}
