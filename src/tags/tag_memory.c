/* tag_memory.c: the names of the tags that keys were last seen with. */
#include "tags/tag_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/table.h"

enum { SHARDS = 16, PLACES = CRL_TAG_MEMORY / SHARDS };

/* The names of one key's tags, each behind its length. */
typedef struct place {
  crl_table_node node; /* by the key's hash */
  size_t size;
  uint8_t *names; /* NULL: nothing is remembered */
} place;

typedef struct shard {
  pthread_mutex_t mutex;
  crl_table table;
  place *places; /* a ring; NULL until the first key with tags */
  size_t next;   /* the place that has been taken the longest */
} shard;

struct crl_tag_memory {
  _Atomic int used; /* 0: no key had tags so far, so that nobody needs a mutex */
  shard shards[SHARDS];
};

crl_tag_memory *crl_tag_memory_new(void) {
  crl_tag_memory *memory = crl_alloc(sizeof *memory);
  if (memory == NULL) return NULL;
  for (int i = 0; i < SHARDS; i++) pthread_mutex_init(&memory->shards[i].mutex, NULL);
  return memory;
}

static place *place_of(crl_table_node *node) {
  return (place *)(void *)((char *)node - offsetof(place, node));
}

static void empty(shard *s, place *p) {
  crl_table_take(&s->table, &p->node);
  free(p->names);
  p->names = NULL;
  p->size = 0;
}

void crl_tag_memory_free(crl_tag_memory *memory) {
  for (int i = 0; i < SHARDS; i++) {
    shard *s = &memory->shards[i];
    for (size_t p = 0; s->places != NULL && p < PLACES; p++) empty(s, &s->places[p]);
    free(s->places);
    crl_table_clean(&s->table);
    pthread_mutex_destroy(&s->mutex);
  }
  free(memory);
}

static shard *shard_of(crl_tag_memory *memory, uint64_t hash) {
  return &memory->shards[hash % SHARDS];
}

static place *find(const shard *s, uint64_t hash) {
  crl_table_node *at = crl_table_first(&s->table, hash);
  while (at != NULL && at->hash != hash) at = at->next;
  return at == NULL ? NULL : place_of(at);
}

#ifdef CORRAL_CHECKS
static void check_place(const place *p) {
  CRL_MUST((p->names == NULL) == (p->size == 0), "tag memory: what is remembered has a name");
  CRL_MUST((p->names == NULL) == (p->node.link == NULL), "tag memory: only names are found");
  CRL_MUST(p->size <= CRL_TAG_MEMORY_BYTES, "tag memory: a key's names are few");
  size_t at = 0;
  while (at < p->size) at += 1U + p->names[at];
  CRL_MUST(at == p->size, "tag memory: the last name ends with the bytes");
}

/* The places that were taken last. */
static void check(const shard *s) {
  for (size_t i = 1; s->places != NULL && i <= CRL_CHECK_MOST; i++)
    check_place(&s->places[(s->next - i) % PLACES]);
}
#endif

static void lock(shard *s) {
  pthread_mutex_lock(&s->mutex);
  CRL_CHECK(s);
}

static void unlock(shard *s) {
  CRL_CHECK(s);
  pthread_mutex_unlock(&s->mutex);
}

static size_t size_of(const crl_tags *tags) {
  size_t size = 0;
  for (size_t i = 0; i < tags->count; i++) size += 1U + tags->tag[i].len;
  return size;
}

/* NULL without memory. */
static uint8_t *copy_names(const crl_tags *tags, size_t size) {
  uint8_t *names = crl_alloc_more(NULL, size), *at = names;
  for (size_t i = 0; i < tags->count && names != NULL; i++) {
    *at++ = tags->tag[i].len;
    memcpy(at, tags->tag[i].name, tags->tag[i].len);
    at += tags->tag[i].len;
  }
  return names;
}

/* Puts the names where those of the key stand, or those that were put in first. */
static void put(shard *s, uint64_t hash, uint8_t *names, size_t size) {
  if (s->places == NULL) s->places = crl_alloc(PLACES * sizeof *s->places);
  if (s->places == NULL) {
    free(names);
    return;
  }
  place *p = find(s, hash);
  if (p == NULL) p = &s->places[s->next++ % PLACES];
  empty(s, p);
  p->names = names;
  p->size = size;
  crl_table_put(&s->table, &p->node, hash);
}

void crl_tag_memory_note(crl_tag_memory *memory, uint64_t hash, const crl_tags *tags) {
  shard *s = shard_of(memory, hash);
  size_t size = tags == NULL ? 0 : size_of(tags);
  int keeps = size > 0 && size <= CRL_TAG_MEMORY_BYTES;
  uint8_t *names = keeps ? copy_names(tags, size) : NULL;
  if (names != NULL) atomic_store_explicit(&memory->used, 1, memory_order_relaxed);
  lock(s);
  place *p = find(s, hash);
  if (names != NULL)
    put(s, hash, names, size);
  else if (p != NULL)
    empty(s, p);
  unlock(s);
}

static void want_names(const place *p, crl_tag_versions *ret) {
  for (size_t at = 0; at < p->size; at += 1U + p->names[at])
    if (!crl_tag_versions_want(ret, p->names + at + 1, p->names[at])) return;
}

int crl_tag_memory_any(const crl_tag_memory *memory) {
  return atomic_load_explicit(&((crl_tag_memory *)(uintptr_t)memory)->used, memory_order_relaxed);
}

/* True when the key's tags are remembered: then `ret`, unless NULL, wants their versions. */
static int with_place(crl_tag_memory *memory, uint64_t hash, crl_tag_versions *ret) {
  if (!crl_tag_memory_any(memory)) return 0;
  shard *s = shard_of(memory, hash);
  lock(s);
  const place *p = find(s, hash);
  if (p != NULL && ret != NULL) want_names(p, ret);
  unlock(s);
  return p != NULL;
}

int crl_tag_memory_has(crl_tag_memory *memory, uint64_t hash) {
  return with_place(memory, hash, NULL);
}

void crl_tag_memory_want(crl_tag_memory *memory, uint64_t hash, crl_tag_versions *ret) {
  (void)with_place(memory, hash, ret);
}
