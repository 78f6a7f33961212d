/* test_redis_model.c: the scripts of the Redis plugin compared with crl_record_decide of
 * src/record/record.c: the same verbs on the same records. */
#include "support/redis_kit.h"

enum { KEYS = 4, TOKENS = 3, STEPS = 12000 };

typedef struct model {
  uint8_t *record; /* NULL: none */
  size_t size;
  int64_t expires;
} model;

static uint32_t seed;

static uint32_t pick(uint32_t below) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % below;
}

static void model_clear(model *m) {
  free(m->record);
  memset(m, 0, sizeof *m);
}

/* Dates a lease whose end is that of its key, as the plugin and its scripts do. */
static void model_date(model *m) {
  corral_header header;
  if (m->record == NULL || crl_record_read_whole(m->record, m->size, &header) != CORRAL_OK ||
      header.state != CORRAL_LEASED || header.body > 0 || header.until != 0)
    return;
  int64_t until = m->expires - CORRAL_LEASE_KEPT_MS;
  crl_record_put(m->record + CORRAL_HEAD + 8, (uint64_t)until, 8);
  crl_record_put(m->record + CORRAL_HEAD + 16, (uint64_t)(until - header.length_ms), 8);
}

static void model_perform(model *m, corral_op *op, int64_t now) {
  corral_change change;
  uint8_t front[CORRAL_FRONT];
  if (m->record != NULL && m->expires <= now) model_clear(m);
  model_date(m);
  size_t len = m->record == NULL ? 0 : crl_record_front(m->record, m->size, front);
  crl_record_decide(op, m->record == NULL ? NULL : front, len, now, &change);
  if (change.action == CORRAL_ACTION_REMOVE) model_clear(m);
  if (change.action != CORRAL_ACTION_EDIT && change.action != CORRAL_ACTION_REPLACE) return;
  uint8_t *record = malloc(change.front_len + change.body_len);
  assert_non_null(record);
  crl_record_join(
      &change, change.action == CORRAL_ACTION_EDIT ? m->record + CORRAL_HEAD : change.body, record);
  free(m->record);
  *m = (model){record, change.front_len + change.body_len, change.expires};
}

/* A plausible time or an absurd one. Plausible times are hours from now, because the two clocks may
 * differ a little. */
static int64_t some_moment(int64_t now) {
  static const int64_t wild[] = {
      0, INT64_MIN, INT64_MAX, -1, INT64_C(1) << 53, -(INT64_C(1) << 60), INT64_C(1) << 62};
  if (pick(6) == 0) return wild[pick(sizeof wild / sizeof *wild)];
  return now + ((int64_t)pick(19) - 9) * HOUR + HOUR / 2;
}

/* Stores a random record in the server and the model: leases over and running, bodies dead and
 * alive, impossible ends, cut records, bytes behind a record, earlier and later formats, another
 * key's digest, foreign data. */
static void plant(model *m, const char *key, int64_t now) {
  corral_header header = {
      .state = (uint8_t)pick(3), .flags = (uint8_t)pick(2), .failures = pick(5), .note = "planted"};
  size_t size = pick(3) == 0 ? 0 : 1 + pick(300), len;
  int64_t ttl = 20 * HOUR;
  if (header.state != CORRAL_FREE) {
    memcpy(header.token, token(pick(TOKENS)), CORRAL_TOKEN);
    header.until = some_moment(now);
    header.since = some_moment(now);
    header.length_ms = pick(3) == 0 ? pick(2) * UINT32_MAX : (uint32_t)(1 + pick(9)) * HOUR;
    header.code = (int32_t)pick(1000) - 500;
    header.cost_ms = pick(1000);
  }
  if (size > 0) header.life_end = some_moment(now);
  if (pick(4) != 0) memset(header.digest, 'd', sizeof header.digest);
  uint8_t *record = record_make(header, size, (uint8_t)(1 + pick(3)), &len);
  assert_non_null(record);
  /* another format */
  if (pick(8) == 0) record[3] = (uint8_t)('1' + pick(3));
  /* foreign data */
  if (pick(16) == 0) record[pick(3)] = 'x';
  if (pick(16) == 0) record[4] = (uint8_t)pick(256); /* an unknown state */
  /* any length of the body or the lease */
  if (pick(8) == 0) memset(record + 16 + pick(4), (int)pick(256), 1);
  if (pick(16) == 0 && header.state != CORRAL_FREE)
    memset(record + len - pick((uint32_t)(len - CORRAL_HEAD)) - 1, (int)pick(256), 1);
  if (pick(8) == 0) len -= pick((uint32_t)len); /* cut */
  /* The life of an unleased body is the key's TTL. */
  corral_header as_read;
  int reads = crl_record_read_whole(record, len, &as_read) == CORRAL_OK &&
              as_read.state == CORRAL_FREE && as_read.body > 0;
  if (reads && as_read.life_end > now && as_read.life_end - now < ttl) ttl = as_read.life_end - now;
  redis_server_ask(server, "SET %s %b PX %lld", key, record, len, (long long)ttl);
  free(m->record);
  *m = (model){record, len, now + ttl};
}

/* A random operation; *record is its record, to be freed by the caller. */
static corral_op random_op(const char *key, uint8_t **record) {
  corral_op op = op_of((corral_verb)(1 + pick(CORRAL_VERB_RENEW)), key, pick(TOKENS));
  corral_header header = {.failures = pick(9), .note = "random"};
  op_lasts(&op, op.verb == CORRAL_VERB_RELEASE ? (int64_t)(1 + pick(9)) * HOUR : HOUR);
  op_keeps(&op, (int64_t)(1 + pick(9)) * HOUR);
  if (op.verb == CORRAL_VERB_CLAIM) {
    if (pick(2) == 0) op.flags = CORRAL_OP_ABSENT;
    op.claim.seen = pick(3) * UINT64_C(0x0101010101010101);
    if (pick(4) == 0) op.claim.over = token(pick(TOKENS));
  }
  if (pick(8) != 0) memset(header.digest, 'd', sizeof header.digest);
  size_t size = op.verb == CORRAL_VERB_SETTLE ? (pick(4) == 0 ? 6000 : pick(200)) : 0;
  if (op.verb == CORRAL_VERB_CLAIM) header.state = CORRAL_LEASED;
  if (op.verb == CORRAL_VERB_CLAIM) header.cost_ms = pick(1000);
  if (op.verb == CORRAL_VERB_RELEASE) header.state = CORRAL_VERDICT;
  if (op.verb == CORRAL_VERB_RELEASE) header.code = (int32_t)pick(9) - 4;
  size_t len;
  *record = record_make(header, size, (uint8_t)(1 + pick(3)), &len);
  if (op.verb == CORRAL_VERB_SETTLE || pick(2) == 0) op_brings(&op, *record, len);
  return op;
}

static int near(int64_t a, int64_t b) {
  return a == b || (a < b ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b) < SLACK;
}

/* Returns the name of a field in which Redis and the model differ; NULL: none. */
static const char *difference(const corral_op *real, const corral_op *wanted, const model *m) {
  corral_header a, b;
  if (real->status != wanted->status) return "status";
  if (wanted->verb != CORRAL_VERB_GET && wanted->verb != CORRAL_VERB_CLAIM) return NULL;
  if (real->state.same != wanted->state.same) return "same";
  int finds = wanted->status == CORRAL_OK || wanted->status == CORRAL_EBUSY;
  if (finds != (real->found.record != NULL)) return "found";
  if (!finds) return NULL;
  if (!near(real->state.life_ms, wanted->state.life_ms)) return "life_ms";
  if (!near(real->state.left_ms, wanted->state.left_ms)) return "left_ms";
  if (crl_record_read_found(real, &a) != CORRAL_OK) return "header";
  if (crl_record_read_whole(m->record, m->size, &b) != CORRAL_OK) return "the model's header";
  if (a.state != b.state || a.flags != b.flags || memcmp(a.token, b.token, CORRAL_TOKEN) != 0)
    return "state, flags, token";
  if (a.body != b.body || a.stamp != b.stamp || memcmp(a.digest, b.digest, CORRAL_DIGEST) != 0)
    return "body, stamp, digest";
  if (a.body > 0 && !near(a.life_end, b.life_end)) return "life_end";
  if (!near(a.until, b.until) || !near(a.since, b.since) || a.length_ms != b.length_ms)
    return "until, since, length";
  if (a.cost_ms != b.cost_ms || a.code != b.code || a.failures != b.failures)
    return "cost, code, failures";
  if (memcmp(a.note, b.note, CORRAL_NOTE) != 0) return "note";
  return !real->state.same &&
                 memcmp(real->found.record + CORRAL_HEAD, m->record + CORRAL_HEAD, a.body) != 0
             ? "body"
             : NULL;
}

/* The key must have the model's TTL, and never be without one. */
static void check_ttl(const char *key, const model *m, uint32_t verb, int64_t now) {
  long long left = pttl(key);
  if (m->record != NULL && m->expires - now < SLACK) return;
  if (m->record == NULL ? left != -2 : !near(left, m->expires - now) || left < 0)
    fail_msg("seed %u, verb %u: %s has a TTL of %lld instead of %lld", seed, verb, key, left,
             (long long)(m->expires - now));
}

/* True when the clocks of server and model may disagree about an end so close: that of the key, or
 * of a lease whose length a planted record has made a few ms. */
static int ends_soon(const model *m, int64_t now) {
  corral_header header;
  if (m->record == NULL) return 0;
  if (m->expires - now < SLACK) return 1;
  return crl_record_read_whole(m->record, m->size, &header) == CORRAL_OK &&
         header.state != CORRAL_FREE && near(header.until, now);
}

static void random_ops_do_what_the_model_says(void **state) {
  (void)state;
  client c = begin();
  static const char *const keys[KEYS] = {"a", "b", "{c}", "d}"};
  model models[KEYS] = {{0}};
  uint32_t first = seed = (uint32_t)c.host->now_ms();
  for (int i = 0; i < STEPS; i++) {
    uint32_t k = pick(KEYS), at = seed;
    if (pick(8) == 0) plant(&models[k], keys[k], server_now());
    if (ends_soon(&models[k], server_now())) { /* planted so */
      redis_server_ask(server, "DEL %s", keys[k]);
      model_clear(&models[k]);
    }
    uint8_t *record;
    corral_op real = random_op(keys[k], &record), wanted = real;
    int64_t now = server_now();
    model_perform(&models[k], &wanted, now);
    assert_int_equal(perform(&c, &real, 1), CORRAL_OK);
    const char *differs = difference(&real, &wanted, &models[k]);
    if (differs != NULL)
      fail_msg("seed %u, step %d (%u): verb %u: %s differs: %s against %s of the model, life %lld "
               "%lld, until %lld %lld",
               first, i, at, real.verb, differs, corral_status_name(real.status),
               corral_status_name(wanted.status), (long long)real.state.life_ms,
               (long long)wanted.state.life_ms, (long long)real.state.left_ms,
               (long long)wanted.state.left_ms);
    check_ttl(keys[k], &models[k], wanted.verb, now);
    dropped(&real);
    free(record);
    if (ends_soon(&models[k], now)) {
      redis_server_ask(server, "DEL %s", keys[k]);
      model_clear(&models[k]);
    }
  }
  for (size_t k = 0; k < KEYS; k++) free(models[k].record);
  closed(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_ops_do_what_the_model_says),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
