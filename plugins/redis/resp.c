/* resp.c: messages of RESP3, for a watch: hiredis reads pushes from version 1.0 on only.
 *
 * A message is a token, or an aggregate's token and the messages within it. The reader finds where
 * a message ends and keeps its place between two feeds, so that each byte is looked at once, but
 * for those of an unfinished line. Everything that a server may send to a watch is far below the
 * limits here: a message above them is none. */
#include <stdlib.h>

#include "redis.h"

enum { LINE_MOST = 4096, FEED = 16384 };

void crl_redis_resp_free(crl_redis_resp *in) {
  free(in->bytes);
  memset(in, 0, sizeof *in);
}

char *crl_redis_resp_room(crl_redis_resp *in, size_t *size) {
  if (in->begin > 0) {
    memmove(in->bytes, in->bytes + in->begin, in->used - in->begin);
    in->used -= in->begin;
    in->at -= in->begin;
    in->begin = 0;
  }
  if (in->room - in->used < FEED) {
    size_t room = 2 * in->used + FEED;
    char *bytes = realloc(in->bytes, room);
    if (bytes == NULL) return NULL;
    in->bytes = bytes;
    in->room = room;
  }
  *size = in->room - in->used;
  return in->bytes + in->used;
}

void crl_redis_resp_feed(crl_redis_resp *in, size_t got) { in->used += got; }

/* ---- tokens -------------------------------------------------------------------------------- */

/* Reads a whole line of digits, perhaps with a '-'. 0: it is none. */
static int read_number(const char *line, size_t len, int64_t *ret) {
  int64_t number = 0;
  size_t at = len > 0 && line[0] == '-';
  if (at == len || len - at > 18) return 0;
  for (size_t i = at; i < len; i++) {
    if (line[i] < '0' || line[i] > '9') return 0;
    number = 10 * number + (line[i] - '0');
  }
  *ret = at > 0 ? -number : number;
  return 1;
}

/* The line at `at`, behind its type. Returns its length without the end; -1: more bytes are
 * needed; -2: it is none. */
static int read_line(const char *at, size_t size) {
  const char *end = memchr(at, '\n', size < LINE_MOST ? size : LINE_MOST);
  if (end == NULL) return size < LINE_MOST ? -1 : -2;
  return end > at && end[-1] == '\r' ? (int)(end - at) - 1 : -2;
}

/* Bytes of a string of known length, behind its line. */
static int read_string(const char *at, size_t size, crl_redis_token *t, size_t *used) {
  if (t->number == -1 && t->type == '$') {
    t->type = '_';
    return 1;
  }
  if (t->number < 0 || t->number > CRL_REDIS_LONGEST_PUSH) return -1;
  t->len = (size_t)t->number;
  if (size - *used < t->len + 2) return 0;
  t->text = at + *used;
  *used += t->len + 2;
  return t->text[t->len] == '\r' && t->text[t->len + 1] == '\n' ? 1 : -1;
}

static int read_count(crl_redis_token *t) {
  if (t->number == -1 && t->type == '*') {
    t->type = '_';
    t->number = 0;
    return 1;
  }
  return t->number >= 0 && t->number <= CRL_REDIS_LONGEST_PUSH ? 1 : -1;
}

/* Reads a token. 1: *t and *used are set; 0: more bytes are needed; -1: it is none. */
static int read_token(const char *at, size_t size, crl_redis_token *t, size_t *used) {
  if (size == 0) return 0;
  int len = read_line(at + 1, size - 1);
  if (len < 0) return len == -1 ? 0 : -1;
  *t = (crl_redis_token){.type = at[0], .text = at + 1, .len = (size_t)len};
  *used = (size_t)len + 3;
  switch (t->type) {
    case '+':
    case '-':
    case ',':
    case '(':
    case '#': return 1;
    case '_': return len == 0 ? 1 : -1;
    case ':': return read_number(t->text, t->len, &t->number) ? 1 : -1;
    case '$':
    case '=':
    case '!': return read_number(t->text, t->len, &t->number) ? read_string(at, size, t, used) : -1;
    case '*':
    case '~':
    case '>':
    case '%': return read_number(t->text, t->len, &t->number) ? read_count(t) : -1;
    default: return -1;
  }
}

/* Number of messages within an aggregate. */
static uint64_t parts_of(const crl_redis_token *t) {
  switch (t->type) {
    case '*':
    case '~':
    case '>': return (uint64_t)t->number;
    case '%': return 2 * (uint64_t)t->number;
    default: return 0;
  }
}

/* ---- messages ------------------------------------------------------------------------------ */

int crl_redis_resp_next(crl_redis_resp *in, crl_redis_message *ret) {
  if (in->left == 0) {
    in->begin = in->at;
    in->left = 1;
  }
  while (in->left > 0) {
    crl_redis_token t;
    size_t used;
    if (in->at == in->used) return 0;
    int whole = in->at - in->begin > (in->most > 0 ? in->most : CRL_REDIS_LONGEST_PUSH)
                    ? -1
                    : read_token(in->bytes + in->at, in->used - in->at, &t, &used);
    if (whole <= 0) return whole;
    in->at += used;
    in->left += parts_of(&t) - 1;
    if (in->left > CRL_REDIS_LONGEST_PUSH) return -1;
  }
  *ret = (crl_redis_message){.at = in->bytes + in->begin, .size = in->at - in->begin};
  return 1;
}

int crl_redis_message_next(crl_redis_message *m, crl_redis_token *ret) {
  size_t used;
  if (read_token(m->at, m->size, ret, &used) <= 0) return 0;
  m->at += used;
  m->size -= used;
  return 1;
}
