/* swarm_replay.h: fills and invalidations that a process holds while it is cut off from the store,
 * and their replay afterwards. */
#ifndef TESTS_SWARM_REPLAY_H
#define TESTS_SWARM_REPLAY_H

#include "swarm_store.h"

static void raise_to(uint64_t *floor, uint64_t version) {
  if (version > *floor) *floor = version;
}

static process *process_of(world *w, const scheduler *p) {
  return &w->processes[(p - w->pilots) / FLIGHTS];
}

static crl_outbox *held_of(const world *w, const scheduler *p) {
  return held_by[(p - w->pilots) / FLIGHTS];
}

static int any_fill(void *arg, const crl_bytes *record) { return arg == NULL && record != NULL; }

static int any_key(void *arg, const void *its_key, size_t len) {
  return arg == NULL && its_key != NULL && len > 0;
}

/* The process holds the scheduler's product, which isn't in the store. */
static void hold(world *w, const scheduler *p, uint64_t version) {
  uint8_t *copy = malloc(p->product_len);
  memcpy(copy, p->product, p->product_len);
  crl_bytes *record = crl_bytes_wrap(copy, p->product_len, free, copy);
  if (w->control == REPLAY_IGNORES_VERSIONS && version == 0) version = 1;
  crl_outbox_fill fill = {.record = record,
                          .version = version,
                          .hard_ttl = p->hard_ttl,
                          .began = p->began,
                          .made = w->now};
  crl_outbox_keep(held_of(w, p), key, sizeof key, &fill);
  crl_bytes_unref(record);
}

/* ---- changes of the origin ----------------------------------------------------------------- */

/* The origin changes. Mostly a change of the store follows, by a process of the world or from
 * outside. In calm there is time for a fill between two changes. */
static void on_change(world *w) {
  event again = {.at = w->now + between(w, faults_ended(w) ? 200 : 20, 400), .what = CHANGE};
  event e = {
      .what = CHANGES, .process = OUTSIDE, .verb = CORRAL_VERB_INVALIDATE, .read = ++w->version};
  if (w->now < WORLD_MS) plan_event(w, &again);
  if (chance(w, 40)) return;
  if (chance(w, 60)) e.process = (int)between(w, 0, PROCESSES - 1);
  if (faults_ended(w) && !is_core(e.process)) e.process = OUTSIDE;
  if (chance(w, 25))
    e.verb = CORRAL_VERB_EXPIRE;
  else if (w->tagged && chance(w, 40))
    e.thing = THE_TAG;
  e.reply_in = between(w, 0, 10);
  e.at = w->now + between(w, 0, 10);
  process *from = e.process == OUTSIDE ? NULL : &w->processes[e.process];
  if (from != NULL) e.life = from->life;
  if (from != NULL) e.server = from->server;
  event lost = e;
  lost.what = CHANGED;
  lost.at = w->now + OP_MS;
  lost.told.status = CORRAL_EINDOUBT;
  if (from != NULL && from->away) {
    lost.at = w->now + 1;
    lost.told.status = CORRAL_EUNAVAILABLE;
    plan_event(w, &lost);
    return;
  }
  if (from != NULL && mishap(w, e.process, 8)) {
    e.reply_in = -1;
    e.at += between(w, 0, 200);
    plan_event(w, &lost);
    if (chance(w, 50)) return;
  }
  plan_event(w, &e);
}

/* Returns the status. */
static int change_there(world *w, event *e) {
  corral_op op;
  if (e->verb == CORRAL_VERB_INVALIDATE) raise_to(&w->primary.reached, e->read);
  if (e->thing == THE_KEY) {
    at_store(w, e, &op);
    return op.status;
  }
  w->primary.tag_version =
      (tag_version){.there = 1, .changed = 1, .hard = roll(w) | 1, .since = w->now};
  w->slots.changes++;
  return CORRAL_OK;
}

static void on_changes(world *w, event *e) {
  int lives = e->process == OUTSIDE || w->processes[e->process].life == e->life;
  if (astray(w, e, e->process, lives)) return;
  change_there(w, e);
  if (e->reply_in < 0) return;
  event reply = *e;
  reply.what = CHANGED;
  reply.at = w->now + e->reply_in;
  plan_confirmed(w, &reply);
}

/* Changes within the process when its own change returns, as corral_invalidate, corral_expire and
 * corral_invalidate_tag make them. */
static void settle_at_home(world *w, const event *e) {
  process *from = &w->processes[e->process];
  crl_outbox *held = held_by[e->process];
  int failed = e->told.status != CORRAL_OK, invalidates = e->verb == CORRAL_VERB_INVALIDATE;
  if (e->thing == THE_TAG)
    crl_outbox_drop_if(held, w->now, any_fill, NULL);
  else if (invalidates && !failed)
    crl_outbox_invalidated(held, key, sizeof key, w->now);
  else
    crl_outbox_drop_fill(held, key, sizeof key);
  if (has_slots(w)) crl_near_drop(near_of[e->process], NEAR_HASH);
  for (int i = 0; i < FLIGHTS; i++)
    w->pilots[e->process * FLIGHTS + i].detached = w->control != JOINS_WHAT_IS_DETACHED;
  if (!invalidates) return;
  if (!failed) raise_to(&from->heard, e->read);
  raise_to(&from->own_change, e->read);
  if (!failed) return;
  raise_to(&from->wished[e->thing], e->read);
  if (e->thing == THE_TAG)
    crl_outbox_invalidate(held, tag_key, sizeof tag_key, NULL, w->now);
  else
    crl_outbox_invalidate(held, key, sizeof key, NULL, w->now);
  int is_unheard = e->then == 0; /* it isn't only unconfirmed */
  if (is_unheard && !from->away) plan_repetition(w, e->process);
}

/* Nothing confirms an expiry: a failover may undo it. */
static void on_changed(world *w, const event *e) {
  if (e->told.status == CORRAL_OK && e->verb == CORRAL_VERB_INVALIDATE) raise_floor(w, e->read);
  if (e->told.status == CORRAL_OK && e->verb == CORRAL_VERB_EXPIRE && !has_slots(w))
    raise_to(&w->expire_floor, e->read);
  if (e->process != OUTSIDE && w->processes[e->process].life == e->life) settle_at_home(w, e);
}

/* ---- partitions ---------------------------------------------------------------------------- */

static void forget_replays(world *w, int number) {
  process *of = &w->processes[number];
  for (int i = 0; i < REPLAYS; i++) crl_outbox_entry_clean(&replays[number][i].entry);
  of->pending = of->failed = of->rounds = of->away = 0;
}

static void heal_at(world *w, int number, int64_t at) {
  event heal = {.at = at, .what = HEAL, .process = number, .life = w->processes[number].life};
  plan_event(w, &heal);
}

static void on_partition(world *w) {
  int number = (int)between(w, 0, PROCESSES - 1);
  event again = {.at = w->now + between(w, 50, 600), .what = PARTITION};
  if (faults_ended(w)) return;
  if (w->now < WORLD_MS) plan_event(w, &again);
  if (w->processes[number].away) return;
  w->processes[number].away = 1;
  w->processes[number].rounds = 0;
  if (has_slots(w)) push(w, number, SILENCE_MS); /* its watch ends */
  w->outages++;
  heal_at(w, number, w->now + between(w, 5, 700));
}

/* Sends one verb of a replay. */
static void send_replay(world *w, int number, int entry, corral_verb verb) {
  replay *r = &replays[number][entry];
  const crl_outbox_fill *fill = &r->entry.fill;
  event e = {.what = REPLAYS_AT,
             .process = number,
             .life = w->processes[number].life,
             .entry = entry,
             .verb = verb,
             .lease_ms = LEASE_MS,
             .server = w->processes[number].server,
             .read = r->read,
             .reply_in = between(w, 0, 6),
             .at = w->now + between(w, 0, 6)};
  memcpy(e.token, r->token, CORRAL_TOKEN);
  if (r->entry.key_len == sizeof tag_key && memcmp(r->entry.key, tag_key, sizeof tag_key) == 0)
    e.thing = THE_TAG;
  if (verb == CORRAL_VERB_SETTLE) {
    e.record_len = fill->record->size;
    memcpy(e.record, fill->record->data, e.record_len);
    e.ttl_ms = fill->hard_ttl - (w->now - fill->made);
  }
  if (mishap(w, number, 6)) {
    event lost = e;
    lost.what = REPLAYED;
    lost.at = w->now + OP_MS;
    lost.told.status = CORRAL_EINDOUBT;
    plan_event(w, &lost);
    e.reply_in = -1;
    e.at += between(w, 0, 200);
    if (chance(w, 50)) return;
  }
  plan_event(w, &e);
}

static uint64_t read_by(const crl_outbox_entry *entry) {
  return crl_record_take(entry->fill.record->data + CRL_PAYLOAD_AT + 8, 8);
}

/* Begins to replay the next batch; when nothing is held, the process may use the store again. */
static void begin_round(world *w, int number) {
  process *of = &w->processes[number];
  crl_outbox_entry entries[REPLAYS];
  size_t count = of->rounds++ < 8
                     ? crl_outbox_replay(held_by[number], w->now, any_key, NULL, entries, REPLAYS)
                     : 0;
  of->away = count > 0;
  of->pending = (int)count;
  of->failed = 0;
  for (size_t i = 0; i < count; i++) {
    replay *r = &replays[number][i];
    *r = (replay){.entry = entries[i]};
    crl_record_put(r->token, roll(w) | 1, 8);
    int is_tag = entries[i].key_len == sizeof tag_key &&
                 memcmp(entries[i].key, tag_key, sizeof tag_key) == 0;
    r->read =
        entries[i].invalidates ? of->wished[is_tag ? THE_TAG : THE_KEY] : read_by(&entries[i]);
    send_replay(w, number, (int)i,
                entries[i].invalidates ? CORRAL_VERB_INVALIDATE : CORRAL_VERB_CLAIM);
  }
}

static void on_heal(world *w, event *e) {
  process *of = &w->processes[e->process];
  if (of->life != e->life || w->control == PARTITIONS_NEVER_HEAL) return;
  if (e->if_there && (of->away || of->pending > 0)) return;
  if (e->if_there) of->rounds = 0;
  e->at = of->paused_until;
  if (of->paused_until > w->now)
    plan_event(w, e);
  else
    begin_round(w, e->process);
}

/* The library's rule (crl_replay_is_newer) after a granted CLAIM: may the fill be settled? */
static int is_to_settle(world *w, const event *e, corral_op *op) {
  if (w->processes[e->process].life != e->life) return 0;
  if (w->control == REPLAY_IGNORES_VERSIONS) return 1;
  op->found.record = w->primary.record;
  op->found.len = w->primary.record_len;
  return crl_replay_is_newer(&replays[e->process][e->entry].entry.fill, op);
}

static void on_replays(world *w, event *e) {
  corral_op op = {.status = CORRAL_OK};
  if (astray(w, e, e->process, w->processes[e->process].life == e->life)) return;
  if (w->control == REPLAY_FORGETS_INVALIDATIONS && e->verb == CORRAL_VERB_INVALIDATE)
    memset(&op, 0, sizeof op);
  else if (e->thing == THE_TAG && w->control == REPLAY_DELETES_THE_TAG)
    w->primary.tag_version.there = 0;
  else if (e->verb == CORRAL_VERB_INVALIDATE)
    op.status = change_there(w, e);
  else
    at_store(w, e, &op);
  if (e->reply_in < 0) return;
  event reply = *e;
  reply.what = REPLAYED;
  reply.at = w->now + e->reply_in;
  reply.told.status = op.status;
  reply.newer = e->verb == CORRAL_VERB_CLAIM && op.status == CORRAL_OK && is_to_settle(w, e, &op);
  plan_confirmed(w, &reply);
}

static void end_replay(world *w, event *e) {
  process *of = &w->processes[e->process];
  crl_outbox_entry_clean(&replays[e->process][e->entry].entry);
  if (--of->pending > 0) return;
  if (of->failed)
    heal_at(w, e->process, w->now + between(w, 5, 200));
  else
    begin_round(w, e->process);
}

static void on_replayed(world *w, event *e) {
  process *of = &w->processes[e->process];
  replay *r = &replays[e->process][e->entry];
  if (of->life != e->life) return;
  if (of->paused_until > w->now) {
    event later = *e;
    later.at = of->paused_until;
    plan_event(w, &later);
    return;
  }
  if (e->told.status == CORRAL_EINDOUBT) {
    of->failed = 1;
    if (e->verb == CORRAL_VERB_INVALIDATE || e->verb == CORRAL_VERB_CLAIM)
      crl_outbox_return(held_by[e->process], &r->entry);
  } else if (e->verb == CORRAL_VERB_INVALIDATE) {
    crl_outbox_replayed(held_by[e->process], &r->entry);
    raise_floor(w, e->read);
    w->replayed_changes++;
  } else if (e->verb == CORRAL_VERB_CLAIM && e->told.status == CORRAL_OK) {
    int left = r->entry.fill.hard_ttl > w->now - r->entry.fill.made;
    send_replay(w, e->process, e->entry,
                e->newer && left ? CORRAL_VERB_SETTLE : CORRAL_VERB_RELEASE);
    return;
  }
  end_replay(w, e);
}

#endif
