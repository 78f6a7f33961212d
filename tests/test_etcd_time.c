/* test_etcd_time.c: locks on a real etcd, through the plugin's table: the ends of holds, races, the
 * watch, and the choice of a member. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/etcd_live_kit.h"
#include "support/server_process.h"
#include "support/watch_kit.h"
#include "support/fork_kit.h"

enum { ROUNDS = 500, RACERS = 4, LANES = 4, TURNS = 25 };

/* ---- other processes: this program under another name -------------------------------------- */

/* Shared by all racers: only one may be inside at a time, and fencing tokens must grow. */
typedef struct oracle {
  atomic_int inside, overlaps, backwards, taken, lost;
  atomic_ullong fence;
} oracle;

static oracle *shared;
static int shared_fd;

static pid_t spawn(const char *role, int out) {
  char fd[12];
  pid_t parent = getpid(), pid = fork_at_rest();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  if (out >= 0) dup2(out, 1);
  snprintf(fd, sizeof fd, "%d", shared_fd);
  execl("/proc/self/exe", "test_etcd_time", role, etcd_server_uri(server), fd, (char *)NULL);
  _exit(127);
}

typedef struct lane {
  const char *uri;
  unsigned holder;
} lane;

static void once_inside(client *c, const corral_op *got, unsigned holder) {
  unsigned long long before = atomic_exchange(&shared->fence, got->lock_state.fence);
  atomic_fetch_add(&shared->overlaps, atomic_fetch_add(&shared->inside, 1) != 0);
  atomic_fetch_add(&shared->backwards, got->lock_state.fence <= before);
  atomic_fetch_add(&shared->taken, 1);
  waiter();
  atomic_fetch_sub(&shared->inside, 1);
  corral_op op = lock_op(CORRAL_VERB_UNLOCK, "race", holder, 0);
  atomic_fetch_add(&shared->lost, perform(c, &op, PATIENCE) != CORRAL_OK);
}

static void *run_lane(void *arg) {
  const lane *l = arg;
  client c = connected(l->uri);
  for (unsigned turn = 0; turn < TURNS; waiter()) {
    unsigned holder = l->holder * 1000 + turn;
    corral_op op = lock_op(CORRAL_VERB_LOCK, "race", holder, 20000);
    if (perform(&c, &op, PATIENCE) != CORRAL_OK) continue;
    once_inside(&c, &op, holder);
    turn++;
  }
  gone(&c);
  return NULL;
}

static int racer(const char *uri) {
  pthread_t threads[LANES];
  lane lanes[LANES];
  for (unsigned i = 0; i < LANES; i++) {
    lanes[i] = (lane){uri, (unsigned)getpid() * LANES + i};
    if (pthread_create(&threads[i], NULL, run_lane, &lanes[i]) != 0) return 1;
  }
  for (unsigned i = 0; i < LANES; i++) pthread_join(threads[i], NULL);
  return 0;
}

static int holder_process(const char *uri) {
  client c = connected(uri);
  if (ask(&c, CORRAL_VERB_LOCK, "dead", 1, 4000).status != CORRAL_OK || write(1, "x", 1) != 1)
    return 1;
  for (;;) pause();
}

static int other_role(char **argv) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED,
                (int)strtol(argv[3], NULL, 10), 0);
  if (shared == MAP_FAILED) return 1;
  return strcmp(argv[1], "racer") == 0 ? racer(argv[2]) : holder_process(argv[2]);
}

/* ---- time ---------------------------------------------------------------------------------- */

static void a_dead_holder_is_replaced_when_its_hold_ends(void **state) {
  (void)state;
  client c = fresh();
  int out[2];
  char byte;
  assert_int_equal(pipe2(out, O_CLOEXEC), 0);
  pid_t pid = spawn("holder", out[1]);
  close(out[1]);
  assert_int_equal(read(out[0], &byte, 1), 1);
  close(out[0]);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  corral_op op = ask(&c, CORRAL_VERB_LOCK, "dead", 2, 20000);
  assert_int_equal(op.status, CORRAL_EBUSY);
  assert_true(op.lock_state.left_ms > 0 && op.lock_state.left_ms <= 5000);
  while ((op = ask(&c, CORRAL_VERB_LOCK, "dead", 2, 20000)).status == CORRAL_EBUSY) waiter();
  assert_int_equal(op.status, CORRAL_OK);
  assert_true(op.lock_state.left_ms > 0 && op.lock_state.left_ms <= 20000);
  assert_int_equal(unlocks(&c, "dead", 2), CORRAL_OK);
  gone(&c);
}

static void a_hold_that_ended_by_itself_is_told_as_lost(void **state) {
  (void)state;
  client c = fresh();
  ear *e = ear_open(&c.k);
  int status = CORRAL_EUNAVAILABLE; /* of one that ended before its key was there */
  for (int i = 0; i < 20 && status == CORRAL_EUNAVAILABLE; i++)
    status = ask(&c, CORRAL_VERB_LOCK, "brief", 1, 100).status;
  assert_int_equal(status, CORRAL_OK);
  is_told(e, "brief");
  assert_int_equal(extends(&c, "brief", 1), CORRAL_ELOST);
  assert_int_equal(unlocks(&c, "brief", 1), CORRAL_ELOST);
  assert_int_equal(ask(&c, CORRAL_VERB_LOCK_SHOW, "brief", 1, 0).status, CORRAL_EMISS);
  ear_close(e);
  gone(&c);
}

/* The time told is shorter by the time that the request took. A busy machine needs several requests
 * until one tells enough. */
static int grants_more(client *c, corral_verb verb) {
  for (int i = 0; i < 50; i++) {
    corral_op op = ask(c, CORRAL_VERB_LOCK, "k", 1, 1000);
    assert_int_equal(op.status, CORRAL_OK);
    if (verb == CORRAL_VERB_LOCK_EXTEND) op = ask(c, verb, "k", 1, 1000);
    assert_true(op.lock_state.left_ms <= 3000);
    if (op.status == CORRAL_OK && op.lock_state.left_ms > 1000) return 1;
  }
  return 0;
}

static void what_the_server_grants_is_what_is_told(void **state) {
  (void)state;
  static const char *const slow[] = {"--heartbeat-interval", "100", "--election-timeout", "1500",
                                     NULL};
  etcd_server *other = NULL;
  if (server == NULL || !etcd_server_start(&other, slow)) skip();
  client c = connected(etcd_server_uri(other));
  assert_true(grants_more(&c, CORRAL_VERB_LOCK));
  assert_true(grants_more(&c, CORRAL_VERB_LOCK_EXTEND));
  gone(&c);
  etcd_server_stop(other);
}

static void a_hold_survives_its_server(void **state) {
  (void)state;
  client c = fresh();
  corral_op first = ask(&c, CORRAL_VERB_LOCK, "survivor", 1, 5000);
  etcd_server_kill(server);
  corral_op op = lock_op(CORRAL_VERB_LOCK_EXTEND, "survivor", 1, 5000);
  assert_int_equal(perform(&c, &op, 1000), CORRAL_EUNAVAILABLE);
  assert_int_equal(c.performed, CORRAL_EUNAVAILABLE);
  etcd_server_restart(server);
  c.k.plugin->disconnect(c.k.handle);
  assert_int_equal(connects(&c, PATIENCE), CORRAL_OK);
  op = ask(&c, CORRAL_VERB_LOCK_EXTEND, "survivor", 1, 5000);
  assert_int_equal(op.status, CORRAL_OK);
  assert_true(op.lock_state.fence == first.lock_state.fence);
  assert_int_equal(locks(&c, "survivor", 2), CORRAL_EBUSY);
  etcd_server_restart(server); /* the idle connection is replaced */
  assert_int_equal(unlocks(&c, "survivor", 1), CORRAL_OK);
  op = ask(&c, CORRAL_VERB_LOCK, "survivor", 2, 5000);
  assert_true(op.status == CORRAL_OK && op.lock_state.fence > first.lock_state.fence);
  assert_int_equal(unlocks(&c, "survivor", 2), CORRAL_OK);
  gone(&c);
}

static void fencing_tokens_grow(void **state) {
  (void)state;
  client c = fresh();
  uint64_t last = 0;
  for (unsigned i = 0; i < ROUNDS; i++) {
    corral_op op = ask(&c, CORRAL_VERB_LOCK, "fence", i + 1, 20000);
    assert_int_equal(op.status, CORRAL_OK);
    assert_true(op.lock_state.fence > last);
    last = op.lock_state.fence;
    assert_int_equal(unlocks(&c, "fence", i + 1), CORRAL_OK);
  }
  assert_int_equal(ask(&c, CORRAL_VERB_LOCK_SHOW, "none", 1, 0).status, CORRAL_EMISS);
  gone(&c);
}

static void racers_never_overlap(void **state) {
  (void)state;
  pid_t pids[RACERS];
  if (server == NULL) skip();
  memset(shared, 0, sizeof *shared);
  for (int i = 0; i < RACERS; i++) pids[i] = spawn("racer", -1);
  for (int i = 0; i < RACERS; i++) {
    int status;
    waitpid(pids[i], &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  assert_int_equal(shared->taken, RACERS * LANES * TURNS);
  assert_int_equal(shared->overlaps, 0);
  assert_int_equal(shared->backwards, 0);
  assert_int_equal(shared->lost, 0);
}

/* ---- the watch ----------------------------------------------------------------------------- */

static void a_watch_tells_of_an_unlock_and_not_of_a_lock(void **state) {
  (void)state;
  client c = fresh();
  ear *e = ear_open(&c.k);
  assert_int_equal(locks(&c, "w", 1), CORRAL_OK);
  assert_int_equal(locks(&c, "\xff", 1), CORRAL_OK);
  assert_int_equal(extends(&c, "w", 1), CORRAL_OK);
  assert_int_equal(listen_until(e, -1, c.k.host->now_ms() + 50), 0);
  assert_int_equal(unlocks(&c, "w", 1), CORRAL_OK);
  is_told(e, "w");
  assert_int_equal(unlocks(&c, "\xff", 1), CORRAL_OK);
  is_told(e, "\xff");
  assert_int_equal(e->count, 2);
  ear_close(e);
  gone(&c);
}

static void a_watch_ends_its_rest_when_it_shall(void **state) {
  (void)state;
  client c = fresh();
  ear *e = ear_open(&c.k);
  int pair[2];
  assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
  assert_int_equal(write(pair[1], "x", 1), 1);
  int64_t began = c.k.host->now_ms();
  assert_int_equal(listen_until(e, pair[0], began + 60000), 0);
  assert_true(c.k.host->now_ms() - began < 30000);
  /* longer than the watch's limit for silence */
  assert_int_equal(listen_until(e, -1, c.k.host->now_ms() + 3000), 0);
  close(pair[0]);
  close(pair[1]);
  ear_close(e);
  gone(&c);
}

/* Listens until the watch reports an error. */
static void breaks(ear *e, corral_error *error) {
  const corral_host *host = e->k->host;
  int64_t began = host->now_ms();
  while (e->k->plugin->changes(e->watch, -1, host->now_ms() + 1000, ear_hears, e, error) ==
         CORRAL_OK)
    if (host->now_ms() - began > 60000) fail_msg("the watch doesn't notice");
}

static void a_watch_notices_a_server_that_hangs_or_ends(void **state) {
  (void)state;
  client c = fresh();
  corral_error error = {0};
  ear *e = ear_open(&c.k);
  etcd_server_pause(server);
  breaks(e, &error);
  etcd_server_resume(server);
  assert_int_equal(error.status, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(error.text, "no sign of life"));
  ear_close(e);
  e = ear_open(&c.k);
  etcd_server_kill(server);
  breaks(e, &error);
  assert_int_equal(error.status, CORRAL_EUNAVAILABLE);
  ear_close(e);
  void *watch;
  assert_int_equal(c.k.plugin->watch(c.k.store, 0, c.k.host->now_ms() + 1000, &watch, &error),
                   CORRAL_EUNAVAILABLE);
  etcd_server_restart(server);
  gone(&c);
}

/* ---- members ------------------------------------------------------------------------------- */

static void the_next_member_is_asked_when_one_is_not_there(void **state) {
  (void)state;
  char text[160];
  if (server == NULL) skip();
  snprintf(text, sizeof text, "etcd://127.0.0.1:%d,127.0.0.1:%d", server_process_free_port(),
           etcd_server_port(server));
  client c = connected(text);
  assert_int_equal(locks(&c, "second", 1), CORRAL_OK);
  ear *e = ear_open(&c.k);
  assert_int_equal(unlocks(&c, "second", 1), CORRAL_OK);
  is_told(e, "second");
  ear_close(e);
  gone(&c);
  snprintf(text, sizeof text, "etcd://127.0.0.1:%d", server_process_free_port());
  assert_int_equal(open_only(&c, text), CORRAL_OK);
  assert_int_equal(connects(&c, PATIENCE), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, text + 7));
  gone(&c);
}

static void a_server_that_hangs_costs_no_more_than_the_deadline(void **state) {
  (void)state;
  client c = fresh();
  assert_int_equal(locks(&c, "hangs", 1), CORRAL_OK);
  etcd_server_pause(server);
  corral_op ops[2] = {lock_op(CORRAL_VERB_UNLOCK, "hangs", 1, 0),
                      lock_op(CORRAL_VERB_UNLOCK, "hangs", 1, 0)};
  corral_error error = {0};
  assert_int_equal(perform_ops(c.k.plugin, c.k.handle, ops, 2, c.k.host->now_ms() + 1000, &error),
                   CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[0].status, CORRAL_EINDOUBT);
  assert_int_equal(ops[1].status, CORRAL_EUNAVAILABLE);
  assert_true(error.status == CORRAL_EUNAVAILABLE && strstr(error.text, "no reply") != NULL);
  c.k.plugin->disconnect(c.k.handle);
  c.k.handle = NULL;
  assert_int_equal(connects(&c, 300), CORRAL_EUNAVAILABLE);
  etcd_server_resume(server);
  gone(&c);
}

static void a_server_without_room_says_so(void **state) {
  (void)state;
  static const char *const small[] = {"--quota-backend-bytes", "65536", NULL};
  etcd_server *other;
  if (server == NULL || !etcd_server_start(&other, small)) skip();
  client c = connected(etcd_server_uri(other));
  corral_op op;
  unsigned i = 0;
  while ((op = ask(&c, CORRAL_VERB_LOCK, "full", ++i, 20000)).status == CORRAL_OK && i < 5000)
    (void)unlocks(&c, "full", i);
  assert_int_equal(op.status, CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "space exceeded"));
  gone(&c);
  etcd_server_stop(other);
}

static int start(void **state) {
  if (begin_all(state) != 0) return -1;
  shared_fd = memfd_create("oracle", 0);
  if (shared_fd < 0 || ftruncate(shared_fd, sizeof *shared) != 0) return -1;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
  return shared == MAP_FAILED ? -1 : 0;
}

int main(int argc, char **argv) {
  if (argc == 4) return other_role(argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_dead_holder_is_replaced_when_its_hold_ends),
      cmocka_unit_test(a_hold_that_ended_by_itself_is_told_as_lost),
      cmocka_unit_test(what_the_server_grants_is_what_is_told),
      cmocka_unit_test(a_hold_survives_its_server),
      cmocka_unit_test(fencing_tokens_grow),
      cmocka_unit_test(racers_never_overlap),
      cmocka_unit_test(a_watch_tells_of_an_unlock_and_not_of_a_lock),
      cmocka_unit_test(a_watch_ends_its_rest_when_it_shall),
      cmocka_unit_test(a_watch_notices_a_server_that_hangs_or_ends),
      cmocka_unit_test(the_next_member_is_asked_when_one_is_not_there),
      cmocka_unit_test(a_server_that_hangs_costs_no_more_than_the_deadline),
      cmocka_unit_test(a_server_without_room_says_so),
  };
  if (!etcd_server_start(&server, NULL)) return 77;
  return cmocka_run_group_tests(tests, start, end_all);
}
