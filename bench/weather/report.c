/* report.c: the figures of a world, and their tables. */
#include "weather.h"

#include <stdlib.h>
#include <string.h>

/* The goals of corral; the second one up to this load. */
static const double goal_during = 0.9, goal_back_s = 2, goal_load = 2;
/* Goodput is back when this share of the calls is good. */
static const double back_share = 0.9;

double report_capacity(const scenario *s) { return s->trigger == TRIGGER_SLOW ? 0.1 : 1; }

static int is_good(const world *w, const arrival *a) {
  return (a->outcome == OUTCOME_FRESH || a->outcome == OUTCOME_STALE) &&
         a->took_us <= w->plan->deadline_us;
}

/* Counts the calls of a span. */
static void count(const world *w, int64_t from_us, int64_t to_us, figures *f, int *stale) {
  f->good = f->offered = f->wrong = *stale = 0;
  for (int i = 0; i < w->board->arrival_count; i++) {
    const arrival *a = &w->board->arrivals[i];
    if (a->at_us < from_us || a->at_us >= to_us) continue;
    int good = is_good(w, a);
    f->offered++;
    f->good += good;
    f->wrong += a->outcome == OUTCOME_WRONG;
    *stale += good && a->outcome == OUTCOME_STALE;
  }
}

static double during(const world *w, int64_t from_us) {
  const scenario *s = w->scenario;
  figures f;
  int stale;
  int64_t lasts_us = s->lasts_us > JUDGED_US ? s->lasts_us : JUDGED_US;
  count(w, from_us, from_us + lasts_us, &f, &stale);
  double able = plan_capacity(w->plan) * report_capacity(s) * (double)lasts_us / 1e6;
  return f.good / (able < f.offered ? able : f.offered);
}

/* The end of the last step that was not good. */
static double back_after(const figures *f, int64_t end_us) {
  double back = 0;
  for (int i = (int)(end_us / STEP_US); i < f->steps; i++)
    if (f->share[i] < back_share) back = (double)((i + 1) * (int64_t)STEP_US - end_us) / 1e6;
  double measured = (double)(f->steps * (int64_t)STEP_US - end_us) / 1e6;
  return back > measured - 1 ? -1 : back;
}

figures report_figures(const world *w) {
  const plan *p = w->plan;
  int stale;
  int64_t end_us = p->before_us + w->scenario->lasts_us, all_us = end_us + p->after_us;
  figures f = {.guard = w->guard, .load = w->load};
  for (; (f.steps + 1) * (int64_t)STEP_US <= all_us && f.steps < STEPS; f.steps++) {
    count(w, f.steps * (int64_t)STEP_US, (f.steps + 1) * (int64_t)STEP_US, &f, &stale);
    f.share[f.steps] = f.offered > 0 ? (double)f.good / f.offered : 1;
  }
  f.during = during(w, p->before_us);
  f.back_s = back_after(&f, end_us);
  for (int i = 0; i < w->board->computes && i < 2 * ARRIVALS; i++)
    f.computes += w->board->compute_ms[i] >= p->before_us / 1000;
  count(w, p->before_us, all_us, &f, &stale);
  f.stale = f.good > 0 ? (double)stale / f.good : 0;
  return f;
}

/* ---- the table ----------------------------------------------------------------------------- */

void report_head(const plan *p) {
  printf("An origin of %d workers x %lld ms (%.0f computes a second) and a queue of %d; "
         "%d processes;\n%d keys by Zipf's law, fresh for %.1f s, corral's grace %.0f s; a call is "
         "good when answered within %.1f s.\n"
         "load: calls offered / the origin's capacity.  during: goodput / what the origin can do "
         "(at most\nwhat was offered).  back: from the trigger's end until 90 %% of the calls are "
         "good.  all: good calls\nfrom the trigger on.  The goal, for corral: during >= %.1f; up "
         "to load %.0f back within %.0f s.  A cold\nfleet has it with ramp alone.\n",
         p->workers, (long long)(p->cost_us / 1000), plan_capacity(p), p->queue, p->processes,
         p->keys, (double)p->ttl_us / 1e6, (double)p->stale_us / 1e6, (double)p->deadline_us / 1e6,
         goal_during, goal_load, goal_back_s);
}

void report_scenario(const scenario *s) {
  printf("\n%s\n  %5s %-7s %7s %8s %7s %7s %9s\n", s->title, "load", "guard", "during", "back",
         "all", "stale", "computes");
}

static int is_enough(const figures *f) { return f->during >= goal_during; }

static int is_soon(const figures *f) {
  return f->load > goal_load || (f->back_s >= 0 && f->back_s <= goal_back_s);
}

/* More keys than the origin computes while callers wait need the ramp. */
static int is_judged(const scenario *s, const figures *f) {
  return s->trigger == TRIGGER_COLD ? f->guard == GUARD_RAMP : f->guard >= GUARD_CORRAL;
}

static const char *verdict(const scenario *s, const figures *f) {
  if (!is_judged(s, f)) return f->guard >= GUARD_CORRAL ? "without ramp" : "";
  if (is_enough(f) && is_soon(f)) return "met";
  return is_enough(f) ? "MISSED: back too late"
         : is_soon(f) ? "MISSED: too little during it"
                      : "MISSED: both";
}

static double percent_good(const figures *f) {
  return 100.0 * f->good / (f->offered > 0 ? f->offered : 1);
}

int report_line(const scenario *s, const figures *f) {
  char back[24] = "never";
  const char *text = verdict(s, f);
  if (f->back_s >= 0) snprintf(back, sizeof back, "%.2f s", f->back_s);
  printf("  %5.1f %-7s %7.2f %8s %6.1f%% %6.1f%% %9d  %s", f->load, guard_name(f->guard), f->during,
         back, percent_good(f), 100 * f->stale, f->computes, text);
  if (f->wrong > 0) printf("  WRONG VALUES: %d", f->wrong);
  printf("\n");
  fflush(stdout);
  return text[0] == 'M';
}

/* ---- the table for a page ------------------------------------------------------------------ */

/* Its rows so far. */
static FILE *rows;
static char *rows_text;
static size_t rows_size;

/* The goodput of one guard at each load. */
static void add_cell(const plan *p, guard g, const figures *f, int count) {
  fprintf(rows, " |");
  for (int l = 0; l < p->load_count; l++)
    for (int i = 0; i < count; i++) {
      if (f[i].guard != g || f[i].load != p->loads[l]) continue;
      const char *mark = is_enough(&f[i]) && is_soon(&f[i]) ? "" : "*";
      fprintf(rows, " %s%.0f%s", mark, percent_good(&f[i]), mark);
    }
}

void report_row(const plan *p, const scenario *s, const figures *f, int count) {
  if (rows == NULL) rows = open_memstream(&rows_text, &rows_size);
  if (rows == NULL) return;
  fprintf(rows, "| `%s`", s->name);
  for (guard g = GUARD_NONE; g <= GUARD_CORRAL; g++) add_cell(p, g, f, count);
  add_cell(p, s->trigger == TRIGGER_COLD ? GUARD_RAMP : GUARD_NEAR, f, count);
  fprintf(rows, " |\n");
}

void report_page(const plan *p) {
  static const char *const stores[STORE_KINDS] = {"Redis", "memcached", "LMDB"};
  if (rows == NULL || fclose(rows) != 0) return;
  printf("\n### %s\n\nGood calls from the trigger on, in percent, at ", stores[p->store]);
  for (int l = 0; l < p->load_count; l++) printf(l == 0 ? "%g" : ", %g", p->loads[l]);
  printf(" times the origin's capacity;\n*slanted* where the goal is missed.\n\n"
         "| weather | no guard | lock and poll | corral | near tier (cold: ramp) |\n"
         "|---|---|---|---|---|\n%s",
         rows_text);
  free(rows_text);
}
