/* storm.h: shared by the files of `corral storm`: its options, and the shared memory of its
 * processes.
 *
 * The parent makes everything, forks the herd, and then only watches. It has neither a corral nor a
 * database handle while a process of the herd lives, so it can replace a killed one by another
 * fork. All counters are atomic. */
#ifndef CORRAL_STORM_H
#define CORRAL_STORM_H

#include "cli.h"

#include <stdatomic.h>
#include <sys/types.h>

enum {
  STORM_PROCESSES = 64,
  STORM_THREADS = 1024,
  STORM_KEYS = 100000,
  STORM_COLUMNS = 400, /* most buckets of the timeline */
  STORM_PATH = 512,
  HISTOGRAM_FINE = 32, /* buckets per power of two */
  HISTOGRAM = 36 * HISTOGRAM_FINE
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
  int64_t think_ms;
  int64_t load; /* rows in the query; 0: to be calibrated */
  int64_t duration_ms;
  bool kill_leader;
  int64_t kill_every_ms;
} storm_options;

/* Latencies in microseconds, in log-linear buckets: 32 per power of two, so a quantile is at most
 * 1/32 too high. */
typedef struct storm_histogram {
  atomic_ullong count[HISTOGRAM];
} storm_histogram;

/* The result of one mode. */
typedef struct storm_result {
  atomic_ullong requests;
  atomic_ullong computes;
  atomic_ullong errors;
  atomic_ullong wrong;
  /* requests under way at the end; the latencies have their wait so far */
  atomic_ullong cut_off;
  atomic_ullong database_us;
  atomic_llong max_us;
  storm_histogram latency;
  atomic_uint timeline[STORM_COLUMNS]; /* computes begun, per bucket of storm_shared.bucket_ms */
  atomic_uint kills;
  atomic_uint recoveries;
  atomic_llong recovery_sum_us; /* from a kill to the next computed value */
  atomic_llong recovery_max_us;
  _Atomic int last_status; /* of the last request that failed */
  int64_t ran_ms;
} storm_result;

typedef struct storm_slot {
  atomic_int computing; /* threads of this process inside a query */
  atomic_int ready;
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
  double *odds;             /* cumulative share of keys 0..i; set before the fork, private memory */
  atomic_uint generation[]; /* computes begun, one per key */
} storm_shared;

typedef struct storm {
  const cli_globals *cli;
  storm_options options;
  storm_shared *shared;
  size_t shared_size;
  char folder[STORM_PATH];
  char database[STORM_PATH + 16];
  char store[STORM_PATH + 16];
  int64_t query_us; /* duration of one query alone */
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

/* storm_herd.c: one process of the herd, from its fork to _exit. */
_Noreturn void storm_herd(storm *s, storm_mode mode, storm_slot *slot, unsigned seed);
/* Sets shared->odds for a choice of keys by Zipf's law with exponent options.zipf; false without
 * memory. */
bool storm_herd_odds(storm *s);

/* storm_plot.c: the parent's report. */
void storm_report(const storm *s);
void storm_report_json(const storm *s);
void storm_record(storm_histogram *h, int64_t us);
int64_t storm_quantile(const storm_histogram *h, double q);

#endif
