/* http.h: an origin that is an HTTP server. Internal to plugins/http.
 *
 *   http.c      the origin's table; the thread that moves all transfers
 *   options.c   parses the origin's URL: its template and its parameters
 *   url.c       URL and header fields of a key, and the targets of redirects
 *   address.c   addresses that may be connected to
 *   transfer.c  one fetch: its requests and responses
 *   judge.c     the answer that a response gives to the fill
 *   page.c      the value of page=1: a page */
#ifndef CRL_HTTP_H
#define CRL_HTTP_H

#include <corral/plugin.h>
#include <curl/curl.h>
#include <pthread.h>

#include "../../src/http/rules.h"

enum {
  CRL_HTTP_URL = 8192,      /* longest URL */
  CRL_HTTP_HEAD = 65536,    /* longest header of a response */
  CRL_HTTP_DRAINED = 65536, /* bytes read of an unwanted body, to keep the connection */
  CRL_HTTP_NAMES = 512,
  CRL_HTTP_STATUSES = 32,
  CRL_HTTP_NETS = 32,
  CRL_HTTP_HEADERS = 16,
  CRL_HTTP_LEVELS = 8, /* of path_tags= */
  CRL_HTTP_VALIDATOR = 512,
  CRL_HTTP_REASON = 240
};

/* Codes of failures without a status from the origin: 502: no whole answer; 504: not in time. */
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
  char *text;                 /* copy of the user's URL, cut into parts */
  const char *before, *after; /* the template before and after the key */
  int is_raw, is_uri;         /* {key:raw}; {uri} */
  size_t path_at;             /* offset of the path in `before` */
  char server[256];           /* host of the template, as libcurl gives it */
  int port, is_https;
  char *user, *password; /* to be freed with curl_free; NULL: none */
  char *secret;          /* the password, if it stands elsewhere than in the URL; else NULL */
  size_t text_size;
  uint64_t hash; /* of the template and of the options that shape values */
  int64_t connect_ms, total_ms, most, connections, redirects, is_page, path_tags, is_compressed;
  crl_http_statuses kept, negative;
  crl_http_nets allowed, denied;
  /* names of header fields that keys may have, in lower case, separated by spaces */
  char vary[CRL_HTTP_NAMES];
  char alike[CRL_HTTP_NAMES]; /* names of the fields that are the same in every request */
  /* names of response fields whose words are tags, likewise */
  char tags[CRL_HTTP_NAMES];
  const char *headers[CRL_HTTP_HEADERS];
  size_t header_count;
  const char *ca;
  int is_authorized;

  pthread_mutex_t mutex; /* guards what follows, to `queue` */
  int has_thread, is_closing;
  crl_http_transfer *queue; /* fetches to begin, the newest first */
  pthread_t thread;
  CURLM *multi;
  crl_http_transfer *running; /* transfers under way; the thread's own */
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
  struct curl_slist *fields; /* header fields from the key's lines */
  struct curl_slist *sent;   /* all header fields of this request */
  int hops, is_foreign;      /* redirects followed; 1: one of them led to another server */
  int must_pass;             /* a redirect may not be shared, so the answer isn't either */
  int64_t hop_fresh_ms;      /* shortest life of the redirects; CRL_HTTP_UNSAID: none said one */
  int64_t started_ms, delay_ms;

  /* The validators of the old value, and the lives that it was given. */
  char etag[CRL_HTTP_ETAG], last_modified[CRL_HTTP_DATE];
  int64_t old_ttl_ms, old_swr_ms, old_sie_ms;
  corral_page old_page; /* with page=1, when there is a validator */
  int is_asked;         /* 1: this request is conditional */

  /* The response. */
  int status, has_head, is_kept, is_too_big, is_enough, is_encoded;
  int is_refused;            /* 1: an address was not allowed */
  int is_in_head, has_field; /* between a status line and the end of its header; a field has come */
  const char *bad_head;      /* why the header isn't valid; NULL: it is */
  char length[24];           /* Content-Length; "": none */
  size_t head_len, dropped;
  crl_http_rules rules;
  char reason[64], field[32]; /* text of the status line; name of the last field */
  /* with page=1: names of fields that Connection names, in lower case, separated by spaces */
  char named[CRL_HTTP_NAMES];
  char *body; /* with page=1, behind the header's lines, which end at body_at */
  size_t len, room, body_at;
  char address[64], failure[CURL_ERROR_SIZE];
};

/* ---- options.c ----------------------------------------------------------------------------- */

/* Parses the URL into *o, which is zero but for host and calls. CORRAL_OK, or CORRAL_EURI or
 * CORRAL_ENOMEM with a text; *o is to be given to crl_http_options_free in any case. */
int crl_http_options(crl_http_origin *o, const char *url, uint64_t max_value, corral_error *error);
void crl_http_options_free(crl_http_origin *o);
int crl_http_has_status(const crl_http_statuses *list, int status);

/* ---- address.c ----------------------------------------------------------------------------- */

/* Reads a list of networks: "10.0.0.0/8,::1,private"; changes `list`. 0: *bad is the member that
 * isn't one. */
int crl_http_nets_read(crl_http_nets *nets, char *list, const char **bad);
/* 1: a connection to `at` is allowed. Writes the address to `text`. */
int crl_http_may_connect(const crl_http_origin *o, int is_foreign, const struct sockaddr *at,
                         char *text, size_t size);

/* ---- url.c --------------------------------------------------------------------------------- */

/* Makes t's URL and header fields from its key. NULL, or why there is none. */
const char *crl_http_url_make(crl_http_transfer *t);
/* 1: a path (up to its end or "?") has a segment "." or "..", encoded ones included. */
int crl_http_has_dots(const char *path);
/* Points t at the target of its redirect; NULL, or why not. */
const char *crl_http_url_follow(crl_http_transfer *t, const char *to);
int crl_http_is_token(const char *text, size_t len);
/* 1: the header field is set by this origin itself, or can't be sent by a cache. "Host" isn't among
 * them. */
int crl_http_is_own_field(const char *name, size_t len);

/* ---- transfer.c ---------------------------------------------------------------------------- */

/* Makes and begins the first request; 0: it failed, and the fill has ended. The transfer stays the
 * caller's. */
int crl_http_begin(crl_http_transfer *t);
/* To be called when a request of t has ended. 1: another one was begun; 0: the fill has ended. */
int crl_http_ended(crl_http_transfer *t, CURLcode code);
void crl_http_transfer_free(crl_http_transfer *t);

/* ---- page.c -------------------------------------------------------------------------------- */

/* The lives of an answer, as the fill gets them; below zero: none, 0: the policy's. */
typedef struct crl_http_lives {
  int64_t ttl, swr, sie;
} crl_http_lives;
/* Fills with the page of the response, or, for a 304, with the old page renewed. CORRAL_OK; or a
 * status of the fill's, of which CORRAL_EINVAL stands for a header that no page can have. A page
 * with more tags than there may be is passed; one with X-Accel-Redirect gets no lives. */
int crl_http_page_fill(crl_http_transfer *t, crl_http_lives *lives);
/* Adds the names that a Connection field has; 0: there is no room. */
int crl_http_page_connection(crl_http_transfer *t, const char *value, size_t len);

/* ---- judge.c ------------------------------------------------------------------------------- */

/* Reads the validators that the store has beside the old value. */
void crl_http_recall(crl_http_transfer *t);
/* To be called before a redirect is followed: notes its effect on the lives of the answer. */
void crl_http_judge_hop(crl_http_transfer *t);
/* To be called when the last response has come in full: ends the fill. */
void crl_http_judge(crl_http_transfer *t);
/* Ends the fill with a failure. */
__attribute__((format(printf, 3, 4))) void crl_http_fail(crl_http_transfer *t, int code,
                                                         const char *format, ...);

#endif
