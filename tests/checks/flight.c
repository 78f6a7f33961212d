/* flight.c: broken invariants of a flight. */
#include "flight/flight.h"
#include "checks/checks.h"

static void break_the_flight(int which) {
  static const corral_policy policy = {.size = sizeof policy};
  static const crl_flight_plan plan = {.deadline = 1000, .can_compute = 1};
  crl_flight flight;
  crl_told told = {.now = 1, .status = CORRAL_OK};
  crl_flight_start(&flight, &policy, &plan);
  switch (which) {
    case 0: flight.ask = 77; break;
    case 1: flight.ask = CRL_ASK_SETTLE; break;
    case 2: flight.ask = CRL_ASK_RELEASE; break;
    case 3: flight.ask = CRL_ASK_COMPUTE; break;
    case 4: flight.unsure = 1; break;
    default: flight.ask = CRL_ASK_DONE;
  }
  crl_flight_step(&flight, &told);
}

void of_the_flight(void **state) {
  (void)state;
  breaks(break_the_flight, 0, "flight: an ask is outstanding");
  breaks(break_the_flight, 1, "flight: only a lease is settled");
  breaks(break_the_flight, 2, "flight: only a lease is released");
  breaks(break_the_flight, 3, "flight: who computes has the lease, or does without");
  breaks(break_the_flight, 4, "flight: a lost claim is released at once");
  breaks(break_the_flight, 5, "flight: it ends answered, and with nothing in its hands");
}
