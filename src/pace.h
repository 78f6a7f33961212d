/* pace.h: how long a batch on a handle may go on: until nothing has moved for a while, not until a moment.
 *
 * Each batch has a limit. Bytes that move put it off, to `quiet_ms` after they moved, by no more than they take at CRL_PACE_RATE, and
 * never beyond the caller's own deadline. So a body that moves is not cut, a server that stalls is noticed soon, and one that
 * sends a byte now and then doesn't hold a handle. The plugin tells of bytes by host->moved, which is crl_pace_moved. */
#ifndef CRL_PACE_H
#define CRL_PACE_H

#include <stddef.h>
#include <stdint.h>

enum {
  CRL_PACE_RATE = 100,       /* bytes a millisecond: what is slower doesn't count as moving */
  CRL_PACE_BODY = 64 << 10   /* fewer bytes are no body, and put nothing off */
};

typedef struct crl_pace {
  int64_t deadline; /* what the plugin was given */
  int64_t first;    /* the limit before any bytes moved */
  int64_t limit;    /* the limit now */
  int64_t latest;   /* the caller's own deadline */
  int64_t quiet_ms;
  uint64_t bytes;
} crl_pace;

/* Until crl_pace_end, bytes that this thread's plugin tells of are of this batch. */
void crl_pace_begin(crl_pace *pace);
void crl_pace_end(void);
/* See corral_host.moved. A deadline that isn't the batch's own is returned as it is. */
int64_t crl_pace_moved(size_t bytes, int64_t deadline);
/* True when enough has moved that a failure is one of that body, and says nothing of the server. */
int crl_pace_in_body(const crl_pace *pace);

#endif
