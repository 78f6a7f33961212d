/* old_store.c: a plugin of the frozen header: old:, a linked list under one mutex. It names no field that came later, and
 * doesn't compile when it meets a newer header. */
#include <corral/plugin.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(corral_store) == offsetof(corral_store, perform) + sizeof(void *), "not the frozen corral/plugin.h");

typedef struct item {
  struct item *next;
  int64_t expires;
  size_t key_len, size;
  uint8_t *key, *record;
} item;

typedef struct old {
  const corral_host *host;
  pthread_mutex_t mutex;
  item *items;
} old;

static int old_open(const corral_host *host, const corral_uri *uri, void **ret_store, corral_store_info *info,
                     corral_error *error) {
  int status = host->uri_check(uri, "", error);
  if (status != CORRAL_OK) return status;
  old *t = calloc(1, sizeof *t);
  if (t == NULL) return CORRAL_ENOMEM;
  t->host = host;
  pthread_mutex_init(&t->mutex, NULL);
  info->poll_max_ms = 10;
  info->name = "old";
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

static void old_close(void *store) {
  old *t = store;
  while (t->items != NULL) drop(&t->items);
  pthread_mutex_destroy(&t->mutex);
  free(t);
}

static int old_connect(void *store, int64_t deadline, void **ret_handle, corral_error *error) {
  (void)deadline;
  (void)error;
  *ret_handle = store;
  return CORRAL_OK;
}

static void old_disconnect(void *handle) { (void)handle; }

/* The item of a key; those whose time is over go on the way. */
static item **find(old *t, const corral_op *op, int64_t now) {
  item **at = &t->items;
  while (*at != NULL) {
    if ((*at)->expires <= now) drop(at);
    else if ((*at)->key_len == op->key_len && memcmp((*at)->key, op->key, op->key_len) == 0) break;
    else at = &(*at)->next;
  }
  return at;
}

static item *add(old *t, const corral_op *op) {
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

static int replace(old *t, item **at, const corral_op *op, const corral_change *change) {
  uint8_t *record = malloc(CORRAL_HEADER + change->body_len);
  item *it = record == NULL || *at != NULL ? *at : add(t, op);
  if (record == NULL || it == NULL) {
    free(record);
    return CORRAL_ENOMEM;
  }
  memcpy(record, change->header, CORRAL_HEADER);
  if (change->body_len > 0) memcpy(record + CORRAL_HEADER, change->body, change->body_len);
  free(it->record);
  it->record = record;
  it->size = CORRAL_HEADER + change->body_len;
  it->expires = change->expires;
  return CORRAL_OK;
}

static int apply(old *t, item **at, const corral_op *op, const corral_change *change) {
  switch (change->action) {
    case CORRAL_ACTION_EDIT:
      memcpy((*at)->record, change->header, CORRAL_HEADER);
      (*at)->expires = change->expires;
      break;
    case CORRAL_ACTION_REPLACE: return replace(t, at, op, change);
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
  op->found = copy;
  op->found_len = it->size;
  op->found_free = free;
  op->found_owner = copy;
  return CORRAL_OK;
}

static void one(old *t, corral_op *op) {
  corral_change change;
  int64_t now = t->host->boot_ms();
  item **at = find(t, op, now);
  t->host->decide(op, *at == NULL ? NULL : (*at)->record, *at == NULL ? 0 : (*at)->size, now, &change);
  int status = apply(t, at, op, &change);
  if (status == CORRAL_OK && (op->verb == CORRAL_VERB_GET || op->verb == CORRAL_VERB_CLAIM)) {
    op->same = 0;
    status = give(op, *find(t, op, now));
  }
  if (status != CORRAL_OK) op->status = status;
}

static int old_perform(void *handle, corral_op *ops, size_t count, int64_t deadline, corral_error *error) {
  old *t = handle;
  (void)deadline;
  (void)error;
  pthread_mutex_lock(&t->mutex);
  for (size_t i = 0; i < count; i++) one(t, &ops[i]);
  pthread_mutex_unlock(&t->mutex);
  return CORRAL_OK;
}

static const corral_store store = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_PARALLEL,
    .name = "old",
    .schemes = "old",
    .summary = "a linked list of an older corral",
    .open = old_open,
    .close = old_close,
    .connect = old_connect,
    .disconnect = old_disconnect,
    .perform = old_perform,
};

CORRAL_PLUGIN(store)
