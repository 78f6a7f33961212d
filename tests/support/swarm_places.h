/* swarm_places.h: a simulated world of places to compute, with its own clock: several processes
 * with few places each, many keys whose computes get other keys, a store that is well. Flights and
 * limiters are the real ones; the driver around them is simulated. */
#ifndef TESTS_SWARM_PLACES_H
#define TESTS_SWARM_PLACES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "election/limiter.h"
#include "flight/flight.h"

enum {
  PROCESSES = 4,
  KEYS = 10,
  DEPS = 2, /* other keys that a key's compute gets, at most */
  CALLS = 512,
  EVENTS = 4096,
  LEASE_MS = 100,
  LIMIT_MS = 30000, /* all computes of a world take some 2000 one after the other */
  FAR_MS = 1000000,
  NOBODY = -1
};

/* A deliberate defect in the model, to show that the oracle detects it. */
typedef enum control {
  SOUND,
  CLAIM_BEFORE_PLACE,      /* a lease begins, and isn't extended, while its compute queues */
  CLAIM_KEPT_BEFORE_PLACE, /* likewise, but it is extended */
  NO_BORROWING,            /* a nested get waits for a place of its own */
  NO_LENDING_BY_JOINING,   /* one that joins a flight doesn't lend its place */
  LENDING_TO_THE_HASTY,    /* it lends also to one that only tries for a place */
  FUNCTIONS_LEND_ALL       /* a function lends a place to compute that it hasn't */
} control;

typedef enum kind {
  PLAIN,   /* computes on its caller's thread */
  BOUND,   /* computes on a thread of the library, perhaps behind its answer */
  FUNCTION /* runs on a thread of the library, and gets keys */
} kind;

typedef enum what { ARRIVES = 1, TOLD, WOKEN, GOES_ON } what;

typedef struct event {
  int64_t at;
  uint64_t order;
  what what;
  int call;
  unsigned ask_number;
  crl_ask op; /* arriving at the store */
  crl_told told;
} event;

/* A call and, if it leads, its flight. */
typedef struct call {
  crl_waiter waiter;
  crl_place place;
  crl_flight flight;
  crl_ask ask;
  kind kind;
  int process, key;
  int parent; /* the call whose compute, or function, waits for this one; NOBODY */
  int leader; /* of the flight that it joined; NOBODY: its own */
  int flying, ended, computing, has_slot, asks_slot;
  int steps;     /* of its compute or function: keys got */
  unsigned lent; /* by its parent */
  unsigned ask_number;
} call;

typedef struct process {
  crl_limiter *limiter;
  int64_t most, threads; /* 0: no limit */
  int64_t active;        /* computes that run and don't wait for another key */
  int leads[KEYS];       /* the call that leads the key's flight; NOBODY */
} process;

typedef struct key_state {
  int deps[DEPS];
  int dep_count;
  int is_fresh, is_stale, is_usable; /* is_stale: within swr_ms; is_usable: within sie_ms only */
  int holder;                        /* of the lease; NOBODY */
  int64_t until;                     /* of the lease, unless it is extended */
  int extended;
  int host_holder[PROCESSES / 2]; /* two processes a host */
  unsigned computes;
} key_state;

typedef struct world {
  uint64_t dice, order;
  int64_t now;
  control control;
  event heap[EVENTS];
  size_t events;
  corral_policy policy;
  int ladder;
  process processes[PROCESSES];
  key_state keys[KEYS];
  call calls[CALLS];
  int count;
  unsigned open; /* calls that have not ended */
  unsigned computes, joins, borrowed, queued, functions, refreshes, violations;
  char first[160];
} world;

static world the_world;

/* ---- chance, events ------------------------------------------------------------------------ */

static uint64_t roll(world *w) {
  uint64_t z = (w->dice += UINT64_C(0x9e3779b97f4a7c15));
  return crl_policy_mix(z);
}

static int64_t between(world *w, int64_t least, int64_t most) {
  return least + (int64_t)(roll(w) % (uint64_t)(most - least + 1));
}

static int chance(world *w, int percent) { return between(w, 1, 100) <= percent; }

static void expect(world *w, int holds, const char *promise, int key) {
  if (holds) return;
  if (w->violations++ == 0)
    snprintf(w->first, sizeof w->first, "%s: key %d, at %lld ms", promise, key, (long long)w->now);
}

static int before(const event *a, const event *b) {
  return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void swap(event *a, event *b) {
  event c = *a;
  *a = *b;
  *b = c;
}

static void plan(world *w, event e, const call *c, int64_t in) {
  assert_true(w->events < EVENTS);
  size_t i = w->events++;
  e.at = w->now + in;
  e.order = w->order++;
  e.call = (int)(c - w->calls);
  e.ask_number = c->ask_number;
  w->heap[i] = e;
  for (; i > 0 && before(&w->heap[i], &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
    swap(&w->heap[i], &w->heap[(i - 1) / 2]);
}

static event next_event(world *w) {
  event first = w->heap[0];
  w->heap[0] = w->heap[--w->events];
  for (size_t i = 0;;) {
    size_t least = i, left = 2 * i + 1;
    if (left < w->events && before(&w->heap[left], &w->heap[least])) least = left;
    if (left + 1 < w->events && before(&w->heap[left + 1], &w->heap[least])) least = left + 1;
    if (least == i) return first;
    swap(&w->heap[i], &w->heap[least]);
    i = least;
  }
}

static void tell(world *w, const call *c, int status, int64_t in) {
  plan(w, (event){.what = TOLD, .told = {.status = status}}, c, in);
}

/* ---- places -------------------------------------------------------------------------------- */

static crl_limiter *limiter_of(world *w, const call *c) { return w->processes[c->process].limiter; }

/* Called for each wake by the limiter, under its mutex. */
static void on_wake(crl_waiter *waiter) {
  const call *c = (const call *)(const void *)((char *)waiter - offsetof(call, waiter));
  plan(&the_world, (event){.what = WOKEN}, c, between(&the_world, 0, 2));
}

/* The parts of a place that a compute, or a function, lends to the calls that it waits for. */
static unsigned lends(const world *w, int parent) {
  if (parent == NOBODY) return 0;
  int all = w->calls[parent].kind != FUNCTION || w->control == FUNCTIONS_LEND_ALL;
  return CRL_PLACE_THREAD | (all ? CRL_PLACE_COMPUTE : 0U);
}

static unsigned lent_to(const world *w, const call *c) {
  unsigned lent = c->flight.answered ? 0 : c->lent;
  int joiners = w->control != NO_LENDING_BY_JOINING &&
                (c->flight.until > w->now || w->control == LENDING_TO_THE_HASTY);
  if (w->control == NO_BORROWING) return 0;
  for (int i = 0; joiners && i < w->count; i++) {
    const call *other = &w->calls[i];
    if (!other->ended && other->leader == (int)(c - w->calls)) lent |= other->lent;
  }
  return lent;
}

/* Within a compute its thread goes on with what it gets. */
static unsigned needs(const call *c) {
  int threaded = c->kind == BOUND && (c->lent == 0 || c->flight.answered);
  return CRL_PLACE_COMPUTE | (threaded ? CRL_PLACE_THREAD : 0U);
}

static void ask_place(world *w, call *c) {
  crl_limiter *limiter = limiter_of(w, c);
  unsigned lacks = needs(c) & ~lent_to(w, c);
  int asked = c->asks_slot;
  c->asks_slot = 1;
  if (lacks == 0)
    crl_limiter_borrow(limiter, &c->place);
  else if (c->place.state == CRL_PLACE_NONE)
    crl_limiter_ask(limiter, &c->place, (crl_rank)c->flight.rank, lacks, &c->waiter);
  else if (c->place.needs != lacks)
    crl_limiter_change(limiter, &c->place, lacks);
  w->borrowed += lacks == 0;
  w->queued += !asked && !crl_limiter_has(&c->place);
}

static void leave_place(world *w, call *c) {
  c->has_slot = c->asks_slot = 0;
  crl_limiter_leave(limiter_of(w, c), &c->place);
}

/* The outstanding SLOT, at first and after each wake. */
static void take_slot(world *w, call *c) {
  ask_place(w, c);
  if (crl_limiter_has(&c->place)) {
    c->asks_slot = 0;
    c->has_slot = 1;
    tell(w, c, CORRAL_OK, 0);
  } else if (c->flight.until <= w->now) {
    leave_place(w, c);
    tell(w, c, CORRAL_EBUSY, 0);
  }
}

/* ---- calls --------------------------------------------------------------------------------- */

static void perform(world *w, call *c);
static int begin_call(world *w, kind as, int number, int key, int parent);

/* The caller has its answer; what waited for it goes on. */
static void end_call(world *w, call *c) {
  if (c->ended) return;
  c->ended = 1;
  w->open--;
  if (c->parent != NOBODY)
    plan(w, (event){.what = GOES_ON}, &w->calls[c->parent], between(w, 0, 2));
}

static void answer_joiners(world *w, const call *c) {
  for (int i = 0; i < w->count; i++)
    if (w->calls[i].leader == (int)(c - w->calls)) end_call(w, &w->calls[i]);
}

static void join(world *w, call *c, call *leader) {
  c->leader = (int)(leader - w->calls);
  w->joins++;
  if (leader->flight.answered)
    end_call(w, c);
  else if (c->lent != 0 && leader->asks_slot)
    plan(w, (event){.what = WOKEN}, leader, between(w, 0, 2));
}

static void lead(world *w, call *c) {
  crl_flight_plan flight = {.deadline = FAR_MS,
                            .dice = roll(w),
                            .can_compute = 1,
                            .background = c->kind == BOUND,
                            .limited = crl_limiter_limits(limiter_of(w, c), needs(c)) != 0,
                            .ladder = w->ladder != 0};
  w->processes[c->process].leads[c->key] = (int)(c - w->calls);
  c->flying = 1;
  c->ask = crl_flight_start(&c->flight, &w->policy, &flight);
  perform(w, c);
}

static void begin_function(world *w, call *c) {
  w->functions++;
  if (crl_limiter_ask(limiter_of(w, c), &c->place, CRL_RANK_COLD, CRL_PLACE_THREAD, &c->waiter))
    plan(w, (event){.what = GOES_ON}, c, 0);
}

static int begin_call(world *w, kind as, int number, int key, int parent) {
  assert_true(w->count < CALLS);
  call *c = &w->calls[w->count++];
  *c = (call){.kind = as, .process = number, .key = key, .parent = parent, .leader = NOBODY};
  c->waiter.hook = on_wake;
  c->lent = lends(w, parent);
  w->open++;
  if (as == FUNCTION) {
    begin_function(w, c);
    return w->count - 1;
  }
  int leader = w->processes[number].leads[key];
  if (leader == NOBODY)
    lead(w, c);
  else
    join(w, c, &w->calls[leader]);
  return w->count - 1;
}

/* ---- computes and functions ---------------------------------------------------------------- */

static void be_active(world *w, const call *c) {
  process *p = &w->processes[c->process];
  p->active++;
  expect(w, p->most == 0 || p->active <= p->most, "3: more computes at once than places", c->key);
}

static void begin_compute(world *w, call *c) {
  key_state *k = &w->keys[c->key];
  w->computes++;
  k->computes++;
  expect(w, k->computes == 1, "2: a key was computed again while the store was well", c->key);
  if (k->holder == (int)(c - w->calls)) k->extended = 1;
  c->computing = 1;
  be_active(w, c);
  plan(w, (event){.what = GOES_ON}, c, between(w, 1, 20));
}

static void end_compute(world *w, call *c) {
  event e = {.what = TOLD, .told = {.made = CRL_MADE_VALUE}};
  c->computing = 0;
  plan(w, e, c, 0);
}

/* The next key of a compute, after its caller's last one was answered or some time has passed. */
static void go_on_computing(world *w, call *c) {
  const key_state *k = &w->keys[c->key];
  process *p = &w->processes[c->process];
  int waited = c->steps % 2, dep = c->steps / 2;
  if (waited) {
    be_active(w, c);
    plan(w, (event){.what = GOES_ON}, c, between(w, 1, 20));
  } else {
    p->active--;
    if (dep < k->dep_count)
      begin_call(w, chance(w, 50) ? BOUND : PLAIN, c->process, k->deps[dep], (int)(c - w->calls));
    else
      end_compute(w, c);
  }
  c->steps++;
}

static void go_on(world *w, call *c) {
  if (c->kind != FUNCTION) {
    go_on_computing(w, c);
  } else if (c->steps++ < DEPS) {
    begin_call(w, chance(w, 50) ? BOUND : PLAIN, c->process, (int)between(w, 0, KEYS - 1),
               (int)(c - w->calls));
  } else {
    crl_limiter_leave(limiter_of(w, c), &c->place);
    end_call(w, c);
  }
}

/* ---- asks ---------------------------------------------------------------------------------- */

static int *host_of(world *w, const call *c) {
  return &w->keys[c->key].host_holder[c->process / 2];
}

static void ask_host(world *w, call *c) {
  int *holder = host_of(w, c), self = (int)(c - w->calls);
  if (*holder == NOBODY) *holder = self;
  tell(w, c, *holder == self ? CORRAL_OK : CORRAL_EBUSY, 0);
}

static int queues_with_its_lease(const world *w) {
  return w->control == CLAIM_BEFORE_PLACE || w->control == CLAIM_KEPT_BEFORE_PLACE;
}

/* In those control runs the place is asked for here. */
static void compute(world *w, call *c) {
  if (queues_with_its_lease(w) && c->flight.plan.limited && !c->has_slot) {
    ask_place(w, c);
    key_state *k = &w->keys[c->key];
    if (w->control == CLAIM_KEPT_BEFORE_PLACE && k->holder == (int)(c - w->calls)) k->extended = 1;
    if (!crl_limiter_has(&c->place)) return;
    c->asks_slot = 0;
    c->has_slot = 1;
  }
  begin_compute(w, c);
}

static void land(world *w, call *c) {
  c->flying = 0;
  w->processes[c->process].leads[c->key] = NOBODY;
  end_call(w, c);
}

/* The caller of a bound compute doesn't wait for what comes behind its answer. */
static void answer(world *w, call *c) {
  expect(w, c->flight.answer != CRL_ANSWER_ERROR, "1: a call failed", c->key);
  answer_joiners(w, c);
  if (c->kind == BOUND) end_call(w, c);
  w->refreshes += c->flight.refresh;
  tell(w, c, CORRAL_OK, 0);
}

static void perform(world *w, call *c) {
  c->ask_number++;
  switch (c->ask) {
    case CRL_ASK_GET:
    case CRL_ASK_CLAIM:
    case CRL_ASK_SETTLE:
    case CRL_ASK_RELEASE:
      plan(w, (event){.what = ARRIVES, .op = c->ask}, c, between(w, 0, 4));
      break;
    case CRL_ASK_WAIT:
      tell(w, c, CORRAL_OK, c->flight.at_host ? 1 : between(w, 0, c->flight.until - w->now));
      break;
    case CRL_ASK_SLOT:
      if (queues_with_its_lease(w))
        tell(w, c, CORRAL_OK, 0);
      else
        take_slot(w, c);
      break;
    case CRL_ASK_HOST: ask_host(w, c); break;
    case CRL_ASK_COMPUTE: compute(w, c); break;
    case CRL_ASK_ANSWER: answer(w, c); break;
    case CRL_ASK_PUBLISH: tell(w, c, CORRAL_OK, 0); break;
    case CRL_ASK_OUTBOX: fail_msg("an ask that this world does not know"); break;
    case CRL_ASK_DONE: land(w, c); break;
  }
}

static void step(world *w, call *c, crl_told *told) {
  told->now = w->now;
  c->ask = crl_flight_step(&c->flight, told);
  if (c->has_slot && !c->flight.has_slot) leave_place(w, c);
  if (!c->flight.on_host && *host_of(w, c) == (int)(c - w->calls)) *host_of(w, c) = NOBODY;
  perform(w, c);
}

/* ---- the store ----------------------------------------------------------------------------- */

static int is_leased(const world *w, const key_state *k) {
  return k->holder != NOBODY && (k->extended || w->now < k->until);
}

static int claim(world *w, key_state *k, int self) {
  if (is_leased(w, k) && k->holder != self) return CORRAL_EBUSY;
  k->holder = self;
  k->until = w->now + LEASE_MS;
  k->extended = 0;
  return CORRAL_OK;
}

static int end_lease(key_state *k, int self, int fills) {
  if (k->holder != self) return CORRAL_ELOST;
  k->holder = NOBODY;
  k->extended = 0;
  if (fills) k->is_fresh = 1;
  return CORRAL_OK;
}

static crl_look look_of(const world *w, const key_state *k, int self) {
  crl_look look = {.has_value = k->is_fresh || k->is_stale || k->is_usable};
  if (k->is_fresh)
    look.lives.fresh = FAR_MS;
  else if (k->is_stale)
    look.lives.swr = FAR_MS;
  if (k->is_fresh || k->is_stale || k->is_usable) look.lives.sie = FAR_MS;
  if (is_leased(w, k) && k->holder != self)
    look.lease_left = k->extended ? LEASE_MS : k->until - w->now;
  return look;
}

static void on_arrives(world *w, const event *e) {
  const call *c = &w->calls[e->call];
  key_state *k = &w->keys[c->key];
  event reply = {.what = TOLD};
  if (e->op == CRL_ASK_CLAIM) reply.told.status = claim(w, k, e->call);
  if (e->op == CRL_ASK_SETTLE) reply.told.status = end_lease(k, e->call, 1);
  if (e->op == CRL_ASK_RELEASE) reply.told.status = end_lease(k, e->call, 0);
  reply.told.look = look_of(w, k, e->call);
  plan(w, reply, c, between(w, 0, 4));
}

static void on_woken(world *w, call *c) {
  if (c->kind == FUNCTION)
    go_on(w, c);
  else if (c->asks_slot && c->ask == CRL_ASK_SLOT)
    take_slot(w, c);
  else if (c->asks_slot && c->ask == CRL_ASK_COMPUTE)
    compute(w, c);
}

#endif
