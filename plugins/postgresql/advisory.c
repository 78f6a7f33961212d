/* advisory.c: locks=advisory: a session for each hold, kept under its token. */
#include <stdio.h>
#include <stdlib.h>

#include "postgresql.h"

/* columns of CRL_PG_HOLDERS */
enum { EXCLUSIVE, PID, HEARD, NOW, NAME, HELD, SINCE };

static int64_t lock_of(const crl_pg_store *s, const corral_op *op) {
  return (int64_t)corral_digest_number(s->host, op->key, op->key_len);
}

/* 1: the lock is held now; 0: it isn't, or that can't be found out. */
static int is_taken(crl_pg_handle *h, int64_t lock, int64_t deadline) {
  PGresult *r;
  if (crl_pg_furnish(h, deadline, NULL) != CORRAL_OK) return 0;
  if (crl_pg_ask(h->store, h->session, CRL_PG_HOLDERS, &(crl_pg_question){.first = lock}, deadline,
                 &r, NULL) != CORRAL_OK)
    return 0;
  int taken = PQntuples(r) > 0 && crl_pg_number_at(r, HELD, 0) != 0;
  PQclear(r);
  return taken;
}

static int lost(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  op->lock_state.left_ms = is_taken(h, lock_of(h->store, op), deadline) ? -1 : 0;
  return CORRAL_ELOST;
}

/* Asks one statement of a hold, on its session: 1 yes, 0 no, or a negative status. */
static int ask_hold(crl_pg_store *s, crl_pg_session *c, crl_pg_statement what, int64_t life_ms,
                    const char *text, int64_t deadline, corral_error *error) {
  PGresult *r;
  int status =
      crl_pg_ask(s, c, what, &(crl_pg_question){.first = c->lock, .second = life_ms, .text = text},
                 deadline, &r, error);
  if (status != CORRAL_OK) return status;
  int yes = crl_pg_number_at(r, 0, 0) != 0;
  PQclear(r);
  return yes;
}

/* Begins the life of an existing hold anew. A session that is gone has taken the hold with it. */
static int prolong(crl_pg_handle *h, crl_pg_session *c, corral_op *op, int64_t deadline) {
  crl_pg_store *s = h->store;
  char text[CRL_PG_KEY_TEXT];
  int64_t now = s->host->now_ms(), left = c->until - now,
          life = corral_op_hold_ms(op) > left ? corral_op_hold_ms(op) : left;
  int becomes_shared =
      op->verb == CORRAL_VERB_LOCK_EXTEND && op->flags & CORRAL_OP_SHARED && !c->shared;
  int answer = ask_hold(s, c, CRL_PG_TOUCH, life, NULL, deadline, op->error);
  if (answer == 1 && becomes_shared) {
    answer =
        ask_hold(s, c, CRL_PG_DOWNGRADE, life, crl_pg_key_text(s, op, text), deadline, op->error);
    if (c->sent) c->shared = 1; /* it is shared now or will be; END_SHARED ends either kind */
  }
  if (answer == 1) {
    c->until = s->host->now_ms() + life;
    op->lock_state.fence = c->fence;
    op->lock_state.left_ms = life;
    crl_pg_give_back(s, c);
    return CORRAL_OK;
  }
  if (answer == 0 || PQstatus(c->conn) == CONNECTION_BAD) {
    crl_pg_drop(h, c);
    return CORRAL_ELOST;
  }
  crl_pg_give_back(s, c);
  return answer;
}

/* Makes the handle's session, which was granted the lock, the session of the token's hold; the
 * handle loses it. */
static void begin(crl_pg_handle *h, corral_op *op, uint64_t fence) {
  crl_pg_session *c = h->session;
  h->session = NULL;
  memcpy(c->token, op->token, CORRAL_TOKEN);
  c->shared = (op->flags & CORRAL_OP_SHARED) != 0;
  c->lock = lock_of(h->store, op);
  c->fence = op->lock_state.fence = fence;
  c->since = h->store->host->now_ms();
  c->until = c->since + op->lock.hold_ms;
  op->lock_state.left_ms = op->lock.hold_ms;
  c->fd = PQsocket(c->conn);
  c->waits = 0;
  crl_pg_keep(h->store, c);
}

/* A writer that was refused, and will ask again, bars new readers meanwhile: its session has the
 * door, and is kept under the token until the next LOCK or UNLOCK, or wish_ms of silence. */
static void wish(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  crl_pg_store *s = h->store;
  crl_pg_session *c = h->session;
  c->lock = lock_of(s, op);
  if (ask_hold(s, c, CRL_PG_WISH, op->lock.wish_ms, NULL, deadline, NULL) == 1) {
    memcpy(c->token, op->token, CORRAL_TOKEN);
    c->waits = CRL_PG_WISHES;
    c->until = 0;
    crl_pg_keep(s, c);
    h->session = NULL;
    op->flags |= CORRAL_OP_QUEUED;
  } else if (c->waits || crl_pg_is_broken(c)) {
    crl_pg_hang_up(c);
    h->session = NULL;
  } else {
    c->lock = 0;
  }
}

/* Takes the lock by a statement of the handle's session. After a failure the session is ended: it
 * may have the lock. */
static int take(crl_pg_handle *h, corral_op *op, crl_pg_statement what, int64_t deadline) {
  crl_pg_store *s = h->store;
  char note[CORRAL_LOCK_NOTE + 1] = "";
  PGresult *r;
  int status = crl_pg_furnish(h, deadline, op->error);
  if (status != CORRAL_OK) return status;
  crl_pg_question q = {.first = lock_of(s, op),
                       .second = op->lock.hold_ms,
                       .text = crl_pg_note_of(h->session, op->lock.note, op->lock.note_len, note)};
  memcpy(h->session->note, note, sizeof note);
  status = crl_pg_ask(s, h->session, what, &q, deadline, &r, op->error);
  if (status != CORRAL_OK) {
    crl_pg_hang_up(h->session);
    h->session = NULL;
    return status;
  }
  if (PQgetisnull(r, 0, 0))
    status = CORRAL_EBUSY;
  else
    begin(h, op, (uint64_t)crl_pg_number_at(r, 0, 0));
  PQclear(r);
  if (status == CORRAL_EBUSY) op->lock_state.left_ms = -1;
  return status;
}

static int try_to_take(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  int shared = (op->flags & CORRAL_OP_SHARED) != 0,
      wishes = !shared && !(op->flags & CORRAL_OP_FAIR) && op->lock.wish_ms > 0,
      status = take(h, op, shared ? CRL_PG_TRY_SHARED : CRL_PG_TRY, deadline);
  if (status == CORRAL_EBUSY && wishes) wish(h, op, deadline);
  return status;
}

/* The same for a token that waits, by its session, which this thread has. A session of the queue
 * was granted the lock; a session that wishes tries again. */
static int take_by(crl_pg_handle *h, crl_pg_session *c, corral_op *op, int64_t deadline) {
  int wishes = c->waits == CRL_PG_WISHES;
  crl_pg_session *own = crl_pg_exchange(h, c);
  int status = wishes ? try_to_take(h, op, deadline) : take(h, op, CRL_PG_TURN, deadline);
  crl_pg_hang_up(h->session); /* neither granted nor waiting: it has the door, or the lock */
  h->session = own;
  return status;
}

/* A borrowed session in the queue: takes the lock in its turn. CORRAL_ELOST: its place is gone, and
 * the session too; the server may have ended it when it had just been granted the lock. */
static int in_turn(crl_pg_handle *h, crl_pg_session *c, corral_op *op, int64_t deadline) {
  int status = crl_pg_look_for_turn(h, c, op, deadline);
  if (status == CORRAL_EBUSY) crl_pg_give_back(h->store, c);
  if (status == CORRAL_ELOST) crl_pg_drop(h, c);
  if (status != CORRAL_OK) return status;
  status = take_by(h, c, op, deadline);
  if (status != CORRAL_EUNAVAILABLE && status != CORRAL_EINDOUBT) return status;
  crl_pg_unreserve(h->store);
  return CORRAL_ELOST;
}

/* The token's room among max_holds is given back unless it has a hold, or waits. */
static int settled(crl_pg_store *s, const corral_op *op, int status) {
  if (status != CORRAL_OK && !(op->flags & CORRAL_OP_QUEUED)) crl_pg_unreserve(s);
  return status;
}

/* 1: a LOCK that was refused may wait in the server's queue. */
static int may_queue(crl_pg_handle *h, const corral_op *op, int64_t deadline) {
  crl_pg_session *c = h->session;
  if (!(op->flags & CORRAL_OP_FAIR) || op->lock.wish_ms <= 0) return 0;
  if (!(op->flags & CORRAL_OP_SHARED)) return 1;
  c->lock = lock_of(h->store, op);
  int may = ask_hold(h->store, c, CRL_PG_PASS, 0, NULL, deadline, NULL) == 1;
  c->lock = 0;
  return may;
}

/* Tries to take the lock, or else gets a place in the queue. */
static int take_or_queue(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  crl_pg_session *c;
  int status = try_to_take(h, op, deadline);
  if (status != CORRAL_EBUSY || !may_queue(h, op, deadline)) return settled(h->store, op, status);
  status = crl_pg_enqueue(h, op, lock_of(h->store, op), deadline, &c);
  if (status != CORRAL_OK) return settled(h->store, op, status);
  status = in_turn(h, c, op, deadline);
  return status == CORRAL_ELOST ? CORRAL_EBUSY : settled(h->store, op, status);
}

static int lock(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  crl_pg_store *s = h->store;
  int status;
  crl_pg_session *c = crl_pg_borrow(s, op->token, deadline, &status);
  op->flags &= ~(uint32_t)CORRAL_OP_QUEUED;
  if (c == NULL && status != CORRAL_OK) return status;
  if (c != NULL && c->waits == CRL_PG_WISHES) return settled(s, op, take_by(h, c, op, deadline));
  if (c != NULL) {
    int queues = c->waits == CRL_PG_QUEUES;
    status = queues ? in_turn(h, c, op, deadline) : prolong(h, c, op, deadline);
    if (status != CORRAL_ELOST) return queues ? settled(s, op, status) : status;
  }
  if (!crl_pg_reserve(s))
    return s->host->fail(
        op->error, CORRAL_EREFUSED,
        "%s: %lld locks are held or waited for, each with a connection of its own; max_holds "
        "allows no more",
        s->name, (long long)s->max_holds);
  return take_or_queue(h, op, deadline);
}

static int extend(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  int status;
  crl_pg_session *c = crl_pg_borrow(h->store, op->token, deadline, &status);
  if (c == NULL) return status != CORRAL_OK ? status : lost(h, op, deadline);
  if (c->waits) {
    crl_pg_give_back(h->store, c);
    return lost(h, op, deadline);
  }
  if (op->lock_extend.fence > c->fence) {
    crl_pg_give_back(h->store, c);
    return h->store->host->fail(
        op->error, CORRAL_EUNSUPPORTED,
        "%s: fencing tokens of advisory locks are the server's: they can't be raised",
        h->store->name);
  }
  status = prolong(h, c, op, deadline);
  return status == CORRAL_ELOST ? lost(h, op, deadline) : status;
}

/* Ends a hold. An unlock without a reply is repeated on the same session, whose late reply is then
 * the answer; the next failure ends the session, and so the hold. */
static int unlock(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  crl_pg_store *s = h->store;
  char text[CRL_PG_KEY_TEXT];
  int status, answer;
  crl_pg_session *c = crl_pg_borrow(s, op->token, deadline, &status);
  if (c == NULL) return status != CORRAL_OK ? status : lost(h, op, deadline);
  if (c->waits == CRL_PG_WISHES) {
    crl_pg_drop(h, c);
    return lost(h, op, deadline);
  }
  if (c->waits && !crl_pg_leave_queue(h, c, deadline)) {
    crl_pg_drop(h, c);
    op->lock_state.left_ms = 0;
    return CORRAL_OK;
  }
  if (c->ends && c->sent) {
    PGresult *r = crl_pg_receive(s, c, deadline);
    answer = r == NULL || PQresultStatus(r) != PGRES_TUPLES_OK
                 ? crl_pg_failed(s, CORRAL_EINDOUBT, op->error, "no answer to an unlock")
                 : crl_pg_number_at(r, 0, 0) != 0;
    PQclear(r);
  } else {
    answer = ask_hold(s, c, c->shared ? CRL_PG_END_SHARED : CRL_PG_END, 0,
                      crl_pg_key_text(s, op, text), deadline, op->error);
  }
  if (answer < 0 && c->pending && !c->ends) {
    c->ends = 1;
    crl_pg_give_back(s, c);
    return CORRAL_EINDOUBT;
  }
  int is_gone = answer < 0 && !c->sent && !c->pending; /* the session had ended before this */
  if (answer == 1) c->lock = 0;
  crl_pg_drop(h, c);
  if (answer == 1) op->lock_state.left_ms = 0;
  if (answer < 0 && !is_gone) return answer;
  return answer == 1 ? CORRAL_OK : lost(h, op, deadline);
}

/* A hold, as its session's application_name has it (see statements.c). */
typedef struct told {
  int64_t life, since;
  uint64_t fence;
  const char *note;
} told;

static told read_name(const char *name) {
  static const char waits[] = CRL_PG_WAITS;
  int is_waiting = strncmp(name, waits, sizeof waits - 1) == 0;
  told t = {.note = is_waiting ? name + sizeof waits - 1 : name};
  char *end;
  int64_t life = strtoll(name, &end, 10);
  if (end == name || strncmp(end, "ms ", 3) != 0 || life <= 0 || life >= INT32_MAX) return t;
  uint64_t fence = strtoull(end + 3, &end, 16);
  int64_t since = *end == '.' ? strtoll(end + 1, &end, 16) : 0;
  if (since <= 0 || since >= INT64_C(1) << 53 || (*end != ' ' && *end != '\0')) return t;
  return (told){.life = life, .since = since, .fence = fence, .note = *end == ' ' ? end + 1 : end};
}

/* Adds what this process knows of a hold, or of a place, whose session is its own. */
static void read_own(crl_pg_store *s, int64_t pid, int64_t now, corral_hold *hold) {
  pthread_mutex_lock(&s->mutex);
  for (const crl_pg_session *c = s->holds; c != NULL; c = c->next) {
    if (c->pid != pid) continue;
    memcpy(hold->token, c->token, CORRAL_TOKEN);
    memcpy(hold->note, c->note, sizeof hold->note);
    if (c->waits) continue;
    hold->fence = c->fence;
    hold->since = now - (s->host->now_ms() - c->since);
  }
  pthread_mutex_unlock(&s->mutex);
}

/* Describes a holder, or a place in the queue. Of others their application_name tells, and the
 * server when it last heard from them, if this user may see that. Holds of this process are known,
 * and their whole notes. */
static void read_holder(crl_pg_store *s, const PGresult *r, int row, corral_hold *hold) {
  int64_t heard = crl_pg_ms_at(r, HEARD, row), now = crl_pg_ms_at(r, NOW, row);
  char name[CRL_PG_NAME_ROOM];
  snprintf(name, sizeof name, "%.*s", PQgetlength(r, row, NAME), PQgetvalue(r, row, NAME));
  told t = read_name(name);
  size_t len = strlen(t.note);
  *hold = (corral_hold){.mode = crl_pg_number_at(r, EXCLUSIVE, row) ? CORRAL_LOCK_EXCLUSIVE
                                                                    : CORRAL_LOCK_SHARED,
                        .since = t.since > 0 ? t.since : heard,
                        .fence = t.fence};
  if (t.life > 0 && heard > 0) hold->until = heard + t.life > now ? heard + t.life : now + 1;
  memcpy(hold->note, t.note, len < sizeof hold->note ? len : sizeof hold->note);
  read_own(s, crl_pg_number_at(r, PID, row), now, hold);
  if (crl_pg_number_at(r, HELD, row) != 0) return;
  hold->mode += CORRAL_LOCK_WAITING;
  hold->since = crl_pg_ms_at(r, SINCE, row);
  hold->until = 0;
  hold->fence = 0;
}

static int show_holders(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  PGresult *r;
  uint64_t fence = 0;
  int status = crl_pg_furnish(h, deadline, op->error);
  if (status == CORRAL_OK)
    status =
        crl_pg_ask(h->store, h->session, CRL_PG_HOLDERS,
                   &(crl_pg_question){.first = lock_of(h->store, op)}, deadline, &r, op->error);
  if (status != CORRAL_OK) return status;
  int count = PQntuples(r);
  corral_hold *holds = calloc((size_t)count + 1, sizeof *holds);
  if (holds == NULL)
    status = h->store->host->fail(op->error, CORRAL_ENOMEM, "%s: no memory for a record",
                                  h->store->name);
  for (int i = 0; i < count && holds != NULL; i++) {
    read_holder(h->store, r, i, &holds[i]);
    if (holds[i].fence > fence) fence = holds[i].fence;
  }
  if (holds != NULL)
    status = count == 0
                 ? CORRAL_EMISS
                 : crl_pg_show(h->store, op, fence, holds, (size_t)count, crl_pg_ms_at(r, NOW, 0));
  free(holds);
  PQclear(r);
  return status;
}

int crl_pg_in_sessions(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  switch (op->verb) {
    case CORRAL_VERB_LOCK: return lock(h, op, deadline);
    case CORRAL_VERB_LOCK_EXTEND: return extend(h, op, deadline);
    case CORRAL_VERB_UNLOCK: return unlock(h, op, deadline);
    default: return show_holders(h, op, deadline);
  }
}
