/* fuzz_http_rules.c: the header fields of an HTTP response from any origin: lines of "Name:
 * value". */
#include "fuzz.h"

#include "http/rules.h"

enum { FIELDS = 64 };

static void check_life(int64_t ms) {
  MUST(ms >= 0 || ms == CRL_HTTP_NONE || ms == CRL_HTTP_UNSAID);
}

static void check_texts(const crl_http_rules *rules) {
  MUST(memchr(rules->etag, 0, sizeof rules->etag) != NULL &&
       fuzz_is_plain(rules->etag, strlen(rules->etag), 0));
  MUST(memchr(rules->last_modified, 0, sizeof rules->last_modified) != NULL);
  MUST(fuzz_is_plain(rules->last_modified, strlen(rules->last_modified), 0));
  MUST(memchr(rules->vary, 0, sizeof rules->vary) != NULL &&
       fuzz_is_plain(rules->vary, strlen(rules->vary), 0));
}

static void check_verdict(const crl_http_verdict *v) {
  MUST(v->is_storable || v->why_not != NULL);
  check_life(v->fresh_ms);
  check_life(v->swr_ms);
  check_life(v->sie_ms);
  MUST(v->retry_after_ms >= 0);
  MUST(v->guess_ms >= 0 && (v->guess_ms == 0 || v->fresh_ms == CRL_HTTP_UNSAID));
  if (v->must_ask) MUST(v->fresh_ms == CRL_HTTP_NONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  crl_http_rules rules;
  crl_http_terms terms = {.delay_ms = (int64_t)fuzz_number(&in, 3)};
  uint8_t flags = fuzz_byte(&in);
  int64_t now = (int64_t)(fuzz_number(&in, 6) % UINT64_C(8000000000000)), seconds;
  terms.is_authorized = flags & 1;
  terms.with_accel = flags >> 1 & 1;
  terms.with_cookies = flags >> 2 & 1;
  terms.status = flags >> 3 & 1 ? 200 : 0; /* of one that isn't told no-store is never undone */
  terms.guess_pct = flags >> 4 & 1 ? 10 : 0;
  crl_http_rules_begin(&rules, now);
  int refuses = 0;
  for (int i = 0; i < FIELDS && in.left > 0; i++) {
    char *name = fuzz_text(&in, ':'), *value = fuzz_text(&in, '\n');
    crl_http_rules_field(&rules, name, strlen(name), value, strlen(value));
    if (strcmp(name, "Cache-Control") == 0 && strcmp(value, "no-store") == 0) refuses = 1;
    (void)crl_http_date(value, strlen(value), now, &seconds);
    (void)crl_http_names_have(rules.vary, name, strlen(name));
    free(name);
    free(value);
  }
  check_texts(&rules);
  crl_http_verdict verdict = crl_http_rules_judge(&rules, &terms);
  check_verdict(&verdict);
  if (refuses && terms.status == 0) MUST(!verdict.is_storable);
  return 0;
}
