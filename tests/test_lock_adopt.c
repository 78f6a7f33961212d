/* test_lock_adopt.c: holds that go from process to process by their tickets, on a real Redis and an
 * lmdb: file. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fork_kit.h"
#include "support/folder_kit.h"
#include "support/lock_kit.h"
#include "support/redis_server.h"

enum { LONG_MS = 600000 };

static redis_server *server;
static char uri[ROOM_PATH + 32];

static corral *open_one(void *arg) {
  corral *c;
  if (corral_open(
          CORRAL_OPTIONS(.store = uri, .op_ms = 10000, .on_event = on_event, .event_arg = arg), &c,
          &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static int setup(void **state) {
  (void)state;
  static unsigned number;
  if (server != NULL)
    redis_server_ask(server, "FLUSHALL");
  else
    snprintf(uri, sizeof uri, "lmdb:%s/%u", folder, number++);
  atomic_store(&a_lost, 0);
  a = open_one(&a_lost);
  b = open_one(NULL);
  return 0;
}

static int adopt(corral *c, const char *ticket, corral_lock **ret) {
  return corral_lock_take(c, "n", 1, CORRAL_LOCK(.adopt = ticket, .owner = "heir"), ret, &error);
}

/* The holder's note, or "" when nobody holds it. */
static const char *holder(void) {
  static corral_lock_holder who;
  size_t count = 0;
  memset(&who, 0, sizeof who);
  assert_int_equal(corral_lock_show(b, "n", 1, &who, 1, &count, &error), CORRAL_OK);
  assert_true(count <= 1);
  return who.who;
}

/* A process that takes lock "n", tells its ticket, and holds it until it is killed. */
static pid_t hold_elsewhere(char ticket[CORRAL_LOCK_TICKET], uint64_t *ret_fence) {
  int pipes[2];
  if (pipe(pipes) != 0) abort();
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    corral *c = open_one(NULL);
    corral_lock *lock = take(c, "n", CORRAL_LOCK(.ttl_ms = LONG_MS, .keep = 1, .note = "giver"));
    uint64_t fence = corral_lock_fence(lock);
    if (corral_lock_ticket(lock, ticket, &error) != CORRAL_OK) _exit(1);
    if (write(pipes[1], ticket, CORRAL_LOCK_TICKET) != CORRAL_LOCK_TICKET ||
        write(pipes[1], &fence, sizeof fence) != sizeof fence)
      _exit(1);
    for (;;) pause();
  }
  assert_int_equal(read(pipes[0], ticket, CORRAL_LOCK_TICKET), CORRAL_LOCK_TICKET);
  assert_int_equal(read(pipes[0], ret_fence, sizeof *ret_fence), sizeof *ret_fence);
  close(pipes[0]);
  close(pipes[1]);
  return pid;
}

/* ---- between processes --------------------------------------------------------------------- */

static void the_hold_of_a_killed_process_goes_to_its_successor_at_once(void **state) {
  (void)state;
  char ticket[CORRAL_LOCK_TICKET];
  uint64_t fence;
  corral_lock *lock = NULL;
  pid_t giver = hold_elsewhere(ticket, &fence);
  kill(giver, SIGKILL);
  waitpid(giver, NULL, 0);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_int_equal(
      corral_lock_take(a, "n", 1, CORRAL_LOCK(.adopt = ticket, .note = "heir"), &lock, &error),
      CORRAL_OK);
  assert_true(corral_lock_fence(lock) > fence);
  assert_true(corral_lock_left_ms(lock) > LONG_MS / 2);
  assert_non_null(strstr(holder(), "heir"));
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_string_equal(holder(), "");
  lock = take(b, "n", CORRAL_LOCK(0));
  assert_true(corral_lock_fence(lock) > fence + 1);
  corral_lock_release(lock, NULL);
}

enum { HEIRS = 8 };

/* Writes 'y' when it has adopted the hold, 'n' when that was lost, else '?'; a winner holds it
 * until it is killed. */
static pid_t heir(const char *ticket, int begins, int says) {
  pid_t pid = fork_at_rest();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  char go;
  corral_lock *lock = NULL;
  corral *c = open_one(NULL);
  if (read(begins, &go, 1) != 1) _exit(1);
  int status = adopt(c, ticket, &lock);
  int tells = write(says, status == CORRAL_OK ? "y" : status == CORRAL_ELOST ? "n" : "?", 1) == 1;
  while (tells && status == CORRAL_OK) pause();
  _exit(0);
}

static void of_many_who_adopt_a_hold_at_once_one_has_it(void **state) {
  (void)state;
  char ticket[CORRAL_LOCK_TICKET], said[HEIRS];
  int begins[2], says[2], winners = 0;
  pid_t heirs[HEIRS];
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = LONG_MS));
  assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_OK);
  if (pipe(begins) != 0 || pipe(says) != 0) abort();
  for (int i = 0; i < HEIRS; i++) heirs[i] = heir(ticket, begins[0], says[1]);
  assert_int_equal(write(begins[1], "........", HEIRS), HEIRS);
  for (int i = 0; i < HEIRS; i++) {
    assert_int_equal(read(says[0], &said[i], 1), 1);
    assert_true(said[i] == 'y' || said[i] == 'n');
    winners += said[i] == 'y';
  }
  assert_int_equal(winners, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_TAKEN);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  for (int i = 0; i < HEIRS; i++) kill(heirs[i], SIGKILL), waitpid(heirs[i], NULL, 0);
  for (int i = 0; i < 2; i++) close(begins[i]), close(says[i]);
}

/* ---- giver and heir ------------------------------------------------------------------------ */

static _Atomic int told;

static void on_lost(corral_lock *lock, const char *why, void *arg) {
  (void)lock, (void)why, (void)arg;
  atomic_fetch_add(&told, 1);
}

/* The giver's keeping meets it. */
static void who_has_a_hold_that_was_taken_over_is_told_that_it_is_lost(void **state) {
  (void)state;
  char ticket[CORRAL_LOCK_TICKET];
  corral_lock *heir = NULL;
  atomic_store(&told, 0);
  corral_lock *lock =
      take(a, "n", CORRAL_LOCK(.ttl_ms = 6000, .keep = 1, .on_lost = on_lost, .note = "giver"));
  assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_OK);
  assert_int_equal(
      corral_lock_take(b, "n", 1, CORRAL_LOCK(.adopt = ticket, .ttl_ms = LONG_MS), &heir, &error),
      CORRAL_OK);
  until(a, CORRAL_EVENT_LOCK_LOST, 1);
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_TAKEN);
  assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(atomic_load(&told), 1);
  assert_int_equal(corral_lock_extend(heir, 0, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(heir, &error), CORRAL_OK);
}

static void a_hold_that_was_let_go_is_kept_no_more_and_waits_for_its_heir(void **state) {
  (void)state;
  char ticket[CORRAL_LOCK_TICKET];
  corral_lock *lock = NULL;
  atomic_store(&told, 0);
  for (int adopts = 0; adopts < 2; adopts++) {
    lock =
        take(a, "n", CORRAL_LOCK(.ttl_ms = adopts ? LONG_MS : 5000, .keep = 1, .on_lost = on_lost));
    assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_OK);
    assert_int_equal(corral_lock_detach(lock, &error), CORRAL_OK);
    if (!adopts) /* nobody comes, and it ends by its ttl */
      assert_int_equal(corral_lock_release(take(b, "n", CORRAL_LOCK(.wait_ms = 30000)), &error),
                       CORRAL_OK);
  }
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_int_equal(adopt(a, ticket, &lock), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(atomic_load(&told), 0);
  assert_int_equal(atomic_load(&a_lost), 0);
}

static void a_hold_goes_from_heir_to_heir_with_larger_tokens(void **state) {
  (void)state;
  char ticket[CORRAL_LOCK_TICKET], old[CORRAL_LOCK_TICKET] = "";
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = LONG_MS)), *none = NULL;
  for (int i = 0; i < 5; i++) {
    uint64_t fence = corral_lock_fence(lock);
    assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_OK);
    assert_int_equal(corral_lock_detach(lock, &error), CORRAL_OK);
    if (old[0] != '\0') assert_int_equal(adopt(a, old, &none), CORRAL_ELOST);
    assert_int_equal(adopt(i % 2 ? a : b, ticket, &lock), CORRAL_OK);
    assert_true(corral_lock_fence(lock) > fence);
    memcpy(old, ticket, sizeof old);
  }
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void a_hold_that_is_over_is_not_taken_over(void **state) {
  (void)state;
  char ticket[CORRAL_LOCK_TICKET];
  corral_lock *none = NULL;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(0));
  assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(adopt(b, ticket, &none), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_EXPIRED);
  lock = take(a, "n", CORRAL_LOCK(0));
  assert_int_equal(adopt(b, ticket, &none), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_TAKEN);
  assert_null(none);
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

/* ---- tickets ------------------------------------------------------------------------------- */

static void a_ticket_that_is_not_of_this_lock_is_refused(void **state) {
  (void)state;
  char ticket[CORRAL_LOCK_TICKET], odd[2 * CORRAL_LOCK_TICKET];
  corral_lock *none = NULL, *lock = take(a, "n", CORRAL_LOCK(0));
  assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_OK);
  assert_int_equal(corral_lock_take(a, "m", 1, CORRAL_LOCK(.adopt = ticket), &none, &error),
                   CORRAL_EINVAL);
  assert_non_null(strstr(error.text, "not a ticket of this lock"));
  for (size_t i = 0; i < strlen(ticket); i++) {
    snprintf(odd, sizeof odd, "%s", ticket);
    odd[i] = odd[i] == '0' ? '1' : '0';
    assert_int_equal(adopt(b, odd, &none), CORRAL_EINVAL);
    odd[i] = '\0';
    assert_int_equal(adopt(b, odd, &none), CORRAL_EINVAL);
  }
  snprintf(odd, sizeof odd, "%s%s", ticket, ticket);
  assert_int_equal(adopt(b, odd, &none), CORRAL_EINVAL);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void a_shared_hold_is_taken_over_as_a_shared_one(void **state) {
  (void)state;
  char before[CORRAL_LOCK_TICKET], ticket[CORRAL_LOCK_TICKET];
  corral_lock *lock = take(a, "n", CORRAL_LOCK(0)), *heir = NULL;
  assert_int_equal(corral_lock_ticket(lock, before, &error), CORRAL_OK);
  assert_int_equal(corral_lock_downgrade(lock, &error), CORRAL_OK);
  assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_OK);
  /* it would be believed to be exclusive */
  assert_int_equal(adopt(b, before, &heir), CORRAL_ELOST);
  corral_lock *other = take(b, "n", CORRAL_LOCK(.shared = 1));
  uint64_t last = corral_lock_fence(other);
  assert_int_equal(adopt(b, ticket, &heir), CORRAL_OK);
  assert_true(corral_lock_fence(heir) > last);
  assert_int_equal(try(a, "n", CORRAL_LOCK(.owner = "w")), CORRAL_EBUSY);
  assert_int_equal(try(a, "n", CORRAL_LOCK(.shared = 1, .owner = "r")), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(heir, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(other, &error), CORRAL_OK);
  assert_int_equal(try(a, "n", CORRAL_LOCK(.owner = "w")), CORRAL_OK);
}

static void a_permit_is_taken_over_as_a_permit(void **state) {
  (void)state;
  char ticket[CORRAL_LOCK_TICKET];
  corral_lock *heir = NULL, *again = NULL;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.permits = 2));
  assert_int_equal(corral_lock_ticket(lock, ticket, &error), CORRAL_OK);
  corral_lock *other = take(b, "n", CORRAL_LOCK(.permits = 2));
  uint64_t last = corral_lock_fence(other);
  assert_int_equal(adopt(b, ticket, &heir), CORRAL_OK);
  assert_true(corral_lock_fence(heir) > last);
  assert_int_equal(try(a, "n", CORRAL_LOCK(.permits = 2, .owner = "p")), CORRAL_EBUSY);
  assert_int_equal(try(a, "n", CORRAL_LOCK(.permits = 3, .owner = "p")), CORRAL_OK);
  assert_int_equal(corral_lock_downgrade(heir, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_take(b, "n", 1,
                                    CORRAL_LOCK(.permits = 2, .owner = "heir", .reentrant = 1),
                                    &again, &error),
                   CORRAL_OK);
  assert_int_equal(corral_lock_fence(again), corral_lock_fence(heir));
  assert_int_equal(corral_lock_release(again, &error), CORRAL_OK);
  assert_int_equal(corral_lock_ticket(heir, ticket, &error), CORRAL_OK);
  assert_int_equal(corral_lock_detach(heir, &error), CORRAL_OK);
  assert_int_equal(adopt(a, ticket, &heir), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(heir, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(other, &error), CORRAL_OK);
  assert_int_equal(try(a, "n", CORRAL_LOCK(.owner = "w")), CORRAL_OK);
}

/* ---- main ---------------------------------------------------------------------------------- */

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, close_both)
  const struct CMUnitTest tests[] = {
      T(the_hold_of_a_killed_process_goes_to_its_successor_at_once),
      T(of_many_who_adopt_a_hold_at_once_one_has_it),
      T(who_has_a_hold_that_was_taken_over_is_told_that_it_is_lost),
      T(a_hold_that_was_let_go_is_kept_no_more_and_waits_for_its_heir),
      T(a_hold_goes_from_heir_to_heir_with_larger_tokens),
      T(a_hold_that_is_over_is_not_taken_over),
      T(a_ticket_that_is_not_of_this_lock_is_refused),
      T(a_shared_hold_is_taken_over_as_a_shared_one),
      T(a_permit_is_taken_over_as_a_permit),
  };
  make_folder(NULL);
  int failed = cmocka_run_group_tests_name("lmdb", tests, NULL, NULL);
  remove_folder(NULL);
  if (!redis_server_start(&server, NULL)) return failed != 0 ? failed : 77;
  snprintf(uri, sizeof uri, "%s", redis_server_uri(server));
  failed |= cmocka_run_group_tests_name("redis", tests, NULL, NULL);
  snprintf(uri, sizeof uri, "%s?scripts=no", redis_server_uri(server));
  failed |= cmocka_run_group_tests_name("redis without scripts", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
