/* weather.c: what a cache guard does in bad weather, and how soon it is over it.
 *
 * A fleet of processes asks a cache in front of an origin of bounded capacity. Calls arrive by a
 * schedule, whatever became of the calls before them; their latency counts from the scheduled
 * moment. A trigger is put in and taken away again: a stalled or emptied store, a slow origin, a
 * killed leader, a partition, a restart. Beside corral stand a plain cache without a guard and a
 * lock with polling, in the same run: the same schedule, the same moment, for each guard and load a
 * store, an origin and a fleet of its own.
 *
 *   bench_weather [--store redis|memcached|lmdb] [--load 0.5,1,2,3] [--guard GUARD,...]
 *                 [--weather NAME,...] [--processes N] [--keys N] [--stale SECONDS] [--svg FILE]
 *                 [--markdown] [--judge] [--short]
 *
 *   --guard    none, lock, corral, near (corral with a near tier), ramp (corral with `ramp`). By
 *              default near is left out of `cold`, and ramp is in that alone.
 *   --weather  stall600, stall3, stall10, flush, herd, slow, kill, partition, restart, cold;
 *              default: all
 *   --processes, --keys  of a fleet (4); asked for (200)
 *   --stale    how long corral may serve a value after its fresh life (30); 0: never
 *   --svg      writes the chart, for load 2 if that is among the loads, else for the last one
 *   --markdown  prints a table for docs/weather.md at the end
 *   --judge    exit status 1 when corral missed a goal: for a machine that does nothing else
 *   --short    a few seconds, small: a test of the program. It judges counts: exit status 1 when a
 *              guard answered nothing or something wrong, or corral computed more than half
 *              as much as the lock
 *
 * Starts its own servers; skips (77) where they are missing. */
#include "weather.h"

#include <stdlib.h>
#include <string.h>

#include "../kit.h"

static plan settings = {.store = STORE_REDIS,
                        .processes = 4,
                        .workers = 8,
                        .queue = 1000,
                        .cost_us = 40000,
                        .keys = 200,
                        .ttl_us = 5000000,
                        .stale_us = 30000000,
                        .deadline_us = 2000000,
                        .before_us = 3000000,
                        .after_us = 5000000,
                        .loads = {0.5, 1, 2, 3},
                        .load_count = 4,
                        .guards = {[GUARD_NONE] = 1, [GUARD_LOCK] = 1, [GUARD_CORRAL] = 1}};

static const scenario scenarios[] = {
    {"stall600", "Store stalled for 0.6 s", TRIGGER_STALL, 600000, 0, 0},
    {"stall3", "Store stalled for 3 s", TRIGGER_STALL, 3000000, 0, 0},
    {"stall10", "Store stalled for 10 s", TRIGGER_STALL, 10000000, 0, 0},
    {"flush", "Store emptied", TRIGGER_FLUSH, 0, 0, 0},
    {"herd", "Store emptied, and stalled 0.1 s later for 0.6 s", TRIGGER_HERD, 700000, 0, 0},
    {"slow", "Origin ten times as slow for 10 s", TRIGGER_SLOW, 10000000, 0, 0},
    {"kill", "Store emptied, and a leader killed for 1 s", TRIGGER_KILL, 1000000, 0, 0},
    {"partition", "Half of the processes cut from the store for 5 s", TRIGGER_PARTITION, 5000000, 0,
     0},
    {"restart", "All processes restarted", TRIGGER_RESTART, 0, 0, 0},
    /* the trigger is as long as the origin needs for all keys */
    {"cold", "All processes restarted on an empty store, 3,000 keys", TRIGGER_COLD, 15000000, 3000,
     60000000}};

enum { SCENARIO_COUNT = sizeof scenarios / sizeof *scenarios, WORLDS = LOADS * GUARDS };

static int chosen[SCENARIO_COUNT], guards_given, is_short, makes_page, judges, missed, failed;
static const char *svg;

/* ---- one scenario -------------------------------------------------------------------------- */

/* By default each guard is where it has something to show. */
static int takes_part(guard g, const scenario *s) {
  if (!guards_given && g == GUARD_NEAR) return s->trigger != TRIGGER_COLD;
  if (!guards_given && g == GUARD_RAMP) return s->trigger == TRIGGER_COLD;
  return settings.guards[g];
}

static int make_worlds(world *worlds, const scenario *s) {
  int count = 0;
  for (int l = 0; l < settings.load_count; l++)
    for (guard g = 0; g < GUARDS; g++)
      if (takes_part(g, s)) world_make(&worlds[count++], &settings, s, g, settings.loads[l]);
  for (int i = 0; i < count; i++) world_fill(&worlds[i]);
  return count;
}

static void run_weather(world *worlds, int count, const scenario *s) {
  int64_t begin = clock_us() + 200000 + 20000 * count;
  for (int i = 0; i < count; i++) world_begin(&worlds[i], begin);
  sleep_until_us(begin + settings.before_us);
  for (int i = 0; i < count; i++) world_strike(&worlds[i]);
  sleep_until_us(begin + settings.before_us + STRIKE_AGAIN_US);
  for (int i = 0; i < count; i++) world_strike_again(&worlds[i]);
  sleep_until_us(begin + settings.before_us + s->lasts_us);
  for (int i = 0; i < count; i++) world_calm(&worlds[i]);
  sleep_until_us(begin + settings.before_us + s->lasts_us + settings.after_us +
                 settings.deadline_us);
}

/* The counts that hold on any machine. */
static void judge(const figures *f, int count) {
  const figures *of[GUARDS] = {0};
  for (int i = 0; i < count; i++) {
    of[f[i].guard] = &f[i];
    failed |= f[i].good == 0 || f[i].wrong > 0;
  }
  for (guard g = GUARD_CORRAL; g < GUARDS; g++)
    failed |=
        of[g] != NULL && of[GUARD_LOCK] != NULL && 2 * of[g]->computes > of[GUARD_LOCK]->computes;
}

static void run_scenario(const scenario *s, chart *c) {
  static world worlds[WORLDS];
  static figures all[WORLDS];
  int count = make_worlds(worlds, s);
  run_weather(worlds, count, s);
  report_scenario(s);
  for (int i = 0; i < count; i++) {
    all[i] = report_figures(&worlds[i]);
    missed += report_line(s, &all[i]);
    world_end(&worlds[i]);
  }
  if (makes_page) report_row(&settings, s, all, count);
  if (c != NULL) chart_add(c, s, all, count);
  if (is_short) judge(all, count);
}

/* ---- arguments ----------------------------------------------------------------------------- */

static _Noreturn void usage(const char *word) {
  fprintf(stderr, "bench_weather: '%s'; accepted: see the head of bench/weather/weather.c\n", word);
  exit(2);
}

static double number(const char *text, double least, double most) {
  char *end;
  double n = strtod(text, &end);
  if (end == text || *end != '\0' || n < least || n > most) usage(text);
  return n;
}

/* Calls `each` for each word of a list with commas. */
static void words(char *list, void (*each)(const char *word)) {
  char *save = NULL;
  for (char *word = strtok_r(list, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save))
    each(word);
}

static void add_load(const char *word) {
  if (settings.load_count == LOADS) usage(word);
  settings.loads[settings.load_count++] = number(word, 0.1, 5);
}

static void add_guard(const char *word) {
  for (guard g = 0; g < GUARDS; g++)
    if (strcmp(word, guard_name(g)) == 0) {
      settings.guards[g] = 1;
      return;
    }
  usage(word);
}

static void add_scenario(const char *word) {
  for (int i = 0; i < SCENARIO_COUNT; i++)
    if (strcmp(word, scenarios[i].name) == 0) {
      chosen[i] = 1;
      return;
    }
  usage(word);
}

static void set_store(const char *word) {
  static const char *const names[STORE_KINDS] = {"redis", "memcached", "lmdb"};
  for (store_kind kind = 0; kind < STORE_KINDS; kind++)
    if (strcmp(word, names[kind]) == 0) {
      settings.store = kind;
      return;
    }
  usage(word);
}

/* A small origin and few keys, so that a herd is a herd on any machine. */
static void be_short(void) {
  is_short = guards_given = 1;
  settings.workers = 4;
  settings.keys = 4;
  settings.before_us = 1500000;
  settings.after_us = 2000000;
  settings.load_count = 0;
  add_load("2");
  add_scenario("stall3");
}

static void take_option(const char *name, char *value) {
  if (strcmp(name, "--load") == 0) {
    settings.load_count = 0;
    words(value, add_load);
  } else if (strcmp(name, "--guard") == 0) {
    guards_given = 1;
    memset(settings.guards, 0, sizeof settings.guards);
    words(value, add_guard);
  } else if (strcmp(name, "--weather") == 0) {
    words(value, add_scenario);
  } else if (strcmp(name, "--store") == 0) {
    set_store(value);
  } else if (strcmp(name, "--processes") == 0) {
    settings.processes = (int)number(value, 2, PROCESSES);
  } else if (strcmp(name, "--keys") == 0) {
    settings.keys = (int)number(value, 1, 10000);
  } else if (strcmp(name, "--stale") == 0) {
    settings.stale_us = (int64_t)(number(value, 0, 600) * 1e6);
  } else if (strcmp(name, "--svg") == 0) {
    svg = value;
  } else {
    usage(name);
  }
}

static void take_options(int argc, char **argv) {
  int some = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--short") == 0)
      be_short();
    else if (strcmp(argv[i], "--markdown") == 0)
      makes_page = 1;
    else if (strcmp(argv[i], "--judge") == 0)
      judges = 1;
    else if (i + 1 == argc)
      usage(argv[i]);
    else
      take_option(argv[i], argv[i + 1]), i++;
  }
  for (int i = 0; i < SCENARIO_COUNT; i++) some |= chosen[i];
  for (int i = 0; i < SCENARIO_COUNT; i++) chosen[i] |= !some;
}

static double load_of_chart(void) {
  for (int i = 0; i < settings.load_count; i++)
    if (settings.loads[i] == 2) return 2;
  return settings.loads[settings.load_count - 1];
}

/* A file can't be stopped, nor cut off. */
static int is_possible(const scenario *s) {
  int possible =
      settings.store != STORE_LMDB || (s->trigger != TRIGGER_STALL && s->trigger != TRIGGER_HERD &&
                                       s->trigger != TRIGGER_PARTITION);
  if (!possible) printf("\n%s: not with lmdb\n", s->title);
  return possible;
}

int main(int argc, char **argv) {
  take_options(argc, argv);
  chart *c = svg == NULL ? NULL : chart_begin(svg, &settings, load_of_chart());
  report_head(&settings);
  for (int i = 0; i < SCENARIO_COUNT; i++)
    if (chosen[i] && is_possible(&scenarios[i])) run_scenario(&scenarios[i], c);
  printf("\n%d of corral's goals missed\n", missed);
  if (makes_page) report_page(&settings);
  if (c != NULL && !chart_end(c)) die("the chart can't be written");
  return failed || (judges && missed > 0);
}
