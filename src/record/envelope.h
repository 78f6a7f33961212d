/* envelope.h: the body of a record: the payload, followed by the metadata. Pure. Described in
 * docs/record.md. */
#ifndef CRL_ENVELOPE_H
#define CRL_ENVELOPE_H

#include "policy/policy.h"
#include "record/metadata.h"
#include "record/record.h"

enum {
  CRL_KIND_VALUE = 1,
  CRL_KIND_NEGATIVE,    /* "no such thing" */
  CRL_KIND_PASS,        /* "can't be cached": no payload */
  CRL_KIND_TAG_VERSION, /* the tag version of a tag: tag versions.h */
  CRL_KINDS
};
enum { CRL_ENCODING_PLAIN, CRL_ENCODING_ZSTD, CRL_ENCODINGS };

typedef struct crl_envelope {
  uint8_t kind, encoding;
  const uint8_t *digest; /* of the key, CORRAL_DIGEST bytes */
  int64_t ttl_ms, swr_ms, sie_ms;
  /* wall clock, for display, and for the age where a store can't tell the remaining life */
  int64_t created_ms;
  uint64_t cost_us;
  uint64_t version;  /* as its compute set it; 0: none */
  size_t payload_at; /* reading: offset within the record */
  size_t payload_len;
  /* length of the unpacked payload; payload_len when CRL_ENCODING_PLAIN */
  size_t plain_len;
  const crl_tags *tags;  /* writing; NULL: none */
  size_t tag_count;      /* reading; crl_tags_read lists them */
  const void *validator; /* NULL: none; reading: within the record */
  size_t validator_len;
  size_t metadata_at, metadata_len; /* set by crl_envelope_size and crl_envelope_read */
} crl_envelope;

/* Offset of the payload in a record. */
enum { CRL_PAYLOAD_AT = CORRAL_HEAD };
/* Room for the metadata of a value without tags and validator. */
enum { CRL_METADATA_USUAL = 7 * (2 + 8) };

/* Size of the whole record that crl_envelope_write makes, in bytes; 0 when it is too large for a
 * record. */
size_t crl_envelope_size(crl_envelope *envelope);
/* Writes the head (FREE) in front of the payload, which is already in place at CRL_PAYLOAD_AT, and
 * the metadata behind it. */
void crl_envelope_write(const crl_envelope *envelope, uint8_t *record);
/* CORRAL_OK; CORRAL_EMISS: no body; CORRAL_EFOREIGN, CORRAL_ENEWER; CORRAL_ECORRUPT: damaged, or of
 * another key (`digest` NULL: any key is accepted). */
int crl_envelope_read(const uint8_t *record, size_t size, const uint8_t *digest, crl_envelope *ret);

/* The lives that are left of the record: crl_policy_judge for an envelope. */
crl_lives crl_envelope_judge(const crl_envelope *envelope, int expired, int64_t life_ms,
                             int64_t wall_ms);

#endif
