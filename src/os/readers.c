/* readers.c: threads that read without a lock what other threads take out meanwhile. */
#include "os/readers.h"

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

enum { LINE = 64, BATCH = 64 };

_Thread_local crl_reader *crl_reader_mine CRL_IN_FIRST_BLOCK;
/* Read by all, on a line of its own. */
_Alignas(LINE) _Atomic uint64_t crl_readers_moment = 1;
_Alignas(LINE) int crl_readers_light;

/* The sanitizer does not know fences; an exchange that nobody reads orders as much on its
 * machines. */
static inline void fence(void) {
#if defined(__SANITIZE_THREAD__)
  static _Thread_local _Atomic int any;
  atomic_exchange(&any, 1);
#else
  atomic_thread_fence(memory_order_seq_cst);
#endif
}

static crl_reader *_Atomic readers;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;
static _Atomic int has_key;

/* ---- readers ------------------------------------------------------------------------------- */

static void give_back(crl_reader *r) {
  r->depth = 0;
  atomic_store_explicit(&r->seen, 0, memory_order_release);
  atomic_store_explicit(&r->taken, 0, memory_order_release);
}

static void on_exit_of_thread(void *r) {
  crl_reader_mine = NULL;
  give_back(r);
}

/* The child has but the thread that forked. */
static void in_child(void) {
  for (crl_reader *r = atomic_load(&readers); r != NULL; r = r->next)
    if (r != crl_reader_mine) give_back(r);
}

static long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

static void begin(void) {
  long known = membarrier(MEMBARRIER_CMD_QUERY);
  crl_readers_light = known > 0 && (known & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
                      membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  has_key = pthread_key_create(&at_exit, on_exit_of_thread) == 0;
}

void crl_readers_begin(void) { pthread_once(&once, begin); }

/* Registered when the library is loaded, like the one in env.c. */
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

/* No thread that ends may call into a library that was unloaded. */
__attribute__((destructor)) static void forget_exits(void) {
  if (has_key) pthread_key_delete(at_exit);
  has_key = 0;
}

static crl_reader *take_over(void) {
  crl_reader *r = atomic_load(&readers);
  for (int none = 0; r != NULL; r = r->next, none = 0)
    if (atomic_compare_exchange_strong(&r->taken, &none, 1)) return r;
  return NULL;
}

static crl_reader *add(void) {
  void *memory = NULL;
  if (posix_memalign(&memory, LINE, LINE) != 0) return NULL;
  crl_reader *r = memory;
  atomic_init(&r->seen, 0);
  atomic_init(&r->taken, 1);
  r->depth = 0;
  r->distance = 0;
  r->next = atomic_load(&readers);
  do r->number = r->next == NULL ? 0 : r->next->number + 1;
  while (!atomic_compare_exchange_weak(&readers, &r->next, r));
  return r;
}

/* A thread whose end would not be told has no place. */
__attribute__((noinline)) static crl_reader *find_place(void) {
  crl_reader *r = has_key ? take_over() : NULL;
  if (r == NULL && has_key) r = add();
  if (r == NULL) return NULL;
  if (pthread_setspecific(at_exit, r) == 0) return crl_reader_mine = r;
  give_back(r);
  return NULL;
}

int crl_readers_enter_first(void) { return find_place() != NULL && crl_readers_enter(); }

int crl_readers_enter_heavy(crl_reader *r, uint64_t now) {
  atomic_store_explicit(&r->seen, now, memory_order_seq_cst);
  fence();
  return 1;
}

/* The moment up to which nobody reads any more; 0: unknown. What was taken out before its stamp was
 * drawn is seen by no reader that enters at the stamp's moment or later. The barrier divides the
 * others: those that found it have been noted in `seen` by now. */
static uint64_t past(void) {
  uint64_t oldest = atomic_load_explicit(&crl_readers_moment, memory_order_acquire);
  if (!crl_readers_light)
    fence();
  else if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
    return 0;
  for (crl_reader *r = atomic_load(&readers); r != NULL; r = r->next) {
    uint64_t seen = atomic_load_explicit(&r->seen, memory_order_acquire);
    if (seen != 0 && seen < oldest) oldest = seen;
  }
  return oldest;
}

/* ---- a limbo ------------------------------------------------------------------------------- */

void crl_limbo_init(crl_limbo *limbo, size_t most) {
  crl_readers_begin();
  pthread_mutex_init(&limbo->mutex, NULL);
  limbo->most = most;
}

#ifdef CORRAL_CHECKS
static void check(const crl_limbo *limbo) {
  size_t count = 0, weight = 0;
  const crl_gone *gone = limbo->oldest, *last = NULL;
  CRL_MUST((limbo->oldest == NULL) == (limbo->newest == NULL), "limbo: it has both ends or none");
  for (; gone != NULL && count < CRL_CHECK_MOST; last = gone, gone = gone->next, count++) {
    CRL_MUST(last == NULL || last->stamp <= gone->stamp, "limbo: it is in the order of its stamps");
    weight += gone->weight;
  }
  if (gone != NULL) return;
  CRL_MUST(last == limbo->newest, "limbo: the newest is its end");
  CRL_MUST(count == limbo->count, "limbo: it counts what it has");
  CRL_MUST(weight == atomic_load(&limbo->weight), "limbo: it knows the weight of what it has");
}
#endif

static void lock(crl_limbo *limbo) {
  pthread_mutex_lock(&limbo->mutex);
  CRL_CHECK(limbo);
}

static void unlock(crl_limbo *limbo) {
  CRL_CHECK(limbo);
  pthread_mutex_unlock(&limbo->mutex);
}

/* Under the mutex, so the list is in the order of its stamps. */
static void append(crl_limbo *limbo, crl_gone *list) {
  uint64_t stamp = atomic_fetch_add_explicit(&crl_readers_moment, 1, memory_order_acq_rel) + 1;
  for (crl_gone *next; list != NULL; list = next) {
    next = list->next;
    list->stamp = stamp;
    list->next = NULL;
    if (limbo->newest != NULL)
      limbo->newest->next = list;
    else
      limbo->oldest = list;
    limbo->newest = list;
    limbo->count++;
    atomic_fetch_add_explicit(&limbo->weight, list->weight, memory_order_relaxed);
  }
}

static crl_gone *take(crl_limbo *limbo, uint64_t until) {
  crl_gone *first = limbo->oldest, **end = &limbo->oldest;
  while (*end != NULL && (*end)->stamp <= until) {
    limbo->count--;
    atomic_fetch_sub_explicit(&limbo->weight, (*end)->weight, memory_order_relaxed);
    end = &(*end)->next;
  }
  if (end == &limbo->oldest) return NULL;
  limbo->oldest = *end;
  *end = NULL;
  if (limbo->oldest == NULL) limbo->newest = NULL;
  return first;
}

crl_gone *crl_limbo_add(crl_limbo *limbo, crl_gone *list) {
  crl_gone *ended = NULL;
  if (list == NULL) return NULL;
  lock(limbo);
  append(limbo, list);
  if (limbo->count >= BATCH || atomic_load(&limbo->weight) >= limbo->most)
    ended = take(limbo, past());
  unlock(limbo);
  return ended;
}

crl_gone *crl_limbo_empty(crl_limbo *limbo) {
  lock(limbo);
  crl_gone *ended = limbo->oldest == NULL ? NULL : take(limbo, past());
  unlock(limbo);
  return ended;
}

crl_gone *crl_limbo_end(crl_limbo *limbo) {
  pthread_mutex_destroy(&limbo->mutex);
  return take(limbo, UINT64_MAX);
}
