/* module.h: shared by the files of the nginx module.
 *
 * handler.c takes a request of a location with `corral NAME` in the precontent phase. A copy in the
 * worker answers at once; else the request begins a call of the zone's corral_loop and is
 * suspended, until a callback resumes it: with a record (reply.c), with a status page, or on its
 * own way: to the location's content handler, as if corral weren't there. A request that is told to
 * compute runs the location's handler once more as a background subrequest (origin.c). Its answer
 * is judged by its header (store.c). What can be kept goes into a fill (capture.c), and meanwhile
 * to the clients of this worker that wait for it (stream.c). What can't goes to the leading
 * request's client alone (forward.c).
 *
 * All of it runs on the worker's only thread, except crl_ngx_count_event, which threads of the
 * library call, and the `work` of purge.c and drop.c. */
#ifndef CRL_NGX_MODULE_H
#define CRL_NGX_MODULE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <corral.h>
#include <corral/control.h>
#include <corral/log.h>
#include <corral/loop.h>
#include <corral/page.h>

#include "http/rules.h"

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
  CRL_NGX_REVALIDATED,
  CRL_NGX_ERROR,
  CRL_NGX_OUTCOMES
} crl_ngx_outcome;

/* Where the configuration says nothing. An answer may take as long as its origin sends. */
enum { CRL_NGX_COMPUTE_MS = 600000 };
enum { CRL_NGX_WAIT_MS = 60000 }; /* nginx's own default of proxy_read_timeout and its like */
enum { CRL_NGX_USES = 32768 };    /* places of uses.c */

/* Times that are counted: of requests that wait for others, of origins, of the store. */
typedef enum crl_ngx_time {
  CRL_NGX_TIME_WAIT = 0,
  CRL_NGX_TIME_ORIGIN,
  CRL_NGX_TIME_STORE,
  CRL_NGX_TIMES
} crl_ngx_time;

enum { CRL_NGX_BUCKETS = 13, CRL_NGX_PROCESSES = NGX_MAX_PROCESSES };

typedef struct crl_ngx_histogram {
  ngx_atomic_t counts[CRL_NGX_BUCKETS + 1]; /* the last one: longer than all buckets */
  ngx_atomic_t sum_us;
} crl_ngx_histogram;

/* Of one worker: requests in corral, those of them whose origin is asked, those that wait for
 * another's or for the store, servers of the store that rest, bytes of the near tier; 1 for the way
 * in which it learns of changes, and for the operator's order that it follows. */
typedef struct crl_ngx_gauges {
  ngx_atomic_t calls, leading, waiting, down, near;
  ngx_atomic_t wake[CORRAL_WAKE_COUNT], order[CORRAL_CONTROL_COUNT];
} crl_ngx_gauges;

/* In the zone's shared memory: for all workers together, and across reloads. */
typedef struct crl_ngx_counters {
  ngx_atomic_t events[CORRAL_EVENT_COUNT];
  ngx_atomic_t requests[CRL_NGX_OUTCOMES];
  ngx_atomic_t purges; /* of anything: requests that come later join no answer begun before */
  crl_ngx_histogram times[CRL_NGX_TIMES];
  crl_ngx_gauges gauges[CRL_NGX_PROCESSES]; /* by nginx's number of the process */
  ngx_atomic_t uses[CRL_NGX_USES];
} crl_ngx_counters;

typedef struct crl_ngx_flights crl_ngx_flights;
typedef struct crl_ngx_job crl_ngx_job;
typedef struct crl_ngx_reader crl_ngx_reader;
typedef struct crl_ngx_capture crl_ngx_capture;

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
  crl_ngx_flights *flights;
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

/* The target of a purge. */
enum {
  CRL_NGX_PURGE_REQUEST = 0, /* the request says it */
  CRL_NGX_PURGE_KEY,
  CRL_NGX_PURGE_TAG,
  CRL_NGX_PURGE_PREFIX,
  CRL_NGX_PURGE_ALL
};

typedef struct crl_ngx_conf {
  ngx_str_t zone_name; /* from `corral`; "": off; data NULL: unset */
  ngx_uint_t is_off;   /* `corral off` is said here, or above */
  crl_ngx_zone *zone;  /* set when the configuration is complete; NULL: off */
  ngx_http_complex_value_t *key;
  ngx_array_t *valid; /* of ngx_http_cache_valid_t */
  ngx_uint_t ignore;
  ngx_uint_t methods; /* of NGX_HTTP_GET... */
  ngx_array_t *bypass, *no_store, *refresh;
  ngx_int_t min_uses;
  ngx_uint_t heuristic; /* percent of the time since Last-Modified; 0: off */
  size_t max_size;
  ngx_msec_t revalidate; /* how long a page with a validator is kept after its fresh life; 0: off */
  ngx_http_complex_value_t *pass;
  ngx_array_t *tags;      /* of ngx_str_t: names of response fields; NULL: unset */
  ngx_int_t path_tags;    /* levels; 0: off */
  ngx_str_t cache_status; /* "": off; data NULL: unset; "on": the zone's name */
  /* The table's options for locations; 0: unset. at_deadline "compute": the request goes its own
   * way. */
  corral_policy policy;
  int64_t wait_ms; /* the policy's, or the location's read timeout */
  ngx_uint_t has_gzip_static;
  ngx_int_t deadline_max;
  /* For handlers; not inherited. */
  ngx_uint_t is_handler; /* corral_purge or corral_status: the location itself is never cached */
  ngx_str_t purge_zone;
  crl_ngx_zone *purge;
  ngx_uint_t purge_from;               /* inherited */
  ngx_flag_t with_purge;               /* inherited: the method PURGE */
  ngx_http_complex_value_t *purge_key; /* NULL: there is none */
  ngx_uint_t purge_kind, purge_soft;
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
  u_char variant[2 * CORRAL_PAGE_HASH]; /* of the key; valid if is_variant */
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
  unsigned is_leading : 1;    /* its origin's subrequest runs */
  unsigned is_strict : 1;     /* what is in the store may not be sent stale: corral_soft is off */
  unsigned is_unsafe : 1;     /* its method changes what the store has */
  unsigned is_sent : 1;       /* it leads, and its client gets the answer as it comes */
  unsigned is_waiting : 1;    /* linked as `waiting` */
  unsigned is_passing : 1;    /* linked as `passing` */
  unsigned is_gauged : 1;     /* among those that wait, for corral_status */
  unsigned has_dropped : 1;   /* the key's record was removed from the store for this request */
  unsigned is_refresh : 1;    /* because of corral_refresh */
  unsigned is_anew : 1;       /* its call rebuilds a page that is there */
  unsigned has_overtaken : 1; /* its page was being rebuilt, which was voided */
  /* its call is over, by a time limit; the request waits for its own origin, which still runs */
  unsigned is_late : 1;
  ngx_int_t late_status;      /* for the end of a request that is_late, or is_sent */
  ngx_int_t led_status;       /* of its origin's failure; 0: none */
  ngx_atomic_uint_t purges;   /* the zone's, when the request came */
  crl_ngx_job *job;           /* its call; NULL: none under way */
  crl_ngx_capture *capture;   /* of the answer that it leads; NULL: none */
  ngx_http_request_t *sr;     /* its origin's subrequest, whose answer is forwarded; NULL: none */
  crl_ngx_reader *reader;     /* of an answer that comes; NULL: none */
  ngx_http_request_t *origin; /* the subrequest that asks its origin; valid if is_leading */
  void **home;                /* the location's configurations when the request came */
  ngx_array_t *route;         /* redirects of its origin's subrequest, or of its page; NULL: none */
  ngx_uint_t moves;           /* how many of them it has followed */
  ngx_http_headers_out_t
      *own_header;     /* while it has that of its subrequest; NULL: it has its own */
  corral_value *value; /* its page, while it is redirected there; NULL: none */
  ngx_queue_t waiting; /* among the requests of the worker with a call under way */
  ngx_queue_t passing; /* among those that go their own way after too long a wait */
} crl_ngx_ctx;

/* The result of a step. */
typedef enum crl_ngx_step { CRL_NGX_REPLIED, CRL_NGX_OWN_WAY, CRL_NGX_WAITS } crl_ngx_step;

extern ngx_module_t ngx_http_corral_module;

static inline const char *crl_ngx_text(const ngx_str_t *s) { return (const char *)s->data; }

/* The level at which nginx logs an event. */
static inline ngx_uint_t crl_ngx_level(corral_event event) {
  return (ngx_uint_t)corral_event_level(event) - CORRAL_LEVEL_ERROR + NGX_LOG_ERR;
}

/* module.c */
crl_ngx_conf *crl_ngx_conf_of(ngx_http_request_t *r);

/* redirect.c */
ngx_int_t crl_ngx_redirect_init(ngx_http_core_main_conf_t *core);
/* Hands a new subrequest what the request got of the answer that redirected the last one. */
void crl_ngx_redirect_go_on(crl_ngx_ctx *ctx, ngx_http_request_t *sr);
/* True for the field by which a page is stored with a redirect. */
int crl_ngx_redirect_is_field(const corral_page_field *field);
/* True when the page was made in a location that the request has to be redirected to first. */
int crl_ngx_redirect_is_away(const crl_ngx_ctx *ctx, const corral_page *record);
/* Begins that, and takes the value: 1; the handler gets it back there. 0: the request is there. -1:
 * it can't be redirected there, and must not get the page. */
int crl_ngx_redirect_follow(crl_ngx_ctx *ctx, const corral_page *record, corral_value *value);

/* lend.c: a leading request gets what its variables about its origin are made of. */
void crl_ngx_lend_init(ngx_conf_t *cf);
void crl_ngx_lend(ngx_http_request_t *r, ngx_http_request_t *sr);

/* patience.c: the longest wait for others in the location that is being merged. */
int64_t crl_ngx_patience(ngx_conf_t *cf, const corral_policy *policy);
/* True for `gzip_static on` in the location that is being merged. */
ngx_uint_t crl_ngx_has_gzip_static(ngx_conf_t *cf);
/* After so long a wait a request without corral_soft takes a stale page, shortly before its end. */
int64_t crl_ngx_soft(const crl_ngx_ctx *ctx);

/* config.c: setters of directives. */
char *crl_ngx_set_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_corral(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* An option of the table: cmd->post is its name, cmd->offset that of its field. */
char *crl_ngx_set_option(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_heuristic(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_pass(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_cache_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_tag(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_purge(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *crl_ngx_set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* counters.c */
char *crl_ngx_zone_declare(ngx_conf_t *cf, crl_ngx_zone *zone);
extern const uint32_t crl_ngx_bucket_ms[CRL_NGX_BUCKETS]; /* longest times of the buckets */
void crl_ngx_count_event(const corral_event_info *info, void *arg);
/* Counts an answered request, once, and tells the error log why its answer isn't the usual one. */
void crl_ngx_count(crl_ngx_ctx *ctx);
/* Something was purged: no later request joins an answer that is coming. */
void crl_ngx_zone_purged(crl_ngx_zone *zone);
void crl_ngx_gauges_reset(crl_ngx_zone *zone);
void crl_ngx_gauge_calls(crl_ngx_zone *zone);               /* calls, and the near tier */
void crl_ngx_gauge_leading(crl_ngx_zone *zone, int more);   /* 1 or -1 */
void crl_ngx_gauge_waiting(crl_ngx_zone *zone, int more);   /* 1 or -1 */
crl_ngx_gauges crl_ngx_gauges_of(const crl_ngx_zone *zone); /* of all workers */

/* zone.c */
crl_ngx_zone *crl_ngx_zone_find(crl_ngx_main_conf *conf, const ngx_str_t *name);
ngx_int_t crl_ngx_zone_init_process(ngx_cycle_t *cycle);
void crl_ngx_zone_exit_process(ngx_cycle_t *cycle);
/* One more call, or one less, is under way. */
void crl_ngx_zone_hold(crl_ngx_zone *zone);
void crl_ngx_zone_release(crl_ngx_zone *zone);

/* handler.c */
ngx_int_t crl_ngx_handler(ngx_http_request_t *r);
/* True for a request with corral_refresh that wants to know what there is. */
static inline int crl_ngx_only_looks(const crl_ngx_ctx *ctx) {
  return ctx->is_refresh && !ctx->is_anew && !ctx->has_overtaken;
}
/* NULL: corral has nothing to do with this request. */
crl_ngx_ctx *crl_ngx_ctx_of(ngx_http_request_t *r);

/* The origin of this request has failed with this status: a request that is_late is answered. */
void crl_ngx_led(crl_ngx_ctx *ctx, ngx_int_t status);
/* Sets what is told of a record that answers this request. */
void crl_ngx_describe(crl_ngx_ctx *ctx, const corral_page *record, int64_t age_ms, corral_how how);
/* Ends the request with this result of its output, not from within its subrequest. */
void crl_ngx_end_later(crl_ngx_ctx *ctx, ngx_int_t rc);

/* call.c: a call of the zone's loop on behalf of a request. CRL_NGX_WAITS, or CRL_NGX_OWN_WAY when
 * it couldn't begin. */
crl_ngx_step crl_ngx_call_begin(crl_ngx_ctx *ctx);
/* Its call, with the location's policy, which is copied to *policy, and the variant of the key. It
 * points into ctx and *policy. */
corral_call crl_ngx_call(const crl_ngx_ctx *ctx, corral_policy *policy);
/* Suspends the request; a client that leaves is noticed. 0, or -1. */
int crl_ngx_suspend(ngx_http_request_t *r);
/* A client that leaves ends the request, and what it leads. 0, or -1. */
int crl_ngx_notice_leaving(ngx_http_request_t *r);
/* The request doesn't need its call any more; what the call computes goes on. */
void crl_ngx_call_leave(crl_ngx_ctx *ctx);
/* The request may end before its call does, which has all it needs. */
void crl_ngx_call_part(crl_ngx_ctx *ctx);
/* True while the call's result is to come. */
int crl_ngx_call_is_open(const crl_ngx_ctx *ctx);
/* Called by call.c with the result of the call; takes `value`. */
void crl_ngx_answered(crl_ngx_ctx *ctx, int status, corral_value *value, const corral_error *error);

/* origin.c: runs the origin for a fill, and ends the fill in any case, now or later. */
void crl_ngx_origin_begin(crl_ngx_ctx *ctx, corral_fill *fill);
/* The same without a condition. */
void crl_ngx_origin_run(crl_ngx_ctx *ctx, corral_fill *fill);

/* loop_guard.c: true when the request comes, through other proxies, from one that leads its page on
 * this very store. */
ngx_uint_t crl_ngx_is_led_in_front(const crl_ngx_ctx *ctx);
enum { CRL_NGX_MARK = 32 };
/* Adds the field by which that is seen to the header of the origin's subrequest. */
ngx_int_t crl_ngx_mark_led(const crl_ngx_ctx *ctx, ngx_http_request_t *sr);

/* capture.c */
ngx_int_t crl_ngx_capture_init(ngx_conf_t *cf);
/* The capture of a subrequest that runs the origin; NULL for other requests. */
crl_ngx_capture *crl_ngx_capture_of(ngx_http_request_t *r);
/* NULL without memory. */
crl_ngx_capture *crl_ngx_capture_new(crl_ngx_ctx *ctx, corral_fill *fill,
                                     ngx_http_post_subrequest_t **ret);
/* The call of the request is over, with a value or without. True when the request is answered by
 * what its origin sends, or has sent. */
int crl_ngx_capture_settled(crl_ngx_ctx *ctx, ngx_uint_t has_value);
/* The leading request of a subrequest for an origin without an answer yet; NULL for others. */
crl_ngx_ctx *crl_ngx_redirected(ngx_http_request_t *r);
/* The subrequest ends, but not the fill: another one begins where its request is redirected to. */
void crl_ngx_capture_suspend(crl_ngx_capture *capture);
/* True when that is so. */
int crl_ngx_capture_is_suspended(const crl_ngx_ctx *ctx);
void crl_ngx_capture_resume(crl_ngx_ctx *ctx);
/* The request was answered otherwise there: others elect anew. */
void crl_ngx_capture_give_up(crl_ngx_ctx *ctx);
/* Fails the fill. */
void crl_ngx_capture_fail(crl_ngx_capture *capture, ngx_uint_t status, const char *text);

typedef struct crl_ngx_response {
  ngx_uint_t status;
  corral_page_field fields[CORRAL_PAGE_FIELDS];
  size_t count;
} crl_ngx_response;

/* redirect.c: adds the redirect to a page's fields, where there was one. 0; -1: it can't be. */
int crl_ngx_redirect_add(const crl_ngx_ctx *ctx, const ngx_http_request_t *sr,
                         crl_ngx_response *response);

/* store.c: true when a 5xx is an answer, not a failure: corral_valid names its very status, or the
 * response says how long it lives and there is no old page to be sent instead. */
int crl_ngx_store_is_answer(crl_ngx_ctx *ctx, ngx_http_request_t *sr, ngx_uint_t status);
/* A stream of events or of pictures has no end that anybody could wait for. */
ngx_uint_t crl_ngx_is_endless(const ngx_http_request_t *sr);

/* renew.c: revalidation (RFC 9111, 4.3). Looks whether the old page of this fill has a validator;
 * then the origin is asked with it. */
void crl_ngx_renew_begin(crl_ngx_ctx *ctx, corral_fill *fill);
/* Adds the conditions to the header of the request for the origin. NGX_OK, or NGX_ERROR. */
ngx_int_t crl_ngx_renew_ask(const crl_ngx_ctx *ctx, ngx_http_headers_in_t *in, ngx_pool_t *pool);
/* True when this answer is the 304 that was asked for. */
int crl_ngx_renew_is_answer(const crl_ngx_ctx *ctx, const crl_ngx_response *response);
/* Makes the header of the page that a 304 renews, which points into the old page; the rules get the
 * stored fields that the 304 doesn't have. 0; -1: too many fields; CRL_NGX_OTHER_PAGE: the 304 is
 * about another page than the old one. */
enum { CRL_NGX_OTHER_PAGE = -2 };
int crl_ngx_renew_merge(const crl_ngx_ctx *ctx, crl_ngx_response *response, crl_http_rules *rules);
/* The life of the old page; 0: nothing is renewed. */
int64_t crl_ngx_renew_ttl(const crl_ngx_ctx *ctx);
/* True when the new record's header is the old one's: its body needn't be stored again. */
int crl_ngx_renew_is_same(const crl_ngx_ctx *ctx, const corral_page *record,
                          const crl_ngx_response *response);
size_t crl_ngx_renew_body(const crl_ngx_ctx *ctx, const unsigned char **ret);
/* True when a failure of this fill would be answered with a page that may be sent stale. */
int crl_ngx_has_stale(corral_fill *fill);

/* unsafe.c: what an unsafe method invalidates (RFC 9111, 4.4). */
ngx_int_t crl_ngx_unsafe_init(ngx_conf_t *cf);
int crl_ngx_is_unsafe(const ngx_http_request_t *r);

/* Makes the header of a request's answer that of another one. Both are allocated from one pool. */
void crl_ngx_copy_header(ngx_http_request_t *to, const ngx_http_request_t *from);

/* forward.c: sends an answer that can't be kept to the leading request's client, as it comes. */
ngx_int_t crl_ngx_forward_header(crl_ngx_ctx *ctx, ngx_http_request_t *sr);
ngx_int_t crl_ngx_forward_body(crl_ngx_ctx *ctx, ngx_chain_t *in);
/* The origin's subrequest has ended. */
void crl_ngx_forward_end(crl_ngx_ctx *ctx, ngx_uint_t is_whole);

/* fields.c: collects the header fields of an answer that are kept. 0; -1: too many, or too long. */
int crl_ngx_fields_collect(const crl_ngx_ctx *ctx, ngx_http_request_t *sr,
                           crl_ngx_response *response);
int crl_ngx_field_is(const corral_page_field *field, const char *name);

/* vary.c: the hash of a request's values for the header fields in `names`. 0; -1 without memory. */
int crl_ngx_vary_hash(ngx_http_request_t *r, const unsigned char *names, size_t len,
                      unsigned char *hash);

/* reply.c: sends the record as the request's answer; returns a status for nginx's finalization.
 * Takes `value`, which the record points into. */
ngx_int_t crl_ngx_reply(crl_ngx_ctx *ctx, corral_value *value, const corral_page *record);
/* Its first step: sends the header, with this length of the body (-1: unknown). The record lives as
 * long as the request. NGX_OK: the body may follow, unless r->header_only. */
ngx_int_t crl_ngx_reply_header(crl_ngx_ctx *ctx, const corral_page *record, off_t length);

/* variables.c */
ngx_int_t crl_ngx_variables_add(ngx_conf_t *cf);
/* Adds the Cache-Status header, if this location wants it. */
ngx_int_t crl_ngx_cache_status(ngx_http_request_t *r, crl_ngx_ctx *ctx);
const char *crl_ngx_outcome_name(crl_ngx_outcome outcome);

/* drop.c: begins to remove the key's record from the store; for corral_refresh, to void its
 * rebuild. CRL_NGX_WAITS, or CRL_NGX_OWN_WAY when
 * that couldn't begin. */
crl_ngx_step crl_ngx_drop_begin(crl_ngx_ctx *ctx);
/* Called by drop.c at the end of that. */
void crl_ngx_dropped(crl_ngx_ctx *ctx, int status);

/* tags.c: adds the tags of a page to its fill. 0; -1: it can't have all of them. */
int crl_ngx_tags_add(crl_ngx_ctx *ctx, corral_fill *fill, ngx_http_request_t *sr,
                     const crl_ngx_response *response);
/* The same for a page that the 304 of `sr` renews; `is_same`: its record stays, with its tags.
 * CRL_NGX_UNKNOWN: nobody knows all its tags. */
enum { CRL_NGX_UNKNOWN = -2 };
int crl_ngx_tags_renew(crl_ngx_ctx *ctx, corral_fill *fill, ngx_http_request_t *sr,
                       const crl_ngx_response *response, int is_same);

/* uses.c: counts this request; true when the key had fewer than corral_min_uses until now. */
ngx_uint_t crl_ngx_is_rare(crl_ngx_ctx *ctx);

/* permit.c */
/* True for a client that may purge; why not is in the error log. */
ngx_uint_t crl_ngx_permits(ngx_http_request_t *r);
ngx_uint_t crl_ngx_is_purge(const ngx_http_request_t *r); /* by its method */
ngx_int_t crl_ngx_refuse_method(ngx_http_request_t *r);
/* The first line of a request's field; NULL: it has none. */
ngx_table_elt_t *crl_ngx_request_field(ngx_http_request_t *r, const char *name);

/* purge.c: purges the page of this key. NGX_DONE: it goes on; else a status, to finalize with. */
ngx_int_t crl_ngx_purge_page(ngx_http_request_t *r, const ngx_str_t *key);
/* Answers that it can't be done; `why` is a text for JSON. */
ngx_int_t crl_ngx_purge_refuse(ngx_http_request_t *r, ngx_uint_t status, const char *why);

/* status.c, purge.c: content handlers. */
ngx_int_t crl_ngx_status_handler(ngx_http_request_t *r);
ngx_int_t crl_ngx_purge_handler(ngx_http_request_t *r);
/* Writes a zone's name for both JSON and Prometheus: quotes, backslashes and controls become
 * '_'. */
u_char *crl_ngx_put_name(u_char *at, const ngx_str_t *name);
/* Sends a short text as the whole answer; `type` is static. */
ngx_int_t crl_ngx_send_text(ngx_http_request_t *r, ngx_uint_t status, const char *type,
                            const ngx_str_t *text);

#endif
