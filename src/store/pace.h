/* pace.h: the time limit of a batch on a handle: it ends when nothing has moved for a while, not at
 * a fixed moment.
 *
 * Each batch has a limit. Each CRL_PACE_STEP bytes moved put the limit off to `quiet_ms` from then,
 * but never beyond the caller's own deadline. The time between the arrival of bytes and the
 * plugin's next wait is the plugin's own, and isn't counted. So a body that moves is not cut off, a
 * server that stalls is noticed soon, and a server that sends a byte now and then can't keep a
 * handle. The plugin reports bytes by host->moved, which is crl_pace_moved. */
#ifndef CRL_PACE_H
#define CRL_PACE_H

#include <stddef.h>
#include <stdint.h>

enum {
  CRL_PACE_STEP = 16 << 10, /* fewer bytes within quiet_ms don't count as moving */
  CRL_PACE_BODY = 64 << 10  /* with fewer bytes a batch has moved no body */
};

typedef struct crl_pace {
  int64_t deadline; /* as given to the plugin; 0 for one that never waits */
  int64_t first;    /* the limit before any bytes moved */
  int64_t limit;    /* the limit now */
  int64_t latest;   /* the caller's own deadline */
  int64_t began;    /* of the batch, crl_env_now_ms; 0: unknown */
  int64_t quiet_ms;
  uint64_t bytes; /* moved so far */
  uint64_t step;  /* moved since the limit was put off */
  int64_t came;   /* when the last bytes moved, crl_env_now_ms; 0: the plugin waits */
} crl_pace;

/* Until crl_pace_end, bytes reported on this thread count for this batch. */
void crl_pace_begin(crl_pace *pace);
void crl_pace_end(void);
/* Bytes count for a batch again that had begun, and was left by crl_pace_end meanwhile. */
void crl_pace_go_on(crl_pace *pace);
/* corral_host.moved. A deadline other than the batch's own is returned unchanged. */
int64_t crl_pace_moved(size_t bytes, int64_t deadline);
/* True when a body has begun to move: then a failure is one of that body, not of the server. */
int crl_pace_in_body(const crl_pace *pace);

#endif
