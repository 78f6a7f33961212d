/* warm_options.c: the command line of corral warm. */
#include "warm.h"

#include <stdlib.h>
#include <string.h>

enum {
  OPT_EXEC = 256,
  OPT_ORIGIN,
  OPT_SQLITE,
  OPT_PG,
  OPT_MARIADB,
  OPT_QUERY,
  OPT_KEYS,
  OPT_SITEMAP,
  OPT_AS_RUN,
  OPT_RATE,
  OPT_AHEAD,
  OPT_SPREAD,
  OPT_WATCH,
  OPT_PROGRESS,
  OPT_PATIENCE,
  OPT_CACHE_FAILURES,
  OPT_TAG
};
enum { DEFAULT_LIMIT_MS = 600000, RETRY_MAX_MS = 30000 };

static const int64_t most_life_ms = 315360000000;
static const int64_t day_ms = 86400000;

static const struct option longs[] = {
    {"exec", required_argument, NULL, OPT_EXEC},
    {"origin", required_argument, NULL, OPT_ORIGIN},
    {"sqlite", required_argument, NULL, OPT_SQLITE},
    {"pg", required_argument, NULL, OPT_PG},
    {"mariadb", required_argument, NULL, OPT_MARIADB},
    {"query", required_argument, NULL, OPT_QUERY},
    {"keys", required_argument, NULL, OPT_KEYS},
    {"sitemap", required_argument, NULL, OPT_SITEMAP},
    {"as-run", no_argument, NULL, OPT_AS_RUN},
    {"null", no_argument, NULL, '0'},
    {"comments", no_argument, NULL, 'c'},
    {"jobs", required_argument, NULL, 'j'},
    {"rate", required_argument, NULL, OPT_RATE},
    {"ahead", required_argument, NULL, OPT_AHEAD},
    {"spread", required_argument, NULL, OPT_SPREAD},
    {"watch", optional_argument, NULL, OPT_WATCH},
    {"progress", required_argument, NULL, OPT_PROGRESS},
    {"patience", required_argument, NULL, OPT_PATIENCE},
    {"cache-failures", required_argument, NULL, OPT_CACHE_FAILURES},
    {"tag", required_argument, NULL, OPT_TAG},
    {"help", no_argument, NULL, 'h'},
    {0},
};

/* Parses "10", "10/s", "0.5/s", "100/m", "1000/h". */
static bool set_rate(warm_options *o, const char *text) {
  static const struct {
    const char *unit;
    double seconds;
  } units[] = {{"", 1}, {"/s", 1}, {"/m", 60}, {"/h", 3600}};
  char *end = NULL;
  double n = strtod(text, &end);
  for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++)
    if (strcmp(end, units[i].unit) == 0 && n / units[i].seconds >= 0.0001 &&
        n / units[i].seconds <= 1e6) {
      o->rate = n / units[i].seconds;
      return true;
    }
  cli_say("warm: --rate: '%s' is not accepted: a number and /s, /m or /h is, as in 50/s, of 0.0001 "
          "to 1000000 a second",
          text);
  return false;
}

static bool add_sitemap(warm_options *o, char *text) {
  if (o->sitemap_count == WARM_SITEMAPS)
    return cli_say("warm: --sitemap: at most %d are accepted", WARM_SITEMAPS), false;
  o->sitemaps[o->sitemap_count++] = strstr(text, "://") != NULL ? cli_take_uri(text) : text;
  return true;
}

static bool set_option(warm_options *o, int option) {
  const cli_flags flags = {.subcommand = "warm", .policy = &o->policy, .options = &o->options};
  switch (option) {
    case 1: o->files[o->file_count++] = optarg; return true;
    case '0': o->nul = true; return true;
    case 'c': o->comments = true; return true;
    case 'j': return cli_count("warm: --jobs", optarg, 1, WARM_THREADS, &o->threads);
    case OPT_EXEC: o->shell = optarg; return true;
    case OPT_ORIGIN: o->url = cli_take_uri(optarg); return true;
    case OPT_SQLITE: o->sqlite = optarg; return true;
    case OPT_PG: o->pg = cli_take_conninfo(optarg); return true;
    case OPT_MARIADB: o->mariadb = cli_take_conninfo(optarg); return true;
    case OPT_QUERY: o->query = optarg; return true;
    case OPT_KEYS: o->keys_query = optarg; return true;
    case OPT_SITEMAP: return add_sitemap(o, optarg);
    case OPT_AS_RUN: o->as_run = true; return true;
    case OPT_RATE: return set_rate(o, optarg);
    case OPT_AHEAD: return cli_duration("warm: --ahead", optarg, 0, most_life_ms, &o->ahead_ms);
    case OPT_SPREAD: return cli_count("warm: --spread", optarg, 0, 90, &o->spread_pct);
    case OPT_PATIENCE: return cli_duration("warm: --patience", optarg, 0, day_ms, &o->patience_ms);
    case OPT_PROGRESS:
      return cli_duration("warm: --progress", optarg, 100, day_ms, &o->progress_ms);
    case OPT_WATCH:
      o->watch = true;
      return optarg == NULL ||
             cli_duration("warm: --watch", optarg, 100, most_life_ms, &o->watch_ms);
    case OPT_CACHE_FAILURES:
      return cli_duration("warm: --cache-failures", optarg, 0, day_ms, &o->failures_ms);
    case OPT_TAG: return cli_tag("warm: --tag", optarg, o->tags, &o->tag_count);
    default: return cli_flag_set(&flags, option, optarg);
  }
}

static bool is_url(const warm_options *o) {
  char shown[CLI_KEY_TEXT];
  if (strstr(o->url, "://") != NULL) return true;
  corral_uri_show(o->url, shown, sizeof shown);
  cli_say(
      "warm: --origin: '%s' is not accepted: a URL with {key} in it is, as in https://host/{key}",
      shown);
  return false;
}

static int databases(const warm_options *o) {
  return (o->sqlite != NULL) + (o->pg != NULL) + (o->mariadb != NULL);
}

/* The database is for values, for keys, or for both. */
static bool check_database(const warm_options *o) {
  bool is_sql = databases(o) > 0;
  if (databases(o) > 1)
    cli_say("warm: one database is accepted: --sqlite, --pg or --mariadb");
  else if (!is_sql && o->query != NULL)
    cli_say("warm: --query is for --sqlite, --pg and --mariadb");
  else if (!is_sql && o->keys_query != NULL)
    cli_say("warm: --keys is a statement for --sqlite, --pg or --mariadb");
  else if (is_sql && o->query == NULL && o->keys_query == NULL)
    cli_say("warm: no --query: what is to be asked, with one parameter for the key");
  else
    return true;
  return false;
}

static bool check_source(const warm_options *o) {
  bool is_for_keys = o->query == NULL && o->keys_query != NULL;
  bool is_sql = databases(o) > 0 && !is_for_keys;
  int ways = (o->command != NULL) + (o->shell != NULL) + (o->url != NULL) + is_sql;
  if (ways != 1)
    cli_say("warm: %s: exactly one is accepted of --exec TEXT, --origin URL, --query SQL with "
            "--sqlite FILE, --pg CONNINFO or --mariadb CONNINFO, and a command after --",
            ways == 0 ? "nothing to compute with" : "more than one to compute with");
  else if (!check_database(o))
    return false;
  else if (o->url != NULL && !is_url(o))
    return false;
  else if (o->shell != NULL && strstr(o->shell, "{}") != NULL)
    cli_say("warm: --exec: {} is not replaced in a text for the shell: \"$1\" and \"$CORRAL_KEY\" "
            "are the key there; -- CMD {} is accepted");
  else if (o->as_run && o->command == NULL && o->shell == NULL)
    cli_say("warm: --as-run is for commands: --exec, or one after --");
  else if (o->url != NULL && o->tag_count > 0)
    cli_say("warm: --tag: what an --origin answers has the tags that it gives");
  else
    return true;
  return false;
}

static bool check(const warm_options *o) {
  int64_t ttl_ms = o->policy.ttl_ms != 0 ? o->policy.ttl_ms : cli_flag_default("warm", "ttl");
  size_t stdins = 0;
  for (size_t i = 0; i < o->file_count; i++) stdins += strcmp(o->files[i], "-") == 0;
  if (!check_source(o)) return false;
  if (stdins > 1)
    cli_say("warm: standard input is given %zu times: once is accepted", stdins);
  else if (o->nul && o->comments)
    cli_say("warm: --comments is for lines: it can't be combined with --null");
  else if (o->ahead_ms > 0 && o->ahead_ms > ttl_ms / 100 * (100 - o->spread_pct) / 10 * 9)
    cli_say("warm: --ahead is more than nine tenths of the shortest life that --ttl and --spread "
            "give: everything would be computed again at each pass");
  else
    return true;
  return false;
}

/* Sets what follows from other options. */
static void complete(warm_options *o) {
  corral_policy *p = &o->policy;
  o->limit_ms = p->compute_ms != 0 ? p->compute_ms : DEFAULT_LIMIT_MS;
  if (p->sie_ms == 0) p->sie_ms = p->swr_ms;
  if (p->wait_ms == 0) p->wait_ms = o->limit_ms;
  p->jitter_pct = o->spread_pct > 0 ? o->spread_pct : CORRAL_OFF;
  p->retry_ms = o->failures_ms > 0 ? o->failures_ms : CORRAL_OFF;
  p->retry_max_ms = o->failures_ms > RETRY_MAX_MS ? o->failures_ms : RETRY_MAX_MS;
  p->warm = 1;
  p->when_away = CORRAL_AWAY_ERROR;
  p->near_ms = CORRAL_OFF;
}

int warm_options_parse(warm_options *o, int argc, char **argv) {
  static const char *const only_stdin = "-";
  const cli_grammar grammar = {"warm", "-:0cj:h", longs};
  int option = -1;
  *o = (warm_options){.threads = 4,
                      .ahead_ms = -1,
                      .spread_pct = 20,
                      .watch_ms = 60000,
                      .progress_ms = 10000,
                      .patience_ms = 10000,
                      .policy = {.size = sizeof o->policy},
                      .options = {.size = sizeof o->options},
                      .failures_ms = 1000};
  o->files = calloc((size_t)argc + 1, sizeof *o->files);
  if (o->files == NULL) return cli_fail("warm: out of memory");
  while ((option = cli_option(&grammar, argc, argv)) != -1) {
    if (option == 'h') {
      (void)fputs(cli_help("warm"), stdout);
      return cli_finish(CLI_OK);
    }
    if (!set_option(o, option)) return CLI_FAILED;
  }
  if (argv[optind] != NULL) o->command = argv + optind;
  if (!check(o)) return CLI_FAILED;
  bool has_keys = o->file_count > 0 || o->keys_query != NULL || o->sitemap_count > 0;
  if (!has_keys) o->files[o->file_count++] = (char *)(uintptr_t)only_stdin;
  complete(o);
  return -1;
}
