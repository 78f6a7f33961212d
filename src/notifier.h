/* notifier.h: one thread that calls callbacks of the user for threads of the library that must not
 * wait for them.
 *
 * One at a time, in the order in which they were posted. The thread is started when first needed;
 * no lock is held during a callback. */
#ifndef CRL_NOTIFIER_H
#define CRL_NOTIFIER_H

#include <stddef.h>

typedef struct crl_notifier crl_notifier;

/* One call of a callback, in its owner's memory; zero before it is posted. */
typedef struct crl_notice {
  struct crl_notice *next, **link;
  void (*tell)(struct crl_notice *notice); /* may free it, unless somebody withdraws it */
  int queued;                              /* the notifier's own */
} crl_notice;

/* Starts no thread. NULL without memory. */
crl_notifier *crl_notifier_new(void);
/* Tells what is queued first. Not from within a callback. */
void crl_notifier_free(crl_notifier *notifier);
/* 0 when `most` are queued already: then it isn't told. Without a thread to be had it waits for the
 * next post, a withdrawal, or crl_notifier_free. */
int crl_notifier_post(crl_notifier *notifier, crl_notice *notice, size_t most);
/* 1: it was queued, and won't be told. 0: it isn't queued, and not being told any more: this waits
 * for that, unless this is the notifier's own thread. */
int crl_notifier_withdraw(crl_notifier *notifier, crl_notice *notice);

/* A callback that this thread is within, named by what must not be used or freed from within; on
 * the stack of who calls it. */
typedef struct crl_frame {
  const void *of;
  const struct crl_frame *outer;
} crl_frame;

void crl_frame_enter(crl_frame *frame, const void *of);
void crl_frame_leave(const crl_frame *frame);
int crl_frame_within(const void *of);

#endif
