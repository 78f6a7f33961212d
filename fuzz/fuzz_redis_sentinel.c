/* fuzz_redis_sentinel.c: what sentinels say: the place of a primary, and that it is at another one.
 * Each message of the bytes is read as both. */
#include "fuzz.h"

#include <string.h>

#include "redis/sentinel.h"

static void check(const crl_redis_place *place) {
  size_t len = strnlen(place->host, sizeof place->host);
  MUST(len > 0 && len < sizeof place->host);
  for (size_t i = 0; i < len; i++) MUST(place->host[i] > ' ' && place->host[i] <= '~');
  MUST(place->port > 0 && place->port <= 65535);
  MUST(place->tls_name[0] == '\0' && place->id[0] == '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  crl_redis_resp in = {0};
  crl_redis_message message;
  crl_redis_place place;
  size_t room;
  for (size_t at = 0, step; at < size; at += step) {
    char *to = crl_redis_resp_room(&in, &room);
    MUST(to != NULL);
    step = size - at < room ? size - at : room;
    memcpy(to, data + at, step);
    crl_redis_resp_feed(&in, step);
  }
  while (crl_redis_resp_next(&in, &message) > 0) {
    int known = crl_redis_sentinel_place(message, &place);
    MUST(known >= -1 && known <= 1);
    if (known == 1) check(&place);
    if (crl_redis_sentinel_told(message, "main", &place)) {
      MUST(known == -1); /* no message is both */
      check(&place);
    }
  }
  crl_redis_resp_free(&in);
  return 0;
}
