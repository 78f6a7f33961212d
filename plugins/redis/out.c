/* out.c: commands in RESP to send to the server. Small words are copied into one buffer, large ones
 * are sent from where they are. */
#include <stdlib.h>

#include "redis.h"

enum { COPIED = 16384, KEPT = 1 << 20, AT_A_TIME = 64, DIGITS_MOST = 20 };

static __attribute__((noinline)) int grow(crl_redis_out *out, size_t size) {
  size_t wanted = out->room * 2 > out->used + size ? out->room * 2 : out->used + size + 1024;
  char *bytes = realloc(out->bytes, wanted);
  if (bytes == NULL) {
    out->failed = 1;
    return 0;
  }
  out->bytes = bytes;
  out->room = wanted;
  return 1;
}

/* Makes room for `size` more bytes; NULL: no memory. */
static char *room(crl_redis_out *out, size_t size) {
  if (out->failed || (out->room - out->used < size && !grow(out, size))) return NULL;
  return out->bytes + out->used;
}

static void piece(crl_redis_out *out, const void *data, size_t from, size_t size) {
  if (out->count == out->piece_room) {
    size_t wanted = out->piece_room * 2 + 8;
    crl_redis_piece *pieces = realloc(out->pieces, wanted * sizeof *pieces);
    if (pieces == NULL) {
      out->failed = 1;
      return;
    }
    out->pieces = pieces;
    out->piece_room = wanted;
  }
  out->pieces[out->count++] = (crl_redis_piece){.data = data, .from = from, .size = size};
  out->total += size;
}

/* After `size` bytes were put into the room. */
static void placed(crl_redis_out *out, size_t size) {
  if (out->count > 0 && out->pieces[out->count - 1].data == NULL) {
    out->pieces[out->count - 1].size += size;
    out->total += size;
  } else {
    piece(out, NULL, out->used, size);
  }
  out->used += size;
}

static void copy(crl_redis_out *out, const void *data, size_t size) {
  if (size == 0) return;
  char *at = room(out, size);
  if (at == NULL) return;
  memcpy(at, data, size);
  placed(out, size);
}

/* Writes `number` in decimal to the end of text[24]; returns its beginning. */
static char *decimal(char text[24], int64_t number) {
  uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
  char *at = text + 24;
  do *--at = (char)('0' + rest % 10);
  while ((rest /= 10) != 0);
  if (number < 0) *--at = '-';
  return at;
}

/* Writes a number where it belongs; returns its end. */
static char *put_digits(char *at, size_t number) {
  char *end = at + 1;
  for (size_t rest = number; rest > 9; rest /= 10) end++;
  char *digit = end;
  do *--digit = (char)('0' + number % 10);
  while ((number /= 10) != 0);
  return end;
}

/* Writes the kind of a thing and its number, a line that takes DIGITS_MOST + 3 bytes at most;
 * returns its end. */
static char *put_head(char *at, char kind, size_t number) {
  *at = kind;
  at = put_digits(at + 1, number);
  memcpy(at, "\r\n", 2);
  return at + 2;
}

static void head(crl_redis_out *out, char kind, size_t number) {
  char *from = room(out, DIGITS_MOST + 3);
  if (from != NULL) placed(out, (size_t)(put_head(from, kind, number) - from));
}

static const char asking[] = "*1\r\n$6\r\nASKING\r\n";

void crl_redis_out_command(crl_redis_out *out, size_t words) {
  if (out->asking) copy(out, asking, sizeof asking - 1);
  head(out, '*', words);
}

void crl_redis_out_joined(crl_redis_out *out, const void *first, size_t first_size,
                          const void *second, size_t second_size) {
  head(out, '$', first_size + second_size);
  copy(out, first, first_size);
  if (second_size > COPIED)
    piece(out, second, 0, second_size);
  else
    copy(out, second, second_size);
  copy(out, "\r\n", 2);
}

/* The commands that are sent most often; what is around the key is copied as a whole. */
void crl_redis_out_range(crl_redis_out *out, const void *key, size_t key_size) {
  static const char begin[] = "*4\r\n$8\r\nGETRANGE\r\n$",
                    end[] = "\r\n$1\r\n0\r\n$7\r\n1048575\r\n";
  _Static_assert(CRL_REDIS_PIECE == 1048576, "the end of the first piece");
  if (out->asking) copy(out, asking, sizeof asking - 1);
  char *from = room(out, sizeof begin + DIGITS_MOST + 2 + key_size + sizeof end);
  if (from == NULL) return;
  memcpy(from, begin, sizeof begin - 1);
  char *at = put_digits(from + sizeof begin - 1, key_size);
  memcpy(at, "\r\n", 2);
  memcpy(at + 2, key, key_size);
  memcpy(at + 2 + key_size, end, sizeof end - 1);
  placed(out, (size_t)(at + 2 + key_size + sizeof end - 1 - from));
}

void crl_redis_out_word(crl_redis_out *out, const void *data, size_t size) {
  char *from = room(out, DIGITS_MOST + 3 + size + 2);
  if (from == NULL) return;
  char *at = put_head(from, '$', size);
  if (size > 0) memcpy(at, data, size);
  memcpy(at + size, "\r\n", 2);
  placed(out, (size_t)(at + size + 2 - from));
}

void crl_redis_out_text(crl_redis_out *out, const char *text) {
  crl_redis_out_word(out, text, strlen(text));
}

void crl_redis_out_number(crl_redis_out *out, int64_t number) {
  char text[24];
  char *at = decimal(text, number);
  crl_redis_out_word(out, at, (size_t)(text + sizeof text - at));
}

void crl_redis_out_reset(crl_redis_out *out) {
  if (out->room > KEPT) {
    free(out->bytes);
    out->bytes = NULL;
    out->room = 0;
  }
  out->used = out->count = out->total = 0;
  out->failed = out->asking = 0;
}

void crl_redis_out_free(crl_redis_out *out) {
  free(out->bytes);
  free(out->pieces);
  memset(out, 0, sizeof *out);
}

/* Several pieces, or the rest of one. Apart, for its array. */
static __attribute__((noinline)) int send_pieces(crl_redis_out *out, crl_redis_wire *wire,
                                                 int64_t deadline, size_t done, size_t *sent,
                                                 corral_error *error) {
  size_t at = 0; /* index of the piece, of which `done` bytes are sent */
  while (at < out->count) {
    struct iovec pieces[AT_A_TIME];
    size_t count = 0, wrote;
    for (size_t i = at; i < out->count && count < AT_A_TIME; i++, count++) {
      const crl_redis_piece *p = &out->pieces[i];
      size_t skip = i == at ? done : 0;
      const char *data = p->data != NULL ? p->data : out->bytes + p->from;
      pieces[count] =
          (struct iovec){.iov_base = (void *)(uintptr_t)(data + skip), .iov_len = p->size - skip};
    }
    int status = crl_redis_wire_write(wire, pieces, count, deadline, &wrote, error);
    if (status != CORRAL_OK) return status;
    *sent += wrote;
    for (done += wrote; at < out->count && done >= out->pieces[at].size; at++)
      done -= out->pieces[at].size;
  }
  return CORRAL_OK;
}

int crl_redis_out_send(crl_redis_out *out, crl_redis_wire *wire, int64_t deadline, size_t *sent,
                       corral_error *error) {
  struct iovec all = {.iov_base = out->bytes, .iov_len = out->used};
  *sent = 0;
  if (out->count != 1 || out->total != out->used)
    return send_pieces(out, wire, deadline, 0, sent, error);
  int status = crl_redis_wire_write(wire, &all, 1, deadline, sent, error);
  if (status != CORRAL_OK || *sent == out->used) return status;
  return send_pieces(out, wire, deadline, *sent, sent, error);
}
