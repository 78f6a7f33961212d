/* store_routed.c: routed:FILE, a store of this process whose servers come and go, and keys with
 * them: for the conformance suite, and an example of such a plugin.
 *
 * Each server has some of the buckets, into which keys are hashed. A line in FILE is a key: its
 * bucket moves to another server then. With every=N the bucket of each Nth operation does so, just
 * before that. A server comes with its first bucket and goes with its last one; with stay=yes it
 * stays, and sends on what it is asked. With missed=yes its watch says of a key that has moved that
 * changes may have been missed.
 *
 * defect=NAME makes one that breaks a promise; the suite must find it. */
#include <corral/plugin.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { SERVERS = 8, FIRST = 2, BUCKETS = 64, LINE = 512, STEP_MS = 5, WATCHES = 8 };

typedef struct item {
  struct item *next;
  int64_t expires;
  size_t key_len, size;
  uint8_t *key, *record;
} item;

typedef struct server {
  item *items;
  unsigned buckets, life; /* life: of how many servers this is the number, so far */
} server;

typedef struct bucket {
  size_t owner;
  unsigned moves;
  /* what the plugin knows of it */
  size_t known;
  unsigned known_moves;
} bucket;

typedef struct routed_watch routed_watch;

typedef struct routed {
  const corral_host *host;
  pthread_mutex_t mutex;
  char path[LINE];
  const char *defect;
  long read; /* bytes of the file that were read */
  unsigned every, ops, turn;
  int stay, missed;
  server servers[SERVERS];
  bucket buckets[BUCKETS];
  routed_watch *watches[WATCHES];
} routed;

typedef struct handle {
  routed *store;
  size_t server;
  unsigned life;
} handle;

/* A key that a watch has registered, while its bucket had moved so often. */
typedef struct registered {
  uint64_t hash;
  size_t bucket;
  unsigned moves;
} registered;

typedef struct news {
  uint64_t hash;
  int missed; /* 1: changes of this key may have been missed */
} news;

struct routed_watch {
  routed *store;
  registered *keys;
  size_t count, room;
  news *told;
  size_t told_count, told_room;
};

static int has_defect(const routed *r, const char *name) { return strcmp(r->defect, name) == 0; }

static size_t bucket_of(const routed *r, const void *key, size_t len) {
  return corral_digest_number(r->host, key, len) % BUCKETS;
}

/* ---- servers, and keys that move ----------------------------------------------------------- */

static void move_items(routed *r, size_t b, size_t from, size_t to) {
  for (item **at = &r->servers[from].items; *at != NULL;) {
    item *it = *at;
    if (bucket_of(r, it->key, it->key_len) != b) {
      at = &it->next;
      continue;
    }
    *at = it->next;
    it->next = r->servers[to].items;
    r->servers[to].items = it;
  }
}

static void move(routed *r, size_t b) {
  bucket *moved = &r->buckets[b];
  size_t from = moved->owner, to = FIRST + r->turn++ % (SERVERS - FIRST);
  if (to == from) to = FIRST + r->turn++ % (SERVERS - FIRST);
  if (r->servers[to].buckets++ == 0 && !r->stay) r->servers[to].life++;
  r->servers[from].buckets--;
  move_items(r, b, from, to);
  moved->owner = to;
  moved->moves++;
}

/* Reads the lines that have come. */
static void catch_up(routed *r) {
  struct stat about;
  char line[LINE];
  if (r->path[0] == '\0' || stat(r->path, &about) != 0 || about.st_size <= r->read) return;
  FILE *file = fopen(r->path, "r");
  if (file == NULL) return;
  if (fseek(file, r->read, SEEK_SET) == 0)
    while (fgets(line, sizeof line, file) != NULL && strchr(line, '\n') != NULL) {
      r->read += (long)strlen(line);
      move(r, bucket_of(r, line, strcspn(line, "\n")));
    }
  fclose(file);
}

static void learn(const routed *r, bucket *b) {
  if (has_defect(r, "learns_nothing")) return;
  b->known = b->owner;
  b->known_moves = b->moves;
}

/* ---- watches ------------------------------------------------------------------------------- */

static void *grown(void *list, size_t count, size_t *room, size_t size) {
  if (count < *room) return list;
  *room = 2 * *room + 64;
  void *more = realloc(list, *room * size);
  if (more == NULL) abort();
  return more;
}

static void tell(routed_watch *w, uint64_t hash, int missed) {
  w->told = grown(w->told, w->told_count, &w->told_room, sizeof *w->told);
  w->told[w->told_count++] = (news){.hash = hash, .missed = missed};
}

static void changed(const routed *r, size_t b, uint64_t hash) {
  for (size_t n = 0; n < WATCHES; n++) {
    routed_watch *w = r->watches[n];
    for (size_t i = w != NULL ? w->count : 0; i > 0; i--) {
      const registered *key = &w->keys[i - 1];
      if (key->hash != hash || key->bucket != b || key->moves != r->buckets[b].moves) continue;
      tell(w, hash, 0);
      w->keys[i - 1] = w->keys[--w->count];
    }
  }
}

/* Keys whose bucket has moved are told: their former server tells nothing of them. */
static void tell_moved(routed_watch *w) {
  const routed *r = w->store;
  for (size_t i = w->count; i > 0; i--) {
    const registered *key = &w->keys[i - 1];
    if (key->moves == r->buckets[key->bucket].known_moves || has_defect(r, "keeps_its_watch"))
      continue;
    tell(w, key->hash, r->missed);
    w->keys[i - 1] = w->keys[--w->count];
  }
}

static int routed_watch_open(void *store, size_t number, int64_t deadline, void **ret_watch,
                             corral_error *error) {
  routed *r = store;
  routed_watch *w = calloc(1, sizeof *w);
  size_t n = 0;
  (void)number, (void)deadline, (void)error;
  if (w == NULL) return CORRAL_ENOMEM;
  w->store = r;
  pthread_mutex_lock(&r->mutex);
  while (n < WATCHES && r->watches[n] != NULL) n++;
  if (n < WATCHES) r->watches[n] = w;
  pthread_mutex_unlock(&r->mutex);
  if (n < WATCHES) {
    *ret_watch = w;
    return CORRAL_OK;
  }
  free(w);
  return CORRAL_EUNAVAILABLE;
}

static void routed_unwatch(void *watch) {
  routed_watch *w = watch;
  pthread_mutex_lock(&w->store->mutex);
  for (size_t n = 0; n < WATCHES; n++)
    if (w->store->watches[n] == w) w->store->watches[n] = NULL;
  pthread_mutex_unlock(&w->store->mutex);
  free(w->keys);
  free(w->told);
  free(w);
}

static int routed_changes(void *watch, int stop_fd, int64_t until,
                          void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error) {
  routed_watch *w = watch;
  routed *r = w->store;
  size_t count = 0;
  struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
  (void)error;
  do {
    pthread_mutex_lock(&r->mutex);
    catch_up(r);
    tell_moved(w);
    for (; count < w->told_count; count++)
      (w->told[count].missed ? r->host->missed : told)(arg, w->told[count].hash);
    w->told_count = 0;
    pthread_mutex_unlock(&r->mutex);
  } while (count == 0 && r->host->now_ms() < until && poll(&stop, 1, STEP_MS) == 0);
  return CORRAL_OK;
}

static item **find(const routed *r, server *at_server, const void *key, size_t key_len);

static int routed_register(void *watch, corral_registration *keys, size_t count, int stop_fd,
                           int64_t deadline, corral_error *error) {
  routed_watch *w = watch;
  routed *r = w->store;
  (void)stop_fd, (void)deadline, (void)error;
  pthread_mutex_lock(&r->mutex);
  catch_up(r);
  for (size_t i = 0; i < count; i++) {
    size_t b = bucket_of(r, keys[i].key, keys[i].key_len);
    learn(r, &r->buckets[b]);
    const item *it = *find(r, &r->servers[r->buckets[b].owner], keys[i].key, keys[i].key_len);
    keys[i].status = it == NULL ? CORRAL_EMISS : CORRAL_OK;
    keys[i].head_len = it == NULL ? 0 : it->size < CORRAL_HEAD ? it->size : CORRAL_HEAD;
    if (it != NULL) memcpy(keys[i].head, it->record, keys[i].head_len);
    w->keys = grown(w->keys, w->count, &w->room, sizeof *w->keys);
    w->keys[w->count++] =
        (registered){.hash = r->host->hash64(keys[i].key, keys[i].key_len),
                     .bucket = b,
                     .moves = has_defect(r, "keeps_its_watch") ? 0 : r->buckets[b].moves};
  }
  pthread_mutex_unlock(&r->mutex);
  return CORRAL_OK;
}

/* ---- records of one server ----------------------------------------------------------------- */

static void drop(item **link) {
  item *gone = *link;
  *link = gone->next;
  free(gone->key);
  free(gone->record);
  free(gone);
}

static item **find(const routed *r, server *at_server, const void *key, size_t key_len) {
  item **at = &at_server->items;
  int64_t now = r->host->boot_ms();
  while (*at != NULL) {
    if ((*at)->expires <= now)
      drop(at);
    else if ((*at)->key_len == key_len && memcmp((*at)->key, key, key_len) == 0)
      break;
    else
      at = &(*at)->next;
  }
  return at;
}

static item *add(server *to, const corral_op *op) {
  item *it = calloc(1, sizeof *it);
  if (it == NULL || (it->key = malloc(op->key_len)) == NULL) abort();
  memcpy(it->key, op->key, op->key_len);
  it->key_len = op->key_len;
  it->next = to->items;
  return to->items = it;
}

static void put(const routed *r, server *to, item *it, const corral_op *op,
                const corral_change *change) {
  size_t size = change->front_len + change->body_len;
  uint8_t *record = malloc(size);
  if (record == NULL) abort();
  r->host->join(change,
                change->action == CORRAL_ACTION_EDIT ? it->record + CORRAL_HEAD : change->body,
                record);
  if (it == NULL) it = add(to, op);
  free(it->record);
  it->record = record;
  it->size = size;
  it->expires = change->expires;
}

static void give(const routed *r, corral_op *op, const item *it) {
  if (it == NULL) return;
  uint8_t *copy = r->host->record_new(it->size);
  if (copy == NULL) abort();
  memcpy(copy, it->record, it->size);
  op->found = (corral_found){.record = copy, .len = it->size, .owner = copy};
  op->found.drop = r->host->record_drop;
}

static void one(const routed *r, server *on, size_t b, corral_op *op) {
  corral_change change;
  uint8_t front[CORRAL_FRONT];
  if (op->verb >= CORRAL_VERB_LOCK) {
    op->status = CORRAL_EUNSUPPORTED;
    return;
  }
  item **at = find(r, on, op->key, op->key_len);
  size_t len = *at == NULL ? 0 : r->host->front((*at)->record, (*at)->size, front);
  r->host->decide(op, *at == NULL ? NULL : front, len, r->host->boot_ms(), &change);
  if (change.action == CORRAL_ACTION_EDIT || change.action == CORRAL_ACTION_REPLACE)
    put(r, on, *at, op, &change);
  else if (change.action == CORRAL_ACTION_REMOVE && *at != NULL)
    drop(at);
  if (change.action != CORRAL_ACTION_KEEP) changed(r, b, r->host->hash64(op->key, op->key_len));
  op->state.same = 0;
  if (op->verb == CORRAL_VERB_GET || op->verb == CORRAL_VERB_CLAIM)
    give(r, op, *find(r, on, op->key, op->key_len));
}

/* ---- batches ------------------------------------------------------------------------------- */

/* True when the operation is answered by the name of another server. */
static int sent_on(routed *r, size_t number, corral_op *op) {
  size_t b = bucket_of(r, op->key, op->key_len);
  if (r->every > 0 && ++r->ops % r->every == 0) move(r, b);
  bucket *its = &r->buckets[b];
  if (its->owner == number || has_defect(r, "splits_not")) {
    one(r, &r->servers[number], b, op);
    return 0;
  }
  if (has_defect(r, "does_and_sends_on")) one(r, &r->servers[its->owner], b, op);
  if (op->found.record != NULL) r->host->record_drop(op->found.record);
  op->found = (corral_found){.record = NULL};
  learn(r, its);
  op->server = (uint32_t)its->owner;
  op->status = CORRAL_EMOVED;
  return 1;
}

static int is_gone(const handle *h) {
  const server *s = &h->store->servers[h->server];
  return s->life != h->life || (s->buckets == 0 && !h->store->stay);
}

static int routed_perform(void *arg, const corral_batch *batch, int64_t deadline,
                          corral_error *error) {
  const handle *h = arg;
  routed *r = h->store;
  size_t i = 0;
  (void)deadline;
  pthread_mutex_lock(&r->mutex);
  for (; i < batch->count; i++) {
    catch_up(r);
    if (is_gone(h)) break;
    if (sent_on(r, h->server, corral_batch_op(batch, i)) && has_defect(r, "loses_a_key")) i++;
  }
  pthread_mutex_unlock(&r->mutex);
  if (i >= batch->count) return CORRAL_OK;
  for (; i < batch->count; i++) corral_batch_op(batch, i)->status = CORRAL_EUNAVAILABLE;
  return r->host->fail(error, CORRAL_EUNAVAILABLE, "routed: server %zu is gone", h->server);
}

static size_t routed_route(void *store, const void *key, size_t key_len) {
  routed *r = store;
  pthread_mutex_lock(&r->mutex);
  size_t known = r->buckets[bucket_of(r, key, key_len)].known;
  pthread_mutex_unlock(&r->mutex);
  return known;
}

static int routed_refresh(void *store, int64_t deadline, corral_error *error) {
  routed *r = store;
  int moved = 0;
  (void)deadline;
  pthread_mutex_lock(&r->mutex);
  catch_up(r);
  for (size_t b = 0; b < BUCKETS; b++) {
    moved |= r->buckets[b].known_moves != r->buckets[b].moves;
    learn(r, &r->buckets[b]);
  }
  pthread_mutex_unlock(&r->mutex);
  return r->host->fail(error, CORRAL_OK, "%s", moved ? "keys have moved" : "");
}

/* ---- open, connect ------------------------------------------------------------------------- */

static int routed_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                       corral_store_info *info, corral_error *error) {
  const char *every = host->uri_get(uri, "every"), *defect = host->uri_get(uri, "defect");
  int status = host->uri_check(uri, "every stay missed defect", error);
  if (status != CORRAL_OK) return status;
  routed *r = calloc(1, sizeof *r);
  if (r == NULL) return CORRAL_ENOMEM;
  r->host = host;
  pthread_mutex_init(&r->mutex, NULL);
  snprintf(r->path, sizeof r->path, "%s", uri->path != NULL ? uri->path : "");
  r->stay = host->uri_get(uri, "stay") != NULL;
  r->missed = host->uri_get(uri, "missed") != NULL;
  r->every = every != NULL ? (unsigned)strtoul(every, NULL, 10) : 0;
  r->defect = strdup(defect != NULL ? defect : "");
  if (r->defect == NULL) abort();
  for (size_t b = 0; b < BUCKETS; b++) {
    r->buckets[b].owner = r->buckets[b].known = b % FIRST;
    r->servers[b % FIRST].buckets++;
  }
  info->reach = CORRAL_REACH_PROCESS;
  info->name = "routed";
  info->servers = SERVERS;
  *ret_store = r;
  return CORRAL_OK;
}

static void routed_close(void *store) {
  routed *r = store;
  for (size_t i = 0; i < SERVERS; i++)
    while (r->servers[i].items != NULL) drop(&r->servers[i].items);
  pthread_mutex_destroy(&r->mutex);
  free((void *)(uintptr_t)r->defect);
  free(r);
}

static int routed_connect_server(void *store, size_t number, int64_t deadline, void **ret_handle,
                                 corral_error *error) {
  routed *r = store;
  (void)deadline;
  handle *h = calloc(1, sizeof *h);
  if (h == NULL) return CORRAL_ENOMEM;
  pthread_mutex_lock(&r->mutex);
  *h = (handle){.store = r, .server = number, .life = r->servers[number].life};
  int gone = is_gone(h);
  pthread_mutex_unlock(&r->mutex);
  if (!gone) {
    *ret_handle = h;
    return CORRAL_OK;
  }
  free(h);
  return r->host->fail(error, CORRAL_EUNAVAILABLE, "routed: there is no server %zu", number);
}

static int routed_connect(void *store, int64_t deadline, void **ret_handle, corral_error *error) {
  return routed_connect_server(store, 0, deadline, ret_handle, error);
}

static void routed_disconnect(void *h) { free(h); }

static const corral_store store = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .op_size = sizeof(corral_op),
    .name = "routed",
    .schemes = "routed",
    .summary = "servers that come and go, for tests",
    .open = routed_open,
    .close = routed_close,
    .connect = routed_connect,
    .disconnect = routed_disconnect,
    .perform = routed_perform,
    .route = routed_route,
    .connect_server = routed_connect_server,
    .watch = routed_watch_open,
    .changes = routed_changes,
    .unwatch = routed_unwatch,
    .register_keys = routed_register,
    .refresh = routed_refresh,
};

CORRAL_PLUGIN(store)
