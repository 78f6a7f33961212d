/* near.c: copies of values in this process: shards, each with a lock, a hash table and three
 * queues; two budgets over all of them.
 *
 * A look takes no lock and writes nothing but the hits of a copy, up to CRL_SHARD_HITS: a copy of a
 * hot key is only read. A copy never changes but for its hits and its confirmation: a put replaces
 * it. What is taken out is freed when no reader has it any more (os/readers.h). A look may miss a
 * copy while the table grows.
 *
 * Room is taken before a copy goes in, so a budget is never exceeded: the thread that needs room
 * judges the oldest copy of one shard after the other until there is enough. It holds no other lock
 * meanwhile, and frees nothing under a lock, since a store may take its time to free its bytes.
 * Copies that readers still have are not counted; while they weigh more than a sixteenth of all
 * bytes, nothing is put. */
#include "near/near.h"

#include <stdlib.h>
#include <string.h>

#include "near/shard.h"
#include "record/envelope.h"

enum {
  SHARDS_MOST = 64,
  SHARD_LEAST = 512 << 10, /* bytes of budget per shard, at least */
  GONE_OF = 16,            /* the part that removed copies may take while readers have them */
  ONE_OF = 10,             /* the tenth that one copy, or all negatives, may take */
  OVERHEAD = 64            /* bytes that malloc, the table and the ghosts take for one copy */
};

typedef struct budget {
  _Alignas(CRL_SHARD_LINE) _Atomic size_t used;
  _Atomic size_t hand; /* the shard to look at next */
  size_t most;
} budget;

struct crl_near {
  void *memory;
  size_t shard_count, copy_most;
  budget values, negatives;
  crl_limbo limbo;
  crl_marks *over; /* NULL: nobody asks */
  crl_shard shards[];
};

/* ---- places -------------------------------------------------------------------------------- */

static inline crl_shard *shard_of(crl_near *near, uint64_t spot) {
  return &near->shards[(spot >> 56) & (near->shard_count - 1)];
}

static _Atomic uint64_t *drops_of(crl_shard *s, uint64_t spot) {
  return &s->drops[(spot >> 48) % CRL_SHARD_COUNTERS];
}

static budget *budget_of(crl_near *near, int kind) {
  return kind == CRL_KIND_NEGATIVE ? &near->negatives : &near->values;
}

/* ---- entries that are in no shard ---------------------------------------------------------- */

/* A small value is copied, and needs the rest of its record no more. */
static int is_small(const crl_near_copy *copy) { return copy->size <= CRL_NEAR_SMALL; }

static size_t weigh(size_t key_len, const crl_near_copy *copy) {
  size_t bytes = is_small(copy) ? copy->size : sizeof(crl_bytes) + copy->bytes->size;
  if (copy->metadata != NULL) bytes += sizeof(crl_bytes) + copy->metadata->size;
  return sizeof(crl_copied) + key_len + OVERHEAD + bytes;
}

static int64_t end_of(const crl_near_copy *copy) {
  int64_t end = copy->fresh_until;
  if (copy->swr_until > end) end = copy->swr_until;
  if (copy->sie_until > end) end = copy->sie_until;
  return copy->kind == CRL_NEAR_VERDICT ? copy->retry_until : end;
}

static crl_copied *make_entry(uint64_t spot, const void *key, size_t key_len,
                              const crl_near_copy *copy, size_t weight) {
  size_t inside = is_small(copy) ? copy->size : 0;
  crl_copied *e = crl_alloc_more(NULL, sizeof *e + key_len + inside); /* all set below */
  if (e == NULL) return NULL;
  *e = (crl_copied){.gone = {.weight = weight},
                    .spot = spot,
                    .over = end_of(copy),
                    .key_len = key_len,
                    .copy = *copy};
  memcpy(e->key, key, key_len);
  e->copy.data = copy->bytes->data + copy->offset;
  if (is_small(copy)) {
    e->copy.data = memcpy(e->key + key_len, e->copy.data, inside);
    e->copy.bytes = NULL;
    e->copy.offset = 0;
  } else {
    crl_bytes_ref(e->copy.bytes);
  }
  if (e->copy.metadata != NULL) crl_bytes_ref(e->copy.metadata);
  return e;
}

static inline crl_copied *entry_of(crl_gone *gone) { return (crl_copied *)(void *)gone; }

static void free_all(crl_gone *list) {
  for (crl_gone *next; list != NULL; list = next) {
    next = list->next;
    crl_bytes_unref(entry_of(list)->copy.bytes);
    crl_bytes_unref(entry_of(list)->copy.metadata);
    free(list);
  }
}

/* Gives back the room of removed entries, and frees them when no reader has them any more. */
static void discard(crl_near *near, crl_gone *list) {
  for (const crl_gone *gone = list; gone != NULL; gone = gone->next)
    atomic_fetch_sub_explicit(
        &budget_of(near, entry_of((crl_gone *)(uintptr_t)gone)->copy.kind)->used, gone->weight,
        memory_order_relaxed);
  if (list != NULL) free_all(crl_limbo_add(&near->limbo, list));
}

/* ---- room ---------------------------------------------------------------------------------- */

/* Judges one entry of one shard; false when the shard has none. */
static int look_for_room(crl_near *near, budget *b, int64_t now) {
  crl_gone *gone = NULL;
  size_t turn = atomic_fetch_add_explicit(&b->hand, 1, memory_order_relaxed);
  crl_shard *s = &near->shards[turn & (near->shard_count - 1)];
  crl_shard_lock(s);
  int found = crl_shard_judge(s, b == &near->negatives, now, &gone);
  crl_shard_unlock(s);
  discard(near, gone);
  return found;
}

/* False when readers have too much of what was removed. */
static int has_passed(crl_near *near) {
  if (crl_near_removed(near) <= near->limbo.most) return 1;
  free_all(crl_limbo_empty(&near->limbo));
  return crl_near_removed(near) <= near->limbo.most;
}

/* False when puts that are under way have taken all room. */
static int take_room(crl_near *near, budget *b, size_t weight, int64_t now) {
  size_t barren = 0;
  if (!has_passed(near)) return 0;
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
static crl_copied *entry_with_room(crl_near *near, uint64_t spot, const void *key, size_t key_len,
                                   const crl_near_copy *copy) {
  budget *b = budget_of(near, copy->kind);
  size_t weight = weigh(key_len, copy);
  if (weight > near->copy_most || !take_room(near, b, weight, copy->looked)) return NULL;
  crl_copied *e = make_entry(spot, key, key_len, copy, weight);
  if (e == NULL) atomic_fetch_sub_explicit(&b->used, weight, memory_order_relaxed);
  return e;
}

/* ---- public -------------------------------------------------------------------------------- */

static size_t shards_for(size_t most) {
  size_t count = 1;
  while (count < SHARDS_MOST && count * 2 * SHARD_LEAST <= most) count *= 2;
  return count;
}

crl_near *crl_near_new(int64_t most) {
  size_t all = most <= 0 ? 0 : (uint64_t)most < SIZE_MAX ? (size_t)most : SIZE_MAX;
  size_t count = shards_for(all);
  uint8_t *memory = crl_alloc(sizeof(crl_near) + count * sizeof(crl_shard) + CRL_SHARD_LINE);
  if (memory == NULL) return NULL;
  crl_near *near = (void *)(memory + (CRL_SHARD_LINE - (uintptr_t)memory % CRL_SHARD_LINE));
  near->memory = memory;
  near->shard_count = count;
  near->copy_most = near->negatives.most = all / ONE_OF;
  near->values.most = all - near->negatives.most;
  crl_limbo_init(&near->limbo, all / GONE_OF);
  int whole = 1;
  for (size_t i = 0; i < count; i++) whole &= crl_shard_init(&near->shards[i]);
  if (whole) return near;
  crl_near_free(near);
  return NULL;
}

static void free_shard(crl_near *near, crl_shard *s) {
  crl_gone *gone = NULL;
  if (crl_shard_table_of(s) != NULL && s->ghosts != NULL) crl_shard_clear(s, &gone);
  discard(near, gone);
  crl_shard_free(s);
}

void crl_near_free(crl_near *near) {
  for (size_t i = 0; i < near->shard_count; i++) free_shard(near, &near->shards[i]);
  free_all(crl_limbo_end(&near->limbo));
  free(near->memory);
}

/* Forgets a copy that a reader has found, unless somebody else did. */
static void forget_over(crl_near *near, crl_shard *s, const crl_copied *e) {
  crl_gone *gone = NULL;
  crl_shard_lock(s);
  crl_copied *there = crl_shard_find(s, e->spot, e->key, e->key_len);
  if (there == e) crl_shard_forget(s, there, &gone);
  crl_shard_unlock(s);
  discard(near, gone);
}

void crl_near_mark_over(crl_near *near, crl_marks *over) { near->over = over; }

const crl_near_copy *crl_near_look(crl_near *near, uint64_t hash, const void *key, size_t key_len,
                                   int64_t now) {
  crl_shard *s = shard_of(near, hash);
  crl_copied *e = crl_shard_find(s, hash, key, key_len);
  if (e == NULL) return NULL;
  if (e->over <= now) {
    forget_over(near, s, e);
    if (near->over != NULL) crl_marks_set(near->over, hash);
    return NULL;
  }
  uint32_t hits = crl_shard_hits(e);
  if (hits < CRL_SHARD_HITS) crl_shard_set_hits(e, hits + 1);
  return &e->copy;
}

crl_bytes *crl_near_bytes(const crl_near_copy *copy, size_t *offset) {
  *offset = copy->offset;
  return copy->bytes != NULL ? crl_bytes_ref(copy->bytes) : crl_bytes_copy(copy->data, copy->size);
}

uint64_t crl_near_epoch(crl_near *near, uint64_t hash) {
  return atomic_load_explicit(drops_of(shard_of(near, hash), hash), memory_order_acquire);
}

int crl_near_put(crl_near *near, uint64_t hash, const void *key, size_t key_len,
                 const crl_near_copy *copy, uint64_t epoch) {
  crl_shard *s = shard_of(near, hash);
  /* A put that will be refused must not evict. */
  if (atomic_load_explicit(drops_of(s, hash), memory_order_acquire) != epoch) return 0;
  crl_copied *e = entry_with_room(near, hash, key, key_len, copy);
  crl_gone *gone = NULL;
  int kept = 0;
  crl_shard_lock(s);
  crl_copied *there = crl_shard_find(s, hash, key, key_len);
  int is_newer = there == NULL || there->copy.looked <= copy->looked;
  if (is_newer && atomic_load_explicit(drops_of(s, hash), memory_order_relaxed) == epoch) {
    crl_shard_replace(s, there, e, &gone);
    kept = e != NULL;
  } else if (e != NULL) {
    crl_shard_list(e, &gone);
  }
  crl_shard_unlock(s);
  discard(near, gone);
  return kept;
}

void crl_near_drop(crl_near *near, uint64_t hash) {
  crl_shard *s = shard_of(near, hash);
  crl_gone *gone = NULL;
  crl_shard_lock(s);
  atomic_fetch_add_explicit(drops_of(s, hash), 1, memory_order_release);
  for (crl_copied *e = crl_shard_follow(crl_shard_bucket_of(s, hash)), *next; e != NULL; e = next) {
    next = crl_shard_follow(&e->chain);
    if (e->spot == hash) crl_shard_forget(s, e, &gone);
  }
  crl_shard_unlock(s);
  discard(near, gone);
}

void crl_near_doubt(crl_near *near, uint64_t hash) {
  crl_shard *s = shard_of(near, hash);
  crl_shard_lock(s);
  atomic_fetch_add_explicit(drops_of(s, hash), 1, memory_order_release);
  for (crl_copied *e = crl_shard_follow(crl_shard_bucket_of(s, hash)); e != NULL;
       e = crl_shard_follow(&e->chain))
    if (e->spot == hash) atomic_store_explicit(&e->copy.confirmed, 0, memory_order_release);
  crl_shard_unlock(s);
}

void crl_near_confirm(crl_near *near, uint64_t hash, uint64_t print) {
  crl_shard *s = shard_of(near, hash);
  crl_gone *gone = NULL;
  crl_shard_lock(s);
  for (crl_copied *e = crl_shard_follow(crl_shard_bucket_of(s, hash)), *next; e != NULL; e = next) {
    next = crl_shard_follow(&e->chain);
    if (e->spot != hash) continue;
    if (e->copy.print == print)
      atomic_store_explicit(&e->copy.confirmed, 1, memory_order_release);
    else
      crl_shard_forget(s, e, &gone);
  }
  crl_shard_unlock(s);
  discard(near, gone);
}

static void clear_shard(crl_near *near, crl_shard *s) {
  crl_gone *gone = NULL;
  crl_shard_lock(s);
  for (size_t i = 0; i < CRL_SHARD_COUNTERS; i++)
    atomic_fetch_add_explicit(&s->drops[i], 1, memory_order_release);
  crl_shard_clear(s, &gone);
  crl_shard_unlock(s);
  discard(near, gone);
}

void crl_near_clear(crl_near *near) {
  for (size_t i = 0; i < near->shard_count; i++) clear_shard(near, &near->shards[i]);
  free_all(crl_limbo_empty(&near->limbo));
}

size_t crl_near_count(crl_near *near) {
  size_t count = 0;
  for (size_t i = 0; i < near->shard_count; i++) {
    crl_shard_lock(&near->shards[i]);
    count += near->shards[i].count;
    crl_shard_unlock(&near->shards[i]);
  }
  return count;
}

size_t crl_near_weight(crl_near *near) {
  return atomic_load_explicit(&near->values.used, memory_order_relaxed) +
         atomic_load_explicit(&near->negatives.used, memory_order_relaxed);
}

size_t crl_near_removed(crl_near *near) {
  return atomic_load_explicit(&near->limbo.weight, memory_order_relaxed);
}
