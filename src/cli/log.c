/* log.c: corral log: the events of the processes of this host, as they happen. */
#include "log.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPT_KEY = 256, OPT_EVENT, OPT_MIN, OPT_FOR, OPT_PAST };
enum { LOOK_MS = 100, BUSY = 10 /* a look takes a tenth of the time at most */ };

static const int64_t min_most_ms = 86400000, for_most_ms = 31536000000;

/* ---- arguments ----------------------------------------------------------------------------- */

static int event_of(const char *name, size_t len) {
  for (int e = 0; e < CORRAL_EVENT_COUNT; e++) {
    const char *other = corral_event_name((corral_event)e);
    if (strlen(other) == len && memcmp(other, name, len) == 0) return e;
  }
  return -1;
}

/* False: it was reported. */
static bool want_event(log_wish *w, const char *name, size_t len) {
  char shown_name[CLI_KEY_TEXT];
  int event = event_of(name, len);
  (void)cli_visible(shown_name, sizeof shown_name, name, len);
  if (event >= 0 && corral_event_is_logged((corral_event)event)) {
    w->events[event] = w->has_events = true;
    return true;
  }
  cli_guess g = {.wanted = name, .len = len};
  for (int e = 0; e < CORRAL_EVENT_COUNT; e++)
    cli_guess_consider(&g, corral_event_name((corral_event)e));
  if (event >= 0)
    cli_say("log: --event: '%s' is only counted: it happens too often to be logged", shown_name);
  else if (g.best != NULL)
    cli_say("log: --event: there is no event '%s': did you mean %s?", shown_name, g.best);
  else
    cli_say("log: --event: there is no event '%s': docs/events.md lists them", shown_name);
  return false;
}

static bool want_events(log_wish *w, const char *names) {
  for (;;) {
    size_t len = strcspn(names, ",");
    if (!want_event(w, names, len)) return false;
    if (names[len] == '\0') return true;
    names += len + 1;
  }
}

/* -1: go on; else the exit status. */
static int take_option(log_wish *w, int option) {
  bool taken = true;
  switch (option) {
    case OPT_KEY: w->key = optarg; break;
    case OPT_EVENT: taken = want_events(w, optarg); break;
    case OPT_MIN: taken = cli_duration("log: --min", optarg, 0, min_most_ms, &w->min_ms); break;
    case OPT_FOR: taken = cli_duration("log: --for", optarg, 0, for_most_ms, &w->for_ms); break;
    case OPT_PAST: w->past = true; break;
    case 'h': (void)fputs(cli_help("log"), stdout); return cli_finish(CLI_OK);
    default: taken = false;
  }
  return taken ? -1 : CLI_FAILED;
}

static int parse(int argc, char **argv, log_wish *w) {
  static const struct option longs[] = {{"key", required_argument, NULL, OPT_KEY},
                                        {"event", required_argument, NULL, OPT_EVENT},
                                        {"min", required_argument, NULL, OPT_MIN},
                                        {"for", required_argument, NULL, OPT_FOR},
                                        {"past", no_argument, NULL, OPT_PAST},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};
  const cli_grammar grammar = {"log", ":h", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    int status = take_option(w, option);
    if (status >= 0) return status;
  }
  if (argc > optind)
    return cli_fail("log: '%s' is one argument too many: none is accepted", argv[optind]);
  return -1;
}

/* ---- printing ------------------------------------------------------------------------------ */

static void print_moment(int64_t at_us, bool json) {
  char when[40] = "", zone[8] = "";
  struct tm parts;
  time_t seconds = (time_t)(at_us / 1000000);
  if ((json ? gmtime_r(&seconds, &parts) : localtime_r(&seconds, &parts)) != NULL) {
    (void)strftime(when, sizeof when, json ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &parts);
    (void)strftime(zone, sizeof zone, "%z", &parts);
  }
  if (json)
    (void)printf("%s.%06lldZ", when, (long long)(at_us % 1000000));
  else
    (void)printf("%s.%03lld %s", when, (long long)(at_us % 1000000 / 1000), zone);
}

/* The name is the file's: its process may have events that this library doesn't know. */
static void print_line(const log_line *line) {
  const corral_logged *e = &line->logged;
  const corral_event_info info = {.size = sizeof info,
                                  .event = (corral_event)e->event,
                                  .status = e->status,
                                  .key = e->key,
                                  .key_len = e->key_len,
                                  .detail = line->detail,
                                  .duration_us = e->duration_us,
                                  .bytes = e->bytes,
                                  .server = e->server,
                                  .wake = e->wake};
  char text[CORRAL_EVENT_LINE], name[4 * LOG_NAME];
  print_moment(e->at_us, false);
  (void)corral_event_show(&info, text, sizeof text);
  (void)printf(" %s%s", cli_visible(name, sizeof name, line->name, strlen(line->name)),
               text + strlen(corral_event_name(info.event)));
  (void)printf(" [%s %lld", cli_visible(text, sizeof text, line->program, strlen(line->program)),
               (long long)e->pid);
  if (line->cache[0] != '\0')
    (void)printf(" %s", cli_visible(text, sizeof text, line->cache, strlen(line->cache)));
  (void)puts("]");
}

static void print_text(const char *name, const char *text) {
  (void)printf(",\"%s\":", name);
  cli_json_string(stdout, text, strlen(text));
}

static void print_number(const char *name, int64_t n) {
  if (n >= 0) (void)printf(",\"%s\":%lld", name, (long long)n);
}

static void print_json(const log_line *line) {
  const corral_logged *e = &line->logged;
  (void)printf("{\"time\":\"");
  print_moment(e->at_us, true);
  (void)printf("\"");
  print_text("event", line->name);
  if (e->key_len > 0) {
    (void)printf(",\"key\":");
    cli_json_string(stdout, e->key, e->key_kept);
    (void)printf(",\"key_len\":%zu,\"key_hash\":\"%016llx\"", e->key_len,
                 (unsigned long long)e->key_hash);
  }
  print_number("duration_us", e->duration_us);
  print_number("bytes", e->bytes);
  print_number("server", e->server);
  if (e->status != CORRAL_OK) print_text("status", corral_status_name(e->status));
  if (line->detail[0] != '\0') print_text("detail", line->detail);
  (void)printf(",\"pid\":%lld", (long long)e->pid);
  print_text("program", line->program);
  print_text("cache", line->cache);
  print_text("store", line->store);
  (void)puts("}");
}

static void print_missed(const cli_globals *cli, const log_line *line) {
  char program[4 * LOG_PROGRAM];
  if (!cli->json) {
    if (!cli->quiet)
      cli_note("log: %llu events of %s (pid %lld) were written over before they were read",
               (unsigned long long)line->missed,
               cli_visible(program, sizeof program, line->program, strlen(line->program)),
               (long long)line->logged.pid);
    return;
  }
  (void)printf("{\"missed\":%llu,\"pid\":%lld", (unsigned long long)line->missed,
               (long long)line->logged.pid);
  print_text("program", line->program);
  print_text("cache", line->cache);
  (void)puts("}");
}

void log_print(const cli_globals *cli, const log_line *line) {
  if (line->missed > 0) print_missed(cli, line);
  if (line->is_wanted && cli->json) print_json(line);
  if (line->is_wanted && !cli->json) print_line(line);
}

/* ---- following ----------------------------------------------------------------------------- */

static void wait_for(int64_t ms) {
  struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
  (void)nanosleep(&t, NULL);
}

/* Nothing is to be undone: a signal ends the process. */
static int follow(const cli_globals *cli, const log_wish *w) {
  int64_t until = w->for_ms >= 0 ? cli_now_ms() + w->for_ms : INT64_MAX;
  log_files files = {.cli = cli, .wish = w};
  bool goes_on = true;
  while (goes_on) {
    int64_t began = cli_now_ms();
    bool is_last = began >= until;
    if (!log_look(&files)) break;
    goes_on = fflush(stdout) == 0 && !is_last;
    int64_t now = cli_now_ms(), pause = BUSY * (now - began);
    if (pause < LOOK_MS) pause = LOOK_MS;
    if (goes_on && now < until) wait_for(pause < until - now ? pause : until - now);
  }
  log_files_clean(&files);
  return files.failed ? CLI_FAILED : cli_finish(CLI_OK);
}

int cli_log(const cli_globals *cli, int argc, char **argv) {
  log_wish w = {.for_ms = -1};
  int status = parse(argc, argv, &w);
  return status >= 0 ? status : follow(cli, &w);
}
