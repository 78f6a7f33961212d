/* compress.h: compression of payloads, by zstd (RFC 8878). Pure. */
#ifndef CRL_COMPRESS_H
#define CRL_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

/* Returns the packed size, with the packed bytes, malloc'ed, in *ret; 0 when that saves less than
 * an eighth, or without memory. */
size_t crl_compress(const void *data, size_t size, uint8_t **ret);
/* The unpacked size that packed bytes state; SIZE_MAX if they state none. Not to be trusted:
 * compare it with a bound before use. */
size_t crl_decompressed_size(const void *packed, size_t packed_size);
/* Unpacks exactly `size` bytes into `data`; 0 when the packed bytes have another size or are
 * damaged. */
int crl_decompress(const void *packed, size_t packed_size, void *data, size_t size);

#endif
