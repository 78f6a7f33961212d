/* pace.h: how long a batch on a handle may go on: until nothing has moved for a while, not until a
 * moment.
 *
 * Each batch has a limit. Every CRL_PACE_STEP bytes that moved put it off to `quiet_ms` from then,
 * but never beyond the caller's own deadline. The time from bytes that moved to the next wait is
 * the plugin's own, and doesn't count. So a body that moves is not cut, a server that stalls is
 * noticed soon, and one that sends a byte now and then holds no handle. The plugin tells of bytes
 * by host->moved, which is crl_pace_moved. */
#ifndef CRL_PACE_H
#define CRL_PACE_H

#include <stddef.h>
#include <stdint.h>

enum {
  CRL_PACE_STEP = 16 << 10, /* fewer bytes within quiet_ms don't count as moving */
  CRL_PACE_BODY = 64 << 10  /* fewer bytes are no body */
};

typedef struct crl_pace {
  int64_t deadline; /* what the plugin was given */
  int64_t first;    /* the limit before any bytes moved */
  int64_t limit;    /* the limit now */
  int64_t latest;   /* the caller's own deadline */
  int64_t quiet_ms;
  uint64_t bytes; /* moved so far */
  uint64_t step;  /* moved since the limit was put off */
  int64_t came;   /* when the last bytes moved; 0: the plugin waits */
} crl_pace;

/* Until crl_pace_end, bytes that this thread's plugin tells of are of this batch. */
void crl_pace_begin(crl_pace *pace);
void crl_pace_end(void);
/* See corral_host.moved. A deadline that isn't the batch's own is returned as it is. */
int64_t crl_pace_moved(size_t bytes, int64_t deadline);
/* True when enough has moved that a failure is one of that body, and says nothing of the server. */
int crl_pace_in_body(const crl_pace *pace);

#endif
