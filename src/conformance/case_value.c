/* case_value.c: payloads and keys of any bytes and any size. */
#include "conformance.h"

enum { OWNER = 1, OTHER = 2, MIB = 1 << 20 };

static const char awkward[] = "END\r\n$-1\r\n\0VALUE k 0 1\r\n*0\r\n%00 %s {tag} \\ \"'\n";

void case_a_claim_keeps_the_payload(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *old = record_new(k, 5000, 1), *fresh = record_new(k, 300, 2);
  fill(c, k, OWNER, old, LONG_MS);
  sight s = claim(c, k, OWNER, 2 * LONG_MS);
  wants("a claim of a key with a value", s.status, CORRAL_OK);
  wants_lease("a claim of a key with a value", s, OWNER);
  wants_value("a claim of a key with a value", s, old);
  wants_within("the value's life told by a claim", s.life_ms, LONG_MS);
  s = get(c, k);
  wants_value("GET while it is rebuilt", s, old);
  wants_lease("GET while it is rebuilt", s, OWNER);
  s = claim(c, k, OTHER, LONG_MS);
  wants("a second claim", s.status, CORRAL_EBUSY);
  wants_value("a second claim", s, old);
  wants("a settle", settle(c, k, OWNER, fresh, LONG_MS), CORRAL_OK);
  wants_value("after a settle", get(c, k), fresh);
}

/* Expects the record or, with `same`, its front alone. */
static void wants_known(const char *when, sight s, const record *r) {
  check(s.life_ms != 0, "%s: expected a value with a life, came none", when);
  if (!s.same)
    wants_value(when, s, r);
  else
    check(s.header.body == r->len - CORRAL_HEAD,
          "%s: the front tells of a body of %u bytes, expected %zu", when, (unsigned)s.header.body,
          r->len - CORRAL_HEAD);
}

void case_a_claim_knows_a_payload_that_was_seen(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 5000, 1);
  fill(c, k, OWNER, r, LONG_MS);
  corral_op op = op_of(CORRAL_VERB_CLAIM, k, OWNER);
  op.claim.seen = r->stamp;
  sight s = perform_one(c, &op);
  wants("a claim", s.status, CORRAL_OK);
  wants_lease("a claim that tells the stamp", s, OWNER);
  wants_known("a claim that tells the stamp", s, r);
  op = op_of(CORRAL_VERB_CLAIM, k, OTHER);
  op.claim.seen = r->stamp;
  s = perform_one(c, &op);
  wants("a claim by another", s.status, CORRAL_EBUSY);
  wants_known("a claim by another that tells the stamp", s, r);
  op = op_of(CORRAL_VERB_CLAIM, k, OTHER);
  op.claim.seen = r->stamp + 1;
  s = perform_one(c, &op);
  check(!s.same, "a claim that tells another stamp is told `same`");
  wants_value("a claim that tells another stamp", s, r);
}

void case_a_shorter_value_replaces_a_longer_one(void) {
  static const size_t sizes[] = {100000, 10, 5000, 0, 4096, 1};
  client *c = client_new();
  const key *k = key_new("k");
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const record *r = record_new(k, sizes[i], i);
    fill(c, k, i + 1, r, LONG_MS);
    wants_value("after a value of another size", get(c, k), r);
  }
}

void case_an_empty_value_is_a_value(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_of(k, "", 0);
  fill(c, k, OWNER, r, LONG_MS);
  wants_value("GET of an empty value", get(c, k), r);
  wants_value("a claim of an empty value", claim(c, k, OWNER, LONG_MS), r);
}

void case_a_value_is_any_bytes(void) {
  client *c = client_new();
  const key *all = key_new("all"), *text = key_new("text"), *zero = key_new("zero");
  uint8_t bytes[1024], zeros[300] = {0};
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)i;
  const record *records[] = {record_of(all, bytes, sizeof bytes),
                             record_of(text, awkward, sizeof awkward),
                             record_of(zero, zeros, sizeof zeros)};
  const key *keys[] = {all, text, zero};
  for (int i = 0; i < 3; i++) fill(c, keys[i], OWNER, records[i], LONG_MS);
  for (int i = 0; i < 3; i++) wants_value("GET of a binary value", get(c, keys[i]), records[i]);
}

void case_a_value_is_of_any_size(void) {
  client *c = client_new();
  const key *k = key_new("k");
  size_t before = record_of(k, "", 0)->len;
  unsigned holder = 1;
  for (size_t power = 256; power <= 65536; power *= 2) {
    for (size_t len = power - 1; len <= power + 1; len++) {
      if (len < before || len > declared()->max_record) continue;
      const record *r = record_new(k, len - before, holder);
      fill(c, k, holder++, r, LONG_MS);
      wants_value("GET of a record about as large as a power of two", get(c, k), r);
    }
  }
}

static void keeps(size_t size) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, size, 1);
  fill(c, k, OWNER, r, LONG_MS);
  wants_value("GET of a large value", get(c, k), r);
  sight s = claim(c, k, OWNER, LONG_MS);
  wants_value("a claim of a large value", s, r);
  wants_lease("a claim of a large value", s, OWNER);
  wants("a release", release(c, k, OWNER), CORRAL_OK);
  wants_value("GET after a release", get(c, k), r);
}

void case_a_value_of_1_mib(void) { keeps(MIB); }
void case_a_value_of_16_mib(void) { keeps(16 * (size_t)MIB); }

/* ---- keys ---------------------------------------------------------------------------------- */

/* A key of `len` bytes that begins with a unique prefix and ends with `tail`. */
static key *key_with(const void *tail, size_t tail_len, size_t len) {
  char prefix[80];
  size_t prefix_len = key_prefix(prefix, sizeof prefix);
  uint8_t *bytes = room(len);
  if (prefix_len + tail_len > len)
    cant("keys of %zu bytes: the store declares max_key %zu", prefix_len + tail_len,
         declared()->max_key);
  memset(bytes, 'k', len);
  memcpy(bytes, prefix, prefix_len);
  memcpy(bytes + len - tail_len, tail, tail_len);
  return key_of(bytes, len);
}

/* Fills all keys, and checks that each keeps its own value. */
static void keeps_apart(client *c, const key *const *keys, size_t count) {
  const record **records = room(count * sizeof *records);
  for (size_t i = 0; i < count; i++) {
    wants("GET of a key that wasn't filled yet", get(c, keys[i]).status, CORRAL_EMISS);
    records[i] = record_new(keys[i], 50 + i, (unsigned)i);
    fill(c, keys[i], OWNER, records[i], LONG_MS);
  }
  for (size_t i = 0; i < count; i++)
    wants_value("GET of one of several keys", get(c, keys[i]), records[i]);
  wants("an invalidate of one of several keys", invalidate(c, keys[0]), CORRAL_OK);
  wants_nothing("GET of the one that was invalidated", get(c, keys[0]));
  for (size_t i = 1; i < count; i++) wants_value("GET of the others", get(c, keys[i]), records[i]);
}

void case_a_key_is_any_bytes(void) {
  enum { PIECES = 16, PIECE = 16, PAIRS = 12 };
  static const char *const pairs = "ab"
                                   "AB"
                                   "aB"
                                   "  "
                                   "\r\n"
                                   "\n\n"
                                   "%2"
                                   "{}"
                                   "\xff\xfe"
                                   "\xc3\xa4"
                                   "\0a"
                                   "\0b";
  client *c = client_new();
  const key *keys[PIECES + PAIRS];
  uint8_t all[256];
  for (size_t i = 0; i < sizeof all; i++) all[i] = (uint8_t)i;
  char prefix[80];
  size_t len = key_prefix(prefix, sizeof prefix);
  for (size_t i = 0; i < PIECES; i++) keys[i] = key_with(all + i * PIECE, PIECE, len + PIECE + 2);
  key *first = key_with(pairs, 2, len + 5);
  for (size_t i = 0; i < PAIRS; i++) {
    key *k = key_of(first->bytes, first->len);
    memcpy(k->bytes + k->len - 2, pairs + 2 * i, 2);
    keys[PIECES + i] = k;
  }
  keeps_apart(c, keys, PIECES + PAIRS);
  if (declared()->max_key < len + 2 + sizeof all) return;
  const key *k = key_with(all, sizeof all, len + 2 + sizeof all);
  keeps_apart(c, &k, 1);
}

/* Such a key can't be unique: a key that is in use already is left alone. */
void case_a_key_of_one_byte(void) {
  client *c = client_new();
  uint8_t first = token(0)[0];
  for (unsigned i = 0; i < 256; i++) {
    uint8_t byte = (uint8_t)(first + i);
    corral_op op = {.verb = CORRAL_VERB_GET, .key = &byte, .key_len = 1, .status = CORRAL_EINDOUBT};
    int status = client_perform(c, &op, 1, now_ms() + LIMIT_MS);
    check(status == CORRAL_OK, "GET of a key of one byte: the handle broke: %s", client_error(c));
    op_drop(&op);
    if (op.status != CORRAL_EMISS) continue;
    const key *k = key_of(&byte, 1);
    keeps_apart(c, &k, 1);
    return;
  }
  failed("GET of keys of one byte: none of the 256 is EMISS: %s", client_error(c));
}

void case_a_key_of_max_key_bytes(void) {
  client *c = client_new();
  const key *keys[2];
  keys[0] = key_with("", 0, declared()->max_key);
  keys[1] = key_of(keys[0]->bytes, keys[0]->len - 1);
  keeps_apart(c, keys, 2);
}

void case_keys_that_differ_at_their_end_are_two(void) {
  client *c = client_new();
  const key *keys[3];
  keys[0] = key_with("1", 1, declared()->max_key);
  for (int i = 1; i < 3; i++) {
    keys[i] = key_of(keys[0]->bytes, keys[0]->len);
    keys[i]->bytes[keys[i]->len - 1] = i == 1 ? '2' : 0;
  }
  keeps_apart(c, keys, 3);
}

void case_what_was_found_stays_as_it_was(void) {
  static const size_t sizes[] = {100, 200000};
  client *c = client_new();
  for (size_t i = 0; i < 2; i++) {
    const key *k = key_new("k");
    const record *r = record_new(k, sizes[i], 1);
    fill(c, k, OWNER, r, LONG_MS);
    corral_op op = op_of(CORRAL_VERB_GET, k, OWNER);
    check(client_perform(c, &op, 1, now_ms() + LIMIT_MS) == CORRAL_OK && op.found.len == r->len,
          "GET: %s", client_error(c));
    uint8_t *copy = room(op.found.len);
    memcpy(copy, op.found.record, op.found.len);
    wants("a claim", claim(c, k, OTHER, LONG_MS).status, CORRAL_OK);
    wants("a settle", settle(c, k, OTHER, record_new(k, sizes[i], 2), LONG_MS), CORRAL_OK);
    wants("an invalidate", invalidate(c, k), CORRAL_OK);
    int same = memcmp(copy, op.found.record, op.found.len) == 0;
    op_drop(&op);
    check(same, "what GET found changed before it was freed");
  }
}

void case_a_look_that_tells_the_hash_of_its_key(void) {
  client *c = client_new();
  const key *k = key_new("k"), *none = key_new("none");
  const record *r = record_new(k, 100, 1);
  fill(c, k, OWNER, r, LONG_MS);
  for (int tells = 0; tells < 2; tells++) {
    corral_op op = op_of(CORRAL_VERB_GET, k, OWNER), other = op_of(CORRAL_VERB_GET, none, OWNER);
    op.hash = tells ? host()->hash64(op.key, op.key_len) : 0;
    other.hash = tells ? host()->hash64(other.key, other.key_len) : 0;
    wants_value(tells ? "a look with its key's hash" : "a look without", perform_one(c, &op), r);
    wants("a look at another key", perform_one(c, &other).status, CORRAL_EMISS);
  }
}
