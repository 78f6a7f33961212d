/* run.h: a run: a flight under way, with everything that its driver needs.
 *
 * run.c makes, steps and frees runs, join.c has a call's part in the herd, request.c performs what
 * a flight asks of the store, compute.c surrounds its compute, answer.c builds and hands out its
 * answers, near_copy.c has the copies of this process. A run doesn't know who carries it: see
 * driver/advance.h. */
#ifndef CRL_RUN_H
#define CRL_RUN_H

#include "os/readers.h"
#include "os/timers.h"
#include "os/worker.h"
#include "record/fill.h"
#include "run/found.h"
#include "stats/flights.h"

/* The compute and the settings of a call, of one key or of several. */
typedef struct crl_call {
  corral_compute *compute;
  /* in place of `compute`; all three NULL: the call only looks */
  corral_compute_many *compute_many;
  crl_start *start; /* in place of `compute`: starts a compute that ends later */
  void *arg;
  unsigned bound : 1; /* compute may run on the workers */
  unsigned peeks : 1; /* takes no value that may be due for a rebuild: see crl_hit_peek */
  int cancel;         /* the caller's cancel state (crl_env_cancel_off), restored for the compute */
  /* of the caller's corral_call */
  corral_error *error;
  corral_cancel_token *cancel_token;
  const void *variant;
  size_t variant_len;
  const corral_policy *policy; /* resolved; of the corral, or its caller's */
} crl_call;

static inline int crl_call_computes(const crl_call *call) {
  return call->compute != NULL || call->compute_many != NULL || call->start != NULL;
}

typedef struct crl_run crl_run;

static inline crl_name crl_call_name(const crl_call *call, const void *key, size_t key_len) {
  return (crl_name){
      .key = key, .key_len = key_len, .variant = call->variant, .variant_len = call->variant_len};
}

/* Once for each call: by some of them it is known which keys are hot. */
void crl_run_count_one(crl_context *context, const crl_call *call, const void *key, size_t key_len);
static inline void crl_run_count(crl_context *context, const crl_call *call, const void *key,
                                 size_t key_len) {
  if (__builtin_expect(!crl_hot_passes(), 0)) crl_run_count_one(context, call, key, key_len);
}

/* The caller of a run that the scheduler flies; it outlives the run. Called on the scheduler's
 * threads. */
typedef struct crl_caller {
  void (*answered)(struct crl_caller *caller, crl_run *r);
  /* A compute is about to begin: a caller without an answer waits on the run's entry from now on,
   * unless there is none or the compute is for this caller alone at its deadline. */
  void (*waits)(struct crl_caller *caller, crl_run *r);
  /* The caller begins the compute, or has it begun soon; 0: it can't. NULL: the caller begins no
   * computes. */
  int (*begin)(struct crl_caller *caller, crl_run *r);
  void (*gone)(struct crl_caller *caller, crl_run *r); /* the last call for this run */
} crl_caller;

/* The asynchronous scheduler's part of a run. */
typedef struct crl_flown {
  /* in the queue, among the parked runs, or among the computes begun in a loop */
  crl_run *next, **link;
  crl_caller *caller; /* NULL: all waiters wait on the entry */
  crl_timer timer;
  int phase, computing; /* the scheduler's; 1: a compute was begun and isn't finished */
  int parked, woken;    /* under the scheduler's mutex */
  int stirred;          /* woken, or its timer rang, since it was last taken up */
  int timed;            /* its timer was set since then */
  int64_t ended_us;
  _Atomic int fate; /* the loop's: see loop.c */
  /* the loop's: 1: within `start`; 1: the compute has ended, 2: it was abandoned */
  int starting, ended;
} crl_flown;

/* Owned by the calling thread or, once handed over, by the workers or the scheduler. */
struct crl_run {
  crl_job job;
  crl_renewed_lease lease;
  crl_context *context;
  crl_entry *entry; /* NULL: no other caller can join */
  crl_flight flight;
  corral_compute *compute;
  corral_compute_many *compute_many;
  crl_start *start;
  void *arg;
  int bound, handed_over;
  int nested;    /* the caller is within a compute, or a function, and waits for this one */
  unsigned lent; /* by that caller: see crl_run_lends */
  int cancel;    /* the caller's, from crl_env_cancel_off */
  crl_flown flown;
  _Atomic int left;                  /* the caller has left, but not by its cancel token */
  corral_cancel_token *cancel_token; /* the caller's; NULL: none, or forgotten */
  crl_canceller canceller;
  _Atomic int inside;  /* the compute runs on the caller's thread */
  _Atomic int settles; /* the compute has ended; its lease is extended until the record is stored */
  crl_waiter fetched;  /* the end of a compute that `start` began */
  crl_waiter *waiter,
      own_waiter; /* for its waits; NULL: none yet. Runs that are flown together share one */
  crl_watcher watcher;
  int watches; /* watcher has joined the watch */
  crl_ask ask;
  uint8_t token[CORRAL_TOKEN];
  int has_token;
  int64_t claim_sent, lease_ms;
  crl_look last; /* of the last GET or CLAIM */
  /* ticks of the ask under way, of the last that the store answered, and of the last look, which
   * reads the versions of tags; see herd.h */
  uint64_t tick, good, looked;
  corral_fill fill;
  int64_t began, began_us;  /* begin of the compute, by crl_env_now_ms and crl_env_now_us */
  uint64_t cost_us;         /* what it took */
  int64_t waits_since;      /* begin of its waits, by crl_stats_clock */
  int computes, is_waiting; /* counted in these gauges */
  crl_product product;
  crl_slot *slot;          /* runs that compute together share one; NULL: none yet */
  int has_slot, asks_slot; /* asks_slot: LIMITED was told, or the slot is waited for */
  int waits;               /* its WAIT has begun */
  int64_t now;             /* of the last step but those of ANSWER, which takes no time */
  crl_made made;           /* by the compute */
  int published;           /* exit() waits for its end */
  int lands_later;         /* its caller has the answer, but the entry has not landed */
  int64_t behind;          /* room taken in context->behind: its lease ends behind the answer */
  _Atomic int hold;        /* on the host's lock; -1: none. The renewer may give it back, too */
  int noted;               /* the token is noted in the host's lock file */
  crl_listing listing;     /* among the flights that other processes see */
  uint64_t *ancestors;     /* `self` of each key whose compute asked for this one */
  size_t depth;
  /* crl_run_new zeroes only the fields above, to save time; each field below is set before it is
   * read. */
  corral_policy policy;
  crl_found found;
  crl_outcome answer;
  crl_slot own_slot;
};

/* The runs that one compute of a thread is for. */
typedef struct crl_computing {
  crl_run *const *runs;
  size_t count; /* not 0 */
} crl_computing;

/* ---- join.c: a call's part in the herd ----------------------------------------------------- */

typedef enum crl_join_state {
  CRL_JOIN_LOOKS = 1, /* leads a flight, whose first look is due: crl_join_first or crl_join_fly */
  CRL_JOIN_LEADS,     /* `run` is its own, to be driven to its end */
  CRL_JOIN_WAITS,     /* on `entry`, for another caller's flight or its own, driven elsewhere */
  CRL_JOIN_ENDED      /* *outcome is its answer, with a reference */
} crl_join_state;

/* One call of one key, in its caller's memory. */
typedef struct crl_join {
  crl_context *context;
  const crl_call *call; /* it and the name outlive the call's part in the herd */
  crl_name name;
  int64_t deadline;     /* 0: wait_ms from its beginning */
  crl_waiter *waiter;   /* woken by changes of the entry; NULL: the caller uses crl_join_wait */
  crl_outcome *outcome; /* room of the caller's, for CRL_JOIN_ENDED */
  crl_join_state state;
  crl_run *run;
  uint64_t hash;    /* crl_name_hash */
  crl_entry *leads; /* of a flight that has no run yet; NULL: no caller can join */
  uint64_t since;   /* tick of the call's beginning; see herd.h */
  uint64_t tick;    /* of the last entering: its first look is sent after it */
  int has_looked;   /* apart from the herd, and has found no answer but `stale` (may be NULL) */
  crl_outcome *stale;
  int64_t stale_until;
  crl_entry *entry;
  crl_listener listener;
  int owns;            /* the flight of `entry` is its own */
  int64_t waits_since; /* begin of a wait for another's, by crl_stats_clock */
  int early;           /* rebuild even a fresh value */
  int expects_none;    /* nothing should be stored */
  int returns;         /* its run may end by crl_join_return: somebody else rebuilds the value */
} crl_join;

void crl_join_init(crl_join *join, crl_context *context, const crl_call *call, const void *key,
                   size_t key_len);
/* Begins a call: refuses recursion, looks into the near tier, else enters. */
void crl_join_begin(crl_join *join);
/* The last of these steps alone: enters the herd, unless the store is to be looked at first. */
void crl_join_enter(crl_join *join);
/* CRL_JOIN_LOOKS: makes the first look, blocking. A hit ends the call, without a run; else it has
 * its run. */
void crl_join_first(crl_join *join);
/* The same in two parts, between which the caller makes the look. 0: the call has ended. */
int crl_join_begin_look(crl_join *join, crl_found *found);
void crl_join_looked(crl_join *join, crl_found *found, crl_told *told);
/* CRL_JOIN_LOOKS: goes on by a look that was made, and takes over what it found. began_us: when the
 * look began (crl_env_now_us); 0: that isn't known. */
void crl_join_have(crl_join *join, const corral_op *op, int64_t began_us);
/* CRL_JOIN_LOOKS: makes a run that begins with that look. `returns`: where it looks apart from the
 * herd, and the store is away, its outcome may say `returned`: then crl_join_return is next. */
void crl_join_fly(crl_join *join, int returns);
/* Its run has ended so: has its part in the herd. By themselves all such calls would compute. */
void crl_join_return(crl_join *join);
/* Blocks until there is a result for a call that waits, and goes on by it. */
void crl_join_wait(crl_join *join);
/* The same without blocking; `join` may still wait when it returns. */
void crl_join_look(crl_join *join);
/* The moment of the next look at the latest. */
int64_t crl_join_until(const crl_join *join);
/* Its run is driven elsewhere from now on: waits on the entry. */
void crl_join_follow(crl_join *join);
/* Waits on an entry to which its listener listens already; takes over the reference. */
void crl_join_take(crl_join *join, crl_entry *entry, int owns);
/* Its run has ended: takes its answer and frees it. */
void crl_join_land(crl_join *join);
/* Ends the call without an answer: abandons its run, leaves the entry. */
void crl_join_leave(crl_join *join);
/* Forgets what may be served stale; for a call that ends in another way than by its join. */
void crl_join_forget(crl_join *join);
/* Ends the call with an answer, whose reference it takes over. */
void crl_join_end(crl_join *join, const crl_outcome *outcome);
void crl_join_fail(crl_join *join, int status);
/* The parts of a place (limiter.h) that the calling thread has, and lends to the flights that it
 * waits for: both within a compute; its thread within a function of corral_loop_run; else 0. */
unsigned crl_run_lends(void);

/* ---- offline.c: for a store that is away --------------------------------------------------- */

/* Looks for a value in the outbox, or a copy in the near tier: told->status is CORRAL_OK, with the
 * lives that are left, or CORRAL_EMISS. */
void crl_run_find_outbox(crl_run *r, crl_told *told);
/* Keeps the product for the store's return. */
void crl_run_keep_fill(crl_run *r);
/* Remembers in this process a failure that the store can't remember. */
void crl_run_keep_verdict(crl_run *r);

/* run.c */
/* Tells that a call ended by its deadline, and how long it lasted. */
void crl_run_tell_deadline(const struct crl_join *join);
/* Begins a flight. `found`: taken over, unless there is no memory; NULL: nothing was looked at yet.
 * NULL without memory. */
crl_run *crl_run_new(const struct crl_join *join, crl_found *found, crl_alone alone);
void crl_run_free(crl_run *r);
/* Gives up the run's lease, cancel token, watch and entry; crl_run_free does so, too. All that the
 * fill needs stays. */
void crl_run_part(crl_run *r);
/* Ends a flight that can't go on: gives back its lease, slot and host's lock; waiters on its entry
 * enter anew. */
void crl_run_abandon(crl_run *r);
/* Tells the flight the result of its ask (told->now and told->left are set here), and gives back
 * what the flight no longer has. */
void crl_run_step(crl_run *r, crl_told *told);
/* Notes by the status of an ask whom the flight's answers are good for: see herd.h. While the store
 * is away nobody can tell: they are good for all. */
void crl_run_confirm(crl_run *r, int status);
/* Tells a flight that has just begun the result of the call's first look. */
void crl_run_looked(const struct crl_join *join, crl_told *told);
/* Until crl_run_forget_caller the run ends early when `cancel token` (may be NULL) is cancelled. */
void crl_run_meet_caller(crl_run *r, corral_cancel_token *cancel_token);
/* The run may go on without its caller. */
void crl_run_forget_caller(crl_run *r);
/* True when its caller has left. */
int crl_run_is_left(const crl_run *r);
/* Tells the compute of a run (a crl_run *) to stop. */
void crl_run_stop(void *r);
void crl_run_make_waiter(crl_run *r);
/* Before each wait: joins the store's watch, and has the key registered where the watch needs that.
 * 1: look again instead of waiting. */
int crl_run_begin_wait(crl_run *r);
/* The flight waits no longer for a leader elsewhere. */
void crl_run_end_wait(crl_run *r);
void crl_run_take_host(crl_run *r, crl_told *told);
/* All calls of this corral pass the present holder of the host's lock by, as the flight does. */
void crl_run_pass_host(crl_run *r);
void crl_run_give_host(crl_run *r);
/* Before a CLAIM is sent: notes its token in the host's lock file. If this process dies, the next
 * holder of the host's lock knows the lease for a dead leader's. */
void crl_run_note_token(crl_run *r);
/* Asks for the slot to compute. 1: *told is set: the run has it, or won't get it. 0: ask again at
 * *next, or when r->waiter is woken. */
int crl_run_ask_slot(crl_run *r, crl_told *told, int64_t *next);
/* Gives back the slot and the host's lock if the flight no longer has them. */
void crl_run_let_go(crl_run *r);
/* Sets the runs that this thread computes (NULL: none); returns the former ones. */
const crl_computing *crl_run_inside(const crl_computing *inner);
/* The innermost compute of this thread; NULL: none. Set by crl_run_inside alone. */
extern _Thread_local const crl_computing *crl_run_computing CRL_IN_FIRST_BLOCK;
/* True when the key is being computed by the very compute that makes the call: a wait for it would
 * never end. */
int crl_run_is_computing(const crl_context *context, const crl_name *name);
static inline int crl_run_recurses(const crl_context *context, const crl_name *name) {
  return crl_run_computing != NULL && crl_run_is_computing(context, name);
}

/* listed.c: lists the run among the flights of the process, or changes its state there. */
void crl_run_list(crl_run *r, corral_flight_state state);
/* Ends that; the entry is still there. */
void crl_run_unlist(crl_run *r);

/* compute.c: begin, compute, made, end. For several runs: all begin, one compute, all made, all
 * end. */
void crl_run_begin_compute(crl_run *r);
/* A thread within the user's function for these runs; on its stack, with the attribute
 * cleanup(crl_run_unwind). */
typedef struct crl_inside {
  crl_computing frame;
  const crl_computing *outer;
  int left;
} crl_inside;

void crl_run_go_inside(crl_inside *inside, crl_run *const *runs, size_t count);
/* After the function returned. */
void crl_run_come_outside(crl_inside *inside);
/* The function did not return: its thread was cancelled or ends, or a C++ exception passes. Gives
 * back all that the runs have; the runs are still to be freed. */
void crl_run_unwind(crl_inside *inside);
/* Finishes the fill and sets *told. The lease is still extended meanwhile, since this may ask the
 * store for tag versions. */
void crl_run_made(crl_run *r, int64_t ended_us, crl_told *told);
/* Stops extending the lease, unless a large record is to be stored first. */
void crl_run_end_compute(crl_run *r);
/* Stops extending it once that record has been stored, or won't be. */
void crl_run_drop_lease(crl_run *r);

/* request.c: crl_run_prepare; the driver performs the ops; crl_run_complete; the driver fetches the
 * tag versions that are wanted; crl_run_interpret. */
void crl_run_prepare(crl_run *r, crl_request *e);
/* After the ops: the run takes over what they found, and lists the tag versions that are wanted in
 * r->tag versions. */
void crl_run_complete(crl_run *r, crl_request *e);
/* Sets *told to the result. 0: the same ask is to be made once more. */
int crl_run_interpret(crl_run *r, const crl_request *e, crl_told *told);
/* All these steps, for one run alone. */
void crl_run_perform(crl_run *r, crl_told *told);
/* Gives the old value to the fill. */
void crl_run_lend_old(crl_run *r);
/* After the compute, before its record is made: sets the versions of the tags; checks the order of
 * versions and the quota. CRL_MADE_VALUE: the value may be stored. */
crl_made crl_run_stamp(crl_run *r);
/* The op that ends the lease: with a verdict if retry_ms is positive; `front` is room for it. */
corral_op crl_run_release_op(crl_run *r, uint8_t front[CORRAL_FRONT], int64_t retry_ms,
                             const char *text, int32_t code);

/* near_copy.c */
/* Answers from the near tier: 1, and join->outcome with a reference. 0: ask the store; join->early:
 * and rebuild the value ahead of time. `only_fresh`: with nothing but fresh values. */
int crl_run_near(crl_join *join, int only_fresh);
/* After a SETTLE or RENEW: keeps a copy of what it stored, as of when it was sent; else forgets the
 * present copy. */
void crl_run_keep_near(crl_run *r, const crl_request *e);

/* answer.c */
/* Builds the answer that the flight decided on, counts it, and gives it to all who share the
 * flight. */
void crl_run_answer(crl_run *r);
/* Offers what was computed to the callers who wait; from now on exit() waits for the run. 1: its
 * lease may end behind its caller's answer: the policy says so, and there is room. */
int crl_run_publish(crl_run *r);
void crl_run_give_room(crl_run *r);
/* The answer as it stands, with a reference. */
crl_outcome crl_run_outcome(const crl_run *r);
/* Offers the stale record, as an outcome of its own, to waiters whose deadline comes during the
 * compute. */
void crl_run_lend_stale(crl_run *r);
/* At the end of the flight: lands its entry, or gives the entry up. */
void crl_run_conclude(crl_run *r);
crl_outcome crl_outcome_plain(int status);
crl_outcome crl_outcome_failed(int32_t code, const char *text, size_t text_size, int64_t retry_ms);
/* Hands an outcome, and its reference, to a caller: returns the status; sets *ret on CORRAL_OK,
 * else *error (may be NULL). Counts it as the result of a call, unless it is counted, or has its
 * value, which is what counted looks have. `context` NULL: it isn't of a call for a value. */
int crl_outcome_deliver(const crl_context *context, crl_outcome *outcome, corral_error *error,
                        corral_value **ret);
/* Gives up an outcome that nobody gets. */
void crl_outcome_drop(crl_outcome *outcome);

#endif
