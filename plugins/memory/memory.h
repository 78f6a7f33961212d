/* memory.h: declarations shared by the files of the memory: store, from the bottom up:
 *
 *   watch.c    watches, which report changes
 *   shard.c    records, and their eviction
 *   lock.c     users' locks
 *   memory.c   operations, names, the table */
#ifndef CRL_MEMORY_H
#define CRL_MEMORY_H

#include <corral/plugin.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum {
  CRL_MEMORY_MAX_KEY = 1024,
  CRL_MEMORY_MARK_MOST = 3 /* S3-FIFO's two bits */
};

/* ---- watch.c ------------------------------------------------------------------------------- */

typedef struct crl_memory_watch crl_memory_watch;

/* The open watches of a memory. */
typedef struct crl_memory_watches {
  const corral_host *host;
  /* number of open watches; where it is 0, reading it is all that a change costs */
  atomic_uint open;
  pthread_mutex_t lock;
  crl_memory_watch *first;
} crl_memory_watches;

int crl_memory_watches_init(crl_memory_watches *watches, const corral_host *host);
/* Frees the list; all watches must be closed. */
void crl_memory_watches_free(crl_memory_watches *watches);
/* Nonzero when changes must be reported. To be read under the lock of the key's shard: then no
 * change of a key is missed that was looked at while a watch was open. */
static inline int crl_memory_is_watched(crl_memory_watches *watches) {
  return atomic_load_explicit(&watches->open, memory_order_relaxed) != 0;
}
/* Reports a change of this key to all watches. Locks of shards may be held. */
void crl_memory_tell(crl_memory_watches *watches, const void *key, size_t key_len);

int crl_memory_watch_open(crl_memory_watches *watches, crl_memory_watch **ret);
/* As corral_store.changes and unwatch. */
int crl_memory_changes(void *watch, int stop_fd, int64_t until,
                       void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error);
void crl_memory_unwatch(void *watch);

/* ---- shard.c ------------------------------------------------------------------------------- */

/* A record, reference-counted: its entry and every `found` that was handed out hold a reference. */
typedef struct crl_memory_block {
  atomic_size_t refs;
  size_t len;
  uint8_t bytes[];
} crl_memory_block;

typedef struct crl_memory_entry crl_memory_entry;

typedef struct crl_memory_queue {
  crl_memory_entry *newest, *oldest;
  size_t bytes, count;
} crl_memory_queue;

struct crl_memory_entry {
  crl_memory_entry *chain;
  crl_memory_entry *newer, *older;
  crl_memory_queue *in;
  crl_memory_block *record;
  uint64_t hash;
  int64_t expires;
  int64_t leased_until; /* when its lease ends; zero without a lease */
  int64_t held_until;   /* of a lock: when its last hold ends; zero for a value */
  size_t key_len;
  unsigned marks;
  uint8_t key[];
};

typedef struct crl_memory_ghost {
  uint32_t print, when;
} crl_memory_ghost;

typedef struct crl_memory_shard {
  _Alignas(64) pthread_mutex_t lock;
  crl_memory_entry **buckets;
  size_t bucket_count, count;
  crl_memory_queue small, main;
  /* indexed by hash; an entry counts while it is younger than the main queue is long */
  crl_memory_ghost *ghosts;
  size_t ghost_count;
  uint32_t ghost_clock;
} crl_memory_shard;

typedef struct crl_memory {
  const corral_host *host;
  struct crl_memory *next; /* in the registry, if it has a name */
  char *name;
  pid_t pid;
  size_t refs;
  atomic_size_t budget, used;
  atomic_size_t hand; /* index of the next shard to evict from, modulo shard_count */
  size_t shard_count;
  crl_memory_shard *shards;
  crl_memory_watches watches;
} crl_memory;

/* A new block of `len` bytes with one reference; NULL without memory. */
crl_memory_block *crl_memory_block_new(size_t len);
void crl_memory_block_drop(void *block);
/* Bytes that a record counts against the budget. */
size_t crl_memory_charge_of(size_t key_len, size_t record_len);

int crl_memory_shard_init(crl_memory_shard *s, size_t share);
void crl_memory_shard_free(crl_memory *m, crl_memory_shard *s);

/* These functions need the shard's lock. The link that points to the key's entry, or to NULL where
 * it would be added. */
crl_memory_entry **crl_memory_find(crl_memory_shard *s, uint64_t hash, const void *key,
                                   size_t key_len);
/* Both take over `record`, whatever they return. An entry that is swapped keeps its place in its
 * queue. */
int crl_memory_entry_add(crl_memory *m, crl_memory_shard *s, uint64_t hash, const corral_op *op,
                         crl_memory_block *record, crl_memory_entry **ret);
void crl_memory_entry_swap(crl_memory *m, crl_memory_entry *e, crl_memory_block *record);
void crl_memory_entry_remove(crl_memory *m, crl_memory_shard *s, crl_memory_entry *e);

/* Evicts until the budget is met, but never the key with the hash `spare`. No lock may be held. */
void crl_memory_make_room(crl_memory *m, uint64_t spare, int64_t now);
/* Largest power of two times `least` that is neither above `wish` nor above `most`; at least
 * `least`. */
size_t crl_memory_power_within(size_t wish, size_t least, size_t most);

/* ---- lock.c -------------------------------------------------------------------------------- */

int crl_memory_is_lock(const corral_op *op);
/* Performs one of the LOCK verbs on a key of this shard. No lock may be held. */
void crl_memory_lock_verb(crl_memory *m, crl_memory_shard *s, uint64_t hash, corral_op *op);

#endif
