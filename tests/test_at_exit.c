/* test_at_exit.c: a process that ends by exit(), or by the end of main, without corral_close: what
 * it has handed out before that was stored, is stored. On a real Redis, behind a proxy that keeps
 * each request back for a moment: a process that doesn't wait takes its settle along. */
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIVE
#include "os/at_exit.h"
#include "support/answers_kit.h"
#include "support/body_proxy.h"
#include "support/fork_kit.h"

enum { PATIENCE = 60000, OP_MS = 60000, CHILDREN = 20 };

extern char **environ;
static char program[4096];

/* ---- the short process --------------------------------------------------------------------- */

static corral *mine; /* never closed, and no leak */

static int fill_with_key(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, key_len);
}

/* Makes a value, which is still to be stored. 0: not so. */
static int makes(const char *uri, const char *key) {
  corral_value *value = NULL;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = FAR, .wait_ms = PATIENCE, .lease_ms = PATIENCE,
                    .lease_min_ms = PATIENCE, .settle_behind = 1);
  const corral_options *options =
      CORRAL_OPTIONS(.store = uri, .op_ms = OP_MS, .away_ms = 2 * PATIENCE);
  if (corral_open(options, &mine, NULL) != CORRAL_OK ||
      corral_get_or_compute(mine, key, strlen(key), CORRAL_CALL(.policy = policy), fill_with_key,
                            NULL, &value) != CORRAL_OK)
    return 0;
  corral_kept kept = corral_value_kept(value);
  corral_value_unref(value);
  return kept == CORRAL_KEPT_UNKNOWN;
}

static void *exit_at_once(void *arg) {
  (void)arg;
  exit(0);
}

/* The child inherits what its parent has begun, and has no thread for it. */
static int fork_and_wait(void) {
  int status = 0;
  pid_t child = fork_at_rest();
  if (child == 0) exit(0);
  return child > 0 && waitpid(child, &status, 0) == child ? 0 : 4;
}

/* main of the processes that are spawned below: END URI KEY. */
static int be_short(char *const *argv) {
  const char *end = argv[1];
  pthread_t thread;
  if (strcmp(end, "endless") == 0) {
    crl_at_exit_begin(500);
    return 0;
  }
  if (!makes(argv[2], argv[3])) return 3;
  if (strcmp(end, "fork") == 0) _exit(fork_and_wait());
  if (strcmp(end, "close") == 0) corral_close(mine);
  if (strcmp(end, "exit") == 0) exit(0);
  if (strcmp(end, "thread") == 0 && pthread_create(&thread, NULL, exit_at_once, NULL) == 0)
    for (;;) pause();
  return 0;
}

/* ---- its parent ---------------------------------------------------------------------------- */

static pid_t spawned(const char *end, const char *uri, const char *key) {
  pid_t pid = 0;
  char *argv[] = {program, (char *)(uintptr_t)end, (char *)(uintptr_t)uri, (char *)(uintptr_t)key,
                  NULL};
  assert_int_equal(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
  return pid;
}

/* Within a patience that is shorter than OP_MS. */
static void expect_end(pid_t child) {
  int status = 0;
  for (int ms = 0; waitpid(child, &status, WNOHANG) == 0; ms += 10) {
    if (ms >= OP_MS / 2) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      fail_msg("the process does not end");
    }
    lab_sleep_ms(10);
  }
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static const char *uri_of(const body_proxy *proxy) {
  static char uri[64];
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", body_proxy_port(proxy));
  return uri;
}

static void processes_that_end_leave_their_values(const char *end) {
  pid_t children[CHILDREN];
  char key[16];
  redis_server_ask(redis, "FLUSHALL");
  body_proxy *proxy = body_proxy_start(redis_server_port(redis), BODY_LAGS, 0, NULL, NULL);
  for (int i = 0; i < CHILDREN; i++) {
    snprintf(key, sizeof key, "k%d", i);
    children[i] = spawned(end, uri_of(proxy), key);
  }
  for (int i = 0; i < CHILDREN; i++) expect_end(children[i]);
  corral *c = opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .op_ms = OP_MS));
  for (int i = 0; i < CHILDREN; i++) {
    snprintf(key, sizeof key, "k%d", i);
    assert_string_equal(inspected(c, key).state, "fresh");
  }
  corral_close(c);
  body_proxy_stop(proxy);
}

static void processes_that_exit_right_after_their_call_leave_their_values(void **state) {
  (void)state;
  processes_that_end_leave_their_values("exit");
}

static void so_do_those_that_return_from_main(void **state) {
  (void)state;
  processes_that_end_leave_their_values("return");
}

static void and_those_that_another_thread_ends(void **state) {
  (void)state;
  processes_that_end_leave_their_values("thread");
}

static void and_those_that_close_first(void **state) {
  (void)state;
  processes_that_end_leave_their_values("close");
}

static void what_does_not_end_in_time_is_waited_for_no_longer(void **state) {
  (void)state;
  expect_end(spawned("endless", "", ""));
}

static void a_fork_waits_for_nothing_of_its_parent(void **state) {
  (void)state;
  redis_server_ask(redis, "FLUSHALL");
  body_proxy *proxy = body_proxy_start(redis_server_port(redis), BODY_LAGS, 0, NULL, NULL);
  expect_end(spawned("fork", uri_of(proxy), "k"));
  body_proxy_stop(proxy);
}

/* ---- a library that is unloaded ------------------------------------------------------------ */

typedef int opens(const corral_options *options, corral **ret, corral_error *error);
typedef int gets(corral *c, const void *key, size_t key_len, const corral_call *call,
                 corral_compute *compute, void *arg, corral_value **ret);
typedef int fills(corral_fill *fill, const void *bytes, size_t size);
typedef void closes(corral *c);
typedef void unrefs(corral_value *value);

static fills *fill_there;

static int fill_by_the_library(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return fill_there(fill, key, key_len);
}

/* Sets *ret, a pointer to a function. */
static void find_in(void *library, const char *name, void *ret) {
  void *symbol = dlsym(library, name);
  assert_non_null(symbol);
  memcpy(ret, &symbol, sizeof symbol);
}

/* After this the test's own end shows that nothing of the library is called any more. */
static void a_library_that_was_unloaded_leaves_nothing_behind(void **state) {
  (void)state;
  corral *c = NULL;
  corral_value *value = NULL;
  opens *open;
  gets *get;
  closes *close_corral;
  unrefs *unref;
  const char *path = getenv("CORRAL_LIBRARY");
  if (path == NULL) skip();
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fail_msg("%s", dlerror());
  find_in(library, "corral_fill_bytes", &fill_there);
  find_in(library, "corral_open", &open);
  find_in(library, "corral_get_or_compute", &get);
  find_in(library, "corral_close", &close_corral);
  find_in(library, "corral_value_unref", &unref);
  assert_int_equal(open(CORRAL_OPTIONS(.store = "memory:unloaded"), &c, NULL), CORRAL_OK);
  assert_int_equal(get(c, "k", 1, NULL, fill_by_the_library, NULL, &value), CORRAL_OK);
  unref(value);
  close_corral(c);
  assert_int_equal(dlclose(library), 0);
}

/* ---- the count ----------------------------------------------------------------------------- */

static void more_ends_than_begins_do_no_harm(void **state) {
  (void)state;
  crl_at_exit_end();
  crl_at_exit_begin(1);
  crl_at_exit_end();
  crl_at_exit_end();
}

static int setup(void **state) {
  (void)state;
  return redis_server_start(&redis, NULL) ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  redis_server_stop(redis);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(processes_that_exit_right_after_their_call_leave_their_values),
      cmocka_unit_test(so_do_those_that_return_from_main),
      cmocka_unit_test(and_those_that_another_thread_ends),
      cmocka_unit_test(and_those_that_close_first),
      cmocka_unit_test(what_does_not_end_in_time_is_waited_for_no_longer),
      cmocka_unit_test(a_fork_waits_for_nothing_of_its_parent),
      cmocka_unit_test(a_library_that_was_unloaded_leaves_nothing_behind),
      cmocka_unit_test(more_ends_than_begins_do_no_harm),
  };
  if (argc == 4) return be_short(argv);
  ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
  if (len <= 0) return 1;
  return cmocka_run_group_tests(tests, setup, teardown);
}
