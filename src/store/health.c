/* health.c: what the results of asks say of a server. */
#include "store/health.h"

#include "os/env.h"

void crl_health_start(crl_health *health, const crl_pool_options *options) {
  crl_breaker_start(&health->breaker, options->breaker_failures, options->breaker_rest_ms,
                    options->away_ms);
}

int crl_health_may_ask(crl_health *health, int *probe) {
  *probe = health->self_probing && crl_breaker_probe(&health->breaker, crl_env_now_ms());
  return *probe || crl_breaker_lets(&health->breaker);
}

int crl_health_holds_back(const crl_health *health) {
  return health->holding && !health->breaker.open;
}

int crl_health_is_well(const crl_health *health) {
  const crl_breaker *breaker = &health->breaker;
  return !breaker->open && breaker->failures == 0 && !crl_breaker_is_slow(breaker) &&
         !health->checking && !health->holding;
}

static corral_event event_of(crl_breaker_turn turn) {
  switch (turn) {
    case CRL_BREAKER_OPENED: return CORRAL_EVENT_STORE_DOWN;
    case CRL_BREAKER_CLOSED: return CORRAL_EVENT_STORE_UP;
    case CRL_BREAKER_SAME: break;
  }
  return CORRAL_EVENT_COUNT;
}

corral_event crl_health_outcome(crl_health *health, int worked, int probe,
                                const corral_error *why) {
  if (worked)
    health->doubts = 0;
  else
    health->why = *why;
  return event_of(crl_breaker_note(&health->breaker, worked, probe, crl_env_now_ms()));
}

corral_event crl_health_silence(crl_health *health, int64_t began, int64_t limit, int probe,
                                const corral_error *why) {
  if (why->text[0] != '\0') health->why = *why;
  return event_of(
      crl_breaker_note_silence(&health->breaker, began, limit, probe, crl_env_now_ms()));
}

/* A server that isn't resting and refuses the probe has failed as often as opens the breaker; one
 * that is silent still is probed again. */
corral_event crl_health_probed(crl_health *health, const crl_findings *found, int rests) {
  corral_event event = CORRAL_EVENT_COUNT;
  int64_t times = found->works || rests ? 1 : health->breaker.most;
  if (found->is_silent)
    event = crl_health_silence(health, found->began, found->limit, rests, &found->why);
  else
    for (int64_t i = 0; i < times && event == CORRAL_EVENT_COUNT; i++)
      event = crl_health_outcome(health, found->works, rests, &found->why);
  health->checking = found->is_silent && crl_breaker_is_slow(&health->breaker);
  health->holding = health->checking;
  health->doubts = 0;
  return event;
}

static int check(crl_health *health) {
  if (health->self_probing || health->checking || health->breaker.open) return 0;
  health->checking = 1;
  return 1;
}

int crl_health_doubt(crl_health *health) {
  int is_due = check(health);
  health->holding = health->checking;
  return is_due;
}

int crl_health_hurried(crl_health *health) {
  return ++health->doubts >= health->breaker.most && check(health);
}

void crl_health_self_probing(crl_health *health, int self_probing) {
  health->self_probing = self_probing;
  if (self_probing) health->checking = health->holding = 0;
}

int64_t crl_health_probe_at(const crl_health *health) {
  if (health->breaker.open && !health->self_probing) return health->breaker.rest_until;
  return health->checking ? 0 : INT64_MAX;
}
