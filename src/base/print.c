/* print.c: texts of a bounded length that show where something was left out. */
#include "base/print.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPEC = 40, NUMBER = 400 };

static const char gap[] = "...";

typedef struct sink {
  char *at;
  size_t room; /* without the NUL */
  int is_full;
} sink;

/* The list behind the dots, so that its address can be given on. */
typedef struct arguments {
  va_list list;
} arguments;

static int is_inside(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

/* The parts of a text that are shown: its first `head` bytes, and all from `tail` on. UTF-8
 * characters stay whole. */
static void cut(const char *text, size_t len, size_t most, size_t *ret_head, size_t *ret_tail) {
  size_t room = most > sizeof gap ? most - (sizeof gap - 1) : 0;
  size_t head = (room + 1) / 2;
  size_t tail = len - (room - head);
  while (head > 0 && is_inside(text[head])) head--;
  while (tail < len && is_inside(text[tail])) tail++;
  *ret_head = head;
  *ret_tail = tail;
}

void crl_print_fit(char *to, size_t size, const char *text) {
  size_t len = strlen(text), head = len, tail = len;
  if (len >= size) cut(text, len, size - 1, &head, &tail);
  (void)snprintf(to, size, "%.*s%s%s", (int)head, text, len < size ? "" : gap, text + tail);
}

static void put(sink *s, const char *text, size_t len) {
  s->is_full |= len > s->room;
  if (len > s->room) len = s->room;
  memcpy(s->at, text, len);
  s->at += len;
  s->room -= len;
  *s->at = '\0';
}

/* A text of at most `most` bytes, which may be a part of a longer one: nothing is left out. */
static void put_part(sink *s, const char *text, int most) {
  put(s, text, most < 0 ? strlen(text) : strnlen(text, (size_t)most));
}

static void put_text(sink *s, const char *text, size_t most) {
  size_t len = strlen(text), head = len, tail = len;
  if (len > most) cut(text, len, most, &head, &tail);
  put(s, text, head);
  if (len > most) put(s, gap, sizeof gap - 1);
  put(s, text + tail, len - tail);
}

static int64_t take_signed(arguments *args, const char *length) {
  if (strcmp(length, "ll") == 0) return va_arg(args->list, long long);
  if (length[0] == 'l') return va_arg(args->list, long);
  if (length[0] == 'j') return va_arg(args->list, intmax_t);
  if (length[0] == 'z' || length[0] == 't') return va_arg(args->list, ptrdiff_t);
  return va_arg(args->list, int);
}

static uint64_t take_unsigned(arguments *args, const char *length) {
  if (strcmp(length, "ll") == 0) return va_arg(args->list, unsigned long long);
  if (length[0] == 'l') return va_arg(args->list, unsigned long);
  if (length[0] == 'j') return va_arg(args->list, uintmax_t);
  if (length[0] == 'z' || length[0] == 't') return va_arg(args->list, size_t);
  return va_arg(args->list, unsigned);
}

/* A conversion of something else than a text, done by snprintf: `flags` are flags and width. */
static void put_number(sink *s, const char *flags, const char *length, char kind, arguments *args) {
  char spec[SPEC], number[NUMBER];
  int is_real = strchr("aAeEfFgG", kind) != NULL;
  const char *wide = is_real || strchr("cp", kind) != NULL ? "" : "j";
  (void)snprintf(spec, sizeof spec, "%%%s%s%c", flags, wide, kind);
  if (is_real)
    (void)snprintf(number, sizeof number, spec, va_arg(args->list, double));
  else if (kind == 'p')
    (void)snprintf(number, sizeof number, spec, va_arg(args->list, void *));
  else if (kind == 'c')
    (void)snprintf(number, sizeof number, spec, va_arg(args->list, int));
  else if (kind == 'd' || kind == 'i')
    (void)snprintf(number, sizeof number, spec, (intmax_t)take_signed(args, length));
  else
    (void)snprintf(number, sizeof number, spec, (uintmax_t)take_unsigned(args, length));
  put(s, number, strlen(number));
}

/* One conversion, at its '%'. Returns what follows it. */
static const char *convert(sink *s, const char *at, arguments *args) {
  char flags[SPEC / 2] = "", length[3] = "";
  size_t n = strspn(at + 1, "-+ #0123456789.");
  int is_part = at[n] == '.' && at[n + 1] == '*';
  int part = is_part ? va_arg(args->list, int) : -1;
  (void)snprintf(flags, sizeof flags, "%.*s", (int)n, at + 1);
  at += 1 + n + (size_t)is_part;
  n = strspn(at, "hljzt");
  (void)snprintf(length, sizeof length, "%.*s", (int)n, at);
  at += n;
  const char *dot = strchr(flags, '.');
  if (*at == '\0') return at;
  if (*at == '%') {
    put(s, "%", 1);
  } else if (*at != 's') {
    put_number(s, flags, length, *at, args);
  } else {
    const char *text = va_arg(args->list, const char *);
    if (text == NULL) text = "(null)";
    if (is_part || dot == NULL)
      put_part(s, text, part);
    else
      put_text(s, text, strtoul(dot + 1, NULL, 10));
  }
  return at + 1;
}

void crl_print(char *to, size_t size, const char *format, va_list list) {
  char whole[CRL_PRINT_MOST];
  sink s = {whole, sizeof whole - 1, 0};
  arguments args;
  va_copy(args.list, list);
  whole[0] = '\0';
  while (*format != '\0') {
    size_t plain = strcspn(format, "%");
    put(&s, format, plain);
    format += plain;
    if (*format != '\0') format = convert(&s, format, &args);
  }
  va_end(args.list);
  if (s.is_full) memcpy(s.at - (sizeof gap - 1), gap, sizeof gap);
  crl_print_fit(to, size, whole);
}
