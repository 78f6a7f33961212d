/* fuzz_policy.c: options of every kind: resolved, explained, and used to judge records. */
#include "fuzz.h"

#include "policy/policy.h"
#include "record/envelope.h"

/* An options struct from a faulty caller: of any size, with any content. */
static void *some_struct(fuzz_input *in, size_t right_size) {
  size_t size = fuzz_byte(in) < 200 ? right_size : fuzz_byte(in);
  uint8_t *bytes = calloc(1, size + sizeof(size_t));
  if (bytes == NULL) abort();
  for (uint8_t at = fuzz_byte(in), n = 0; in->left > 0 && n < 40; at = fuzz_byte(in), n++) {
    int64_t value = fuzz_any(in);
    size_t offset = (size_t)at * sizeof value;
    if (offset + sizeof value <= size) memcpy(bytes + offset, &value, sizeof value);
    if (at == 255) break;
  }
  if (size >= sizeof size) memcpy(bytes, &size, sizeof size);
  return bytes;
}

#define CHECK_RANGE(field, name, group, unit, def, least, most, command, nginx, sentence)          \
  MUST(o->field == def || (o->field >= least && o->field <= most));

static void check_policy(const corral_policy *o) { CORRAL_POLICY_MAP(CHECK_RANGE) }
static void check_options(const corral_options *o) { CORRAL_OPTION_MAP(CHECK_RANGE) }
static void check_lock(const corral_lock_options *o) { CORRAL_LOCK_MAP(CHECK_RANGE) }

static void check_judgements(const corral_policy *p, fuzz_input *in) {
  int64_t ttl = (int64_t)(fuzz_number(in, 6) % CRL_LIFE_MOST), cost = fuzz_any(in);
  uint64_t dice = fuzz_number(in, 8);
  int64_t shorter = crl_policy_jitter(p, ttl, dice), least = crl_policy_jitter_least(p, ttl);
  MUST(shorter <= ttl && shorter >= least && least >= 0);
  int64_t lease = crl_policy_lease(p, cost, (uint32_t)fuzz_number(in, 4));
  MUST(lease >= 1 && lease <= p->lease_ms);
  int64_t back = crl_policy_backoff(p->poll_ms, p->poll_max_ms, (unsigned)fuzz_number(in, 4), dice);
  MUST(back >= 1 && (back <= p->poll_max_ms || back <= p->poll_ms));
  int64_t towards = crl_policy_towards(p, fuzz_any(in), dice);
  MUST(towards >= 0 && (towards <= p->poll_max_ms || towards <= p->poll_ms));
  MUST(crl_policy_watched(p, dice) <= p->poll_max_ms);
  int64_t retry = crl_policy_retry(p, (uint32_t)fuzz_number(in, 4), dice);
  MUST(retry >= 0 && (retry <= p->retry_max_ms || retry <= p->retry_ms));
  (void)crl_policy_early(p, ttl, fuzz_any(in), fuzz_number(in, 8), dice);
}

static void check_lives(fuzz_input *in) {
  crl_envelope e = {.ttl_ms = fuzz_any(in),
                    .swr_ms = fuzz_any(in),
                    .sie_ms = fuzz_any(in),
                    .created_ms = fuzz_any(in)};
  int64_t most = CRL_LIFE_MOST;
  if (e.ttl_ms < 0 || e.ttl_ms > most || e.swr_ms < 0 || e.swr_ms > most || e.sie_ms < 0 ||
      e.sie_ms > most)
    return;
  crl_lives lives = crl_envelope_judge(&e, fuzz_byte(in) & 1, fuzz_any(in), fuzz_any(in));
  MUST(lives.fresh >= 0 && lives.fresh <= e.ttl_ms && lives.swr >= 0 && lives.sie >= 0);
  MUST(crl_policy_hard_ttl(e.ttl_ms, e.swr_ms, e.sie_ms) >= e.ttl_ms);
}

static void explain(const corral_policy *policy, size_t room) {
  corral_error error = {0};
  char *text = malloc(room > 0 ? room : 1);
  if (text == NULL) abort();
  if (corral_policy_explain(policy, text, room, &error) == CORRAL_OK)
    MUST(memchr(text, 0, room) != NULL && fuzz_is_plain(text, strlen(text), '\n'));
  MUST_BE_PLAIN(error.text);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  corral_error error = {0};
  corral_policy policy, calls;
  corral_options options;
  corral_lock_options lock;
  uint8_t kind = fuzz_byte(&in);
  void *user = some_struct(&in, kind % 3 == 0   ? sizeof policy
                                : kind % 3 == 1 ? sizeof options
                                                : sizeof lock);
  if (kind % 3 == 0) {
    explain(user, (size_t)fuzz_number(&in, 2) % 9000);
    if (crl_policy_resolve(&policy, user, NULL, &error) == CORRAL_OK) {
      check_policy(&policy);
      check_judgements(&policy, &in);
      void *call = some_struct(&in, sizeof policy);
      if (crl_policy_resolve(&calls, call, &policy, &error) == CORRAL_OK) check_policy(&calls);
      free(call);
    }
    check_lives(&in);
  } else if (kind % 3 == 1) {
    if (crl_policy_options(&options, user, &error) == CORRAL_OK) check_options(&options);
  } else {
    if (crl_policy_lock(&lock, user, &error) == CORRAL_OK) check_lock(&lock);
  }
  MUST_BE_PLAIN(error.text);
  free(user);
  return 0;
}
