/* renewer.c: broken invariants of a renewer. */
#include "os/env.h"
#include "store/renewer.h"
#include "checks/checks.h"

static void break_the_renewer(int which) {
  static crl_renewed_lease leases[2];
  crl_threads threads = {.timers = crl_timers_new(), .workers = crl_workers_new()};
  crl_renewer *renewer = crl_renewer_new(NULL, NULL, &threads);
  for (int i = 0; i < 2; i++) {
    leases[i] = (crl_renewed_lease){
        .token = (const uint8_t *)"token", .lease_ms = 3600000, .limit = INT64_MAX, .is_lock = 1};
    crl_renewer_hold(renewer, &leases[i], crl_env_now_ms());
  }
  switch (which) {
    case 0: leases[0].busy = 1; break;
    case 1: leases[0].lease_ms = 0; break;
    default: leases[0].is_lock = 0;
  }
  crl_renewer_drop(renewer, &leases[1]);
}

void of_the_renewer(void **state) {
  (void)state;
  breaks(break_the_renewer, 0, "renewer: nothing is due of a lease that is attended to");
  breaks(break_the_renewer, 1, "renewer: a lease has a length");
  breaks(break_the_renewer, 2, "renewer: among the locks are locks only");
}
