/* warm_exec.c: values that are a command's output: of the command after --, or of the text of
 * --exec, which sh(1) runs.
 *
 * {} in the command's arguments is replaced by the key, which is in its variable CORRAL_KEY, too. A
 * text for the shell gets the key as $1; the key never becomes a part of that text. A status other
 * than 0 is a failure, reported by the last line of standard error. */
#include "run.h"
#include "run_child.h"
#include "warm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char placeholder[] = "{}";
static const char key_variable[] = "CORRAL_KEY=";
static const char *const own_variables[] = {"CORRAL_KEY=", "CORRAL_RUNNING=", "CORRAL_OLD_FD="};

enum { OWN_VARIABLES = sizeof own_variables / sizeof own_variables[0], TAIL = 1024 };

/* Arguments and environment of one command; the strings in `made` are to be freed. */
typedef struct launch {
  char **argv;
  char **env;
  char **made;
  size_t made_count;
} launch;

static bool check(warm *w) {
  (void)w;
  return true;
}

static void launch_free(launch *l) {
  for (size_t i = 0; i < l->made_count; i++) free(l->made[i]);
  free(l->made);
  free(l->argv);
  free(l->env);
}

/* Adds an allocated text to `made`, unless it is NULL; returns it. */
static char *keep(launch *l, char *text) {
  if (text != NULL) l->made[l->made_count++] = text;
  return text;
}

/* `word` with each {} replaced by the key; NULL without memory. */
static char *replaced(const char *word, const char *key, size_t key_len) {
  size_t count = 0;
  for (const char *at = word; (at = strstr(at, placeholder)) != NULL; at += 2) count++;
  char *text = malloc(strlen(word) + count * key_len + 1);
  char *to = text;
  for (const char *at = word; text != NULL;) {
    const char *next = strstr(at, placeholder);
    size_t part = next != NULL ? (size_t)(next - at) : strlen(at);
    memcpy(to, at, part);
    to += part;
    if (next == NULL) break;
    memcpy(to, key, key_len);
    to += key_len;
    at = next + 2;
  }
  if (text != NULL) *to = '\0';
  return text;
}

static bool make_argv(launch *l, const warm_options *o, const char *key, size_t key_len) {
  size_t n = 0;
  if (o->shell == NULL) {
    for (char **word = o->command; *word != NULL; word++)
      if ((l->argv[n++] = keep(l, replaced(*word, key, key_len))) == NULL) return false;
    return true;
  }
  const char *const words[] = {"sh", "-c", o->shell, "sh", placeholder};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if ((l->argv[n++] = keep(l, words[i] == placeholder ? replaced(placeholder, key, key_len)
                                                        : strdup(words[i]))) == NULL)
      return false;
  return true;
}

static bool is_own(const char *variable) {
  for (size_t i = 0; i < OWN_VARIABLES; i++)
    if (strncmp(variable, own_variables[i], strlen(own_variables[i])) == 0) return true;
  return false;
}

/* Built by hand, since setenv isn't thread-safe. */
static bool make_env(launch *l, const warm *w, const char *key, size_t key_len) {
  size_t n = 0;
  char running[CLI_NEST_TEXT];
  for (char **variable = environ; *variable != NULL; variable++)
    if (!is_own(*variable)) l->env[n++] = *variable;
  char *name = malloc(sizeof key_variable + key_len);
  if (keep(l, name) == NULL) return false;
  memcpy(name, key_variable, sizeof key_variable - 1);
  memcpy(name + sizeof key_variable - 1, key, key_len);
  name[sizeof key_variable - 1 + key_len] = '\0';
  l->env[n++] = name;
  if (!cli_nest_text(w->cli, key, key_len, running)) return true;
  return (l->env[n++] = keep(l, strdup(running))) != NULL;
}

static bool launch_make(launch *l, const warm *w, const char *key, size_t key_len) {
  size_t words = 5;
  size_t variables = OWN_VARIABLES;
  for (char **word = w->o.command; word != NULL && *word != NULL; word++) words++;
  for (char **variable = environ; *variable != NULL; variable++) variables++;
  *l = (launch){.argv = calloc(words + 1, sizeof *l->argv),
                .env = calloc(variables + 1, sizeof *l->env),
                .made = calloc(words + OWN_VARIABLES, sizeof *l->made)};
  return l->argv != NULL && l->env != NULL && l->made != NULL &&
         make_argv(l, &w->o, key, key_len) && make_env(l, w, key, key_len);
}

static bool stop_wanted(void *arg) {
  return corral_fill_should_stop(((warm_seat *)arg)->fill) != 0;
}

/* The last line of standard error that isn't blank; empty when there is none. */
static void last_line(const run_child *child, char text[TAIL + 1]) {
  char tail[TAIL + 1];
  size_t size = child->size[1] < TAIL ? (size_t)child->size[1] : TAIL;
  ssize_t n =
      child->spool[1] >= 0 ? pread(child->spool[1], tail, size, (off_t)(child->size[1] - size)) : 0;
  size_t end = n > 0 ? (size_t)n : 0;
  while (end > 0 && strchr(" \t\r\n", tail[end - 1]) != NULL && tail[end - 1] != '\0') end--;
  size_t begin = end;
  while (begin > 0 && tail[begin - 1] != '\n') begin--;
  for (size_t i = begin; i < end; i++)
    if ((unsigned char)tail[i] < ' ') tail[i] = ' ';
  memcpy(text, tail + begin, end - begin);
  text[end - begin] = '\0';
}

static void settle(warm_seat *seat, corral_fill *fill, const run_child *child, const char *name) {
  char text[TAIL + 1];
  if (child->how == RUN_EXITED && child->number == 0) {
    bool ok = true;
    if (seat->w->o.as_run) {
      ok = run_fill_result(fill, child);
    } else {
      size_t size = (size_t)child->size[0];
      void *room = size == child->size[0] ? corral_fill_reserve(fill, size) : NULL;
      ok = room != NULL && run_read_spool(child->spool[0], room, size);
    }
    if (!ok)
      warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED,
                "its output is too large to store, or can't be read");
    return;
  }
  last_line(child, text);
  char why[96];
  int exit_status = run_failure_text(child, name, seat->w->o.limit_ms, why, sizeof why);
  if (child->how == RUN_EXITED && text[0] != '\0')
    warm_fail(seat, fill, RUN_FAIL_CODE + exit_status, "exit status %d: %s", exit_status, text);
  else
    warm_fail(seat, fill, RUN_FAIL_CODE + exit_status, "%s", why);
}

static void compute(warm_seat *seat, corral_fill *fill, const void *key, size_t key_len) {
  warm *w = seat->w;
  launch l = {0};
  run_child child = {.spool = {-1, -1}};
  if (memchr(key, '\0', key_len) != NULL) {
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED,
              "a key with a NUL byte can't be given to a command");
    return;
  }
  if (launch_make(&l, w, key, key_len)) {
    run_child_do(&child, &(run_child_job){.argv = l.argv,
                                          .env = l.env,
                                          .lent = -1,
                                          .limit_ms = w->o.limit_ms,
                                          .should_stop = stop_wanted,
                                          .arg = seat,
                                          .mask = &w->mask});
    settle(seat, fill, &child, l.argv[0]);
    run_child_close(&child);
  } else {
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "out of memory");
  }
  launch_free(&l);
}

const warm_source warm_exec = {check, compute, NULL};
