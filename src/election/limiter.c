/* limiter.c: the limiter of one process: at most `most` callers inside at once; waiters enter by
 * rank, then in the order of arrival. */
#include "election/limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/value.h"

/* A waiting caller, on its own stack. */
typedef struct waiter {
  struct waiter *next;
  pthread_cond_t cond;
  int admitted;
} waiter;

struct crl_limiter {
  pthread_mutex_t mutex;
  int64_t most, inside;
  waiter *heads[CRL_RANKS], **tails[CRL_RANKS];
};

crl_limiter *crl_limiter_new(int64_t most) {
  crl_limiter *limiter = crl_alloc(sizeof *limiter);
  if (limiter == NULL) return NULL;
  pthread_mutex_init(&limiter->mutex, NULL);
  limiter->most = most;
  for (int rank = 0; rank < CRL_RANKS; rank++) limiter->tails[rank] = &limiter->heads[rank];
  return limiter;
}

void crl_limiter_free(crl_limiter *limiter) {
  pthread_mutex_destroy(&limiter->mutex);
  free(limiter);
}

/* ---- under the mutex ----------------------------------------------------------------------- */

static int somebody_waits(const crl_limiter *limiter, crl_rank rank) {
  for (int r = 0; r <= (int)rank; r++)
    if (limiter->heads[r] != NULL) return 1;
  return 0;
}

static void leave_queue(crl_limiter *limiter, crl_rank rank, const waiter *own) {
  waiter **link = &limiter->heads[rank];
  while (*link != own) link = &(*link)->next;
  *link = own->next;
  if (*link == NULL) limiter->tails[rank] = link;
}

/* Lets in waiters, most urgent rank first, while there is room. */
static void admit(crl_limiter *limiter) {
  for (int rank = 0; rank < CRL_RANKS && limiter->inside < limiter->most;) {
    waiter *first = limiter->heads[rank];
    if (first == NULL) {
      rank++;
      continue;
    }
    leave_queue(limiter, (crl_rank)rank, first);
    first->admitted = 1;
    limiter->inside++;
    pthread_cond_signal(&first->cond);
  }
}

static void stir(void *arg) {
  crl_limiter *limiter = arg;
  pthread_mutex_lock(&limiter->mutex);
  for (size_t rank = 0; rank < CRL_RANKS; rank++)
    for (waiter *w = limiter->heads[rank]; w != NULL; w = w->next) pthread_cond_signal(&w->cond);
  pthread_mutex_unlock(&limiter->mutex);
}

static int wait_for_turn(crl_limiter *limiter, crl_rank rank, int64_t until,
                         const corral_cancel_token *cancel_token) {
  waiter own = {0};
  crl_env_cond_init(&own.cond);
  *limiter->tails[rank] = &own;
  limiter->tails[rank] = &own.next;
  while (!own.admitted && !crl_cancelled(cancel_token) &&
         crl_env_cond_wait(&own.cond, &limiter->mutex, until)) {
  }
  if (!own.admitted) leave_queue(limiter, rank, &own);
  pthread_cond_destroy(&own.cond);
  return own.admitted;
}

/* ---- public -------------------------------------------------------------------------------- */

int crl_limiter_enter(crl_limiter *limiter, crl_rank rank, int64_t until,
                      corral_cancel_token *cancel_token) {
  int entered = 0;
  crl_canceller canceller;
  crl_cancel_join(cancel_token, &canceller, stir, limiter);
  pthread_mutex_lock(&limiter->mutex);
  if (limiter->inside < limiter->most && !somebody_waits(limiter, rank)) {
    limiter->inside++;
    entered = 1;
  } else if (crl_env_now_ms() < until) {
    entered = wait_for_turn(limiter, rank, until, cancel_token);
  }
  pthread_mutex_unlock(&limiter->mutex);
  crl_cancel_leave(cancel_token, &canceller);
  return entered;
}

void crl_limiter_leave(crl_limiter *limiter) {
  pthread_mutex_lock(&limiter->mutex);
  limiter->inside--;
  admit(limiter);
  pthread_mutex_unlock(&limiter->mutex);
}

size_t crl_limiter_inside(crl_limiter *limiter) {
  pthread_mutex_lock(&limiter->mutex);
  size_t inside = (size_t)limiter->inside;
  pthread_mutex_unlock(&limiter->mutex);
  return inside;
}

size_t crl_limiter_waiting(crl_limiter *limiter, crl_rank rank) {
  size_t count = 0;
  pthread_mutex_lock(&limiter->mutex);
  for (const waiter *w = limiter->heads[rank]; w != NULL; w = w->next) count++;
  pthread_mutex_unlock(&limiter->mutex);
  return count;
}
