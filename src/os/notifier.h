/* notifier.h: calls callbacks of the user for threads of the library that must not wait for them.
 *
 * One callback at a time, in the order of posting, on a thread of the library. No lock is held
 * during a callback. */
#ifndef CRL_NOTIFIER_H
#define CRL_NOTIFIER_H

#include <stddef.h>

#include "os/worker.h"

typedef struct crl_notifier crl_notifier;

/* One call of a callback, in its owner's memory; zero before it is first posted. */
typedef struct crl_notice {
  struct crl_notice *next, **link;
  void (*tell)(struct crl_notice *notice); /* may free the notice, if it is never withdrawn */
  int queued;                              /* the notifier's own */
} crl_notice;

/* Starts no thread. NULL without memory. */
crl_notifier *crl_notifier_new(crl_workers *workers);
/* Calls the callbacks that are queued, then frees. Must not be called from within a callback. */
void crl_notifier_free(crl_notifier *notifier);
/* Queues a notice, unless it is queued already; 0 when `most` are. Without a thread to be had the
 * notice waits for the next post, its withdrawal, or crl_notifier_free. */
int crl_notifier_post(crl_notifier *notifier, crl_notice *notice, size_t most);
/* 1: the notice was queued, and won't be told. 0: it was not queued; if it is being told, this
 * waits for the end of that, except within it. */
int crl_notifier_withdraw(crl_notifier *notifier, crl_notice *notice);

/* A callback that this thread is within, on the caller's stack; `of`: the object that must not be
 * used or freed from within the callback. */
typedef struct crl_frame {
  const void *of;
  const struct crl_frame *outer;
} crl_frame;

void crl_frame_enter(crl_frame *frame, const void *of);
void crl_frame_leave(const crl_frame *frame);
int crl_frame_within(const void *of);

#endif
