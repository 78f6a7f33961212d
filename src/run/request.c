/* request.c: performs what a flight asks of the store. */
#include <stdio.h>
#include <stdlib.h>

#include "os/env.h"
#include "record/compress.h"
#include "store/put.h"
#include "record/record.h"
#include "run/run.h"
#include "base/status.h"

static corral_op new_op(crl_run *r, corral_verb verb) {
  r->error.text[0] = '\0';
  return (corral_op){.verb = verb,
                     .key = r->key.stored,
                     .key_len = r->key.stored_len,
                     .token = r->token,
                     .error = &r->error};
}

/* Deadline of an ask. An operation that ends the flight has op_ms even after the call's deadline.
 * Behind an answer, when no caller waits, each operation has wait_ms, if that is more. */
static int64_t limit_of(const crl_run *r, int ends_flight) {
  int64_t now = crl_env_now_ms(), least = now + r->context->op_ms,
          deadline = r->flight.plan.deadline;
  if (r->flight.answered) return now + r->policy.wait_ms > least ? now + r->policy.wait_ms : least;
  return (ends_flight || r->flight.last_look) && deadline < least ? least : deadline;
}

static int is_trouble(int status) {
  return status < 0 && status != CORRAL_EMISS && status != CORRAL_EBUSY && status != CORRAL_ELOST;
}

/* Status and duration of the request's first operation, for an event. */
static crl_run_fact fact_of(const crl_request *e) {
  return (crl_run_fact){.status = e->status == CORRAL_EMISS ? CORRAL_OK : e->status,
                        .duration_us = e->began_us == 0 ? -1 : crl_env_now_us() - e->began_us,
                        .bytes = -1};
}

static void tell_trouble(crl_run *r, const crl_request *e) {
  const corral_op *op = &e->op[0];
  if (!is_trouble(op->status)) return;
  corral_event event = op->status == CORRAL_EFOREIGN ? CORRAL_EVENT_FOREIGN
                       : op->status == CORRAL_ENEWER ? CORRAL_EVENT_NEWER
                                                     : CORRAL_EVENT_STORE_ERROR;
  crl_run_fact fact = fact_of(e);
  fact.detail = r->error.text[0] == '\0' ? corral_status_text(op->status) : r->error.text;
  crl_run_tell_op(r, event, &fact);
}

/* `plain` is of the former one. */
void crl_run_change_found(crl_run *r, crl_bytes *bytes) {
  crl_bytes_unref(r->found);
  crl_bytes_unref(r->plain);
  r->found = bytes;
  r->plain = NULL;
}

/* Keeps the record that a look found, unless the store sent only its header, for a payload that is
 * at hand. */
static int keep_found(crl_run *r, corral_op *op) {
  if (op->found.record == NULL) {
    crl_run_change_found(r, NULL);
    return CORRAL_EMISS;
  }
  int status = crl_record_read_found(op, &r->header);
  if (status != CORRAL_OK || op->state.same) {
    if (op->found.drop != NULL) op->found.drop(op->found.owner);
    return status;
  }
  crl_bytes *bytes =
      crl_bytes_wrap(op->found.record, op->found.len, op->found.drop, op->found.owner);
  if (bytes == NULL) {
    if (op->found.drop != NULL) op->found.drop(op->found.owner);
    return CORRAL_ENOMEM;
  }
  crl_run_change_found(r, bytes);
  return CORRAL_OK;
}

int crl_run_plain(crl_run *r, crl_bytes **bytes, size_t *offset) {
  const crl_envelope *envelope = &r->envelope;
  *offset = envelope->payload_at;
  *bytes = r->found;
  if (envelope->encoding == CRL_ENCODING_PLAIN) return CORRAL_OK;
  *offset = 0;
  *bytes = r->plain;
  if (r->plain != NULL) return CORRAL_OK;
  uint8_t *plain = crl_alloc(envelope->plain_len + 1);
  if (plain == NULL) return CORRAL_ENOMEM;
  int whole = crl_decompress(r->found->data + envelope->payload_at, envelope->payload_len, plain,
                             envelope->plain_len);
  r->plain = whole ? crl_bytes_wrap(plain, envelope->plain_len, free, plain) : NULL;
  if (r->plain == NULL) free(plain);
  *bytes = r->plain;
  return r->plain != NULL ? CORRAL_OK : whole ? CORRAL_ENOMEM : CORRAL_ECORRUPT;
}

static int is_ours(const crl_run *r) {
  return r->has_token && memcmp(r->header.token, r->token, CORRAL_TOKEN) == 0;
}

static _Atomic uint64_t *cost_slot(crl_run *r) {
  return &r->context->costs.slots[r->self % CRL_COSTS];
}

static uint32_t recall_cost(crl_run *r) {
  uint64_t slot = atomic_load_explicit(cost_slot(r), memory_order_relaxed);
  return slot >> 32 == r->self >> 32 ? (uint32_t)slot : 0;
}

/* Rounded up, since 0 means unknown. */
static uint32_t in_ms(uint64_t us) {
  return us / 1000 >= UINT32_MAX ? UINT32_MAX : (uint32_t)((us + 999) / 1000);
}

void crl_run_note_cost(crl_run *r, int64_t cost_us) {
  uint64_t ms = in_ms((uint64_t)cost_us);
  uint64_t slot = (r->self >> 32 << 32) | ms;
  if (atomic_load_explicit(cost_slot(r), memory_order_relaxed) != slot)
    atomic_store_explicit(cost_slot(r), slot, memory_order_relaxed);
}

/* Reads the tags of the record found and wants their tag versions. Where each value has the tag of
 * the whole namespace, a value without it may be from before the namespace was invalidated: it is
 * void. */
static int read_tags(crl_run *r, crl_request *e) {
  const crl_envelope *envelope = &r->envelope;
  r->has_tags = envelope->tag_count > 0;
  if (r->has_tags) {
    if (r->tags == NULL && (r->tags = crl_alloc(sizeof *r->tags)) == NULL) return CORRAL_ENOMEM;
    if (!crl_tags_read(r->found->data + envelope->metadata_at, envelope->metadata_len, r->tags))
      return CORRAL_ECORRUPT;
  }
  e->is_void = r->context->generation && (!r->has_tags || crl_tags_find(r->tags, "", 0) == NULL);
  if (!r->has_tags || e->is_void) return CORRAL_OK;
  return crl_tag_versions_want_all(&r->tag_versions, r->tags) ? CORRAL_OK : CORRAL_ENOMEM;
}

static void look_at_value(crl_run *r, const corral_op *op, int expired, crl_look *look) {
  const crl_envelope *envelope = &r->envelope;
  crl_lives lives = crl_envelope_judge(envelope, expired, op->state.life_ms, crl_env_wall_ms());
  r->age_ms = lives.age;
  crl_run_note_cost(r, (int64_t)envelope->cost_us);
  if (envelope->kind == CRL_KIND_PASS) {
    look->pass = lives.fresh > 0;
    return;
  }
  look->has_value = 1;
  look->ttl = envelope->ttl_ms;
  look->cost_us = envelope->cost_us;
  look->lives = lives;
}

/* True if no compute of this corral can have made the payload, or if it contradicts its
 * own packed size. */
static int is_too_large(const crl_run *r, const crl_envelope *envelope) {
  if (envelope->payload_len > r->context->max_value || envelope->plain_len > r->context->max_value)
    return 1;
  const uint8_t *payload = r->found->data + envelope->payload_at;
  return envelope->encoding == CRL_ENCODING_ZSTD &&
         crl_decompressed_size(payload, envelope->payload_len) != envelope->plain_len;
}

/* A header that came alone is not used: the payload at hand has its own. */
static int read_envelope(crl_run *r, const corral_op *op) {
  const crl_bytes *found = r->found;
  const uint8_t *digest = crl_key_digest(&r->key);
  return op->state.same ? crl_envelope_read(found->data, found->size, digest, &r->envelope)
                        : crl_envelope_open(&r->header, found->data, digest, &r->envelope);
}

/* A damaged payload counts as none. */
static int read_payload(crl_run *r, crl_request *e) {
  int status = read_envelope(r, &e->op[0]);
  if (status == CORRAL_OK && is_too_large(r, &r->envelope)) status = CORRAL_ECORRUPT;
  if (status == CORRAL_OK && r->envelope.kind == CRL_KIND_TAG_VERSION) status = CORRAL_EFOREIGN;
  if (status == CORRAL_OK) status = read_tags(r, e);
  if (status == CORRAL_OK) {
    e->has_payload = 1;
  } else if (status == CORRAL_ECORRUPT) {
    crl_run_emit(r, CORRAL_EVENT_CORRUPT, NULL);
    return CORRAL_OK;
  }
  return status;
}

/* The print of a record with a lease or a verdict, for the wait that may follow; else 0. */
static uint64_t print_of_busy(const crl_run *r, const corral_op *op) {
  enum { AT_STATE = 4 };
  const crl_watch *watch = r->context->watch;
  int is_busy = op->found.record != NULL && op->found.len > AT_STATE &&
                op->found.record[AT_STATE] != CORRAL_FREE;
  return is_busy && watch != NULL && crl_watch_is_up(watch)
             ? crl_watch_print(op->found.record, op->found.len)
             : 0;
}

/* Reads the record that a look found, and lists the tag versions that are wanted. */
static int read_found(crl_run *r, crl_request *e) {
  memset(&r->header, 0, sizeof r->header);
  r->is_void = 0;
  r->stored_version = 0;
  r->print = print_of_busy(r, &e->op[0]);
  int status = keep_found(r, &e->op[0]);
  if (status != CORRAL_OK) return status == CORRAL_EMISS ? CORRAL_OK : status;
  e->has_header = 1;
  return r->found == NULL || e->op[0].state.life_ms == 0 ? CORRAL_OK : read_payload(r, e);
}

static void look_at_header(crl_run *r, const corral_op *op, crl_look *look) {
  int64_t until = op->state.left_ms < 0 ? r->policy.lease_ms : op->state.left_ms;
  if (r->header.state == CORRAL_LEASED && !is_ours(r) && !crl_run_finds_dead(r)) {
    look->lease_left = until;
    /* A leader of unknown cost counts as due at once: pauses are then a share of the time taken so
     * far. */
    look->expects = op->state.left_ms > 0;
    look->expect_left = r->header.since + r->header.cost_ms - (r->header.until - op->state.left_ms);
  }
  if (r->header.state == CORRAL_VERDICT) look->retry_left = until;
  look->failures = r->header.failures;
}

/* Sets *look by the payload found. */
static void look_at_payload(crl_run *r, const crl_request *e, crl_look *look) {
  crl_standing standing = e->is_void    ? CRL_STANDS_VOID
                          : r->has_tags ? crl_tag_versions_judge(&r->tag_versions, r->tags)
                                        : CRL_STANDS;
  r->is_void = standing == CRL_STANDS_VOID;
  if (!r->is_void)
    look_at_value(r, &e->op[0],
                  (r->header.flags & CORRAL_FLAG_EXPIRED) || standing == CRL_STANDS_EXPIRED, look);
}

/* True if the store's watch will end the wait that follows this look. A watch that registers keys
 * learns of the look at the begin of the wait. */
static int is_watched(const crl_run *r, const crl_request *e) {
  const crl_watch *watch = r->context->watch;
  if (watch == NULL || !crl_watch_is_up(watch)) return 0;
  return crl_watch_registers(watch) ? !crl_watch_refuses(&r->watcher) : r->watches && e->watched;
}

/* Sets *look by all that a look found. */
static int judge(crl_run *r, const crl_request *e, crl_look *look) {
  memset(look, 0, sizeof *look);
  r->has_over = 0;
  if (e->has_header) look_at_header(r, &e->op[0], look);
  if (look->lease_left > 0 || r->watches) look->watched = is_watched(r, e) != 0;
  if (!e->has_payload) return e->read;
  r->stored_version = r->envelope.version;
  if (r->has_tags && !e->is_void && e->fetched != CORRAL_OK) return e->fetched;
  look_at_payload(r, e, look);
  return CORRAL_OK;
}

/* ---- GET ----------------------------------------------------------------------------------- */

/* The key's record and, where each value has its tag, the tag version of the whole namespace: one
 * round trip. */
static int make_get(crl_run *r, crl_request *e) {
  const crl_context *context = r->context;
  if (r->flight.looks > 0) crl_run_emit(r, CORRAL_EVENT_POLL, NULL);
  e->keeps = context->near != NULL && r->policy.near_ms > 0;
  e->looked = e->keeps ? crl_env_now_ms() : 0;
  e->epoch = e->keeps ? crl_near_epoch(context->near, r->hash) : 0;
  crl_tag_versions_forget(&r->tag_versions);
  if (context->generation) {
    if (!crl_tag_versions_want(&r->tag_versions, "", 0) ||
        crl_tag_look_up(r->context, &r->tag_versions.tag_version[0], &e->all, &e->op[1]) !=
            CORRAL_OK)
      return CORRAL_ENOMEM;
    e->count = 2;
  }
  e->op[0] = new_op(r, CORRAL_VERB_GET);
  if ((r->watches || context->near != NULL) && context->watch != NULL)
    e->watched = crl_watch_up(context->watch);
  return CORRAL_OK;
}

static void got_tag_version(crl_run *r, crl_request *e) {
  const crl_tag_version *tag_version = e->all.tag_version;
  crl_tag_looked(r->context, &e->all, &e->op[1]);
  if (tag_version->status != CORRAL_OK && tag_version->status != CORRAL_EMISS)
    e->status = tag_version->status;
}

static int answers(const crl_request *e) {
  return e->status == CORRAL_OK || e->status == CORRAL_EMISS;
}

static void got_get(crl_run *r, crl_request *e) {
  corral_op *op = &e->op[0];
  if (e->count == 2) got_tag_version(r, e);
  if (answers(e))
    e->read = read_found(r, e);
  else if (op->found.drop != NULL)
    op->found.drop(op->found.owner);
}

static void take_get(crl_run *r, const crl_request *e, crl_told *told) {
  int read = answers(e) ? judge(r, e, &told->look) : CORRAL_OK;
  told->status = read == CORRAL_OK ? e->status : read;
  if (told->status != CORRAL_OK && told->status != CORRAL_EMISS) {
    memset(&told->look, 0, sizeof told->look);
    crl_run_recall(r, told);
    return;
  }
  if (e->keeps && told->look.lives.fresh > 0)
    crl_run_keep_near(r, &told->look, e->epoch, e->looked);
  if (r->flight.looks == 0 && told->look.lives.fresh == 0 && told->look.lives.swr == 0 &&
      !r->flight.on_host)
    crl_run_emit(r, CORRAL_EVENT_MISS, NULL);
}

/* ---- CLAIM --------------------------------------------------------------------------------- */

static int make_claim(crl_run *r, crl_request *e) {
  if (crl_env_random(r->token, sizeof r->token) != CORRAL_OK) return CORRAL_EIO;
  r->has_token = 1;
  uint32_t cost_ms =
      r->found != NULL && r->flight.has_value ? in_ms(r->envelope.cost_us) : recall_cost(r);
  r->lease_ms = crl_policy_lease(&r->policy, cost_ms);
  corral_op op = new_op(r, CORRAL_VERB_CLAIM);
  op.claim.lease_ms = r->lease_ms;
  op.claim.front = e->front;
  op.claim.front_len = crl_put_wish(crl_key_digest(&r->key), cost_ms, e->front);
  op.claim.seen = r->found == NULL ? 0 : crl_record_stamp(r->found->data, r->found->size);
  op.claim.over = r->has_over ? r->over : NULL;
  crl_run_note_token(r);
  e->op[0] = op;
  r->claim_sent = crl_env_now_ms();
  return CORRAL_OK;
}

static void got_claim(crl_run *r, crl_request *e) {
  if (e->status == CORRAL_OK || e->status == CORRAL_EBUSY) e->read = read_found(r, e);
}

static void take_claim(crl_run *r, const crl_request *e, crl_told *told) {
  told->status = e->status;
  if (e->status != CORRAL_OK && e->status != CORRAL_EBUSY) {
    crl_run_recall(r, told);
    return;
  }
  int read = judge(r, e, &told->look);
  crl_run_fact fact = fact_of(e);
  if (e->status == CORRAL_OK)
    crl_run_tell_op(r, CORRAL_EVENT_CLAIM, &fact);
  else if (read != CORRAL_OK)
    told->status = read;
}

/* ---- SETTLE -------------------------------------------------------------------------------- */

/* An unmodified value is renewed in place; if it is gone or the store can't renew, SETTLE
 * follows. */
static void make_settle(crl_run *r, crl_request *e) {
  int renews = r->product.renew_ttl > 0;
  corral_op op = new_op(r, renews ? CORRAL_VERB_RENEW : CORRAL_VERB_SETTLE);
  if (renews)
    op.renew.ttl_ms = r->product.renew_ttl;
  else
    op.settle = (corral_settle_args){.record = r->product.record->data,
                                     .record_len = r->product.record->size,
                                     .ttl_ms = r->product.hard_ttl};
  e->op[0] = op;
}

static void tell_settled(crl_run *r, const crl_request *e) {
  crl_run_fact fact = fact_of(e);
  fact.bytes = (int64_t)r->product.record->size;
  if (e->status == CORRAL_OK && r->fill.pass) return;
  corral_event event = CORRAL_EVENT_UNSTORED;
  if (e->status == CORRAL_OK)
    event = r->handed_over && r->flight.answered ? CORRAL_EVENT_REFRESH : CORRAL_EVENT_FILL;
  else if (e->status == CORRAL_ELOST)
    event = CORRAL_EVENT_FENCED;
  else
    fact.detail = r->error.text;
  crl_run_tell_op(r, event, &fact);
}

static int take_settle(crl_run *r, const crl_request *e, crl_told *told) {
  const corral_op *op = &e->op[0];
  if (op->verb == CORRAL_VERB_RENEW &&
      (e->status == CORRAL_EMISS || e->status == CORRAL_EUNSUPPORTED)) {
    r->product.renew_ttl = 0;
    return 0;
  }
  crl_run_drop_lease(r);
  told->status = e->status;
  if (r->context->near != NULL) crl_near_drop(r->context->near, r->hash);
  tell_settled(r, e);
  if (e->status == CORRAL_OK) crl_outbox_filled(r->context->outbox, op->key, op->key_len, r->began);
  if (e->status == CORRAL_OK) crl_outbox_drop(r->context->verdicts, op->key, op->key_len);
  if ((e->status == CORRAL_EUNAVAILABLE || e->status == CORRAL_EINDOUBT) && !r->fill.pass)
    crl_run_keep_fill(r);
  return 1;
}

/* ---- RELEASE ------------------------------------------------------------------------------- */

/* The key of a verdict outlives the verdict, so that the next failure can count the earlier
 * ones. */
corral_op crl_run_release_op(crl_run *r, uint8_t front[CORRAL_FRONT], int64_t retry_ms,
                             const char *text, int32_t code) {
  corral_op op = new_op(r, CORRAL_VERB_RELEASE);
  corral_header verdict;
  if (retry_ms <= 0) return op;
  memset(&verdict, 0, sizeof verdict);
  verdict.state = CORRAL_VERDICT;
  verdict.code = code;
  verdict.failures = r->flight.failures;
  snprintf(verdict.note, sizeof verdict.note, "%.63s", text);
  op.release = (corral_release_args){.verdict = front,
                                     .verdict_len = crl_record_write(&verdict, front),
                                     .verdict_ms = retry_ms,
                                     .keep_ms = 3 * retry_ms + r->policy.lease_ms};
  return op;
}

/* ---- an ask of any kind -------------------------------------------------------------------- */

void crl_run_prepare(crl_run *r, crl_request *e) {
  int ends_flight = r->ask == CRL_ASK_SETTLE || r->ask == CRL_ASK_RELEASE;
  memset(e, 0, offsetof(crl_request, all));
  e->count = 1;
  e->limit = limit_of(r, ends_flight);
  e->began_us = r->context->events.hook == NULL ? 0 : crl_env_now_us();
  switch (r->ask) {
    case CRL_ASK_GET: e->status = make_get(r, e); break;
    case CRL_ASK_CLAIM: e->status = make_claim(r, e); break;
    case CRL_ASK_SETTLE: make_settle(r, e); break;
    default: /* without a verdict, the compute may still write to the fill */
      e->op[0] = crl_run_release_op(r, e->front, r->flight.retry_ms, r->fill.text,
                                    r->flight.retry_ms > 0 ? r->fill.code : 0);
      break;
  }
  if (e->status != CORRAL_OK) e->count = 0;
}

void crl_run_complete(crl_run *r, crl_request *e) {
  if (e->count == 0) return;
  e->status = e->op[0].status;
  int declines = e->op[0].verb == CORRAL_VERB_RENEW && e->status == CORRAL_EUNSUPPORTED;
  if (!declines) tell_trouble(r, e);
  if (r->ask == CRL_ASK_GET) got_get(r, e);
  if (r->ask == CRL_ASK_CLAIM) got_claim(r, e);
}

int crl_run_interpret(crl_run *r, const crl_request *e, crl_told *told) {
  told->slow = crl_run_met_slow(r, e) != 0;
  switch (r->ask) {
    case CRL_ASK_GET: take_get(r, e, told); return 1;
    case CRL_ASK_CLAIM: take_claim(r, e, told); return 1;
    case CRL_ASK_SETTLE: return take_settle(r, e, told);
    default:
      crl_run_drop_lease(r);
      told->status = e->status;
      return 1;
  }
}

void crl_run_perform(crl_run *r, crl_told *told) {
  crl_request e;
  int taken = 0;
  while (!taken) {
    crl_run_prepare(r, &e);
    if (e.count > 0) crl_pool_perform(r->context->pool, e.op, e.count, e.limit);
    crl_run_complete(r, &e);
    if (e.has_payload)
      e.fetched = crl_tag_versions_fetch(r->context, &r->tag_versions, r->policy.near_ms, e.limit,
                                         &r->error);
    taken = crl_run_interpret(r, &e, told);
  }
}

/* ---- around the compute -------------------------------------------------------------------- */

void crl_run_lend_old(crl_run *r) {
  crl_bytes *bytes;
  size_t offset;
  crl_old *old = &r->fill.old;
  if (!r->flight.has_value || r->is_void || r->found == NULL || r->envelope.kind != CRL_KIND_VALUE)
    return;
  if (crl_run_plain(r, &bytes, &offset) != CORRAL_OK) return;
  *old = (crl_old){.data = bytes->data + offset,
                   .size = r->envelope.plain_len,
                   .validator = r->envelope.validator,
                   .validator_len = r->envelope.validator_len,
                   .tags = r->has_tags ? r->tags : NULL,
                   .version = r->envelope.version,
                   .ttl_ms = r->envelope.ttl_ms,
                   .swr_ms = r->envelope.swr_ms,
                   .sie_ms = r->envelope.sie_ms};
}

static crl_made stamp_tags(crl_run *r) {
  corral_error why;
  if (r->fill.tags == NULL) return CRL_MADE_VALUE;
  /* without versions of its tags, the value stays in this process: see replay.c */
  if (!r->flight.leased) return CRL_MADE_VALUE;
  int status = crl_tag_versions_stamp(r->context, r->fill.tags, &r->tag_versions,
                                      crl_env_now_ms() - r->claim_sent, &why);
  if (status == CORRAL_OK) return CRL_MADE_VALUE;
  crl_run_emit(r, status == CORRAL_ELOST ? CORRAL_EVENT_FENCED : CORRAL_EVENT_UNSTORED,
               status == CORRAL_ELOST ? NULL : why.text);
  return status == CORRAL_ELOST ? CRL_MADE_FENCED : CRL_MADE_UNKEPT;
}

crl_made crl_run_stamp(crl_run *r) {
  corral_fill *fill = &r->fill;
  if (fill->filled == CRL_FILLED_FAILURE || fill->filled == CRL_FILLED_NOT) return CRL_MADE_VALUE;
  if (!crl_fill_inherit(fill) || (r->context->generation && !crl_fill_tag_of_all(fill))) {
    corral_fill_fail(fill, CORRAL_ENOMEM, "out of memory");
    return CRL_MADE_VALUE;
  }
  if (fill->version != 0 && fill->version < r->stored_version) {
    snprintf(fill->text, sizeof fill->text, "a later version than what was computed is stored");
    return CRL_MADE_OLDER;
  }
  if (fill->filled == CRL_FILLED_NEGATIVE &&
      !crl_quota_take(&r->context->negatives, r->policy.negative_ttl_ms, crl_env_now_ms()))
    return CRL_MADE_UNKEPT;
  return stamp_tags(r);
}
