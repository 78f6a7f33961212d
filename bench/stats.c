/* stats.c: what counting in a stats file costs a hit: hits of a corral that has one against those
 * of a corral that has none (stats_dir off), in turns within one run; of the near tier, and on
 * Redis (its own server, on a unix socket).
 *
 *   bench_stats */
#include <corral.h>
#include <string.h>

#include "folder.h"
#include "support/redis_server.h"

enum { ROUNDS = 41, NEAR_HITS = 20000, REDIS_HITS = 2000 };

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "a value of a hit", 16);
}

static corral *open_at(const char *uri, const char *stats_dir, int64_t near_bytes) {
  corral *c;
  corral_error error = {0};
  if (corral_open(CORRAL_OPTIONS(.store = uri, .stats_dir = stats_dir, .near_bytes = near_bytes,
                                 .policy = CORRAL_POLICY(.ttl_ms = 3600000, .near_ms = 3600000)),
                  &c, &error) != CORRAL_OK)
    die(error.text);
  return c;
}

/* ns per hit. */
static double hits(corral *c, int count) {
  double begin = now_us();
  for (int i = 0; i < count; i++) {
    corral_value *value;
    if (corral_get_or_compute(c, "key", 3, NULL, compute, NULL, &value) != CORRAL_OK)
      die("a hit failed");
    corral_value_unref(value);
  }
  return (now_us() - begin) * 1000 / count;
}

static void compare(const char *name, const char *uri, int64_t near_bytes, int count) {
  double on[ROUNDS], off[ROUNDS];
  corral *counting = open_at(uri, folder, near_bytes), *plain = open_at(uri, "off", near_bytes);
  hits(counting, count);
  hits(plain, count);
  for (int i = 0; i < ROUNDS; i++) {
    if (i % 2 == 0) on[i] = hits(counting, count);
    off[i] = hits(plain, count);
    if (i % 2 != 0) on[i] = hits(counting, count);
  }
  double a = median(on, ROUNDS), b = median(off, ROUNDS);
  printf("%-6s hit  with a stats file %8.1f ns   off %8.1f ns   difference %6.1f   ratio %.3f\n",
         name, a, b, a - b, a / b);
  corral_close(counting);
  corral_close(plain);
}

int main(void) {
  redis_server *server;
  make_folder();
  compare("near", "memory:", 1 << 20, NEAR_HITS);
  if (redis_server_start(&server, NULL)) {
    compare("redis", redis_server_unix_uri(server), 0, REDIS_HITS);
    redis_server_stop(server);
  }
  return 0;
}
