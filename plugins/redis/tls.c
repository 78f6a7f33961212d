/* tls.c: TLS over the plugin's socket. The only file that knows OpenSSL.
 *
 * OpenSSL's own socket BIO calls write(2), which raises SIGPIPE on a closed connection; so this
 * file gives it a BIO that sends with MSG_NOSIGNAL. Chain and host name are verified unless the URI
 * says tls_verify=no. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include "redis.h"

/* ---- the BIO ------------------------------------------------------------------------------- */

static crl_redis_wire *bio_wire(BIO *bio) { return BIO_get_data(bio); }

static int bio_write(BIO *bio, const char *data, int size) {
  BIO_clear_retry_flags(bio);
  ssize_t n;
  do n = send(bio_wire(bio)->fd, data, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
  return (int)n;
}

static int bio_read(BIO *bio, char *buffer, int size) {
  BIO_clear_retry_flags(bio);
  ssize_t n = crl_redis_socket_recv(bio_wire(bio), buffer, (size_t)size, 0);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
  return (int)n;
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
  (void)bio, (void)number, (void)pointer;
  return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_method(void) {
  BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "corral");
  if (method == NULL) return NULL;
  BIO_meth_set_write(method, bio_write);
  BIO_meth_set_read(method, bio_read);
  BIO_meth_set_ctrl(method, bio_control);
  return method;
}

/* ---- the context: made once per store or cluster, as reading certificates takes ms ---------- */

static int refuse(const crl_redis_store *store, corral_error *error, const char *what,
                  const char *file) {
  const char *why = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return store->host->fail(error, CORRAL_EIO, "%s: %s '%.80s': %.60s", store->name, what, file,
                           why != NULL ? why : "unknown reason");
}

static int load_files(const crl_redis_store *store, SSL_CTX *context, corral_error *error) {
  const char *cert = store->tls_cert,
             *key = store->tls_key != NULL ? store->tls_key : store->tls_cert;
  if (store->tls_ca != NULL && SSL_CTX_load_verify_file(context, store->tls_ca) != 1)
    return refuse(store, error, "can't use tls_ca", store->tls_ca);
  if (store->tls_ca == NULL && SSL_CTX_set_default_verify_paths(context) != 1)
    return refuse(store, error, "can't use", "the system's certificates");
  if (cert == NULL) return CORRAL_OK;
  if (SSL_CTX_use_certificate_chain_file(context, cert) != 1)
    return refuse(store, error, "can't use tls_cert", cert);
  if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
    return refuse(store, error, "can't use tls_key", key);
  return CORRAL_OK;
}

static int make_context(crl_redis_store *store, corral_error *error) {
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  store->tls_method = store->tls_method != NULL ? store->tls_method : make_method();
  if (context == NULL || store->tls_method == NULL) {
    SSL_CTX_free(context);
    ERR_clear_error();
    return store->host->fail(error, CORRAL_ENOMEM, "%s: no memory for TLS", store->name);
  }
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_verify(context, store->tls_verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
  int status = load_files(store, context, error);
  if (status == CORRAL_OK)
    store->tls_context = context;
  else
    SSL_CTX_free(context);
  return status;
}

static int get_context(crl_redis_store *store, corral_error *error) {
  int status = CORRAL_OK;
  store = store->base;
  pthread_mutex_lock(&store->mutex);
  if (store->tls_context == NULL) status = make_context(store, error);
  pthread_mutex_unlock(&store->mutex);
  return status;
}

void crl_redis_tls_free(crl_redis_store *store) {
  SSL_CTX_free(store->tls_context);
  BIO_meth_free(store->tls_method);
}

/* ---- a connection -------------------------------------------------------------------------- */

/* Sets the name that the certificate must have. An address is no host name, and isn't sent as one
 * (SNI). */
static int name_peer(SSL *ssl, const char *name) {
  ASN1_OCTET_STRING *address = a2i_IPADDRESS(name);
  if (address != NULL) {
    ASN1_OCTET_STRING_free(address);
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
  }
  ERR_clear_error();
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

int crl_redis_tls_attach(crl_redis_wire *wire, corral_error *error) {
  crl_redis_store *store = wire->store;
  int status = get_context(store, error);
  if (status != CORRAL_OK) return status;
  SSL *ssl = SSL_new(store->base->tls_context);
  BIO *bio = BIO_new(store->base->tls_method);
  if (ssl == NULL || bio == NULL || !name_peer(ssl, store->tls_name)) {
    SSL_free(ssl);
    BIO_free(bio);
    ERR_clear_error();
    return store->host->fail(error, CORRAL_ENOMEM, "%s: no memory for TLS", store->name);
  }
  BIO_set_data(bio, wire);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  SSL_set_connect_state(ssl);
  wire->ssl = ssl;
  return CORRAL_OK;
}

/* Sends no close_notify: Redis doesn't need it, and nothing here may wait. */
void crl_redis_tls_detach(crl_redis_wire *wire) {
  SSL_free(wire->ssl);
  wire->ssl = NULL;
  ERR_clear_error();
}

static ssize_t outcome(const crl_redis_wire *wire, int n, short *want) {
  *want = 0;
  if (n > 0) return n;
  switch (SSL_get_error(wire->ssl, n)) {
    case SSL_ERROR_WANT_READ: *want = POLLIN; return -1;
    case SSL_ERROR_WANT_WRITE: *want = POLLOUT; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: return -1;
  }
}

static int as_int(size_t size) { return size > 1 << 30 ? 1 << 30 : (int)size; }

int crl_redis_tls_handshake(crl_redis_wire *wire, short *want) {
  ERR_clear_error();
  errno = 0;
  return (int)outcome(wire, SSL_do_handshake(wire->ssl), want);
}

ssize_t crl_redis_tls_read(crl_redis_wire *wire, void *buffer, size_t size, int peek, short *want) {
  ERR_clear_error();
  errno = 0;
  int n =
      peek ? SSL_peek(wire->ssl, buffer, as_int(size)) : SSL_read(wire->ssl, buffer, as_int(size));
  return outcome(wire, n, want);
}

ssize_t crl_redis_tls_write(crl_redis_wire *wire, const void *data, size_t size, short *want) {
  ERR_clear_error();
  errno = 0;
  return outcome(wire, SSL_write(wire->ssl, data, as_int(size)), want);
}

void crl_redis_tls_explain(crl_redis_wire *wire, char *text, size_t size) {
  int code = errno;
  long verified = SSL_get_verify_result(wire->ssl);
  unsigned long reason = ERR_peek_error();
  const char *why = ERR_reason_error_string(reason);
  if (verified != X509_V_OK && wire->store->tls_verify)
    snprintf(text, size,
             "the server's certificate is refused: %.60s (wanted: '%.60s'; see tls_ca, tls_name)",
             X509_verify_cert_error_string(verified), wire->store->tls_name);
  else if (reason != 0)
    snprintf(text, size, "%.120s", why != NULL ? why : "unknown reason");
  else if (code == 0)
    snprintf(text, size, "the server closed the connection");
  else
    snprintf(text, size, "%.120s", strerror(code));
  ERR_clear_error();
}
