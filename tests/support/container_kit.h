/* container_kit.h: what makes a container, for one process of a lab (lab_plan.enter): namespaces of
 * unshare(2), and control groups. Where the kernel or the user's rights don't allow one, the
 * functions return 0. */
#ifndef TESTS_CONTAINER_KIT_H
#define TESTS_CONTAINER_KIT_H

#include <sys/types.h>

/* Makes namespaces (CLONE_NEWNS, CLONE_NEWPID, ...), with a user namespace where root's rights are
 * missing. In a new PID namespace the caller goes on in a child, which is process 1 there; the
 * parent waits for it, ends as it ends, and takes it along when it is killed. */
int container_unshare(int namespaces);
/* An empty file system in the memory of this mount namespace, over a folder. */
int container_mount_empty(const char *folder, int is_read_only);

/* A control group with one controller ("cpu", "memory"), of version 2 or 1. */
typedef struct container_group {
  char folder[200];
  int version;
} container_group;

/* 0: there is no such controller, or it may not be used. */
int container_group_make(container_group *group, const char *controller);
/* Writes a setting; of "cpu.max" and "memory.max" with the names of version 2. */
int container_group_set(const container_group *group, const char *setting, long long value);
int container_group_add(const container_group *group, pid_t pid);
/* A number of the file "FILE": in the line "NAME n"; -1: there is none. */
long long container_group_count(const container_group *group, const char *file, const char *name);
/* The group must be empty, or become so soon. */
void container_group_remove(const container_group *group);

#endif
