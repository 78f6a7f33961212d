/* case_permit.c: permits: so many hold one lock at once. */
#include "conformance.h"

enum { FIRST = 1, SECOND = 2, THIRD = 3, FOURTH = 4, WRITER = 5, PERMITS = 3 };
enum { SHORT_MS = 200, MIDDLE_MS = 20000 };

static told take(client *c, const key *k, unsigned holder) {
  return lock_permit(c, k, holder, PERMITS, LONG_MS);
}

void case_permits_go_to_so_many_and_no_more(void) {
  client *c = client_new(), *other = client_new();
  const key *k = lock_new("k");
  told a = take(c, k, FIRST), b = take(other, k, SECOND), d = take(c, k, THIRD);
  wants("a permit", a.status, CORRAL_OK);
  wants("a second permit", b.status, CORRAL_OK);
  wants("a third permit", d.status, CORRAL_OK);
  check(a.fence < b.fence && b.fence < d.fence, "the fencing tokens of three permits don't grow");
  wants("a fourth permit of three", take(other, k, FOURTH).status, CORRAL_EBUSY);
  wants("the second permit again, by its token", take(c, k, SECOND).status, CORRAL_OK);
  shown_lock s = lock_show(c, k);
  check(s.live == PERMITS, "LOCK_SHOW of three permits shows %zu", s.live);
  for (unsigned i = FIRST; i <= THIRD; i++) {
    check(hold_of(&s, i) != NULL, "LOCK_SHOW of three permits doesn't show number %u", i);
    check(hold_of(&s, i)->mode == CORRAL_LOCK_PERMIT, "LOCK_SHOW shows a permit's mode as %d",
          hold_of(&s, i)->mode);
  }
  wants("the second's unlock", unlock(c, k, SECOND).status, CORRAL_OK);
  wants("a fourth permit when one was given back", take(other, k, FOURTH).status, CORRAL_OK);
  wants("the second permit when all are taken", take(c, k, SECOND).status, CORRAL_EBUSY);
}

void case_each_permit_ends_alone(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  int64_t from = now_ms();
  wants("a short permit", lock_permit(c, k, FIRST, 2, SHORT_MS).status, CORRAL_OK);
  wants("a long permit", lock_permit(c, k, SECOND, 2, LONG_MS).status, CORRAL_OK);
  told t = lock_permit(c, k, THIRD, 2, LONG_MS);
  for (; t.status == CORRAL_EBUSY; t = lock_permit(c, k, THIRD, 2, LONG_MS)) {
    check(now_ms() <= from + SHORT_MS + LATE_HOLD_MS, "a permit of %d ms was not over", SHORT_MS);
    pause_ms(4);
  }
  wants("a permit when the short one is over", t.status, CORRAL_OK);
  check(now_ms() >= from + SHORT_MS - EARLY_MS, "a permit of %d ms was over after %lld ms",
        SHORT_MS, (long long)(now_ms() - from));
  wants("the short permit's extend then", lock_extend(c, k, FIRST, ALONE, LONG_MS).status,
        CORRAL_ELOST);
  wants("the short permit's unlock then", unlock(c, k, FIRST).status, CORRAL_ELOST);
  wants("the long permit's extend", lock_extend(c, k, SECOND, ALONE, LONG_MS).status, CORRAL_OK);
  wants("the long permit's unlock", unlock(c, k, SECOND).status, CORRAL_OK);
}

void case_a_refusal_of_a_permit_tells_the_first_end(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  wants("a long permit", lock_permit(c, k, FIRST, 2, LONG_MS).status, CORRAL_OK);
  wants("a shorter permit", lock_permit(c, k, SECOND, 2, MIDDLE_MS).status, CORRAL_OK);
  told t = lock_permit(c, k, THIRD, 2, LONG_MS);
  wants("a third permit of two", t.status, CORRAL_EBUSY);
  check(t.until_ms > 0 && t.until_ms <= MIDDLE_MS + EARLY_MS,
        "the first permit ends in %d ms, and the refusal says %lld ms", MIDDLE_MS,
        (long long)t.until_ms);
}

void case_permits_and_other_holds_exclude_each_other(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  wants("a permit", take(c, k, FIRST).status, CORRAL_OK);
  wants("an exclusive lock beside a permit", lock_take(c, k, WRITER, ALONE, LONG_MS).status,
        CORRAL_EBUSY);
  wants("a shared lock beside a permit", lock_take(c, k, SECOND, SHARED, LONG_MS).status,
        CORRAL_EBUSY);
  wants("the permit's unlock", unlock(c, k, FIRST).status, CORRAL_OK);
  wants("an exclusive lock then", lock_take(c, k, WRITER, ALONE, LONG_MS).status, CORRAL_OK);
  wants("a permit beside an exclusive lock", take(c, k, FIRST).status, CORRAL_EBUSY);
  wants("the exclusive lock's unlock", unlock(c, k, WRITER).status, CORRAL_OK);
  wants("a shared lock then", lock_take(c, k, SECOND, SHARED, LONG_MS).status, CORRAL_OK);
  wants("a permit beside a shared lock", take(c, k, FIRST).status, CORRAL_EBUSY);
  wants("the shared lock's unlock", unlock(c, k, SECOND).status, CORRAL_OK);
  wants("a permit then", take(c, k, FIRST).status, CORRAL_OK);
}

static told wish(client *c, const key *k) {
  return lock_as(c, k, WRITER, ALONE, LONG_MS, LONG_MS, "a writer who waits");
}

void case_a_writers_wish_bars_new_permits(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  wants("a permit", take(c, k, FIRST).status, CORRAL_OK);
  wants("a writer's wish", wish(c, k).status, CORRAL_EBUSY);
  wants("a new permit while a writer waits", take(c, k, SECOND).status, CORRAL_EBUSY);
  wants("the old permit's extend", lock_extend(c, k, FIRST, ALONE, LONG_MS).status, CORRAL_OK);
  wants("the old permit's unlock", unlock(c, k, FIRST).status, CORRAL_OK);
  wants("the writer's lock", wish(c, k).status, CORRAL_OK);
  wants("the writer's unlock", unlock(c, k, WRITER).status, CORRAL_OK);
  wants("a permit after the writer", take(c, k, SECOND).status, CORRAL_OK);
}

void case_a_permit_that_is_downgraded_stays_one(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  wants("a permit", take(c, k, FIRST).status, CORRAL_OK);
  wants("its downgrade", lock_extend(c, k, FIRST, SHARED, LONG_MS).status, CORRAL_OK);
  shown_lock s = lock_show(c, k);
  check(s.live == 1 && s.holds[0].mode == CORRAL_LOCK_PERMIT,
        "a permit that is downgraded has mode %d", s.holds[0].mode);
  wants("a permit beside it", take(c, k, SECOND).status, CORRAL_OK);
}
