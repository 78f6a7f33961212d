/* count.c: hits to be counted from outside, by callgrind (instructions) or strace (system calls):
 * the difference of two runs, by the difference of their hits. And how deep the stack of a hit is.
 *
 *   bench_count STORE HITS [NEAR_BYTES]      values of 100 bytes, one thread
 *   bench_count STORE HITS NEAR_BYTES loop   by an event loop, each begun by the last one's `done`
 *   bench_count STORE PAIRS lock             a lock taken and released
 *   bench_count STORE stack                  bytes of stack below the caller of
 *                                            corral_get_or_compute
 */
#include <corral/lock.h>
#include <corral/loop.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "kit.h"

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  char text[100];
  (void)key;
  (void)key_len;
  (void)arg;
  memset(text, 'x', sizeof text);
  return corral_fill_bytes(fill, text, sizeof text);
}

/* A part of its caller's frame. */
static inline __attribute__((always_inline)) void hit(corral *c) {
  corral_value *value;
  const corral_policy *policy = CORRAL_POLICY(.ttl_ms = 3600000, .near_ms = 3600000);
  if (corral_get_or_compute(c, "key:1234", 8, CORRAL_CALL(.policy = policy), compute, NULL,
                            &value) != CORRAL_OK)
    die("a call failed");
  corral_value_unref(value);
}

/* ---- hits of an event loop ----------------------------------------------------------------- */

typedef struct chain {
  corral_loop *loop;
  long left;
} chain;

static void begin(chain *ch);

static void on_hit(void *arg, int status, corral_value *value, const corral_error *error) {
  chain *ch = arg;
  if (status != CORRAL_OK) die(error->text);
  corral_value_unref(value);
  if (--ch->left > 0) begin(ch);
}

static void begin(chain *ch) {
  const corral_policy *policy = CORRAL_POLICY(.ttl_ms = 3600000, .near_ms = 3600000);
  if (corral_loop_get(ch->loop, "key:1234", 8, CORRAL_CALL(.policy = policy),
                      CORRAL_ASYNC(.done = on_hit, .arg = ch), NULL) != CORRAL_OK)
    die("a call was refused");
}

static void hit_in_loop(corral *c, long hits) {
  chain ch = {.left = hits};
  if (corral_loop_open(c, &ch.loop, NULL) != CORRAL_OK) die("no loop");
  begin(&ch);
  while (ch.left > 0) {
    struct pollfd fd = {.fd = corral_loop_fd(ch.loop), .events = POLLIN};
    if (poll(&fd, 1, 10000) <= 0) die("a call hangs");
    corral_loop_dispatch(ch.loop);
  }
  corral_loop_close(ch.loop);
}

/* ---- locks --------------------------------------------------------------------------------- */

static void take_and_release(corral *c, long pairs) {
  corral_error error;
  for (long i = 0; i < pairs; i++) {
    corral_lock *lock;
    if (corral_lock_take(c, "lock:1234", 9, NULL, &lock, &error) != CORRAL_OK) die(error.text);
    if (corral_lock_release(lock, &error) != CORRAL_OK) die(error.text);
  }
}

/* ---- the stack of a hit -------------------------------------------------------------------- */

enum { STACK = 1 << 18, PAINT = 0xa5, NEAR = 4096 };

typedef struct painted {
  corral *c;
  unsigned char *stack; /* its lowest byte */
  long depth;
} painted;

/* The caller's frame, and what it keeps, is above `from`; a page of it is left alone. */
static __attribute__((noinline)) void paint(unsigned char *stack, const unsigned char *from) {
  memset(stack, PAINT, (size_t)(from - stack));
}

static __attribute__((noinline)) void measure(painted *p) {
  const unsigned char *end = __builtin_alloca(1), *at = p->stack; /* end of this frame */
  hit(p->c);
  while (*at == PAINT) at++;
  p->depth = (long)(end - at);
}

/* Calls `measure` a page further down, below all that was painted on. */
static __attribute__((noinline)) void go_down(painted *p) {
  volatile char room[NEAR];
  room[0] = room[NEAR - 1] = 0;
  paint(p->stack, (const unsigned char *)room - 256);
  measure(p);
  room[0] = 1;
}

static void *on_stack(void *arg) {
  painted *p = arg;
  for (int i = 0; i < 3; i++) hit(p->c);
  go_down(p);
  return NULL;
}

static long stack_of_hit(corral *c) {
  pthread_t thread;
  pthread_attr_t attr;
  painted p = {.c = c};
  p.stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p.stack == MAP_FAILED) die("no stack");
  pthread_attr_init(&attr);
  pthread_attr_setstack(&attr, p.stack, STACK);
  if (pthread_create(&thread, &attr, on_stack, &p) != 0) die("no thread");
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attr);
  munmap(p.stack, STACK);
  return p.depth;
}

int main(int argc, char **argv) {
  corral *c;
  corral_error error;
  if (argc < 3) die("usage: bench_count STORE HITS [NEAR_BYTES [loop] | lock]");
  int64_t near = argc > 3 ? strtoll(argv[3], NULL, 10) : 0;
  if (corral_open(CORRAL_OPTIONS(.store = argv[1], .near_bytes = near), &c, &error) != CORRAL_OK)
    die(error.text);
  hit(c);
  long hits = strtol(argv[2], NULL, 10);
  if (argc == 4 && strcmp(argv[3], "lock") == 0)
    take_and_release(c, hits);
  else if (argc > 4)
    hit_in_loop(c, hits);
  else
    for (long i = 0; i < hits; i++) hit(c);
  if (strcmp(argv[2], "stack") == 0) printf("%ld\n", stack_of_hit(c));
  corral_close(c);
  return 0;
}
