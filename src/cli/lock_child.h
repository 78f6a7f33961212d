/* lock_child.h: a command that runs as long as a lock is held, and no longer.
 *
 *   corral -- guard -- command
 *
 * The guard is a process between the two. It is made before the corral is opened, so it has no
 * thread and no connection, and starts the command when the lock is there. It is told until when
 * the lock is held, and ends the command by then all by itself: also when this process is stopped
 * and can't know. When this process dies it kills the command at once; when the guard dies, the
 * kernel kills the command, and lock_child_finish what that started.
 *
 * The command stays in this process's process group, with its terminal and its streams, as a
 * command of flock(1): what is typed reaches it, and job control works. To end it is to end all
 * that descends from it: the guard is their reaper (PR_SET_CHILD_SUBREAPER), so none of them gets
 * out of sight by losing its parent or by leaving the group. */
#ifndef CORRAL_LOCK_CHILD_H
#define CORRAL_LOCK_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct lock_child {
  pid_t guard;
  int link; /* to the guard: readable when lock_child_hear has something */
  /* a signalfd of SIGINT, SIGTERM, SIGHUP and SIGQUIT, those that aren't ignored; blocked from
   * lock_child_begin on */
  int signals;
  sigset_t old_mask;
} lock_child;

typedef enum lock_child_said {
  LOCK_CHILD_GONE = 0,    /* the guard died; the command is dead, or dies in lock_child_finish */
  LOCK_CHILD_NOT_STARTED, /* number: errno of exec; the last that is heard */
  LOCK_CHILD_ENDING,      /* the hold ends in grace_ms: the command got SIGTERM */
  LOCK_CHILD_ENDED        /* number: as from waitpid; the last that is heard */
} lock_child_said;

/* Makes the guard, which gets the environment as it is now. Standard input and output are the
 * command's from here on: this process has /dev/null. False with errno set. */
bool lock_child_begin(lock_child *child, char *const argv[], int64_t grace_ms);
/* The lock is held: the command starts, with the fencing token in CORRAL_FENCE. */
void lock_child_go(const lock_child *child, uint64_t fence, int64_t left_ms);
/* The hold has so much left by now. SIGTERM is sent grace_ms before its end, SIGKILL at its end. */
void lock_child_extend(const lock_child *child, int64_t left_ms);
/* Hands a signal on to the command and all below it. What remains of them when the command has
 * ended is ended, too. `told`: the terminal sent it to the whole group already, so it isn't sent
 * again. */
void lock_child_signal(const lock_child *child, int signo, bool told);
/* The hold is over: SIGTERM now, SIGKILL after grace_ms. */
void lock_child_stop(const lock_child *child);
/* Waits for what the guard says next. */
lock_child_said lock_child_hear(const lock_child *child, int *number);
/* The signal that waits in `signals`, taken out of it; 0 for none. `told` as above. */
int lock_child_caught(const lock_child *child, bool *told);
/* Waits for the guard's end. A command that wasn't started never is. */
void lock_child_finish(lock_child *child);

#endif
