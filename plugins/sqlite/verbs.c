/* verbs.c: the lock verbs: a look, a decision by host->lock_decide, and a write. */
#include <stdlib.h>

#include "sqlite.h"

/* Decides by the record, into h->room; sets op's status and text. */
static int decide(crl_sqlite_handle *h, corral_op *op, const crl_sqlite_row *at, int64_t now,
                  corral_lock_change *change) {
  const corral_host *host = h->st->host;
  size_t need = at->size + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD;
  uint64_t floor = (uint64_t)host->wall_ms() * 1000;
  if (need > h->room_size) {
    uint8_t *more = realloc(h->room, need);
    if (more == NULL) return SQLITE_NOMEM;
    h->room = more;
    h->room_size = need;
  }
  host->lock_decide(op, at->record, at->size, now,
                    floor > at->forgotten ? floor : at->forgotten + 1, h->room, change);
  if (op->status == CORRAL_EFOREIGN)
    host->fail(op->error, CORRAL_EFOREIGN,
               "%.100s: the table %s has a row of this name that corral did not write; deleting it "
               "frees the lock",
               h->st->path, h->st->table);
  if (op->status == CORRAL_EREFUSED)
    host->fail(op->error, CORRAL_EREFUSED, "%.120s: this lock has %d holds, the most there may be",
               h->st->path, CORRAL_LOCK_HOLDS);
  return SQLITE_OK;
}

/* Gives a copy of the record to the operation that asked for it. */
static int show(corral_op *op, const crl_sqlite_row *at) {
  if (op->verb != CORRAL_VERB_LOCK_SHOW || op->status != CORRAL_OK) return SQLITE_OK;
  op->found.record = malloc(at->size);
  if (op->found.record == NULL) return SQLITE_NOMEM;
  memcpy(op->found.record, at->record, at->size);
  op->found.len = at->size;
  op->found.drop = free;
  op->found.owner = op->found.record;
  return SQLITE_OK;
}

/* Looks and decides; *change says whether h->room is to be written. */
static int consider(crl_sqlite_handle *h, corral_op *op, int64_t now, crl_sqlite_row *at,
                    corral_lock_change *change) {
  int code = crl_sqlite_look(h, op, at);
  if (code != SQLITE_OK) return code;
  code = decide(h, op, at, now, change);
  if (code == SQLITE_OK) code = show(op, at);
  crl_sqlite_look_done(h);
  return code;
}

/* Looks, decides and writes in one transaction. *committing: the failure may be one of COMMIT. */
static int change_row(crl_sqlite_handle *h, corral_op *op, int *committing) {
  corral_lock_change change;
  crl_sqlite_row at;
  int code = crl_sqlite_run(h, CRL_SQLITE_BEGIN);
  if (code != SQLITE_OK) return code;
  int64_t now = h->st->host->boot_ms(); /* after BEGIN, which may have waited long */
  code = consider(h, op, now, &at, &change);
  if (code == SQLITE_OK && change.action == CORRAL_ACTION_REPLACE)
    code = crl_sqlite_put(h, op, &change);
  if (code == SQLITE_OK && op->verb == CORRAL_VERB_LOCK && op->status == CORRAL_OK)
    code = crl_sqlite_sweep_up(h, now, at.forgotten);
  if (code == SQLITE_OK) {
    *committing = 1;
    code = crl_sqlite_run(h, CRL_SQLITE_COMMIT);
  }
  if (code != SQLITE_OK) crl_sqlite_roll_back(h);
  return code;
}

/* Looks without a transaction first; a request that changes nothing ends there. */
static int perform_one(crl_sqlite_handle *h, corral_op *op) {
  corral_lock_change change;
  crl_sqlite_row at;
  int committing = 0;
  if (h->st->host->now_ms() >= h->deadline) {
    h->st->host->fail(op->error, op->status = CORRAL_EUNAVAILABLE,
                      "%.120s: the time allowed is over", h->st->path);
    return SQLITE_OK;
  }
  int code = consider(h, op, h->st->host->boot_ms(), &at, &change);
  if (code == SQLITE_OK && change.action == CORRAL_ACTION_REPLACE)
    code = change_row(h, op, &committing);
  if (code == SQLITE_OK) return code;
  op->status = crl_sqlite_fail(h, code, op->error);
  if (committing && op->status == CORRAL_EIO) op->status = CORRAL_EINDOUBT;
  return code;
}

/* True when a handle with this code can be used on. */
static int is_harmless(int code) {
  int kind = code & 0xff;
  return kind == SQLITE_OK || kind == SQLITE_BUSY || kind == SQLITE_LOCKED || kind == SQLITE_FULL ||
         kind == SQLITE_NOMEM;
}

static int is_lock_verb(uint32_t verb) {
  return verb == CORRAL_VERB_LOCK || verb == CORRAL_VERB_LOCK_EXTEND ||
         verb == CORRAL_VERB_UNLOCK || verb == CORRAL_VERB_LOCK_SHOW;
}

int crl_sqlite_perform(void *arg, const corral_batch *batch, int64_t deadline,
                       corral_error *error) {
  crl_sqlite_handle *h = arg;
  const corral_host *host = h->st->host;
  int moved = 0, code = SQLITE_OK;
  h->deadline = deadline;
  sqlite3_file_control(h->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (moved) code = CRL_SQLITE_GONE;
  for (size_t i = 0; i < batch->count; i++) {
    corral_op *op = corral_batch_op(batch, i);
    if (!is_harmless(code))
      op->status = host->fail(op->error, CORRAL_EUNAVAILABLE,
                              "%.120s: not tried, for the file failed before", h->st->path);
    else if (!is_lock_verb(op->verb))
      op->status = host->fail(op->error, CORRAL_EUNSUPPORTED, "sqlite has locks only, no values");
    else
      code = perform_one(h, op);
  }
  if (is_harmless(code)) return CORRAL_OK;
  return crl_sqlite_fail(h, code, error);
}
