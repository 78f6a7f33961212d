/* explain.c: corral explain: prints what a policy will do. Its arguments are options of a call, as
 * corral_policy_set takes them. */
#include "cli.h"

#include <string.h>

enum { TEXT_ROOM = 8192, NAME_ROOM = 128 };

static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {0}};

static bool set(corral_policy *policy, const char *word) {
  char name[NAME_ROOM];
  corral_error error = {0};
  const char *equals = strchr(word, '=');
  size_t len = equals != NULL ? (size_t)(equals - word) : 0;
  if (equals == NULL)
    return cli_say("explain: '%s' is not accepted: NAME=VALUE is, as in ttl=5m", word), false;
  (void)snprintf(name, sizeof name, "%.*s", (int)(len < NAME_ROOM ? len : NAME_ROOM - 1), word);
  int status = corral_policy_set(policy, name, equals + 1, &error);
  if (status != CORRAL_OK) cli_say("explain: %s", error.text);
  return status == CORRAL_OK;
}

int cli_explain(const cli_globals *cli, int argc, char **argv) {
  static char text[TEXT_ROOM];
  const cli_grammar grammar = {"explain", "+:h", longs};
  corral_error error = {0};
  corral_policy policy = {.size = sizeof policy};
  (void)cli;
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option != 'h') return CLI_FAILED;
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
