/* test_redis_alike.c: what corral does on one Redis it does on a Redis Cluster, and on the primary
 * that sentinels name: users' locks, generations, the fleet's limit of computes, and the command.
 * Each story is told twice, on real servers; its names are many, so that all nodes have some. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "support/moving_kit.h"

#include "os/wait.h"
#include "support/lock_kit.h"
#include "support/redis_cluster.h"
#include "support/redis_sentinels.h"

enum { NAMES = 12, PATIENCE_MS = 30000, COMPUTES = 3, ASKERS = 6 };
enum { MEETING = CALLS + 1, GATE }; /* lab marks */

/* A waiter for a lock that the store tells of a release sleeps until it is woken, or for NAP_MS.
 * The pauses of one that isn't told yet are shorter than POLL_MS. */
enum { POLL_MS = 500, NAP_MS = 60000 };
static atomic_int naps_last, naps;

int __real_crl_waiter_sleep(crl_waiter *waiter, int64_t until);
int __wrap_crl_waiter_sleep(crl_waiter *waiter, int64_t until);
int __wrap_crl_waiter_sleep(crl_waiter *waiter, int64_t until) {
  int64_t now = crl_env_now_ms();
  if (!atomic_load(&naps_last) || until < now + POLL_MS)
    return __real_crl_waiter_sleep(waiter, until);
  atomic_fetch_add(&naps, 1);
  return __real_crl_waiter_sleep(waiter, now + NAP_MS);
}

static redis_cluster *cluster;
static redis_sentinels *set;
static const char *uri;
static int primaries;

static const char *store_uri(void) { return uri; }

static corral *of_namespace(const char *name, int generation) {
  return opened(
      &(corral_options){.name_space = name, .generation = generation, .op_ms = PATIENCE_MS / 2});
}

static int begin(void **state) {
  atomic_store(&computes, 0);
  memset(&error, 0, sizeof error);
  atomic_store(&a_lost, 0);
  atomic_store(&naps_last, 0);
  a = opened(
      &(corral_options){.op_ms = PATIENCE_MS / 2, .on_event = on_event, .event_arg = &a_lost});
  b = of_namespace(NULL, 0);
  return history_room_open(state);
}

static int end(void **state) {
  (void)close_both(state);
  if (a_lost > 0) fail_msg("a hold was lost: %s", a_detail);
  return history_room_close(state);
}

static int on_a_cluster(void **state) {
  if (cluster == NULL && !redis_cluster_start(&cluster)) skip();
  redis_cluster_empty(cluster);
  uri = redis_cluster_uri(cluster);
  primaries = REDIS_CLUSTER_PRIMARIES;
  return begin(state);
}

static int by_sentinels(void **state) {
  if (set == NULL && !redis_sentinels_start(&set)) skip();
  redis_server_ask(redis_sentinels_server(set, redis_sentinels_primary(set)), "FLUSHALL");
  uri = redis_sentinels_uri(set);
  primaries = 1;
  return begin(state);
}

static int stop(void **state) {
  (void)state;
  redis_cluster_stop(cluster);
  redis_sentinels_stop(set);
  return 0;
}

static const char *named(const char *stem, int number) {
  static char name[32];
  snprintf(name, sizeof name, "%s %d", stem, number);
  return name;
}

/* Keys of all primaries. *least: of the one that has the fewest. */
static long keys_stored(long *least) {
  long sum = 0;
  *least = LONG_MAX;
  for (int i = 0; i < primaries; i++) {
    redis_server *server = primaries == 1
                               ? redis_sentinels_server(set, redis_sentinels_primary(set))
                               : redis_cluster_node(cluster, redis_cluster_primary(cluster, i));
    long keys = strtol(redis_server_ask(server, "DBSIZE"), NULL, 10);
    sum += keys;
    if (keys < *least) *least = keys;
  }
  return sum;
}

/* ---- locks --------------------------------------------------------------------------------- */

static void each_lock_is_one_key_and_its_fencing_tokens_grow(void **state) {
  (void)state;
  long least;
  uint64_t last[NAMES] = {0};
  for (int turn = 0; turn < 4; turn++)
    for (int i = 0; i < NAMES; i++) {
      corral_lock *lock = take(turn % 2 ? a : b, named("fenced", i), CORRAL_LOCK(0));
      assert_true(corral_lock_fence(lock) > last[i]);
      last[i] = corral_lock_fence(lock);
      assert_int_equal(try(turn % 2 ? b : a, named("fenced", i), CORRAL_LOCK(0)), CORRAL_EBUSY);
      assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
    }
  assert_int_equal(keys_stored(&least), NAMES);
  assert_true(least > 0);
}

typedef struct waiter {
  pthread_t thread;
  char name[32];
  corral_lock *lock;
  int status;
} waiter;

static void *wait_for_it(void *arg) {
  waiter *w = arg;
  w->status = corral_lock_take(b, w->name, strlen(w->name),
                               CORRAL_LOCK(.ttl_ms = LONG_MS, .wait_ms = LONG_MS), &w->lock, NULL);
  return NULL;
}

/* Until it sleeps, to be woken by the store. */
static void start_waiter(waiter *w, const char *name) {
  *w = (waiter){.status = -1};
  snprintf(w->name, sizeof w->name, "%s", name);
  atomic_store(&naps, 0);
  assert_int_equal(pthread_create(&w->thread, NULL, wait_for_it, w), 0);
  for (int64_t patience = crl_env_now_ms() + PATIENCE_MS; naps == 0; crl_env_pause_us(200))
    if (crl_env_now_ms() > patience) fail_msg("%s: the store tells nothing", name);
}

static void end_waiter(waiter *w) {
  struct timespec patience;
  clock_gettime(CLOCK_REALTIME, &patience);
  patience.tv_sec += PATIENCE_MS / 1000;
  if (pthread_timedjoin_np(w->thread, NULL, &patience) != 0) fail_msg("%s: not woken", w->name);
  assert_int_equal(w->status, CORRAL_OK);
  assert_int_equal(corral_lock_release(w->lock, &error), CORRAL_OK);
}

static void the_release_of_a_lock_wakes_who_waits_for_it(void **state) {
  (void)state;
  atomic_store(&naps_last, 1);
  for (int i = 0; i < NAMES; i++) {
    waiter w;
    corral_lock *lock = take(a, named("woken", i), CORRAL_LOCK(.ttl_ms = LONG_MS));
    start_waiter(&w, named("woken", i));
    assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
    end_waiter(&w);
  }
}

/* Until the wish of the one who waits is known, readers are let in. */
static void await_barred(const char *name) {
  for (int64_t end = crl_env_now_ms() + PATIENCE_MS;
       try(a, name, CORRAL_LOCK(.shared = 1)) == CORRAL_OK; crl_env_pause_us(1000))
    if (crl_env_now_ms() > end) fail_msg("%s: readers are let in", name);
}

static void readers_are_together_and_a_writer_that_waits_has_the_next_turn(void **state) {
  (void)state;
  atomic_store(&naps_last, 1);
  for (int i = 0; i < NAMES / 2; i++) {
    waiter w;
    const char *name = named("shared", i);
    corral_lock *one = take(a, name, CORRAL_LOCK(.shared = 1, .ttl_ms = LONG_MS));
    corral_lock *two = take(b, name, CORRAL_LOCK(.shared = 1, .ttl_ms = LONG_MS));
    assert_int_equal(try(b, name, CORRAL_LOCK(0)), CORRAL_ERECURSION);
    assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
    start_waiter(&w, name);
    await_barred(name);
    assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
    end_waiter(&w);
    assert_int_equal(try(a, name, CORRAL_LOCK(.shared = 1)), CORRAL_OK);
  }
}

static void a_lock_is_taken_again_by_its_owner_and_can_become_shared(void **state) {
  (void)state;
  for (int i = 0; i < NAMES; i++) {
    const char *name = named("again", i);
    corral_lock *one = take(a, name, CORRAL_LOCK(.reentrant = 1, .ttl_ms = LONG_MS));
    corral_lock *two = take(a, name, CORRAL_LOCK(.reentrant = 1, .ttl_ms = LONG_MS));
    assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
    assert_int_equal(try(b, name, CORRAL_LOCK(0)), CORRAL_EBUSY);
    assert_int_equal(corral_lock_extend(one, LONG_MS, &error), CORRAL_OK);
    assert_int_equal(corral_lock_downgrade(one, &error), CORRAL_OK);
    assert_int_equal(try(b, name, CORRAL_LOCK(.shared = 1)), CORRAL_OK);
    corral_lock_holder holder;
    size_t count;
    assert_int_equal(corral_lock_show(b, name, strlen(name), &holder, 1, &count, &error),
                     CORRAL_OK);
    assert_int_equal(count, 1);
    assert_true(holder.shared && holder.fence == corral_lock_fence(one));
    assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
    assert_int_equal(try(b, name, CORRAL_LOCK(0)), CORRAL_OK);
  }
}

static int is_next(const void *name, size_t len, const corral_lock_holder *holders, size_t count,
                   void *arg) {
  int *number = arg;
  const char *wanted = named("listed", (*number)++);
  assert_int_equal(len, strlen(wanted));
  assert_memory_equal(name, wanted, len);
  assert_int_equal(count, 1);
  assert_int_equal(corral_lock_break(a, name, len, holders[0].fence, &error), CORRAL_OK);
  return 0;
}

/* Each is broken while it is told. */
static void the_locks_of_all_nodes_are_listed_in_order_and_can_be_broken(void **state) {
  (void)state;
  corral_lock *locks[10];
  int count = 0;
  for (int i = 10; i-- > 0;) locks[i] = take(b, named("listed", i), CORRAL_LOCK(.ttl_ms = LONG_MS));
  assert_int_equal(corral_lock_list(a, "listed", 6, is_next, &count, &error), CORRAL_OK);
  assert_int_equal(count, 10);
  for (int i = 0; i < 10; i++)
    assert_int_equal(corral_lock_release(locks[i], &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_list(a, "listed", 6, is_next, &count, &error), CORRAL_OK);
  assert_int_equal(count, 10);
}

/* ---- generations --------------------------------------------------------------------------- */

static void gets_all(corral *c, corral_how how) {
  for (int i = 0; i < NAMES; i++) assert_int_equal(gets(c, named("value", i), NULL), how);
}

static void a_generation_voids_all_values_of_its_namespace_and_no_others(void **state) {
  (void)state;
  corral *one = of_namespace("one", 1), *same = of_namespace("one", 1),
         *two = of_namespace("two", 1);
  gets_all(one, CORRAL_COMPUTED);
  gets_all(two, CORRAL_COMPUTED);
  gets_all(same, CORRAL_FRESH);
  assert_int_equal(corral_invalidate_all(one, &error), CORRAL_OK);
  gets_all(same, CORRAL_COMPUTED);
  gets_all(one, CORRAL_FRESH);
  gets_all(two, CORRAL_FRESH);
  assert_int_equal(corral_expire_all(same, &error), CORRAL_OK);
  gets_all(one, CORRAL_COMPUTED);
  gets_all(two, CORRAL_FRESH);
  corral_close(one);
  corral_close(same);
  corral_close(two);
}

/* ---- the fleet's limit of computes --------------------------------------------------------- */

static void ask_own_key(lab_seat *seat) {
  lab_work work = {.key = seat->process * ASKERS + seat->thread, .gate = &seat->lab->marks[GATE]};
  lab_meet(seat->lab, &seat->lab->marks[MEETING], PROCESSES * ASKERS, 1);
  lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = LONG_MS), &work);
  if (answer.status != CORRAL_OK)
    lab_wrong(seat->lab, "%s: %s", corral_status_name(answer.status), answer.error.text);
}

static void a_fleet_computes_at_most_so_many_keys_at_once(void **state) {
  (void)state;
  lab_spawn(current, &(lab_plan){.uri = uri,
                                 .processes = PROCESSES,
                                 .threads = ASKERS,
                                 .body = ask_own_key,
                                 .options = {.fleet_max_computes = COMPUTES,
                                             .origin = "the database",
                                             .op_ms = PATIENCE_MS / 2}});
  lab_await(current, &current->computing, COMPUTES);
  for (int i = 0; i < PROCESSES; i++)
    lab_await(current, &current->events[i][CORRAL_EVENT_LIMITED], 1);
  lab_add(&current->marks[GATE], 1);
  lab_end(current);
  assert_int_equal(current->most_computing, COMPUTES);
  for (int i = 0; i < PROCESSES * ASKERS; i++) assert_int_equal(current->keys[i].computes, 1);
}

/* ---- the command --------------------------------------------------------------------------- */

/* Runs a script in the lab's folder, which ends with the first command that fails. */
static void runs(const char *script) {
  char path[ROOM_PATH + 16], command[3 * ROOM_PATH + 100];
  snprintf(path, sizeof path, "%s/script", current->folder);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fprintf(f, "set -e\ncorral() { \"$CORRAL_COMMAND\" --op 10s --store '%s' \"$@\"; }\n%s", uri,
          script);
  assert_int_equal(fclose(f), 0);
  snprintf(command, sizeof command,
           "cd '%s' && sh -x script >out.log 2>script.log || { cat *.log >&2; exit 1; }",
           current->folder);
  assert_int_equal(system(command), 0);
}

#define EACH "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do "
#define WITH_COMMAND                                                                               \
  if (getenv("CORRAL_COMMAND") == NULL) skip()

static void the_command_runs_each_command_once_and_sets_gets_and_invalidates(void **state) {
  (void)state;
  WITH_COMMAND;
  runs(EACH "for turn in 1 2; do\n"
            "  test \"$(corral run --key r$i --tag t -- sh -c 'echo >>runs; echo ok')\" = ok\n"
            "done; done; test $(wc -l <runs) -eq 12\n" EACH "corral set v$i value$i\n"
            "  test \"$(corral get v$i)\" = value$i\n"
            "  corral --json inspect v$i | grep -q '\"state\":\"fresh\"'\n"
            "  corral expire v$i; corral invalidate v$i\n"
            "  if corral get v$i; then exit 1; fi\n"
            "done\n"
            "corral invalidate --tag t\n" EACH "if corral get r$i; then exit 1; fi; done\n");
}

static void the_command_holds_locks_and_shows_them(void **state) {
  (void)state;
  WITH_COMMAND;
  runs("mkfifo gate held\n"
       "for i in 1 2 3 4; do\n"
       "  corral lock n$i -- sh -c 'echo >held; read go <gate; exit 5' & holder=$!\n"
       "  read at <held\n"
       "  status=0; corral lock --no-wait n$i -- true || status=$?; test $status -eq 75\n"
       "  corral --json lock --show n$i | grep -q '\"fence\":[0-9]'\n"
       "  echo >gate; status=0; wait $holder || status=$?; test $status -eq 5\n"
       "  corral lock --no-wait n$i -- true\n"
       "done\n");
}

static void the_command_warms_and_storms(void **state) {
  (void)state;
  WITH_COMMAND;
  long least;
  runs("seq 1 40 | corral --json warm --ttl 1h -- echo 'value of {}' >warm\n"
       "grep -q '\"computed\":40,' warm\n"
       "for i in 1 20 40; do test \"$(corral get $i)\" = \"value of $i\"; done\n"
       "seq 1 40 | corral --json warm --ttl 1h -- false >warm\n"
       "grep -q '\"computed\":0,' warm && grep -q '\"fresh\":40,' warm\n");
  (void)keys_stored(&least);
  assert_true(least > 0);
  runs("corral -q --json storm --mode corral --processes 2 --threads 3 --load 2000 --ttl 100ms "
       "--duration 1s --keys 50 --rate 500 >storm\n"
       "grep -q '\"errors\":0,' storm && grep -q '\"wrong\":0,' storm\n"
       "! grep -q '\"computes\":0,' storm && ! grep -q '\"requests\":0,' storm\n");
}

int main(void) {
#define C(test)                                                                                    \
  { "on a cluster: " #test, test, on_a_cluster, end, NULL }
#define S(test)                                                                                    \
  { "by sentinels: " #test, test, by_sentinels, end, NULL }
#define BOTH(test) C(test), S(test)
  const struct CMUnitTest tests[] = {
      BOTH(each_lock_is_one_key_and_its_fencing_tokens_grow),
      BOTH(the_release_of_a_lock_wakes_who_waits_for_it),
      BOTH(readers_are_together_and_a_writer_that_waits_has_the_next_turn),
      BOTH(a_lock_is_taken_again_by_its_owner_and_can_become_shared),
      BOTH(the_locks_of_all_nodes_are_listed_in_order_and_can_be_broken),
      BOTH(a_generation_voids_all_values_of_its_namespace_and_no_others),
      BOTH(a_fleet_computes_at_most_so_many_keys_at_once),
      BOTH(the_command_runs_each_command_once_and_sets_gets_and_invalidates),
      BOTH(the_command_holds_locks_and_shows_them),
      BOTH(the_command_warms_and_storms),
  };
  return cmocka_run_group_tests_name("redis_alike", tests, NULL, stop);
}
