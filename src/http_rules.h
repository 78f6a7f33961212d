/* http_rules.h: what the header of an HTTP response says about keeping it in a cache that is
 * shared: RFC 9111 and RFC 5861.
 *
 *   crl_http_rules rules;
 *   crl_http_rules_begin(&rules, wall_ms);
 *   crl_http_rules_field(&rules, "Cache-Control", 13, "max-age=60", 10);   for each field line
 *   crl_http_verdict verdict = crl_http_rules_judge(&rules, &terms);
 *
 * Pure: no I/O, no clock, no memory but the struct. Which statuses and methods are kept is the
 * caller's business. Where the RFC leaves a choice, the more restrictive one is taken: the
 * qualified forms (no-cache="x") count as the plain ones, must-understand doesn't undo no-store,
 * and of a directive that is given several times the shortest life holds. */
#ifndef CRL_HTTP_RULES_H
#define CRL_HTTP_RULES_H

#include <stddef.h>
#include <stdint.h>

enum {
  CRL_HTTP_UNSAID = 0, /* of a life: the response doesn't say; the caller's default may hold */
  CRL_HTTP_NONE = -1   /* of a life: none, by what the response says */
};
enum { CRL_HTTP_ETAG = 256, CRL_HTTP_DATE = 48, CRL_HTTP_VARY = 512 };

/* What was read so far. The texts are terminated, and empty when there was none (or none that is
 * valid, or fits). */
typedef struct crl_http_rules {
  int64_t now_ms; /* wall clock when the response came, ms since 1970 */
  /* seconds; below zero: see http_rules.c */
  int64_t max_age, s_maxage, swr, sie, age, accel, retry_after;
  int64_t expires, date; /* seconds since 1970, likewise */
  /* the directives and fields that have no number */
  uint32_t said;
  char etag[CRL_HTTP_ETAG];          /* valid by RFC 9110 8.8.3, as it was sent */
  char last_modified[CRL_HTTP_DATE]; /* a valid date, as it was sent */
  /* the names in lower case, each once, separated by spaces; "*" alone when that is among them, or
   * they don't fit */
  char vary[CRL_HTTP_VARY];
} crl_http_rules;

/* What the response's own header doesn't say. */
typedef struct crl_http_terms {
  int64_t delay_ms;  /* from the request to the response; of which whole seconds count */
  int is_authorized; /* the request had an Authorization field */
  int with_accel;    /* X-Accel-Expires holds, before Cache-Control and Expires, as nginx has it */
  int with_cookies;  /* a response with Set-Cookie may be kept */
} crl_http_terms;

typedef struct crl_http_verdict {
  int is_storable;
  const char *why_not; /* "Cache-Control: private"; NULL when it is. Static storage */
  /* it may be kept, and not be used without asking the origin each time (no-cache): then all lives
   * are NONE */
  int must_ask;
  int64_t fresh_ms; /* of what is left of the fresh life now: UNSAID, NONE, or ms */
  /* stale-while-revalidate and stale-if-error, after it; likewise. NONE where must-revalidate and
   * the like forbid it, or s-maxage, which does so where it isn't accompanied by them */
  int64_t swr_ms, sie_ms;
  int64_t retry_after_ms; /* 0: not said */
} crl_http_verdict;

void crl_http_rules_begin(crl_http_rules *rules, int64_t now_ms);
/* One line of the header. Names it has no use for are passed over. */
void crl_http_rules_field(crl_http_rules *rules, const char *name, size_t name_len,
                          const char *value, size_t value_len);
crl_http_verdict crl_http_rules_judge(const crl_http_rules *rules, const crl_http_terms *terms);

/* A date in one of the three forms of RFC 9110 5.6.7, as seconds since 1970; 0 when it isn't one.
 * `now_ms` tells the century of the second form. */
int crl_http_date(const char *text, size_t len, int64_t now_ms, int64_t *ret_seconds);
/* True when `name` (any case) is one of a list of names as in crl_http_rules.vary. */
int crl_http_names_have(const char *names, const char *name, size_t len);

#endif
