/* tag_versions.c: the versions of tags. A tag version's record is an envelope of kind
 * CRL_KIND_TAG_VERSION; its payload: 8 bytes hard, 8 soft, 1 changed. */
#include "tags/tag_versions.h"

#include <stdlib.h>

#include "os/env.h"
#include "os/readers.h"
#include "record/envelope.h"
#include "policy/policy.h"
#include "store/put.h"
#include "record/record.h"
#include "base/status.h"

enum { PAYLOAD = 17, LEASE_MS = 1000, TICK_MS = 2 };
enum { PAUSE_US = 1000, PAUSE_MOST_US = 16000 }; /* between two tries for a lease */

/* Life of a tag version in ms, longer than any value's. */
static const int64_t life = CRL_LIFE_MOST;

/* ---- the list ------------------------------------------------------------------------------ */

const crl_tag_version *crl_tag_versions_find(const crl_tag_versions *tag_versions, const void *name,
                                             size_t len) {
  for (size_t i = 0; i < tag_versions->count; i++)
    if (tag_versions->tag_version[i].len == len &&
        memcmp(tag_versions->tag_version[i].name, name, len) == 0)
      return &tag_versions->tag_version[i];
  return NULL;
}

int crl_tag_versions_want(crl_tag_versions *tag_versions, const void *name, size_t len) {
  if (crl_tag_versions_find(tag_versions, name, len) != NULL) return 1;
  if (tag_versions->count == tag_versions->room) {
    size_t room = tag_versions->room == 0 ? 4 : 2 * tag_versions->room;
    crl_tag_version *more = crl_alloc_more(tag_versions->tag_version, room * sizeof *more);
    if (more == NULL) return 0;
    tag_versions->tag_version = more;
    tag_versions->room = room;
  }
  crl_tag_version *tag_version = &tag_versions->tag_version[tag_versions->count++];
  memset(tag_version, 0, sizeof *tag_version);
  tag_version->status = CRL_TAG_WANTED;
  tag_version->len = (uint8_t)len;
  if (len > 0) memcpy(tag_version->name, name, len);
  return 1;
}

int crl_tag_versions_want_all(crl_tag_versions *tag_versions, const crl_tags *tags) {
  for (size_t i = 0; i < tags->count; i++)
    if (!crl_tag_versions_want(tag_versions, tags->tag[i].name, tags->tag[i].len)) return 0;
  return 1;
}

void crl_tag_versions_forget(crl_tag_versions *tag_versions) { tag_versions->count = 0; }

void crl_tag_versions_clean(crl_tag_versions *tag_versions) {
  free(tag_versions->tag_version);
  memset(tag_versions, 0, sizeof *tag_versions);
}

crl_standing crl_tag_versions_judge(const crl_tag_versions *tag_versions, const crl_tags *tags) {
  crl_standing standing = CRL_STANDS;
  for (size_t i = 0; i < tags->count; i++) {
    const crl_tag *tag = &tags->tag[i];
    const crl_tag_version *tag_version = crl_tag_versions_find(tag_versions, tag->name, tag->len);
    if (tag_version == NULL || tag_version->status != CORRAL_OK || tag_version->hard != tag->hard)
      return CRL_STANDS_VOID;
    if (tag_version->soft != tag->soft) standing = CRL_STANDS_EXPIRED;
  }
  return standing;
}

/* ---- records ------------------------------------------------------------------------------- */

/* On CORRAL_OK *key is to be given to crl_key_clean. */
static int make_key(crl_key *key, const crl_context *context, const void *tag, size_t len) {
  return crl_key_make(key, CRL_KEY_TAG, &context->space, &(crl_name){.key = tag, .key_len = len});
}

static uint64_t draw(void) {
  uint64_t number = 0;
  while (number == 0 && crl_env_random(&number, sizeof number) == CORRAL_OK) continue;
  return number;
}

/* malloc'ed; NULL without memory. */
static uint8_t *write_record(crl_key *key, const crl_tag_version *tag_version, size_t *size) {
  crl_envelope envelope = {.kind = CRL_KIND_TAG_VERSION,
                           .ttl_ms = life,
                           .created_ms = crl_env_wall_ms(),
                           .digest = crl_key_digest(key),
                           .payload_len = PAYLOAD};
  *size = crl_envelope_size(&envelope);
  uint8_t *record = crl_alloc(*size);
  if (record == NULL) return NULL;
  crl_record_put(record + CRL_PAYLOAD_AT, tag_version->hard, 8);
  crl_record_put(record + CRL_PAYLOAD_AT + 8, tag_version->soft, 8);
  record[CRL_PAYLOAD_AT + 16] = (uint8_t)tag_version->changed;
  crl_envelope_write(&envelope, record);
  return record;
}

static void read_payload(crl_tag_version *tag_version, const uint8_t *payload) {
  tag_version->hard = crl_record_take(payload, 8);
  tag_version->soft = crl_record_take(payload + 8, 8);
  tag_version->changed = payload[16] != 0;
}

static int read_record(crl_tag_version *tag_version, crl_key *key, const corral_op *op) {
  crl_envelope envelope;
  if (op->found.record == NULL || op->state.life_ms == 0) return CORRAL_EMISS;
  int status = crl_envelope_read(op->found.record, op->found.len, crl_key_digest(key), &envelope);
  if (status == CORRAL_ECORRUPT) return CORRAL_EMISS;
  if (status != CORRAL_OK) return status;
  if (envelope.kind != CRL_KIND_TAG_VERSION || envelope.payload_len != PAYLOAD) return CORRAL_EMISS;
  read_payload(tag_version, op->found.record + envelope.payload_at);
  tag_version->age_ms = crl_envelope_judge(&envelope, 0, op->state.life_ms, crl_env_wall_ms()).age;
  return CORRAL_OK;
}

static void take(crl_tag_version *tag_version, crl_key *key, corral_op *op) {
  tag_version->status = op->status == CORRAL_OK || op->status == CORRAL_EBUSY
                            ? read_record(tag_version, key, op)
                            : op->status;
  tag_version->changed_by = crl_env_now_ms() - tag_version->age_ms;
  tag_version->slow = (op->flags & CRL_OP_SLOW) != 0;
  if (op->found.drop != NULL) op->found.drop(op->found.owner);
  op->found.drop = NULL;
}

/* The GET of one tag version. */
typedef struct look {
  crl_tag_version *tag_version;
  crl_key key;
  uint64_t hash, epoch;
  int64_t looked;
  int keeps; /* the near tier wants a copy */
} look;

/* ---- the near tier ------------------------------------------------------------------------- */

static int find_near(crl_context *context, const look *a, int64_t near_ms, int64_t now) {
  if (context->near == NULL || near_ms <= 0 || !crl_readers_enter()) return 0;
  const crl_near_copy *copy =
      crl_near_look(context->near, a->hash, a->key.stored, a->key.stored_len, now);
  int knows = copy != NULL && copy->kind == CRL_KIND_TAG_VERSION &&
              (near_ms == CRL_NEAR_ANY_AGE ||
               (copy->looked + near_ms > now && crl_context_hears_of(context, copy)));
  if (knows) {
    read_payload(a->tag_version, copy->data);
    a->tag_version->status = CORRAL_OK;
    a->tag_version->age_ms = now - copy->made;
  }
  crl_readers_leave();
  return knows;
}

static void keep_near(crl_context *context, const look *a, uint64_t print) {
  uint8_t *payload = a->keeps && a->tag_version->status == CORRAL_OK ? crl_alloc(PAYLOAD) : NULL;
  if (payload == NULL) return;
  crl_record_put(payload, a->tag_version->hard, 8);
  crl_record_put(payload + 8, a->tag_version->soft, 8);
  payload[16] = (uint8_t)a->tag_version->changed;
  crl_bytes *bytes = crl_bytes_wrap(payload, PAYLOAD, free, payload);
  if (bytes == NULL) {
    free(payload);
    return;
  }
  crl_near_copy copy = {.bytes = bytes,
                        .size = PAYLOAD,
                        .kind = CRL_KIND_TAG_VERSION,
                        .looked = a->looked,
                        .made = a->looked - a->tag_version->age_ms,
                        .fresh_until = a->looked + life,
                        .ttl = life,
                        .print = print};
  if (crl_near_put(context->near, a->hash, a->key.stored, a->key.stored_len, &copy, a->epoch))
    crl_context_watch_copy(context, a->key.stored, a->key.stored_len, a->hash);
  crl_bytes_unref(bytes);
}

/* ---- reading ------------------------------------------------------------------------------- */

static void set_up(crl_context *context, look *l, corral_op *op) {
  l->looked = crl_env_now_ms();
  if (l->keeps && context->watch != NULL) (void)crl_watch_up(context->watch);
  if (l->keeps) l->epoch = crl_near_epoch(context->near, l->hash);
  *op = (corral_op){.verb = CORRAL_VERB_GET, .key = l->key.stored, .key_len = l->key.stored_len};
}

static void looked(crl_context *context, look *l, corral_op *op) {
  uint64_t print = l->keeps ? crl_watch_print(op->found.record, op->found.len) : 0;
  take(l->tag_version, &l->key, op);
  keep_near(context, l, print);
  crl_key_clean(&l->key);
}

static int aim(const crl_context *context, crl_tag_version *tag_version, look *l) {
  l->tag_version = tag_version;
  if (make_key(&l->key, context, tag_version->name, tag_version->len) != CORRAL_OK)
    return CORRAL_ENOMEM;
  l->hash = crl_key_hash(&l->key);
  return CORRAL_OK;
}

/* Lists the wanted tag versions that the near tier doesn't answer, with their keys.
 * CORRAL_ENOMEM. */
static int list_wanted(crl_context *context, crl_tag_versions *tag_versions, int64_t near_ms,
                       look *list, size_t *count) {
  int64_t now = crl_env_now_ms();
  *count = 0;
  for (size_t i = 0; i < tag_versions->count; i++) {
    look *l = &list[*count];
    if (tag_versions->tag_version[i].status != CRL_TAG_WANTED) continue;
    if (aim(context, &tag_versions->tag_version[i], l) != CORRAL_OK) return CORRAL_ENOMEM;
    l->keeps = context->near != NULL && (near_ms > 0 || !context->near_hot_only);
    if (find_near(context, l, near_ms, now))
      crl_key_clean(&l->key);
    else
      ++*count;
  }
  return CORRAL_OK;
}

static size_t count_wanted(const crl_tag_versions *tag_versions) {
  size_t count = 0;
  for (size_t i = 0; i < tag_versions->count; i++)
    count += tag_versions->tag_version[i].status == CRL_TAG_WANTED;
  return count;
}

static void clean_list(look *list, size_t count) {
  for (size_t i = 0; i < count; i++) crl_key_clean(&list[i].key);
}

/* Performs `count` operations of the caller's and those of the list, in one batch. 0 without
 * memory: none was performed. */
static int perform_with(crl_context *context, corral_op *ops, size_t count, look *list,
                        size_t looks, int64_t deadline) {
  corral_op *all = crl_alloc_more(NULL, (count + looks) * sizeof *all);
  if (all == NULL) return 0;
  if (count > 0) memcpy(all, ops, count * sizeof *all);
  for (size_t i = 0; i < looks; i++) set_up(context, &list[i], &all[count + i]);
  crl_pool_perform(context->pool, all, count + looks, deadline);
  if (count > 0) memcpy(ops, all, count * sizeof *all);
  for (size_t i = 0; i < looks; i++) looked(context, &list[i], &all[count + i]);
  free(all);
  return 1;
}

/* The first error among the tag versions of a list that were looked at. */
static int first_error(const look *list, size_t looks) {
  for (size_t i = 0; i < looks; i++) {
    int status = list[i].tag_version->status;
    if (status != CORRAL_OK && status != CORRAL_EMISS) return status;
  }
  return CORRAL_OK;
}

/* Reads the wanted tag versions; with a `deadline` of 0 from the near tier only. `ops`: the
 * caller's, performed with them. */
static int read_with(crl_context *context, crl_tag_versions *tag_versions, int64_t near_ms,
                     corral_op *ops, size_t count, int64_t deadline) {
  size_t wanted = count_wanted(tag_versions), looks = 0;
  int performed = 0, status = CORRAL_OK;
  look *list = wanted == 0 ? NULL : crl_alloc(wanted * sizeof *list);
  if (wanted > 0)
    status =
        list == NULL ? CORRAL_ENOMEM : list_wanted(context, tag_versions, near_ms, list, &looks);
  if (status == CORRAL_OK && looks > 0 && deadline > 0) {
    performed = perform_with(context, ops, count, list, looks, deadline);
    status = performed ? first_error(list, looks) : CORRAL_ENOMEM;
  } else if (status == CORRAL_OK && looks > 0) {
    status = CORRAL_EMISS;
  }
  if (!performed) clean_list(list, looks);
  if (!performed && count > 0) crl_pool_perform(context->pool, ops, count, deadline);
  free(list);
  return status;
}

void crl_tag_versions_perform(crl_context *context, crl_tag_versions *tag_versions, int64_t near_ms,
                              corral_op *ops, size_t count, int64_t deadline) {
  (void)read_with(context, tag_versions, near_ms, ops, count, deadline);
}

void crl_tag_versions_retry(crl_tag_versions *tag_versions) {
  for (size_t i = 0; i < tag_versions->count; i++) {
    int *status = &tag_versions->tag_version[i].status;
    if (*status != CORRAL_OK && *status != CORRAL_EMISS) *status = CRL_TAG_WANTED;
  }
}

static int say(int status, corral_error *error) {
  return status == CORRAL_OK
             ? status
             : crl_status_fail(error, status, "a tag's version: %s", corral_status_text(status));
}

int crl_tag_versions_fetch(crl_context *context, crl_tag_versions *tag_versions, int64_t near_ms,
                           int64_t deadline, corral_error *error) {
  return say(read_with(context, tag_versions, near_ms, NULL, 0, deadline), error);
}

crl_standing crl_tag_versions_standing(crl_context *context, const uint8_t *metadata,
                                       size_t metadata_len, const crl_tag_versions_source *source) {
  crl_tag_versions tag_versions = {0};
  crl_standing standing = CRL_STANDS_VOID;
  if (metadata_len == 0) return context->generation ? CRL_STANDS_VOID : CRL_STANDS;
  crl_tags *tags = crl_alloc(sizeof *tags);
  if (tags != NULL && crl_tags_read(metadata, metadata_len, tags) &&
      (!context->generation || crl_tags_find(tags, "", 0) != NULL) &&
      crl_tag_versions_want_all(&tag_versions, tags) &&
      read_with(context, &tag_versions, source->near_ms, NULL, 0, source->deadline) == CORRAL_OK)
    standing = crl_tag_versions_judge(&tag_versions, tags);
  crl_tag_versions_clean(&tag_versions);
  free(tags);
  return standing;
}

/* ---- making -------------------------------------------------------------------------------- */

static int settle(crl_context *context, crl_key *key, const uint8_t *token,
                  const crl_tag_version *tag_version) {
  size_t size = 0;
  uint8_t *record = write_record(key, tag_version, &size);
  corral_op op = {.verb = record == NULL ? CORRAL_VERB_RELEASE : CORRAL_VERB_SETTLE,
                  .key = key->stored,
                  .key_len = key->stored_len,
                  .token = token};
  if (record != NULL)
    op.settle = (corral_settle_args){.record = record, .record_len = size, .ttl_ms = life};
  crl_pool_perform(context->pool, &op, 1, crl_env_now_ms() + context->op_ms);
  free(record);
  return record == NULL ? CORRAL_ENOMEM : op.status;
}

static void release(crl_context *context, const crl_key *key, const uint8_t *token) {
  corral_op op = {
      .verb = CORRAL_VERB_RELEASE, .key = key->stored, .key_len = key->stored_len, .token = token};
  crl_pool_perform(context->pool, &op, 1, crl_env_now_ms() + context->op_ms);
}

/* True when the change surely came before a compute that began at `began`. */
static int is_before(const crl_context *context, const crl_tag_version *changed, int64_t began) {
  return changed->changed_by + crl_pool_info(context->pool)->clock_skew_ms + TICK_MS < began;
}

/* Under the tag version's lease: makes the tag version if the store has none; with `expires`, draws
 * a new soft version. One try; CORRAL_EBUSY, CORRAL_ELOST: try again. */
static int try_under_lease(crl_context *context, crl_key *key, crl_tag_version *tag_version,
                           int expires) {
  uint8_t wish[CORRAL_FRONT];
  uint8_t token[CORRAL_TOKEN];
  if (crl_env_random(token, sizeof token) != CORRAL_OK) return CORRAL_EIO;
  corral_op op = {.verb = CORRAL_VERB_CLAIM,
                  .key = key->stored,
                  .key_len = key->stored_len,
                  .token = token,
                  .claim = {.lease_ms = LEASE_MS,
                            .front = wish,
                            .front_len = crl_put_wish(crl_key_digest(key), 0, wish)}};
  crl_pool_perform(context->pool, &op, 1, crl_env_now_ms() + context->op_ms);
  int status = op.status;
  take(tag_version, key, &op);
  if (status != CORRAL_OK)
    return status == CORRAL_EBUSY && tag_version->status == CORRAL_OK && !expires ? CORRAL_OK
                                                                                  : status;
  int there = tag_version->status == CORRAL_OK;
  if (there && !expires) {
    release(context, key, token);
    return CORRAL_OK;
  }
  if (!there) tag_version->hard = draw();
  tag_version->soft = draw();
  tag_version->changed = expires;
  tag_version->age_ms = 0;
  status = settle(context, key, token, tag_version);
  if (status == CORRAL_OK) {
    tag_version->status = CORRAL_OK;
    tag_version->made_here = 1;
  }
  return status;
}

/* Another process has the lease for one round trip, or for longer where it isn't scheduled: tries
 * again for as long as one operation may take. */
static int under_lease(crl_context *context, crl_tag_version *tag_version, int expires) {
  crl_key key;
  int64_t pause = PAUSE_US, until = crl_env_now_ms() + context->op_ms;
  int status = make_key(&key, context, tag_version->name, tag_version->len);
  if (status != CORRAL_OK) return status;
  status = try_under_lease(context, &key, tag_version, expires);
  while ((status == CORRAL_EBUSY || status == CORRAL_ELOST) && crl_env_now_ms() < until) {
    crl_env_pause_us(pause);
    if (pause < PAUSE_MOST_US) pause *= 2;
    status = try_under_lease(context, &key, tag_version, expires);
  }
  crl_key_clean(&key);
  return status;
}

static int stamp_all(crl_context *context, crl_tags *tags, const crl_tag_versions *before,
                     crl_tag_versions *now, int64_t began) {
  for (size_t i = 0; i < tags->count; i++) {
    crl_tag *tag = &tags->tag[i];
    const crl_tag_version *tag_version = crl_tag_versions_find(before, tag->name, tag->len);
    if (tag_version == NULL || tag_version->status != CORRAL_OK) {
      crl_tag_version *found =
          (crl_tag_version *)(uintptr_t)crl_tag_versions_find(now, tag->name, tag->len);
      int status = found->status == CORRAL_EMISS ? under_lease(context, found, 0) : CORRAL_OK;
      if (status != CORRAL_OK) return status == CORRAL_EBUSY ? CORRAL_ELOST : status;
      if (!found->made_here && found->changed && !is_before(context, found, began))
        return CORRAL_ELOST;
      tag_version = found;
    }
    tag->hard = tag_version->hard;
    tag->soft = tag_version->soft;
  }
  return CORRAL_OK;
}

int crl_tag_versions_stamp(crl_context *context, crl_tags *tags, const crl_tag_versions *before,
                           int64_t began, corral_error *error) {
  crl_tag_versions now = {0};
  int status = CORRAL_OK;
  for (size_t i = 0; i < tags->count && status == CORRAL_OK; i++) {
    const crl_tag_version *tag_version =
        crl_tag_versions_find(before, tags->tag[i].name, tags->tag[i].len);
    if ((tag_version == NULL || tag_version->status != CORRAL_OK) &&
        !crl_tag_versions_want(&now, tags->tag[i].name, tags->tag[i].len))
      status = CORRAL_ENOMEM;
  }
  if (status == CORRAL_OK)
    status = crl_tag_versions_fetch(context, &now, 0, crl_env_now_ms() + context->op_ms, error);
  if (status == CORRAL_OK) status = stamp_all(context, tags, before, &now, began);
  crl_tag_versions_clean(&now);
  return say(status, error);
}

/* ---- changing ------------------------------------------------------------------------------ */

static void forget_near(crl_context *context, const crl_key *key) {
  if (context->near != NULL) crl_near_drop(context->near, crl_key_hash(key));
}

/* Replaces the tag version without a gap: in a gap, a compute from before would find no tag version
 * and take the tag for a new one. A store that can't be reached gets the new tag version when it is
 * back, for the same reason. */
static int put_new(crl_context *context, crl_key *key, const crl_tag_version *tag_version,
                   corral_error *error) {
  size_t size = 0;
  int is_unheard = 0;
  uint8_t *record = write_record(key, tag_version, &size);
  crl_bytes *bytes = record == NULL ? NULL : crl_bytes_wrap(record, size, free, record);
  if (bytes == NULL) {
    free(record);
    return crl_status_plain(error, CORRAL_ENOMEM);
  }
  crl_put put = {.key = key->stored,
                 .key_len = key->stored_len,
                 .record = record,
                 .record_len = size,
                 .hard_ttl = life,
                 .lease_ms = LEASE_MS,
                 .op_ms = context->op_ms,
                 .replaces = 1,
                 .unheard = &is_unheard};
  int status = crl_put_record(context->pool, &put, crl_env_now_ms() + context->op_ms, error);
  forget_near(context, key);
  if (status == CORRAL_EUNAVAILABLE || status == CORRAL_EINDOUBT) {
    crl_outbox_invalidate(context->outbox, key->stored, key->stored_len, bytes, crl_env_now_ms());
    if (is_unheard)
      crl_pool_doubt(context->pool, crl_pool_route(context->pool, key->stored, key->stored_len));
  }
  crl_bytes_unref(bytes);
  return status;
}

int crl_tag_versions_change(crl_context *context, const void *name, size_t len, int only_expire,
                            corral_error *error) {
  crl_tag_version tag_version = {.len = (uint8_t)len, .changed = 1};
  crl_key key;
  if (len > 0) memcpy(tag_version.name, name, len);
  int status = make_key(&key, context, name, len);
  if (status != CORRAL_OK) return crl_status_plain(error, status);
  if (only_expire) {
    status = under_lease(context, &tag_version, 1);
    forget_near(context, &key);
    crl_key_clean(&key);
    return say(status, error);
  }
  tag_version.hard = draw();
  tag_version.soft = draw();
  status = put_new(context, &key, &tag_version, error);
  crl_key_clean(&key);
  return status;
}
