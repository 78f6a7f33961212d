/* join.c: a call's part in the herd: it leads a flight, waits for another caller's, or has an
 * answer. */
#include "os/env.h"
#include "run/run.h"

/* ---- entering ------------------------------------------------------------------------------ */

void crl_join_end(crl_join *join, const crl_outcome *outcome) {
  *join->outcome = *outcome;
  join->state = CRL_JOIN_ENDED;
}

void crl_join_fail(crl_join *join, int status) {
  crl_outcome outcome = crl_outcome_plain(status);
  crl_join_end(join, &outcome);
}

static void emit(const crl_join *join, corral_event event) {
  crl_event_emit(&join->context->events, event, join->name.key, join->name.key_len, NULL);
}

static void give_up(crl_entry *entry) {
  if (entry == NULL) return;
  crl_herd_give_up(entry);
  crl_entry_unref(entry);
}

/* Makes the run of a flight that the call leads; it takes over `found` (NULL: nothing was looked at
 * yet). */
static void lead(crl_join *join, crl_found *found, crl_alone alone) {
  crl_run *r = crl_run_new(join, found, alone);
  crl_entry *entry = join->leads;
  join->leads = NULL;
  if (r == NULL) {
    give_up(entry);
    crl_join_fail(join, CORRAL_ENOMEM);
    return;
  }
  r->entry = entry;
  join->run = r;
  join->state = CRL_JOIN_LEADS;
}

void crl_join_take(crl_join *join, crl_entry *entry, int owns) {
  join->entry = entry;
  join->owns = owns;
  join->state = CRL_JOIN_WAITS;
}

static void listen(crl_join *join, crl_entry *entry, int owns) {
  crl_join_take(join, entry, owns);
  if (join->waiter != NULL) crl_herd_listen(entry, &join->listener, join->waiter, crl_run_lends());
}

static void enter(crl_join *join, crl_alone alone) {
  crl_herd *herd = join->context->herd;
  crl_entry *entry = NULL;
  int leads = 1;
  join->hash = crl_name_hash(&join->name);
  if (crl_call_computes(join->call)) {
    entry = alone ? crl_herd_private(herd, &join->name, join->hash)
                  : crl_herd_enter(herd, &join->name, join->hash, &leads);
    if (entry == NULL) {
      crl_join_fail(join, CORRAL_ENOMEM);
      return;
    }
  }
  if (!leads) {
    emit(join, CORRAL_EVENT_JOIN);
    listen(join, entry, 0);
    return;
  }
  join->leads = entry;
  join->state = CRL_JOIN_LOOKS;
  if (alone) lead(join, NULL, alone);
}

void crl_join_init(crl_join *join, crl_context *context, const crl_call *call, const void *key,
                   size_t key_len) {
  memset(join, 0, sizeof *join);
  join->context = context;
  join->call = call;
  join->name = crl_call_name(call, key, key_len);
}

void crl_join_begin(crl_join *join) {
  if (crl_run_recurses(join->context, &join->name)) {
    crl_join_fail(join, CORRAL_ERECURSION);
  } else if (crl_run_near(join)) {
    join->state = CRL_JOIN_ENDED;
  } else {
    if (join->deadline == 0) join->deadline = crl_env_now_ms() + join->call->policy->wait_ms;
    enter(join, CRL_ALONE_NOT);
  }
}

/* ---- the first look ------------------------------------------------------------------------ */

void crl_join_fly(crl_join *join) { lead(join, NULL, CRL_ALONE_NOT); }

/* A hit: the end of the call, and of the flight. */
static void hit(crl_join *join, crl_found *found) {
  crl_outcome outcome = crl_found_outcome(found, CORRAL_FRESH);
  int is_negative = outcome.status == CORRAL_ENOTFOUND;
  crl_found_tell_answer(found, is_negative ? CORRAL_EVENT_NEGATIVE : CORRAL_EVENT_HIT, &outcome);
  if (join->leads != NULL) {
    crl_herd_land(join->leads, &outcome);
    crl_entry_unref(join->leads);
    join->leads = NULL;
  }
  crl_join_end(join, &outcome);
}

static void begin_flight(crl_join *join, crl_found *found, crl_told *told) {
  crl_found_tell_miss(found, told);
  lead(join, found, CRL_ALONE_NOT);
  if (join->state == CRL_JOIN_LEADS) crl_run_looked(join->run, join->call->cancel_token, told);
}

/* A fresh value that is to be rebuilt early is no hit. */
static int hits(crl_join *join, const crl_told *told) {
  const corral_policy *policy = join->call->policy;
  if (told->status != CORRAL_OK || told->look.lives.fresh <= 0 || told->look.pass) return 0;
  if (!crl_call_computes(join->call)) return 1;
  join->early = crl_flight_early(policy, &told->look, join->early, crl_env_dice());
  return !join->early;
}

void crl_join_first(crl_join *join) {
  crl_found found;
  crl_request e;
  crl_told told;
  memset(&told, 0, sizeof told);
  int status = crl_found_init(&found, join->context, join->call->policy, &join->name, join->hash);
  if (status != CORRAL_OK) {
    give_up(join->leads);
    join->leads = NULL;
    crl_join_fail(join, status);
    return;
  }
  crl_found_look(&found, &e, join->deadline, &told);
  if (hits(join, &told))
    hit(join, &found);
  else
    begin_flight(join, &found, &told);
  crl_found_clean(&found);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static crl_patience patience_of(const crl_join *join) {
  const corral_policy *policy = join->call->policy;
  return (crl_patience){
      .deadline = join->deadline,
      .soft_until = policy->soft_ms > 0 ? join->deadline - policy->wait_ms + policy->soft_ms : 0,
      .cancel_token = join->call->cancel_token,
      .owns = join->owns,
      .lends = crl_run_lends()};
}

/* The state is to be changed by the caller. */
static void leave_entry(crl_join *join, crl_wait came) {
  if (join->waiter != NULL) crl_herd_unlisten(join->entry, &join->listener, came);
  crl_entry_unref(join->entry);
  join->entry = NULL;
}

void crl_run_tell_deadline(const crl_join *join) {
  corral_event_info info =
      crl_event_info(CORRAL_EVENT_DEADLINE, join->name.key, join->name.key_len);
  info.status = CORRAL_EDEADLINE;
  info.duration_us = (crl_env_now_ms() - join->deadline + join->call->policy->wait_ms) * 1000;
  crl_event_tell(&join->context->events, &info);
}

/* The deadline has come, or no time is left to enter anew. */
static void run_out(crl_join *join) {
  if (join->call->policy->at_deadline == CORRAL_DEADLINE_COMPUTE) {
    enter(join, CRL_ALONE_DEADLINE);
    return;
  }
  crl_run_tell_deadline(join);
  crl_join_fail(join, CORRAL_EDEADLINE);
}

/* Goes on by the result of a wait. */
static void turn(crl_join *join, crl_wait came, crl_outcome *outcome) {
  int owns = join->owns;
  leave_entry(join, came);
  switch (came) {
    case CRL_WAIT_LANDED:
      if (outcome->how == CORRAL_COMPUTED && !owns) outcome->how = CORRAL_JOINED;
      crl_join_end(join, outcome);
      break;
    case CRL_WAIT_PASS: enter(join, CRL_ALONE_PASS); break;
    case CRL_WAIT_LEFT: crl_join_fail(join, CORRAL_ECANCELLED); break;
    case CRL_WAIT_GIVEN_UP:
      if (crl_env_now_ms() < join->deadline)
        enter(join, CRL_ALONE_NOT);
      else
        run_out(join);
      break;
    case CRL_WAIT_DEADLINE: run_out(join); break;
  }
}

void crl_join_wait(crl_join *join) {
  crl_outcome outcome = {0};
  crl_patience patience = patience_of(join);
  turn(join, crl_herd_wait(join->entry, &patience, &outcome), &outcome);
}

void crl_join_look(crl_join *join) {
  crl_outcome outcome = {0};
  crl_patience patience = patience_of(join);
  atomic_store(&join->listener.stirred, 0);
  crl_wait came = crl_herd_look(join->entry, &patience, &outcome);
  if (came != 0) turn(join, came, &outcome);
}

int64_t crl_join_until(const crl_join *join) {
  crl_patience patience = patience_of(join);
  int is_soft = patience.soft_until > 0 && patience.soft_until < patience.deadline &&
                patience.soft_until > crl_env_now_ms();
  return is_soft ? patience.soft_until : patience.deadline;
}

/* ---- the end ------------------------------------------------------------------------------- */

void crl_join_follow(crl_join *join) {
  crl_entry *entry = crl_entry_ref(join->run->entry);
  join->run = NULL;
  listen(join, entry, 1);
}

void crl_join_land(crl_join *join) {
  crl_run *r = join->run;
  crl_entry *entry = r->entry;
  *join->outcome = r->answer;
  r->answer.bytes = NULL;
  r->entry = NULL;
  join->run = NULL;
  crl_run_free(r);
  if (entry != NULL) crl_entry_unref(entry); /* allocated before the run: malloc likes it last */
  join->state = CRL_JOIN_ENDED;
}

void crl_join_leave(crl_join *join) {
  give_up(join->leads);
  join->leads = NULL;
  if (join->run != NULL) {
    crl_run_abandon(join->run);
    crl_run_free(join->run);
    join->run = NULL;
  }
  if (join->entry != NULL) leave_entry(join, CRL_WAIT_LEFT);
}
