/* swarm_world.h: a simulated world with its own clock: processes, a store, the true state of the
 * origin, and a queue of events. */
#ifndef TESTS_SWARM_WORLD_H
#define TESTS_SWARM_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flight/flight.h"
#include "record/envelope.h"
#include "tags/tag_versions.h"
#include "outbox/replay.h"
#include "record/record.h"

enum {
  PROCESSES = 6,
  FLIGHTS = 5,     /* at a time in one process */
  TAKE_OFFS = 400, /* in one world */
  EVENTS = 4096,
  OP_MS = 50,
  STALL_MS = 250, /* longest stall of the store: shorter than any away_ms */
  LEASE_MS = 100,
  LEASE_FIRST_MS = 40, /* doubles with each renewal */
  WAIT_MS = 400,
  WORLD_MS = 4000,
  RECORD = 512,
  REPLAYS = 4,      /* entries that one process replays at a time */
  REPEATED_MS = 10, /* until a change is repeated that a server may not have heard of */
  /* in the liveness mode: time from the end of the faults until all that they left behind is over
   * (late messages, leases of the dead, pauses after failures, partitions that heal, replays); and
   * then the longest time until a call has a value, but for its own compute, and for lease_ms of
   * a host's lock whose holder shows no lease */
  CALM_MS = 10 * LEASE_MS,
  SERVED_MS = 350,
  /* in the cluster mode: longest time of a report by a watch, until a connection that has ended is
   * noticed, and between two looks at the map */
  PUSH_MS = 6,
  SILENCE_MS = 20,
  MAP_MS = 60,
  NEAR_LATE_MS = MAP_MS + SILENCE_MS + 3 * PUSH_MS,
  FLOORS = 1024,
  TRIES_MS = 3000,
  OUTSIDE = -1 /* number of a process that is never killed, paused or cut off */
};

static const char key[] = "the key", tag_key[] = "the tag";
static const uint8_t digest[CORRAL_DIGEST] = "key";

typedef enum what {
  TAKE_OFF = 1,
  ARRIVES,
  READS_MARK,
  STAMPS,
  TOLD,
  EXTENDS,
  KILL,
  PAUSE,
  FLUSH,
  STALL,
  /* a change of the origin, and of the store: begins, arrives at the store, returns */
  CHANGE,
  CHANGES,
  CHANGED,
  PARTITION,
  FAULTS_END,
  HEAL,
  REPLAYS_AT,
  REPLAYED,
  /* in the cluster mode */
  SLOT_MOVES,
  FAILS_OVER,
  REPLICATES,
  CONFIRMS,
  ASKS_MAP,
  REGISTERS,
  REGISTERED,
  PUSHED
} what;

/* The target of a change: the value's key or its tag. */
typedef enum thing { THE_KEY, THE_TAG, THINGS } thing;

/* `life` tells a killed process from its successor, and a flight from the next one in its slot. */
typedef struct event {
  int64_t at;
  uint64_t order;
  what what;
  int flight, process, entry;
  unsigned life, ask_number;
  /* arriving at the store */
  corral_verb verb;
  thing thing;
  uint8_t token[CORRAL_TOKEN];
  uint8_t record[RECORD];
  size_t record_len;
  int64_t lease_ms, ttl_ms, reply_in; /* reply_in: ms until the reply; -1: the reply gets lost */
  /* told to the flight */
  crl_told told;
  /* the origin's version at the start of the compute; for a change: after the change */
  uint64_t read;
  uint64_t version;        /* version in the value; 0: none */
  uint64_t stored_version; /* version of the found record, void or not */
  uint64_t tag_version;    /* the tag's version as read; 0: none */
  uint64_t remembered;     /* the tag's version in the found record */
  int has_found, newer;
  int if_there; /* HEAL: unless the process is cut off */
  /* in the cluster mode: the server that is asked; the process's map; the record's print */
  unsigned server, map, epoch;
  uint64_t print, change;
  int64_t sent;
  enum what then;
} event;

typedef struct scheduler {
  crl_flight flight;
  unsigned life, ask_number;
  int flying, claimed, computed, was_answered, detached, renews, has_old;
  int meets_passed; /* the holder of the host's lock that it last met was passed by */
  int is_refused;   /* its last ask was refused: the store is away */
  crl_ask ask;
  uint8_t token[CORRAL_TOKEN];
  int64_t deadline, excused; /* excused: time of its own computes and of its process's pauses */
  int64_t began, claim_sent, lease_ms;
  /* least origin version that the current look may find; that it may find fresh */
  uint64_t floor, expire_floor;
  uint64_t found, found_floor, read, version; /* found may be this call's answer later on */
  uint64_t old_version, stored_version, tag_version, held, held_floor, join_floor;
  int has_held; /* what the outbox gave counts instead of `found` */
  uint8_t product[RECORD];
  size_t product_len;
  int64_t hard_ttl;
  uint64_t near_epoch; /* before its look, which was at `looked` */
  int64_t looked;
} scheduler;

/* A held entry being replayed to the store. */
typedef struct replay {
  crl_outbox_entry entry;
  uint8_t token[CORRAL_TOKEN];
  uint64_t read;
} replay;

typedef struct process {
  unsigned life;
  int64_t paused_until;
  int gone; /* for good: in the liveness mode */
  int away, rounds, pending, failed;
  uint64_t wished[THINGS]; /* origin version of the latest change that failed, by target */
  uint64_t heard;          /* origin version of the latest change of this process that succeeded */
  uint64_t own_change;     /* origin version of the latest change of this process, failed or not */
  /* number of the hold of its host's lock that it passed by; as it remembers */
  unsigned passed_hold, remembered_hold;
  /* in the cluster mode: the slot's server by its map, which has a number; the server that tells of
   * the key's next change, 0: none; when its watch hears of what was told last */
  unsigned server, map, registered;
  int64_t heard_at;
} process;

/* A deliberate defect in the model, to show that the oracle detects it. */
typedef enum control {
  SOUND,
  SETTLE_IGNORES_THE_TOKEN,
  CLAIMS_SHARE_A_TOKEN,
  REPLAY_IGNORES_VERSIONS,
  REPLAY_FORGETS_INVALIDATIONS,
  REPLAY_DELETES_THE_TAG,
  TAGS_ARE_NOT_CHECKED,
  SETTLE_IGNORES_VERSIONS,
  JOINS_WHAT_IS_DETACHED,
  EXPIRE_DOES_NOTHING,
  LEASES_NEVER_END,
  PARTITIONS_NEVER_HEAL,
  WAITERS_ARE_FORGOTTEN,
  SLOW_IS_AWAY,
  KEYS_END_WITH_THEIR_LEASES,
  HOLDERS_ARE_NOT_REMEMBERED,
  VERDICTS_ARE_NOT_STORED,
  COPIES_OUTLIVE_MOVES,
  INVALIDATIONS_ARE_NOT_CONFIRMED,
  UNHEARD_CHANGES_ARE_FORGOTTEN
} control;

/* The store's record of a tag. */
typedef struct tag_version {
  int there, changed;
  uint64_t hard;
  int64_t since;
} tag_version;

/* A key at a server: the store's part of a world, and the oracle's knowledge of it. */
typedef struct stored {
  uint8_t record[2 * RECORD];
  size_t record_len; /* 0: no record */
  int64_t expires;
  tag_version tag_version;
  /* the true state: the origin's version when the value's compute began or it was renewed */
  uint64_t truth;
  uint8_t holder[CORRAL_TOKEN];
  int held;
  int64_t held_until, verdict_until;
  uint64_t reached; /* origin version of the latest invalidation that came here */
} stored;

/* The cluster mode. */
typedef struct slots {
  unsigned server;              /* has the slot; 0: another mode */
  unsigned epoch;               /* of the slot: how often it has had another server */
  uint64_t changes, replicated; /* changes so far, and those that the replica has */
  stored replica;
  int64_t floor_at[FLOORS]; /* when world.floor became `floor` */
  uint64_t floor[FLOORS];
  size_t floors;
  unsigned moves, failovers, lost, hops, near, confirmed, doubted; /* counters */
} slots;

/* The healing mode: no faults but one outage of the origin, fast messages and computes, and callers
 * all the time. */
typedef struct healing {
  int64_t outage;       /* how long computes fail, from the first one on; 0: another mode */
  int64_t first, fresh; /* when the first compute began, and a call had a value; 0: not yet */
  unsigned tries;       /* computes within TRIES_MS of the first one, until a call had a value */
} healing;

typedef struct world {
  uint64_t seed, dice, order;
  int64_t now;
  control control;
  int64_t faults_end; /* the liveness mode: when they end for the core; 0: another mode */
  healing healing;
  slots slots;
  event heap[EVENTS];
  size_t events;
  scheduler pilots[PROCESSES * FLIGHTS];
  process processes[PROCESSES];
  /* ladder: elections begin with the host lock. Two hosts with half of the processes each */
  int ladder;
  scheduler *host_holder[2];
  unsigned host_hold[2]; /* number of the hold */
  corral_policy policy;
  /* kinds of values */
  int tagged, lags; /* lags: a compute may read an older version than the origin has */
  int versions_pct; /* share of values with a version */
  stored primary;
  int64_t stalled_until; /* nothing arrives before */
  /* true state */
  uint64_t version;      /* current version of the origin */
  uint64_t floor;        /* an invalidation of older versions has returned */
  uint64_t expire_floor; /* an expiry of older versions has returned */
  /* counters */
  unsigned take_offs, landings, computes, fills, fenced, kills, pauses, stale, verdicts, violations;
  unsigned served; /* calls judged in calm */
  unsigned replayed_fills, replayed_changes, renewals, passes, older, voids, held_hits, joins,
      outages, stalls, late, late_fills;
  char first[160];
} world;

/* Entries that the processes hold for a replay; allocated apart from the world. */
static crl_outbox *held_by[PROCESSES];
static replay replays[PROCESSES][REPLAYS];

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

/* ---- the liveness mode --------------------------------------------------------------------- */

/* The processes for which the faults end: two of the one host, one of the other. */
static int is_core(int number) { return number % 2 == 0; }

static int faults_ended(const world *w) { return w->faults_end > 0 && w->now >= w->faults_end; }

/* Chance of a fault of this process, or of its messages. */
static int mishap(world *w, int number, int percent) {
  return w->healing.outage == 0 && !(faults_ended(w) && (number == OUTSIDE || is_core(number))) &&
         chance(w, percent);
}

static void expect(world *w, int holds, const char *promise) {
  if (holds) return;
  if (w->violations++ == 0)
    snprintf(w->first, sizeof w->first, "%s, at %lld ms", promise, (long long)w->now);
}

/* ---- the healing mode ---------------------------------------------------------------------- */

/* Time of a message. */
static int64_t way(world *w) { return between(w, 0, w->healing.outage > 0 ? 1 : 6); }

static crl_made try_origin(world *w) {
  healing *h = &w->healing;
  if (h->first == 0) h->first = w->now;
  if (h->fresh == 0 && w->now < h->first + TRIES_MS) h->tries++;
  return w->now < h->first + h->outage ? CRL_MADE_FAILURE : CRL_MADE_VALUE;
}

/* ---- events: a heap ordered by time, then by creation -------------------------------------- */

static int before(const event *a, const event *b) {
  return a->at != b->at ? a->at < b->at : a->order < b->order;
}

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
  for (; i > 0 && before(&w->heap[i], &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
    swap(&w->heap[i], &w->heap[(i - 1) / 2]);
}

/* Has a process that isn't cut off repeat what it holds for the store. */
static void plan_repetition(world *w, int number) {
  event e = {.at = w->now + REPEATED_MS,
             .what = HEAL,
             .process = number,
             .life = w->processes[number].life,
             .if_there = 1};
  if (w->control != UNHEARD_CHANGES_ARE_FORGOTTEN) plan_event(w, &e);
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

#endif
