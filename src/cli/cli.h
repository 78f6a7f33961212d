/* cli.h: what the files of the corral command share.
 *
 * Data goes to stdout, talk to stderr as one line that begins with "corral: ". A subcommand is a
 * function that gets its own argv (argv[0] is its name) and answers the exit status of the process.
 * Functions that parse report what was wrong themselves and answer false. */
#ifndef CORRAL_CLI_H
#define CORRAL_CLI_H

#include <corral.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses of corral itself; `run` and `lock` pass the command's own through. As in env(1) and
 * timeout(1). */
enum cli_exit {
  CLI_OK = 0,
  CLI_MISS = 1,        /* get: not in the store; lock --show: nobody holds it */
  CLI_PARTLY = 1,      /* warm: not all keys are warm */
  CLI_BUSY = 75,       /* lock: somebody else has it, with --no-wait */
  CLI_LOST = 76,       /* lock: it was lost while the command ran */
  CLI_DEADLINE = 124,  /* --wait or --compute passed */
  CLI_FAILED = 125,    /* corral itself failed, or was used wrongly */
  CLI_NOEXEC = 126,    /* the command was found and can't be executed */
  CLI_NOCOMMAND = 127, /* the command was not found */
  CLI_SIGNAL = 128     /* plus the number of the signal that ended the command */
};

enum {
  CLI_KEY_TEXT = 96,      /* room for cli_key_text */
  CLI_DURATION_TEXT = 32, /* room for cli_duration_text */
  CLI_NEST_TEXT = 2064,   /* room for cli_nest_text */
  CLI_TAGS = 16           /* the library's limit */
};

/* The global options. */
typedef struct cli_globals {
  const char *store;
  const char *name_space; /* NULL for none */
  bool store_given;       /* --store or CORRAL_STORE, not the default */
  bool no_host_lock;      /* the ladder begins at the store */
  bool generation;        /* values can be invalidated all at once */
  /* how long a store may be silent; 0: the subcommand's or the library's default */
  int64_t op_ms;
  bool json;
  bool quiet;
  bool verbose;
  bool pass_store;     /* commands that are run are told of the store */
  bool store_withheld; /* a corral command above this one has not told of its store */
} cli_globals;

int cli_run(const cli_globals *cli, int argc, char **argv);
int cli_get(const cli_globals *cli, int argc, char **argv);
int cli_set(const cli_globals *cli, int argc, char **argv);
int cli_invalidate(const cli_globals *cli, int argc, char **argv);
int cli_expire(const cli_globals *cli, int argc, char **argv);
int cli_inspect(const cli_globals *cli, int argc, char **argv);
int cli_key(const cli_globals *cli, int argc, char **argv);
int cli_explain(const cli_globals *cli, int argc, char **argv);
int cli_lock(const cli_globals *cli, int argc, char **argv);
int cli_warm(const cli_globals *cli, int argc, char **argv);
int cli_storm(const cli_globals *cli, int argc, char **argv);

/* text.c: the help of a subcommand, or of the command itself for NULL. Never NULL for a known
 * name. */
const char *cli_help(const char *subcommand);

/* ---- options ------------------------------------------------------------------------------- */

/* The grammar of one command line. `shorts` begins with ":" (after an optional "+"). */
typedef struct cli_grammar {
  const char *name; /* the subcommand; NULL before it */
  const char *shorts;
  const struct option *longs;
} cli_grammar;

/* The next option as getopt_long answers it, -1 at the end, '?' after it has reported a wrong
 * one. */
int cli_option(const cli_grammar *grammar, int argc, char **argv);

/* "500ms", "2s", "2m", "1h", "7d" or "0" into milliseconds within least..most. `what` names the
 * option. */
bool cli_duration(const char *what, const char *text, int64_t least, int64_t most, int64_t *ret);
/* A whole number within least..most. */
bool cli_count(const char *what, const char *text, int64_t least, int64_t most, int64_t *ret);
/* "4096", "64k", "1m" or "1g" into bytes within least..most. */
bool cli_size(const char *what, const char *text, int64_t least, int64_t most, int64_t *ret);
/* A decimal number within least..most. */
bool cli_real(const char *what, const char *text, double least, double most, double *ret);
/* One more of at most CLI_TAGS tags. The text is the caller's. */
bool cli_tag(const char *what, const char *text, const char *tags[CLI_TAGS], size_t *count);
/* Milliseconds as an option would be written ("90s"), or with a fraction where it has one
 * ("1.25s"). */
const char *cli_duration_text(char text[CLI_DURATION_TEXT], int64_t ms);

/* ---- talk ---------------------------------------------------------------------------------- */

void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* cli_say, then CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Text of others (from a store, a server, a key) for people: what isn't valid UTF-8, controls, and
 * what a terminal obeys or hides, as \xNN; cut with "..." where it doesn't fit. Returns `to`.
 * Messages of cli_say are passed through it as a whole. */
const char *cli_visible(char *to, size_t room, const void *text, size_t size);
/* The same of a key, long ones cut. */
const char *cli_key_text(char text[CLI_KEY_TEXT], const void *key, size_t key_len);
/* Says why a call on `key` failed; answers the exit status that stands for it. */
int cli_report(const void *key, size_t key_len, int status, const corral_error *error);
/* A JSON string with its quotes. Bytes that are no valid UTF-8 become \u0080 to \u00ff, one by one;
 * what a terminal obeys or hides is escaped too. */
void cli_json_string(FILE *f, const void *data, size_t size);

/* ---- the rest ------------------------------------------------------------------------------ */

/* Opens the corral of the global options and of *more, whose store, namespace, hook, host_lock and
 * generation are set here, with events on stderr when verbose (then instead of to more->on_event).
 * Says what was wrong. With `goes_on` also, once, what is wrong with the store later. */
bool cli_open(const cli_globals *cli, bool goes_on, corral_options *more, corral **ret);
/* Dies of `signo` as if it had not been taken. */
void cli_die_of(int signo);
/* Blocks SIGINT, SIGTERM, SIGHUP and SIGQUIT, those that aren't ignored, and SIGCHLD
 * `with_children`. A signalfd for them that doesn't block, or -1 with errno set; *ret_old is the
 * mask from before, in both cases. */
int cli_take_signals(bool with_children, sigset_t *ret_old);
/* All of `data`; false with errno set. */
bool cli_write(int fd, const void *data, size_t size);
/* Flushes stdout; CLI_FAILED after saying so when anything written to it was lost, else
 * `exit_status`. */
int cli_finish(int exit_status);
/* secret.c: the URI of an argument, whose secrets are then gone from there: `arg` itself where
 * it has none, else a copy for good. */
const char *cli_take_uri(char *arg);
/* The same of what libpq calls conninfo. */
const char *cli_take_conninfo(char *arg);
/* The same of CORRAL_STORE; NULL when there is none, or a corral command above this one keeps
 * its own to itself. */
const char *cli_take_store(bool *ret_withheld);
/* Sets CORRAL_STORE for commands that run from now on. False without memory. */
bool cli_hand_down_store(const cli_globals *cli);
/* nested.c: whether a process above this one is computing that key. */
bool cli_nested(const cli_globals *cli, const void *key, size_t key_len);
/* Tells so to the commands that this process starts from now on. */
void cli_nest(const cli_globals *cli, const void *key, size_t key_len);
/* The same for one command: "CORRAL_RUNNING=...", for its environment. False when it doesn't fit:
 * then it isn't told. */
bool cli_nest_text(const cli_globals *cli, const void *key, size_t key_len,
                   char text[CLI_NEST_TEXT]);
/* Milliseconds and nanoseconds of the monotonic clock. */
int64_t cli_now_ms(void);
int64_t cli_now_ns(void);

#endif
