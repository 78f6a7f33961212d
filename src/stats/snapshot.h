/* snapshot.h: a snapshot of what was counted: of a corral of this process, or of the bytes of a
 * stats file, of which nothing is taken for granted. */
#ifndef CRL_SNAPSHOT_H
#define CRL_SNAPSHOT_H

#include "stats/flights.h"

typedef char crl_event_label[CRL_ROW_NAME];

struct corral_stats {
  uint64_t counters[CRL_COUNTERS]; /* near hits also as a result */
  corral_histogram times[CORRAL_TIME_COUNT];
  int64_t gauges[CORRAL_GAUGE_COUNT];
  uint64_t numbers[CRL_NUMBERS];
  char texts[CRL_TEXTS][CRL_TEXT_SIZE];
  uint8_t *parts[CRL_PARTS]; /* NULL: none, or of another layout than this library's */
  uint8_t has_row[CRL_ROWS]; /* of a file: its rows that were read */
  /* names of events by their numbers in the process that has the file; NULL: this library's */
  crl_event_label *events;
  size_t event_count;
  int is_sum, has_any; /* a sum: something was added */
  /* of a sum, the longest first; and how many had no row */
  corral_flight *flights;
  size_t flight_count;
  uint64_t flights_more;
};

/* A snapshot of a corral of this process. `used`: it was used, before this call. CORRAL_ENOMEM. */
int crl_snapshot_take(const crl_stats *stats, int used, corral_stats **ret);
/* A snapshot of a file's bytes. CORRAL_EFOREIGN: they are no whole stats file. CORRAL_ENOMEM. */
int crl_snapshot_parse(const uint8_t *bytes, size_t size, corral_stats **ret);
/* Its process has ended: it has neither a pid, nor gauges, nor flights. */
void crl_snapshot_end(corral_stats *stats);
/* The flights of a snapshot, in `own`, or of a sum; and how many. The longest is first. */
const corral_flight *crl_snapshot_flights(const corral_stats *stats, corral_flight own[CRL_FLIGHTS],
                                          size_t *ret_count);
/* The bytes of a part, and their number; NULL: it has none. */
const void *crl_snapshot_part(const corral_stats *stats, crl_part_id part, size_t *ret_size);
/* hot_keys.c: brings the hot keys up to `now` (crl_env_now_ms). 0: they were being changed when
 * they were read. */
int crl_snapshot_date_hot(corral_stats *stats, int64_t now);
void crl_snapshot_drop_hot(corral_stats *stats);
/* Adds those of a snapshot to a sum. CORRAL_ENOMEM. */
int crl_snapshot_add_hot(corral_stats *sum, const corral_stats *more);
/* The event that has this number in the process that has the file, and its name there; -1: this
 * library doesn't know it. */
int crl_snapshot_event(const corral_stats *stats, size_t number, const char **ret_name);

#endif
