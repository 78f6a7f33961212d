/* lmdb.c: the store of all processes of one host, in a file: `lmdb:PATH`.
 *
 * Any number of threads and processes; not on network file systems. A GET (or LOCK_SHOW) is a read
 * transaction, which never waits; consecutive other verbs of a batch share one write transaction.
 * The writers of all processes take turns, by LMDB's own mutex, which knows no time limit: a
 * process that is stopped (SIGSTOP, a debugger) in the middle of a write makes the others' writes
 * wait past their deadline. A killed process doesn't.
 *
 * A lease of a process that died counts as over at once (lease.c), and so does its hold of a lock
 * (lock.c). Each write removes a few expired records; when size= is reached, the records that would
 * expire soonest go, but live leases and held locks stay. Processes that name different sizes share
 * the largest map, and each evicts by its own size: they should name the same. The file may take a
 * quarter of the size (at least 16 MiB) more, for pages that wait to be used again. */
#include "lmdb.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
  SWEEP = 8,
  FEW = 16,
  IDLE_ROUNDS = 20,
  IDLE_PAUSE_MS = 1,
  POLL_MAX_MS = 20,
  SOON_MS = 5000,
  LOOKS = 64
};

static const int64_t SIZE_DEFAULT = INT64_C(256) << 20;
static const int64_t SIZE_LEAST = INT64_C(1) << 20;
static const int64_t SIZE_MOST = sizeof(size_t) > 4 ? INT64_C(1) << 40 : INT64_C(1) << 31;

/* One corral's view of a file. */
typedef struct store {
  crl_lmdb_wanted wanted;
  char *label; /* "lmdb PATH" */
  char path[];
} store;

/* Sets the status of an LMDB code; a database that contradicts itself is put aside by the next
 * call. */
static int fail(crl_lmdb_env *env, int code, corral_error *error) {
  if (code == MDB_CORRUPTED || code == MDB_PAGE_NOTFOUND) atomic_store(&env->damaged, 1);
  return crl_lmdb_fail(env->host, env->path, code, error);
}

/* ---- reading ------------------------------------------------------------------------------- */

/* `record`: of host->record_new. */
static void give(const corral_host *host, corral_op *op, uint8_t *record, size_t len) {
  op->found =
      (corral_found){.record = record, .len = len, .drop = host->record_drop, .owner = record};
}

static void take_back(corral_op *op) {
  if (op->found.record != NULL) op->found.drop(op->found.owner);
  op->found = (corral_found){.record = NULL};
}

static int get_inside(crl_lmdb_tx *tx, corral_op *op) {
  const corral_host *host = tx->env->host;
  uint8_t *record;
  size_t len;
  int code = crl_lmdb_kv_look(tx, op->key, op->key_len, &len, &record);
  if (code == MDB_NOTFOUND) op->status = CORRAL_EMISS;
  if (code == MDB_NOTFOUND) return 0;
  if (code != 0) return code;
  if (host->look(op, record, len, tx->now) == CORRAL_OK)
    give(host, op, record, len);
  else
    host->record_drop(record);
  return 0;
}

static int is_read(const corral_op *op) {
  return op->verb == CORRAL_VERB_GET || op->verb == CORRAL_VERB_LOCK_SHOW;
}

/* 1: these bytes show a lease that isn't over by time, and *header has it. */
static int shows_lease(const corral_host *host, const uint8_t *front, size_t len, int64_t now,
                       corral_header *header) {
  return host->header_read(front, len, header) == CORRAL_OK && header->state == CORRAL_LEASED &&
         header->until > now;
}

/* A lease of a dead process counts as over. Apart, for its room, which a free record doesn't
 * need. */
static __attribute__((noinline)) void judge_lease(crl_lmdb_env *env, corral_op *op, int64_t now) {
  uint8_t front[CORRAL_FRONT];
  corral_header header;
  size_t len = env->host->front(op->found.record, op->found.len, front);
  if (shows_lease(env->host, front, len, now, &header) &&
      !crl_lmdb_lease_alive(&env->leases, header.token))
    op->state.left_ms = 0;
}

static void look(crl_lmdb_env *env, corral_op *op, int64_t now) {
  crl_lmdb_tx tx = {.env = env, .now = now};
  int code = crl_lmdb_read_begin(env, &tx.txn);
  if (code == 0) {
    code = op->verb == CORRAL_VERB_GET ? get_inside(&tx, op) : crl_lmdb_lock_show(&tx, op);
    crl_lmdb_read_end(env, tx.txn);
  }
  if (code != 0)
    op->status = fail(env, code, op->error);
  else if (op->verb == CORRAL_VERB_GET && op->state.left_ms > 0)
    judge_lease(env, op, tx.now);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* 1: the record shows a lease of a dead process. */
static int is_dead(crl_lmdb_tx *tx, const crl_lmdb_front *front, corral_header *header) {
  uint8_t bytes[CORRAL_FRONT];
  size_t len = crl_lmdb_kv_front(tx->env->host, front, bytes);
  return shows_lease(tx->env->host, bytes, len, tx->now, header) &&
         !crl_lmdb_lease_alive(&tx->env->leases, header->token);
}

/* Hands out the record as it is after `change`; its front alone if the host has the body
 * already. */
static int give_claimed(crl_lmdb_tx *tx, corral_op *op, const crl_lmdb_front *front,
                        const corral_change *change) {
  const corral_host *host = tx->env->host;
  int changes = change->action != CORRAL_ACTION_KEEP, edits = change->action == CORRAL_ACTION_EDIT;
  uint8_t *old = NULL, *record;
  if (op->state.same) {
    record = host->record_new(CORRAL_FRONT);
    if (record == NULL) return ENOMEM;
    if (changes) memcpy(record, change->front, change->front_len);
    give(host, op, record, changes ? change->front_len : crl_lmdb_kv_front(host, front, record));
    return 0;
  }
  int code = changes && !edits ? 0 : crl_lmdb_kv_read(tx, op->key, op->key_len, front, &old);
  if (code != 0) return code;
  if (!changes) {
    give(host, op, old, front->len);
    return 0;
  }
  record = host->record_new(change->front_len + change->body_len);
  if (record != NULL) host->join(change, edits ? old + CORRAL_HEAD : change->body, record);
  host->record_drop(old);
  if (record == NULL) return ENOMEM;
  give(host, op, record, change->front_len + change->body_len);
  return 0;
}

/* 1: a record of more than a quarter of size= was refused: the old value, the new one, and pages
 * that can't be used again yet must all find room. */
static int too_big(crl_lmdb_env *env, corral_op *op, const corral_change *change) {
  size_t most = atomic_load(&env->size) / 4;
  if (change->action != CORRAL_ACTION_REPLACE || change->front_len + change->body_len <= most)
    return 0;
  op->status =
      env->host->fail(op->error, CORRAL_ETOOBIG,
                      "%.100s: a record of %zu bytes: one may take a quarter of size=, %zu",
                      env->path, change->front_len + change->body_len, most);
  return 1;
}

static int holds_now(const corral_op *op) {
  return (op->verb == CORRAL_VERB_CLAIM || op->verb == CORRAL_VERB_EXTEND) &&
         op->status == CORRAL_OK;
}

static int write_op(crl_lmdb_tx *tx, corral_op *op, uint8_t *fresh) {
  crl_lmdb_env *env = tx->env;
  crl_lmdb_front front;
  corral_change change;
  corral_header header;
  uint8_t bytes[CORRAL_FRONT];
  if (crl_lmdb_is_lock(op)) return crl_lmdb_lock_change(tx, op, fresh);
  int code = crl_lmdb_kv_find(tx, op->key, op->key_len, &front), took = 0;
  if (code != 0 && code != MDB_NOTFOUND) return code;
  int present = code == 0;
  int claims = op->verb == CORRAL_VERB_CLAIM;
  /* of the host, for a repeat in a transaction of its own */
  const uint8_t *over = claims ? op->claim.over : NULL;
  if (claims && present && is_dead(tx, &front, &header)) op->claim.over = header.token;
  size_t len = present ? crl_lmdb_kv_front(env->host, &front, bytes) : 0;
  env->host->decide(op, present ? bytes : NULL, len, tx->now, &change);
  if (claims) op->claim.over = over;
  if (too_big(env, op, &change)) return 0;
  if (holds_now(op)) {
    /* the byte is locked before the record shows the lease: no process looks for it before the
     * commit. That of a claim mostly is already, and learns its end here. */
    code =
        crl_lmdb_lease_take(&env->leases, op->token, tx->now + op->state.left_ms, tx->now, &took);
    if (code != 0) return code == EAGAIN ? EIO : code;
    *fresh |= (uint8_t)took;
  }
  int found =
      op->verb == CORRAL_VERB_CLAIM && (op->status == CORRAL_OK || op->status == CORRAL_EBUSY);
  code = found ? give_claimed(tx, op, &front, &change) : 0;
  if (change.action != CORRAL_ACTION_KEEP) crl_lmdb_note(env, tx->news, op->key, op->key_len);
  return code != 0 ? code : crl_lmdb_kv_apply(tx, op->key, op->key_len, &change);
}

static int begin(crl_lmdb_env *env, crl_lmdb_tx *tx, crl_lmdb_news *news) {
  int code = crl_lmdb_write_begin(env, &tx->txn);
  tx->env = env;
  tx->news = news;
  tx->full = 0;
  /* read after the wait for the write lock, which may have been long */
  tx->now = env->host->boot_ms();
  news->count = news->used = 0;
  return code;
}

/* Ends the transaction and returns the code so far, or that of the commit; on success the changes
 * are reported. */
static int end(crl_lmdb_tx *tx, int code) {
  int ended = crl_lmdb_write_end(tx->env, tx->txn, code == 0);
  if (code == 0) code = ended;
  if (code == 0) crl_lmdb_tell(tx->env, tx->news);
  return code;
}

/* Locks the bytes of leases that are about to be claimed: a system call each, for which the writers
 * of all processes would wait if it were made within the transaction. */
static void take_early(crl_lmdb_env *env, const corral_batch *batch, uint8_t *fresh) {
  int64_t now = env->host->boot_ms();
  for (size_t i = 0; i < batch->count; i++) {
    const corral_op *op = corral_batch_op(batch, i);
    int took = 0;
    if (op->verb == CORRAL_VERB_CLAIM) /* a failure repeats itself within, where it is told */
      (void)crl_lmdb_lease_take(&env->leases, op->token, now + op->claim.lease_ms, now, &took);
    fresh[i] = (uint8_t)took;
  }
}

static void undo(crl_lmdb_env *env, const corral_batch *batch, const uint8_t *fresh) {
  for (size_t i = 0; i < batch->count; i++) {
    corral_op *op = corral_batch_op(batch, i);
    take_back(op);
    op->status = CORRAL_EINDOUBT;
    if (fresh[i]) crl_lmdb_lease_drop(&env->leases, op->token);
  }
}

/* Bytes of the record that an operation stores. */
static size_t record_len(const corral_op *op) {
  return op->verb == CORRAL_VERB_SETTLE ? op->settle.record_len : 0;
}

/* Keeps the pages in use within size=. Each step is small, so that no write pays for many. The
 * first step skips records that expire soon and go by themselves, bare leases among them. Records
 * with a lease go only when there are so many that nothing else helps. */
static int keep_size(crl_lmdb_tx *tx, const corral_batch *batch) {
  size_t size = atomic_load(&tx->env->size), need = 0, used = 0, gone = 0;
  for (size_t i = 0; i < batch->count; i++) need += record_len(corral_batch_op(batch, i));
  int code = crl_lmdb_kv_used(tx, &used);
  if (code != 0 || used + need <= size) return code;
  crl_lmdb_wish wish = {.bytes = need + size / 256, .from = tx->now + SOON_MS, .looks = LOOKS};
  code = crl_lmdb_kv_evict(tx, &wish, &gone);
  if (code != 0 || gone > 0) return code;
  wish.from = 0;
  code = crl_lmdb_kv_evict(tx, &wish, &gone);
  if (code != 0 || gone > 0 || used + need <= size + size / 8) return code;
  wish.leased_too = 1;
  wish.looks = SIZE_MAX; /* looks past any number of held locks */
  code = crl_lmdb_kv_evict(tx, &wish, &gone);
  tx->full = gone == 0;
  return code;
}

/* Performs all operations in one transaction, or none. `fresh` has a byte for each. */
static int write_ops(crl_lmdb_env *env, const corral_batch *batch, uint8_t *fresh) {
  crl_lmdb_tx tx;
  crl_lmdb_news news;
  take_early(env, batch, fresh);
  int code = begin(env, &tx, &news), began = code == 0;
  if (code == 0) code = crl_lmdb_kv_sweep(&tx, SWEEP);
  if (code == 0) code = keep_size(&tx, batch);
  for (size_t i = 0; i < batch->count && code == 0; i++)
    code = write_op(&tx, corral_batch_op(batch, i), &fresh[i]);
  if (began) code = end(&tx, code);
  if (code == 0)
    crl_lmdb_leases_ended(&env->leases, batch, fresh);
  else
    undo(env, batch, fresh);
  return code;
}

/* ---- a full map ---------------------------------------------------------------------------- */

/* Writes something, since pages freed by one commit can be used by the commit after the next, and a
 * commit without a change doesn't count. */
static int bump(crl_lmdb_tx *tx) {
  MDB_val key = {.mv_size = 4, .mv_data = (void *)(uintptr_t) "bump"};
  MDB_val value = {.mv_size = sizeof tx->now, .mv_data = &tx->now};
  return mdb_put(tx->txn, tx->env->meta, &key, &value, 0);
}

static int evict_once(crl_lmdb_env *env, const corral_op *op, size_t want, size_t *gone) {
  crl_lmdb_tx tx;
  crl_lmdb_news news;
  int code = begin(env, &tx, &news);
  if (code != 0) return code;
  crl_lmdb_wish wish = {
      .bytes = want, .spare = op->key, .spare_len = op->key_len, .looks = SIZE_MAX};
  code = crl_lmdb_kv_evict(&tx, &wish, gone);
  if (code == 0) code = bump(&tx);
  return end(&tx, code);
}

/* Evicts `want` bytes, or one record if that fails, since evicting needs pages too. *gone 0:
 * nothing could go. */
static int evict(crl_lmdb_env *env, const corral_op *op, size_t want, size_t *gone) {
  int code = evict_once(env, op, want, gone);
  if (code == MDB_MAP_FULL && want > 1) code = evict_once(env, op, 1, gone);
  if (code == MDB_MAP_FULL) *gone = 0;
  return code == MDB_MAP_FULL ? 0 : code;
}

/* Performs one operation, evicting as much as it can take; more would be in vain, for the pages in
 * use are within size= already. The rest of a full map is freed pages that readers still see: a
 * dead reader is cleared, a live one gets a moment to end. */
static int write_with_room(crl_lmdb_env *env, const corral_batch *one, int64_t deadline) {
  const corral_op *op = one->ops;
  size_t size = atomic_load(&env->size), left = record_len(op) * 2 + size / 8, gone = 0;
  int idle = 0, dead = 0, code;
  uint8_t fresh;
  while ((code = write_ops(env, one, &fresh)) == MDB_MAP_FULL) {
    if (env->host->now_ms() >= deadline || idle == IDLE_ROUNDS) return MDB_MAP_FULL;
    size_t want = record_len(op) + size / 256;
    code = evict(env, op, want < left ? want : left, &gone);
    if (code != 0) return code;
    left -= gone < left ? gone : left;
    if (gone > 0) continue;
    idle++;
    (void)mdb_reader_check(env->env, &dead);
    (void)poll(NULL, 0, IDLE_PAUSE_MS);
  }
  return code;
}

static void fail_op(crl_lmdb_env *env, int code, corral_op *op) {
  op->status = fail(env, code, op->error);
}

static void write_one_by_one(crl_lmdb_env *env, const corral_batch *batch, int64_t deadline) {
  for (size_t i = 0; i < batch->count; i++) {
    corral_batch one = corral_batch_part(batch, i, 1);
    int code = write_with_room(env, &one, deadline);
    if (code != 0) fail_op(env, code, one.ops);
  }
}

static void write_run(crl_lmdb_env *env, const corral_batch *batch, int64_t deadline) {
  uint8_t few[FEW], *fresh = batch->count <= FEW ? few : malloc(batch->count);
  int code = fresh == NULL ? ENOMEM : write_ops(env, batch, fresh);
  if (fresh != few) free(fresh);
  if (code == 0) return;
  if (code == MDB_MAP_FULL) {
    write_one_by_one(env, batch, deadline);
    return;
  }
  for (size_t i = 0; i < batch->count; i++) fail_op(env, code, corral_batch_op(batch, i));
}

/* ---- the table ----------------------------------------------------------------------------- */

/* Keys that begin as the tables' names are the host's to give, and it gives none. */
static int is_table(const corral_op *op) {
  size_t len = sizeof CRL_LMDB_TABLE - 1;
  return *(const char *)op->key == *CRL_LMDB_TABLE && op->key_len > len &&
         memcmp(op->key, CRL_LMDB_TABLE, len) == 0;
}

static int key_fits(crl_lmdb_env *env, corral_op *op) {
  if (op->key_len >= 1 && op->key_len <= CRL_LMDB_MAX_KEY && !is_table(op)) return 1;
  op->status = env->host->fail(op->error, CORRAL_EINVAL,
                               "a key of %zu bytes: 1 to %d, not beginning with " CRL_LMDB_TABLE,
                               op->key_len, (int)CRL_LMDB_MAX_KEY);
  return 0;
}

/* Number of the writes from `first` on that go together. */
static size_t run_length(crl_lmdb_env *env, const corral_batch *batch, size_t first) {
  size_t n = 1;
  for (; first + n < batch->count; n++) {
    corral_op *op = corral_batch_op(batch, first + n);
    if (is_read(op) || !key_fits(env, op)) break;
  }
  return n;
}

static int has_writes(const corral_batch *batch) {
  size_t i = 0;
  while (i < batch->count && is_read(corral_batch_op(batch, i))) i++;
  return i < batch->count;
}

/* Apart from looks: those need none of its room. */
static __attribute__((noinline)) void perform_on(crl_lmdb_env *env, const corral_batch *batch,
                                                 int64_t now, int64_t deadline) {
  for (size_t i = 0, n; i < batch->count; i += n) {
    corral_op *op = corral_batch_op(batch, i);
    n = 1;
    if (!key_fits(env, op)) continue;
    if (is_read(op)) {
      look(env, op, i == 0 ? now : env->host->boot_ms());
    } else {
      n = run_length(env, batch, i);
      corral_batch run = corral_batch_part(batch, i, n);
      write_run(env, &run, deadline);
    }
  }
}

/* After all operations: says whether the environment is still good. */
static int tell_broken(crl_lmdb_env *env, corral_error *error) {
  return atomic_load(&env->broken)
             ? env->host->fail(error, CORRAL_EIO, "%.120s: LMDB met an error it can't go on after",
                               env->path)
             : CORRAL_OK;
}

/* Any batch, on the files that the path leads to now. */
static __attribute__((noinline)) int perform(crl_lmdb_handle *handle, const corral_batch *batch,
                                             int64_t now, int64_t deadline, corral_error *error) {
  const corral_host *host = handle->wanted->host;
  crl_lmdb_env *env = NULL;
  corral_error why = {0};
  int status = crl_lmdb_handle_enter(handle, has_writes(batch), now, deadline, &env, &why);
  if (why.text[0] != '\0') host->fail(error, status, "%s", why.text);
  if (status != CORRAL_OK) {
    for (size_t i = 0; i < batch->count; i++) {
      corral_op *op = corral_batch_op(batch, i);
      op->status = host->fail(op->error, CORRAL_EUNAVAILABLE, "%s", why.text);
    }
    return status;
  }
  perform_on(env, batch, now, deadline);
  status = tell_broken(env, error);
  crl_lmdb_env_drop(env);
  return status;
}

static int lmdb_perform(void *handle_, const corral_batch *batch, int64_t deadline,
                        corral_error *error) {
  crl_lmdb_handle *handle = handle_;
  corral_op *op = batch->ops;
  int64_t now = handle->wanted->host->boot_ms();
  int is_look = batch->count == 1 && op->verb == CORRAL_VERB_GET;
  crl_lmdb_env *env = is_look ? crl_lmdb_handle_glance(handle, now) : NULL;
  if (env == NULL) return perform(handle, batch, now, deadline, error);
  if (key_fits(env, op)) look(env, op, now);
  int status = tell_broken(env, error);
  crl_lmdb_handle_leave(handle);
  return status;
}

static int lmdb_connect(void *store_, int64_t deadline, void **ret_handle, corral_error *error) {
  store *st = store_;
  crl_lmdb_handle *handle = NULL;
  int status = crl_lmdb_handle_open(&st->wanted, deadline, &handle, error);
  if (status == CORRAL_OK) *ret_handle = handle;
  return status;
}

static void lmdb_disconnect(void *handle) { crl_lmdb_handle_close(handle); }

static int no_watch(const crl_lmdb_env *env, int code, corral_error *error) {
  if (env->ring != NULL) return crl_lmdb_fail(env->host, env->path, code, error);
  return env->host->fail(error, CORRAL_EUNSUPPORTED, "%.120s-watch: %s: changes can't be told",
                         env->path, strerror(env->ring_code));
}

static int lmdb_watch(void *store_, size_t server, int64_t deadline, void **ret_watch,
                      corral_error *error) {
  store *st = store_;
  crl_lmdb_env *env = NULL;
  (void)server;
  int status = crl_lmdb_env_take(&st->wanted, deadline, &env, error);
  if (status != CORRAL_OK) return status;
  int code = env->ring != NULL ? crl_lmdb_watch_open(env, st->path, ret_watch) : ENOTSUP;
  if (code == 0) return CORRAL_OK;
  status = no_watch(env, code, error);
  crl_lmdb_env_drop(env);
  return status;
}

static void lmdb_unwatch(void *watch) { crl_lmdb_env_drop(crl_lmdb_watch_close(watch)); }

static int lmdb_inspect(void *store_, const corral_inquiry *inquiry, corral_error *error) {
  store *st = store_;
  return crl_lmdb_inspect(&st->wanted, st->label, inquiry, error);
}

static int lmdb_list(void *store_, const corral_listing *listing, corral_error *error) {
  return crl_lmdb_list(&((store *)store_)->wanted, listing, error);
}

static void lmdb_close(void *store_) {
  crl_lmdb_env_store(0);
  free(store_);
}

static int check_uri(const corral_host *host, const corral_uri *uri, crl_lmdb_wanted *wanted,
                     corral_error *error) {
  const char *path = uri->path != NULL ? uri->path : "";
  size_t len = strlen(path);
  if (uri->hosts != NULL && uri->hosts[0] != '\0')
    return host->fail(error, CORRAL_EURI,
                      "%.100s: this store has no host: write lmdb:/path/of/a/file", uri->text);
  if (len == 0 || path[len - 1] == '/')
    return host->fail(error, CORRAL_EURI,
                      "%.100s: the path of a file is missing: write lmdb:/path/of/a/file",
                      uri->text);
  int status = host->uri_check(uri, "size shared", error);
  if (status != CORRAL_OK) return status;
  const char *shared = host->uri_get(uri, "shared");
  wanted->shared = shared != NULL && strcmp(shared, "yes") == 0;
  if (shared != NULL && !wanted->shared && strcmp(shared, "no") != 0)
    return host->fail(error, CORRAL_EURI, "%.100s: shared=%.20s: yes or no", uri->text, shared);
  return host->uri_number(uri, "size", "bytes", SIZE_LEAST, SIZE_MOST, &wanted->size, error);
}

/* Keeps the path as an absolute one, since the process's folder may change before the file is
 * opened. */
static int keep_path(store *st, const char *name, size_t room) {
  size_t used = 0;
  if (name[0] != '/') {
    if (getcwd(st->path, room) == NULL) return CORRAL_EIO;
    used = strlen(st->path);
    if (used > 1) st->path[used++] = '/';
  }
  if (used + strlen(name) >= room) return CORRAL_EURI;
  memcpy(st->path + used, name, strlen(name) + 1);
  return CORRAL_OK;
}

static int lmdb_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                     corral_store_info *info, corral_error *error) {
  crl_lmdb_wanted wanted = {.host = host, .size = SIZE_DEFAULT};
  if (host->size < sizeof *host)
    return host->fail(error, CORRAL_EUNSUPPORTED, "the lmdb plugin is newer than this corral");
  int status = check_uri(host, uri, &wanted, error);
  if (status != CORRAL_OK) return status;
  size_t len = strlen(uri->path) + sizeof "lmdb ", room = PATH_MAX + len;
  store *st = calloc(1, sizeof *st + room + len);
  if (st == NULL) return CORRAL_ENOMEM;
  st->label = st->path + room;
  status = keep_path(st, uri->path, room);
  if (status != CORRAL_OK) {
    const char *why = status == CORRAL_EIO ? strerror(errno) : "with it the path is too long";
    free(st);
    return host->fail(error, status, "%.100s: the current folder: %s", uri->text, why);
  }
  st->wanted = wanted;
  st->wanted.path = st->path;
  st->wanted.size = wanted.size / 65536 * 65536; /* whole pages of any size */
  (void)snprintf(st->label, len, "lmdb %s", uri->path);
  info->max_key = CRL_LMDB_MAX_KEY;
  info->handles = 1;
  info->reach = CORRAL_REACH_HOST;
  info->poll_max_ms = POLL_MAX_MS;
  info->name = st->label;
  info->adopts = info->permits = info->turns = 1;
  if (info->size >= sizeof *info) info->ties = 1;
  crl_lmdb_env_store(1);
  *ret_store = st;
  return CORRAL_OK;
}

extern const corral_store crl_plugin_lmdb;
const corral_store crl_plugin_lmdb = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_PARALLEL,
    .op_size = sizeof(corral_op),
    .name = "lmdb",
    .schemes = "lmdb",
    .summary = "a file shared by all processes of this host; a killed leader is replaced at once",
    .open = lmdb_open,
    .close = lmdb_close,
    .connect = lmdb_connect,
    .disconnect = lmdb_disconnect,
    .perform = lmdb_perform,
    .watch = lmdb_watch,
    .changes = crl_lmdb_changes,
    .unwatch = lmdb_unwatch,
    .inspect = lmdb_inspect,
    .list = lmdb_list,
};

CORRAL_PLUGIN(crl_plugin_lmdb)
