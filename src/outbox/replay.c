/* replay.c: replays the changes of the outbox to a store that is back: invalidations, and fills
 * whose version is later than that of the stored value.
 *
 * A batch sends all its claims first, then a settle or a release for each. A fill without a version
 * stays in this process: the store can't tell whether something newer was stored and has expired
 * since. */
#include "outbox/replay.h"

#include <stdlib.h>

#include "os/env.h"
#include "record/envelope.h"
#include "record/key.h"
#include "store/put.h"

enum { BATCH = 32, ROUNDS = 4 };

typedef struct batch {
  const crl_replay *replay;
  crl_outbox_entry entries[BATCH];
  uint8_t tokens[BATCH][CORRAL_TOKEN];
  uint8_t wishes[BATCH][CORRAL_FRONT];
  uint8_t others[BATCH][CORRAL_TOKEN];
  uint8_t again[BATCH];   /* not done, though the server works */
  uint8_t settles[BATCH]; /* 1: the granted claim is settled; 0: it is released */
  corral_op ops[BATCH];
  size_t count;
} batch;

typedef struct place {
  const crl_pool *pool;
  size_t server;
} place;

static int is_there(void *arg, const void *key, size_t key_len) {
  const place *p = arg;
  return crl_pool_route(p->pool, key, key_len) == p->server;
}

static corral_op op_of(const batch *b, size_t i, corral_verb verb) {
  return (corral_op){.verb = verb,
                     .key = b->entries[i].key,
                     .key_len = b->entries[i].key_len,
                     .token = b->tokens[i]};
}

/* The tags of a record, malloc'ed; NULL when it has none, or none that can be read. */
static crl_tags *tags_of(const crl_bytes *record) {
  crl_envelope envelope;
  if (crl_envelope_read(record->data, record->size, NULL, &envelope) != CORRAL_OK ||
      envelope.tag_count == 0)
    return NULL;
  crl_tags *tags = crl_alloc(sizeof *tags);
  if (tags != NULL &&
      crl_tags_read(record->data + envelope.metadata_at, envelope.metadata_len, tags))
    return tags;
  free(tags);
  return NULL;
}

/* True when the record has tags whose tag versions could not be read when it was made: a change of
 * a tag version since its compute began would go unnoticed. */
static int is_unstamped(const crl_bytes *record) {
  int some = 0;
  crl_tags *tags = tags_of(record);
  for (size_t i = 0; tags != NULL && i < tags->count; i++) some |= tags->tag[i].hard == 0;
  free(tags);
  return some;
}

typedef struct tag_name {
  const void *name;
  size_t len;
} tag_name;

static int carries(void *arg, const crl_bytes *record) {
  const tag_name *wanted = arg;
  crl_tags *tags = tags_of(record);
  int found = tags != NULL && crl_tags_find(tags, wanted->name, wanted->len) != NULL;
  free(tags);
  return found;
}

void crl_replay_void(crl_replay *replay, const void *tag, size_t len) {
  tag_name wanted = {tag, len};
  crl_outbox_drop_if(replay->outbox, crl_env_now_ms(), carries, &wanted);
}

/* 0 where the store has no value: a newer one may have been stored and have expired. */
int crl_replay_is_newer(const crl_outbox_fill *fill, const corral_op *claimed) {
  corral_header header;
  crl_envelope stored;
  if (claimed->found.record == NULL || claimed->state.life_ms == 0 || is_unstamped(fill->record))
    return 0;
  if (crl_record_read_whole(claimed->found.record, claimed->found.len, &header) != CORRAL_OK ||
      header.flags != 0)
    return 0;
  if (crl_envelope_read(claimed->found.record, claimed->found.len,
                        crl_record_digest(fill->record->data), &stored) != CORRAL_OK)
    return 0;
  return stored.version != 0 && stored.version < fill->version;
}

static void make_claim(batch *b, size_t i, const crl_bytes *record, corral_op *op) {
  *op = op_of(b, i, CORRAL_VERB_CLAIM);
  op->claim.lease_ms = b->replay->lease_ms;
  op->claim.front = b->wishes[i];
  op->claim.front_len = crl_put_wish(crl_record_digest(record->data), 0, b->wishes[i]);
}

static void make_settle(const batch *b, size_t i, const crl_bytes *record, int64_t ttl_ms,
                        corral_op *op) {
  *op = op_of(b, i, CORRAL_VERB_SETTLE);
  op->settle.record = record->data;
  op->settle.record_len = record->size;
  op->settle.ttl_ms = ttl_ms;
}

/* Notes the token of the lease that keeps a successor out: the next claim takes that lease over. */
static void note_other(batch *b, size_t i, const corral_op *op) {
  corral_header header;
  if (b->entries[i].successor == NULL || op->status != CORRAL_EBUSY || op->found.record == NULL)
    return;
  if (crl_record_read_found(op, &header) == CORRAL_OK)
    memcpy(b->others[i], header.token, CORRAL_TOKEN);
}

/* 0: without randomness; then no operation counts as sent. */
static int draw_tokens(batch *b) {
  if (crl_env_random(b->tokens, b->count * sizeof *b->tokens) == CORRAL_OK) return 1;
  for (size_t i = 0; i < b->count; i++) b->ops[i].status = CORRAL_EUNAVAILABLE;
  return 0;
}

static int claim_all(batch *b, crl_pool *pool, size_t server) {
  if (!draw_tokens(b)) return 0;
  for (size_t i = 0; i < b->count; i++) {
    const crl_outbox_entry *entry = &b->entries[i];
    corral_op *op = &b->ops[i];
    *op = op_of(b, i, entry->invalidates ? CORRAL_VERB_INVALIDATE : CORRAL_VERB_CLAIM);
    if (entry->successor != NULL || !entry->invalidates)
      make_claim(b, i, entry->successor != NULL ? entry->successor : entry->fill.record, op);
  }
  int works = crl_pool_perform_probe(pool, server, b->ops, b->count);
  for (size_t i = 0; i < b->count; i++) {
    corral_op *op = &b->ops[i];
    b->settles[i] = op->verb == CORRAL_VERB_CLAIM && op->status == CORRAL_OK &&
                    (b->entries[i].invalidates || crl_replay_is_newer(&b->entries[i].fill, op));
    note_other(b, i, op);
    if (op->found.drop != NULL) op->found.drop(op->found.owner);
    op->found.drop = NULL;
  }
  return works;
}

static void report(const batch *b, size_t i) {
  size_t len;
  const void *key = crl_key_shown(b->entries[i].key, b->entries[i].key_len, &len);
  crl_event_emit(b->replay->events, CORRAL_EVENT_REPLAYED, key, len, NULL);
}

/* Writes the ops that follow an entry's successful first op; returns the end of the ops. */
static corral_op *make_second(batch *b, size_t i, int64_t now, corral_op *op) {
  const crl_outbox_entry *entry = &b->entries[i];
  int64_t left = entry->fill.hard_ttl - (now - entry->fill.made);
  if (entry->successor != NULL) {
    make_claim(b, i, entry->successor, op);
    op++->claim.over = b->others[i];
    make_settle(b, i, entry->successor, CRL_LIFE_MOST, op++);
  } else if (!entry->invalidates && b->settles[i] && left > 0) {
    make_settle(b, i, entry->fill.record, left, op++);
  } else if (!entry->invalidates) {
    *op++ = op_of(b, i, CORRAL_VERB_RELEASE);
  }
  return op;
}

/* Takes the result of an entry's last op. */
static void take_second(batch *b, size_t i, const corral_op *op) {
  const crl_outbox_entry *entry = &b->entries[i];
  int done = op->status == CORRAL_OK && op->verb != CORRAL_VERB_RELEASE;
  if (done && entry->invalidates) crl_outbox_replayed(b->replay->outbox, entry);
  if (done) report(b, i);
  b->again[i] = !done && entry->invalidates;
}

static int goes_on(const batch *b, size_t i) {
  int status = b->ops[i].status;
  return status == CORRAL_OK || (b->entries[i].successor != NULL && status == CORRAL_EBUSY);
}

/* Sends the second ops of all entries. Each entry is done then, whatever the reply, except a
 * successor that another lease kept out. */
static int finish_all(batch *b, crl_pool *pool, size_t server) {
  corral_op ops[2 * BATCH], *end = ops;
  const corral_op *last[BATCH];
  int64_t now = crl_env_now_ms();
  for (size_t i = 0; i < b->count; i++) {
    corral_op *from = end;
    last[i] = &b->ops[i];
    if (!goes_on(b, i)) continue;
    end = make_second(b, i, now, end);
    if (end > from) last[i] = end - 1;
  }
  int works = end == ops || crl_pool_perform_probe(pool, server, ops, (size_t)(end - ops));
  for (corral_op *op = ops; op < end; op++)
    if (op->found.drop != NULL) op->found.drop(op->found.owner);
  for (size_t i = 0; i < b->count; i++)
    if (goes_on(b, i)) take_second(b, i, last[i]);
  return works;
}

static int offer_batch(batch *b, crl_pool *pool, size_t server) {
  int works = claim_all(b, pool, server) && finish_all(b, pool, server);
  for (size_t i = 0; i < b->count; i++) {
    int sent = b->ops[i].status != CORRAL_EUNAVAILABLE && b->ops[i].status != CORRAL_EINDOUBT;
    b->again[i] |= !sent;
    if (b->again[i]) crl_outbox_return(b->replay->outbox, &b->entries[i]);
    crl_outbox_entry_clean(&b->entries[i]);
  }
  return works;
}

/* Replays all entries held at this moment; returns whether there were any. *works: 0 when the
 * server failed. */
static int replay_round(batch *b, const crl_replay *replay, crl_pool *pool, size_t server,
                        int *works) {
  place there = {pool, server};
  int64_t now = crl_env_now_ms();
  size_t all = 0, again;
  do {
    memset(b, 0, sizeof *b);
    b->replay = replay;
    b->count = crl_outbox_replay(replay->outbox, now, is_there, &there, b->entries, BATCH);
    all += b->count;
    *works = b->count == 0 || offer_batch(b, pool, server);
    again = 0;
    for (size_t i = 0; i < b->count; i++) again += b->again[i];
  } while (*works && b->count > again);
  return all > 0;
}

/* The number of rounds is bounded, since callers go on to fill meanwhile. */
int crl_replay_all(void *arg, crl_pool *pool, size_t server) {
  int works = 1;
  batch *b = crl_alloc(sizeof *b);
  if (b == NULL) return 1;
  for (int i = 0; i < ROUNDS && works; i++)
    if (!replay_round(b, arg, pool, server, &works)) break;
  free(b);
  return works;
}

/* The servers that have keys of the outbox. */
typedef struct homes {
  const crl_pool *pool;
  uint8_t has[CORRAL_SERVERS];
} homes;

static void note_home(void *arg, const void *key, size_t key_len) {
  homes *h = arg;
  h->has[crl_pool_route(h->pool, key, key_len) % CORRAL_SERVERS] = 1;
}

void crl_replay_moved(void *arg, crl_pool *pool) {
  const crl_replay *replay = arg;
  homes h = {.pool = pool};
  crl_outbox_visit(replay->outbox, crl_env_now_ms(), note_home, &h);
  for (size_t i = 0; i < CORRAL_SERVERS; i++)
    if (h.has[i]) crl_pool_doubt(pool, i);
}
