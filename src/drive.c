/* drive.c: performs what a flight asks for. The only caller of plugins and of compute. Decides nothing. */
#include "drive.h"

#include <stdlib.h>

#include "env.h"
#include "registry.h"
#include "run.h"
#include "status.h"

/* The run whose compute this thread is inside of, the innermost one. */
static _Thread_local crl_run *computing;

/* ---- keys ------------------------------------------------------------------------------------------------ */

int crl_key_make(crl_key *key, const crl_station *station, const void *user_key, size_t user_key_len) {
  static const char digits[] = "0123456789abcdef";
  uint8_t hash[16];
  key->whole_len = station->prefix_len + user_key_len;
  key->whole = key->whole_len <= sizeof key->room ? key->room : crl_alloc(key->whole_len);
  if (key->whole == NULL) return CORRAL_ENOMEM;
  memcpy(key->whole, station->prefix, station->prefix_len);
  memcpy(key->whole + station->prefix_len, user_key, user_key_len);
  key->stored = key->whole;
  key->stored_len = key->whole_len;
  if (key->whole_len <= crl_pool_info(station->pool)->max_key) return CORRAL_OK;
  crl_registry_host()->hash128(key->whole, key->whole_len, hash);
  memcpy(key->hashed, "corral#", 7);
  for (size_t i = 0; i < sizeof hash; i++) {
    key->hashed[7 + 2 * i] = (uint8_t)digits[hash[i] >> 4];
    key->hashed[8 + 2 * i] = (uint8_t)digits[hash[i] & 15];
  }
  key->stored = key->hashed;
  key->stored_len = 7 + 2 * sizeof hash;
  return CORRAL_OK;
}

void crl_key_clean(crl_key *key) {
  if (key->whole != key->room) free(key->whole);
  key->whole = NULL;
}

uint64_t crl_key_hash(const crl_key *key) { return crl_registry_host()->hash64(key->stored, key->stored_len); }

/* ---- a run's life ---------------------------------------------------------------------------------------- */

void crl_run_emit(crl_run *r, corral_event event, const char *detail) {
  size_t prefix = r->station->prefix_len;
  crl_event_emit(&r->station->events, event, r->key.whole + prefix, r->key.whole_len - prefix, detail);
}

/* The caller goes; the run may go on without him. */
static void forget_caller(crl_run *r) {
  crl_ticket_leave(r->ticket, &r->leaver);
  r->ticket = NULL;
}

static void run_free(crl_run *r) {
  forget_caller(r);
  if (r->watches) crl_watch_leave(r->station->watch, &r->watcher);
  if (r->naps) crl_nap_clean(&r->nap);
  crl_bytes_unref(r->found);
  crl_bytes_unref(r->plain);
  crl_product_clean(&r->product);
  crl_marks_clean(&r->marks);
  free(r->tags);
  crl_bytes_unref(r->answer.bytes);
  crl_fill_clean(&r->fill);
  if (r->entry != NULL) crl_entry_unref(r->entry);
  crl_key_clean(&r->key);
  free(r);
}

/* Stands for a key in this process. */
static uint64_t self_of(const crl_station *station, const void *key, size_t key_len) {
  return crl_registry_host()->hash64(key, key_len) ^ (uint64_t)(uintptr_t)station;
}

/* Who asks for whom goes along when a run is handed to a worker, and outlives a caller who left. */
static void descend(crl_run *r) {
  size_t prefix = r->station->prefix_len;
  r->self = self_of(r->station, r->key.whole + prefix, r->key.whole_len - prefix);
  if (computing == NULL) return;
  size_t keep = computing->depth < CRL_RUN_DEPTH ? computing->depth : CRL_RUN_DEPTH - 1;
  memcpy(r->ancestors, computing->ancestors, keep * sizeof *r->ancestors);
  r->ancestors[keep] = computing->self;
  r->depth = keep + 1;
}

static void set_inside(void *arg) {
  crl_run *r = arg;
  atomic_store(&r->fill.stop, 1);
}

/* The ticket was cancelled: ends a nap, and a compute inside of the call, if it shall and nobody else wants it. */
static void on_leave(void *arg) {
  crl_run *r = arg;
  crl_nap_wake(&r->nap);
  if (!atomic_load(&r->inside) || r->policy.stop_alone <= 0) return;
  if (r->entry == NULL) set_inside(r);
  else crl_herd_if_alone(r->entry, set_inside, r);
}

static void make_nap(crl_run *r) {
  if (r->naps) return;
  crl_nap_init(&r->nap);
  r->naps = 1;
}

static void meet_caller(crl_run *r, corral_ticket *ticket) {
  if (ticket == NULL) return;
  make_nap(r);
  r->ticket = ticket;
  crl_ticket_join(ticket, &r->leaver, on_leave, r);
}

/* How a caller waits, by its policy. */
static crl_patience patience_of(const crl_call *call, int64_t deadline) {
  int64_t soft = call->policy.soft_ms;
  return (crl_patience){.deadline = deadline, .soft_until = soft > 0 ? deadline - call->policy.wait_ms + soft : 0, .ticket = call->policy.ticket};
}

static crl_run *run_new(crl_station *station, const crl_call *call, int64_t deadline, crl_alone alone) {
  /* A compute inside of another one has that one's slot: waiting for a second could be waiting for itself. */
  crl_flight_plan plan = {.deadline = deadline, .can_compute = call->compute != NULL, .background = call->bound != 0,
                          .limited = crl_origin_limits(station->origin) && computing == NULL,
                          .ladder = station->hostlock != NULL, .early = call->early != 0, .alone = (uint8_t)alone,
                          .soft_until = patience_of(call, deadline).soft_until};
  crl_run *r = crl_alloc(sizeof *r);
  if (r == NULL) return NULL;
  if (crl_key_make(&r->key, station, call->key, call->key_len) != CORRAL_OK) {
    run_free(r);
    return NULL;
  }
  r->station = station;
  r->hash = crl_key_hash(&r->key);
  atomic_init(&r->hold, -1);
  r->policy = call->policy;
  int64_t advised = crl_pool_info(station->pool)->poll_max_ms;
  if (advised > 0 && advised < r->policy.poll_max_ms) r->policy.poll_max_ms = advised;
  r->compute = call->compute;
  r->arg = call->arg;
  r->bound = call->bound;
  r->fill.key = r->key.whole;
  r->fill.key_len = r->key.whole_len;
  r->fill.prefix_len = station->prefix_len;
  r->fill.max_value = station->max_value;
  r->lease_ms = r->policy.lease_ms;
  descend(r);
  plan.dice = atomic_fetch_add_explicit(&station->dice, UINT64_C(0xd1342543de82ef95), memory_order_relaxed);
  r->ask = crl_flight_start(&r->flight, &r->policy, &plan);
  return r;
}

/* ---- compute --------------------------------------------------------------------------------------------- */

static void give_host(crl_run *r) {
  int hold = atomic_exchange(&r->hold, -1);
  if (hold >= 0) crl_hostlock_give(hold);
}

static crl_run *run_of(crl_kept_lease *lease) { return (crl_run *)(void *)((char *)lease - offsetof(crl_run, lease)); }

static void on_lost(crl_kept_lease *lease) {
  crl_run *r = run_of(lease);
  atomic_store(&r->fill.stop, 1);
  if (r->entry != NULL) crl_herd_detach(r->entry);
  give_host(r);
  crl_run_emit(r, CORRAL_EVENT_LEASE_LOST, NULL);
}

/* The flight is abandoned: its lease becomes a verdict, those who waited for it look for themselves. */
static void on_limit(crl_kept_lease *lease) {
  crl_run *r = run_of(lease);
  corral_error unused;
  uint8_t header[CORRAL_HEADER];
  atomic_store(&r->fill.stop, 1);
  if (lease->token != NULL) {
    r->flight.failures++;
    corral_op op = crl_run_release_op(r, header, crl_policy_retry(&r->policy, r->flight.failures, r->flight.dice),
                              "computing took longer than compute_ms", CORRAL_EABANDONED);
    op.error = &unused;
    crl_pool_perform(r->station->pool, &op, 1, crl_env_now_ms() + r->station->op_ms);
    lease->token = NULL;
  }
  if (r->entry != NULL) crl_herd_give_up(r->entry);
  give_host(r);
  crl_run_emit(r, CORRAL_EVENT_ABANDONED, NULL);
}

static void run_compute(crl_run *r) {
  r->lease = (crl_kept_lease){.key = r->key.stored, .key_len = r->key.stored_len,
                              .user_key = r->key.whole + r->station->prefix_len,
                              .user_key_len = r->key.whole_len - r->station->prefix_len,
                              .token = r->flight.leased ? r->token : NULL, .lease_ms = r->lease_ms,
                              .limit = crl_env_now_ms() + r->policy.compute_ms, .on_lost = on_lost, .on_limit = on_limit};
  crl_keeper_hold(r->station->keeper, &r->lease, r->claim_sent);
  int heeds = r->handed_over && r->policy.stop_alone > 0 && r->entry != NULL;
  if (heeds) crl_herd_heed(r->entry, set_inside, r);
  atomic_store(&r->inside, !r->handed_over);
  crl_run *outer = computing;
  computing = r;
  int status = r->compute(&r->fill, r->key.whole + r->station->prefix_len, r->key.whole_len - r->station->prefix_len, r->arg);
  computing = outer;
  atomic_store(&r->inside, 0);
  if (heeds) crl_herd_heed(r->entry, NULL, NULL);
  crl_keeper_drop(r->station->keeper, &r->lease);
  if (status < 0 && r->fill.filled != CRL_FILLED_FAILURE) corral_fill_fail(&r->fill, status, corral_status_text(status));
}

/* Those who share the flight must not wait for what will not be theirs. */
static void send_others_away(crl_run *r) {
  if (r->entry == NULL) return;
  if (r->flight.alone == CRL_ALONE_PASS) crl_herd_pass(r->entry);
  if (r->flight.alone == CRL_ALONE_DEADLINE) crl_herd_give_up(r->entry);
}

static crl_made finish_fill(crl_run *r, int64_t cost) {
  crl_finish finish = {.policy = &r->policy, .cost_us = cost, .wall_ms = crl_env_wall_ms(), .dice = r->flight.dice,
                       .compress_min = r->station->compress_min};
  crl_env_random(&finish.dice, sizeof finish.dice);
  crl_made wish = crl_run_stamp(r);
  crl_made made = crl_fill_finish(&r->fill, &finish, &r->product);
  return made == CRL_MADE_VALUE ? wish : made;
}

static void do_compute(crl_run *r, crl_told *told) {
  send_others_away(r);
  if (!r->flight.answered && !r->flight.alone) crl_run_lend_stale(r);
  int64_t now = crl_env_now_ms();
  r->fill.has_stale = r->flight.sie_until > now || r->flight.fresh_until > now;
  crl_run_lend_old(r);
  crl_run_emit(r, CORRAL_EVENT_COMPUTE, NULL);
  if (r->flight.early) crl_run_emit(r, CORRAL_EVENT_EARLY, NULL);
  if (r->flight.degraded) crl_run_emit(r, CORRAL_EVENT_DEGRADED, NULL);
  int64_t before = crl_env_now_us();
  r->began = crl_env_now_ms();
  run_compute(r);
  int64_t cost = crl_env_now_us() - before;
  if (r->fill.filled != CRL_FILLED_FAILURE) crl_run_note_cost(r, cost);
  told->made = finish_fill(r, cost);
  if (told->made == CRL_MADE_FAILURE) crl_run_emit(r, CORRAL_EVENT_FAILURE, r->fill.text);
  if (r->fill.pass) crl_run_emit(r, CORRAL_EVENT_PASS, NULL);
  if (told->made == CRL_MADE_OLDER) crl_run_emit(r, CORRAL_EVENT_OLDER, NULL);
  if (told->made == CRL_MADE_VALUE && r->flight.degraded) crl_run_hold(r);
}

/* ---- rungs ----------------------------------------------------------------------------------------------- */

static void take_slot(crl_run *r, crl_told *told) {
  int waited = 0;
  crl_worker_wait_begin();
  told->status = crl_origin_enter(r->station->origin, (crl_rank)r->flight.rank, r->flight.until, r->ticket, &r->slot, &waited);
  crl_worker_wait_end();
  r->has_slot = told->status == CORRAL_OK;
  if (waited) crl_run_emit(r, CORRAL_EVENT_LIMITED, NULL);
}

static void take_host(crl_run *r, crl_told *told) {
  int hold = -1;
  told->status = crl_hostlock_take(r->station->hostlock, r->key.whole, r->key.whole_len, &hold, &r->error);
  if (told->status == CORRAL_OK) atomic_store(&r->hold, hold);
  else if (told->status != CORRAL_EBUSY) crl_run_emit(r, CORRAL_EVENT_HOST_ERROR, r->error.text);
}

/* What the flight doesn't need any more. */
static void let_go(crl_run *r) {
  if (r->has_slot && !r->flight.has_slot) {
    crl_origin_leave(r->station->origin, &r->slot);
    r->has_slot = 0;
  }
  if (!r->flight.on_host) give_host(r);
}

/* Before its first wait a run joins the watch; the look that follows at once is then watched. 0: there is nothing to join, or not yet. */
static int join_watch(crl_run *r) {
  if (r->watches || r->station->watch == NULL) return 0;
  int up = crl_watch_up(r->station->watch);
  crl_watch_join(r->station->watch, &r->watcher, r->hash, &r->nap);
  r->watches = 1;
  return up;
}

static void wait_until(crl_run *r) {
  if (r->flight.looks == 1) crl_run_emit(r, r->flight.at_host ? CORRAL_EVENT_HOST_WAIT : CORRAL_EVENT_WAIT, NULL);
  if (r->flight.at_host) {
    crl_hostlock_wait(r->station->hostlock, r->key.whole, r->key.whole_len, r->flight.until, r->ticket);
    return;
  }
  make_nap(r);
  if (!join_watch(r) && !crl_ticket_cancelled(r->ticket)) crl_nap_until(&r->nap, r->flight.until);
}

/* ---- the loop -------------------------------------------------------------------------------------------- */

static void do_ask(crl_run *r, crl_told *told, crl_look *last) {
  switch (r->ask) {
    case CRL_ASK_GET: crl_run_get(r, told); break;
    case CRL_ASK_CLAIM: crl_run_claim(r, told); break;
    case CRL_ASK_WAIT: wait_until(r); break;
    case CRL_ASK_COMPUTE: do_compute(r, told); break;
    case CRL_ASK_SETTLE: crl_run_settle(r, told); break;
    case CRL_ASK_RELEASE: crl_run_release(r, told); break;
    case CRL_ASK_ANSWER: crl_run_answer(r, last); break;
    case CRL_ASK_SLOT: take_slot(r, told); break;
    case CRL_ASK_HOST: take_host(r, told); break;
    case CRL_ASK_HELD: crl_run_held(r, told); break;
    case CRL_ASK_DONE: break;
  }
  if (r->ask == CRL_ASK_GET || r->ask == CRL_ASK_CLAIM) *last = told->look;
}

/* A bound compute runs on the workers, and so does the whole way to it behind a stale answer. */
static int wants_worker(const crl_run *r) {
  int climbs = r->ask == CRL_ASK_CLAIM || r->ask == CRL_ASK_SLOT || r->ask == CRL_ASK_HOST;
  return r->bound && !r->handed_over && r->flight.alone != CRL_ALONE_DEADLINE && (r->ask == CRL_ASK_COMPUTE || (climbs && r->flight.answered)) && !crl_worker_here();
}

/* Flies until the end, or until the workers should go on; tells which. */
static int fly(crl_run *r) {
  crl_look last;
  memset(&last, 0, sizeof last);
  while (r->ask != CRL_ASK_DONE) {
    if (wants_worker(r)) return 0;
    crl_told told;
    memset(&told, 0, sizeof told);
    do_ask(r, &told, &last);
    told.now = crl_env_now_ms();
    told.left = (uint8_t)crl_ticket_cancelled(r->ticket);
    int computed = r->ask == CRL_ASK_COMPUTE;
    r->ask = crl_flight_step(&r->flight, &told);
    if (computed && told.made == CRL_MADE_FAILURE && r->flight.degraded) crl_run_hold_verdict(r);
    let_go(r);
  }
  crl_run_conclude(r);
  return 1;
}

static void job_run(crl_job *job) {
  crl_run *r = (crl_run *)(void *)((char *)job - offsetof(crl_run, job));
  fly(r);
  run_free(r);
}

static void job_drop(crl_job *job) {
  crl_run *r = (crl_run *)(void *)((char *)job - offsetof(crl_run, job));
  crl_told unused;
  if (r->flight.leased) {
    r->flight.retry_ms = 0;
    crl_run_release(r, &unused);
  }
  r->flight.has_slot = r->flight.on_host = 0;
  let_go(r);
  crl_herd_give_up(r->entry);
  run_free(r);
}

/* ---- one call -------------------------------------------------------------------------------------------- */

static int finish(const crl_call *call, crl_outcome *outcome, corral_value **ret) {
  int status = outcome->status;
  if (status == CORRAL_OK) {
    corral_value *value = crl_value_new(outcome->bytes, outcome->offset, outcome->size, outcome->how, outcome->age_ms, outcome->kept, outcome->version);
    if (value == NULL) status = crl_status_plain(call->policy.error, CORRAL_ENOMEM);
    else *ret = value;
  } else if (call->policy.error != NULL) {
    *call->policy.error = outcome->error;
  }
  crl_bytes_unref(outcome->bytes);
  return status;
}

static crl_outcome plain_outcome(int status) {
  crl_outcome outcome = {.status = status};
  crl_status_plain(&outcome.error, status);
  return outcome;
}

/* What a caller does next. */
typedef enum turn {
  ENTER,      /* anew */
  ENDED,      /* it has an outcome */
  ALONE,      /* compute for itself */
  ALONE_HERE  /* and on its own thread */
} turn;

/* Waits on an entry for somebody else's flight, or for the workers'. */
static turn await(crl_station *station, const crl_call *call, crl_entry *entry, int64_t deadline, int own, crl_outcome *outcome) {
  crl_patience patience = patience_of(call, deadline);
  patience.owns = own;
  crl_worker_wait_begin();
  crl_wait came = crl_herd_wait(entry, &patience, outcome);
  crl_worker_wait_end();
  switch (came) {
    case CRL_WAIT_LANDED:
      if (outcome->how == CORRAL_COMPUTED && !own) outcome->how = CORRAL_JOINED;
      return ENDED;
    case CRL_WAIT_PASS: return ALONE;
    case CRL_WAIT_LEFT: *outcome = plain_outcome(CORRAL_ECANCELLED); return ENDED;
    case CRL_WAIT_GIVEN_UP:
      if (crl_env_now_ms() < deadline) return ENTER;
      break;
    case CRL_WAIT_DEADLINE: break;
  }
  if (call->policy.at_deadline == CORRAL_DEADLINE_COMPUTE) return ALONE_HERE;
  crl_event_emit(&station->events, CORRAL_EVENT_DEADLINE, call->key, call->key_len, NULL);
  *outcome = plain_outcome(CORRAL_EDEADLINE);
  return ENDED;
}

static void take_answer(const crl_run *r, crl_outcome *outcome) {
  *outcome = r->answer;
  if (outcome->bytes != NULL) crl_bytes_ref(outcome->bytes);
}

/* Flies the run; where the workers are to go on with it, hands it over. */
static turn take_off(crl_run *r, const crl_call *call, crl_entry *entry, int64_t deadline, crl_outcome *outcome) {
  int ended = fly(r), answered = r->flight.answered;
  crl_station *station = r->station;
  if (ended || answered) take_answer(r, outcome);
  if (!ended) {
    forget_caller(r);
    r->handed_over = 1;
    r->job = (crl_job){.run = job_run, .drop = job_drop};
    if (crl_workers_submit(station->workers, &r->job) == 0) return answered ? ENDED : await(station, call, entry, deadline, 1, outcome);
    fly(r);
    if (!answered) take_answer(r, outcome);
  }
  run_free(r);
  return ENDED;
}

/* Leads the flight of `entry` (NULL: nobody can join). */
static turn lead(crl_station *station, const crl_call *call, crl_entry *entry, int64_t deadline, turn how, crl_outcome *outcome) {
  crl_run *r = run_new(station, call, deadline, how == ALONE ? CRL_ALONE_PASS : how == ALONE_HERE ? CRL_ALONE_DEADLINE : CRL_ALONE_NOT);
  if (r == NULL) {
    if (entry != NULL) crl_herd_give_up(entry);
    *outcome = plain_outcome(CORRAL_ENOMEM);
    return ENDED;
  }
  if (entry != NULL) r->entry = crl_entry_ref(entry);
  meet_caller(r, call->policy.ticket);
  return take_off(r, call, entry, deadline, outcome);
}

/* True when that key is computed for the very compute that asks: waiting for it would be waiting for itself. */
static int recurses(const crl_station *station, const crl_call *call) {
  if (computing == NULL) return 0;
  uint64_t self = self_of(station, call->key, call->key_len);
  int found = computing->self == self;
  for (size_t i = 0; i < computing->depth; i++) found |= computing->ancestors[i] == self;
  return found;
}

/* One turn of a call; what the next one is. */
static turn take_turn(crl_station *station, const crl_call *call, int64_t deadline, turn how, crl_outcome *outcome) {
  int leads = 1;
  crl_entry *entry = NULL;
  memset(outcome, 0, sizeof *outcome);
  if (call->compute != NULL) {
    entry = how == ENTER ? crl_herd_enter(station->herd, call->key, call->key_len, &leads) : crl_herd_private(station->herd, call->key, call->key_len);
    if (entry == NULL) {
      *outcome = plain_outcome(CORRAL_ENOMEM);
      return ENDED;
    }
  }
  if (!leads) crl_event_emit(&station->events, CORRAL_EVENT_JOIN, call->key, call->key_len, NULL);
  turn next = leads ? lead(station, call, entry, deadline, how, outcome) : await(station, call, entry, deadline, 0, outcome);
  if (entry != NULL) crl_entry_unref(entry);
  return next;
}

int crl_drive_call(crl_station *station, const crl_call *asked, corral_value **ret) {
  crl_call call = *asked;
  crl_outcome outcome;
  turn next = ENTER;
  if (recurses(station, &call)) return crl_status_plain(call.policy.error, CORRAL_ERECURSION);
  if (crl_run_near(station, &call, &call.early, &outcome)) {
    crl_event_emit(&station->events, CORRAL_EVENT_NEAR, call.key, call.key_len, NULL);
    return finish(&call, &outcome, ret);
  }
  int64_t deadline = crl_env_now_ms() + call.policy.wait_ms;
  while (next != ENDED) next = take_turn(station, &call, deadline, next, &outcome);
  return finish(&call, &outcome, ret);
}
