/* http_kit.h: the http: origin through its table, with a test host and test fills. */
#ifndef TESTS_HTTP_KIT_H
#define TESTS_HTTP_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <corral/plugin.h>
#include <poll.h>
#include <pthread.h>

#include "os/env.h"
#include "http_origin.h"
#include "store/secret.h"
#include "store/uri.h"

enum { HTTP_PATIENCE_MS = 20000, HTTP_MAX_VALUE = 1 << 20 };

extern const corral_origin crl_origin_http;

static http_origin *server; /* shared by all tests */

static inline int start(void **state) {
  (void)state;
  server = http_origin_start();
  return 0;
}

static inline int stop(void **state) {
  (void)state;
  http_origin_stop(server);
  return 0;
}

typedef enum fill_end { FILL_RUNNING = 0, FILL_DONE, FILL_FAILED, FILL_ABANDONED } fill_end;
typedef enum fill_kind {
  FILLED_NOTHING = 0,
  FILLED_BYTES,
  FILLED_NEGATIVE,
  FILLED_UNMODIFIED
} fill_kind;

/* A fill as a plugin sees it: the values given to it, and how it ended. */
struct corral_fill {
  fill_end end;
  fill_kind kind;
  int ends; /* number of times it was ended; must become 1 */
  char *bytes;
  size_t size;
  int is_passed, has_lives;
  int64_t ttl, swr, sie;
  int32_t code;
  char text[240];
  char validator[1025];
  const char *old, *old_validator; /* NULL: none */
  size_t old_size;                 /* 0: that of a text */
  char tags[1024];                 /* each with a ';' behind it */
  _Atomic int stop;
  int64_t began_ms, ended_ms;
};

static pthread_mutex_t fill_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fill_ended = PTHREAD_COND_INITIALIZER;

static int kit_bytes(corral_fill *f, const void *data, size_t size) {
  if (size > HTTP_MAX_VALUE) return CORRAL_ETOOBIG;
  free(f->bytes);
  f->bytes = malloc(size + 1);
  if (size > 0) memcpy(f->bytes, data, size);
  f->bytes[size] = '\0';
  f->size = size;
  f->kind = FILLED_BYTES;
  return CORRAL_OK;
}
static void *kit_reserve(corral_fill *f, size_t size) {
  char *room = calloc(1, size + 1);
  int status = size > HTTP_MAX_VALUE ? CORRAL_ETOOBIG : kit_bytes(f, room, size);
  free(room);
  return status == CORRAL_OK ? f->bytes : NULL;
}
static void kit_negative(corral_fill *f) { f->kind = FILLED_NEGATIVE; }
static void kit_lives(corral_fill *f, int64_t ttl, int64_t swr, int64_t sie) {
  f->ttl = ttl, f->swr = swr, f->sie = sie, f->has_lives = 1;
}
static void kit_pass(corral_fill *f) { f->is_passed = 1; }
static int kit_validator(corral_fill *f, const void *data, size_t size) {
  assert_true(size < sizeof f->validator);
  memcpy(f->validator, data, size);
  f->validator[size] = '\0';
  return CORRAL_OK;
}
static const void *kit_old(const corral_fill *f, size_t *size) {
  *size = f->old == NULL ? 0 : f->old_size > 0 ? f->old_size : strlen(f->old);
  return f->old;
}
static const void *kit_old_validator(const corral_fill *f, size_t *size) {
  *size = f->old_validator != NULL ? strlen(f->old_validator) : 0;
  return f->old_validator;
}
static int kit_not_modified(corral_fill *f) {
  if (f->old == NULL) return CORRAL_EMISS;
  f->kind = FILLED_UNMODIFIED;
  return CORRAL_OK;
}
static int kit_should_stop(const corral_fill *f) { return f->stop; }
static int kit_tag(corral_fill *f, const void *tag, size_t len) {
  size_t used = strlen(f->tags);
  snprintf(f->tags + used, sizeof f->tags - used, "%.*s;", (int)len, (const char *)tag);
  return CORRAL_OK;
}
static void kit_policy_lives(const corral_fill *f, int64_t *ttl, int64_t *swr, int64_t *sie) {
  (void)f;
  *ttl = 300000;
  *swr = -1;
  *sie = 20000;
}
static void kit_end(corral_fill *f, fill_end end) {
  pthread_mutex_lock(&fill_mutex);
  f->end = end;
  f->ends++;
  f->ended_ms = crl_env_now_ms();
  pthread_cond_broadcast(&fill_ended);
  pthread_mutex_unlock(&fill_mutex);
}
static void kit_done(corral_fill *f) { kit_end(f, FILL_DONE); }
static void kit_abandon(corral_fill *f) { kit_end(f, FILL_ABANDONED); }
static void kit_failed(corral_fill *f, int32_t code, const char *text) {
  f->code = code;
  snprintf(f->text, sizeof f->text, "%s", text);
  kit_end(f, FILL_FAILED);
}

static const corral_fill_calls kit_calls = {.size = sizeof(corral_fill_calls),
                                            .bytes = kit_bytes,
                                            .reserve = kit_reserve,
                                            .negative = kit_negative,
                                            .lives = kit_lives,
                                            .pass = kit_pass,
                                            .validator = kit_validator,
                                            .old = kit_old,
                                            .old_validator = kit_old_validator,
                                            .not_modified = kit_not_modified,
                                            .should_stop = kit_should_stop,
                                            .done = kit_done,
                                            .failed = kit_failed,
                                            .abandon = kit_abandon,
                                            .tag = kit_tag,
                                            .policy_lives = kit_policy_lives};

static const corral_page_calls kit_pages = {.size = sizeof(corral_page_calls),
                                            .read = corral_page_read,
                                            .room = corral_page_size,
                                            .write = corral_page_write,
                                            .leaves_out = corral_page_leaves_out,
                                            .merge = corral_page_merge,
                                            .vary = corral_page_vary,
                                            .tag = corral_page_tag};

__attribute__((format(printf, 3, 4))) static int kit_fail(corral_error *error, int status,
                                                          const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (error != NULL) {
    error->status = status;
    vsnprintf(error->text, sizeof error->text, format, args);
  }
  va_end(args);
  return status;
}

static void kit_digest(const void *data, size_t size, uint8_t digest[16]) {
  memset(digest, 0, 16);
  for (size_t i = 0; i < size; i++)
    digest[i % 8] = (uint8_t)(digest[i % 8] * 31 + ((const uint8_t *)data)[i]);
}

static const corral_host kit_host = {.size = sizeof(corral_host),
                                     .abi = CORRAL_PLUGIN_ABI,
                                     .now_ms = crl_env_now_ms,
                                     .wall_ms = crl_env_wall_ms,
                                     .fail = kit_fail,
                                     .uri_check = crl_uri_check,
                                     .uri_get = crl_uri_get,
                                     .uri_number = crl_uri_number,
                                     .digest = kit_digest,
                                     .fill = &kit_calls,
                                     .own_fd = crl_env_own_fd,
                                     .guard_standard = crl_env_guard_standard,
                                     .uri_show = corral_uri_show,
                                     .uri_secret = crl_secret_find,
                                     .page = &kit_pages};

/* Opens an origin at a printf-formatted URL. */
__attribute__((format(printf, 1, 2), unused)) static void *opened(const char *format, ...) {
  char url[1024];
  void *origin = NULL;
  corral_error error = {0};
  va_list args;
  va_start(args, format);
  vsnprintf(url, sizeof url, format, args);
  va_end(args);
  if (crl_origin_http.open(&kit_host, url, HTTP_MAX_VALUE, &origin, &error) != CORRAL_OK)
    fail_msg("%s: %s", url, error.text);
  return origin;
}
static inline void closed(void *origin) { crl_origin_http.close(origin); }

/* Begins a fetch and returns. */
static inline void begin_with(corral_fill *f, void *origin, const char *key, int64_t limit_ms) {
  f->began_ms = crl_env_now_ms();
  crl_origin_http.fetch(origin, f, key, strlen(key), f->began_ms + limit_ms);
}
static inline corral_fill *begun(void *origin, const char *key) {
  corral_fill *f = calloc(1, sizeof *f);
  begin_with(f, origin, key, HTTP_PATIENCE_MS);
  return f;
}
static inline void awaited(corral_fill *f) {
  int64_t until = crl_env_now_ms() + HTTP_PATIENCE_MS + 2000;
  pthread_mutex_lock(&fill_mutex);
  while (f->end == FILL_RUNNING && crl_env_now_ms() < until) {
    pthread_mutex_unlock(&fill_mutex);
    poll(NULL, 0, 1);
    pthread_mutex_lock(&fill_mutex);
  }
  pthread_mutex_unlock(&fill_mutex);
  assert_int_not_equal(f->end, FILL_RUNNING);
  assert_int_equal(f->ends, 1);
}
static inline void fill_free(corral_fill *f) {
  free(f->bytes);
  free(f);
}
/* Begins a fetch and waits for its end. */
static inline corral_fill *fetched(void *origin, const char *key) {
  corral_fill *f = begun(origin, key);
  awaited(f);
  return f;
}
/* A fetch with an old value: `kept` is the validator that an earlier fetch left. */
static inline corral_fill *refetched(void *origin, const char *key, const char *old,
                                     const char *kept) {
  corral_fill *f = calloc(1, sizeof *f);
  f->old = old;
  f->old_validator = kept;
  begin_with(f, origin, key, HTTP_PATIENCE_MS);
  awaited(f);
  return f;
}
/* Requires a fill with these bytes, or a failure with this code and a text that contains `part`.
 * Frees the fill. */
static inline void expect_bytes(corral_fill *f, const char *bytes) {
  if (f->end != FILL_DONE || f->kind != FILLED_BYTES)
    fail_msg("ended %d, kind %d: %d %s", f->end, f->kind, f->code, f->text);
  assert_string_equal(f->bytes, bytes);
  fill_free(f);
}
static inline void expect_failure(corral_fill *f, int code, const char *part) {
  if (f->end != FILL_FAILED || f->code != code || strstr(f->text, part) == NULL)
    fail_msg("ended %d, kind %d: %d %s; wanted %d %s", f->end, f->kind, f->code, f->text, code,
             part);
  fill_free(f);
}

#endif
