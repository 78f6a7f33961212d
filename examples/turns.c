/* turns.c: a lock in an event loop. A thousand requests each change one counter, under one lock,
 * and no thread waits for it: each is given the lock in its turn, and gives it back.
 *
 *   turns [STORE]        turns redis://127.0.0.1
 *
 * cc -std=c11 turns.c $(pkg-config --cflags --libs corral) -o turns */
#include <corral/loop.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { REQUESTS = 1000 };

typedef struct request {
  int number;
  corral_lock *lock; /* once it is ours */
} request;

static corral_loop *loop;
static request requests[REQUESTS];
static int counter, in_order, ended, failed;

static void on_released(void *arg, int status, corral_value *none, const corral_error *error) {
  (void)arg, (void)none;
  if (status != CORRAL_OK && failed++ == 0) fprintf(stderr, "release: %s\n", error->text);
  ended++;
}

static void on_locked(void *arg, int status, corral_value *none, const corral_error *error) {
  request *r = arg;
  (void)none;
  if (status != CORRAL_OK) {
    if (failed++ == 0) fprintf(stderr, "request %d: %s\n", r->number, error->text);
    ended++;
    return;
  }
  in_order += r->number == counter;
  counter++;
  if (corral_lock_release_async(loop, r->lock, CORRAL_ASYNC(.done = on_released, .arg = r), NULL,
                                NULL) != CORRAL_OK)
    abort();
}

/* Begins all requests, and dispatches until they have ended. */
static int serve(corral_error *error) {
  int status = CORRAL_OK;
  for (int i = 0; i < REQUESTS && status == CORRAL_OK; i++) {
    requests[i].number = i;
    status = corral_lock_take_async(loop, "counter", 7, CORRAL_LOCK(.wait_ms = 600000),
                                    CORRAL_ASYNC(.done = on_locked, .arg = &requests[i]),
                                    &requests[i].lock, NULL, error);
  }
  struct pollfd fd = {.fd = corral_loop_fd(loop), .events = POLLIN};
  while (status == CORRAL_OK && ended < REQUESTS) {
    poll(&fd, 1, -1);
    corral_loop_dispatch(loop);
  }
  return status;
}

int main(int argc, char **argv) {
  corral *c = NULL;
  corral_error error = {0};
  int status = corral_open(CORRAL_OPTIONS(.store = argc > 1 ? argv[1] : "memory:"), &c, &error);
  if (status == CORRAL_OK) status = corral_loop_open(c, &loop, &error);
  if (status == CORRAL_OK) status = serve(&error);
  if (status != CORRAL_OK) fprintf(stderr, "turns: %s\n", error.text);
  if (status == CORRAL_OK)
    printf("%d requests changed the counter, %d of them in order, %d failed\n", counter, in_order,
           failed);
  if (loop != NULL) corral_loop_close(loop);
  if (c != NULL) corral_close(c);
  return status == CORRAL_OK && failed == 0 ? 0 : 1;
}
