/* case_route.c: keys that move to other servers, in the middle of batches and beside a watch. The
 * program of --move moves them. */
#include "conformance.h"

enum { OWNER = 1, OTHER = 2, COUNT = 48, EACH = 5, MOVES = 12, QUIET_MS = 30, TOLD_MS = 1000 };

static int64_t limit(void) { return now_ms() + LIMIT_MS; }

/* Each operation must have an answer of its own, so none may be lost on the way. */
static void perform_all(client *c, corral_op *ops, size_t count) {
  int status = client_perform(c, ops, count, limit());
  check(status == CORRAL_OK, "a batch whose keys move: %s: %s", corral_status_name(status),
        client_error(c));
}

void case_a_value_goes_with_its_key(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 5000, 1);
  fill(c, k, OWNER, r, LONG_MS);
  for (int i = 0; i < 3; i++) {
    key_move(k);
    wants_value("GET of a key that was moved", get(c, k), r);
  }
  wants("an invalidate of a key that was moved", invalidate(c, k), CORRAL_OK);
  key_move(k);
  wants_nothing("GET of a key that was invalidated and moved", get(c, k));
}

void case_a_lease_goes_with_its_key(void) {
  client *c = client_new(), *other = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 5000, 1);
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  key_move(k);
  wants("another's claim of a key that was moved", claim(other, k, OTHER, LONG_MS).status,
        CORRAL_EBUSY);
  key_move(k);
  wants("an extend of a key that was moved", extend(c, k, OWNER, LONG_MS), CORRAL_OK);
  key_move(k);
  wants("a settle of a key that was moved", settle(c, k, OWNER, r, LONG_MS), CORRAL_OK);
  wants_value("GET of a key that was moved", get(other, k), r);
  wants("a claim over a value", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  key_move(k);
  wants("a release of a key that was moved", release(c, k, OWNER), CORRAL_OK);
}

/* ---- batches ------------------------------------------------------------------------------- */

typedef struct scene {
  client *c;
  const key *keys[COUNT];
  const record *records[COUNT];
  corral_op ops[COUNT];
} scene;

static scene *scene_new(void) {
  scene *s = room(sizeof *s);
  s->c = client_new();
  for (size_t i = 0; i < COUNT; i++) {
    s->keys[i] = key_new("k");
    s->records[i] = record_new(s->keys[i], 3000 + i, (unsigned)i);
  }
  return s;
}

/* Some of the keys, so that a batch is sent on in the middle. */
static void move_some(const scene *s, size_t from) {
  for (size_t i = from; i < COUNT; i += EACH) key_move(s->keys[i]);
}

static void claim_all(scene *s) {
  for (size_t i = 0; i < COUNT; i++) s->ops[i] = op_of(CORRAL_VERB_CLAIM, s->keys[i], OWNER);
  perform_all(s->c, s->ops, COUNT);
  for (size_t i = 0; i < COUNT; i++)
    wants_lease("a claim in a batch", sight_of(&s->ops[i], client_error(s->c)), OWNER);
}

static void settle_all(scene *s) {
  for (size_t i = 0; i < COUNT; i++)
    s->ops[i] = op_settle(s->keys[i], OWNER, s->records[i], LONG_MS);
  perform_all(s->c, s->ops, COUNT);
  for (size_t i = 0; i < COUNT; i++)
    wants("a settle in a batch", sight_of(&s->ops[i], client_error(s->c)).status, CORRAL_OK);
}

static void get_all(scene *s) {
  for (size_t i = 0; i < COUNT; i++) s->ops[i] = op_of(CORRAL_VERB_GET, s->keys[i], 0);
  perform_all(s->c, s->ops, COUNT);
  for (size_t i = 0; i < COUNT; i++)
    wants_value("GET in a batch", sight_of(&s->ops[i], client_error(s->c)), s->records[i]);
}

static void invalidate_all(scene *s) {
  for (size_t i = 0; i < COUNT; i++) s->ops[i] = op_of(CORRAL_VERB_INVALIDATE, s->keys[i], 0);
  perform_all(s->c, s->ops, COUNT);
  for (size_t i = 0; i < COUNT; i++)
    wants("an invalidate in a batch", sight_of(&s->ops[i], client_error(s->c)).status, CORRAL_OK);
}

void case_a_batch_some_of_whose_keys_have_moved(void) {
  scene *s = scene_new();
  claim_all(s);
  move_some(s, 0);
  settle_all(s);
  move_some(s, 1);
  get_all(s);
  move_some(s, 2);
  invalidate_all(s);
  move_some(s, 3);
  claim_all(s);
}

typedef struct mover {
  const scene *scene;
  atomic_uint moved;
} mover;

static void move_on(void *arg) {
  mover *m = arg;
  for (size_t i = 0; i < MOVES; i++) {
    key_move(m->scene->keys[i * EACH % COUNT]);
    atomic_fetch_add(&m->moved, 1);
  }
}

/* The keys are named before the store is opened, and so known to the mover. */
void case_batches_while_keys_move(void) {
  mover *m = shared_room(sizeof *m);
  scene *s = room(sizeof *s);
  for (size_t i = 0; i < COUNT; i++) s->keys[i] = key_new("k");
  m->scene = s;
  pid_t pid = process_start(move_on, m);
  s->c = client_new();
  for (size_t i = 0; i < COUNT; i++) s->records[i] = record_new(s->keys[i], 3000 + i, (unsigned)i);
  do {
    claim_all(s);
    settle_all(s);
    get_all(s);
    invalidate_all(s);
  } while (atomic_load(&m->moved) < MOVES);
  process_join(pid);
}

/* ---- the map ------------------------------------------------------------------------------- */

void case_a_key_that_was_moved_is_found_at_once_from_then_on(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 100, 1);
  fill(c, k, OWNER, r, LONG_MS);
  for (int i = 0; i < 3; i++) {
    key_move(k);
    wants_value("GET of a key that was moved", get(c, k), r);
    check(client_hops(c, k) == 0, "a key that was asked for after its move is sent on again");
  }
}

void case_a_refresh_learns_where_keys_are(void) {
  client *c = client_new();
  const key *k = key_new("k");
  fill(c, k, OWNER, record_new(k, 100, 1), LONG_MS);
  for (int i = 0; i < 3; i++) {
    key_move(k);
    world_refresh();
    check(client_hops(c, k) == 0, "after a refresh a key that was moved is sent on");
  }
}

/* ---- the watch ----------------------------------------------------------------------------- */

static void be_silent(watch *w) {
  for (int64_t until = limit(); watch_listen(w, -1, now_ms() + QUIET_MS);)
    check(now_ms() < until, "for %d ms one change after another is told, and nothing changes",
          LIMIT_MS);
  watch_forget(w);
}

static void wants_told(const char *what, watch *w, const key *k) {
  int64_t until = now_ms() + TOLD_MS;
  while (!watch_told(w, k) && now_ms() < until) (void)watch_listen(w, -1, until);
  check(watch_told(w, k), "%s was not told within %d ms", what, TOLD_MS);
}

void case_a_watch_tells_that_a_key_has_moved(void) {
  client *c = client_new();
  const key *k = key_new("k");
  watch *w = watch_new(k);
  const record *r = record_new(k, 100, 1);
  fill(c, k, OWNER, r, LONG_MS);
  (void)watch_follow(w, k);
  be_silent(w);
  (void)watch_follow(w, k);
  key_move(k);
  wants_value("GET of a key that was moved", get(c, k), r); /* so that it is known */
  wants_told("the move of a key to another server", w, k);
}

void case_a_change_after_a_move_is_told(void) {
  client *c = client_new();
  const key *k = key_new("k");
  watch *w = watch_new(k);
  for (unsigned i = 0; i < 3; i++) {
    const record *r = record_new(k, 100, i);
    fill(c, k, OWNER, r, LONG_MS);
    key_move(k);
    wants_value("GET of a key that was moved", get(c, k), r);
    (void)watch_follow(w, k);
    be_silent(w);
    (void)watch_follow(w, k);
    wants("an invalidate", invalidate(c, k), CORRAL_OK);
    wants_told("a change of a key that was moved", w, k);
  }
}
