/* descendants.h: signals to all that descends from this process, whatever group or session it went
 * to. Only for a process that is the reaper of its descendants (PR_SET_CHILD_SUBREAPER), so that
 * none is lost by the death of its parent. Async-signal-safe: for the child of a process with
 * threads, too. One thread at a time. */
#ifndef CORRAL_CLI_DESCENDANTS_H
#define CORRAL_CLI_DESCENDANTS_H

#include <sys/types.h>

/* Signals all descendants, generation by generation. A process born meanwhile is found the next
 * time. `child` (0: none) is signalled even where there is no /proc. */
void descendants_signal(pid_t child, int signo);
/* Kills and reaps all descendants, until none is left. */
void descendants_kill(pid_t child);

#endif
