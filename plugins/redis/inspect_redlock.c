/* inspect_redlock.c: each server of Redlock, and whether there are enough of them. */
#include "inspect.h"
#include "redlock.h"

int crl_redlock_inspect(void *store, const corral_inquiry *inquiry, corral_error *error) {
  crl_redlock *lock = store;
  size_t reached = 0;
  char value[48];
  for (size_t i = 0; i < lock->count; i++)
    reached += crl_redis_inspect_one(lock->members[i].store, inquiry, CORRAL_FACT_WARNING,
                                     "Start it, or take it out of all URIs.") == CORRAL_OK;
  snprintf(value, sizeof value, "%zu of %zu, %zu needed", reached, lock->count, lock->needed);
  corral_tell(inquiry, lock->name, "servers", value, CORRAL_FACT_UNFIT,
              reached < lock->needed ? "Start the others: no lock is granted." : NULL);
  return reached > 0 ? CORRAL_OK
                     : lock->host->fail(error, CORRAL_EUNAVAILABLE, "%.100s: no server was reached",
                                        lock->name);
}
