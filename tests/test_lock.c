/* test_lock.c: users' locks through the public API, on the memory: store: two corrals on one store
 * are two holders. */
#include <pthread.h>
#include <unistd.h>

#include <errno.h>
#include <sys/random.h>
#include <sys/wait.h>

#include "support/lock_kit.h"
#include "base/value.h"
#include "locks/table.h"
#include "os/wait.h"
#include "support/fork_kit.h"

static atomic_int no_randomness, draws;

ssize_t __real_getrandom(void *buffer, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned flags) {
  atomic_fetch_add(&draws, 1);
  if (!atomic_load(&no_randomness)) return __real_getrandom(buffer, size, flags);
  errno = ENOSYS;
  return -1;
}

/* While `naps_last` is 1, a waiter that the store tells of a release sleeps until it is woken, or
 * for LONG_NAP_MS. The pauses of one that isn't told yet are shorter than SHORT_NAP_MS. */
static atomic_int naps_last;
enum { SHORT_NAP_MS = 500, LONG_NAP_MS = 60000 };

int __real_crl_waiter_sleep(crl_waiter *waiter, int64_t until);
int __wrap_crl_waiter_sleep(crl_waiter *waiter, int64_t until);
int __wrap_crl_waiter_sleep(crl_waiter *waiter, int64_t until) {
  int64_t now = crl_env_now_ms();
  if (atomic_load(&naps_last) && until > now + SHORT_NAP_MS) until = now + LONG_NAP_MS;
  return __real_crl_waiter_sleep(waiter, until);
}

static int setup(void **state) {
  (void)state;
  char uri[64];
  static int number;
  snprintf(uri, sizeof uri, "memory:locks%d", number++);
  memset(&error, 0, sizeof error);
  atomic_store(&a_lost, 0);
  atomic_store(&naps_last, 0);
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = uri, .on_event = on_event, .event_arg = &a_lost), &a,
                  &error),
      CORRAL_OK);
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = uri, .on_event = on_event), &b, &error),
                   CORRAL_OK);
  return 0;
}

/* ---- one holder ---------------------------------------------------------------------------- */

static void a_lock_is_refused_to_others_until_it_is_released(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.note = "nightly"));
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_non_null(strstr(error.text, "nightly"));
  assert_in_range(error.retry_after_ms, 1, 10000); /* what is left of the hold, as a number */
  assert_int_equal(try(b, "other", CORRAL_LOCK(0)), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCKED), 1);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_UNLOCKED), 1);
}

static void fencing_tokens_grow_from_hold_to_hold(void **state) {
  (void)state;
  uint64_t last = 0;
  for (int i = 0; i < 100; i++) {
    corral_lock *lock = take(i % 2 ? a : b, "n", CORRAL_LOCK(0));
    assert_true(corral_lock_fence(lock) > last);
    last = corral_lock_fence(lock);
    corral_lock_release(lock, NULL);
  }
}

static void who_has_it_is_shown(void **state) {
  (void)state;
  corral_lock_holder who[4];
  size_t count = 7;
  assert_int_equal(corral_lock_show(a, "n", 1, who, 4, &count, &error), CORRAL_OK);
  assert_int_equal(count, 0);
  corral_lock *one = take(a, "n", CORRAL_LOCK(.shared = 1, .note = "first", .ttl_ms = 20000));
  corral_lock *two =
      take(b, "n", CORRAL_LOCK(.shared = 1, .note = "second", .ttl_ms = 20000, .owner = "else"));
  assert_int_equal(corral_lock_show(a, "n", 1, who, 1, &count, &error), CORRAL_OK);
  assert_int_equal(count, 2);
  assert_int_equal(corral_lock_show(a, "n", 1, who, 4, &count, &error), CORRAL_OK);
  int first = strstr(who[0].who, "first") != NULL ? 0 : 1;
  assert_non_null(strstr(who[first].who, "first"));
  assert_non_null(strstr(who[1 - first].who, "second"));
  assert_true(who[first].mine && !who[1 - first].mine);
  assert_true(who[0].shared && who[1].shared);
  assert_int_equal(who[first].fence, corral_lock_fence(one));
  assert_in_range(who[first].left_ms, 1, 20000);
  assert_in_range(who[first].held_ms, 0, 10000);
  char pid[32];
  snprintf(pid, sizeof pid, "/%ld/", (long)getpid());
  assert_non_null(strstr(who[0].who, pid));
  corral_lock_release(one, NULL);
  corral_lock_release(two, NULL);
}

static void names_are_bytes_of_any_value_and_length(void **state) {
  (void)state;
  static char name[65536];
  corral_lock *lock = NULL, *other = NULL;
  memset(name, 0xff, sizeof name);
  name[3] = 0;
  assert_int_equal(corral_lock_take(a, name, sizeof name, NULL, &lock, NULL), CORRAL_OK);
  assert_int_equal(
      corral_lock_take(b, name, sizeof name, CORRAL_LOCK(.wait_ms = CORRAL_OFF), &other, NULL),
      CORRAL_EBUSY);
  assert_int_equal(
      corral_lock_take(b, name, sizeof name - 1, CORRAL_LOCK(.wait_ms = CORRAL_OFF), &other, NULL),
      CORRAL_OK);
  size_t len;
  assert_memory_equal(corral_lock_name(lock, &len), name, sizeof name);
  assert_int_equal(len, sizeof name);
  corral_lock_release(lock, NULL);
  corral_lock_release(other, NULL);
}

static void wrong_arguments_are_named(void **state) {
  (void)state;
  corral_lock *lock = NULL;
  corral_lock_options *options = CORRAL_LOCK(.ttl_ms = 10);
  size_t count;
  assert_int_equal(corral_lock_take(a, "n", 1, options, &lock, &error), CORRAL_EINVAL);
  assert_string_equal(error.text, "ttl_ms = 10 ms; accepted: 50 to 86400000, or 0 for the default");
  options->ttl_ms = 0;
  assert_int_equal(corral_lock_take(a, "", 0, options, &lock, &error), CORRAL_EINVAL);
  assert_string_equal(error.text, "the lock's name is empty; accepted: 1 to 65536 bytes");
  static char longer[65537];
  assert_int_equal(corral_lock_take(a, longer, sizeof longer, options, &lock, &error),
                   CORRAL_EINVAL);
  assert_int_equal(corral_lock_take(NULL, "n", 1, options, &lock, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_take(a, "n", 1, options, NULL, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_show(a, "n", 1, NULL, 0, NULL, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_show(a, "n", 1, NULL, 0, &count, &error), CORRAL_OK);
  struct {
    corral_lock_options known;
    int64_t later;
  } newer = {.known = {.size = sizeof newer}, .later = 1};
  assert_int_equal(corral_lock_take(a, "n", 1, &newer.known, &lock, &error), CORRAL_EOPTION);
  lock = take(a, "n", CORRAL_LOCK(0));
  assert_int_equal(corral_lock_extend(lock, 7, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_release(lock, NULL), CORRAL_OK);
  assert_int_equal(corral_lock_release(NULL, NULL), CORRAL_OK);
}

static void *take_without_randomness(void *arg) {
  atomic_store(&no_randomness, 1);
  int status = corral_lock_take(a, "n", 1, NULL, arg, &error);
  atomic_store(&no_randomness, 0);
  return (void *)(intptr_t)status;
}

/* On a thread that has drawn none yet. */
static void without_randomness_there_is_no_lock(void **state) {
  (void)state;
  corral_lock *none = NULL;
  pthread_t thread;
  void *status;
  assert_int_equal(pthread_create(&thread, NULL, take_without_randomness, &none), 0);
  pthread_join(thread, &status);
  assert_int_equal((intptr_t)status, CORRAL_EIO);
  assert_null(none);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_ASKED), 0);
}

static void random_bytes_are_asked_for_once_for_sixteen_takings(void **state) {
  (void)state;
  enum { TAKINGS = 64, PER_DRAW = 16 };
  int before = atomic_load(&draws);
  for (int i = 0; i < TAKINGS; i++) assert_int_equal(try(a, "n", CORRAL_LOCK(0)), CORRAL_OK);
  assert_in_range(atomic_load(&draws) - before, 1, TAKINGS / PER_DRAW + 1);
}

static void want_of_memory_is_told_and_leaves_nothing_held(void **state) {
  (void)state;
  int granted = 0;
  assert_int_equal(try(a, "first", CORRAL_LOCK(0)), CORRAL_OK); /* of this corral */
  for (long n = 0; n < 12; n++) {
    corral_lock *lock = NULL;
    atomic_store(&crl_alloc_countdown, n);
    int status = corral_lock_take(a, "n", 1, CORRAL_LOCK(.wait_ms = CORRAL_OFF), &lock, &error);
    atomic_store(&crl_alloc_countdown, -1);
    if (status != CORRAL_OK && status != CORRAL_ENOMEM)
      fail_msg("allocation %ld: %s: %s", n, corral_status_name(status), error.text);
    granted += status == CORRAL_OK;
    if (status == CORRAL_OK) assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
    assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
  }
  assert_in_range(granted, 1, 11);
}

/* No function and no option of the header has a token parameter: each taking makes its own
 * token. */
static void r4_no_public_function_takes_a_token(void **state) {
  (void)state;
  char path[512], line[1024];
  int inside = 0, seen = 0;
  snprintf(path, sizeof path, "%s/include/corral/lock.h",
           getenv("CORRAL_SOURCE_DIR") != NULL ? getenv("CORRAL_SOURCE_DIR") : ".");
  FILE *header = fopen(path, "r");
  if (header == NULL) fail_msg("%s can't be read: CORRAL_SOURCE_DIR must name the tree", path);
  while (fgets(line, sizeof line, header) != NULL) {
    char *comment = strstr(line, "/*");
    if (comment != NULL) *comment = '\0';
    if (strncmp(line, "typedef struct", 14) == 0 && strchr(line, '{') != NULL) inside = 1;
    if (line[0] == '}') inside = 0;
    if (!inside && strncmp(line, "CORRAL_API", 10) != 0) continue;
    seen++;
    if (strstr(line, "token") != NULL && strstr(line, "cancel_token") == NULL) fail_msg("%s", line);
  }
  fclose(header);
  assert_true(seen > 20);
}

enum { SHARINGS = 300 };

/* Two threads with one owner: a thread that finds the other's hold shares it and uses it at
 * once. */
static void *share(void *arg) {
  corral_error detail;
  for (int i = 0; i < SHARINGS; i++) {
    corral_lock *lock = NULL;
    int status = corral_lock_take(a, "n", 1, CORRAL_LOCK(.owner = "we", .reentrant = 1, .keep = 1),
                                  &lock, &detail);
    if (status == CORRAL_OK) status = corral_lock_extend(lock, 60000, &detail);
    if (status == CORRAL_OK) status = corral_lock_release(lock, &detail);
    if (status != CORRAL_OK) *(int *)arg = status;
  }
  return NULL;
}

static void a_hold_is_whole_before_another_thread_of_its_owner_can_have_it(void **state) {
  (void)state;
  pthread_t threads[2];
  int wrong[2] = {0, 0};
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, share, &wrong[i]), 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  assert_int_equal(wrong[0], 0);
  assert_int_equal(wrong[1], 0);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
}

/* While `pauses_dropped` is 1, a thread that has dropped a taking of a hold with others goes on
 * when the hold has ended. */
static atomic_int pauses_dropped, dropped, ended;

int __real_crl_lock_table_drop(crl_lock_table *table, crl_lock_entry *entry,
                               crl_lock_taking *taking);
int __wrap_crl_lock_table_drop(crl_lock_table *table, crl_lock_entry *entry,
                               crl_lock_taking *taking);
int __wrap_crl_lock_table_drop(crl_lock_table *table, crl_lock_entry *entry,
                               crl_lock_taking *taking) {
  int last = __real_crl_lock_table_drop(table, entry, taking);
  if (last || !atomic_load(&pauses_dropped)) return last;
  atomic_store(&dropped, 1);
  while (!atomic_load(&ended)) crl_env_pause_us(100);
  return last;
}

static void *release_it(void *lock) {
  corral_error detail;
  return (void *)(intptr_t)corral_lock_release(lock, &detail);
}

/* In either order: the memory of the first taking is the hold's. */
static void two_threads_of_an_owner_release_its_takings_at_the_same_time(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    pthread_t thread;
    void *status;
    corral_lock *locks[2];
    for (int j = 0; j < 2; j++)
      locks[j] = take(a, "n", CORRAL_LOCK(.owner = "we", .reentrant = 1, .ttl_ms = 600000));
    atomic_store(&dropped, 0);
    atomic_store(&ended, 0);
    atomic_store(&pauses_dropped, 1);
    assert_int_equal(pthread_create(&thread, NULL, release_it, locks[i]), 0);
    while (!atomic_load(&dropped)) crl_env_pause_us(100);
    assert_int_equal(corral_lock_release(locks[1 - i], &error), CORRAL_OK);
    atomic_store(&ended, 1);
    pthread_join(thread, &status);
    assert_null(status);
    atomic_store(&pauses_dropped, 0);
    assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
  }
}

/* ---- time ---------------------------------------------------------------------------------- */

static void lost_once(corral_lock *lock, const char *why, void *arg) {
  (void)why;
  assert_int_equal(corral_lock_left_ms(lock), 0);
  atomic_fetch_add((_Atomic int *)arg, 1);
}

static void a_hold_ends_by_its_ttl_and_its_holder_is_told_once(void **state) {
  (void)state;
  _Atomic int told = 0;
  corral_lock *lock =
      take(a, "n", CORRAL_LOCK(.ttl_ms = 5000, .on_lost = lost_once, .lost_arg = &told));
  assert_in_range(corral_lock_left_ms(lock), 1, 5000);
  corral_lock *next = take(b, "n", CORRAL_LOCK(.ttl_ms = 60000, .wait_ms = 60000));
  until(a, CORRAL_EVENT_LOCK_LOST, 1);
  assert_int_equal(corral_lock_left_ms(lock), 0);
  assert_int_equal(corral_lock_left_ms(lock), 0);
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(told, 1);
  while (atomic_load(&a_lost) == 0) crl_env_pause_us(200);
  assert_int_equal(atomic_load(&a_lost), 1);
  assert_non_null(strstr(a_detail, "fencing token"));
  assert_int_equal(corral_lock_release(next, &error), CORRAL_OK);
}

static void what_became_of_a_lost_hold_is_in_the_error(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 60));
  while (corral_lock_left_ms(lock) > 0) crl_env_pause_us(1000);
  corral_lock *next = take(b, "n", CORRAL_LOCK(0));
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_TAKEN);
  assert_int_equal(try(a, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(next, &error), CORRAL_OK);
  lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 60));
  for (int64_t end = crl_env_now_ms() + 70; crl_env_now_ms() < end;) crl_env_pause_us(1000);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_EXPIRED);
}

static void a_kept_hold_outlives_its_ttl(void **state) {
  (void)state;
  _Atomic int told = 0;
  corral_lock *lock =
      take(a, "n", CORRAL_LOCK(.ttl_ms = 6000, .keep = 1, .on_lost = lost_once, .lost_arg = &told));
  until(a, CORRAL_EVENT_LOCK_EXTENDED, 4);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_true(corral_lock_left_ms(lock) > 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  uint64_t extended = corral_counter(a, CORRAL_EVENT_LOCK_EXTENDED);
  lock = take(b, "n", CORRAL_LOCK(.ttl_ms = 60));
  while (corral_lock_left_ms(lock) > 0) crl_env_pause_us(1000);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_EXTENDED), extended);
  corral_lock_release(lock, NULL);
  assert_int_equal(told, 0);
}

static void what_is_kept_is_kept_for_max_ms_at_most(void **state) {
  (void)state;
  _Atomic int told = 0;
  int64_t begun = crl_env_now_ms();
  corral_lock *lock = take(a, "n",
                           CORRAL_LOCK(.ttl_ms = 6000, .keep = 1, .max_ms = 9000,
                                       .on_lost = lost_once, .lost_arg = &told));
  corral_lock *next = take(b, "n", CORRAL_LOCK(.wait_ms = 60000));
  assert_true(crl_env_now_ms() - begun >= 8900);
  until(a, CORRAL_EVENT_LOCK_LOST, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(told, 1);
  corral_lock_release(next, NULL);
}

static void extending_lengthens_and_never_shortens(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 10000));
  assert_int_equal(corral_lock_extend(lock, 60000, &error), CORRAL_OK);
  assert_true(corral_lock_left_ms(lock) > 50000);
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_OK);
  assert_true(corral_lock_left_ms(lock) > 50000);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

/* ---- waiting ------------------------------------------------------------------------------- */

typedef struct waiter {
  corral *c;
  pthread_t thread;
  corral_lock_options options;
  int status;
  _Atomic int *inside, *most;
} waiter;

static void *wait_for_it(void *arg) {
  waiter *w = arg;
  corral_lock *lock;
  w->status = corral_lock_take(w->c, "n", 1, &w->options, &lock, NULL);
  if (w->status != CORRAL_OK) return NULL;
  if (w->inside != NULL) {
    int now = atomic_fetch_add(w->inside, 1) + 1, most = atomic_load(w->most);
    while (now > most && !atomic_compare_exchange_weak(w->most, &most, now)) {
    }
    crl_env_pause_us(300);
    atomic_fetch_sub(w->inside, 1);
  }
  w->status = corral_lock_release(lock, NULL);
  return NULL;
}

static void start(waiter *w, corral *c, const corral_lock_options *options) {
  w->c = c;
  w->options = *options;
  pthread_create(&w->thread, NULL, wait_for_it, w);
}

static void await_asked(corral *c, uint64_t before, uint64_t more) {
  until(c, CORRAL_EVENT_LOCK_ASKED, before + more);
}

enum { WAKE_ROUNDS = 30 };

static void a_waiter_elsewhere_is_woken_by_the_release(void **state) {
  (void)state;
  atomic_store(&naps_last, 1);
  for (int i = 0; i < WAKE_ROUNDS; i++) {
    waiter w = {0};
    uint64_t asked = corral_counter(b, CORRAL_EVENT_LOCK_ASKED);
    corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 2 * LONG_NAP_MS));
    start(&w, b, CORRAL_LOCK(.wait_ms = LONG_NAP_MS, .poll_max_ms = 60000));
    await_asked(b, asked, 2);
    corral_lock_release(lock, NULL);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.status, CORRAL_OK);
  }
}

static void a_waiter_in_the_same_process_is_woken_without_a_watch(void **state) {
  (void)state;
  corral *c;
  waiter w = {0};
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:", .watch = CORRAL_OFF), &c, &error),
                   CORRAL_OK);
  corral_lock *lock = take(c, "n", CORRAL_LOCK(.ttl_ms = 60000));
  /* without a wake-up its next look comes when its time is up */
  start(&w, c, CORRAL_LOCK(.wait_ms = 20000, .poll_ms = 60000, .poll_max_ms = 60000));
  until(c, CORRAL_EVENT_LOCK_WAIT, 1);
  corral_lock_release(lock, NULL);
  pthread_join(w.thread, NULL);
  assert_int_equal(w.status, CORRAL_OK);
  corral_close(c);
}

static void the_next_waiter_asks_when_the_first_gives_up(void **state) {
  (void)state;
  waiter first = {0}, next = {0};
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 12000));
  /* a taking whose first request lasts longer than its wait_ms tells of no wait */
  start(&first, b, CORRAL_LOCK(.wait_ms = 4000));
  until(b, CORRAL_EVENT_LOCK_WAIT, 1);
  start(&next, b, CORRAL_LOCK(.wait_ms = 60000));
  pthread_join(first.thread, NULL);
  pthread_join(next.thread, NULL);
  assert_int_equal(first.status, CORRAL_EDEADLINE);
  /* the watch doesn't report a hold that ends by its ttl_ms */
  assert_int_equal(next.status, CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
}

static void a_child_leaves_its_parents_lock_alone(void **state) {
  (void)state;
  int status;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(0));
  pid_t pid = fork_at_rest();
  if (pid == 0)
    _exit(corral_lock_release(lock, NULL) == CORRAL_EFORKED &&
                  corral_lock_extend(lock, 0, NULL) == CORRAL_EFORKED
              ? 0
              : 1);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void many_threads_are_never_inside_at_once_and_one_of_a_process_asks(void **state) {
  (void)state;
  enum { THREADS = 40 };
  static waiter w[THREADS];
  _Atomic int inside = 0, most = 0;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 60000));
  for (int i = 0; i < THREADS; i++) {
    w[i].inside = &inside;
    w[i].most = &most;
    start(&w[i], i % 2 ? a : b, CORRAL_LOCK(.wait_ms = 30000));
  }
  until(a, CORRAL_EVENT_LOCK_WAIT, THREADS / 2);
  until(b, CORRAL_EVENT_LOCK_WAIT, THREADS / 2);
  assert_true(corral_counter(b, CORRAL_EVENT_LOCK_ASKED) < 15);
  corral_lock_release(lock, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(w[i].thread, NULL);
  for (int i = 0; i < THREADS; i++) assert_int_equal(w[i].status, CORRAL_OK);
  assert_int_equal(most, 1);
}

static void the_deadline_ends_a_wait_and_says_who_was_in_the_way(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.note = "the other")), *none = NULL;
  int64_t begun = crl_env_now_ms();
  assert_int_equal(corral_lock_take(b, "n", 1, CORRAL_LOCK(.wait_ms = 100), &none, &error),
                   CORRAL_EDEADLINE);
  assert_true(crl_env_now_ms() - begun >= 100);
  assert_non_null(strstr(error.text, "the other"));
  assert_null(none);
  corral_lock_release(lock, NULL);
}

static void a_cancelled_wait_ends(void **state) {
  (void)state;
  waiter w = {0};
  corral_cancel_token *cancel_token = corral_cancel_token_new();
  corral_lock *lock = take(a, "n", CORRAL_LOCK(0));
  start(&w, b, CORRAL_LOCK(.wait_ms = 60000, .cancel_token = cancel_token));
  until(b, CORRAL_EVENT_LOCK_ASKED, 1);
  corral_cancel_token_cancel(cancel_token);
  pthread_join(w.thread, NULL);
  assert_int_equal(w.status, CORRAL_ECANCELLED);
  corral_lock_release(lock, NULL);
  corral_cancel_token_free(cancel_token);
}

/* ---- owners -------------------------------------------------------------------------------- */

static void who_has_it_already_is_told_at_once(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(0)), *none = NULL;
  assert_int_equal(corral_lock_take(a, "n", 1, NULL, &none, &error), CORRAL_ERECURSION);
  assert_int_equal(corral_lock_take(a, "n", 1,
                                    CORRAL_LOCK(.owner = "another", .wait_ms = CORRAL_OFF), &none,
                                    NULL),
                   CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void a_reentrant_lock_is_released_by_its_last_release(void **state) {
  (void)state;
  corral_lock *one = take(a, "n", CORRAL_LOCK(0)), *two = take(a, "n", CORRAL_LOCK(.reentrant = 1));
  assert_int_equal(corral_lock_fence(one), corral_lock_fence(two));
  assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "b")), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "b")), CORRAL_OK);
}

static void a_count_never_outlives_the_lock_that_it_counts(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 60)), *none = NULL;
  for (int64_t end = crl_env_now_ms() + 70; crl_env_now_ms() < end;) crl_env_pause_us(1000);
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.reentrant = 1), &none, &error),
                   CORRAL_ELOST);
  assert_int_equal(error.code, CORRAL_LOST_EXPIRED);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
}

static void little_is_left_so_taking_again_extends(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 12000));
  while (corral_lock_left_ms(lock) > 5900) crl_env_pause_us(10000);
  corral_lock *again = take(a, "n", CORRAL_LOCK(.reentrant = 1));
  assert_true(corral_lock_left_ms(again) > 5900);
  corral_lock_release(again, NULL);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

/* A nested taking has its own ttl as long as the hold lasts, or until it is released. */
static void a_nested_taking_has_the_ttl_that_it_asks_for(void **state) {
  (void)state;
  corral_lock *one = take(a, "n", CORRAL_LOCK(.ttl_ms = 5000));
  corral_lock *plain = take(a, "n", CORRAL_LOCK(.reentrant = 1));
  assert_in_range(corral_lock_left_ms(one), 1, 5000);
  corral_lock *two = take(a, "n", CORRAL_LOCK(.reentrant = 1, .ttl_ms = 3600000));
  assert_true(corral_lock_left_ms(two) > 3000000);
  assert_true(corral_lock_left_ms(one) > 3000000);
  /* never less than before */
  corral_lock *three = take(a, "n", CORRAL_LOCK(.reentrant = 1, .ttl_ms = 1000));
  assert_true(corral_lock_left_ms(three) > 3000000);
  assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
  assert_true(corral_lock_left_ms(two) > 3000000);
  assert_int_equal(corral_lock_release(plain, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(three, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "b")), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "b")), CORRAL_OK);
}

static _Atomic int heard[3];

static void hear(corral_lock *lock, const char *why, void *arg) {
  (void)lock, (void)why;
  atomic_fetch_add((_Atomic int *)arg, 1);
}

static void a_nested_taking_that_is_to_be_kept_is_kept(void **state) {
  (void)state;
  atomic_store(&heard[0], 0);
  /* with an on_lost, the renewer knows the hold already */
  for (int hears = 0; hears < 2; hears++) {
    corral_lock *one = take(
        a, "n", CORRAL_LOCK(.ttl_ms = 6000, .on_lost = hears ? hear : NULL, .lost_arg = &heard[0]));
    corral_lock *two = take(a, "n", CORRAL_LOCK(.reentrant = 1, .ttl_ms = 6000, .keep = 1));
    until(a, CORRAL_EVENT_LOCK_EXTENDED, corral_counter(a, CORRAL_EVENT_LOCK_EXTENDED) + 2);
    assert_true(corral_lock_left_ms(one) > 0);
    assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
    assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
  }
  assert_int_equal(atomic_load(&heard[0]), 0);
}

static void each_taking_is_told_the_loss_by_its_own_on_lost_unless_it_was_released(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) atomic_store(&heard[i], 0);
  corral_lock *one =
      take(a, "n", CORRAL_LOCK(.ttl_ms = 4000, .on_lost = hear, .lost_arg = &heard[0]));
  corral_lock *two =
      take(a, "n", CORRAL_LOCK(.reentrant = 1, .on_lost = hear, .lost_arg = &heard[1]));
  corral_lock *three =
      take(a, "n", CORRAL_LOCK(.reentrant = 1, .on_lost = hear, .lost_arg = &heard[2]));
  assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
  for (int64_t end = crl_env_now_ms() + 30000;
       atomic_load(&heard[0]) + atomic_load(&heard[2]) < 2 && crl_env_now_ms() < end;)
    crl_env_pause_us(1000);
  assert_int_equal(corral_lock_release(three, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(one, &error), CORRAL_ELOST);
  assert_int_equal(atomic_load(&heard[0]), 1);
  assert_int_equal(atomic_load(&heard[1]), 0);
  assert_int_equal(atomic_load(&heard[2]), 1);
  assert_int_equal(atomic_load(&a_lost), 1);
}

/* ---- shared -------------------------------------------------------------------------------- */

static void readers_share_and_a_writer_is_alone(void **state) {
  (void)state;
  corral_lock *r1 = take(a, "n", CORRAL_LOCK(.shared = 1)),
              *r2 = take(b, "n", CORRAL_LOCK(.shared = 1, .owner = "b"));
  assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "w")), CORRAL_EBUSY);
  corral_lock_release(r1, NULL);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "w")), CORRAL_EBUSY);
  corral_lock_release(r2, NULL);
  corral_lock *w = take(b, "n", CORRAL_LOCK(.owner = "w"));
  assert_int_equal(try(a, "n", CORRAL_LOCK(.shared = 1)), CORRAL_EBUSY);
  corral_lock_release(w, NULL);
}

static void a_reader_who_wants_to_write_is_told_that_he_would_wait_for_himself(void **state) {
  (void)state;
  corral_lock *r = take(a, "n", CORRAL_LOCK(.shared = 1)), *none = NULL;
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.reentrant = 1), &none, &error),
                   CORRAL_ERECURSION);
  assert_int_equal(corral_lock_release(r, &error), CORRAL_OK);
  corral_lock *w = take(a, "n", CORRAL_LOCK(0));
  r = take(a, "n", CORRAL_LOCK(.shared = 1, .reentrant = 1));
  corral_lock_release(r, NULL);
  corral_lock_release(w, NULL);
}

/* A writer reads on: the order in which it releases doesn't matter to others. */
static void a_writer_who_took_it_to_read_and_releases_the_write_reads_on(void **state) {
  (void)state;
  for (int first = 0; first < 2; first++) {
    corral_lock *writes = take(a, "n", CORRAL_LOCK(0)), *none = NULL;
    corral_lock *reads = take(a, "n", CORRAL_LOCK(.reentrant = 1, .shared = 1));
    assert_int_equal(try(b, "n", CORRAL_LOCK(.shared = 1, .owner = "b")), CORRAL_EBUSY);
    assert_int_equal(corral_lock_release(first ? reads : writes, &error), CORRAL_OK);
    assert_int_equal(try(b, "n", CORRAL_LOCK(.shared = 1, .owner = "b")),
                     first ? CORRAL_EBUSY : CORRAL_OK);
    assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "b")), CORRAL_EBUSY);
    assert_int_equal(
        corral_lock_take(a, "n", 1, CORRAL_LOCK(.reentrant = 1), first ? &reads : &none, &error),
        first ? CORRAL_OK : CORRAL_ERECURSION);
    if (first) assert_int_equal(corral_lock_release(reads, &error), CORRAL_OK);
    assert_int_equal(corral_lock_release(first ? writes : reads, &error), CORRAL_OK);
    assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "b")), CORRAL_OK);
  }
}

static void a_downgrade_lets_waiting_readers_in(void **state) {
  (void)state;
  corral_lock_options options =
      *CORRAL_LOCK(.shared = 1, .wait_ms = LONG_NAP_MS, .poll_max_ms = 60000);
  atomic_store(&naps_last, 1);
  for (int i = 0; i < WAKE_ROUNDS; i++) {
    waiter here = {0}, there = {0};
    corral_lock *w = take(a, "n", CORRAL_LOCK(.ttl_ms = 2 * LONG_NAP_MS));
    uint64_t by_a = corral_counter(a, CORRAL_EVENT_LOCK_ASKED),
             by_b = corral_counter(b, CORRAL_EVENT_LOCK_ASKED);
    start(&here, a, &options);
    start(&there, b, &options);
    await_asked(a, by_a, 2);
    await_asked(b, by_b, 2);
    assert_int_equal(corral_lock_downgrade(w, &error), CORRAL_OK);
    pthread_join(here.thread, NULL);
    pthread_join(there.thread, NULL);
    assert_int_equal(here.status, CORRAL_OK);
    assert_int_equal(there.status, CORRAL_OK);
    assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
    assert_int_equal(corral_lock_downgrade(w, &error), CORRAL_OK);
    assert_int_equal(corral_lock_release(w, &error), CORRAL_OK);
  }
}

/* ---- permits ------------------------------------------------------------------------------- */

static void permits_are_held_by_so_many_and_shown(void **state) {
  (void)state;
  corral_lock_holder who[4];
  size_t count;
  corral_lock *one = take(a, "n", CORRAL_LOCK(.permits = 2, .ttl_ms = 60000)),
              *two = take(b, "n", CORRAL_LOCK(.permits = 2, .ttl_ms = 20000, .owner = "two"));
  assert_true(corral_lock_fence(two) > corral_lock_fence(one));
  assert_int_equal(try(b, "n", CORRAL_LOCK(.permits = 2, .owner = "x")), CORRAL_EBUSY);
  assert_in_range(error.retry_after_ms, 1, 20000); /* when the first one ends */
  assert_int_equal(try(b, "n", CORRAL_LOCK(.owner = "x")), CORRAL_EBUSY);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.shared = 1, .owner = "x")), CORRAL_EBUSY);
  assert_int_equal(corral_lock_show(a, "n", 1, who, 4, &count, &error), CORRAL_OK);
  assert_int_equal(count, 2);
  assert_true(who[0].shared == 2 && who[1].shared == 2);
  assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.permits = 2, .owner = "x")), CORRAL_OK);
  assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
  one = take(a, "n", CORRAL_LOCK(0));
  assert_int_equal(try(b, "n", CORRAL_LOCK(.permits = 2, .owner = "x")), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
}

/* An owner has one permit of a name; whatever else it asks for would wait for itself. */
static void a_permit_taken_again_is_the_same_one_and_nothing_else(void **state) {
  (void)state;
  corral_lock *none = NULL, *one = take(a, "n", CORRAL_LOCK(.permits = 2));
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.permits = 2), &none, &error),
                   CORRAL_ERECURSION);
  corral_lock *again = take(a, "n", CORRAL_LOCK(.permits = 2, .reentrant = 1)),
              *other = take(b, "n", CORRAL_LOCK(.permits = 2, .owner = "other"));
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.reentrant = 1), &none, &error),
                   CORRAL_ERECURSION);
  assert_non_null(strstr(error.text, "permit"));
  assert_int_equal(
      corral_lock_take(a, "n", 1, CORRAL_LOCK(.reentrant = 1, .shared = 1), &none, &error),
      CORRAL_ERECURSION);
  assert_int_equal(corral_lock_downgrade(one, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.permits = 2, .owner = "x")), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(again, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.permits = 2, .owner = "x")), CORRAL_OK);
  assert_int_equal(corral_lock_release(other, &error), CORRAL_OK);
  one = take(a, "n", CORRAL_LOCK(0));
  assert_int_equal(
      corral_lock_take(a, "n", 1, CORRAL_LOCK(.permits = 2, .reentrant = 1), &none, &error),
      CORRAL_ERECURSION);
  assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
  assert_int_equal(
      corral_lock_take(a, "n", 1, CORRAL_LOCK(.permits = 2, .shared = 1), &none, &error),
      CORRAL_EINVAL);
  assert_int_equal(corral_lock_take(a, "n", 1, CORRAL_LOCK(.permits = 1025), &none, &error),
                   CORRAL_EINVAL);
}

static void each_permit_that_is_given_back_lets_one_waiter_in(void **state) {
  (void)state;
  corral_lock_options options =
      *CORRAL_LOCK(.permits = 2, .wait_ms = LONG_NAP_MS, .poll_max_ms = 60000);
  atomic_store(&naps_last, 1);
  for (int i = 0; i < WAKE_ROUNDS; i++) {
    waiter here = {0}, there = {0};
    corral_lock *one = take(a, "n", CORRAL_LOCK(.permits = 2, .ttl_ms = 2 * LONG_NAP_MS)),
                *two = take(b, "n", CORRAL_LOCK(.permits = 2, .ttl_ms = 2 * LONG_NAP_MS));
    uint64_t by_a = corral_counter(a, CORRAL_EVENT_LOCK_ASKED),
             by_b = corral_counter(b, CORRAL_EVENT_LOCK_ASKED);
    start(&here, a, &options);
    start(&there, b, &options);
    await_asked(a, by_a, 2);
    await_asked(b, by_b, 2);
    assert_int_equal(corral_lock_release(i % 2 == 0 ? one : two, &error), CORRAL_OK);
    pthread_join(here.thread, NULL);
    pthread_join(there.thread, NULL); /* by the one's release, or the other waiter's */
    assert_int_equal(here.status, CORRAL_OK);
    assert_int_equal(there.status, CORRAL_OK);
    assert_int_equal(corral_lock_release(i % 2 == 0 ? two : one, &error), CORRAL_OK);
  }
}

static void many_threads_never_hold_more_permits_than_there_are(void **state) {
  (void)state;
  enum { MEMBERS = 24, PERMITS = 3 };
  _Atomic int inside = 0, most = 0;
  waiter members[MEMBERS] = {0};
  for (int i = 0; i < MEMBERS; i++) {
    members[i].inside = &inside;
    members[i].most = &most;
    start(&members[i], i % 2 ? a : b, CORRAL_LOCK(.permits = PERMITS, .wait_ms = 60000));
  }
  for (int i = 0; i < MEMBERS; i++) {
    pthread_join(members[i].thread, NULL);
    assert_int_equal(members[i].status, CORRAL_OK);
  }
  assert_in_range(most, 1, PERMITS);
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, close_both)
  const struct CMUnitTest tests[] = {
      T(a_lock_is_refused_to_others_until_it_is_released),
      T(fencing_tokens_grow_from_hold_to_hold),
      T(who_has_it_is_shown),
      T(names_are_bytes_of_any_value_and_length),
      T(wrong_arguments_are_named),
      T(without_randomness_there_is_no_lock),
      T(random_bytes_are_asked_for_once_for_sixteen_takings),
      T(want_of_memory_is_told_and_leaves_nothing_held),
      T(r4_no_public_function_takes_a_token),
      T(a_hold_ends_by_its_ttl_and_its_holder_is_told_once),
      T(what_became_of_a_lost_hold_is_in_the_error),
      T(a_kept_hold_outlives_its_ttl),
      T(what_is_kept_is_kept_for_max_ms_at_most),
      T(extending_lengthens_and_never_shortens),
      T(a_waiter_elsewhere_is_woken_by_the_release),
      T(a_waiter_in_the_same_process_is_woken_without_a_watch),
      T(the_next_waiter_asks_when_the_first_gives_up),
      T(a_child_leaves_its_parents_lock_alone),
      T(many_threads_are_never_inside_at_once_and_one_of_a_process_asks),
      T(the_deadline_ends_a_wait_and_says_who_was_in_the_way),
      T(a_cancelled_wait_ends),
      T(who_has_it_already_is_told_at_once),
      T(a_reentrant_lock_is_released_by_its_last_release),
      T(a_count_never_outlives_the_lock_that_it_counts),
      T(a_hold_is_whole_before_another_thread_of_its_owner_can_have_it),
      T(two_threads_of_an_owner_release_its_takings_at_the_same_time),
      T(little_is_left_so_taking_again_extends),
      T(a_nested_taking_has_the_ttl_that_it_asks_for),
      T(a_nested_taking_that_is_to_be_kept_is_kept),
      T(each_taking_is_told_the_loss_by_its_own_on_lost_unless_it_was_released),
      T(readers_share_and_a_writer_is_alone),
      T(a_reader_who_wants_to_write_is_told_that_he_would_wait_for_himself),
      T(a_downgrade_lets_waiting_readers_in),
      T(a_writer_who_took_it_to_read_and_releases_the_write_reads_on),
      T(permits_are_held_by_so_many_and_shown),
      T(a_permit_taken_again_is_the_same_one_and_nothing_else),
      T(each_permit_that_is_given_back_lets_one_waiter_in),
      T(many_threads_never_hold_more_permits_than_there_are),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
