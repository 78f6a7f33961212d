/* warm_kit.h: for tests of `corral warm` with a database server of the test's own. The includer has
 * cmocka.h before this file. */
#ifndef TESTS_WARM_KIT_H
#define TESTS_WARM_KIT_H

#include <corral.h>
#include <time.h>
#include <unistd.h>

#include "room.h"
#include "shell_kit.h"

enum { WARM_PATIENCE = 1500, WARM_LOOK_MS = 20 };

static char warm_folder[ROOM_PATH];

/* Asks the server: the first column of the first row. Set by the test. */
static const char *(*warm_ask)(const char *sql);

#define run(...) shell("", __VA_ARGS__)

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
  has("gone: failed: ");
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
