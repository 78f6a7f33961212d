/* test_tags_away.c: a value on one memcached server whose tag's version is on another, which goes
 * away. A tag that the value has no more decides nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>

#include "support/memcached_server.h"

enum { STAYS, GOES, TRIES = 64 };

static memcached_server *pair[2];
static corral *reader, *maker;
static char key[16], tag[16]; /* the key's server stays, the tag version's goes away */
static int fills;

/* `arg`: the value's tag; NULL: none. */
static int compute(corral_fill *fill, const void *k, size_t k_len, void *arg) {
  (void)k;
  (void)k_len;
  fills++;
  if (arg != NULL) assert_int_equal(corral_fill_tag(fill, arg, strlen(arg)), CORRAL_OK);
  return corral_fill_bytes(fill, "42", 2);
}

static corral_how ask(corral *c, const char *name, char *with) {
  corral_value *value = NULL;
  assert_int_equal(corral_get_or_compute(c, name, strlen(name), NULL, compute, with, &value),
                   CORRAL_OK);
  corral_how how = corral_value_how(value);
  corral_value_unref(value);
  return how;
}

static corral *open_one(void) {
  corral *c;
  corral_error error;
  const char *uri = memcached_server_pair_uri(pair);
  const corral_policy *policy = CORRAL_POLICY(.lease_ms = 60000, .lease_min_ms = 60000);
  if (corral_open(
          CORRAL_OPTIONS(.store = uri, .outbox_ms = CORRAL_OFF, .op_ms = 20000, .policy = policy),
          &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static long long items(int server) { return memcached_server_stat(pair[server], "curr_items"); }

/* Finds a key whose server stays, and a tag whose version is on the other one; stores a value with
 * them. */
static void find_names(void) {
  int found = 0;
  for (int i = 0; i < TRIES && !found; i++) {
    long long before = items(STAYS);
    snprintf(key, sizeof key, "k%d", i);
    ask(maker, key, NULL);
    found = items(STAYS) == before + 1;
  }
  for (int i = 0; i < TRIES && found < 2; i++) {
    long long before = items(GOES);
    snprintf(tag, sizeof tag, "t%d", i);
    assert_int_equal(corral_invalidate(maker, key, strlen(key), NULL), CORRAL_OK);
    ask(maker, key, tag);
    found += items(GOES) == before + 1;
  }
  assert_int_equal(found, 2);
}

static int begin(void **state) {
  (void)state;
  reader = open_one();
  maker = open_one();
  find_names();
  assert_int_equal(ask(reader, key, tag), CORRAL_FRESH);
  assert_int_equal(ask(reader, key, tag), CORRAL_FRESH);
  fills = 0;
  return 0;
}

static int end(void **state) {
  (void)state;
  corral_close(reader);
  corral_close(maker);
  memcached_server_restart(pair[GOES]);
  return 0;
}

static void a_value_whose_tag_can_not_be_asked_after_is_not_served(void **state) {
  (void)state;
  memcached_server_kill(pair[GOES]);
  assert_int_equal(ask(reader, key, tag), CORRAL_COMPUTED);
  assert_int_equal(fills, 1);
}

static void a_tag_that_the_value_has_no_more_is_not_missed(void **state) {
  (void)state;
  assert_int_equal(corral_invalidate(maker, key, strlen(key), NULL), CORRAL_OK);
  assert_int_equal(ask(maker, key, NULL), CORRAL_COMPUTED);
  memcached_server_kill(pair[GOES]);
  assert_int_equal(ask(reader, key, tag), CORRAL_FRESH);
  assert_int_equal(ask(reader, key, tag), CORRAL_FRESH);
  assert_int_equal(fills, 1);
}

#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_value_whose_tag_can_not_be_asked_after_is_not_served),
      T(a_tag_that_the_value_has_no_more_is_not_missed),
  };
  for (int i = 0; i < 2; i++)
    if (!memcached_server_start(&pair[i], NULL)) return 77;
  int failed = cmocka_run_group_tests_name("tags away", tests, NULL, NULL);
  for (int i = 0; i < 2; i++) memcached_server_stop(pair[i]);
  return failed;
}
