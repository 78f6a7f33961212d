/* table.c: the holds and waiters of one process. */
#include "locks/table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/value.h"

enum { BUCKETS = 256, FENCES = 1024 };

/* Largest fencing token that was seen of a name. */
typedef struct fence_of {
  uint64_t hash, fence;
} fence_of;

struct crl_lock_table {
  pthread_mutex_t mutex;
  /* Numbers of entries and waiters. A call that may miss a simultaneous change of another thread
   * takes no mutex where the number is 0. */
  _Atomic size_t held, waiting;
  crl_lock_entry *entries[BUCKETS];
  crl_lock_waiter *waiters[BUCKETS]; /* per bucket, in the order of arrival */
  fence_of fences[FENCES];           /* by hash; of two names at one place, the later one */
};

crl_lock_table *crl_lock_table_new(void) {
  crl_lock_table *table = crl_alloc(sizeof *table);
  if (table != NULL) pthread_mutex_init(&table->mutex, NULL);
  return table;
}

void crl_lock_table_free(crl_lock_table *table) {
  pthread_mutex_destroy(&table->mutex);
  free(table);
}

#ifdef CORRAL_CHECKS
static void check_holds(const crl_lock_table *table, size_t bucket) {
  crl_lock_entry *const *link = &table->entries[bucket];
  for (int left = CRL_CHECK_MOST; *link != NULL && left > 0; link = &(*link)->next, left--) {
    CRL_MUST((*link)->link == link, "locks: a hold knows the link to it");
    CRL_MUST((*link)->hash % BUCKETS == bucket, "locks: a hold is in the bucket of its hash");
    CRL_MUST((*link)->takings != NULL, "locks: a hold was taken");
  }
}

static int is_first(const crl_lock_table *table, const crl_lock_waiter *waiter) {
  const crl_lock_waiter *at = table->waiters[waiter->hash % BUCKETS];
  while (at != waiter && at->hash != waiter->hash) at = at->next;
  return at == waiter;
}

static void check_waiters(const crl_lock_table *table, size_t bucket) {
  const crl_lock_waiter *waiter = table->waiters[bucket];
  for (int left = CRL_CHECK_MOST; waiter != NULL && left > 0; waiter = waiter->next, left--) {
    CRL_MUST(waiter->hash % BUCKETS == bucket, "locks: a waiter is in the bucket of its hash");
    CRL_MUST(waiter->first == is_first(table, waiter),
             "locks: the first waiter of a name, and no other, asks the store");
  }
}

static void check(const crl_lock_table *table) {
  for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
    check_holds(table, bucket);
    check_waiters(table, bucket);
  }
}
#endif

static void lock(crl_lock_table *table) {
  pthread_mutex_lock(&table->mutex);
  CRL_CHECK(table);
}

static void unlock(crl_lock_table *table) {
  CRL_CHECK(table);
  pthread_mutex_unlock(&table->mutex);
}

/* Under the mutex. */
static void change(_Atomic size_t *count, size_t by) {
  atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + by,
                        memory_order_release);
}

/* ---- holds --------------------------------------------------------------------------------- */

void crl_lock_table_add(crl_lock_table *table, crl_lock_entry *entry) {
  crl_lock_entry **bucket = &table->entries[entry->hash % BUCKETS];
  lock(table);
  entry->next = *bucket;
  entry->link = bucket;
  if (entry->next != NULL) entry->next->link = &entry->next;
  *bucket = entry;
  change(&table->held, 1);
  unlock(table);
}

crl_lock_entry *crl_lock_table_again(crl_lock_table *table, uint64_t hash, uint64_t owner,
                                     const uint8_t *key, size_t key_len, crl_lock_taking *taking) {
  if (table->held == 0) return NULL; /* this owner has none */
  lock(table);
  crl_lock_entry *entry = table->entries[hash % BUCKETS];
  while (entry != NULL && (entry->hash != hash || entry->owner != owner ||
                           entry->key_len != key_len || memcmp(entry->key, key, key_len) != 0))
    entry = entry->next;
  if (entry != NULL) taking->next = entry->takings, entry->takings = taking;
  unlock(table);
  return entry;
}

int crl_lock_table_let_go(crl_lock_table *table, crl_lock_entry *entry, crl_lock_taking *taking) {
  int others = 0, reads = 1;
  lock(table);
  taking->leaves = 1;
  for (const crl_lock_taking *at = entry->takings; at != NULL; at = at->next) {
    if (at->leaves) continue;
    others++;
    reads &= at->shared;
  }
  reads &= others > 0 && !atomic_load(&entry->shared);
  if (reads) atomic_store(&entry->shared, 1);
  unlock(table);
  return reads;
}

int crl_lock_table_drop(crl_lock_table *table, crl_lock_entry *entry, crl_lock_taking *taking) {
  crl_lock_taking **at = &entry->takings;
  lock(table);
  while (*at != taking) at = &(*at)->next;
  *at = taking->next;
  int last = entry->takings == NULL;
  if (last) {
    *entry->link = entry->next;
    if (entry->next != NULL) entry->next->link = entry->link;
    change(&table->held, (size_t)-1);
  }
  unlock(table);
  return last;
}

/* `entry` may not be in the table yet. */
void crl_lock_table_each(crl_lock_table *table, crl_lock_entry *entry,
                         void (*tell)(crl_lock_taking *taking, void *arg), void *arg) {
  lock(table);
  for (crl_lock_taking *at = entry->takings; at != NULL; at = at->next)
    if (!at->leaves) tell(at, arg);
  unlock(table);
}

void crl_lock_table_find(crl_lock_table *table, const uint8_t *token,
                         void (*found)(crl_lock_entry *entry)) {
  crl_lock_entry *entry = NULL;
  lock(table);
  for (size_t bucket = 0; bucket < BUCKETS && entry == NULL; bucket++) {
    entry = table->entries[bucket];
    while (entry != NULL && memcmp(entry->token, token, 16) != 0) entry = entry->next;
  }
  if (entry != NULL) found(entry);
  unlock(table);
}

int crl_lock_table_has(crl_lock_table *table, uint64_t hash, const uint8_t *token) {
  int has = 0;
  lock(table);
  for (const crl_lock_entry *entry = table->entries[hash % BUCKETS]; entry != NULL;
       entry = entry->next)
    has |= memcmp(entry->token, token, 16) == 0;
  unlock(table);
  return has;
}

uint64_t crl_lock_table_fence(crl_lock_table *table, uint64_t hash, uint64_t fence) {
  fence_of *place = &table->fences[hash % FENCES];
  lock(table);
  uint64_t seen = place->hash == hash ? place->fence : 0;
  if (fence > seen) *place = (fence_of){.hash = hash, .fence = seen = fence};
  unlock(table);
  return seen;
}

/* ---- waiters ------------------------------------------------------------------------------- */

/* Under the mutex. */
static crl_lock_waiter *first_of(const crl_lock_table *table, uint64_t hash) {
  crl_lock_waiter *waiter = table->waiters[hash % BUCKETS];
  while (waiter != NULL && waiter->hash != hash) waiter = waiter->next;
  return waiter;
}

void crl_lock_table_queue(crl_lock_table *table, crl_lock_waiter *waiter, uint64_t hash,
                          crl_waiter *wake) {
  *waiter = (crl_lock_waiter){.hash = hash, .wake = wake};
  lock(table);
  crl_lock_waiter **end = &table->waiters[hash % BUCKETS];
  waiter->first = first_of(table, hash) == NULL;
  change(&table->waiting, 1);
  while (*end != NULL) end = &(*end)->next;
  *end = waiter;
  unlock(table);
}

void crl_lock_table_leave(crl_lock_table *table, crl_lock_waiter *waiter) {
  lock(table);
  crl_lock_waiter **link = &table->waiters[waiter->hash % BUCKETS];
  while (*link != waiter) link = &(*link)->next;
  *link = waiter->next;
  change(&table->waiting, (size_t)-1);
  crl_lock_waiter *next = waiter->first ? first_of(table, waiter->hash) : NULL;
  if (next != NULL) {
    next->first = 1;
    crl_waiter_wake(next->wake);
  }
  unlock(table);
}

void crl_lock_table_wake(crl_lock_table *table, uint64_t hash) {
  if (table->waiting == 0) return; /* a waiter that comes now asks the store itself */
  lock(table);
  crl_lock_waiter *first = first_of(table, hash);
  if (first != NULL) crl_waiter_wake(first->wake);
  unlock(table);
}
