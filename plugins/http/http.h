/* http.h: an origin that is an HTTP server. Internal to plugins/http.
 *
 *   http.c      the origin's table; the thread that moves all transfers
 *   options.c   the origin's URL taken apart: its template and its parameters
 *   url.c       a key's URL and header fields, where a redirect leads
 *   address.c   which addresses may be connected to
 *   transfer.c  one fetch: its requests, and what comes
 *   judge.c     what becomes of the fill */
#ifndef CRL_HTTP_H
#define CRL_HTTP_H

#include <corral/plugin.h>
#include <curl/curl.h>
#include <pthread.h>

#include "../../src/http_rules.h"

enum {
  CRL_HTTP_URL = 8192,      /* longest URL */
  CRL_HTTP_HEAD = 65536,    /* longest header of a response */
  CRL_HTTP_DRAINED = 65536, /* so much of a body nobody wants is read, for the connection's sake */
  CRL_HTTP_NAMES = 512,
  CRL_HTTP_STATUSES = 32,
  CRL_HTTP_NETS = 32,
  CRL_HTTP_HEADERS = 16,
  CRL_HTTP_VALIDATOR = 512,
  CRL_HTTP_REASON = 240
};

/* What failures that have no status of the origin's have for a code. */
enum { CRL_HTTP_NO_ANSWER = 502, CRL_HTTP_TOO_LATE = 504 };

typedef struct crl_http_nets {
  struct {
    uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
    int bits;
  } net[CRL_HTTP_NETS];
  size_t count;
} crl_http_nets;

typedef struct crl_http_statuses {
  int status[CRL_HTTP_STATUSES];
  size_t count;
} crl_http_statuses;

typedef struct crl_http_transfer crl_http_transfer;

typedef struct crl_http_origin {
  const corral_host *host;
  const corral_fill_calls *calls;
  char *text;                 /* the URL as the user wrote it, taken apart */
  const char *before, *after; /* of the template, around the key */
  int is_raw;
  size_t path_at;   /* where the path begins in `before` */
  char server[256]; /* of the template: in lower case */
  int port, is_https;
  char *user, *password; /* of curl_free; NULL: none */
  char *secret;          /* the password, where it stands elsewhere than in the URL; else NULL */
  size_t text_size;
  uint64_t hash; /* of the template and of what shapes values */
  int64_t connect_ms, total_ms, most, connections, redirects, is_included, is_compressed;
  crl_http_statuses kept, negative;
  crl_http_nets allowed, denied;
  /* names of header fields that keys may have, in lower case, separated by spaces */
  char vary[CRL_HTTP_NAMES];
  char alike[CRL_HTTP_NAMES]; /* of those that every request has alike */
  const char *headers[CRL_HTTP_HEADERS];
  size_t header_count;
  const char *ca;
  int is_authorized;

  pthread_mutex_t mutex; /* guards what follows, to `queue` */
  int has_thread, is_closing;
  crl_http_transfer *queue; /* the last one first */
  pthread_t thread;
  CURLM *multi;
  crl_http_transfer *running; /* the thread's */
} crl_http_origin;

struct crl_http_transfer {
  crl_http_origin *origin;
  corral_fill *fill;
  const void *key;
  size_t key_len;
  int64_t deadline;
  crl_http_transfer *next, *previous;

  CURL *easy;
  char *url;
  struct curl_slist *fields; /* those of the key's lines */
  struct curl_slist *sent;   /* all of this request */
  int hops, is_foreign;      /* redirects followed; one led to another server */
  int must_pass;             /* a redirect may not be kept */
  int64_t hop_fresh_ms;      /* the shortest life of a redirect; CRL_HTTP_UNSAID */
  int64_t started_ms, delay_ms;

  /* The validators of the old value, and the lives it was given. */
  char etag[CRL_HTTP_ETAG], last_modified[CRL_HTTP_DATE];
  int64_t old_ttl_ms, old_swr_ms, old_sie_ms;
  int is_asked; /* this request is conditional */

  /* The response. */
  int status, has_head, is_kept, is_too_big, is_enough, is_encoded;
  int is_refused;            /* an address was not allowed */
  int is_in_head, has_field; /* between a status line and the end of its header; it has a field */
  const char *bad_head;      /* why the header is none; NULL: it is one */
  char length[24];           /* Content-Length; "": none */
  size_t head_len, dropped;
  crl_http_rules rules;
  char reason[64], field[32]; /* the status line's text; the name of the last field */
  char *body;
  size_t len, room;
  char address[64], failure[CURL_ERROR_SIZE];
};

/* ---- options.c ----------------------------------------------------------------------------- */

/* *o is zero but for host and calls. CORRAL_OK, or CORRAL_EURI or CORRAL_ENOMEM with a text;
 * crl_http_options_free in any case. */
int crl_http_options(crl_http_origin *o, const char *url, uint64_t max_value, corral_error *error);
void crl_http_options_free(crl_http_origin *o);
int crl_http_has_status(const crl_http_statuses *list, int status);

/* ---- address.c ----------------------------------------------------------------------------- */

/* A list of networks: "10.0.0.0/8,::1,private". Sets *bad to the member that is none, and returns
 * 0. */
int crl_http_nets_read(crl_http_nets *nets, char *list, const char **bad);
/* True when a connection to it is allowed; writes it to `text`. */
int crl_http_may_connect(const crl_http_origin *o, int is_foreign, const struct sockaddr *at,
                         char *text, size_t size);

/* ---- url.c --------------------------------------------------------------------------------- */

/* The URL of t's key and its header fields. NULL, or why there is none. */
const char *crl_http_url_make(crl_http_transfer *t);
/* True when a path (up to its end or "?") has a segment "." or "..", also one that is encoded. */
int crl_http_has_dots(const char *path);
/* Turns t to where its redirect leads; NULL, or why not. */
const char *crl_http_url_follow(crl_http_transfer *t, const char *to);
int crl_http_is_token(const char *text, size_t len);
/* Of a field that this origin sets by itself, or that a cache can't send: "Host" is not among
 * them. */
int crl_http_is_own_field(const char *name, size_t len);

/* ---- transfer.c ---------------------------------------------------------------------------- */

/* Makes and begins the first request; on failure the fill has its end, and 0 is returned. The
 * transfer stays the caller's. */
int crl_http_begin(crl_http_transfer *t);
/* A request of t has ended. True when another one was begun, else its fill has its end. */
int crl_http_ended(crl_http_transfer *t, CURLcode code);
void crl_http_transfer_free(crl_http_transfer *t);
__attribute__((format(printf, 3, 4))) void crl_http_fail(crl_http_transfer *t, int code,
                                                         const char *format, ...);

/* ---- judge.c ------------------------------------------------------------------------------- */

/* Takes the validators from what the store kept of the old value. */
void crl_http_recall(crl_http_transfer *t);
/* A redirect is going to be followed: what it means for the lives of what comes. */
void crl_http_judge_hop(crl_http_transfer *t);
/* The last response has come, in whole: ends the fill. */
void crl_http_judge(crl_http_transfer *t);

#endif
