/* test_fork.c: forks while other threads are anywhere inside the library: each child opens its own
 * corrals and uses them.
 *
 * Built without sanitizers, whose own locks don't support forks of multithreaded processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <corral/lock.h>
#include <corral/loop.h>

#include "os/env.h"
#include "support/folder_kit.h"
#include "support/redis_server.h"

enum { FORKS = 150, PATIENCE_MS = 60000, STORES = 3, ACTORS = 6 };

static redis_server *server;
static const char *uris[STORES]; /* memory, lmdb, Redis; NULL: not available */
static corral *shared[STORES];   /* used by all threads of the parent */
static atomic_int stop, turns[ACTORS];

static int give_answer(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "answer", 6);
}

static int ask(corral *c, const char *key, corral_error *error) {
  corral_value *value = NULL;
  int status = corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.error = error), give_answer,
                                     NULL, &value);
  corral_value_unref(value);
  return status;
}

/* ---- threads of the parent ----------------------------------------------------------------- */

static void open_and_close(int i) {
  corral *c = NULL;
  const char *uri = uris[i % STORES];
  if (uri == NULL || corral_open(CORRAL_OPTIONS(.store = uri), &c, NULL) != CORRAL_OK) return;
  (void)ask(c, "key", NULL);
  corral_close(c);
}

static void get(int i) {
  if (shared[i % STORES] != NULL) (void)ask(shared[i % STORES], "key", NULL);
}

static void invalidate(int i) {
  if (shared[i % STORES] != NULL) (void)corral_invalidate(shared[i % STORES], "key", 3, NULL);
}

static void lock(int i) {
  corral_lock *held = NULL;
  corral *c = shared[i % STORES];
  if (c != NULL &&
      corral_lock_take(c, "n", 1, CORRAL_LOCK(.keep = 1, .wait_ms = 100), &held, NULL) == CORRAL_OK)
    corral_lock_release(held, NULL);
}

/* Each call loads a file that isn't a plugin, rejects it, and unloads it. */
static int load(void) {
  corral *c = NULL;
  return corral_open(CORRAL_OPTIONS(.store = "odd:"), &c, NULL);
}

static void load_and_unload(int i) {
  (void)i;
  (void)load();
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  (void)status;
  (void)error;
  corral_value_unref(value);
  *(int *)arg = 1;
}

static void begin(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  (void)key;
  (void)key_len;
  (void)arg;
  (void)corral_fill_bytes(fill, "answer", 6);
  corral_fill_done(fill);
}

static void loop(int i) {
  corral_loop *l = NULL;
  corral_async_call *call = NULL;
  int done = 0;
  if (shared[i % STORES] == NULL || corral_loop_open(shared[i % STORES], &l, NULL) != CORRAL_OK)
    return;
  int status = corral_loop_get(l, "key", 3, NULL,
                               CORRAL_ASYNC(.start = begin, .done = on_done, .arg = &done), &call);
  while (status == CORRAL_OK && !done) {
    crl_env_pause_us(100);
    corral_loop_dispatch(l);
  }
  corral_loop_close(l);
}

typedef struct actor {
  int number;
  void (*act)(int turn);
} actor;

static const actor actors[ACTORS] = {{0, open_and_close},  {1, get}, {2, invalidate}, {3, lock},
                                     {4, load_and_unload}, {5, loop}};

static void *play(void *arg) {
  const actor *a = arg;
  for (int i = 0; !atomic_load(&stop); i++) {
    a->act(i);
    atomic_fetch_add(&turns[a->number], 1);
  }
  return NULL;
}

static void until_all_have_played(void) {
  int64_t end = crl_env_now_ms() + PATIENCE_MS;
  for (int i = 0; i < ACTORS; i++)
    while (atomic_load(&turns[i]) == 0 && crl_env_now_ms() < end) crl_env_pause_us(500);
}

/* ---- children ------------------------------------------------------------------------------ */

/* Returns 0, or the number of the failed check. */
static int live(void) {
  for (int i = 0; i < STORES; i++) {
    corral *c = NULL;
    if (uris[i] == NULL) continue;
    if (ask(shared[i], "key", NULL) != CORRAL_EFORKED) return 10 + i;
    if (corral_open(CORRAL_OPTIONS(.store = uris[i], .op_ms = PATIENCE_MS / 2), &c, NULL) !=
        CORRAL_OK)
      return 20 + i;
    if (ask(c, "key", NULL) != CORRAL_OK) return 30 + i;
    if (corral_invalidate(c, "another", 7, NULL) != CORRAL_OK) return 40 + i;
    corral_close(c);
  }
  return load() == CORRAL_ENOPLUGIN ? 0 : 50;
}

/* Waits for a child; one that hangs is killed, and fails the test. */
static void await_child(pid_t pid, int number) {
  int status = 0;
  int64_t end = crl_env_now_ms() + PATIENCE_MS;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (crl_env_now_ms() > end) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      fail_msg("child %d hung", number);
    }
    crl_env_pause_us(500);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail_msg("child %d ended with wait status 0x%x", number, (unsigned)status);
}

static void fork_once(int number) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(live());
  }
  await_child(pid, number);
}

/* A system library that this program doesn't use, linked under a plugin's name. */
static void make_odd_plugin(void) {
  Dl_info info;
  char library[PATH_MAX], name[96];
  assert_true(dladdr(dlsym(RTLD_NEXT, "getpid"), &info) != 0);
  snprintf(library, sizeof library, "%.*s/libthread_db.so.1",
           (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname);
  snprintf(name, sizeof name, "%s/corral_plugin_odd.so", folder);
  assert_int_equal(symlink(library, name), 0);
  assert_int_equal(setenv("CORRAL_PLUGIN_PATH", folder, 1), 0);
  assert_int_equal(load(), CORRAL_ENOPLUGIN);
}

static int set_up(void **state) {
  static char lmdb[80];
  if (make_folder(state) != 0) return -1;
  snprintf(lmdb, sizeof lmdb, "lmdb:%s/store", folder);
  uris[0] = "memory:forks";
  uris[1] = lmdb;
  uris[2] = server == NULL ? NULL : redis_server_uri(server);
  make_odd_plugin();
  return 0;
}

static void a_child_forked_during_anything_opens_gets_and_closes(void **state) {
  (void)state;
  pthread_t threads[ACTORS];
  for (int i = 0; i < STORES; i++) {
    if (uris[i] == NULL) continue;
    assert_int_equal(corral_open(CORRAL_OPTIONS(.store = uris[i]), &shared[i], NULL), CORRAL_OK);
    assert_int_equal(ask(shared[i], "key", NULL), CORRAL_OK);
  }
  for (int i = 0; i < ACTORS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, play, (void *)(uintptr_t)&actors[i]), 0);
  until_all_have_played();
  for (int i = 0; i < FORKS; i++) fork_once(i);
  atomic_store(&stop, 1);
  for (int i = 0; i < ACTORS; i++) {
    pthread_join(threads[i], NULL);
    assert_true(turns[i] > 0);
  }
  for (int i = 0; i < STORES; i++) corral_close(shared[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
      a_child_forked_during_anything_opens_gets_and_closes, set_up, remove_folder)};
  redis_server_start(&server, NULL);
  int failed = cmocka_run_group_tests_name("fork", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
