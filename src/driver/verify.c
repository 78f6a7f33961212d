/* verify.c: computes a share of the hits anew, behind their answers, and compares. */
#include "driver/verify.h"

#include <stdlib.h>

#include "driver/advance.h"
#include "os/env.h"
#include "os/task.h"

enum {
  WHOLE_PPM = 1000000,
  SLACK_MS = 2 /* two looks may judge the same age differently by this much */
};

typedef enum state { IDLE, BUSY, CLOSED } state;

struct crl_verifier {
  crl_context *context;
  corral_verify_fn *on_verify; /* NULL: the bytes are compared */
  void *arg;
  int64_t pause_ms; /* from one verification to the next */
  _Atomic int state;
  _Atomic int64_t next_at; /* crl_env_now_ms */
  uint32_t failures;       /* of computes, in a row; the verification's that is under way */
  int is_awaited;          /* one was under way when it was closed, and wakes `ended` */
  crl_waiter ended;
};

/* The record that a look found. */
typedef struct sight {
  crl_look look;
  int64_t age, created_ms;
  uint64_t version, cost_us;
} sight;

typedef struct verification {
  crl_job job;
  crl_verifier *verifier;
  corral_value *served;
  crl_call call;
  corral_policy policy; /* of `call` */
  crl_name name;
  crl_run *run;    /* NULL: nothing was computed yet */
  uint8_t bytes[]; /* of the name */
} verification;

/* ---- the verifier -------------------------------------------------------------------------- */

crl_verifier *crl_verifier_new(crl_context *context, const corral_options *options) {
  crl_verifier *verifier = crl_alloc(sizeof *verifier);
  if (verifier == NULL) return NULL;
  verifier->context = context;
  verifier->on_verify = options->on_verify;
  verifier->arg = options->verify_arg;
  verifier->pause_ms = 1000 / options->verify_max;
  return verifier;
}

void crl_verifier_close(crl_verifier *verifier) {
  verifier->is_awaited = atomic_exchange(&verifier->state, CLOSED) == BUSY;
}

void crl_verifier_free(crl_verifier *verifier) {
  if (verifier->is_awaited) crl_waiter_sleep(&verifier->ended, INT64_MAX);
  free(verifier);
}

static int take_turn(crl_verifier *verifier, int64_t now) {
  int is_idle = IDLE;
  if (now < atomic_load(&verifier->next_at) ||
      !atomic_compare_exchange_strong(&verifier->state, &is_idle, BUSY))
    return 0;
  atomic_store(&verifier->next_at, now + verifier->pause_ms);
  return 1;
}

static void end_turn(crl_verifier *verifier) {
  int is_busy = BUSY;
  if (!atomic_compare_exchange_strong(&verifier->state, &is_busy, IDLE))
    crl_waiter_wake(&verifier->ended);
}

static void end(verification **ended) {
  verification *it = *ended;
  crl_verifier *verifier = it->verifier;
  if (it->run != NULL) crl_run_free(it->run);
  corral_value_unref(it->served);
  free(it);
  end_turn(verifier);
}

/* ---- looking ------------------------------------------------------------------------------- */

static int is_served(const verification *it, crl_found *found) {
  crl_bytes *bytes;
  size_t offset, size = found->envelope.plain_len;
  return found->envelope.kind == CRL_KIND_VALUE && size == corral_value_size(it->served) &&
         crl_found_plain(found, &bytes, &offset) == CORRAL_OK &&
         memcmp(bytes->data + offset, corral_value_data(it->served), size) == 0;
}

/* True when the store has the value that was served, and that is fresh. */
static int find(const verification *it, sight *ret) {
  crl_found found;
  crl_request e;
  crl_told told;
  crl_context *context = it->verifier->context;
  memset(&told, 0, sizeof told);
  if (crl_found_init(&found, context, &it->policy, &it->name, crl_name_hash(&it->name)) !=
      CORRAL_OK)
    return 0;
  crl_found_look(&found, &e, crl_env_now_ms() + context->op_ms, &told);
  int finds = told.status == CORRAL_OK && told.look.lives.fresh > 0 && is_served(it, &found);
  *ret = (sight){.look = told.look,
                 .age = told.look.lives.age,
                 .created_ms = found.envelope.created_ms,
                 .version = found.envelope.version,
                 .cost_us = found.envelope.cost_us};
  crl_found_clean(&found);
  return finds;
}

/* True when nobody computes the key, and no failure of it is remembered. */
static int is_quiet(const sight *seen) {
  return seen->look.lease_left <= 0 && seen->look.retry_left <= 0;
}

/* True when the value seen before still stands: it was neither replaced nor renewed. */
static int still_stands(const verification *it, const sight *before) {
  sight now;
  return find(it, &now) && now.created_ms == before->created_ms && now.version == before->version &&
         now.cost_us == before->cost_us && now.age + SLACK_MS >= before->age;
}

/* ---- computing ----------------------------------------------------------------------------- */

/* 0: nothing was computed, since there is no free place, or no memory. */
static int compute(verification *it) {
  crl_join join;
  corral_fill *fill;
  int64_t unused;
  crl_join_init(&join, it->verifier->context, &it->call, it->name.key, it->name.key_len);
  join.hash = crl_name_hash(&it->name);
  join.deadline = crl_env_now_ms(); /* it doesn't wait for a place */
  crl_run *r = it->run = crl_run_new(&join, NULL, CRL_ALONE_VERIFY);
  if (r == NULL) return 0;
  r->handed_over = 1;
  r->flight.rank = CRL_RANK_WARM;
  while (crl_advance(r, 0, &unused) == CRL_NEED_COMPUTE) crl_advance_compute(&r, &fill, 1);
  return r->flight.made != 0;
}

static int is_abandoned(const crl_run *r) { return corral_fill_should_stop(&r->fill); }

static int has_failed(const crl_run *r) {
  return r->flight.made == CRL_MADE_FAILURE || is_abandoned(r);
}

/* The failure may be the origin's: it is left alone for a while. */
static void rest(verification *it) {
  crl_verifier *verifier = it->verifier;
  int64_t pause = crl_policy_retry(&it->policy, ++verifier->failures, crl_env_dice());
  if (pause < verifier->pause_ms) pause = verifier->pause_ms;
  atomic_store(&verifier->next_at, crl_env_now_ms() + pause);
}

/* ---- the verdict --------------------------------------------------------------------------- */

static int is_same(const verification *it) {
  const crl_verifier *verifier = it->verifier;
  const crl_outcome *made = &it->run->answer;
  crl_frame frame;
  if (made->status != CORRAL_OK) return 0;
  const uint8_t *data = made->bytes->data + made->offset;
  if (verifier->on_verify == NULL)
    return made->size == corral_value_size(it->served) &&
           memcmp(data, corral_value_data(it->served), made->size) == 0;
  crl_frame_enter(&frame, &verifier->context->events);
  int same = verifier->on_verify(it->name.key, it->name.key_len, it->served, data, made->size,
                                 verifier->arg);
  crl_frame_leave(&frame);
  return same != 0;
}

static void tell(const verification *it, corral_event event, int status, const char *detail) {
  corral_event_info info = crl_event_info(event, it->name.key, it->name.key_len);
  crl_events *events = &it->verifier->context->events;
  int64_t age_us = corral_value_age_ms(it->served) * 1000;
  info.status = status;
  info.detail = detail;
  info.bytes = (int64_t)corral_value_size(it->served);
  if (event != CORRAL_EVENT_UNVERIFIED) info.duration_us = age_us;
  if (event == CORRAL_EVENT_DIFFERS)
    crl_stats_add_time(&events->stats, CORRAL_TIME_DIFFERS_AGE, age_us);
  crl_event_tell(events, &info);
}

static void judge(verification *it, const sight *before) {
  const crl_run *r = it->run;
  if (has_failed(r)) {
    int is_late = is_abandoned(r);
    rest(it);
    tell(it, CORRAL_EVENT_UNVERIFIED, is_late ? CORRAL_EABANDONED : CORRAL_EFAILED,
         is_late ? corral_status_text(CORRAL_EABANDONED) : r->fill.text);
    return;
  }
  it->verifier->failures = 0;
  if (!still_stands(it, before))
    tell(it, CORRAL_EVENT_UNVERIFIED, CORRAL_EMISS,
         "the value served is no longer stored, or fresh");
  else if (is_same(it))
    tell(it, CORRAL_EVENT_VERIFIED, CORRAL_OK, NULL);
  else
    tell(it, CORRAL_EVENT_DIFFERS, r->answer.status, NULL);
}

static verification *verification_of(crl_job *job) {
  return (verification *)(void *)((char *)job - offsetof(verification, job));
}

static void drop(crl_job *job) {
  verification *it = verification_of(job);
  end(&it);
}

static void verify(crl_job *job) {
  __attribute__((cleanup(end))) verification *it = verification_of(job);
  sight before;
  if (find(it, &before) && is_quiet(&before) && compute(it)) judge(it, &before);
}

/* ---- the draw ------------------------------------------------------------------------------ */

static int draws(const corral_policy *policy) {
  return (int64_t)((crl_env_dice() >> 32) * WHOLE_PPM >> 32) < policy->verify_ppm;
}

static verification *make(crl_verifier *verifier, const crl_call *call, const void *key,
                          size_t key_len, corral_value *value) {
  verification *it = crl_alloc(sizeof *it + key_len + call->variant_len);
  if (it == NULL) return NULL;
  it->job = (crl_job){.run = verify, .drop = drop};
  it->verifier = verifier;
  it->call = *call;
  it->policy = *call->policy;
  it->call.policy = &it->policy;
  it->call.error = NULL;
  it->call.cancel_token = NULL;
  memcpy(it->bytes, key, key_len);
  if (call->variant_len > 0)
    it->call.variant = memcpy(it->bytes + key_len, call->variant, call->variant_len);
  it->name = crl_call_name(&it->call, it->bytes, key_len);
  it->served = corral_value_ref(value);
  return it;
}

void crl_verify_draw(crl_context *context, const crl_call *call, const void *key, size_t key_len,
                     corral_value *value) {
  crl_verifier *verifier = context->verifier;
  if (value == NULL || corral_value_how(value) != CORRAL_FRESH || !draws(call->policy) ||
      !take_turn(verifier, crl_env_now_ms()))
    return;
  verification *it = make(verifier, call, key, key_len, value);
  if (it == NULL)
    end_turn(verifier);
  else if (crl_workers_submit(context->threads.workers, &it->job) != 0)
    drop(&it->job);
}
