/* limiter.c: places to run computes in one process; a queue for each rank. */
#include "election/limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "election/ramp.h"
#include "os/env.h"
#include "base/value.h"
#include "base/check.h"

typedef struct queue {
  crl_place *head, **tail;
} queue;

struct crl_limiter {
  pthread_mutex_t mutex;
  _Atomic int64_t most;     /* INT64_MAX: no limit; changed under the mutex */
  int64_t threads;          /* likewise */
  int64_t own_most;         /* `most` as it was made */
  int64_t inside, threaded; /* places taken, and those on threads of the library */
  int64_t before;           /* of `inside` when `most` was last lowered; 0: no more than that */
  int ramps;
  crl_ramp ramp;
  size_t waiting; /* in all queues */
  uint64_t arrivals;
  queue queues[CRL_RANKS][CRL_PLACE_KINDS]; /* by rank and needs */
};

crl_limiter *crl_limiter_new(int64_t most, int64_t threads, int ramps) {
  crl_limiter *limiter = crl_alloc(sizeof *limiter);
  if (limiter == NULL) return NULL;
  pthread_mutex_init(&limiter->mutex, NULL);
  limiter->own_most = most > 0 ? most : INT64_MAX;
  atomic_init(&limiter->most, limiter->own_most);
  limiter->threads = threads > 0 ? threads : INT64_MAX;
  limiter->ramps = ramps;
  crl_ramp_init(&limiter->ramp, limiter->own_most);
  for (int rank = 0; rank < CRL_RANKS; rank++)
    for (int kind = 0; kind < CRL_PLACE_KINDS; kind++)
      limiter->queues[rank][kind].tail = &limiter->queues[rank][kind].head;
  return limiter;
}

void crl_limiter_free(crl_limiter *limiter) {
  pthread_mutex_destroy(&limiter->mutex);
  free(limiter);
}

int crl_limiter_limits(const crl_limiter *limiter, unsigned needs) {
  int64_t most =
      atomic_load_explicit(&((crl_limiter *)(uintptr_t)limiter)->most, memory_order_relaxed);
  return ((needs & CRL_PLACE_COMPUTE) && (most != INT64_MAX || limiter->ramps)) ||
         ((needs & CRL_PLACE_THREAD) && limiter->threads != INT64_MAX);
}

int crl_limiter_has(const crl_place *place) {
  return atomic_load(&((crl_place *)(uintptr_t)place)->state) >= CRL_PLACE_TAKEN;
}

#ifdef CORRAL_CHECKS
/* Returns how many wait, CRL_CHECK_MOST at the most. */
static size_t check_queue(const queue *q, int rank, unsigned needs) {
  int left = CRL_CHECK_MOST;
  crl_place *const *link = &q->head;
  for (const crl_place *p; (p = *link) != NULL && left > 0; link = &p->next, left--) {
    CRL_MUST(p->link == link, "limiter: a place knows the link to it");
    CRL_MUST(p->state == CRL_PLACE_QUEUED, "limiter: a place in a queue is queued");
    CRL_MUST((int)p->rank == rank && p->needs == needs, "limiter: a place is in its own queue");
    CRL_MUST(p->next == NULL || p->arrival < p->next->arrival,
             "limiter: a queue is in the order of arrival");
  }
  CRL_MUST(left == 0 || link == q->tail, "limiter: the tail of a queue is its end");
  return (size_t)(CRL_CHECK_MOST - left);
}

static void check(const crl_limiter *limiter) {
  size_t waiting = 0;
  CRL_MUST(limiter->inside >= 0 &&
               (limiter->inside <= limiter->most || limiter->inside <= limiter->before),
           "limiter: no more computes at once than `most`");
  CRL_MUST(limiter->threaded >= 0 && limiter->threaded <= limiter->threads,
           "limiter: no more of them on threads than there are");
  CRL_MUST(limiter->ramp.limit > 0 && limiter->ramp.limit <= limiter->most,
           "limiter: the ramp's limit is at least 1, and no more than `most`");
  for (int rank = 0; rank < CRL_RANKS; rank++)
    for (unsigned needs = 0; needs < CRL_PLACE_KINDS; needs++)
      waiting += check_queue(&limiter->queues[rank][needs], rank, needs);
  CRL_MUST(waiting == limiter->waiting || waiting >= CRL_CHECK_MOST,
           "limiter: it counts those who wait");
}
#endif

static void lock(crl_limiter *limiter) {
  pthread_mutex_lock(&limiter->mutex);
  CRL_CHECK(limiter);
}

static void unlock(crl_limiter *limiter) {
  CRL_CHECK(limiter);
  pthread_mutex_unlock(&limiter->mutex);
}

/* ---- under the mutex ----------------------------------------------------------------------- */

static int64_t most_of(crl_limiter *limiter) {
  return limiter->ramps ? crl_ramp_limit(&limiter->ramp, limiter->inside, crl_env_now_us())
                        : limiter->most;
}

static int has_room(crl_limiter *limiter, unsigned needs) {
  return (!(needs & CRL_PLACE_COMPUTE) || limiter->inside < most_of(limiter)) &&
         (!(needs & CRL_PLACE_THREAD) || limiter->threaded < limiter->threads);
}

/* Counts a place taken (1) or given back (-1). */
static void count(crl_limiter *limiter, const crl_place *place, int change) {
  if (place->needs & CRL_PLACE_COMPUTE) limiter->inside += change;
  if (place->needs & CRL_PLACE_THREAD) limiter->threaded += change;
  if (limiter->before > limiter->inside) limiter->before = limiter->inside;
}

static queue *queue_of(crl_limiter *limiter, const crl_place *place) {
  return &limiter->queues[place->rank][place->needs];
}

static void insert(crl_limiter *limiter, crl_place *place, crl_place **link) {
  if (limiter->waiting++ == 0 && limiter->ramps) crl_ramp_queue(&limiter->ramp, crl_env_now_us());
  place->next = *link;
  place->link = link;
  *link = place;
  if (place->next != NULL)
    place->next->link = &place->next;
  else
    queue_of(limiter, place)->tail = &place->next;
  atomic_store(&place->state, CRL_PLACE_QUEUED);
}

static void enqueue(crl_limiter *limiter, crl_place *place) {
  place->arrival = limiter->arrivals++;
  insert(limiter, place, queue_of(limiter, place)->tail);
}

/* By the time of its arrival. */
static void enqueue_again(crl_limiter *limiter, crl_place *place) {
  crl_place **link = &queue_of(limiter, place)->head;
  while (*link != NULL && (*link)->arrival < place->arrival) link = &(*link)->next;
  insert(limiter, place, link);
}

/* The state is left as it is: the owner reads it without the mutex. */
static void unlink_place(crl_limiter *limiter, crl_place *place) {
  if (--limiter->waiting == 0) crl_ramp_queue(&limiter->ramp, INT64_MAX);
  *place->link = place->next;
  if (place->next != NULL)
    place->next->link = place->link;
  else
    queue_of(limiter, place)->tail = place->link;
}

static void dequeue(crl_limiter *limiter, crl_place *place) {
  unlink_place(limiter, place);
  atomic_store(&place->state, CRL_PLACE_NONE);
}

static void take(crl_limiter *limiter, crl_place *place) {
  count(limiter, place, 1);
  atomic_store(&place->state, CRL_PLACE_TAKEN);
}

/* The first or, if `newest`, the last of a queue; NULL: nobody waits. */
static crl_place *end_of(const queue *q, int newest) {
  if (q->head == NULL || !newest) return q->head;
  return (crl_place *)(void *)((char *)q->tail - offsetof(crl_place, next));
}

/* The next of this rank to get a place; NULL: nobody waits, or there is no room. */
static crl_place *next_of(crl_limiter *limiter, int rank) {
  crl_place *next = NULL;
  int newest = limiter->ramps && crl_ramp_newest_first(&limiter->ramp, crl_env_now_us());
  for (unsigned kind = 0; kind < CRL_PLACE_KINDS; kind++) {
    crl_place *end = end_of(&limiter->queues[rank][kind], newest);
    if (end != NULL && has_room(limiter, kind) &&
        (next == NULL || (newest ? end->arrival > next->arrival : end->arrival < next->arrival)))
      next = end;
  }
  return next;
}

/* Gives places to those who wait, most urgent rank first. One whose needs have no room doesn't keep
 * back those who need something else. */
static void admit(crl_limiter *limiter) {
  for (int rank = 0; rank < CRL_RANKS; rank++)
    for (crl_place *place; (place = next_of(limiter, rank)) != NULL;) {
      unlink_place(limiter, place);
      take(limiter, place);
      crl_waiter_wake(place->waiter);
    }
}

/* True when somebody of the same or a more urgent rank waits for what this place takes. */
static int overtakes(const crl_limiter *limiter, const crl_place *place) {
  for (int rank = 0; rank <= (int)place->rank; rank++)
    for (unsigned kind = 0; kind < CRL_PLACE_KINDS; kind++)
      if (limiter->queues[rank][kind].head != NULL && (kind & ~place->needs) == 0) return 1;
  return 0;
}

/* ---- public -------------------------------------------------------------------------------- */

void crl_limiter_cap(crl_limiter *limiter, int64_t most) {
  lock(limiter);
  atomic_store(&limiter->most, most > 0 ? most : limiter->own_most);
  limiter->before = limiter->inside;
  crl_ramp_cap(&limiter->ramp, limiter->most, crl_env_now_us());
  admit(limiter);
  unlock(limiter);
}

int crl_limiter_ask(crl_limiter *limiter, crl_place *place, crl_rank rank, unsigned needs,
                    crl_waiter *waiter) {
  place->rank = rank;
  place->needs = needs;
  place->waiter = waiter;
  lock(limiter);
  int takes = has_room(limiter, needs) && !overtakes(limiter, place);
  if (takes)
    take(limiter, place);
  else
    enqueue(limiter, place);
  unlock(limiter);
  return takes;
}

void crl_limiter_change(crl_limiter *limiter, crl_place *place, unsigned needs) {
  lock(limiter);
  if (atomic_load(&place->state) == CRL_PLACE_QUEUED) {
    unlink_place(limiter, place);
    place->needs = needs;
    enqueue_again(limiter, place);
    admit(limiter);
  }
  unlock(limiter);
}

void crl_limiter_ended(crl_limiter *limiter, int64_t began_us, int64_t ended_us, int failed) {
  if (!limiter->ramps) return;
  lock(limiter);
  if (limiter->inside >= most_of(limiter)) crl_ramp_reached(&limiter->ramp);
  crl_ramp_ended(&limiter->ramp, began_us, ended_us, failed);
  admit(limiter);
  unlock(limiter);
}

void crl_limiter_borrow(crl_limiter *limiter, crl_place *place) {
  lock(limiter);
  if (atomic_load(&place->state) == CRL_PLACE_QUEUED) dequeue(limiter, place);
  if (atomic_load(&place->state) == CRL_PLACE_NONE) atomic_store(&place->state, CRL_PLACE_BORROWED);
  unlock(limiter);
}

void crl_limiter_leave(crl_limiter *limiter, crl_place *place) {
  lock(limiter);
  if (atomic_load(&place->state) == CRL_PLACE_QUEUED) dequeue(limiter, place);
  if (atomic_load(&place->state) == CRL_PLACE_TAKEN) count(limiter, place, -1);
  atomic_store(&place->state, CRL_PLACE_NONE);
  admit(limiter);
  unlock(limiter);
}

int crl_limiter_withdraw(crl_limiter *limiter, crl_place *place) {
  lock(limiter);
  int queued = atomic_load(&place->state) == CRL_PLACE_QUEUED;
  if (queued) dequeue(limiter, place);
  if (queued) admit(limiter);
  unlock(limiter);
  return queued;
}

size_t crl_limiter_inside(crl_limiter *limiter) {
  lock(limiter);
  size_t inside = (size_t)limiter->inside;
  unlock(limiter);
  return inside;
}

size_t crl_limiter_waiting(crl_limiter *limiter, crl_rank rank) {
  size_t waiting = 0;
  lock(limiter);
  for (int kind = 0; kind < CRL_PLACE_KINDS; kind++)
    for (const crl_place *p = limiter->queues[rank][kind].head; p != NULL; p = p->next) waiting++;
  unlock(limiter);
  return waiting;
}
