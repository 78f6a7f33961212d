/* context.c: the checks with which calls begin. */
#include "context/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/value.h"
#include "os/env.h"
#include "policy/policy.h"
#include "stats/file.h"

enum { BEGIN_US = 50 }; /* between looks, while another thread begins */

static int check_callback(const crl_context *context, corral_error *error) {
  if (!crl_frame_within(&context->events)) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EINVAL,
                         "within on_event of this corral; accepted there: corral_counter");
}

int crl_context_open(corral *c, crl_context **ret, corral_error *error) {
  crl_context *context = (crl_context *)(void *)c;
  uint32_t magic = c == NULL ? 0 : atomic_load(&context->magic);
  /* a compute, which corral_close waits for */
  if (magic == CRL_CONTEXT_CLOSING) return crl_status_plain(error, CORRAL_ECLOSED);
  if (magic != CRL_CONTEXT_OPEN) return crl_status_fail(error, CORRAL_EINVAL, "not an open corral");
  int status = check_callback(context, error);
  if (status == CORRAL_OK) *ret = context;
  return status;
}

int crl_context_is_home(const crl_context *context) {
  unsigned claimed = atomic_load(&((crl_context *)(uintptr_t)context)->claimed);
  return claimed == 0 || claimed == crl_env_forks() + 1;
}

int crl_context_check(const crl_context *context, corral_error *error) {
  return crl_context_is_home(context) ? check_callback(context, error)
                                      : crl_status_plain(error, CORRAL_EFORKED);
}

/* Gets are counted where somebody asks for that: readers of a stats file, or the option. */
static void begin_hot(crl_context *context) {
  size_t size;
  const crl_stats *stats = &context->events.stats;
  if (stats->times == NULL && context->hot.percent <= 0) return;
  atomic_store(&context->hot.table, crl_stats_part(stats, CRL_PART_HOT, &size));
}

/* The first use: nothing is counted before it. */
static void begin(crl_context *context, unsigned here) {
  corral_error why = {0};
  int status = crl_stats_file_begin(&context->events.stats, &why);
  begin_hot(context);
  atomic_store(&context->home, here);
  if (status != CORRAL_OK)
    crl_event_emit(&context->events, CORRAL_EVENT_WARNING, NULL, 0, why.text);
}

int crl_context_enter_first(corral *c, crl_context **ret, corral_error *error) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  int status = crl_context_open(c, ret, error);
  if (status != CORRAL_OK) return status;
  crl_context *context = *ret;
  unsigned here = crl_env_forks() + 1, claimed = 0;
  if (atomic_compare_exchange_strong(&context->claimed, &claimed, here)) {
    begin(context, here);
    claimed = here;
  }
  if (claimed != here) return crl_status_plain(error, CORRAL_EFORKED);
  while (atomic_load(&context->home) != here) crl_env_pause_us(BEGIN_US);
  return CORRAL_OK;
}

int crl_context_hears_of(const crl_context *context, const crl_near_copy *copy) {
  const crl_watch *watch = context->watch;
  if (copy->looked <= atomic_load(&context->near_since)) return 0;
  return copy->confirmed || watch == NULL || !crl_watch_registers(watch) || !crl_watch_is_up(watch);
}

void crl_context_watch_copy(crl_context *context, const void *key, size_t len, uint64_t hash) {
  crl_watch_key name = {.data = key, .len = len, .hash = hash};
  if (context->watch != NULL && crl_watch_registers(context->watch) &&
      crl_watch_is_up(context->watch))
    (void)crl_watch_register(context->watch, NULL, &name, 0);
}

/* ---- policies of callers ------------------------------------------------------------------- */

/* Their first member is their size, so shorter and longer ones differ. */
static int is_given(const crl_policy_known *known, const corral_policy *user) {
  return memcmp(&known->given, user, user->size) == 0;
}

/* Keeps a policy that was resolved in `whole`. Another thread may have kept the same one: it then
 * has two places. NULL: no memory, or no place. */
static const corral_policy *keep_policy(crl_context *context, const corral_policy *user,
                                        const corral_policy *whole) {
  size_t place = 0;
  while (place < CRL_POLICIES && atomic_load(&context->policies[place]) != NULL) place++;
  if (place == CRL_POLICIES) return NULL;
  crl_policy_known *known = crl_alloc(sizeof *known), *none = NULL;
  if (known == NULL) return NULL;
  memcpy(&known->given, user, user->size);
  known->whole = *whole;
  for (; place < CRL_POLICIES; place++, none = NULL)
    if (atomic_compare_exchange_strong(&context->policies[place], &none, known))
      return &known->whole;
  free(known);
  return NULL;
}

static int fits(const corral_policy *user) {
  return user->size >= sizeof user->size && user->size <= sizeof *user;
}

const corral_policy *crl_context_kept(const crl_context *context, const corral_policy *user) {
  crl_policy_known *_Atomic *places = ((crl_context *)(uintptr_t)context)->policies;
  const crl_policy_known *known;
  if (!fits(user)) return NULL;
  for (size_t i = 0; i < CRL_POLICIES; i++) {
    if ((known = atomic_load_explicit(&places[i], memory_order_acquire)) == NULL) return NULL;
    if (is_given(known, user)) return &known->whole;
  }
  return NULL;
}

const corral_policy *crl_context_policy(crl_context *context, const corral_policy *user,
                                        corral_policy *room, int *ret_status, corral_error *error) {
  const corral_policy *kept = crl_context_kept(context, user);
  *ret_status = CORRAL_OK;
  if (kept != NULL) return kept;
  *ret_status = crl_policy_resolve(room, user, &context->policy, error);
  if (*ret_status != CORRAL_OK) return NULL;
  if (fits(user)) kept = keep_policy(context, user, room);
  return kept == NULL ? room : kept;
}

void crl_context_free_policies(crl_context *context) {
  for (size_t i = 0; i < CRL_POLICIES; i++) free(atomic_load(&context->policies[i]));
}
