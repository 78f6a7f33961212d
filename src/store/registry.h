/* registry.h: finds the plugin of a scheme, built in or loaded on first use; and has the table of
 * services for plugins. */
#ifndef CRL_REGISTRY_H
#define CRL_REGISTRY_H

#include <corral/plugin.h>

/* The services for plugins; valid for ever. */
const corral_host *crl_registry_host(void);
/* The plugin for a scheme. Loaded plugins stay loaded. CORRAL_ENOPLUGIN: the text names the known
 * schemes and the folders searched. *ret is a copy, zero-filled past the plugin's own size, and
 * valid for ever. */
int crl_registry_find(const char *scheme, const corral_store **ret, corral_error *error);
/* The same for origins. */
int crl_registry_find_origin(const char *scheme, const corral_origin **ret, corral_error *error);

#endif
