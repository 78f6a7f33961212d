/* entry.h: what stands in a herd: outcomes, listeners, and the stub of a first look. */
#ifndef CRL_ENTRY_H
#define CRL_ENTRY_H

#include "os/wait.h"
#include "record/key.h"
#include "base/value.h"

typedef struct crl_herd crl_herd;
typedef struct crl_entry crl_entry;

/* The outcome of a flight, for all callers that share it. */
typedef struct crl_outcome {
  int status;          /* CORRAL_OK, CORRAL_ENOTFOUND, or an error */
  crl_bytes *bytes;    /* set with CORRAL_OK, unless `value` is */
  size_t offset, size; /* the value within `bytes` */
  corral_how how;
  corral_kept kept;
  int64_t age_ms;
  uint64_t version;
  uint64_t cost_us;    /* of computing it, where that is known */
  int32_t failure;     /* for which a stale value is the answer; 0: none */
  uint8_t returned;    /* an error: the call is to go on by crl_join_return */
  uint8_t is_counted;  /* as a result: see crl_outcome_deliver */
  corral_value *value; /* the caller's own, made already; it can't be shared. NULL: none */
  corral_error error;
} crl_outcome;

/* A caller that waits for several things at once, an entry among them; in its owner's memory. */
typedef struct crl_listener {
  struct crl_listener *next, **link;
  crl_waiter *waiter;
  _Atomic int stirred; /* set to 1 by each change of the entry */
  unsigned lends;      /* see crl_patience */
} crl_listener;

/* A flight in its first look, in its caller's memory: a call that finds it makes an entry of it,
 * and joins. So the look that nobody joins costs no entry. */
typedef struct crl_stub {
  struct crl_stub *next, **link; /* link is NULL once it is out of the map */
  crl_herd *herd;
  const crl_name *name;
  uint64_t hash;    /* crl_name_hash */
  uint64_t tick;    /* of its beginning: the look is sent after it */
  crl_entry *entry; /* once others have joined; with a reference */
} crl_stub;

#endif
