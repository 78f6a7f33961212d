/* child.h: a command that can't outlive the process that started it. It needs no corral.
 *
 *   char *argv[] = {"make-page", "--all", NULL};
 *   corral_child_file out = {.fd = ends[1], .number = 1};
 *   int status = corral_child_start(argv, CORRAL_CHILD(.files = &out, .file_count = 1), &child,
 *                                   &error);
 *   ...
 *   status = corral_child_wait(child, &end, &error);
 *   corral_child_free(child);
 *
 * A guard, a process between this one and the command, is the reaper of all that descends from the
 * command. When this process dies, in whatever way, the guard kills the command and its
 * descendants, whatever group or session they went to. When the guard dies, the kernel kills the
 * command.
 *
 * Files. The guard shares the open files of this process, but not its pipes and sockets. So a lock
 * on an open file, and a lease or a lock of an lmdb: store, lasts until the command is dead: no
 * successor runs beside it. The command has the descriptors that it is given, and those without
 * FD_CLOEXEC.
 *
 * The command leads a process group of its own. Nothing limits its time: poll corral_child_fd, and
 * send a signal. The guard is a child process of this one; its end sends SIGCHLD, and a program
 * that reaps all of its children may reap it.
 *
 * Threads: any function from any thread, for one child by one thread at a time. Fork: as in
 * corral.h; a forked process must not use its parent's children. */
#ifndef CORRAL_CHILD_H
#define CORRAL_CHILD_H

#include <corral.h>

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One command, from corral_child_start to corral_child_free. */
typedef struct corral_child corral_child;

/* A descriptor of this process, or CORRAL_CHILD_NULL for /dev/null, and the number that it has in
 * the command. Its size is frozen. */
typedef struct corral_child_file {
  int32_t fd;
  int32_t number; /* 0 to 1023 */
} corral_child_file;

enum { CORRAL_CHILD_NULL = -1, CORRAL_CHILD_FILES_MAX = 16 };

/* A signal's bit in corral_child_options. */
#define CORRAL_CHILD_SIGNAL(signo) (UINT64_C(1) << ((signo)-1))

/* All is read by corral_child_start, and need not live longer. */
typedef struct corral_child_options {
  size_t size;                    /* sizeof(corral_child_options), set by CORRAL_CHILD */
  char *const *env;               /* its environment; NULL: this process's */
  const corral_child_file *files; /* others are this process's own */
  size_t file_count;              /* at most CORRAL_CHILD_FILES_MAX */
  uint64_t blocked;               /* signals that are blocked when the command begins */
  uint64_t defaults;              /* signals that it doesn't ignore, though this process may */
} corral_child_options;

/* Options in place: CORRAL_CHILD(.env = env); in C++ CORRAL_CHILD(.env(env)), see corral/cxx.h. */
#ifndef __cplusplus
#define CORRAL_CHILD(...)                                                                          \
  (&(corral_child_options){.size = sizeof(corral_child_options), __VA_ARGS__})
#endif

/* Starts argv[0], found as execvp(3) does, and waits until it is executed. `argv` ends with NULL;
 * `options` may be NULL. CORRAL_OK: *ret is to be given to corral_child_free. CORRAL_EINVAL: it
 * can't be executed, for which error->code is the errno, or 0 for an argument that is not valid.
 * CORRAL_EIO: no guard could be made; error->code is the errno. CORRAL_EOPTION, CORRAL_ENOMEM. */
CORRAL_API int corral_child_start(char *const argv[], const corral_child_options *options,
                                  corral_child **ret, corral_error *error);
/* Descriptor to poll, of the library's: readable when corral_child_wait won't block. */
CORRAL_API int corral_child_fd(const corral_child *child);
/* Sends a signal to the command and all that descends from it. After SIGKILL, corral_child_wait
 * returns when all of them are dead. CORRAL_OK, also when nothing is left that could get it.
 * CORRAL_EINVAL: no signal has this number. */
CORRAL_API int corral_child_signal(corral_child *child, int signo);
/* Waits until the command has ended. CORRAL_OK: *ret_status is its status as of waitpid(2), for
 * WIFEXITED and the like; also when called again. CORRAL_EIO: the guard was killed, and so the
 * command. */
CORRAL_API int corral_child_wait(corral_child *child, int *ret_status, corral_error *error);
/* Frees a child. If its command hasn't ended, it is killed, with all that descends from it; what a
 * command has left behind at its end lives on. NULL is allowed. */
CORRAL_API void corral_child_free(corral_child *child);

/* For a guard of one's own, a process that is the reaper of its descendants (prctl(2),
 * PR_SET_CHILD_SUBREAPER): sends a signal to all of them, whatever group or session they went to.
 * One that is born meanwhile is found the next time. `child` (0: none) gets the signal even where
 * there is no /proc. Async-signal-safe, for the forked child of a process with threads, too; one
 * thread at a time. */
CORRAL_API void corral_descendants_signal(pid_t child, int signo);
/* The same with SIGKILL, until none is left; reaps them. */
CORRAL_API void corral_descendants_kill(pid_t child);

#ifdef __cplusplus
}

#include <corral/cxx.h>

CORRAL_BUILDER_BEGIN(corral_child_options)
CORRAL_BUILDER_FIELD(corral_child_options, env)
CORRAL_BUILDER_FIELD(corral_child_options, files)
CORRAL_BUILDER_FIELD(corral_child_options, file_count)
CORRAL_BUILDER_FIELD(corral_child_options, blocked)
CORRAL_BUILDER_FIELD(corral_child_options, defaults)
CORRAL_BUILDER_END(corral_child_options)
#define CORRAL_CHILD(...) (corral_child_options_builder() __VA_ARGS__)
#endif
#endif
