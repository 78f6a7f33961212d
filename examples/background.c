/* background.c: a compute bound at open. A stale value is answered at once, and rebuilt in the
 * background.
 *
 * cc -std=c11 background.c $(pkg-config --cflags --libs corral) -o background && ./background */
#include <corral.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static int report(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  _Atomic int *edition = arg;
  char text[64];
  snprintf(text, sizeof text, "%.*s, edition %d", (int)key_len, (const char *)key,
           atomic_fetch_add(edition, 1) + 1);
  return corral_fill_bytes(fill, text, strlen(text));
}

static int show(corral *c) {
  corral_error error = {0};
  corral_value *value;
  if (corral_get(c, "sales", 5, CORRAL_CALL(.error = &error), &value) != CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  printf("%-8s %.*s\n", corral_how_name(corral_value_how(value)), (int)corral_value_size(value),
         (const char *)corral_value_data(value));
  corral_value_unref(value);
  return 0;
}

int main(int argc, char **argv) {
  _Atomic int edition = 0;
  corral_error error = {0};
  corral *reports;
  if (corral_open(CORRAL_OPTIONS(.store = argc > 1 ? argv[1] : "memory:", .compute = report,
                                 .compute_arg = &edition,
                                 .policy = CORRAL_POLICY(.ttl_ms = 60000, .swr_ms = 600000)),
                  &reports, &error) != CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  int failed = show(reports); /* computed */
  /* the data changed; the old report may still be shown */
  corral_expire(reports, "sales", 5, NULL);
  failed |= show(reports); /* stale, at once */
  corral_close(reports);   /* waits for the rebuild that runs */
  return failed;
}
