/* options.c: the tables of options: their defaults and ranges, sized structs, and setting by name
 * and text. */
#include "policy/options.h"

#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "policy/policy.h"
#include "policy/text.h"

#define ROW(field, name, group, unit, def, least, most, command, nginx, text)                      \
  {#field, name, unit, def, least, most},
static const crl_option policy_rows[] = {CORRAL_POLICY_MAP(ROW)};
static const crl_option option_rows[] = {CORRAL_OPTION_MAP(ROW)};
static const crl_option lock_rows[] = {CORRAL_LOCK_MAP(ROW)};
#undef ROW

/* An option that is a text: a pointer at `at` of its struct. */
typedef struct text_row {
  const char *field, *name;
  size_t at;
} text_row;

#define ROW(field, name, group, command, nginx, text)                                              \
  {#field, name, offsetof(corral_options, field)},
static const text_row option_texts[] = {CORRAL_TEXT_MAP(ROW)};
#undef ROW
static const text_row lock_texts[] = {{"note", "note", offsetof(corral_lock_options, note)},
                                      {"owner", "owner", offsetof(corral_lock_options, owner)},
                                      {"adopt", "adopt", offsetof(corral_lock_options, adopt)}};

/* A sized struct of the user's: first fields of the call or the corral; from `at` on, the rows'
 * fields. */
typedef struct shape {
  const char *name;
  size_t size, at;
  const crl_option *rows;
  size_t count;
  const text_row *texts;
  size_t text_count;
} shape;

#define COUNT(rows) (sizeof rows / sizeof *(rows))
static const shape policy_shape = {
    .name = "policy",
    .size = sizeof(corral_policy),
    .at = offsetof(corral_policy, ttl_ms),
    .rows = policy_rows,
    .count = COUNT(policy_rows),
};
static const shape option_shape = {
    .name = "options",
    .size = sizeof(corral_options),
    .at = offsetof(corral_options, generation),
    .rows = option_rows,
    .count = COUNT(option_rows),
    .texts = option_texts,
    .text_count = COUNT(option_texts),
};
static const shape lock_shape = {
    .name = "lock options",
    .size = sizeof(corral_lock_options),
    .at = offsetof(corral_lock_options, ttl_ms),
    .rows = lock_rows,
    .count = COUNT(lock_rows),
    .texts = lock_texts,
    .text_count = COUNT(lock_texts),
};
_Static_assert(sizeof(corral_policy) ==
                   offsetof(corral_policy, ttl_ms) + COUNT(policy_rows) * sizeof(int64_t),
               "the rows' fields end corral_policy");
_Static_assert(sizeof(corral_options) ==
                   offsetof(corral_options, generation) + COUNT(option_rows) * sizeof(int64_t),
               "the rows' fields end corral_options");
_Static_assert(sizeof(corral_lock_options) ==
                   offsetof(corral_lock_options, ttl_ms) + COUNT(lock_rows) * sizeof(int64_t),
               "the rows' fields end corral_lock_options");

static const crl_option *rows_of(const shape *s, size_t *ret_count, size_t *ret_at) {
  *ret_count = s->count;
  *ret_at = s->at;
  return s->rows;
}

const crl_option *crl_options_of_policy(size_t *ret_count, size_t *ret_at) {
  return rows_of(&policy_shape, ret_count, ret_at);
}

const crl_option *crl_options_of_corral(size_t *ret_count, size_t *ret_at) {
  return rows_of(&option_shape, ret_count, ret_at);
}

const crl_option *crl_options_of_lock(size_t *ret_count, size_t *ret_at) {
  return rows_of(&lock_shape, ret_count, ret_at);
}

/* ---- structs ------------------------------------------------------------------------------- */

static int refuse(const crl_option *r, int64_t number, corral_error *error) {
  return crl_status_fail(error, CORRAL_EINVAL,
                         "%s = %lld %s; accepted: %lld to %lld, or 0 for the default", r->field,
                         (long long)number, r->unit, (long long)r->least, (long long)r->most);
}

static void take_defaults(void *ret, const shape *s) {
  int64_t *fields = (int64_t *)(void *)((char *)ret + s->at);
  for (size_t i = 0; i < s->count; i++) fields[i] = s->rows[i].def;
}

/* Copies the fields that the user's struct sets to *ret. */
static int overlay(void *ret, const void *user, size_t user_size, const shape *s,
                   corral_error *error) {
  int64_t *fields = (int64_t *)(void *)((char *)ret + s->at);
  const int64_t *set = (const int64_t *)(const void *)((const char *)user + s->at);
  size_t known = user_size < s->size ? user_size : s->size;
  size_t count = known < s->at ? 0 : (known - s->at) / sizeof *set;
  memcpy(ret, user, known < s->at ? known : s->at);
#pragma GCC unroll 4 /* most are zero: every cached answer comes through here */
  for (size_t i = 0; i < count; i++) {
    if (set[i] == 0) continue;
    if (set[i] < s->rows[i].least || set[i] > s->rows[i].most)
      return refuse(&s->rows[i], set[i], error);
    fields[i] = set[i];
  }
  return CORRAL_OK;
}

/* A field that is zero in the user's struct (NULL: all of them) comes from `base`; with `base` of
 * NULL, from the table. */
static int resolve(void *ret, const void *user, const void *base, const shape *s,
                   corral_error *error) {
  int status = user == NULL ? CORRAL_OK : crl_sized_check(user, s->size, s->name, error);
  if (status != CORRAL_OK) return status;
  if (base != NULL) {
    memcpy(ret, base, s->size);
  } else {
    memset(ret, 0, s->at);
    take_defaults(ret, s);
  }
  if (user != NULL) status = overlay(ret, user, *(const size_t *)user, s, error);
  *(size_t *)ret = s->size;
  return status;
}

int crl_policy_sets_wait(const corral_policy *user) {
  const size_t end = offsetof(corral_policy, wait_ms) + sizeof user->wait_ms;
  return user != NULL && user->size >= end && user->wait_ms != 0;
}

/* A wait that isn't set, and wasn't shorter than the compute before, isn't so now. */
static void lengthen_wait(corral_policy *ret, const corral_policy *user,
                          const corral_policy *base) {
  if (!crl_policy_sets_wait(user) && (base == NULL || base->wait_ms >= base->compute_ms))
    ret->wait_ms = ret->compute_ms;
}

int crl_policy_resolve(corral_policy *ret, const corral_policy *user, const corral_policy *base,
                       corral_error *error) {
  int status = resolve(ret, user, base, &policy_shape, error);
  if (status == CORRAL_OK && ret->wait_ms < ret->compute_ms) lengthen_wait(ret, user, base);
  return status;
}

int crl_policy_options(corral_options *ret, const corral_options *user, corral_error *error) {
  return resolve(ret, user, NULL, &option_shape, error);
}

int crl_policy_lock(corral_lock_options *ret, const corral_lock_options *user,
                    corral_error *error) {
  return resolve(ret, user, NULL, &lock_shape, error);
}

/* ---- numbers as texts ---------------------------------------------------------------------- */

static int has_unit(const crl_option *o, const char *unit) { return strcmp(o->unit, unit) == 0; }
static int is_choice(const crl_option *o) { return strchr(o->unit, '|') != NULL; }
static int may_be_off(const crl_option *o) { return o->least < 0; }

/* Finds choice number `number`, from 1 on, in "a|b|c"; its length, 0: there is none. */
static size_t choice_of(const crl_option *o, int64_t number, const char **ret) {
  const char *at = o->unit;
  for (int64_t i = 1; i < number && at != NULL; i++)
    if ((at = strchr(at, '|')) != NULL) at++;
  *ret = at;
  return at == NULL ? 0 : strcspn(at, "|");
}

const char *crl_option_show(const crl_option *o, int64_t number, char room[32]) {
  const char *word;
  size_t len = is_choice(o) ? choice_of(o, number, &word) : 0;
  if (len > 0)
    snprintf(room, 32, "%.*s", (int)len, word);
  else if (number < 0 || (number == 0 && may_be_off(o)))
    snprintf(room, 32, "off");
  else if (has_unit(o, "flag"))
    snprintf(room, 32, "on");
  else if (has_unit(o, "ms"))
    crl_text_show_duration(room, number);
  else if (has_unit(o, "bytes"))
    crl_text_show_size(room, number);
  else if (has_unit(o, "ppm"))
    crl_text_show_share(room, number);
  else
    snprintf(room, 32, "%lld%s", (long long)number, has_unit(o, "%") ? "%" : "");
  return room;
}

/* 0; -1: it isn't a text of this kind. */
static int parse_flag(const char *text, int64_t *ret) {
  static const char *const words[] = {"on", "off", "yes", "no", "true", "false", "1", "0"};
  for (size_t i = 0; i < COUNT(words); i++)
    if (strcmp(words[i], text) == 0) return *ret = i % 2 == 0 ? 1 : CORRAL_OFF, 0;
  return -1;
}

static int parse_choice(const crl_option *o, const char *text, int64_t *ret) {
  const char *word;
  for (int64_t i = o->least; i <= o->most; i++) {
    size_t len = choice_of(o, i, &word);
    if (strlen(text) == len && strncmp(word, text, len) == 0) return *ret = i, 0;
  }
  return -1;
}

enum { WHOLE_PPM = 1000000 };

static int parse_percent(const char *text, int64_t *ret) {
  char digits[24];
  size_t len = strlen(text);
  if (len > 1 && text[len - 1] == '%') len--;
  if (len >= sizeof digits) return -1;
  memcpy(digits, text, len);
  digits[len] = '\0';
  return crl_text_number(digits, ret);
}

/* `bare_ms`: of a bare number that is a duration; 1 for the name of a field, whose unit is its
 * own. */
static int parse(const crl_option *o, const char *text, int64_t bare_ms, int64_t *ret) {
  int status;
  if (has_unit(o, "flag")) return parse_flag(text, ret);
  if (is_choice(o)) return parse_choice(o, text, ret);
  if (may_be_off(o) && strcmp(text, "off") == 0) return *ret = CORRAL_OFF, 0;
  if (has_unit(o, "ms"))
    status = crl_text_duration(text, bare_ms, ret);
  else if (has_unit(o, "bytes"))
    status = crl_text_size(text, ret);
  else if (has_unit(o, "ppm"))
    status = crl_text_share(text, bare_ms == 1 ? 1 : WHOLE_PPM, ret);
  else
    status = has_unit(o, "%") ? parse_percent(text, ret) : crl_text_number(text, ret);
  /* 0 of a thing that is counted isn't off: "no more than none" and "no limit" are opposites */
  if (status == 0 && *ret == 0 && may_be_off(o) && !has_unit(o, "count")) *ret = CORRAL_OFF;
  return status;
}

/* Describes the accepted texts. */
static void accepted(const crl_option *o, int64_t bare_ms, char *text, size_t size) {
  char low[32], high[32];
  crl_option plain = *o;
  plain.least = 0; /* so that 0 is shown as such */
  int64_t least = o->least >= 0 ? o->least : 1;
  if (has_unit(o, "flag"))
    snprintf(text, size, "on, off");
  else if (is_choice(o))
    snprintf(text, size, "%s", o->unit);
  else
    snprintf(text, size, "%s%s to %s%s", may_be_off(o) ? "off, " : "",
             crl_option_show(&plain, least, low), crl_option_show(&plain, o->most, high),
             has_unit(o, "ppm")   ? ", as in 0.1% or 0.001"
             : !has_unit(o, "ms") ? ""
             : bare_ms == 1       ? ", as in 90s, 1h30m, or 500 for 500ms"
                                  : ", as in 500ms, 1h30m, or 90 for 90s");
}

static int refuse_text(const crl_option *o, const char *name, const char *text, int64_t bare_ms,
                       int is_parsed, corral_error *error) {
  char texts[160];
  const char *why = is_parsed              ? "is out of range"
                    : has_unit(o, "ms")    ? "is no duration"
                    : has_unit(o, "bytes") ? "is no size"
                                           : "is not accepted";
  accepted(o, bare_ms, texts, sizeof texts);
  return crl_status_fail(error, CORRAL_EINVAL, "%.32s: '%.40s' %s; accepted: %s", name, text, why,
                         texts);
}

static int parse_in_range(const crl_option *o, const char *name, const char *text, int64_t bare_ms,
                          int64_t *ret, corral_error *error) {
  int64_t number = 0;
  int status = parse(o, text, bare_ms, &number);
  int is_good = number >= o->least && number <= o->most && (number != 0 || o->least == 0);
  if (status != 0 || !is_good) return refuse_text(o, name, text, bare_ms, status == 0, error);
  *ret = number;
  return CORRAL_OK;
}

int corral_duration_parse(const char *name, const char *text, int64_t least, int64_t most,
                          int64_t *ret_ms, corral_error *error) {
  const crl_option o = {.name = name, .unit = "ms", .least = least, .most = most};
  if (name == NULL || text == NULL || ret_ms == NULL)
    return crl_status_fail(error, CORRAL_EINVAL, "corral_duration_parse: an argument is NULL");
  return parse_in_range(&o, name, text, 1000, ret_ms, error);
}

const char *corral_duration_show(int64_t ms, char *text, size_t size) {
  char room[32];
  if (size > 0) snprintf(text, size, "%s", crl_text_show_duration(room, ms));
  return text;
}

/* ---- by name ------------------------------------------------------------------------------- */

static const crl_option *find_row(const shape *s, const char *name) {
  for (size_t i = 0; i < s->count; i++)
    if (crl_text_same_name(s->rows[i].name, name)) return &s->rows[i];
  for (size_t i = 0; i < s->count; i++)
    if (crl_text_same_name(s->rows[i].field, name)) return &s->rows[i];
  return NULL;
}

static const text_row *find_text(const shape *s, const char *name) {
  for (size_t i = 0; i < s->text_count; i++)
    if (crl_text_same_name(s->texts[i].name, name) || crl_text_same_name(s->texts[i].field, name))
      return &s->texts[i];
  return NULL;
}

/* The name nearest to a misspelt one, among those of at most two shapes. */
typedef struct guess {
  const char *wanted, *best;
  unsigned distance;
} guess;

static void consider(guess *g, const char *name) {
  unsigned distance = crl_text_distance(g->wanted, name);
  size_t len = strlen(g->wanted);
  if (distance > 1 && len >= 3 && strncmp(name, g->wanted, len) == 0) distance = 1;
  if (distance >= g->distance || 2 * distance > strlen(name)) return;
  g->distance = distance;
  g->best = name;
}

static void consider_all(guess *g, const shape *s) {
  for (size_t i = 0; i < s->count; i++) consider(g, s->rows[i].name);
  for (size_t i = 0; i < s->text_count; i++) consider(g, s->texts[i].name);
  for (size_t i = 0; i < s->count; i++) consider(g, s->rows[i].field);
}

static int unknown(const shape *s, const shape *other, const char *name, corral_error *error) {
  guess g = {.wanted = name, .distance = 4};
  consider_all(&g, s);
  if (other != NULL) consider_all(&g, other);
  return crl_status_fail(error, CORRAL_EOPTION, "no option is called '%.40s'%s%s%s", name,
                         g.best != NULL ? ": did you mean '" : "", g.best != NULL ? g.best : "",
                         g.best != NULL ? "'?" : "");
}

/* The field at `at` of the user's struct; NULL: its header is older than the field. */
static void *field_of(void *user, size_t at, size_t size) {
  return at + size <= *(const size_t *)user ? (char *)user + at : NULL;
}

static int lacks(const shape *s, const char *name, corral_error *error) {
  return crl_status_fail(error, CORRAL_EOPTION,
                         "%s: it was compiled with a header that has no option '%.40s'", s->name,
                         name);
}

static int set_row(const shape *s, void *user, const crl_option *row, const char *name,
                   const char *text, corral_error *error) {
  size_t at = s->at + (size_t)(row - s->rows) * sizeof(int64_t);
  int64_t *field = field_of(user, at, sizeof *field);
  int has_raw = has_unit(row, "ms") || has_unit(row, "ppm");
  int is_raw = has_raw && !crl_text_same_name(row->name, name);
  if (field == NULL) return lacks(s, name, error);
  if (strcmp(text, "default") == 0) return *field = 0, CORRAL_OK;
  return parse_in_range(row, name, text, is_raw ? 1 : 1000, field, error);
}

/* CORRAL_EMISS: the shape has no option of that name. */
static int set(const shape *s, void *user, const char *name, const char *text,
               corral_error *error) {
  if (user == NULL || name == NULL || text == NULL)
    return crl_status_fail(error, CORRAL_EINVAL, "%s: an argument is NULL", s->name);
  int status = crl_sized_check(user, s->size, s->name, error);
  if (status != CORRAL_OK) return status;
  const crl_option *row = find_row(s, name);
  if (row != NULL) return set_row(s, user, row, name, text, error);
  const text_row *words = find_text(s, name);
  if (words == NULL) return CORRAL_EMISS;
  const char **field = field_of(user, words->at, sizeof *field);
  if (field == NULL) return lacks(s, name, error);
  *field = text;
  return CORRAL_OK;
}

int corral_policy_set(corral_policy *policy, const char *name, const char *text,
                      corral_error *error) {
  int status = set(&policy_shape, policy, name, text, error);
  return status == CORRAL_EMISS ? unknown(&policy_shape, NULL, name, error) : status;
}

int corral_lock_options_set(corral_lock_options *options, const char *name, const char *text,
                            corral_error *error) {
  int status = set(&lock_shape, options, name, text, error);
  return status == CORRAL_EMISS ? unknown(&lock_shape, NULL, name, error) : status;
}

int corral_options_set(corral_options *options, const char *name, const char *text,
                       corral_error *error) {
  int status = set(&option_shape, options, name, text, error);
  if (status != CORRAL_EMISS) return status;
  if (find_row(&policy_shape, name) == NULL)
    return unknown(&option_shape, &policy_shape, name, error);
  if (field_of(options, offsetof(corral_options, policy), sizeof options->policy) == NULL ||
      options->policy == NULL)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "'%.40s' is an option of the policy: set `policy` of the options first",
                           name);
  return corral_policy_set((corral_policy *)(uintptr_t)options->policy, name, text, error);
}
