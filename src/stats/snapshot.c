/* snapshot.c: snapshots, and sums of them. */
#include "stats/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/value.h"

enum { ROWS_MOST = 4096, SHARDS_MOST = 4096, COUNT_MOST = 1 << 20, TRIES = 16 };

/* Where the rows of each kind begin, among those of this library. */
enum {
  TIMES = CRL_COUNTERS,
  GAUGES = TIMES + CORRAL_TIME_COUNT,
  NUMBERS = GAUGES + CORRAL_GAUGE_COUNT,
  TEXTS = NUMBERS + CRL_NUMBERS,
  PARTS = TEXTS + CRL_TEXTS
};

corral_stats *corral_stats_new(void) {
  corral_stats *stats = crl_alloc(sizeof *stats);
  if (stats != NULL) stats->is_sum = 1;
  return stats;
}

void corral_stats_free(corral_stats *stats) {
  if (stats == NULL) return;
  for (int i = 0; i < CRL_PARTS; i++) free(stats->parts[i]);
  free(stats->events);
  free(stats->flights);
  free(stats);
}

/* ---- of this process ----------------------------------------------------------------------- */

/* Word by word, forwards: threads write meanwhile. */
static uint8_t *copy_part(const crl_stats *stats, crl_part_id part) {
  size_t size;
  _Atomic uint64_t *from = crl_stats_part(stats, part, &size);
  uint64_t *to = from == NULL ? NULL : crl_alloc(size);
  for (size_t i = 0; to != NULL && i < size / sizeof *to; i++)
    to[i] = atomic_load_explicit(&from[i], memory_order_acquire);
  return (uint8_t *)to;
}

/* A table that is being changed is copied once more. */
static int take_hot(const crl_stats *stats, corral_stats *s) {
  for (int i = 0; i < TRIES && !crl_snapshot_date_hot(s, crl_env_now_ms()); i++) {
    crl_snapshot_drop_hot(s);
    if (i == TRIES - 1) break;
    if ((s->parts[CRL_PART_HOT] = copy_part(stats, CRL_PART_HOT)) == NULL) return 0;
  }
  return 1;
}

static int take_parts(const crl_stats *stats, corral_stats *s) {
  for (int i = 0; i < CRL_PARTS; i++)
    if ((s->parts[i] = copy_part(stats, (crl_part_id)i)) == NULL) return 0;
  return take_hot(stats, s);
}

int crl_snapshot_take(const crl_stats *stats, int used, corral_stats **ret) {
  corral_stats *s = crl_alloc(sizeof *s);
  if (s == NULL || (used && !take_parts(stats, s))) {
    corral_stats_free(s);
    return CORRAL_ENOMEM;
  }
  for (size_t i = 0; i < CRL_COUNTERS; i++) s->counters[i] = crl_stats_counted(stats, i);
  s->counters[CRL_COUNTER_RESULT + CORRAL_RESULT_NEAR] =
      s->counters[CRL_COUNTER_EVENT + (size_t)CORRAL_EVENT_NEAR];
  for (int i = 0; i < CORRAL_TIME_COUNT; i++) crl_stats_times(stats, (corral_time)i, &s->times[i]);
  for (int i = 0; i < CORRAL_GAUGE_COUNT; i++)
    s->gauges[i] = atomic_load_explicit(&stats->block->gauges[i], memory_order_relaxed);
  for (int i = 0; used && i < CRL_NUMBERS; i++)
    s->numbers[i] = atomic_load_explicit(&stats->block->numbers[i], memory_order_relaxed);
  if (used) memcpy(s->texts, stats->block->texts, sizeof s->texts);
  if (!used) s->numbers[CRL_NUMBER_USER] = UINT64_MAX;
  *ret = s;
  return CORRAL_OK;
}

/* ---- of a file ----------------------------------------------------------------------------- */

static uint64_t word_at(const uint8_t *bytes, uint64_t at) {
  uint64_t word;
  memcpy(&word, bytes + at, sizeof word);
  return word;
}

static int is_within(const crl_row *row, uint64_t bytes, size_t size) {
  return row->offset + bytes <= size;
}

static void read_counter(corral_stats *s, size_t i, const crl_row *row, const uint8_t *bytes,
                         size_t size) {
  if (row->count == 0 || row->count > SHARDS_MOST || row->stride > COUNT_MOST ||
      !is_within(row, (uint64_t)row->stride * (row->count - 1) + sizeof(uint64_t), size))
    return;
  for (uint32_t k = 0; k < row->count; k++)
    s->counters[i] += word_at(bytes, row->offset + (uint64_t)row->stride * k);
}

static void read_times(corral_histogram *times, const crl_row *row, const uint8_t *bytes,
                       size_t size) {
  uint64_t at = (uint64_t)row->offset + offsetof(crl_histogram, buckets);
  if (row->count != CORRAL_HISTOGRAM_BUCKETS || !is_within(row, sizeof(crl_histogram), size))
    return;
  times->sum_us = word_at(bytes, row->offset + offsetof(crl_histogram, sum_us));
  times->max_us = word_at(bytes, row->offset + offsetof(crl_histogram, max_us));
  times->count = 0;
  for (size_t i = 0; i < CORRAL_HISTOGRAM_BUCKETS; i++)
    times->count += times->buckets[i] = word_at(bytes, at + i * sizeof(uint64_t));
}

static void read_text(char *text, const crl_row *row, const uint8_t *bytes, size_t size) {
  uint32_t len = row->count < CRL_TEXT_SIZE ? row->count : CRL_TEXT_SIZE - 1;
  if (!is_within(row, len, size)) return;
  memcpy(text, bytes + row->offset, len);
  text[len] = '\0';
}

/* A part of another layout is left out. 0 without memory. */
static int read_part(corral_stats *s, crl_part_id part, const crl_row *row, const uint8_t *bytes,
                     size_t size) {
  size_t known;
  const crl_row *own = &crl_layout()->rows[PARTS + (size_t)part];
  (void)crl_layout_part(part, &known);
  if (row->stride != own->stride || row->count != own->count || !is_within(row, known, size))
    return 1;
  if ((s->parts[part] = crl_alloc(known)) == NULL) return 0;
  memcpy(s->parts[part], bytes + row->offset, known);
  return 1;
}

static int is_same_row(const crl_row *a, const crl_row *b) {
  return a->kind == b->kind && strcmp(a->name, b->name) == 0;
}

/* The number of this library's row of that name; CRL_ROWS: it has none. Most rows stand where they
 * stand here. */
static size_t find_row(const crl_row *row, size_t guess) {
  const crl_row *own = crl_layout()->rows;
  if (guess < CRL_ROWS && is_same_row(row, &own[guess])) return guess;
  size_t i = 0;
  while (i < CRL_ROWS && !is_same_row(row, &own[i])) i++;
  return i;
}

/* A name counts once. 0 without memory. */
static int read_row(corral_stats *s, const crl_row *row, size_t guess, const uint8_t *bytes,
                    size_t size) {
  size_t i = find_row(row, guess);
  if (i == CRL_ROWS || s->has_row[i]) return 1;
  s->has_row[i] = 1;
  if (i < TIMES)
    read_counter(s, i, row, bytes, size);
  else if (i < GAUGES)
    read_times(&s->times[i - TIMES], row, bytes, size);
  else if (i >= PARTS)
    return read_part(s, (crl_part_id)(i - PARTS), row, bytes, size);
  else if (i >= TEXTS)
    read_text(s->texts[i - TEXTS], row, bytes, size);
  else if (!is_within(row, sizeof(uint64_t), size))
    return 1;
  else if (i >= NUMBERS)
    s->numbers[i - NUMBERS] = word_at(bytes, row->offset);
  else
    s->gauges[i - GAUGES] = (int64_t)word_at(bytes, row->offset);
  return 1;
}

static int is_whole(const crl_preamble *p, size_t size) {
  const crl_preamble *own = &crl_layout()->preamble;
  return memcmp(p->magic, own->magic, sizeof p->magic) == 0 && p->format == own->format &&
         p->size == size && p->row_size >= sizeof(crl_row) && p->row_size <= COUNT_MOST &&
         p->row_count <= ROWS_MOST && p->rows_at + (uint64_t)p->row_size * p->row_count <= size;
}

/* Names of events that aren't this library's. 0 without memory. */
static int note_event(corral_stats *s, const crl_row *row, size_t most) {
  static const char group[] = "event.";
  if (strncmp(row->name, group, sizeof group - 1) != 0) return 1;
  if (s->events == NULL && (s->events = crl_alloc(most * sizeof *s->events)) == NULL) return 0;
  memcpy(s->events[s->event_count++], row->name + sizeof group - 1,
         sizeof(crl_event_label) - (sizeof group - 1));
  return 1;
}

static int read_rows(corral_stats *s, const crl_preamble *p, const uint8_t *bytes, size_t size) {
  const crl_stats_head *own = crl_layout();
  size_t rows = sizeof own->rows;
  int is_own = p->row_size == sizeof(crl_row) && p->row_count == CRL_ROWS &&
               memcmp(bytes + p->rows_at, own->rows, rows) == 0;
  for (uint32_t i = 0; i < p->row_count; i++) {
    crl_row row;
    memcpy(&row, bytes + p->rows_at + (uint64_t)p->row_size * i, sizeof row);
    row.name[CRL_ROW_NAME - 1] = '\0';
    if (!read_row(s, &row, i, bytes, size)) return 0;
    if (!is_own && !note_event(s, &row, p->row_count)) return 0;
  }
  return 1;
}

int crl_snapshot_parse(const uint8_t *bytes, size_t size, corral_stats **ret) {
  crl_preamble p;
  if (size < sizeof p) return CORRAL_EFOREIGN;
  memcpy(&p, bytes, sizeof p);
  if (!is_whole(&p, size)) return CORRAL_EFOREIGN;
  corral_stats *s = crl_alloc(sizeof *s);
  if (s == NULL || !read_rows(s, &p, bytes, size)) {
    corral_stats_free(s);
    return CORRAL_ENOMEM;
  }
  *ret = s;
  return CORRAL_OK;
}

void crl_snapshot_end(corral_stats *stats) {
  stats->numbers[CRL_NUMBER_PID] = 0;
  memset(stats->gauges, 0, sizeof stats->gauges);
  free(stats->parts[CRL_PART_FLIGHTS]);
  stats->parts[CRL_PART_FLIGHTS] = NULL;
}

const void *crl_snapshot_part(const corral_stats *stats, crl_part_id part, size_t *ret_size) {
  (void)crl_layout_part(part, ret_size);
  return stats->parts[part];
}

int crl_snapshot_event(const corral_stats *stats, size_t number, const char **ret_name) {
  if (stats->events == NULL) {
    *ret_name = corral_event_name((corral_event)number);
    return number < CORRAL_EVENT_COUNT ? (int)number : -1;
  }
  *ret_name = number < stats->event_count ? stats->events[number] : "?";
  for (int i = 0; i < CORRAL_EVENT_COUNT; i++)
    if (strcmp(*ret_name, corral_event_name((corral_event)i)) == 0) return i;
  return -1;
}

/* ---- flights ------------------------------------------------------------------------------- */

static int by_age(const void *a, const void *b) {
  const corral_flight *x = a, *y = b;
  return x->since_ms < y->since_ms ? 1 : x->since_ms > y->since_ms ? -1 : 0;
}

const corral_flight *crl_snapshot_flights(const corral_stats *stats, corral_flight own[CRL_FLIGHTS],
                                          size_t *ret_count) {
  const crl_flights *table = (const crl_flights *)(void *)stats->parts[CRL_PART_FLIGHTS];
  *ret_count = stats->flight_count;
  if (table == NULL) return stats->flights;
  *ret_count = crl_flights_read(table, corral_stats_pid(stats), own);
  qsort(own, *ret_count, sizeof *own, by_age);
  return own;
}

uint64_t corral_stats_flights_more(const corral_stats *stats) {
  const crl_flights *table = (const crl_flights *)(void *)stats->parts[CRL_PART_FLIGHTS];
  return table == NULL ? stats->flights_more : crl_flights_unlisted(table);
}

static int add_flights(corral_stats *sum, const corral_stats *more) {
  corral_flight own[CRL_FLIGHTS], *all = sum->flights;
  size_t count;
  const corral_flight *added = crl_snapshot_flights(more, own, &count);
  sum->flights_more += corral_stats_flights_more(more);
  if (count == 0) return CORRAL_OK;
  all = crl_alloc_more(all, (sum->flight_count + count) * sizeof *all);
  if (all == NULL) return CORRAL_ENOMEM;
  memcpy(all + sum->flight_count, added, count * sizeof *all);
  sum->flights = all;
  sum->flight_count += count;
  qsort(all, sum->flight_count, sizeof *all, by_age);
  return CORRAL_OK;
}

/* ---- sums ---------------------------------------------------------------------------------- */

/* Texts and numbers that aren't the same in all that was added are none. */
static void unite(corral_stats *sum, const corral_stats *more) {
  for (int i = 0; i < CRL_TEXTS; i++)
    if (!sum->has_any)
      memcpy(sum->texts[i], more->texts[i], CRL_TEXT_SIZE);
    else if (strcmp(sum->texts[i], more->texts[i]) != 0)
      sum->texts[i][0] = '\0';
  for (int i = 0; i < CRL_NUMBERS; i++)
    if (!sum->has_any)
      sum->numbers[i] = more->numbers[i];
    else if (sum->numbers[i] != more->numbers[i])
      sum->numbers[i] = i == CRL_NUMBER_USER ? UINT64_MAX : 0;
  sum->has_any = 1;
}

int corral_stats_add(corral_stats *sum, const corral_stats *more) {
  if (more->is_sum && !more->has_any) return CORRAL_OK;
  for (size_t i = 0; i < CRL_COUNTERS; i++) sum->counters[i] += more->counters[i];
  for (size_t i = 0; i < CORRAL_TIME_COUNT; i++)
    corral_histogram_add(&sum->times[i], &more->times[i]);
  for (int i = 0; i < CORRAL_GAUGE_COUNT; i++)
    if (i != CORRAL_GAUGE_WAKE && i != CORRAL_GAUGE_CONTROL)
      sum->gauges[i] += more->gauges[i];
    else if (more->gauges[i] > sum->gauges[i])
      sum->gauges[i] = more->gauges[i];
  unite(sum, more);
  int of_flights = add_flights(sum, more), of_hot = crl_snapshot_add_hot(sum, more);
  return of_flights != CORRAL_OK ? of_flights : of_hot;
}

/* ---- what a snapshot has ------------------------------------------------------------------- */

uint64_t corral_stats_events(const corral_stats *stats, corral_event event) {
  return (unsigned)event < CORRAL_EVENT_COUNT ? stats->counters[CRL_COUNTER_EVENT + (size_t)event]
                                              : 0;
}

uint64_t corral_stats_results(const corral_stats *stats, corral_result result) {
  return (unsigned)result < CORRAL_RESULT_COUNT
             ? stats->counters[CRL_COUNTER_RESULT + (size_t)result]
             : 0;
}

uint64_t corral_stats_saved(const corral_stats *stats) {
  return stats->counters[CRL_COUNTER_SAVED];
}

int64_t corral_stats_gauge(const corral_stats *stats, corral_gauge gauge) {
  return (unsigned)gauge < CORRAL_GAUGE_COUNT ? stats->gauges[gauge] : 0;
}

void corral_stats_times(const corral_stats *stats, corral_time time, corral_histogram *ret) {
  *ret = (unsigned)time < CORRAL_TIME_COUNT ? stats->times[time] : (corral_histogram){.count = 0};
}

const char *corral_stats_cache(const corral_stats *stats) { return stats->texts[CRL_TEXT_CACHE]; }

const char *corral_stats_store(const corral_stats *stats) { return stats->texts[CRL_TEXT_STORE]; }

const char *corral_stats_program(const corral_stats *stats) {
  return stats->texts[CRL_TEXT_PROGRAM];
}

const char *corral_stats_version(const corral_stats *stats) {
  return stats->texts[CRL_TEXT_VERSION];
}

static int64_t number_of(const corral_stats *stats, crl_number number) {
  return (int64_t)stats->numbers[number];
}

int64_t corral_stats_pid(const corral_stats *stats) { return number_of(stats, CRL_NUMBER_PID); }

int64_t corral_stats_uid(const corral_stats *stats) {
  return stats->is_sum && !stats->has_any ? -1 : number_of(stats, CRL_NUMBER_USER);
}

int64_t corral_stats_started(const corral_stats *stats) {
  return number_of(stats, CRL_NUMBER_STARTED);
}

uint64_t corral_stats_id(const corral_stats *stats) { return stats->numbers[CRL_NUMBER_ID]; }
