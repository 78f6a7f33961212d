/* redlock.c: locks over several independent Redis servers, by a majority of them: Redlock.
 *
 *   redlock://[user:password@]host[:port],host[:port],...[/db]
 *
 * 1 to 15 servers, each a Redis of its own and no replica of another; an odd number, since one more
 * to make it even outlives no more failures. User, password and db are the same for each.
 * Parameters: db, client_name, scripts, wait_replicas, wait_ms, as with redis:; server_ms (50ms; 1
 * to 10000): time limit of a server's answer, connecting included; grant: majority (more than half
 * of them; the default), or all: `redlock://a,b?grant=all` is one lock over two primaries, and a
 * bridge during the move from one set of servers to another.
 *
 * The algorithm is S. Sanfilippo's
 * (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/): all servers are asked at
 * once, each for a hold with the same token; a token that enough servers granted has the lock, for
 *
 *   validity = hold_ms - time that asking took - drift,  drift = hold_ms / 100 + 2 ms
 *
 * The drift is the most by which the servers' clocks may run faster or slower than this host's.
 * Without enough grants, or without any validity left, the token is unlocked on all servers where
 * it may have a hold, also on those that didn't answer: their UNLOCK waits for their return, until
 * the hold is over anyway. An UNLOCK ends the hold of its own token alone.
 *
 * Promises: while the servers' clocks run evenly and none loses what it has granted, no two holders
 * have the lock within their validities; locks can be taken while enough of the servers answer; a
 * dead holder keeps a lock no longer than its lease. Limits:
 *   - A server that restarts empty, within the life of a hold, has forgotten its grant, and may
 *     complete the majority of another. With persistence, appendfsync must be always; without, a
 *     server must stay away after a crash for as long as the longest lease (delayed restart).
 *   - A server whose clock is set forward ends holds early. Redis expires by the wall clock, which
 *     must be slewed, never stepped.
 *   - A holder that was stopped (by a garbage collector, swap, SIGSTOP, a partition) outlives its
 *     validity without knowing it.
 *   - A replica of a member that takes over may lack the last grants, since replication is
 *     asynchronous. Members have no failover, or count as restarted.
 *   - Waiters have no order, since they aren't woken: they ask again, after random pauses.
 * Against all of these only the fencing token helps, where the resource refuses tokens smaller than
 * the largest it has seen.
 *
 * The fencing token. Each server's own tokens grow, but their clocks differ. So the holder gets the
 * largest of those that were granted, F, and only when enough servers know F: that takes a second
 * round (LOCK_EXTEND with F), unless enough servers had given F itself. A later hold is granted by
 * at least one of these servers, whose token is larger than F. This fails if that server restarted
 * empty, or has forgotten the record (CORRAL_LOCK_MEMORY_MS after its last hold) and its
 * clock is behind F. So the servers' clocks must agree to within CORRAL_LOCK_MEMORY_MS, which is a
 * minute.
 *
 * No shared holds. A store must not be used across a fork. */
#include <ctype.h>
#include <stdlib.h>

#include "redlock.h"

#define PARAMS "server_ms grant db client_name scripts wait_replicas wait_ms"

enum { ALL_PARAMS = 7, WAVE = 32, PORT = 6379, DRIFT_SHARE = 100, DRIFT_MS = 2 };

/* ---- the URI ------------------------------------------------------------------------------- */

static int bad_uri(const corral_host *host, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

/* Parses host, host:port or [address]:port; cuts `text`. 0: it is none of them. */
static int read_host(char *text, const char **ret_host, int *ret_port) {
  char *stop = strchr(text, ':');
  if (*text == '[') {
    char *close = strchr(++text, ']');
    if (close == NULL || (close[1] != '\0' && close[1] != ':')) return 0;
    stop = close[1] == ':' ? close + 1 : NULL;
    *close = '\0';
  }
  *ret_port = PORT;
  if (stop != NULL) {
    char *end;
    long port = strtol(stop + 1, &end, 10);
    if (!isdigit((unsigned char)stop[1]) || *end != '\0' || port < 1 || port > 65535) return 0;
    *ret_port = (int)port;
    *stop = '\0';
  }
  *ret_host = text;
  return *text != '\0';
}

/* Opens an ordinary store for one server: the same URI with one host. */
static int open_member(crl_redlock *lock, const corral_uri *uri, const char *server, int port,
                       corral_error *error) {
  crl_redlock_member *m = &lock->members[lock->count];
  corral_uri_param params[ALL_PARAMS];
  corral_uri own = *uri;
  corral_store_info info = {.size = sizeof info};
  void *store;
  own.scheme = "redis";
  own.hosts = own.host = server;
  own.port = port;
  own.params = params;
  own.param_count = 0;
  /* all fit: uri_check knows them, and each is given once */
  for (size_t i = 0; i < uri->param_count; i++)
    if (strcmp(uri->params[i].name, "server_ms") != 0 && strcmp(uri->params[i].name, "grant") != 0)
      params[own.param_count++] = uri->params[i];
  int status = crl_redis_open(lock->host, &own, &store, &info, error);
  if (status != CORRAL_OK) return status;
  m->lock = lock;
  m->index = lock->count++;
  m->store = store;
  m->store->is_quiet = 1;
  m->end = &m->first;
  crl_redlock_cond_init(&m->wake);
  for (size_t i = 0; i < m->index; i++)
    if (strcmp(lock->members[i].store->name, m->store->name) == 0)
      return bad_uri(lock->host, uri, error, "a server is named twice: it would be counted twice");
  return CORRAL_OK;
}

static int read_hosts(crl_redlock *lock, const corral_uri *uri, corral_error *error) {
  static const char accepted[] =
      "accepted are 1 to 15 servers: redlock://host:port,host:port,host:port";
  if (uri->hosts == NULL || uri->hosts[0] == '\0') return bad_uri(lock->host, uri, error, accepted);
  char *hosts = strdup(uri->hosts);
  int status = CORRAL_OK, more = hosts != NULL;
  if (hosts == NULL) return lock->host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  for (char *at = hosts; more && status == CORRAL_OK;) {
    const char *server;
    int port;
    char *end = at + strcspn(at, ",");
    more = *end != '\0';
    *end = '\0';
    if (lock->count == CRL_REDLOCK_MEMBERS || !read_host(at, &server, &port))
      status = bad_uri(lock->host, uri, error, accepted);
    else
      status = open_member(lock, uri, server, port, error);
    at = end + more;
  }
  free(hosts);
  return status;
}

static int read_uri(crl_redlock *lock, const corral_uri *uri, corral_error *error) {
  const corral_host *host = lock->host;
  int status = host->uri_check(uri, PARAMS, error);
  if (status == CORRAL_OK)
    status = host->uri_number(uri, "server_ms", "ms", 1, 10000, &lock->server_ms, error);
  if (status == CORRAL_OK) status = read_hosts(lock, uri, error);
  if (status != CORRAL_OK) return status;
  const char *grant = host->uri_get(uri, "grant");
  lock->needed = lock->count / 2 + 1;
  if (grant != NULL && strcmp(grant, "all") == 0)
    lock->needed = lock->count;
  else if (grant != NULL && strcmp(grant, "majority") != 0)
    return bad_uri(host, uri, error, "grant accepts majority (the default) and all");
  snprintf(lock->name, sizeof lock->name, "redlock %.140s", uri->hosts);
  return CORRAL_OK;
}

static void redlock_close(void *store) {
  crl_redlock *lock = store;
  crl_redlock_stop(lock);
  for (size_t i = 0; i < lock->count; i++) {
    pthread_cond_destroy(&lock->members[i].wake);
    crl_redis_close(lock->members[i].store);
  }
  pthread_mutex_destroy(&lock->mutex);
  free(lock->members);
  free(lock);
}

static int redlock_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                        corral_store_info *info, corral_error *error) {
  crl_redlock *lock = calloc(1, sizeof *lock);
  crl_redlock_member *members = calloc(CRL_REDLOCK_MEMBERS, sizeof *members);
  if (lock == NULL || members == NULL) {
    free(lock);
    free(members);
    return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  }
  lock->host = host;
  lock->server_ms = 50;
  lock->members = members;
  pthread_mutex_init(&lock->mutex, NULL);
  int status = read_uri(lock, uri, error);
  if (status != CORRAL_OK) {
    redlock_close(lock);
    return status;
  }
  info->max_key = 65536;
  info->handles = 4;
  info->name = lock->name;
  info->locks_only = 1;
  info->adopts = 1;
  *ret_store = lock;
  return CORRAL_OK;
}

/* Starts the threads if necessary. No I/O: a handle is the store itself. */
static int redlock_connect(void *store, int64_t deadline, void **ret_handle, corral_error *error) {
  (void)deadline;
  int status = crl_redlock_start(store, error);
  if (status == CORRAL_OK) *ret_handle = store;
  return status;
}

static void redlock_disconnect(void *handle) { (void)handle; }

/* ---- the servers' answers ------------------------------------------------------------------ */

/* A count of the answers, and copies of the parts that are needed, since they may change when the
 * mutex is released. */
typedef struct tally {
  size_t granted, refused, lost, failed, pending;
  int unsent; /* 1: nothing was sent to any server that failed */
  /* another status that enough servers have given to prevent a grant; else 0 */
  int reason;
  /* largest left_ms of the servers that refused or have lost the hold; -1: unknown */
  int64_t left_ms;
  uint64_t fence; /* LOCK: the largest fencing token that was granted, */
  size_t known;   /* and the number of servers that granted it */
  /* the largest token that enough servers have reached: the holder's, unless some haven't learned
   * it yet. Servers that granted after it was chosen may have a larger one, but they are too few */
  uint64_t common;
  int64_t lasting_ms;        /* time for which enough servers have granted the hold */
  uint32_t may_hold;         /* servers where the token may have a hold, a set of bits */
  size_t most;               /* LOCK_SHOW: number of servers that agree on `holder` */
  crl_redlock_answer holder; /* the answer with the least time left */
  corral_error why;
} tally;

/* 1: so many servers can't be outvoted by the others. */
static int prevents(const crl_redlock *lock, size_t number) {
  return number > lock->count - lock->needed;
}

static void count_status(const crl_redlock *lock, const crl_redlock_task *task, size_t at,
                         tally *t) {
  const crl_redlock_answer *a = &task->answers[at];
  size_t same = 0;
  t->may_hold |=
      (a->status != CORRAL_EBUSY && a->status != CORRAL_EFOREIGN && a->status != CORRAL_EUNAVAILABLE
           ? UINT32_C(1)
           : 0)
      << at;
  switch (a->status) {
    case CORRAL_OK:
    case CORRAL_EMISS: t->granted++; return;
    case CRL_REDLOCK_PENDING: t->pending++; return;
    case CORRAL_ELOST: t->lost++; break;
    case CORRAL_EBUSY:
    case CORRAL_EFOREIGN: t->refused++; break;
    default: t->failed++; break;
  }
  if ((a->status == CORRAL_ELOST || a->status == CORRAL_EBUSY || a->status == CORRAL_EFOREIGN) &&
      a->left_ms > t->left_ms)
    t->left_ms = a->left_ms;
  t->unsent &= a->status == CORRAL_EUNAVAILABLE;
  if (a->status == CORRAL_ELOST || a->status == CORRAL_EBUSY || a->status == CORRAL_EUNAVAILABLE ||
      a->status == CORRAL_EINDOUBT)
    return;
  for (size_t i = 0; i < lock->count; i++) same += task->answers[i].status == a->status;
  if (prevents(lock, same)) t->reason = a->status;
}

/* 1: two answers are about the same hold; for verbs other than LOCK_SHOW all are. */
static int is_same(const crl_redlock_answer *a, const crl_redlock_answer *b) {
  if (a->status != CORRAL_OK || b->status != CORRAL_OK || a->held != b->held) return 0;
  return !a->held || memcmp(a->hold.token, b->hold.token, CORRAL_TOKEN) == 0;
}

static void count_grant(const crl_redlock *lock, const crl_redlock_task *task,
                        const crl_redlock_answer *own, tally *t) {
  uint64_t fence = own->fence;
  size_t reached = 0, same = 0, last = 0;
  for (size_t i = 0; i < lock->count; i++) {
    const crl_redlock_answer *a = &task->answers[i];
    reached += (size_t)(is_same(a, own) && a->fence >= fence);
    same += (size_t)(is_same(a, own) && a->fence == fence);
    last += (size_t)(is_same(a, own) && a->left_ms >= own->left_ms);
  }
  if (fence > t->fence || t->known == 0) {
    t->fence = fence;
    t->known = same;
  }
  if (reached >= lock->needed && fence > t->common) t->common = fence;
  if (last >= lock->needed && own->left_ms > t->lasting_ms) t->lasting_ms = own->left_ms;
}

static int64_t left(const crl_redlock_answer *a) { return a->hold.until - a->now; }

static void count_holder(const crl_redlock *lock, const crl_redlock_task *task, size_t at,
                         tally *t) {
  const crl_redlock_answer *a = &task->answers[at];
  size_t same = 0;
  if (!a->held) return;
  for (size_t i = 0; i < lock->count; i++) same += (size_t)is_same(a, &task->answers[i]);
  if (same < t->most || (same == t->most && left(a) >= left(&t->holder))) return;
  t->most = same;
  t->holder = *a;
}

/* Counts the answers; the mutex is held. */
static tally count(const crl_redlock *lock, const crl_redlock_task *task) {
  tally t = {.left_ms = -1, .unsent = 1, .why = task->why};
  for (size_t i = 0; i < lock->count; i++) {
    count_status(lock, task, i, &t);
    if (task->answers[i].status == CORRAL_OK) count_grant(lock, task, &task->answers[i], &t);
    count_holder(lock, task, i, &t);
  }
  return t;
}

/* 1: more answers would change nothing. */
static int is_settled(const crl_redlock *lock, const crl_redlock_task *task) {
  tally t = count(lock, task);
  if (t.pending == 0) return 1;
  if (task->verb == CORRAL_VERB_LOCK_SHOW)
    return t.most >= lock->needed ||
           (t.granted >= lock->needed && t.most + t.pending < lock->needed);
  if (t.granted >= lock->needed || prevents(lock, t.refused) || prevents(lock, t.lost)) return 1;
  return t.granted + t.pending < lock->needed && t.granted + t.refused >= lock->needed;
}

static tally await(crl_redlock *lock, crl_redlock_task *task) {
  pthread_mutex_lock(&lock->mutex);
  while (!is_settled(lock, task) && lock->host->now_ms() < task->deadline)
    crl_redlock_cond_wait(&task->told, &lock->mutex, task->deadline);
  tally t = count(lock, task);
  pthread_mutex_unlock(&lock->mutex);
  return t;
}

/* ---- the verbs ----------------------------------------------------------------------------- */

/* An operation under way. */
typedef struct run {
  corral_op *op;
  crl_redlock_task *task; /* NULL: the operation is done */
  int64_t began;
  /* LOCK's second round: token that enough servers must learn; 0: the first round */
  uint64_t fence;
} run;

static uint32_t everyone(const crl_redlock *lock) { return (UINT32_C(1) << lock->count) - 1; }

static void finish(crl_redlock *lock, run *r) {
  pthread_mutex_lock(&lock->mutex);
  crl_redlock_drop(r->task);
  pthread_mutex_unlock(&lock->mutex);
  r->task = NULL;
}

/* Sends a verb to all servers, by the caller's `deadline` and their own limit. */
static void begin(crl_redlock *lock, run *r, corral_verb verb, int64_t deadline) {
  int64_t now = lock->host->now_ms(), last = now + lock->server_ms;
  r->task = crl_redlock_task_new(r->op, verb, last < deadline ? last : deadline);
  if (r->task == NULL) {
    r->op->status = lock->host->fail(r->op->error, CORRAL_ENOMEM, "no memory to ask the servers");
    return;
  }
  if (verb == CORRAL_VERB_LOCK_EXTEND)
    r->task->fence = r->fence != 0 ? r->fence : r->op->lock_extend.fence;
  pthread_mutex_lock(&lock->mutex);
  if (r->task->hold_ms > lock->longest_ms) lock->longest_ms = r->task->hold_ms;
  r->task->until = now + lock->longest_ms;
  pthread_mutex_unlock(&lock->mutex);
  crl_redlock_post(lock, r->task, everyone(lock));
}

/* Unlocks the token on `members`, behind the LOCK and without waiting. Without memory the holds end
 * by time. */
static void release(crl_redlock *lock, run *r, uint32_t members) {
  int64_t now = lock->host->now_ms();
  crl_redlock_task *task = crl_redlock_task_new(r->op, CORRAL_VERB_UNLOCK, now + lock->server_ms);
  pthread_mutex_lock(&lock->mutex);
  if (task != NULL) task->until = now + lock->longest_ms;
  pthread_mutex_unlock(&lock->mutex);
  if (task == NULL) return;
  crl_redlock_post(lock, task, members);
  pthread_mutex_lock(&lock->mutex);
  crl_redlock_drop(task);
  pthread_mutex_unlock(&lock->mutex);
}

/* Sets the status, with a text that counts each kind of answer. */
static void fail(crl_redlock *lock, run *r, const tally *t, int status) {
  const char *dash = t->why.text[0] != '\0' ? " - " : "";
  size_t silent = t->failed + t->pending;
  if (r->task->verb == CORRAL_VERB_LOCK)
    lock->host->fail(
        r->op->error, status,
        "redlock: %zu of %zu servers granted, %zu refused, %zu didn't answer; needed: %zu%s%.120s",
        t->granted, lock->count, t->refused, silent, lock->needed, dash, t->why.text);
  else if (r->task->verb == CORRAL_VERB_LOCK_SHOW)
    lock->host->fail(r->op->error, status,
                     "redlock: %zu of %zu servers told, %zu didn't; needed: %zu%s%.120s",
                     t->granted, lock->count, silent + t->refused, lock->needed, dash, t->why.text);
  else
    lock->host->fail(r->op->error, status,
                     "redlock: %zu of %zu servers still had the hold, %zu had not, %zu didn't "
                     "answer; needed: %zu%s%.120s",
                     t->granted, lock->count, t->lost, silent + t->refused, lock->needed, dash,
                     t->why.text);
  r->op->status = status;
  r->op->lock_state.left_ms = t->left_ms;
}

/* Time that is surely left of a hold of `hold_ms` that was asked for at r->began. */
static int64_t validity(const crl_redlock *lock, const run *r, int64_t hold_ms) {
  return hold_ms - (lock->host->now_ms() - r->began) - (hold_ms / DRIFT_SHARE + DRIFT_MS);
}

static void grant(crl_redlock *lock, run *r, const tally *t, uint64_t fence) {
  r->op->lock_state.left_ms = validity(lock, r, t->lasting_ms);
  if (r->op->lock_state.left_ms > 0) {
    r->op->status = CORRAL_OK;
    r->op->lock_state.fence = fence;
    return;
  }
  release(lock, r, everyone(lock));
  r->op->lock_state.left_ms = 0;
  r->op->status = lock->host->fail(
      r->op->error, CORRAL_EUNAVAILABLE,
      "redlock: %zu of %zu servers granted too late: nothing is left of a hold of %lld ms",
      t->granted, lock->count, (long long)r->op->lock.hold_ms);
}

static void judge_lock(crl_redlock *lock, run *r, int64_t deadline) {
  tally t = await(lock, r->task);
  if (t.granted < lock->needed) {
    int is_busy = prevents(lock, t.refused) || t.granted + t.refused >= lock->needed;
    release(lock, r, t.may_hold);
    fail(lock, r, &t, t.reason != 0 ? t.reason : is_busy ? CORRAL_EBUSY : CORRAL_EUNAVAILABLE);
  } else if (t.known >= lock->needed || validity(lock, r, t.lasting_ms) <= 0) {
    grant(lock, r, &t, t.fence);
  } else {
    finish(lock, r);
    r->fence = t.fence;
    begin(lock, r, CORRAL_VERB_LOCK_EXTEND, deadline);
    if (r->task == NULL) release(lock, r, everyone(lock));
  }
}

/* Judges the second round: enough servers know the token, or the lock isn't taken. */
static void judge_fence(crl_redlock *lock, run *r) {
  tally t = await(lock, r->task);
  if (t.granted >= lock->needed || validity(lock, r, r->op->lock.hold_ms) <= 0) {
    grant(lock, r, &t, r->fence);
    return;
  }
  release(lock, r, everyone(lock));
  fail(lock, r, &t, t.reason != 0 ? t.reason : CORRAL_EUNAVAILABLE);
}

/* Judges a LOCK_EXTEND. Without a wanted fencing token, the one that enough servers have reached is
 * the result. */
static void judge_extend(crl_redlock *lock, run *r) {
  tally t = await(lock, r->task);
  int64_t left_ms = validity(lock, r, t.lasting_ms);
  if (t.granted >= lock->needed && left_ms > 0) {
    r->op->status = CORRAL_OK;
    r->op->lock_state.left_ms = left_ms;
    uint64_t wanted = r->op->lock_extend.fence;
    r->op->lock_state.fence = wanted != 0 ? wanted : t.common;
  } else if (prevents(lock, t.lost)) {
    release(lock, r, t.may_hold); /* holds that are left would only be in other clients' way */
    fail(lock, r, &t, CORRAL_ELOST);
  } else if (t.reason != 0) {
    fail(lock, r, &t, t.reason);
  } else {
    fail(lock, r, &t,
         t.pending == 0 && t.unsent && t.granted == 0 ? CORRAL_EUNAVAILABLE : CORRAL_EINDOUBT);
  }
}

static void judge_unlock(crl_redlock *lock, run *r) {
  tally t = await(lock, r->task);
  if (t.granted < lock->needed) {
    fail(lock, r, &t,
         prevents(lock, t.lost) ? CORRAL_ELOST
         : t.reason != 0        ? t.reason
                                : CORRAL_EINDOUBT);
    return;
  }
  r->op->status = CORRAL_OK;
  r->op->lock_state.left_ms = 0;
}

/* Makes a record of the hold that enough servers agree on, with the times of the server that has
 * least of it left. */
static void judge_show(crl_redlock *lock, run *r) {
  tally t = await(lock, r->task);
  r->op->lock_state.left_ms = 0;
  if (t.most < lock->needed) {
    if (t.reason != 0 || t.granted < lock->needed)
      fail(lock, r, &t, t.reason != 0 ? t.reason : CORRAL_EUNAVAILABLE);
    else
      r->op->status = CORRAL_EMISS;
    return;
  }
  uint8_t *record = malloc(CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD);
  if (record == NULL) {
    r->op->status = lock->host->fail(r->op->error, CORRAL_ENOMEM, "no memory for a lock's record");
    return;
  }
  t.holder.hold.fence = t.common;
  lock->host->lock_write(t.common, &t.holder.hold, 1, record);
  r->op->status = CORRAL_OK;
  r->op->lock_state.now = t.holder.now;
  r->op->found.record = r->op->found.owner = record;
  r->op->found.len = CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD;
  r->op->found.drop = free;
}

/* ---- a batch ------------------------------------------------------------------------------- */

static void first(crl_redlock *lock, run *r, corral_op *op, int64_t deadline) {
  int is_lock = op->verb == CORRAL_VERB_LOCK || op->verb == CORRAL_VERB_LOCK_EXTEND;
  *r = (run){.op = op, .began = lock->host->now_ms()};
  if (!is_lock && op->verb != CORRAL_VERB_UNLOCK && op->verb != CORRAL_VERB_LOCK_SHOW)
    op->status =
        lock->host->fail(op->error, CORRAL_EUNSUPPORTED, "redlock has locks only, no values");
  else if (is_lock && (op->flags & CORRAL_OP_SHARED) != 0)
    op->status = lock->host->fail(op->error, CORRAL_EUNSUPPORTED,
                                  "redlock has exclusive locks only, no shared ones");
  else if (r->began >= deadline)
    op->status = lock->host->fail(op->error, CORRAL_EUNAVAILABLE,
                                  "redlock: the time allowed was over before anything was sent");
  else
    begin(lock, r, (corral_verb)op->verb, deadline);
}

static void judge(crl_redlock *lock, run *r, int64_t deadline) {
  switch (r->op->verb) {
    case CORRAL_VERB_LOCK: judge_lock(lock, r, deadline); break;
    case CORRAL_VERB_LOCK_EXTEND: judge_extend(lock, r); break;
    case CORRAL_VERB_UNLOCK: judge_unlock(lock, r); break;
    default: judge_show(lock, r); break;
  }
}

static int same_key(const corral_op *a, const corral_op *b) {
  return a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0;
}

/* Number of the operations from `first` on that can be under way at once: each has a lock of its
 * own. */
static size_t wave(const corral_batch *batch, size_t first) {
  size_t size = 1;
  for (; first + size < batch->count && size < WAVE; size++)
    for (size_t i = 0; i < size; i++)
      if (same_key(corral_batch_op(batch, first + i), corral_batch_op(batch, first + size)))
        return size;
  return size;
}

static int redlock_perform(void *handle, const corral_batch *batch, int64_t deadline,
                           corral_error *error) {
  crl_redlock *lock = handle;
  run runs[WAVE];
  (void)error;
  for (size_t done = 0, size; done < batch->count; done += size) {
    size = wave(batch, done);
    for (size_t i = 0; i < size; i++)
      first(lock, &runs[i], corral_batch_op(batch, done + i), deadline);
    for (size_t i = 0; i < size; i++)
      if (runs[i].task != NULL) judge(lock, &runs[i], deadline);
    for (size_t i = 0; i < size; i++) {
      if (runs[i].task != NULL && runs[i].fence != 0) judge_fence(lock, &runs[i]);
      if (runs[i].task != NULL) finish(lock, &runs[i]);
    }
  }
  return CORRAL_OK;
}

const corral_store crl_plugin_redlock = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .op_size = sizeof(corral_op),
    .name = "redlock",
    .schemes = "redlock",
    .summary = "locks over several Redis servers, by a majority of them",
    .open = redlock_open,
    .close = redlock_close,
    .connect = redlock_connect,
    .disconnect = redlock_disconnect,
    .perform = redlock_perform,
    .inspect = crl_redlock_inspect,
    .list = crl_redlock_list,
};
