/* store_tiny.c: a store in one file: tiny:NAME, a linked list under one mutex. host->decide says
 * what each verb does to a record; the store only keeps bytes.
 *
 * cc -std=c11 -shared -fPIC store_tiny.c $(pkg-config --cflags corral) -o corral_plugin_tiny.so
 * CORRAL_PLUGIN_PATH=. corral --store tiny: run -- date */
#include <corral/plugin.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct item {
  struct item *next;
  int64_t expires;
  size_t key_len, size;
  uint8_t *key, *record;
} item;

typedef struct tiny {
  const corral_host *host;
  pthread_mutex_t mutex;
  item *items;
} tiny;

static int tiny_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                     corral_store_info *info, corral_error *error) {
  int status = host->uri_check(uri, "", error);
  if (status != CORRAL_OK) return status;
  tiny *t = calloc(1, sizeof *t);
  if (t == NULL) return CORRAL_ENOMEM;
  t->host = host;
  pthread_mutex_init(&t->mutex, NULL);
  info->poll_max_ms = 10;
  info->reach = CORRAL_REACH_PROCESS;
  info->name = "tiny";
  *ret_store = t;
  return CORRAL_OK;
}

static void drop(item **link) {
  item *gone = *link;
  *link = gone->next;
  free(gone->key);
  free(gone->record);
  free(gone);
}

static void tiny_close(void *store) {
  tiny *t = store;
  while (t->items != NULL) drop(&t->items);
  pthread_mutex_destroy(&t->mutex);
  free(t);
}

static int tiny_connect(void *store, int64_t deadline, void **ret_handle, corral_error *error) {
  (void)deadline;
  (void)error;
  *ret_handle = store;
  return CORRAL_OK;
}

static void tiny_disconnect(void *handle) { (void)handle; }

/* Finds the link to a key's item, or the end of the list; drops expired items on the way. */
static item **find(tiny *t, const corral_op *op, int64_t now) {
  item **at = &t->items;
  while (*at != NULL) {
    if ((*at)->expires <= now)
      drop(at);
    else if ((*at)->key_len == op->key_len && memcmp((*at)->key, op->key, op->key_len) == 0)
      break;
    else
      at = &(*at)->next;
  }
  return at;
}

static item *add(tiny *t, const corral_op *op) {
  item *it = calloc(1, sizeof *it);
  if (it == NULL || (it->key = malloc(op->key_len)) == NULL) {
    free(it);
    return NULL;
  }
  memcpy(it->key, op->key, op->key_len);
  it->key_len = op->key_len;
  it->next = t->items;
  return t->items = it;
}

static int put(tiny *t, item **at, const corral_op *op, const corral_change *change) {
  const uint8_t *body =
      change->action == CORRAL_ACTION_EDIT ? (*at)->record + CORRAL_HEAD : change->body;
  size_t size = change->front_len + change->body_len;
  uint8_t *record = malloc(size);
  item *it = record == NULL || *at != NULL ? *at : add(t, op);
  if (record == NULL || it == NULL) {
    free(record);
    return CORRAL_ENOMEM;
  }
  t->host->join(change, body, record);
  free(it->record);
  it->record = record;
  it->size = size;
  it->expires = change->expires;
  return CORRAL_OK;
}

static int apply(tiny *t, item **at, const corral_op *op, const corral_change *change) {
  switch (change->action) {
    case CORRAL_ACTION_EDIT:
    case CORRAL_ACTION_REPLACE: return put(t, at, op, change);
    case CORRAL_ACTION_REMOVE:
      if (*at != NULL) drop(at);
      break;
    default: break;
  }
  return CORRAL_OK;
}

static int give(corral_op *op, const item *it) {
  if (it == NULL) return CORRAL_OK;
  uint8_t *copy = malloc(it->size);
  if (copy == NULL) return CORRAL_ENOMEM;
  memcpy(copy, it->record, it->size);
  op->found.record = copy;
  op->found.len = it->size;
  op->found.drop = free;
  op->found.owner = copy;
  return CORRAL_OK;
}

static void one(tiny *t, corral_op *op) {
  corral_change change;
  uint8_t front[CORRAL_FRONT];
  int64_t now = t->host->boot_ms();
  item **at = find(t, op, now);
  size_t len = *at == NULL ? 0 : t->host->front((*at)->record, (*at)->size, front);
  t->host->decide(op, *at == NULL ? NULL : front, len, now, &change);
  int status = apply(t, at, op, &change);
  if (status == CORRAL_OK && (op->verb == CORRAL_VERB_GET || op->verb == CORRAL_VERB_CLAIM)) {
    op->state.same = 0;
    status = give(op, *find(t, op, now));
  }
  if (status != CORRAL_OK) op->status = status;
}

static int tiny_perform(void *handle, const corral_batch *batch, int64_t deadline,
                        corral_error *error) {
  tiny *t = handle;
  (void)deadline;
  (void)error;
  pthread_mutex_lock(&t->mutex);
  for (size_t i = 0; i < batch->count; i++) one(t, corral_batch_op(batch, i));
  pthread_mutex_unlock(&t->mutex);
  return CORRAL_OK;
}

static const corral_store store = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_PARALLEL,
    .op_size = sizeof(corral_op),
    .name = "tiny",
    .schemes = "tiny",
    .summary = "a linked list, to copy from",
    .open = tiny_open,
    .close = tiny_close,
    .connect = tiny_connect,
    .disconnect = tiny_disconnect,
    .perform = tiny_perform,
};

CORRAL_PLUGIN(store)
