/* test_lock_rows.c: the flaws of the usual Redis locks, row by row (docs/locks.md has the table),
 * against a real Redis and corral's own API: rows A, R, T and N. */
#include <sys/mman.h>

#include "support/lock_rows_kit.h"
#include "support/fork_kit.h"

/* ---- A: acquire ---------------------------------------------------------------------------- */

static void
a1_a_holder_killed_between_take_and_free_is_replaced_by_the_end_of_its_ttl(void **state) {
  (void)state;
  pid_t holder = hold_elsewhere(*CORRAL_LOCK(.ttl_ms = 5000));
  assert_int_equal(try(a, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  kill_it(holder);
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.wait_ms = 20000));
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void a6_one_unit_everywhere_what_is_left_is_what_was_asked_for(void **state) {
  (void)state;
  static const int64_t lives[] = {50, 999, 1000, 1001, 5000, 86400000};
  for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
    corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = lives[i]));
    corral_lock_holder who = {.left_ms = 0}; /* a short hold may be over */
    size_t count;
    long long pttl = strtoll(redis_server_ask(server, "PTTL ~lock::n"), NULL, 10);
    assert_in_range(pttl, lives[i], lives[i] + 60000);
    assert_true(corral_lock_left_ms(lock) <= lives[i]);
    if (lives[i] >= 999) {
      assert_int_equal(corral_lock_show(b, "n", 1, &who, 1, &count, &error), CORRAL_OK);
      assert_in_range(who.left_ms, lives[i] > 20000 ? lives[i] - 20000 : 0, lives[i]);
    }
    corral_lock_release(lock, NULL);
  }
}

/* 200 waiters in 4 corrals must send few requests and end at their deadlines. */
static void a7_waiters_ask_seldom(void **state) {
  (void)state;
  enum { WAITERS = 200 };
  static waiter w[WAITERS];
  corral *c[4] = {a, b, open_one(NULL), open_one(NULL)};
  pid_t holder = hold_elsewhere(*CORRAL_LOCK(.ttl_ms = 60000));
  long long before = redis_server_info(server, "total_commands_processed");
  for (int i = 0; i < WAITERS; i++) start(&w[i], c[i % 4], CORRAL_LOCK(.wait_ms = 2000));
  for (int i = 0; i < WAITERS; i++) {
    pthread_join(w[i].thread, NULL);
    assert_int_equal(w[i].status, CORRAL_EDEADLINE);
  }
  long long commands = redis_server_info(server, "total_commands_processed") - before;
  printf("a7: %.2f commands a waiter\n", (double)commands / WAITERS);
  /* log2(250 / 5) growing pauses, then one every 250 ms for 2 s */
  assert_true(commands <= WAITERS * (6 + 8));
  corral_close(c[2]);
  corral_close(c[3]);
  kill_it(holder);
}

/* The server loses its data: killed and restarted empty, then flushed. */
static void a9_a_server_that_lost_the_lock_is_noticed_and_the_later_token_is_larger(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 60000));
  uint64_t fence = corral_lock_fence(lock);
  redis_server_kill(server);
  redis_server_restart(server);
  corral_lock *next = take(b, "n", CORRAL_LOCK(.wait_ms = 10000));
  assert_true(corral_lock_fence(next) > fence);
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_TAKEN);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  fence = corral_lock_fence(next);
  redis_server_ask(server, "FLUSHALL");
  lock = take(a, "n", CORRAL_LOCK(0));
  assert_true(corral_lock_fence(lock) > fence);
  assert_int_equal(corral_lock_release(next, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void
a5_a_lock_without_ttl_of_others_is_reported_and_healed_once_only_on_request(void **state) {
  (void)state;
  corral_lock *none = NULL;
  redis_server_ask(server, "SETNX ~lock::n someone");
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.wait_ms = 30000), &none, &error),
                   CORRAL_EFOREIGN);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_FOREIGN), 1);
  assert_string_equal(redis_server_ask(server, "PTTL ~lock::n"), "-1");
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.repair_ms = 300, .wait_ms = 20000));
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_REPAIRED), 1);
  corral_lock_release(lock, NULL);
  redis_server_ask(server, "DEL ~lock::n");
  redis_server_ask(server, "SET ~lock::n someone PX 100000");
  assert_int_equal(
      corral_lock_take(a, "n", 1, CORRAL_LOCK(.wait_ms = 200, .repair_ms = 50), &none, &error),
      CORRAL_EDEADLINE);
  assert_true(strtoll(redis_server_ask(server, "PTTL ~lock::n"), NULL, 10) > 90000);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_REPAIRED), 1);
}

/* ---- R: ownership and release -------------------------------------------------------------- */

static void r1_a_slow_holder_does_not_delete_its_successors_lock(void **state) {
  (void)state;
  corral_lock *slow = take(a, "n", CORRAL_LOCK(.ttl_ms = 50));
  corral_lock *next = take(b, "n", CORRAL_LOCK(.wait_ms = 20000, .ttl_ms = 60000));
  assert_int_equal(corral_lock_release(slow, &error), CORRAL_ELOST);
  assert_int_equal(try(a, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(next, &error), CORRAL_OK);
}

static int by_bytes(const void *x, const void *y) { return memcmp(x, y, 16); }

/* The source of tokens, 128 bits from the kernel, in 64 children of one process. */
static void r2_r3_tokens_of_forked_processes_are_never_the_same(void **state) {
  (void)state;
  enum { CHILDREN = 64, TOKENS = 5000, ALL = CHILDREN * TOKENS };
  uint8_t drawn[16]; /* the parent has more of what it drew along with these */
  assert_int_equal(crl_env_random(drawn, sizeof drawn), CORRAL_OK);
  uint8_t(*tokens)[16] =
      mmap(NULL, ALL * 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t pids[CHILDREN];
  assert_ptr_not_equal(tokens, MAP_FAILED);
  for (int i = 0; i < CHILDREN; i++) {
    pids[i] = fork_at_rest();
    if (pids[i] != 0) continue;
    for (int j = 0; j < TOKENS; j++)
      if (crl_env_random(tokens[i * TOKENS + j], 16) != CORRAL_OK) _exit(1);
    _exit(0);
  }
  for (int i = 0, status; i < CHILDREN; i++) {
    waitpid(pids[i], &status, 0);
    assert_int_equal(status, 0);
  }
  qsort(tokens, ALL, 16, by_bytes);
  for (int i = 1; i < ALL; i++) assert_true(memcmp(tokens[i - 1], tokens[i], 16) != 0);
  munmap(tokens, ALL * 16);
}

static void a_forked_child_names_itself(void **state) {
  (void)state;
  char parent[96], child[96], pid[32];
  size_t len = crl_env_holder_thread(parent, sizeof parent);
  assert_int_equal(len, strlen(parent));
  assert_non_null(strstr(parent, "/"));
  pid_t forked = fork_at_rest();
  if (forked == 0) {
    crl_env_holder_thread(child, sizeof child);
    snprintf(pid, sizeof pid, "/%ld/%ld", (long)getpid(), (long)getpid());
    _exit(strstr(child, pid) == NULL);
  }
  int status;
  assert_int_equal(waitpid(forked, &status, 0), forked);
  assert_int_equal(status, 0);
  assert_int_equal(crl_env_holder(parent, 4), 3); /* cut to size: "h/1" is the least */
  assert_int_equal(parent[3], '\0');
}

static void r8_what_became_of_a_hold_is_told_apart_and_told_once(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(0));
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  lock = take(a, "n", CORRAL_LOCK(0));
  redis_server_ask(server, "DEL ~lock::n");
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_EXPIRED);
  assert_non_null(strstr(error.text, "fencing token"));
  lock = take(a, "n", CORRAL_LOCK(0));
  redis_server_ask(server, "DEL ~lock::n");
  corral_lock *next = take(b, "n", CORRAL_LOCK(0));
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_TAKEN);
  assert_int_equal(atomic_load(&a_lost), 2);
  redis_server_pause(server);
  int status = corral_lock_release(next, &error);
  redis_server_resume(server);
  assert_true(status == CORRAL_EINDOUBT || status == CORRAL_EUNAVAILABLE);
  assert_int_equal(corral_counter(b, CORRAL_EVENT_LOCK_LOST), 0);
}

static void r9_f2_others_see_who_holds_it_and_for_how_long(void **state) {
  (void)state;
  char pid[32];
  corral_lock_holder who;
  size_t count;
  pid_t holder = hold_elsewhere(*CORRAL_LOCK(.ttl_ms = 30000, .note = "report 7"));
  snprintf(pid, sizeof pid, "/%ld/", (long)holder);
  assert_int_equal(corral_lock_show(a, "n", 1, &who, 1, &count, &error), CORRAL_OK);
  assert_int_equal(count, 1);
  assert_non_null(strstr(who.who, pid));
  assert_non_null(strstr(who.who, "report 7"));
  assert_in_range(who.left_ms, 1, 30000);
  assert_int_equal(try(a, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_non_null(strstr(error.text, "report 7"));
  kill_it(holder);
}

static void f2_when_a_holder_crashes_a_hundred_waiters_all_have_their_turn(void **state) {
  (void)state;
  enum { WAITERS = 100 };
  static waiter w[WAITERS];
  pid_t holder = hold_elsewhere(*CORRAL_LOCK(.ttl_ms = 1000));
  for (int i = 0; i < WAITERS; i++) start(&w[i], i % 2 ? a : b, CORRAL_LOCK(.wait_ms = 30000));
  until(a, CORRAL_EVENT_LOCK_ASKED, 1);
  kill_it(holder);
  for (int i = 0; i < WAITERS; i++) {
    pthread_join(w[i].thread, NULL);
    assert_int_equal(w[i].status, CORRAL_OK);
  }
}

/* Resumes the server between the ends of the caller's first request and of its second: each may
 * take DOUBTFUL_MS, so that both threads may sleep for a while. */
enum { HASTY_MS = 2000, DOUBTFUL_MS = 7000 };

static void *resume_between(void *arg) {
  crl_env_pause_us(DOUBTFUL_MS * 1500);
  redis_server_resume(server);
  return arg;
}

static corral *open_hasty(int64_t op_ms) {
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = op_ms,
                                 .breaker_failures = 100, .away_ms = 60000),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

/* The paused server performs the request when it is resumed. */
static void r6_a_take_whose_reply_was_lost_leaves_nothing_held(void **state) {
  (void)state;
  pthread_t resumes;
  corral *hasty = open_hasty(DOUBTFUL_MS);
  corral_lock *none = NULL;
  assert_int_equal(try(hasty, "n", CORRAL_LOCK(0)), CORRAL_OK); /* opens the connection */
  redis_server_pause(server);
  if (pthread_create(&resumes, NULL, resume_between, NULL) != 0) abort();
  assert_int_equal(corral_lock_take(hasty, "n", 1,
                                    CORRAL_LOCK(.ttl_ms = 60000, .wait_ms = CORRAL_OFF), &none,
                                    &error),
                   CORRAL_EINDOUBT);
  pthread_join(resumes, NULL);
  corral_lock *lock = take(b, "n", CORRAL_LOCK(.wait_ms = 30000));
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  corral_close(hasty);
}

static void
r6_a_release_whose_reply_was_lost_is_unknown_though_the_second_finds_nothing(void **state) {
  (void)state;
  pthread_t resumes;
  corral *hasty = open_hasty(DOUBTFUL_MS);
  corral_lock *lock = take(hasty, "n", CORRAL_LOCK(.ttl_ms = 60000));
  redis_server_pause(server);
  if (pthread_create(&resumes, NULL, resume_between, NULL) != 0) abort();
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_EINDOUBT);
  pthread_join(resumes, NULL);
  assert_int_equal(corral_counter(hasty, CORRAL_EVENT_LOCK_LOST), 0);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
  corral_close(hasty);
}

/* Resumes the server when the time of a hold has passed that a began to ask for. */
enum { BRIEF_MS = 400 };

static void *resume_too_late(void *asked) {
  until(a, CORRAL_EVENT_LOCK_ASKED, *(const uint64_t *)asked + 1);
  crl_env_pause_us(BRIEF_MS * 2000);
  redis_server_resume(server);
  return NULL;
}

/* The reply comes later than the hold's ttl_ms after the request, so the grant counts as over. */
static void a_grant_that_comes_too_late_is_none_and_leaves_nothing_held(void **state) {
  (void)state;
  pthread_t resumes;
  corral_lock *none = NULL;
  assert_int_equal(try(a, "n", CORRAL_LOCK(0)), CORRAL_OK); /* opens the connection */
  uint64_t asked = corral_counter(a, CORRAL_EVENT_LOCK_ASKED);
  redis_server_pause(server);
  if (pthread_create(&resumes, NULL, resume_too_late, &asked) != 0) abort();
  int status = corral_lock_take(a, "n", 1, CORRAL_LOCK(.ttl_ms = BRIEF_MS, .wait_ms = CORRAL_OFF),
                                &none, &error);
  pthread_join(resumes, NULL);
  assert_int_equal(status, CORRAL_EINDOUBT);
  assert_non_null(strstr(error.text, "too late"));
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
}

static void a_server_that_is_away_is_asked_with_pauses(void **state) {
  (void)state;
  corral_lock *none = NULL;
  redis_server_kill(server);
  int status = corral_lock_take(a, "n", 1, CORRAL_LOCK(.wait_ms = 1000), &none, &error);
  redis_server_restart(server);
  assert_int_equal(status, CORRAL_EUNAVAILABLE);
  assert_true(corral_counter(a, CORRAL_EVENT_LOCK_ASKED) < 40);
}

/* ---- T: time-outs and renewal -------------------------------------------------------------- */

static void lost(corral_lock *lock, const char *why, void *arg) {
  (void)why;
  assert_int_equal(corral_lock_left_ms(lock), 0);
  atomic_store((_Atomic int *)arg, 1);
}

static void await_told(const _Atomic int *told) {
  int64_t end = crl_env_now_ms() + 20000;
  while (*told == 0) {
    if (crl_env_now_ms() > end) fail_msg("on_lost was never called");
    crl_env_pause_us(500);
  }
}

/* The renewer of a lost hold must not lengthen the next holder's hold. */
static void t2_a_keeper_never_extends_somebody_elses_hold(void **state) {
  (void)state;
  _Atomic int told = 0;
  corral_lock *lock =
      take(a, "n", CORRAL_LOCK(.ttl_ms = 600, .keep = 1, .on_lost = lost, .lost_arg = &told));
  redis_server_ask(server, "DEL ~lock::n");
  corral_lock *next = take(b, "n", CORRAL_LOCK(.ttl_ms = 60000));
  until(a, CORRAL_EVENT_LOCK_LOST, 1);
  long long pttl = strtoll(redis_server_ask(server, "PTTL ~lock::n"), NULL, 10);
  assert_in_range(pttl, 60001, 120000);
  await_told(&told); /* the event is counted before on_lost is called, by another thread */
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(next, &error), CORRAL_OK);
}

static void t3_the_server_is_gone_and_the_holder_is_told_without_it(void **state) {
  (void)state;
  _Atomic int told = 0;
  corral_lock *lock =
      take(a, "n", CORRAL_LOCK(.ttl_ms = 6000, .keep = 1, .on_lost = lost, .lost_arg = &told));
  until(a, CORRAL_EVENT_LOCK_EXTENDED, 1);
  redis_server_pause(server); /* hung: the last extension came before this */
  await_told(&told);
  redis_server_resume(server);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
}

/* Failed extensions are repeated before the hold ends. */
static void t3_a_server_that_was_away_for_a_while_costs_no_hold(void **state) {
  (void)state;
  corral *hasty = open_hasty(HASTY_MS);
  corral_lock *lock = take(hasty, "n", CORRAL_LOCK(.ttl_ms = 12000, .keep = 1));
  redis_server_pause(server);
  crl_env_pause_us(6500000); /* by then one extension, which is due after 4 s, has failed */
  redis_server_resume(server);
  until(hasty, CORRAL_EVENT_LOCK_EXTENDED, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(corral_counter(hasty, CORRAL_EVENT_LOCK_LOST), 0);
  corral_close(hasty);
}

static void t3_a_stuck_holder_is_kept_for_max_ms_and_no_longer(void **state) {
  (void)state;
  corral_lock *stuck = take(a, "n", CORRAL_LOCK(.ttl_ms = 200, .keep = 1, .max_ms = 700));
  corral_lock *next = take(b, "n", CORRAL_LOCK(.wait_ms = 20000));
  assert_int_equal(corral_lock_release(stuck, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(next, &error), CORRAL_OK);
}

static void
t4_a_process_that_was_stopped_learns_that_it_lost_and_keeps_its_hands_off(void **state) {
  (void)state;
  int in[2], out[2];
  char word = 0;
  if (pipe(in) != 0 || pipe(out) != 0) abort();
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    corral *c = open_one(NULL);
    corral_lock *lock = take(c, "n", CORRAL_LOCK(.ttl_ms = 300, .keep = 1));
    if (write(out[1], "!", 1) != 1 || read(in[0], &word, 1) != 1) _exit(1);
    word = corral_lock_left_ms(lock) == 0 && corral_lock_release(lock, NULL) == CORRAL_ELOST ? 'y'
                                                                                             : 'n';
    _exit(write(out[1], &word, 1) != 1);
  }
  assert_int_equal(read(out[0], &word, 1), 1);
  kill(pid, SIGSTOP);
  corral_lock *next = take(a, "n", CORRAL_LOCK(.wait_ms = 20000));
  assert_int_equal(write(in[1], "!", 1), 1);
  kill(pid, SIGCONT);
  assert_int_equal(read(out[0], &word, 1), 1);
  assert_int_equal(word, 'y');
  assert_int_equal(corral_lock_release(next, &error), CORRAL_OK);
  waitpid(pid, NULL, 0);
  for (int i = 0; i < 2; i++) close(in[i]), close(out[i]);
}

/* ---- N: re-entrancy ------------------------------------------------------------------------ */

static void n1_n2_n3_the_last_release_frees_the_lock_for_others_at_once(void **state) {
  (void)state;
  corral_lock *one = take(a, "n", CORRAL_LOCK(0)), *two = take(a, "n", CORRAL_LOCK(.reentrant = 1));
  assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "b")), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
  corral_lock_holder who;
  size_t count = 9;
  assert_int_equal(corral_lock_show(b, "n", 1, &who, 1, &count, &error), CORRAL_OK);
  assert_int_equal(count, 0);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "b")), CORRAL_OK);
}

static void n4_t5_a_nested_take_goes_to_the_server_and_reports_the_loss(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 100)), *none = NULL;
  for (int64_t end = crl_env_now_ms() + 120; crl_env_now_ms() < end;) crl_env_pause_us(1000);
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.reentrant = 1), &none, &error),
                   CORRAL_ELOST);
  assert_null(none);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
}

static void n5_an_owner_by_name_is_the_same_one_on_every_thread(void **state) {
  (void)state;
  waiter w = {0}, x = {0};
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.owner = "job 1"));
  start(&w, a, CORRAL_LOCK(.owner = "job 1", .reentrant = 1));
  start(&x, a, CORRAL_LOCK(.owner = "job 2", .reentrant = 1, .wait_ms = CORRAL_OFF));
  pthread_join(w.thread, NULL);
  pthread_join(x.thread, NULL);
  assert_int_equal(w.status, CORRAL_OK);
  assert_int_equal(x.status, CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void n6_who_would_wait_for_itself_is_told_at_once(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(0)), *none = NULL;
  uint64_t asked = corral_counter(a, CORRAL_EVENT_LOCK_ASKED);
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.wait_ms = 60000), &none, &error),
                   CORRAL_ERECURSION);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_ASKED), asked);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, close_both)
  const struct CMUnitTest tests[] = {
      T(a1_a_holder_killed_between_take_and_free_is_replaced_by_the_end_of_its_ttl),
      T(a5_a_lock_without_ttl_of_others_is_reported_and_healed_once_only_on_request),
      T(a6_one_unit_everywhere_what_is_left_is_what_was_asked_for),
      T(a7_waiters_ask_seldom),
      T(a9_a_server_that_lost_the_lock_is_noticed_and_the_later_token_is_larger),
      T(r1_a_slow_holder_does_not_delete_its_successors_lock),
      T(r2_r3_tokens_of_forked_processes_are_never_the_same),
      T(a_forked_child_names_itself),
      T(r6_a_take_whose_reply_was_lost_leaves_nothing_held),
      T(r6_a_release_whose_reply_was_lost_is_unknown_though_the_second_finds_nothing),
      T(a_grant_that_comes_too_late_is_none_and_leaves_nothing_held),
      T(a_server_that_is_away_is_asked_with_pauses),
      T(r8_what_became_of_a_hold_is_told_apart_and_told_once),
      T(r9_f2_others_see_who_holds_it_and_for_how_long),
      T(f2_when_a_holder_crashes_a_hundred_waiters_all_have_their_turn),
      T(t2_a_keeper_never_extends_somebody_elses_hold),
      T(t3_the_server_is_gone_and_the_holder_is_told_without_it),
      T(t3_a_server_that_was_away_for_a_while_costs_no_hold),
      T(t3_a_stuck_holder_is_kept_for_max_ms_and_no_longer),
      T(t4_a_process_that_was_stopped_learns_that_it_lost_and_keeps_its_hands_off),
      T(n1_n2_n3_the_last_release_frees_the_lock_for_others_at_once),
      T(n4_t5_a_nested_take_goes_to_the_server_and_reports_the_loss),
      T(n5_an_owner_by_name_is_the_same_one_on_every_thread),
      T(n6_who_would_wait_for_itself_is_told_at_once),
  };
  return cmocka_run_group_tests(tests, start_server, stop_server);
}
