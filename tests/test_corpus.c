/* test_corpus.c: records of each format, as files under tests/records: reading them must always
 * give the same result.
 *
 * `test_corpus --make FOLDER` writes the records of the current format again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "record/envelope.h"
#include "os/hash.h"
#include "record/compress.h"
#include "support/op_kit.h"

enum { ROOM = 1024, NOW = 5000 };

static const char key[] = "users:42";

typedef struct sample {
  uint8_t bytes[ROOM];
  size_t size;
} sample;

/* Expected results for a file. */
typedef struct row {
  const char *name;
  int read; /* crl_record_read_whole */
  int state;
  int body; /* crl_envelope_read, with the key's digest */
  int kind;
  const char *payload; /* unpacked; NULL: not checked */
  int get;             /* status of a GET */
  int claim;           /* status of a CLAIM */
} row;

static const row rows[] = {
    {"1-value", CORRAL_EMISS, 0, CORRAL_EMISS, 0, NULL, CORRAL_EMISS, CORRAL_OK},
    {"2-value", CORRAL_OK, CORRAL_FREE, CORRAL_OK, CRL_KIND_VALUE, "hello", CORRAL_OK, CORRAL_OK},
    {"2-negative", CORRAL_OK, CORRAL_FREE, CORRAL_OK, CRL_KIND_NEGATIVE, "", CORRAL_OK, CORRAL_OK},
    {"2-tagged", CORRAL_OK, CORRAL_FREE, CORRAL_OK, CRL_KIND_VALUE, "hello", CORRAL_OK, CORRAL_OK},
    {"2-packed", CORRAL_OK, CORRAL_FREE, CORRAL_OK, CRL_KIND_VALUE, NULL, CORRAL_OK, CORRAL_OK},
    {"2-leased", CORRAL_OK, CORRAL_LEASED, CORRAL_EMISS, 0, NULL, CORRAL_OK, CORRAL_EBUSY},
    {"2-stale", CORRAL_OK, CORRAL_LEASED, CORRAL_OK, CRL_KIND_VALUE, "hello", CORRAL_OK,
     CORRAL_EBUSY},
    {"2-failed", CORRAL_OK, CORRAL_VERDICT, CORRAL_EMISS, 0, NULL, CORRAL_OK, CORRAL_EBUSY},
    {"2-behind", CORRAL_OK, CORRAL_FREE, CORRAL_OK, CRL_KIND_VALUE, "hello", CORRAL_OK, CORRAL_OK},
    {"2-other-key", CORRAL_OK, CORRAL_FREE, CORRAL_ECORRUPT, 0, NULL, CORRAL_OK, CORRAL_OK},
    {"3-value", CORRAL_ENEWER, 0, CORRAL_ENEWER, 0, NULL, CORRAL_ENEWER, CORRAL_ENEWER},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* ---- making -------------------------------------------------------------------------------- */

static sample make_value(const char *of, crl_envelope envelope, const void *payload, size_t size) {
  sample s = {0};
  uint8_t digest[CORRAL_DIGEST];
  crl_sum(of, strlen(of), digest);
  envelope.digest = digest;
  envelope.payload_len = size;
  envelope.ttl_ms = 60000;
  envelope.created_ms = INT64_C(1700000000000);
  envelope.cost_us = 12345;
  s.size = crl_envelope_size(&envelope);
  if (size > 0) memcpy(s.bytes + CRL_PAYLOAD_AT, payload, size);
  crl_envelope_write(&envelope, s.bytes);
  return s;
}

/* Adds the fields that a store sets: life_end, and the lease or verdict. */
static sample stored(sample s, int state) {
  corral_header header = {0};
  corral_change change = {0};
  sample whole = {0};
  uint8_t digest[CORRAL_DIGEST];
  crl_sum(key, strlen(key), digest);
  if (s.size > 0)
    crl_record_read_whole(s.bytes, s.size, &header);
  else
    memcpy(header.digest, digest, sizeof digest);
  if (header.body > 0) header.life_end = NOW + 60000;
  header.state = (uint8_t)state;
  if (state != CORRAL_FREE) {
    header.until = NOW + 1000;
    header.since = NOW - 1000;
    header.length_ms = 2000;
    snprintf(header.note, sizeof header.note, "%s",
             state == CORRAL_LEASED ? "host/17" : "no route");
    if (state == CORRAL_LEASED)
      memset(header.token, 7, sizeof header.token);
    else
      header.code = -42;
  }
  change.front_len = crl_record_write(&header, change.front);
  change.body_len = header.body;
  crl_record_join(&change, s.bytes + CORRAL_HEAD, whole.bytes);
  whole.size = change.front_len + header.body;
  return whole;
}

static sample make_packed(void) {
  char text[400];
  uint8_t *packed = NULL;
  memset(text, 'z', sizeof text);
  size_t size = crl_compress(text, sizeof text, &packed);
  sample s = make_value(key,
                        (crl_envelope){.kind = CRL_KIND_VALUE,
                                       .encoding = CRL_ENCODING_ZSTD,
                                       .plain_len = sizeof text},
                        packed, size);
  free(packed);
  return s;
}

static sample make(const char *name) {
  const crl_envelope value = {.kind = CRL_KIND_VALUE}, negative = {.kind = CRL_KIND_NEGATIVE};
  crl_tags tags = {.count = 1, .tag = {{.hard = 1, .soft = 2, .len = 3, .name = "abc"}}};
  const crl_envelope tagged = {.kind = CRL_KIND_VALUE,
                               .version = 9,
                               .tags = &tags,
                               .validator = "E1",
                               .validator_len = 2,
                               .swr_ms = 1000};
  sample s;
  if (strcmp(name, "2-negative") == 0)
    return stored(make_value(key, negative, NULL, 0), CORRAL_FREE);
  if (strcmp(name, "2-tagged") == 0)
    return stored(make_value(key, tagged, "hello", 5), CORRAL_FREE);
  if (strcmp(name, "2-packed") == 0) return stored(make_packed(), CORRAL_FREE);
  if (strcmp(name, "2-leased") == 0) return stored((sample){.size = 0}, CORRAL_LEASED);
  if (strcmp(name, "2-failed") == 0) return stored((sample){.size = 0}, CORRAL_VERDICT);
  if (strcmp(name, "2-stale") == 0)
    return stored(make_value(key, value, "hello", 5), CORRAL_LEASED);
  if (strcmp(name, "2-other-key") == 0)
    return stored(make_value("users:43", value, "hello", 5), CORRAL_FREE);
  /* head, envelope, key, payload */
  if (name[0] == '1') return (sample){.bytes = "crl1", .size = 128 + 80 + sizeof key - 1 + 5};
  s = stored(make_value(key, value, "hello", 5), CORRAL_FREE);
  /* bytes behind the body, as a former lease leaves them */
  if (strcmp(name, "2-behind") == 0) s.size += 20;
  if (name[0] == '3') s.bytes[3] = '3';
  return s;
}

static int make_all(const char *folder) {
  for (size_t i = 0; i < ROWS; i++) {
    char path[512];
    sample s = make(rows[i].name);
    snprintf(path, sizeof path, "%s/%s", folder, rows[i].name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(s.bytes, 1, s.size, file) != s.size || fclose(file) != 0) return 1;
  }
  return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

static sample load(const char *name) {
  sample s = {0};
  char path[512];
  const char *root = getenv("CORRAL_SOURCE_DIR");
  snprintf(path, sizeof path, "%s/tests/records/%s", root != NULL ? root : ".", name);
  FILE *file = fopen(path, "rb");
  if (file == NULL) fail_msg("%s is not there", path);
  s.size = fread(s.bytes, 1, sizeof s.bytes, file);
  fclose(file);
  return s;
}

static void expect(const char *name, const char *what, int came, int wanted) {
  if (came != wanted) fail_msg("%s: %s: %d, expected %d", name, what, came, wanted);
}

static int verb_on(const sample *s, corral_verb verb) {
  static const uint8_t token[CORRAL_TOKEN] = "another's token";
  uint8_t front[CORRAL_FRONT];
  corral_change change;
  corral_op op = {.verb = verb, .token = token};
  op_lasts(&op, 1000);
  size_t len = crl_record_front(s->bytes, s->size, front);
  crl_record_decide(&op, front, len, NOW, &change);
  return op.status;
}

static void check_row(const row *r) {
  sample s = load(r->name);
  corral_header header = {0};
  crl_envelope envelope;
  uint8_t digest[CORRAL_DIGEST];
  crl_sum(key, strlen(key), digest);
  expect(r->name, "reading the front", crl_record_read_whole(s.bytes, s.size, &header), r->read);
  if (r->read == CORRAL_OK) expect(r->name, "the state", header.state, r->state);
  expect(r->name, "reading the body", crl_envelope_read(s.bytes, s.size, digest, &envelope),
         r->body);
  if (r->body == CORRAL_OK) expect(r->name, "the kind", envelope.kind, r->kind);
  if (r->payload != NULL) {
    expect(r->name, "the payload's length", (int)envelope.payload_len, (int)strlen(r->payload));
    assert_memory_equal(s.bytes + envelope.payload_at, r->payload, envelope.payload_len);
  }
  expect(r->name, "GET", verb_on(&s, CORRAL_VERB_GET), r->get);
  expect(r->name, "CLAIM", verb_on(&s, CORRAL_VERB_CLAIM), r->claim);
}

static void each_record_of_the_corpus_says_what_it_said(void **state) {
  (void)state;
  for (size_t i = 0; i < ROWS; i++) check_row(&rows[i]);
}

static void the_details_of_the_corpus_are_as_they_were(void **state) {
  (void)state;
  corral_header header;
  crl_envelope envelope;
  crl_tags tags;
  char text[400], wanted[400];
  sample s = load("2-leased");
  assert_int_equal(crl_record_read_whole(s.bytes, s.size, &header), CORRAL_OK);
  assert_true(header.until == NOW + 1000 && header.since == NOW - 1000 && header.length_ms == 2000);
  assert_string_equal(header.note, "host/17");
  s = load("2-failed");
  assert_int_equal(crl_record_read_whole(s.bytes, s.size, &header), CORRAL_OK);
  assert_int_equal(header.code, -42);
  s = load("2-tagged");
  assert_int_equal(crl_envelope_read(s.bytes, s.size, NULL, &envelope), CORRAL_OK);
  assert_true(envelope.version == 9 && envelope.swr_ms == 1000 && envelope.ttl_ms == 60000 &&
              envelope.cost_us == 12345);
  assert_true(crl_tags_read(s.bytes + envelope.metadata_at, envelope.metadata_len, &tags));
  assert_true(tags.count == 1 && tags.tag[0].hard == 1 && tags.tag[0].soft == 2);
  assert_memory_equal(envelope.validator, "E1", 2);
  s = load("2-packed");
  assert_int_equal(crl_envelope_read(s.bytes, s.size, NULL, &envelope), CORRAL_OK);
  memset(wanted, 'z', sizeof wanted);
  assert_int_equal(envelope.plain_len, sizeof text);
  assert_true(
      crl_decompress(s.bytes + envelope.payload_at, envelope.payload_len, text, sizeof text));
  assert_memory_equal(text, wanted, sizeof text);
}

/* Records of the current format must be written byte for byte as in the corpus; otherwise the
 * format needs a new number. */
static void what_is_written_today_is_what_the_corpus_has(void **state) {
  (void)state;
  for (size_t i = 0; i < ROWS; i++) {
    /* the bytes made by zstd may differ between its versions */
    if (strcmp(rows[i].name, "2-packed") == 0 || rows[i].name[0] != '2') continue;
    sample now = make(rows[i].name), then = load(rows[i].name);
    expect(rows[i].name, "the size", (int)now.size, (int)then.size);
    assert_memory_equal(now.bytes, then.bytes, then.size);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_record_of_the_corpus_says_what_it_said),
      cmocka_unit_test(the_details_of_the_corpus_are_as_they_were),
      cmocka_unit_test(what_is_written_today_is_what_the_corpus_has),
  };
  if (argc > 2 && strcmp(argv[1], "--make") == 0) return make_all(argv[2]);
  return cmocka_run_group_tests_name("corpus", tests, NULL, NULL);
}
