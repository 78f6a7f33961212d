/* test_heap.c: a heap gives the earliest node first, whatever was put in and taken out, and takes
 * few steps for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t steps;
#define CRL_HEAP_STEP() (steps++)
#define crl_heap_put own_heap_put
#define crl_heap_take own_heap_take
#include "base/heap.c" /* NOLINT(bugprone-suspicious-include) */

enum { NODES = 1 << 14, LOGARITHM = 14, MOVES = 20000, FEW = 200 };

static crl_heap_node nodes[NODES];

static uint64_t random_number(void) {
  static uint64_t state = 0x9e3779b97f4a7c15;
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static int64_t earliest_of(size_t count) {
  int64_t at = INT64_MAX;
  for (size_t i = 0; i < count; i++)
    if (nodes[i].link != NULL && nodes[i].at < at) at = nodes[i].at;
  return at;
}

static void the_earliest_is_first_whatever_was_put_in_and_taken_out(void **state) {
  (void)state;
  crl_heap heap = {0};
  for (int i = 0; i < MOVES; i++) {
    crl_heap_node *node = &nodes[random_number() % FEW];
    if (node->link != NULL)
      crl_heap_take(&heap, node);
    else
      crl_heap_put(&heap, node, (int64_t)(random_number() % 1000));
    assert_true(crl_heap_first_at(&heap) == earliest_of(FEW));
  }
  while (heap.first != NULL) crl_heap_take(&heap, heap.first);
  assert_true(earliest_of(FEW) == INT64_MAX);
}

static void among_equal_ones_the_first_put_stays_first(void **state) {
  (void)state;
  crl_heap heap = {0};
  for (int i = 0; i < 3; i++) crl_heap_put(&heap, &nodes[i], 7);
  assert_ptr_equal(heap.first, &nodes[0]);
  crl_heap_take(&heap, &nodes[2]);
  assert_ptr_equal(heap.first, &nodes[0]);
  while (heap.first != NULL) crl_heap_take(&heap, heap.first);
}

static void putting_in_takes_one_step_and_taking_out_a_few_logarithms(void **state) {
  (void)state;
  crl_heap heap = {0};
  steps = 0;
  for (int i = 0; i < NODES; i++) crl_heap_put(&heap, &nodes[i], (int64_t)(random_number() >> 1));
  assert_in_range(steps, 0, NODES);
  steps = 0;
  for (int64_t last = -1; heap.first != NULL; crl_heap_take(&heap, heap.first)) {
    assert_true(heap.first->at >= last);
    last = heap.first->at;
  }
  assert_in_range(steps, NODES, 3 * LOGARITHM * NODES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_earliest_is_first_whatever_was_put_in_and_taken_out),
      cmocka_unit_test(among_equal_ones_the_first_put_stays_first),
      cmocka_unit_test(putting_in_takes_one_step_and_taking_out_a_few_logarithms),
  };
  return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
