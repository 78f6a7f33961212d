/* herd.c: one flight per key per process; all other callers join it.
 *
 * A waiter sleeps on a word that each change of the entry increments. The outcome of a landed
 * flight never changes, so woken waiters copy it without the latch, for which fifty of them would
 * otherwise compete. */
#include "herd/herd.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "os/env.h"
#include "herd/map.h"

crl_herd *crl_herd_new(void) { return crl_alloc(sizeof(crl_herd)); }

void crl_herd_free(crl_herd *herd) {
  for (int i = 0; i < CRL_SHARDS; i++) crl_table_clean(&herd->shards[i].entries);
  free(herd);
}

static void lock(crl_entry *entry) {
  crl_map_lock(entry->home);
  CRL_CHECK_BY(crl_map_check_entry, entry);
}

static void unlock(crl_entry *entry) {
  CRL_CHECK_BY(crl_map_check_entry, entry);
  crl_map_unlock(entry->home);
}

/* ---- under the shard's latch --------------------------------------------------------------- */

static void copy_outcome(crl_outcome *to, const crl_outcome *from) {
  *to = *from;
  if (to->bytes != NULL) crl_bytes_ref(to->bytes);
}

static void tell_listeners(crl_entry *entry) {
  for (crl_listener *l = entry->listeners; l != NULL; l = l->next) {
    atomic_store(&l->stirred, 1);
    crl_waiter_wake(l->waiter);
  }
}

/* Sleepers that one thread wakes at a time where there are more processors: each of them wakes as
 * many. On fewer processors one thread wakes all, since handing on would only cost. */
enum { RELAY = 2 };

static uint64_t at_a_time(void) { return crl_env_processors() > RELAY ? RELAY : INT_MAX; }

/* Waiters sleep with a bit: LATE, when nothing was asked of the store since they began. Those are
 * not woken for a published value, which needs to be settled before it is an answer for them. */
enum { EARLY = 1, LATE = 2, ANY = EARLY | LATE };

/* Begins a change, which `left` sleepers at most are to be woken for one after another. */
static void change(crl_entry *entry, size_t left) {
  uint32_t number = atomic_fetch_add(&entry->changes, 1) + 1;
  atomic_store(&entry->unwoken, (uint64_t)number << 32 | (left < INT_MAX ? left : INT_MAX));
}

/* Makes all waiters look again. */
static void wake_all(crl_entry *entry) {
  change(entry, 0);
  crl_env_word_wake_bits(&entry->changes, INT_MAX, ANY);
}

/* Makes all waiters and listeners look again. */
static void tell_all(crl_entry *entry) {
  wake_all(entry);
  tell_listeners(entry);
}

/* Nobody sleeps that is to be woken for the change of `unwoken`, if it is still the last one: those
 * who begin to sleep after a change have seen it. */
static void none_is_left(crl_entry *entry, uint64_t unwoken) {
  uint64_t now = atomic_load(&entry->unwoken);
  while (now >> 32 == unwoken >> 32 &&
         !atomic_compare_exchange_weak(&entry->unwoken, &now, unwoken >> 32 << 32)) {
  }
}

/* Hands on the end of a flight, or its published value: wakes some of those who are left, each of
 * whom does the same. Nobody is woken twice for one change, and where none is left there is no
 * system call. */
static void relay(crl_entry *entry) {
  uint64_t unwoken = atomic_load(&entry->unwoken), most = at_a_time(), count;
  do {
    uint64_t left = unwoken & UINT32_MAX;
    count = left < most ? left : most;
    if (count == 0) return;
  } while (!atomic_compare_exchange_weak(&entry->unwoken, &unwoken, unwoken - count));
  int has_ended = atomic_load(&entry->state) != FLYING;
  int woken =
      crl_env_word_wake_bits(&entry->changes, (int)count, has_ended ? ANY : entry->answered);
  if (woken < (int)count) none_is_left(entry, unwoken);
}

/* Begins to hand on a change. */
static void tell_first(crl_entry *entry) {
  if (entry->waiting == 0) return;
  change(entry, entry->waiting);
  relay(entry);
}

/* True while there is a value that may be served stale: a caller who looks need not wait. */
static int has_grace(const crl_entry *entry) {
  return entry->interim_last > 0 && crl_env_now_ms() < entry->interim_last;
}

/* ---- entering ------------------------------------------------------------------------------ */

static crl_shard *home_of(crl_herd *herd, uint64_t hash) {
  return &herd->shards[hash % CRL_SHARDS];
}

static crl_entry *find_for(crl_shard *home, const crl_entrance *entrance) {
  if (entrance->from != NULL && entrance->from->successor != NULL) return entrance->from->successor;
  return crl_map_find(home, entrance->hash, entrance->name);
}

/* There is no entry of the key. */
static crl_enter take_first_part(crl_shard *home, const crl_entrance *entrance, crl_entry **ret) {
  crl_stub *stub = crl_map_find_stub(home, entrance->hash, entrance->name);
  if (stub != NULL && entrance->is_served) return CRL_ENTER_APART;
  *ret = stub != NULL ? crl_map_grow(home, stub)
                      : crl_map_put_in(home, entrance->hash, entrance->name);
  if (*ret == NULL) return CRL_ENTER_NOT;
  if (stub == NULL) return CRL_ENTER_LEADS;
  (*ret)->latest = entrance->since;
  return CRL_ENTER_JOINS;
}

void crl_herd_slow(crl_entry *entry, int slow) {
  atomic_store_explicit(&entry->slow, slow, memory_order_relaxed);
}

int crl_herd_is_slow(const crl_entry *entry) {
  return atomic_load_explicit(&((crl_entry *)(uintptr_t)entry)->slow, memory_order_relaxed);
}

/* Called with the shard's latch held. */
static crl_enter take_part(crl_shard *home, const crl_entrance *entrance, crl_entry **ret) {
  crl_entry *entry = *ret = find_for(home, entrance);
  if (entry == NULL) return take_first_part(home, entrance, ret);
  if (entry->vacant) {
    entry->vacant = 0;
    return CRL_ENTER_LEADS;
  }
  if (entrance->is_served || (!entrance->looked && has_grace(entry))) {
    *ret = NULL;
    return CRL_ENTER_APART;
  }
  if (entrance->since > entry->latest) entry->latest = entrance->since;
  return CRL_ENTER_JOINS;
}

crl_enter crl_herd_enter(crl_herd *herd, crl_entrance *entrance, crl_entry **ret, uint64_t *tick) {
  crl_shard *home = home_of(herd, entrance->hash);
  crl_map_lock(home);
  *tick = atomic_fetch_add(&home->ticks, 1) + 1;
  if (entrance->since == 0) entrance->since = *tick;
  crl_enter how = take_part(home, entrance, ret);
  if (*ret != NULL) (*ret)->refs++;
  crl_map_unlock(home);
  return how;
}

crl_stubbed crl_herd_stub(crl_herd *herd, const crl_name *name, uint64_t hash, crl_stub *stub) {
  crl_shard *home = home_of(herd, hash);
  crl_map_lock(home);
  crl_stubbed is = crl_map_find(home, hash, name) != NULL        ? CRL_STUB_FLIES
                   : crl_map_find_stub(home, hash, name) != NULL ? CRL_STUB_LOOKS
                                                                 : CRL_STUB_LEADS;
  if (is == CRL_STUB_LEADS) {
    *stub = (crl_stub){.next = home->stubs,
                       .link = &home->stubs,
                       .herd = herd,
                       .name = name,
                       .hash = hash,
                       .tick = atomic_fetch_add(&home->ticks, 1) + 1};
    if (stub->next != NULL) stub->next->link = &stub->next;
    home->stubs = stub;
  }
  crl_map_unlock(home);
  return is;
}

void crl_herd_renew_stub(crl_stub *stub) {
  stub->tick = atomic_fetch_add(&home_of(stub->herd, stub->hash)->ticks, 1) + 1;
}

crl_entry *crl_herd_unstub(crl_stub *stub) {
  crl_shard *home = home_of(stub->herd, stub->hash);
  crl_map_lock(home);
  crl_map_take_out_stub(stub);
  crl_map_unlock(home);
  return stub->entry;
}

crl_entry *crl_herd_keep_stub(crl_stub *stub) {
  crl_shard *home = home_of(stub->herd, stub->hash);
  crl_map_lock(home);
  crl_entry *entry = stub->entry != NULL ? stub->entry : crl_map_grow(home, stub);
  crl_map_take_out_stub(stub);
  crl_map_unlock(home);
  return entry;
}

crl_entry *crl_herd_private(crl_herd *herd, const crl_name *name, uint64_t hash) {
  crl_shard *home = home_of(herd, hash);
  crl_map_lock(home);
  crl_entry *entry = crl_map_put_in(home, hash, name);
  if (entry != NULL) {
    crl_map_take_out(entry);
    entry->refs++;
  }
  crl_map_unlock(home);
  return entry;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* The bit that a waiter sleeps with. Called with the shard's latch held. */
static uint32_t bit_of(crl_entry *entry, const crl_patience *patience) {
  uint64_t asked = atomic_load(&entry->asked);
  if (patience->owns || asked == 0 || patience->since < asked) return EARLY;
  if (entry->first_late == 0 || patience->since < entry->first_late)
    entry->first_late = patience->since;
  return LATE;
}

static int is_good(const crl_entry *entry, const crl_patience *patience) {
  return patience->owns || patience->since < atomic_load(&entry->good);
}

/* The same of the stale value that is offered: what the store confirmed since then is the lease,
 * not that value. */
static int is_interim_good(const crl_entry *entry, const crl_patience *patience) {
  return patience->owns || patience->since < entry->interim_good;
}

static crl_wait give(const crl_outcome *from, crl_outcome *outcome) {
  copy_outcome(outcome, from);
  return CRL_WAIT_LANDED;
}

/* A look without the latch: sees that a flight has landed or published its value, and nothing
 * else. */
static crl_wait glance(const crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  if (atomic_load(&entry->passes) && !patience->owns) return (crl_wait)0;
  if (atomic_load(&entry->state) == LANDED)
    return is_good(entry, patience) ? give(&entry->outcome, outcome) : CRL_WAIT_GIVEN_UP;
  int published = atomic_load(&entry->published);
  /* its owner may wait to hear that the value is stored */
  int has = patience->owns ? published == CRL_FOR_OWNER : published && is_good(entry, patience);
  return has ? give(&entry->interim, outcome) : (crl_wait)0;
}

static int offers_at_once(const crl_entry *entry) {
  return !entry->published && entry->interim_until > 0 && entry->node.link != NULL &&
         crl_env_now_ms() < entry->interim_until;
}

/* The result that a waiter gets now; 0: none yet. */
static crl_wait ready(const crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  if (entry->passes && !patience->owns) return CRL_WAIT_PASS;
  crl_wait result = glance(entry, patience, outcome);
  if (result != 0) return result;
  int is_served = is_interim_good(entry, patience);
  if (offers_at_once(entry) && is_served) return give(&entry->interim, outcome);
  int looks = !patience->looked && !entry->published && has_grace(entry) && !is_served;
  if (entry->state == GIVEN_UP || looks || (entry->lost && !is_good(entry, patience)))
    return CRL_WAIT_GIVEN_UP;
  return crl_cancelled(patience->cancel_token) ? CRL_WAIT_LEFT : (crl_wait)0;
}

/* The answer for callers whose time is over: a stale one, or the value that is being settled; 0:
 * none. */
static crl_wait last_resort(const crl_entry *entry, const crl_patience *patience,
                            crl_outcome *outcome) {
  if (entry->published) return give(&entry->interim, outcome);
  return entry->node.link != NULL && has_grace(entry) && is_interim_good(entry, patience)
             ? give(&entry->interim, outcome)
             : (crl_wait)0;
}

static int has_soft_end(const crl_patience *patience) {
  return patience->soft_until > 0 && patience->soft_until < patience->deadline;
}

/* The result that a waiter gets now, by its time limits too; 0: none yet. */
static crl_wait look(const crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  crl_wait result = ready(entry, patience, outcome);
  int64_t now = crl_env_now_ms();
  if (result == 0 && now >= (has_soft_end(patience) ? patience->soft_until : patience->deadline))
    result = last_resort(entry, patience, outcome);
  return result == 0 && now >= patience->deadline ? CRL_WAIT_DEADLINE : result;
}

void crl_herd_pass(crl_entry *entry) {
  lock(entry);
  entry->passes = 1;
  crl_map_take_out(entry);
  tell_all(entry);
  unlock(entry);
}

static void stir(void *arg) {
  crl_entry *entry = arg;
  lock(entry);
  wake_all(entry);
  unlock(entry);
}

/* A caller that has something of a place begins to wait (1) or ends that (-1). Called with the
 * shard's latch held. */
static void lend(crl_entry *entry, unsigned lends, int change) {
  for (int i = 0; i < CRL_LENT; i++)
    if (lends >> i & 1) entry->lenders[i] += (size_t)change;
  if (change > 0 && entry->borrower != NULL) crl_waiter_wake(entry->borrower);
}

static void lend_place(crl_entry *entry, const crl_patience *patience, int change) {
  if (patience->lends == 0) return;
  lock(entry);
  lend(entry, patience->lends, change);
  unlock(entry);
}

unsigned crl_herd_lent(crl_entry *entry, crl_waiter *waiter) {
  lock(entry);
  unsigned lent = 0;
  for (int i = 0; i < CRL_LENT; i++) lent |= (entry->lenders[i] > 0 ? 1U : 0U) << i;
  entry->borrower = waiter;
  unlock(entry);
  return lent;
}

/* Called with the shard's latch held. */
static void end_waiting(crl_entry *entry, crl_wait came) {
  entry->waiting--;
  crl_map_waits(entry);
  relay(entry);
  if ((came != CRL_WAIT_DEADLINE && came != CRL_WAIT_LEFT) || entry->waiting > 0) return;
  entry->deserted = 1;
  if (entry->alone != NULL) entry->alone(entry->alone_arg);
}

crl_wait crl_herd_wait(crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  crl_canceller canceller;
  crl_wait result = (crl_wait)0;
  int64_t until = has_soft_end(patience) ? patience->soft_until : patience->deadline;
  crl_cancel_join(patience->cancel_token, &canceller, stir, entry);
  atomic_fetch_add(&entry->waiting, 1);
  crl_map_waits(entry);
  lend_place(entry, patience, 1);
  while (result == 0) {
    lock(entry);
    result = look(entry, patience, outcome);
    uint32_t seen = atomic_load(&entry->changes), bit = bit_of(entry, patience);
    if (result != 0) end_waiting(entry, result);
    unlock(entry);
    if (result != 0) break;
    crl_env_word_wait_bits(&entry->changes, seen, bit, until);
    if (crl_env_now_ms() >= until) until = patience->deadline;
    if ((result = glance(entry, patience, outcome)) != 0) {
      atomic_fetch_sub(&entry->waiting, 1);
      crl_map_waits(entry);
    }
    relay(entry);
  }
  lend_place(entry, patience, -1);
  crl_cancel_leave(patience->cancel_token, &canceller);
  return result;
}

/* ---- listeners ----------------------------------------------------------------------------- */

void crl_herd_listen(crl_entry *entry, crl_listener *listener, crl_waiter *waiter, unsigned lends) {
  listener->waiter = waiter;
  listener->lends = lends;
  atomic_init(&listener->stirred, 1);
  lock(entry);
  listener->next = entry->listeners;
  listener->link = &entry->listeners;
  if (listener->next != NULL) listener->next->link = &listener->next;
  entry->listeners = listener;
  entry->waiting++;
  crl_map_waits(entry);
  if (lends != 0) lend(entry, lends, 1);
  unlock(entry);
}

crl_wait crl_herd_look(crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  lock(entry);
  crl_wait result = look(entry, patience, outcome);
  unlock(entry);
  return result;
}

void crl_herd_unlisten(crl_entry *entry, crl_listener *listener, crl_wait came) {
  lock(entry);
  *listener->link = listener->next;
  if (listener->next != NULL) listener->next->link = listener->link;
  lend(entry, listener->lends, -1);
  end_waiting(entry, came);
  unlock(entry);
}

void crl_herd_heed(crl_entry *entry, void (*alone)(void *arg), void *arg) {
  lock(entry);
  entry->alone = alone;
  entry->alone_arg = arg;
  if (alone != NULL && entry->deserted && entry->waiting == 0) alone(arg);
  unlock(entry);
}

void crl_herd_if_alone(crl_entry *entry, void (*alone)(void *arg), void *arg) {
  lock(entry);
  if (entry->waiting == 0) alone(arg);
  unlock(entry);
}

/* ---- the flight's side --------------------------------------------------------------------- */

_Atomic uint64_t *crl_herd_ticks(crl_entry *entry) { return &entry->home->ticks; }

uint64_t crl_herd_tick(crl_entry *entry) {
  uint64_t tick = atomic_fetch_add(&entry->home->ticks, 1) + 1;
  atomic_store(&entry->asked, tick);
  return tick;
}

/* Called with the shard's latch held. */
static void raise_good(crl_entry *entry, uint64_t tick) {
  if (entry->limit > 0 && tick > entry->limit) tick = entry->limit;
  if (entry->state == FLYING && tick > entry->good) atomic_store(&entry->good, tick);
}

void crl_herd_limit(crl_entry *entry, uint64_t tick) {
  lock(entry);
  entry->limit = tick;
  if (entry->state == FLYING && entry->good > tick) atomic_store(&entry->good, tick);
  unlock(entry);
}

void crl_herd_confirm(crl_entry *entry, uint64_t tick) {
  lock(entry);
  raise_good(entry, tick);
  if (entry->waiting > 0 && (entry->published || has_grace(entry))) tell_all(entry);
  unlock(entry);
}

/* Called with the shard's latch held. */
static void set_interim(crl_entry *entry, const crl_outcome *outcome) {
  crl_bytes_unref(entry->interim.bytes);
  copy_outcome(&entry->interim, outcome);
}

void crl_herd_interim(crl_entry *entry, const crl_outcome *outcome, int64_t until, int64_t last) {
  lock(entry);
  set_interim(entry, outcome);
  entry->interim_good = atomic_load(&entry->good);
  entry->interim_until = until;
  entry->interim_last = last;
  tell_all(entry);
  unlock(entry);
}

void crl_herd_publish(crl_entry *entry, const crl_outcome *outcome, int to_owner) {
  lock(entry);
  if (!entry->published && entry->state == FLYING) {
    set_interim(entry, outcome);
    /* an ask that was answered later may have made it good for late ones, too */
    int late_too = entry->first_late != 0 && entry->first_late < atomic_load(&entry->good);
    entry->answered = late_too ? ANY : EARLY;
    atomic_store(&entry->published, to_owner ? CRL_FOR_OWNER : CRL_FOR_JOINERS);
    tell_first(entry);
    tell_listeners(entry);
  }
  unlock(entry);
}

/* Called with the shard's latch held. Without memory each waiter that is left enters alone. */
static void leave_successor(crl_entry *entry) {
  crl_name name = {.key = entry->name,
                   .key_len = entry->key_len,
                   .variant = entry->name + entry->key_len,
                   .variant_len = entry->variant_len};
  crl_entry *next = crl_map_put_in(entry->home, entry->node.hash, &name);
  if (next == NULL) return;
  next->vacant = 1;
  next->refs = 1;
  entry->successor = next;
}

static void end(crl_entry *entry, crl_entry_state how, const crl_outcome *outcome, uint64_t good) {
  lock(entry);
  if (entry->state == FLYING) {
    if (outcome != NULL) copy_outcome(&entry->outcome, outcome);
    atomic_store(&entry->good, good);
    atomic_store(&entry->state, how);
    int was_in = entry->node.link != NULL;
    crl_map_take_out(entry);
    if (was_in && how == LANDED && entry->waiting > 0 && entry->latest >= good)
      leave_successor(entry);
    tell_first(entry);
    tell_listeners(entry);
  }
  unlock(entry);
}

void crl_herd_land(crl_entry *entry, const crl_outcome *outcome, uint64_t good) {
  end(entry, LANDED, outcome, good);
}

void crl_herd_lose(crl_entry *entry) {
  lock(entry);
  crl_map_take_out(entry);
  entry->lost = 1;
  tell_all(entry);
  unlock(entry);
}

void crl_herd_give_up(crl_entry *entry) { end(entry, GIVEN_UP, NULL, 0); }

void crl_herd_detach(crl_entry *entry) {
  lock(entry);
  crl_map_take_out(entry);
  unlock(entry);
}

void crl_herd_detach_key(crl_herd *herd, const crl_name *name) {
  uint64_t hash = crl_name_hash(name);
  crl_shard *home = home_of(herd, hash);
  crl_map_lock(home);
  crl_entry *entry = crl_map_find(home, hash, name);
  crl_stub *stub = crl_map_find_stub(home, hash, name);
  if (entry != NULL) crl_map_take_out(entry);
  if (stub != NULL) crl_map_take_out_stub(stub);
  crl_map_unlock(home);
}

void crl_herd_detach_all(crl_herd *herd) {
  for (size_t i = 0; i < CRL_SHARDS; i++) {
    crl_shard *home = &herd->shards[i];
    crl_map_lock(home);
    for (size_t b = 0; b < home->entries.size; b++)
      while (home->entries.buckets[b] != NULL)
        crl_map_take_out(crl_map_entry(home->entries.buckets[b]));
    while (home->stubs != NULL) crl_map_take_out_stub(home->stubs);
    crl_map_unlock(home);
  }
}

crl_entry *crl_entry_ref(crl_entry *entry) {
  atomic_fetch_add(&entry->refs, 1);
  return entry;
}

/* The last reference is given up under the latch, under which new callers take theirs. */
void crl_entry_unref(crl_entry *entry) {
  crl_shard *home = entry->home;
  size_t refs = atomic_load(&entry->refs);
  while (refs > 1)
    if (atomic_compare_exchange_weak(&entry->refs, &refs, refs - 1)) return;
  crl_map_lock(home);
  int last = atomic_fetch_sub(&entry->refs, 1) == 1;
  if (last) crl_map_take_out(entry);
  crl_map_unlock(home);
  if (!last) return;
  crl_bytes_unref(entry->outcome.bytes);
  crl_bytes_unref(entry->interim.bytes);
  if (entry->successor != NULL) crl_entry_unref(entry->successor);
  free(entry);
}

size_t crl_herd_count(crl_herd *herd) {
  size_t count = 0;
  for (int i = 0; i < CRL_SHARDS; i++) {
    crl_map_lock(&herd->shards[i]);
    count += herd->shards[i].entries.count;
    crl_map_unlock(&herd->shards[i]);
  }
  return count;
}

size_t crl_herd_waiting(crl_herd *herd, const crl_name *name) {
  uint64_t hash = crl_name_hash(name);
  crl_shard *home = home_of(herd, hash);
  crl_map_lock(home);
  crl_entry *entry = crl_map_find(home, hash, name);
  size_t waiting = entry == NULL ? 0 : entry->waiting;
  crl_map_unlock(home);
  return waiting;
}
