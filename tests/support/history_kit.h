/* history_kit.h: records the history of processes and threads of a lab, in memory shared by them.
 *
 *   history *h = history_new();
 *   lab_spawn(l, &(lab_plan){..., .body = body, .arg = h});
 *     history_call call = {.history = h, .seat = seat, .key = 0, .cost_ms = 5};
 *     history_ask(&call, policy);             a call of the cache
 *     history_invalidate(h, seat, 0);         changes the source, then invalidates
 *   lab_end(l);
 *   history_verdict seen = history_judge(h, &(history_rules){.near_ns = 0});
 *   history_free(h);
 *
 * A killed process leaves entries without an end; what it has recorded stays. Begins and ends are
 * of CLOCK_MONOTONIC, which the processes of a host have in common. A history that is full ends the
 * run as wrong. */
#ifndef TESTS_HISTORY_KIT_H
#define TESTS_HISTORY_KIT_H

#include <corral/loop.h>

#include "support/herd_lab.h"
#include "support/history.h"

enum { HISTORY_ROOM = 1 << 18 };

/* An answer from a flight of the process that began before the call may be so late: by promise 2,
 * not at all. */
enum { SHARED_LATE_MS = 0 };

typedef struct history {
  atomic_size_t count;
  atomic_ullong source[HISTORY_KEYS]; /* version of each key */
  history_entry entries[HISTORY_ROOM];
} history;

/* A call, and the compute in it. */
typedef struct history_call {
  history *history;
  lab_seat *seat;
  int key;
  int64_t cost_ms;  /* duration of the compute, from its reading of the source on */
  atomic_int *gate; /* the compute goes on when this is 1 or more; NULL: at once */
  int is_versioned; /* the value has the source's version, so that it can be replayed */
  size_t pad;       /* further bytes of the value */
  /* set by the functions that ask */
  int status;
  corral_how how;
  uint64_t version;
  size_t compute;
} history_call;

history *history_new(void);
void history_free(history *h);

/* An entry, with its begin, or with both. Returns its index. Ends with the lab's error, and with a
 * plain index, when the history is full. */
size_t history_begin(history *h, lab *l, const history_entry *entry);
void history_end(history *h, size_t entry);
/* The deadline of a call that has begun and waits so long at the most, as the library counts it: in
 * whole ms. */
void history_limit(history *h, size_t entry, int64_t wait_ms);

/* corral_get_or_compute of the key "key-N"; returns its status. The compute reads the source, adds
 * 1 to lab->keys[key].computes, and waits for the gate and its cost. */
int history_ask(history_call *call, const corral_policy *policy);
/* The same by corral_get_many, of several keys, each another one; the compute of those that it
 * leads lasts as long as the longest of them. Returns the status of the call as a whole. */
int history_ask_many(history_call *calls, size_t count, const corral_policy *policy);
/* The same by corral_loop_get, all at once; returns when the last of them is gone. The computes end
 * side by side, each when its cost and its gate let it. */
void history_ask_by_loop(corral_loop *loop, history_call *calls, size_t count,
                         const corral_policy *policy);
/* The compute; `arg` is a history_call. */
int history_compute(corral_fill *fill, const void *key, size_t key_len, void *arg);
/* Takes the value of history_compute; 0: it is none. */
int history_read_value(const void *data, size_t size, history_entry *ret);
/* Raises the source's version, then corral_invalidate; returns its status. */
int history_invalidate(history *h, lab_seat *seat, int key);
/* Only the first part of it. Returns the new version. */
uint64_t history_change(history *h, lab_seat *seat, int key);

/* history_check of what was recorded; prints the counts, and the first broken rule. */
history_verdict history_judge(const history *h, const history_rules *rules);

/* ---- the lab's own calls ------------------------------------------------------------------- */

/* A lab whose calls of lab_ask, lab_get and lab_invalidate, and their computes, are recorded, and
 * judged by lab_end: for tests with one store, without a near tier and without lab_work.version.
 * The version of a value is the number of its compute. An invalidation voids all numbers that were
 * given before it. */
lab *lab_new_recorded(void);
/* Of herd_lab.c; without effect where nothing is recorded. `number`: of a compute; of an
 * invalidation, the least number that it lets live. */
size_t lab_note(lab *l, int process, history_kind kind, int key, int number);
void lab_note_end(lab *l, size_t entry, const lab_answer *answer);
void lab_judge(lab *l);

#endif
