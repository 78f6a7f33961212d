/* test_watch.c: the core's thread for a watch that registers keys, over a scripted plugin: what it
 * does with the registrations' replies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <poll.h>
#include <unistd.h>

#include "os/env.h"
#include "store/watch.h"

enum { LIMIT_MS = 20000 };

/* ---- the scripted plugin ------------------------------------------------------------------- */

static struct script {
  pthread_mutex_t mutex;
  int opens, registrations, keys; /* counted */
  int open_status, register_status, key_status;
  uint8_t head[CORRAL_HEAD];
  int held, under_way; /* 1: register_keys waits; is called */
  uint64_t change;
  int changes_status;
} script = {.mutex = PTHREAD_MUTEX_INITIALIZER};

#define LOCKED(action)                                                                             \
  do {                                                                                             \
    pthread_mutex_lock(&script.mutex);                                                             \
    action;                                                                                        \
    pthread_mutex_unlock(&script.mutex);                                                           \
  } while (0)

static int number_of(const int *number) {
  int now;
  LOCKED(now = *number);
  return now;
}

static void wait_for(const int *number, int least) {
  int64_t until = crl_env_now_ms() + LIMIT_MS;
  while (number_of(number) < least)
    if (crl_env_now_ms() > until)
      fail_msg("a number stays below %d", least);
    else
      sched_yield();
}

static int watch(void *store, size_t server, int64_t deadline, void **ret, corral_error *error) {
  (void)server, (void)deadline;
  *ret = store;
  int status;
  LOCKED(script.opens++; status = script.open_status);
  snprintf(error->text, sizeof error->text, status == CORRAL_OK ? "scripted" : "refused");
  return status;
}

static int changes(void *open, int stop_fd, int64_t until, void (*told)(void *arg, uint64_t hash),
                   void *arg, corral_error *error) {
  (void)open, (void)error;
  for (;;) {
    struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
    uint64_t change;
    int status;
    LOCKED(change = script.change; script.change = 0; status = script.changes_status);
    if (change != 0) told(arg, change);
    if (change != 0 || status != CORRAL_OK || crl_env_now_ms() >= until) return status;
    if (poll(&stop, 1, 1) > 0) return CORRAL_OK;
  }
}

static void unwatch(void *open) { (void)open; }

static int register_keys(void *open, corral_registration *keys, size_t count, int stop_fd,
                         int64_t deadline, corral_error *error) {
  (void)open, (void)deadline, (void)error;
  struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
  LOCKED(script.under_way = 1);
  while (number_of(&script.held))
    if (poll(&stop, 1, 1) > 0) return CORRAL_ECANCELLED;
  int status;
  pthread_mutex_lock(&script.mutex);
  for (size_t i = 0; i < count; i++) {
    keys[i].status = script.key_status;
    memcpy(keys[i].head, script.head, CORRAL_HEAD);
    keys[i].head_len = CORRAL_HEAD;
  }
  script.registrations++;
  script.keys += (int)count;
  status = script.register_status;
  pthread_mutex_unlock(&script.mutex);
  return status;
}

static const corral_store plugin = {
    .watch = watch, .changes = changes, .unwatch = unwatch, .register_keys = register_keys};

/* ---- a watch ------------------------------------------------------------------------------- */

typedef struct scene {
  crl_watch *watch;
  crl_events events;
  _Atomic int anys, confirms;
  _Atomic uint64_t print;
  char said[4][64];
  _Atomic int said_count;
} scene;

static void on_change(void *arg, uint64_t hash) {
  scene *s = arg;
  if (hash == 0) atomic_fetch_add(&s->anys, 1);
}

static void on_registered(void *arg, uint64_t hash, uint64_t print) {
  scene *s = arg;
  (void)hash;
  atomic_store(&s->print, print);
  atomic_fetch_add(&s->confirms, 1);
}

static void on_event(const corral_event_info *info, void *arg) {
  scene *s = arg;
  if (info->event != CORRAL_EVENT_WATCH) return;
  int at = atomic_load(&s->said_count);
  snprintf(s->said[at % 4], sizeof s->said[0], "%s", info->detail);
  atomic_store(&s->said_count, at + 1);
}

static void begin(scene *s) {
  memset(s, 0, sizeof *s);
  LOCKED(script.opens = script.registrations = script.keys = script.held = script.under_way = 0;
         script.open_status = script.register_status = script.key_status = CORRAL_OK;
         script.changes_status = CORRAL_OK; script.change = 0;
         memset(script.head, 'h', CORRAL_HEAD));
  s->events.hook = on_event;
  s->events.arg = s;
  crl_watch_options options = {.plugin = &plugin,
                               .store = s,
                               .op_ms = 1000,
                               .events = &s->events,
                               .on_change = on_change,
                               .on_registered = on_registered,
                               .arg = s};
  s->watch = crl_watch_new(&options);
  assert_non_null(s->watch);
}

static void comes_up(scene *s) {
  int64_t until = crl_env_now_ms() + LIMIT_MS;
  while (!crl_watch_up(s->watch))
    if (crl_env_now_ms() > until)
      fail_msg("the watch doesn't come up");
    else
      sched_yield();
  while (atomic_load(&s->said_count) == 0) sched_yield(); /* it has woken all by then */
}

static crl_watch_key key = {.data = "key", .len = 3, .hash = 42};

static uint64_t print_of(char letter) {
  uint8_t head[CORRAL_HEAD];
  memset(head, letter, sizeof head);
  return crl_watch_print(head, sizeof head);
}

typedef struct guest {
  crl_waiter waiter;
  crl_watcher watcher;
} guest;

static void join(scene *s, guest *g) {
  memset(g, 0, sizeof *g);
  g->waiter = (crl_waiter){0};
  crl_watch_join(s->watch, &g->watcher, key.hash, &g->waiter);
}

static int is_woken(guest *g) { return crl_waiter_sleep(&g->waiter, crl_env_now_ms() + LIMIT_MS); }
static int was_woken(guest *g) { return crl_waiter_sleep(&g->waiter, crl_env_now_ms() - 1); }

static void leave(scene *s, guest *g) { crl_watch_leave(s->watch, &g->watcher); }

/* A waiter whose record has the print of 'h' is registered. */
static void begin_registered(scene *s, guest *g) {
  begin(s);
  comes_up(s);
  join(s, g);
  assert_true(crl_watch_register(s->watch, &g->watcher, &key, print_of('h')));
  while (atomic_load(&s->confirms) == 0) sched_yield();
}

/* ---- stories ------------------------------------------------------------------------------- */

static void a_waiter_whose_record_is_as_it_was_sleeps_on_until_it_changes(void **state) {
  (void)state;
  scene s;
  guest g;
  begin_registered(&s, &g);
  assert_int_equal(atomic_load(&s.print), print_of('h'));
  assert_false(was_woken(&g));
  LOCKED(script.change = key.hash);
  assert_true(is_woken(&g));
  leave(&s, &g);
  crl_watch_free(s.watch);
}

/* Registers the key for nobody, after all registrations before; returns how many there were. */
static int registrations(scene *s) {
  int before = atomic_load(&s->confirms);
  assert_true(crl_watch_register(s->watch, NULL, &key, 0));
  while (atomic_load(&s->confirms) == before) sched_yield();
  return number_of(&script.keys) - 1;
}

static void a_registration_is_repeated_once_a_change_has_used_it_up(void **state) {
  (void)state;
  scene s;
  guest g;
  begin_registered(&s, &g);
  assert_int_equal(registrations(&s), 1);
  assert_true(crl_watch_register(s.watch, &g.watcher, &key, print_of('h'))); /* it stands */
  assert_int_equal(registrations(&s), 2);
  LOCKED(script.change = key.hash);
  assert_true(is_woken(&g));
  assert_true(crl_watch_register(s.watch, &g.watcher, &key, print_of('h')));
  while (number_of(&script.keys) < 4) sched_yield();
  leave(&s, &g);
  crl_watch_free(s.watch);
}

static void a_waiter_that_was_overtaken_before_its_registration_is_woken(void **state) {
  (void)state;
  scene s;
  guest g;
  begin(&s);
  comes_up(&s);
  join(&s, &g);
  LOCKED(script.held = 1);
  assert_true(crl_watch_register(s.watch, &g.watcher, &key, print_of('h')));
  LOCKED(memset(script.head, 'i', CORRAL_HEAD); script.held = 0);
  assert_true(is_woken(&g));
  assert_false(crl_watch_refuses(&g.watcher));
  LOCKED(script.key_status = CORRAL_EMISS);
  assert_true(crl_watch_register(s.watch, &g.watcher, &key, print_of('i')));
  assert_true(is_woken(&g));
  leave(&s, &g);
  crl_watch_free(s.watch);
}

static void a_waiter_whose_key_is_refused_waits_by_the_clock(void **state) {
  (void)state;
  scene s;
  guest g, other;
  begin(&s);
  LOCKED(script.key_status = CORRAL_EAUTH);
  comes_up(&s);
  join(&s, &g);
  assert_true(crl_watch_register(s.watch, &g.watcher, &key, print_of('h')));
  assert_true(is_woken(&g));
  assert_true(crl_watch_refuses(&g.watcher));
  assert_false(crl_watch_register(s.watch, &g.watcher, &key, print_of('h')));
  assert_int_equal(atomic_load(&s.confirms), 0);
  LOCKED(script.key_status = CORRAL_OK);
  join(&s, &other); /* another waiter asks anew */
  assert_true(crl_watch_register(s.watch, &other.watcher, &key, print_of('h')));
  while (atomic_load(&s.confirms) == 0) sched_yield();
  assert_false(crl_watch_refuses(&other.watcher));
  leave(&s, &other);
  leave(&s, &g);
  crl_watch_free(s.watch);
}

/* Looks and registrations that see different servers never agree. */
static void a_waiter_that_is_overtaken_again_and_again_waits_by_the_clock(void **state) {
  (void)state;
  scene s;
  guest g;
  int times = 0;
  begin(&s);
  comes_up(&s);
  join(&s, &g);
  for (; crl_watch_register(s.watch, &g.watcher, &key, print_of('x')) && times < 100; times++)
    assert_true(is_woken(&g));
  assert_in_range(times, 2, 20);
  assert_true(crl_watch_refuses(&g.watcher));
  leave(&s, &g);
  crl_watch_free(s.watch);
}

static void a_broken_watch_wakes_all_and_registers_nothing_until_it_is_up_again(void **state) {
  (void)state;
  scene s;
  guest g;
  begin_registered(&s, &g);
  assert_false(was_woken(&g));
  int anys = atomic_load(&s.anys);
  /* opened anew, it would come up and break once more */
  LOCKED(script.changes_status = script.open_status = CORRAL_EUNAVAILABLE);
  assert_true(is_woken(&g));
  assert_true(atomic_load(&s.anys) > anys);
  assert_false(crl_watch_is_up(s.watch));
  assert_false(crl_watch_register(s.watch, &g.watcher, &key, print_of('h')));
  assert_false(crl_watch_refuses(&g.watcher));
  LOCKED(script.changes_status = script.open_status = CORRAL_OK);
  wait_for(&script.opens, 2);
  assert_true(is_woken(&g));
  assert_true(crl_watch_register(s.watch, &g.watcher, &key, print_of('h')));
  while (atomic_load(&s.confirms) < 2) sched_yield();
  leave(&s, &g);
  crl_watch_free(s.watch);
  assert_string_equal(s.said[0], "scripted");
  assert_string_equal(s.said[1], "poll: no reason");
  assert_string_equal(s.said[2], "scripted");
  assert_int_equal(s.said_count, 3);
}

static void a_registration_that_fails_breaks_the_watch(void **state) {
  (void)state;
  scene s;
  begin(&s);
  LOCKED(script.register_status = CORRAL_EUNAVAILABLE);
  comes_up(&s);
  assert_true(crl_watch_register(s.watch, NULL, &key, 0));
  wait_for(&script.opens, 2);
  assert_int_equal(atomic_load(&s.confirms), 0);
  crl_watch_free(s.watch);
}

static void keys_that_come_while_others_are_registered_go_together(void **state) {
  (void)state;
  scene s;
  begin(&s);
  comes_up(&s);
  LOCKED(script.held = 1);
  assert_true(crl_watch_register(s.watch, NULL, &key, 0));
  for (int i = 0; i < 1000; i++) assert_true(crl_watch_register(s.watch, NULL, &key, 0));
  LOCKED(script.held = 0);
  wait_for(&script.keys, 1001);
  assert_in_range(number_of(&script.registrations), 8, 20);
  crl_watch_free(s.watch);
}

static void what_has_no_room_is_not_registered(void **state) {
  (void)state;
  static char bytes[65536];
  scene s;
  guest g;
  crl_watch_key large = {.data = bytes, .len = sizeof bytes, .hash = 43};
  int count = 0;
  begin(&s);
  comes_up(&s);
  join(&s, &g);
  LOCKED(script.held = 1; script.under_way = 0);
  assert_true(crl_watch_register(s.watch, NULL, &key, 0));
  wait_for(&script.under_way, 1); /* nothing is taken out of the queue any more */
  while (count < 1000 && crl_watch_register(s.watch, NULL, &large, 0)) count++;
  assert_in_range(count, 60, 65); /* 64 are 4 MiB */
  assert_false(crl_watch_register(s.watch, &g.watcher, &large, print_of('h')));
  assert_true(crl_watch_refuses(&g.watcher));
  leave(&s, &g);
  crl_watch_free(s.watch); /* stops the registration that is under way */
}

static void a_store_that_refuses_says_so_once(void **state) {
  (void)state;
  scene s;
  begin(&s);
  LOCKED(script.open_status = CORRAL_EUNSUPPORTED);
  (void)crl_watch_up(s.watch);
  while (atomic_load(&s.said_count) == 0) sched_yield();
  assert_false(crl_watch_register(s.watch, NULL, &key, 0));
  crl_watch_free(s.watch);
  assert_string_equal(s.said[0], "poll: refused");
  assert_int_equal(number_of(&script.opens), 1);
}

static void prints_tell_records_apart(void **state) {
  (void)state;
  uint8_t record[100] = {0};
  uint64_t print = crl_watch_print(record, sizeof record);
  assert_true(print != 0 && print != crl_watch_print(NULL, 0));
  record[CORRAL_HEAD] = 1; /* behind the head */
  assert_int_equal(crl_watch_print(record, sizeof record), print);
  assert_int_equal(crl_watch_print(record, CORRAL_HEAD), print);
  record[CORRAL_HEAD - 1] = 1;
  assert_int_not_equal(crl_watch_print(record, sizeof record), print);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_waiter_whose_record_is_as_it_was_sleeps_on_until_it_changes),
      cmocka_unit_test(a_registration_is_repeated_once_a_change_has_used_it_up),
      cmocka_unit_test(a_waiter_that_was_overtaken_before_its_registration_is_woken),
      cmocka_unit_test(a_waiter_whose_key_is_refused_waits_by_the_clock),
      cmocka_unit_test(a_waiter_that_is_overtaken_again_and_again_waits_by_the_clock),
      cmocka_unit_test(a_broken_watch_wakes_all_and_registers_nothing_until_it_is_up_again),
      cmocka_unit_test(a_registration_that_fails_breaks_the_watch),
      cmocka_unit_test(keys_that_come_while_others_are_registered_go_together),
      cmocka_unit_test(what_has_no_room_is_not_registered),
      cmocka_unit_test(a_store_that_refuses_says_so_once),
      cmocka_unit_test(prints_tell_records_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
