/* list.c: lists the locks that are held. The store's plugin tells keys; their locks are then looked
 * at as by corral_lock_show, some at a time. */
#include <stdlib.h>

#include "locks/lock.h"

#include "os/env.h"
#include "store/put.h"
#include "base/status.h"
#include "base/value.h"

enum { LOOKS = 32, KEYS_LEAST = 64, BYTES_MOST = 64 << 20 };

/* A key within the bytes of a list. */
typedef struct listed {
  const uint8_t *bytes; /* since all keys are told */
  size_t at, len;
} listed;

/* The keys that the plugin has told. */
typedef struct list {
  const crl_key *prefix;
  uint8_t *bytes;
  size_t used, room;
  listed *keys;
  size_t count, key_room;
  int status; /* CORRAL_ENOMEM, CORRAL_ETOOBIG: there are more */
} list;

/* ---- keys ---------------------------------------------------------------------------------- */

/* Makes room for one more; 0: there is none. */
static int has_room(list *l, size_t len) {
  while (l->used + len > l->room) {
    size_t room = l->room > 0 ? 2 * l->room : 4096;
    uint8_t *more = crl_alloc_more(l->bytes, room);
    if (more == NULL) return 0;
    l->bytes = more;
    l->room = room;
  }
  if (l->count < l->key_room) return 1;
  size_t room = l->key_room > 0 ? 2 * l->key_room : KEYS_LEAST;
  listed *more = crl_alloc_more(l->keys, room * sizeof *more);
  if (more == NULL) return 0;
  l->keys = more;
  l->key_room = room;
  return 1;
}

/* Takes a key that the plugin lists. Its bytes are foreign: a key without the prefix, or with
 * nothing behind it, is no lock's and is passed over. */
static int hear(void *arg, const void *key, size_t len) {
  list *l = arg;
  size_t before = (size_t)(l->prefix->user - l->prefix->whole);
  if (len <= before || len < l->prefix->whole_len || len > before + CORRAL_KEY_MAX ||
      memcmp(key, l->prefix->whole, l->prefix->whole_len) != 0)
    return 0;
  if (l->count >= CORRAL_LOCK_LIST_MOST || len > BYTES_MOST - l->used)
    l->status = CORRAL_ETOOBIG;
  else if (!has_room(l, len))
    l->status = CORRAL_ENOMEM;
  if (l->status != CORRAL_OK) return 1;
  memcpy(l->bytes + l->used, key, len);
  l->keys[l->count++] = (listed){.at = l->used, .len = len};
  l->used += len;
  return 0;
}

static int by_name(const void *a, const void *b) {
  const listed *one = a, *two = b;
  int order = memcmp(one->bytes, two->bytes, one->len < two->len ? one->len : two->len);
  return order != 0 ? order : (one->len > two->len) - (one->len < two->len);
}

/* Sorts the keys, and leaves each once. */
static void sort(list *l) {
  size_t kept = 0;
  if (l->count == 0) return;
  for (size_t i = 0; i < l->count; i++) l->keys[i].bytes = l->bytes + l->keys[i].at;
  qsort(l->keys, l->count, sizeof *l->keys, by_name);
  for (size_t i = 1; i < l->count; i++)
    if (by_name(&l->keys[kept], &l->keys[i]) != 0) l->keys[++kept] = l->keys[i];
  l->count = kept + 1;
}

static int ask(const crl_context *context, list *l, corral_error *error) {
  const crl_pool_options *options = crl_pool_options_of(context->pool);
  corral_listing listing = {.size = sizeof listing,
                            .op_ms = context->op_ms,
                            .prefix = l->prefix->whole,
                            .prefix_len = l->prefix->whole_len,
                            .tell = hear,
                            .arg = l};
  corral_error why = {0};
  if (options->plugin->list == NULL)
    return crl_status_fail(error, CORRAL_EUNSUPPORTED, "%s: this store can't list its locks",
                           options->info.name);
  int status = options->plugin->list(options->store, &listing, &why);
  if (status == CORRAL_OK) return l->status == CORRAL_ETOOBIG ? CORRAL_OK : l->status;
  return why.text[0] != '\0' ? crl_status_fail(error, status, "%s", why.text)
                             : crl_status_plain(error, status);
}

/* ---- locks --------------------------------------------------------------------------------- */

typedef struct telling {
  crl_context *context;
  const list *keys;
  corral_lock_tell_fn *to;
  void *arg;
  corral_lock_holder *holders; /* room for CORRAL_LOCK_HOLDS */
  int ended;
} telling;

/* A lock that is free by now, and a key that is no lock's, are left out. */
static int tell(telling *t, corral_op *op, corral_error *error) {
  size_t before = (size_t)(t->keys->prefix->user - t->keys->prefix->whole);
  if (op->status == CORRAL_EMISS || op->status == CORRAL_EFOREIGN) return CORRAL_OK;
  if (op->status != CORRAL_OK) return crl_put_say(op, error);
  size_t count = crl_lock_holders(op, t->context, crl_hash(op->key, op->key_len), t->holders,
                                  CORRAL_LOCK_HOLDS);
  if (count > CORRAL_LOCK_HOLDS) count = CORRAL_LOCK_HOLDS;
  if (count > 0)
    t->ended = t->to((const uint8_t *)op->key + before, op->key_len - before, t->holders, count,
                     t->arg) != 0;
  return CORRAL_OK;
}

/* Looks at the locks of keys `first` to `first + count - 1`, and tells them. */
static int tell_some(telling *t, size_t first, size_t count, corral_error *error) {
  corral_error details[LOOKS];
  corral_op ops[LOOKS];
  int status = CORRAL_OK;
  memset(details, 0, sizeof details);
  for (size_t i = 0; i < count; i++)
    ops[i] = (corral_op){.verb = CORRAL_VERB_LOCK_SHOW,
                         .key = t->keys->keys[first + i].bytes,
                         .key_len = t->keys->keys[first + i].len,
                         .error = &details[i]};
  crl_pool_perform(t->context->pool, ops, count, crl_env_now_ms() + t->context->op_ms);
  for (size_t i = 0; i < count; i++) {
    if (status == CORRAL_OK && !t->ended) status = tell(t, &ops[i], error);
    crl_lock_op_drop(&ops[i]);
  }
  return status;
}

static int tell_all(telling *t, corral_error *error) {
  int status = CORRAL_OK;
  t->holders = crl_alloc(CORRAL_LOCK_HOLDS * sizeof *t->holders);
  if (t->holders == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  for (size_t at = 0, some; at < t->keys->count && status == CORRAL_OK && !t->ended; at += some) {
    some = t->keys->count - at < LOOKS ? t->keys->count - at : LOOKS;
    status = tell_some(t, at, some, error);
  }
  free(t->holders);
  if (status == CORRAL_OK && !t->ended && t->keys->status == CORRAL_ETOOBIG)
    status = crl_status_fail(error, CORRAL_ETOOBIG,
                             "there are more locks than the %zu that were listed: a longer prefix "
                             "lists fewer",
                             t->keys->count);
  return status;
}

int corral_lock_list(corral *c, const void *prefix, size_t prefix_len, corral_lock_tell_fn *to,
                     void *arg, corral_error *error) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  crl_context *context;
  crl_key key;
  int status = crl_context_enter(c, &context, error);
  if (status != CORRAL_OK) return status;
  if (to == NULL || (prefix == NULL && prefix_len > 0) || prefix_len > CORRAL_KEY_MAX)
    return crl_status_fail(
        error, CORRAL_EINVAL,
        "corral_lock_list: accepted are a function, and a prefix of at most %d bytes",
        CORRAL_KEY_MAX);
  status = crl_key_make(&key, CRL_KEY_LOCK, &context->space,
                        &(crl_name){.key = prefix, .key_len = prefix_len});
  if (status != CORRAL_OK) return crl_status_plain(error, status);
  list keys = {.prefix = &key};
  status = ask(context, &keys, error);
  if (status == CORRAL_ENOMEM && keys.status == CORRAL_ENOMEM) crl_status_plain(error, status);
  sort(&keys);
  if (status == CORRAL_OK)
    status = tell_all(&(telling){.context = context, .keys = &keys, .to = to, .arg = arg}, error);
  free(keys.keys);
  free(keys.bytes);
  crl_key_clean(&key);
  return status;
}
