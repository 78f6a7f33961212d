/* run.h: a flight under way with all that its driver needs, and what is done with it, by file.
 *
 * run.c makes, steps and frees it, run_store.c does what a flight asks of the store, run_compute.c
 * is around its compute, run_answer.c makes and hands out its answers, run_near.c knows the copies
 * of this process. The drivers: drive.c flies one run, drive_many.c several at once. */
#ifndef CRL_RUN_H
#define CRL_RUN_H

#include "alarms.h"
#include "drive.h"
#include "fill.h"
#include "flight.h"
#include "marks.h"

typedef struct crl_run crl_run;

/* Who asked for a run that the pilot flies; outlives it. Called on the pilot's threads. */
typedef struct crl_caller {
  void (*answered)(struct crl_caller *caller, crl_run *r);
  /* A compute is about to begin: unless he has been answered he waits on the run's entry from now
   * on, if it has one that will tell. */
  void (*waits)(struct crl_caller *caller, crl_run *r);
  /* He is to begin the compute himself, or let it be begun soon; 0: he can't. NULL: that is not his
   * to do. */
  int (*begin)(struct crl_caller *caller, crl_run *r);
  void (*gone)(struct crl_caller *caller, crl_run *r); /* it will be freed */
} crl_caller;

/* Of a run that the pilot flies. */
typedef struct crl_flown {
  /* in the queue; among the parked, or those whose compute was begun in a loop */
  crl_run *next, **link;
  crl_caller *caller; /* NULL: nobody waits for more than the entry tells */
  crl_alarm alarm;
  int phase, computing; /* the pilot's; a compute was begun and isn't finished */
  int parked, woken;    /* under the pilot's mutex */
  int64_t ended_us;
  unsigned tries;      /* for a slot */
  _Atomic int fate;    /* the loop's */
  int starting, ended; /* the loop's: within `start`; it has ended there */
} crl_flown;

/* Its caller's, or, once handed over, the workers' or the pilot's. */
struct crl_run {
  crl_job job;
  crl_kept_lease lease;
  crl_station *station;
  crl_entry *entry; /* NULL: nobody can join */
  crl_flight flight;
  corral_compute *compute;
  crl_start *start;
  void *arg;
  int bound, handed_over;
  int cancel; /* of the caller: crl_env_cancel_off */
  crl_flown flown;
  _Atomic int left;      /* the caller is gone, though no ticket says so */
  corral_ticket *ticket; /* of the caller; NULL: none, or he is gone */
  crl_leaver leaver;
  _Atomic int inside;    /* compute runs on the caller's thread */
  _Atomic int settles;   /* its compute has ended, its lease is kept until the record is stored */
  crl_nap fetched;       /* a compute that was begun has ended */
  crl_nap *nap, own_nap; /* where it waits; NULL: not yet. Runs that are flown together share one */
  crl_watcher watcher;
  int watches;   /* watcher has joined the watch */
  uint64_t hash; /* crl_key_hash */
  crl_ask ask;
  uint8_t token[CORRAL_TOKEN];
  int has_token;
  int64_t claim_sent, lease_ms;
  crl_bytes *found;      /* the record of the last look that had one */
  crl_bytes *plain;      /* where its payload is in plain; NULL: not looked yet */
  crl_marks marks;       /* of its tags, as they were at the last GET */
  crl_tags *tags;        /* of its own, behind has_tags */
  int has_tags, is_void; /* it has some; its tags were invalidated */
  uint64_t stored_version;
  crl_envelope envelope;
  corral_header header;
  crl_look last; /* what the last look found */
  int64_t age_ms;
  corral_fill fill;
  int64_t began, began_us; /* the compute */
  crl_product product;
  int has_slot;
  _Atomic int hold;           /* of the host's lock; -1 none. Also given back by the keeper */
  int noted;                  /* the token stands beside it */
  uint8_t over[CORRAL_TOKEN]; /* of the lease of a dead leader */
  int has_over;               /* the last look found it */
  uint64_t self;              /* stands for the key in this station */
  uint64_t *ancestors;        /* the keys whose computes asked for this one */
  size_t depth;
  /* A new run is zero up to here, for that costs; each of these is set before it is read. */
  corral_policy policy;
  crl_key key;
  corral_error error; /* of the store's last failed operation, or of the compute */
  crl_outcome answer;
  crl_slot slot; /* while has_slot */
};

/* The runs that a thread computes at once. */
typedef struct crl_computing {
  crl_run *const *runs;
  size_t count; /* not 0 */
} crl_computing;

/* run.c */
void crl_run_emit(crl_run *r, corral_event event, const char *detail);
/* Begins a flight. NULL without memory. */
crl_run *crl_run_new(crl_station *station, const crl_call *call, int64_t deadline, crl_alone alone);
void crl_run_free(crl_run *r);
/* Ends what ties it to its station; crl_run_free does so too. What its fill needs stays. */
void crl_run_part(crl_run *r);
/* The end of a flight that can't go on: gives back what it has, and those who wait enter anew. */
void crl_run_abandon(crl_run *r);
/* Tells the flight what its ask came to (the time is added), and gives back what it doesn't need
 * any more. */
void crl_run_step(crl_run *r, crl_told *told);
/* From now on, and until it is forgotten, the run ends early when its caller leaves. */
void crl_run_meet_caller(crl_run *r, corral_ticket *ticket);
/* The caller goes; the run may go on without him. */
void crl_run_forget_caller(crl_run *r);
/* Tells the compute of a run (a crl_run *) to stop. */
void crl_run_stop(void *r);
/* What a caller does next. */
typedef enum crl_turn {
  CRL_TURN_ENTER = 1, /* anew */
  CRL_TURN_ENDED,     /* it has an outcome */
  CRL_TURN_ALONE,     /* compute for itself */
  CRL_TURN_ALONE_HERE /* and on its own thread */
} crl_turn;

/* By what came of waiting on an entry; the outcome may be changed. */
crl_turn crl_run_turn(crl_station *station, const crl_call *call, crl_wait came,
                      const crl_patience *patience, crl_outcome *outcome);
/* How a caller waits, by its policy. */
crl_patience crl_run_patience(const crl_call *call, int64_t deadline);
void crl_run_make_nap(crl_run *r);
/* Before a wait; before its first one a run joins the watch. 1: it does not wait, the look that
 * follows at once is watched. */
int crl_run_begin_wait(crl_run *r);
void crl_run_take_host(crl_run *r, crl_told *told);
void crl_run_give_host(crl_run *r);
/* Before its claim is sent: a later holder of the host's lock will know its lease for one of the
 * dead. */
void crl_run_note_token(crl_run *r);
/* Whether the lease in r->header is of a leader that died with the host's lock, which this run has
 * now; remembers its token. */
int crl_run_finds_dead(crl_run *r);
/* What the flight doesn't need any more. */
void crl_run_let_go(crl_run *r);
/* From now on this thread computes those (NULL: nothing); returns those before. */
const crl_computing *crl_run_inside(const crl_computing *inner);
/* True when that key is computed for the very compute that asks: waiting for it would be waiting
 * for itself. */
int crl_run_recurses(const crl_station *station, const crl_call *call);

/* run_compute.c: begin, compute, made, end; for several runs all begins, one compute, all mades,
 * all ends. */
void crl_run_begin_compute(crl_run *r);
/* This thread is within the user's function for these runs; on its stack, with the attribute
 * cleanup(crl_run_unwind). */
typedef struct crl_inside {
  crl_computing frame;
  const crl_computing *outer;
  int left;
} crl_inside;

void crl_run_go_inside(crl_inside *inside, crl_run *const *runs, size_t count);
/* The function returned. */
void crl_run_come_outside(crl_inside *inside);
/* It did not: its thread was cancelled or ends, or a C++ exception passes. Gives back all that the
 * runs have; they are to be freed. */
void crl_run_unwind(crl_inside *inside);
/* Finishes what was filled, and tells; its lease is extended still, for this may ask the store for
 * marks. */
void crl_run_made(crl_run *r, int64_t ended_us, crl_told *told);
/* Its lease isn't extended any more, unless a large record is to be stored first. */
void crl_run_end_compute(crl_run *r);
/* That has been stored, or will not be. */
void crl_run_drop_lease(crl_run *r);

/* What one ask of the store needs on its way: GET, CLAIM, SETTLE, RELEASE. It must not be moved. */
typedef struct crl_errand {
  corral_op op[2];
  size_t count;     /* of them; 0: nothing is to be performed, `status` tells */
  int64_t limit;    /* by when */
  int status, read; /* of the operations; of reading what they found */
  /* what was read: a payload is to be judged when the marks of its tags were fetched */
  int has_header, has_payload, is_void;
  int fetched; /* what that came to: set by the driver */
  int keeps;   /* a copy is wanted for the near tier */
  uint64_t ticket;
  int64_t looked;
  crl_mark_look all; /* of the second op */
  uint8_t front[CORRAL_FRONT];
} crl_errand;

/* run_store.c: one ask is made, performed by the driver, got, and, when the marks that are wanted
 * were fetched, taken. */
void crl_run_make(crl_run *r, crl_errand *e);
/* The performed ops; what they found belongs to the run now. Lists the marks that are wanted in
 * r->marks. */
void crl_run_got(crl_run *r, crl_errand *e);
/* *told gets the result. 0: the same ask is to be made once more. */
int crl_run_take(crl_run *r, const crl_errand *e, crl_told *told);
/* All that for one run alone. */
void crl_run_perform(crl_run *r, crl_told *told);
/* Remembers what the compute cost. */
void crl_run_note_cost(crl_run *r, int64_t cost_us);
/* Looks at what this process holds for a store that is away: CORRAL_OK or CORRAL_EMISS. */
void crl_run_held(crl_run *r, crl_told *told);
/* Keeps what was made for the store's return. */
void crl_run_hold(crl_run *r);
/* Remembers in this process a failure that the store can't remember. */
void crl_run_hold_verdict(crl_run *r);
/* Where the payload of what was found is in plain: within *bytes, which stays the run's. CORRAL_OK,
 * ENOMEM, ECORRUPT. */
int crl_run_plain(crl_run *r, crl_bytes **bytes, size_t *offset);
/* What the compute is handed of the old value. */
void crl_run_lend_old(crl_run *r);
/* After compute, before its record is made: versions of the tags, order of versions, quotas.
 * CRL_MADE_VALUE: nothing is against storing it. */
crl_made crl_run_stamp(crl_run *r);
/* The op that ends the lease: with a verdict unless retry_ms is 0; `front` is room for it. */
corral_op crl_run_release_op(crl_run *r, uint8_t front[CORRAL_FRONT], int64_t retry_ms,
                             const char *text, int32_t code);

/* run_near.c */
/* Answers from the near tier: 1 and *outcome (with a reference). 0: ask the store; *early: and
 * rebuild the value ahead of time. */
int crl_run_near(crl_station *station, const crl_call *call, int *early, crl_outcome *outcome);
/* Keeps a copy of what a look found. */
void crl_run_keep_near(crl_run *r, const crl_look *look, uint64_t ticket, int64_t looked);
/* The copy of it, for a store that is away; 1 and *copy. */
int crl_run_find_near(crl_run *r, crl_near_copy *copy);

/* run_answer.c */
/* Builds the answer that the flight decided on, counts it, gives it to all who share the flight. */
void crl_run_answer(crl_run *r);
/* The answer, with a reference. */
crl_outcome crl_run_outcome(const crl_run *r);
/* An own outcome of the stale record, for those who come while compute runs. */
void crl_run_lend_stale(crl_run *r);
/* The end of the flight. */
void crl_run_conclude(crl_run *r);
crl_outcome crl_outcome_plain(int status);
/* Gives an outcome, and its reference, to a caller: the status, and on CORRAL_OK *ret, else *error
 * (may be NULL). */
int crl_outcome_deliver(crl_outcome *outcome, corral_error *error, corral_value **ret);

#endif
