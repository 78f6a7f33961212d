/* swarm_store.h: the store of a world, and the oracle's checks on it. */
#ifndef TESTS_SWARM_STORE_H
#define TESTS_SWARM_STORE_H

#include "swarm_slots.h"
#include "support/op_kit.h"

static void watch_claim(world *w, const event *e, const corral_op *op) {
  int again = w->primary.held && memcmp(w->primary.holder, e->token, CORRAL_TOKEN) == 0;
  if (op->status != CORRAL_OK) return;
  expect(w, again || !w->primary.held || w->primary.held_until <= w->now,
         "1: a lease was granted while another one ruled");
  expect(w, w->primary.verdict_until <= w->now, "6: a lease was granted while a verdict ruled");
  expect(w,
         w->control == LEASES_NEVER_END || (op->state.left_ms > 0 && op->state.left_ms <= LEASE_MS),
         "4: a lease without an end");
  if (!again) w->primary.held_until = w->now + e->lease_ms;
  w->primary.held = 1;
  memcpy(w->primary.holder, e->token, CORRAL_TOKEN);
}

static int has_usable(const world *w) {
  corral_header header;
  if (w->primary.record_len == 0 ||
      crl_record_read_whole(w->primary.record, w->primary.record_len, &header) != CORRAL_OK)
    return 0;
  return header.body > 0 && header.life_end > w->now;
}

/* Version in the stored record; 0: none. */
static uint64_t version_there(const world *w) {
  crl_envelope envelope;
  if (!has_usable(w) ||
      crl_envelope_read(w->primary.record, w->primary.record_len, digest, &envelope) != CORRAL_OK)
    return 0;
  return envelope.version;
}

/* The store's state before a verb. */
typedef struct before_it {
  int usable;
  uint64_t version;
} before_it;

/* A replayed fill over an earlier version is as valid as the value that it replaces. */
static void watch_fill(world *w, const event *e, const before_it *was) {
  uint64_t version = version_there(w);
  int takes_place = e->what == REPLAYS_AT && was->version > 0 && was->version < version;
  expect(w, version == 0 || version >= was->version,
         "an older version was stored over a newer one");
  if (e->verb == CORRAL_VERB_RENEW || takes_place)
    w->primary.truth = e->read > w->primary.truth ? e->read : w->primary.truth;
  else
    w->primary.truth = e->read;
  if (e->what == REPLAYS_AT)
    w->replayed_fills++;
  else if (e->verb == CORRAL_VERB_RENEW)
    w->renewals++;
  else
    w->fills++;
}

/* A holder who comes late counts until another is granted the lease, or the key goes. */
static void watch_late(world *w, const event *e, const corral_op *op) {
  expect(w, op->status != CORRAL_ELOST || w->now >= w->primary.held_until + CORRAL_LEASE_KEPT_MS,
         "4: a lease was lost that nobody else was granted");
  if (op->status == CORRAL_OK && e->verb != CORRAL_VERB_RELEASE)
    w->late_fills += w->primary.held_until <= w->now;
}

static int ends_all(corral_verb verb) {
  return verb == CORRAL_VERB_INVALIDATE || verb == CORRAL_VERB_EXPIRE;
}

static void watch(world *w, const event *e, const corral_op *op, const before_it *was) {
  int own = w->primary.held && memcmp(w->primary.holder, e->token, CORRAL_TOKEN) == 0;
  int fills = e->verb == CORRAL_VERB_SETTLE || e->verb == CORRAL_VERB_RENEW;
  if (e->verb == CORRAL_VERB_CLAIM) watch_claim(w, e, op);
  if (ends_all(e->verb) && w->control != EXPIRE_DOES_NOTHING)
    w->primary.held = 0, w->primary.verdict_until = 0;
  if (e->verb == CORRAL_VERB_CLAIM || e->verb == CORRAL_VERB_GET || ends_all(e->verb)) return;
  expect(w, e->verb != CORRAL_VERB_RELEASE || !was->usable || has_usable(w),
         "6: a failure removed a usable value");
  if (own) watch_late(w, e, op);
  if (op->status == CORRAL_ELOST && fills) w->fenced++;
  if (op->status != CORRAL_OK) return;
  expect(w, own,
         fills ? "1: a fill was stored without the lease" : "4: a stranger's lease was touched");
  if (e->verb == CORRAL_VERB_EXTEND)
    w->primary.held_until = w->now + e->lease_ms;
  else
    w->primary.held = 0;
  if (e->verb == CORRAL_VERB_RELEASE && e->record_len > 0)
    w->primary.verdict_until = w->now + e->lease_ms;
  if (fills) watch_fill(w, e, was);
}

static int is_leased(const world *w) {
  corral_header header;
  return crl_record_read_whole(w->primary.record, w->primary.record_len, &header) == CORRAL_OK &&
         header.state == CORRAL_LEASED;
}

static void apply(world *w, const corral_change *change) {
  uint8_t record[sizeof w->primary.record];
  if (change->action == CORRAL_ACTION_KEEP) return;
  tell_watches(w);
  w->primary.record_len =
      change->action == CORRAL_ACTION_REMOVE ? 0 : change->front_len + change->body_len;
  if (w->primary.record_len == 0) return;
  assert_true(w->primary.record_len <= sizeof record);
  crl_record_join(
      change, change->action == CORRAL_ACTION_EDIT ? w->primary.record + CORRAL_HEAD : change->body,
      record);
  memcpy(w->primary.record, record, w->primary.record_len);
  w->primary.expires = change->expires;
  if (w->control == KEYS_END_WITH_THEIR_LEASES && change->body_len == 0 && is_leased(w))
    w->primary.expires -= CORRAL_LEASE_KEPT_MS;
  expect(w, w->primary.expires > w->now, "4: a record that has no end, or is over already");
}

/* In this control run the record is given the token of the SETTLE, as if SETTLE ignored tokens. */
static void forget_the_token(world *w, uint8_t *token) {
  corral_change change = {.action = CORRAL_ACTION_EDIT,
                          .expires = w->primary.record_len == 0 ? w->now + 1 : w->primary.expires};
  corral_header header = {0};
  if (w->primary.record_len > 0)
    crl_record_read_whole(w->primary.record, w->primary.record_len, &header);
  header.state = CORRAL_LEASED;
  memcpy(header.token, token, CORRAL_TOKEN);
  change.front_len = crl_record_write(&header, change.front);
  change.body_len = header.body;
  apply(w, &change);
}

/* Applies a verb to the value's key. */
static void at_store(world *w, event *e, corral_op *op) {
  corral_change change;
  uint8_t front[CORRAL_FRONT];
  *op = (corral_op){.verb = e->verb, .key = key, .key_len = sizeof key, .token = e->token};
  op_lasts(op, w->control == LEASES_NEVER_END ? 100 * WORLD_MS : e->lease_ms);
  op_keeps(op, e->ttl_ms);
  if (e->record_len > 0) op_brings(op, e->record, e->record_len);
  if (w->primary.record_len > 0 && w->primary.expires <= w->now) w->primary.record_len = 0;
  if (w->control == EXPIRE_DOES_NOTHING && e->verb == CORRAL_VERB_EXPIRE) return;
  if (w->control == SETTLE_IGNORES_THE_TOKEN && e->verb == CORRAL_VERB_SETTLE)
    forget_the_token(w, e->token);
  before_it was = {.usable = has_usable(w), .version = version_there(w)};
  size_t front_len = w->primary.record_len > 0
                         ? crl_record_front(w->primary.record, w->primary.record_len, front)
                         : 0;
  crl_record_decide(op, w->primary.record_len > 0 ? front : NULL, front_len, w->now, &change);
  apply(w, &change);
  watch(w, e, op, &was);
}

static void look_at_body(world *w, const corral_header *header, const corral_op *op, event *reply) {
  crl_look *look = &reply->told.look;
  crl_envelope envelope;
  crl_tags tags;
  if (op->state.life_ms == 0 ||
      crl_envelope_read(w->primary.record, w->primary.record_len, digest, &envelope) != CORRAL_OK)
    return;
  crl_lives lives =
      crl_envelope_judge(&envelope, header->flags & CORRAL_FLAG_EXPIRED, op->state.life_ms, 0);
  reply->stored_version = envelope.version;
  if (envelope.tag_count > 0 &&
      crl_tags_read(w->primary.record + envelope.metadata_at, envelope.metadata_len, &tags))
    reply->remembered = tags.tag[0].hard;
  if (envelope.kind == CRL_KIND_PASS) {
    look->pass = lives.fresh > 0;
    return;
  }
  look->has_value = 1;
  look->lives = lives;
  reply->read = w->primary.truth;
  if (has_slots(w)) reply->print = crl_watch_print(w->primary.record, w->primary.record_len);
  reply->version = crl_record_take(w->primary.record + envelope.payload_at, 8);
  reply->has_found = 1;
}

static void look_of(world *w, const uint8_t *token, const corral_op *op, event *reply) {
  corral_header header;
  crl_look *look = &reply->told.look;
  if (w->primary.record_len == 0) return;
  crl_record_read_whole(w->primary.record, w->primary.record_len, &header);
  if (header.state == CORRAL_LEASED && memcmp(header.token, token, CORRAL_TOKEN) != 0)
    look->lease_left = op->state.left_ms;
  if (header.state == CORRAL_VERDICT) look->retry_left = op->state.left_ms;
  look->failures = header.failures;
  look_at_body(w, &header, op, reply);
}

/* The store stalls: nothing arrives before the end of that, and its sender isn't answered in
 * time. */
static void arrive_late(world *w, event *e) {
  event lost = {.at = w->now + OP_MS,
                .what = TOLD,
                .flight = e->flight,
                .life = e->life,
                .ask_number = e->ask_number,
                .told = {.status = CORRAL_EINDOUBT, .slow = w->control != SLOW_IS_AWAY}};
  if (e->verb != CORRAL_VERB_EXTEND && e->reply_in >= 0) plan_event(w, &lost);
  e->reply_in = -1;
  e->at = w->stalled_until;
  w->late++;
  plan_event(w, e);
}

static void on_stall(world *w) {
  if (faults_ended(w)) return;
  event again = {.at = w->now + between(w, 50, 1500), .what = STALL};
  w->stalled_until = w->now + between(w, 1, STALL_MS);
  w->stalls++;
  if (w->now < WORLD_MS) plan_event(w, &again);
}

static void on_arrives(world *w, event *e) {
  corral_op op;
  if (w->stalled_until > w->now) {
    arrive_late(w, e);
    return;
  }
  const scheduler *p = &w->pilots[e->flight];
  if (astray(w, e, e->flight / FLIGHTS, p->flying && p->life == e->life)) return;
  at_store(w, e, &op);
  if (e->reply_in < 0 || e->verb == CORRAL_VERB_EXTEND) return;
  event reply = {.at = w->now + e->reply_in,
                 .what = TOLD,
                 .flight = e->flight,
                 .life = e->life,
                 .ask_number = e->ask_number,
                 .verb = e->verb,
                 .told = {.status = op.status}};
  if (e->verb == CORRAL_VERB_GET || e->verb == CORRAL_VERB_CLAIM) look_of(w, e->token, &op, &reply);
  if (reply.remembered != 0) reply.what = READS_MARK;
  plan_event(w, &reply);
}

/* ---- the tag ------------------------------------------------------------------------------- */

static crl_standing standing_of(const world *w, uint64_t remembered) {
  crl_tag_version there = {.status = w->primary.tag_version.there ? CORRAL_OK : CORRAL_EMISS,
                           .hard = w->primary.tag_version.hard,
                           .len = 1,
                           .name = "t"};
  crl_tag_versions tag_versions = {.count = 1, .room = 1, .tag_version = &there};
  crl_tags tags = {.count = 1};
  tags.tag[0] = (crl_tag){.hard = remembered, .len = 1, .name = "t"};
  return crl_tag_versions_judge(&tag_versions, &tags);
}

/* Drops a found body whose remembered tag version isn't the tag's current one. The read of the tag
 * version may get lost. */
static void on_reads_mark(world *w, event *e) {
  event reply = *e;
  reply.what = TOLD;
  reply.at = w->now + between(w, 0, 6);
  reply.tag_version = w->primary.tag_version.there ? w->primary.tag_version.hard : 0;
  int lost = mishap(w, e->flight / FLIGHTS, 2),
      is_void = standing_of(w, e->remembered) == CRL_STANDS_VOID;
  if (w->control == TAGS_ARE_NOT_CHECKED) is_void = 0;
  if (lost || is_void) {
    crl_look *look = &reply.told.look;
    memset(&look->lives, 0, sizeof look->lives);
    look->has_value = look->pass = 0;
    reply.has_found = 0;
    w->voids += !lost;
  }
  if (lost) {
    reply.tag_version = 0;
    if (e->verb == CORRAL_VERB_GET || e->told.status == CORRAL_EBUSY)
      reply.told.status = CORRAL_EINDOUBT;
    reply.told.slow = w->control != SLOW_IS_AWAY;
    reply.at = w->now + OP_MS;
  }
  plan_event(w, &reply);
}

/* A leader reads the tag's version for its new value; a missing tag version is made. */
static void on_stamps(world *w, event *e) {
  event reply = *e;
  int64_t answered = w->now + between(w, 0, 6);
  reply.what = TOLD;
  if (!w->primary.tag_version.there)
    w->primary.tag_version = (tag_version){.there = 1, .hard = roll(w) | 1, .since = w->now};
  /* lease_ms: time at which the lease was claimed */
  int before = w->now - w->primary.tag_version.since > answered - e->lease_ms + 1;
  if (w->primary.tag_version.changed && !before) reply.told.made = CRL_MADE_FENCED;
  reply.tag_version = w->primary.tag_version.hard;
  reply.at = answered;
  plan_event(w, &reply);
}

#endif
