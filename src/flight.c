/* flight.c: the whole stampede algorithm: told -> ask.
 *
 *   GET -> fresh: ANSWER
 *       -> stale, nobody at it: CLAIM (behind an ANSWER when compute may run in the background)
 *       -> somebody at it: stale is the ANSWER, else WAIT and GET again
 *       -> nothing: CLAIM -> granted: COMPUTE -> SETTLE -> ANSWER
 *                         -> busy: as above
 *       -> the store is away: COMPUTE, ANSWER
 *   a failed COMPUTE: RELEASE with a verdict, then stale or the failure is the ANSWER
 *
 * One handler per outstanding ask; each returns the next one. */
#include "flight.h"

#include <assert.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t roll(crl_flight *flight) {
  uint64_t z = (flight->dice += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static crl_ask answer(crl_flight *flight, crl_answer what) {
  assert(!flight->answered);
  flight->answered = 1;
  flight->answer = (uint8_t)what;
  return CRL_ASK_ANSWER;
}

/* The end of a flight that has decided on `what`: nothing more to say when a stale answer went out before. */
static crl_ask conclude(crl_flight *flight, crl_answer what) {
  return flight->answered ? CRL_ASK_DONE : answer(flight, what);
}

static crl_ask fail(crl_flight *flight, int status) {
  flight->status = status;
  return conclude(flight, CRL_ANSWER_ERROR);
}

/* Gives the lease back first, then concludes with flight->answer. */
static crl_ask release(crl_flight *flight, crl_answer then, int64_t retry_ms) {
  if (!flight->answered) flight->answer = (uint8_t)then;
  flight->retry_ms = retry_ms;
  return CRL_ASK_RELEASE;
}

/* The store can't hold an election. A refresh behind a stale answer can wait for better times. */
static crl_ask degrade(crl_flight *flight, int64_t now, int status) {
  flight->leased = 0;
  if (flight->answered) return CRL_ASK_DONE;
  if (flight->swr_until > now) return answer(flight, CRL_ANSWER_STALE);
  if (flight->plan.can_compute && !flight->last_look) {
    flight->degraded = 1;
    return CRL_ASK_COMPUTE;
  }
  if (flight->sie_until > now) return answer(flight, CRL_ANSWER_STALE);
  return fail(flight, flight->last_look ? CORRAL_EDEADLINE : status);
}

static crl_ask wait(crl_flight *flight, int64_t now, int64_t lease_left) {
  if (flight->last_look || now >= flight->plan.deadline) {
    if (flight->sie_until > now) return answer(flight, CRL_ANSWER_STALE);
    return fail(flight, CORRAL_EDEADLINE);
  }
  int64_t pause = crl_policy_backoff(flight->policy->poll_ms, flight->policy->poll_max_ms, flight->looks++, roll(flight));
  if (lease_left > 0) pause = smaller(pause, lease_left + 1);
  flight->until = smaller(now + pause, flight->plan.deadline);
  return CRL_ASK_WAIT;
}

static void remember(crl_flight *flight, const crl_told *told) {
  const crl_lives *lives = &told->look.lives;
  flight->failures = told->look.failures;
  flight->swr_until = lives->swr > 0 ? told->now + lives->swr : 0;
  flight->sie_until = lives->sie > 0 ? told->now + lives->sie : 0;
  if (flight->sie_until < flight->swr_until) flight->sie_until = flight->swr_until;
}

static crl_ask claim_or_look(crl_flight *flight, const crl_told *told, int may_claim) {
  if (told->look.lives.swr > 0 && (!may_claim || told->look.lease_left > 0)) return conclude(flight, CRL_ANSWER_STALE);
  if (!may_claim || told->look.lease_left > 0) return wait(flight, told->now, told->look.lease_left);
  if (told->look.lives.swr > 0 && flight->plan.background) {
    flight->refresh = 1;
    return answer(flight, CRL_ANSWER_STALE);
  }
  return CRL_ASK_CLAIM;
}

/* What a look without the lease leads to. */
static crl_ask consider(crl_flight *flight, const crl_told *told, int may_claim) {
  const crl_look *look = &told->look;
  if (flight->answered && !may_claim) return CRL_ASK_DONE;
  if (look->lives.fresh > 0) return conclude(flight, CRL_ANSWER_STORED);
  if (look->retry_left > 0) return conclude(flight, flight->sie_until > told->now ? CRL_ANSWER_STALE : CRL_ANSWER_VERDICT);
  if (!flight->plan.can_compute) {
    if (look->lives.swr > 0) return answer(flight, CRL_ANSWER_STALE);
    return fail(flight, CORRAL_EMISS);
  }
  return claim_or_look(flight, told, may_claim && !flight->last_look);
}

static crl_ask on_get(crl_flight *flight, const crl_told *told) {
  if (told->status != CORRAL_OK && told->status != CORRAL_EMISS) return degrade(flight, told->now, told->status);
  remember(flight, told);
  return consider(flight, told, 1);
}

static crl_ask on_granted(crl_flight *flight, const crl_told *told) {
  flight->leased = 1;
  remember(flight, told);
  if (told->look.lives.fresh > 0) {
    if (flight->answered) return release(flight, CRL_ANSWER_STORED, 0);
    return answer(flight, CRL_ANSWER_STORED);
  }
  if (told->look.lives.swr > 0 && !flight->answered) return answer(flight, CRL_ANSWER_STALE);
  return CRL_ASK_COMPUTE;
}

/* A claim whose reply was lost may have been granted, or may be granted later: the server can have it in a buffer still. Its
 * token is given up, and must not be used again: a claim of it that arrives after an invalidate would revive the lease
 * of a compute that began before. */
static crl_ask on_claim_trouble(crl_flight *flight, const crl_told *told) {
  if (told->status != CORRAL_EUNKNOWN) return degrade(flight, told->now, told->status);
  flight->lost_claims++;
  flight->unsure = 1;
  flight->retry_ms = 0;
  return CRL_ASK_RELEASE;
}

static crl_ask on_claim(crl_flight *flight, const crl_told *told) {
  if (told->status != CORRAL_OK && told->status != CORRAL_EBUSY) return on_claim_trouble(flight, told);
  if (told->status == CORRAL_OK) return on_granted(flight, told);
  remember(flight, told);
  return consider(flight, told, 0);
}

static crl_ask on_failure(crl_flight *flight, const crl_told *told) {
  crl_answer what = flight->sie_until > told->now ? CRL_ANSWER_STALE : CRL_ANSWER_FAILED;
  flight->failures++;
  flight->retry_ms = crl_policy_retry(flight->policy, flight->failures, roll(flight));
  return flight->leased ? release(flight, what, flight->retry_ms) : conclude(flight, what);
}

static crl_ask on_compute(crl_flight *flight, const crl_told *told) {
  flight->made = (uint8_t)told->made;
  if (told->made == CRL_MADE_FAILURE) return on_failure(flight, told);
  flight->kept = CORRAL_KEPT_NOT;
  if (!flight->leased) return conclude(flight, CRL_ANSWER_COMPUTED);
  return told->made == CRL_MADE_UNKEPT ? release(flight, CRL_ANSWER_COMPUTED, 0) : CRL_ASK_SETTLE;
}

static crl_ask on_settle(crl_flight *flight, const crl_told *told) {
  switch (told->status) {
    case CORRAL_OK: flight->kept = CORRAL_KEPT; break;
    case CORRAL_ELOST: flight->kept = CORRAL_KEPT_FENCED; break;
    case CORRAL_EUNKNOWN: flight->kept = CORRAL_KEPT_UNKNOWN; return release(flight, CRL_ANSWER_COMPUTED, 0);
    default: flight->kept = CORRAL_KEPT_NOT; return release(flight, CRL_ANSWER_COMPUTED, 0);
  }
  flight->leased = 0;
  return conclude(flight, CRL_ANSWER_COMPUTED);
}

static crl_ask on_release(crl_flight *flight, const crl_told *told) {
  if (flight->unsure) {
    int answers = told->status == CORRAL_OK || told->status == CORRAL_ELOST;
    flight->unsure = 0;
    return answers && flight->lost_claims == 1 ? CRL_ASK_CLAIM : degrade(flight, told->now, CORRAL_EUNAVAILABLE);
  }
  flight->leased = 0;
  return conclude(flight, (crl_answer)flight->answer);
}

static crl_ask on_wait(crl_flight *flight, const crl_told *told) {
  if (told->now >= flight->plan.deadline) flight->last_look = 1;
  return CRL_ASK_GET;
}

/* After the answer: give back a lease that wasn't needed, compute behind a stale answer, or end. */
static crl_ask on_answer(crl_flight *flight) {
  if (flight->made != 0) return CRL_ASK_DONE;
  if (flight->leased) return flight->answer == CRL_ANSWER_STALE ? CRL_ASK_COMPUTE : release(flight, CRL_ANSWER_STORED, 0);
  return flight->refresh ? CRL_ASK_CLAIM : CRL_ASK_DONE;
}

crl_ask crl_flight_start(crl_flight *flight, const corral_policy *policy, const crl_flight_plan *plan) {
  memset(flight, 0, sizeof *flight);
  flight->policy = policy;
  flight->plan = *plan;
  flight->dice = plan->dice;
  return (crl_ask)(flight->ask = CRL_ASK_GET);
}

crl_ask crl_flight_step(crl_flight *flight, const crl_told *told) {
  crl_ask next = CRL_ASK_DONE;
  switch ((crl_ask)flight->ask) {
    case CRL_ASK_GET: next = on_get(flight, told); break;
    case CRL_ASK_CLAIM: next = on_claim(flight, told); break;
    case CRL_ASK_WAIT: next = on_wait(flight, told); break;
    case CRL_ASK_COMPUTE: next = on_compute(flight, told); break;
    case CRL_ASK_SETTLE: next = on_settle(flight, told); break;
    case CRL_ASK_RELEASE: next = on_release(flight, told); break;
    case CRL_ASK_ANSWER: next = on_answer(flight); break;
    case CRL_ASK_DONE: break;
  }
  assert(next != CRL_ASK_DONE || flight->answered);
  flight->ask = (uint8_t)next;
  return next;
}
