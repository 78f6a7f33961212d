/* async.h: a call of an event loop, from its beginning to its last callback.
 *
 * A call is brought on by mail to its loop: it was answered, its entry changed, its time came, its
 * caller left. What concerns its entry, its callbacks and its end is done on the loop's thread;
 * what others tell it, under the loop's mutex. That mutex is taken within those of herds, alarms
 * and tickets, and only the pilot's is taken within it. */
#ifndef CRL_ASYNC_H
#define CRL_ASYNC_H

#include <corral/loop.h>

#include "pilot.h"

typedef enum crl_async_state {
  CRL_ASYNC_FLIES,  /* its run, or its work, answers it directly */
  CRL_ASYNC_JOINED, /* it waits on an entry */
  CRL_ASYNC_ENDED   /* `done` was called, or never will be */
} crl_async_state;

/* In the inbox: a call, or a run whose compute is to be begun. */
typedef struct crl_mail {
  struct crl_mail *next;
  crl_run *starts; /* NULL: a call */
  int is_posted;
} crl_mail;

struct corral_loop {
  uint32_t magic;
  corral *c;
  crl_station *station;
  pthread_mutex_t mutex;
  int fd;
  int is_rung, is_closed;
  crl_mail *head, **tail;
  corral_call *calls; /* the thread's own */
  crl_run *computing; /* begun by `start`, and not ended */
  size_t working;     /* functions that run for its calls */
  pthread_cond_t fewer;
  size_t refs; /* its own, and one for each call that isn't freed */
};

struct corral_call {
  crl_caller caller;
  crl_mail mail;
  corral_loop *loop;
  corral_call *next, **link;
  corral_async async;
  crl_call asked;
  int64_t deadline;
  /* Of the loop's thread. */
  crl_async_state state;
  int owns; /* the entry's flight is its own */
  crl_alarm alarm;
  crl_leaver leaver;
  /* Under the mutex. */
  crl_entry *entry; /* that it listens to */
  crl_listener listener;
  crl_nap nap;
  size_t runs;     /* that may call it still */
  crl_run *flying; /* that answers it directly */
  crl_outcome *answer;
  int is_answered, is_cancelled, is_handed; /* handed: `entry` is new */
  corral_work *work;
  crl_job job;
  uint8_t key[];
};

/* The verbs by which runs tell a call. */
crl_caller crl_async_caller(void);
/* The call of a run's caller. */
corral_call *crl_async_call(crl_caller *caller);
/* Under the loop's mutex: there is something for the loop to do. */
void crl_async_post(corral_loop *loop, crl_mail *mail);
/* Leads or joins a flight. Else the status that the call ends with. On the loop's thread, as what
 * follows. */
int crl_async_enter(corral_call *call, crl_alone alone);
/* Does what its mail says. */
void crl_async_bring_on(corral_call *call);
/* One that was refused: no callback. */
void crl_async_withdraw(corral_call *call);
/* It doesn't wait on its entry any more. */
void crl_async_leave(corral_call *call, crl_wait came);
/* Under the mutex: takes over the outcome's reference. Without memory the call learns just that. */
void crl_async_take_answer(corral_call *call, crl_outcome *outcome);
/* It doesn't listen to that entry any more, which it had a reference of. Any thread. */
void crl_async_stop_listening(corral_call *call, crl_entry *entry, crl_wait came);
/* One that may call it less; after the loop's end the last one frees it. Any thread. */
void crl_async_run_gone(corral_call *call);
void crl_async_init_waits(corral_call *call);
void crl_async_unref_loop(corral_loop *loop, size_t count);

#endif
