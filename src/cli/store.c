/* store.c: which store the command uses, and the opening of a corral on it. */
#include "cli.h"

#include <errno.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

/* ---- the default --------------------------------------------------------------------------- */

/* The variable's text, if it is an absolute path and not the root. */
static const char *env_folder(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] == '/' && value[strspn(value, "/")] != '\0' ? value : NULL;
}

/* The home of this user as the system knows it, if it is a folder and not the root. */
static const char *home_of_user(void) {
  struct stat st;
  const struct passwd *entry = getpwuid(geteuid());
  const char *home = entry != NULL ? entry->pw_dir : NULL;
  bool is_home = home != NULL && home[0] == '/' && home[strspn(home, "/")] != '\0' &&
                 stat(home, &st) == 0 && S_ISDIR(st.st_mode);
  return is_home ? home : NULL;
}

const char *cli_default_store(void) {
  static char uri[PATH_ROOM];
  const char *service = env_folder("CACHE_DIRECTORY");
  const char *cache = service == NULL ? env_folder("XDG_CACHE_HOME") : NULL;
  const char *home = env_folder("HOME");
  if (home == NULL) home = home_of_user();
  int n = -1;
  if (service != NULL)
    n = snprintf(uri, sizeof uri, "lmdb:%.*s/corral/store", (int)strcspn(service, ":"), service);
  else if (cache != NULL)
    n = snprintf(uri, sizeof uri, "lmdb:%s/corral/store", cache);
  else if (home != NULL)
    n = snprintf(uri, sizeof uri, "lmdb:%s/.cache/corral/store", home);
  return n > 0 && (size_t)n < sizeof uri ? uri : NULL;
}

/* Makes each missing folder of the default store's file. The store reports one that can't be
 * made. */
static void make_folders(const char *uri) {
  char path[PATH_ROOM];
  (void)snprintf(path, sizeof path, "%s", uri + strlen("lmdb:"));
  for (char *slash = path; (slash = strchr(slash + 1, '/')) != NULL;) {
    *slash = '\0';
    (void)mkdir(path, 0700);
    *slash = '/';
  }
}

/* ---- a file that isn't there --------------------------------------------------------------- */

static int hex(char c) {
  const char *digits = "0123456789abcdef";
  const char *at = c != '\0' ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
  return at != NULL ? (int)(at - digits) : -1;
}

/* True when the store is a file that isn't there: then nothing is stored. */
static bool is_absent(const cli_globals *cli) {
  char path[PATH_ROOM];
  size_t used = 0;
  struct stat st;
  if (strncmp(cli->store, "lmdb:", 5) != 0) return false;
  for (const char *at = cli->store + 5; *at != '\0' && *at != '?'; at++) {
    int high = *at == '%' ? hex(at[1]) : -1;
    int low = high >= 0 ? hex(at[2]) : -1;
    if (used + 1 >= sizeof path) return false;
    path[used++] = low >= 0 ? (char)(16 * high + low) : *at;
    if (low >= 0) at += 2;
  }
  path[used] = '\0';
  return used > 0 && strncmp(path, "//", 2) != 0 && stat(path, &st) != 0 &&
         (errno == ENOENT || errno == ENOTDIR);
}

/* ---- events -------------------------------------------------------------------------------- */

static void print_event(const corral_event_info *info, void *arg) {
  (void)arg;
  char text[CLI_KEY_TEXT] = "";
  if (info->key != NULL) (void)cli_key_text(text, info->key, info->key_len);
  cli_note("event %s: %s%s%s%s%s%s", corral_event_name(info->event), corral_event_text(info->event),
           info->detail != NULL ? ": " : "", info->detail != NULL ? info->detail : "",
           info->key != NULL ? " [" : "", text, info->key != NULL ? "]" : "");
}

/* Reports the first trouble with the store, for a command that goes on without it. */
static void warn_event(const corral_event_info *info, void *arg) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  (void)arg;
  if (info->event == CORRAL_EVENT_HOST_ERROR)
    cli_note("going on without the host's lock: %s", info->detail != NULL ? info->detail : "");
  if (info->event != CORRAL_EVENT_STORE_ERROR && info->event != CORRAL_EVENT_FOREIGN) return;
  if (!atomic_flag_test_and_set(&said))
    cli_note("going on without the store: %s",
             info->detail != NULL ? info->detail : corral_event_text(info->event));
}

/* A store of this process alone is of no use to a command that ends soon. */
static void warn_of_memory(const cli_globals *cli) {
  if (!cli->quiet && !cli->is_nowhere && strncmp(cli->store, "memory:", 7) == 0)
    cli_note("--store memory: is of this process alone: what it has is gone when corral ends; "
             "lmdb:PATH or a server keeps it");
}

bool cli_open(const cli_globals *cli, bool goes_on, corral_options *more, corral **ret) {
  corral_error error = {0};
  more->store = cli->store;
  warn_of_memory(cli);
  if (cli->is_default) make_folders(cli->store);
  if (cli->verbose || (goes_on && !cli->quiet))
    more->on_event = cli->verbose ? print_event : warn_event;
  more->host_lock = cli->no_host_lock ? CORRAL_OFF : 1;
  cli_flags_copy(&cli->options, more);
  int status = corral_open(more, ret, &error);
  if (status != CORRAL_OK) /* without the URI, which may have a password */
    cli_say("--store: %s", error.text[0] != '\0' ? error.text : corral_status_text(status));
  return status == CORRAL_OK;
}

bool cli_open_to_look(const cli_globals *cli, corral_options *more, corral **ret,
                      bool *ret_absent) {
  cli_globals look = *cli;
  look.is_default = false; /* its folder isn't made */
  *ret_absent = is_absent(cli);
  return cli_open(&look, false, more, ret);
}
