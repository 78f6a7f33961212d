/* zookeeper_server.c: a real ZooKeeper for a test. */
#include "zookeeper_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_process.h"

#define JARS "/usr/share/java/"

enum { ROOM = 1 << 16 };

struct zookeeper_server {
  server_process process;
  int port;
  char text[ROOM];
};

static void die(const char *what) { server_process_die("zookeeper_server", what); }

static int find_jar(void) {
  if (access(JARS "zookeeper.jar", R_OK) == 0) return 1;
  fprintf(stderr, "SKIPPED: there is no " JARS "zookeeper.jar (apt-get install zookeeper)\n");
  return 0;
}

static void write_config(const zookeeper_server *server, const char *path) {
  FILE *file = fopen(path, "w");
  if (file == NULL) die(path);
  fprintf(file,
          "tickTime=100\ndataDir=%s/"
          "data\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n",
          server->process.folder, server->port);
  fprintf(file, "4lw.commands.whitelist=*\nmaxClientCnxns=0\nminSessionTimeout="
                "400\nmaxSessionTimeout=4000\n");
  if (fclose(file) != 0) die(path);
}

const char *zookeeper_server_ask(zookeeper_server *server, const char *word) {
  server_process_exchange(server->port, word, strlen(word), server->text, ROOM);
  return server->text;
}

static int answers(void *arg) { return strcmp(zookeeper_server_ask(arg, "ruok"), "imok") == 0; }

static void wait_until_up(zookeeper_server *server) {
  server_process_await(&server->process, answers, server);
}

/* zookeeper.jar names its own libraries; slf4j-nop.jar discards the log. */
static void add_args(server_process *process, const char *java, const char *option,
                     const char *config) {
  server_process_add_args(process,
                          (const char *[]){java, "-Xmx128m", "-XX:TieredStopAtLevel=1",
                                           "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no", NULL});
  if (option != NULL) server_process_add_arg(process, option);
  server_process_add_args(
      process, (const char *[]){"-cp", JARS "zookeeper.jar:" JARS "slf4j-nop.jar",
                                "org.apache.zookeeper.server.ZooKeeperServerMain", config, NULL});
}

int zookeeper_server_start(zookeeper_server **ret, const char *option) {
  char java[SERVER_PROCESS_PATH], config[96];
  if (!server_process_find("java", "zookeeper", java) || !find_jar()) return 0;
  zookeeper_server *server = calloc(1, sizeof *server);
  if (server == NULL) die("calloc");
  server_process *process = &server->process;
  server_process_init(process, "zookeeper", room_on_disk());
  snprintf(config, sizeof config, "%s/zoo.cfg", process->folder);
  server->port = server_process_free_port();
  write_config(server, config);
  add_args(process, java, option, config);
  server_process_launch(process);
  wait_until_up(server);
  *ret = server;
  return 1;
}

void zookeeper_server_kill(zookeeper_server *server) { server_process_kill(&server->process); }

void zookeeper_server_restart(zookeeper_server *server) {
  zookeeper_server_kill(server);
  server_process_launch(&server->process);
  wait_until_up(server);
}

void zookeeper_server_stop(zookeeper_server *server) {
  if (server == NULL) return;
  server_process_clean(&server->process);
  free(server);
}

void zookeeper_server_pause(zookeeper_server *server) { server_process_pause(&server->process); }
void zookeeper_server_resume(zookeeper_server *server) { server_process_resume(&server->process); }

int zookeeper_server_port(const zookeeper_server *server) { return server->port; }
