/* server.c: one server of a store: who leads a batch, and the breaker that lets the server rest.
 *
 * server_batch.c performs a batch on a handle; seats.c has the handles and the queue for them;
 * server_shared.c is for stores whose one handle all threads share; server_health.c says what is
 * known of a server. server.c puts all together, and decides what a result means to the breaker. */
#include "store/server.h"

#include <stdlib.h>

#include "base/check.h"
#include "os/env.h"
#include "os/hash.h"
#include "store/server_batch.h"
#include "store/pace.h"
#include "store/server_own.h"
#include "base/status.h"
#include "base/value.h"

enum {
  ALONE_BYTES = 64 << 10, /* more bytes go without others' operations */
  LARGE_BYTES = 1 << 20,  /* more bytes go on a handle for large records */
  BYTES_A_MS = 10000      /* add a ms, where the store doesn't tell of bytes that move */
};

crl_server *crl_server_new(const crl_pool_options *options, size_t number) {
  crl_server *server = crl_alloc(sizeof *server);
  if (server == NULL) return NULL;
  int64_t handles = options->handles > 0 ? options->handles : options->info.handles;
  int in_one_go = options->plugin->begin != NULL;
  server->options = options;
  server->number = number;
  crl_seats_start(&server->usual, handles, in_one_go);
  crl_seats_start(&server->large, handles, in_one_go);
  crl_health_start(&server->health, options);
  return server;
}

size_t crl_server_number(const crl_server *server) { return server->number; }

static void disconnect_all(const crl_server *server, void *const *handles, size_t count) {
  for (size_t i = 0; i < count; i++) server->options->plugin->disconnect(handles[i]);
}

void crl_server_free(crl_server *server) {
  const corral_store *plugin = server->options->plugin;
  disconnect_all(server, server->usual.idle, server->usual.idle_count);
  disconnect_all(server, server->large.idle, server->large.idle_count);
  if (server->retired != NULL) plugin->disconnect(server->retired);
  if (server->shared != NULL) plugin->disconnect(server->shared);
  free(server);
}

#ifdef CORRAL_CHECKS
void crl_server_check(const crl_server *server) {
  crl_seats_check(&server->usual);
  crl_seats_check(&server->large);
  CRL_MUST(server->retired == NULL || atomic_load(&server->shared) == NULL,
           "server: a shared handle is opened after the broken one was closed");
  CRL_MUST(server->health.breaker.open || !server->health.breaker.probing,
           "server: only an open breaker has a probe");
}
#endif

/* ---- handles that one thread at a time uses ------------------------------------------------ */

/* A batch that is led: the operations of its leader, or copies of those of all its seats. */
typedef struct led_batch {
  crl_seat *own; /* the leader's, with the list of the others */
  corral_op *ops;
  size_t count;
  int probe;
  crl_pace pace;
  corral_error why;
  corral_event event; /* that became due, or CORRAL_EVENT_COUNT */
  int slow;           /* its operations found the server slow */
} led_batch;

/* The limit of a seat with the time that its bytes add. */
static int64_t by_size(const crl_seat *seat) {
  int64_t limit = seat->limit + (int64_t)(seat->bytes / BYTES_A_MS);
  return limit < seat->latest ? limit : seat->latest;
}

/* The pace of the batch of `own` and the seats that it leads. Bytes that move put the batch off to
 * the earliest of its callers' deadlines at most: a caller with less time doesn't wait longer for
 * others' bodies. */
static crl_pace pace_of(const crl_server *server, const crl_seat *own) {
  crl_pace pace = {.latest = INT64_MAX, .quiet_ms = server->options->op_ms};
  for (; own != NULL; own = own->next) {
    if (own->limit > pace.first) pace.first = own->limit;
    if (by_size(own) > pace.deadline) pace.deadline = by_size(own);
    if (own->latest < pace.latest) pace.latest = own->latest;
  }
  return pace;
}

/* The time limit of a batch; bytes that moved put it off. */
static int64_t limit_of(const crl_pace *pace) {
  return pace->limit > pace->first ? pace->limit : pace->first;
}

static int ran_out(const crl_pace *pace) { return crl_env_now_ms() >= limit_of(pace); }

/* True when a plugin had no time left to send anything of the batch, and kept the handle. */
static int is_unsent(const corral_op *ops, size_t count) {
  size_t i = 0;
  while (i < count && ops[i].status == CORRAL_EUNAVAILABLE) i++;
  return i == count;
}

/* Tells the breaker of a batch whose time ran out. Returns as judge_batch. */
static corral_event judge_silence(crl_server *server, crl_seat *own, int64_t began, int64_t limit,
                                  int probe, const corral_error *why) {
  corral_event event = CORRAL_EVENT_COUNT;
  if (own->hurried && !probe) {
    own->opened = crl_health_hurried(&server->health);
    return event;
  }
  event = crl_health_silence(&server->health, began, limit, probe, why);
  own->opened = crl_health_doubt(&server->health) || event == CORRAL_EVENT_STORE_DOWN;
  return event;
}

/* Tells the breaker the result of a batch; one that was cut in the middle of a body says nothing of
 * the server. Sets led->slow. Returns the event that became due, or CORRAL_EVENT_COUNT. Under the
 * mutex. */
static corral_event judge_batch(crl_server *server, led_batch *led, int worked, int64_t began) {
  corral_event event = CORRAL_EVENT_COUNT;
  crl_seat *own = led->own;
  int in_body = !worked && crl_pace_in_body(&led->pace);
  int is_silent = (!worked || is_unsent(led->ops, own->count)) && ran_out(&led->pace);
  own->cut = in_body && own->next != NULL;
  led->slow = in_body && crl_breaker_is_slow(&server->health.breaker);
  if (in_body && !led->probe) return event;
  if (is_silent) {
    event = judge_silence(server, own, began, limit_of(&led->pace), led->probe, &led->why);
    led->slow = !server->health.breaker.open;
    return event;
  }
  event = crl_health_outcome(&server->health, worked, led->probe, &led->why);
  own->opened = event == CORRAL_EVENT_STORE_DOWN;
  return event;
}

/* True for looks and claims while those are held back. */
static int is_held_back(const crl_server *server, const crl_seat *own) {
  int held = crl_health_holds_back(&server->health);
  for (size_t i = 0; i < own->count && held; i++)
    held = own->ops[i].verb == CORRAL_VERB_GET || own->ops[i].verb == CORRAL_VERB_CLAIM;
  return held;
}

/* Refuses the operations of `own`, and hands its handle on. Entered with the latch, left
 * without. */
static void refuse(crl_server *server, crl_seat *own) {
  corral_error why = server->health.why;
  int slow = !server->health.breaker.open;
  crl_seat *next = crl_seats_pass_on(own->seats, own->handle);
  crl_server_unlock(server);
  crl_seats_call(next);
  crl_server_batch_refuse(own->ops, own->count,
                          why.status == CORRAL_EAUTH ? CORRAL_EAUTH : CORRAL_EUNAVAILABLE,
                          why.text[0] != '\0' ? why.text : "no answer yet");
  if (slow) crl_server_batch_mark_slow(own->ops, own->count);
}

/* Judges a batch, and hands its handle on. */
static void hand_on(crl_server *server, led_batch *led, void *handle, int worked, int64_t began) {
  crl_server_lock(server);
  led->event = judge_batch(server, led, worked, began);
  crl_seat *next = crl_seats_pass_on(led->own->seats, handle);
  crl_server_unlock(server);
  crl_seats_call(next);
}

static void tell_end(crl_server *server, const led_batch *led) {
  if (led->slow) crl_server_batch_mark_slow(led->own->ops, led->own->count);
  crl_server_batch_report(server->options, server->number, led->event, &led->why);
}

/* Performs a batch, then hands its handle on: before anybody is woken, and before results are
 * copied, the next batch may be under way. */
static void lead(crl_server *server, led_batch *led) {
  void *handle = led->own->handle;
  led->pace = pace_of(server, led->own);
  int64_t began = led->pace.began = led->own->began;
  int worked = crl_server_batch_perform(server->options, server->number, &handle, led->ops,
                                        led->count, &led->pace, &led->why) == CORRAL_OK;
  hand_on(server, led, handle, worked, began);
}

/* Leads a batch of copies of several seats' operations. A function of its own, so that a caller
 * alone has no array on its stack. */
static __attribute__((noinline)) void lead_together(crl_server *server, led_batch *led) {
  corral_op copies[CRL_SEATS_OPS], *at = copies;
  for (const crl_seat *s = led->own; s != NULL; at += s->count, s = s->next)
    memcpy(at, s->ops, s->count * sizeof *at);
  led->ops = at = copies;
  lead(server, led);
  memcpy(led->own->ops, at, led->own->count * sizeof *at);
  at += led->own->count;
  crl_bell *rung = NULL;
  for (crl_seat *s = led->own->next, *next; s != NULL; s = next) {
    next = s->next;
    memcpy(s->ops, at, s->count * sizeof *at);
    at += s->count;
    s->cut = led->own->cut;
    if (led->slow) crl_server_batch_mark_slow(s->ops, s->count);
    rung = crl_seats_tell(s, rung);
  }
  crl_seats_told(rung);
}

/* Leads a batch on own->handle, then hands the handle on. Entered with the latch, left without. */
static void serve(crl_server *server, crl_seat *own) {
  led_batch led;
  if (!crl_health_may_ask(&server->health, &led.probe) || is_held_back(server, own)) {
    refuse(server, own);
    return;
  }
  led.own = own;
  led.ops = own->ops;
  led.count = crl_seats_gather(own);
  crl_server_unlock(server);
  if (own->next == NULL)
    lead(server, &led);
  else
    lead_together(server, &led);
  tell_end(server, &led);
}

/* Begins own's op_ms now: the time in the queue is not the server's. */
static void renew_limit(const crl_server *server, crl_seat *own) {
  int64_t limit = crl_env_now_ms() + server->options->op_ms;
  own->limit = limit < own->latest ? limit : own->latest;
}

/* Waits until a handle is handed over, or another caller has performed this seat along; 0 when its
 * time ran out in the queue. A seat that is being performed is waited for without a limit: its
 * batch has one. */
static int wait_in_queue(crl_server *server, crl_seat *own) {
  /* bodies queued in front of a large record take more than op_ms */
  int64_t until = own->seats == &server->large ? own->latest : own->limit;
  if (own->go_at != 0 && own->go_at < until) {
    if (crl_seats_sleep(own, own->go_at)) return 1;
    crl_server_lock(server);
    int leads = crl_seats_go(own, crl_env_now_ms());
    crl_server_unlock(server);
    if (leads) return 1;
  }
  if (crl_seats_sleep(own, until)) return 1;
  crl_server_lock(server);
  int left = crl_seats_leave(own);
  crl_server_unlock(server);
  return !left && crl_seats_sleep(own, INT64_MAX);
}

/* Refuses a seat whose time ran out in the queue. */
static void refuse_late(crl_server *server, crl_seat *own) {
  crl_server_lock(server);
  int is_away = server->health.breaker.open;
  crl_server_unlock(server);
  crl_server_batch_refuse(own->ops, own->count, CORRAL_EUNAVAILABLE,
                          "no connection to the store became free in time");
  if (!is_away) crl_server_batch_mark_slow(own->ops, own->count);
}

static void perform_pooled(crl_server *server, crl_seats *seats, crl_seat *own) {
  crl_server_lock(server);
  if (!crl_seats_take(seats, own)) {
    crl_server_unlock(server);
    if (!wait_in_queue(server, own)) {
      refuse_late(server, own);
      return;
    }
    if (own->state == CRL_SEAT_SERVED) return;
    own->began = crl_env_now_ms();
    if (seats == &server->large) renew_limit(server, own);
    crl_server_lock(server);
    crl_seats_begin(own);
  }
  serve(server, own);
}

/* ---- public -------------------------------------------------------------------------------- */

static size_t weigh(const corral_op *ops, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += crl_server_record_len(&ops[i]) + ops[i].key_len;
  return bytes;
}

/* One attempt; true when its batch was cut in the middle of another caller's body. *opened becomes
 * true where crl_server_perform returns true. Apart, since a look on an idle handle has no seat. */
static __attribute__((noinline)) int perform_as(crl_server *server, corral_op *ops, size_t count,
                                                int64_t now, int64_t deadline, int is_large,
                                                int alone, int *opened) {
  crl_seat own = {
      .ops = ops, .count = count, .bytes = weigh(ops, count), .began = now, .latest = deadline};
  own.limit = now + server->options->op_ms;
  /* a caller with less time isn't made to wait for others' operations; one who chose op_ms a moment
   * ago isn't in a hurry */
  own.hurried = deadline < own.limit - server->options->op_ms / 8;
  if (deadline < own.limit) own.limit = deadline;
  own.alone = alone || own.bytes > ALONE_BYTES || own.hurried || count > CRL_SEATS_OPS;
  crl_server_batch_flag(ops, count, !is_large);
  perform_pooled(server, is_large ? &server->large : &server->usual, &own);
  *opened |= own.opened;
  return own.cut;
}

__attribute__((noinline)) void crl_server_lone_end(crl_server *server, crl_lone *lone, int status,
                                                   const corral_error *why, int *opened) {
  const crl_pool_options *options = server->options;
  size_t count = lone->count;
  crl_seat own = {
      .ops = lone->ops, .count = count, .began = lone->pace.began, .seats = &server->usual};
  led_batch led = {.own = &own, .ops = lone->ops, .count = count, .pace = lone->pace, .why = *why};
  if (status == CORRAL_OK) {
    crl_server_batch_report_notice(options, server->number, &led.why);
  } else {
    crl_server_batch_close(options, &lone->handle, lone->ops, count, &led.why);
    status = crl_server_batch_repeat(options, server->number, &lone->handle, lone->ops, count,
                                     &led.pace, &led.why, status);
  }
  hand_on(server, &led, lone->handle, status == CORRAL_OK, own.began);
  tell_end(server, &led);
  *opened |= own.opened;
}

/* `passes`: see crl_seats_take_idle. */
static inline __attribute__((always_inline)) int
take_lone(crl_server *server, crl_lone *lone, int64_t now, int64_t latest, int passes) {
  crl_seats *seats = &server->usual;
  int64_t limit = now + server->options->op_ms;
  if (latest < limit || crl_seats_idle(seats) == 0) return 0;
  crl_server_lock(server);
  lone->handle = crl_health_lets_all(&server->health) ? crl_seats_take_idle(seats, passes) : NULL;
  crl_server_unlock(server);
  if (lone->handle == NULL) return 0;
  lone->pace = (crl_pace){.deadline = limit,
                          .first = limit,
                          .latest = latest,
                          .began = now,
                          .quiet_ms = server->options->op_ms};
  return 1;
}

int crl_server_lone_take(crl_server *server, crl_lone *lone, int64_t now, int64_t latest) {
  return take_lone(server, lone, now, latest, 1);
}

/* Performs a look if a handle is idle, nobody is queued, and the server is well: 1. Nobody goes
 * along. The operation is preset. A part of its caller. */
static inline __attribute__((always_inline)) int look_alone(crl_server *server, corral_op *op,
                                                            int64_t now, int64_t deadline,
                                                            corral_error *why, int *opened) {
  crl_lone look; /* not zeroed */
  crl_seats *seats = &server->usual;
  if (!take_lone(server, &look, now, deadline, 0)) return 0;
  look.ops = op;
  look.count = 1;
  why->status = CORRAL_OK;
  why->text[0] = '\0';
  corral_batch batch = {.ops = op, .count = 1, .op_size = sizeof *op, .now = now};
  crl_server_batch_flag(op, 1, 1);
  crl_pace_begin(&look.pace);
  int status =
      crl_server_batch_send(server->options->plugin, look.handle, &batch, look.pace.deadline, why);
  crl_pace_end();
  if (status != CORRAL_OK || why->text[0] != '\0' || op->status == CORRAL_EUNAVAILABLE) {
    crl_server_lone_end(server, &look, status, why, opened);
    return 1;
  }
  crl_server_lock(server);
  (void)crl_health_outcome(&server->health, 1, 0, why);
  crl_seat *next = crl_seats_pass_on(seats, look.handle);
  crl_server_unlock(server);
  crl_seats_call(next);
  return 1;
}

static uint64_t hash_of(const corral_op *op) {
  return op->hash != 0 ? op->hash : crl_hash(op->key, op->key_len);
}

/* A look at a key whose record was large goes apart at once. */
static int expects_large(const crl_server *server, const corral_op *op) {
  return crl_marks_any(&server->large_keys) && crl_marks_has(&server->large_keys, hash_of(op));
}

static void note_size(crl_server *server, const corral_op *op, int is_large) {
  if (is_large)
    crl_marks_set(&server->large_keys, hash_of(op));
  else if (crl_marks_any(&server->large_keys))
    crl_marks_clear(&server->large_keys, hash_of(op));
}

void crl_server_read_large(crl_server *server, corral_op *ops, size_t count, int64_t deadline,
                           int *opened) {
  for (size_t i = 0; i < count; i++) {
    int is_large = (ops[i].flags & CORRAL_OP_LARGE) != 0;
    if (is_large) perform_as(server, &ops[i], 1, crl_env_now_ms(), deadline, 1, 1, opened);
    if (ops[i].verb == CORRAL_VERB_GET && ops[i].status == CORRAL_OK)
      note_size(server, &ops[i], is_large || ops[i].found.len > LARGE_BYTES);
    ops[i].flags &= ~(uint32_t)(CORRAL_OP_LESS | CORRAL_OP_LARGE);
  }
}

/* True for operations that wait for the store's replicas: nobody is to wait behind them. */
static int waits_for_replicas(const crl_server *server, const corral_op *ops, size_t count) {
  for (size_t i = 0; server->options->info.confirms && i < count; i++)
    if ((ops[i].flags & CORRAL_OP_CONFIRM) != 0) return 1;
  return 0;
}

/* An operation that another caller's large body cut off is asked once more, alone. */
static __attribute__((noinline)) int perform_seated(crl_server *server, corral_op *ops,
                                                    size_t count, int64_t now, int64_t deadline) {
  int opened = 0, is_look = count == 1 && ops->verb == CORRAL_VERB_GET,
      is_large = weigh(ops, count) > LARGE_BYTES || (is_look && expects_large(server, ops)) ||
                 waits_for_replicas(server, ops, count);
  if (perform_as(server, ops, count, now, deadline, is_large, is_large, &opened) &&
      crl_server_batch_repeatable(ops, count))
    perform_as(server, ops, count, crl_env_now_ms(), deadline, is_large, 1, &opened);
  crl_server_read_large(server, ops, count, deadline, &opened);
  return opened;
}

/* A function of its own, since the stores that share a handle need none of its room. */
static __attribute__((noinline)) int look_pooled(crl_server *server, corral_op *op, int64_t now,
                                                 int64_t deadline, corral_error *why) {
  int opened = 0;
  if (expects_large(server, op) || !look_alone(server, op, now, deadline, why, &opened))
    return perform_seated(server, op, 1, now, deadline);
  if ((op->flags & CORRAL_OP_LARGE) != 0 || op->found.len > LARGE_BYTES ||
      crl_marks_any(&server->large_keys))
    crl_server_read_large(server, op, 1, deadline, &opened);
  op->flags &= ~(uint32_t)CORRAL_OP_LESS;
  return opened;
}

static void perform_shared(crl_server *server, corral_op *ops, size_t count, int64_t now,
                           int64_t limit, int64_t deadline, corral_error *why) {
  crl_server_perform_shared(server, ops, count, now, deadline < limit ? deadline : limit, why);
}

int crl_server_perform(crl_server *server, corral_op *ops, size_t count, int64_t deadline) {
  corral_error why;
  int64_t now = crl_env_now_ms();
  crl_server_batch_preset(ops, count);
  if (server->options->plugin->threads != CORRAL_THREADS_PARALLEL)
    return count == 1 && ops->verb == CORRAL_VERB_GET
               ? look_pooled(server, ops, now, deadline, &why)
               : perform_seated(server, ops, count, now, deadline);
  int64_t added = (int64_t)(weigh(ops, count) / BYTES_A_MS);
  perform_shared(server, ops, count, now, now + server->options->op_ms + added, deadline, &why);
  return 0;
}

int crl_server_look(crl_server *server, corral_op *op, int64_t now, int64_t deadline,
                    corral_error *why) {
  if (server->options->plugin->threads != CORRAL_THREADS_PARALLEL)
    return look_pooled(server, op, now, deadline, why);
  perform_shared(server, op, 1, now, now + server->options->op_ms, deadline, why);
  return 0;
}

int crl_server_is_well_for(crl_server *server, const corral_op *op) {
  crl_server_lock(server);
  int is_well = crl_health_is_well(&server->health);
  crl_server_unlock(server);
  return is_well && !expects_large(server, op);
}

int crl_server_sweep(crl_server *server) {
  void *usual[CRL_SEATS_HANDLES], *large[CRL_SEATS_HANDLES];
  crl_server_lock(server);
  size_t usual_count = crl_seats_sweep(&server->usual, usual),
         large_count = crl_seats_sweep(&server->large, large);
  int are_left = server->usual.open_count + server->large.open_count > 0;
  crl_server_unlock(server);
  disconnect_all(server, usual, usual_count);
  disconnect_all(server, large, large_count);
  return are_left;
}

/* The time that a probe has. Where a server may have a successor, that is probed, too, and does not
 * wait for the end of a long silence. */
static int64_t patience_of(const crl_server *server) {
  int64_t op_ms = server->options->op_ms;
  return server->options->plugin->refresh != NULL
             ? op_ms
             : crl_breaker_patience(&server->health.breaker, op_ms);
}

/* Performs on the probe's handle, with all of op_ms. */
static int perform_probe(crl_server *server, corral_op *ops, size_t count, crl_findings *ret) {
  ret->began = crl_env_now_ms();
  crl_server_lock(server);
  int64_t limit = ret->began + patience_of(server);
  crl_server_unlock(server);
  crl_pace pace = {.first = limit,
                   .deadline = limit + (int64_t)(weigh(ops, count) / BYTES_A_MS),
                   .latest = INT64_MAX,
                   .quiet_ms = server->options->op_ms};
  ret->works = crl_server_batch_perform(server->options, server->number, &server->probe_handle, ops,
                                        count, &pace, &ret->why) == CORRAL_OK;
  ret->limit = limit_of(&pace);
  ret->is_silent = !ret->works && ran_out(&pace);
  return ret->works;
}

int crl_server_perform_probe(crl_server *server, corral_op *ops, size_t count) {
  crl_findings unused;
  return server->probe_handle != NULL && perform_probe(server, ops, count, &unused);
}

/* Hands on a handle that works, if there is room. Returns a handle that the caller is to
 * disconnect, or NULL. Under the latch. */
static void *take_in(crl_server *server, void *handle, crl_seat **next) {
  if (handle == NULL || server->usual.open_count >= server->usual.most) return handle;
  server->usual.open_count++;
  *next = crl_seats_pass_on(&server->usual, handle);
  return NULL;
}

static void ask_probe(crl_server *server, crl_findings *ret) {
  const char *key = server->options->probe_key;
  uint32_t verb = server->options->info.locks_only ? CORRAL_VERB_LOCK_SHOW : CORRAL_VERB_GET;
  corral_op op = {.verb = verb, .key = key, .key_len = strlen(key)};
  (void)perform_probe(server, &op, 1, ret);
  if (op.found.drop != NULL) op.found.drop(op.found.owner);
}

/* Before callers are let to it again: a server that was away, or silent, may have missed what
 * callers sent. One that fails now after a silence is silent still. */
static void repeat_unheard(crl_server *server, struct crl_pool *pool, crl_findings *found,
                           int rests) {
  const crl_pool_options *options = server->options;
  if (options->on_return == NULL || options->on_return(options->return_arg, pool, server->number))
    return;
  found->works = 0;
  found->is_silent = !rests;
  found->limit = crl_env_now_ms();
}

void crl_server_probe(crl_server *server, struct crl_pool *pool) {
  const crl_pool_options *options = server->options;
  crl_findings found;
  crl_seat *next = NULL;
  crl_server_lock(server);
  int rests = crl_breaker_probe(&server->health.breaker, crl_env_now_ms()),
      held = server->health.holding, due = rests || server->health.checking;
  crl_server_unlock(server);
  if (!due) return;
  ask_probe(server, &found);
  if (found.works && (rests || held)) repeat_unheard(server, pool, &found, rests);
  crl_server_lock(server);
  corral_event event = crl_health_probed(&server->health, &found, rests);
  void *left = take_in(server, server->probe_handle, &next);
  server->probe_handle = NULL;
  crl_server_unlock(server);
  crl_seats_call(next);
  if (left != NULL) options->plugin->disconnect(left);
  crl_server_batch_report(server->options, server->number, event, &found.why);
}
