/* etcd.c: etcd as a store of locks, without values, through its JSON gateway: the table and the
 * URI.
 *
 *   etcd://[user:password@]host[:port][,host[:port]...]
 *
 * Defaults: 127.0.0.1, 2379. The hosts are members of one cluster. Requests go to the member that
 * answered last, and to the next one when it can't be connected to. A request that was sent is
 * never sent again: its fate is unknown. Parameters: prefix ("corral/"), which goes before each
 * key; tls=yes, and with it tls_ca (a PEM file; else the system's certificates), tls_cert and
 * tls_key (the client's own), tls_verify=no (takes any certificate: for experiments only).
 *
 * A hold is a key with a lease: the server removes the key when the lease ends, by the clock of the
 * cluster's leader. Leases have whole seconds, and a minimum that the server sets (1.5 times its
 * election timeout): left_ms is what was granted, which may be more than was asked for. A key
 * whose lease has ended stays for about 0.5 s more. A new leader begins all leases anew.
 *
 * The fencing token is the revision of the cluster at which the key was created; of a hold that was
 * taken over, one since then, which is in the value. It grows as long
 * as the cluster keeps its data: a cluster restored from an older backup counts again from there.
 * LOCK_EXTEND doesn't raise it: only a lock over several stores needs that.
 *
 * A place in a lock's queue is a key of its own beside the lock's (queue.c).
 *
 * etcd 3.4 or later. A user needs readwrite for the range of the prefix. A handle belongs to one
 * thread at a time. */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "etcd.h"

enum { PORT = 2379 };

/* ---- the URI ------------------------------------------------------------------------------- */

static int bad_uri(const corral_host *host, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

/* Reads "host", "host:port", "[v6]" or "[v6]:port", up to `end`; 0: it is none of them. */
static int read_host(char *base, size_t size, int tls, const char *text, const char *end) {
  static const char usual[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._",
                    v6[] = "0123456789abcdefABCDEF:.";
  int is_v6 = *text == '[', port = PORT;
  size_t len = strspn(text + is_v6, is_v6 ? v6 : usual);
  const char *host = text + is_v6, *after = host + len + is_v6;
  if (len > CRL_ETCD_HOST || (is_v6 && (len == 0 || host[len] != ']')) || after > end) return 0;
  if (*after == ':') {
    char *stop;
    long number = strtol(after + 1, &stop, 10);
    if (!isdigit((unsigned char)after[1]) || stop != end || number < 1 || number > 65535) return 0;
    port = (int)number;
    after = end;
  }
  if (after != end) return 0;
  if (len == 0) {
    host = "127.0.0.1";
    len = strlen(host);
  }
  snprintf(base, size, "%s://%s%.*s%s:%d", tls ? "https" : "http", is_v6 ? "[" : "", (int)len, host,
           is_v6 ? "]" : "", port);
  return 1;
}

static int read_hosts(crl_etcd_store *s, const corral_uri *uri, corral_error *error) {
  const char *text = uri->hosts != NULL ? uri->hosts : "";
  if (uri->path[0] != '\0' && strcmp(uri->path, "/") != 0)
    return bad_uri(s->host, uri, error, "after the hosts nothing but parameters may follow");
  for (int more = 1; more; s->count++) {
    const char *end = text + strcspn(text, ",");
    more = *end == ',';
    if (s->count == CRL_ETCD_HOSTS) return bad_uri(s->host, uri, error, "more than 32 hosts");
    if (text == end && (more || s->count > 0))
      return bad_uri(s->host, uri, error, "a host is empty");
    if (!read_host(s->bases[s->count], sizeof s->bases[0], s->tls, text, end))
      return bad_uri(s->host, uri, error,
                     "accepted are host, host:port, [address]:port, separated by commas");
    text = end + more;
  }
  snprintf(s->name, sizeof s->name, s->count > 1 ? "etcd %.120s and %zu more" : "etcd %.120s",
           strstr(s->bases[0], "://") + 3, s->count - 1);
  return CORRAL_OK;
}

static char *keep(const char *text, int *ok) {
  char *copy = text != NULL ? strdup(text) : NULL;
  if (text != NULL && copy == NULL) *ok = 0;
  return copy;
}

/* Reads yes or no; *value stays as it is when the parameter isn't given. */
static int read_flag(const crl_etcd_store *s, const corral_uri *uri, const char *name, int *value,
                     corral_error *error) {
  const char *text = s->host->uri_get(uri, name);
  if (text == NULL) return CORRAL_OK;
  *value = strcmp(text, "yes") == 0;
  if (*value || strcmp(text, "no") == 0) return CORRAL_OK;
  return s->host->fail(error, CORRAL_EURI, "store URI '%.100s': %s accepts yes and no", uri->text,
                       name);
}

static int read_uri(crl_etcd_store *s, const corral_uri *uri, corral_error *error) {
  const corral_host *host = s->host;
  int ok = 1;
  const char *prefix = host->uri_get(uri, "prefix");
  int status = read_flag(s, uri, "tls", &s->tls, error);
  if (status == CORRAL_OK)
    status = host->uri_check(uri, "prefix tls tls_ca tls_cert tls_key tls_verify", error);
  if (status == CORRAL_OK) status = read_flag(s, uri, "tls_verify", &s->tls_verify, error);
  if (status == CORRAL_OK) status = read_hosts(s, uri, error);
  if (status != CORRAL_OK) return status;
  if (prefix == NULL) prefix = "corral/";
  if (*prefix == '\0' || strlen(prefix) > CRL_ETCD_PREFIX)
    return bad_uri(host, uri, error, "prefix accepts 1 to 200 bytes");
  snprintf(s->prefix, sizeof s->prefix, "%s", prefix);
  if ((uri->user == NULL) != (uri->password == NULL))
    return bad_uri(host, uri, error, "a user and a password go together: user:password@");
  s->user = keep(uri->user, &ok);
  s->password = keep(uri->password, &ok);
  s->tls_ca = keep(host->uri_get(uri, "tls_ca"), &ok);
  s->tls_cert = keep(host->uri_get(uri, "tls_cert"), &ok);
  s->tls_key = keep(host->uri_get(uri, "tls_key"), &ok);
  if (!ok) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  if (!s->tls && (s->tls_ca != NULL || s->tls_cert != NULL || s->tls_key != NULL || !s->tls_verify))
    return bad_uri(host, uri, error, "tls_ca, tls_cert, tls_key and tls_verify need tls=yes");
  return s->tls_key != NULL && s->tls_cert == NULL
             ? bad_uri(host, uri, error, "tls_key needs tls_cert")
             : CORRAL_OK;
}

/* ---- open, close --------------------------------------------------------------------------- */

static void forget(char *text) {
  if (text != NULL) explicit_bzero(text, strlen(text));
  free(text);
}

static void close_store(void *store) {
  crl_etcd_store *s = store;
  forget(s->user);
  forget(s->password);
  free(s->tls_ca);
  free(s->tls_cert);
  free(s->tls_key);
  pthread_mutex_destroy(&s->mutex);
  free(s);
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static int curl_ready;
static void start_curl(void) { curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; }

static int is_local(const crl_etcd_store *s) {
  const char *host = strstr(s->bases[0], "://") + 3;
  return strncmp(host, "127.", 4) == 0 || strncmp(host, "[::1]", 5) == 0 ||
         strncmp(host, "localhost:", 10) == 0;
}

static int open_store(const corral_host *host, const corral_uri *uri, void **ret_store,
                      corral_store_info *info, corral_error *error) {
  if (host->size < sizeof *host)
    return host->fail(error, CORRAL_EUNSUPPORTED, "the etcd plugin is newer than this corral");
  pthread_once(&curl_once, start_curl);
  if (!curl_ready) return host->fail(error, CORRAL_EIO, "libcurl can't be started");
  crl_etcd_store *s = calloc(1, sizeof *s);
  if (s == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  s->host = host;
  s->tls_verify = 1;
  pthread_mutex_init(&s->mutex, NULL);
  int status = read_uri(s, uri, error);
  if (status != CORRAL_OK) {
    close_store(s);
    return status;
  }
  info->max_key = CRL_ETCD_KEY;
  info->handles = is_local(s) ? 2 : 4;
  info->reach = CORRAL_REACH_FLEET;
  info->locks_only = 1;
  info->adopts = 1;
  info->turns = 1;
  info->name = s->name;
  *ret_store = s;
  return CORRAL_OK;
}

const corral_store crl_plugin_etcd = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .op_size = sizeof(corral_op),
    .name = "etcd",
    .schemes = "etcd",
    .summary = "etcd: locks only: a key under a lease, fenced by the cluster's revision",
    .open = open_store,
    .close = close_store,
    .connect = crl_etcd_connect,
    .disconnect = crl_etcd_disconnect,
    .perform = crl_etcd_perform,
    .watch = crl_etcd_watch,
    .changes = crl_etcd_changes,
    .unwatch = crl_etcd_unwatch,
    .list = crl_etcd_list,
};

CORRAL_PLUGIN(crl_plugin_etcd)
