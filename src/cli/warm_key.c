/* warm_key.c: one key of corral warm: look, compute what is due, look again.
 *
 * What is still fresh and has less than --ahead of its life left is rebuilt by the policy's
 * early_pct, set for this call just above the share that is left: the library then claims the lease
 * without waiting, so that of all warmers one rebuilds it, and everybody else gets the old value
 * meanwhile. Ending its life first (corral_expire) would make them wait, and a warmer that came a
 * moment later would end the new one's. When another has rebuilt it between the look and the claim,
 * its share is above that early_pct, and nothing is computed. */
#include "warm.h"

#include "run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
  ATTEMPTS = 3, /* looks that find something else than the compute before them left */
  /* in the first half of a pass nobody else's compute is waited for, but for one that began since
   * the look */
  FIRST_WAIT_MS = 500,
  PAUSE_MS = 20, /* between two looks at what others compute, growing */
  PAUSE_MOST_MS = 500,
  AWAY_PAUSE_MS = 500,
  AWAY_SAID_MS = 1000,  /* what is shorter isn't worth a line */
  EARLY_MOST = 90,      /* the library's limit */
  WATCH_SHARE = 10,     /* --watch without --ahead: rebuilt when this part of its life is left */
  BUSY_AGAIN_MS = 1000, /* --watch: when to look again at a key that was not to be had */
  FAILED_AGAIN_MS = 10000
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
  return corral_should_stop(seat->fill) != 0 || cli_now_ms() >= until_ms;
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

/* A due time some while hence, but no later than --watch wants each key looked at. */
static void due_in(warm_seat *seat, int64_t ms) {
  int64_t most = seat->w->o.watch_ms;
  seat->due_ms = cli_now_ms() + (ms < most ? ms : most);
}

static int64_t ahead_of(const warm_options *o, int64_t ttl_ms) {
  if (o->ahead_ms >= 0) return o->ahead_ms;
  return o->watch ? ttl_ms / WATCH_SHARE : 0;
}

/* What a look says; *ret_pct: the early_pct with which the library rebuilds it, 0 for none. */
static verdict judge(warm_seat *seat, const corral_inspection *i, int64_t *ret_pct) {
  bool is_negative = strcmp(i->state, "negative") == 0;
  bool has_life = is_negative || strcmp(i->state, "fresh") == 0;
  int64_t left = !has_life ? 0 : i->age_ms >= 0 ? i->ttl_ms - i->age_ms : i->left_ms;
  int64_t ahead = ahead_of(&seat->w->o, i->ttl_ms);
  int64_t pct =
      left > 0 && i->ttl_ms > 0 ? (int64_t)((double)left * 100 / (double)i->ttl_ms) + 2 : 0;
  *ret_pct = 0;
  if (left > 0 && (left > ahead || pct > EARLY_MOST)) {
    /* Later by up to a fifth of the time ahead, so that two who watch don't move in step; and not
     * at once again. */
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

/* A status of the library that ends the work on this key. */
static warm_outcome trouble(warm_seat *seat, int status, const corral_error *error) {
  switch (status) {
    case CORRAL_ECANCELLED:
    case CORRAL_ECLOSED: return WARM_STOPPED;
    case CORRAL_EDEADLINE:
    case CORRAL_EBUSY: due_in(seat, BUSY_AGAIN_MS); return WARM_BUSY;
    default: break;
  }
  (void)snprintf(seat->reason, sizeof seat->reason, "%s",
                 error->text[0] != '\0' ? error->text : corral_status_text(status));
  if (status == CORRAL_EUNAVAILABLE || status == CORRAL_EUNKNOWN) return WARM_AWAY;
  if (status == CORRAL_EAUTH) warm_give_up(seat->w, "the store: %s", seat->reason);
  due_in(seat, status == CORRAL_EFAILED && error->retry_after_ms > 0 ? error->retry_after_ms
                                                                     : FAILED_AGAIN_MS);
  return WARM_FAILED;
}

static bool look(warm_seat *seat, const warm_key *key, corral_inspection *ret,
                 warm_outcome *ret_outcome) {
  corral_error error = {0};
  int status = corral_inspect(seat->w->corral, key->bytes, key->size, ret, sizeof *ret, &error);
  if (status == CORRAL_ECORRUPT) { /* computing writes it anew */
    *ret = (corral_inspection){.state = "none", .age_ms = -1, .left_ms = -1};
    status = CORRAL_OK;
  }
  if (status == CORRAL_OK) atomic_store(&seat->w->reached, true);
  if (status != CORRAL_OK) *ret_outcome = trouble(seat, status, &error);
  return status == CORRAL_OK;
}

/* ---- ask ----------------------------------------------------------------------------------- */

/* Waits for its turn by --rate. Every compute has a place of its own in time, so there is no burst,
 * and none after a pause. */
static bool take_token(warm *w) {
  if (w->o.rate <= 0) return !warm_is_stopping(w);
  (void)pthread_mutex_lock(&w->mutex);
  int64_t now = cli_now_ns();
  int64_t at = w->token_ns > now ? w->token_ns : now;
  w->token_ns = at + (int64_t)(1e9 / w->o.rate);
  (void)pthread_mutex_unlock(&w->mutex);
  return warm_sleep_until(w, at);
}

/* The library's own threads ask an origin: that it was due, and nobody at it, and that there was no
 * fresh value at once, says that this call made them. */
static bool made_origin(const warm *w, bool is_due, int64_t pct, int status,
                        const corral_value *value) {
  if (w->source != NULL || !is_due || status != CORRAL_OK) return false;
  return pct > 0 || corral_value_how(value) != CORRAL_FRESH;
}

/* Asks the library for it: it `is_due`, or somebody else is at it. `pct`: see judge. True: look
 * again. */
static bool ask(warm_seat *seat, const warm_key *key, bool is_due, int64_t pct, int64_t wait_ms,
                warm_outcome *ret) {
  warm *w = seat->w;
  const warm_options *o = &w->o;
  corral_error error = {0};
  corral_value *value = NULL;
  corral_policy *policy =
      CORRAL_POLICY(.error = &error, .ticket = w->ticket, .warm = 1, .ttl_ms = o->ttl_ms,
                    .swr_ms = o->stale_ms, .sie_ms = o->stale_if_error_ms,
                    .jitter_pct = o->spread_pct > 0 ? o->spread_pct : CORRAL_OFF,
                    .negative_ttl_ms = o->negative_ms > 0 ? o->negative_ms : CORRAL_OFF,
                    .retry_ms = o->failures_ms > 0 ? o->failures_ms : CORRAL_OFF,
                    .retry_max_ms = o->failures_ms > 30000 ? o->failures_ms : 30000,
                    .lease_ms = o->lease_ms,
                    .compute_ms = o->limit_ms + (w->source != NULL ? RUN_LIMIT_SLACK : 0),
                    .wait_ms = wait_ms, .when_away = CORRAL_AWAY_ERROR,
                    .early_pct = pct > 0 ? pct : CORRAL_OFF, .near_ms = CORRAL_OFF);
  if (policy->compute_ms > 86400000) policy->compute_ms = 86400000;
  int status = w->source == NULL ? corral_get(w->corral, key->bytes, key->size, policy, &value)
                                 : corral_get_or_compute(w->corral, key->bytes, key->size, policy,
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
    (void)snprintf(seat->reason, sizeof seat->reason, "%s",
                   is_lost ? "the store did not keep it" : "");
    /* how it came doesn't tell how long it lives, nor what became of a rebuild behind a stale
     * answer */
    return true;
  }
  *ret = trouble(seat, status, &error);
  return false;
}

/* One round: look, compute it if that is due, look again. */
static warm_outcome round_of(warm_seat *seat, const warm_key *key, int64_t wait_ms) {
  const warm_options *o = &seat->w->o;
  corral_inspection i = {0};
  warm_outcome outcome = WARM_FAILED;
  int64_t pct = 0;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (!look(seat, key, &i, &outcome)) return outcome;
    verdict v = judge(seat, &i, &pct);
    if (v == IS_FAILED) return WARM_FAILED;
    if (v == IS_NEGATIVE) return WARM_NEGATIVE;
    if (v == IS_WARM) return seat->ran ? WARM_COMPUTED : WARM_FRESH;
    if (v == IS_BUSY && wait_ms <= FIRST_WAIT_MS) return WARM_BUSY;
    if (seat->ran && seat->reason[0] != '\0') return WARM_FAILED; /* not kept */
    if (v == IS_DUE && !seat->ran && !take_token(seat->w)) return WARM_STOPPED;
    /* what the library's threads compute ends by the caller's deadline */
    bool is_bound = v == IS_DUE && seat->w->source == NULL;
    if (!ask(seat, key, v == IS_DUE, pct, is_bound && wait_ms < o->limit_ms ? o->limit_ms : wait_ms,
             &outcome))
      return outcome;
  }
  due_in(seat, BUSY_AGAIN_MS);
  return WARM_BUSY;
}

/* The store doesn't answer. True: try again. */
static bool wait_for_store(warm_seat *seat) {
  warm *w = seat->w;
  long long none = 0;
  int64_t now = cli_now_ms();
  if (!atomic_load(&w->reached)) warm_give_up(w, "the store: %s", seat->reason);
  bool is_first = atomic_compare_exchange_strong(&w->away_ms, &none, (long long)now);
  int64_t away = is_first ? 0 : now - (int64_t)none;
  if (away >= AWAY_SAID_MS && !atomic_exchange(&w->is_away_said, true))
    warm_say("warm: waiting for the store: %s", seat->reason);
  if (!w->o.watch && away > w->o.patience_ms) warm_give_up(w, "the store: %s", seat->reason);
  return warm_sleep_until(w, cli_now_ns() + (int64_t)AWAY_PAUSE_MS * 1000000);
}

static void is_back(warm *w) {
  atomic_store(&w->away_ms, 0);
  if (atomic_exchange(&w->is_away_said, false)) warm_say("warm: the store is back");
}

warm_outcome warm_one(warm_seat *seat, const warm_key *key, bool may_wait) {
  warm *w = seat->w;
  int64_t until = cli_now_ms() + (may_wait ? w->o.wait_ms : w->source == NULL ? w->o.limit_ms : 0);
  seat->ran = seat->failed = false;
  seat->reason[0] = '\0';
  seat->due_ms = 0;
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
      if (!wait_for_store(seat)) return WARM_STOPPED;
      continue;
    }
    if (outcome != WARM_STOPPED) is_back(w);
    /* What this process has given to the library's threads is waited for here, or there would be no
     * end of it. */
    bool waits = outcome == WARM_BUSY && left > 0 && (may_wait || seat->ran || w->source == NULL);
    if (!waits) return outcome;
    if (!warm_sleep_until(w, cli_now_ns() + pause * 1000000)) return WARM_STOPPED;
  }
}
