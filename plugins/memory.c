/* memory.c: the store inside this process: `memory:` for one corral alone, `memory:NAME` for all that use this name.
 *
 * Any number of threads. The keys are spread over shards, each with a mutex, a hash table and two queues; one budget of
 * bytes for all of them, so that one record may take up to half of it however many shards there are. Whoever goes over
 * the budget evicts, shard after shard, until it is met: what is over it meanwhile is one record per writing thread.
 * Records that readers still hold after they were evicted aren't counted.
 *
 * Records are counted blocks: GET hands out the block itself. A block that somebody holds is never written again; an
 * edit makes a copy then.
 *
 * Eviction is S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction", SOSP'23):
 * a small queue for newcomers, a main queue, and the hashes of those that left the small one. A hit marks and moves
 * nothing (moving costs 1.4-1.7x per hit). Mean hit ratio over real traces: LRU 49.5 %, SIEVE 50.0, S3-FIFO 52.6.
 *
 * A child of a fork starts with an empty store of the same name: another thread of the parent may have been in the
 * middle of a change. What the parent had is left untouched there. */
#include <corral/plugin.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
  SHARDS_MOST = 16,
  SHARD_LEAST = 4 << 20,    /* bytes of budget for each further shard */
  MAX_KEY = 1024,
  MALLOC_SHARE = 16,        /* what malloc itself takes for a block */
  BUCKETS_LEAST = 64,
  GHOST_LEAST = 64,
  GHOST_MOST = 1 << 20,
  GHOST_PER_BYTES = 512,    /* one remembered hash per so many bytes of budget */
  MARK_MOST = 3             /* S3-FIFO's two bits */
};

static const int64_t SIZE_DEFAULT = INT64_C(64) << 20;
static const int64_t SIZE_LEAST = INT64_C(64) << 10;
static const int64_t SIZE_MOST = INT64_C(1) << 40;

/* A record. Owned by its entry and by every `found` that was handed out. */
typedef struct block {
  atomic_size_t refs;
  size_t len;
  uint8_t bytes[];
} block;

typedef struct entry entry;

typedef struct queue {
  entry *newest, *oldest;
  size_t bytes, count;
} queue;

struct entry {
  entry *chain;
  entry *newer, *older;
  queue *in;
  block *record;
  uint64_t hash;
  int64_t expires;
  int64_t leased_until; /* zero unless leased */
  size_t key_len;
  unsigned marks;
  uint8_t key[];
};

typedef struct ghost {
  uint32_t print, when;
} ghost;

typedef struct shard {
  _Alignas(64) pthread_mutex_t lock;
  entry **buckets;
  size_t bucket_count, count;
  queue small, main;
  ghost *ghosts; /* indexed by hash; one that was forgotten is older than the main queue is long */
  size_t ghost_count;
  uint32_t ghost_clock;
} shard;

typedef struct memory {
  const corral_host *host;
  struct memory *next; /* in the registry, when it has a name */
  char *name;
  pid_t pid;
  size_t refs;
  uint64_t seed;
  atomic_size_t budget, used;
  atomic_size_t hand; /* the shard to evict from next */
  size_t shard_count;
  shard *shards;
} memory;

/* One corral's view; its own handle as well. */
typedef struct store {
  const corral_host *host;
  char *name; /* "" when private */
  char label[80];
  int64_t size;
  int size_given;
  pthread_mutex_t lock;
  memory *memory; /* from the first connect on */
} store;

/* ---- blocks ---------------------------------------------------------------------------------------------- */

static block *block_new(const uint8_t header[CORRAL_HEADER], const uint8_t *body, size_t body_len) {
  block *b = malloc(sizeof *b + CORRAL_HEADER + body_len);
  if (b == NULL) return NULL;
  atomic_init(&b->refs, 1);
  b->len = CORRAL_HEADER + body_len;
  memcpy(b->bytes, header, CORRAL_HEADER);
  if (body_len > 0) memcpy(b->bytes + CORRAL_HEADER, body, body_len);
  return b;
}

static void block_drop(void *owner) {
  block *b = owner;
  if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1) free(b);
}

/* ---- entries, queues, ghosts: all under the shard's lock --------------------------------------------------- */

static size_t charge_of(size_t key_len, size_t record_len) {
  return sizeof(entry) + key_len + sizeof(block) + record_len + 2 * (size_t)MALLOC_SHARE;
}

static size_t charge(const entry *e) { return charge_of(e->key_len, e->record->len); }

static void queue_push(queue *q, entry *e) {
  e->in = q;
  e->newer = NULL;
  e->older = q->newest;
  if (q->newest != NULL) q->newest->newer = e;
  else q->oldest = e;
  q->newest = e;
  q->bytes += charge(e);
  q->count++;
}

static void queue_pull(entry *e) {
  queue *q = e->in;
  if (e->newer != NULL) e->newer->older = e->older;
  else q->newest = e->older;
  if (e->older != NULL) e->older->newer = e->newer;
  else q->oldest = e->newer;
  q->bytes -= charge(e);
  q->count--;
}

static void ghost_remember(shard *s, uint64_t hash) {
  ghost *g = &s->ghosts[hash & (s->ghost_count - 1)];
  g->print = (uint32_t)(hash >> 32);
  g->when = ++s->ghost_clock;
}

/* Whether this hash left the small queue lately: not longer ago than the main queue is long. */
static int ghost_knows(const shard *s, uint64_t hash) {
  const ghost *g = &s->ghosts[hash & (s->ghost_count - 1)];
  return g->when != 0 && g->print == (uint32_t)(hash >> 32) && s->ghost_clock - g->when <= s->main.count;
}

static entry **find(shard *s, uint64_t hash, const void *key, size_t key_len) {
  entry **at = &s->buckets[hash & (s->bucket_count - 1)];
  for (; *at != NULL; at = &(*at)->chain) {
    const entry *e = *at;
    if (e->hash == hash && e->key_len == key_len && memcmp(e->key, key, key_len) == 0) break;
  }
  return at;
}

static void grow(memory *m, shard *s) {
  size_t count = s->bucket_count * 2;
  entry **buckets = calloc(count, sizeof(entry *));
  if (buckets == NULL) return; /* longer chains serve as well */
  for (size_t i = 0; i < s->bucket_count; i++) {
    for (entry *e = s->buckets[i], *next; e != NULL; e = next) {
      next = e->chain;
      e->chain = buckets[e->hash & (count - 1)];
      buckets[e->hash & (count - 1)] = e;
    }
  }
  atomic_fetch_add(&m->used, (count - s->bucket_count) * sizeof(entry *));
  free(s->buckets);
  s->buckets = buckets;
  s->bucket_count = count;
}

static void entry_remove(memory *m, shard *s, entry *e) {
  entry **at = find(s, e->hash, e->key, e->key_len);
  *at = e->chain;
  queue_pull(e);
  s->count--;
  atomic_fetch_sub(&m->used, charge(e));
  block_drop(e->record);
  free(e);
}

/* Takes over the block. */
static int entry_add(memory *m, shard *s, uint64_t hash, const corral_op *op, block *record, entry **ret) {
  entry *e = calloc(1, sizeof *e + op->key_len);
  if (e == NULL) {
    block_drop(record);
    return CORRAL_ENOMEM;
  }
  if (s->count >= s->bucket_count) grow(m, s);
  e->hash = hash;
  e->key_len = op->key_len;
  memcpy(e->key, op->key, op->key_len);
  e->record = record;
  e->chain = s->buckets[hash & (s->bucket_count - 1)];
  s->buckets[hash & (s->bucket_count - 1)] = e;
  s->count++;
  queue_push(ghost_knows(s, hash) ? &s->main : &s->small, e);
  atomic_fetch_add(&m->used, charge(e));
  *ret = e;
  return CORRAL_OK;
}

/* Takes over the block. The entry keeps its place in its queue. */
static void entry_swap(memory *m, entry *e, block *record) {
  size_t before = charge(e);
  block_drop(e->record);
  e->record = record;
  e->in->bytes += charge(e) - before;
  atomic_fetch_add(&m->used, charge(e) - before);
}

/* ---- eviction -------------------------------------------------------------------------------------------- */

/* What may go. `spare` is the key that was just written; it stays: it fits into half of the budget alone. */
typedef struct choice {
  int64_t now;
  uint64_t spare;
  int leased_too;
} choice;

static int is_kept(const entry *e, const choice *c) {
  return e->hash == c->spare || (!c->leased_too && e->leased_until > c->now);
}

static void again(queue *q, entry *e) {
  queue_pull(e);
  queue_push(q, e);
}

/* One look at the oldest of a queue: true when it was evicted. */
static int look_at_oldest(memory *m, shard *s, const choice *c, entry *e) {
  int from_small = e->in == &s->small;
  if (is_kept(e, c)) {
    again(e->in, e);
  } else if (e->expires <= c->now) {
    entry_remove(m, s, e);
    return 1;
  } else if (from_small && e->marks > 1) {
    e->marks = 0;
    again(&s->main, e);
  } else if (!from_small && e->marks > 0) {
    e->marks--;
    again(&s->main, e);
  } else {
    if (from_small) ghost_remember(s, e->hash);
    entry_remove(m, s, e);
    return 1;
  }
  return 0;
}

/* Evicts one entry of this shard. An entry is looked at most 1 + MARK_MOST times per queue, so the loop ends also where
 * all are kept. */
static int evict_one(memory *m, shard *s, const choice *c) {
  size_t looks = s->count * (2 + (size_t)MARK_MOST) + 1;
  int small_gave = 1;
  while (looks-- > 0 && s->count > 0) {
    int from_small = s->main.count == 0 || (s->small.count > 0 && s->small.bytes >= (s->small.bytes + s->main.bytes) / 10);
    if (!small_gave && s->main.count > 0) from_small = 0;
    entry *e = from_small ? s->small.oldest : s->main.oldest;
    if (look_at_oldest(m, s, c, e)) return 1;
    /* A small queue of kept entries alone must not hide the main one. */
    if (from_small && is_kept(e, c)) small_gave = !small_gave;
    else small_gave = 1;
  }
  return 0;
}

static void make_room(memory *m, uint64_t spare, int64_t now) {
  choice c = {.now = now, .spare = spare, .leased_too = 0};
  for (; c.leased_too < 2; c.leased_too++) {
    size_t barren = 0;
    while (barren < m->shard_count && atomic_load(&m->used) > atomic_load(&m->budget)) {
      shard *s = &m->shards[atomic_fetch_add(&m->hand, 1) & (m->shard_count - 1)];
      pthread_mutex_lock(&s->lock);
      barren = evict_one(m, s, &c) ? 0 : barren + 1;
      pthread_mutex_unlock(&s->lock);
    }
  }
}

/* ---- operations ------------------------------------------------------------------------------------------ */

static void note_lease(memory *m, entry *e, int64_t expires) {
  corral_header header;
  e->expires = expires;
  e->leased_until = 0;
  if (m->host->header_read(e->record->bytes, e->record->len, &header) == CORRAL_OK && header.state == CORRAL_LEASED)
    e->leased_until = header.until;
}

static int edit(memory *m, entry *e, const corral_change *change) {
  block *old = e->record;
  /* References are only ever added under this lock, so one that is alone stays alone. */
  if (atomic_load_explicit(&old->refs, memory_order_acquire) == 1) {
    memcpy(old->bytes, change->header, CORRAL_HEADER);
    return CORRAL_OK;
  }
  block *copy = block_new(change->header, old->bytes + CORRAL_HEADER, old->len - CORRAL_HEADER);
  if (copy == NULL) return CORRAL_ENOMEM;
  entry_swap(m, e, copy);
  return CORRAL_OK;
}

static int replace(memory *m, shard *s, uint64_t hash, corral_op *op, entry **e, const corral_change *change) {
  size_t need = charge_of(op->key_len, CORRAL_HEADER + change->body_len);
  size_t most = atomic_load(&m->budget) / 2;
  if (need > most) {
    return m->host->fail(op->error, CORRAL_ETOOBIG,
                         "a record of %zu bytes: one may take half of the store's size, %zu; a larger size= accepts it",
                         need, most);
  }
  block *record = block_new(change->header, change->body, change->body_len);
  if (record == NULL) return CORRAL_ENOMEM;
  if (*e == NULL) return entry_add(m, s, hash, op, record, e);
  entry_swap(m, *e, record);
  return CORRAL_OK;
}

/* Does what was decided; *e is the entry afterwards, or NULL. */
static void apply(memory *m, shard *s, uint64_t hash, corral_op *op, entry **e, const corral_change *change) {
  int status = CORRAL_OK;
  if (change->action == CORRAL_ACTION_EDIT) {
    status = edit(m, *e, change);
  } else if (change->action == CORRAL_ACTION_REPLACE) {
    status = replace(m, s, hash, op, e, change);
  } else if (change->action == CORRAL_ACTION_REMOVE && *e != NULL) {
    entry_remove(m, s, *e);
    *e = NULL;
  }
  if (status != CORRAL_OK && op->verb == CORRAL_VERB_INVALIDATE) {
    /* No room for the mark: what was invalidated goes all the same. */
    if (*e != NULL) entry_remove(m, s, *e);
    *e = NULL;
    if (op->error != NULL) memset(op->error, 0, sizeof *op->error);
    return;
  }
  if (status != CORRAL_OK) op->status = status;
  else if (*e != NULL && change->action != CORRAL_ACTION_KEEP) note_lease(m, *e, change->expires);
}

static void hand_out(corral_op *op, entry *e) {
  int found = op->status == CORRAL_OK || (op->verb == CORRAL_VERB_CLAIM && op->status == CORRAL_EBUSY);
  if (!found || e == NULL || (op->verb != CORRAL_VERB_GET && op->verb != CORRAL_VERB_CLAIM)) return;
  /* Waiters that look at a bare lease don't make its key popular. */
  if (op->verb == CORRAL_VERB_GET && op->life_ms != 0 && e->marks < MARK_MOST) e->marks++;
  atomic_fetch_add_explicit(&e->record->refs, 1, memory_order_relaxed);
  op->found = e->record->bytes;
  op->found_len = op->same ? CORRAL_HEADER : e->record->len;
  op->found_free = block_drop;
  op->found_owner = e->record;
}

/* The seed goes in front of the key: xored to the result it would leave colliding keys colliding. */
static uint64_t hash_key(const memory *m, const corral_op *op) {
  uint8_t text[sizeof m->seed + MAX_KEY];
  memcpy(text, &m->seed, sizeof m->seed);
  memcpy(text + sizeof m->seed, op->key, op->key_len);
  return m->host->hash64(text, sizeof m->seed + op->key_len);
}

static void perform_one(memory *m, corral_op *op) {
  if (op->key_len == 0 || op->key_len > MAX_KEY) {
    op->status = m->host->fail(op->error, CORRAL_EINVAL, "a key of %zu bytes: 1 to %d", op->key_len, (int)MAX_KEY);
    return;
  }
  uint64_t hash = hash_key(m, op);
  shard *s = &m->shards[(hash >> 56) & (m->shard_count - 1)];
  corral_change change;
  pthread_mutex_lock(&s->lock);
  int64_t now = m->host->boot_ms();
  entry *e = *find(s, hash, op->key, op->key_len);
  if (e != NULL && e->expires <= now) {
    entry_remove(m, s, e);
    e = NULL;
  }
  m->host->decide(op, e != NULL ? e->record->bytes : NULL, e != NULL ? e->record->len : 0, now, &change);
  apply(m, s, hash, op, &e, &change);
  hand_out(op, e);
  pthread_mutex_unlock(&s->lock);
  if (change.action != CORRAL_ACTION_KEEP && atomic_load(&m->used) > atomic_load(&m->budget)) make_room(m, hash, now);
}

static int memory_perform(void *handle, corral_op *ops, size_t count, int64_t deadline, corral_error *error) {
  store *st = handle;
  (void)deadline;
  (void)error;
  for (size_t i = 0; i < count; i++) perform_one(st->memory, &ops[i]);
  return CORRAL_OK;
}

/* ---- memories, and the registry of those with a name -------------------------------------------------------- */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static memory *registry;

static void lock_registry(void) { pthread_mutex_lock(&registry_lock); }
static void unlock_registry(void) { pthread_mutex_unlock(&registry_lock); }
/* A fork while another thread has the lock would leave it locked in the child for ever. */
static void watch_forks(void) { (void)pthread_atfork(lock_registry, unlock_registry, unlock_registry); }

static size_t power_within(size_t wish, size_t least, size_t most) {
  size_t power = least;
  while (power < most && power * 2 <= wish) power *= 2;
  return power;
}

static int shard_init(shard *s, size_t share) {
  memset(s, 0, sizeof *s);
  s->bucket_count = BUCKETS_LEAST;
  s->ghost_count = power_within(share / GHOST_PER_BYTES, GHOST_LEAST, GHOST_MOST);
  s->buckets = calloc(s->bucket_count, sizeof(entry *));
  s->ghosts = calloc(s->ghost_count, sizeof(ghost));
  if (s->buckets == NULL || s->ghosts == NULL || pthread_mutex_init(&s->lock, NULL) != 0) {
    free(s->buckets);
    free(s->ghosts);
    return CORRAL_ENOMEM;
  }
  return CORRAL_OK;
}

static void shard_free(memory *m, shard *s) {
  while (s->small.oldest != NULL) entry_remove(m, s, s->small.oldest);
  while (s->main.oldest != NULL) entry_remove(m, s, s->main.oldest);
  free(s->buckets);
  free(s->ghosts);
  pthread_mutex_destroy(&s->lock);
}

static void memory_free(memory *m) {
  for (size_t i = 0; i < m->shard_count; i++) shard_free(m, &m->shards[i]);
  free(m->shards);
  free(m->name);
  free(m);
}

static int memory_fill(memory *m, size_t size) {
  size_t wanted = power_within(size / SHARD_LEAST, 1, SHARDS_MOST);
  atomic_init(&m->budget, size);
  atomic_init(&m->used, sizeof *m + wanted * sizeof(shard));
  atomic_init(&m->hand, 0);
  m->shards = aligned_alloc(_Alignof(shard), wanted * sizeof(shard));
  if (m->shards == NULL) return CORRAL_ENOMEM;
  for (; m->shard_count < wanted; m->shard_count++) {
    shard *s = &m->shards[m->shard_count];
    if (shard_init(s, size / wanted) != CORRAL_OK) return CORRAL_ENOMEM;
    atomic_fetch_add(&m->used, s->bucket_count * sizeof(entry *) + s->ghost_count * sizeof(ghost));
  }
  return m->host->random(&m->seed, sizeof m->seed);
}

static int memory_new(const store *st, memory **ret) {
  memory *m = calloc(1, sizeof *m);
  if (m == NULL) return CORRAL_ENOMEM;
  m->host = st->host;
  m->refs = 1;
  m->pid = getpid();
  m->name = strdup(st->name);
  int status = m->name == NULL ? CORRAL_ENOMEM : memory_fill(m, (size_t)st->size);
  if (status != CORRAL_OK) memory_free(m);
  else *ret = m;
  return status;
}

/* The named memory, made when it isn't there. Of several sizes that were asked for, the largest counts. */
static int registry_take(const store *st, memory **ret) {
  pthread_once(&registry_once, watch_forks);
  lock_registry();
  memory *m = registry;
  while (m != NULL && (m->pid != getpid() || strcmp(m->name, st->name) != 0)) m = m->next;
  int status = CORRAL_OK;
  if (m != NULL) {
    m->refs++;
    if (st->size_given && (size_t)st->size > atomic_load(&m->budget)) atomic_store(&m->budget, (size_t)st->size);
  } else if ((status = memory_new(st, &m)) == CORRAL_OK) {
    m->next = registry;
    registry = m;
  }
  unlock_registry();
  if (status == CORRAL_OK) *ret = m;
  return status;
}

static void registry_drop(memory *m) {
  lock_registry();
  int last = --m->refs == 0;
  if (last) {
    memory **at = &registry;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
  }
  unlock_registry();
  if (last) memory_free(m);
}

/* ---- the table ------------------------------------------------------------------------------------------- */

static int memory_connect(void *store_, int64_t deadline, void **ret_handle, corral_error *error) {
  store *st = store_;
  int status = CORRAL_OK;
  (void)deadline;
  pthread_mutex_lock(&st->lock);
  /* Kept until close: what a private memory holds must not go with a handle. */
  if (st->memory == NULL) status = st->name[0] != '\0' ? registry_take(st, &st->memory) : memory_new(st, &st->memory);
  pthread_mutex_unlock(&st->lock);
  if (status != CORRAL_OK) return st->host->fail(error, status, "%s: no room for its table", st->label);
  *ret_handle = st;
  return CORRAL_OK;
}

static void memory_disconnect(void *handle) { (void)handle; }

static void memory_close(void *store_) {
  store *st = store_;
  memory *m = st->memory;
  if (m != NULL && m->pid == getpid()) {
    if (m->name[0] != '\0') registry_drop(m);
    else memory_free(m);
  }
  pthread_mutex_destroy(&st->lock);
  free(st->name);
  free(st);
}

static int check_uri(const corral_host *host, const corral_uri *uri, int64_t *size, corral_error *error) {
  if (uri->hosts != NULL && uri->hosts[0] != '\0')
    return host->fail(error, CORRAL_EURI, "%s: this store has no host: write memory: or memory:NAME", uri->text);
  int status = host->uri_check(uri, "size", error);
  if (status != CORRAL_OK) return status;
  return host->uri_number(uri, "size", "bytes", SIZE_LEAST, SIZE_MOST, size, error);
}

static void label_write(char *label, size_t room, const char *name) {
  static const char scheme[] = "memory";
  size_t used = sizeof scheme - 1;
  memcpy(label, scheme, used);
  if (name[0] != '\0') label[used++] = ' ';
  while (*name != '\0' && used + 1 < room) label[used++] = *name++;
  label[used] = '\0';
}

static int memory_open(const corral_host *host, const corral_uri *uri, void **ret_store, corral_store_info *info,
                       corral_error *error) {
  int64_t size = SIZE_DEFAULT;
  int status = check_uri(host, uri, &size, error);
  if (status != CORRAL_OK) return status;
  store *st = calloc(1, sizeof *st);
  if (st == NULL) return CORRAL_ENOMEM;
  st->name = strdup(uri->path != NULL ? uri->path : "");
  if (st->name == NULL || pthread_mutex_init(&st->lock, NULL) != 0) {
    free(st->name);
    free(st);
    return CORRAL_ENOMEM;
  }
  st->host = host;
  st->size = size;
  st->size_given = host->uri_get(uri, "size") != NULL;
  label_write(st->label, sizeof st->label, st->name);
  info->max_key = MAX_KEY;
  info->handles = 1;
  info->reach = CORRAL_REACH_PROCESS;
  info->name = st->label;
  *ret_store = st;
  return CORRAL_OK;
}

extern const corral_store crl_plugin_memory;
const corral_store crl_plugin_memory = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_PARALLEL,
    .name = "memory",
    .schemes = "memory",
    .summary = "inside this process; memory:NAME is shared by all corrals of the process that use this name",
    .open = memory_open,
    .close = memory_close,
    .connect = memory_connect,
    .disconnect = memory_disconnect,
    .perform = memory_perform,
};

CORRAL_PLUGIN(crl_plugin_memory)
