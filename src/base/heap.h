/* heap.h: the first of many moments: a heap of nodes that stand in their owners' memory, so that
 * nothing is allocated and putting a node in can't fail. Pure; the caller locks.
 *
 * A pairing heap: Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap" (Algorithmica 1, 1986).
 * Putting in takes one step, taking out O(log n) of them on average. */
#ifndef CRL_HEAP_H
#define CRL_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* Zero before its first use. */
typedef struct crl_heap_node {
  int64_t at;                         /* none of its children is earlier */
  struct crl_heap_node *child, *next; /* its first child; its next sibling */
  struct crl_heap_node **link;        /* the link to it; NULL: it is in no heap */
} crl_heap_node;

typedef struct crl_heap {
  crl_heap_node *first; /* the earliest; NULL: it is empty */
} crl_heap;

/* Puts in a node that is in no heap. Among equal ones, the earlier put stays first. */
void crl_heap_put(crl_heap *heap, crl_heap_node *node, int64_t at);
/* Takes a node out, wherever it stands; without effect when it is in no heap. */
void crl_heap_take(crl_heap *heap, crl_heap_node *node);

static inline int64_t crl_heap_first_at(const crl_heap *heap) {
  return heap->first == NULL ? INT64_MAX : heap->first->at;
}

#endif
