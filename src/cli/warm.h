/* warm.h: shared by the files of `corral warm`.
 *
 * The main thread handles signals, shows the progress and waits; one thread reads the keys; up to
 * `threads` threads look at keys and compute. A pass goes over all keys that are due, in their
 * order. Its first part waits for no other caller's compute; its second part goes over the keys
 * that were being computed elsewhere. Warmers of the same keys share one cursor, if all keys are
 * known before the first look: then a third part looks at what the others have done. */
#ifndef CORRAL_CLI_WARM_H
#define CORRAL_CLI_WARM_H

#include "cli.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>

enum {
  WARM_KEY = CORRAL_KEY_MAX, /* bytes of a key: the library's limit */
  WARM_THREADS = 256,
  WARM_OP_MS = 2000,   /* no caller waits for a warmer, so it is patient with a busy store */
  WARM_FAILURES = 100, /* most failures listed in the report */
  WARM_REASON = 240,
  WARM_CAUSES = 32, /* most causes of failures that are told apart */
  WARM_SITEMAPS = 16
};

typedef struct warm_options {
  char **files; /* as given; stdin if there are none */
  size_t file_count;
  bool nul;          /* keys end with NUL instead of the line's end */
  bool comments;     /* lines that begin with # are no keys */
  char **command;    /* the words after --; NULL: none */
  const char *shell; /* --exec */
  const char *url;   /* --origin */
  const char *sqlite;
  const char *pg;
  const char *mariadb;
  const char *query;
  const char *keys_query; /* --keys */
  const char *sitemaps[WARM_SITEMAPS];
  size_t sitemap_count;
  bool as_run;
  int64_t threads;
  double rate;      /* computes per second; 0: no limit */
  int64_t ahead_ms; /* -1: not given */
  int64_t spread_pct;
  bool watch;
  int64_t watch_ms; /* longest pause between two looks at a key */
  /* how long to wait for a store that is away, or for an operator; no limit with `watch` */
  int64_t patience_ms;
  int64_t progress_ms; /* between two lines without a terminal */
  corral_policy policy;
  corral_options options; /* those that the table has for this subcommand */
  int64_t failures_ms;
  int64_t limit_ms; /* --compute */
  const char *tags[CLI_TAGS];
  size_t tag_count;
} warm_options;

/* warm_options.c: parses the command line. -1: go on; else the exit status. */
int warm_options_parse(warm_options *o, int argc, char **argv);

/* ---- keys: warm_keys.c --------------------------------------------------------------------- */

typedef struct warm_key {
  const char *bytes;
  uint32_t size;
  bool is_done;    /* in this pass */
  int64_t due_ms;  /* when to look at it, by cli_now_ms; 0: now */
  int64_t ends_ms; /* when its value's fresh life ends; 0: it has no value */
} warm_key;

typedef struct warm_input warm_input;
typedef struct warm_reading warm_reading; /* of one input */

/* Adds a key, or reports and counts a bad one. False: reading is to end. */
bool warm_reading_add(warm_reading *r, const char *bytes, size_t size);
/* Reports and counts what is no key. */
void warm_reading_bad(warm_reading *r, const char *why, const char *text);
bool warm_reading_is_stopped(const warm_reading *r);
const warm_options *warm_reading_options(const warm_reading *r);
/* Ends a fetch. */
corral_cancel_token *warm_reading_token(const warm_reading *r);
/* Read keys from elsewhere than a file of lines. Each reports a failure, and returns false. */
bool warm_sqlite_keys(warm_reading *r, const char *sql);
bool warm_pg_keys(warm_reading *r, const char *sql);
bool warm_mariadb_keys(warm_reading *r, const char *sql);
bool warm_sitemap_keys(warm_reading *r, const char *place); /* warm_sitemap.c */
/* Load what these need; called before any thread starts. */
bool warm_pg_load(void);
bool warm_mariadb_load(void);
bool warm_sitemap_load(void);

/* All keys, with a lock of their own. A key stays valid until warm_keys_refresh. */
typedef struct warm_keys {
  const warm_options *o;
  warm_input *inputs;
  size_t input_count;
  pthread_mutex_t mutex;
  pthread_cond_t more; /* CLOCK_MONOTONIC */
  pthread_t reader;
  int stop;        /* eventfd: ends the reader */
  bool is_reading; /* `reader` is to be joined */
  /* no input is a pipe or a terminal: all keys are known before the first look */
  bool is_whole;
  corral_cancel_token *cancel_token; /* ends a fetch */
  bool is_complete;                  /* all keys are read; under the mutex */
  size_t count;                      /* read so far; under the mutex */
  atomic_ullong bad_lines;
  atomic_bool is_broken; /* an input couldn't be read; it has been reported */
} warm_keys;

/* Opens the inputs and starts the reader. Reports a failure. */
bool warm_keys_start(warm_keys *k, const warm_options *o);
/* Ends the reader, wherever it is. */
void warm_keys_stop(warm_keys *k);
void warm_keys_free(warm_keys *k);
/* Key number `i`; waits until it is read. NULL: there are fewer keys, or should_stop returned
 * true. */
warm_key *warm_keys_get(warm_keys *k, size_t i, bool (*should_stop)(void *arg), void *arg);
/* Reads files that have changed anew, and other inputs once in --watch's pause. No thread may use a
 * key meanwhile. */
void warm_keys_refresh(warm_keys *k);

/* ---- one run ------------------------------------------------------------------------------- */

typedef enum warm_outcome {
  WARM_FRESH,    /* fresh already, or computed elsewhere meanwhile */
  WARM_COMPUTED, /* computed here */
  WARM_NEGATIVE, /* "no such thing" */
  WARM_FAILED,
  WARM_BUSY,      /* being computed elsewhere */
  WARM_ELSEWHERE, /* another warmer of this pass had it, and it isn't fresh any more */
  WARM_OUTCOMES,
  WARM_STOPPED = WARM_OUTCOMES, /* the run ended before a look */
  WARM_AWAY,                    /* the store is away */
  WARM_HELD                     /* by an operator's order */
} warm_outcome;

typedef struct warm_failure {
  char *key;
  size_t size;
  char reason[WARM_REASON];
} warm_failure;

/* Failures of the same reason. */
typedef struct warm_cause {
  char text[WARM_REASON];
  char example[CLI_KEY_TEXT];
  unsigned long long count;
} warm_cause;

struct warm_source;
typedef struct warm_cursor warm_cursor;

typedef enum warm_part { WARM_FIRST, WARM_SECOND, WARM_OTHERS } warm_part;

/* An operator's order, as far as it is followed: under `freeze` nothing is computed, and under
 * `bypass` neither, for nothing would be kept. */
typedef struct warm_order {
  pthread_mutex_t mutex;
  int64_t read_ms; /* the last look at it, by cli_now_ms; 0: none yet */
  int64_t held_ms; /* since when it holds this run; 0: it doesn't */
  bool is_said;
  char text[CLI_ORDER_TEXT];
} warm_order;

typedef struct warm {
  const cli_globals *cli;
  warm_options o;
  const struct warm_source *source; /* NULL: --origin, from which the library fetches */
  /* the server and database of the values, without a password; NULL: none; set by `check` */
  char *database;
  corral *corral;
  bool follows;                      /* an operator's orders */
  corral_cancel_token *cancel_token; /* of all calls; cancelled by the first signal */
  sigset_t mask;                     /* for the signals of the commands */
  warm_keys keys;
  atomic_int signal;    /* the first one; 0: none */
  atomic_bool is_fatal; /* the run can't go on; `fatal` says why */
  char fatal[WARM_REASON + 64];
  atomic_ullong counts[WARM_OUTCOMES];
  atomic_ullong computes; /* begun */
  atomic_bool reached;    /* the store has answered */
  atomic_llong away_ms;   /* since when the store is away, by cli_now_ms; 0: it isn't */
  atomic_bool is_away_said;
  warm_order order;
  int64_t begun_ms;
  unsigned long long passes;
  warm_cursor *cursor;        /* NULL: this warmer shares none */
  unsigned long long ended;   /* values that ended before their pass did; all passes together */
  atomic_llong least_life_ms; /* the shortest life seen; 0: none yet */
  /* under the mutex */
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* CLOCK_MONOTONIC; signalled when the run is to stop */
  size_t taken;           /* keys taken in this part of the pass */
  size_t *later;          /* indices of keys that were being computed elsewhere */
  size_t later_count, later_room;
  warm_part part;
  int64_t token_ns; /* earliest begin of the next compute, by cli_now_ns */
  warm_failure failures[WARM_FAILURES];
  size_t failure_count;
  unsigned long long failures_left_off;
  warm_cause causes[WARM_CAUSES];
  size_t cause_count;
  unsigned long long other_causes; /* failures of further causes */
} warm;

/* The state of one thread. */
typedef struct warm_seat {
  warm *w;
  struct warm_stage *stage; /* warm.c's */
  void *own;                /* the source's, such as a connection */
  corral_fill *fill;
  bool ran; /* the present key was computed here */
  bool failed;
  bool is_stored; /* and the store has kept it */
  char reason[WARM_REASON];
  int64_t retry_ms; /* how long a failure is remembered */
  int64_t due_ms;   /* when to look at the present key again */
  int64_t ends_ms;  /* when its value's fresh life ends; 0: it has none */
} warm_seat;

static inline bool warm_is_stopping(const warm *w) {
  return atomic_load(&w->signal) != 0 || atomic_load(&w->is_fatal);
}
/* warm.c: sleeps until `at_ns` of cli_now_ns; false when the run is to stop. */
bool warm_sleep_until(warm *w, int64_t at_ns);
/* Stops the run for a reason; only the first one is reported. */
void warm_give_up(warm *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- sources of values --------------------------------------------------------------------- */

typedef struct warm_source {
  bool (*check)(warm *w); /* called once, before all else; reports a failure */
  void (*compute)(warm_seat *seat, corral_fill *fill, const void *key, size_t key_len);
  void (*close)(warm_seat *seat); /* frees seat->own; NULL: nothing to free */
} warm_source;

extern const warm_source warm_exec;   /* warm_exec.c */
extern const warm_source warm_sqlite; /* warm_sqlite.c */
/* warm_pg.c, warm_mariadb.c; `check` fails if the client library was missing at the build */
extern const warm_source warm_pg, warm_mariadb;

/* Fails the fill. The reason goes to other callers, cut short, and to the report. */
void warm_fail(warm_seat *seat, corral_fill *fill, int32_t code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* True when the compute's result isn't wanted any more, or at `until_ms` of cli_now_ms. */
bool warm_should_stop(const warm_seat *seat, int64_t until_ms);

/* ---- database servers: warm_server.c ------------------------------------------------------- */

typedef struct warm_server {
  /* Prepares `sql`. NULL with the reason in `text`. */
  void *(*connect)(const warm_options *o, const char *sql, char *text, size_t size);
  /* False: the connection broke before the answer; the reason is in `text`, and the fill is
   * unchanged. */
  bool (*query)(warm_seat *seat, corral_fill *fill, void *connection, const void *key,
                size_t key_len, char *text, size_t size);
  bool (*is_broken)(const void *connection);
  void (*disconnect)(void *connection);
} warm_server;

/* A source's `compute` and `close`. */
void warm_server_compute(const warm_server *server, warm_seat *seat, corral_fill *fill,
                         const void *key, size_t key_len);
void warm_server_close(warm_seat *seat);
/* Fails the fill: the statement was ended. */
void warm_server_ended(warm_seat *seat, corral_fill *fill);
/* False: --query isn't a statement with one `parameter`, which has been reported. */
bool warm_server_accepts(unsigned long parameters, unsigned long columns, const char *parameter);

/* ---- one key: warm_key.c ------------------------------------------------------------------- */

/* Looks at a key, and computes it if it is due. `may_wait`: also waits for another caller's
 * compute. Sets seat->due_ms. */
warm_outcome warm_one(warm_seat *seat, const warm_key *key, bool may_wait);
/* Looks at a key that another warmer of this pass had, and computes nothing. Sets seat->ends_ms. */
warm_outcome warm_look(warm_seat *seat, const warm_key *key);
/* After WARM_AWAY: waits a little. False: the run ends. */
bool warm_wait_for_store(warm_seat *seat);

/* ---- the shared cursor: warm_cursor.c ------------------------------------------------------ */

/* Sets w->cursor if this run shares one: it has one pass, over keys that are known before the first
 * look. Reports a failure. */
bool warm_cursor_open(warm *w);
/* The number of the next key; waits for what other warmers have taken and not done. False: all keys
 * are done, or the run ends. */
bool warm_cursor_take(warm_seat *seat, size_t *ret_index);
/* The key is done. */
void warm_cursor_done(warm *w, size_t index);
/* Tells the others, now and then, that this warmer lives. Only the main thread. */
void warm_cursor_beat(warm *w);
/* Leaves the pass: what isn't done is for the others. */
void warm_cursor_close(warm *w);

/* ---- output: warm_show.c ------------------------------------------------------------------- */

/* Counts the outcome of a key, and reports it if it is bad or with --verbose. */
void warm_show_key(warm_seat *seat, const warm_key *key, warm_outcome outcome, int64_t took_ms);
/* Redraws the line of progress; without a terminal, writes one when it is due. Only the main
 * thread. Returns the time until its next call, in ms. */
int warm_show_progress(warm *w);
/* These write a message on a line of its own: one that may be why the command fails (cli_say), and
 * one that tells how it goes on (cli_note). Any thread. */
void warm_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void warm_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* After a pass in which `ended` of its values have ended already: says so, once for all passes. */
void warm_show_ended(warm *w, size_t ended, size_t keys, int64_t pass_ms);
/* At the end: removes the line, reports the totals, and prints them as JSON if that is wanted. */
void warm_show_end(warm *w);

#endif
