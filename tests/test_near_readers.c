/* test_near_readers.c: readers of the near tier, and those who take copies out meanwhile: what a
 * reader found stays until the reader leaves, is freed then, and never grows beyond its bound. The
 * tier's source is included, since nobody else reaches an entry. */
#define crl_near_bytes own_near_bytes
#define crl_near_clear own_near_clear
#define crl_near_confirm own_near_confirm
#define crl_near_doubt own_near_doubt
#define crl_near_count own_near_count
#define crl_near_drop own_near_drop
#define crl_near_epoch own_near_epoch
#define crl_near_free own_near_free
#define crl_near_look own_near_look
#define crl_near_mark_over own_near_mark_over
#define crl_near_new own_near_new
#define crl_near_put own_near_put
#define crl_near_removed own_near_removed
#define crl_near_weight own_near_weight
#include "near/near.c" /* NOLINT(bugprone-suspicious-include) */

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/near_kit.h"

enum { LARGE = CRL_NEAR_SMALL + 1 };

/* ---- one reader ---------------------------------------------------------------------------- */

/* Another thread, within a section until it is let go. */
typedef struct sitter {
  crl_near *near;
  pthread_t thread;
  atomic_int inside, let_go;
  int whole; /* what it found was as it had been, to the end */
} sitter;

static void *sit(void *arg) {
  sitter *s = arg;
  uint8_t first[LARGE];
  assert_true(crl_readers_enter());
  const crl_near_copy *copy = crl_near_look(s->near, hash_of("k"), "k", 1, 0);
  assert_non_null(copy);
  memcpy(first, copy->data, copy->size);
  atomic_store(&s->inside, 1);
  while (!atomic_load(&s->let_go)) usleep(100);
  s->whole = memcmp(first, copy->data, copy->size) == 0;
  crl_readers_leave();
  return NULL;
}

static void sits(sitter *s, crl_near *near) {
  *s = (sitter){.near = near};
  assert_int_equal(pthread_create(&s->thread, NULL, sit, s), 0);
  while (!atomic_load(&s->inside)) usleep(100);
}

static void leaves(sitter *s) {
  atomic_store(&s->let_go, 1);
  pthread_join(s->thread, NULL);
  assert_true(s->whole);
}

static void what_a_reader_has_stays_until_it_leaves_and_goes_then_of(size_t size) {
  crl_near *near = near_of(MOST);
  sitter s;
  freed = 0;
  assert_true(put_sized(near, "k", size));
  size_t weight = crl_near_weight(near);
  int before = freed;
  sits(&s, near);
  crl_near_drop(near, hash_of("k"));
  assert_int_equal(got(near, "k"), '-');
  assert_int_equal(crl_near_weight(near), 0);
  crl_near_clear(near); /* frees what it may */
  assert_int_equal(crl_near_removed(near), weight);
  assert_int_equal(freed, before);
  leaves(&s);
  crl_near_clear(near);
  assert_int_equal(crl_near_removed(near), 0);
  assert_int_equal(freed, 1);
  crl_near_free(near);
}

static void what_a_reader_has_stays_until_it_leaves_and_goes_then(void **state) {
  (void)state;
  what_a_reader_has_stays_until_it_leaves_and_goes_then_of(LARGE);
  what_a_reader_has_stays_until_it_leaves_and_goes_then_of(SIZE);
}

/* A later reader does not keep what was removed before it came. */
static void a_reader_keeps_nothing_from_before_it(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  sitter s;
  assert_true(put(near, "old", 'o') && put(near, "k", 'k'));
  crl_near_drop(near, hash_of("old"));
  assert_true(crl_near_removed(near) > 0);
  sits(&s, near);
  crl_near_clear(near);
  assert_int_equal(crl_near_removed(near), weight_of_one() - 6); /* of k alone */
  leaves(&s);
  crl_near_free(near);
}

/* Sections of one thread, one within the other, end with the outer one. */
static void sections_may_be_nested(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  assert_true(put(near, "k", 'k'));
  assert_true(crl_readers_enter());
  assert_int_equal(got(near, "k"), 'k');
  const crl_near_copy *copy = crl_near_look(near, hash_of("k"), "k", 1, 0);
  assert_int_equal(got(near, "k"), 'k');
  crl_near_clear(near);
  assert_true(crl_near_removed(near) > 0);
  assert_int_equal(copy->data[SIZE - 1], 'k');
  crl_readers_leave();
  crl_near_clear(near);
  assert_int_equal(crl_near_removed(near), 0);
  crl_near_free(near);
}

/* Each kept put adds to what is there, so none is kept beyond the bound. */
static size_t puts_and_drops(crl_near *near, int reads) {
  enum { PART = MOST / GONE_OF };
  size_t refused = 0;
  for (size_t i = 0; i < 5000; i++) {
    const char *key = numbered("k", i % 1000);
    size_t before = crl_near_removed(near);
    int kept = put(near, key, 'a');
    refused += !kept;
    if (kept && reads) assert_in_range(before, 0, PART);
    if (i % 3 == 0) crl_near_drop(near, hash_of(key));
    assert_in_range(crl_near_weight(near) + crl_near_removed(near), 0, MOST + PART);
  }
  return refused;
}

static void while_a_reader_sleeps_the_removed_copies_stay_within_their_bound(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  sitter s;
  assert_true(put(near, "k", 'k'));
  sits(&s, near);
  assert_in_range(puts_and_drops(near, 1), 4000, 4999);
  leaves(&s);
  assert_int_equal(puts_and_drops(near, 0), 0);
  assert_in_range(crl_near_removed(near), 0, MOST / GONE_OF);
  crl_near_free(near);
}

/* ---- what a hit writes --------------------------------------------------------------------- */

static crl_copied *moved_to_a_page(crl_near *near, uint8_t *page) {
  crl_shard *s = shard_of(near, hash_of("k"));
  crl_copied *e = crl_shard_find(s, hash_of("k"), "k", 1), *moved = (crl_copied *)(void *)page;
  memcpy(page, e, sizeof *e + 1 + SIZE);
  moved->copy.data = moved->key + 1;
  crl_shard_point(crl_shard_link(s, e), moved);
  return e;
}

/* On a page that can't be written, the copy of a hot key is found all the same. */
static void a_hit_on_a_hot_key_writes_nothing_to_it(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t size = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(page != MAP_FAILED);
  assert_true(put(near, "k", 'k'));
  crl_copied *e = moved_to_a_page(near, page);
  for (int i = 0; i < CRL_SHARD_HITS; i++) assert_int_equal(got(near, "k"), 'k');
  assert_int_equal(mprotect(page, size, PROT_READ), 0);
  for (int i = 0; i < 1000; i++) assert_int_equal(got(near, "k"), 'k');
  crl_shard *s = shard_of(near, hash_of("k"));
  crl_shard_point(crl_shard_link(s, (crl_copied *)(void *)page), e);
  munmap(page, size);
  crl_near_free(near);
}

/* ---- a fork -------------------------------------------------------------------------------- */

/* The child has no such reader: it frees what the reader of its parent would keep. */
static void a_reader_of_the_parent_keeps_nothing_in_the_child(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  sitter s;
  assert_true(put(near, "k", 'k'));
  sits(&s, near);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    crl_near *own = crl_near_new(MOST);
    int good = own != NULL && put(own, "x", 'x') && got(own, "x") == 'x';
    crl_near_clear(own);
    _exit(good && crl_near_removed(own) == 0 ? 0 : 1);
  }
  int how = 0;
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  leaves(&s);
  crl_near_free(near);
}

/* ---- a crowd ------------------------------------------------------------------------------- */

enum {
  READERS = 3,
  WRITERS = 2,
  CROWD_KEYS = 200,
  TURNS = 4000,
  TURNS_MOST = 100 * TURNS,
  ROUNDS = 5
};

typedef struct crowd {
  crl_near *near;
  atomic_int wrong, hits, made, gone;
} crowd;

static crowd all;

static void count_free(void *owner) {
  atomic_fetch_add(&all.gone, 1);
  free(owner);
}

static uint64_t roll(uint64_t *dice) {
  *dice = *dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *dice >> 33;
}

/* Each value is one letter all over, given by its size. */
static void put_any(uint64_t *dice, const char *key) {
  size_t size = 1 + roll(dice) % (2 * LARGE);
  uint8_t *data = malloc(size);
  assert_non_null(data);
  memset(data, (int)('a' + size % 26), size);
  crl_bytes *bytes = crl_bytes_wrap(data, size, count_free, data);
  assert_non_null(bytes);
  atomic_fetch_add(&all.made, 1);
  crl_near_copy copy = {.bytes = bytes,
                        .size = size,
                        .kind = roll(dice) % 5 == 0 ? CRL_KIND_NEGATIVE : CRL_KIND_VALUE,
                        .fresh_until = LIFE,
                        .print = size};
  crl_near_put(all.near, hash_of(key), key, strlen(key), &copy, epoch(all.near, key));
  crl_bytes_unref(bytes);
}

/* Where readers lose their core within a section, nothing is kept meanwhile. */
static int goes_on(size_t i) { return i < TURNS || (all.hits == 0 && i < TURNS_MOST); }

static void *write_on(void *arg) {
  uint64_t dice = (uint64_t)(uintptr_t)arg;
  for (size_t i = 0; goes_on(i); i++) {
    const char *key = numbered("c", roll(&dice) % CROWD_KEYS);
    switch (roll(&dice) % 16) {
      case 0: crl_near_drop(all.near, hash_of(key)); break;
      case 1: crl_near_confirm(all.near, hash_of(key), 1 + roll(&dice) % (2 * LARGE)); break;
      case 2:
        if (i % 64 == 0) crl_near_clear(all.near);
        break;
      default: put_any(&dice, key);
    }
    if (crl_near_weight(all.near) > MOST) atomic_store(&all.wrong, 1);
  }
  return NULL;
}

static int is_whole(const crl_near_copy *copy) {
  int letter = (int)('a' + copy->size % 26);
  for (size_t i = 0; i < copy->size; i++)
    if (copy->data[i] != letter) return 0;
  return copy->print == copy->size;
}

static void *read_on(void *arg) {
  uint64_t dice = (uint64_t)(uintptr_t)arg;
  for (size_t i = 0; goes_on(i); i++) {
    const char *key = numbered("c", roll(&dice) % CROWD_KEYS);
    size_t offset;
    crl_bytes *bytes = NULL;
    if (!crl_readers_enter()) continue;
    /* now and then one is over, and the reader takes it out */
    const crl_near_copy *copy =
        crl_near_look(all.near, hash_of(key), key, strlen(key), roll(&dice) % 100 == 0 ? LIFE : 0);
    if (copy != NULL && !is_whole(copy)) atomic_store(&all.wrong, 1);
    if (copy != NULL && i % 8 == 0) bytes = crl_near_bytes(copy, &offset);
    atomic_fetch_add(&all.hits, copy != NULL);
    crl_readers_leave();
    if (bytes != NULL && bytes->data[offset] != 'a' + bytes->size % 26) atomic_store(&all.wrong, 1);
    crl_bytes_unref(bytes);
  }
  return NULL;
}

/* Threads come and go, and so do tiers. */
static void a_crowd_reads_whole_copies_and_leaves_nothing_behind(void **state) {
  (void)state;
  all.wrong = 0;
  for (uintptr_t round = 1; round <= ROUNDS; round++) {
    pthread_t threads[READERS + WRITERS];
    all.near = near_of(MOST);
    all.hits = 0;
    for (uintptr_t i = 0; i < READERS + WRITERS; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, i < READERS ? read_on : write_on,
                                      (void *)(round * 16 + i)),
                       0);
    for (size_t i = 0; i < READERS + WRITERS; i++) pthread_join(threads[i], NULL);
    assert_true(all.hits > 0);
    crl_near_clear(all.near);
    assert_int_equal(crl_near_removed(all.near), 0);
    assert_int_equal(crl_near_weight(all.near), 0);
    assert_int_equal(all.gone, all.made);
    put_any(&(uint64_t){7}, "last");
    crl_near_free(all.near);
    assert_int_equal(all.gone, all.made);
    assert_false(all.wrong);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_reader_has_stays_until_it_leaves_and_goes_then),
      cmocka_unit_test(a_reader_keeps_nothing_from_before_it),
      cmocka_unit_test(sections_may_be_nested),
      cmocka_unit_test(while_a_reader_sleeps_the_removed_copies_stay_within_their_bound),
      cmocka_unit_test(a_hit_on_a_hot_key_writes_nothing_to_it),
      cmocka_unit_test(a_reader_of_the_parent_keeps_nothing_in_the_child),
      cmocka_unit_test(a_crowd_reads_whole_copies_and_leaves_nothing_behind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
