/* container_kit.c: what makes a container, for one process of a lab: namespaces of unshare(2), and
 * control groups. */
#include "support/container_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD_US = 1000000 }; /* of a limit of the CPU */

static int write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  int done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return done;
}

/* ---- namespaces ---------------------------------------------------------------------------- */

/* The user keeps its number in the new user namespace. */
static int map_user(uid_t user, gid_t group) {
  char text[64];
  snprintf(text, sizeof text, "%u %u 1", (unsigned)user, (unsigned)user);
  if (!write_text("/proc/self/uid_map", text)) return 0;
  (void)write_text("/proc/self/setgroups", "deny");
  snprintf(text, sizeof text, "%u %u 1", (unsigned)group, (unsigned)group);
  return write_text("/proc/self/gid_map", text);
}

static int go_on_in_a_child(void) {
  int status = 0;
  pid_t pid = fork();
  if (pid < 0) return 0;
  if (pid == 0) return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (waitpid(pid, &status, 0) != pid) _exit(1);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int container_unshare(int namespaces) {
  uid_t user = geteuid();
  gid_t group = getegid();
  if (unshare(namespaces) != 0) {
    if (errno != EPERM || unshare(namespaces | CLONE_NEWUSER) != 0 || !map_user(user, group))
      return 0;
  }
  if ((namespaces & CLONE_NEWNS) != 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    return 0;
  return (namespaces & CLONE_NEWPID) == 0 || go_on_in_a_child();
}

int container_mount_empty(const char *folder, int is_read_only) {
  return mount("none", folder, "tmpfs", is_read_only ? MS_RDONLY : 0, "mode=1777,size=1m") == 0;
}

/* ---- control groups ------------------------------------------------------------------------ */

static int exists(const char *folder, const char *file) {
  char path[300];
  snprintf(path, sizeof path, "%.200s/%.90s", folder, file);
  return access(path, W_OK) == 0;
}

/* Makes the group below `parent`, if it has the file that limits the controller. */
static int make_below(container_group *group, const char *parent, const char *file, int version) {
  snprintf(group->folder, sizeof group->folder, "%s/corral-test-%ld", parent, (long)getpid());
  group->version = version;
  if (mkdir(group->folder, 0700) != 0 && errno != EEXIST) return 0;
  if (exists(group->folder, file)) return 1;
  rmdir(group->folder);
  return 0;
}

int container_group_make(container_group *group, const char *controller) {
  char parent[100];
  int is_cpu = strcmp(controller, "cpu") == 0;
  if (make_below(group, "/sys/fs/cgroup", is_cpu ? "cpu.max" : "memory.max", 2)) return 1;
  snprintf(parent, sizeof parent, "/sys/fs/cgroup/%s", controller);
  return make_below(group, parent, is_cpu ? "cpu.cfs_quota_us" : "memory.limit_in_bytes", 1);
}

static int set_file(const container_group *group, const char *file, const char *text) {
  char path[300];
  snprintf(path, sizeof path, "%.200s/%.90s", group->folder, file);
  return write_text(path, text);
}

/* Swap counts as well, where it is accounted for. */
static int set_memory(const container_group *group, const char *text) {
  int is_old = group->version == 1;
  if (!set_file(group, is_old ? "memory.limit_in_bytes" : "memory.max", text)) return 0;
  (void)set_file(group, is_old ? "memory.memsw.limit_in_bytes" : "memory.swap.max",
                 is_old ? text : "0");
  return 1;
}

int container_group_set(const container_group *group, const char *setting, long long value) {
  char text[64];
  int is_cpu = strcmp(setting, "cpu.max") == 0;
  snprintf(text, sizeof text, "%lld", value);
  if (!is_cpu) return set_memory(group, text);
  if (group->version == 1) {
    char period[32];
    snprintf(period, sizeof period, "%d", PERIOD_US);
    return set_file(group, "cpu.cfs_period_us", period) &&
           set_file(group, "cpu.cfs_quota_us", text);
  }
  snprintf(text, sizeof text, "%lld %d", value, PERIOD_US);
  return set_file(group, setting, text);
}

int container_group_add(const container_group *group, pid_t pid) {
  char text[32];
  snprintf(text, sizeof text, "%ld", (long)pid);
  return set_file(group, "cgroup.procs", text);
}

long long container_group_count(const container_group *group, const char *file, const char *name) {
  char path[300], word[80];
  long long number, found = -1;
  snprintf(path, sizeof path, "%.200s/%.90s", group->folder, file);
  FILE *f = fopen(path, "re");
  if (f == NULL) return -1;
  while (fscanf(f, "%79s %lld", word, &number) == 2)
    if (strcmp(word, name) == 0) found = number;
  fclose(f);
  return found;
}

void container_group_remove(const container_group *group) {
  for (int i = 0; i < 1000 && rmdir(group->folder) != 0 && errno == EBUSY; i++)
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}
