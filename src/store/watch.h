/* watch.h: one thread that listens to a store's watch, wakes waiters, and reports changes.
 *
 * The thread starts when first needed. It opens the plugin's watch, again after a pause when it
 * breaks, and passes each change on to the waiters of that key and to `on_change`. A change may be
 * missed: a waiter has a timer, too.
 *
 * Some watches report only keys that they have registered (corral_store.register_keys). The thread
 * does that, for waiters and for copies of records, in batches. The registration's reply has the
 * record's first bytes, by which it has a print: a waiter or a copy whose record had another print
 * was overtaken by a change. */
#ifndef CRL_WATCH_H
#define CRL_WATCH_H

#include <corral/plugin.h>

#include "base/table.h"
#include "os/cancel.h"
#include "stats/event.h"

typedef struct crl_watch crl_watch;

typedef struct crl_watch_options {
  const corral_store *plugin;
  void *store;        /* open as long as the watch exists */
  int64_t op_ms;      /* limit for opening the plugin's watch */
  crl_events *events; /* CORRAL_EVENT_WATCH */
  /* Called for each change, on the watch's thread; hash 0: any key may have changed. Also called
   * with 0 when the watch begins and when it ends. May be NULL. */
  void (*on_change)(void *arg, uint64_t hash);
  /* Called for each key of which changes may have been missed. May be NULL. */
  void (*on_missed)(void *arg, uint64_t hash);
  /* Called when a key was registered: its next change will be reported, and its record has this
   * print now. May be NULL. */
  void (*on_registered)(void *arg, uint64_t hash, uint64_t print);
  void *arg;
} crl_watch_options;

/* A waiter for changes of a key, in its owner's memory; its waiter is woken. */
typedef struct crl_watcher {
  crl_table_node node; /* by the hash of its key */
  crl_waiter *waiter;
  uint64_t print;      /* of the record that it waits on; 0: none is registered */
  int stands;          /* it is registered, and nothing was reported since; under the mutex */
  unsigned overtaken;  /* registrations that found another print */
  _Atomic int refused; /* 1: the watch won't report this key to it */
} crl_watcher;

/* A stored key, for crl_watch_register. */
typedef struct crl_watch_key {
  const void *data;
  size_t len;
  uint64_t hash;
} crl_watch_key;

/* No I/O, starts no thread. NULL without memory. */
crl_watch *crl_watch_new(const crl_watch_options *options);
/* No watcher may be joined. */
void crl_watch_free(crl_watch *watch);
/* corral_host.missed; `watch` is the `arg` of the plugin's `changes`. */
void crl_watch_missed(void *watch, uint64_t hash);
/* True when changes are told now. The first call starts the thread, and returns 0; later calls may
 * return 1. */
int crl_watch_up(crl_watch *watch);
/* The same, without starting the thread. */
int crl_watch_is_up(const crl_watch *watch);
/* True for a watch that reports registered keys only. */
int crl_watch_registers(const crl_watch *watch);
/* The print of a record by its first bytes; NULL: there is no record. Two records without a lease
 * that have the same print have the same body, and neither or both were expired. */
uint64_t crl_watch_print(const void *record, size_t size);
/* To be joined before the look at the store after which changes are to be told or, with a watch
 * that registers keys, before crl_watch_register. */
void crl_watch_join(crl_watch *watch, crl_watcher *watcher, uint64_t hash, crl_waiter *waiter);
/* Has a key registered soon. A watcher (may be NULL) is woken if the record has another print than
 * this one by then, or can't be watched. A registration that still stands is not repeated. 0: it
 * won't be registered. */
int crl_watch_register(crl_watch *watch, crl_watcher *watcher, const crl_watch_key *key,
                       uint64_t print);
/* True when the watch has refused this watcher: it waits by the clock. */
int crl_watch_refuses(const crl_watcher *watcher);
/* No wake is under way when this returns, and none will come. */
void crl_watch_leave(crl_watch *watch, crl_watcher *watcher);

#endif
