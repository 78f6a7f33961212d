/* test_lmdb_grow.c: the change of an lmdb map goes before transactions that begin later, with the
 * locks of any C library. */
#include <pthread.h>
#include <stdatomic.h>

#include "lmdb/lmdb.h"
#include "store/registry.h"
#include "support/lmdb_kit.h"

enum { SMALL = 1 << 20, LARGE = 1 << 26, PATIENCE_MS = 10000, PAUSE_US = 300000 };

typedef struct scene {
  crl_lmdb_env *env;
  crl_lmdb_wanted large;
  size_t seen; /* the size of the map that the second reader had */
} scene;

static void *grow(void *arg) {
  scene *s = arg;
  crl_lmdb_env *env = NULL;
  corral_error error;
  int64_t deadline = s->large.host->now_ms() + PATIENCE_MS;
  if (crl_lmdb_env_take(&s->large, deadline, &env, &error) == CORRAL_OK) crl_lmdb_env_drop(env);
  return NULL;
}

static void *read_later(void *arg) {
  scene *s = arg;
  MDB_txn *txn;
  MDB_envinfo info;
  if (crl_lmdb_read_begin(s->env, &txn) != 0) return NULL;
  if (mdb_env_info(s->env->env, &info) == 0) s->seen = info.me_mapsize;
  crl_lmdb_read_end(s->env, txn);
  return NULL;
}

/* A reader is at work. The change of the map waits for it, and a second reader for the change. The
 * pause gives a second reader that doesn't wait the time to be first. */
static void a_change_of_the_map_goes_before_later_readers(void **state) {
  (void)state;
  const char *path = file("grow");
  const corral_host *host = crl_registry_host();
  crl_lmdb_wanted small = {.host = host, .path = path, .size = SMALL};
  scene s = {.large = {.host = host, .path = path, .size = LARGE}};
  corral_error error;
  pthread_t grower, reader;
  MDB_txn *txn;
  assert_int_equal(crl_lmdb_env_take(&small, host->now_ms() + PATIENCE_MS, &s.env, &error),
                   CORRAL_OK);
  assert_int_equal(crl_lmdb_read_begin(s.env, &txn), 0);
  assert_int_equal(pthread_create(&grower, NULL, grow, &s), 0);
  while (atomic_load(&s.env->map.inside) < CRL_LMDB_CLOSED) usleep(1000);
  assert_int_equal(pthread_create(&reader, NULL, read_later, &s), 0);
  usleep(PAUSE_US);
  crl_lmdb_read_end(s.env, txn);
  pthread_join(grower, NULL);
  pthread_join(reader, NULL);
  assert_true(s.seen >= LARGE);
  crl_lmdb_env_drop(s.env);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_change_of_the_map_goes_before_later_readers),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
