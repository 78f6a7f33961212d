/* lock_child.h: a command that runs as long as a lock is held, and no longer.
 *
 *   corral -- guard -- command
 *
 * The guard is a process between the two. It is made before the corral is opened, so it has no
 * thread and no connection; it starts the command when the lock is held. corral tells it until when
 * the lock is held. The guard ends the command by then on its own, even while corral is stopped.
 * When corral dies, the guard kills the command at once, and then gives up the hold: never before
 * all that descends from the command is dead. When the guard dies, the kernel kills the
 * command, and lock_child_finish kills what the command has started.
 *
 * The command stays in corral's process group, with its terminal and its streams, like a command of
 * flock(1): typed input reaches it, and job control works. Ending the command ends all its
 * descendants: the guard is their reaper (PR_SET_CHILD_SUBREAPER), so none is lost by the death of
 * its parent or by leaving the group. */
#ifndef CORRAL_LOCK_CHILD_H
#define CORRAL_LOCK_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct lock_child {
  pid_t guard;
  int link; /* socket to the guard; readable when lock_child_hear has something */
  /* signalfd for SIGINT, SIGTERM, SIGHUP and SIGQUIT, except ignored ones; they are blocked from
   * lock_child_begin on */
  int signals;
  sigset_t old_mask;
} lock_child;

typedef enum lock_child_said {
  LOCK_CHILD_GONE = 0,    /* the guard died; the command is dead, or dies in lock_child_finish */
  LOCK_CHILD_NOT_STARTED, /* number: errno of exec; the last message */
  LOCK_CHILD_ENDING,      /* the hold ends in grace_ms; the command got SIGTERM */
  LOCK_CHILD_ENDED        /* number: as from waitpid; the last message */
} lock_child_said;

/* For the guard: `end` is called there after the death of corral, when all that descends from the
 * command is dead and the hold is not over, with its ticket, and the time until it is over. */
typedef struct lock_child_heir {
  void (*end)(void *arg, char *ticket, int64_t left_ms);
  void *arg;
} lock_child_heir;

/* Makes the guard, with the present environment. From here on standard input and output are the
 * command's: this process has /dev/null instead. False with errno set. */
bool lock_child_begin(lock_child *child, char *const argv[], int64_t grace_ms,
                      const lock_child_heir *heir);
/* Starts the command, with the fencing token in CORRAL_FENCE. The hold's ticket, unless it is
 * empty, is the command's, in CORRAL_LOCK_TICKET (`tells`), or else the guard's. The hold has
 * left_ms left. */
void lock_child_go(const lock_child *child, uint64_t fence, const char *ticket, bool tells,
                   int64_t left_ms);
/* The hold has left_ms left from now; it never gets shorter. The guard sends SIGTERM grace_ms
 * before its end, SIGKILL at its end. */
void lock_child_extend(const lock_child *child, int64_t left_ms);
/* Hands a signal on to the command and its descendants. Descendants that outlive the command are
 * then ended, too. `told`: the terminal has sent the signal to the whole group, so it isn't sent
 * again. */
void lock_child_signal(const lock_child *child, int signo, bool told);
/* The hold is over: SIGTERM now, SIGKILL after grace_ms or at the end that the guard knows. */
void lock_child_stop(const lock_child *child);
/* Waits for the guard's next message. */
lock_child_said lock_child_hear(const lock_child *child, int *number);
/* Takes one pending signal out of `signals`; 0: none. `told` as above. */
int lock_child_caught(const lock_child *child, bool *told);
/* Waits for the guard's end. A command that hasn't been started won't be. */
void lock_child_finish(lock_child *child);

#endif
