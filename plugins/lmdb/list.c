/* list.c: lists the keys that begin with a prefix, which stand together. */
#include <sys/stat.h>

#include "lmdb.h"

static int begins(const MDB_val *key, const corral_listing *l) {
  return key->mv_size >= l->prefix_len && memcmp(key->mv_data, l->prefix, l->prefix_len) == 0;
}

/* 0 or an LMDB code. */
static int walk(crl_lmdb_env *env, MDB_txn *txn, const corral_listing *l) {
  MDB_cursor *at;
  MDB_val key = {.mv_size = l->prefix_len, .mv_data = (void *)(uintptr_t)l->prefix}, value;
  int code = mdb_cursor_open(txn, env->heads, &at);
  if (code != 0) return code;
  code = mdb_cursor_get(at, &key, &value, MDB_SET_RANGE);
  while (code == 0 && begins(&key, l) && l->tell(l->arg, key.mv_data, key.mv_size) == 0)
    code = mdb_cursor_get(at, &key, &value, MDB_NEXT);
  mdb_cursor_close(at);
  return code == MDB_NOTFOUND ? 0 : code;
}

int crl_lmdb_list(const crl_lmdb_wanted *wanted, const corral_listing *l, corral_error *error) {
  crl_lmdb_env *env = NULL;
  MDB_txn *txn;
  struct stat st;
  if (stat(wanted->path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR)) return CORRAL_OK;
  int status = crl_lmdb_env_take(wanted, wanted->host->now_ms() + l->op_ms, &env, error);
  if (status != CORRAL_OK) return status;
  int code = l->prefix_len > 0 && l->prefix_len <= CRL_LMDB_MAX_KEY ? crl_lmdb_read_begin(env, &txn)
                                                                    : MDB_NOTFOUND;
  if (code == 0) {
    code = walk(env, txn, l);
    crl_lmdb_read_end(env, txn);
  }
  if (code != 0 && code != MDB_NOTFOUND)
    status = crl_lmdb_fail(wanted->host, wanted->path, code, error);
  crl_lmdb_env_drop(env);
  return status;
}
