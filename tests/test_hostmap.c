/* test_hostmap.c: what the processes of a host tell each other of which server has which keys. Each
 * crl_hostmap stands for a process; the test sets the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>

#include "os/env.h"
#include "support/folder_kit.h"

static int64_t set_boot_ms(void);

#define crl_env_boot_ms set_boot_ms
#define crl_hostmap_init own_hostmap_init
#define crl_hostmap_take own_hostmap_take
#define crl_hostmap_tell own_hostmap_tell
#include "election/hostmap.c" /* NOLINT(bugprone-suspicious-include) */
#undef crl_env_boot_ms

enum { BEGIN = 1000000, LONG_MS = 60000, SIZE = 4096 };

static const char of_all[] = "redis+cluster://a.example ~";
static int64_t clock_ms;
static crl_hostlock *lock;
static crl_hostmap a, b, c;
static char room[SIZE];

static int64_t set_boot_ms(void) { return clock_ms; }

static int begin(void **state) {
  (void)make_folder(state);
  lock = crl_hostlock_new(folder, of_all);
  assert_non_null(lock);
  a = b = c = (crl_hostmap){0};
  crl_hostmap_init(&a, lock, of_all);
  crl_hostmap_init(&b, lock, of_all);
  crl_hostmap_init(&c, lock, of_all);
  clock_ms = BEGIN;
  return 0;
}

static int end(void **state) {
  crl_hostlock_free(lock);
  return remove_folder(state);
}

/* `age_ms`: how long ago this process began to want a map. */
static crl_turn take(crl_hostmap *map, int64_t age_ms) {
  size_t len = 0;
  memset(room, 0, sizeof room);
  crl_turn turn = crl_hostmap_take(map, age_ms, room, sizeof room, &len);
  assert_int_equal(len, turn == CRL_TURN_HAVE ? strlen(room) : 0);
  return turn;
}

static void tell(crl_hostmap *map, const char *text) { crl_hostmap_tell(map, text, strlen(text)); }

static void has(crl_hostmap *map, const char *text) {
  assert_int_equal(take(map, LONG_MS), CRL_TURN_HAVE);
  assert_string_equal(room, text);
}

static int lock_file(void) {
  char path[ROOM_PATH + 16];
  snprintf(path, sizeof path, "%s/corral.lock", folder);
  return open(path, O_RDWR | O_CLOEXEC);
}

static void one_asks_and_the_others_have_its_map(void **state) {
  (void)state;
  assert_int_equal(take(&a, 0), CRL_TURN_ASK);
  assert_int_equal(take(&b, LONG_MS), CRL_TURN_LATER);
  tell(&a, "one");
  has(&b, "one");
  has(&c, "one");
  clock_ms += CRL_HOSTMAP_MS;
  assert_int_equal(take(&b, LONG_MS), CRL_TURN_ASK);
  assert_int_equal(take(&c, LONG_MS), CRL_TURN_LATER);
}

static void a_map_that_was_asked_for_before_it_was_wished_for_is_too_old(void **state) {
  (void)state;
  assert_int_equal(take(&a, 0), CRL_TURN_ASK);
  tell(&a, "old");
  clock_ms += 50;
  assert_int_equal(take(&b, 50), CRL_TURN_LATER);
  assert_int_equal(take(&c, 51), CRL_TURN_HAVE);
  clock_ms += 50;
  assert_int_equal(take(&b, 100), CRL_TURN_ASK);
  tell(&b, "new");
  assert_int_equal(take(&c, 10), CRL_TURN_HAVE);
  assert_string_equal(room, "new");
}

static void slow_answers_are_shared_and_an_older_one_replaces_no_newer_one(void **state) {
  (void)state;
  assert_int_equal(take(&a, 0), CRL_TURN_ASK);
  clock_ms += CRL_HOSTMAP_MS + 1;
  assert_int_equal(take(&b, 0), CRL_TURN_ASK);
  tell(&a, "first");
  has(&c, "first");
  assert_int_equal(take(&c, 50), CRL_TURN_LATER); /* asked for before */
  tell(&b, "second");
  has(&c, "second");
  tell(&a, "first");
  has(&c, "second");
}

static void a_process_that_was_stopped_with_the_byte_keeps_nobody_waiting(void **state) {
  int hold;
  (void)state;
  assert_int_equal(crl_hostlock_take(lock, name, sizeof name, &hold, NULL), CORRAL_OK);
  assert_int_equal(take(&a, 0), CRL_TURN_LATER);
  clock_ms += CRL_HOSTMAP_BUSY_MS - 1;
  assert_int_equal(take(&a, 0), CRL_TURN_LATER);
  clock_ms++;
  assert_int_equal(take(&a, 0), CRL_TURN_ASK);
  tell(&a, "not told");
  crl_hostlock_give(hold);
  assert_int_equal(take(&b, LONG_MS), CRL_TURN_ASK);
  tell(&b, "told");
  has(&a, "told");
}

static void what_others_may_have_written_is_not_believed(void **state) {
  (void)state;
  assert_int_equal(take(&a, 0), CRL_TURN_ASK);
  tell(&a, "one");
  int fd = lock_file();
  assert_int_equal(fchmod(fd, 0666), 0);
  assert_int_equal(take(&b, LONG_MS), CRL_TURN_LATER);
  assert_int_equal(fchmod(fd, 0600), 0);
  has(&b, "one");
  assert_int_equal(pwrite(fd, "x", 1, region_of(&a) + (off_t)sizeof(head)), 1);
  assert_int_equal(take(&b, LONG_MS), CRL_TURN_LATER);
  close(fd);
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)
  const struct CMUnitTest tests[] = {
      T(one_asks_and_the_others_have_its_map),
      T(a_map_that_was_asked_for_before_it_was_wished_for_is_too_old),
      T(slow_answers_are_shared_and_an_older_one_replaces_no_newer_one),
      T(a_process_that_was_stopped_with_the_byte_keeps_nobody_waiting),
      T(what_others_may_have_written_is_not_believed),
  };
#undef T
  return cmocka_run_group_tests_name("hostmap", tests, NULL, NULL);
}
