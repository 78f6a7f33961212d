/* run_options.c: the command line of corral run, and the key that it makes. */
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  OPT_HELP = 256,
  OPT_KEY,
  OPT_CACHE_FAILURES,
  OPT_ENV,
  OPT_TAG,
  OPT_VERSION,
  OPT_PASS_EXIT,
  OPT_UNMODIFIED_EXIT
};
enum { OPT_CWD = 512, OPT_MODTIME, OPT_FORCE };
enum { DEFAULT_LIMIT_MS = 600000 };

static const int64_t day_ms = 86400000;

/* ---- key ----------------------------------------------------------------------------------- */

static void key_bytes(run_key *key, const void *data, size_t size) {
  if (key->size + size <= RUN_KEY_ROOM) memcpy(key->bytes + key->size, data, size);
  key->size += size;
}

/* Adds an item of the default key: a letter, the text, NUL. No item can look like two. */
static void key_item(run_key *key, char letter, const char *text) {
  key_bytes(key, &letter, 1);
  key_bytes(key, text, strlen(text) + 1);
}

static void key_env(run_key *key, const char *name) {
  const char *value = getenv(name);
  key_item(key, value != NULL ? 'e' : 'u', name);
  if (value != NULL) key_item(key, '=', value);
}

static bool key_cwd(run_key *key) {
  char *folder = getcwd(NULL, 0);
  if (folder == NULL) {
    cli_say("run: --cwd: %s", strerror(errno));
    return false;
  }
  key_item(key, 'd', folder);
  free(folder);
  return true;
}

/* A missing file is a state like any other. */
static bool key_modtime(run_key *key, const char *path) {
  struct stat st;
  char text[96] = "absent";
  if (stat(path, &st) == 0)
    (void)snprintf(text, sizeof text, "%lld.%09ld %lld", (long long)st.st_mtim.tv_sec,
                   st.st_mtim.tv_nsec, (long long)st.st_size);
  else if (errno != ENOENT && errno != ENOTDIR) {
    cli_say("run: --modtime %s: %s", path, strerror(errno));
    return false;
  }
  key_item(key, 'm', path);
  key_item(key, '@', text);
  return true;
}

/* ---- options ------------------------------------------------------------------------------- */

static const struct option longs[] = {
    {"key", required_argument, NULL, OPT_KEY},
    {"env", required_argument, NULL, OPT_ENV},
    {"cwd", no_argument, NULL, OPT_CWD},
    {"modtime", required_argument, NULL, OPT_MODTIME},
    {"cache-failures", required_argument, NULL, OPT_CACHE_FAILURES},
    {"force", no_argument, NULL, OPT_FORCE},
    {"tag", required_argument, NULL, OPT_TAG},
    {"value-version", required_argument, NULL, OPT_VERSION},
    {"unmodified-exit", required_argument, NULL, OPT_UNMODIFIED_EXIT},
    {"pass-exit", required_argument, NULL, OPT_PASS_EXIT},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

static bool name_key(run_options *o, const char *text) {
  o->named = true;
  o->key.size = 0;
  key_bytes(&o->key, text, strlen(text));
  if (o->key.size == 0)
    cli_say("run: --key: the empty key is not accepted: 1 to %d bytes are", RUN_KEY_ROOM);
  return o->key.size > 0;
}

/* Options that make the key. Their items stand before the command's words, in the order given. */
static bool key_option(run_options *o, int option) {
  static const char *const names[] = {[OPT_CWD - OPT_CWD] = "--cwd",
                                      [OPT_MODTIME - OPT_CWD] = "--modtime"};
  if (option == OPT_KEY) return name_key(o, optarg);
  o->context = option == OPT_ENV ? "--env" : names[option - OPT_CWD];
  if (o->named) return true;
  if (option == OPT_CWD) return key_cwd(&o->key);
  if (option == OPT_MODTIME) return key_modtime(&o->key, optarg);
  key_env(&o->key, optarg);
  return true;
}

static bool set_option(run_options *o, int option) {
  const cli_flags flags = {.subcommand = "run", .policy = &o->policy, .options = &o->options};
  switch (option) {
    case OPT_KEY:
    case OPT_ENV:
    case OPT_CWD:
    case OPT_MODTIME: return key_option(o, option);
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
  else if (o->named && o->context != NULL)
    cli_say("run: --key names the whole key: it can't be combined with %s", o->context);
  else if (o->key.size > RUN_KEY_ROOM)
    cli_say("run: the key has %zu bytes: at most %d are accepted (--key names a shorter one)",
            o->key.size, RUN_KEY_ROOM);
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

/* Sets what follows from other options. */
static void complete(run_options *o) {
  corral_policy *p = &o->policy;
  o->limit_ms = p->compute_ms != 0 ? p->compute_ms : DEFAULT_LIMIT_MS;
  p->compute_ms = o->limit_ms + RUN_LIMIT_SLACK < day_ms ? o->limit_ms + RUN_LIMIT_SLACK : day_ms;
  if (p->sie_ms == 0) p->sie_ms = p->swr_ms;
  if (p->wait_ms == 0) p->wait_ms = o->limit_ms;
  p->retry_ms = o->failures_ms > 0 ? o->failures_ms : CORRAL_OFF;
  p->retry_max_ms = o->failures_ms > 0 ? o->failures_ms : 1;
}

int run_options_parse(run_options *o, int argc, char **argv) {
  const cli_grammar grammar = {"run", "+:", longs};
  o->policy = (corral_policy){.size = sizeof o->policy};
  o->options = (corral_options){.size = sizeof o->options};
  o->failures_ms = 1000;
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option == OPT_HELP) {
      (void)fputs(cli_help("run"), stdout);
      return cli_finish(CLI_OK);
    }
    if (!set_option(o, option)) return CLI_FAILED;
  }
  o->command = argv + optind;
  for (char **word = o->command; *word != NULL && !o->named; word++) key_item(&o->key, 'a', *word);
  if (!check(o)) return CLI_FAILED;
  complete(o);
  return -1;
}
