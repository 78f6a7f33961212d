/* flights_kit.h: counts the flights, and so the threads of the library, that calls need. The test
 * is linked with --wrap=crl_scheduler_fly. */
#ifndef FLIGHTS_KIT_H
#define FLIGHTS_KIT_H

#include <stdatomic.h>

#include "driver/async.h"

static atomic_int flights;

int __real_crl_scheduler_fly(crl_scheduler *scheduler, crl_run *r, corral_cancel_token *token);
int __wrap_crl_scheduler_fly(crl_scheduler *scheduler, crl_run *r, corral_cancel_token *token);
int __wrap_crl_scheduler_fly(crl_scheduler *scheduler, crl_run *r, corral_cancel_token *token) {
  atomic_fetch_add(&flights, 1);
  return __real_crl_scheduler_fly(scheduler, r, token);
}

#endif
