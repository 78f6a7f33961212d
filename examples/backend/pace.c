/* pace.c: see pace.h. The list has the regions noted or at rest, which are few; it is scanned. */
#include "pace.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

typedef struct entry {
  char region[REGION_MOST + 1];
  int is_noted;
  int64_t rests_until;
} entry;

struct pace {
  entry *entries;
  size_t count, room;
};

pace *pace_new(void) { return calloc(1, sizeof(pace)); }

void pace_free(pace *p) {
  if (p == NULL) return;
  free(p->entries);
  free(p);
}

static entry *find(const pace *p, const char *region) {
  for (size_t i = 0; i < p->count; i++)
    if (strcmp(p->entries[i].region, region) == 0) return &p->entries[i];
  return NULL;
}

static entry *add(pace *p, const char *region) {
  if (p->count == p->room) {
    size_t room = p->room == 0 ? 16 : 2 * p->room;
    entry *entries = realloc(p->entries, room * sizeof *entries);
    if (entries == NULL) return NULL;
    p->entries = entries;
    p->room = room;
  }
  entry *e = &p->entries[p->count++];
  *e = (entry){.rests_until = INT64_MIN};
  memcpy(e->region, region, strlen(region) + 1);
  return e;
}

int pace_note(pace *p, const char *region) {
  if (strlen(region) > REGION_MOST) region = PACE_ALL;
  entry *e = find(p, region);
  if (e == NULL) e = add(p, region);
  if (e != NULL) e->is_noted = 1;
  return e != NULL;
}

int pace_note_text(pace *p, const char *text) {
  char region[REGION_MOST + 2];
  int ok = 1;
  for (text += strspn(text, " "); ok && *text != '\0'; text += strspn(text, " ")) {
    size_t len = strcspn(text, " ");
    size_t taken = len < sizeof region ? len : sizeof region - 1;
    memcpy(region, text, taken);
    region[taken] = '\0';
    ok = pace_note(p, region);
    text += len;
  }
  return ok;
}

const char *pace_due(const pace *p, int64_t now_ms) {
  for (size_t i = 0; i < p->count; i++)
    if (p->entries[i].is_noted && p->entries[i].rests_until <= now_ms) return p->entries[i].region;
  return NULL;
}

void pace_expired(pace *p, const char *region, int64_t now_ms, int64_t rest_ms) {
  int is_all = strcmp(region, PACE_ALL) == 0;
  entry *e = find(p, region);
  size_t kept = 0;
  e->is_noted = 0;
  e->rests_until = now_ms + rest_ms;
  for (size_t i = 0; i < p->count; i++) {
    if (is_all) p->entries[i].is_noted = 0;
    /* one that is neither noted nor at rest is forgotten */
    if (p->entries[i].is_noted || p->entries[i].rests_until > now_ms)
      p->entries[kept++] = p->entries[i];
  }
  p->count = kept;
}

int64_t pace_next(const pace *p) {
  int64_t next = INT64_MAX;
  for (size_t i = 0; i < p->count; i++)
    if (p->entries[i].is_noted && p->entries[i].rests_until < next)
      next = p->entries[i].rests_until;
  return next;
}

char *pace_text(const pace *p) {
  char *text = malloc(p->count * (REGION_MOST + 1) + 1), *end = text;
  if (text == NULL) return NULL;
  for (size_t i = 0; i < p->count; i++) {
    if (!p->entries[i].is_noted) continue;
    size_t len = strlen(p->entries[i].region);
    if (end != text) *end++ = ' ';
    memcpy(end, p->entries[i].region, len);
    end += len;
  }
  *end = '\0';
  return text;
}
