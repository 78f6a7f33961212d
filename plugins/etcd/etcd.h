/* etcd.h: declarations shared by the files of the etcd plugin.
 *
 *   etcd.c    the table, the URI, connecting
 *   wire.c    one request and its reply: libcurl, JSON, base64, the server's refusals
 *   locks.c   the lock verbs
 *   watch.c   reports released locks
 *   list.c    lists the locks that are held
 *
 * Functions return CORRAL_OK or a negative status, and leave its text in handle->error. */
#ifndef CRL_ETCD_H
#define CRL_ETCD_H

#include <cJSON.h>
#include <corral/plugin.h>
#include <curl/curl.h>
#include <stdatomic.h>

enum { CRL_ETCD_HOSTS = 32, CRL_ETCD_HOST = 255, CRL_ETCD_PREFIX = 200, CRL_ETCD_KEY = 4096 };
enum {
  CRL_ETCD_KEY64 = (CRL_ETCD_PREFIX + CRL_ETCD_KEY + 2) / 3 * 4 + 1,
  CRL_ETCD_VALUE = 1022,
  CRL_ETCD_VALUE64 = (CRL_ETCD_VALUE + 2) / 3 * 4 + 1
};
enum { CRL_ETCD_BODY = 3 * CRL_ETCD_KEY64 + CRL_ETCD_VALUE64 + 1024, CRL_ETCD_REPLY = 8 << 20 };

enum { CRL_ETCD_WAITING = 256 };

typedef struct crl_etcd_store {
  const corral_host *host;
  char bases[CRL_ETCD_HOSTS][CRL_ETCD_HOST + 24]; /* "http://host:port" */
  size_t count;
  _Atomic size_t at;   /* index of the host that answered last */
  _Atomic int watches; /* number of open watches */
  /* leases of refused tokens that will ask again, at their number modulo the size; a lease that
   * loses its entry is granted anew */
  _Atomic int64_t waiting[CRL_ETCD_WAITING];
  char prefix[CRL_ETCD_PREFIX + 1], name[160];
  char *user, *password, *tls_ca, *tls_cert, *tls_key;
  int tls, tls_verify;
} crl_etcd_store;

/* Received bytes. */
typedef struct crl_etcd_text {
  char *bytes;
  size_t len, room;
} crl_etcd_text;

typedef struct crl_etcd_handle {
  crl_etcd_store *store;
  CURL *easy;
  struct curl_slist *headers;
  size_t at;
  int64_t deadline; /* deadline of the call under way */
  const char *out;  /* request body, borrowed; `out_used` bytes of it were sent */
  size_t out_len, out_used;
  int sent;   /* the server may have received the request */
  int stale;  /* the server no longer knows the login token */
  int broken; /* status after which the handle can't be used; CORRAL_OK: it can */
  crl_etcd_text in;
  cJSON *reply;
  int64_t lease; /* of the verb under way: number of the token's lease */
  uint64_t busy; /* hash of the key that was refused last */
  int contended; /* so many more LOCKs of `busy` look at the key before they write */
  corral_error error;
  char trouble[CURL_ERROR_SIZE], key[CRL_ETCD_KEY64], body[CRL_ETCD_BODY]; /* `key` is base64 */
} crl_etcd_handle;

/* ---- wire.c -------------------------------------------------------------------------------- */

/* `to` has room for (size + 2) / 3 * 4 + 1 bytes. */
void crl_etcd_base64(const uint8_t *bytes, size_t size, char *to);
/* Decodes base64 and returns the number of bytes; SIZE_MAX: more than `room`, or not base64. */
size_t crl_etcd_base64_read(const char *text, uint8_t *to, size_t room);
/* Reads an int64, which the gateway writes as text; 0 when it is absent. Returns 0 when it is
 * something else. */
int crl_etcd_number(const cJSON *object, const char *name, int64_t *ret);
/* A member of an object as text, or as it is; NULL when there is none. */
const char *crl_etcd_words(const cJSON *object, const char *name);
const cJSON *crl_etcd_part(const cJSON *object, const char *name);
/* Write callback of libcurl; `arg` is a crl_etcd_text. */
size_t crl_etcd_take(char *bytes, size_t one, size_t count, void *arg);
/* A new transfer with the options that all transfers of a store have in common. NULL without
 * memory. */
CURL *crl_etcd_transfer(const crl_etcd_store *s);
/* Makes h->easy and its headers. */
int crl_etcd_easy(crl_etcd_handle *h);
/* Wipes and frees the headers: the login token is among them. */
void crl_etcd_forget_headers(crl_etcd_handle *h);
/* Prepares the next transfer of h->easy; `body` is borrowed, NULL for a GET. Limits in ms. */
void crl_etcd_prepare(crl_etcd_handle *h, const char *path, const char *body, int64_t limit,
                      int64_t connect_limit);
/* Sets h->error to status and "name: what: why"; returns `status`. */
int crl_etcd_fail(crl_etcd_handle *h, int status, const char *what, const char *why);
/* Marks the handle as broken, because etcd gives no such reply. Returns CORRAL_EINDOUBT, since the
 * request's fate is unknown. */
int crl_etcd_strange(crl_etcd_handle *h, const char *what);
/* Sends one request and reads h->reply, by h->deadline. CORRAL_EBUSY: a lease of that number
 * exists; CORRAL_ELOST: none does. A request that can't be sent goes to the next member. */
int crl_etcd_once(crl_etcd_handle *h, const char *path, const char *body);
/* crl_etcd_once with h->body; logs in again, once, if the server has forgotten the login. */
int crl_etcd_call(crl_etcd_handle *h, const char *path);
/* Writes h->body. */
__attribute__((format(printf, 2, 3))) void crl_etcd_say(crl_etcd_handle *h, const char *format,
                                                        ...);
/* If the URI has a user, trades its name and password for a token that all later requests carry. */
int crl_etcd_log_in(crl_etcd_handle *h);

/* ---- handle.c, locks.c, watch.c, list.c ------------------------------------------------------ */

int crl_etcd_connect(void *store, int64_t deadline, void **ret_handle, corral_error *error);
void crl_etcd_disconnect(void *handle);
int crl_etcd_perform(void *handle, const corral_batch *batch, int64_t deadline,
                     corral_error *error);
int crl_etcd_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                   corral_error *error);
int crl_etcd_changes(void *watch, int stop_fd, int64_t until,
                     void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error);
void crl_etcd_unwatch(void *watch);
int crl_etcd_list(void *store, const corral_listing *listing, corral_error *error);

#endif
