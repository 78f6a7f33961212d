/* permits.c: many jobs, of which so many at a time run in the whole fleet: each takes one of three
 * permits. Start it several times, on any hosts that use one store.
 *
 *   permits [STORE]      permits redis://127.0.0.1
 *
 * cc -std=c11 permits.c $(pkg-config --cflags --libs corral) -pthread -o permits */
#define _POSIX_C_SOURCE 200809L
#include <corral/lock.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { JOBS = 12, PERMITS = 3 };

static corral *c;
static atomic_int running, most, failed;

static void work(void) {
  int now = atomic_fetch_add(&running, 1) + 1, seen = atomic_load(&most);
  while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now)) continue;
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  atomic_fetch_sub(&running, 1);
}

static void *job(void *unused) {
  corral_lock *permit;
  corral_error error = {0};
  int status = corral_lock_take(c, "reports", 7,
                                CORRAL_LOCK(.permits = PERMITS, .keep = 1, .wait_ms = 60000),
                                &permit, &error);
  if (status == CORRAL_OK) {
    work();
    status = corral_lock_release(permit, &error);
  }
  if (status != CORRAL_OK && atomic_fetch_add(&failed, 1) == 0)
    fprintf(stderr, "permits: %s\n", error.text);
  return unused;
}

int main(int argc, char **argv) {
  pthread_t threads[JOBS];
  corral_error error = {0};
  int started = 0;
  if (corral_open(CORRAL_OPTIONS(.store = argc > 1 ? argv[1] : "memory:"), &c, &error) !=
      CORRAL_OK) {
    fprintf(stderr, "permits: %s\n", error.text);
    return 1;
  }
  while (started < JOBS && pthread_create(&threads[started], NULL, job, NULL) == 0) started++;
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  corral_close(c);
  printf("%d jobs, at most %d of them at a time, %d failed\n", started, most, failed);
  return started == JOBS && most <= PERMITS && failed == 0 ? 0 : 1;
}
