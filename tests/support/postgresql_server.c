/* postgresql_server.c: a real PostgreSQL for a test. */
#include "postgresql_server.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <libpq-fe.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "redis_server.h"

enum { ARGS = 48, TRIES = 6000, STEP_MS = 5, NOBODY = 65534 };

struct postgresql_server {
  pid_t pid;
  int port;
  uid_t user;
  gid_t group;
  char bin[256], folder[48], data[64], conninfo[96], socketinfo[128];
  char *args[ARGS];
  int arg_count;
  PGconn *conn;
  char *text;
};

static void die(const char *what) {
  fprintf(stderr, "postgresql_server: %s: %s\n", what, strerror(errno));
  abort();
}

/* ---- finding, making, starting --------------------------------------------------------------------------- */

static int find_in(const char *folder, char *room, size_t size) {
  char file[4200];
  snprintf(file, sizeof file, "%s/initdb", folder);
  if (access(file, X_OK) != 0 || strlen(folder) >= size) return 0;
  snprintf(room, size, "%s", folder);
  return 1;
}

static int find(char *room, size_t size) {
  glob_t found = {0};
  int is_found = 0;
  if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) == 0)
    for (size_t i = found.gl_pathc; i > 0 && !is_found; i--) is_found = find_in(found.gl_pathv[i - 1], room, size);
  globfree(&found);
  const char *path = getenv("PATH");
  char *folders = strdup(path != NULL ? path : "/usr/bin"), *save = NULL;
  for (char *folder = strtok_r(folders, ":", &save); folder != NULL && !is_found; folder = strtok_r(NULL, ":", &save)) is_found = find_in(folder, room, size);
  free(folders);
  return is_found;
}

static void add_arg(postgresql_server *server, const char *arg) {
  if (server->arg_count >= ARGS - 1) die("too many settings");
  server->args[server->arg_count++] = strdup(arg);
}

/* postgres refuses root. */
static void choose_user(postgresql_server *server) {
  const struct passwd *user = getpwnam("postgres");
  server->user = geteuid() != 0 ? geteuid() : user != NULL ? user->pw_uid : NOBODY;
  server->group = geteuid() != 0 ? getegid() : user != NULL ? user->pw_gid : NOBODY;
}

/* In a child: a program as that user, that dies with `parent`. A postmaster clears up after SIGQUIT, and after SIGKILL it doesn't. */
static void become(const postgresql_server *server, pid_t parent, const char *program, char **args) {
  char file[300];
  int null = open("/dev/null", O_RDWR), log = -1;
  snprintf(file, sizeof file, "%s/log", server->folder);
  if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(server->group) != 0 || setuid(server->user) != 0)) _exit(126);
  prctl(PR_SET_PDEATHSIG, SIGQUIT);
  if (getppid() != parent || chdir(server->folder) != 0) _exit(1);
  log = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(null, 0);
  dup2(log, 1);
  dup2(log, 2);
  for (int fd = 3; fd < 256; fd++) close(fd);
  snprintf(file, sizeof file, "%s/%s", server->bin, program);
  args[0] = file; /* by this they find each other */
  execv(file, args);
  _exit(127);
}

static void launch(postgresql_server *server) {
  pid_t parent = getpid();
  server->pid = fork();
  if (server->pid < 0) die("fork");
  if (server->pid == 0) become(server, parent, "postgres", server->args);
}

static void make_data(postgresql_server *server) {
  char *args[] = {"initdb", "--no-sync", "-A", "trust", "-U", "postgres", "--encoding=UTF8", "--locale=C", "-D", server->data, NULL};
  pid_t parent = getpid(), pid = fork();
  int status = -1;
  if (pid == 0) become(server, parent, "initdb", args);
  if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) die("initdb failed");
}

static void hang_up(postgresql_server *server) {
  if (server->conn != NULL) PQfinish(server->conn);
  server->conn = NULL;
}

static void ignore_notice(void *arg, const char *text) { (void)arg, (void)text; }

static void wait_until_up(postgresql_server *server) {
  for (int i = 0; i < TRIES; i++) {
    server->conn = PQconnectdb(server->socketinfo);
    if (PQstatus(server->conn) == CONNECTION_OK) {
      PQsetNoticeProcessor(server->conn, ignore_notice, NULL);
      return;
    }
    hang_up(server);
    /* After a kill the last backends may still use the memory: then it ends at once, and is tried again. */
    if (waitpid(server->pid, NULL, WNOHANG) == server->pid) launch(server);
    poll(NULL, 0, STEP_MS);
  }
  die("postgres doesn't answer");
}

int postgresql_server_start(postgresql_server **ret, const char *const *settings) {
  postgresql_server *server = calloc(1, sizeof *server);
  if (server == NULL) die("calloc");
  if (!find(server->bin, sizeof server->bin)) {
    fprintf(stderr, "SKIPPED: there is no postgres in /usr/lib/postgresql/*/bin or PATH (apt-get install postgresql)\n");
    free(server);
    return 0;
  }
  choose_user(server);
  snprintf(server->folder, sizeof server->folder, "/tmp/corral-postgresql-XXXXXX");
  if (mkdtemp(server->folder) == NULL) die("mkdtemp");
  if (geteuid() == 0 && chown(server->folder, server->user, server->group) != 0) die("chown");
  server->port = redis_server_free_port();
  snprintf(server->data, sizeof server->data, "%s/data", server->folder);
  snprintf(server->conninfo, sizeof server->conninfo, "host=127.0.0.1 port=%d user=postgres dbname=postgres", server->port);
  snprintf(server->socketinfo, sizeof server->socketinfo, "host=%s port=%d user=postgres dbname=postgres", server->folder, server->port);
  char port[12];
  snprintf(port, sizeof port, "%d", server->port);
  const char *fixed[] = {"postgres", "-D", server->data, "-k", server->folder, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) add_arg(server, fixed[i]);
  for (; settings != NULL && *settings != NULL; settings++) add_arg(server, "-c"), add_arg(server, *settings);
  make_data(server);
  launch(server);
  wait_until_up(server);
  *ret = server;
  return 1;
}

/* ---- ending ---------------------------------------------------------------------------------------------- */

static void end(postgresql_server *server, int signal) {
  hang_up(server);
  if (server->pid > 0) {
    kill(server->pid, signal);
    waitpid(server->pid, NULL, 0);
  }
  server->pid = 0;
}

void postgresql_server_kill(postgresql_server *server) { end(server, SIGKILL); }
void postgresql_server_shut(postgresql_server *server) { end(server, SIGINT); }

void postgresql_server_restart(postgresql_server *server) {
  if (server->pid > 0) postgresql_server_kill(server);
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

void postgresql_server_stop(postgresql_server *server) {
  if (server == NULL) return;
  end(server, SIGQUIT);
  remove_folder(server->folder);
  for (int i = 0; i < server->arg_count; i++) free(server->args[i]);
  free(server->text);
  free(server);
}

/* ---- using ----------------------------------------------------------------------------------------------- */

const char *postgresql_server_uri(const postgresql_server *server, const char *params) {
  static char rooms[8][256];
  static unsigned next;
  char *room = rooms[next++ % 8];
  snprintf(room, sizeof rooms[0], "postgresql://postgres@127.0.0.1:%d/postgres%s", server->port, params);
  return room;
}

const char *postgresql_server_conninfo(const postgresql_server *server) { return server->conninfo; }
int postgresql_server_port(const postgresql_server *server) { return server->port; }
const char *postgresql_server_folder(const postgresql_server *server) { return server->folder; }
const char *postgresql_server_data(const postgresql_server *server) { return server->data; }
pid_t postgresql_server_pid(const postgresql_server *server) { return server->pid; }

void postgresql_server_hba(postgresql_server *server, const char *lines) {
  char file[128];
  snprintf(file, sizeof file, "%s/pg_hba.conf", server->data);
  FILE *to = fopen(file, "w");
  if (to == NULL) die(file);
  fprintf(to, "local all all trust\n%s\n", lines);
  fclose(to);
  char before[64];
  snprintf(before, sizeof before, "%s", postgresql_server_ask(server, "SELECT pg_conf_load_time()"));
  postgresql_server_ask(server, "SELECT pg_reload_conf()");
  do {
    hang_up(server); /* a new connection knows what the postmaster knows */
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
  const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE), *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
  free(server->text);
  if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) > 0 && PQnfields(r) > 0) server->text = strdup(PQgetvalue(r, 0, 0));
  else if (PQresultStatus(r) == PGRES_TUPLES_OK || PQresultStatus(r) == PGRES_COMMAND_OK) server->text = strdup("");
  else if (asprintf(&server->text, "ERROR %s: %s", state != NULL ? state : "", text != NULL ? text : PQerrorMessage(server->conn)) < 0) die("asprintf");
  PQclear(r);
  free(sql);
  return server->text;
}
