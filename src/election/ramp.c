/* ramp.c: how many computes at once an origin bears, learned from how fast it answers. */
#include "election/ramp.h"

enum { LEAST = 2, ROUND_LEAST = 4, SLOWER = 2, IDLE_US = 10000000, STANDING_US = 100000 };

static void begin_round(crl_ramp *ramp) {
  ramp->count = ramp->failures = 0;
  ramp->fastest_us = INT64_MAX;
  ramp->reached = 0;
}

static void begin(crl_ramp *ramp) {
  ramp->limit = ramp->most < LEAST ? ramp->most : LEAST;
  ramp->slow_start = 1;
  ramp->known_us = 0;
  begin_round(ramp);
}

void crl_ramp_init(crl_ramp *ramp, int64_t most) {
  *ramp = (crl_ramp){.most = most > 0 ? most : 1, .queued_us = INT64_MAX};
  begin(ramp);
}

int64_t crl_ramp_limit(crl_ramp *ramp, int64_t inside, int64_t now_us) {
  if (inside == 0 && now_us - ramp->last_us > IDLE_US && now_us - ramp->changed_us > IDLE_US) {
    begin(ramp);
    ramp->changed_us = now_us;
  }
  return ramp->limit;
}

void crl_ramp_reached(crl_ramp *ramp) { ramp->reached = 1; }

void crl_ramp_queue(crl_ramp *ramp, int64_t since_us) { ramp->queued_us = since_us; }

int crl_ramp_newest_first(const crl_ramp *ramp, int64_t now_us) {
  return ramp->queued_us < now_us - STANDING_US;
}

static void change(crl_ramp *ramp, int64_t limit, int64_t now_us) {
  if (limit < LEAST) limit = LEAST;
  if (limit > ramp->most) limit = ramp->most;
  if (limit != ramp->limit) ramp->changed_us = now_us;
  ramp->limit = limit;
}

void crl_ramp_cap(crl_ramp *ramp, int64_t most, int64_t now_us) {
  ramp->most = most;
  change(ramp, ramp->limit, now_us);
}

static int is_bad(const crl_ramp *ramp) {
  return 2 * ramp->failures > ramp->count || ramp->fastest_us / SLOWER > ramp->known_us;
}

static void judge(crl_ramp *ramp, int64_t now_us) {
  int bad = is_bad(ramp), all_failed = ramp->failures == ramp->count;
  if (!all_failed && ((bad && ramp->limit <= LEAST) || ramp->fastest_us < ramp->known_us))
    ramp->known_us = ramp->fastest_us;
  if (bad) {
    ramp->slow_start = 0;
    change(ramp, ramp->limit / 2, now_us);
  } else if (ramp->reached) {
    change(ramp, ramp->slow_start ? 2 * ramp->limit : ramp->limit + 1, now_us);
  }
  begin_round(ramp);
}

void crl_ramp_ended(crl_ramp *ramp, int64_t began_us, int64_t ended_us, int failed) {
  int64_t took_us = ended_us > began_us ? ended_us - began_us : 0;
  ramp->last_us = ended_us;
  if (began_us < ramp->changed_us) return;
  ramp->count++;
  ramp->failures += failed != 0;
  if (!failed && took_us < ramp->fastest_us) ramp->fastest_us = took_us;
  if (!failed && ramp->known_us == 0) ramp->known_us = took_us > 0 ? took_us : 1;
  if (ramp->count >= (ramp->limit < ROUND_LEAST ? ROUND_LEAST : ramp->limit)) judge(ramp, ended_us);
}
