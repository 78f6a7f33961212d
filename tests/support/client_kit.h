/* client_kit.h: one client of a built-in plugin, with the info that `open` filled and the error of
 * the last call. */
#ifndef CLIENT_KIT_H
#define CLIENT_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "store/registry.h"
#include "store/uri.h"

typedef struct client {
  const corral_host *host;
  const corral_store *plugin;
  void *store, *handle;
  corral_store_info info;
  corral_error error;
} client;

/* Returns the status of `open`; its text is in c->error. */
static inline int client_open(client *c, const corral_store *plugin, const char *text) {
  crl_uri uri;
  memset(c, 0, sizeof *c);
  c->host = crl_registry_host();
  c->plugin = plugin;
  c->info.size = sizeof c->info;
  int status = crl_uri_parse(&uri, text, &c->error);
  if (status != CORRAL_OK) return status;
  status = plugin->open(c->host, &uri.view, &c->store, &c->info, &c->error);
  crl_uri_free(&uri);
  return status;
}

static inline int client_connect(client *c, int64_t limit_ms) {
  return c->plugin->connect(c->store, c->host->now_ms() + limit_ms, &c->handle, &c->error);
}

/* Opens and connects. Returns the first status that isn't CORRAL_OK. */
static inline int client_begin(client *c, const corral_store *plugin, const char *text,
                               int64_t limit_ms) {
  int status = client_open(c, plugin, text);
  return status != CORRAL_OK ? status : client_connect(c, limit_ms);
}

static inline void client_end(client *c) {
  if (c->handle != NULL) c->plugin->disconnect(c->handle);
  if (c->store != NULL) c->plugin->close(c->store);
}

#endif
