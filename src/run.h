/* run.h: a flight under way with all that its driver needs, and what is done with it, by file.
 *
 * drive.c runs the loop, run_store.c does what a flight asks of the store, run_answer.c makes and hands out its
 * answers, run_near.c knows the copies of this process. */
#ifndef CRL_RUN_H
#define CRL_RUN_H

#include "drive.h"
#include "fill.h"
#include "flight.h"
#include "marks.h"

enum { CRL_RUN_DEPTH = 16 };

/* Its caller's, or, once handed over, the workers'. */
typedef struct crl_run {
  crl_job job;
  crl_kept_lease lease;
  crl_station *station;
  crl_entry *entry; /* NULL: nobody can join */
  crl_flight flight;
  corral_policy policy;
  corral_compute *compute;
  void *arg;
  int bound, handed_over;
  corral_ticket *ticket; /* of the caller; NULL: none, or he is gone */
  crl_leaver leaver;
  _Atomic int inside;    /* compute runs on the caller's thread */
  crl_nap nap;
  crl_watcher watcher;
  int naps, watches;     /* nap was made; watcher has joined the watch */
  crl_key key;
  uint64_t hash;     /* crl_key_hash */
  crl_ask ask;
  uint8_t token[CORRAL_TOKEN];
  int has_token;
  int64_t claim_sent, lease_ms;
  crl_bytes *found; /* the record of the last look that had one */
  crl_bytes *plain; /* where its payload is in plain; NULL: not looked yet */
  crl_marks marks;  /* of its tags, as they were at the last GET */
  crl_tags *tags;   /* of its own, behind has_tags */
  int has_tags, is_void; /* it has some; its tags were invalidated */
  uint64_t stored_version;
  const void *validator; /* within found */
  size_t validator_len;
  crl_envelope envelope;
  corral_header header;
  int64_t age_ms;
  corral_fill fill;
  int64_t began;    /* the compute */
  crl_product product;
  corral_error error; /* of the store's last failed operation, or of the compute */
  crl_outcome answer;
  crl_slot slot;
  int has_slot;
  _Atomic int hold;  /* of the host's lock; -1 none. Also given back by the keeper */
  uint64_t self;     /* stands for the key in this station */
  uint64_t ancestors[CRL_RUN_DEPTH]; /* the keys whose computes asked for this one */
  size_t depth;
} crl_run;

/* drive.c */
void crl_run_emit(crl_run *r, corral_event event, const char *detail);

/* run_store.c: one ask each; *told gets the result. */
void crl_run_get(crl_run *r, crl_told *told);
void crl_run_claim(crl_run *r, crl_told *told);
/* Remembers what the compute cost. */
void crl_run_note_cost(crl_run *r, int64_t cost_us);
void crl_run_settle(crl_run *r, crl_told *told);
void crl_run_release(crl_run *r, crl_told *told);
/* Looks at what this process holds for a store that is away: CORRAL_OK or CORRAL_EMISS. */
void crl_run_held(crl_run *r, crl_told *told);
/* Keeps what was made for the store's return. */
void crl_run_hold(crl_run *r);
/* Remembers in this process a failure that the store can't remember. */
void crl_run_hold_verdict(crl_run *r);
/* Where the payload of what was found is in plain: within *bytes, which stays the run's. CORRAL_OK, ENOMEM, ECORRUPT. */
int crl_run_plain(crl_run *r, crl_bytes **bytes, size_t *offset);
/* What the compute is handed of the old value. */
void crl_run_lend_old(crl_run *r);
/* After compute, before its record is made: versions of the tags, order of versions, quotas. CRL_MADE_VALUE: nothing is against storing it. */
crl_made crl_run_stamp(crl_run *r);
/* The op that ends the lease: with a verdict unless retry_ms is 0; `header` is room for it. */
corral_op crl_run_release_op(crl_run *r, uint8_t header[CORRAL_HEADER], int64_t retry_ms, const char *text, int32_t code);

/* run_near.c */
/* Answers from the near tier: 1 and *outcome (with a reference). 0: ask the store; *early: and rebuild the value ahead of time. */
int crl_run_near(crl_station *station, const crl_call *call, int *early, crl_outcome *outcome);
/* Keeps a copy of what a look found. */
void crl_run_keep_near(crl_run *r, const crl_look *look, uint64_t ticket, int64_t looked);
/* The copy of it, for a store that is away; 1 and *copy. */
int crl_run_find_near(crl_run *r, crl_near_copy *copy);

/* run_answer.c */
/* Builds the answer that the flight decided on, counts it, gives it to all who share the flight. */
void crl_run_answer(crl_run *r, const crl_look *last);
/* An own outcome of the stale record, for those who come while compute runs. */
void crl_run_lend_stale(crl_run *r);
/* The end of the flight. */
void crl_run_conclude(crl_run *r);

#endif
