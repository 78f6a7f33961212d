/* tale_origin.c: an origin that makes its values up: "tale://anything". "value of KEY" from a thread of its own, after some ms; keys that begin with
 * "none" don't exist, those with "bad" fail, those with "flow" can't be cached. A key's file in $TALE_FOLDER gets a line for each fetch. */
#include <corral/plugin.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const corral_host *host;

typedef struct tale {
  corral_fill *fill;
  size_t size;
  char key[64];
} tale;

static int open_tale(const corral_host *of, const char *url, uint64_t max_value, void **ret, corral_error *error) {
  (void)url;
  (void)max_value;
  (void)error;
  host = of;
  *ret = &host;
  return CORRAL_OK;
}

static void close_tale(void *origin) { (void)origin; }

static void note(const tale *t) {
  const char *folder = getenv("TALE_FOLDER");
  char path[512];
  (void)snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : ".", t->key);
  FILE *f = fopen(path, "a");
  if (f == NULL) return;
  (void)fputs("fetched\n", f);
  (void)fclose(f);
}

static void *tell(void *arg) {
  tale *t = arg;
  char text[96];
  (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  note(t);
  int n = snprintf(text, sizeof text, "value of %s", t->key);
  if (strncmp(t->key, "none", 4) == 0) host->fill->negative(t->fill);
  else if (strncmp(t->key, "bad", 3) != 0) (void)host->fill->bytes(t->fill, text, (size_t)n);
  if (strncmp(t->key, "flow", 4) == 0) host->fill->pass(t->fill);
  if (strncmp(t->key, "bad", 3) == 0) host->fill->failed(t->fill, 500, "the tale is sad");
  else host->fill->done(t->fill);
  free(t);
  return NULL;
}

static void fetch(void *origin, corral_fill *fill, const void *key, size_t key_len, int64_t deadline) {
  tale *t = calloc(1, sizeof *t);
  pthread_t thread;
  (void)origin;
  (void)deadline;
  if (t == NULL || key_len >= sizeof t->key) {
    free(t);
    host->fill->abandon(fill);
    return;
  }
  t->fill = fill;
  memcpy(t->key, key, key_len);
  if (pthread_create(&thread, NULL, tell, t) == 0) {
    (void)pthread_detach(thread);
    return;
  }
  free(t);
  host->fill->abandon(fill);
}

static const corral_origin table = {.size = sizeof table, .abi = CORRAL_PLUGIN_ABI, .name = "tale", .schemes = "tale", .summary = "an origin of the tests",
                                    .open = open_tale, .close = close_tale, .fetch = fetch};
CORRAL_ORIGIN(table)
