/* told.c: the flights and the events that a snapshot has. */
#include "base/names.h"
#include "stats/ring.h"
#include "stats/snapshot.h"

/* ---- flights ------------------------------------------------------------------------------- */

CRL_NAMES(flight, corral_flight_state, CORRAL_FLIGHT_MAP, CORRAL_FLIGHT_COUNT)

size_t corral_stats_flights(const corral_stats *stats, corral_flight_fn *tell, void *arg) {
  corral_flight own[CRL_FLIGHTS];
  size_t count, told = 0;
  const corral_flight *flights = crl_snapshot_flights(stats, own, &count);
  while (told < count && tell(&flights[told++], arg) == 0) {
  }
  return told;
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
