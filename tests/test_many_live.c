/* test_many_live.c: corral_get_many on real stores: round trips, and several processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/memcached_server.h"
#include "support/redis_server.h"
#include "support/fork_kit.h"
#include "support/room.h"

enum { MOST = 600, ROUNDS = 10 };

static redis_server *server;
static memcached_server *pair[2];
static int calls, computes;

/* Fills by the key's first letter: 'f' fails, 'n' negative, 't' has a tag. */
static int by_letter(corral_fill *const *fills, size_t count, void *arg) {
  (void)arg;
  calls++;
  for (size_t i = 0; i < count; i++) {
    size_t len;
    const char *key = corral_fill_key(fills[i], &len);
    computes++;
    if (key[0] == 't') corral_fill_tag(fills[i], "tag", 3);
    if (key[0] == 'f')
      corral_fill_fail(fills[i], 7, "broken");
    else if (key[0] == 'n')
      corral_fill_negative(fills[i]);
    else
      corral_fill_bytes(fills[i], key, len);
  }
  return CORRAL_OK;
}

typedef struct names {
  corral_item items[MOST];
  char text[MOST][24];
} names;

static names list;

static void name(const char *stem, size_t count) {
  for (size_t i = 0; i < count; i++)
    list.items[i] = (corral_item){
        .key = list.text[i],
        .key_len = (size_t)snprintf(list.text[i], sizeof *list.text, "%s%zu", stem, i)};
}

/* Without another op_ms its store is never slow. */
static corral *open_at(const char *uri, const corral_options *more) {
  corral *c = NULL;
  corral_error error;
  corral_options options = *more;
  options.store = uri;
  if (options.op_ms == 0) options.op_ms = 20000;
  if (corral_open(&options, &c, &error) != CORRAL_OK) fail_msg("%s: %s", uri, error.text);
  return c;
}

static void ask(corral *c, const char *stem, size_t count, int status, corral_how how) {
  name(stem, count);
  calls = computes = 0;
  assert_int_equal(
      corral_get_many(
          c, list.items, count,
          CORRAL_CALL(.policy = CORRAL_POLICY(.retry_ms = 60000, .lease_ms = 60000,
                                              .lease_min_ms = 60000, .near_ms = CORRAL_OFF)),
          by_letter, NULL),
      CORRAL_OK);
  for (size_t i = 0; i < count; i++) {
    const corral_item *item = &list.items[i];
    if (item->status != status)
      fail_msg("%s: %s %s", list.text[i], corral_status_name(item->status), item->error.text);
    if (status != CORRAL_OK) continue;
    assert_int_equal(corral_value_how(item->value), how);
    assert_int_equal(corral_value_size(item->value), item->key_len);
    assert_memory_equal(corral_value_data(item->value), item->key, item->key_len);
    corral_value_unref(item->value);
  }
}

/* ---- round trips --------------------------------------------------------------------------- */

static long long reads(void) { return redis_server_info(server, "total_reads_processed"); }

static long long cost_of(corral *c, const char *stem, size_t count, int status, corral_how how) {
  long long before = reads();
  ask(c, stem, count, status, how);
  return reads() - before - 1;
}

/* The server counts reads of at most 16 KiB; the claims of 30 keys fit into one. */
static void warm_keys_cost_one_round_trip_together_and_cold_ones_three(void **state) {
  (void)state;
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  corral *c = open_at(redis_server_uri(server), CORRAL_OPTIONS(.handles = 1));
  ask(c, "f-warm-up", 1, CORRAL_EFAILED, 0); /* loads the scripts into the server */
  ask(c, "warm-up", 1, CORRAL_OK, CORRAL_COMPUTED);
  assert_int_equal(cost_of(c, "cold", 30, CORRAL_OK, CORRAL_COMPUTED), 3);
  assert_int_equal(cost_of(c, "cold", 30, CORRAL_OK, CORRAL_FRESH), 1);
  assert_int_equal(cost_of(c, "fail", 30, CORRAL_EFAILED, 0), 3);
  assert_int_equal(cost_of(c, "fail", 30, CORRAL_EFAILED, 0), 1);
  assert_int_equal(cost_of(c, "none", 30, CORRAL_ENOTFOUND, 0), 3);
  assert_int_equal(cost_of(c, "none", 30, CORRAL_ENOTFOUND, 0), 1);
  assert_int_equal(calls, 0);
  long long cold = cost_of(c, "many", 100, CORRAL_OK, CORRAL_COMPUTED);
  assert_int_equal(calls, 1);
  assert_int_equal(computes, 100);
  assert_int_equal(cost_of(c, "many", 100, CORRAL_OK, CORRAL_FRESH), 1);
  print_message("           100 cold keys: %lld reads of the server\n", cold);
  assert_in_range(cold, 3, 9);
  corral_close(c);
}

static void all_tags_of_warm_keys_come_with_them(void **state) {
  (void)state;
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  corral *c = open_at(redis_server_uri(server), CORRAL_OPTIONS(.handles = 1, .generation = 1));
  ask(c, "tagged", 100, CORRAL_OK, CORRAL_COMPUTED);
  assert_int_equal(cost_of(c, "tagged", 100, CORRAL_OK, CORRAL_FRESH), 1);
  assert_int_equal(corral_invalidate_tag(c, "tag", 3, NULL), CORRAL_OK);
  ask(c, "tagged", 100, CORRAL_OK, CORRAL_COMPUTED);
  corral_close(c);
}

/* ---- on each store ------------------------------------------------------------------------- */

static void batch_story(const char *uri) {
  corral *c = open_at(uri, CORRAL_OPTIONS(.watch = 1));
  ask(c, "key", 300, CORRAL_OK, CORRAL_COMPUTED);
  assert_int_equal(calls, 1);
  ask(c, "key", 300, CORRAL_OK, CORRAL_FRESH);
  ask(c, "fail", 3, CORRAL_EFAILED, 0);
  ask(c, "none", 3, CORRAL_ENOTFOUND, 0);
  assert_int_equal(corral_invalidate(c, list.text[0], strlen(list.text[0]), NULL), CORRAL_OK);
  ask(c, "none", 3, CORRAL_ENOTFOUND, 0);
  assert_int_equal(computes, 1);
  corral_close(c);
}

static void so_it_is_on_redis(void **state) {
  (void)state;
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  batch_story(redis_server_unix_uri(server));
}

static const char *memcached_uri(void) {
  const char *uri = memcached_server_pair_uri(pair);
  if (uri == NULL) skip();
  return uri;
}

static void so_it_is_on_two_memcached(void **state) {
  (void)state;
  batch_story(memcached_uri());
  assert_true(memcached_server_stat(pair[0], "curr_items") > 50);
  assert_true(memcached_server_stat(pair[1], "curr_items") > 50);
}

static void so_it_is_on_lmdb(void **state) {
  (void)state;
  char folder[ROOM_PATH], uri[64], command[64];
  room_folder(folder, "many");
  snprintf(uri, sizeof uri, "lmdb:%s/db", folder);
  batch_story(uri);
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
}

static int fill_large(corral_fill *const *fills, size_t count, void *arg) {
  for (size_t i = 0; i < count; i++) {
    size_t len, size = *(const size_t *)arg;
    const char *key = corral_fill_key(fills[i], &len);
    if (key[0] == 'L')
      memset(corral_fill_reserve(fills[i], size), 'x', size);
    else
      corral_fill_bytes(fills[i], key, len);
  }
  return CORRAL_OK;
}

static void a_record_that_is_too_big_for_the_store_fails_alone(void **state) {
  (void)state;
  size_t size = 3 << 20;
  corral_item items[3] = {{.key = "small", .key_len = 5},
                          {.key = "Large", .key_len = 5},
                          {.key = "other", .key_len = 5}};
  corral *c = open_at(memcached_uri(), CORRAL_OPTIONS(.watch = 1));
  assert_int_equal(corral_get_many(c, items, 3, NULL, fill_large, &size), CORRAL_OK);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(items[i].status, CORRAL_OK);
    assert_int_equal(corral_value_kept(items[i].value), i == 1 ? CORRAL_KEPT_NOT : CORRAL_KEPT);
    corral_value_unref(items[i].value);
  }
  corral_close(c);
}

static void while_the_store_is_away_each_key_is_computed_all_the_same(void **state) {
  (void)state;
  corral *c = open_at("redis://127.0.0.1:9", CORRAL_OPTIONS(.watch = -1, .op_ms = 250));
  ask(c, "key", 20, CORRAL_OK, CORRAL_COMPUTED);
  assert_int_equal(calls, 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_DEGRADED), 20);
  name("key", 3);
  assert_int_equal(
      corral_get_many(c, list.items, 3,
                      CORRAL_CALL(.policy = CORRAL_POLICY(.when_away = CORRAL_AWAY_STALE)),
                      by_letter, NULL),
      CORRAL_OK);
  for (int i = 0; i < 3; i++)
    assert_int_equal(corral_value_how(list.items[i].value), CORRAL_OUTBOX);
  for (int i = 0; i < 3; i++) corral_value_unref(list.items[i].value);
  assert_int_equal(
      corral_get_many(c, list.items, 3,
                      CORRAL_CALL(.policy = CORRAL_POLICY(.when_away = CORRAL_AWAY_ERROR)),
                      by_letter, NULL),
      CORRAL_OK);
  for (int i = 0; i < 3; i++) assert_int_equal(list.items[i].status, CORRAL_EUNAVAILABLE);
  corral_close(c);
}

/* ---- processes ----------------------------------------------------------------------------- */

typedef struct shared {
  atomic_int computes[ROUNDS][MOST], led[ROUNDS][2], wrongs, joined, arrived;
} shared;

typedef struct member {
  shared *all;
  int number, round;
  int met; /* reached the meeting in this round; no claim sent yet */
} member;

static int count_computes(corral_fill *const *fills, size_t count, void *arg) {
  member *m = arg;
  for (size_t i = 0; i < count; i++) {
    size_t len;
    const char *key = corral_fill_key(fills[i], &len);
    char text[24] = "";
    memcpy(text, key, len);
    atomic_fetch_add(&m->all->computes[m->round][strtol(strchr(text, '-') + 1, NULL, 10)], 1);
    corral_fill_bytes(fills[i], key, len);
  }
  atomic_fetch_add(&m->all->led[m->round][m->number], (int)count);
  return CORRAL_OK;
}

static void meet(shared *all, int all_of_them) {
  atomic_fetch_add(&all->arrived, 1);
  while (atomic_load(&all->arrived) < all_of_them) usleep(200);
}

/* Both processes miss before either sends a claim. A flight whose first look got no answer, on a
 * busy machine, tells no miss: its process arrives at the end of its round. */
static void meet_at_first_miss(const corral_event_info *info, void *arg) {
  member *m = arg;
  if (info->event != CORRAL_EVENT_MISS || m->met) return;
  m->met = 1;
  meet(m->all, 2 * (m->round + 1));
}

static void ask_round(corral *c, member *m) {
  char stem[16];
  snprintf(stem, sizeof stem, "%d-", m->round);
  name(stem, MOST);
  for (size_t i = 0; m->number == 1 && i < MOST / 2; i++) {
    corral_item swap = list.items[i];
    list.items[i] = list.items[MOST - 1 - i];
    list.items[MOST - 1 - i] = swap;
  }
  if (corral_get_many(c, list.items, MOST,
                      CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 60000, .lease_ms = 20000,
                                                          .lease_min_ms = 20000)),
                      count_computes, m) != CORRAL_OK)
    atomic_fetch_add(&m->all->wrongs, 1);
  for (size_t i = 0; i < MOST; i++) {
    const corral_item *item = &list.items[i];
    int good = item->status == CORRAL_OK && corral_value_size(item->value) == item->key_len &&
               memcmp(corral_value_data(item->value), item->key, item->key_len) == 0;
    if (!good)
      atomic_fetch_add(&m->all->wrongs, 1);
    else if (corral_value_how(item->value) == CORRAL_JOINED)
      atomic_fetch_add(&m->all->joined, 1);
    corral_value_unref(item->value);
  }
}

static void be_member(shared *all, int number, const char *uri, const corral_options *options) {
  member m = {.all = all, .number = number};
  corral_options own = *options;
  own.on_event = meet_at_first_miss;
  own.event_arg = &m;
  corral *c = open_at(uri, &own);
  for (m.round = 0; m.round < ROUNDS; m.round++) {
    m.met = 0;
    ask_round(c, &m);
    if (!m.met) atomic_fetch_add(&all->arrived, 1);
  }
  corral_close(c);
}

/* Each process sends its claims in batches, beginning at its own end of the list, so each holds
 * leases that the other waits for. */
static void cross(const corral_options *options) {
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  shared *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(all != MAP_FAILED);
  int crossed = 0;
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    be_member(all, 1, redis_server_unix_uri(server), options);
    _exit(0);
  }
  be_member(all, 0, redis_server_unix_uri(server), options);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(all->wrongs, 0);
  for (int round = 0; round < ROUNDS; round++) {
    crossed += all->led[round][0] > 0 && all->led[round][1] > 0;
    for (int key = 0; key < MOST; key++)
      if (all->computes[round][key] != 1)
        fail_msg("round %d, key %d: %d computes", round, key, all->computes[round][key]);
  }
  print_message("           %d of %d rounds crossed, %d joined\n", crossed, ROUNDS, all->joined);
  assert_true(crossed > 0 && all->joined > 0);
  munmap(all, sizeof *all);
}

static void
two_processes_that_each_hold_what_the_other_wants_compute_before_they_wait(void **state) {
  (void)state;
  cross(CORRAL_OPTIONS(.handles = 1));
}

static void so_they_do_when_they_poll(void **state) {
  (void)state;
  cross(CORRAL_OPTIONS(.watch = -1));
}

static void so_they_do_with_elections_on_their_host(void **state) {
  (void)state;
  cross(CORRAL_OPTIONS(.host_lock = 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(warm_keys_cost_one_round_trip_together_and_cold_ones_three),
      cmocka_unit_test(all_tags_of_warm_keys_come_with_them),
      cmocka_unit_test(so_it_is_on_redis),
      cmocka_unit_test(so_it_is_on_two_memcached),
      cmocka_unit_test(so_it_is_on_lmdb),
      cmocka_unit_test(a_record_that_is_too_big_for_the_store_fails_alone),
      cmocka_unit_test(while_the_store_is_away_each_key_is_computed_all_the_same),
      cmocka_unit_test(two_processes_that_each_hold_what_the_other_wants_compute_before_they_wait),
      cmocka_unit_test(so_they_do_when_they_poll),
      cmocka_unit_test(so_they_do_with_elections_on_their_host),
  };
  redis_server_start(&server, NULL);
  for (int i = 0; i < 2; i++) memcached_server_start(&pair[i], NULL);
  int failed = cmocka_run_group_tests_name("many_live", tests, NULL, NULL);
  redis_server_stop(server);
  for (int i = 0; i < 2; i++) memcached_server_stop(pair[i]);
  return failed;
}
