/* service.c: a service of many threads that ask one cache for one key, until the process is killed.
 * Its origin is a file of two words: the milliseconds that a compute takes, and the value.
 *
 * service STORE NAMESPACE KEY FILE THREADS [OPTION=TEXT ...] */
#include <corral.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ARGUMENTS = 6, PAUSE_MS = 50, VALUE_ROOM = 64 };

typedef struct service {
  corral *c;
  const char *key, *file;
} service;

static void pause_ms(long ms) {
  struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&t, NULL);
}

static int ask_origin(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  const service *s = arg;
  char line[32 + VALUE_ROOM], *value;
  FILE *file = fopen(s->file, "re");
  (void)key, (void)key_len;
  if (file == NULL) return CORRAL_EFAILED;
  const char *has = fgets(line, sizeof line, file);
  (void)fclose(file);
  if (has == NULL) return CORRAL_EFAILED;
  long ms = strtol(line, &value, 10);
  pause_ms(ms);
  value += strspn(value, " ");
  return corral_fill_bytes(fill, value, strcspn(value, "\n"));
}

/* A call that fails is one that counts. */
static void *ask(void *arg) {
  const service *s = arg;
  for (;;) {
    corral_value *value = NULL;
    if (corral_get(s->c, s->key, strlen(s->key), NULL, &value) == CORRAL_OK)
      corral_value_unref(value);
    pause_ms(PAUSE_MS);
  }
  return NULL;
}

static int fail(const char *text) {
  (void)fprintf(stderr, "service: %s\n", text);
  return 1;
}

/* False: the option is none. */
static int take_option(corral_policy *policy, char *word, corral_error *error) {
  char *equals = strchr(word, '=');
  if (equals == NULL) return 0;
  *equals = '\0';
  return corral_policy_set(policy, word, equals + 1, error) == CORRAL_OK;
}

int main(int argc, char **argv) {
  static service s;
  static corral_policy policy = {.size = sizeof policy};
  corral_error error = {.text = "service STORE NAMESPACE KEY FILE THREADS [OPTION=TEXT ...]"};
  pthread_t thread;
  if (argc < ARGUMENTS) return fail(error.text);
  for (int i = ARGUMENTS; i < argc; i++)
    if (!take_option(&policy, argv[i], &error)) return fail(error.text);
  s = (service){.key = argv[3], .file = argv[4]};
  if (corral_open(CORRAL_OPTIONS(.store = argv[1], .name_space = argv[2], .compute = ask_origin,
                                 .compute_arg = &s, .policy = &policy, .control = 1),
                  &s.c, &error) != CORRAL_OK)
    return fail(error.text);
  for (long i = strtol(argv[5], NULL, 10); i > 1; i--)
    if (pthread_create(&thread, NULL, ask, &s) != 0) return fail("no thread");
  ask(&s);
  return 0;
}
