/* test_redis_model.c: the scripts of the Redis plugin against decide of src/record.c: the same verbs on the same records. */
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

static void model_put(model *m, const uint8_t *head, const uint8_t *body, size_t size, int64_t expires) {
  uint8_t *record = malloc(CORRAL_HEADER + size);
  assert_non_null(record);
  memcpy(record, head, CORRAL_HEADER);
  if (size > 0) memcpy(record + CORRAL_HEADER, body, size);
  free(m->record);
  *m = (model){record, CORRAL_HEADER + size, expires};
}

static void model_perform(model *m, corral_op *op, int64_t now) {
  corral_change change;
  crl_record_decide(op, m->record, m->size, now, &change);
  if (change.action == CORRAL_ACTION_EDIT) {
    memcpy(m->record, change.header, CORRAL_HEADER);
    m->expires = change.expires;
  } else if (change.action == CORRAL_ACTION_REPLACE) {
    model_put(m, change.header, change.body, change.body_len, change.expires);
  } else if (change.action == CORRAL_ACTION_REMOVE) {
    free(m->record);
    memset(m, 0, sizeof *m);
  }
}

/* Puts a record of any kind under the key, in both: leases over and under way, payloads and marks dead and alive. */
static void plant(model *m, const char *key, int64_t now) {
  corral_header header = {.state = (uint8_t)pick(3), .flags = (uint8_t)pick(4), .failures = pick(5), .note = "planted"};
  uint8_t body[200], head[CORRAL_HEADER];
  size_t size = pick(3) == 0 ? 0 : 8 + pick(190);
  int64_t ttl = (int64_t)(1 + pick(9)) * HOUR;
  memset(body, (int)pick(3), sizeof body);
  if (header.state != CORRAL_FREE) {
    memcpy(header.token, token(pick(TOKENS)), CORRAL_TOKEN);
    header.until = now + (pick(2) == 0 ? -HOUR : (int64_t)(1 + pick(9)) * HOUR);
    header.since = now - 2 * HOUR;
    header.code = (int32_t)pick(1000) - 500;
    header.cost_ms = pick(1000);
  }
  int marked = (header.flags & CORRAL_FLAG_INVALIDATED) != 0; /* mostly alone, but a body behind it must not matter */
  if (marked && pick(4) != 0) size = 0;
  if (marked || (size > 0 && pick(2) == 0)) header.life_end = now + (pick(2) == 0 ? -HOUR : ttl - HOUR / 2);
  crl_record_write(&header, head);
  redis_server_ask(server, "SET %s %b PX %lld", key, head, (size_t)CORRAL_HEADER, (long long)ttl);
  if (size > 0) redis_server_ask(server, "APPEND %s %b", key, body, size);
  if (size > 0 && header.life_end == 0) header.life_end = now + ttl; /* what the TTL says on Redis */
  crl_record_write(&header, head);
  model_put(m, head, body, size, now + ttl);
}

/* A random op; `record` has room for its record. */
static corral_op random_op(const char *key, uint8_t *record) {
  corral_op op = op_of((corral_verb)(1 + pick(CORRAL_VERB_RENEW)), key, pick(TOKENS));
  corral_header header = {.cost_ms = pick(1000), .code = (int32_t)pick(9) - 4, .failures = pick(9), .note = "random"};
  op.lease_ms = (int64_t)(1 + pick(9)) * HOUR;
  op.ttl_ms = (int64_t)(1 + pick(9)) * HOUR;
  if (op.verb == CORRAL_VERB_INVALIDATE && pick(3) == 0) op.ttl_ms = 0;
  op.seen = pick(2) * UINT64_C(0x0101010101010101);
  size_t size = op.verb == CORRAL_VERB_SETTLE ? (pick(4) == 0 ? 6000 : pick(200)) : 0;
  memset(record + CORRAL_HEADER, (int)pick(3), size);
  crl_record_write(&header, record);
  if (op.verb == CORRAL_VERB_SETTLE || pick(2) == 0) op.record = record;
  op.record_len = CORRAL_HEADER + size;
  return op;
}

static int near(int64_t a, int64_t b) { return a - b < SLACK && b - a < SLACK; }

/* What differs between what Redis says and what the model says; NULL when nothing. */
static const char *difference(const corral_op *real, const corral_op *wanted, const model *m) {
  corral_header a, b;
  if (real->status != wanted->status) return "status";
  if (wanted->verb != CORRAL_VERB_GET && wanted->verb != CORRAL_VERB_CLAIM) return NULL;
  if (real->same != wanted->same) return "same";
  if (wanted->status == CORRAL_EMISS) return real->found != NULL ? "found" : NULL;
  if (!near(real->life_ms, wanted->life_ms)) return "life_ms";
  if (!near(real->until_ms, wanted->until_ms)) return "until_ms";
  if (real->found_len != (real->same ? CORRAL_HEADER : m->size)) return "size";
  if (crl_record_read(real->found, real->found_len, &a) != CORRAL_OK) return "header";
  crl_record_read(m->record, m->size, &b);
  if (a.state != b.state || a.flags != b.flags || memcmp(a.token, b.token, CORRAL_TOKEN) != 0) return "state, flags, token";
  if ((a.flags & CORRAL_FLAG_INVALIDATED) != 0 && !near(a.life_end, b.life_end)) return "life_end";
  if (!near(a.until, b.until) || !near(a.since, b.since)) return "until, since";
  if (a.cost_ms != b.cost_ms || a.code != b.code || a.failures != b.failures) return "cost, code, failures";
  if (memcmp(a.note, b.note, CORRAL_NOTE) != 0) return "note";
  size_t body = real->found_len - CORRAL_HEADER;
  return memcmp(real->found + CORRAL_HEADER, m->record + CORRAL_HEADER, body) != 0 ? "payload" : NULL;
}

/* No key without TTL, and the TTL the model says. */
static void check_ttl(const char *key, const model *m, int64_t now) {
  long long left = pttl(key);
  if (m->record == NULL ? left != -2 : !near(left, m->expires - now) || left < 0)
    fail_msg("seed %u: %s has a TTL of %lld instead of %lld", seed, key, left, (long long)(m->expires - now));
}

static void random_ops_do_what_the_model_says(void **state) {
  (void)state;
  client c = begin();
  static const char *const keys[KEYS] = {"a", "b", "{c}", "d}"};
  static uint8_t record[CORRAL_HEADER + 8192];
  model models[KEYS] = {{0}};
  uint32_t first = seed = (uint32_t)c.host->now_ms();
  for (int i = 0; i < STEPS; i++) {
    uint32_t k = pick(KEYS), at = seed;
    if (pick(8) == 0) plant(&models[k], keys[k], server_now());
    corral_op real = random_op(keys[k], record), wanted = real;
    int64_t now = server_now();
    model_perform(&models[k], &wanted, now);
    assert_int_equal(perform(&c, &real, 1), CORRAL_OK);
    const char *differs = difference(&real, &wanted, &models[k]);
    if (differs != NULL)
      fail_msg("seed %u, step %d (%u): verb %u: %s differs: %s against %s of the model, life %lld %lld", first, i, at, real.verb, differs,
               corral_status_name(real.status), corral_status_name(wanted.status), (long long)real.life_ms, (long long)wanted.life_ms);
    check_ttl(keys[k], &models[k], now);
    dropped(&real);
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
