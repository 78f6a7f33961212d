/* held.c: what was made while the store was away, the newest per key, to be offered to the store once when it is back. */
#include "held.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"

enum { BUCKETS = 1024, OVERHEAD = 128 };

typedef struct node {
  struct node *next;                 /* of its bucket */
  struct node *older, *newer;        /* of all */
  crl_bytes *record;                 /* NULL: invalidate */
  int64_t hard_ttl, began, made;
  int64_t until; /* 0, or when it is forgotten */
  int given_out;
  size_t key_len;
  uint8_t key[];
} node;

struct crl_held {
  pthread_mutex_t mutex;
  int64_t most, held_ms;
  int64_t weight;
  size_t count;
  node *oldest, *newest;
  node *buckets[BUCKETS];
};

crl_held *crl_held_new(int64_t held_bytes, int64_t held_ms) {
  crl_held *held = crl_alloc(sizeof *held);
  if (held == NULL) return NULL;
  pthread_mutex_init(&held->mutex, NULL);
  held->most = held_bytes;
  held->held_ms = held_ms;
  return held;
}

/* ---- under the mutex ------------------------------------------------------------------------------------- */

static int64_t weigh(const node *n) {
  return (int64_t)((n->record == NULL ? 0 : n->record->size) + n->key_len + OVERHEAD);
}

static node **link_of(crl_held *held, const void *key, size_t key_len) {
  node **link = &held->buckets[crl_hash(key, key_len) % BUCKETS];
  while (*link != NULL && ((*link)->key_len != key_len || memcmp((*link)->key, key, key_len) != 0)) link = &(*link)->next;
  return link;
}

static void take_out(crl_held *held, node *n) {
  *link_of(held, n->key, n->key_len) = n->next;
  if (n->older != NULL) n->older->newer = n->newer;
  else held->oldest = n->newer;
  if (n->newer != NULL) n->newer->older = n->older;
  else held->newest = n->older;
  held->weight -= weigh(n);
  held->count--;
}

static void put_in(crl_held *held, node *n) {
  node **bucket = &held->buckets[crl_hash(n->key, n->key_len) % BUCKETS];
  n->next = *bucket;
  *bucket = n;
  n->newer = NULL;
  n->older = held->newest;
  if (held->newest != NULL) held->newest->newer = n;
  else held->oldest = n;
  held->newest = n;
  held->weight += weigh(n);
  held->count++;
}

static void drop(crl_held *held, node *n) {
  take_out(held, n);
  crl_bytes_unref(n->record);
  free(n);
}

static int is_over(const crl_held *held, const node *n, int64_t now) {
  return (n->until != 0 && now >= n->until) || now - n->made >= held->held_ms || (n->record != NULL && now - n->made >= n->hard_ttl);
}

/* ---- public ---------------------------------------------------------------------------------------------- */

void crl_held_free(crl_held *held) {
  while (held->oldest != NULL) drop(held, held->oldest);
  pthread_mutex_destroy(&held->mutex);
  free(held);
}

static node *make_node(const void *key, size_t key_len, crl_bytes *record, int64_t hard_ttl, int64_t began, int64_t made) {
  node *n = crl_alloc(sizeof *n + key_len);
  if (n == NULL) return NULL;
  n->record = record == NULL ? NULL : crl_bytes_ref(record);
  n->hard_ttl = hard_ttl;
  n->began = began;
  n->made = made;
  n->key_len = key_len;
  memcpy(n->key, key, key_len);
  return n;
}

/* Takes over the node: it is kept, or freed. */
static void keep(crl_held *held, node *n, int64_t now) {
  pthread_mutex_lock(&held->mutex);
  node *there = *link_of(held, n->key, n->key_len);
  if (there != NULL && is_over(held, there, now)) {
    drop(held, there);
    there = NULL;
  }
  /* Of two that began at the same time, an invalidation is what counts. */
  int wins = there == NULL || there->began < n->began || (there->began == n->began && there->record != NULL);
  if (wins && there != NULL) drop(held, there);
  if (!wins || is_over(held, n, now) || weigh(n) > held->most) {
    crl_bytes_unref(n->record);
    free(n);
  } else {
    put_in(held, n);
    while (held->weight > held->most) drop(held, held->oldest);
  }
  pthread_mutex_unlock(&held->mutex);
}

void crl_held_keep(crl_held *held, const void *key, size_t key_len, crl_bytes *record, int64_t hard_ttl, int64_t began, int64_t now) {
  if (held->most <= 0 || held->held_ms <= 0) return;
  node *n = make_node(key, key_len, record, hard_ttl, began, now);
  if (n != NULL) keep(held, n, now);
}

void crl_held_drop(crl_held *held, const void *key, size_t key_len) {
  pthread_mutex_lock(&held->mutex);
  node *n = held->count == 0 ? NULL : *link_of(held, key, key_len);
  if (n != NULL) drop(held, n);
  pthread_mutex_unlock(&held->mutex);
}

void crl_held_drop_if(crl_held *held, int (*wanted)(void *arg, const crl_bytes *record), void *arg) {
  pthread_mutex_lock(&held->mutex);
  for (node *n = held->oldest, *newer; n != NULL; n = newer) {
    newer = n->newer;
    if (n->record != NULL && wanted(arg, n->record)) drop(held, n);
  }
  pthread_mutex_unlock(&held->mutex);
}

int crl_held_find(crl_held *held, const void *key, size_t key_len, int64_t now, crl_held_entry *ret) {
  int found = 0;
  pthread_mutex_lock(&held->mutex);
  node *n = *link_of(held, key, key_len);
  if (n != NULL && is_over(held, n, now)) {
    drop(held, n);
  } else if (n != NULL && n->record != NULL) {
    *ret = (crl_held_entry){.record = crl_bytes_ref(n->record), .hard_ttl = n->hard_ttl, .began = n->began, .made = n->made};
    found = 1;
  }
  pthread_mutex_unlock(&held->mutex);
  return found;
}

/* A copy of an entry for whoever offers it; false without memory. */
static int give_out(node *n, crl_held_entry *ret) {
  uint8_t *key = crl_alloc(n->key_len);
  if (key == NULL) return 0;
  memcpy(key, n->key, n->key_len);
  n->given_out = 1;
  *ret = (crl_held_entry){.key = key, .key_len = n->key_len, .record = n->record == NULL ? NULL : crl_bytes_ref(n->record),
                          .hard_ttl = n->hard_ttl, .began = n->began, .made = n->made, .memory = key};
  return 1;
}

size_t crl_held_offer(crl_held *held, int64_t now, int (*wanted)(void *arg, const void *key, size_t key_len), void *arg,
                      crl_held_entry *ret, size_t most) {
  size_t count = 0;
  pthread_mutex_lock(&held->mutex);
  for (node *n = held->oldest, *newer; n != NULL && count < most; n = newer) {
    newer = n->newer;
    if (is_over(held, n, now)) drop(held, n);
    else if (!n->given_out && n->made <= now && wanted(arg, n->key, n->key_len)) count += (size_t)give_out(n, &ret[count]);
  }
  pthread_mutex_unlock(&held->mutex);
  return count;
}

void crl_held_return(crl_held *held, const crl_held_entry *entry) {
  pthread_mutex_lock(&held->mutex);
  node *n = *link_of(held, entry->key, entry->key_len);
  if (n != NULL && n->began == entry->began) n->given_out = 0;
  pthread_mutex_unlock(&held->mutex);
}

void crl_held_forget(crl_held *held, int64_t until, int (*wanted)(void *arg, const void *key, size_t key_len), void *arg) {
  pthread_mutex_lock(&held->mutex);
  for (node *n = held->oldest; n != NULL; n = n->newer)
    if (n->given_out && n->until == 0 && wanted(arg, n->key, n->key_len)) n->until = until;
  pthread_mutex_unlock(&held->mutex);
}

void crl_held_entry_clean(crl_held_entry *entry) {
  crl_bytes_unref(entry->record);
  free(entry->memory);
  memset(entry, 0, sizeof *entry);
}

size_t crl_held_count(crl_held *held) {
  pthread_mutex_lock(&held->mutex);
  size_t count = held->count;
  pthread_mutex_unlock(&held->mutex);
  return count;
}

size_t crl_held_weight(crl_held *held) {
  pthread_mutex_lock(&held->mutex);
  size_t weight = (size_t)held->weight;
  pthread_mutex_unlock(&held->mutex);
  return weight;
}
