/* drive.h: the drivers, which perform the asks of flights, of one key or of several at once. They
 * call the user's computes, and make no decisions. */
#ifndef CRL_DRIVE_H
#define CRL_DRIVE_H

#include "event.h"
#include "herd.h"
#include "hostlock.h"
#include "key.h"
#include "keeper.h"
#include "lock_table.h"
#include "near.h"
#include "offer.h"
#include "origin.h"
#include "pool.h"
#include "quota.h"
#include "watch.h"
#include "worker.h"

/* The latest known cost of computing each key, by the hash of its name; keys that share a slot
 * overwrite each other. */
enum { CRL_COSTS = 1024 };
typedef struct crl_costs {
  _Atomic uint64_t slots[CRL_COSTS]; /* upper half: of the hash; lower half: ms */
} crl_costs;

/* Starts a compute; at its end fill->ended is called. */
typedef void crl_start(void *arg, corral_fill *fill, const void *key, size_t key_len);

/* State that all flights of one corral share. */
typedef struct crl_station {
  crl_pool *pool;
  crl_herd *herd;
  crl_keeper *keeper;
  crl_workers *workers;
  struct crl_pilot *pilot; /* pilot.h */
  crl_lock_table *locks;   /* holds and waiters of users' locks */
  crl_hostlock *hostlock;  /* NULL: the ladder has no host lock */
  crl_origin *origin;
  crl_watch *watch;           /* NULL: waiters poll */
  crl_near *near;             /* NULL: there is no near tier */
  _Atomic int64_t near_since; /* copies of earlier looks don't answer by themselves */
  crl_held *held;
  crl_held *verdicts; /* verdicts left while the store was away: records without a body */
  crl_offer offer;
  crl_events events;
  corral_policy policy;
  crl_costs costs;
  _Atomic uint64_t dice; /* seed of the next flight's random numbers */
  uint64_t max_value;
  int64_t op_ms;
  int64_t held_ms;      /* or CORRAL_OFF */
  int64_t compress_min; /* or CORRAL_OFF */
  crl_quota negatives;
  int generation; /* each value carries the tag of the whole namespace */
  crl_key_space space;
  char *scope; /* name of the host's elections */
} crl_station;

/* One call. */
typedef struct crl_call {
  const void *key; /* the user's key */
  size_t key_len;
  corral_compute *compute;
  /* in place of `compute`; all three NULL: the call only looks */
  corral_compute_many *compute_many;
  crl_start *start; /* in place of `compute`: starts a compute that ends later */
  void *arg;
  int bound;  /* compute may run on the workers */
  int early;  /* rebuild even a fresh value */
  int cancel; /* the caller's cancel state (crl_env_cancel_off), restored for the compute */
  /* resolved; policy.error is the caller's. Last member: it needs no zeroing */
  corral_policy policy;
} crl_call;

static inline int crl_call_computes(const crl_call *call) {
  return call->compute != NULL || call->compute_many != NULL || call->start != NULL;
}

static inline crl_name crl_call_name(const crl_call *call) {
  return (crl_name){.key = call->key,
                    .key_len = call->key_len,
                    .variant = call->policy.variant,
                    .variant_len = call->policy.variant_len};
}

/* Performs a call to its end: its status and, on CORRAL_OK, *ret. Sets call->early and
 * call->cancel. */
int crl_drive_call(crl_station *station, crl_call *call, corral_value **ret);

/* drive_many.c: performs a call of several keys; `call` holds for each, except for its key. Items
 * whose status is not CORRAL_OK already are left as they are. CORRAL_OK: each item has its own
 * status. CORRAL_ENOMEM: no key was asked for. */
int crl_drive_many(crl_station *station, const crl_call *call, corral_item *items, size_t count);

#endif
