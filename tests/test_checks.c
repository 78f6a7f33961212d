/* test_checks.c: a broken invariant ends the process with its text (base/check.h). Each is broken
 * in a child, through what the caller owns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "election/limiter.h"
#include "flight/flight.h"
#include "herd/herd.h"
#include "os/env.h"
#include "os/notifier.h"
#include "os/timers.h"
#include "outbox/outbox.h"
#include "store/renewer.h"
#include "store/watch.h"
#include "support/breaks_kit.h"

/* ---- limiter ------------------------------------------------------------------------------- */

static void break_the_limiter(int which) {
  crl_limiter *limiter = crl_limiter_new(1, 0, 0);
  static crl_place places[4];
  crl_waiter waiter = {0};
  for (int i = 0; i < 4; i++)
    crl_limiter_ask(limiter, &places[i], CRL_RANK_COLD, CRL_PLACE_COMPUTE, &waiter);
  switch (which) {
    case 0: places[2].link = &places[3].next; break;
    case 1: places[2].state = CRL_PLACE_NONE; break;
    case 2: places[2].rank = CRL_RANK_WARM; break;
    case 3: places[2].arrival = 99; break;
    case 4: places[3].next = &places[3]; break;
    default: places[1] = (crl_place){.needs = CRL_PLACE_COMPUTE, .state = CRL_PLACE_TAKEN};
  }
  if (which == 5) { /* a place that was never taken is given back: twice as many leave as entered */
    crl_limiter *empty = crl_limiter_new(1, 0, 0);
    crl_limiter_leave(empty, &places[1]);
  }
  crl_limiter_inside(limiter);
}

static void of_the_limiter(void **state) {
  (void)state;
  breaks(break_the_limiter, 0, "a place knows the link to it");
  breaks(break_the_limiter, 1, "a place in a queue is queued");
  breaks(break_the_limiter, 2, "a place is in its own queue");
  breaks(break_the_limiter, 3, "a queue is in the order of arrival");
  breaks(break_the_limiter, 4, "limiter: ");
  breaks(break_the_limiter, 5, "no more computes at once than `most`");
}

/* ---- timers -------------------------------------------------------------------------------- */

static int64_t ring(crl_timer *timer) { return (void)timer, INT64_MAX; }

static void break_the_timers(int which) {
  static crl_timer bells[3];
  crl_timers *timers = crl_timers_new();
  for (int i = 0; i < 3; i++) {
    bells[i].ring = ring;
    crl_timers_set(timers, &bells[i], crl_env_now_ms() + 3600000 + i);
  }
  switch (which) {
    case 0: bells[2].node.link = &bells[2].node.next; break;
    case 1: bells[2].node.at = 1; break;
    default: bells[0].ring = NULL;
  }
  crl_timers_clear(timers, &bells[1]);
}

static void of_the_timers(void **state) {
  (void)state;
  breaks(break_the_timers, 0, "heap: a node knows the link to it");
  breaks(break_the_timers, 1, "heap: no node is earlier than its parent");
  breaks(break_the_timers, 2, "a timer can ring");
}

/* ---- outbox -------------------------------------------------------------------------------- */

static void keep(void *owner) { (void)owner; }

static void break_the_outbox(int which) {
  (void)which;
  crl_outbox *outbox = crl_outbox_new(1 << 20, 60000);
  crl_bytes *bytes = crl_bytes_wrap((const uint8_t *)"record", 6, keep, NULL);
  crl_outbox_fill fill = {.record = bytes, .hard_ttl = 60000};
  crl_outbox_keep(outbox, "k", 1, &fill);
  bytes->size++;
  crl_outbox_count(outbox);
}

static void of_the_outbox(void **state) {
  (void)state;
  breaks(break_the_outbox, 0, "it knows the weight of its nodes");
}

/* ---- herd ---------------------------------------------------------------------------------- */

static void break_the_herd(int which) {
  (void)which;
  uint64_t tick;
  crl_entry *entry = NULL;
  static crl_listener listener;
  crl_waiter waiter = {0};
  crl_name name = {.key = "k", .key_len = 1};
  crl_herd *herd = crl_herd_new();
  crl_entrance entrance = {.name = &name, .hash = crl_name_hash(&name)};
  assert_int_equal(crl_herd_enter(herd, &entrance, &entry, &tick), CRL_ENTER_LEADS);
  crl_herd_listen(entry, &listener, &waiter, 0);
  listener.link = &listener.next;
  crl_herd_detach(entry);
}

static void of_the_herd(void **state) {
  (void)state;
  breaks(break_the_herd, 0, "a listener knows the link to it");
}

/* ---- flight -------------------------------------------------------------------------------- */

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

static void of_the_flight(void **state) {
  (void)state;
  breaks(break_the_flight, 0, "an ask is outstanding");
  breaks(break_the_flight, 1, "only a lease is settled");
  breaks(break_the_flight, 2, "only a lease is released");
  breaks(break_the_flight, 3, "who computes has the lease, or does without");
  breaks(break_the_flight, 4, "a lost claim is released at once");
  breaks(break_the_flight, 5, "it ends answered, and with nothing in its hands");
}

/* ---- watch --------------------------------------------------------------------------------- */

static void break_the_watch(int which) {
  static const corral_store plugin;
  static crl_watcher watchers[3];
  crl_waiter waiter = {0};
  crl_watch_options options = {.plugin = &plugin};
  crl_watch *watch = crl_watch_new(&options);
  for (int i = 0; i < 3; i++) crl_watch_join(watch, &watchers[i], 7, &waiter);
  switch (which) {
    case 0: watchers[1].node.link = &watchers[1].node.next; break;
    case 1: watchers[1].node.hash = UINT64_C(8) << 32; break;
    default: watchers[1].stands = 1;
  }
  crl_watch_leave(watch, &watchers[0]);
}

static void of_the_watch(void **state) {
  (void)state;
  breaks(break_the_watch, 0, "table: a node knows the link to it");
  breaks(break_the_watch, 1, "table: a node is in the bucket of its hash");
  breaks(break_the_watch, 2, "only a registered key stands");
}

/* ---- renewer ------------------------------------------------------------------------------- */

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

static void of_the_renewer(void **state) {
  (void)state;
  breaks(break_the_renewer, 0, "nothing is due of a lease that is attended to");
  breaks(break_the_renewer, 1, "a lease has a length");
  breaks(break_the_renewer, 2, "among the locks are locks only");
}

/* ---- notifier ------------------------------------------------------------------------------ */

static void tell_without_end(crl_notice *notice) {
  (void)notice;
  for (;;) pause();
}

static void break_the_notifier(int which) {
  static crl_notice notices[4];
  crl_notifier *notifier = crl_notifier_new(crl_workers_new());
  for (int i = 0; i < 3; i++) {
    notices[i].tell = tell_without_end;
    crl_notifier_post(notifier, &notices[i], 9);
  }
  if (which == 0)
    notices[2].link = &notices[2].next;
  else
    notices[2].queued = 0;
  crl_notifier_post(notifier, &notices[3], 9);
}

static void of_the_notifier(void **state) {
  (void)state;
  breaks(break_the_notifier, 0, "a notice knows the link to it");
  breaks(break_the_notifier, 1, "a notice in the queue is queued");
}

int main(void) {
#ifndef CORRAL_CHECKS
  printf("SKIPPED: built without CORRAL_CHECKS\n");
  return 77;
#endif
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_the_limiter), cmocka_unit_test(of_the_timers),
      cmocka_unit_test(of_the_outbox),  cmocka_unit_test(of_the_herd),
      cmocka_unit_test(of_the_flight),  cmocka_unit_test(of_the_watch),
      cmocka_unit_test(of_the_renewer), cmocka_unit_test(of_the_notifier),
  };
  return cmocka_run_group_tests_name("checks", tests, NULL, NULL);
}
