/* notifier.c: a queue of notices, and the job that tells them. */
#include "os/notifier.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "os/env.h"
#include "os/readers.h"
#include "base/value.h"

struct crl_notifier {
  pthread_mutex_t mutex;
  pthread_cond_t told; /* a notice was told, or the job has ended */
  crl_notice *head, **tail;
  crl_notice *telling; /* only compared: its owner may have freed it */
  size_t queued;
  crl_workers *workers;
  crl_job job;
  int is_out; /* the job is queued, or runs on `teller` */
  pthread_t teller;
};

/* ---- frames -------------------------------------------------------------------------------- */

static _Thread_local const crl_frame *innermost CRL_IN_FIRST_BLOCK;

void crl_frame_enter(crl_frame *frame, const void *of) {
  *frame = (crl_frame){.of = of, .outer = innermost};
  innermost = frame;
}

void crl_frame_leave(const crl_frame *frame) { innermost = frame->outer; }

int crl_frame_within(const void *of) {
  const crl_frame *at = innermost;
  while (at != NULL && at->of != of) at = at->outer;
  return at != NULL;
}

/* ---- the queue ----------------------------------------------------------------------------- */

static void work(crl_job *job);
static void drop(crl_job *job);

crl_notifier *crl_notifier_new(crl_workers *workers) {
  crl_notifier *notifier = crl_alloc(sizeof *notifier);
  if (notifier == NULL) return NULL;
  pthread_mutex_init(&notifier->mutex, NULL);
  crl_env_cond_init(&notifier->told);
  notifier->tail = &notifier->head;
  notifier->workers = workers;
  notifier->job = (crl_job){.run = work, .drop = drop};
  return notifier;
}

#ifdef CORRAL_CHECKS
static void check(const crl_notifier *notifier) {
  crl_notice *const *link = &notifier->head;
  size_t count = 0;
  for (; *link != NULL && count < CRL_CHECK_MOST; link = &(*link)->next, count++) {
    CRL_MUST((*link)->link == link, "notifier: a notice knows the link to it");
    CRL_MUST((*link)->queued, "notifier: a notice in the queue is queued");
  }
  CRL_MUST(*link != NULL || notifier->tail == link, "notifier: the queue knows its end");
  CRL_MUST(*link != NULL || notifier->queued == count, "notifier: the notices are counted");
}
#endif

static void lock(crl_notifier *notifier) {
  pthread_mutex_lock(&notifier->mutex);
  CRL_CHECK(notifier);
}

static void unlock(crl_notifier *notifier) {
  CRL_CHECK(notifier);
  pthread_mutex_unlock(&notifier->mutex);
}

/* Under the mutex. */
static void unlink_notice(crl_notifier *notifier, crl_notice *notice) {
  *notice->link = notice->next;
  if (notice->next != NULL)
    notice->next->link = notice->link;
  else
    notifier->tail = notice->link;
  notice->queued = 0;
  notifier->queued--;
}

/* Under the mutex, which is released during the callback. */
static void tell_first(crl_notifier *notifier) {
  crl_notice *notice = notifier->head;
  unlink_notice(notifier, notice);
  notifier->telling = notice;
  unlock(notifier);
  notice->tell(notice);
  lock(notifier);
  notifier->telling = NULL;
  pthread_cond_broadcast(&notifier->told);
}

static crl_notifier *notifier_of(crl_job *job) {
  return (crl_notifier *)(void *)((char *)job - offsetof(crl_notifier, job));
}

static void work(crl_job *job) {
  crl_notifier *notifier = notifier_of(job);
  lock(notifier);
  notifier->teller = pthread_self();
  while (notifier->head != NULL) tell_first(notifier);
  notifier->is_out = 0;
  pthread_cond_broadcast(&notifier->told);
  unlock(notifier);
}

static void drop(crl_job *job) {
  crl_notifier *notifier = notifier_of(job);
  lock(notifier);
  notifier->is_out = 0;
  pthread_cond_broadcast(&notifier->told);
  unlock(notifier);
}

int crl_notifier_post(crl_notifier *notifier, crl_notice *notice, size_t most) {
  lock(notifier);
  int takes = notifier->queued < most;
  if (takes && !notice->queued) {
    notice->next = NULL;
    notice->link = notifier->tail;
    notice->queued = 1;
    *notifier->tail = notice;
    notifier->tail = &notice->next;
    notifier->queued++;
    if (!notifier->is_out)
      notifier->is_out = crl_workers_submit(notifier->workers, &notifier->job) == 0;
  }
  unlock(notifier);
  return takes;
}

int crl_notifier_withdraw(crl_notifier *notifier, crl_notice *notice) {
  lock(notifier);
  int queued = notice->queued,
      own = notifier->telling == notice && pthread_equal(notifier->teller, pthread_self());
  if (queued) unlink_notice(notifier, notice);
  while (!own && notifier->telling == notice) pthread_cond_wait(&notifier->told, &notifier->mutex);
  unlock(notifier);
  return queued;
}

void crl_notifier_free(crl_notifier *notifier) {
  lock(notifier);
  while (notifier->is_out) pthread_cond_wait(&notifier->told, &notifier->mutex);
  while (notifier->head != NULL) tell_first(notifier);
  unlock(notifier);
  pthread_cond_destroy(&notifier->told);
  pthread_mutex_destroy(&notifier->mutex);
  free(notifier);
}
