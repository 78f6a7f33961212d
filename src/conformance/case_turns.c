/* case_turns.c: turns: LOCKs with FAIR are granted in the order of their arrival. */
#include "conformance.h"

enum { HOLDER = 1, FIRST = 2, SECOND = 3, THIRD = 4, LATE = 9, WISH_MS = 2000 };

static void needs_turns(void) {
  if (!declared()->turns) cant("the store declares no turns");
}

static told ask(client *c, const key *k, unsigned holder) {
  return lock_as(c, k, holder, CORRAL_OP_FAIR, LONG_MS, WISH_MS, "a waiter");
}

static void wants_place(client *c, const key *k, unsigned holder, uint64_t place) {
  told t = ask(c, k, holder);
  wants("a LOCK in turn of a lock that is held", t.status, CORRAL_EBUSY);
  check(t.fence == place || t.fence == 0, "waiter %llu of a queue is told the place %llu",
        (unsigned long long)place, (unsigned long long)t.fence);
}

/* Asks until it is granted: a store with a queue of its own may need a moment. */
static void wants_turn(client *c, const key *k, unsigned holder) {
  int64_t until = now_ms() + LATE_HOLD_MS;
  told t = ask(c, k, holder);
  for (; t.status == CORRAL_EBUSY && now_ms() < until; pause_ms(4)) t = ask(c, k, holder);
  wants("a LOCK in its turn", t.status, CORRAL_OK);
}

void case_turns_go_in_the_order_of_arrival(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  needs_turns();
  wants("a lock of nobody in turn", ask(c, k, HOLDER).status, CORRAL_OK);
  for (unsigned i = FIRST; i <= THIRD; i++) wants_place(c, k, i, i - HOLDER);
  for (unsigned i = FIRST; i <= THIRD; i++) {
    wants("an unlock", unlock(c, k, i - 1).status, CORRAL_OK);
    /* after the release, and in its place: asking again changes nothing */
    for (unsigned j = THIRD; j > i; j--)
      wants("a LOCK before its turn", ask(c, k, j).status, CORRAL_EBUSY);
    wants("a LOCK of the last holder", ask(c, k, LATE + i).status, CORRAL_EBUSY);
    wants_turn(c, k, i);
  }
}

/* A store with a queue of its own that doesn't tell places may keep one as long as its process
 * lives. */
void case_a_turn_that_isnt_taken_passes_on(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  needs_turns();
  wants("a lock of nobody in turn", ask(c, k, HOLDER).status, CORRAL_OK);
  told t = ask(c, k, FIRST);
  wants("a LOCK in turn of a lock that is held", t.status, CORRAL_EBUSY);
  if (t.fence == 0) cant("the store doesn't tell places");
  wants_place(c, k, SECOND, 2);
  wants("an unlock", unlock(c, k, HOLDER).status, CORRAL_OK);
  int64_t from = now_ms();
  wants_turn(c, k, SECOND);
  check(now_ms() - from >= CORRAL_LOCK_TURN_MS - EARLY_MS - CLOCK_MS,
        "a turn of %d ms was passed on after %lld ms", CORRAL_LOCK_TURN_MS,
        (long long)(now_ms() - from));
}

void case_who_gives_up_leaves_the_queue(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  needs_turns();
  wants("a lock of nobody in turn", ask(c, k, HOLDER).status, CORRAL_OK);
  wants_place(c, k, FIRST, 1);
  wants_place(c, k, SECOND, 2);
  (void)unlock(c, k, FIRST);
  wants_place(c, k, SECOND, 1);
  check(lock_show(c, k).waiting <= 1, "LOCK_SHOW shows a place that was given back");
  wants("an unlock", unlock(c, k, HOLDER).status, CORRAL_OK);
  wants_turn(c, k, SECOND);
}
