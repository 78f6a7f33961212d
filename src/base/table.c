/* table.c: a hash table of nodes in their owners' memory. */
#include "base/table.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/value.h"

static crl_table_node **bucket_of(const crl_table *table, uint64_t hash) {
  return &table->buckets[(hash >> 32) & (table->size - 1)];
}

#ifdef CORRAL_CHECKS
static void check_bucket(const crl_table *table, size_t i) {
  crl_table_node **link = &table->buckets[i];
  for (int left = CRL_CHECK_MOST; *link != NULL && left > 0; link = &(*link)->next, left--) {
    CRL_MUST((*link)->link == link, "table: a node knows the link to it");
    CRL_MUST(bucket_of(table, (*link)->hash) == &table->buckets[i],
             "table: a node is in the bucket of its hash");
  }
}

static void check(const crl_table *table) {
  CRL_MUST((table->size & (table->size - 1)) == 0, "table: its size is a power of two");
  CRL_MUST((table->buckets == table->few) == (table->size == CRL_TABLE_FEW),
           "table: only few buckets stand in the table itself");
  for (size_t i = 0; i < table->size && i < CRL_CHECK_MOST; i++) check_bucket(table, i);
}
#endif

static void link_in(crl_table_node **bucket, crl_table_node *node) {
  node->next = *bucket;
  node->link = bucket;
  if (node->next != NULL) node->next->link = &node->next;
  *bucket = node;
}

static void grow(crl_table *table) {
  crl_table old = *table;
  size_t size = old.size == 0 ? CRL_TABLE_FEW : 2 * old.size;
  crl_table_node **buckets = old.size == 0 ? table->few : crl_alloc(size * sizeof *buckets);
  if (buckets == NULL) return;
  crl_table_node **from = old.size == CRL_TABLE_FEW ? table->few : old.buckets;
  table->buckets = buckets;
  table->size = size;
  for (size_t i = 0; i < old.size; i++)
    for (crl_table_node *node = from[i], *next; node != NULL; node = next) {
      next = node->next;
      link_in(bucket_of(table, node->hash), node);
    }
  if (old.size > CRL_TABLE_FEW) free(from);
}

void crl_table_clean(crl_table *table) {
  if (table->size > CRL_TABLE_FEW) free(table->buckets);
  *table = (crl_table){0};
}

void crl_table_put(crl_table *table, crl_table_node *node, uint64_t hash) {
  CRL_CHECK(table);
  if (table->count >= table->size) grow(table);
  node->hash = hash;
  link_in(bucket_of(table, hash), node);
  table->count++;
  CRL_CHECK(table);
}

void crl_table_take(crl_table *table, crl_table_node *node) {
  if (node->link == NULL) return;
  CRL_CHECK(table);
  *node->link = node->next;
  if (node->next != NULL) node->next->link = node->link;
  node->link = NULL;
  table->count--;
  CRL_CHECK(table);
}
