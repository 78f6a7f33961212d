/* flags.c: the options that the library's tables give to the command: they are parsed, and shown by
 * --help, by the rows that name the subcommand. */
#include "cli.h"

#include <string.h>

enum { NAME_ROOM = 32, HELP_COLUMN = 22, HELP_COLUMNS = 80 };

typedef enum kind { OF_POLICY, OF_OPTIONS, OF_LOCK } kind;

static const struct row {
  const char *name, *unit, *command, *text;
  int64_t def, least;
  size_t at; /* in its struct */
  kind kind;
} rows[] = {
#define POLICY(field, name, group, unit, def, least, most, command, nginx, text)                   \
  {name, unit, command, text, def, least, offsetof(corral_policy, field), OF_POLICY},
#define OPTION(field, name, group, unit, def, least, most, command, nginx, text)                   \
  {name, unit, command, text, def, least, offsetof(corral_options, field), OF_OPTIONS},
#define TEXT(field, name, group, command, nginx, text)                                             \
  {name, "text", command, text, 0, 0, offsetof(corral_options, field), OF_OPTIONS},
#define LOCK(field, name, group, unit, def, least, most, command, nginx, text)                     \
  {name, unit, command, text, def, least, offsetof(corral_lock_options, field), OF_LOCK},
    CORRAL_POLICY_MAP(POLICY) CORRAL_TEXT_MAP(TEXT) CORRAL_OPTION_MAP(OPTION) CORRAL_LOCK_MAP(LOCK)
#undef POLICY
#undef OPTION
#undef TEXT
#undef LOCK
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* Letters, and defaults where a subcommand has one of its own. */
static const struct own {
  const char *subcommand, *name, *letter, *def;
} owns[] = {
    {"run", "stale_if_error", "", "--stale"}, {"run", "compute", "", "10m"},
    {"run", "wait", "", "--compute"},         {"warm", "stale_if_error", "", "--stale"},
    {"warm", "compute", "", "10m"},           {"warm", "wait", "", "--compute"},
    {"lock", "wait", "-w, ", "no end"},       {"lock", "shared", "-s, ", ""},
};

/* Words that options take which aren't of the tables. */
static const struct words {
  const char *subcommand, *name, *words;
} all_words[] = {
    {"run", "if-lost", "go-on|kill"},
    {"lock", "lost-signal", "HUP|INT|QUIT|KILL|USR1|USR2|TERM"},
    {"storm", "mode", "both|none|corral"},
};

static bool is_of(const struct row *r, const char *subcommand) {
  size_t len = strlen(subcommand);
  for (const char *at = r->command; (at = strstr(at, subcommand)) != NULL; at += len)
    if ((at == r->command || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0')) return true;
  return false;
}

static const char *named(const char *subcommand) {
  return subcommand != NULL ? subcommand : "corral";
}

/* The option's name with dashes; static storage. */
static const char *dashed(size_t i) {
  static char names[ROWS][NAME_ROOM];
  (void)snprintf(names[i], NAME_ROOM, "%s", rows[i].name);
  for (char *at = names[i]; *at != '\0'; at++)
    if (*at == '_') *at = '-';
  return names[i];
}

size_t cli_flags_add(const char *subcommand, struct option *longs, size_t count) {
  size_t from = count;
  for (size_t i = 0; i < ROWS && count < CLI_FLAGS - 1; i++)
    if (is_of(&rows[i], named(subcommand)))
      longs[count++] = (struct option){
          dashed(i), strcmp(rows[i].unit, "flag") == 0 ? no_argument : required_argument, NULL,
          CLI_FLAG + (int)i};
  return count - from;
}

int cli_flag_of(const char *subcommand, const char *name) {
  for (size_t i = 0; i < ROWS; i++)
    if (is_of(&rows[i], named(subcommand)) && strcmp(rows[i].name, name) == 0)
      return CLI_FLAG + (int)i;
  return -1;
}

bool cli_flag_is_any(const char *name, size_t len) {
  for (size_t i = 0; i < ROWS; i++)
    if (rows[i].command[0] != '\0' && !is_of(&rows[i], "corral") && strlen(dashed(i)) == len &&
        memcmp(dashed(i), name, len) == 0)
      return true;
  return false;
}

const char *cli_flag_text(int option) {
  return option >= CLI_FLAG && option < CLI_FLAG + ROWS ? rows[option - CLI_FLAG].text : NULL;
}

const char *cli_words(const char *subcommand, const char *name) {
  for (size_t i = 0; i < ROWS; i++)
    if (is_of(&rows[i], named(subcommand)) && strchr(rows[i].unit, '|') != NULL &&
        strcmp(dashed(i), name) == 0)
      return rows[i].unit;
  for (size_t i = 0; i < sizeof all_words / sizeof all_words[0]; i++)
    if (strcmp(all_words[i].subcommand, named(subcommand)) == 0 &&
        strcmp(all_words[i].name, name) == 0)
      return all_words[i].words;
  return NULL;
}

int cli_word(const char *subcommand, const char *name, const char *text) {
  const char *words = cli_words(subcommand, name);
  int i = 0;
  for (const char *at = words; at != NULL; i++) {
    size_t len = strcspn(at, "|");
    if (strlen(text) == len && memcmp(at, text, len) == 0) return i;
    at = at[len] == '|' ? at + len + 1 : NULL;
  }
  cli_say("%s: --%s: '%s' is not accepted; accepted: %s", subcommand, name, text,
          words != NULL ? words : "none");
  return -1;
}

int64_t cli_flag_default(const char *subcommand, const char *name) {
  int option = cli_flag_of(subcommand, name);
  return option >= 0 ? rows[option - CLI_FLAG].def : 0;
}

static int set(const cli_flags *to, const struct row *r, const char *text, corral_error *error) {
  switch (r->kind) {
    case OF_POLICY: return corral_policy_set(to->policy, r->name, text, error);
    case OF_OPTIONS: return corral_options_set(to->options, r->name, text, error);
    default: return corral_lock_options_set(to->lock, r->name, text, error);
  }
}

/* The library's message begins with the option's name, which `what` replaces. */
static bool set_row(const cli_flags *to, const struct row *r, const char *what, const char *text) {
  corral_error error = {0};
  size_t len = strlen(r->name);
  if (set(to, r, strcmp(r->unit, "flag") == 0 && text == NULL ? "on" : text, &error) == CORRAL_OK)
    return true;
  cli_say("%s%s", what, strncmp(error.text, r->name, len) == 0 ? error.text + len : error.text);
  return false;
}

bool cli_flag_set(const cli_flags *to, int option, const char *text) {
  char what[2 * NAME_ROOM];
  size_t i = (size_t)(option - CLI_FLAG);
  if (option < CLI_FLAG || i >= ROWS) return false;
  (void)snprintf(what, sizeof what, "%s%s--%s", to->subcommand != NULL ? to->subcommand : "",
                 to->subcommand != NULL ? ": " : "", dashed(i));
  return set_row(to, &rows[i], what, text);
}

bool cli_flag_set_as(const cli_flags *to, const char *what, const char *name, const char *text) {
  int option = cli_flag_of(to->subcommand, name);
  return option >= 0 && set_row(to, &rows[option - CLI_FLAG], what, text);
}

void cli_flags_copy(const corral_options *from, corral_options *to) {
  for (size_t i = 0; i < ROWS; i++) {
    if (!is_of(&rows[i], "corral")) continue;
    const void *field = (const char *)from + rows[i].at;
    bool is_text = strcmp(rows[i].unit, "text") == 0;
    bool is_set = is_text ? *(const char *const *)field != NULL : *(const int64_t *)field != 0;
    size_t size = is_text ? sizeof(const char *) : sizeof(int64_t);
    if (is_set) memcpy((char *)to + rows[i].at, field, size);
  }
}

/* ---- help ---------------------------------------------------------------------------------- */

static const char *value_of(const struct row *r) {
  static const char *const names[][2] = {{"ms", " D"},    {"bytes", " SIZE"}, {"%", " PCT"},
                                         {"count", " N"}, {"text", " NAME"},  {"flag", ""}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(r->unit, names[i][0]) == 0) return names[i][1];
  return " HOW";
}

static const struct own *own_of(const struct row *r, const char *subcommand) {
  static const struct own none = {NULL, NULL, "", NULL};
  for (size_t i = 0; i < sizeof owns / sizeof owns[0]; i++)
    if (strcmp(owns[i].subcommand, named(subcommand)) == 0 && strcmp(owns[i].name, r->name) == 0)
      return &owns[i];
  return &none;
}

/* The default, or the choices, of which the first is the default. */
static const char *default_of(const struct row *r, char text[CLI_DURATION_TEXT]) {
  if (strchr(r->unit, '|') != NULL) return r->unit;
  if (strcmp(r->unit, "flag") == 0 || strcmp(r->unit, "text") == 0) return "";
  if (r->def < 0 || (r->def == 0 && r->least < 0)) return "off";
  if (strcmp(r->unit, "ms") == 0) return cli_duration_text(text, r->def);
  (void)snprintf(text, CLI_DURATION_TEXT, "%lld", (long long)r->def);
  return text;
}

/* Appends the words of `words` to a text that has a line of `column` characters, in columns. */
static size_t wrap(char *text, size_t used, size_t size, size_t column, const char *words) {
  while (*words != '\0' && used < size) {
    size_t len = strcspn(words, " ");
    bool is_new = column < HELP_COLUMN || column + 1 + len > HELP_COLUMNS;
    if (column + 1 + len > HELP_COLUMNS) {
      used += (size_t)snprintf(text + used, size - used, "\n");
      column = 0;
      if (used >= size) break;
    }
    size_t pad = is_new ? HELP_COLUMN - column : 1;
    used += (size_t)snprintf(text + used, size - used, "%*s%.*s", (int)pad, "", (int)len, words);
    column += pad + len;
    words += len + strspn(words + len, " ");
  }
  if (used < size) used += (size_t)snprintf(text + used, size - used, "\n");
  return used < size ? used : size - 1;
}

static size_t help_row(size_t i, const char *subcommand, char *text, size_t used, size_t size) {
  char room[CLI_DURATION_TEXT], flag[2 * NAME_ROOM], words[256];
  const struct row *r = &rows[i];
  const struct own *own = own_of(r, subcommand);
  const char *def = own->def != NULL ? own->def : default_of(r, room);
  size_t len = strlen(r->text);
  int column = snprintf(flag, sizeof flag, "%s--%s%s", own->letter, dashed(i), value_of(r));
  if (len > 0 && r->text[len - 1] == '.') len--;
  (void)snprintf(words, sizeof words, "%.*s%s%s%s", (int)len, r->text, def[0] != '\0' ? " (" : "",
                 def, def[0] != '\0' ? ")" : "");
  used += (size_t)snprintf(text + used, size - used, "  %s", flag);
  return used < size ? wrap(text, used, size, 2 + (size_t)column, words) : size - 1;
}

size_t cli_flags_help(const char *subcommand, char *text, size_t used, size_t size) {
  for (size_t i = 0; i < ROWS; i++)
    if (is_of(&rows[i], named(subcommand))) used = help_row(i, subcommand, text, used, size);
  return used;
}
