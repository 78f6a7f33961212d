/* zookeeper_server.c: a real ZooKeeper for a test. */
#include "zookeeper_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define JARS "/usr/share/java/"

enum { TRIES = 3000, STEP_MS = 10, ROOM = 1 << 16 };

struct zookeeper_server {
  pid_t pid;
  int port;
  const char *option;
  char folder[64], config[96];
  char text[ROOM];
};

static void die(const char *what) {
  fprintf(stderr, "zookeeper_server: %s: %s\n", what, strerror(errno));
  abort();
}

static struct sockaddr_in loopback(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  at.sin_port = htons((uint16_t)port);
  return at;
}

static int free_port(void) {
  for (int i = 0; i < 200; i++) {
    uint16_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0) die("getrandom");
    struct sockaddr_in at = loopback(20000 + random % 12000);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bound = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) close(fd);
    if (bound) return ntohs(at.sin_port);
  }
  die("no free port");
  return 0;
}

static int is_installed(void) {
  const char *path = getenv("PATH");
  char *folders = strdup(path != NULL ? path : "/usr/bin"), *save = NULL, file[4200];
  int found = 0;
  if (folders == NULL) die("strdup");
  for (char *folder = strtok_r(folders, ":", &save); folder != NULL && !found; folder = strtok_r(NULL, ":", &save)) {
    snprintf(file, sizeof file, "%s/java", folder);
    found = access(file, X_OK) == 0;
  }
  free(folders);
  return found && access(JARS "zookeeper.jar", R_OK) == 0;
}

static void write_config(zookeeper_server *server) {
  FILE *file = fopen(server->config, "w");
  if (file == NULL) die(server->config);
  fprintf(file, "tickTime=100\ndataDir=%s/data\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n", server->folder, server->port);
  fprintf(file, "4lw.commands.whitelist=*\nmaxClientCnxns=0\nminSessionTimeout=400\nmaxSessionTimeout=4000\n");
  if (fclose(file) != 0) die(server->config);
}

/* zookeeper.jar names its libraries itself; what writes its log is chosen here: nothing. */
static void launch(zookeeper_server *server) {
  static const char *const start[] = {"java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"};
  const char *args[16];
  int count = 0;
  pid_t parent = getpid();
  for (size_t i = 0; i < sizeof start / sizeof *start; i++) args[count++] = start[i];
  if (server->option != NULL) args[count++] = server->option;
  args[count++] = "-cp";
  args[count++] = JARS "zookeeper.jar:" JARS "slf4j-nop.jar";
  args[count++] = "org.apache.zookeeper.server.ZooKeeperServerMain";
  args[count++] = server->config;
  args[count] = NULL;
  server->pid = fork();
  if (server->pid < 0) die("fork");
  if (server->pid > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(null, 1);
  dup2(null, 2);
  execvp("java", (char *const *)(uintptr_t)args);
  _exit(127);
}

const char *zookeeper_server_ask(zookeeper_server *server, const char *word) {
  struct sockaddr_in at = loopback(server->port);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  size_t got = 0;
  if (fd < 0) die("socket");
  if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && send(fd, word, strlen(word), MSG_NOSIGNAL) > 0)
    for (ssize_t n = 1; n > 0 && got < ROOM - 1; got += n > 0 ? (size_t)n : 0) {
      struct pollfd ready = {.fd = fd, .events = POLLIN};
      n = poll(&ready, 1, 2000) > 0 ? recv(fd, server->text + got, ROOM - 1 - got, 0) : 0;
    }
  close(fd);
  server->text[got] = '\0';
  return server->text;
}

static void wait_until_up(zookeeper_server *server) {
  for (int i = 0; i < TRIES; i++) {
    if (strcmp(zookeeper_server_ask(server, "ruok"), "imok") == 0) return;
    if (waitpid(server->pid, NULL, WNOHANG) == server->pid) die("java ended at once");
    poll(NULL, 0, STEP_MS);
  }
  die("ZooKeeper doesn't answer");
}

int zookeeper_server_start(zookeeper_server **ret, const char *option) {
  if (!is_installed()) {
    fprintf(stderr, "SKIPPED: there is no java in PATH, or no " JARS "zookeeper.jar (apt-get install zookeeper)\n");
    return 0;
  }
  zookeeper_server *server = calloc(1, sizeof *server);
  if (server == NULL) die("calloc");
  snprintf(server->folder, sizeof server->folder, "/tmp/corral-zookeeper-XXXXXX");
  if (mkdtemp(server->folder) == NULL) die("mkdtemp");
  snprintf(server->config, sizeof server->config, "%s/zoo.cfg", server->folder);
  server->option = option;
  server->port = free_port();
  write_config(server);
  launch(server);
  wait_until_up(server);
  *ret = server;
  return 1;
}

void zookeeper_server_kill(zookeeper_server *server) {
  if (server->pid > 0) {
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
  }
  server->pid = 0;
}

void zookeeper_server_restart(zookeeper_server *server) {
  zookeeper_server_kill(server);
  launch(server);
  wait_until_up(server);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw) {
  (void)stat, (void)type, (void)ftw;
  return remove(path);
}

void zookeeper_server_stop(zookeeper_server *server) {
  if (server == NULL) return;
  zookeeper_server_kill(server);
  nftw(server->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  free(server);
}

void zookeeper_server_pause(zookeeper_server *server) {
  kill(server->pid, SIGSTOP);
  waitpid(server->pid, NULL, WUNTRACED);
}

void zookeeper_server_resume(zookeeper_server *server) { kill(server->pid, SIGCONT); }

int zookeeper_server_port(const zookeeper_server *server) { return server->port; }
