/* pack.h: compression of payloads, by zstd (RFC 8878). Pure. */
#ifndef CRL_PACK_H
#define CRL_PACK_H

#include <stddef.h>
#include <stdint.h>

/* The packed bytes, malloc'ed, in *ret, when that saves at least an eighth; else, and without memory, 0. */
size_t crl_pack(const void *data, size_t size, uint8_t **ret);
/* What packed bytes say of the size of what was packed; SIZE_MAX when they don't. Not to be believed without a bound. */
size_t crl_packed_size(const void *packed, size_t packed_size);
/* Unpacks exactly `size` bytes into `data`; 0 when the packed bytes don't give that. */
int crl_unpack(const void *packed, size_t packed_size, void *data, size_t size);

#endif
