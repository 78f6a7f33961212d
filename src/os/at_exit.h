/* at_exit.h: what a process finishes before it ends by exit(), or by the end of main: what its
 * callers count on already, and threads of the library or of the program are about to do.
 *
 * exit() waits for what was begun and has not ended, in the process that began it: a fork of it
 * waits for nothing of its parent's. */
#ifndef CRL_AT_EXIT_H
#define CRL_AT_EXIT_H

#include <stdint.h>

/* Something is begun. exit() waits for all that is, and at most as long as the longest `most_ms`
 * that was given so far. Any thread. */
void crl_at_exit_begin(int64_t most_ms);
/* It has ended. Any thread. */
void crl_at_exit_end(void);

#endif
