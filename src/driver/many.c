/* many.c: flies the runs of several keys, for one call: store operations that are due at the
 * same time are one batch, and computes that are due at the same time are one compute.
 *
 * Each round performs the ask that comes first in the table below, for all runs that have it. So
 * nothing is computed while another run could still reach its compute, and nothing is waited for (a
 * change in the store, a host lock, another flight) while a compute is due: two calls with keys in
 * common each finish the flights that they lead before they wait for each other. */
#include "driver/batch.h"

#include <stdlib.h>

#include "os/env.h"
#include "store/registry.h"
#include "run/run.h"
#include "base/status.h"

enum {
  COUNT_MOST = 1 << 24, /* keys of one call */
  /* least time between two looks after wake-ups: wake-ups within it share the second look */
  GAP_MS = 2,
  SLICE_MS = 4 /* length of one wait for a host lock while the call waits for other things too */
};

/* Order of the asks; asks of one rank are performed together. */
enum { WAITS = 9 };
static const uint8_t ranks[] = {
    [CRL_ASK_ANSWER] = 0,  [CRL_ASK_DONE] = 1,    [CRL_ASK_OUTBOX] = 2,  [CRL_ASK_GET] = 3,
    [CRL_ASK_HOST] = 4,    [CRL_ASK_SLOT] = 5,    [CRL_ASK_CLAIM] = 6,   [CRL_ASK_SETTLE] = 7,
    [CRL_ASK_RELEASE] = 7, [CRL_ASK_COMPUTE] = 8, [CRL_ASK_WAIT] = WAITS};

/* One key: it flies a run, waits for another caller's flight (joined), copies an earlier item
 * (twin), or has ended. */
typedef struct leg {
  corral_item *item;
  crl_run *run;
  crl_entry *joined;
  crl_listener listener;
  const corral_item *twin; /* the earlier item of the same key; NULL: none */
  int early;
  int waits;     /* the run's WAIT has begun */
  int64_t until; /* end of that WAIT; 0: it needs no wait */
} leg;

typedef struct many {
  crl_context *context;
  const crl_call *call;
  int64_t deadline;
  size_t count, open; /* number of legs, and of those that have not ended */
  leg *legs;
  size_t *table;  /* hash table of keys: index of a leg + 1; 0: empty */
  leg **group;    /* legs of the current round */
  crl_run **runs; /* their runs */
  corral_fill **fills;
  crl_made *made;
  crl_batch batch;
  crl_waiter waiter; /* woken for all runs and entries, and by the cancel token */
  crl_canceller canceller;
  crl_slot slot; /* one slot for all computes of the call */
  int has_slot;
  /* time of the last look after a wake-up; of the next one, 0: none is due */
  int64_t looked, look_at;
} many;

/* ---- one leg ------------------------------------------------------------------------------- */

static crl_call call_of(const many *m, const leg *l) {
  crl_call call = *m->call;
  call.key = l->item->key;
  call.key_len = l->item->key_len;
  call.early = l->early;
  call.error = NULL;
  return call;
}

static void end(many *m, leg *l, crl_outcome *outcome) {
  l->item->status = crl_outcome_deliver(outcome, &l->item->error, &l->item->value);
  m->open--;
}

static void end_plain(many *m, leg *l, int status) {
  crl_outcome outcome = crl_outcome_plain(status);
  end(m, l, &outcome);
}

/* Leads a flight; its run takes over the reference of `entry`. */
static void take_off(many *m, leg *l, const crl_call *call, crl_entry *entry, crl_alone alone) {
  crl_run *r = crl_run_new(m->context, call, m->deadline, alone);
  if (r == NULL) {
    if (entry != NULL) crl_herd_give_up(entry);
    if (entry != NULL) crl_entry_unref(entry);
    end_plain(m, l, CORRAL_ENOMEM);
    return;
  }
  r->entry = entry;
  r->waiter = &m->waiter;
  crl_run_meet_caller(r, call->cancel_token);
  l->run = r;
}

static void enter(many *m, leg *l, crl_alone alone) {
  int leads = 1;
  crl_entry *entry = NULL;
  crl_call call = call_of(m, l);
  crl_name name = crl_call_name(&call);
  if (crl_call_computes(&call)) {
    entry = alone ? crl_herd_private(m->context->herd, &name)
                  : crl_herd_enter(m->context->herd, &name, &leads);
    if (entry == NULL) {
      end_plain(m, l, CORRAL_ENOMEM);
      return;
    }
  }
  if (leads) {
    take_off(m, l, &call, entry, alone);
    return;
  }
  crl_event_emit(&m->context->events, CORRAL_EVENT_JOIN, call.key, call.key_len, NULL);
  crl_herd_listen(entry, &l->listener, &m->waiter);
  l->joined = entry;
}

/* Begins a leg: answers from the near tier, or enters a flight. */
static void begin(many *m, leg *l) {
  crl_outcome outcome;
  crl_call call = call_of(m, l);
  m->open++;
  if (crl_run_recurses(m->context, &call)) {
    end_plain(m, l, CORRAL_ERECURSION);
  } else if (crl_run_near(m->context, &call, &l->early, &outcome)) {
    crl_event_emit(&m->context->events, CORRAL_EVENT_NEAR, call.key, call.key_len, NULL);
    end(m, l, &outcome);
  } else {
    enter(m, l, CRL_ALONE_NOT);
  }
}

static void land(many *m, leg *l) {
  crl_run_conclude(l->run);
  crl_outcome outcome = crl_run_outcome(l->run);
  crl_run_free(l->run);
  l->run = NULL;
  end(m, l, &outcome);
}

/* ---- the store ----------------------------------------------------------------------------- */

static void perform(many *m, size_t count) {
  for (size_t i = 0; i < count; i++) m->runs[i] = m->group[i]->run;
  crl_batch_perform(&m->batch, m->runs, count);
}

/* ---- rungs --------------------------------------------------------------------------------- */

static void step(leg *l, int status) {
  crl_told told;
  memset(&told, 0, sizeof told);
  told.status = status;
  crl_run_step(l->run, &told);
}

static int enter_origin(many *m, size_t count, crl_rank rank, int64_t until) {
  int waited = 0;
  crl_worker_wait_begin();
  int status = crl_semaphore_enter(m->context->origin, rank, until, m->call->cancel_token, &m->slot,
                                   &waited);
  crl_worker_wait_end();
  m->has_slot = status == CORRAL_OK;
  for (size_t i = 0; waited && until > 0 && i < count; i++)
    crl_run_emit(m->group[i]->run, CORRAL_EVENT_LIMITED, NULL);
  return status;
}

/* Takes one slot for the whole group. When none is free, runs that may only try are refused at
 * once; runs that may wait do so in a later round. */
static void take_slot(many *m, size_t count) {
  size_t hasty = 0;
  int64_t now = crl_env_now_ms(), until = now;
  crl_rank rank = CRL_RANK_WARM;
  for (size_t i = 0; i < count; i++) {
    const crl_flight *flight = &m->group[i]->run->flight;
    if ((crl_rank)flight->rank < rank) rank = (crl_rank)flight->rank;
    if (flight->until > until) until = flight->until;
  }
  int status = m->has_slot ? CORRAL_OK : enter_origin(m, count, rank, 0);
  for (size_t i = 0; status != CORRAL_OK && i < count; i++) {
    if (m->group[i]->run->flight.until > now) continue;
    crl_run_emit(m->group[i]->run, CORRAL_EVENT_LIMITED, NULL);
    step(m->group[i], status);
    hasty++;
  }
  if (hasty > 0) return;
  if (status != CORRAL_OK) status = enter_origin(m, count, rank, until);
  for (size_t i = 0; i < count; i++) step(m->group[i], status);
}

static void give_slot(many *m) {
  if (!m->has_slot) return;
  for (size_t i = 0; i < m->count; i++)
    if (m->legs[i].run != NULL && m->legs[i].run->flight.has_slot) return;
  crl_semaphore_leave(m->context->origin, &m->slot);
  m->has_slot = 0;
}

static void take_host(leg *l) {
  crl_told told;
  memset(&told, 0, sizeof told);
  crl_run_take_host(l->run, &told);
  crl_run_step(l->run, &told);
}

/* ---- compute ------------------------------------------------------------------------------- */

static int run_compute(many *m, size_t count) {
  __attribute__((cleanup(crl_run_unwind))) crl_inside inside;
  crl_run_go_inside(&inside, m->runs, count);
  int status = m->call->compute_many(m->fills, count, m->call->arg);
  crl_run_come_outside(&inside);
  return status;
}

/* Runs one compute for the whole group; all leases are kept until all fills are finished. */
static void compute(many *m, size_t count) {
  crl_told told;
  for (size_t i = 0; i < count; i++) {
    m->runs[i] = m->group[i]->run;
    m->fills[i] = &m->runs[i]->fill;
    crl_run_begin_compute(m->runs[i]);
  }
  int status = run_compute(m, count);
  int64_t ended = crl_env_now_us();
  for (size_t i = 0; i < count; i++) {
    if (status < 0 && m->fills[i]->filled == CRL_FILLED_NOT)
      corral_fill_fail(m->fills[i], status, corral_status_text(status));
    crl_run_made(m->runs[i], ended, &told);
    m->made[i] = told.made;
  }
  for (size_t i = 0; i < count; i++) crl_run_end_compute(m->runs[i]);
  for (size_t i = 0; i < count; i++) {
    memset(&told, 0, sizeof told);
    told.made = m->made[i];
    crl_run_step(m->runs[i], &told);
  }
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* Collects the legs of the next round; 0: all legs only wait. */
static size_t gather(many *m) {
  size_t count = 0;
  int first = WAITS;
  for (size_t i = 0; i < m->count; i++)
    if (m->legs[i].run != NULL && ranks[m->legs[i].run->ask] < first)
      first = ranks[m->legs[i].run->ask];
  for (size_t i = 0; first < WAITS && i < m->count; i++)
    if (m->legs[i].run != NULL && ranks[m->legs[i].run->ask] == first)
      m->group[count++] = &m->legs[i];
  return count;
}

static void answer(leg *l) {
  crl_run_answer(l->run);
  step(l, CORRAL_OK);
}

static void look_at_held(leg *l) {
  crl_told told;
  memset(&told, 0, sizeof told);
  crl_run_find_outbox(l->run, &told);
  crl_run_step(l->run, &told);
}

static void act(many *m, size_t count) {
  crl_ask ask = m->group[0]->run->ask;
  if (ask == CRL_ASK_COMPUTE) {
    compute(m, count);
  } else if (ask == CRL_ASK_SLOT) {
    take_slot(m, count);
  } else if (ask == CRL_ASK_GET || ask == CRL_ASK_CLAIM || ask == CRL_ASK_SETTLE ||
             ask == CRL_ASK_RELEASE) {
    perform(m, count);
  } else {
    for (size_t i = 0; i < count; i++) {
      leg *l = m->group[i];
      if (ask == CRL_ASK_ANSWER)
        answer(l);
      else if (ask == CRL_ASK_OUTBOX)
        look_at_held(l);
      else if (ask == CRL_ASK_HOST)
        take_host(l);
      else
        land(m, l);
    }
  }
  give_slot(m);
}

/* ---- joined flights ------------------------------------------------------------------------ */

static int is_cancelled(const many *m) { return crl_cancelled(m->call->cancel_token); }

/* The next moment that ends a wait for an entry: soft_until, then the deadline. */
static int64_t end_of(const crl_patience *patience, int64_t now) {
  return patience->soft_until > now && patience->soft_until < patience->deadline
             ? patience->soft_until
             : patience->deadline;
}

static void look_at_entry(many *m, leg *l, const crl_patience *patience) {
  crl_outcome outcome;
  crl_call call = call_of(m, l);
  memset(&outcome, 0, sizeof outcome);
  atomic_store(&l->listener.stirred, 0);
  crl_wait came = crl_herd_look(l->joined, patience, &outcome);
  if (came == 0) return;
  crl_herd_unlisten(l->joined, &l->listener, came);
  crl_entry_unref(l->joined);
  l->joined = NULL;
  switch (crl_run_turn(m->context, &call, came, patience, &outcome)) {
    case CRL_TURN_ENDED: end(m, l, &outcome); break;
    case CRL_TURN_ENTER: enter(m, l, CRL_ALONE_NOT); break;
    case CRL_TURN_ALONE: enter(m, l, CRL_ALONE_PASS); break;
    case CRL_TURN_ALONE_HERE: enter(m, l, CRL_ALONE_DEADLINE); break;
  }
}

/* Looks at the entries that changed; at all of them when a time limit has come or the call was
 * cancelled. */
static void look_at_entries(many *m) {
  crl_patience patience = crl_run_patience(m->call, m->deadline);
  int all = is_cancelled(m), late = crl_env_now_ms() >= end_of(&patience, 0);
  for (size_t i = 0; i < m->count; i++)
    if (m->legs[i].joined != NULL && (all || late || atomic_load(&m->legs[i].listener.stirred)))
      look_at_entry(m, &m->legs[i], &patience);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* The things that a call waits for when nothing else is to be done. */
typedef struct rest {
  int64_t until;
  const crl_run *host; /* a run that waits for its host lock; NULL: none */
  int others;          /* other things are waited for too */
} rest;

static void count_run(leg *l, rest *ret) {
  crl_run *r = l->run;
  if (!l->waits) l->until = crl_run_begin_wait(r) ? 0 : r->flight.until;
  l->waits = 1;
  if (l->until < ret->until) ret->until = l->until;
  if (r->flight.at_host)
    ret->host = r;
  else
    ret->others = 1;
}

/* Each run asks for WAIT. */
static rest prepare(many *m) {
  rest ret = {.until = INT64_MAX};
  int64_t now = crl_env_now_ms();
  crl_patience patience = crl_run_patience(m->call, m->deadline);
  for (size_t i = 0; i < m->count; i++) {
    leg *l = &m->legs[i];
    if (l->run != NULL) count_run(l, &ret);
    if (l->joined == NULL) continue;
    int64_t until = atomic_load(&l->listener.stirred) ? 0 : end_of(&patience, now);
    if (until < ret.until) ret.until = until;
    ret.others = 1;
  }
  if (m->look_at > 0 && m->look_at < ret.until) ret.until = m->look_at;
  return ret;
}

/* Returns 1 when the host lock of r->host became free. */
static int sleep_through(many *m, const rest *r) {
  int64_t now = crl_env_now_ms(), until = r->until;
  int is_free = 0, woken = 0;
  if (is_cancelled(m)) return 0;
  crl_worker_wait_begin();
  if (r->host == NULL) {
    woken = crl_waiter_sleep(&m->waiter, until);
  } else {
    if (r->others && until > now + SLICE_MS) until = now + SLICE_MS;
    crl_hostlock_wait(m->context->hostlock, r->host->key.whole, r->host->key.whole_len, until,
                      m->call->cancel_token);
    is_free = crl_env_now_ms() < until;
    woken = crl_waiter_sleep(&m->waiter, 0);
  }
  crl_worker_wait_end();
  now = crl_env_now_ms();
  if (woken && m->look_at == 0) m->look_at = now > m->looked + GAP_MS ? now : m->looked + GAP_MS;
  return is_free;
}

static int is_due(const leg *l, int64_t now, int looks, int is_free) {
  return l->until <= now || (l->run->flight.at_host ? is_free : looks);
}

/* Waits until something changes or a wait ends, then steps the runs concerned. */
static void wait(many *m) {
  rest r = prepare(m);
  int is_free = sleep_through(m, &r), all = is_cancelled(m);
  int64_t now = crl_env_now_ms();
  int looks = m->look_at > 0 && m->look_at <= now;
  if (looks) {
    m->look_at = 0;
    m->looked = now;
  }
  for (size_t i = 0; i < m->count; i++) {
    leg *l = &m->legs[i];
    if (l->run == NULL || !(all || is_due(l, now, looks, is_free))) continue;
    l->waits = 0;
    step(l, CORRAL_OK);
  }
  look_at_entries(m);
}

/* ---- the call ------------------------------------------------------------------------------ */

static const corral_item *find_twin(many *m, size_t mask, size_t index) {
  const corral_item *own = m->legs[index].item;
  size_t at = (size_t)crl_hash(own->key, own->key_len) & mask;
  for (; m->table[at] != 0; at = (at + 1) & mask) {
    const corral_item *other = m->legs[m->table[at] - 1].item;
    if (other->key_len == own->key_len && memcmp(other->key, own->key, own->key_len) == 0)
      return other;
  }
  m->table[at] = index + 1;
  return NULL;
}

static void clean(many *m) {
  free(m->legs);
  free(m->table);
  free(m->group);
  free(m->runs);
  free(m->fills);
  free(m->made);
  crl_batch_clean(&m->batch);
}

static int make(many *m, size_t count, size_t *mask) {
  size_t slots = 2;
  if (count > COUNT_MOST) return 0;
  while (slots < 2 * count) slots *= 2;
  *mask = slots - 1;
  m->count = count;
  m->legs = crl_alloc(count * sizeof *m->legs);
  m->table = crl_alloc(slots * sizeof *m->table);
  m->group = crl_alloc(count * sizeof *m->group);
  m->runs = crl_alloc(count * sizeof *m->runs);
  m->fills = crl_alloc(count * sizeof *m->fills);
  m->made = crl_alloc(count * sizeof *m->made);
  return m->legs != NULL && m->table != NULL && m->group != NULL && m->runs != NULL &&
         m->fills != NULL && m->made != NULL && crl_batch_make(&m->batch, m->context, count);
}

static void begin_all(many *m, corral_item *items, size_t mask) {
  for (size_t i = 0; i < m->count; i++) {
    leg *l = &m->legs[i];
    l->item = &items[i];
    if (items[i].status == CORRAL_OK && (l->twin = find_twin(m, mask, i)) == NULL) begin(m, l);
  }
}

static void copy_twins(many *m) {
  for (size_t i = 0; i < m->count; i++) {
    const corral_item *twin = m->legs[i].twin;
    corral_item *item = m->legs[i].item;
    if (twin == NULL) continue;
    item->status = twin->status;
    item->error = twin->error;
    item->value = twin->value == NULL ? NULL : corral_value_ref(twin->value);
  }
}

/* Abandons legs that have not ended, which happens when a compute did not return. */
static void leave_legs(many *m) {
  for (size_t i = 0; m->legs != NULL && i < m->count; i++) {
    leg *l = &m->legs[i];
    if (l->run != NULL) {
      crl_run_abandon(l->run);
      crl_run_free(l->run);
      l->run = NULL;
    }
    if (l->joined != NULL) {
      crl_herd_unlisten(l->joined, &l->listener, CRL_WAIT_LEFT);
      crl_entry_unref(l->joined);
    }
  }
  give_slot(m);
}

static void leave(many *m) {
  leave_legs(m);
  crl_cancel_leave(m->call->cancel_token, &m->canceller);
  crl_waiter_clean(&m->waiter);
  clean(m);
}

static void fly(many *m, corral_item *items, size_t mask) {
  size_t doing;
  begin_all(m, items, mask);
  while (m->open > 0) {
    if ((doing = gather(m)) > 0)
      act(m, doing);
    else
      wait(m);
  }
  copy_twins(m);
}

int crl_many_call(crl_context *context, const crl_call *asked, corral_item *items, size_t count) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  crl_call call = *asked;
  size_t mask;
  call.cancel = cancel;
  many parts = {
      .context = context, .call = &call, .deadline = crl_env_now_ms() + call.policy.wait_ms};
  if (!make(&parts, count, &mask)) {
    clean(&parts);
    return CORRAL_ENOMEM;
  }
  __attribute__((cleanup(leave))) many m = parts;
  crl_waiter_init(&m.waiter);
  crl_cancel_join_waiter(call.cancel_token, &m.canceller, &m.waiter);
  fly(&m, items, mask);
  return CORRAL_OK;
}
