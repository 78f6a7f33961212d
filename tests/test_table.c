/* test_table.c: a table finds what was put into it, with as few links to follow however much that
 * is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/table.h"
#include "base/value.h"
#include "os/hash.h"

enum { NODES = 100000, LONGEST = 16 };

static crl_table_node nodes[NODES];

static uint64_t hash_of(size_t i) { return crl_hash(&i, sizeof i); }

static int has(const crl_table *table, size_t i) {
  const crl_table_node *at = crl_table_first(table, hash_of(i));
  while (at != NULL && at != &nodes[i]) at = at->next;
  return at != NULL;
}

static size_t longest_chain(const crl_table *table) {
  size_t longest = 0;
  for (size_t i = 0; i < table->size; i++) {
    size_t length = 0;
    for (const crl_table_node *at = table->buckets[i]; at != NULL; at = at->next) length++;
    if (length > longest) longest = length;
  }
  return longest;
}

static void fill(crl_table *table, size_t count) {
  for (size_t i = 0; i < count; i++) crl_table_put(table, &nodes[i], hash_of(i));
}

static void empty(crl_table *table, size_t count) {
  for (size_t i = 0; i < count; i++) crl_table_take(table, &nodes[i]);
  assert_int_equal(table->count, 0);
  crl_table_clean(table);
}

static void chains_stay_short_however_many_nodes_there_are(void **state) {
  (void)state;
  crl_table table = {0};
  assert_null(crl_table_first(&table, hash_of(0)));
  for (size_t count = 10; count <= NODES; count *= 10) {
    fill(&table, count);
    assert_in_range(longest_chain(&table), 1, LONGEST);
    assert_in_range(table.size, table.count, 2 * table.count + CRL_TABLE_FEW);
    for (size_t i = 0; i < count; i++) assert_true(has(&table, i));
    empty(&table, count);
  }
}

static void what_was_taken_out_is_not_found_and_may_be_taken_again(void **state) {
  (void)state;
  crl_table table = {0};
  fill(&table, 1000);
  for (size_t i = 0; i < 1000; i += 2) crl_table_take(&table, &nodes[i]);
  crl_table_take(&table, &nodes[0]);
  assert_int_equal(table.count, 500);
  for (size_t i = 0; i < 1000; i++) assert_int_equal(has(&table, i), i % 2);
  empty(&table, 1000);
}

static void without_memory_it_stays_as_small_and_finds_all(void **state) {
  (void)state;
  crl_table table = {0};
  fill(&table, CRL_TABLE_FEW);
  for (size_t i = CRL_TABLE_FEW; i < 200; i++) {
    atomic_store(&crl_alloc_countdown, 0);
    crl_table_put(&table, &nodes[i], hash_of(i));
    atomic_store(&crl_alloc_countdown, -1);
  }
  assert_int_equal(table.size, CRL_TABLE_FEW);
  for (size_t i = 0; i < 200; i++) assert_true(has(&table, i));
  crl_table_put(&table, &nodes[200], hash_of(200));
  assert_int_equal(table.size, 2 * CRL_TABLE_FEW);
  for (size_t i = 0; i <= 200; i++) assert_true(has(&table, i));
  empty(&table, 201);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chains_stay_short_however_many_nodes_there_are),
      cmocka_unit_test(what_was_taken_out_is_not_found_and_may_be_taken_again),
      cmocka_unit_test(without_memory_it_stays_as_small_and_finds_all),
  };
  return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
