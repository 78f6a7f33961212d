/* record.h: the front of a record, and the effect of each verb on a record. Pure: no I/O, no clock,
 * no memory. */
#ifndef CRL_RECORD_H
#define CRL_RECORD_H

#include <corral/plugin.h>
#include <endian.h>
#include <string.h>

/* Bounds of times in a record, in ms: a payload's life, at more than twice the longest that a
 * policy allows; the length of a lease; that of a verdict; a step of a clock. */
#define CRL_RECORD_LIFE_MOST INT64_C(946080000000)
enum {
  CRL_RECORD_LEASE_MOST = 3600000,
  CRL_RECORD_VERDICT_MOST = 86400000,
  CRL_RECORD_STEP_MS = 2000
};

#define CRL_MAGIC "crl"
#define CRL_FORMAT ((uint8_t)'2')

/* Offsets of the head's fields. */
enum {
  CRL_AT_FORMAT = 3,
  CRL_AT_STATE = 4,
  CRL_AT_FLAGS = 5,
  CRL_AT_KIND = 6,
  CRL_AT_ENCODING = 7,
  CRL_AT_LIFE = 8,
  CRL_AT_BODY = 16,
  CRL_AT_METADATA = 20,
  CRL_AT_FAILURES = 22,
  CRL_AT_DIGEST = 24,
  CRL_AT_STAMP = 40
};

/* Functions of corral_host with these names. */
size_t crl_record_front(const void *record, size_t size, uint8_t front[CORRAL_FRONT]);
int crl_record_read(const void *front, size_t size, corral_header *header);
size_t crl_record_write(const corral_header *header, uint8_t front[CORRAL_FRONT]);
void crl_record_decide(corral_op *op, const uint8_t *front, size_t size, int64_t now,
                       corral_change *change);
int crl_record_look(corral_op *op, const void *record, size_t size, int64_t now);
void crl_record_join(const corral_change *change, const uint8_t *body, uint8_t *record);

/* Reads the header of a whole record, or of the record that a CLAIM found; like crl_record_read. */
int crl_record_read_whole(const void *record, size_t size, corral_header *header);
int crl_record_read_found(const corral_op *op, corral_header *header);
/* The key's digest in a readable record. */
static inline const uint8_t *crl_record_digest(const uint8_t *bytes) {
  return bytes + CRL_AT_DIGEST;
}
/* CORRAL_OK: a head of this format. CORRAL_EMISS: an older, truncated or malformed one, which
 * counts as absent. CORRAL_EFOREIGN, CORRAL_ENEWER. */
static inline int crl_record_judge(const void *bytes, size_t size) {
  const uint8_t *at = (const uint8_t *)bytes;
  if (size <= CRL_AT_FORMAT || memcmp(at, CRL_MAGIC, CRL_AT_FORMAT) != 0) return CORRAL_EFOREIGN;
  if (at[CRL_AT_FORMAT] != CRL_FORMAT)
    return at[CRL_AT_FORMAT] > CRL_FORMAT ? CORRAL_ENEWER : CORRAL_EMISS;
  return size < CORRAL_HEAD || at[CRL_AT_STATE] > CORRAL_VERDICT ? CORRAL_EMISS : CORRAL_OK;
}
/* The stamp of a whole record's body; 0: none. */
uint64_t crl_record_stamp(const void *record, size_t size);

/* Little-endian numbers of up to 8 bytes. */
static inline void crl_record_put(uint8_t *at, uint64_t number, size_t bytes) {
  number = htole64(number);
  memcpy(at, &number, bytes);
}
static inline uint64_t crl_record_take(const uint8_t *at, size_t bytes) {
  uint64_t number = 0;
  memcpy(&number, at, bytes);
  return le64toh(number);
}

#endif
