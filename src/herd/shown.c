/* shown.c: how many callers wait for a flight, shown to other processes. */
#include "herd/herd.h"
#include "herd/map.h"

/* The last writer shows the last change, since each one looks again after it has written. */
void crl_map_show_waiting(crl_entry *entry) {
  crl_flight_row *row = atomic_load(&entry->shown);
  size_t waiting;
  if (row == NULL || atomic_load(&entry->state) != FLYING) return;
  do {
    waiting = atomic_load(&entry->waiting);
    crl_flights_wait(row, entry->shown_number, waiting);
  } while (atomic_load(&entry->waiting) != waiting);
}

void crl_herd_show(crl_entry *entry, crl_flight_row *row, uint32_t number) {
  entry->shown_number = number;
  atomic_store(&entry->shown, row);
  crl_map_show_waiting(entry);
}

void crl_herd_hide(crl_entry *entry) { atomic_store(&entry->shown, NULL); }
