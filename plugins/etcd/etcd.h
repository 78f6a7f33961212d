/* etcd.h: declarations shared by the files of the etcd plugin.
 *
 *   etcd.c    the table, the URI
 *   handle.c  connecting
 *   wire.c    one request and its reply: libcurl, JSON, base64, the server's refusals
 *   lease.c   leases
 *   key.c     the keys of a lock and of its queue, and what one request reads of them
 *   queue.c   the places of a lock's queue, and their turns
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
#include <pthread.h>
#include <stdatomic.h>

enum { CRL_ETCD_HOSTS = 32, CRL_ETCD_HOST = 255, CRL_ETCD_PREFIX = 200, CRL_ETCD_KEY = 4096 };
/* Bytes of a place's key: "~turn:", the lock's digest and the token in hex, ":" between them. */
#define CRL_ETCD_TURN "~turn:"
enum {
  CRL_ETCD_PLACE = CRL_ETCD_PREFIX + sizeof CRL_ETCD_TURN + 2 * (CORRAL_DIGEST + CORRAL_TOKEN)
};
enum {
  CRL_ETCD_KEY64 = (CRL_ETCD_PREFIX + CRL_ETCD_KEY + 2) / 3 * 4 + 1,
  CRL_ETCD_PLACE64 = (CRL_ETCD_PLACE + 2) / 3 * 4 + 1,
  CRL_ETCD_VALUE = 1022,
  CRL_ETCD_VALUE64 = (CRL_ETCD_VALUE + 2) / 3 * 4 + 1
};
enum {
  CRL_ETCD_BODY = 3 * CRL_ETCD_KEY64 + 8 * CRL_ETCD_PLACE64 + CRL_ETCD_VALUE64 + 2048,
  CRL_ETCD_REPLY = 8 << 20
};

enum { CRL_ETCD_WAITING = 256, CRL_ETCD_LIVES = 64 };

/* A turn as this process has seen it: since when (host->now_ms, 0: not) the lock of this hash has
 * been free with the place that was created at this revision the first of its queue. */
typedef struct crl_etcd_turn {
  uint64_t lock;
  int64_t created, since;
} crl_etcd_turn;

/* When a lease of places was kept alive, host->now_ms. */
typedef struct crl_etcd_life {
  int64_t lease, kept;
} crl_etcd_life;

typedef struct crl_etcd_store {
  const corral_host *host;
  char bases[CRL_ETCD_HOSTS][CRL_ETCD_HOST + 24]; /* "http://host:port" */
  size_t count;
  _Atomic size_t at;   /* index of the host that answered last */
  _Atomic int watches; /* number of open watches */
  /* leases of refused tokens that will ask again, at their number modulo the size; a lease that
   * loses its entry is granted anew */
  _Atomic int64_t waiting[CRL_ETCD_WAITING];
  pthread_mutex_t mutex; /* for what follows, up to the prefix */
  /* at their hashes modulo the size; a turn that loses its entry lasts longer */
  crl_etcd_turn turns[CRL_ETCD_WAITING];
  /* the lease of this process's new places, 0: none; when it was made, host->now_ms */
  int64_t places, places_made;
  /* at their leases modulo the size; a lease that loses its entry is kept alive once more */
  crl_etcd_life lives[CRL_ETCD_LIVES];
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
  /* of the verb under way: number of the token's lease for a hold, hash of the key */
  int64_t lease;
  uint64_t hash;
  uint64_t busy; /* hash of the key that was refused last */
  int contended; /* so many more LOCKs of `busy` look at the key before they write */
  corral_error error;
  /* Base64, of the verb under way: the lock's key; the range of its queue's keys; the key of the
   * token's place there. */
  char key[CRL_ETCD_KEY64];
  char queue[CRL_ETCD_PLACE64], queue_end[CRL_ETCD_PLACE64], place[CRL_ETCD_PLACE64];
  char trouble[CURL_ERROR_SIZE], body[CRL_ETCD_BODY];
} crl_etcd_handle;

/* The lock's key as the store has it. */
typedef struct crl_etcd_key {
  int found, ours; /* `ours`: written by corral and under a lease */
  int64_t created, modified, lease;
  corral_hold told;
} crl_etcd_key;

/* The queue of a lock as the store has it. */
typedef struct crl_etcd_queue {
  size_t places, own;     /* `own`: the token's place; the first is 1; 0: it has none */
  int64_t first, created; /* revisions at which the first place, and the token's, were created */
  int64_t lease;          /* of the token's place */
  char first_key[CRL_ETCD_PLACE64]; /* base64 */
} crl_etcd_queue;

/* Lock and queue as one request found them. */
typedef struct crl_etcd_view {
  int64_t revision; /* the cluster's; 0: nothing was read yet */
  int64_t asked;    /* host->now_ms before the request */
  crl_etcd_key hold;
  crl_etcd_queue queue;
} crl_etcd_view;

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
/* Writes h->body; appends to it. */
__attribute__((format(printf, 2, 3))) void crl_etcd_say(crl_etcd_handle *h, const char *format,
                                                        ...);
__attribute__((format(printf, 2, 3))) void crl_etcd_add(crl_etcd_handle *h, const char *format,
                                                        ...);
/* If the URI has a user, trades its name and password for a token that all later requests carry. */
int crl_etcd_log_in(crl_etcd_handle *h);

/* ---- lease.c ------------------------------------------------------------------------------- */

/* Grants a lease with the number *id; 0: the server chooses one. EBUSY: a lease of this number
 * exists. */
int crl_etcd_grant(crl_etcd_handle *h, int64_t lease_ms, int64_t *id, int64_t *ret_ttl);
/* Tidies up: its outcome changes no answer. */
void crl_etcd_revoke(crl_etcd_handle *h, int64_t id);
/* ELOST: there is no such lease. */
int crl_etcd_keep_alive(crl_etcd_handle *h, int64_t id, int64_t *ret_ttl);
/* Sets *ret_ms to the time until the lease is over at the latest, unless it is kept alive; -1:
 * there is no lease, or it isn't known. */
int crl_etcd_ends_in(crl_etcd_handle *h, int64_t id, int64_t *ret_ms);
/* Keeps a lease of places alive when a third of its life has passed. ELOST: there is none. */
int crl_etcd_keep_place(crl_etcd_handle *h, int64_t id);
/* Sets *ret_id to the lease for a new place of this process. It is made when there is none, or the
 * last one was made CORRAL_LOCK_PLACE_MS ago. `over`: a number of it that the server doesn't know
 * any more; 0: none. */
int crl_etcd_places_lease(crl_etcd_handle *h, int64_t over, int64_t *ret_id);

/* ---- key.c --------------------------------------------------------------------------------- */

/* Sets the handle's names for the verb under way. */
void crl_etcd_set_names(crl_etcd_handle *h, const corral_op *op);
void crl_etcd_set_holder(corral_hold *hold, const corral_op *op, const char *note, size_t len);
/* Writes the value of a hold's key, or a place's, in base64. `hold`: of a new one, or as it was
 * taken over. */
void crl_etcd_make_value(const corral_hold *hold, char to[CRL_ETCD_VALUE64]);
/* Reads the lock's key. */
int crl_etcd_look(crl_etcd_handle *h, crl_etcd_key *ret);
/* Performs the transaction of h->body. *ret_revision: of its change; 0: its comparison failed. */
int crl_etcd_transact(crl_etcd_handle *h, int64_t *ret_revision);
/* The same; if the comparison failed, *ret is the lock's key, which the failure part reads. */
int crl_etcd_change(crl_etcd_handle *h, int64_t *ret_revision, crl_etcd_key *ret);
/* The answer to part `number` of the transaction, as a member of that name; NULL: there is none. */
const cJSON *crl_etcd_answer(const crl_etcd_handle *h, int number, const char *name);
/* Appends to h->body the two parts of a transaction that read lock and queue. */
void crl_etcd_add_view(crl_etcd_handle *h);
/* Performs the transaction of h->body, whose failure part is that of crl_etcd_add_view, as is the
 * end of its success part behind `before` others, -1: it has none. *ret is what was read. */
int crl_etcd_transact_view(crl_etcd_handle *h, int before, int64_t *ret_revision,
                           crl_etcd_view *ret);
/* Reads lock and queue. */
int crl_etcd_see(crl_etcd_handle *h, crl_etcd_view *ret);
/* The same for people: *ret_holds, to be freed, has the holds and places; *ret_count of them. */
int crl_etcd_see_all(crl_etcd_handle *h, crl_etcd_view *ret, corral_hold **ret_holds,
                     size_t *ret_count);

/* ---- queue.c ------------------------------------------------------------------------------- */

/* The number of places before the token's, or before one at the end. */
size_t crl_etcd_ahead(const crl_etcd_queue *queue);
/* Gives the token a place at the end, unless it has one, and reads lock and queue. */
int crl_etcd_join(crl_etcd_handle *h, const corral_op *op, crl_etcd_view *ret);
/* Notes a turn, and returns what is left of it in ms; 0: it is over. */
int64_t crl_etcd_turn_left(crl_etcd_handle *h, const crl_etcd_view *seen);
/* Removes the first place, if it still is as it was seen, and reads lock and queue. */
int crl_etcd_pass_on(crl_etcd_handle *h, crl_etcd_view *seen);
/* Appends to h->body what must hold of the queue so that the token may have the lock; and what is
 * to be done with its places then. At most one place is before the token's: its turn is over. */
void crl_etcd_add_turn(crl_etcd_handle *h, const crl_etcd_view *seen);
void crl_etcd_add_leaving(crl_etcd_handle *h, const crl_etcd_view *seen);

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
