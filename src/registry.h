/* registry.h: scheme -> plugin: built in, or loaded on first use. And the table that plugins are
 * given. */
#ifndef CRL_REGISTRY_H
#define CRL_REGISTRY_H

#include <corral/plugin.h>

/* The services for plugins; lives for ever. */
const corral_host *crl_registry_host(void);
/* The plugin for a scheme. Loaded plugins stay loaded. CORRAL_ENOPLUGIN with a text that tells
 * which schemes exist and where it looked. `*ret` is a copy zero-filled past the plugin's own size
 * and lives for ever. */
int crl_registry_find(const char *scheme, const corral_store **ret, corral_error *error);
/* The same for origins. */
int crl_registry_find_origin(const char *scheme, const corral_origin **ret, corral_error *error);

#endif
