/* nginx_server.c: a real nginx for a test. */
#include "nginx_server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server_process.h"

enum { TRIES = 3000, STEP_MS = 5, PROCESSES = 64, VARIABLES = 16, PORT_TRIES = 5 };

struct nginx_server {
  server_process process;
  int port, workers, connections, has_port, is_daemon;
  pid_t guard; /* of a daemon; 0: none */
  char address[96];
  char *main, *http, *level, *environment[VARIABLES + 1], *text;
};

static _Noreturn void die(const nginx_server *server, const char *what) {
  int code = errno;
  if (server != NULL) {
    fprintf(stderr, "%s\n", nginx_server_stderr((nginx_server *)(uintptr_t)server));
    fprintf(stderr, "%s\n", nginx_server_log((nginx_server *)(uintptr_t)server));
  }
  errno = code;
  server_process_die("nginx_server", what);
}

/* ---- files --------------------------------------------------------------------------------- */

/* Writes a text with its %WORDS% replaced. */
static void put(const nginx_server *server, FILE *file, const char *text) {
  while (*text != '\0') {
    size_t plain = strcspn(text, "%");
    fwrite(text, 1, plain, file);
    text += plain;
    if (strncmp(text, "%PORT%", 6) == 0)
      text += 6, fprintf(file, "%d", server->port);
    else if (strncmp(text, "%FOLDER%", 8) == 0)
      text += 8, fputs(server->process.folder, file);
    else if (strncmp(text, "%SOCKET%", 8) == 0)
      text += 8, fprintf(file, "%s/socket", server->process.folder);
    else if (*text != '\0')
      fputc(*text++, file);
  }
}

static void write_config(const nginx_server *server) {
  static const char *const temps[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};
  char path[96];
  snprintf(path, sizeof path, "%s/nginx.conf", server->process.folder);
  FILE *file = fopen(path, "we");
  if (file == NULL) die(server, path);
  fprintf(file,
          "env CORRAL_STATS_DIR;\ndaemon %s;\nworker_processes %d;\npid %s/nginx.pid;\nlock_file "
          "%s/nginx.lock;\nerror_log %s/error.log %s;\n",
          server->is_daemon ? "on" : "off", server->workers, server->process.folder,
          server->process.folder, server->process.folder, server->level);
  if (geteuid() == 0) fputs("user root;\n", file);
  for (char *const *variable = server->environment; *variable != NULL; variable++)
    fprintf(file, "env %.*s;\n", (int)strcspn(*variable, "="), *variable);
  put(server, file, server->main);
  fprintf(file, "\nevents { worker_connections %d; }\nhttp {\naccess_log off;\n",
          server->connections);
  for (size_t i = 0; i < sizeof temps / sizeof *temps; i++)
    fprintf(file, "%s_temp_path %s/%s_temp;\n", temps[i], server->process.folder, temps[i]);
  put(server, file, server->http);
  fputs("\n}\n", file);
  if (fclose(file) != 0) die(server, path);
}

static const char *file_text(nginx_server *server, const char *name) {
  char path[96];
  struct stat about;
  snprintf(path, sizeof path, "%s/%s", server->process.folder, name);
  free(server->text);
  server->text = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &about) != 0) {
    if (fd >= 0) close(fd);
    return "";
  }
  size_t size = (size_t)about.st_size, got = 0;
  server->text = malloc(size + 1);
  if (server->text == NULL) abort();
  for (ssize_t n = 1; n > 0 && got<size; got += n> 0 ? (size_t)n : 0)
    n = read(fd, server->text + got, size - got);
  close(fd);
  server->text[got] = '\0';
  return server->text;
}

const char *nginx_server_log(nginx_server *server) { return file_text(server, "error.log"); }
const char *nginx_server_stderr(nginx_server *server) { return file_text(server, "log"); }

/* ---- processes ----------------------------------------------------------------------------- */

static pid_t parent_of(pid_t pid) {
  char path[48], text[256];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  const char *end = strrchr(text, ')'); /* " S PPID ..." */
  return end != NULL && strlen(end) > 4 && end[2] != 'Z' ? (pid_t)strtol(end + 4, NULL, 10) : 0;
}

/* Children of the master; `taking`: only workers that take requests. */
static int children(const nginx_server *server, pid_t *pids, int most, int taking) {
  char path[64], title[64];
  int count = 0, pid = 0;
  if (server->process.pid <= 0) return 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)server->process.pid,
           (int)server->process.pid);
  FILE *file = fopen(path, "re");
  while (file != NULL && fscanf(file, "%d", &pid) == 1) {
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, title, sizeof title - 1) : -1;
    if (fd >= 0) close(fd);
    title[n > 0 ? n : 0] = '\0';
    int is_one = taking ? strncmp(title, "nginx: worker process", 21) == 0 &&
                              strstr(title, "shutting") == NULL
                        : parent_of(pid) == server->process.pid;
    if (is_one && count < most) pids[count++] = pid;
  }
  if (file != NULL) fclose(file);
  return count;
}

int nginx_server_workers(const nginx_server *server, pid_t *pids, int most) {
  return children(server, pids, most, 1);
}

int nginx_server_children(const nginx_server *server) {
  pid_t pids[PROCESSES];
  return children(server, pids, PROCESSES, 0);
}

void nginx_server_await_children(const nginx_server *server, int count) {
  for (int i = 0; i < TRIES; i++) {
    if (nginx_server_children(server) == count) return;
    poll(NULL, 0, STEP_MS);
  }
  die(server, "its processes are not as many as they should be");
}

static int accepts(const nginx_server *server) {
  struct sockaddr_un path = {.sun_family = AF_UNIX};
  int fd = server->has_port ? server_process_dial(server->port)
                            : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  snprintf(path.sun_path, sizeof path.sun_path, "%s/socket", server->process.folder);
  int is_there =
      fd >= 0 && (server->has_port || connect(fd, (struct sockaddr *)&path, sizeof path) == 0);
  if (fd >= 0) close(fd);
  return is_there;
}

/* ---- daemons ------------------------------------------------------------------------------- */

/* nginx takes SIGUSR2 only when its parent isn't the one that it began with. A daemon's parent is
 * this process, the nearest subreaper, and its process group has all that it begins. */

/* The pid in the pid file, other than `old`. */
static pid_t master_of(const nginx_server *server, pid_t old) {
  char path[96];
  int pid = 0;
  for (int i = 0; i < TRIES; i++) {
    snprintf(path, sizeof path, "%s/nginx.pid", server->process.folder);
    FILE *file = fopen(path, "re");
    if (file != NULL && fscanf(file, "%d", &pid) != 1) pid = 0;
    if (file != NULL) fclose(file);
    if (pid > 0 && pid != old) return (pid_t)pid;
    poll(NULL, 0, STEP_MS);
  }
  die(server, "there is no master process");
  return 0;
}

/* Ends the group when the test's main thread ends. */
static pid_t guard(pid_t group) {
  sigset_t signals;
  int signal;
  pid_t parent = getpid(), pid = fork();
  if (pid != 0) return pid;
  for (int fd = 0; fd < 256; fd++) close(fd);
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == parent) sigwait(&signals, &signal);
  kill(-group, SIGKILL);
  _exit(0);
}

static void unguard(nginx_server *server) {
  if (server->guard <= 0) return;
  kill(server->guard, SIGKILL);
  waitpid(server->guard, NULL, 0);
  server->guard = 0;
}

/* The launched process has ended, and the daemon runs; 0: its port was taken. */
static int becomes_daemon(nginx_server *server) {
  int status = 0;
  pid_t launched = server->process.pid;
  server->process.pid = 0;
  if (waitpid(launched, &status, 0) != launched || status != 0) {
    if (strstr(nginx_server_log(server), "Address already in use") != NULL) return 0;
    die(server, "nginx ended at once");
  }
  server->process.pid = master_of(server, 0);
  server->guard = guard(server->process.pid);
  return 1;
}

/* Waits until the server is up. 0: it exited because its port had been taken meanwhile. */
static int comes_up(nginx_server *server) {
  pid_t pids[PROCESSES];
  if (server->is_daemon && !becomes_daemon(server)) return 0;
  for (int i = 0; i < TRIES; i++) {
    if (children(server, pids, PROCESSES, 1) >= server->workers && accepts(server)) return 1;
    if (waitpid(server->process.pid, NULL, WNOHANG) == server->process.pid) {
      server->process.pid = 0;
      if (strstr(nginx_server_log(server), "Address already in use") != NULL) return 0;
      die(server, "nginx ended at once");
    }
    poll(NULL, 0, STEP_MS);
  }
  die(server, "nginx doesn't accept connections");
  return 0;
}

static char *copy_of(const char *text) {
  char *copy = strdup(text);
  if (copy == NULL) die(NULL, "strdup");
  return copy;
}

/* The command line runs env, which then executes nginx. */
static void add_args(nginx_server *server, const char *program) {
  char config[96], log[96];
  snprintf(config, sizeof config, "%s/nginx.conf", server->process.folder);
  snprintf(log, sizeof log, "%s/error.log", server->process.folder);
  server_process_add_arg(&server->process, "/usr/bin/env");
  server_process_add_args(&server->process, (const char *const *)server->environment);
  server_process_add_args(
      &server->process,
      (const char *const[]){program, "-e", log, "-p", server->process.folder, "-c", config, NULL});
}

static void begin(nginx_server *server) {
  char path[96];
  for (int i = 0;; i++) {
    server->port = server_process_free_port();
    if (server->has_port)
      snprintf(server->address, sizeof server->address, "127.0.0.1:%d", server->port);
    else
      snprintf(server->address, sizeof server->address, "unix:%s/socket", server->process.folder);
    write_config(server);
    server_process_launch(&server->process);
    if (comes_up(server)) return;
    if (i == PORT_TRIES) die(server, "no port");
    snprintf(path, sizeof path, "%s/error.log", server->process.folder);
    unlink(path);
  }
}

int nginx_server_find(char ret_path[SERVER_PROCESS_PATH]) {
  const char *folder = getenv("CORRAL_NGINX");
  if (folder == NULL) return server_process_find("nginx", "nginx", ret_path);
  int len = snprintf(ret_path, SERVER_PROCESS_PATH, "%s/nginx", folder);
  if (len < SERVER_PROCESS_PATH && *folder == '/' && access(ret_path, X_OK) == 0) return 1;
  die(NULL, "CORRAL_NGINX is no absolute path of a folder with nginx");
}

int nginx_server_version(void) {
  char program[SERVER_PROCESS_PATH], command[SERVER_PROCESS_PATH + 100];
  int part[3] = {0};
  if (!nginx_server_find(program)) return 0;
  snprintf(command, sizeof command,
           "LD_PRELOAD=\"$CORRAL_ASAN\" ASAN_OPTIONS=detect_leaks=0 '%s' -v 2>&1", program);
  FILE *from = popen(command, "re");
  if (from == NULL || fscanf(from, "%*[^/]/%d.%d.%d", &part[0], &part[1], &part[2]) != 3)
    die(NULL, command);
  pclose(from);
  return part[0] * 1000000 + part[1] * 1000 + part[2];
}

int nginx_server_start(nginx_server **ret, const nginx_plan *plan) {
  char program[SERVER_PROCESS_PATH], www[96];
  if (!nginx_server_find(program)) return 0;
  nginx_server *server = calloc(1, sizeof *server);
  if (server == NULL) die(NULL, "calloc");
  server->process.death_signal = SIGTERM; /* nginx ends its workers too on SIGTERM */
  server_process_init(&server->process, "nginx", room_on_disk());
  snprintf(www, sizeof www, "%s/www", server->process.folder);
  if (mkdir(www, 0700) != 0) die(NULL, www);
  server->workers = plan->workers > 0 ? plan->workers : 1;
  server->connections = plan->connections > 0 ? plan->connections : 2048;
  server->level = copy_of(plan->level != NULL ? plan->level : "info");
  server->http = copy_of(plan->http);
  server->main = copy_of(plan->main != NULL ? plan->main : "");
  server->has_port = strstr(plan->http, "%PORT%") != NULL;
  server->is_daemon = plan->is_daemon;
  if (server->is_daemon) prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (int i = 0; plan->environment != NULL && plan->environment[i] != NULL; i++) {
    if (i == VARIABLES) die(NULL, "too many variables");
    server->environment[i] = copy_of(plan->environment[i]);
  }
  add_args(server, program);
  begin(server);
  *ret = server;
  return 1;
}

static int has_one_of(const pid_t *pids, int count, const pid_t *others, int other_count) {
  for (int i = 0; i < count; i++)
    for (int j = 0; j < other_count; j++)
      if (pids[i] == others[j]) return 1;
  return 0;
}

void nginx_server_reload(nginx_server *server, const char *http) {
  pid_t before[PROCESSES], now[PROCESSES];
  int count = nginx_server_workers(server, before, PROCESSES);
  if (http != NULL) {
    free(server->http);
    server->http = copy_of(http);
    write_config(server);
  }
  if (kill(server->process.pid, SIGHUP) != 0) die(server, "kill");
  for (int i = 0; i < TRIES; i++) {
    int now_count = nginx_server_workers(server, now, PROCESSES);
    if (now_count >= server->workers && !has_one_of(now, now_count, before, count)) return;
    poll(NULL, 0, STEP_MS);
  }
  die(server, "no new workers came");
}

static int exit_of(nginx_server *server, pid_t pid) {
  int status = 0;
  for (int i = 0; i < TRIES; i++) {
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    poll(NULL, 0, STEP_MS);
  }
  die(server, "nginx doesn't end");
  return -1;
}

pid_t nginx_server_upgrade(nginx_server *server) {
  pid_t old = server->process.pid, pids[PROCESSES];
  if (kill(old, SIGUSR2) != 0) die(server, "kill");
  pid_t new = master_of(server, old);
  server->process.pid = new;
  for (int i = 0; i < TRIES && children(server, pids, PROCESSES, 1) < server->workers; i++)
    poll(NULL, 0, STEP_MS);
  server->process.pid = old;
  kill(old, SIGQUIT);
  for (int i = 0; i < TRIES && children(server, pids, PROCESSES, 1) > 0; i++)
    poll(NULL, 0, STEP_MS);
  server->process.pid = new;
  return old;
}

int nginx_server_await_old(nginx_server *server, pid_t old) { return exit_of(server, old); }

int nginx_server_quit(nginx_server *server) {
  pid_t pid = server->process.pid;
  if (pid <= 0 || kill(pid, SIGQUIT) != 0) die(server, "nginx isn't running");
  int status = exit_of(server, pid);
  server->process.pid = 0;
  unguard(server);
  return status;
}

void nginx_server_kill(nginx_server *server) {
  pid_t pids[PROCESSES];
  int count = children(server, pids, PROCESSES, 0);
  server_process_kill(&server->process);
  for (int i = 0; i < count; i++) kill(pids[i], SIGKILL);
  unguard(server);
}

void nginx_server_restart(nginx_server *server) {
  char path[96];
  nginx_server_kill(server);
  snprintf(path, sizeof path, "%s/socket", server->process.folder);
  unlink(path);
  server_process_launch(&server->process);
  if (!comes_up(server)) die(server, "its port was taken meanwhile");
}

void nginx_server_stop(nginx_server *server) {
  if (server == NULL) return;
  nginx_server_kill(server);
  server_process_clean(&server->process);
  for (char **variable = server->environment; *variable != NULL; variable++) free(*variable);
  free(server->main);
  free(server->http);
  free(server->level);
  free(server->text);
  free(server);
}

const char *nginx_server_address(const nginx_server *server) { return server->address; }
int nginx_server_port(const nginx_server *server) { return server->port; }
const char *nginx_server_folder(const nginx_server *server) { return server->process.folder; }
pid_t nginx_server_pid(const nginx_server *server) { return server->process.pid; }
