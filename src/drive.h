/* drive.h: performs what flights ask for, of one key or of several at once. The only callers of
 * plugins and of compute. Decide nothing. */
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

/* What computing a key cost the last time in this process, by its hash; two keys of one slot forget
 * each other. */
enum { CRL_COSTS = 1024 };
typedef struct crl_costs {
  _Atomic uint64_t slots[CRL_COSTS]; /* 32 bits of the hash, 32 of ms */
} crl_costs;

/* Begins a compute, which ends by fill->ended. */
typedef void crl_start(void *arg, corral_fill *fill, const void *key, size_t key_len);

/* What all flights of one corral share. */
typedef struct crl_station {
  crl_pool *pool;
  crl_herd *herd;
  crl_keeper *keeper;
  crl_workers *workers;
  struct crl_pilot *pilot; /* pilot.h */
  crl_lock_table *locks;   /* users' own */
  crl_hostlock *hostlock;  /* NULL: the ladder has no such rung */
  crl_origin *origin;
  crl_watch *watch;           /* NULL: waiters poll */
  crl_near *near;             /* NULL: there is no near tier */
  _Atomic int64_t near_since; /* copies of looks before this don't answer alone */
  crl_held *held;
  crl_held *verdicts; /* of computes that failed while the store was away: header-only records */
  crl_offer offer;
  crl_events events;
  corral_policy policy;
  crl_costs costs;
  _Atomic uint64_t dice; /* seed of the next flight's own dice */
  uint64_t max_value;
  int64_t op_ms;
  int64_t held_ms;      /* or CORRAL_OFF */
  int64_t compress_min; /* or CORRAL_OFF */
  crl_quota negatives;
  int generation; /* each value carries the tag of the whole namespace */
  crl_key_space space;
  char *scope; /* what all who share the host's elections have in common */
} crl_station;

/* One call. */
typedef struct crl_call {
  const void *key; /* the user's */
  size_t key_len;
  corral_compute *compute;
  corral_compute_many *compute_many; /* instead; all NULL: only look */
  crl_start *start;                  /* instead: a compute that is begun */
  void *arg;
  int bound;            /* compute may run on the workers */
  int early;            /* a fresh value is to be rebuilt all the same */
  int cancel;           /* crl_env_cancel_off of its caller: how the compute runs */
  corral_policy policy; /* resolved; with the caller's error. Last: it needs no zeroing */
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

/* The whole way of one call: status, and on CORRAL_OK *ret. Sets the call's `early` and
 * `cancel`. */
int crl_drive_call(crl_station *station, crl_call *call, corral_value **ret);

/* drive_many.c: the way of several keys at once; `call` is that of each, its key set apart. Items
 * that have a status other than CORRAL_OK already are left as they are. CORRAL_OK: each item has
 * its own status; CORRAL_ENOMEM: none was asked for. */
int crl_drive_many(crl_station *station, const crl_call *call, corral_item *items, size_t count);

#endif
