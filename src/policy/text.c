/* text.c: durations, sizes and names of options as people write them. */
#include "policy/text.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MOST = 31, FRACTION_MOST = 9, PERCENT_PPM = 10000 };

static const struct unit {
  const char *name;
  int64_t ms;
} units[] = {{"w", 604800000}, {"d", 86400000}, {"h", 3600000},
             {"m", 60000},     {"s", 1000},     {"ms", 1}};
enum { UNITS = sizeof units / sizeof *units };

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int64_t plus(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t times(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Takes digits from *at; -1: there are none. */
static int take_digits(const char **at, int64_t *ret) {
  const char *from = *at;
  *ret = 0;
  for (; is_digit(**at); (*at)++) *ret = plus(times(*ret, 10), **at - '0');
  return *at > from ? 0 : -1;
}

/* Takes the digits behind a point, as *ret / *ret_of; those after the ninth count for nothing. */
static int take_fraction(const char **at, int64_t *ret, int64_t *ret_of) {
  const char *from = *at;
  *ret = 0;
  *ret_of = 1;
  for (; is_digit(**at); (*at)++) {
    if (*at - from >= FRACTION_MOST) continue;
    *ret = *ret * 10 + (**at - '0');
    *ret_of *= 10;
  }
  return *at > from ? 0 : -1;
}

/* Takes a unit from *at; its index, or -1. The letters up to the next digit are its name. */
static int take_unit(const char **at) {
  size_t len = strcspn(*at, "0123456789.");
  for (int i = 0; i < UNITS; i++)
    if (strlen(units[i].name) == len && memcmp(units[i].name, *at, len) == 0) {
      *at += len;
      return i;
    }
  return -1;
}

int crl_text_duration(const char *text, int64_t bare_ms, int64_t *ret) {
  const char *at = text;
  int64_t sum = 0;
  for (int last = -1; at == text || *at != '\0';) { /* units get smaller, as in 1h30m */
    int64_t whole, part = 0, of = 1;
    if (take_digits(&at, &whole) != 0) return -1;
    if (*at == '.' && (at++, take_fraction(&at, &part, &of)) != 0) return -1;
    int is_bare = last < 0 && *at == '\0';
    int unit = is_bare ? -1 : take_unit(&at);
    if (!is_bare && unit <= last) return -1;
    int64_t ms = is_bare ? bare_ms : units[unit].ms;
    sum = plus(sum, times(whole, ms));
    sum = plus(sum, part / of * ms + (part * ms + of - 1) / of);
    last = unit;
    if (is_bare) break;
  }
  *ret = sum;
  return 0;
}

int crl_text_size(const char *text, int64_t *ret) {
  static const char names[] = "kKmMgGtT";
  const char *at = text;
  int64_t n;
  if (take_digits(&at, &n) != 0) return -1;
  const char *name = *at != '\0' ? strchr(names, *at) : NULL;
  if (name != NULL) at++;
  if (*at != '\0') return -1;
  *ret = name == NULL ? n : times(n, INT64_C(1024) << (10 * ((name - names) / 2)));
  return 0;
}

int crl_text_share(const char *text, int64_t bare_ppm, int64_t *ret) {
  const char *at = text;
  int64_t whole, part = 0, of = 1;
  if (take_digits(&at, &whole) != 0) return -1;
  if (*at == '.' && (at++, take_fraction(&at, &part, &of)) != 0) return -1;
  int is_percent = *at == '%';
  int64_t ppm = is_percent ? PERCENT_PPM : bare_ppm;
  if (at[is_percent] != '\0') return -1;
  *ret = plus(times(whole, ppm), (part * ppm + of - 1) / of);
  return 0;
}

int crl_text_number(const char *text, int64_t *ret) {
  const char *at = text;
  int64_t n;
  if (take_digits(&at, &n) != 0 || *at != '\0') return -1;
  *ret = n;
  return 0;
}

/* The largest unit that gives a whole number; else seconds with a fraction. */
const char *crl_text_show_duration(char room[32], int64_t ms) {
  static const struct unit shown[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}};
  size_t i = 0;
  if (ms <= 0) return memcpy(room, "0", 2);
  while (i < 4 && ms % shown[i].ms != 0) i++;
  if (i < 4)
    snprintf(room, 32, "%lld%s", (long long)(ms / shown[i].ms), shown[i].name);
  else if (ms < 1000)
    snprintf(room, 32, "%lldms", (long long)ms);
  else
    snprintf(room, 32, "%lld.%03llds", (long long)(ms / 1000), (long long)(ms % 1000));
  return room;
}

const char *crl_text_show_size(char room[32], int64_t bytes) {
  static const char names[] = {'t', 'g', 'm', 'k'};
  for (int i = 0; i < 4; i++) {
    int64_t unit = INT64_C(1) << (40 - 10 * i);
    if (bytes < unit || bytes % unit != 0) continue;
    snprintf(room, 32, "%lld%c", (long long)(bytes / unit), names[i]);
    return room;
  }
  snprintf(room, 32, "%lld", (long long)bytes);
  return room;
}

const char *crl_text_show_share(char room[32], int64_t ppm) {
  int len = snprintf(room, 31, "%lld.%04lld", (long long)(ppm / PERCENT_PPM),
                     (long long)(ppm % PERCENT_PPM));
  while (room[len - 1] == '0') len--;
  if (room[len - 1] == '.') len--;
  memcpy(room + len, "%", 2);
  return room;
}

static char letter(char c) { return c == '-' ? '_' : c; }

int crl_text_same_name(const char *a, const char *b) {
  for (; *a != '\0' && letter(*a) == letter(*b); a++, b++) continue;
  return letter(*a) == letter(*b);
}

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

/* Optimal string alignment (Damerau, 1964), row by row; three rows are kept. */
unsigned crl_text_distance(const char *a, const char *b) {
  size_t len_a = strlen(a), len_b = strlen(b);
  unsigned rows[3][NAME_MOST + 1];
  if (len_a > NAME_MOST || len_b > NAME_MOST) return 2 * NAME_MOST;
  for (unsigned j = 0; j <= len_b; j++) rows[0][j] = j;
  for (size_t i = 1; i <= len_a; i++) {
    unsigned *now = rows[i % 3], *before = rows[(i + 2) % 3], *third = rows[(i + 1) % 3];
    now[0] = (unsigned)i;
    for (size_t j = 1; j <= len_b; j++) {
      unsigned other = letter(a[i - 1]) != letter(b[j - 1]);
      now[j] = least(before[j - 1] + other, 1 + least(before[j], now[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = least(now[j], third[j - 2] + 1);
    }
  }
  return rows[len_a % 3][len_b];
}
