/* inspect_ask.c: asking a server, and telling what it says. */
#include <stdarg.h>

#include "inspect.h"

int64_t crl_redis_inspect_until(const crl_redis_store *store, const corral_inquiry *inquiry) {
  return store->host->now_ms() + inquiry->op_ms;
}

int crl_redis_exam_ask(crl_redis_exam *x, const char *const *words, size_t count,
                       redisReply **ret) {
  crl_redis_out *out = &x->handle->out;
  size_t sent;
  int64_t until = crl_redis_inspect_until(x->store, x->inquiry);
  crl_redis_out_reset(out);
  crl_redis_out_command(out, count);
  for (size_t i = 0; i < count; i++) crl_redis_out_text(out, words[i]);
  if (out->failed) return x->store->host->fail(x->error, CORRAL_ENOMEM, "no memory to ask");
  int status = crl_redis_out_send(out, &x->handle->wire, until, &sent, x->error);
  return status == CORRAL_OK ? crl_redis_reply_next(x->handle, until, ret, x->error) : status;
}

void crl_redis_fact_tell(const corral_inquiry *q, const char *server, const char *name, int verdict,
                         const char *advice, const char *format, va_list args) {
  char value[CRL_REDIS_FACT];
  vsnprintf(value, sizeof value, format, args);
  corral_tell(q, server, name, value, verdict, advice);
}

void crl_redis_exam_tell(const crl_redis_exam *x, const char *name, int verdict, const char *advice,
                         const char *format, ...) {
  va_list args;
  va_start(args, format);
  crl_redis_fact_tell(x->inquiry, x->store->name, name, verdict, advice, format, args);
  va_end(args);
}

int crl_redis_exam_line(const redisReply *text, const char *name, char *ret, size_t size) {
  size_t len = strlen(name);
  *ret = '\0';
  if (text == NULL || text->type != REDIS_REPLY_STRING) return 0;
  for (const char *at = text->str; at != NULL; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (strncmp(at, name, len) != 0 || at[len] != ':') continue;
    snprintf(ret, size, "%.*s", (int)strcspn(at + len + 1, "\r\n"), at + len + 1);
    return 1;
  }
  return 0;
}
