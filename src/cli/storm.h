/* storm.h: shared by the files of `corral storm`: its options, and the shared memory of its
 * processes.
 *
 * The parent makes everything, forks the herd, and then only watches. It has neither a corral nor a
 * database handle while a process of the herd lives, so it can replace a killed one by another
 * fork. All counters are atomic. */
#ifndef CORRAL_STORM_H
#define CORRAL_STORM_H

#include "cli.h"
#include "whole.h"

#include <stdatomic.h>
#include <sys/types.h>

enum {
  STORM_PROCESSES = 64,
  STORM_THREADS = 1024,
  STORM_KEYS = 100000,
  STORM_REQUESTS = 20000000, /* most on a schedule */
  STORM_STEPS = 160,         /* most buckets of the timeline while requests are due */
  STORM_COLUMNS = 512,       /* most buckets of the timeline */
  STORM_PATH = 512
};

typedef enum storm_mode { STORM_NONE, STORM_CORRAL, STORM_MODES } storm_mode;

typedef struct storm_options {
  bool modes[STORM_MODES];
  int64_t processes;
  int64_t threads;
  int64_t keys;
  double zipf;
  int64_t ttl_ms;
  int64_t stale_ms;
  int64_t rate; /* requests per second, of the whole herd */
  int64_t load; /* rows in the query; 0: to be calibrated */
  int64_t duration_ms;
  bool kill_leader;
  int64_t kill_every_ms;
  const char *html; /* file of the page; NULL: none */
} storm_options;

/* The result of one mode. `requests` is near while the herd lives, exact when storm_result_end has
 * returned. */
typedef struct storm_result {
  atomic_ullong requests; /* answered */
  atomic_ullong computes;
  atomic_ullong errors;
  atomic_ullong wrong;
  atomic_ullong late; /* requests that were due while no thread was free */
  atomic_ullong database_us;
  atomic_uint begun[STORM_COLUMNS];   /* computes begun, per bucket of storm_shared.bucket_ms */
  atomic_uint at_once[STORM_COLUMNS]; /* the most that were under way at once */
  atomic_uint kills;
  atomic_uint recoveries;
  atomic_llong recovery_sum_us; /* from a kill to the next computed value */
  atomic_llong recovery_max_us;
  _Atomic int last_status; /* of the last request that failed */
  int64_t ran_ms;
} storm_result;

/* The waits of one mode, from the moment that a request was due to its answer: of those that were
 * due before the end, shortest first. Those without an answer have their wait so far. */
typedef struct storm_waits {
  uint32_t *us;
  size_t count;
  size_t unanswered;
} storm_waits;

typedef struct storm_slot {
  atomic_int computing; /* threads of this process inside a query */
  atomic_int ready;
  atomic_uint next; /* of the requests of this slot, the first that no thread has taken */
  pid_t pid;
} storm_slot;

typedef struct storm_shared {
  atomic_int go;
  atomic_int stop;
  atomic_llong start_ns;
  atomic_llong killed_ns; /* of the last kill, while no value has followed it; 0: none */
  int64_t bucket_ms;
  storm_result results[STORM_MODES];
  storm_slot slots[STORM_PROCESSES];
  atomic_uint generation[]; /* computes begun, one per key */
} storm_shared;

typedef struct storm {
  const cli_globals *cli;
  storm_options options;
  storm_shared *shared;
  size_t shared_size;
  double *odds;     /* cumulative share of keys 0..i */
  uint32_t *due_us; /* the schedule: when each request is due, rising */
  size_t due_count;
  atomic_uint *answered[STORM_MODES]; /* the wait of each request, in us; 0: not answered */
  size_t answered_size;
  storm_waits waits[STORM_MODES];
  char folder[STORM_PATH];
  char database[STORM_PATH + 16];
  char store[STORM_PATH + 16];
  int64_t query_us; /* duration of one query alone */
  int argc;
  char **argv;
  whole_file page;
} storm;

extern const char *const storm_mode_names[STORM_MODES];

/* storm_db.c: the database and the query. */
typedef struct storm_db storm_db;
/* Makes the database, with options.load rows or as many as make a query of about 50 ms, and
 * measures one query. Sets options.load and query_us. */
bool storm_db_make(storm *s);
storm_db *storm_db_open(const char *path, atomic_int *stop);
void storm_db_close(storm_db *db);
/* The result of the query for a key; false when it failed, or *stop became true meanwhile. */
bool storm_db_query(storm_db *db, int64_t rows, unsigned key, int64_t *ret);

/* storm_schedule.c: which requests come when, and for which key: the same in each mode and run.
 * False, reported: too many, none at all, or no memory. */
bool storm_schedule_make(storm *s);
void storm_schedule_free(storm *s);
/* The key of a request of the schedule. */
unsigned storm_schedule_key(const storm *s, size_t request);
uint64_t storm_random(uint64_t *state);

/* storm_herd.c: one process of the herd, from its fork to _exit. */
_Noreturn void storm_herd(storm *s, storm_mode mode, storm_slot *slot);
/* Notes how many computes are under way, now or, not NULL, since *since_ns, which becomes now. */
void storm_note_computing(storm_shared *shared, storm_result *result, int64_t *since_ns);

/* storm_result.c: what the waits say. */
/* Ends a mode, whose herd is gone: sets its storm_waits. False without memory, reported. */
bool storm_result_end(storm *s, storm_mode mode);
/* The wait in us that a share of `q` of the requests did not exceed. */
int64_t storm_quantile(const storm_waits *waits, double q);
/* The result in one sentence. */
void storm_reading(const storm *s, char *text, size_t room);
/* The number of buckets of the timeline until the last mode's end. */
int storm_columns(const storm *s);

/* storm_plot.c: the parent's report. */
void storm_report(const storm *s);
void storm_report_json(const storm *s);

/* storm_html.c: the page. Its file appears, or is replaced, when it is whole. All report what
 * fails. */
bool storm_page_open(storm *s);
bool storm_page_write(storm *s);
/* Removes what storm_page_open made, unless the page was written. */
void storm_page_drop(storm *s);

/* storm_chart.c: the page's plots. */
void storm_charts(const storm *s, FILE *f);

#endif
