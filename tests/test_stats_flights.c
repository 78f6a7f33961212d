/* test_stats_flights.c: the table of flights: who is listed, as what, and for how long, in all
 * drivers; and what readers see of it. */
#include "support/loop_kit.h"

#include <corral/stats.h>
#include <sys/mman.h>
#include <unistd.h>

#include "context/context.h"
#include "stats/flights.h"
#include "support/room.h"

enum { CHANGES = 50000 };

/* ---- the table ----------------------------------------------------------------------------- */

static crl_flights *fresh_table(void) {
  crl_flights *table = calloc(1, sizeof *table);
  assert_non_null(table);
  return table;
}

static void list(crl_flights *table, crl_listing *listing, const char *key) {
  crl_flights_list(table, listing, CORRAL_FLIGHT_WAIT,
                   &(crl_flight_about){.key = key, .key_len = strlen(key), .expected_ms = 70});
}

static corral_flight only_flight(const crl_flights *table) {
  corral_flight flights[CRL_FLIGHTS];
  assert_int_equal(crl_flights_read(table, 12, flights), 1);
  return flights[0];
}

static size_t count_of(const crl_flights *table) {
  corral_flight flights[CRL_FLIGHTS];
  return crl_flights_read(table, 12, flights);
}

static void a_flight_is_listed_until_its_end(void **state) {
  (void)state;
  crl_listing listing = {0};
  crl_flights *table = fresh_table();
  list(table, &listing, "key");
  corral_flight f = only_flight(table);
  assert_int_equal(f.size, sizeof f);
  assert_string_equal(f.key, "key");
  assert_int_equal(f.key_kept, 3);
  assert_int_equal(f.key_len, 3);
  assert_int_equal(f.state, CORRAL_FLIGHT_WAIT);
  assert_int_equal(f.expected_ms, 70);
  assert_int_equal(f.waiters, 0);
  assert_int_equal(f.pid, 12);
  crl_flights_change(&listing, CORRAL_FLIGHT_COMPUTE);
  assert_int_equal(only_flight(table).state, CORRAL_FLIGHT_COMPUTE);
  assert_string_equal(only_flight(table).key, "key");
  crl_flights_end(&listing);
  assert_int_equal(count_of(table), 0);
  crl_flights_change(&listing, CORRAL_FLIGHT_WAIT);
  crl_flights_end(&listing);
  assert_int_equal(count_of(table), 0);
  free(table);
}

static void it_is_told_how_long_it_has_been_in_its_state(void **state) {
  (void)state;
  crl_listing listing = {0};
  crl_flights *table = fresh_table();
  list(table, &listing, "key");
  crl_env_sleep_until(crl_env_now_ms() + 31);
  assert_true(only_flight(table).since_ms >= 30);
  crl_flights_change(&listing, CORRAL_FLIGHT_WAIT); /* no change */
  assert_true(only_flight(table).since_ms >= 30);
  int64_t before = crl_env_boot_ms();
  crl_flights_change(&listing, CORRAL_FLIGHT_COMPUTE);
  int64_t since = only_flight(table).since_ms;
  assert_true(since <= crl_env_boot_ms() - before);
  free(table);
}

static void a_full_table_counts_the_rest(void **state) {
  (void)state;
  static crl_listing listings[CRL_FLIGHTS + 2];
  crl_flights *table = fresh_table();
  for (int i = 0; i < CRL_FLIGHTS + 2; i++) list(table, &listings[i], "key");
  assert_int_equal(count_of(table), CRL_FLIGHTS);
  assert_int_equal(crl_flights_unlisted(table), 2);
  crl_flights_end(&listings[5]);
  crl_flights_end(&listings[CRL_FLIGHTS]);
  assert_int_equal(count_of(table), CRL_FLIGHTS - 1);
  assert_int_equal(crl_flights_unlisted(table), 1);
  list(table, &listings[5], "another");
  assert_int_equal(count_of(table), CRL_FLIGHTS);
  for (int i = 0; i < CRL_FLIGHTS + 2; i++) crl_flights_end(&listings[i]);
  assert_int_equal(count_of(table), 0);
  assert_int_equal(crl_flights_unlisted(table), 0);
  free(table);
}

static void long_keys_are_cut_and_told_apart(void **state) {
  (void)state;
  char keys[2][200];
  uint64_t hashes[2];
  crl_flights *table = fresh_table();
  for (int i = 0; i < 2; i++) {
    crl_listing listing = {0};
    memset(keys[i], 'k', sizeof keys[i]);
    keys[i][198] = (char)('0' + i);
    keys[i][199] = '\0';
    list(table, &listing, keys[i]);
    corral_flight f = only_flight(table);
    assert_int_equal(f.key_kept, CORRAL_STATS_KEY);
    assert_int_equal(strlen(f.key), CORRAL_STATS_KEY);
    assert_int_equal(f.key_len, 199);
    hashes[i] = f.key_hash;
    crl_flights_end(&listing);
  }
  assert_true(hashes[0] != hashes[1]);
  free(table);
}

static void a_late_count_of_waiters_is_not_the_next_flights(void **state) {
  (void)state;
  crl_listing first = {0}, second = {0};
  crl_flights *table = fresh_table();
  list(table, &first, "first");
  crl_flight_row *row = first.row;
  uint32_t number = first.number;
  crl_flights_wait(row, number, 5);
  assert_int_equal(only_flight(table).waiters, 5);
  crl_flights_change(&first, CORRAL_FLIGHT_COMPUTE);
  assert_int_equal(only_flight(table).waiters, 5);
  crl_flights_end(&first);
  list(table, &second, "second");
  assert_ptr_equal(second.row, row);
  crl_flights_wait(row, number, 6);
  assert_int_equal(only_flight(table).waiters, 0);
  free(table);
}

static void changes_beyond_the_bits_of_a_number_are_told(void **state) {
  (void)state;
  crl_listing listing = {0};
  crl_flights *table = fresh_table();
  list(table, &listing, "key");
  crl_flights_wait(listing.row, listing.number, 3);
  for (int i = 0; i < 70001; i++)
    crl_flights_change(&listing, i % 2 == 0 ? CORRAL_FLIGHT_COMPUTE : CORRAL_FLIGHT_WAIT);
  assert_int_equal(only_flight(table).state, CORRAL_FLIGHT_COMPUTE);
  assert_int_equal(only_flight(table).waiters, 3);
  free(table);
}

static void a_row_with_parts_of_two_flights_is_not_read(void **state) {
  (void)state;
  crl_listing listing = {0};
  crl_flights *table = fresh_table();
  list(table, &listing, "key");
  for (size_t i = 0; i < CRL_SEALED_HEAD + CRL_FLIGHT_BODY; i++) {
    uint64_t word = atomic_fetch_add(&listing.row->words[i], 1);
    assert_int_equal(count_of(table), 0);
    atomic_store(&listing.row->words[i], word);
  }
  assert_int_equal(count_of(table), 1);
  free(table);
}

static void foreign_bytes_are_bounded(void **state) {
  (void)state;
  static crl_flights table;
  corral_flight flights[CRL_FLIGHTS];
  uint64_t body[CRL_FLIGHT_BODY];
  int seen = 0;
  for (int round = 0; round < 20000; round++) {
    for (size_t i = 0; i < CRL_FLIGHT_BODY; i++) body[i] = crl_env_dice();
    crl_sealed_write(table.rows[7].words, crl_env_dice() | 1, body, CRL_FLIGHT_BODY);
    size_t count = crl_flights_read(&table, 0, flights);
    for (size_t i = 0; i < count; i++, seen++) {
      assert_true((unsigned)flights[i].state < CORRAL_FLIGHT_COUNT);
      assert_true(flights[i].key_kept <= CORRAL_STATS_KEY);
      assert_true(flights[i].since_ms >= 0);
    }
  }
  assert_true(seen > 0);
}

/* ---- readers ------------------------------------------------------------------------------- */

typedef struct scene {
  crl_flights *table;
  atomic_int seen, stop;
} scene;

/* Lists flights of one letter each, so that parts of two would be seen, until the reader has
 * seen one. */
static void *change_rows(void *arg) {
  scene *s = arg;
  char key[CORRAL_STATS_KEY + 1];
  for (int i = 0; i < CHANGES || !atomic_load(&s->seen); i++) {
    crl_listing listing = {0};
    int letter = 'a' + i % 26;
    memset(key, letter, CORRAL_STATS_KEY);
    key[CORRAL_STATS_KEY] = '\0';
    crl_flights_list(s->table, &listing, CORRAL_FLIGHT_WAIT,
                     &(crl_flight_about){
                         .key = key, .key_len = CORRAL_STATS_KEY, .expected_ms = (uint32_t)letter});
    crl_flights_change(&listing, CORRAL_FLIGHT_COMPUTE);
    crl_flights_end(&listing);
  }
  atomic_store(&s->stop, 1);
  return NULL;
}

static void expect_whole(const corral_flight *f) {
  for (size_t i = 0; i < CORRAL_STATS_KEY; i++) assert_int_equal(f->key[i], f->expected_ms);
  assert_int_equal(f->key_len, CORRAL_STATS_KEY);
}

static void readers_never_see_parts_of_two_flights(void **state) {
  (void)state;
  static crl_flights copy;
  corral_flight flights[CRL_FLIGHTS];
  pthread_t writer;
  int fd = memfd_create("flights", MFD_CLOEXEC);
  assert_int_equal(ftruncate(fd, sizeof copy), 0);
  scene s = {.table = mmap(NULL, sizeof copy, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)};
  assert_true(s.table != MAP_FAILED);
  assert_int_equal(pthread_create(&writer, NULL, change_rows, &s), 0);
  size_t seen = 0;
  while (!atomic_load(&s.stop)) {
    size_t count = crl_flights_read(s.table, 0, flights);
    for (size_t i = 0; i < count; i++) expect_whole(&flights[i]);
    seen += count;
    assert_int_equal(pread(fd, &copy, sizeof copy, 0), sizeof copy);
    count = crl_flights_read(&copy, 0, flights);
    for (size_t i = 0; i < count; i++) expect_whole(&flights[i]);
    seen += count;
    atomic_store(&s.seen, seen > 0);
  }
  pthread_join(writer, NULL);
  assert_true(seen > 0);
  munmap(s.table, sizeof copy);
  close(fd);
}

/* ---- flights of corrals -------------------------------------------------------------------- */

static char folder[ROOM_PATH];

static corral *opened(int64_t max_computes, corral_compute *compute, void *arg) {
  return loop_corral(CORRAL_OPTIONS(.store = "memory:", .stats_dir = folder,
                                    .max_computes = max_computes, .compute = compute,
                                    .compute_arg = arg));
}

/* The flights of a corral as text, "state:key:waiters " each, in the order of their keys. */
typedef struct seen {
  char text[400];
  corral_flight flights[CRL_FLIGHTS];
  size_t count;
} seen;

static int see(const corral_flight *flight, void *arg) {
  seen *s = arg;
  s->flights[s->count++] = *flight;
  return 0;
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const corral_flight *)a)->key, ((const corral_flight *)b)->key);
}

static const char *flights_of(corral *c) {
  static seen s;
  corral_stats *stats = NULL;
  size_t used = 0;
  s.count = 0;
  s.text[0] = '\0';
  assert_int_equal(corral_stats_read(c, &stats, NULL), CORRAL_OK);
  size_t told = corral_stats_flights(stats, see, &s);
  assert_int_equal(told, s.count);
  corral_stats_free(stats);
  qsort(s.flights, s.count, sizeof s.flights[0], by_key);
  for (size_t i = 0; i < s.count; i++)
    used += (size_t)snprintf(s.text + used, sizeof s.text - used, "%s:%s:%d ",
                             corral_flight_name(s.flights[i].state), s.flights[i].key,
                             (int)s.flights[i].waiters);
  return s.text;
}

#define AWAIT_FLIGHTS(c, expected)                                                                 \
  do {                                                                                             \
    int64_t until_ = crl_env_now_ms() + 30000;                                                     \
    while (strcmp(flights_of(c), expected) != 0 && crl_env_now_ms() < until_)                      \
      crl_env_pause_us(1000);                                                                      \
    assert_string_equal(flights_of(c), expected);                                                  \
  } while (0)

/* A compute that ends when it is let go. */
typedef struct gate {
  atomic_int inside, open;
} gate;

static int wait_at_gate(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  gate *g = arg;
  atomic_fetch_add(&g->inside, 1);
  while (!atomic_load(&g->open)) crl_env_pause_us(1000);
  return corral_fill_bytes(fill, key, key_len);
}

typedef struct asking {
  pthread_t thread;
  corral *c;
  const char *key;
  gate *g; /* NULL: the compute bound at open */
} asking;

static void *ask_for(void *arg) {
  asking *a = arg;
  corral_value *value = NULL;
  int status = a->g == NULL ? corral_get(a->c, a->key, strlen(a->key), NULL, &value)
                            : corral_get_or_compute(a->c, a->key, strlen(a->key), NULL,
                                                    wait_at_gate, a->g, &value);
  assert_int_equal(status, CORRAL_OK);
  corral_value_unref(value);
  return NULL;
}

static void begin(asking *a, corral *c, const char *key, gate *g) {
  *a = (asking){.c = c, .key = key, .g = g};
  assert_int_equal(pthread_create(&a->thread, NULL, ask_for, a), 0);
}

static void a_blocking_compute_is_listed_with_those_who_wait(void **state) {
  (void)state;
  gate g = {0};
  asking askings[4];
  corral *c = opened(0, NULL, NULL);
  for (int i = 0; i < 4; i++) begin(&askings[i], c, "key", &g);
  AWAIT_FLIGHTS(c, "compute:key:3 ");
  atomic_store(&g.open, 1);
  for (int i = 0; i < 4; i++) pthread_join(askings[i].thread, NULL);
  assert_string_equal(flights_of(c), "");
  corral_close(c);
}

static void a_hit_is_never_listed(void **state) {
  (void)state;
  gate g = {.open = 1};
  asking one;
  corral *c = opened(0, NULL, NULL);
  begin(&one, c, "key", &g);
  pthread_join(one.thread, NULL);
  corral_stats *stats = NULL;
  begin(&one, c, "key", &g);
  pthread_join(one.thread, NULL);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_HIT), 1);
  assert_int_equal(corral_stats_read(c, &stats, NULL), CORRAL_OK);
  const crl_flights *table = crl_flights_of(&((crl_context *)(void *)c)->events.stats);
  assert_int_equal(table->last, 1);
  corral_stats_free(stats);
  corral_close(c);
}

static void a_compute_on_a_thread_of_the_library_is_listed(void **state) {
  (void)state;
  gate g = {0};
  asking one;
  corral *c = opened(0, wait_at_gate, &g);
  begin(&one, c, "key", NULL);
  AWAIT_FLIGHTS(c, "compute:key:1 ");
  atomic_store(&g.open, 1);
  pthread_join(one.thread, NULL);
  AWAIT_FLIGHTS(c, "");
  corral_close(c);
}

static void a_compute_that_waits_for_a_place_is_listed_as_limited(void **state) {
  (void)state;
  gate g = {0};
  asking askings[2];
  corral *c = opened(1, NULL, NULL);
  begin(&askings[0], c, "a", &g);
  AWAIT_FLIGHTS(c, "compute:a:0 ");
  begin(&askings[1], c, "b", &g);
  AWAIT_FLIGHTS(c, "compute:a:0 limited:b:0 ");
  atomic_store(&g.open, 1);
  for (int i = 0; i < 2; i++) pthread_join(askings[i].thread, NULL);
  assert_string_equal(flights_of(c), "");
  corral_close(c);
}

static int many_at_gate(corral_fill *const *fills, size_t count, void *arg) {
  gate *g = arg;
  while (!atomic_load(&g->open)) crl_env_pause_us(1000);
  for (size_t i = 0; i < count; i++) corral_fill_bytes(fills[i], "value", 5);
  return CORRAL_OK;
}

static void *ask_for_three(void *arg) {
  asking *a = arg;
  corral_item items[] = {
      {.key = "a", .key_len = 1}, {.key = "b", .key_len = 1}, {.key = "c", .key_len = 1}};
  assert_int_equal(corral_get_many(a->c, items, 3, NULL, many_at_gate, a->g), CORRAL_OK);
  for (int i = 0; i < 3; i++) corral_value_unref(items[i].value);
  return NULL;
}

static void each_key_of_a_call_for_several_is_listed(void **state) {
  (void)state;
  gate g = {0};
  asking three = {.c = opened(0, NULL, NULL), .g = &g}, one;
  assert_int_equal(pthread_create(&three.thread, NULL, ask_for_three, &three), 0);
  AWAIT_FLIGHTS(three.c, "compute:a:0 compute:b:0 compute:c:0 ");
  begin(&one, three.c, "b", &g);
  AWAIT_FLIGHTS(three.c, "compute:a:0 compute:b:1 compute:c:0 ");
  atomic_store(&g.open, 1);
  pthread_join(three.thread, NULL);
  pthread_join(one.thread, NULL);
  assert_string_equal(flights_of(three.c), "");
  corral_close(three.c);
}

static void a_compute_of_an_event_loop_is_listed(void **state) {
  (void)state;
  corral *c = opened(0, NULL, NULL);
  corral_loop *loop = NULL;
  request first = {0}, second = {0};
  assert_int_equal(corral_loop_open(c, &loop, NULL), CORRAL_OK);
  ask(loop, "key", NULL, &first);
  RUN_UNTIL(loop, first.starts, 1);
  ask(loop, "key", NULL, &second);
  AWAIT_FLIGHTS(c, "compute:key:2 ");
  make(&first, "value");
  RUN_UNTIL(loop, second.dones, 1);
  RUN_UNTIL(loop, first.dones, 1);
  AWAIT_FLIGHTS(c, "");
  corral_loop_close(loop);
  corral_close(c);
}

/* Adds a snapshot of a corral, or a sum, to a sum; frees it. */
static void add(corral_stats *sum, corral_stats *more) {
  assert_int_equal(corral_stats_add(sum, more), CORRAL_OK);
  corral_stats_free(more);
}

static void a_sum_has_the_flights_of_all_the_longest_first(void **state) {
  (void)state;
  gate g = {0};
  asking askings[2];
  corral *corrals[2];
  seen s = {.count = 0};
  corral_stats *sum = corral_stats_new(), *sums = corral_stats_new();
  for (int i = 0; i < 2; i++) {
    corrals[i] = opened(0, NULL, NULL);
    begin(&askings[i], corrals[i], i == 0 ? "longer" : "shorter", &g);
    AWAIT_FLIGHTS(corrals[i], i == 0 ? "compute:longer:0 " : "compute:shorter:0 ");
    crl_env_sleep_until(crl_env_now_ms() + 20);
  }
  for (int i = 1; i >= 0; i--) {
    corral_stats *stats = NULL;
    assert_int_equal(corral_stats_read(corrals[i], &stats, NULL), CORRAL_OK);
    add(sum, stats);
  }
  add(sums, sum);
  assert_int_equal(corral_stats_flights(sums, see, &s), 2);
  assert_string_equal(s.flights[0].key, "longer");
  assert_string_equal(s.flights[1].key, "shorter");
  assert_int_equal(s.flights[1].pid, getpid());
  corral_stats_free(sums);
  atomic_store(&g.open, 1);
  for (int i = 0; i < 2; i++) {
    pthread_join(askings[i].thread, NULL);
    corral_close(corrals[i]);
  }
}

static void without_a_stats_file_nothing_is_listed(void **state) {
  (void)state;
  gate g = {0};
  asking one;
  corral *c = loop_corral(CORRAL_OPTIONS(.store = "memory:", .stats_dir = "off"));
  begin(&one, c, "key", &g);
  while (atomic_load(&g.inside) == 0) crl_env_pause_us(1000);
  assert_string_equal(flights_of(c), "");
  assert_null(crl_flights_of(&((crl_context *)(void *)c)->events.stats));
  atomic_store(&g.open, 1);
  pthread_join(one.thread, NULL);
  corral_close(c);
}

static int make_folder(void **state) {
  (void)state;
  room_folder(folder, "stats");
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_flight_is_listed_until_its_end),
      cmocka_unit_test(it_is_told_how_long_it_has_been_in_its_state),
      cmocka_unit_test(a_full_table_counts_the_rest),
      cmocka_unit_test(long_keys_are_cut_and_told_apart),
      cmocka_unit_test(a_late_count_of_waiters_is_not_the_next_flights),
      cmocka_unit_test(changes_beyond_the_bits_of_a_number_are_told),
      cmocka_unit_test(a_row_with_parts_of_two_flights_is_not_read),
      cmocka_unit_test(foreign_bytes_are_bounded),
      cmocka_unit_test(readers_never_see_parts_of_two_flights),
      cmocka_unit_test(a_blocking_compute_is_listed_with_those_who_wait),
      cmocka_unit_test(a_hit_is_never_listed),
      cmocka_unit_test(a_compute_on_a_thread_of_the_library_is_listed),
      cmocka_unit_test(a_compute_that_waits_for_a_place_is_listed_as_limited),
      cmocka_unit_test(each_key_of_a_call_for_several_is_listed),
      cmocka_unit_test(a_compute_of_an_event_loop_is_listed),
      cmocka_unit_test(a_sum_has_the_flights_of_all_the_longest_first),
      cmocka_unit_test(without_a_stats_file_nothing_is_listed),
  };
  return cmocka_run_group_tests(tests, make_folder, NULL);
}
