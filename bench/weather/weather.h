/* weather.h: shared declarations of bench_weather. See weather.c for what it measures.
 *
 *   weather.c  arguments, and the scenarios one after the other
 *   world.c    one fleet: its store, its origin, its processes; what the weather does to them
 *   fleet.c    one process of a fleet: takes the calls that arrive, each by a thread
 *   guard.c    how a call is answered: plain cache, lock and poll, corral
 *   plain.c    the plain client of the store that the first two use; plain_lmdb.c
 *   origin.c   an origin of bounded capacity in its own process, and asking it
 *   proxy.c    the way to the store that can be cut
 *   report.c   figures and the table; chart.c: the chart
 *
 * All times are of CLOCK_MONOTONIC in microseconds. */
#ifndef BENCH_WEATHER_H
#define BENCH_WEATHER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum {
  PROCESSES = 32, /* of a fleet, at most */
  ARRIVALS = 32768,
  STEPS = 512,
  LOADS = 8, /* at most, in one run */
  SCENARIOS = 16,
  PATH = 104,
  TEXT = 48 /* room for a key or a value */
};

typedef enum store_kind { STORE_REDIS, STORE_MEMCACHED, STORE_LMDB, STORE_KINDS } store_kind;
typedef enum guard { GUARD_NONE, GUARD_LOCK, GUARD_CORRAL, GUARD_NEAR, GUARD_RAMP, GUARDS } guard;

typedef enum trigger {
  TRIGGER_STALL,     /* the store is stopped and continued */
  TRIGGER_FLUSH,     /* the store is emptied */
  TRIGGER_HERD,      /* the store is emptied, and stopped while all wait for their leaders */
  TRIGGER_SLOW,      /* the origin takes ten times as long */
  TRIGGER_KILL,      /* the store is emptied, and a process that computes is killed */
  TRIGGER_PARTITION, /* half of the processes can't reach the store */
  TRIGGER_RESTART,   /* all processes are restarted; the store keeps what it has */
  TRIGGER_COLD       /* all processes are restarted, and the store is emptied */
} trigger;

typedef struct scenario {
  const char *name, *title;
  trigger trigger;
  int64_t lasts_us; /* the trigger; goodput during it is judged for this time at least */
  /* 0: those of the plan, by Zipf's law. Else each is asked for as often as the others, and all
   * are in the store when the scenario begins. */
  int keys;
  int64_t ttl_us; /* 0: plan.ttl_us */
} scenario;

/* The settings of a run. */
typedef struct plan {
  store_kind store;
  int processes;      /* of a fleet */
  int workers, queue; /* of the origin: computes at once, and those that may wait */
  int64_t cost_us;    /* of one compute */
  int keys;
  int64_t ttl_us, stale_us;    /* lives of a value: fresh; then its grace, for corral alone */
  int64_t deadline_us;         /* of a call, from its arrival by the schedule */
  int64_t before_us, after_us; /* measured before a trigger, and after its end */
  double loads[LOADS];         /* calls offered, as a multiple of the origin's capacity */
  int load_count;
  int guards[GUARDS]; /* 1: is run */
} plan;

typedef enum outcome {
  OUTCOME_NONE,   /* not answered */
  OUTCOME_FRESH,  /* found, or computed by somebody */
  OUTCOME_STALE,  /* found past its fresh life, as its grace allows */
  OUTCOME_FAILED, /* an error, or the end of the guard's patience */
  OUTCOME_WRONG   /* another key's value */
} outcome;

/* One call: when it is to be made, and how it ended. */
typedef struct arrival {
  int64_t at_us; /* since the beginning */
  int key;
  atomic_int taken;
  atomic_int outcome;
  atomic_llong took_us; /* from the scheduled moment */
} arrival;

/* Memory shared by all processes of a world. */
typedef struct board {
  int64_t begin_us;
  int arrival_count;
  arrival arrivals[ARRIVALS];
  atomic_int up[PROCESSES];            /* the process takes calls */
  atomic_int computing[PROCESSES];     /* its computes under way */
  atomic_int slow;                     /* the factor of a compute's cost */
  atomic_int computes;                 /* begun */
  atomic_int compute_ms[2 * ARRIVALS]; /* when, since the beginning */
} board;

/* One fleet with one guard under one load. */
typedef struct world {
  const plan *plan;
  const scenario *scenario;
  guard guard;
  double load;
  int keys;
  int64_t ttl_us;
  board *board;
  void *server; /* of the store: redis_server or memcached_server; NULL: a file */
  char folder[PATH], origin[PATH], cut[PATH];
  char socket[PATH];                            /* of the store, or its file */
  pid_t origin_pid, proxy_pid, pids[PROCESSES]; /* 0: doesn't run */
} world;

/* The results of one world. Goodput of a span: the calls scheduled in it that were answered in
 * time, by a fresh value or by a stale one within its grace. */
typedef struct figures {
  guard guard;
  double load;
  double during; /* goodput during the trigger, as a share of what the origin can do */
  double back_s; /* from the trigger's end until goodput is back; negative: it never was */
  double stale;  /* share of the good answers, from the trigger on */
  int computes;  /* from the trigger on */
  int good, offered, wrong;
  double share[STEPS]; /* of the calls of each step, those that were good */
  int steps;
} figures;

enum { STEP_US = 250000, STRIKE_AGAIN_US = 100000, JUDGED_US = 1000000 };

/* ---- world.c ------------------------------------------------------------------------------- */

double plan_capacity(const plan *p); /* computes a second */
const char *guard_name(guard g);
void world_make(world *w, const plan *p, const scenario *s, guard g, double load);
/* Fills the store, where the scenario says so. */
void world_fill(world *w);
void world_begin(world *w, int64_t begin_us);
/* Begins the trigger; its second blow, STRIKE_AGAIN_US later; ends it. */
void world_strike(world *w);
void world_strike_again(world *w);
void world_calm(world *w);
void world_end(world *w);

/* ---- fleet.c ------------------------------------------------------------------------------- */

/* One process of the fleet, until the last arrival; it doesn't return. */
_Noreturn void fleet_process(world *w, int number);

/* ---- guard.c ------------------------------------------------------------------------------- */

void guard_open(const world *w, int number);
/* Stores a value for each key. */
void guard_fill(const world *w);
outcome guard_ask(const arrival *a);

/* ---- plain.c ------------------------------------------------------------------------------- */

typedef enum plain_status { PLAIN_OK, PLAIN_MISS, PLAIN_AWAY } plain_status;

/* Sets the store's kind and socket; each thread has a connection of its own. */
void plain_open(store_kind kind, const char *socket);
/* `value`: of TEXT bytes. */
plain_status plain_get(const char *key, char *value);
plain_status plain_set(const char *key, const char *value, int64_t ttl_us);
/* PLAIN_MISS: the key is there already. */
plain_status plain_add(const char *key, const char *value, int64_t ttl_us);
plain_status plain_delete(const char *key);
/* Removes all keys. */
plain_status plain_flush(void);

/* plain_lmdb.c: the same for a file of LMDB; opened once in a process. */
void plain_lmdb_open(const char *path);
plain_status plain_lmdb_get(const char *key, char *value);
plain_status plain_lmdb_store(const char *key, const char *value, int64_t ttl_us, int adds);
plain_status plain_lmdb_delete(const char *key);
plain_status plain_lmdb_flush(void);

/* ---- origin.c ------------------------------------------------------------------------------ */

_Noreturn void origin_serve(const world *w);
/* Asks for a value until then; 0: it refused, or there was no answer in time. */
int origin_ask(const char *socket, const char *key, int64_t until_us, char *value);

/* ---- proxy.c ------------------------------------------------------------------------------- */

_Noreturn void proxy_serve(const char *from, const char *to);

/* ---- sockets ------------------------------------------------------------------------------- */

/* A listening, and a connected unix socket; -1 with errno. */
int socket_listen(const char *path);
int socket_dial(const char *path);
/* Waits for the events of poll(2) until then; 0: they have not come. */
int socket_await(int fd, short events, int64_t until_us);

int64_t clock_us(void);
void sleep_until_us(int64_t until);

/* ---- report.c, chart.c --------------------------------------------------------------------- */

/* The origin's speed during the trigger, as a share of its capacity. */
double report_capacity(const scenario *s);
figures report_figures(const world *w);
void report_head(const plan *p);
void report_scenario(const scenario *s);
/* Prints a line; returns 1 when a guard that is corral's missed its goal. */
int report_line(const scenario *s, const figures *f);
/* A row of the table that report_page prints in Markdown. */
void report_row(const plan *p, const scenario *s, const figures *f, int count);
void report_page(const plan *p);

typedef struct chart chart;
chart *chart_begin(const char *path, const plan *p, double load);
/* A panel: a line for each figure of the chart's load. */
void chart_add(chart *c, const scenario *s, const figures *f, int count);
/* 0: the file could not be written. */
int chart_end(chart *c);

#endif
