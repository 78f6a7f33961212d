/* test_lock_fair.c: locks that are waited for in turn, on each store that tells the places of its
 * queue: the order of grants, waiters that die or give up, and what is told of the queue.
 * Each waiter has a corral of its own, as a process of its own would have. */
#include "support/lock_kit.h"

#include <corral/plugin.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/folder_kit.h"
#include "support/fork_kit.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"
#if CORRAL_HAVE_mariadb
#include "support/mariadb_server.h"
#endif
#if CORRAL_HAVE_postgresql
#include "support/postgresql_server.h"
#endif
#if CORRAL_HAVE_etcd
#include "support/etcd_server.h"
#endif

enum { WAITERS = 4, ATTEMPTS = 8, CROWD = 6, GRANTS = 120, PATIENCE_MS = 60000 };

static redis_server *redis;
static memcached_server *memcached;
enum { MEMORY, LMDB, REDIS, PLAIN_REDIS, MEMCACHED, KEEPS_RECORDS, MOST = KEEPS_RECORDS + 3 };
static char uris[MOST][200];
static int stores = KEEPS_RECORDS; /* further ones where their servers are there */

#if CORRAL_HAVE_mariadb
static mariadb_server *mariadb;
static void start_mariadb(void) {
  if (!mariadb_server_start(&mariadb)) return;
  snprintf(uris[stores++], sizeof uris[0], "%s", mariadb_server_uri(mariadb));
}
#endif

#if CORRAL_HAVE_postgresql
static postgresql_server *postgresql;
static void start_postgresql(void) {
  if (postgresql_server_start(&postgresql, NULL))
    snprintf(uris[stores++], sizeof uris[0], "%s",
             postgresql_server_uri(postgresql, "?locks=advisory"));
}
#endif

#if CORRAL_HAVE_etcd
static etcd_server *etcd;
static void start_etcd(void) {
  if (etcd_server_start(&etcd, NULL))
    snprintf(uris[stores++], sizeof uris[0], "%s", etcd_server_uri(etcd));
}
#endif

static int start_stores(void **state) {
  if (make_folder(state) != 0) return -1;
  if (!redis_server_start(&redis, NULL) || !memcached_server_start(&memcached, NULL)) exit(77);
  snprintf(uris[MEMORY], sizeof uris[0], "memory:fair");
  snprintf(uris[LMDB], sizeof uris[0], "lmdb:%.150s/fair", folder);
  snprintf(uris[REDIS], sizeof uris[0], "%s", redis_server_uri(redis));
  snprintf(uris[PLAIN_REDIS], sizeof uris[0], "%s?scripts=no", redis_server_uri(redis));
  snprintf(uris[MEMCACHED], sizeof uris[0], "%s", memcached_server_uri(memcached));
#if CORRAL_HAVE_mariadb
  start_mariadb();
#endif
#if CORRAL_HAVE_postgresql
  start_postgresql();
#endif
#if CORRAL_HAVE_etcd
  start_etcd();
#endif
  return 0;
}

static int stop_stores(void **state) {
  redis_server_stop(redis);
  memcached_server_stop(memcached);
#if CORRAL_HAVE_mariadb
  mariadb_server_stop(mariadb);
#endif
#if CORRAL_HAVE_postgresql
  postgresql_server_stop(postgresql);
#endif
#if CORRAL_HAVE_etcd
  etcd_server_stop(etcd);
#endif
  return remove_folder(state);
}

static corral *opened(int store, void *event_arg, corral_event_fn *hook) {
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = uris[store], .op_ms = 10000, .on_event = hook,
                                 .event_arg = event_arg),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s: %s", uris[store], error.text);
  return c;
}

/* ---- waiters ------------------------------------------------------------------------------- */

static _Atomic int granted;
static int order[WAITERS + 1];

typedef struct waiter {
  corral *c;
  pthread_t thread;
  corral_lock_options options;
  int number, status;
  corral_error error;
} waiter;

static void *wait_for_it(void *arg) {
  waiter *w = arg;
  corral_lock *lock;
  w->status = corral_lock_take(w->c, "n", 1, &w->options, &lock, &w->error);
  if (w->status != CORRAL_OK) return NULL;
  order[atomic_fetch_add(&granted, 1)] = w->number;
  w->status = corral_lock_release(lock, &w->error);
  return NULL;
}

static void start(waiter *w, int number, const corral_lock_options *options) {
  w->number = number;
  w->options = *options;
  w->options.fair = 1;
  if (pthread_create(&w->thread, NULL, wait_for_it, w) != 0) abort();
}

static int joined(waiter *w) {
  pthread_join(w->thread, NULL);
  return w->status;
}

/* ---- order --------------------------------------------------------------------------------- */

/* The holder releases, takes again at once, and comes last. 1: the grants were in the order of
 * arrival. A thread that sleeps through its turn breaks that order by chance. */
static int is_in_order(corral *own, waiter *w) {
  atomic_store(&granted, 0);
  corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .wait_ms = PATIENCE_MS));
  for (int i = 0; i < WAITERS; i++) {
    start(&w[i], i, CORRAL_LOCK(.wait_ms = PATIENCE_MS));
    until_there_wait(own, (size_t)i + 1);
  }
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  lock = take(own, "n", CORRAL_LOCK(.fair = 1, .wait_ms = PATIENCE_MS));
  order[atomic_fetch_add(&granted, 1)] = WAITERS;
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  int sorted = 1;
  for (int i = 0; i < WAITERS; i++) assert_int_equal(joined(&w[i]), CORRAL_OK);
  for (int i = 0; i <= WAITERS; i++) sorted &= order[i] == i;
  return sorted;
}

static void grants_in_order(int store) {
  corral *own = opened(store, NULL, NULL);
  waiter w[WAITERS] = {0};
  int sorted = 0;
  for (int i = 0; i < WAITERS; i++) w[i].c = opened(store, NULL, NULL);
  for (int i = 0; i < ATTEMPTS && !sorted; i++) sorted = is_in_order(own, w);
  if (!sorted) fail_msg("%s: never in the order of arrival", uris[store]);
  for (int i = 0; i < WAITERS; i++) corral_close(w[i].c);
  corral_close(own);
}

static void grants_come_in_the_order_of_arrival(void **state) {
  (void)state;
  for (int store = 0; store < stores; store++) grants_in_order(store);
}

/* Each takes the lock again as soon as it has released it. */
typedef struct crowd {
  const char *uri;
  int fair;
  _Atomic int there;
  int last, takes, to_last; /* while the lock is held */
  int of[CROWD];
} crowd;

typedef struct member {
  crowd *crowd;
  int number;
  pthread_t thread;
} member;

static void *take_again_and_again(void *arg) {
  const member *m = arg;
  crowd *all = m->crowd;
  corral *c;
  corral_lock *lock;
  if (corral_open(CORRAL_OPTIONS(.store = all->uri, .op_ms = 10000), &c, NULL) != CORRAL_OK)
    abort();
  atomic_fetch_add(&all->there, 1);
  while (atomic_load(&all->there) < CROWD) crl_env_pause_us(100);
  for (int over = 0; !over;) {
    if (corral_lock_take(c, "n", 1, CORRAL_LOCK(.fair = all->fair, .wait_ms = PATIENCE_MS), &lock,
                         NULL) != CORRAL_OK)
      abort();
    over = all->takes >= GRANTS;
    if (!over) {
      all->takes++;
      all->of[m->number]++;
      all->to_last += all->last == m->number;
      all->last = m->number;
    }
    crl_env_pause_us(1000); /* the others come to wait */
    if (corral_lock_release(lock, NULL) != CORRAL_OK) abort();
  }
  corral_close(c);
  return NULL;
}

/* The number of grants, of a hundred, that went to the holder before. */
static int to_the_last_holder(int store, int fair) {
  crowd all = {.uri = uris[store], .fair = fair, .last = -1};
  member members[CROWD];
  int least = GRANTS, most = 0;
  for (int i = 0; i < CROWD; i++) {
    members[i] = (member){.crowd = &all, .number = i};
    if (pthread_create(&members[i].thread, NULL, take_again_and_again, &members[i]) != 0) abort();
  }
  for (int i = 0; i < CROWD; i++) pthread_join(members[i].thread, NULL);
  for (int i = 0; i < CROWD; i++) {
    least = all.of[i] < least ? all.of[i] : least;
    most = all.of[i] > most ? all.of[i] : most;
  }
  printf("%-24.24s %s: %3d %% of the grants to the last holder, %d to %d each\n", uris[store],
         fair > 0 ? "in turn" : "any way", 100 * all.to_last / GRANTS, least, most);
  return 100 * all.to_last / GRANTS;
}

/* A member that is slow to come back is overtaken, but the last holder is behind all that wait. */
static void who_takes_again_at_once_comes_after_those_that_wait(void **state) {
  (void)state;
  for (int store = 0; store < stores; store++) {
    (void)to_the_last_holder(store, CORRAL_OFF);
    assert_in_range(to_the_last_holder(store, 1), 0, 25);
  }
}

/* ---- waiters that leave -------------------------------------------------------------------- */

static pid_t wait_elsewhere(int store) {
  pid_t pid = fork_at_rest();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)take(opened(store, NULL, NULL), "n", CORRAL_LOCK(.fair = 1, .wait_ms = 3600000));
  _exit(1);
}

/* The dead one's place would last for longer than the next one waits. */
static void a_waiter_that_dies_costs_its_turn_only(void **state) {
  (void)state;
  for (int store = LMDB; store < stores; store++) {
    pid_t pid = -1;
    corral *own = opened(store, NULL, NULL);
    waiter w = {.c = opened(store, NULL, NULL)};
    corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = 3600000));
    pid = wait_elsewhere(store);
    until_there_wait(own, 1);
    start(&w, 0, CORRAL_LOCK(.wait_ms = CORRAL_LOCK_PLACE_MS * 2 / 3));
    until_there_wait(own, 2);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    atomic_store(&granted, 0);
    assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
    if (joined(&w) != CORRAL_OK) fail_msg("%s: %s", uris[store], w.error.text);
    corral_close(w.c);
    corral_close(own);
  }
}

static void a_waiter_that_is_cancelled_leaves_the_queue_at_once(void **state) {
  (void)state;
  for (int store = 0; store < stores; store++) {
    corral *own = opened(store, NULL, NULL);
    waiter w[2] = {{.c = opened(store, NULL, NULL)}, {.c = opened(store, NULL, NULL)}};
    size_t count = 99;
    corral_cancel_token *token = corral_cancel_token_new();
    corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = 3600000));
    start(&w[0], 0, CORRAL_LOCK(.wait_ms = 3600000, .cancel_token = token));
    until_there_wait(own, 1);
    start(&w[1], 1, CORRAL_LOCK(.wait_ms = 3600000));
    until_there_wait(own, 2);
    corral_cancel_token_cancel(token);
    assert_int_equal(joined(&w[0]), CORRAL_ECANCELLED);
    assert_int_equal(corral_lock_waiters(own, "n", 1, NULL, 0, &count, &error), CORRAL_OK);
    assert_int_equal(count, 1);
    atomic_store(&granted, 0);
    assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
    assert_int_equal(joined(&w[1]), CORRAL_OK);
    corral_cancel_token_free(token);
    corral_close(w[0].c);
    corral_close(w[1].c);
    corral_close(own);
  }
}

/* ---- load ---------------------------------------------------------------------------------- */

static _Atomic int ends, asked;

static void count_asked(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event == CORRAL_EVENT_LOCK_ASKED) atomic_fetch_add(&asked, 1);
}

static void *hold_until_the_end(void *arg) {
  waiter *w = arg;
  corral_lock *lock;
  if (corral_lock_take(w->c, "n", 1, CORRAL_LOCK(.fair = 1, .wait_ms = PATIENCE_MS, .keep = 1),
                       &lock, NULL) != CORRAL_OK)
    abort();
  atomic_fetch_add(&granted, 1);
  while (!atomic_load(&ends)) crl_env_pause_us(1000);
  if (corral_lock_release(lock, NULL) != CORRAL_OK) abort();
  return NULL;
}

static long long calls(void) {
  const char *at = strstr(redis_server_ask(redis, "INFO commandstats"), "cmdstat_evalsha:calls=");
  assert_non_null(at);
  return strtoll(strchr(at, '=') + 1, NULL, 10);
}

static long long cost_of_a_try(corral *c, int fair) {
  corral_lock *lock;
  long long before = calls();
  assert_int_equal(
      corral_lock_take(c, "n", 1, CORRAL_LOCK(.fair = fair, .wait_ms = CORRAL_OFF), &lock, &error),
      CORRAL_EBUSY);
  return calls() - before;
}

static void one_try_in_turn_costs_what_any_costs(void **state) {
  (void)state;
  corral *own = opened(REDIS, NULL, NULL), *other = opened(REDIS, NULL, NULL);
  corral_lock *lock = take(own, "n", CORRAL_LOCK(.ttl_ms = 3600000));
  assert_int_equal(cost_of_a_try(other, CORRAL_OFF), 1);
  assert_int_equal(cost_of_a_try(other, 1), 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  corral_close(other);
  corral_close(own);
}

/* The third of the queue, where each holder has the lock for more than a second: it is woken at
 * each change, and looks once in a second beside. */
static void asks_seldom_behind_slow_holders(int store) {
  corral *own = opened(store, NULL, NULL);
  waiter next = {.c = opened(store, NULL, NULL)}, w[3] = {0};
  for (int i = 0; i < 3; i++) w[i].c = opened(store, NULL, i == 2 ? count_asked : NULL);
  corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = 3600000));
  atomic_store(&granted, 0);
  atomic_store(&ends, 0);
  if (pthread_create(&next.thread, NULL, hold_until_the_end, &next) != 0) abort();
  until_there_wait(own, 1);
  for (int i = 0; i < 3; i++) {
    start(&w[i], i, CORRAL_LOCK(.wait_ms = 3600000));
    until_there_wait(own, (size_t)i + 2);
  }
  crl_env_pause_us(1500000);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  while (atomic_load(&granted) == 0) crl_env_pause_us(1000);
  crl_env_pause_us(500000); /* all have learned their new places */
  int64_t from = crl_env_now_ms();
  int before = atomic_load(&asked);
  crl_env_pause_us(3000000);
  int asks = atomic_load(&asked) - before;
  int64_t ms = crl_env_now_ms() - from;
  atomic_store(&granted, 0);
  atomic_store(&ends, 1);
  pthread_join(next.thread, NULL);
  for (int i = 0; i < 3; i++) assert_int_equal(joined(&w[i]), CORRAL_OK);
  if (asks > 8 * ms / 3000) fail_msg("%s: %d requests in %d ms", uris[store], asks, (int)ms);
  for (int i = 0; i < 3; i++) corral_close(w[i].c);
  corral_close(next.c);
  corral_close(own);
}

static void a_waiter_that_is_woken_asks_seldom_behind_slow_holders(void **state) {
  (void)state;
  asks_seldom_behind_slow_holders(MEMORY);
  asks_seldom_behind_slow_holders(REDIS);
}

/* ---- what is told -------------------------------------------------------------------------- */

enum { TOLD = 1, TOLD_SECOND }; /* without a place, and with the second one */
static _Atomic int told;

static void note_wait(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event != CORRAL_EVENT_LOCK_WAIT) return;
  int second = info->detail != NULL && strcmp(info->detail, "place 2 in the queue") == 0;
  if (second || info->detail == NULL) atomic_store(&told, second ? TOLD_SECOND : TOLD);
}

/* A server that has a queue of its own may show the place only after the first answer. */
static void place_and_queue_are_told(void **state) {
  (void)state;
  for (int store = 0; store < stores; store++) {
    corral *own = opened(store, NULL, NULL), *late = opened(store, NULL, note_wait);
    waiter w = {.c = opened(store, NULL, NULL)};
    corral_lock_waiter seen[2];
    corral_lock_holder holder;
    size_t count;
    corral_lock *none, *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = 3600000));
    start(&w, 0, CORRAL_LOCK(.wait_ms = 3600000, .note = "the first"));
    until_there_wait(own, 1);
    atomic_store(&told, 0);
    error.text[0] = '\0';
    /* the first request, or the one that shows the place, may take longer than a short wait */
    for (int64_t wait = 300;
         (atomic_load(&told) == 0 || strstr(error.text, ", place 2") == NULL) && wait < PATIENCE_MS;
         wait *= 2)
      assert_int_equal(
          corral_lock_take(late, "n", 1, CORRAL_LOCK(.fair = 1, .wait_ms = wait), &none, &error),
          CORRAL_EDEADLINE);
    assert_non_null(strstr(error.text, ", place 2 in the queue"));
    assert_in_range(atomic_load(&told), store < KEEPS_RECORDS ? TOLD_SECOND : TOLD, TOLD_SECOND);
    assert_int_equal(corral_lock_waiters(own, "n", 1, seen, 2, &count, &error), CORRAL_OK);
    assert_int_equal(count, 1);
    assert_non_null(strstr(seen[0].who, " the first"));
    assert_true(seen[0].waited_ms >= 0 && seen[0].shared == 0);
    assert_int_equal(corral_lock_show(own, "n", 1, &holder, 1, &count, &error), CORRAL_OK);
    assert_int_equal(count, 1); /* a waiter is no holder */
    atomic_store(&granted, 0);
    assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
    assert_int_equal(joined(&w), CORRAL_OK);
    corral_close(late);
    corral_close(w.c);
    corral_close(own);
  }
}

static void a_store_without_turns_says_so(void **state) {
  (void)state;
  corral *c;
  corral_lock *lock;
  static const char uri[] = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"; /* nobody is asked */
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = uri), &c, &error), CORRAL_OK);
  assert_int_equal(corral_lock_take(c, "n", 1, CORRAL_LOCK(.fair = 1), &lock, &error),
                   CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "keeps no turns"));
  corral_close(c);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(grants_come_in_the_order_of_arrival),
      cmocka_unit_test(who_takes_again_at_once_comes_after_those_that_wait),
      cmocka_unit_test(a_waiter_that_dies_costs_its_turn_only),
      cmocka_unit_test(a_waiter_that_is_cancelled_leaves_the_queue_at_once),
      cmocka_unit_test(a_waiter_that_is_woken_asks_seldom_behind_slow_holders),
      cmocka_unit_test(one_try_in_turn_costs_what_any_costs),
      cmocka_unit_test(place_and_queue_are_told),
      cmocka_unit_test(a_store_without_turns_says_so),
  };
  return cmocka_run_group_tests(tests, start_stores, stop_stores);
}
