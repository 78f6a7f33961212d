/* plain_lmdb.c: the plain client of a file of LMDB that the processes of this host share. A value
 * is the moment of its end, then the text. */
#include "weather.h"

#include <stdlib.h>
#include <string.h>

#include <lmdb.h>

#include "../kit.h"

enum { MAP = 64 << 20, READERS = 4096 };

typedef struct item {
  int64_t ends_us; /* the host's clock */
  char text[TEXT];
} item;

static MDB_env *env;
static MDB_dbi items;

static void must(int code) {
  if (code != 0) die(mdb_strerror(code));
}

void plain_lmdb_open(const char *path) {
  MDB_txn *txn;
  must(mdb_env_create(&env));
  must(mdb_env_set_mapsize(env, MAP));
  must(mdb_env_set_maxreaders(env, READERS));
  must(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOTLS, 0600));
  must(mdb_txn_begin(env, NULL, 0, &txn));
  must(mdb_dbi_open(txn, NULL, 0, &items));
  must(mdb_txn_commit(txn));
}

static MDB_val key_of(const char *key) {
  return (MDB_val){.mv_size = strlen(key), .mv_data = (void *)(uintptr_t)key};
}

/* 1: there, and not over. */
static int find(MDB_txn *txn, const char *key, item *found) {
  MDB_val name = key_of(key), data;
  if (mdb_get(txn, items, &name, &data) != 0 || data.mv_size != sizeof *found) return 0;
  memcpy(found, data.mv_data, sizeof *found);
  return found->ends_us > clock_us();
}

plain_status plain_lmdb_get(const char *key, char *value) {
  MDB_txn *txn;
  item found;
  must(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
  int there = find(txn, key, &found);
  mdb_txn_abort(txn);
  if (!there) return PLAIN_MISS;
  memcpy(value, found.text, TEXT);
  return PLAIN_OK;
}

plain_status plain_lmdb_store(const char *key, const char *value, int64_t ttl_us, int adds) {
  MDB_txn *txn;
  item old, made = {.ends_us = clock_us() + ttl_us};
  MDB_val name = key_of(key), data = {.mv_size = sizeof made, .mv_data = &made};
  snprintf(made.text, sizeof made.text, "%s", value);
  must(mdb_txn_begin(env, NULL, 0, &txn));
  if (adds && find(txn, key, &old)) {
    mdb_txn_abort(txn);
    return PLAIN_MISS;
  }
  must(mdb_put(txn, items, &name, &data, 0));
  must(mdb_txn_commit(txn));
  return PLAIN_OK;
}

plain_status plain_lmdb_delete(const char *key) {
  MDB_txn *txn;
  MDB_val name = key_of(key);
  must(mdb_txn_begin(env, NULL, 0, &txn));
  int code = mdb_del(txn, items, &name, NULL);
  if (code != MDB_NOTFOUND) must(code);
  must(mdb_txn_commit(txn));
  return PLAIN_OK;
}

plain_status plain_lmdb_flush(void) {
  MDB_txn *txn;
  must(mdb_txn_begin(env, NULL, 0, &txn));
  must(mdb_drop(txn, items, 0));
  must(mdb_txn_commit(txn));
  return PLAIN_OK;
}
