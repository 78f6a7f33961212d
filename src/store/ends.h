/* ends.h: one thread that hears when the connection that a lock's hold belongs to has ended, for
 * stores with such holds (corral_store.ends).
 *
 * The thread starts with the first hold. */
#ifndef CRL_ENDS_H
#define CRL_ENDS_H

#include <corral/plugin.h>

typedef struct crl_ends crl_ends;

typedef struct crl_ends_options {
  const corral_store *plugin; /* it has `attend` and `ends` */
  void *store;                /* open as long as the ends exist */
  /* Called once for each hold that was attended to, when its connection has ended; on the thread,
   * or within crl_ends_attend. */
  void (*ended)(void *arg, const uint8_t *token);
  void *arg;
} crl_ends_options;

/* Starts no thread. NULL without memory. */
crl_ends *crl_ends_new(const crl_ends_options *options);
/* No hold may be attended to. */
void crl_ends_free(crl_ends *ends);
/* From now on the end of the connection of this token's hold is told; here, if it has ended
 * already. If no thread can be started, none is told. */
void crl_ends_attend(crl_ends *ends, const uint8_t *token);

#endif
