/* absence.c: since when a server has been of no use. */
#include "store/absence.h"

int64_t crl_absence_note(crl_absence *absence, int64_t now, int64_t pause_ms) {
  int64_t last = atomic_exchange(&absence->last, now), since = atomic_load(&absence->since);
  if (since != 0 && now - last <= pause_ms) return now - since;
  if (atomic_compare_exchange_strong(&absence->since, &since, now)) return 0;
  return since != 0 ? now - since : 0;
}
