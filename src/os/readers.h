/* readers.h: threads that read without a lock what other threads take out meanwhile.
 *
 * Between crl_readers_enter and crl_readers_leave all that a thread finds stays. A thing that was
 * taken out goes to a limbo, and is freed when all have left who entered before. A reader writes
 * to memory of its own thread alone, and waits for nobody; nor does anybody wait for it.
 *
 * Epoch-based reclamation (K. Fraser: "Practical lock-freedom", 2004); the barrier that each reader
 * would need is the kernel's membarrier(2), called by the thread that frees, where there is one.
 * Any thread, also after a fork. */
#ifndef CRL_READERS_H
#define CRL_READERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* A thread that reads, or has read; never freed, but taken over by a later thread. */
typedef struct crl_reader {
  _Atomic uint64_t seen;  /* the moment when it entered; 0: it is outside */
  unsigned depth, number; /* number: of no other thread at the same time; from 0 on, without gaps */
  _Atomic int taken;
  int distance; /* gets of the thread until one is counted (stats/hot.h); 0: not drawn yet */
  struct crl_reader *next;
} crl_reader;

/* Access to a thread's own variable costs a library a call, unless the variable lies in the block
 * that is made with the thread. One pointer fits there even in a library that is loaded late. */
#if defined(__GLIBC__)
#define CRL_IN_FIRST_BLOCK __attribute__((tls_model("initial-exec")))
#else
#define CRL_IN_FIRST_BLOCK
#endif
/* Of readers.c alone. */
extern _Thread_local crl_reader *crl_reader_mine CRL_IN_FIRST_BLOCK;
extern _Atomic uint64_t crl_readers_moment;
int crl_readers_enter_first(void);
int crl_readers_enter_heavy(crl_reader *r, uint64_t now);
extern int crl_readers_light; /* membarrier is there: readers need no barrier */

/* Once before all else; more often does no harm. */
void crl_readers_begin(void);
/* 1: what is found stays until crl_readers_leave. 0: no memory, nothing may be read. May be
 * nested. */
static inline int crl_readers_enter(void) {
  crl_reader *r = crl_reader_mine;
  if (r == NULL) return crl_readers_enter_first();
  if (r->depth++ > 0) return 1;
  uint64_t now = atomic_load_explicit(&crl_readers_moment, memory_order_acquire);
  if (!crl_readers_light) return crl_readers_enter_heavy(r, now);
  atomic_store_explicit(&r->seen, now, memory_order_release);
  atomic_signal_fence(memory_order_seq_cst);
  return 1;
}

static inline void crl_readers_leave(void) {
  crl_reader *r = crl_reader_mine;
  if (--r->depth == 0) atomic_store_explicit(&r->seen, 0, memory_order_release);
}

/* Part of each thing that goes to a limbo, as its first member. */
typedef struct crl_gone {
  struct crl_gone *next;
  uint64_t stamp;
  size_t weight;
} crl_gone;

typedef struct crl_limbo {
  pthread_mutex_t mutex;
  crl_gone *oldest, *newest;
  size_t count;
  _Atomic size_t weight;
  size_t most; /* weight from which it is emptied as far as readers allow */
} crl_limbo;

void crl_limbo_init(crl_limbo *limbo, size_t most);
/* Takes a list (may be NULL) of things that no reader can find any more. Returns a list of those
 * that no reader has any more; the caller frees them. Looks for such when there is enough in the
 * limbo. */
crl_gone *crl_limbo_add(crl_limbo *limbo, crl_gone *list);
/* All that no reader has any more. */
crl_gone *crl_limbo_empty(crl_limbo *limbo);
/* All that is left; there are no readers. */
crl_gone *crl_limbo_end(crl_limbo *limbo);

#endif
