/* case_shared.c: shared holds (readers), exclusive holds (writers), and a waiting writer's wish. */
#include "conformance.h"

enum { READER = 1, SECOND = 2, THIRD = 3, WRITER = 4, SHORT_MS = 200, WISH_MS = 400 };

void case_shared_holds_stand_together(void) {
  client *c = client_new(), *other = client_new();
  const key *k = lock_new("k");
  told a = lock_take(c, k, READER, SHARED, LONG_MS),
       b = lock_take(other, k, SECOND, SHARED, LONG_MS),
       d = lock_take(c, k, THIRD, SHARED, LONG_MS);
  wants("a reader's lock", a.status, CORRAL_OK);
  wants("a second reader's", b.status, CORRAL_OK);
  wants("a third reader's", d.status, CORRAL_OK);
  check(a.fence < b.fence && b.fence < d.fence, "the fencing tokens of three readers don't grow");
  shown_lock s = lock_show(c, k);
  check(s.live == 3, "LOCK_SHOW of three readers shows %zu", s.live);
  for (unsigned i = READER; i <= THIRD; i++) {
    check(hold_of(&s, i) != NULL, "LOCK_SHOW of three readers doesn't show number %u", i);
    check(hold_of(&s, i)->mode == CORRAL_LOCK_SHARED, "LOCK_SHOW shows a reader's mode as %d",
          hold_of(&s, i)->mode);
  }
}

void case_a_writer_is_refused_beside_readers(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  wants("a reader's lock", lock_take(c, k, READER, SHARED, LONG_MS).status, CORRAL_OK);
  wants("a second reader's", lock_take(c, k, SECOND, SHARED, LONG_MS).status, CORRAL_OK);
  wants("a writer's beside two readers", lock_take(c, k, WRITER, ALONE, LONG_MS).status,
        CORRAL_EBUSY);
  wants("the second's unlock", unlock(c, k, SECOND).status, CORRAL_OK);
  wants("a writer's beside one reader", lock_take(c, k, WRITER, ALONE, LONG_MS).status,
        CORRAL_EBUSY);
  wants("the first's unlock", unlock(c, k, READER).status, CORRAL_OK);
  wants("a writer's after the readers", lock_take(c, k, WRITER, ALONE, LONG_MS).status, CORRAL_OK);
  told t = lock_take(c, k, READER, SHARED, LONG_MS);
  wants("a reader's beside a writer", t.status, CORRAL_EBUSY);
}

void case_each_shared_hold_ends_alone(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  int64_t from = now_ms();
  wants("a reader's short lock", lock_take(c, k, READER, SHARED, SHORT_MS).status, CORRAL_OK);
  wants("a second reader's long one", lock_take(c, k, SECOND, SHARED, LONG_MS).status, CORRAL_OK);
  for (size_t live = 2; live > 1; pause_ms(4)) {
    live = lock_show(c, k).live;
    check(live == 2 || now_ms() >= from + SHORT_MS - EARLY_MS,
          "a reader's hold of %d ms was over after %lld ms", SHORT_MS,
          (long long)(now_ms() - from));
    check(live > 0, "a reader's hold ended together with another's");
    check(now_ms() <= from + SHORT_MS + LATE_HOLD_MS,
          "a reader's hold of %d ms was not over beside another's that is long", SHORT_MS);
  }
  wants("the first reader's extend when its hold is over",
        lock_extend(c, k, READER, ALONE, LONG_MS).status, CORRAL_ELOST);
  told t = unlock(c, k, READER);
  wants("the first reader's unlock then", t.status, CORRAL_ELOST);
  check(t.until_ms != 0,
        "the first reader's unlock: told that nobody has the lock, and the second has it");
  wants("a writer's lock then", lock_take(c, k, WRITER, ALONE, LONG_MS).status, CORRAL_EBUSY);
  wants("the second reader's extend", lock_extend(c, k, SECOND, ALONE, LONG_MS).status, CORRAL_OK);
  wants("the second reader's unlock", unlock(c, k, SECOND).status, CORRAL_OK);
  wants("a writer's lock after it", lock_take(c, k, WRITER, ALONE, LONG_MS).status, CORRAL_OK);
}

static told wish(client *c, const key *k, int64_t wish_ms) {
  return lock_as(c, k, WRITER, ALONE, LONG_MS, wish_ms, "a writer who waits");
}

void case_a_writers_wish_bars_new_readers(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  wants("a reader's lock", lock_take(c, k, READER, SHARED, LONG_MS).status, CORRAL_OK);
  wants("a writer's wish", wish(c, k, LONG_MS).status, CORRAL_EBUSY);
  wants("a new reader's lock while a writer waits", lock_take(c, k, SECOND, SHARED, LONG_MS).status,
        CORRAL_EBUSY);
  wants("the old reader's extend while a writer waits",
        lock_extend(c, k, READER, ALONE, LONG_MS).status, CORRAL_OK);
  wants("the old reader's unlock", unlock(c, k, READER).status, CORRAL_OK);
  (void)unlock(c, k, SECOND); /* it may have a place in a queue */
  told t = wish(c, k, LONG_MS);
  for (int64_t until = now_ms() + LATE_HOLD_MS; t.status == CORRAL_EBUSY && now_ms() < until;
       pause_ms(4))
    t = wish(c, k, LONG_MS);
  wants("the writer's lock when the readers are gone", t.status, CORRAL_OK);
  wants("the writer's unlock", unlock(c, k, WRITER).status, CORRAL_OK);
  wants("a new reader's lock after the writer", lock_take(c, k, THIRD, SHARED, LONG_MS).status,
        CORRAL_OK);
}

/* The wish of a writer that doesn't ask again ends; where it has a place in a queue, UNLOCK gives
 * that back. */
void case_a_wish_passes(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  wants("a reader's lock", lock_take(c, k, READER, SHARED, LONG_MS).status, CORRAL_OK);
  int64_t from = now_ms();
  corral_op op = op_of(CORRAL_VERB_LOCK, k, WRITER);
  op.lock.wish_ms = WISH_MS;
  int status = client_perform(c, &op, 1, now_ms() + LIMIT_MS);
  if (status != CORRAL_OK)
    failed("LOCK: the handle broke: %s: %s", corral_status_name(status), client_error(c));
  wants("a writer's wish", told_of(&op, k, WRITER, client_error(c)).status, CORRAL_EBUSY);
  if (op.flags & CORRAL_OP_QUEUED) {
    (void)unlock(c, k, WRITER);
    from -= WISH_MS;
  }
  (void)lock_when_free(c, k, SECOND, SHARED, from + WISH_MS);
}

void case_a_downgrade_lets_readers_in(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  told t = lock_take(c, k, WRITER, ALONE, LONG_MS);
  wants("a writer's lock", t.status, CORRAL_OK);
  wants("a reader's beside it", lock_take(c, k, READER, SHARED, LONG_MS).status, CORRAL_EBUSY);
  told d = lock_extend(c, k, WRITER, SHARED, LONG_MS);
  wants("the writer's downgrade", d.status, CORRAL_OK);
  check(d.fence >= t.fence, "a downgrade made the fencing token smaller");
  wants("a reader's lock after it", lock_take(c, k, READER, SHARED, LONG_MS).status, CORRAL_OK);
  wants("a second writer's", lock_take(c, k, THIRD, ALONE, LONG_MS).status, CORRAL_EBUSY);
  wants("the first writer's unlock", unlock(c, k, WRITER).status, CORRAL_OK);
  wants("a second writer's beside the reader", lock_take(c, k, THIRD, ALONE, LONG_MS).status,
        CORRAL_EBUSY);
  wants("the reader's unlock", unlock(c, k, READER).status, CORRAL_OK);
  wants("a second writer's after it", lock_take(c, k, THIRD, ALONE, LONG_MS).status, CORRAL_OK);
}
