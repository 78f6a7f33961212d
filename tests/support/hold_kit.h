/* hold_kit.h: one-line helpers for lock verbs, a holder in another process, and a race in which no
 * two holds may overlap. For tests of a single plugin. */
#ifndef HOLD_KIT_H
#define HOLD_KIT_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork_kit.h"
#include "support/store_kit.h"
#include "support/op_kit.h"

enum { HOLD_PATIENCE_MS = 20000, HOLD_PROCESSES = 3, HOLD_THREADS = 4 };

static inline corral_op hold_op(corral_verb what, const char *name, unsigned holder,
                                int64_t lease_ms) {
  corral_op op = op_of(what, name, holder);
  op_lasts(&op, lease_ms);
  return op;
}

/* Performs one operation with a deadline in `ms`. Returns the operation's status, not that of
 * `perform`. */
static inline int by(const kit *k, corral_op *op, int64_t ms) {
  int status = perform_ops(k->plugin, k->handle, op, 1, k->host->now_ms() + ms, NULL);
  (void)status;
  return op->status;
}

static inline int take_shared(const kit *k, const char *name, unsigned holder, int64_t lease_ms,
                              uint32_t flags) {
  corral_op op = hold_op(CORRAL_VERB_LOCK, name, holder, lease_ms);
  op.flags = flags;
  return by(k, &op, HOLD_PATIENCE_MS);
}

static inline int take(const kit *k, const char *name, unsigned holder, int64_t lease_ms) {
  return take_shared(k, name, holder, lease_ms, 0);
}

/* Takes the lock. Returns the fencing token; 0: not granted. */
static inline uint64_t take_fence(const kit *k, const char *name, unsigned holder) {
  corral_op op = hold_op(CORRAL_VERB_LOCK, name, holder, 10000);
  return by(k, &op, HOLD_PATIENCE_MS) == CORRAL_OK ? op.lock_state.fence : 0;
}

static inline int unlock(const kit *k, const char *name, unsigned holder) {
  corral_op op = hold_op(CORRAL_VERB_UNLOCK, name, holder, 0);
  return by(k, &op, HOLD_PATIENCE_MS);
}

static inline int extend(const kit *k, const char *name, unsigned holder, int64_t lease_ms) {
  corral_op op = hold_op(CORRAL_VERB_LOCK_EXTEND, name, holder, lease_ms);
  return by(k, &op, HOLD_PATIENCE_MS);
}

/* A LOCK for 60 s; takes, fence_of and unlocks send theirs without a deadline and require `perform`
 * to return CORRAL_OK. */
static inline corral_op take_op(const char *name, unsigned holder, uint32_t flags) {
  corral_op op = hold_op(CORRAL_VERB_LOCK, name, holder, 3600000);
  op.flags = flags;
  return op;
}

static inline int takes(const kit *k, const char *name, unsigned holder, uint32_t flags) {
  corral_op op = take_op(name, holder, flags);
  return run(k, &op);
}

static inline uint64_t fence_of(const kit *k, const char *name, unsigned holder) {
  corral_op op = take_op(name, holder, 0);
  assert_int_equal(run(k, &op), CORRAL_OK);
  return op.lock_state.fence;
}

static inline int unlocks(const kit *k, const char *name, unsigned holder) {
  return verb(k, CORRAL_VERB_UNLOCK, name, holder);
}

/* Takes and releases the lock 1000 times; each fencing token must be larger than the last one.
 * Returns the last fencing token. */
static inline uint64_t fences_grow(const kit *k, const char *name) {
  uint64_t last = 0;
  for (unsigned i = 1; i <= 1000; i++) {
    uint64_t fence = take_fence(k, name, i);
    assert_true(fence > last);
    last = fence;
    assert_int_equal(unlock(k, name, i), CORRAL_OK);
  }
  return last;
}

/* Requires ELOST; until_ms must tell whether another token holds the lock (`somebody`). */
static inline void is_lost(const kit *k, corral_verb what, const char *name, unsigned holder,
                           int somebody) {
  corral_op op = hold_op(what, name, holder, 1000);
  assert_int_equal(by(k, &op, HOLD_PATIENCE_MS), CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms != 0, somebody);
}

/* Reads LOCK_SHOW. Returns the number of holds that aren't over; note and fence are the first
 * one's. */
static inline int shown(const kit *k, const char *name, char note[CORRAL_LOCK_NOTE + 1],
                        uint64_t *fence) {
  corral_op op = hold_op(CORRAL_VERB_LOCK_SHOW, name, 0, 0);
  int holds = 0, status = by(k, &op, HOLD_PATIENCE_MS);
  if (status == CORRAL_EMISS) return 0;
  assert_int_equal(status, CORRAL_OK);
  assert_true(op.found.len >= CORRAL_LOCK_HEAD && memcmp(op.found.record, "crk1", 4) == 0);
  for (int i = op.found.record[4] | op.found.record[5] << 8; i > 0; i--) {
    const uint8_t *at = op.found.record + CORRAL_LOCK_HEAD + (i - 1) * CORRAL_LOCK_HOLD;
    int64_t until = 0;
    uint64_t number = 0;
    for (int j = 7; j >= 0; j--) until = (int64_t)((uint64_t)until << 8 | at[24 + j]);
    for (int j = 7; j >= 0; j--) number = number << 8 | at[40 + j];
    if (until != 0 && until <= op.lock_state.now) continue;
    holds++;
    memcpy(note, at + 48, CORRAL_LOCK_NOTE);
    note[CORRAL_LOCK_NOTE] = '\0';
    if (fence != NULL) *fence = number;
  }
  done(&op);
  return holds;
}

/* ---- another process ----------------------------------------------------------------------- */

/* Runs body(uri, shared) in a child that dies with the test; `shared` is shared memory. */
static inline pid_t other(void (*body)(const char *uri, atomic_int *shared), const char *uri,
                          atomic_int *shared) {
  pid_t parent = getpid(), pid = fork_at_rest();
  assert_true(pid >= 0);
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  body(uri, shared);
  _exit(0);
}

static inline void gone(pid_t pid, int signal_number) {
  int how;
  if (signal_number != 0) kill(pid, signal_number);
  assert_int_equal(waitpid(pid, &how, 0), pid);
  if (signal_number == 0) assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static inline atomic_int *common(void) {
  void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(at, MAP_FAILED);
  return at;
}

static inline void await_at_least(atomic_int *counter, int least) {
  for (int i = 0; i < HOLD_PATIENCE_MS && atomic_load(counter) < least; i++) poll(NULL, 0, 1);
  if (atomic_load(counter) < least)
    fail_msg("a counter stayed at %d, not %d", atomic_load(counter), least);
}

/* Repeats LOCK until it is granted. */
static inline void take_when_free(const kit *k, const char *name, unsigned holder,
                                  int64_t lease_ms) {
  int64_t begun = k->host->now_ms();
  while (take(k, name, holder, lease_ms) == CORRAL_EBUSY) {
    if (k->host->now_ms() - begun > HOLD_PATIENCE_MS)
      fail_msg("'%s' isn't free after %d ms", name, HOLD_PATIENCE_MS);
    poll(NULL, 0, 1);
  }
}

/* Takes "held" as holder 77 for shared[1] ms, sets shared[0] to 1 and waits until it is killed or
 * shared[2] is set; then extends, and sets shared[3] to 2 if the hold was lost to another token,
 * else to 1. */
static inline void hold_until_killed(const char *uri, atomic_int *shared) {
  kit k = opened(uri);
  if (take(&k, "held", 77, atomic_load(&shared[1])) != CORRAL_OK) _exit(3);
  atomic_store(&shared[0], 1);
  while (atomic_load(&shared[2]) == 0) poll(NULL, 0, 1);
  corral_op op = hold_op(CORRAL_VERB_LOCK_EXTEND, "held", 77, 1000);
  atomic_store(&shared[3],
               by(&k, &op, HOLD_PATIENCE_MS) == CORRAL_ELOST && op.lock_state.left_ms != 0 ? 2 : 1);
  closed(&k);
}

/* Runs hold_until_killed in a process; returns once the lock is held. */
static inline pid_t holder(const char *uri, atomic_int *shared, int lease_ms) {
  atomic_store(&shared[1], lease_ms);
  pid_t pid = other(hold_until_killed, uri, shared);
  await_at_least(&shared[0], 1);
  return pid;
}

/* ---- the race ------------------------------------------------------------------------------ */

typedef struct race {
  /* sunk: fencing tokens not larger than the one before */
  atomic_int inside, overlaps, sunk, failures, granted;
  _Atomic uint64_t fence;
  int rounds;
} race;

typedef struct racer {
  race *race;
  kit k;
  unsigned number;
} racer;

static inline void race_round(racer *r) {
  int status;
  corral_op op;
  do {
    op = hold_op(CORRAL_VERB_LOCK, "raced for", r->number, 20000);
    status = by(&r->k, &op, HOLD_PATIENCE_MS);
    if (status == CORRAL_EBUSY) poll(NULL, 0, 1);
  } while (status == CORRAL_EBUSY);
  if (status != CORRAL_OK) {
    atomic_fetch_add(&r->race->failures, 1);
    return;
  }
  if (atomic_fetch_add(&r->race->inside, 1) != 0) atomic_fetch_add(&r->race->overlaps, 1);
  if (atomic_exchange(&r->race->fence, op.lock_state.fence) >= op.lock_state.fence)
    atomic_fetch_add(&r->race->sunk, 1);
  atomic_fetch_add(&r->race->granted, 1);
  atomic_fetch_sub(&r->race->inside, 1);
  if (unlock(&r->k, "raced for", r->number) != CORRAL_OK) atomic_fetch_add(&r->race->failures, 1);
}

static inline void *race_thread(void *arg) {
  racer *r = arg;
  for (int i = 0; i < r->race->rounds; i++) race_round(r);
  return NULL;
}

static inline void race_process(const char *uri, atomic_int *shared) {
  racer racers[HOLD_THREADS];
  pthread_t threads[HOLD_THREADS];
  kit first = opened(uri);
  int parallel = first.plugin->threads == CORRAL_THREADS_PARALLEL;
  for (unsigned i = 0; i < HOLD_THREADS; i++) {
    racers[i] = (racer){.race = (race *)(void *)shared,
                        .k = i == 0 || parallel ? first : opened(uri),
                        .number = (unsigned)getpid() * 100 + i};
    if (pthread_create(&threads[i], NULL, race_thread, &racers[i]) != 0) _exit(4);
  }
  for (unsigned i = 0; i < HOLD_THREADS; i++) pthread_join(threads[i], NULL);
  for (unsigned i = 1; i < HOLD_THREADS && !parallel; i++) closed(&racers[i].k);
  closed(&first);
}

/* HOLD_PROCESSES processes of HOLD_THREADS threads each; each thread takes the lock `rounds`
 * times. */
static inline void race_for(const char *uri, int rounds) {
  atomic_int *shared = common();
  race *r = (race *)(void *)shared;
  pid_t pids[HOLD_PROCESSES];
  r->rounds = rounds;
  for (int i = 0; i < HOLD_PROCESSES; i++) pids[i] = other(race_process, uri, shared);
  for (int i = 0; i < HOLD_PROCESSES; i++) gone(pids[i], 0);
  assert_int_equal(atomic_load(&r->failures), 0);
  assert_int_equal(atomic_load(&r->overlaps), 0);
  assert_int_equal(atomic_load(&r->sunk), 0);
  assert_int_equal(atomic_load(&r->granted), HOLD_PROCESSES * HOLD_THREADS * rounds);
  munmap(shared, 4096);
}

#endif
