/* flights.h: the table of the flights of a process, in memory that other processes read.
 *
 * A flight is listed from the moment when it computes or waits until its end; a hit never is. A
 * full table counts the rest, and nobody waits for a row. A row is written by its flight's thread
 * (sealed.h); the number of calls that wait for it, by each of them. */
#ifndef CRL_FLIGHTS_H
#define CRL_FLIGHTS_H

#include "stats/sealed.h"
#include "stats/stats.h"

enum { CRL_FLIGHTS = 64, CRL_FLIGHT_BODY = 11 /* words */ };

typedef struct crl_flight_row {
  _Atomic uint64_t waiting; /* upper half: of the flight's number; lower half: calls that wait */
  _Atomic uint64_t words[CRL_SEALED_HEAD + CRL_FLIGHT_BODY]; /* number 0: the row is free */
  uint64_t none[2];
} crl_flight_row;

typedef struct crl_flights {
  _Atomic uint64_t taken;    /* a bit for each row */
  _Atomic uint64_t unlisted; /* flights that found no row */
  _Atomic uint64_t last;     /* number of the last flight that took one */
  uint64_t none[13];
  crl_flight_row rows[CRL_FLIGHTS];
} crl_flights;

_Static_assert(sizeof(crl_flight_row) == 128, "rows don't share a line of the cache");
_Static_assert(sizeof(crl_flights) == 128 + 128 * CRL_FLIGHTS, "the head is as long as a row");

/* The fields of a flight that are shown. */
typedef struct crl_flight_about {
  const void *key;
  size_t key_len;
  uint32_t expected_ms; /* 0: unknown */
} crl_flight_about;

/* A flight's place in the table, in its owner's memory; zero: it isn't listed. */
typedef struct crl_listing {
  crl_flights *table;
  crl_flight_row *row; /* NULL: it is counted as one of the rest */
  uint32_t number;
  corral_flight_state state;
} crl_listing;

/* Of a corral; NULL: it has no stats file. */
static inline crl_flights *crl_flights_of(const crl_stats *stats) {
  return stats->times == NULL ? NULL : (crl_flights *)(void *)stats->block->parts.FLIGHTS;
}
void crl_flights_list(crl_flights *table, crl_listing *listing, corral_flight_state state,
                      const crl_flight_about *about);
/* No effect on a flight that isn't listed. */
void crl_flights_change(crl_listing *listing, corral_flight_state state);
void crl_flights_end(crl_listing *listing);
/* Shows how many calls wait for the flight of that number, unless it has left the row. Any
 * thread. */
void crl_flights_wait(crl_flight_row *row, uint32_t number, size_t waiting);
/* Reads the table, or a copy of one, of the process `pid`; what it says is bounded. A row that is
 * just being changed is left out. Returns how many are written to `ret`. */
size_t crl_flights_read(const crl_flights *table, int64_t pid, corral_flight ret[CRL_FLIGHTS]);
/* Flights that found no row. */
uint64_t crl_flights_unlisted(const crl_flights *table);

#endif
