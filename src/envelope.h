/* envelope.h: what the core keeps behind a record's header: lives, cost, the key itself, the payload, a checksum. Pure. */
#ifndef CRL_ENVELOPE_H
#define CRL_ENVELOPE_H

#include <corral/plugin.h>

enum {
  CRL_KIND_VALUE = 1,
  CRL_KIND_NEGATIVE, /* "no such thing" */
  CRL_KIND_PASS,     /* "can't be cached": no payload */
  CRL_KIND_MARK,     /* of a tag: marks.h */
  CRL_KINDS
};
enum { CRL_ENCODING_PLAIN, CRL_ENCODING_ZSTD, CRL_ENCODINGS };
enum { CRL_ENVELOPE_FORMAT = 1, CRL_ENVELOPE_FIXED = 80 };

/* The longest life there is, ten years: the ranges of the options end there too. */
#define CRL_ENVELOPE_LIFE_MOST INT64_C(315360000000)

typedef struct crl_envelope {
  uint8_t kind;
  int64_t ttl_ms, swr_ms, sie_ms;
  int64_t created_ms; /* wall clock, for display, and for the age where a store can't tell the remaining life */
  uint64_t cost_us;
  uint64_t version;   /* of the value, as its compute said; 0 none */
  const void *key;
  size_t key_len;
  size_t payload_at;  /* offset in the record */
  size_t payload_len;
  uint8_t encoding;   /* of the payload */
  size_t plain_len;   /* of the payload when it is unpacked; payload_len when CRL_ENCODING_PLAIN */
  size_t extras_at, extras_len; /* extras.h */
} crl_envelope;

/* Where the payload begins in the record of a key, and so how much room a record takes in front of it. */
size_t crl_envelope_payload_at(size_t key_len);
/* Writes header (FREE) and envelope in front of the payload that is in place at crl_envelope_payload_at(key_len), with the extras behind it. */
void crl_envelope_write(const crl_envelope *envelope, uint8_t *record);
/* CORRAL_OK; CORRAL_EMISS: no payload; CORRAL_EFOREIGN; CORRAL_ECORRUPT: damaged, an unknown format, or another key's (a `key` of NULL is any). */
int crl_envelope_read(const uint8_t *record, size_t size, const void *key, size_t key_len, crl_envelope *ret);

#endif
