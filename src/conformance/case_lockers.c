/* case_lockers.c: contention for one lock, by threads and by processes; a holder that is killed;
 * waits that the watch ends; servers that fail. */
#include "conformance.h"

#include <pthread.h>
#include <stdlib.h>

enum { OWNER = 1, OTHER = 2, TOLD_MS = 1000, QUIET_MS = 30 };

/* ---- threads ------------------------------------------------------------------------------- */

enum { THREADS = 4, TURNS = 100, TURNS_MS = 10000 };

typedef struct crowd {
  const key *k;
  uint32_t permits;             /* 0: the lock is one holder's */
  atomic_uint inside, together; /* holders now; how often one too many came in */
  atomic_uint granted;
  int64_t until;
} crowd;

typedef struct member {
  crowd *crowd;
  client *client;
  pthread_t thread;
  unsigned first_token;
  int broke; /* CORRAL_OK, or the status that ended the loop */
  uint64_t last;
  unsigned not_grown;
} member;

/* Performs a verb. Doesn't use told_of, which may leave the case: only the first thread may. */
static int plainly(member *m, corral_verb verb, unsigned holder, uint64_t *fence) {
  corral_op op = op_of(verb, m->crowd->k, holder);
  if (verb == CORRAL_VERB_LOCK) op.lock.permits = m->crowd->permits;
  int status = client_perform(m->client, &op, 1, now_ms() + LIMIT_MS);
  *fence = op.lock_state.fence;
  return status != CORRAL_OK ? status : op.status;
}

static void *take_turns(void *arg) {
  member *m = arg;
  uint64_t fence;
  for (unsigned turn = 0; turn < TURNS && now_ms() < m->crowd->until && m->broke == CORRAL_OK;) {
    int status = plainly(m, CORRAL_VERB_LOCK, m->first_token + turn, &fence);
    if (status == CORRAL_OK) {
      unsigned most = m->crowd->permits > 0 ? m->crowd->permits : 1;
      if (atomic_fetch_add(&m->crowd->inside, 1) >= most) atomic_fetch_add(&m->crowd->together, 1);
      m->not_grown += fence <= m->last;
      m->last = fence;
      atomic_fetch_sub(&m->crowd->inside, 1);
      atomic_fetch_add(&m->crowd->granted, 1);
      status = plainly(m, CORRAL_VERB_UNLOCK, m->first_token + turn++, &fence);
    } else if (status == CORRAL_EBUSY) {
      pause_ms(1);
      status = CORRAL_OK;
    }
    m->broke = status;
  }
  /* the last token may still have a place in a queue */
  if (m->broke == CORRAL_OK)
    (void)plainly(m, CORRAL_VERB_UNLOCK, m->first_token + TURNS - 1, &fence);
  return NULL;
}

static void crowd_of_threads(uint32_t permits) {
  member members[THREADS] = {{0}};
  crowd all = {.k = lock_new("k"), .permits = permits, .until = now_ms() + TURNS_MS};
  for (unsigned i = 0; i < THREADS; i++) {
    members[i] = (member){.crowd = &all, .client = client_new(), .first_token = i * TURNS};
    check(client_connect(members[i].client, now_ms() + LIMIT_MS) == CORRAL_OK, "connecting: %s",
          client_error(members[i].client));
  }
  wants("a lock before the threads",
        lock_take(members[0].client, all.k, 1000, ALONE, LONG_MS).status, CORRAL_OK);
  wants("an unlock before the threads", unlock(members[0].client, all.k, 1000).status, CORRAL_OK);
  unsigned started = 0;
  while (started < THREADS &&
         pthread_create(&members[started].thread, NULL, take_turns, &members[started]) == 0)
    started++;
  for (unsigned i = 0; i < started; i++) pthread_join(members[i].thread, NULL);
  check(started == THREADS, "this system starts no thread");
  for (unsigned i = 0; i < THREADS; i++) {
    wants("a lock or unlock in one of many threads", members[i].broke, CORRAL_OK);
    check(members[i].not_grown == 0,
          "of one thread's fencing tokens, %u were not larger than the one before",
          members[i].not_grown);
  }
  check(atomic_load(&all.together) == 0, "%u times a thread too many held one lock",
        atomic_load(&all.together));
  check(atomic_load(&all.granted) >= THREADS, "%u locks were granted in %d ms",
        atomic_load(&all.granted), TURNS_MS);
}

void case_of_many_threads_one_holds_a_lock(void) { crowd_of_threads(0); }

void case_of_many_threads_so_many_hold_permits(void) { crowd_of_threads(THREADS - 1); }

/* ---- processes ----------------------------------------------------------------------------- */

enum {
  PROCESSES = 8,
  ROUNDS = 200,
  RACE_MS = 12000,
  RACE_LEAST = 3,
  LEASE_MS = 40,
  OVERLAP_MS = 10,
  TOKENS_EACH = 400,
  GRANTS = 1024
};

/* A hold, in this host's time: it began at `came` at the latest, and ended at `sent` + until_ms at
 * the earliest. */
typedef struct hold_seen {
  uint64_t fence;
  int64_t sent, came, until_ms;
} hold_seen;

typedef struct race {
  const key *k;
  atomic_uint ready, count, next_process;
  int64_t until;
  hold_seen holds[GRANTS];
} race;

/* LOCK for a short hold. EUNAVAILABLE is accepted after a slow request: a store that counts the
 * time of the request may find the hold already over, and then grants none. */
static told take_in_time(client *c, const key *k, unsigned holder) {
  corral_op op = op_of(CORRAL_VERB_LOCK, k, holder);
  op.lock.hold_ms = LEASE_MS;
  op.lock.wish_ms = 0;
  int64_t sent = now_ms();
  int status = client_perform(c, &op, 1, sent + LIMIT_MS);
  check(status == CORRAL_OK, "LOCK: the handle broke: %s", client_error(c));
  if (op.status == CORRAL_EUNAVAILABLE && now_ms() - sent > LEASE_MS / 2)
    return (told){.status = op.status, .until_ms = -1};
  return told_of(&op, k, holder, client_error(c));
}

/* Takes the lock again and again; each hold ends by itself. */
static void race_for_it(void *arg) {
  race *r = arg;
  client *c = client_new();
  unsigned me = atomic_fetch_add(&r->next_process, 1), turn = 0;
  check(client_connect(c, now_ms() + LIMIT_MS) == CORRAL_OK, "connecting: %s", client_error(c));
  atomic_fetch_add(&r->ready, 1);
  wait_for(&r->ready, PROCESSES, "to be ready");
  while (atomic_load(&r->count) < ROUNDS && now_ms() < r->until && turn < TOKENS_EACH) {
    int64_t sent = now_ms();
    told t = take_in_time(c, r->k, me * TOKENS_EACH + turn);
    int64_t came = now_ms();
    if (t.status == CORRAL_OK) {
      unsigned at = atomic_fetch_add(&r->count, 1);
      if (at < GRANTS) r->holds[at] = (hold_seen){t.fence, sent, came, t.until_ms};
      turn++;
    }
    pause_ms(t.until_ms > 0 && t.until_ms < LEASE_MS ? t.until_ms : 2);
  }
  locks_end(c);
}

static int by_fence(const void *a_, const void *b_) {
  const hold_seen *a = a_, *b = b_;
  return a->fence < b->fence ? -1 : a->fence > b->fence;
}

void case_of_many_processes_one_holds_an_expiring_lock(void) {
  race *r = shared_room(sizeof *r);
  pid_t pids[PROCESSES];
  r->k = lock_new("k");
  r->until = now_ms() + RACE_MS;
  for (unsigned i = 0; i < PROCESSES; i++) pids[i] = process_start(race_for_it, r);
  for (unsigned i = 0; i < PROCESSES; i++) process_join(pids[i]);
  (void)client_new(); /* opens the store, for the cleanup */
  /* A process that ends unlocks what it holds, so a hold after the last round may come early: it
   * isn't checked. */
  size_t count = atomic_load(&r->count) < ROUNDS ? atomic_load(&r->count) : ROUNDS;
  qsort(r->holds, count, sizeof *r->holds, by_fence);
  check(count >= RACE_LEAST, "%zu holds of %d ms in %d ms", count, LEASE_MS, RACE_MS);
  for (size_t i = 1; i < count; i++) {
    const hold_seen *a = &r->holds[i - 1], *b = &r->holds[i];
    check(a->fence != b->fence, "two processes were granted one fencing token");
    check(b->came >= a->sent + a->until_ms - OVERLAP_MS,
          "a process was granted a lock %lld ms before another's hold was over",
          (long long)(a->sent + a->until_ms - b->came));
  }
}

typedef struct board {
  const key *k;
  atomic_uint first, second;
} board;

enum { KILLED_LEASE_MS = 600 };

static void hold_for_ever(void *arg) {
  board *b = arg;
  client *c = client_new();
  wants("a lock by another process", lock_take(c, b->k, OTHER, ALONE, KILLED_LEASE_MS).status,
        CORRAL_OK);
  atomic_store(&b->second, 1);
  for (;;) pause_ms(1000);
}

void case_a_killed_holder_is_replaced_by_the_end_of_its_hold(void) {
  board *b = shared_room(sizeof *b);
  b->k = lock_new("k");
  pid_t pid = process_start(hold_for_ever, b);
  client *c = client_new();
  wait_for(&b->second, 1, "for its lock");
  wants("a lock while another process holds it", lock_take(c, b->k, OWNER, ALONE, LONG_MS).status,
        CORRAL_EBUSY);
  process_kill(pid);
  int64_t until = now_ms() + KILLED_LEASE_MS + LATE_HOLD_MS;
  while (lock_take(c, b->k, OWNER, ALONE, LONG_MS).status != CORRAL_OK) {
    check(now_ms() < until, "a hold of %d ms of a killed process was not over after %d ms",
          KILLED_LEASE_MS, KILLED_LEASE_MS + LATE_HOLD_MS);
    pause_ms(4);
  }
  wants("an unlock", unlock(c, b->k, OWNER).status, CORRAL_OK);
}

/* ---- the watch ----------------------------------------------------------------------------- */

static void settle_down(watch *w) {
  for (int64_t until = now_ms() + LIMIT_MS; watch_listen(w, -1, now_ms() + QUIET_MS);)
    check(now_ms() < until, "for %d ms one change after another is told, and nothing changes",
          LIMIT_MS);
  watch_forget(w);
}

/* Registers the key. Twice: an earlier change may have used up the first registration. */
static void follow_in_silence(watch *w, const key *k) {
  for (int twice = 0; twice < 2; twice++) {
    settle_down(w);
    (void)watch_follow(w, k);
  }
}

static void wants_told(const char *what, watch *w, const key *k) {
  int64_t until = now_ms() + TOLD_MS;
  while (!watch_told(w, k) && now_ms() < until) (void)watch_listen(w, -1, until);
  check(watch_told(w, k), "%s was not told within %d ms", what, TOLD_MS);
}

void case_an_unlock_is_told(void) {
  const key *k = lock_new("k");
  client *other = client_new();
  watch *w = watch_new(k);
  for (unsigned i = 0; i < 3; i++) {
    wants("a lock", lock_take(other, k, i, ALONE, LONG_MS).status, CORRAL_OK);
    follow_in_silence(w, k);
    wants("an unlock", unlock(other, k, i).status, CORRAL_OK);
    wants_told("an unlock", w, k);
  }
}

void case_a_downgrade_is_told(void) {
  const key *k = lock_new("k");
  client *other = client_new();
  watch *w = watch_new(k);
  wants("a lock", lock_take(other, k, OTHER, ALONE, LONG_MS).status, CORRAL_OK);
  follow_in_silence(w, k);
  wants("a downgrade", lock_extend(other, k, OTHER, SHARED, LONG_MS).status, CORRAL_OK);
  wants_told("a downgrade", w, k);
}

static void unlock_when_looked(void *arg) {
  board *b = arg;
  client *c = client_new();
  wants("a lock by another process", lock_take(c, b->k, OTHER, ALONE, LONG_MS).status, CORRAL_OK);
  atomic_store(&b->second, 1);
  wait_for(&b->first, 1, "to look");
  wants("an unlock by another process", unlock(c, b->k, OTHER).status, CORRAL_OK);
}

void case_an_unlock_by_another_process_is_told(void) {
  board *b = shared_room(sizeof *b);
  b->k = lock_new("k");
  pid_t pid = process_start(unlock_when_looked, b);
  watch *w = watch_new(b->k);
  wait_for(&b->second, 1, "for its lock");
  follow_in_silence(w, b->k);
  atomic_store(&b->first, 1);
  wants_told("an unlock by another process", w, b->k);
  process_join(pid);
}

/* ---- faults -------------------------------------------------------------------------------- */

enum { SLACK_MS = 250, TRIES = 3 };

static client *behind_proxies(void) {
  proxies_start();
  client *c = client_new();
  if (client_connect(c, now_ms() + LIMIT_MS) != CORRAL_OK)
    cant("the store doesn't connect through a proxy: %s", client_error(c));
  return c;
}

/* True if the holder has the lock. Ends the fault first. */
static bool holds(client *c, const key *k, unsigned holder) {
  proxies_set(FAULT_NONE, 0);
  shown_lock s = lock_show(c, k);
  return hold_of(&s, holder) != NULL;
}

/* A hold of a connection that was cut is over with that, so LOCK_EXTEND may answer ELOST: then the
 * lock is free, or soon is. */
static bool is_truly_lost(client *c, const key *k, const corral_op *op) {
  if (op->verb != CORRAL_VERB_LOCK_EXTEND || op->status != CORRAL_ELOST) return false;
  proxies_set(FAULT_NONE, 0);
  (void)lock_when_free(c, k, OTHER, ALONE, now_ms());
  wants("another's unlock", unlock(c, k, OTHER).status, CORRAL_OK);
  return true;
}

/* Performs a verb under a fault, on a lock that OWNER holds (LOCK: on a free one). Returns the time
 * that it took, ms. */
static int64_t strike(client *c, corral_verb verb, fault what, int64_t limit_ms) {
  const key *k = lock_new("k");
  const char *name = verb_name((uint32_t)verb);
  proxies_set(FAULT_NONE, 0);
  if (verb != CORRAL_VERB_LOCK)
    wants("a lock", lock_take(c, k, OWNER, ALONE, LONG_MS).status, CORRAL_OK);
  else
    (void)lock_show(c, k);
  corral_op op = op_of(verb, k, OWNER);
  proxies_set(what, 0);
  int64_t from = now_ms();
  (void)client_perform(c, &op, 1, from + limit_ms);
  int64_t took = now_ms() - from;
  op_drop(&op);
  /* An unlock may close the very connection that holds, and needs no reply then. */
  check(op.status == CORRAL_EINDOUBT || op.status == CORRAL_EUNAVAILABLE ||
            (verb == CORRAL_VERB_UNLOCK && op.status == CORRAL_OK) || is_truly_lost(c, k, &op),
        "%s: its reply didn't come; expected EINDOUBT or EUNAVAILABLE, came %s", name,
        corral_status_name(op.status));
  int status = op.status;
  bool has = holds(c, k, OWNER);
  check(verb != CORRAL_VERB_LOCK || status != CORRAL_EUNAVAILABLE || !has,
        "LOCK answered EUNAVAILABLE, which is 'not sent', and was granted");
  check(verb != CORRAL_VERB_UNLOCK || status != CORRAL_OK || !has,
        "UNLOCK answered OK, and the lock is held");
  if (verb != CORRAL_VERB_LOCK) return took;
  /* As the host does after an unknown fate: whatever the answer, the lock is free afterwards. */
  (void)unlock(c, k, OWNER);
  wants("another's lock after the unlock of a lock of unknown fate",
        lock_take(c, k, OTHER, ALONE, LONG_MS).status, CORRAL_OK);
  wants("its unlock", unlock(c, k, OTHER).status, CORRAL_OK);
  return took;
}

static void strike_verbs(fault what, int64_t limit_ms) {
  client *c = behind_proxies();
  for (int verb = CORRAL_VERB_LOCK; verb <= CORRAL_VERB_LOCK_SHOW; verb++) {
    int64_t least = INT64_MAX;
    /* this host may itself be slow, but not at every try */
    for (int i = 0; i < TRIES && least > limit_ms + SLACK_MS; i++) {
      int64_t took = strike(c, (corral_verb)verb, what, limit_ms);
      if (took < least) least = took;
    }
    check(least <= limit_ms + SLACK_MS,
          "%s: the deadline was after %lld ms, the answer came after %lld ms",
          verb_name((uint32_t)verb), (long long)limit_ms, (long long)least);
  }
}

void case_a_lock_whose_reply_is_cut(void) { strike_verbs(FAULT_CLOSE, 2000); }
void case_a_lock_whose_reply_never_comes(void) { strike_verbs(FAULT_HANG, 100); }

void case_a_lock_where_nobody_listens(void) {
  nobody_listens();
  client *c = client_new();
  const key *k = lock_new("k");
  corral_op op = op_of(CORRAL_VERB_LOCK, k, OWNER);
  int64_t from = now_ms();
  (void)client_perform(c, &op, 1, from + LIMIT_MS);
  check(op.status == CORRAL_EUNAVAILABLE,
        "LOCK where nobody listens: expected EUNAVAILABLE, came %s", corral_status_name(op.status));
  check(now_ms() - from < LIMIT_MS / 2, "LOCK where nobody listens: it took %lld ms to see that",
        (long long)(now_ms() - from));
}
