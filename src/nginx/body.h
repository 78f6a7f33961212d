/* body.h: the bytes of an answer that is being captured, in pieces that several requests read.
 *
 * A piece is in memory or in a temporary file, and what it has never changes. Pieces are freed from
 * the front only. */
#ifndef CRL_NGX_BODY_H
#define CRL_NGX_BODY_H

#include <ngx_config.h>
#include <ngx_core.h>

typedef struct crl_ngx_piece {
  struct crl_ngx_piece *next;
  off_t from;        /* offset of its first byte in the body */
  size_t size, room; /* bytes that it has; bytes that fit into it */
  off_t file_at;     /* in the file; -1: in memory */
  u_char bytes[];
} crl_ngx_piece;

/* All zero at first. */
typedef struct crl_ngx_body {
  crl_ngx_piece *first, *last;
  off_t size;            /* bytes appended */
  size_t in_memory;      /* bytes of memory that the pieces take */
  ngx_temp_file_t *file; /* NULL: none yet */
} crl_ngx_body;

/* `room` is a guess of the bytes that are still to come. 0; -1: no memory. */
int crl_ngx_body_append(crl_ngx_body *body, const u_char *bytes, size_t size, size_t room);
/* Appends to a file in this folder of temporary files. 0; -1: it can't be written. */
int crl_ngx_body_spill(crl_ngx_body *body, u_char *bytes, size_t size, ngx_path_t *path);
/* Copies all bytes, which must be in memory, to `to`. */
void crl_ngx_body_copy(const crl_ngx_body *body, u_char *to);
/* Frees the pieces that end at or before this offset. */
void crl_ngx_body_trim(crl_ngx_body *body, off_t below);
void crl_ngx_body_clear(crl_ngx_body *body);
/* The piece that has the byte at this offset; NULL: none yet. */
crl_ngx_piece *crl_ngx_body_at(const crl_ngx_body *body, off_t offset);

#endif
