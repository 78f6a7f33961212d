/* found.c: the looks at one key. */
#include "run/found.h"

#include <stdlib.h>

#include "base/status.h"
#include "os/env.h"
#include "record/compress.h"
#include "record/record.h"
#include "tags/tag_memory.h"

/* ---- life ---------------------------------------------------------------------------------- */

uint64_t crl_found_self(const crl_context *context, uint64_t name_hash) {
  return name_hash ^ (uint64_t)(uintptr_t)context;
}

int crl_found_init(crl_found *found, crl_context *context, const corral_policy *policy,
                   const crl_name *name, uint64_t name_hash) {
  memset(found, 0, offsetof(crl_found, over));
  found->error.text[0] = '\0';
  found->context = context;
  found->policy = policy;
  found->took_us = -1;
  found->self = crl_found_self(context, name_hash);
  if (crl_key_make(&found->key, CRL_KEY_VALUE, &context->space, name) != CORRAL_OK)
    return CORRAL_ENOMEM;
  found->hash = crl_key_hash(&found->key);
  found->cost_hash = crl_context_cost_hash(context, found->hash, name_hash);
  return CORRAL_OK;
}

void crl_found_clean(crl_found *found) {
  crl_found_change(found, NULL);
  crl_tag_versions_clean(&found->tag_versions);
  free(found->tags);
  found->tags = NULL;
  crl_key_clean(&found->key);
}

void crl_found_move(crl_found *to, crl_found *from) {
  *to = *from;
  crl_key_moved(&to->key, &from->key);
  memset(from, 0, offsetof(crl_found, over));
  from->key.whole = NULL;
}

/* ---- events -------------------------------------------------------------------------------- */

void crl_found_emit(crl_found *found, corral_event event, const char *detail) {
  crl_event_emit(&found->context->events, event, found->key.user, found->key.user_len, detail);
}

static corral_event_info info_of(const crl_found *found, corral_event event, const crl_fact *fact) {
  corral_event_info info = crl_event_info(event, found->key.user, found->key.user_len);
  info.status = fact->status;
  info.duration_us = fact->duration_us;
  info.bytes = fact->bytes;
  info.detail = fact->detail;
  return info;
}

static int has_hook(const crl_found *found) { return found->context->events.hook != NULL; }
static int is_told(const crl_found *found, corral_event event) {
  return crl_event_is_told(&found->context->events, event);
}

void crl_found_tell(crl_found *found, corral_event event, const crl_fact *fact) {
  if (!is_told(found, event)) {
    crl_found_emit(found, event, NULL);
    return;
  }
  corral_event_info info = info_of(found, event, fact);
  crl_event_tell(&found->context->events, &info);
}

void crl_found_tell_op(crl_found *found, corral_event event, const crl_fact *fact) {
  if (!is_told(found, event)) {
    crl_found_emit(found, event, NULL);
    return;
  }
  corral_event_info info = info_of(found, event, fact);
  info.server = (int)crl_pool_route(found->context->pool, found->key.stored, found->key.stored_len);
  crl_event_tell(&found->context->events, &info);
}

static int is_trouble(int status) {
  return status < 0 && status != CORRAL_EMISS && status != CORRAL_EBUSY && status != CORRAL_ELOST;
}

crl_fact crl_request_fact(const crl_request *e) {
  return (crl_fact){.status = e->status == CORRAL_EMISS ? CORRAL_OK : e->status,
                    .duration_us = e->began_us == 0 ? -1 : crl_env_now_us() - e->began_us,
                    .bytes = -1};
}

void crl_found_tell_trouble(crl_found *found, const crl_request *e) {
  const corral_op *op = &e->op[0];
  if (!is_trouble(op->status)) return;
  corral_event event = op->status == CORRAL_EFOREIGN ? CORRAL_EVENT_FOREIGN
                       : op->status == CORRAL_ENEWER ? CORRAL_EVENT_NEWER
                                                     : CORRAL_EVENT_STORE_ERROR;
  crl_fact fact = crl_request_fact(e);
  fact.detail = found->error.text[0] == '\0' ? corral_status_text(op->status) : found->error.text;
  crl_found_tell_op(found, event, &fact);
}

/* ---- the record found ---------------------------------------------------------------------- */

/* `plain` is of the former one. */
void crl_found_change(crl_found *found, crl_bytes *bytes) {
  crl_bytes_unref(found->record);
  crl_bytes_unref(found->plain);
  found->record = bytes;
  found->plain = NULL;
  found->is_own = 0;
}

/* Keeps the record that a look found, unless the store sent only its header, for a payload that is
 * at hand. */
static int keep_found(crl_found *found, corral_op *op) {
  if (op->found.record == NULL) {
    crl_found_change(found, NULL);
    return CORRAL_EMISS;
  }
  int status = crl_record_read_found(op, &found->header);
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
  crl_found_change(found, bytes);
  return CORRAL_OK;
}

int crl_found_plain(crl_found *found, crl_bytes **bytes, size_t *offset) {
  const crl_envelope *envelope = &found->envelope;
  *offset = envelope->payload_at;
  *bytes = found->record;
  if (envelope->encoding == CRL_ENCODING_PLAIN) return CORRAL_OK;
  *offset = 0;
  *bytes = found->plain;
  if (found->plain != NULL) return CORRAL_OK;
  uint8_t *plain = crl_alloc(envelope->plain_len + 1);
  if (plain == NULL) return CORRAL_ENOMEM;
  int whole = crl_decompress(found->record->data + envelope->payload_at, envelope->payload_len,
                             plain, envelope->plain_len);
  found->plain = whole ? crl_bytes_wrap(plain, envelope->plain_len, free, plain) : NULL;
  if (found->plain == NULL) free(plain);
  *bytes = found->plain;
  return found->plain != NULL ? CORRAL_OK : whole ? CORRAL_ENOMEM : CORRAL_ECORRUPT;
}

crl_outcome crl_found_outcome(crl_found *found, corral_how how) {
  int is_own = found->is_own && how == CORRAL_STALE;
  crl_outcome outcome = {.status = CORRAL_OK,
                         .how = is_own ? CORRAL_OUTBOX : how,
                         .age_ms = found->age_ms,
                         .version = found->envelope.version,
                         .cost_us = found->envelope.cost_us};
  if (how != CORRAL_STALE && found->envelope.kind == CRL_KIND_NEGATIVE) {
    outcome.status = crl_status_plain(&outcome.error, CORRAL_ENOTFOUND);
    return outcome;
  }
  int status = crl_found_plain(found, &outcome.bytes, &outcome.offset);
  outcome.size = found->envelope.plain_len;
  if (status == CORRAL_OK)
    crl_bytes_ref(outcome.bytes);
  else
    outcome.status = crl_status_plain(&outcome.error, status);
  return outcome;
}

/* ---- the cost of the key's compute ---------------------------------------------------------- */

uint32_t crl_found_recall_cost(const crl_found *found) {
  return crl_costs_recall(&found->context->costs, found->cost_hash);
}

uint32_t crl_found_cost_ms(uint64_t us) { return crl_costs_ms(us); }

void crl_found_note_cost(crl_found *found, uint64_t cost_us) {
  crl_costs_note(&found->context->costs, found->cost_hash, cost_us);
}

/* ---- a look -------------------------------------------------------------------------------- */

/* Wants the versions of the record's tags. If others were expected, notes what it has. */
static int want_tags(crl_found *found) {
  crl_tag_versions *versions = &found->tag_versions;
  crl_tag_memory *memory = found->context->tag_memory;
  size_t expected = versions->count, count = found->has_tags ? found->tags->count : 0;
  if (found->has_tags && !crl_tag_versions_want_all(versions, found->tags)) return CORRAL_ENOMEM;
  if (memory != NULL && (versions->count != expected || expected != count))
    crl_tag_memory_note(memory, found->hash, found->has_tags ? found->tags : NULL);
  return CORRAL_OK;
}

/* Reads the tags of the record found and wants their tag versions. Where each value has the tag of
 * the whole namespace, a value without it may be from before the namespace was invalidated: it is
 * void. */
static int read_tags(crl_found *found, crl_request *e) {
  const crl_envelope *envelope = &found->envelope;
  found->has_tags = envelope->tag_count > 0;
  if (found->has_tags) {
    if (found->tags == NULL && (found->tags = crl_alloc(sizeof *found->tags)) == NULL)
      return CORRAL_ENOMEM;
    if (!crl_tags_read(found->record->data + envelope->metadata_at, envelope->metadata_len,
                       found->tags))
      return CORRAL_ECORRUPT;
  }
  e->is_void =
      found->context->generation && (!found->has_tags || crl_tags_find(found->tags, "", 0) == NULL);
  return e->is_void ? CORRAL_OK : want_tags(found);
}

static void look_at_value(crl_found *found, const corral_op *op, int expired, crl_look *look) {
  const crl_envelope *envelope = &found->envelope;
  crl_lives lives = crl_envelope_judge(envelope, expired, op->state.life_ms, crl_env_wall_ms());
  found->age_ms = lives.age;
  crl_found_note_cost(found, envelope->cost_us);
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
static int is_too_large(const crl_found *found, const crl_envelope *envelope) {
  if (envelope->payload_len > found->context->max_value ||
      envelope->plain_len > found->context->max_value)
    return 1;
  const uint8_t *payload = found->record->data + envelope->payload_at;
  return envelope->encoding == CRL_ENCODING_ZSTD &&
         crl_decompressed_size(payload, envelope->payload_len) != envelope->plain_len;
}

/* A damaged payload counts as none. */
static int read_payload(crl_found *found, crl_request *e) {
  int status = crl_envelope_read(found->record->data, found->record->size,
                                 crl_key_digest(&found->key), &found->envelope);
  if (status == CORRAL_OK && is_too_large(found, &found->envelope)) status = CORRAL_ECORRUPT;
  if (status == CORRAL_OK && found->envelope.kind == CRL_KIND_TAG_VERSION) status = CORRAL_EFOREIGN;
  if (status == CORRAL_OK) status = read_tags(found, e);
  if (status == CORRAL_OK) {
    e->has_payload = 1;
  } else if (status == CORRAL_ECORRUPT) {
    crl_found_emit(found, CORRAL_EVENT_CORRUPT, NULL);
    return CORRAL_OK;
  }
  return status;
}

/* The print of a record with a lease or a verdict, for the wait that may follow; else 0. */
static uint64_t print_of_busy(const crl_found *found, const corral_op *op) {
  const crl_watch *watch = found->context->watch;
  int is_busy = op->found.record != NULL && op->found.len > CRL_AT_STATE &&
                op->found.record[CRL_AT_STATE] != CORRAL_FREE;
  return is_busy && watch != NULL && crl_watch_is_up(watch)
             ? crl_watch_print(op->found.record, op->found.len)
             : 0;
}

int crl_found_read(crl_found *found, crl_request *e) {
  memset(&found->header, 0, sizeof found->header);
  found->is_void = 0;
  found->stored_version = 0;
  found->print = print_of_busy(found, &e->op[0]);
  int status = keep_found(found, &e->op[0]);
  if (status != CORRAL_OK) return status == CORRAL_EMISS ? CORRAL_OK : status;
  e->has_header = 1;
  return found->record == NULL || e->op[0].state.life_ms == 0 ? CORRAL_OK : read_payload(found, e);
}

/* True for a lease that bars the looker: neither its own, nor of a leader that died with the host
 * lock, which the looker has now. */
static int is_barred(crl_found *found, const crl_looker *looker) {
  const crl_key *key = &found->key;
  const uint8_t *token = found->header.token;
  if (found->header.state != CORRAL_LEASED) return 0;
  if (looker->token != NULL && memcmp(token, looker->token, CORRAL_TOKEN) == 0) return 0;
  found->has_over = looker->hold >= 0 && crl_hostlock_noted(found->context->hostlock, looker->hold,
                                                            key->whole, key->whole_len, token);
  if (found->has_over) memcpy(found->over, token, CORRAL_TOKEN);
  found->other_lease_ms = found->has_over ? 0 : found->header.length_ms;
  return !found->has_over;
}

static void look_at_header(crl_found *found, const corral_op *op, const crl_looker *looker,
                           crl_look *look) {
  const corral_header *header = &found->header;
  int64_t until = op->state.left_ms < 0 ? found->policy->lease_ms : op->state.left_ms;
  if (is_barred(found, looker)) {
    look->lease_left = until;
    /* A leader of unknown cost counts as due at once: pauses are then a share of the time taken so
     * far. */
    look->expects = op->state.left_ms > 0;
    look->expect_left = header->since + header->cost_ms - (header->until - op->state.left_ms);
  }
  if (header->state == CORRAL_VERDICT) {
    look->retry_left = until;
    found->other_lease_ms = 0;
  }
  look->failures = header->failures;
}

static void look_at_payload(crl_found *found, const crl_request *e, crl_look *look) {
  crl_standing standing = CRL_STANDS;
  if (e->is_void)
    standing = CRL_STANDS_VOID;
  else if (found->has_tags)
    standing = crl_tag_versions_judge(&found->tag_versions, found->tags);
  found->is_void = standing == CRL_STANDS_VOID;
  int expired = (found->header.flags & CORRAL_FLAG_EXPIRED) || standing == CRL_STANDS_EXPIRED;
  if (!found->is_void) look_at_value(found, &e->op[0], expired, look);
}

/* True if the store's watch will end the wait that follows this look. A watch that registers keys
 * learns of the look at the begin of the wait. */
static int is_watched(const crl_found *found, const crl_request *e, const crl_watcher *watcher) {
  const crl_watch *watch = found->context->watch;
  if (watch == NULL || !crl_watch_is_up(watch)) return 0;
  if (crl_watch_registers(watch)) return watcher == NULL || !crl_watch_refuses(watcher);
  return watcher != NULL && e->watched;
}

int crl_found_judge(crl_found *found, const crl_request *e, const crl_looker *looker,
                    crl_look *look) {
  memset(look, 0, sizeof *look);
  found->has_over = 0;
  if (e->has_header) look_at_header(found, &e->op[0], looker, look);
  if (look->lease_left > 0 || looker->watcher != NULL)
    look->watched = is_watched(found, e, looker->watcher) != 0;
  if (!e->has_payload) return e->read;
  found->stored_version = found->envelope.version;
  if (found->has_tags && !e->is_void && e->fetched != CORRAL_OK) return e->fetched;
  look_at_payload(found, e, look);
  return CORRAL_OK;
}

int crl_found_remembered(const crl_found *found, corral_header *ret) {
  crl_outbox_fill entry;
  const crl_key *key = &found->key;
  if (!crl_outbox_find(found->context->verdicts, key->stored, key->stored_len, crl_env_now_ms(),
                       &entry))
    return 0;
  int reads = crl_record_read_whole(entry.record->data, entry.record->size, ret) == CORRAL_OK;
  crl_bytes_unref(entry.record);
  return reads;
}

void crl_found_recall(crl_found *found, crl_look *look) {
  corral_header header;
  int64_t now = crl_env_now_ms();
  memset(look, 0, sizeof *look);
  if (!crl_found_remembered(found, &header)) return;
  int64_t left = header.until > now ? header.until - now : 0;
  if (header.state == CORRAL_VERDICT) {
    found->header = header;
    look->failures = header.failures;
    look->retry_left = left;
  } else {
    look->pause_left = left;
  }
}

int crl_found_met_slow(const crl_found *found, const crl_request *e) {
  int slow = 0;
  for (size_t i = 0; i < e->count; i++) slow |= (e->op[i].flags & CRL_OP_SLOW) != 0;
  for (size_t i = 0; i < found->tag_versions.count; i++)
    slow |= found->tag_versions.tag_version[i].slow;
  return slow;
}

/* ---- GET ----------------------------------------------------------------------------------- */

void crl_request_begin(const crl_found *found, crl_request *e, int64_t limit) {
  memset(e, 0, offsetof(crl_request, front));
  e->count = 1;
  e->limit = limit;
  e->began_us = has_hook(found) ? crl_env_now_us() : 0;
}

corral_op crl_found_op(crl_found *found, corral_verb verb) {
  found->error.text[0] = '\0';
  return (corral_op){.verb = verb,
                     .key = found->key.stored,
                     .key_len = found->key.stored_len,
                     .error = &found->error};
}

/* The versions that are read in the same round trip: of the tag that all values have, and of those
 * that the key was seen with. */
static int want_known(crl_found *found) {
  crl_tag_versions *versions = &found->tag_versions;
  const crl_context *context = found->context;
  crl_tag_versions_forget(versions);
  if (context->generation && !crl_tag_versions_want(versions, "", 0)) return 0;
  if (context->tag_memory != NULL) crl_tag_memory_want(context->tag_memory, found->hash, versions);
  return 1;
}

void crl_found_prepare(crl_found *found, crl_request *e, int watches) {
  const crl_context *context = found->context;
  crl_found_date_near(found, e);
  e->op[0] = crl_found_op(found, CORRAL_VERB_GET);
  if (!want_known(found)) {
    e->status = CORRAL_ENOMEM;
    e->count = 0;
  }
  if ((watches || crl_context_is_near(context, found->hash)) && context->watch != NULL)
    e->watched = crl_watch_up(context->watch);
}

void crl_found_perform(crl_found *found, crl_request *e) {
  if (found->tag_versions.count > 0 && crl_request_asks_tags(e))
    crl_tag_versions_perform(found->context, &found->tag_versions, crl_found_near_ms(found), e->op,
                             e->count, e->limit);
  else if (e->count > 0)
    crl_pool_perform(found->context->pool, e->op, e->count, e->limit);
}

/* Without the version of the tag that all values have, there is no answer. Another tag need not be
 * the record's. */
static void got_known(crl_found *found, crl_request *e) {
  const crl_tag_version *all = crl_tag_versions_find(&found->tag_versions, "", 0);
  if (found->context->generation && all != NULL && all->status != CORRAL_OK &&
      all->status != CORRAL_EMISS && all->status != CRL_TAG_WANTED)
    e->status = all->status;
  crl_tag_versions_retry(&found->tag_versions);
}

static int answers(int status) { return status == CORRAL_OK || status == CORRAL_EMISS; }

void crl_found_complete(crl_found *found, crl_request *e) {
  corral_op *op = &e->op[0];
  if (e->count == 0) return;
  e->status = op->status;
  found->took_us = crl_request_fact(e).duration_us;
  crl_found_tell_trouble(found, e);
  if (found->tag_versions.count > 0) got_known(found, e);
  if (answers(e->status))
    e->read = crl_found_read(found, e);
  else if (op->found.drop != NULL)
    op->found.drop(op->found.owner);
}

void crl_found_interpret(crl_found *found, const crl_request *e, const crl_looker *looker,
                         crl_told *told) {
  static const crl_looker first = {.hold = -1};
  if (looker == NULL) looker = &first;
  int read = answers(e->status) ? crl_found_judge(found, e, looker, &told->look) : CORRAL_OK;
  told->status = read == CORRAL_OK ? e->status : read;
  told->slow = crl_found_met_slow(found, e) != 0;
  if (!answers(told->status)) {
    crl_found_recall(found, &told->look);
  } else if (e->keeps && (told->look.lives.fresh > 0 || told->look.retry_left > 0)) {
    crl_found_keep_near(found, &told->look, e->epoch, e->looked);
  }
}

void crl_found_tell_miss(crl_found *found, const crl_told *told) {
  if (answers(told->status) && told->look.lives.fresh == 0 && told->look.lives.swr == 0)
    crl_found_emit(found, CORRAL_EVENT_MISS, NULL);
}

void crl_found_tell_answer(crl_found *found, corral_event event, const crl_outcome *outcome) {
  crl_fact fact = {.status = outcome->status, .duration_us = found->took_us, .bytes = -1};
  if (outcome->status == CORRAL_OK)
    fact.bytes = (int64_t)outcome->size;
  else if (outcome->status != CORRAL_ENOTFOUND)
    fact.detail = outcome->error.text;
  crl_found_tell(found, event, &fact);
}

void crl_found_fetch(crl_found *found, crl_request *e) {
  if (e->has_payload)
    e->fetched = crl_tag_versions_fetch(found->context, &found->tag_versions,
                                        crl_found_near_ms(found), e->limit, &found->error);
}

void crl_found_look(crl_found *found, crl_request *e, int64_t limit, crl_told *told) {
  crl_request_begin(found, e, limit);
  crl_found_prepare(found, e, 0);
  crl_found_perform(found, e);
  crl_found_complete(found, e);
  crl_found_fetch(found, e);
  crl_found_interpret(found, e, NULL, told);
}
