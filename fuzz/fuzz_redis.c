/* fuzz_redis.c: replies of a Redis server: to the greeting, to batches of every verb, with scripts
 * and without, and to a watch. */
#include "dialogue.h"

extern const corral_store crl_plugin_redis;

static void heard(void *arg, uint64_t hash) {
  (void)hash;
  ++*(size_t *)arg;
}

static void watch(fuzz_dialogue *d) {
  void *watch = NULL;
  size_t told = 0;
  corral_registration keys[2] = {{.key = "key", .key_len = 3}, {.key = "another", .key_len = 7}};
  int status = d->plugin->watch(d->store, 0, d->host->now_ms() + FUZZ_LIMIT_MS, &watch, &d->error);
  for (int i = 0; i < 3 && status == CORRAL_OK; i++) {
    status =
        d->plugin->register_keys(watch, keys, 2, -1, d->host->now_ms() + FUZZ_LIMIT_MS, &d->error);
    for (size_t k = 0; k < 2; k++) MUST(keys[k].head_len <= CORRAL_HEAD);
    if (status == CORRAL_OK)
      status =
          d->plugin->changes(watch, -1, d->host->now_ms() + FUZZ_LIMIT_MS, heard, &told, &d->error);
  }
  MUST(status <= 0);
  MUST_BE_PLAIN(d->error.text);
  if (watch != NULL) d->plugin->unwatch(watch);
}

/* Byte 0: 1: a correct greeting comes first; 2: the server hangs up at the end; 4: locks without
 * scripts; 8: replicas confirm locks; 16: a watch. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const right[] = {"+OK\r\n"
                                      "$33\r\nrole:master\r\nconnected_slaves:1\r\n\r\n"
                                      "*2\r\n$10\r\n1700001000\r\n$6\r\n123456\r\n",
                                      NULL};
  static const char *const none[] = {NULL};
  static const char *const uris[] = {"redis+unix:///fuzz", "redis+unix:///fuzz?scripts=no",
                                     "redis+unix:///fuzz?wait_replicas=1&wait_ms=50ms"};
  fuzz_input in = {data, size};
  fuzz_dialogue d;
  uint8_t how = fuzz_byte(&in);
  fuzz_wire_begin(how & 1 ? right : none, &in, how >> 1 & 1);
  if (fuzz_dialogue_begin(&d, &crl_plugin_redis, uris[how & 4 ? 1 : how & 8 ? 2 : 0])) {
    if (how & 16)
      watch(&d);
    else
      fuzz_dialogue_perform(&d, &in);
  }
  fuzz_dialogue_end(&d);
  fuzz_wire_end();
  return 0;
}
