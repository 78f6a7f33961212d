/* mariadb_server.c: a real MariaDB for a test. Only where the mariadb: store is built. */
#include "mariadb_server.h"

#ifdef CORRAL_HAVE_mariadb
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mysql.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRIES = 4000, STEP_MS = 5, ROOM = 4096 };

struct mariadb_server {
  pid_t pid;
  int port;
  char folder[48], data[80], socket[80], uri[120], text[ROOM];
};

static void die(const char *what) {
  fprintf(stderr, "mariadb_server: %s: %s\n", what, strerror(errno));
  abort();
}

static int free_port(void) {
  for (int i = 0; i < 200; i++) {
    uint16_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0) die("getrandom");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)(20000 + random % 12000));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bound = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) close(fd);
    if (bound) return ntohs(at.sin_port);
  }
  die("no free port");
  return 0;
}

/* The path of a program in PATH, or where Debian keeps servers; 0: there is none. */
static int find(const char *name, char file[ROOM]) {
  const char *path = getenv("PATH");
  char folders[ROOM], *save = NULL;
  snprintf(folders, sizeof folders, "%s:/usr/sbin:/usr/local/sbin", path != NULL ? path : "/usr/bin");
  for (char *folder = strtok_r(folders, ":", &save); folder != NULL; folder = strtok_r(NULL, ":", &save))
    if (snprintf(file, ROOM, "%s/%s", folder, name) < ROOM && access(file, X_OK) == 0) return 1;
  return 0;
}

static pid_t spawn(char *const *args) {
  pid_t parent = getpid(), pid = fork();
  if (pid < 0) die("fork");
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(null, 1);
  dup2(null, 2);
  execv(args[0], args);
  _exit(127);
}

/* The server refuses to run as root unless it is told to. */
#define AS_ROOT geteuid() == 0 ? "--user=root" : NULL

static void install(mariadb_server *server, char *program) {
  char data[100];
  int how;
  snprintf(data, sizeof data, "--datadir=%s", server->data);
  pid_t pid = spawn((char *[]){program, "--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db",
                               "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M", AS_ROOT, NULL});
  if (waitpid(pid, &how, 0) != pid || !WIFEXITED(how) || WEXITSTATUS(how) != 0) die("mariadb-install-db failed");
}

static void launch(mariadb_server *server) {
  char program[ROOM], data[100], socket_arg[100], port[24], pid_file[100], log_file[100];
  if (!find("mariadbd", program)) die("mariadbd is gone");
  snprintf(data, sizeof data, "--datadir=%s", server->data);
  snprintf(socket_arg, sizeof socket_arg, "--socket=%s", server->socket);
  snprintf(port, sizeof port, "--port=%d", server->port);
  snprintf(pid_file, sizeof pid_file, "--pid-file=%s/pid", server->folder);
  snprintf(log_file, sizeof log_file, "--log-error=%s/log", server->folder);
  server->pid = spawn((char *[]){program, "--no-defaults", data, socket_arg, port, pid_file, log_file, "--bind-address=127.0.0.1", "--skip-log-bin", "--skip-name-resolve",
                                 "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M", "--innodb-use-native-aio=0",
                                 "--performance-schema=OFF", "--max-connections=60", AS_ROOT, NULL});
}

/* NULL: it doesn't answer (yet). */
static MYSQL *connected(const mariadb_server *server) {
  MYSQL *mysql = mysql_init(NULL);
  unsigned patience = 10;
  if (mysql == NULL) die("mysql_init");
  mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &patience);
  if (mysql_real_connect(mysql, NULL, "root", NULL, NULL, 0, server->socket, 0) != NULL) return mysql;
  mysql_close(mysql);
  return NULL;
}

static void wait_until_up(mariadb_server *server) {
  for (int i = 0; i < TRIES; i++) {
    MYSQL *mysql = connected(server);
    if (mysql != NULL) mysql_close(mysql);
    if (mysql != NULL) return;
    if (waitpid(server->pid, NULL, WNOHANG) == server->pid) die("mariadbd ended at once: wrong arguments?");
    poll(NULL, 0, STEP_MS);
  }
  die("mariadbd doesn't answer");
}

int mariadb_server_start(mariadb_server **ret) {
  char program[ROOM], installer[ROOM];
  if (!find("mariadbd", program) || !find("mariadb-install-db", installer)) {
    fprintf(stderr, "SKIPPED: there is no mariadbd, or no mariadb-install-db (apt-get install mariadb-server)\n");
    return 0;
  }
  mariadb_server *server = calloc(1, sizeof *server);
  if (server == NULL) die("calloc");
  snprintf(server->folder, sizeof server->folder, "/tmp/corral-mariadb-XXXXXX");
  if (mkdtemp(server->folder) == NULL) die("mkdtemp");
  snprintf(server->data, sizeof server->data, "%s/data", server->folder);
  snprintf(server->socket, sizeof server->socket, "%s/socket", server->folder);
  server->port = free_port();
  snprintf(server->uri, sizeof server->uri, "mariadb://lock%%20user:p%%40ss%%3Aword%%2F@127.0.0.1:%d/", server->port);
  install(server, installer);
  launch(server);
  wait_until_up(server);
  mariadb_server_settle(server);
  mariadb_server_ask(server, "CREATE USER 'lock user'@'%%' IDENTIFIED BY 'p@ss:word/'");
  *ret = server;
  return 1;
}

void mariadb_server_kill(mariadb_server *server) {
  kill(server->pid, SIGKILL);
  waitpid(server->pid, NULL, 0);
}

void mariadb_server_restart(mariadb_server *server) {
  launch(server);
  wait_until_up(server);
}

void mariadb_server_settle(mariadb_server *server) {
  while (strcmp(mariadb_server_ask(server, "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'"), "0") == 0)
    poll(NULL, 0, STEP_MS);
}

void mariadb_server_stop(mariadb_server *server) {
  char command[80];
  if (server == NULL) return;
  mariadb_server_kill(server);
  snprintf(command, sizeof command, "rm -rf %s", server->folder);
  if (system(command) != 0) die("rm");
  free(server);
}

void mariadb_server_pause(mariadb_server *server) {
  int how;
  kill(server->pid, SIGSTOP);
  if (waitpid(server->pid, &how, WUNTRACED) != server->pid || !WIFSTOPPED(how)) die("the server doesn't stop"); /* all of its threads */
}
void mariadb_server_resume(mariadb_server *server) { kill(server->pid, SIGCONT); }

const char *mariadb_server_uri(const mariadb_server *server) { return server->uri; }
const char *mariadb_server_socket(const mariadb_server *server) { return server->socket; }
int mariadb_server_port(const mariadb_server *server) { return server->port; }

const char *mariadb_server_ask(mariadb_server *server, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(server->text, sizeof server->text, format, args);
  va_end(args);
  MYSQL *mysql = connected(server);
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
