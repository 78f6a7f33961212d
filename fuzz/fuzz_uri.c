/* fuzz_uri.c: store URIs: parsed, and opened by every built-in store. */
#include "fuzz.h"

#include "store/registry.h"
#include "store/uri.h"

#define STORE(name) extern const corral_store crl_plugin_##name;
FUZZ_STORES
#undef STORE

static const corral_store *const stores[] = {
#define STORE(name) &crl_plugin_##name,
    FUZZ_STORES
#undef STORE
};

static int has_scheme(const corral_store *store, const char *scheme) {
  size_t len = strlen(scheme);
  for (const char *at = strstr(store->schemes, scheme); at != NULL; at = strstr(at + 1, scheme))
    if ((at == store->schemes || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0')) return 1;
  return 0;
}

static void open_store(const corral_store *plugin, const corral_uri *uri) {
  corral_error error = {0};
  corral_store_info info = {.size = sizeof info, .max_key = 65536, .servers = 1, .name = ""};
  void *store = NULL;
  int status = plugin->open(crl_registry_host(), uri, &store, &info, &error);
  MUST_BE_PLAIN(error.text);
  if (status != CORRAL_OK) {
    MUST(status < 0 && error.text[0] != '\0');
    return;
  }
  MUST(info.servers >= 1 && info.servers <= CORRAL_SERVERS && info.max_key >= 1);
  MUST(info.name != NULL && strlen(info.name) < 4096);
  for (size_t i = 0; i < 3 && plugin->route != NULL; i++)
    MUST(plugin->route(store, "key", i + 1) < info.servers);
  plugin->close(store);
}

/* A password that occurs exactly once in the URI, without escapes, must be hidden in the displayed
 * text. */
static void check_password(const corral_uri *uri, const char *text) {
  const char *password = uri->password, *first = password != NULL ? strstr(text, password) : NULL;
  if (first == NULL || strlen(password) < 6 || strchr(text, '%') != NULL ||
      strstr(first + 1, password) != NULL || strstr(password, "***") != NULL)
    return;
  MUST(strstr(uri->text, password) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  char *text = fuzz_text(&in, '\0');
  corral_error error = {0};
  crl_uri uri;
  int status = crl_uri_parse(&uri, text, &error);
  MUST_BE_PLAIN(error.text);
  if (status == CORRAL_OK) {
    int64_t number = 7;
    check_password(&uri.view, text);
    MUST(uri.view.param_count <= CRL_URI_PARAMS && uri.view.port >= 0 && uri.view.port <= 65535);
    for (size_t i = 0; i < uri.view.param_count; i++) {
      const char *name = uri.view.params[i].name;
      MUST(crl_uri_get(&uri.view, name) == uri.view.params[i].value);
      if (crl_uri_number(&uri.view, name, i % 2 ? "ms" : "bytes", 1, 1000000, &number, &error) ==
          CORRAL_OK)
        MUST(number >= 1 && number <= 1000000);
      MUST_BE_PLAIN(error.text);
    }
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++)
      if (has_scheme(stores[i], uri.view.scheme)) open_store(stores[i], &uri.view);
    crl_uri_free(&uri);
  }
  free(text);
  return 0;
}
