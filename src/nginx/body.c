/* body.c: the bytes of an answer that is being captured; see body.h. */
#include "body.h"

#include <stdlib.h>

static crl_ngx_piece *add(crl_ngx_body *body, size_t room, off_t file_at) {
  crl_ngx_piece *piece = malloc(sizeof *piece + (file_at < 0 ? room : 0));
  if (piece == NULL) return NULL;
  *piece = (crl_ngx_piece){.from = body->size, .room = room, .file_at = file_at};
  if (body->last != NULL)
    body->last->next = piece;
  else
    body->first = piece;
  body->last = piece;
  if (file_at < 0) body->in_memory += room;
  return piece;
}

int crl_ngx_body_append(crl_ngx_body *body, const u_char *bytes, size_t size, size_t room) {
  while (size > 0) {
    crl_ngx_piece *piece = body->last;
    if (piece == NULL || piece->file_at >= 0 || piece->size == piece->room)
      piece = add(body, ngx_max(room, size), -1);
    if (piece == NULL) return -1;
    size_t part = ngx_min(size, piece->room - piece->size);
    ngx_memcpy(piece->bytes + piece->size, bytes, part);
    piece->size += part;
    body->size += (off_t)part;
    bytes += part;
    size -= part;
  }
  return 0;
}

static ngx_temp_file_t *new_file(ngx_path_t *path) {
  ngx_pool_t *pool = ngx_create_pool(1024, ngx_cycle->log);
  ngx_temp_file_t *file = pool != NULL ? ngx_pcalloc(pool, sizeof *file) : NULL;
  if (file == NULL) {
    if (pool != NULL) ngx_destroy_pool(pool);
    return NULL;
  }
  file->file.fd = NGX_INVALID_FILE;
  file->file.log = ngx_cycle->log;
  file->path = path;
  file->pool = pool;
  file->log_level = NGX_LOG_INFO;
  file->warn = "an answer is buffered to a temporary file";
  file->clean = 1;
  return file;
}

int crl_ngx_body_spill(crl_ngx_body *body, u_char *bytes, size_t size, ngx_path_t *path) {
  ngx_buf_t buf = {.pos = bytes, .last = bytes + size, .memory = 1};
  ngx_chain_t link = {.buf = &buf};
  if (body->file == NULL) body->file = new_file(path);
  if (body->file == NULL) return -1;
  off_t at = body->file->offset;
  if (ngx_write_chain_to_temp_file(body->file, &link) != (ssize_t)size) return -1;
  body->file->offset = at + (off_t)size;
  crl_ngx_piece *piece = body->last;
  if (piece == NULL || piece->file_at < 0) piece = add(body, 0, at);
  if (piece == NULL) return -1;
  piece->size += size;
  body->size += (off_t)size;
  return 0;
}

void crl_ngx_body_copy(const crl_ngx_body *body, u_char *to) {
  for (const crl_ngx_piece *piece = body->first; piece != NULL; piece = piece->next)
    to = ngx_cpymem(to, piece->bytes, piece->size);
}

void crl_ngx_body_trim(crl_ngx_body *body, off_t below) {
  for (crl_ngx_piece *piece = body->first;
       piece != NULL && piece->from + (off_t)piece->size <= below; piece = body->first) {
    /* a piece with room left is still written to */
    if (piece == body->last && (piece->file_at >= 0 || piece->size < piece->room)) break;
    body->first = piece->next;
    if (body->first == NULL) body->last = NULL;
    if (piece->file_at < 0) body->in_memory -= piece->room;
    free(piece);
  }
}

void crl_ngx_body_clear(crl_ngx_body *body) {
  while (body->first != NULL) {
    crl_ngx_piece *piece = body->first;
    body->first = piece->next;
    free(piece);
  }
  if (body->file != NULL) ngx_destroy_pool(body->file->pool);
  ngx_memzero(body, sizeof *body);
}

crl_ngx_piece *crl_ngx_body_at(const crl_ngx_body *body, off_t offset) {
  for (crl_ngx_piece *piece = body->first; piece != NULL; piece = piece->next)
    if (offset < piece->from + (off_t)piece->size) return offset >= piece->from ? piece : NULL;
  return NULL;
}
