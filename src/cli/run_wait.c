/* run_wait.c: the contract is in run_wait.h. */
#include "run_wait.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOOK_MS = 100, SHORT_MS = 1000, ASK_MS = 1000 };

/* False while nobody is seen to build it. */
static bool say(const run_wait *w) {
  char holder[CLI_KEY_TEXT];
  char held[CLI_DURATION_TEXT];
  corral_inspection i = {.size = sizeof i};
  corral_call *call = CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = ASK_MS));
  int status = corral_inspect(w->corral, w->key->bytes, w->key->size, call, &i);
  if (status != CORRAL_OK || i.lease_left_ms <= 0 || i.holder[0] == '\0') return false;
  cli_note("%s: waiting for %s, which began %s ago", w->name,
           cli_key_text(holder, i.holder, strlen(i.holder)),
           i.lease_held_ms >= 0 ? cli_duration_text(held, i.lease_held_ms) : "some time");
  return true;
}

static void *look(void *arg) {
  const run_wait *w = arg;
  struct pollfd quit = {w->quit, POLLIN, 0};
  int64_t since = 0;
  while (poll(&quit, 1, LOOK_MS) <= 0) {
    int64_t now = cli_now_ms();
    if (corral_counter(w->corral, CORRAL_EVENT_WAIT) == 0 &&
        corral_counter(w->corral, CORRAL_EVENT_HOST_WAIT) == 0)
      continue;
    if (since == 0) since = now;
    if ((w->at_once || now - since >= SHORT_MS) && say(w)) break;
  }
  return NULL;
}

void run_wait_begin(run_wait *w) {
  w->quit = eventfd(0, EFD_CLOEXEC);
  w->is_begun = w->quit >= 0 && pthread_create(&w->thread, NULL, look, w) == 0;
  if (!w->is_begun && w->quit >= 0) (void)close(w->quit);
}

void run_wait_end(run_wait *w) {
  if (!w->is_begun) return;
  (void)eventfd_write(w->quit, 1);
  (void)pthread_join(w->thread, NULL);
  (void)close(w->quit);
  w->is_begun = false;
}
