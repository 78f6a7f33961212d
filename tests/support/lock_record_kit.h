/* lock_record_kit.h: a store of one lock, and one line for each verb. For tests of
 * lock_record.c. */
#ifndef LOCK_RECORD_KIT_H
#define LOCK_RECORD_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "record/lock_record.h"
#include "support/op_kit.h"

enum { NOW = 1000000, LEASE = 1000, WISH = 400 };

/* The record as in a store that deletes it when it expires. */
typedef struct lab {
  uint8_t *record; /* NULL: none */
  size_t size;
  int64_t now, expires;
  corral_lock_change change; /* change made by the last verb */
} lab;

static inline const uint8_t *token(unsigned number) {
  static uint8_t bytes[CORRAL_TOKEN];
  memset(bytes, 0, sizeof bytes);
  memcpy(bytes, &number, sizeof number);
  bytes[CORRAL_TOKEN - 1] = 1;
  return bytes;
}

static inline corral_op op_of(corral_verb verb, unsigned holder) {
  corral_op op = {.verb = (uint32_t)verb, .token = token(holder), .status = CORRAL_EINDOUBT};
  op_lasts(&op, LEASE);
  return op;
}

/* `room` has exactly the size that a plugin must provide, so that writes beyond it are detected. */
static inline int does(lab *l, corral_op *op) {
  uint8_t *room = malloc(l->size + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD);
  assert_non_null(room);
  if (l->record != NULL && l->expires <= l->now) {
    free(l->record);
    l->record = NULL;
    l->size = 0;
  }
  crl_lock_record_decide(op, l->record, l->size, l->now, (uint64_t)l->now * 1000, room, &l->change);
  if (l->change.action == CORRAL_ACTION_KEEP) {
    free(room);
    return op->status;
  }
  assert_int_equal(l->change.action, CORRAL_ACTION_REPLACE);
  assert_true(l->change.size <= l->size + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD);
  free(l->record);
  l->record = realloc(room, l->change.size);
  assert_non_null(l->record);
  l->size = l->change.size;
  l->expires = l->change.expires;
  return op->status;
}

static inline int takes(lab *l, unsigned holder, unsigned flags, int64_t wish) {
  corral_op op = op_of(CORRAL_VERB_LOCK, holder);
  op.flags = flags;
  op.lock.wish_ms = wish;
  return does(l, &op);
}

/* Takes one of so many permits. */
static inline int takes_permit(lab *l, unsigned holder, uint32_t permits, int64_t hold_ms) {
  corral_op op = op_of(CORRAL_VERB_LOCK, holder);
  op.lock.permits = permits;
  op.lock.hold_ms = hold_ms;
  return does(l, &op);
}

static inline int simply(lab *l, corral_verb verb, unsigned holder, unsigned flags) {
  corral_op op = op_of(verb, holder);
  op.flags = flags;
  return does(l, &op);
}

static inline crl_lock_head head_of(const lab *l) {
  crl_lock_head head = {0};
  if (l->record != NULL)
    assert_int_equal(crl_lock_record_read(l->record, l->size, &head), CORRAL_OK);
  return head;
}

enum { ALONE = 0, SHARED = CORRAL_OP_SHARED };

#endif
