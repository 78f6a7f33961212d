/* flight.c: the whole stampede algorithm: told -> ask.
 *
 *   GET -> fresh: ANSWER
 *       -> fresh, but to be rebuilt early: as if stale, but nothing ever waits for the rebuild
 *       -> stale, no lease: climb (behind an ANSWER when compute may run in the background)
 *       -> leased by another: stale is the ANSWER, else WAIT and GET again
 *       -> nothing: climb
 *       -> the store is slow: WAIT and GET again
 *       -> the store is away: climb without it, or OUTBOX, or an error
 *   nothing is expected, and no SLOT or HOST needed: CLAIM without a GET; where it isn't granted,
 *   its findings are those of a GET
 *   OUTBOX (what this process has) -> fresh: ANSWER
 *          -> in its grace while it is rebuilt: ANSWER, and the rebuild behind it
 *          -> in its grace for errors: climb without the store, and if that fails it is the ANSWER
 *   climb: SLOT, where computes are limited; HOST, where the ladder has the host lock, and GET
 *          once more; then
 *          CLAIM -> granted: COMPUTE -> PUBLISH -> SETTLE -> ANSWER
 *                -> busy: as above
 *   a failed COMPUTE: RELEASE with a verdict, then stale or the failure is the ANSWER
 *   a deadline that comes before the SETTLE has ended, or a caller who doesn't wait for it: ANSWER,
 *   and the SETTLE behind it
 *   anew: fresh or not, climb; leased by another: an error. A failed COMPUTE: a fresh value is the
 *   ANSWER
 *   "can't be cached", or a deadline whose policy says so: alone, that is SLOT, COMPUTE, ANSWER
 *   frozen: in place of a COMPUTE what was found, in any grace, is the ANSWER, or an error
 *
 * The slot comes before the host lock, so that a run in the queue for a slot bars no election; the
 * host lock comes before the lease, so that a host sends one claim. One handler for each
 * outstanding ask; each returns the next ask. */
#include "flight/flight.h"
#include "base/check.h"

#include <string.h>
#include <assert.h>

enum { EARLY_SLACK_MS = 2, EARLY_SLACK_PART = 16 }; /* how much two looks may differ on a life */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static uint64_t roll(crl_flight *flight) {
  return crl_policy_mix(flight->dice += UINT64_C(0x9e3779b97f4a7c15));
}

static crl_ask answer(crl_flight *flight, crl_answer what) {
  assert(!flight->answered);
  flight->answered = 1;
  flight->answer = (uint8_t)what;
  return CRL_ASK_ANSWER;
}

/* Ends a flight that has decided on `what`; nothing is left to say when a stale answer was given
 * before. */
static crl_ask conclude(crl_flight *flight, crl_answer what) {
  return flight->answered ? CRL_ASK_DONE : answer(flight, what);
}

static crl_ask fail(crl_flight *flight, int status) {
  flight->status = status;
  return conclude(flight, CRL_ANSWER_ERROR);
}

/* True for a flight that can end without a rebuild: its caller has an answer, or a usable value was
 * found, whose grace is over at `grace_until`. */
static int is_served(const crl_flight *flight, int64_t grace_until, int64_t now) {
  return flight->answered || flight->early || grace_until > now;
}

/* True for a flight whose value is fresh, and was to be rebuilt nevertheless. */
static int has_fresh(const crl_flight *flight, int64_t now) {
  return flight->early || (flight->plan.anew && flight->fresh_until > now);
}

/* Ends such a flight. */
static crl_ask serve(crl_flight *flight, int64_t now) {
  return conclude(flight, has_fresh(flight, now) ? CRL_ANSWER_STORED : CRL_ANSWER_STALE);
}

/* RELEASE: gives the lease back, then concludes with flight->answer. */
static crl_ask release(crl_flight *flight, crl_answer then, int64_t retry_ms) {
  if (!flight->answered) flight->answer = (uint8_t)then;
  flight->retry_ms = retry_ms;
  return CRL_ASK_RELEASE;
}

/* The next ask on the way to a compute: the first rung that is still missing. */
static crl_ask climb(crl_flight *flight, int64_t now) {
  if (flight->plan.limited && !flight->has_slot) {
    if (flight->policy->warm > 0)
      flight->rank = CRL_RANK_WARM;
    else if (flight->answered || flight->early || flight->swr_until > now)
      flight->rank = CRL_RANK_EARLY;
    else
      flight->rank = flight->has_value ? CRL_RANK_EXPIRED : CRL_RANK_COLD;
    flight->asked = now;
    int has_value = flight->early || flight->sie_until > now;
    flight->until = !flight->answered && has_value ? now : flight->plan.deadline;
    return CRL_ASK_SLOT;
  }
  if (flight->alone) return CRL_ASK_COMPUTE;
  if (flight->plan.ladder && !flight->on_host) return CRL_ASK_HOST;
  return flight->degraded ? CRL_ASK_COMPUTE : CRL_ASK_CLAIM;
}

static crl_ask go_alone(crl_flight *flight, crl_alone why, int64_t now) {
  flight->alone = (uint8_t)why;
  flight->degraded = flight->early = 0;
  return climb(flight, now);
}

/* True when the store answers, but the key holds a record that is foreign or of a newer format. */
static int is_taken(int status) { return status == CORRAL_EFOREIGN || status == CORRAL_ENEWER; }

/* Ends a flight that may not wait any longer: after a slow store, with what this process has. */
static crl_ask run_out(crl_flight *flight, int64_t now) {
  if (flight->sie_until > now) return answer(flight, CRL_ANSWER_STALE);
  if (flight->slow && flight->policy->when_away == CORRAL_AWAY_STALE && !flight->ran_out) {
    flight->ran_out = 1;
    return CRL_ASK_OUTBOX;
  }
  if (flight->policy->at_deadline == CORRAL_DEADLINE_COMPUTE && flight->plan.can_compute &&
      !flight->alone)
    return go_alone(flight, CRL_ALONE_DEADLINE, now);
  return fail(flight, CORRAL_EDEADLINE);
}

/* Length of a waiter's pause: until the store tells of a change, else towards the expected end of
 * the leader's compute, else a backoff. */
static int64_t pause_of(crl_flight *flight, const crl_look *look) {
  const corral_policy *policy = flight->policy;
  if (look->watched) return crl_policy_watched(policy, roll(flight));
  if (look->expects) return crl_policy_towards(policy, look->expect_left, roll(flight));
  return crl_policy_backoff(policy->poll_ms, policy->poll_max_ms, flight->looks, roll(flight));
}

/* When a wait ends: at soft_until if there is a stale value in its grace to serve, else at the
 * deadline. */
static int64_t patience(const crl_flight *flight, int64_t now) {
  int64_t soft = flight->plan.soft_until, end = flight->plan.deadline;
  return soft > 0 && flight->sie_until > now ? smaller(soft, end) : end;
}

static crl_ask wait(crl_flight *flight, const crl_told *told) {
  const crl_look *look = &told->look;
  int64_t now = told->now, most = patience(flight, now);
  if (flight->last_look || now >= most) return run_out(flight, now);
  int64_t pause = pause_of(flight, look);
  flight->looks++;
  if (look->lease_left > 0) pause = smaller(pause, look->lease_left + 1);
  flight->until = smaller(now + pause, most);
  flight->has_slot = 0;
  return CRL_ASK_WAIT;
}

/* When a flight may compute for a store that is away. One that has waited begins at a random
 * moment: all processes that waited learn at the same time that the store is away. */
static int64_t admission(crl_flight *flight, int64_t now) {
  int64_t most = flight->policy->poll_max_ms, jitter = 0;
  if (flight->looks > 0) jitter = crl_policy_backoff(most, most, 0, roll(flight));
  return crl_policy_part(now, larger(jitter, flight->pause_until - now), flight->plan.deadline);
}

static crl_ask climb_without(crl_flight *flight, int64_t now) {
  if (flight->admitted == 0) flight->admitted = admission(flight, now);
  if (now < flight->admitted && !is_taken(flight->status)) {
    flight->looks++;
    flight->has_slot = 0;
    flight->until = flight->admitted;
    return CRL_ASK_WAIT;
  }
  flight->degraded = 1;
  return climb(flight, now);
}

static crl_ask go_without(crl_flight *flight, int64_t now) {
  int is_error = flight->policy->when_away == CORRAL_AWAY_ERROR && !is_taken(flight->status);
  int computes = flight->plan.can_compute && !flight->last_look && !is_error;
  flight->returned = computes && flight->plan.returns;
  if (flight->returned) return fail(flight, flight->status);
  if (computes) return climb_without(flight, now);
  if (flight->sie_until > now) return answer(flight, CRL_ANSWER_STALE);
  return fail(flight, flight->last_look && !is_error ? CORRAL_EDEADLINE : flight->status);
}

/* A failure is remembered, by the store or this process: nobody computes. */
static crl_ask recall_failure(crl_flight *flight, int64_t now) {
  return conclude(flight, flight->sie_until > now ? CRL_ANSWER_STALE : CRL_ANSWER_VERDICT);
}

/* True for a flight that came while a failure was remembered, and waits for the next try instead: a
 * short pause only, and only this failure's. */
static int outwaits(const crl_flight *flight, const crl_look *look, int64_t now) {
  return flight->policy->at_failure == CORRAL_FAILURE_WAIT && flight->plan.can_compute &&
         !flight->answered && !flight->last_look && flight->sie_until <= now &&
         (flight->outwaits > 0 ? look->failures == flight->outwaits : flight->looks == 0) &&
         look->failures > 0 && look->retry_left <= flight->policy->retry_ms &&
         now + look->retry_left < flight->plan.deadline;
}

/* The last look found a verdict. */
static crl_ask on_verdict(crl_flight *flight, const crl_look *look, int64_t now) {
  if (!outwaits(flight, look, now)) return recall_failure(flight, now);
  flight->outwaits = look->failures;
  flight->looks++;
  flight->has_slot = 0;
  flight->until = now + look->retry_left + 1;
  return CRL_ASK_WAIT;
}

/* The store can't hold an election now. A refresh behind an answer is given up, because it can
 * wait. While the store is slow, somebody may have the lease: nobody computes. */
static crl_ask degrade(crl_flight *flight, const crl_told *told, int status) {
  int64_t now = told->now;
  int looks_here = flight->policy->when_away == CORRAL_AWAY_STALE && !is_taken(status);
  flight->leased = flight->degraded = 0;
  flight->status = status;
  flight->recalls = told->look.retry_left > 0;
  flight->pause_until = now + told->look.pause_left;
  if (told->look.failures > 0) flight->failures = told->look.failures;
  if (is_served(flight, flight->swr_until, now)) return serve(flight, now);
  if (flight->recalls && !looks_here) return recall_failure(flight, now);
  if (!flight->recalls && flight->slow && flight->plan.can_compute) return wait(flight, told);
  return looks_here ? CRL_ASK_OUTBOX : go_without(flight, now);
}

static void remember_graces(crl_flight *flight, const crl_told *told) {
  const crl_lives *lives = &told->look.lives;
  flight->swr_until = lives->swr > 0 ? told->now + lives->swr : 0;
  flight->sie_until = lives->sie > 0 ? told->now + lives->sie : 0;
  if (flight->sie_until < flight->swr_until) flight->sie_until = flight->swr_until;
}

static void remember(crl_flight *flight, const crl_told *told) {
  const crl_lives *lives = &told->look.lives;
  int64_t fresh_until = lives->fresh > 0 ? told->now + lives->fresh : 0;
  int64_t slack = EARLY_SLACK_MS + told->look.ttl / EARLY_SLACK_PART;
  /* A value that was rebuilt meanwhile, or is gone, needs no early rebuild. */
  if (fresh_until == 0 || fresh_until - slack > flight->fresh_until) flight->early = 0;
  flight->fresh_until = fresh_until;
  flight->failures = told->look.failures;
  flight->has_value = told->look.has_value;
  flight->others_lead = told->look.lease_left > 0;
  remember_graces(flight, told);
}

static crl_ask claim_or_look(crl_flight *flight, const crl_told *told, int may_claim) {
  if (!may_claim || told->look.lease_left > 0) {
    if (told->look.lives.swr > 0) return conclude(flight, CRL_ANSWER_STALE);
    /* Only one waiter of a host looks at the store: the one with the host lock. */
    if (flight->plan.ladder && !flight->on_host && !flight->last_look) return CRL_ASK_HOST;
    return wait(flight, told);
  }
  if (told->look.lives.swr > 0 && flight->plan.background && !flight->answered) {
    flight->refresh = 1;
    return answer(flight, CRL_ANSWER_STALE);
  }
  return climb(flight, told->now);
}

/* A fresh value. Chance, or its age, decides when to rebuild it early; a claim that never waits
 * elects the rebuilder. */
static crl_ask on_fresh(crl_flight *flight, const crl_told *told, int may_claim) {
  const crl_look *look = &told->look;
  if (!may_claim || !flight->plan.can_compute || look->lease_left > 0 || look->retry_left > 0)
    return conclude(flight, CRL_ANSWER_STORED);
  if (!flight->early) {
    if (flight->answered || flight->looks > 0 || flight->on_host)
      return conclude(flight, CRL_ANSWER_STORED);
    flight->early = crl_flight_early(flight->policy, look, flight->plan.early, roll(flight)) != 0;
  }
  if (!flight->early) return conclude(flight, CRL_ANSWER_STORED);
  if (flight->answered || !flight->plan.background) return climb(flight, told->now);
  flight->refresh = 1;
  return answer(flight, CRL_ANSWER_STORED);
}

/* Rebuilds whatever was found. It waits for nobody, whose compute may have begun long before; a
 * failure that is remembered leaves a fresh value as it is. */
static crl_ask rebuild(crl_flight *flight, const crl_told *told, int may_claim) {
  const crl_look *look = &told->look;
  int is_fresh = look->lives.fresh > 0;
  if (look->retry_left > 0 || flight->last_look)
    return is_fresh            ? conclude(flight, CRL_ANSWER_STORED)
           : flight->last_look ? run_out(flight, told->now)
                               : recall_failure(flight, told->now);
  return may_claim && look->lease_left <= 0 ? climb(flight, told->now) : fail(flight, CORRAL_EBUSY);
}

/* Nothing may be computed: the answer is what there is, while frozen in any grace. */
static crl_ask refrain(crl_flight *flight, int64_t now) {
  int64_t grace_until = flight->plan.frozen ? flight->sie_until : flight->swr_until;
  crl_answer what = has_fresh(flight, now) ? CRL_ANSWER_STORED
                    : grace_until > now    ? CRL_ANSWER_STALE
                                           : CRL_ANSWER_ERROR;
  flight->status = flight->plan.frozen ? CORRAL_EFROZEN : CORRAL_EMISS;
  return flight->leased ? release(flight, what, 0) : conclude(flight, what);
}

/* The next ask after a look that did not grant the lease. */
static crl_ask consider(crl_flight *flight, const crl_told *told, int may_claim) {
  const crl_look *look = &told->look;
  if (flight->answered && (!may_claim || look->lease_left > 0)) return CRL_ASK_DONE;
  if (look->pass && !flight->answered && flight->plan.can_compute)
    return flight->last_look ? run_out(flight, told->now)
                             : go_alone(flight, CRL_ALONE_PASS, told->now);
  if (flight->plan.anew) return rebuild(flight, told, may_claim);
  if (look->lives.fresh > 0) return on_fresh(flight, told, may_claim && !flight->last_look);
  if (look->retry_left > 0) return on_verdict(flight, look, told->now);
  if (!flight->plan.can_compute) return refrain(flight, told->now);
  return claim_or_look(flight, told, may_claim && !flight->last_look);
}

static crl_ask on_get(crl_flight *flight, const crl_told *told) {
  flight->slow = told->slow;
  if (told->status != CORRAL_OK && told->status != CORRAL_EMISS)
    return degrade(flight, told, told->status);
  flight->degraded = 0;
  remember(flight, told);
  return consider(flight, told, 1);
}

/* After a wait of more than poll_ms for the slot, looks again before going on: a value may have
 * been stored meanwhile, or the store may be back. */
static crl_ask on_slot(crl_flight *flight, const crl_told *told) {
  if (told->status == CORRAL_OK) {
    flight->has_slot = 1;
    if (flight->alone || told->now <= flight->asked + flight->policy->poll_ms)
      return climb(flight, told->now);
    flight->looks++;
    return CRL_ASK_GET;
  }
  if (is_served(flight, flight->sie_until, told->now)) return serve(flight, told->now);
  if (flight->alone) return fail(flight, CORRAL_EDEADLINE);
  flight->last_look = 1;
  return CRL_ASK_GET;
}

/* True when the holder of the host lock hangs, or is cut off from the store: for lease_ms in all,
 * nobody had a lease meanwhile. The time in which another host has one tells nothing of it. */
static int holder_hangs(crl_flight *flight, const crl_told *told) {
  int64_t before = flight->shut_at;
  flight->shut_at = flight->degraded || flight->others_lead ? 0 : told->now;
  if (flight->degraded) return 0;
  if (before > 0 && flight->shut_at > 0) flight->shut_ms += told->now - before;
  return told->passed || flight->shut_ms > flight->policy->lease_ms;
}

static crl_ask on_host_busy(crl_flight *flight, const crl_told *told) {
  if (flight->plan.anew) return fail(flight, CORRAL_EBUSY);
  if (holder_hangs(flight, told)) {
    flight->passed = 1;
    flight->plan.ladder = 0;
    return climb(flight, told->now);
  }
  if (is_served(flight, flight->swr_until, told->now)) return serve(flight, told->now);
  int64_t most = patience(flight, told->now);
  if (told->now >= most) return run_out(flight, told->now);
  flight->looks++;
  flight->at_host = 1;
  flight->has_slot = 0;
  flight->until = smaller(told->now + flight->policy->poll_max_ms, most);
  return CRL_ASK_WAIT;
}

/* Another process may have had the host lock since the last look: look again, before a claim is
 * sent. */
static crl_ask on_host(crl_flight *flight, const crl_told *told) {
  if (told->status == CORRAL_EBUSY) return on_host_busy(flight, told);
  flight->on_host = told->status == CORRAL_OK;
  if (!flight->on_host) flight->plan.ladder = 0;
  return flight->degraded ? climb(flight, told->now) : CRL_ASK_GET;
}

/* Serves a value that is to be rebuilt. It is rebuilt behind the answer, without the store, unless
 * this process does so, or has just done so. */
static crl_ask refresh_without(crl_flight *flight, int64_t now) {
  int rests = flight->recalls || flight->slow || flight->last_look || flight->pause_until > now;
  int may = flight->plan.can_compute && flight->plan.background && !flight->plan.returns;
  flight->refresh = flight->degraded = !rests && may;
  return answer(flight, CRL_ANSWER_STALE);
}

static crl_ask on_outbox(crl_flight *flight, const crl_told *told) {
  const crl_lives *lives = &told->look.lives;
  if (told->status == CORRAL_OK) {
    remember_graces(flight, told);
    if (flight->plan.anew) flight->fresh_until = told->now + larger(lives->fresh, 0);
    if (lives->fresh > 0 && !flight->plan.anew) return answer(flight, CRL_ANSWER_OUTBOX);
    if (lives->swr > 0 && !flight->plan.anew) return refresh_without(flight, told->now);
  }
  if (flight->recalls) return recall_failure(flight, told->now);
  return flight->ran_out ? run_out(flight, told->now) : go_without(flight, told->now);
}

static crl_ask on_granted(crl_flight *flight, const crl_told *told) {
  flight->leased = 1;
  remember(flight, told);
  if (flight->plan.anew) return CRL_ASK_COMPUTE;
  if (told->look.lives.fresh > 0 && !flight->answered) return answer(flight, CRL_ANSWER_STORED);
  if (told->look.lives.fresh > 0 && !flight->early) return release(flight, CRL_ANSWER_STORED, 0);
  if (told->look.lives.swr > 0 && !flight->answered) return answer(flight, CRL_ANSWER_STALE);
  return CRL_ASK_COMPUTE;
}

/* A claim whose reply was lost may have been granted, or may be granted later, from a buffer of the
 * server. Its lease token is released, and must not be used again: a claim with it that arrives
 * after an invalidation would revive the lease of a compute that began before that. */
static crl_ask on_claim_trouble(crl_flight *flight, const crl_told *told) {
  flight->slow = told->slow;
  flight->blind = 0;
  if (told->status != CORRAL_EINDOUBT) return degrade(flight, told, told->status);
  flight->lost_claims++;
  flight->unsure = 1;
  flight->retry_ms = 0;
  return CRL_ASK_RELEASE;
}

static crl_ask on_claim(crl_flight *flight, const crl_told *told) {
  if (told->status != CORRAL_OK && told->status != CORRAL_EBUSY)
    return on_claim_trouble(flight, told);
  int is_first = flight->blind;
  flight->blind = 0;
  if (told->status == CORRAL_OK) return on_granted(flight, told);
  remember(flight, told);
  return consider(flight, told, is_first);
}

/* The ask that ends the lease of a compute that has ended. */
static crl_ask end_lease(const crl_flight *flight) {
  int stores = flight->made == CRL_MADE_VALUE || flight->made == CRL_MADE_PASS;
  return stores && flight->settles < 2 ? CRL_ASK_SETTLE : CRL_ASK_RELEASE;
}

/* A caller whose deadline has come, or who doesn't wait for the lease's end (`behind`), has the
 * answer first. */
static crl_ask end_lease_by(crl_flight *flight, crl_answer what, const crl_told *told) {
  int is_first = !flight->answered && (told->behind || told->now >= flight->plan.deadline);
  if (!flight->answered) flight->answer = (uint8_t)what;
  return is_first ? answer(flight, what) : end_lease(flight);
}

static crl_ask on_failure(crl_flight *flight, const crl_told *told) {
  crl_answer what = has_fresh(flight, told->now)    ? CRL_ANSWER_STORED
                    : flight->sie_until > told->now ? CRL_ANSWER_STALE
                                                    : CRL_ANSWER_FAILED;
  flight->failures++;
  flight->retry_ms =
      flight->alone ? 0 : crl_policy_retry(flight->policy, flight->failures, roll(flight));
  return flight->leased ? end_lease_by(flight, what, told) : conclude(flight, what);
}

/* The fate of what was made, before the store's word about it. */
static corral_kept kept_of(const crl_flight *flight) {
  switch ((crl_made)flight->made) {
    case CRL_MADE_OLDER: return CORRAL_KEPT_OLDER;
    case CRL_MADE_FENCED: return CORRAL_KEPT_FENCED;
    case CRL_MADE_VALUE: return flight->leased ? CORRAL_KEPT_UNKNOWN : CORRAL_KEPT_NOT;
    default: return CORRAL_KEPT_NOT;
  }
}

static crl_ask on_compute(crl_flight *flight, const crl_told *told) {
  flight->made = (uint8_t)told->made;
  flight->has_slot = 0;
  if (told->made == CRL_MADE_FAILURE) return on_failure(flight, told);
  flight->kept = (uint8_t)kept_of(flight);
  if (!flight->leased) return conclude(flight, CRL_ANSWER_COMPUTED);
  /* The source of an older value lags behind. Until it catches up the stored later version is
   * served in its grace, and the verdict delays the next compute. */
  flight->retry_ms =
      told->made == CRL_MADE_OLDER ? crl_policy_retry(flight->policy, 1, roll(flight)) : 0;
  return CRL_ASK_PUBLISH;
}

/* A settle that a silent store didn't answer is repeated once, behind the answer and with more
 * time: the lease token guards it as before. Any other failure ends the lease. */
static crl_ask on_settle_trouble(crl_flight *flight, const crl_told *told) {
  int is_away = told->status == CORRAL_EINDOUBT || told->status == CORRAL_EUNAVAILABLE;
  /* after a first settle without a reply, nothing tells any more that the value isn't stored */
  if (flight->settles == 0) flight->kept = is_away ? CORRAL_KEPT_UNKNOWN : CORRAL_KEPT_NOT;
  flight->settles = flight->settles == 0 && is_away ? 1 : 2;
  return flight->answered ? end_lease(flight) : answer(flight, CRL_ANSWER_COMPUTED);
}

/* A settle that finds the lease lost after one in doubt: the first may have stored the value. */
static crl_ask on_settle(crl_flight *flight, const crl_told *told) {
  if (told->status != CORRAL_OK && told->status != CORRAL_ELOST)
    return on_settle_trouble(flight, told);
  if (told->status == CORRAL_OK)
    flight->kept = flight->made == CRL_MADE_PASS ? CORRAL_KEPT_NOT : CORRAL_KEPT;
  else if (flight->settles == 0)
    flight->kept = CORRAL_KEPT_FENCED;
  flight->leased = 0;
  return conclude(flight, CRL_ANSWER_COMPUTED);
}

static crl_ask on_release(crl_flight *flight, const crl_told *told) {
  if (flight->unsure) {
    int answers = told->status == CORRAL_OK || told->status == CORRAL_ELOST;
    flight->unsure = 0;
    if (answers && flight->lost_claims == 1) return CRL_ASK_CLAIM;
    flight->slow = answers ? flight->slow : told->slow;
    return degrade(flight, told, CORRAL_EUNAVAILABLE);
  }
  flight->leased = 0;
  return conclude(flight, (crl_answer)flight->answer);
}

static crl_ask on_wait(crl_flight *flight, const crl_told *told) {
  flight->at_host = 0;
  if (told->now >= flight->plan.deadline) flight->last_look = 1;
  return flight->last_look && flight->slow ? run_out(flight, told->now) : CRL_ASK_GET;
}

/* After the answer: ends the lease of a compute, gives back one that wasn't needed, computes behind
 * a stale answer, or ends. */
static crl_ask on_answer(crl_flight *flight, const crl_told *told) {
  if (flight->made != 0) return flight->leased ? end_lease(flight) : CRL_ASK_DONE;
  if (flight->leased)
    return flight->answer == CRL_ANSWER_STALE || flight->early
               ? CRL_ASK_COMPUTE
               : release(flight, CRL_ANSWER_STORED, 0);
  return flight->refresh ? climb(flight, told->now) : CRL_ASK_DONE;
}

#ifdef CORRAL_CHECKS
static void check(const crl_flight *flight) {
  int ask = flight->ask;
  CRL_MUST(ask >= CRL_ASK_GET && ask <= CRL_ASK_PUBLISH, "flight: an ask is outstanding");
  CRL_MUST((ask != CRL_ASK_SETTLE && ask != CRL_ASK_PUBLISH) || flight->leased,
           "flight: only a lease is settled");
  CRL_MUST(ask != CRL_ASK_RELEASE || flight->leased || flight->unsure,
           "flight: only a lease is released");
  CRL_MUST(ask != CRL_ASK_COMPUTE || flight->leased || flight->degraded || flight->alone,
           "flight: who computes has the lease, or does without");
  CRL_MUST(!flight->unsure || ask == CRL_ASK_RELEASE, "flight: a lost claim is released at once");
  CRL_MUST(ask != CRL_ASK_DONE || (flight->answered && !flight->leased && !flight->has_slot),
           "flight: it ends answered, and with nothing in its hands");
}
#endif

crl_ask crl_flight_start(crl_flight *flight, const corral_policy *policy,
                         const crl_flight_plan *plan) {
  memset(flight, 0, sizeof *flight);
  flight->policy = policy;
  flight->plan = *plan;
  flight->dice = plan->dice;
  flight->alone = plan->alone == CRL_ALONE_OUTBOX ? (uint8_t)CRL_ALONE_NOT : plan->alone;
  flight->plan.anew &= plan->can_compute;
  flight->plan.background &= !flight->plan.anew;
  flight->blind =
      plan->expects_none && plan->can_compute && !plan->alone && !plan->limited && !plan->ladder;
  if (plan->alone == CRL_ALONE_OUTBOX) flight->slow = flight->last_look = flight->ran_out = 1;
  flight->until = plan->deadline;
  flight->ask = flight->alone     ? plan->limited ? CRL_ASK_SLOT : CRL_ASK_COMPUTE
                : flight->ran_out ? CRL_ASK_OUTBOX
                : flight->blind   ? CRL_ASK_CLAIM
                                  : CRL_ASK_GET;
  CRL_CHECK(flight);
  return (crl_ask)flight->ask;
}

/* True as long as a cancelled call may end its flight: before an answer and before a compute. A
 * slot or host lock that was granted is given back at DONE. */
static int may_leave(const crl_flight *flight) {
  return !flight->answered && (flight->ask == CRL_ASK_GET || flight->ask == CRL_ASK_WAIT ||
                               flight->ask == CRL_ASK_SLOT || flight->ask == CRL_ASK_HOST);
}

static crl_ask next_ask(crl_flight *flight, const crl_told *told) {
  if (told->left && may_leave(flight)) return fail(flight, CORRAL_ECANCELLED);
  switch ((crl_ask)flight->ask) {
    case CRL_ASK_GET: return on_get(flight, told);
    case CRL_ASK_CLAIM: return on_claim(flight, told);
    case CRL_ASK_WAIT: return on_wait(flight, told);
    case CRL_ASK_COMPUTE: return on_compute(flight, told);
    case CRL_ASK_PUBLISH: return end_lease_by(flight, CRL_ANSWER_COMPUTED, told);
    case CRL_ASK_SETTLE: return on_settle(flight, told);
    case CRL_ASK_RELEASE: return on_release(flight, told);
    case CRL_ASK_ANSWER: return on_answer(flight, told);
    case CRL_ASK_SLOT: return on_slot(flight, told);
    case CRL_ASK_HOST: return on_host(flight, told);
    case CRL_ASK_OUTBOX: return on_outbox(flight, told);
    case CRL_ASK_DONE: break;
  }
  return CRL_ASK_DONE;
}

crl_ask crl_flight_step(crl_flight *flight, const crl_told *told) {
  CRL_CHECK(flight);
  flight->plan.frozen |= told->frozen;
  flight->plan.can_compute &= !told->frozen;
  crl_ask next = next_ask(flight, told);
  if (next == CRL_ASK_COMPUTE && flight->plan.frozen) next = refrain(flight, told->now);
  assert(next != CRL_ASK_DONE || flight->answered);
  if (next == CRL_ASK_DONE) flight->has_slot = flight->on_host = 0;
  flight->ask = (uint8_t)next;
  CRL_CHECK(flight);
  return next;
}
