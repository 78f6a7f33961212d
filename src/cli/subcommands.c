/* subcommands.c: the table of subcommands, and those that tell about the command itself. */
#include "cli.h"

#include <string.h>

static int help(const cli_globals *cli, int argc, char **argv);

const cli_subcommand cli_subcommands[] = {
    {"run", cli_run, true, true, "command", " -- CMD...",
     "run a command at most once; replay its output to everyone"},
    {"get", cli_get, true, true, "", " KEY", "print a stored value"},
    {"set", cli_set, true, true, "", " KEY [VALUE]", "store a value (from stdin without VALUE)"},
    {"invalidate", cli_invalidate, true, true, "", " KEY...",
     "never serve what is stored, nor what is being computed"},
    {"expire", cli_expire, true, true, "", " KEY...",
     "end the fresh life now; stale may still be served"},
    {"inspect", cli_inspect, true, true, "", " KEY",
     "state, age, lives, cost, size, and who rebuilds it"},
    {"lock", cli_lock, true, true, "name command", " NAME -- CMD...",
     "run a command under a lock; --show NAME: who holds it"},
    {"key", cli_key, true, true, "", " NAME", "the key that the store is asked for"},
    {"explain", cli_explain, true, false, "policy", " NAME=VALUE",
     "what a policy will do, in sentences"},
    {"warm", cli_warm, true, true, "file", " [FILE]...",
     "compute many keys' values before anybody asks for them"},
    {"storm", cli_storm, true, false, "", "",
     "let a herd loose on a database, without and with corral"},
    {"doctor", cli_doctor, true, false, "store", " URI",
     "is that store fit? its servers, rights, clocks, memory"},
    {"stat", cli_stat, true, false, "", " | top | flights | log",
     "what this host's processes count, do and tell"},
    {"top", cli_top, true, false, "", NULL, "the rates of this host's processes, live"},
    {"flights", cli_flights, true, false, "", NULL, "what this host's processes compute"},
    {"log", cli_log, true, false, "", NULL, "the events of this host's processes"},
    {"completion", cli_completion, false, false, "shell", " SHELL",
     "what bash, zsh or fish reads to complete a command line"},
    {"help", help, false, false, "subcommand", NULL, "a short help"},
    {"version", cli_version, false, false, "", NULL, "the version of the library that runs"},
    {0},
};

/* The URI that a word may be, whose --store is missing, loses its password. */
int cli_unknown_subcommand(const char *name) {
  char list[240] = "";
  size_t used = 0;
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL && used < sizeof list; s++) {
    int n = snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "", s->name);
    used += n > 0 ? (size_t)n : 0;
  }
  char uri[CLI_KEY_TEXT], shown[CLI_KEY_TEXT];
  if (name == NULL) return cli_fail("no subcommand: accepted are %s", list);
  corral_uri_show(name, uri, sizeof uri);
  (void)cli_visible(shown, sizeof shown, uri, strlen(uri));
  cli_guess g = {.wanted = name, .len = strlen(name)};
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++)
    cli_guess_consider(&g, s->name);
  if (g.best != NULL) return cli_fail("unknown subcommand '%s': did you mean %s?", shown, g.best);
  return cli_fail("unknown subcommand '%s': accepted are %s", shown, list);
}

int cli_print(const char *text) {
  (void)fputs(text, stdout);
  return cli_finish(CLI_OK);
}

static int too_many(const char *name, const char *argument, const char *accepted) {
  return cli_fail("%s: '%s' is one argument too many: %s", name, argument, accepted);
}

int cli_version(const cli_globals *cli, int argc, char **argv) {
  (void)cli;
  if (argc > 1) return too_many("version", argv[1], "none is accepted");
  (void)printf("corral %s\n", corral_version());
  return cli_finish(CLI_OK);
}

const cli_subcommand *cli_subcommand_of(const char *name) {
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++)
    if (strcmp(s->name, name) == 0) return s;
  return NULL;
}

/* `corral help [SUBCOMMAND]` */
static int help(const cli_globals *cli, int argc, char **argv) {
  (void)cli;
  if (argc > 2) return too_many("help", argv[2], "one SUBCOMMAND is accepted");
  if (argc < 2 || cli_subcommand_of(argv[1]) != NULL) return cli_print(cli_help(argv[1]));
  return cli_unknown_subcommand(argv[1]);
}
