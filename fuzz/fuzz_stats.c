/* fuzz_stats.c: the bytes of a stats file, with anything in its head, its flights and its log. */
#include "fuzz.h"

#include "stats/flights.h"
#include "stats/ring.h"
#include "stats/snapshot.h"

enum { PATCH_MOST = 64 };

/* A whole file with two flights and three events. */
static void make(crl_stats_block *block) {
  static crl_listing listings[2];
  crl_flights *flights = (crl_flights *)(void *)block->parts.FLIGHTS;
  crl_ring *ring = (crl_ring *)(void *)block->parts.RING;
  memset(block, 0, sizeof *block);
  block->head = *crl_layout();
  for (int i = 0; i < 2; i++)
    crl_flights_list(flights, &listings[i], CORRAL_FLIGHT_COMPUTE,
                     &(crl_flight_about){.key = "key", .key_len = 3});
  for (int i = 0; i < 3; i++)
    crl_ring_write(ring, &(corral_event_info){.size = sizeof(corral_event_info),
                                              .event = CORRAL_EVENT_FILL,
                                              .key = "key",
                                              .key_len = 3,
                                              .detail = "detail"});
}

/* Writes the input's pieces over parts of the file: a byte for the part, an offset, a length. */
static void patch(crl_stats_block *block, fuzz_input *in) {
  const size_t parts[][2] = {
      {0, sizeof block->head},
      {offsetof(crl_stats_block, parts.FLIGHTS), sizeof block->parts.FLIGHTS},
      {offsetof(crl_stats_block, parts.RING), sizeof block->parts.RING},
      {0, sizeof *block}};
  while (in->left > 0) {
    const size_t *part = parts[fuzz_byte(in) % 4];
    size_t at = fuzz_number(in, 3) % part[1], len = fuzz_byte(in) % PATCH_MOST;
    for (size_t i = 0; i < len && at + i < part[1]; i++)
      ((uint8_t *)block)[part[0] + at + i] = fuzz_byte(in);
  }
}

/* Gives a row the right sum, so that its body counts. */
static void seal(_Atomic uint64_t *row, size_t count) {
  uint64_t body[CRL_SEALED_MOST];
  for (size_t i = 0; i < count; i++) body[i] = row[CRL_SEALED_HEAD + i];
  crl_sealed_write(row, row[0], body, count);
}

static void seal_all(crl_stats_block *block) {
  crl_flights *flights = (crl_flights *)(void *)block->parts.FLIGHTS;
  crl_ring *ring = (crl_ring *)(void *)block->parts.RING;
  for (size_t i = 0; i < CRL_FLIGHTS; i++) seal(flights->rows[i].words, CRL_FLIGHT_BODY);
  for (size_t i = 0; i < CRL_RING; i++) seal(ring->rows[i].words, CRL_RING_BODY);
}

/* ---- what is told -------------------------------------------------------------------------- */

static int tell_flight(const corral_flight *f, void *arg) {
  MUST(f->key_kept <= CORRAL_STATS_KEY && f->key_kept <= f->key_len);
  MUST((unsigned)f->state < CORRAL_FLIGHT_COUNT && f->since_ms >= 0 && f->expected_ms >= 0);
  MUST(f->waiters >= 0 && f->key[CORRAL_STATS_KEY] == '\0');
  ++*(size_t *)arg;
  return 0;
}

static int tell_event(const corral_logged *e, void *arg) {
  uint64_t *last = arg;
  MUST(e->number > *last && e->name != NULL && strlen(e->name) < CRL_ROW_NAME);
  MUST(e->event >= -1 && e->event < CORRAL_EVENT_COUNT);
  MUST(e->key_kept <= CORRAL_STATS_KEY && e->key_kept <= e->key_len);
  MUST(e->detail == NULL || strlen(e->detail) <= CRL_RING_TEXT);
  *last = e->number;
  return 0;
}

static void look(const corral_stats *stats) {
  size_t flights = 0;
  uint64_t last = 0;
  static corral_histogram times;
  MUST(corral_stats_flights(stats, tell_flight, &flights) == flights && flights <= CRL_FLIGHTS);
  MUST(corral_stats_log(stats, 0, tell_event, &last) <= CRL_RING);
  MUST(strlen(corral_stats_cache(stats)) < CRL_TEXT_SIZE);
  MUST(strlen(corral_stats_program(stats)) < CRL_TEXT_SIZE);
  for (int i = 0; i < CORRAL_TIME_COUNT; i++) {
    corral_stats_times(stats, (corral_time)i, &times);
    (void)corral_histogram_quantile(&times, 0.5);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  corral_stats *stats = NULL, *sum = corral_stats_new();
  crl_stats_block *block = aligned_alloc(CRL_STATS_LINE, sizeof *block);
  if (block == NULL || sum == NULL) abort();
  make(block);
  int seals = fuzz_byte(&in) % 2;
  patch(block, &in);
  if (seals) seal_all(block);
  if (crl_snapshot_parse((const uint8_t *)block, sizeof *block, &stats) == CORRAL_OK) {
    look(stats);
    MUST(corral_stats_add(sum, stats) == CORRAL_OK);
    look(sum);
  }
  corral_stats_free(stats);
  corral_stats_free(sum);
  free(block);
  return 0;
}
