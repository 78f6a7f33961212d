/* steps.c: the threads on which event loops' locks ask the store. */
#include "locks/steps.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/value.h"

enum { HANDS = 4 };

typedef struct hand {
  crl_job job;
  crl_lock_steps *steps;
  int is_out; /* has a thread, or will have one */
} hand;

struct crl_lock_steps {
  pthread_mutex_t mutex;
  pthread_cond_t idle; /* a hand has nothing more to do */
  crl_workers *workers;
  crl_lock_step *head, **tail;
  hand hands[HANDS];
};

static size_t count_out(const crl_lock_steps *steps) {
  size_t count = 0;
  for (size_t i = 0; i < HANDS; i++) count += steps->hands[i].is_out != 0;
  return count;
}

#ifdef CORRAL_CHECKS
static void check(const crl_lock_steps *steps) {
  crl_lock_step *const *link = &steps->head;
  for (int left = CRL_CHECK_MOST; *link != NULL && left > 0; left--) link = &(*link)->next;
  CRL_MUST(*link != NULL || steps->tail == link, "lock steps: the queue knows its end");
  CRL_MUST(steps->head == NULL || count_out(steps) > 0,
           "lock steps: a thread is out while a step waits");
}
#endif

static void lock(crl_lock_steps *steps) {
  pthread_mutex_lock(&steps->mutex);
  CRL_CHECK(steps);
}

static void unlock(crl_lock_steps *steps) {
  CRL_CHECK(steps);
  pthread_mutex_unlock(&steps->mutex);
}

/* NULL: nothing is left, and the hand is idle. */
static crl_lock_step *take(hand *h) {
  crl_lock_steps *steps = h->steps;
  lock(steps);
  crl_lock_step *step = steps->head;
  if (step != NULL) steps->head = step->next;
  if (steps->head == NULL) steps->tail = &steps->head;
  if (step == NULL) {
    h->is_out = 0;
    crl_worker_is_ending(steps->workers);
    pthread_cond_signal(&steps->idle);
  }
  unlock(steps);
  return step;
}

static void run(crl_job *job) {
  hand *h = (hand *)(void *)((char *)job - offsetof(hand, job));
  for (crl_lock_step *step; (step = take(h)) != NULL;) step->make(step);
}

/* Never called: the steps end before the workers. */
static void drop(crl_job *job) { (void)job; }

/* 0: no hand has a thread, and none could be started. Under the mutex. */
static int send_hand(crl_lock_steps *steps) {
  for (size_t i = 0; i < HANDS; i++) {
    hand *h = &steps->hands[i];
    if (h->is_out) continue;
    h->is_out = 1;
    if (crl_workers_submit(steps->workers, &h->job) == 0) return 1;
    h->is_out = 0;
    break;
  }
  return count_out(steps) > 0;
}

crl_lock_steps *crl_lock_steps_new(crl_workers *workers) {
  crl_lock_steps *steps = crl_alloc(sizeof *steps);
  if (steps == NULL) return NULL;
  *steps = (crl_lock_steps){.workers = workers, .tail = &steps->head};
  for (size_t i = 0; i < HANDS; i++)
    steps->hands[i] = (hand){.job = {.run = run, .drop = drop}, .steps = steps};
  pthread_mutex_init(&steps->mutex, NULL);
  pthread_cond_init(&steps->idle, NULL);
  return steps;
}

void crl_lock_steps_free(crl_lock_steps *steps) {
  lock(steps);
  while (count_out(steps) > 0) pthread_cond_wait(&steps->idle, &steps->mutex);
  unlock(steps);
  pthread_cond_destroy(&steps->idle);
  pthread_mutex_destroy(&steps->mutex);
  free(steps);
}

int crl_lock_steps_add(crl_lock_steps *steps, crl_lock_step *step) {
  lock(steps);
  int begins = send_hand(steps);
  if (begins) {
    step->next = NULL;
    *steps->tail = step;
    steps->tail = &step->next;
  }
  unlock(steps);
  return begins;
}
