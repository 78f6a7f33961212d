/* completion.h: what the scripts for the shells are made of: the options of each subcommand, as its
 * own parser has them. */
#ifndef CORRAL_CLI_COMPLETION_H
#define CORRAL_CLI_COMPLETION_H

#include "cli.h"

/* The kind of word that an option takes. */
typedef enum completion_value {
  COMPLETION_NONE = 0, /* nothing */
  COMPLETION_OTHER,    /* a number, a duration: nothing to complete */
  COMPLETION_WORDS,    /* one of a few */
  COMPLETION_STORE,    /* a store's URI */
  COMPLETION_FILE      /* any word, which may be a file */
} completion_value;

typedef struct completion_option {
  const char *name; /* without dashes; NULL: it has a letter alone */
  char letter;      /* 0: none */
  completion_value value;
  bool may_lack;    /* the value may be missing; else it stands behind "=" */
  char words[128];  /* separated by spaces */
  const char *text; /* what it is for; NULL: nothing is said */
} completion_option;

enum { COMPLETION_OPTIONS = CLI_FLAGS + 8 };

/* Fills in the options of a subcommand; NULL: those before it. Returns their number. */
size_t completion_options(const cli_subcommand *sub, completion_option options[COMPLETION_OPTIONS]);
/* Names of the options of a policy, with "=", separated by spaces. */
const char *completion_policy(void);
/* The orders of corral control. */
const char *completion_orders(void);
/* Schemes of stores with their colons, separated by spaces. */
const char *completion_schemes(void);
/* True when one of the words of cli_subcommand.takes is `kind`. */
bool completion_takes(const cli_subcommand *sub, const char *kind);
/* Prints a text; a character of `special` has a backslash before it. */
void completion_print(const char *text, const char *special);

/* completion_SHELL.c: print the script. */
void completion_bash(void);
void completion_zsh(void);
void completion_fish(void);

#endif
