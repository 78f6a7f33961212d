/* record.h: the header of a record, and what each verb does to a record. Pure: no I/O, no clock, no memory. */
#ifndef CRL_RECORD_H
#define CRL_RECORD_H

#include <corral/plugin.h>

/* CORRAL_EFOREIGN when these bytes don't begin with a header. */
int crl_record_read(const void *record, size_t size, corral_header *header);
void crl_record_write(const corral_header *header, uint8_t record[CORRAL_HEADER]);
/* The stamp behind the header; 0 when there is no payload. */
uint64_t crl_record_stamp(const void *record, size_t size);
/* See corral_host.decide. */
void crl_record_decide(corral_op *op, const uint8_t *record, size_t size, int64_t now, corral_change *change);

/* Little-endian numbers, shared with the envelope. */
void crl_record_put(uint8_t *at, uint64_t number, unsigned bytes);
uint64_t crl_record_take(const uint8_t *at, unsigned bytes);

#endif
