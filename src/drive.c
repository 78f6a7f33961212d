/* drive.c: performs what a flight asks for. The only caller of plugins and of compute. Decides nothing. */
#include "drive.h"

#include <stdio.h>
#include <stdlib.h>

#include "env.h"
#include "fill.h"
#include "flight.h"
#include "record.h"
#include "registry.h"
#include "status.h"

/* A flight under way with all that it needs; its caller's, or, once handed over, the workers'. */
typedef struct run {
  crl_job job;
  crl_kept_lease lease;
  crl_station *station;
  crl_entry *entry; /* NULL: nobody can join */
  crl_flight flight;
  corral_policy policy;
  corral_compute *compute;
  void *arg;
  int bound, handed_over;
  crl_key key;
  crl_ask ask;
  uint8_t token[CORRAL_TOKEN];
  int has_token;
  int64_t claim_sent;
  crl_bytes *found; /* the record of the last look that had one */
  crl_envelope envelope;
  corral_header header;
  int64_t age_ms;
  corral_fill fill;
  int64_t hard_ttl;
  crl_bytes *made;
  corral_error error; /* of the store's last failed operation, or of the compute */
  crl_outcome answer;
  struct run *outer; /* the run whose compute this thread is in, below this one */
} run;

/* The runs whose computes this thread is inside of, the innermost first. */
static _Thread_local run *computing;

/* ---- keys ------------------------------------------------------------------------------------------------ */

int crl_key_make(crl_key *key, const crl_station *station, const void *user_key, size_t user_key_len) {
  static const char digits[] = "0123456789abcdef";
  uint8_t hash[16];
  key->whole_len = station->prefix_len + user_key_len;
  key->whole = crl_alloc(key->whole_len);
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
  free(key->whole);
  key->whole = NULL;
}

/* ---- a run's life ---------------------------------------------------------------------------------------- */

static void emit(run *r, corral_event event, const char *detail) {
  size_t prefix = r->station->prefix_len;
  crl_event_emit(&r->station->events, event, r->key.whole + prefix, r->key.whole_len - prefix, detail);
}

static void run_free(run *r) {
  crl_bytes_unref(r->found);
  crl_bytes_unref(r->made);
  crl_bytes_unref(r->answer.bytes);
  crl_fill_clean(&r->fill);
  if (r->entry != NULL) crl_entry_unref(r->entry);
  crl_key_clean(&r->key);
  free(r);
}

static run *run_new(crl_station *station, const crl_call *call, int64_t deadline) {
  crl_flight_plan plan = {.deadline = deadline, .can_compute = call->compute != NULL, .background = call->bound != 0};
  run *r = crl_alloc(sizeof *r);
  if (r == NULL) return NULL;
  if (crl_key_make(&r->key, station, call->key, call->key_len) != CORRAL_OK) {
    run_free(r);
    return NULL;
  }
  r->station = station;
  r->policy = call->policy;
  int64_t advised = crl_pool_info(station->pool)->poll_max_ms;
  if (advised > 0 && advised < r->policy.poll_max_ms) r->policy.poll_max_ms = advised;
  r->compute = call->compute;
  r->arg = call->arg;
  r->bound = call->bound;
  r->fill.key = r->key.whole;
  r->fill.key_len = r->key.whole_len;
  r->fill.max_value = station->max_value;
  plan.dice = atomic_fetch_add_explicit(&station->dice, UINT64_C(0xd1342543de82ef95), memory_order_relaxed);
  r->ask = crl_flight_start(&r->flight, &r->policy, &plan);
  return r;
}

/* ---- the store ------------------------------------------------------------------------------------------- */

static corral_op new_op(run *r, corral_verb verb) {
  r->error.text[0] = '\0';
  return (corral_op){.verb = verb, .key = r->key.stored, .key_len = r->key.stored_len, .token = r->token,
                     .error = &r->error};
}

/* Operations that end a flight still get their time when the call's own is over. */
static void perform(run *r, corral_op *op, int ends_flight) {
  int64_t deadline = r->flight.plan.deadline;
  if (ends_flight || r->flight.answered || r->flight.last_look) deadline = crl_env_now_ms() + r->station->op_ms;
  crl_pool_perform(r->station->pool, op, 1, deadline);
  if (op->status < 0 && op->status != CORRAL_EMISS && op->status != CORRAL_EBUSY && op->status != CORRAL_ELOST)
    emit(r, op->status == CORRAL_EFOREIGN ? CORRAL_EVENT_FOREIGN : CORRAL_EVENT_STORE_ERROR,
         r->error.text[0] == '\0' ? corral_status_text(op->status) : r->error.text);
}

/* Keeps what a look found, unless it is the header alone of a payload that is at hand. */
static int keep_found(run *r, corral_op *op) {
  if (op->found == NULL) {
    crl_bytes_unref(r->found);
    r->found = NULL;
    return CORRAL_EMISS;
  }
  int status = crl_record_read(op->found, op->found_len, &r->header);
  if (status != CORRAL_OK || op->same) {
    if (op->found_free != NULL) op->found_free(op->found_owner);
    return status;
  }
  crl_bytes *bytes = crl_bytes_wrap(op->found, op->found_len, op->found_free, op->found_owner);
  if (bytes == NULL) {
    if (op->found_free != NULL) op->found_free(op->found_owner);
    return CORRAL_ENOMEM;
  }
  crl_bytes_unref(r->found);
  r->found = bytes;
  return CORRAL_OK;
}

static int is_ours(const run *r) { return r->has_token && memcmp(r->header.token, r->token, CORRAL_TOKEN) == 0; }

/* What the flight is told of a look. */
static int judge(run *r, corral_op *op, crl_look *look) {
  memset(look, 0, sizeof *look);
  memset(&r->header, 0, sizeof r->header);
  int status = keep_found(r, op);
  if (status == CORRAL_EMISS) return CORRAL_OK;
  if (status != CORRAL_OK) return status;
  int64_t until = op->until_ms < 0 ? r->policy.lease_ms : op->until_ms;
  if (r->header.state == CORRAL_LEASED && !is_ours(r)) look->lease_left = until;
  if (r->header.state == CORRAL_VERDICT) look->retry_left = until;
  look->failures = r->header.failures;
  if (r->found == NULL || op->life_ms == 0) return CORRAL_OK;
  status = crl_envelope_read(r->found->data, r->found->size, r->key.whole, r->key.whole_len, &r->envelope);
  if (status == CORRAL_OK) {
    look->lives = crl_policy_judge(&r->envelope, r->header.flags & CORRAL_FLAG_EXPIRED, op->life_ms, crl_env_wall_ms());
    r->age_ms = look->lives.age;
  } else if (status == CORRAL_ECORRUPT) {
    emit(r, CORRAL_EVENT_CORRUPT, NULL);
  }
  return status == CORRAL_EFOREIGN ? status : CORRAL_OK;
}

static void do_get(run *r, crl_told *told) {
  if (r->flight.looks > 0) emit(r, CORRAL_EVENT_POLL, NULL);
  corral_op op = new_op(r, CORRAL_VERB_GET);
  perform(r, &op, 0);
  told->status = op.status;
  if (op.status != CORRAL_OK && op.status != CORRAL_EMISS) return;
  int status = judge(r, &op, &told->look);
  if (status != CORRAL_OK) told->status = status;
  if (r->flight.looks == 0 && told->look.lives.fresh == 0 && told->look.lives.swr == 0) emit(r, CORRAL_EVENT_MISS, NULL);
}

static void do_claim(run *r, crl_told *told) {
  corral_header wish;
  uint8_t header[CORRAL_HEADER];
  memset(&wish, 0, sizeof wish);
  if (crl_env_random(r->token, sizeof r->token) != CORRAL_OK) {
    told->status = CORRAL_EIO;
    return;
  }
  r->has_token = 1;
  crl_env_holder(wish.note, sizeof wish.note);
  if (r->found != NULL) wish.cost_ms = (uint32_t)(r->envelope.cost_us / 1000);
  crl_record_write(&wish, header);
  corral_op op = new_op(r, CORRAL_VERB_CLAIM);
  op.lease_ms = r->policy.lease_ms;
  op.record = header;
  op.record_len = sizeof header;
  op.seen = r->found == NULL ? 0 : crl_record_stamp(r->found->data, r->found->size);
  r->claim_sent = crl_env_now_ms();
  perform(r, &op, 0);
  told->status = op.status;
  if (op.status != CORRAL_OK && op.status != CORRAL_EBUSY) return;
  int status = judge(r, &op, &told->look);
  if (op.status == CORRAL_OK) emit(r, CORRAL_EVENT_CLAIM, NULL);
  else if (status != CORRAL_OK) told->status = status;
}

static void do_settle(run *r, crl_told *told) {
  corral_op op = new_op(r, CORRAL_VERB_SETTLE);
  op.record = r->made->data;
  op.record_len = r->made->size;
  op.ttl_ms = r->hard_ttl;
  perform(r, &op, 1);
  told->status = op.status;
  switch (op.status) {
    case CORRAL_OK: emit(r, r->handed_over && r->flight.answered ? CORRAL_EVENT_REFRESH : CORRAL_EVENT_FILL, NULL); break;
    case CORRAL_ELOST: emit(r, CORRAL_EVENT_FENCED, NULL); break;
    default: emit(r, CORRAL_EVENT_UNSTORED, r->error.text); break;
  }
}

/* A verdict's key outlives its rule, so that the next failure knows how many came before. */
static corral_op release_op(run *r, uint8_t header[CORRAL_HEADER], int64_t retry_ms, const char *text, int32_t code) {
  corral_op op = new_op(r, CORRAL_VERB_RELEASE);
  corral_header verdict;
  if (retry_ms <= 0) return op;
  memset(&verdict, 0, sizeof verdict);
  verdict.code = code;
  verdict.failures = r->flight.failures;
  snprintf(verdict.note, sizeof verdict.note, "%.63s", text);
  crl_record_write(&verdict, header);
  op.record = header;
  op.record_len = CORRAL_HEADER;
  op.lease_ms = retry_ms;
  op.ttl_ms = 3 * retry_ms + r->policy.lease_ms;
  return op;
}

static void do_release(run *r, crl_told *told) {
  uint8_t header[CORRAL_HEADER];
  corral_op op = release_op(r, header, r->flight.retry_ms, r->fill.text, r->fill.code);
  perform(r, &op, 1);
  told->status = op.status;
}

/* ---- compute --------------------------------------------------------------------------------------------- */

static run *run_of(crl_kept_lease *lease) { return (run *)(void *)((char *)lease - offsetof(run, lease)); }

static void on_lost(crl_kept_lease *lease) {
  run *r = run_of(lease);
  atomic_store(&r->fill.stop, 1);
  if (r->entry != NULL) crl_herd_detach(r->entry);
  emit(r, CORRAL_EVENT_LEASE_LOST, NULL);
}

/* The flight is abandoned: its lease becomes a verdict, those who waited for it look for themselves. */
static void on_limit(crl_kept_lease *lease) {
  run *r = run_of(lease);
  corral_error unused;
  uint8_t header[CORRAL_HEADER];
  atomic_store(&r->fill.stop, 1);
  if (lease->token != NULL) {
    r->flight.failures++;
    corral_op op = release_op(r, header, crl_policy_retry(&r->policy, r->flight.failures, r->flight.dice),
                              "computing took longer than compute_ms", CORRAL_EABANDONED);
    op.error = &unused;
    crl_pool_perform(r->station->pool, &op, 1, crl_env_now_ms() + r->station->op_ms);
    lease->token = NULL;
  }
  if (r->entry != NULL) crl_herd_give_up(r->entry);
  emit(r, CORRAL_EVENT_ABANDONED, NULL);
}

static void run_compute(run *r) {
  r->lease = (crl_kept_lease){.key = r->key.stored, .key_len = r->key.stored_len,
                              .user_key = r->key.whole + r->station->prefix_len,
                              .user_key_len = r->key.whole_len - r->station->prefix_len,
                              .token = r->flight.leased ? r->token : NULL, .lease_ms = r->policy.lease_ms,
                              .limit = crl_env_now_ms() + r->policy.compute_ms, .on_lost = on_lost, .on_limit = on_limit};
  crl_keeper_hold(r->station->keeper, &r->lease, r->claim_sent);
  r->outer = computing;
  computing = r;
  int status = r->compute(&r->fill, r->key.whole + r->station->prefix_len, r->key.whole_len - r->station->prefix_len, r->arg);
  computing = r->outer;
  crl_keeper_drop(r->station->keeper, &r->lease);
  if (status < 0 && r->fill.filled != CRL_FILLED_FAILURE) corral_fill_fail(&r->fill, status, corral_status_text(status));
}

/* An own outcome of the stale record, for those who come while compute runs. */
static void lend_stale(run *r);

static void do_compute(run *r, crl_told *told) {
  if (!r->flight.answered) lend_stale(r);
  r->fill.has_stale = r->flight.sie_until > crl_env_now_ms();
  emit(r, CORRAL_EVENT_COMPUTE, NULL);
  if (r->flight.degraded) emit(r, CORRAL_EVENT_DEGRADED, NULL);
  int64_t before = crl_env_now_us();
  run_compute(r);
  int64_t cost = crl_env_now_us() - before;
  uint64_t dice = r->flight.dice;
  crl_env_random(&dice, sizeof dice);
  told->made = crl_fill_finish(&r->fill, &r->policy, cost, crl_env_wall_ms(), dice, &r->hard_ttl);
  if (told->made != CRL_MADE_FAILURE && (r->made = crl_fill_take(&r->fill)) == NULL) {
    corral_fill_fail(&r->fill, CORRAL_ENOMEM, "out of memory");
    told->made = CRL_MADE_FAILURE;
  }
  if (told->made == CRL_MADE_FAILURE) emit(r, CORRAL_EVENT_FAILURE, r->fill.text);
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static crl_outcome stored_outcome(const run *r, corral_how how) {
  crl_outcome outcome = {.status = CORRAL_OK, .how = how, .age_ms = r->age_ms};
  if (how != CORRAL_STALE && r->envelope.kind == CRL_KIND_NEGATIVE) {
    outcome.status = crl_status_plain(&outcome.error, CORRAL_ENOTFOUND);
    return outcome;
  }
  outcome.bytes = crl_bytes_ref(r->found);
  outcome.offset = r->envelope.payload_at;
  outcome.size = r->envelope.payload_len;
  return outcome;
}

static crl_outcome failed_outcome(int32_t code, const char *text, size_t text_size, int64_t retry_ms) {
  crl_outcome outcome = {.status = CORRAL_EFAILED};
  crl_status_fail(&outcome.error, CORRAL_EFAILED, "%.*s", (int)text_size, text);
  outcome.error.code = code;
  outcome.error.retry_after_ms = retry_ms;
  return outcome;
}

static crl_outcome computed_outcome(const run *r) {
  crl_outcome outcome = {.status = CORRAL_OK, .how = CORRAL_COMPUTED, .kept = (corral_kept)r->flight.kept};
  if (r->fill.filled == CRL_FILLED_NEGATIVE) {
    outcome.status = crl_status_plain(&outcome.error, CORRAL_ENOTFOUND);
    return outcome;
  }
  outcome.bytes = crl_bytes_ref(r->made);
  outcome.offset = crl_envelope_payload_at(r->key.whole_len);
  outcome.size = r->made->size - outcome.offset;
  return outcome;
}

static crl_outcome error_outcome(const run *r) {
  crl_outcome outcome = {.status = r->flight.status};
  if (r->error.text[0] != '\0' && r->flight.status != CORRAL_EDEADLINE && r->flight.status != CORRAL_EMISS)
    crl_status_fail(&outcome.error, outcome.status, "%s", r->error.text);
  else crl_status_plain(&outcome.error, outcome.status);
  return outcome;
}

static crl_outcome build_outcome(const run *r, int64_t retry_left) {
  switch ((crl_answer)r->flight.answer) {
    case CRL_ANSWER_STORED: return stored_outcome(r, r->flight.looks > 0 ? CORRAL_JOINED : CORRAL_FRESH);
    case CRL_ANSWER_STALE: return stored_outcome(r, CORRAL_STALE);
    case CRL_ANSWER_VERDICT: return failed_outcome(r->header.code, r->header.note, CORRAL_NOTE, retry_left);
    case CRL_ANSWER_COMPUTED: return computed_outcome(r);
    case CRL_ANSWER_FAILED: return failed_outcome(r->fill.code, r->fill.text, sizeof r->fill.text, r->flight.retry_ms);
    case CRL_ANSWER_ERROR: break;
  }
  return error_outcome(r);
}

static void count_answer(run *r) {
  switch ((crl_answer)r->flight.answer) {
    case CRL_ANSWER_STORED:
      if (r->answer.status == CORRAL_ENOTFOUND) emit(r, CORRAL_EVENT_NEGATIVE, NULL);
      else if (r->flight.looks == 0) emit(r, CORRAL_EVENT_HIT, NULL);
      break;
    case CRL_ANSWER_STALE: emit(r, CORRAL_EVENT_STALE, NULL); break;
    case CRL_ANSWER_VERDICT: emit(r, CORRAL_EVENT_VERDICT, r->answer.error.text); break;
    case CRL_ANSWER_ERROR:
      if (r->flight.status == CORRAL_EDEADLINE) emit(r, CORRAL_EVENT_DEADLINE, NULL);
      break;
    default: break;
  }
}

static void lend_stale(run *r) {
  if (r->entry == NULL || r->found == NULL || r->flight.sie_until <= crl_env_now_ms()) return;
  crl_outcome stale = stored_outcome(r, CORRAL_STALE);
  crl_herd_interim(r->entry, &stale, 0, r->flight.sie_until);
  crl_bytes_unref(stale.bytes);
}

/* An error is its caller's own: the others' deadlines are later, or they can do what this one could not. */
static void publish(run *r) {
  if (r->entry == NULL) return;
  if (r->flight.answer == CRL_ANSWER_ERROR) crl_herd_give_up(r->entry);
  else if (r->flight.answer == CRL_ANSWER_STALE && (r->flight.leased || r->flight.refresh))
    crl_herd_interim(r->entry, &r->answer, r->flight.swr_until, r->flight.sie_until);
  else crl_herd_land(r->entry, &r->answer);
}

static void do_answer(run *r, const crl_look *last) {
  r->answer = build_outcome(r, last->retry_left);
  count_answer(r);
  publish(r);
}

/* After a stale answer the flight went on: what it computed is for the owner that is still there, and for late joiners. */
static void conclude(run *r) {
  if (r->flight.answer == CRL_ANSWER_STALE && r->flight.made != 0 && r->flight.made != CRL_MADE_FAILURE) {
    crl_bytes_unref(r->answer.bytes);
    r->answer = computed_outcome(r);
    if (r->entry != NULL) crl_herd_land(r->entry, &r->answer);
  }
  if (r->entry != NULL) crl_herd_give_up(r->entry);
}

/* ---- the loop -------------------------------------------------------------------------------------------- */

static void do_ask(run *r, crl_told *told, crl_look *last) {
  switch (r->ask) {
    case CRL_ASK_GET: do_get(r, told); break;
    case CRL_ASK_CLAIM: do_claim(r, told); break;
    case CRL_ASK_WAIT:
      if (r->flight.looks == 1) emit(r, CORRAL_EVENT_WAIT, NULL);
      crl_env_sleep_until(r->flight.until);
      break;
    case CRL_ASK_COMPUTE: do_compute(r, told); break;
    case CRL_ASK_SETTLE: do_settle(r, told); break;
    case CRL_ASK_RELEASE: do_release(r, told); break;
    case CRL_ASK_ANSWER: do_answer(r, last); break;
    case CRL_ASK_DONE: break;
  }
  if (r->ask == CRL_ASK_GET || r->ask == CRL_ASK_CLAIM) *last = told->look;
}

/* A bound compute runs on the workers, and so does all that comes after a stale answer. */
static int wants_worker(const run *r) {
  return r->bound && !r->handed_over && (r->ask == CRL_ASK_COMPUTE || (r->ask == CRL_ASK_CLAIM && r->flight.answered)) &&
         !crl_worker_here();
}

/* Flies until the end, or until the workers should go on; tells which. */
static int fly(run *r) {
  crl_look last;
  memset(&last, 0, sizeof last);
  while (r->ask != CRL_ASK_DONE) {
    if (wants_worker(r)) return 0;
    crl_told told;
    memset(&told, 0, sizeof told);
    do_ask(r, &told, &last);
    told.now = crl_env_now_ms();
    r->ask = crl_flight_step(&r->flight, &told);
  }
  conclude(r);
  return 1;
}

static void job_run(crl_job *job) {
  run *r = (run *)(void *)((char *)job - offsetof(run, job));
  fly(r);
  run_free(r);
}

static void job_drop(crl_job *job) {
  run *r = (run *)(void *)((char *)job - offsetof(run, job));
  crl_told unused;
  if (r->flight.leased) {
    r->flight.retry_ms = 0;
    do_release(r, &unused);
  }
  crl_herd_give_up(r->entry);
  run_free(r);
}

/* ---- one call -------------------------------------------------------------------------------------------- */

static int finish(const crl_call *call, crl_outcome *outcome, corral_value **ret) {
  int status = outcome->status;
  if (status == CORRAL_OK) {
    corral_value *value = crl_value_new(outcome->bytes, outcome->offset, outcome->size, outcome->how, outcome->age_ms, outcome->kept);
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

/* Waits on an entry for somebody else's flight, or for the workers'. Returns 0 when the caller must enter anew. */
static int await(crl_station *station, const crl_call *call, crl_entry *entry, int64_t deadline, int own, crl_outcome *outcome) {
  crl_worker_wait_begin();
  crl_wait came = crl_herd_wait(entry, deadline, outcome);
  crl_worker_wait_end();
  switch (came) {
    case CRL_WAIT_LANDED:
      if (outcome->how == CORRAL_COMPUTED && !own) outcome->how = CORRAL_JOINED;
      break;
    case CRL_WAIT_GIVEN_UP:
      if (crl_env_now_ms() < deadline) return 0;
      /* fall through */
    case CRL_WAIT_DEADLINE:
      crl_event_emit(&station->events, CORRAL_EVENT_DEADLINE, call->key, call->key_len, NULL);
      *outcome = plain_outcome(CORRAL_EDEADLINE);
      break;
  }
  return 1;
}

/* Leads the flight of `entry` (NULL: nobody can join). Returns 0 when the caller must enter anew. */
static int lead(crl_station *station, const crl_call *call, crl_entry *entry, int64_t deadline, crl_outcome *outcome) {
  run *r = run_new(station, call, deadline);
  if (r == NULL) {
    if (entry != NULL) crl_herd_give_up(entry);
    *outcome = plain_outcome(CORRAL_ENOMEM);
    return 1;
  }
  if (entry != NULL) r->entry = crl_entry_ref(entry);
  int ended = fly(r), answered = r->flight.answered;
  if (ended || answered) {
    *outcome = r->answer;
    if (outcome->bytes != NULL) crl_bytes_ref(outcome->bytes);
  }
  if (!ended) {
    r->handed_over = 1;
    r->job = (crl_job){.run = job_run, .drop = job_drop};
    if (crl_workers_submit(station->workers, &r->job) == 0) return answered ? 1 : await(station, call, entry, deadline, 1, outcome);
    fly(r);
    if (!answered) {
      *outcome = r->answer;
      if (outcome->bytes != NULL) crl_bytes_ref(outcome->bytes);
    }
  }
  run_free(r);
  return 1;
}

/* True when this thread is inside a compute of that key: waiting for it would be waiting for itself. */
static int recurses(const crl_station *station, const crl_call *call) {
  for (const run *r = computing; r != NULL; r = r->outer)
    if (r->station == station && r->key.whole_len - station->prefix_len == call->key_len &&
        memcmp(r->key.whole + station->prefix_len, call->key, call->key_len) == 0)
      return 1;
  return 0;
}

int crl_drive_call(crl_station *station, const crl_call *call, corral_value **ret) {
  int64_t deadline = crl_env_now_ms() + call->policy.wait_ms;
  crl_outcome outcome;
  if (recurses(station, call)) return crl_status_plain(call->policy.error, CORRAL_ERECURSION);
  for (int done = 0; !done;) {
    int leads = 1;
    crl_entry *entry = NULL;
    memset(&outcome, 0, sizeof outcome);
    if (call->compute != NULL) {
      entry = crl_herd_enter(station->herd, call->key, call->key_len, &leads);
      if (entry == NULL) return crl_status_plain(call->policy.error, CORRAL_ENOMEM);
    }
    if (leads) {
      done = lead(station, call, entry, deadline, &outcome);
    } else {
      crl_event_emit(&station->events, CORRAL_EVENT_JOIN, call->key, call->key_len, NULL);
      done = await(station, call, entry, deadline, 0, &outcome);
    }
    if (entry != NULL) crl_entry_unref(entry);
  }
  return finish(call, &outcome, ret);
}
