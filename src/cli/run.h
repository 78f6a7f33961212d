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
  size_t size;         /* may exceed RUN_KEY_ROOM: then the rest was dropped */
  bool named;          /* by --key */
  const char *context; /* the last option that added to the default key; NULL: none */
  char bytes[RUN_KEY_ROOM];
} run_key;

enum { RUN_OPT_KEY = 1024, RUN_OPT_ENV, RUN_OPT_CWD, RUN_OPT_MODTIME, RUN_KEY_TEXT = 192 };
/* The options that make the key of a result. */
#define RUN_KEY_OPTIONS                                                                            \
  {"key", required_argument, NULL, RUN_OPT_KEY}, {"env", required_argument, NULL, RUN_OPT_ENV},    \
      {"cwd", no_argument, NULL, RUN_OPT_CWD}, {                                                   \
    "modtime", required_argument, NULL, RUN_OPT_MODTIME                                            \
  }

/* run_key.c: takes one of these options. Their items stand before the command's words, in the order
 * given. */
bool run_key_option(run_key *key, const char *subcommand, int option, const char *text);
/* Adds the command's words, and checks the whole. */
bool run_key_finish(run_key *key, const char *subcommand, char **command);
/* The key for messages: its name, or the command's words. Returns `text`. */
const char *run_key_text(const run_key *key, char **command, char text[RUN_KEY_TEXT]);

/* The options, the command, and the key that they make. 0 or NULL: not given, except for options
 * with a default. */
typedef struct run_options {
  char **command;
  run_key key;
  bool force;
  bool kills_lost; /* --if-lost kill */
  int live_given;  /* the last of --live and --no-live; 0: neither */
  bool live[2];    /* stdout, stderr: shown as it comes */
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

/* A stored result; the texts are in the value. */
typedef struct run_result {
  int exit_status;
  const char *out;
  size_t out_size;
  const char *err;
  size_t err_size;
} run_result;

/* run_value.c: takes a value apart; false: it is no result of `corral run`. */
bool run_take_result(const void *data, size_t size, run_result *ret);
/* Fills with the value that `corral run` stores of a run that has exited; false when it is
 * too large, or can't be read. */
bool run_fill_result(corral_fill *fill, const run_child *child);
/* Reads `size` bytes from the start of a spool. */
bool run_read_spool(int fd, void *ret, uint64_t size);
/* run.c: writes why a run left no value, for messages, and for other callers, who get the first 63
 * bytes. Returns the exit status for that. */
int run_failure_text(const run_child *child, const char *command, int64_t limit_ms, char *text,
                     size_t size);

#endif
