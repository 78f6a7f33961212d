/* stat_gather.c: reads the counts of this host's corrals, and sums them. */
#include "stat.h"

#include <corral/control.h>
#include <stdlib.h>
#include <string.h>

const char *const stat_wake_names[CORRAL_WAKE_COUNT] = {
#define NAME(id, name) name,
    CORRAL_WAKE_MAP(NAME)
#undef NAME
};

const corral_event stat_troubles[STAT_TROUBLES] = {
    CORRAL_EVENT_DIFFERS,    CORRAL_EVENT_FENCED,       CORRAL_EVENT_UNSTORED,
    CORRAL_EVENT_OLDER,      CORRAL_EVENT_FAILURE,      CORRAL_EVENT_ABANDONED,
    CORRAL_EVENT_LEASE_LOST, CORRAL_EVENT_DEADLINE,     CORRAL_EVENT_STORE_ERROR,
    CORRAL_EVENT_STORE_DOWN, CORRAL_EVENT_DEGRADED,     CORRAL_EVENT_CORRUPT,
    CORRAL_EVENT_FOREIGN,    CORRAL_EVENT_NEWER,        CORRAL_EVENT_HOST_ERROR,
    CORRAL_EVENT_LOCK_LOST,  CORRAL_EVENT_LOCK_FOREIGN, CORRAL_EVENT_LOCK_FENCE,
    CORRAL_EVENT_STORE_ANEW, CORRAL_EVENT_WARNING};

/* ---- counts -------------------------------------------------------------------------------- */

/* A file that was removed meanwhile takes its counts along. */
static uint64_t grown(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

/* The longest time of the difference is known by its bucket. */
static void histogram_since(const corral_histogram *now, const corral_histogram *before,
                            corral_histogram *ret) {
  uint64_t most = 0;
  *ret = (corral_histogram){.sum_us = grown(now->sum_us, before->sum_us)};
  for (unsigned i = 0; i < CORRAL_HISTOGRAM_BUCKETS; i++) {
    ret->buckets[i] = grown(now->buckets[i], before->buckets[i]);
    ret->count += ret->buckets[i];
    if (ret->buckets[i] > 0) most = corral_histogram_bound(i);
  }
  ret->max_us = most < now->max_us ? most : now->max_us;
}

void stat_since(const stat_counts *now, const stat_counts *before, stat_counts *ret) {
  *ret = *now;
  if (before == NULL) return;
  for (size_t i = 0; i < CORRAL_RESULT_COUNT; i++)
    ret->results[i] = grown(now->results[i], before->results[i]);
  for (size_t i = 0; i < CORRAL_EVENT_COUNT; i++)
    ret->events[i] = grown(now->events[i], before->events[i]);
  for (size_t i = 0; i < CORRAL_TIME_COUNT; i++)
    histogram_since(&now->times[i], &before->times[i], &ret->times[i]);
  ret->saved_us = grown(now->saved_us, before->saved_us);
}

uint64_t stat_gets(const stat_counts *c) {
  uint64_t sum = 0;
  for (size_t i = 0; i < CORRAL_RESULT_COUNT; i++) sum += c->results[i];
  return sum;
}

uint64_t stat_hits(const stat_counts *c) {
  return c->results[CORRAL_RESULT_NEAR] + c->results[CORRAL_RESULT_FRESH] +
         c->results[CORRAL_RESULT_STALE] + c->results[CORRAL_RESULT_OUTBOX] +
         c->results[CORRAL_RESULT_NEGATIVE];
}

uint64_t stat_spared(const stat_counts *c) {
  return stat_hits(c) + c->results[CORRAL_RESULT_JOINED];
}

unsigned stat_nines(uint64_t same, uint64_t differ) {
  unsigned nines = 0;
  for (uint64_t all = same + differ; differ > 0 && differ <= all / 10; all /= 10) nines++;
  /* without a difference as many as so many calls can show */
  for (uint64_t all = same; differ == 0 && all >= 10; all /= 10) nines++;
  return nines;
}

const char *stat_order(const stat_cache *c) {
  return corral_control_name((corral_control)c->gauges[CORRAL_GAUGE_CONTROL]);
}

const char *stat_ratio(char text[STAT_RATIO_TEXT], uint64_t part, uint64_t all) {
  if (all == 0)
    (void)snprintf(text, STAT_RATIO_TEXT, "-");
  else
    (void)snprintf(text, STAT_RATIO_TEXT, "%.1f %%", 100 * ((double)part / (double)all));
  return text;
}

/* ---- caches -------------------------------------------------------------------------------- */

/* NULL, which no store of a host is, comes first. */
static int order(const stat_cache *c, const char *name, const char *store) {
  int by_name = strcmp(c->name, name);
  if (by_name != 0 || (c->store == NULL && store == NULL)) return by_name;
  return c->store == NULL ? -1 : store == NULL ? 1 : strcmp(c->store, store);
}

/* The place of the first cache that isn't before that one. */
static size_t place_of(const stat_host *h, const char *name, const char *store) {
  size_t low = 0, high = h->cache_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (order(h->caches[middle], name, store) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const stat_cache *stat_find(const stat_host *h, const char *name, const char *store) {
  size_t at = place_of(h, name, store);
  return at < h->cache_count && order(h->caches[at], name, store) == 0 ? h->caches[at] : NULL;
}

static void free_cache(stat_cache *c) {
  if (c == NULL) return;
  free(c->name);
  free(c->store);
  corral_stats_free(c->sum);
  free(c);
}

static stat_cache *new_cache(const char *name, const char *store) {
  stat_cache *c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  c->name = strdup(name);
  c->store = store != NULL ? strdup(store) : NULL;
  c->sum = corral_stats_new();
  if (c->name != NULL && (c->store != NULL) == (store != NULL) && c->sum != NULL) return c;
  free_cache(c);
  return NULL;
}

/* NULL without memory. */
static stat_cache *cache_of(stat_host *h, const char *name, const char *store) {
  size_t at = place_of(h, name, store);
  if (at < h->cache_count && order(h->caches[at], name, store) == 0) return h->caches[at];
  stat_cache **caches = realloc(h->caches, (h->cache_count + 1) * sizeof *caches);
  if (caches == NULL) return NULL;
  h->caches = caches;
  stat_cache *c = new_cache(name, store);
  if (c == NULL) return NULL;
  memmove(caches + at + 1, caches + at, (h->cache_count - at) * sizeof *caches);
  caches[at] = c;
  h->cache_count++;
  return c;
}

/* The row that counts for that cache; NULL without memory. */
static stat_cache *row_of(stat_host *h, const char *name, const char *store) {
  if (h->cache_count < STAT_CACHES || stat_find(h, name, store) != NULL)
    return cache_of(h, name, store);
  h->has_others = true;
  return cache_of(h, STAT_OTHERS, STAT_OTHERS_STORE);
}

void stat_drop(stat_host *h) {
  for (size_t i = 0; i < h->cache_count; i++) free_cache(h->caches[i]);
  for (size_t i = 0; i < h->process_count; i++) {
    free(h->processes[i].program);
    free(h->processes[i].version);
  }
  free(h->caches);
  free(h->processes);
  *h = (stat_host){0};
}

/* ---- one file ------------------------------------------------------------------------------ */

/* The text as it may be shown, whole; NULL without memory. */
static char *visible(const char *text) {
  size_t len = strlen(text), room = 4 * len + 16;
  char *shown = malloc(room);
  if (shown != NULL) (void)cli_visible(shown, room, text, len);
  return shown;
}

/* False without memory. */
static bool add_file(stat_cache *c, const corral_stats *s) {
  int64_t wake = corral_stats_gauge(s, CORRAL_GAUGE_WAKE);
  if (wake >= 1 && wake <= CORRAL_WAKE_COUNT) c->wake[wake - 1]++;
  c->processes += corral_stats_pid(s) != 0;
  return corral_stats_add(c->sum, s) == CORRAL_OK;
}

/* A process with several corrals has several files. False without memory. */
static bool add_process(stat_host *h, const corral_stats *s) {
  stat_process p = {.pid = corral_stats_pid(s), .started_ms = corral_stats_started(s)};
  for (size_t i = 0; i < h->process_count; i++)
    if (h->processes[i].pid == p.pid) return true;
  stat_process *processes = realloc(h->processes, (h->process_count + 1) * sizeof *processes);
  if (processes == NULL) return false;
  h->processes = processes;
  p.program = visible(corral_stats_program(s));
  p.version = visible(corral_stats_version(s));
  processes[h->process_count++] = p;
  return p.program != NULL && p.version != NULL;
}

static bool take(stat_host *h, const corral_stats *s) {
  char *name = visible(corral_stats_cache(s)), *store = visible(corral_stats_store(s));
  stat_cache *c = name != NULL && store != NULL ? row_of(h, name, store) : NULL;
  bool ok = c != NULL && add_file(c, s);
  free(name);
  free(store);
  return ok && (corral_stats_pid(s) == 0 || add_process(h, s));
}

static int tell(const corral_stats *s, void *arg) { return take(arg, s) ? 0 : CORRAL_ENOMEM; }

/* ---- all files ----------------------------------------------------------------------------- */

static void read_sum(stat_cache *c) {
  for (unsigned i = 0; i < CORRAL_RESULT_COUNT; i++)
    c->counts.results[i] = corral_stats_results(c->sum, (corral_result)i);
  for (unsigned i = 0; i < CORRAL_EVENT_COUNT; i++)
    c->counts.events[i] = corral_stats_events(c->sum, (corral_event)i);
  for (unsigned i = 0; i < CORRAL_TIME_COUNT; i++)
    corral_stats_times(c->sum, (corral_time)i, &c->counts.times[i]);
  for (unsigned i = 0; i < CORRAL_GAUGE_COUNT; i++)
    c->gauges[i] = corral_stats_gauge(c->sum, (corral_gauge)i);
  c->counts.saved_us = corral_stats_saved(c->sum);
}

static void read_sums(const stat_host *h) {
  for (size_t i = 0; i < h->cache_count; i++) read_sum(h->caches[i]);
}

static bool fail(corral_error *error, int status) {
  if (error->text[0] == '\0')
    (void)snprintf(error->text, sizeof error->text, "%s", corral_status_text(status));
  return false;
}

bool stat_gather(const char *dir, stat_host *ret, corral_error *error) {
  *ret = (stat_host){0};
  *error = (corral_error){0};
  int status = corral_stats_host(dir, tell, ret, error);
  read_sums(ret);
  return status == CORRAL_OK || fail(error, status);
}

bool stat_by_name(const stat_host *h, stat_host *ret, corral_error *error) {
  *ret = (stat_host){0};
  for (size_t i = 0; i < h->cache_count; i++) {
    const stat_cache *more = h->caches[i];
    stat_cache *sum = cache_of(ret, more->name, NULL);
    if (sum == NULL || corral_stats_add(sum->sum, more->sum) != CORRAL_OK)
      return fail(error, CORRAL_ENOMEM);
    for (size_t w = 0; w < CORRAL_WAKE_COUNT; w++) sum->wake[w] += more->wake[w];
    sum->processes += more->processes;
  }
  read_sums(ret);
  return true;
}

bool stat_look(const char *dir, stat_host *ret, corral_error *error) {
  stat_host all;
  *ret = (stat_host){0};
  bool ok = stat_gather(dir, &all, error) && stat_by_name(&all, ret, error);
  if (ok) {
    ret->has_others = all.has_others;
    ret->processes = all.processes;
    ret->process_count = all.process_count;
    all.processes = NULL;
    all.process_count = 0;
  }
  stat_drop(&all);
  return ok;
}

const char *stat_cache_name(const stat_cache *c) {
  return c->name[0] != '\0' ? c->name : "(no name)";
}

size_t stat_of_version(const stat_host *h, size_t i, bool *ret_is_first) {
  size_t count = 0;
  *ret_is_first = true;
  for (size_t j = 0; j < h->process_count; j++) {
    bool is_same = strcmp(h->processes[i].version, h->processes[j].version) == 0;
    if (is_same && j < i) *ret_is_first = false;
    count += is_same;
  }
  return count;
}
