/* stat.c: corral stat: what all processes of this host have counted. */
#include "stat.h"

#include "whole.h"

#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
  OPT_JSON = 256,
  OPT_PROMETHEUS,
  OPT_WATCH,
  OPT_OUTPUT,
  OPT_STATS_DIR,
  OPT_COUNT,
  WATCH_MS = 1000,
  WATCH_LEAST_MS = 100,
  WATCH_MOST_MS = 24 * 3600 * 1000,
  HEADER_EVERY = 20 /* lines of rates */
};

typedef struct stat_options {
  const char *dir, *output;
  bool is_json, is_prometheus, is_quiet;
  int64_t watch_ms; /* 0: once */
  int64_t count;    /* looks; 0: no end */
} stat_options;

/* ---- arguments ----------------------------------------------------------------------------- */

static bool take_json(stat_options *o) {
  if (!o->is_json) cli_say_json();
  return o->is_json = true;
}

static bool take_option(stat_options *o, int option) {
  switch (option) {
    case OPT_JSON: return take_json(o);
    case OPT_PROMETHEUS: return o->is_prometheus = true;
    case OPT_WATCH:
      o->watch_ms = WATCH_MS;
      return optarg == NULL ||
             cli_duration("stat: --watch", optarg, WATCH_LEAST_MS, WATCH_MOST_MS, &o->watch_ms);
    case OPT_OUTPUT: return (o->output = optarg) != NULL;
    case OPT_STATS_DIR: return (o->dir = optarg) != NULL;
    case OPT_COUNT: return cli_count("stat: --count", optarg, 1, INT32_MAX, &o->count);
    default: return false;
  }
}

/* -1: go on; else the exit status. */
static int parse(stat_options *o, int argc, char **argv) {
  static const struct option longs[] = {{"json", no_argument, NULL, OPT_JSON},
                                        {"prometheus", no_argument, NULL, OPT_PROMETHEUS},
                                        {"output", required_argument, NULL, OPT_OUTPUT},
                                        {"watch", optional_argument, NULL, OPT_WATCH},
                                        {"count", required_argument, NULL, OPT_COUNT},
                                        {"stats-dir", required_argument, NULL, OPT_STATS_DIR},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};
  const cli_grammar grammar = {"stat", ":h", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option == 'h') return cli_print(cli_help("stat"));
    if (!take_option(o, option)) return CLI_FAILED;
  }
  if (optind < argc)
    return cli_fail("stat: '%s' is one argument too many: none is accepted", argv[optind]);
  if (o->is_prometheus && o->is_json)
    return cli_fail("stat: --prometheus and --json: one of them is accepted");
  if (o->output != NULL && !o->is_prometheus) return cli_fail("stat: --output is for --prometheus");
  if (o->count > 0 && o->watch_ms == 0) return cli_fail("stat: --count is for --watch");
  return -1;
}

/* ---- the folder ---------------------------------------------------------------------------- */

bool stat_check_folder(const char *what, const char *dir) {
  if (dir == NULL || access(dir, R_OK | X_OK) == 0) return true;
  cli_say("%s: --stats-dir: %s: %s", what, dir, strerror(errno));
  return false;
}

/* Anybody may make names there: others than of users' folders aren't shown. */
static bool is_users(const char *path) {
  const char *uid = strrchr(path, '.') + 1;
  return uid[0] != '\0' && uid[strspn(uid, "0123456789")] == '\0';
}

void stat_note_left_out(const char *what, const char *dir) {
  char list[512] = "";
  size_t used = 0;
  glob_t found = {0};
  const char *own = getenv("CORRAL_STATS_DIR");
  if (dir != NULL || (own != NULL && own[0] != '\0')) return;
  if (glob("/dev/shm/corral-stats.*", GLOB_NOSORT, NULL, &found) != 0) return;
  for (size_t i = 0; i < found.gl_pathc && used < sizeof list; i++)
    if (is_users(found.gl_pathv[i]) && access(found.gl_pathv[i], R_OK | X_OK) != 0)
      used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "",
                               found.gl_pathv[i]);
  globfree(&found);
  if (used > 0)
    cli_note("%s: left out, because only their user and root may read it: %s", what, list);
}

int stat_nothing(const char *what) {
  const char *own = getenv("CORRAL_STATS_DIR");
  if (own != NULL && strcmp(own, "off") == 0)
    cli_say("%s: CORRAL_STATS_DIR is off: nothing is counted here", what);
  else if (own != NULL && own[0] != '\0' && own[0] != '/')
    cli_say("%s: CORRAL_STATS_DIR is no absolute path, nor off: nothing is counted here", what);
  else
    cli_say("%s: no process has counted anything yet", what);
  return CLI_MISS;
}

/* ---- output -------------------------------------------------------------------------------- */

static int failed(const corral_error *error) { return cli_fail("stat: %s", error->text); }

static int write_prometheus(const stat_options *o, const stat_host *h) {
  corral_error error = {0};
  whole_file file = {0};
  if (o->output == NULL)
    return stat_print_prometheus(h, stdout, &error) ? cli_finish(CLI_OK) : failed(&error);
  const char *why = whole_open(&file, o->output);
  if (why == NULL && !stat_print_prometheus(h, file.file, &error)) {
    whole_drop(&file);
    return failed(&error);
  }
  if (why == NULL) why = whole_end(&file);
  return why == NULL ? CLI_OK : cli_fail("stat: --output: %s: %s", o->output, why);
}

/* Once. */
static void note_others(const stat_options *o, const stat_host *h) {
  static bool is_said;
  if (h->has_others && !is_said && !o->is_quiet)
    cli_note("stat: more than %d caches (a namespace at a store): the rest is summed as %s",
             STAT_CACHES, STAT_OTHERS);
  is_said |= h->has_others;
}

/* A collector gets a page that is whole, also when nothing has been counted yet. */
static int print(const stat_options *o, const stat_host *h) {
  note_others(o, h);
  if (o->is_prometheus) return write_prometheus(o, h);
  if (h->cache_count == 0) return stat_nothing("stat");
  if (o->is_json)
    stat_print_json(h);
  else
    stat_print_text(h);
  return cli_finish(CLI_OK);
}

static int print_once(const stat_options *o) {
  stat_host h;
  corral_error error;
  int status = stat_gather(o->dir, &h, &error) ? print(o, &h) : failed(&error);
  stat_drop(&h);
  return status;
}

/* ---- again and again ----------------------------------------------------------------------- */

/* The number of the signal that came before `at_ns` of cli_now_ns; 0: none. */
static int signal_until(int signals, int64_t at_ns) {
  struct signalfd_siginfo info;
  struct pollfd poller = {.fd = signals, .events = POLLIN};
  int64_t left_ms = (at_ns - cli_now_ns() + 999999) / 1000000;
  if (poll(&poller, 1, left_ms > 0 ? (int)left_ms : 0) <= 0) return 0;
  return read(signals, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

/* Prints the rates between two looks; `lines` counts the lines so far. */
static int print_change(const stat_options *o, const stat_host *now, const stat_host *before,
                        double seconds, size_t *lines) {
  note_others(o, now);
  if (o->is_json) {
    stat_print_json_rates(now, before, seconds);
  } else {
    stat_print_rates(now, before, seconds, *lines == 0);
    *lines = *lines + now->cache_count >= HEADER_EVERY ? 0 : *lines + now->cache_count;
  }
  return cli_finish(CLI_OK);
}

static int look(const stat_options *o, stat_host *ret) {
  corral_error error;
  return stat_look(o->dir, ret, &error) ? CLI_OK : failed(&error);
}

static int watch_rates(const stat_options *o, int signals) {
  stat_host before, now = {0};
  size_t lines = 0;
  int status = look(o, &before), signo = 0;
  int64_t last_ns = cli_now_ns();
  for (int64_t i = 0; status == CLI_OK && (o->count == 0 || i < o->count); i++) {
    signo = signal_until(signals, last_ns + o->watch_ms * 1000000);
    if (signo != 0) break;
    int64_t now_ns = cli_now_ns();
    status = look(o, &now);
    if (status == CLI_OK)
      status = print_change(o, &now, &before, (double)(now_ns - last_ns) / 1e9, &lines);
    stat_drop(&before);
    before = now;
    now = (stat_host){0};
    last_ns = now_ns;
  }
  stat_drop(&before);
  return signo != 0 ? CLI_SIGNAL + signo : status;
}

static int watch_page(const stat_options *o, int signals) {
  int status = print_once(o), signo = 0;
  int64_t next_ns = cli_now_ns();
  for (int64_t i = 1; status == CLI_OK && (o->count == 0 || i < o->count); i++) {
    next_ns += o->watch_ms * 1000000;
    signo = signal_until(signals, next_ns);
    if (signo != 0) return CLI_SIGNAL + signo;
    status = print_once(o);
  }
  return status;
}

static int watch(const stat_options *o) {
  sigset_t old;
  int signals = cli_take_signals(&old);
  if (signals < 0) return cli_fail("stat: %s", strerror(errno));
  int status = o->is_prometheus ? watch_page(o, signals) : watch_rates(o, signals);
  (void)close(signals);
  return status;
}

int cli_stat(const cli_globals *cli, int argc, char **argv) {
  stat_options o = {.is_json = cli->json, .is_quiet = cli->quiet};
  int status = parse(&o, argc, argv);
  if (status >= 0) return status;
  if (!stat_check_folder("stat", o.dir)) return CLI_FAILED;
  if (!o.is_quiet) stat_note_left_out("stat", o.dir);
  return o.watch_ms > 0 ? watch(&o) : print_once(&o);
}
