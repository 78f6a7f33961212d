/* warm_kit.h: for tests of `corral warm` with a database server of the test's own. The includer has
 * cmocka.h before this file. */
#ifndef TESTS_WARM_KIT_H
#define TESTS_WARM_KIT_H

#include <corral.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "room.h"

enum { WARM_COMMAND = 4096, WARM_PATIENCE = 1500, WARM_LOOK_MS = 20 };

static char warm_folder[ROOM_PATH];
static char out[8192];

/* Asks the server: the first column of the first row. Set by the test. */
static const char *(*warm_ask)(const char *sql);

/* Runs `corral` by a printf-formatted command line. Its stdout and stderr go to `out`. Returns the
 * exit status. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...) {
  char command[WARM_COMMAND] = "";
  va_list args;
  va_start(args, format);
  int n = snprintf(command, sizeof command, "exec 2>&1; ");
  (void)vsnprintf(command + n, sizeof command - (size_t)n, format, args);
  va_end(args);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  out[fread(out, 1, sizeof out - 1, f)] = '\0';
  int status = pclose(f);
  if (!WIFEXITED(status)) fail_msg("%s: status %d", command, status);
  return WEXITSTATUS(status);
}

static void says(const char *text) {
  if (strstr(out, text) == NULL) fail_msg("not '%s' in: %s", text, out);
}

static void is_stored(const char *key, const char *value) {
  assert_int_equal(run("$CORRAL_COMMAND get '%s'", key), 0);
  assert_string_equal(out, value);
}

/* Waits until the value is in the store. */
static void await_stored(const char *key) {
  for (int i = 0; i < WARM_PATIENCE && run("$CORRAL_COMMAND get '%s'", key) != 0; i++) continue;
}

/* Runs a warmer by this command line, whose server is killed when it has stored the first of two
 * keys: the second fails, and the warmer ends. */
static void loses_its_server(const char *command, void (*kill_server)(void)) {
  FILE *f = popen(command, "w");
  assert_non_null(f);
  (void)fputs("last\n", f);
  (void)fflush(f);
  await_stored("last");
  kill_server();
  (void)fputs("gone\n", f);
  int status = pclose(f);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 1);
  assert_int_equal(run("cat $OUT"), 0);
  says("gone: failed: ");
}

/* Repeats the query until the result is `wanted`. */
static void await(const char *sql, const char *wanted) {
  const char *got = "";
  for (int i = 0; i < WARM_PATIENCE; i++) {
    got = warm_ask(sql);
    if (strcmp(got, wanted) == 0) return;
    (void)nanosleep(&(struct timespec){.tv_nsec = WARM_LOOK_MS * 1000000}, NULL);
  }
  fail_msg("%s: '%s', not '%s'", sql, got, wanted);
}

/* A store in a folder of the test's own; $OUT is a path there, $DB the conninfo. */
static void warm_begin(const char *conninfo) {
  char text[ROOM_PATH + 16];
  room_folder(warm_folder, "warm");
  (void)snprintf(text, sizeof text, "lmdb:%s/store", warm_folder);
  (void)setenv("CORRAL_STORE", text, 1);
  (void)snprintf(text, sizeof text, "%s/out", warm_folder);
  (void)setenv("OUT", text, 1);
  (void)setenv("DB", conninfo, 1);
}

static int warm_end(void **state) {
  (void)state;
  return run("rm -rf %s", warm_folder);
}

#endif
