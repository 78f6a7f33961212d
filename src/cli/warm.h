/* warm.h: what the files of `corral warm` share.
 *
 * The main thread takes signals, draws and waits; one thread reads the keys; up to `threads`
 * threads look at them and compute. A pass goes over all keys that are due, first without waiting
 * for anybody, then over those that somebody else was computing. */
#ifndef CORRAL_CLI_WARM_H
#define CORRAL_CLI_WARM_H

#include "cli.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>

enum {
  WARM_KEY = 65536, /* bytes of a key: the library's limit */
  WARM_THREADS = 256,
  WARM_FAILURES = 100, /* listed in the report */
  WARM_REASON = 240
};

typedef struct warm_options {
  char **files; /* as given; none: stdin */
  size_t file_count;
  bool nul;          /* keys end with NUL instead of the line's end */
  bool comments;     /* lines that begin with # are none */
  char **command;    /* what follows --; NULL for none */
  const char *shell; /* --exec */
  const char *url;   /* --origin */
  const char *sqlite;
  const char *pg;
  const char *query;
  bool as_run;
  int64_t threads;
  double rate;      /* computes per second; 0: no limit */
  int64_t ahead_ms; /* -1: not given */
  int64_t spread_pct;
  bool watch;
  int64_t watch_ms;    /* each key is looked at that often at least */
  int64_t patience_ms; /* a store that is away for longer ends the run, unless it watches */
  int64_t progress_ms; /* between two lines where there is no terminal */
  int64_t ttl_ms, stale_ms, stale_if_error_ms, negative_ms, failures_ms, wait_ms, limit_ms,
      lease_ms;
  const char *tags[CLI_TAGS];
  size_t tag_count;
} warm_options;

/* warm_options.c: reads the command line. -1 to go on, else the exit status. */
int warm_options_parse(warm_options *o, int argc, char **argv);

/* ---- keys: warm_keys.c --------------------------------------------------------------------- */

typedef struct warm_key {
  const char *bytes;
  uint32_t size;
  int64_t due_ms; /* by cli_now_ms: when it is to be looked at; 0: now */
} warm_key;

typedef struct warm_input warm_input;

/* All keys. Its own lock; a key that was got stays valid until warm_keys_refresh. */
typedef struct warm_keys {
  const warm_options *o;
  warm_input *inputs;
  size_t input_count;
  pthread_mutex_t mutex;
  pthread_cond_t more; /* CLOCK_MONOTONIC */
  pthread_t reader;
  int stop;        /* eventfd: ends the reader */
  bool is_reading; /* there is a reader to be joined */
  /* every input is a file: the number of keys is known before the first is looked at */
  bool is_seekable;
  bool is_complete; /* all are read; under the mutex */
  size_t count;     /* read so far; under the mutex */
  atomic_ullong bad_lines;
  atomic_bool is_broken; /* an input can't be read: said already */
} warm_keys;

/* Opens the inputs and starts to read. Says what was wrong. */
bool warm_keys_start(warm_keys *k, const warm_options *o);
/* Ends the reading, where it is. */
void warm_keys_stop(warm_keys *k);
void warm_keys_free(warm_keys *k);
/* Key number `i`; waits until it is read. NULL: there are no more, or should_stop says so. */
warm_key *warm_keys_get(warm_keys *k, size_t i, bool (*should_stop)(void *arg), void *arg);
/* Reads the files that have changed since anew. No thread may use a key meanwhile. */
void warm_keys_refresh(warm_keys *k);

/* ---- one run ------------------------------------------------------------------------------- */

typedef enum warm_outcome {
  WARM_FRESH,    /* it was warm already, or somebody else has computed it */
  WARM_COMPUTED, /* here */
  WARM_NEGATIVE, /* there is no such thing */
  WARM_FAILED,
  WARM_BUSY, /* somebody else computes it */
  WARM_OUTCOMES,
  WARM_STOPPED = WARM_OUTCOMES, /* not looked at any more */
  WARM_AWAY                     /* the store is */
} warm_outcome;

typedef struct warm_failure {
  char *key;
  size_t size;
  char reason[WARM_REASON];
} warm_failure;

struct warm_source;

typedef struct warm {
  const cli_globals *cli;
  warm_options o;
  const struct warm_source *source; /* NULL: --origin, which the library asks */
  corral *corral;
  corral_ticket *ticket; /* of all calls: leaves them at the first signal */
  sigset_t mask;         /* the signals of the commands */
  warm_keys keys;
  atomic_int signal;    /* the first one; 0 none */
  atomic_bool is_fatal; /* nothing makes sense any more; `fatal` says why */
  char fatal[WARM_REASON + 64];
  atomic_ullong counts[WARM_OUTCOMES];
  atomic_ullong computes; /* begun */
  atomic_bool reached;    /* the store has answered */
  atomic_llong away_ms;   /* since when it doesn't; 0 it does */
  atomic_bool is_away_said;
  int64_t begun_ms;
  size_t dice; /* random: where a pass begins */
  unsigned long long passes;
  /* under the mutex */
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* CLOCK_MONOTONIC: a signal came */
  size_t taken;           /* in this half of the pass */
  size_t *later;          /* keys that somebody else was computing */
  size_t later_count, later_room;
  bool is_second;   /* this is the second half of the pass */
  int64_t token_ns; /* when the next compute may begin */
  warm_failure failures[WARM_FAILURES];
  size_t failure_count;
  unsigned long long failures_left_off;
} warm;

/* One thread. */
typedef struct warm_seat {
  warm *w;
  struct warm_stage *stage; /* warm.c's */
  void *own;                /* the source's: a connection */
  corral_fill *fill;
  bool ran; /* the compute of this key was run here */
  bool failed;
  char reason[WARM_REASON];
  int64_t retry_ms; /* of a failure: how long it is remembered */
  int64_t due_ms;   /* when this key is to be looked at again */
} warm_seat;

static inline bool warm_is_stopping(const warm *w) {
  return atomic_load(&w->signal) != 0 || atomic_load(&w->is_fatal);
}
/* warm.c: sleeps until `at_ns` of cli_now_ns; false when it is to stop. */
bool warm_sleep_until(warm *w, int64_t at_ns);
/* Ends everything, for a reason that is said once. */
void warm_give_up(warm *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- where values come from ---------------------------------------------------------------- */

typedef struct warm_source {
  bool (*check)(warm *w); /* once, before all: says what is wrong */
  void (*compute)(warm_seat *seat, corral_fill *fill, const void *key, size_t key_len);
  void (*close)(warm_seat *seat); /* the seat's own; NULL: nothing */
} warm_source;

extern const warm_source warm_exec;   /* warm_exec.c */
extern const warm_source warm_sqlite; /* warm_sqlite.c */
/* warm_pg.c; its check fails where libpq was not there at the build */
extern const warm_source warm_pg;

/* Fails the fill: the reason is told to the fleet, cut, and in the report. */
void warm_fail(warm_seat *seat, corral_fill *fill, int32_t code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* True when the compute's result is of no use, or it takes too long: `until_ms` by cli_now_ms. */
bool warm_should_stop(const warm_seat *seat, int64_t until_ms);

/* ---- one key: warm_key.c ------------------------------------------------------------------- */

/* Looks at it, and computes it where that is due. `may_wait`: for somebody else who computes it.
 * Sets seat->due_ms. */
warm_outcome warm_one(warm_seat *seat, const warm_key *key, bool may_wait);

/* ---- what is shown: warm_show.c ------------------------------------------------------------ */

/* What became of a key: counts and, where wanted, tells it. */
void warm_show_key(warm_seat *seat, const warm_key *key, warm_outcome outcome, int64_t took_ms);
/* Draws the line, or writes one where there is no terminal and it is time for it. Only the main
 * thread. Answers when it wants to be called again, in ms. */
int warm_show_progress(warm *w);
/* A message on a line of its own. Any thread. */
void warm_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The end: the line is removed, the sum is said, and printed as JSON. */
void warm_show_end(warm *w);

#endif
