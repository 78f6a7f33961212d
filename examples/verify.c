/* verify.c: how many hits are no longer true. A price changes, and nobody invalidates it; hits are
 * computed anew behind their answers, and compared.
 *
 * cc -std=c11 verify.c $(pkg-config --cflags --libs corral) -o verify && ./verify */
#define _POSIX_C_SOURCE 200809L
#include <corral.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { HITS = 10, PATIENCE_MS = 60000 };

static _Atomic int price = 100;
static _Atomic int64_t oldest_us;

/* The time of the query isn't a part of the answer. */
static int query(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  char text[96];
  (void)arg;
  snprintf(text, sizeof text, "%.*s: %d, as of %ld", (int)key_len, (const char *)key, price,
           (long)clock());
  return corral_fill_bytes(fill, text, strlen(text));
}

static int same_price(const void *key, size_t key_len, const corral_value *served, const void *data,
                      size_t size, void *arg) {
  const char *until = memchr(data, ',', size);
  size_t len = until == NULL ? size : (size_t)(until - (const char *)data);
  (void)key, (void)key_len, (void)arg;
  return corral_value_size(served) >= len && memcmp(corral_value_data(served), data, len) == 0;
}

static void on_event(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event == CORRAL_EVENT_DIFFERS && info->duration_us > oldest_us)
    oldest_us = info->duration_us;
}

static uint64_t verdicts(corral *c) {
  return corral_counter(c, CORRAL_EVENT_VERIFIED) + corral_counter(c, CORRAL_EVENT_DIFFERS);
}

/* Hits until there are so many verdicts. 0: they don't come. */
static int verify(corral *c, uint64_t least) {
  const struct timespec pause = {.tv_nsec = 1000000};
  for (int i = 0; i < PATIENCE_MS && verdicts(c) < least; i++) {
    corral_value *value;
    if (corral_get(c, "apples", 6, NULL, &value) != CORRAL_OK) return 0;
    corral_value_unref(value);
    nanosleep(&pause, NULL);
  }
  return verdicts(c) >= least;
}

int main(int argc, char **argv) {
  corral_error error = {0};
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = argc > 1 ? argv[1] : "memory:", .compute = query,
                                 .on_verify = same_price, .on_event = on_event,
                                 .verify_max = 100, /* a busy service has fewer, and a share */
                                 .policy = CORRAL_POLICY(.ttl_ms = 60000, .verify_ppm = 1000000)),
                  &c, &error) != CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  int works = verify(c, HITS);
  price = 120; /* somebody forgot corral_invalidate */
  works = works && verify(c, 2 * HITS);
  uint64_t all = verdicts(c), wrong = corral_counter(c, CORRAL_EVENT_DIFFERS);
  printf("%llu of %llu hits were no longer true, the oldest of them %.3f s old: %.1f%% are true\n",
         (unsigned long long)wrong, (unsigned long long)all, (double)oldest_us / 1e6,
         all == 0 ? 0 : 100.0 * (double)(all - wrong) / (double)all);
  corral_close(c);
  return !works;
}
