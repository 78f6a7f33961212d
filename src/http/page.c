/* page.c: the bytes of a page; see corral/page.h.
 *
 *   0  "cPG1"              16  i64 ttl_ms      36  u16 length of vary
 *   4  u16 status          24  i64 swr_ms      38  hash
 *   6  u16 zero            32  u32 checksum    54  i64 sie_ms
 *   8  u32 age_s                               62  i64 date_ms
 *  12  u32 size of fields                      70  vary, fields, body
 *
 * A field is u16 length of the name, u16 length of the value, name, value. The store's own envelope
 * has a checksum of all bytes. The checksum here, of the head, tells a page from a foreign value
 * under the same key. */
#include <corral/page.h>

#include <string.h>
#include <strings.h>

enum {
  HEAD = 70,
  AT_STATUS = 4,
  AT_ZERO = 6,
  AT_AGE = 8,
  AT_FIELDS = 12,
  AT_TTL = 16,
  AT_SWR = 24,
  AT_CHECK = 32,
  AT_VARY = 36,
  AT_HASH = 38,
  AT_SIE = 54,
  AT_DATE = 62
};
enum { FIELD_HEAD = 4, LONGEST = 65535 };
static const unsigned char magic[4] = {'c', 'P', 'G', '1'};

static void put(unsigned char *to, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)(number >> (8 * i));
}

static uint64_t take(const unsigned char *from, size_t bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes; i++) number |= (uint64_t)from[i] << (8 * i);
  return number;
}

/* FNV-1a over the head without the checksum itself. */
static uint32_t check(const unsigned char *head) {
  uint32_t sum = 2166136261U;
  for (size_t i = 0; i < HEAD; i++)
    if (i < AT_CHECK || i >= AT_VARY) sum = (sum ^ head[i]) * 16777619U;
  return sum;
}

/* ---- valid responses ----------------------------------------------------------------------- */

static int is_token(unsigned char c) {
  return c > ' ' && c < 127 && memchr("\"(),/:;<=>?@[\\]{}", c, 17) == NULL;
}

static int is_named(const corral_page_field *field, const char *name) {
  return field->name_len == strlen(name) &&
         strncasecmp((const char *)field->name, name, field->name_len) == 0;
}

int corral_page_leaves_out(const corral_page_field *field) {
  static const char *const names[] = {"connection",
                                      "keep-alive",
                                      "proxy-authenticate",
                                      "proxy-authorization",
                                      "proxy-connection",
                                      "te",
                                      "trailer",
                                      "transfer-encoding",
                                      "upgrade",
                                      "date",
                                      "server",
                                      "content-length",
                                      "age",
                                      "accept-ranges"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (is_named(field, names[i])) return 1;
  return field->name_len > 8 && strncasecmp((const char *)field->name, "x-accel-", 8) == 0;
}

/* RFC 9110 5.1, 5.5. */
static int is_field(const corral_page_field *field) {
  for (size_t i = 0; i < field->name_len; i++)
    if (!is_token(field->name[i])) return 0;
  for (size_t i = 0; i < field->value_len; i++)
    if (field->value[i] == '\r' || field->value[i] == '\n' || field->value[i] == '\0') return 0;
  return field->name_len > 0 && !corral_page_leaves_out(field);
}

static int is_life(int64_t ms) { return ms >= -1 && ms <= CORRAL_PAGE_LONGEST_MS; }

static int is_response(const corral_page *page) {
  for (size_t i = 0; i < page->vary_len; i++)
    if (page->vary[i] != ' ' && !is_token(page->vary[i])) return 0;
  return page->status >= 200 && page->status <= 599 && is_life(page->ttl_ms) &&
         is_life(page->swr_ms) && is_life(page->sie_ms) &&
         page->date_ms >= -CORRAL_PAGE_LONGEST_MS && page->date_ms <= CORRAL_PAGE_LONGEST_MS;
}

/* ---- bytes --------------------------------------------------------------------------------- */

size_t corral_page_size(const corral_page *page, const corral_page_field *fields, size_t count) {
  size_t room = HEAD + page->vary_len;
  if (page->vary_len > CORRAL_PAGE_VARY || count > CORRAL_PAGE_FIELDS || !is_response(page))
    return 0;
  for (size_t i = 0; i < count; i++) {
    if (fields[i].name_len > LONGEST || fields[i].value_len > LONGEST || !is_field(&fields[i]))
      return 0;
    room += FIELD_HEAD + fields[i].name_len + fields[i].value_len;
  }
  return page->body_len > SIZE_MAX / 2 ? 0 : room + page->body_len;
}

static unsigned char *append(unsigned char *to, const unsigned char *bytes, size_t len) {
  if (len > 0) memcpy(to, bytes, len);
  return to + len;
}

unsigned char *corral_page_write(unsigned char *to, const corral_page *page,
                                 const corral_page_field *fields, size_t count) {
  unsigned char *begin = append(to + HEAD, page->vary, page->vary_len), *at = begin;
  for (size_t i = 0; i < count; i++) {
    put(at, fields[i].name_len, 2);
    put(at + 2, fields[i].value_len, 2);
    at = append(append(at + FIELD_HEAD, fields[i].name, fields[i].name_len), fields[i].value,
                fields[i].value_len);
  }
  memset(to, 0, HEAD);
  memcpy(to, magic, sizeof magic);
  put(to + AT_STATUS, page->status, 2);
  put(to + AT_AGE, page->age_s, 4);
  put(to + AT_FIELDS, (size_t)(at - begin), 4);
  put(to + AT_TTL, (uint64_t)page->ttl_ms, 8);
  put(to + AT_SWR, (uint64_t)page->swr_ms, 8);
  put(to + AT_SIE, (uint64_t)page->sie_ms, 8);
  put(to + AT_DATE, (uint64_t)page->date_ms, 8);
  put(to + AT_VARY, page->vary_len, 2);
  memcpy(to + AT_HASH, page->hash, CORRAL_PAGE_HASH);
  put(to + AT_CHECK, check(to), 4);
  return at;
}

int corral_page_same_head(const void *one, const void *other, size_t size) {
  const unsigned char *a = one, *b = other;
  if (size < HEAD) return 0;
  int64_t apart = (int64_t)take(a + AT_DATE, 8) - (int64_t)take(b + AT_DATE, 8);
  return apart > -1000 && apart < 1000 && memcmp(a, b, AT_CHECK) == 0 &&
         memcmp(a + AT_VARY, b + AT_VARY, AT_DATE - AT_VARY) == 0 &&
         memcmp(a + HEAD, b + HEAD, size - HEAD) == 0;
}

/* ---- renewal ------------------------------------------------------------------------------- */

/* True for fields that describe the stored body: a 304 doesn't update them (RFC 9111, 3.2). */
static int is_of_body(const corral_page_field *field) {
  return is_named(field, "content-encoding") || is_named(field, "content-type") ||
         is_named(field, "content-range");
}

static int has_like(const corral_page_field *fields, size_t count, const corral_page_field *like) {
  for (size_t i = 0; i < count; i++)
    if (fields[i].name_len == like->name_len &&
        strncasecmp((const char *)fields[i].name, (const char *)like->name, like->name_len) == 0)
      return 1;
  return 0;
}

/* Moves the given fields to the end, so that those before them can be written from the front. */
size_t corral_page_merge(const corral_page *old, corral_page_field *fields, size_t count,
                         size_t *ret_old) {
  corral_page_field field, *given = fields + CORRAL_PAGE_FIELDS;
  size_t kept = 0, merged = 0;
  if (count > CORRAL_PAGE_FIELDS) return 0;
  for (size_t i = count; i-- > 0;)
    if (!is_of_body(&fields[i])) given[-(ptrdiff_t)++kept] = fields[i];
  given -= kept;
  for (corral_page_cursor at = 0; corral_page_next(old, &at, &field);) {
    if (has_like(given, kept, &field)) continue;
    if (merged + kept == CORRAL_PAGE_FIELDS) return 0;
    fields[merged++] = field;
  }
  memmove(fields + merged, given, kept * sizeof *given);
  *ret_old = merged;
  return merged + kept;
}

/* ---- reading ------------------------------------------------------------------------------- */

int corral_page_read(const void *data, size_t size, corral_page *ret) {
  const unsigned char *head = data;
  if (size < HEAD || memcmp(head, magic, sizeof magic) != 0 ||
      take(head + AT_CHECK, 4) != check(head))
    return CORRAL_EFOREIGN;
  corral_page read = {.status = (uint32_t)take(head + AT_STATUS, 2),
                      .age_s = (uint32_t)take(head + AT_AGE, 4),
                      .ttl_ms = (int64_t)take(head + AT_TTL, 8),
                      .swr_ms = (int64_t)take(head + AT_SWR, 8),
                      .sie_ms = (int64_t)take(head + AT_SIE, 8),
                      .date_ms = (int64_t)take(head + AT_DATE, 8),
                      .vary_len = (size_t)take(head + AT_VARY, 2),
                      .fields_len = (size_t)take(head + AT_FIELDS, 4)};
  if (take(head + AT_ZERO, 2) != 0 || read.vary_len > CORRAL_PAGE_VARY) return CORRAL_ECORRUPT;
  size -= HEAD;
  if (read.vary_len > size || read.fields_len > size - read.vary_len) return CORRAL_ECORRUPT;
  memcpy(read.hash, head + AT_HASH, CORRAL_PAGE_HASH);
  read.vary = head + HEAD;
  read.fields = read.vary + read.vary_len;
  read.body = read.fields + read.fields_len;
  read.body_len = size - read.vary_len - read.fields_len;
  corral_page_field field;
  size_t at = 0, count = 0;
  while (corral_page_next(&read, &at, &field))
    if (++count > CORRAL_PAGE_FIELDS || !is_field(&field)) return CORRAL_ECORRUPT;
  if (at != read.fields_len || !is_response(&read)) return CORRAL_ECORRUPT;
  *ret = read;
  return 0;
}

int corral_page_may_be_stale(const corral_page *page, int64_t kept_ms) {
  int64_t over_ms = kept_ms - page->ttl_ms;
  return (page->sie_ms >= 0 && over_ms <= page->sie_ms) ||
         (page->swr_ms > 0 && over_ms <= page->swr_ms);
}

int corral_page_next(const corral_page *page, corral_page_cursor *at, corral_page_field *ret) {
  size_t left = page->fields_len - *at;
  if (left < FIELD_HEAD) return 0;
  const unsigned char *from = page->fields + *at;
  corral_page_field field = {.name_len = (size_t)take(from, 2),
                             .value_len = (size_t)take(from + 2, 2)};
  if (field.name_len == 0 || field.name_len + field.value_len > left - FIELD_HEAD) return 0;
  field.name = from + FIELD_HEAD;
  field.value = field.name + field.name_len;
  *at += FIELD_HEAD + field.name_len + field.value_len;
  *ret = field;
  return 1;
}
