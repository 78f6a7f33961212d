/* redis.c: Redis as a store: the URI.
 *
 *   redis://[user:password@]host[:port][/db]
 *   rediss://...   the same with TLS
 *   redis+unix://[user:password@]/path/of/socket?db=N
 *   redlock://...: see redlock.c; redis+cluster://...: see cluster.c; redis+sentinel://...: see
 *   sentinel.c
 *
 * Defaults: 127.0.0.1, 6379, db 0. A password alone (redis://:password@host) is the default user's.
 * Parameters: db; client_name ("corral"); with rediss also tls_ca (a PEM file; else the system's
 * certificates), tls_cert and tls_key (the client's own, where the server wants one), tls_name
 * (name that the certificate must have; else the host), tls_verify=no (takes any certificate: for
 * experiments only; chain and name are verified otherwise).
 *
 * For locks: scripts=no (locks don't use scripts, see lock_exec.c), yes (they use nothing else),
 * auto (the default: scripts until the server refuses one); wait_replicas (1 to 100: number of
 * replicas that must confirm a lock; default none), confirm_replicas (the same for an invalidation)
 * and wait_ms (time limit for that; 100ms; to be well below the limit of an operation), see
 * confirm.c.
 *
 * Redis 5 or later, or a server that speaks like it; from Redis 7 on a key that isn't there is
 * claimed without a script. A user (ACL) needs: get set pttl getrange setrange pexpire rename
 * unlink time eval evalsha (from Redis 7 on pexpiretime will do for time), select for a db,
 * client|setname for the connection's name, info for a warning (greet.c), and for a watch (watch.c;
 * Redis 6 or later) client|tracking and getrange.
 * Locks need get set pttl pexpire time eval evalsha, or, without scripts, watch unwatch multi exec
 * discard in place of the last two; wait for wait_replicas; and scan to be listed. A handle belongs
 * to one thread at a time. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "redis.h"

/* ---- the URI ------------------------------------------------------------------------------- */

static int bad_uri(const corral_host *host, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

/* A copy of `text`, or of `otherwise` if that is NULL, or NULL. *ok = 0: no memory. */
static char *keep(const char *text, const char *otherwise, int *ok) {
  if (text == NULL) text = otherwise;
  if (text == NULL) return NULL;
  char *copy = strdup(text);
  if (copy == NULL) *ok = 0;
  return copy;
}

static int is_cluster(const corral_uri *uri) { return strstr(uri->scheme, "+cluster") != NULL; }
static int is_sentinel(const corral_uri *uri) { return strstr(uri->scheme, "+sentinel") != NULL; }

static int read_db(crl_redis_store *s, const corral_uri *uri, corral_error *error) {
  const char *path = uri->path;
  int is_apart = strcmp(uri->scheme, "redis+unix") == 0 || is_sentinel(uri);
  int status = s->host->uri_number(uri, "db", "", 0, INT_MAX, &s->db, error);
  if (status != CORRAL_OK || is_apart || *path == '\0' || strcmp(path, "/") == 0) return status;
  char *end;
  errno = 0;
  long db = strtol(path + 1, &end, 10);
  if (is_cluster(uri))
    return bad_uri(s->host, uri, error, "a cluster has database 0 only: nothing may follow");
  if (*path != '/' || !isdigit((unsigned char)path[1]) || *end != '\0' || errno != 0 ||
      db > INT_MAX)
    return bad_uri(s->host, uri, error, "after the host only /DB may follow, a number");
  if (s->host->uri_get(uri, "db") != NULL)
    return bad_uri(s->host, uri, error, "the db is given twice");
  s->db = db;
  return CORRAL_OK;
}

static int read_place(crl_redis_store *s, const corral_uri *uri, corral_error *error) {
  int ok = 1;
  if (strcmp(uri->scheme, "redis+unix") == 0) {
    struct sockaddr_un at;
    if (uri->hosts == NULL || uri->host[0] != '\0' || uri->path[0] != '/' || uri->path[1] == '\0')
      return bad_uri(s->host, uri, error, "accepted is redis+unix:///PATH/OF/SOCKET?db=N");
    if (strlen(uri->path) >= sizeof at.sun_path)
      return bad_uri(s->host, uri, error, "the path of a unix socket has 107 bytes at most");
    s->path = keep(uri->path, NULL, &ok);
    snprintf(s->name, sizeof s->name, "redis %s", uri->path);
  } else {
    if (uri->hosts != NULL && strchr(uri->hosts, ',') != NULL)
      return bad_uri(s->host, uri, error,
                     "one host only; the nodes of a cluster go with redis+cluster://");
    s->server = keep(uri->host[0] != '\0' ? uri->host : "127.0.0.1", NULL, &ok);
    s->port = uri->port != 0 ? uri->port : 6379;
    const char *server = uri->host[0] != '\0' ? uri->host : "127.0.0.1";
    snprintf(s->name, sizeof s->name,
             strchr(server, ':') != NULL ? "redis [%.120s]:%d" : "redis %.120s:%d", server,
             s->port);
  }
  return ok ? CORRAL_OK : s->host->fail(error, CORRAL_ENOMEM, "no memory for a store");
}

/* A parameter: of the servers, or ("sentinel_") of the sentinels. */
static const char *param(const crl_redis_store *s, const corral_uri *uri, const char *name) {
  char full[32];
  snprintf(full, sizeof full, "%s%s", s->kind == CRL_REDIS_SENTINEL ? "sentinel_" : "", name);
  return s->host->uri_get(uri, full);
}

static int read_tls(crl_redis_store *s, const crl_redis_store *otherwise, const corral_uri *uri,
                    corral_error *error) {
  const corral_host *host = s->host;
  const char *verify = param(s, uri, "tls_verify"), *cert = param(s, uri, "tls_cert"),
             *key = param(s, uri, "tls_key");
  int ok = 1;
  s->tls_verify = otherwise->tls_verify || !otherwise->tls;
  if (!s->tls) return CORRAL_OK;
  if (verify != NULL && strcmp(verify, "no") != 0 && strcmp(verify, "yes") != 0)
    return bad_uri(host, uri, error, "tls_verify accepts yes (the default) and no");
  if (verify != NULL) s->tls_verify = *verify == 'y';
  if (key != NULL && cert == NULL) return bad_uri(host, uri, error, "tls_key needs tls_cert");
  s->tls_ca = keep(param(s, uri, "tls_ca"), otherwise->tls_ca, &ok);
  s->tls_cert = keep(cert, otherwise->tls_cert, &ok);
  s->tls_key = keep(key, cert == NULL ? otherwise->tls_key : NULL, &ok);
  s->tls_name = keep(param(s, uri, "tls_name"), s->server, &ok);
  return ok ? CORRAL_OK : host->fail(error, CORRAL_ENOMEM, "no memory for a store");
}

static int read_client(crl_redis_store *s, const corral_uri *uri, corral_error *error) {
  int ok = 1;
  s->user = keep(uri->user, NULL, &ok);
  s->password = keep(uri->password, NULL, &ok);
  s->client_name = keep(s->host->uri_get(uri, "client_name"), "corral", &ok);
  if (!ok) return s->host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  if (s->user != NULL && s->password == NULL)
    return bad_uri(s->host, uri, error,
                   "a user without a password; accepted: user:password@, :password@ or neither");
  for (const char *at = s->client_name; *at != '\0'; at++)
    if (*at < '!' || *at > '~')
      return bad_uri(s->host, uri, error, "client_name has printable letters only, no space");
  return CORRAL_OK;
}

static int read_locks(crl_redis_store *s, const corral_uri *uri, corral_error *error) {
  const char *scripts = s->host->uri_get(uri, "scripts");
  s->wait_ms = 100;
  if (scripts != NULL && strcmp(scripts, "no") == 0)
    s->scriptless = s->no_scripts = 1;
  else if (scripts != NULL && strcmp(scripts, "yes") == 0)
    s->scripts_only = 1;
  else if (scripts != NULL && strcmp(scripts, "auto") != 0)
    return bad_uri(s->host, uri, error, "scripts accepts auto (the default), yes and no");
  int status = s->host->uri_number(uri, "wait_replicas", "", 1, 100, &s->wait_replicas, error);
  if (status == CORRAL_OK)
    status = s->host->uri_number(uri, "confirm_replicas", "", 1, 100, &s->confirm_replicas, error);
  if (status == CORRAL_OK && s->host->uri_get(uri, "wait_ms") != NULL && s->wait_replicas == 0 &&
      s->confirm_replicas == 0)
    return bad_uri(s->host, uri, error, "wait_ms needs wait_replicas or confirm_replicas");
  return status == CORRAL_OK
             ? s->host->uri_number(uri, "wait_ms", "ms", 1, 10000, &s->wait_ms, error)
             : status;
}

/* ---- open, close --------------------------------------------------------------------------- */

/* Wipes and frees a text that may be a secret. */
static void forget(char *text) {
  if (text != NULL) explicit_bzero(text, strlen(text));
  free(text);
}

void crl_redis_close(void *store) {
  crl_redis_store *s = store;
  crl_redis_tls_free(s);
  pthread_mutex_destroy(&s->mutex);
  free(s->server);
  free(s->path);
  forget(s->user);
  forget(s->password);
  free(s->client_name);
  free(s->tls_ca);
  free(s->tls_cert);
  free(s->tls_key);
  free(s->tls_name);
  free(s);
}

/* The parameters of a URI. */
static const char *names_for(const corral_uri *uri) {
  int is_tls = strncmp(uri->scheme, "rediss", 6) == 0;
#define LOCKS "client_name scripts wait_replicas wait_ms confirm_replicas"
#define TLS " tls_ca tls_cert tls_key tls_verify tls_name"
#define SENTINELS                                                                                  \
  " sentinel_user sentinel_password sentinel_tls sentinel_tls_ca sentinel_tls_cert"                \
  " sentinel_tls_key sentinel_tls_verify sentinel_tls_name"
  if (is_cluster(uri)) return is_tls ? LOCKS TLS : LOCKS;
  if (is_sentinel(uri)) return is_tls ? LOCKS TLS SENTINELS : LOCKS SENTINELS;
  return is_tls ? "db " LOCKS TLS : "db " LOCKS;
#undef LOCKS
#undef TLS
#undef SENTINELS
}

int crl_redis_store_begin(crl_redis_store *s, const corral_host *host, const corral_uri *uri,
                          corral_error *error) {
  static const crl_redis_store nothing = {.tls = 0};
  s->host = host;
  s->base = s;
  pthread_mutex_init(&s->mutex, NULL);
  if (host->size < sizeof *host)
    return host->fail(error, CORRAL_EUNSUPPORTED, "the redis plugin is newer than this corral");
  int status = host->uri_check(uri, names_for(uri), error);
  if (status == CORRAL_OK) status = read_db(s, uri, error);
  if (status == CORRAL_OK && !is_cluster(uri) && !is_sentinel(uri))
    status = read_place(s, uri, error);
  s->tls = strncmp(uri->scheme, "rediss", 6) == 0;
  if (status == CORRAL_OK) status = read_tls(s, &nothing, uri, error);
  if (status == CORRAL_OK) status = read_client(s, uri, error);
  return status == CORRAL_OK ? read_locks(s, uri, error) : status;
}

int crl_redis_store_begin_sentinels(crl_redis_store *s, const crl_redis_store *servers,
                                    const corral_uri *uri, corral_error *error) {
  const corral_host *host = s->host = servers->host;
  const char *tls = host->uri_get(uri, "sentinel_tls");
  int ok = 1;
  s->base = s;
  s->kind = CRL_REDIS_SENTINEL;
  pthread_mutex_init(&s->mutex, NULL);
  if (tls != NULL && strcmp(tls, "yes") != 0 && strcmp(tls, "no") != 0)
    return bad_uri(host, uri, error, "sentinel_tls accepts yes and no");
  s->tls = tls != NULL ? *tls == 'y' : servers->tls;
  for (size_t i = 0; i < uri->param_count && !s->tls; i++)
    if (strncmp(uri->params[i].name, "sentinel_tls_", 13) == 0)
      return bad_uri(host, uri, error, "sentinel_tls_... needs sentinel_tls=yes");
  s->user = keep(host->uri_get(uri, "sentinel_user"), NULL, &ok);
  s->password = keep(host->uri_get(uri, "sentinel_password"), NULL, &ok);
  s->client_name = keep(servers->client_name, NULL, &ok);
  if (!ok) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  if (s->user != NULL && s->password == NULL)
    return bad_uri(host, uri, error, "sentinel_user needs sentinel_password");
  return read_tls(s, servers, uri, error);
}

int crl_redis_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                   corral_store_info *info, corral_error *error) {
  crl_redis_store *s = calloc(1, sizeof *s);
  if (s == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  int status = crl_redis_store_begin(s, host, uri, error);
  if (status != CORRAL_OK) {
    crl_redis_close(s);
    return status;
  }
  s->peer = (crl_net_peer){.host = host,
                           .name = s->name,
                           .server = s->path != NULL ? s->path : s->server,
                           .port = s->port};
  info->max_key = 65536;
  info->max_record = CRL_REDIS_LARGEST;
  info->handles = 4; /* measured by bench/threads.c: more makes smaller batches */
  info->name = s->name;
  info->confirms = s->confirm_replicas > 0;
  info->permits = 1;
  info->turns = 1;
  info->adopts = 1;
  *ret_store = s;
  return CORRAL_OK;
}
