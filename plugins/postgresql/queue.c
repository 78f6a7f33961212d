/* queue.c: turns (CORRAL_OP_FAIR) of advisory locks: the server's own queue.
 *
 * The session of a token that waits blocks in pg_advisory_lock; the reply is the grant. The server
 * grants in the order of arrival, in the moment of the release. A try without waiting fails while
 * the queue has a request that conflicts with it. The token's next LOCK confirms a grant. A grant
 * without that for CORRAL_LOCK_TURN_MS ends with its session (idle_session_timeout), and the next
 * request is granted. The session of a dead process ends at its turn, or within a second.
 *
 * While the statement blocks, the session has a snapshot: its database keeps rows that died since,
 * and CREATE INDEX CONCURRENTLY waits for it. PostgreSQL has no blocking call without one. */
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "postgresql.h"

/* ROOM: events that are read at once. SETTLE_MS: how long a LOCK waits at most until the server has
 * its session in the queue, or answers, and an UNLOCK until it has left. */
enum { ROOM = 64, SETTLE_MS = 2000 };

/* Has the reply of a session in the queue told to crl_pg_tell_turns. */
static void attend(crl_pg_store *s, crl_pg_session *c) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
  pthread_mutex_lock(&s->mutex);
  event.data.u64 = c->number = ++s->ends.last;
  (void)epoll_ctl(crl_net_ends_open(&s->turns, s->host), EPOLL_CTL_ADD, c->fd, &event);
  pthread_mutex_unlock(&s->mutex);
}

int crl_pg_enqueue(crl_pg_handle *h, corral_op *op, int64_t lock, int64_t deadline,
                   crl_pg_session **ret) {
  crl_pg_store *s = h->store;
  crl_pg_session *c = h->session;
  int shared = (op->flags & CORRAL_OP_SHARED) != 0;
  crl_pg_question q = {.first = lock, .second = CORRAL_LOCK_TURN_MS, .text = c->note};
  int status =
      crl_pg_begin(s, c, shared ? CRL_PG_QUEUE_SHARED : CRL_PG_QUEUE, &q, deadline, op->error);
  h->session = NULL;
  if (status != CORRAL_OK) {
    crl_pg_hang_up(c);
    return status;
  }
  memcpy(c->token, op->token, CORRAL_TOKEN);
  c->lock = lock;
  c->shared = shared;
  c->until = 0;
  c->hash = s->host->hash64(op->key, op->key_len);
  c->fd = PQsocket(c->conn);
  c->waits = CRL_PG_QUEUES;
  c->looks = 0;
  c->lent = 1;
  crl_pg_keep(s, c);
  attend(s, c);
  *ret = c;
  return CORRAL_OK;
}

static int64_t soon(const crl_pg_store *s, int64_t deadline) {
  int64_t until = s->host->now_ms() + SETTLE_MS;
  return until < deadline ? until : deadline;
}

/* 1: the session's statement was answered, or its connection has ended. */
static int is_answered(crl_pg_session *c) { return !crl_pg_is_alive(c) || !PQisBusy(c->conn); }

/* Takes the reply. 1: the session has the lock. 0: it is to be ended, for it may have the lock all
 * the same: a statement may be cancelled when it has just been granted it. */
static int is_granted(crl_pg_store *s, crl_pg_session *c, int64_t deadline) {
  if (!crl_pg_is_alive(c)) return 0;
  PGresult *r = crl_pg_receive(s, c, deadline);
  int granted = PQresultStatus(r) == PGRES_TUPLES_OK && PQstatus(c->conn) == CONNECTION_OK;
  PQclear(r);
  pthread_mutex_lock(&s->mutex);
  if (granted) c->waits = 0;
  (void)epoll_ctl(s->turns.fd, EPOLL_CTL_DEL, c->fd, NULL);
  pthread_mutex_unlock(&s->mutex);
  return granted;
}

/* Asks the server, by the handle's session, for a number about the session of a place: 0 is none.
 * -1: no answer. */
static int64_t ask_about(crl_pg_handle *h, const crl_pg_session *c, crl_pg_statement what,
                         int64_t deadline) {
  PGresult *r;
  crl_pg_question q = {.first = c->lock, .second = c->pid};
  if (crl_pg_furnish(h, deadline, NULL) != CORRAL_OK ||
      crl_pg_ask(h->store, h->session, what, &q, deadline, &r, NULL) != CORRAL_OK)
    return -1;
  int64_t number = PQntuples(r) > 0 ? crl_pg_number_at(r, 0, 0) : 0;
  PQclear(r);
  return number;
}

int crl_pg_look_for_turn(crl_pg_handle *h, crl_pg_session *c, corral_op *op, int64_t deadline) {
  crl_pg_store *s = h->store;
  int64_t until = soon(s, deadline), place = 0;
  while (!is_answered(c)) {
    place = ask_about(h, c, CRL_PG_PLACE, deadline);
    if (place != 0 || s->host->now_ms() >= until) break;
    /* the server doesn't have it in the queue yet, or not any more */
    (void)crl_pg_await(s, c, POLLIN, s->host->now_ms() + 1);
  }
  if (is_answered(c)) return is_granted(s, c, deadline) ? CORRAL_OK : CORRAL_ELOST;
  /* after the first look the session is in the queue, or over, and this side isn't told */
  if (place == 0 && c->looks) return CORRAL_ELOST;
  c->looks = 1;
  op->flags |= CORRAL_OP_QUEUED;
  op->lock_state.fence = place > 0 ? (uint64_t)place : 0;
  op->lock_state.left_ms = -1;
  return CORRAL_EBUSY;
}

int crl_pg_leave_queue(crl_pg_handle *h, crl_pg_session *c, int64_t deadline) {
  if (!is_answered(c) && ask_about(h, c, CRL_PG_CANCEL, deadline) <= 0 && !is_answered(c)) return 0;
  return is_granted(h->store, c, soon(h->store, deadline));
}

/* ---- the watch's part ---------------------------------------------------------------------- */

int crl_pg_turns_fd(crl_pg_store *s) {
  if (!s->advisory) return -1;
  pthread_mutex_lock(&s->mutex);
  int fd = crl_net_ends_open(&s->turns, s->host);
  pthread_mutex_unlock(&s->mutex);
  return fd;
}

/* Hash of the key that the session with this number waits for; 0: it doesn't wait any more. */
static uint64_t hash_of(crl_pg_store *s, uint64_t number) {
  uint64_t hash = 0;
  pthread_mutex_lock(&s->mutex);
  for (const crl_pg_session *c = s->holds; c != NULL && hash == 0; c = c->next)
    if (c->number == number && c->waits == CRL_PG_QUEUES) hash = c->hash;
  pthread_mutex_unlock(&s->mutex);
  return hash;
}

int crl_pg_tell_turns(crl_pg_store *s, int turns_fd, void (*told)(void *arg, uint64_t hash),
                      void *arg) {
  struct epoll_event events[ROOM];
  int count = turns_fd >= 0 ? epoll_wait(turns_fd, events, ROOM, 0) : 0, tells = 0;
  for (int i = 0; i < count; i++) {
    uint64_t hash = hash_of(s, events[i].data.u64);
    if (hash != 0) told(arg, hash), tells++;
  }
  return tells;
}
