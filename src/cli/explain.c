/* explain.c: corral explain: prints what a policy will do. Its arguments are options of a call, as
 * corral_policy_set takes them. A store that was named is asked for the operator's order in force,
 * which goes before any policy. */
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

static void print_order(const cli_globals *cli, const corral_control_state *order) {
  char text[CLI_ORDER_TEXT], name[CLI_KEY_TEXT];
  const char *name_space = cli->options.name_space != NULL ? cli->options.name_space : "";
  if (order->verb == CORRAL_CONTROL_NORMAL) return;
  (void)printf("An operator's order is in force in namespace %s: %s. Processes with the option "
               "control follow it, whatever their policy is.\n",
               cli_key_text(name, name_space, strlen(name_space)), cli_order_text(text, order));
}

/* Nothing is counted, and no file is made. Returns the exit status. */
static int explain_order(const cli_globals *cli) {
  corral *c = NULL;
  bool is_absent = false;
  cli_globals quiet = *cli;
  corral_error error = {0};
  corral_options options = {.size = sizeof options, .stats_dir = "off"};
  corral_control_state order = {.size = sizeof order};
  quiet.quiet = true;
  quiet.verbose = false;
  if (!cli->store_given) return CLI_OK;
  if (!cli_open_to_look(&quiet, &options, &c, &is_absent)) return CLI_FAILED;
  int status = is_absent ? CORRAL_OK : corral_control_read(c, &order, &error);
  corral_close(c);
  if (status == CORRAL_OK)
    print_order(cli, &order);
  else if (!cli->quiet)
    cli_note("explain: whether an operator's order is in force isn't known: %s",
             error.text[0] != '\0' ? error.text : corral_status_text(status));
  return CLI_OK;
}

int cli_explain(const cli_globals *cli, int argc, char **argv) {
  static char text[TEXT_ROOM];
  const cli_grammar grammar = {"explain", "+:h", longs};
  corral_error error = {0};
  corral_policy policy = {.size = sizeof policy};
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
  return cli_finish(explain_order(cli));
}
