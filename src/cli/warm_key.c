/* warm_key.c: one key of corral warm: look, compute if it is due, look again.
 *
 * A fresh value with less than --ahead of its life left is rebuilt by the policy's early_pct, set
 * for this call just above the share left. The library then claims the lease without waiting, so
 * that one of all warmers rebuilds the value, and other callers get the old one meanwhile. Ending
 * its life first (corral_expire) would make them wait, and a warmer that came a moment later would
 * end the new value's life. When another warmer has rebuilt it between look and claim, the share
 * left is above that early_pct, and nothing is computed. */
#include "warm.h"

#include "run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
  ATTEMPTS = 3, /* looks in a round, when the state keeps changing */
  /* the first part of a pass waits no longer for another caller's compute, unless that began
   * between look and claim */
  FIRST_WAIT_MS = 500,
  PAUSE_MS = 20, /* first pause between two looks at another caller's compute; grows */
  PAUSE_MOST_MS = 500,
  AWAY_PAUSE_MS = 500, /* between two looks while the store is away, or an order holds */
  AWAY_SAID_MS = 1000, /* shorter absences aren't reported */
  EARLY_MOST = 90,     /* the library's limit */
  /* with --watch and no --ahead, a value is rebuilt when 1/10 of its life is left */
  WATCH_SHARE = 10,
  BUSY_AGAIN_MS = 1000, /* pause of --watch before the next look at a busy key */
  FAILED_AGAIN_MS = 10000,
  DAY_MS = 86400000
};

typedef enum verdict { IS_WARM, IS_NEGATIVE, IS_DUE, IS_BUSY, IS_FAILED } verdict;

/* ---- compute ------------------------------------------------------------------------------- */

void warm_fail(warm_seat *seat, corral_fill *fill, int32_t code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(seat->reason, sizeof seat->reason, format, args);
  va_end(args);
  seat->failed = true;
  corral_fill_fail(fill, code, seat->reason);
}

bool warm_should_stop(const warm_seat *seat, int64_t until_ms) {
  return corral_fill_should_stop(seat->fill) != 0 || cli_now_ms() >= until_ms;
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  warm_seat *seat = arg;
  const warm_options *o = &seat->w->o;
  int status = CORRAL_OK;
  seat->ran = true;
  seat->failed = false;
  seat->fill = fill;
  for (size_t i = 0; i < o->tag_count && status == CORRAL_OK; i++)
    status = corral_fill_tag(fill, o->tags[i], strlen(o->tags[i]));
  if (status == CORRAL_OK)
    seat->w->source->compute(seat, fill, key, key_len);
  else
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "%s", corral_status_text(status));
  seat->fill = NULL;
  return CORRAL_OK;
}

/* ---- look ---------------------------------------------------------------------------------- */

/* Sets due_ms to `ms` from now, at most --watch. */
static void due_in(warm_seat *seat, int64_t ms) {
  int64_t most = seat->w->o.watch_ms;
  seat->due_ms = cli_now_ms() + (ms < most ? ms : most);
}

static int64_t ahead_of(const warm_options *o, int64_t ttl_ms) {
  if (o->ahead_ms >= 0) return o->ahead_ms;
  return o->watch ? ttl_ms / WATCH_SHARE : 0;
}

static void see_life(warm *w, long long ttl_ms) {
  long long least = atomic_load(&w->least_life_ms);
  while ((least == 0 || ttl_ms < least) &&
         !atomic_compare_exchange_weak(&w->least_life_ms, &least, ttl_ms))
    continue;
}

/* Judges a look. *ret_pct: the early_pct by which the library rebuilds the value; 0: none. */
static verdict judge(warm_seat *seat, const corral_inspection *i, int64_t *ret_pct) {
  bool is_negative = strcmp(i->state, "negative") == 0;
  bool has_life = is_negative || strcmp(i->state, "fresh") == 0;
  int64_t left = !has_life ? 0 : i->age_ms >= 0 ? i->ttl_ms - i->age_ms : i->left_ms;
  int64_t ahead = ahead_of(&seat->w->o, i->ttl_ms);
  seat->ends_ms = left > 0 && !is_negative ? cli_now_ms() + left : 0;
  if (seat->ends_ms != 0) see_life(seat->w, i->ttl_ms);
  int64_t pct =
      left > 0 && i->ttl_ms > 0 ? (int64_t)((double)left * 100 / (double)i->ttl_ms) + 2 : 0;
  *ret_pct = 0;
  if (left > 0 && (left > ahead || pct > EARLY_MOST)) {
    /* Later by up to a fifth of the time ahead, so that two warmers that watch don't move in step.
     * A value of which too much is left for early_pct isn't looked at again at once. */
    int64_t slack = left > ahead ? (int64_t)(random() % (ahead / 5 + 1)) : i->ttl_ms / 20 + 1;
    due_in(seat, left > ahead ? left - ahead + slack : slack);
    return is_negative ? IS_NEGATIVE : IS_WARM;
  }
  if (strcmp(i->state, "pass") == 0 && i->lease_left_ms == 0) {
    (void)snprintf(seat->reason, sizeof seat->reason, "it can't be cached: its origin says so");
    due_in(seat, FAILED_AGAIN_MS);
    return IS_FAILED;
  }
  due_in(seat, BUSY_AGAIN_MS);
  if (i->lease_left_ms > 0) return IS_BUSY;
  if (i->retry_left_ms > 0) {
    (void)snprintf(seat->reason, sizeof seat->reason, "%s", i->failure);
    due_in(seat, i->retry_left_ms + 1);
    return IS_FAILED;
  }
  *ret_pct = pct;
  return IS_DUE;
}

/* The outcome for a status of the library that ends the work on this key. */
static warm_outcome trouble(warm_seat *seat, int status, const corral_error *error) {
  switch (status) {
    case CORRAL_ECANCELLED:
    case CORRAL_ECLOSED: return WARM_STOPPED;
    case CORRAL_EDEADLINE:
    case CORRAL_EBUSY:
    case CORRAL_EFROZEN: due_in(seat, BUSY_AGAIN_MS); return WARM_BUSY;
    default: break;
  }
  (void)snprintf(seat->reason, sizeof seat->reason, "%s",
                 error->text[0] != '\0' ? error->text : corral_status_text(status));
  if (status == CORRAL_EUNAVAILABLE || status == CORRAL_EINDOUBT) return WARM_AWAY;
  if (status == CORRAL_EAUTH) warm_give_up(seat->w, "the store: %s", seat->reason);
  due_in(seat, status == CORRAL_EFAILED && error->retry_after_ms > 0 ? error->retry_after_ms
                                                                     : FAILED_AGAIN_MS);
  return WARM_FAILED;
}

static bool look(warm_seat *seat, const warm_key *key, corral_inspection *ret,
                 warm_outcome *ret_outcome) {
  corral_error error = {0};
  int status =
      corral_inspect(seat->w->corral, key->bytes, key->size, CORRAL_CALL(.error = &error), ret);
  if (status == CORRAL_ECORRUPT) { /* a compute overwrites it */
    *ret = (corral_inspection){.size = sizeof *ret, .state = "none", .age_ms = -1, .left_ms = -1};
    status = CORRAL_OK;
  }
  if (status == CORRAL_OK) atomic_store(&seat->w->reached, true);
  if (status != CORRAL_OK) *ret_outcome = trouble(seat, status, &error);
  return status == CORRAL_OK;
}

/* ---- an operator's orders ------------------------------------------------------------------ */

/* Looks at the order in force, so often as the library does while calls come. Under its mutex. */
static void read_order(warm *w) {
  int64_t now = cli_now_ms();
  corral_control_state read = {.size = sizeof read};
  if (w->order.read_ms != 0 && now - w->order.read_ms < CORRAL_CONTROL_EVERY_MS) return;
  w->order.read_ms = now;
  if (corral_control_read(w->corral, &read, NULL) != CORRAL_OK) return;
  bool holds = read.verb == CORRAL_CONTROL_FREEZE || read.verb == CORRAL_CONTROL_BYPASS;
  (void)cli_order_text(w->order.text, &read);
  if (holds && w->order.held_ms == 0) w->order.held_ms = now;
  if (holds) return;
  w->order.held_ms = 0;
  if (w->order.is_said && !w->cli->quiet) warm_note("warm: the operator's order has ended");
  w->order.is_said = false;
}

/* True while an operator's order keeps this run from computing; the reason says so. */
static bool is_held(warm_seat *seat) {
  warm *w = seat->w;
  if (!w->follows) return false;
  (void)pthread_mutex_lock(&w->order.mutex);
  read_order(w);
  bool is_held = w->order.held_ms != 0;
  if (is_held)
    (void)snprintf(seat->reason, sizeof seat->reason, "an operator's order is in force: %s",
                   w->order.text);
  (void)pthread_mutex_unlock(&w->order.mutex);
  return is_held;
}

/* After WARM_HELD: waits a little. False: the run ends. */
static bool wait_for_operator(warm_seat *seat) {
  warm *w = seat->w;
  (void)pthread_mutex_lock(&w->order.mutex);
  int64_t held_ms = w->order.held_ms != 0 ? cli_now_ms() - w->order.held_ms : 0;
  bool is_first = w->order.held_ms != 0 && !w->order.is_said;
  if (is_first) w->order.is_said = true;
  (void)pthread_mutex_unlock(&w->order.mutex);
  if (is_first && !w->cli->quiet) warm_note("warm: waiting: %s", seat->reason);
  if (!w->o.watch && held_ms > w->o.patience_ms) warm_give_up(w, "%s", seat->reason);
  return warm_sleep_until(w, cli_now_ns() + (int64_t)AWAY_PAUSE_MS * 1000000);
}

/* ---- ask ----------------------------------------------------------------------------------- */

/* Waits for a turn by --rate. Each compute has a moment of its own, so there is no burst, not even
 * after a pause. */
static bool take_token(warm *w) {
  if (w->o.rate <= 0) return !warm_is_stopping(w);
  (void)pthread_mutex_lock(&w->mutex);
  int64_t now = cli_now_ns();
  int64_t at = w->token_ns > now ? w->token_ns : now;
  w->token_ns = at + (int64_t)(1e9 / w->o.rate);
  (void)pthread_mutex_unlock(&w->mutex);
  return warm_sleep_until(w, at);
}

/* Only the library's threads fetch from an origin. This call made the value when it was due, was
 * not being computed elsewhere, and no fresh value came at once. */
static bool made_origin(const warm *w, bool is_due, int64_t pct, int status,
                        const corral_value *value) {
  if (w->source != NULL || !is_due || status != CORRAL_OK) return false;
  return pct > 0 || corral_value_how(value) != CORRAL_FRESH;
}

/* Asks the library for a key that `is_due`, or that is being computed elsewhere. `pct`: see judge.
 * True: look again. */
static bool ask(warm_seat *seat, const warm_key *key, bool is_due, int64_t pct, int64_t wait_ms,
                warm_outcome *ret) {
  warm *w = seat->w;
  const warm_options *o = &w->o;
  corral_error error = {0};
  corral_value *value = NULL;
  corral_policy policy = o->policy;
  policy.compute_ms = o->limit_ms + (w->source != NULL ? RUN_LIMIT_SLACK : 0);
  if (policy.compute_ms > DAY_MS) policy.compute_ms = DAY_MS;
  policy.wait_ms = wait_ms;
  policy.early_pct = pct > 0 ? pct : CORRAL_OFF;
  const corral_call *call =
      CORRAL_CALL(.policy = &policy, .error = &error, .cancel_token = w->cancel_token);
  int status = w->source == NULL ? corral_get(w->corral, key->bytes, key->size, call, &value)
                                 : corral_get_or_compute(w->corral, key->bytes, key->size, call,
                                                         compute, seat, &value);
  if (made_origin(w, is_due, pct, status, value)) seat->ran = true;
  corral_how how = status == CORRAL_OK ? corral_value_how(value) : CORRAL_FRESH;
  corral_kept kept = status == CORRAL_OK ? corral_value_kept(value) : CORRAL_KEPT_NOT;
  corral_value_unref(value);
  if (seat->ran && seat->failed) {
    due_in(seat, error.retry_after_ms > 0 ? error.retry_after_ms
                 : o->failures_ms > 0     ? o->failures_ms
                                          : FAILED_AGAIN_MS);
    *ret = WARM_FAILED;
    return false;
  }
  if (status == CORRAL_ENOTFOUND || status == CORRAL_OK) {
    bool is_lost =
        status == CORRAL_OK && seat->ran && how == CORRAL_COMPUTED && kept == CORRAL_KEPT_NOT;
    seat->is_stored =
        status == CORRAL_OK && seat->ran && how == CORRAL_COMPUTED && kept == CORRAL_KEPT;
    (void)snprintf(seat->reason, sizeof seat->reason, "%s",
                   is_lost ? "the store did not keep it" : "");
    /* the answer tells neither how long the value lives, nor the result of a rebuild behind a stale
     * answer */
    return true;
  }
  *ret = trouble(seat, status, &error);
  return false;
}

/* One round: look, compute if it is due, look again. */
static warm_outcome round_of(warm_seat *seat, const warm_key *key, int64_t wait_ms) {
  const warm_options *o = &seat->w->o;
  corral_inspection i = {.size = sizeof i};
  warm_outcome outcome = WARM_FAILED;
  int64_t pct = 0;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (!look(seat, key, &i, &outcome)) return outcome;
    verdict v = judge(seat, &i, &pct);
    if (v == IS_FAILED) return WARM_FAILED;
    if (v == IS_NEGATIVE) return WARM_NEGATIVE;
    if (v == IS_WARM) return seat->ran ? WARM_COMPUTED : WARM_FRESH;
    if (v == IS_DUE && seat->is_stored) { /* its life was shorter than the way back */
      if (seat->ends_ms == 0) seat->ends_ms = cli_now_ms();
      return WARM_COMPUTED;
    }
    if (v == IS_BUSY && wait_ms <= FIRST_WAIT_MS) return WARM_BUSY;
    if (seat->ran && seat->reason[0] != '\0') return WARM_FAILED; /* the store did not keep it */
    if (v == IS_DUE && !seat->ran && is_held(seat)) return WARM_HELD;
    if (v == IS_DUE && !seat->ran && !take_token(seat->w)) return WARM_STOPPED;
    /* By its deadline a call has its value, stored or not; and a compute of the library's threads
     * ends by it, and the wait for a place by --ramp. */
    int64_t least_ms = v == IS_DUE ? o->limit_ms : 0;
    if (!ask(seat, key, v == IS_DUE, pct, wait_ms < least_ms ? least_ms : wait_ms, &outcome))
      return outcome;
  }
  due_in(seat, BUSY_AGAIN_MS);
  return WARM_BUSY;
}

bool warm_wait_for_store(warm_seat *seat) {
  warm *w = seat->w;
  long long none = 0;
  int64_t now = cli_now_ms();
  if (!atomic_load(&w->reached)) warm_give_up(w, "the store: %s", seat->reason);
  bool is_first = atomic_compare_exchange_strong(&w->away_ms, &none, (long long)now);
  int64_t away = is_first ? 0 : now - (int64_t)none;
  if (away >= AWAY_SAID_MS && !atomic_exchange(&w->is_away_said, true))
    warm_note("warm: waiting for the store: %s", seat->reason);
  if (!w->o.watch && away > w->o.patience_ms) warm_give_up(w, "the store: %s", seat->reason);
  return warm_sleep_until(w, cli_now_ns() + (int64_t)AWAY_PAUSE_MS * 1000000);
}

static void is_back(warm *w) {
  atomic_store(&w->away_ms, 0);
  if (atomic_exchange(&w->is_away_said, false)) warm_note("warm: the store is back");
}

warm_outcome warm_one(warm_seat *seat, const warm_key *key, bool may_wait) {
  warm *w = seat->w;
  int64_t began = cli_now_ms(), until = began + (may_wait            ? w->o.policy.wait_ms
                                                 : w->source == NULL ? w->o.limit_ms
                                                                     : 0);
  seat->ran = seat->failed = seat->is_stored = false;
  seat->reason[0] = '\0';
  seat->due_ms = seat->ends_ms = 0;
  if (cli_nested(w->cli, key->bytes, key->size)) {
    (void)snprintf(seat->reason, sizeof seat->reason,
                   "this is part of a run of the same key, and would wait for itself");
    due_in(seat, FAILED_AGAIN_MS);
    return WARM_FAILED;
  }
  for (int64_t pause = PAUSE_MS;; pause = pause * 2 < PAUSE_MOST_MS ? pause * 2 : PAUSE_MOST_MS) {
    int64_t left = until - cli_now_ms();
    warm_outcome outcome =
        warm_is_stopping(w)
            ? WARM_STOPPED
            : round_of(seat, key, may_wait && left > FIRST_WAIT_MS ? left : FIRST_WAIT_MS);
    if (outcome == WARM_AWAY) {
      if (!warm_wait_for_store(seat)) return WARM_STOPPED;
      continue;
    }
    if (outcome != WARM_STOPPED) is_back(w);
    if (outcome == WARM_HELD) {
      until += AWAY_PAUSE_MS;
      if (!wait_for_operator(seat)) return WARM_STOPPED;
      continue;
    }
    /* A compute that this process gave to the library's threads is awaited here, since nothing else
     * waits for its end; so is the store that is still taking what was computed here. */
    if (seat->ran) until = began + w->o.limit_ms + w->o.policy.wait_ms;
    left = until - cli_now_ms();
    bool waits = outcome == WARM_BUSY && left > 0 && (may_wait || seat->ran || w->source == NULL);
    if (!waits) return outcome;
    if (!warm_sleep_until(w, cli_now_ns() + pause * 1000000)) return WARM_STOPPED;
  }
}

warm_outcome warm_look(warm_seat *seat, const warm_key *key) {
  corral_inspection i = {.size = sizeof i};
  warm_outcome outcome = WARM_FAILED;
  int64_t pct = 0;
  seat->ran = seat->failed = false;
  seat->reason[0] = '\0';
  while (!look(seat, key, &i, &outcome)) {
    if (outcome != WARM_AWAY) return outcome;
    if (!warm_wait_for_store(seat)) return WARM_STOPPED;
  }
  is_back(seat->w);
  switch (judge(seat, &i, &pct)) {
    case IS_NEGATIVE: return WARM_NEGATIVE;
    case IS_FAILED: return WARM_FAILED;
    case IS_BUSY: return WARM_BUSY;
    case IS_WARM: return WARM_FRESH;
    case IS_DUE: break;
  }
  /* due with a life left: --ahead */
  if (seat->ends_ms != 0 || strcmp(i.state, "negative") == 0)
    return seat->ends_ms != 0 ? WARM_FRESH : WARM_NEGATIVE;
  (void)snprintf(seat->reason, sizeof seat->reason,
                 "another warmer of this pass had it, and it isn't fresh any more");
  seat->ends_ms = cli_now_ms();
  return WARM_ELSEWHERE;
}
