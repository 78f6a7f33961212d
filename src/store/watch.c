/* watch.c: one thread that listens to a store's watch, wakes waiters, and reports changes. */
#include "store/watch.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "os/env.h"
#include "base/value.h"

enum { BUCKETS = 256, PAUSE_MS = 1000, TURN_MS = 60000 };

typedef enum state {
  IDLE,
  RUNS,
  NEVER /* the store has no watch, or there is no thread to be had */
} state;

struct crl_watch {
  crl_watch_options options;
  pthread_mutex_t mutex; /* guards the waiters and the start */
  crl_watcher *buckets[BUCKETS];
  pthread_t thread;
  _Atomic int state;
  _Atomic int up;
  int started, stop_fd;
};

crl_watch *crl_watch_new(const crl_watch_options *options) {
  crl_watch *watch = crl_alloc(sizeof *watch);
  if (watch == NULL) return NULL;
  watch->options = *options;
  watch->stop_fd = -1;
  atomic_init(&watch->state, options->plugin->watch != NULL ? IDLE : NEVER);
  pthread_mutex_init(&watch->mutex, NULL);
  return watch;
}

void crl_watch_free(crl_watch *watch) {
  uint64_t one = 1;
  if (watch->started && write(watch->stop_fd, &one, sizeof one) == sizeof one)
    pthread_join(watch->thread, NULL);
  if (watch->stop_fd >= 0) close(watch->stop_fd);
  pthread_mutex_destroy(&watch->mutex);
  free(watch);
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void wake_bucket(crl_watcher *first, uint64_t hash) {
  for (crl_watcher *w = first; w != NULL; w = w->next)
    if (hash == 0 || w->hash == hash) crl_waiter_wake(w->waiter);
}

static void tell(void *arg, uint64_t hash) {
  crl_watch *watch = arg;
  if (watch->options.on_change != NULL) watch->options.on_change(watch->options.arg, hash);
  pthread_mutex_lock(&watch->mutex);
  if (hash != 0) wake_bucket(watch->buckets[hash % BUCKETS], hash);
  for (size_t i = 0; hash == 0 && i < BUCKETS; i++) wake_bucket(watch->buckets[i], 0);
  pthread_mutex_unlock(&watch->mutex);
}

/* Waits `ms`, or less when the corral is being closed: then 1. */
static int rest(const crl_watch *watch, int64_t ms) {
  struct pollfd stop = {.fd = watch->stop_fd, .events = POLLIN};
  return poll(&stop, 1, (int)ms) > 0;
}

static void listen_to(crl_watch *watch, void *open) {
  const corral_store *plugin = watch->options.plugin;
  corral_error why;
  int status = CORRAL_OK;
  atomic_store(&watch->up, 1);
  tell(watch, 0);
  while (status == CORRAL_OK && !rest(watch, 0))
    status = plugin->changes(open, watch->stop_fd, crl_env_now_ms() + TURN_MS, tell, watch, &why);
  atomic_store(&watch->up, 0);
  tell(watch, 0);
  plugin->unwatch(open);
}

static void *run(void *arg) {
  crl_watch *watch = arg;
  corral_error why;
  crl_env_thread_name("corral-watch");
  do {
    void *open = NULL;
    int status = watch->options.plugin->watch(watch->options.store, 0,
                                              crl_env_now_ms() + watch->options.op_ms, &open, &why);
    if (status == CORRAL_OK) listen_to(watch, open);
    if (status == CORRAL_EUNSUPPORTED) {
      atomic_store(&watch->state, NEVER);
      break;
    }
  } while (!rest(watch, PAUSE_MS));
  return NULL;
}

static void start(crl_watch *watch) {
  pthread_mutex_lock(&watch->mutex);
  if (atomic_load(&watch->state) == IDLE) {
    watch->stop_fd = crl_env_own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    watch->started = watch->stop_fd >= 0 && crl_env_thread(&watch->thread, run, watch) == 0;
    atomic_store(&watch->state, watch->started ? RUNS : NEVER);
  }
  pthread_mutex_unlock(&watch->mutex);
}

/* ---- waiters ------------------------------------------------------------------------------- */

int crl_watch_up(crl_watch *watch) {
  if (atomic_load_explicit(&watch->state, memory_order_relaxed) == IDLE) start(watch);
  return atomic_load_explicit(&watch->up, memory_order_relaxed);
}

void crl_watch_join(crl_watch *watch, crl_watcher *watcher, uint64_t hash, crl_waiter *waiter) {
  crl_watcher **bucket = &watch->buckets[hash % BUCKETS];
  watcher->hash = hash;
  watcher->waiter = waiter;
  pthread_mutex_lock(&watch->mutex);
  watcher->next = *bucket;
  watcher->link = bucket;
  if (watcher->next != NULL) watcher->next->link = &watcher->next;
  *bucket = watcher;
  pthread_mutex_unlock(&watch->mutex);
}

void crl_watch_leave(crl_watch *watch, crl_watcher *watcher) {
  pthread_mutex_lock(&watch->mutex);
  *watcher->link = watcher->next;
  if (watcher->next != NULL) watcher->next->link = watcher->link;
  pthread_mutex_unlock(&watch->mutex);
}
