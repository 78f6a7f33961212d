/* check.c: whether liblmdb may map a file: its two meta pages make sense, and point at pages that
 * the file has.
 *
 * liblmdb trusts what it maps: a damaged meta page ends the process by an assertion, SIGSEGV or
 * SIGBUS. The layout is that of liblmdb 0.9, whose structures aren't public; numbers are in the
 * machine's byte order. Other pages aren't examined: a flipped bit there is not found. Pure. */
#include "lmdb.h"

enum {
  META_FLAG = 0x08,
  INTEGER_KEYS = 0x08,
  FORMAT = 1,
  PAGE_LEAST = 4096,
  DEPTH_MOST = 32,
  NO_DEPTH = 0
};

static const uint32_t MAGIC = 0xBEEFC0DE;
static const uint64_t MAP_MOST = UINT64_C(1) << 41;
static const size_t NO_PAGE = ~(size_t)0;

typedef struct table {
  uint32_t page_size; /* in the first table: the file's */
  uint16_t flags, depth;
  size_t branch_pages, leaf_pages, overflow_pages, entries, root;
} table;

typedef struct meta {
  size_t page;
  uint16_t zero, page_flags;
  uint32_t bounds;
  uint32_t magic, format;
  size_t address, map_size;
  table free, main;
  size_t last_page, txn;
} meta;

static int is_page_size(uint32_t size) {
  return size >= PAGE_LEAST && size <= CRL_LMDB_PAGE_MOST && (size & (size - 1)) == 0;
}

static int has_sound_root(const table *t, size_t last_page) {
  if (t->root == NO_PAGE || t->depth == NO_DEPTH) return t->root == NO_PAGE && t->depth == NO_DEPTH;
  if (t->branch_pages > last_page || t->leaf_pages > last_page) return 0;
  if (t->overflow_pages > last_page) return 0;
  return t->root >= 2 && t->root <= last_page && t->depth <= DEPTH_MOST;
}

static int is_sound(const meta *m, size_t number, uint32_t page_size, uint64_t file_size) {
  if (m->page != number || (m->page_flags & META_FLAG) == 0) return 0;
  if (m->magic != MAGIC || m->format != FORMAT) return 0;
  if (m->free.page_size != page_size || (m->free.flags & INTEGER_KEYS) == 0) return 0;
  if (m->txn != 0 && (m->txn & 1) != number) return 0; /* commits alternate between the two pages */
  if (m->last_page < 1 || m->last_page >= file_size / page_size) return 0;
  return m->map_size <= MAP_MOST && m->map_size / page_size > m->last_page;
}

int crl_lmdb_check(const uint8_t *bytes, size_t len, uint64_t file_size) {
  meta first, second;
  if (len < sizeof first) return MDB_CORRUPTED;
  memcpy(&first, bytes, sizeof first);
  uint32_t page_size = first.free.page_size;
  if (!is_page_size(page_size) || len < page_size + sizeof second) return MDB_CORRUPTED;
  memcpy(&second, bytes + page_size, sizeof second);
  if (!is_sound(&first, 0, page_size, file_size)) return MDB_CORRUPTED;
  if (!is_sound(&second, 1, page_size, file_size)) return MDB_CORRUPTED;
  /* Only the newer page's roots are checked: a failed commit leaves roots in the older one that its
   * last page doesn't cover. */
  const meta *last = first.txn > second.txn ? &first : &second;
  int is_whole =
      has_sound_root(&last->free, last->last_page) && has_sound_root(&last->main, last->last_page);
  return is_whole ? 0 : MDB_CORRUPTED;
}
