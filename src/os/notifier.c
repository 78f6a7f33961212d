/* notifier.c: a queue of notices, and the thread that tells them. */
#include "os/notifier.h"

#include <pthread.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/value.h"

struct crl_notifier {
  pthread_mutex_t mutex;
  pthread_cond_t work; /* for the thread: something is queued, or closing */
  pthread_cond_t told; /* for crl_notifier_withdraw: a notice was told */
  crl_notice *head, **tail;
  crl_notice *telling; /* only compared: its owner may have freed it */
  size_t queued;
  pthread_t thread;
  int started, closing;
};

/* ---- frames -------------------------------------------------------------------------------- */

static _Thread_local const crl_frame *innermost;

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

crl_notifier *crl_notifier_new(void) {
  crl_notifier *notifier = crl_alloc(sizeof *notifier);
  if (notifier == NULL) return NULL;
  pthread_mutex_init(&notifier->mutex, NULL);
  crl_env_cond_init(&notifier->work);
  crl_env_cond_init(&notifier->told);
  notifier->tail = &notifier->head;
  return notifier;
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
  pthread_mutex_unlock(&notifier->mutex);
  notice->tell(notice);
  pthread_mutex_lock(&notifier->mutex);
  notifier->telling = NULL;
  pthread_cond_broadcast(&notifier->told);
}

static void *work(void *arg) {
  crl_notifier *notifier = arg;
  crl_env_thread_name("corral-notifier");
  pthread_mutex_lock(&notifier->mutex);
  while (notifier->head != NULL || !notifier->closing) {
    if (notifier->head != NULL)
      tell_first(notifier);
    else
      pthread_cond_wait(&notifier->work, &notifier->mutex);
  }
  pthread_mutex_unlock(&notifier->mutex);
  return NULL;
}

int crl_notifier_post(crl_notifier *notifier, crl_notice *notice, size_t most) {
  pthread_mutex_lock(&notifier->mutex);
  int takes = notifier->queued < most;
  if (takes) {
    notice->next = NULL;
    notice->link = notifier->tail;
    notice->queued = 1;
    *notifier->tail = notice;
    notifier->tail = &notice->next;
    notifier->queued++;
    if (!notifier->started)
      notifier->started = crl_env_thread(&notifier->thread, work, notifier) == 0;
    pthread_cond_signal(&notifier->work);
  }
  pthread_mutex_unlock(&notifier->mutex);
  return takes;
}

int crl_notifier_withdraw(crl_notifier *notifier, crl_notice *notice) {
  pthread_mutex_lock(&notifier->mutex);
  int queued = notice->queued,
      own = notifier->started && pthread_equal(notifier->thread, pthread_self());
  if (queued) unlink_notice(notifier, notice);
  while (!own && notifier->telling == notice) pthread_cond_wait(&notifier->told, &notifier->mutex);
  pthread_mutex_unlock(&notifier->mutex);
  return queued;
}

void crl_notifier_free(crl_notifier *notifier) {
  pthread_mutex_lock(&notifier->mutex);
  notifier->closing = 1;
  pthread_cond_signal(&notifier->work);
  while (!notifier->started && notifier->head != NULL) tell_first(notifier);
  pthread_mutex_unlock(&notifier->mutex);
  if (notifier->started) pthread_join(notifier->thread, NULL);
  pthread_cond_destroy(&notifier->work);
  pthread_cond_destroy(&notifier->told);
  pthread_mutex_destroy(&notifier->mutex);
  free(notifier);
}
