/* main.c: corral-conformance URI...: runs the same cases against any store; prints a line for
 * each. */
#include "conformance.h"

#include <getopt.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/registry.h"
#include "store/secret.h"
#include "store/uri.h"

enum { EXIT_BROKEN = 125, CHOSEN = 64 };

/* The declarations of a store's `open`, kept after its close. */
typedef struct store_card {
  const corral_store *plugin;
  corral_store_info info;
  char name[256], uri[512]; /* the URI without its password */
} store_card;

static struct options {
  bool quiet, list;
  const char *move;
  const char *chosen[CHOSEN];
  size_t chosen_count;
} options;

static size_t totals[VERDICT_FAILED + 1];

static const char help[] =
    "Usage: corral-conformance [--case NAME]... [--move COMMAND] [--quiet] URI...\n"
    "       corral-conformance --list\n"
    "\n"
    "Runs the same cases against each store, and prints a line for each:\n"
    "  ok     it does what every store must\n"
    "  can't  it doesn't, and declares so\n"
    "  FAIL   what was expected, and what came\n"
    "\n"
    "      --case NAME  this case alone; may be repeated\n"
    "      --move COMMAND  moves the key that is its last argument to "
    "another server of the store\n"
    "      --list       print the names of the cases\n"
    "  -q, --quiet      only the lines that aren't ok, and the totals\n"
    "      --help       this text\n"
    "      --version    the version\n"
    "\n"
    "Plugins are looked for as the library does: in CORRAL_PLUGIN_PATH, "
    "then where corral is installed.\n"
    "Keys are the run's own, and removed. Exit status: 0, 1 when a case "
    "failed, 125 when it was used wrongly or a store\n"
    "can't be opened.\n";

/* ---- cases by name ------------------------------------------------------------------------- */

/* "a_claim_is_granted" as "a-claim-is-granted" */
static const char *shown(const test_case *test) {
  static char text[96];
  snprintf(text, sizeof text, "%s", test->name);
  for (char *at = text; *at != '\0'; at++)
    if (*at == '_') *at = '-';
  return text;
}

static bool is_known(const char *name) {
  for (size_t i = 0; i < test_case_count; i++)
    if (strcmp(shown(&test_cases[i]), name) == 0) return true;
  return false;
}

static bool is_chosen(const test_case *test) {
  for (size_t i = 0; i < options.chosen_count; i++)
    if (strcmp(shown(test), options.chosen[i]) == 0) return true;
  return options.chosen_count == 0;
}

/* ---- a store ------------------------------------------------------------------------------- */

static int read_card(const char *text, store_card *card, corral_error *error) {
  crl_uri uri;
  void *store = NULL;
  memset(card, 0, sizeof *card);
  int status = crl_uri_parse(&uri, text, error);
  if (status != CORRAL_OK) return status;
  snprintf(card->uri, sizeof card->uri, "%s", uri.view.text);
  status = crl_secret_resolve(&uri, error);
  card->info = (corral_store_info){.size = sizeof card->info,
                                   .max_key = CORRAL_KEY_MAX,
                                   .max_record = UINT64_C(600) << 20,
                                   .handles = 2,
                                   .name = "",
                                   .reach = CORRAL_REACH_FLEET,
                                   .servers = 1};
  if (status == CORRAL_OK) status = crl_registry_find(uri.view.scheme, &card->plugin, error);
  if (status == CORRAL_OK)
    status = card->plugin->open(host(), &uri.view, &store, &card->info, error);
  crl_uri_free(&uri);
  if (status != CORRAL_OK) return status;
  snprintf(card->name, sizeof card->name, "%s", card->info.name == NULL ? "" : card->info.name);
  card->info.name = card->name;
  card->plugin->close(store);
  return CORRAL_OK;
}

static const char *reach_name(int64_t reach) {
  return reach == CORRAL_REACH_PROCESS ? "process"
         : reach == CORRAL_REACH_HOST  ? "host"
         : reach == CORRAL_REACH_FLEET ? "fleet"
                                       : "?";
}

static void print_card(const store_card *card) {
  const corral_store_info *info = &card->info;
  printf("%s: store %s, plugin %s (%s), %s, max_key %zu, max_record %llu, handles %lld, servers "
         "%zu, reach %s%s\n",
         card->uri, card->name[0] != '\0' ? card->name : "without a name", card->plugin->name,
         card->plugin->schemes,
         card->plugin->threads == CORRAL_THREADS_PARALLEL ? "a handle for all threads"
                                                          : "a handle for one thread at a time",
         info->max_key, (unsigned long long)info->max_record, (long long)info->handles,
         info->servers, reach_name(info->reach), info->locks_only ? ", locks only" : "");
}

/* The fault in what a store declares, or NULL. */
static const char *wrong_card(const store_card *card) {
  const corral_store_info *info = &card->info;
  if (info->max_key < KEY_LEAST) return "a store must take keys of 64 bytes";
  if (info->max_record < RECORD_LEAST && !info->locks_only)
    return "a store must take records of 4096 bytes";
  if (info->servers < 1 || info->servers > CORRAL_SERVERS) return "servers must be 1 to 1024";
  if (info->servers > 1 && (card->plugin->route == NULL || card->plugin->connect_server == NULL))
    return "several servers need route and connect_server";
  if ((card->plugin->watch == NULL) != (card->plugin->changes == NULL) ||
      (card->plugin->watch == NULL) != (card->plugin->unwatch == NULL))
    return "watch, changes and unwatch: all three or none";
  if ((card->plugin->attend == NULL) != (card->plugin->ends == NULL))
    return "attend and ends: both or neither";
  if ((card->plugin->map == NULL) != (card->plugin->take_map == NULL))
    return "map and take_map: both or neither";
  if (card->plugin->register_keys != NULL && card->plugin->watch == NULL)
    return "register_keys needs a watch";
  if (reach_name(info->reach)[0] == '?') return "reach is none of CORRAL_REACH_";
  return NULL;
}

/* ---- the cases of a store ------------------------------------------------------------------ */

static void print_result(const test_case *test, verdict what, const char *text) {
  static const char *const words[] = {"FAIL ", "ok   ", "can't", "FAIL "};
  totals[what == VERDICT_NONE ? VERDICT_FAILED : what]++;
  if (what == VERDICT_OK && options.quiet) return;
  printf("  %s  %s%s%s\n", words[what], shown(test), text[0] != '\0' ? ": " : "", text);
  (void)fflush(stdout);
}

static void run_case(const test_case *test, const char *uri, const store_card *card) {
  const char *refused = card->plugin->refresh != NULL ? "its servers come and go, past any proxy"
                                                      : proxies_refuse(uri);
  if (card->info.locks_only && !(test->needs & NEEDS_NO_VALUES)) {
    print_result(test, VERDICT_CANT, "the store declares that it has locks only (locks_only)");
  } else if ((test->needs & NEEDS_PERMITS) && !card->info.permits) {
    print_result(test, VERDICT_CANT, "the store declares no permits (permits)");
  } else if ((test->needs & NEEDS_PROCESSES) && card->info.reach == CORRAL_REACH_PROCESS) {
    print_result(test, VERDICT_CANT,
                 "the store declares that it is this process's alone (CORRAL_REACH_PROCESS)");
  } else if ((test->needs & NEEDS_MOVES) && card->plugin->refresh == NULL) {
    print_result(test, VERDICT_CANT, "the store's servers don't come and go (refresh)");
  } else if ((test->needs & NEEDS_MOVES) && options.move == NULL) {
    print_result(test, VERDICT_CANT, "no program moves its keys (--move)");
  } else if ((test->needs & NEEDS_SERVER) && refused != NULL) {
    print_result(test, VERDICT_CANT, refused);
  } else {
    const report *r = trial_run(test, uri, &card->info);
    print_result(test, atomic_load(&r->verdict), r->text);
  }
}

static void try_connecting(void) {
  client *c = client_new();
  int status = client_connect(c, now_ms() + LIMIT_MS);
  if (status != CORRAL_OK) failed("%s: %s", corral_status_name(status), client_error(c));
}

static int refuse(const char *uri, const char *why) {
  (void)fflush(stdout);
  fprintf(stderr, "corral-conformance: %s: %s\n", uri, why);
  return EXIT_BROKEN;
}

static int run_store(const char *uri) {
  static const test_case connecting = {"connecting", try_connecting, 0};
  store_card card;
  corral_error error = {0};
  int status = read_card(uri, &card, &error);
  if (status != CORRAL_OK)
    return refuse(card.uri[0] != '\0' ? card.uri : "URI",
                  error.text[0] != '\0' ? error.text : corral_status_text(status));
  print_card(&card);
  const char *wrong = wrong_card(&card);
  if (wrong != NULL) return refuse(card.uri, wrong);
  const report *r = trial_run(&connecting, uri, &card.info);
  if (atomic_load(&r->verdict) != VERDICT_OK) return refuse(card.uri, r->text);
  for (size_t i = 0; i < test_case_count; i++)
    if (is_chosen(&test_cases[i])) run_case(&test_cases[i], uri, &card);
  return 0;
}

/* Runs the cases of a URI of the command line, which ps shows: its secrets are overwritten there
 * before the cases run. */
static int run_argument(char *arg) {
  size_t size = strlen(arg), room = 2 * size + 8;
  char *uri = strdup(arg), *shown = malloc(room);
  int status = EXIT_BROKEN;
  if (uri != NULL && shown != NULL) {
    corral_uri_show(uri, shown, room);
    memset(arg, 0, size);
    memcpy(arg, shown, strlen(shown) < size ? strlen(shown) : size);
    status = run_store(uri);
    explicit_bzero(uri, size);
  }
  free(uri);
  free(shown);
  return status;
}

/* ---- options ------------------------------------------------------------------------------- */

static int misused(const char *what, const char *text) {
  fprintf(stderr, "corral-conformance: %s%s; --help tells more\n", what, text);
  return EXIT_BROKEN;
}

static int choose(const char *name) {
  if (!is_known(name)) return misused("--list tells the cases; there is none named ", name);
  if (options.chosen_count == CHOSEN) return misused("too many times --case", "");
  options.chosen[options.chosen_count++] = name;
  return -1;
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv) {
  enum { OPT_CASE = 256, OPT_MOVE, OPT_LIST, OPT_HELP, OPT_VERSION };
  static const struct option longs[] = {{"case", required_argument, NULL, OPT_CASE},
                                        {"list", no_argument, NULL, OPT_LIST},
                                        {"move", required_argument, NULL, OPT_MOVE},
                                        {"quiet", no_argument, NULL, 'q'},
                                        {"help", no_argument, NULL, OPT_HELP},
                                        {"version", no_argument, NULL, OPT_VERSION},
                                        {0}};
  for (int option, status = -1; (option = getopt_long(argc, argv, "q", longs, NULL)) != -1;) {
    switch (option) {
      case OPT_CASE: status = choose(optarg); break;
      case OPT_MOVE: key_move_by(options.move = optarg); break;
      case OPT_LIST: options.list = true; break;
      case 'q': options.quiet = true; break;
      case OPT_HELP: return fputs(help, stdout) < 0 ? EXIT_BROKEN : 0;
      case OPT_VERSION:
        return printf("corral-conformance %s\n", CORRAL_VERSION) < 0 ? EXIT_BROKEN : 0;
      default: return EXIT_BROKEN; /* getopt_long has printed the reason */
    }
    if (status >= 0) return status;
  }
  return -1;
}

int main(int argc, char **argv) {
  int status = parse(argc, argv), broken = 0;
  if (status >= 0) return status;
  host()->guard_standard();
  for (size_t i = 0; options.list && i < test_case_count; i++) puts(shown(&test_cases[i]));
  if (options.list) return 0;
  if (optind >= argc) return misused("no URI: give that of a store, such as memory:", "");
  tokens_make();
  for (int i = optind; i < argc; i++) {
    status = run_argument(argv[i]);
    if (status != 0) broken = status;
  }
  printf("%zu ok, %zu can't, %zu failed\n", totals[VERDICT_OK], totals[VERDICT_CANT],
         totals[VERDICT_FAILED]);
  if (fflush(stdout) != 0) return EXIT_BROKEN;
  return broken != 0 ? broken : totals[VERDICT_FAILED] > 0;
}
