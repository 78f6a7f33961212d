/* look.c: the reply to a lone look, without hiredis: nearly always one string, which came at once,
 * and a record that is free. It is copied once, into the memory that the value is made of. */
#include "redis.h"

enum { DIGITS_MOST = 5 }; /* of the length of what fits into h->in */

const char *crl_redis_look_string(const char *in, size_t got, size_t *ret_len) {
  size_t at = 1, len = 0;
  if (got < 1 || in[0] != '$') return NULL;
  for (; at < got && at <= DIGITS_MOST && in[at] >= '0' && in[at] <= '9'; at++)
    len = 10 * len + (size_t)(in[at] - '0');
  if (at == 1 || len == 0 || at + 2 + len + 2 != got) return NULL;
  if (in[at] != '\r' || in[at + 1] != '\n' || in[got - 2] != '\r' || in[got - 1] != '\n')
    return NULL;
  *ret_len = len;
  return in + at + 2;
}

int crl_redis_look_take(crl_redis_handle *h, corral_op *op, size_t got) {
  const corral_host *host = h->store->host;
  size_t len;
  const char *string = crl_redis_look_string(h->in, got, &len);
  if (string == NULL || !crl_redis_record_found_free(h, op, (const uint8_t *)string, len)) return 0;
  uint8_t *record = host->record_new(len);
  if (record == NULL) {
    op->state = (corral_record_state){.life_ms = 0};
    op->status = host->fail(op->error, CORRAL_ENOMEM, "%s: no memory for a record", h->store->name);
    return 1;
  }
  memcpy(record, string, len);
  op->found =
      (corral_found){.record = record, .len = len, .drop = host->record_drop, .owner = record};
  return 1;
}
