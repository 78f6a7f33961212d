/* grammar.c: reads one option of a command line, and says what is wrong with it: an option is named
 * as it was given, with the one that is meant. */
#include "cli.h"

#include <string.h>

enum { ACCEPTED_ROOM = 900, NAME_MOST = 40 };

/* ---- the options before the subcommand ------------------------------------------------------- */

static const struct option global_longs[] = {
    {"store", required_argument, NULL, CLI_OPT_STORE},
    {"no-host-lock", no_argument, NULL, CLI_OPT_NO_HOST_LOCK},
    {"pass-store", no_argument, NULL, CLI_OPT_PASS_STORE},
    {"json", no_argument, NULL, CLI_OPT_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {0},
};

const cli_grammar cli_global_grammar = {NULL, "+:qvhV", global_longs};

/* The grammar's own options, and those of the tables. */
static void all_of(const cli_grammar *grammar, struct option all[CLI_FLAGS]) {
  size_t count = 0;
  for (; grammar->longs[count].name != NULL; count++) all[count] = grammar->longs[count];
  (void)cli_flags_add(grammar->name, all, count);
}

/* ---- names that are meant ------------------------------------------------------------------ */

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

/* Letters to insert, remove or replace, and neighbours to swap; at most NAME_MOST letters count. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len) {
  unsigned cost[NAME_MOST + 1][NAME_MOST + 1];
  if (a_len > NAME_MOST || b_len > NAME_MOST) return NAME_MOST;
  for (size_t i = 0; i <= a_len; i++) {
    for (size_t j = 0; j <= b_len; j++) {
      cost[i][j] = (unsigned)(i + j);
      if (i == 0 || j == 0) continue;
      cost[i][j] = least(least(cost[i - 1][j], cost[i][j - 1]) + 1,
                         cost[i - 1][j - 1] + (a[i - 1] != b[j - 1] ? 1u : 0u));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a_len][b_len];
}

void cli_guess_consider(cli_guess *g, const char *name) {
  size_t len = strlen(name);
  unsigned d = distance(g->wanted, g->len, name, len);
  if (d > 1 && g->len >= 3 && len > g->len && strncmp(name, g->wanted, g->len) == 0) d = 1;
  if (3 * d > len + 1 || (g->best != NULL && d >= g->distance)) return;
  g->best = name;
  g->distance = d;
}

static const char *nearest(const struct option *longs, const char *name, size_t len) {
  cli_guess g = {.wanted = name, .len = len};
  for (const struct option *o = longs; o->name != NULL; o++) cli_guess_consider(&g, o->name);
  return g.best;
}

/* ---- what is wrong ------------------------------------------------------------------------- */

/* The beginning of a message about an option: "SUBCOMMAND: ", or nothing. */
typedef struct place {
  const char *subcommand, *colon;
} place;

/* Lists the options whose names begin with `len` bytes of `name`; returns their number. */
static size_t list_options(const struct option *longs, const char *name, size_t len, char *text,
                           size_t size) {
  size_t used = 0;
  size_t count = 0;
  text[0] = '\0';
  for (const struct option *o = longs; o->name != NULL && used < size; o++) {
    if (strncmp(o->name, name, len) != 0) continue;
    int n = snprintf(text + used, size - used, "%s--%s", count++ > 0 ? ", " : "", o->name);
    used += n > 0 ? (size_t)n : 0;
  }
  return count;
}

static bool has_name(const struct option *longs, const char *name, size_t len) {
  for (const struct option *o = longs; o->name != NULL; o++)
    if (strlen(o->name) == len && memcmp(o->name, name, len) == 0) return true;
  return false;
}

static bool runs_a_command(const char *subcommand) {
  return strcmp(subcommand, "lock") == 0 || strcmp(subcommand, "run") == 0;
}

/* `shown`: the word as it may be shown; its name without dashes is `len` bytes at `name`. */
static void say_unknown(const place *at, const struct option *longs, const char *shown,
                        const char *name, size_t len) {
  char accepted[ACCEPTED_ROOM];
  struct option globals[CLI_FLAGS] = {0};
  all_of(&cli_global_grammar, globals);
  const char *best = len > 0 ? nearest(longs, name, len) : NULL;
  if (len > 0 && list_options(longs, name, len, accepted, sizeof accepted) > 1)
    cli_say("%s%soption '%s' may be each of %s", at->subcommand, at->colon, shown, accepted);
  else if (at->subcommand[0] != '\0' && has_name(globals, name, len))
    cli_say("%s%sunknown option '%s': it stands before the subcommand: corral %s ... %s",
            at->subcommand, at->colon, shown, shown, at->subcommand);
  else if (at->subcommand[0] == '\0' && cli_flag_is_any(name, len))
    cli_say("unknown option '%s': it stands behind the subcommand, as in corral run %s", shown,
            shown);
  else if (strcmp(shown, "-c") == 0 && runs_a_command(at->subcommand)) /* flock and su have it */
    cli_say("%s: unknown option '-c': a shell's command line is written -- sh -c '...'",
            at->subcommand);
  else if (best != NULL)
    cli_say("%s%sunknown option '%s': did you mean --%s?", at->subcommand, at->colon, shown, best);
  else {
    (void)list_options(longs, "", 0, accepted, sizeof accepted);
    cli_say("%s%sunknown option '%s': accepted are %s", at->subcommand, at->colon, shown, accepted);
  }
}

/* For a long option, `word` is the word of the command line; for a letter, NULL. A value may be a
 * secret, and isn't shown. */
static void say_wrong(const cli_grammar *grammar, const struct option *longs, const char *word,
                      bool lacks_value) {
  const place at = {grammar->name != NULL ? grammar->name : "", grammar->name != NULL ? ": " : ""};
  char shown[CLI_KEY_TEXT];
  char letter[3] = {'-', (char)optopt, '\0'};
  size_t len = word != NULL ? strcspn(word, "=") : 0;
  (void)cli_visible(shown, sizeof shown, word != NULL ? word : letter, word != NULL ? len : 2);
  if (lacks_value)
    cli_say("%s%soption '%s' needs a value", at.subcommand, at.colon, shown);
  else if (word != NULL && optopt != 0)
    cli_say("%s%soption '%s' takes no value", at.subcommand, at.colon, shown);
  else
    say_unknown(&at, longs, shown, word != NULL ? word + 2 : "", word != NULL ? len - 2 : 0);
}

/* The letter is none of the grammar's, so it stood alone; an optopt of 0, or one that is a letter
 * of the grammar, or no letter at all, is a long option's. */
static bool is_letter(const cli_grammar *grammar, int got, const char *word) {
  if (got == ':') return strncmp(word, "--", 2) != 0;
  return optopt > 0 && optopt < 256 && strchr(grammar->shorts, optopt) == NULL;
}

static struct {
  cli_hear_fn *hear;
  void *arg;
} listener;

void cli_option_hear(cli_hear_fn *hear, void *arg) {
  listener.hear = hear;
  listener.arg = arg;
}

static int tell(const cli_grammar *grammar, const struct option *longs) {
  listener.hear(grammar, longs, listener.arg);
  listener.hear = NULL;
  return '?';
}

int cli_option(const cli_grammar *grammar, int argc, char **argv) {
  struct option longs[CLI_FLAGS] = {0};
  all_of(grammar, longs);
  if (listener.hear != NULL) return tell(grammar, longs);
  opterr = 0;
  int got = getopt_long(argc, argv, grammar->shorts, longs, NULL);
  if (got != '?' && got != ':') return got;
  const char *word = argv[optind - 1];
  say_wrong(grammar, longs, is_letter(grammar, got, word) ? NULL : word, got == ':');
  return '?';
}
