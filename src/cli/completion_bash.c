/* completion_bash.c: the script for bash. Its functions have the tables in them as cases; the last
 * one reads the command line. */
#include "completion.h"

#include <string.h>

static const char *name_of(const cli_subcommand *sub) { return sub != NULL ? sub->name : ""; }

/* ---- tables -------------------------------------------------------------------------------- */

static void print_options(const cli_subcommand *sub) {
  static completion_option options[COMPLETION_OPTIONS];
  size_t count = completion_options(sub, options);
  (void)printf("    '%s') reply='", name_of(sub));
  for (size_t i = 0; i < count; i++) {
    if (options[i].name != NULL) (void)printf("--%s ", options[i].name);
    if (options[i].letter != '\0') (void)printf("-%c ", options[i].letter);
  }
  (void)printf("' ;;\n");
}

static void print_value(const char *sub, const completion_option *o) {
  if (o->value == COMPLETION_NONE) return;
  (void)printf("    '%s:", sub);
  if (o->name != NULL) (void)printf("--%s", o->name);
  if (o->name != NULL && o->letter != '\0') (void)printf("' | '%s:", sub);
  if (o->letter != '\0') (void)printf("-%c", o->letter);
  (void)printf("') reply='");
  switch (o->value) {
    case COMPLETION_WORDS: (void)printf("words %s", o->words); break;
    case COMPLETION_STORE: (void)printf("store"); break;
    case COMPLETION_FILE: (void)printf("%s", o->may_lack ? "" : "file"); break;
    default: (void)printf("%s", o->may_lack ? "" : "other");
  }
  (void)printf("' ;;\n");
}

static void print_values(const cli_subcommand *sub) {
  static completion_option options[COMPLETION_OPTIONS];
  size_t count = completion_options(sub, options);
  for (size_t i = 0; i < count; i++) print_value(name_of(sub), &options[i]);
}

static void print_tables(void) {
  (void)printf("_corral_options() { # SUBCOMMAND: its options\n  case $1 in\n");
  print_options(NULL);
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++) print_options(s);
  (void)printf("    *) reply='' ;;\n  esac\n}\n\n"
               "_corral_value() { # SUBCOMMAND OPTION: what follows it; nothing: no value\n"
               "  case $1:$2 in\n");
  print_values(NULL);
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++) print_values(s);
  (void)printf("    *) reply='' ;;\n  esac\n}\n\n"
               "_corral_takes() { # SUBCOMMAND: its words that are no options\n"
               "  case $1 in\n");
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++)
    if (s->takes[0] != '\0') (void)printf("    %s) reply='%s' ;;\n", s->name, s->takes);
  (void)printf("    *) reply='' ;;\n  esac\n}\n\n_corral_words() { # KIND\n  case $1 in\n"
               "    subcommand) reply='");
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++)
    (void)printf("%s%s", s > cli_subcommands ? " " : "", s->name);
  (void)printf(
      "' ;;\n    policy) reply='%s' ;;\n    shell) reply='bash zsh fish' ;;\n"
      "    store) reply='%s' ;;\n    order) reply='%s' ;;\n    *) reply='' ;;\n  esac\n}\n\n",
      completion_policy(), completion_schemes(), completion_orders());
}

/* ---- the line ------------------------------------------------------------------------------ */

/* Bash splits words at = and :, which belong to values here, and replaces what is behind the last
 * of them. */
static const char reader[] =
    "_corral_add() { # PREFIX LIST: those words of the list that begin with $cur\n"
    "  local word\n"
    "  for word in $2; do\n"
    "    [[ $word == \"$cur\"* ]] && COMPREPLY+=(\"$1$word\")\n"
    "  done\n"
    "  [[ ${#COMPREPLY[@]} -eq 1 && $COMPREPLY == *[=:] ]] && compopt -o nospace 2>/dev/null\n"
    "}\n"
    "\n"
    "_corral_files() { # PREFIX\n"
    "  local word\n"
    "  while IFS= read -r word; do COMPREPLY+=(\"$1$word\"); done < <(compgen -f -- \"$cur\")\n"
    "  compopt -o filenames 2>/dev/null\n"
    "}\n"
    "\n"
    "_corral_complete() { # PREFIX KIND: the values of an option, or other words\n"
    "  local reply\n"
    "  case $2 in\n"
    "    words\\ *) _corral_add \"$1\" \"${2#words }\" ;;\n"
    "    file) _corral_files \"$1\" ;;\n"
    "    store)\n"
    "      if [[ $cur == *:* ]]; then\n"
    "        local scheme=${cur%%:*}\n"
    "        cur=${cur#*:}\n"
    "        _corral_files \"$1$scheme:\"\n"
    "      else\n"
    "        _corral_words store\n"
    "        _corral_add \"$1\" \"$reply\"\n"
    "      fi ;;\n"
    "    *)\n"
    "      _corral_words \"$2\"\n"
    "      _corral_add \"$1\" \"$reply\" ;;\n"
    "  esac\n"
    "}\n"
    "\n"
    "_corral_command() { # PLACE in COMP_WORDS: where the command begins\n"
    "  local word\n"
    "  if declare -F _command_offset >/dev/null; then\n"
    "    _command_offset \"$1\"\n"
    "  elif [[ $COMP_CWORD -gt $1 ]]; then\n"
    "    _corral_files ''\n"
    "  else\n"
    "    while IFS= read -r word; do COMPREPLY+=(\"$word\"); done < <(compgen -c -- \"$cur\")\n"
    "  fi\n"
    "}\n"
    "\n"
    "_corral() {\n"
    "  local i n=-1 reply raw cur done sub='' kind='' count=0\n"
    "  local -a words=() places=() takes=()\n"
    "  COMPREPLY=()\n"
    "  for ((i = 0; i <= COMP_CWORD; i++)); do\n"
    "    raw=${COMP_WORDS[i]}\n"
    "    if ((i > 1)) && [[ $raw == [=:]* || ${COMP_WORDS[i - 1]} == [=:]* ]]; then\n"
    "      words[n]+=$raw\n"
    "    else\n"
    "      words[++n]=$raw places[n]=$i\n"
    "    fi\n"
    "  done\n"
    "  [[ $raw == [=:]* ]] && raw=''\n"
    "  cur=${words[n]} done=${words[n]%\"$raw\"}\n"
    "  for ((i = 1; i < n; i++)); do\n"
    "    if [[ $kind ]]; then\n"
    "      kind=''\n"
    "    elif [[ ${words[i]} == -- ]]; then\n"
    "      [[ ! $sub ]] || { _corral_command \"${places[i + 1]}\"; return; }\n"
    "    elif [[ ${words[i]} == --*=* ]]; then\n"
    "      kind=''\n"
    "    elif [[ ${words[i]} == --* ]]; then\n"
    "      _corral_value \"$sub\" \"${words[i]}\"\n"
    "      kind=$reply\n"
    "    elif [[ ${words[i]} == -?* ]]; then\n"
    "      _corral_value \"$sub\" \"-${words[i]: -1}\"\n"
    "      kind=$reply\n"
    "    elif [[ ! $sub ]]; then\n"
    "      sub=${words[i]}\n"
    "      _corral_takes \"$sub\"\n"
    "      takes=($reply)\n"
    "    elif [[ ${takes[count]-} == command ]]; then\n"
    "      _corral_command \"${places[i]}\"\n"
    "      return\n"
    "    else\n"
    "      ((count + 1 < ${#takes[@]})) && ((count++))\n"
    "    fi\n"
    "  done\n"
    "  if [[ $kind ]]; then\n"
    "    _corral_complete '' \"$kind\"\n"
    "  elif [[ $cur == --*=* ]]; then\n"
    "    _corral_value \"$sub\" \"${cur%%=*}\"\n"
    "    i=${cur%%=*}= cur=${cur#*=}\n"
    "    _corral_complete \"$i\" \"$reply\"\n"
    "  elif [[ $cur == -* ]]; then\n"
    "    _corral_options \"$sub\"\n"
    "    _corral_add '' \"$reply\"\n"
    "  elif [[ ! $sub ]]; then\n"
    "    _corral_complete '' subcommand\n"
    "  elif [[ ${takes[count]-} == command ]]; then\n"
    "    _corral_command \"$COMP_CWORD\"\n"
    "  else\n"
    "    _corral_complete '' \"${takes[count]-}\"\n"
    "  fi\n"
    "  for ((i = 0; i < ${#COMPREPLY[@]}; i++)); do\n"
    "    COMPREPLY[i]=${COMPREPLY[i]#\"$done\"}\n"
    "  done\n"
    "}\n"
    "complete -F _corral corral\n";

void completion_bash(void) {
  (void)printf("# Completion of corral %s for bash, made by corral completion bash.\n\n",
               corral_version());
  print_tables();
  (void)fputs(reader, stdout);
}
