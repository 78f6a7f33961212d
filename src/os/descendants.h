/* descendants.h: the processes and the open files that the kernel lists in /proc.
 * corral_descendants_signal and corral_descendants_kill are in corral/child.h. */
#ifndef CRL_DESCENDANTS_H
#define CRL_DESCENDANTS_H

#include <corral/child.h>

/* Replaces the pipes and sockets of this process but `kept` and `also_kept` (-1: none) by
 * /dev/null if they are its standard streams, and closes the others. Async-signal-safe. */
void crl_descendants_close(int kept, int also_kept);

#endif
