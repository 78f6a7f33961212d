/* kv.c: records inside an LMDB transaction.
 *
 *   heads   key -> expires (8, big-endian), length of the record (8), and the record, or of a
 *           larger one the front. This is the table without a name, which takes one search less
 *   bodies  key + chunk number (4, big-endian) -> the body of a larger record, in chunks
 *   index   expires (8, big-endian) + key -> nothing. Rows of users' locks have a bit that puts
 *           them behind all others: locks are short, and held ones can't be evicted, so they must
 *           not be in the way of a search for records that can
 *
 * A body of up to 1 KiB is stored with its front, a larger one apart from it: so a lease on a large
 * value rewrites 200 bytes, not the value. Chunks are 16 pages: LMDB needs the pages of one entry
 * side by side, and a large value in one piece would find no room in a file full of small holes. */
#include "lmdb.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

enum {
  PREFIX = 16,
  CHUNK = 16 * 4096 - 16, /* 16 pages less LMDB's page header */
  KEY_ROOM = CRL_LMDB_MAX_KEY + 8,
  PAGE = 4096
};

static void put_be(uint8_t *at, uint64_t number, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++) at[i] = (uint8_t)(number >> (8 * (bytes - 1 - i)));
}

static uint64_t take_be(const uint8_t *at, unsigned bytes) {
  uint64_t number = 0;
  for (unsigned i = 0; i < bytes; i++) number = number << 8 | at[i];
  return number;
}

static const int64_t AMONG_LOCKS = INT64_C(1) << 62;

static int is_lock(const crl_lmdb_front *front) {
  return front->kept >= CORRAL_LOCK_HEAD && memcmp(front->bytes, "crk1", 4) == 0;
}

/* Time in a record's row of the index. */
static int64_t index_time(const crl_lmdb_front *front) {
  return is_lock(front) ? front->expires | AMONG_LOCKS : front->expires;
}

static MDB_val value_of(const void *data, size_t size) {
  return (MDB_val){.mv_size = size, .mv_data = (void *)(uintptr_t)data};
}

static MDB_val index_key(uint8_t room[KEY_ROOM], int64_t expires, const void *key, size_t key_len) {
  put_be(room, (uint64_t)expires, 8);
  memcpy(room + 8, key, key_len);
  return value_of(room, 8 + key_len);
}

static MDB_val chunk_key(uint8_t room[KEY_ROOM], const void *key, size_t key_len, size_t number) {
  memcpy(room, key, key_len);
  put_be(room + key_len, number, 4);
  return value_of(room, key_len + 4);
}

static size_t chunks_of(const crl_lmdb_front *front) {
  return (front->len - front->kept + CHUNK - 1) / CHUNK;
}

static int is_inline(const crl_lmdb_front *front) { return front->kept == front->len; }

/* A value of `heads`, where it is. */
typedef struct stored_front {
  int64_t expires;
  size_t len, kept;
  const uint8_t *bytes;
} stored_front;

static int parse(const MDB_val *value, stored_front *ret) {
  const uint8_t *at = value->mv_data;
  uint64_t len, expires;
  if (value->mv_size < PREFIX || value->mv_size - PREFIX > CORRAL_FRONT + CRL_LMDB_INLINE)
    return MDB_CORRUPTED;
  memcpy(&len, at + 8, sizeof len);
  memcpy(&expires, at, sizeof expires);
  if (len != (size_t)len) return MDB_CORRUPTED; /* no record of this machine */
  *ret = (stored_front){.expires = (int64_t)be64toh(expires),
                        .len = (size_t)len,
                        .kept = value->mv_size - PREFIX,
                        .bytes = at + PREFIX};
  int is_whole = ret->kept == ret->len;
  return ret->kept > ret->len ||
                 (!is_whole && (ret->kept < CORRAL_HEAD || ret->kept > CORRAL_FRONT))
             ? MDB_CORRUPTED
             : 0;
}

static int front_parse(const MDB_val *value, crl_lmdb_front *front) {
  stored_front stored;
  int rc = parse(value, &stored);
  if (rc != 0) return rc;
  front->expires = stored.expires;
  front->len = stored.len;
  front->kept = stored.kept;
  memcpy(front->bytes, stored.bytes, stored.kept);
  return 0;
}

/* Finds a record, even if its life is over. */
static int find_any(crl_lmdb_tx *tx, const void *key, size_t key_len, crl_lmdb_front *front) {
  MDB_val k = value_of(key, key_len), value;
  int rc = mdb_get(tx->txn, tx->env->heads, &k, &value);
  return rc != 0 ? rc : front_parse(&value, front);
}

int crl_lmdb_kv_find(crl_lmdb_tx *tx, const void *key, size_t key_len, crl_lmdb_front *front) {
  int rc = find_any(tx, key, key_len, front);
  return rc == 0 && front->expires <= tx->now ? MDB_NOTFOUND : rc;
}

/* Reads the chunks of a record's body, `size` bytes, to `record`. Apart, for its room. */
static __attribute__((noinline)) int read_chunks(crl_lmdb_tx *tx, const void *key, size_t key_len,
                                                 uint8_t *record, size_t size) {
  uint8_t room[KEY_ROOM];
  int rc = 0;
  for (size_t i = 0, at = 0; at < size && rc == 0; i++) {
    MDB_val k = chunk_key(room, key, key_len, i), value;
    rc = mdb_get(tx->txn, tx->env->bodies, &k, &value);
    if (rc == 0 && (value.mv_size == 0 || value.mv_size > size - at)) rc = MDB_CORRUPTED;
    if (rc != 0) break;
    memcpy(record + at, value.mv_data, value.mv_size);
    at += value.mv_size;
  }
  return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
}

/* Reads a record of which `kept` bytes are at `bytes`: all, or the front of a larger one. */
static int read_whole(crl_lmdb_tx *tx, const void *key, size_t key_len, const uint8_t *bytes,
                      size_t kept, size_t len, uint8_t **ret) {
  uint8_t *record = tx->env->host->record_new(len);
  if (record == NULL) return ENOMEM;
  if (kept == len) {
    memcpy(record, bytes, len);
    *ret = record;
    return 0;
  }
  size_t rest = kept - CORRAL_HEAD;
  memcpy(record, bytes, CORRAL_HEAD);
  memcpy(record + len - rest, bytes + CORRAL_HEAD, rest);
  int rc = read_chunks(tx, key, key_len, record + CORRAL_HEAD, len - kept);
  if (rc != 0)
    tx->env->host->record_drop(record);
  else
    *ret = record;
  return rc;
}

int crl_lmdb_kv_read(crl_lmdb_tx *tx, const void *key, size_t key_len, const crl_lmdb_front *front,
                     uint8_t **ret) {
  return read_whole(tx, key, key_len, front->bytes, front->kept, front->len, ret);
}

int crl_lmdb_kv_look(crl_lmdb_tx *tx, const void *key, size_t key_len, size_t *len, uint8_t **ret) {
  MDB_val k = value_of(key, key_len), value;
  stored_front stored;
  int rc = mdb_get(tx->txn, tx->env->heads, &k, &value);
  if (rc == 0) rc = parse(&value, &stored);
  if (rc != 0) return rc;
  if (stored.expires <= tx->now) return MDB_NOTFOUND;
  *len = stored.len;
  return read_whole(tx, key, key_len, stored.bytes, stored.kept, stored.len, ret);
}

static int ignore_absent(int rc) { return rc == MDB_NOTFOUND ? 0 : rc; }

static int remove_chunks(crl_lmdb_tx *tx, const void *key, size_t key_len, size_t from, size_t to) {
  uint8_t room[KEY_ROOM];
  int rc = 0;
  for (size_t i = from; i < to && rc == 0; i++) {
    MDB_val k = chunk_key(room, key, key_len, i);
    rc = ignore_absent(mdb_del(tx->txn, tx->env->bodies, &k, NULL));
  }
  return rc;
}

static int index_remove(crl_lmdb_tx *tx, int64_t expires, const void *key, size_t key_len) {
  uint8_t room[KEY_ROOM];
  MDB_val k = index_key(room, expires, key, key_len);
  return ignore_absent(mdb_del(tx->txn, tx->env->index, &k, NULL));
}

static int remove_record(crl_lmdb_tx *tx, const void *key, size_t key_len,
                         const crl_lmdb_front *front) {
  MDB_val k = value_of(key, key_len);
  int rc = remove_chunks(tx, key, key_len, 0, chunks_of(front));
  if (rc == 0) rc = index_remove(tx, index_time(front), key, key_len);
  if (rc == 0) rc = ignore_absent(mdb_del(tx->txn, tx->env->heads, &k, NULL));
  return rc;
}

static int write_front(crl_lmdb_tx *tx, const void *key, size_t key_len,
                       const crl_lmdb_front *front) {
  uint8_t bytes[PREFIX + sizeof front->bytes], room[KEY_ROOM];
  uint64_t len = front->len;
  put_be(bytes, (uint64_t)front->expires, 8);
  memcpy(bytes + 8, &len, sizeof len);
  memcpy(bytes + PREFIX, front->bytes, front->kept);
  MDB_val k = value_of(key, key_len), value = value_of(bytes, PREFIX + front->kept);
  int rc = mdb_put(tx->txn, tx->env->heads, &k, &value, 0);
  if (rc != 0) return rc;
  MDB_val at = index_key(room, index_time(front), key, key_len), nothing = value_of("", 0);
  return mdb_put(tx->txn, tx->env->index, &at, &nothing, 0);
}

static int write_chunks(crl_lmdb_tx *tx, const void *key, size_t key_len, const uint8_t *rest,
                        size_t rest_len) {
  uint8_t room[KEY_ROOM];
  int rc = 0;
  for (size_t i = 0; rest_len > 0 && rc == 0; i++) {
    size_t size = rest_len < CHUNK ? rest_len : CHUNK;
    MDB_val k = chunk_key(room, key, key_len, i), value = value_of(rest, size);
    rc = mdb_put(tx->txn, tx->env->bodies, &k, &value, 0);
    rest += size;
    rest_len -= size;
  }
  return rc;
}

/* Writes a whole record in place of the old one, if there is one: its front, and the rest in
 * chunks. */
static int write_record(crl_lmdb_tx *tx, const void *key, size_t key_len, const crl_lmdb_front *old,
                        const crl_lmdb_front *front, const uint8_t *rest) {
  int rc = 0;
  if (old != NULL && index_time(old) != index_time(front))
    rc = index_remove(tx, index_time(old), key, key_len);
  if (rc == 0 && old != NULL)
    rc = remove_chunks(tx, key, key_len, chunks_of(front), chunks_of(old));
  if (rc == 0) rc = write_front(tx, key, key_len, front);
  if (rc == 0 && front->len > front->kept)
    rc = write_chunks(tx, key, key_len, rest, front->len - front->kept);
  return rc;
}

/* Carries out EDIT and REPLACE. EDIT leaves the body where it is; REPLACE puts a small body with
 * the front, and a larger one in chunks. */
static int change_record(crl_lmdb_tx *tx, const void *key, size_t key_len,
                         const crl_lmdb_front *old, const corral_change *change) {
  int edits = change->action == CORRAL_ACTION_EDIT;
  crl_lmdb_front front = {.expires = change->expires,
                          .len = change->front_len + change->body_len,
                          .kept = change->front_len};
  if (edits ? is_inline(old) : change->body_len <= CRL_LMDB_INLINE) {
    if (change->body_len > CRL_LMDB_INLINE) return MDB_CORRUPTED;
    tx->env->host->join(change, edits ? old->bytes + CORRAL_HEAD : change->body, front.bytes);
    front.kept = front.len;
  } else {
    memcpy(front.bytes, change->front, change->front_len);
  }
  if (!edits) return write_record(tx, key, key_len, old, &front, change->body);
  int rc = old->expires == front.expires ? 0 : index_remove(tx, old->expires, key, key_len);
  return rc != 0 ? rc : write_front(tx, key, key_len, &front);
}

int crl_lmdb_kv_put(crl_lmdb_tx *tx, const void *key, size_t key_len, const uint8_t *record,
                    size_t len, int64_t expires) {
  crl_lmdb_front old, front = {.expires = expires, .len = len};
  front.kept = len <= sizeof front.bytes ? len : CORRAL_HEAD;
  memcpy(front.bytes, record, front.kept);
  int rc = find_any(tx, key, key_len, &old);
  if (rc != 0 && rc != MDB_NOTFOUND) return rc;
  return write_record(tx, key, key_len, rc == 0 ? &old : NULL, &front, record + front.kept);
}

int crl_lmdb_kv_apply(crl_lmdb_tx *tx, const void *key, size_t key_len,
                      const corral_change *change) {
  crl_lmdb_front old;
  if (change->action == CORRAL_ACTION_KEEP) return 0;
  int rc = find_any(tx, key, key_len, &old);
  if (rc != 0 && rc != MDB_NOTFOUND) return rc;
  int present = rc == 0;
  if (change->action == CORRAL_ACTION_REPLACE)
    return change_record(tx, key, key_len, present ? &old : NULL, change);
  if (!present) return 0;
  return change->action == CORRAL_ACTION_EDIT ? change_record(tx, key, key_len, &old, change)
                                              : remove_record(tx, key, key_len, &old);
}

size_t crl_lmdb_kv_front(const corral_host *host, const crl_lmdb_front *front,
                         uint8_t bytes[CORRAL_FRONT]) {
  if (is_inline(front)) return host->front(front->bytes, front->len, bytes);
  memcpy(bytes, front->bytes, front->kept);
  return front->kept;
}

int crl_lmdb_kv_header(const corral_host *host, const crl_lmdb_front *front,
                       corral_header *header) {
  uint8_t bytes[CORRAL_FRONT];
  size_t len = crl_lmdb_kv_front(host, front, bytes);
  return host->header_read(bytes, len, header);
}

/* A row of the index; the key is copied, since the map changes under it. */
typedef struct row {
  int64_t expires;
  size_t key_len;
  uint8_t key[CRL_LMDB_MAX_KEY];
} row;

static int row_parse(const MDB_val *at, row *r) {
  if (at->mv_size <= 8 || at->mv_size > KEY_ROOM) return MDB_CORRUPTED;
  r->expires = (int64_t)take_be(at->mv_data, 8);
  r->key_len = at->mv_size - 8;
  memcpy(r->key, (const uint8_t *)at->mv_data + 8, r->key_len);
  return 0;
}

static int remove_row(crl_lmdb_tx *tx, const row *r, const crl_lmdb_front *front) {
  if (index_time(front) == r->expires) return remove_record(tx, r->key, r->key_len, front);
  return index_remove(tx, r->expires, r->key, r->key_len);
}

/* Removes expired records, at most `most`, from the rows at or after `from`. */
static int sweep_from(crl_lmdb_tx *tx, MDB_cursor *cursor, int64_t from, size_t most) {
  int rc = 0;
  while (most-- > 0 && rc == 0) {
    uint8_t room[KEY_ROOM];
    MDB_val at = index_key(room, from, "", 0), nothing;
    crl_lmdb_front front;
    row r;
    rc = mdb_cursor_get(cursor, &at, &nothing, MDB_SET_RANGE);
    if (rc == 0) rc = row_parse(&at, &r);
    if (rc != 0 || r.expires > (from | tx->now)) break;
    rc = find_any(tx, r.key, r.key_len, &front);
    if (rc == MDB_NOTFOUND)
      rc = index_remove(tx, r.expires, r.key, r.key_len);
    else if (rc == 0)
      rc = remove_row(tx, &r, &front);
  }
  return ignore_absent(rc);
}

int crl_lmdb_kv_sweep(crl_lmdb_tx *tx, size_t most) {
  MDB_cursor *cursor;
  int rc = mdb_cursor_open(tx->txn, tx->env->index, &cursor);
  if (rc != 0) return rc;
  rc = sweep_from(tx, cursor, 0, most);
  if (rc == 0) rc = sweep_from(tx, cursor, AMONG_LOCKS, most);
  mdb_cursor_close(cursor);
  return rc;
}

static int is_leased(const crl_lmdb_tx *tx, const crl_lmdb_front *front) {
  corral_header header;
  return crl_lmdb_kv_header(tx->env->host, front, &header) == CORRAL_OK &&
         header.state == CORRAL_LEASED && header.until > tx->now;
}

/* A lock's record expires CORRAL_LOCK_MEMORY_MS or more after its last hold. */
static int is_held(const crl_lmdb_tx *tx, const crl_lmdb_front *front) {
  return is_lock(front) && front->expires - CORRAL_LOCK_MEMORY_MS > tx->now;
}

/* Bytes that a record takes: its own pages if it is large, else its share of one. */
static size_t weight(const crl_lmdb_front *front) {
  size_t rest = front->len - front->kept;
  return PREFIX + front->kept + (rest + PAGE - 1) / PAGE * PAGE;
}

/* Sets `r` to the next row behind it, or to the first at its time if it has no key. */
static int next_row(crl_lmdb_tx *tx, row *r) {
  uint8_t room[KEY_ROOM + 1];
  MDB_cursor *cursor;
  int rc = mdb_cursor_open(tx->txn, tx->env->index, &cursor);
  if (rc != 0) return rc;
  /* `r` itself may still be there, if it was spared. The least key behind it has one zero byte
   * more. LMDB's keys end at 511, so an index key of 508 has room. */
  MDB_val at = index_key(room, r->expires, r->key, r->key_len), nothing;
  room[at.mv_size++] = 0;
  rc = mdb_cursor_get(cursor, &at, &nothing, MDB_SET_RANGE);
  if (rc == 0) rc = row_parse(&at, r);
  mdb_cursor_close(cursor);
  return rc;
}

int crl_lmdb_kv_evict(crl_lmdb_tx *tx, const crl_lmdb_wish *wish, size_t *gone) {
  row r = {.expires = wish->from, .key_len = 0};
  int rc = 0;
  *gone = 0;
  for (size_t looks = 0; looks < wish->looks && *gone < wish->bytes; looks++) {
    crl_lmdb_front front;
    rc = next_row(tx, &r);
    if (rc != 0) break;
    if (wish->spare != NULL && r.key_len == wish->spare_len &&
        memcmp(r.key, wish->spare, r.key_len) == 0)
      continue;
    rc = find_any(tx, r.key, r.key_len, &front);
    if (rc == MDB_NOTFOUND) {
      rc = 0;
      continue;
    }
    if (rc != 0) break;
    if (is_held(tx, &front) || (!wish->leased_too && is_leased(tx, &front))) continue;
    if (index_time(&front) == r.expires && front.expires > tx->now)
      crl_lmdb_note(tx->env, tx->news, r.key, r.key_len);
    rc = remove_row(tx, &r, &front);
    if (rc != 0) break;
    *gone += weight(&front);
  }
  return ignore_absent(rc);
}

int crl_lmdb_kv_used(crl_lmdb_tx *tx, size_t *ret) {
  const MDB_dbi tables[] = {tx->env->heads, tx->env->bodies, tx->env->index};
  size_t used = 0;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    MDB_stat st;
    int rc = mdb_stat(tx->txn, tables[i], &st);
    if (rc != 0) return rc;
    used += (st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages) * st.ms_psize;
  }
  *ret = used;
  return 0;
}
