/* memcached_kit.h: the memcached plugin through its table, and a one-line helper for each verb. */
#ifndef TESTS_MEMCACHED_KIT_H
#define TESTS_MEMCACHED_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/record_kit.h"
#include "support/client_kit.h"
#include "support/op_kit.h"

extern const corral_store crl_plugin_memcached;

enum { HOUR = 3600000, LIMIT = 20000, SLACK = 30000, MIB = 1 << 20 };

/* Returns the status of `open`; its text is in c->error. */
static inline int only_open(client *c, const char *text) {
  return client_open(c, &crl_plugin_memcached, text);
}
static inline int connects(client *c, int64_t limit) { return client_connect(c, limit); }
static inline int try_open(client *c, const char *text) {
  return client_begin(c, &crl_plugin_memcached, text, LIMIT);
}

static inline client opened(const char *text) {
  client c;
  if (try_open(&c, text) != CORRAL_OK) fail_msg("%s: %s", text, c.error.text);
  return c;
}

static inline void hung_up(client *c) {
  if (c->handle != NULL) crl_plugin_memcached.disconnect(c->handle);
  c->handle = NULL;
}

static inline void closed(client *c) { client_end(c); }

static inline int perform_for(client *c, corral_op *ops, size_t count, int64_t limit) {
  for (size_t i = 0; i < count; i++) {
    ops[i].status = CORRAL_EINDOUBT;
    ops[i].error = &c->error;
  }
  return perform_ops(&crl_plugin_memcached, c->handle, ops, count, c->host->now_ms() + limit,
                     &c->error);
}

static inline int perform(client *c, corral_op *ops, size_t count) {
  return perform_for(c, ops, count, LIMIT);
}

static inline void dropped(corral_op *op) {
  if (op->found.record != NULL) op->found.drop(op->found.owner);
  op->found.record = NULL;
}

static inline const uint8_t *token(unsigned number) {
  static uint8_t tokens[256][CORRAL_TOKEN];
  memset(tokens[number & 255], (int)(number & 255) + 1, CORRAL_TOKEN);
  return tokens[number & 255];
}

/* An operation with default lives. */
static inline corral_op op_of(corral_verb verb, const char *key, unsigned holder) {
  corral_op op = {
      .verb = (uint32_t)verb, .key = key, .key_len = strlen(key), .token = token(holder)};
  op_lasts(&op, HOUR);
  op_keeps(&op, HOUR);
  return op;
}

/* Performs one operation, frees what it found, and returns its status. The handle must stay
 * usable. */
static inline int done(client *c, corral_op *op) {
  int status = perform(c, op, 1);
  if (status != CORRAL_OK)
    fail_msg("the handle broke: %s: %s", corral_status_name(status), c->error.text);
  dropped(op);
  return op->status;
}

static inline int does(client *c, corral_verb verb, const char *key, unsigned holder) {
  corral_op op = op_of(verb, key, holder);
  return done(c, &op);
}

/* A FREE record with `size` bytes of payload; owned by the caller. */
static inline uint8_t *record_of(size_t size, uint8_t fill) {
  size_t len;
  uint8_t *record = record_make((corral_header){0}, size, fill, &len);
  assert_non_null(record);
  return record;
}

/* Sends a SETTLE with a record of `size` bytes. */
static inline int settles(client *c, corral_op op, size_t size, uint8_t fill) {
  uint8_t *record = record_of(size, fill);
  if (op.verb != CORRAL_VERB_SETTLE) op.settle.ttl_ms = HOUR;
  op.verb = CORRAL_VERB_SETTLE;
  op.settle.record = record;
  op.settle.record_len = CORRAL_HEAD + size;
  int status = done(c, &op);
  free(record);
  return status;
}

static inline int fills(client *c, const char *key, unsigned holder, size_t size) {
  return settles(c, op_of(CORRAL_VERB_SETTLE, key, holder), size, (uint8_t)holder);
}

static inline int verdict(client *c, const char *key, unsigned holder, int32_t code,
                          int64_t rules_ms) {
  corral_header header = {.state = CORRAL_VERDICT, .code = code, .failures = 3, .note = "boom"};
  uint8_t front[CORRAL_FRONT];
  corral_op op = op_of(CORRAL_VERB_RELEASE, key, holder);
  op.release.verdict = front;
  op.release.verdict_len = crl_record_write(&header, front);
  op.release.verdict_ms = rules_ms;
  return done(c, &op);
}

/* Header and lives returned by GET or CLAIM. */
typedef struct sight {
  int status, same;
  size_t size; /* size of the body */
  corral_header header;
  int64_t life_ms, until_ms;
} sight;

static inline sight sees(client *c, corral_op op) {
  sight s = {0};
  assert_int_equal(perform(c, &op, 1), CORRAL_OK);
  s.status = op.status;
  s.same = op.state.same;
  s.life_ms = op.state.life_ms;
  s.until_ms = op.state.left_ms;
  if (op.found.record != NULL) assert_int_equal(crl_record_read_found(&op, &s.header), CORRAL_OK);
  s.size = s.header.body;
  dropped(&op);
  return s;
}

static inline sight looks(client *c, const char *key) {
  return sees(c, op_of(CORRAL_VERB_GET, key, 0));
}

static inline void assert_near(int64_t a, int64_t b) {
  if (a > b + SLACK || a < b - SLACK)
    fail_msg("%lld is not about %lld", (long long)a, (long long)b);
}

#endif
