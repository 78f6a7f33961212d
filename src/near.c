/* near.c: the near tier: copies in this process in front of any store.
 *
 * Keys are spread over shards, each with a mutex, a hash table and queues; the bytes of all shards are counted together. A hit holds one mutex for
 * a look into the table, two counts of references and a mark.
 *
 * Eviction is S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction", SOSP'23) within a shard: a small queue
 * for newcomers, a main queue, and the hashes of those that left the small one. "No such thing"s have a queue and a budget of
 * their own, so that they can never evict a value. */
#include "near.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "envelope.h"

enum { SHARDS = 64, BUCKETS_LEAST = 16, GHOSTS_LEAST = 16, GHOSTS_MOST = 1 << 16, GHOST_PER_BYTES = 512, MARK_MOST = 3, SHARE = 10, OVERHEAD = 64 };

typedef struct entry entry;

typedef struct queue {
  entry *newest, *oldest;
  int64_t bytes;
  size_t count;
} queue;

struct entry {
  entry *chain, *newer, *older;
  queue *in;
  uint64_t hash;
  int64_t weight;
  unsigned marks;
  crl_near_copy copy;
  size_t key_len;
  uint8_t key[];
};

typedef struct ghost {
  uint32_t print, when;
} ghost;

typedef struct shard {
  _Alignas(64) pthread_mutex_t mutex;
  entry **buckets;
  size_t bucket_count, count;
  queue small, main, negatives;
  ghost *ghosts; /* by hash; one is forgotten when the main queue has since been passed through */
  uint32_t ghost_clock;
  _Atomic uint64_t drops; /* what tickets are of */
} shard;

struct crl_near {
  uint64_t seed;
  int64_t most;
  size_t ghosts; /* of a shard */
  _Atomic int64_t used, used_by_negatives;
  _Atomic size_t hand; /* the shard to evict from next */
  shard shards[SHARDS];
};

/* The hash is the store's: everybody knows it, so the table's own order is another one. */
static uint64_t spread(const crl_near *near, uint64_t hash) {
  uint64_t z = hash ^ near->seed;
  z = (z ^ (z >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
  return z ^ (z >> 29);
}

static shard *shard_of(crl_near *near, uint64_t hash) { return &near->shards[spread(near, hash) >> 58]; }

/* ---- entries and queues: under the shard's mutex --------------------------------------------------------- */

static void push(queue *q, entry *e) {
  e->in = q;
  e->newer = NULL;
  e->older = q->newest;
  if (q->newest != NULL) q->newest->newer = e;
  else q->oldest = e;
  q->newest = e;
  q->bytes += e->weight;
  q->count++;
}

static void pull(entry *e) {
  queue *q = e->in;
  if (e->newer != NULL) e->newer->older = e->older;
  else q->newest = e->older;
  if (e->older != NULL) e->older->newer = e->newer;
  else q->oldest = e->newer;
  q->bytes -= e->weight;
  q->count--;
}

static void again(queue *q, entry *e) {
  pull(e);
  push(q, e);
}

static entry **bucket_of(const crl_near *near, shard *s, uint64_t hash) { return &s->buckets[spread(near, hash) & (s->bucket_count - 1)]; }

static entry **find(const crl_near *near, shard *s, uint64_t hash, const void *key, size_t key_len) {
  entry **at = bucket_of(near, s, hash);
  while (*at != NULL && ((*at)->hash != hash || (*at)->key_len != key_len || memcmp((*at)->key, key, key_len) != 0)) at = &(*at)->chain;
  return at;
}

static _Atomic int64_t *budget_of(crl_near *near, const entry *e) {
  return e->copy.kind == CRL_KIND_NEGATIVE ? &near->used_by_negatives : &near->used;
}

static void free_entry(entry *e) {
  crl_near_copy_clean(&e->copy);
  free(e);
}

static void remove_at(crl_near *near, shard *s, entry **at) {
  entry *e = *at;
  *at = e->chain;
  pull(e);
  s->count--;
  atomic_fetch_sub(budget_of(near, e), e->weight);
  free_entry(e);
}

static void remove_entry(crl_near *near, shard *s, entry *e) {
  entry **at = bucket_of(near, s, e->hash);
  while (*at != e) at = &(*at)->chain;
  remove_at(near, s, at);
}

/* Longer chains serve as well. */
static void grow(const crl_near *near, shard *s) {
  size_t before = s->bucket_count;
  entry **old = s->buckets, **buckets = crl_alloc(2 * before * sizeof(entry *));
  if (buckets == NULL) return;
  s->buckets = buckets;
  s->bucket_count = 2 * before;
  for (size_t i = 0; i < before; i++)
    for (entry *e = old[i], *next; e != NULL; e = next) {
      entry **bucket = bucket_of(near, s, e->hash);
      next = e->chain;
      e->chain = *bucket;
      *bucket = e;
    }
  free(old);
}

static void remember(const crl_near *near, shard *s, uint64_t hash) {
  s->ghosts[hash % near->ghosts] = (ghost){(uint32_t)(hash >> 32), ++s->ghost_clock};
}

static int is_known(const crl_near *near, const shard *s, uint64_t hash) {
  const ghost *g = &s->ghosts[hash % near->ghosts];
  return g->when != 0 && g->print == (uint32_t)(hash >> 32) && s->ghost_clock - g->when <= s->main.count;
}

static void add(crl_near *near, shard *s, entry *e) {
  entry **bucket = bucket_of(near, s, e->hash);
  e->chain = *bucket;
  *bucket = e;
  s->count++;
  push(e->copy.kind == CRL_KIND_NEGATIVE ? &s->negatives : is_known(near, s, e->hash) ? &s->main : &s->small, e);
  atomic_fetch_add(budget_of(near, e), e->weight);
  if (s->count > s->bucket_count) grow(near, s);
}

/* ---- eviction -------------------------------------------------------------------------------------------- */

/* The oldest of a queue goes, or, if it was hit, goes back to the end of `then`. 1: it went. */
static int turn_out(crl_near *near, shard *s, queue *q, queue *then, unsigned enough) {
  entry *e = q->oldest;
  if (e->marks >= enough) {
    e->marks = q == then ? e->marks - 1 : 0;
    again(then, e);
    return 0;
  }
  if (q == &s->small) remember(near, s, e->hash);
  remove_entry(near, s, e);
  return 1;
}

/* One value of this shard; 0 when it has none. */
static int evict_value(crl_near *near, shard *s) {
  while (s->small.count + s->main.count > 0) {
    int from_small = s->main.count == 0 || (s->small.count > 0 && s->small.bytes >= (s->small.bytes + s->main.bytes) / SHARE);
    if (from_small ? turn_out(near, s, &s->small, &s->main, 2) : turn_out(near, s, &s->main, &s->main, 1)) return 1;
  }
  return 0;
}

static int evict_negative(crl_near *near, shard *s) {
  while (s->negatives.count > 0)
    if (turn_out(near, s, &s->negatives, &s->negatives, 1)) return 1;
  return 0;
}

/* What is over a budget: 1 values, 2 negatives. */
static int excess(crl_near *near) {
  return (atomic_load(&near->used) > near->most - near->most / SHARE) | (atomic_load(&near->used_by_negatives) > near->most / SHARE) << 1;
}

/* One turn at a shard, which may be left with `least` of each kind; 1 when something went. */
static int relieve(crl_near *near, shard *s, int over, size_t least) {
  pthread_mutex_lock(&s->mutex);
  int gone = (over & 1) != 0 && s->small.count + s->main.count > least && evict_value(near, s);
  gone += (over & 2) != 0 && s->negatives.count > least && evict_negative(near, s);
  pthread_mutex_unlock(&s->mutex);
  return gone;
}

/* Where the newcomer went others are to go, as if each shard had a budget of its own; only when it is alone there, elsewhere. */
static void make_room(crl_near *near, shard *home) {
  int over;
  while ((over = excess(near)) != 0 && relieve(near, home, over, 1)) continue;
  for (size_t barren = 0; barren < SHARDS && (over = excess(near)) != 0;)
    barren = relieve(near, &near->shards[atomic_fetch_add(&near->hand, 1) % SHARDS], over, 0) ? 0 : barren + 1;
}

/* ---- public ---------------------------------------------------------------------------------------------- */

crl_near *crl_near_new(int64_t most, uint64_t seed) {
  crl_near *near = aligned_alloc(64, sizeof *near);
  if (near == NULL) return NULL;
  memset(near, 0, sizeof *near);
  near->most = most;
  for (near->ghosts = GHOSTS_LEAST; near->ghosts < GHOSTS_MOST && (int64_t)near->ghosts * SHARDS * GHOST_PER_BYTES < most;) near->ghosts *= 2;
  near->seed = seed;
  int whole = 1;
  for (size_t i = 0; i < SHARDS; i++) {
    shard *s = &near->shards[i];
    pthread_mutexattr_t adaptive;
    pthread_mutexattr_init(&adaptive);
    pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&s->mutex, &adaptive);
    pthread_mutexattr_destroy(&adaptive);
    s->buckets = crl_alloc(BUCKETS_LEAST * sizeof(entry *));
    s->ghosts = crl_alloc(near->ghosts * sizeof *s->ghosts);
    s->bucket_count = BUCKETS_LEAST;
    whole = whole && s->buckets != NULL && s->ghosts != NULL;
  }
  if (whole) return near;
  crl_near_free(near);
  return NULL;
}

static void empty(crl_near *near, shard *s) {
  for (size_t i = 0; s->buckets != NULL && i < s->bucket_count; i++)
    while (s->buckets[i] != NULL) remove_at(near, s, &s->buckets[i]);
}

void crl_near_free(crl_near *near) {
  for (size_t i = 0; i < SHARDS; i++) {
    empty(near, &near->shards[i]);
    free(near->shards[i].buckets);
    free(near->shards[i].ghosts);
    pthread_mutex_destroy(&near->shards[i].mutex);
  }
  free(near);
}

static int is_over(const crl_near_copy *copy, int64_t now) { return copy->fresh_until <= now && copy->swr_until <= now && copy->sie_until <= now; }

static void take_refs(crl_near_copy *copy) {
  crl_bytes_ref(copy->bytes);
  if (copy->extras != NULL) crl_bytes_ref(copy->extras);
}

int crl_near_get(crl_near *near, uint64_t hash, const void *key, size_t key_len, int64_t now, crl_near_copy *ret) {
  shard *s = shard_of(near, hash);
  int found = 0;
  pthread_mutex_lock(&s->mutex);
  entry **at = find(near, s, hash, key, key_len), *e = *at;
  if (e != NULL && is_over(&e->copy, now)) {
    remove_at(near, s, at);
  } else if (e != NULL) {
    if (e->marks < MARK_MOST) e->marks++;
    *ret = e->copy;
    take_refs(ret);
    found = 1;
  }
  pthread_mutex_unlock(&s->mutex);
  return found;
}

uint64_t crl_near_ticket(crl_near *near, uint64_t hash) { return atomic_load(&shard_of(near, hash)->drops); }

static entry *new_entry(uint64_t hash, const void *key, size_t key_len, const crl_near_copy *copy) {
  entry *e = crl_alloc(sizeof *e + key_len);
  if (e == NULL) return NULL;
  e->hash = hash;
  e->key_len = key_len;
  memcpy(e->key, key, key_len);
  e->copy = *copy;
  take_refs(&e->copy);
  e->weight = (int64_t)(sizeof *e + key_len + OVERHEAD + copy->bytes->size + (copy->extras == NULL ? 0 : copy->extras->size));
  return e;
}

int crl_near_put(crl_near *near, uint64_t hash, const void *key, size_t key_len, const crl_near_copy *copy, uint64_t ticket) {
  shard *s = shard_of(near, hash);
  entry *e = new_entry(hash, key, key_len, copy);
  if (e == NULL) return 0;
  int fits = e->weight <= near->most / SHARE;
  pthread_mutex_lock(&s->mutex);
  int kept = fits && atomic_load(&s->drops) == ticket;
  entry **there = find(near, s, hash, key, key_len);
  /* One that is replaced was wanted before: its marks go on. */
  if (*there != NULL && (kept || !fits)) {
    e->marks = (*there)->marks;
    remove_at(near, s, there);
  }
  if (kept) add(near, s, e);
  pthread_mutex_unlock(&s->mutex);
  if (kept) make_room(near, s);
  else free_entry(e);
  return kept;
}

void crl_near_drop(crl_near *near, uint64_t hash) {
  shard *s = shard_of(near, hash);
  pthread_mutex_lock(&s->mutex);
  atomic_fetch_add(&s->drops, 1);
  for (entry **at = bucket_of(near, s, hash); *at != NULL;) {
    if ((*at)->hash == hash) remove_at(near, s, at);
    else at = &(*at)->chain;
  }
  pthread_mutex_unlock(&s->mutex);
}

void crl_near_clear(crl_near *near) {
  for (size_t i = 0; i < SHARDS; i++) {
    shard *s = &near->shards[i];
    pthread_mutex_lock(&s->mutex);
    atomic_fetch_add(&s->drops, 1);
    empty(near, s);
    pthread_mutex_unlock(&s->mutex);
  }
}

void crl_near_copy_clean(crl_near_copy *copy) {
  crl_bytes_unref(copy->bytes);
  crl_bytes_unref(copy->extras);
  copy->bytes = copy->extras = NULL;
}

size_t crl_near_count(crl_near *near) {
  size_t count = 0;
  for (size_t i = 0; i < SHARDS; i++) {
    pthread_mutex_lock(&near->shards[i].mutex);
    count += near->shards[i].count;
    pthread_mutex_unlock(&near->shards[i].mutex);
  }
  return count;
}

size_t crl_near_weight(crl_near *near) { return (size_t)(atomic_load(&near->used) + atomic_load(&near->used_by_negatives)); }
