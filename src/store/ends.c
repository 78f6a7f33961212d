/* ends.c: one thread that hears when the connection that a lock's hold belongs to has ended. */
#include "store/ends.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/value.h"
#include "os/env.h"

enum { IDLE, STARTS, RUNS };

struct crl_ends {
  crl_ends_options options;
  pthread_t thread;
  _Atomic int state;
  int stop_fd; /* readable when the ends are freed; -1: there is no thread */
};

crl_ends *crl_ends_new(const crl_ends_options *options) {
  crl_ends *ends = crl_alloc(sizeof *ends);
  if (ends == NULL) return NULL;
  ends->options = *options;
  ends->stop_fd = -1;
  return ends;
}

void crl_ends_free(crl_ends *ends) {
  uint64_t one = 1;
  if (atomic_load(&ends->state) == RUNS && write(ends->stop_fd, &one, sizeof one) == sizeof one)
    pthread_join(ends->thread, NULL);
  if (ends->stop_fd >= 0) close(ends->stop_fd);
  free(ends);
}

static void *run(void *arg) {
  const crl_ends *ends = arg;
  crl_env_thread_name("corral-ends");
  ends->options.plugin->ends(ends->options.store, ends->stop_fd, ends->options.ended,
                             ends->options.arg);
  return NULL;
}

static void start(crl_ends *ends) {
  ends->stop_fd = crl_env_own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (ends->stop_fd >= 0 && crl_env_thread(&ends->thread, run, ends) == 0)
    atomic_store(&ends->state, RUNS);
}

void crl_ends_attend(crl_ends *ends, const uint8_t *token) {
  int idle = IDLE;
  if (atomic_load_explicit(&ends->state, memory_order_relaxed) == IDLE &&
      atomic_compare_exchange_strong(&ends->state, &idle, STARTS))
    start(ends);
  if (!ends->options.plugin->attend(ends->options.store, token))
    ends->options.ended(ends->options.arg, token);
}
