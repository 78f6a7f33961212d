/* registry.c: finds the plugin of a scheme, built in or loaded on first use; and has the table of
 * services for plugins.
 *
 * Plugins are searched in the folders of $CORRAL_PLUGIN_PATH, then beside the library, then in the
 * folder of its installation: absolute paths only. A program with more rights than its caller
 * (set-user-id and the like) searches the last one alone. */
#include "store/registry.h"

#include <assert.h>
#include <corral/loop.h>
#include <ctype.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "os/env.h"
#include "os/hash.h"
#include "record/fill.h"
#include "record/lock_record.h"
#include "store/pace.h"
#include "base/print.h"
#include "base/value.h"
#include "record/record.h"
#include "store/schemes.h"
#include "store/secret.h"
#include "base/status.h"
#include "store/uri.h"
#include "store/watch.h"

#ifndef CORRAL_PLUGIN_DIR
#define CORRAL_PLUGIN_DIR "/usr/lib/corral"
#endif
/* The folder of installed plugins, relative to that of the library or the program. */
#ifndef CORRAL_PLUGINS_NEAR
#define CORRAL_PLUGINS_NEAR "corral"
#endif

static void fill_failed(corral_fill *fill, int32_t code, const char *text) {
  corral_fill_fail(fill, code, text);
  corral_fill_done(fill);
}

static const corral_fill_calls fill_calls = {
    .size = sizeof(corral_fill_calls),
    .bytes = corral_fill_bytes,
    .reserve = corral_fill_reserve,
    .negative = corral_fill_negative,
    .lives = corral_fill_lives,
    .pass = corral_fill_pass,
    .validator = corral_fill_validator,
    .old = corral_fill_old,
    .old_validator = corral_fill_old_validator,
    .not_modified = corral_fill_not_modified,
    .should_stop = corral_fill_should_stop,
    .done = corral_fill_done,
    .failed = fill_failed,
    .abandon = corral_fill_abandon,
    .tag = corral_fill_tag,
    .policy_lives = crl_fill_policy_lives,
};

static const corral_page_calls page_calls = {
    .size = sizeof(corral_page_calls),
    .read = corral_page_read,
    .room = corral_page_size,
    .write = corral_page_write,
    .leaves_out = corral_page_leaves_out,
    .merge = corral_page_merge,
    .vary = corral_page_vary,
    .tag = corral_page_tag,
};

static const corral_host host = {
    .size = sizeof(corral_host),
    .abi = CORRAL_PLUGIN_ABI,
    .now_ms = crl_env_now_ms,
    .boot_ms = crl_env_boot_ms,
    .random = crl_env_random,
    .fail = crl_status_fail,
    .uri_check = crl_uri_check,
    .uri_get = crl_uri_get,
    .uri_number = crl_uri_number,
    .front = crl_record_front,
    .header_read = crl_record_read,
    .header_write = crl_record_write,
    .decide = crl_record_decide,
    .join = crl_record_join,
    .hash64 = crl_hash,
    .digest = crl_digest,
    .wall_ms = crl_env_wall_ms,
    .moved = crl_pace_moved,
    .lock_decide = crl_lock_record_decide,
    .lock_write = crl_lock_record_write,
    .fill = &fill_calls,
    .own_fd = crl_env_own_fd,
    .guard_standard = crl_env_guard_standard,
    .uri_show = corral_uri_show,
    .uri_secret = crl_secret_find,
    .look = crl_record_look,
    .record_new = crl_room_new,
    .record_drop = crl_room_drop,
    .page = &page_calls,
    .now_us = crl_env_now_us,
    .missed = crl_watch_missed,
};

const corral_host *crl_registry_host(void) { return &host; }

/* The built-in plugins: rows of a header that the build writes. */
#define STORE(name) extern const corral_store crl_plugin_##name;
#define ORIGIN(name) extern const corral_origin crl_origin_##name;
#include "corral_builtin.h"
#undef STORE
#undef ORIGIN

enum { STORES = 32, ORIGINS = 8 };
static corral_store stores[STORES];
static corral_origin origins[ORIGINS];
static size_t store_count, origin_count;
static pthread_mutex_t stores_mutex = PTHREAD_MUTEX_INITIALIZER;

/* A fork waits for the mutex, and so until no plugin is being loaded: the child finds either none
 * of a plugin or all. */
static void before_fork(void) { pthread_mutex_lock(&stores_mutex); }
static void after_fork(void) { pthread_mutex_unlock(&stores_mutex); }
__attribute__((constructor)) static void watch_forks(void) {
  (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static int has_word(const char *words, const char *word) {
  size_t len = strlen(word);
  for (const char *at = words; (at = strstr(at, word)) != NULL; at += len)
    if ((at == words || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0')) return 1;
  return 0;
}

/* Cuts the middle out of a text that is too long: the last words of a path, or of a reason, say
 * most. */
static const char *brief(const char *text, char *room, size_t size) {
  size_t len = strlen(text), head = size / 3, tail = size - head - sizeof "...";
  if (len < size) return text;
  snprintf(room, size, "%.*s...%s", (int)head, text, text + len - tail);
  return room;
}

static const struct {
  const char *name;
  size_t at;
} required[] = {
#define ROW(field)                                                                                 \
  { #field, offsetof(corral_store, field) }
    ROW(name), ROW(schemes), ROW(open), ROW(close), ROW(connect), ROW(disconnect), ROW(perform),
#undef ROW
};

enum { TABLE_LEAST = offsetof(corral_store, route), TABLE_MOST = 65536 };
/* Sizes of an operation: that of the first header of this ABI, and what a later one may have. */
enum { OP_LEAST = offsetof(corral_op, state) + sizeof(corral_record_state), OP_MOST = 4096 };

static const char *missing(const corral_store *table) {
  for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
    const void *field;
    memcpy(&field, (const char *)table + required[i].at, sizeof field);
    if (field == NULL) return required[i].name;
  }
  return NULL;
}

/* Copies a plugin's table. A shorter one, of an older header, is zero-filled; of a longer one, of a
 * newer header, the known part is copied. A table of another ABI number may have another layout,
 * and is refused. */
static int copy_table(const corral_store *plugin, const char *from, corral_store *copy,
                      corral_error *error) {
  if (plugin == NULL)
    return crl_status_fail(error, CORRAL_ENOPLUGIN,
                           "%s: not a store plugin: corral_plugin() returned no table", from);
  if (plugin->size < offsetof(corral_store, threads) || plugin->size > TABLE_MOST)
    return crl_status_fail(error, CORRAL_ENOPLUGIN,
                           "%s: not a store plugin: the size of its table is %zu", from,
                           plugin->size);
  if (plugin->abi != CORRAL_PLUGIN_ABI)
    return crl_status_fail(error, CORRAL_ENOPLUGIN,
                           "%s: a plugin of ABI %u; this corral takes ABI %d", from,
                           (unsigned)plugin->abi, CORRAL_PLUGIN_ABI);
  if (plugin->size < TABLE_LEAST)
    return crl_status_fail(error, CORRAL_ENOPLUGIN, "%s: its table has %zu bytes; the least is %d",
                           from, plugin->size, (int)TABLE_LEAST);
  memset(copy, 0, sizeof *copy);
  memcpy(copy, plugin, plugin->size < sizeof *copy ? plugin->size : sizeof *copy);
  const char *none = missing(copy);
  if (none != NULL)
    return crl_status_fail(error, CORRAL_ENOPLUGIN, "%s: its table has no %s", from, none);
  if (copy->op_size < OP_LEAST || copy->op_size > OP_MOST)
    return crl_status_fail(error, CORRAL_ENOPLUGIN,
                           "%s: its op_size is %zu; accepted are %d to %d bytes", from,
                           copy->op_size, (int)OP_LEAST, (int)OP_MOST);
  if ((copy->route == NULL) != (copy->connect_server == NULL))
    return crl_status_fail(
        error, CORRAL_ENOPLUGIN, "%s: its table has %s; accepted are both or neither", from,
        copy->route == NULL ? "connect_server and no route" : "route and no connect_server");
  return CORRAL_OK;
}

/* Adds the tables of a plugin: all, or none. `scheme`: the one it is loaded for; NULL: built in. */
static int add(const corral_store *plugin, const char *file, const char *scheme,
               corral_error *error) {
  char room[110], words[60];
  const char *from = brief(file, room, sizeof room);
  size_t count = store_count;
  int serves = scheme == NULL, status = CORRAL_OK;
  do {
    status = count == STORES
                 ? crl_status_fail(error, CORRAL_ENOPLUGIN, "more than %d store plugins", STORES)
                 : copy_table(plugin, from, &stores[count], error);
    if (status != CORRAL_OK) return status;
    serves |= scheme != NULL && has_word(stores[count].schemes, scheme);
    plugin = stores[count++].next;
  } while (plugin != NULL);
  if (!serves)
    return crl_status_fail(error, CORRAL_ENOPLUGIN, "%s: it serves '%s', not '%.20s:'", from,
                           brief(stores[store_count].schemes, words, sizeof words), scheme);
  store_count = count;
  return CORRAL_OK;
}

/* The same for an origin's table. */
static int add_origin(const corral_origin *plugin, const char *file, corral_error *error) {
  char room[110];
  const char *from = brief(file, room, sizeof room);
  if (plugin == NULL || plugin->abi != CORRAL_PLUGIN_ABI || plugin->size < sizeof *plugin)
    return crl_status_fail(error, CORRAL_ENOPLUGIN,
                           "%s: its table is not one of an origin of ABI %d", from,
                           CORRAL_PLUGIN_ABI);
  if (plugin->schemes == NULL || plugin->open == NULL || plugin->close == NULL ||
      plugin->fetch == NULL)
    return crl_status_fail(error, CORRAL_ENOPLUGIN,
                           "%s: its table needs schemes, open, close and fetch", from);
  if (origin_count == ORIGINS)
    return crl_status_fail(error, CORRAL_ENOPLUGIN, "more than %d origin plugins", ORIGINS);
  memcpy(&origins[origin_count++], plugin, sizeof *plugin);
  return CORRAL_OK;
}

static void add_built_in(void) {
  if (store_count > 0) return;
#define STORE(name) add(&crl_plugin_##name, #name, NULL, NULL);
#define ORIGIN(name) add_origin(&crl_origin_##name, #name, NULL);
#include "corral_builtin.h"
#undef STORE
#undef ORIGIN
}

static const corral_store *known(const char *scheme) {
  for (size_t i = 0; i < store_count; i++)
    if (has_word(stores[i].schemes, scheme)) return &stores[i];
  return NULL;
}

static const corral_origin *known_origin(const char *scheme) {
  for (size_t i = 0; i < origin_count; i++)
    if (has_word(origins[i].schemes, scheme)) return &origins[i];
  return NULL;
}

/* The plugin file of a scheme; that of an unknown one is called as it is, up to a '+'. */
static void plugin_name(const char *scheme, char name[CRL_URI_SCHEME + 1]) {
  const crl_scheme *row = crl_schemes_find(scheme);
  const char *from = row != NULL ? row->plugin : scheme;
  size_t len = strcspn(from, "+");
  assert(len <= CRL_URI_SCHEME);
  memcpy(name, from, len);
  name[len] = '\0';
}

/* A plugin that can't be loaded most often lacks its client library. */
static int not_loaded(const char *scheme, corral_error *error) {
  char room[170];
  const crl_scheme *row = crl_schemes_find(scheme);
  const char *said = dlerror();
  int lacks = row != NULL && strstr(said, "cannot open shared object file") != NULL;
  const char *library = lacks ? row->library : NULL;
  const char *why = brief(said, room, sizeof room);
  return crl_status_fail(error, CORRAL_ENOPLUGIN, "%s%s%s%s", why,
                         library != NULL ? " (Debian has its library in " : "",
                         library != NULL ? library : "", library != NULL ? ")" : "");
}

static int load(const char *file, const char *scheme, corral_error *error) {
  char room[230];
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return not_loaded(scheme, error);
  corral_plugin_fn *store;
  corral_origin_plugin_fn *origin;
  *(void **)&store = dlsym(library, "corral_plugin");
  *(void **)&origin = dlsym(library, "corral_origin_plugin");
  int status = store != NULL ? add(store(), file, scheme, error)
               : origin != NULL
                   ? add_origin(origin(), file, error)
                   : crl_status_fail(error, CORRAL_ENOPLUGIN,
                                     "%s: not a corral plugin: it has no function corral_plugin",
                                     brief(file, room, 150));
  if (status != CORRAL_OK) dlclose(library);
  return status;
}

/* True when the program has more rights than its caller: the caller's variables aren't trusted
 * then. */
static int is_secure(void) { return getauxval(AT_SECURE) != 0; }

static const char *user_path(void) {
  const char *path = is_secure() ? NULL : getenv("CORRAL_PLUGIN_PATH");
  return path == NULL ? "" : path;
}

static int check_user_path(corral_error *error) {
  const char *path = user_path();
  if (path[0] == '\0') return CORRAL_OK;
  for (const char *at = path;; at++) {
    int len = (int)strcspn(at, ":");
    if (at[0] != '/')
      return crl_status_fail(error, CORRAL_ENOPLUGIN,
                             "CORRAL_PLUGIN_PATH: '%.*s' is no absolute path; accepted: absolute "
                             "paths, separated by ':'",
                             len < 100 ? len : 100, at);
    at += len;
    if (*at == '\0') return CORRAL_OK;
  }
}

/* dl_iterate_phdr tells of the program first. Sets *ret when the library is a part of it; stops. */
static int holds_library(struct dl_phdr_info *program, size_t size, void *ret) {
  uintptr_t self = (uintptr_t)&host;
  (void)size;
  for (int i = 0; i < program->dlpi_phnum; i++) {
    uintptr_t from = program->dlpi_addr + program->dlpi_phdr[i].p_vaddr;
    if (program->dlpi_phdr[i].p_type == PT_LOAD && self >= from &&
        self - from < program->dlpi_phdr[i].p_memsz)
      *(int *)ret = 1;
  }
  return 1;
}

/* The folder of the file that has this library; false when its absolute path isn't known. The
 * dynamic linker knows a program only by argv[0], which the caller may set at will: the program's
 * path comes from the kernel. */
static int own_folder(char *folder, size_t size) {
  Dl_info info;
  int in_program = 0;
  ssize_t len = -1;
  dl_iterate_phdr(holds_library, &in_program);
  if (in_program)
    len = readlink("/proc/self/exe", folder, size);
  else if (dladdr((const void *)&host, &info) != 0 && info.dli_fname != NULL)
    len = snprintf(folder, size, "%s", info.dli_fname);
  if (len <= 0 || (size_t)len >= size || folder[0] != '/') return 0;
  folder[len] = '\0';
  if (strchr(folder, ':') != NULL) return 0;
  *strrchr(folder, '/') = '\0';
  return 1;
}

/* The folders to search, separated by colons, the user's first. To be freed; NULL without
 * memory. */
static char *search_path(const char *user) {
  char own[4096], *path = NULL;
  const char *between = user[0] != '\0' ? ":" : "";
  int n = is_secure() || !own_folder(own, sizeof own)
              ? asprintf(&path, "%s%s%s", user, between, CORRAL_PLUGIN_DIR)
              : asprintf(&path, "%s%s%s/plugins:%s/" CORRAL_PLUGINS_NEAR ":%s", user, between, own,
                         own, CORRAL_PLUGIN_DIR);
  return n < 0 ? NULL : path;
}

enum { SHOWN = 21 }; /* of a scheme; those known are shorter */

/* Writes why a scheme has no plugin: its package, and what it is built with, or the schemes
 * known. */
static void say_missing(const char *scheme, char *text, size_t size) {
  char upper[32], list[200];
  const crl_scheme *row = crl_schemes_find(scheme);
  if (row == NULL) {
    snprintf(text, size, "no store plugin for '%s:'; %s", scheme,
             crl_schemes_list(list, sizeof list));
    return;
  }
  size_t len = 0;
  for (; row->plugin[len] != '\0' && len + 1 < sizeof upper; len++)
    upper[len] = (char)toupper((unsigned char)row->plugin[len]);
  upper[len] = '\0';
  snprintf(text, size,
           "no %s plugin for '%s:': install corral-plugin-%s (of Debian); a build needs %s, not "
           "CORRAL_%s=OFF",
           strcmp(row->holds, "origin") == 0 ? "origin" : "store", scheme, row->plugin, row->build,
           upper);
}

/* The folders as far as there is room: all; those of the user; the variable that has them. */
static const char *folders_in(const char *path, size_t room, char *text, size_t size) {
  static const char rest[] = " and elsewhere";
  const char *user = user_path();
  if (strlen(path) < room) return path;
  snprintf(text, size, "%s%s",
           user[0] != '\0' && strlen(user) + sizeof rest <= room ? user : "$CORRAL_PLUGIN_PATH",
           rest);
  return text;
}

static int not_found(const char *scheme, const char *name, corral_error *error) {
  char text[sizeof error->text], folders[sizeof error->text], meant[32];
  if (crl_schemes_find(scheme) == NULL && crl_schemes_meant(scheme, meant) != NULL)
    return crl_status_fail(error, CORRAL_ENOPLUGIN,
                           "no store plugin for '%.20s:': did you mean '%s:'?", scheme, meant);
  char shown[SHOWN], file[SHOWN];
  crl_print_fit(shown, sizeof shown, scheme);
  crl_print_fit(file, sizeof file, name);
  if (strchr(scheme, '.') != NULL || strcmp(scheme, "localhost") == 0)
    return crl_status_fail(error, CORRAL_ENOPLUGIN,
                           "no store plugin for '%s:': a server is named as in redis://%s", shown,
                           shown);
  say_missing(shown, text, sizeof text);
  size_t used = strlen(text);
  snprintf(text + used, sizeof text - used, "; looked for corral_plugin_%s.so in ", file);
  char *path = search_path(user_path());
  if (path == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  int status =
      crl_status_fail(error, CORRAL_ENOPLUGIN, "%s%s", text,
                      folders_in(path, sizeof text - strlen(text), folders, sizeof folders));
  free(path);
  return status;
}

static int find_file(const char *scheme, corral_error *error) {
  int found = 0, status = check_user_path(error);
  if (status != CORRAL_OK) return status;
  char name[CRL_URI_SCHEME + 1], *file = NULL, *path = search_path(user_path());
  if (path == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  plugin_name(scheme, name);
  for (char *save = NULL, *folder, *at = path;
       !found && (folder = strtok_r(at, ":", &save)) != NULL; at = NULL) {
    if (asprintf(&file, "%s/corral_plugin_%s.so", folder, name) < 0) {
      status = crl_status_plain(error, CORRAL_ENOMEM);
      break;
    }
    found = access(file, F_OK) == 0;
    if (found) status = load(file, scheme, error);
    free(file);
  }
  free(path);
  return found || status != CORRAL_OK ? status : not_found(scheme, name, error);
}

int crl_registry_find(const char *scheme, const corral_store **ret, corral_error *error) {
  int status = CORRAL_OK;
  pthread_mutex_lock(&stores_mutex);
  add_built_in();
  const corral_store *store = known(scheme);
  if (store == NULL && known_origin(scheme) != NULL)
    status = crl_status_fail(error, CORRAL_ENOPLUGIN, "%.20s: is an origin, not a store", scheme);
  else if (store == NULL)
    status = find_file(scheme, error);
  if (store == NULL && status == CORRAL_OK) store = known(scheme);
  pthread_mutex_unlock(&stores_mutex);
  if (status == CORRAL_OK && store == NULL)
    return crl_status_fail(error, CORRAL_ENOPLUGIN, "%.20s: is an origin, not a store", scheme);
  if (status == CORRAL_OK) *ret = store;
  return status;
}

int crl_registry_find_origin(const char *scheme, const corral_origin **ret, corral_error *error) {
  int status = CORRAL_OK;
  pthread_mutex_lock(&stores_mutex);
  add_built_in();
  const corral_origin *origin = known_origin(scheme);
  if (origin == NULL && known(scheme) == NULL) status = find_file(scheme, error);
  if (origin == NULL && status == CORRAL_OK) origin = known_origin(scheme);
  pthread_mutex_unlock(&stores_mutex);
  if (status == CORRAL_OK && origin == NULL)
    return crl_status_fail(error, CORRAL_ENOPLUGIN,
                           "'%.20s:' is not an origin; accepted: http, https", scheme);
  if (status == CORRAL_OK) *ret = origin;
  return status;
}
