/* server_process.c: the process of a server started by a test. */
#include "server_process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000, SILENCE_MS = 10000, FIRST_PORT = 20000, PORTS = 12000 };

void server_process_die(const char *name, const char *what) {
  fprintf(stderr, "%s: %s: %s\n", name, what, strerror(errno));
  abort();
}

/* ---- loopback ------------------------------------------------------------------------------ */

struct sockaddr_in server_process_loopback(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  at.sin_port = htons((uint16_t)port);
  return at;
}

/* A port is this process' own until its end, also while no server is bound to it: other tests that
 * run meanwhile choose among the same ports. The descriptor stays open. Returns 0 if the port is
 * of another process. */
static int reserve(int port) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  int len = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "corral-test-port-%d", port);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) server_process_die("server_process", "socket");
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
  if (bind(fd, (struct sockaddr *)&name, size) == 0) return 1;
  close(fd);
  return 0;
}

int server_process_bind(int *ret_port) {
  for (int i = 0; i < 200; i++) {
    uint16_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0) server_process_die("server_process", "getrandom");
    struct sockaddr_in at = server_process_loopback(FIRST_PORT + random % PORTS);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
        reserve(ntohs(at.sin_port))) {
      *ret_port = ntohs(at.sin_port);
      return fd;
    }
    if (fd >= 0) close(fd);
  }
  server_process_die("server_process", "no free port");
}

int server_process_free_port(void) {
  int port;
  close(server_process_bind(&port));
  return port;
}

int server_process_dial(int port) {
  struct sockaddr_in at = server_process_loopback(port);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) server_process_die("server_process", "socket");
  if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
  close(fd);
  return -1;
}

size_t server_process_exchange(int port, const char *request, size_t len, char *room, size_t size) {
  int fd = server_process_dial(port);
  size_t got = 0;
  if (fd >= 0 && send(fd, request, len, MSG_NOSIGNAL) == (ssize_t)len)
    for (ssize_t n = 1; n > 0 && got<size - 1; got += n> 0 ? (size_t)n : 0) {
      struct pollfd ready = {.fd = fd, .events = POLLIN};
      n = poll(&ready, 1, SILENCE_MS) > 0 ? recv(fd, room + got, size - 1 - got, 0) : 0;
    }
  if (fd >= 0) close(fd);
  room[got] = '\0';
  return got;
}

/* ---- program and arguments ----------------------------------------------------------------- */

int server_process_find(const char *program, const char *package,
                        char ret_path[SERVER_PROCESS_PATH]) {
  const char *path = getenv("PATH");
  char folders[SERVER_PROCESS_PATH], whole[PATH_MAX], *save = NULL;
  snprintf(folders, sizeof folders, "%s:/usr/sbin:/usr/local/sbin",
           path != NULL ? path : "/usr/bin");
  for (char *folder = strtok_r(folders, ":", &save); folder != NULL;
       folder = strtok_r(NULL, ":", &save)) {
    if (realpath(folder, whole) == NULL) continue;
    int len = snprintf(ret_path, SERVER_PROCESS_PATH, "%s/%s", whole, program);
    if (len < SERVER_PROCESS_PATH && access(ret_path, X_OK) == 0) return 1;
  }
  fprintf(stderr, "SKIPPED: there is no %s in PATH (apt-get install %s)\n", program, package);
  return 0;
}

void server_process_init(server_process *process, const char *name, const char *stem) {
  process->name = name;
  snprintf(process->folder, sizeof process->folder, "%s%s-XXXXXX", stem, name);
  if (mkdtemp(process->folder) == NULL) server_process_die(name, process->folder);
  if (process->user != 0 && chown(process->folder, process->user, process->group) != 0)
    server_process_die(name, "chown");
}

void server_process_add_arg(server_process *process, const char *arg) {
  if (process->arg_count >= SERVER_PROCESS_ARGS - 1)
    server_process_die(process->name, "too many arguments");
  if ((process->args[process->arg_count++] = strdup(arg)) == NULL)
    server_process_die(process->name, "strdup");
}

void server_process_add_args(server_process *process, const char *const *args) {
  for (; args != NULL && *args != NULL; args++) server_process_add_arg(process, *args);
}

/* ---- running ------------------------------------------------------------------------------- */

/* Runs in the child. setuid clears the parent-death signal, so prctl follows it. */
static _Noreturn void become(const server_process *process, pid_t parent, char *const *args) {
  if (process->user != 0 &&
      (setgroups(0, NULL) != 0 || setgid(process->group) != 0 || setuid(process->user) != 0))
    _exit(126);
  prctl(PR_SET_PDEATHSIG, process->death_signal != 0 ? process->death_signal : SIGKILL);
  if (getppid() != parent || chdir(process->folder) != 0) _exit(1);
  int null = open("/dev/null", O_RDONLY), log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(null, 0);
  dup2(log, 1);
  dup2(log, 2);
  for (int fd = 3; fd < 256; fd++) close(fd);
  execv(args[0], args);
  _exit(127);
}

static pid_t spawn(const server_process *process, char *const *args) {
  pid_t parent = getpid(), pid = fork();
  if (pid < 0) server_process_die(process->name, "fork");
  if (pid == 0) become(process, parent, args);
  return pid;
}

void server_process_launch(server_process *process) {
  process->pid = spawn(process, process->args);
}

void server_process_run(const server_process *process, char *const *args) {
  int how = -1;
  pid_t pid = spawn(process, args);
  if (waitpid(pid, &how, 0) != pid || how != 0) server_process_die(process->name, args[0]);
}

static int has_ended(server_process *process) {
  int has = process->pid > 0 && waitpid(process->pid, NULL, WNOHANG) == process->pid;
  if (has) process->pid = 0;
  return has;
}

void server_process_await(server_process *process, int (*is_up)(void *arg), void *arg) {
  for (int i = 0; i < PATIENCE_MS / SERVER_PROCESS_STEP_MS; i++) {
    if (is_up(arg)) return;
    if (has_ended(process)) {
      if (!process->is_stubborn)
        server_process_die(process->name, "it ended at once: wrong arguments?");
      server_process_launch(process);
    }
    poll(NULL, 0, SERVER_PROCESS_STEP_MS);
  }
  server_process_die(process->name, "it doesn't answer");
}

/* ---- ending -------------------------------------------------------------------------------- */

void server_process_end(server_process *process, int signal) {
  if (process->pid > 0) {
    kill(process->pid, signal);
    waitpid(process->pid, NULL, 0);
  }
  process->pid = 0;
}

void server_process_kill(server_process *process) { server_process_end(process, SIGKILL); }

void server_process_pause(server_process *process) {
  int how = 0;
  if (process->pid <= 0 || kill(process->pid, SIGSTOP) != 0)
    server_process_die(process->name, "it doesn't run");
  if (waitpid(process->pid, &how, WUNTRACED) != process->pid || !WIFSTOPPED(how))
    server_process_die(process->name, "it doesn't stop");
}

void server_process_resume(server_process *process) {
  if (process->pid > 0) kill(process->pid, SIGCONT);
}

/* Ignores files that can't be removed: a child of the server may be removing them too. */
static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw) {
  (void)stat, (void)type, (void)ftw;
  (void)!remove(path);
  return 0;
}

void server_process_clean(server_process *process) {
  server_process_kill(process);
  nftw(process->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  for (int i = 0; i < process->arg_count; i++) free(process->args[i]);
  process->arg_count = 0;
}
