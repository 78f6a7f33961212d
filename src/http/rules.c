/* rules.c: what the header of an HTTP response says about storing it in a shared cache: RFC
 * 9111, RFC 5861, and CDN-Cache-Control of RFC 9213. */
#include "rules.h"

#include <string.h>
#include <strings.h>

/* A number that was not given, or was given and is invalid. */
enum { UNSAID = -1, INVALID = -2 };
enum { DAY_S = 86400 };
static const int64_t overflow_s = (int64_t)1 << 31; /* RFC 9111 1.2.2 */

enum {
  SAID_NO_STORE = 1,
  SAID_NO_CACHE = 2,
  SAID_PRIVATE = 4,
  SAID_PUBLIC = 8,
  SAID_MUST_REVALIDATE = 16,
  SAID_PROXY_REVALIDATE = 32,
  SAID_SET_COOKIE = 64,
  SAID_ACCEL_AT = 128, /* X-Accel-Expires is a point in time */
  SAID_CDN = 256,      /* a CDN-Cache-Control with at least one member */
  SAID_BAD_CDN = 512,  /* one that isn't valid, so that none counts */
  SAID_MUST_UNDERSTAND = 1024
};

/* ---- words --------------------------------------------------------------------------------- */

static int is_digit(char c) { return c >= '0' && c <= '9'; }
static int is_space(char c) { return c == ' ' || c == '\t'; }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }
static int is_token(char c) {
  return c > ' ' && c < 127 && strchr("\"(),/:;<=>?@[\\]{}", c) == NULL;
}

static int is_word(const char *text, size_t len, const char *word) {
  return strlen(word) == len && strncasecmp(text, word, len) == 0;
}

static void trim(const char **text, size_t *len) {
  while (*len > 0 && is_space(**text)) ++*text, --*len;
  while (*len > 0 && is_space((*text)[*len - 1])) --*len;
}

/* Adds a character to delta-seconds, RFC 9111 1.2.2: any number of digits and nothing else; the
 * value begins as UNSAID and is capped at overflow_s. */
static int64_t more_seconds(int64_t so_far, char c) {
  if (!is_digit(c) || so_far == INVALID) return INVALID;
  int64_t value = so_far == UNSAID ? c - '0' : so_far * 10 + (c - '0');
  return value < overflow_s ? value : overflow_s;
}

static int64_t seconds_of(const char *text, size_t len) {
  int64_t value = UNSAID;
  for (size_t i = 0; i < len; i++) value = more_seconds(value, text[i]);
  return value == UNSAID ? INVALID : value;
}

/* Keeps the smaller of two values of one field or directive; INVALID is smaller than any number. */
static void keep_least(int64_t *kept, int64_t value) {
  if (*kept == UNSAID || value < *kept) *kept = value;
}

/* ---- dates, RFC 9110 5.6.7 ----------------------------------------------------------------- */

/* Days since 1970 of a day of the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level
 * date algorithms"). */
static int64_t days_of(int64_t year, int month, int day) {
  year -= month <= 2;
  int64_t era = year / 400, of_era = year - era * 400;
  int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int64_t year_of(int64_t seconds) {
  int64_t year = 1970 + seconds / (365 * DAY_S + DAY_S / 4);
  while (days_of(year + 1, 1, 1) * DAY_S <= seconds) year++;
  while (days_of(year, 1, 1) * DAY_S > seconds) year--;
  return year;
}

/* The parts of a date, read by a pattern: D is a digit, d a digit or a space, M the month's name, w
 * a short and W a long day's name; any other character stands for itself in either case (RFC 9111
 * 4.2). The numbers are in the order of the text. */
typedef struct date_parts {
  int number[6], count, month;
} date_parts;

static int take_month(const char *text, size_t len, date_parts *parts) {
  static const char names[] = "janfebmaraprmayjunjulaugsepoctnovdec";
  for (int i = 0; i < 12 && len >= 3; i++)
    if (strncasecmp(text, names + (size_t)i * 3, 3) == 0) parts->month = i + 1;
  return parts->month > 0 ? 3 : 0;
}

static size_t take_day_name(const char *text, size_t len, int is_long) {
  static const char *const names[] = {"monday", "tuesday",  "wednesday", "thursday",
                                      "friday", "saturday", "sunday"};
  for (int i = 0; i < 7; i++) {
    size_t size = is_long ? strlen(names[i]) : 3;
    if (len >= size && strncasecmp(text, names[i], size) == 0) return size;
  }
  return 0;
}

static int takes(const char *text, size_t len, const char *pattern, date_parts *parts) {
  const char *end = text + len;
  *parts = (date_parts){0};
  for (int in_number = 0; *pattern != '\0'; pattern++) {
    int is_digit_place = *pattern == 'D' || *pattern == 'd';
    size_t used = 1;
    if (text >= end) return 0;
    if (is_digit_place) {
      if (!is_digit(*text) && !(*pattern == 'd' && *text == ' ')) return 0;
      if (!in_number) parts->number[parts->count++] = 0;
      if (is_digit(*text))
        parts->number[parts->count - 1] = parts->number[parts->count - 1] * 10 + (*text - '0');
    } else if (*pattern == 'M') {
      used = (size_t)take_month(text, (size_t)(end - text), parts);
    } else if (*pattern == 'w' || *pattern == 'W') {
      used = take_day_name(text, (size_t)(end - text), *pattern == 'W');
    } else if (lower(*text) != lower(*pattern)) {
      return 0;
    }
    if (used == 0) return 0;
    in_number = is_digit_place;
    text += used;
  }
  return text == end;
}

static int is_calendar(int64_t year, int month, int day, const int *clock) {
  int64_t next = month == 12 ? days_of(year + 1, 1, 1) : days_of(year, month + 1, 1);
  return day >= 1 && day <= next - days_of(year, month, 1) && clock[0] <= 23 && clock[1] <= 59 &&
         clock[2] <= 60;
}

int crl_http_date(const char *text, size_t len, int64_t now_ms, int64_t *ret_seconds) {
  date_parts p;
  int64_t year;
  int day;
  const int *clock;
  trim(&text, &len);
  if (takes(text, len, "w, DD M DDDD DD:DD:DD gmt", &p)) {
    day = p.number[0], year = p.number[1], clock = p.number + 2;
  } else if (takes(text, len, "W, DD-M-DD DD:DD:DD gmt", &p)) {
    int64_t now = year_of(now_ms / 1000);
    day = p.number[0], year = now - now % 100 + 100 + p.number[1], clock = p.number + 2;
    /* more than 50 years ahead: the most recent past year with these digits */
    while (year > now + 50) year -= 100;
  } else if (takes(text, len, "w M dD DD:DD:DD DDDD", &p)) {
    day = p.number[0], year = p.number[4], clock = p.number + 1;
  } else {
    return 0;
  }
  if (!is_calendar(year, p.month, day, clock)) return 0;
  *ret_seconds = days_of(year, p.month, day) * DAY_S + clock[0] * 3600 + clock[1] * 60 + clock[2];
  return 1;
}

/* ---- Cache-Control, RFC 9111 5.2 ----------------------------------------------------------- */

typedef struct directive {
  const char *name;
  size_t name_len;
  int64_t seconds; /* its value as delta-seconds; UNSAID when it has none */
  int is_valid;    /* no other text stands in its place of the list */
} directive;

/* Reads a quoted string; returns the place behind it, or NULL when the closing quote is missing. */
static const char *take_quoted(const char *at, const char *end, directive *d) {
  for (at++; at < end && *at != '"'; at++) {
    if (*at == '\\' && at + 1 < end) at++;
    d->seconds = more_seconds(d->seconds, *at);
  }
  return at < end ? at + 1 : NULL;
}

/* Reads the next member of the list; returns the place behind it. Without a closing quote, the text
 * after the opening one is still read as a list. */
static const char *take_directive(const char *at, const char *end, directive *d) {
  *d = (directive){.name = at, .seconds = UNSAID, .is_valid = 1};
  while (at < end && is_token(*at)) at++;
  d->name_len = (size_t)(at - d->name);
  if (at < end && *at == '=') {
    const char *behind = at + 1 < end && at[1] == '"' ? take_quoted(at + 1, end, d) : NULL;
    if (behind != NULL) {
      at = behind;
    } else {
      for (at++; at < end && is_token(*at); at++) d->seconds = more_seconds(d->seconds, *at);
    }
  }
  while (at < end && is_space(*at)) at++;
  if (at < end && *at != ',') {
    d->is_valid = 0;
    while (at < end && *at != ',') at++;
  }
  return at;
}

static const struct {
  const char *name;
  uint32_t said;
} flags[] = {{"no-store", SAID_NO_STORE},
             {"no-cache", SAID_NO_CACHE},
             {"private", SAID_PRIVATE},
             {"public", SAID_PUBLIC},
             {"must-revalidate", SAID_MUST_REVALIDATE},
             {"proxy-revalidate", SAID_PROXY_REVALIDATE},
             {"must-understand", SAID_MUST_UNDERSTAND}};

static const struct {
  const char *name;
  size_t at;
} lives[] = {{"max-age", offsetof(crl_http_control, max_age)},
             {"s-maxage", offsetof(crl_http_control, s_maxage)},
             {"stale-while-revalidate", offsetof(crl_http_control, swr)},
             {"stale-if-error", offsetof(crl_http_control, sie)}};

/* The flag of this name, or 0. */
static uint32_t flag_of(const char *name, size_t len) {
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (is_word(name, len, flags[i].name)) return flags[i].said;
  return 0;
}

/* The place of the life of this name, or NULL. */
static int64_t *life_of(crl_http_control *c, const char *name, size_t len) {
  for (size_t i = 0; i < sizeof lives / sizeof *lives; i++)
    if (is_word(name, len, lives[i].name)) return (int64_t *)(void *)((char *)c + lives[i].at);
  return NULL;
}

static void obey(crl_http_control *c, const directive *d) {
  uint32_t flag = flag_of(d->name, d->name_len);
  int64_t *life = life_of(c, d->name, d->name_len);
  if (d->is_valid || flag != SAID_PUBLIC) c->said |= flag;
  if (life != NULL) keep_least(life, d->is_valid && d->seconds != UNSAID ? d->seconds : INVALID);
}

static void take_cache_control(crl_http_control *c, const char *at, size_t len) {
  for (const char *end = at + len; at < end;) {
    directive d;
    if (*at == ',' || is_space(*at)) {
      at++;
      continue;
    }
    at = take_directive(at, end, &d);
    obey(c, &d);
  }
}

/* ---- CDN-Cache-Control, RFC 9213 ----------------------------------------------------------- */

/* A dictionary of structured fields (RFC 8941 3.2), read as far as directives need: keys in lower
 * case; integers, booleans, tokens, strings; parameters are skipped. */
typedef struct cdn_text {
  const char *at, *end;
} cdn_text;

static int is_next(const cdn_text *t, char c) { return t->at < t->end && *t->at == c; }

static int takes_char(cdn_text *t, char c) {
  if (!is_next(t, c)) return 0;
  t->at++;
  return 1;
}

static int is_key(char c, int is_first) {
  return (c >= 'a' && c <= 'z') || c == '*' ||
         (!is_first && (is_digit(c) || c == '_' || c == '-' || c == '.'));
}

static size_t take_key(cdn_text *t) {
  const char *from = t->at;
  while (t->at < t->end && is_key(*t->at, t->at == from)) t->at++;
  return (size_t)(t->at - from);
}

static int takes_string(cdn_text *t) {
  for (t->at++; t->at < t->end && *t->at != '"'; t->at++) {
    if (*t->at == '\\' && (++t->at == t->end || (*t->at != '"' && *t->at != '\\'))) return 0;
    if (*t->at < ' ' || *t->at > '~') return 0;
  }
  return takes_char(t, '"');
}

/* Reads a bare item. *seconds: its value if it is an integer, negative ones being 0; UNSAID for
 * "true"; INVALID for any other. 0: it is none. */
static int takes_item(cdn_text *t, int64_t *seconds) {
  const char *from = t->at;
  *seconds = INVALID;
  if (is_next(t, '"')) return takes_string(t);
  if (takes_char(t, '?')) {
    *seconds = is_next(t, '1') ? UNSAID : INVALID;
    return takes_char(t, '1') || takes_char(t, '0');
  }
  int is_negative = takes_char(t, '-');
  if (t->at < t->end && is_digit(*t->at)) {
    int64_t value = UNSAID;
    while (t->at < t->end && is_digit(*t->at)) value = more_seconds(value, *t->at++);
    *seconds = is_negative ? 0 : value;
    return 1;
  }
  while (!is_negative && t->at < t->end && (is_token(*t->at) || is_next(t, ':') || is_next(t, '/')))
    t->at++;
  return t->at > from + is_negative;
}

static int takes_parameters(cdn_text *t) {
  int64_t skipped;
  while (takes_char(t, ';')) {
    while (is_next(t, ' ')) t->at++;
    if (take_key(t) == 0 || (takes_char(t, '=') && !takes_item(t, &skipped))) return 0;
  }
  return 1;
}

/* Reads one member. A directive whose value is of another type than it has makes the field
 * invalid. Of several members with one key the last counts. */
static int takes_member(cdn_text *t, crl_http_control *c) {
  const char *name = t->at;
  int64_t seconds = UNSAID;
  size_t len = take_key(t);
  if (len == 0 || (takes_char(t, '=') && !takes_item(t, &seconds)) || !takes_parameters(t))
    return 0;
  int64_t *life = life_of(c, name, len);
  if (life != NULL) *life = seconds;
  uint32_t flag = flag_of(name, len);
  if (seconds == UNSAID || flag != SAID_PUBLIC) c->said |= flag;
  return life == NULL || seconds >= 0;
}

/* A qualified form (no-cache="x") counts as the plain one, and a false one as a true one. */
static void take_cdn(crl_http_rules *r, const char *at, size_t len) {
  cdn_text t = {at, at + len};
  int is_good = 1;
  if (len == 0) return;
  do {
    while (t.at < t.end && is_space(*t.at)) t.at++;
    is_good = takes_member(&t, &r->cdn);
    while (t.at < t.end && is_space(*t.at)) t.at++;
  } while (is_good && takes_char(&t, ','));
  r->said |= is_good && t.at == t.end ? SAID_CDN : SAID_BAD_CDN;
}

/* ---- other fields -------------------------------------------------------------------------- */

int crl_http_names_have(const char *names, const char *name, size_t len) {
  for (size_t size; *names != '\0'; names += size + (names[size] == ' ')) {
    size = strcspn(names, " ");
    if (size == len && strncasecmp(names, name, len) == 0) return 1;
  }
  return 0;
}

/* RFC 9110 12.5.5. An invalid name can't be compared, so it counts as "*". */
static void take_vary(crl_http_rules *r, const char *at, size_t len) {
  for (const char *end = at + len; at < end;) {
    if (*at == ',' || is_space(*at)) {
      at++;
      continue;
    }
    const char *name = at;
    while (at < end && is_token(*at)) at++;
    size_t size = (size_t)(at - name), used = strlen(r->vary);
    while (at < end && is_space(*at)) at++;
    int is_name = size > 0 && (at == end || *at == ',') && memchr(name, '*', size) == NULL;
    if (is_name && crl_http_names_have(r->vary, name, size)) continue;
    if (!is_name || used + size + 2 > sizeof r->vary || strcmp(r->vary, "*") == 0) {
      memcpy(r->vary, "*", 2);
      return;
    }
    if (used > 0) r->vary[used++] = ' ';
    for (size_t i = 0; i < size; i++) r->vary[used + i] = lower(name[i]);
    r->vary[used + size] = '\0';
  }
}

/* RFC 9110 8.8.3. */
static void take_etag(crl_http_rules *r, const char *text, size_t len) {
  size_t at = len > 2 && memcmp(text, "W/", 2) == 0 ? 2 : 0;
  int is_valid = len >= at + 2 && len < sizeof r->etag && text[at] == '"' && text[len - 1] == '"' &&
                 r->etag[0] == '\0';
  for (size_t i = at + 1; is_valid && i < len - 1; i++)
    is_valid = (unsigned char)text[i] > ' ' && text[i] != '"' && text[i] != 127;
  if (!is_valid) return;
  memcpy(r->etag, text, len);
  r->etag[len] = '\0';
}

static void take_last_modified(crl_http_rules *r, const char *text, size_t len) {
  int64_t when;
  if (len >= sizeof r->last_modified || r->last_modified[0] != '\0' ||
      !crl_http_date(text, len, r->now_ms, &when))
    return;
  memcpy(r->last_modified, text, len);
  r->last_modified[len] = '\0';
}

/* RFC 9111 5.1: the first member of a list counts, and an invalid one is ignored. */
static void take_age(crl_http_rules *r, const char *text, size_t len) {
  const char *comma = memchr(text, ',', len);
  size_t first = comma != NULL ? (size_t)(comma - text) : len;
  trim(&text, &first);
  if (r->age == UNSAID) r->age = seconds_of(text, first);
}

static int64_t accel_life(const crl_http_rules *r, int is_moment, int64_t value) {
  return is_moment ? value - r->now_ms / 1000 : value;
}

/* Seconds since 1970, in digits, capped far above any life; INVALID. */
static int64_t epoch_of(const char *text, size_t len) {
  static const int64_t latest_s = (int64_t)1 << 40;
  int64_t value = len == 0 ? INVALID : 0;
  for (size_t i = 0; i < len && value >= 0; i++) {
    value = is_digit(text[i]) ? value * 10 + (text[i] - '0') : INVALID;
    if (value > latest_s) value = latest_s;
  }
  return value;
}

/* A number of seconds, or "@" and seconds since 1970; the shortest of several counts. An invalid
 * one is ignored. */
static void take_accel(crl_http_rules *r, const char *text, size_t len) {
  int is_moment = len > 0 && text[0] == '@';
  int64_t value = is_moment ? epoch_of(text + 1, len - 1) : seconds_of(text, len);
  if (value < 0 ||
      (r->accel != UNSAID &&
       accel_life(r, is_moment, value) >= accel_life(r, (r->said & SAID_ACCEL_AT) != 0, r->accel)))
    return;
  r->accel = value;
  r->said = is_moment ? r->said | SAID_ACCEL_AT : r->said & ~(uint32_t)SAID_ACCEL_AT;
}

static void take_retry_after(crl_http_rules *r, const char *text, size_t len) {
  int64_t seconds = seconds_of(text, len), when;
  if (seconds < 0 && crl_http_date(text, len, r->now_ms, &when))
    seconds = when * 1000 > r->now_ms ? when - r->now_ms / 1000 : 0;
  if (seconds >= 0) r->retry_after = seconds < overflow_s ? seconds : overflow_s;
}

static int64_t moment_of(const crl_http_rules *r, const char *text, size_t len) {
  int64_t seconds;
  if (!crl_http_date(text, len, r->now_ms, &seconds)) return INVALID;
  return seconds > 0 ? seconds : 0; /* earlier dates count as 1970 */
}

/* The latest of several counts: it gives the shortest life with Expires. */
static void take_date(crl_http_rules *r, int64_t date) {
  if (r->date == UNSAID || date > r->date) r->date = date;
}

void crl_http_rules_begin(crl_http_rules *r, int64_t now_ms) {
  const crl_http_control unsaid = {
      .max_age = UNSAID, .s_maxage = UNSAID, .swr = UNSAID, .sie = UNSAID};
  *r = (crl_http_rules){.now_ms = now_ms,
                        .control = unsaid,
                        .cdn = unsaid,
                        .age = UNSAID,
                        .accel = UNSAID,
                        .retry_after = UNSAID,
                        .expires = UNSAID,
                        .date = UNSAID};
}

void crl_http_rules_field(crl_http_rules *r, const char *name, size_t name_len, const char *value,
                          size_t value_len) {
  trim(&name, &name_len); /* RFC 9112 5.1: no space belongs there, but some readers accept it */
  trim(&value, &value_len);
  if (is_word(name, name_len, "Cache-Control"))
    take_cache_control(&r->control, value, value_len);
  else if (is_word(name, name_len, "CDN-Cache-Control"))
    take_cdn(r, value, value_len);
  else if (is_word(name, name_len, "Expires"))
    keep_least(&r->expires, moment_of(r, value, value_len));
  else if (is_word(name, name_len, "Date"))
    take_date(r, moment_of(r, value, value_len));
  else if (is_word(name, name_len, "Age"))
    take_age(r, value, value_len);
  else if (is_word(name, name_len, "Vary"))
    take_vary(r, value, value_len);
  else if (is_word(name, name_len, "ETag"))
    take_etag(r, value, value_len);
  else if (is_word(name, name_len, "Last-Modified"))
    take_last_modified(r, value, value_len);
  else if (is_word(name, name_len, "Set-Cookie"))
    r->said |= SAID_SET_COOKIE;
  else if (is_word(name, name_len, "X-Accel-Expires"))
    take_accel(r, value, value_len);
  else if (is_word(name, name_len, "Retry-After"))
    take_retry_after(r, value, value_len);
}

/* ---- the judgement ------------------------------------------------------------------------- */

/* True when CDN-Cache-Control takes the place of Cache-Control and Expires. */
static int is_by_cdn(const crl_http_rules *r, const crl_http_terms *terms) {
  return terms->with_cdn && (r->said & (SAID_CDN | SAID_BAD_CDN)) == SAID_CDN;
}

/* True for statuses that RFC 9110 defines, but 206 and 304, which are no whole responses. */
static int is_understood(int status) {
  return (status >= 200 && status <= 205) || (status >= 300 && status <= 303) || status == 305 ||
         status == 307 || status == 308 || (status >= 400 && status <= 417) || status == 421 ||
         status == 422 || status == 426 || (status >= 500 && status <= 505);
}

/* no-store, and must-understand, which takes its place where the status is understood: RFC 9111
 * 5.2.2.3. */
static const char *why_no_store(const crl_http_control *c, int status) {
  int must = (c->said & SAID_MUST_UNDERSTAND) != 0, understands = must && is_understood(status);
  if ((c->said & SAID_NO_STORE) && !understands) return "Cache-Control: no-store";
  return must && !understands ? "Cache-Control: must-understand" : NULL;
}

/* The reason not to store the response, or NULL: RFC 9111 3, 3.5; RFC 9110 12.5.5. */
static const char *why_not(const crl_http_rules *r, const crl_http_control *c,
                           const crl_http_terms *terms, int by_accel) {
  uint32_t allowing = SAID_PUBLIC | SAID_MUST_REVALIDATE;
  if (strcmp(r->vary, "*") == 0) return "Vary: *";
  if ((r->said & SAID_SET_COOKIE) && !terms->with_cookies) return "Set-Cookie";
  if (by_accel) return r->accel == 0 ? "X-Accel-Expires: 0" : NULL;
  const char *no_store = why_no_store(c, terms->status);
  if (no_store != NULL) return no_store;
  if (c->said & SAID_PRIVATE) return "Cache-Control: private";
  if (terms->is_authorized && !(c->said & allowing) && c->s_maxage < 0)
    return "an answer to a request with Authorization";
  return NULL;
}

/* The freshness lifetime in seconds, RFC 9111 4.2.1, or UNSAID. Invalid freshness information makes
 * the response stale. */
static int64_t lifetime(const crl_http_rules *r, const crl_http_control *c, int by_accel) {
  int64_t life = UNSAID, now = r->now_ms / 1000;
  if (by_accel)
    life = accel_life(r, (r->said & SAID_ACCEL_AT) != 0, r->accel);
  else if (c->s_maxage != UNSAID)
    life = c->s_maxage;
  else if (c->max_age != UNSAID)
    life = c->max_age;
  else if (c == &r->control && r->expires != UNSAID)
    life = r->expires == INVALID ? 0 : r->expires - (r->date >= 0 ? r->date : now);
  else
    return UNSAID;
  return life < 0 ? 0 : life;
}

/* The rest of a life guessed from Last-Modified, in ms; 0: none. RFC 9111 4.2.2, RFC 9110 15.1. */
static int64_t guess_ms(const crl_http_rules *r, const crl_http_control *c,
                        const crl_http_terms *terms, int64_t age) {
  static const int statuses[] = {200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501};
  int64_t modified, date = r->date >= 0 ? r->date : r->now_ms / 1000;
  int may = (c->said & SAID_PUBLIC) != 0;
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
    may |= terms->status == statuses[i];
  if (!may || terms->guess_pct <= 0 ||
      !crl_http_date(r->last_modified, strlen(r->last_modified), r->now_ms, &modified))
    return 0;
  int64_t share = (date - modified) * terms->guess_pct / 100, life = share < DAY_S ? share : DAY_S;
  return life > age ? (life - age) * 1000 : 0;
}

/* The rest of a grace, in ms, when the fresh life ended `over` seconds ago. */
static int64_t grace_ms(int64_t seconds, int is_forbidden, int is_s_maxage, int64_t over) {
  if (is_forbidden || seconds == INVALID) return CRL_HTTP_NONE;
  if (seconds == UNSAID) return is_s_maxage ? CRL_HTTP_NONE : CRL_HTTP_UNSAID;
  return seconds > over ? (seconds - over) * 1000 : CRL_HTTP_NONE;
}

crl_http_verdict crl_http_rules_judge(const crl_http_rules *r, const crl_http_terms *terms) {
  int by_accel = terms->with_accel && r->accel != UNSAID;
  const crl_http_control *c = is_by_cdn(r, terms) ? &r->cdn : &r->control;
  crl_http_verdict v = {.why_not = why_not(r, c, terms, by_accel),
                        .retry_after_ms = r->retry_after > 0 ? r->retry_after * 1000 : 0};
  int64_t life = lifetime(r, c, by_accel),
          age = (r->age > 0 ? r->age : 0) + (terms->delay_ms > 0 ? terms->delay_ms / 1000 : 0);
  v.is_storable = v.why_not == NULL;
  v.must_ask = !by_accel && (c->said & SAID_NO_CACHE) != 0;
  if (by_accel) age = 0; /* as in nginx, it counts from now on */
  int64_t over = life == UNSAID || age <= life ? 0 : age - life;
  int is_forbidden = v.must_ask || (c->said & (SAID_MUST_REVALIDATE | SAID_PROXY_REVALIDATE)) != 0;
  int is_s_maxage = !by_accel && c->s_maxage != UNSAID;
  if (v.must_ask)
    v.fresh_ms = CRL_HTTP_NONE;
  else if (life != UNSAID)
    v.fresh_ms = life > age ? (life - age) * 1000 : CRL_HTTP_NONE;
  else
    v.guess_ms = guess_ms(r, c, terms, age);
  v.swr_ms = grace_ms(c->swr, is_forbidden, is_s_maxage, over);
  v.sie_ms = grace_ms(c->sie, is_forbidden, is_s_maxage, over);
  return v;
}

int64_t crl_http_date_apart(const crl_http_rules *rules, int64_t most_ms) {
  int64_t this_second = -(rules->now_ms % 1000);
  int64_t apart = rules->date > 0 ? rules->date * 1000 - rules->now_ms : this_second;
  return apart >= -most_ms && apart <= most_ms ? apart : this_second;
}
