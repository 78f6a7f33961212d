/* flights.c: corral flights: what the processes of this host compute and wait for now. */
#include "cli.h"

#include <corral/stats.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  OPT_WATCH = 256,
  NAME_ROOM = 64,   /* of a program */
  CACHE_ROOM = 256, /* of a namespace, or a store's URI */
  HOST_ROOM = HOST_NAME_MAX + 1,
  MOST = 1 << 16 /* flights that are kept for one list */
};

static const int64_t watch_ms = 1000, watch_most_ms = 86400000;

typedef struct shown {
  corral_flight flight;
  char program[NAME_ROOM], cache[CACHE_ROOM], store[CACHE_ROOM];
} shown;

typedef struct listing {
  const cli_globals *cli;
  int64_t every_ms; /* 0: once */
  char host[HOST_ROOM];
  shown *flights;
  size_t count, room;
  uint64_t more; /* that no table, or no memory, had room for */
  const corral_stats *of;
} listing;

/* ---- arguments ----------------------------------------------------------------------------- */

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, listing *l) {
  static const struct option longs[] = {
      {"watch", optional_argument, NULL, OPT_WATCH}, {"help", no_argument, NULL, 'h'}, {0}};
  const cli_grammar grammar = {"flights", ":h", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    switch (option) {
      case OPT_WATCH:
        l->every_ms = watch_ms;
        if (optarg != NULL &&
            !cli_duration("flights: --watch", optarg, 100, watch_most_ms, &l->every_ms))
          return CLI_FAILED;
        break;
      case 'h': (void)fputs(cli_help("flights"), stdout); return cli_finish(CLI_OK);
      default: return CLI_FAILED;
    }
  }
  if (argc > optind)
    return cli_fail("flights: '%s' is one argument too many: none is accepted", argv[optind]);
  return -1;
}

/* ---- looking ------------------------------------------------------------------------------- */

/* False: there is no room for one more. */
static bool make_room(listing *l) {
  if (l->count < l->room) return true;
  size_t room = l->room == 0 ? 64 : 2 * l->room;
  shown *flights = room > MOST ? NULL : realloc(l->flights, room * sizeof *flights);
  if (flights == NULL) return false;
  l->flights = flights;
  l->room = room;
  return true;
}

static int take(const corral_flight *flight, void *arg) {
  listing *l = arg;
  if (!make_room(l)) {
    l->more++;
    return 0;
  }
  shown *s = &l->flights[l->count++];
  s->flight = *flight;
  (void)snprintf(s->program, sizeof s->program, "%s", corral_stats_program(l->of));
  (void)snprintf(s->cache, sizeof s->cache, "%s", corral_stats_cache(l->of));
  (void)snprintf(s->store, sizeof s->store, "%s", corral_stats_store(l->of));
  return 0;
}

static int take_all(const corral_stats *stats, void *arg) {
  listing *l = arg;
  l->of = stats;
  (void)corral_stats_flights(stats, take, l);
  l->more += corral_stats_flights_more(stats);
  return 0;
}

static int by_age(const void *a, const void *b) {
  const shown *x = a, *y = b;
  if (x->flight.since_ms != y->flight.since_ms)
    return x->flight.since_ms < y->flight.since_ms ? 1 : -1;
  return x->flight.pid < y->flight.pid ? -1 : x->flight.pid > y->flight.pid;
}

/* False: the folder can't be read, which was reported. */
static bool look(listing *l) {
  corral_error error = {0};
  l->count = 0;
  l->more = 0;
  int status = corral_stats_host(NULL, take_all, l, &error);
  if (status != CORRAL_OK) (void)cli_report_as("flights", status, &error);
  if (l->count > 0) qsort(l->flights, l->count, sizeof *l->flights, by_age);
  return status == CORRAL_OK;
}

/* ---- printing ------------------------------------------------------------------------------ */

static void print_line(const listing *l, const shown *s) {
  const corral_flight *f = &s->flight;
  char key[4 * CORRAL_STATS_KEY + 8], program[4 * NAME_ROOM], cache[4 * CACHE_ROOM];
  char since[CLI_DURATION_TEXT], usually[CLI_DURATION_TEXT], host[4 * HOST_ROOM];
  (void)printf("%s%s: %s for %s, ", cli_visible(key, sizeof key, f->key, f->key_kept),
               f->key_kept < f->key_len ? "..." : "", corral_flight_name(f->state),
               cli_duration_text(since, f->since_ms));
  if (f->expected_ms > 0) (void)printf("usually %s, ", cli_duration_text(usually, f->expected_ms));
  (void)printf("%lld waiting, %s (pid %lld) on %s%s%s\n", (long long)f->waiters,
               cli_visible(program, sizeof program, s->program, strlen(s->program)),
               (long long)f->pid, cli_visible(host, sizeof host, l->host, strlen(l->host)),
               s->cache[0] != '\0' ? ", cache " : "",
               cli_visible(cache, sizeof cache, s->cache, strlen(s->cache)));
}

static void print_text(const char *name, const char *text) {
  (void)printf(",\"%s\":", name);
  cli_json_string(stdout, text, strlen(text));
}

static void print_json(const listing *l, const shown *s) {
  const corral_flight *f = &s->flight;
  (void)printf("{\"key\":");
  cli_json_string(stdout, f->key, f->key_kept);
  (void)printf(",\"key_len\":%zu,\"key_hash\":\"%016llx\",\"state\":\"%s\",\"since_ms\":%lld",
               f->key_len, (unsigned long long)f->key_hash, corral_flight_name(f->state),
               (long long)f->since_ms);
  if (f->expected_ms > 0)
    (void)printf(",\"usual_ms\":%lld", (long long)f->expected_ms);
  else
    (void)printf(",\"usual_ms\":null");
  (void)printf(",\"waiting\":%lld,\"pid\":%lld", (long long)f->waiters, (long long)f->pid);
  print_text("program", s->program);
  print_text("cache", s->cache);
  print_text("store", s->store);
  print_text("host", l->host);
  (void)puts("}");
}

static void print(const listing *l) {
  for (size_t i = 0; i < l->count; i++) {
    if (l->cli->json)
      print_json(l, &l->flights[i]);
    else
      print_line(l, &l->flights[i]);
  }
  if (l->more > 0 && !l->cli->quiet)
    cli_note("flights: %llu more are under way: each process lists 64",
             (unsigned long long)l->more);
}

/* ---- watching ------------------------------------------------------------------------------ */

/* A terminal is cleared before each list; elsewhere an empty line ends it. */
static bool clears(void) {
  const char *terminal = getenv("TERM");
  return isatty(STDOUT_FILENO) && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

static void wait_for(int64_t ms) {
  struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
  (void)nanosleep(&t, NULL);
}

/* Nothing is to be undone: a signal ends the process. */
static int watch(listing *l) {
  bool on_screen = !l->cli->json && clears();
  while (look(l)) {
    if (on_screen) (void)fputs("\033[H\033[2J", stdout);
    print(l);
    if (!on_screen && !l->cli->json) (void)puts("");
    if (fflush(stdout) != 0) return cli_finish(CLI_OK);
    wait_for(l->every_ms);
  }
  return CLI_FAILED;
}

static int once(listing *l) {
  if (!look(l)) return CLI_FAILED;
  print(l);
  if (l->count == 0 && l->more == 0 && !l->cli->quiet) cli_note("no flights");
  return cli_finish(l->count > 0 ? CLI_OK : CLI_MISS);
}

int cli_flights(const cli_globals *cli, int argc, char **argv) {
  listing l = {.cli = cli};
  int status = parse(argc, argv, &l);
  if (status >= 0) return status;
  if (gethostname(l.host, sizeof l.host) != 0) l.host[0] = '\0';
  l.host[sizeof l.host - 1] = '\0';
  status = l.every_ms > 0 ? watch(&l) : once(&l);
  free(l.flights);
  return status;
}
