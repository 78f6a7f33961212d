/* gate.c: the limiter of one process: at most `most` callers inside at once; waiters enter by rank,
 * then in the order of arrival. */
#include "election/gate.h"

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

struct crl_gate {
  pthread_mutex_t mutex;
  int64_t most, inside;
  waiter *heads[CRL_RANKS], **tails[CRL_RANKS];
};

crl_gate *crl_gate_new(int64_t most) {
  crl_gate *gate = crl_alloc(sizeof *gate);
  if (gate == NULL) return NULL;
  pthread_mutex_init(&gate->mutex, NULL);
  gate->most = most;
  for (int rank = 0; rank < CRL_RANKS; rank++) gate->tails[rank] = &gate->heads[rank];
  return gate;
}

void crl_gate_free(crl_gate *gate) {
  pthread_mutex_destroy(&gate->mutex);
  free(gate);
}

/* ---- under the mutex ----------------------------------------------------------------------- */

static int somebody_waits(const crl_gate *gate, crl_rank rank) {
  for (int r = 0; r <= (int)rank; r++)
    if (gate->heads[r] != NULL) return 1;
  return 0;
}

static void leave_queue(crl_gate *gate, crl_rank rank, const waiter *own) {
  waiter **link = &gate->heads[rank];
  while (*link != own) link = &(*link)->next;
  *link = own->next;
  if (*link == NULL) gate->tails[rank] = link;
}

/* Lets in waiters, most urgent rank first, while there is room. */
static void admit(crl_gate *gate) {
  for (int rank = 0; rank < CRL_RANKS && gate->inside < gate->most;) {
    waiter *first = gate->heads[rank];
    if (first == NULL) {
      rank++;
      continue;
    }
    leave_queue(gate, (crl_rank)rank, first);
    first->admitted = 1;
    gate->inside++;
    pthread_cond_signal(&first->cond);
  }
}

static void stir(void *arg) {
  crl_gate *gate = arg;
  pthread_mutex_lock(&gate->mutex);
  for (size_t rank = 0; rank < CRL_RANKS; rank++)
    for (waiter *w = gate->heads[rank]; w != NULL; w = w->next) pthread_cond_signal(&w->cond);
  pthread_mutex_unlock(&gate->mutex);
}

static int wait_for_turn(crl_gate *gate, crl_rank rank, int64_t until,
                         const corral_ticket *ticket) {
  waiter own = {0};
  crl_env_cond_init(&own.cond);
  *gate->tails[rank] = &own;
  gate->tails[rank] = &own.next;
  while (!own.admitted && !crl_ticket_cancelled(ticket) &&
         crl_env_cond_wait(&own.cond, &gate->mutex, until)) {
  }
  if (!own.admitted) leave_queue(gate, rank, &own);
  pthread_cond_destroy(&own.cond);
  return own.admitted;
}

/* ---- public -------------------------------------------------------------------------------- */

int crl_gate_enter(crl_gate *gate, crl_rank rank, int64_t until, corral_ticket *ticket) {
  int entered = 0;
  crl_leaver leaver;
  crl_ticket_join(ticket, &leaver, stir, gate);
  pthread_mutex_lock(&gate->mutex);
  if (gate->inside < gate->most && !somebody_waits(gate, rank)) {
    gate->inside++;
    entered = 1;
  } else if (crl_env_now_ms() < until) {
    entered = wait_for_turn(gate, rank, until, ticket);
  }
  pthread_mutex_unlock(&gate->mutex);
  crl_ticket_leave(ticket, &leaver);
  return entered;
}

void crl_gate_leave(crl_gate *gate) {
  pthread_mutex_lock(&gate->mutex);
  gate->inside--;
  admit(gate);
  pthread_mutex_unlock(&gate->mutex);
}

size_t crl_gate_inside(crl_gate *gate) {
  pthread_mutex_lock(&gate->mutex);
  size_t inside = (size_t)gate->inside;
  pthread_mutex_unlock(&gate->mutex);
  return inside;
}

size_t crl_gate_waiting(crl_gate *gate, crl_rank rank) {
  size_t count = 0;
  pthread_mutex_lock(&gate->mutex);
  for (const waiter *w = gate->heads[rank]; w != NULL; w = w->next) count++;
  pthread_mutex_unlock(&gate->mutex);
  return count;
}
