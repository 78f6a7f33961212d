/* copy.h: a copy in the near tier. */
#ifndef CRL_COPY_H
#define CRL_COPY_H

#include "base/value.h"

/* Values of up to so many bytes are copied, into the tier and out of it; of larger ones references
 * are counted. */
enum { CRL_NEAR_SMALL = 896 };
/* A kind besides those of envelope.h: there is no value, and a failure is remembered. Its bytes are
 * the failure's text. */
enum { CRL_NEAR_VERDICT = 0xff };

/* A value as found in the store; its lives end at moments (crl_env_now_ms), 0: no such life. */
typedef struct crl_near_copy {
  crl_bytes *metadata; /* the record's metadata if it has tags, else NULL; a reference */
  size_t offset;       /* of the value within `bytes` */
  uint64_t print;      /* of the record that was found (crl_watch_print); 0: unknown */
  int64_t swr_until, sie_until;
  /* what a hit reads stands together */
  int64_t ttl;         /* length of its fresh life in ms */
  int64_t retry_until; /* a failure is remembered until then, and nobody computes */
  int64_t fresh_until;
  int64_t looked; /* when the store was asked */
  int64_t made;   /* when the value was stored; its age is now - made */
  uint64_t version;
  uint64_t cost_us;      /* of computing the value */
  int32_t failure;       /* the number of the failure that is remembered; else 0 */
  uint8_t kind;          /* CRL_KIND_... */
  _Atomic int confirmed; /* set by crl_near_confirm, cleared by crl_near_doubt */
  crl_bytes *bytes;    /* a reference, not NULL for any kind; NULL in the tier for a small value */
  const uint8_t *data; /* the value; set by the tier */
  size_t size;
} crl_near_copy;

#endif
