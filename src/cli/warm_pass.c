/* warm_pass.c: the record of a pass that several warmers share. */
#include "warm_pass.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHARES = 32, PARTS_OF_THREADS = 16 };

static const char head[] = "corral-warm 1\npass ";

/* ---- read ---------------------------------------------------------------------------------- */

typedef struct reader {
  const char *at, *end;
} reader;

/* Steps over a text if it is next. */
static bool is_next(reader *r, const char *text) {
  size_t len = strlen(text);
  if ((size_t)(r->end - r->at) < len || memcmp(r->at, text, len) != 0) return false;
  r->at += len;
  return true;
}

static int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

/* Reads digits of the base, up to 16 hexadecimal or 15 decimal ones. */
static bool read_number(reader *r, int base, uint64_t *ret) {
  const char *begin = r->at;
  *ret = 0;
  while (r->at < r->end && digit(*r->at) < base && r->at - begin < (base == 16 ? 16 : 15))
    *ret = *ret * (uint64_t)base + (uint64_t)digit(*r->at++);
  return r->at > begin;
}

/* Reads " 40-60 100-120" and the line's end. */
static bool read_ranges(reader *r, warm_pass *p, uint64_t owner) {
  while (is_next(r, " ")) {
    warm_range range = {.owner = owner};
    if (p->range_count == WARM_PASS_RANGES || !read_number(r, 10, &range.begin) ||
        !is_next(r, "-") || !read_number(r, 10, &range.end) || range.begin >= range.end ||
        range.end > p->next)
      return false;
    p->ranges[p->range_count++] = range;
  }
  return is_next(r, "\n");
}

static bool read_warmer(reader *r, warm_pass *p) {
  uint64_t id = 0, beat = 0;
  if (p->warmer_count == WARM_PASS_WARMERS || !read_number(r, 16, &id) || id == 0 ||
      warm_pass_has(p, id) || !is_next(r, " ") || !read_number(r, 10, &beat))
    return false;
  (void)warm_pass_beat(p, id, beat);
  return read_ranges(r, p, id);
}

static bool is_disjoint(const warm_pass *p) {
  for (size_t i = 0; i < p->range_count; i++)
    for (size_t j = 0; j < i; j++)
      if (p->ranges[i].begin < p->ranges[j].end && p->ranges[j].begin < p->ranges[i].end)
        return false;
  return true;
}

static bool read_all(reader *r, warm_pass *p) {
  if (!is_next(r, head) || !read_number(r, 16, &p->id) || p->id == 0 || !is_next(r, " ") ||
      !read_number(r, 10, &p->total) || !is_next(r, " ") || !read_number(r, 10, &p->next) ||
      p->next > p->total || !is_next(r, "\nfree") || !read_ranges(r, p, 0))
    return false;
  while (r->at < r->end)
    if (!is_next(r, "warmer ") || !read_warmer(r, p)) return false;
  return is_disjoint(p);
}

void warm_pass_read(warm_pass *p, const char *text, size_t size) {
  reader r = {text, text + size};
  *p = (warm_pass){0};
  if (size > WARM_PASS_TEXT || !read_all(&r, p)) *p = (warm_pass){0};
}

/* ---- write --------------------------------------------------------------------------------- */

static size_t write_ranges(const warm_pass *p, uint64_t owner, char *text, size_t used) {
  for (size_t i = 0; i < p->range_count; i++)
    if (p->ranges[i].owner == owner)
      used += (size_t)snprintf(text + used, WARM_PASS_TEXT - used, " %" PRIu64 "-%" PRIu64,
                               p->ranges[i].begin, p->ranges[i].end);
  return used + (size_t)snprintf(text + used, WARM_PASS_TEXT - used, "\n");
}

size_t warm_pass_write(const warm_pass *p, char *text) {
  size_t used =
      (size_t)snprintf(text, WARM_PASS_TEXT, "%s%" PRIx64 " %" PRIu64 " %" PRIu64 "\nfree", head,
                       p->id, p->total, p->next);
  used = write_ranges(p, 0, text, used);
  for (size_t i = 0; i < p->warmer_count; i++) {
    used += (size_t)snprintf(text + used, WARM_PASS_TEXT - used, "warmer %" PRIx64 " %" PRIu64,
                             p->warmers[i].id, p->warmers[i].beat);
    used = write_ranges(p, p->warmers[i].id, text, used);
  }
  return used;
}

/* ---- steps --------------------------------------------------------------------------------- */

bool warm_pass_is_done(const warm_pass *p) { return p->next == p->total && p->range_count == 0; }

bool warm_pass_has(const warm_pass *p, uint64_t warmer) {
  for (size_t i = 0; i < p->warmer_count; i++)
    if (p->warmers[i].id == warmer) return true;
  return false;
}

bool warm_pass_beat(warm_pass *p, uint64_t warmer, uint64_t beat) {
  size_t i = 0;
  while (i < p->warmer_count && p->warmers[i].id != warmer) i++;
  if (i == WARM_PASS_WARMERS) return false;
  if (i == p->warmer_count) p->warmer_count++;
  p->warmers[i].id = warmer;
  p->warmers[i].beat = beat;
  return true;
}

static warm_range *first_free(warm_pass *p) {
  warm_range *first = NULL;
  for (size_t i = 0; i < p->range_count; i++)
    if (p->ranges[i].owner == 0 && (first == NULL || p->ranges[i].begin < first->begin))
      first = &p->ranges[i];
  return first;
}

bool warm_pass_take(warm_pass *p, uint64_t warmer, size_t threads, warm_range *ret) {
  warm_range *range = first_free(p);
  uint64_t left = p->total - p->next, least = (threads + PARTS_OF_THREADS - 1) / PARTS_OF_THREADS;
  uint64_t count = left / SHARES < WARM_PASS_LARGEST ? left / SHARES : WARM_PASS_LARGEST;
  if (count < least) count = least < left ? least : left;
  if (range == NULL && (count == 0 || p->range_count == WARM_PASS_RANGES)) return false;
  if (range == NULL) {
    range = &p->ranges[p->range_count++];
    *range = (warm_range){.begin = p->next, .end = p->next + count};
    p->next += count;
  }
  range->owner = warmer;
  *ret = *range;
  return true;
}

void warm_pass_done(warm_pass *p, warm_range range) {
  for (size_t i = 0; i < p->range_count; i++)
    if (p->ranges[i].begin == range.begin && p->ranges[i].owner == range.owner) {
      p->ranges[i] = p->ranges[--p->range_count];
      return;
    }
}

void warm_pass_leave(warm_pass *p, uint64_t warmer) {
  for (size_t i = 0; i < p->range_count; i++)
    if (p->ranges[i].owner == warmer) p->ranges[i].owner = 0;
  for (size_t i = 0; i < p->warmer_count; i++)
    if (p->warmers[i].id == warmer) {
      p->warmers[i] = p->warmers[--p->warmer_count];
      return;
    }
}
