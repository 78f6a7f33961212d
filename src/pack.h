/* pack.h: compression of payloads, by zstd (RFC 8878). Pure. */
#ifndef CRL_PACK_H
#define CRL_PACK_H

#include <stddef.h>
#include <stdint.h>

/* The packed bytes, malloc'ed, in *ret, when that saves at least an eighth; else, and without
 * memory, 0. */
size_t crl_pack(const void *data, size_t size, uint8_t **ret);
/* The unpacked size that packed bytes claim; SIZE_MAX if they claim none.
 * It is foreign: compare it with a bound before use. */
size_t crl_packed_size(const void *packed, size_t packed_size);
/* Unpacks exactly `size` bytes into `data`; 0 when the packed bytes don't give that. */
int crl_unpack(const void *packed, size_t packed_size, void *data, size_t size);

#endif
