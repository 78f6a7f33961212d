/* lock.h: shared by the files of corral lock.
 *
 * A hold is taken, watched and given up by lock_hold.c, for a command under a guard (lock.c), or
 * for a script's own section (lock_keeper.c). */
#ifndef CORRAL_CLI_LOCK_H
#define CORRAL_CLI_LOCK_H

#include "cli.h"
#include "lock_child.h"

#include <corral/lock.h>
#include <stdatomic.h>

enum {
  LOCK_NAME_MOST = CORRAL_KEY_MAX, /* bytes of a name, as in corral/lock.h */
  LOCK_WHY_ROOM = 384,
  LOCK_TICKS = 20 /* checks of a hold per ttl */
};

typedef enum lock_verb {
  LOCK_RUN = 0,
  LOCK_SHOW,
  LOCK_TAKE,
  LOCK_CHECK,
  LOCK_RELEASE,
  LOCK_BREAK,
  LOCK_LIST,
  LOCK_WATCH
} lock_verb;

typedef struct lock_options {
  lock_verb verb;
  int verbs;        /* how many were given */
  const char *name; /* --list: the prefix, or NULL */
  char **command;
  const char *note;
  corral_lock_options lock;
  int64_t ttl_ms;
  int64_t max_ms;  /* INT64_MAX: no limit */
  int64_t wait_ms; /* CORRAL_OFF: one try; 0: no limit */
  int64_t grace_ms;
  int64_t warn_ms;       /* 0: it is not said that the end is near */
  int64_t conflict_exit; /* -1: CLI_BUSY, or CLI_DEADLINE */
  int64_t lost_exit;
  int64_t pid;     /* the script's process; 0: the one that runs this command */
  int lost_signal; /* what it gets when the lock is lost; 0: nothing */
  bool fence;      /* the fencing token is printed */
  bool yes;        /* --break doesn't ask */
  const char *fence_store;
  bool ticket; /* the command has the hold's ticket */
  bool leave;  /* the hold is left when the command ends */
} lock_options;

/* The state of one `corral lock`. */
typedef struct locking {
  const cli_globals *cli;
  lock_options want;
  lock_child child;
  int interrupt; /* readable when the wait for the lock is to end */
  corral *corral;
  corral *counters; /* of --fence-store; NULL: none */
  corral_lock *lock;
  uint64_t fence;
  char ticket[CORRAL_LOCK_TICKET]; /* for the command, or for its guard; empty: none */
  bool leaves;                     /* the hold is not ended, but left to a successor */
  int64_t max_end;                 /* cli_now_ms; INT64_MAX: no limit */
  int lost[2];                     /* pipe: on_lost writes the reason, lock_hear_lost reads it */
  bool is_lost;
  bool warned;              /* it was said that the end is near */
  char why[LOCK_WHY_ROOM];  /* it is lost, or was not released; else empty */
  int caught;               /* the last signal that was handed on; 0: none */
  atomic_bool says_trouble; /* the next trouble with the store is to be reported */
} locking;

/* ---- lock_options.c ------------------------------------------------------------------------ */

/* Reads the command line. -1: go on; else the exit status. */
int lock_options_parse(lock_options *o, int argc, char **argv);

/* ---- lock_hold.c --------------------------------------------------------------------------- */

/* Opens the corral, and takes the lock in it. True when it is held; *ret_status is the exit status
 * if not, which was reported, unless the wait was interrupted. */
bool lock_take(locking *l, int *ret_status);
/* Time left for the command or script, in ms: the hold's, or until --max if that is less. */
int64_t lock_left_ms(const locking *l);
/* Takes a reason that on_lost has written; false: there is none. */
bool lock_hear_lost(locking *l, char why[LOCK_WHY_ROOM]);
/* Says, once, that the hold is lost. */
void lock_say_lost(locking *l, const char *why);
/* Says, once until more is left again, that left_ms is no more than --warn. Returns the time until
 * that is to be asked again, in ms, `most` at most. */
int64_t lock_warn(locking *l, int64_t left_ms, int64_t most);
/* Writes why a hold that has --grace left is about to end, and what follows. */
void lock_ending_text(const locking *l, const char *follows, char why[LOCK_WHY_ROOM]);
/* Gives up the hold, or leaves it. Returns the exit status: `exit_status`, or --lost-exit. */
int lock_release(locking *l, int exit_status);
/* Of a lock_child_heir: ends the hold with this ticket, whose taker has died. While the store is
 * away it is tried again, for left_ms; meanwhile the ticket changes. */
void lock_end_orphan(void *locking_, char *ticket, int64_t left_ms);

/* ---- lock_show.c, lock_break.c, lock_list.c, lock_watch.c ----------------------------------- */

/* Opens the corral, and tells the holders of NAME; returns the exit status. A file that isn't there
 * isn't made: then it says so, and there is none. */
typedef int lock_tell_fn(const locking *l, const corral_lock_holder *holders, size_t count);
int lock_look(locking *l, lock_tell_fn *tell);
/* Prints a holder as a line, behind `before`. */
void lock_print_holder(const char *before, const corral_lock_holder *holder);
/* Prints {"name":NAME,what:[HOLDER,...]}. */
void lock_print_json(const char *name, size_t len, const char *what,
                     const corral_lock_holder *holders, size_t count);
/* --show */
int lock_show_holders(const locking *l, const corral_lock_holder *holders, size_t count);
/* --break: shows them, asks, and breaks those holds, and no later one. */
int lock_break_holders(const locking *l, const corral_lock_holder *holders, size_t count);

/* --list, --watch */
int lock_list(locking *l);
int lock_watch(locking *l);

/* ---- lock_keeper.c, lock_script.c ---------------------------------------------------------- */

/* --take: leaves a process that holds the lock until the script ends, or releases it. */
int lock_keep(locking *l);
/* --check and --release: asks that process. */
int lock_ask(locking *l);
/* True when the script, or one above it, has such a lock. */
bool lock_is_kept(const locking *l);

/* The process whose section a lock guards. */
typedef struct lock_script {
  int pid;
  int pidfd;                /* readable when it has ended */
  unsigned long long start; /* when it began: another process of that pid has another */
} lock_script;

/* Finds the script: --pid, or the process that runs this command. A subshell counts as the shell
 * that it is a copy of. False: reported. */
bool lock_script_find(const locking *l, lock_script *ret);
/* A listening socket, under a name that script and lock give, or one that isn't listening yet; -1
 * with errno set, EADDRINUSE: the script has the lock already. The socket has no file: nothing is
 * left of it when its process is killed. */
int lock_script_socket(const locking *l, const lock_script *script);
/* Connects to the keeper of that lock for the script, or for one above it; -1: there is none. */
int lock_script_connect(const locking *l);
/* True when the peer of a connection is of this user. */
bool lock_script_is_own(int fd);

#endif
