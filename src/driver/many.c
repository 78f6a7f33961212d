/* many.c: the scheduler of a call of several keys: drives a run for each on the caller's thread.
 * Store operations that are due at the same time are one batch, and computes that are due at the
 * same time are one compute.
 *
 * Each round drives all runs as far as they go, then performs the need that comes first in the
 * table below, for all runs that have it. So nothing is computed while another run could still
 * reach its compute, and nothing is waited for (a change in the store, a host lock, another flight)
 * while a compute is due: two calls with keys in common each finish the flights that they lead
 * before they wait for each other. */
#include <stdlib.h>

#include "base/status.h"
#include "driver/advance.h"
#include "driver/batch.h"
#include "driver/block.h"
#include "os/env.h"
#include "os/hash.h"

enum {
  COUNT_MOST = 1 << 24, /* keys of one call */
  /* least time between two looks after wake-ups: wake-ups within it share the second look */
  GAP_MS = 2,
  SLICE_MS = 4 /* length of one wait for a host lock while the call waits for other things too */
};

/* Order of the needs; needs of one rank are performed together. */
enum { COMPUTES = 8, WAITS = 9 };
static const uint8_t ranks[] = {
    [CRL_ASK_GET] = 3, [CRL_ASK_CLAIM] = 6, [CRL_ASK_SETTLE] = 7, [CRL_ASK_RELEASE] = 7};

/* One key, or a copy of an earlier item (twin). */
typedef struct leg {
  corral_item *item;
  const corral_item *twin; /* the earlier item of the same key; NULL: none */
  crl_join join;
  int open;
  int rank;      /* of what the run needs; WAITS: until `until`, or a wake */
  int at_host;   /* it waits for its host lock */
  int woken;     /* what it waits for has come */
  int64_t until; /* end of its wait */
} leg;

typedef struct many {
  crl_context *context;
  const crl_call *call;
  int64_t deadline;
  size_t count, open; /* number of legs, and of those that have not ended */
  leg *legs;
  size_t *table;    /* hash table of keys: index of a leg + 1; 0: empty */
  crl_run **runs;   /* of the current round */
  size_t *looking;  /* numbers of the legs whose first look is due */
  crl_join **joins; /* of these */
  crl_told *told;
  corral_fill **fills;
  crl_batch batch;
  crl_waiter waiter; /* woken for all runs and entries, and by the cancel token */
  crl_canceller canceller;
  crl_slot slot;       /* one slot for all computes of the call */
  crl_outcome outcome; /* of the leg that ends */
  /* time of the last look after a wake-up; of the next one, 0: none is due */
  int64_t looked, look_at;
} many;

/* ---- one leg ------------------------------------------------------------------------------- */

static void end(many *m, leg *l) {
  l->item->status =
      crl_outcome_deliver(m->context, l->join.outcome, &l->item->error, &l->item->value);
  l->open = 0;
  m->open--;
}

/* After the leg's part in the herd has changed. */
static void settle(many *m, leg *l) {
  if (l->join.state == CRL_JOIN_ENDED) end(m, l);
  if (l->join.state != CRL_JOIN_LEADS || l->join.run->waiter != NULL) return;
  crl_run *r = l->join.run;
  r->waiter = &m->waiter;
  r->slot = &m->slot;
  l->woken = 0;
  crl_run_meet_caller(r, m->call->cancel_token);
}

static void begin(many *m, leg *l) {
  crl_join_init(&l->join, m->context, m->call, l->item->key, l->item->key_len);
  l->join.deadline = m->deadline;
  l->join.waiter = &m->waiter;
  l->join.outcome = &m->outcome;
  l->open = 1;
  m->open++;
  crl_run_count(m->context, m->call, l->item->key, l->item->key_len);
  crl_join_begin(&l->join);
  settle(m, l);
}

static int leads(const leg *l) { return l->open && l->join.state == CRL_JOIN_LEADS; }
static int joins(const leg *l) { return l->open && l->join.state == CRL_JOIN_WAITS; }

static void advance(many *m, leg *l) {
  crl_run *r = l->join.run;
  crl_need need = crl_advance(r, l->woken, &l->until);
  l->woken = 0;
  l->at_host = need == CRL_NEED_HOST;
  l->rank = need == CRL_NEED_STORE ? ranks[r->ask] : need == CRL_NEED_COMPUTE ? COMPUTES : WAITS;
  if (need == CRL_NEED_ELSEWHERE)
    crl_block_hand_over(&l->join);
  else if (need == CRL_NEED_NOTHING)
    crl_join_land(&l->join);
  else
    return;
  settle(m, l);
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* A slot that no run has or waits for any more is given back, or leaves the queue. */
static void give_slot(many *m) {
  for (size_t i = 0; i < m->count; i++)
    if (leads(&m->legs[i]) && (m->legs[i].join.run->has_slot || m->legs[i].join.run->asks_slot))
      return;
  if (m->slot.users == 0) crl_semaphore_leave(m->context->limiter, &m->slot);
}

/* Drives all runs, and collects those of the next round; 0: all legs only wait. *rank: what they
 * need. */
static size_t gather(many *m, int *rank) {
  size_t count = 0;
  *rank = WAITS;
  for (size_t i = 0; i < m->count; i++) {
    leg *l = &m->legs[i];
    if (leads(l)) advance(m, l);
    if (leads(l) && l->rank < *rank) *rank = l->rank;
  }
  for (size_t i = 0; *rank < WAITS && i < m->count; i++)
    if (leads(&m->legs[i]) && m->legs[i].rank == *rank) m->runs[count++] = m->legs[i].join.run;
  return count;
}

/* ---- first looks --------------------------------------------------------------------------- */

static size_t gather_looks(many *m) {
  size_t count = 0;
  for (size_t i = 0; i < m->count; i++) {
    leg *l = &m->legs[i];
    if (!l->open || l->join.state != CRL_JOIN_LOOKS) continue;
    m->joins[count] = &l->join;
    m->looking[count++] = i;
  }
  return count;
}

/* Makes the first looks that are due. Without memory for them, runs make them. 0: none was due. */
static int look_first(many *m) {
  size_t count = gather_looks(m);
  size_t made = count == 0 ? 0 : crl_batch_look(&m->batch, m->joins, count, m->told);
  for (size_t i = 0; i < made; i++) {
    leg *l = &m->legs[m->looking[i]];
    if (l->join.state == CRL_JOIN_LOOKS) crl_join_looked(&l->join, m->batch.found[i], &m->told[i]);
    settle(m, l);
  }
  for (size_t i = 0; made == 0 && i < count; i++) {
    crl_join_fly(m->joins[i], 0);
    settle(m, &m->legs[m->looking[i]]);
  }
  return count > 0;
}

/* ---- waiting ------------------------------------------------------------------------------- */

static int is_cancelled(const many *m) { return crl_cancelled(m->call->cancel_token); }

/* The things that a call waits for when nothing else is to be done. */
typedef struct rest {
  int64_t until;
  const crl_run *host; /* a run that waits for its host lock; NULL: none */
  int others;          /* other things are waited for too */
} rest;

/* The moment of the next look at an entry. */
static int64_t next_look(const leg *l) {
  return atomic_load(&l->join.listener.stirred) ? 0 : crl_join_until(&l->join);
}

static rest prepare(const many *m) {
  rest ret = {.until = INT64_MAX};
  for (size_t i = 0; i < m->count; i++) {
    const leg *l = &m->legs[i];
    if (!l->open) continue;
    int64_t until = leads(l) ? l->until : next_look(l);
    if (until < ret.until) ret.until = until;
    if (leads(l) && l->at_host)
      ret.host = l->join.run;
    else
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
  if (r->host == NULL) {
    woken = crl_waiter_sleep(&m->waiter, until);
  } else {
    if (r->others && until > now + SLICE_MS) until = now + SLICE_MS;
    crl_hostlock_wait(m->context->hostlock, r->host->found.key.whole, r->host->found.key.whole_len,
                      until, m->call->cancel_token);
    is_free = crl_env_now_ms() < until;
    woken = crl_waiter_sleep(&m->waiter, 0);
  }
  now = crl_env_now_ms();
  if (woken && m->look_at == 0) m->look_at = now > m->looked + GAP_MS ? now : m->looked + GAP_MS;
  return is_free;
}

/* Looks at the entries that changed; at all of them when a time limit has come or the call was
 * cancelled. */
static void look_at_entries(many *m) {
  int64_t now = crl_env_now_ms();
  int all = is_cancelled(m);
  for (size_t i = 0; i < m->count; i++) {
    leg *l = &m->legs[i];
    if (!joins(l) || (!all && next_look(l) > now)) continue;
    crl_join_look(&l->join);
    settle(m, l);
  }
}

/* Waits until something changes or a wait ends. A wake is for all runs: which one, it doesn't
 * tell. */
static void wait(many *m) {
  rest r = prepare(m);
  int is_free = sleep_through(m, &r);
  int64_t now = crl_env_now_ms();
  int looks = m->look_at > 0 && m->look_at <= now;
  if (looks) {
    m->look_at = 0;
    m->looked = now;
  }
  for (size_t i = 0; i < m->count; i++)
    if (leads(&m->legs[i])) m->legs[i].woken = m->legs[i].at_host ? is_free : looks;
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
  free(m->runs);
  free(m->fills);
  free(m->looking);
  free(m->joins);
  free(m->told);
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
  m->runs = crl_alloc(count * sizeof *m->runs);
  m->fills = crl_alloc(count * sizeof *m->fills);
  m->looking = crl_alloc(count * sizeof *m->looking);
  m->joins = crl_alloc(count * sizeof *m->joins);
  m->told = crl_alloc(count * sizeof *m->told);
  return m->legs != NULL && m->table != NULL && m->runs != NULL && m->fills != NULL &&
         m->looking != NULL && m->joins != NULL && m->told != NULL &&
         crl_batch_make(&m->batch, m->context, count);
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
    if (!m->legs[i].open) continue;
    crl_stats_result(&m->context->events.stats, CORRAL_RESULT_ERROR, 0);
    crl_join_leave(&m->legs[i].join);
  }
  crl_semaphore_leave(m->context->limiter, &m->slot);
}

static void leave(many *m) {
  leave_legs(m);
  crl_cancel_leave(m->call->cancel_token, &m->canceller);
  clean(m);
}

static void fly(many *m, corral_item *items, size_t mask) {
  begin_all(m, items, mask);
  while (m->open > 0) {
    int rank;
    if (look_first(m)) continue;
    size_t doing = gather(m, &rank);
    if (rank == COMPUTES)
      crl_advance_compute(m->runs, m->fills, doing);
    else if (doing > 0)
      crl_batch_perform(&m->batch, m->runs, doing);
    else if (m->open > 0)
      wait(m);
    give_slot(m);
  }
  copy_twins(m);
}

int crl_many_call(crl_context *context, crl_call *call, corral_item *items, size_t count) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  size_t mask;
  call->cancel = cancel;
  many parts = {
      .context = context, .call = call, .deadline = crl_env_now_ms() + call->policy->wait_ms};
  if (!make(&parts, count, &mask)) {
    clean(&parts);
    return CORRAL_ENOMEM;
  }
  __attribute__((cleanup(leave))) many m = parts;
  crl_slot_init(&m.slot);
  crl_cancel_join_waiter(call->cancel_token, &m.canceller, &m.waiter);
  fly(&m, items, mask);
  return CORRAL_OK;
}
