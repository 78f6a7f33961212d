/* memcached.c: memcached as a store: the table, the URI, the server of a key, connecting.
 *
 *   memcached://host[:port][,host[:port]...]    memcached+unix:///path/of/socket
 *
 * Defaults: 127.0.0.1, 11211. Parameters: weights=1,2,... (one for each host, in their order);
 * max_item (1m), the server's limit of an item's size, its -I.
 *
 * libmemcached 1.1.4 or later: older ones can answer with another key's value after a time limit.
 * It distributes the keys (weighted ketama, as in all its other clients), and nothing else; the
 * reason is in request.c. Text protocol, so no user and password. The server must have cas (no -C).
 * A handle belongs to one thread at a time, and to one server.
 *
 * A key stays with its server whatever state that is in. If the keys of a dead server moved to
 * others, as the library can do, an invalidation could miss the copy that a client with another
 * view of the servers left elsewhere. So those keys are computed without the store until the server
 * is back. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "memcached.h"

enum { PORT = 11211, WEIGHT_MOST = 1000 };

static int bad_uri(const corral_host *host, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

/* ---- the library's version ----------------------------------------------------------------- */

/* The first three numbers of a version, as one number. */
static long version_of(const char *text) {
  long number = 0;
  for (int i = 0; i < 3; i++) {
    char *end;
    number = number * 1000 + strtol(text, &end, 10);
    text = *end == '.' ? end + 1 : end;
  }
  return number;
}

int crl_memcached_check_version(const corral_host *host, const char *version, corral_error *error) {
  if (version_of(version) >= version_of("1.1.4")) return CORRAL_OK;
  return host->fail(error, CORRAL_EUNSUPPORTED,
                    "libmemcached %.40s: 1.1.4 or later is needed; older ones can return other "
                    "keys' values after a time limit",
                    version);
}

/* ---- the URI ------------------------------------------------------------------------------- */

/* Reads "host", "host:port", "[v6]" or "[v6]:port", up to `end`; 0: it is none of them. */
static int read_host(crl_memcached_server *server, const char *text, const char *end) {
  const char *stop = memchr(text, ':', (size_t)(end - text));
  size_t len;
  if (*text == '[') {
    const char *close = memchr(text, ']', (size_t)(end - text));
    if (close == NULL || (close + 1 != end && close[1] != ':')) return 0;
    stop = close + 1 == end ? NULL : close + 1;
    len = (size_t)(close - ++text);
  } else {
    len = (size_t)((stop == NULL ? end : stop) - text);
  }
  if (len >= sizeof server->host) return 0;
  memcpy(server->host, len > 0 ? text : "127.0.0.1", len > 0 ? len : sizeof "127.0.0.1");
  if (len > 0) server->host[len] = '\0';
  server->port = PORT;
  if (stop != NULL) {
    char *after;
    long port = strtol(stop + 1, &after, 10);
    if (!isdigit((unsigned char)stop[1]) || after != end || port < 1 || port > 65535) return 0;
    server->port = (int)port;
  }
  server->weight = 1;
  snprintf(server->name, sizeof server->name,
           strchr(server->host, ':') != NULL ? "memcached [%s]:%d" : "memcached %s:%d",
           server->host, server->port);
  return 1;
}

static int is_twice(const crl_memcached_store *s) {
  for (size_t i = 0; i < s->count; i++)
    for (size_t j = 0; j < i; j++)
      if (strcmp(s->servers[i].name, s->servers[j].name) == 0) return 1;
  return 0;
}

static int read_hosts(crl_memcached_store *s, const corral_uri *uri, corral_error *error) {
  const char *text = uri->hosts != NULL ? uri->hosts : "";
  size_t count = 1;
  if (uri->path[0] != '\0' && strcmp(uri->path, "/") != 0)
    return bad_uri(s->host, uri, error, "after the hosts nothing but parameters may follow");
  for (const char *at = text; *at != '\0'; at++) count += *at == ',';
  if (count > CRL_MEMCACHED_SERVERS) return bad_uri(s->host, uri, error, "more than 100 hosts");
  s->servers = calloc(count, sizeof *s->servers);
  if (s->servers == NULL) return s->host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  for (; s->count < count; s->count++) {
    const char *end = text + strcspn(text, ",");
    if (text == end && count > 1) return bad_uri(s->host, uri, error, "a host is empty");
    if (!read_host(&s->servers[s->count], text, end))
      return bad_uri(s->host, uri, error,
                     "accepted are host, host:port, [address]:port, separated by commas");
    text = *end == ',' ? end + 1 : end;
  }
  return is_twice(s) ? bad_uri(s->host, uri, error, "a host is named twice") : CORRAL_OK;
}

static int read_socket(crl_memcached_store *s, const corral_uri *uri, corral_error *error) {
  struct sockaddr_un at;
  if (uri->hosts == NULL || uri->host[0] != '\0' || uri->path[0] != '/' || uri->path[1] == '\0')
    return bad_uri(s->host, uri, error, "accepted is memcached+unix:///PATH/OF/SOCKET");
  if (strlen(uri->path) >= sizeof at.sun_path)
    return bad_uri(s->host, uri, error, "the path of a unix socket has 107 bytes at most");
  s->servers = calloc(1, sizeof *s->servers);
  if (s->servers == NULL) return s->host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  s->count = 1;
  s->servers->weight = 1;
  snprintf(s->servers->host, sizeof s->servers->host, "%s", uri->path);
  snprintf(s->servers->name, sizeof s->servers->name, "memcached %s", s->servers->host);
  return CORRAL_OK;
}

static int read_weights(crl_memcached_store *s, const corral_uri *uri, corral_error *error) {
  const char *text = s->host->uri_get(uri, "weights");
  if (text == NULL) return CORRAL_OK;
  for (size_t i = 0; i < s->count; i++) {
    char *end;
    long weight = strtol(text, &end, 10);
    int last = i + 1 == s->count;
    if (!isdigit((unsigned char)*text) || weight < 1 || weight > WEIGHT_MOST ||
        *end != (last ? '\0' : ','))
      return bad_uri(s->host, uri, error,
                     "weights accepts a number from 1 to 1000 for each host, separated by commas");
    s->servers[i].weight = weight;
    text = end + !last;
  }
  return CORRAL_OK;
}

static int read_uri(crl_memcached_store *s, const corral_uri *uri, corral_error *error) {
  int is_socket = strcmp(uri->scheme, "memcached+unix") == 0;
  int status = s->host->uri_check(uri, is_socket ? "max_item" : "weights max_item", error);
  s->max_item = 1 << 20;
  if (status != CORRAL_OK) return status;
  if (uri->user != NULL || uri->password != NULL)
    return bad_uri(
        s->host, uri, error,
        "user and password are not supported: memcached has them in its binary protocol only");
  status = is_socket ? read_socket(s, uri, error) : read_hosts(s, uri, error);
  if (status == CORRAL_OK) status = read_weights(s, uri, error);
  if (status == CORRAL_OK)
    status = s->host->uri_number(uri, "max_item", "bytes", 1024, CRL_MEMCACHED_LARGEST,
                                 &s->max_item, error);
  return status;
}

/* ---- the server of a key ------------------------------------------------------------------- */

static int make_map(crl_memcached_store *s, corral_error *error) {
  int ok =
      s->count == 1 ||
      ((s->map = memcached_create(NULL)) != NULL &&
       memcached_success(memcached_behavior_set(s->map, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1)));
  for (size_t i = 0; i < s->count && ok && s->map != NULL; i++) {
    const crl_memcached_server *server = &s->servers[i];
    ok = memcached_success(memcached_server_add_with_weight(
        s->map, server->host, (in_port_t)server->port, (uint32_t)server->weight));
  }
  return ok ? CORRAL_OK
            : s->host->fail(error, CORRAL_ENOMEM, "no memory for the map of %zu servers", s->count);
}

/* Any number of threads at once, since the library only reads the map here. */
static size_t route(void *store, const void *key, size_t key_len) {
  const crl_memcached_store *s = store;
  crl_memcached_key encoded;
  if (s->map == NULL) return 0;
  crl_memcached_encode(s->host, key, key_len, &encoded);
  uint32_t server = memcached_generate_hash(s->map, encoded.text, encoded.len);
  return server < s->count ? server : 0;
}

/* ---- open, close --------------------------------------------------------------------------- */

static void close_store(void *store) {
  crl_memcached_store *s = store;
  if (s->map != NULL) memcached_free(s->map);
  free(s->servers);
  free(s);
}

static int is_local(const crl_memcached_store *s) {
  const char *host = s->servers->host;
  return s->servers->port == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
         strcmp(host, "localhost") == 0;
}

static int open_store(const corral_host *host, const corral_uri *uri, void **ret_store,
                      corral_store_info *info, corral_error *error) {
  if (host->size < sizeof *host)
    return host->fail(error, CORRAL_EUNSUPPORTED, "the memcached plugin is newer than this corral");
  int status = crl_memcached_check_version(host, memcached_lib_version(), error);
  if (status != CORRAL_OK) return status;
  crl_memcached_store *s = calloc(1, sizeof *s);
  if (s == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  s->host = host;
  status = read_uri(s, uri, error);
  if (status == CORRAL_OK) status = make_map(s, error);
  if (status != CORRAL_OK) {
    close_store(s);
    return status;
  }
  for (size_t i = 0; i < s->count; i++) {
    crl_memcached_server *server = &s->servers[i];
    server->peer = (crl_net_peer){
        .host = host, .name = server->name, .server = server->host, .port = server->port};
  }
  if (s->count == 1)
    snprintf(s->name, sizeof s->name, "%.150s", s->servers->name);
  else
    snprintf(s->name, sizeof s->name, "memcached %.140s", uri->hosts);
  info->max_key = 65536;
  info->max_record = (uint64_t)s->max_item - CRL_MEMCACHED_OVERHEAD;
  info->handles = is_local(s) ? 2 : 4;
  info->servers = s->count;
  info->reach = CORRAL_REACH_FLEET;
  info->adopts = 1;
  info->clock_skew_ms = 2000; /* greet.c corrects larger differences */
  info->name = s->name;
  info->permits = 1;
  info->turns = 1;
  *ret_store = s;
  return CORRAL_OK;
}

/* ---- connect, disconnect ------------------------------------------------------------------- */

static void disconnect(void *handle) {
  crl_memcached_handle *h = handle;
  crl_memcached_begun_drop(h);
  crl_memcached_wire_close(&h->wire);
  free(h);
}

static int connect_server(void *store, size_t server, int64_t deadline, void **ret_handle,
                          corral_error *error) {
  crl_memcached_store *s = store;
  crl_memcached_handle *h = calloc(1, sizeof *h);
  if (h == NULL) return s->host->fail(error, CORRAL_ENOMEM, "no memory to connect");
  h->store = s;
  h->host = h->wire.host = s->host;
  h->server = h->wire.server = &s->servers[server];
  h->wire.fd = -1;
  int status = crl_memcached_wire_open(&h->wire, deadline, error);
  if (status == CORRAL_OK) status = crl_memcached_greet(h, deadline, error);
  if (status == CORRAL_OK)
    *ret_handle = h;
  else
    disconnect(h);
  return status;
}

static int connect_first(void *store, int64_t deadline, void **ret_handle, corral_error *error) {
  return connect_server(store, 0, deadline, ret_handle, error);
}

const corral_store crl_plugin_memcached = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .op_size = sizeof(corral_op),
    .name = "memcached",
    .schemes = "memcached memcached+unix",
    .summary = "memcached: value and lease in one item, guarded by cas, spread over many servers",
    .open = open_store,
    .close = close_store,
    .connect = connect_first,
    .disconnect = disconnect,
    .perform = crl_memcached_perform,
    .route = route,
    .connect_server = connect_server,
    .descriptor = crl_memcached_descriptor,
    .begin = crl_memcached_begin,
    .finish = crl_memcached_finish,
    .inspect = crl_memcached_inspect,
};

CORRAL_PLUGIN(crl_plugin_memcached)
