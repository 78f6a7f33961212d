/* told.c: the flights and the events that a snapshot has. */
#include <stdlib.h>
#include <string.h>

#include "base/value.h"
#include "stats/flights.h"
#include "stats/ring.h"
#include "stats/snapshot.h"

/* ---- flights ------------------------------------------------------------------------------- */

static const struct {
  const char *name, *text;
} states[] = {
#define ROW(id, name, text) {name, text},
    CORRAL_FLIGHT_MAP(ROW)
#undef ROW
};

const char *corral_flight_name(corral_flight_state state) {
  return (unsigned)state < CORRAL_FLIGHT_COUNT ? states[state].name : "?";
}

const char *corral_flight_text(corral_flight_state state) {
  return (unsigned)state < CORRAL_FLIGHT_COUNT ? states[state].text : "?";
}

static int by_age(const void *a, const void *b) {
  const corral_flight *x = a, *y = b;
  return x->since_ms < y->since_ms ? 1 : x->since_ms > y->since_ms ? -1 : 0;
}

size_t corral_stats_flights(const corral_stats *stats, corral_flight_fn *tell, void *arg) {
  corral_flight own[CRL_FLIGHTS];
  const crl_flights *table = crl_snapshot_part(stats, CRL_PART_FLIGHTS, &(size_t){0});
  size_t count = table == NULL ? 0 : crl_flights_read(table, corral_stats_pid(stats), own);
  size_t told = 0;
  qsort(own, count, sizeof own[0], by_age);
  while (told < count && tell(&own[told++], arg) == 0) {
  }
  return told;
}

uint64_t corral_stats_flights_more(const corral_stats *stats) {
  const crl_flights *table = crl_snapshot_part(stats, CRL_PART_FLIGHTS, &(size_t){0});
  return table == NULL ? 0 : crl_flights_unlisted(table);
}

/* ---- the log ------------------------------------------------------------------------------- */

size_t corral_stats_log(const corral_stats *stats, uint64_t after, corral_logged_fn *tell,
                        void *arg) {
  crl_ring_event event;
  const crl_ring *ring = crl_snapshot_part(stats, CRL_PART_RING, &(size_t){0});
  size_t told = 0;
  while (ring != NULL && crl_ring_next(ring, &after, &event)) {
    corral_logged *logged = &event.logged;
    logged->event = crl_snapshot_event(stats, (size_t)logged->event, &logged->name);
    told++;
    if (tell(logged, arg) != 0) break;
  }
  return told;
}
