/* main.c: the corral command: the global options, their environment variables, and the start of a
 * subcommand.
 *
 * An option overrides its environment variable, which overrides the default. The variable of a
 * switch is on when it is set to anything but the empty text and "0". */
#include "cli.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool env_switch(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

static const char *env_text(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : NULL;
}

/* CORRAL_OP counts unless --op is given. */
static bool take_op(cli_globals *cli, const char *text) {
  const cli_flags flags = {.options = &cli->options};
  return text == NULL || cli->options.op_ms != 0 ||
         cli_flag_set_as(&flags, "CORRAL_OP", "op", text);
}

/* Parses the global options. -1: go on; else the exit status. */
static int parse(cli_globals *cli, int argc, char **argv) {
  const cli_flags flags = {.options = &cli->options};
  for (;;) {
    int option = cli_option(&cli_global_grammar, argc, argv);
    switch (option) {
      case -1: return -1;
      case CLI_OPT_STORE: cli->store = cli_take_uri(optarg); break;
      case CLI_OPT_NO_HOST_LOCK: cli->no_host_lock = true; break;
      case CLI_OPT_PASS_STORE: cli->pass_store = true; break;
      case CLI_OPT_JSON:
        cli->json = true;
        cli_say_json();
        break;
      case 'q':
        cli->quiet = true;
        cli->verbose = false;
        break;
      case 'v':
        cli->verbose = true;
        cli->quiet = false;
        break;
      case 'h': return cli_print(cli_help(NULL));
      case 'V': return cli_version(cli, 1, argv);
      default:
        if (!cli_flag_set(&flags, option, optarg)) return CLI_FAILED;
    }
  }
}

/* False: there is no store, and the subcommand can't go on without one. */
static bool choose_store(cli_globals *cli, const cli_subcommand *sub) {
  cli->store_given = cli->store != NULL;
  if (cli->store_given || !sub->needs_store) return true;
  if (cli->store_withheld)
    return cli_say("no store: the corral command that runs this one keeps its CORRAL_STORE to "
                   "itself: give --store here, or --pass-store there"),
           false;
  cli->store = cli_default_store();
  cli->is_default = cli->store != NULL;
  cli->is_nowhere = cli->store == NULL && (sub->main == cli_run || sub->main == cli_key);
  if (cli->is_nowhere) cli->store = "memory:";
  if (cli->store == NULL)
    cli_say("no store: give --store, or set CORRAL_STORE, CACHE_DIRECTORY, XDG_CACHE_HOME or HOME");
  return cli->store != NULL;
}

static int start(cli_globals *cli, const cli_subcommand *sub, int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--help") == 0) return cli_print(cli_help(sub->name));
  if (!choose_store(cli, sub)) return CLI_FAILED;
  if (!cli_hand_down_store(cli)) return cli_fail("out of memory");
  optind = 0;
  return sub->main(cli, argc, argv);
}

/* Opens /dev/null for each closed standard stream, before a store's socket or file can get its
 * number. Each is opened in the opposite direction, so that reading and printing still fail. */
static void guard_streams(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0)
      (void)open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_NOCTTY);
}

static int corral_command(int argc, char **argv) {
  cli_globals cli = {
      .options = {.size = sizeof(corral_options),
                  .name_space = env_text("CORRAL_NAMESPACE"),
                  .generation = env_switch("CORRAL_GENERATION")},
      .no_host_lock = env_switch("CORRAL_NO_HOST_LOCK"),
      .control = env_switch("CORRAL_CONTROL"),
      .json = env_switch("CORRAL_JSON"),
      .quiet = env_switch("CORRAL_QUIET"),
      .verbose = env_switch("CORRAL_VERBOSE"),
      .pass_store = env_switch("CORRAL_PASS_STORE"),
  };
  const char *op = env_text("CORRAL_OP");
  if (cli.json) cli_say_json();
  cli.store = cli_take_store(&cli.store_withheld);
  int status = parse(&cli, argc, argv);
  if (status >= 0) return status;
  if (!take_op(&cli, op)) return CLI_FAILED;
  if (optind >= argc) return cli_unknown_subcommand(NULL);
  const cli_subcommand *sub = cli_subcommand_of(argv[optind]);
  if (sub != NULL) return start(&cli, sub, argc - optind, argv + optind);
  return cli_unknown_subcommand(argv[optind]);
}

int main(int argc, char **argv) {
  guard_streams();
  (void)setlocale(LC_CTYPE, "");
  (void)signal(SIGCHLD, SIG_DFL);
  return cli_say_end(corral_command(argc, argv));
}
