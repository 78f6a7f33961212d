/* etcd.h: the etcd plugin's inside.
 *
 *   etcd.c    the table, the URI, connecting
 *   wire.c    one request and its reply: libcurl, JSON, base64, what the server's refusals mean
 *   locks.c   what each verb asks
 *   watch.c   tells which locks were released
 *
 * Functions return CORRAL_OK or a negative status and leave its text in handle->error. */
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
  _Atomic size_t at;   /* the one that answered last */
  _Atomic int watches; /* how many are open */
  /* leases of tokens that were refused and will ask again, by their number; a lost one is granted
   * anew */
  _Atomic int64_t waiting[CRL_ETCD_WAITING];
  char prefix[CRL_ETCD_PREFIX + 1], name[160];
  char *user, *password, *tls_ca, *tls_cert, *tls_key;
  int tls, tls_verify;
} crl_etcd_store;

/* What was received. */
typedef struct crl_etcd_text {
  char *bytes;
  size_t len, room;
} crl_etcd_text;

typedef struct crl_etcd_handle {
  crl_etcd_store *store;
  CURL *easy;
  struct curl_slist *headers;
  size_t at;
  int64_t deadline; /* of the call under way */
  const char *out;  /* what is to be sent, and how much of it was */
  size_t out_len, out_used;
  int sent;   /* the server may have it */
  int stale;  /* the server doesn't know our login any more */
  int broken; /* a status: the handle is of no more use */
  crl_etcd_text in;
  cJSON *reply;
  int64_t lease; /* of the verb under way: the number of this token's lease */
  uint64_t busy; /* hash of the key that was refused last */
  int contended; /* so many times more a look at it goes before the writes; 0: it doesn't */
  corral_error error;
  char trouble[CURL_ERROR_SIZE], key[CRL_ETCD_KEY64], body[CRL_ETCD_BODY]; /* key: base64 */
} crl_etcd_handle;

/* ---- wire.c -------------------------------------------------------------------------------- */

/* `to` has room for (size + 2) / 3 * 4 + 1. */
void crl_etcd_base64(const uint8_t *bytes, size_t size, char *to);
/* How many bytes these are; SIZE_MAX when they are more than `room`, or not base64. */
size_t crl_etcd_base64_read(const char *text, uint8_t *to, size_t room);
/* An int64 of the gateway, which is text; what is absent is 0. False when it is something else. */
int crl_etcd_number(const cJSON *object, const char *name, int64_t *ret);
/* A text's or a part; NULL when there is none. */
const char *crl_etcd_words(const cJSON *object, const char *name);
const cJSON *crl_etcd_part(const cJSON *object, const char *name);
/* A write callback of libcurl; `arg` is a crl_etcd_text. */
size_t crl_etcd_take(char *bytes, size_t one, size_t count, void *arg);
/* What all transfers of a store have in common: not what is sent and received. NULL without
 * memory. */
CURL *crl_etcd_transfer(const crl_etcd_store *s);
/* h->easy and its headers. */
int crl_etcd_easy(crl_etcd_handle *h);
/* The next transfer of h->easy; `body` is borrowed, NULL for a GET. Limits in ms. */
void crl_etcd_prepare(crl_etcd_handle *h, const char *path, const char *body, int64_t limit,
                      int64_t connect_limit);
int crl_etcd_fail(crl_etcd_handle *h, int status, const char *what, const char *why);
/* The reply is none that etcd gives, and the handle of no more use; CORRAL_EUNKNOWN, for so is what
 * became of the request. */
int crl_etcd_strange(crl_etcd_handle *h, const char *what);
/* One request, by h->deadline; its reply is h->reply. CORRAL_EBUSY: there is a lease of that
 * number; CORRAL_ELOST: there is none. A request that can't be sent goes to the next member. */
int crl_etcd_once(crl_etcd_handle *h, const char *path, const char *body);
/* The same with h->body; a login that the server has forgotten is made again, once. */
int crl_etcd_call(crl_etcd_handle *h, const char *path);
__attribute__((format(printf, 2, 3))) void crl_etcd_say(crl_etcd_handle *h, const char *format,
                                                        ...);
/* Where the URI has a user: its name and password for a token, which goes with every request from
 * then on. */
int crl_etcd_log_in(crl_etcd_handle *h);

/* ---- the others ---------------------------------------------------------------------------- */

int crl_etcd_connect(void *store, int64_t deadline, void **ret_handle, corral_error *error);
void crl_etcd_disconnect(void *handle);
int crl_etcd_perform(void *handle, corral_op *ops, size_t count, int64_t deadline,
                     corral_error *error);
int crl_etcd_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                   corral_error *error);
int crl_etcd_changes(void *watch, int stop_fd, int64_t until,
                     void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error);
void crl_etcd_unwatch(void *watch);

#endif
