/* holds.c: the store's connections: those that have a hold or wait for one, and idle ones. */
#include <errno.h>
#include <time.h>

#include "mariadb.h"

enum { IDLE_MOST = 8 };

/* ---- connections --------------------------------------------------------------------------- */

/* Waits for a change of the lists; 0: the deadline. The mutex is held. */
static int wait_for_change(crl_mariadb_store *st, int64_t deadline) {
  struct timespec until = {.tv_sec = (time_t)(deadline / 1000),
                           .tv_nsec = (long)(deadline % 1000) * 1000000};
  return pthread_cond_timedwait(&st->changed, &st->mutex, &until) != ETIMEDOUT;
}

static void unlist_held(crl_mariadb_session *s) {
  crl_mariadb_store *st = s->st;
  for (crl_mariadb_session **at = &st->held; *at != NULL; at = &(*at)->next) {
    if (*at != s) continue;
    *at = s->next;
    st->held_count--;
    return;
  }
}

void crl_mariadb_drop(crl_mariadb_session *s) {
  crl_mariadb_store *st = s->st;
  pthread_mutex_lock(&st->mutex);
  unlist_held(s);
  pthread_mutex_unlock(&st->mutex);
  /* closed before another one replaces it, since the server counts connections too */
  crl_mariadb_close(s);
  pthread_mutex_lock(&st->mutex);
  st->open_count--;
  pthread_cond_broadcast(&st->changed);
  pthread_mutex_unlock(&st->mutex);
}

void crl_mariadb_put_idle(crl_mariadb_session *s) {
  crl_mariadb_store *st = s->st;
  pthread_mutex_lock(&st->mutex);
  unlist_held(s);
  int keep = !s->broken && s->stage == CRL_MARIADB_READY && st->idle_count < IDLE_MOST &&
             st->open_count <= st->most + 1;
  if (keep) {
    s->next = st->idle;
    st->idle = s;
    st->idle_count++;
    pthread_cond_broadcast(&st->changed);
  }
  pthread_mutex_unlock(&st->mutex);
  if (!keep) crl_mariadb_drop(s);
}

/* Takes what is available at once, under the mutex, where fewer than `most` aren't idle: an idle
 * session, or (*ret NULL) the right to make one; 0: neither. */
static int find_session(crl_mariadb_store *st, size_t most, crl_mariadb_session **ret) {
  crl_mariadb_session *s = st->idle;
  *ret = s;
  if (st->open_count - st->idle_count >= most) return 0;
  if (s == NULL) {
    st->open_count++;
    return 1;
  }
  st->idle = s->next;
  st->idle_count--;
  s->next = NULL;
  return 1;
}

/* Waits for a session: *ret is an idle one, or NULL: make one. `spare`: one more than holds may
 * have. */
static int reserve(crl_mariadb_batch *b, int spare, crl_mariadb_session **ret,
                   corral_error *error) {
  crl_mariadb_store *st = b->st;
  int found, full, late = 0;
  pthread_mutex_lock(&st->mutex);
  for (;;) {
    found = find_session(st, st->most + (spare ? 1 : 0), ret);
    full = !found && !spare && st->held_count >= st->most;
    if (found || full || late) break;
    late = !wait_for_change(st, b->deadline);
  }
  pthread_mutex_unlock(&st->mutex);
  if (found) return CORRAL_OK;
  if (full)
    return st->host->fail(
        error, CORRAL_EREFUSED,
        "%s: all %zu connections hold locks, or wait for their turn; connections= says how many "
        "there may be",
        st->label, st->most);
  return st->host->fail(error, CORRAL_EUNAVAILABLE,
                        "%s: no connection became free in the time allowed", st->label);
}

int crl_mariadb_take_session(crl_mariadb_batch *b, int spare, crl_mariadb_session **ret,
                             corral_error *error) {
  crl_mariadb_store *st = b->st;
  for (;;) {
    int status = reserve(b, spare, ret, error);
    if (status != CORRAL_OK) return status;
    if (*ret == NULL) break;
    if (!crl_mariadb_is_dead(*ret)) return CORRAL_OK;
    (*ret)->broken = 1;
    crl_mariadb_drop(*ret);
  }
  int status = crl_mariadb_connect(st, b->deadline, ret, error);
  if (status == CORRAL_OK) return status;
  b->sick = status;
  pthread_mutex_lock(&st->mutex);
  st->open_count--;
  pthread_cond_broadcast(&st->changed);
  pthread_mutex_unlock(&st->mutex);
  return status;
}

int crl_mariadb_take_held(crl_mariadb_batch *b, const corral_op *op, crl_mariadb_session **ret) {
  crl_mariadb_store *st = b->st;
  int late = 0;
  crl_mariadb_session *s;
  pthread_mutex_lock(&st->mutex);
  for (;;) {
    for (s = st->held; s != NULL && memcmp(s->hold.token, op->token, CORRAL_TOKEN) != 0;
         s = s->next) {
    }
    if (s == NULL || !s->busy || late) break;
    late = !wait_for_change(st, b->deadline);
  }
  int mine = s != NULL && !s->busy;
  if (mine) s->busy = 1;
  pthread_mutex_unlock(&st->mutex);
  if (s != NULL && !mine)
    return st->host->fail(op->error, CORRAL_EUNAVAILABLE,
                          "%s: another call for this hold is under way", st->label);
  if (s != NULL && crl_mariadb_is_dead(s)) {
    s->broken = 1;
    crl_mariadb_drop(s);
    s = NULL;
  }
  *ret = s;
  return CORRAL_OK;
}

void crl_mariadb_put_held(crl_mariadb_session *s) {
  crl_mariadb_store *st = s->st;
  pthread_mutex_lock(&st->mutex);
  s->busy = 0;
  pthread_cond_broadcast(&st->changed);
  pthread_mutex_unlock(&st->mutex);
}

void crl_mariadb_add_held(crl_mariadb_session *s, int busy) {
  crl_mariadb_store *st = s->st;
  pthread_mutex_lock(&st->mutex);
  s->next = st->held;
  st->held = s;
  st->held_count++;
  s->busy = busy;
  s->fd = mysql_get_socket(s->mysql);
  pthread_mutex_unlock(&st->mutex);
}

crl_mariadb_session *crl_mariadb_take_all_idle(crl_mariadb_store *st) {
  pthread_mutex_lock(&st->mutex);
  crl_mariadb_session *all = st->idle;
  st->open_count -= st->idle_count;
  st->idle_count = 0;
  st->idle = NULL;
  pthread_mutex_unlock(&st->mutex);
  return all;
}

void crl_mariadb_close_all(crl_mariadb_session *s) {
  while (s != NULL) {
    crl_mariadb_session *next = s->next;
    if (crl_mariadb_is_dead(s)) s->broken = 1;
    crl_mariadb_close(s);
    s = next;
  }
}

/* ---- ends of connections ------------------------------------------------------------------- */

int crl_mariadb_attend(void *store, const uint8_t *token) {
  crl_mariadb_store *st = store;
  int attends = 0;
  pthread_mutex_lock(&st->mutex);
  for (crl_mariadb_session *s = st->held; s != NULL && !attends; s = s->next)
    if (memcmp(s->hold.token, token, CORRAL_TOKEN) == 0)
      attends = crl_net_ends_add(&st->ends, st->host, s->fd, &s->number);
  pthread_mutex_unlock(&st->mutex);
  return attends;
}

/* Copies the token of the hold whose connection has this number; 0: there is none any more. */
static int token_of(void *store, uint64_t number, uint8_t *token) {
  crl_mariadb_store *st = store;
  int is_held = 0;
  pthread_mutex_lock(&st->mutex);
  for (const crl_mariadb_session *s = st->held; s != NULL && !is_held; s = s->next)
    if (s->number == number) memcpy(token, s->hold.token, CORRAL_TOKEN), is_held = 1;
  pthread_mutex_unlock(&st->mutex);
  return is_held;
}

void crl_mariadb_ends(void *store, int stop_fd, void (*told)(void *arg, const uint8_t *token),
                      void *arg) {
  crl_mariadb_store *st = store;
  pthread_mutex_lock(&st->mutex);
  int fd = crl_net_ends_open(&st->ends, st->host);
  pthread_mutex_unlock(&st->mutex);
  crl_net_ends_tell(fd, stop_fd, token_of, st, told, arg);
}
