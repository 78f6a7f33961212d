/* swarm_flights.h: the simulated driver of a world's flights. */
#ifndef TESTS_SWARM_FLIGHTS_H
#define TESTS_SWARM_FLIGHTS_H

#include "swarm_replay.h"

static void send(world *w, const scheduler *p, event *e) {
  if (process_of(w, p)->away) {
    event away = {.at = w->now + 1,
                  .what = TOLD,
                  .flight = (int)(p - w->pilots),
                  .life = p->life,
                  .ask_number = p->ask_number,
                  .told = {.status = CORRAL_EUNAVAILABLE}};
    if (e->verb != CORRAL_VERB_EXTEND) plan_event(w, &away);
    return;
  }
  int number = (int)(p - w->pilots) / FLIGHTS;
  int64_t there = mishap(w, number, 5) ? between(w, 0, 4 * LEASE_MS) : way(w), back = way(w);
  e->flight = (int)(p - w->pilots);
  e->life = p->life;
  e->server = process_of(w, p)->server;
  e->ask_number = p->ask_number;
  memcpy(e->token, p->token, CORRAL_TOKEN);
  e->what = ARRIVES;
  e->at = w->now + there;
  e->reply_in = mishap(w, number, 4) || there + back >= OP_MS ? -1 : back;
  int sent = !mishap(w, number, 2);
  if (sent) plan_event(w, e);
  if (e->verb == CORRAL_VERB_EXTEND || (sent && e->reply_in >= 0)) return;
  event lost = {.at = sent ? w->now + OP_MS : w->now + 1,
                .what = TOLD,
                .flight = e->flight,
                .life = e->life,
                .ask_number = e->ask_number,
                .told = {.status = sent ? CORRAL_EINDOUBT : CORRAL_EUNAVAILABLE,
                         .slow = sent && w->control != SLOW_IS_AWAY}};
  plan_event(w, &lost);
}

static void write_verdict(const scheduler *p, event *e) {
  corral_header verdict;
  memset(&verdict, 0, sizeof verdict);
  verdict.state = CORRAL_VERDICT;
  verdict.failures = p->flight.failures;
  e->record_len = crl_record_write(&verdict, e->record);
  e->lease_ms = p->flight.retry_ms;
  e->ttl_ms = 3 * p->flight.retry_ms;
}

static void ask_store(world *w, scheduler *p, corral_verb verb) {
  event e = {.verb = verb, .lease_ms = LEASE_MS, .read = p->read};
  if (verb == CORRAL_VERB_GET) p->tag_version = 0;
  if (verb == CORRAL_VERB_GET || verb == CORRAL_VERB_CLAIM) {
    p->floor = w->floor;
    p->expire_floor = w->expire_floor;
    p->looked = w->now;
    if (has_slots(w)) p->near_epoch = crl_near_epoch(near_of[(p - w->pilots) / FLIGHTS], NEAR_HASH);
  }
  if (verb == CORRAL_VERB_CLAIM && (!p->claimed || w->control != CLAIMS_SHARE_A_TOKEN))
    crl_record_put(p->token, roll(w) | 1, 8);
  if (verb == CORRAL_VERB_CLAIM) {
    p->claimed = 1;
    p->claim_sent = w->now;
    e.lease_ms = p->lease_ms = LEASE_FIRST_MS;
  }
  if (verb == CORRAL_VERB_SETTLE || verb == CORRAL_VERB_RENEW) e.ttl_ms = p->hard_ttl;
  if (verb == CORRAL_VERB_SETTLE) {
    memcpy(e.record, p->product, p->product_len);
    e.record_len = p->product_len;
  }
  if (verb == CORRAL_VERB_RELEASE && p->flight.retry_ms > 0 &&
      w->control != VERDICTS_ARE_NOT_STORED)
    write_verdict(p, &e);
  send(w, p, &e);
}

static crl_made outcome(world *w) {
  if (w->healing.outage > 0) return try_origin(w);
  if (!faults_ended(w) && chance(w, 20)) return CRL_MADE_FAILURE;
  if (chance(w, 5)) return CRL_MADE_PASS;
  return chance(w, 3) ? CRL_MADE_UNKEPT : CRL_MADE_VALUE;
}

static int64_t length_of_compute(world *w) {
  if (w->healing.outage > 0) return between(w, 1, 5);
  return !faults_ended(w) && chance(w, 10) ? between(w, 50, 5 * LEASE_MS) : between(w, 1, 40);
}

static void start_compute(world *w, scheduler *p) {
  int64_t takes = length_of_compute(w);
  event done = {.at = w->now + takes,
                .what = TOLD,
                .flight = (int)(p - w->pilots),
                .life = p->life,
                .ask_number = p->ask_number,
                .told = {.made = outcome(w)}};
  event extend = {.at = w->now + p->lease_ms / 3,
                  .what = EXTENDS,
                  .flight = done.flight,
                  .life = p->life,
                  .ask_number = p->ask_number};
  expect(w, p->flight.leased || p->flight.alone || p->is_refused,
         "7: a compute beside the leader's while the store was slow");
  w->computes++;
  p->computed = 1;
  p->was_answered = p->flight.answered;
  p->excused += takes;
  p->began = w->now;
  p->read = p->version = w->version; /* the compute reads the origin at its start */
  if (w->lags && !faults_ended(w) && chance(w, 20))
    p->version -= (uint64_t)between(w, 0, p->version > 2 ? 2 : 0);
  done.version = chance(w, w->versions_pct) ? p->version : 0;
  if (p->flight.alone) p->detached = 1;
  plan_event(w, &done);
  if (p->flight.leased) plan_event(w, &extend);
}

/* ---- the end of a compute ------------------------------------------------------------------ */

/* The record's payload: the version that the compute returned, and, for the oracle, the origin's
 * version at the start of the compute. */
static void make_product(world *w, scheduler *p, const event *e) {
  int passes = e->told.made == CRL_MADE_PASS;
  crl_tags tags = {.count = 1};
  tags.tag[0] = (crl_tag){.hard = p->tag_version, .soft = p->tag_version, .len = 1, .name = "t"};
  crl_envelope envelope = {.kind = passes ? CRL_KIND_PASS : CRL_KIND_VALUE,
                           .ttl_ms = w->policy.ttl_ms,
                           .digest = digest,
                           .payload_len = passes ? 0 : 16,
                           .plain_len = passes ? 0 : 16,
                           .version = passes ? 0 : e->version};
  if (!passes) {
    envelope.swr_ms = w->policy.swr_ms;
    envelope.sie_ms = w->policy.sie_ms;
    crl_record_put(p->product + CRL_PAYLOAD_AT, p->version, 8);
    crl_record_put(p->product + CRL_PAYLOAD_AT + 8, p->read, 8);
  }
  if (w->tagged) envelope.tags = &tags;
  p->product_len = crl_envelope_size(&envelope);
  assert_in_range(p->product_len, 1, RECORD);
  crl_envelope_write(&envelope, p->product);
  p->hard_ttl = crl_policy_hard_ttl(envelope.ttl_ms, envelope.swr_ms, envelope.sie_ms);
}

static int asks_for_stamp(world *w, scheduler *p, const event *e) {
  if (!w->tagged || !p->flight.leased || p->tag_version != 0 || e->tag_version != 0) return 0;
  event stamp = *e;
  stamp.what = STAMPS;
  stamp.lease_ms = p->claim_sent;
  stamp.at = w->now + between(w, 0, 6);
  if (mishap(w, e->flight / FLIGHTS, 3)) {
    stamp.what = TOLD;
    stamp.told.made = CRL_MADE_UNKEPT;
    stamp.at = w->now + OP_MS;
    /* the request for the tag's version failed; any tag_version but 0 prevents another one */
    stamp.tag_version = 1;
  }
  plan_event(w, &stamp);
  return 1;
}

/* Returns 0 when the tag's version must be requested first. */
static int end_compute(world *w, scheduler *p, event *e) {
  crl_made *made = &e->told.made;
  if (*made == CRL_MADE_FAILURE) return 1;
  int older = *made != CRL_MADE_PASS && e->version != 0 && e->version < p->stored_version;
  if (older && w->control != SETTLE_IGNORES_VERSIONS) *made = CRL_MADE_OLDER;
  w->older += *made == CRL_MADE_OLDER;
  if (*made == CRL_MADE_OLDER) return 1;
  if (asks_for_stamp(w, p, e)) return 0;
  if (p->tag_version == 0 && p->flight.leased) p->tag_version = e->tag_version;
  make_product(w, p, e);
  p->renews = *made == CRL_MADE_VALUE && p->flight.leased && p->has_old &&
              p->old_version == p->version && chance(w, 50);
  w->passes += *made == CRL_MADE_PASS;
  if (*made == CRL_MADE_VALUE && p->flight.degraded) hold(w, p, e->version);
  p->stored_version = e->version; /* for a hold after the SETTLE */
  return 1;
}

static void check_joined(world *w, const scheduler *p, uint64_t read) {
  expect(w, read >= p->join_floor, "2: who joined was given what its own process had invalidated");
}

/* In calm each call of the core is served. */
static void check_served(world *w, const scheduler *p) {
  const crl_flight *f = &p->flight;
  int64_t began = p->deadline - WAIT_MS;
  int number = (int)(p - w->pilots) / FLIGHTS;
  if (w->faults_end == 0 || began < w->faults_end + CALM_MS || !is_core(number)) return;
  w->served++;
  expect(w, !f->degraded, "3: a process does without the store, which is well");
  expect(w,
         f->answer == CRL_ANSWER_STORED || f->answer == CRL_ANSWER_STALE ||
             f->answer == CRL_ANSWER_COMPUTED || !f->plan.can_compute,
         "3: a call got no value in calm");
  int64_t shut = f->shut_ms < LEASE_MS ? f->shut_ms : LEASE_MS;
  expect(w, w->now - began - p->excused - shut <= SERVED_MS, "3: a call was served late in calm");
}

static void check_answer(world *w, const scheduler *p) {
  const crl_flight *f = &p->flight;
  int ops = p->claimed ? 6 : 2; /* a look, and one more while holding the host lock */
  expect(w, w->now <= p->deadline + p->excused + (w->tagged ? 2 : 1) * ops * OP_MS,
         "3: a flight that did not answer by its deadline");
  int is_held = f->answer == CRL_ANSWER_OUTBOX || (f->answer == CRL_ANSWER_STALE && p->has_held);
  if (!is_held && (f->answer == CRL_ANSWER_STORED || f->answer == CRL_ANSWER_STALE)) {
    expect(w, p->found >= p->found_floor,
           "2: a value from before an invalidate was served from the store");
    check_joined(w, p, p->found);
  }
  if (f->answer == CRL_ANSWER_COMPUTED && !f->alone) check_joined(w, p, p->read);
  if (is_held)
    expect(w, p->held >= p->held_floor, "2: a process served what it had invalidated itself");
  if (p->computed && !p->was_answered && f->made != CRL_MADE_FAILURE)
    expect(w, f->answer == CRL_ANSWER_COMPUTED,
           "5: a computed value was not given to its own caller");
  check_served(w, p);
  if (w->healing.fresh == 0 && (f->answer == CRL_ANSWER_STORED || f->answer == CRL_ANSWER_COMPUTED))
    w->healing.fresh = w->now;
  w->stale += f->answer == CRL_ANSWER_STALE;
  w->verdicts += f->answer == CRL_ANSWER_VERDICT;
  w->held_hits += is_held != 0;
}

static int host_number(const world *w, const scheduler *p) {
  return (int)(p - w->pilots) / FLIGHTS * 2 / PROCESSES;
}

static scheduler **host_of(world *w, const scheduler *p) {
  return &w->host_holder[host_number(w, p)];
}

static void ask_host(world *w, scheduler *p, event *later) {
  scheduler **holder = host_of(w, p);
  unsigned *hold = &w->host_hold[host_number(w, p)];
  if (*holder == NULL) {
    *holder = p;
    ++*hold;
  }
  later->told.status = *holder == p ? CORRAL_OK : CORRAL_EBUSY;
  p->meets_passed = *holder != p && process_of(w, p)->passed_hold == *hold;
  later->told.passed = *holder != p && process_of(w, p)->remembered_hold == *hold;
  later->at = w->now;
  plan_event(w, later);
}

/* Its process remembers that the flight has passed the holder of the host lock by. */
static void pass_host(world *w, scheduler *p) {
  process *of = process_of(w, p);
  unsigned hold = w->host_hold[host_number(w, p)];
  of->passed_hold = hold;
  if (w->control != HOLDERS_ARE_NOT_REMEMBERED) of->remembered_hold = hold;
}

/* The flight no longer needs the host lock, or died. */
static void leave_host(world *w, scheduler *p) {
  if (*host_of(w, p) == p) *host_of(w, p) = NULL;
}

static void look_at_held(world *w, scheduler *p, event *later) {
  crl_outbox_fill fill;
  later->at = w->now;
  later->told.status = CORRAL_EMISS;
  if (!crl_outbox_find(held_of(w, p), key, sizeof key, w->now, &fill)) return;
  crl_envelope envelope;
  int64_t left = fill.hard_ttl - (w->now - fill.made);
  if (crl_envelope_read(fill.record->data, fill.record->size, digest, &envelope) != CORRAL_OK)
    fail_msg("a fill that can't be read");
  later->told.look.lives = crl_envelope_judge(&envelope, 0, left, 0);
  later->told.status = CORRAL_OK;
  p->has_held = 1;
  p->held_floor = process_of(w, p)->own_change;
  p->held = crl_record_take(fill.record->data + CRL_PAYLOAD_AT + 8, 8);
  crl_bytes_unref(fill.record);
}

static void perform_ask(world *w, scheduler *p) {
  event later = {.what = TOLD, .flight = (int)(p - w->pilots), .life = p->life};
  p->ask_number++;
  later.ask_number = p->ask_number;
  switch (p->ask) {
    case CRL_ASK_GET: ask_store(w, p, CORRAL_VERB_GET); break;
    case CRL_ASK_CLAIM: ask_store(w, p, CORRAL_VERB_CLAIM); break;
    case CRL_ASK_SETTLE: ask_store(w, p, p->renews ? CORRAL_VERB_RENEW : CORRAL_VERB_SETTLE); break;
    case CRL_ASK_RELEASE: ask_store(w, p, CORRAL_VERB_RELEASE); break;
    case CRL_ASK_COMPUTE: start_compute(w, p); break;
    case CRL_ASK_WAIT:
      later.at = chance(w, 10) ? between(w, w->now, p->flight.until) : p->flight.until;
      if (p->flight.at_host && chance(w, 50))
        later.at = w->now < p->flight.until ? w->now + 1 : p->flight.until;
      if (w->control != WAITERS_ARE_FORGOTTEN || !chance(w, 5)) plan_event(w, &later);
      break;
    case CRL_ASK_HOST: ask_host(w, p, &later); break;
    case CRL_ASK_OUTBOX:
      look_at_held(w, p, &later);
      plan_event(w, &later);
      break;
    case CRL_ASK_SLOT: fail_msg("an ask that this world does not know"); break;
    case CRL_ASK_PUBLISH:
      later.told.behind = w->seed % 2; /* in every second world */
      later.at = w->now;
      plan_event(w, &later);
      break;
    case CRL_ASK_ANSWER:
      check_answer(w, p);
      later.at = w->now;
      plan_event(w, &later);
      break;
    case CRL_ASK_DONE:
      p->flying = 0;
      w->landings++;
      break;
  }
}

static scheduler *pilot_of(world *w, const event *e) {
  scheduler *p = &w->pilots[e->flight];
  int current = p->flying && p->life == e->life && p->ask_number == e->ask_number;
  return current && !process_of(w, p)->gone ? p : NULL;
}

/* An event of a paused process is postponed to the end of the pause. */
static int postponed(world *w, const event *e) {
  int64_t until = w->processes[e->flight / FLIGHTS].paused_until;
  event later = *e;
  if (until <= w->now) return 0;
  later.at = until;
  plan_event(w, &later);
  return 1;
}

static int was_answered(const event *e) {
  return e->told.status == CORRAL_OK || e->told.status == CORRAL_EMISS ||
         e->told.status == CORRAL_EBUSY;
}

static void take_look(world *w, scheduler *p, const event *e) {
  if (!was_answered(e)) return;
  p->stored_version = e->stored_version;
  p->has_old = e->has_found;
  p->old_version = e->version;
  if (e->tag_version != 0) p->tag_version = e->tag_version;
  if (!e->has_found) return;
  p->has_held = 0;
  p->found = e->read;
  p->found_floor = p->floor;
  keep_copy(w, p, e);
  expect(w, e->told.look.lives.fresh == 0 || e->read >= p->expire_floor,
         "2: what was expired was found fresh");
}

/* Returns 0 when a RENEW found no body: SETTLE follows. */
static int take_settle(world *w, scheduler *p, const event *e) {
  int status = e->told.status;
  if (p->renews && status == CORRAL_EMISS) {
    p->renews = 0;
    return 0;
  }
  if (status == CORRAL_OK) crl_outbox_filled(held_of(w, p), key, sizeof key, p->began);
  int away = status == CORRAL_EUNAVAILABLE || status == CORRAL_EINDOUBT;
  if (away && p->flight.made != CRL_MADE_PASS) hold(w, p, p->stored_version);
  return 1;
}

static void on_told(world *w, event *e) {
  scheduler *p = pilot_of(w, e);
  int goes_on = 1;
  if (p == NULL || postponed(w, e)) return;
  e->told.now = w->now;
  if (p->ask == CRL_ASK_GET || p->ask == CRL_ASK_CLAIM || p->ask == CRL_ASK_RELEASE)
    p->is_refused = e->told.status == CORRAL_EUNAVAILABLE;
  if (p->ask == CRL_ASK_GET || p->ask == CRL_ASK_CLAIM) take_look(w, p, e);
  if (p->ask == CRL_ASK_COMPUTE && !end_compute(w, p, e)) return;
  if (p->ask == CRL_ASK_SETTLE) goes_on = take_settle(w, p, e);
  int had_passed = p->flight.passed;
  if (goes_on) p->ask = crl_flight_step(&p->flight, &e->told);
  if (p->flight.passed && !had_passed) pass_host(w, p);
  expect(w, p->ask != CRL_ASK_WAIT || !p->flight.at_host || p->flight.degraded || !p->meets_passed,
         "3: a call waits for a holder of its host's lock that its process has passed by");
  if (!p->flight.on_host) leave_host(w, p);
  perform_ask(w, p);
}

static void on_extends(world *w, event *e) {
  scheduler *p = pilot_of(w, e);
  if (p == NULL || postponed(w, e)) return;
  p->lease_ms = 2 * p->lease_ms < LEASE_MS ? 2 * p->lease_ms : LEASE_MS;
  event extend = {.verb = CORRAL_VERB_EXTEND, .lease_ms = p->lease_ms};
  send(w, p, &extend);
  e->at = w->now + p->lease_ms / 3;
  plan_event(w, e);
}

/* A call that joins a flight under way in the same process, and gets its answer. */
static int joins(world *w, const scheduler *p) {
  int number = (int)((p - w->pilots) / FLIGHTS);
  if (!chance(w, 30)) return 0;
  for (int i = 0; i < FLIGHTS; i++) {
    scheduler *other = &w->pilots[number * FLIGHTS + i];
    if (!other->flying || other->flight.answered || other->detached) continue;
    raise_to(&other->join_floor, w->processes[number].heard);
    w->joins++;
    return 1;
  }
  return 0;
}

static void on_take_off(world *w) {
  scheduler *p = &w->pilots[between(w, 0, PROCESSES * FLIGHTS - 1)];
  event again = {.at = w->now + (chance(w, 20) ? between(w, 1, 60) : 0), .what = TAKE_OFF};
  if (w->healing.outage > 0) again.at = w->now + 1;
  if (w->now < WORLD_MS && (++w->take_offs < TAKE_OFFS || w->healing.outage > 0))
    plan_event(w, &again);
  if (process_of(w, p)->gone) return;
  if (p->flying || process_of(w, p)->paused_until > w->now) return;
  if (is_near(w, (int)(p - w->pilots) / FLIGHTS) || joins(w, p)) return;
  unsigned life = p->life + 1;
  memset(p, 0, sizeof *p);
  p->life = life;
  p->flying = 1;
  p->deadline = w->now + WAIT_MS;
  crl_flight_plan plan = {.deadline = p->deadline,
                          .dice = roll(w),
                          .can_compute = !chance(w, 5),
                          .background = chance(w, 50) != 0,
                          .ladder = w->ladder != 0};
  p->ask = crl_flight_start(&p->flight, &w->policy, &plan);
  perform_ask(w, p);
}

static void kill_process(world *w, int number) {
  for (int i = 0; i < FLIGHTS; i++) {
    w->pilots[number * FLIGHTS + i].flying = 0;
    leave_host(w, &w->pilots[number * FLIGHTS + i]);
  }
  forget_replays(w, number);
  w->processes[number] = (process){.life = w->processes[number].life + 1,
                                   .paused_until = w->processes[number].paused_until};
  if (has_slots(w)) begin_map(w, number);
  crl_outbox_free(held_by[number]);
  held_by[number] = crl_outbox_new(1 << 20, 100 * WORLD_MS);
  w->kills++;
}

static void on_kill(world *w) {
  int number = (int)between(w, 0, PROCESSES - 1);
  event again = {.at = w->now + between(w, 50, 600), .what = KILL};
  if (faults_ended(w)) return;
  kill_process(w, number);
  if (w->now < WORLD_MS) plan_event(w, &again);
}

static void on_pause(world *w) {
  int number = (int)between(w, 0, PROCESSES - 1);
  int64_t length = between(w, 1, 4 * LEASE_MS);
  event again = {.at = w->now + between(w, 50, 600), .what = PAUSE};
  if (faults_ended(w)) return;
  if (w->processes[number].paused_until < w->now) {
    w->processes[number].paused_until = w->now + length;
    for (int i = 0; i < FLIGHTS; i++) w->pilots[number * FLIGHTS + i].excused += length;
    w->pauses++;
  }
  if (w->now < WORLD_MS) plan_event(w, &again);
}

/* The faults end for the core. The other processes are killed, stopped or cut off for good, with
 * all that they hold. */
static void on_faults_end(world *w) {
  for (int i = 0; i < PROCESSES; i++) {
    process *of = &w->processes[i];
    if (is_core(i)) continue;
    int ends = (int)between(w, 0, 2);
    if (ends == 0) kill_process(w, i);
    if (ends == 2) of->away = 1;
    of->gone = ends != 2;
    of->life++; /* it hears of no heal, and of no reply to a replay */
    if (has_slots(w)) push(w, i, SILENCE_MS);
  }
}

/* The store loses all its data. */
static void on_flush(world *w) {
  event again = {.at = w->now + between(w, 200, 4000), .what = FLUSH};
  if (faults_ended(w)) return;
  tell_watches(w);
  w->primary.record_len = 0;
  w->primary.held = 0;
  w->primary.verdict_until = 0;
  memset(&w->primary.tag_version, 0, sizeof w->primary.tag_version);
  if (w->now < WORLD_MS) plan_event(w, &again);
}

#endif
