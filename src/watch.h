/* watch.h: waiters woken by the store, and what this process keeps of it made to follow: one thread
 * that listens to a store's watch.
 *
 * The thread starts when first needed. It opens the plugin's watch, again with a pause when it
 * broke, and hands on what is told: to the waiters of that key, and to `on_change`. Everything told
 * is a hint: who waits keeps a timer beside it. */
#ifndef CRL_WATCH_H
#define CRL_WATCH_H

#include <corral/plugin.h>

#include "ticket.h"

typedef struct crl_watch crl_watch;

typedef struct crl_watch_options {
  const corral_store *plugin;
  void *store;   /* open as long as the watch exists */
  int64_t op_ms; /* for opening */
  /* Told of each change, on the watch's thread; 0: of any key, unseen. Also called with 0 whenever
   * the watch begins or ends. May be NULL. */
  void (*on_change)(void *arg, uint64_t hash);
  void *arg;
} crl_watch_options;

/* One who waits for a change of a key, in its owner's memory; its nap is woken. */
typedef struct crl_watcher {
  struct crl_watcher *next, **link;
  uint64_t hash;
  crl_nap *nap;
} crl_watcher;

/* No I/O, no thread. NULL without memory. */
crl_watch *crl_watch_new(const crl_watch_options *options);
/* Nobody may wait. */
void crl_watch_free(crl_watch *watch);
/* Whether changes are told now. Starts the thread, or with it the first try, when that wasn't done:
 * then the answer is no, and later perhaps yes. */
int crl_watch_up(crl_watch *watch);
/* Before the look at the store whose outdating is to be told. */
void crl_watch_join(crl_watch *watch, crl_watcher *watcher, uint64_t hash, crl_nap *nap);
/* No wake is under way when this returns, and none will come. */
void crl_watch_leave(crl_watch *watch, crl_watcher *watcher);

#endif
