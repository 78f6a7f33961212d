/* judge.c: the answer that a response gives to the fill: a value kept as long as the response says,
 * passed, negative, not modified or failed.
 *
 * The validator that the store keeps beside a value: "http1 HASH TTL SWR SIE\nETAG\nLAST-MODIFIED",
 * the lives being those that were given to the fill. They stay when a 304 says nothing about them
 * (RFC 9111 4.3.4). A validator of another origin isn't used. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "http.h"

/* ---- validators ---------------------------------------------------------------------------- */

/* Copies a line of printable text; returns the text behind it, NULL: it doesn't fit or isn't
 * printable. */
static const char *take_line(const char *at, char *to, size_t room) {
  size_t len = strcspn(at, "\n");
  if (len >= room) return NULL;
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)at[i] < ' ' || at[i] == 127) return NULL;
  memcpy(to, at, len);
  to[len] = '\0';
  return at + len + (at[len] == '\n');
}

void crl_http_recall(crl_http_transfer *t) {
  const crl_http_origin *o = t->origin;
  size_t size = 0, old_size = 0;
  const char *kept = o->calls->old_validator(t->fill, &size);
  char text[CRL_HTTP_VALIDATOR];
  uint64_t hash = 0;
  int at = 0;
  if (kept == NULL || o->calls->old(t->fill, &old_size) == NULL || size >= sizeof text) return;
  memcpy(text, kept, size);
  text[size] = '\0';
  if (sscanf(text, "http1 %" SCNx64 " %" SCNd64 " %" SCNd64 " %" SCNd64 "%n", &hash, &t->old_ttl_ms,
             &t->old_swr_ms, &t->old_sie_ms, &at) != 4 ||
      text[at] != '\n')
    return;
  if (hash != o->hash) return;
  const char *rest = take_line(text + at + 1, t->etag, sizeof t->etag);
  if (rest == NULL || take_line(rest, t->last_modified, sizeof t->last_modified) == NULL)
    t->etag[0] = t->last_modified[0] = '\0';
}

/* Sets the fill's validator, unless it is unchanged. A value that was found by a redirect has
 * none. */
static void remember(crl_http_transfer *t, int64_t ttl_ms, int64_t swr_ms, int64_t sie_ms) {
  const crl_http_origin *o = t->origin;
  const crl_http_rules *r = &t->rules;
  const char *etag = r->etag, *last_modified = r->last_modified;
  if (t->hops > 0) return;
  if (t->status == 304 && etag[0] == '\0') etag = t->etag;
  if (t->status == 304 && last_modified[0] == '\0') last_modified = t->last_modified;
  if (etag[0] == '\0' && last_modified[0] == '\0') return;
  char text[CRL_HTTP_VALIDATOR];
  int len =
      snprintf(text, sizeof text, "http1 %" PRIx64 " %" PRId64 " %" PRId64 " %" PRId64 "\n%s\n%s",
               o->hash, ttl_ms, swr_ms, sie_ms, etag, last_modified);
  size_t size = 0;
  const char *old = o->calls->old_validator(t->fill, &size);
  if (len < 0 || (size_t)len >= sizeof text) return;
  if (t->status == 304 && old != NULL && size == (size_t)len && memcmp(old, text, size) == 0)
    return;
  /* without memory there is no validator, which costs a body the next time */
  o->calls->validator(t->fill, text, (size_t)len);
}

/* ---- lives --------------------------------------------------------------------------------- */

/* 1: the response may answer only the caller that asked for it. */
static int is_for_one(const crl_http_transfer *t, const crl_http_verdict *v) {
  const crl_http_origin *o = t->origin;
  if (!v->is_storable || v->must_ask) return 1;
  for (const char *name = t->rules.vary; *name != '\0';) {
    size_t len = strcspn(name, " ");
    if (!crl_http_names_have(o->vary, name, len) && !crl_http_names_have(o->alike, name, len))
      return 1;
    name += len + (name[len] == ' ');
  }
  return 0;
}

static crl_http_verdict verdict_of(const crl_http_transfer *t) {
  crl_http_terms terms = {.delay_ms = t->delay_ms,
                          .is_authorized = t->origin->is_authorized && !t->is_foreign};
  return crl_http_rules_judge(&t->rules, &terms);
}

void crl_http_judge_hop(crl_http_transfer *t) {
  crl_http_verdict v = verdict_of(t);
  if (is_for_one(t, &v)) t->must_pass = 1;
  if (v.fresh_ms == CRL_HTTP_UNSAID || t->hop_fresh_ms == CRL_HTTP_NONE) return;
  if (v.fresh_ms == CRL_HTTP_NONE || t->hop_fresh_ms == CRL_HTTP_UNSAID ||
      v.fresh_ms < t->hop_fresh_ms)
    t->hop_fresh_ms = v.fresh_ms;
}

/* Gives the fill its lives and its validator. */
static void set_lives(crl_http_transfer *t) {
  const crl_http_origin *o = t->origin;
  crl_http_verdict v = verdict_of(t);
  int64_t ttl = v.fresh_ms, swr = v.swr_ms, sie = v.sie_ms;
  int is_alone = is_for_one(t, &v) || t->must_pass,
      is_negative = crl_http_has_status(&o->negative, t->status);
  if (t->status == 304 && ttl == CRL_HTTP_UNSAID && swr == CRL_HTTP_UNSAID &&
      sie == CRL_HTTP_UNSAID) {
    ttl = t->old_ttl_ms;
    swr = t->old_swr_ms;
    sie = t->old_sie_ms;
  }
  if (t->hop_fresh_ms == CRL_HTTP_NONE)
    ttl = CRL_HTTP_NONE;
  else if (ttl > 0 && t->hop_fresh_ms > 0 && t->hop_fresh_ms < ttl)
    ttl = t->hop_fresh_ms;
  remember(t, ttl, swr, sie);
  /* no fresh life, but kept for its grace */
  if (ttl == CRL_HTTP_NONE && (swr > 0 || sie > 0)) ttl = 1;
  if (is_alone && !is_negative) o->calls->pass(t->fill);
  if (is_alone && is_negative) ttl = swr = sie = CORRAL_OFF;
  o->calls->lives(t->fill, ttl == CRL_HTTP_NONE ? CORRAL_OFF : ttl,
                  swr == CRL_HTTP_NONE ? CORRAL_OFF : swr, sie == CRL_HTTP_NONE ? CORRAL_OFF : sie);
}

/* ---- end of a fetch ------------------------------------------------------------------------ */

void crl_http_fail(crl_http_transfer *t, int code, const char *format, ...) {
  char text[CRL_HTTP_REASON];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  t->origin->calls->failed(t->fill, code, text);
}

static void fail_by_status(crl_http_transfer *t) {
  crl_http_verdict v = verdict_of(t);
  const char *gap = t->reason[0] != '\0' ? " " : "";
  if (v.retry_after_ms > 0)
    crl_http_fail(t, t->status, "HTTP %d%s%s, retry after %lld s", t->status, gap, t->reason,
                  (long long)v.retry_after_ms / 1000);
  else
    crl_http_fail(t, t->status, "HTTP %d%s%s", t->status, gap, t->reason);
}

void crl_http_judge(crl_http_transfer *t) {
  const corral_fill_calls *calls = t->origin->calls;
  int status = CORRAL_OK;
  if (t->status == 304 && t->is_asked) {
    status = calls->not_modified(t->fill);
  } else if (t->is_kept && t->is_encoded) {
    crl_http_fail(t, CRL_HTTP_NO_ANSWER,
                  "the body has a Content-Encoding that wasn't asked for (compressed=1 asks for "
                  "it, and undoes it)");
    return;
  } else if (t->is_kept) {
    status = calls->bytes(t->fill, t->body, t->len);
  } else if (crl_http_has_status(&t->origin->negative, t->status)) {
    calls->negative(t->fill);
  } else {
    fail_by_status(t);
    return;
  }
  if (status != CORRAL_OK) {
    crl_http_fail(t, status,
                  status == CORRAL_ENOMEM    ? "out of memory"
                  : status == CORRAL_ETOOBIG ? "the value is larger than max_value"
                                             : "HTTP 304, and the old value is gone");
    return;
  }
  set_lives(t);
  calls->done(t->fill);
}
