/* readers.c: what a reader without a lock pays to enter and to leave: by the library's own epochs
 * (src/os/readers.h), and by liburcu, as a library could use it: the flavour bp, which takes any
 * thread, and memb, which wants each thread registered. With 1 and 2 threads, in turns within one
 * run; medians. All are compiled in line.
 *
 *   bench_readers     built where liburcu-dev is installed */
#define _LGPL_SOURCE
#include <pthread.h>
#include <urcu/urcu-bp.h>
#include <urcu/urcu-memb.h>

#include "../src/os/readers.h"
#include "kit.h"

enum { ROUNDS = 15, TIMES = 2000000, THREADS_MOST = 2 };

typedef enum way { EPOCHS, BP, MEMB, WAYS } way;

static const int shared_number = 7;
static const int *volatile shared = &shared_number; /* what is read inside */
static volatile long sink;

static long read_by_epochs(void) {
  long seen = 0;
  for (int i = 0; i < TIMES; i++) {
    if (!crl_readers_enter()) die("no memory");
    seen += *shared;
    crl_readers_leave();
  }
  return seen;
}

static long read_by_bp(void) {
  long seen = 0;
  for (int i = 0; i < TIMES; i++) {
    urcu_bp_read_lock();
    seen += *shared;
    urcu_bp_read_unlock();
  }
  return seen;
}

static long read_by_memb(void) {
  long seen = 0;
  urcu_memb_register_thread();
  for (int i = 0; i < TIMES; i++) {
    urcu_memb_read_lock();
    seen += *shared;
    urcu_memb_read_unlock();
  }
  urcu_memb_unregister_thread();
  return seen;
}

typedef struct reader {
  way by;
  pthread_barrier_t *go;
  double took;
} reader;

static void *reader_run(void *arg) {
  reader *me = arg;
  static long (*const reads[WAYS])(void) = {read_by_epochs, read_by_bp, read_by_memb};
  pthread_barrier_wait(me->go);
  double began = now_us();
  sink = reads[me->by]();
  me->took = now_us() - began;
  return NULL;
}

/* Nanoseconds for each time, on each thread. */
static double measure(way by, int threads) {
  pthread_t ids[THREADS_MOST];
  reader readers[THREADS_MOST];
  pthread_barrier_t go;
  double took = 0;
  pthread_barrier_init(&go, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++) {
    readers[i] = (reader){.by = by, .go = &go};
    if (pthread_create(&ids[i], NULL, reader_run, &readers[i]) != 0) die("no thread");
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    took += readers[i].took;
  }
  pthread_barrier_destroy(&go);
  return 1000 * took / threads / TIMES;
}

int main(void) {
  double ns[WAYS][ROUNDS];
  crl_readers_begin();
  for (int threads = 1; threads <= THREADS_MOST; threads++) {
    for (int round = 0; round < ROUNDS; round++)
      for (int by = 0; by < WAYS; by++) ns[by][round] = measure((way)by, threads);
    double own = median(ns[EPOCHS], ROUNDS), bp = median(ns[BP], ROUNDS),
           memb = median(ns[MEMB], ROUNDS);
    printf("enter and leave, %d thread%s: own epochs %.2f ns   liburcu-bp %.2f ns, ratio %.2f   "
           "liburcu-memb %.2f ns, ratio %.2f\n",
           threads, threads == 1 ? " " : "s", own, bp, own / bp, memb, own / memb);
  }
  return 0;
}
