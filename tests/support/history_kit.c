/* history_kit.c: records the history of processes and threads of a lab, in memory shared by
 * them. */
#include "support/history_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/mman.h>
#include <time.h>

/* The bytes of a value, before its padding. */
typedef struct stored {
  uint64_t version, compute;
} stored;

static int64_t now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

history *history_new(void) {
  history *h = mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(h != MAP_FAILED);
  return h;
}

void history_free(history *h) { munmap(h, sizeof *h); }

/* ---- entries ------------------------------------------------------------------------------- */

static size_t count_of(const history *h) {
  return h->count < HISTORY_ROOM ? h->count : HISTORY_ROOM;
}

/* The begin is written last: an entry without one is none. */
size_t history_begin(history *h, lab *l, const history_entry *entry) {
  size_t at = atomic_fetch_add(&h->count, 1);
  if (at >= HISTORY_ROOM) {
    lab_wrong(l, "the history is full: %d entries", HISTORY_ROOM);
    return HISTORY_ROOM - 1;
  }
  history_entry *e = &h->entries[at];
  e->kind = entry->kind;
  e->key = entry->key;
  e->process = entry->process;
  e->version = entry->version;
  atomic_store(&e->begun, now_ns());
  return at;
}

void history_end(history *h, size_t entry) { atomic_store(&h->entries[entry].ended, now_ns()); }

void history_limit(history *h, size_t entry, int64_t wait_ms) {
  static const int64_t ms = 1000000;
  history_entry *e = &h->entries[entry];
  e->deadline = (atomic_load(&e->begun) / ms + wait_ms) * ms;
}

static history_entry entry_of(const lab_seat *seat, history_kind kind, int key) {
  return (history_entry){.kind = kind, .key = key, .process = seat->process};
}

/* ---- the source ---------------------------------------------------------------------------- */

uint64_t history_change(history *h, lab_seat *seat, int key) {
  history_entry change = entry_of(seat, HISTORY_CHANGE, key);
  size_t at = history_begin(h, seat->lab, &change);
  unsigned long long was = atomic_load(&h->source[key]);
  /* noted first: a process killed right after its change has noted it */
  do h->entries[at].version = was + 1;
  while (!atomic_compare_exchange_weak(&h->source[key], &was, was + 1));
  history_end(h, at);
  return was + 1;
}

int history_invalidate(history *h, lab_seat *seat, int key) {
  char name[16];
  history_entry entry = entry_of(seat, HISTORY_INVALIDATE, key);
  entry.version = history_change(h, seat, key);
  size_t at = history_begin(h, seat->lab, &entry);
  int status = corral_invalidate(seat->corral, name, lab_key_name(name, key), NULL);
  h->entries[at].status = status;
  history_end(h, at);
  return status;
}

/* Reads the source. Returns the compute's entry. */
static size_t begin_compute(const history_call *call) {
  history *h = call->history;
  history_entry entry = entry_of(call->seat, HISTORY_COMPUTE, call->key);
  size_t at = history_begin(h, call->seat->lab, &entry);
  h->entries[at].version = atomic_load(&h->source[call->key]);
  lab_add(&call->seat->lab->keys[call->key].computes, 1);
  return at;
}

static int end_compute(const history_call *call, size_t at, corral_fill *fill) {
  history *h = call->history;
  size_t size = sizeof(stored) + call->pad;
  uint64_t version = h->entries[at].version;
  stored *value = corral_fill_reserve(fill, size);
  if (value == NULL) return CORRAL_ENOMEM;
  memset(value, 0, size);
  *value = (stored){.version = version, .compute = at};
  if (call->is_versioned) corral_fill_version(fill, version + 1);
  history_end(h, at);
  return CORRAL_OK;
}

int history_compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  const history_call *call = arg;
  size_t at = begin_compute(call);
  (void)key, (void)key_len;
  if (call->gate != NULL) lab_await(call->seat->lab, call->gate, 1);
  if (call->cost_ms > 0) lab_sleep_ms(call->cost_ms);
  return end_compute(call, at, fill);
}

int history_read_value(const void *data, size_t size, history_entry *ret) {
  stored value;
  if (size < sizeof value) return 0;
  memcpy(&value, data, sizeof value);
  ret->version = value.version;
  ret->compute = (size_t)value.compute;
  return 1;
}

/* ---- calls --------------------------------------------------------------------------------- */

static size_t begin_call(history_call *call, const corral_policy *policy) {
  history_entry entry = entry_of(call->seat, HISTORY_CALL, call->key);
  size_t at = history_begin(call->history, call->seat->lab, &entry);
  history_limit(call->history, at, policy->wait_ms);
  return at;
}

static void take_answer(history_call *call, history_entry *e, corral_value *value) {
  e->how = corral_value_how(value);
  e->kept = corral_value_kept(value);
  if (!history_read_value(corral_value_data(value), corral_value_size(value), e))
    lab_wrong(call->seat->lab, "key-%d has a value of %zu bytes", call->key,
              corral_value_size(value));
  call->how = e->how;
  call->version = e->version;
  call->compute = e->compute;
  corral_value_unref(value);
}

static void end_call(history_call *call, size_t at, int status, corral_value *value) {
  history_entry *e = &call->history->entries[at];
  call->status = e->status = status;
  if (status == CORRAL_OK) take_answer(call, e, value);
  history_end(call->history, at);
}

int history_ask(history_call *call, const corral_policy *policy) {
  char name[16];
  corral_value *value = NULL;
  size_t at = begin_call(call, policy);
  int status = corral_get_or_compute(call->seat->corral, name, lab_key_name(name, call->key),
                                     CORRAL_CALL(.policy = policy), history_compute, call, &value);
  end_call(call, at, status, value);
  return status;
}

/* ---- calls of many keys --------------------------------------------------------------------- */

typedef struct batch {
  history_call *calls;
  size_t count;
} batch;

static const history_call *call_of(const batch *b, const corral_fill *fill) {
  char name[16];
  size_t len;
  const void *key = corral_fill_key(fill, &len);
  for (size_t i = 0; i < b->count; i++)
    if (lab_key_name(name, b->calls[i].key) == len && memcmp(name, key, len) == 0)
      return &b->calls[i];
  abort();
}

static int compute_many(corral_fill *const *fills, size_t count, void *arg) {
  const batch *b = arg;
  size_t computes[HISTORY_KEYS];
  int64_t cost_ms = 0;
  for (size_t i = 0; i < count; i++) {
    const history_call *call = call_of(b, fills[i]);
    computes[i] = begin_compute(call);
    if (call->cost_ms > cost_ms) cost_ms = call->cost_ms;
  }
  for (size_t i = 0; i < count; i++) {
    const history_call *call = call_of(b, fills[i]);
    if (call->gate != NULL) lab_await(call->seat->lab, call->gate, 1);
  }
  if (cost_ms > 0) lab_sleep_ms(cost_ms);
  for (size_t i = 0; i < count; i++) {
    int status = end_compute(call_of(b, fills[i]), computes[i], fills[i]);
    if (status != CORRAL_OK) return status;
  }
  return CORRAL_OK;
}

int history_ask_many(history_call *calls, size_t count, const corral_policy *policy) {
  char names[HISTORY_KEYS][16];
  corral_item items[HISTORY_KEYS];
  size_t at[HISTORY_KEYS];
  batch b = {.calls = calls, .count = count};
  for (size_t i = 0; i < count; i++) {
    items[i] = (corral_item){.key = names[i], .key_len = lab_key_name(names[i], calls[i].key)};
    at[i] = begin_call(&calls[i], policy);
  }
  int status = corral_get_many(calls[0].seat->corral, items, count, CORRAL_CALL(.policy = policy),
                               compute_many, &b);
  for (size_t i = 0; i < count; i++) end_call(&calls[i], at[i], items[i].status, items[i].value);
  return status;
}

/* ---- calls of an event loop ----------------------------------------------------------------- */

/* A call under way. Its compute may begin after its answer, where that is a stale value. */
typedef struct asked {
  history_call *call;
  size_t at, compute;
  corral_fill *fill; /* of the compute under way; NULL: none */
  int64_t due_us;    /* its end, lab_now_us */
  int is_gone;
} asked;

static void on_start(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  asked *a = arg;
  (void)key, (void)key_len;
  a->compute = begin_compute(a->call);
  a->fill = fill;
  a->due_us = lab_now_us() + a->call->cost_ms * 1000;
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  asked *a = arg;
  (void)error;
  end_call(a->call, a->at, status, value);
}

static void on_gone(void *arg) { ((asked *)arg)->is_gone = 1; }

static void go_on(asked *a) {
  corral_fill *fill = a->fill;
  int is_let = a->call->gate == NULL || atomic_load(a->call->gate) >= 1;
  if (fill == NULL || !is_let || lab_now_us() < a->due_us) return;
  a->fill = NULL;
  if (end_compute(a->call, a->compute, fill) == CORRAL_OK)
    corral_fill_done(fill);
  else
    corral_fill_abandon(fill);
}

static size_t count_left(const asked *all, size_t count) {
  size_t left = 0;
  for (size_t i = 0; i < count; i++) left += all[i].is_gone ? 0 : 1;
  return left;
}

void history_ask_by_loop(corral_loop *loop, history_call *calls, size_t count,
                         const corral_policy *policy) {
  asked all[HISTORY_KEYS];
  char name[16];
  for (size_t i = 0; i < count; i++) {
    all[i] = (asked){.call = &calls[i], .at = begin_call(&calls[i], policy)};
    const corral_async *async =
        CORRAL_ASYNC(.done = on_done, .start = on_start, .gone = on_gone, .arg = &all[i]);
    int status = corral_loop_get(loop, name, lab_key_name(name, calls[i].key),
                                 CORRAL_CALL(.policy = policy), async, NULL);
    if (status == CORRAL_OK) continue;
    lab_wrong(calls[i].seat->lab, "corral_loop_get: %s", corral_status_name(status));
    all[i].is_gone = 1;
  }
  while (count_left(all, count) > 0) {
    struct pollfd fd = {.fd = corral_loop_fd(loop), .events = POLLIN};
    if (poll(&fd, 1, 1) > 0) corral_loop_dispatch(loop);
    for (size_t i = 0; i < count; i++) go_on(&all[i]);
  }
}

/* ---- the lab's own calls ------------------------------------------------------------------- */

lab *lab_new_recorded(void) {
  lab *l = lab_new();
  l->history = history_new();
  return l;
}

size_t lab_note(lab *l, int process, history_kind kind, int key, int number) {
  if (l->history == NULL) return 0;
  return history_begin(
      l->history, l,
      &(history_entry){.kind = kind, .key = key, .process = process, .version = (uint64_t)number});
}

void lab_note_end(lab *l, size_t entry, const lab_answer *answer) {
  if (l->history == NULL) return;
  history_entry *e = &l->history->entries[entry];
  if (answer != NULL) e->status = answer->status;
  if (answer != NULL && e->kind == HISTORY_CALL && answer->status == CORRAL_OK) {
    e->how = answer->how;
    e->kept = answer->kept;
    e->version = (uint64_t)answer->number;
  }
  history_end(l->history, entry);
}

/* Finds the compute of each answer, by its number. */
static void link_answers(lab *l) {
  history *h = l->history;
  size_t numbers = (size_t)l->numbers + 1, count = count_of(h);
  size_t *computes = calloc(numbers, sizeof *computes);
  assert_non_null(computes);
  for (size_t i = 0; i < count; i++)
    if (h->entries[i].kind == HISTORY_COMPUTE && h->entries[i].version < numbers)
      computes[h->entries[i].version] = i;
  for (size_t i = 0; i < count; i++)
    if (h->entries[i].kind == HISTORY_CALL && h->entries[i].version < numbers)
      h->entries[i].compute = computes[h->entries[i].version];
  free(computes);
}

void lab_judge(lab *l) {
  const history_rules rules = {.is_numbered = 1, .shared_ns = SHARED_LATE_MS * INT64_C(1000000)};
  if (l->history == NULL) return;
  link_answers(l);
  history_verdict seen = history_check(l->history->entries, count_of(l->history), &rules);
  if (seen.wrong > 0) lab_wrong(l, "%zu wrong: %s", seen.wrong, seen.first);
}

/* ---- the verdict --------------------------------------------------------------------------- */

history_verdict history_judge(const history *h, const history_rules *rules) {
  size_t count = count_of(h);
  history_verdict seen = history_check(h->entries, count, rules);
  print_message("           %zu entries: %zu values, %zu of them after an invalidation: %zu fresh, "
                "%zu stale, %zu computed, %zu joined (%zu unsettled), %zu outbox\n",
                count, seen.calls, seen.bound, seen.how[CORRAL_FRESH], seen.how[CORRAL_STALE],
                seen.how[CORRAL_COMPUTED], seen.how[CORRAL_JOINED], seen.unsettled,
                seen.how[CORRAL_OUTBOX]);
  if (seen.wrong > 0) print_message("           %zu wrong: %s\n", seen.wrong, seen.first);
  return seen;
}
