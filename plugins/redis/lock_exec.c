/* lock_exec.c: locks where scripts are forbidden: by optimistic transactions, on the same records
 * as the scripts, and beside them.
 *
 *   WATCH key, GET key, PTTL key, TIME, MULTI   one pipeline; host->lock_decide makes the change
 *   SET key record PX life, EXEC                another pipeline; EXEC does nothing, and says so,
 *                                               if the key was changed since WATCH
 *   DISCARD                                     instead, if nothing is to be changed: it ends the
 *                                               WATCH too
 *
 * MULTI is in the first pipeline, so that SET is sent only when it is known to be queued: a user
 * who may SET but not MULTI would otherwise overwrite another holder's lock. An EXEC that did
 * nothing is tried again until the deadline; each time, another client's change succeeded. WATCH
 * belongs to a connection, and a handle is used by one caller at a time, so no other caller's EXEC
 * can drop it. A handle leaves this file outside of WATCH and MULTI, or broken.
 *
 * SET is refused when the server is out of memory. Unlike a script, a transaction can't end or
 * lengthen a hold then: EREFUSED, and the hold ends by its time. */
#include <stdatomic.h>
#include <stdlib.h>

#include "redis.h"

enum { WATCH, GET, PTTL, TIME, MULTI, LOOKS };

/* An operation under way. */
typedef struct exec {
  crl_redis_handle *h;
  corral_op *op;
  int64_t deadline;
  corral_error *error;
  redisReply *replies[LOOKS];
  int again; /* another client changed the key: nothing was done */
} exec;

static int is_status(const redisReply *reply, const char *text) {
  return reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, text) == 0;
}

static int is_error(const redisReply *reply) { return reply->type == REDIS_REPLY_ERROR; }

static void put(exec *e, const char *command, int keyed) {
  crl_redis_out_command(&e->h->out, keyed ? 2 : 1);
  crl_redis_out_text(&e->h->out, command);
  if (keyed) crl_redis_out_word(&e->h->out, e->op->key, e->op->key_len);
}

static void forget(exec *e) {
  for (int i = 0; i < LOOKS; i++) {
    if (e->replies[i] != NULL) freeReplyObject(e->replies[i]);
    e->replies[i] = NULL;
  }
}

/* Sends the formatted commands and receives `count` replies. *ret_whole: all was sent, so it may
 * have happened. */
static int exchange(exec *e, int count, int *ret_whole) {
  crl_redis_handle *h = e->h;
  size_t sent = 0;
  *ret_whole = 0;
  if (h->out.failed) return CORRAL_ENOMEM;
  int status = crl_redis_out_send(&h->out, &h->wire, e->deadline, &sent, e->error);
  *ret_whole = sent == h->out.total;
  for (int i = 0; i < count && status == CORRAL_OK; i++)
    status = crl_redis_reply_next(h, e->deadline, &e->replies[i], e->error);
  return status == CORRAL_OK ? crl_redis_reply_none(h, e->error) : status;
}

static int strange(exec *e) {
  e->h->store->host->fail(e->error, CORRAL_EPROTOCOL, "%s: a reply that doesn't fit the command",
                          e->h->store->name);
  return crl_redis_result_nonsense(e->h, e->op);
}

/* Ends WATCH and MULTI, as far as the first pipeline began them. */
static int leave(exec *e) {
  int whole, watched = !is_error(e->replies[WATCH]), begun = !is_error(e->replies[MULTI]);
  forget(e);
  if (!watched && !begun) return CORRAL_OK;
  crl_redis_out_reset(&e->h->out);
  put(e, begun ? "DISCARD" : "UNWATCH", 0);
  int status = exchange(e, 1, &whole);
  if (status == CORRAL_OK && !is_status(e->replies[0], "OK"))
    status = e->h->store->host->fail(e->error, CORRAL_EPROTOCOL,
                                     "%s: the connection can't be taken out of WATCH",
                                     e->h->store->name);
  forget(e);
  return status;
}

/* ---- the look ------------------------------------------------------------------------------ */

static int look(exec *e) {
  int whole;
  crl_redis_out_reset(&e->h->out);
  put(e, "WATCH", 1);
  put(e, "GET", 1);
  put(e, "PTTL", 1);
  put(e, "TIME", 0);
  put(e, "MULTI", 0);
  int64_t before = e->h->store->host->boot_ms();
  int status = exchange(e, LOOKS, &whole);
  if (status != CORRAL_OK) {
    crl_redis_result_fail(e->h, e->op, CORRAL_EUNAVAILABLE,
                          "nothing was changed: the connection failed before that");
    return status;
  }
  int64_t us = crl_redis_clock_time(e->replies[TIME]);
  const redisReply *got = e->replies[GET];
  if (us >= 0) crl_redis_clock_learn(e->h, us / 1000, before);
  if ((!is_status(e->replies[WATCH], "OK") && !is_error(e->replies[WATCH])) ||
      (got->type != REDIS_REPLY_STRING && got->type != REDIS_REPLY_NIL && !is_error(got)) ||
      (e->replies[PTTL]->type != REDIS_REPLY_INTEGER && !is_error(e->replies[PTTL])) ||
      (us < 0 && !is_error(e->replies[TIME])) ||
      (!is_status(e->replies[MULTI], "OK") && !is_error(e->replies[MULTI])))
    return strange(e);
  return CORRAL_OK;
}

/* The first of the look's replies that is an error; NULL: the key can be judged. A wrong type can
 * be. */
static const redisReply *refusal(const exec *e) {
  for (int i = 0; i < LOOKS; i++)
    if (is_error(e->replies[i]) &&
        !(i == GET && crl_redis_reply_is_error(e->replies[i], "WRONGTYPE")))
      return e->replies[i];
  return NULL;
}

/* ---- the change ---------------------------------------------------------------------------- */

/* Sets the reason of a discarded transaction: from the reply to the queued command, or from the
 * text that EXEC quotes. */
static int judge_discarded(exec *e, const redisReply *queued, const redisReply *executed) {
  static const char quote[] = "because of: ";
  redisReply why = *(is_error(queued) ? queued : executed);
  char *quoted = is_error(queued) ? NULL : strstr(why.str, quote);
  if (quoted != NULL) why.str = quoted + sizeof quote - 1;
  return crl_redis_result_error(e->h, e->op, &why);
}

/* Judges the replies to a queued command and to EXEC. op->status is OK if it was done. */
static int judge_exec(exec *e) {
  const redisReply *queued = e->replies[0], *executed = e->replies[1];
  if (is_error(executed)) {
    int status = judge_discarded(e, queued, executed);
    if (status == CORRAL_OK && !crl_redis_reply_is_error(executed, "EXECABORT"))
      status = e->h->store->host->fail(e->error, CORRAL_EPROTOCOL,
                                       "%s: the connection may still be in MULTI: %.80s",
                                       e->h->store->name, executed->str);
    return status;
  }
  if (!is_status(queued, "QUEUED")) return strange(e);
  e->again = executed->type == REDIS_REPLY_NIL;
  if (e->again) return CORRAL_OK;
  if (executed->type != REDIS_REPLY_ARRAY || executed->elements != 1) return strange(e);
  const redisReply *did = executed->element[0];
  if (is_error(did)) return crl_redis_result_error(e->h, e->op, did);
  if (!is_status(did, "OK") && did->type != REDIS_REPLY_INTEGER) return strange(e);
  e->op->status = CORRAL_OK;
  return CORRAL_OK;
}

/* Sends the formatted command, after MULTI, and EXEC. */
static int execute(exec *e) {
  int whole;
  put(e, "EXEC", 0);
  forget(e);
  e->op->status = CORRAL_EINDOUBT;
  int status = exchange(e, 2, &whole);
  if (status != CORRAL_OK && !whole)
    crl_redis_result_fail(e->h, e->op, CORRAL_EUNAVAILABLE,
                          "nothing was changed: the transaction could not be sent");
  if (status == CORRAL_OK) status = judge_exec(e);
  forget(e);
  return status;
}

static void put_record(exec *e, const uint8_t *record, const corral_lock_change *change,
                       int64_t now) {
  crl_redis_out_reset(&e->h->out);
  crl_redis_out_command(&e->h->out, 5);
  crl_redis_out_text(&e->h->out, "SET");
  crl_redis_out_word(&e->h->out, e->op->key, e->op->key_len);
  crl_redis_out_word(&e->h->out, record, change->size);
  crl_redis_out_text(&e->h->out, "PX");
  crl_redis_out_number(&e->h->out, change->expires > now ? change->expires - now : 1);
}

static void take_over(corral_op *op, const corral_op *decided) {
  op->status = decided->status;
  op->lock_state = decided->lock_state;
}

/* Decides by the look, and makes the change. The op has no results until that is done. */
static int change(exec *e) {
  const redisReply *got = e->replies[GET];
  int is_there = got->type != REDIS_REPLY_NIL, is_wrong = is_error(got);
  int64_t us = crl_redis_clock_time(e->replies[TIME]), now = us / 1000,
          pttl = e->replies[PTTL]->integer;
  size_t size = is_there && !is_wrong ? got->len : 0;
  corral_op decided = *e->op;
  corral_lock_change what;
  uint8_t *room = malloc(size + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD);
  if (room == NULL) {
    crl_redis_result_fail(e->h, e->op, CORRAL_ENOMEM, "no memory for a lock's record");
    return leave(e);
  }
  e->h->store->host->lock_decide(&decided, is_there ? (const uint8_t *)got->str : NULL, size, now,
                                 (uint64_t)us, room, &what);
  int status;
  if (what.action == CORRAL_ACTION_KEEP) {
    take_over(e->op, &decided);
    if (decided.status == CORRAL_EFOREIGN) crl_redis_lock_foreign(e->h, e->op, pttl);
    status = leave(e);
  } else {
    put_record(e, room, &what, now);
    status = execute(e);
    /* a refused LOCK is refused even if its wish, or the other end, could not be written */
    int is_done = e->op->status == CORRAL_OK ||
                  ((decided.status == CORRAL_EBUSY || decided.status == CORRAL_EREFUSED) &&
                   status == CORRAL_OK);
    if (!e->again && is_done) take_over(e->op, &decided);
  }
  if (decided.status == CORRAL_EREFUSED && !e->again)
    crl_redis_result_fail(e->h, e->op, CORRAL_EREFUSED, "no room for one more hold of this lock");
  free(room);
  return status;
}

/* Gives a TTL to a key that isn't a lock's record and has none. op->status is OK if the key can be
 * looked at then. */
static int repair(exec *e) {
  const redisReply *got = e->replies[GET];
  corral_op decided = *e->op;
  corral_lock_change what;
  int is_string = got->type == REDIS_REPLY_STRING;
  e->h->store->host->lock_decide(&decided, is_string ? (const uint8_t *)got->str : NULL,
                                 is_string ? got->len : 0, 1, 1, NULL, &what);
  if ((decided.status != CORRAL_EFOREIGN && !is_error(got)) || e->replies[PTTL]->integer != -1) {
    e->op->status = CORRAL_OK;
    return leave(e);
  }
  crl_redis_out_reset(&e->h->out);
  crl_redis_out_command(&e->h->out, 3);
  crl_redis_out_text(&e->h->out, "PEXPIRE");
  crl_redis_out_word(&e->h->out, e->op->key, e->op->key_len);
  crl_redis_out_number(&e->h->out,
                       e->op->lock_show.foreign_ms > 0 ? e->op->lock_show.foreign_ms : 1);
  return execute(e);
}

/* ---- an op, a batch ------------------------------------------------------------------------ */

static int confirm(exec *e) {
  int whole;
  if (e->h->store->wait_replicas == 0 || e->op->status != CORRAL_OK ||
      e->op->verb == CORRAL_VERB_UNLOCK)
    return CORRAL_OK;
  crl_redis_out_reset(&e->h->out);
  crl_redis_confirm_say(e->h, e->h->store->wait_replicas, e->deadline);
  int status = exchange(e, 1, &whole);
  if (status == CORRAL_OK)
    status = crl_redis_confirm_judge(e->h, e->op, e->replies[0]);
  else
    crl_redis_result_fail(e->h, e->op, CORRAL_EINDOUBT,
                          "granted by the primary; whether replicas confirm it was not told");
  forget(e);
  return status;
}

/* Performs LOCK, LOCK_EXTEND, UNLOCK, or the first half of a LOCK_SHOW that repairs. */
static int perform_one(exec *e) {
  const corral_host *host = e->h->store->host;
  int status = CORRAL_OK;
  for (;;) {
    if (host->now_ms() >= e->deadline) {
      crl_redis_result_fail(e->h, e->op, CORRAL_EUNAVAILABLE,
                            "nothing was changed: the time allowed was over");
      return CORRAL_OK;
    }
    e->again = 0;
    status = look(e);
    const redisReply *refused = status == CORRAL_OK ? refusal(e) : NULL;
    if (refused != NULL) {
      status = crl_redis_result_error(e->h, e->op, refused);
      if (status == CORRAL_OK) status = leave(e);
    } else if (status == CORRAL_OK) {
      status = e->op->verb == CORRAL_VERB_LOCK_SHOW ? repair(e) : change(e);
    }
    forget(e);
    if (status != CORRAL_OK || !e->again) break;
  }
  return status == CORRAL_OK && e->op->verb != CORRAL_VERB_LOCK_SHOW ? confirm(e) : status;
}

static int is_exec(const corral_op *op) {
  return op->verb == CORRAL_VERB_LOCK || op->verb == CORRAL_VERB_LOCK_EXTEND ||
         op->verb == CORRAL_VERB_UNLOCK ||
         (op->verb == CORRAL_VERB_LOCK_SHOW && (op->flags & CORRAL_OP_REPAIR) != 0);
}

static int perform_exec(crl_redis_handle *h, const corral_batch *one, int64_t deadline,
                        corral_error *error) {
  corral_op *op = one->ops;
  exec e = {.h = h, .op = op, .deadline = deadline, .error = error};
  if (crl_redis_request_sendable(h, op) != CORRAL_OK) return CORRAL_OK;
  int status = perform_one(&e);
  if (status != CORRAL_OK || op->verb != CORRAL_VERB_LOCK_SHOW || op->status != CORRAL_OK)
    return status;
  op->status = CORRAL_EINDOUBT;
  return crl_redis_ops_run(h, one, deadline, error);
}

/* Number of the operations from `first` on that need no transaction. */
static size_t run_length(const corral_batch *batch, size_t first) {
  size_t n = 0;
  while (first + n < batch->count && !is_exec(corral_batch_op(batch, first + n))) n++;
  return n;
}

int crl_redis_exec_perform(crl_redis_handle *h, const corral_batch *batch, int64_t deadline,
                           corral_error *error) {
  int status = CORRAL_OK;
  size_t at = 0;
  while (at < batch->count && status == CORRAL_OK) {
    size_t plain = run_length(batch, at);
    corral_batch part = corral_batch_part(batch, at, plain > 0 ? plain : 1);
    status = (plain > 0 ? crl_redis_ops_run : perform_exec)(h, &part, deadline, error);
    at += part.count;
  }
  for (; at < batch->count; at++)
    crl_redis_result_fail(h, corral_batch_op(batch, at), CORRAL_EUNAVAILABLE,
                          "not sent: the connection had failed");
  return status;
}

/* Refused operations did nothing. Looks at locks that follow are repeated with them, so that the
 * batch's order holds. */
int crl_redis_exec_refused(crl_redis_handle *h, const corral_batch *batch, int64_t deadline,
                           corral_error *error) {
  int status = CORRAL_OK, any = 0;
  for (size_t i = 0; i < batch->count; i++) {
    corral_op *op = corral_batch_op(batch, i);
    int refused = op->verb >= CORRAL_VERB_LOCK &&
                  (op->status == CORRAL_EAUTH || op->status == CORRAL_EUNSUPPORTED);
    any |= refused;
    if (!refused && !(any && op->verb == CORRAL_VERB_LOCK_SHOW)) continue;
    crl_redis_result_take_back(op);
    op->status = CORRAL_EINDOUBT;
    corral_batch one = corral_batch_part(batch, i, 1);
    if (status == CORRAL_OK)
      status = crl_redis_exec_perform(h, &one, deadline, error);
    else
      crl_redis_result_fail(h, op, CORRAL_EUNAVAILABLE, "not sent: the connection had failed");
  }
  return status;
}
