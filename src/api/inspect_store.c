/* inspect_store.c: the public call that asks a store's servers for what matters to corral. The
 * store's plugin asks; of a plugin that can't, the latency is measured here. Facts are foreign:
 * their number and their sizes are bounded before they are told. */
#include <stdio.h>
#include <string.h>

#include "api/handle.h"
#include "base/status.h"
#include "os/env.h"
#include "record/key.h"
#include "store/pool.h"

enum { ROUNDS = 9 };

typedef struct inspection {
  corral_fact_fn *tell;
  void *arg;
  int count; /* facts told */
} inspection;

/* ---- facts --------------------------------------------------------------------------------- */

static int is_name(const char *name) {
  size_t len = name != NULL ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
  return len >= 1 && len <= CORRAL_FACT_NAME && name[len] == '\0';
}

static int is_verdict(int verdict) {
  return verdict == CORRAL_FACT_PLAIN || verdict == CORRAL_FACT_WARNING ||
         verdict == CORRAL_FACT_UNFIT;
}

/* Copies a text as far as there is room. */
static const char *cut(char *room, size_t size, const char *text) {
  (void)snprintf(room, size, "%.*s", (int)size - 1, text != NULL ? text : "");
  return room;
}

static void tell(const corral_fact *fact, void *arg) {
  inspection *i = arg;
  char server[CORRAL_FACT_TEXT], value[CORRAL_FACT_TEXT], advice[CORRAL_FACT_TEXT];
  if (i->count == CORRAL_FACTS_MOST || !is_name(fact->name)) return;
  corral_fact told = {.size = sizeof told,
                      .server = cut(server, sizeof server, fact->server),
                      .name = fact->name,
                      .value = cut(value, sizeof value, fact->value),
                      .verdict = is_verdict(fact->verdict) ? fact->verdict : CORRAL_FACT_WARNING};
  if (told.verdict != CORRAL_FACT_PLAIN) told.advice = cut(advice, sizeof advice, fact->advice);
  i->count++;
  i->tell(&told, i->arg);
}

/* ---- a plugin that can't inspect ----------------------------------------------------------- */

/* Looks once at a key that isn't there. */
static int look(crl_pool *pool, const corral_inquiry *q, int64_t *us, corral_error *error) {
  int is_lock = (q->flags & CORRAL_INSPECT_LOCKS) != 0;
  corral_op op = {.verb = is_lock ? CORRAL_VERB_LOCK_SHOW : CORRAL_VERB_GET,
                  .key = q->key,
                  .key_len = q->key_len,
                  .error = error,
                  .status = CORRAL_EINDOUBT};
  int64_t began = crl_env_now_us();
  crl_pool_perform(pool, &op, 1, crl_env_now_ms() + q->op_ms);
  *us = crl_env_now_us() - began;
  if (op.found.drop != NULL) op.found.drop(op.found.owner);
  return op.status == CORRAL_EMISS ? CORRAL_OK : op.status;
}

static int measure(crl_pool *pool, const corral_inquiry *q, corral_error *error) {
  const char *server = crl_pool_info(pool)->name;
  int64_t us[ROUNDS], first;
  int status = look(pool, q, &first, error); /* connects */
  for (int i = 0; i < ROUNDS && status == CORRAL_OK; i++) status = look(pool, q, &us[i], error);
  if (status != CORRAL_OK) return status;
  corral_tell_latency(q, server, us, ROUNDS);
  return CORRAL_OK;
}

/* ---- the call ------------------------------------------------------------------------------ */

/* A key of the corral's namespace that nobody else will think of. */
static int make_key(const crl_context *context, unsigned flags, crl_key *ret) {
  char name[64] = "corral doctor ";
  size_t used = strlen(name);
  uint8_t bytes[16];
  if (crl_env_random(bytes, sizeof bytes) != CORRAL_OK) return CORRAL_EIO;
  for (size_t i = 0; i < sizeof bytes; i++)
    used += (size_t)snprintf(name + used, sizeof name - used, "%02x", bytes[i]);
  crl_name named = {.key = name, .key_len = used};
  int is_lock = (flags & CORRAL_INSPECT_LOCKS) != 0;
  return crl_key_make(ret, is_lock ? CRL_KEY_LOCK : CRL_KEY_VALUE, &context->space, &named);
}

int corral_inspect_store(corral *c, unsigned flags, corral_fact_fn *to, void *arg,
                         corral_error *error) {
  crl_context *context;
  crl_key key;
  inspection i = {.tell = to, .arg = arg};
  int status = crl_context_enter(c, &context, error);
  if (status != CORRAL_OK) return status;
  if (to == NULL || (flags & ~(unsigned)CORRAL_INSPECT_LOCKS) != 0)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "corral_inspect_store: accepted: a function, and CORRAL_INSPECT_LOCKS");
  const crl_pool_options *options = crl_pool_options_of(context->pool);
  if (options->info.locks_only) flags |= CORRAL_INSPECT_LOCKS;
  status = make_key(context, flags, &key);
  if (status != CORRAL_OK) return crl_status_plain(error, status);
  corral_inquiry q = {.size = sizeof q,
                      .op_ms = context->op_ms,
                      .flags = flags,
                      .key = key.stored,
                      .key_len = key.stored_len,
                      .tell = tell,
                      .arg = &i};
  corral_error why = {0};
  status = options->plugin->inspect != NULL ? options->plugin->inspect(options->store, &q, &why)
                                            : measure(context->pool, &q, &why);
  crl_key_clean(&key);
  if (status == CORRAL_OK) return CORRAL_OK;
  return why.text[0] != '\0' ? crl_status_fail(error, status, "%s", why.text)
                             : crl_status_plain(error, status);
}
