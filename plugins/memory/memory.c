/* memory.c: the store inside this process: `memory:` for one corral alone, `memory:NAME` for all
 * that use this name.
 *
 * Any number of threads. A watch reports every change, by any corral that uses this name.
 *
 * A child of a fork starts with an empty store of the same name, because another thread of the
 * parent may have been in the middle of a change. The parent's memory is left untouched there. */
#include "memory.h"

#include <stdlib.h>
#include <unistd.h>

enum {
  SHARDS_MOST = 16,
  SHARD_LEAST = 4 << 20 /* bytes of budget for each shard beyond the first */
};

static const int64_t SIZE_DEFAULT = INT64_C(64) << 20;
static const int64_t SIZE_LEAST = INT64_C(64) << 10;
static const int64_t SIZE_MOST = INT64_C(1) << 40;

/* One corral's view of a memory; serves as its handle too. */
typedef struct store {
  const corral_host *host;
  char *name; /* "" for a private memory */
  char label[80];
  int64_t size;
  int size_given;
  pthread_mutex_t lock;
  crl_memory *memory; /* NULL before the first connect */
} store;

/* ---- operations ---------------------------------------------------------------------------- */

static void note_lease(crl_memory *m, crl_memory_entry *e, const corral_change *change) {
  corral_header header;
  e->expires = change->expires;
  e->leased_until = 0;
  if (m->host->header_read(change->front, change->front_len, &header) == CORRAL_OK &&
      header.state == CORRAL_LEASED)
    e->leased_until = header.until;
}

/* Writes the changed record to a new block, since readers may hold the old one and the length
 * differs. */
static int put(crl_memory *m, crl_memory_shard *s, uint64_t hash, corral_op *op,
               crl_memory_entry **e, const corral_change *change) {
  size_t len = change->front_len + change->body_len;
  const uint8_t *body =
      change->action == CORRAL_ACTION_EDIT ? (*e)->record->bytes + CORRAL_HEAD : change->body;
  size_t need = crl_memory_charge_of(op->key_len, len), most = atomic_load(&m->budget) / 2;
  if (change->action == CORRAL_ACTION_REPLACE && need > most) {
    return m->host->fail(op->error, CORRAL_ETOOBIG,
                         "a record of %zu bytes: one may take half of the store's size, %zu; a "
                         "larger size= accepts it",
                         need, most);
  }
  crl_memory_block *record = crl_memory_block_new(len);
  if (record == NULL) return CORRAL_ENOMEM;
  m->host->join(change, body, record->bytes);
  if (*e == NULL) return crl_memory_entry_add(m, s, hash, op, record, e);
  crl_memory_entry_swap(m, *e, record);
  return CORRAL_OK;
}

/* Carries out the change; *e is the entry afterwards, or NULL. */
static void apply(crl_memory *m, crl_memory_shard *s, uint64_t hash, corral_op *op,
                  crl_memory_entry **e, const corral_change *change) {
  if (change->action == CORRAL_ACTION_KEEP) return;
  if (change->action == CORRAL_ACTION_REMOVE) {
    if (*e != NULL) crl_memory_entry_remove(m, s, *e);
    *e = NULL;
    return;
  }
  int status = put(m, s, hash, op, e, change);
  if (status != CORRAL_OK)
    op->status = status;
  else
    note_lease(m, *e, change);
}

static void hand_out(corral_op *op, crl_memory_entry *e) {
  int found =
      op->status == CORRAL_OK || (op->verb == CORRAL_VERB_CLAIM && op->status == CORRAL_EBUSY);
  if (!found || e == NULL || (op->verb != CORRAL_VERB_GET && op->verb != CORRAL_VERB_CLAIM)) return;
  /* A look at a lease without a body, as waiters do, doesn't mark the entry as popular. */
  if (op->verb == CORRAL_VERB_GET && op->state.life_ms != 0 && e->marks < CRL_MEMORY_MARK_MOST)
    e->marks++;
  op->state.same = 0; /* the whole record costs no more than its front */
  atomic_fetch_add_explicit(&e->record->refs, 1, memory_order_relaxed);
  op->found.record = e->record->bytes;
  op->found.len = e->record->len;
  op->found.drop = crl_memory_block_drop;
  op->found.owner = e->record;
}

/* A look; this, and what follows, return CORRAL_OK. Apart: it is the last that its caller does, and
 * so needs no more room than its own. */
static __attribute__((noinline)) int look(crl_memory *m, crl_memory_shard *s, uint64_t hash,
                                          corral_op *op) {
  op->status = CORRAL_EMISS;
  pthread_mutex_lock(&s->lock);
  int64_t now = m->host->boot_ms();
  crl_memory_entry *e = *crl_memory_find(s, hash, op->key, op->key_len);
  if (e != NULL && e->expires <= now)
    crl_memory_entry_remove(m, s, e);
  else if (e != NULL && m->host->look(op, e->record->bytes, e->record->len, now) == CORRAL_OK)
    hand_out(op, e);
  pthread_mutex_unlock(&s->lock);
  return CORRAL_OK;
}

/* Any other verb of values. Apart, since a look needs none of its room. */
static __attribute__((noinline)) void change(crl_memory *m, crl_memory_shard *s, uint64_t hash,
                                             corral_op *op) {
  int news = 0;
  corral_change how;
  uint8_t front[CORRAL_FRONT];
  pthread_mutex_lock(&s->lock);
  int64_t now = m->host->boot_ms();
  crl_memory_entry *e = *crl_memory_find(s, hash, op->key, op->key_len);
  if (e != NULL && e->expires <= now) {
    crl_memory_entry_remove(m, s, e);
    e = NULL;
  }
  size_t front_len = e != NULL ? m->host->front(e->record->bytes, e->record->len, front) : 0;
  m->host->decide(op, e != NULL ? front : NULL, front_len, now, &how);
  apply(m, s, hash, op, &e, &how);
  hand_out(op, e);
  if (how.action != CORRAL_ACTION_KEEP) news = crl_memory_is_watched(&m->watches);
  pthread_mutex_unlock(&s->lock);
  if (news) crl_memory_tell(&m->watches, op->key, op->key_len);
  if (how.action != CORRAL_ACTION_KEEP && atomic_load(&m->used) > atomic_load(&m->budget))
    crl_memory_make_room(m, hash, now);
}

static int perform_one(crl_memory *m, corral_op *op) {
  if (op->key_len == 0 || op->key_len > CRL_MEMORY_MAX_KEY) {
    op->status = m->host->fail(op->error, CORRAL_EINVAL, "a key of %zu bytes: 1 to %d", op->key_len,
                               (int)CRL_MEMORY_MAX_KEY);
    return CORRAL_OK;
  }
  uint64_t hash = corral_op_hash(m->host, op);
  crl_memory_shard *s = &m->shards[(hash >> 56) & (m->shard_count - 1)];
  if (op->verb == CORRAL_VERB_GET) return look(m, s, hash, op);
  if (crl_memory_is_lock(op))
    crl_memory_lock_verb(m, s, hash, op);
  else
    change(m, s, hash, op);
  return CORRAL_OK;
}

static __attribute__((noinline)) int perform_many(crl_memory *m, const corral_batch *batch) {
  for (size_t i = 0; i < batch->count; i++) (void)perform_one(m, corral_batch_op(batch, i));
  return CORRAL_OK;
}

static int memory_perform(void *handle, const corral_batch *batch, int64_t deadline,
                          corral_error *error) {
  store *st = handle;
  (void)deadline;
  (void)error;
  return batch->count == 1 ? perform_one(st->memory, batch->ops) : perform_many(st->memory, batch);
}

/* ---- memories, and the registry of named ones ---------------------------------------------- */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static crl_memory *registry;

static void lock_registry(void) { pthread_mutex_lock(&registry_lock); }
static void unlock_registry(void) { pthread_mutex_unlock(&registry_lock); }
/* Without this, a fork while another thread has the lock would leave it locked in the child for
 * ever. Done when the plugin is loaded, because a fork in the middle of a pthread_once would run it
 * twice. */
__attribute__((constructor)) static void watch_forks(void) {
  (void)pthread_atfork(lock_registry, unlock_registry, unlock_registry);
}

static void memory_free(crl_memory *m) {
  for (size_t i = 0; i < m->shard_count; i++) crl_memory_shard_free(m, &m->shards[i]);
  crl_memory_watches_free(&m->watches);
  free(m->shards);
  free(m->name);
  free(m);
}

static int memory_fill(crl_memory *m, size_t size) {
  size_t wanted = crl_memory_power_within(size / SHARD_LEAST, 1, SHARDS_MOST);
  atomic_init(&m->budget, size);
  atomic_init(&m->used, sizeof *m + wanted * sizeof(crl_memory_shard));
  atomic_init(&m->hand, 0);
  m->shards = aligned_alloc(_Alignof(crl_memory_shard), wanted * sizeof(crl_memory_shard));
  if (m->shards == NULL) return CORRAL_ENOMEM;
  for (; m->shard_count < wanted; m->shard_count++) {
    crl_memory_shard *s = &m->shards[m->shard_count];
    if (crl_memory_shard_init(s, size / wanted) != CORRAL_OK) return CORRAL_ENOMEM;
    atomic_fetch_add(&m->used, s->bucket_count * sizeof(crl_memory_entry *) +
                                   s->ghost_count * sizeof(crl_memory_ghost));
  }
  return CORRAL_OK;
}

static int memory_new(const store *st, crl_memory **ret) {
  crl_memory *m = calloc(1, sizeof *m);
  if (m == NULL || crl_memory_watches_init(&m->watches, st->host) != CORRAL_OK) {
    free(m);
    return CORRAL_ENOMEM;
  }
  m->host = st->host;
  m->refs = 1;
  m->pid = getpid();
  m->name = strdup(st->name);
  int status = m->name == NULL ? CORRAL_ENOMEM : memory_fill(m, (size_t)st->size);
  if (status != CORRAL_OK)
    memory_free(m);
  else
    *ret = m;
  return status;
}

/* The memory of this name, made if there is none, with one more reference. Of the sizes that were
 * given for it the largest counts. */
static int registry_take(const store *st, crl_memory **ret) {
  lock_registry();
  crl_memory *m = registry;
  while (m != NULL && (m->pid != getpid() || strcmp(m->name, st->name) != 0)) m = m->next;
  int status = CORRAL_OK;
  if (m != NULL) {
    m->refs++;
    if (st->size_given && (size_t)st->size > atomic_load(&m->budget))
      atomic_store(&m->budget, (size_t)st->size);
  } else if ((status = memory_new(st, &m)) == CORRAL_OK) {
    m->next = registry;
    registry = m;
  }
  unlock_registry();
  if (status == CORRAL_OK) *ret = m;
  return status;
}

static void registry_drop(crl_memory *m) {
  lock_registry();
  int last = --m->refs == 0;
  if (last) {
    crl_memory **at = &registry;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
  }
  unlock_registry();
  if (last) memory_free(m);
}

/* ---- the table ----------------------------------------------------------------------------- */

/* Makes or finds the store's memory. It is kept until close: a private memory's records must
 * survive a handle. */
static int need_memory(store *st, corral_error *error) {
  int status = CORRAL_OK;
  pthread_mutex_lock(&st->lock);
  if (st->memory == NULL)
    status = st->name[0] != '\0' ? registry_take(st, &st->memory) : memory_new(st, &st->memory);
  pthread_mutex_unlock(&st->lock);
  return status == CORRAL_OK
             ? CORRAL_OK
             : st->host->fail(error, status, "%s: no room for its table", st->label);
}

static int memory_connect(void *store_, int64_t deadline, void **ret_handle, corral_error *error) {
  (void)deadline;
  int status = need_memory(store_, error);
  if (status == CORRAL_OK) *ret_handle = store_;
  return status;
}

static int memory_watch(void *store_, size_t server, int64_t deadline, void **ret_watch,
                        corral_error *error) {
  store *st = store_;
  crl_memory_watch *w = NULL;
  (void)server;
  (void)deadline;
  int status = need_memory(st, error);
  if (status != CORRAL_OK) return status;
  status = crl_memory_watch_open(&st->memory->watches, &w);
  if (status != CORRAL_OK)
    return st->host->fail(error, status, "%s: no room or no descriptor for a watch", st->label);
  *ret_watch = w;
  return CORRAL_OK;
}

static int memory_inspect(void *store_, const corral_inquiry *inquiry, corral_error *error) {
  store *st = store_;
  char size[32];
  (void)error;
  snprintf(size, sizeof size, "%lld", (long long)st->size);
  corral_tell(inquiry, st->label, "shared_by", "this process", CORRAL_FACT_PLAIN, NULL);
  corral_tell(inquiry, st->label, "size", size, CORRAL_FACT_PLAIN, NULL);
  return CORRAL_OK;
}

/* 1: it was ended. */
static int list_shard(crl_memory_shard *s, const corral_listing *l) {
  int ends = 0;
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->bucket_count && !ends; i++)
    for (const crl_memory_entry *e = s->buckets[i]; e != NULL && !ends; e = e->chain)
      ends = e->key_len >= l->prefix_len && memcmp(e->key, l->prefix, l->prefix_len) == 0 &&
             l->tell(l->arg, e->key, e->key_len) != 0;
  pthread_mutex_unlock(&s->lock);
  return ends;
}

static int memory_list(void *store_, const corral_listing *l, corral_error *error) {
  store *st = store_;
  int status = need_memory(st, error), ends = 0;
  for (size_t i = 0; status == CORRAL_OK && i < st->memory->shard_count && !ends; i++)
    ends = list_shard(&st->memory->shards[i], l);
  return status;
}

static void memory_disconnect(void *handle) { (void)handle; }

static void memory_close(void *store_) {
  store *st = store_;
  crl_memory *m = st->memory;
  if (m != NULL && m->pid == getpid()) {
    if (m->name[0] != '\0')
      registry_drop(m);
    else
      memory_free(m);
  }
  pthread_mutex_destroy(&st->lock);
  free(st->name);
  free(st);
}

static int check_uri(const corral_host *host, const corral_uri *uri, int64_t *size,
                     corral_error *error) {
  if (uri->hosts != NULL && uri->hosts[0] != '\0')
    return host->fail(error, CORRAL_EURI,
                      "%s: this store has no host: write memory: or memory:NAME", uri->text);
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

static int memory_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                       corral_store_info *info, corral_error *error) {
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
  info->max_key = CRL_MEMORY_MAX_KEY;
  info->handles = 1;
  info->reach = CORRAL_REACH_PROCESS;
  info->adopts = 1;
  info->name = st->label;
  info->permits = 1;
  info->turns = 1;
  *ret_store = st;
  return CORRAL_OK;
}

extern const corral_store crl_plugin_memory;
const corral_store crl_plugin_memory = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_PARALLEL,
    .op_size = sizeof(corral_op),
    .name = "memory",
    .schemes = "memory",
    .summary = "inside this process; memory:NAME is shared by all corrals of the process that use "
               "this name",
    .open = memory_open,
    .close = memory_close,
    .connect = memory_connect,
    .disconnect = memory_disconnect,
    .perform = memory_perform,
    .watch = memory_watch,
    .changes = crl_memory_changes,
    .unwatch = crl_memory_unwatch,
    .inspect = memory_inspect,
    .list = memory_list,
};

CORRAL_PLUGIN(crl_plugin_memory)
