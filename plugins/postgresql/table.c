/* table.c: locks=table: a row for each name, changed by one statement for each verb. */
#include <stdio.h>
#include <stdlib.h>

#include "postgresql.h"

/* Length of a valid UTF-8 character; 0: it isn't one. */
static size_t utf8(const unsigned char *at, size_t left) {
  size_t n = *at < 0x80 ? 1 : *at < 0xc2 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : *at < 0xf5 ? 4 : 0;
  if (n > left) return 0;
  for (size_t i = 1; i < n; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  int is_odd = n > 2 && ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) ||
                         (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f));
  return is_odd ? 0 : n;
}

const char *crl_pg_note_of(const crl_pg_session *c, const char *text, size_t text_len,
                           char room[CORRAL_LOCK_NOTE + 1]) {
  const char *encoding = PQparameterStatus(c->conn, "server_encoding");
  int all = encoding != NULL && strcmp(encoding, "UTF8") == 0;
  const unsigned char *note = (const unsigned char *)text;
  size_t len = text_len < CORRAL_LOCK_NOTE ? text_len : CORRAL_LOCK_NOTE, at = 0;
  while (at < len && note[at] != 0) {
    size_t n = utf8(note + at, len - at);
    if (n == 0 || (n > 1 && !all))
      room[at++] = '?';
    else
      memcpy(room + at, note + at, n), at += n;
  }
  room[at] = '\0';
  return room;
}

const char *crl_pg_key_text(const crl_pg_store *s, const corral_op *op,
                            char room[CRL_PG_KEY_TEXT]) {
  const uint8_t *key = op->key;
  if (!s->notify) return "";
  snprintf(room, CRL_PG_KEY_TEXT, "any");
  for (size_t i = 0; op->key_len <= CRL_PG_KEY && i < op->key_len; i++)
    snprintf(room + 2 * i, 3, "%02x", key[i]);
  return room;
}

int crl_pg_show(crl_pg_store *s, corral_op *op, uint64_t fence, const corral_hold *holds,
                size_t count, int64_t now) {
  op->found.len = CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD;
  op->found.record = op->found.owner = malloc(op->found.len);
  if (op->found.record == NULL)
    return s->host->fail(op->error, CORRAL_ENOMEM, "%s: no memory for a record", s->name);
  op->found.drop = free;
  op->lock_state.now = now;
  s->host->lock_write(fence, holds, count, op->found.record);
  return CORRAL_OK;
}

static int show_row(crl_pg_store *s, corral_op *op, const PGresult *r) {
  if (PQntuples(r) == 0) return CORRAL_EMISS;
  corral_hold hold = {.mode = CORRAL_LOCK_EXCLUSIVE,
                      .fence = (uint64_t)crl_pg_number_at(r, 1, 0),
                      .until = crl_pg_ms_at(r, 2, 0),
                      .since = crl_pg_ms_at(r, 3, 0)};
  if (PQgetlength(r, 0, 5) == CORRAL_TOKEN) memcpy(hold.token, PQgetvalue(r, 0, 5), CORRAL_TOKEN);
  memcpy(hold.note, PQgetvalue(r, 0, 6),
         (size_t)PQgetlength(r, 0, 6) < sizeof hold.note ? (size_t)PQgetlength(r, 0, 6)
                                                         : sizeof hold.note);
  return crl_pg_show(s, op, hold.fence, &hold, crl_pg_number_at(r, 0, 0) != 0,
                     crl_pg_ms_at(r, 4, 0));
}

/* Judges a reply. A hold that is over before its reply is complete (because another session had
 * locked the row) counts as none. */
static int judge(corral_op *op, const PGresult *r) {
  int is_done = PQntuples(r) > 0 && crl_pg_number_at(r, 0, 0) != 0,
      is_lock = op->verb == CORRAL_VERB_LOCK;
  op->lock_state.left_ms = PQntuples(r) > 0 ? crl_pg_ms_at(r, 2, 0) : 0;
  if (is_done && op->verb != CORRAL_VERB_UNLOCK && op->lock_state.left_ms <= 0) is_done = 0;
  if (is_done && op->verb != CORRAL_VERB_UNLOCK)
    op->lock_state.fence = (uint64_t)crl_pg_number_at(r, 1, 0);
  if (is_done) return CORRAL_OK;
  /* the statement saw the row as it was before another one took the lock */
  if (is_lock && op->lock_state.left_ms <= 0) op->lock_state.left_ms = -1;
  return is_lock ? CORRAL_EBUSY : CORRAL_ELOST;
}

/* Dates a hold anew whose end can't be right: one length from now. */
static int redate(crl_pg_handle *h, corral_op *op, const crl_pg_question *q, int64_t deadline) {
  PGresult *r;
  int status = crl_pg_ask(h->store, h->session, CRL_PG_REDATE, q, deadline, &r, op->error);
  if (status != CORRAL_OK) return status;
  /* another session has changed the row already */
  op->lock_state.left_ms = PQntuples(r) > 0 ? crl_pg_ms_at(r, 0, 0) : -1;
  PQclear(r);
  return CORRAL_EBUSY;
}

/* Sets the question of a LOCK_EXTEND. */
static crl_pg_statement extends(const crl_pg_session *c, const corral_op *op, crl_pg_question *q,
                                char room[CRL_PG_KEY_TEXT]) {
  const corral_lock_extend_args *args = &op->lock_extend;
  char note[CORRAL_LOCK_NOTE + 1];
  q->first = args->hold_ms;
  q->second = (int64_t)args->fence;
  if (args->from == NULL) return CRL_PG_EXTEND;
  for (size_t i = 0; i < CORRAL_TOKEN; i++) snprintf(room + 2 * i, 3, "%02x", args->from[i]);
  snprintf(room + (size_t)2 * CORRAL_TOKEN, sizeof note, "%s",
           crl_pg_note_of(c, args->note, args->note_len, note));
  q->text = room;
  return CRL_PG_TAKE_OVER;
}

int crl_pg_in_table(crl_pg_handle *h, corral_op *op, int64_t deadline) {
  static const crl_pg_statement verbs[] = {CRL_PG_TAKE, CRL_PG_EXTEND, CRL_PG_UNLOCK, CRL_PG_SHOW};
  crl_pg_store *s = h->store;
  char text[CRL_PG_KEY_TEXT]; /* a payload, or a note */
  PGresult *r;
  if (op->flags & CORRAL_OP_SHARED)
    return s->host->fail(op->error, CORRAL_EUNSUPPORTED,
                         "%s: no shared holds in a table; locks=advisory has them", s->name);
  if (op->verb == CORRAL_VERB_LOCK_EXTEND && op->lock_extend.fence > INT64_MAX)
    return s->host->fail(op->error, CORRAL_EREFUSED, "%s: a fencing token has 63 bits at most",
                         s->name);
  crl_pg_question q = {.name = op->key, .name_len = op->key_len, .token = op->token};
  crl_pg_statement what = verbs[op->verb - CORRAL_VERB_LOCK];
  if (op->verb == CORRAL_VERB_LOCK) q.first = op->lock.hold_ms;
  if (op->verb == CORRAL_VERB_LOCK)
    q.text = crl_pg_note_of(h->session, op->lock.note, op->lock.note_len, text);
  if (op->verb == CORRAL_VERB_LOCK_EXTEND) what = extends(h->session, op, &q, text);
  if (op->verb == CORRAL_VERB_UNLOCK) q.text = crl_pg_key_text(s, op, text);
  int status = crl_pg_ask(s, h->session, what, &q, deadline, &r, op->error);
  if (status == CORRAL_EFOREIGN) op->lock_state.left_ms = -1;
  if (status != CORRAL_OK) return status;
  status = op->verb == CORRAL_VERB_LOCK_SHOW ? show_row(s, op, r) : judge(op, r);
  int is_far = status == CORRAL_EBUSY && PQntuples(r) > 0 && crl_pg_number_at(r, 3, 0) != 0;
  PQclear(r);
  return is_far ? redate(h, op, &q, deadline) : status;
}
