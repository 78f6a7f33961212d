/* watch.h: one thread that listens to a store's watch, wakes waiters, and reports changes.
 *
 * The thread starts when first needed. It opens the plugin's watch, again after a pause when it
 * breaks, and passes each change on to the waiters of that key and to `on_change`. A change may be
 * missed: a waiter has a timer, too. */
#ifndef CRL_WATCH_H
#define CRL_WATCH_H

#include <corral/plugin.h>

#include "os/cancel.h"

typedef struct crl_watch crl_watch;

typedef struct crl_watch_options {
  const corral_store *plugin;
  void *store;   /* open as long as the watch exists */
  int64_t op_ms; /* limit for opening the plugin's watch */
  /* Called for each change, on the watch's thread; hash 0: any key may have changed. Also called
   * with 0 when the watch begins and when it ends. May be NULL. */
  void (*on_change)(void *arg, uint64_t hash);
  void *arg;
} crl_watch_options;

/* A waiter for changes of a key, in its owner's memory; its waiter is woken. */
typedef struct crl_watcher {
  struct crl_watcher *next, **link;
  uint64_t hash;
  crl_waiter *waiter;
} crl_watcher;

/* No I/O, starts no thread. NULL without memory. */
crl_watch *crl_watch_new(const crl_watch_options *options);
/* No watcher may be joined. */
void crl_watch_free(crl_watch *watch);
/* True when changes are told now. The first call starts the thread, and returns 0; later calls may
 * return 1. */
int crl_watch_up(crl_watch *watch);
/* To be joined before the look at the store after which changes are to be told. */
void crl_watch_join(crl_watch *watch, crl_watcher *watcher, uint64_t hash, crl_waiter *waiter);
/* No wake is under way when this returns, and none will come. */
void crl_watch_leave(crl_watch *watch, crl_watcher *watcher);

#endif
