/* store_kit.h: one store through its plugin's table, with a one-line helper for each verb. For
 * tests of a single plugin. */
#ifndef STORE_KIT_H
#define STORE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <unistd.h>

#include "record_kit.h"
#include "store/registry.h"
#include "store/uri.h"
#include "support/op_kit.h"

typedef struct kit {
  const corral_host *host;
  const corral_store *plugin;
  void *store, *handle;
} kit;

static inline int kit_open(kit *k, const char *text, corral_error *error) {
  crl_uri uri;
  corral_store_info info = {.size = sizeof info, .max_key = 65536};
  k->host = crl_registry_host();
  k->store = k->handle = NULL;
  int status = crl_uri_parse(&uri, text, error);
  if (status != CORRAL_OK) return status;
  status = crl_registry_find(uri.view.scheme, &k->plugin, error);
  if (status == CORRAL_OK) status = k->plugin->open(k->host, &uri.view, &k->store, &info, error);
  crl_uri_free(&uri);
  return status != CORRAL_OK ? status : k->plugin->connect(k->store, INT64_MAX, &k->handle, error);
}

static inline kit opened(const char *text) {
  kit k;
  corral_error error = {0};
  if (kit_open(&k, text, &error) != CORRAL_OK) fail_msg("%s: %s", text, error.text);
  return k;
}

static inline void closed(kit *k) {
  k->plugin->disconnect(k->handle);
  k->plugin->close(k->store);
}

static inline uint8_t *token(unsigned number) {
  static _Thread_local uint8_t bytes[CORRAL_TOKEN];
  memset(bytes, 0, sizeof bytes);
  for (unsigned i = 0; i < CORRAL_TOKEN; i += 4) memcpy(bytes + i, &number, 4);
  return bytes;
}

static inline corral_op op_of(corral_verb verb, const char *key, unsigned holder) {
  corral_op op = {.verb = verb,
                  .key = key,
                  .key_len = strlen(key),
                  .token = token(holder),
                  .status = CORRAL_EINDOUBT};
  op_lasts(&op, 60000);
  op_keeps(&op, 600000);
  return op;
}

static inline int run(const kit *k, corral_op *op) {
  assert_int_equal(perform_ops(k->plugin, k->handle, op, 1, INT64_MAX, NULL), CORRAL_OK);
  return op->status;
}

static inline void done(corral_op *op) {
  if (op->found.record != NULL) op->found.drop(op->found.owner);
  op->found.record = NULL;
}

static inline int verb(const kit *k, corral_verb what, const char *key, unsigned holder) {
  corral_op op = op_of(what, key, holder);
  int status = run(k, &op);
  done(&op);
  return status;
}

static inline int invalidate(const kit *k, const char *key) {
  return verb(k, CORRAL_VERB_INVALIDATE, key, 0);
}

/* Changes a key in any state: extends this process's lease, or else claims the key. */
static inline void touch(const kit *k, const char *key) {
  if (verb(k, CORRAL_VERB_EXTEND, key, (unsigned)getpid()) != CORRAL_OK)
    (void)verb(k, CORRAL_VERB_CLAIM, key, (unsigned)getpid());
}

static inline int settle(const kit *k, const char *key, unsigned holder, char fill, size_t body_len,
                         corral_error *error) {
  corral_op op = op_of(CORRAL_VERB_SETTLE, key, holder);
  uint8_t *record = record_make((corral_header){0}, body_len, (uint8_t)fill, &op.settle.record_len);
  assert_non_null(record);
  op.settle.record = record;
  op.error = error;
  int status = run(k, &op);
  free(record);
  return status;
}

static inline void put(const kit *k, const char *key, char fill, size_t body_len) {
  assert_int_equal(verb(k, CORRAL_VERB_CLAIM, key, 7), CORRAL_OK);
  assert_int_equal(settle(k, key, 7, fill, body_len, NULL), CORRAL_OK);
}

/* Stores a value with a life of 1 ms. */
static inline void blink(const kit *k, const char *key) {
  assert_int_equal(verb(k, CORRAL_VERB_CLAIM, key, 9), CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_SETTLE, key, 9);
  uint8_t *record = record_make((corral_header){0}, 1, 'b', &op.settle.record_len);
  assert_non_null(record);
  op.settle.record = record;
  op.settle.ttl_ms = 1;
  assert_int_equal(run(k, &op), CORRAL_OK);
  free(record);
}

static inline const char *numbered(char room[32], const char *stem, unsigned number) {
  snprintf(room, 32, "%s%u", stem, number);
  return room;
}

#endif
