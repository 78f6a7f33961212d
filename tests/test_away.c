/* test_away.c: calls while the store is away, and the replay when it is back.
 *
 * One process alone is cut off from a running server by removing a symbolic link to the server's
 * socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "support/herd_lab.h"
#include "support/redis_server.h"

enum { KEYS = 30, THREADS = 10, CALLS = 300 };
enum { STEP, DONE, SEEN }; /* lab marks */

static redis_server *server;

/* A busy server answers within op_ms. */
static const corral_options quick = {
    .op_ms = 4000, .breaker_failures = 1, .breaker_rest_ms = 50, .away_ms = 1000};
static const corral_options patient = {.op_ms = 4000, .away_ms = 60000};

static lab *fresh_lab(void) {
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  return lab_new();
}

static void begin(lab *l, const char *uri, int threads, void (*body)(lab_seat *seat)) {
  lab_spawn(l, &(lab_plan){
                   .uri = uri, .processes = 1, .threads = threads, .body = body, .options = quick});
}

/* Looks up key 0 in another process; adds the value's number + 1 to SEEN, 1 if there is none. */
static void look(lab_seat *seat) {
  lab_answer answer = lab_look(seat->lab, seat->corral, 0);
  lab_add(&seat->lab->marks[SEEN], answer.number + 1);
}

static int found_by_another(lab *l) {
  l->marks[SEEN] = -1;
  begin(l, redis_server_uri(server), 1, look);
  lab_await(l, &l->marks[SEEN], 0);
  return l->marks[SEEN];
}

static lab_answer ask(lab_seat *seat, int key, int64_t when_away) {
  lab_work work = {.key = key};
  /* nobody takes over the lease of a leader that is late */
  const corral_policy *policy = CORRAL_POLICY(.wait_ms = 30000, .ttl_ms = 600000, .lease_ms = 30000,
                                              .lease_min_ms = 30000, .when_away = when_away);
  return lab_ask(seat, policy, &work);
}

static void expect_unkept(lab_seat *seat, const lab_answer *answer) {
  if (answer->status != CORRAL_OK || answer->how != CORRAL_COMPUTED ||
      answer->kept != CORRAL_KEPT_NOT)
    lab_wrong(seat->lab, "%s, %s, kept %d", corral_status_name(answer->status),
              corral_how_name(answer->how), (int)answer->kept);
}

static void step(lab *l) {
  int next = l->marks[DONE] + 1;
  lab_add(&l->marks[STEP], 1);
  lab_await(l, &l->marks[DONE], next);
}

static void stepped(lab_seat *seat) { lab_add(&seat->lab->marks[DONE], 1); }

/* ---- fills stay in this process ------------------------------------------------------------ */

static void expect_stored(lab_seat *seat, const lab_answer *answer) {
  if (answer->kept != CORRAL_KEPT)
    lab_wrong(seat->lab, "%s, kept %d", corral_status_name(answer->status), (int)answer->kept);
}

static void compute_twice_and_ask_again(lab_seat *seat) {
  lab_await(seat->lab, &seat->lab->marks[STEP], 1);
  for (int i = 0; i < 2; i++) {
    lab_answer answer = ask(seat, 0, CORRAL_AWAY_COMPUTE);
    expect_unkept(seat, &answer);
  }
  stepped(seat);
  lab_await(seat->lab, &seat->lab->marks[STEP], 2);
  lab_answer answer = ask(seat, 0, CORRAL_AWAY_STALE);
  lab_agree(seat->lab, 0, &answer);
}

static void ask_once(lab_seat *seat) {
  lab_answer answer = ask(seat, 0, CORRAL_AWAY_STALE);
  lab_agree(seat->lab, 0, &answer);
}

static void
what_was_computed_meanwhile_stays_here_and_its_key_is_elected_anew_once_for_all(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), 1, compute_twice_and_ask_again);
  redis_server_kill(server);
  step(l);
  assert_int_equal(l->events[0][CORRAL_EVENT_OUTBOX], 2);
  redis_server_restart(server);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
  assert_int_equal(found_by_another(l), 0);
  lab_add(&l->marks[STEP], 1);
  lab_spawn(l, &(lab_plan){.uri = redis_server_uri(server),
                           .processes = 3,
                           .threads = THREADS,
                           .body = ask_once,
                           .options = quick});
  lab_end(l);
  assert_int_equal(l->events[0][CORRAL_EVENT_REPLAYED], 0);
  assert_int_equal(l->keys[0].computes, 2 + 1);
  lab_free(l);
}

/* ---- invalidations ------------------------------------------------------------------------- */

static void invalidate(lab_seat *seat, int status) {
  int got = corral_invalidate(seat->corral, "key-0", 5, NULL);
  int fits =
      status == CORRAL_OK ? got == CORRAL_OK : got == CORRAL_EUNAVAILABLE || got == CORRAL_EINDOUBT;
  if (!fits) lab_wrong(seat->lab, "invalidate: %s", corral_status_name(got));
}

static lab_answer ask_version(lab_seat *seat, uint64_t version, const char *tag) {
  lab_work work = {.key = 0, .version = version, .tag = tag};
  return lab_ask(seat, CORRAL_POLICY(.wait_ms = 30000, .ttl_ms = 600000), &work);
}

static void only_invalidate(lab_seat *seat) { invalidate(seat, CORRAL_EUNAVAILABLE); }

static void only_invalidate_the_tag(lab_seat *seat) {
  int got = corral_invalidate_tag(seat->corral, "t", 1, NULL);
  if (got != CORRAL_EINDOUBT) lab_wrong(seat->lab, "tag: %s", corral_status_name(got));
}

static void invalidate_and_compute_a_later_version(lab_seat *seat) {
  invalidate(seat, CORRAL_EUNAVAILABLE);
  lab_answer answer = ask_version(seat, 2, NULL);
  expect_unkept(seat, &answer);
}

/* The later calls fail too, and must not undo the invalidation. */
static void invalidate_expire_and_set(lab_seat *seat) {
  invalidate(seat, CORRAL_EUNAVAILABLE);
  if (corral_expire(seat->corral, "key-0", 5, NULL) == CORRAL_OK) lab_wrong(seat->lab, "expired");
  if (corral_set(seat->corral, "key-0", 5, NULL, "x", 1) == CORRAL_OK) lab_wrong(seat->lab, "set");
}

typedef void vain(lab_seat *seat);

static void store_and_then(lab_seat *seat) {
  lab *l = seat->lab;
  vain *const *in_vain = seat->arg;
  lab_answer answer = ask_version(seat, 1, "t");
  expect_stored(seat, &answer);
  stepped(seat);
  lab_await(l, &l->marks[STEP], 1);
  (*in_vain)(seat);
  stepped(seat);
  lab_await(l, &l->marks[STEP], 2);
}

/* `upset` makes the step that invalidates fail; is_away: the process takes the store for away. */
static void expect_repeated(vain *in_vain, const corral_options *options, void (*upset)(lab *l),
                            int is_away) {
  lab *l = fresh_lab();
  lab_spawn(l, &(lab_plan){.uri = redis_server_uri(server),
                           .processes = 1,
                           .threads = 1,
                           .body = store_and_then,
                           .options = *options,
                           .arg = (void *)&in_vain});
  lab_await(l, &l->marks[DONE], 1);
  assert_int_equal(found_by_another(l), 1);
  upset(l);
  lab_await(l, &l->marks[DONE], 2);
  if (is_away) {
    lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
    assert_int_equal(l->events[0][CORRAL_EVENT_REPLAYED], 1);
  } else {
    lab_await(l, &l->events[0][CORRAL_EVENT_REPLAYED], 1);
    assert_int_equal(l->events[0][CORRAL_EVENT_STORE_DOWN], 0);
  }
  assert_int_equal(found_by_another(l), 0);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  lab_free(l);
}

static void fall_silent(lab *l) {
  redis_server_pause(server);
  step(l);
  redis_server_resume(server);
}

/* An invalidation that had a moment less than op_ms tells the breaker nothing: a probe does. */
static void fall_silent_until_away(lab *l) {
  redis_server_pause(server);
  step(l);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_DOWN], 1);
  redis_server_resume(server);
}

/* The server forgets the next write with its connection. */
static void break_the_next_write(lab *l) {
  redis_server_ask(server, "CLIENT PAUSE 600000 WRITE");
  lab_add(&l->marks[STEP], 1);
  for (int i = 0; i < 3000; i++) {
    if (strstr(redis_server_ask(server, "CLIENT LIST TYPE normal"), " flags=b ") != NULL) break;
    lab_sleep_ms(10);
  }
  redis_server_ask(server, "CLIENT KILL TYPE normal");
  redis_server_ask(server, "CLIENT UNPAUSE");
}

static void an_invalidation_that_the_store_did_not_hear_is_repeated(void **state) {
  (void)state;
  expect_repeated(only_invalidate, &quick, fall_silent_until_away, 1);
  expect_repeated(invalidate_and_compute_a_later_version, &quick, fall_silent_until_away, 1);
  expect_repeated(invalidate_expire_and_set, &quick, fall_silent_until_away, 1);
}

/* The store is slow, and never away. */
static void an_invalidation_that_a_slow_store_did_not_hear_is_repeated_as_well(void **state) {
  (void)state;
  expect_repeated(only_invalidate, &patient, fall_silent, 0);
}

/* The server is well all the time. */
static void an_invalidation_whose_connection_broke_is_repeated_as_well(void **state) {
  (void)state;
  static const corral_options defaults = {.op_ms = 30000};
  expect_repeated(only_invalidate, &defaults, break_the_next_write, 0);
  expect_repeated(only_invalidate_the_tag, &defaults, break_the_next_write, 0);
}

static void invalidate_while_others_ask(lab_seat *seat) {
  lab *l = seat->lab;
  if (seat->thread == 0) {
    ask(seat, 0, CORRAL_AWAY_COMPUTE);
    stepped(seat);
    lab_await(l, &l->marks[STEP], 1);
    invalidate(seat, CORRAL_EUNAVAILABLE);
    stepped(seat);
    return;
  }
  lab_await(l, &l->marks[DONE], 2);
  while (l->marks[STEP] < 2) {
    lab_answer answer = ask(seat, 0, CORRAL_AWAY_COMPUTE);
    if (answer.number == 1) lab_wrong(l, "%s: what was invalidated", corral_how_name(answer.how));
  }
}

static void an_invalidation_is_repeated_before_callers_are_let_to_the_store(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), THREADS, invalidate_while_others_ask);
  lab_await(l, &l->marks[DONE], 1);
  assert_int_equal(found_by_another(l), 1);
  fall_silent_until_away(l);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
  lab_await(l, &l->events[0][CORRAL_EVENT_HIT], 200);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  lab_free(l);
}

/* ---- one process is cut off, others are not ------------------------------------------------ */

static char link_path[128];

/* A URI with the path of a symbolic link that can be removed. */
static const char *by_link(lab *l) {
  static char uri[160];
  snprintf(link_path, sizeof link_path, "%s/link", l->folder);
  const char *path = strchr(redis_server_unix_uri(server), '/') + 2;
  if (symlink(path, link_path) != 0) fail_msg("symlink to %s", path);
  snprintf(uri, sizeof uri, "redis+unix://%s", link_path);
  return uri;
}

static void cut_off(void) {
  char path[128];
  snprintf(path, sizeof path, "%.120s.away", link_path);
  assert_int_equal(rename(link_path, path), 0);
  redis_server_ask(server, "CLIENT KILL TYPE normal SKIPME yes");
}

static void join_again(void) {
  char path[128];
  snprintf(path, sizeof path, "%.120s.away", link_path);
  assert_int_equal(rename(path, link_path), 0);
}

/* A fill of a process that is cut off, and a fill by another process at the same time. */
typedef struct story {
  const char *name;
  uint64_t here, there;          /* versions; 0: none */
  const char *tag;               /* tag of the value computed here */
  void (*other)(lab_seat *seat); /* NULL: nothing is stored */
  /* at the end: 1 the fill of the cut-off process, 2 the other one, 0 no value */
  int found;
} story;

static void compute_cut_off(lab_seat *seat) {
  const story *s = seat->arg;
  lab_await(seat->lab, &seat->lab->marks[STEP], 1);
  lab_answer answer = ask_version(seat, s->here, s->tag);
  expect_unkept(seat, &answer);
  stepped(seat);
  lab_await(seat->lab, &seat->lab->marks[STEP], 2);
}

static void store_it(lab_seat *seat) {
  const story *s = seat->arg;
  lab_answer answer = ask_version(seat, s->there, NULL);
  expect_stored(seat, &answer);
}

static void store_it_and_expire_it(lab_seat *seat) {
  store_it(seat);
  if (corral_expire(seat->corral, "key-0", 5, NULL) != CORRAL_OK)
    lab_wrong(seat->lab, "not expired");
}

static void store_it_and_invalidate_it(lab_seat *seat) {
  store_it(seat);
  invalidate(seat, CORRAL_OK);
}

/* After a change of the origin, stores a value with a short life, and waits until it is gone. */
static void invalidate_and_store_it_for_a_moment(lab_seat *seat) {
  const story *s = seat->arg;
  lab_work work = {.key = 0, .version = s->there};
  invalidate(seat, CORRAL_OK);
  lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 30000, .ttl_ms = 20), &work);
  expect_stored(seat, &answer);
  while (lab_look(seat->lab, seat->corral, 0).status != CORRAL_EMISS) lab_sleep_ms(5);
}

static void run_other(lab_seat *seat) {
  ((const story *)seat->arg)->other(seat);
  stepped(seat);
}

static void spawn(lab *l, const char *uri, void (*body)(lab_seat *seat), const story *s) {
  lab_spawn(l, &(lab_plan){.uri = uri,
                           .processes = 1,
                           .threads = 1,
                           .body = body,
                           .options = quick,
                           .arg = (void *)(uintptr_t)s});
}

/* Returns 1 when the end wasn't as expected. */
static int play(const story *s) {
  lab *l = fresh_lab();
  spawn(l, by_link(l), compute_cut_off, s);
  cut_off();
  step(l);
  if (s->other != NULL) {
    spawn(l, redis_server_uri(server), run_other, s);
    lab_await(l, &l->marks[DONE], 2);
  }
  join_again();
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_UP], 1);
  int offered = l->events[0][CORRAL_EVENT_REPLAYED], found = found_by_another(l);
  int wrong = found != s->found || offered != (s->found == 1);
  if (wrong) print_error("%s: found %d, offered %d\n", s->name, found, offered);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  lab_free(l);
  return wrong;
}

static void play_all(const story *stories, size_t count) {
  int wrongs = 0;
  for (size_t i = 0; i < count; i++) wrongs += play(&stories[i]);
  assert_int_equal(wrongs, 0);
}

static void
a_value_is_given_to_the_store_where_that_has_one_of_an_earlier_version_only(void **state) {
  (void)state;
  static const story stories[] = {
      {"an earlier one", .here = 2, .there = 1, .other = store_it, .found = 1},
      {"a later one", .here = 2, .there = 3, .other = store_it, .found = 2},
      {"an equal one", .here = 2, .there = 2, .other = store_it, .found = 2},
      {"one without a version", .here = 2, .there = 0, .other = store_it, .found = 2},
      {"neither has a version", .here = 0, .there = 0, .other = store_it, .found = 2},
      {"only the stored one has a version", .here = 0, .there = 1, .other = store_it, .found = 2},
      {"none", .here = 2, .other = NULL, .found = 0},
      {"an earlier one that somebody expired", .here = 2, .there = 1,
       .other = store_it_and_expire_it, .found = 0},
      {"an earlier one that somebody invalidated", .here = 2, .there = 1,
       .other = store_it_and_invalidate_it, .found = 0},
      {"a tag that could not be asked for", .here = 2, .there = 1, .tag = "t", .other = store_it,
       .found = 2},
  };
  play_all(stories, sizeof stories / sizeof *stories);
}

static void
nobody_sees_an_earlier_version_when_the_life_of_a_later_one_has_ended_meanwhile(void **state) {
  (void)state;
  static const story stories[] = {
      {"without versions", .other = invalidate_and_store_it_for_a_moment, .found = 0},
      {"with versions", .here = 1, .there = 2, .other = invalidate_and_store_it_for_a_moment,
       .found = 0},
  };
  play_all(stories, sizeof stories / sizeof *stories);
}

/* ---- answers of calls ---------------------------------------------------------------------- */

static void ask_under_each_policy(lab_seat *seat) {
  lab *l = seat->lab;
  lab_await(l, &l->marks[STEP], 1);
  lab_answer first = ask(seat, 0, CORRAL_AWAY_STALE), again = ask(seat, 0, CORRAL_AWAY_STALE);
  expect_unkept(seat, &first);
  if (again.how != CORRAL_OUTBOX || again.number != first.number)
    lab_wrong(l, "held: %s, value %d", corral_how_name(again.how), again.number);
  lab_answer error = ask(seat, 1, CORRAL_AWAY_ERROR), computed = ask(seat, 0, CORRAL_AWAY_COMPUTE);
  if (error.status != CORRAL_EUNAVAILABLE || error.error.text[0] == '\0')
    lab_wrong(l, "error: %s", corral_status_name(error.status));
  expect_unkept(seat, &computed);
  lab_answer looked = lab_look(l, seat->corral, 0);
  if (looked.status != CORRAL_EUNAVAILABLE)
    lab_wrong(l, "a look: %s", corral_status_name(looked.status));
}

static void the_policy_says_what_calls_get_while_the_store_is_away(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), 1, ask_under_each_policy);
  redis_server_kill(server);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  redis_server_restart(server);
  assert_int_equal(l->events[0][CORRAL_EVENT_OUTBOX_HIT], 1);
  assert_int_equal(l->keys[0].computes, 2);
  assert_int_equal(l->keys[1].computes, 0);
  lab_free(l);
}

static void ask_while_it_rests(lab_seat *seat) {
  lab *l = seat->lab;
  ask(seat, 0, CORRAL_AWAY_COMPUTE);
  lab_await(l, &l->events[0][CORRAL_EVENT_STORE_DOWN], 1);
  for (int i = 0; i < CALLS; i++) ask(seat, i % KEYS, CORRAL_AWAY_COMPUTE);
}

/* By the server's own count: it reads later what was sent while it hung. */
static void a_hung_store_that_rests_is_sent_little(void **state) {
  (void)state;
  lab *l = fresh_lab();
  long long before = redis_server_info(server, "total_commands_processed");
  redis_server_pause(server);
  begin(l, redis_server_uri(server), 1, ask_while_it_rests);
  lab_end(l);
  redis_server_resume(server);
  long long sent = redis_server_info(server, "total_commands_processed") - before;
  print_message("           %d calls, %lld commands\n", CALLS, sent);
  assert_in_range(sent, 1, CALLS / 10);
  lab_free(l);
}

static void ask_a_dead_origin(lab_seat *seat) {
  lab_await(seat->lab, &seat->lab->marks[STEP], 1);
  for (int i = 0; i < 50; i++) {
    lab_work work = {.key = 0, .cost_ms = 2, .failure = "dead as well"};
    lab_answer answer = lab_ask(
        seat, CORRAL_POLICY(.wait_ms = 30000, .retry_ms = 60000, .retry_max_ms = 60000), &work);
    if (answer.status != CORRAL_EFAILED || strcmp(answer.error.text, "dead as well") != 0 ||
        answer.error.retry_after_ms < 20000)
      lab_wrong(seat->lab, "%s: %s, retry after %lld ms", corral_status_name(answer.status),
                answer.error.text, (long long)answer.error.retry_after_ms);
  }
}

static void an_origin_that_fails_while_the_store_is_away_is_left_alone_as_well(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), THREADS, ask_a_dead_origin);
  redis_server_kill(server);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  redis_server_restart(server);
  assert_int_equal(l->keys[0].computes, 1);
  lab_free(l);
}

static void ask_for_the_same_key(lab_seat *seat) {
  lab_await(seat->lab, &seat->lab->marks[STEP], 1);
  for (int i = 0; i < 6; i++) {
    lab_work work = {.key = 0, .cost_ms = 20};
    lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = 30000), &work);
    expect_unkept(seat, &answer);
  }
}

/* The least pauses are half of the cost, doubling, less what clocks in ms leave out. */
static void a_key_that_is_asked_for_all_the_time_is_computed_after_growing_pauses(void **state) {
  (void)state;
  lab *l = fresh_lab();
  begin(l, redis_server_uri(server), 1, ask_for_the_same_key);
  redis_server_kill(server);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  redis_server_restart(server);
  const lab_key *key = &l->keys[0];
  assert_int_equal(key->computes, 6);
  for (int i = 0, least_us = 9000; i < 5; i++, least_us *= 2)
    if (key->log[i + 1].begun_us - key->log[i].ended_us < least_us)
      fail_msg("compute %d began %lld us after the one before", i + 2,
               (long long)(key->log[i + 1].begun_us - key->log[i].ended_us));
  lab_free(l);
}

/* ---- the return of the store --------------------------------------------------------------- */

static void ask_all_keys_all_the_time(lab_seat *seat) {
  lab *l = seat->lab;
  lab_await(l, &l->marks[STEP], 1);
  for (int i = seat->thread; l->marks[STEP] < 2; i++) {
    lab_answer answer = ask(seat, i % KEYS, CORRAL_AWAY_STALE);
    if (answer.status != CORRAL_OK)
      lab_wrong(l, "%s: %s", corral_status_name(answer.status), answer.error.text);
  }
}

static int all_computes(const lab *l) {
  int all = 0;
  for (int i = 0; i < KEYS; i++) all += l->keys[i].computes;
  return all;
}

/* Each process holds every key, so none has a reason to compute before the store is back. */
static void the_return_of_the_store_elects_each_key_once(void **state) {
  (void)state;
  lab *l = fresh_lab();
  lab_spawn(l, &(lab_plan){.uri = redis_server_uri(server),
                           .processes = 2,
                           .threads = THREADS / 2,
                           .body = ask_all_keys_all_the_time,
                           .options = quick});
  redis_server_kill(server);
  lab_add(&l->marks[STEP], 1);
  for (int i = 0; i < KEYS; i++) lab_await(l, &l->keys[i].computes, 2);
  for (int i = 0; i < 2; i++) lab_await(l, &l->events[i][CORRAL_EVENT_OUTBOX_HIT], 20 * KEYS);
  int before = all_computes(l);
  redis_server_restart(server);
  for (int i = 0; i < 2; i++) lab_await(l, &l->events[i][CORRAL_EVENT_HIT], 20 * KEYS);
  lab_add(&l->marks[STEP], 1);
  lab_end(l);
  int computes = all_computes(l) - before;
  print_message("           %d keys: %d computes while the store was away, %d at its return\n",
                KEYS, before, computes);
  assert_in_range(computes, 1, KEYS);
  for (int i = 0; i < 2; i++) assert_int_equal(l->events[i][CORRAL_EVENT_REPLAYED], 0);
  lab_free(l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(
          what_was_computed_meanwhile_stays_here_and_its_key_is_elected_anew_once_for_all),
      cmocka_unit_test(an_invalidation_that_the_store_did_not_hear_is_repeated),
      cmocka_unit_test(an_invalidation_that_a_slow_store_did_not_hear_is_repeated_as_well),
      cmocka_unit_test(an_invalidation_whose_connection_broke_is_repeated_as_well),
      cmocka_unit_test(an_invalidation_is_repeated_before_callers_are_let_to_the_store),
      cmocka_unit_test(a_value_is_given_to_the_store_where_that_has_one_of_an_earlier_version_only),
      cmocka_unit_test(
          nobody_sees_an_earlier_version_when_the_life_of_a_later_one_has_ended_meanwhile),
      cmocka_unit_test(the_policy_says_what_calls_get_while_the_store_is_away),
      cmocka_unit_test(a_hung_store_that_rests_is_sent_little),
      cmocka_unit_test(an_origin_that_fails_while_the_store_is_away_is_left_alone_as_well),
      cmocka_unit_test(a_key_that_is_asked_for_all_the_time_is_computed_after_growing_pauses),
      cmocka_unit_test(the_return_of_the_store_elects_each_key_once),
  };
  redis_server_start(&server, NULL);
  int failed = cmocka_run_group_tests_name("away", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
