/* test_swarm.c: random herds in a world that owns time: processes with flights on one key, over a record in memory, with late and
 * lost messages, kills, pauses beyond the lease, invalidations and failing computes; and an oracle that knows the truth.
 *
 * One seed is one world: CORRAL_SEED=n plays that one again. CORRAL_SEEDS=n plays so many (250), CORRAL_SECONDS=n plays for so long at
 * least, from CORRAL_SEED_FROM=n (1) on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "env.h"
#include "flight.h"
#include "record.h"

enum {
  PROCESSES = 6,
  FLIGHTS = 5,     /* of one process at a time */
  TAKE_OFFS = 400, /* of one world */
  EVENTS = 4096,
  OP_MS = 50,
  LEASE_MS = 100,
  WAIT_MS = 400,
  WORLD_MS = 4000
};

static const char key[] = "the key";
static const uint8_t digest[CORRAL_DIGEST] = "key";

/* ---- the world --------------------------------------------------------------------------------------------------- */

typedef enum what { TAKE_OFF = 1, ARRIVES, TOLD, EXTENDS, KILL, PAUSE, CHANGE, INVALIDATED } what;

/* A process may be killed, and another take its place: `life` tells them apart. The same for a flight. */
typedef struct event {
  int64_t at;
  uint64_t order;
  what what;
  int flight;
  unsigned life, ask_number;
  /* ARRIVES */
  corral_verb verb;
  uint8_t token[CORRAL_TOKEN];
  uint8_t record[512];
  size_t record_len;
  int64_t lease_ms, ttl_ms, reply_in; /* reply_in: -1 it gets lost */
  /* TOLD, INVALIDATED */
  crl_told told;
  uint64_t version;
  int has_found;
} event;

typedef struct pilot {
  crl_flight flight;
  unsigned life, ask_number;
  int flying, computing, claimed, computed, was_answered;
  crl_ask ask;
  uint8_t token[CORRAL_TOKEN];
  int64_t deadline, excused; /* excused: its own computes and its process's pauses */
  uint64_t floor;      /* what the look under way may not find anything older than */
  uint64_t found, found_floor, made; /* versions; found may be answered by this very call later on */
} pilot;

/* What is broken on purpose, to see that the oracle isn't blind. */
typedef enum control { SOUND, SETTLE_IGNORES_THE_TOKEN, CLAIMS_SHARE_A_TOKEN } control;

typedef struct world {
  uint64_t seed, dice, order;
  int64_t now;
  control control;
  event heap[EVENTS];
  size_t events;
  pilot pilots[PROCESSES * FLIGHTS];
  int64_t paused_until[PROCESSES];
  int ladder;               /* elections begin on the hosts, of which each has half of the processes */
  pilot *host_holder[2];
  corral_policy policy;
  /* the store */
  uint8_t record[1024];
  size_t record_len; /* 0 none */
  int64_t expires;
  /* the truth */
  uint64_t version;    /* of the origin */
  uint64_t floor;      /* older ones were invalidated, and that returned */
  uint8_t holder[CORRAL_TOKEN];
  int held;
  int64_t held_until, verdict_until;
  /* what came of it */
  unsigned take_offs, landings, computes, fills, fenced, failures, kills, pauses, stale, verdicts, violations;
  char first[160];
} world;

static uint64_t roll(world *w) {
  uint64_t z = (w->dice += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static int64_t between(world *w, int64_t least, int64_t most) {
  return least + (int64_t)(roll(w) % (uint64_t)(most - least + 1));
}

static int chance(world *w, int percent) { return between(w, 1, 100) <= percent; }

static void expect(world *w, int holds, const char *promise) {
  if (holds) return;
  if (w->violations++ == 0) snprintf(w->first, sizeof w->first, "%s, at %lld ms", promise, (long long)w->now);
}

/* ---- events: a heap by time, in order of their making ------------------------------------------------------------------ */

static int before(const event *a, const event *b) { return a->at != b->at ? a->at < b->at : a->order < b->order; }

static void swap(event *a, event *b) {
  event c = *a;
  *a = *b;
  *b = c;
}

static void plan_event(world *w, const event *e) {
  assert_true(w->events < EVENTS);
  size_t i = w->events++;
  w->heap[i] = *e;
  w->heap[i].order = w->order++;
  for (; i > 0 && before(&w->heap[i], &w->heap[(i - 1) / 2]); i = (i - 1) / 2) swap(&w->heap[i], &w->heap[(i - 1) / 2]);
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

/* ---- the store, and what the oracle sees of it --------------------------------------------------------------------------- */

static uint64_t version_of(const uint8_t *record, size_t len) {
  crl_envelope envelope;
  if (crl_envelope_read(record, len, digest, &envelope) != CORRAL_OK) return 0;
  return crl_record_take(record + envelope.payload_at, 8);
}

static void watch_claim(world *w, const event *e, const corral_op *op) {
  int again = w->held && memcmp(w->holder, e->token, CORRAL_TOKEN) == 0;
  if (op->status != CORRAL_OK) return;
  expect(w, again || !w->held || w->held_until <= w->now, "1: a lease was granted while another one ruled");
  expect(w, w->verdict_until <= w->now, "6: a lease was granted while a verdict ruled");
  expect(w, op->until_ms > 0 && op->until_ms <= LEASE_MS, "4: a lease without an end");
  if (!again) w->held_until = w->now + e->lease_ms;
  w->held = 1;
  memcpy(w->holder, e->token, CORRAL_TOKEN);
}

static void watch(world *w, const event *e, const corral_op *op, int usable_before, int usable_after) {
  int own = w->held && memcmp(w->holder, e->token, CORRAL_TOKEN) == 0;
  switch (e->verb) {
    case CORRAL_VERB_CLAIM: watch_claim(w, e, op); return;
    case CORRAL_VERB_INVALIDATE:
      w->held = 0;
      w->verdict_until = 0;
      return;
    case CORRAL_VERB_EXTEND:
      if (op->status == CORRAL_OK) w->held_until = w->now + e->lease_ms;
      break;
    case CORRAL_VERB_SETTLE:
      if (op->status == CORRAL_OK) w->fills++;
      else w->fenced++;
      break;
    case CORRAL_VERB_RELEASE:
      if (op->status == CORRAL_OK && e->record_len > 0) w->verdict_until = w->now + e->lease_ms;
      expect(w, !usable_before || usable_after, "6: a failure removed a usable value");
      break;
    default: return;
  }
  if (op->status != CORRAL_OK) return;
  expect(w, own, e->verb == CORRAL_VERB_SETTLE ? "1: a fill was stored without the lease" : "4: a stranger's lease was touched");
  if (e->verb != CORRAL_VERB_EXTEND) w->held = 0;
}

static void apply(world *w, const corral_change *change) {
  uint8_t record[sizeof w->record];
  if (change->action == CORRAL_ACTION_KEEP) return;
  w->record_len = change->action == CORRAL_ACTION_REMOVE ? 0 : change->front_len + change->body_len;
  if (w->record_len == 0) return;
  assert_true(w->record_len <= sizeof record);
  crl_record_join(change, change->action == CORRAL_ACTION_EDIT ? w->record + CORRAL_HEAD : change->body, record);
  memcpy(w->record, record, w->record_len);
  w->expires = change->expires;
  expect(w, w->expires > w->now, "4: a record that has no end, or is over already");
}

static int usable(const world *w) {
  corral_header header;
  if (w->record_len == 0 || crl_record_read_whole(w->record, w->record_len, &header) != CORRAL_OK) return 0;
  return header.body > 0 && header.life_end > w->now;
}

/* In that control run settle is given whatever token the record has, or a lease where there is none. */
static void forget_the_token(world *w, uint8_t *token) {
  corral_change change = {.action = CORRAL_ACTION_EDIT, .expires = w->record_len == 0 ? w->now + 1 : w->expires};
  corral_header header = {0};
  if (w->record_len > 0) crl_record_read_whole(w->record, w->record_len, &header);
  header.state = CORRAL_LEASED;
  memcpy(header.token, token, CORRAL_TOKEN);
  change.front_len = crl_record_write(&header, change.front);
  change.body_len = header.body;
  apply(w, &change);
}

static void look_of(world *w, const pilot *p, const corral_op *op, event *reply) {
  corral_header header;
  crl_envelope envelope;
  crl_look *look = &reply->told.look;
  if (w->record_len == 0) return;
  crl_record_read_whole(w->record, w->record_len, &header);
  if (header.state == CORRAL_LEASED && memcmp(header.token, p->token, CORRAL_TOKEN) != 0) look->lease_left = op->until_ms;
  if (header.state == CORRAL_VERDICT) look->retry_left = op->until_ms;
  look->failures = header.failures;
  if (op->life_ms == 0 || crl_envelope_read(w->record, w->record_len, digest, &envelope) != CORRAL_OK) return;
  look->lives = crl_policy_judge(&envelope, header.flags & CORRAL_FLAG_EXPIRED, op->life_ms, 0);
  reply->version = version_of(w->record, w->record_len);
  reply->has_found = 1;
}

static void on_arrives(world *w, event *e) {
  corral_change change;
  uint8_t front[CORRAL_FRONT];
  corral_op op = {.verb = e->verb, .key = key, .key_len = sizeof key, .token = e->token, .lease_ms = e->lease_ms,
                  .ttl_ms = e->ttl_ms, .record = e->record_len > 0 ? e->record : NULL, .record_len = e->record_len};
  if (w->record_len > 0 && w->expires <= w->now) w->record_len = 0;
  if (w->control == SETTLE_IGNORES_THE_TOKEN && e->verb == CORRAL_VERB_SETTLE) forget_the_token(w, e->token);
  int usable_before = usable(w);
  size_t front_len = w->record_len > 0 ? crl_record_front(w->record, w->record_len, front) : 0;
  crl_record_decide(&op, w->record_len > 0 ? front : NULL, front_len, w->now, &change);
  apply(w, &change);
  watch(w, e, &op, usable_before, usable(w));
  if (e->reply_in < 0) return;
  event reply = {.at = w->now + e->reply_in, .what = TOLD, .flight = e->flight, .life = e->life, .ask_number = e->ask_number,
                 .told = {.status = op.status}, .version = e->version};
  if (e->verb == CORRAL_VERB_INVALIDATE) reply.what = INVALIDATED;
  else if (e->verb == CORRAL_VERB_EXTEND) return;
  else look_of(w, &w->pilots[e->flight], &op, &reply);
  plan_event(w, &reply);
}

/* ---- pilots: what a driver does ------------------------------------------------------------------------------------------- */

static void send(world *w, const pilot *p, event *e) {
  int64_t there = chance(w, 5) ? between(w, 0, 4 * LEASE_MS) : between(w, 0, 6), back = between(w, 0, 6);
  e->flight = (int)(p - w->pilots);
  e->life = p->life;
  e->ask_number = p->ask_number;
  memcpy(e->token, p->token, CORRAL_TOKEN);
  e->what = ARRIVES;
  e->at = w->now + there;
  e->reply_in = chance(w, 4) || there + back >= OP_MS ? -1 : back;
  int sent = !chance(w, 2);
  if (sent) plan_event(w, e);
  if (e->verb == CORRAL_VERB_EXTEND || (sent && e->reply_in >= 0)) return;
  event lost = {.at = sent ? w->now + OP_MS : w->now + 1, .what = TOLD, .flight = e->flight, .life = e->life,
                .ask_number = e->ask_number, .told = {.status = sent ? CORRAL_EUNKNOWN : CORRAL_EUNAVAILABLE}};
  plan_event(w, &lost);
}

static void ask_store(world *w, pilot *p, corral_verb verb) {
  event e = {.verb = verb, .lease_ms = LEASE_MS};
  corral_header verdict;
  if (verb == CORRAL_VERB_GET || verb == CORRAL_VERB_CLAIM) p->floor = w->floor;
  if (verb == CORRAL_VERB_CLAIM && (!p->claimed || w->control != CLAIMS_SHARE_A_TOKEN)) crl_record_put(p->token, roll(w) | 1, 8);
  if (verb == CORRAL_VERB_CLAIM) p->claimed = 1;
  if (verb == CORRAL_VERB_SETTLE) {
    crl_envelope envelope = {.kind = CRL_KIND_VALUE, .ttl_ms = w->policy.ttl_ms, .swr_ms = w->policy.swr_ms,
                             .sie_ms = w->policy.sie_ms, .digest = digest, .payload_len = 8};
    crl_record_put(e.record + CRL_PAYLOAD_AT, p->made, 8);
    e.record_len = crl_envelope_size(&envelope);
    crl_envelope_write(&envelope, e.record);
    e.ttl_ms = crl_policy_hard_ttl(envelope.ttl_ms, envelope.swr_ms, envelope.sie_ms);
  }
  if (verb == CORRAL_VERB_RELEASE && p->flight.retry_ms > 0) {
    memset(&verdict, 0, sizeof verdict);
    verdict.state = CORRAL_VERDICT;
    verdict.failures = p->flight.failures;
    e.record_len = crl_record_write(&verdict, e.record);
    e.lease_ms = p->flight.retry_ms;
    e.ttl_ms = 3 * p->flight.retry_ms;
  }
  send(w, p, &e);
}

static void start_compute(world *w, pilot *p) {
  int64_t takes = chance(w, 10) ? between(w, 50, 5 * LEASE_MS) : between(w, 1, 40);
  event done = {.at = w->now + takes, .what = TOLD, .flight = (int)(p - w->pilots), .life = p->life, .ask_number = p->ask_number,
                .told = {.made = chance(w, 20) ? CRL_MADE_FAILURE : chance(w, 3) ? CRL_MADE_UNKEPT : CRL_MADE_VALUE}};
  event extend = {.at = w->now + LEASE_MS / 3, .what = EXTENDS, .flight = done.flight, .life = p->life, .ask_number = p->ask_number};
  w->computes++;
  p->computed = 1;
  p->was_answered = p->flight.answered;
  p->excused += takes;
  p->made = w->version; /* what it reads, it reads now */
  plan_event(w, &done);
  if (p->flight.leased) plan_event(w, &extend);
}

static void check_answer(world *w, const pilot *p) {
  const crl_flight *f = &p->flight;
  int ops = p->claimed ? 6 : 1;
  expect(w, w->now <= p->deadline + p->excused + ops * OP_MS, "3: a flight that did not answer by its deadline");
  if (f->answer == CRL_ANSWER_STORED || f->answer == CRL_ANSWER_STALE)
    expect(w, p->found >= p->found_floor, "2: a value from before an invalidate was served from the store");
  if (p->computed && !p->was_answered && f->made != CRL_MADE_FAILURE)
    expect(w, f->answer == CRL_ANSWER_COMPUTED, "5: a computed value was not given to its own caller");
  w->stale += f->answer == CRL_ANSWER_STALE;
  w->verdicts += f->answer == CRL_ANSWER_VERDICT;
}

static pilot **host_of(world *w, const pilot *p) { return &w->host_holder[(p - w->pilots) / FLIGHTS * 2 / PROCESSES]; }

static void ask_host(world *w, pilot *p, event *later) {
  pilot **holder = host_of(w, p);
  if (*holder == NULL) *holder = p;
  later->told.status = *holder == p ? CORRAL_OK : CORRAL_EBUSY;
  later->at = w->now;
  plan_event(w, later);
}

/* The flight has no more use for its host's lock, or died. */
static void leave_host(world *w, pilot *p) {
  if (*host_of(w, p) == p) *host_of(w, p) = NULL;
}

static void perform_ask(world *w, pilot *p) {
  event later = {.what = TOLD, .flight = (int)(p - w->pilots), .life = p->life};
  p->ask_number++;
  later.ask_number = p->ask_number;
  switch (p->ask) {
    case CRL_ASK_GET: ask_store(w, p, CORRAL_VERB_GET); break;
    case CRL_ASK_CLAIM: ask_store(w, p, CORRAL_VERB_CLAIM); break;
    case CRL_ASK_SETTLE: ask_store(w, p, CORRAL_VERB_SETTLE); break;
    case CRL_ASK_RELEASE: ask_store(w, p, CORRAL_VERB_RELEASE); break;
    case CRL_ASK_COMPUTE: start_compute(w, p); break;
    case CRL_ASK_WAIT:
      later.at = chance(w, 10) ? between(w, w->now, p->flight.until) : p->flight.until;
      if (p->flight.at_host && chance(w, 50)) later.at = w->now < p->flight.until ? w->now + 1 : p->flight.until;
      plan_event(w, &later);
      break;
    case CRL_ASK_HOST: ask_host(w, p, &later); break;
    case CRL_ASK_SLOT:
    case CRL_ASK_HELD: fail_msg("an ask that this world does not know"); break;
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

static pilot *pilot_of(world *w, const event *e) {
  pilot *p = &w->pilots[e->flight];
  return p->flying && p->life == e->life && p->ask_number == e->ask_number ? p : NULL;
}

/* A paused process does what it would do now when it runs again. */
static int postponed(world *w, const event *e) {
  int64_t until = w->paused_until[e->flight / FLIGHTS];
  event later = *e;
  if (until <= w->now) return 0;
  later.at = until;
  plan_event(w, &later);
  return 1;
}

static void on_told(world *w, event *e) {
  pilot *p = pilot_of(w, e);
  if (p == NULL || postponed(w, e)) return;
  e->told.now = w->now;
  if ((p->ask == CRL_ASK_GET || p->ask == CRL_ASK_CLAIM) && e->has_found) {
    p->found = e->version;
    p->found_floor = p->floor;
  }
  p->ask = crl_flight_step(&p->flight, &e->told);
  if (!p->flight.on_host) leave_host(w, p);
  perform_ask(w, p);
}

static void on_extends(world *w, event *e) {
  pilot *p = pilot_of(w, e);
  if (p == NULL || postponed(w, e)) return;
  event extend = {.verb = CORRAL_VERB_EXTEND, .lease_ms = LEASE_MS};
  send(w, p, &extend);
  e->at = w->now + LEASE_MS / 3;
  plan_event(w, e);
}

static void on_take_off(world *w) {
  pilot *p = &w->pilots[between(w, 0, PROCESSES * FLIGHTS - 1)];
  event again = {.at = w->now + (chance(w, 20) ? between(w, 1, 60) : 0), .what = TAKE_OFF};
  if (w->now < WORLD_MS && ++w->take_offs < TAKE_OFFS) plan_event(w, &again);
  if (p->flying || w->paused_until[(p - w->pilots) / FLIGHTS] > w->now) return;
  unsigned life = p->life + 1;
  memset(p, 0, sizeof *p);
  p->life = life;
  p->flying = 1;
  p->deadline = w->now + WAIT_MS;
  crl_flight_plan plan = {.deadline = p->deadline, .dice = roll(w), .can_compute = !chance(w, 5), .background = chance(w, 50) != 0,
                          .ladder = w->ladder != 0};
  p->ask = crl_flight_start(&p->flight, &w->policy, &plan);
  perform_ask(w, p);
}

static void on_kill(world *w) {
  int process = (int)between(w, 0, PROCESSES - 1);
  event again = {.at = w->now + between(w, 50, 600), .what = KILL};
  for (int i = 0; i < FLIGHTS; i++) {
    w->pilots[process * FLIGHTS + i].flying = 0;
    leave_host(w, &w->pilots[process * FLIGHTS + i]);
  }
  w->kills++;
  if (w->now < WORLD_MS) plan_event(w, &again);
}

static void on_pause(world *w) {
  int process = (int)between(w, 0, PROCESSES - 1);
  int64_t length = between(w, 1, 4 * LEASE_MS);
  event again = {.at = w->now + between(w, 50, 600), .what = PAUSE};
  if (w->paused_until[process] < w->now) {
    w->paused_until[process] = w->now + length;
    for (int i = 0; i < FLIGHTS; i++) w->pilots[process * FLIGHTS + i].excused += length;
    w->pauses++;
  }
  if (w->now < WORLD_MS) plan_event(w, &again);
}

/* The origin changes, and whoever changed it invalidates. */
static void on_change(world *w) {
  event again = {.at = w->now + between(w, 20, 400), .what = CHANGE};
  event e = {.at = w->now + between(w, 0, 10), .what = ARRIVES, .verb = CORRAL_VERB_INVALIDATE, .reply_in = between(w, 0, 10)};
  e.version = ++w->version;
  plan_event(w, &e);
  if (w->now < WORLD_MS) plan_event(w, &again);
}

static void on_event(world *w, event *e) {
  switch (e->what) {
    case TAKE_OFF: on_take_off(w); break;
    case ARRIVES: on_arrives(w, e); break;
    case TOLD: on_told(w, e); break;
    case EXTENDS: on_extends(w, e); break;
    case KILL: on_kill(w); break;
    case PAUSE: on_pause(w); break;
    case CHANGE: on_change(w); break;
    case INVALIDATED:
      if (e->version > w->floor) w->floor = e->version;
      break;
  }
}

static world *live(uint64_t seed, control broken) {
  static world the_world;
  world *w = &the_world;
  memset(w, 0, sizeof *w);
  w->seed = w->dice = seed;
  w->control = broken;
  w->now = 1;
  w->policy = (corral_policy){.size = sizeof w->policy, .ttl_ms = between(w, 20, 600), .retry_ms = 60, .retry_max_ms = 200,
                              .lease_ms = LEASE_MS, .poll_ms = 2, .poll_max_ms = 40};
  w->ladder = chance(w, 50);
  w->policy.swr_ms = chance(w, 50) ? between(w, 1, 300) : 0;
  w->policy.sie_ms = chance(w, 50) ? between(w, 1, 600) : 0;
  static const what first[] = {TAKE_OFF, KILL, PAUSE, CHANGE};
  for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
    event e = {.at = 1 + (i > 0 ? between(w, 1, 300) : 0), .what = first[i]};
    plan_event(w, &e);
  }
  while (w->events > 0) {
    event e = next_event(w);
    w->now = e.at;
    on_event(w, &e);
    expect(w, w->now < 4 * WORLD_MS, "3: the world does not come to rest");
    if (w->now >= 4 * WORLD_MS) break;
  }
  for (int i = 0; i < PROCESSES * FLIGHTS; i++) expect(w, !w->pilots[i].flying, "3: a flight never ended");
  return w;
}

/* ---- tests -------------------------------------------------------------------------------------------------------------- */

static uint64_t number_of(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void whatever_befalls_a_herd_the_promises_hold(void **state) {
  (void)state;
  uint64_t first = number_of("CORRAL_SEED", number_of("CORRAL_SEED_FROM", 1)), count = getenv("CORRAL_SEED") != NULL ? 1 : number_of("CORRAL_SEEDS", 250);
  int64_t until = crl_env_now_ms() + (int64_t)number_of("CORRAL_SECONDS", 0) * 1000;
  unsigned long computes = 0, fenced = 0, fills = 0, stale = 0, verdicts = 0, landings = 0;
  for (uint64_t seed = first; seed < first + count; seed++) {
    if (seed + 1 == first + count && crl_env_now_ms() < until) count++;
    const world *w = live(seed, SOUND);
    if (w->violations > 0) fail_msg("CORRAL_SEED=%llu: %u violations, the first: promise %s", (unsigned long long)seed, w->violations, w->first);
    computes += w->computes;
    fenced += w->fenced;
    fills += w->fills;
    stale += w->stale;
    verdicts += w->verdicts;
    landings += w->landings;
  }
  printf("%llu worlds, %lu computes, %lu fills\n", (unsigned long long)count, computes, fills);
  if (count < 100) return;
  /* the worlds were as wild as they were meant to be */
  assert_true(landings > 100 * count && computes > 5 * count && fills > 3 * count);
  assert_true(fenced > count / 4 && stale > count && verdicts > count);
}

static void a_seed_makes_the_same_world_again(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed < 10; seed++) {
    world a = *live(seed, SOUND);
    const world *b = live(seed, SOUND);
    assert_memory_equal(&a, b, sizeof a);
  }
}

/* The controls. */

static void a_store_that_settles_without_asking_for_the_token_is_found_out(void **state) {
  (void)state;
  unsigned one = 0, two = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    const world *w = live(seed, SETTLE_IGNORES_THE_TOKEN);
    one += w->violations > 0 && w->first[0] == '1';
    two += w->violations > 1;
  }
  assert_true(one > 10);
  assert_true(two > 5);
}

/* A lost claim that arrives late, after an invalidate, would give its flight's lease back to it. */
static void claims_that_share_a_token_are_found_out(void **state) {
  (void)state;
  unsigned worlds = 0;
  for (uint64_t seed = 1; seed <= 3000 && worlds == 0; seed++) worlds += live(seed, CLAIMS_SHARE_A_TOKEN)->violations > 0;
  assert_int_equal(worlds, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whatever_befalls_a_herd_the_promises_hold),
      cmocka_unit_test(a_seed_makes_the_same_world_again),
      cmocka_unit_test(a_store_that_settles_without_asking_for_the_token_is_found_out),
      cmocka_unit_test(claims_that_share_a_token_are_found_out),
  };
  return cmocka_run_group_tests_name("swarm", tests, NULL, NULL);
}
