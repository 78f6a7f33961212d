/* log_files.c: what is new in the stats files of this host, for corral log. */
#include "log.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum {
  LINES = 4096, /* sorted together; more are printed in parts */
  FILES = 1 << 20,
  ABSENT_MOST = 100 /* looks without a file after which it is forgotten */
};

/* ---- what is wanted ------------------------------------------------------------------------ */

static bool is_pattern(const char *text) { return strpbrk(text, "*?[") != NULL; }

/* A cut key is matched as it is. */
static bool has_key(const log_wish *w, const corral_logged *e) {
  if (w->key == NULL) return true;
  if (e->key_len == 0) return false;
  if (is_pattern(w->key)) return fnmatch(w->key, e->key, 0) == 0;
  size_t len = strlen(w->key);
  return len <= e->key_kept && memcmp(w->key, e->key, len) == 0;
}

static bool wants(const log_wish *w, const corral_logged *e) {
  bool named = !w->has_events || (e->event >= 0 && w->events[e->event]);
  bool is_long = w->min_ms == 0 || e->duration_us >= w->min_ms * 1000;
  return named && is_long && has_key(w, e);
}

/* ---- files --------------------------------------------------------------------------------- */

/* The place of an id in the array, whether it is there or not. */
static size_t place_of(const log_files *f, uint64_t id) {
  size_t from = 0, to = f->count;
  while (from < to) {
    size_t middle = from + (to - from) / 2;
    if (f->files[middle].id < id)
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

static bool make_room(log_files *f) {
  if (f->count < f->room) return true;
  size_t room = f->room == 0 ? 64 : 2 * f->room;
  log_file *files = room > FILES ? NULL : realloc(f->files, room * sizeof *files);
  if (files == NULL) return false;
  f->files = files;
  f->room = room;
  return true;
}

/* The file of that id, new or known; NULL without memory. */
static log_file *file_of(log_files *f, uint64_t id) {
  size_t at = place_of(f, id);
  if (at == f->count || f->files[at].id != id) {
    if (!make_room(f)) return NULL;
    memmove(&f->files[at + 1], &f->files[at], (f->count - at) * sizeof *f->files);
    f->files[at] = (log_file){.id = id};
    f->count++;
  }
  f->files[at].look = f->look;
  return &f->files[at];
}

/* A file that can't be read for a moment goes on where it was. */
static void forget_files(log_files *f) {
  size_t kept = 0;
  for (size_t i = 0; i < f->count; i++)
    if (f->files[i].look + ABSENT_MOST >= f->look) f->files[kept++] = f->files[i];
  f->count = kept;
}

/* ---- lines --------------------------------------------------------------------------------- */

static int by_moment(const void *a, const void *b) {
  const log_line *x = a, *y = b;
  if (x->logged.at_us != y->logged.at_us) return x->logged.at_us < y->logged.at_us ? -1 : 1;
  return x->logged.number < y->logged.number ? -1 : x->logged.number > y->logged.number;
}

static void print_lines(log_files *f) {
  if (f->filled > 0) qsort(f->lines, f->filled, sizeof *f->lines, by_moment);
  for (size_t i = 0; i < f->filled; i++) log_print(f->cli, &f->lines[i]);
  f->filled = 0;
}

static void add_line(log_files *f, const corral_logged *e, uint64_t missed, bool is_wanted) {
  if (f->filled == LINES) print_lines(f);
  log_line *line = &f->lines[f->filled++];
  line->logged = *e;
  line->logged.name = line->logged.detail = NULL;
  line->missed = missed;
  line->is_wanted = is_wanted;
  (void)snprintf(line->name, sizeof line->name, "%s", e->name);
  (void)snprintf(line->detail, sizeof line->detail, "%s", e->detail != NULL ? e->detail : "");
  (void)snprintf(line->program, sizeof line->program, "%s", corral_stats_program(f->stats));
  (void)snprintf(line->cache, sizeof line->cache, "%s", corral_stats_cache(f->stats));
  (void)snprintf(line->store, sizeof line->store, "%s", corral_stats_store(f->stats));
}

/* Of what the first look finds, nothing is missed. */
static int take(const corral_logged *e, void *arg) {
  log_files *f = arg;
  bool is_first = f->look == 1;
  uint64_t missed = is_first ? 0 : e->number - f->file->number - 1;
  f->file->number = e->number;
  bool is_wanted = (!is_first || f->wish->past) && wants(f->wish, e);
  if (is_wanted || missed > 0) add_line(f, e, missed, is_wanted);
  return 0;
}

static int take_all(const corral_stats *stats, void *arg) {
  log_files *f = arg;
  f->stats = stats;
  f->file = file_of(f, corral_stats_id(stats));
  if (f->file != NULL) (void)corral_stats_log(stats, f->file->number, take, f);
  return f->file == NULL;
}

/* ---- a look -------------------------------------------------------------------------------- */

bool log_look(log_files *f) {
  corral_error error = {0};
  f->look++;
  if (f->lines == NULL) f->lines = malloc(LINES * sizeof *f->lines);
  int status = f->lines == NULL ? CORRAL_ENOMEM : corral_stats_host(NULL, take_all, f, &error);
  if (status > 0) status = CORRAL_ENOMEM;
  if (status != CORRAL_OK) (void)cli_report_as("log", status, &error);
  f->failed = status != CORRAL_OK;
  if (f->lines != NULL) print_lines(f);
  forget_files(f);
  return !f->failed;
}

void log_files_clean(log_files *f) {
  free(f->files);
  free(f->lines);
}
