/* answers_kit.h: a scripted compute, one-line helpers for each call, and the stores to run them on:
 * in this process, or with LIVE real servers (Redis over a unix socket, memcached with two
 * servers). */
#ifndef ANSWERS_KIT_H
#define ANSWERS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sched.h>
#include <stdatomic.h>

#include "support/herd_lab.h"

enum { FAR = 60000 };

/* ---- a scripted compute -------------------------------------------------------------------- */

typedef struct say {
  const char *text; /* NULL: negative */
  const char *tags[3];
  uint64_t version;
  const char *validator;
  int64_t ttl_ms, not_after;
  int pass, unmodified, fails;
  /* recorded by the compute */
  int ran;
  char old[64], old_validator[64];
  uint64_t old_version;
  int should_stop;
} say;

static inline void see(const corral_fill *fill, say *s) {
  size_t size;
  const char *old = corral_fill_old(fill, &size);
  snprintf(s->old, sizeof s->old, "%.*s", (int)size, old == NULL ? "" : old);
  const char *validator = corral_fill_old_validator(fill, &size);
  snprintf(s->old_validator, sizeof s->old_validator, "%.*s", (int)size,
           validator == NULL ? "" : validator);
  s->old_version = corral_fill_old_version(fill);
}

static inline int answer(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  say *s = arg;
  size_t len;
  assert_ptr_equal(corral_fill_key(fill, &len), key);
  assert_int_equal(len, key_len);
  s->ran++;
  see(fill, s);
  for (int i = 0; i < 3 && s->tags[i] != NULL; i++)
    assert_int_equal(corral_fill_tag(fill, s->tags[i], strlen(s->tags[i])), CORRAL_OK);
  if (s->version != 0) corral_fill_version(fill, s->version);
  if (s->validator != NULL)
    assert_int_equal(corral_fill_validator(fill, s->validator, strlen(s->validator)), CORRAL_OK);
  if (s->ttl_ms != 0) corral_fill_lives(fill, s->ttl_ms, 0, 0);
  if (s->not_after != 0) corral_fill_not_after(fill, s->not_after);
  if (s->pass) corral_fill_pass(fill);
  if (s->fails)
    corral_fill_fail(fill, 5, "the origin is away");
  else if (s->unmodified)
    return corral_fill_not_modified(fill);
  else if (s->text == NULL)
    corral_fill_negative(fill);
  else
    return corral_fill_bytes(fill, s->text, strlen(s->text));
  return CORRAL_OK;
}

/* Without another op_ms a server that is busy isn't slow. */
static inline corral *opened(const corral_options *asked) {
  corral *c = NULL;
  corral_error error;
  corral_options options = *asked;
  if (options.op_ms == 0) options.op_ms = 5000;
  if (corral_open(&options, &c, &error) != CORRAL_OK) fail_msg("%s: %s", options.store, error.text);
  return c;
}

static inline corral_policy usual(void) {
  return *CORRAL_POLICY(.ttl_ms = FAR, .jitter_pct = CORRAL_OFF, .wait_ms = 20000);
}

static inline corral_policy graceful(void) {
  corral_policy policy = usual();
  policy.sie_ms = FAR;
  return policy;
}

typedef struct got {
  int status;
  corral_how how;
  corral_kept kept;
  uint64_t version;
  int32_t failure;
  char text[64];
} got;

/* Takes over the value. */
static inline got got_of(int status, corral_value *value) {
  got g = {.status = status};
  if (status != CORRAL_OK) return g;
  g.how = corral_value_how(value);
  g.kept = corral_value_kept(value);
  g.version = corral_value_version(value);
  g.failure = corral_value_failure(value);
  snprintf(g.text, sizeof g.text, "%.*s", (int)corral_value_size(value),
           (const char *)corral_value_data(value));
  corral_value_unref(value);
  return g;
}

static inline void wait_for(_Atomic int *number, int least) {
  while (atomic_load(number) < least) sched_yield();
}

static inline void wait_for_event(const corral *c, corral_event event, uint64_t least) {
  while (corral_counter(c, event) < least) sched_yield();
}

static inline got asks_by(corral *c, const char *key, const corral_policy *policy, say *s) {
  corral_value *value = NULL;
  int status =
      corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.policy = policy), answer, s, &value);
  return got_of(status, value);
}

static inline got asks(corral *c, const char *key, say *s) {
  corral_policy policy = usual();
  return asks_by(c, key, &policy, s);
}

#define GETS(c, key, s, expected_text, expected_how)                                               \
  do {                                                                                             \
    got g_ = asks(c, key, s);                                                                      \
    assert_int_equal(g_.status, CORRAL_OK);                                                        \
    assert_string_equal(g_.text, expected_text);                                                   \
    if (g_.how != (expected_how))                                                                  \
      fail_msg("line %d, %s: %s, kept %d, instead of %s", __LINE__, key, corral_how_name(g_.how),  \
               (int)g_.kept, corral_how_name(expected_how));                                       \
  } while (0)

static inline corral_inspection inspected(corral *c, const char *key) {
  corral_inspection seen = {.size = sizeof seen};
  corral_error error;
  if (corral_inspect(c, key, strlen(key), CORRAL_CALL(.error = &error), &seen) != CORRAL_OK)
    fail_msg("%s", error.text);
  return seen;
}

/* ---- the stores ---------------------------------------------------------------------------- */

#ifdef LIVE
#include "support/memcached_server.h"
#include "support/redis_server.h"

static redis_server *redis;
static memcached_server *pair[2];

static inline void start_servers(void) {
  redis_server_start(&redis, NULL);
  for (int i = 0; i < 2; i++) memcached_server_start(&pair[i], NULL);
}

static inline void stop_servers(void) {
  redis_server_stop(redis);
  for (int i = 0; i < 2; i++) memcached_server_stop(pair[i]);
}

static inline void on_each_that_tells(void (*story)(const char *uri)) {
  if (redis == NULL) return;
  redis_server_ask(redis, "FLUSHALL");
  story(redis_server_unix_uri(redis));
}

static inline void on_each(void (*story)(const char *uri)) {
  on_each_that_tells(story);
  const char *uri = memcached_server_pair_uri(pair);
  if (uri != NULL) story(uri);
}
#else
static inline void start_servers(void) {}
static inline void stop_servers(void) {}

/* Runs the story once on each store that two corrals of this process can share. */
static inline void on_each(void (*story)(const char *uri)) {
  char uri[64];
  snprintf(uri, sizeof uri, "memory:%p", (void *)lab_room);
  story(uri);
  story(lab_lmdb(lab_room, "store"));
}

static inline void on_each_that_tells(void (*story)(const char *uri)) { on_each(story); }
#endif

#endif
