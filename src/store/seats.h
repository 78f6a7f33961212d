/* seats.h: the handles of a server, and the queue of the callers for them.
 *
 * A caller has a seat, on its own stack. It takes an idle handle, or the right to open one; else
 * its seat is queued, and it sleeps. A leader, the caller with a handle, takes other seats along in
 * one batch, and gives its handle to the head of the queue.
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
  CRL_SEATS_BELLS = 8 /* in turn; one that two batches share wakes some for no reason */
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
  crl_bell bells[CRL_SEATS_BELLS];
  size_t bell;  /* of the next seat that is queued */
  uint32_t bit; /* of the last one */
} crl_seats;

void crl_seats_start(crl_seats *all, int64_t most);
#ifdef CORRAL_CHECKS
void crl_seats_check(const crl_seats *all);
#endif
static inline size_t crl_seats_idle(const crl_seats *all) {
  return atomic_load_explicit(&((crl_seats *)(uintptr_t)all)->idle_count, memory_order_relaxed);
}
/* Takes the handle that was idle for the shortest time, for a caller without a seat: where one is
 * idle, nobody is queued. NULL: none is. */
static inline void *crl_seats_take_idle(crl_seats *all) {
  size_t idle = crl_seats_idle(all);
  if (idle == 0) return NULL;
  atomic_store_explicit(&all->idle_count, --idle, memory_order_relaxed);
  if (idle < all->unused) all->unused = idle;
  return all->idle[idle];
}
/* Takes out the handles that nobody has taken since the last sweep, which the caller is to
 * disconnect; returns how many. `room`: for CRL_SEATS_HANDLES. */
size_t crl_seats_sweep(crl_seats *all, void **room);
/* Gives a handle, or the right to open one, to `own`: 1, it leads. Else `own` is queued: 0. */
int crl_seats_take(crl_seats *all, crl_seat *own);
/* Sleeps until a queued seat leads or was served: 1; or until `until`: 0. Without the latch. */
int crl_seats_sleep(crl_seat *own, int64_t until);
/* Leaves the queue: 1. 0: `own` isn't there any more, and will be woken. */
int crl_seats_leave(crl_seat *own);
/* Takes seats that go along with `own` out of the queue into the list own->next, up to the limits
 * of a batch; those that go alone stay queued. Returns the number of operations of all. */
size_t crl_seats_gather(crl_seat *own);
/* Hands a handle, or the right to open one (NULL), to the head of the queue, and returns that: it
 * is to be called. Without a queue the handle is idle, or the right is given back: NULL. */
crl_seat *crl_seats_pass_on(crl_seats *all, void *handle);
/* Wakes the next leader. NULL: nobody. Without the latch, as what follows. */
void crl_seats_call(crl_seat *next);
/* Tells a seat that was taken along that its results are there. `rung`: the bell of those told
 * before it, NULL at first; returns what the next one is to be told with. The seat is gone. */
crl_bell *crl_seats_tell(crl_seat *seat, crl_bell *rung);
/* After the last seat was told. */
void crl_seats_told(crl_bell *rung);

#endif
