/* async.h: a call of an event loop, from its beginning to its last callback.
 *
 * Mail to the loop moves a call on: it was answered, its entry changed, its alarm rang, or its
 * cancel token was cancelled. A call's entry, callbacks and end are handled on the loop's thread;
 * other threads report to the call under the loop's mutex. Lock order: the mutexes of herds, alarms
 * and cancel tokens, then the loop's, then the scheduler's. */
#ifndef CRL_ASYNC_H
#define CRL_ASYNC_H

#include <corral/loop.h>

#include "api/looks.h"
#include "driver/async.h"

typedef enum crl_async_state {
  CRL_ASYNC_FLIES,  /* its own run, or its function, answers it directly */
  CRL_ASYNC_DUE,    /* it was answered as it began: due.h */
  CRL_ASYNC_LOOKS,  /* its first look is under way: looks.h */
  CRL_ASYNC_JOINED, /* it waits on an entry */
  CRL_ASYNC_ENDED   /* `done` was called, or never will be */
} crl_async_state;

struct corral_async_call {
  crl_caller caller;
  crl_mail mail;
  corral_loop *loop;
  corral_async_call *next, **link;
  corral_async async;
  crl_call asked;
  corral_policy policy; /* of `asked` */
  /* Used by the loop's thread alone, but for the listener. */
  crl_async_state state;
  crl_async_look *look; /* of CRL_ASYNC_LOOKS */
  corral_value *value;  /* of CRL_ASYNC_DUE; NULL: */
  corral_error *error;  /* the reason */
  crl_join join;        /* the run of a call that leads is the scheduler's */
  crl_timer timer;
  crl_canceller canceller;
  crl_waiter waiter;
  /* Shared with other threads, under the loop's mutex. */
  crl_entry *handed; /* to which the call listens since its run began to compute */
  size_t runs;       /* number of runs, looks and functions that may still report to the call */
  crl_run *flying;   /* the run that will answer the call directly */
  crl_outcome *answer;
  int is_answered, is_cancelled;
  int is_work; /* answered without a value, by crl_async_end_work */
  corral_work *work;
  crl_job job;
  crl_place place;              /* of `work` */
  struct crl_async_lock *locks; /* lock_async.c; NULL: the call is of no lock */
  uint8_t key[];
};

/* The callbacks by which a run reports to its call. */
crl_caller crl_async_caller(void);
/* The call that embeds `caller`. */
corral_async_call *crl_async_call(crl_caller *caller);
/* Begins a call, by its first look (NULL: there was none): CORRAL_OK. With any other status, or if
 * its join has ended, with *outcome, the call is to be withdrawn. On the loop's thread, like all
 * below that doesn't say otherwise. */
int crl_async_begin(corral_async_call *call, crl_hit *hit, crl_outcome *outcome);
/* Moves the call on by what was reported to it. */
void crl_async_bring_on(corral_async_call *call);
/* The first look of `call` (a corral_async_call *) has ended; it is freed. Within a dispatch, or
 * for a cancelled call. */
void crl_async_looked(void *call, crl_async_look *look);
/* Leaves the first look, which goes on; `runs` counts it until it has ended. */
void crl_async_leave_look(corral_async_call *call);
/* A call that crl_async_end_work answers, without a key: checks its arguments. CORRAL_OK: it is to
 * be begun. */
int crl_async_new_work(corral_loop *loop, const corral_async *async, corral_async_call **ret,
                       corral_error *error);
/* Returns `status`, by which a call has begun: not CORRAL_OK: it is withdrawn. */
int crl_async_begin_work(corral_async_call *call, int status, corral_async_call **ret,
                         corral_error *error);
/* Answers such a call: nothing of it is used any more. Any thread. */
void crl_async_end_work(corral_async_call *call, int status, const corral_error *error);
/* Gives the hold that was taken to the caller, just before `done`. */
void crl_async_give_lock(struct crl_async_lock *locks);
/* Ends the wait of a taking. */
void crl_async_cancel_lock(struct crl_async_lock *locks);
/* Releases the hold, unless it was given. Any thread. */
void crl_async_free_lock(struct crl_async_lock *locks);
/* Frees a call without any callback. */
void crl_async_withdraw(corral_async_call *call);
/* Ends a wait without a result. */
void crl_async_leave(corral_async_call *call);
/* Gives the call its answer and posts it: takes over the outcome's reference. Without memory the
 * call ends with CORRAL_ENOMEM. Called with the loop's mutex held. */
void crl_async_take_answer(corral_async_call *call, crl_outcome *outcome);
/* Stops listening to the entry that a run handed to the call, and gives up its reference. Any
 * thread. */
void crl_async_refuse(corral_async_call *call, crl_entry *entry);
/* One run or function fewer reports to the call; after the loop's end the last one frees the call.
 * Any thread. */
void crl_async_run_gone(corral_async_call *call);
void crl_async_init_waits(corral_async_call *call);

#endif
