/* follower.c: follows an operator's orders in this process. */
#include "control/follower.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "os/cancel.h"
#include "os/env.h"

enum {
  HEARD_MS = 5000, /* between two looks where the watch tells of changes */
  GAP_MS = 100,    /* between two looks at the least, however many changes are told */
  IDLE_MS = 10000, /* without a call: no looks */
  TEXT = 96
};

/* The texts of events about an order, which are told once no lock is held. */
typedef struct news {
  char texts[3][TEXT];
  size_t count;
} news;

struct crl_follower {
  crl_context *context;
  crl_task task;
  crl_key key;
  uint64_t hash;
  pthread_mutex_t mutex;
  int is_deaf;         /* the watch is not to be used any more */
  crl_order order;     /* in force; `dropped`: the last one heard of */
  int64_t used;        /* the last time that a call was seen */
  crl_bell looked_now; /* rung at the end of a look */
  /* Written under the mutex. */
  _Atomic int looks;      /* a look is under way: one at a time, with no lock held */
  _Atomic uint64_t shown; /* the order in force: its number, times 256, and its verb */
  _Atomic int64_t until;  /* its end (crl_env_now_ms); 0: none is in force */
  _Atomic int64_t looked; /* the last look */
  _Atomic uint64_t print; /* of the record that it found */
  _Atomic int hears;      /* the watch tells of the record's next change */
  _Atomic int changed;    /* a look is due now */
};

#ifdef CORRAL_CHECKS
static void check(const crl_follower *f) {
  CRL_MUST((f->order.verb == CORRAL_CONTROL_NORMAL) == (f->until == 0),
           "follower: an order in force has an end");
}
#endif

static void lock(crl_follower *f) {
  pthread_mutex_lock(&f->mutex);
  CRL_CHECK(f);
}

static void unlock(crl_follower *f) {
  CRL_CHECK(f);
  pthread_mutex_unlock(&f->mutex);
}

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- news ---------------------------------------------------------------------------------- */

static const char *describe(const crl_order *order, char text[TEXT]) {
  const char *name = corral_control_name(order->verb);
  if (order->verb == CORRAL_CONTROL_LIMIT)
    snprintf(text, TEXT, "%s %lld", name, (long long)order->number);
  else
    snprintf(text, TEXT, "%s", name);
  return text;
}

/* In whole seconds, rounded up. */
static void note_begin(news *told, const crl_order *order, int64_t left_ms) {
  char what[TEXT], time[32];
  left_ms = (left_ms + 999) / 1000 * 1000;
  snprintf(told->texts[told->count++], TEXT, "%.40s for %s", describe(order, what),
           corral_duration_show(left_ms, time, sizeof time));
}

static void note_end(news *told, const crl_order *order, int is_over) {
  char what[TEXT];
  snprintf(told->texts[told->count++], TEXT, "normal: %.40s has ended%s", describe(order, what),
           is_over ? ", its time is over" : "");
}

static void note_drop(news *told) { snprintf(told->texts[told->count++], TEXT, "drop-near"); }

/* With no lock held. */
static void tell(crl_follower *f, const news *told) {
  for (size_t i = 0; i < told->count; i++)
    crl_event_emit(&f->context->events, CORRAL_EVENT_CONTROL, NULL, 0, told->texts[i]);
}

/* ---- under the mutex ----------------------------------------------------------------------- */

static void obey(crl_follower *f) {
  crl_context *context = f->context;
  corral_control verb = f->order.verb;
  unsigned bit = verb == CORRAL_CONTROL_FREEZE   ? CRL_ORDERS_FREEZE
                 : verb == CORRAL_CONTROL_BYPASS ? CRL_ORDERS_BYPASS
                                                 : 0;
  atomic_fetch_and(&context->orders, ~((unsigned)(CRL_ORDERS_FREEZE | CRL_ORDERS_BYPASS) & ~bit));
  atomic_fetch_or(&context->orders, bit);
  crl_limiter_cap(crl_semaphore_limiter(context->limiter), f->order.number);
  crl_stats_set_gauge(&context->events.stats, CORRAL_GAUGE_CONTROL, (int64_t)verb);
  crl_stats_set_gauge(&context->events.stats, CORRAL_GAUGE_LIMIT, f->order.number);
}

/* Sets the order in force. `until`: 0 for NORMAL. */
static void take(crl_follower *f, const crl_order *order, int64_t until, int is_over, news *told) {
  int64_t left_ms = until - crl_env_now_ms();
  int is_same = f->order.verb == order->verb && f->order.number == order->number;
  crl_order before = f->order;
  f->order.verb = order->verb;
  f->order.number = order->number;
  atomic_store(&f->shown, (uint64_t)order->number << 8 | order->verb);
  atomic_store(&f->until, until);
  if (is_same) return;
  obey(f);
  if (order->verb == CORRAL_CONTROL_NORMAL)
    note_end(told, &before, is_over);
  else
    note_begin(told, order, left_ms > 0 ? left_ms : 0);
}

static void end_if_over(crl_follower *f, int64_t now, news *told) {
  static const crl_order none = {.verb = CORRAL_CONTROL_NORMAL};
  if (f->until > 0 && now >= f->until) take(f, &none, 0, 1, told);
}

/* A drop that this process hasn't heard of. */
static void drop_near(crl_follower *f, uint64_t dropped, news *told) {
  if (dropped == 0 || dropped == f->order.dropped) return;
  f->order.dropped = dropped;
  if (f->context->near == NULL) return;
  crl_near_clear(f->context->near);
  crl_context_weigh_near(f->context);
  note_drop(told);
}

/* Has the watch tell of the record's next change, where one is up. */
static void listen(crl_follower *f) {
  crl_watch *watch = f->context->watch;
  crl_watch_key key = {.data = f->key.stored, .len = f->key.stored_len, .hash = f->hash};
  if (f->is_deaf || watch == NULL || !crl_watch_is_up(watch) || atomic_load(&f->hears)) return;
  if (!crl_watch_registers(watch))
    atomic_store(&f->hears, 1);
  else
    (void)crl_watch_register(watch, NULL, &key, 0); /* crl_follower_registered is next */
}

static void take_found(crl_follower *f, const crl_desk_found *found, news *told) {
  int is_normal = found->order.verb == CORRAL_CONTROL_NORMAL;
  atomic_store(&f->print, found->print);
  take(f, &found->order, is_normal ? 0 : crl_env_now_ms() + found->left_ms, 0, told);
  drop_near(f, found->order.dropped, told);
  listen(f);
}

/* By `limit` at the latest. An order ends in time: a look lasts no longer than until then. The
 * mutex is given up meanwhile. */
static void look(crl_follower *f, int64_t limit, news *told) {
  crl_desk_found found;
  corral_error unused = {0};
  int64_t now = crl_env_now_ms();
  limit = earlier(limit, now + f->context->op_ms);
  if (f->until > 0) limit = earlier(limit, f->until > now + GAP_MS ? f->until : now + GAP_MS);
  f->looked = now;
  atomic_store(&f->changed, 0);
  atomic_store(&f->looks, 1);
  unlock(f);
  int status = crl_desk_look(f->context, &f->key, limit, &found, &unused);
  lock(f);
  atomic_store(&f->looks, 0);
  crl_bell_ring(&f->looked_now, CRL_BELL_ALL);
  if (status == CORRAL_OK) take_found(f, &found, told);
  end_if_over(f, crl_env_now_ms(), told);
}

/* ---- by the clock -------------------------------------------------------------------------- */

/* The next look, by the time of the last one; INT64_MAX: none before the next call. */
static int64_t next_look(crl_follower *f, int64_t now) {
  if (now - f->used >= IDLE_MS) return INT64_MAX;
  return f->looked + (atomic_load(&f->hears) ? HEARD_MS : CORRAL_CONTROL_EVERY_MS);
}

static int64_t run(crl_task *task) {
  crl_follower *f = (crl_follower *)(void *)((char *)task - offsetof(crl_follower, task));
  news told = {.count = 0};
  lock(f);
  int64_t now = crl_env_now_ms();
  if ((atomic_fetch_or(&f->context->orders, CRL_ORDERS_ASKS) & CRL_ORDERS_ASKS) == 0) f->used = now;
  if (!f->looks && (atomic_load(&f->changed) || next_look(f, now) <= now))
    look(f, INT64_MAX, &told);
  now = crl_env_now_ms();
  end_if_over(f, now, &told);
  int64_t next = atomic_load(&f->changed) ? now + GAP_MS : next_look(f, now);
  if (next == INT64_MAX && !atomic_load(&f->hears))
    atomic_fetch_or(&f->context->orders, CRL_ORDERS_LOOK);
  if (f->until > 0) next = earlier(next, f->until);
  unlock(f);
  tell(f, &told);
  return next;
}

/* ---- for calls ----------------------------------------------------------------------------- */

/* Has the task look when that is due next. Without a thread each call does. */
static void arm(crl_follower *f, int64_t at) {
  if (f->until > 0) at = earlier(at, f->until);
  if (crl_task_at(&f->task, at) == CORRAL_OK)
    atomic_fetch_and(&f->context->orders, ~(unsigned)CRL_ORDERS_LOOK);
}

static void ring(void *follower) {
  crl_bell_ring(&((crl_follower *)follower)->looked_now, CRL_BELL_ALL);
}

/* Waits for another's look. The mutex is given up meanwhile. */
static void await_look(crl_follower *f, int64_t limit, corral_cancel_token *cancel_token) {
  crl_canceller canceller;
  unlock(f);
  crl_cancel_join(cancel_token, &canceller, ring, f);
  for (;;) {
    uint32_t heard = crl_bell_listen(&f->looked_now);
    if (!atomic_load(&f->looks) || crl_env_now_ms() >= limit || crl_cancelled(cancel_token)) break;
    crl_bell_sleep(&f->looked_now, heard, CRL_BELL_ALL, limit);
  }
  crl_cancel_leave(cancel_token, &canceller);
  lock(f);
}

static int must_look(const crl_follower *f) {
  return (atomic_load(&f->context->orders) & CRL_ORDERS_LOOK) != 0;
}

static void look_first(crl_follower *f, int64_t limit, corral_cancel_token *cancel_token) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  news told = {.count = 0};
  lock(f);
  int64_t now = f->used = crl_env_now_ms();
  if (must_look(f) && f->looks)
    await_look(f, limit, cancel_token);
  else if (must_look(f) && now - f->looked >= CORRAL_CONTROL_EVERY_MS)
    look(f, limit, &told);
  end_if_over(f, crl_env_now_ms(), &told);
  if (must_look(f) && !f->looks) arm(f, f->looked + CORRAL_CONTROL_EVERY_MS);
  unlock(f);
  tell(f, &told);
}

static void look_behind(crl_follower *f) {
  atomic_store(&f->changed, 1);
  arm(f, crl_env_now_ms());
}

/* ---- public -------------------------------------------------------------------------------- */

crl_follower *crl_follower_new(crl_context *context) {
  crl_follower *f = crl_alloc(sizeof *f);
  if (f == NULL) return NULL;
  if (crl_desk_key(context, &f->key) != CORRAL_OK) {
    free(f);
    return NULL;
  }
  f->context = context;
  f->hash = crl_key_hash(&f->key);
  pthread_mutex_init(&f->mutex, NULL);
  crl_task_init(&f->task, &context->threads, run);
  atomic_store(&context->orders, CRL_ORDERS_ASKS | CRL_ORDERS_LOOK);
  return f;
}

void crl_follower_use(crl_follower *f, int64_t limit, corral_cancel_token *cancel_token) {
  unsigned orders = atomic_fetch_and(&f->context->orders, ~(unsigned)CRL_ORDERS_ASKS);
  if (!(orders & CRL_ORDERS_LOOK)) return;
  if (limit > 0)
    look_first(f, limit, cancel_token);
  else
    look_behind(f);
}

void crl_follower_changed(crl_follower *f, uint64_t hash) {
  int64_t now = crl_env_now_ms(), next = f->looked + GAP_MS;
  if (hash != 0 && hash != f->hash) return;
  atomic_store(&f->hears, 0);
  atomic_store(&f->changed, 1);
  (void)crl_task_at(&f->task, next > now ? next : now);
}

void crl_follower_registered(crl_follower *f, uint64_t hash, uint64_t print) {
  if (hash != f->hash) return;
  if (print == atomic_load(&f->print))
    atomic_store(&f->hears, 1);
  else
    crl_follower_changed(f, hash);
}

void crl_follower_take(crl_follower *f, const crl_desk_found *found) {
  news told = {.count = 0};
  lock(f);
  f->looked = crl_env_now_ms();
  take_found(f, found, &told);
  if (must_look(f) && !f->looks) arm(f, f->looked + CORRAL_CONTROL_EVERY_MS);
  unlock(f);
  tell(f, &told);
}

crl_order crl_follower_order(crl_follower *f, int64_t *ret_left_ms) {
  uint64_t shown = atomic_load(&f->shown);
  int64_t left_ms = atomic_load(&f->until) - crl_env_now_ms();
  crl_order order = {.verb = (corral_control)(shown & 255), .number = (int64_t)(shown >> 8)};
  *ret_left_ms = left_ms > 0 ? left_ms : 0;
  return order;
}

void crl_follower_deafen(crl_follower *f) {
  lock(f);
  f->is_deaf = 1;
  unlock(f);
}

void crl_follower_free(crl_follower *f) {
  crl_task_stop(&f->task);
  crl_key_clean(&f->key);
  pthread_mutex_destroy(&f->mutex);
  free(f);
}
