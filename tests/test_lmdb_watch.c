/* test_lmdb_watch.c: the watch of the lmdb: store sees changes of all processes; with real
 * processes that are killed. */
#include <sched.h>
#include <sys/stat.h>

#include "support/lmdb_kit.h"
#include "support/watch_kit.h"

/* ---- watches ------------------------------------------------------------------------------- */

static void each_change_is_told(void **state) {
  (void)state;
  kit a = opened(address("told", "")), b = opened(address("told", ""));
  ear *first = ear_open(&a), *second = ear_open(&b);
  check_verbs(&a, first);
  check_verbs(&b, second);
  ear_close(first);
  forget(second);
  put(&a, "k", 'x', 10);
  catch_up(second);
  assert_int_equal(times_told(second, "k"), 2);
  ear_close(second);
  closed(&a);
  closed(&b);
}

static void a_look_is_watched_while_a_watch_is_open(void **state) {
  (void)state;
  kit k = opened(address("looks", ""));
  closed(&k);
}

static void a_watch_keeps_the_file_open_by_itself(void **state) {
  (void)state;
  const char *uri = address("alone", "");
  kit k = opened(uri), other;
  ear *e = ear_open(&k);
  k.plugin->disconnect(k.handle);
  pid_t pid = child();
  if (pid == 0) {
    other = opened(uri);
    put(&other, "k", 'x', 10);
    closed(&other);
    _exit(0);
  }
  assert_int_equal(ended(pid), 0);
  is_told(e, "k");
  ear_close(e);
  k.plugin->close(k.store);
}

static void a_watch_ends_when_it_is_stopped_and_by_its_time(void **state) {
  (void)state;
  kit k = opened(address("ends", ""));
  check_end(&k);
  closed(&k);
}

static void a_watch_rests_while_nothing_happens(void **state) {
  (void)state;
  kit k = opened(address("rests", ""));
  check_rest(&k);
  closed(&k);
}

static void an_eviction_is_told_and_the_end_of_a_life_is_not(void **state) {
  (void)state;
  kit k = opened(address("evicts", "?size=1m"));
  ear *e = ear_open(&k);
  char key[32];
  for (unsigned i = 0; i < 600; i++) {
    put(&k, numbered(key, "k", i), 'x', 3000);
    catch_up(e);
  }
  evictions_are_told(e, 600);
  blink(&k, "soon");
  for (int64_t from = k.host->boot_ms(); k.host->boot_ms() < from + 2;) sched_yield();
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "sweeps", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "soon", 0), CORRAL_EMISS);
  catch_up(e);
  assert_int_equal(times_told(e, "soon"), 2); /* the claim, and the fill */
  ear_close(e);
  closed(&k);
}

static void a_batch_of_many_is_told(void **state) {
  (void)state;
  enum { MANY = 200 };
  kit k = opened(address("told-batch", ""));
  ear *e = ear_open(&k);
  static char keys[MANY][32];
  static corral_op ops[2 * MANY];
  for (unsigned i = 0; i < 2 * MANY; i++) {
    ops[i] = op_of(CORRAL_VERB_CLAIM, numbered(keys[i % MANY], "k", i % MANY), 1);
  }
  assert_int_equal(perform_ops(k.plugin, k.handle, ops, MANY, INT64_MAX, NULL), CORRAL_OK);
  catch_up(e);
  assert_int_equal(e->count, MANY);
  for (unsigned i = 0; i < MANY; i++) assert_int_equal(times_told(e, keys[i]), 1);
  for (unsigned i = 0; i < 2 * MANY; i++) {
    done(&ops[i]);
    ops[i].verb = CORRAL_VERB_EXTEND;
  }
  e->count = 0;
  assert_int_equal(perform_ops(k.plugin, k.handle, ops, 2 * MANY, INT64_MAX, NULL), CORRAL_OK);
  catch_up(e);
  assert_true(any_told(e));
  ear_close(e);
  closed(&k);
}

static void a_renewed_lease_frees_its_byte(void **state) {
  (void)state;
  kit k = opened(address("renewed", ""));
  put(&k, "k", 'x', 3000);
  int fd = open(file("renewed-lease"), O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1};
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
  assert_int_equal(lock.l_type, F_WRLCK);
  corral_op op = op_of(CORRAL_VERB_RENEW, "k", 1);
  op.renew.ttl_ms = 6000000;
  assert_int_equal(run(&k, &op), CORRAL_OK);
  lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1};
  assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
  assert_int_equal(lock.l_type, F_UNLCK);
  op = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_true(op.state.life_ms > 600000 && body_of(&op) == 3000);
  done(&op);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "bare", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_RENEW, "bare", 1), CORRAL_EMISS);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "bare", 2), CORRAL_EBUSY);
  close(fd);
  closed(&k);
}

static void where_no_file_can_be_mapped_there_is_no_watch(void **state) {
  (void)state;
  corral_error error = {0};
  void *watch;
  assert_int_equal(mkdir(file("mapless-watch"), 0700), 0);
  kit k = opened(address("mapless", ""));
  assert_int_equal(k.plugin->watch(k.store, 0, INT64_MAX, &watch, &error), CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "mapless-watch"));
  put(&k, "k", 'x', 10);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  closed(&k);
  write_file(file("mine-watch"), "a diary");
  k = opened(address("mine", ""));
  assert_int_equal(k.plugin->watch(k.store, 0, INT64_MAX, &watch, &error), CORRAL_EUNSUPPORTED);
  closed(&k);
  struct stat st;
  assert_int_equal(stat(file("mine-watch"), &st), 0);
  assert_int_equal(st.st_size, 7);
  assert_int_equal(rmdir(file("mapless-watch")), 0);
  k = opened(address("mapless", ""));
  ear_close(ear_open(&k));
  assert_int_equal(stat(file("mapless-watch"), &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_int_equal(stat(file("mapless-watch.new"), &st), -1);
  closed(&k);
}

/* Layout of the head of PATH-watch, as in watch.c; a killed writer leaves it inconsistent. */
typedef struct ring {
  _Atomic uint32_t head, waiting, bell;
} ring;

static ring *ring_of(const char *path) {
  int fd = open(path, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  ring *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(r, MAP_FAILED);
  close(fd);
  return r;
}

static void a_change_whose_teller_was_killed_halfway_is_told_as_any(void **state) {
  (void)state;
  kit k = opened(address("halfway", ""));
  ring *r = ring_of(file("halfway-watch"));
  ear *e = ear_open(&k);
  /* in the second pass over the ring the slot has old contents */
  for (unsigned round = 0; round < 3; round++) {
    e->count = 0;
    atomic_fetch_add(&r->head, 1);
    put(&k, "k", 'x', 10);
    catch_up(e);
    assert_true(any_told(e));
    e->count = 0;
    put(&k, "after", 'x', 10);
    catch_up(e);
    assert_int_equal(times_told(e, "after"), 2);
    assert_false(any_told(e));
    for (unsigned i = 0; i < 4096 - 10; i++) touch(&k, "fill");
    forget(e);
  }
  munmap(r, sizeof *r);
  ear_close(e);
  closed(&k);
}

static void a_watch_that_falls_behind_is_told_any(void **state) {
  (void)state;
  kit k = opened(address("behind", ""));
  ring *r = ring_of(file("behind-watch"));
  ear *e = ear_open(&k);
  assert_int_equal(listen_until(e, -1, 0), 0);
  for (unsigned i = 0; i < 4096; i++) touch(&k, "full");
  catch_up(e);
  assert_int_equal(times_told(e, "full"), 4096);
  assert_false(any_told(e));
  for (unsigned i = 0; i < 4097; i++) touch(&k, "more");
  catch_up(e);
  assert_int_equal(times_told(e, "more"), 0);
  assert_true(any_told(e));
  ear_close(e);
  atomic_store(&r->head, UINT32_MAX - 1); /* the numbers overflow to zero */
  e = ear_open(&k);
  for (unsigned i = 0; i < 5; i++) touch(&k, "around");
  catch_up(e);
  assert_int_equal(times_told(e, "around"), 5);
  assert_false(any_told(e));
  munmap(r, sizeof *r);
  ear_close(e);
  closed(&k);
}

static void a_child_of_a_fork_ends_a_watch_without_harm(void **state) {
  (void)state;
  kit k = opened(address("watched-fork", ""));
  ear *e = ear_open(&k);
  pid_t pid = child();
  if (pid == 0) {
    k.plugin->unwatch(e->watch);
    _exit(0);
  }
  assert_int_equal(ended(pid), 0);
  put(&k, "k", 'x', 10);
  is_told(e, "k");
  ear_close(e);
  closed(&k);
}

/* A process that opens a watch, increments `led`, and exits with 0 once `key` is reported. */
static pid_t listener(const char *uri, const char *key, board *b) {
  pid_t pid = child();
  if (pid == 0) {
    kit k;
    if (kit_open(&k, uri, NULL) != CORRAL_OK) _exit(1);
    ear *e = ear_open(&k);
    atomic_fetch_add(&b->led, 1);
    int heard = hears_of(e, key);
    ear_close(e);
    closed(&k);
    _exit(heard ? 0 : 1);
  }
  return pid;
}

static void watches_of_many_processes_are_told_also_when_some_are_killed(void **state) {
  (void)state;
  enum { LISTENERS = 4 };
  board *b = new_board();
  char uri[256];
  pid_t pids[LISTENERS];
  snprintf(uri, sizeof uri, "%s", address("listeners", ""));
  kit k = opened(uri);
  for (unsigned i = 0; i < LISTENERS; i++) pids[i] = listener(uri, i == 0 ? "never" : "k", b);
  while (atomic_load(&b->led) < LISTENERS) sched_yield();
  kill(pids[0], SIGKILL);
  ended(pids[0]);
  put(&k, "k", 'x', 10);
  for (unsigned i = 1; i < LISTENERS; i++) assert_int_equal(ended(pids[i]), 0);
  ear *e = ear_open(&k);
  put(&k, "l", 'x', 10);
  is_told(e, "l");
  ear_close(e);
  closed(&k);
  munmap(b, sizeof *b);
}

static void change_for_ever(const char *uri, board *b) {
  kit k;
  if (kit_open(&k, uri, NULL) != CORRAL_OK) _exit(1);
  for (;; atomic_fetch_add(&b->led, 1)) touch(&k, "other");
}

static void writers_killed_at_any_moment_leave_a_watch_that_works(void **state) {
  (void)state;
  board *b = new_board();
  char uri[256], key[32];
  snprintf(uri, sizeof uri, "%s", address("killed-tellers", ""));
  kit k = opened(uri);
  ear *e = ear_open(&k);
  for (unsigned round = 0; round < 40; round++) {
    unsigned before = atomic_load(&b->led);
    pid_t pid = child();
    if (pid == 0) change_for_ever(uri, b);
    while (atomic_load(&b->led) < before + 10 + round * 7)
      (void)listen_until(e, -1, k.host->now_ms() + 1);
    kill(pid, SIGKILL);
    ended(pid);
    forget(e);
    put(&k, numbered(key, "k", round), 'x', 100);
    is_told(e, key);
    assert_int_equal(times_told(e, "other"), 0);
  }
  ear_close(e);
  closed(&k);
  munmap(b, sizeof *b);
}

enum { CALLS = 500 };

typedef struct call {
  _Atomic int64_t called_us;
  atomic_uint ready, heard;
} call;

static void call_often(const char *uri, call *c) {
  kit k;
  if (kit_open(&k, uri, NULL) != CORRAL_OK) _exit(1);
  while (atomic_load(&c->ready) == 0) sched_yield();
  for (unsigned i = 0; i < CALLS; i++) {
    crl_env_sleep_until(crl_env_now_ms() + 1); /* by now the watch mostly sleeps */
    atomic_store(&c->called_us, crl_env_now_us());
    touch(&k, "call");
    while (atomic_load(&c->heard) <= i) sched_yield();
  }
  closed(&k);
  _exit(0);
}

static void a_change_wakes_a_watch_of_another_process_soon(void **state) {
  (void)state;
  static int64_t us[CALLS];
  char uri[256];
  call *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(c, MAP_FAILED);
  snprintf(uri, sizeof uri, "%s", address("calls", ""));
  pid_t pid = child();
  if (pid == 0) call_often(uri, c);
  kit k = opened(uri);
  ear *e = ear_open(&k);
  atomic_store(&c->ready, 1);
  for (unsigned i = 0; i < CALLS; i++) {
    assert_int_equal(listen_until(e, -1, soon(&k)), 1);
    us[i] = crl_env_now_us() - atomic_load(&c->called_us);
    atomic_store(&c->heard, i + 1);
  }
  assert_int_equal(times_told(e, "call"), CALLS);
  assert_int_equal(ended(pid), 0);
  check_times("lmdb: from a change in another process to its being told", us, CALLS);
  ear_close(e);
  closed(&k);
  munmap(c, sizeof *c);
}

/* Each change of a thread must be reported by its key or as "any". */
static void what_many_processes_change_at_once_is_told(void **state) {
  (void)state;
  enum { WRITERS = 3 };
  board *b = new_board();
  char uri[256], key[32];
  pid_t pids[WRITERS];
  snprintf(uri, sizeof uri, "%s", address("tellers", ""));
  kit k = opened(uri);
  ear *e = ear_open(&k);
  for (unsigned i = 0; i < WRITERS; i++)
    if ((pids[i] = child()) == 0) change_for_ever(uri, b);
  while (atomic_load(&b->led) < 100) sched_yield();
  for (unsigned i = 0; i < 200; i++) {
    e->count = 0;
    touch(&k, numbered(key, "k", i));
    int64_t until = soon(&k);
    while (times_told(e, key) == 0 && !any_told(e) && k.host->now_ms() < until)
      (void)listen_until(e, -1, until);
    assert_true(times_told(e, key) > 0 || any_told(e));
  }
  for (unsigned i = 0; i < WRITERS; i++) {
    kill(pids[i], SIGKILL);
    ended(pids[i]);
  }
  ear_close(e);
  closed(&k);
  munmap(b, sizeof *b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_change_is_told),
      cmocka_unit_test(a_look_is_watched_while_a_watch_is_open),
      cmocka_unit_test(a_watch_keeps_the_file_open_by_itself),
      cmocka_unit_test(a_watch_ends_when_it_is_stopped_and_by_its_time),
      cmocka_unit_test(a_watch_rests_while_nothing_happens),
      cmocka_unit_test(an_eviction_is_told_and_the_end_of_a_life_is_not),
      cmocka_unit_test(a_batch_of_many_is_told),
      cmocka_unit_test(a_renewed_lease_frees_its_byte),
      cmocka_unit_test(where_no_file_can_be_mapped_there_is_no_watch),
      cmocka_unit_test(a_change_whose_teller_was_killed_halfway_is_told_as_any),
      cmocka_unit_test(a_watch_that_falls_behind_is_told_any),
      cmocka_unit_test(a_child_of_a_fork_ends_a_watch_without_harm),
      cmocka_unit_test(watches_of_many_processes_are_told_also_when_some_are_killed),
      cmocka_unit_test(writers_killed_at_any_moment_leave_a_watch_that_works),
      cmocka_unit_test(a_change_wakes_a_watch_of_another_process_soon),
      cmocka_unit_test(what_many_processes_change_at_once_is_told),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
