/* test_history_controls.c: caches that break promise 2, each in one way that is common. The checker
 * of histories (support/history.c) must find each of them out, on a real Redis; and find nothing
 * where the one fault is mended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <pthread.h>

#include "support/history_room.h"
#include "support/redis_server.h"

enum { INVALIDATED, GATE, ASKED, LOST, RENEWED }; /* lab marks */
enum { LEASE_MS = 60000, PATIENCE_MS = 10000, HURRY_MS = 5000, OP_MS = 250, WATCHED_MS = 4000 };

static redis_server *server;

static const corral_options plain = {0};

static int begin(void **state) {
  if (server != NULL) redis_server_ask(server, "FLUSHALL");
  return history_room_open(state);
}

static void spawn(int threads, const corral_options *options, void (*body)(lab_seat *seat)) {
  if (server == NULL) skip();
  lab_spawn(current, &(lab_plan){.uri = redis_server_uri(server),
                                 .processes = 1,
                                 .threads = threads,
                                 .options = *options,
                                 .body = body});
}

static const corral_policy patient = {.size = sizeof patient,
                                      .ttl_ms = 600000,
                                      .wait_ms = PATIENCE_MS,
                                      .lease_ms = LEASE_MS,
                                      .lease_min_ms = LEASE_MS,
                                      .near_ms = LEASE_MS};

static history_call ask_behind(lab_seat *seat, atomic_int *gate) {
  history_call call = {.history = entries, .seat = seat, .gate = gate};
  int status = history_ask(&call, &patient);
  if (status != CORRAL_OK) lab_wrong(seat->lab, "%s", corral_status_name(status));
  return call;
}

static void ask(lab_seat *seat) {
  ask_behind(seat, NULL);
  lab_add(&seat->lab->marks[ASKED], 1);
}

static void ask_at_the_gate(lab_seat *seat) {
  ask_behind(seat, &seat->lab->marks[GATE]);
  lab_add(&seat->lab->marks[ASKED], 1);
}

static void invalidate(lab_seat *seat) {
  int status = history_invalidate(entries, seat, 0);
  if (status != CORRAL_OK) lab_wrong(seat->lab, "%s", corral_status_name(status));
  lab_add(&seat->lab->marks[INVALIDATED], 1);
}

static history_verdict verdict(int64_t near_ms) {
  lab_end(current);
  history_verdict seen = history_judge(entries, &(history_rules){.near_ns = near_ms * 1000000});
  assert_true(seen.bound > 0);
  return seen;
}

static void expect_found_out(int64_t near_ms) {
  history_verdict seen = verdict(near_ms);
  assert_true(seen.wrong > 0);
  assert_non_null(strstr(seen.first, "A3"));
}

static void expect_good(int64_t near_ms) {
  history_verdict seen = verdict(near_ms);
  if (seen.wrong > 0) fail_msg("%zu wrong: %s", seen.wrong, seen.first);
}

/* ---- no guard ------------------------------------------------------------------------------ */

/* GET; on a miss, read the source and SET: as most programs use a cache. The entry's answer. */
static void get_or_set(redisContext *redis, lab_seat *seat, atomic_int *gate, history_entry *e) {
  char text[64];
  redisReply *reply = redisCommand(redis, "GET %s", "key-0");
  e->how = CORRAL_FRESH;
  if (reply != NULL && reply->type == REDIS_REPLY_STRING) {
    sscanf(reply->str, "%" SCNu64 " %zu", &e->version, &e->compute);
    freeReplyObject(reply);
    return;
  }
  freeReplyObject(reply);
  e->how = CORRAL_COMPUTED;
  e->compute = history_begin(entries, seat->lab,
                             &(history_entry){.kind = HISTORY_COMPUTE, .process = seat->process});
  e->version = entries->entries[e->compute].version = entries->source[0];
  lab_add(&seat->lab->keys[0].computes, 1);
  lab_await(seat->lab, gate, 1);
  history_end(entries, e->compute);
  snprintf(text, sizeof text, "%" PRIu64 " %zu", e->version, e->compute);
  freeReplyObject(redisCommand(redis, "SET %s %s", "key-0", text));
}

static redisContext *dial(lab_seat *seat) {
  redisContext *redis = redisConnectUnix(redis_server_socket(server));
  if (redis == NULL || redis->err != 0) lab_wrong(seat->lab, "no connection");
  return redis;
}

static void ask_without_a_guard(lab_seat *seat) {
  redisContext *redis = dial(seat);
  history_entry call = {.kind = HISTORY_CALL, .process = seat->process}, answer = call;
  size_t at = history_begin(entries, seat->lab, &call);
  get_or_set(redis, seat, &seat->lab->marks[GATE], &answer);
  entries->entries[at].how = answer.how;
  entries->entries[at].version = answer.version;
  entries->entries[at].compute = answer.compute;
  history_end(entries, at);
  redisFree(redis);
  lab_add(&seat->lab->marks[ASKED], 1);
}

static void invalidate_without_a_guard(lab_seat *seat) {
  redisContext *redis = dial(seat);
  history_entry entry = {.kind = HISTORY_INVALIDATE, .process = seat->process};
  entry.version = history_change(entries, seat, 0);
  size_t at = history_begin(entries, seat->lab, &entry);
  freeReplyObject(redisCommand(redis, "DEL %s", "key-0"));
  history_end(entries, at);
  redisFree(redis);
  lab_add(&seat->lab->marks[INVALIDATED], 1);
}

/* The first process stores what it had read before the invalidation; the third one is served it. */
static void a_cache_without_a_guard_is_found_out(void **state) {
  (void)state;
  spawn(1, &plain, ask_without_a_guard);
  lab_await(current, &current->keys[0].computes, 1);
  spawn(1, &plain, invalidate_without_a_guard);
  lab_await(current, &current->marks[INVALIDATED], 1);
  lab_add(&current->marks[GATE], 1);
  lab_await(current, &current->marks[ASKED], 1);
  spawn(1, &plain, ask_without_a_guard);
  expect_found_out(0);
}

static void the_same_with_a_guard_is_good(void **state) {
  (void)state;
  spawn(1, &plain, ask_at_the_gate);
  lab_await(current, &current->keys[0].computes, 1);
  spawn(1, &plain, invalidate);
  lab_await(current, &current->marks[INVALIDATED], 1);
  lab_add(&current->marks[GATE], 1);
  lab_await(current, &current->marks[ASKED], 1);
  spawn(1, &plain, ask);
  expect_good(0);
}

/* ---- joiners of voided computes ------------------------------------------------------------ */

/* A "single flight" in front of the cache, as many languages have one: who calls while another
 * thread of the process asks for the key waits for its answer. */
static struct {
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  int flies, lands;
  history_call call;
  /* what its joiners are told; 1: they get the value before it is stored, but not before their
   * deadline */
  corral_kept kept;
  int keeps_back;
} flight = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void join_flight(lab_seat *seat) {
  history_entry call = {.kind = HISTORY_CALL, .process = seat->process};
  size_t at = history_begin(entries, seat->lab, &call);
  history_limit(entries, at, HURRY_MS);
  lab_add(&seat->lab->marks[GATE], 1);
  while (!flight.lands) pthread_cond_wait(&flight.cond, &flight.mutex);
  if (flight.keeps_back) lab_sleep_until_us(entries->entries[at].deadline / 1000);
  entries->entries[at].how = CORRAL_JOINED;
  entries->entries[at].kept = flight.kept;
  entries->entries[at].version = flight.call.version;
  entries->entries[at].compute = flight.call.compute;
  history_end(entries, at);
}

static void share_a_flight(lab_seat *seat) {
  if (seat->thread == 1) lab_await(seat->lab, &seat->lab->marks[INVALIDATED], 1);
  pthread_mutex_lock(&flight.mutex);
  if (flight.flies) {
    join_flight(seat);
    pthread_mutex_unlock(&flight.mutex);
    return;
  }
  flight.flies = 1;
  pthread_mutex_unlock(&flight.mutex);
  history_call call = ask_behind(seat, &seat->lab->marks[GATE]);
  pthread_mutex_lock(&flight.mutex);
  flight.call = call;
  flight.lands = 1;
  pthread_cond_broadcast(&flight.cond);
  pthread_mutex_unlock(&flight.mutex);
}

static void join_after_an_invalidation(corral_kept kept, int keeps_back) {
  flight.kept = kept;
  flight.keeps_back = keeps_back;
  spawn(2, &plain, share_a_flight);
  lab_await(current, &current->keys[0].computes, 1);
  spawn(1, &plain, invalidate);
}

static void joiners_that_get_the_value_of_a_voided_compute_are_found_out(void **state) {
  (void)state;
  join_after_an_invalidation(CORRAL_KEPT, 0);
  expect_found_out(0);
}

static void newcomers_that_get_an_unsettled_value_at_once_are_found_out(void **state) {
  (void)state;
  join_after_an_invalidation(CORRAL_KEPT_UNKNOWN, 0);
  expect_found_out(0);
}

static void newcomers_that_get_it_at_their_deadline_are_good(void **state) {
  (void)state;
  join_after_an_invalidation(CORRAL_KEPT_UNKNOWN, 1);
  expect_good(0);
}

/* ---- a replay without versions ------------------------------------------------------------- */

/* Computes while the store is lost, keeps the value, and stores it when the store is back and
 * another process has a newer one. */
static void replay(lab_seat *seat, uint64_t version) {
  lab *l = seat->lab;
  corral_value *value = NULL;
  history_call call = {.history = entries, .seat = seat, .gate = &l->marks[LOST]};
  int status = corral_get_or_compute(seat->corral, "key-0", 5, CORRAL_CALL(.policy = &patient),
                                     history_compute, &call, &value);
  if (status != CORRAL_OK || corral_value_kept(value) == CORRAL_KEPT)
    lab_wrong(l, "%s, and the store was not lost", corral_status_name(status));
  lab_add(&l->marks[ASKED], 1);
  lab_await(l, &l->marks[RENEWED], 1);
  do {
    status =
        corral_set(seat->corral, "key-0", 5, CORRAL_CALL(.policy = &patient, .version = version),
                   corral_value_data(value), corral_value_size(value));
  } while (status == CORRAL_EUNAVAILABLE || status == CORRAL_EINDOUBT);
  if (status != (version == 0 ? CORRAL_OK : CORRAL_EOLDER))
    lab_wrong(l, "the replay: %s", corral_status_name(status));
  corral_value_unref(value);
  lab_add(&l->marks[ASKED], 1);
}

static void replay_without_a_version(lab_seat *seat) { replay(seat, 0); }
static void replay_with_a_version(lab_seat *seat) { replay(seat, 1); }

static void renew(lab_seat *seat) {
  invalidate(seat);
  history_call call = {.history = entries, .seat = seat, .is_versioned = 1};
  if (history_ask(&call, &patient) != CORRAL_OK) lab_wrong(seat->lab, "not renewed");
  lab_add(&seat->lab->marks[RENEWED], 1);
}

static void replay_behind(void (*body)(lab_seat *seat)) {
  spawn(1, &(corral_options){.op_ms = OP_MS}, body);
  lab_await(current, &current->keys[0].computes, 1);
  redis_server_pause(server);
  lab_add(&current->marks[LOST], 1);
  lab_await(current, &current->marks[ASKED], 1);
  redis_server_resume(server);
  spawn(1, &plain, renew);
  lab_await(current, &current->marks[ASKED], 2);
  spawn(1, &plain, ask);
}

static void a_replay_without_versions_is_found_out(void **state) {
  (void)state;
  replay_behind(replay_without_a_version);
  expect_found_out(0);
}

static void a_replay_with_versions_is_good(void **state) {
  (void)state;
  replay_behind(replay_with_a_version);
  expect_good(0);
}

/* ---- a copy without a watch ---------------------------------------------------------------- */

/* Asks until a copy answers, and once more when the bound of a watched one is over. */
static void ask_now_and_later(lab_seat *seat) {
  lab *l = seat->lab;
  for (int i = 0; i < LAB_PATIENCE_MS && l->events[seat->process][CORRAL_EVENT_NEAR] == 0; i++) {
    ask_behind(seat, NULL);
    lab_sleep_ms(1);
  }
  lab_add(&l->marks[ASKED], 1);
  lab_await(l, &l->marks[INVALIDATED], 1);
  lab_sleep_ms(WATCHED_MS + 100);
  ask_behind(seat, NULL);
}

static void ask_near(int64_t watch) {
  spawn(1, &(corral_options){.near_bytes = 1 << 20, .watch = watch}, ask_now_and_later);
  lab_await(current, &current->marks[ASKED], 1);
  assert_int_equal(current->events[0][CORRAL_EVENT_NEAR], 1);
  spawn(1, &plain, invalidate);
}

static void a_near_copy_without_a_watch_is_found_out(void **state) {
  (void)state;
  ask_near(CORRAL_OFF);
  expect_found_out(WATCHED_MS);
}

static void a_near_copy_with_a_watch_is_good(void **state) {
  (void)state;
  ask_near(1);
  expect_good(WATCHED_MS);
}

#define WITH_LAB(test) cmocka_unit_test_setup_teardown(test, begin, history_room_close)

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_LAB(a_cache_without_a_guard_is_found_out),
      WITH_LAB(the_same_with_a_guard_is_good),
      WITH_LAB(joiners_that_get_the_value_of_a_voided_compute_are_found_out),
      WITH_LAB(newcomers_that_get_an_unsettled_value_at_once_are_found_out),
      WITH_LAB(newcomers_that_get_it_at_their_deadline_are_good),
      WITH_LAB(a_replay_without_versions_is_found_out),
      WITH_LAB(a_replay_with_versions_is_good),
      WITH_LAB(a_near_copy_without_a_watch_is_found_out),
      WITH_LAB(a_near_copy_with_a_watch_is_good),
  };
  redis_server_start(&server, NULL);
  int failed = cmocka_run_group_tests_name("history controls", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
