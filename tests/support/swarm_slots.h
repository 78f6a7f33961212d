/* swarm_slots.h: the cluster mode of a world. The store has several servers, one of which has the
 * key's slot, with a replica that follows late. Slots move, with and without word of it; replicas
 * are promoted that lack the last changes; invalidations are confirmed by the replica. Each process
 * has a near tier, whose copies a watch tells of, and a map of its own, which it learns late. */
#ifndef TESTS_SWARM_SLOTS_H
#define TESTS_SWARM_SLOTS_H

#include "near/near.h"
#include "os/readers.h"
#include "store/watch.h"
#include "swarm_world.h"

enum { NEAR_HASH = 7, NEAR_BYTES = 1 << 16 };

/* Near tiers of the processes; allocated apart from the world. */
static crl_near *near_of[PROCESSES];

static int has_slots(const world *w) { return w->slots.server > 0; }

/* The replica takes over all changes so far. In calm it is never far behind. */
static void on_replicates(world *w) {
  event again = {.what = REPLICATES};
  w->slots.replica = w->primary;
  w->slots.replicated = w->slots.changes;
  again.at = w->now + (mishap(w, OUTSIDE, 10) ? between(w, 40, 200) : between(w, 1, 15));
  if (w->now < 2 * WORLD_MS) plan_event(w, &again);
}

/* ---- the watch ------------------------------------------------------------------------------ */

/* Has a process told, in the order of its connection, that the key has changed. */
static void push(world *w, int number, int64_t within_ms) {
  process *of = &w->processes[number];
  event e = {
      .at = w->now + between(w, 0, within_ms), .what = PUSHED, .process = number, .life = of->life};
  if (e.at < of->heard_at) e.at = of->heard_at;
  of->heard_at = e.at;
  of->registered = 0;
  plan_event(w, &e);
}

static void on_pushed(world *w, event *e) {
  const process *of = &w->processes[e->process];
  if (of->life != e->life) return;
  e->at = of->paused_until;
  if (of->paused_until > w->now)
    plan_event(w, e);
  else
    crl_near_drop(near_of[e->process], NEAR_HASH);
}

/* The record has changed. One report uses a registration up. */
static void tell_watches(world *w) {
  w->slots.changes++;
  for (int i = 0; i < PROCESSES && has_slots(w); i++)
    if (w->processes[i].registered == w->slots.server) push(w, i, PUSH_MS);
}

/* The key of a copy is registered where the process believes it to be. */
static void watch_copy(world *w, int number) {
  const process *of = &w->processes[number];
  event e = {.at = w->now + way(w),
             .what = REGISTERS,
             .process = number,
             .life = of->life,
             .server = of->server,
             .map = of->map};
  if (!of->away && !mishap(w, number, 4)) plan_event(w, &e);
}

static void on_registers(world *w, event *e) {
  process *of = &w->processes[e->process];
  if (of->life != e->life || of->away || e->server != w->slots.server) return;
  of->registered = e->server;
  e->print =
      crl_watch_print(w->primary.record_len > 0 ? w->primary.record : NULL, w->primary.record_len);
  e->what = REGISTERED;
  e->at = w->now + way(w);
  if (e->at < of->heard_at) e->at = of->heard_at;
  of->heard_at = e->at;
  plan_event(w, e);
}

/* A slot that has moved since isn't watched any more, whoever had registered it. */
static void on_registered(world *w, event *e) {
  const process *of = &w->processes[e->process];
  if (of->life != e->life) return;
  e->at = of->paused_until;
  if (of->paused_until > w->now)
    plan_event(w, e);
  else if (e->map == of->map)
    crl_near_confirm(near_of[e->process], NEAR_HASH, e->print);
  else
    crl_near_drop(near_of[e->process], NEAR_HASH);
}

/* ---- the map -------------------------------------------------------------------------------- */

/* Copies of a slot that has another server are dropped: the former one tells nothing of it. What
 * the process holds for the slot is repeated to its new server. */
static void learn(world *w, int number) {
  process *of = &w->processes[number];
  if (of->server == w->slots.server) return;
  of->server = w->slots.server;
  of->map++;
  if (w->control != COPIES_OUTLIVE_MOVES) crl_near_drop(near_of[number], NEAR_HASH);
  plan_repetition(w, number);
}

/* A process that asks for nothing learns the map, too. */
static void on_asks_map(world *w, event *e) {
  const process *of = &w->processes[e->process];
  int64_t until = of->paused_until > w->stalled_until ? of->paused_until : w->stalled_until;
  if (until <= w->now && !of->away) learn(w, e->process);
  e->at = (until > w->now ? until : w->now) + between(w, MAP_MS / 2, MAP_MS);
  if (until > w->now) e->at = until;
  if (w->now < 2 * WORLD_MS) plan_event(w, e);
}

/* True for a message to a server that hasn't the slot any more. That one does nothing but name the
 * other, to which the process sends it; a dead process sends nothing. */
static int astray(world *w, event *e, int number, int lives) {
  if (!has_slots(w) || number == OUTSIDE || e->server == w->slots.server) return 0;
  int64_t until = w->processes[number].paused_until, at = w->now + between(w, 1, 4);
  if (!lives) return 1;
  w->slots.hops++;
  if (until <= w->now) learn(w, number);
  e->server = w->slots.server;
  e->at = until > at ? until : at;
  plan_event(w, e);
  return 1;
}

/* ---- moves and failovers -------------------------------------------------------------------- */

/* To a server that hasn't had it: one that loses it and has it again between two looks at the map
 * isn't in this model. */
static void give_slot(world *w) {
  w->slots.server++;
  w->slots.epoch++;
}

/* The record goes to another server, whose replica has nothing yet. The former server tells that,
 * or is silent. */
static void on_slot_moves(world *w) {
  event again = {.at = w->now + between(w, 50, 700), .what = SLOT_MOVES};
  if (faults_ended(w)) return;
  for (int i = 0; i < PROCESSES; i++)
    if (w->processes[i].registered == w->slots.server && chance(w, 30)) push(w, i, PUSH_MS);
  w->slots.replica.record_len = 0;
  w->slots.replica.held = 0;
  w->slots.replica.verdict_until = 0;
  w->slots.replica.reached = w->primary.reached; /* it has no older value */
  give_slot(w);
  w->slots.moves++;
  if (w->now < WORLD_MS) plan_event(w, &again);
}

/* The replica takes over as it is. The connections to the former primary end, or fall silent. */
static void on_fails_over(world *w) {
  event again = {.at = w->now + between(w, 50, 700), .what = FAILS_OVER};
  if (faults_ended(w)) return;
  w->slots.lost += w->slots.changes > w->slots.replicated ? 1 : 0;
  w->primary = w->slots.replica;
  for (int i = 0; i < PROCESSES; i++)
    if (w->processes[i].registered == w->slots.server && chance(w, 30)) push(w, i, SILENCE_MS);
  give_slot(w);
  w->slots.changes = w->slots.replicated;
  w->slots.failovers++;
  if (w->now < WORLD_MS) plan_event(w, &again);
}

/* ---- confirmation --------------------------------------------------------------------------- */

/* Sends the reply to a change. An invalidation waits for the replica before. */
static void plan_confirmed(world *w, const event *reply) {
  event e = *reply;
  if (has_slots(w) && e.verb == CORRAL_VERB_INVALIDATE &&
      w->control != INVALIDATIONS_ARE_NOT_CONFIRMED) {
    e.then = e.what;
    e.what = CONFIRMS;
    e.change = w->slots.changes;
    e.epoch = w->slots.epoch;
    e.sent = w->now;
  }
  plan_event(w, &e);
}

static void on_confirms(world *w, event *e) {
  int is_over = e->epoch != w->slots.epoch || w->now >= e->sent + OP_MS;
  int is_confirmed = e->epoch == w->slots.epoch && w->slots.replicated >= e->change;
  e->at = w->now;
  if (!is_confirmed && !is_over) {
    e->at = w->now + 1;
  } else {
    e->what = e->then;
    if (!is_confirmed) e->told.status = CORRAL_EINDOUBT;
    w->slots.confirmed += is_confirmed ? 1 : 0;
    w->slots.doubted += is_confirmed ? 0 : 1;
  }
  plan_event(w, e);
}

/* ---- near copies ---------------------------------------------------------------------------- */

static void raise_floor(world *w, uint64_t version) {
  slots *s = &w->slots;
  if (version <= w->floor) return;
  w->floor = version;
  if (!has_slots(w)) return;
  assert_true(s->floors < FLOORS);
  s->floor_at[s->floors] = w->now;
  s->floor[s->floors++] = version;
}

static uint64_t floor_at(const world *w, int64_t at) {
  size_t i = w->slots.floors;
  while (i > 0 && w->slots.floor_at[i - 1] > at) i--;
  return i > 0 ? w->slots.floor[i - 1] : 0;
}

static void keep_copy(world *w, const scheduler *p, const event *e) {
  int number = (int)(p - w->pilots) / FLIGHTS;
  if (!has_slots(w) || w->tagged || e->told.look.lives.fresh <= 0) return;
  crl_near_copy copy = {.bytes = crl_bytes_copy(&e->read, sizeof e->read),
                        .size = sizeof e->read,
                        .print = e->print,
                        .kind = CRL_KIND_VALUE,
                        .looked = p->looked,
                        .made = p->looked,
                        .ttl = w->policy.ttl_ms,
                        .fresh_until = p->looked + e->told.look.lives.fresh};
  if (crl_near_put(near_of[number], NEAR_HASH, key, sizeof key, &copy, p->near_epoch))
    watch_copy(w, number);
  crl_bytes_unref(copy.bytes);
}

/* A copy may be one push late; where nothing tells of a move, as late as the next look at the
 * map. */
static void check_copy(world *w, int number, uint64_t read) {
  const process *of = &w->processes[number];
  int64_t late = w->now - NEAR_LATE_MS;
  expect(w, read >= of->heard, "2: a near copy was served that its process had invalidated");
  if (of->paused_until > late || w->stalled_until > late) return;
  expect(w, read >= floor_at(w, late), "2: a near copy outlived an invalidation");
}

/* True when a call is answered by a watched copy. */
static int is_near(world *w, int number) {
  uint64_t read = 0;
  int hears = 0;
  if (!has_slots(w) || !chance(w, 60) || !crl_readers_enter()) return 0;
  const crl_near_copy *copy = crl_near_look(near_of[number], NEAR_HASH, key, sizeof key, w->now);
  if (copy != NULL && copy->confirmed && copy->fresh_until > w->now) {
    memcpy(&read, copy->data, sizeof read);
    hears = 1;
  }
  crl_readers_leave();
  if (hears) check_copy(w, number, read);
  w->slots.near += (unsigned)hears;
  return hears;
}

/* ---- begin and end -------------------------------------------------------------------------- */

/* A process that has just begun knows the map. */
static void begin_map(world *w, int number) {
  process *of = &w->processes[number];
  of->server = w->slots.server;
  of->registered = 0;
  if (near_of[number] != NULL) crl_near_clear(near_of[number]);
}

static void begin_slots(world *w) {
  static const what first[] = {REPLICATES, SLOT_MOVES, FAILS_OVER};
  w->slots.server = 1;
  for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
    event e = {.at = w->now + (i > 0 ? between(w, 1, 300) : 0), .what = first[i]};
    plan_event(w, &e);
  }
  for (int i = 0; i < PROCESSES; i++) {
    event asks = {.at = w->now + between(w, 1, MAP_MS), .what = ASKS_MAP, .process = i};
    near_of[i] = crl_near_new(NEAR_BYTES);
    assert_non_null(near_of[i]);
    begin_map(w, i);
    plan_event(w, &asks);
  }
}

static void end_slots(void) {
  for (int i = 0; i < PROCESSES; i++) {
    if (near_of[i] != NULL) crl_near_free(near_of[i]);
    near_of[i] = NULL;
  }
}

#endif
