/* table.h: a hash table of nodes that stand in their owners' memory. Its buckets double when there
 * are more nodes than buckets, so a search follows one or two links however many nodes there are.
 * It doesn't shrink. Without memory it stays as it is, and searches take longer. The caller locks.
 *
 * The hashes must be keyed (hash.h). Their lower half is left to the caller, for shards. */
#ifndef CRL_TABLE_H
#define CRL_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { CRL_TABLE_FEW = 16 };

/* Zero before its first use. */
typedef struct crl_table_node {
  struct crl_table_node *next, **link; /* link NULL: it is in no table */
  uint64_t hash;
} crl_table_node;

/* Zero at first; not to be moved while it has nodes. */
typedef struct crl_table {
  crl_table_node **buckets; /* `few`, or allocated */
  size_t count, size;       /* nodes; buckets: a power of two, or 0 */
  crl_table_node *few[CRL_TABLE_FEW];
} crl_table;

/* Frees the buckets; no node may be in. */
void crl_table_clean(crl_table *table);
/* Puts in a node that is in no table. */
void crl_table_put(crl_table *table, crl_table_node *node, uint64_t hash);
/* Without effect when it is in no table. */
void crl_table_take(crl_table *table, crl_table_node *node);

/* The first node of the bucket of a hash, and of any bucket below table->size; NULL: none. Nodes of
 * other hashes may stand there, too. */
static inline crl_table_node *crl_table_first(const crl_table *table, uint64_t hash) {
  return table->size == 0 ? NULL : table->buckets[(hash >> 32) & (table->size - 1)];
}

#endif
