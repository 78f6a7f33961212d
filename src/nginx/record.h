/* record.h: an HTTP response as the nginx module stores it: the bytes of a corral value.
 *
 * Status, lives, the names of Vary and the hash of the request's values for them, header fields,
 * body. Pure: no nginx in here. Numbers are little-endian, so hosts of any kind may share a store.
 * A record that can't be read is refused as a whole. Anybody who may write into the store may write
 * a record: what a response must not have (a line's end inside a field, a length or a status of its
 * own) is refused when it is read as well as when it is written. */
#ifndef CRL_NGX_RECORD_H
#define CRL_NGX_RECORD_H

#include <stddef.h>
#include <stdint.h>

#define CRL_NGX_LONGEST_MS INT64_C(315360000000) /* longest life: ten years, as in a policy */

enum { CRL_NGX_RECORD_HASH = 20, CRL_NGX_RECORD_FIELDS = 256, CRL_NGX_RECORD_VARY = 512 };

typedef struct crl_ngx_field {
  const unsigned char *name, *value;
  size_t name_len, value_len; /* at most 65,535 each */
} crl_ngx_field;

typedef struct crl_ngx_record {
  uint32_t status;        /* 200 to 599 */
  uint32_t age_s;         /* its age when it was stored */
  int64_t ttl_ms, swr_ms; /* lives at its storing, CRL_NGX_LONGEST_MS at most; for display */
  /* How long after its fresh life it may be sent when rebuilding fails; -1: never. The store may
   * have it for longer, to ask the origin whether it changed. */
  int64_t sie_ms;
  /* its Date minus the moment of its storing; at most CRL_NGX_LONGEST_MS either way */
  int64_t date_ms;
  /* names in lower case, separated by spaces; at most CRL_NGX_RECORD_VARY bytes */
  const unsigned char *vary;
  size_t vary_len;
  /* of the request's values for these names; zeroes if there are none */
  unsigned char hash[CRL_NGX_RECORD_HASH];
  const unsigned char *fields; /* to be read by crl_ngx_record_next */
  size_t fields_len;
  const unsigned char *body;
  size_t body_len;
} crl_ngx_record;

/* Bytes that crl_ngx_record_write will write, and the body's; 0: a part exceeds its bound, or is no
 * part of a response. record->fields isn't used, and of the body only body_len. */
size_t crl_ngx_record_room(const crl_ngx_record *record, const crl_ngx_field *fields, size_t count);
/* Writes all but the body; returns where the body belongs. */
unsigned char *crl_ngx_record_write(unsigned char *to, const crl_ngx_record *record,
                                    const crl_ngx_field *fields, size_t count);
/* True for fields of one connection or of one answer, and those meant for nginx: no record has
 * them. */
int crl_ngx_record_leaves_out(const crl_ngx_field *field);
/* True when both records, each of so many bytes without its body, send the same header: they differ
 * at most in the Date, by less than a second. */
int crl_ngx_record_same_head(const void *one, const void *other, size_t size);
/* 0, and *ret points into `data`; CRL_NGX_NO_RECORD: no record of this format; CRL_NGX_BAD_RECORD:
 * one that crl_ngx_record_write can't have written. */
enum { CRL_NGX_NO_RECORD = -1, CRL_NGX_BAD_RECORD = -2 };
int crl_ngx_record_read(const void *data, size_t size, crl_ngx_record *ret);
/* The next field: 1, or 0 when there are no more. `*at` is 0 at first. */
int crl_ngx_record_next(const crl_ngx_record *record, size_t *at, crl_ngx_field *ret);

#endif
