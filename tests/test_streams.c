/* test_streams.c: a process without standard streams: no descriptor opened by corral or a library
 * gets the numbers 0 to 2. Stores with a server of their own are tested by corral-conformance. */
#include "support/streams_kit.h"

#include <corral/loop.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "os/env.h"
#include "election/hostlock.h"
#ifdef CORRAL_HAVE_etcd
#include "support/etcd_server.h"
#endif
#ifdef CORRAL_HAVE_mariadb
#include "support/mariadb_server.h"
#endif
#ifdef CORRAL_HAVE_postgresql
#include "support/postgresql_server.h"
#endif
#ifdef CORRAL_HAVE_zookeeper
#include "support/zookeeper_server.h"
#endif

enum { THREADS = 8, ROUNDS = 200 };

/* ---- own_fd and guard_standard ------------------------------------------------------------- */

static int move_one(void) {
  int fd = crl_env_own_fd(eventfd(0, 0));
  if (fd <= 2 || (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) return 1;
  if (!is_closed(0) || !is_closed(1) || !is_closed(2)) return 2;
  if (crl_env_own_fd(fd) != fd) return 3;
  errno = 0;
  return crl_env_own_fd(open("/nowhere/at/all", O_RDONLY)) == -1 && errno == ENOENT ? 0 : 4;
}

static void an_own_descriptor_is_moved_behind_the_standard_ones(void **state) {
  (void)state;
  assert_int_equal(without_streams(move_one), 0);
}

/* The lowest free descriptor above 2. */
static int next_free(void) {
  int some = eventfd(0, 0), next = some > 2 ? some : fcntl(some, F_DUPFD, 3);
  close(some);
  close(next);
  return next;
}

static int guard_them(void) {
  char byte;
  int next = next_free();
  crl_env_guard_standard();
  for (int fd = 0; fd <= 2; fd++)
    if (!is_null(fd) || (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) return 1;
  if (read(0, &byte, 1) != -1 || errno != EBADF) return 2;
  if (write(1, "x", 1) != -1 || errno != EBADF || write(2, "x", 1) != -1 || errno != EBADF)
    return 3;
  if (next_free() != next) return 4; /* no other descriptor was left open */
  close(1);
  crl_env_guard_standard();
  return is_null(1) && next_free() == next ? 0 : 5;
}

static void absent_standard_streams_become_dev_null_and_fail_as_before(void **state) {
  (void)state;
  assert_int_equal(without_streams(guard_them), 0);
}

static pthread_barrier_t barrier;

static void *guard_often(void *arg) {
  (void)arg;
  for (int i = 0; i < ROUNDS; i++) {
    pthread_barrier_wait(&barrier);
    crl_env_guard_standard();
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}

static int guard_at_once(void) {
  pthread_t threads[THREADS];
  int bad = 0, next = next_free();
  pthread_barrier_init(&barrier, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, guard_often, NULL) != 0) return 1;
  for (int i = 0; i < ROUNDS; i++) {
    for (int fd = 0; fd <= 2; fd++) close(fd);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int fd = 0; fd <= 2; fd++) bad |= !is_null(fd);
    bad |= next_free() != next; /* exactly three descriptors are kept */
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  return bad ? 2 : 0;
}

static void threads_that_guard_at_once_keep_three_and_no_more(void **state) {
  (void)state;
  assert_int_equal(without_streams(guard_at_once), 0);
}

/* ---- the host lock ------------------------------------------------------------------------- */

static int lock_host(void) {
  corral_error error = {0};
  int fd = -1;
  crl_hostlock *lock = crl_hostlock_new(NULL, "test_streams");
  if (lock == NULL || crl_hostlock_take(lock, "key", 3, &fd, &error) != CORRAL_OK) return 1;
  return fd > 2 && is_closed(0) && is_closed(1) && is_closed(2) ? 0 : 2;
}

static void the_hosts_lock_takes_none(void **state) {
  (void)state;
  assert_int_equal(without_streams(lock_host), 0);
}

static int open_loop(void) {
  corral *c = NULL;
  corral_loop *loop = NULL;
  if (corral_open(CORRAL_OPTIONS(.store = "memory:"), &c, NULL) != CORRAL_OK) return 1;
  if (corral_loop_open(c, &loop, NULL) != CORRAL_OK) return 2;
  return corral_loop_fd(loop) > 2 && is_closed(0) && is_closed(1) && is_closed(2) ? 0 : 3;
}

static void a_loop_takes_none(void **state) {
  (void)state;
  assert_int_equal(without_streams(open_loop), 0);
}

/* ---- stores with a server of their own ----------------------------------------------------- */

/* Runs the cases of corral-conformance about descriptors on a store. */
__attribute__((unused)) static void conforms(const char *uri) {
  const char *program = getenv("CORRAL_CONFORMANCE");
  char command[1024];
  assert_non_null(program);
  snprintf(command, sizeof command,
           "'%s' --case a-store-takes-no-standard-descriptor --case "
           "a-watch-takes-no-standard-descriptor '%s'",
           program, uri);
  assert_int_equal(system(command), 0);
}

#ifdef CORRAL_HAVE_postgresql
static void postgresql_takes_none(void **state) {
  postgresql_server *one;
  (void)state;
  if (!postgresql_server_start(&one, NULL)) skip();
  conforms(postgresql_server_uri(one, ""));
  conforms(postgresql_server_uri(one, "?locks=advisory"));
  postgresql_server_stop(one);
}
#endif

#ifdef CORRAL_HAVE_mariadb
static void mariadb_takes_none(void **state) {
  mariadb_server *one;
  (void)state;
  if (!mariadb_server_start(&one)) skip();
  conforms(mariadb_server_uri(one));
  mariadb_server_stop(one);
}
#endif

#ifdef CORRAL_HAVE_etcd
static void etcd_takes_none(void **state) {
  etcd_server *one;
  (void)state;
  if (!etcd_server_start(&one, NULL)) skip();
  conforms(etcd_server_uri(one));
  etcd_server_stop(one);
}
#endif

#ifdef CORRAL_HAVE_zookeeper
static void zookeeper_takes_none(void **state) {
  zookeeper_server *one;
  char uri[64];
  (void)state;
  if (!zookeeper_server_start(&one, NULL)) skip();
  snprintf(uri, sizeof uri, "zookeeper://127.0.0.1:%d", zookeeper_server_port(one));
  conforms(uri);
  zookeeper_server_stop(one);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_own_descriptor_is_moved_behind_the_standard_ones),
      cmocka_unit_test(absent_standard_streams_become_dev_null_and_fail_as_before),
      cmocka_unit_test(threads_that_guard_at_once_keep_three_and_no_more),
      cmocka_unit_test(the_hosts_lock_takes_none),
      cmocka_unit_test(a_loop_takes_none),
#ifdef CORRAL_HAVE_postgresql
      cmocka_unit_test(postgresql_takes_none),
#endif
#ifdef CORRAL_HAVE_mariadb
      cmocka_unit_test(mariadb_takes_none),
#endif
#ifdef CORRAL_HAVE_etcd
      cmocka_unit_test(etcd_takes_none),
#endif
#ifdef CORRAL_HAVE_zookeeper
      cmocka_unit_test(zookeeper_takes_none),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
