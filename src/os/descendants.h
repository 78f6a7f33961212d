/* descendants.h: the processes and the open files that the kernel lists in /proc.
 * corral_descendants_signal and corral_descendants_kill are in corral/child.h. */
#ifndef CRL_DESCENDANTS_H
#define CRL_DESCENDANTS_H

#include <corral/child.h>

/* Closes the pipes and sockets of this process, but for `kept`; its standard streams become
 * /dev/null. Async-signal-safe. */
void crl_descendants_close(int kept);

#endif
