/* near.c: copies of values in this process: shards, each with a lock, a hash table and three
 * queues; two budgets over all of them.
 *
 * Eviction is S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache
 * eviction", SOSP'23): a new copy enters a small queue. A copy that was used twice there moves on
 * to the main queue; another one leaves, and its hash is remembered (a ghost). A key that is put
 * again while it has a ghost enters the main queue. Copies live shortly, so a popular one that
 * expires or is dropped leaves a ghost, too: its successor is as popular. Negatives have a queue of
 * their own, with the rule of the main one.
 *
 * Room is taken before a copy goes in, so a budget is never exceeded: the thread that needs room
 * judges the oldest copy of one shard after the other until there is enough. It holds no other lock
 * meanwhile, and frees nothing under a lock, since a store may take its time to free its bytes. */
#include "near/near.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "os/env.h"
#include "record/envelope.h"
#include "base/check.h"

enum {
  LINE = 64, /* bytes of a cache line */
  SHARDS_MOST = 64,
  SHARD_LEAST = 512 << 10, /* bytes of budget per shard, at least */
  BUCKETS_LEAST = 16,
  COUNTERS = 16, /* of drops; per shard */
  ONE_OF = 10,   /* the tenth that one copy, all negatives, or the small queue may take */
  HITS_MOST = 3, /* two bits, as in S3-FIFO */
  HITS_OF_POPULAR = 2,
  SAME_HASH_MOST = 4,
  OVERHEAD = 64 /* bytes that malloc, the table and the ghosts take for one copy */
};

enum { SMALL, MAIN, NEGATIVES, QUEUES };

typedef struct entry {
  struct entry *chain; /* the next in its bucket, or in a list of removed entries */
  uint64_t spot;
  int64_t over;      /* end of its last life; crl_env_now_ms */
  uint32_t hits, in; /* hits, up to HITS_MOST; index of its queue */
  size_t key_len;
  crl_near_copy copy;
  struct entry *older, *newer; /* its neighbours in the queue */
  size_t weight;
  uint8_t key[];
} entry;

typedef struct queue {
  entry *oldest, *newest;
  size_t weight;
} queue;

/* A remembered hash: `print` is its upper half, its lower bits are the index; `when`: the ghost
 * clock, 0: empty. */
typedef struct ghost {
  uint32_t print, when;
} ghost;

typedef struct shard {
  _Alignas(LINE) _Atomic int locked;
  uint32_t ghost_clock;
  size_t count, buckets; /* buckets: a power of two, and the number of ghosts, too */
  entry **table;
  /* a ghost counts until `count` others have been remembered after it */
  ghost *ghosts;
  queue queues[QUEUES];
  _Atomic uint64_t drops[COUNTERS];
} shard;

typedef struct budget {
  _Alignas(LINE) _Atomic size_t used;
  _Atomic size_t hand; /* the shard to look at next */
  size_t most;
} budget;

struct crl_near {
  void *memory;
  size_t shard_count, copy_most;
  budget values, negatives;
  shard shards[];
};

#ifdef CORRAL_CHECKS
static void check_queue(const queue *q, uint32_t in) {
  size_t weight = 0;
  int left = CRL_CHECK_MOST;
  CRL_MUST((q->oldest == NULL) == (q->newest == NULL), "near: a queue has both ends or none");
  for (const entry *e = q->oldest; e != NULL && left > 0; e = e->newer, left--) {
    CRL_MUST(e->in == in, "near: a copy is in its own queue");
    CRL_MUST(e->hits <= HITS_MOST, "near: hits are counted up to HITS_MOST");
    CRL_MUST((e->older == NULL) == (e == q->oldest), "near: the oldest has none before it");
    CRL_MUST(e->newer == NULL ? e == q->newest : e->newer->older == e,
             "near: neighbours know each other");
    weight += e->weight;
  }
  CRL_MUST(left == 0 || weight == q->weight, "near: a queue knows the weight of its copies");
}

static void check(const shard *s) {
  for (uint32_t in = 0; in < QUEUES; in++) check_queue(&s->queues[in], in);
}
#endif

/* ---- locks: held for under 1 us as a rule, released by a plain store (bench/near.c) -------- */

/* The holder may have lost its core. With real-time priorities it might never get the core back
 * while others merely yield: so they sleep in the end. */
static void lock_slowly(shard *s) {
  enum { LOOKS = 64, YIELDS = 64, PAUSE_US = 50 };
  int turns = 0;
  do {
    while (atomic_load_explicit(&s->locked, memory_order_relaxed)) {
      if (++turns < LOOKS) continue;
      if (turns < LOOKS + YIELDS)
        sched_yield();
      else
        crl_env_pause_us(PAUSE_US);
    }
  } while (atomic_exchange_explicit(&s->locked, 1, memory_order_acquire));
}

static inline void lock(shard *s) {
  if (atomic_exchange_explicit(&s->locked, 1, memory_order_acquire)) lock_slowly(s);
  CRL_CHECK(s);
}

static inline void unlock(shard *s) {
  CRL_CHECK(s);
  atomic_store_explicit(&s->locked, 0, memory_order_release);
}

/* ---- places -------------------------------------------------------------------------------- */

static inline shard *shard_of(crl_near *near, uint64_t spot) {
  return &near->shards[(spot >> 56) & (near->shard_count - 1)];
}

static _Atomic uint64_t *drops_of(shard *s, uint64_t spot) {
  return &s->drops[(spot >> 48) % COUNTERS];
}

static budget *budget_of(crl_near *near, int kind) {
  return kind == CRL_KIND_NEGATIVE ? &near->negatives : &near->values;
}

static inline entry **bucket_of(const shard *s, uint64_t spot) {
  return &s->table[spot & (s->buckets - 1)];
}

static inline entry *find(const shard *s, uint64_t spot, const void *key, size_t key_len) {
  entry *e = *bucket_of(s, spot);
  while (e != NULL &&
         (e->spot != spot || e->key_len != key_len || memcmp(e->key, key, key_len) != 0))
    e = e->chain;
  return e;
}

/* ---- entries that are in no shard ---------------------------------------------------------- */

static size_t weigh(size_t key_len, const crl_near_copy *copy) {
  size_t bytes = sizeof(crl_bytes) + copy->bytes->size;
  if (copy->metadata != NULL) bytes += sizeof(crl_bytes) + copy->metadata->size;
  return sizeof(entry) + key_len + OVERHEAD + bytes;
}

static int64_t end_of(const crl_near_copy *copy) {
  int64_t end = copy->fresh_until;
  if (copy->swr_until > end) end = copy->swr_until;
  return copy->sie_until > end ? copy->sie_until : end;
}

static inline void hand_out(const crl_near_copy *copy, crl_near_copy *ret) {
  *ret = *copy;
  crl_bytes_ref(ret->bytes);
  if (ret->metadata != NULL) crl_bytes_ref(ret->metadata);
}

static entry *make_entry(uint64_t spot, const void *key, size_t key_len, const crl_near_copy *copy,
                         size_t weight) {
  entry *e = crl_alloc(sizeof *e + key_len);
  if (e == NULL) return NULL;
  e->spot = spot;
  e->over = end_of(copy);
  e->key_len = key_len;
  e->weight = weight;
  memcpy(e->key, key, key_len);
  hand_out(copy, &e->copy);
  return e;
}

/* Frees a list of removed entries, and their room in the budgets. */
static void discard(crl_near *near, entry *list) {
  for (entry *next; list != NULL; list = next) {
    next = list->chain;
    atomic_fetch_sub_explicit(&budget_of(near, list->copy.kind)->used, list->weight,
                              memory_order_relaxed);
    crl_near_copy_clean(&list->copy);
    free(list);
  }
}

/* ---- under a shard's lock ------------------------------------------------------------------ */

static void ghost_remember(shard *s, uint64_t spot) {
  if (++s->ghost_clock == 0) s->ghost_clock = 1; /* 0 hits an empty ghost */
  s->ghosts[spot & (s->buckets - 1)] =
      (ghost){.print = (uint32_t)(spot >> 32), .when = s->ghost_clock};
}

/* True when the hash was remembered lately; forgets it. */
static int ghost_returns(shard *s, uint64_t spot) {
  ghost *g = &s->ghosts[spot & (s->buckets - 1)];
  int known =
      g->when != 0 && g->print == (uint32_t)(spot >> 32) && s->ghost_clock - g->when <= s->count;
  if (known) g->when = 0;
  return known;
}

static void queue_push(shard *s, uint32_t in, entry *e) {
  queue *q = &s->queues[in];
  e->in = in;
  e->newer = NULL;
  e->older = q->newest;
  if (q->newest != NULL)
    q->newest->newer = e;
  else
    q->oldest = e;
  q->newest = e;
  q->weight += e->weight;
}

static void queue_pull(shard *s, entry *e) {
  queue *q = &s->queues[e->in];
  if (e->newer != NULL)
    e->newer->older = e->older;
  else
    q->newest = e->older;
  if (e->older != NULL)
    e->older->newer = e->newer;
  else
    q->oldest = e->newer;
  q->weight -= e->weight;
}

static void queue_move(shard *s, uint32_t to, entry *e) {
  queue_pull(s, e);
  queue_push(s, to, e);
}

/* Doubles the buckets; without memory the chains get longer instead. The ghosts are forgotten,
 * which costs little: a shard grows while nothing has to be evicted. */
static void grow(shard *s) {
  size_t buckets = s->buckets * 2;
  entry **table = crl_alloc(buckets * sizeof *table), **old = s->table;
  ghost *ghosts = crl_alloc(buckets * sizeof *ghosts);
  if (table == NULL || ghosts == NULL) {
    free(table);
    free(ghosts);
    return;
  }
  size_t old_buckets = s->buckets;
  s->table = table;
  s->buckets = buckets;
  for (size_t i = 0; i < old_buckets; i++) {
    for (entry *e = old[i], *next; e != NULL; e = next) {
      next = e->chain;
      entry **bucket = bucket_of(s, e->spot);
      e->chain = *bucket;
      *bucket = e;
    }
  }
  free(old);
  free(s->ghosts);
  s->ghosts = ghosts;
}

static void put_in(shard *s, entry *e) {
  if (s->count >= s->buckets) grow(s);
  entry **bucket = bucket_of(s, e->spot);
  e->chain = *bucket;
  *bucket = e;
  if (e->copy.kind == CRL_KIND_NEGATIVE)
    queue_push(s, NEGATIVES, e);
  else
    queue_push(s, ghost_returns(s, e->spot) ? MAIN : SMALL, e);
  s->count++;
}

/* Removes an entry and puts it at the head of the list *gone. */
static void take_out(shard *s, entry *e, entry **gone) {
  entry **link = bucket_of(s, e->spot);
  while (*link != e) link = &(*link)->chain;
  *link = e->chain;
  queue_pull(s, e);
  s->count--;
  e->chain = *gone;
  *gone = e;
}

/* Removes an entry for a reason other than disuse: a popular one leaves a ghost. */
static void take_out_but_remember(shard *s, entry *e, entry **gone) {
  int popular = e->in == MAIN || (e->in == SMALL && e->hits >= HITS_OF_POPULAR);
  take_out(s, e, gone);
  if (popular) ghost_remember(s, e->spot);
}

/* Bounds the chain of keys that were made to share a hash: the newest SAME_HASH_MOST of them
 * stay. */
static void thin_out(shard *s, uint64_t spot, entry **gone) {
  size_t same = 0;
  for (entry *e = *bucket_of(s, spot), *next; e != NULL; e = next) {
    next = e->chain;
    if (e->spot == spot && ++same > SAME_HASH_MOST) take_out(s, e, gone);
  }
}

/* Gives e's copy to `there`, which keeps its place and its hits; e leaves with the old
 * copy. */
static void trade_copies(shard *s, entry *there, entry *e, entry **gone) {
  entry old = *there;
  there->copy = e->copy;
  there->over = e->over;
  there->weight = e->weight;
  e->copy = old.copy;
  e->weight = old.weight;
  s->queues[there->in].weight += there->weight - e->weight;
  e->chain = *gone;
  *gone = e;
}

/* Replaces `there` (NULL: none) by e; with e of NULL it only removes `there`. */
static void replace(shard *s, entry *there, entry *e, entry **gone) {
  if (there != NULL && e != NULL &&
      (there->in == NEGATIVES) == (e->copy.kind == CRL_KIND_NEGATIVE)) {
    trade_copies(s, there, e, gone);
    return;
  }
  if (there != NULL) take_out_but_remember(s, there, gone);
  if (e == NULL) return;
  put_in(s, e);
  thin_out(s, e->spot, gone);
}

/* ---- room ---------------------------------------------------------------------------------- */

static uint32_t queue_to_shrink(const shard *s) {
  const queue *small = &s->queues[SMALL], *in_main = &s->queues[MAIN];
  if (small->oldest == NULL) return MAIN;
  return in_main->oldest == NULL || small->weight >= (small->weight + in_main->weight) / ONE_OF
             ? SMALL
             : MAIN;
}

/* Removes the oldest entry of a queue, or moves it on: to the main queue, or to the end of its own
 * with one hit less. */
static void judge(shard *s, entry *e, int64_t now, entry **gone) {
  if (e->over <= now) {
    take_out_but_remember(s, e, gone);
  } else if (e->in == SMALL && e->hits >= HITS_OF_POPULAR) {
    e->hits = 0;
    queue_move(s, MAIN, e);
  } else if (e->in == SMALL) {
    take_out(s, e, gone);
    ghost_remember(s, e->spot);
  } else if (e->hits > 0) {
    e->hits--;
    queue_move(s, e->in, e);
  } else {
    take_out(s, e, gone);
  }
}

/* Judges one entry of one shard; false when the shard has none. */
static int look_for_room(crl_near *near, budget *b, int64_t now) {
  entry *gone = NULL;
  size_t turn = atomic_fetch_add_explicit(&b->hand, 1, memory_order_relaxed);
  shard *s = &near->shards[turn & (near->shard_count - 1)];
  lock(s);
  entry *e = s->queues[b == &near->negatives ? NEGATIVES : queue_to_shrink(s)].oldest;
  if (e != NULL) judge(s, e, now, &gone);
  unlock(s);
  discard(near, gone);
  return e != NULL;
}

/* False when puts that are under way have taken all room. */
static int take_room(crl_near *near, budget *b, size_t weight, int64_t now) {
  size_t barren = 0;
  while (barren <= near->shard_count) {
    size_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    if (used + weight > b->most)
      barren = look_for_room(near, b, now) ? 0 : barren + 1;
    else if (atomic_compare_exchange_weak_explicit(&b->used, &used, used + weight,
                                                   memory_order_relaxed, memory_order_relaxed))
      return 1;
  }
  return 0;
}

/* Makes an entry and takes its room; NULL when it is too large, or there is no room or memory. */
static entry *entry_with_room(crl_near *near, uint64_t spot, const void *key, size_t key_len,
                              const crl_near_copy *copy) {
  budget *b = budget_of(near, copy->kind);
  size_t weight = weigh(key_len, copy);
  if (weight > near->copy_most || !take_room(near, b, weight, copy->looked)) return NULL;
  entry *e = make_entry(spot, key, key_len, copy, weight);
  if (e == NULL) atomic_fetch_sub_explicit(&b->used, weight, memory_order_relaxed);
  return e;
}

/* ---- public -------------------------------------------------------------------------------- */

static size_t shards_for(size_t most) {
  size_t count = 1;
  while (count < SHARDS_MOST && count * 2 * SHARD_LEAST <= most) count *= 2;
  return count;
}

static int shard_init(shard *s) {
  s->buckets = BUCKETS_LEAST;
  s->table = crl_alloc(BUCKETS_LEAST * sizeof *s->table);
  s->ghosts = crl_alloc(BUCKETS_LEAST * sizeof *s->ghosts);
  return s->table != NULL && s->ghosts != NULL;
}

crl_near *crl_near_new(int64_t most) {
  size_t all = most > 0 ? (size_t)most : 0, count = shards_for(all);
  uint8_t *memory = crl_alloc(sizeof(crl_near) + count * sizeof(shard) + LINE);
  if (memory == NULL) return NULL;
  crl_near *near = (void *)(memory + (LINE - (uintptr_t)memory % LINE));
  near->memory = memory;
  near->shard_count = count;
  near->copy_most = near->negatives.most = all / ONE_OF;
  near->values.most = all - near->negatives.most;
  int whole = 1;
  for (size_t i = 0; i < count; i++) whole &= shard_init(&near->shards[i]);
  if (whole) return near;
  crl_near_free(near);
  return NULL;
}

void crl_near_free(crl_near *near) {
  for (size_t i = 0; i < near->shard_count; i++) {
    shard *s = &near->shards[i];
    for (entry *gone = NULL; s->count > 0; gone = NULL) {
      for (uint32_t in = 0; in < QUEUES; in++)
        if (s->queues[in].oldest != NULL) take_out(s, s->queues[in].oldest, &gone);
      discard(near, gone);
    }
    free(s->table);
    free(s->ghosts);
  }
  free(near->memory);
}

int crl_near_get(crl_near *near, uint64_t hash, const void *key, size_t key_len, int64_t now,
                 crl_near_copy *ret) {
  shard *s = shard_of(near, hash);
  entry *gone = NULL;
  int found = 0;
  lock(s);
  entry *e = find(s, hash, key, key_len);
  if (e != NULL && e->over <= now) {
    take_out_but_remember(s, e, &gone);
  } else if (e != NULL) {
    if (e->hits < HITS_MOST) e->hits++;
    hand_out(&e->copy, ret);
    found = 1;
  }
  unlock(s);
  discard(near, gone);
  return found;
}

uint64_t crl_near_epoch(crl_near *near, uint64_t hash) {
  return atomic_load_explicit(drops_of(shard_of(near, hash), hash), memory_order_acquire);
}

int crl_near_put(crl_near *near, uint64_t hash, const void *key, size_t key_len,
                 const crl_near_copy *copy, uint64_t epoch) {
  shard *s = shard_of(near, hash);
  /* A put that will be refused must not evict. */
  if (atomic_load_explicit(drops_of(s, hash), memory_order_acquire) != epoch) return 0;
  entry *e = entry_with_room(near, hash, key, key_len, copy), *gone = NULL;
  int kept = 0;
  lock(s);
  entry *there = find(s, hash, key, key_len);
  int is_newer = there == NULL || there->copy.looked <= copy->looked;
  if (is_newer && atomic_load_explicit(drops_of(s, hash), memory_order_relaxed) == epoch) {
    replace(s, there, e, &gone);
    kept = e != NULL;
  } else {
    gone = e;
  }
  unlock(s);
  discard(near, gone);
  return kept;
}

void crl_near_drop(crl_near *near, uint64_t hash) {
  shard *s = shard_of(near, hash);
  entry *gone = NULL;
  lock(s);
  atomic_fetch_add_explicit(drops_of(s, hash), 1, memory_order_release);
  for (entry *e = *bucket_of(s, hash), *next; e != NULL; e = next) {
    next = e->chain;
    if (e->spot == hash) take_out_but_remember(s, e, &gone);
  }
  unlock(s);
  discard(near, gone);
}

void crl_near_confirm(crl_near *near, uint64_t hash, uint64_t print) {
  shard *s = shard_of(near, hash);
  entry *gone = NULL;
  lock(s);
  for (entry *e = *bucket_of(s, hash), *next; e != NULL; e = next) {
    next = e->chain;
    if (e->spot != hash) continue;
    if (e->copy.print == print)
      e->copy.confirmed = 1;
    else
      take_out_but_remember(s, e, &gone);
  }
  unlock(s);
  discard(near, gone);
}

static void clear_shard(crl_near *near, shard *s) {
  entry *gone = NULL;
  lock(s);
  for (size_t i = 0; i < COUNTERS; i++)
    atomic_fetch_add_explicit(&s->drops[i], 1, memory_order_release);
  for (uint32_t in = 0; in < QUEUES; in++)
    while (s->queues[in].oldest != NULL) take_out_but_remember(s, s->queues[in].oldest, &gone);
  unlock(s);
  discard(near, gone);
}

void crl_near_clear(crl_near *near) {
  for (size_t i = 0; i < near->shard_count; i++) clear_shard(near, &near->shards[i]);
}

void crl_near_copy_clean(crl_near_copy *copy) {
  crl_bytes_unref(copy->bytes);
  crl_bytes_unref(copy->metadata);
  memset(copy, 0, sizeof *copy);
}

size_t crl_near_count(crl_near *near) {
  size_t count = 0;
  for (size_t i = 0; i < near->shard_count; i++) {
    lock(&near->shards[i]);
    count += near->shards[i].count;
    unlock(&near->shards[i]);
  }
  return count;
}

size_t crl_near_weight(crl_near *near) {
  return atomic_load_explicit(&near->values.used, memory_order_relaxed) +
         atomic_load_explicit(&near->negatives.used, memory_order_relaxed);
}
