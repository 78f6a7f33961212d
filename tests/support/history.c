/* history.c: the checker of histories. It judges each key by itself, by these rules.
 *
 * The source
 *   S1 Versions rise: a change that begins after another one ended has a later version.
 *   S2 A compute reads the version that the source has at a moment within the compute.
 *
 * The answer of a call (a value)
 *   A1 It is what a compute of this key made, which began before the call ended.
 *   A2 An answer of CORRAL_COMPUTED was computed by the call: in its process, begun within it.
 *   A3 It is no older than an invalidation that returned CORRAL_OK before the call began. (Promise
 *      2: an answer is good for a call if the store confirmed it after the call began.)
 *   A4 It is no older than a value of which the store was known, before the call began, to have it:
 *      the answer of a call that ended, and that says the value is stored. So what is stored never
 *      goes back, neither behind an invalidation nor otherwise.
 *   A5 It is no older than an invalidation that its own process had asked for and that returned
 *      before the call began.
 *
 * Three kinds of answers are judged more mildly, as their `how` and `kept` permit:
 *   - A fresh one may come from a copy of the near tier. A3 and A4 count what returned or ended by
 *     near_ns before the call began. Own invalidations that returned CORRAL_OK act at once.
 *   - One of the process alone, because the store is away (CORRAL_OUTBOX, or joined and not
 *     stored), was not confirmed by the store and says so: A5 holds, A3 and A4 don't.
 *   - So is one that was joined before its settle was answered (CORRAL_KEPT_UNKNOWN), at the call's
 *     deadline, and in a fault, which may leave a settle without an answer. Earlier it may be had
 *     only where the lease was confirmed after the call began: then A3 and A4 hold.
 * For all others A3 contains A5: an invalidation that failed may have left the old value in the
 * store.
 *
 * Invalidations, computes and calls without an end prove nothing. A change without an end may have
 * happened since its begin. */
#include "support/history.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* From `at` on no answer may be older than `version`, because of `entry`. */
typedef struct mark {
  int64_t at;
  uint64_t version;
  const history_entry *entry;
} mark;

/* Marks by rising `at`. From history_check's `finish` on each has the largest version up to it. */
typedef struct marks {
  mark *all;
  size_t count, room;
} marks;

typedef struct judge {
  const history_entry *entries;
  size_t count;
  const history_rules *rules;
  int64_t zero; /* the first begin, from which messages count */
  marks faults; /* by their begin */
  int key;
  marks begun, changed;    /* changes, by their begin, by their end */
  marks invalidated, seen; /* A3, A4 */
  marks own[HISTORY_PROCESSES], own_ok[HISTORY_PROCESSES];
  history_verdict verdict;
} judge;

/* ---- marks --------------------------------------------------------------------------------- */

static void add(marks *m, const history_entry *entry, int64_t at) {
  if (m->count == m->room) {
    m->room = m->room == 0 ? 64 : 2 * m->room;
    m->all = realloc(m->all, m->room * sizeof *m->all);
    if (m->all == NULL) abort();
  }
  m->all[m->count++] = (mark){.at = at, .version = entry->version, .entry = entry};
}

static int by_time(const void *a, const void *b) {
  const mark *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return (x->version > y->version) - (x->version < y->version);
}

static void finish(marks *m) {
  if (m->count == 0) return;
  qsort(m->all, m->count, sizeof *m->all, by_time);
  for (size_t i = 1; i < m->count; i++)
    if (m->all[i].version < m->all[i - 1].version) {
      m->all[i].version = m->all[i - 1].version;
      m->all[i].entry = m->all[i - 1].entry;
    }
}

/* The mark with the largest version before `at`; NULL: there is none. */
static const mark *latest(const marks *m, int64_t at) {
  size_t low = 0, high = m->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (m->all[middle].at < at)
      low = middle + 1;
    else
      high = middle;
  }
  return low == 0 ? NULL : &m->all[low - 1];
}

static uint64_t version_of(const mark *m) { return m == NULL ? 0 : m->version; }

/* ---- what is known ------------------------------------------------------------------------- */

static int has_value(const history_entry *e) {
  return e->kind == HISTORY_CALL && e->ended != 0 && e->status == CORRAL_OK;
}

static int is_unsettled(const history_entry *e) {
  return e->how == CORRAL_JOINED && e->kept == CORRAL_KEPT_UNKNOWN;
}

static int is_in_fault(const judge *j, const history_entry *e) {
  for (size_t i = 0; i < j->faults.count; i++) {
    const history_entry *fault = j->faults.all[i].entry;
    if (fault->begun <= e->ended && (fault->ended == 0 || fault->ended >= e->begun)) return 1;
  }
  return 0;
}

static int is_of_process_alone(const judge *j, const history_entry *e) {
  if (is_unsettled(e)) return (e->deadline != 0 && e->ended >= e->deadline) || is_in_fault(j, e);
  return e->how == CORRAL_OUTBOX || (e->how == CORRAL_JOINED && e->kept == CORRAL_KEPT_NOT);
}

static void know_invalidation(judge *j, const history_entry *e) {
  int known = e->process >= 0 && e->process < HISTORY_PROCESSES;
  if (e->ended == 0) return;
  if (known) add(&j->own[e->process], e, e->ended);
  if (e->status != CORRAL_OK) return;
  if (known) add(&j->own_ok[e->process], e, e->ended);
  add(&j->invalidated, e, e->ended);
}

static void know(judge *j, const history_entry *e) {
  switch (e->kind) {
    case HISTORY_CHANGE:
      add(&j->begun, e, e->begun);
      if (e->ended != 0) add(&j->changed, e, e->ended);
      break;
    case HISTORY_INVALIDATE: know_invalidation(j, e); break;
    case HISTORY_CALL:
      if (has_value(e) && e->kept == CORRAL_KEPT && e->how != CORRAL_OUTBOX)
        add(&j->seen, e, e->ended);
      break;
    case HISTORY_COMPUTE:
    case HISTORY_FAULT: break;
  }
}

static void for_all_marks(judge *j, void (*visit)(marks *m)) {
  marks *const all[] = {&j->begun, &j->changed, &j->invalidated, &j->seen};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) visit(all[i]);
  for (int i = 0; i < HISTORY_PROCESSES; i++) {
    visit(&j->own[i]);
    visit(&j->own_ok[i]);
  }
}

static void forget(marks *m) {
  free(m->all);
  *m = (marks){0};
}

/* ---- rules --------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void wrong(judge *j, const history_entry *e,
                                                        const char *format, ...) {
  va_list args;
  char *text = j->verdict.first;
  size_t size = sizeof j->verdict.first;
  if (j->verdict.wrong++ > 0) return;
  int n = snprintf(text, size, "key %d, entry %zu of process %d, %.3f to %.3f ms: ", e->key,
                   (size_t)(e - j->entries), e->process, (double)(e->begun - j->zero) / 1e6,
                   e->ended == 0 ? 0.0 : (double)(e->ended - j->zero) / 1e6);
  if (n < 0 || (size_t)n >= size) return;
  va_start(args, format);
  vsnprintf(text + n, size - (size_t)n, format, args);
  va_end(args);
}

/* Checks that the version is not below that of a mark. Returns whether it is. */
static int is_behind(judge *j, const history_entry *e, const mark *m, const char *rule) {
  if (m == NULL || e->version >= m->version) return 0;
  wrong(j, e, "%s: %s, version %llu, after entry %zu of process %d had made known %llu at %.3f ms",
        rule, e->kind == HISTORY_CALL ? corral_how_name(e->how) : "read",
        (unsigned long long)e->version, (size_t)(m->entry - j->entries), m->entry->process,
        (unsigned long long)m->version, (double)(m->entry->ended - j->zero) / 1e6);
  return 1;
}

static void check_change(judge *j, const history_entry *e) {
  const mark *m = latest(&j->changed, e->begun);
  if (m != NULL && e->version <= m->version)
    wrong(j, e, "S1: the source went from version %llu to %llu", (unsigned long long)m->version,
          (unsigned long long)e->version);
}

/* A compute without an end may not have read yet. */
static void check_compute(judge *j, const history_entry *e) {
  if (e->ended == 0) return;
  if (is_behind(j, e, latest(&j->changed, e->begun), "S2")) return;
  if (e->version > version_of(latest(&j->begun, e->ended + 1)))
    wrong(j, e, "S2: read version %llu, which the source did not have yet",
          (unsigned long long)e->version);
}

/* A1, A2. Returns 0 for a value of no compute. */
static int check_maker(judge *j, const history_entry *e) {
  const history_entry *maker = e->compute < j->count ? &j->entries[e->compute] : NULL;
  if (maker == NULL || maker->kind != HISTORY_COMPUTE || maker->key != e->key ||
      maker->version != e->version || maker->begun > e->ended) {
    wrong(j, e, "A1: %s, version %llu, which no compute made", corral_how_name(e->how),
          (unsigned long long)e->version);
    return 0;
  }
  if (e->how == CORRAL_COMPUTED && (maker->process != e->process || maker->begun < e->begun))
    wrong(j, e, "A2: a value is called its caller's own, and is not");
  return 1;
}

/* A3, A4. Returns whether one is broken. */
static int is_old(judge *j, const history_entry *e) {
  int64_t late = e->how == CORRAL_COMPUTED ? 0 : j->rules->shared_ns;
  if (e->how == CORRAL_FRESH && j->rules->near_ns > late) late = j->rules->near_ns;
  return is_behind(j, e, latest(&j->invalidated, e->begun - late), "A3") ||
         (!j->rules->loses_tail && is_behind(j, e, latest(&j->seen, e->begun - late), "A4"));
}

static void check_call(judge *j, const history_entry *e) {
  if (!has_value(e)) return;
  j->verdict.calls++;
  j->verdict.bound += latest(&j->invalidated, e->begun) != NULL;
  if (e->how >= CORRAL_FRESH && e->how <= CORRAL_OUTBOX) j->verdict.how[e->how]++;
  j->verdict.unsettled += is_unsettled(e) ? 1 : 0;
  int is_alone = is_of_process_alone(j, e);
  if (!check_maker(j, e) || (!is_alone && is_old(j, e))) return;
  if (e->process < 0 || e->process >= HISTORY_PROCESSES) return;
  const marks *own = is_alone ? &j->own[e->process] : &j->own_ok[e->process];
  (void)is_behind(j, e, latest(own, e->begun), "A5");
}

static void check_key(judge *j) {
  for (size_t i = 0; i < j->count; i++)
    if (j->entries[i].key == j->key && j->entries[i].begun != 0) know(j, &j->entries[i]);
  for_all_marks(j, finish);
  for (size_t i = 0; i < j->count; i++) {
    const history_entry *e = &j->entries[i];
    if (e->key != j->key || e->begun == 0) continue;
    if (e->kind == HISTORY_CHANGE) check_change(j, e);
    if (e->kind == HISTORY_COMPUTE && !j->rules->is_numbered) check_compute(j, e);
    if (e->kind == HISTORY_CALL) check_call(j, e);
  }
  for_all_marks(j, forget);
}

history_verdict history_check(const history_entry *entries, size_t count,
                              const history_rules *rules) {
  judge j = {.entries = entries, .count = count, .rules = rules, .zero = INT64_MAX};
  for (size_t i = 0; i < count; i++)
    if (entries[i].begun != 0 && entries[i].begun < j.zero) j.zero = entries[i].begun;
  for (size_t i = 0; i < count; i++)
    if (entries[i].begun != 0 && entries[i].kind == HISTORY_FAULT)
      add(&j.faults, &entries[i], entries[i].begun);
  for (j.key = 0; j.key < HISTORY_KEYS; j.key++) check_key(&j);
  forget(&j.faults);
  return j.verdict;
}
