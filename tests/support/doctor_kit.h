/* doctor_kit.h: runs `corral doctor` and looks at what it says. The includer has cmocka.h before
 * this file.
 *
 *   assert_int_equal(doctor("%s", uri), 0);
 *   tells("role", "primary");
 *   warns("maxmemory 0. Set maxmemory"); */
#ifndef TESTS_DOCTOR_KIT_H
#define TESTS_DOCTOR_KIT_H

#include "shell_kit.h"

enum { DOCTOR_LOOKS = 1500 };

#define corral_run(...) shell("\"$CORRAL_COMMAND\" --op 10s ", __VA_ARGS__)
#define doctor(format, ...) corral_run("doctor '" format "'", __VA_ARGS__)

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
