/* lock.c: the lock verbs: a token's place in a queue.
 *
 * The session's list has every place of this process, entered before its node is made. So the
 * session's thread can remove a node whose create got no reply, or whose removal failed. A place
 * that isn't in the list has no node of this session. */
#include "zk.h"

#include <stdio.h>
#include <stdlib.h>

enum { SOUND = 0, GIVEN_UP, LAPSED }; /* values of zk_place.doomed */
/* results beside the library's codes, which are ZOK or negative */
enum { GRANTED = 1, WAITS = 2, AGAIN = 3 };
enum { SWEEP_MS = 2000, AGAIN_MS = 500, GRACE_MS = 5000, TRIES = 8 };

/* One operation. */
typedef struct task {
  zk_session *s;
  corral_op *op;
  zk_place *p;
  int64_t deadline;
  int gone; /* the place has no node and is to be freed */
  char dir[CRL_ZK_PATH];
} task;

static int64_t after(int64_t now, int64_t ms) {
  return ms < INT64_MAX - now ? now + ms : INT64_MAX;
}

/* ---- places -------------------------------------------------------------------------------- */

static void unlink_place(zk_session *s, zk_place *p) {
  zk_place **at = &s->places;
  while (*at != p) at = &(*at)->next;
  *at = p->next;
  free(p);
}

static zk_place *find_place(const task *t, uint64_t hash) {
  zk_place *p = t->s->places;
  while (p != NULL && (p->hash != hash || memcmp(p->token, t->op->token, CORRAL_TOKEN) != 0))
    p = p->next;
  return p;
}

static zk_place *new_place(const task *t, uint64_t hash) {
  const corral_op *op = t->op;
  zk_place *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  memcpy(p->token, op->token, CORRAL_TOKEN);
  memcpy(p->dir, t->dir, sizeof p->dir);
  p->hash = hash;
  p->shared = (op->flags & CORRAL_OP_SHARED) != 0;
  p->note_len = op->lock.note_len < CORRAL_LOCK_NOTE ? op->lock.note_len : CORRAL_LOCK_NOTE;
  if (p->note_len > 0) memcpy(p->note, op->lock.note, p->note_len);
  p->ends = after(crl_zk_now(t->s), op->lock.hold_ms);
  p->next = t->s->places;
  t->s->places = p;
  return p;
}

/* Takes the token's place for this operation alone and sets t->p; NULL: there is none (`make`: then
 * it is made). ZOK, ZOPERATIONTIMEOUT, ZSYSTEMERROR. */
static int grab(task *t, int make) {
  zk_session *s = t->s;
  uint64_t hash = s->store->host->hash64(t->op->key, t->op->key_len);
  int rc = ZOK;
  pthread_mutex_lock(&s->mutex);
  while ((t->p = find_place(t, hash)) != NULL && t->p->busy && rc == ZOK)
    if (!crl_zk_wait(&s->changed, &s->mutex, t->deadline)) rc = ZOPERATIONTIMEOUT;
  if (rc == ZOK && t->p == NULL && make && (t->p = new_place(t, hash)) == NULL) rc = ZSYSTEMERROR;
  if (rc != ZOK) t->p = NULL;
  if (t->p != NULL) {
    t->p->busy = 1;
    if (t->p->doomed == SOUND && t->p->ends <= crl_zk_now(s)) t->p->doomed = LAPSED;
  }
  pthread_mutex_unlock(&s->mutex);
  return rc;
}

static void let_go(task *t) {
  zk_session *s = t->s;
  if (t->p == NULL) return;
  pthread_mutex_lock(&s->mutex);
  t->p->busy = 0;
  if (t->gone)
    unlink_place(s, t->p);
  else if (t->p->ends < s->due)
    pthread_cond_signal(&s->wake);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

static void watch_before(task *t, const char *node) {
  pthread_mutex_lock(&t->s->mutex);
  snprintf(t->p->before, sizeof t->p->before, "%s", node);
  pthread_mutex_unlock(&t->s->mutex);
}

static int is_watched(task *t, const char *node) {
  pthread_mutex_lock(&t->s->mutex);
  int same = strcmp(t->p->before, node) == 0;
  pthread_mutex_unlock(&t->s->mutex);
  return same;
}

static size_t find_node(const zk_reply *list, const uint8_t *token) {
  size_t at = 0;
  while (at < list->count && !crl_zk_is_of(&list->children[at], token)) at++;
  return at;
}

/* Removes the place's node. ZOK; ZNONODE: there was none; else the outcome is unknown. */
static int remove_node(zk_session *s, zk_place *p, int64_t deadline) {
  char path[CRL_ZK_PATH];
  if (p->doubt) {
    zk_reply list;
    int rc = crl_zk_list(s, p->dir, 1, deadline, &list);
    if (rc != ZOK) return rc;
    size_t at = find_node(&list, p->token);
    if (at < list.count) memcpy(p->node, list.children[at].name, sizeof p->node);
    free(list.children);
    p->doubt = 0;
  }
  if (p->node[0] == '\0') return ZNONODE;
  crl_zk_path(p->dir, p->node, path);
  return crl_zk_delete(s, path, deadline);
}

/* Removes the node and dooms the place; the session's thread repeats a removal that failed. */
static int give_up(task *t) {
  int rc = remove_node(t->s, t->p, t->deadline);
  t->gone = rc == ZOK || rc == ZNONODE;
  t->p->ends = 0;
  if (t->p->doomed == SOUND) t->p->doomed = GIVEN_UP;
  return rc;
}

int64_t crl_zk_sweep(zk_session *s) {
  for (;;) {
    int64_t next = INT64_MAX, now = crl_zk_now(s);
    zk_place *due = NULL;
    for (zk_place *p = s->places; p != NULL; p = p->next) {
      if (p->busy) continue;
      if (p->ends < next) next = p->ends;
      if (p->ends <= now) due = p;
    }
    if (due == NULL || s->stop) return next;
    int rc = s->state < CRL_ZK_EXPIRED ? ZCONNECTIONLOSS : ZNONODE,
        connected = s->state == CRL_ZK_CONNECTED;
    due->busy = 1;
    if (due->doomed == SOUND) due->doomed = LAPSED;
    pthread_mutex_unlock(&s->mutex);
    if (connected) rc = remove_node(s, due, now + SWEEP_MS);
    pthread_mutex_lock(&s->mutex);
    due->busy = 0;
    due->ends = crl_zk_now(s) + AGAIN_MS;
    if (rc == ZOK || rc == ZNONODE) unlink_place(s, due);
    pthread_cond_broadcast(&s->changed);
  }
}

/* ---- results ------------------------------------------------------------------------------- */

/* 1: the request may or may not have happened. */
static int is_unsure(int rc) {
  return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZCLOSING || rc == ZSESSIONMOVED;
}

static void fail(task *t, int rc, int sent) {
  const zk_store *st = t->s->store;
  corral_op *op = t->op;
  int over = rc == ZSESSIONEXPIRED || rc == ZINVALIDSTATE;
  if (over && (op->verb == CORRAL_VERB_LOCK_EXTEND || op->verb == CORRAL_VERB_UNLOCK)) {
    op->lock_state.left_ms = -1;
    op->status = st->host->fail(op->error, CORRAL_ELOST,
                                "%s: the session is over, and its holds with it", st->name);
    return;
  }
  int status = over                                 ? CORRAL_EUNAVAILABLE
               : rc == ZNOAUTH || rc == ZAUTHFAILED ? CORRAL_EAUTH
               : rc == ZBADARGUMENTS                ? CORRAL_EUNAVAILABLE
               : is_unsure(rc)                      ? (sent ? CORRAL_EINDOUBT : CORRAL_EUNAVAILABLE)
               : rc == ZSYSTEMERROR                 ? CORRAL_ENOMEM
                                                    : CORRAL_EPROTOCOL;
  op->status = st->host->fail(op->error, status, "%s: %s", st->name,
                              rc == ZOPERATIONTIMEOUT          ? "no reply in time"
                              : rc == ZCONNECTIONLOSS && !sent ? "not connected in time"
                                                               : zerror(rc));
}

static void grant(task *t) {
  zk_place *p = t->p;
  int64_t ends = after(crl_zk_now(t->s), corral_op_hold_ms(t->op));
  pthread_mutex_lock(&t->s->mutex);
  int64_t session_ms = t->s->granted_ms;
  pthread_mutex_unlock(&t->s->mutex);
  if (!p->held || ends > p->ends) p->ends = ends;
  p->held = 1;
  int64_t left = p->ends - crl_zk_now(t->s);
  t->op->status = CORRAL_OK;
  t->op->lock_state.fence = p->fence;
  t->op->lock_state.left_ms = left < session_ms ? left : session_ms;
  if (left > session_ms) t->op->flags |= CORRAL_OP_MORE;
}

static void lost(task *t) {
  zk_reply list;
  size_t others = 0;
  int rc = crl_zk_list(t->s, t->dir, 0, t->deadline, &list);
  for (size_t i = 0; i < list.count; i++) others += !crl_zk_is_of(&list.children[i], t->op->token);
  free(list.children);
  t->op->status = CORRAL_ELOST;
  t->op->lock_state.left_ms = rc == ZOK && others == 0 ? 0 : -1;
}

/* ---- LOCK ---------------------------------------------------------------------------------- */

static int make_dir(task *t) {
  zk_session *s = t->s;
  zk_reply got;
  int rc = crl_zk_create(s, t->dir, "", 0, ZOO_CONTAINER, t->deadline, &got);
  if (rc == ZNONODE) {
    for (char *slash = strchr(t->dir + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
      *slash = '\0';
      rc = crl_zk_create(s, t->dir, "", 0, ZOO_PERSISTENT, t->deadline, &got);
      *slash = '/';
      if (rc != ZOK && rc != ZNODEEXISTS) return rc;
    }
    rc = crl_zk_create(s, t->dir, "", 0, ZOO_CONTAINER, t->deadline, &got);
  }
  return rc == ZNODEEXISTS ? ZOK : rc;
}

/* Makes the node. The server may remove an empty container at any time, so the container is made
 * again when it is missing. */
static int enqueue(task *t) {
  zk_place *p = t->p;
  char stem[CRL_ZK_NODE], path[CRL_ZK_PATH], data[CRL_ZK_TEXT];
  zk_reply got;
  zk_child made;
  int rc = ZNONODE;
  crl_zk_stem(p->token, p->shared, stem);
  crl_zk_path(t->dir, stem, path);
  p->since = 0;
  int len = crl_zk_write_data(p, corral_op_hold_ms(t->op), data);
  for (int i = 0; i < TRIES && rc == ZNONODE; i++) {
    if (i > 0 && (rc = make_dir(t)) != ZOK) break;
    p->doubt = 1;
    rc = crl_zk_create(t->s, path, data, len, ZOO_EPHEMERAL_SEQUENTIAL, t->deadline, &got);
    p->doubt = is_unsure(rc);
  }
  if (rc != ZOK) return rc;
  p->doubt = !crl_zk_read_node(got.text, &made);
  if (p->doubt) return ZDATAINCONSISTENCY;
  memcpy(p->node, made.name, sizeof p->node);
  p->fence = (uint64_t)got.stat.czxid;
  p->since = got.stat.mtime;
  return ZOK;
}

/* Writes the hold to the node. Only the ensemble's leader does that, and only while session and
 * node exist. */
static int confirm(task *t) {
  zk_place *p = t->p;
  char path[CRL_ZK_PATH], data[CRL_ZK_TEXT];
  zk_reply got;
  int64_t life = corral_op_hold_ms(t->op), rest = p->held ? p->ends - crl_zk_now(t->s) : 0;
  if (!p->held) p->since = 0;
  int len = crl_zk_write_data(p, rest > life ? rest : life, data);
  crl_zk_path(t->dir, p->node, path);
  int rc = crl_zk_set(t->s, path, data, len, t->deadline, &got);
  if (rc != ZOK) return rc;
  p->fence = (uint64_t)got.stat.czxid;
  if (p->since == 0) p->since = got.stat.mtime;
  return ZOK;
}

/* GRANTED if node number `at` of the queue holds the lock; else WAITS, and the node in its way is
 * watched; AGAIN if that one is gone. A hold that was downgraded keeps an exclusive name, and is
 * the lowest such node. */
static int judge(task *t, const zk_reply *list, size_t at) {
  char path[CRL_ZK_PATH];
  zk_reply got;
  size_t lowest = at, way = at;
  for (size_t i = at; i-- > 0;) {
    if (t->p->shared && list->children[i].name[0] != 'x') continue;
    if (way == at) way = i;
    lowest = i;
  }
  if (way == at) return GRANTED;
  const char *node = list->children[way].name;
  int watched = t->op->lock.wish_ms > 0, may_be_shared = t->p->shared && way == lowest;
  if (watched && is_watched(t, node)) return WAITS;
  if (!watched && !may_be_shared) return WAITS;
  if (watched) watch_before(t, node);
  crl_zk_path(t->dir, node, path);
  int rc = crl_zk_get(t->s, path, watched, t->deadline, &got);
  int free_way = rc == ZOK && may_be_shared && got.text[0] == 's';
  if (rc != ZOK || free_way) watch_before(t, "");
  return rc == ZNONODE ? AGAIN : rc != ZOK ? rc : free_way ? GRANTED : WAITS;
}

/* Looks up the token in the queue. */
static int look(task *t, size_t *at) {
  zk_place *p = t->p;
  zk_reply list;
  int rc = crl_zk_list(t->s, t->dir, p->doubt, t->deadline, &list);
  if (rc != ZOK) return rc;
  *at = find_node(&list, p->token);
  p->doubt = 0;
  if (*at == list.count) {
    p->node[0] = '\0';
    p->held = 0;
    rc = AGAIN;
  } else {
    memcpy(p->node, list.children[*at].name, sizeof p->node);
    rc = p->held ? GRANTED : *at >= CORRAL_LOCK_HOLDS ? WAITS : judge(t, &list, *at);
  }
  free(list.children);
  return rc;
}

/* Makes or confirms the token's place: GRANTED, WAITS, or the code of a failure. */
static int take_turn(task *t, size_t *at) {
  for (;;) {
    int rc = ZOK, made = t->p->node[0] == '\0' && !t->p->doubt;
    if (made && (rc = enqueue(t)) != ZOK) return rc;
    rc = look(t, at);
    if (rc == GRANTED && !made && (rc = confirm(t)) == ZOK) rc = GRANTED;
    if (rc != AGAIN && rc != ZNONODE) return rc;
    if (rc == ZNONODE) t->p->held = 0, t->p->node[0] = '\0';
    if (crl_zk_now(t->s) >= t->deadline) return ZOPERATIONTIMEOUT;
  }
}

static void lock(task *t) {
  const corral_host *host = t->s->store->host;
  corral_op *op = t->op;
  size_t at = 0;
  int rc = grab(t, 1);
  if (rc != ZOK) {
    fail(t, rc, 1);
  } else if (t->p->doomed) {
    op->status = host->fail(op->error, CORRAL_EREFUSED, "this token's hold, or wait, is over");
  } else if ((rc = take_turn(t, &at)) == GRANTED) {
    grant(t);
  } else if (rc != WAITS) {
    t->gone = t->p->node[0] == '\0' && !t->p->doubt;
    fail(t, rc, 1);
  } else if (at >= CORRAL_LOCK_HOLDS) {
    op->status =
        host->fail(op->error, CORRAL_EREFUSED,
                   "%d hold this lock, or wait for it: no room for more", CORRAL_LOCK_HOLDS);
    give_up(t);
  } else {
    op->status = CORRAL_EBUSY;
    op->lock_state.left_ms = -1;
    if (op->lock.wish_ms > 0) {
      op->flags |= CORRAL_OP_QUEUED;
      t->p->ends = after(crl_zk_now(t->s), after(GRACE_MS, op->lock.wish_ms));
    } else {
      give_up(t);
    }
  }
  let_go(t);
}

/* ---- LOCK_EXTEND, UNLOCK, LOCK_SHOW -------------------------------------------------------- */

static void extend(task *t) {
  corral_op *op = t->op;
  int rc = grab(t, 0);
  if (rc != ZOK) {
    fail(t, rc, 0);
  } else if (t->p == NULL || t->p->doomed || !t->p->held) {
    lost(t);
  } else if (op->lock_extend.fence > t->p->fence) {
    op->status = t->s->store->host->fail(
        op->error, CORRAL_EUNSUPPORTED,
        "a fencing token of zookeeper: is the server's, and can't be raised");
  } else {
    /* set even if no reply comes: a later extension must not make the hold exclusive again */
    if (op->flags & CORRAL_OP_SHARED) t->p->shared = 1;
    rc = confirm(t);
    t->gone = rc == ZNONODE;
    if (rc == ZOK)
      grant(t);
    else if (rc == ZNONODE)
      lost(t);
    else
      fail(t, rc, 1);
  }
  let_go(t);
}

/* Removes a node of this token that an earlier session of this process left. */
static int remove_stray(task *t) {
  zk_place stray = {.doubt = 1};
  memcpy(stray.token, t->op->token, CORRAL_TOKEN);
  memcpy(stray.dir, t->dir, sizeof stray.dir);
  return remove_node(t->s, &stray, t->deadline);
}

static void unlock(task *t) {
  int rc = grab(t, 0), lapsed = t->p != NULL && t->p->doomed == LAPSED;
  if (rc == ZOK) rc = t->p != NULL ? give_up(t) : remove_stray(t);
  if (rc == ZOK && !lapsed) {
    t->op->status = CORRAL_OK;
    t->op->lock_state.left_ms = 0;
  } else if (rc == ZOK || rc == ZNONODE) {
    lost(t);
  } else {
    fail(t, rc, 1);
  }
  let_go(t);
}

/* Reads the current holds of the queue into `holds`, which has room for all of the list. */
static int read_holds(task *t, const zk_reply *list, int64_t wall, corral_hold *holds,
                      size_t *count) {
  char path[CRL_ZK_PATH];
  zk_reply got;
  for (size_t i = 0; i < list->count && *count < CORRAL_LOCK_HOLDS; i++) {
    const zk_child *c = &list->children[i];
    if (*count > 0 && c->name[0] == 'x') break;
    crl_zk_path(t->dir, c->name, path);
    int rc = crl_zk_get(t->s, path, 0, t->deadline, &got);
    if (rc == ZNONODE) continue;
    if (rc != ZOK) return rc;
    crl_zk_read_hold(c, &got, wall, &holds[*count]);
    if (holds[(*count)++].mode == CORRAL_LOCK_EXCLUSIVE) break;
  }
  return ZOK;
}

static void show(task *t) {
  const corral_host *host = t->s->store->host;
  corral_op *op = t->op;
  zk_reply list;
  corral_hold *holds = NULL;
  size_t count = 0;
  uint64_t fence = 0;
  int rc = crl_zk_list(t->s, t->dir, 0, t->deadline, &list);
  op->lock_state.now = host->wall_ms();
  if (rc == ZOK && list.count > 0 && (holds = calloc(list.count, sizeof *holds)) == NULL)
    rc = ZSYSTEMERROR;
  if (rc == ZOK) rc = read_holds(t, &list, op->lock_state.now, holds, &count);
  for (size_t i = 0; i < count; i++) fence = holds[i].fence > fence ? holds[i].fence : fence;
  uint8_t *record =
      rc == ZOK && count > 0 ? malloc(CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD) : NULL;
  if (rc != ZOK) {
    fail(t, rc, 1);
  } else if (count == 0) {
    op->status = CORRAL_EMISS;
  } else if (record == NULL) {
    op->status = host->fail(op->error, CORRAL_ENOMEM, "no memory for %zu holds", count);
  } else {
    host->lock_write(fence, holds, count, record);
    op->found.record = op->found.owner = record;
    op->found.len = CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD;
    op->found.drop = free;
    op->status = CORRAL_OK;
  }
  free(holds);
  free(list.children);
}

void crl_zk_perform(zk_session *s, corral_op *op, int64_t deadline) {
  task t = {.s = s, .op = op, .deadline = deadline};
  if (op->verb < CORRAL_VERB_LOCK || op->verb > CORRAL_VERB_LOCK_SHOW) {
    op->status = s->store->host->fail(op->error, CORRAL_EUNSUPPORTED,
                                      "zookeeper: has locks only, no values");
    return;
  }
  crl_zk_dir(s->store, op->key, op->key_len, t.dir);
  int rc = crl_zk_session_wait(s, deadline);
  if (rc != ZOK) {
    if (op->verb == CORRAL_VERB_UNLOCK && grab(&t, 0) == ZOK && t.p != NULL) {
      t.p->ends = 0;
      if (t.p->doomed == SOUND) t.p->doomed = GIVEN_UP;
      let_go(&t);
    }
    fail(&t, rc, 0);
    return;
  }
  switch (op->verb) {
    case CORRAL_VERB_LOCK: lock(&t); break;
    case CORRAL_VERB_LOCK_EXTEND: extend(&t); break;
    case CORRAL_VERB_UNLOCK: unlock(&t); break;
    default: show(&t); break;
  }
}
