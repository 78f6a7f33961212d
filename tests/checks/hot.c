/* hot.c: broken invariants of the sketch of the heaviest keys. */
#include "stats/hot.h"
#include "checks/checks.h"

static void break_the_sketch(int which) {
  static crl_hot_table table;
  crl_hot hot = {.table = &table, .percent = 5};
  crl_hot_get get = {.hash = 7, .stored = "k", .key = "k", .stored_len = 1, .key_len = 1};
  switch (which) {
    case 0: table.errors[3] = 1; break;
    case 1: table.counts[3] = 1; break;
    case 2: hot.marks[1].hash = 9; break;
    default: hot.marked = 1;
  }
  crl_hot_add(&hot, &get, 1000);
}

void of_the_hot_keys(void **state) {
  (void)state;
  breaks(break_the_sketch, 0, "hot: no error is more than its count");
  breaks(break_the_sketch, 1, "hot: each get has one counter");
  breaks(break_the_sketch, 2, "hot: the marks stand at the beginning");
  breaks(break_the_sketch, 3, "hot: the marks stand at the beginning");
}
