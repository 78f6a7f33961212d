/* test_control_wait.c: how long calls wait for a look for an operator's order, on a store that
 * doesn't answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <corral.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/env.h"

/* LOOK_MS: a look may take so long. PATIENT_MS: a call that ends by its own deadline never takes
 * so long. */
enum { LOOK_MS = 60000, PATIENT_MS = 20000, WAIT_MS = 100, HOUR_MS = 3600000 };

/* ---- a store that accepts connections, and says nothing -------------------------------------- */

typedef struct silence {
  int fd;
  char uri[64];
} silence;

static silence begin_silence(void) {
  silence it = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  assert_int_equal(bind(it.fd, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(it.fd, 64), 0);
  assert_int_equal(getsockname(it.fd, (struct sockaddr *)&address, &size), 0);
  snprintf(it.uri, sizeof it.uri, "redis://127.0.0.1:%d/", ntohs(address.sin_port));
  return it;
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct caller {
  pthread_t thread;
  corral *c;
  corral_cancel_token *token;
  int64_t wait_ms;
  int status;
  atomic_int ended;
} caller;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, key_len);
}

static void *call(void *arg) {
  caller *a = arg;
  corral_value *value = NULL;
  a->status = corral_get_or_compute(
      a->c, "a", 1,
      CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = a->wait_ms), .cancel_token = a->token),
      compute, NULL, &value);
  corral_value_unref(value);
  atomic_store(&a->ended, 1);
  return NULL;
}

static void begin(caller *a, corral *c, int64_t wait_ms, corral_cancel_token *token) {
  a->c = c;
  a->wait_ms = wait_ms;
  a->token = token;
  assert_int_equal(pthread_create(&a->thread, NULL, call, a), 0);
}

static int ends(caller *a) {
  for (int i = 0; !atomic_load(&a->ended) && i < PATIENT_MS; i++) crl_env_pause_us(1000);
  return atomic_load(&a->ended);
}

static corral *opened(const char *uri, void (*hook)(const corral_event_info *, void *), void *arg) {
  corral *c = NULL;
  corral_error error;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .control = 1, .op_ms = LOOK_MS, .on_event = hook,
                                 .event_arg = arg, .breaker_failures = 1),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static void a_call_that_looks_first_ends_by_its_own_deadline(void **state) {
  (void)state;
  caller callers[3] = {{.status = 1}};
  silence store = begin_silence();
  corral *c = opened(store.uri, NULL, NULL);
  for (int i = 0; i < 3; i++) begin(&callers[i], c, WAIT_MS, NULL);
  int ended = 0;
  for (int i = 0; i < 3; i++) ended += ends(&callers[i]);
  close(store.fd); /* a look that is under way ends */
  for (int i = 0; i < 3; i++) pthread_join(callers[i].thread, NULL);
  corral_close(c);
  assert_int_equal(ended, 3);
  for (int i = 0; i < 3; i++) assert_int_equal(callers[i].status, CORRAL_EDEADLINE);
}

static void those_who_wait_for_another_s_look_end_by_their_own_deadline_or_cancelled(void **state) {
  (void)state;
  caller first = {.status = 1}, hurried = {.status = 1}, cancelled = {.status = 1};
  corral_cancel_token *token = corral_cancel_token_new();
  silence store = begin_silence();
  corral *c = opened(store.uri, NULL, NULL);
  begin(&first, c, HOUR_MS, NULL);
  crl_env_pause_us(WAIT_MS * 1000); /* it looks, as a rule */
  begin(&hurried, c, WAIT_MS, NULL);
  begin(&cancelled, c, HOUR_MS, token);
  corral_cancel_token_cancel(token);
  int ended = ends(&hurried) + ends(&cancelled);
  close(store.fd);
  pthread_join(hurried.thread, NULL);
  pthread_join(cancelled.thread, NULL);
  pthread_join(first.thread, NULL);
  corral_close(c);
  corral_cancel_token_free(token);
  assert_int_equal(ended, 2);
  assert_int_equal(hurried.status, CORRAL_EDEADLINE);
  assert_int_equal(cancelled.status, CORRAL_ECANCELLED);
}

/* ---- the hook -------------------------------------------------------------------------------- */

typedef struct hooked {
  corral *c;
  caller other;
  int told, ended;
} hooked;

/* Told within the first look. */
static void on_event(const corral_event_info *info, void *arg) {
  hooked *h = arg;
  if (info->event != CORRAL_EVENT_STORE_DOWN || h->told++ > 0) return;
  begin(&h->other, h->c, WAIT_MS, NULL);
  h->ended = ends(&h->other);
}

static void a_hook_that_is_called_within_a_look_may_wait_for_another_call(void **state) {
  (void)state;
  hooked h = {.told = 0};
  caller first = {.status = 1};
  silence store = begin_silence();
  close(store.fd); /* refused from now on */
  h.c = opened(store.uri, on_event, &h);
  begin(&first, h.c, HOUR_MS, NULL);
  pthread_join(first.thread, NULL);
  assert_int_equal(h.told, 1);
  pthread_join(h.other.thread, NULL);
  corral_close(h.c);
  assert_int_equal(h.ended, 1);
  assert_int_equal(first.status, CORRAL_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_call_that_looks_first_ends_by_its_own_deadline),
      cmocka_unit_test(those_who_wait_for_another_s_look_end_by_their_own_deadline_or_cancelled),
      cmocka_unit_test(a_hook_that_is_called_within_a_look_may_wait_for_another_call),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
