/* seats.c: the handles of a server, and the queue of the callers for them. */
#include "store/seats.h"

#include <string.h>

#include "base/check.h"
#include "os/env.h"

enum { BATCH_BYTES = 1 << 20 /* of a combined batch, at the most */ };

void crl_seats_start(crl_seats *all, int64_t most, int grows) {
  all->tail = &all->head;
  all->rests_until = grows ? 0 : INT64_MAX;
  all->most = most > CRL_SEATS_HANDLES ? CRL_SEATS_HANDLES : (size_t)most;
}

#ifdef CORRAL_CHECKS
void crl_seats_check(const crl_seats *all) {
  crl_seat *const *link = &all->head;
  int left = CRL_CHECK_MOST;
  CRL_MUST(all->idle_count <= all->open_count, "server: only open handles are idle");
  CRL_MUST(all->unused <= all->idle_count, "server: only idle handles are unused");
  CRL_MUST(all->open_count <= all->most, "server: no more handles are open than `most`");
  CRL_MUST(all->head == NULL || all->idle_count < all->open_count,
           "server: a queue only where a handle is in use");
  CRL_MUST(all->called <= all->open_count - all->idle_count,
           "server: a leader that was called has a handle in use");
  for (; *link != NULL && left > 0; link = &(*link)->next, left--)
    CRL_MUST((*link)->state == CRL_SEAT_QUEUED && (*link)->seats == all,
             "server: a seat is queued, in its own queue");
  CRL_MUST(left == 0 || all->tail == link, "server: a queue knows its end");
  CRL_MUST(left == 0 || all->queued == (size_t)(CRL_CHECK_MOST - left),
           "server: a queue knows its length");
  for (size_t i = 0; i < all->idle_count; i++)
    for (size_t j = 0; j <= i; j++)
      CRL_MUST(all->idle[i] != NULL && (i == j || all->idle[i] != all->idle[j]),
               "server: a handle is idle once");
}
#endif

static void push(crl_seats *all, crl_seat *own) {
  own->bell = &all->bells[all->bell];
  own->bit = all->bit = all->bit << 1 != 0 ? all->bit << 1 : 1;
  own->next = NULL;
  *all->tail = own;
  all->tail = &own->next;
  all->queued++;
}

/* Takes the seat out that *link is the queue's way to. */
static crl_seat *unlink_at(crl_seats *all, crl_seat **link) {
  crl_seat *seat = *link;
  *link = seat->next;
  if (seat->next == NULL) all->tail = link;
  seat->next = NULL;
  all->queued--;
  return seat;
}

/* The queue's way to `own`; NULL: it isn't queued any more. */
static crl_seat **link_of(const crl_seat *own) {
  crl_seat **link = &own->seats->head;
  while (*link != NULL && *link != own) link = &(*link)->next;
  return *link != NULL ? link : NULL;
}

/* True when a queue with `more` seats rather grows than takes a further handle. */
static int grows(const crl_seats *all, size_t more, int64_t now) {
  size_t used = all->open_count - crl_seats_idle(all), queued = all->queued + more;
  if (now < all->rests_until) return 0;
  if (all->called > 0) return all->head != NULL;
  return used > 0 && all->recent >= CRL_SEATS_MANY && queued * CRL_SEATS_RECENT < all->recent;
}

/* An idle handle, or the right to open one: 1. */
static int take_handle(crl_seats *all, crl_seat *own) {
  own->handle = crl_seats_pop_idle(all);
  if (own->handle != NULL) return 1;
  if (all->open_count == all->most) return 0;
  all->open_count++;
  return 1;
}

int crl_seats_take(crl_seats *all, crl_seat *own) {
  int64_t go_at = own->began + CRL_SEATS_GROW_MS;
  own->seats = all;
  own->next = NULL;
  atomic_store_explicit(&own->state, CRL_SEAT_LEADS, memory_order_relaxed);
  if ((own->alone || !grows(all, 1, own->began)) && take_handle(all, own)) return 1;
  atomic_store_explicit(&own->state, CRL_SEAT_QUEUED, memory_order_relaxed);
  own->go_at = own->alone || go_at < all->rests_until ? 0 : go_at;
  push(all, own);
  return 0;
}

void crl_seats_begin(crl_seat *own) { own->seats->called -= !own->alone; }

int crl_seats_go(crl_seat *own, int64_t now) {
  crl_seats *all = own->seats;
  crl_seat **link = link_of(own);
  if (link == NULL || !take_handle(all, own)) return 0;
  (void)unlink_at(all, link);
  all->called += !own->alone;
  all->rests_until = now + CRL_SEATS_REST_MS;
  atomic_store_explicit(&own->state, CRL_SEAT_LEADS, memory_order_relaxed);
  return 1;
}

int crl_seats_sleep(crl_seat *own, int64_t until) {
  for (;;) {
    uint32_t heard = crl_bell_listen(own->bell);
    if (atomic_load(&own->state) != CRL_SEAT_QUEUED) return 1;
    if (until != INT64_MAX && crl_env_now_ms() >= until) return 0;
    crl_bell_sleep(own->bell, heard, own->bit, until);
  }
}

int crl_seats_leave(crl_seat *own) {
  crl_seat **link = link_of(own);
  return link != NULL && unlink_at(own->seats, link) == own;
}

size_t crl_seats_gather(crl_seat *own) {
  size_t count = own->count, bytes = own->bytes, callers = 1;
  crl_seats *all = own->seats;
  crl_seat **link = &all->head, **end = &own->next;
  if (!own->alone) all->bell = (all->bell + 1) % CRL_SEATS_BELLS;
  while (!own->alone && *link != NULL) {
    crl_seat *other = *link;
    if (other->alone || count + other->count > CRL_SEATS_OPS ||
        bytes + other->bytes > BATCH_BYTES) {
      link = &other->next;
      continue;
    }
    *end = unlink_at(all, link);
    end = &other->next;
    count += other->count;
    bytes += other->bytes;
    callers++;
  }
  crl_seats_note(all, callers);
  return count;
}

size_t crl_seats_sweep(crl_seats *all, void **room) {
  size_t count = all->unused, left = crl_seats_idle(all) - count;
  memcpy(room, all->idle, count * sizeof *room);
  memmove(all->idle, all->idle + count, left * sizeof *room);
  atomic_store_explicit(&all->idle_count, left, memory_order_relaxed);
  all->open_count -= count;
  all->unused = left;
  return count;
}

/* Gives an idle handle, or the right to open one, to the head of a queue; while that grows, to the
 * first seat that it doesn't grow for. Returns the leader, or NULL. A function of its own, since a
 * caller alone has no queue. */
static __attribute__((noinline)) crl_seat *call_next(crl_seats *all) {
  crl_seat **link = &all->head;
  int64_t now = crl_env_now_ms();
  if (grows(all, 0, now))
    while (*link != NULL && now < (*link)->go_at) link = &(*link)->next;
  if (*link == NULL) return NULL;
  crl_seat *next = unlink_at(all, link);
  (void)take_handle(all, next);
  all->called += !next->alone;
  return next;
}

crl_seat *crl_seats_pass_on(crl_seats *all, void *handle) {
  size_t idle = crl_seats_idle(all);
  if (handle == NULL) {
    all->open_count--;
  } else {
    all->idle[idle] = handle;
    atomic_store_explicit(&all->idle_count, idle + 1, memory_order_relaxed);
  }
  return all->head != NULL ? call_next(all) : NULL;
}

void crl_seats_call(crl_seat *next) {
  if (next == NULL) return;
  crl_bell *bell = next->bell;
  uint32_t bit = next->bit;
  atomic_store(&next->state, CRL_SEAT_LEADS);
  crl_bell_ring(bell, bit);
}

crl_bell *crl_seats_tell(crl_seat *seat, crl_bell *rung) {
  crl_bell *bell = seat->bell;
  if (bell != rung) crl_seats_told(rung);
  atomic_store(&seat->state, CRL_SEAT_SERVED);
  return bell;
}

void crl_seats_told(crl_bell *rung) {
  if (rung != NULL) crl_bell_ring(rung, CRL_BELL_ALL);
}
