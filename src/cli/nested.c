/* nested.c: the keys that processes above this one are computing, handed down to commands in an
 * environment variable.
 *
 * CORRAL_RUNNING has a digest (BLAKE2b) of store, namespace and key for each of them, in hex,
 * separated by spaces. A request for one of these keys would wait for itself. */
#include "cli.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const char variable[] = "CORRAL_RUNNING";

enum { DIGEST = (CLI_DIGEST_TEXT - 1) / 2 };

void cli_digest(const cli_globals *cli, const void *key, size_t key_len,
                char name[CLI_DIGEST_TEXT]) {
  const char *name_space = cli->options.name_space != NULL ? cli->options.name_space : "";
  char store[4096];
  unsigned char digest[DIGEST];
  /* without its secrets: others may read the environment */
  corral_uri_show(cli->store, store, sizeof store);
  crypto_generichash_state state;
  (void)crypto_generichash_init(&state, NULL, 0, sizeof digest);
  (void)crypto_generichash_update(&state, (const unsigned char *)store, strlen(store) + 1);
  (void)crypto_generichash_update(&state, (const unsigned char *)name_space,
                                  strlen(name_space) + 1);
  (void)crypto_generichash_update(&state, key, key_len);
  (void)crypto_generichash_final(&state, digest, sizeof digest);
  for (size_t i = 0; i < DIGEST; i++) (void)snprintf(name + 2 * i, 3, "%02x", digest[i]);
}

bool cli_nested(const cli_globals *cli, const void *key, size_t key_len) {
  char name[CLI_DIGEST_TEXT];
  const char *list = getenv(variable);
  cli_digest(cli, key, key_len, name);
  return list != NULL && strstr(list, name) != NULL;
}

bool cli_nest_text(const cli_globals *cli, const void *key, size_t key_len,
                   char text[CLI_NEST_TEXT]) {
  char name[CLI_DIGEST_TEXT];
  const char *before = getenv(variable);
  cli_digest(cli, key, key_len, name);
  int n = snprintf(text, CLI_NEST_TEXT, "%s=%s %s", variable, name, before != NULL ? before : "");
  return n > 0 && n < CLI_NEST_TEXT;
}

void cli_nest(const cli_globals *cli, const void *key, size_t key_len) {
  char text[CLI_NEST_TEXT];
  if (cli_nest_text(cli, key, key_len, text)) (void)setenv(variable, text + sizeof variable, 1);
}
