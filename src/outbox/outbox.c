/* outbox.c: changes that this process holds for a store that is away: the newest fill of each key,
 * and keys to invalidate. */
#include "outbox/outbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "os/hash.h"
#include "base/check.h"

enum { BUCKETS = 1024, OVERHEAD = 128, NEVER = -1 };

typedef struct node {
  struct node *next;          /* next in its bucket */
  struct node *older, *newer; /* by age, over all buckets */
  crl_outbox_fill fill;       /* fill.record NULL: none */
  int invalidates;
  crl_bytes *successor; /* record to store in place of the invalidated one; NULL: none */
  int64_t wished;       /* when the invalidation was requested */
  int64_t made;         /* when the later of fill and invalidation was */
  int given_out;
  size_t key_len;
  uint8_t key[];
} node;

struct crl_outbox {
  pthread_mutex_t mutex;
  int64_t most, outbox_ms;
  int64_t weight;
  _Atomic int64_t *gauge; /* of the weight; NULL: none */
  size_t count;
  node *oldest, *newest;
  node *buckets[BUCKETS];
  int64_t invalidated[BUCKETS]; /* when a key of the bucket was last invalidated */
  int64_t all_invalidated;      /* when a tag was last invalidated: counts for all keys */
  /* the outage under way: when it was first and last met; NEVER: there is none */
  int64_t away_since, away_last;
};

crl_outbox *crl_outbox_new(int64_t outbox_bytes, int64_t outbox_ms) {
  crl_outbox *outbox = crl_alloc(sizeof *outbox);
  if (outbox == NULL) return NULL;
  pthread_mutex_init(&outbox->mutex, NULL);
  outbox->most = outbox_bytes;
  outbox->outbox_ms = outbox_ms;
  for (size_t i = 0; i < BUCKETS; i++) outbox->invalidated[i] = NEVER;
  outbox->all_invalidated = outbox->away_since = outbox->away_last = NEVER;
  return outbox;
}

void crl_outbox_show(crl_outbox *outbox, _Atomic int64_t *gauge) { outbox->gauge = gauge; }

/* ---- under the mutex ----------------------------------------------------------------------- */

static int64_t weigh(const node *n) {
  return (int64_t)((n->fill.record == NULL ? 0 : n->fill.record->size) +
                   (n->successor == NULL ? 0 : n->successor->size) + n->key_len + OVERHEAD);
}

static size_t bucket_of(const void *key, size_t key_len) {
  return crl_hash(key, key_len) % BUCKETS;
}

static node **link_of(crl_outbox *outbox, const void *key, size_t key_len) {
  node **link = &outbox->buckets[bucket_of(key, key_len)];
  while (*link != NULL && ((*link)->key_len != key_len || memcmp((*link)->key, key, key_len) != 0))
    link = &(*link)->next;
  return link;
}

#ifdef CORRAL_CHECKS
static void check_node(const crl_outbox *outbox, const node *n) {
  CRL_MUST(n->fill.record != NULL || n->invalidates, "outbox: a node has a fill or invalidates");
  CRL_MUST(n->invalidates || n->successor == NULL, "outbox: only an invalidation has a successor");
  CRL_MUST((n->older == NULL) == (n == outbox->oldest), "outbox: the oldest has none before it");
  CRL_MUST((n->newer == NULL) == (n == outbox->newest), "outbox: the newest has none behind it");
  CRL_MUST(n->newer == NULL || n->newer->older == n, "outbox: neighbours know each other");
}

static void check(const crl_outbox *outbox) {
  int64_t weight = 0;
  size_t count = 0;
  CRL_MUST(outbox->count == 0 || outbox->weight <= outbox->most,
           "outbox: it weighs no more than outbox_bytes");
  CRL_MUST((outbox->count == 0) == (outbox->oldest == NULL),
           "outbox: it is empty when it has none");
  for (const node *n = outbox->oldest; n != NULL && count < CRL_CHECK_MOST; n = n->newer) {
    check_node(outbox, n);
    weight += weigh(n);
    count++;
  }
  if (count == CRL_CHECK_MOST) return;
  CRL_MUST(count == outbox->count, "outbox: it counts its nodes");
  CRL_MUST(weight == outbox->weight, "outbox: it knows the weight of its nodes");
}
#endif

static void lock(crl_outbox *outbox) {
  pthread_mutex_lock(&outbox->mutex);
  CRL_CHECK(outbox);
}

static void unlock(crl_outbox *outbox) {
  if (outbox->gauge != NULL)
    atomic_store_explicit(outbox->gauge, outbox->weight, memory_order_relaxed);
  CRL_CHECK(outbox);
  pthread_mutex_unlock(&outbox->mutex);
}

static void take_out(crl_outbox *outbox, node *n) {
  *link_of(outbox, n->key, n->key_len) = n->next;
  if (n->older != NULL)
    n->older->newer = n->newer;
  else
    outbox->oldest = n->newer;
  if (n->newer != NULL)
    n->newer->older = n->older;
  else
    outbox->newest = n->older;
  outbox->weight -= weigh(n);
  outbox->count--;
}

static void put_in(crl_outbox *outbox, node *n) {
  node **bucket = &outbox->buckets[bucket_of(n->key, n->key_len)];
  n->next = *bucket;
  *bucket = n;
  n->newer = NULL;
  n->older = outbox->newest;
  if (outbox->newest != NULL)
    outbox->newest->newer = n;
  else
    outbox->oldest = n;
  outbox->newest = n;
  outbox->weight += weigh(n);
  outbox->count++;
}

static void drop(crl_outbox *outbox, node *n) {
  take_out(outbox, n);
  crl_bytes_unref(n->fill.record);
  crl_bytes_unref(n->successor);
  free(n);
}

/* Drops the fill of a key; an invalidation stays. */
static void drop_fill(crl_outbox *outbox, node *n) {
  if (!n->invalidates) {
    drop(outbox, n);
    return;
  }
  outbox->weight -= weigh(n);
  crl_bytes_unref(n->fill.record);
  memset(&n->fill, 0, sizeof n->fill);
  outbox->weight += weigh(n);
}

/* An outage that nobody met for outbox_ms is over, and the next one is another. */
static void meet_outage(crl_outbox *outbox, int64_t now) {
  if (outbox->away_last == NEVER || now - outbox->away_last >= outbox->outbox_ms)
    outbox->away_since = now;
  outbox->away_last = now;
}

static int is_old(const crl_outbox *outbox, const node *n, int64_t now) {
  return now - n->made >= outbox->outbox_ms;
}

/* A fill of the outage under way serves as long as it lives. */
static int is_over(const crl_outbox *outbox, const node *n, int64_t now) {
  int is_of_outage =
      outbox->away_since != NEVER && n->made >= outbox->away_since && !n->invalidates;
  return is_old(outbox, n, now) && !is_of_outage;
}

static int has_fill(const node *n, int64_t now) {
  return n->fill.record != NULL && now - n->fill.made < n->fill.hard_ttl;
}

/* The node of a key; NULL: none. An expired node is dropped. */
static node *find(crl_outbox *outbox, const void *key, size_t key_len, int64_t now) {
  node *n = outbox->count == 0 ? NULL : *link_of(outbox, key, key_len);
  if (n == NULL || !(is_over(outbox, n, now) || (!n->invalidates && !has_fill(n, now)))) return n;
  drop(outbox, n);
  return NULL;
}

/* Makes a node that is to take the place of `there` (NULL: none), with its invalidation but without
 * its fill; drops `there`. NULL without memory: then nothing is kept of the key. */
static node *renew(crl_outbox *outbox, node *there, const void *key, size_t key_len, int64_t now) {
  node *n = crl_alloc(sizeof *n + key_len);
  if (n != NULL) {
    n->key_len = key_len;
    memcpy(n->key, key, key_len);
    n->made = now;
    if (there != NULL) {
      n->invalidates = there->invalidates;
      n->wished = there->wished;
      if (there->successor != NULL) n->successor = crl_bytes_ref(there->successor);
    }
  }
  if (there != NULL && n != NULL) drop(outbox, there);
  if (there != NULL && n == NULL) drop_fill(outbox, there);
  return n;
}

/* Inserts the node as the newest, then drops the oldest ones until the rest fits into
 * outbox_bytes. */
static void put(crl_outbox *outbox, node *n) {
  put_in(outbox, n);
  while (outbox->weight > outbox->most) drop(outbox, outbox->oldest);
}

/* ---- public -------------------------------------------------------------------------------- */

void crl_outbox_free(crl_outbox *outbox) {
  while (outbox->oldest != NULL) drop(outbox, outbox->oldest);
  pthread_mutex_destroy(&outbox->mutex);
  free(outbox);
}

/* True when the key was invalidated since the compute began. Keys of one bucket share that time, so
 * a fill may be refused needlessly. */
static int is_void(const crl_outbox *outbox, const void *key, size_t key_len, int64_t began) {
  return began <= outbox->invalidated[bucket_of(key, key_len)] || began <= outbox->all_invalidated;
}

static int keeps(const crl_outbox *outbox, size_t size) {
  return (int64_t)(size + OVERHEAD) <= outbox->most && outbox->outbox_ms > 0;
}

void crl_outbox_keep(crl_outbox *outbox, const void *key, size_t key_len,
                     const crl_outbox_fill *fill) {
  if (!keeps(outbox, key_len + fill->record->size) || fill->hard_ttl <= 0) return;
  lock(outbox);
  meet_outage(outbox, fill->made);
  node *there = find(outbox, key, key_len, fill->made), *n = NULL;
  int wins = there == NULL || there->fill.began <= fill->began;
  if (wins && !is_void(outbox, key, key_len, fill->began))
    n = renew(outbox, there, key, key_len, fill->made);
  if (n != NULL) {
    n->fill = *fill;
    crl_bytes_ref(fill->record);
    put(outbox, n);
  }
  unlock(outbox);
}

void crl_outbox_invalidate(crl_outbox *outbox, const void *key, size_t key_len,
                           crl_bytes *successor, int64_t now) {
  if (!keeps(outbox, key_len + (successor == NULL ? 0 : successor->size))) return;
  lock(outbox);
  outbox->invalidated[bucket_of(key, key_len)] = now;
  node *n = renew(outbox, find(outbox, key, key_len, now), key, key_len, now);
  if (n != NULL) {
    crl_bytes_unref(n->successor);
    n->successor = successor == NULL ? NULL : crl_bytes_ref(successor);
    n->invalidates = 1;
    n->wished = now;
    put(outbox, n);
  }
  unlock(outbox);
}

void crl_outbox_invalidated(crl_outbox *outbox, const void *key, size_t key_len, int64_t now) {
  lock(outbox);
  node *n = *link_of(outbox, key, key_len);
  if (n != NULL) drop(outbox, n);
  outbox->invalidated[bucket_of(key, key_len)] = now;
  unlock(outbox);
}

void crl_outbox_drop(crl_outbox *outbox, const void *key, size_t key_len) {
  lock(outbox);
  node *n = outbox->count == 0 ? NULL : *link_of(outbox, key, key_len);
  if (n != NULL) drop(outbox, n);
  unlock(outbox);
}

void crl_outbox_drop_fill(crl_outbox *outbox, const void *key, size_t key_len) {
  lock(outbox);
  node *n = outbox->count == 0 ? NULL : *link_of(outbox, key, key_len);
  if (n != NULL) drop_fill(outbox, n);
  unlock(outbox);
}

void crl_outbox_filled(crl_outbox *outbox, const void *key, size_t key_len, int64_t began) {
  lock(outbox);
  node *n = outbox->count == 0 ? NULL : *link_of(outbox, key, key_len);
  if (n != NULL && (!n->invalidates || n->wished < began)) drop(outbox, n);
  unlock(outbox);
}

void crl_outbox_drop_if(crl_outbox *outbox, int64_t now,
                        int (*wanted)(void *arg, const crl_bytes *record), void *arg) {
  lock(outbox);
  outbox->all_invalidated = now;
  for (node *n = outbox->oldest, *newer; n != NULL; n = newer) {
    newer = n->newer;
    if (n->fill.record != NULL && wanted(arg, n->fill.record)) drop_fill(outbox, n);
  }
  unlock(outbox);
}

int crl_outbox_find(crl_outbox *outbox, const void *key, size_t key_len, int64_t now,
                    crl_outbox_fill *ret) {
  lock(outbox);
  meet_outage(outbox, now);
  node *n = find(outbox, key, key_len, now);
  int found = n != NULL && has_fill(n, now);
  if (found) {
    *ret = n->fill;
    crl_bytes_ref(ret->record);
  }
  unlock(outbox);
  return found;
}

static int is_to_replay(const node *n, int64_t now) {
  return !n->given_out && n->made <= now &&
         (n->invalidates || (n->fill.version != 0 && has_fill(n, now)));
}

/* Copies the change of a key to *ret, to be replayed; 0 without memory. */
static int give_out(node *n, crl_outbox_entry *ret) {
  uint8_t *key = crl_alloc(n->key_len);
  if (key == NULL) return 0;
  memcpy(key, n->key, n->key_len);
  n->given_out = 1;
  *ret = (crl_outbox_entry){.key = key,
                            .key_len = n->key_len,
                            .invalidates = n->invalidates,
                            .began = n->wished,
                            .memory = key};
  if (n->successor != NULL) ret->successor = crl_bytes_ref(n->successor);
  if (n->invalidates) return 1;
  ret->fill = n->fill;
  crl_bytes_ref(ret->fill.record);
  return 1;
}

size_t crl_outbox_replay(crl_outbox *outbox, int64_t now,
                         int (*wanted)(void *arg, const void *key, size_t key_len), void *arg,
                         crl_outbox_entry *ret, size_t most) {
  size_t count = 0;
  lock(outbox);
  outbox->away_since = outbox->away_last = NEVER;
  for (node *n = outbox->oldest, *newer; n != NULL && count < most; n = newer) {
    newer = n->newer;
    if (is_old(outbox, n, now))
      drop(outbox, n);
    else if (is_to_replay(n, now) && wanted(arg, n->key, n->key_len))
      count += (size_t)give_out(n, &ret[count]);
  }
  unlock(outbox);
  return count;
}

void crl_outbox_visit(crl_outbox *outbox, int64_t now,
                      void (*visit)(void *arg, const void *key, size_t key_len), void *arg) {
  lock(outbox);
  for (node *n = outbox->oldest; n != NULL; n = n->newer)
    if (!is_old(outbox, n, now) && is_to_replay(n, now)) visit(arg, n->key, n->key_len);
  unlock(outbox);
}

void crl_outbox_return(crl_outbox *outbox, const crl_outbox_entry *entry) {
  lock(outbox);
  node *n = outbox->count == 0 ? NULL : *link_of(outbox, entry->key, entry->key_len);
  if (n != NULL &&
      (entry->invalidates ? n->wished == entry->began : n->fill.began == entry->fill.began))
    n->given_out = 0;
  unlock(outbox);
}

void crl_outbox_replayed(crl_outbox *outbox, const crl_outbox_entry *entry) {
  lock(outbox);
  node *n = outbox->count == 0 ? NULL : *link_of(outbox, entry->key, entry->key_len);
  if (n != NULL && n->wished == entry->began) {
    outbox->weight -= weigh(n);
    crl_bytes_unref(n->successor);
    n->successor = NULL;
    outbox->weight += weigh(n);
    n->invalidates = n->given_out = 0;
    if (n->fill.record == NULL) drop(outbox, n);
  }
  unlock(outbox);
}

void crl_outbox_entry_clean(crl_outbox_entry *entry) {
  crl_bytes_unref(entry->fill.record);
  crl_bytes_unref(entry->successor);
  free(entry->memory);
  memset(entry, 0, sizeof *entry);
}

size_t crl_outbox_count(crl_outbox *outbox) {
  lock(outbox);
  size_t count = outbox->count;
  unlock(outbox);
  return count;
}

size_t crl_outbox_weight(crl_outbox *outbox) {
  lock(outbox);
  size_t weight = (size_t)outbox->weight;
  unlock(outbox);
  return weight;
}
