/* scripted_pool.h: a pool with one handle on a client's store, for tests against scripted servers.
 * It never rests, and no server counts as away. */
#ifndef SCRIPTED_POOL_H
#define SCRIPTED_POOL_H

#include <signal.h>

#include "client_kit.h"
#include "store/pool.h"

static inline crl_pool *scripted_pool(const client *c, int64_t op_ms) {
  static crl_events no_events;
  crl_pool_options options = {.plugin = c->plugin,
                              .store = c->store,
                              .info = c->info,
                              .probe_key = "probe",
                              .op_ms = op_ms,
                              .handles = 1,
                              .breaker_failures = 10,
                              .breaker_rest_ms = 60000,
                              .away_ms = 60000,
                              .events = &no_events};
  crl_pool *pool = crl_pool_new(&options);
  assert_non_null(pool);
  return pool;
}

/* A fixture: the default action of SIGPIPE would end a program that writes to a closed socket. */
static inline int default_signals(void **state) {
  (void)state;
  signal(SIGPIPE, SIG_DFL);
  return 0;
}

#endif
