/* loop.c: broken invariants of an event loop. */
#include "api/inbox.h"
#include "checks/checks.h"

static void break_the_loop(int which) {
  static corral_loop loop;
  static crl_mail mail;
  static crl_run run;
  loop = (corral_loop){.bell = -1, .tail = &loop.head, .refs = 1};
  pthread_mutex_init(&loop.mutex, NULL);
  crl_inbox_lock(&loop);
  crl_inbox_post(&loop, &mail);
  loop.computing = &run;
  run.flown.link = &loop.computing;
  crl_inbox_unlock(&loop);
  switch (which) {
    case 0: mail.is_posted = 0; break;
    case 1: loop.tail = &loop.head; break;
    case 2: loop.is_rung = 0; break;
    case 3: run.flown.link = &run.flown.next; break;
    case 4: loop.is_closed = 1; break;
    default: loop.refs = 0;
  }
  crl_inbox_ring(&loop);
}

void of_the_loop(void **state) {
  (void)state;
  breaks(break_the_loop, 0, "loop: mail in the queue is posted");
  breaks(break_the_loop, 1, "loop: the queue knows its end");
  breaks(break_the_loop, 2, "loop: mail rings the bell");
  breaks(break_the_loop, 3, "loop: a compute under way knows the link to it");
  breaks(break_the_loop, 4, "loop: once closed it has neither mail nor computes");
  breaks(break_the_loop, 5, "loop: while open it has a reference");
}
