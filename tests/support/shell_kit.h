/* shell_kit.h: runs a command of the shell, and has what it prints. The includer has cmocka.h
 * before this file.
 *
 *   assert_int_equal(shell("", "corral get '%s'", key), 0);
 *   has("value"); */
#ifndef TESTS_SHELL_KIT_H
#define TESTS_SHELL_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { SHELL_COMMAND = 4096 };

static char out[1 << 17];

/* Runs what stands before, and the formatted rest. Its stdout and stderr go to `out`. Returns the
 * exit status. */
__attribute__((format(printf, 2, 3))) static inline int shell(const char *before,
                                                              const char *format, ...) {
  char command[SHELL_COMMAND];
  int used = snprintf(command, sizeof command, "exec 2>&1; %s", before);
  va_list args;
  va_start(args, format);
  (void)vsnprintf(command + used, sizeof command - (size_t)used, format, args);
  va_end(args);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  out[fread(out, 1, sizeof out - 1, f)] = '\0';
  int status = pclose(f);
  if (!WIFEXITED(status)) fail_msg("%s: status %d", command, status);
  return WEXITSTATUS(status);
}

static inline void has(const char *text) {
  if (strstr(out, text) == NULL) fail_msg("not '%s' in: %s", text, out);
}

#endif
