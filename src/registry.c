/* registry.c: scheme -> plugin: built in, or loaded on first use. And the table that plugins are given.
 *
 * Looked for in $CORRAL_PLUGIN_PATH (ignored in set-user-id programs), then beside the library (plugins/, corral/), then in the
 * folder it was installed to. */
#include "registry.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "env.h"
#include "record.h"
#include "status.h"
#include "uri.h"

#ifndef CORRAL_PLUGIN_DIR
#define CORRAL_PLUGIN_DIR "/usr/lib/corral"
#endif

static uint64_t hash64(const void *data, size_t size) { return XXH3_64bits(data, size); }

static void hash128(const void *data, size_t size, uint8_t hash[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
  memcpy(hash, canonical.digest, sizeof canonical.digest);
}

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
    .header_read = crl_record_read,
    .header_write = crl_record_write,
    .decide = crl_record_decide,
    .hash64 = hash64,
    .hash128 = hash128,
    .wall_ms = crl_env_wall_ms,
};

const corral_host *crl_registry_host(void) { return &host; }

extern const corral_store crl_plugin_memory;
#ifdef CORRAL_HAVE_lmdb
extern const corral_store crl_plugin_lmdb;
#endif
#ifdef CORRAL_HAVE_redis
extern const corral_store crl_plugin_redis;
#endif
#ifdef CORRAL_HAVE_memcached
extern const corral_store crl_plugin_memcached;
#endif

enum { STORES = 32 };
static corral_store stores[STORES];
static size_t store_count;
static pthread_mutex_t stores_mutex = PTHREAD_MUTEX_INITIALIZER;

static int has_word(const char *words, const char *word) {
  size_t len = strlen(word);
  for (const char *at = words; (at = strstr(at, word)) != NULL; at += len)
    if ((at == words || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0')) return 1;
  return 0;
}

/* A table written against an older header is shorter: what it doesn't have is zero here. */
static int add(const corral_store *plugin, const char *from, corral_error *error) {
  corral_store copy;
  memset(&copy, 0, sizeof copy);
  memcpy(&copy, plugin, plugin->size < sizeof copy ? plugin->size : sizeof copy);
  if (plugin->abi != CORRAL_PLUGIN_ABI || copy.open == NULL || copy.close == NULL || copy.connect == NULL ||
      copy.disconnect == NULL || copy.perform == NULL || copy.schemes == NULL || copy.name == NULL)
    return crl_status_fail(error, CORRAL_ENOPLUGIN, "%.150s: not a store plugin of ABI %d", from, CORRAL_PLUGIN_ABI);
  if (store_count == STORES) return crl_status_fail(error, CORRAL_ENOPLUGIN, "more than %d store plugins", STORES);
  stores[store_count++] = copy;
  return CORRAL_OK;
}

static void add_built_in(void) {
  if (store_count > 0) return;
  add(&crl_plugin_memory, "memory", NULL);
#ifdef CORRAL_HAVE_lmdb
  add(&crl_plugin_lmdb, "lmdb", NULL);
#endif
#ifdef CORRAL_HAVE_redis
  add(&crl_plugin_redis, "redis", NULL);
#endif
#ifdef CORRAL_HAVE_memcached
  add(&crl_plugin_memcached, "memcached", NULL);
#endif
}

static const corral_store *known(const char *scheme) {
  for (size_t i = 0; i < store_count; i++)
    if (has_word(stores[i].schemes, scheme)) return &stores[i];
  return NULL;
}

/* rediss and redis+unix are served by the plugin file of redis. */
static void plugin_name(const char *scheme, char *name, size_t size) {
  snprintf(name, size, "%.*s", (int)strcspn(scheme, "+"), scheme);
  if (strcmp(name, "rediss") == 0) name[5] = '\0';
}

static int load(const char *path, corral_error *error) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return crl_status_fail(error, CORRAL_ENOPLUGIN, "%.230s", dlerror());
  corral_plugin_fn *entry;
  *(void **)&entry = dlsym(library, "corral_plugin");
  if (entry == NULL) {
    dlclose(library);
    return crl_status_fail(error, CORRAL_ENOPLUGIN, "%.150s: not a corral plugin (no function corral_plugin)", path);
  }
  return add(entry(), path, error);
}

/* The folders to look in, separated by colons. */
static void search_path(char *path, size_t size) {
  const char *user = secure_getenv("CORRAL_PLUGIN_PATH");
  Dl_info info;
  char beside[1024] = "";
  if (dladdr((const void *)&host, &info) != 0 && info.dli_fname != NULL && strchr(info.dli_fname, '/') != NULL)
    snprintf(beside, sizeof beside, "%.*s", (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname);
  snprintf(path, size, "%s%s%s%s%s%s%s%s", user == NULL ? "" : user, user == NULL ? "" : ":", beside, beside[0] ? "/plugins:" : "",
           beside, beside[0] ? "/corral:" : "", CORRAL_PLUGIN_DIR, "");
}

/* Adds " NAME" for each plugin file of a folder. */
static void list_folder(const char *folder, char *names, size_t size) {
  static const char before[] = "corral_plugin_", after[] = ".so";
  DIR *dir = opendir(folder);
  if (dir == NULL) return;
  for (struct dirent *file; (file = readdir(dir)) != NULL;) {
    size_t len = strlen(file->d_name), used = strlen(names);
    if (len <= sizeof before + sizeof after - 2 || memcmp(file->d_name, before, sizeof before - 1) != 0 ||
        strcmp(file->d_name + len - (sizeof after - 1), after) != 0)
      continue;
    snprintf(names + used, size - used, " %.*s", (int)(len - sizeof before - sizeof after + 2), file->d_name + sizeof before - 1);
  }
  closedir(dir);
}

/* Those that are built in or loaded, and those that could be. */
static void list_all(char *names, size_t size) {
  char path[4096];
  names[0] = '\0';
  for (size_t i = 0; i < store_count; i++) {
    size_t used = strlen(names);
    snprintf(names + used, size - used, " %s", stores[i].schemes);
  }
  search_path(path, sizeof path);
  for (char *save = NULL, *folder, *at = path; (folder = strtok_r(at, ":", &save)) != NULL; at = NULL)
    list_folder(folder, names, size);
}

static int find_file(const char *scheme, corral_error *error) {
  char path[4096], name[64], file[4200];
  search_path(path, sizeof path);
  plugin_name(scheme, name, sizeof name);
  for (char *save = NULL, *folder, *at = path; (folder = strtok_r(at, ":", &save)) != NULL; at = NULL) {
    snprintf(file, sizeof file, "%s/corral_plugin_%s.so", folder, name);
    if (access(file, F_OK) == 0) return load(file, error);
  }
  search_path(path, sizeof path);
  char names[96];
  list_all(names, sizeof names);
  return crl_status_fail(error, CORRAL_ENOPLUGIN, "no store plugin for '%.20s:'; there are:%s; looked for corral_plugin_%.20s.so in %.90s",
                         scheme, names, name, path);
}

int crl_registry_find(const char *scheme, const corral_store **ret, corral_error *error) {
  int status = CORRAL_OK;
  pthread_mutex_lock(&stores_mutex);
  add_built_in();
  const corral_store *store = known(scheme);
  if (store == NULL) status = find_file(scheme, error);
  if (store == NULL && status == CORRAL_OK && (store = known(scheme)) == NULL)
    status = crl_status_fail(error, CORRAL_ENOPLUGIN, "the plugin found for '%.20s:' doesn't serve that scheme", scheme);
  pthread_mutex_unlock(&stores_mutex);
  if (status == CORRAL_OK) *ret = store;
  return status;
}
