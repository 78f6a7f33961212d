/* test_stops.c: leaders that are stopped (SIGSTOP) for a second at a random moment of their compute
 * and then go on: how many of their keys are computed twice, with a waiter for each key and
 * without.
 *
 * A round in which a busy machine held this program or a leader up proves nothing: it is played
 * again, but only so many times in all. Where no round of a kind proves anything, the test is
 * skipped.
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
  COST_LEAST = 20,
  COST_LOW = 500,
  COST_MOST = 2500,
  LATE_MS = 600,
  HOST_LATE_MS = 200, /* who waits at the host's lock leaves it after lease_ms, for a lease that has
                       * 1.33 s left at least */
  TICK_MS = 10,
  RETRIES = 24,
  PATIENCE_MS = 60000
};
enum { GO, READY, DONE, END, LATE }; /* lab marks */

typedef enum phase { COMPUTES, STOPPED, GOES_ON } phase;

/* The fate of one leader; its key has the same number. */
typedef struct fate {
  int64_t cost_ms, stop_after_ms; /* since the begin of its compute */
  int64_t stopped_us;             /* when it was stopped */
  phase phase;
} fate;

typedef struct kind {
  const char *name;
  const char *uri; /* NULL: lmdb */
  int waited;      /* a waiter in another process asks for each key */
  int on_host;     /* they share a host lock */
  int known;       /* the key was computed before, and invalidated: its cost is known, and low */
} kind;

/* Sums over the rounds of a kind; of those that a busy machine held up, only their number. */
typedef struct sums {
  int stops, twice, unstored, fenced, rounds, held_up;
} sums;

static fate fates[LEADERS];
static char space[24]; /* the round's name space */
static uint64_t dice;

static int64_t between(int64_t least, int64_t most) {
  return least + (int64_t)(crl_policy_mix(dice++) % (uint64_t)(most - least + 1));
}

static const corral_policy patient = {.size = sizeof(corral_policy), .wait_ms = 60000};

/* ---- the processes ------------------------------------------------------------------------- */

/* Counts the fills of the key that were stored, in `agreed`. */
static lab_answer ask(lab_seat *seat, lab_work *work) {
  lab_answer answer = lab_ask(seat, &patient, work);
  if (answer.how == CORRAL_COMPUTED && answer.kept == CORRAL_KEPT)
    atomic_fetch_add(&seat->lab->keys[work->key].agreed, 1);
  return answer;
}

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
  lab_answer answer = ask(seat, &work);
  if (answer.status != CORRAL_OK) lab_wrong(l, "%s: %s", name, answer.error.text);
  lab_add(&l->marks[DONE], 1);
  lab_await_ms(&l->marks[END], 1, PATIENCE_MS); /* so that there is a process to stop */
}

/* Notes by how many ms this process was held up at most, but for its stop. */
static void watch_the_clock(lab *l) {
  int was_stopped = 0;
  lab_await_ms(&l->marks[GO], 1, PATIENCE_MS);
  for (int64_t last = lab_now_us(), now; atomic_load(&l->marks[END]) == 0; last = now) {
    lab_sleep_ms(TICK_MS);
    now = lab_now_us();
    int late = (int)((now - last) / 1000), seen = atomic_load(&l->marks[LATE]);
    if (!was_stopped && late >= STOP_MS / 2) late -= STOP_MS, was_stopped = 1;
    while (seen < late && !atomic_compare_exchange_weak(&l->marks[LATE], &seen, late)) continue;
  }
}

static void lead_and_watch(lab_seat *seat) {
  if (seat->thread == 0)
    lead(seat);
  else
    watch_the_clock(seat->lab);
}

/* Thread number i waits for key i. */
static void wait_beside(lab_seat *seat) {
  lab *l = seat->lab;
  const kind *k = seat->arg;
  lab_work work = {.key = seat->thread, .cost_ms = fates[seat->thread].cost_ms};
  lab_await_ms(&l->keys[seat->thread].computes, 1 + k->known, PATIENCE_MS);
  lab_answer answer = ask(seat, &work);
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

/* Stops each leader at its moment, and lets it go on after STOP_MS. Returns how many go on. */
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
      lab_continue(l, i);
      f->phase = GOES_ON;
    }
    ended += f->phase == GOES_ON;
  }
  return ended;
}

/* Returns the longest ms by which this program was late. */
static int64_t attend_all(lab *l, int before) {
  int64_t latest = 0, last = lab_now_us();
  while (attend(l, before) < LEADERS) {
    lab_sleep_ms(1);
    int64_t now = lab_now_us();
    if (now - last > latest) latest = now - last;
    last = now;
  }
  return latest / 1000;
}

/* Counts what became of each key. */
static void count(lab *l, const kind *k, const char *uri, sums *sum) {
  corral *c = NULL;
  corral_options options = {
      .size = sizeof options, .store = uri, .name_space = space, .op_ms = PATIENCE_MS};
  assert_int_equal(corral_open(&options, &c, NULL), CORRAL_OK);
  for (int i = 0; i < LEADERS; i++) {
    int computes = atomic_load(&l->keys[i].computes) - k->known;
    sum->stops++;
    sum->twice += computes > 1;
    int fills = atomic_load(&l->keys[i].agreed);
    sum->unstored += fills == 0 && lab_look(l, c, i).status == CORRAL_EMISS;
    if (fills > 1) lab_wrong(l, "%d fills of key-%d were stored", fills, i);
    sum->fenced += l->events[i][CORRAL_EVENT_FENCED] > 0;
    if (computes > 2) lab_wrong(l, "key-%d was computed %d times", i, computes);
  }
  corral_close(c);
}

static void run_round(const kind *k, sums *sum) {
  static unsigned rounds;
  lab *l = lab_new();
  const char *uri = k->uri != NULL ? k->uri : lab_lmdb(l, "store");
  lab_plan plan = {.uri = uri,
                   .processes = LEADERS,
                   .threads = 2,
                   .options = {.name_space = space, .host_dir = l->folder},
                   .body = lead_and_watch,
                   .arg = (void *)(uintptr_t)k};
  if (k->on_host) plan.options.host_lock = 1;
  snprintf(space, sizeof space, "round-%u", ++rounds);
  decide_fates(k);
  lab_spawn(l, &plan);
  if (!lab_await_ms(&l->marks[READY], LEADERS, PATIENCE_MS)) fail_msg("the leaders aren't ready");
  plan.processes = 1;
  plan.threads = LEADERS;
  plan.body = wait_beside;
  if (k->waited) lab_spawn(l, &plan);
  lab_add(&l->marks[GO], 1);
  int64_t late_ms = attend_all(l, k->known);
  int64_t end_us = lab_now_us() + 1000 * (COST_MOST + LATE_MS);
  int done = lab_await_ms(&l->marks[DONE], LEADERS * (1 + k->waited), PATIENCE_MS);
  if (atomic_load(&l->marks[LATE]) > late_ms) late_ms = atomic_load(&l->marks[LATE]);
  lab_add(&l->marks[END], 1);
  if (!done) fail_msg("a call didn't end");
  sum->rounds++;
  if (late_ms > (k->on_host ? HOST_LATE_MS : LATE_MS) || (!k->waited && lab_now_us() > end_us))
    sum->held_up++;
  else
    count(l, k, uri, sum);
  lab_end(l);
  lab_free(l);
}

/* Adds how many values were lost: not stored, or computed twice without a waiter or while the
 * host's lock was held. Returns 0 when no round proved anything. */
static int run_kind(const kind *k, int *lost) {
  const char *wish = getenv("CORRAL_STOPS"), *only = getenv("CORRAL_KIND");
  int stops = wish != NULL ? (int)strtol(wish, NULL, 10) : LEADERS;
  sums sum = {0};
  if (only != NULL && strstr(k->name, only) == NULL) return 1;
  static int retries = RETRIES;
  if (wish != NULL) retries = stops;
  do run_round(k, &sum);
  while (sum.stops < stops && (sum.stops > 0 || retries-- > 0));
  print_message("           %s: %d stops of 1 s, %d keys computed twice, %d not stored, %d fenced; "
                "%d of %d rounds were held up\n",
                k->name, sum.stops, sum.twice, sum.unstored, sum.fenced, sum.held_up, sum.rounds);
  *lost += sum.unstored + (k->waited && !k->on_host ? 0 : sum.twice);
  return sum.stops > 0;
}

/* ---- stores -------------------------------------------------------------------------------- */

static void run_kinds(const char *store, const char *uri) {
  static const char *const company[] = {"alone", "waited", "waited on its host"};
  int lost = 0, proved = 1;
  for (int i = 0; i < 3; i++)
    for (int known = 0; known < 2; known++) {
      char name[80];
      snprintf(name, sizeof name, "%s, %s, cost %s", store, company[i], known ? "low" : "unknown");
      kind k = {.name = name, .uri = uri, .waited = i > 0, .on_host = i > 1, .known = known};
      /* lmdb: needs no host lock */
      if (uri != NULL || !k.on_host) proved &= run_kind(&k, &lost);
    }
  assert_int_equal(lost, 0);
  if (proved) return;
  print_message("           the machine is too busy: of some kinds nothing is proved\n");
  skip();
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
