/* nested.c: which keys the processes above this one are computing: a variable of the environment, handed down to commands.
 *
 * CORRAL_RUNNING holds a hash for each of them, of store, namespace and key, in hex, separated by spaces. Asking for one of
 * these keys would be waiting for oneself.
 */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char variable[] = "CORRAL_RUNNING";

enum { NAME_ROOM = 20 };

static void name_of(const cli_globals *cli, const void *key, size_t key_len, char name[NAME_ROOM]) {
  const char *name_space = cli->name_space != NULL ? cli->name_space : "";
  char store[4096];
  corral_uri_show(cli->store, store, sizeof store); /* others may read the environment */
  uint64_t hash = XXH3_64bits(store, strlen(store));
  hash = XXH3_64bits_withSeed(name_space, strlen(name_space), hash);
  hash = XXH3_64bits_withSeed(key, key_len, hash);
  (void)snprintf(name, NAME_ROOM, "%016" PRIx64, hash);
}

bool cli_nested(const cli_globals *cli, const void *key, size_t key_len) {
  char name[NAME_ROOM];
  const char *list = getenv(variable);
  name_of(cli, key, key_len, name);
  return list != NULL && strstr(list, name) != NULL;
}

bool cli_nest_text(const cli_globals *cli, const void *key, size_t key_len, char text[CLI_NEST_TEXT]) {
  char name[NAME_ROOM];
  const char *before = getenv(variable);
  name_of(cli, key, key_len, name);
  int n = snprintf(text, CLI_NEST_TEXT, "%s=%s %s", variable, name, before != NULL ? before : "");
  return n > 0 && n < CLI_NEST_TEXT;
}

void cli_nest(const cli_globals *cli, const void *key, size_t key_len) {
  char text[CLI_NEST_TEXT];
  if (cli_nest_text(cli, key, key_len, text)) (void)setenv(variable, text + sizeof variable, 1);
}
