/* test_stops.c: leaders that are stopped (SIGSTOP) for a second at a random moment of their compute
 * and then go on: how many of their keys are computed twice, with a waiter for each key and
 * without.
 *
 * CORRAL_STOPS=n: so many stops of each kind (32). CORRAL_SEED=n repeats the random choices.
 * CORRAL_KIND=text: only the kinds whose name has this text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/policy.h"
#include "support/herd_lab.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum {
  LEADERS = 32,
  STOP_MS = 1000,
  LONG_STOP_MS = 1500,
  COST_LEAST = 20,
  COST_LOW = 500,
  COST_MOST = 2500,
  PATIENCE_MS = 60000
};
enum { GO, READY, DONE, END }; /* lab marks */

typedef enum phase { COMPUTES, STOPPED, GOES_ON } phase;

/* What befalls a leader; its key has the same number. */
typedef struct fate {
  int64_t cost_ms, stop_after_ms; /* since the begin of its compute */
  int64_t stopped_us, stop_ms;    /* when it was stopped, and for how long */
  phase phase;
} fate;

typedef struct kind {
  const char *name;
  const char *uri; /* NULL: lmdb */
  int waited;      /* a waiter in another process asks for each key */
  int known;       /* the key was computed before, and invalidated: its cost is known, and low */
} kind;

/* Sums over the rounds of a kind. */
typedef struct sums {
  int stops, twice, unstored, fenced, long_stops, wrongly;
} sums;

static fate fates[LEADERS];
static char space[24]; /* the round's name space */
static uint64_t dice;

static int64_t between(int64_t least, int64_t most) {
  return least + (int64_t)(crl_policy_mix(dice++) % (uint64_t)(most - least + 1));
}

static const corral_policy patient = {.size = sizeof(corral_policy), .wait_ms = 60000};

/* ---- the processes ------------------------------------------------------------------------- */

/* Process number i leads for key i. */
static void lead(lab_seat *seat) {
  lab *l = seat->lab;
  const kind *k = seat->arg;
  char name[16];
  int key = seat->process;
  lab_work work = {.key = key, .cost_ms = fates[key].cost_ms};
  size_t len = lab_key_name(name, key);
  if (k->known) {
    lab_ask(seat, &patient, &work);
    if (corral_invalidate(seat->corral, name, len, NULL) != CORRAL_OK)
      lab_wrong(l, "the invalidation of %s failed", name);
  }
  lab_add(&l->marks[READY], 1);
  lab_await_ms(&l->marks[GO], 1, PATIENCE_MS);
  lab_answer answer = lab_ask(seat, &patient, &work);
  if (answer.status != CORRAL_OK) lab_wrong(l, "%s: %s", name, answer.error.text);
  lab_add(&l->marks[DONE], 1);
  lab_await_ms(&l->marks[END], 1, PATIENCE_MS); /* so that there is a process to stop */
}

/* Thread number i waits for key i. */
static void wait_beside(lab_seat *seat) {
  lab *l = seat->lab;
  const kind *k = seat->arg;
  lab_work work = {.key = seat->thread, .cost_ms = fates[seat->thread].cost_ms};
  lab_await_ms(&l->keys[seat->thread].computes, 1 + k->known, PATIENCE_MS);
  lab_answer answer = lab_ask(seat, &patient, &work);
  if (answer.status != CORRAL_OK) lab_wrong(l, "waiter %d: %s", work.key, answer.error.text);
  lab_add(&l->marks[DONE], 1);
}

/* ---- a round ------------------------------------------------------------------------------- */

static void decide_fates(const kind *k) {
  for (int i = 0; i < LEADERS; i++) {
    fates[i] = (fate){.cost_ms = between(COST_LEAST, k->known ? COST_LOW : COST_MOST)};
    fates[i].stop_after_ms = between(0, fates[i].cost_ms - 1);
  }
}

/* Stops each leader at its moment, and lets it go on after STOP_MS. Returns how many did. */
static int attend(lab *l, int before) {
  int ended = 0;
  for (int i = 0; i < LEADERS; i++) {
    fate *f = &fates[i];
    int64_t now = lab_now_us();
    if (f->phase == COMPUTES && atomic_load(&l->keys[i].computes) > before &&
        now >= l->keys[i].begun_us + f->stop_after_ms * 1000) {
      f->stopped_us = now;
      lab_stop(l, i);
      f->phase = STOPPED;
    } else if (f->phase == STOPPED && now >= f->stopped_us + INT64_C(1000) * STOP_MS) {
      f->stop_ms = (now - f->stopped_us) / 1000;
      lab_continue(l, i);
      f->phase = GOES_ON;
    }
    ended += f->phase == GOES_ON;
  }
  return ended;
}

/* Counts what became of each key. A stop that a busy machine made much longer proves nothing. */
static void count(lab *l, const kind *k, const char *uri, sums *sum) {
  corral *c = NULL;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = uri, .name_space = space), &c, NULL),
                   CORRAL_OK);
  for (int i = 0; i < LEADERS; i++) {
    int twice = atomic_load(&l->keys[i].computes) - k->known > 1;
    int stored = lab_look(l, c, i).status == CORRAL_OK;
    int is_long = fates[i].stop_ms > LONG_STOP_MS;
    sum->stops++;
    sum->twice += twice;
    sum->unstored += !stored;
    sum->long_stops += is_long;
    sum->wrongly += !is_long && (!stored || (twice && !k->waited));
    sum->fenced += l->events[i][CORRAL_EVENT_FENCED] > 0;
    if (atomic_load(&l->keys[i].computes) - k->known > 2) lab_wrong(l, "key-%d: thrice", i);
  }
  corral_close(c);
}

static void run_round(const kind *k, sums *sum) {
  static unsigned rounds;
  lab *l = lab_new();
  const char *uri = k->uri != NULL ? k->uri : lab_lmdb(l, "store");
  lab_plan plan = {.uri = uri,
                   .processes = LEADERS,
                   .threads = 1,
                   .options = {.name_space = space},
                   .body = lead,
                   .arg = (void *)(uintptr_t)k};
  snprintf(space, sizeof space, "round-%u", ++rounds);
  decide_fates(k);
  lab_spawn(l, &plan);
  if (!lab_await_ms(&l->marks[READY], LEADERS, PATIENCE_MS)) fail_msg("the leaders aren't ready");
  plan.processes = 1;
  plan.threads = LEADERS;
  plan.body = wait_beside;
  if (k->waited) lab_spawn(l, &plan);
  lab_add(&l->marks[GO], 1);
  while (attend(l, k->known) < LEADERS) lab_sleep_ms(1);
  int done = lab_await_ms(&l->marks[DONE], LEADERS * (1 + k->waited), PATIENCE_MS);
  lab_add(&l->marks[END], 1);
  if (!done) fail_msg("a call didn't end");
  count(l, k, uri, sum);
  lab_end(l);
  lab_free(l);
}

/* Returns how many keys had an end that no stop of STOP_MS explains. */
static int run_kind(const kind *k) {
  const char *wish = getenv("CORRAL_STOPS"), *only = getenv("CORRAL_KIND");
  int stops = wish != NULL ? (int)strtol(wish, NULL, 10) : LEADERS;
  sums sum = {0};
  if (only != NULL && strstr(k->name, only) == NULL) return 0;
  while (sum.stops < stops) run_round(k, &sum);
  print_message("           %s: %d stops of 1 s, %d keys computed twice, %d not stored, %d fenced; "
                "%d stops were longer\n",
                k->name, sum.stops, sum.twice, sum.unstored, sum.fenced, sum.long_stops);
  return sum.wrongly;
}

/* ---- stores -------------------------------------------------------------------------------- */

static void run_kinds(const char *store, const char *uri) {
  int wrongly = 0;
  for (int waited = 0; waited < 2; waited++)
    for (int known = 0; known < 2; known++) {
      char name[80];
      snprintf(name, sizeof name, "%s, %s, cost %s", store, waited ? "waited" : "alone",
               known ? "low" : "unknown");
      wrongly += run_kind(&(kind){.name = name, .uri = uri, .waited = waited, .known = known});
    }
  assert_int_equal(wrongly, 0);
}

static void a_stopped_leader_without_a_waiter_stores_its_value_on_redis(void **state) {
  (void)state;
  redis_server *server;
  if (!redis_server_start(&server, NULL)) skip();
  run_kinds("redis", redis_server_unix_uri(server));
  redis_server_stop(server);
}

static void a_stopped_leader_without_a_waiter_stores_its_value_on_memcached(void **state) {
  (void)state;
  memcached_server *server;
  if (!memcached_server_start(&server, NULL)) skip();
  run_kinds("memcached", memcached_server_uri(server));
  memcached_server_stop(server);
}

static void a_stopped_leader_without_a_waiter_stores_its_value_on_lmdb(void **state) {
  (void)state;
  run_kinds("lmdb", NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_stopped_leader_without_a_waiter_stores_its_value_on_redis),
      cmocka_unit_test(a_stopped_leader_without_a_waiter_stores_its_value_on_memcached),
      cmocka_unit_test(a_stopped_leader_without_a_waiter_stores_its_value_on_lmdb),
  };
  const char *seed = getenv("CORRAL_SEED");
  dice = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)lab_now_us();
  print_message("CORRAL_SEED=%llu\n", (unsigned long long)dice);
  return cmocka_run_group_tests_name("stops", tests, NULL, NULL);
}
