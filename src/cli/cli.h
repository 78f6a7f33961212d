/* cli.h: shared by the files of the corral command.
 *
 * Data goes to stdout, messages to stderr, each as one line that begins with "corral: ", or, with
 * --json, as one object. A
 * subcommand is a function with an argv of its own (argv[0] is its name); it returns the exit
 * status of the process. Functions that parse report a wrong argument themselves, and return
 * false. */
#ifndef CORRAL_CLI_H
#define CORRAL_CLI_H

#include <corral.h>
#include <corral/control.h>
#include <corral/lock.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses of corral itself, as in env(1) and timeout(1); `run` and `lock` pass the command's
 * own on. */
enum cli_exit {
  CLI_OK = 0,
  CLI_MISS = 1,        /* get: not in the store; lock --show: not held; flights: none */
  CLI_PARTLY = 1,      /* warm: some keys aren't warm */
  CLI_UNFIT = 1,       /* doctor: the store isn't fit */
  CLI_BUSY = 75,       /* lock --no-wait: the lock has another holder */
  CLI_LOST = 76,       /* lock: the lock was lost while the command ran */
  CLI_DEADLINE = 124,  /* --wait or --compute passed */
  CLI_FAILED = 125,    /* corral itself failed, or was used wrongly */
  CLI_NOEXEC = 126,    /* the command was found, but can't be executed */
  CLI_NOCOMMAND = 127, /* the command was not found */
  CLI_SIGNAL = 128     /* plus the number of the signal that ended the command */
};

enum {
  CLI_KEY_TEXT = 96,      /* room for cli_key_text */
  CLI_DURATION_TEXT = 32, /* room for cli_duration_text */
  CLI_TIME_TEXT = 24,     /* room for cli_time_text */
  CLI_NEST_TEXT = 2064,   /* room for cli_nest_text */
  CLI_DIGEST_TEXT = 33,   /* room for cli_digest */
  CLI_ORDER_TEXT = 160,   /* room for cli_order_text */
  CLI_TAGS = 16           /* the library's limit */
};

/* The global options. */
typedef struct cli_globals {
  const char *store;
  bool store_given;       /* by --store or CORRAL_STORE, not by default */
  bool is_default;        /* the default store, whose folder is made when it is opened */
  bool is_nowhere;        /* there is no store: a run's result isn't shared */
  bool no_host_lock;      /* no election by the host's lock */
  bool control;           /* run and warm follow an operator's orders, also without --control */
  corral_options options; /* those that the table has as global ones */
  bool json;
  bool quiet;
  bool verbose;
  bool pass_store;     /* commands that are run get CORRAL_STORE */
  bool store_withheld; /* the corral command that runs this one withholds its CORRAL_STORE */
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
int cli_doctor(const cli_globals *cli, int argc, char **argv);
int cli_stat(const cli_globals *cli, int argc, char **argv);
int cli_top(const cli_globals *cli, int argc, char **argv);
int cli_flights(const cli_globals *cli, int argc, char **argv);
int cli_log(const cli_globals *cli, int argc, char **argv);
int cli_control(const cli_globals *cli, int argc, char **argv);
int cli_completion(const cli_globals *cli, int argc, char **argv);

typedef struct cli_subcommand {
  const char *name;
  int (*main)(const cli_globals *cli, int argc, char **argv);
  bool has_options, needs_store;
  /* For shell completion, its words that are no options, the last one for all that follow:
   * "command" (and its arguments), "name", "file", "policy", "subcommand", "shell", "store",
   * "order". */
  const char *takes;
  /* for --help: what follows its name, or others that share its line; NULL: it has no line */
  const char *usage;
  const char *text;
} cli_subcommand;
/* subcommands.c: ends with a name of NULL. */
extern const cli_subcommand cli_subcommands[];
/* NULL: there is none of that name. */
const cli_subcommand *cli_subcommand_of(const char *name);
/* Reports that there is none; NULL: that none is given. Returns the exit status. */
int cli_unknown_subcommand(const char *name);
int cli_version(const cli_globals *cli, int argc, char **argv);
/* Prints a text to stdout; returns the exit status. */
int cli_print(const char *text);

/* text.c: the help of a subcommand; that of the command itself for NULL or an unknown name. Valid
 * until the next call. */
const char *cli_help(const char *subcommand);

/* ---- options ------------------------------------------------------------------------------- */

/* The grammar of one command line. `shorts` begins with ":" (after an optional "+"). */
typedef struct cli_grammar {
  const char *name; /* the subcommand; NULL: the options before it */
  const char *shorts;
  const struct option *longs; /* its own, beside those of the tables of options */
} cli_grammar;

/* Returns the next option like getopt_long: -1 at the end; '?' for a wrong one, which it has
 * reported. An option of the tables is a number for cli_flag_set. */
int cli_option(const cli_grammar *grammar, int argc, char **argv);
/* The next cli_option reads nothing: it gives its grammar, with the options of the tables among
 * `longs`, to `hear`, and answers '?'. */
typedef void cli_hear_fn(const cli_grammar *grammar, const struct option *longs, void *arg);
void cli_option_hear(cli_hear_fn *hear, void *arg);

/* The name nearest to a misspelt one of `len` bytes: all are considered, then `best` is it; NULL:
 * none is near. */
typedef struct cli_guess {
  const char *wanted;
  size_t len;
  const char *best;
  unsigned distance;
} cli_guess;
void cli_guess_consider(cli_guess *g, const char *name);

/* The options before the subcommand, beside those of the tables. */
enum { CLI_OPT_STORE = 256, CLI_OPT_JSON, CLI_OPT_NO_HOST_LOCK, CLI_OPT_PASS_STORE };
extern const cli_grammar cli_global_grammar;

/* flags.c: the options that the library's tables give to the command. */
enum { CLI_FLAG = 0x10000, CLI_FLAGS = 80 }; /* first number of one; their most */
/* Where the values of such options go; NULL: the subcommand has none of that kind. */
typedef struct cli_flags {
  const char *subcommand; /* NULL: the options before it */
  corral_policy *policy;
  corral_options *options;
  corral_lock_options *lock;
} cli_flags;
/* Sets such an option to `text`, and reports what is wrong. False also for other options. */
bool cli_flag_set(const cli_flags *to, int option, const char *text);
/* The same for the option of that name; `what` names it in messages. */
bool cli_flag_set_as(const cli_flags *to, const char *what, const char *name, const char *text);
/* Number of the option of that name; -1: the subcommand has none. */
int cli_flag_of(const char *subcommand, const char *name);
/* True when some subcommand has an option of that name, with dashes. */
bool cli_flag_is_any(const char *name, size_t len);
/* The table's sentence about it; NULL: it is none of the tables'. */
const char *cli_flag_text(int option);
/* The words that an option with dashes takes, as "a|b"; NULL: it takes others. */
const char *cli_words(const char *subcommand, const char *name);
/* Which of the words of such an option, that isn't of the tables, `text` is; -1: none, which is
 * reported. */
int cli_word(const char *subcommand, const char *name, const char *text);
/* The table's default for it. */
int64_t cli_flag_default(const char *subcommand, const char *name);
/* Adds those of a subcommand to an array, after `count` others; returns their number. */
size_t cli_flags_add(const char *subcommand, struct option *longs, size_t count);
/* Sets those global options in *to that *from has. */
void cli_flags_copy(const corral_options *from, corral_options *to);
/* Appends the lines of --help about them to a text; returns its new length. */
size_t cli_flags_help(const char *subcommand, char *text, size_t used, size_t size);

/* Parses a duration within least..most ms, as the tables' options take it: "500ms", "1h30m", "0.2"
 * (seconds). `what` names the option in messages. */
bool cli_duration(const char *what, const char *text, int64_t least, int64_t most, int64_t *ret);
/* Parses a whole number within least..most. */
bool cli_count(const char *what, const char *text, int64_t least, int64_t most, int64_t *ret);
/* Parses a decimal number within least..most. */
bool cli_real(const char *what, const char *text, double least, double most, double *ret);
/* Adds a tag to at most CLI_TAGS; the text stays the caller's. */
bool cli_tag(const char *what, const char *text, const char *tags[CLI_TAGS], size_t *count);
/* Writes milliseconds as an option takes them ("90s"), with a fraction where needed ("1.25s"). */
const char *cli_duration_text(char text[CLI_DURATION_TEXT], int64_t ms);
/* control.c: an order in force: "limit 4: at most ...; ends in 9m51s", or "normal". */
const char *cli_order_text(char text[CLI_ORDER_TEXT], const corral_control_state *order);
/* Microseconds as a text of at most seven characters, up to a day: "82 us", "4.1 ms", "1.25 s". */
const char *cli_time_text(char text[CLI_TIME_TEXT], int64_t us);

/* ---- messages ------------------------------------------------------------------------------ */

/* Says why this command fails. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Says something else than that. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From here on messages are JSON: {"message":"..."}, and the last one of cli_say or cli_fail waits
 * for cli_say_end: it has the exit status, too. */
void cli_say_json(void);
/* With --json, the last message also has "left_ms", what is left of the hold in the way. */
void cli_say_left(int64_t left_ms);
/* Ends the messages of this process. Returns `exit_status`. */
int cli_say_end(int exit_status);
/* Like cli_say; returns CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Makes foreign text (from a store, a server, a key) fit to be shown: invalid UTF-8, control
 * characters, and characters that a terminal obeys or hides become \xNN; a text that doesn't fit
 * ends with "...". Returns `to`. cli_say does this to each message as a whole. */
const char *cli_visible(char *to, size_t room, const void *text, size_t size);
/* cli_visible for a key. */
const char *cli_key_text(char text[CLI_KEY_TEXT], const void *key, size_t key_len);
/* Reports why a call on `key` failed; returns the exit status for that. */
int cli_report(const void *key, size_t key_len, int status, const corral_error *error);
/* The same for a key that has been made fit to be shown. */
int cli_report_as(const char *name, int status, const corral_error *error);
/* Writes a JSON string with its quotes. Invalid UTF-8 becomes \u0080 to \u00ff, byte by byte;
 * characters that a terminal obeys or hides are escaped, too. */
void cli_json_string(FILE *f, const void *data, size_t size);

/* ---- store, signals, output ---------------------------------------------------------------- */

/* True when a call that waits for somebody else says so: with --verbose, and on a terminal. */
bool cli_tells_waits(const cli_globals *cli);
/* store.c: the default store; NULL: neither CACHE_DIRECTORY, the folders that systemd makes for a
 * service, nor XDG_CACHE_HOME, nor HOME, nor the user's entry of passwd names a folder. */
const char *cli_default_store(void);
/* Opens a corral by the global options and *more, in which it sets store, hook, host_lock, and the
 * global options that were given. Reports a failure. With --verbose, events go to stderr instead
 * of to more->on_event. With `goes_on`, the first later trouble with the store is reported. */
bool cli_open(const cli_globals *cli, bool goes_on, corral_options *more, corral **ret);
/* The same for a look, which makes nothing: absent, the store is a file that isn't there, and must
 * not be asked. */
bool cli_open_to_look(const cli_globals *cli, corral_options *more, corral **ret, bool *ret_absent);
/* Ends this process by `signo`, as if the signal had not been blocked. */
void cli_die_of(int signo);
/* Blocks SIGINT, SIGTERM, SIGHUP and SIGQUIT, except ignored ones. Returns a non-blocking signalfd
 * for them, or -1 with errno set; *ret_old is the former mask in both cases. */
int cli_take_signals(sigset_t *ret_old);
/* Makes /dev/null of standard input and output, and, if wanted, of standard error. */
void cli_take_null(bool also_stderr);
/* Writes all of `data`; false with errno set. */
bool cli_write(int fd, const void *data, size_t size);
/* Flushes stdout and returns `exit_status`; CLI_FAILED, reported, when any output was lost. */
int cli_finish(int exit_status);
/* secret.c: takes the URI of an argument, and overwrites the argument's secrets. Returns `arg`
 * itself if it has none, else a copy that stays valid. */
const char *cli_take_uri(char *arg);
/* The same for a conninfo of libpq. */
const char *cli_take_conninfo(char *arg);
/* The same for CORRAL_STORE. NULL: it is not set, or the corral command that runs this one
 * withholds it. */
const char *cli_take_store(bool *ret_withheld);
/* Sets CORRAL_STORE for commands that run from now on; withheld unless `pass_store`. False without
 * memory. */
bool cli_hand_down_store(const cli_globals *cli);
/* nested.c: writes a digest of store, namespace and key, in hex. */
void cli_digest(const cli_globals *cli, const void *key, size_t key_len,
                char name[CLI_DIGEST_TEXT]);
/* True when a process above this one is computing that key. */
bool cli_nested(const cli_globals *cli, const void *key, size_t key_len);
/* Tells the commands that start from now on that this process is computing that key. */
void cli_nest(const cli_globals *cli, const void *key, size_t key_len);
/* The same for one command: "CORRAL_RUNNING=...", for its environment. False when it doesn't
 * fit. */
bool cli_nest_text(const cli_globals *cli, const void *key, size_t key_len,
                   char text[CLI_NEST_TEXT]);
/* The monotonic clock, in milliseconds and in nanoseconds. */
int64_t cli_now_ms(void);
int64_t cli_now_ns(void);

#endif
