/* control.c: corral control: orders all processes that have a namespace open to freeze, to go
 * around the cache, to compute less at once, or to drop their near copies; or shows the order in
 * force.
 *
 * With --json it prints one object. */
#include "cli.h"

#include <string.h>

enum { OPT_FOR = 256, FOR_LEAST = 1000, NAME_TEXT = 40 };

typedef struct wish {
  const char *name_space;
  bool gives; /* an order; else the one in force is shown */
  corral_control verb;
  int64_t number;
  int64_t for_ms; /* 0: the default */
} wish;

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, wish *w) {
  static const struct option longs[] = {
      {"for", required_argument, NULL, OPT_FOR}, {"help", no_argument, NULL, 'h'}, {0}};
  const cli_grammar grammar = {"control", ":h", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option == 'h') return cli_print(cli_help("control"));
    if (option != OPT_FOR ||
        !cli_duration("control: --for", optarg, FOR_LEAST, CORRAL_CONTROL_FOR_MOST, &w->for_ms))
      return CLI_FAILED;
  }
  return -1;
}

static bool parse_verb(const char *word, wish *w) {
  cli_guess g = {.wanted = word, .len = strlen(word)};
  char shown[CLI_KEY_TEXT];
  for (int verb = 0; verb < CORRAL_CONTROL_COUNT; verb++) {
    const char *name = corral_control_name((corral_control)verb);
    if (strcmp(name, word) == 0) w->verb = (corral_control)verb;
    if (strcmp(name, word) == 0) return true;
    cli_guess_consider(&g, name);
  }
  (void)cli_visible(shown, sizeof shown, word, strlen(word));
  if (g.best != NULL)
    cli_say("control: unknown order '%s': did you mean %s?", shown, g.best);
  else
    cli_say("control: unknown order '%s': accepted are bypass, freeze, drop-near, limit N, normal",
            shown);
  return false;
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, wish *w) {
  int status = parse_options(argc, argv, w);
  if (status >= 0) return status;
  int words = argc - optind;
  if (words < 1)
    return cli_fail("control: no NAMESPACE given ('' is none): corral control --help shows the "
                    "usage");
  w->name_space = argv[optind];
  w->gives = words > 1;
  if (w->gives && !parse_verb(argv[optind + 1], w)) return CLI_FAILED;
  int takes = w->gives && w->verb == CORRAL_CONTROL_LIMIT ? 3 : 2;
  if (words < takes && w->gives) return cli_fail("control: no N given: limit N is accepted");
  if (words > takes)
    return cli_fail("control: '%s' is one argument too many", argv[optind + takes]);
  if (takes == 3 &&
      !cli_count("control: limit", argv[optind + 2], 1, CORRAL_CONTROL_NUMBER_MOST, &w->number))
    return CLI_FAILED;
  if (w->for_ms > 0 && (!w->gives || w->verb == CORRAL_CONTROL_NORMAL))
    return cli_fail("control: --for is for an order that begins something");
  return -1;
}

/* ---- texts --------------------------------------------------------------------------------- */

static const char *name_text(char text[NAME_TEXT], corral_control verb, int64_t number) {
  const char *name = corral_control_name(verb);
  if (verb == CORRAL_CONTROL_LIMIT)
    (void)snprintf(text, NAME_TEXT, "%s %lld", name, (long long)number);
  else
    (void)snprintf(text, NAME_TEXT, "%s", name);
  return text;
}

/* In whole seconds, rounded up. */
const char *cli_order_text(char text[CLI_ORDER_TEXT], const corral_control_state *order) {
  char left[CLI_DURATION_TEXT], name[NAME_TEXT];
  (void)name_text(name, order->verb, order->number);
  (void)cli_duration_text(left, (order->left_ms + 999) / 1000 * 1000);
  if (order->verb == CORRAL_CONTROL_NORMAL)
    (void)snprintf(text, CLI_ORDER_TEXT, "%s", name);
  else
    (void)snprintf(text, CLI_ORDER_TEXT, "%s: %s; ends in %s", name,
                   corral_control_text(order->verb), left);
  return text;
}

/* ---- orders -------------------------------------------------------------------------------- */

static int give(const cli_globals *cli, corral *c, const wish *w) {
  corral_error error = {0};
  char text[CLI_DURATION_TEXT], order[NAME_TEXT];
  int64_t for_ms = w->for_ms > 0 ? w->for_ms : CORRAL_CONTROL_FOR_MS;
  int status = corral_control_set(c, w->verb, w->number, w->for_ms, &error);
  if (status != CORRAL_OK) return cli_report_as("control", status, &error);
  if (w->verb == CORRAL_CONTROL_NORMAL || w->verb == CORRAL_CONTROL_DROP_NEAR || cli->quiet)
    return CLI_OK;
  cli_note("%s ends by itself in %s", name_text(order, w->verb, w->number),
           cli_duration_text(text, for_ms));
  return CLI_OK;
}

static int show(const cli_globals *cli, corral *c, const wish *w) {
  corral_error error = {0};
  char text[CLI_ORDER_TEXT];
  corral_control_state now = {.size = sizeof now};
  int status = corral_control_read(c, &now, &error);
  if (status != CORRAL_OK) return cli_report_as("control", status, &error);
  if (cli->json) {
    (void)printf("{\"namespace\":");
    cli_json_string(stdout, w->name_space, strlen(w->name_space));
    (void)printf(",\"order\":\"%s\",\"number\":%lld,\"left_ms\":%lld}\n",
                 corral_control_name(now.verb), (long long)now.number, (long long)now.left_ms);
  } else {
    (void)puts(cli_order_text(text, &now));
  }
  return cli_finish(CLI_OK);
}

int cli_control(const cli_globals *cli, int argc, char **argv) {
  wish w = {.name_space = NULL};
  corral *c = NULL;
  cli_globals of = *cli;
  int status = parse(argc, argv, &w);
  if (status >= 0) return status;
  of.options.name_space = w.name_space;
  if (!cli_open(&of, false, &(corral_options){.size = sizeof(corral_options)}, &c))
    return CLI_FAILED;
  status = w.gives ? give(&of, c, &w) : show(&of, c, &w);
  corral_close(c);
  return status;
}
