/* locks.c: a function for each verb of a lock, and checks of its answer. */
#include "conformance.h"

#include "record/lock_record.h"

enum { GRANTS = 2048 };

/* Holds, and places in a queue, that this process has not given back. */
static struct grants {
  size_t count;
  struct grant {
    const key *k;
    unsigned holder;
  } all[GRANTS];
} grants;

static void grant_forget(const key *k, unsigned holder) {
  for (size_t i = grants.count; i-- > 0;)
    if (grants.all[i].k == k && grants.all[i].holder == holder)
      grants.all[i] = grants.all[--grants.count];
}

static void grant_note(const key *k, unsigned holder) {
  grant_forget(k, holder);
  check(grants.count < GRANTS, "this case has more than %d holds at once", GRANTS);
  grants.all[grants.count++] = (struct grant){k, holder};
}

void locks_forget(void) { grants.count = 0; }

void locks_end(client *c) {
  while (grants.count > 0) {
    const struct grant *g = &grants.all[--grants.count];
    corral_op op = op_of(CORRAL_VERB_UNLOCK, g->k, g->holder);
    (void)client_perform(c, &op, 1, now_ms() + LIMIT_MS);
  }
}

/* ---- answers ------------------------------------------------------------------------------- */

static bool is_expected(const corral_op *op) {
  switch (op->verb) {
    case CORRAL_VERB_LOCK: return op->status == CORRAL_OK || op->status == CORRAL_EBUSY;
    case CORRAL_VERB_LOCK_SHOW: return op->status == CORRAL_OK || op->status == CORRAL_EMISS;
    default: return op->status == CORRAL_OK || op->status == CORRAL_ELOST;
  }
}

static void check_times(const corral_op *op, const char *name) {
  bool grants_time = op->status == CORRAL_OK && op->verb != CORRAL_VERB_UNLOCK &&
                     op->verb != CORRAL_VERB_LOCK_SHOW;
  check(op->lock_state.left_ms >= -1, "%s: %lld ms are left", name,
        (long long)op->lock_state.left_ms);
  check(!grants_time || op->lock_state.left_ms > 0, "%s was granted with %lld ms left", name,
        (long long)op->lock_state.left_ms);
  check(!grants_time || op->lock_state.fence > 0, "%s was granted without a fencing token", name);
  check(op->status != CORRAL_EBUSY || op->lock_state.left_ms != 0,
        "%s answered EBUSY, and that nobody is in the way (left_ms 0)", name);
}

told told_of(corral_op *op, const key *k, unsigned holder, const char *error) {
  const char *name = verb_name(op->verb),
             *how = op->flags & CORRAL_OP_SHARED                           ? " of a shared hold"
                    : op->verb == CORRAL_VERB_LOCK && op->lock.permits > 0 ? " of a permit"
                                                                           : "";
  if (op->status == CORRAL_EUNSUPPORTED)
    cant("the store answers EUNSUPPORTED to %s%s: %s", name, how, error);
  check(is_expected(op), "%s: %s: %s", name, corral_status_name(op->status), error);
  check((op->verb == CORRAL_VERB_LOCK_SHOW && op->status == CORRAL_OK) ==
            (op->found.record != NULL),
        "%s answered %s and %s a record in `found`", name, corral_status_name(op->status),
        op->found.record != NULL ? "gave" : "gave not");
  check_times(op, name);
  if (op->verb == CORRAL_VERB_LOCK &&
      (op->status == CORRAL_OK || op->flags & (CORRAL_OP_QUEUED | CORRAL_OP_FAIR)))
    grant_note(k, holder);
  if (op->verb == CORRAL_VERB_UNLOCK) grant_forget(k, holder);
  return (told){
      .status = op->status, .fence = op->lock_state.fence, .until_ms = op->lock_state.left_ms};
}

/* Performs a verb of a lock; the handle must stay usable. */
static told perform_lock(client *c, corral_op *op, const key *k, unsigned holder) {
  int status = client_perform(c, op, 1, now_ms() + LIMIT_MS);
  if (status != CORRAL_OK)
    failed("%s: the handle broke: %s: %s", verb_name(op->verb), corral_status_name(status),
           client_error(c));
  return told_of(op, k, holder, client_error(c));
}

/* ---- verbs --------------------------------------------------------------------------------- */

told lock_as(client *c, const key *k, unsigned holder, unsigned flags, int64_t lease_ms,
             int64_t wish_ms, const char *note) {
  corral_op op = op_of(CORRAL_VERB_LOCK, k, holder);
  op.flags = flags;
  op.lock = (corral_lock_args){
      .hold_ms = lease_ms, .wish_ms = wish_ms, .note = note, .note_len = strlen(note)};
  return perform_lock(c, &op, k, holder);
}

told lock_take(client *c, const key *k, unsigned holder, unsigned flags, int64_t lease_ms) {
  return lock_as(c, k, holder, flags, lease_ms, 0, "corral-conformance");
}

told lock_permit(client *c, const key *k, unsigned holder, uint32_t permits, int64_t lease_ms) {
  corral_op op = op_of(CORRAL_VERB_LOCK, k, holder);
  op.lock = (corral_lock_args){.hold_ms = lease_ms, .permits = permits};
  return perform_lock(c, &op, k, holder);
}

told lock_extend(client *c, const key *k, unsigned holder, unsigned flags, int64_t lease_ms) {
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, k, holder);
  op.flags = flags;
  op.lock_extend.hold_ms = lease_ms;
  return perform_lock(c, &op, k, holder);
}

told unlock(client *c, const key *k, unsigned holder) {
  corral_op op = op_of(CORRAL_VERB_UNLOCK, k, holder);
  return perform_lock(c, &op, k, holder);
}

shown_lock lock_show(client *c, const key *k) {
  corral_op op = op_of(CORRAL_VERB_LOCK_SHOW, k, 0);
  crl_lock_head head;
  corral_hold hold;
  shown_lock s = {.status = perform_lock(c, &op, k, 0).status, .now = op.lock_state.now};
  if (s.status != CORRAL_OK) return s;
  bool is_record = crl_lock_record_read(op.found.record, op.found.len, &head) == CORRAL_OK;
  for (size_t i = 0; is_record && i < head.count; i++) {
    crl_lock_record_hold(op.found.record, i, &hold);
    if (hold.until <= s.now) continue;
    if (crl_lock_record_waits(&hold)) {
      s.waiting++;
      continue;
    }
    if (s.live < HOLDS_SHOWN) s.holds[s.live] = hold;
    s.live++;
  }
  size_t len = op.found.len;
  op_drop(&op);
  check(is_record, "LOCK_SHOW gave %zu bytes that are no lock's record", len);
  return s;
}

const corral_hold *hold_of(const shown_lock *s, unsigned holder) {
  for (size_t i = 0; i < s->live && i < HOLDS_SHOWN; i++)
    if (memcmp(s->holds[i].token, token(holder), CORRAL_TOKEN) == 0) return &s->holds[i];
  return NULL;
}

told lock_when_free(client *c, const key *k, unsigned holder, unsigned flags, int64_t least) {
  for (;;) {
    told t = lock_take(c, k, holder, flags, LONG_MS);
    int64_t now = now_ms();
    if (t.status == CORRAL_OK) {
      check(now >= least - EARLY_MS, "a lock was granted %lld ms before another's hold was over",
            (long long)(least - now));
      return t;
    }
    check(now <= least + LATE_HOLD_MS,
          "a lock was not granted %lld ms after another's hold was over", (long long)(now - least));
    pause_ms(4);
  }
}
