/* pieces.c: large records, read piece by piece.
 *
 * The server copies a reply whole before it does anything else, and keeps it until it is sent: ten
 * readers of 64 MB at once hold up all clients for half a second, and take 640 MB. With pieces no
 * client waits for more than one of them, and the reader has no second copy either.
 *
 * A record may be replaced between two pieces. So the head, with the stamp, is read behind each
 * piece, in the same write: while the stamp is that of the first piece, so is the body. If it
 * isn't, the look begins anew. (A piece of a record that came and went between a piece and its head
 * is detected by the body's checksum, which is the stamp.) The last head is the one that is handed
 * out, since a lease may have come or gone meanwhile. */
#include <stdlib.h>

#include "redis.h"

enum { LEASE_MOST = CORRAL_FRONT - CORRAL_HEAD };

/* A record being read. */
typedef struct whole {
  uint8_t *bytes;
  size_t size, room;
  corral_header header; /* of the first piece */
  int changed;          /* another record is there now */
} whole;

static void put_range(crl_redis_handle *h, const corral_op *op, size_t from, size_t size) {
  crl_redis_out_command(&h->out, 4);
  crl_redis_out_text(&h->out, "GETRANGE");
  crl_redis_out_word(&h->out, op->key, op->key_len);
  crl_redis_out_number(&h->out, (int64_t)from);
  crl_redis_out_number(&h->out, (int64_t)(from + size - 1));
}

void crl_redis_pieces_put_first(crl_redis_handle *h, const corral_op *op) {
  crl_redis_out_range(&h->out, op->key, op->key_len);
}

void crl_redis_pieces_put(crl_redis_handle *h, const corral_op *op, size_t from) {
  put_range(h, op, from, CRL_REDIS_PIECE);
}

/* Reads the head without the lease: body and stamp. */
static int read_head(const crl_redis_handle *h, const void *head, corral_header *header) {
  return h->store->host->header_read(head, CORRAL_HEAD, header);
}

/* Largest end of a record with this head; later bytes are skipped. */
static size_t end_of(const corral_header *header) {
  return CORRAL_HEAD + (size_t)header->body + LEASE_MOST;
}

int crl_redis_pieces_more(const crl_redis_handle *h, const void *record, size_t size) {
  corral_header header;
  return size >= CRL_REDIS_PIECE && read_head(h, record, &header) == CORRAL_OK &&
         size < end_of(&header);
}

/* 1: the body of the first piece is still there. */
static int is_same(const crl_redis_handle *h, const whole *w, const redisReply *head) {
  corral_header now;
  return head->len == CORRAL_HEAD && read_head(h, head->str, &now) == CORRAL_OK &&
         now.stamp == w->header.stamp && now.body == w->header.body;
}

static int append(whole *w, const void *data, size_t size) {
  if (w->room - w->size < size) {
    size_t room = w->room * 2 > w->size + size ? w->room * 2 : w->size + size;
    uint8_t *bytes = realloc(w->bytes, room);
    if (bytes == NULL) return CORRAL_ENOMEM;
    w->bytes = bytes;
    w->room = room;
  }
  memcpy(w->bytes + w->size, data, size);
  w->size += size;
  return CORRAL_OK;
}

/* Sets the op's status; the rest of the record isn't read. */
static int give_up(crl_redis_handle *h, corral_op *op, int status, const char *what) {
  crl_redis_result_fail(h, op, status, what);
  return CORRAL_OK;
}

/* Takes a piece, and the head that was read behind it. *last: it was the last piece. */
static int take(crl_redis_handle *h, corral_op *op, whole *w, const redisReply *piece,
                const redisReply *head, int *last) {
  const redisReply *refusal = piece->type == REDIS_REPLY_ERROR ? piece : head;
  *last = 1;
  if (refusal->type == REDIS_REPLY_ERROR) return crl_redis_result_error(h, op, refusal);
  if (piece->type != REDIS_REPLY_STRING || head->type != REDIS_REPLY_STRING)
    return crl_redis_result_nonsense(h, op);
  w->changed = !is_same(h, w, head);
  if (w->changed) return CORRAL_OK;
  if (w->size + piece->len > CRL_REDIS_LARGEST)
    return crl_redis_result_fail(h, op, CORRAL_EPROTOCOL, "a record of more than 512 MiB");
  if (append(w, piece->str, piece->len) != CORRAL_OK)
    return give_up(h, op, CORRAL_ENOMEM, "no memory for a record");
  memcpy(w->bytes, head->str, CORRAL_HEAD);
  *last = piece->len < CRL_REDIS_PIECE || w->size >= end_of(&w->header);
  return CORRAL_OK;
}

/* Reads one more piece. */
static int hear_piece(crl_redis_handle *h, corral_op *op, whole *w, int64_t deadline, int *last,
                      corral_error *error) {
  redisReply *piece = NULL, *head = NULL;
  size_t sent;
  *last = 1;
  crl_redis_out_reset(&h->out);
  h->out.asking = (op->flags & CORRAL_OP_ASKING) != 0;
  crl_redis_pieces_put(h, op, w->size);
  put_range(h, op, 0, CORRAL_HEAD);
  if (h->out.failed) return give_up(h, op, CORRAL_ENOMEM, "no memory to send a command");
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  if (status == CORRAL_OK) status = crl_redis_reply_of(h, op, deadline, &piece, error);
  if (status == CORRAL_OK) status = crl_redis_reply_of(h, op, deadline, &head, error);
  if (status == CORRAL_OK) {
    status = take(h, op, w, piece, head, last);
    if (status != CORRAL_OK)
      h->store->host->fail(error, status, "%s: a reply that doesn't fit the command",
                           h->store->name);
  }
  if (piece != NULL) freeReplyObject(piece);
  if (head != NULL) freeReplyObject(head);
  return status;
}

static void give(corral_op *op, const whole *w) {
  op->found.owner = op->found.record = w->bytes;
  op->found.len = w->size;
  op->found.drop = free;
  op->status = CORRAL_OK;
}

int crl_redis_pieces_hear(crl_redis_handle *h, corral_op *op, int64_t deadline, int *changed,
                          corral_error *error) {
  whole w = {0};
  int status = CORRAL_OK, last = append(&w, op->found.record, op->found.len) != CORRAL_OK;
  (void)read_head(h, op->found.record, &w.header);
  op->found.drop(op->found.owner);
  op->found = (corral_found){.record = NULL};
  op->status = CORRAL_EINDOUBT;
  if (last) give_up(h, op, CORRAL_ENOMEM, "no memory for a record");
  while (!last && status == CORRAL_OK) status = hear_piece(h, op, &w, deadline, &last, error);
  *changed = w.changed;
  if (status == CORRAL_OK && op->status == CORRAL_EINDOUBT && !w.changed)
    give(op, &w);
  else
    free(w.bytes);
  return status;
}
