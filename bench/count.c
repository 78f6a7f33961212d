/* count.c: hits to be counted from outside, by callgrind (instructions) or strace (system calls):
 * the difference of two runs, by the difference of their hits.
 *
 *   bench_count STORE HITS [NEAR_BYTES]    values of 100 bytes, one thread */
#include <corral.h>
#include <string.h>

#include "kit.h"

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  char text[100];
  (void)key;
  (void)key_len;
  (void)arg;
  memset(text, 'x', sizeof text);
  return corral_fill_bytes(fill, text, sizeof text);
}

int main(int argc, char **argv) {
  corral *c;
  corral_value *value;
  corral_error error;
  if (argc < 3) die("usage: bench_count STORE HITS [NEAR_BYTES]");
  int64_t near = argc > 3 ? strtoll(argv[3], NULL, 10) : 0;
  if (corral_open(CORRAL_OPTIONS(.store = argv[1], .near_bytes = near), &c, &error) != CORRAL_OK)
    die(error.text);
  for (long i = 0, hits = strtol(argv[2], NULL, 10); i <= hits; i++) {
    const corral_policy *policy = CORRAL_POLICY(.ttl_ms = 3600000, .near_ms = 3600000);
    if (corral_get_or_compute(c, "key:1234", 8, CORRAL_CALL(.policy = policy), compute, NULL,
                              &value) != CORRAL_OK)
      die("a call failed");
    corral_value_unref(value);
  }
  corral_close(c);
  return 0;
}
