/* seats.h: the handles of a server, and the queue of the callers for them.
 *
 * A caller has a seat, on its own stack. It takes an idle handle, or the right to open one; else
 * its seat is queued, and it sleeps. A leader, the caller with a handle, takes other seats along in
 * one batch, and gives its handle to the head of the queue.
 *
 * While batches have had many callers of late, CRL_SEATS_MANY on average, a queue rather grows than
 * takes a further handle: until it is as long as they were, or none is under way. While a leader
 * that was called is about to take the queue along, it grows, too. It doesn't grow for longer than
 * CRL_SEATS_GROW_MS: then the batches under way are slow, and for CRL_SEATS_REST_MS no queue grows
 * where a handle is to be had. Seats that go alone take a handle at once. So few callers have a
 * handle each, and many share large batches.
 *
 * The server's latch guards everything, but for seats that are out of the queue: those belong to
 * their leader until their state is set, which publishes what was written into them. So nobody
 * needs the latch to be woken, and nobody is woken under it.
 *
 * All seats of a queue sleep at one bell, so that one system call wakes those that a batch served.
 * A seat has a bit, by which it is called alone when it is to lead. */
#ifndef CRL_SEATS_H
#define CRL_SEATS_H

#include <corral/plugin.h>

#include "os/wait.h"

enum {
  CRL_SEATS_OPS = 256, /* operations of a combined batch, at the most */
  CRL_SEATS_HANDLES = 64,
  CRL_SEATS_BELLS = 8,  /* in turn; one that two batches share wakes some for no reason */
  CRL_SEATS_RECENT = 8, /* batches that count, the later the more */
  CRL_SEATS_MANY = 4 * CRL_SEATS_RECENT, /* 4 callers of a batch, on average */
  CRL_SEATS_GROW_MS = 3,
  CRL_SEATS_REST_MS = 10
};

typedef enum crl_seat_state { CRL_SEAT_QUEUED, CRL_SEAT_LEADS, CRL_SEAT_SERVED } crl_seat_state;

/* A caller's operations and its place in the queue. */
typedef struct crl_seat {
  struct crl_seat *next;
  corral_op *ops;
  size_t count;
  size_t bytes;
  int64_t began;  /* when it was seated, or called to lead */
  int64_t limit;  /* when it ends if nothing moves */
  int64_t latest; /* its caller's deadline: when it ends whatever moves */
  int64_t go_at;  /* QUEUED: until then its queue may grow; 0: it goes whenever a handle is idle */
  struct crl_seats *seats;
  int alone; /* no other seat goes along */
  /* its caller has less time than op_ms: reaching that limit says nothing of the store */
  int hurried;
  _Atomic uint32_t state; /* crl_seat_state */
  int opened;             /* its failure opened the breaker, or made a probe due */
  int cut;                /* its batch failed in the middle of a body */
  void *handle;           /* LEADS: the handle that was handed over; NULL: it opens one */
  crl_bell *bell;         /* rung when a queued seat leads, or was served... */
  uint32_t bit;           /* ...for this bit, or for all */
} crl_seat;

typedef struct crl_seats {
  crl_seat *head, **tail;
  void *idle[CRL_SEATS_HANDLES];
  _Atomic size_t idle_count; /* changed under the latch; anybody may have a glance */
  size_t unused;             /* idle handles, idle[0] and on, that nobody has taken since a sweep */
  size_t open_count, most;
  size_t queued;
  size_t called;       /* leaders out of the queue that haven't begun, and will take others along */
  size_t recent;       /* callers of a batch, on average of late, times CRL_SEATS_RECENT */
  int64_t rests_until; /* no queue grows where a handle is to be had; INT64_MAX: never */
  crl_bell bells[CRL_SEATS_BELLS];
  size_t bell;  /* of the next seat that is queued */
  uint32_t bit; /* of the last one */
} crl_seats;

/* `grows`: a batch takes hardly longer than one operation, so it pays to let a queue grow. */
void crl_seats_start(crl_seats *all, int64_t most, int grows);
#ifdef CORRAL_CHECKS
void crl_seats_check(const crl_seats *all);
#endif
static inline size_t crl_seats_idle(const crl_seats *all) {
  return atomic_load_explicit(&((crl_seats *)(uintptr_t)all)->idle_count, memory_order_relaxed);
}
/* Takes the handle that was idle for the shortest time. NULL: none is. */
static inline void *crl_seats_pop_idle(crl_seats *all) {
  size_t idle = crl_seats_idle(all);
  if (idle == 0) return NULL;
  atomic_store_explicit(&all->idle_count, --idle, memory_order_relaxed);
  if (idle < all->unused) all->unused = idle;
  return all->idle[idle];
}
/* A batch of so many callers is sent. */
static inline void crl_seats_note(crl_seats *all, size_t callers) {
  all->recent += callers - all->recent / CRL_SEATS_RECENT;
}
/* Takes an idle handle for a caller without a seat, unless somebody is queued, or has a reason to
 * be. `passes`: also then. NULL: it needs a seat. */
static inline void *crl_seats_take_idle(crl_seats *all, int passes) {
  if (!passes && (all->head != NULL ||
                  (all->open_count != crl_seats_idle(all) && all->recent >= CRL_SEATS_MANY)))
    return NULL;
  void *handle = crl_seats_pop_idle(all);
  if (handle != NULL) crl_seats_note(all, 1);
  return handle;
}
/* Takes out the handles that nobody has taken since the last sweep, which the caller is to
 * disconnect; returns how many. `room`: for CRL_SEATS_HANDLES. */
size_t crl_seats_sweep(crl_seats *all, void **room);
/* Gives a handle, or the right to open one, to `own`: 1, it leads. Else `own` is queued: 0. */
int crl_seats_take(crl_seats *all, crl_seat *own);
/* Sleeps until a queued seat leads or was served: 1; or until `until`: 0. Without the latch. */
int crl_seats_sleep(crl_seat *own, int64_t until);
/* The time own->go_at is over: takes a handle, or the right to open one, if there is any, and leads
 * as if it had been called: 1. Else, and when `own` isn't queued any more: 0. */
int crl_seats_go(crl_seat *own, int64_t now);
/* A leader that was queued begins: before it gathers. */
void crl_seats_begin(crl_seat *own);
/* Leaves the queue: 1. 0: `own` isn't there any more, and will be woken. */
int crl_seats_leave(crl_seat *own);
/* Takes seats that go along with `own` out of the queue into the list own->next, up to the limits
 * of a batch; those that go alone stay queued. Returns the number of operations of all. */
size_t crl_seats_gather(crl_seat *own);
/* Hands a handle, or the right to open one (NULL), to the head of the queue, and returns that: it
 * is to be called. Without a queue, and for one that grows, the handle is idle, or the right is
 * given back: NULL. */
crl_seat *crl_seats_pass_on(crl_seats *all, void *handle);
/* Wakes the next leader. NULL: nobody. Without the latch, as what follows. */
void crl_seats_call(crl_seat *next);
/* Tells a seat that was taken along that its results are there. `rung`: the bell of those told
 * before it, NULL at first; returns what the next one is to be told with. The seat is gone. */
crl_bell *crl_seats_tell(crl_seat *seat, crl_bell *rung);
/* After the last seat was told. */
void crl_seats_told(crl_bell *rung);

#endif
