/* envelope.h: what the core keeps behind a record's header: lives, cost, the key itself, the payload, a checksum. Pure. */
#ifndef CRL_ENVELOPE_H
#define CRL_ENVELOPE_H

#include <corral/plugin.h>

enum { CRL_KIND_VALUE = 1, CRL_KIND_NEGATIVE = 2 };
enum { CRL_ENVELOPE_FORMAT = 1, CRL_ENVELOPE_FIXED = 80 };

/* The longest life there is, ten years: the ranges of the options end there too. */
#define CRL_ENVELOPE_LIFE_MOST INT64_C(315360000000)

typedef struct crl_envelope {
  uint8_t kind;
  int64_t ttl_ms, swr_ms, sie_ms;
  int64_t created_ms; /* wall clock, for display, and for the age where a store can't tell the remaining life */
  uint64_t cost_us;
  const void *key;
  size_t key_len;
  size_t payload_at; /* offset in the record */
  size_t payload_len;
} crl_envelope;

/* Where the payload begins in the record of a key, and so how much room a record takes in front of it. */
size_t crl_envelope_payload_at(size_t key_len);
/* Writes header (FREE) and envelope in front of the payload that is in place at crl_envelope_payload_at(key_len). */
void crl_envelope_write(const crl_envelope *envelope, uint8_t *record);
/* CORRAL_OK; CORRAL_EMISS: no payload; CORRAL_EFOREIGN; CORRAL_ECORRUPT: damaged, an unknown format, or another key's (a `key` of NULL is any). */
int crl_envelope_read(const uint8_t *record, size_t size, const void *key, size_t key_len, crl_envelope *ret);

#endif
