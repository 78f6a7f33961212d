/* base.c: broken invariants of the table and of the heap. */
#include "base/heap.h"
#include "base/table.h"
#include "checks/checks.h"

static void break_the_table(int which) {
  static crl_table table;
  static crl_table_node nodes[3], *others[CRL_TABLE_FEW];
  for (int i = 0; i < 3; i++) crl_table_put(&table, &nodes[i], UINT64_C(7) << 32);
  switch (which) {
    case 0: nodes[1].link = &nodes[1].next; break;
    case 1: nodes[1].hash = UINT64_C(8) << 32; break;
    case 2: table.size = 12; break;
    default: table.buckets = others;
  }
  crl_table_take(&table, &nodes[0]);
}

void of_the_table(void **state) {
  (void)state;
  breaks(break_the_table, 0, "table: a node knows the link to it");
  breaks(break_the_table, 1, "table: a node is in the bucket of its hash");
  breaks(break_the_table, 2, "table: its size is a power of two");
  breaks(break_the_table, 3, "table: only few buckets stand in the table itself");
}

static void break_the_heap(int which) {
  static crl_heap heap;
  static crl_heap_node nodes[3];
  for (int i = 0; i < 3; i++) crl_heap_put(&heap, &nodes[i], 10 + i);
  switch (which) {
    case 0: nodes[0].link = &nodes[0].next; break;
    case 1: nodes[0].next = &nodes[2]; break;
    case 2: nodes[2].link = &nodes[2].next; break;
    default: nodes[2].at = 1;
  }
  crl_heap_take(&heap, &nodes[1]);
}

void of_the_heap(void **state) {
  (void)state;
  breaks(break_the_heap, 0, "heap: the first one knows the link to it");
  breaks(break_the_heap, 1, "heap: the first one has no sibling");
  breaks(break_the_heap, 2, "heap: a node knows the link to it");
  breaks(break_the_heap, 3, "heap: no node is earlier than its parent");
}
