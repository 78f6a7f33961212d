/* context.h: all that the calls of one corral share, and the checks with which calls begin. */
#ifndef CRL_CONTEXT_H
#define CRL_CONTEXT_H

#include "os/env.h"
#include "stats/event.h"
#include "os/task.h"
#include "base/marks.h"
#include "record/key.h"
#include "store/ends.h"
#include "store/renewer.h"
#include "store/pool.h"
#include "store/watch.h"
#include "election/hostlock.h"
#include "election/hostmap.h"
#include "election/semaphore.h"
#include "election/quota.h"
#include "herd/herd.h"
#include "near/near.h"
#include "stats/hot.h"
#include "outbox/replay.h"

#define CRL_CONTEXT_OPEN UINT32_C(0xc0881a11)
#define CRL_CONTEXT_CLOSING UINT32_C(0xc0881a00)

/* The latest known cost of computing each key, by a hash; keys that share a slot overwrite each
 * other. */
enum { CRL_COSTS = 1024 };
typedef struct crl_costs {
  _Atomic uint64_t slots[CRL_COSTS]; /* upper half: of the hash; lower half: ms */
} crl_costs;

/* Rounded up, since 0 means unknown. */
static inline uint32_t crl_costs_ms(uint64_t us) {
  return us / 1000 >= UINT32_MAX ? UINT32_MAX : (uint32_t)((us + 999) / 1000);
}

/* By crl_context_cost_hash of the key. ms; 0: unknown. */
static inline uint32_t crl_costs_recall(const crl_costs *costs, uint64_t hash) {
  uint64_t slot = atomic_load_explicit(&((crl_costs *)(uintptr_t)costs)->slots[hash % CRL_COSTS],
                                       memory_order_relaxed);
  return slot >> 32 == hash >> 32 ? (uint32_t)slot : 0;
}

static inline void crl_costs_note(crl_costs *costs, uint64_t hash, uint64_t us) {
  _Atomic uint64_t *place = &costs->slots[hash % CRL_COSTS];
  uint64_t slot = (hash >> 32 << 32) | crl_costs_ms(us);
  if (atomic_load_explicit(place, memory_order_relaxed) != slot)
    atomic_store_explicit(place, slot, memory_order_relaxed);
}

/* The policies that callers gave, each resolved once. Beyond CRL_POLICIES different ones, each call
 * resolves its own. */
enum { CRL_POLICIES = 16 };
typedef struct crl_policy_known {
  corral_policy given, whole; /* as the caller has it, padded with zeros; resolved */
} crl_policy_known;

/* The first member of struct corral. */
typedef struct crl_context {
  _Atomic uint32_t magic; /* CRL_CONTEXT_OPEN or CRL_CONTEXT_CLOSING */
  /* crl_env_forks() + 1 at the first use; 0: not used yet. `claimed`: by that use, which goes on */
  _Atomic unsigned home, claimed;
  crl_pool *pool;
  crl_herd *herd;
  crl_renewer *renewer;
  crl_threads threads;
  struct crl_scheduler *scheduler;   /* driver/async.h */
  struct crl_lock_table *locks;      /* holds and waiters of users' locks */
  struct crl_lock_steps *lock_steps; /* of event loops' locks */
  crl_ends *ends;                    /* NULL: no hold belongs to a connection */
  crl_hostlock *hostlock;            /* NULL: the ladder has no host lock */
  crl_hostmap hostmap;               /* where there is one */
  int limits_computes;               /* of all kinds, not just those on threads of the library */
  crl_semaphore *limiter;            /* of computes */
  crl_watch *watch;                  /* NULL: waiters poll */
  crl_near *near;                    /* NULL: there is no near tier */
  int near_hot_only;                 /* it is for hot keys alone */
  _Atomic int64_t near_since;        /* copies of earlier looks don't answer by themselves */
  crl_outbox *outbox;
  crl_outbox *verdicts; /* verdicts left while the store was away: records without a body */
  crl_replay replay;
  crl_events events;
  corral_policy policy;
  crl_policy_known *_Atomic policies[CRL_POLICIES]; /* NULL from the first free place on */
  crl_costs costs;
  crl_marks gone; /* hashes of keys that should have no value: see crl_join_first */
  struct crl_tag_memory *tag_memory; /* tags/tag_memory.h; NULL: a second look asks nobody else */
  uint64_t max_value;
  int64_t op_ms;
  int64_t outbox_ms;    /* or CORRAL_OFF */
  int64_t compress_min; /* or CORRAL_OFF */
  crl_quota negatives;
  _Atomic int64_t behind; /* bytes of runs whose records are stored behind their callers' answers */
  int locks_only;         /* the store has no values */
  /* A look asks no other process and waits for no handle: each call looks before it enters the
   * herd, which then has only calls that found no answer. */
  int looks_first;
  int generation; /* each value carries the tag of the whole namespace */
  crl_key_space space;
  char *scope; /* name of the host's elections */
  crl_hot hot; /* which keys most gets are for */
} crl_context;

/* The hash by which the cost of a key is known: that of the two that a hit has anyway.
 * `key_hash`: crl_key_hash; `name_hash`: crl_name_hash. */
static inline uint64_t crl_context_cost_hash(const crl_context *context, uint64_t key_hash,
                                             uint64_t name_hash) {
  return context->looks_first ? key_hash : name_hash;
}

/* First step of a call that is safe in a forked child. CORRAL_EINVAL, CORRAL_ECLOSED. */
int crl_context_open(corral *c, crl_context **ret, corral_error *error);
/* First step of any other call; the first one binds the corral to this process. Also
 * CORRAL_EFORKED. */
int crl_context_enter_first(corral *c, crl_context **ret, corral_error *error);
static inline int crl_context_enter(corral *c, crl_context **ret, corral_error *error) {
  crl_context *context = (crl_context *)(void *)c;
  if (c == NULL || atomic_load(&context->magic) != CRL_CONTEXT_OPEN ||
      atomic_load(&context->home) != crl_env_forks() + 1 || crl_frame_within(&context->events))
    return crl_context_enter_first(c, ret, error);
  *ret = context;
  return CORRAL_OK;
}
/* First step of a call on an object of an open corral, such as a lock: CORRAL_EINVAL,
 * CORRAL_EFORKED. */
int crl_context_check(const crl_context *context, corral_error *error);
/* The caller's policy over the corral's, resolved, if it is known: kept until the corral is closed.
 * NULL: crl_context_policy. Any thread. */
const corral_policy *crl_context_kept(const crl_context *context, const corral_policy *user);
/* The caller's policy over the corral's, resolved: it is kept until the corral is closed, or made
 * in `room`. NULL: it is refused, with detail in *error; *ret_status tells why. Any thread. */
const corral_policy *crl_context_policy(crl_context *context, const corral_policy *user,
                                        corral_policy *room, int *ret_status, corral_error *error);
void crl_context_free_policies(crl_context *context);
/* True when the near tier, if there is one, is for the key of this hash (crl_key_hash), too. */
static inline int crl_context_is_near(const crl_context *context, uint64_t hash) {
  return context->near != NULL && (!context->near_hot_only || crl_hot_has(&context->hot, hash));
}
/* True when the change of a copy's record is known here, at the latest when near_ms is over: the
 * watch has registered it or, where no watch is up or a watch tells of all keys, nothing of that
 * kind is to be had or needed. */
int crl_context_hears_of(const crl_context *context, const crl_near_copy *copy);
/* After a copy was put into the near tier: has its key registered, where the watch needs that. */
void crl_context_watch_copy(crl_context *context, const void *key, size_t len, uint64_t hash);
/* After copies came or went: the gauge of their bytes. */
static inline void crl_context_weigh_near(const crl_context *context) {
  crl_stats_set_gauge(&context->events.stats, CORRAL_GAUGE_NEAR_BYTES,
                      (int64_t)crl_near_weight(context->near));
}
/* True unless the corral belongs to another process, of which this is a fork. */
int crl_context_is_home(const crl_context *context);

#endif
