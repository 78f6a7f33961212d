/* stat.h: the counts of this host's corrals, summed by cache and store, for corral stat and corral
 * top.
 *
 * All texts of a stat_host come from files of other processes, and are fit to be shown already:
 * caches whose names look the same are one. */
#ifndef CORRAL_CLI_STAT_H
#define CORRAL_CLI_STAT_H

#include "cli.h"

#include <corral/stats.h>

/* Numbers that only grow. */
typedef struct stat_counts {
  uint64_t results[CORRAL_RESULT_COUNT];
  uint64_t events[CORRAL_EVENT_COUNT];
  uint64_t saved_us; /* time that the origin did not have to spend */
  corral_histogram times[CORRAL_TIME_COUNT];
} stat_counts;

/* A cache (a namespace) at one store, or, with a store of NULL, at all of them. The counts are
 * those of all processes there have been, the rest is about the living ones. */
typedef struct stat_cache {
  char *name, *store;
  corral_stats *sum;
  stat_counts counts; /* those of the sum */
  int64_t gauges[CORRAL_GAUGE_COUNT];
  uint64_t wake[CORRAL_WAKE_COUNT]; /* processes, by how they learn of changes */
  size_t processes;
} stat_cache;

typedef struct stat_process {
  int64_t pid, started_ms;
  char *program, *version;
} stat_process;

/* A cache takes some 100 KB, and anybody may make names: those that are read after so many others
 * are one row, and nothing is lost from sums. The files of users with small numbers are read
 * first. */
enum { STAT_CACHES = 1024 };
#define STAT_OTHERS "(others)"
#define STAT_OTHERS_STORE "several stores"

typedef struct stat_host {
  stat_cache **caches; /* sorted by name and store */
  size_t cache_count;
  bool has_others;
  stat_process *processes; /* living ones */
  size_t process_count;
} stat_host;

/* stat_gather.c. `dir`: the folder; NULL: those that corral uses by itself. False: the error's text
 * says why. stat_drop frees in both cases. */
bool stat_gather(const char *dir, stat_host *ret, corral_error *error);
/* The caches of *h, each with the sum over its stores, without its processes. */
bool stat_by_name(const stat_host *h, stat_host *ret, corral_error *error);
/* Both, with the processes. */
bool stat_look(const char *dir, stat_host *ret, corral_error *error);
void stat_drop(stat_host *h);
/* The cache of that name and store; NULL: there is none. */
const stat_cache *stat_find(const stat_host *h, const char *name, const char *store);
/* The difference of two counts; `before` NULL: all of `now`. */
void stat_since(const stat_counts *now, const stat_counts *before, stat_counts *ret);

uint64_t stat_gets(const stat_counts *c);
/* Calls that were answered at once: without a compute, and without a wait for one. */
uint64_t stat_hits(const stat_counts *c);
/* Calls that were answered without a compute of their own. */
uint64_t stat_spared(const stat_counts *c);
/* "98.3 %"; "-" without a call. */
enum { STAT_RATIO_TEXT = 16 };
const char *stat_ratio(char text[STAT_RATIO_TEXT], uint64_t part, uint64_t all);
/* The nines of a share of equal ones, as 3 for 99.9 %: rounded down. */
unsigned stat_nines(uint64_t same, uint64_t differ);
/* The operator's order that its processes follow; of several the largest one. */
const char *stat_order(const stat_cache *c);
/* Number of living processes of that version of corral; the versions, one by one: those whose
 * number `i` is the first of its kind. */
size_t stat_of_version(const stat_host *h, size_t i, bool *ret_is_first);

extern const char *const stat_wake_names[CORRAL_WAKE_COUNT];

/* Events that a healthy cache doesn't have. */
enum { STAT_TROUBLES = 20 };
extern const corral_event stat_troubles[STAT_TROUBLES];

/* stat_text.c, stat_json.c, stat_prometheus.c: write the whole. False as for stat_by_name. */
void stat_print_text(const stat_host *h);
void stat_print_json(const stat_host *h);
bool stat_print_prometheus(const stat_host *h, FILE *f, corral_error *error);
/* The text, cut to so many columns, and filled up with blanks where `pads`. Room for 4 bytes for
 * each column, and one more, is enough. */
const char *stat_fit(char *to, size_t room, const char *text, size_t columns, bool pads);
/* The cache's name, or that it has none. */
const char *stat_cache_name(const stat_cache *c);
/* `count` by the second, in at most eight characters. */
enum { STAT_RATE_TEXT = 24 };
const char *stat_rate(char text[STAT_RATE_TEXT], uint64_t count, double seconds);
/* The local time of day. */
enum { STAT_CLOCK_TEXT = 16 };
const char *stat_clock(char text[STAT_CLOCK_TEXT]);
/* The rates between two looks, `seconds` apart: a line for each cache; both by name. */
void stat_print_rates(const stat_host *now, const stat_host *before, double seconds, bool header);
void stat_print_json_rates(const stat_host *now, const stat_host *before, double seconds);

/* stat.c. `what` names the subcommand in messages. */
/* False: the folder can't be read, which has been reported. */
bool stat_check_folder(const char *what, const char *dir);
/* Names the folders of other users that can't be read, unless one folder was named. */
void stat_note_left_out(const char *what, const char *dir);
/* Says that there is nothing to show; returns the exit status. */
int stat_nothing(const char *what);

#endif
