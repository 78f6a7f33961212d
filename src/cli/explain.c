/* explain.c: corral explain: prints what a policy will do. Its options are the rows of
 * CORRAL_POLICY_MAP. */
#include "cli.h"

#include <string.h>

enum { OPT_HELP = 256, TEXT_ROOM = 8192, NAMES_ROOM = 512 };

static const struct option longs[] = {{"help", no_argument, NULL, OPT_HELP}, {0}};

static const struct row {
  const char *name;
  const char *unit;
  size_t at;
} rows[] = {
#define ROW(name, unit, def, least, most, text) {#name, unit, offsetof(corral_policy, name)},
    CORRAL_POLICY_MAP(ROW)
#undef ROW
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static bool unknown(const char *word) {
  char names[NAMES_ROOM] = "";
  size_t used = 0;
  for (size_t i = 0; i < ROWS && used < sizeof names; i++) {
    int n = snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", rows[i].name);
    used += n > 0 ? (size_t)n : 0;
  }
  cli_say("explain: '%s' is no option: accepted is NAME=VALUE, with one of %s", word, names);
  return false;
}

/* The library checks the range, and names it. */
static bool set(corral_policy *policy, const char *word) {
  const char *equals = strchr(word, '=');
  size_t len = equals != NULL ? (size_t)(equals - word) : strlen(word);
  char what[64];
  (void)snprintf(what, sizeof what, "explain: %.*s", (int)(len < 40 ? len : 40), word);
  for (size_t i = 0; i < ROWS && equals != NULL; i++) {
    int64_t *field = (int64_t *)(void *)((char *)policy + rows[i].at);
    if (strlen(rows[i].name) != len || strncmp(rows[i].name, word, len) != 0) continue;
    if (strcmp(equals + 1, "off") == 0) {
      *field = CORRAL_OFF;
      return true;
    }
    if (strcmp(rows[i].unit, "ms") == 0) return cli_duration(what, equals + 1, 0, INT64_MAX, field);
    return cli_count(what, equals + 1, 0, INT64_MAX, field);
  }
  return unknown(word);
}

int cli_explain(const cli_globals *cli, int argc, char **argv) {
  static char text[TEXT_ROOM];
  const cli_grammar grammar = {"explain", "+:", longs};
  corral_error error = {0};
  corral_policy policy = {.size = sizeof policy};
  (void)cli;
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option != OPT_HELP) return CLI_FAILED;
    (void)fputs(cli_help("explain"), stdout);
    return cli_finish(CLI_OK);
  }
  for (int i = optind; i < argc; i++)
    if (!set(&policy, argv[i])) return CLI_FAILED;
  if (corral_policy_explain(&policy, text, sizeof text, &error) != CORRAL_OK)
    return cli_fail("explain: %s", error.text);
  (void)fputs(text, stdout);
  return cli_finish(CLI_OK);
}
