/* rules.h: what the header of an HTTP response says about storing it in a shared cache: RFC
 * 9111, RFC 5861, and CDN-Cache-Control of RFC 9213.
 *
 *   crl_http_rules rules;
 *   crl_http_rules_begin(&rules, wall_ms);
 *   crl_http_rules_field(&rules, "Cache-Control", 13, "max-age=60", 10);   for each field line
 *   crl_http_verdict verdict = crl_http_rules_judge(&rules, &terms);
 *
 * Pure: no I/O, no clock, no memory but the struct. Which statuses and methods are stored is the
 * caller's decision. Where the RFC leaves a choice, the more restrictive one is taken: the
 * qualified forms (no-cache="x") count as the plain ones, and of a directive that is given several
 * times the shortest life holds. */
#ifndef CRL_HTTP_RULES_H
#define CRL_HTTP_RULES_H

#include <stddef.h>
#include <stdint.h>

enum {
  CRL_HTTP_UNSAID = 0, /* a life that the response doesn't give; the caller's default may hold */
  CRL_HTTP_NONE = -1   /* a life that the response rules out */
};
enum { CRL_HTTP_ETAG = 256, CRL_HTTP_DATE = 48, CRL_HTTP_VARY = 512 };

/* The directives of a Cache-Control, or of a CDN-Cache-Control. */
typedef struct crl_http_control {
  int64_t max_age, s_maxage, swr, sie; /* seconds; below zero: see rules.c */
  uint32_t said;                       /* flags of the directives that have no number */
} crl_http_control;

/* The fields read so far. Texts are terminated; a text is empty when none was given that is valid
 * and fits. */
typedef struct crl_http_rules {
  int64_t now_ms; /* wall clock when the response came, ms since 1970 */
  crl_http_control control, cdn;
  int64_t age, accel, retry_after;   /* seconds; below zero: see rules.c */
  int64_t expires, date;             /* seconds since 1970, likewise */
  uint32_t said;                     /* flags of other fields, and of the state of `cdn` */
  char etag[CRL_HTTP_ETAG];          /* valid by RFC 9110 8.8.3, as it was sent */
  char last_modified[CRL_HTTP_DATE]; /* a valid date, as it was sent */
  /* the names in lower case, each once, separated by spaces; "*" alone when that is among them or
   * they don't fit */
  char vary[CRL_HTTP_VARY];
} crl_http_rules;

/* The inputs of a judgement beyond the response's own header. */
typedef struct crl_http_terms {
  int64_t delay_ms;  /* time from the request to the response; whole seconds count */
  int is_authorized; /* the request had an Authorization field */
  int with_accel;    /* X-Accel-Expires holds, in place of Cache-Control and Expires, as in nginx */
  int with_cdn;      /* CDN-Cache-Control holds, in place of Cache-Control and Expires (RFC 9213) */
  int with_cookies;  /* a response with Set-Cookie may be kept */
  int status;        /* the response's; 0: not told, so it isn't one that the rules know */
  int guess_pct; /* share of the time since Last-Modified that is guessed to be fresh; 0: none */
} crl_http_terms;

typedef struct crl_http_verdict {
  int is_storable;
  /* such as "Cache-Control: private"; NULL when it is storable. Static storage */
  const char *why_not;
  /* no-cache: the response may be stored, but each use must ask the origin; all lives are NONE */
  int must_ask;
  int64_t fresh_ms; /* rest of the fresh life now: UNSAID, NONE, or ms */
  int64_t guess_ms; /* where that is UNSAID: rest of the guessed life, a day at most; 0: none */
  /* stale-while-revalidate and stale-if-error, after the fresh life; likewise. NONE where
   * must-revalidate or proxy-revalidate forbids them, or s-maxage without the directive itself */
  int64_t swr_ms, sie_ms;
  int64_t retry_after_ms; /* 0: not said */
} crl_http_verdict;

void crl_http_rules_begin(crl_http_rules *rules, int64_t now_ms);
/* Reads one line of the header. Names that have no meaning here are ignored. */
void crl_http_rules_field(crl_http_rules *rules, const char *name, size_t name_len,
                          const char *value, size_t value_len);
crl_http_verdict crl_http_rules_judge(const crl_http_rules *rules, const crl_http_terms *terms);

/* Reads a date in one of the three forms of RFC 9110 5.6.7: 1 and *ret_seconds since 1970; 0: it is
 * no date. `now_ms` decides the century of the second form. */
int crl_http_date(const char *text, size_t len, int64_t now_ms, int64_t *ret_seconds);
/* The answer's Date minus now, in ms; of an answer without one, or with one that isn't within
 * `most_ms` of now: it was made in this second. */
int64_t crl_http_date_apart(const crl_http_rules *rules, int64_t most_ms);
/* True when `name` (any case) is one of a list of names as in crl_http_rules.vary. */
int crl_http_names_have(const char *names, const char *name, size_t len);

/* words.c: the next word of a list with spaces, commas and tabs between: moves *at, 0 at first, to
 * where it begins, and returns its length. 0: there is none. */
size_t crl_http_word(const char *list, size_t size, size_t *at);
/* The next of a key's beginnings by which pages are found: returns where it ends, behind a slash;
 * `from` is the end of the one before, 0 at first. 0: there is none. The slashes of "//" don't
 * count, those of "http://" neither; nothing counts behind a '?'. */
size_t crl_http_beginning(const char *key, size_t len, size_t from);
/* Copies the names of crl_http_rules.vary but Accept-Encoding, which decides nothing: bodies are
 * kept uncompressed. Returns their length. */
size_t crl_http_vary_names(const char *vary, unsigned char names[CRL_HTTP_VARY]);

#endif
