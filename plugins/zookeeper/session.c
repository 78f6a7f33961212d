/* session.c: one session with the servers: its thread, its requests and its events. */
#include "zk.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

enum { STACK = 512 << 10 };

struct zk_request {
  zk_request *next, **link;
  zk_session *s;
  pthread_cond_t cond;
  int done, left; /* left: the caller stopped waiting, so the reply frees the request */
  zk_reply reply;
  char path[CRL_ZK_PATH]; /* of the node whose watch is set again */
};

int64_t crl_zk_now(const zk_session *s) { return s->store->host->now_ms(); }

int crl_zk_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until) {
  struct timespec ts = {.tv_sec = (time_t)(until / 1000),
                        .tv_nsec = (long)(until % 1000) * 1000000};
  if (until == INT64_MAX) return pthread_cond_wait(cond, mutex) == 0;
  return until > 0 && pthread_cond_timedwait(cond, mutex, &ts) != ETIMEDOUT;
}

static void make_cond(pthread_cond_t *cond) {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(cond, &attr);
  pthread_condattr_destroy(&attr);
}

/* ---- callbacks of the client library: never block ------------------------------------------ */

static void unlink_request(zk_request *r) {
  *r->link = r->next;
  if (r->next != NULL) r->next->link = r->link;
}

static void free_request(zk_request *r) {
  pthread_cond_destroy(&r->cond);
  free(r->reply.children);
  free(r->reply.names);
  free(r);
}

static void finish(const zk_request *data, int rc, const struct Stat *stat, const char *text,
                   size_t len, zk_child *children, size_t count) {
  zk_request *r = (zk_request *)(uintptr_t)data;
  zk_session *s = r->s;
  zk_reply *to = &r->reply;
  pthread_mutex_lock(&s->mutex);
  to->rc = rc;
  if (rc == ZOK && stat != NULL) to->stat = *stat;
  to->len = len < CRL_ZK_TEXT ? len : CRL_ZK_TEXT - 1;
  if (to->len > 0) memcpy(to->text, text, to->len);
  to->children = children;
  to->count = count;
  r->done = 1;
  if (r->left) {
    unlink_request(r);
    free_request(r);
  } else {
    pthread_cond_signal(&r->cond);
  }
  pthread_mutex_unlock(&s->mutex);
}

static void on_path(int rc, const char *path, const struct Stat *stat, const void *data) {
  const char *text =
      rc == ZOK && path != NULL && strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : "";
  finish(data, rc, stat, text, strlen(text), NULL, 0);
}

static void on_string(int rc, const char *text, const void *data) {
  (void)text;
  finish(data, rc, NULL, NULL, 0, NULL, 0);
}

static void on_stat(int rc, const struct Stat *stat, const void *data) {
  finish(data, rc, stat, NULL, 0, NULL, 0);
}

static void on_void(int rc, const void *data) { finish(data, rc, NULL, NULL, 0, NULL, 0); }

static void on_data(int rc, const char *text, int len, const struct Stat *stat, const void *data) {
  finish(data, rc, stat, text, rc == ZOK && text != NULL && len > 0 ? (size_t)len : 0, NULL, 0);
}

static void on_children(int rc, const struct String_vector *strings, const void *data) {
  size_t count = 0,
         most = rc == ZOK && strings != NULL && strings->count > 0 ? (size_t)strings->count : 0;
  zk_child *children = most > 0 ? calloc(most, sizeof *children) : NULL;
  if (most > 0 && children == NULL) rc = ZSYSTEMERROR;
  for (size_t i = 0; children != NULL && i < most; i++)
    count += (size_t)crl_zk_read_node(strings->data[i], &children[count]);
  if (count > 1) qsort(children, count, sizeof *children, crl_zk_by_number);
  finish(data, rc, NULL, NULL, 0, children, count);
}

static void on_names(int rc, const struct String_vector *strings, const void *data) {
  zk_request *r = (zk_request *)(uintptr_t)data;
  size_t count = rc == ZOK && strings != NULL && strings->count > 0 ? (size_t)strings->count : 0,
         size = 0;
  for (size_t i = 0; i < count; i++) size += strlen(strings->data[i]) + 1;
  char *at = size > 0 ? malloc(size) : NULL;
  r->reply.names = at; /* nobody else reads it before the end */
  for (size_t i = 0; at != NULL && i < count; i++) at = stpcpy(at, strings->data[i]) + 1;
  finish(data, size > 0 && at == NULL ? ZSYSTEMERROR : rc, NULL, NULL, 0, NULL, count);
}

/* Wakes the places whose watched node is `path`; `only_shared`: only shared ones. Under the
 * session's mutex. */
static void wake_waiters(zk_session *s, const char *path, int only_shared) {
  char before[CRL_ZK_PATH];
  for (zk_place *p = s->places; p != NULL; p = p->next) {
    if (p->before[0] == '\0' || (only_shared && !p->shared)) continue;
    crl_zk_path(p->dir, p->before, before);
    if (strcmp(before, path) != 0) continue;
    p->before[0] = '\0';
    s->store->tell(s->store, p->hash);
  }
}

static void on_again(int rc, const char *text, int len, const struct Stat *stat, const void *data) {
  const zk_request *r = data;
  int shared = rc == ZOK && text != NULL && len > 0 && text[0] == 's';
  pthread_mutex_lock(&r->s->mutex);
  if (rc != ZOK || shared) wake_waiters(r->s, r->path, rc == ZOK);
  pthread_mutex_unlock(&r->s->mutex);
  finish(data, rc, stat, NULL, 0, NULL, 0);
}

static void on_event(zhandle_t *zh, int type, int state, const char *path, void *arg);

static zk_request *new_request(zk_session *s) {
  zk_request *r = calloc(1, sizeof *r);
  if (r == NULL) return NULL;
  make_cond(&r->cond);
  r->s = s;
  pthread_mutex_lock(&s->mutex);
  r->next = s->requests;
  r->link = &s->requests;
  if (r->next != NULL) r->next->link = &r->next;
  s->requests = r;
  pthread_mutex_unlock(&s->mutex);
  return r;
}

/* Sets the watch on a node again, after the holder's write ended it. An extension wakes no place, a
 * downgrade wakes the shared ones. */
static void watch_again(zk_session *s, zhandle_t *zh, const char *path) {
  zk_request *r = strlen(path) < CRL_ZK_PATH ? new_request(s) : NULL;
  if (r == NULL) return;
  r->left = 1;
  memcpy(r->path, path, strlen(path) + 1);
  int rc = zoo_awget(zh, path, on_event, s, on_again, r);
  if (rc != ZOK) on_again(rc, NULL, 0, NULL, r);
}

static void on_session(zk_session *s, zhandle_t *zh, int state) {
  pthread_mutex_lock(&s->mutex);
  if (state == ZOO_CONNECTED_STATE) s->granted_ms = zoo_recv_timeout(zh);
  if (s->state < CRL_ZK_EXPIRED)
    s->state = state == ZOO_CONNECTED_STATE         ? CRL_ZK_CONNECTED
               : state == ZOO_EXPIRED_SESSION_STATE ? CRL_ZK_EXPIRED
               : state == ZOO_AUTH_FAILED_STATE     ? CRL_ZK_REFUSED
                                                    : CRL_ZK_CONNECTING;
  if (s->state >= CRL_ZK_EXPIRED) s->store->tell(s->store, 0);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

static void on_event(zhandle_t *zh, int type, int state, const char *path, void *arg) {
  zk_session *s = arg;
  if (type == ZOO_SESSION_EVENT) {
    on_session(s, zh, state);
  } else if (type == ZOO_CHANGED_EVENT) {
    watch_again(s, zh, path);
  } else if (path != NULL) {
    pthread_mutex_lock(&s->mutex);
    wake_waiters(s, path, 0);
    pthread_mutex_unlock(&s->mutex);
  }
}

static void no_log(const char *message) { (void)message; }

/* ---- requests: each ends by a deadline ----------------------------------------------------- */

static int await(zk_request *r, int issued, int64_t deadline, zk_reply *ret) {
  zk_session *s = r->s;
  pthread_mutex_lock(&s->mutex);
  while (issued == ZOK && !r->done && crl_zk_wait(&r->cond, &s->mutex, deadline)) continue;
  if (issued == ZOK && !r->done) {
    r->left = 1;
    pthread_mutex_unlock(&s->mutex);
    return ret->rc = ZOPERATIONTIMEOUT;
  }
  unlink_request(r);
  pthread_mutex_unlock(&s->mutex);
  if (issued != ZOK) r->reply.rc = issued;
  *ret = r->reply;
  r->reply.children = NULL;
  r->reply.names = NULL;
  free_request(r);
  /* a request can learn of the session's end before the event comes */
  if (ret->rc == ZSESSIONEXPIRED || ret->rc == ZINVALIDSTATE)
    on_session(s, s->zh,
               zoo_state(s->zh) == ZOO_AUTH_FAILED_STATE ? ZOO_AUTH_FAILED_STATE
                                                         : ZOO_EXPIRED_SESSION_STATE);
  return ret->rc;
}

static const struct ACL_vector *acl(const zk_session *s) {
  return s->store->auth != NULL ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

int crl_zk_create(zk_session *s, const char *path, const char *data, int len, int mode,
                  int64_t deadline, zk_reply *ret) {
  zk_request *r = new_request(s);
  *ret = (zk_reply){.rc = ZSYSTEMERROR};
  return r == NULL ? ret->rc
                   : await(r, zoo_acreate2(s->zh, path, data, len, acl(s), mode, on_path, r),
                           deadline, ret);
}

int crl_zk_delete(zk_session *s, const char *path, int64_t deadline) {
  zk_request *r = new_request(s);
  zk_reply got = {.rc = ZSYSTEMERROR};
  return r == NULL ? got.rc : await(r, zoo_adelete(s->zh, path, -1, on_void, r), deadline, &got);
}

int crl_zk_set(zk_session *s, const char *path, const char *data, int len, int64_t deadline,
               zk_reply *ret) {
  zk_request *r = new_request(s);
  *ret = (zk_reply){.rc = ZSYSTEMERROR};
  return r == NULL ? ret->rc
                   : await(r, zoo_aset(s->zh, path, data, len, -1, on_stat, r), deadline, ret);
}

int crl_zk_get(zk_session *s, const char *path, int watched, int64_t deadline, zk_reply *ret) {
  zk_request *r = new_request(s);
  *ret = (zk_reply){.rc = ZSYSTEMERROR};
  return r == NULL ? ret->rc
                   : await(r, zoo_awget(s->zh, path, watched ? on_event : NULL, s, on_data, r),
                           deadline, ret);
}

int crl_zk_list(zk_session *s, const char *dir, int synced, int64_t deadline, zk_reply *ret) {
  zk_request *r = new_request(s);
  *ret = (zk_reply){.rc = ZSYSTEMERROR};
  if (r != NULL && synced) {
    if (await(r, zoo_async(s->zh, dir, on_string, r), deadline, ret) != ZOK) return ret->rc;
    r = new_request(s);
  }
  if (r == NULL) return ret->rc;
  await(r, zoo_aget_children(s->zh, dir, 0, on_children, r), deadline, ret);
  if (ret->rc == ZNONODE) *ret = (zk_reply){.rc = ZOK};
  return ret->rc;
}

int crl_zk_names(zk_session *s, const char *dir, int64_t deadline, zk_reply *ret) {
  zk_request *r = new_request(s);
  *ret = (zk_reply){.rc = ZSYSTEMERROR};
  if (r == NULL) return ret->rc;
  await(r, zoo_aget_children(s->zh, dir, 0, on_names, r), deadline, ret);
  if (ret->rc == ZNONODE) *ret = (zk_reply){.rc = ZOK};
  return ret->rc;
}

/* ---- the thread ---------------------------------------------------------------------------- */

static zhandle_t *start_client(zk_session *s) {
  const zk_store *st = s->store;
  st->host->guard_standard();
  zhandle_t *zh = zookeeper_init2(st->servers, on_event, (int)st->session_ms, NULL, s,
                                  ZOO_NO_LOG_CLIENTENV, no_log);
  if (zh == NULL) return NULL;
  zoo_set_servers_resolution_delay(zh, -1);
  if (st->auth != NULL) zoo_add_auth(zh, "digest", st->auth, (int)strlen(st->auth), NULL, NULL);
  return zh;
}

static void *run(void *arg) {
  zk_session *s = arg;
  zhandle_t *zh = start_client(s);
  pthread_mutex_lock(&s->mutex);
  s->zh = zh;
  if (zh == NULL) s->state = CRL_ZK_UNRESOLVED;
  pthread_cond_broadcast(&s->changed);
  while (!s->stop) {
    s->due = s->store->sweep(s);
    if (!s->stop) crl_zk_wait(&s->wake, &s->mutex, s->due);
  }
  pthread_mutex_unlock(&s->mutex);
  if (zh != NULL) zookeeper_close(zh);
  atomic_store(&s->over, 1);
  return NULL;
}

static void free_session(zk_session *s) {
  for (zk_request *r = s->requests, *next; r != NULL; r = next) {
    next = r->next;
    free_request(r);
  }
  for (zk_place *p = s->places, *next; p != NULL; p = next) {
    next = p->next;
    free(p);
  }
  pthread_cond_destroy(&s->wake);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->mutex);
  free(s);
}

zk_session *crl_zk_session_new(zk_store *st) {
  zk_session *s = calloc(1, sizeof *s);
  pthread_attr_t attr;
  sigset_t all, old;
  if (s == NULL) return NULL;
  s->store = st;
  s->due = INT64_MAX;
  s->granted_ms = st->session_ms;
  pthread_mutex_init(&s->mutex, NULL);
  make_cond(&s->changed);
  make_cond(&s->wake);
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, STACK);
  sigfillset(&all);
  /* inherited by the library's threads, which this thread starts */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int code = pthread_create(&s->thread, &attr, run, s);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  if (code == 0) return s;
  free_session(s);
  return NULL;
}

void crl_zk_session_stop(zk_session *s) {
  pthread_mutex_lock(&s->mutex);
  s->stop = 1;
  pthread_cond_signal(&s->wake);
  pthread_mutex_unlock(&s->mutex);
}

void crl_zk_session_join(zk_session *s) {
  pthread_join(s->thread, NULL);
  free_session(s);
}

int crl_zk_session_wait(zk_session *s, int64_t deadline) {
  int in_time = 1;
  pthread_mutex_lock(&s->mutex);
  while (in_time &&
         (s->state == CRL_ZK_CONNECTING || (s->zh == NULL && s->state != CRL_ZK_UNRESOLVED)))
    in_time = crl_zk_wait(&s->changed, &s->mutex, deadline);
  int state = s->zh != NULL || s->state == CRL_ZK_UNRESOLVED ? s->state : CRL_ZK_CONNECTING;
  pthread_mutex_unlock(&s->mutex);
  switch (state) {
    case CRL_ZK_CONNECTED: return ZOK;
    case CRL_ZK_EXPIRED: return ZSESSIONEXPIRED;
    case CRL_ZK_REFUSED: return ZAUTHFAILED;
    case CRL_ZK_UNRESOLVED: return ZBADARGUMENTS;
    default: return ZCONNECTIONLOSS;
  }
}
