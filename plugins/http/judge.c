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

static int recall_page(crl_http_transfer *t) {
  size_t size = 0;
  const void *old = t->origin->calls->old(t->fill, &size);
  return t->origin->host->page->read(old, size, &t->old_page) == CORRAL_OK;
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
  if (hash != o->hash || (o->is_page && !recall_page(t))) return;
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
  /* a page says for which requests it is; but this field of theirs is not in t->sent */
  if (o->is_page) return o->user != NULL && crl_http_names_have(t->rules.vary, "authorization", 13);
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
                          .with_accel = t->origin->is_page != 0, /* as the nginx module has it */
                          .with_cdn = t->origin->is_page != 0,
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

/* The lives that a response gives; *ret_alone: it may answer its caller only. */
static crl_http_lives lives_of(const crl_http_transfer *t, int *ret_alone) {
  crl_http_verdict v = verdict_of(t);
  crl_http_lives lives = {v.fresh_ms, v.swr_ms, v.sie_ms};
  *ret_alone = is_for_one(t, &v) || t->must_pass;
  if (t->status == 304 && lives.ttl == CRL_HTTP_UNSAID && lives.swr == CRL_HTTP_UNSAID &&
      lives.sie == CRL_HTTP_UNSAID)
    lives = (crl_http_lives){t->old_ttl_ms, t->old_swr_ms, t->old_sie_ms};
  if (t->hop_fresh_ms == CRL_HTTP_NONE)
    lives.ttl = CRL_HTTP_NONE;
  else if (lives.ttl > 0 && t->hop_fresh_ms > 0 && t->hop_fresh_ms < lives.ttl)
    lives.ttl = t->hop_fresh_ms;
  return lives;
}

/* The lives that the fill gets: below zero there are none. */
static crl_http_lives given(crl_http_lives lives) {
  /* no fresh life, but kept for its grace */
  if (lives.ttl == CRL_HTTP_NONE && (lives.swr > 0 || lives.sie > 0)) lives.ttl = 1;
  if (lives.ttl == CRL_HTTP_NONE) lives.ttl = CORRAL_OFF;
  if (lives.swr == CRL_HTTP_NONE) lives.swr = CORRAL_OFF;
  if (lives.sie == CRL_HTTP_NONE) lives.sie = CORRAL_OFF;
  return lives;
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

/* Fails the fetch of an answer that can't be a value. */
static void fail_to_fill(crl_http_transfer *t, int status) {
  const char *text = "HTTP 304, and the old value is gone";
  if (status == CORRAL_ENOMEM) text = "out of memory";
  if (status == CORRAL_ETOOBIG) text = "the value is larger than max_value";
  if (status == CORRAL_EINVAL)
    text = "the answer can't be a page: its header has too many fields, or what no page may have";
  crl_http_fail(t, status, "%s", text);
}

/* Gives the fill the value of a response that is one. */
static int fill_by(crl_http_transfer *t, crl_http_lives *lives) {
  const corral_fill_calls *calls = t->origin->calls;
  if (t->origin->is_page) return crl_http_page_fill(t, lives);
  return t->status == 304 ? calls->not_modified(t->fill) : calls->bytes(t->fill, t->body, t->len);
}

void crl_http_judge(crl_http_transfer *t) {
  const corral_fill_calls *calls = t->origin->calls;
  int is_renewal = t->status == 304 && t->is_asked, is_alone, status = CORRAL_OK;
  int is_negative =
      !is_renewal && !t->is_kept && crl_http_has_status(&t->origin->negative, t->status);
  crl_http_lives said = lives_of(t, &is_alone), lives = given(said);
  if (!is_renewal && !t->is_kept && !is_negative) {
    fail_by_status(t);
    return;
  }
  if (t->is_kept && t->is_encoded) {
    crl_http_fail(t, CRL_HTTP_NO_ANSWER,
                  "the body has a Content-Encoding that wasn't asked for (compressed=1 asks for "
                  "it, and undoes it)");
    return;
  }
  if (is_negative)
    calls->negative(t->fill);
  else
    status = fill_by(t, &lives);
  if (status != CORRAL_OK) {
    fail_to_fill(t, status);
    return;
  }
  remember(t, said.ttl, said.swr, said.sie);
  if (is_alone && !is_negative) calls->pass(t->fill);
  if (is_alone && is_negative) lives = (crl_http_lives){CORRAL_OFF, CORRAL_OFF, CORRAL_OFF};
  calls->lives(t->fill, lives.ttl, lives.swr, lives.sie);
  calls->done(t->fill);
}
