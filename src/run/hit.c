/* hit.c: the first look of a call, by as little as a hit needs.
 *
 * A thread has one look under way, which keeps what it needs in memory of the thread's own: on the
 * stack that would be most of what a hit takes. Only a store that is made of another corral begins
 * a look within one: the inner one then is no hit. */
#include "run/hit.h"

#include <pthread.h>
#include <stdlib.h>

#include "os/env.h"
#include "store/op_times.h"
#include "tags/tag_memory.h"

/* ---- the memory of a thread ---------------------------------------------------------------- */

typedef struct own {
  int looks; /* its look is under way */
  crl_hit hit;
  corral_error trouble, handle_trouble; /* of a look that failed, and of its handle */
  uint8_t key[CRL_HIT_KEY];
} own;

static _Thread_local own *mine CRL_IN_FIRST_BLOCK;
static pthread_key_t at_exit;
static int has_key;

static void on_exit_of_thread(void *memory) {
  mine = NULL;
  free(memory);
}

__attribute__((constructor)) static void begin_exits(void) {
  has_key = pthread_key_create(&at_exit, on_exit_of_thread) == 0;
}

/* No thread that ends may call into a library that was unloaded. */
__attribute__((destructor)) static void forget_exits(void) {
  if (has_key) pthread_key_delete(at_exit);
  has_key = 0;
}

/* The memory of this thread, for its first look; NULL: there is none. */
static own *make_mine(void) {
  own *made = has_key ? crl_alloc(sizeof *made) : NULL;
  if (made == NULL) return NULL;
  if (pthread_setspecific(at_exit, made) != 0) {
    free(made);
    return NULL;
  }
  made->hit.key = made->key;
  return mine = made;
}

/* ---- the look ------------------------------------------------------------------------------ */

int crl_hit_is_of(const crl_context *context) {
  return context->near == NULL && !context->generation;
}

/* True for a call whose hit needs nothing but its record. */
static int is_plain(const crl_context *context, const crl_call *call) {
  return crl_hit_is_of(context) && call->variant_len == 0 && call->policy->anew <= 0 &&
         !crl_cancelled(call->cancel_token);
}

static int put_key(crl_hit *hit) {
  return crl_key_plain(&hit->context->space, &hit->name, hit->key, CRL_HIT_KEY, &hit->op.key,
                       &hit->op.key_len);
}

/* Of the two hashes a hit has that by which the store, or the herd, finds its key. As a rule the
 * stored key is the user's own, and they are the same; else the other one is seldom wanted. */
static void put_hash(crl_hit *hit) {
  corral_op *op = &hit->op;
  int is_stored = op->key == hit->name.key || hit->context->looks_first;
  hit->hash = is_stored ? crl_hash(op->key, op->key_len) : crl_name_hash(&hit->name);
  op->hash = is_stored ? hit->hash : 0;
}

static uint64_t key_hash(crl_hit *hit) {
  corral_op *op = &hit->op;
  if (op->hash == 0) op->hash = crl_hash(op->key, op->key_len);
  return op->hash;
}

/* Where nothing is expected, look and claim are one: see crl_join_first. */
static int is_gone(crl_hit *hit) {
  const crl_marks *gone = &hit->context->gone;
  return !hit->context->looks_first && crl_marks_any(gone) && crl_marks_has(gone, key_hash(hit));
}

/* Where a look asks another process, simultaneous calls share it: see herd.h. `beside`: a look of
 * its own will do, too. */
static int enter(crl_hit *hit, int beside) {
  hit->has_stub = !hit->context->looks_first && crl_call_computes(hit->call);
  hit->beside = 0;
  if (!hit->has_stub) return 1;
  crl_stubbed is = crl_herd_stub(hit->context->herd, &hit->name, hit->hash, &hit->stub);
  hit->has_stub = is == CRL_STUB_LEADS;
  hit->beside = is == CRL_STUB_LOOKS && beside;
  return hit->has_stub || hit->beside;
}

/* The versions of known tags are asked for together with the value. */
static int has_tags(crl_hit *hit) {
  crl_tag_memory *memory = hit->context->tag_memory;
  return memory != NULL && crl_tag_memory_any(memory) && crl_tag_memory_has(memory, key_hash(hit));
}

/* By field: to zero all of it at once takes longer than the rest of this. */
static void preset(corral_op *op) {
  op->verb = CORRAL_VERB_GET;
  op->flags = op->zero = 0;
  op->token = NULL;
  op->error = NULL;
  memset(op->args, 0, sizeof op->args);
  op->status = CORRAL_EINDOUBT;
  op->found = (corral_found){.record = NULL};
  op->state = (corral_record_state){.life_ms = 0};
}

static int begin(crl_hit *hit, int beside) {
  preset(&hit->op);
  if (!put_key(hit)) return 0;
  put_hash(hit);
  hit->early = 0;
  if (has_tags(hit) || is_gone(hit) || !enter(hit, beside)) return 0;
  hit->began_us = crl_env_now_us();
  hit->now = hit->began_us / 1000;
  hit->deadline = hit->now + hit->call->policy->wait_ms;
  return 1;
}

/* ---- the answer ---------------------------------------------------------------------------- */

/* True when the record found has a whole, unpacked value of this key, without tags. */
static int read(crl_hit *hit) {
  const corral_op *op = &hit->op;
  crl_envelope *envelope = &hit->envelope;
  const uint8_t *record = op->found.record;
  uint8_t digest[CORRAL_DIGEST];
  if (op->status != CORRAL_OK || record == NULL || op->state.life_ms == 0) return 0;
  if (record[CRL_AT_STATE] != CORRAL_FREE || record[CRL_AT_FLAGS] != 0) return 0;
  crl_sum(op->key, op->key_len, digest);
  return crl_envelope_read(record, op->found.len, digest, envelope) == CORRAL_OK &&
         envelope->kind == CRL_KIND_VALUE && envelope->encoding == CRL_ENCODING_PLAIN &&
         envelope->tag_count == 0 && envelope->payload_len <= hit->context->max_value;
}

/* A fresh value that is to be rebuilt early is no hit. */
static int is_early(crl_hit *hit, int64_t fresh) {
  const corral_policy *policy = hit->call->policy;
  const crl_envelope *envelope = &hit->envelope;
  if (!hit->call->peeks && !crl_call_computes(hit->call)) return 0;
  uint64_t dice = !hit->call->peeks && crl_policy_rolls(policy) ? crl_env_dice() : 0;
  return hit->early = crl_policy_early(policy, envelope->ttl_ms, fresh, envelope->cost_us, dice);
}

/* The value of the record found, which it takes over; NULL: this is no plain hit. */
static corral_value *judge(crl_hit *hit) {
  const crl_envelope *envelope = &hit->envelope;
  const corral_found *found = &hit->op.found;
  int64_t life = hit->op.state.life_ms;
  if (!read(hit)) return NULL;
  crl_lives lives = crl_envelope_judge(envelope, 0, life, life < 0 ? crl_env_wall_ms() : 0);
  if (lives.fresh <= 0 || is_early(hit, lives.fresh)) return NULL;
  crl_costs_note(&hit->context->costs, hit->hash, envelope->cost_us);
  return crl_value_wrap(found->record, found->len, found->drop, found->owner,
                        &(crl_about){.offset = envelope->payload_at,
                                     .size = envelope->payload_len,
                                     .how = CORRAL_FRESH,
                                     .age_ms = lives.age,
                                     .version = envelope->version});
}

/* Gives the value to those who have joined meanwhile, and may have it. */
static __attribute__((noinline)) void land(crl_entry *entry, uint64_t tick,
                                           const corral_value *value, uint64_t cost_us) {
  crl_outcome outcome = {.status = CORRAL_OK,
                         .size = corral_value_size(value),
                         .how = CORRAL_FRESH,
                         .age_ms = corral_value_age_ms(value),
                         .version = corral_value_version(value),
                         .cost_us = cost_us};
  outcome.bytes = crl_value_bytes(value, &outcome.offset);
  crl_herd_land(entry, &outcome, tick);
  crl_entry_unref(entry);
}

static __attribute__((noinline)) void tell(const crl_hit *hit, const corral_value *value) {
  corral_event_info info = crl_event_info(CORRAL_EVENT_HIT, hit->name.key, hit->name.key_len);
  info.status = CORRAL_OK;
  info.duration_us = crl_env_now_us() - hit->began_us;
  info.bytes = (int64_t)corral_value_size(value);
  crl_event_tell(&hit->context->events, &info);
}

static void answer(crl_hit *hit, corral_value *value) {
  crl_entry *entry = hit->has_stub ? crl_herd_unstub(&hit->stub) : NULL;
  if (entry != NULL) land(entry, hit->stub.tick, value, hit->envelope.cost_us);
  crl_stats_result(&hit->context->events.stats, CORRAL_RESULT_FRESH, hit->envelope.cost_us);
  if (hit->context->events.hook == NULL)
    crl_event_count(&hit->context->events, CORRAL_EVENT_HIT);
  else
    tell(hit, value);
}

int crl_hit_begin(crl_hit *hit, crl_context *context, const crl_call *call, const void *key,
                  size_t key_len, int beside) {
  hit->context = context;
  hit->call = call;
  hit->name = crl_call_name(call, key, key_len);
  return is_plain(context, call) && !crl_run_recurses(context, &hit->name) && begin(hit, beside);
}

void crl_hit_sent(crl_hit *hit) {
  if (hit->has_stub) crl_herd_renew_stub(&hit->stub);
}

int crl_hit_answered(crl_hit *hit, corral_value **ret) {
  corral_value *value = judge(hit);
  if (value == NULL) return 0;
  answer(hit, value);
  *ret = value;
  return 1;
}

/* Apart, for its room. */
static __attribute__((noinline)) int look_first(crl_context *context, const crl_call *call,
                                                const void *key, size_t key_len,
                                                corral_value **ret) {
  return make_mine() == NULL ? -1 : crl_hit_look(context, call, key, key_len, ret);
}

int crl_hit_look(crl_context *context, const crl_call *call, const void *key, size_t key_len,
                 corral_value **ret) {
  own *o = mine;
  if (o == NULL) return look_first(context, call, key, key_len, ret);
  if (o->looks || !crl_hit_begin(&o->hit, context, call, key, key_len, 0)) return -1;
  o->looks = 1;
  o->hit.op.error = &o->trouble;
  o->trouble.status = CORRAL_OK;
  o->trouble.text[0] = '\0';
  crl_pool_look(context->pool, &o->hit.op, o->hit.now, o->hit.deadline, &o->handle_trouble);
  crl_op_looked(crl_pool_options_of(context->pool), 1, o->hit.began_us);
  o->looks = 0;
  return crl_hit_answered(&o->hit, ret);
}

int crl_hit_peek(crl_context *context, crl_call *call, const void *key, size_t key_len,
                 corral_value **ret) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  call->peeks = 1;
  int how = crl_hit_look(context, call, key, key_len, ret);
  if (how == 0) crl_hit_drop(crl_hit_mine());
  return how == 1;
}

crl_hit *crl_hit_mine(void) { return &mine->hit; }

void crl_hit_drop(crl_hit *hit) {
  corral_found *found = &hit->op.found;
  if (found->drop != NULL) found->drop(found->owner);
  *found = (corral_found){.record = NULL};
}

void crl_hit_again(crl_hit *hit, crl_join *join) {
  crl_hit_drop(hit);
  join->deadline = hit->deadline;
  join->hash = crl_name_hash(&join->name);
  join->early = hit->early;
  if (!hit->beside) join->state = CRL_JOIN_LOOKS;
  if (!hit->has_stub) return;
  join->since = join->tick = hit->stub.tick;
  join->leads = crl_herd_keep_stub(&hit->stub);
  if (join->leads == NULL) crl_join_fail(join, CORRAL_ENOMEM);
}

void crl_hit_join(crl_hit *hit, crl_join *join) {
  corral_op op = hit->op;
  hit->op.found = (corral_found){.record = NULL};
  crl_hit_again(hit, join);
  if (hit->beside) join->state = CRL_JOIN_LOOKS;
  if (join->state == CRL_JOIN_LOOKS)
    crl_join_have(join, &op, hit->context->events.hook != NULL ? hit->began_us : 0);
  else if (op.found.drop != NULL)
    op.found.drop(op.found.owner);
}

void crl_hit_leave(crl_hit *hit) {
  crl_entry *entry = hit->has_stub ? crl_herd_unstub(&hit->stub) : NULL;
  hit->has_stub = 0;
  if (entry == NULL) return;
  crl_herd_give_up(entry);
  crl_entry_unref(entry);
}
