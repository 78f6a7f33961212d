/* run_options.c: the command line of corral run. */
#include "run.h"

#include <string.h>
#include <unistd.h>

enum {
  OPT_CACHE_FAILURES = 256,
  OPT_TAG,
  OPT_VERSION,
  OPT_PASS_EXIT,
  OPT_UNMODIFIED_EXIT,
  OPT_FORCE,
  OPT_IF_LOST,
  OPT_LIVE,
  OPT_NO_LIVE
};
enum { DEFAULT_LIMIT_MS = 600000 };

static const int64_t day_ms = 86400000;

/* ---- options ------------------------------------------------------------------------------- */

static const struct option longs[] = {
    RUN_KEY_OPTIONS,
    {"cache-failures", required_argument, NULL, OPT_CACHE_FAILURES},
    {"force", no_argument, NULL, OPT_FORCE},
    {"tag", required_argument, NULL, OPT_TAG},
    {"value-version", required_argument, NULL, OPT_VERSION},
    {"unmodified-exit", required_argument, NULL, OPT_UNMODIFIED_EXIT},
    {"pass-exit", required_argument, NULL, OPT_PASS_EXIT},
    {"if-lost", required_argument, NULL, OPT_IF_LOST},
    {"live", no_argument, NULL, OPT_LIVE},
    {"no-live", no_argument, NULL, OPT_NO_LIVE},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static bool set_if_lost(run_options *o, const char *text) {
  int word = cli_word("run", "if-lost", text);
  o->kills_lost = word == 1;
  return word >= 0;
}

static bool set_option(run_options *o, int option) {
  const cli_flags flags = {.subcommand = "run", .policy = &o->policy, .options = &o->options};
  switch (option) {
    case RUN_OPT_KEY:
    case RUN_OPT_ENV:
    case RUN_OPT_CWD:
    case RUN_OPT_MODTIME: return run_key_option(&o->key, "run", option, optarg);
    case OPT_IF_LOST: return set_if_lost(o, optarg);
    case OPT_LIVE:
    case OPT_NO_LIVE: o->live_given = option; return true;
    case OPT_CACHE_FAILURES:
      return cli_duration("run: --cache-failures", optarg, 0, day_ms, &o->failures_ms);
    case OPT_TAG: return cli_tag("run: --tag", optarg, o->tags, &o->tag_count);
    case OPT_VERSION: return cli_count("run: --value-version", optarg, 1, INT64_MAX, &o->version);
    case OPT_PASS_EXIT: return cli_count("run: --pass-exit", optarg, 1, 255, &o->pass_exit);
    case OPT_UNMODIFIED_EXIT:
      return cli_count("run: --unmodified-exit", optarg, 1, 255, &o->unmodified_exit);
    case OPT_FORCE: o->force = true; return true;
    default: return cli_flag_set(&flags, option, optarg);
  }
}

/* Checks options that depend on each other. */
static bool check(const run_options *o) {
  if (o->command[0] == NULL)
    cli_say("run: no command given: corral run [OPTION]... -- CMD [ARGUMENT]... is accepted");
  else if (o->options.origin != NULL && o->options.fleet_max_computes == 0)
    cli_say("run: --origin names what --fleet-max limits: give that too");
  else if (o->policy.soft_ms > 0 && o->policy.sie_ms <= o->policy.swr_ms)
    cli_say("run: --soft is for a result that only serves on errors: give --stale-if-error, longer "
            "than --stale, too");
  else if (o->pass_exit != 0 && o->pass_exit == o->unmodified_exit)
    cli_say("run: --pass-exit and --unmodified-exit are both %lld: two numbers are accepted",
            (long long)o->pass_exit);
  else
    return true;
  return false;
}

/* On a terminal output is shown as it comes, unless --unmodified-exit may yet replace it. */
static void choose_live(run_options *o) {
  static const int streams[] = {STDOUT_FILENO, STDERR_FILENO};
  for (int i = 0; i < 2; i++)
    o->live[i] = o->live_given != 0 ? o->live_given == OPT_LIVE
                                    : o->unmodified_exit == 0 && isatty(streams[i]);
}

/* Sets what follows from other options. */
static void complete(run_options *o) {
  corral_policy *p = &o->policy;
  o->limit_ms = p->compute_ms != 0 ? p->compute_ms : DEFAULT_LIMIT_MS;
  p->compute_ms = o->limit_ms + RUN_LIMIT_SLACK < day_ms ? o->limit_ms + RUN_LIMIT_SLACK : day_ms;
  if (p->sie_ms == 0) p->sie_ms = p->swr_ms;
  if (p->wait_ms == 0) p->wait_ms = o->limit_ms;
  p->retry_ms = o->failures_ms > 0 ? o->failures_ms : CORRAL_OFF;
  p->retry_max_ms = o->failures_ms > 0 ? o->failures_ms : 1;
  choose_live(o);
}

int run_options_parse(run_options *o, int argc, char **argv) {
  const cli_grammar grammar = {"run", "+:h", longs};
  o->policy = (corral_policy){.size = sizeof o->policy};
  o->options = (corral_options){.size = sizeof o->options};
  o->failures_ms = 1000;
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option == 'h') return (void)fputs(cli_help("run"), stdout), cli_finish(CLI_OK);
    if (!set_option(o, option)) return CLI_FAILED;
  }
  o->command = argv + optind;
  if (!check(o) || !run_key_finish(&o->key, "run", o->command)) return CLI_FAILED;
  complete(o);
  return -1;
}
