/* lock_table.h: what one process has and wants of locks: its holds, by name and owner, and its
 * waiters, in a queue for each name.
 *
 * Of the waiters for one name only the first one asks the store; it is also woken by a release in
 * this process. No I/O, no clock. */
#ifndef CRL_LOCK_TABLE_H
#define CRL_LOCK_TABLE_H

#include <corral/lock.h>

#include "ticket.h"

typedef struct crl_lock_table crl_lock_table;

/* One who waits for a name, in its owner's memory. */
typedef struct crl_lock_waiter {
  struct crl_lock_waiter *next;
  uint64_t hash; /* of the name: two names with one hash wait in one queue */
  crl_nap *nap;
  int first; /* its turn to ask; under the table's mutex */
} crl_lock_waiter;

/* A hold as the table knows it: the first member of a corral_lock. */
typedef struct crl_lock_entry {
  struct crl_lock_entry *next, **link;
  uint64_t hash, owner;
  const uint8_t *key; /* as the store has it */
  size_t key_len;
  const uint8_t *token;
  size_t takings; /* how often its owner has it; under the table's mutex */
} crl_lock_entry;

/* NULL without memory. */
crl_lock_table *crl_lock_table_new(void);
/* Nobody waits. */
void crl_lock_table_free(crl_lock_table *table);

void crl_lock_table_add(crl_lock_table *table, crl_lock_entry *entry);
/* One taking more of this owner's hold of this name; NULL when there is none. */
crl_lock_entry *crl_lock_table_again(crl_lock_table *table, uint64_t hash, uint64_t owner,
                                     const uint8_t *key, size_t key_len);
/* One taking less; true when that was the last: then it is the table's no more, and the name's
 * first waiter is woken when crl_lock_table_wake is called. */
int crl_lock_table_drop(crl_lock_table *table, crl_lock_entry *entry);
/* Whether a hold with this token is here. */
int crl_lock_table_has(crl_lock_table *table, uint64_t hash, const uint8_t *token);

/* Enters the queue of a name; its nap is woken when its turn comes. */
void crl_lock_table_queue(crl_lock_table *table, crl_lock_waiter *waiter, uint64_t hash,
                          crl_nap *nap);
int crl_lock_table_first(crl_lock_table *table, const crl_lock_waiter *waiter);
/* Leaves it; the next one's turn comes. No wake is under way when this returns, and none will
 * come. */
void crl_lock_table_leave(crl_lock_table *table, crl_lock_waiter *waiter);
/* The name may be free: wakes its first waiter. */
void crl_lock_table_wake(crl_lock_table *table, uint64_t hash);

#endif
