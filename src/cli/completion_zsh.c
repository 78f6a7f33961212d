/* completion_zsh.c: the script for zsh: one call of _arguments for each subcommand. */
#include "completion.h"

#include <string.h>

/* The text of a specification, which stands in single quotes. */
static void print_text(const char *text) {
  size_t len = text != NULL ? strlen(text) : 0;
  if (len == 0) return;
  (void)putchar('[');
  for (size_t i = 0; i < len; i++) {
    if (i + 1 == len && text[i] == '.') break;
    if (strchr("[]:\\", text[i]) != NULL) (void)putchar('\\');
    if (text[i] == '\'')
      (void)fputs("'\\''", stdout);
    else
      (void)putchar(text[i]);
  }
  (void)putchar(']');
}

static void print_value(const completion_option *o) {
  const char *colon = o->may_lack ? "::" : ":";
  switch (o->value) {
    case COMPLETION_NONE: break;
    case COMPLETION_WORDS: (void)printf("%sword:(%s)", colon, o->words); break;
    case COMPLETION_STORE: (void)printf("%sURI:_corral_store", colon); break;
    case COMPLETION_FILE: (void)printf("%svalue:_files", colon); break;
    default: (void)printf("%svalue: ", colon);
  }
}

static void print_option(const completion_option *o) {
  bool takes = o->value != COMPLETION_NONE;
  if (o->name != NULL) {
    (void)printf(" \\\n        '*--%s%s", o->name, o->may_lack ? "=-" : takes ? "=" : "");
    print_text(o->text);
    print_value(o);
    (void)putchar('\'');
  }
  if (o->letter != '\0') {
    (void)printf(" \\\n        '*-%c%s", o->letter, takes ? "+" : "");
    print_value(o);
    (void)putchar('\'');
  }
}

static void print_options(const cli_subcommand *sub) {
  static completion_option options[COMPLETION_OPTIONS];
  size_t count = completion_options(sub, options);
  for (size_t i = 0; i < count; i++) print_option(&options[i]);
}

static void print_subcommands(void) {
  (void)printf("((");
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++) {
    (void)printf("%s%s\\:\"", s > cli_subcommands ? " " : "", s->name);
    for (const char *at = s->text; *at != '\0'; at++)
      if (*at == '\'')
        (void)fputs("'\\''", stdout);
      else
        (void)printf("%s%c", *at == ':' ? "\\" : "", *at);
    (void)putchar('"');
  }
  (void)printf("))");
}

static void print_words(const cli_subcommand *sub) {
  bool is_second = completion_takes(sub, "name");
  if (is_second) (void)printf(" \\\n        '1:name:( )'");
  if (completion_takes(sub, "command"))
    (void)printf(" \\\n        '(-)%d:command:_command_names -e'"
                 " \\\n        '*::arguments:_normal'",
                 is_second ? 2 : 1);
  if (completion_takes(sub, "file")) (void)printf(" \\\n        '*:file:_files'");
  if (completion_takes(sub, "policy"))
    (void)printf(" \\\n        '*:option:compadd -S \"\" -- %s'", completion_policy());
  if (completion_takes(sub, "order"))
    (void)printf(" \\\n        '2:order:(%s)'", completion_orders());
  if (completion_takes(sub, "store")) (void)printf(" \\\n        '1:URI:_corral_store'");
  if (completion_takes(sub, "shell")) (void)printf(" \\\n        '1:shell:(bash zsh fish)'");
  if (completion_takes(sub, "subcommand")) {
    (void)printf(" \\\n        '1:subcommand:");
    print_subcommands();
    (void)putchar('\'');
  }
}

void completion_zsh(void) {
  (void)printf("#compdef corral\n"
               "# Completion of corral %s for zsh, made by corral completion zsh.\n\n"
               "_corral_store() {\n"
               "  if compset -P '*:'; then\n    _files\n  else\n"
               "    compadd -S '' -- %s\n  fi\n}\n\n"
               "_corral() {\n"
               "  local context state state_descr line\n"
               "  typeset -A opt_args\n"
               "  _arguments -S -C",
               corral_version(), completion_schemes());
  print_options(NULL);
  (void)printf(" \\\n        '(-)1:subcommand:");
  print_subcommands();
  (void)printf("' \\\n        '*::word:->rest' && return\n"
               "  [[ $state == rest ]] || return 1\n"
               "  local -i dash=${words[(i)--]}\n"
               "  if (( dash < CURRENT )); then\n"
               "    shift dash words\n"
               "    (( CURRENT -= dash ))\n"
               "    _normal\n"
               "    return\n"
               "  fi\n"
               "  case $words[1] in\n");
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++) {
    (void)printf("    %s)\n      _arguments -S", s->name);
    print_options(s);
    print_words(s);
    (void)printf(" ;;\n");
  }
  (void)printf("  esac\n}\n\n"
               "if [[ $funcstack[1] == _corral ]]; then\n  _corral \"$@\"\nelse\n"
               "  compdef _corral corral\nfi\n");
}
