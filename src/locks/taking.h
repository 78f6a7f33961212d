/* taking.h: one taking of a lock: turns, in which it asks the store, and waits between them, for
 * which it needs no thread. take.c has the turns and the blocking call, take_async.c the takings of
 * event loops. */
#ifndef CRL_TAKING_H
#define CRL_TAKING_H

#include "locks/lock.h"
#include "locks/steps.h"

typedef struct crl_taking {
  crl_context *context;
  corral_lock_options options;
  corral_error *error;   /* the caller's; may be NULL */
  crl_context *counters; /* NULL: the lock's own store alone counts fencing tokens */
  crl_hold *lock;
  uint64_t owner;
  int has_ttl;      /* the options name one */
  int adopts;       /* it takes over the hold of a ticket, */
  crl_ticket from;  /* which is this one */
  int again;        /* lock->first is a taking of a hold that the owner has already */
  int64_t deadline; /* crl_env_now_ms; 0: one try */
  _Atomic int left; /* its caller has left it */
  crl_waiter waiter;
  crl_canceller canceller;
  crl_lock_waiter queued;
  crl_watcher watcher;
  int status;       /* of the last request; in the end, of the taking */
  int waits;        /* it has waited */
  int pauses_now;   /* it waits as the first of its queue */
  int64_t until;    /* crl_env_now_ms; end of the wait, unless it is woken */
  int watches;      /* the watcher is joined */
  int told;         /* the store will tell the next change after the last request */
  int queued_there; /* the store's own queue makes it tell; no LOCK_SHOW is needed */
  int free;         /* the last LOCK_SHOW found no holder and no wish */
  int hurried;      /* the last request was repeated at once because of `free` */
  int doubtful;     /* a request may have left a hold, or a place in a queue */
  int foreign;      /* foreign content at the key was reported */
  unsigned pauses, fruitless, backs;
  size_t place;      /* in the store's queue, of which the first is 1; 0: unknown, or none */
  int64_t placed_us; /* crl_env_now_us; when it got there */
  int64_t each_us;   /* time per place, when it last moved up; 0: unknown */
  int64_t woken_at;  /* crl_env_now_ms; the first of the fruitless wakes */
  int64_t other_ms;  /* left_ms of the last refusal: until the lock may be free; -1 unknown */
  int64_t sent;      /* crl_env_boot_ms; the last request */
  uint64_t seen;     /* largest fencing token that was known when it was sent */
  int64_t began_us;  /* crl_env_now_us; the call */
  corral_error detail;
} crl_taking;

/* Begins a taking. Only note, owner and the struct of `user` are copied. `by_call`: the owner is
 * this taking, where the options name none. Not CORRAL_OK: there is none, with detail in *error. */
int crl_taking_init(crl_taking *t, corral *c, const crl_name *name, const corral_lock_options *user,
                    int by_call, corral_error *error);
/* A taking with a deadline (and not `again`) queues before its first turn. From then on it may be
 * woken. */
void crl_taking_queue(crl_taking *t);
/* Leaves the queue; for a taking that had no turn. */
void crl_taking_leave(crl_taking *t);
/* 1: it waits, until t->until or a wake, and then has its next turn. 0: it is over. Asks the
 * store. */
int crl_taking_turn(crl_taking *t);
/* Begins a wait without a turn, for a taking that isn't the first of its queue. */
void crl_taking_wait(crl_taking *t);
/* The wait is over; `woken`: before its time. */
void crl_taking_woken(crl_taking *t, int woken);
/* Ends a taking that is over; nobody wakes it any more. CORRAL_OK: *ret is the hold, to be handed
 * over (crl_lock_hand_over). Asks the store, except after success. */
int crl_taking_end(crl_taking *t, corral_lock **ret);

/* ---- take_async.c: a taking that waits without a thread ------------------------------------- */

typedef struct crl_async_taking {
  crl_taking taking;
  corral_error detail; /* taking.error */
  crl_lock_step step;
  crl_timer timer;
  _Atomic int phase, woken;
  /* It is over, and not used any more: CORRAL_OK and the hold, or the reason in `detail`. Called on
   * a thread of the library, once. */
  void (*ended)(struct crl_async_taking *taking, int status, corral_lock *lock);
} crl_async_taking;

/* After crl_taking_init. CORRAL_OK: `ended` will be called, perhaps before this returns.
 * CORRAL_EIO: there is no thread to be had; the taking is over. */
int crl_async_taking_begin(crl_async_taking *a);
/* Ends its wait. Any thread, as long as the memory is there. */
void crl_async_taking_cancel(crl_async_taking *a);
/* To be called once before the memory is freed, when it is over and can't be cancelled any more. */
void crl_async_taking_clean(crl_async_taking *a);

#endif
