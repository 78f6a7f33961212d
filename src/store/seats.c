/* seats.c: the handles of a server, and the queue of the callers for them. */
#include "store/seats.h"

#include <string.h>

#include "base/check.h"
#include "os/env.h"

enum { BATCH_BYTES = 1 << 20 /* of a combined batch, at the most */ };

void crl_seats_start(crl_seats *all, int64_t most) {
  all->tail = &all->head;
  all->most = most > CRL_SEATS_HANDLES ? CRL_SEATS_HANDLES : (size_t)most;
}

#ifdef CORRAL_CHECKS
void crl_seats_check(const crl_seats *all) {
  crl_seat *const *link = &all->head;
  int left = CRL_CHECK_MOST;
  CRL_MUST(all->idle_count <= all->open_count, "server: only open handles are idle");
  CRL_MUST(all->unused <= all->idle_count, "server: only idle handles are unused");
  CRL_MUST(all->open_count <= all->most, "server: no more handles are open than `most`");
  CRL_MUST(all->head == NULL || (all->idle_count == 0 && all->open_count == all->most),
           "server: a queue only where each handle is in use");
  for (; *link != NULL && left > 0; link = &(*link)->next, left--)
    CRL_MUST((*link)->state == CRL_SEAT_QUEUED && (*link)->seats == all,
             "server: a seat is queued, in its own queue");
  CRL_MUST(left == 0 || all->tail == link, "server: a queue knows its end");
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
}

/* Takes the seat out that *link is the queue's way to. */
static crl_seat *unlink_at(crl_seats *all, crl_seat **link) {
  crl_seat *seat = *link;
  *link = seat->next;
  if (seat->next == NULL) all->tail = link;
  seat->next = NULL;
  return seat;
}

int crl_seats_take(crl_seats *all, crl_seat *own) {
  own->seats = all;
  own->next = NULL;
  own->handle = crl_seats_take_idle(all);
  atomic_store_explicit(&own->state, CRL_SEAT_LEADS, memory_order_relaxed);
  if (own->handle != NULL) return 1;
  if (all->open_count < all->most) {
    all->open_count++;
    return 1;
  }
  atomic_store_explicit(&own->state, CRL_SEAT_QUEUED, memory_order_relaxed);
  push(all, own);
  return 0;
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
  crl_seat **link = &own->seats->head;
  while (*link != NULL && *link != own) link = &(*link)->next;
  return *link != NULL && unlink_at(own->seats, link) == own;
}

size_t crl_seats_gather(crl_seat *own) {
  size_t count = own->count, bytes = own->bytes;
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
  }
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

crl_seat *crl_seats_pass_on(crl_seats *all, void *handle) {
  if (all->head != NULL) {
    crl_seat *next = unlink_at(all, &all->head);
    next->handle = handle;
    return next;
  }
  if (handle == NULL) {
    all->open_count--;
    return NULL;
  }
  size_t idle = crl_seats_idle(all);
  all->idle[idle] = handle;
  atomic_store_explicit(&all->idle_count, idle + 1, memory_order_relaxed);
  return NULL;
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
