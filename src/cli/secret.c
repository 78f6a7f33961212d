/* secret.c: hides the secrets of a command line, which others on this host may read by ps, and
 * hands the store down to commands. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static const char variable[] = "CORRAL_STORE", withheld[] = "withheld";

typedef struct taken {
  struct taken *next;
  char text[];
} taken;

static taken *all; /* valid until the process ends */

/* Copies `arg` and overwrites it with `shown`, cut to its length. */
static const char *replace(char *arg, const char *shown) {
  size_t size = strlen(arg), len = strlen(shown);
  taken *copy = malloc(sizeof *copy + size + 1);
  if (copy == NULL) return arg;
  (void)memcpy(copy->text, arg, size + 1);
  copy->next = all;
  all = copy;
  (void)memset(arg, 0, size);
  (void)memcpy(arg, shown, len < size ? len : size);
  return copy->text;
}

const char *cli_take_uri(char *arg) {
  size_t room = 2 * strlen(arg) + 8;
  char *shown = malloc(room);
  if (shown == NULL) return arg;
  corral_uri_show(arg, shown, room);
  const char *uri = strcmp(shown, arg) == 0 ? arg : replace(arg, shown);
  free(shown);
  return uri;
}

const char *cli_take_conninfo(char *arg) {
  if (strstr(arg, "://") != NULL) return cli_take_uri(arg);
  return strstr(arg, "password") != NULL ? replace(arg, "***") : arg;
}

const char *cli_take_store(bool *ret_withheld) {
  char *uri = getenv(variable);
  *ret_withheld = uri != NULL && strcmp(uri, withheld) == 0;
  return uri == NULL || uri[0] == '\0' || *ret_withheld ? NULL : cli_take_uri(uri);
}

bool cli_hand_down_store(const cli_globals *cli) {
  const char *value = getenv(variable);
  if (cli->pass_store) return !cli->store_given || setenv(variable, cli->store, 1) == 0;
  return value == NULL || value[0] == '\0' || setenv(variable, withheld, 1) == 0;
}
