/* mariadb_server.c: a real MariaDB for a test. Compiled only with the mariadb: store. */
#include "mariadb_server.h"

#ifdef CORRAL_HAVE_mariadb
#include <mysql.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_process.h"

enum { ROOM = 4096 };

struct mariadb_server {
  server_process process;
  int port;
  char socket[80], uri[120], text[ROOM];
};

static void die(const char *what) { server_process_die("mariadb_server", what); }

/* The server refuses to run as root without this option. */
#define AS_ROOT geteuid() == 0 ? "--user=root" : NULL

static void install(const server_process *process, char *program) {
  char data[100];
  snprintf(data, sizeof data, "--datadir=%s/data", process->folder);
  server_process_run(process,
                     (char *[]){program, "--no-defaults", data,
                                "--auth-root-authentication-method=normal", "--skip-test-db",
                                "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=4M",
                                "--innodb-buffer-pool-size=8M", AS_ROOT, NULL});
}

static void add_args(mariadb_server *server, const char *program) {
  char data[100], socket_arg[100], port[24], pid_file[100];
  snprintf(data, sizeof data, "--datadir=%s/data", server->process.folder);
  snprintf(socket_arg, sizeof socket_arg, "--socket=%s", server->socket);
  snprintf(port, sizeof port, "--port=%d", server->port);
  snprintf(pid_file, sizeof pid_file, "--pid-file=%s/pid", server->process.folder);
  server_process_add_args(
      &server->process,
      (const char *[]){program, "--no-defaults", data, socket_arg, port, pid_file,
                       "--bind-address=127.0.0.1", "--skip-log-bin", "--skip-name-resolve",
                       "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=4M",
                       "--innodb-buffer-pool-size=8M", "--innodb-use-native-aio=0",
                       "--performance-schema=OFF", "--max-connections=60", AS_ROOT, NULL});
}

/* NULL: the server doesn't answer (yet). */
static MYSQL *connected(const mariadb_server *server) {
  MYSQL *mysql = mysql_init(NULL);
  unsigned patience = 10;
  if (mysql == NULL) die("mysql_init");
  mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &patience);
  if (mysql_real_connect(mysql, NULL, "root", NULL, NULL, 0, server->socket, 0) != NULL)
    return mysql;
  mysql_close(mysql);
  return NULL;
}

static int answers(void *arg) {
  MYSQL *mysql = connected(arg);
  if (mysql != NULL) mysql_close(mysql);
  return mysql != NULL;
}

static void wait_until_up(mariadb_server *server) {
  server_process_await(&server->process, answers, server);
}

int mariadb_server_start(mariadb_server **ret) {
  char program[SERVER_PROCESS_PATH], installer[SERVER_PROCESS_PATH];
  if (!server_process_find("mariadbd", "mariadb-server", program) ||
      !server_process_find("mariadb-install-db", "mariadb-server", installer))
    return 0;
  mariadb_server *server = calloc(1, sizeof *server);
  if (server == NULL) die("calloc");
  server_process_init(&server->process, "mariadb", room_on_disk());
  snprintf(server->socket, sizeof server->socket, "%s/socket", server->process.folder);
  server->port = server_process_free_port();
  snprintf(server->uri, sizeof server->uri,
           "mariadb://lock%%20user:p%%40ss%%3Aword%%2F@127.0.0.1:%d/", server->port);
  install(&server->process, installer);
  add_args(server, program);
  server_process_launch(&server->process);
  wait_until_up(server);
  mariadb_server_settle(server);
  mariadb_server_ask(server, "CREATE USER 'lock user'@'%%' IDENTIFIED BY 'p@ss:word/'");
  *ret = server;
  return 1;
}

void mariadb_server_kill(mariadb_server *server) { server_process_kill(&server->process); }

void mariadb_server_restart(mariadb_server *server) {
  mariadb_server_kill(server);
  server_process_launch(&server->process);
  wait_until_up(server);
}

void mariadb_server_settle(mariadb_server *server) {
  while (strcmp(mariadb_server_ask(server,
                                   "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS "
                                   "WHERE VARIABLE_NAME = 'UPTIME'"),
                "0") == 0)
    poll(NULL, 0, SERVER_PROCESS_STEP_MS);
}

void mariadb_server_stop(mariadb_server *server) {
  if (server == NULL) return;
  server_process_clean(&server->process);
  free(server);
}

void mariadb_server_pause(mariadb_server *server) { server_process_pause(&server->process); }
void mariadb_server_resume(mariadb_server *server) { server_process_resume(&server->process); }

const char *mariadb_server_uri(const mariadb_server *server) { return server->uri; }
const char *mariadb_server_socket(const mariadb_server *server) { return server->socket; }
int mariadb_server_port(const mariadb_server *server) { return server->port; }

const char *mariadb_server_ask(mariadb_server *server, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(server->text, sizeof server->text, format, args);
  va_end(args);
  MYSQL *mysql = connected(server);
  /* a server that is full ends connections that were closed at its own pace */
  for (int tries = 0; mysql == NULL && tries < 1000; tries++) {
    usleep(10000);
    mysql = connected(server);
  }
  if (mysql == NULL) die("can't connect");
  if (mysql_query(mysql, server->text) != 0) {
    fprintf(stderr, "mariadb_server: %s: %s\n", server->text, mysql_error(mysql));
    abort();
  }
  MYSQL_RES *result = mysql_store_result(mysql);
  MYSQL_ROW row = result != NULL ? mysql_fetch_row(result) : NULL;
  snprintf(server->text, sizeof server->text, "%s", row != NULL && row[0] != NULL ? row[0] : "");
  if (result != NULL) mysql_free_result(result);
  mysql_close(mysql);
  return server->text;
}
#endif
