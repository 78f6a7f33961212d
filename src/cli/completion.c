/* completion.c: corral completion: prints the script by which a shell completes the command line.
 *
 * Nothing is listed here: subcommands come from the table of subcommands.c, options from the
 * parser of each subcommand, which is asked for its grammar, and their words from the tables of
 * options. */
#include "completion.h"

#include <corral/control.h>
#include <string.h>

enum { LIST_ROOM = 1024 };

/* ---- options ------------------------------------------------------------------------------- */

typedef struct gathering {
  const char *subcommand;
  completion_option *options;
  size_t count;
} gathering;

static completion_option *add(gathering *g) {
  if (g->count >= COMPLETION_OPTIONS) return NULL;
  completion_option *o = &g->options[g->count++];
  *o = (completion_option){0};
  return o;
}

static completion_value value_of(const gathering *g, const struct option *option,
                                 const char *words) {
  if (option->has_arg == no_argument) return COMPLETION_NONE;
  if (words != NULL) return COMPLETION_WORDS;
  if (g->subcommand == NULL && strcmp(option->name, "store") == 0) return COMPLETION_STORE;
  return option->val >= CLI_FLAG ? COMPLETION_OTHER : COMPLETION_FILE;
}

static void add_long(gathering *g, const struct option *option) {
  const char *words = cli_words(g->subcommand, option->name);
  completion_option *o = add(g);
  if (o == NULL) return;
  o->name = option->name;
  o->letter = option->val > 0 && option->val < 256 ? (char)option->val : '\0';
  o->value = value_of(g, option, words);
  o->may_lack = option->has_arg == optional_argument;
  o->text = cli_flag_text(option->val);
  (void)snprintf(o->words, sizeof o->words, "%s", words != NULL ? words : "");
  for (char *at = o->words; (at = strchr(at, '|')) != NULL;) *at = ' ';
}

static bool has_letter(const gathering *g, char letter) {
  for (size_t i = 0; i < g->count; i++)
    if (g->options[i].letter == letter) return true;
  return false;
}

/* Letters that no long option names. */
static void add_letters(gathering *g, const char *shorts) {
  for (const char *at = shorts; *at != '\0'; at++) {
    if (strchr("+-:", *at) != NULL || has_letter(g, *at)) continue;
    completion_option *o = add(g);
    if (o == NULL) return;
    o->letter = *at;
    o->value = at[1] == ':' ? COMPLETION_OTHER : COMPLETION_NONE;
  }
}

static void hear(const cli_grammar *grammar, const struct option *longs, void *arg) {
  gathering *g = arg;
  for (const struct option *o = longs; o->name != NULL; o++) add_long(g, o);
  add_letters(g, grammar->shorts);
}

size_t completion_options(const cli_subcommand *sub,
                          completion_option options[COMPLETION_OPTIONS]) {
  static const cli_globals none = {.options = {.size = sizeof(corral_options)}};
  char name[32];
  char *argv[] = {name, NULL};
  gathering g = {.subcommand = sub != NULL ? sub->name : NULL, .options = options};
  (void)snprintf(name, sizeof name, "%s", sub != NULL ? sub->name : "corral");
  if (sub != NULL && sub->has_options) {
    cli_option_hear(hear, &g);
    (void)sub->main(&none, 1, argv);
  } else if (sub == NULL) {
    cli_option_hear(hear, &g);
    (void)cli_option(&cli_global_grammar, 1, argv);
  }
  return g.count;
}

/* ---- words --------------------------------------------------------------------------------- */

const char *completion_policy(void) {
  return
#define POLICY(field, name, group, unit, def, least, most, command, nginx, text) name "= "
      CORRAL_POLICY_MAP(POLICY)
#undef POLICY
          ;
}

const char *completion_orders(void) {
  return
#define ORDER(id, name, text) name " "
      CORRAL_CONTROL_MAP(ORDER)
#undef ORDER
          ;
}

const char *completion_schemes(void) {
  static char list[LIST_ROOM];
  char schemes[LIST_ROOM / 2];
  size_t used = 0;
  corral_store_schemes(schemes, sizeof schemes);
  for (const char *at = schemes; *at != '\0' && used + 1 < sizeof list;) {
    size_t len = strcspn(at, " ");
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%.*s:", used > 0 ? " " : "",
                             (int)len, at);
    at += len + strspn(at + len, " ");
  }
  return list;
}

bool completion_takes(const cli_subcommand *sub, const char *kind) {
  const char *at = strstr(sub->takes, kind);
  size_t len = strlen(kind);
  return at != NULL && (at == sub->takes || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0');
}

void completion_print(const char *text, const char *special) {
  for (; *text != '\0'; text++) {
    if (strchr(special, *text) != NULL) (void)putchar('\\');
    (void)putchar(*text);
  }
}

/* ---- completion ---------------------------------------------------------------------------- */

int cli_completion(const cli_globals *cli, int argc, char **argv) {
  static const struct {
    const char *name;
    void (*print)(void);
  } shells[] = {{"bash", completion_bash}, {"zsh", completion_zsh}, {"fish", completion_fish}};
  (void)cli;
  if (argc > 2)
    return cli_fail("completion: '%s' is one argument too many: exactly one shell is accepted",
                    argv[2]);
  for (size_t i = 0; i < sizeof shells / sizeof shells[0] && argc > 1; i++)
    if (strcmp(argv[1], shells[i].name) == 0) {
      shells[i].print();
      return cli_finish(CLI_OK);
    }
  return argc > 1 ? cli_fail("completion: '%s' is not accepted: bash, zsh and fish are", argv[1])
                  : cli_fail("completion: no shell given: bash, zsh and fish are accepted");
}
