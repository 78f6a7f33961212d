/* postgresql_server.c: a real PostgreSQL for a test. */
#include "postgresql_server.h"

#include <glob.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <unistd.h>

#include "server_process.h"

enum { NOBODY = 65534 };

struct postgresql_server {
  server_process process;
  int port;
  char data[80], conninfo[96], socketinfo[128];
  PGconn *conn;
  char *text;
};

static void die(const char *what) { server_process_die("postgresql_server", what); }

/* ---- finding, making, starting ------------------------------------------------------------- */

/* Finds initdb and postgres. initdb, started by its absolute path, finds postgres beside it. */
static int find(char initdb[SERVER_PROCESS_PATH], char postgres[SERVER_PROCESS_PATH]) {
  glob_t found = {0};
  int is_found = glob("/usr/lib/postgresql/*/bin/initdb", 0, NULL, &found) == 0;
  if (is_found) snprintf(initdb, SERVER_PROCESS_PATH, "%s", found.gl_pathv[found.gl_pathc - 1]);
  globfree(&found);
  if (!is_found && !server_process_find("initdb", "postgresql", initdb)) return 0;
  int folder_len = (int)(strrchr(initdb, '/') - initdb);
  return snprintf(postgres, SERVER_PROCESS_PATH, "%.*s/postgres", folder_len, initdb) <
         SERVER_PROCESS_PATH;
}

/* postgres refuses to run as root. */
static void choose_user(server_process *process) {
  const struct passwd *user = getpwnam("postgres");
  if (geteuid() != 0) return;
  process->user = user != NULL ? user->pw_uid : NOBODY;
  process->group = user != NULL ? user->pw_gid : NOBODY;
}

static void hang_up(postgresql_server *server) {
  if (server->conn != NULL) PQfinish(server->conn);
  server->conn = NULL;
}

static void ignore_notice(void *arg, const char *text) { (void)arg, (void)text; }

static int answers(void *arg) {
  postgresql_server *server = arg;
  server->conn = PQconnectdb(server->socketinfo);
  if (PQstatus(server->conn) != CONNECTION_OK) {
    hang_up(server);
    return 0;
  }
  PQsetNoticeProcessor(server->conn, ignore_notice, NULL);
  return 1;
}

static void wait_until_up(postgresql_server *server) {
  server_process_await(&server->process, answers, server);
}

/* Makes the server's folder, and its command line. */
static postgresql_server *prepare(const char *postgres) {
  char port[12];
  postgresql_server *server = calloc(1, sizeof *server);
  if (server == NULL) die("calloc");
  server_process *process = &server->process;
  choose_user(process);
  /* after SIGQUIT the postmaster cleans up, after SIGKILL it doesn't */
  process->death_signal = SIGQUIT;
  /* after a kill the last backends may still use the shared memory; then a new postmaster exits at
   * once */
  process->is_stubborn = 1;
  server_process_init(process, "postgresql", room_on_disk());
  server->port = server_process_free_port();
  snprintf(server->data, sizeof server->data, "%s/data", process->folder);
  snprintf(server->conninfo, sizeof server->conninfo,
           "host=127.0.0.1 port=%d user=postgres dbname=postgres", server->port);
  snprintf(server->socketinfo, sizeof server->socketinfo,
           "host=%s port=%d user=postgres dbname=postgres", process->folder, server->port);
  snprintf(port, sizeof port, "%d", server->port);
  server_process_add_args(
      process, (const char *[]){postgres, "-D", server->data, "-k", process->folder, "-p", port,
                                "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
                                /* shared memory is in the folder, which is removed */
                                "-c", "dynamic_shared_memory_type=mmap", NULL});
  return server;
}

int postgresql_server_start(postgresql_server **ret, const char *const *settings) {
  char initdb[SERVER_PROCESS_PATH], postgres[SERVER_PROCESS_PATH];
  if (!find(initdb, postgres)) return 0;
  postgresql_server *server = prepare(postgres);
  for (; settings != NULL && *settings != NULL; settings++)
    server_process_add_args(&server->process, (const char *[]){"-c", *settings, NULL});
  server_process_run(&server->process,
                     (char *[]){initdb, "--no-sync", "-A", "trust", "-U", "postgres",
                                "--encoding=UTF8", "--locale=C", "-D", server->data, NULL});
  server_process_launch(&server->process);
  wait_until_up(server);
  *ret = server;
  return 1;
}

void postgresql_server_replica(postgresql_server **ret, const postgresql_server *primary) {
  char backup[SERVER_PROCESS_PATH], postgres[SERVER_PROCESS_PATH], from[96];
  if (!find(backup, postgres)) die("there is no postgres");
  snprintf(strrchr(backup, '/'), sizeof "/pg_basebackup", "/pg_basebackup");
  snprintf(from, sizeof from, "host=127.0.0.1 port=%d user=postgres", primary->port);
  postgresql_server *server = prepare(postgres);
  server_process_run(&server->process, (char *[]){backup, "-d", from, "-D", server->data, "-R",
                                                  "-X", "stream", "-c", "fast", "--no-sync", NULL});
  server_process_launch(&server->process);
  wait_until_up(server);
  *ret = server;
}

/* ---- ending -------------------------------------------------------------------------------- */

static void end(postgresql_server *server, int signal) {
  hang_up(server);
  server_process_end(&server->process, signal);
}

void postgresql_server_kill(postgresql_server *server) { end(server, SIGKILL); }
void postgresql_server_shut(postgresql_server *server) { end(server, SIGINT); }

void postgresql_server_restart(postgresql_server *server) {
  postgresql_server_kill(server);
  server_process_launch(&server->process);
  wait_until_up(server);
}

int postgresql_server_segment(const postgresql_server *server) {
  char file[128];
  int id = -1;
  snprintf(file, sizeof file, "%s/postmaster.pid", server->data);
  FILE *from = fopen(file, "r");
  if (from == NULL) return -1;
  for (int line = 1; line < 7; line++) (void)!fscanf(from, "%*[^\n]%*1[\n]");
  if (fscanf(from, "%*u %d", &id) != 1) id = -1;
  fclose(from);
  return id;
}

void postgresql_server_stop(postgresql_server *server) {
  if (server == NULL) return;
  end(server, SIGQUIT);
  int id = postgresql_server_segment(server); /* its file outlives a postmaster that was killed */
  if (id >= 0) shmctl(id, IPC_RMID, NULL);
  server_process_clean(&server->process);
  free(server->text);
  free(server);
}

/* ---- using --------------------------------------------------------------------------------- */

const char *postgresql_server_uri(const postgresql_server *server, const char *params) {
  static char rooms[8][256];
  static unsigned next;
  char *room = rooms[next++ % 8];
  snprintf(room, sizeof rooms[0], "postgresql://postgres@127.0.0.1:%d/postgres%s", server->port,
           params);
  return room;
}

const char *postgresql_server_conninfo(const postgresql_server *server) { return server->conninfo; }
int postgresql_server_port(const postgresql_server *server) { return server->port; }
const char *postgresql_server_folder(const postgresql_server *server) {
  return server->process.folder;
}
const char *postgresql_server_data(const postgresql_server *server) { return server->data; }
pid_t postgresql_server_pid(const postgresql_server *server) { return server->process.pid; }

void postgresql_server_hba(postgresql_server *server, const char *lines) {
  char file[128];
  snprintf(file, sizeof file, "%s/pg_hba.conf", server->data);
  FILE *to = fopen(file, "w");
  if (to == NULL) die(file);
  fprintf(to, "local all all trust\n%s\n", lines);
  fclose(to);
  char before[64];
  snprintf(before, sizeof before, "%s",
           postgresql_server_ask(server, "SELECT pg_conf_load_time()"));
  postgresql_server_ask(server, "SELECT pg_reload_conf()");
  do {
    hang_up(server); /* only a new connection is sure to see the postmaster's new state */
  } while (strcmp(postgresql_server_ask(server, "SELECT pg_conf_load_time()"), before) == 0);
}

const char *postgresql_server_ask(postgresql_server *server, const char *format, ...) {
  va_list args;
  char *sql = NULL;
  va_start(args, format);
  if (vasprintf(&sql, format, args) < 0) die("vasprintf");
  va_end(args);
  if (server->conn == NULL || PQstatus(server->conn) != CONNECTION_OK) {
    hang_up(server);
    wait_until_up(server);
  }
  PGresult *r = PQexec(server->conn, sql);
  const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE),
             *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
  free(server->text);
  if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) > 0 && PQnfields(r) > 0)
    server->text = strdup(PQgetvalue(r, 0, 0));
  else if (PQresultStatus(r) == PGRES_TUPLES_OK || PQresultStatus(r) == PGRES_COMMAND_OK)
    server->text = strdup("");
  else if (asprintf(&server->text, "ERROR %s: %s", state != NULL ? state : "",
                    text != NULL ? text : PQerrorMessage(server->conn)) < 0)
    die("asprintf");
  PQclear(r);
  free(sql);
  return server->text;
}
