/* heap.c: a pairing heap of nodes in their owners' memory. */
#include "base/heap.h"

#include <stddef.h>

#include "base/check.h"

/* A test counts the steps. */
#ifndef CRL_HEAP_STEP
#define CRL_HEAP_STEP() ((void)0)
#endif

#ifdef CORRAL_CHECKS
static void check(const crl_heap *heap) {
  const crl_heap_node *first = heap->first;
  if (first == NULL) return;
  CRL_MUST(first->link == &heap->first, "heap: the first one knows the link to it");
  CRL_MUST(first->next == NULL, "heap: the first one has no sibling");
  crl_heap_node *const *link = &first->child;
  for (int left = CRL_CHECK_MOST; *link != NULL && left > 0; link = &(*link)->next, left--) {
    CRL_MUST((*link)->link == link, "heap: a node knows the link to it");
    CRL_MUST((*link)->at >= first->at, "heap: no node is earlier than its parent");
  }
}
#endif

/* Makes the later of two trees the first child of the other one; neither has a sibling. `b` may be
 * NULL. */
static crl_heap_node *meld(crl_heap_node *a, crl_heap_node *b) {
  CRL_HEAP_STEP();
  if (b == NULL) return a;
  if (b->at < a->at) {
    crl_heap_node *earlier = b;
    b = a;
    a = earlier;
  }
  b->next = a->child;
  if (b->next != NULL) b->next->link = &b->next;
  b->link = &a->child;
  a->child = b;
  return a;
}

static crl_heap_node *cut(crl_heap_node *node) {
  if (node != NULL) node->next = NULL;
  return node;
}

/* Melds siblings into one tree: first in pairs, then the pairs from the last one on. */
static crl_heap_node *meld_all(crl_heap_node *siblings) {
  crl_heap_node *pairs = NULL, *all = NULL;
  while (siblings != NULL) {
    crl_heap_node *a = siblings, *b = a->next, *rest = b == NULL ? NULL : b->next;
    crl_heap_node *pair = meld(cut(a), cut(b));
    pair->next = pairs;
    pairs = pair;
    siblings = rest;
  }
  while (pairs != NULL) {
    crl_heap_node *rest = pairs->next;
    all = meld(cut(pairs), all);
    pairs = rest;
  }
  return all;
}

static void put_tree(crl_heap *heap, crl_heap_node *tree) {
  heap->first = heap->first == NULL ? tree : meld(heap->first, tree);
  heap->first->link = &heap->first;
}

void crl_heap_put(crl_heap *heap, crl_heap_node *node, int64_t at) {
  CRL_CHECK(heap);
  node->at = at;
  node->child = node->next = NULL;
  put_tree(heap, node);
  CRL_CHECK(heap);
}

void crl_heap_take(crl_heap *heap, crl_heap_node *node) {
  if (node->link == NULL) return;
  CRL_CHECK(heap);
  *node->link = node->next;
  if (node->next != NULL) node->next->link = node->link;
  node->link = NULL;
  crl_heap_node *children = meld_all(node->child);
  node->child = NULL;
  if (children != NULL) put_tree(heap, children);
  CRL_CHECK(heap);
}
