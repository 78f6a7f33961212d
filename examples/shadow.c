/* shadow.c: what would corral save? A program keeps the cache that it has, and corral watches: for
 * each compute it tells whether the compute would have been made with it. It serves nothing, keeps
 * one byte a key, and every compute is made as ever.
 *
 * cc -std=c11 shadow.c $(pkg-config --cflags --libs corral) -pthread -o shadow && ./shadow */
#define _POSIX_C_SOURCE 200809L
#include <corral.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- the shadow: take this part with you ---------------------------------------------------- */

typedef struct shadow {
  corral *c;
  int64_t wait_ms;       /* most that a caller is held up: more than the store takes to answer */
  atomic_ulong computes; /* all that were asked for, and made */
  atomic_ulong saved;    /* of these, those that corral would have answered */
  atomic_ulong errors;   /* and those that it would have answered with an error */
} shadow;

/* The program's own way to compute a key; 0: it worked. */
typedef int their_compute(const char *key, void *arg);

typedef struct asked {
  const char *key;
  their_compute *compute;
  void *arg;
  int ran, status;
} asked;

static int compute_and_note(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  asked *a = arg;
  (void)key, (void)key_len;
  a->ran = 1;
  a->status = a->compute(a->key, a->arg);
  return a->status == 0 ? corral_fill_bytes(fill, "", 1) : -1;
}

/* Stands around the compute that the program makes when its own cache has nothing; returns what
 * that does. Call it with the life that the program's values have. A caller who would have waited
 * for another one's compute waits for `wait_ms` at the most, and then computes as ever. */
static int shadow_compute(shadow *s, const char *key, int64_t ttl_ms, their_compute *compute,
                          void *arg) {
  asked a = {.key = key, .compute = compute, .arg = arg};
  corral_value *value = NULL;
  int status = corral_get_or_compute(
      s->c, key, strlen(key),
      CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = ttl_ms, .wait_ms = s->wait_ms)),
      compute_and_note, &a, &value);
  corral_value_unref(value);
  atomic_fetch_add(&s->computes, 1);
  if (a.ran) return a.status;
  /* the deadline: another caller computes, and would have answered this one, too */
  int is_saved = status == CORRAL_OK || status == CORRAL_EDEADLINE;
  atomic_fetch_add(is_saved ? &s->saved : &s->errors, 1);
  return compute(key, arg);
}

/* ---- a program with a cache of its own ------------------------------------------------------- */

enum { THREADS = 8, KEYS = 5 };

typedef struct program {
  shadow shadow;
  atomic_int cached[KEYS];
  pthread_barrier_t gate;
} program;

/* The query of 50 ms; `arg` is the place of its answer. */
static int query(const char *key, void *arg) {
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  atomic_store((atomic_int *)arg, (int)strlen(key));
  return 0;
}

static void *serve(void *arg) {
  program *p = arg;
  char key[24];
  for (int i = 0; i < KEYS; i++) {
    snprintf(key, sizeof key, "page %d", i);
    pthread_barrier_wait(&p->gate);
    if (atomic_load(&p->cached[i]) == 0)
      (void)shadow_compute(&p->shadow, key, 60000, query, &p->cached[i]);
  }
  return NULL;
}

int main(int argc, char **argv) {
  static program p;
  pthread_t threads[THREADS];
  corral_error error = {0};
  p.shadow.wait_ms = 5;
  if (corral_open(CORRAL_OPTIONS(.store = argc > 1 ? argv[1] : "memory:", .name_space = "shadow"),
                  &p.shadow.c, &error) != CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  pthread_barrier_init(&p.gate, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, serve, &p) != 0) return 1;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  unsigned long today = atomic_load(&p.shadow.computes), saved = atomic_load(&p.shadow.saved);
  printf("%d requests for %d pages: %lu queries today, %lu with corral, %lu errors\n",
         THREADS * KEYS, KEYS, today, today - saved, atomic_load(&p.shadow.errors));
  pthread_barrier_destroy(&p.gate);
  corral_close(p.shadow.c);
  return today - saved <= KEYS && today >= KEYS ? 0 : 1;
}
