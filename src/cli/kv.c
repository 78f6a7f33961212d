/* kv.c: corral get, set, invalidate, expire and inspect: changes and shows keys of the store.
 *
 * None of them computes. `set` takes raw bytes; `get` prints them, or the standard output of a
 * command's result, or the body of a page; `inspect` prints a table, or one JSON object with
 * --json. The last two make no store that isn't there. `invalidate` and `expire` change a key with
 * all the variants of its page. */
#include "page.h"
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OPT_TAG = 256, OPT_ALL, OPT_FIELD, OPT_HEADER };

enum { READ_STEP = 65536 };

static const size_t most_value = CORRAL_VALUE_MAX;

/* ---- targets ------------------------------------------------------------------------------- */

/* The keys and tags of a command line: KEYs, or the key of a command's result. */
typedef struct targets {
  bool all;
  bool with_header;         /* get: of a page */
  cli_page_request request; /* get, inspect */
  const char **tags;        /* these two have room for all of argv */
  const char **keys;
  size_t tag_count, key_count;
  char **command; /* its end: none */
  run_key result; /* key of its result, or of --key */
} targets;

static bool has_result(const targets *to) { return to->result.named || to->command[0] != NULL; }

static bool take_option(targets *to, const char *name, int option) {
  switch (option) {
    case 1: to->keys[to->key_count++] = optarg; return true;
    case OPT_TAG: to->tags[to->tag_count++] = optarg; return true;
    case OPT_ALL: to->all = true; return true;
    case OPT_FIELD: return cli_page_field(&to->request, name, optarg);
    case OPT_HEADER: to->with_header = true; return true;
    case RUN_OPT_KEY:
    case RUN_OPT_ENV:
    case RUN_OPT_CWD:
    case RUN_OPT_MODTIME: return run_key_option(&to->result, name, option, optarg);
    default: return false;
  }
}

static bool check_result(const targets *to, const char *name) {
  if (to->command[0] == NULL && to->result.context != NULL)
    cli_say("%s: %s is for a command: -- CMD [ARGUMENT]... behind it is accepted", name,
            to->result.context);
  else if (to->command[0] != NULL && to->result.named)
    cli_say("%s: --key names the key: it can't be combined with a command", name);
  else
    return true;
  return false;
}

/* -1: go on; else the exit status. */
static int parse_targets(const char *name, const struct option *longs, int argc, char **argv,
                         targets *to) {
  const cli_grammar grammar = {name, "-:h", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option == 'h') return (void)fputs(cli_help(name), stdout), cli_finish(CLI_OK);
    if (!take_option(to, name, option)) return CLI_FAILED;
  }
  to->command = argv + optind;
  bool is_good =
      check_result(to, name) && (!has_result(to) || run_key_finish(&to->result, name, to->command));
  return is_good ? -1 : CLI_FAILED;
}

static bool begin_targets(targets *to, int argc) {
  to->tags = calloc((size_t)argc, sizeof *to->tags);
  to->keys = calloc((size_t)argc, sizeof *to->keys);
  return to->tags != NULL && to->keys != NULL;
}

static void end_targets(targets *to) {
  free(to->tags);
  free(to->keys);
}

/* One key, and its text for messages. */
typedef struct target {
  const void *key;
  size_t len;
  char name[RUN_KEY_TEXT];
  const targets *of;
} target;

/* KEYs come first. */
static void target_of(const targets *to, size_t i, target *ret) {
  bool is_key = i < to->key_count;
  ret->of = to;
  ret->key = is_key ? to->keys[i] : to->result.bytes;
  ret->len = is_key ? strlen(to->keys[i]) : to->result.size;
  if (is_key)
    (void)cli_key_text(ret->name, ret->key, ret->len);
  else
    (void)run_key_text(&to->result, to->command, ret->name);
}

static int parse_one(const char *name, int argc, char **argv, targets *to) {
  static const struct option longs[] = {RUN_KEY_OPTIONS,
                                        {"field", required_argument, NULL, OPT_FIELD},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};
  static const struct option get_longs[] = {RUN_KEY_OPTIONS,
                                            {"field", required_argument, NULL, OPT_FIELD},
                                            {"header", no_argument, NULL, OPT_HEADER},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
  int status = parse_targets(name, strcmp(name, "get") == 0 ? get_longs : longs, argc, argv, to);
  size_t count = status < 0 ? to->key_count + (has_result(to) ? 1 : 0) : 0;
  if (status >= 0) return status;
  if (count < 1)
    return cli_fail("%s: no KEY given, nor -- CMD [ARGUMENT]...: corral %s --help shows the usage",
                    name, name);
  if (count > 1)
    return cli_fail("%s: '%s' is one argument too many: one KEY, or -- CMD [ARGUMENT]..., is "
                    "accepted",
                    name, to->key_count > 1 ? to->keys[1] : to->command[0]);
  return -1;
}

/* Looks at one key of the store with `look`. */
static int look_at_one(const cli_globals *cli, const char *name, int argc, char **argv,
                       int (*look)(const cli_globals *cli, corral *c, const target *at),
                       int (*absent)(const cli_globals *cli, const target *at)) {
  static targets to;
  target at;
  corral *c = NULL;
  int status = begin_targets(&to, argc) ? parse_one(name, argc, argv, &to)
                                        : cli_fail("%s: out of memory", name);
  bool is_absent;
  corral_options options = {.size = sizeof options};
  if (status < 0) {
    target_of(&to, 0, &at);
    if (!cli_open_to_look(cli, &options, &c, &is_absent))
      status = CLI_FAILED;
    else
      status = is_absent ? absent(cli, &at) : look(cli, c, &at);
  }
  corral_close(c);
  end_targets(&to);
  return status;
}

/* ---- get ----------------------------------------------------------------------------------- */

/* Of a command's result, what it has printed; of a page, its body. */
static bool print_value(const target *at, const void *data, size_t size) {
  run_result result;
  corral_page page;
  if (run_take_result(data, size, &result))
    return cli_write(STDOUT_FILENO, result.out, result.out_size);
  if (corral_page_read(data, size, &page) != CORRAL_OK) return cli_write(STDOUT_FILENO, data, size);
  return (!at->of->with_header || cli_page_write_header(&page)) &&
         cli_write(STDOUT_FILENO, page.body, page.body_len);
}

static int get(const cli_globals *cli, corral *c, const target *at) {
  corral_error error = {0};
  corral_value *value = NULL;
  char variant[CLI_PAGE_VARIANT];
  size_t variant_len;
  (void)cli;
  int status =
      cli_page_get(c, at->key, at->len, &at->of->request, &error, variant, &variant_len, &value);
  if (status != CORRAL_OK) return cli_report_as(at->name, status, &error);
  bool ok = print_value(at, corral_value_data(value), corral_value_size(value));
  int code = errno;
  corral_value_unref(value);
  return ok ? CLI_OK : cli_fail("standard output: %s", strerror(code));
}

static int get_absent(const cli_globals *cli, const target *at) {
  cli_say("%s: nothing is stored: %s isn't there", at->name, cli->store);
  return CLI_MISS;
}

int cli_get(const cli_globals *cli, int argc, char **argv) {
  return look_at_one(cli, "get", argc, argv, get, get_absent);
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
  static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {0}};
  const cli_grammar grammar = {"set", ":h", longs};
  const cli_flags flags = {.subcommand = "set", .policy = policy};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option == 'h') return (void)fputs(cli_help("set"), stdout), cli_finish(CLI_OK);
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

/* True for CORRAL_OK; else reports the failure for a tag, or for all values (NULL). */
static bool went_well(const char *tag, int status, const corral_error *error) {
  char text[CLI_KEY_TEXT] = "";
  if (status == CORRAL_OK) return true;
  if (tag != NULL) (void)cli_key_text(text, tag, strlen(tag));
  cli_say("%s%s: %s", tag != NULL ? "--tag " : "--all", text,
          error->text[0] != '\0' ? error->text : corral_status_text(status));
  return false;
}

/* A key with blanks that the store doesn't have was perhaps meant as a command. */
static void hint(const cli_globals *cli, corral *c, const char *name, const target *at) {
  corral_inspection i = {.size = sizeof i};
  if (cli->quiet || memchr(at->key, ' ', at->len) == NULL) return;
  int status = corral_inspect(c, at->key, at->len, NULL, &i);
  if (status == CORRAL_OK && strcmp(i.state, "none") == 0)
    cli_note("%s: nothing is stored of the key '%s'; the result of a command is named as in corral "
             "%s -- %s",
             name, at->name, name, at->name);
}

/* Goes on after a failure: one bad key doesn't keep the others from being changed. */
static int perform(const cli_globals *cli, corral *c, const change *what, const targets *to) {
  int exit_status = CLI_OK;
  corral_error error = {0};
  if (to->all && !went_well(NULL, what->all(c, &error), &error)) exit_status = CLI_FAILED;
  for (size_t i = 0; i < to->tag_count; i++) {
    error = (corral_error){0};
    if (!went_well(to->tags[i], what->tag(c, to->tags[i], strlen(to->tags[i]), &error), &error))
      exit_status = CLI_FAILED;
  }
  for (size_t i = 0; i < to->key_count + (has_result(to) ? 1 : 0); i++) {
    target at;
    target_of(to, i, &at);
    error = (corral_error){0};
    if (i < to->key_count) hint(cli, c, what->name, &at);
    int status = what->key(c, at.key, at.len, CORRAL_CALL(.error = &error));
    if (status == CORRAL_OK) continue;
    (void)cli_report_as(at.name, status, &error);
    exit_status = CLI_FAILED;
  }
  return exit_status;
}

/* -1: go on; else the exit status. */
static int parse_change(const char *name, int argc, char **argv, targets *to) {
  static const struct option longs[] = {RUN_KEY_OPTIONS,
                                        {"tag", required_argument, NULL, OPT_TAG},
                                        {"all", no_argument, NULL, OPT_ALL},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};
  int status = parse_targets(name, longs, argc, argv, to);
  if (status >= 0) return status;
  bool some = to->tag_count > 0 || to->key_count > 0 || has_result(to);
  if (to->all && some)
    return cli_fail("%s: --all is every key and tag: it can't be combined with another", name);
  if (!to->all && !some)
    return cli_fail(
        "%s: no KEY given, nor -- CMD, --tag or --all: corral %s --help shows the usage", name,
        name);
  return -1;
}

static int change_all_of(const cli_globals *cli, const change *what, int argc, char **argv) {
  static targets to;
  corral *c = NULL;
  int exit_status = begin_targets(&to, argc) ? parse_change(what->name, argc, argv, &to)
                                             : cli_fail("%s: out of memory", what->name);
  if (exit_status < 0) {
    bool open = cli_open(cli, false, &(corral_options){.size = sizeof(corral_options)}, &c);
    exit_status = open ? perform(cli, c, what, &to) : CLI_FAILED;
    corral_close(c);
  }
  end_targets(&to);
  return exit_status;
}

int cli_invalidate(const cli_globals *cli, int argc, char **argv) {
  static const change what = {"invalidate", corral_page_invalidate, corral_invalidate_tag,
                              corral_invalidate_all};
  return change_all_of(cli, &what, argc, argv);
}

int cli_expire(const cli_globals *cli, int argc, char **argv) {
  static const change what = {"expire", corral_page_expire, corral_expire_tag, corral_expire_all};
  return change_all_of(cli, &what, argc, argv);
}

/* ---- inspect ------------------------------------------------------------------------------- */

/* The kind of a value: a command's result, a page, or neither. */
typedef struct about {
  bool is_result, is_page;
  run_result result;
  corral_page page;
} about;

static void json_pair(const char *name, const char *text) {
  (void)printf(",\"%s\":", name);
  cli_json_string(stdout, text, strlen(text));
}

static void json_number(const char *name, int64_t n) {
  (void)printf(",\"%s\":%lld", name, (long long)n);
}

static void inspect_json(const target *at, const corral_inspection *i, const about *a) {
  (void)printf("{\"key\":");
  cli_json_string(stdout, at->key, at->len);
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
  json_number("lease_held_ms", i->lease_held_ms);
  if (a->is_result) {
    json_number("exit_status", a->result.exit_status);
    json_number("stdout_bytes", (int64_t)a->result.out_size);
    json_number("stderr_bytes", (int64_t)a->result.err_size);
  }
  if (a->is_page) cli_page_inspect(&a->page, true);
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

static void inspect_result(const run_result *result) {
  (void)printf("%-10s %d\n", "exit", result->exit_status);
  (void)printf("%-10s %llu bytes\n", "stdout", (unsigned long long)result->out_size);
  (void)printf("%-10s %llu bytes\n", "stderr", (unsigned long long)result->err_size);
}

static void inspect_table(const target *at, const corral_inspection *i, const about *a) {
  char left[CLI_DURATION_TEXT];
  char holder[4 * sizeof i->holder + 8];
  char failure[4 * sizeof i->failure + 8];
  row("key", at->name);
  row("state", i->state);
  if (strcmp(i->state, "none") != 0) inspect_value(i);
  if (a->is_result) inspect_result(&a->result);
  if (a->is_page) cli_page_inspect(&a->page, false);
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

static void print(const cli_globals *cli, const target *at, const corral_inspection *i,
                  const about *a) {
  if (cli->json)
    inspect_json(at, i, a);
  else
    inspect_table(at, i, a);
}

/* The value as long as it may serve; NULL: it may not, or it is none of a value's. */
static corral_value *value_of(corral *c, const target *at, const corral_call *call,
                              const corral_inspection *i) {
  corral_value *value = NULL;
  if (strcmp(i->state, "fresh") != 0 && strcmp(i->state, "stale") != 0) return NULL;
  return corral_get(c, at->key, at->len, call, &value) == CORRAL_OK ? value : NULL;
}

/* The variant that --field asks for; its length, 0: the key itself. */
static size_t variant_of(corral *c, const target *at, char variant[CLI_PAGE_VARIANT]) {
  corral_value *value = NULL;
  corral_error unused = {0};
  size_t len = 0;
  if (at->of->request.count == 0) return 0;
  (void)cli_page_get(c, at->key, at->len, &at->of->request, &unused, variant, &len, &value);
  corral_value_unref(value);
  return len;
}

static int inspect(const cli_globals *cli, corral *c, const target *at) {
  corral_error error = {0};
  about a = {0};
  char variant[CLI_PAGE_VARIANT];
  corral_inspection i = {.size = sizeof i};
  corral_call *call =
      CORRAL_CALL(.variant = variant, .variant_len = variant_of(c, at, variant), .error = &error);
  int status = corral_inspect(c, at->key, at->len, call, &i);
  if (status != CORRAL_OK) return cli_report_as(at->name, status, &error);
  corral_value *value = value_of(c, at, call, &i);
  const void *data = value != NULL ? corral_value_data(value) : "";
  size_t size = value != NULL ? corral_value_size(value) : 0;
  a.is_result = run_take_result(data, size, &a.result);
  a.is_page = corral_page_read(data, size, &a.page) == CORRAL_OK;
  print(cli, at, &i, &a);
  corral_value_unref(value);
  return cli_finish(CLI_OK);
}

static int inspect_absent(const cli_globals *cli, const target *at) {
  if (!cli->quiet) cli_say("%s: nothing is stored: %s isn't there", at->name, cli->store);
  print(cli, at, &(corral_inspection){.state = "none", .age_ms = -1, .left_ms = -1}, &(about){0});
  return cli_finish(CLI_OK);
}

int cli_inspect(const cli_globals *cli, int argc, char **argv) {
  return look_at_one(cli, "inspect", argc, argv, inspect, inspect_absent);
}
