/* test_zookeeper_sessions.c: locks in a real ZooKeeper: holders, connections and servers that die
 * or hang. */
#include "support/zookeeper_kit.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "support/zookeeper_proxy.h"
#include "support/fork_kit.h"

/* ---- processes ----------------------------------------------------------------------------- */

/* A process that holds `key` and reports it; on each request it extends the lock and reports the
 * status. */
typedef struct other {
  pid_t pid;
  int to[2], from[2];
} other;

static void live(const other *o, const char *key) {
  char byte;
  kit k = opened(uri_of(zookeeper_server_port(server), "?session=4s"));
  int status = tries(&k, key, 77, 0);
  if (write(o->from[1], &status, sizeof status) != sizeof status) _exit(1);
  while (read(o->to[0], &byte, 1) == 1) {
    status = extends(&k, key, 77);
    if (write(o->from[1], &status, sizeof status) != sizeof status) _exit(1);
  }
  _exit(0);
}

static int word(const other *o) {
  int status = 1;
  struct pollfd ready = {.fd = o->from[0], .events = POLLIN};
  if (poll(&ready, 1, PATIENT_MS) != 1 || read(o->from[0], &status, sizeof status) != sizeof status)
    fail_msg("the process says nothing");
  return status;
}

static other holder_of(const char *key) {
  other o;
  pid_t parent = getpid();
  assert_int_equal(pipe(o.to) | pipe(o.from), 0);
  o.pid = fork_at_rest();
  assert_true(o.pid >= 0);
  if (o.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    live(&o, key);
  }
  assert_int_equal(word(&o), CORRAL_OK);
  return o;
}

static void ended(other *o) {
  kill(o->pid, SIGKILL);
  kill(o->pid, SIGCONT);
  waitpid(o->pid, NULL, 0);
  for (int i = 0; i < 2; i++) {
    close(o->to[i]);
    close(o->from[i]);
  }
}

static void a_killed_holder_is_followed_within_its_session(void **state) {
  (void)state;
  other o = holder_of("killed");
  kit k = begin();
  ear *e = ear_open(&k);
  assert_int_equal(waits(&k, "killed", 1, 0), CORRAL_EBUSY);
  int64_t from = k.host->now_ms();
  kill(o.pid, SIGKILL);
  is_told(e, "killed");
  assert_int_equal(waits(&k, "killed", 1, 0), CORRAL_OK);
  assert_true(k.host->now_ms() - from < SESSION_MS + TICK_MS + SLACK_MS);
  ended(&o);
  ear_close(e);
  closed(&k);
}

static void a_stopped_holder_is_followed_and_learns_that_it_lost(void **state) {
  (void)state;
  other o = holder_of("stopped");
  kit k = begin();
  assert_int_equal(tries(&k, "stopped", 1, 0), CORRAL_EBUSY);
  assert_int_equal(write(o.to[1], "", 1), 1);
  assert_int_equal(word(&o), CORRAL_OK);
  kill(o.pid, SIGSTOP);
  gets_within(&k, "stopped", 1, SESSION_MS + TICK_MS + SLACK_MS);
  kill(o.pid, SIGCONT);
  int status = CORRAL_EINDOUBT;
  while (status == CORRAL_EINDOUBT || status == CORRAL_EUNAVAILABLE) {
    assert_int_equal(write(o.to[1], "", 1), 1);
    status = word(&o);
  }
  assert_int_equal(status, CORRAL_ELOST);
  assert_int_equal(extends(&k, "stopped", 1), CORRAL_OK);
  ended(&o);
  closed(&k);
}

static void a_child_may_end_what_it_inherited(void **state) {
  (void)state;
  kit k = begin();
  int status = 0;
  assert_int_equal(tries(&k, "child", 1, 0), CORRAL_OK);
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    alarm(10);
    closed(&k);
    _exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(extends(&k, "child", 1), CORRAL_OK);
  closed(&k);
}

enum { RACERS = 4, LAPS = 40 };

typedef struct track {
  atomic_int inside, readers, laps, wrong;
  _Atomic uint64_t fence;
} track;

/* Takes the lock in turns, every fourth time shared; waits like the library, by the watch and by a
 * timer. */
static void race(track *t, unsigned racer) {
  kit k = begin();
  ear *e = ear_open(&k);
  for (unsigned lap = 0; lap < LAPS; lap++) {
    unsigned holder = 1000 * (racer + 1) + lap;
    uint32_t flags = lap % 4 == 3 ? CORRAL_OP_SHARED : 0;
    corral_op op;
    while ((op = ask(&k, CORRAL_VERB_LOCK, "race", holder, flags, WISH_MS)).status == CORRAL_EBUSY)
      (void)listen_until(e, -1, k.host->now_ms() + 500);
    if (op.status != CORRAL_OK) atomic_fetch_add(&t->wrong, 1);
    if (flags == 0) {
      if (atomic_fetch_add(&t->inside, 1) != 0 || atomic_load(&t->readers) != 0)
        atomic_fetch_add(&t->wrong, 1);
      if (atomic_exchange(&t->fence, op.lock_state.fence) >= op.lock_state.fence)
        atomic_fetch_add(&t->wrong, 1);
      atomic_fetch_sub(&t->inside, 1);
    } else {
      atomic_fetch_add(&t->readers, 1);
      if (atomic_load(&t->inside) != 0) atomic_fetch_add(&t->wrong, 1);
      atomic_fetch_sub(&t->readers, 1);
    }
    atomic_fetch_add(&t->laps, 1);
    if (unlocks(&k, "race", holder) != CORRAL_OK) atomic_fetch_add(&t->wrong, 1);
  }
  ear_close(e);
  closed(&k);
  _exit(0);
}

static void many_processes_never_hold_a_lock_at_the_same_time(void **state) {
  (void)state;
  track *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t pids[RACERS], parent = getpid();
  int64_t from = crl_env_now_ms();
  assert_true(t != MAP_FAILED);
  for (unsigned i = 0; i < RACERS; i++) {
    pids[i] = fork_at_rest();
    if (pids[i] > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    race(t, i);
  }
  for (unsigned i = 0; i < RACERS; i++) {
    int status = 1;
    waitpid(pids[i], &status, 0);
    assert_int_equal(status, 0);
  }
  print_message("%d processes: %d laps in %lld ms\n", RACERS, atomic_load(&t->laps),
                (long long)(crl_env_now_ms() - from));
  assert_int_equal(atomic_load(&t->wrong), 0);
  assert_int_equal(atomic_load(&t->laps), RACERS * LAPS);
  munmap(t, sizeof *t);
}

/* ---- threads ------------------------------------------------------------------------------- */

typedef struct runner {
  const kit *k;
  unsigned number;
  atomic_int *inside;
  int wrong;
} runner;

static void *runs(void *arg) {
  runner *r = arg;
  for (unsigned i = 0; i < 15; i++) {
    unsigned holder = 100 * (r->number + 1) + i;
    char own[32];
    numbered(own, "own", r->number);
    while (waits(r->k, "common", holder, 0) != CORRAL_OK) nap_ms(1);
    r->wrong += atomic_fetch_add(r->inside, 1) != 0;
    r->wrong += tries(r->k, own, holder, 0) != CORRAL_OK;
    r->wrong += extends(r->k, "common", holder) != CORRAL_OK;
    r->wrong += unlocks(r->k, own, holder) != CORRAL_OK;
    atomic_fetch_sub(r->inside, 1);
    r->wrong += unlocks(r->k, "common", holder) != CORRAL_OK;
  }
  return NULL;
}

static void one_session_serves_many_threads(void **state) {
  (void)state;
  enum { ALL = 6 };
  kit k = begin();
  ear *e = ear_open(&k);
  pthread_t threads[ALL];
  runner runners[ALL];
  atomic_int inside = 0;
  for (unsigned i = 0; i < ALL; i++) {
    runners[i] = (runner){.k = &k, .number = i, .inside = &inside};
    assert_int_equal(pthread_create(&threads[i], NULL, runs, &runners[i]), 0);
  }
  for (unsigned i = 0; i < ALL; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(runners[i].wrong, 0);
  }
  ear_close(e);
  closed(&k);
}

static void a_watch_ends_when_it_is_stopped_and_rests_while_nothing_happens(void **state) {
  (void)state;
  kit k = begin();
  check_end(&k);
  closed(&k);
}

/* ---- connections and servers --------------------------------------------------------------- */

/* Repeats the verb until the connection is restored. */
static corral_op until_told(const kit *k, corral_verb what, const char *key, unsigned holder) {
  int64_t until = k->host->now_ms() + PATIENT_MS;
  corral_op op;
  do op = ask_within(k, what, key, holder, 0, LEASE_MS, 0, 2000);
  while ((op.status == CORRAL_EINDOUBT || op.status == CORRAL_EUNAVAILABLE) &&
         k->host->now_ms() < until);
  return op;
}

static corral_op loses_the_reply(proxy *p, const kit *k, const char *key, unsigned holder,
                                 int64_t lease_ms) {
  int lost = atomic_load(&p->lost);
  snprintf(p->needle, sizeof p->needle, "/x-");
  atomic_store(&p->mode, LOSES_A_REPLY);
  corral_op op = ask_within(k, CORRAL_VERB_LOCK, key, holder, 0, lease_ms, 0, PATIENT_MS);
  assert_int_equal(op.status, CORRAL_EINDOUBT);
  assert_int_equal(atomic_load(&p->lost), lost + 1);
  return op;
}

static void a_lock_whose_reply_was_lost_is_found_again_or_removed(void **state) {
  (void)state;
  proxy *p = proxy_start(zookeeper_server_port(server));
  kit k = opened(uri_of(p->port, "?session=4s"));
  zhandle_t *zh = outsider();
  assert_int_equal(tries(&k, "lost1", 9, 0), CORRAL_OK); /* makes the queue */
  assert_int_equal(unlocks(&k, "lost1", 9), CORRAL_OK);
  assert_int_equal(tries(&k, "lost2", 9, 0), CORRAL_OK);
  assert_int_equal(unlocks(&k, "lost2", 9), CORRAL_OK);
  assert_int_equal(tries(&k, "lost3", 9, 0), CORRAL_OK);
  assert_int_equal(unlocks(&k, "lost3", 9), CORRAL_OK);
  loses_the_reply(p, &k, "lost1", 1, LEASE_MS);
  assert_int_equal(nodes_in(zh, "/corral-locks/lost1"), 1);
  corral_op op = until_told(&k, CORRAL_VERB_LOCK, "lost1", 1);
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(nodes_in(zh, "/corral-locks/lost1"), 1);
  corral_hold hold;
  assert_int_equal(shown(&k, "lost1", &hold, NULL), 1);
  assert_int_equal(hold.fence, op.lock_state.fence);
  loses_the_reply(p, &k, "lost2", 2, LEASE_MS);
  assert_int_equal(nodes_in(zh, "/corral-locks/lost2"), 1);
  assert_int_equal(until_told(&k, CORRAL_VERB_UNLOCK, "lost2", 2).status, CORRAL_OK);
  assert_int_equal(nodes_in(zh, "/corral-locks/lost2"), 0);
  loses_the_reply(p, &k, "lost3", 3, 300); /* not requested again */
  assert_int_equal(nodes_in(zh, "/corral-locks/lost3"), 1);
  come_to(zh, "/corral-locks/lost3", 0);
  assert_int_equal(until_told(&k, CORRAL_VERB_LOCK_EXTEND, "lost1", 1).status, CORRAL_OK);
  zookeeper_close(zh);
  closed(&k);
  proxy_stop(p);
}

static void an_unlock_that_could_not_be_sent_is_made_up_for(void **state) {
  (void)state;
  proxy *p = proxy_start(zookeeper_server_port(server));
  kit k = opened(uri_of(p->port, "?session=4s"));
  zhandle_t *zh = outsider();
  assert_int_equal(tries(&k, "late", 1, 0), CORRAL_OK);
  atomic_store(&p->mode, HOLDS_ALL);
  int64_t from = k.host->now_ms();
  corral_op op = ask_within(&k, CORRAL_VERB_UNLOCK, "late", 1, 0, LEASE_MS, 0, 1000);
  assert_int_equal(op.status, CORRAL_EINDOUBT);
  assert_true(k.host->now_ms() - from >= 990);
  atomic_store(&p->mode, CUTS);
  come_to(zh, "/corral-locks/late", 0);
  zookeeper_close(zh);
  closed(&k);
  proxy_stop(p);
}

static void who_is_cut_off_for_longer_than_its_session_has_lost_its_holds(void **state) {
  (void)state;
  proxy *p = proxy_start(zookeeper_server_port(server));
  kit k = opened(uri_of(p->port, "?session=4s")), other_one = begin();
  ear *e = ear_open(&k);
  assert_int_equal(tries(&k, "cut", 1, 0), CORRAL_OK);
  atomic_store(&p->mode, HOLDS_ALL);
  gets_within(&other_one, "cut", 2, SESSION_MS + TICK_MS + SLACK_MS);
  atomic_store(&p->mode, PASSES);
  corral_op op = until_told(&k, CORRAL_VERB_LOCK_EXTEND, "cut", 1);
  assert_int_equal(op.status, CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms, -1);
  op = op_of(CORRAL_VERB_LOCK, "cut", 3);
  corral_error error = {0};
  assert_int_equal(perform_ops(k.plugin, k.handle, &op, 1, INT64_MAX, &error), CORRAL_EUNAVAILABLE);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(error.text, "session"));
  catch_up(e);
  assert_true(any_told(e));
  k.plugin->disconnect(k.handle);
  assert_int_equal(k.plugin->connect(k.store, k.host->now_ms() + PATIENT_MS, &k.handle, &error),
                   CORRAL_OK);
  op = ask(&k, CORRAL_VERB_UNLOCK, "cut", 1, 0, 0);
  assert_int_equal(op.status, CORRAL_ELOST);
  assert_int_equal(unlocks(&other_one, "cut", 2), CORRAL_OK);
  assert_int_equal(tries(&k, "cut", 4, 0), CORRAL_OK);
  ear_close(e);
  closed(&k);
  closed(&other_one);
  proxy_stop(p);
}

static void holds_outlive_a_server_that_is_killed_and_restarted(void **state) {
  (void)state;
  kit k = opened(uri_of(zookeeper_server_port(server), "?session=4s")),
      b = opened(uri_of(zookeeper_server_port(server), "?session=4s"));
  ear *e = ear_open(&b);
  corral_op op = ask(&k, CORRAL_VERB_LOCK, "restart", 1, 0, 0);
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(waits(&b, "restart", 2, 0), CORRAL_EBUSY);
  zookeeper_server_kill(server);
  corral_op down = ask_within(&k, CORRAL_VERB_LOCK_EXTEND, "restart", 1, 0, LEASE_MS, 0, 1000);
  assert_true(down.status == CORRAL_EUNAVAILABLE || down.status == CORRAL_EINDOUBT);
  zookeeper_server_restart(server);
  corral_op after = until_told(&k, CORRAL_VERB_LOCK_EXTEND, "restart", 1);
  assert_int_equal(after.status, CORRAL_OK);
  assert_int_equal(after.lock_state.fence, op.lock_state.fence);
  assert_int_equal(until_told(&b, CORRAL_VERB_LOCK, "restart", 3).status, CORRAL_EBUSY);
  assert_int_equal(unlocks(&k, "restart", 1), CORRAL_OK);
  is_told(e, "restart");
  op = ask(&b, CORRAL_VERB_LOCK, "restart", 2, 0, WISH_MS);
  assert_int_equal(op.status, CORRAL_OK);
  assert_true(op.lock_state.fence > after.lock_state.fence);
  ear_close(e);
  closed(&k);
  closed(&b);
}

static void a_server_that_hangs_costs_no_more_than_the_deadline(void **state) {
  (void)state;
  static const corral_verb verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK_EXTEND,
                                      CORRAL_VERB_LOCK_SHOW, CORRAL_VERB_UNLOCK};
  kit k = opened(uri_of(zookeeper_server_port(server), "?session=4s"));
  void *handle;
  corral_error error = {0};
  assert_int_equal(tries(&k, "hang", 1, 0), CORRAL_OK);
  zookeeper_server_pause(server);
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
    int64_t from = k.host->now_ms();
    corral_op op = ask_within(&k, verbs[i], "hang", 1, 0, LEASE_MS, 0, 100);
    assert_true(op.status == CORRAL_EINDOUBT || op.status == CORRAL_EUNAVAILABLE);
    assert_true(k.host->now_ms() - from < 100 + SLACK_MS);
  }
  int64_t from = k.host->now_ms();
  assert_int_equal(k.plugin->connect(k.store, from + 100, &handle, &error), CORRAL_EUNAVAILABLE);
  assert_true(k.host->now_ms() - from < 100 + SLACK_MS);
  zookeeper_server_resume(server);
  assert_int_equal(gets_within(&k, "hang", 2, PATIENT_MS) >= 0, 1);
  closed(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_killed_holder_is_followed_within_its_session),
      cmocka_unit_test(a_stopped_holder_is_followed_and_learns_that_it_lost),
      cmocka_unit_test(a_child_may_end_what_it_inherited),
      cmocka_unit_test(many_processes_never_hold_a_lock_at_the_same_time),
      cmocka_unit_test(one_session_serves_many_threads),
      cmocka_unit_test(a_watch_ends_when_it_is_stopped_and_rests_while_nothing_happens),
      cmocka_unit_test(a_lock_whose_reply_was_lost_is_found_again_or_removed),
      cmocka_unit_test(an_unlock_that_could_not_be_sent_is_made_up_for),
      cmocka_unit_test(who_is_cut_off_for_longer_than_its_session_has_lost_its_holds),
      cmocka_unit_test(holds_outlive_a_server_that_is_killed_and_restarted),
      cmocka_unit_test(a_server_that_hangs_costs_no_more_than_the_deadline),
  };
  void *state = NULL;
  if (setup(&state) != 0) return 77;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  teardown(&state);
  return failed;
}
