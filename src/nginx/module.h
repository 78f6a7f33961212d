/* module.h: shared by the files of the nginx module.
 *
 * handler.c takes a request of a location with `corral NAME` in the precontent phase. A copy in the
 * worker answers at once; else the request begins a call of the zone's corral_loop and is
 * suspended, until a callback resumes it: with a record (reply.c), with a status page, or on its
 * own way: to the location's content handler, as if corral weren't there. A request that is told to
 * compute runs the location's handler once more as a background subrequest (origin.c), whose answer
 * goes into a fill instead of to the client (capture.c).
 *
 * All of it runs on the worker's only thread, except count_event in zone.c, which threads of the
 * library call. */
#ifndef CRL_NGX_MODULE_H
#define CRL_NGX_MODULE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <corral.h>
#include <corral/loop.h>

#include "http/rules.h"
#include "record.h"

#if !(NGX_HTTP_CACHE)
#error "this nginx was configured without its HTTP cache, whose parsers are used here"
#endif

/* The answer to a request: for $corral_status, and for counters. */
typedef enum crl_ngx_outcome {
  CRL_NGX_NONE = 0,
  CRL_NGX_HIT,
  CRL_NGX_STALE,
  CRL_NGX_UPDATING,
  CRL_NGX_MISS,
  CRL_NGX_COLLAPSED,
  CRL_NGX_BYPASS,
  CRL_NGX_PASS,
  CRL_NGX_EXPIRED,
  CRL_NGX_ERROR,
  CRL_NGX_OUTCOMES
} crl_ngx_outcome;

/* In the zone's shared memory: for all workers together, and across reloads. */
typedef struct crl_ngx_counters {
  ngx_atomic_t events[CORRAL_EVENT_COUNT];
  ngx_atomic_t requests[CRL_NGX_OUTCOMES];
} crl_ngx_counters;

typedef struct crl_ngx_zone {
  ngx_str_t name;
  corral_options options; /* its texts live as long as the configuration */
  crl_ngx_counters *counters;
  /* The worker's fields. */
  corral *c; /* NULL: it couldn't be opened; then requests go their own way */
  corral_loop *loop;
  ngx_connection_t *connection; /* for the loop's descriptor; no client */
  /* a timer while calls are under way: a worker that shuts down waits for timers */
  ngx_event_t hold;
  ngx_uint_t calls;
  ngx_uint_t is_closing;
  /* how often the store began to rest, and was back; counted by any thread */
  ngx_atomic_t downs, ups;
  ngx_atomic_t told_downs, told_ups; /* already in the error log */
} crl_ngx_zone;

typedef struct crl_ngx_main_conf {
  ngx_array_t zones; /* of crl_ngx_zone * */
} crl_ngx_main_conf;

/* Headers that corral_ignore_headers names. */
enum {
  CRL_NGX_IGNORE_SET = 1,
  CRL_NGX_IGNORE_ACCEL = 2,
  CRL_NGX_IGNORE_EXPIRES = 4,
  CRL_NGX_IGNORE_CONTROL = 8,
  CRL_NGX_IGNORE_COOKIE = 16,
  CRL_NGX_IGNORE_VARY = 32,
  CRL_NGX_IGNORE_CDN = 64
};

enum { CRL_NGX_FROM_LOCAL = 1, CRL_NGX_FROM_ANY }; /* corral_purge_from */

typedef struct crl_ngx_conf {
  ngx_str_t zone_name; /* from `corral`; "": off; data NULL: unset */
  crl_ngx_zone *zone;  /* set when the configuration is complete; NULL: off */
  ngx_http_complex_value_t *key;
  ngx_array_t *valid; /* of ngx_http_cache_valid_t */
  ngx_uint_t ignore;
  ngx_uint_t methods; /* of NGX_HTTP_GET... */
  ngx_array_t *bypass, *no_store;
  size_t max_size;
  ngx_msec_t revalidate; /* how long a page with a validator is kept after its fresh life; 0: off */
  ngx_http_complex_value_t *pass;
  ngx_str_t tag;          /* name of a response header; "": none */
  ngx_str_t cache_status; /* "": off; data NULL: unset; "on": the zone's name */
  /* The table's options for locations; 0: unset. at_deadline "compute": the request goes its own
   * way. */
  corral_policy policy;
  /* For handlers; not inherited. */
  ngx_uint_t is_handler; /* corral_purge or corral_status: the location itself is never cached */
  ngx_str_t purge_zone;
  crl_ngx_zone *purge;
  ngx_uint_t purge_from; /* inherited */
  ngx_http_complex_value_t *purge_key;
  ngx_uint_t purge_tag;
} crl_ngx_conf;

typedef struct crl_ngx_renewal crl_ngx_renewal;
typedef struct crl_ngx_hold crl_ngx_hold;

/* The context of a request. It survives internal redirects, which clear nginx's own table of
 * contexts. */
typedef struct crl_ngx_ctx {
  ngx_http_request_t *r;
  crl_ngx_zone *zone;
  crl_ngx_conf *conf; /* of the location that took the request */
  ngx_str_t key;
  u_char variant[2 * CRL_NGX_RECORD_HASH]; /* of the key; valid if is_variant */
  crl_ngx_outcome outcome;
  const char *detail; /* for Cache-Status; a token, or NULL */
  int64_t age_ms, ttl_ms;
  ngx_msec_t begun, waited;
  ngx_uint_t fwd_status;    /* the origin's; 0: unknown */
  ngx_uint_t variants;      /* looks at variants so far */
  crl_ngx_renewal *renewal; /* while its origin is asked whether the old page still holds */
  crl_ngx_hold *hold;       /* while its answer waits for an invalidation */
  unsigned is_variant : 1;
  unsigned is_lookup : 1; /* no_store: only a look, without a compute */
  unsigned has_led : 1;
  unsigned had_old : 1;
  unsigned is_pass : 1;     /* this request led, and its answer can't be kept */
  unsigned is_answered : 1; /* from a record */
  unsigned is_stored : 1;
  unsigned is_counted : 1;
  unsigned is_leading : 1;  /* its origin's subrequest runs */
  unsigned has_dropped : 1; /* a record that can't be sent was removed from the store */
  unsigned is_strict : 1;   /* what is in the store may not be sent stale: corral_soft is off */
  unsigned is_unsafe : 1;   /* its method changes what the store has */
  /* its call is over, by a time limit; the request waits for its own origin, which still runs */
  unsigned is_late : 1;
  /* for is_late: 0: reply with `late`; NGX_DECLINED: its own way; else a status page */
  ngx_int_t late_status;
  crl_ngx_record late;
} crl_ngx_ctx;

/* The result of a step. */
typedef enum crl_ngx_step { CRL_NGX_REPLIED, CRL_NGX_OWN_WAY, CRL_NGX_WAITS } crl_ngx_step;

typedef struct crl_ngx_capture crl_ngx_capture;

extern ngx_module_t ngx_http_corral_module;

static inline const char *crl_ngx_text(const ngx_str_t *s) { return (const char *)s->data; }

/* module.c */
crl_ngx_conf *crl_ngx_conf_of(ngx_http_request_t *r);

/* config.c: setters of directives. */
char *crl_ngx_set_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_corral(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* An option of the table: cmd->post is its name, cmd->offset that of its field. */
char *crl_ngx_set_option(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_pass(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_cache_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_purge(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* zone.c */
char *crl_ngx_zone_declare(ngx_conf_t *cf, crl_ngx_zone *zone);
crl_ngx_zone *crl_ngx_zone_find(crl_ngx_main_conf *conf, const ngx_str_t *name);
ngx_int_t crl_ngx_zone_init_process(ngx_cycle_t *cycle);
void crl_ngx_zone_exit_process(ngx_cycle_t *cycle);
/* One more call, or one less, is under way. */
void crl_ngx_zone_hold(crl_ngx_zone *zone);
void crl_ngx_zone_release(crl_ngx_zone *zone);
void crl_ngx_zone_count(crl_ngx_zone *zone, crl_ngx_outcome outcome);

/* handler.c */
ngx_int_t crl_ngx_handler(ngx_http_request_t *r);
/* NULL: corral has nothing to do with this request. */
crl_ngx_ctx *crl_ngx_ctx_of(ngx_http_request_t *r);

/* The origin of this request has ended. A request that is_late is answered now: with ctx->late
 * (status 0, set before), on its own way (NGX_DECLINED), or with a status page. */
void crl_ngx_led(crl_ngx_ctx *ctx, ngx_int_t status);

/* call.c: a call of the zone's loop on behalf of a request. CRL_NGX_WAITS, or CRL_NGX_OWN_WAY when
 * it couldn't begin. */
crl_ngx_step crl_ngx_call_begin(crl_ngx_ctx *ctx);
/* Its call, with the location's policy, which is copied to *policy, and the variant of the key. It
 * points into ctx and *policy. */
corral_call crl_ngx_call(const crl_ngx_ctx *ctx, corral_policy *policy);
/* Suspends the request; a client that leaves is noticed. 0, or -1. */
int crl_ngx_suspend(ngx_http_request_t *r);
/* Called by call.c with the result of the call; takes `value`. */
void crl_ngx_answered(crl_ngx_ctx *ctx, int status, corral_value *value, const corral_error *error);

/* origin.c: runs the origin for a fill, and ends the fill in any case, now or later. */
void crl_ngx_origin_begin(crl_ngx_ctx *ctx, corral_fill *fill);
/* The same without a condition. */
void crl_ngx_origin_run(crl_ngx_ctx *ctx, corral_fill *fill);

/* capture.c */
ngx_int_t crl_ngx_capture_init(ngx_conf_t *cf);
/* The capture of a subrequest that runs the origin; NULL for other requests. */
crl_ngx_capture *crl_ngx_capture_of(ngx_http_request_t *r);
/* NULL without memory. */
crl_ngx_capture *crl_ngx_capture_new(crl_ngx_ctx *ctx, corral_fill *fill,
                                     ngx_http_post_subrequest_t **ret);
/* Fails the fill. */
void crl_ngx_capture_fail(crl_ngx_capture *capture, ngx_uint_t status, const char *text);

/* store.c: fills with the captured answer. */
typedef struct crl_ngx_response {
  ngx_uint_t status;
  crl_ngx_field fields[CRL_NGX_RECORD_FIELDS];
  size_t count;
  ngx_chain_t *body; /* in memory */
  size_t body_len;
} crl_ngx_response;
void crl_ngx_store(crl_ngx_ctx *ctx, corral_fill *fill, ngx_http_request_t *sr,
                   crl_ngx_response *response);
/* Fills with the empty value, "go your own way": this request asks the origin a second time, and
 * for a while all requests ask it themselves. `detail` is static. */
void crl_ngx_store_nothing(crl_ngx_ctx *ctx, corral_fill *fill, const char *detail);
/* True when a 5xx is an answer, not a failure: corral_valid names its very status, or the response
 * says how long it lives and there is no old page to be sent instead. */
int crl_ngx_store_is_answer(crl_ngx_ctx *ctx, ngx_http_request_t *sr, ngx_uint_t status);

/* renew.c: revalidation (RFC 9111, 4.3). Looks whether the old page of this fill has a validator;
 * then the origin is asked with it. */
void crl_ngx_renew_begin(crl_ngx_ctx *ctx, corral_fill *fill);
/* Adds the conditions to the header of the request for the origin. NGX_OK, or NGX_ERROR. */
ngx_int_t crl_ngx_renew_ask(const crl_ngx_ctx *ctx, ngx_http_headers_in_t *in, ngx_pool_t *pool);
/* True when this answer is the 304 that was asked for. */
int crl_ngx_renew_is_answer(const crl_ngx_ctx *ctx, const crl_ngx_response *response);
/* Makes the whole page of a 304 and the old page, which it points into; the rules get the stored
 * fields that the 304 doesn't have. 0; -1: too many fields; CRL_NGX_OTHER_PAGE: the 304 is about
 * another page than the old one. */
enum { CRL_NGX_OTHER_PAGE = -2 };
int crl_ngx_renew_merge(const crl_ngx_ctx *ctx, crl_ngx_response *response, crl_http_rules *rules,
                        ngx_pool_t *pool);
/* The life of the old page; 0: nothing is renewed. */
int64_t crl_ngx_renew_ttl(const crl_ngx_ctx *ctx);
/* True when the new record's header is the old one's: its body needn't be stored again. */
int crl_ngx_renew_is_same(const crl_ngx_ctx *ctx, const crl_ngx_record *record,
                          const crl_ngx_response *response);
/* True when the page may be sent stale, that long after it was stored. */
int crl_ngx_may_be_stale(const crl_ngx_record *record, int64_t kept_ms);

/* unsafe.c: what an unsafe method invalidates (RFC 9111, 4.4). */
ngx_int_t crl_ngx_unsafe_init(ngx_conf_t *cf);
int crl_ngx_is_unsafe(const ngx_http_request_t *r);

/* fields.c: collects the header fields of an answer that are kept. 0; -1: too many, or too long. */
int crl_ngx_fields_collect(ngx_http_request_t *sr, crl_ngx_response *response, ngx_pool_t *pool);
int crl_ngx_field_is(const crl_ngx_field *field, const char *name);

/* vary.c: the hash of a request's values for the header fields in `names`. */
void crl_ngx_vary_hash(ngx_http_request_t *r, const unsigned char *names, size_t len,
                       unsigned char *hash);
/* The tag of all variants of a key, at most CRL_NGX_VARY_TAG bytes; returns its length. */
enum { CRL_NGX_VARY_TAG = 64 };
size_t crl_ngx_vary_tag(const unsigned char *key, size_t len, unsigned char *tag);

/* reply.c: sends the record as the request's answer; returns a status for nginx's finalization.
 * Takes `value`, which the record points into; NULL: it points into the request's pool. */
ngx_int_t crl_ngx_reply(crl_ngx_ctx *ctx, corral_value *value, const crl_ngx_record *record);

/* variables.c */
ngx_int_t crl_ngx_variables_add(ngx_conf_t *cf);
/* Adds the Cache-Status header, if this location wants it. */
ngx_int_t crl_ngx_cache_status(ngx_http_request_t *r, crl_ngx_ctx *ctx);
const char *crl_ngx_outcome_name(crl_ngx_outcome outcome);

/* purge.c: invalidates a page with all its variants. Blocks. */
int crl_ngx_invalidate_page(corral *c, const void *key, size_t len, corral_error *error);
/* Begins to remove the key's record from the store. CRL_NGX_WAITS, or CRL_NGX_OWN_WAY when
 * that couldn't begin. */
crl_ngx_step crl_ngx_drop_begin(crl_ngx_ctx *ctx);
/* Called by purge.c at the end of that. */
void crl_ngx_dropped(crl_ngx_ctx *ctx, int status);

/* status.c, purge.c: content handlers. */
ngx_int_t crl_ngx_status_handler(ngx_http_request_t *r);
ngx_int_t crl_ngx_purge_handler(ngx_http_request_t *r);
/* Sends a short text as the whole answer; `type` is static. */
ngx_int_t crl_ngx_send_text(ngx_http_request_t *r, ngx_uint_t status, const char *type,
                            const ngx_str_t *text);

#endif
