/* looks.c: the first looks of an event loop's calls, on the loop's own thread. */
#include "api/looks.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"
#include "os/env.h"

enum {
  QUEUED = 4096,       /* looks that wait to be sent */
  BESIDE = 64,         /* so many of them may be for keys of which another look is under way */
  KEY_BYTES = 1024,    /* longer keys are looked at elsewhere */
  BATCH_BYTES = 16384, /* of the keys of a batch: the kernel takes as much at once */
  FIRST = 2,           /* the look from which on a connection is wanted */
  AGAIN_MS = 1000      /* from the end of a connection to the next one */
};

typedef enum link_state { UNLINKED, LINKING, LINKED, FAILED, NEVER } link_state;

typedef struct look_list {
  crl_async_look *head, **tail;
  size_t count;
} look_list;

struct crl_looks {
  corral_loop *loop;
  void (*told)(void *call, crl_async_look *look);
  crl_lookout lookout;
  look_list queued, sent, lost; /* lost: the connection broke under them */
  unsigned seen;                /* looks, up to FIRST */
  int64_t retry_at;
  crl_timer timer;
  _Atomic int timed;     /* the timer is set */
  _Atomic int64_t limit; /* of the batch under way; 0: there is none */
  crl_job job;           /* connects */
  crl_lookout fresh;     /* by that job; the loop's thread takes it once it is LINKED */
  _Atomic int state;
};

static void empty(look_list *list) { *list = (look_list){.tail = &list->head}; }

static void put(look_list *list, crl_async_look *look) {
  look->next = NULL;
  *list->tail = look;
  list->tail = &look->next;
  list->count++;
}

static crl_async_look *take(look_list *list) {
  crl_async_look *look = list->head;
  if (look == NULL) return NULL;
  list->head = look->next;
  if (list->head == NULL) list->tail = &list->head;
  list->count--;
  return look;
}

static void move_all(look_list *from, look_list *to) {
  for (crl_async_look *look; (look = take(from)) != NULL;) put(to, look);
}

#ifdef CORRAL_CHECKS
static void check_list(const look_list *list) {
  size_t count = 0;
  crl_async_look *const *link = &list->head;
  for (; *link != NULL && count < CRL_CHECK_MOST; link = &(*link)->next) count++;
  CRL_MUST(*link != NULL || list->tail == link, "looks: a list knows its end");
  CRL_MUST(*link != NULL || list->count == count, "looks: the looks of a list are counted");
}

static void check(const crl_looks *looks) {
  check_list(&looks->queued);
  check_list(&looks->sent);
  check_list(&looks->lost);
  CRL_MUST(looks->sent.head == NULL || looks->lookout.handle != NULL,
           "looks: what was sent has a connection");
}
#endif

/* ---- connecting ---------------------------------------------------------------------------- */

static void connect_now(crl_job *job) {
  crl_looks *looks = (crl_looks *)(void *)((char *)job - offsetof(crl_looks, job));
  corral_loop *loop = looks->loop;
  if (crl_inbox_may_work(loop)) {
    int status = crl_lookout_open(&looks->fresh, loop->context->pool);
    atomic_store(&looks->state, status == CORRAL_OK             ? LINKED
                                : status == CORRAL_EUNSUPPORTED ? NEVER
                                                                : FAILED);
    crl_inbox_has_worked(loop);
  }
  crl_inbox_unref(loop, 1);
}

static void drop_connect(crl_job *job) {
  crl_looks *looks = (crl_looks *)(void *)((char *)job - offsetof(crl_looks, job));
  crl_inbox_unref(looks->loop, 1);
}

static void send_job(crl_looks *looks) {
  corral_loop *loop = looks->loop;
  looks->job = (crl_job){.run = connect_now, .drop = drop_connect};
  atomic_store(&looks->state, LINKING);
  crl_inbox_lock(loop);
  loop->refs++;
  crl_inbox_unlock(loop);
  if (crl_workers_submit(loop->context->threads.workers, &looks->job) == 0) return;
  atomic_store(&looks->state, FAILED);
  crl_inbox_unref(loop, 1);
}

/* Takes the connection that the job has made. 1: it can be used. */
static int take_link(crl_looks *looks) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
  looks->lookout = looks->fresh;
  looks->fresh = (crl_lookout){.handle = NULL};
  atomic_store(&looks->state, UNLINKED);
  if (epoll_ctl(looks->loop->fd, EPOLL_CTL_ADD, looks->lookout.fd, &event) == 0) return 1;
  crl_lookout_close(&looks->lookout);
  atomic_store(&looks->state, NEVER);
  return 0;
}

/* True when there is a connection; else one is wanted. */
static int is_linked(crl_looks *looks) {
  if (looks->lookout.handle != NULL) return 1;
  if (looks->seen < FIRST) looks->seen++;
  int state = atomic_load(&looks->state);
  if (state == LINKED) return take_link(looks);
  if (state == FAILED) {
    looks->retry_at = crl_env_now_ms() + AGAIN_MS;
    atomic_store(&looks->state, UNLINKED);
  }
  if (state == UNLINKED && looks->seen >= FIRST && crl_env_now_ms() >= looks->retry_at)
    send_job(looks);
  return 0;
}

/* Gives up the connection: its looks, and those that wait for it, are told nothing. */
static void unlink_all(crl_looks *looks) {
  atomic_store(&looks->limit, 0);
  /* a fork may have a copy of the descriptor, which would keep it in the set */
  epoll_ctl(looks->loop->fd, EPOLL_CTL_DEL, looks->lookout.fd, NULL);
  crl_lookout_close(&looks->lookout);
  move_all(&looks->sent, &looks->lost);
  move_all(&looks->queued, &looks->lost);
  looks->retry_at = crl_env_now_ms() + AGAIN_MS;
  if (looks->lost.head != NULL) crl_inbox_ring(looks->loop);
}

/* ---- the time limit ------------------------------------------------------------------------ */

/* The timer is set once for many batches: where one ends in time, it goes on to the next limit. */
static int64_t on_timer(crl_timer *timer) {
  crl_looks *looks = (crl_looks *)(void *)((char *)timer - offsetof(crl_looks, timer));
  int64_t limit = atomic_load(&looks->limit), now = crl_env_now_ms();
  if (limit == 0) {
    atomic_store(&looks->timed, 0);
    limit = atomic_load(&looks->limit);
    if (limit == 0 || atomic_exchange(&looks->timed, 1)) return INT64_MAX;
  }
  if (limit > now) return limit;
  crl_inbox_ring(looks->loop);
  return now + looks->loop->context->op_ms;
}

static int set_limit(crl_looks *looks, int64_t limit) {
  atomic_store(&looks->limit, limit);
  if (atomic_exchange(&looks->timed, 1)) return 1;
  if (crl_timers_set(looks->loop->context->threads.timers, &looks->timer, limit) == CORRAL_OK)
    return 1;
  atomic_store(&looks->timed, 0);
  return 0;
}

/* ---- sending, and hearing ------------------------------------------------------------------ */

/* Sends the next batch, unless one is under way. */
static void send_next(crl_looks *looks) {
  corral_op *ops[CRL_LOOKOUT_OPS];
  size_t count = 0, bytes = 0;
  if (looks->sent.head != NULL || looks->queued.head == NULL) return;
  while (count < CRL_LOOKOUT_OPS && bytes < BATCH_BYTES && looks->queued.head != NULL) {
    crl_async_look *look = take(&looks->queued);
    put(&looks->sent, look);
    bytes += look->hit.op.key_len;
    ops[count++] = &look->hit.op;
    crl_hit_sent(&look->hit);
  }
  int64_t now = crl_env_now_ms();
  if (!set_limit(looks, now + looks->loop->context->op_ms) ||
      crl_lookout_begin(&looks->lookout, ops, count, now) != CORRAL_OK)
    unlink_all(looks);
}

static int hand_out(const crl_looks *looks, look_list *list) {
  int count = 0;
  for (crl_async_look *look; (look = take(list)) != NULL; count++) looks->told(look->call, look);
  return count;
}

static int hear(crl_looks *looks) {
  look_list told;
  int came = crl_lookout_finish(&looks->lookout);
  if (came == 0 && crl_env_now_ms() >= atomic_load(&looks->limit)) came = -1;
  if (came < 0) unlink_all(looks);
  if (came <= 0) return 0;
  atomic_store(&looks->limit, 0);
  empty(&told);
  move_all(&looks->sent, &told);
  return hand_out(looks, &told);
}

/* ---- for the loop -------------------------------------------------------------------------- */

int crl_looks_open(corral_loop *loop, void (*told)(void *call, crl_async_look *look)) {
  struct epoll_event event = {.events = EPOLLIN};
  crl_looks *looks = crl_alloc(sizeof *looks);
  int fd = looks == NULL ? -1 : crl_env_own_fd(epoll_create1(EPOLL_CLOEXEC));
  if (fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, loop->bell, &event) != 0) {
    close(fd);
    fd = -1;
  }
  if (fd < 0) {
    free(looks);
    return -1;
  }
  looks->loop = loop;
  looks->told = told;
  looks->timer.ring = on_timer;
  empty(&looks->queued);
  empty(&looks->sent);
  empty(&looks->lost);
  loop->looks = looks;
  return fd;
}

void crl_looks_close(crl_looks *looks) {
  corral_loop *loop = looks->loop;
  CRL_CHECK(looks);
  crl_timers_clear(loop->context->threads.timers, &looks->timer);
  crl_lookout_close(&looks->lookout);
  if (atomic_load(&looks->state) == LINKED) crl_lookout_close(&looks->fresh);
  move_all(&looks->sent, &looks->lost);
  move_all(&looks->queued, &looks->lost);
  (void)hand_out(looks, &looks->lost);
  close(loop->fd);
  CRL_CHECK(looks);
}

/* A call with less time than two operations may last is judged by its run, which knows hurry. */
static int may_look(const crl_looks *looks, const crl_call *asked) {
  return asked->policy->wait_ms / 2 >= looks->loop->context->op_ms && looks->queued.count < QUEUED;
}

static crl_async_look *begin(crl_looks *looks, const crl_call *asked, crl_join *join, void *call) {
  crl_context *context = looks->loop->context;
  if (!may_look(looks, asked) || !is_linked(looks)) return NULL;
  crl_async_look *look = malloc(sizeof *look);
  if (look == NULL) return NULL;
  look->hit.key = look->key;
  look->call = call;
  int begins = crl_hit_begin(&look->hit, context, asked, join->name.key, join->name.key_len,
                             looks->queued.count < BESIDE);
  if (!begins || look->hit.op.key_len > KEY_BYTES ||
      !crl_pool_is_well_for(context->pool, &look->hit.op)) {
    if (begins) crl_hit_again(&look->hit, join);
    free(look);
    return NULL;
  }
  put(&looks->queued, look);
  if (!looks->loop->is_dispatched) send_next(looks);
  return look;
}

crl_async_look *crl_looks_begin(crl_looks *looks, const crl_call *asked, crl_join *join,
                                void *call) {
  CRL_CHECK(looks);
  crl_async_look *look = begin(looks, asked, join, call);
  CRL_CHECK(looks);
  return look;
}

int crl_looks_dispatch(crl_looks *looks, int idle) {
  CRL_CHECK(looks);
  int count = hand_out(looks, &looks->lost);
  if (looks->lookout.handle != NULL && (looks->sent.head != NULL || idle)) count += hear(looks);
  count += hand_out(looks, &looks->lost);
  send_next(looks);
  CRL_CHECK(looks);
  return count;
}

int crl_looks_judge(crl_async_look *look, crl_join *join, corral_value **ret) {
  int status = look->hit.op.status;
  int is_hit = status == CORRAL_OK && crl_hit_answered(&look->hit, ret);
  if (!is_hit && (status == CORRAL_OK || status == CORRAL_EMISS))
    crl_hit_join(&look->hit, join);
  else if (!is_hit)
    crl_hit_again(&look->hit, join);
  free(look);
  return is_hit;
}

void crl_looks_drop(crl_async_look *look) {
  crl_hit_drop(&look->hit);
  free(look);
}
