/* fuzz_scripts.c: the scripts of the Redis plugin on a real server against crl_record_decide of
 * src/record/record.c: the same verbs on the same records with any content. The model and the
 * comparison are those of tests/test_redis_model.c.
 *
 * Input: flags (1: the record gets the right magic and format; 2: its times are set to hours from
 * now), up to 3 operations, the record. */
#include "fuzz.h"

#define main test_redis_model_main
#include "../tests/test_redis_model.c"
#undef main

enum {
  OPS = 3,
  RECORD_MOST = 4096,
  AT_LIFE = 8,
  AT_BODY = 16,
  AT_LEASE_UNTIL = 8,
  AT_LEASE_SINCE = 16
};

static client c;

static void end_server(void) { redis_server_stop(server); }

static void begin_server(void) {
  if (server != NULL) return;
  if (!redis_server_start(&server, NULL)) {
    (void)fprintf(stderr, "SKIPPED: there is no redis-server\n");
    exit(77);
  }
  (void)test_redis_model_main;
  MUST(atexit(end_server) == 0);
  MUST(try_open(&c, redis_server_unix_uri(server)) == CORRAL_OK);
}

/* Sets a time far enough from now that the clocks of model and server agree about it. */
static void set_moment(uint8_t *record, size_t size, size_t at, int64_t now) {
  if (at > size || size - at < 8) return;
  int8_t hours = (int8_t)record[at];
  crl_record_put(record + at, (uint64_t)(now + hours * (int64_t)HOUR + HOUR / 2), 8);
}

static void make_right(uint8_t *record, size_t size, uint8_t flags, int64_t now) {
  if (flags & 1 && size >= 4) memcpy(record, "crl2", 4);
  if (!(flags & 2) || size < CORRAL_HEAD) return;
  size_t lease = CORRAL_HEAD + (size_t)crl_record_take(record + AT_BODY, 4);
  set_moment(record, size, AT_LIFE, now);
  set_moment(record, size, lease + AT_LEASE_UNTIL, now);
  set_moment(record, size, lease + AT_LEASE_SINCE, now);
}

static int is_soon(int64_t moment, int64_t now) { return moment != 0 && near(moment, now); }

/* True when the record has a time close to now, which the two clocks may judge differently. */
static int is_doubtful(const model *m, int64_t now) {
  corral_header header;
  if (m->record == NULL) return 0;
  if (m->expires - now < SLACK) return 1;
  if (crl_record_read_whole(m->record, m->size, &header) != CORRAL_OK) return 0;
  return is_soon(header.life_end, now) || is_soon(header.until, now) || is_soon(header.since, now);
}

/* Stores the record under the key, in the server and in the model. */
static void put(model *m, uint8_t *record, size_t size, int64_t now) {
  corral_header header;
  int64_t ttl = CRL_RECORD_LIFE_MOST + HOUR; /* longer than any life */
  int reads = crl_record_read_whole(record, size, &header) == CORRAL_OK;
  int is_body = reads && header.state == CORRAL_FREE && header.body > 0;
  if (is_body && header.life_end > now && header.life_end - now < ttl) ttl = header.life_end - now;
  redis_server_ask(server, "SET %s %b PX %lld", "k", record, size, (long long)ttl);
  *m = (model){record, size, now + ttl};
}

static corral_op next_op(fuzz_input *in, uint8_t **record) {
  uint8_t shape = fuzz_byte(in);
  corral_op op = op_of((corral_verb)(1 + fuzz_byte(in) % CORRAL_VERB_RENEW), "k", shape & 3);
  corral_header header = {.failures = 2, .note = "wish"};
  if (op.verb == CORRAL_VERB_CLAIM) {
    op.claim.seen = shape & 4 ? UINT64_C(0x0101010101010101) : 0;
    op.claim.over = shape & 8 ? token(shape >> 4 & 3) : NULL;
  }
  memset(header.digest, shape & 64 ? 'd' : 'D', sizeof header.digest);
  header.state = op.verb == CORRAL_VERB_CLAIM     ? CORRAL_LEASED
                 : op.verb == CORRAL_VERB_RELEASE ? CORRAL_VERDICT
                                                  : CORRAL_FREE;
  if (op.verb == CORRAL_VERB_CLAIM) header.cost_ms = 7;
  if (op.verb == CORRAL_VERB_RELEASE) header.code = -3;
  size_t len;
  *record = record_make(header, op.verb == CORRAL_VERB_SETTLE ? 20 : 0, 1, &len);
  if (op.verb == CORRAL_VERB_SETTLE || op.verb == CORRAL_VERB_CLAIM || shape & 128)
    op_brings(&op, *record, len);
  return op;
}

static void compare(model *m, fuzz_input *in) {
  uint8_t *record;
  corral_op real = next_op(in, &record), wanted = real;
  int64_t now = server_now();
  model_perform(m, &wanted, now);
  MUST(perform(&c, &real, 1) == CORRAL_OK);
  const char *differs = difference(&real, &wanted, m);
  if (differs != NULL)
    (void)fprintf(
        stderr,
        "verb %u: %s differs: %s, life %lld, until %lld; of the model: %s, life %lld, until %lld\n",
        real.verb, differs, corral_status_name(real.status), (long long)real.state.life_ms,
        (long long)real.state.left_ms, corral_status_name(wanted.status),
        (long long)wanted.state.life_ms, (long long)wanted.state.left_ms);
  MUST(differs == NULL);
  long long left = pttl("k");
  MUST(m->record == NULL ? left == -2 : left >= 0 || (left == -2 && m->expires - now < SLACK));
  dropped(&real);
  free(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t ops[2 * OPS] = {0};
  fuzz_input in = {data, size}, of_ops = {ops, sizeof ops};
  uint8_t flags = fuzz_byte(&in);
  model m = {0};
  begin_server();
  for (size_t i = 0; i < sizeof ops; i++) ops[i] = fuzz_byte(&in);
  uint8_t *record = fuzz_bytes(&in, RECORD_MOST, &size);
  int64_t now = server_now();
  make_right(record, size, flags, now);
  if (size == 0) { /* a script reads an empty string as no record */
    free(record);
    return 0;
  }
  put(&m, record, size, now);
  for (int i = 0; i < 1 + (flags >> 2) % OPS && !is_doubtful(&m, server_now()); i++)
    compare(&m, &of_ops);
  free(m.record);
  return 0;
}
