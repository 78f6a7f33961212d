/* warm_cursor.c: the cursor that the warmers of one pass share, so that each key is computed once,
 * also when its value ends before the pass does.
 *
 * The cursor is a value in the store (warm_pass.h), whose key is made of the keys and of what
 * computes them. A step on it is a compute of that value: the library elects who steps, gives the
 * record as it stands, and stores the next one only if nobody else has stepped meanwhile. The
 * record's fresh life is 1 ms, so that each step computes.
 *
 * A warmer steps each BEAT_MS at least. Nobody's clock is compared with another's: a warmer is dead
 * when its beat stayed the same for DEAD_MS of the one who looks. The record outlives its last step
 * by RECORD_MS, so a pass that nobody works on any more is forgotten. */
#include "warm.h"
#include "warm_pass.h"

#include <inttypes.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
  BEAT_MS = 2000,
  DEAD_MS = 10000,
  RECORD_MS = 15000,
  STEP_MS = 2000, /* longest wait for another's step, until the next try */
  PAUSE_MS = 10,  /* between two tries of one step */
  LEAVE_TRIES = 3,
  LOOK_MS = 200, /* between two looks at what other warmers have not done yet */
  KEY_TEXT = 64
};

typedef enum step_kind { STEP_TAKE, STEP_BEAT, STEP_LEAVE } step_kind;

/* A range of this warmer, until a step has told the others that it is done. */
typedef struct own_range {
  warm_range range;
  uint64_t left; /* keys that aren't done */
} own_range;

struct warm_cursor {
  warm *w;
  corral *corral; /* without the options of the values' */
  char key[KEY_TEXT];
  pthread_mutex_t mutex;
  uint64_t me, beat;
  uint64_t id; /* of the pass; 0: not joined yet */
  uint64_t total, next;
  bool is_over;
  uint64_t at, end; /* the rest of the range taken last */
  own_range own[WARM_PASS_OWN];
  size_t own_count;
  int64_t stepped_ms; /* the last step that was stored */
  bool is_waiting;    /* the last step found nothing to take */
  int64_t idle_ms;    /* since when this warmer waits for others; 0: it doesn't */
  struct {
    uint64_t id, beat;
    int64_t since_ms;
  } seen[WARM_PASS_WARMERS]; /* the beats of others */
  size_t seen_count;
  /* one step */
  step_kind kind;
  bool is_done;    /* it was computed here */
  bool is_foreign; /* the record is of another pass */
  bool was_buried; /* the others take this warmer for dead */
  bool has_taken, is_last;
  warm_range taken;
  warm_pass pass;
  char text[WARM_PASS_TEXT];
};

static uint64_t random_id(void) {
  uint64_t id = 0;
  randombytes_buf(&id, sizeof id);
  return id != 0 ? id : 1;
}

/* ---- the step, inside of the compute ------------------------------------------------------- */

static own_range *own_of(warm_cursor *c, uint64_t begin) {
  for (size_t i = 0; i < c->own_count; i++)
    if (c->own[i].range.begin == begin) return &c->own[i];
  return NULL;
}

/* Begins a pass, joins the one under way, or writes it anew where the store has lost it. */
static void enter(warm_cursor *c) {
  warm_pass *p = &c->pass;
  bool is_new = c->id == 0 && (p->id == 0 || p->total != c->total || p->warmer_count == 0 ||
                               warm_pass_is_done(p));
  bool is_lost = c->id != 0 && p->id == 0;
  if (is_new) *p = (warm_pass){.id = random_id(), .total = c->total};
  if (is_lost) {
    *p = (warm_pass){.id = c->id, .total = c->total, .next = c->next};
    for (size_t i = 0; i < c->own_count; i++) p->ranges[p->range_count++] = c->own[i].range;
    (void)warm_pass_beat(p, c->me, c->beat);
  }
}

/* Buries those whose beat has stood still. */
static void look_at_others(warm_cursor *c) {
  int64_t now = cli_now_ms();
  for (size_t i = 0; i < c->pass.warmer_count; i++) {
    uint64_t id = c->pass.warmers[i].id, beat = c->pass.warmers[i].beat;
    size_t n = 0;
    while (n < c->seen_count && c->seen[n].id != id) n++;
    if (id == c->me) continue;
    if (n == WARM_PASS_WARMERS) n = c->seen_count = 0; /* most of them are gone */
    bool is_new = n == c->seen_count || c->seen[n].beat != beat;
    if (n == c->seen_count) c->seen_count++;
    c->seen[n].id = id;
    c->seen[n].beat = beat;
    if (is_new) c->seen[n].since_ms = now;
    if (now - c->seen[n].since_ms < DEAD_MS) continue;
    warm_pass_leave(&c->pass, id);
    i--;
  }
}

/* Tells what is done. A range that isn't known here was taken by a step whose outcome was unknown;
 * it is taken now. */
static void tell_own(warm_cursor *c) {
  for (size_t i = 0; i < c->own_count; i++)
    if (c->own[i].left == 0) warm_pass_done(&c->pass, c->own[i].range);
  for (size_t i = 0; i < c->pass.range_count && !c->has_taken; i++) {
    const warm_range *r = &c->pass.ranges[i];
    c->has_taken = r->owner == c->me && own_of(c, r->begin) == NULL;
    c->taken = *r;
  }
}

/* Changes the record. False: there are too many warmers. */
static bool step(warm_cursor *c) {
  warm_pass *p = &c->pass;
  c->has_taken = c->is_last = c->was_buried = false;
  enter(c);
  c->is_foreign = c->id != 0 && p->id != c->id;
  if (c->is_foreign) return true;
  c->was_buried = c->id != 0 && !warm_pass_has(p, c->me);
  if (!c->was_buried) tell_own(c);
  look_at_others(c);
  if (!warm_pass_beat(p, c->me, ++c->beat)) return false;
  if (c->kind == STEP_LEAVE) warm_pass_leave(p, c->me);
  bool has_room = c->was_buried || c->own_count < WARM_PASS_OWN;
  if (c->kind == STEP_TAKE && !c->has_taken && has_room)
    c->has_taken = warm_pass_take(p, c->me, (size_t)c->w->o.threads, &c->taken);
  c->is_last = warm_pass_is_done(p);
  return true;
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  warm_cursor *c = arg;
  size_t size = 0;
  (void)key;
  (void)key_len;
  const char *old = corral_fill_old(fill, &size);
  warm_pass_read(&c->pass, old != NULL ? old : "", size);
  if (!step(c)) {
    corral_fill_fail(fill, 0, "more than 64 warmers share this pass");
    return CORRAL_OK;
  }
  c->is_done = true;
  return corral_fill_bytes(fill, c->text, warm_pass_write(&c->pass, c->text));
}

/* ---- a step, outside of it ----------------------------------------------------------------- */

/* The step was stored. */
static void commit(warm_cursor *c) {
  size_t kept = 0;
  c->stepped_ms = cli_now_ms();
  c->is_over = c->is_foreign || c->is_last;
  if (c->is_foreign) return;
  c->id = c->pass.id;
  c->next = c->pass.next;
  for (size_t i = 0; i < c->own_count && !c->was_buried; i++)
    if (c->own[i].left > 0) c->own[kept++] = c->own[i];
  c->own_count = kept;
  if (c->was_buried) c->at = c->end = 0;
  if (c->kind != STEP_TAKE || !c->has_taken) return;
  c->at = c->taken.begin;
  c->end = c->taken.end;
  c->own[c->own_count++] = (own_range){c->taken, c->end - c->at};
}

/* One try. CORRAL_OK: it was stored; CORRAL_EBUSY: to be tried again. */
static int try_step(warm_cursor *c, corral_error *error) {
  corral_value *value = NULL;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = 1, .swr_ms = CORRAL_OFF, .sie_ms = RECORD_MS,
                    .jitter_pct = CORRAL_OFF, .retry_ms = CORRAL_OFF,
                    .when_away = CORRAL_AWAY_ERROR, .wait_ms = STEP_MS, .near_ms = CORRAL_OFF);
  corral_call call = {.size = sizeof call, .policy = policy, .error = error};
  if (c->kind != STEP_LEAVE) call.cancel_token = c->w->cancel_token;
  c->is_done = false;
  int status = corral_get_or_compute(c->corral, c->key, strlen(c->key), &call, compute, c, &value);
  bool is_mine = status == CORRAL_OK && c->is_done && corral_value_how(value) == CORRAL_COMPUTED;
  corral_kept kept = is_mine ? corral_value_kept(value) : CORRAL_KEPT_FENCED;
  corral_value_unref(value);
  if (status == CORRAL_EDEADLINE || (status == CORRAL_OK && kept != CORRAL_KEPT))
    status = CORRAL_EBUSY;
  if (status == CORRAL_EBUSY && kept == CORRAL_KEPT_NOT) status = CORRAL_EUNAVAILABLE;
  return status;
}

/* Under the mutex. CORRAL_OK, or why not, with the reason. */
static int do_step(warm_cursor *c, step_kind kind, corral_error *error) {
  int status = CORRAL_EBUSY;
  c->kind = kind;
  for (int tries = 1; status == CORRAL_EBUSY; tries++) {
    status = try_step(c, error);
    if (status != CORRAL_EBUSY || kind == STEP_BEAT || (kind == STEP_LEAVE && tries == LEAVE_TRIES))
      break;
    int64_t pause = PAUSE_MS + random() % PAUSE_MS;
    if (kind == STEP_LEAVE)
      (void)poll(NULL, 0, (int)pause);
    else if (!warm_sleep_until(c->w, cli_now_ns() + pause * 1000000))
      return CORRAL_ECANCELLED;
  }
  if (status == CORRAL_OK) commit(c);
  return status;
}

/* ---- the key ------------------------------------------------------------------------------- */

static void hash_text(crypto_generichash_state *hash, const char *text) {
  uint64_t size = text != NULL ? strlen(text) + 1 : 0;
  (void)crypto_generichash_update(hash, (const unsigned char *)&size, sizeof size);
  if (size > 0) (void)crypto_generichash_update(hash, (const unsigned char *)text, size);
}

/* The source of the values, without passwords, which may be given in several ways. */
static void hash_source(crypto_generichash_state *hash, const warm *w) {
  const warm_options *o = &w->o;
  char shown[1024] = "";
  if (o->url != NULL) corral_uri_show(o->url, shown, sizeof shown);
  hash_text(hash, o->as_run ? "run" : "");
  hash_text(hash, o->shell);
  hash_text(hash, shown);
  hash_text(hash, o->query);
  hash_text(hash, o->sqlite);
  hash_text(hash, w->database);
  for (char **word = o->command; word != NULL && *word != NULL; word++) hash_text(hash, *word);
}

static bool is_stopping(void *arg) { return warm_is_stopping(arg); }

/* Waits until all keys are read. False: the run ends. */
static bool make_key(warm_cursor *c) {
  crypto_generichash_state hash;
  unsigned char digest[16];
  (void)crypto_generichash_init(&hash, NULL, 0, sizeof digest);
  hash_source(&hash, c->w);
  const warm_key *key = NULL;
  for (size_t i = 0; (key = warm_keys_get(&c->w->keys, i, is_stopping, c->w)) != NULL; i++) {
    (void)crypto_generichash_update(&hash, (const unsigned char *)&key->size, sizeof key->size);
    (void)crypto_generichash_update(&hash, (const unsigned char *)key->bytes, key->size);
    c->total = i + 1;
  }
  (void)crypto_generichash_final(&hash, digest, sizeof digest);
  int used = snprintf(c->key, sizeof c->key, "corral warm ");
  (void)sodium_bin2hex(c->key + used, sizeof c->key - (size_t)used, digest, sizeof digest);
  c->is_over = c->total == 0;
  return !warm_is_stopping(c->w);
}

/* ---- a pass -------------------------------------------------------------------------------- */

bool warm_cursor_open(warm *w) {
  cli_globals plain = *w->cli;
  corral_options options = {.size = sizeof options, .op_ms = WARM_OP_MS};
  plain.verbose = false;
  plain.quiet = true; /* the values' corral has warned */
  plain.no_host_lock = true;
  if (w->o.watch || !w->keys.is_whole) return true;
  warm_cursor *c = calloc(1, sizeof *c);
  if (c == NULL || sodium_init() < 0) return free(c), cli_say("warm: out of memory"), false;
  if (!cli_open(&plain, false, &options, &c->corral)) return free(c), false;
  (void)pthread_mutex_init(&c->mutex, NULL);
  c->w = w;
  c->me = random_id();
  c->stepped_ms = cli_now_ms();
  w->cursor = c;
  return true;
}

/* Under the mutex: steps if it is time to. False: the run ends. */
static bool look_for_more(warm_cursor *c, warm_seat *seat, bool *ret_away) {
  corral_error error = {0};
  bool is_asked = c->id != 0 && c->stepped_ms + LOOK_MS > cli_now_ms() && c->is_waiting;
  if (is_asked) return true;
  int status = do_step(c, STEP_TAKE, &error);
  c->is_waiting = status != CORRAL_OK || c->at == c->end;
  *ret_away = status == CORRAL_EUNAVAILABLE || status == CORRAL_EINDOUBT;
  if (status == CORRAL_OK || *ret_away) {
    (void)snprintf(seat->reason, sizeof seat->reason, "%s", error.text);
    return true;
  }
  if (status != CORRAL_ECANCELLED && status != CORRAL_ECLOSED)
    warm_give_up(c->w, "the shared cursor: %s",
                 error.text[0] != '\0' ? error.text : corral_status_text(status));
  return false;
}

/* Under the mutex: gives up on other warmers when it is time to. */
static void wait_for_others(warm_cursor *c) {
  bool is_idle = c->at == c->end && c->own_count == 0;
  if (!is_idle || c->idle_ms == 0) c->idle_ms = is_idle ? cli_now_ms() : 0;
  if (is_idle && cli_now_ms() - c->idle_ms > c->w->o.policy.wait_ms) c->is_over = true;
}

bool warm_cursor_take(warm_seat *seat, size_t *ret_index) {
  warm_cursor *c = seat->w->cursor;
  for (;;) {
    bool is_away = false;
    (void)pthread_mutex_lock(&c->mutex);
    bool ok = c->key[0] != '\0' || make_key(c);
    if (ok && !c->is_over && c->at == c->end) ok = look_for_more(c, seat, &is_away);
    bool is_taken = ok && c->at < c->end;
    if (is_taken) *ret_index = (size_t)c->at++;
    wait_for_others(c);
    bool is_over = !is_taken && c->is_over;
    (void)pthread_mutex_unlock(&c->mutex);
    if (is_taken || is_over || !ok) return is_taken;
    if (is_away ? !warm_wait_for_store(seat)
                : !warm_sleep_until(seat->w, cli_now_ns() + (int64_t)LOOK_MS * 1000000))
      return false;
  }
}

void warm_cursor_done(warm *w, size_t index) {
  warm_cursor *c = w->cursor;
  if (c == NULL) return;
  (void)pthread_mutex_lock(&c->mutex);
  for (size_t i = 0; i < c->own_count; i++)
    if (c->own[i].range.begin <= index && index < c->own[i].range.end) c->own[i].left--;
  (void)pthread_mutex_unlock(&c->mutex);
}

void warm_cursor_beat(warm *w) {
  warm_cursor *c = w->cursor;
  corral_error error = {0};
  if (c == NULL || pthread_mutex_trylock(&c->mutex) != 0) return;
  if (c->id != 0 && !c->is_over && cli_now_ms() - c->stepped_ms >= BEAT_MS)
    (void)do_step(c, STEP_BEAT, &error);
  (void)pthread_mutex_unlock(&c->mutex);
}

void warm_cursor_close(warm *w) {
  warm_cursor *c = w->cursor;
  corral_error error = {0};
  if (c == NULL) return;
  if (c->id != 0 && !c->is_over) (void)do_step(c, STEP_LEAVE, &error);
  corral_close(c->corral);
  free(c);
  w->cursor = NULL;
}
