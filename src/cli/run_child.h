/* run_child.h: one run of a command: its two streams in unlinked files, and how it ended.
 *
 * The command leads a process group of its own and reads /dev/null. It can't outlive its caller:
 * the kernel sends it SIGKILL when the caller's thread dies, and a guard process that waits on a
 * pipe of the caller kills the rest of the group. The guard shares the caller's open file
 * descriptions, so a lock of the caller's (OFD) is let go only after the group was killed: a
 * successor never runs beside it. */
#ifndef CORRAL_RUN_CHILD_H
#define CORRAL_RUN_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum run_how {
  RUN_NOT = 0,     /* not run */
  RUN_EXITED,      /* number: its exit status */
  RUN_SIGNALLED,   /* number: the signal that ended it */
  RUN_NOT_STARTED, /* number: errno of exec */
  RUN_LIMIT,       /* killed: it ran longer than limit_ms */
  RUN_STOPPED,     /* killed: should_stop said so */
  RUN_INTERRUPTED, /* number: the signal this process got and handed on; the command has ended */
  RUN_BROKEN       /* number: errno of a call around it; killed */
} run_how;

typedef struct run_child {
  run_how how;
  int number;
  int spool[2]; /* stdout, stderr; -1 for none */
  uint64_t size[2];
} run_child;

/* An unnamed file, empty, for the caller to close; -1 with errno set. */
int run_child_file(void);
/* What to run. */
typedef struct run_child_job {
  char *const *argv;
  char *const *env; /* its environment; NULL: this process's */
  /* a file that the command gets as well, open at the number that the variable CORRAL_OLD_FD of its
   * environment says; -1: none, and no such variable. Only where env is NULL */
  int lent;
  int64_t limit_ms;
  bool (*should_stop)(void *arg);
  void *arg;
  /* NULL: SIGINT and the like are taken while it runs, and handed on: from the main thread alone.
   * Else signals are the caller's matter, the command gets this mask, and any thread may call */
  const sigset_t *mask;
} run_child_job;

/* Runs job->argv to its end and fills *child, whose spools are to be closed with run_child_close,
 * on any outcome. A run ends when the command has exited and both streams are closed, also by those
 * who inherited them. To kill is SIGTERM for the group, then SIGKILL one second later. */
void run_child_do(run_child *child, const run_child_job *job);
void run_child_close(run_child *child);

#endif
