/* key.c: corral key: prints the store's key for a name. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { OPT_TAG = 256, OPT_LOCK, OPT_VARIANT };

typedef struct wish {
  corral_key_kind kind;
  const char *variant; /* NULL: none */
  int options;
  const char *name;
} wish;

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, wish *w) {
  static const struct option longs[] = {{"tag", no_argument, NULL, OPT_TAG},
                                        {"lock", no_argument, NULL, OPT_LOCK},
                                        {"variant", required_argument, NULL, OPT_VARIANT},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};
  const cli_grammar grammar = {"key", ":h", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1; w->options++) {
    switch (option) {
      case OPT_TAG: w->kind = CORRAL_KEY_TAG; break;
      case OPT_LOCK: w->kind = CORRAL_KEY_LOCK; break;
      case OPT_VARIANT: w->variant = optarg; break;
      case 'h': (void)fputs(cli_help("key"), stdout); return cli_finish(CLI_OK);
      default: return CLI_FAILED;
    }
  }
  return -1;
}

static int parse(int argc, char **argv, wish *w) {
  int status = parse_options(argc, argv, w);
  if (status >= 0) return status;
  if (w->options > 1)
    return cli_fail("key: --tag, --lock and --variant can't be combined: one of them is accepted");
  if (argc - optind < 1) return cli_fail("key: no NAME given: corral key --help shows the usage");
  if (argc - optind > 1)
    return cli_fail("key: '%s' is one argument too many: exactly one NAME is accepted",
                    argv[optind + 1]);
  w->name = argv[optind];
  return -1;
}

static void print_text(const unsigned char *key, size_t len) {
  for (size_t i = 0; i < len; i++)
    (void)printf(key[i] < ' ' || key[i] > '~' || key[i] == '\\' ? "\\x%02x" : "%c", key[i]);
  (void)printf("\n");
}

static void print_json(const wish *w, const unsigned char *key, size_t len) {
  (void)printf("{\"name\":");
  cli_json_string(stdout, w->name, strlen(w->name));
  (void)printf(",\"key\":");
  cli_json_string(stdout, key, len);
  (void)printf("}\n");
}

static int print(const cli_globals *cli, corral *c, const wish *w) {
  static unsigned char key[CORRAL_KEY_MAX];
  size_t len = 0;
  corral_error error = {0};
  corral_call *call = CORRAL_CALL(.error = &error, .variant = w->variant,
                                  .variant_len = w->variant != NULL ? strlen(w->variant) : 0);
  int status = corral_encode_key(c, w->kind, w->name, strlen(w->name), call, key, sizeof key, &len);
  if (status != CORRAL_OK) return cli_report(w->name, strlen(w->name), status, &error);
  if (cli->json)
    print_json(w, key, len);
  else
    print_text(key, len);
  return cli_finish(CLI_OK);
}

int cli_key(const cli_globals *cli, int argc, char **argv) {
  wish w = {.kind = CORRAL_KEY_VALUE};
  corral *c = NULL;
  int status = parse(argc, argv, &w);
  if (status >= 0) return status;
  cli_globals quiet = *cli; /* the store isn't asked: it may be any */
  quiet.quiet = true;
  if (!cli_open(&quiet, false, &(corral_options){.size = sizeof(corral_options)}, &c))
    return CLI_FAILED;
  status = print(cli, c, &w);
  corral_close(c);
  return status;
}
