/* cancel.c: broken invariants of a cancel token. */
#include "os/cancel.h"
#include "checks/checks.h"

static void wake_nobody(void *arg) { (void)arg; }

static void break_the_cancel_token(int which) {
  static crl_canceller cancellers[2];
  corral_cancel_token *token = corral_cancel_token_new();
  for (int i = 0; i < 2; i++) crl_cancel_join(token, &cancellers[i], wake_nobody, NULL);
  if (which == 0)
    cancellers[0].link = &cancellers[0].next;
  else
    cancellers[0].wake = NULL;
  corral_cancel_token_cancel(token);
}

void of_the_cancel_token(void **state) {
  (void)state;
  breaks(break_the_cancel_token, 0, "cancel token: a call knows the link to it");
  breaks(break_the_cancel_token, 1, "cancel token: a call can be woken");
}
