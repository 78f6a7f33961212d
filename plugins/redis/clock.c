/* clock.c: the server's clock, as far as a connection knows it.
 *
 * A record says when its life ends, by the server's clock. A look that knows that clock needs no
 * PTTL. Each reply that tells the server's time bounds it: the server read its clock between the
 * moments when the command was sent and when the reply was there. The bounds widen with time, since
 * the rates of two clocks may differ by 1/1000 (twice what NTP slews). The clock of this side is
 * the one that goes on while the host sleeps.
 *
 * Once in RENEW_MS a look brings a TIME, whose reply comes first. So a step of the server's clock
 * misleads no look that is sent later than that. Bounds that are too old, or too wide (the server
 * was slow, or is far away), are no good: then the key's TTL is asked for, as it always is where
 * the user may not ask for the time. */
#include <stdlib.h>

#include "redis.h"

enum { RENEW_MS = 1000, OLD_MS = 2 * RENEW_MS, WIDE_MS = 100, DRIFT_SHARE = 1000 };

/* Both sides tell whole milliseconds, so each may be up to one later than it says. */
void crl_redis_clock_learn(crl_redis_handle *h, int64_t now, int64_t before) {
  if (now <= 0 || now >= (int64_t)(CRL_REDIS_EXACT / 1000)) return; /* not the time of a clock */
  crl_redis_time *time = &h->time;
  time->at = h->store->host->boot_ms();
  time->asked = h->now;
  time->least = now - time->at - 1;
  time->most = now + 2 - before;
  time->known = 1;
}

int crl_redis_clock_fits(const crl_redis_handle *h, int64_t now, int64_t before) {
  int64_t here = h->store->host->boot_ms(), drift = (here - h->time.at) / DRIFT_SHARE + 1;
  return now >= before + h->time.least - drift && now <= here + h->time.most + drift;
}

int64_t crl_redis_clock_time(const redisReply *reply) {
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
      reply->element[0]->type != REDIS_REPLY_STRING ||
      reply->element[1]->type != REDIS_REPLY_STRING)
    return -1;
  int64_t seconds = strtoll(reply->element[0]->str, NULL, 10),
          us = strtoll(reply->element[1]->str, NULL, 10);
  return seconds > 0 && seconds < (int64_t)(CRL_REDIS_EXACT / 1000000) && us >= 0 && us < 1000000
             ? seconds * 1000000 + us
             : -1;
}

int crl_redis_clock_hear(crl_redis_handle *h, const redisReply *reply, int64_t before,
                         corral_error *error) {
  if (reply->type == REDIS_REPLY_ERROR) {
    h->time.known = 0;
    h->time.refused = crl_redis_reply_is_error(reply, "NOPERM") ||
                      crl_redis_reply_is_error(reply, "ERR unknown command");
    return CORRAL_OK;
  }
  int64_t us = crl_redis_clock_time(reply);
  if (us < 0)
    return h->store->host->fail(error, CORRAL_EPROTOCOL,
                                "%s: a strange answer to TIME: is it a Redis server?",
                                h->store->name);
  crl_redis_clock_learn(h, us / 1000, before);
  return CORRAL_OK;
}

int crl_redis_clock_due(const crl_redis_handle *h) {
  return !h->time.refused && (!h->time.known || h->now - h->time.asked >= RENEW_MS);
}

int crl_redis_clock_good(const crl_redis_handle *h) {
  return h->time.known && !h->time.refused && h->time.most - h->time.least <= WIDE_MS;
}

int crl_redis_clock_now(const crl_redis_handle *h, int64_t *least, int64_t *most) {
  int64_t now = h->store->host->boot_ms(), age = now - h->time.at, drift = age / DRIFT_SHARE + 1;
  int good = crl_redis_clock_good(h) && age >= 0 && age <= OLD_MS;
  *least = now + h->time.least - drift;
  *most = now + h->time.most + drift;
  if (!good) *least = *most = now + h->time.least + (h->time.most - h->time.least) / 2;
  return good;
}
