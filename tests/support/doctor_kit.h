/* doctor_kit.h: runs `corral doctor` and looks at what it says. The includer has cmocka.h before
 * this file.
 *
 *   assert_int_equal(doctor("%s", uri), 0);
 *   tells("role", "primary");
 *   warns("maxmemory 0. Set maxmemory"); */
#ifndef TESTS_DOCTOR_KIT_H
#define TESTS_DOCTOR_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { DOCTOR_COMMAND = 4096, DOCTOR_LOOKS = 1500 };

static char out[1 << 17];

/* Runs `corral ARGUMENTS`. Its stdout and stderr go to `out`. Returns the exit status. */
__attribute__((format(printf, 1, 2))) static int corral_run(const char *format, ...) {
  char command[DOCTOR_COMMAND] = "exec 2>&1; \"$CORRAL_COMMAND\" --op 10s ";
  size_t used = strlen(command);
  va_list args;
  va_start(args, format);
  (void)vsnprintf(command + used, sizeof command - used, format, args);
  va_end(args);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  out[fread(out, 1, sizeof out - 1, f)] = '\0';
  int status = pclose(f);
  if (!WIFEXITED(status)) fail_msg("%s: status %d", command, status);
  return WEXITSTATUS(status);
}

#define doctor(format, ...) corral_run("doctor '" format "'", __VA_ARGS__)

static inline void has(const char *text) {
  if (strstr(out, text) == NULL) fail_msg("not '%s' in: %s", text, out);
}

static inline void lacks(const char *text) {
  if (strstr(out, text) != NULL) fail_msg("'%s' in: %s", text, out);
}

/* A fact has this value, on a server. */
static inline void tells(const char *name, const char *value) {
  char line[512];
  (void)snprintf(line, sizeof line, "  %-22s %s\n", name, value);
  has(line);
}

static inline int count_of(const char *text) {
  int count = 0;
  for (const char *at = out; (at = strstr(at, text)) != NULL; at += strlen(text)) count++;
  return count;
}

/* Runs `corral doctor` until the exit status and this text are there. */
static inline void await_doctor(const char *uri, int status, const char *text) {
  for (int i = 0; i < DOCTOR_LOOKS; i++)
    if (doctor("%s", uri) == status && strstr(out, text) != NULL) return;
  fail_msg("never status %d and '%s': %s", status, text, out);
}

#endif
