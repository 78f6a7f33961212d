/* shard.c: a part of the near tier: its table and its queues.
 *
 * Eviction is S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache
 * eviction", SOSP'23): a new copy enters a small queue. A copy that was used twice there moves on
 * to the main queue; another one leaves, and its hash is remembered (a ghost). A key that is put
 * again while it has a ghost enters the main queue. Copies live shortly, so a popular one that
 * expires or is dropped leaves a ghost, too: its successor is as popular. Negatives have a queue of
 * their own, with the rule of the main one. */
#include "near/shard.h"

#include <sched.h>
#include <stdlib.h>

#include "base/check.h"
#include "os/env.h"
#include "record/envelope.h"

enum { BUCKETS_LEAST = 16, HITS_OF_POPULAR = 2, SAME_HASH_MOST = 4 };

#ifdef CORRAL_CHECKS
static void check_queue(const crl_shard_queue *q, uint32_t in) {
  size_t weight = 0;
  int left = CRL_CHECK_MOST;
  CRL_MUST((q->oldest == NULL) == (q->newest == NULL), "near: a queue has both ends or none");
  for (const crl_copied *e = q->oldest; e != NULL && left > 0; e = e->newer, left--) {
    CRL_MUST(e->in == in, "near: a copy is in its own queue");
    CRL_MUST(atomic_load(&e->hits) <= CRL_SHARD_HITS, "near: hits are counted up to their most");
    CRL_MUST((e->older == NULL) == (e == q->oldest), "near: the oldest has none before it");
    CRL_MUST(e->newer == NULL ? e == q->newest : e->newer->older == e,
             "near: neighbours know each other");
    weight += e->gone.weight;
  }
  CRL_MUST(left == 0 || weight == q->weight, "near: a queue knows the weight of its copies");
}

static void check(const crl_shard *s) {
  for (uint32_t in = 0; in < CRL_QUEUES; in++) check_queue(&s->queues[in], in);
}
#endif

/* The holder may have lost its core. With real-time priorities it might never get the core back
 * while others merely yield: so they sleep in the end. */
static void lock_slowly(crl_shard *s) {
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

void crl_shard_lock(crl_shard *s) {
  if (atomic_exchange_explicit(&s->locked, 1, memory_order_acquire)) lock_slowly(s);
  CRL_CHECK(s);
}

void crl_shard_unlock(crl_shard *s) {
  CRL_CHECK(s);
  atomic_store_explicit(&s->locked, 0, memory_order_release);
}

int crl_shard_init(crl_shard *s) {
  crl_shard_table *t = crl_alloc(sizeof *t + BUCKETS_LEAST * sizeof *t->bucket);
  s->ghosts = crl_alloc(BUCKETS_LEAST * sizeof *s->ghosts);
  if (t != NULL) t->buckets = BUCKETS_LEAST;
  atomic_init(&s->table, t);
  return t != NULL && s->ghosts != NULL;
}

void crl_shard_free(crl_shard *s) {
  for (crl_shard_table *t = crl_shard_table_of(s), *former; t != NULL; t = former) {
    former = t->former;
    free(t);
  }
  free(s->ghosts);
}

/* ---- under a shard's lock ------------------------------------------------------------------ */

static void ghost_remember(crl_shard *s, uint64_t spot) {
  if (++s->ghost_clock == 0) s->ghost_clock = 1; /* 0 hits an empty crl_shard_ghost */
  s->ghosts[spot & (crl_shard_table_of(s)->buckets - 1)] =
      (crl_shard_ghost){.print = (uint32_t)(spot >> 32), .when = s->ghost_clock};
}

/* True when the hash was remembered lately; forgets it. */
static int ghost_returns(crl_shard *s, uint64_t spot) {
  crl_shard_ghost *g = &s->ghosts[spot & (crl_shard_table_of(s)->buckets - 1)];
  int known =
      g->when != 0 && g->print == (uint32_t)(spot >> 32) && s->ghost_clock - g->when <= s->count;
  if (known) g->when = 0;
  return known;
}

static void queue_push(crl_shard *s, uint32_t in, crl_copied *e) {
  crl_shard_queue *q = &s->queues[in];
  e->in = in;
  e->newer = NULL;
  e->older = q->newest;
  if (q->newest != NULL)
    q->newest->newer = e;
  else
    q->oldest = e;
  q->newest = e;
  q->weight += e->gone.weight;
}

static void queue_pull(crl_shard *s, crl_copied *e) {
  crl_shard_queue *q = &s->queues[e->in];
  if (e->newer != NULL)
    e->newer->older = e->older;
  else
    q->newest = e->older;
  if (e->older != NULL)
    e->older->newer = e->newer;
  else
    q->oldest = e->newer;
  q->weight -= e->gone.weight;
}

static void queue_move(crl_shard *s, uint32_t to, crl_copied *e) {
  queue_pull(s, e);
  queue_push(s, to, e);
}

/* Doubles the buckets; without memory the chains get longer instead. The ghosts are forgotten,
 * which costs little: a shard grows while nothing has to be evicted. */
static void grow(crl_shard *s) {
  crl_shard_table *old = crl_shard_table_of(s);
  size_t buckets = old->buckets * 2;
  crl_shard_table *wide = crl_alloc(sizeof *wide + buckets * sizeof *wide->bucket);
  crl_shard_ghost *ghosts = crl_alloc(buckets * sizeof *ghosts);
  if (wide == NULL || ghosts == NULL) {
    free(wide);
    free(ghosts);
    return;
  }
  wide->buckets = buckets;
  wide->former = old;
  atomic_store_explicit(&s->table, wide, memory_order_release);
  for (size_t i = 0; i < old->buckets; i++) {
    for (crl_copied *e = crl_shard_follow(&old->bucket[i]), *next; e != NULL; e = next) {
      next = crl_shard_follow(&e->chain);
      crl_shard_point(&e->chain, crl_shard_follow(crl_shard_bucket_in(wide, e->spot)));
      crl_shard_point(crl_shard_bucket_in(wide, e->spot), e);
    }
    crl_shard_point(&old->bucket[i], NULL);
  }
  free(s->ghosts);
  s->ghosts = ghosts;
}

static void put_in(crl_shard *s, crl_copied *e) {
  if (s->count >= crl_shard_table_of(s)->buckets) grow(s);
  crl_copied *_Atomic *bucket = crl_shard_bucket_of(s, e->spot);
  crl_shard_point(&e->chain, crl_shard_follow(bucket));
  crl_shard_point(bucket, e);
  if (e->copy.kind == CRL_KIND_NEGATIVE)
    queue_push(s, CRL_NEGATIVES, e);
  else
    queue_push(s, ghost_returns(s, e->spot) ? CRL_MAIN : CRL_SMALL, e);
  s->count++;
}

crl_copied *_Atomic *crl_shard_link(crl_shard *s, const crl_copied *e) {
  crl_copied *_Atomic *link = crl_shard_bucket_of(s, e->spot);
  while (crl_shard_follow(link) != e) link = &crl_shard_follow(link)->chain;
  return link;
}

void crl_shard_list(crl_copied *e, crl_gone **gone) {
  e->gone.next = *gone;
  *gone = &e->gone;
}

/* Removes an entry and puts it at the head of the list *gone. */
static void take_out(crl_shard *s, crl_copied *e, crl_gone **gone) {
  crl_shard_point(crl_shard_link(s, e), crl_shard_follow(&e->chain));
  queue_pull(s, e);
  s->count--;
  crl_shard_list(e, gone);
}

void crl_shard_forget(crl_shard *s, crl_copied *e, crl_gone **gone) {
  int popular = e->in == CRL_MAIN || (e->in == CRL_SMALL && crl_shard_hits(e) >= HITS_OF_POPULAR);
  take_out(s, e, gone);
  if (popular) ghost_remember(s, e->spot);
}

/* Bounds the chain of keys that were made to share a hash: the newest SAME_HASH_MOST of them
 * stay. */
static void thin_out(crl_shard *s, uint64_t spot, crl_gone **gone) {
  size_t same = 0;
  for (crl_copied *e = crl_shard_follow(crl_shard_bucket_of(s, spot)), *next; e != NULL; e = next) {
    next = crl_shard_follow(&e->chain);
    if (e->spot == spot && ++same > SAME_HASH_MOST) take_out(s, e, gone);
  }
}

/* Gives e the place of `there`, and its hits. */
static void trade_places(crl_shard *s, crl_copied *there, crl_copied *e, crl_gone **gone) {
  crl_shard_queue *q = &s->queues[there->in];
  e->in = there->in;
  crl_shard_set_hits(e, crl_shard_hits(there));
  e->older = there->older;
  e->newer = there->newer;
  *(e->older != NULL ? &e->older->newer : &q->oldest) = e;
  *(e->newer != NULL ? &e->newer->older : &q->newest) = e;
  q->weight += e->gone.weight - there->gone.weight;
  crl_shard_point(&e->chain, crl_shard_follow(&there->chain));
  crl_shard_point(crl_shard_link(s, there), e);
  crl_shard_list(there, gone);
}

void crl_shard_replace(crl_shard *s, crl_copied *there, crl_copied *e, crl_gone **gone) {
  if (there != NULL && e != NULL &&
      (there->in == CRL_NEGATIVES) == (e->copy.kind == CRL_KIND_NEGATIVE)) {
    trade_places(s, there, e, gone);
    return;
  }
  if (there != NULL) crl_shard_forget(s, there, gone);
  if (e == NULL) return;
  put_in(s, e);
  thin_out(s, e->spot, gone);
}

/* ---- room ---------------------------------------------------------------------------------- */

static uint32_t queue_to_shrink(const crl_shard *s) {
  const crl_shard_queue *small = &s->queues[CRL_SMALL], *in_main = &s->queues[CRL_MAIN];
  if (small->oldest == NULL) return CRL_MAIN;
  return in_main->oldest == NULL ||
                 small->weight >= (small->weight + in_main->weight) / CRL_SHARD_PART
             ? CRL_SMALL
             : CRL_MAIN;
}

static void judge(crl_shard *s, crl_copied *e, int64_t now, crl_gone **gone) {
  if (e->over <= now) {
    crl_shard_forget(s, e, gone);
  } else if (e->in == CRL_SMALL && crl_shard_hits(e) >= HITS_OF_POPULAR) {
    crl_shard_set_hits(e, 0);
    queue_move(s, CRL_MAIN, e);
  } else if (e->in == CRL_SMALL) {
    take_out(s, e, gone);
    ghost_remember(s, e->spot);
  } else if (crl_shard_hits(e) > 0) {
    crl_shard_set_hits(e, crl_shard_hits(e) - 1);
    queue_move(s, e->in, e);
  } else {
    take_out(s, e, gone);
  }
}

int crl_shard_judge(crl_shard *s, int negatives, int64_t now, crl_gone **gone) {
  crl_copied *e = s->queues[negatives ? CRL_NEGATIVES : queue_to_shrink(s)].oldest;
  if (e != NULL) judge(s, e, now, gone);
  return e != NULL;
}

void crl_shard_clear(crl_shard *s, crl_gone **gone) {
  for (uint32_t in = 0; in < CRL_QUEUES; in++)
    while (s->queues[in].oldest != NULL) crl_shard_forget(s, s->queues[in].oldest, gone);
}
