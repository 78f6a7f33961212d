/* hot.c: the heaviest keys, and the hot ones. */
#include "stats/hot.h"

#include <string.h>

#include "base/check.h"
#include "os/env.h"
#include "os/hash.h"

/* ---- the table ------------------------------------------------------------------------------- */

/* Other threads read meanwhile. */
static uint64_t get(const _Atomic uint64_t *word) {
  return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)word, memory_order_relaxed);
}

static void set(_Atomic uint64_t *word, uint64_t to) {
  atomic_store_explicit(word, to, memory_order_relaxed);
}

static void raise(_Atomic uint64_t *word, uint64_t by) { set(word, get(word) + by); }

static size_t find(const crl_hot_table *table, uint64_t hash) {
  size_t i = 0;
  while (i < CRL_HOT_KEYS && (get(&table->hashes[i]) != hash || get(&table->counts[i]) == 0)) i++;
  return i;
}

/* The counter with the smallest count: a free one, if there is any. */
static size_t smallest(const crl_hot_table *table) {
  size_t least = 0;
  uint64_t count = get(&table->counts[0]);
  for (size_t i = 1; i < CRL_HOT_KEYS && count > 0; i++) {
    uint64_t other = get(&table->counts[i]);
    if (other >= count) continue;
    count = other;
    least = i;
  }
  return least;
}

static void set_name(crl_hot_table *table, size_t i, const crl_hot_name *name) {
  uint64_t words[CRL_HOT_WORDS] = {0};
  memcpy(words, name, sizeof *name);
  for (size_t k = 0; k < CRL_HOT_WORDS; k++) set(&table->names[i][k], words[k]);
}

crl_hot_name crl_hot_name_of(const crl_hot_table *table, size_t i) {
  crl_hot_name name;
  uint64_t words[CRL_HOT_WORDS];
  for (size_t k = 0; k < CRL_HOT_WORDS; k++) words[k] = get(&table->names[i][k]);
  memcpy(&name, words, sizeof name);
  return name;
}

static void begin(crl_hot_table *table, size_t i, const crl_hot_get *asked) {
  uint8_t sum[CRL_DIGEST];
  crl_hot_name name = {.key_len = (uint32_t)asked->key_len};
  crl_sum(asked->stored, asked->stored_len, sum);
  memcpy(&name.sum, sum, sizeof name.sum);
  memcpy(name.key, asked->key, asked->key_len < CRL_HOT_NAME ? asked->key_len : CRL_HOT_NAME);
  set(&table->errors[i], get(&table->counts[i]));
  set(&table->hashes[i], asked->hash);
  set_name(table, i, &name);
}

/* A key without a counter takes that of the smallest count, which becomes its error. */
size_t crl_hot_count(crl_hot_table *table, const crl_hot_get *asked, uint64_t weight) {
  size_t i = find(table, asked->hash);
  if (i == CRL_HOT_KEYS) begin(table, i = smallest(table), asked);
  raise(&table->counts[i], weight);
  raise(&table->total, weight);
  return i;
}

/* The count is rounded down and its error up: so no more than the key's gets is ever certain. */
static void halve(crl_hot_table *table, size_t i, int64_t times) {
  uint64_t up = (UINT64_C(1) << times) - 1, count = get(&table->counts[i]) >> times,
           error = get(&table->errors[i]);
  error = (error >> times) + ((error & up) != 0);
  set(&table->counts[i], count);
  set(&table->errors[i], error < count ? error : count);
}

void crl_hot_settle(crl_hot_table *table, int64_t now) {
  enum { MOST = 63 };
  int64_t halved = (int64_t)get(&table->halved);
  if (halved <= 0) set(&table->halved, (uint64_t)(halved = now));
  int64_t times = halved > now ? MOST : (now - halved) / CRL_HOT_HALF_MS;
  if (times == 0) return;
  set(&table->halved, (uint64_t)(times >= MOST ? now : halved + times * CRL_HOT_HALF_MS));
  if (times > MOST) times = MOST;
  set(&table->total, 0);
  for (size_t i = 0; i < CRL_HOT_KEYS; i++) {
    halve(table, i, times);
    raise(&table->total, get(&table->counts[i]));
  }
}

int crl_hot_take(crl_hot_table *ret, const void *bytes) {
  memcpy(ret, bytes, sizeof *ret);
  set(&ret->total, 0);
  for (size_t i = 0; i < CRL_HOT_KEYS; i++) {
    if (get(&ret->errors[i]) > get(&ret->counts[i])) set(&ret->errors[i], get(&ret->counts[i]));
    raise(&ret->total, get(&ret->counts[i]));
  }
  return get(&ret->ended) == get(&ret->begun);
}

/* ---- several tables -------------------------------------------------------------------------- */

/* Twice the counters of a table, while two are added. */
typedef struct both {
  size_t count;
  uint64_t counts[2 * CRL_HOT_KEYS], errors[2 * CRL_HOT_KEYS];
  crl_hot_name names[2 * CRL_HOT_KEYS];
} both;

static size_t find_name(const crl_hot_table *table, const crl_hot_name *wanted) {
  size_t i = 0;
  for (; i < CRL_HOT_KEYS; i++) {
    if (get(&table->counts[i]) == 0 || get(&table->names[i][0]) != wanted->sum) continue;
    crl_hot_name name = crl_hot_name_of(table, i);
    if (name.key_len == wanted->key_len && memcmp(name.key, wanted->key, CRL_HOT_NAME) == 0) break;
  }
  return i;
}

/* A key that the other table lacks may have had so many gets there as its smallest counter. */
static void put(both *all, const crl_hot_table *from, size_t i, const crl_hot_table *other) {
  size_t n = all->count++, least = smallest(other);
  all->names[n] = crl_hot_name_of(from, i);
  size_t there = find_name(other, &all->names[n]);
  int has = there < CRL_HOT_KEYS;
  all->counts[n] = get(&from->counts[i]) + get(&other->counts[has ? there : least]);
  all->errors[n] = get(&from->errors[i]) + get(has ? &other->errors[there] : &other->counts[least]);
}

static size_t largest(const both *all) {
  size_t most = 0;
  for (size_t i = 1; i < all->count; i++)
    if (all->counts[i] > all->counts[most]) most = i;
  return most;
}

void crl_hot_merge(crl_hot_table *sum, const crl_hot_table *more) {
  both all = {.count = 0};
  uint64_t total = get(&sum->total) + get(&more->total);
  for (size_t i = 0; i < CRL_HOT_KEYS; i++)
    if (get(&sum->counts[i]) > 0) put(&all, sum, i, more);
  for (size_t i = 0; i < CRL_HOT_KEYS; i++) {
    crl_hot_name name = crl_hot_name_of(more, i);
    if (get(&more->counts[i]) > 0 && find_name(sum, &name) == CRL_HOT_KEYS) put(&all, more, i, sum);
  }
  memset(sum, 0, sizeof *sum);
  set(&sum->halved, get(&more->halved));
  set(&sum->total, total);
  for (size_t i = 0; i < CRL_HOT_KEYS && i < all.count; i++) {
    size_t most = largest(&all);
    set(&sum->counts[i], all.counts[most]);
    set(&sum->errors[i], all.errors[most]);
    set_name(sum, i, &all.names[most]);
    all.counts[most] = 0;
  }
}

size_t crl_hot_order(const crl_hot_table *table, uint8_t ret[CRL_HOT_KEYS]) {
  size_t count = 0;
  for (size_t i = 0; i < CRL_HOT_KEYS; i++) {
    size_t at = count;
    uint64_t own = get(&table->counts[i]);
    if (own == 0) continue;
    for (; at > 0 && get(&table->counts[ret[at - 1]]) < own; at--) ret[at] = ret[at - 1];
    ret[at] = (uint8_t)i;
    count++;
  }
  return count;
}

/* ---- which gets are counted ------------------------------------------------------------------ */

/* From 1 to twice CRL_HOT_EVERY - 1: keys that are asked for in turns are all met. */
static int draw_distance(void) { return 1 + (int)(crl_env_dice() % (2 * CRL_HOT_EVERY - 1)); }

/* A thread begins with a distance: its first call is counted no more often than others. */
int crl_hot_draw(void) {
  if (crl_reader_mine == NULL && crl_readers_enter()) crl_readers_leave();
  crl_reader *r = crl_reader_mine;
  int is_first = r == NULL || r->distance < 0; /* a new reader has 0 */
  if (r != NULL) r->distance = draw_distance();
  return !is_first;
}

/* ---- the lock -------------------------------------------------------------------------------- */

#ifdef CORRAL_CHECKS
static void check(const crl_hot *hot) {
  const crl_hot_table *table = atomic_load(&((crl_hot *)(uintptr_t)hot)->table);
  uint64_t total = 0;
  for (size_t i = 0; i < CRL_HOT_KEYS; i++) {
    CRL_MUST(get(&table->errors[i]) <= get(&table->counts[i]),
             "hot: no error is more than its count");
    total += get(&table->counts[i]);
  }
  CRL_MUST(total == get(&table->total), "hot: each get has one counter");
  for (uint32_t i = 0; i < CRL_HOT_KEYS; i++)
    CRL_MUST((atomic_load(&hot->marks[i].hash) != 0) == (i < atomic_load(&hot->marked)),
             "hot: the marks stand at the beginning");
}
#endif

static int try_lock(crl_hot *hot) {
  if (atomic_exchange_explicit(&hot->locked, 1, memory_order_acquire)) return 0;
  CRL_CHECK(hot);
  return 1;
}

static void unlock(crl_hot *hot) {
  CRL_CHECK(hot);
  atomic_store_explicit(&hot->locked, 0, memory_order_release);
}

/* All that is changed is atomic: the sanitizer, which doesn't know fences, needs none. */
static inline void fence(void) {
#if !defined(__SANITIZE_THREAD__)
  atomic_thread_fence(memory_order_release);
#endif
}

/* A reader that reads forwards meets `ended`, what is changed, and `begun`. */
static void begin_change(crl_hot_table *table) {
  raise(&table->begun, 1);
  fence();
}

static void end_change(crl_hot_table *table) {
  atomic_store_explicit(&table->ended, get(&table->begun), memory_order_release);
}

/* ---- the hot keys ---------------------------------------------------------------------------- */

static uint64_t marked_at(const crl_hot *hot, uint32_t i) {
  return atomic_load_explicit(&((crl_hot *)(uintptr_t)hot)->marks[i].hash, memory_order_relaxed);
}

/* The place of a key's mark; CRL_HOT_KEYS: it has none. */
static uint32_t find_mark(const crl_hot *hot, uint64_t hash) {
  uint32_t count = atomic_load_explicit(&((crl_hot *)(uintptr_t)hot)->marked, memory_order_relaxed);
  for (uint32_t i = 0; i < count; i++)
    if (marked_at(hot, i) == hash) return i;
  return CRL_HOT_KEYS;
}

static void set_mark(crl_hot *hot, uint32_t i, uint64_t hash, int64_t turn) {
  atomic_store_explicit(&hot->marks[i].turn, turn, memory_order_relaxed);
  atomic_store_explicit(&hot->marks[i].hash, hash, memory_order_relaxed);
}

static void mark(crl_hot *hot, uint64_t hash) {
  uint32_t count = atomic_load_explicit(&hot->marked, memory_order_relaxed);
  if (count == CRL_HOT_KEYS || hash == 0 || find_mark(hot, hash) < CRL_HOT_KEYS) return;
  set_mark(hot, count, hash, 0);
  atomic_store_explicit(&hot->marked, count + 1, memory_order_relaxed);
}

/* The last mark takes its place. */
static void unmark(crl_hot *hot, uint32_t i) {
  uint32_t last = atomic_load_explicit(&hot->marked, memory_order_relaxed) - 1;
  set_mark(hot, i, marked_at(hot, last),
           atomic_load_explicit(&hot->marks[last].turn, memory_order_relaxed));
  set_mark(hot, last, 0, 0);
  atomic_store_explicit(&hot->marked, last, memory_order_relaxed);
}

/* True for a counter with so much of the gets for certain. `times`: the threshold is divided by
 * this. */
static int is_hot(const crl_hot *hot, const crl_hot_table *table, size_t i, uint64_t times) {
  uint64_t certain = (get(&table->counts[i]) - get(&table->errors[i])) * times;
  return certain >= CRL_HOT_LEAST && certain * 100 >= (uint64_t)hot->percent * get(&table->total);
}

/* A hot key stays hot with half of what makes one. */
static void unmark_cold(crl_hot *hot, const crl_hot_table *table) {
  enum { STAYS = 2 };
  for (uint32_t i = atomic_load_explicit(&hot->marked, memory_order_relaxed); i-- > 0;) {
    size_t at = find(table, marked_at(hot, i));
    if (at == CRL_HOT_KEYS || !is_hot(hot, table, at, STAYS)) unmark(hot, i);
  }
}

void crl_hot_add(crl_hot *hot, const crl_hot_get *asked, int64_t now) {
  crl_hot_table *table = atomic_load_explicit(&hot->table, memory_order_acquire);
  if (table == NULL || !try_lock(hot)) return;
  uint64_t halved = get(&table->halved);
  begin_change(table);
  crl_hot_settle(table, now);
  size_t i = crl_hot_count(table, asked, CRL_HOT_EVERY);
  end_change(table);
  if (get(&table->halved) != halved) unmark_cold(hot, table);
  if (hot->percent > 0 && is_hot(hot, table, i, 1)) mark(hot, asked->hash);
  unlock(hot);
}

int crl_hot_has(const crl_hot *hot, uint64_t hash) { return find_mark(hot, hash) < CRL_HOT_KEYS; }

int crl_hot_turn(crl_hot *hot, uint64_t hash, int64_t now, int64_t pause) {
  uint32_t i = find_mark(hot, hash);
  if (i == CRL_HOT_KEYS) return 0;
  int64_t turn = atomic_load_explicit(&hot->marks[i].turn, memory_order_relaxed);
  return turn <= now &&
         atomic_compare_exchange_strong_explicit(&hot->marks[i].turn, &turn, now + pause,
                                                 memory_order_relaxed, memory_order_relaxed);
}
