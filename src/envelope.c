/* envelope.c: what the core keeps behind a record's header. Numbers are little-endian.
 *
 * offset size field            (from the record's begin)
 *    128    8 stamp: XXH3-64 of all that follows; never 0
 *    136    1 format   137 1 kind   138 1 encoding   139 1 zero   140 4 key length
 *    144    8 ttl_ms   152 8 swr_ms   160 8 sie_ms   168 8 created_ms
 *    176    8 cost_us  184 8 version   192 8 payload length   200 4 extras length   204 4 plain length, 0: not packed
 *    208      key, payload, extras
 */
#include "envelope.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "record.h"

enum { AT_STAMP = 128, AT_FORMAT = 136, AT_KIND = 137, AT_ENCODING = 138, AT_KEY_LEN = 140, AT_TTL = 144, AT_SWR = 152, AT_SIE = 160,
       AT_CREATED = 168, AT_COST = 176, AT_VERSION = 184, AT_PAYLOAD_LEN = 192, AT_EXTRAS_LEN = 200,
       AT_PLAIN_LEN = 204, AT_KEY = 208 };

_Static_assert(AT_KEY == CORRAL_HEADER + CRL_ENVELOPE_FIXED, "the layout above");

static uint64_t stamp_of(const uint8_t *record, size_t size) {
  uint64_t stamp = XXH3_64bits(record + AT_FORMAT, size - AT_FORMAT);
  return stamp == 0 ? 1 : stamp;
}

size_t crl_envelope_payload_at(size_t key_len) { return AT_KEY + key_len; }

void crl_envelope_write(const crl_envelope *envelope, uint8_t *record) {
  corral_header header;
  memset(&header, 0, sizeof header);
  crl_record_write(&header, record);
  memset(record + AT_STAMP, 0, CRL_ENVELOPE_FIXED);
  record[AT_FORMAT] = CRL_ENVELOPE_FORMAT;
  record[AT_KIND] = envelope->kind;
  record[AT_ENCODING] = envelope->encoding;
  crl_record_put(record + AT_KEY_LEN, envelope->key_len, 4);
  crl_record_put(record + AT_TTL, (uint64_t)envelope->ttl_ms, 8);
  crl_record_put(record + AT_SWR, (uint64_t)envelope->swr_ms, 8);
  crl_record_put(record + AT_SIE, (uint64_t)envelope->sie_ms, 8);
  crl_record_put(record + AT_CREATED, (uint64_t)envelope->created_ms, 8);
  crl_record_put(record + AT_COST, envelope->cost_us, 8);
  crl_record_put(record + AT_VERSION, envelope->version, 8);
  crl_record_put(record + AT_PAYLOAD_LEN, envelope->payload_len, 8);
  crl_record_put(record + AT_EXTRAS_LEN, envelope->extras_len, 4);
  if (envelope->encoding != CRL_ENCODING_PLAIN) crl_record_put(record + AT_PLAIN_LEN, envelope->plain_len, 4);
  memcpy(record + AT_KEY, envelope->key, envelope->key_len);
  crl_record_put(record + AT_STAMP, stamp_of(record, AT_KEY + envelope->key_len + envelope->payload_len + envelope->extras_len), 8);
}

/* Lives that no policy allows come from no corral. */
static int sane(const crl_envelope *envelope) {
  const int64_t lives[] = {envelope->ttl_ms, envelope->swr_ms, envelope->sie_ms};
  for (size_t i = 0; i < sizeof lives / sizeof *lives; i++)
    if (lives[i] < 0 || lives[i] > CRL_ENVELOPE_LIFE_MOST) return 0;
  return envelope->kind >= CRL_KIND_VALUE && envelope->kind < CRL_KINDS && envelope->encoding < CRL_ENCODINGS;
}

int crl_envelope_read(const uint8_t *record, size_t size, const void *key, size_t key_len, crl_envelope *ret) {
  corral_header header;
  if (crl_record_read(record, size, &header) != CORRAL_OK) return CORRAL_EFOREIGN;
  if (size == CORRAL_HEADER) return CORRAL_EMISS;
  if (size < AT_KEY || record[AT_FORMAT] != CRL_ENVELOPE_FORMAT) return CORRAL_ECORRUPT;
  uint64_t stored_key = crl_record_take(record + AT_KEY_LEN, 4), payload = crl_record_take(record + AT_PAYLOAD_LEN, 8);
  uint64_t extras = crl_record_take(record + AT_EXTRAS_LEN, 4);
  if (key == NULL) key_len = (size_t)stored_key;
  if (stored_key != key_len || size - AT_KEY < key_len || extras > size - AT_KEY - key_len) return CORRAL_ECORRUPT;
  if (payload != size - AT_KEY - key_len - extras) return CORRAL_ECORRUPT;
  if (key != NULL && memcmp(record + AT_KEY, key, key_len) != 0) return CORRAL_ECORRUPT;
  if (crl_record_stamp(record, size) != stamp_of(record, size)) return CORRAL_ECORRUPT;
  ret->kind = record[AT_KIND];
  ret->ttl_ms = (int64_t)crl_record_take(record + AT_TTL, 8);
  ret->swr_ms = (int64_t)crl_record_take(record + AT_SWR, 8);
  ret->sie_ms = (int64_t)crl_record_take(record + AT_SIE, 8);
  ret->created_ms = (int64_t)crl_record_take(record + AT_CREATED, 8);
  ret->cost_us = crl_record_take(record + AT_COST, 8);
  ret->version = crl_record_take(record + AT_VERSION, 8);
  ret->key = record + AT_KEY;
  ret->key_len = key_len;
  ret->payload_at = AT_KEY + key_len;
  ret->payload_len = (size_t)payload;
  ret->encoding = record[AT_ENCODING];
  ret->plain_len = ret->encoding == CRL_ENCODING_PLAIN ? ret->payload_len : (size_t)crl_record_take(record + AT_PLAIN_LEN, 4);
  ret->extras_at = ret->payload_at + ret->payload_len;
  ret->extras_len = (size_t)extras;
  return sane(ret) ? CORRAL_OK : CORRAL_ECORRUPT;
}
