/* holds.c: the sessions of advisory locks: those of holds and of tokens that wait, each kept under
 * its token, and idle ones; and the ends of their connections. */
#include <poll.h>
#include <stdlib.h>

#include "postgresql.h"

enum { IDLE_MOST = 4 };

/* ---- sessions ------------------------------------------------------------------------------ */

crl_pg_session *crl_pg_borrow(crl_pg_store *s, const uint8_t *token, int64_t deadline,
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

void crl_pg_give_back(crl_pg_store *s, crl_pg_session *c) {
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

crl_pg_session *crl_pg_exchange(crl_pg_handle *h, crl_pg_session *c) {
  crl_pg_store *s = h->store;
  crl_pg_session *own = h->session;
  pthread_mutex_lock(&s->mutex);
  unlist(s, c);
  c->lent = 0;
  pthread_cond_broadcast(&s->given_back);
  pthread_mutex_unlock(&s->mutex);
  h->session = c;
  return own;
}

void crl_pg_drop(crl_pg_handle *h, crl_pg_session *c) {
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

/* 1: the server has ended the connection. Reads nothing: an answer that is read here would be no
 * event for crl_pg_tell_turns any more. */
static int is_ended(const crl_pg_session *c) {
  struct pollfd fd = {.fd = PQsocket(c->conn), .events = POLLRDHUP};
  return PQstatus(c->conn) == CONNECTION_BAD || (poll(&fd, 1, 0) > 0 && fd.revents != 0);
}

/* 1: the session is listed, and of no use: no unlock came, or no answer to one. */
static int is_over(const crl_pg_store *s, const crl_pg_session *c) {
  return !c->lent && (c->ends || (c->until <= s->host->now_ms() && is_ended(c)));
}

int crl_pg_reserve(crl_pg_store *s) {
  crl_pg_session *old = NULL;
  pthread_mutex_lock(&s->mutex);
  int has_room = s->hold_count < s->max_holds;
  for (crl_pg_session **at = &s->holds; *at != NULL && !has_room; at = &(*at)->next)
    if (is_over(s, *at)) {
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

void crl_pg_unreserve(crl_pg_store *s) {
  pthread_mutex_lock(&s->mutex);
  s->hold_count--;
  pthread_mutex_unlock(&s->mutex);
}

void crl_pg_keep(crl_pg_store *s, crl_pg_session *c) {
  pthread_mutex_lock(&s->mutex);
  c->next = s->holds;
  s->holds = c;
  pthread_mutex_unlock(&s->mutex);
}

int crl_pg_furnish(crl_pg_handle *h, int64_t deadline, corral_error *error) {
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
