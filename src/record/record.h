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

/* Functions of corral_host with these names. */
size_t crl_record_front(const void *record, size_t size, uint8_t front[CORRAL_FRONT]);
int crl_record_read(const void *front, size_t size, corral_header *header);
size_t crl_record_write(const corral_header *header, uint8_t front[CORRAL_FRONT]);
void crl_record_decide(corral_op *op, const uint8_t *front, size_t size, int64_t now,
                       corral_change *change);
void crl_record_join(const corral_change *change, const uint8_t *body, uint8_t *record);

/* Reads the header of a whole record, or of the record that a CLAIM found; like crl_record_read. */
int crl_record_read_whole(const void *record, size_t size, corral_header *header);
int crl_record_read_found(const corral_op *op, corral_header *header);
/* The key's digest in a readable record. */
const uint8_t *crl_record_digest(const uint8_t *record);
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
