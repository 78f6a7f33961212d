/* run_key.c: the key of a command's result: a name, or the command's words behind the context that
 * options name. */
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void key_bytes(run_key *key, const void *data, size_t size) {
  if (key->size + size <= RUN_KEY_ROOM) memcpy(key->bytes + key->size, data, size);
  key->size += size;
}

/* Adds an item of the default key: a letter, the text, NUL. No item can look like two. */
static void key_item(run_key *key, char letter, const char *text) {
  key_bytes(key, &letter, 1);
  key_bytes(key, text, strlen(text) + 1);
}

static bool key_env(run_key *key, const char *subcommand, const char *name) {
  const char *value = getenv(name);
  if (value == NULL) {
    cli_say("%s: --env %s: there is no such variable (an empty one is accepted)", subcommand, name);
    return false;
  }
  key_item(key, 'e', name);
  key_item(key, '=', value);
  return true;
}

static bool key_cwd(run_key *key, const char *subcommand) {
  char *folder = getcwd(NULL, 0);
  if (folder == NULL) {
    cli_say("%s: --cwd: %s", subcommand, strerror(errno));
    return false;
  }
  key_item(key, 'd', folder);
  free(folder);
  return true;
}

static bool key_modtime(run_key *key, const char *subcommand, const char *path) {
  struct stat st;
  char text[96];
  if (stat(path, &st) != 0) {
    cli_say("%s: --modtime %s: %s", subcommand, path, strerror(errno));
    return false;
  }
  (void)snprintf(text, sizeof text, "%lld.%09ld %lld", (long long)st.st_mtim.tv_sec,
                 st.st_mtim.tv_nsec, (long long)st.st_size);
  key_item(key, 'm', path);
  key_item(key, '@', text);
  return true;
}

static bool name_key(run_key *key, const char *subcommand, const char *text) {
  key->named = true;
  key->size = 0;
  key_bytes(key, text, strlen(text));
  if (key->size == 0)
    cli_say("%s: --key: the empty key is not accepted: 1 to %d bytes are", subcommand,
            RUN_KEY_ROOM);
  return key->size > 0;
}

bool run_key_option(run_key *key, const char *subcommand, int option, const char *text) {
  static const char *const names[] = {"--env", "--cwd", "--modtime"};
  if (option == RUN_OPT_KEY) return name_key(key, subcommand, text);
  key->context = names[option - RUN_OPT_ENV];
  if (key->named) return true;
  if (option == RUN_OPT_ENV) return key_env(key, subcommand, text);
  if (option == RUN_OPT_CWD) return key_cwd(key, subcommand);
  return key_modtime(key, subcommand, text);
}

bool run_key_finish(run_key *key, const char *subcommand, char **command) {
  for (char **word = command; *word != NULL && !key->named; word++) key_item(key, 'a', *word);
  if (key->named && key->context != NULL)
    cli_say("%s: --key names the whole key: it can't be combined with %s", subcommand,
            key->context);
  else if (key->size > RUN_KEY_ROOM)
    cli_say("%s: the key has %zu bytes: at most %d are accepted (--key names a shorter one)",
            subcommand, key->size, RUN_KEY_ROOM);
  else
    return true;
  return false;
}

const char *run_key_text(const run_key *key, char **command, char text[RUN_KEY_TEXT]) {
  size_t used = 0;
  if (key->named) return cli_visible(text, RUN_KEY_TEXT, key->bytes, key->size);
  char words[RUN_KEY_TEXT] = "";
  for (char **word = command; *word != NULL && used < sizeof words - 1; word++) {
    int n = snprintf(words + used, sizeof words - used, "%s%s", used > 0 ? " " : "", *word);
    used += n > 0 ? (size_t)n : 0;
  }
  return cli_visible(text, RUN_KEY_TEXT, words, strlen(words));
}
