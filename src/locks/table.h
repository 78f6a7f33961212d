/* table.h: the locks of one process: its holds, by name and owner, and its waiters, one queue
 * per name.
 *
 * Only the first waiter of a name asks the store; a release in this process wakes it, too. No I/O,
 * no clock. */
#ifndef CRL_LOCK_TABLE_H
#define CRL_LOCK_TABLE_H

#include <corral/lock.h>
#include <stdatomic.h>

#include "os/cancel.h"

typedef struct crl_lock_table crl_lock_table;

/* A waiter for a name, in its owner's memory. */
typedef struct crl_lock_waiter {
  struct crl_lock_waiter *next;
  uint64_t hash; /* of the name; names with the same hash share a queue */
  crl_waiter *wake;
  _Atomic int first; /* asks the store */
} crl_lock_waiter;

/* A taking of a hold: the first member of a corral_lock. */
typedef struct crl_lock_taking {
  struct crl_lock_taking *next; /* of the same hold; this and what follows: under the mutex */
  int shared;
  int leaves; /* it is being given back */
} crl_lock_taking;

/* A hold in the table: the first member of a crl_hold. */
typedef struct crl_lock_entry {
  struct crl_lock_entry *next, **link;
  uint64_t hash, owner;
  const uint8_t *key; /* as the store has it */
  size_t key_len;
  const uint8_t *token;
  crl_lock_taking *takings; /* not given back yet; under the table's mutex */
  _Atomic int shared;       /* the hold is a shared one */
} crl_lock_entry;

/* NULL without memory. */
crl_lock_table *crl_lock_table_new(void);
/* No waiter may be left. */
void crl_lock_table_free(crl_lock_table *table);

/* Adds a hold with its first taking, which is linked already. */
void crl_lock_table_add(crl_lock_table *table, crl_lock_entry *entry);
/* Adds one more taking of this owner's hold of this name; NULL when there is none. */
crl_lock_entry *crl_lock_table_again(crl_lock_table *table, uint64_t hash, uint64_t owner,
                                     const uint8_t *key, size_t key_len, crl_lock_taking *taking);
/* A taking begins to be given back: `each` leaves it out. 1: the others of an exclusive hold are
 * shared ones; the hold counts as a shared one from now on. */
int crl_lock_table_let_go(crl_lock_table *table, crl_lock_entry *entry, crl_lock_taking *taking);
/* Takes a taking away. Returns 1 when it was the last: the entry has left the table, and the caller
 * wakes the next waiter by crl_lock_table_wake. Else the hold may end at any time. */
int crl_lock_table_drop(crl_lock_table *table, crl_lock_entry *entry, crl_lock_taking *taking);
/* Calls `tell` for each taking of a hold, under the table's mutex. */
void crl_lock_table_each(crl_lock_table *table, crl_lock_entry *entry,
                         void (*tell)(crl_lock_taking *taking, void *arg), void *arg);
/* Calls `found` for the hold with this token, if there is one, under the table's mutex. */
void crl_lock_table_find(crl_lock_table *table, const uint8_t *token,
                         void (*found)(crl_lock_entry *entry));
/* True when this process has a hold with this token. */
int crl_lock_table_has(crl_lock_table *table, uint64_t hash, const uint8_t *token);

/* Notes a fencing token of a name (0: none), and returns the largest one that was noted of it; 0:
 * none, or another name has taken its place. */
uint64_t crl_lock_table_fence(crl_lock_table *table, uint64_t hash, uint64_t fence);

/* Enters the queue of a name; the waiter is woken when the waiter becomes the first. */
void crl_lock_table_queue(crl_lock_table *table, crl_lock_waiter *waiter, uint64_t hash,
                          crl_waiter *wake);
static inline int crl_lock_table_first(const crl_lock_waiter *waiter) {
  return atomic_load_explicit(&waiter->first, memory_order_acquire);
}
/* Leaves the queue; the next waiter becomes the first. No wake is under way when this returns, and
 * none will come. */
void crl_lock_table_leave(crl_lock_table *table, crl_lock_waiter *waiter);
/* Wakes the first waiter of a name, which may be free. */
void crl_lock_table_wake(crl_lock_table *table, uint64_t hash);

#endif
