/* run.h: shared by the files of `corral run`: its options. */
#ifndef CORRAL_CLI_RUN_H
#define CORRAL_CLI_RUN_H

#include "cli.h"
#include "run_child.h"

enum {
  RUN_KEY_ROOM = CORRAL_KEY_MAX, /* the library's limits */
  RUN_TAGS = CLI_TAGS
};

enum {
  /* ms by which compute_ms exceeds --compute, so that the command is dead before its successor
   * starts */
  RUN_LIMIT_SLACK = 2000,
  /* code of a failure that has an exit status, which is added to it */
  RUN_FAIL_CODE = 0x100
};

typedef struct run_key {
  size_t size; /* may exceed RUN_KEY_ROOM: then the rest was dropped */
  char bytes[RUN_KEY_ROOM];
} run_key;

/* The options, the command, and the key that they make. 0 or NULL: not given, except for options
 * with a default. */
typedef struct run_options {
  char **command;
  run_key key;
  bool named;          /* by --key */
  const char *context; /* the last option that added to the default key */
  bool force;
  corral_policy policy;
  corral_options options;
  int64_t limit_ms; /* --compute */
  int64_t failures_ms;
  const char *tags[RUN_TAGS];
  size_t tag_count;
  int64_t version;
  int64_t pass_exit;
  int64_t unmodified_exit;
} run_options;

/* run_options.c: parses the command line. -1: go on; else the exit status. */
int run_options_parse(run_options *o, int argc, char **argv);

/* run.c: fills with the value that `corral run` stores of a run that has exited; false when it is
 * too large, or can't be read. */
bool run_fill_result(corral_fill *fill, const run_child *child);
/* Reads `size` bytes from the start of a spool. */
bool run_read_spool(int fd, void *ret, uint64_t size);
/* Writes why a run left no value, for messages, and for other callers, who get the first 63 bytes.
 * Returns the exit status for that. */
int run_failure_text(const run_child *child, const char *command, int64_t limit_ms, char *text,
                     size_t size);

#endif
