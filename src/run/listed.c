/* listed.c: a run among the flights of its process, which other processes see (stats/flights.h). */
#include "run/run.h"

static void list(crl_run *r, crl_flights *table, corral_flight_state state) {
  const crl_found *found = &r->found;
  crl_flight_about about = {.key = found->key.user,
                            .key_len = found->key.user_len,
                            .expected_ms = crl_found_recall_cost(found)};
  crl_flights_list(table, &r->listing, state, &about);
  if (r->entry != NULL && r->listing.row != NULL)
    crl_herd_show(r->entry, r->listing.row, r->listing.number);
}

void crl_run_list(crl_run *r, corral_flight_state state) {
  crl_flights *table = crl_flights_of(&r->context->events.stats);
  if (r->listing.table != NULL)
    crl_flights_change(&r->listing, state);
  else if (table != NULL)
    list(r, table, state);
}

void crl_run_unlist(crl_run *r) {
  if (r->entry != NULL && r->listing.row != NULL) crl_herd_hide(r->entry);
  crl_flights_end(&r->listing);
}
