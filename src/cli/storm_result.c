/* storm_result.c: what the waits of `corral storm` say: quantiles, and one sentence. */
#include "storm.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a;
  uint32_t y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* A request without an answer has waited from its moment to the end; that counts, else the worst
 * waits would be missing. Requests due after the end, where a storm was interrupted, don't. */
bool storm_result_end(storm *s, storm_mode mode) {
  storm_result *r = &s->shared->results[mode];
  storm_waits *w = &s->waits[mode];
  w->us = malloc(s->due_count * sizeof *w->us);
  if (w->us == NULL) return cli_say("storm: out of memory"), false;
  for (size_t i = 0; i < s->due_count && (int64_t)s->due_us[i] < r->ran_ms * 1000; i++) {
    atomic_uint *us = &s->answered[mode][i];
    if (atomic_load(us) == 0) {
      atomic_store(us, (unsigned)(r->ran_ms * 1000 - s->due_us[i]));
      w->unanswered++;
    }
    w->us[w->count++] = atomic_load(us);
  }
  atomic_store(&r->requests, w->count - w->unanswered);
  qsort(w->us, w->count, sizeof *w->us, compare);
  return true;
}

int64_t storm_quantile(const storm_waits *waits, double q) {
  if (waits->count == 0) return 0;
  size_t rank = (size_t)ceil(q * (double)waits->count - 1e-6);
  return waits->us[rank > 0 ? rank - 1 : 0];
}

void storm_reading(const storm *s, char *text, size_t room) {
  char none[CLI_TIME_TEXT];
  char with[CLI_TIME_TEXT];
  (void)cli_time_text(none, storm_quantile(&s->waits[STORM_NONE], 0.99));
  (void)cli_time_text(with, storm_quantile(&s->waits[STORM_CORRAL], 0.99));
  static const char head[] = "99 of 100 requests waited at most";
  if (s->options.modes[STORM_NONE] && s->options.modes[STORM_CORRAL])
    (void)snprintf(text, room, "%s %s with corral, %s without.", head, with, none);
  else
    (void)snprintf(text, room, "%s %s.", head, s->options.modes[STORM_NONE] ? none : with);
}

int storm_columns(const storm *s) {
  int64_t ms = s->options.duration_ms;
  for (int mode = 0; mode < STORM_MODES; mode++)
    if (s->shared->results[mode].ran_ms > ms) ms = s->shared->results[mode].ran_ms;
  int64_t columns = (ms + s->shared->bucket_ms - 1) / s->shared->bucket_ms;
  return (int)(columns < STORM_COLUMNS ? columns : STORM_COLUMNS);
}
