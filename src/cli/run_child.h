/* run_child.h: one run of a command: its two streams in unlinked files, and its end.
 *
 * The command reads /dev/null, and runs under a guard (corral/child.h): it can't outlive its
 * caller. A file lock of the caller is released only after all that descends from the command is
 * dead, so a successor never runs beside it. */
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
  RUN_STOPPED,     /* killed: should_stop returned true */
  /* number: the signal that this process got and handed on; the command has ended */
  RUN_INTERRUPTED,
  /* number: errno of a failing system call, EOWNERDEAD when the guard died; the command was
   * killed */
  RUN_BROKEN
} run_how;

typedef struct run_child {
  run_how how;
  int number;
  int spool[2]; /* stdout, stderr; -1: none */
  uint64_t size[2];
  uint64_t shown[2]; /* bytes that were passed on while it ran */
} run_child;

/* Makes an empty file without a name, to be closed by the caller; -1 with errno set. */
int run_child_file(void);
/* A command to run. */
typedef struct run_child_job {
  char *const *argv;
  char *const *env; /* its environment; NULL: this process's */
  /* a file for the command, open there under the number in its variable CORRAL_OLD_FD; -1: none,
   * and no such variable. Only if env is NULL */
  int lent;
  int64_t limit_ms;
  bool live[2];    /* stdout, stderr: passed on as it comes; then SIGPIPE must be ignored */
  bool heeds_pipe; /* the command doesn't ignore SIGPIPE, though this process may */
  bool (*should_stop)(void *arg);
  void *arg;
  /* NULL: SIGINT, SIGTERM, SIGHUP and SIGQUIT are taken while the command runs, and handed on; only
   * from the main thread. Else the caller handles signals, the command gets this mask, and any
   * thread may call */
  const sigset_t *mask;
} run_child_job;

/* Runs job->argv to its end and fills *child; its spools are to be closed with run_child_close in
 * any case. A run ends when the command has exited and both streams are closed, also by processes
 * that inherited them. To kill a run is SIGTERM for the command and all that descends from it, then
 * SIGKILL one second later. */
void run_child_do(run_child *child, const run_child_job *job);
void run_child_close(run_child *child);

#endif
