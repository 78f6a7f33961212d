/* advisory.c: locks=advisory: a session for each hold, kept under its token. */
#include <stdio.h>
#include <stdlib.h>

#include "postgresql.h"

enum { IDLE_MOST = 4 };

/* ---- sessions of holds --------------------------------------------------------------------- */

/* Takes the session of this token's hold, for this thread alone until it is given back or dropped.
 * NULL: there is none, or (*status) another thread had it until the deadline. */
static crl_pg_session *borrow(crl_pg_store *s, const uint8_t *token, int64_t deadline,
                              int *status) {
  crl_pg_session *c;
  *status = CORRAL_OK;
  pthread_mutex_lock(&s->mutex);
  for (;;) {
    for (c = s->holds; c != NULL && memcmp(c->token, token, CORRAL_TOKEN) != 0;) c = c->next;
    if (c == NULL || !c->lent) break;
    int64_t now = s->host->now_ms(),
            until = deadline - now > CRL_PG_POLL_MOST_MS ? now + CRL_PG_POLL_MOST_MS : deadline;
    struct timespec at = {.tv_sec = (time_t)(until / 1000),
                          .tv_nsec = (long)(until % 1000) * 1000000};
    if (now >= deadline) {
      *status = CORRAL_EUNAVAILABLE;
      c = NULL;
      break;
    }
    pthread_cond_timedwait(&s->given_back, &s->mutex, &at);
  }
  if (c != NULL) c->lent = 1;
  pthread_mutex_unlock(&s->mutex);
  return c;
}

static void give_back(crl_pg_store *s, crl_pg_session *c) {
  pthread_mutex_lock(&s->mutex);
  c->lent = 0;
  pthread_cond_broadcast(&s->given_back);
  pthread_mutex_unlock(&s->mutex);
}

/* Under the mutex. */
static void unlist(crl_pg_store *s, const crl_pg_session *c) {
  crl_pg_session **at = &s->holds;
  while (*at != NULL && *at != c) at = &(*at)->next;
  if (*at != NULL) *at = c->next;
}

/* Ends the session's role as a hold; a session that still works is kept for later. */
static void drop(crl_pg_handle *h, crl_pg_session *c) {
  crl_pg_store *s = h->store;
  pthread_mutex_lock(&s->mutex);
  unlist(s, c);
  s->hold_count--;
  c->lent = c->ends = 0;
  if (c->lock == 0 && !crl_pg_is_broken(c) && h->session == NULL)
    h->session = c, c = NULL;
  else if (c->lock == 0 && !crl_pg_is_broken(c) && s->idle_count < IDLE_MOST)
    c->next = s->idle, s->idle = c, s->idle_count++, c = NULL;
  pthread_cond_broadcast(&s->given_back);
  pthread_mutex_unlock(&s->mutex);
  crl_pg_hang_up(c);
}

/* Reserves room for one more hold; 0: there is none. A session whose unlock was sent and never
 * answered makes room. */
static int reserve(crl_pg_store *s) {
  crl_pg_session *old = NULL;
  pthread_mutex_lock(&s->mutex);
  int has_room = s->hold_count < s->max_holds;
  for (crl_pg_session **at = &s->holds; *at != NULL && !has_room; at = &(*at)->next)
    if ((*at)->ends && !(*at)->lent) {
      old = *at;
      *at = old->next;
      s->hold_count--;
      break;
    }
  has_room |= old != NULL;
  s->hold_count += has_room;
  pthread_mutex_unlock(&s->mutex);
  crl_pg_hang_up(old);
  return has_room;
}

static void unreserve(crl_pg_store *s) {
  pthread_mutex_lock(&s->mutex);
  s->hold_count--;
  pthread_mutex_unlock(&s->mutex);
}

static void keep(crl_pg_store *s, crl_pg_session *c) {
  pthread_mutex_lock(&s->mutex);
  c->next = s->holds;
  s->holds = c;
  pthread_mutex_unlock(&s->mutex);
}

/* Gives the handle a session without a hold: its own, an idle one, or a new one. */
static int furnish(crl_pg_handle *h, int64_t deadline, corral_error *error) {
  crl_pg_store *s = h->store;
  while (h->session == NULL) {
    pthread_mutex_lock(&s->mutex);
    crl_pg_session *c = s->idle;
    if (c != NULL) s->idle = c->next, s->idle_count--;
    pthread_mutex_unlock(&s->mutex);
    if (c == NULL) return crl_pg_open_session(s, deadline, &h->session, error);
    if (crl_pg_is_alive(c))
      h->session = c;
    else
      crl_pg_hang_up(c);
  }
  return CORRAL_OK;
}

void crl_pg_end_sessions(crl_pg_store *s) {
  crl_pg_session *lists[2] = {s->holds, s->idle};
  for (int i = 0; i < 2; i++)
    for (crl_pg_session *next; lists[i] != NULL; lists[i] = next) {
      next = lists[i]->next;
      crl_pg_hang_up(lists[i]);
    }
}

/* ---- ends of connections ------------------------------------------------------------------- */

int crl_pg_attend(void *store, const uint8_t *token) {
  crl_pg_store *s = store;
  int attends = !s->advisory;
  pthread_mutex_lock(&s->mutex);
  for (crl_pg_session *c = s->holds; c != NULL && !attends; c = c->next)
    if (memcmp(c->token, token, CORRAL_TOKEN) == 0)
      attends = crl_net_ends_add(&s->ends, s->host, c->fd, &c->number);
  pthread_mutex_unlock(&s->mutex);
  return attends;
}

/* Copies the token of the hold whose connection has this number; 0: there is none any more. */
static int token_of(void *store, uint64_t number, uint8_t *token) {
  crl_pg_store *s = store;
  int is_held = 0;
  pthread_mutex_lock(&s->mutex);
  for (const crl_pg_session *c = s->holds; c != NULL && !is_held; c = c->next)
    if (c->number == number) memcpy(token, c->token, CORRAL_TOKEN), is_held = 1;
  pthread_mutex_unlock(&s->mutex);
  return is_held;
}

void crl_pg_ends(void *store, int stop_fd, void (*told)(void *arg, const uint8_t *token),
                 void *arg) {
  crl_pg_store *s = store;
  pthread_mutex_lock(&s->mutex);
  int fd = crl_net_ends_open(&s->ends, s->host);
  pthread_mutex_unlock(&s->mutex);
  crl_net_ends_tell(fd, stop_fd, token_of, s, told, arg);
}

/* ---- verbs --------------------------------------------------------------------------------- */

static int64_t lock_of(const crl_pg_store *s, const corral_op *op) {
  return (int64_t)corral_digest_number(s->host, op->key, op->key_len);
}

/* 1: the lock is held now; 0: it isn't, or that can't be found out. */
static int is_taken(crl_pg_handle *h, int64_t lock, int64_t deadline) {
  PGresult *r;
  if (furnish(h, deadline, NULL) != CORRAL_OK) return 0;
  if (crl_pg_ask(h->store, h->session, CRL_PG_HOLDERS, &(crl_pg_question){.first = lock}, deadline,
                 &r, NULL) != CORRAL_OK)
    return 0;
  int count = PQntuples(r);
  PQclear(r);
  return count > 0;
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
    give_back(s, c);
    return CORRAL_OK;
  }
  if (answer == 0 || PQstatus(c->conn) == CONNECTION_BAD) {
    drop(h, c);
    return CORRAL_ELOST;
  }
  give_back(s, c);
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
  keep(h->store, c);
}

/* A writer that was refused, and will ask again, bars new readers meanwhile: its session has the
 * door, and is kept under the token until the next LOCK or UNLOCK, or wish_ms of silence. */
static void wish(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  crl_pg_store *s = h->store;
  crl_pg_session *c = h->session;
  c->lock = lock_of(s, op);
  if (ask_hold(s, c, CRL_PG_WISH, op->lock.wish_ms, NULL, deadline, NULL) == 1) {
    memcpy(c->token, op->token, CORRAL_TOKEN);
    c->waits = 1;
    keep(s, c);
    h->session = NULL;
    op->flags |= CORRAL_OP_QUEUED;
  } else if (c->waits || crl_pg_is_broken(c)) {
    crl_pg_hang_up(c);
    h->session = NULL;
  } else {
    c->lock = 0;
  }
}

/* Tries to take the lock. After a failure the session is ended, since it may have the lock. */
static int take(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  crl_pg_store *s = h->store;
  char note[CORRAL_LOCK_NOTE + 1];
  PGresult *r;
  int status = furnish(h, deadline, op->error);
  if (status != CORRAL_OK) return status;
  crl_pg_question q = {.first = lock_of(s, op),
                       .second = op->lock.hold_ms,
                       .text = crl_pg_note_of(h->session, op->lock.note, op->lock.note_len, note)};
  memcpy(h->session->note, note, sizeof note);
  status = crl_pg_ask(s, h->session, op->flags & CORRAL_OP_SHARED ? CRL_PG_TRY_SHARED : CRL_PG_TRY,
                      &q, deadline, &r, op->error);
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
  if (status == CORRAL_EBUSY && op->lock.wish_ms > 0 && !(op->flags & CORRAL_OP_SHARED))
    wish(h, op, deadline);
  return status;
}

/* The same for a token that waits, on the session that it waits by, which this thread has. */
static int take_turn(crl_pg_handle *h, crl_pg_session *c, corral_op *op, int64_t deadline) {
  crl_pg_store *s = h->store;
  crl_pg_session *own = h->session;
  pthread_mutex_lock(&s->mutex);
  unlist(s, c);
  c->lent = 0;
  pthread_cond_broadcast(&s->given_back);
  pthread_mutex_unlock(&s->mutex);
  h->session = c;
  int status = take(h, op, deadline);
  crl_pg_hang_up(h->session); /* neither granted nor waiting: it has the door */
  h->session = own;
  return status;
}

/* 1: the operation's token has its place, a hold or one that waits, among max_holds. */
static int has_place(const corral_op *op, int status) {
  return status == CORRAL_OK || (op->flags & CORRAL_OP_QUEUED) != 0;
}

static int lock(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  crl_pg_store *s = h->store;
  int status;
  crl_pg_session *c = borrow(s, op->token, deadline, &status);
  op->flags &= ~(uint32_t)CORRAL_OP_QUEUED;
  if (c != NULL && c->waits) {
    status = take_turn(h, c, op, deadline);
    if (!has_place(op, status)) unreserve(s);
    return status;
  }
  if (c != NULL) status = prolong(h, c, op, deadline);
  if (status != CORRAL_ELOST && (c != NULL || status != CORRAL_OK)) return status;
  if (!reserve(s))
    return s->host->fail(
        op->error, CORRAL_EREFUSED,
        "%s: %lld locks are held, each with a connection of its own; max_holds allows no more",
        s->name, (long long)s->max_holds);
  status = take(h, op, deadline);
  if (!has_place(op, status)) unreserve(s);
  return status;
}

static int extend(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  int status;
  crl_pg_session *c = borrow(h->store, op->token, deadline, &status);
  if (c == NULL) return status != CORRAL_OK ? status : lost(h, op, deadline);
  if (c->waits) {
    give_back(h->store, c);
    return lost(h, op, deadline);
  }
  if (op->lock_extend.fence > c->fence) {
    give_back(h->store, c);
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
  crl_pg_session *c = borrow(s, op->token, deadline, &status);
  if (c == NULL) return status != CORRAL_OK ? status : lost(h, op, deadline);
  if (c->waits) {
    drop(h, c);
    return lost(h, op, deadline);
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
    give_back(s, c);
    return CORRAL_EINDOUBT;
  }
  int is_gone = answer < 0 && !c->sent && !c->pending; /* the session had ended before this */
  if (answer == 1) c->lock = 0;
  drop(h, c);
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
  told t = {.note = name};
  char *end;
  int64_t life = strtoll(name, &end, 10);
  if (end == name || strncmp(end, "ms ", 3) != 0 || life <= 0 || life >= INT32_MAX) return t;
  uint64_t fence = strtoull(end + 3, &end, 16);
  int64_t since = *end == '.' ? strtoll(end + 1, &end, 16) : 0;
  if (since <= 0 || since >= INT64_C(1) << 53 || (*end != ' ' && *end != '\0')) return t;
  return (told){.life = life, .since = since, .fence = fence, .note = *end == ' ' ? end + 1 : end};
}

/* Describes a holder. Of others their application_name tells, and the server when it last heard
 * from them, if this user may see that. Holds of this process are known, and their whole notes. */
static void read_holder(crl_pg_store *s, const PGresult *r, int row, corral_hold *hold) {
  int64_t heard = crl_pg_ms_at(r, 2, row), now = crl_pg_ms_at(r, 3, row),
          pid = crl_pg_number_at(r, 1, row);
  char name[CRL_PG_NAME_ROOM];
  snprintf(name, sizeof name, "%.*s", PQgetlength(r, row, 4), PQgetvalue(r, row, 4));
  told t = read_name(name);
  size_t len = strlen(t.note);
  *hold = (corral_hold){.mode = crl_pg_number_at(r, 0, row) ? CORRAL_LOCK_EXCLUSIVE
                                                            : CORRAL_LOCK_SHARED,
                        .since = t.since > 0 ? t.since : heard,
                        .fence = t.fence};
  if (t.life > 0 && heard > 0) hold->until = heard + t.life > now ? heard + t.life : now + 1;
  memcpy(hold->note, t.note, len < sizeof hold->note ? len : sizeof hold->note);
  pthread_mutex_lock(&s->mutex);
  for (const crl_pg_session *c = s->holds; c != NULL; c = c->next)
    if (c->pid == pid) {
      memcpy(hold->token, c->token, CORRAL_TOKEN);
      memcpy(hold->note, c->note, sizeof hold->note);
      hold->fence = c->fence;
      hold->since = now - (s->host->now_ms() - c->since);
    }
  pthread_mutex_unlock(&s->mutex);
}

static int show_holders(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  PGresult *r;
  uint64_t fence = 0;
  int status = furnish(h, deadline, op->error);
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
                 : crl_pg_show(h->store, op, fence, holds, (size_t)count, crl_pg_ms_at(r, 3, 0));
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
