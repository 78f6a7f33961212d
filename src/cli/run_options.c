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
  OPT_TTL,
  OPT_STALE,
  OPT_STALE_IF_ERROR,
  OPT_WAIT,
  OPT_SOFT,
  OPT_AT_DEADLINE,
  OPT_LEASE,
  OPT_COMPUTE,
  OPT_CACHE_FAILURES,
  OPT_ENV,
  OPT_AWAY,
  OPT_FLEET_MAX,
  OPT_ORIGIN,
  OPT_TAG,
  OPT_VERSION,
  OPT_COMPRESS,
  OPT_PASS_EXIT,
  OPT_UNMODIFIED_EXIT
};
enum { OPT_CWD = 512, OPT_MODTIME, OPT_FORCE };

static const int64_t most_value = CORRAL_VALUE_MAX;
static const int64_t most_life_ms = 315360000000;
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
    {"ttl", required_argument, NULL, OPT_TTL},
    {"stale", required_argument, NULL, OPT_STALE},
    {"stale-if-error", required_argument, NULL, OPT_STALE_IF_ERROR},
    {"wait", required_argument, NULL, OPT_WAIT},
    {"soft", required_argument, NULL, OPT_SOFT},
    {"at-deadline", required_argument, NULL, OPT_AT_DEADLINE},
    {"compute", required_argument, NULL, OPT_COMPUTE},
    {"lease", required_argument, NULL, OPT_LEASE},
    {"cache-failures", required_argument, NULL, OPT_CACHE_FAILURES},
    {"force", no_argument, NULL, OPT_FORCE},
    {"away", required_argument, NULL, OPT_AWAY},
    {"fleet-max", required_argument, NULL, OPT_FLEET_MAX},
    {"origin", required_argument, NULL, OPT_ORIGIN},
    {"tag", required_argument, NULL, OPT_TAG},
    {"value-version", required_argument, NULL, OPT_VERSION},
    {"compress", required_argument, NULL, OPT_COMPRESS},
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

/* Parses one of two words. */
static bool choice(const char *what, const char *text, const char *first, const char *second,
                   int64_t of_first, int64_t of_second, int64_t *ret) {
  bool is_second = strcmp(text, second) == 0;
  *ret = is_second ? of_second : of_first;
  if (is_second || strcmp(text, first) == 0) return true;
  cli_say("run: %s: '%s' is not accepted: %s or %s is", what, text, first, second);
  return false;
}

static bool set_option(run_options *o, int option) {
  switch (option) {
    case OPT_KEY:
    case OPT_ENV:
    case OPT_CWD:
    case OPT_MODTIME: return key_option(o, option);
    case OPT_TTL: return cli_duration("run: --ttl", optarg, 1, most_life_ms, &o->ttl_ms);
    case OPT_STALE: return cli_duration("run: --stale", optarg, 0, most_life_ms, &o->stale_ms);
    case OPT_STALE_IF_ERROR:
      return cli_duration("run: --stale-if-error", optarg, 0, most_life_ms, &o->stale_if_error_ms);
    case OPT_WAIT: return cli_duration("run: --wait", optarg, 1, day_ms, &o->wait_ms);
    case OPT_SOFT: return cli_duration("run: --soft", optarg, 1, day_ms, &o->soft_ms);
    case OPT_AT_DEADLINE:
      return choice("--at-deadline", optarg, "error", "compute", CORRAL_DEADLINE_ERROR,
                    CORRAL_DEADLINE_COMPUTE, &o->at_deadline);
    case OPT_COMPUTE: return cli_duration("run: --compute", optarg, 10, day_ms, &o->limit_ms);
    case OPT_LEASE: return cli_duration("run: --lease", optarg, 50, 3600000, &o->lease_ms);
    case OPT_CACHE_FAILURES:
      return cli_duration("run: --cache-failures", optarg, 0, day_ms, &o->failures_ms);
    case OPT_AWAY:
      return choice("--away", optarg, "run", "fail", CORRAL_AWAY_COMPUTE, CORRAL_AWAY_ERROR,
                    &o->when_away);
    case OPT_FLEET_MAX: return cli_count("run: --fleet-max", optarg, 1, 256, &o->fleet_max);
    case OPT_ORIGIN: o->origin = optarg; return true;
    case OPT_TAG: return cli_tag("run: --tag", optarg, o->tags, &o->tag_count);
    case OPT_VERSION: return cli_count("run: --value-version", optarg, 1, INT64_MAX, &o->version);
    case OPT_COMPRESS: return cli_size("run: --compress", optarg, 1, most_value, &o->compress);
    case OPT_PASS_EXIT: return cli_count("run: --pass-exit", optarg, 1, 255, &o->pass_exit);
    case OPT_UNMODIFIED_EXIT:
      return cli_count("run: --unmodified-exit", optarg, 1, 255, &o->unmodified_exit);
    case OPT_FORCE: o->force = true; return true;
    default: return false;
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
  else if (o->origin != NULL && o->fleet_max == 0)
    cli_say("run: --origin names what --fleet-max limits: give that too");
  else if (o->soft_ms > 0 && o->stale_if_error_ms <= o->stale_ms)
    cli_say("run: --soft is for a result that only serves on errors: give --stale-if-error, longer "
            "than --stale, too");
  else if (o->pass_exit != 0 && o->pass_exit == o->unmodified_exit)
    cli_say("run: --pass-exit and --unmodified-exit are both %lld: two numbers are accepted",
            (long long)o->pass_exit);
  else
    return true;
  return false;
}

int run_options_parse(run_options *o, int argc, char **argv) {
  const cli_grammar grammar = {"run", "+:", longs};
  o->ttl_ms = 60000;
  o->limit_ms = 600000;
  o->failures_ms = 1000;
  o->stale_if_error_ms = -1;
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
  if (o->stale_if_error_ms < 0) o->stale_if_error_ms = o->stale_ms;
  if (o->wait_ms == 0) o->wait_ms = o->limit_ms;
  return -1;
}
