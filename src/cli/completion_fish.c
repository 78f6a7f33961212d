/* completion_fish.c: the script for fish: one call of complete for each option. */
#include "completion.h"

#include <string.h>

static void print_quoted(const char *text) {
  (void)putchar('\'');
  completion_print(text, "'\\");
  (void)putchar('\'');
}

static void print_value(const completion_option *o) {
  switch (o->value) {
    case COMPLETION_NONE: break;
    case COMPLETION_WORDS: (void)printf(" -x -a '%s'", o->words); break;
    case COMPLETION_STORE: (void)printf(" -x -a '(__corral_stores)'"); break;
    case COMPLETION_FILE: (void)printf("%s", o->may_lack ? "" : " -r -F"); break;
    default: (void)printf("%s", o->may_lack ? "" : " -x");
  }
}

static void print_options(const cli_subcommand *sub) {
  static completion_option options[COMPLETION_OPTIONS];
  size_t count = completion_options(sub, options);
  for (size_t i = 0; i < count; i++) {
    const completion_option *o = &options[i];
    (void)printf("complete -c corral -n \"__corral_in '%s'\"", sub != NULL ? sub->name : "");
    if (o->letter != '\0') (void)printf(" -s %c", o->letter);
    if (o->name != NULL) (void)printf(" -l %s", o->name);
    print_value(o);
    if (o->text != NULL) {
      (void)printf(" -d ");
      print_quoted(o->text);
    }
    (void)putchar('\n');
  }
}

static void print_words(const cli_subcommand *sub) {
  const char *words = NULL;
  if (completion_takes(sub, "policy")) words = completion_policy();
  if (completion_takes(sub, "order")) words = completion_orders();
  if (completion_takes(sub, "shell")) words = "bash zsh fish";
  if (completion_takes(sub, "subcommand")) words = "(__corral_subcommands)";
  if (completion_takes(sub, "store")) words = "(__corral_stores)";
  if (words != NULL)
    (void)printf("complete -c corral -n \"__corral_in '%s'\" -a '%s'\n", sub->name, words);
  if (completion_takes(sub, "file"))
    (void)printf("complete -c corral -n \"__corral_in '%s'\" -F\n", sub->name);
}

/* Options that take the next word, as "SUBCOMMAND:OPTION". */
static void print_takers(const cli_subcommand *sub) {
  static completion_option options[COMPLETION_OPTIONS];
  size_t count = completion_options(sub, options);
  for (size_t i = 0; i < count; i++) {
    const completion_option *o = &options[i];
    if (o->value == COMPLETION_NONE || o->may_lack) continue;
    if (o->name != NULL) (void)printf(" '%s:--%s'", sub != NULL ? sub->name : "", o->name);
    if (o->letter != '\0') (void)printf(" '%s:-%c'", sub != NULL ? sub->name : "", o->letter);
  }
}

/* After how many of its words a command begins. */
static void print_places(void) {
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++)
    if (completion_takes(s, "command"))
      (void)printf(" %s:%d", s->name, completion_takes(s, "name") ? 1 : 0);
}

static const char reader[] =
    "# Prints the subcommand of the line, and in which word its command begins; 0: not yet.\n"
    "function __corral_line\n"
    "    set -l words (commandline -opc) (commandline -ct)\n"
    "    set -l sub ''\n"
    "    set -l count 0\n"
    "    set -l skip 0\n"
    "    for i in (seq 2 (count $words))\n"
    "        set -l word $words[$i]\n"
    "        set -l is_last (test $i -eq (count $words); and echo 1; or echo 0)\n"
    "        if test $skip -eq 1\n"
    "            set skip 0\n"
    "        else if test \"x$word$is_last\" = x--0; and test -n \"$sub\"\n"
    "            echo $sub\n"
    "            math $i + 1\n"
    "            return\n"
    "        else if string match -q -- '--*=*' $word\n"
    "            continue\n"
    "        else if string match -qr -- '^-.' $word\n"
    "            string match -q -- '--*' $word; or set word -(string sub -s -1 -- $word)\n"
    "            contains -- \"$sub:$word\" $__corral_takers; and set skip 1\n"
    "        else if test -z \"$sub\"\n"
    "            test $is_last -eq 1; or set sub $word\n"
    "        else if contains -- \"$sub:$count\" $__corral_places\n"
    "            echo $sub\n"
    "            echo $i\n"
    "            return\n"
    "        else\n"
    "            set count (math $count + 1)\n"
    "        end\n"
    "    end\n"
    "    printf '%s\\n' \"$sub\" 0\n"
    "end\n"
    "\n"
    "function __corral_in # SUBCOMMAND: its options may stand here\n"
    "    set -l line (__corral_line)\n"
    "    test \"x$line[1]\" = \"x$argv[1]\"; and test $line[2] -eq 0\n"
    "end\n"
    "\n"
    "function __corral_in_command\n"
    "    set -l line (__corral_line)\n"
    "    test $line[2] -ne 0\n"
    "end\n"
    "\n"
    "function __corral_command\n"
    "    set -l line (__corral_line)\n"
    "    set -l words (commandline -opc) ''\n"
    "    set -l before $words[$line[2]..-2]\n"
    "    complete -C (string join ' ' -- (string escape -- $before) (commandline -ct))\n"
    "end\n"
    "\n"
    "function __corral_stores\n"
    "    set -l at (string replace -r -- '^--store=' '' (commandline -ct))\n"
    "    if string match -q -- '*:*' $at\n"
    "        set -l scheme (string replace -r -- ':.*' ':' $at)\n"
    "        printf '%s\\n' $scheme(__fish_complete_path (string replace -r -- '^[^:]*:' '' $at))\n"
    "    else\n"
    "        printf '%s\\n' $__corral_schemes\n"
    "    end\n"
    "end\n"
    "\n"
    "complete -c corral -f\n"
    "complete -c corral -n __corral_in_command -a '(__corral_command)'\n"
    "complete -c corral -n \"__corral_in ''\" -a '(__corral_subcommands)'\n";

void completion_fish(void) {
  (void)printf("# Completion of corral %s for fish, made by corral completion fish.\n\n"
               "set -g __corral_schemes %s\nset -g __corral_takers",
               corral_version(), completion_schemes());
  print_takers(NULL);
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++) print_takers(s);
  (void)printf("\nset -g __corral_places");
  print_places();
  (void)printf("\n\nfunction __corral_subcommands\n    printf '%%s\\t%%s\\n'");
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++) {
    (void)printf(" \\\n        %s ", s->name);
    print_quoted(s->text);
  }
  (void)printf("\nend\n\n%s", reader);
  print_options(NULL);
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL; s++) {
    print_options(s);
    print_words(s);
  }
}
