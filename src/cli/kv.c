/* kv.c: corral get, set, invalidate, expire and inspect: changes and shows keys of the store.
 *
 * None of them computes. `get` and `set` move raw bytes; `inspect` prints a table, or one JSON
 * object with --json. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OPT_HELP = 256, OPT_TAG, OPT_ALL };

enum { READ_STEP = 65536 };

static const size_t most_value = CORRAL_VALUE_MAX;

static const struct option no_options[] = {{"help", no_argument, NULL, OPT_HELP}, {0}};

/* Parses the command line of a subcommand that takes one KEY and no options. -1: go on; else the
 * exit status. */
static int parse_plain(const char *name, int argc, char **argv) {
  const cli_grammar grammar = {name, ":", no_options};
  int got = cli_option(&grammar, argc, argv);
  if (got == OPT_HELP) {
    (void)fputs(cli_help(name), stdout);
    return cli_finish(CLI_OK);
  }
  if (got != -1) return CLI_FAILED;
  if (argc - optind < 1)
    return cli_fail("%s: no KEY given: corral %s --help shows the usage", name, name);
  if (argc - optind > 1)
    return cli_fail("%s: '%s' is one argument too many: exactly one KEY is accepted", name,
                    argv[optind + 1]);
  return -1;
}

/* ---- get ----------------------------------------------------------------------------------- */

static int get(corral *c, const char *key) {
  corral_error error = {0};
  corral_value *value = NULL;
  int status = corral_get(c, key, strlen(key), CORRAL_CALL(.error = &error), &value);
  if (status != CORRAL_OK) return cli_report(key, strlen(key), status, &error);
  bool ok = cli_write(STDOUT_FILENO, corral_value_data(value), corral_value_size(value));
  corral_value_unref(value);
  return ok ? CLI_OK : cli_fail("standard output: %s", strerror(errno));
}

int cli_get(const cli_globals *cli, int argc, char **argv) {
  int status = parse_plain("get", argc, argv);
  corral *c = NULL;
  if (status >= 0) return status;
  if (!cli_open(cli, false, &(corral_options){.size = sizeof(corral_options)}, &c))
    return CLI_FAILED;
  status = get(c, argv[optind]);
  corral_close(c);
  return status;
}

/* ---- set ----------------------------------------------------------------------------------- */

/* All of stdin, to be freed by the caller; NULL after a reported failure. */
static char *read_stdin(size_t *ret_size) {
  char *data = NULL;
  size_t size = 0;
  size_t room = 0;
  for (;;) {
    if (room - size < READ_STEP) {
      room = room * 2 + READ_STEP;
      char *more = realloc(data, room);
      if (more == NULL) {
        cli_say("set: out of memory after %zu bytes of stdin", size);
        break;
      }
      data = more;
    }
    ssize_t n = read(STDIN_FILENO, data + size, READ_STEP);
    if (n == 0) {
      *ret_size = size;
      return data;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      cli_say("set: stdin: %s", strerror(errno));
      break;
    }
    size += (size_t)n;
    if (size > most_value) {
      cli_say("set: stdin is larger than the largest value, %zu bytes", most_value);
      break;
    }
  }
  free(data);
  return NULL;
}

static int set(const cli_globals *cli, const char *key, const corral_policy *policy,
               const void *data, size_t size) {
  corral *c = NULL;
  if (!cli_open(cli, false, &(corral_options){.size = sizeof(corral_options)}, &c))
    return CLI_FAILED;
  corral_error error = {0};
  int status =
      corral_set(c, key, strlen(key), CORRAL_CALL(.policy = policy, .error = &error), data, size);
  int exit_status = status == CORRAL_OK ? CLI_OK : cli_report(key, strlen(key), status, &error);
  corral_close(c);
  return exit_status;
}

/* -1: go on; else the exit status. */
static int parse_set(int argc, char **argv, corral_policy *policy) {
  static const struct option longs[] = {{"help", no_argument, NULL, OPT_HELP}, {0}};
  const cli_grammar grammar = {"set", ":", longs};
  const cli_flags flags = {.subcommand = "set", .policy = policy};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option == OPT_HELP) return (void)fputs(cli_help("set"), stdout), cli_finish(CLI_OK);
    if (!cli_flag_set(&flags, option, optarg)) return CLI_FAILED;
  }
  policy->sie_ms = policy->swr_ms;
  return -1;
}

int cli_set(const cli_globals *cli, int argc, char **argv) {
  corral_policy *policy = CORRAL_POLICY();
  int status = parse_set(argc, argv, policy);
  if (status >= 0) return status;
  int words = argc - optind;
  if (words < 1) return cli_fail("set: no KEY given: corral set --help shows the usage");
  if (words > 2)
    return cli_fail("set: '%s' is one argument too many: accepted are KEY and one VALUE",
                    argv[optind + 2]);
  const char *key = argv[optind];
  if (words == 2 && strcmp(argv[optind + 1], "-") != 0)
    return set(cli, key, policy, argv[optind + 1], strlen(argv[optind + 1]));
  size_t size = 0;
  char *data = read_stdin(&size);
  if (data == NULL) return CLI_FAILED;
  status = set(cli, key, policy, data, size);
  free(data);
  return status;
}

/* ---- invalidate, expire -------------------------------------------------------------------- */

/* One change, for a key, for all values of a tag, for all values. */
typedef struct change {
  const char *name;
  int (*key)(corral *c, const void *key, size_t key_len, const corral_call *call);
  int (*tag)(corral *c, const void *tag, size_t len, corral_error *error);
  int (*all)(corral *c, corral_error *error);
} change;

/* The targets of a change. */
typedef struct targets {
  bool all;
  const char **tags;
  size_t tag_count;
  char *const *keys;
} targets;

/* True for CORRAL_OK; else reports the failure for a tag, or for all values (NULL). */
static bool went_well(const char *tag, int status, const corral_error *error) {
  char text[CLI_KEY_TEXT] = "";
  if (status == CORRAL_OK) return true;
  if (tag != NULL) (void)cli_key_text(text, tag, strlen(tag));
  cli_say("%s%s: %s", tag != NULL ? "--tag " : "--all", text,
          error->text[0] != '\0' ? error->text : corral_status_text(status));
  return false;
}

/* Goes on after a failure: one bad key doesn't keep the others from being changed. */
static int perform(corral *c, const change *what, const targets *to) {
  int exit_status = CLI_OK;
  corral_error error = {0};
  if (to->all && !went_well(NULL, what->all(c, &error), &error)) exit_status = CLI_FAILED;
  for (size_t i = 0; i < to->tag_count; i++) {
    error = (corral_error){0};
    if (!went_well(to->tags[i], what->tag(c, to->tags[i], strlen(to->tags[i]), &error), &error))
      exit_status = CLI_FAILED;
  }
  for (char *const *key = to->keys; *key != NULL; key++) {
    error = (corral_error){0};
    int status = what->key(c, *key, strlen(*key), CORRAL_CALL(.error = &error));
    if (status == CORRAL_OK) continue;
    (void)cli_report(*key, strlen(*key), status, &error);
    exit_status = CLI_FAILED;
  }
  return exit_status;
}

/* -1: go on; else the exit status. `to->tags` has room for all of argv. */
static int parse_targets(const char *name, int argc, char **argv, targets *to) {
  static const struct option longs[] = {{"tag", required_argument, NULL, OPT_TAG},
                                        {"all", no_argument, NULL, OPT_ALL},
                                        {"help", no_argument, NULL, OPT_HELP},
                                        {0}};
  const cli_grammar grammar = {name, ":", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    switch (option) {
      case OPT_TAG: to->tags[to->tag_count++] = optarg; break;
      case OPT_ALL: to->all = true; break;
      case OPT_HELP: (void)fputs(cli_help(name), stdout); return cli_finish(CLI_OK);
      default: return CLI_FAILED;
    }
  }
  to->keys = argv + optind;
  bool some = to->tag_count > 0 || *to->keys != NULL;
  if (to->all && some)
    return cli_fail("%s: --all is every key and tag: it can't be combined with another", name);
  if (!to->all && !some)
    return cli_fail("%s: no KEY given, nor --tag or --all: corral %s --help shows the usage", name,
                    name);
  return -1;
}

static int change_all_of(const cli_globals *cli, const change *what, int argc, char **argv) {
  targets to = {.tags = calloc((size_t)argc, sizeof *to.tags)};
  corral *c = NULL;
  if (to.tags == NULL) return cli_fail("%s: out of memory", what->name);
  int exit_status = parse_targets(what->name, argc, argv, &to);
  if (exit_status < 0) {
    bool open = cli_open(cli, false, &(corral_options){.size = sizeof(corral_options)}, &c);
    exit_status = open ? perform(c, what, &to) : CLI_FAILED;
    corral_close(c);
  }
  free(to.tags);
  return exit_status;
}

int cli_invalidate(const cli_globals *cli, int argc, char **argv) {
  static const change what = {"invalidate", corral_invalidate, corral_invalidate_tag,
                              corral_invalidate_all};
  return change_all_of(cli, &what, argc, argv);
}

int cli_expire(const cli_globals *cli, int argc, char **argv) {
  static const change what = {"expire", corral_expire, corral_expire_tag, corral_expire_all};
  return change_all_of(cli, &what, argc, argv);
}

/* ---- inspect ------------------------------------------------------------------------------- */

static void json_pair(const char *name, const char *text) {
  (void)printf(",\"%s\":", name);
  cli_json_string(stdout, text, strlen(text));
}

static void json_number(const char *name, int64_t n) {
  (void)printf(",\"%s\":%lld", name, (long long)n);
}

static void inspect_json(const char *key, const corral_inspection *i) {
  (void)printf("{\"key\":");
  cli_json_string(stdout, key, strlen(key));
  json_pair("state", i->state);
  (void)printf(",\"size\":%llu,\"stored_size\":%llu", (unsigned long long)i->value_size,
               (unsigned long long)i->stored_size);
  json_number("age_ms", i->age_ms);
  json_number("ttl_ms", i->ttl_ms);
  json_number("swr_ms", i->swr_ms);
  json_number("sie_ms", i->sie_ms);
  json_number("left_ms", i->left_ms);
  json_number("cost_ms", i->cost_ms);
  json_number("created_ms", i->created_ms);
  (void)printf(",\"version\":%llu", (unsigned long long)i->version);
  json_pair("holder", i->holder);
  json_number("lease_left_ms", i->lease_left_ms);
  json_number("failures", i->failures);
  json_number("failure_code", i->failure_code);
  json_pair("failure", i->failure);
  json_number("retry_left_ms", i->retry_left_ms);
  (void)printf("}\n");
}

static void row(const char *name, const char *text) { (void)printf("%-10s %s\n", name, text); }

static void row_ms(const char *name, int64_t ms) {
  char text[CLI_DURATION_TEXT];
  row(name, ms < 0 ? "unknown" : cli_duration_text(text, ms));
}

static void row_grace(const char *name, int64_t ms) {
  if (ms > 0)
    row_ms(name, ms);
  else
    row(name, "none");
}

static void inspect_value(const corral_inspection *i) {
  char when[64] = "unknown";
  time_t seconds = (time_t)(i->created_ms / 1000);
  struct tm parts;
  if (i->created_ms > 0 && localtime_r(&seconds, &parts) != NULL)
    (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %z", &parts);
  (void)printf("%-10s %llu bytes (%llu as stored)\n", "size", (unsigned long long)i->value_size,
               (unsigned long long)i->stored_size);
  row("made", when);
  row_ms("age", i->age_ms);
  row_ms("ttl", i->ttl_ms);
  row_grace("swr", i->swr_ms);
  row_grace("sie", i->sie_ms);
  row_ms("forgotten", i->left_ms);
  row_ms("cost", i->cost_ms);
  if (i->version != 0)
    (void)printf("%-10s %llu\n", "version", (unsigned long long)i->version);
  else
    row("version", "none");
}

static void inspect_table(const char *key, const corral_inspection *i) {
  char text[CLI_KEY_TEXT];
  char left[CLI_DURATION_TEXT];
  char holder[4 * sizeof i->holder + 8];
  char failure[4 * sizeof i->failure + 8];
  row("key", cli_key_text(text, key, strlen(key)));
  row("state", i->state);
  if (strcmp(i->state, "none") != 0) inspect_value(i);
  if (i->lease_left_ms > 0)
    (void)printf("%-10s %s, %s left\n", "lease",
                 i->holder[0] != '\0'
                     ? cli_visible(holder, sizeof holder, i->holder, strlen(i->holder))
                     : "somebody",
                 cli_duration_text(left, i->lease_left_ms));
  else
    row("lease", "nobody rebuilds it");
  if (i->retry_left_ms > 0)
    (void)printf("%-10s %s (code %d, %lld in a row), remembered for %s\n", "failure",
                 cli_visible(failure, sizeof failure, i->failure, strlen(i->failure)),
                 (int)i->failure_code, (long long)i->failures,
                 cli_duration_text(left, i->retry_left_ms));
  else
    row("failure", "none");
}

int cli_inspect(const cli_globals *cli, int argc, char **argv) {
  int exit_status = parse_plain("inspect", argc, argv);
  corral *c = NULL;
  if (exit_status >= 0) return exit_status;
  if (!cli_open(cli, false, &(corral_options){.size = sizeof(corral_options)}, &c))
    return CLI_FAILED;
  const char *key = argv[optind];
  corral_error error = {0};
  corral_inspection inspection = {.size = sizeof inspection};
  int status = corral_inspect(c, key, strlen(key), CORRAL_CALL(.error = &error), &inspection);
  if (status != CORRAL_OK)
    exit_status = cli_report(key, strlen(key), status, &error);
  else if (cli->json)
    inspect_json(key, &inspection);
  else
    inspect_table(key, &inspection);
  corral_close(c);
  return cli_finish(status == CORRAL_OK ? CLI_OK : exit_status);
}
