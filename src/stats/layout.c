/* layout.c: the head of a stats file, made from the tables. */
#include "stats/layout.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static crl_stats_head head;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void row(const char *group, const char *name, crl_row_kind kind, size_t offset,
                size_t stride, size_t count) {
  crl_row *r = &head.rows[head.preamble.row_count++];
  snprintf(r->name, sizeof r->name, "%s.%s", group, name);
  r->kind = kind;
  r->offset = (uint32_t)offset;
  r->stride = (uint32_t)stride;
  r->count = (uint32_t)count;
}

static void counter(const char *group, const char *name, size_t number) {
  row(group, name, CRL_ROW_COUNTER,
      offsetof(crl_stats_block, shards) + number * sizeof(_Atomic uint64_t),
      sizeof(crl_stats_shard), CRL_STATS_SHARDS + 1);
}

static void result(corral_result number) {
  size_t counts = number == CORRAL_RESULT_NEAR ? CRL_COUNTER_EVENT + (size_t)CORRAL_EVENT_NEAR
                                               : CRL_COUNTER_RESULT + (size_t)number;
  counter("result", corral_result_name(number), counts);
}

static void fill(void) {
#define AT(member, number) offsetof(crl_stats_block, member) + (number) * sizeof(uint64_t)
  counter("saved", "us", CRL_COUNTER_SAVED);
  for (int i = 0; i < CORRAL_RESULT_COUNT; i++) result((corral_result)i);
  for (int i = 0; i < CORRAL_EVENT_COUNT; i++)
    counter("event", corral_event_name((corral_event)i), CRL_COUNTER_EVENT + (size_t)i);
  for (int i = 0; i < CORRAL_TIME_COUNT; i++)
    row("time", corral_time_name((corral_time)i), CRL_ROW_TIMES,
        offsetof(crl_stats_block, times) + (size_t)i * sizeof(crl_histogram), sizeof(uint64_t),
        CORRAL_HISTOGRAM_BUCKETS);
  for (int i = 0; i < CORRAL_GAUGE_COUNT; i++)
    row("gauge", corral_gauge_name((corral_gauge)i), CRL_ROW_GAUGE, AT(gauges, (size_t)i), 8, 1);
#define NUMBER(id, name) row("number", name, CRL_ROW_NUMBER, AT(numbers, CRL_NUMBER_##id), 8, 1);
  CRL_NUMBER_MAP(NUMBER)
#undef NUMBER
#undef AT
#define TEXT(id, name)                                                                             \
  row("text", name, CRL_ROW_TEXT,                                                                  \
      offsetof(crl_stats_block, texts) + CRL_TEXT_##id * (size_t)CRL_TEXT_SIZE, 1, CRL_TEXT_SIZE);
  CRL_TEXT_MAP(TEXT)
#undef TEXT
#define PART(id, name, stride, count)                                                              \
  row("part", name, CRL_ROW_PART, offsetof(crl_stats_block, parts.id), stride, count);
  CRL_PART_MAP(PART)
#undef PART
}

static void make(void) {
  head.preamble = (crl_preamble){.magic = "corral\nS",
                                 .format = CRL_STATS_FORMAT,
                                 .size = sizeof(crl_stats_block),
                                 .rows_at = offsetof(crl_stats_head, rows),
                                 .row_size = sizeof(crl_row)};
  fill();
}

const crl_stats_head *crl_layout(void) {
  pthread_once(&once, make);
  return &head;
}

size_t crl_layout_part(crl_part_id part, size_t *ret_size) {
  const crl_row *r = &crl_layout()->rows[CRL_ROWS - CRL_PARTS + (size_t)part];
  *ret_size = (size_t)r->stride * r->count;
  return r->offset;
}
